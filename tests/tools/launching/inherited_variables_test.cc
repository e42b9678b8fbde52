#include "tools/launching/inherited_variables.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

using Texts = std::map<std::string, std::string>;

Environment Of(Texts variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

// Reads into flags; "" or what is refused.
std::string ReadInto(PlacementFlags* flags, const Texts& variables) {
  return std::string(ReadInherited(Of(variables), flags).message());
}
std::string Read(const Texts& variables, PlacementFlags flags) { return ReadInto(&flags, variables); }

std::string Check(const Texts& variables, const Placement& placement) {
  return std::string(CheckInherited(Of(variables), placement).message());
}

TEST(InheritedVariablesTest, AnotherLauncherTellsTheNodesRank) {
  for (const char* name :
       {"NODE_RANK", "GROUP_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "PADDLE_TRAINER_ID"}) {
    PlacementFlags flags{.nnodes = 3};
    EXPECT_EQ(ReadInto(&flags, {{name, "2"}, {"SLURM_STEP_ID", "0"}}), "");
    EXPECT_EQ(flags.node_rank, 2) << name;
  }
}

TEST(InheritedVariablesTest, TheMastersAddressAndPortAreTaken) {
  PlacementFlags flags{.nnodes = 2, .node_rank = 0};
  EXPECT_EQ(ReadInto(&flags, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "7"}}), "");
  EXPECT_EQ(flags.master_addr, "a");
  EXPECT_EQ(flags.master_port, 7);
}

TEST(InheritedVariablesTest, TheAgentOfTorchrunHasItsPortForItself) {
  const std::map<std::string, std::string> torchrun = {{"TORCHELASTIC_RUN_ID", "r"}, {"MASTER_PORT", "29500"}};
  PlacementFlags flags{.nnodes = 2, .node_rank = 0};
  EXPECT_EQ(ReadInto(&flags, torchrun), "");
  EXPECT_EQ(flags.master_port, 29501);
  flags.master_port = 7000;
  EXPECT_EQ(ReadInto(&flags, torchrun), "");
  EXPECT_EQ(flags.master_port, 7000);
}

TEST(InheritedVariablesTest, ARankThatContradictsTheFlagIsRefused) {
  EXPECT_EQ(Read({{"NODE_RANK", "1"}, {"RANK", "1"}}, {.nnodes = 2, .node_rank = 1}), "");
  EXPECT_THAT(Read({{"OMPI_COMM_WORLD_RANK", "1"}}, {.nnodes = 2, .node_rank = 0}),
              HasSubstr("--node_rank is 0 but the variable OMPI_COMM_WORLD_RANK is 1: launch runs once a node"));
  EXPECT_THAT(Read({{"PADDLE_TRAINER_ID", "3"}}, {.nnodes = 4, .node_rank = 2}),
              HasSubstr("--node_rank is 2 but the variable PADDLE_TRAINER_ID is 3"));
}

TEST(InheritedVariablesTest, VariablesThatDisagreeAreRefused) {
  EXPECT_THAT(Read({{"NODE_RANK", "1"}, {"RANK", "0"}}, {.nnodes = 2}),
              HasSubstr("the variable NODE_RANK is 1 but the variable RANK is 0"));
}

TEST(InheritedVariablesTest, SizesAndAddressesThatContradictAreRefused) {
  EXPECT_THAT(Read({{"OMPI_COMM_WORLD_SIZE", "4"}}, {.nnodes = 2, .node_rank = 0}),
              HasSubstr("the variable OMPI_COMM_WORLD_SIZE is 4, but --nnodes is 2"));
  EXPECT_THAT(Read({{"MASTER_ADDR", "b"}}, {.nnodes = 2, .node_rank = 0, .master_addr = "a"}),
              HasSubstr("--master_addr is a but the variable MASTER_ADDR is b"));
  EXPECT_THAT(Read({{"MASTER_PORT", "8"}}, {.master_port = 7}),
              HasSubstr("--master_port is 7 but the variable MASTER_PORT is 8"));
}

TEST(InheritedVariablesTest, ALaunchOfAllThatIsOneOfSeveralIsRefused) {
  EXPECT_THAT(Read({{"RANK", "1"}}, {}),
              HasSubstr("the variable RANK is 1: launch is itself one of several processes"));
  EXPECT_THAT(Read({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}}, {}),
              HasSubstr("the variable OMPI_COMM_WORLD_SIZE is 2: launch is itself one of several"));
  EXPECT_THAT(Read({{"SLURM_PROCID", "3"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}},
                   {.np = 2, .hosts = {{.name = "a"}}, .hosts_from = "-H"}),
              HasSubstr("the variable SLURM_PROCID is 3"));
  // One process of a launcher, or what a batch script sees.
  EXPECT_EQ(Read({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"SLURM_PROCID", "0"}}, {}), "");
  // Set by cluster scripts for another job.
  EXPECT_EQ(Read({{"PADDLE_TRAINER_ID", "9"}, {"MASTER_ADDR", "x"}}, {}), "");
}

TEST(InheritedVariablesTest, AnInteractiveShellOrABatchScriptSaysNothing) {
  const PlacementFlags node{.nnodes = 2, .node_rank = 1};
  EXPECT_EQ(Read({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}}, node), "");
  EXPECT_EQ(Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, node), "");
  EXPECT_EQ(Read({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "interactive"}, {"SLURM_NTASKS", "4"}}, node), "");
  EXPECT_EQ(Read({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, node), "");
  EXPECT_THAT(Read({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}}, node),
              HasSubstr("--node_rank is 1 but the variable SLURM_PROCID is 0"));
}

TEST(InheritedVariablesTest, WhatIsNoNumberIsRefused) {
  EXPECT_THAT(Read({{"RANK", "first"}}, {}), HasSubstr("the variable RANK is 'first', must be a number"));
  EXPECT_THAT(Read({{"MASTER_PORT", "-1"}}, {}), HasSubstr("the variable MASTER_PORT is '-1'"));
  EXPECT_EQ(Read({{"RANK", ""}}, {}), "");
}

TEST(InheritedVariablesTest, NumbersOfProcessesMustFit) {
  const Placement node{.trainers = 6, .nodes = 3, .hosts = {{.trainers = 2}}};
  for (const char* number : {"6", "3"}) {
    EXPECT_EQ(Check({{"WORLD_SIZE", number}, {"PADDLE_TRAINERS_NUM", number}}, node), "");
  }
  EXPECT_EQ(Check({{"WORLD_SIZE", "4"}}, node),
            "the variable WORLD_SIZE is 4, but launch starts 6 trainers on 3 nodes; correct or unset it");
  EXPECT_THAT(Check({{"PADDLE_TRAINERS_NUM", "4"}}, node), HasSubstr("PADDLE_TRAINERS_NUM is 4, but launch starts 6"));
  EXPECT_THAT(Check({{"LOCAL_WORLD_SIZE", "3"}}, node),
              HasSubstr("LOCAL_WORLD_SIZE is 3, but launch starts 2 trainers on this node"));
  EXPECT_EQ(Check({{"LOCAL_WORLD_SIZE", "2"}}, node), "");
  const Placement here{.trainers = 2, .nodes = 1, .hosts = {{.trainers = 2}}};
  EXPECT_EQ(Check({{"WORLD_SIZE", "1"}, {"PADDLE_TRAINERS_NUM", "7"}}, here), "");
  EXPECT_THAT(Check({{"WORLD_SIZE", "4"}}, here), HasSubstr("WORLD_SIZE is 4, but launch starts 2 trainers on 1 node"));
}

}  // namespace
}  // namespace weir
