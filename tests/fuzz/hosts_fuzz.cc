// Any text as a hostfile and as the value of -H. What is read can be dealt to, and has names that no shell or ssh takes
// for more than a name.
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/fuzz/input.h"
#include "tools/hosts/host_names.h"
#include "tools/hosts/hosts.h"

namespace {

void Check(const absl::StatusOr<std::vector<weir::Host>>& hosts) {
  if (!hosts.ok()) return;
  int slots = 0;
  for (const weir::Host& host : *hosts) {
    if (host.name.empty() || host.name[0] == '-' || host.slots < 1) std::abort();
    if (host.name.find_first_of(" \t\r\n'\"\\;@[]/") != std::string::npos) std::abort();
    if (host.name.find(':') != std::string::npos && !weir::IsAddress(host.name)) std::abort();
    slots += host.slots;
  }
  const auto dealt = weir::DealTrainers(*hosts, -1, "-H");
  if (!dealt.ok() || dealt->size() != hosts->size()) std::abort();
  if (weir::DealTrainers(*hosts, slots + 1, "-H").ok()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = weir::FuzzInput(data, size).Rest();
  Check(weir::ParseHostList(text));
  Check(weir::ParseHostfile(text, "hosts.txt"));
  return 0;
}
