// Programs of trainers that update by themselves between averages (distribute.local_sgd).
#include <string>
#include <vector>

#include "framework/base/atomic_file.h"
#include "framework/graph/op_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/verify/verify_plan.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kLocal = {"distribute.dense=ALL_REDUCE", "distribute.reproducible=false",
                                         "distribute.local_sgd={every_steps: 4}"};

std::string TextWith(std::vector<std::string> overrides) {
  return ProgramText(TranspiledOf(JobOf(kDeepFm, overrides)).trainer().main);
}

TEST(LocalSgdTest, GradientsStayWithTheirTrainer) {
  const std::string text = TextWith(kLocal);
  EXPECT_THAT(text, AllOf(HasSubstr("local_gradient("), HasSubstr("local_steps: 4"), Not(HasSubstr("all_reduce(")),
                          Not(HasSubstr("bucket="))));
  // Rows of distributed tables go to the servers.
  EXPECT_THAT(text, HasSubstr("send("));
  EXPECT_THAT(TextWith({kLocal[0]}), AllOf(HasSubstr("all_reduce("), Not(HasSubstr("local_"))));
}

TEST(LocalSgdTest, TheDefaultIsAnAverageEveryEightSteps) {
  EXPECT_THAT(TextWith({kLocal[0], kLocal[1], "distribute.local_sgd={}"}), HasSubstr("local_steps: 8"));
}

TEST(LocalSgdTest, ParametersHaveTheirGradientsOnce) {
  Programs trainer = TranspiledOf(JobOf(kDeepFm, kLocal)).trainer();
  ASSERT_TRUE(VerifyTrainer(trainer).ok());
  google::protobuf::RepeatedPtrField<v1::OpDesc> ops;
  std::string left_out;
  for (const v1::OpDesc& op : trainer.main.blocks(0).ops()) {
    if (op.type() == "local_gradient" && left_out.empty()) {
      left_out = FindAttr(op, "block")->s();
      continue;
    }
    *ops.Add() = op;
  }
  trainer.main.mutable_blocks(0)->mutable_ops()->Swap(&ops);
  EXPECT_THAT(std::string(VerifyTrainer(trainer).message()),
              AllOf(HasSubstr("sent_once"), HasSubstr("'" + left_out + "'")));
}

TEST(LocalSgdTest, TheModeAndTheGradientsBelongTogether) {
  Programs trainer = TranspiledOf(JobOf(kDeepFm, kLocal)).trainer();
  trainer.main.mutable_mode()->mutable_all_reduce()->clear_local_steps();
  EXPECT_THAT(std::string(VerifyTrainer(trainer).message()),
              AllOf(HasSubstr("local_gradient of '"), HasSubstr("whose mode has local_steps 0")));
  trainer = TranspiledOf(JobOf(kDeepFm, {kLocal[0]})).trainer();
  trainer.main.mutable_mode()->mutable_all_reduce()->set_local_steps(3);
  EXPECT_THAT(std::string(VerifyTrainer(trainer).message()),
              AllOf(HasSubstr("all_reduce of '"), HasSubstr("whose mode has local_steps 3")));
}

TEST(LocalSgdTest, AProgramOfAnotherIntervalIsRefused) {
  const std::string file = ::testing::TempDir() + "/local.program";
  const Job four = JobOf(kDeepFm, kLocal);
  const auto written = WriteFileAtomically(file, ProgramText(TranspiledOf(four).trainer().main));
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_TRUE(TrainerPrograms(four, file, "").ok()) << TrainerPrograms(four, file, "").status();
  const Job five = JobOf(kDeepFm, {kLocal[0], kLocal[1], "distribute.local_sgd={every_steps: 5}"});
  EXPECT_FALSE(TrainerPrograms(five, file, "").ok());
}

TEST(LocalSgdTest, JobsThatContradictAreRefusedByName) {
  struct Case {
    std::vector<std::string> overrides;
    const char* message;
  };
  for (const Case& c : std::vector<Case>{
           {{kLocal[0], kLocal[2]}, "distribute.local_sgd needs distribute.reproducible: false"},
           {{kLocal[1], kLocal[2]}, "says nothing with dense: SERVERS"},
           {{kLocal[0], kLocal[1], "distribute.local_sgd={every_steps: 0}"},
            "distribute.local_sgd.every_steps must be at least 1, got 0"},
           {{kLocal[0], kLocal[1], "distribute.local_sgd={every_steps: -3}"}, "must be at least 1, got -3"},
           {{kLocal[0], kLocal[1], kLocal[2], "distribute.all_reduce={bucket_bytes: 4096}"},
            "distribute.all_reduce says nothing with local_sgd"},
           {{kLocal[0], kLocal[1], kLocal[2], "distribute.sync=false"}, "contradicts distribute.sync: false"},
           {{kLocal[0], kLocal[1], kLocal[2], "distribute.update=SHARDED"}, "update"}}) {
    const absl::StatusOr<Job> job = ParseJob(kDeepFm, "job.textproto", c.overrides);
    ASSERT_FALSE(job.ok()) << c.message;
    EXPECT_THAT(std::string(job.status().message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace weir
