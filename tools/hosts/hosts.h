// Hosts that launch starts trainers on: -H and --hostfile.
#ifndef WEIR_TOOLS_HOSTS_HOSTS_H_
#define WEIR_TOOLS_HOSTS_HOSTS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct Host {
  // Name or address as it was written; an IPv6 address without brackets.
  std::string name;
  // Trainers that it takes, at least 1.
  int slots = 1;
  // Address at which processes of other hosts reach those of this one; "": its name.
  std::string address;
};

// Parses the value of -H: "ps-1:4,ps-2:2,[fe80::1]:8"; a host without a number has one slot. A host that is there more
// than once has the slots of all, at its first place. InvalidArgument names the column.
absl::StatusOr<std::vector<Host>> ParseHostList(std::string_view text);

// Parses the text of a --hostfile: a host a line, "ps-1", "ps-1 slots=4", "ps-1:4" or "[fe80::1] slots=8
// address=10.0.0.1"; # begins a comment. `file` is for messages. Hosts that are there more than once are merged as by
// ParseHostList. InvalidArgument names file, line and column.
absl::StatusOr<std::vector<Host>> ParseHostfile(std::string_view text, const std::string& file);

// Returns the trainers of each host: slots are filled in the order of the hosts. trainers -1: as many as there are
// slots. InvalidArgument with the numbers if there are too few slots; `source`: where the hosts come from, "-H".
absl::StatusOr<std::vector<int>> DealTrainers(const std::vector<Host>& hosts, int trainers, const std::string& source);

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_HOSTS_H_
