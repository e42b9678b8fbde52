#include "framework/checkpoint/npz.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

template <typename T>
void Put(std::string* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

// All members have 64-bit sizes, so that there is one form for all sizes. Their date is 1980-01-01, so that equal
// arrays give equal bytes.
constexpr uint16_t kVersionZip64 = 45;
constexpr uint16_t kDosDate = 33;
constexpr uint32_t kSizeIn64 = 0xffffffff;

void PutCommon(std::string* out, uint32_t crc, size_t name_size, size_t extra_size) {
  Put<uint16_t>(out, kVersionZip64);
  Put<uint16_t>(out, 0x800);  // names are UTF-8
  Put<uint16_t>(out, 0);      // stored
  Put<uint16_t>(out, 0);
  Put<uint16_t>(out, kDosDate);
  Put<uint32_t>(out, crc);
  Put<uint32_t>(out, kSizeIn64);
  Put<uint32_t>(out, kSizeIn64);
  Put<uint16_t>(out, static_cast<uint16_t>(name_size));
  Put<uint16_t>(out, static_cast<uint16_t>(extra_size));
}

std::string LocalHeader(const std::string& name, uint32_t crc, uint64_t size) {
  std::string out;
  Put<uint32_t>(&out, 0x04034b50);
  PutCommon(&out, crc, name.size(), 20);
  out += name;
  Put<uint16_t>(&out, 1);
  Put<uint16_t>(&out, 16);
  Put<uint64_t>(&out, size);
  Put<uint64_t>(&out, size);
  return out;
}

std::string CentralHeader(const std::string& name, uint32_t crc, uint64_t size, uint64_t offset) {
  std::string out;
  Put<uint32_t>(&out, 0x02014b50);
  Put<uint16_t>(&out, kVersionZip64 | (3 << 8));
  PutCommon(&out, crc, name.size(), 28);
  Put<uint16_t>(&out, 0);
  Put<uint16_t>(&out, 0);
  Put<uint16_t>(&out, 0);
  Put<uint32_t>(&out, 0100644u << 16);
  Put<uint32_t>(&out, kSizeIn64);
  out += name;
  Put<uint16_t>(&out, 1);
  Put<uint16_t>(&out, 24);
  Put<uint64_t>(&out, size);
  Put<uint64_t>(&out, size);
  Put<uint64_t>(&out, offset);
  return out;
}

std::string EndRecords(uint64_t members, uint64_t directory_at, uint64_t directory_size) {
  std::string out;
  Put<uint32_t>(&out, 0x06064b50);
  Put<uint64_t>(&out, 44);
  Put<uint16_t>(&out, kVersionZip64);
  Put<uint16_t>(&out, kVersionZip64);
  Put<uint32_t>(&out, 0);
  Put<uint32_t>(&out, 0);
  Put<uint64_t>(&out, members);
  Put<uint64_t>(&out, members);
  Put<uint64_t>(&out, directory_size);
  Put<uint64_t>(&out, directory_at);
  Put<uint32_t>(&out, 0x07064b50);
  Put<uint32_t>(&out, 0);
  Put<uint64_t>(&out, directory_at + directory_size);
  Put<uint32_t>(&out, 1);
  Put<uint32_t>(&out, 0x06054b50);
  Put<uint16_t>(&out, 0);
  Put<uint16_t>(&out, 0);
  Put<uint16_t>(&out, 0xffff);
  Put<uint16_t>(&out, 0xffff);
  Put<uint32_t>(&out, kSizeIn64);
  Put<uint32_t>(&out, kSizeIn64);
  Put<uint16_t>(&out, 0);
  return out;
}

// Version 1.0 of the .npy header, padded so that data starts at a multiple of 64 bytes of the array file.
std::string NpyHeader(std::string_view descr, absl::Span<const int64_t> dims) {
  std::string shape = absl::StrJoin(dims, ", ");
  if (dims.size() == 1) shape += ",";
  std::string dict = absl::StrCat("{'descr': '", absl::string_view(descr.data(), descr.size()),
                                  "', 'fortran_order': False, 'shape': (", shape, "), }");
  dict.append((64 - (10 + dict.size() + 1) % 64) % 64, ' ');
  dict.push_back('\n');
  std::string out("\x93NUMPY\x01\x00", 8);
  Put<uint16_t>(&out, static_cast<uint16_t>(dict.size()));
  return out + dict;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NpzWriter>> NpzWriter::Create(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<FileWriter> file, FileWriter::CreateAtomically(path, /*patched=*/true));
  return std::unique_ptr<NpzWriter>(new NpzWriter(std::move(file)));
}

absl::Status NpzWriter::Begin(std::string_view name, std::string_view descr, size_t element_size,
                              absl::Span<const int64_t> dims) {
  if (open_) return absl::FailedPreconditionError("the array before this one has not ended");
  Member member{.name = std::string(name) + ".npy", .offset = static_cast<uint64_t>(file_->size())};
  for (const Member& other : members_) {
    if (other.name == member.name) return absl::InvalidArgumentError(absl::StrCat("two arrays named ", member.name));
  }
  if (member.name.size() > 0xffff) return absl::InvalidArgumentError("an array's name is longer than 65,535 bytes");
  expected_bytes_ = element_size;
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(expected_bytes_, static_cast<uint64_t>(dim), &expected_bytes_)) {
      return absl::InvalidArgumentError(absl::StrCat(member.name, " has dims [", absl::StrJoin(dims, ", "), "]"));
    }
  }
  const std::string local = LocalHeader(member.name, 0, 0);
  RETURN_IF_ERROR(file_->Append(local.data(), local.size()));
  members_.push_back(std::move(member));
  open_ = true;
  const std::string header = NpyHeader(descr, dims);
  expected_bytes_ += header.size();
  return Append(header.data(), header.size());
}

absl::Status NpzWriter::BeginFloats(std::string_view name, absl::Span<const int64_t> dims) {
  return Begin(name, "<f4", sizeof(float), dims);
}

absl::Status NpzWriter::BeginInts(std::string_view name, absl::Span<const int64_t> dims) {
  return Begin(name, "<i8", sizeof(int64_t), dims);
}

absl::Status NpzWriter::Append(const void* data, size_t bytes) {
  if (!open_) return absl::FailedPreconditionError("no array has begun");
  Member& member = members_.back();
  member.size += bytes;
  if (member.size > expected_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat(member.name, " gets more bytes than its dims have"));
  }
  const auto* at = static_cast<const Bytef*>(data);
  for (size_t left = bytes; left > 0;) {
    const uInt n = static_cast<uInt>(std::min<size_t>(left, size_t{1} << 30));
    member.crc = static_cast<uint32_t>(crc32(member.crc, at, n));
    at += n;
    left -= n;
  }
  return file_->Append(data, bytes);
}

absl::Status NpzWriter::End() {
  if (!open_) return absl::FailedPreconditionError("no array has begun");
  const Member& member = members_.back();
  if (member.size != expected_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat(member.name, " has ", member.size, " bytes, its dims need ", expected_bytes_));
  }
  open_ = false;
  return file_->Patch(static_cast<int64_t>(member.offset), LocalHeader(member.name, member.crc, member.size));
}

absl::Status NpzWriter::Add(std::string_view name, absl::Span<const int64_t> dims, absl::Span<const float> data) {
  RETURN_IF_ERROR(BeginFloats(name, dims));
  RETURN_IF_ERROR(Append(data.data(), data.size() * sizeof(float)));
  return End();
}

absl::Status NpzWriter::Add(std::string_view name, absl::Span<const int64_t> dims, absl::Span<const int64_t> data) {
  RETURN_IF_ERROR(BeginInts(name, dims));
  RETURN_IF_ERROR(Append(data.data(), data.size() * sizeof(int64_t)));
  return End();
}

absl::Status NpzWriter::Finish() {
  if (open_) return absl::FailedPreconditionError("the last array has not ended");
  const uint64_t directory_at = static_cast<uint64_t>(file_->size());
  for (const Member& m : members_) {
    const std::string header = CentralHeader(m.name, m.crc, m.size, m.offset);
    RETURN_IF_ERROR(file_->Append(header.data(), header.size()));
  }
  const std::string end =
      EndRecords(members_.size(), directory_at, static_cast<uint64_t>(file_->size()) - directory_at);
  RETURN_IF_ERROR(file_->Append(end.data(), end.size()));
  return file_->Close();
}

}  // namespace weir
