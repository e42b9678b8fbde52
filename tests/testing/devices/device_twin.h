// Twin test of a device kernel: runs a small program on the CPU and on a device, and compares the results.
//
//   DeviceTwin t(memory, {5, 0, 1, 7});              // examples of each lane
//   t.Batched("x", {4}).Fixed("w", {4, 3});
//   t.Op(MakeOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"out"}}}));
//   t.Compare({"out"}, {.relative = 1e-6});
//
// The devices are an emulated one, always, and CUDA device 0, whose tests are skipped, with the reason, if it cannot be
// opened.
#ifndef WEIR_TESTS_TESTING_DEVICES_DEVICE_TWIN_H_
#define WEIR_TESTS_TESTING_DEVICES_DEVICE_TWIN_H_

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

// Bound |device - CPU| <= relative * max(1, |CPU|). 0: equal bits, except that any NaN equals any other.
struct TwinBound {
  double relative = 0;
};

// Parameter: "emulated" or "CUDA".
class DeviceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;
  DeviceMemory* memory() { return memory_.get(); }

  // Returns batches of the lanes: empty, one example, odd sizes; equal lanes, a short lane, lanes without examples.
  static const std::vector<std::vector<int64_t>>& Batches() {
    static const auto* const batches =
        new std::vector<std::vector<int64_t>>{{0}, {1}, {37}, {300}, {5, 5, 5, 5}, {5, 0, 1, 7}, {0, 0}};
    return *batches;
  }
  // Bound for sums of up to 300 numbers in (-1, 1).
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

  // Kinds of values: numbers in (-1, 1), or as named. kSpecial includes NaN, infinities, -0, a denormal and a number
  // near the largest. kSomeNotFinite: now and then NaN or an infinity; for sums, in which the order decides whether the
  // largest numbers overflow.
  enum class Values { kPlain, kSpecial, kPositive, kBits, kSomeNotFinite };
  // Adds an input [batch, row_dims..] in each lane.
  DeviceTwin& Batched(const std::string& name, absl::Span<const int64_t> row_dims, Values values = Values::kPlain);
  // Adds an input with the given values: the rows of all lanes, one lane after the other.
  DeviceTwin& BatchedValues(const std::string& name, const std::vector<float>& values);
  // Adds an input with these dims in each lane, like the gradient of a parameter.
  DeviceTwin& EachLane(const std::string& name, absl::Span<const int64_t> dims, Values values = Values::kPlain);
  // Adds an input that the lanes share.
  DeviceTwin& Fixed(const std::string& name, absl::Span<const int64_t> dims, Values values = Values::kPlain);
  // Adds `ids` with `slots` slots of `least` to `most` ids each, `index`, and `rows`: `count` rows of `width`. About
  // half of the ids are that of the first row.
  DeviceTwin& Lookup(const std::string& ids, const std::string& index, const std::string& rows, int64_t slots,
                     int64_t least, int64_t most, int64_t count, int64_t width, bool weights);
  // Adds an input with the given values by lane.
  DeviceTwin& Feed(const std::string& name, v1::VarKind kind, DType dtype, absl::Span<const int64_t> dims,
                   std::vector<Variable> lanes);
  // Adds an input with the given value, shared by the lanes.
  DeviceTwin& FixedValue(const std::string& name, Tensor value);
  DeviceTwin& Op(v1::OpDesc op);
  // Declares a variable that ops write and that is none of the above. Needed only where the op does not declare it
  // itself.
  DeviceTwin& Output(const std::string& name, v1::VarKind kind);
  // Sets op types that run on the CPU even in the device run.
  DeviceTwin& CpuOps(std::vector<std::string> types);
  StepContext& step() { return step_; }
  const v1::ProgramDesc& program() const { return program_; }

  void Compare(const std::vector<std::string>& outputs, TwinBound bound = {});
  // Returns the device's error; OK if the program runs.
  absl::Status DeviceStatus(const std::vector<std::string>& outputs);

 private:
  using Lanes = std::map<std::string, std::vector<Variable>>;

  v1::VarDesc* Declare(const std::string& name, v1::VarKind kind, absl::Span<const int64_t> dims);
  Tensor Numbers(absl::Span<const int64_t> dims, Values values);
  // Returns the values of `outputs` by lane.
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

#endif  // WEIR_TESTS_TESTING_DEVICES_DEVICE_TWIN_H_
