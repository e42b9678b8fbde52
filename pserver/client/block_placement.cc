#include "pserver/client/block_placement.h"

#include "absl/strings/str_cat.h"

namespace weir {

BlockPlacement::BlockPlacement(const v1::Plan* plan) : plan_(*plan) {
  for (const v1::PlacedTable& table : plan_.tables()) tables_[table.name()] = &table;
  for (const v1::FetchedRows& fetched : plan_.fetched_rows()) fetched_[fetched.parameter()].rows = fetched.rows();
  for (const v1::PlacedBlock& block : plan_.blocks()) {
    block_counts_[block.name()] = block.element_count();
    if (block.sparse_gradient() && block.dims_size() == 2) row_widths_[block.name()] = static_cast<int>(block.dims(1));
    const auto fetched = fetched_.find(block.parameter());
    if (fetched == fetched_.end() || block.dims_size() != 2) continue;
    const int64_t begin = block.dims(1) == 0 ? 0 : block.element_begin() / block.dims(1);
    fetched->second.blocks.push_back({block.name(), block.server(), begin, begin + block.dims(0)});
  }
}

std::optional<int64_t> BlockPlacement::BlockCount(std::string_view name) const {
  const auto found = block_counts_.find(name);
  return found == block_counts_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int64_t> BlockPlacement::BlockCount(const BlockRef& block) const {
  if (block.server < 0 || block.server >= plan_.servers()) return std::nullopt;
  return BlockCount(block.name);
}

int BlockPlacement::RowWidth(std::string_view name) const {
  if (const v1::PlacedTable* const table = FindTable(name)) return table->width();
  const auto found = row_widths_.find(name);
  return found == row_widths_.end() ? 0 : found->second;
}

const v1::PlacedTable* BlockPlacement::FindTable(std::string_view name) const {
  const auto found = tables_.find(name);
  return found == tables_.end() ? nullptr : found->second;
}

const FetchedParameter* BlockPlacement::FindFetched(std::string_view name) const {
  const auto found = fetched_.find(name);
  return found == fetched_.end() ? nullptr : &found->second;
}

absl::Status BlockPlacement::NoBlock(const BlockRef& block) {
  return absl::InvalidArgumentError(absl::StrCat("the plan has no block ", block.name, " on server ", block.server));
}

}  // namespace weir
