// Runs a small program on the CPU and on a device, and compares: the twin test of a device kernel.
//
//   DeviceTwin t(memory, {5, 0, 1, 7});              // examples of each lane
//   t.Batched("x", {4}).Fixed("w", {4, 3});
//   t.Op(MakeOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"out"}}}));
//   t.Compare({"out"}, {.relative = 1e-6});
//
// The devices: an emulated one, always; and CUDA device 0, whose tests skip with the reason where it cannot be opened.
#ifndef WEIR_TESTS_TESTING_DEVICE_TWIN_H_
#define WEIR_TESTS_TESTING_DEVICE_TWIN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/scope.h"
#include "framework/tensor/device_memory.h"
#include "gtest/gtest.h"
#include "proto/program.pb.h"

namespace weir {

// |device - CPU| <= relative * max(1, |CPU|); 0: the same bits, one NaN for another.
struct TwinBound {
  double relative = 0;
};

// Parameter: "emulated" or "CUDA".
class DeviceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;
  DeviceMemory* memory() { return memory_.get(); }

  // Batches of the lanes: nothing, one, odd; lanes alike, short, without examples.
  static const std::vector<std::vector<int64_t>>& Batches() {
    static const auto* const batches =
        new std::vector<std::vector<int64_t>>{{0}, {1}, {37}, {300}, {5, 5, 5, 5}, {5, 0, 1, 7}, {0, 0}};
    return *batches;
  }
  // Of sums of up to 300 numbers in (-1, 1).
  static constexpr TwinBound kSum = {.relative = 2e-5};

 private:
  std::unique_ptr<DeviceRuntime> runtime_;
  std::unique_ptr<DeviceMemory> memory_;
};
#define INSTANTIATE_DEVICE_TESTS(Suite)                                    \
  INSTANTIATE_TEST_SUITE_P(, Suite, ::testing::Values("emulated", "CUDA"), \
                           [](const auto& info) { return std::string(info.param); })

class DeviceTwin {
 public:
  DeviceTwin(DeviceMemory* memory, std::vector<int64_t> batches);

  // Values are numbers in (-1, 1), or as given. kSpecial: NaN, infinities, -0, a denormal and one near the largest
  // among them. kSomeNotFinite: now and then NaN or an infinity, for sums, whose order decides what becomes of the
  // largest.
  enum class Values { kPlain, kSpecial, kPositive, kBits, kSomeNotFinite };
  // [batch, row_dims..] in each lane.
  DeviceTwin& Batched(const std::string& name, absl::Span<const int64_t> row_dims, Values values = Values::kPlain);
  // [rows of all lanes] given one after the other.
  DeviceTwin& BatchedValues(const std::string& name, const std::vector<float>& values);
  // In each lane of these dims, as the gradient of a parameter is.
  DeviceTwin& EachLane(const std::string& name, absl::Span<const int64_t> dims, Values values = Values::kPlain);
  // Shared by the lanes.
  DeviceTwin& Fixed(const std::string& name, absl::Span<const int64_t> dims, Values values = Values::kPlain);
  // `ids` with `slots` slots of `least` to `most` ids each, `index`, and `rows`: `count` of `width`, most ids being few
  // of them.
  DeviceTwin& Lookup(const std::string& ids, const std::string& index, const std::string& rows, int64_t slots,
                     int64_t least, int64_t most, int64_t count, int64_t width, bool weights);
  // By lane, as given.
  DeviceTwin& Feed(const std::string& name, v1::VarKind kind, DType dtype, absl::Span<const int64_t> dims,
                   std::vector<Variable> lanes);
  // Shared by the lanes, as given.
  DeviceTwin& FixedValue(const std::string& name, Tensor value);
  DeviceTwin& Op(v1::OpDesc op);
  // A variable that ops write and that is none of the above. Declared by itself otherwise.
  DeviceTwin& Output(const std::string& name, v1::VarKind kind);
  // Types that run on the CPU, also on the device.
  DeviceTwin& CpuOps(std::vector<std::string> types);
  StepContext& step() { return step_; }
  const v1::ProgramDesc& program() const { return program_; }

  void Compare(const std::vector<std::string>& outputs, TwinBound bound = {});
  // The device's error; OK when it runs.
  absl::Status DeviceStatus(const std::vector<std::string>& outputs);

 private:
  using Lanes = std::map<std::string, std::vector<Variable>>;

  v1::VarDesc* Declare(const std::string& name, v1::VarKind kind, absl::Span<const int64_t> dims);
  Tensor Numbers(absl::Span<const int64_t> dims, Values values);
  // Values of `outputs` by lane.
  absl::Status Run(bool on_device, const std::vector<std::string>& outputs, Lanes* result);

  DeviceMemory* const memory_;
  const std::vector<int64_t> batches_;
  v1::ProgramDesc program_;
  Lanes feeds_;
  std::map<std::string, Variable> fixed_;
  std::vector<std::string> cpu_ops_;
  StepContext step_;
  uint64_t next_ = 1;
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_DEVICE_TWIN_H_
