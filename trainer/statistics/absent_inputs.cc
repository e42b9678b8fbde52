#include "trainer/statistics/absent_inputs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weir {

void AbsentInputs::Meet(const AbsentInputs& other) {
  whole = whole && other.whole;
  std::vector<uint32_t> both;
  std::set_intersection(places.begin(), places.end(), other.places.begin(), other.places.end(),
                        std::back_inserter(both));
  places = std::move(both);
}

std::string AbsentInputs::Serialize() const {
  std::string text = whole ? "1" : "0";
  for (const uint32_t place : places) absl::StrAppend(&text, ",", place);
  return text;
}

std::optional<AbsentInputs> AbsentInputs::Parse(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  if (parts[0] != "0" && parts[0] != "1") return std::nullopt;
  AbsentInputs absent = {.whole = parts[0] == "1"};
  for (size_t i = 1; i < parts.size(); ++i) {
    uint32_t place = 0;
    if (!absl::SimpleAtoi(parts[i], &place) || (i > 1 && place <= absent.places.back())) return std::nullopt;
    absent.places.push_back(place);
  }
  return absent;
}

}  // namespace weir
