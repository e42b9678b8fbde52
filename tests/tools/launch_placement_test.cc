// What launch starts: where processes run, on which hosts, cores and devices, and with which settings and variables.

#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/launched.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class LaunchPlacementTest : public LaunchTest {};

int CoresHere() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return CPU_COUNT(&set);
}

TEST_F(LaunchPlacementTest, CoresAreDividedAmongProcessesOfAKind) {
  const int cores = CoresHere();
  const Result one = Run(1, 1, {{"FAKE_TRAINER", "args"}, {"FAKE_PSERVER", "args"}});
  EXPECT_THAT(Lines(one.out), AllOf(Contains(absl::StrCat("[trainer.0] arg --threads=", cores)),
                                    Contains(absl::StrCat("[pserver.0] arg --threads=", cores))));
  EXPECT_THAT(one.err, HasSubstr(absl::StrCat("1 server and 1 trainer on ", cores, cores == 1 ? " core" : " cores")));
  const Result many = Run(1, cores + 1, {{"FAKE_TRAINER", "args"}});
  EXPECT_THAT(Lines(many.out), Contains("[trainer.0] arg --threads=1"));
  const Result own = Run(1, 1, {{"FAKE_TRAINER", "args"}}, {"--set=train.threads=3"});
  EXPECT_THAT(own.out, Not(HasSubstr("--threads=")));
}

TEST_F(LaunchPlacementTest, EveryoneGetsTheSettingsAndOnlyTrainersTheRest) {
  const Result result = Run(2, 2, {{"FAKE_TRAINER", "args"}, {"FAKE_PSERVER", "args"}},
                            {"--set", "train.seed=7", "--set=name=\"a b\"", "--", "--role=predict", "--output=x"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* name : {"[pserver.0]", "[pserver.1]", "[trainer.0]", "[trainer.1]"}) {
    for (const char* flag :
         {"--set=train.seed=7", "--set=name=\"a b\"", "--set=distribute.servers=2", "--set=distribute.trainers=2"}) {
      EXPECT_THAT(Lines(result.out), Contains(absl::StrCat(name, " arg ", flag)));
    }
    EXPECT_THAT(Lines(result.out), Contains(absl::StrCat(name, " arg --job=", job_.string())));
  }
  EXPECT_THAT(
      Lines(result.out),
      AllOf(Contains("[trainer.1] arg --role=predict"), Contains("[trainer.1] arg --output=x"),
            Contains("[trainer.1] arg --trainer_id=1"), Contains(StartsWith("[trainer.1] arg --pservers=127.0.0.1:"))));
  EXPECT_THAT(Lines(result.out),
              AllOf(Not(Contains("[pserver.1] arg --role=predict")), Contains("[pserver.1] arg --server_id=1"),
                    Contains("[pserver.1] arg --endpoint=127.0.0.1:0")));
}

TEST_F(LaunchPlacementTest, EveryoneGetsTheDirectoryOfTheCheckpointToScoreWith) {
  for (const std::vector<std::string>& checkpoint :
       {std::vector<std::string>{"--checkpoint=/some/where/step-000000000120/"}, {"--checkpoint", "/some/where"}}) {
    std::vector<std::string> arguments = {"--", "--role=predict"};
    arguments.insert(arguments.end(), checkpoint.begin(), checkpoint.end());
    const Result result = Run(1, 1, {{"FAKE_TRAINER", "args"}, {"FAKE_PSERVER", "args"}}, arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(Lines(result.out), AllOf(Contains("[pserver.0] arg --set=checkpoint.dir=\"/some/where\""),
                                         Contains("[trainer.0] arg --set=checkpoint.dir=\"/some/where\"")));
  }
  const Result training = Run(1, 1, {{"FAKE_PSERVER", "args"}}, {"--", "--resume"});
  EXPECT_THAT(training.out, Not(HasSubstr("checkpoint.dir")));
}

TEST_F(LaunchPlacementTest, ChildrenSeeThisClustersVariablesAndNoOthers) {
  const std::string ask =
      "env TRAINING_ROLE;env PADDLE_TRAINING_ROLE;env PADDLE_TRAINER_ID;env PADDLE_TRAINERS_NUM;env LOCAL_RANK;"
      "env PADDLE_PSERVERS_IP_PORT_LIST;env POD_IP;env PADDLE_PORT;env PADDLE_CURRENT_ENDPOINT;env OTHER";
  const Result result = Run(1, 2,
                            {{"FAKE_TRAINER", ask},
                             {"FAKE_PSERVER", ask},
                             {"PADDLE_TRAINING_ROLE", "PSERVER"},
                             {"PADDLE_TRAINER_ID", "9"},
                             {"POD_IP", "10.0.0.1"},
                             {"PADDLE_PORT", "1"},
                             {"PADDLE_PSERVERS_IP_PORT_LIST", "x:1"},
                             {"PADDLE_CURRENT_ENDPOINT", "x:1"},
                             {"OTHER", "kept"}});
  for (const char* line :
       {"[trainer.1] TRAINING_ROLE=TRAINER", "[trainer.1] PADDLE_TRAINER_ID=1", "[trainer.1] PADDLE_TRAINERS_NUM=2",
        "[trainer.1] LOCAL_RANK=1", "[trainer.1] OTHER=kept", "[trainer.1] PADDLE_TRAINING_ROLE unset",
        "[trainer.1] POD_IP unset", "[trainer.1] PADDLE_PORT unset", "[trainer.1] PADDLE_CURRENT_ENDPOINT unset",
        "[pserver.0] TRAINING_ROLE=PSERVER", "[pserver.0] PADDLE_TRAINER_ID unset", "[pserver.0] PADDLE_TRAINERS_NUM=2",
        "[pserver.0] LOCAL_RANK unset", "[pserver.0] PADDLE_PSERVERS_IP_PORT_LIST unset"}) {
    EXPECT_THAT(Lines(result.out), Contains(line));
  }
  EXPECT_THAT(Lines(result.out), Contains(StartsWith("[trainer.1] PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:")));
}

TEST_F(LaunchPlacementTest, TheJobSaysHowManyWhenNoFlagDoes) {
  WriteJob("distribute { servers: 2 trainers: 3 } deadlines { lease_s: 0.3 }");
  std::vector<std::string> arguments = Arguments(0, 0);
  arguments.erase(arguments.begin() + 1, arguments.begin() + 3);
  const Result result = Launched(arguments, {}).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("2 servers and 3 trainers on "));
}

TEST_F(LaunchPlacementTest, AJobWithTypesOfTheUsersOwnIsLeftToTheProgramsThatKnowThem) {
  WriteJob("model { layer { name: \"a\" custom { [type.googleapis.com/my.own.Layer] { size: 3 } } } }");
  EXPECT_EQ(Run(1, 1, {}).code, 0);
}

TEST_F(LaunchPlacementTest, AJobFromAPipeReachesEveryProcess) {
  const std::string pipe = (directory_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // `launch --job=<(command)` of a shell; twice, since every process reads it from its begin.
  std::thread writer([&pipe] { std::ofstream(pipe) << "name: \"piped\"\ndistribute { servers: 1 trainers: 2 }\n"; });
  job_ = pipe;
  const Result result =
      Launched(ArgumentsWithoutNumbers({"--job_dir=jobs"}),
               {{"FAKE_PSERVER", "args;cat /dev/stdin"}, {"FAKE_TRAINER", "args;cat /dev/stdin;cat /dev/stdin"}})
          .Finish();
  writer.join();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out),
              AllOf(Contains("[pserver.0] name: \"piped\""), Contains("[trainer.0] name: \"piped\""),
                    Contains("[trainer.1] arg --job=/dev/stdin"), Contains("[trainer.1] arg --job_dir=jobs"),
                    Contains("[pserver.0] arg --job_dir=jobs")));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '"'), 2 * 5);
}

TEST_F(LaunchPlacementTest, AJobFromStandardInputIsOneOfThisMachine) {
  const auto from_text = [](const std::string& text) {
    return [text] {
      int ends[2];
      if (pipe(ends) != 0 || write(ends[1], text.data(), text.size()) < 0) _exit(1);
      close(ends[1]);
      dup2(ends[0], STDIN_FILENO);
    };
  };
  const std::vector<std::string> arguments = {"--job=/dev/stdin", "--servers=1", "--trainers=1"};
  const Result empty = Launched(arguments, {}, from_text("")).Finish();
  EXPECT_EQ(empty.code, 2);
  EXPECT_EQ(empty.err,
            "launch: /dev/stdin is empty; what comes from a pipe or standard input can be read once only: has another "
            "program read it?\n");
  std::vector<std::string> far = RemoteArguments("127.0.0.1:1,203.0.113.1:1");
  far[0] = "--job=/dev/stdin";
  const Result remote = Launched(far, {}, from_text("name: \"x\"\n")).Finish();
  EXPECT_EQ(remote.code, 2);
  EXPECT_THAT(remote.err, HasSubstr("launch: --job=/dev/stdin is not on 203.0.113.1: write the job into a file"));
}

TEST_F(LaunchPlacementTest, TwoLaunchesDoNotShareALogDirectory) {
  Launched first(Arguments(1, 1), {{"FAKE_TRAINER", "wait"}});
  first.Await("] waiting");
  const Result second = Run(1, 1, {});
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("another launch uses it"));
  kill(first.pid(), SIGTERM);
  EXPECT_EQ(first.Finish().code, 0);
}

TEST_F(LaunchPlacementTest, ANodeStartsItsPartOfTheTrainers) {
  const std::string port = absl::StrCat(FreePorts(2));
  const std::string ask =
      "args;env RANK;env WORLD_SIZE;env LOCAL_RANK;env LOCAL_WORLD_SIZE;env NODE_RANK;env GROUP_RANK;"
      "env MASTER_ADDR;env MASTER_PORT;env PADDLE_TRAINER_ID";
  const std::vector<std::string> flags = {"--nnodes=2", "--nproc_per_node=1", "--master_addr=127.0.0.1",
                                          "--master_port=" + port};
  const auto node = [&](const std::string& rank) {
    std::vector<std::string> arguments = ArgumentsWithoutNumbers({"--servers=1", "--node_rank=" + rank});
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return arguments;
  };
  Launched first(node("0"), {{"FAKE_TRAINER", ask}});
  first.Await("ready server=0");
  const Result second = Launched(node("1"), {{"FAKE_TRAINER", ask}}).Finish();
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(first.Finish().code, 0);
  EXPECT_THAT(second.err, HasSubstr("launch: node 1 of 2: 1 trainer on "));
  for (const std::string& line :
       {std::string("arg --trainer_id=1"), std::string("arg --set=distribute.trainers=2"), std::string("RANK=1"),
        std::string("WORLD_SIZE=2"), std::string("LOCAL_RANK=0"), std::string("LOCAL_WORLD_SIZE=1"),
        std::string("NODE_RANK=1"), std::string("GROUP_RANK=1"), std::string("MASTER_ADDR=127.0.0.1"),
        "MASTER_PORT=" + port, std::string("PADDLE_TRAINER_ID=1")}) {
    EXPECT_THAT(Lines(second.out), Contains("[trainer.1] " + line));
  }
  EXPECT_THAT(second.out, Not(HasSubstr("[pserver")));
  EXPECT_TRUE(fs::exists(logs_ / "node.1" / "trainer.1.log"));
  EXPECT_TRUE(fs::exists(logs_ / "node.0" / "pserver.0.log"));
}

TEST_F(LaunchPlacementTest, TheFirstNodeNamesTheRunForAll) {
  WriteJob("checkpoint { dir: \"saved\" } deadlines { lease_s: 0.3 }");
  const auto node = [&](const std::string& rank) {
    return Launched(ArgumentsWithoutNumbers({"--servers=0", "--nnodes=2", "--node_rank=" + rank, "--nproc_per_node=1",
                                             "--master_addr=127.0.0.1", "--restarts=1"}),
                    {{"FAKE_TRAINER", "unconnected;args"}})
        .Finish();
  };
  EXPECT_THAT(node("0").out, ContainsRegex("\\[trainer.0\\] arg --run_id=launch\\.[0-9a-f]+\n"));
  EXPECT_THAT(node("1").out, HasSubstr("[trainer.1] arg --run_id=*\n"));
}

TEST_F(LaunchPlacementTest, HostsThatAreThisMachineNeedNoSsh) {
  std::vector<std::string> arguments = ArgumentsWithoutNumbers({"-np", "2", "-H", "localhost:2", "--ssh=/no/such/ssh"});
  const Result result = Launched(arguments, {{"FAKE_TRAINER", "env NODE_RANK;env LOCAL_RANK"}}).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out), AllOf(Contains("[trainer.1] NODE_RANK=0"), Contains("[trainer.1] LOCAL_RANK=1"),
                                       Contains(StartsWith("[pserver.0] ready server=0 endpoint=127.0.0.1:"))));
}

TEST_F(LaunchPlacementTest, OtherHostsAreStartedOverSsh) {
  const std::string log = (directory_ / "ssh.log").string();
  const Result result =
      Launched(RemoteArguments("127.0.0.1:1,203.0.113.1:2",
                               {"--ssh_port=2222", "--ssh_options=-i 'a key'", "--env=GREETING=it's \"a\" $b", "--env",
                                "KEPT", "--set=name=\"a b\"", "--", "--output=c d"}),
               {{"FAKE_SSH_LOG", log},
                {"KEPT", "as it was"},
                {"FAKE_TRAINER", "args;env GREETING;env KEPT;env RANK;env LOCAL_RANK;env NODE_RANK;err bye"}})
          .Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("launch: 1 server and 3 trainers on 2 hosts; logs in "),
                                HasSubstr("launch: 127.0.0.1: 1 server and 1 trainer on "),
                                HasSubstr("launch: 203.0.113.1: 2 trainers on "),
                                HasSubstr("[203.0.113.1] Welcome to 203.0.113.1\n"), HasSubstr("[trainer.2] bye\n")));
  for (const char* line :
       {"arg --output=c d", "arg --set=name=\"a b\"", "GREETING=it's \"a\" $b", "KEPT=as it was", "RANK=2",
        "LOCAL_RANK=1", "NODE_RANK=1", "arg --trainer_id=2", "arg --set=distribute.trainers=3"}) {
    EXPECT_THAT(Lines(result.out), Contains(absl::StrCat("[trainer.2] ", line)));
  }
  EXPECT_THAT(Log("trainer.2"), AllOf(HasSubstr("LOCAL_RANK=1\n"), HasSubstr("bye\n")));
  // One connection for both processes.
  const std::vector<std::string> words = Lines(ReadFile(log));
  EXPECT_EQ(std::count(words.begin(), words.end(), "203.0.113.1"), 1);
  EXPECT_THAT(words,
              AllOf(Contains("BatchMode=yes"), Contains("2222"), Contains("a key"), Contains("ConnectTimeout=20")));
}

TEST_F(LaunchPlacementTest, ServersRunOnTheHostsThatAreNamed) {
  const Result result = Launched(RemoteArguments("127.0.0.1:1", {"--server_hosts=203.0.113.1"}), {}).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("launch: 203.0.113.1: 1 server on "));
}

TEST_F(LaunchPlacementTest, ServersOfSeveralHostsAreDealtToThemInTurns) {
  const Result result = Launched(RemoteArguments("127.0.0.1:1,203.0.113.1:2", {"--servers=3"}), {}).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("launch: 127.0.0.1: 2 servers and 1 trainer on "),
                                HasSubstr("launch: 203.0.113.1: 1 server and 2 trainers on ")));
}

TEST_F(LaunchPlacementTest, TrainersOfSeveralHostsThatServeKnowOneAnothersPorts) {
  std::vector<std::string> arguments = RemoteArguments("127.0.0.1:1,203.0.113.1:2", {"--servers=0"});
  const Result result =
      Launched(arguments, {{"FAKE_TRAINER", "unconnected;args;env PADDLE_CURRENT_ENDPOINT"}}).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("\\[trainer.2\\] arg --pservers=127.0.0.1:[0-9]+,203.0.113.1:[0-9]+,"
                                        "203.0.113.1:[0-9]+\n"));
  EXPECT_THAT(result.out, ContainsRegex("\\[trainer.2\\] PADDLE_CURRENT_ENDPOINT=203.0.113.1:[0-9]+\n"));
}

TEST_F(LaunchPlacementTest, AHostThatCannotBeUsedIsNamedAndNothingIsStarted) {
  struct Case {
    std::string host, message;
    int code;
  };
  const std::vector<Case> cases = {
      {"203.0.113.66", "launch: host 203.0.113.66 was not ready within 1 s (--ssh_timeout_s)", 3},
      {"203.0.113.67",
       "launch: host 203.0.113.67: no connection (ssh: exit code 255): root@203.0.113.67: Permission denied "
       "(publickey).",
       3},
      {"203.0.113.68", "/launch cannot be run there; every host needs the programs at the same place", 2},
      {"203.0.113.69", "speaks version 99 of the messages among launches, this one 2; install the same version", 2},
      {"203.0.113.71", "launch: host 203.0.113.71: cannot change to the directory /here", 2},
      {"203.0.113.72", "launch: host 203.0.113.72: a message 'out' about process 9, which is none", 1}};
  for (const Case& c : cases) {
    std::vector<std::string> flags;
    if (c.host == "203.0.113.66") flags.push_back("--ssh_timeout_s=1");
    const Result result = Launched(RemoteArguments("127.0.0.1:1," + c.host + ":1", flags), {}).Finish();
    EXPECT_EQ(result.code, c.code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.message));
    EXPECT_THAT(result.err, HasSubstr("host " + c.host));
    EXPECT_FALSE(fs::exists(logs_ / "pserver.0.log"));
  }
}

TEST_F(LaunchPlacementTest, ProcessorsAreDividedOnRequest) {
  const Result result = Run(1, 1, {{"FAKE_TRAINER", "cpus"}}, {"--bind=cores"});
  EXPECT_THAT(Lines(result.out), Contains(absl::StrCat("[trainer.0] cpus ", CoresHere())));
  const Result each = Run(1, CoresHere(), {{"FAKE_TRAINER", "cpus"}}, {"--bind=cores"});
  EXPECT_EQ(each.code, 0) << each.err;
  EXPECT_THAT(Lines(each.out), Contains("[trainer.0] cpus 1"));
  const Result many = Run(1, CoresHere() + 1, {}, {"--bind=cores"});
  EXPECT_EQ(many.code, 2);
  EXPECT_THAT(many.err, HasSubstr("launch: --bind=cores: "));
}

TEST_F(LaunchPlacementTest, EveryLocalRankHasADevice) {
  const std::string ask = "env CUDA_VISIBLE_DEVICES;env LOCAL_RANK";
  const Result result = Run(1, 2, {{"FAKE_TRAINER", ask}, {"CUDA_VISIBLE_DEVICES", "4,6,7"}}, {"--gpus=2,0"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out),
              AllOf(Contains("[trainer.1] CUDA_VISIBLE_DEVICES=7,4"), Contains("[trainer.1] LOCAL_RANK=1")));
  const Result few = Run(1, 2, {}, {"--gpus=1"});
  EXPECT_EQ(few.code, 2);
  EXPECT_EQ(few.err, "launch: --gpus=1: 1 device for 2 trainers; every trainer needs one of its own\n");
}

TEST_F(LaunchPlacementTest, VariablesOfAnotherLauncherThatContradictAreRefused) {
  const Result result = Run(1, 2, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("launch: the variable OMPI_COMM_WORLD_RANK is 1: launch is itself one of several"));
}

TEST_F(LaunchPlacementTest, WrongCommandLinesAreRefused) {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::string job = "--job=" + job_.string();
  const std::string fakes = "--bin_dir=" + fs::path(Runfile("tests/tools/fakes/trainer")).parent_path().string();
  const std::vector<Case> cases = {
      {{}, "--job=FILE is required"},
      {{"--job=" + (directory_ / "none").string(), "--servers=1", "--trainers=1"}, "No such file"},
      {{job, "--servers=1", "--trainers=0"}, "--trainers=0: at least 1 is needed"},
      {{job, "--servers=1000", "--trainers=1"}, "--servers=1000: at most 256"},
      {{job, "--server=1"}, "unknown flag --server (did you mean --servers?)"},
      {{job, "--servers=two"}, "--servers=two"},
      {{job, "--servers=1", "--trainers=1", fakes, "--", "--stop_code=75"}, "--stop_code=75 stands after --, where"},
      {{job, "--servers=1", "--trainers=1", fakes, "--", "--start_from=a"}, "--start_from=a stands after --, where"},
      {{job, "train.py"}, "'train.py' is no flag; arguments for the trainers stand after --"},
      {{job, "--servers=2", "--trainers=1", "--set=distribute.servers=3"},
       "--set distribute.servers=3, but launch starts 2: use --servers=3"},
      {{job, "--set=train.sede=3"}, "sede"},
      {{job, "--servers=1", "--trainers=1", "--bin_dir=" + directory_.string()}, "no program pserver: looked for "},
      {{job, "-H", "a:2,b:x"}, "-H: column 5: 'b:x' must have a number of slots"},
      {{job, "-H", "a", "--hostfile=f"}, "-H and --hostfile both name hosts"},
      {{job, "--hostfile=" + (directory_ / "none").string()}, "No such file"},
      {{job, "--hostfile=" + job_.string()}, "job.textproto:1:11: '{' is not known here"},
      {{job, "-H", "203.0.113.1", "--ssh=no-such-ssh"}, "no program no-such-ssh in PATH, which reaches other hosts"},
      {{job, "--nnodes=2", "--trainers=2"}, "--nnodes=2 needs --node_rank=R"},
      {{job, "--env=RANK=1"}, "--env: launch sets RANK for every process itself"},
      {{job, "--env", "NO_SUCH_VARIABLE"}, "--env NO_SUCH_VARIABLE: there is no such variable"},
      {{job, "--env=A=1", "--env=A=2"}, "--env gives A twice: '1' and '2'"},
      {{job, "--env"}, "--env needs NAME=VALUE or NAME"},
      {{job, "--bind=core"}, "--bind=core: must be auto, none, cores or numa"},
      {{job, "--servers=1", "--trainers=1", "--ssh_options='x"}, "--ssh_options: ''x' has a ' without its end"},
      {{job, "--servers=1", "--trainers=1", "--ssh_timeout_s=0"}, "--ssh_timeout_s=0: must be at least 1"},
      {{job, "--servers=1", "--trainers=1", "--ssh_port=70000"}, "--ssh_port=70000: must be 1 to 65535"},
      {{job, "--servers=1", "--trainers=1", "--log_dir=" + job_.string(), fakes}, job_.string()},
  };
  for (const Case& c : cases) {
    const Result result = Launched(c.arguments, {}).Finish();
    EXPECT_EQ(result.code, 2) << c.message << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.message));
  }
  WriteJob("nam: \"x\"");
  const Result result = Run(1, 1, {});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("job.textproto:1:1: unknown field 'nam' (did you mean 'name'?)"));
}

TEST_F(LaunchPlacementTest, HelpNamesTheFlags) {
  const Result result = Launched({"--help"}, {}).Finish();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("--servers"), HasSubstr("--log_dir"), HasSubstr("--set"),
                                HasSubstr("--nnodes"), HasSubstr("--H"), HasSubstr("--env")));
}

}  // namespace
}  // namespace weir
