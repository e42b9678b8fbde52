// Finds out what this machine has and what a process of Weir can use of it.
#ifndef WEIR_TOOLS_MACHINE_MACHINE_REPORT_H_
#define WEIR_TOOLS_MACHINE_MACHINE_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "pserver/network/interfaces.h"
#include "tools/machine/machine_report.pb.h"

namespace weir {

struct MachineOptions {
  // Directory with `proc` and `sys`: "/" but for tests.
  std::string root = "/";
  // Network interface whose address is to be chosen (comm.interface); "" for the route to `towards`.
  std::string interface;
  // host:port of a peer; "" for the route to other networks.
  std::string towards;
};

// Looks at everything. Loads libraries, and opens no device. Missing things are part of the report, not errors.
v1::MachineReport ReportOnMachine(const MachineOptions& options);

// The parts that read files below options.root or take a list, for tests.
std::vector<v1::MachineReport::NumaNode> NumaNodes(const std::string& root);
void ReadPortRange(const std::string& root, v1::MachineReport::Limits* limits);
v1::MachineReport::Network ReportOnNetwork(const std::vector<NetworkInterface>& interfaces,
                                           const MachineOptions& options);

// Returns the report as text for people.
std::string MachineText(const v1::MachineReport& report);
// Returns a report as JSON, with the names of the proto's fields.
absl::StatusOr<std::string> ReportJson(const google::protobuf::Message& report);

// Returns "1.5 GiB", "no limit" for -1.
std::string BytesText(int64_t bytes);

}  // namespace weir

#endif  // WEIR_TOOLS_MACHINE_MACHINE_REPORT_H_
