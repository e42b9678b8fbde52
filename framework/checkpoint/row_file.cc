#include "framework/checkpoint/row_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

constexpr char kMagic[8] = {'W', 'E', 'I', 'R', 'R', 'O', 'W', 'S'};
constexpr char kEnd[8] = {'W', 'E', 'I', 'R', 'R', 'O', 'W', 'E'};
// Size of a chunk, which is read in one piece.
constexpr int64_t kRowChunkBytes = int64_t{8} << 20;
// Upper bound of a description, which has some 40 bytes per chunk and thousands of chunks.
constexpr uint64_t kMaxDescription = uint64_t{1} << 30;

struct Trailer {
  uint64_t description_bytes;
  uint64_t description_checksum;
  char magic[8];
};
static_assert(sizeof(Trailer) == 24);

// Offsets of the parts of a chunk; nullopt if its numbers are negative or overflow.
struct Places {
  int64_t rows_at = 0, removed_at = 0, end = 0;
};
std::optional<Places> PlacesOf(int64_t rows, int64_t removed, int64_t floats) {
  Places places;
  int64_t ids = 0, values = 0, gone = 0;
  if (rows < 0 || removed < 0 || floats <= 0 || __builtin_mul_overflow(rows, int64_t{8}, &ids) ||
      __builtin_mul_overflow(rows, floats * 4, &values) || __builtin_mul_overflow(removed, int64_t{8}, &gone) ||
      ids > INT64_MAX / 4 || values > INT64_MAX / 4 || gone > INT64_MAX / 4) {
    return std::nullopt;
  }
  places.rows_at = AlignedInFile(ids);
  places.removed_at = AlignedInFile(places.rows_at + values);
  places.end = places.removed_at + gone;
  return places;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowFileWriter>> RowFileWriter::Create(const std::string& path, const TableLayout& layout,
                                                                     const std::string& job, int64_t step,
                                                                     int64_t since_step) {
  ASSIGN_OR_RETURN(std::unique_ptr<FileWriter> file, FileWriter::CreateAtomically(path, /*patched=*/false));
  std::unique_ptr<RowFileWriter> writer(new RowFileWriter(layout, std::move(file)));
  v1::RowFile& description = writer->description_;
  description.set_format_version(kRowFileFormat);
  description.set_job(job);
  description.set_table(layout.table);
  description.set_width(layout.width);
  for (const auto& [name, width] : layout.states) {
    description.add_state_names(name);
    description.add_state_widths(width);
  }
  description.set_logical_shards(layout.logical_shards);
  description.set_step(step);
  if (since_step >= 0) description.set_since_step(since_step);
  description.set_rows(0);
  description.set_removed(0);
  FileHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.format = kRowFileFormat;
  RETURN_IF_ERROR(writer->file_->Append(&header, sizeof(header)));
  return writer;
}

absl::Status RowFileWriter::Add(absl::Span<const int64_t> ids, absl::Span<const float> rows,
                                absl::Span<const int64_t> removed) {
  const size_t floats = static_cast<size_t>(layout_.width) + static_cast<size_t>(layout_.state_width());
  if (rows.size() != ids.size() * floats) {
    return absl::InvalidArgumentError(absl::StrCat("rows of '", layout_.table, "' have ", rows.size(), " floats; ",
                                                   ids.size(), " ids of ", floats, " need ", ids.size() * floats));
  }
  const size_t run = std::max<size_t>(1, static_cast<size_t>(kRowChunkBytes) / (8 + 4 * floats));
  for (size_t at = 0, gone = 0; at < ids.size() || gone < removed.size(); at += run, gone += run) {
    const size_t i = std::min(at, ids.size()), n = std::min(run, ids.size() - i);
    const size_t g = std::min(gone, removed.size());
    RETURN_IF_ERROR(WriteChunk(ids.subspan(i, n), rows.subspan(i * floats, n * floats),
                               removed.subspan(g, std::min(run, removed.size() - g))));
  }
  return absl::OkStatus();
}

absl::Status RowFileWriter::WriteChunk(absl::Span<const int64_t> ids, absl::Span<const float> rows,
                                       absl::Span<const int64_t> removed) {
  const size_t width = static_cast<size_t>(layout_.width);
  const size_t floats = width + static_cast<size_t>(layout_.state_width());
  const std::optional<Places> places =
      PlacesOf(static_cast<int64_t>(ids.size()), static_cast<int64_t>(removed.size()), static_cast<int64_t>(floats));
  std::string bytes(static_cast<size_t>(places->end), '\0');
  // An empty span may have no address, which memcpy must not be given.
  const auto put = [&bytes](int64_t at, const void* from, size_t size) {
    if (size > 0) std::memcpy(bytes.data() + at, from, size);
  };
  put(0, ids.data(), ids.size() * sizeof(int64_t));
  put(places->rows_at, rows.data(), rows.size() * sizeof(float));
  put(places->removed_at, removed.data(), removed.size() * sizeof(int64_t));
  for (size_t i = 0; i < ids.size(); ++i) {
    digester_.AddRow(ids[i], rows.subspan(i * floats, width), rows.subspan(i * floats + width, floats - width));
  }
  RETURN_IF_ERROR(file_->AlignTo(kFileAlign));
  v1::RowFileChunk* chunk = description_.add_chunks();
  chunk->set_offset(file_->size());
  chunk->set_bytes(places->end);
  chunk->set_rows(static_cast<int64_t>(ids.size()));
  chunk->set_removed(static_cast<int64_t>(removed.size()));
  chunk->set_checksum(StableHash(bytes));
  description_.set_rows(description_.rows() + chunk->rows());
  description_.set_removed(description_.removed() + chunk->removed());
  return file_->Append(bytes.data(), bytes.size());
}

absl::StatusOr<v1::RowFile> RowFileWriter::Finish() {
  description_.set_values_digest(digester_.sum().values);
  const std::string description = description_.SerializeAsString();
  RETURN_IF_ERROR(file_->AlignTo(kFileAlign));
  RETURN_IF_ERROR(file_->Append(description.data(), description.size()));
  Trailer trailer = {
      .description_bytes = description.size(), .description_checksum = StableHash(description), .magic = {}};
  std::memcpy(trailer.magic, kEnd, sizeof(kEnd));
  RETURN_IF_ERROR(file_->Append(&trailer, sizeof(trailer)));
  RETURN_IF_ERROR(file_->Close());
  return description_;
}

absl::StatusOr<std::unique_ptr<RowFileReader>> RowFileReader::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<FileReader> file, FileReader::Open(path));
  std::unique_ptr<RowFileReader> reader(new RowFileReader(path, std::move(file)));
  RETURN_IF_ERROR(reader->ReadDescription());
  RETURN_IF_ERROR(reader->CheckDescription());
  return reader;
}

absl::Status RowFileReader::ReadDescription() {
  const int64_t size = file_->size();
  FileHeader header;
  if (size < static_cast<int64_t>(sizeof(FileHeader)))
    return absl::DataLossError(absl::StrCat(path_, " is no row file"));
  RETURN_IF_ERROR(file_->Read(0, &header, sizeof(header)));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return absl::DataLossError(absl::StrCat(path_, " is no row file"));
  if (header.format > kRowFileFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " has format ", header.format, "; this build reads up to ", kRowFileFormat));
  }
  Trailer trailer = {};
  const int64_t room = size - static_cast<int64_t>(sizeof(FileHeader) + sizeof(Trailer));
  if (room >= 0) RETURN_IF_ERROR(file_->Read(size - static_cast<int64_t>(sizeof(Trailer)), &trailer, sizeof(trailer)));
  if (room < 0 || std::memcmp(trailer.magic, kEnd, sizeof(kEnd)) != 0) {
    return absl::DataLossError(absl::StrCat(path_, " has no end: it was cut, or is still being written"));
  }
  if (trailer.description_bytes > std::min<uint64_t>(static_cast<uint64_t>(room), kMaxDescription)) {
    return absl::DataLossError(
        absl::StrCat(path_, ": its description of ", trailer.description_bytes, " bytes does not fit in it"));
  }
  std::string bytes(trailer.description_bytes, '\0');
  RETURN_IF_ERROR(file_->Read(size - static_cast<int64_t>(sizeof(Trailer) + bytes.size()), bytes.data(), bytes.size()));
  if (StableHash(bytes) != trailer.description_checksum || !description_.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat(path_, ": its description is damaged"));
  }
  return absl::OkStatus();
}

absl::Status RowFileReader::CheckDescription() const {
  const v1::RowFile& d = description_;
  const auto bad = [this](std::string_view what) {
    return absl::DataLossError(absl::StrCat(path_, ": ", absl::string_view(what.data(), what.size())));
  };
  int64_t floats = d.width();
  bool sane = d.width() > 0 && d.logical_shards() > 0 && d.state_names_size() == d.state_widths_size();
  for (const int32_t width : d.state_widths()) {
    sane &= width >= 0;
    floats += width;
  }
  // TableLayout counts them in ints.
  if (!sane || floats > std::numeric_limits<int32_t>::max()) return bad("widths that make no sense");
  // Begin and size. Chunks that share bytes would be larger than the file together, by any factor.
  std::vector<std::pair<int64_t, int64_t>> claims;
  for (const v1::RowFileChunk& chunk : d.chunks()) {
    const std::optional<Places> places = PlacesOf(chunk.rows(), chunk.removed(), floats);
    if (!places.has_value() || places->end != chunk.bytes() || chunk.offset() < 0 || chunk.offset() % kFileAlign != 0 ||
        chunk.bytes() > file_->size() || chunk.offset() > file_->size() - chunk.bytes()) {
      return bad("a chunk that does not lie in the file");
    }
    if (chunk.bytes() > 0) claims.emplace_back(chunk.offset(), chunk.bytes());
  }
  std::sort(claims.begin(), claims.end());
  for (size_t i = 1; i < claims.size(); ++i) {
    if (claims[i].first < claims[i - 1].first + claims[i - 1].second) return bad("two chunks that share bytes");
  }
  int64_t rows = 0, removed = 0;
  for (const v1::RowFileChunk& chunk : d.chunks()) {
    rows += chunk.rows();
    removed += chunk.removed();
  }
  return rows == d.rows() && removed == d.removed() ? absl::OkStatus() : bad("chunks that do not add up to its rows");
}

TableLayout RowFileReader::layout() const {
  TableLayout layout{
      .table = description_.table(), .width = description_.width(), .logical_shards = description_.logical_shards()};
  for (int i = 0; i < description_.state_names_size(); ++i) {
    layout.states.emplace_back(description_.state_names(i), description_.state_widths(i));
  }
  return layout;
}

absl::StatusOr<RowFileReader::Chunk> RowFileReader::Read(int i) const {
  if (i < 0 || i >= description_.chunks_size()) return absl::OutOfRangeError(absl::StrCat(path_, " has no chunk ", i));
  const v1::RowFileChunk& chunk = description_.chunks(i);
  const TableLayout of = layout();
  const int64_t floats = int64_t{of.width} + of.state_width();
  const Places places = *PlacesOf(chunk.rows(), chunk.removed(), floats);
  std::string bytes(static_cast<size_t>(chunk.bytes()), '\0');
  RETURN_IF_ERROR(file_->Read(chunk.offset(), bytes.data(), bytes.size()));
  if (StableHash(bytes) != chunk.checksum()) {
    return absl::DataLossError(absl::StrCat(path_, ": chunk ", i, " at byte ", chunk.offset(), " is damaged"));
  }
  Chunk read;
  read.ids.resize(static_cast<size_t>(chunk.rows()));
  read.rows.resize(static_cast<size_t>(chunk.rows() * floats));
  read.removed.resize(static_cast<size_t>(chunk.removed()));
  const auto copy = [&bytes](int64_t from, auto* to) {
    // An empty vector has no memory to copy to.
    if (!to->empty()) std::memcpy(to->data(), bytes.data() + from, to->size() * sizeof(to->front()));
  };
  copy(0, &read.ids);
  copy(places.rows_at, &read.rows);
  copy(places.removed_at, &read.removed);
  return read;
}

}  // namespace weir
