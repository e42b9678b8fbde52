// Where the step went, as a table for people: made of a trace of one process or of all of a job.
#ifndef WEIR_FRAMEWORK_RUNTIME_PROFILE_TABLE_H_
#define WEIR_FRAMEWORK_RUNTIME_PROFILE_TABLE_H_

#include <map>
#include <string>
#include <vector>

#include "proto/trace.pb.h"

namespace weir {

// What one row says.
struct ProfileRow {
  std::string name;
  std::vector<double> ms;  // of each, without what stands inside it as a row of its own
  double total() const;
  double mean() const { return ms.empty() ? 0 : total() / static_cast<double>(ms.size()); }
  double p99() const;
};

// Of a trainer.
struct StepBreakdown {
  std::string process;
  std::vector<double> step_ms;
  double total_ms = 0;  // of all steps
  // By what the thread that runs the steps did: "computing", "waiting for servers", "waiting for data", ... Adds up to
  // total_ms.
  std::map<std::string, double> ms;
};

// One for each trainer that ran a step of the window, in the order of the trace.
std::vector<StepBreakdown> BreakDownSteps(const v1::Trace& trace);

// At most a screen or so: the critical lines of a step first, then operators, calls, threads and servers, each by what
// it costs. Ends with a newline. Says so when no step was recorded.
std::string ProfileTable(const v1::Trace& trace);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_PROFILE_TABLE_H_
