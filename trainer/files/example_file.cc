#include "trainer/files/example_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/schema.h"
#include "glog/logging.h"
#include "trainer/files/open_bytes.h"

namespace weir {
namespace {

constexpr std::string_view kEnd = "WEIREXME";
constexpr uint32_t kVersion = 1;
constexpr int64_t kBegin = 64;    // bytes in front of the blocks
constexpr int64_t kTrailer = 24;  // bytes behind the message
// Largest description and block: far beyond any use, and small enough to be read into memory.
constexpr uint64_t kMostDescription = uint64_t{1} << 30;
constexpr int64_t kMostBlock = int64_t{1} << 30;

template <typename T>
T Load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}
template <typename T>
void Append(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

absl::Status Cut(const DataFile& file) {
  return absl::DataLossError(
      absl::StrCat(file.name, ": cut: an example file ends with its description; get or convert the file again"));
}
absl::Status DamagedDescription(const DataFile& file) {
  return absl::DataLossError(
      absl::StrCat(file.name, ": damaged: its description cannot be read; get or convert the file again"));
}

absl::Status OtherVersion(const DataFile& file, uint32_t version) {
  return absl::InvalidArgumentError(
      absl::StrCat(file.name, ": is an example file of format ", version, "; this program reads format ", kVersion,
                   ": convert the data again with the convert of this build, or read it with the build that wrote it"));
}

absl::StatusOr<std::string> ReadAt(const DataFile& file, int64_t offset, int64_t size) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, OpenBytes(file, offset));
  std::string bytes(static_cast<size_t>(size), '\0');
  ASSIGN_OR_RETURN(const size_t got, source->ReadFully(bytes.data(), bytes.size()));
  if (got < bytes.size()) return Cut(file);
  return bytes;
}

IdKind KindOf(v1::ExampleFile::IdKind kind) {
  switch (kind) {
    case v1::ExampleFile::UNKNOWN:
      return IdKind::kUnknown;
    case v1::ExampleFile::INTEGER:
      return IdKind::kInteger;
    case v1::ExampleFile::HEX:
      return IdKind::kHex;
    case v1::ExampleFile::TEXT:
      return IdKind::kText;
  }
  return IdKind::kUnknown;
}
v1::ExampleFile::IdKind MessageKind(IdKind kind) {
  switch (kind) {
    case IdKind::kUnknown:
      return v1::ExampleFile::UNKNOWN;
    case IdKind::kInteger:
      return v1::ExampleFile::INTEGER;
    case IdKind::kHex:
      return v1::ExampleFile::HEX;
    case IdKind::kText:
      return v1::ExampleFile::TEXT;
  }
  return v1::ExampleFile::UNKNOWN;
}

// Sets the places and numbers of blocks. Returns false if they cannot be those of the file.
bool SetBlocks(const DataFile& file, int64_t description, ExampleFile* info) {
  const v1::ExampleFile& m = info->message;
  if (m.block_examples_size() != m.block_bytes_size() || m.block_checksum_size() != m.block_bytes_size()) return false;
  info->place.push_back(kBegin);
  info->first.push_back(0);
  const int64_t blocks_end = file.bytes - kTrailer - description;
  for (int b = 0; b < m.block_bytes_size(); ++b) {
    const int64_t bytes = m.block_bytes(b), examples = m.block_examples(b);
    if (bytes < 1 || bytes > kMostBlock || bytes > blocks_end - info->place.back()) return false;
    if (examples < 1 || examples > bytes) return false;
    info->place.push_back(info->place.back() + bytes);
    info->first.push_back(info->first.back() + examples);
  }
  return info->place.back() == blocks_end && info->first.back() == m.examples();
}

// Returns the columns of a description. InvalidArgument: there are none, or one cannot be.
absl::StatusOr<std::vector<Column>> ColumnsOf(const v1::ExampleFile& message) {
  std::vector<Column> columns;
  int64_t all = 0;
  for (const v1::ExampleFile::Variable& variable : message.variable()) {
    Column column{.name = variable.name(), .kind = variable.ids() ? v1::IDS : v1::DENSE, .width = variable.width()};
    const int slots = variable.slot_size(), kinds = variable.id_kind_size();
    const bool fits = variable.ids() ? slots == column.width && (kinds == 0 || kinds == slots) : slots + kinds == 0;
    if (column.width < 1 || column.width > kMaxColumns || !fits) {
      return absl::InvalidArgumentError(absl::StrCat("the variable '", column.name, "' cannot be"));
    }
    all += column.width;
    if (all > 2 * kMaxColumns) return absl::InvalidArgumentError("there are too many variables");
    column.slot_names.assign(variable.slot().begin(), variable.slot().end());
    for (int k = 0; k < kinds; ++k) column.id_kinds.push_back(KindOf(variable.id_kind(k)));
    columns.push_back(std::move(column));
  }
  if (columns.empty()) return absl::InvalidArgumentError("there is no variable");
  return columns;
}

}  // namespace

absl::Status LookAtExampleFile(DataFile* file) {
  if (file->bytes < kBegin + kTrailer) return Cut(*file);
  ASSIGN_OR_RETURN(const std::string begin, ReadAt(*file, 0, kBegin));
  if (const auto version = Load<uint32_t>(begin.data() + kExampleFileBegin.size()); version != kVersion) {
    return OtherVersion(*file, version);
  }
  ASSIGN_OR_RETURN(const std::string trailer, ReadAt(*file, file->bytes - kTrailer, kTrailer));
  if (std::string_view(trailer).substr(16) != kEnd) return Cut(*file);
  const auto size = Load<uint64_t>(trailer.data());
  if (size > kMostDescription || static_cast<int64_t>(size) > file->bytes - kTrailer - kBegin) {
    return DamagedDescription(*file);
  }
  const auto description = static_cast<int64_t>(size);
  ASSIGN_OR_RETURN(const std::string bytes, ReadAt(*file, file->bytes - kTrailer - description, description));
  auto info = std::make_shared<ExampleFile>();
  if (StableHash(bytes) != Load<uint64_t>(trailer.data() + 8) || !info->message.ParseFromString(bytes)) {
    return DamagedDescription(*file);
  }
  if (info->message.format_version() > kVersion) {
    return OtherVersion(*file, info->message.format_version());
  }
  absl::StatusOr<std::vector<Column>> columns = ColumnsOf(info->message);
  if (!columns.ok() || !SetBlocks(*file, description, info.get())) return DamagedDescription(*file);
  info->columns = *std::move(columns);
  for (const Column& column : info->columns) {
    (column.kind == v1::IDS ? info->slots : info->floats) += static_cast<size_t>(column.width);
  }
  if (static_cast<size_t>(info->message.float_column_size()) != info->floats ||
      static_cast<size_t>(info->message.slot_size()) != info->slots) {
    return DamagedDescription(*file);
  }
  file->examples = std::move(info);
  return absl::OkStatus();
}

ExampleFileSource::ExampleFileSource(const DataFile& file, const Segment& segment)
    : file_(file),
      info_(*file.examples),
      at_(segment.begin),
      end_(std::min(segment.end, file.examples->examples())),
      block_(info_.place.size() - 1),
      next_block_(block_) {}

ExampleFileSource::~ExampleFileSource() {
  if (buffer_ != nullptr) buffer_->Leave();
}

absl::Status ExampleFileSource::Damaged(std::string_view what) const {
  return absl::DataLossError(absl::StrCat(file_.name, ": damaged: block ", block_, " at byte ", info_.place[block_],
                                          ", of examples ", info_.first[block_], " to ", info_.first[block_ + 1] - 1,
                                          ", ", std::string(what), "; get or convert the file again"));
}

absl::Status ExampleFileSource::ReadBlock() {
  block_ = static_cast<size_t>(std::upper_bound(info_.first.begin(), info_.first.end(), at_) - info_.first.begin()) - 1;
  if (bytes_ == nullptr || next_block_ != block_) {
    ASSIGN_OR_RETURN(bytes_, OpenBytes(file_, info_.place[block_]));
  }
  filled_ = static_cast<size_t>(info_.place[block_ + 1] - info_.place[block_]);
  if (buffer_ == nullptr || capacity_ < filled_ || !buffer_->used_once()) {
    if (buffer_ != nullptr) buffer_->Leave();
    capacity_ = std::max(capacity_, filled_);
    buffer_ = new RecordBlock(capacity_ + LineParser::kPadding);
  }
  ASSIGN_OR_RETURN(const size_t got, bytes_->ReadFully(buffer_->bytes(), filled_));
  next_block_ = block_ + 1;
  if (got < filled_) return Damaged("is cut");
  if (StableHash(buffer_->bytes(), filled_) != info_.message.block_checksum(static_cast<int>(block_))) {
    return Damaged("has a wrong checksum");
  }
  begin_ = 0;
  in_block_ = info_.first[block_];
  while (in_block_ < at_) RETURN_IF_ERROR(Pass());
  return absl::OkStatus();
}

absl::Status ExampleFileSource::Pass() {
  if (!CheckExampleRecord({buffer_->bytes() + begin_, filled_ - begin_}, info_.floats, info_.slots, &sizes_)) {
    return Damaged(absl::StrCat("has no example ", in_block_));
  }
  begin_ += sizes_.bytes;
  ++in_block_;
  return absl::OkStatus();
}

bool ExampleFileSource::Next(std::string_view* record, int64_t* offset) {
  if (at_ >= end_ || !status_.ok()) return false;
  const bool in_hand = block_ + 1 < info_.place.size() && at_ >= in_block_ && at_ < info_.first[block_ + 1];
  if (!in_hand) status_ = ReadBlock();
  while (status_.ok() && in_block_ < at_) status_ = Pass();
  const size_t begin = begin_;
  if (status_.ok()) status_ = Pass();
  if (!status_.ok()) return false;
  *record = {buffer_->bytes() + begin, begin_ - begin};
  *offset = at_++;
  return true;
}

int64_t ExampleFileSource::Skip(int64_t records) {
  if (!status_.ok()) return 0;
  const int64_t skipped = std::clamp<int64_t>(end_ - at_, 0, records);
  at_ += skipped;
  return skipped;
}

ExampleFileWriter::ExampleFileWriter(std::unique_ptr<AtomicFile> file, v1::ExampleFile message, size_t floats)
    : file_(std::move(file)), message_(std::move(message)), floats_(floats) {}

absl::StatusOr<std::unique_ptr<ExampleFileWriter>> ExampleFileWriter::Create(const std::string& path,
                                                                             const std::vector<Column>& columns,
                                                                             std::string reader) {
  v1::ExampleFile message;
  message.set_format_version(kVersion);
  message.set_reader(std::move(reader));
  int64_t floats = 0;
  for (const Column& column : columns) {
    v1::ExampleFile::Variable* const variable = message.add_variable();
    variable->set_name(column.name);
    variable->set_width(column.width);
    variable->set_ids(column.kind == v1::IDS);
    if (column.kind != v1::IDS) floats += column.width;
    for (const std::string& slot : column.slot_names) {
      variable->add_slot(slot);
      message.add_slot();
    }
    for (const IdKind kind : column.id_kinds) variable->add_id_kind(MessageKind(kind));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  std::string begin(kExampleFileBegin);
  Append(kVersion, &begin);
  begin.resize(kBegin, '\0');
  RETURN_IF_ERROR(file->Append(begin));
  return std::unique_ptr<ExampleFileWriter>(
      new ExampleFileWriter(std::move(file), std::move(message), static_cast<size_t>(floats)));
}

void ExampleFileWriter::Count(const Example& example) {
  for (size_t i = 0; i < floats_.size(); ++i) {
    const float x = example.floats[i];
    if (std::isnan(x)) continue;
    FloatSums& sums = floats_[i];
    if (sums.values == 0) sums.least = sums.largest = x;
    sums.least = std::min(sums.least, x);
    sums.largest = std::max(sums.largest, x);
    ++sums.values;
    const double distance = x - sums.mean;
    sums.mean += distance / static_cast<double>(sums.values);
    sums.squares += distance * (x - sums.mean);
  }
  for (size_t s = 0; s < example.counts.size(); ++s) {
    v1::ExampleFile::Slot* const slot = message_.mutable_slot(static_cast<int>(s));
    const int count = example.counts[s];
    slot->set_ids(slot->ids() + count);
    slot->set_empty(slot->empty() + (count == 0));
    slot->set_most(std::max(slot->most(), count));
  }
}

absl::Status ExampleFileWriter::Add(const Example& example) {
  CHECK_EQ(example.floats.size(), floats_.size());
  CHECK_EQ(example.counts.size(), static_cast<size_t>(message_.slot_size()));
  const ExampleRecordSizes sizes = SizesOf(example);
  const size_t before = block_.size();
  block_.resize(before + sizes.bytes);
  WriteExampleRecord(example, sizes, block_.data() + before);
  ++block_examples_;
  Count(example);
  return block_.size() >= kBlock ? WriteBlock() : absl::OkStatus();
}

absl::Status ExampleFileWriter::WriteBlock() {
  if (block_examples_ == 0) return absl::OkStatus();
  message_.add_block_bytes(static_cast<int64_t>(block_.size()));
  message_.add_block_examples(block_examples_);
  message_.add_block_checksum(StableHash(block_));
  message_.set_examples(message_.examples() + block_examples_);
  block_examples_ = 0;
  const absl::Status written = file_->Append(block_);
  block_.clear();
  return written;
}

absl::StatusOr<v1::ExampleFile> ExampleFileWriter::Finish() {
  RETURN_IF_ERROR(WriteBlock());
  message_.set_examples(message_.examples());
  for (const FloatSums& sums : floats_) {
    v1::ExampleFile::FloatColumn* const column = message_.add_float_column();
    column->set_values(sums.values);
    if (sums.values == 0) continue;
    column->set_least(sums.least);
    column->set_largest(sums.largest);
    column->set_mean(sums.mean);
    column->set_deviation(std::sqrt(sums.squares / static_cast<double>(sums.values)));
  }
  std::string end = message_.SerializeAsString();
  const auto size = static_cast<uint64_t>(end.size());
  const uint64_t checksum = StableHash(end);
  Append(size, &end);
  Append(checksum, &end);
  end.append(kEnd);
  RETURN_IF_ERROR(file_->Append(end));
  RETURN_IF_ERROR(file_->Commit());
  return message_;
}

}  // namespace weir
