// Rows from prefetch to a kernel on the device: pulled into pinned memory, and copied from there while the next are
// pulled.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "framework/device/device_executor.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/param_channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/emulated_device.h"

namespace weir {
namespace {

constexpr int kWidth = 4;

// Each row is its id, and what the step adds.
class Servers : public RowSource {
 public:
  absl::Status BeginStep(int64_t step, bool) override {
    step_ = step;
    return absl::OkStatus();
  }
  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    for (const TableRows& t : tables) {
      for (size_t i = 0; i < t.ids->size(); ++i) {
        std::fill_n(t.rows + i * kWidth, kWidth, static_cast<float>((*t.ids)[i] + 1000 * step_));
      }
    }
    return absl::OkStatus();
  }

 private:
  int64_t step_ = 0;
};

void AddVar(v1::BlockDesc* block, const std::string& name, v1::VarKind kind, std::vector<int64_t> dims,
            DType dtype = v1::FLOAT32) {
  v1::VarDesc* var = block->add_vars();
  var->set_name(name);
  var->set_kind(kind);
  var->set_dtype(dtype);
  for (int64_t d : dims) var->add_dims(d);
}

v1::ProgramDesc Program() {
  v1::ProgramDesc program;
  v1::BlockDesc* block = program.add_blocks();
  block->set_parent(-1);
  AddVar(block, "ids", v1::IDS, {-1, 1});
  AddVar(block, "index", v1::DENSE, {-1}, v1::INT32);
  AddVar(block, "rows", v1::SELECTED_ROWS, {-1, kWidth});
  AddVar(block, "out", v1::DENSE, {-1, kWidth});
  const std::vector<std::string> table = {"t"};
  *block->add_ops() =
      MakeOp("prefetch", {{"Ids", {"ids"}}}, {{"Rows", {"rows"}}, {"Index", {"index"}}},
             {AttrStrings("tables", table), AttrStrings("row_tables", table), AttrInts("widths", {kWidth})});
  block->mutable_ops(0)->set_role(v1::RPC);
  *block->add_ops() = MakeOp("lookup_rows", {{"Ids", {"ids"}}, {"Index", {"index"}}, {"Rows", {"rows"}}},
                             {{"Out", {"out"}}}, {AttrS("pooling", "sum")});
  return program;
}

struct Copied {
  int64_t in = 0, staged = 0;
};

// Runs steps with rows of various numbers, and checks what the kernel has read in each.
Copied Steps(uint64_t seed, bool pinned) {
  EmulatedDevice device({.seed = seed});
  DeviceMemory memory(&device);
  DeviceTransfers transfers(&memory);
  Scope scope;
  DeviceScope device_scope(&scope);
  Servers servers;
  absl::StatusOr<std::unique_ptr<Executor>> executor = CreateDeviceExecutor(
      Program(), &scope, {.fetch = {"out"}, .transfers = &transfers, .device_scope = &device_scope});
  CHECK(executor.ok()) << executor.status();
  for (int64_t step = 0; step < 12; ++step) {
    const int64_t n = step % 5 == 3 ? 0 : 1 + step * 37 % 50;
    IdBatch ids;
    ids.offsets = {0};
    for (int64_t i = 0; i < n; ++i) {
      ids.values.push_back(i + step);
      ids.offsets.push_back(i + 1);
    }
    *(*executor)->Find(0, "ids") = ids;
    EXPECT_TRUE(servers.BeginStep(step, false).ok());
    const StepContext context = {.step = step, .rows = &servers, .row_memory = pinned ? &memory : nullptr};
    const absl::Status status = (*executor)->Run(context, {n});
    EXPECT_TRUE(status.ok()) << status;
    const Tensor& out = std::get<Tensor>(*(*executor)->Find(0, "out"));
    EXPECT_EQ(out.size(), n * kWidth);
    for (int64_t i = 0; i < out.size(); ++i) {
      const int64_t row = i / kWidth;
      EXPECT_EQ(out.data<float>()[i], static_cast<float>(row + 1001 * step)) << "seed " << seed;
    }
  }
  return {.in = transfers.bytes_in(), .staged = transfers.bytes_staged()};
}

TEST(PulledRowsTest, RowsAreCopiedFromWhereTheyWerePulledTo) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Copied pinned = Steps(seed, true), ordinary = Steps(seed, false);
    EXPECT_EQ(pinned.in, ordinary.in);
    EXPECT_EQ(ordinary.staged, ordinary.in);
    // Only ids and their places are staged, far fewer bytes than rows of four values.
    EXPECT_LT(pinned.staged, pinned.in * 3 / 4);
    EXPECT_GT(pinned.staged, 0);
  }
}

}  // namespace
}  // namespace weir
