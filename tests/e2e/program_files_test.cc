// The program is what runs: a cluster that is given its programs in files computes what the files say, edited or not.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/checkpoint/digest_log.h"
#include "framework/graph/program_text.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/train_in_process.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"

namespace weir {
namespace {

std::string Contents(const std::string& file) {
  std::ifstream in(file);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// The job as 2 servers and 2 trainers run it, 6 steps with a digest after each.
std::string JobText() {
  return absl::StrReplaceAll(kClickJob,
                             {{"distribute { sync: true }", "distribute { sync: true servers: 2 trainers: 2 }"},
                              {"max_steps: 200", "max_steps: 6"},
                              {"digest_every_steps: 50", "digest_every_steps: 1"}});
}

class ProgramFilesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/program_files";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteClickData(dir_);
    std::ofstream(JobFile()) << JobText();
    const absl::StatusOr<InProcessResult> result = Run({.digest_log = Path("reference.log")});
    ASSERT_TRUE(result.ok()) << result.status();
    reference_ = new InProcessResult(*result);
    job_ = new Job(*LoadJob(JobFile(), {}));
  }
  static void TearDownTestSuite() {
    delete reference_;
    delete job_;
    std::filesystem::remove_all(dir_);
  }

  static std::string Path(const std::string& name) { return absl::StrCat(dir_, "/", name); }
  static std::string JobFile() { return Path("job.textproto"); }

  static absl::StatusOr<InProcessResult> Run(InProcessRun run) {
    run.job_text = JobText();
    run.directory = dir_;
    run.servers = 2;
    run.trainers = 2;
    return TrainInProcess(run);
  }

  // Dumps a program through the library; the path.
  static std::string Dump(const v1::ProgramDesc& program, const std::string& name) {
    const absl::Status status = WriteProgramFile(Path(name), program);
    EXPECT_TRUE(status.ok()) << status;
    return Path(name);
  }
  static Programs Trainer() { return *TrainerPrograms(*job_, "", ""); }
  static Programs Server(int id) { return *ServerPrograms(*job_, id, "", ""); }

  // A dumped file with `from`, which stands in it `times` times, replaced; the path.
  static std::string Edited(const std::string& file, const std::string& from, const std::string& to, int times = 1) {
    std::string text = Contents(file);
    EXPECT_EQ(absl::StrReplaceAll({{from, to}}, &text), times) << from;
    std::ofstream(file) << text;
    return file;
  }

  static std::string dir_;
  static InProcessResult* reference_;
  static Job* job_;
};
std::string ProgramFilesTest::dir_;
InProcessResult* ProgramFilesTest::reference_ = nullptr;
Job* ProgramFilesTest::job_ = nullptr;

TEST_F(ProgramFilesTest, DumpedProgramsOfEveryFormatTrainToTheSameBits) {
  const Programs trainer = Trainer(), first = Server(0), second = Server(1);
  const absl::StatusOr<InProcessResult> result =
      Run({.trainer_programs = {Dump(trainer.main, "trainer.program"), Dump(trainer.startup, "trainer_startup.json")},
           .server_programs = {{0, {Dump(first.main, "first.textproto"), Dump(first.startup, "first_startup.program")}},
                               {1, {Dump(second.main, "second.json"), Dump(second.startup, "second_startup.pb")}}}});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->digests.size(), 6u);
  EXPECT_EQ(result->digests, reference_->digests);
}

TEST_F(ProgramFilesTest, WhatTranspilePrintsLoadsBackAndTrainsToTheSameBits) {
  const std::map<std::string, Programs> made = {{"--role=trainer", Trainer()},
                                                {"--role=pserver --server=0", Server(0)},
                                                {"--role=pserver --server=1", Server(1)}};
  const std::map<std::string, std::string> endings = {
      {"text", "program"}, {"textproto", "textproto"}, {"json", "json"}};
  std::vector<ProgramFiles> text_files;
  for (const auto& [role, programs] : made) {
    ProgramFiles files;
    for (const std::string print : {"main", "startup"}) {
      for (const auto& [format, ending] : endings) {
        const std::string file = Path(absl::StrCat("printed", text_files.size(), "_", print, ".", ending));
        const std::string command = absl::StrCat("transpiler/transpile --job=", JobFile(), " ", role,
                                                 " --print=", print, " --format=", format, " > ", file);
        ASSERT_EQ(std::system(command.c_str()), 0) << command;
        const absl::StatusOr<v1::ProgramDesc> read = ReadProgramFile(file);
        ASSERT_TRUE(read.ok()) << read.status();
        const v1::ProgramDesc& expected = print == "main" ? programs.main : programs.startup;
        EXPECT_EQ(ProgramText(*read), ProgramText(expected)) << command;
        if (format == "text") (print == "main" ? files.main : files.startup) = file;
      }
    }
    text_files.push_back(files);
  }
  // In order of the map: server 0, server 1, trainer.
  const absl::StatusOr<InProcessResult> result =
      Run({.trainer_programs = text_files[2], .server_programs = {{0, text_files[0]}, {1, text_files[1]}}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->digests, reference_->digests);
}

// One block of a parameter cut in two, on one server: after the first step only that half has other values.
TEST_F(ProgramFilesTest, AnotherUpdateOfOneBlockChangesThatBlock) {
  const std::string adam =
      "ParamOut=deep.0.w.block1, Moment1Out=deep.0.w.block1.moment1, Moment2Out=deep.0.w.block1.moment2, "
      "StepOut=deep.0.w.block1.step <- adam(Param=deep.0.w.block1, Grad=deep.0.w@GRAD.block1, "
      "LearningRate=learning_rate, "
      "Moment1=deep.0.w.block1.moment1, Moment2=deep.0.w.block1.moment2, Step=deep.0.w.block1.step) beta1=0.9 "
      "beta2=0.999 "
      "epsilon=1e-08 @OPTIMIZE";
  const std::string momentum =
      "ParamOut=deep.0.w.block1, VelocityOut=deep.0.w.block1.moment1 <- momentum(Param=deep.0.w.block1, "
      "Grad=deep.0.w@GRAD.block1, LearningRate=learning_rate, Velocity=deep.0.w.block1.moment1) mu=0.5 "
      "use_nesterov=false "
      "@OPTIMIZE";
  const std::string file = Edited(Dump(Server(0).main, "momentum.program"), adam, momentum);
  const absl::StatusOr<InProcessResult> result =
      Run({.server_programs = {{0, {.main = file}}}, .digest_log = Path("momentum.log")});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->digests.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_NE(result->digests[i], reference_->digests[i]);

  const absl::StatusOr<DigestComparison> parted = CompareDigestLogs(Path("reference.log"), Path("momentum.log"));
  ASSERT_TRUE(parted.ok()) << parted.status();
  EXPECT_FALSE(parted->equal);
  EXPECT_NE(parted->text.find("deep.0.w"), std::string::npos) << parted->text;
  for (const char* other : {"deep.0.b", "deep.1.w", "deep.1.b", "out.w", "out.b", "field_vectors", "field_weights"}) {
    EXPECT_EQ(parted->text.find(other), std::string::npos) << parted->text;
  }
}

TEST_F(ProgramFilesTest, AnotherActivationInTheTrainersProgramGivesOtherValues) {
  const std::string file =
      Edited(Dump(Trainer().main, "tanh.program"), "activation=\"relu\"", "activation=\"tanh\"", 4);
  const absl::StatusOr<InProcessResult> result = Run({.trainer_programs = {.main = file}});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->digests.size(), 6u);
  EXPECT_NE(result->digests[0], reference_->digests[0]);
  EXPECT_NE(result->summary.train_loss, reference_->summary.train_loss);
}

TEST_F(ProgramFilesTest, AnotherInitialValueInAServersStartupGivesOtherValues) {
  const std::string file = Dump(Server(1).startup, "initial.program");
  const std::string text = Contents(file);
  const size_t at = text.find("Out=learning_rate <- fill_constant");
  ASSERT_NE(at, std::string::npos) << text;
  const std::string line = text.substr(at, text.find('\n', at) - at);
  Edited(file, line, absl::StrReplaceAll(line, {{"value=0.001", "value=0.002"}}));
  const absl::StatusOr<InProcessResult> result = Run({.server_programs = {{1, {.startup = file}}}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NE(result->digests, reference_->digests);
}

TEST_F(ProgramFilesTest, AMissingRecvIsRefusedByName) {
  const std::string recv =
      "  Out=deep.1.b <- recv() blocks=[\"deep.1.b\"] servers=[1] @RPC grads(deep.1.b=deep.1.b@GRAD)\n";
  const std::string file = Edited(Dump(Trainer().main, "recv.program"), recv, "");
  const absl::Status status = Run({.trainer_programs = {.main = file}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("recv.program"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("recv of block 'deep.1.b' is missing"), absl::string_view::npos) << status;
}

TEST_F(ProgramFilesTest, AnUnknownVariableInAServersProgramIsRefusedByName) {
  const std::string file =
      Edited(Dump(Server(0).main, "lost.program"), "Moment1=out.b.moment1,", "Moment1=out.b.lost,");
  const absl::Status status = Run({.server_programs = {{0, {.main = file}}}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("lost.program"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("out.b.lost"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace weir
