#include "tools/export_rows.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/row_file.h"
#include "framework/checkpoint/table_reader.h"

namespace weir {
namespace {

// The table in both checkpoints. One that `since` does not have is new as a whole.
struct Tables {
  TableReader now;
  std::optional<TableReader> since;
};

absl::StatusOr<Tables> OpenTables(const RowExport& what, const std::string& table) {
  ASSIGN_OR_RETURN(TableReader now, TableReader::Open(what.now.found.path, what.now.manifest, table));
  Tables tables{.now = std::move(now)};
  if (!what.since.has_value()) return tables;
  absl::StatusOr<TableReader> since = TableReader::Open(what.since->found.path, what.since->manifest, table);
  if (!since.ok() && !absl::IsNotFound(since.status())) return since.status();
  if (since.ok()) tables.since = *std::move(since);
  return tables;
}

absl::Status Visit(const RowExport& what, const Tables& tables,
                   const std::function<absl::Status(const TableChanges&)>& visit) {
  return VisitChanges(tables.now, tables.since.has_value() ? &*tables.since : nullptr, what.state, visit);
}

absl::Status WriteArrays(const std::string& table, TableChanges all, size_t width, size_t floats, bool changes,
                         NpzWriter* npz) {
  std::vector<size_t> order(all.ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&all](size_t a, size_t b) { return all.ids[a] < all.ids[b]; });
  const int64_t n = static_cast<int64_t>(all.ids.size());
  RETURN_IF_ERROR(npz->BeginInts(table + ".ids", {n}));
  for (const size_t i : order) RETURN_IF_ERROR(npz->Append(&all.ids[i], sizeof(int64_t)));
  RETURN_IF_ERROR(npz->End());
  RETURN_IF_ERROR(npz->BeginFloats(table + ".values", {n, static_cast<int64_t>(width)}));
  for (const size_t i : order) RETURN_IF_ERROR(npz->Append(&all.rows[i * floats], width * sizeof(float)));
  RETURN_IF_ERROR(npz->End());
  if (floats > width) {
    RETURN_IF_ERROR(npz->BeginFloats(table + ".state", {n, static_cast<int64_t>(floats - width)}));
    for (const size_t i : order)
      RETURN_IF_ERROR(npz->Append(&all.rows[i * floats + width], (floats - width) * sizeof(float)));
    RETURN_IF_ERROR(npz->End());
  }
  if (!changes) return absl::OkStatus();
  std::sort(all.removed.begin(), all.removed.end());
  return npz->Add(table + ".removed", {static_cast<int64_t>(all.removed.size())},
                  absl::Span<const int64_t>(all.removed));
}

void Append(const TableChanges& more, TableChanges* all) {
  all->ids.insert(all->ids.end(), more.ids.begin(), more.ids.end());
  all->rows.insert(all->rows.end(), more.rows.begin(), more.rows.end());
  all->removed.insert(all->removed.end(), more.removed.begin(), more.removed.end());
}

}  // namespace

absl::Status ExportToNpz(const RowExport& what, const std::string& table, NpzWriter* npz) {
  ASSIGN_OR_RETURN(const Tables tables, OpenTables(what, table));
  const TableLayout& layout = tables.now.layout();
  TableChanges all;
  RETURN_IF_ERROR(Visit(what, tables, [&all](const TableChanges& changes) {
    Append(changes, &all);
    return absl::OkStatus();
  }));
  const size_t width = static_cast<size_t>(layout.width);
  const size_t floats = width + (what.state ? static_cast<size_t>(layout.state_width()) : 0);
  return WriteArrays(table, std::move(all), width, floats, what.since.has_value(), npz);
}

absl::StatusOr<v1::RowFile> ExportToRowFile(const RowExport& what, const std::string& table,
                                            const std::string& output) {
  ASSIGN_OR_RETURN(const Tables tables, OpenTables(what, table));
  TableLayout layout = tables.now.layout();
  if (!what.state) layout.states.clear();
  const int64_t since = what.since.has_value() ? what.since->manifest.step() : -1;
  ASSIGN_OR_RETURN(const std::unique_ptr<RowFileWriter> writer,
                   RowFileWriter::Create(output, layout, what.now.manifest.job(), what.now.manifest.step(), since));
  RETURN_IF_ERROR(Visit(what, tables, [&writer](const TableChanges& changes) {
    return writer->Add(changes.ids, changes.rows, changes.removed);
  }));
  return writer->Finish();
}

absl::StatusOr<v1::RowFile> ReadRowFile(const std::string& path, const std::string& output) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RowFileReader> reader, RowFileReader::Open(path));
  const TableLayout layout = reader->layout();
  const size_t width = static_cast<size_t>(layout.width);
  const size_t floats = width + static_cast<size_t>(layout.state_width());
  VariableDigester digester(layout.table, layout.logical_shards);
  TableChanges all;
  for (int i = 0; i < reader->description().chunks_size(); ++i) {
    ASSIGN_OR_RETURN(const RowFileReader::Chunk chunk, reader->Read(i));
    for (size_t r = 0; r < chunk.ids.size(); ++r) {
      const absl::Span<const float> row = absl::MakeConstSpan(chunk.rows).subspan(r * floats, floats);
      digester.AddRow(chunk.ids[r], row.first(width), row.subspan(width));
    }
    if (!output.empty()) Append({chunk.ids, chunk.rows, chunk.removed}, &all);
  }
  if (digester.sum().values != reader->description().values_digest()) {
    return absl::DataLossError(absl::StrCat(path, ": its rows have the digest ", DigestHex(digester.sum().values),
                                            "; it says ", DigestHex(reader->description().values_digest())));
  }
  if (output.empty()) return reader->description();
  ASSIGN_OR_RETURN(const std::unique_ptr<NpzWriter> npz, NpzWriter::Create(output));
  RETURN_IF_ERROR(
      WriteArrays(layout.table, std::move(all), width, floats, reader->description().has_since_step(), npz.get()));
  RETURN_IF_ERROR(npz->Finish());
  return reader->description();
}

}  // namespace weir
