// Digests of parameters: one number over all values and one over all optimizer state of a job.
//
// A digest is a sum modulo 2^64, over dense elements of a hash of (name, element index, bits) and over table rows of a
// hash of (table, id, bits of the row). It does not depend on servers, slices or order, and digests of parts add up.
// Equal digests mean equal bits (up to a chance of 2^-64). Scheme version 1; it must not change, because checkpoints
// store digests.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_DIGEST_H_
#define WEIR_FRAMEWORK_CHECKPOINT_DIGEST_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace weir {

// Digests elements [element_begin, element_begin + values.size()) of the whole variable `name`.
uint64_t DenseDigest(std::string_view name, int64_t element_begin, absl::Span<const float> values);
// Digests one row of a table (its values, or its state).
uint64_t RowDigest(std::string_view table, int64_t id, absl::Span<const float> row);

// Returns the name of optimizer state in digests, shard files and exports: "fc_0.w" + "moment1" -> "fc_0.w.moment1".
std::string StateVariable(std::string_view variable, std::string_view state_name);

inline constexpr int kDigestRanges = 64;

// Digests of one variable or table: sums over the parts of its owners.
struct VariableDigestSum {
  uint64_t values = 0;
  uint64_t state = 0;
  // Values only: element e of a variable of n elements is in range e * 64 / n, a row in range shard * 64 / shards.
  std::array<uint64_t, kDigestRanges> ranges = {};

  VariableDigestSum& operator+=(const VariableDigestSum& other);
};

// Digests one variable or table. Not thread-safe; several digesters may work on parts of one variable, their sums add
// up.
class VariableDigester {
 public:
  // `size`: elements of the whole variable, or logical shards of the table.
  VariableDigester(std::string_view name, int64_t size);

  void AddValues(int64_t element_begin, absl::Span<const float> values);
  // Adds state with the shape of the variable.
  void AddState(std::string_view state_name, int64_t element_begin, absl::Span<const float> values);
  // Adds a count or power that every owner of a block keeps with equal value: it is digested once, for the block at
  // element 0.
  void AddScalarState(std::string_view state_name, int64_t block_element_begin, absl::Span<const float> values);
  // Adds a row [values | state].
  void AddRow(int64_t id, absl::Span<const float> values, absl::Span<const float> state);

  const std::string& name() const { return name_; }
  const VariableDigestSum& sum() const { return sum_; }

 private:
  std::string name_;
  int64_t size_;
  uint64_t seed_;
  VariableDigestSum sum_;
};

// Digests by name of the variable, sorted.
using DigestTable = std::map<std::string, VariableDigestSum, std::less<>>;

// Returns the sum over all variables (ranges added position by position).
VariableDigestSum Total(const DigestTable& table);

// Returns 16 hexadecimal digits, the form of digests in log lines and tools.
std::string DigestHex(uint64_t digest);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_DIGEST_H_
