#include "pserver/params/persistent_rows.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

namespace weir {

PersistentRows::PersistentRows(SparseTable* table, std::optional<SparseTable::Memory> memory)
    : table_(table), memory_(memory) {
  layout_.logical_shards = static_cast<int>(table->logical_shards());
  if (!memory.has_value()) {
    layout_.table = table->name();
    layout_.width = table->width();
    layout_.zero_begin = table->zero_begin();
    layout_.zero_end = table->zero_end();
    for (const RowRule::State& state : table->states()) layout_.states.emplace_back(state.name, state.width);
    return;
  }
  layout_.table = absl::StrCat(table->name(), Suffix(*memory));
  layout_.width = 1;
  const std::vector<std::string>& words = table->words(*memory);
  for (size_t i = 1; i < words.size(); ++i) layout_.states.emplace_back(words[i], 1);
}

std::string PersistentRows::Suffix(SparseTable::Memory memory) {
  return memory == SparseTable::kCandidates ? "@candidates" : "@tombstones";
}

std::vector<PersistentRows> PersistentRows::Of(SparseTable* table) {
  std::vector<PersistentRows> all = {PersistentRows(table, std::nullopt)};
  for (const SparseTable::Memory memory : {SparseTable::kCandidates, SparseTable::kTombstones}) {
    if (!table->words(memory).empty()) all.push_back(PersistentRows(table, memory));
  }
  return all;
}

absl::Status PersistentRows::CopyStripe(int stripe, std::vector<int64_t>* ids, std::vector<float>* rows) const {
  if (!memory_.has_value()) return table_->CopyStripe(stripe, ids, rows);
  table_->CopyMemory(*memory_, stripe, ids, rows);
  return absl::OkStatus();
}

absl::Status PersistentRows::VisitStripe(int stripe, const std::function<void(int64_t, const float*)>& fn) const {
  if (!memory_.has_value()) return table_->VisitStripe(stripe, fn);
  const size_t words = table_->words(*memory_).size();
  std::vector<int64_t> ids;
  std::vector<float> rows;
  table_->CopyMemory(*memory_, stripe, &ids, &rows);
  for (size_t i = 0; i < ids.size(); ++i) fn(ids[i], rows.data() + i * words);
  return absl::OkStatus();
}

absl::Status PersistentRows::Add(absl::Span<const int64_t> ids, absl::Span<const float> rows) const {
  return memory_.has_value() ? table_->SetMemory(*memory_, ids, rows.data()) : table_->AddRows(ids, rows.data());
}

}  // namespace weir
