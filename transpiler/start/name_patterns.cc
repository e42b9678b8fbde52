#include "transpiler/start/name_patterns.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace weir {

std::string QuotedName(std::string_view name) { return RE2::QuoteMeta(re2::StringPiece(name.data(), name.size())); }

NamePatterns NamePatterns::Of(const google::protobuf::RepeatedPtrField<std::string>& patterns) {
  NamePatterns all;
  for (const std::string& text : patterns) {
    Each each{.pattern = std::make_unique<const RE2>(text, RE2::Quiet)};
    CHECK(each.pattern->ok()) << text;
    all.patterns_.push_back(std::move(each));
  }
  return all;
}

bool NamePatterns::Matches(std::string_view name) {
  bool matches = false;
  for (Each& each : patterns_) {
    if (!RE2::FullMatch(re2::StringPiece(name.data(), name.size()), *each.pattern)) continue;
    each.used = true;
    matches = true;
  }
  return matches;
}

bool NamePatterns::Has(std::string_view name) const {
  return std::any_of(patterns_.begin(), patterns_.end(), [&](const Each& each) {
    return RE2::FullMatch(re2::StringPiece(name.data(), name.size()), *each.pattern);
  });
}

std::string NamePatterns::Unused() const {
  for (const Each& each : patterns_) {
    if (!each.used) return each.pattern->pattern();
  }
  return "";
}

}  // namespace weir
