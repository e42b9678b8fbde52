#include "framework/collective/reduction.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "framework/collective/stored.h"
#include "glog/logging.h"

namespace weir {

namespace {

// Elements that are reduced at a time: all addends of a block stay in the first cache.
constexpr int64_t kBlock = 2048;

template <typename T>
T Least(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? a : b;
  }
  return b < a ? b : a;
}
template <typename T>
T Greatest(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}
// Integers wrap around.
template <typename T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}
template <typename T>
T Product(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return a * b;
  }
}

// out[i] = op(a[i], b[i]); out may be a or b.
template <typename T, typename A, typename B, typename Op>
void Each(const A* a, const B* b, int64_t count, T* out, Op op) {
  for (int64_t i = 0; i < count; ++i) out[i] = op(Widen(a[i]), Widen(b[i]));
}
template <typename T, typename A, typename B>
void Combine(Reduction reduction, const A* a, const B* b, int64_t count, T* out) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      return Each(a, b, count, out, [](T x, T y) { return Sum(x, y); });
    case Reduction::kMin:
      return Each(a, b, count, out, [](T x, T y) { return Least(x, y); });
    case Reduction::kMax:
      return Each(a, b, count, out, [](T x, T y) { return Greatest(x, y); });
    case Reduction::kProduct:
      return Each(a, b, count, out, [](T x, T y) { return Product(x, y); });
    case Reduction::kAdasum:
      break;
  }
  LOG(FATAL) << "adasum is not elementwise";
}

// Calls `use` with a pointer to the type.
template <typename Use>
void WithType(DType dtype, Use use) {
  switch (dtype) {
    case v1::FLOAT32:
      return use(static_cast<float*>(nullptr));
    case v1::FLOAT64:
      return use(static_cast<double*>(nullptr));
    case v1::INT32:
      return use(static_cast<int32_t*>(nullptr));
    case v1::INT64:
      return use(static_cast<int64_t*>(nullptr));
    default:
      LOG(FATAL) << "not a type of 32 or 64 bits: " << v1::DType_Name(dtype);
  }
}

}  // namespace

std::string_view ReductionName(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kAverage:
      return "average";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
    case Reduction::kProduct:
      return "product";
    case Reduction::kAdasum:
      return "adasum";
  }
  return "";
}

bool CanReduce(Reduction reduction, DType dtype) {
  switch (dtype) {
    case v1::FLOAT32:
    case v1::FLOAT64:
    case v1::FLOAT16:
    case v1::BFLOAT16:
      return true;
    case v1::INT32:
    case v1::INT64:
      return reduction != Reduction::kAverage && reduction != Reduction::kAdasum;
    case v1::BOOL:
    case v1::UINT8:
    case v1::DTYPE_UNSET:
      return false;
  }
  return false;
}

template <typename Stored, typename SumType>
void TreeReducer::ReduceAs(absl::Span<const LaneAddend> addends, int64_t samples, int64_t count, void* out,
                           float* lost) {
  const std::vector<LaneAdd> adds = [&] {
    std::vector<LaneRange> present;
    for (const LaneAddend& addend : addends) present.push_back(addend.lanes);
    return TreeAdds(present, lanes_);
  }();
  // Sums of addend i of a block stand in part i of the scratch once something was added to it.
  scratch_.resize(addends.size() * kBlock * sizeof(SumType));
  auto* const sums = reinterpret_cast<SumType*>(scratch_.data());
  std::vector<bool> in_scratch(addends.size());
  auto* const results = static_cast<Stored*>(out);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    std::fill(in_scratch.begin(), in_scratch.end(), false);
    const auto stored = [&](int i) {
      return static_cast<const Stored*>(addends[static_cast<size_t>(i)].values) + begin;
    };
    const auto sum = [&](int i) { return sums + i * kBlock; };
    Stored* const to = results + begin;
    const bool divide = reduction_ == Reduction::kAverage;
    for (const LaneAdd& add : adds) {
      const bool left = in_scratch[static_cast<size_t>(add.left)], right = in_scratch[static_cast<size_t>(add.right)];
      SumType* into = sum(add.left);
      if constexpr (std::is_same_v<Stored, SumType>) {
        // The last sum is the result, unless it is divided.
        if (&add == &adds.back() && !divide) into = to;
      }
      if (left && right) {
        Combine(reduction_, sum(add.left), sum(add.right), size, into);
      } else if (left) {
        Combine(reduction_, sum(add.left), stored(add.right), size, into);
      } else if (right) {
        Combine(reduction_, stored(add.left), sum(add.right), size, into);
      } else {
        Combine(reduction_, stored(add.left), stored(add.right), size, into);
      }
      in_scratch[static_cast<size_t>(add.left)] = true;
    }
    if (std::is_same_v<Stored, SumType> && !divide && !adds.empty()) continue;
    if (!divide && adds.empty()) {
      if (to != stored(0)) std::memcpy(to, stored(0), static_cast<size_t>(size) * sizeof(Stored));
      continue;
    }
    const auto finish = [&](const auto* values) {
      const auto each = [&](auto result) {
        for (int64_t i = 0; i < size; ++i) {
          const SumType sum = result(i);
          to[i] = Narrow<Stored>(sum);
          if constexpr (!std::is_same_v<Stored, SumType>) {
            if (lost == nullptr) continue;
            const float rest = sum - Widen(to[i]);
            if (std::isfinite(rest)) lost[begin + i] += rest;
          }
        }
      };
      if constexpr (std::is_floating_point_v<SumType>) {
        const auto divisor = static_cast<SumType>(samples);
        if (divide) return each([=](int64_t i) { return Widen(values[i]) / divisor; });
      }
      each([=](int64_t i) { return Widen(values[i]); });
    };
    if (adds.empty()) {
      finish(stored(0));
    } else {
      finish(sum(0));
    }
  }
}

void TreeReducer::Reduce(absl::Span<const LaneAddend> addends, int64_t samples, int64_t count, void* out, float* lost) {
  CHECK(!addends.empty());
  switch (dtype_) {
    case v1::FLOAT32:
      return ReduceAs<float, float>(addends, samples, count, out, lost);
    case v1::FLOAT64:
      return ReduceAs<double, double>(addends, samples, count, out, lost);
    case v1::INT32:
      return ReduceAs<int32_t, int32_t>(addends, samples, count, out, lost);
    case v1::INT64:
      return ReduceAs<int64_t, int64_t>(addends, samples, count, out, lost);
    case v1::FLOAT16:
      return ReduceAs<Float16Bits, float>(addends, samples, count, out, lost);
    case v1::BFLOAT16:
      return ReduceAs<BFloat16Bits, float>(addends, samples, count, out, lost);
    case v1::BOOL:
    case v1::UINT8:
    case v1::DTYPE_UNSET:
      break;
  }
  LOG(FATAL) << "no reduction of " << v1::DType_Name(dtype_);
}

void AddValues(DType dtype, const void* a, const void* b, int64_t count, void* out) {
  WithType(dtype, [&]<typename T>(T* /*type*/) {
    Combine(Reduction::kSum, static_cast<const T*>(a), static_cast<const T*>(b), count, static_cast<T*>(out));
  });
}

void DivideValues(DType dtype, int64_t divisor, int64_t count, void* values) {
  WithType(dtype, [&]<typename T>(T* /*type*/) {
    auto* const to = static_cast<T*>(values);
    for (int64_t i = 0; i < count; ++i) to[i] /= static_cast<T>(divisor);
  });
}

}  // namespace weir
