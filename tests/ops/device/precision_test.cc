// Products of matrices whose factors are rounded to 16 bits, and the rounding.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/device/device_executor.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/executor.h"
#include "framework/tensor/float16.h"
#include "gtest/gtest.h"
#include "ops/device/launch.h"
#include "ops/device/rounding_functors.h"
#include "tests/testing/devices/device_twin.h"

namespace weir {
namespace {

float OfBits(uint16_t bits, bool bf16) { return bf16 ? OfBFloat16(bits) : OfFloat16(bits); }

// All non-negative finite numbers of the type, ascending, and the infinity. Bits are in the order of values.
std::vector<float> Magnitudes(bool bf16) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits <= (bf16 ? 0x7f80u : 0x7c00u); ++bits)
    values.push_back(OfBits(static_cast<uint16_t>(bits), bf16));
  return values;
}

// By search: the nearest, of two the even one; the infinity stands where the next number would.
uint16_t Nearest(const std::vector<float>& magnitudes, float x) {
  const float magnitude = std::fabs(x);
  const size_t infinity = magnitudes.size() - 1;
  size_t nearest = infinity;
  if (!std::isinf(magnitude)) {
    const auto at = [&](size_t i) {
      if (i < infinity) return static_cast<double>(magnitudes[i]);
      return 2.0 * magnitudes[infinity - 1] - magnitudes[infinity - 2];
    };
    nearest =
        static_cast<size_t>(std::lower_bound(magnitudes.begin(), magnitudes.end(), magnitude) - magnitudes.begin());
    if (nearest > 0) {
      const double above = at(nearest) - magnitude, below = magnitude - at(nearest - 1);
      if (below < above || (below == above && nearest % 2 == 1)) --nearest;
    }
  }
  return static_cast<uint16_t>(nearest | (std::signbit(x) ? 0x8000u : 0u));
}

class RoundingTest : public DeviceTest {
 protected:
  std::vector<uint16_t> OnDevice(const std::vector<float>& values, bool bf16) {
    DeviceRuntime& runtime = *memory()->runtime();
    DeviceTransfers transfers(memory());
    DeviceArray from, to;
    EXPECT_TRUE(from.Reserve(memory(), values.size() * sizeof(float)).ok());
    EXPECT_TRUE(to.Reserve(memory(), values.size() * sizeof(uint16_t)).ok());
    const DeviceTransfers::Piece piece = {.data = values.data(), .bytes = values.size() * sizeof(float)};
    EXPECT_TRUE(transfers.In(from.data<float>(), {&piece, 1}).ok());
    EXPECT_TRUE(transfers.BeforeCompute().ok());
    const int64_t n = static_cast<int64_t>(values.size());
    transfers.AfterCompute();
    EXPECT_TRUE((bf16 ? device::ForEach(runtime, n, device::ToBFloat16At{from.data<float>(), to.data<uint16_t>()})
                      : device::ForEach(runtime, n, device::ToFloat16At{from.data<float>(), to.data<uint16_t>()}))
                    .ok());
    std::vector<uint16_t> result(values.size());
    const DeviceTransfers::Piece out = {.data = to.data<uint16_t>(), .bytes = result.size() * sizeof(uint16_t)};
    const auto arrival = transfers.Out({&out, 1});
    EXPECT_TRUE(arrival.ok());
    const auto arrived = (*arrival)->Wait();
    EXPECT_TRUE(arrived.ok());
    if (!result.empty()) std::memcpy(result.data(), *arrived, result.size() * sizeof(uint16_t));
    return result;
  }
};
INSTANTIATE_DEVICE_TESTS(RoundingTest);

// Every number of the type, the float on each side of it, the middle between it and the next, and the floats beside
// that.
TEST_P(RoundingTest, EveryNumberAndWhatLiesAroundIt) {
  for (const bool bf16 : {false, true}) {
    const std::vector<float> magnitudes = Magnitudes(bf16);
    const float most = magnitudes[magnitudes.size() - 2];
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> values;
    const auto add = [&](float x) {
      for (const float around : {std::nextafter(x, 0.0f), x, std::nextafter(x, infinity)}) {
        values.push_back(around);
        values.push_back(-around);
      }
    };
    for (size_t i = 0; i + 1 < magnitudes.size(); ++i) {
      add(magnitudes[i]);
      const double next = magnitudes[i] == most ? 2.0 * most - magnitudes[i - 1] : magnitudes[i + 1];
      add(static_cast<float>((magnitudes[i] + next) / 2));
    }
    add(std::numeric_limits<float>::max());
    add(std::numeric_limits<float>::denorm_min());
    add(infinity);
    const std::vector<uint16_t> rounded = OnDevice(values, bf16);
    int wrong = 0;
    for (size_t i = 0; i < values.size() && wrong < 5; ++i) {
      const uint16_t expected = Nearest(magnitudes, values[i]);
      if (rounded[i] == expected) continue;
      ++wrong;
      ADD_FAILURE() << (bf16 ? "bfloat16" : "float16") << " of " << std::hexfloat << values[i] << " is " << std::hex
                    << rounded[i] << ", expected " << expected;
    }
  }
}

TEST_P(RoundingTest, NanStaysNan) {
  std::vector<float> values;
  for (const uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu})
    values.push_back(std::bit_cast<float>(bits));
  for (const bool bf16 : {false, true}) {
    for (const uint16_t bits : OnDevice(values, bf16)) EXPECT_TRUE(std::isnan(OfBits(bits, bf16))) << bits;
  }
}

TEST_P(RoundingTest, AnyNumberOfThem) {
  for (const int64_t n : {0, 1, 3, 257, 8192 * 256 + 77}) {
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f + static_cast<float>(i % 1009) / 4096.0f;
    for (const bool bf16 : {false, true}) {
      const std::vector<uint16_t> rounded = OnDevice(values, bf16);
      ASSERT_EQ(rounded.size(), values.size());
      int64_t wrong = 0;
      for (size_t i = 0; i < values.size(); ++i)
        wrong += rounded[i] != (bf16 ? BFloat16Of(values[i]) : Float16Of(values[i])) ? 1 : 0;
      EXPECT_EQ(wrong, 0) << n;
    }
  }
}

// A product of x [lanes' rows, k] and w [k, n], and its gradients: mul's, or fc's with a bias and relu.
class RoundedProductTest : public DeviceTest {
 protected:
  struct Outcome {
    std::vector<Tensor> out, dx, dw;  // by lane
  };
  // `rows` of each lane; x and w hold `values` as they come, again and again.
  absl::StatusOr<Outcome> Run(ProductPrecision precision, const std::vector<int64_t>& rows, int64_t k, int64_t n,
                              const std::vector<float>& values, int runs = 1, bool fc = false) {
    v1::ProgramDesc program;
    program.set_name("product");
    program.add_blocks()->set_parent(-1);
    const auto declare = [&](const char* name, std::vector<int64_t> dims, bool persistable) {
      v1::VarDesc* const var = program.mutable_blocks(0)->add_vars();
      var->set_name(name);
      var->set_kind(v1::DENSE);
      var->set_dtype(v1::FLOAT32);
      var->set_persistable(persistable);
      for (const int64_t d : dims) var->add_dims(d);
    };
    declare("x", {-1, k}, false);
    declare("w", {k, n}, true);
    declare("dout", {-1, n}, false);
    declare("out", {-1, n}, false);
    declare("dx", {-1, k}, false);
    declare("dw", {k, n}, false);
    const auto add = [&](const v1::OpDesc& op) { *program.mutable_blocks(0)->add_ops() = op; };
    if (fc) {
      declare("b", {n}, true);
      declare("db", {n}, false);
      const std::vector<v1::OpAttr> attrs = {AttrS("activation", "relu")};
      add(MakeOp("fc", {{"X", {"x"}}, {"W", {"w"}}, {"Bias", {"b"}}}, {{"Out", {"out"}}}, attrs));
      add(MakeOp("fc_grad", {{"X", {"x"}}, {"W", {"w"}}, {"Bias", {"b"}}, {"Out", {"out"}}, {"Out@GRAD", {"dout"}}},
                 {{"X@GRAD", {"dx"}}, {"W@GRAD", {"dw"}}, {"Bias@GRAD", {"db"}}}, attrs));
    } else {
      add(MakeOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"out"}}}));
      add(MakeOp("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Out@GRAD", {"dout"}}},
                 {{"X@GRAD", {"dx"}}, {"Y@GRAD", {"dw"}}}));
    }
    size_t next = 0;
    const auto fill = [&](Shape dims) {
      Tensor t(v1::FLOAT32, dims);
      for (float& v : absl::MakeSpan(t.data<float>(), static_cast<size_t>(t.size())))
        v = values[next++ % values.size()];
      return t;
    };
    Scope scope;
    DeviceTransfers transfers(memory());
    DeviceScope device_scope(&scope);
    *scope.FindOrCreate("w") = fill({k, n});
    if (fc) {
      // The bias has equal values for every precision.
      Tensor b(v1::FLOAT32, {n});
      for (int64_t i = 0; i < n; ++i) b.data<float>()[i] = 0.5f * static_cast<float>(i % 5 - 2);
      *scope.FindOrCreate("b") = std::move(b);
    }
    ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor, CreateDeviceExecutor(program, &scope,
                                                                              {.lanes = static_cast<int>(rows.size()),
                                                                               .fetch = {"out", "dx", "dw"},
                                                                               .precision = precision,
                                                                               .transfers = &transfers,
                                                                               .device_scope = &device_scope}));
    Outcome outcome;
    for (int run = 0; run < runs; ++run) {
      if (run > 0) {
        std::get<Tensor>(*scope.FindOrCreate("w")) = fill({k, n});
        device_scope.HostWasWritten();
      }
      for (size_t lane = 0; lane < rows.size(); ++lane) {
        *executor->Find(static_cast<int>(lane), "x") = fill({rows[lane], k});
        *executor->Find(static_cast<int>(lane), "dout") = fill({rows[lane], n});
      }
      RETURN_IF_ERROR(executor->Run({}, rows));
    }
    for (size_t lane = 0; lane < rows.size(); ++lane) {
      const auto take = [&](const char* name, std::vector<Tensor>* to) {
        to->emplace_back().CopyFrom(std::get<Tensor>(*executor->Find(static_cast<int>(lane), name)));
      };
      take("out", &outcome.out);
      take("dx", &outcome.dx);
      take("dw", &outcome.dw);
    }
    return outcome;
  }

  static void ExpectSame(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t lane = 0; lane < a.size(); ++lane) {
      ASSERT_EQ(a[lane].size(), b[lane].size());
      for (int64_t i = 0; i < a[lane].size(); ++i) {
        const float x = a[lane].data<float>()[i], y = b[lane].data<float>()[i];
        if (std::isnan(x) && std::isnan(y)) continue;
        if (std::isinf(x) || std::isinf(y)) {
          EXPECT_EQ(x, y);
        } else {
          EXPECT_NEAR(x, y, 1e-5 * std::max(1.0f, std::fabs(y))) << "lane " << lane << " element " << i;
        }
      }
    }
  }
  static void ExpectSame(const Outcome& a, const Outcome& b) {
    ExpectSame(a.out, b.out);
    ExpectSame(a.dx, b.dx);
    ExpectSame(a.dw, b.dw);
  }
};
INSTANTIATE_DEVICE_TESTS(RoundedProductTest);

// Rounding the factors beforehand and multiplying in FP32 comes to the same: sums are FP32, and so is what is added to
// them. (Of a bias the gradient is not compared: it is the sum of what has not been rounded.)
TEST_P(RoundedProductTest, IsTheProductOfRoundedFactors) {
  std::vector<float> values;
  for (int i = 0; i < 997; ++i) values.push_back(std::sin(static_cast<float>(i)) * 3);
  for (const bool bf16 : {false, true}) {
    const ProductPrecision precision = bf16 ? ProductPrecision::kBf16 : ProductPrecision::kFp16;
    std::vector<float> rounded;
    for (const float v : values) rounded.push_back(OfBits(bf16 ? BFloat16Of(v) : Float16Of(v), bf16));
    for (const std::vector<int64_t>& rows : std::vector<std::vector<int64_t>>{{0}, {1}, {37}, {5, 5, 5}, {5, 0, 7}}) {
      for (const auto& [k, n] : {std::pair<int64_t, int64_t>{1, 1}, {13, 7}, {64, 33}, {64, 32}}) {
        for (const bool fc : {false, true}) {
          const auto exact = Run(ProductPrecision::kFp32, rows, k, n, rounded, /*runs=*/1, fc);
          const auto mixed = Run(precision, rows, k, n, values, /*runs=*/1, fc);
          ASSERT_TRUE(exact.ok() && mixed.ok()) << exact.status() << mixed.status();
          ExpectSame(*mixed, *exact);
        }
      }
    }
  }
}

// A weight is rounded once a run, and again in the next.
TEST_P(RoundedProductTest, TakesTheWeightsOfTheRun) {
  std::vector<float> values;
  for (int i = 0; i < 991; ++i) values.push_back(std::cos(static_cast<float>(i)));
  std::vector<float> rounded;
  for (const float v : values) rounded.push_back(OfBFloat16(BFloat16Of(v)));
  const auto exact = Run(ProductPrecision::kFp32, {9, 4}, 5, 6, rounded, /*runs=*/3);
  const auto mixed = Run(ProductPrecision::kBf16, {9, 4}, 5, 6, values, /*runs=*/3);
  ASSERT_TRUE(exact.ok() && mixed.ok()) << exact.status() << mixed.status();
  ExpectSame(*mixed, *exact);
}

TEST_P(RoundedProductTest, Float16OverflowsToInfinityAndBfloat16DoesNot) {
  const std::vector<float> values = {70000, 1};
  const auto fp16 = Run(ProductPrecision::kFp16, {1}, 1, 1, values);
  const auto bf16 = Run(ProductPrecision::kBf16, {1}, 1, 1, values);
  ASSERT_TRUE(fp16.ok() && bf16.ok()) << fp16.status() << bf16.status();
  EXPECT_TRUE(std::isinf(fp16->out[0].data<float>()[0]));
  EXPECT_NEAR(bf16->out[0].data<float>()[0], 70000, 70000.0 / 256);
}

TEST_P(RoundedProductTest, SpecialNumbers) {
  const std::vector<float> values = {NAN, INFINITY, 1, -0.0f, 2, -INFINITY, 0.5f, 3, 4, 5};
  const auto exact = Run(ProductPrecision::kFp32, {3, 2}, 4, 3, values);
  for (const ProductPrecision precision : {ProductPrecision::kBf16, ProductPrecision::kFp16}) {
    const auto mixed = Run(precision, {3, 2}, 4, 3, values);
    ASSERT_TRUE(exact.ok() && mixed.ok()) << exact.status() << mixed.status();
    ExpectSame(*mixed, *exact);
  }
}

}  // namespace
}  // namespace weir
