#include "trainer/files/idx_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/formats/line_parser.h"
#include "trainer/files/open_bytes.h"

namespace weir {
namespace {

constexpr unsigned char kUnsignedBytes = 8;
// Far beyond any use: a product of sizes stays far from the end of its type.
constexpr int64_t kMaxBytes = int64_t{1} << 60;

struct Header {
  int64_t bytes = 0;
  int64_t examples = 0;
  int64_t values = 1;  // of one example
};

absl::Status CutHeader(const DataFile& file) {
  return absl::DataLossError(
      absl::StrCat(file.name, ": cut: it ends in the middle of its IDX header; get the file again"));
}

absl::StatusOr<Header> ReadHeader(const DataFile& file) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, OpenBytes(file, 0));
  unsigned char magic[4];
  ASSIGN_OR_RETURN(const size_t got, source->ReadFully(reinterpret_cast<char*>(magic), sizeof(magic)));
  if (got < sizeof(magic)) return CutHeader(file);
  if (magic[0] != 0 || magic[1] != 0 || magic[3] == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name,
                     ": is no IDX file: one begins with two zero bytes, a type and a number of "
                     "dimensions from 1 on"));
  }
  if (magic[2] != kUnsignedBytes) {
    return absl::InvalidArgumentError(absl::StrCat(file.name, ": holds values of IDX type ", static_cast<int>(magic[2]),
                                                   "; only unsigned bytes, type 8, are read"));
  }
  std::vector<unsigned char> sizes(size_t{4} * magic[3]);
  ASSIGN_OR_RETURN(const size_t more, source->ReadFully(reinterpret_cast<char*>(sizes.data()), sizes.size()));
  if (more < sizes.size()) return CutHeader(file);
  Header header = {.bytes = static_cast<int64_t>(sizeof(magic) + sizes.size())};
  for (size_t i = 0; i < sizes.size(); i += 4) {
    const int64_t size = static_cast<int64_t>(sizes[i]) << 24 | sizes[i + 1] << 16 | sizes[i + 2] << 8 | sizes[i + 3];
    if (i == 0) {
      header.examples = size;
    } else if (size > 0 && header.values > kMaxBytes / size / std::max<int64_t>(header.examples, 1)) {
      return absl::InvalidArgumentError(absl::StrCat(file.name, ": its IDX header promises more than 2^60 bytes"));
    } else {
      header.values *= size;
    }
  }
  if (file.compression != Compression::kNone) return header;
  const int64_t promised = header.bytes + header.examples * header.values;
  if (file.bytes == promised) return header;
  const std::string text = absl::StrCat(file.name, ": has ", file.bytes, " bytes; its IDX header promises ",
                                        header.examples, " x ", header.values, ", so ", promised);
  if (file.bytes < promised) return absl::DataLossError(absl::StrCat(text, "; get the file again"));
  return absl::InvalidArgumentError(text);
}

}  // namespace

absl::Status LookAtIdx(int64_t values, const DataFile* labels, DataFile* file) {
  auto idx = std::make_shared<IdxFile>();
  ASSIGN_OR_RETURN(const Header header, ReadHeader(*file));
  if (header.values != values) {
    return absl::InvalidArgumentError(
        absl::StrCat(file->name, ": its examples have ", header.values, " values; data.idx.values is ", values));
  }
  idx->examples = header.examples;
  idx->values = values;
  idx->header_bytes = header.bytes;
  if (labels != nullptr) {
    ASSIGN_OR_RETURN(const Header of_labels, ReadHeader(*labels));
    if (of_labels.values != 1) {
      return absl::InvalidArgumentError(absl::StrCat(labels->name, ": holds ", of_labels.values,
                                                     " values for each example; labels are one byte each"));
    }
    if (of_labels.examples != header.examples) {
      return absl::InvalidArgumentError(absl::StrCat(labels->name, ": has ", of_labels.examples, " labels; ",
                                                     file->name, " has ", header.examples, " examples"));
    }
    idx->labels = std::make_shared<const DataFile>(*labels);
    idx->labels_header_bytes = of_labels.bytes;
  }
  file->idx = std::move(idx);
  return absl::OkStatus();
}

absl::Status IdxSource::Part::Open(int64_t header_bytes, int64_t begin) {
  const bool plain = file_.compression == Compression::kNone;
  ASSIGN_OR_RETURN(bytes_, OpenBytes(file_, plain ? header_bytes + begin * static_cast<int64_t>(size_) : 0));
  buffer_.resize(std::max(ByteSource::kBlock / size_, size_t{1}) * size_);
  if (plain) return absl::OkStatus();
  // A header has at most 1024 bytes.
  std::vector<char> header(static_cast<size_t>(header_bytes));
  ASSIGN_OR_RETURN(const size_t got, bytes_->ReadFully(header.data(), header.size()));
  if (got < header.size()) return CutHeader(file_);
  return absl::OkStatus();
}

absl::StatusOr<const char*> IdxSource::Part::Next(int64_t at, int64_t examples) {
  if (begin_ == filled_) {
    const size_t wanted = std::min(buffer_.size(), static_cast<size_t>(examples - at) * size_);
    ASSIGN_OR_RETURN(filled_, bytes_->ReadFully(buffer_.data(), wanted));
    begin_ = 0;
    if (filled_ < wanted) {
      return absl::DataLossError(absl::StrCat(file_.name, ": ends in example ",
                                              at + static_cast<int64_t>(filled_ / size_),
                                              " from 0; its IDX header promises ", examples, "; get the file again"));
    }
  }
  const char* const bytes = buffer_.data() + begin_;
  begin_ += size_;
  return bytes;
}

absl::Status IdxSource::Part::ExpectEnd() {
  if (file_.compression == Compression::kNone) return absl::OkStatus();
  char byte;
  ASSIGN_OR_RETURN(const size_t got, bytes_->Read(&byte, 1));
  if (got == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file_.name, ": goes on behind the last example that its IDX header promises"));
}

IdxSource::IdxSource(const DataFile& file, int64_t begin, int64_t end)
    : file_(file),
      at_(begin),
      end_(end),
      values_(file, file.idx->values),
      record_(static_cast<size_t>(file.idx->values) + 1 + LineParser::kPadding) {
  if (file.idx->labels != nullptr) labels_ = std::make_unique<Part>(*file.idx->labels, 1);
}

absl::StatusOr<std::unique_ptr<RecordSource>> IdxSource::Open(const DataFile& file, const Segment& segment) {
  const bool plain = file.compression == Compression::kNone;
  const int64_t begin = plain ? segment.begin : 0;
  std::unique_ptr<IdxSource> source(new IdxSource(file, begin, plain ? segment.end : file.idx->examples));
  RETURN_IF_ERROR(source->values_.Open(file.idx->header_bytes, begin));
  if (source->labels_ == nullptr) return source;
  // Labels may be compressed where values are not: then those in front of the range are passed by.
  const bool plain_labels = file.idx->labels->compression == Compression::kNone;
  RETURN_IF_ERROR(source->labels_->Open(file.idx->labels_header_bytes, plain_labels ? begin : 0));
  for (int64_t i = 0; i < begin && !plain_labels; ++i)
    RETURN_IF_ERROR(source->labels_->Next(i, file.idx->examples).status());
  return source;
}

absl::Status IdxSource::Read() {
  ASSIGN_OR_RETURN(const char* const values, values_.Next(at_, file_.idx->examples));
  std::memcpy(record_.data(), values, static_cast<size_t>(file_.idx->values));
  if (labels_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const char* const label, labels_->Next(at_, file_.idx->examples));
  record_[static_cast<size_t>(file_.idx->values)] = *label;
  return absl::OkStatus();
}

bool IdxSource::Next(std::string_view* record, int64_t* offset) {
  if (!status_.ok()) return false;
  if (at_ == end_) {
    if (end_ == file_.idx->examples) status_ = values_.ExpectEnd();
    if (end_ == file_.idx->examples && status_.ok() && labels_ != nullptr) status_ = labels_->ExpectEnd();
    return false;
  }
  status_ = Read();
  if (!status_.ok()) return false;
  *record = {record_.data(), static_cast<size_t>(file_.idx->values) + (labels_ != nullptr ? 1 : 0)};
  *offset = at_++;
  return true;
}

}  // namespace weir
