#include "tools/launching/core_shares.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/machine/machine.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A directory like /sys with the files given.
std::string Sys(const std::string& name, const std::map<std::string, std::string>& files) {
  const std::filesystem::path sys = std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::remove_all(sys);
  for (const auto& [file, text] : files) {
    std::filesystem::create_directories((sys / file).parent_path());
    std::ofstream(sys / file) << text;
  }
  return sys.string();
}

// "0-3 4" for each process: its processors and threads; "all 4" if it is not bound.
std::vector<std::string> Texts(const absl::StatusOr<std::vector<CoreShare>>& shares) {
  std::vector<std::string> texts;
  if (!shares.ok()) return {std::string(shares.status().message())};
  for (const CoreShare& share : *shares) {
    texts.push_back(absl::StrCat(share.cpus.empty() ? "all" : FormatCpuList(share.cpus), " ", share.threads));
  }
  return texts;
}

Machine WithNodes(const std::vector<std::vector<int>>& nodes) {
  int cores = 0;
  for (const std::vector<int>& node : nodes) cores += static_cast<int>(node.size());
  return {.usable_cores = cores, .numa_nodes = nodes};
}

const Machine& Small() {
  static const Machine* const machine = new Machine(WithNodes({{0, 1}}));
  return *machine;
}
const Machine& TwoNodes() {
  static const Machine* const machine = new Machine(WithNodes({{0, 1, 2, 3}, {4, 5, 6, 7}}));
  return *machine;
}

TEST(MachineTest, ListsOfProcessorsAreReadAndWritten) {
  EXPECT_THAT(*ParseCpuList("0-3,8,10-11\n"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(*ParseCpuList("\n"), IsEmpty());
  EXPECT_EQ(FormatCpuList({11, 0, 1, 10, 3, 2, 8}), "0-3,8,10-11");
  EXPECT_EQ(FormatCpuList({}), "");
  for (const char* wrong : {"3-1", "a", "1-2-3", "-1", "1,", "0-99999999", "0-65536"}) {
    EXPECT_FALSE(ParseCpuList(wrong).ok()) << wrong;
  }
}

TEST(MachineTest, NodesAreReadFromSysAndNarrowedToWhatIsUsable) {
  const std::string sys = Sys("nodes", {{"devices/system/node/online", "0-2\n"},
                                        {"devices/system/node/node0/cpulist", "0-3\n"},
                                        {"devices/system/node/node1/cpulist", "4-7\n"},
                                        {"devices/system/node/node2/cpulist", "\n"}});
  EXPECT_THAT(NumaNodes(sys, {0, 1, 2, 3, 4, 5, 6, 7}), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  EXPECT_THAT(NumaNodes(sys, {2, 3}), ElementsAre(ElementsAre(2, 3)));
}

TEST(MachineTest, ThreadsOfACoreAreNeighbours) {
  const std::string sys = Sys("threads", {{"devices/system/node/online", "0\n"},
                                          {"devices/system/node/node0/cpulist", "0-3\n"},
                                          {"devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n"},
                                          {"devices/system/cpu/cpu1/topology/thread_siblings_list", "1,3\n"},
                                          {"devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2\n"},
                                          {"devices/system/cpu/cpu3/topology/thread_siblings_list", "1,3\n"}});
  EXPECT_THAT(NumaNodes(sys, {0, 1, 2, 3}), ElementsAre(ElementsAre(0, 2, 1, 3)));
}

TEST(MachineTest, WithoutSysAllIsOneNode) {
  EXPECT_THAT(NumaNodes("/nowhere", {1, 5}), ElementsAre(ElementsAre(1, 5)));
  const std::string sys = Sys("garbage", {{"devices/system/node/online", "zero\n"}});
  EXPECT_THAT(NumaNodes(sys, {1, 5}), ElementsAre(ElementsAre(1, 5)));
  EXPECT_THAT(NumaNodes("/nowhere", {}), ElementsAre(ElementsAre(0)));
}

TEST(MachineTest, ThisMachineHasProcessors) {
  const Machine machine = ThisMachine();
  EXPECT_GE(machine.usable_cores, 1);
  ASSERT_FALSE(machine.numa_nodes.empty());
  EXPECT_FALSE(machine.numa_nodes[0].empty());
}

TEST(CoreSharesTest, AutoBindsNothingOnOneNode) {
  EXPECT_THAT(Texts(DivideCores(Small(), Bind::kAuto, 2)), ElementsAre("all 1", "all 1"));
  EXPECT_THAT(Texts(DivideCores(Small(), Bind::kAuto, 3)), ElementsAre("all 1", "all 1", "all 1"));
  EXPECT_THAT(Texts(DivideCores(Small(), Bind::kAuto, 1)), ElementsAre("all 2"));
}

TEST(CoreSharesTest, AutoGivesNodesWhereEachGetsAProcess) {
  EXPECT_THAT(Texts(DivideCores(TwoNodes(), Bind::kAuto, 2)), ElementsAre("0-3 4", "4-7 4"));
  // One process alone may use the whole machine.
  EXPECT_THAT(Texts(DivideCores(TwoNodes(), Bind::kAuto, 1)), ElementsAre("all 8"));
}

TEST(CoreSharesTest, ProcessesShareNodesAsEvenlyAsPossible) {
  EXPECT_THAT(Texts(DivideCores(TwoNodes(), Bind::kNuma, 3)), ElementsAre("0-3 2", "0-3 2", "4-7 4"));
  EXPECT_THAT(Texts(DivideCores(TwoNodes(), Bind::kNuma, 6)),
              ElementsAre("0-3 2", "0-3 1", "0-3 1", "4-7 2", "4-7 1", "4-7 1"));
  EXPECT_THAT(Texts(DivideCores(TwoNodes(), Bind::kNuma, 1)), ElementsAre("0-7 8"));
}

TEST(CoreSharesTest, FewerProcessesThanNodesHaveSeveral) {
  const Machine four = WithNodes({{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  EXPECT_THAT(Texts(DivideCores(four, Bind::kNuma, 3)), ElementsAre("0-3 4", "4-5 2", "6-7 2"));
}

TEST(CoreSharesTest, CoresOfAProcessStayInItsNode) {
  EXPECT_THAT(Texts(DivideCores(TwoNodes(), Bind::kCores, 3)), ElementsAre("0-1 2", "2-3 2", "4-7 4"));
  EXPECT_THAT(Texts(DivideCores(Small(), Bind::kCores, 2)), ElementsAre("0 1", "1 1"));
  // Threads of a core stay together.
  EXPECT_THAT(Texts(DivideCores(WithNodes({{0, 2, 1, 3}}), Bind::kCores, 2)), ElementsAre("0,2 2", "1,3 2"));
}

TEST(CoreSharesTest, MoreProcessesThanCoresAreRefused) {
  EXPECT_THAT(Texts(DivideCores(Small(), Bind::kCores, 3)),
              ElementsAre(HasSubstr("--bind=cores: 3 processes of a kind, but 2 processors to divide")));
}

TEST(CoreSharesTest, AQuotaLimitsThreadsButNotProcessors) {
  Machine limited = TwoNodes();
  limited.usable_cores = 4;
  EXPECT_THAT(Texts(DivideCores(limited, Bind::kNuma, 2)), ElementsAre("0-3 2", "4-7 2"));
  EXPECT_THAT(Texts(DivideCores(limited, Bind::kNone, 2)), ElementsAre("all 2", "all 2"));
}

TEST(CoreSharesTest, NoProcessesHaveNoShares) { EXPECT_THAT(Texts(DivideCores(Small(), Bind::kCores, 0)), IsEmpty()); }

TEST(CoreSharesTest, WordsAreKnown) {
  EXPECT_EQ(*ParseBind("numa"), Bind::kNuma);
  EXPECT_THAT(std::string(ParseBind("core").status().message()), "--bind=core: must be auto, none, cores or numa");
}

}  // namespace
}  // namespace weir
