// Prints a table of the time spent in steps, from a trace of one process or of all processes of a job.
#ifndef WEIR_FRAMEWORK_PROFILE_PROFILE_TABLE_H_
#define WEIR_FRAMEWORK_PROFILE_PROFILE_TABLE_H_

#include <map>
#include <string>
#include <vector>

#include "proto/trace.pb.h"

namespace weir {

// One row of the table.
struct ProfileRow {
  std::string name;
  std::vector<double> ms;  // self time of each event, excluding time inside it that has a row of its own
  double total() const;
  double mean() const { return ms.empty() ? 0 : total() / static_cast<double>(ms.size()); }
  double p99() const;
};

// Times of the steps of one trainer.
struct StepBreakdown {
  std::string process;
  std::vector<double> step_ms;
  double total_ms = 0;  // of all steps
  // Time by activity of the thread that runs the steps: "computing", "waiting for servers", "waiting for data", ...
  // Adds up to total_ms.
  std::map<std::string, double> ms;
};

// Returns one entry for each trainer that ran a step of the window, in the order of the trace.
std::vector<StepBreakdown> BreakDownSteps(const v1::Trace& trace);

// Returns the table, about one screen: first the breakdown of a step, then operators, operations among trainers, calls,
// servers and threads, each sorted by cost. Ends with a newline. Says so if no step was recorded.
std::string ProfileTable(const v1::Trace& trace);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_PROFILE_PROFILE_TABLE_H_
