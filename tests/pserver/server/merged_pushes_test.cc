// Pushes that hold the gradients of several trainers, added: the bits are those of pushes that each trainer sends by
// itself, whoever is merged with whom.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/runtime/lane_tree.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "pserver/protocol/merge_gradients.h"
#include "tests/testing/core_by_hand.h"
#include "tests/testing/count_repeats.h"

namespace weir {
namespace {

constexpr int kTrainers = 6, kLanes = 13, kSteps = 3;
constexpr int64_t kMatrix = 640;  // elements of w

// Trainers that push together: the first one sends, for those behind it.
using Groups = std::vector<std::vector<int>>;

// Rows of one lane, ascending by MixId, and what is counted of each.
struct LaneRows {
  std::vector<int64_t> ids;
  std::vector<float> values, counts;
};

// Gradients are a function of step, lane and element. Their sums depend on the order; some are -0.0, to which an absent
// gradient must not be added as zero.
float Noise(int64_t step, int lane, uint64_t what) {
  const uint64_t h = MixId(what + MixId(static_cast<uint64_t>(step) * 100 + static_cast<uint64_t>(lane)));
  if (h % 5 == 0) return -0.0F;
  return (static_cast<float>(h >> 40) / 16777216.0F - 0.5F) * (h % 7 == 0 ? 1000.0F : 1.0F);
}

// Returns nothing for some lanes and steps.
std::optional<std::vector<float>> DenseOf(const std::string& name, int64_t count, int64_t step, int lane) {
  if ((step + lane) % (name == "b" ? 3 : 7) == 0) return std::nullopt;
  std::vector<float> values;
  for (int64_t k = 0; k < count; ++k) values.push_back(Noise(step, lane, StableHash(name) + static_cast<uint64_t>(k)));
  return values;
}

// Ids repeat over lanes; each lane lacks some, and some lanes have none.
LaneRows RowsOf(const std::string& name, int width, int64_t step, int lane) {
  LaneRows rows;
  if ((step + lane) % 5 == 0) return rows;
  std::map<uint64_t, int64_t> by_hash;
  for (int64_t id = 0; id < 30; ++id) {
    const uint64_t mixed = MixId(static_cast<uint64_t>(id));
    if ((mixed + static_cast<uint64_t>(lane * 3 + step)) % 4 != 0) by_hash[mixed] = id;
  }
  for (const auto& [mixed, id] : by_hash) {
    rows.ids.push_back(id);
    for (int k = 0; k < width; ++k) {
      rows.values.push_back(Noise(step, lane, StableHash(name) + static_cast<uint64_t>(id * 8 + k)));
    }
    rows.counts.insert(rows.counts.end(), {static_cast<float>(1 + lane % 3), static_cast<float>(lane % 2)});
  }
  return rows;
}

std::vector<LaneRange> NodesOf(const std::vector<int>& group) {
  std::vector<bool> owned(kLanes, false);
  for (const int trainer : group) {
    const LaneRange lanes = LanesOfTrainer(kLanes, kTrainers, trainer);
    for (int l = lanes.begin; l < lanes.begin + lanes.count; ++l) owned[static_cast<size_t>(l)] = true;
  }
  std::vector<LaneRange> nodes;
  for (int begin = 0; begin < kLanes; ++begin) {
    int end = begin;
    while (end < kLanes && owned[static_cast<size_t>(end)]) ++end;
    for (const LaneRange& node : AlignedNodes({begin, end - begin})) nodes.push_back(node);
    begin = std::max(begin, end);
  }
  return nodes;
}

// Adds what the lanes of a node have of a dense block; nothing if none has any.
std::vector<float> DenseSumOf(const std::string& name, int64_t count, int64_t step, const LaneRange& node) {
  std::vector<std::vector<float>> kept;
  std::vector<DenseRun> runs;
  kept.reserve(static_cast<size_t>(node.count));
  for (int l = node.begin; l < node.begin + node.count; ++l) {
    std::optional<std::vector<float>> values = DenseOf(name, count, step, l);
    if (!values.has_value()) continue;
    kept.push_back(*std::move(values));
    runs.push_back({{l, 1}, 0, kept.back()});
  }
  if (runs.empty()) return {};
  std::vector<float> sum(static_cast<size_t>(count));
  EXPECT_TRUE(SumDense(runs, kLanes, absl::MakeSpan(sum)).ok());
  return sum;
}

// The same for rows of a table or a block; `counted`: with shows and clicks.
Item RowSumsOf(const std::string& name, int width, bool counted, int64_t step, const LaneRange& node) {
  std::vector<LaneRows> kept;
  std::vector<RowRun> values, counts;
  kept.reserve(static_cast<size_t>(node.count));
  for (int l = node.begin; l < node.begin + node.count; ++l) {
    const LaneRows& rows = kept.emplace_back(RowsOf(name, width, step, l));
    values.push_back({{l, 1}, rows.ids, rows.values.data()});
    counts.push_back({{l, 1}, rows.ids, rows.counts.data()});
  }
  MergedRows sums, sums_of_counts;
  EXPECT_TRUE(MergeRows(values, width, 0, UINT64_MAX, &sums).ok());
  EXPECT_TRUE(MergeRows(counts, 2, 0, UINT64_MAX, &sums_of_counts).ok());
  Item item{.name = name, .lane = node.begin, .lanes = node.count, .ids = sums.ids, .width = width};
  for (const float* row : sums.grads) item.values.insert(item.values.end(), row, row + width);
  for (const float* row : sums_of_counts.grads) {
    if (counted) item.counts.insert(item.counts.end(), row, row + 2);
  }
  return item;
}

int64_t SamplesOf(int trainer, int64_t step) { return 5 + (trainer * 3 + step) % 4; }

// The push of a group in two parts: dense elements are cut between them, rows come with the second.
std::pair<PushSpec, PushSpec> PushesOf(const std::vector<int>& group, int64_t step) {
  PushSpec first{.trainer = group[0], .step = step, .part = 0};
  PushSpec last{.trainer = group[0], .step = step, .part = 1, .part_count = 2, .samples = SamplesOf(group[0], step)};
  for (size_t i = 1; i < group.size(); ++i) {
    last.merged.push_back({.trainer = group[i], .samples = SamplesOf(group[i], step)});
  }
  first.merged = last.merged;
  for (const LaneRange& node : NodesOf(group)) {
    Item item{.lane = node.begin, .lanes = node.count, .values = DenseSumOf("b", 5, step, node)};
    if (!item.values.empty()) first.items.push_back(item);
    const std::vector<float> w = DenseSumOf("w", kMatrix, step, node);
    if (!w.empty()) {
      const auto middle = w.begin() + 200;
      item.name = "w";
      item.values.assign(w.begin(), middle);
      first.items.push_back(item);
      item.values.assign(middle, w.end());
      item.begin = 200;
      last.items.push_back(item);
    }
    for (const auto& [name, width] : {std::pair("e", 3), std::pair("t", 4), std::pair("u", 1)}) {
      Item rows = RowSumsOf(name, width, /*counted=*/name == std::string("t"), step, node);
      if (!rows.ids.empty()) last.items.push_back(std::move(rows));
    }
  }
  return {first, last};
}

class MergedPushesTest : public CoreByHand {
 protected:
  struct Result {
    uint64_t values = 0, state = 0;
    int64_t samples = 0, applied = 0;
    bool operator==(const Result&) const = default;
  };
  void Begin() {
    Start({.trainers = kTrainers, .lanes = kLanes, .shows = true});
    JoinAll();
  }
  // Trains, each group pushing together. `again`: each push comes twice.
  Result Train(const Groups& groups, bool again = false) {
    Begin();
    Result result;
    for (int64_t step = 0; step < kSteps; ++step) {
      for (const std::vector<int>& group : groups) {
        const auto [first, last] = PushesOf(group, step);
        for (const PushSpec& part : {last, first}) {
          for (int time = 0; time < (again ? 2 : 1); ++time) {
            const auto reply = Push(part);
            EXPECT_TRUE(reply.ok()) << reply.status();
            EXPECT_EQ(reply.ok() && reply->duplicate(), time > 0);
          }
        }
      }
      const auto pulled = Pull(0, step + 1, "", 0);
      EXPECT_TRUE(pulled.ok() && pulled->header.ready()) << step;
      if (pulled.ok()) result.samples += pulled->header.samples();
    }
    const auto digest = Digest(0);
    EXPECT_TRUE(digest.ok()) << digest.status();
    if (!digest.ok()) return result;
    result.values = digest->values();
    result.state = digest->state();
    result.applied = core_->counters().Value("push.applied");
    return result;
  }
};

Groups Alone() {
  Groups groups;
  for (int t = 0; t < kTrainers; ++t) groups.push_back({t});
  return groups;
}

TEST_F(MergedPushesTest, WhoIsMergedWithWhomChangesNoBit) {
  const Result alone = Train(Alone());
  EXPECT_EQ(alone.applied, kSteps * kTrainers);
  const std::vector<Groups> partitions = {
      {{0, 1, 2}, {3, 4}, {5}},                            // three hosts of different sizes
      {{0, 2, 4}, {1, 3, 5}},                              // lanes that are not adjacent
      {{0, 5}, {1, 2, 3, 4}},   {{3, 0, 1}, {5, 2}, {4}},  // the lowest does not send
      {{0, 1, 2, 3, 4, 5}},
  };
  for (const Groups& groups : partitions) {
    EXPECT_EQ(Train(groups), alone) << groups.size() << " groups, the first of " << groups[0].size();
  }
}

TEST_F(MergedPushesTest, PartsThatComeAgainChangeNothingAndOneThatCountsTwiceIsSeen) {
  const Groups groups = {{0, 1, 2}, {3, 4}, {5}};
  const Result once = Train(groups);
  EXPECT_EQ(Train(groups, /*again=*/true), once);
  edit_ = [](ServerOptions* options) { options->on_repeat = CountRepeats; };
  EXPECT_NE(Train(groups, /*again=*/true).values, once.values);
}

// A verdict, samples or a request to stop that only one trainer of a group has must not be lost.
TEST_F(MergedPushesTest, EachTrainersVerdictSamplesAndStopCount) {
  for (int of = 0; of < 3; ++of) {
    for (const v1::Verdict verdict : {v1::APPLY, v1::SKIP, v1::END}) {
      Start({.trainers = 3});
      JoinAll();
      PushSpec push{.part_count = 1, .samples = 10, .merged = {{.trainer = 1, .samples = 20}}};
      PushSpec other{.trainer = 2, .part_count = 1, .samples = 40};
      (of == 0 ? push.verdict : of == 1 ? push.merged[0].verdict : other.verdict) = verdict;
      push.merged[0].stop = of == 1;
      ASSERT_TRUE(Push(push).ok() && Push(other).ok());
      const auto pulled = Pull(1, 1, "b", 5);
      ASSERT_TRUE(pulled.ok()) << pulled.status();
      EXPECT_EQ(pulled->header.samples(), 70);
      EXPECT_EQ(pulled->header.skipped(), verdict == v1::SKIP) << of;
      EXPECT_EQ(pulled->header.ended(), verdict == v1::END) << of;
      EXPECT_EQ(pulled->header.stop(), of == 1);
    }
  }
}

TEST_F(MergedPushesTest, FirstSamplesOfAllTrainersCount) {
  Start({.trainers = 3});
  JoinAll();
  auto [request, payload] = MakePush(
      {.part_count = 1, .samples = 4, .first_samples = 4, .merged = {{.trainer = 1, .samples = 1}, {.trainer = 2}}});
  request.mutable_merged(0)->set_first_samples(4);
  request.mutable_merged(1)->set_first_samples(3);
  ASSERT_TRUE(PushStatus(request, payload).ok());
  const auto pulled = Pull(0, 1, "b", 5);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->header.first_samples(), 11);
  EXPECT_TRUE(pulled->header.ended());
}

// Nothing that a caller may name ends the server.
TEST_F(MergedPushesTest, NumbersWithoutSenseAreRefused) {
  Start({.trainers = 3});
  JoinAll();
  const auto named = [&](std::vector<int> trainers) {
    auto [request, payload] = MakePush({.trainer = 1, .part_count = 1, .samples = 1});
    for (const int trainer : trainers) request.add_merged()->set_trainer(trainer);
    return PushStatus(request, payload);
  };
  for (const int trainer : {-1, 1, 3, INT32_MAX, INT32_MIN}) {
    EXPECT_STATUS(named({trainer}), kInvalidArgument,
                  absl::StrCat("trainer 1, step 0, part 0: it is merged with trainer ", trainer,
                               "; the others of trainers 0 to 2 may be named, ascending"));
  }
  EXPECT_STATUS(named({2, 0}), kInvalidArgument, "trainer 0 after trainer 2");
  EXPECT_STATUS(named({0, 0}), kInvalidArgument, "trainer 0 after trainer 0");
  EXPECT_STATUS(named(std::vector<int>(100000, 0)), kInvalidArgument, "trainer 0 after trainer 0");
  EXPECT_STATUS(named({0}), kFailedPrecondition,
                "merged with trainer 0: the lease of trainer 0 has passed to trainer:0");
  EXPECT_EQ(core_->Version(), 0);
  EXPECT_TRUE(core_->JobStatus().ok());
}

}  // namespace
}  // namespace weir
