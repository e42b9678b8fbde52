#include "framework/collective/adasum.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/collective/stored.h"
#include "framework/runtime/lane_tree.h"
#include "glog/logging.h"

namespace weir {

namespace {

// Sums that run beside each other, so that the loop over a block is not one chain of additions.
constexpr int64_t kSums = 8;
static_assert(kAdasumBlock % kSums == 0);

template <typename Stored>
AdasumProducts ProductsAs(const Stored* a, const Stored* b, int64_t count) {
  double aa[kSums] = {}, bb[kSums] = {}, ab[kSums] = {};
  const auto add = [&](int64_t i, int64_t j) {
    const auto x = static_cast<double>(Widen(a[i])), y = static_cast<double>(Widen(b[i]));
    aa[j] += x * x;
    bb[j] += y * y;
    ab[j] += x * y;
  };
  const int64_t even = count / kSums * kSums;
  for (int64_t i = 0; i < even; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) add(i + j, j);
  }
  for (int64_t i = even; i < count; ++i) add(i, i - even);
  AdasumProducts sum;
  for (int64_t j = 0; j < kSums; ++j) sum += {aa[j], bb[j], ab[j]};
  return sum;
}

double FactorOf(double own, double both) { return own > 0 ? 1 - both / (2 * own) : 1; }

template <typename Stored>
void AdasumAs(const AdasumProducts& whole, const Stored* a, const Stored* b, int64_t count, Stored* out) {
  const double of_a = FactorOf(whole.aa, whole.ab), of_b = FactorOf(whole.bb, whole.ab);
  for (int64_t i = 0; i < count; ++i) {
    const double sum = of_a * static_cast<double>(Widen(a[i])) + of_b * static_cast<double>(Widen(b[i]));
    out[i] = Narrow<Stored>(static_cast<decltype(Widen(a[i]))>(sum));
  }
}

// Calls `use` with a pointer to the type.
template <typename Use>
void WithFloat(DType dtype, Use use) {
  switch (dtype) {
    case v1::FLOAT32:
      return use(static_cast<float*>(nullptr));
    case v1::FLOAT64:
      return use(static_cast<double*>(nullptr));
    case v1::FLOAT16:
      return use(static_cast<Float16Bits*>(nullptr));
    case v1::BFLOAT16:
      return use(static_cast<BFloat16Bits*>(nullptr));
    default:
      LOG(FATAL) << "no adasum of " << v1::DType_Name(dtype);
  }
}

}  // namespace

AdasumProducts ProductsOfBlock(DType dtype, const void* a, const void* b, int64_t count) {
  AdasumProducts products;
  WithFloat(dtype, [&]<typename T>(T* /*type*/) {
    products = ProductsAs(static_cast<const T*>(a), static_cast<const T*>(b), count);
  });
  return products;
}

void AdasumValues(DType dtype, const AdasumProducts& whole, const void* a, const void* b, int64_t count, void* out) {
  WithFloat(dtype, [&]<typename T>(T* /*type*/) {
    AdasumAs(whole, static_cast<const T*>(a), static_cast<const T*>(b), count, static_cast<T*>(out));
  });
}

void Adasum(DType dtype, absl::Span<const LaneAddend> addends, int lanes, int64_t count, void* out) {
  CHECK(!addends.empty());
  const auto element = static_cast<int64_t>(DTypeSize(dtype));
  const auto bytes = static_cast<size_t>(count * element);
  std::vector<LaneRange> present;
  std::vector<const char*> values;
  for (const LaneAddend& addend : addends) {
    present.push_back(addend.lanes);
    values.push_back(static_cast<const char*>(addend.values));
  }
  // Results of all nodes but the first one, which is that of the root.
  std::vector<std::vector<char>> results(addends.size());
  for (const LaneAdd& add : TreeAdds(present, lanes)) {
    const auto left = static_cast<size_t>(add.left), right = static_cast<size_t>(add.right);
    const char *const a = values[left], *const b = values[right];
    if (left > 0) results[left].resize(bytes);
    char* const to = left == 0 ? static_cast<char*>(out) : results[left].data();
    AdasumProducts whole;
    for (int64_t begin = 0; begin < count; begin += kAdasumBlock) {
      whole += ProductsOfBlock(dtype, a + begin * element, b + begin * element, std::min(kAdasumBlock, count - begin));
    }
    AdasumValues(dtype, whole, a, b, count, to);
    values[left] = to;
  }
  if (values[0] != out && bytes > 0) std::memcpy(out, values[0], bytes);
}

}  // namespace weir
