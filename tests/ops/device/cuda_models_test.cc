// The models of tests/bench/cuda_bench.cc on the emulated device: loss and gradients are those of the CPU.
#include "tests/bench/cuda_models.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/thread_pool.h"
#include "framework/device/device_executor.h"
#include "framework/runtime/executor.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/emulated_device.h"

namespace weir {
namespace {

struct Result {
  std::vector<float> loss, fields_gradient;
};

// Returns the result of the second step, which reads the parameters that the first has updated.
Result RunTwice(const CudaModel& model, int64_t batch, Executor* executor) {
  ThreadPool pool("test", 1);
  Result result;
  for (int step = 0; step < 2; ++step) {
    const absl::Status status = executor->Run({.pool = &pool}, {batch});
    EXPECT_TRUE(status.ok()) << model.name << ": " << status;
    if (!status.ok()) return result;
  }
  const auto values = [&](const std::string& name) {
    const absl::Span<const float> span = std::get<Tensor>(*executor->Find(0, name)).span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  result.loss = values("loss");
  result.fields_gradient = values("fields@GRAD");
  return result;
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  ASSERT_FALSE(want.empty());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5 * std::max(1.0f, std::fabs(want[i]))) << i;
}

TEST(CudaModelsTest, AreThoseOfTheCpu) {
  for (absl::StatusOr<CudaModel> (*make)(int64_t) : {DeepFm, Dlrm}) {
    constexpr int64_t kBatch = 37;
    const absl::StatusOr<CudaModel> model = make(kBatch);
    ASSERT_TRUE(model.ok()) << model.status();
    SCOPED_TRACE(model->name);
    const std::vector<std::string> fetch = {"loss", "fields@GRAD"};
    Scope cpu_scope, scope;
    Fill(*model, &cpu_scope);
    Fill(*model, &scope);
    const absl::StatusOr<std::unique_ptr<Executor>> cpu =
        Executor::Create(model->program, &cpu_scope, {.fetch = fetch});
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    EmulatedDevice device;
    DeviceMemory memory(&device);
    DeviceTransfers transfers(&memory);
    DeviceScope device_scope(&scope);
    const absl::StatusOr<std::unique_ptr<Executor>> on_device = CreateDeviceExecutor(
        model->program, &scope, {.fetch = fetch, .transfers = &transfers, .device_scope = &device_scope});
    ASSERT_TRUE(on_device.ok()) << on_device.status();
    const Result want = RunTwice(*model, kBatch, cpu->get()), got = RunTwice(*model, kBatch, on_device->get());
    ExpectNear(got.loss, want.loss);
    ExpectNear(got.fields_gradient, want.fields_gradient);
    double size = 0;
    for (const float g : want.fields_gradient) size += std::fabs(g);
    EXPECT_GT(size, 0);
  }
}

}  // namespace
}  // namespace weir
