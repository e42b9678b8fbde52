#include "tests/testing/devices/device_twin.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/status_macros.h"
#include "framework/device/device_executor.h"
#include "framework/runtime/executor.h"
#include "framework/tensor/cuda_device.h"
#include "glog/logging.h"
#include "tests/testing/devices/emulated_device.h"

namespace weir {

void DeviceTest::SetUp() {
  if (std::string(GetParam()) == "emulated") {
    runtime_ = std::make_unique<EmulatedDevice>();
  } else {
    absl::StatusOr<std::unique_ptr<ReplayingDevice>> cuda = OpenCudaDevice(0);
    if (!cuda.ok()) GTEST_SKIP() << cuda.status().message();
    runtime_ = *std::move(cuda);
  }
  memory_ = std::make_unique<DeviceMemory>(runtime_.get());
}

DeviceTwin::DeviceTwin(DeviceMemory* memory, std::vector<int64_t> batches)
    : memory_(memory), batches_(std::move(batches)) {
  program_.set_name("twin");
  program_.add_blocks()->set_parent(-1);
}

v1::VarDesc* DeviceTwin::Declare(const std::string& name, v1::VarKind kind, absl::Span<const int64_t> dims) {
  v1::VarDesc* var = program_.mutable_blocks(0)->add_vars();
  var->set_name(name);
  var->set_kind(kind);
  var->set_dtype(v1::FLOAT32);
  for (int64_t d : dims) var->add_dims(d);
  return var;
}

Tensor DeviceTwin::Numbers(absl::Span<const int64_t> dims, Values values) {
  Tensor t(v1::FLOAT32, dims);
  const uint64_t key = next_++;
  static const float kSpecials[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e-41f, 3e38f, 0.0f};
  for (int64_t i = 0; i < t.size(); ++i) {
    const PhiloxBlock r = Philox(key, static_cast<uint64_t>(i), 0);
    float x = 2 * UniformFloat(r.v[0]) - 1;
    if (values == Values::kPositive) x = 0.5f + 0.5f * std::fabs(x);
    if (values == Values::kBits) x = r.v[1] % 2 == 0 ? 0.0f : 1.0f;
    if (values == Values::kSpecial && r.v[1] % 5 == 0) x = kSpecials[r.v[2] % 7];
    if (values == Values::kSomeNotFinite && r.v[1] % 31 == 0) x = kSpecials[r.v[2] % 3];
    t.data<float>()[i] = x;
  }
  return t;
}

DeviceTwin& DeviceTwin::Batched(const std::string& name, absl::Span<const int64_t> row_dims, Values values) {
  Shape dims = {-1};
  dims.insert(dims.end(), row_dims.begin(), row_dims.end());
  Declare(name, v1::DENSE, dims);
  for (int64_t batch : batches_) {
    dims[0] = batch;
    feeds_[name].push_back(Numbers(dims, values));
  }
  return *this;
}

DeviceTwin& DeviceTwin::BatchedValues(const std::string& name, const std::vector<float>& values) {
  Declare(name, v1::DENSE, {-1, 1});
  size_t at = 0;
  for (int64_t batch : batches_) {
    Tensor t(v1::FLOAT32, {batch, 1});
    for (int64_t i = 0; i < batch; ++i) t.data<float>()[i] = values.at(at++);
    feeds_[name].push_back(std::move(t));
  }
  return *this;
}

DeviceTwin& DeviceTwin::EachLane(const std::string& name, absl::Span<const int64_t> dims, Values values) {
  Declare(name, v1::DENSE, dims);
  for (size_t lane = 0; lane < batches_.size(); ++lane) feeds_[name].push_back(Numbers(dims, values));
  return *this;
}

DeviceTwin& DeviceTwin::Fixed(const std::string& name, absl::Span<const int64_t> dims, Values values) {
  Declare(name, v1::DENSE, dims)->set_persistable(true);
  fixed_[name] = Numbers(dims, values);
  return *this;
}

DeviceTwin& DeviceTwin::Lookup(const std::string& ids, const std::string& index, const std::string& rows, int64_t slots,
                               int64_t least, int64_t most, int64_t count, int64_t width, bool weights) {
  Declare(ids, v1::IDS, {-1, slots})->set_dtype(v1::INT64);
  Declare(index, v1::DENSE, {-1})->set_dtype(v1::INT32);
  Declare(rows, v1::SELECTED_ROWS, {-1, width})->set_persistable(true);
  SelectedRows all;
  all.present = all.merged = true;
  for (int64_t r = 0; r < count; ++r) all.ids.push_back(1000 + 7 * r);
  all.values = Numbers({count, width}, Values::kPlain);
  const uint64_t key = next_++;
  uint64_t draw = 0;
  const auto random = [&] { return Philox(key, draw++, 0); };
  for (int64_t batch : batches_) {
    IdBatch of_lane;
    of_lane.slots = slots;
    std::vector<int32_t> place;
    if (batch > 0) of_lane.offsets.push_back(0);
    for (int64_t slot = 0; slot < batch * slots; ++slot) {
      const int64_t n = least + static_cast<int64_t>(random().v[0] % static_cast<uint64_t>(most - least + 1));
      for (int64_t i = 0; i < n; ++i) {
        const PhiloxBlock r = random();
        // Half of them the first row: a segment of many runs.
        place.push_back(r.v[0] % 2 == 0 ? 0 : static_cast<int32_t>(r.v[1] % static_cast<uint64_t>(count)));
        of_lane.values.push_back(all.ids[static_cast<size_t>(place.back())]);
        if (weights) of_lane.weights.push_back(UniformFloat(r.v[2]));
      }
      of_lane.offsets.push_back(static_cast<int64_t>(of_lane.values.size()));
    }
    feeds_[ids].push_back(std::move(of_lane));
    feeds_[index].push_back(Tensor::Of<int32_t>({static_cast<int64_t>(place.size())}, place));
  }
  fixed_[rows] = std::move(all);
  return *this;
}

DeviceTwin& DeviceTwin::Feed(const std::string& name, v1::VarKind kind, DType dtype, absl::Span<const int64_t> dims,
                             std::vector<Variable> lanes) {
  Declare(name, kind, dims)->set_dtype(dtype);
  feeds_[name] = std::move(lanes);
  return *this;
}

DeviceTwin& DeviceTwin::FixedValue(const std::string& name, Tensor value) {
  v1::VarDesc* const var = Declare(name, v1::DENSE, value.dims());
  var->set_dtype(value.dtype());
  var->set_persistable(true);
  fixed_[name] = std::move(value);
  return *this;
}

DeviceTwin& DeviceTwin::Output(const std::string& name, v1::VarKind kind) {
  Declare(name, kind, {-1, 1});
  return *this;
}

DeviceTwin& DeviceTwin::CpuOps(std::vector<std::string> types) {
  cpu_ops_ = std::move(types);
  return *this;
}

DeviceTwin& DeviceTwin::Op(v1::OpDesc op) {
  const auto& vars = program_.blocks(0).vars();
  for (const v1::OpSlot& slot : op.outputs()) {
    for (const std::string& name : slot.vars()) {
      if (std::none_of(vars.begin(), vars.end(), [&](const v1::VarDesc& var) { return var.name() == name; })) {
        Declare(name, v1::DENSE, {-1, 1});
      }
    }
  }
  *program_.mutable_blocks(0)->add_ops() = std::move(op);
  return *this;
}

absl::Status DeviceTwin::Run(bool on_device, const std::vector<std::string>& outputs, Lanes* result) {
  const int lanes = static_cast<int>(batches_.size());
  Scope scope;
  for (const auto& [name, value] : fixed_) {
    Variable* const var = scope.FindOrCreate(name);
    if (const SelectedRows* rows = std::get_if<SelectedRows>(&value)) {
      *var = *rows;
    } else {
      Tensor copy;
      copy.CopyFrom(std::get<Tensor>(value));
      *var = std::move(copy);
    }
  }
  std::unique_ptr<DeviceTransfers> transfers;
  std::unique_ptr<DeviceScope> device_scope;
  std::unique_ptr<Executor> executor;
  if (on_device) {
    transfers = std::make_unique<DeviceTransfers>(memory_);
    device_scope = std::make_unique<DeviceScope>(&scope);
    ASSIGN_OR_RETURN(executor, CreateDeviceExecutor(program_, &scope,
                                                    {.lanes = lanes,
                                                     .fetch = outputs,
                                                     .cpu_ops = cpu_ops_,
                                                     .transfers = transfers.get(),
                                                     .device_scope = device_scope.get()}));
  } else {
    ASSIGN_OR_RETURN(executor, Executor::Create(program_, &scope, {.lanes = lanes, .fetch = outputs}));
  }
  ThreadPool pool("twin", 1);
  // Twice: what is kept from the first step must not show in the second.
  for (int run = 0; run < 2; ++run) {
    for (const auto& [name, values] : feeds_) {
      for (int lane = 0; lane < lanes; ++lane) {
        Variable* const var = executor->Find(lane, name);
        if (var == nullptr) continue;
        if (const Tensor* tensor = std::get_if<Tensor>(&values[static_cast<size_t>(lane)])) {
          Tensor copy;
          copy.CopyFrom(*tensor);
          *var = std::move(copy);
        } else {
          *var = values[static_cast<size_t>(lane)];
          // Ops may write in the place of what they read.
          if (SelectedRows* rows = std::get_if<SelectedRows>(var)) {
            Tensor copy;
            copy.CopyFrom(rows->values);
            rows->values = std::move(copy);
          }
        }
      }
    }
    step_.pool = &pool;
    RETURN_IF_ERROR(executor->Run(step_, batches_));
  }
  for (const std::string& name : outputs) {
    for (int lane = 0; lane < lanes; ++lane) {
      const Variable* const var = executor->Find(lane, name);
      CHECK(var != nullptr) << name;
      if (const Tensor* tensor = std::get_if<Tensor>(var)) {
        Tensor copy;
        copy.CopyFrom(*tensor);
        (*result)[name].push_back(std::move(copy));
      } else {
        SelectedRows rows = std::get<SelectedRows>(*var);
        Tensor copy;
        copy.CopyFrom(rows.values);
        rows.values = std::move(copy);
        (*result)[name].push_back(std::move(rows));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status DeviceTwin::DeviceStatus(const std::vector<std::string>& outputs) {
  Lanes ignored;
  return Run(/*on_device=*/true, outputs, &ignored);
}

void DeviceTwin::Compare(const std::vector<std::string>& outputs, TwinBound bound) {
  Lanes want, got;
  const absl::Status on_cpu = Run(/*on_device=*/false, outputs, &want);
  ASSERT_TRUE(on_cpu.ok()) << on_cpu;
  const absl::Status on_device = Run(/*on_device=*/true, outputs, &got);
  ASSERT_TRUE(on_device.ok()) << on_device;
  for (const std::string& name : outputs) {
    for (size_t lane = 0; lane < batches_.size(); ++lane) {
      const std::string where = absl::StrCat(name, " of lane ", lane);
      const Tensor* w = std::get_if<Tensor>(&want[name][lane]);
      const Tensor* g = std::get_if<Tensor>(&got[name][lane]);
      if (const SelectedRows* rows = std::get_if<SelectedRows>(&want[name][lane])) {
        const SelectedRows& of_device = std::get<SelectedRows>(got[name][lane]);
        EXPECT_EQ(of_device.height, rows->height) << where;
        EXPECT_EQ(of_device.ids, rows->ids) << where;
        EXPECT_EQ(of_device.step_rows, rows->step_rows) << where;
        EXPECT_EQ(of_device.present, rows->present) << where;
        EXPECT_EQ(of_device.merged, rows->merged) << where;
        if (!rows->present) continue;
        w = &rows->values;
        g = &of_device.values;
      }
      ASSERT_NE(g, nullptr) << where;
      ASSERT_EQ(g->initialized(), w->initialized()) << where;
      if (!w->initialized()) continue;
      ASSERT_EQ(ShapeString(g->dims()), ShapeString(w->dims())) << where;
      ASSERT_EQ(g->dtype(), w->dtype()) << where;
      if (w->dtype() != v1::FLOAT32) {
        ASSERT_EQ(w->bytes() == 0 ? 0 : std::memcmp(g->raw(), w->raw(), w->bytes()), 0) << where;
        continue;
      }
      for (int64_t i = 0; i < w->size(); ++i) {
        const float a = w->data<float>()[i], b = g->data<float>()[i];
        if (std::isnan(a) && std::isnan(b)) continue;
        const bool alike = bound.relative == 0
                               ? std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b)
                               : a == b || std::fabs(static_cast<double>(a) - b) <=
                                               bound.relative * std::max(1.0, std::fabs(static_cast<double>(a)));
        ASSERT_TRUE(alike) << where << "[" << i << "]: CPU " << a << ", device " << b;
      }
    }
  }
}

}  // namespace weir
