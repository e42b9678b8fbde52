// Finds where numbers that are not finite began: on the CPU and on a device.
#include "trainer/session/non_finite.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/device/device_executor.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/device_memory.h"
#include "framework/tensor/device_transfers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/emulated_device.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

// Gives each id the row [id, id, ..], and the id `bad` NaN.
class Rows : public RowSource {
 public:
  absl::Status BeginStep(int64_t, bool) override { return absl::OkStatus(); }
  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    for (const TableRows& table : tables) {
      for (size_t i = 0; i < table.ids->size(); ++i) {
        const int64_t id = (*table.ids)[i];
        std::fill_n(table.rows + static_cast<int64_t>(i) * table.width, table.width,
                    id == bad ? kNan : static_cast<float>(id));
      }
    }
    return absl::OkStatus();
  }

  int64_t bad = -1;
};

// A program that the test feeds; two lanes of two examples each. The parameter says whether lanes compute on a device.
class NonFiniteTest : public ::testing::TestWithParam<bool> {
 protected:
  NonFiniteTest() : memory_(&device_), transfers_(&memory_), device_scope_(&scope_) {
    program_.set_name("step");
    program_.add_blocks()->set_parent(-1);
    program_.add_losses()->set_var("loss");
  }

  void Declare(const char* name, std::vector<int64_t> dims, bool persistable = false, v1::VarKind kind = v1::DENSE) {
    v1::VarDesc* const var = program_.mutable_blocks(0)->add_vars();
    var->set_name(name);
    var->set_kind(kind);
    var->set_dtype(kind == v1::IDS ? v1::INT64 : v1::FLOAT32);
    var->set_persistable(persistable);
    for (const int64_t d : dims) var->add_dims(d);
  }
  void Op(v1::OpDesc op) { *program_.mutable_blocks(0)->add_ops() = std::move(op); }
  void Parameter(const char* name, std::vector<int64_t> dims, const std::vector<float>& values) {
    Declare(name, dims, /*persistable=*/true);
    *scope_.FindOrCreate(name) = Tensor::Of<float>(dims, values);
  }

  absl::StatusOr<std::unique_ptr<Executor>> Make(const v1::ProgramDesc& program, Scope* scope,
                                                 DeviceScope* device_scope, const std::vector<std::string>& fetch) {
    if (!GetParam()) return Executor::Create(program, scope, {.lanes = 2, .fetch = fetch});
    return CreateDeviceExecutor(
        program, scope,
        {.lanes = 2, .fetch = fetch, .cpu_ops = {"log_loss"}, .transfers = &transfers_, .device_scope = device_scope});
  }

  // Runs the step on the variables that `feed` fills and returns the explanation of its bad number.
  std::string Ask(const std::vector<std::string>& columns, const std::string& seen,
                  const std::function<void(Executor&)>& feed) {
    const std::vector<int64_t> batch = {2, 2};
    absl::StatusOr<std::unique_ptr<Executor>> executor = Make(program_, &scope_, &device_scope_, {"loss"});
    if (!executor.ok()) return std::string(executor.status().message());
    feed(**executor);
    StepContext context;
    context.first_lane = 4;
    context.rows = &rows_;
    if (const absl::Status ran = (*executor)->Run(context, batch); !ran.ok()) return std::string(ran.message());
    std::unique_ptr<DeviceScope> device_scope;
    const std::vector<std::string> layers = {"head", "head.deep"};
    const NonFiniteStep step{
        .main = &program_,
        .columns = columns,
        .layers = layers,
        .executor = executor->get(),
        .scope = &scope_,
        .context = context,
        .batch = batch,
        .seen = seen,
        .make_executor = [&](const v1::ProgramDesc& program, Scope* scope, const std::vector<std::string>& fetch) {
          device_scope = std::make_unique<DeviceScope>(scope);
          return Make(program, scope, device_scope.get(), fetch);
        }};
    was_ = WhatWasNonFinite(step);
    const absl::StatusOr<std::string> where = WhereNonFinite(step);
    return where.ok() ? *where : std::string(where.status().message());
  }
  static std::function<void(Executor&)> Feed(std::map<std::string, std::vector<std::vector<float>>> values) {
    return [values](Executor& executor) {
      for (const auto& [name, of_lanes] : values) {
        for (size_t lane = 0; lane < of_lanes.size(); ++lane) {
          const int64_t width = static_cast<int64_t>(of_lanes[lane].size()) / 2;
          *executor.Find(static_cast<int>(lane), name) = Tensor::Of<float>({2, width}, of_lanes[lane]);
        }
      }
    };
  }

  EmulatedDevice device_;
  DeviceMemory memory_;
  DeviceTransfers transfers_;
  Scope scope_;
  DeviceScope device_scope_;
  Rows rows_;
  v1::ProgramDesc program_;
  std::string was_;  // WhatWasNonFinite of the last Ask
};
INSTANTIATE_TEST_SUITE_P(, NonFiniteTest, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "Device" : "Cpu"); });

TEST_P(NonFiniteTest, InTheData) {
  Declare("x", {-1, 3});
  Parameter("w", {3, 1}, {1, 2, 3});
  Declare("loss", {-1, 1});
  Op(MakeOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"loss"}}}));
  EXPECT_EQ(Ask({"x"}, "loss", Feed({{"x", {{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, kNan, 6}}}})),
            "it came with the data: 'x' is NaN in lane 5, example 1 of the batch, element 1");
  EXPECT_EQ(was_, "");
}

TEST_P(NonFiniteTest, InAParameter) {
  Declare("x", {-1, 3});
  Parameter("w", {3, 1}, {1, -kInf, 3});
  Declare("loss", {-1, 1});
  Op(MakeOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"loss"}}}));
  EXPECT_EQ(Ask({"x"}, "loss", Feed({{"x", {{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}}}})),
            "'w' was -inf when the step began, element 1");
  EXPECT_EQ(was_, "'w' was -inf when the step began, element 1");
}

TEST_P(NonFiniteTest, InARow) {
  Declare("ids", {-1, 1}, false, v1::IDS);
  Declare("table.rows", {-1, 2}, false, v1::SELECTED_ROWS);
  Declare("place", {-1});
  program_.mutable_blocks(0)->mutable_vars(2)->set_dtype(v1::INT32);
  Declare("loss", {-1, 2});
  v1::OpDesc prefetch = MakeOp("prefetch", {{"Ids", {"ids"}}}, {{"Rows", {"table.rows"}}, {"Index", {"place"}}},
                               {AttrStrings("tables", std::vector<std::string>{"table"}),
                                AttrStrings("row_tables", std::vector<std::string>{"table"}), AttrInts("widths", {2})});
  prefetch.set_role(v1::RPC);
  Op(std::move(prefetch));
  Op(MakeOp("lookup_rows", {{"Ids", {"ids"}}, {"Index", {"place"}}, {"Rows", {"table.rows"}}}, {{"Out", {"loss"}}},
            {AttrS("pooling", "sum")}));
  rows_.bad = 77;
  EXPECT_EQ(Ask({"ids"}, "loss",
                [](Executor& executor) {
                  for (int lane = 0; lane < 2; ++lane) {
                    IdBatch ids;
                    ids.values = {lane == 0 ? 3 : 77, 5};
                    ids.offsets = {0, 1, 2};
                    *executor.Find(lane, "ids") = ids;
                  }
                }),
            "row 77 of 'table' was NaN when the step began");
  EXPECT_EQ(was_, "row 77 of 'table' was NaN when the step began");
}

TEST_P(NonFiniteTest, TheLogarithmOfANegativeNumber) {
  Declare("p", {-1, 1});
  Declare("label", {-1, 1});
  Declare("loss", {-1, 1});
  Op(MakeOp("log_loss", {{"Predicted", {"p"}}, {"Label", {"label"}}}, {{"Loss", {"loss"}}}));
  EXPECT_EQ(Ask({"p", "label"}, "loss", Feed({{"p", {{0.5f, 0.5f}, {0.5f, -3}}}, {"label", {{0, 1}, {0, 1}}}})),
            "log_loss (op 0) made it: 'loss' is NaN in lane 5, element 1, from inputs that are finite");
}

TEST_P(NonFiniteTest, ADivisionByZeroBeforeOtherOperators) {
  for (const char* name : {"x", "y", "head.deep.ratio", "head", "loss"}) Declare(name, {-1, 1});
  Op(MakeOp("elementwise_div", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"head.deep.ratio"}}}));
  Op(MakeOp("elementwise_sub", {{"X", {"head.deep.ratio"}}, {"Y", {"head.deep.ratio"}}}, {{"Out", {"head"}}}));
  Op(MakeOp("elementwise_add", {{"X", {"head"}}, {"Y", {"x"}}}, {{"Out", {"loss"}}}));
  EXPECT_EQ(Ask({"x", "y"}, "loss", Feed({{"x", {{1, 2}, {3, 4}}}, {"y", {{1, 0}, {1, 1}}}})),
            "elementwise_div (op 0, layer 'head.deep') made it: 'head.deep.ratio' is inf in lane 4, element 1, from "
            "inputs that "
            "are finite");
}

// The loss stays finite, so the search begins at the gradient.
TEST_P(NonFiniteTest, AnOverflowInBackward) {
  for (const char* name : {"x", "squared", "dsquared", "dx", "loss"}) Declare(name, {-1, 1});
  Op(MakeOp("scale", {{"X", {"x"}}}, {{"Out", {"loss"}}}, {AttrF("scale", 1e-30)}));
  Op(MakeOp("scale", {{"X", {"loss"}}}, {{"Out", {"dsquared"}}}, {AttrF("scale", 1e38)}));
  Op(MakeOp("square_grad", {{"X", {"x"}}, {"Out@GRAD", {"dsquared"}}}, {{"X@GRAD", {"dx"}}}));
  EXPECT_EQ(Ask({"x"}, "dx", Feed({{"x", {{1, 2}, {1e20f, 4}}}})),
            "square_grad (op 2) made it: 'dx' is inf in lane 5, element 0, from inputs that are finite");
  EXPECT_EQ(was_, "");
}

// All operators are finite when they run again, since parameters have changed in the meantime.
TEST_P(NonFiniteTest, NothingToBeFound) {
  for (const char* name : {"x", "loss"}) Declare(name, {-1, 1});
  Op(MakeOp("relu", {{"X", {"x"}}}, {{"Out", {"loss"}}}));
  EXPECT_THAT(Ask({"x"}, "loss", Feed({{"x", {{1, 2}, {3, 4}}}})), HasSubstr("leave 'loss' finite"));
}

}  // namespace
}  // namespace weir
