#include "framework/checkpoint/table_reader.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

// Bytes of rows of both checkpoints that one range of shards holds in memory.
constexpr int64_t kRangeBytes = int64_t{128} << 20;

TableLayout LayoutOf(const v1::TableEntry& e) {
  TableLayout layout{.table = e.table(),
                     .width = e.width(),
                     .logical_shards = e.logical_shards(),
                     .zero_begin = e.zero_begin(),
                     .zero_end = e.zero_end()};
  for (int i = 0; i < e.state_names_size(); ++i) layout.states.emplace_back(e.state_names(i), e.state_widths(i));
  return layout;
}

bool SameLayout(const TableLayout& a, const TableLayout& b) {
  return a.width == b.width && a.logical_shards == b.logical_shards && a.states == b.states;
}

// Returns row i of the rows that were read.
const float* RowOf(const TableRowsRead& read, size_t i, size_t floats) { return read.rows.data() + i * floats; }

}  // namespace

absl::StatusOr<TableReader> TableReader::Open(const std::string& directory, const v1::CheckpointManifest& manifest,
                                              std::string_view table) {
  TableReader opened;
  std::set<std::string> names;
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    bool has = false;
    for (const v1::TableEntry& e : shard.tables()) {
      names.insert(e.table());
      has |= e.table() == table;
    }
    if (!has) continue;
    // Open checks the entries before they are used below.
    ASSIGN_OR_RETURN(std::unique_ptr<ShardReader> reader, ShardReader::Open(directory, shard, /*check_sum=*/false));
    opened.readers_.push_back(std::move(reader));
    for (const v1::TableEntry& e : shard.tables()) {
      if (e.table() != table) continue;
      const TableLayout layout = LayoutOf(e);
      if (opened.layout_.table.empty()) opened.layout_ = layout;
      if (!SameLayout(layout, opened.layout_)) {
        return absl::DataLossError(absl::StrCat(directory, ": table '", e.table(), "' has two layouts"));
      }
      opened.rows_ += e.row_count();
    }
  }
  if (opened.readers_.empty()) {
    return absl::NotFoundError(absl::StrCat(directory, " has no table '", absl::string_view(table.data(), table.size()),
                                            "'; it has ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
  }
  return opened;
}

absl::StatusOr<TableRowsRead> TableReader::Read(uint32_t begin, uint32_t end) const {
  const uint32_t shards = static_cast<uint32_t>(layout_.logical_shards);
  const size_t floats = static_cast<size_t>(layout_.width) + static_cast<size_t>(layout_.state_width());
  TableRowsRead found;
  for (const auto& reader : readers_) {
    for (int i = 0; i < reader->shard().tables_size(); ++i) {
      const v1::TableEntry& e = reader->shard().tables(i);
      if (e.table() != layout_.table) continue;
      if (e.has_shard_end() &&
          (static_cast<uint32_t>(e.shard_begin()) >= end || static_cast<uint32_t>(e.shard_end()) <= begin))
        continue;
      RETURN_IF_ERROR(reader->ReadTable(i, [&](absl::Span<const int64_t> ids, absl::Span<const float> rows) {
        for (size_t r = 0; r < ids.size(); ++r) {
          const uint32_t shard = LogicalShard(ids[r], shards);
          if (shard < begin || shard >= end) continue;
          found.ids.push_back(ids[r]);
          found.rows.insert(found.rows.end(), rows.begin() + r * floats, rows.begin() + (r + 1) * floats);
        }
        return absl::OkStatus();
      }));
    }
  }
  const auto before = [shards](int64_t a, int64_t b) {
    const uint32_t of_a = LogicalShard(a, shards), of_b = LogicalShard(b, shards);
    return of_a != of_b ? of_a < of_b : a < b;
  };
  if (!std::is_sorted(found.ids.begin(), found.ids.end(), before)) {
    std::vector<size_t> order(found.ids.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return before(found.ids[a], found.ids[b]); });
    TableRowsRead sorted;
    sorted.ids.reserve(found.ids.size());
    sorted.rows.reserve(found.rows.size());
    for (const size_t i : order) {
      sorted.ids.push_back(found.ids[i]);
      const float* const row = RowOf(found, i, floats);
      sorted.rows.insert(sorted.rows.end(), row, row + floats);
    }
    found = std::move(sorted);
  }
  if (const auto twice = std::adjacent_find(found.ids.begin(), found.ids.end()); twice != found.ids.end()) {
    return absl::DataLossError(absl::StrCat("table '", layout_.table, "': row ", *twice, " is there twice"));
  }
  return found;
}

absl::Status VisitChanges(const TableReader& now, const TableReader* before, bool state,
                          const std::function<absl::Status(const TableChanges&)>& visit) {
  const TableLayout& layout = now.layout();
  if (before != nullptr && !SameLayout(layout, before->layout())) {
    return absl::FailedPreconditionError(absl::StrCat("table '", layout.table,
                                                      "' has another width, state or number of logical "
                                                      "shards in the earlier checkpoint: export all of it"));
  }
  const uint32_t shards = static_cast<uint32_t>(layout.logical_shards);
  const size_t floats = static_cast<size_t>(layout.width) + static_cast<size_t>(layout.state_width());
  const size_t wanted = state ? floats : static_cast<size_t>(layout.width);
  const int64_t bytes = (now.rows() + (before == nullptr ? 0 : before->rows())) * static_cast<int64_t>(8 + 4 * floats);
  const int64_t ranges = std::clamp<int64_t>(bytes / kRangeBytes + 1, 1, shards);
  for (int64_t range = 0; range < ranges; ++range) {
    const uint32_t begin = static_cast<uint32_t>(range * shards / ranges);
    const uint32_t end = static_cast<uint32_t>((range + 1) * shards / ranges);
    ASSIGN_OR_RETURN(const TableRowsRead there, now.Read(begin, end));
    TableRowsRead earlier;
    if (before != nullptr) {
      ASSIGN_OR_RETURN(earlier, before->Read(begin, end));
    }
    TableChanges changes;
    size_t e = 0;  // of `earlier`
    const auto comes_before = [shards](int64_t a, int64_t b) {
      const uint32_t of_a = LogicalShard(a, shards), of_b = LogicalShard(b, shards);
      return of_a != of_b ? of_a < of_b : a < b;
    };
    for (size_t i = 0; i < there.ids.size(); ++i) {
      while (e < earlier.ids.size() && comes_before(earlier.ids[e], there.ids[i]))
        changes.removed.push_back(earlier.ids[e++]);
      const float* const row = RowOf(there, i, floats);
      if (e < earlier.ids.size() && earlier.ids[e] == there.ids[i]) {
        const bool same = std::memcmp(row, RowOf(earlier, e, floats), wanted * sizeof(float)) == 0;
        ++e;
        if (same) continue;
      }
      changes.ids.push_back(there.ids[i]);
      changes.rows.insert(changes.rows.end(), row, row + wanted);
    }
    changes.removed.insert(changes.removed.end(), earlier.ids.begin() + static_cast<std::ptrdiff_t>(e),
                           earlier.ids.end());
    if (!changes.ids.empty() || !changes.removed.empty()) RETURN_IF_ERROR(visit(changes));
  }
  return absl::OkStatus();
}

}  // namespace weir
