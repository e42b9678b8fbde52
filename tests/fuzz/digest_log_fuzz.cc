// Any text as two digest logs, one behind the other with a NUL between. A log that can be read is equal to itself.
#include <cstdlib>

#include "framework/checkpoint/digest_log.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static const ScratchDirectory scratch("digests");
  const std::string text = FuzzInput(data, size).Rest();
  const size_t nul = text.find('\0');
  const std::string a = scratch.Write("a", text.substr(0, nul));
  const std::string b = scratch.Write("b", nul == std::string::npos ? "" : text.substr(nul + 1));
  (void)CompareDigestLogs(a, b);
  const auto same = CompareDigestLogs(a, a);
  if (same.ok() && !same->equal) std::abort();
  return 0;
}
