// One trainer's copy with servers that are a table of numbers: what it asks for, what it sends, and its values
// afterwards.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/channels/geo_channel.h"
#include "tests/testing/jobs/slot_job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"

namespace weir {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Row `id` of a table is (id, id, ...) plus the sum of its changes; an element of a block is the sum of the changes.
class Servers : public ParamChannel {
 public:
  absl::Status BeginStep(int64_t, bool read_only) override {
    read_only_ = read_only;
    return absl::OkStatus();
  }
  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    for (const TableRows& rows : tables) {
      std::vector<int64_t>& asked = asked_[rows.table];
      asked.insert(asked.end(), rows.ids->begin(), rows.ids->end());
      for (size_t r = 0; r < rows.ids->size(); ++r) {
        const float value = Value(rows.table, (*rows.ids)[r]);
        for (int j = 0; j < rows.width; ++j)
          rows.rows[r * static_cast<size_t>(rows.width) + static_cast<size_t>(j)] = value;
      }
    }
    return absl::OkStatus();
  }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override {
    for (const LaneTensor& lane : lanes) sent_[block.name][0] += lane.value->data<float>()[0];
    return absl::OkStatus();
  }
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override {
    EXPECT_FALSE(read_only_);
    for (const LaneRows& lane : lanes) {
      const int64_t rows = static_cast<int64_t>(lane.value->ids.size());
      EXPECT_EQ(lane.value->values.size(), rows * width) << block.name;
      for (size_t r = 0; r < lane.value->ids.size(); ++r) {
        const float moved = lane.value->values.data<float>()[r * static_cast<size_t>(width)];
        sent_[block.name][lane.value->ids[r]] += moved;
      }
    }
    return absl::OkStatus();
  }
  absl::Status FinishSends(int64_t, v1::Verdict) override {
    for (const auto& [table, rows] : sent_) {
      for (const auto& [id, moved] : rows) moved_[table][id] += moved;
    }
    return absl::OkStatus();
  }
  absl::Status Receive(const BlockRef& block, Tensor* out) override {
    wanted_.emplace_back(block.name, out);
    return absl::OkStatus();
  }
  absl::Status FinishReceives(StepOutcome*) override {
    for (const auto& [name, out] : wanted_) std::fill_n(out->data<float>(), out->size(), moved_[name][0]);
    wanted_.clear();
    return absl::OkStatus();
  }

  float Value(const std::string& table, int64_t id) { return static_cast<float>(id) + moved_[table][id]; }
  // Applies a change of another trainer.
  void Move(const std::string& table, int64_t id, float by) { moved_[table][id] += by; }
  std::vector<int64_t> Asked(const std::string& table) { return std::exchange(asked_[table], {}); }
  std::map<int64_t, float> Sent(const std::string& table) { return std::exchange(sent_[table], {}); }

 private:
  bool read_only_ = false;
  std::vector<std::pair<std::string, Tensor*>> wanted_;
  std::map<std::string, std::vector<int64_t>> asked_;
  std::map<std::string, std::map<int64_t, float>> sent_, moved_;
};

class GeoChannelTest : public ::testing::Test {
 protected:
  void SetUp() override { Create(kSlotJob); }

  void Create(const std::string& text) {
    const absl::StatusOr<Job> job = ParseJob(
        text, "job.textproto",
        {"distribute.sync=false", "distribute.geo.every_steps=2", "distribute.trainers=2", "distribute.servers=1"});
    ASSERT_TRUE(job.ok()) << job.status();
    absl::StatusOr<Programs> programs = TrainerPrograms(*job, "", "");
    ASSERT_TRUE(programs.ok()) << programs.status();
    auto geo = GeoChannel::Create({.main = std::move(programs->main),
                                   .startup = std::move(programs->startup),
                                   .servers = &servers_,
                                   .pool = &pool_});
    ASSERT_TRUE(geo.ok()) << geo.status();
    geo_ = *std::move(geo);
  }

  // Returns the first numbers of the rows of `vectors`. Also pulls `weights` by the same ids and 7.
  std::vector<float> Pull(std::vector<int64_t> ids) {
    std::vector<int64_t> of_weights = ids;
    of_weights.push_back(7);
    std::vector<float> vectors(ids.size() * 4, -1), weights(of_weights.size(), -1), first;
    const std::vector<ParamChannel::TableRows> tables = {
        {.table = "vectors", .width = 4, .ids = &ids, .rows = vectors.data()},
        {.table = "weights", .width = 1, .ids = &of_weights, .rows = weights.data()}};
    const absl::Status status = geo_->PullRows(tables);
    EXPECT_TRUE(status.ok()) << status;
    for (size_t r = 0; r < ids.size(); ++r) {
      for (size_t j = 1; j < 4; ++j) EXPECT_EQ(vectors[r * 4 + j], vectors[r * 4]) << ids[r];
      first.push_back(vectors[r * 4]);
    }
    EXPECT_EQ(weights.back(), 7);
    return first;
  }

  // Runs a step whose gradient is 1 in rows `ids` of `vectors`.
  void Step(int64_t step, const std::vector<int64_t>& ids) {
    ASSERT_TRUE(geo_->BeginStep(step, false).ok());
    Pull(ids);
    SelectedRows rows{.ids = ids, .merged = true, .present = true};
    rows.values.Resize(v1::FLOAT32, {static_cast<int64_t>(ids.size()), 4});
    std::fill_n(rows.values.data<float>(), rows.values.size(), 1.f);
    const ParamChannel::LaneRows lane{.lane = 0, .value = &rows};
    absl::Status status = geo_->SendRows({.name = "vectors", .server = -1}, 4, {&lane, 1});
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(geo_->FinishSends(1, v1::APPLY).ok());
    status = geo_->FinishReceives(nullptr);
    ASSERT_TRUE(status.ok()) << status;
  }

  ThreadPool pool_{"test", 1};
  Servers servers_;
  std::unique_ptr<GeoChannel> geo_;
};

TEST_F(GeoChannelTest, AnEvaluationReadsTheServersRowsButItsOwn) {
  Step(0, {11, 12});
  const float own = Pull({11})[0];
  EXPECT_LT(own, 11) << "a gradient of 1 has taken effect in the copy";
  servers_.Asked("vectors");
  servers_.Asked("weights");
  servers_.Move("vectors", 12, 100);  // not seen before an exchange
  servers_.Move("vectors", 20, 100);
  ASSERT_TRUE(geo_->BeginStep(1, true).ok());
  const float other = Pull({12})[0];
  EXPECT_LT(other, 12);
  EXPECT_THAT(servers_.Asked("vectors"), IsEmpty());
  EXPECT_THAT(servers_.Asked("weights"), IsEmpty());
  EXPECT_THAT(Pull({20, 11, 21, 12, 22}), ElementsAre(120, own, 21, other, 22));
  EXPECT_THAT(servers_.Asked("vectors"), ElementsAre(20, 21, 22));
  EXPECT_THAT(servers_.Asked("weights"), ElementsAre(20, 21, 22));
  // An evaluation keeps none of its rows.
  EXPECT_THAT(Pull({20, 11}), ElementsAre(120, own));
  EXPECT_THAT(servers_.Asked("vectors"), ElementsAre(20));
}

TEST_F(GeoChannelTest, AnExchangeSendsItsPartOfWhatHasChangedAndHearsOfTheOthers) {
  Step(0, {11, 12, 13});
  EXPECT_THAT(servers_.Sent("vectors"), IsEmpty());
  ASSERT_TRUE(geo_->BeginStep(0, false).ok());
  const float before = Pull({11})[0];
  servers_.Move("vectors", 11, 100);
  Step(1, {12});
  const std::map<int64_t, float> sent = servers_.Sent("vectors");
  ASSERT_EQ(sent.size(), 3u);
  // Differences are divided by the number of trainers, which is 2.
  EXPECT_FLOAT_EQ(sent.at(11), (before - 11) / 2);
  EXPECT_FLOAT_EQ(sent.at(13), (before - 11) / 2);
  EXPECT_LT(sent.at(12), sent.at(11)) << "two steps go farther than one";
  servers_.Asked("vectors");
  ASSERT_TRUE(geo_->BeginStep(2, false).ok());
  // The part of its own change that was not sent stays in the copy; the other trainer's change is added.
  const std::vector<float> now = Pull({11, 13});
  EXPECT_FLOAT_EQ(now[0], before + 100);
  EXPECT_FLOAT_EQ(now[1], before + 2);
  // Rows that went with the previous exchange are not sent again.
  Step(2, {13});
  Step(3, {13});
  EXPECT_THAT(servers_.Sent("vectors"), ElementsAre(Pair(13, _)));
}

TEST_F(GeoChannelTest, RowsThatNothingUpdatesAreFetchedOnceAndNeverSent) {
  Create(absl::StrReplaceAll(kSlotJob, {{"optimizer { ftrl {} }", "trainable: false"}}));
  Step(0, {11, 12});
  EXPECT_THAT(servers_.Asked("weights"), ElementsAre(11, 12, 7));
  Step(1, {11, 13});
  EXPECT_THAT(servers_.Sent("vectors"), ElementsAre(Pair(11, _), Pair(12, _), Pair(13, _)));
  Step(2, {12, 11});
  EXPECT_THAT(servers_.Asked("weights"), ElementsAre(13)) << "the exchange after step 1 has changed none of its rows";
  ASSERT_TRUE(geo_->Finish().ok());
  EXPECT_THAT(servers_.Sent("weights"), IsEmpty());
}

TEST_F(GeoChannelTest, AnEvaluationReadsRowsThatNothingUpdates) {
  Create(absl::StrReplaceAll(kSlotJob, {{"optimizer { ftrl {} }", "trainable: false"}}));
  Step(0, {11, 12});
  servers_.Asked("weights");
  ASSERT_TRUE(geo_->BeginStep(1, true).ok());
  const std::vector<int64_t> ids = {20, 11, 21, 7};
  std::vector<float> rows(ids.size(), -1);
  const ParamChannel::TableRows weights{.table = "weights", .width = 1, .ids = &ids, .rows = rows.data()};
  ASSERT_TRUE(geo_->PullRows({&weights, 1}).ok());
  EXPECT_THAT(rows, ElementsAre(20, 11, 21, 7));
  EXPECT_THAT(servers_.Asked("weights"), ElementsAre(20, 21));
}

TEST_F(GeoChannelTest, BlocksMoveByTheirOwnChangesAndTheOthers) {
  Tensor bias(v1::FLOAT32, {1});
  const BlockRef block{.name = "out.b", .server = 0, .count = 1};
  const auto step = [&](int64_t number) {
    ASSERT_TRUE(geo_->BeginStep(number, false).ok());
    Tensor gradient = Tensor::Of<float>({1}, {1});
    const ParamChannel::LaneTensor lane{.lane = 0, .value = &gradient};
    ASSERT_TRUE(geo_->SendDense(block, {&lane, 1}).ok());
    ASSERT_TRUE(geo_->FinishSends(1, v1::APPLY).ok());
    ASSERT_TRUE(geo_->Receive(block, &bias).ok());
    ASSERT_TRUE(geo_->FinishReceives(nullptr).ok());
  };
  step(0);
  const float first = bias.data<float>()[0];
  EXPECT_LT(first, 0);
  servers_.Move("out.b", 0, 100);
  step(1);
  // Half of the change of its own two steps went to the servers and the rest stays; the other trainer's 100 came back.
  const float own = 2 * servers_.Sent("out.b").at(0);
  EXPECT_LT(own, first);
  EXPECT_FLOAT_EQ(bias.data<float>()[0], own + 100);
}

}  // namespace
}  // namespace weir
