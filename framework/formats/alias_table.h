// Numbers drawn with given probabilities, each in constant time (Walker 1977, in the construction of Vose 1991).
#ifndef WEIR_FRAMEWORK_FORMATS_ALIAS_TABLE_H_
#define WEIR_FRAMEWORK_FORMATS_ALIAS_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace weir {

// Immutable; thread-safe. Built of integers, so that every machine draws the same.
class AliasTable {
 public:
  // Number i is drawn as often as weights[i] says, rounded to 2^-32 of the largest, and never less. Weights are finite
  // and above 0; there are fewer than 2^31, and at least one.
  explicit AliasTable(absl::Span<const double> weights);

  size_t size() const { return keep_.size(); }
  // Returns the number that a uniform number of 64 bits stands for.
  size_t Draw(uint64_t bits) const {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(bits) * keep_.size();
    const auto cell = static_cast<size_t>(product >> 64);
    return static_cast<uint64_t>(product) <= keep_[cell] ? cell : other_[cell];
  }

 private:
  // A cell holds its own number, up to this part of its width, and one other.
  std::vector<uint64_t> keep_;  // in units of 2^-64
  std::vector<uint32_t> other_;
};

// Returns x to the power of `exponent`, of products and square roots alone, whose bits are the same on every machine.
// The exponent, from 0 to 16, is rounded to 2^-32. x is finite and not negative.
double Power(double x, double exponent);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_ALIAS_TABLE_H_
