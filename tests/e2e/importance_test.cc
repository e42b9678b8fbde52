// Importance of inputs: the same figures on every cluster, those of files that are altered by hand, and of the whole
// input whatever order it has.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr char kMetric[] = "\nmetric { gauc { key: \"b\" } }\n";

std::string Job() {
  return absl::StrCat(absl::StrReplaceAll(kSlotJob, {{" output: \"cat\"", ""},
                                                     {"shared: \"cat\"", "shared: \"b\""},
                                                     {"ids: \"cat\"", "ids: \"a\" ids: \"b\""}}),
                      kMetric);
}

class ImportanceTest : public SlotJobTest {
 protected:
  static void SetUpTestSuite() {
    SlotJobTest::SetUpTestSuite();
    const InProcessResult trained = Run({.job_text = Job(), .overrides = {CheckpointIn("model"), "train.epochs=3"}});
    ASSERT_GT(trained.summary.steps, 0);
  }

  static absl::StatusOr<v1::Importance> Try(ImportanceOptions options, InProcessRun run = {}) {
    options.scoring.checkpoint = Path("model");
    if (run.job_text.empty()) run.job_text = Job();
    run.directory = dir_;
    return ImportanceInProcess(run, options);
  }
  static v1::Importance Of(const ImportanceOptions& options, InProcessRun run = {}) {
    auto found = Try(options, std::move(run));
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *found : v1::Importance();
  }
  static v1::Importance::Lost Lost(const v1::Importance& found, const std::string& part,
                                   const std::string& figure = "loss") {
    for (const auto& each : found.part()) {
      if (each.name() != part) continue;
      for (const auto& lost : each.lost()) {
        if (lost.figure() == figure) return lost;
      }
    }
    ADD_FAILURE() << "no " << figure << " of " << part << " in " << found.ShortDebugString();
    return {};
  }
  static double FigureOf(const v1::Importance& found, const std::string& name) {
    for (const auto& figure : found.figure()) {
      if (figure.name() == name) return figure.value();
    }
    ADD_FAILURE() << "no " << name << " in " << found.ShortDebugString();
    return 0;
  }
  // Writes eval.txt anew, line by line, in an order; an alteration that returns "" leaves a line out.
  static void WriteEval(const std::string& name, std::vector<int64_t> examples,
                        const std::function<std::string(const std::string&)>& alter = nullptr) {
    std::ofstream out(Path(name));
    for (const int64_t example : examples) out << (alter ? alter(SlotLine(example)) : SlotLine(example)) << "\n";
  }
  static std::vector<int64_t> EvalExamples() {
    std::vector<int64_t> examples;
    for (int64_t n = 2000; n < 3000; ++n) examples.push_back(n);
    return examples;
  }
  static ImportanceOptions Blank(const std::string& input = "") {
    return {.scoring = {.input = input}, .alteration = v1::Importance::BLANK, .repeats = 1};
  }
};

TEST_F(ImportanceTest, FiguresAreTheSameOnEveryClusterAndInSeveralPasses) {
  for (const ImportanceOptions& options : {ImportanceOptions{.repeats = 2}, Blank()}) {
    const v1::Importance one = Of(options);
    EXPECT_EQ(one.examples(), 1000);
    EXPECT_EQ(one.part_size(), 6) << one.ShortDebugString();
    EXPECT_EQ(one.part(0).lost().size(), 3u) << "loss, auc and gauc: " << one.ShortDebugString();
    const std::vector<std::tuple<int, int, std::string>> clusters = {
        {2, 2, ""}, {1, 3, ""}, {0, 2, "distribute.dense=ALL_REDUCE"}, {2, 2, "distribute.sync=false"}};
    for (const auto& [servers, trainers, setting] : clusters) {
      InProcessRun run{.servers = servers, .trainers = trainers};
      if (!setting.empty()) run.overrides = {setting};
      EXPECT_EQ(Of(options, run).ShortDebugString(), one.ShortDebugString()) << servers << " " << trainers;
    }
    ImportanceOptions little = options;
    little.memory = 1;
    EXPECT_EQ(Of(little).ShortDebugString(), one.ShortDebugString()) << "one model at a time";
  }
}

TEST_F(ImportanceTest, InputsThatLabelsDependOnAreWorthTheMost) {
  const v1::Importance found = Of({});
  const double a = Lost(found, "a").mean(), b = Lost(found, "b").mean(), x = Lost(found, "x[0]").mean();
  for (const char* const none : {"x[1]", "x[2]", "x[3]"}) {
    const double lost = Lost(found, none).mean();
    EXPECT_LT(std::fabs(lost), 0.2 * x) << none;
    EXPECT_LT(lost, std::min({a, b, x})) << none;
  }
  EXPECT_GT(a, 0.02);
  EXPECT_GT(Lost(found, "a", "auc").mean(), 0.02);
  EXPECT_GT(Lost(found, "a").error(), 0);
  EXPECT_LT(Lost(found, "a").error(), 0.3 * a);
  EXPECT_THAT(ImportanceText(found), HasSubstr("importance of 6 parts, each shuffled 5 times, of 1000 examples"));
}

TEST_F(ImportanceTest, ABlankSlotIsTheFileWithoutIt) {
  // label, x and the slots a and b, each with its number of values.
  WriteEval("no_a.txt", EvalExamples(), [](const std::string& line) {
    std::vector<std::string> words = absl::StrSplit(line, ' ');
    words.erase(words.begin() + 8);
    words[7] = "0";
    return absl::StrJoin(words, " ");
  });
  WriteEval("no_x2.txt", EvalExamples(), [](const std::string& line) {
    std::vector<std::string> words = absl::StrSplit(line, ' ');
    words[5] = "0";
    return absl::StrJoin(words, " ");
  });
  const v1::Importance found = Of(Blank());
  for (const auto& [part, file] : {std::pair("a", "no_a.txt"), std::pair("x[2]", "no_x2.txt")}) {
    ImportanceOptions options = Blank(Path(file));
    options.parts = {"b"};
    const v1::Importance altered = Of(options);
    for (const char* const figure : {"loss", "auc", "gauc"}) {
      const double sign = figure == std::string("loss") ? 1 : -1;
      EXPECT_EQ(sign * (FigureOf(altered, figure) - FigureOf(found, figure)), Lost(found, part, figure).mean())
          << part << " " << figure;
    }
    EXPECT_FALSE(Lost(found, part).has_error());
  }
}

TEST_F(ImportanceTest, ASortedFileLosesAsMuchAsAnother) {
  std::vector<int64_t> examples = EvalExamples();
  std::stable_sort(examples.begin(), examples.end(), [](int64_t x, int64_t y) {
    const std::vector<std::string> left = absl::StrSplit(SlotLine(x), ' '), right = absl::StrSplit(SlotLine(y), ' ');
    return std::stoi(left[8]) < std::stoi(right[8]);
  });
  WriteEval("sorted.txt", examples);
  const v1::Importance found = Of({}), sorted = Of({.scoring = {.input = Path("sorted.txt")}});
  EXPECT_EQ(found.examples(), sorted.examples());
  const auto x = Lost(found, "a"), y = Lost(sorted, "a");
  EXPECT_NEAR(x.mean(), y.mean(), 5 * std::hypot(x.error(), y.error()));
  EXPECT_GT(y.mean(), 0.02);
}

TEST_F(ImportanceTest, SeveralInputsLoseTogether) {
  const v1::Importance found = Of({.parts = {"a.*"}, .together = {"a+b"}});
  ASSERT_EQ(found.part_size(), 1);
  EXPECT_EQ(found.part(0).name(), "a+b");
  const v1::Importance alone = Of({});
  EXPECT_GT(Lost(found, "a+b").mean(), Lost(alone, "a").mean());
}

TEST_F(ImportanceTest, WhatWouldBeNoImportanceIsRefused) {
  EXPECT_THAT(Try({.alteration = v1::Importance::BLANK, .repeats = 2}).status().message(),
              HasSubstr("--repeats goes with --alter=shuffle"));
  EXPECT_THAT(Try({.repeats = 0}).status().message(), HasSubstr("--repeats is 0"));
  EXPECT_THAT(Try({.parts = {"c"}}).status().message(), HasSubstr("matches nothing"));
  const auto other = Try({}, {.job_text = absl::StrReplaceAll(Job(), {{"RELU", "SIGMOID"}})});
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition) << other.status();
  WriteSlotLines(Path("unlabelled.txt"), 2000, 2010, /*missing_labels=*/true);
  EXPECT_THAT(Try({.scoring = {.input = Path("unlabelled.txt")}}).status().message(),
              HasSubstr("unlabelled.txt:2: 'label' is missing"));
}

}  // namespace
}  // namespace weir
