#include "tools/launching/child_commands.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

// Second of two nodes with two trainers each; a server on the first.
LaunchOptions Node() {
  LaunchOptions options{.job = "j", .programs = {.pserver = "/p", .trainer = "/t"}, .trainer_arguments = {"--resume"}};
  options.placement = {.trainers = 4,
                       .nodes = 2,
                       .servers = {{.host = -1, .address = "10.0.0.1", .listen = "10.0.0.1", .port = 6170}},
                       .hosts = {{.node = 1, .first_trainer = 2, .trainers = 2}},
                       .master_addr = "10.0.0.1",
                       .master_port = 29500};
  return options;
}

Meeting MeetingOf(const LaunchOptions& options) {
  return {.endpoints = ServerEndpoints(options.placement),
          .master_addr = options.placement.master_addr,
          .master_port = options.placement.master_port};
}

TEST(ChildCommandsTest, TheLastValueOfAFlagCountsWithDashesOrUnderscores) {
  const std::vector<std::string> arguments = {"--run_id=a", "-run-id", "b", "--resume"};
  EXPECT_EQ(ValueOf(arguments, "run_id"), "b");
  EXPECT_EQ(ValueOf(arguments, "resume"), "");
  EXPECT_EQ(ValueOf(arguments, "resume_run"), std::nullopt);
}

TEST(ChildCommandsTest, ATrainerIsToldWhoItIsInEveryLaunchersWords) {
  const LaunchOptions options = Node();
  const ChildCommand child =
      TrainerCommand(options, MeetingOf(options), {.local_rank = 1, .threads = 3, .gpus = "4,5"});
  EXPECT_THAT(child.command, ElementsAre("/t", "--trainer_id=3", "--pservers=10.0.0.1:6170", "--job=j", "--threads=3",
                                         "--set=distribute.servers=1", "--set=distribute.trainers=4", "--resume"));
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"RANK", "3"},
                                                        {"WORLD_SIZE", "4"},
                                                        {"LOCAL_RANK", "1"},
                                                        {"LOCAL_WORLD_SIZE", "2"},
                                                        {"NODE_RANK", "1"},
                                                        {"GROUP_RANK", "1"},
                                                        {"MASTER_ADDR", "10.0.0.1"},
                                                        {"MASTER_PORT", "29500"},
                                                        {"TRAINING_ROLE", "TRAINER"},
                                                        {"PADDLE_TRAINER_ID", "3"},
                                                        {"PADDLE_TRAINERS_NUM", "4"},
                                                        {"PADDLE_NUM_TRAINERS", "4"},
                                                        {"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1:6170"},
                                                        // All devices of the node, of which LOCAL_RANK is one.
                                                        {"CUDA_VISIBLE_DEVICES", "4,5"}}) {
    EXPECT_THAT(child.environment, Contains(Pair(name, std::optional<std::string>(value))));
  }
  for (const char* name : {"PADDLE_TRAINER_ENDPOINTS", "PADDLE_CURRENT_ENDPOINT", "OMPI_COMM_WORLD_RANK",
                           "SLURM_PROCID", "POD_IP", "TORCHELASTIC_RUN_ID", "TF_CONFIG"}) {
    EXPECT_THAT(child.environment, Contains(Pair(name, std::optional<std::string>())));
  }
}

TEST(ChildCommandsTest, EveryProcessHasTheExitCodeOfAStop) {
  LaunchOptions options = Node();
  const ChildCommand usual = TrainerCommand(options, MeetingOf(options), {});
  EXPECT_THAT(usual.command, Not(Contains(StartsWith("--stop_code"))));
  options.stop_code = 0;
  EXPECT_THAT(TrainerCommand(options, MeetingOf(options), {}).command, Contains("--stop_code=0"));
  EXPECT_THAT(ServerCommand(options, 0, /*threads=*/1).command, Contains("--stop_code=0"));
}

TEST(ChildCommandsTest, EveryProcessStartsFromTheSameCheckpoints) {
  LaunchOptions options = Node();
  options.start_from = "/models/a,/models/b";
  EXPECT_THAT(TrainerCommand(options, MeetingOf(options), {}).command, Contains("--start_from=/models/a,/models/b"));
  EXPECT_THAT(ServerCommand(options, 0, /*threads=*/1).command, Contains("--start_from=/models/a,/models/b"));
}

TEST(ChildCommandsTest, WithoutGpusTheDevicesAreLeftAsTheyAre) {
  const LaunchOptions options = Node();
  EXPECT_FALSE(TrainerCommand(options, MeetingOf(options), {}).environment.contains("CUDA_VISIBLE_DEVICES"));
}

TEST(ChildCommandsTest, TrainersThatServeKnowAllEndpoints) {
  LaunchOptions options = Node();
  options.placement.servers.clear();
  options.placement.hosts = {
      {.name = "b", .address = "b", .listen = "0.0.0.0", .node = 1, .first_trainer = 1, .trainers = 1}};
  const ChildCommand child = TrainerCommand(options, {.endpoints = {"10.0.0.1:11", "b:12"}}, {.threads = 1});
  EXPECT_THAT(child.command, AllOf(Contains("--pservers=10.0.0.1:11,b:12"), Contains("--endpoint=0.0.0.0:12"),
                                   Contains("--set=distribute.servers=0")));
  EXPECT_THAT(child.environment,
              AllOf(Contains(Pair("PADDLE_TRAINER_ENDPOINTS", std::optional<std::string>("10.0.0.1:11,b:12"))),
                    Contains(Pair("PADDLE_CURRENT_ENDPOINT", std::optional<std::string>("b:12"))),
                    Contains(Pair("MASTER_ADDR", std::optional<std::string>()))));
}

TEST(ChildCommandsTest, TrainersThatNobodyKnowsMeetAtTheMaster) {
  LaunchOptions options = Node();
  options.placement.servers.clear();
  options.placement.meet_at_master = true;
  EXPECT_THAT(TrainerCommand(options, {.master_addr = "fe80::1", .master_port = 7}, {}).command,
              AllOf(Contains("--init_method=tcp://[fe80::1]:7"), Not(Contains(StartsWith("--pservers")))));
  options.trainer_arguments = {"--init_method", "file:///shared/meet"};
  EXPECT_THAT(TrainerCommand(options, {.master_addr = "a", .master_port = 7}, {}).command,
              Not(Contains("--init_method=tcp://a:7")));
}

TEST(ChildCommandsTest, ServersThatNobodyKnowsMeetTheTrainers) {
  LaunchOptions options = Node();
  options.placement.servers = {{.host = -1, .address = "10.0.0.1", .listen = "10.0.0.1", .port = 29501},
                               {.host = 0, .address = "", .listen = "0.0.0.0", .port = 29502}};
  options.placement.meet_at_master = true;
  const ChildCommand server = ServerCommand(options, 1, /*threads=*/2);
  EXPECT_THAT(server.command,
              ElementsAre("/p", "--endpoint=0.0.0.0:29502", "--server_id=1", "--init_method=tcp://10.0.0.1:29500",
                          "--job=j", "--threads=2", "--set=distribute.servers=2", "--set=distribute.trainers=4"));
  const ChildCommand trainer = TrainerCommand(options, MeetingOf(options), {});
  EXPECT_THAT(trainer.command,
              AllOf(Contains("--init_method=tcp://10.0.0.1:29500"), Not(Contains(StartsWith("--pservers")))));
  EXPECT_THAT(trainer.environment, Contains(Pair("PADDLE_PSERVERS_IP_PORT_LIST", std::optional<std::string>())));
}

TEST(ChildCommandsTest, ServersFollowTheTrainersToThePlaceThatTheirArgumentsName) {
  LaunchOptions options = Node();
  options.placement.meet_at_master = true;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--init_method=env://", "--init-method", "file:///shared/meet"},
        std::vector<std::string>{"-init-method=file:///shared/meet", "--resume"}}) {
    options.trainer_arguments = arguments;
    EXPECT_THAT(ServerCommand(options, 0, 1).command, Contains("--init_method=file:///shared/meet"));
    EXPECT_THAT(TrainerCommand(options, MeetingOf(options), {}).command,
                Not(Contains("--init_method=tcp://10.0.0.1:29500")));
  }
  // env:// is the master for both.
  for (const ChildCommand& child : {ServerCommand(options, 0, 1), TrainerCommand(options, MeetingOf(options), {})}) {
    EXPECT_THAT(child.environment, AllOf(Contains(Pair("MASTER_ADDR", std::optional<std::string>("10.0.0.1"))),
                                         Contains(Pair("MASTER_PORT", std::optional<std::string>("29500")))));
  }
}

TEST(ChildCommandsTest, EveryoneGetsTheDirectoryOfTheJob) {
  LaunchOptions options = Node();
  options.job_dir = "jobs";
  EXPECT_THAT(ServerCommand(options, 0, 1).command, Contains("--job_dir=jobs"));
  EXPECT_THAT(TrainerCommand(options, MeetingOf(options), {}).command, Contains("--job_dir=jobs"));
}

TEST(ChildCommandsTest, AServerListensAtItsPlaceAndIsNoRank) {
  LaunchOptions options = Node();
  const ChildCommand child = ServerCommand(options, 0, /*threads=*/2);
  EXPECT_THAT(child.command,
              ElementsAre("/p", "--endpoint=10.0.0.1:6170", "--server_id=0", "--pservers=10.0.0.1:6170", "--job=j",
                          "--threads=2", "--set=distribute.servers=1", "--set=distribute.trainers=4"));
  EXPECT_THAT(child.environment, AllOf(Contains(Pair("TRAINING_ROLE", std::optional<std::string>("PSERVER"))),
                                       Contains(Pair("RANK", std::optional<std::string>())),
                                       Contains(Pair("LOCAL_RANK", std::optional<std::string>()))));
  // A port that the system chooses is in no list yet.
  options.placement.servers[0].port = 0;
  EXPECT_THAT(ServerCommand(options, 0, 2).command, Not(Contains(StartsWith("--pservers"))));
}

TEST(ChildCommandsTest, EveryoneGetsTheUsersVariables) {
  LaunchOptions options = Node();
  options.environment = {{"NCCL_DEBUG", "INFO"}, {"OMPI_COMM_WORLD_RANK", "mine"}};
  for (const ChildCommand& child : {ServerCommand(options, 0, 1), TrainerCommand(options, MeetingOf(options), {})}) {
    EXPECT_THAT(child.environment, AllOf(Contains(Pair("NCCL_DEBUG", std::optional<std::string>("INFO"))),
                                         Contains(Pair("OMPI_COMM_WORLD_RANK", std::optional<std::string>("mine")))));
  }
}

TEST(ChildCommandsTest, VariablesOfLaunchAreNotTheUsers) {
  EXPECT_TRUE(CheckVariable("NCCL_DEBUG").ok());
  EXPECT_THAT(std::string(CheckVariable("RANK").message()), HasSubstr("launch sets RANK for every process itself"));
  for (const char* name : {"", "1A", "A-B", "A B"}) {
    EXPECT_THAT(std::string(CheckVariable(name).message()), HasSubstr("is no name of a variable")) << name;
  }
}

}  // namespace
}  // namespace weir
