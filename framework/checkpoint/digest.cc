#include "framework/checkpoint/digest.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/stable_hash.h"

namespace weir {
namespace {

// Odd constants: index and bits of one element never cancel within the ranges they come from.
constexpr uint64_t kIndexFactor = 0x9e3779b97f4a7c15ULL;
constexpr uint64_t kBitsFactor = 0xc2b2ae3d27d4eb4fULL;

uint64_t ElementsDigest(uint64_t seed, int64_t begin, const float* values, int64_t count) {
  uint64_t sum = 0;
  uint64_t key = seed + static_cast<uint64_t>(begin) * kIndexFactor;
  for (int64_t i = 0; i < count; ++i, key += kIndexFactor) {
    sum += MixId(key ^ (std::bit_cast<uint32_t>(values[i]) * kBitsFactor));
  }
  return sum;
}

uint64_t OneRow(uint64_t seed, int64_t id, absl::Span<const float> row) {
  return MixId(StableHash(row.data(), row.size() * sizeof(float)) ^ MixId(seed + static_cast<uint64_t>(id)));
}

}  // namespace

uint64_t DenseDigest(std::string_view name, int64_t element_begin, absl::Span<const float> values) {
  return ElementsDigest(StableHash(name), element_begin, values.data(), static_cast<int64_t>(values.size()));
}

uint64_t RowDigest(std::string_view table, int64_t id, absl::Span<const float> row) {
  return OneRow(StableHash(table), id, row);
}

std::string StateVariable(std::string_view variable, std::string_view state_name) {
  std::string name(variable);
  name.append(".").append(state_name);
  return name;
}

VariableDigestSum& VariableDigestSum::operator+=(const VariableDigestSum& other) {
  values += other.values;
  state += other.state;
  for (int i = 0; i < kDigestRanges; ++i) ranges[i] += other.ranges[i];
  return *this;
}

VariableDigester::VariableDigester(std::string_view name, int64_t size)
    : name_(name), size_(std::max<int64_t>(size, 1)), seed_(StableHash(name)) {}

void VariableDigester::AddValues(int64_t element_begin, absl::Span<const float> values) {
  const int64_t end = element_begin + static_cast<int64_t>(values.size());
  for (int64_t at = element_begin; at < end;) {
    const int64_t range = static_cast<int64_t>(static_cast<__int128>(at) * kDigestRanges / size_);
    // First element of the next range.
    const int64_t next =
        static_cast<int64_t>((static_cast<__int128>(range + 1) * size_ + kDigestRanges - 1) / kDigestRanges);
    const int64_t stop = std::min(end, std::max(next, at + 1));
    const uint64_t digest = ElementsDigest(seed_, at, values.data() + (at - element_begin), stop - at);
    sum_.values += digest;
    sum_.ranges[std::min<int64_t>(range, kDigestRanges - 1)] += digest;
    at = stop;
  }
}

void VariableDigester::AddState(std::string_view state_name, int64_t element_begin, absl::Span<const float> values) {
  sum_.state += DenseDigest(StateVariable(name_, state_name), element_begin, values);
}

void VariableDigester::AddScalarState(std::string_view state_name, int64_t block_element_begin,
                                      absl::Span<const float> values) {
  if (block_element_begin == 0) AddState(state_name, 0, values);
}

void VariableDigester::AddRow(int64_t id, absl::Span<const float> values, absl::Span<const float> state) {
  const uint64_t digest = OneRow(seed_, id, values);
  sum_.values += digest;
  sum_.ranges[static_cast<int64_t>(LogicalShard(id, static_cast<uint32_t>(size_))) * kDigestRanges / size_] += digest;
  if (!state.empty()) sum_.state += OneRow(seed_, id, state);
}

VariableDigestSum Total(const DigestTable& table) {
  VariableDigestSum total;
  for (const auto& [name, sum] : table) total += sum;
  return total;
}

std::string DigestHex(uint64_t digest) { return absl::StrFormat("%016x", digest); }

}  // namespace weir
