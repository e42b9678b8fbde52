// One training step of an embedding through the executor: prefetch, lookup_rows, its gradient, send, barriers, recv;
// three lanes on a pool, over a channel that plays the servers.
#include <map>
#include <memory>

#include "framework/runtime/executor.h"
#include "framework/runtime/param_channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class Servers : public ParamChannel {
 public:
  absl::Status BeginStep(int64_t, bool) override { return absl::OkStatus(); }
  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    for (const TableRows& t : tables) {
      pulled[t.table] = *t.ids;
      for (size_t i = 0; i < t.ids->size(); ++i) {
        for (int j = 0; j < t.width; ++j)
          t.rows[static_cast<int64_t>(i) * t.width + j] = static_cast<float>((*t.ids)[i]);
      }
    }
    return absl::OkStatus();
  }
  absl::Status SendDense(const BlockRef&, absl::Span<const LaneTensor>) override { return absl::OkStatus(); }
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override {
    EXPECT_EQ(block.name, "t");
    EXPECT_EQ(width, 2);
    for (const LaneRows& l : lanes) {
      sent_lanes.push_back(l.lane);
      for (size_t i = 0; i < l.value->ids.size(); ++i) {
        EXPECT_EQ(pulled["t"][static_cast<size_t>(l.value->step_rows[i])], l.value->ids[i]);
        sums[l.value->ids[i]] += l.value->values.span<float>()[i * 2];
      }
    }
    return absl::OkStatus();
  }
  absl::Status FinishSends(int64_t n, v1::Verdict v) override {
    samples = n;
    verdict = v;
    return absl::OkStatus();
  }
  absl::Status Receive(const BlockRef&, Tensor* out) override {
    std::fill_n(out->data<float>(), out->size(), 3.0f);
    return absl::OkStatus();
  }
  absl::Status FinishReceives(StepOutcome* outcome) override {
    outcome->version = 1;
    return absl::OkStatus();
  }

  std::map<std::string, std::vector<int64_t>> pulled;
  std::vector<int> sent_lanes;
  std::map<int64_t, float> sums;
  int64_t samples = -1;
  v1::Verdict verdict = v1::SKIP;
};

void AddVar(v1::BlockDesc* block, const std::string& name, v1::VarKind kind, std::vector<int64_t> dims,
            bool persistable = false, DType dtype = v1::FLOAT32) {
  v1::VarDesc* var = block->add_vars();
  var->set_name(name);
  var->set_kind(kind);
  var->set_dtype(dtype);
  var->set_persistable(persistable);
  for (int64_t d : dims) var->add_dims(d);
}

void AddOp(v1::BlockDesc* block, v1::OpDesc op, v1::OpRole role) {
  op.set_role(role);
  *block->add_ops() = std::move(op);
}

v1::ProgramDesc Program() {
  v1::ProgramDesc program;
  v1::BlockDesc* block = program.add_blocks();
  AddVar(block, "cat", v1::IDS, {-1, 2});
  AddVar(block, "index", v1::DENSE, {-1}, false, v1::INT32);
  AddVar(block, "rows", v1::SELECTED_ROWS, {-1, 2});
  AddVar(block, "pooled", v1::DENSE, {-1, 2});
  AddVar(block, "pooled@GRAD", v1::DENSE, {-1, 2});
  AddVar(block, "rows@GRAD", v1::SELECTED_ROWS, {-1, 2});
  AddVar(block, "w", v1::DENSE, {4}, /*persistable=*/true);
  const std::vector<std::string> table = {"t"}, w = {"w"};
  AddOp(block,
        MakeOp("prefetch", {{"Ids", {"cat"}}}, {{"Rows", {"rows"}}, {"Index", {"index"}}},
               {AttrStrings("tables", table), AttrStrings("row_tables", table), AttrInts("widths", {2})}),
        v1::RPC);
  AddOp(block,
        MakeOp("lookup_rows", {{"Ids", {"cat"}}, {"Index", {"index"}}, {"Rows", {"rows"}}}, {{"Out", {"pooled"}}},
               {AttrS("pooling", "sum")}),
        v1::FORWARD);
  AddOp(block, MakeOp("fill_like_batch", {{"X", {"pooled"}}}, {{"Out", {"pooled@GRAD"}}}, {AttrF("value", 1)}),
        v1::BACKWARD);
  AddOp(block,
        MakeOp("lookup_rows_grad",
               {{"Ids", {"cat"}}, {"Index", {"index"}}, {"Rows", {"rows"}}, {"Out@GRAD", {"pooled@GRAD"}}},
               {{"Rows@GRAD", {"rows@GRAD"}}}, {AttrS("pooling", "sum")}),
        v1::BACKWARD);
  AddOp(block,
        MakeOp("send", {{"X", {"rows@GRAD"}}}, {},
               {AttrStrings("blocks", table), AttrInts("servers", {-1}), AttrI("width", 2)}),
        v1::RPC);
  AddOp(block, MakeOp("send_barrier", {{"X", {"pooled"}}}, {}), v1::RPC);
  AddOp(block, MakeOp("recv", {}, {{"Out", {"w"}}}, {AttrStrings("blocks", w), AttrInts("servers", {0})}), v1::RPC);
  AddOp(block, MakeOp("fetch_barrier", {}, {}), v1::RPC);
  return program;
}

IdBatch TwoSlots(std::vector<int64_t> values) {
  IdBatch ids;
  ids.slots = 2;
  ids.values = std::move(values);
  for (size_t i = 0; i <= ids.values.size(); ++i) ids.offsets.push_back(static_cast<int64_t>(i));
  return ids;
}

class EmbeddingStepTest : public ::testing::Test {
 protected:
  EmbeddingStepTest() : pool_("test", 2) {
    absl::StatusOr<std::unique_ptr<Executor>> made =
        Executor::Create(Program(), &scope_, {.lanes = 3, .fetch = {"pooled"}});
    CHECK(made.ok()) << made.status();
    executor_ = std::move(*made);
    context_ = {.first_lane = 3,
                .job_lanes = 8,
                .rows = &servers_,
                .channel = &servers_,
                .outcome = &outcome_,
                .pool = &pool_,
                .health = &health_};
  }
  void SetIds(int lane, IdBatch ids) { *executor_->Find(lane, "cat") = std::move(ids); }
  std::vector<float> Pooled(int lane) {
    const Tensor& t = std::get<Tensor>(*executor_->Find(lane, "pooled"));
    return {t.data<float>(), t.data<float>() + t.size()};
  }

  Scope scope_;
  ThreadPool pool_;
  Servers servers_;
  StepHealth health_;
  StepOutcome outcome_;
  StepContext context_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(EmbeddingStepTest, RowsComeAndGradientsGo) {
  SetIds(0, TwoSlots({10, 20, 10, 10}));
  SetIds(1, TwoSlots({20, 30}));
  IdBatch none;
  none.slots = 2;
  SetIds(2, none);
  ASSERT_OK(executor_->Run(context_, {2, 1, 0}));
  EXPECT_THAT(servers_.pulled["t"], ElementsAre(10, 20, 30));
  EXPECT_THAT(Pooled(0), ElementsAre(30, 30, 20, 20));
  EXPECT_THAT(Pooled(1), ElementsAre(50, 50));
  EXPECT_THAT(servers_.sent_lanes, ElementsAre(3, 4));
  // Each sample gives each of its ids a gradient of 1.
  EXPECT_THAT(servers_.sums, UnorderedElementsAre(std::pair(10, 3.0f), std::pair(20, 2.0f), std::pair(30, 1.0f)));
  EXPECT_EQ(servers_.samples, 3);
  EXPECT_EQ(servers_.verdict, v1::APPLY);
  EXPECT_EQ(outcome_.version, 1);
  EXPECT_THAT(std::get<Tensor>(*scope_.Find("w")).span<float>(), ElementsAre(3, 3, 3, 3));
}

TEST_F(EmbeddingStepTest, ManyStepsDoNotMix) {
  for (int step = 0; step < 50; ++step) {
    servers_.sums.clear();
    std::map<int64_t, float> expected;
    for (int lane = 0; lane < 3; ++lane) {
      std::vector<int64_t> values;
      for (int i = 0; i < 2 * (1 + (step + lane) % 4); ++i) values.push_back((step * 7 + lane * 3 + i * i) % 11 - 5);
      for (int64_t v : values) expected[v] += 1;
      SetIds(lane, TwoSlots(values));
    }
    ASSERT_OK(executor_->Run(context_, {1 + step % 4, 1 + (step + 1) % 4, 1 + (step + 2) % 4}));
    ASSERT_EQ(servers_.sums, expected);
  }
}

TEST_F(EmbeddingStepTest, BrokenIdsNameTheirOperator) {
  IdBatch broken = TwoSlots({1, 2});
  broken.weights = {1};
  SetIds(0, broken);
  SetIds(1, TwoSlots({}));
  SetIds(2, TwoSlots({}));
  EXPECT_THAT(std::string(executor_->Run(context_, {1, 0, 0}).message()),
              HasSubstr("op 1 (lookup_rows) making pooled: 2 ids have 1 weights"));
}

}  // namespace
}  // namespace weir
