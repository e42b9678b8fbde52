#include "trainer/predict/parts.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/feature_id.h"
#include "framework/base/status_macros.h"
#include "re2/re2.h"

namespace weir {
namespace {

struct NamedPlace {
  std::string name;
  std::string column;
  InputPlace place;
};

std::vector<NamedPlace> PlacesOf(const v1::Data& data, const std::vector<Column>& columns,
                                 const std::vector<size_t>& read) {
  const auto& shared = data.ids().shared();
  std::vector<NamedPlace> places;
  for (const size_t c : read) {
    const Column& column = columns[c];
    const std::string& ids_of = column.ids_of.empty() ? column.name : column.ids_of;
    const bool is_shared = std::find(shared.begin(), shared.end(), ids_of) != shared.end();
    for (int64_t at = 0; at < column.width; ++at) {
      InputPlace place{.column = c, .at = at};
      if (column.kind == v1::IDS) {
        place.missing_id = MissingId(SlotSalt(ids_of, is_shared ? "" : column.slot_names[static_cast<size_t>(at)]));
      }
      places.push_back({PlaceName(column, at), column.name, place});
    }
  }
  return places;
}

std::string KnownNames(const std::vector<NamedPlace>& places) {
  constexpr size_t kMost = 40;
  std::vector<std::string> names;
  for (const NamedPlace& place : places) {
    if (names.size() == kMost) break;
    names.push_back(place.name);
  }
  return absl::StrCat(absl::StrJoin(names, ", "),
                      places.size() > kMost ? absl::StrCat(" and ", places.size() - kMost, " more") : "");
}

// Gives the places that one of `together` names the number of its part. Returns the part's number by place; -1: alone.
absl::StatusOr<std::vector<int>> PartsTogether(const std::vector<NamedPlace>& places,
                                               const std::vector<std::string>& together) {
  std::vector<int> part(places.size(), -1);
  for (size_t t = 0; t < together.size(); ++t) {
    const std::vector<std::string> names = absl::StrSplit(together[t], '+');
    for (const std::string& name : names) {
      bool found = false;
      for (size_t i = 0; i < places.size(); ++i) {
        if (places[i].name != name && places[i].column != name) continue;
        if (part[i] >= 0 && part[i] != static_cast<int>(t)) {
          return absl::InvalidArgumentError(absl::StrCat("--together: ", places[i].name, " is in '", together[t],
                                                         "' and in '", together[static_cast<size_t>(part[i])],
                                                         "': name it once"));
        }
        part[i] = static_cast<int>(t);
        found = true;
      }
      if (found) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--together: the prediction reads no '", name, "'; it reads ", KnownNames(places)));
    }
  }
  return part;
}

}  // namespace

std::string PlaceName(const Column& column, int64_t at) {
  if (column.width == 1) return column.name;
  const auto index = static_cast<size_t>(at);
  const std::vector<std::string>& names = column.kind == v1::IDS ? column.slot_names : column.value_names;
  if (index < names.size() && !names[index].empty()) {
    // A reader may call a value "x[2]" by itself.
    const bool has_column = names[index].starts_with(absl::StrCat(column.name, "["));
    return has_column ? names[index] : absl::StrCat(column.name, ".", names[index]);
  }
  return absl::StrCat(column.name, "[", at, "]");
}

absl::StatusOr<std::vector<Part>> MakeParts(const v1::Data& data, const std::vector<Column>& columns,
                                            const std::vector<size_t>& read, const std::vector<std::string>& wanted,
                                            const std::vector<std::string>& together) {
  const std::vector<NamedPlace> places = PlacesOf(data, columns, read);
  ASSIGN_OR_RETURN(const std::vector<int> part_of, PartsTogether(places, together));
  std::vector<Part> parts;
  std::map<int, size_t> known;
  for (size_t i = 0; i < places.size(); ++i) {
    const int t = part_of[i];
    const auto [entry, is_new] = known.try_emplace(t, parts.size());
    if (t >= 0 && !is_new) {
      parts[entry->second].places.push_back(places[i].place);
    } else {
      parts.push_back({t < 0 ? places[i].name : together[static_cast<size_t>(t)], {places[i].place}});
    }
  }
  if (wanted.empty()) return parts;
  std::set<std::string> kept;
  for (const std::string& text : wanted) {
    const RE2 pattern(text, RE2::Quiet);
    if (!pattern.ok()) return absl::InvalidArgumentError(absl::StrCat("--parts: '", text, "': ", pattern.error()));
    bool found = false;
    for (const Part& part : parts) {
      // The name of a place may have brackets, which a pattern needs escaped.
      if (part.name != text && !RE2::FullMatch(part.name, pattern)) continue;
      kept.insert(part.name);
      found = true;
    }
    if (found) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--parts: '", text, "' matches nothing that the prediction reads: ", KnownNames(places)));
  }
  std::erase_if(parts, [&](const Part& part) { return !kept.contains(part.name); });
  return parts;
}

}  // namespace weir
