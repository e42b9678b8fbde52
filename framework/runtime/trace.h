// Traces: what the profiler has recorded as a file for chrome://tracing and Perfetto, and files of several processes
// put together.
#ifndef WEIR_FRAMEWORK_RUNTIME_TRACE_H_
#define WEIR_FRAMEWORK_RUNTIME_TRACE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/runtime/profiler.h"
#include "proto/trace.pb.h"

namespace weir {

// `process`: "trainer 0", "server 1". Rows of a process are its threads, then calls under way, as many rows as there
// were at once.
v1::Trace MakeTrace(const Profiler::Recorded& recorded, std::string_view process);

// One trace of all, processes in the order of their names, trainers first, with arrows from calls to their handlers.
// Processes of one machine share its monotonic clock. The clock of another machine is set by the calls between it and
// machines already set: an answer's quickest way there and back, taken as twice the way. One without such calls keeps
// its times. InvalidArgument when two traces are of one process.
absl::StatusOr<v1::Trace> MergeTraces(const std::vector<v1::Trace>& traces);

// An event that took time, with times that can be counted with.
bool IsSpan(const v1::TraceEvent& event);

// Whole or not at all.
absl::Status WriteTrace(const std::string& path, const v1::Trace& trace);
// DataLoss when the file is no trace of ours.
absl::StatusOr<v1::Trace> ReadTrace(const std::string& path);
absl::StatusOr<v1::Trace> ParseTrace(std::string_view json);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_TRACE_H_
