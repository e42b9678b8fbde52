#include "framework/checkpoint/shard.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "framework/checkpoint/file.h"

namespace weir {
namespace {

constexpr char kShardMagic[8] = {'W', 'E', 'I', 'R', 'S', 'H', 'R', 'D'};
// Largest format that this build reads, and the one it writes.
constexpr uint32_t kShardFormat = 1;
// Size of the runs in which rows are written and read: bounds the memory and keeps disks busy.
constexpr size_t kChunkBytes = size_t{8} << 20;

// Returns the number of elements; nullopt if a dim is negative or the product does not fit.
std::optional<int64_t> Elements(absl::Span<const int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  return count;
}

class Writer : public ShardWriter {
 public:
  explicit Writer(std::unique_ptr<FileWriter> file) : file_(std::move(file)) {}

  absl::Status WriteHeader() {
    FileHeader header = {};
    std::memcpy(header.magic, kShardMagic, sizeof(kShardMagic));
    header.format = kShardFormat;
    return file_->Append(&header, sizeof(header));
  }

  absl::Status AddDense(const DensePiece& piece, absl::Span<const float> values) override {
    const std::optional<int64_t> whole = Elements(piece.whole_dims);
    const int64_t count = static_cast<int64_t>(values.size());
    if (!whole.has_value() || piece.element_begin < 0 || piece.element_begin > *whole ||
        (!piece.scalar && count > *whole - piece.element_begin)) {
      return absl::InvalidArgumentError(absl::StrCat("piece of '", piece.variable, "': elements [", piece.element_begin,
                                                     ", ", piece.element_begin + count, ") do not fit in ",
                                                     whole.value_or(-1), " elements"));
    }
    RETURN_IF_ERROR(file_->AlignTo(kFileAlign));
    v1::DenseEntry* entry = shard_.add_dense();
    entry->set_variable(piece.state_name.empty() ? piece.variable : StateVariable(piece.variable, piece.state_name));
    for (const int64_t dim : piece.whole_dims) entry->add_whole_dims(dim);
    entry->set_element_begin(piece.element_begin);
    entry->set_element_count(count);
    entry->set_offset(file_->size());
    if (!piece.state_name.empty()) {
      entry->set_state_of(piece.variable);
      entry->set_state_name(piece.state_name);
    }
    if (piece.scalar) entry->set_scalar(true);
    VariableDigester digester(piece.variable, *whole);
    if (piece.scalar) {
      digester.AddScalarState(piece.state_name, piece.element_begin, values);
    } else if (!piece.state_name.empty()) {
      digester.AddState(piece.state_name, piece.element_begin, values);
    } else {
      digester.AddValues(piece.element_begin, values);
    }
    digests_[piece.variable] += digester.sum();
    return file_->Append(values.data(), values.size() * sizeof(float));
  }

  absl::Status BeginTable(const TableLayout& layout) override {
    if (table_.has_value())
      return absl::FailedPreconditionError(absl::StrCat("table '", table_->table, "' is still open"));
    if (layout.width <= 0 || layout.logical_shards <= 0 || layout.state_width() < 0) {
      return absl::InvalidArgumentError(absl::StrCat("table '", layout.table, "' has width ", layout.width, " and ",
                                                     layout.logical_shards, " logical shards"));
    }
    table_ = layout;
    row_floats_ = static_cast<size_t>(layout.width) + static_cast<size_t>(layout.state_width());
    chunk_rows_ = std::max<size_t>(1, kChunkBytes / (row_floats_ * sizeof(float) + sizeof(int64_t)));
    digester_.emplace(layout.table, layout.logical_shards);
    entries_of_table_ = 0;
    return absl::OkStatus();
  }

  absl::Status AddRows(absl::Span<const int64_t> ids, absl::Span<const float> rows) override {
    if (!table_.has_value()) return absl::FailedPreconditionError("AddRows before BeginTable");
    if (rows.size() != ids.size() * row_floats_) {
      return absl::InvalidArgumentError(absl::StrCat("table '", table_->table, "': rows has ", rows.size(), " floats; ",
                                                     ids.size(), " ids of ", row_floats_, " floats need ",
                                                     ids.size() * row_floats_));
    }
    for (size_t i = 0; i < ids.size(); ++i) RETURN_IF_ERROR(AddRow(ids[i], rows.subspan(i * row_floats_, row_floats_)));
    return absl::OkStatus();
  }

  absl::Status AddRow(int64_t id, absl::Span<const float> row) override {
    if (!table_.has_value() || row.size() != row_floats_) {
      return absl::InvalidArgumentError(
          absl::StrCat("row has ", row.size(), " floats, the open table needs ", row_floats_));
    }
    const size_t width = static_cast<size_t>(table_->width);
    digester_->AddRow(id, row.first(width), row.subspan(width));
    ids_.push_back(id);
    rows_.insert(rows_.end(), row.begin(), row.end());
    if (ids_.size() < chunk_rows_) return absl::OkStatus();
    return WriteChunk();
  }

  absl::Status EndTable() override {
    if (!table_.has_value()) return absl::FailedPreconditionError("EndTable before BeginTable");
    // Write one empty entry for a table without rows, so that the checkpoint names every table.
    if (!ids_.empty() || entries_of_table_ == 0) RETURN_IF_ERROR(WriteChunk());
    digests_[table_->table] += digester_->sum();
    table_.reset();
    return absl::OkStatus();
  }

  absl::StatusOr<v1::CheckpointShard> Finish() override {
    if (table_.has_value())
      return absl::FailedPreconditionError(absl::StrCat("table '", table_->table, "' is still open"));
    RETURN_IF_ERROR(file_->Close());
    v1::CheckpointFile* file = shard_.mutable_file();
    const std::string& path = file_->path();
    file->set_name(path.substr(path.rfind('/') + 1));
    file->set_bytes(file_->size());
    file->set_checksum(file_->checksum());
    const VariableDigestSum total = Total(digests_);
    shard_.set_values_digest(total.values);
    shard_.set_state_digest(total.state);
    return std::move(shard_);
  }

  const DigestTable& digests() const override { return digests_; }

 private:
  absl::Status WriteChunk() {
    RETURN_IF_ERROR(file_->AlignTo(kFileAlign));
    v1::TableEntry* entry = shard_.add_tables();
    entry->set_table(table_->table);
    entry->set_width(table_->width);
    entry->set_state_width(table_->state_width());
    entry->set_logical_shards(table_->logical_shards);
    entry->set_row_count(static_cast<int64_t>(ids_.size()));
    entry->set_offset(file_->size());
    for (const auto& [name, width] : table_->states) {
      entry->add_state_names(name);
      entry->add_state_widths(width);
    }
    if (table_->zero_begin < table_->zero_end) {
      entry->set_zero_begin(table_->zero_begin);
      entry->set_zero_end(table_->zero_end);
    }
    uint32_t low = static_cast<uint32_t>(table_->logical_shards), high = 0;
    for (const int64_t id : ids_) {
      const uint32_t shard = LogicalShard(id, static_cast<uint32_t>(table_->logical_shards));
      low = std::min(low, shard);
      high = std::max(high, shard + 1);
    }
    entry->set_shard_begin(static_cast<int32_t>(ids_.empty() ? 0 : low));
    entry->set_shard_end(static_cast<int32_t>(high));
    ++entries_of_table_;
    RETURN_IF_ERROR(file_->Append(ids_.data(), ids_.size() * sizeof(int64_t)));
    RETURN_IF_ERROR(file_->AlignTo(kFileAlign));
    RETURN_IF_ERROR(file_->Append(rows_.data(), rows_.size() * sizeof(float)));
    ids_.clear();
    rows_.clear();
    return absl::OkStatus();
  }

  std::unique_ptr<FileWriter> file_;
  v1::CheckpointShard shard_;
  DigestTable digests_;
  std::optional<TableLayout> table_;
  std::optional<VariableDigester> digester_;
  size_t row_floats_ = 0;
  size_t chunk_rows_ = 0;
  int entries_of_table_ = 0;
  std::vector<int64_t> ids_;
  std::vector<float> rows_;
};

// Bytes [begin, end) of the file, and the entry that claims them.
struct Claim {
  int64_t begin = 0, end = 0;
  std::string_view entry;
};

// Refuses entries that share bytes: together they would be larger than the file, by any factor.
absl::Status CheckApart(std::vector<Claim> claims, const std::string& path) {
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < claims.size(); ++i) {
    if (claims[i].begin < claims[i - 1].end) {
      return absl::DataLossError(absl::StrCat(path, ": entries '", Av(claims[i - 1].entry), "' and '",
                                              Av(claims[i].entry), "' share byte ", claims[i].begin));
    }
  }
  return absl::OkStatus();
}

// Checks all numbers of a description against the file's size once, so that reads need no checks of their own.
absl::Status CheckDescription(const v1::CheckpointShard& shard, int64_t bytes, const std::string& path) {
  auto bad = [&path](std::string_view name, std::string_view what) {
    return absl::DataLossError(absl::StrCat(path, ": entry '", absl::string_view(name.data(), name.size()), "' ",
                                            absl::string_view(what.data(), what.size())));
  };
  std::vector<Claim> claims;
  for (const v1::DenseEntry& e : shard.dense()) {
    const std::optional<int64_t> whole = Elements(e.whole_dims());
    int64_t size = 0, end = 0;
    if (!whole.has_value() || e.element_begin() < 0 || e.element_count() < 0 || e.element_begin() > *whole ||
        (!e.scalar() && e.element_count() > *whole - e.element_begin())) {
      return bad(e.variable(), "has elements outside of its variable");
    }
    if (__builtin_mul_overflow(e.element_count(), int64_t{sizeof(float)}, &size) || e.offset() < 0 ||
        __builtin_add_overflow(e.offset(), size, &end) || end > bytes) {
      return bad(e.variable(), "reaches beyond the end of the file");
    }
    if (size > 0) claims.push_back({e.offset(), end, e.variable()});
  }
  for (const v1::TableEntry& e : shard.tables()) {
    int64_t sum = 0;
    for (const int32_t width : e.state_widths()) sum += width < 0 ? std::numeric_limits<int32_t>::max() : width;
    // TableLayout counts the floats of a row in an int.
    if (e.width() <= 0 || e.state_width() < 0 || e.row_count() < 0 || sum != e.state_width() ||
        int64_t{e.width()} + e.state_width() > std::numeric_limits<int32_t>::max() ||
        e.state_names_size() != e.state_widths_size() || e.logical_shards() <= 0 || e.zero_begin() < 0 ||
        e.zero_begin() > e.zero_end() || e.zero_end() > e.width()) {
      return bad(e.table(), "has widths that make no sense");
    }
    if (e.has_shard_end() &&
        (e.shard_begin() < 0 || e.shard_begin() > e.shard_end() || e.shard_end() > e.logical_shards())) {
      return bad(e.table(), "has logical shards that it does not have");
    }
    int64_t ids = 0, rows = 0, end = 0;
    if (e.offset() < 0 || __builtin_mul_overflow(e.row_count(), int64_t{sizeof(int64_t)}, &ids) ||
        __builtin_mul_overflow(e.row_count(), int64_t{sizeof(float)} * (int64_t{e.width()} + e.state_width()), &rows) ||
        __builtin_add_overflow(e.offset(), ids, &end) || end > bytes ||
        (e.row_count() > 0 && (__builtin_add_overflow(AlignedInFile(end), rows, &end) || end > bytes))) {
      return bad(e.table(), "reaches beyond the end of the file");
    }
    if (end > e.offset()) claims.push_back({e.offset(), end, e.table()});
  }
  return CheckApart(std::move(claims), path);
}

class Reader : public ShardReader {
 public:
  Reader(std::unique_ptr<FileReader> file, v1::CheckpointShard shard)
      : file_(std::move(file)), shard_(std::move(shard)) {}

  const v1::CheckpointShard& shard() const override { return shard_; }

  absl::Status ReadDense(int entry, int64_t begin, absl::Span<float> out) const override {
    if (entry < 0 || entry >= shard_.dense_size()) return absl::OutOfRangeError(absl::StrCat("no dense entry ", entry));
    const v1::DenseEntry& e = shard_.dense(entry);
    if (begin < 0 || begin > e.element_count() || static_cast<int64_t>(out.size()) > e.element_count() - begin) {
      return absl::OutOfRangeError(absl::StrCat("'", e.variable(), "': elements [", begin, ", ", begin + out.size(),
                                                ") of an entry of ", e.element_count()));
    }
    return file_->Read(e.offset() + begin * static_cast<int64_t>(sizeof(float)), out.data(),
                       out.size() * sizeof(float));
  }

  absl::Status ReadTable(int entry, const RowVisitor& visit) const override {
    if (entry < 0 || entry >= shard_.tables_size())
      return absl::OutOfRangeError(absl::StrCat("no table entry ", entry));
    const v1::TableEntry& e = shard_.tables(entry);
    const int64_t floats = int64_t{e.width()} + e.state_width();
    const int64_t run = std::max<int64_t>(1, static_cast<int64_t>(kChunkBytes) / (floats * 4 + 8));
    const int64_t rows_at = AlignedInFile(e.offset() + e.row_count() * static_cast<int64_t>(sizeof(int64_t)));
    std::vector<int64_t> ids;
    std::vector<float> rows;
    for (int64_t at = 0; at < e.row_count(); at += run) {
      const int64_t n = std::min(run, e.row_count() - at);
      ids.resize(static_cast<size_t>(n));
      rows.resize(static_cast<size_t>(n * floats));
      RETURN_IF_ERROR(file_->Read(e.offset() + at * 8, ids.data(), ids.size() * sizeof(int64_t)));
      RETURN_IF_ERROR(file_->Read(rows_at + at * floats * 4, rows.data(), rows.size() * sizeof(float)));
      RETURN_IF_ERROR(visit(ids, rows));
    }
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<FileReader> file_;
  v1::CheckpointShard shard_;
};

}  // namespace

int TableLayout::state_width() const {
  int sum = 0;
  for (const auto& [name, width] : states) sum += width;
  return sum;
}

absl::StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::Create(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<FileWriter> file, FileWriter::Create(path));
  auto writer = std::make_unique<Writer>(std::move(file));
  RETURN_IF_ERROR(writer->WriteHeader());
  return writer;
}

absl::StatusOr<std::unique_ptr<ShardReader>> ShardReader::Open(const std::string& directory,
                                                               const v1::CheckpointShard& shard, bool check_sum) {
  const v1::CheckpointFile& expected = shard.file();
  RETURN_IF_ERROR(CheckFileName(expected.name()));
  const std::string path = absl::StrCat(directory, "/", expected.name());
  auto file = FileReader::Open(path);
  if (!file.ok()) {
    return absl::IsNotFound(file.status()) ? absl::DataLossError(absl::StrCat(path, " is missing")) : file.status();
  }
  RETURN_IF_ERROR(CheckFile(**file, path, expected, check_sum));
  FileHeader header;
  RETURN_IF_ERROR((*file)->Read(0, &header, sizeof(header)));
  if (std::memcmp(header.magic, kShardMagic, sizeof(kShardMagic)) != 0)
    return absl::DataLossError(absl::StrCat(path, " is no shard file"));
  if (header.format > kShardFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has format ", header.format, "; this build reads up to ", kShardFormat));
  }
  RETURN_IF_ERROR(CheckDescription(shard, expected.bytes(), path));
  return std::make_unique<Reader>(std::move(*file), shard);
}

std::string ShardFileName(int server) { return absl::StrFormat("shard-%05d", server); }

}  // namespace weir
