#include "tools/launching/gpus.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

// More than any machine has.
constexpr int kMostGpus = 1024;

bool IsNumber(const std::string& text) {
  return !text.empty() && text.size() <= 6 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
}

std::vector<std::string> Entries(const std::string& text) {
  std::vector<std::string> entries = absl::StrSplit(text, ',');
  for (std::string& entry : entries) absl::StripAsciiWhitespace(&entry);
  return entries;
}

// "--gpus=0,9", with the host if it is another one.
std::string Source(const std::string& flag, const std::string& machine) {
  return absl::StrCat("--gpus=", flag, machine.empty() ? "" : " on ", machine);
}

// Entries of the flag: numbers or names.
absl::StatusOr<std::vector<std::string>> Wanted(const std::string& flag, const std::string& source) {
  std::vector<std::string> wanted;
  if (IsNumber(flag)) {
    int count = 0;
    if (!absl::SimpleAtoi(flag, &count) || count > kMostGpus) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": at most ", kMostGpus));
    }
    for (int i = 0; i < count; ++i) wanted.push_back(absl::StrCat(i));
    return wanted;
  }
  wanted = Entries(flag);
  if (wanted.size() > 1 && wanted.back().empty()) wanted.pop_back();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string& entry = wanted[i];
    const bool named = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if (!IsNumber(entry) && !named) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": '", entry,
                                                     "' is no device; give a count such as 4, or a list of numbers or "
                                                     "names with a comma in it, such as 0,2 or 2,"));
    }
    if (std::find(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(i), entry) !=
        wanted.begin() + static_cast<std::ptrdiff_t>(i)) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": device ", entry, " is there twice"));
    }
  }
  return wanted;
}

}  // namespace

absl::StatusOr<std::string> ChooseGpus(std::string_view flag, const std::optional<std::string>& visible, int trainers,
                                       std::string_view machine) {
  const std::string source = Source(std::string(flag), std::string(machine));
  ASSIGN_OR_RETURN(std::vector<std::string> chosen, Wanted(std::string(flag), source));
  if (static_cast<int>(chosen.size()) < trainers) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": ", chosen.size(), chosen.size() == 1 ? " device" : " devices", " for ", trainers,
                     trainers == 1 ? " trainer" : " trainers", "; every trainer needs one of its own"));
  }
  chosen.resize(static_cast<size_t>(trainers));
  if (!visible.has_value()) return absl::StrJoin(chosen, ",");
  // An empty value shows no device.
  const std::vector<std::string> there =
      absl::StripAsciiWhitespace(*visible).empty() ? std::vector<std::string>() : Entries(*visible);
  for (std::string& entry : chosen) {
    size_t index = there.size();
    if (IsNumber(entry)) {
      if (!absl::SimpleAtoi(entry, &index)) index = there.size();
    } else {
      index = static_cast<size_t>(std::find(there.begin(), there.end(), entry) - there.begin());
    }
    if (index >= there.size()) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": device ", entry, " is not among the ", there.size(),
                                                     " of CUDA_VISIBLE_DEVICES=", *visible,
                                                     ", which the numbers of --gpus count"));
    }
    entry = there[index];
  }
  return absl::StrJoin(chosen, ",");
}

}  // namespace weir
