// What doctor says about a machine: from files of a machine that is made up, and of the real one.

#include "tools/machine/machine_report.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace fs = std::filesystem;

// A root directory with the files of a machine.
class FakeRoot {
 public:
  explicit FakeRoot(const std::string& name) : root_(fs::path(std::getenv("TEST_TMPDIR")) / name) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string path() const { return root_.string(); }

 private:
  const fs::path root_;
};

TEST(MachineReportTest, NumaNodesAreReadInTheOrderOfTheirNumbers) {
  FakeRoot root("numa");
  for (const int node : {10, 2}) {
    const std::string folder = absl::StrCat("sys/devices/system/node/node", node);
    root.Write(folder + "/cpulist", absl::StrCat(node, "-", node + 1, ",40\n"));
    root.Write(folder + "/meminfo", absl::StrCat("Node ", node, " MemTotal:       ", node * 1024, " kB\nNode x\n"));
  }
  root.Write("sys/devices/system/node/online", "0-1\n");
  root.Write("sys/devices/system/node/nodes/cpulist", "7\n");
  const auto nodes = NumaNodes(root.path());
  ASSERT_THAT(nodes, SizeIs(2));
  EXPECT_EQ(nodes[0].number(), 2);
  EXPECT_EQ(nodes[0].cores(), "2-3,40");
  EXPECT_EQ(nodes[0].memory_bytes(), 2 << 20);
  EXPECT_EQ(nodes[1].number(), 10);
}

TEST(MachineReportTest, AMachineThatTellsNothingHasNoNodes) {
  FakeRoot root("empty");
  EXPECT_THAT(NumaNodes(root.path()), IsEmpty());
  root.Write("sys/devices/system/node/node0/other", "x");
  const auto nodes = NumaNodes(root.path());
  ASSERT_THAT(nodes, SizeIs(1));
  EXPECT_FALSE(nodes[0].has_memory_bytes());
}

TEST(MachineReportTest, PortsOfConnectionsAreRead) {
  FakeRoot root("ports");
  v1::MachineReport::Limits limits;
  ReadPortRange(root.path(), &limits);
  EXPECT_FALSE(limits.has_first_local_port());
  root.Write("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
  ReadPortRange(root.path(), &limits);
  EXPECT_EQ(limits.first_local_port(), 32768);
  EXPECT_EQ(limits.last_local_port(), 60999);
  root.Write("proc/sys/net/ipv4/ip_local_port_range", "many\n");
  v1::MachineReport::Limits none;
  ReadPortRange(root.path(), &none);
  EXPECT_FALSE(none.has_first_local_port());
}

std::vector<NetworkInterface> SomeInterfaces() {
  return {{.name = "eth0", .up = true, .addresses = {"10.0.0.5"}}, {.name = "eth1"}};
}

TEST(MachineReportTest, TheAddressIsThatOfTheNamedInterface) {
  const auto network = ReportOnNetwork(SomeInterfaces(), {.interface = "eth0"});
  EXPECT_EQ(network.address(), "10.0.0.5");
  EXPECT_EQ(network.chosen_by(), "--interface=eth0");
  EXPECT_EQ(network.interface(0).address(0), "10.0.0.5");
  EXPECT_FALSE(network.interface(1).up());
  const auto none = ReportOnNetwork(SomeInterfaces(), {.interface = "eth1"});
  EXPECT_FALSE(none.has_address());
  EXPECT_EQ(none.why_not(), "network interface 'eth1' is down; there are eth0 (10.0.0.5), eth1 (down)");
}

TEST(MachineReportTest, TheAddressLeadsToThePeer) {
  const auto network = ReportOnNetwork(SomeInterfaces(), {.towards = "127.0.0.1:6170"});
  EXPECT_EQ(network.address(), "127.0.0.1");
  EXPECT_EQ(network.chosen_by(), "the route to 127.0.0.1:6170");
  EXPECT_THAT(ReportOnNetwork({}, {.towards = "no port"}).why_not(), HasSubstr("no port"));
}

TEST(MachineReportTest, EveryPartOfThisMachineIsReported) {
  const v1::MachineReport report = ReportOnMachine({});
  EXPECT_GE(report.version_size(), 5);
  EXPECT_GE(report.processor().usable_cores(), 1);
  EXPECT_GE(report.processor().cores(), report.processor().usable_cores());
  EXPECT_THAT(report.processor().arithmetic(), ::testing::AnyOf("avx512", "avx2", "sse41"));
  EXPECT_TRUE(report.cuda().has_why_not() || report.cuda().device_size() > 0);
  ASSERT_GE(report.library_size(), 2);
  for (const auto& library : report.library()) {
    EXPECT_NE(library.has_why_not(), library.has_path()) << library.ShortDebugString();
    EXPECT_NE(library.has_why_not(), library.has_version()) << library.ShortDebugString();
  }
  EXPECT_GT(report.network().interface_size(), 0);
  EXPECT_NE(report.network().has_address(), report.network().has_why_not());
  ASSERT_EQ(report.backend_size(), 3);
  EXPECT_TRUE(report.backend(0).usable());
  EXPECT_EQ(report.backend(2).name(), "NCCL");
  EXPECT_NE(report.backend(2).usable(), report.backend(2).has_why_not());
  EXPECT_GT(report.limits().open_files(), 0);
  EXPECT_LT(report.limits().first_local_port(), report.limits().last_local_port());
}

TEST(MachineReportTest, TextAndJsonHaveTheSame) {
  v1::MachineReport report;
  auto* const version = report.add_version();
  version->set_name("gRPC");
  version->set_version("1.51.1");
  report.mutable_processor()->set_usable_cores(3);
  auto* const device = report.mutable_cuda()->add_device();
  device->set_number(0);
  device->set_name("NVIDIA X");
  device->set_memory_bytes(int64_t{3} << 30);
  device->add_peer(1);
  device->add_peer(2);
  auto* const library = report.add_library();
  library->set_name("NCCL");
  library->set_why_not("not there");
  report.mutable_network()->set_no_unix_sockets("read-only");
  auto* const backend = report.add_backend();
  backend->set_name("NCCL");
  backend->set_why_not("no library");
  report.mutable_limits()->set_open_files(1024);
  report.mutable_limits()->set_locked_memory_bytes(-1);
  const std::string text = MachineText(report);
  for (const char* part :
       {"gRPC 1.51.1\n", "cores 3 usable", "0 NVIDIA X, 3.0 GiB", "peers 1 2", "NCCL no: not there",
        "Unix-domain sockets: no: read-only", "NCCL no: no library", "open files 1024", "locked memory no limit"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const std::string json = ReportJson(report).value();
  for (const char* part : {"\"usable_cores\": 3", "\"why_not\": \"no library\"", "\"open_files\": \"1024\"",
                           "\"no_unix_sockets\": \"read-only\""}) {
    EXPECT_THAT(json, HasSubstr(part));
  }
}

TEST(MachineReportTest, BytesHaveAUnit) {
  EXPECT_EQ(BytesText(-1), "no limit");
  EXPECT_EQ(BytesText(512), "0.5 KiB");
  EXPECT_EQ(BytesText(int64_t{3} << 19), "1.5 MiB");
  EXPECT_EQ(BytesText(int64_t{5} << 40), "5120.0 GiB");
}

}  // namespace
}  // namespace weir
