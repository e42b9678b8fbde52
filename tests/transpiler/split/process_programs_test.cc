#include "transpiler/split/process_programs.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// Writes text to a file of the test and returns its path.
std::string File(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

std::string TrainerText() { return ProgramText(TranspiledOf(JobOf(kDeepFm)).trainer().main); }
std::string ServerText(int server) { return ProgramText(TranspiledOf(JobOf(kDeepFm)).Server(server)->main); }

std::string TrainerError(const std::string& text) {
  const auto programs = TrainerPrograms(JobOf(kDeepFm), File("trainer.program", text), "");
  return std::string(programs.status().message());
}

std::string ServerError(int server, const std::string& text) {
  const auto programs = ServerPrograms(JobOf(kDeepFm), server, File("server.program", text), "");
  return std::string(programs.status().message());
}

// Removes the line that contains `part`.
std::string WithoutLine(std::string text, const std::string& part) {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  const size_t begin = text.rfind('\n', at) + 1;
  return text.erase(begin, text.find('\n', at) + 1 - begin);
}

TEST(ProcessProgramsTest, WithoutFilesTheyAreMadeFromTheJob) {
  const auto trainer = TrainerPrograms(JobOf(kDeepFm), "", "");
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  EXPECT_EQ(ProgramText(trainer->main), TrainerText());
  EXPECT_EQ(trainer->main.plan().servers(), 2);
  const auto server = ServerPrograms(JobOf(kDeepFm), 1, "", "");
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(ProgramText(server->main), ServerText(1));
}

TEST(ProcessProgramsTest, FilesOfAnyFormatAreWhatRuns) {
  const Job job = JobOf(kDeepFm);
  const Programs made = TranspiledOf(job).trainer();
  for (const char* format : {"text", "textproto", "json"}) {
    const std::string ending = std::string(format) == "text" ? "program" : format;
    const std::string main = File("main." + ending, *FormatProgram(made.main, format));
    const std::string startup = File("startup." + ending, *FormatProgram(made.startup, format));
    const auto read = TrainerPrograms(job, main, startup);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ProgramText(read->main), ProgramText(made.main)) << format;
    EXPECT_EQ(ProgramText(read->startup), ProgramText(made.startup)) << format;
  }
}

TEST(ProcessProgramsTest, AnEditedOperatorIsWhatRuns) {
  const std::string edited = Replaced(TrainerText(), "activation=\"relu\"", "activation=\"tanh\"");
  const auto programs = TrainerPrograms(JobOf(kDeepFm), File("edited.program", edited), "");
  ASSERT_TRUE(programs.ok()) << programs.status();
  EXPECT_EQ(ProgramText(programs->main), edited);
}

TEST(ProcessProgramsTest, ALostRecvIsNamed) {
  EXPECT_THAT(TrainerError(WithoutLine(TrainerText(), "Out=out.w <- recv")),
              HasSubstr("recv of block 'out.w' is missing"));
}

TEST(ProcessProgramsTest, ALostSendIsNamed) {
  EXPECT_THAT(TrainerError(WithoutLine(TrainerText(), "send(X=out.w@GRAD)")),
              HasSubstr("send of the gradient of block 'out.w' is missing"));
}

TEST(ProcessProgramsTest, ABlockSentToAnotherServerIsNamed) {
  EXPECT_THAT(TrainerError(Replaced(TrainerText(), "blocks=[\"out.w\"] servers=[0]", "blocks=[\"out.w\"] servers=[1]")),
              HasSubstr("send of block 'out.w' goes to server 1; the plan has it on server 0"));
}

TEST(ProcessProgramsTest, AnUnknownOperatorIsFoundByTheVerifier) {
  EXPECT_THAT(TrainerError(Replaced(TrainerText(), "<- fm_interaction(", "<- fm_interactions(")),
              HasSubstr("did you mean 'fm_interaction'"));
}

TEST(ProcessProgramsTest, AProgramOfAnotherPlanIsRefused) {
  const std::string other =
      ProgramText(TranspiledOf(JobOf(kDeepFm, {"distribute.split_method=HASH_NAME"})).trainer().main);
  EXPECT_THAT(TrainerError(other),
              HasSubstr("its plan is not the job's ('here' is the file): plan.block deep.0.w.block0: server 0"));
}

TEST(ProcessProgramsTest, AProgramWithoutAPlanIsRefused) {
  EXPECT_THAT(TrainerError(ProgramText(BuildSingleMachine(JobOf(kDeepFm))->main)), HasSubstr("has no plan"));
}

TEST(ProcessProgramsTest, TheProgramOfAnotherServerIsRefused) {
  EXPECT_THAT(ServerError(1, ServerText(0)), HasSubstr("is the program of server 0, and this is server 1"));
}

TEST(ProcessProgramsTest, ATrainersProgramIsNoServers) {
  EXPECT_THAT(ServerError(0, TrainerText()), HasSubstr("it has no listen_and_serv"));
}

TEST(ProcessProgramsTest, ABlockThatNothingUpdatesIsNamed) {
  const std::string text = ServerText(0);
  const size_t list = text.find("optimize_blocks=blocks[1, ");
  ASSERT_NE(list, std::string::npos);
  EXPECT_THAT(ServerError(0, Replaced(text, "optimize_blocks=blocks[1, ", "optimize_blocks=blocks[")),
              HasSubstr("optimize block of 'deep.0.b' is missing"));
}

// Startup programs are checked by the same rules, together with the main program, made or given.
TEST(ProcessProgramsTest, ABlockThatAStartupFileForgetsIsNamed) {
  const std::string text = ProgramText(TranspiledOf(JobOf(kDeepFm)).Server(0)->startup);
  const std::string file = File("forgets.program", WithoutLine(text, "Out=out.w <- xavier"));
  const auto programs = ServerPrograms(JobOf(kDeepFm), 0, "", file);
  EXPECT_EQ(std::string(programs.status().message()),
            file + ": initialised: the startup program of server 0 gives block 'out.w' no value");
}

TEST(ProcessProgramsTest, AParameterThatATrainersStartupFileForgetsIsNamed) {
  const std::string text = ProgramText(TranspiledOf(JobOf(kDeepFm)).trainer().startup);
  const std::string file = File("forgets.program", WithoutLine(text, "Out=out.w <- recv"));
  const auto programs = TrainerPrograms(JobOf(kDeepFm), "", file);
  EXPECT_EQ(std::string(programs.status().message()),
            file + ": received_once: recv of the startup program of block 'out.w' is missing");
}

// A waits rule across files: the trainer would wait for itself.
TEST(ProcessProgramsTest, ACycleOfWaitsIsNamed) {
  std::string text = TrainerText();
  const size_t at = text.find("  send_barrier("), end = text.find('\n', at) + 1;
  const std::string barrier = text.substr(at, end - at);
  text.erase(at, barrier.size());
  text.insert(text.rfind("}\n"), barrier);
  EXPECT_THAT(TrainerError(text),
              HasSubstr("waits: server 0 waits for send_barrier of trainer 0 waits for fetch_barrier of "
                        "trainer 0 waits for server 0"));
}

TEST(ProcessProgramsTest, AMissingFileIsNamed) {
  const auto programs = TrainerPrograms(JobOf(kDeepFm), "/nowhere/main.program", "");
  EXPECT_THAT(std::string(programs.status().message()), HasSubstr("/nowhere/main.program"));
}

// A program that brings backward and updates goes through the same passes as one that brings neither.
TEST(ProcessProgramsTest, ABroughtProgramMayHaveItsUpdates) {
  const Programs single = *BuildSingleMachine(JobOf(kDeepFm));
  const std::string file = File("single.program", ProgramText(single.main));
  const std::string model(kDeepFm);
  const size_t begin = model.find("model {"), end = model.find("table {");
  const std::string text =
      model.substr(0, begin) + "program: \"" + file + "\"\ndistribute { servers: 2 trainers: 2 }\n";
  ASSERT_NE(end, std::string::npos);
  const Transpiled brought = TranspiledOf(JobOf(text));
  const Transpiled made = TranspiledOf(JobOf(kDeepFm));
  EXPECT_EQ(ProgramText(brought.trainer().main), ProgramText(made.trainer().main));
  EXPECT_EQ(ProgramText(brought.trainer().startup), ProgramText(made.trainer().startup));
  EXPECT_EQ(ProgramText(brought.Server(1)->main), ProgramText(made.Server(1)->main));
  EXPECT_EQ(ProgramText(brought.Server(1)->startup), ProgramText(made.Server(1)->startup));
}

TEST(ProcessProgramsTest, SettingsOfUpdatesThatABroughtProgramHasAreRefusedAtTheirPlace) {
  const std::string file = File("updated.program", ProgramText(BuildSingleMachine(JobOf(kDeepFm))->main));
  const std::string model(kDeepFm);
  const std::string head = model.substr(0, model.find("model {")) + "program: \"" + file + "\"\n";
  const auto message = [&](const std::string& more) {
    const auto job = ParseJob(head + more, "job.textproto", {});
    EXPECT_TRUE(job.ok()) << job.status();
    return std::string(Transpile(*job).status().message());
  };
  EXPECT_EQ(
      message("optimizer { sgd {} }"),
      "job.textproto:8:1: optimizer contradicts program: " + file +
          " brings updates of its own, of 'deep.0.b' for one; leave this out, or bring a program without updates");
  EXPECT_THAT(message("table { name: \"vectors\" width: 4 is_sparse: true is_distributed: true optimizer { sgd {} } }"),
              HasSubstr("table[0].optimizer contradicts program: "));
  EXPECT_THAT(message("table { name: \"vectors\" width: 4 is_sparse: true is_distributed: true segment { width: 4 } }"),
              HasSubstr("table[0].segment contradicts program: "));
  EXPECT_THAT(
      message("table { name: \"vectors\" width: 4 is_sparse: true is_distributed: true bad_gradient: SKIP_ROW }"),
      HasSubstr("table[0].bad_gradient contradicts program: "));
  EXPECT_THAT(message("table { name: \"vectors\" width: 4 is_sparse: true is_distributed: true storage: FLOAT16 }"),
              HasSubstr("table[0].storage contradicts program: " + file +
                        " has 'vectors' as table float32 [-1, 4]; leave this out"));
  EXPECT_THAT(message("table { name: \"other\" width: 4 is_sparse: true is_distributed: true }"),
              HasSubstr("no parameter of program " + file + " is named 'other'"));
}

TEST(ProcessProgramsTest, ABroughtTableMayHaveValuesOf16BitsButNotInGeo) {
  const Job made = JobOf(Replaced(kDeepFm, "width: 4", "width: 4 storage: FLOAT16"));
  const std::string file = File("half.program", ProgramText(BuildSingleMachine(made)->main));
  const std::string model(kDeepFm);
  const std::string head = model.substr(0, model.find("model {")) + "program: \"" + file + "\"\n";
  const Transpiled brought = TranspiledOf(JobOf(head + "distribute { servers: 2 trainers: 2 }"));
  EXPECT_EQ(ProgramText(brought.Server(1)->main), ProgramText(TranspiledOf(made).Server(1)->main));
  // A job that repeats the program's settings of the table fits.
  TranspiledOf(
      JobOf(head + "table { name: \"vectors\" width: 4 is_sparse: true is_distributed: true storage: FLOAT16 }"));
  const auto job = ParseJob(head + "distribute { sync: false geo { every_steps: 2 } }", "job.textproto", {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(std::string(Transpile(*job).status().message()),
            "job.textproto:8:26: distribute.geo contradicts table 'vectors' of the program, which is table float16 "
            "[-1, 4]: geo needs "
            "float32");
}

TEST(ProcessProgramsTest, TheDataMustGiveWhatABroughtProgramReads) {
  const std::string file = File("fed.program", ProgramText(BuildSingleMachine(JobOf(kDeepFm))->main));
  const std::string model(kDeepFm);
  const std::string head = model.substr(0, model.find("model {")) + "program: \"" + file + "\"\n";
  const auto job = ParseJob(Replaced(head, "integers: 6", "integers: 7"), "job.textproto", {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(std::string(Transpile(*job).status().message()),
              HasSubstr("variable 'dense' of " + file + " is float32 [-1, 6]; the data gives float32 [-1, 7]"));
}

}  // namespace
}  // namespace weir
