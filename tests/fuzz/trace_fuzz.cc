// Any text as traces of two processes, one behind the other with a NUL between: read, put together, made into a table.
// The merged trace must be readable again.
#include <cstdlib>

#include "framework/profile/profile_table.h"
#include "framework/profile/trace.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static const ScratchDirectory scratch("trace");
  const std::string text = FuzzInput(data, size).Rest();
  const size_t nul = text.find('\0');
  std::vector<v1::Trace> traces;
  for (const std::string& part : {text.substr(0, nul), nul == std::string::npos ? "" : text.substr(nul + 1)}) {
    const auto trace = ParseTrace(part);
    if (!trace.ok()) continue;
    (void)ProfileTable(*trace);
    traces.push_back(*trace);
  }
  const auto merged = MergeTraces(traces);
  if (!merged.ok()) return 0;
  (void)ProfileTable(*merged);
  const std::string file = scratch.path() + "/trace.json";
  if (!WriteTrace(file, *merged).ok() || !ReadTrace(file).ok()) std::abort();
  return 0;
}
