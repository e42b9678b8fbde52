// Effect of the loss scale on the seeds of backward, on the gradients sent, and on the verdict.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/param_channel.h"
#include "framework/runtime/scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/finite.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Keeps what it is sent.
class Sent : public ParamChannel {
 public:
  absl::Status BeginStep(int64_t, bool) override { return absl::OkStatus(); }
  absl::Status PullRows(absl::Span<const TableRows>) override { return absl::OkStatus(); }
  absl::Status SendDense(const BlockRef&, absl::Span<const LaneTensor> lanes) override {
    for (const LaneTensor& lane : lanes)
      values.emplace_back(lane.value->span<float>().begin(), lane.value->span<float>().end());
    return absl::OkStatus();
  }
  absl::Status SendRows(const BlockRef&, int, absl::Span<const LaneRows> lanes) override {
    for (const LaneRows& lane : lanes) {
      const absl::Span<const float> of_rows = lane.value->values.span<float>();
      values.emplace_back(of_rows.begin(), of_rows.end());
      ids.push_back(lane.value->ids);
      if (lane.counts != nullptr)
        counts.emplace_back(lane.counts->span<float>().begin(), lane.counts->span<float>().end());
    }
    return absl::OkStatus();
  }
  absl::Status FinishSends(int64_t, v1::Verdict verdict) override {
    verdicts.push_back(verdict);
    return absl::OkStatus();
  }
  absl::Status Receive(const BlockRef&, Tensor*) override { return absl::OkStatus(); }
  absl::Status FinishReceives(StepOutcome*) override { return absl::OkStatus(); }

  std::vector<std::vector<float>> values, counts;
  std::vector<std::vector<int64_t>> ids;
  std::vector<v1::Verdict> verdicts;
};

// One program of one lane.
class LossScalingTest : public ::testing::Test {
 protected:
  LossScalingTest() {
    program_.set_name("step");
    program_.add_blocks()->set_parent(-1);
    context_.rows = &channel_;
    context_.channel = &channel_;
    context_.health = &health_;
  }
  void Declare(const char* name, std::vector<int64_t> dims, v1::VarKind kind = v1::DENSE) {
    v1::VarDesc* const var = program_.mutable_blocks(0)->add_vars();
    var->set_name(name);
    var->set_kind(kind);
    var->set_dtype(v1::FLOAT32);
    for (const int64_t d : dims) var->add_dims(d);
  }
  void Op(v1::OpDesc op, v1::OpRole role) {
    op.set_role(role);
    *program_.mutable_blocks(0)->add_ops() = std::move(op);
  }
  Executor& Make() {
    absl::StatusOr<std::unique_ptr<Executor>> made = Executor::Create(program_, &scope_, {});
    CHECK(made.ok()) << made.status();
    executor_ = *std::move(made);
    return *executor_;
  }
  absl::Status Run(float scale) {
    health_.Reset();
    context_.loss_scale = scale;
    return executor_->Run(context_, {2});
  }

  v1::ProgramDesc program_;
  Scope scope_;
  Sent channel_;
  StepHealth health_;
  StepContext context_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(LossScalingTest, SeedsOfBackwardAreMultiplied) {
  Declare("loss", {-1, 1});
  Declare("mean", {});
  for (const char* name : {"seed", "plain"}) Declare(name, {-1, 1});
  Declare("scalar_seed", {});
  Op(MakeOp("fill_like_batch", {{"X", {"loss"}}}, {{"Out", {"seed"}}}, {AttrF("value", 0.3)}), v1::BACKWARD);
  Op(MakeOp("fill_like_batch", {{"X", {"loss"}}}, {{"Out", {"plain"}}}, {AttrF("value", 0.3)}), v1::FORWARD);
  Op(MakeOp("fill_like_batch", {{"X", {"mean"}}}, {{"Out", {"scalar_seed"}}},
            {AttrF("value", 0.3), AttrB("scalar_times_batch", true)}),
     v1::BACKWARD);
  Executor& executor = Make();
  *executor.Find(0, "loss") = Tensor::Of<float>({2, 1}, {1, 2});
  *executor.Find(0, "mean") = Tensor::Of<float>({}, {1});
  for (const float scale : {1.0f, 4096.0f}) {
    ASSERT_TRUE(Run(scale).ok());
    const auto value = [&](const char* name) { return std::get<Tensor>(*executor.Find(0, name)).data<float>()[0]; };
    EXPECT_EQ(value("seed"), 0.3f * scale);
    EXPECT_EQ(value("plain"), 0.3f);
    EXPECT_EQ(value("scalar_seed"), 0.3f * 2 * scale);
  }
}

TEST_F(LossScalingTest, DenseGradientsAreDividedWhereTheyLeave) {
  Declare("g", {3});
  Declare("measured", {3});
  const auto send = [](const char* name, std::vector<v1::OpAttr> more) {
    std::vector<v1::OpAttr> attrs = {AttrStrings("blocks", std::vector<std::string>{name}), AttrInts("servers", {0})};
    attrs.insert(attrs.end(), more.begin(), more.end());
    return MakeOp("send", {{"X", {name}}}, {}, attrs);
  };
  Op(send("g", {}), v1::RPC);
  Op(send("measured", {AttrB("measured", true)}), v1::RPC);
  Executor& executor = Make();
  *executor.Find(0, "g") = Tensor::Of<float>({3}, {3, -0.7f, 1e-38f});
  *executor.Find(0, "measured") = Tensor::Of<float>({3}, {3, 4, 5});
  ASSERT_TRUE(Run(2).ok());
  EXPECT_THAT(channel_.values[0], ElementsAre(1.5f, -0.35f, 5e-39f));
  EXPECT_THAT(channel_.values[1], ElementsAre(3, 4, 5));
  // The gradients of the lanes themselves are not changed.
  EXPECT_EQ(std::get<Tensor>(*executor.Find(0, "g")).data<float>()[0], 3);
  EXPECT_EQ(health_.non_finite(), "");
  ASSERT_TRUE(Run(1).ok());
  EXPECT_THAT(channel_.values[2], ElementsAre(3, -0.7f, 1e-38f));
  *executor.Find(0, "g") = Tensor::Of<float>({3}, {3, kInf, 1});
  ASSERT_TRUE(Run(16).ok());
  EXPECT_EQ(health_.non_finite(), "g");
}

TEST_F(LossScalingTest, RowsAreDividedAndTheirCountsAreNot) {
  Declare("g", {-1, 2}, v1::SELECTED_ROWS);
  Declare("shows", {-1, 2}, v1::SELECTED_ROWS);
  Op(MakeOp("send", {{"X", {"g"}}, {"Counts", {"shows"}}}, {},
            {AttrStrings("blocks", std::vector<std::string>{"table"}), AttrInts("servers", {-1}), AttrI("width", 2)}),
     v1::RPC);
  Executor& executor = Make();
  SelectedRows rows;
  rows.ids = {7, 5};
  rows.values = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  rows.merged = rows.present = true;
  SelectedRows shows = rows;
  shows.values = Tensor::Of<float>({2, 2}, {8, 0, 9, 1});
  *executor.Find(0, "g") = rows;
  *executor.Find(0, "shows") = shows;
  ASSERT_TRUE(Run(4).ok());
  ASSERT_EQ(channel_.values.size(), 1u);
  EXPECT_THAT(channel_.values[0], ElementsAre(0.25f, 0.5f, 0.75f, 1));
  EXPECT_THAT(channel_.ids[0], ElementsAre(7, 5));
  EXPECT_THAT(channel_.counts[0], ElementsAre(8, 0, 9, 1));
  // A gradient without rows.
  *executor.Find(0, "g") = SelectedRows{.merged = true, .present = true};
  *executor.Find(0, "shows") = SelectedRows{.merged = true, .present = true};
  std::get<SelectedRows>(*executor.Find(0, "shows")).values = Tensor(v1::FLOAT32, {0, 2});
  std::get<SelectedRows>(*executor.Find(0, "g")).values = Tensor(v1::FLOAT32, {0, 2});
  ASSERT_TRUE(Run(4).ok());
  EXPECT_THAT(channel_.values.back(), IsEmpty());
}

TEST_F(LossScalingTest, AnOverflowIsSkippedAndALossIsNot) {
  Declare("loss", {-1, 1});
  Op(MakeOp("send_barrier", {{"X", {"loss"}}}, {}), v1::RPC);
  Executor& executor = Make();
  const auto judge = [&](float loss, bool gradient, float scale) {
    *executor.Find(0, "loss") = Tensor::Of<float>({2, 1}, {1, loss});
    health_.Reset();
    if (gradient) health_.ReportNonFinite("w@GRAD");
    context_.loss_scale = scale;
    return executor.Run(context_, {2});
  };
  ASSERT_TRUE(judge(1, false, 64).ok());
  ASSERT_TRUE(judge(1, true, 64).ok());
  EXPECT_THAT(channel_.verdicts, ElementsAre(v1::APPLY, v1::SKIP));
  EXPECT_THAT(std::string(judge(1, true, 1).message()), HasSubstr("'w@GRAD' is not finite"));
  EXPECT_THAT(std::string(judge(kInf, true, 64).message()), HasSubstr("'loss' is not finite"));
  EXPECT_EQ(channel_.verdicts.size(), 2u);
}

TEST(AllFiniteScaledTest, ScalesAllAndFindsAny) {
  for (const int64_t n : {0, 1, 5, 4096, 9001}) {
    std::vector<float> x(static_cast<size_t>(n)), out(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) + 0.7f;
    EXPECT_TRUE(AllFiniteScaled(x.data(), n, 0.125f, out.data()));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], x[i] / 8);
    if (n == 0) continue;
    for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
      x[x.size() / 2] = bad;
      EXPECT_FALSE(AllFiniteScaled(x.data(), n, 0.125f, out.data()));
      if (n > 1) {
        EXPECT_EQ(out.back(), x.back() / 8);
      }
    }
  }
}

}  // namespace
}  // namespace weir
