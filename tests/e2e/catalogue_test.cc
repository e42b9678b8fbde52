// Metrics over all items of a catalogue on real runs: the figure of a metric of groups whose lines name every item, and
// the same on every cluster.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kUsers = 40, kFirst = 100, kItems = 60;

constexpr char kJob[] = R"(
name: "catalogue"
data {
  train { files: "chosen.txt" }
  eval { files: "test.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "user" }
    slot { name: "item" }
    slot { name: "seen" }
    slot { name: "request" }
  }
  batch_size: 64
}
model {
  layer { name: "users" embedding { ids: "user" table: "user_vectors" pooling: SUM } }
  layer { name: "items" embedding { ids: "item" table: "item_vectors" pooling: SUM } }
  layer { name: "query" fc { input: "users" size: 9 } }
  layer { name: "vector" fc { input: "items" size: 9 activation: TANH } }
  layer { name: "products" mul { input: "query" input: "vector" } }
  layer { name: "score" reduce_sum { input: "products" axis: 1 keep_dim: true } }
  loss { in_batch_softmax { query: "query" item: "vector" item_id: "item" label: "label" } }
  loss { weight: 0 name: "ranked" sigmoid_cross_entropy { logits: "score" label: "label" } }
}
table { name: "user_vectors" width: 8 is_sparse: true is_distributed: true }
table { name: "item_vectors" width: 8 is_sparse: true is_distributed: true }
optimizer { adam { learning_rate: 0.02 } }
train { epochs: 4 seed: 3 lanes: 4 }
)";

constexpr char kCatalogue[] =
    "catalogue { query: \"query\" item: \"vector\" id: \"item\" first: 100 items: 60 without: \"seen\" }";

// What a user chooses, and the three items that he has seen.
struct Choice {
  explicit Choice(int64_t n) {
    const PhiloxBlock random = Philox(17, static_cast<uint64_t>(n), 0);
    user = random.v[0] % kUsers;
    // Half of the choices are of a few items near the user's own.
    item = kFirst + (random.v[1] % 2 == 0 ? user + random.v[2] % 5 : random.v[2] % kItems);
    for (int64_t i = 0; i < 3; ++i) seen.push_back(kFirst + (item + 7 * i + user) % kItems);
    // Neither an item twice nor one that does not exist has an effect.
    seen.push_back(seen.back());
    seen.push_back(5);
  }
  std::string Line(int label, int64_t of, int64_t request) const {
    return absl::StrCat("1 ", label, " 1 ", user, " 1 ", of, " 5 ", absl::StrJoin(seen, " "), " 1 ", request, "\n");
  }
  bool Saw(int64_t other) const { return std::find(seen.begin(), seen.end(), other) != seen.end(); }

  int64_t user = 0, item = 0;
  std::vector<int64_t> seen;
};

class CatalogueTest : public SlotJobTest {
 protected:
  static void SetUpTestSuite() {
    SlotJobTest::SetUpTestSuite();
    std::ofstream train(Path("chosen.txt")), test(Path("test.txt")), grouped(Path("grouped.txt"));
    for (int64_t n = 0; n < 2000; ++n) train << Choice(n).Line(1, Choice(n).item, n);
    for (int64_t n = 2000; n < 2200; ++n) {
      const Choice choice(n);
      test << choice.Line(1, choice.item, n);
      // What was not chosen is no query.
      test << choice.Line(0, kFirst + n % kItems, n);
      for (int64_t item = kFirst; item < kFirst + kItems; ++item) {
        if (item == choice.item || !choice.Saw(item)) grouped << choice.Line(item == choice.item, item, n);
      }
    }
  }
  static std::map<std::string, double> Figures(const InProcessResult& result) {
    return SlotJobTest::Figures(EvalLines(result).back());
  }
  static std::string Metrics(const std::string& over) {
    return absl::StrCat("metric { recall { k: 5 ", over, " } loss: \"ranked\" }\n metric { mrr { k: 0 ", over,
                        " } loss: \"ranked\" }\n metric { ndcg { k: 20 ", over, " } loss: \"ranked\" }\n");
  }
};

TEST_F(CatalogueTest, FiguresAreThoseOfGroupsThatNameEveryItem) {
  std::map<std::string, double> all = Figures(Run({.job_text = kJob + Metrics(kCatalogue)}));
  std::map<std::string, double> groups =
      Figures(Run({.job_text = kJob + Metrics("key: \"request\""), .overrides = {"data.eval.files=\"grouped.txt\""}}));
  for (const char* const name : {"recall@5", "mrr", "ndcg@20"}) {
    ASSERT_EQ(all.count(name), 1u) << name;
    // Products in another order of sums may put two items that are nearly equal the other way round.
    EXPECT_NEAR(all[name], groups[name], 0.002) << name;
  }
  // Of 60 items 5 would be 0.083.
  EXPECT_GT(all["recall@5"], 0.3);
}

TEST_F(CatalogueTest, FiguresAreTheSameOnEveryCluster) {
  const std::string metrics =
      Metrics(kCatalogue) + absl::StrCat("metric { hit_rate { k: 1 ", kCatalogue, " } by: \"user\" most_values: 3 }\n");
  const InProcessRun one = {.job_text = kJob + metrics, .overrides = {"train.eval_every_steps=50"}};
  const std::vector<std::string> lines = EvalLines(Run(one));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines.back(), HasSubstr(" hit_rate@1[user="));
  const auto expect_same = [&](const char* what, InProcessRun other) {
    other.job_text = one.job_text;
    other.overrides.insert(other.overrides.begin(), one.overrides.begin(), one.overrides.end());
    EXPECT_EQ(EvalLines(Run(std::move(other))), lines) << what;
  };
  expect_same("2 servers, 3 trainers", {.servers = 2, .trainers = 3});
  expect_same("threads", {.threads = 3});
  expect_same("rows ahead", {.overrides = {"distribute.prefetch_rows=true"}, .servers = 2, .trainers = 2});
  expect_same("all-reduce of 4", {.overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 4});
  expect_same("shared buffers", {.overrides = {"distribute.memory_optimize=true"}, .trainers = 2});
}

TEST_F(CatalogueTest, AVocabularyIsACatalogueAndALossWithoutALabelHasQueries) {
  const std::string job = absl::StrReplaceAll(
      kJob,
      {{"  batch_size: 64\n",
        "  derived { name: \"word\" vocabulary { of: \"item\" learned {} } }\n  batch_size: 64\n"},
       {"ids: \"item\"", "ids: \"word\""},
       {"item_id: \"item\" label: \"label\"", "item_id: \"word\""},
       {"  loss { weight: 0 name: \"ranked\" sigmoid_cross_entropy { logits: \"score\" label: \"label\" } }\n", ""},
       {"  layer { name: \"products\" mul { input: \"query\" input: \"vector\" } }\n", ""},
       {"  layer { name: \"score\" reduce_sum { input: \"products\" axis: 1 keep_dim: true } }\n", ""}});
  const std::string metric =
      "metric { recall { k: 5 catalogue { query: \"query\" item: \"vector\" id: \"word\" } } }\n";
  const std::vector<std::string> stop = {"train.eval_every_steps=20", "train.early_stop.metric=\"recall@5\"",
                                         "train.early_stop.patience=2"};
  const InProcessResult one = Run({.job_text = job + metric, .overrides = stop});
  EXPECT_GT(Figures(one)["recall@5"], 0.15);
  const InProcessResult two = Run({.job_text = job + metric, .overrides = stop, .servers = 2, .trainers = 2});
  EXPECT_EQ(EvalLines(two), EvalLines(one));
}

TEST_F(CatalogueTest, AnItemThatIsNoCandidateIsNotFound) {
  const auto recall = [&](const char* range) {
    const std::string over = absl::StrReplaceAll(kCatalogue, {{"first: 100 items: 60 without: \"seen\"", range}});
    return Figures(Run({.job_text = absl::StrCat(kJob, "metric { recall { k: 1000 ", over, " } }\n")}))["recall@1000"];
  };
  EXPECT_EQ(recall("first: 100 items: 60"), 1);
  int64_t found = 0;
  for (int64_t n = 2000; n < 2200; ++n) found += Choice(n).item < kFirst + 20;
  EXPECT_NEAR(recall("first: 100 items: 20"), static_cast<double>(found) / 200, 1e-4);
}

}  // namespace
}  // namespace weir
