// Converts the profiler's events to traces for chrome://tracing and Perfetto, and merges traces of several processes.
#ifndef WEIR_FRAMEWORK_PROFILE_TRACE_H_
#define WEIR_FRAMEWORK_PROFILE_TRACE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/profile/profiler.h"
#include "proto/trace.pb.h"

namespace weir {

// Makes the trace of one process. `process`: "trainer 0", "server 1". The rows of a process are its threads, then calls
// in progress, as many rows as there were concurrent calls.
v1::Trace MakeTrace(const Profiler::Recorded& recorded, std::string_view process);

// Merges traces: processes in the order of their names, trainers first, with arrows from calls to their handlers.
// Processes of one machine share its monotonic clock. The clock of another machine is aligned by the calls between it
// and machines already aligned: half of the shortest round trip is taken as the time of one way. A machine without such
// calls keeps its times. InvalidArgument if two traces are of one process.
absl::StatusOr<v1::Trace> MergeTraces(const std::vector<v1::Trace>& traces);

// Returns true for an event with a duration and usable times.
bool IsSpan(const v1::TraceEvent& event);

// Writes the file atomically.
absl::Status WriteTrace(const std::string& path, const v1::Trace& trace);
// Reads a trace. DataLoss if the file is not a trace of Weir.
absl::StatusOr<v1::Trace> ReadTrace(const std::string& path);
absl::StatusOr<v1::Trace> ParseTrace(std::string_view json);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_PROFILE_TRACE_H_
