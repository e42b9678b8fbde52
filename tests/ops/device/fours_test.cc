// Kernels that take four elements at a time: the bits of those that take one, whatever the size and wherever the
// operands lie.
#include "ops/device/fours.h"

#include <string>
#include <vector>

#include "framework/base/philox.h"
#include "framework/device/device_kernel.h"
#include "framework/tensor/device_transfers.h"
#include "gtest/gtest.h"
#include "ops/device/dropout_functors.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/fm_interaction_functors.h"
#include "ops/device/launch.h"
#include "ops/device/lookup_functors.h"
#include "ops/device/updates_functors.h"
#include "tests/testing/devices/device_twin.h"

namespace weir {
namespace device {
namespace {

static_assert(kHasFours<UnaryAt<ReluFn>> && kHasFours<BiasAt<TanhFn>> && kHasFours<UpdateAt<AdamMath>>);
static_assert(!kHasFours<RepeatAt>);

class FoursTest : public DeviceTest {
 protected:
  static constexpr int64_t kRoom = 4200;  // floats of an array
  static constexpr int kArrays = 5;

  // Runs make(arrays) over n elements on the device and here, the arrays beginning `shift` floats behind 16 bytes.
  template <typename Make>
  void Compare(int64_t n, int64_t shift, const Make& make, const std::string& what) {
    std::vector<float> start(kArrays * kRoom);
    for (size_t i = 0; i < start.size(); ++i) start[i] = UniformFloat(Philox(5, i, 0).v[0]) + 0.125f;
    DeviceTransfers transfers(memory());
    DeviceArray memory_of_it;
    ASSERT_TRUE(memory_of_it.Reserve(memory(), start.size() * sizeof(float)).ok());
    float* const device = memory_of_it.data<float>();
    ASSERT_TRUE(transfers.In(device, {{.data = start.data(), .bytes = start.size() * sizeof(float)}}).ok());
    ASSERT_TRUE(transfers.BeforeCompute().ok());
    transfers.AfterCompute();
    const auto at = [shift](float* base) { return [base, shift](int array) { return base + array * kRoom + shift; }; };
    const auto f = make(at(device));
    const absl::Status put = ForEach(*memory()->runtime(), n, f);
    ASSERT_TRUE(put.ok()) << put;
    const absl::StatusOr<std::shared_ptr<Arrival>> arrival =
        transfers.Out({{.data = device, .bytes = start.size() * sizeof(float)}});
    ASSERT_TRUE(arrival.ok());
    const absl::StatusOr<const void*> arrived = (*arrival)->Wait();
    ASSERT_TRUE(arrived.ok()) << arrived.status();
    const float* const got = static_cast<const float*>(*arrived);
    const auto here = make(at(start.data()));
    for (int64_t i = 0; i < n; ++i) here(i);
    for (size_t i = 0; i < start.size(); ++i) {
      ASSERT_EQ(got[i], start[i]) << what << ", n " << n << ", shift " << shift << ", element " << i;
    }
  }
};
INSTANTIATE_DEVICE_TESTS(FoursTest);

TEST_P(FoursTest, TheBitsOfOneByOne) {
  for (const int64_t n : {0, 1, 3, 4, 5, 7, 8, 1001, 4096}) {
    for (const int64_t shift : {0, 1, 2, 4}) {
      Compare(
          n, shift, [](auto at) { return UnaryAt<SigmoidFn>{.x = at(0), .y = at(1)}; }, "unary");
      Compare(
          n, shift, [](auto at) { return UnaryAt<ReluFn>{.x = at(0), .y = at(0)}; }, "unary in place");
      Compare(
          n, shift, [](auto at) { return UnaryGradAt<TanhFn>{.saved = at(0), .dy = at(1), .dx = at(2)}; }, "gradient");
      Compare(
          n, shift, [](auto at) { return ScaleAt{.x = at(0), .scale = 0.3f, .bias = 0.7f, .y = at(1)}; }, "scale");
      Compare(
          n, shift, [](auto at) { return MultiplyAt{.x = at(0), .factor = 0.3f, .y = at(1)}; }, "multiply");
      Compare(
          n, shift, [](auto at) { return ProductAt{.x = at(0), .y = at(1), .out = at(2)}; }, "product");
      Compare(
          n, shift, [](auto at) { return FillAt{.value = 0.3f, .out = at(2)}; }, "fill");
      Compare(
          n, shift, [](auto at) { return BinaryAlikeAt<DivMath>{.x = at(0), .y = at(1), .out = at(2)}; }, "quotient");
      Compare(
          n, shift,
          [](auto at) {
            return SumAt{.count = 4, .x = {at(0), at(1), at(2), at(3)}, .out = at(4)};
          },
          "sum");
      for (const int64_t width : {1, 4, 6, 8}) {
        Compare(
            n, shift, [width](auto at) { return BiasAt<ReluFn>{.bias = at(0), .n = width, .y = at(1)}; }, "bias");
      }
      Compare(
          n, shift,
          [](auto at) {
            return UpdateAt<AdamMath>{.step = AdamMath{.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8}.At(0.01f, 3),
                                      .grad = at(0),
                                      .param = at(1),
                                      .state = {at(2), at(3)}};
          },
          "adam");
    }
  }
}

TEST_P(FoursTest, DropoutsDraws) {
  for (const int64_t first : {0, 4, 5, 8}) {
    for (const int64_t n : {8, 9, 1000}) {
      LaneRows elements = {.lanes = 2, .begin = {0, first, n}};
      Compare(
          n, 0,
          [elements](auto at) {
            return DropoutAt{.x = at(0),
                             .elements = elements,
                             .key = 77,
                             .counter_high = uint64_t{3} << 16,
                             .rate = 0.5f,
                             .keep = 2.0f,
                             .mask = at(1),
                             .out = at(2)};
          },
          "dropout");
    }
  }
}

TEST_P(FoursTest, TheFactorisationMachinesGradient) {
  for (const int64_t width : {3, 4, 16}) {
    for (const int64_t rows : {1, 5, 20}) {
      Compare(
          rows * 5 * width, 0,
          [width](auto at) {
            return FmGradAt{.x = at(0), .sum = at(1), .dout = at(2), .slots = 5, .width = width, .dx = at(3)};
          },
          "fm");
    }
  }
}

}  // namespace
}  // namespace device
}  // namespace weir
