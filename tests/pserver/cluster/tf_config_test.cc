// TF_CONFIG as TensorFlow's ParameterServerStrategy, MultiWorkerMirroredStrategy and Kubeflow's TFJob set it.
#include "pserver/cluster/tf_config.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "pserver/cluster/cluster.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCluster[] = R"("cluster": {"chief": ["c:1"], "worker": ["w:1", "w:2"], "ps": ["p:1", "p:2"]})";
constexpr char kWorkers[] = R"("cluster": {"worker": ["w:1", "w:2"]})";
constexpr char kNoServers[] = "distribute { servers: 0 }";

struct Process {
  // "\"cluster\": {...}", and "worker 0".
  std::string cluster, task;
  std::string job;
  Role program = Role::kTrainer;
  ClusterFlags flags;
  std::map<std::string, std::string> variables;
};

// Returns the variable of a process; of one without a task if that is "".
std::string Variable(const Process& process) {
  const size_t blank = process.task.find(' ');
  if (blank == std::string::npos) return absl::StrCat("{", process.cluster, "}");
  return absl::StrCat("{", process.cluster, ", \"task\": {\"type\": \"", process.task.substr(0, blank),
                      "\", \"index\": ", process.task.substr(blank + 1), "}}");
}

absl::StatusOr<ClusterConfig> ResolveText(const std::string& text, const Process& process) {
  std::map<std::string, std::string> variables = process.variables;
  variables["TF_CONFIG"] = text;
  const Environment environment = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  v1::JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(process.job, &job)) << process.job;
  return ResolveCluster(process.program, process.flags, environment, job);
}

// "trainer 1/3 to p:1,p:2", "pserver 1/2 of 3 at p:2", or the error.
std::string Resolved(const absl::StatusOr<ClusterConfig>& config) {
  if (!config.ok()) return std::string(config.status().message());
  if (config->role == Role::kPserver) {
    return absl::StrCat("pserver ", config->server_id, "/", config->servers, " of ", config->trainers, " at ",
                        config->endpoint);
  }
  return absl::StrCat(std::string(RoleName(config->role)), " ", config->trainer_id, "/", config->trainers,
                      config->servers_in_trainers ? absl::StrCat(" at ", config->endpoint) : "", " to ",
                      absl::StrJoin(config->pservers, ","));
}
std::string Resolved(const Process& process) { return Resolved(ResolveText(Variable(process), process)); }

TEST(TfConfigTest, ChiefAndWorkersAreTrainersAndPsAreServers) {
  EXPECT_EQ(Resolved({kCluster, "chief 0"}), "trainer 0/3 to p:1,p:2");
  EXPECT_EQ(Resolved({kCluster, "worker 0"}), "trainer 1/3 to p:1,p:2");
  EXPECT_EQ(Resolved({kCluster, "worker 1"}), "trainer 2/3 to p:1,p:2");
  EXPECT_EQ(Resolved({.cluster = kCluster, .task = "ps 1", .program = Role::kPserver}), "pserver 1/2 of 3 at p:2");
  EXPECT_EQ(Resolved({R"("cluster": {"master": ["m:1"], "worker": ["w:1"], "ps": ["p:1"]})", "master 0"}),
            "trainer 0/2 to p:1");
  EXPECT_EQ(Resolved({R"("cluster": {"worker": ["w:1", "w:2"], "ps": ["p:1"]})", "worker 1"}), "trainer 1/2 to p:1");
}

TEST(TfConfigTest, TheJobLearnsTheNumbers) {
  const Process process = {kCluster, "worker 0", "distribute { trainers: 8 }"};
  const absl::StatusOr<ClusterConfig> config = ResolveText(Variable(process), process);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->overrides, ::testing::ElementsAre("distribute.trainers=3", "distribute.servers=2"));
}

TEST(TfConfigTest, WithoutPsTheWorkersHaveTheServersInside) {
  EXPECT_EQ(Resolved({kWorkers, "worker 1", kNoServers}), "trainer 1/2 at w:2 to w:1,w:2");
  EXPECT_EQ(Resolved({R"("cluster": {"chief": ["c:1"], "worker": ["w:1"]})", "worker 0", kNoServers}),
            "trainer 1/2 at w:1 to c:1,w:1");
  EXPECT_THAT(Resolved({kWorkers, "worker 1", "distribute { servers: 1 }"}),
              AllOf(HasSubstr("no servers are given"),
                    HasSubstr("TF_CONFIG lists no ps: with distribute.servers: 0 its trainers have the servers "
                              "inside")));
}

TEST(TfConfigTest, WhatKubeflowWritesBesideIsIgnored) {
  const std::string text =
      R"({"cluster": {"worker": ["w:1"], "ps": ["p:1"], "evaluator": ["e:1"]}, "environment": "cloud",
          "task": {"type": "worker", "index": "0", "trial": null}, "rpc_layer": "grpc"})";
  EXPECT_EQ(Resolved(ResolveText(text, {})), "trainer 0/1 to p:1");
  const std::string no_index = R"({"cluster": {"chief": ["c:1"], "ps": ["p:1"]}, "task": {"type": "chief"}})";
  EXPECT_EQ(Resolved(ResolveText(no_index, {})), "trainer 0/1 to p:1");
  EXPECT_EQ(Resolved(ResolveText("{}", {.job = kNoServers, .flags = {.pservers = "a:1"}})),
            "trainer 0/1 at a:1 to a:1");
}

TEST(TfConfigTest, FlagsComeFirst) {
  EXPECT_EQ(Resolved({.cluster = kCluster, .task = "worker 0", .flags = {.pservers = "q:1", .trainer_id = "0"}}),
            "trainer 0/3 to q:1");
  EXPECT_EQ(Resolved({.cluster = kCluster,
                      .task = "ps 0",
                      .program = Role::kPserver,
                      .flags = {.current_endpoint = "0.0.0.0:2", .server_id = "1"}}),
            "pserver 1/2 of 3 at 0.0.0.0:2");
  EXPECT_EQ(Resolved({.cluster = kCluster, .task = "evaluator 0", .flags = {.role = "predict", .trainer_id = "2"}}),
            "predict 2/3 to p:1,p:2");
  EXPECT_EQ(Resolved({.cluster = kCluster, .task = "worker 0", .flags = {.trainer_id = "1", .trainers = "2"}}),
            "trainer 1/2 to p:1,p:2");
  EXPECT_EQ(Resolved(ResolveText("no JSON", {.flags = {.role = "LOCAL"}})), "local 0/1 to ");
}

TEST(TfConfigTest, AnotherSourceMustAgree) {
  const std::vector<std::pair<Process, std::string>> cases = {
      {{kCluster, "ps 0"},
       "TF_CONFIG (task ps 0) is pserver, but the role of this program is trainer: start the program pserver"},
      {{.cluster = kCluster, .task = "worker 0", .program = Role::kPserver},
       "TF_CONFIG (task worker 0) is trainer, but the role of this program is pserver: start the program trainer"},
      {{.cluster = kCluster, .task = "worker 0", .variables = {{"TRAINING_ROLE", "PSERVER"}}},
       "TRAINING_ROLE is PSERVER but TF_CONFIG (task worker 0) is trainer: give one of them"},
      {{.cluster = kCluster, .task = "worker 0", .variables = {{"PADDLE_TRAINER_ID", "0"}}},
       "PADDLE_TRAINER_ID is 0 but TF_CONFIG (task worker 0) is 1: give one of them"},
      {{.cluster = kCluster, .task = "worker 0", .variables = {{"RANK", "0"}}},
       "TF_CONFIG (task worker 0) is 1 but RANK is 0: unset or leave out the one that does not describe this process"},
      {{.cluster = kCluster, .task = "worker 0", .variables = {{"PADDLE_TRAINERS_NUM", "2"}}},
       "PADDLE_TRAINERS_NUM is 2 but TF_CONFIG (cluster.chief and cluster.worker) is 3"},
      {{.cluster = kCluster, .task = "worker 0", .variables = {{"PADDLE_PSERVERS_IP_PORT_LIST", "q:1"}}},
       "PADDLE_PSERVERS_IP_PORT_LIST is q:1 but TF_CONFIG (cluster.ps) is p:1,p:2"},
      {{kCluster, "worker 0", "distribute { servers: 3 }"},
       "TF_CONFIG (cluster.ps) lists 2 servers (p:1,p:2), but distribute.servers is 3: they must be equal"},
      {{kCluster, "worker 0", kNoServers},
       "TF_CONFIG (cluster.ps) lists servers (p:1,p:2), but distribute.servers is 0: every trainer has a server "
       "inside; set distribute.servers to their number, or take ps out of TF_CONFIG"},
      {{.cluster = kWorkers, .task = "worker 0", .job = kNoServers, .flags = {.trainers = "3"}},
       "TF_CONFIG (cluster.worker) lists 2 trainers (w:1,w:2), but --trainers is 3: with distribute.servers: 0 every "
       "trainer listens, so they must be equal"},
      {{.cluster = kCluster, .task = "worker 1", .flags = {.trainers = "2"}},
       "TF_CONFIG (task worker 1) is 2, but there are 2 trainers: 0 to 1"},
      {{R"("cluster": {"worker": ["w:1"], "ps": ["p"]})", "worker 0"},
       "endpoint 0 of TF_CONFIG (cluster.ps): 'p' has no port, must be host:port"},
  };
  for (const auto& [process, message] : cases) EXPECT_THAT(Resolved(process), HasSubstr(message));
}

TEST(TfConfigTest, AnEvaluatorIsNoProcessOfAJob) {
  EXPECT_THAT(Resolved({kCluster, "evaluator 0"}),
              HasSubstr("TF_CONFIG (task.type) is evaluator, and a job has no such process: its trainers evaluate on "
                        "data.eval; start no process with this task, or give it a --role"));
}

TEST(TfConfigTest, WhatCannotBeReadIsNamedWithWhatIsExpected) {
  const std::string expected =
      R"({"cluster": {"worker": ["HOST:PORT"], "ps": ["HOST:PORT"]}, "task": {"type": "worker", "index": 0}})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{'cluster'", absl::StrCat("TF_CONFIG must be a JSON object like ", expected, ", and is none: ")},
      {"[1]", "TF_CONFIG must be a JSON object like "},
      {R"({"task": {"type": worker}})", R"( Near: {"task": {"type": worker}}; correct or unset it)"},
      {"\xff\xfe{", "TF_CONFIG must be a JSON object like "},
      {std::string(100000, '['), "TF_CONFIG must be a JSON object like "},
      {R"({"cluster": ["w:1"]})", absl::StrCat("TF_CONFIG (cluster) must be an object, as in ", expected)},
      {R"({"task": "worker"})", "TF_CONFIG (task) must be an object"},
      {R"({"cluster": {"ps": "p:1"}})", "TF_CONFIG (cluster.ps) must be a list of texts \"HOST:PORT\", as in "},
      {R"({"cluster": {"ps": ["p:1", 2]}})", "endpoint 1 of TF_CONFIG (cluster.ps) must be one text \"HOST:PORT\""},
      {R"({"cluster": {"ps": ["p:1,p:2"]}})", "endpoint 0 of TF_CONFIG (cluster.ps) must be one text"},
      {R"({"cluster": {"workers": []}})",
       "TF_CONFIG has cluster.workers, must be chief, master, worker, ps or evaluator"},
      {R"({"cluster": {"chief": ["a:1"], "master": ["a:1"]}})",
       "TF_CONFIG has cluster.chief and cluster.master, two names of trainer 0: give one of them"},
      {R"({"cluster": {"chief": ["a:1", "b:1"]}})",
       "TF_CONFIG (cluster.chief) lists 2 processes, must be one: list the others as worker"},
      {R"({"cluster": {"worker": ["w:1"]}, "task": {"index": 0}})",
       "TF_CONFIG (task.type) is '', must be chief, master, worker, ps or evaluator"},
      {R"({"cluster": {"worker": ["w:1"]}, "task": {"type": "ps", "index": 0}})",
       "TF_CONFIG (task.type) is ps, but there is no cluster.ps: list this process in it, too"},
      {R"({"cluster": {"worker": ["w:1"]}, "task": {"type": "worker", "index": 1}})",
       "TF_CONFIG (task.index) is 1, but cluster.worker lists 1 process: 0"},
      {R"({"cluster": {"worker": ["w:1"]}, "task": {"type": "worker", "index": -1}})",
       "TF_CONFIG (task.index) is '-1', must be a whole number, from 0"},
      {R"({"cluster": {"worker": ["w:1"]}, "task": {"type": "worker", "index": 0.5}})",
       "TF_CONFIG (task.index) is '0.5'"},
      {R"({"cluster": {"worker": ["w:1"]}, "task": {"type": "worker", "index": 1e300}})", "must be a whole number"},
      {R"({"cluster": {"worker": ["w:1"]}, "task": {"type": "worker", "index": null}})",
       "TF_CONFIG (task.index) is ''"},
  };
  for (const auto& [text, message] : cases) {
    const absl::StatusOr<ClusterConfig> config = ResolveText(text, {.job = kNoServers});
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 80);
    EXPECT_THAT(std::string(config.status().message()), AllOf(HasSubstr(message), Not(HasSubstr("\n"))));
  }
}

}  // namespace
}  // namespace weir
