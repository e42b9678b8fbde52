// Trainers that see other data, or run another program, than trainer 0 are refused before the first step, and so is a
// resume on other data.

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/graph/program_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SameInputsTest : public SlotJobTest {
 protected:
  // How a run ends whose trainer 1 has a directory of its own, made by `differ` of a copy of the others'. In sync and
  // in async.
  static void ExpectRefused(const std::function<void(const std::string& dir)>& differ, const std::string& text) {
    const std::string other = Path("other_host");
    for (const bool sync : {true, false}) {
      fs::remove_all(other);
      fs::create_directories(other);
      for (const char* file : {"train.txt", "eval.txt"}) fs::copy_file(Path(file), other + "/" + file);
      differ(other);
      std::vector<absl::Status> ends;
      const absl::Status status =
          TryRun({.overrides = {absl::StrCat("distribute.sync=", sync ? "true" : "false"), "train.max_steps=5"},
                  .servers = 2,
                  .trainers = 3,
                  .trainer_ends = &ends,
                  .edit_trainer =
                      [&](int trainer, Job* job, Programs*) {
                        if (trainer == 1) job->directory = other;
                      }})
              .status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      for (const absl::Status& end : ends) EXPECT_THAT(std::string(end.message()), HasSubstr(text));
    }
  }
};

TEST_F(SameInputsTest, ATrainerWithShorterDataIsRefused) {
  ExpectRefused([](const std::string& dir) { fs::resize_file(dir + "/train.txt", 1000); },
                "trainer 1 sees other data than trainer 0: data.train: 'train.txt' has 1000 bytes here, ");
}

TEST_F(SameInputsTest, ATrainerWithReorderedDataIsRefused) {
  ExpectRefused(
      [](const std::string& dir) {
        WriteSlotLines(dir + "/train.txt", 1000, 2000);
        std::ofstream out(dir + "/train.txt", std::ios::app);
        for (int64_t i = 0; i < 1000; ++i) out << SlotLine(i) << "\n";
      },
      "data.train: 'train.txt' here and there have ");
}

TEST_F(SameInputsTest, ATrainerWithOtherEvaluationDataIsRefused) {
  ExpectRefused([](const std::string& dir) { fs::resize_file(dir + "/eval.txt", 500); },
                "data.eval: 'eval.txt' has 500 bytes here, ");
}

TEST_F(SameInputsTest, ACopyElsewhereIsTheSameData) {
  const std::string other = Path("copy");
  fs::create_directories(other);
  for (const char* file : {"train.txt", "eval.txt"}) fs::copy_file(Path(file), other + "/" + file);
  EXPECT_TRUE(TryRun({.overrides = {"train.max_steps=5"},
                      .trainers = 2,
                      .edit_trainer =
                          [&](int trainer, Job* job, Programs*) {
                            if (trainer == 1) job->directory = other;
                          }})
                  .ok());
}

TEST_F(SameInputsTest, ATrainerWithAnotherProgramIsRefused) {
  std::vector<absl::Status> ends;
  const absl::Status status = TryRun({.overrides = {"train.max_steps=5"},
                                      .trainers = 2,
                                      .trainer_ends = &ends,
                                      .edit_trainer =
                                          [](int trainer, Job*, Programs* programs) {
                                            if (trainer != 1) return;
                                            const std::string text =
                                                absl::StrReplaceAll(ProgramText(programs->main),
                                                                    {{"activation=\"relu\"", "activation=\"tanh\""}});
                                            const auto parsed = ParseProgramText(text, "edited");
                                            ASSERT_TRUE(parsed.ok()) << parsed.status();
                                            programs->main = *parsed;
                                          }})
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  for (const absl::Status& end : ends) {
    EXPECT_THAT(std::string(end.message()),
                AllOf(HasSubstr("trainer 1 runs another program than trainer 0: program: line "), HasSubstr("tanh"),
                      HasSubstr("relu"), HasSubstr("--program")));
  }
}

TEST_F(SameInputsTest, TrainersThatPredictFromOtherInputAreRefused) {
  Run({.overrides = {"train.max_steps=5", CheckpointIn("predicting")}});
  const std::string other = Path("other_eval");
  fs::create_directories(other);
  WriteSlotLines(other + "/eval.txt", 2000, 2900);
  const auto scored = PredictInProcess({.job_text = kSlotJob,
                                        .directory = dir_,
                                        .trainers = 2,
                                        .edit_trainer =
                                            [&](int trainer, Job* job, Programs*) {
                                              if (trainer == 1) job->directory = other;
                                            }},
                                       {.checkpoints = Path("predicting"), .output = Path("predicting.out")});
  EXPECT_THAT(std::string(scored.status().message()),
              HasSubstr("trainer 1 sees other data than trainer 0: data.eval: 'eval.txt' has "));
}

// -------------------------------------------------------------------------------------------------------------- resume

class ResumeOnDataTest : public SlotJobTest {
 protected:
  void SetUp() override {
    fs::remove_all(Path("data"));
    fs::create_directories(Path("data"));
    WriteSlotLines(Path("data/a.txt"), 0, 1000);
    WriteSlotLines(Path("data/b.txt"), 1000, 2000);
    Run(Of(/*resume=*/false, {}));
  }
  InProcessRun Of(bool resume, std::vector<std::string> more) const {
    InProcessRun run{.overrides = {"data.train.files=data/*.txt", "train.max_steps=10", CheckpointIn("resumed")},
                     .trainers = 2,
                     .resume = resume};
    run.overrides.insert(run.overrides.end(), more.begin(), more.end());
    return run;
  }
  std::string Refusal(std::vector<std::string> more) {
    more.push_back("train.max_steps=20");
    const absl::Status status = TryRun(Of(/*resume=*/true, std::move(more))).status();
    EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
    return std::string(status.message());
  }
};

TEST_F(ResumeOnDataTest, AFileThatWasAddedIsNamedWithTheWayOut) {
  WriteSlotLines(Path("data/c.txt"), 2000, 2100);
  EXPECT_THAT(Refusal({}), AllOf(HasSubstr("step-000000000010 was trained on other files: data.train: 3 files here, 2 "
                                           "there; 'data/c.txt' is only here"),
                                 HasSubstr("table.load")));
  // The files that it began with.
  EXPECT_EQ(Refusal({"data.train.files=data/[ab].txt"}), "");
}

TEST_F(ResumeOnDataTest, AFileInFrontOfTheOthersIsNamed) {
  WriteSlotLines(Path("data/0.txt"), 2000, 2100);
  EXPECT_THAT(Refusal({}), HasSubstr("3 files here, 2 there; 'data/0.txt' is only here"));
}

TEST_F(ResumeOnDataTest, AFileThatIsGoneIsNamed) {
  fs::remove(Path("data/a.txt"));
  EXPECT_THAT(Refusal({}), HasSubstr("1 files here, 2 there; 'data/a.txt' is only there"));
}

TEST_F(ResumeOnDataTest, AFileThatHasChangedIsNamed) {
  WriteSlotLines(Path("data/b.txt"), 1000, 2001);
  EXPECT_THAT(Refusal({}), HasSubstr("data.train: 'data/b.txt' has "));
}

TEST_F(ResumeOnDataTest, TheSameFilesMayLieElsewhere) {
  fs::remove_all(Path("moved"));
  fs::rename(Path("data"), Path("moved"));
  EXPECT_EQ(Refusal({"data.train.files=moved/*.txt"}), "");
}

TEST_F(ResumeOnDataTest, SettingsThatMakeOtherExamplesOfTheSameBytesAreNamed) {
  EXPECT_THAT(Refusal({"data.ids.shared=[]"}), HasSubstr("data.ids.shared[0] \"cat\", the job says not set"));
  EXPECT_THAT(Refusal({"data.dense.transform=LOG1P"}), HasSubstr("data.dense.transform NONE, the job says LOG1P"));
  EXPECT_THAT(Refusal({"distribute.sync=false"}), HasSubstr("distribute.sync true, the job says false"));
}

TEST_F(ResumeOnDataTest, WhatDoesNotDecideExamplesMayChange) {
  EXPECT_EQ(Refusal({"data.eval.files=train.txt", "train.epochs=30", "data.bad_line=SKIP", "data.prefetch_batches=5"}),
            "");
}

}  // namespace
}  // namespace weir
