#include "trainer/statistics/seen_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/files/open_records.h"

namespace weir {
namespace {

template <typename T>
T Load(const char* values, size_t place) {
  T value;
  std::memcpy(&value, values + place * sizeof(T), sizeof(T));
  return value;
}

bool IsIn(const NamedInput& input, const char* floats, const char* counts) {
  if (input.ids) return counts == nullptr || Load<uint16_t>(counts, input.place) > 0;
  for (size_t i = 0; i < input.width; ++i) {
    const float x = Load<float>(floats, input.place + i);
    if (!std::isnan(x) && !(input.zero_if_absent && x == 0)) return true;
  }
  return false;
}

}  // namespace

std::vector<NamedInput> ExpectedInputs(const LineParser& parser, const v1::Data& config) {
  std::vector<NamedInput> inputs = parser.named_inputs();
  std::erase_if(inputs, [&](const NamedInput& input) {
    return std::find(config.may_be_absent().begin(), config.may_be_absent().end(), input.name) !=
           config.may_be_absent().end();
  });
  return inputs;
}

SeenInputs::SeenInputs(std::vector<NamedInput> inputs) : inputs_(std::move(inputs)), seen_(inputs_.size()) {}

std::vector<uint32_t> SeenInputs::All() const {
  std::vector<uint32_t> all(inputs_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint32_t>(i);
  return all;
}

void SeenInputs::Look(const char* floats, const char* counts, std::vector<uint32_t>* open) {
  std::erase_if(*open, [&](uint32_t place) {
    std::atomic<bool>& seen = seen_[place];
    if (seen.load(std::memory_order_relaxed)) return true;
    if (!IsIn(inputs_[place], floats, counts)) return false;
    seen.store(true, std::memory_order_relaxed);
    return true;
  });
}

void SeenInputs::SeeAllBut(const std::set<std::string>& names) {
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (!names.contains(inputs_[i].name)) seen_[i].store(true, std::memory_order_relaxed);
  }
}

std::vector<uint32_t> SeenInputs::Absent() const {
  std::vector<uint32_t> absent = All();
  std::erase_if(absent, [&](uint32_t place) { return seen_[place].load(std::memory_order_relaxed); });
  return absent;
}

std::string NamesOf(const std::vector<NamedInput>& inputs, absl::Span<const uint32_t> places) {
  constexpr size_t kMost = 5;  // names in a message
  std::vector<std::string> names;
  for (size_t i = 0; i < places.size() && i < kMost; ++i) {
    if (places[i] < inputs.size()) names.push_back(inputs[places[i]].what);
  }
  if (places.size() > kMost) names.push_back(absl::StrCat(places.size() - kMost, " more"));
  if (names.size() < 2) return absl::StrJoin(names, "");
  const std::string last = std::move(names.back());
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " and ", last);
}

std::string InFirstRecord(const LineParser& parser, const DataSet& data) {
  if (data.files().empty()) return "";
  const DataFile& file = data.files().front();
  if (file.examples != nullptr || file.pipe != nullptr) return "";
  const auto source = OpenRecords(file, {.begin = 0, .end = file.bytes});
  std::string_view record;
  int64_t offset = 0;
  if (!source.ok() || !(*source)->Next(&record, &offset)) return "";
  const std::string names = parser.NamesIn(record);
  return names.empty() ? "" : absl::StrCat("; the first record of ", file.name, " has ", names);
}

}  // namespace weir
