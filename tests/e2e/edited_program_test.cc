// The program is what runs: a change of one operator in a program's text changes the bits that training ends with, and
// nothing else does.
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = R"(
name: "edited"
data { train { files: "edited.tsv" } criteo { integers: 4 categoricals: 3 } batch_size: 32 }
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "deep" fc { input: "input" size: 8 activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true }
optimizer { sgd { learning_rate: 0.1 } }
train { max_steps: 6 digest_every_steps: 3 }
)";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "no '" << from << "' in\n" << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// A program from its edited text, verified as a process that reads it from a file would.
void Edit(v1::ProgramDesc* program, const std::function<std::string(std::string)>& edit) {
  const auto parsed = ParseProgramText(edit(ProgramText(*program)), "edited");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_TRUE(VerifyProgram(*parsed).ok()) << VerifyProgram(*parsed);
  *program = *parsed;
}

class EditedProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/edited";
    std::filesystem::create_directories(dir_);
    std::ofstream out(dir_ + "/edited.tsv");
    for (int i = 0; i < 400; ++i) {
      out << Philox(1, i, 0).v[0] % 2;
      for (int j = 0; j < 4; ++j) out << "\t" << Philox(2, i, j).v[0] % 5;
      for (int f = 0; f < 3; ++f) out << "\t" << std::hex << Philox(3, i, f).v[0] % 20 << std::dec;
      out << "\n";
    }
  }

  std::vector<std::string> Digests(const std::function<void(int, Programs*)>& edit) {
    const auto result =
        TrainInProcess({.job_text = kJob, .directory = dir_, .servers = 2, .trainers = 2, .edit = edit});
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    EXPECT_FALSE(result->digests.empty());
    return result->digests;
  }

  std::string dir_;
};

TEST_F(EditedProgramTest, ProgramsThatWentThroughTextGiveTheSameBits) {
  const auto same = [](std::string text) { return text; };
  EXPECT_EQ(Digests([&](int, Programs* programs) {
              Edit(&programs->main, same);
              Edit(&programs->startup, same);
            }),
            Digests({}));
}

TEST_F(EditedProgramTest, MomentumInOneOptimizeBlockGivesOtherBits) {
  int edited = 0;
  const auto digests = Digests([&](int, Programs* programs) {
    if (ProgramText(programs->main).find("sgd(Param=deep.w,") == std::string::npos) return;
    ++edited;
    const std::string var = "  var deep.w.velocity [16, 8] persistable: true initializer { constant { value: 0 } }\n  ";
    Edit(&programs->main, [&](std::string text) {
      text =
          Replaced(std::move(text), "ParamOut=deep.w <- sgd(Param=deep.w,",
                   "ParamOut=deep.w, VelocityOut=deep.w.velocity <- momentum(Velocity=deep.w.velocity, Param=deep.w,");
      return Replaced(std::move(text), "  listen_and_serv(", var + "listen_and_serv(");
    });
    Edit(&programs->startup, [&](std::string text) {
      return Replaced(std::move(text), "  Out=learning_rate <- ",
                      var + "Out=deep.w.velocity <- fill_constant() shape=[16, 8] @INIT\n  Out=learning_rate <- ");
    });
  });
  EXPECT_EQ(edited, 1);
  EXPECT_NE(digests, Digests({}));
}

TEST_F(EditedProgramTest, AnotherActivationGivesOtherBits) {
  const auto digests = Digests([](int server, Programs* programs) {
    if (server >= 0) return;
    Edit(&programs->main, [](std::string text) {
      text = Replaced(std::move(text), "activation=\"relu\"", "activation=\"tanh\"");
      return Replaced(std::move(text), "activation=\"relu\"", "activation=\"tanh\"");  // its gradient
    });
  });
  EXPECT_NE(digests, Digests({}));
}

// The trainers' main program with one edit; the status that training ends with.
class WrongTrainerProgramTest : public EditedProgramTest {
 protected:
  std::string Message(v1::ProgramDesc Programs::*which, const std::function<std::string(std::string)>& edit) {
    const auto result =
        TrainInProcess({.job_text = kJob, .directory = dir_, .edit = [&](int server, Programs* programs) {
                          if (server < 0) Edit(&(programs->*which), edit);
                        }});
    return std::string(result.status().message());
  }
  std::string Message(const std::string& from, const std::string& to) {
    return Message(&Programs::main, [&](std::string text) { return Replaced(std::move(text), from, to); });
  }
};

TEST_F(WrongTrainerProgramTest, ALossWithoutPredictionOrLabelIsRefused) {
  EXPECT_THAT(Message(" label: \"label\"", ""), HasSubstr("needs var, prediction and label"));
  EXPECT_THAT(Message(" prediction: \"sigmoid_cross_entropy.prediction\"", ""),
              HasSubstr("needs var, prediction and label"));
  // Made in backward only: evaluation would not have it.
  EXPECT_THAT(Message(" label: \"label\"", " label: \"out@GRAD\""), HasSubstr("'out@GRAD' is none"));
}

TEST_F(WrongTrainerProgramTest, AParameterThatNobodyReceivesIsNamed) {
  EXPECT_THAT(Message(&Programs::startup,
                      [](std::string text) {
                        const size_t at = text.find("  Out=deep.b <- recv(");
                        EXPECT_NE(at, std::string::npos) << text;
                        return text.erase(at, text.find('\n', at) + 1 - at);
                      }),
              HasSubstr("'deep.b' has no value after the startup program"));
}

TEST_F(WrongTrainerProgramTest, DataThatLanesWouldShareIsRefused) {
  EXPECT_THAT(Message("var dense dense float32 [-1, 4] stop_gradient: true",
                      "var dense dense float32 [-1, 4] persistable: true"),
              HasSubstr("'dense' of the data is one for all lanes"));
}

// A scalar loss trains like the loss that it is the mean of: the same bits, and the same mean is shown.
TEST_F(EditedProgramTest, TheMeanOfALossTrainsLikeTheLoss) {
  const std::string model = R"(
block 0 {
  var dense [-1, 4] stop_gradient: true
  var label [-1, 1] stop_gradient: true
  var w [4, 1] persistable: true is_parameter: true initializer { uniform { min: -0.5 max: 0.5 } }
  var out [-1, 1]
  var guess [-1, 1]
  var each [-1, 1]
  var cost []
  Out=out <- mul(X=dense, Y=w)
  Out=guess <- sigmoid(X=out)
  Out=each <- sigmoid_cross_entropy_with_logits(X=out, Label=label) @LOSS
  Out=cost <- mean(X=each) @LOSS
})";
  std::vector<InProcessResult> results;
  for (const char* loss : {"each", "cost"}) {
    std::ofstream(dir_ + "/given.program") << "weir program 1\nloss name: \"cost\" var: \"" << loss
                                           << "\" prediction: \"guess\" label: \"label\"" << model;
    auto result = TrainInProcess({.job_text = R"(
name: "mean"
data { train { files: "edited.tsv" } eval { files: "edited.tsv" } criteo { integers: 4 categoricals: 3 }
  batch_size: 32 }
program: "given.program"
optimizer { sgd { learning_rate: 0.1 } }
train { digest_every_steps: 3 }
)",
                                  .directory = dir_,
                                  .servers = 2,
                                  .trainers = 2});
    ASSERT_TRUE(result.ok()) << result.status();
    results.push_back(*std::move(result));
  }
  EXPECT_FALSE(results[0].digests.empty());
  EXPECT_EQ(results[0].digests, results[1].digests);
  EXPECT_GT(results[0].summary.train_loss, 0.1);
  EXPECT_NEAR(results[0].summary.train_loss, results[1].summary.train_loss, 1e-6);
  ASSERT_TRUE(results[1].summary.eval.has_value());
  EXPECT_EQ(results[1].summary.eval->samples, 400);
  EXPECT_NEAR(results[0].summary.eval->Measure("loss"), results[1].summary.eval->Measure("loss"), 1e-6);
  EXPECT_EQ(results[0].summary.eval->Measure("auc"), results[1].summary.eval->Measure("auc"));
}

}  // namespace
}  // namespace weir
