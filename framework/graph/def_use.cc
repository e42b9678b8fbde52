#include "framework/graph/def_use.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "framework/graph/op_view.h"

namespace weir {

DefUse::DefUse(const v1::BlockDesc& block) {
  for (int i = 0; i < block.ops_size(); ++i) Add(i, block.ops(i));
}

int DefUse::OnlyWriter(std::string_view var) const {
  const absl::Span<const int> writers = Writers(var);
  return writers.size() == 1 ? writers[0] : -1;
}

void DefUse::Add(int place, const v1::OpDesc& op) {
  const auto add = [place](std::vector<int>* places) {
    places->insert(std::upper_bound(places->begin(), places->end(), place), place);
  };
  ForEachVar(op.inputs(), [&](const std::string& var) { add(&readers_[var]); });
  ForEachVar(op.outputs(), [&](const std::string& var) { add(&writers_[var]); });
}

void DefUse::Remove(int place, const v1::OpDesc& op) {
  ForEachVar(op.inputs(), [&](const std::string& var) { std::erase(readers_[var], place); });
  ForEachVar(op.outputs(), [&](const std::string& var) { std::erase(writers_[var], place); });
}

absl::Span<const int> DefUse::PlacesOf(const Places& places, std::string_view var) {
  const auto found = places.find(absl::string_view(var.data(), var.size()));
  return found == places.end() ? absl::Span<const int>() : absl::MakeConstSpan(found->second);
}

}  // namespace weir
