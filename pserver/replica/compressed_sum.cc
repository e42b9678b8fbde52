#include "pserver/replica/compressed_sum.h"

#include <algorithm>
#include <cmath>

#include "framework/collective/stored.h"
#include "glog/logging.h"

namespace weir {

namespace {

// Rounds sums + residuals into out, and sets `left` to what that takes from them.
template <typename Stored>
void Round(const float* sums, absl::Span<const float> residuals, uint16_t* out, float* left) {
  for (size_t i = 0; i < residuals.size(); ++i) {
    const float value = sums[i] + residuals[i];
    const auto rounded = Narrow<Stored>(value);
    out[i] = rounded.bits;
    const float rest = value - Widen(rounded);
    // The step is skipped then.
    left[i] = std::isfinite(rest) ? rest : 0;
  }
}

// Returns whether all are finite.
template <typename Stored>
bool Read(absl::Span<const uint16_t> values, float* out) {
  bool finite = true;
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = Widen(Stored{values[i]});
    finite &= std::isfinite(out[i]);
  }
  return finite;
}

}  // namespace

CompressedSum::CompressedSum(DType format, const std::vector<Segment>& segments, const ResidualMemory& residuals)
    : format_(format) {
  CHECK(format == v1::FLOAT16 || format == v1::BFLOAT16);
  size_t count = 0;
  for (const Segment& segment : segments) count += static_cast<size_t>(segment.count);
  values_.resize(count);
  left_.resize(count);
  if (residuals == nullptr) own_.resize(count);
  size_t begin = 0;
  for (const Segment& segment : segments) {
    const auto size = static_cast<size_t>(segment.count);
    residuals_.push_back(residuals == nullptr ? absl::MakeSpan(own_).subspan(begin, size)
                                              : residuals(segment.parameter, segment.count));
    CHECK_EQ(residuals_.back().size(), size) << segment.parameter;
    begin += size;
  }
}

void* CompressedSum::Pack(absl::Span<const float* const> sums) {
  CHECK_EQ(sums.size(), residuals_.size());
  size_t begin = 0;
  for (size_t s = 0; s < sums.size(); ++s) {
    const absl::Span<const float> residuals = residuals_[s];
    if (sums[s] == nullptr) {
      std::copy(residuals.begin(), residuals.end(), left_.begin() + static_cast<std::ptrdiff_t>(begin));
    } else if (format_ == v1::FLOAT16) {
      Round<Float16Bits>(sums[s], residuals, values_.data() + begin, left_.data() + begin);
    } else {
      Round<BFloat16Bits>(sums[s], residuals, values_.data() + begin, left_.data() + begin);
    }
    begin += residuals.size();
  }
  return values_.data();
}

bool CompressedSum::Unpack(const std::function<bool(size_t segment)>& present, float* out) const {
  bool finite = true;
  size_t begin = 0;
  for (size_t s = 0; s < residuals_.size(); ++s) {
    const size_t size = residuals_[s].size();
    const auto values = absl::MakeConstSpan(values_).subspan(begin, size);
    if (present(s)) {
      finite &=
          format_ == v1::FLOAT16 ? Read<Float16Bits>(values, out + begin) : Read<BFloat16Bits>(values, out + begin);
    }
    begin += size;
  }
  return finite;
}

void CompressedSum::Keep() {
  const float* from = left_.data();
  for (const absl::Span<float> residuals : residuals_) {
    std::copy_n(from, residuals.size(), residuals.begin());
    from += residuals.size();
  }
}

}  // namespace weir
