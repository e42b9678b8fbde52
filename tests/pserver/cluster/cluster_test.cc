#include "pserver/cluster/cluster.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Variables = std::map<std::string, std::string>;

Environment Of(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

v1::JobConfig JobOf(const std::string& text) {
  v1::JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  return job;
}

struct Case {
  std::string name;
  Role program = Role::kTrainer;
  ClusterFlags flags;
  Variables variables;
  std::string job;
};

absl::StatusOr<ClusterConfig> Resolve(const Case& c) {
  return ResolveCluster(c.program, c.flags, Of(c.variables), JobOf(c.job));
}

// Describes a resolved cluster in one line, such as "pserver 1/2 at 10.0.0.2:6170" or "trainer 0/4 to a:1,b:2"; or
// returns the error.
std::string Line(const absl::StatusOr<ClusterConfig>& config) {
  if (!config.ok()) return std::string(config.status().message());
  std::string line(RoleName(config->role));
  if (config->role == Role::kPserver) {
    line += " " + std::to_string(config->server_id) + "/" + std::to_string(config->servers) + " at " + config->endpoint;
  } else {
    line += " " + std::to_string(config->trainer_id) + "/" + std::to_string(config->trainers);
    if (config->servers_in_trainers) line += " at " + config->endpoint;
    line += " to ";
    for (const std::string& server : config->pservers) line += server + ",";
    if (!config->pservers.empty()) line.pop_back();
  }
  for (const std::string& override : config->overrides) line += " " + override;
  return line;
}

constexpr char kTwo[] = "192.168.1.1:6170,192.168.1.2:6170";
constexpr char kTwoInJob[] = R"(cluster { pserver: "192.168.1.1:6170" pserver: "192.168.1.2:6170" }
                                distribute { servers: 2 trainers: 4 })";

struct Good : Case {
  std::string expected;
};

TEST(ClusterTest, EverySourceGivesTheSameCluster) {
  const std::vector<Good> cases = {
      {{"trainer by flags", Role::kTrainer, {.pservers = kTwo, .trainer_id = "3", .trainers = "4"}, {}, ""},
       "trainer 3/4 to 192.168.1.1:6170,192.168.1.2:6170 distribute.trainers=4 distribute.servers=2"},
      {{"trainer by environment",
        Role::kTrainer,
        {},
        {{"TRAINING_ROLE", "TRAINER"},
         {"PADDLE_PSERVERS_IP_PORT_LIST", kTwo},
         {"PADDLE_TRAINER_ID", "3"},
         {"PADDLE_TRAINERS_NUM", "4"}},
        ""},
       "trainer 3/4 to 192.168.1.1:6170,192.168.1.2:6170 distribute.trainers=4 distribute.servers=2"},
      {{"trainer by file", Role::kTrainer, {.trainer_id = "3"}, {}, kTwoInJob},
       "trainer 3/4 to 192.168.1.1:6170,192.168.1.2:6170"},
      {{"server by flags",
        Role::kPserver,
        {.pservers = kTwo, .current_endpoint = "192.168.1.2:6170", .trainers = "4"},
        {},
        ""},
       "pserver 1/2 at 192.168.1.2:6170 distribute.trainers=4 distribute.servers=2"},
      {{"server by environment",
        Role::kPserver,
        {},
        {{"PADDLE_TRAINING_ROLE", "PSERVER"},
         {"PADDLE_PSERVERS_IP_PORT_LIST", kTwo},
         {"POD_IP", "192.168.1.2"},
         {"PADDLE_PORT", "6170"},
         {"PADDLE_NUM_TRAINERS", "4"}},
        ""},
       "pserver 1/2 at 192.168.1.2:6170 distribute.trainers=4 distribute.servers=2"},
      {{"server by environment's endpoint",
        Role::kPserver,
        {},
        {{"PADDLE_PSERVERS_IP_PORT_LIST", kTwo}, {"PADDLE_CURRENT_ENDPOINT", "192.168.1.2:6170"}},
        "distribute { trainers: 4 }"},
       "pserver 1/2 at 192.168.1.2:6170 distribute.servers=2"},
      {{"server by file and index", Role::kPserver, {.server_id = "1"}, {}, kTwoInJob},
       "pserver 1/2 at 192.168.1.2:6170"},
      {{"server by file and endpoint", Role::kPserver, {.endpoint = "192.168.1.2:6170"}, {}, kTwoInJob},
       "pserver 1/2 at 192.168.1.2:6170"},
  };
  for (const Good& c : cases) EXPECT_EQ(Line(Resolve(c)), c.expected) << c.name;
}

TEST(ClusterTest, FlagBeforeEnvironmentBeforeFile) {
  const std::vector<Good> cases = {
      {{"list: flag",
        Role::kTrainer,
        {.pservers = "a:1,b:2", .trainer_id = "0"},
        {{"PADDLE_PSERVERS_IP_PORT_LIST", "c:3,d:4"}},
        kTwoInJob},
       "trainer 0/4 to a:1,b:2"},
      {{"list: environment",
        Role::kTrainer,
        {.trainer_id = "0"},
        {{"PADDLE_PSERVERS_IP_PORT_LIST", "c:3,d:4"}},
        kTwoInJob},
       "trainer 0/4 to c:3,d:4"},
      {{"an empty variable is not set",
        Role::kTrainer,
        {.trainer_id = "0"},
        {{"PADDLE_PSERVERS_IP_PORT_LIST", ""}},
        kTwoInJob},
       "trainer 0/4 to 192.168.1.1:6170,192.168.1.2:6170"},
      {{"id", Role::kTrainer, {.trainer_id = "2"}, {{"PADDLE_TRAINER_ID", "1"}}, kTwoInJob},
       "trainer 2/4 to 192.168.1.1:6170,192.168.1.2:6170"},
      {{"trainers: flag",
        Role::kTrainer,
        {.pservers = "a:1", .trainer_id = "4", .trainers = "5"},
        {{"PADDLE_TRAINERS_NUM", "3"}},
        "distribute { trainers: 2 }"},
       "trainer 4/5 to a:1 distribute.trainers=5"},
      {{"trainers: environment",
        Role::kTrainer,
        {.pservers = "a:1"},
        {{"PADDLE_TRAINERS_NUM", "3"}, {"PADDLE_TRAINER_ID", "2"}},
        "distribute { trainers: 2 }"},
       "trainer 2/3 to a:1 distribute.trainers=3"},
      {{"trainers: --set is a flag",
        Role::kTrainer,
        {.pservers = "a:1", .trainer_id = "1", .overrides = {"train.seed=7", "distribute.trainers = 2"}},
        {{"PADDLE_TRAINERS_NUM", "3"}},
        "distribute { trainers: 2 }"},
       "trainer 1/2 to a:1"},
      {{"role", Role::kTrainer, {.role = "local"}, {{"TRAINING_ROLE", "PSERVER"}}, ""}, "local 0/1 to "},
      {{"endpoint: flag",
        Role::kPserver,
        {.endpoint = "192.168.1.1:6170"},
        {{"PADDLE_CURRENT_ENDPOINT", "192.168.1.2:6170"}},
        kTwoInJob},
       "pserver 0/2 at 192.168.1.1:6170"},
      {{"endpoint: PADDLE_CURRENT_ENDPOINT before POD_IP",
        Role::kPserver,
        {},
        {{"PADDLE_CURRENT_ENDPOINT", "192.168.1.2:6170"}, {"POD_IP", "192.168.1.1"}, {"PADDLE_PORT", "6170"}},
        kTwoInJob},
       "pserver 1/2 at 192.168.1.2:6170"},
  };
  for (const Good& c : cases) EXPECT_EQ(Line(Resolve(c)), c.expected) << c.name;
}

TEST(ClusterTest, DefaultsOfASmallCluster) {
  const std::vector<Good> cases = {
      {{"one trainer is trainer 0", Role::kTrainer, {.pservers = "a:1"}, {}, ""}, "trainer 0/1 to a:1"},
      {{"one server is server 0", Role::kPserver, {.endpoint = "a:1"}, {}, ""}, "pserver 0/1 at a:1"},
      {{"a server that knows its index and endpoint needs no list",
        Role::kPserver,
        {.endpoint = "a:1", .server_id = "2"},
        {},
        "distribute { servers: 3 trainers: 4 }"},
       "pserver 2/3 at a:1"},
      {{"predict needs no server", Role::kTrainer, {.role = "predict"}, {}, "distribute { servers: 2 trainers: 1 }"},
       "predict 0/1 to "},
      {{"predict without servers is one process of any job",
        Role::kTrainer,
        {.role = "predict"},
        {},
        "distribute { servers: 2 trainers: 4 }"},
       "predict 0/4 to "},
      {{"local reads nothing else",
        Role::kTrainer,
        {.role = "local"},
        {{"PADDLE_PSERVERS_IP_PORT_LIST", "nonsense"}, {"PADDLE_TRAINER_ID", "x"}},
        kTwoInJob},
       "local 0/4 to "},
  };
  for (const Good& c : cases) EXPECT_EQ(Line(Resolve(c)), c.expected) << c.name;
}

TEST(ClusterTest, RolesAreReadInAnyCase) {
  for (const char* text : {"PSERVER", "pserver", "Pserver"}) {
    EXPECT_EQ(Line(Resolve({"", Role::kPserver, {.endpoint = "a:1"}, {{"TRAINING_ROLE", text}}, ""})),
              "pserver 0/1 at a:1");
  }
}

TEST(ClusterTest, AServerMayListenOnAnyFreePort) {
  const ClusterFlags flags = {.endpoint = "127.0.0.1:0", .server_id = "1"};
  EXPECT_EQ(Line(Resolve({"", Role::kPserver, flags, {}, kTwoInJob})), "pserver 1/2 at 127.0.0.1:0");
  // The job's list names another cluster; this server is found through --port_file.
  EXPECT_EQ(Line(Resolve(
                {"", Role::kPserver, flags, {}, "cluster { pserver: \"a:1\" } distribute { servers: 3 trainers: 3 }"})),
            "pserver 1/3 at 127.0.0.1:0");
}

TEST(ClusterTest, AServerMayListenOnEveryInterface) {
  EXPECT_EQ(Line(Resolve({"", Role::kPserver, {.endpoint = "0.0.0.0:6170", .server_id = "1"}, {}, kTwoInJob})),
            "pserver 1/2 at 0.0.0.0:6170");
  EXPECT_EQ(
      Line(Resolve({"", Role::kPserver, {.endpoint = "0.0.0.0:6171", .server_id = "1"}, {}, kTwoInJob})),
      "--endpoint listens at port 6171, but cluster.pserver of the job says that server 1 is at 192.168.1.2:6170");
}

struct Bad : Case {
  std::string message;
};

TEST(ClusterTest, WhatIsWrongIsNamedWithItsSource) {
  const std::vector<Bad> cases = {
      // Role.
      {{"unknown role", Role::kTrainer, {.role = "worker"}, {}, ""},
       "--role is 'worker', must be pserver, trainer, local"},
      {{"unknown role in a variable", Role::kTrainer, {}, {{"TRAINING_ROLE", "WORKER"}}, ""},
       "TRAINING_ROLE is 'WORKER'"},
      {{"trainer started as a server", Role::kTrainer, {}, {{"TRAINING_ROLE", "PSERVER"}}, ""},
       "TRAINING_ROLE is PSERVER, but the role of this program is trainer: start the program pserver, or change "
       "TRAINING_ROLE"},
      {{"server started as a trainer", Role::kPserver, {.role = "trainer"}, {}, ""},
       "--role is trainer, but the role of this program is pserver: start the program trainer"},
      {{"server cannot be local", Role::kPserver, {.role = "local"}, {}, ""},
       "--role is local, but the role of this program is"},
      {{"two roles", Role::kTrainer, {}, {{"TRAINING_ROLE", "TRAINER"}, {"PADDLE_TRAINING_ROLE", "PSERVER"}}, ""},
       "TRAINING_ROLE is TRAINER but PADDLE_TRAINING_ROLE is PSERVER: give one of them"},
      // The list of servers.
      {{"no servers", Role::kTrainer, {}, {}, ""},
       "use --pservers=HOST:PORT,HOST:PORT or the variable "
       "PADDLE_PSERVERS_IP_PORT_LIST"},
      {{"duplicate", Role::kTrainer, {.pservers = "a:1,b:1,a:1"}, {}, ""},
       "endpoint 2 of --pservers is a:1, the same as endpoint 0: two servers cannot share it"},
      {{"duplicate in the job", Role::kTrainer, {}, {}, "cluster { pserver: \"a:1\" pserver: \"a:1\" }"},
       "endpoint 1 of cluster.pserver of the job is a:1, the same as endpoint 0"},
      {{"blank between commas", Role::kTrainer, {.pservers = "a:1,,b:1"}, {}, ""},
       "endpoint 1 of --pservers: blank, must be host:port"},
      {{"blank at the end", Role::kTrainer, {}, {{"PADDLE_PSERVERS_IP_PORT_LIST", "a:1,"}}, ""},
       "endpoint 1 of PADDLE_PSERVERS_IP_PORT_LIST: blank"},
      {{"space", Role::kTrainer, {.pservers = "a:1, b:1"}, {}, ""},
       "endpoint 1 of --pservers: ' b:1' has a blank in it, must be host:port"},
      {{"no port", Role::kTrainer, {.pservers = "a:1,b"}, {}, ""},
       "endpoint 1 of --pservers: 'b' has no port, must be host:port"},
      {{"no port in the environment", Role::kTrainer, {}, {{"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1"}}, ""},
       "endpoint 0 of PADDLE_PSERVERS_IP_PORT_LIST: '10.0.0.1' has no port"},
      {{"port 0", Role::kTrainer, {.pservers = "a:0"}, {}, ""}, "a:0 has port 0, where nobody can find it"},
      {{"wildcard", Role::kTrainer, {.pservers = "0.0.0.0:6170"}, {}, ""},
       "0.0.0.0:6170 is no address that trainers can"},
      {{"too few for the job", Role::kTrainer, {.pservers = "a:1"}, {}, "distribute { servers: 2 }"},
       "--pservers lists 1 server (a:1), but distribute.servers is 2: they must be equal"},
      {{"too many for the job",
        Role::kPserver,
        {.server_id = "0"},
        {{"PADDLE_PSERVERS_IP_PORT_LIST", "a:1,b:1"}},
        "distribute { servers: 1 }"},
       "PADDLE_PSERVERS_IP_PORT_LIST lists 2 servers (a:1,b:1), but distribute.servers is 1"},
      // Trainers.
      {{"no id", Role::kTrainer, {.pservers = "a:1", .trainers = "4"}, {}, ""},
       "which of the 4 trainers this is is not known: give --trainer_id or the variable PADDLE_TRAINER_ID"},
      {{"id past the end", Role::kTrainer, {.trainer_id = "4"}, {}, kTwoInJob},
       "--trainer_id is 4, but there are 4 trainers: 0 to 3"},
      {{"id past the end in a variable", Role::kTrainer, {.pservers = "a:1"}, {{"PADDLE_TRAINER_ID", "1"}}, ""},
       "PADDLE_TRAINER_ID is 1, but there is 1 trainer: 0 to 0"},
      {{"negative id", Role::kTrainer, {.trainer_id = "-1"}, {}, kTwoInJob}, "--trainer_id is '-1', must be the id"},
      {{"id is no number", Role::kTrainer, {.trainer_id = "one"}, {}, kTwoInJob},
       "--trainer_id is 'one', must be the id"},
      {{"id of another type", Role::kTrainer, {.trainer_id = "1.5"}, {}, kTwoInJob}, "--trainer_id is '1.5'"},
      {{"id too large for a number", Role::kTrainer, {.trainer_id = "4294967296"}, {}, kTwoInJob},
       "--trainer_id is '42949"},
      {{"predict has ids too", Role::kTrainer, {.role = "predict", .trainer_id = "2", .trainers = "2"}, {}, ""},
       "--trainer_id is 2, but there are 2 trainers"},
      {{"endpoints as trainers", Role::kTrainer, {.pservers = "a:1", .trainers = "b:1,c:1"}, {}, ""},
       "--trainers is 'b:1,c:1', must be the number of trainers (not their endpoints)"},
      {{"no trainers", Role::kTrainer, {.pservers = "a:1", .trainers = "0"}, {}, ""},
       "--trainers is 0, must be at least 1"},
      {{"two counts in the environment",
        Role::kTrainer,
        {.pservers = "a:1"},
        {{"PADDLE_TRAINERS_NUM", "2"}, {"PADDLE_NUM_TRAINERS", "3"}},
        ""},
       "PADDLE_TRAINERS_NUM is 2 but PADDLE_NUM_TRAINERS is 3: give one of them"},
      {{"two counts in flags",
        Role::kTrainer,
        {.pservers = "a:1", .trainers = "2", .overrides = {"distribute.trainers=3"}},
        {},
        "distribute { trainers: 3 }"},
       "--trainers is 2 but --set distribute.trainers is 3"},
      // Servers.
      {{"no endpoint", Role::kPserver, {.pservers = kTwo}, {}, ""},
       "give --current_endpoint or the variable PADDLE_CURRENT_ENDPOINT (or POD_IP and PADDLE_PORT), or --server_id"},
      {{"half an endpoint", Role::kPserver, {.pservers = kTwo}, {{"POD_IP", "192.168.1.1"}}, ""},
       "POD_IP and PADDLE_PORT"},
      {{"no list", Role::kPserver, {.endpoint = "a:1"}, {}, "distribute { servers: 2 }"},
       "which of the 2 servers a:1 is is not known: give --server_id, or the list of servers by --pservers or the "
       "variable "
       "PADDLE_PSERVERS_IP_PORT_LIST"},
      {{"index but no address", Role::kPserver, {.server_id = "1"}, {}, "distribute { servers: 2 }"},
       "where server 1 listens is not known: give --current_endpoint"},
      {{"not in the list", Role::kPserver, {.endpoint = "192.168.1.3:6170"}, {}, kTwoInJob},
       "--endpoint is 192.168.1.3:6170, which is not in cluster.pserver of the job "
       "(192.168.1.1:6170,192.168.1.2:6170)"},
      {{"not in the list, from the environment",
        Role::kPserver,
        {.pservers = kTwo},
        {{"POD_IP", "192.168.1.1"}, {"PADDLE_PORT", "6171"}},
        ""},
       "POD_IP:PADDLE_PORT is 192.168.1.1:6171, which is not in --pservers"},
      {{"index and place differ",
        Role::kPserver,
        {.current_endpoint = "192.168.1.2:6170", .server_id = "0"},
        {},
        kTwoInJob},
       "--server_id is 0, but --current_endpoint 192.168.1.2:6170 is server 1 of cluster.pserver of the job"},
      {{"index past the end", Role::kPserver, {.server_id = "2"}, {}, kTwoInJob},
       "--server_id is 2, but there are 2 servers: 0 to 1"},
      {{"index is no number", Role::kPserver, {.server_id = "a"}, {}, kTwoInJob},
       "--server_id is 'a', must be the index"},
      {{"both names of the flag", Role::kPserver, {.current_endpoint = "a:1", .endpoint = "a:2"}, {}, ""},
       "--current_endpoint is a:1 but --endpoint is a:2: give one of them"},
      {{"endpoint without port", Role::kPserver, {.endpoint = "192.168.1.1"}, {}, kTwoInJob},
       "--endpoint: '192.168.1.1' has no port"},
      {{"any port without an index", Role::kPserver, {.endpoint = "127.0.0.1:0"}, {}, kTwoInJob},
       "which of the 2 servers 127.0.0.1:0 is is not known: give --server_id"},
      {{"every interface without an index", Role::kPserver, {.endpoint = "0.0.0.0:6170"}, {}, kTwoInJob},
       "--endpoint is 0.0.0.0:6170, which is not in cluster.pserver"},
  };
  for (const Bad& c : cases) {
    const absl::StatusOr<ClusterConfig> config = Resolve(c);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << c.name << ": " << Line(config);
    EXPECT_THAT(Line(config), HasSubstr(c.message)) << c.name;
  }
}

constexpr char kServing[] = "distribute { servers: 0 trainers: 2 }";

TEST(ClusterTest, WithoutServersTrainersListen) {
  const std::vector<Good> cases = {
      {{"by flags", Role::kTrainer, {.pservers = kTwo, .trainer_id = "1"}, {}, kServing},
       "trainer 1/2 at 192.168.1.2:6170 to 192.168.1.1:6170,192.168.1.2:6170"},
      {{"by Fluid's environment",
        Role::kTrainer,
        {},
        {{"TRAINING_ROLE", "TRAINER"},
         {"PADDLE_TRAINER_ENDPOINTS", kTwo},
         {"PADDLE_CURRENT_ENDPOINT", "192.168.1.2:6170"}},
        "distribute { servers: 0 }"},
       "trainer 1/2 at 192.168.1.2:6170 to 192.168.1.1:6170,192.168.1.2:6170 distribute.trainers=2"},
      {{"by file, on every interface",
        Role::kTrainer,
        {.endpoint = "0.0.0.0:6170", .trainer_id = "0"},
        // Of the pod, not of this process.
        {{"POD_IP", "10.0.0.1"}, {"PADDLE_PORT", "1"}},
        "cluster { pserver: \"a:6170\" pserver: \"b:6170\" } distribute { servers: 0 trainers: 2 }"},
       "trainer 0/2 at 0.0.0.0:6170 to a:6170,b:6170"},
      {{"in prediction too", Role::kTrainer, {.role = "predict", .pservers = kTwo, .trainer_id = "0"}, {}, kServing},
       "predict 0/2 at 192.168.1.1:6170 to 192.168.1.1:6170,192.168.1.2:6170"},
      {{"prediction without a list is one process", Role::kTrainer, {.role = "predict"}, {}, kServing},
       "predict 0/2 to "},
      {{"local", Role::kTrainer, {.role = "local"}, {}, kServing}, "local 0/2 to "},
  };
  for (const Good& c : cases) {
    const absl::StatusOr<ClusterConfig> config = Resolve(c);
    EXPECT_EQ(Line(config), c.expected) << c.name;
    if (!config.ok()) continue;
    EXPECT_EQ(config->servers, config->trainers) << c.name;
    EXPECT_THAT(config->warnings, IsEmpty()) << c.name;
  }
}

TEST(ClusterTest, WhatIsWrongWithTrainersThatListenIsNamed) {
  const std::vector<Bad> cases = {
      {{"a server", Role::kPserver, {.endpoint = "a:1", .server_id = "0"}, {}, kServing},
       "distribute.servers is 0: every trainer has a server inside, and no pserver takes part; start trainers only"},
      {{"no list", Role::kTrainer, {.trainer_id = "0"}, {}, kServing},
       "distribute.servers is 0, so every trainer listens, but where is not given: use --pservers"},
      {{"short list", Role::kTrainer, {.pservers = "a:1", .trainer_id = "0"}, {}, kServing},
       "--pservers lists 1 trainer (a:1), but distribute.trainers is 2: with distribute.servers: 0 every trainer"},
      {{"other number in the environment",
        Role::kTrainer,
        {.trainer_id = "0"},
        {{"PADDLE_TRAINER_ENDPOINTS", "a:1,b:1"}, {"PADDLE_TRAINERS_NUM", "3"}},
        kServing},
       "PADDLE_TRAINER_ENDPOINTS lists 2 trainers (a:1,b:1), but PADDLE_TRAINERS_NUM is 3"},
      {{"two lists",
        Role::kTrainer,
        {.trainer_id = "0"},
        {{"PADDLE_TRAINER_ENDPOINTS", "a:1,b:1"}, {"PADDLE_PSERVERS_IP_PORT_LIST", "c:1,d:1"}},
        kServing},
       "PADDLE_TRAINER_ENDPOINTS is a:1,b:1 but PADDLE_PSERVERS_IP_PORT_LIST is c:1,d:1: give one of them"},
      {{"id and place differ",
        Role::kTrainer,
        {.pservers = kTwo, .current_endpoint = "192.168.1.2:6170", .trainer_id = "0"},
        {},
        kServing},
       "--trainer_id is 0, but --current_endpoint 192.168.1.2:6170 is trainer 1 of --pservers"},
      {{"neither id nor place", Role::kTrainer, {.pservers = kTwo}, {}, kServing},
       "which of the 2 trainers this is is not known: give --trainer_id or the variable PADDLE_TRAINER_ID, or "
       "--current_endpoint"},
  };
  for (const Bad& c : cases) {
    const absl::StatusOr<ClusterConfig> config = Resolve(c);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << c.name << ": " << Line(config);
    EXPECT_THAT(Line(config), HasSubstr(c.message)) << c.name;
  }
}

// What torchrun, mpirun and srun set for process 1 of 2.
const Variables& ByTorchrun() {
  static const auto* const variables =
      new Variables{{"RANK", "1"},          {"WORLD_SIZE", "2"},      {"LOCAL_RANK", "1"},         {"GROUP_RANK", "0"},
                    {"MASTER_ADDR", "n-0"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "r"}};
  return *variables;
}
const Variables& ByMpirun() {
  static const auto* const variables =
      new Variables{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "77"}};
  return *variables;
}
const Variables& BySrun() {
  static const auto* const variables =
      new Variables{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "5"}, {"SLURM_STEP_ID", "0"}};
  return *variables;
}
Variables With(Variables some, const Variables& more) {
  for (const auto& [name, value] : more) some[name] = value;
  return some;
}

// As Line, with the meeting point and the name of the run.
std::string Meeting(const Case& c) {
  const absl::StatusOr<ClusterConfig> config = Resolve(c);
  std::string line = Line(config);
  if (!config.ok()) return line;
  line += config->init_method.has_value() ? " meets " + config->init_method->ToString() : "";
  return line + (config->run_id.empty() ? "" : " run " + config->run_id);
}

constexpr char kNoServers[] = "distribute { servers: 0 }";

TEST(ClusterTest, LaunchersSayWhoATrainerIs) {
  const std::vector<Good> cases = {
      {{"torchrun, unchanged", Role::kTrainer, {}, ByTorchrun(), kNoServers},
       "trainer 1/2 at  to  distribute.trainers=2 meets tcp://n-0:29501 to 29516 run r:29500"},
      {{"torchrun and an address", Role::kTrainer, {.init_method = "tcp://a:1"}, ByTorchrun(), kNoServers},
       "trainer 1/2 at  to  distribute.trainers=2 meets tcp://a:1 run r:29500"},
      {{"mpirun", Role::kTrainer, {.init_method = "tcp://a:1"}, ByMpirun(), kNoServers},
       "trainer 1/2 at  to  distribute.trainers=2 meets tcp://a:1 run 77"},
      {{"srun", Role::kTrainer, {.init_method = "file:///meet"}, BySrun(), kNoServers},
       "trainer 1/2 at  to  distribute.trainers=2 meets file:///meet run 5.0"},
      {{"srun with MASTER_ADDR of the script",
        Role::kTrainer,
        {},
        With(BySrun(), {{"MASTER_ADDR", "n-0"}, {"MASTER_PORT", "29500"}}),
        kNoServers},
       "trainer 1/2 at  to  distribute.trainers=2 meets tcp://n-0:29500 run 5.0"},
      {{"a script of PyTorch",
        Role::kTrainer,
        {},
        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "n-0"}, {"MASTER_PORT", "29500"}},
        kNoServers},
       "trainer 0/2 at  to  distribute.trainers=2 meets tcp://n-0:29500"},
      {{"a list needs no meeting", Role::kTrainer, {.pservers = kTwo}, ByTorchrun(), kNoServers},
       "trainer 1/2 at 192.168.1.2:6170 to 192.168.1.1:6170,192.168.1.2:6170 distribute.trainers=2 run r:29500"},
      {{"flags alone",
        Role::kTrainer,
        {.endpoint = "a:0", .trainer_id = "1", .trainers = "2", .init_method = "tcp://a:1", .run_id = "x"},
        {},
        kNoServers},
       "trainer 1/2 at a:0 to  distribute.trainers=2 meets tcp://a:1 run x"},
      {{"the run of trainer 0",
        Role::kTrainer,
        {.trainer_id = "1", .trainers = "2", .init_method = "tcp://a:1", .run_id = "*"},
        {},
        kNoServers},
       "trainer 1/2 at  to  distribute.trainers=2 meets tcp://a:1 run *"},
      {{"the flag's address, not the job's list",
        Role::kTrainer,
        {.init_method = "tcp://a:1"},
        BySrun(),
        "cluster { pserver: \"a:1\" pserver: \"b:1\" } distribute { servers: 0 trainers: 2 }"},
       "trainer 1/2 at  to  meets tcp://a:1 run 5.0"},
      {{"predicting together", Role::kTrainer, {.role = "predict"}, ByTorchrun(), kServing},
       "predict 1/2 at  to  meets tcp://n-0:29501 to 29516 run r:29500"},
      {{"predicting alone",
        Role::kTrainer,
        {.role = "predict"},
        With(ByTorchrun(), {{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
        "distribute { servers: 0 trainers: 1 }"},
       "predict 0/1 to  run r:29500"},
      {{"servers by list", Role::kTrainer, {.pservers = "s:1"}, ByMpirun(), "distribute { servers: 1 }"},
       "trainer 1/2 to s:1 distribute.trainers=2 run 77"},
      {{"servers where all meet",
        Role::kTrainer,
        {.init_method = "tcp://a:1"},
        ByMpirun(),
        "distribute { servers: 3 }"},
       "trainer 1/2 to  distribute.trainers=2 meets tcp://a:1 run 77"},
      {{"the shell of a batch script, by flags",
        Role::kTrainer,
        {.pservers = "s:1", .trainer_id = "1", .trainers = "2"},
        {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "5"}},
        ""},
       "trainer 1/2 to s:1 distribute.trainers=2"},
  };
  for (const Good& c : cases) EXPECT_EQ(Meeting(c), c.expected) << c.name;
}

TEST(ClusterTest, LaunchersSayWhichServerAServerIs) {
  const Variables both =
      With(ByMpirun(), {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_FIRST_RANKS", "0 0"}, {"OMPI_APP_CTX_NUM_PROCS", "2 2"}});
  const std::string two = "distribute { servers: 2 trainers: 2 }";
  const std::vector<Good> cases = {
      {{"by flags", Role::kPserver, {.server_id = "1", .init_method = "tcp://a:1"}, {}, two},
       "pserver 1/2 at  meets tcp://a:1"},
      {{"one server", Role::kPserver, {.init_method = "tcp://a:1"}, {}, ""}, "pserver 0/1 at  meets tcp://a:1"},
      {{"mpirun", Role::kPserver, {.init_method = "tcp://a:1"}, ByMpirun(), two}, "pserver 1/2 at  meets tcp://a:1"},
      {{"srun gives the number, too", Role::kPserver, {.init_method = "tcp://a:1"}, BySrun(), ""},
       "pserver 1/2 at  distribute.servers=2 meets tcp://a:1"},
      {{"with a list", Role::kPserver, {.pservers = kTwo}, BySrun(), two}, "pserver 1/2 at 192.168.1.2:6170"},
      {{"an own endpoint comes first",
        Role::kPserver,
        {.pservers = kTwo, .endpoint = "192.168.1.1:6170"},
        BySrun(),
        two},
       "pserver 0/2 at 192.168.1.1:6170"},
      {{"one mpirun for servers and trainers: a server", Role::kPserver, {.init_method = "tcp://a:1"}, both, two},
       "pserver 1/2 at  meets tcp://a:1"},
      {{"one mpirun for servers and trainers: a trainer",
        Role::kTrainer,
        {.init_method = "tcp://a:1"},
        With(both, {{"OMPI_COMM_WORLD_RANK", "3"}}),
        two},
       "trainer 1/2 to  meets tcp://a:1 run 77"},
      {{"one mpirun for trainers with other arguments",
        Role::kTrainer,
        {.init_method = "tcp://a:1"},
        With(both, {{"OMPI_COMM_WORLD_RANK", "3"}}),
        "distribute { servers: 3 }"},
       "trainer 3/4 to  distribute.trainers=4 meets tcp://a:1 run 77"},
      {{"one mpirun for trainers that serve",
        Role::kTrainer,
        {.init_method = "tcp://a:1"},
        With(both, {{"OMPI_COMM_WORLD_RANK", "3"}}),
        kNoServers},
       "trainer 3/4 at  to  distribute.trainers=4 meets tcp://a:1 run 77"},
      {{"a named run", Role::kPserver, {.server_id = "0", .init_method = "tcp://a:1", .run_id = "x"}, BySrun(), two},
       "pserver 0/2 at  meets tcp://a:1 run x"},
  };
  for (const Good& c : cases) EXPECT_EQ(Meeting(c), c.expected) << c.name;
}

TEST(ClusterTest, WhatContradictsALauncherIsNamedWithBothValues) {
  const std::vector<Bad> cases = {
      {{"the id of a flag", Role::kTrainer, {.trainer_id = "0", .init_method = "tcp://a:1"}, BySrun(), kNoServers},
       "--trainer_id is 0 but SLURM_PROCID is 1: unset or leave out the one that does not describe this process"},
      {{"the id of Fluid", Role::kTrainer, {}, With(ByTorchrun(), {{"PADDLE_TRAINER_ID", "0"}}), kNoServers},
       "PADDLE_TRAINER_ID is 0 but RANK is 1"},
      {{"the number of a flag", Role::kTrainer, {.trainers = "3", .init_method = "tcp://a:1"}, ByMpirun(), kNoServers},
       "--trainers is 3 but OMPI_COMM_WORLD_SIZE is 2"},
      {{"the number of --set",
        Role::kTrainer,
        {.init_method = "tcp://a:1", .overrides = {"distribute.trainers=3"}},
        ByMpirun(),
        "distribute { servers: 0 trainers: 3 }"},
       "--set distribute.trainers is 3 but OMPI_COMM_WORLD_SIZE is 2"},
      {{"the number of Fluid", Role::kTrainer, {}, With(ByTorchrun(), {{"PADDLE_TRAINERS_NUM", "4"}}), kNoServers},
       "PADDLE_TRAINERS_NUM is 4 but WORLD_SIZE is 2"},
      {{"among launchers", Role::kTrainer, {}, With(BySrun(), {{"RANK", "0"}}), kNoServers},
       "RANK is 0 but SLURM_PROCID is 1"},
      {{"two ways to meet", Role::kTrainer, {.pservers = "a:1,b:1", .init_method = "tcp://a:1"}, BySrun(), kNoServers},
       "--init_method is tcp://a:1 but --pservers is a:1,b:1: processes that meet tell each other their addresses"},
      {{"mpirun gives no address", Role::kTrainer, {}, ByMpirun(), kNoServers},
       "Open MPI has started this trainer and gives no address at which the trainers meet: use "
       "--init_method=tcp://HOST:PORT with the host of trainer 0 and a free port there, like tcp://node-0:6170"},
      {{"srun gives no address", Role::kTrainer, {}, BySrun(), kNoServers},
       "Slurm has started this trainer and gives no address at which the trainers meet: use "
       "--init_method=tcp://HOST:PORT with the host of trainer 0 and a free port there, like "
       "tcp://$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1):6170, or --init_method=file:///DIRECTORY"},
      {{"predicting together without an address", Role::kTrainer, {.role = "predict"}, BySrun(), kNoServers},
       "Slurm has started this trainer and gives no address"},
      {{"predicting together without servers",
        Role::kTrainer,
        {.role = "predict"},
        BySrun(),
        "distribute { servers: 1 }"},
       "no servers are given: use --pservers"},
      {{"a run that trainer 0 has to name",
        Role::kTrainer,
        {.trainer_id = "0", .trainers = "2", .init_method = "tcp://a:1", .run_id = "*"},
        {},
        kNoServers},
       "--run_id=* is the name that trainer 0 gives where the processes meet: trainer 0 needs a name"},
      {{"a run whose name nobody tells",
        Role::kTrainer,
        {.pservers = "a:1,b:1", .trainer_id = "1", .run_id = "*"},
        {},
        kNoServers},
       "trainer 0 needs a name, the other trainers an --init_method, and servers no name"},
      {{"an unknown way", Role::kTrainer, {.trainer_id = "0", .init_method = "mpi://"}, {}, kNoServers},
       "--init_method=mpi://: must be env://, tcp://HOST:PORT or file:///PATH"},
      {{"nobody says who", Role::kTrainer, {.init_method = "tcp://a:1"}, {}, kServing},
       "which of the 2 trainers this is is not known: give --trainer_id or the variable PADDLE_TRAINER_ID, or start "
       "the "
       "trainers by torchrun, mpirun or srun"},
      {{"the shell of a batch script",
        Role::kTrainer,
        {.init_method = "tcp://a:1"},
        {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "5"}},
        kServing},
       "SLURM_PROCID is that of the batch script and no trainer's: start the trainers by srun"},
      {{"an srun of servers and trainers",
        Role::kTrainer,
        {.init_method = "tcp://a:1"},
        With(BySrun(), {{"SLURM_HET_SIZE", "2"}}),
        "distribute { servers: 1 }"},
       "one srun has started several programs, and does not say which ranks are servers and which are trainers"},
      {{"which server", Role::kPserver, {.init_method = "tcp://a:1"}, {}, "distribute { servers: 2 }"},
       "which of the 2 servers this is is not known: give --server_id, or start all servers by one mpirun"},
      {{"servers of another number",
        Role::kPserver,
        {.init_method = "tcp://a:1"},
        ByMpirun(),
        "distribute { servers: 3 }"},
       "OMPI_COMM_WORLD_SIZE is 2, but distribute.servers is 3: a launcher of servers must start all of them"},
  };
  for (const Bad& c : cases) {
    const absl::StatusOr<ClusterConfig> config = Resolve(c);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << c.name << ": " << Line(config);
    EXPECT_THAT(Line(config), HasSubstr(c.message)) << c.name;
  }
}

// The variables exactly as paddle.distributed.launch, launch_ps and the scripts before them set them.
TEST(ClusterTest, FluidsScriptsRunUnchanged) {
  const std::vector<Good> cases = {
      {{"paddle.distributed.launch, mode nccl2",
        Role::kTrainer,
        {},
        {{"FLAGS_selected_gpus", "1"},
         {"PADDLE_TRAINER_ID", "1"},
         {"PADDLE_CURRENT_ENDPOINT", "192.168.1.2:6170"},
         {"PADDLE_TRAINERS_NUM", "2"},
         {"PADDLE_TRAINER_ENDPOINTS", kTwo}},
        "distribute { mode: NCCL2 servers: 0 }"},
       "trainer 1/2 at 192.168.1.2:6170 to 192.168.1.1:6170,192.168.1.2:6170 distribute.trainers=2"},
      {{"launch_ps, a trainer",
        Role::kTrainer,
        {},
        {{"TRAINING_ROLE", "TRAINER"},
         {"PADDLE_PSERVERS_IP_PORT_LIST", kTwo},
         {"PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:36011,127.0.0.1:36012"},
         {"PADDLE_TRAINERS_NUM", "2"},
         {"PADDLE_TRAINER_ID", "1"},
         {"PADDLE_WITH_GLOO", "0"}},
        ""},
       "trainer 1/2 to 192.168.1.1:6170,192.168.1.2:6170 distribute.trainers=2 distribute.servers=2"},
      {{"launch_ps, a server",
        Role::kPserver,
        {},
        {{"TRAINING_ROLE", "PSERVER"},
         {"PADDLE_PSERVERS_IP_PORT_LIST", kTwo},
         {"PADDLE_TRAINERS_NUM", "2"},
         {"PADDLE_PORT", "6170"},
         {"POD_IP", "192.168.1.2"}},
        ""},
       "pserver 1/2 at 192.168.1.2:6170 distribute.trainers=2 distribute.servers=2"},
      {{"the oldest scripts, a trainer",
        Role::kTrainer,
        {},
        {{"PADDLE_TRAINING_ROLE", "TRAINER"},
         {"PADDLE_PSERVER_PORT", "6170"},
         {"PADDLE_PSERVER_IPS", "192.168.1.1,192.168.1.2"},
         {"PADDLE_TRAINERS", "2"},
         {"PADDLE_CURRENT_IP", "192.168.1.9"},
         {"PADDLE_TRAINER_ID", "0"}},
        ""},
       "trainer 0/2 to 192.168.1.1:6170,192.168.1.2:6170 distribute.trainers=2 distribute.servers=2"},
      {{"the oldest scripts, a server at the usual port",
        Role::kPserver,
        {},
        {{"PADDLE_TRAINING_ROLE", "PSERVER"},
         {"PADDLE_PSERVER_IPS", "192.168.1.1,192.168.1.2"},
         {"PADDLE_TRAINERS", "2"},
         {"PADDLE_CURRENT_IP", "192.168.1.2"}},
        ""},
       "pserver 1/2 at 192.168.1.2:6174 distribute.trainers=2 distribute.servers=2"},
      {{"a script that deals the roles of mpirun's ranks",
        Role::kTrainer,
        {},
        With(ByMpirun(), {{"OMPI_COMM_WORLD_RANK", "3"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"TRAINING_ROLE", "TRAINER"},
                          {"PADDLE_PSERVERS_IP_PORT_LIST", kTwo},
                          {"PADDLE_TRAINERS_NUM", "2"},
                          {"PADDLE_TRAINER_ID", "1"}}),
        ""},
       "trainer 1/2 to 192.168.1.1:6170,192.168.1.2:6170 distribute.trainers=2 distribute.servers=2"},
  };
  for (const Good& c : cases) EXPECT_EQ(Line(Resolve(c)), c.expected) << c.name;
}

TEST(ClusterTest, ThePlaceOnTheMachineComesWithItsSource) {
  const auto config = Resolve({"", Role::kTrainer, {.role = "local"}, {{"LOCAL_RANK", "3"}}, ""});
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_TRUE(config->local_rank.has_value());
  EXPECT_EQ(config->local_rank->source + "=" + config->local_rank->value, "LOCAL_RANK=3");
}

TEST(ClusterTest, OrderOfTheListIsTheOrderOfTheServers) {
  const auto config = Resolve({"", Role::kTrainer, {.pservers = "b:2,a:1"}, {}, ""});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->pservers, ElementsAre("b:2", "a:1"));
}

TEST(ClusterTest, MoreServersThanTrainersIsAWarning) {
  const auto many = Resolve({"", Role::kTrainer, {.pservers = "a:1,b:1"}, {}, ""});
  ASSERT_TRUE(many.ok()) << many.status();
  EXPECT_THAT(many->warnings, ElementsAre(HasSubstr("2 servers for 1 trainer")));
  const auto few = Resolve({"", Role::kTrainer, {.pservers = "a:1", .trainer_id = "0", .trainers = "2"}, {}, ""});
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_THAT(few->warnings, IsEmpty());
}

TEST(ClusterTest, EndpointsHaveHostAndPort) {
  const std::vector<std::pair<std::string, std::string>> good = {
      {"127.0.0.1:6170", "127.0.0.1:6170"},
      {"ps-0.my_cluster:1", "ps-0.my_cluster:1"},
      {"[::1]:65535", "[::1]:65535"},
      {"host:0", "host:0"},
  };
  for (const auto& [text, expected] : good) {
    const auto endpoint = ParseEndpoint(text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(endpoint->ToString(), expected);
  }
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "blank"},
      {"host", "'host' has no port"},
      {"host:", "'host:': the port must be a number from 1 to 65535"},
      {":6170", "':6170' has no host"},
      {"host:65536", "the port must be a number from 1 to 65535, got 65536"},
      {"host:-1", "got -1"},
      {"host:+1", "got +1"},
      {"host:61 70", "has a blank in it"},
      {"host:http", "got http"},
      {"host:99999999999999999999", "must be a number"},
      {"::1:6170", "more than one ':'; an IPv6 address stands in brackets"},
      {"[::1]", "'[::1]' has no port"},
      {"[::1]6170", "has no port"},
      {"[]:6170", "no [IPv6 address]:port"},
      {"[host]:6170", "no [IPv6 address]:port"},
      {"[::1:6170", "no [IPv6 address]:port"},
      {"http://host:6170", "'http://host:6170' is a URL; an address is host:port without a scheme such as http://"},
      {"tcp://host", "is a URL; an address is host:port without a scheme such as tcp://"},
      {"10.0.0.1:tcp://10.0.0.2:80", "has a URL where the port belongs"},
      {"ho/st:6170", "has no host name or address"},
      {std::string("a\0b:1", 5), "has no host name or address"},
  };
  for (const auto& [text, message] : bad) {
    EXPECT_THAT(std::string(ParseEndpoint(text).status().message()), HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace weir
