#include "pserver/params/load_rows.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/row_file.h"
#include "framework/runtime/row_rule.h"
#include "glog/logging.h"
#include "pserver/tables/sparse_table.h"

namespace weir {
namespace {

std::string StatesText(const std::vector<std::pair<std::string, int>>& states) {
  std::string text;
  for (const auto& [name, width] : states) absl::StrAppend(&text, text.empty() ? "" : ", ", name, "[", width, "]");
  return states.empty() ? "none" : text;
}

// Returns whether rows of the file bring state.
absl::StatusOr<bool> BringsState(const std::string& file, const TableLayout& layout, const SparseTable& table) {
  if (layout.width != table.width()) {
    return absl::FailedPreconditionError(absl::StrCat("table ", table.name(), ": ", file, " has rows of width ",
                                                      layout.width, " (of table '", layout.table, "'); the job's has ",
                                                      table.width()));
  }
  if (layout.states.empty()) return false;
  std::vector<std::pair<std::string, int>> states;
  for (const RowRule::State& state : table.states()) states.emplace_back(state.name, state.width);
  if (states == layout.states) return true;
  return absl::FailedPreconditionError(absl::StrCat("table ", table.name(), ": ", file, " has state ",
                                                    StatesText(layout.states), "; the job's table has ",
                                                    StatesText(states), ": export the rows without --state"));
}

}  // namespace

absl::Status LoadRowFiles(const std::vector<std::string>& files, SparseTable* table) {
  const size_t width = static_cast<size_t>(table->width());
  const size_t floats = width + static_cast<size_t>(table->state_width());
  // Ids that a later file has spoken of. Files of changes are small beside the table.
  absl::flat_hash_set<int64_t> decided;
  for (size_t f = files.size(); f-- > 0;) {
    const std::string& file = files[f];
    ASSIGN_OR_RETURN(const std::unique_ptr<RowFileReader> reader, RowFileReader::Open(file));
    ASSIGN_OR_RETURN(const bool with_state, BringsState(file, reader->layout(), *table));
    int64_t loaded = 0;
    std::vector<int64_t> ids;
    std::vector<float> rows;
    for (int i = 0; i < reader->description().chunks_size(); ++i) {
      ASSIGN_OR_RETURN(const RowFileReader::Chunk chunk, reader->Read(i));
      ids.clear();
      rows.clear();
      const size_t from_floats = with_state ? floats : width;
      for (size_t r = 0; r < chunk.ids.size(); ++r) {
        if (!table->Owns(chunk.ids[r]) || decided.contains(chunk.ids[r])) continue;
        ids.push_back(chunk.ids[r]);
        const float* const from = chunk.rows.data() + r * from_floats;
        const size_t at = rows.size();
        rows.resize(at + floats, 0.0f);
        std::copy(from, from + from_floats, rows.data() + at);
        if (!with_state && table->rule() != nullptr) table->rule()->InitState(table->width(), rows.data() + at + width);
      }
      RETURN_IF_ERROR(table->SetRows(ids, rows.data()));
      loaded += static_cast<int64_t>(ids.size());
      if (f == 0) continue;
      decided.insert(ids.begin(), ids.end());
      for (const int64_t id : chunk.removed) {
        if (table->Owns(id)) decided.insert(id);
      }
    }
    LOG(INFO) << "table " << table->name() << ": " << loaded << " rows from " << file;
  }
  return absl::OkStatus();
}

}  // namespace weir
