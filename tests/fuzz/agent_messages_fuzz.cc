// Any line as a message between launch and its agent. A message that can be read is the same when it is written and
// read again.
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/fuzz/input.h"
#include "tools/hosts/agent_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  const auto fields = DecodeMessage(FuzzInput(data, size).Rest());
  if (!fields.ok()) return 0;
  std::string line = EncodeMessage(*fields);
  line.pop_back();
  if (line.find('\n') != std::string::npos || *DecodeMessage(line) != *fields) std::abort();
  (void)NumberIn(*fields, 1);
  if (const auto hello = ParseHello(*fields); hello.ok() && hello->version == kAgentVersion) {
    if (hello->machine.usable_cores < 1 || hello->machine.numa_nodes.empty()) std::abort();
  }
  if (const auto setup = ParseSetup(*fields); setup.ok()) {
    if (ParseSetup(*DecodeMessage(EncodeSetup(*setup).substr(0, EncodeSetup(*setup).size() - 1)))->directory !=
        setup->directory) {
      std::abort();
    }
  }
  if (const auto start = ParseStart(*fields); start.ok()) {
    std::string again = EncodeStart(*start);
    again.pop_back();
    if (ParseStart(*DecodeMessage(again))->command != start->command) std::abort();
  }
  return 0;
}
