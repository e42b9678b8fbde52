// A sparse table that servers hold densely: fetching the rows of a step gives the bits of fetching the whole, and moves
// less.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two embeddings of one variable from one table (one weighted by place, one pooled per slot), a second table of width
// 1, and a padding id that is no row. 30000 x 4 is cut over up to 14 servers; ids are in [0, 30000) but most lie in the
// first rows, so that blocks further down get none in most steps.
constexpr char kJob[] = R"(
name: "held"
data {
  train { files: "train.txt" }
  eval { files: "train.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 2 }
    slot { name: "a" output: "cat" }
    slot { name: "b" output: "cat" }
  }
  ids { shared: "cat" empty: ZERO }
  batch_size: 32
}
model {
  layer { name: "each" embedding { ids: "cat" table: "vectors" pooling: MEAN per_slot: true padding_id: -7 } }
  layer { name: "all" embedding { ids: "cat" table: "vectors" pooling: SUM } }
  layer { name: "wide" embedding { ids: "cat" table: "weights" pooling: SUM padding_id: -7 } }
  layer { name: "input" concat { input: "each" input: "all" input: "x" } }
  layer { name: "deep" fc { input: "input" size: 8 activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "wide" input: "out" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true dict_size: 30000 optimizer { adam {} } }
table { name: "weights" width: 1 is_sparse: true dict_size: 30000 optimizer { ftrl {} } }
optimizer { adagrad {} }
train { seed: 5 epochs: 1 max_steps: 12 digest_every_steps: 3 }
)";

class FetchedRowsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/fetched_rows";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    // 500 examples: streams end unevenly, so last steps have lanes without examples.
    std::ofstream out(dir_ + "/train.txt");
    for (uint64_t n = 0; n < 500; ++n) {
      const auto draw = [n](uint64_t what) { return Philox(what, n, 0).v[0]; };
      out << "1 " << draw(1) % 2 << " 2 0." << draw(2) % 100 << " -0." << draw(3) % 100;
      for (const uint64_t slot : {10u, 20u}) {
        const uint64_t count = draw(slot) % 4;  // empty slots among them
        out << " " << count;
        for (uint64_t i = 0; i < count; ++i) {
          const uint64_t pick = draw(slot + 1 + i);
          out << " " << (pick % 50 == 0 ? pick % 30000 : pick % 400);
        }
      }
      out << "\n";
    }
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir_); }

  static absl::StatusOr<InProcessResult> TryRun(std::vector<std::string> overrides, int servers, int trainers) {
    return TrainInProcess({.job_text = kJob,
                           .directory = dir_,
                           .overrides = std::move(overrides),
                           .servers = servers,
                           .trainers = trainers});
  }
  static std::vector<std::string> Fetch(const std::string& how) {
    return {"table[0].fetch=" + how, "table[1].fetch=" + how};
  }
  static InProcessResult Run(const std::string& fetch, int servers, int trainers, const std::string& more = "") {
    std::vector<std::string> overrides = Fetch(fetch);
    if (!more.empty()) overrides.push_back(more);
    absl::StatusOr<InProcessResult> result = TryRun(overrides, servers, trainers);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }

  static std::string dir_;
};
std::string FetchedRowsTest::dir_;

TEST_F(FetchedRowsTest, RowsGiveTheBitsOfTheWhole) {
  const InProcessResult whole = Run("WHOLE", 1, 1);
  ASSERT_GE(whole.digests.size(), 4u);
  EXPECT_THAT(whole.plan.fetched_rows(), IsEmpty());
  for (const auto& [servers, trainers] : std::vector<std::pair<int, int>>{{1, 1}, {2, 2}, {3, 1}, {5, 4}}) {
    const InProcessResult rows = Run("ROWS", servers, trainers);
    EXPECT_EQ(rows.plan.fetched_rows_size(), 2);
    EXPECT_EQ(rows.digests, whole.digests) << servers << " servers, " << trainers << " trainers";
    ASSERT_TRUE(rows.summary.eval.has_value());
    ASSERT_TRUE(whole.summary.eval.has_value());
    EXPECT_EQ(rows.summary.eval->Measure("loss"), whole.summary.eval->Measure("loss"));
    EXPECT_EQ(rows.summary.eval->Measure("auc"), whole.summary.eval->Measure("auc"));
  }
  for (const char* placed : {"distribute.slice_var_up=false", "distribute.split_method=BALANCED_BYTES",
                             "distribute.split_method=BALANCED_LOAD", "distribute.split_method=HASH_NAME"}) {
    EXPECT_EQ(Run("ROWS", 3, 2, placed).digests, whole.digests) << placed;
  }
}

TEST_F(FetchedRowsTest, RowsMoveFewerBytes) {
  const InProcessResult whole = Run("WHOLE", 2, 2), rows = Run("ROWS", 2, 2);
  // 12 steps of 600 kB against at most 192 rows a step.
  EXPECT_LT(rows.counters[0].bytes_received * 8, whole.counters[0].bytes_received);
  EXPECT_EQ(whole.counters[0].rows_pulled, 0);
  EXPECT_GT(rows.counters[0].rows_pulled, 0);
}

TEST_F(FetchedRowsTest, AutoTakesRowsOfATableThatNoBatchCanFill) {
  std::vector<std::string> names;
  const InProcessResult result = Run("AUTO", 1, 1);
  for (const v1::FetchedRows& rows : result.plan.fetched_rows()) names.push_back(rows.parameter());
  EXPECT_THAT(names, ElementsAre("vectors", "weights"));
}

TEST_F(FetchedRowsTest, AnIdThatIsNoRowIsNamedAlike) {
  const auto error = [](const std::string& how) {
    std::vector<std::string> overrides = Fetch(how);
    overrides.push_back("table[0].dict_size=300");
    return std::string(TryRun(overrides, 2, 1).status().message());
  };
  const std::string whole = error("WHOLE"), rows = error("ROWS");
  const std::string what = "the table has rows 0 to 299; raise its dict_size or set is_distributed";
  EXPECT_THAT(whole, HasSubstr(what));
  EXPECT_THAT(rows, HasSubstr(what));
  // From the id on, word for word.
  EXPECT_EQ(rows.substr(rows.find("id ")), whole.substr(whole.find("id ")));
}

TEST_F(FetchedRowsTest, AsyncFetchesThemToo) {
  const InProcessResult whole = Run("WHOLE", 2, 1, "distribute.sync=false");
  const InProcessResult rows = Run("ROWS", 2, 1, "distribute.sync=false");
  // One trainer in async is as reproducible as in sync.
  EXPECT_EQ(rows.digests, whole.digests);
  EXPECT_EQ(rows.summary.train_loss, whole.summary.train_loss);
}

}  // namespace
}  // namespace weir
