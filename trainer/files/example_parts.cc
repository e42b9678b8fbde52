#include "trainer/files/example_parts.h"

#include <algorithm>

#include "trainer/files/example_file.h"

namespace weir {
namespace {

constexpr int64_t kLeastRounds = 2;
// 256 parts of each stream: what regions of the data differ by is seen by all within 0.4 % of an epoch.
constexpr int64_t kMostRounds = 256;
// A part that begins within a block reads and checks all of it, so that parts of two blocks read at most half of the
// bytes twice.
constexpr int64_t kLeastExamplePart = int64_t{2} * ExampleFileWriter::kBlock;

}  // namespace

FileRow::FileRow(absl::Span<const DataFile> files, const std::function<bool(const DataFile&)>& is_of) {
  for (const DataFile& file : files) {
    const bool counts = is_of(file);
    sizes_.push_back(counts ? file.units() : 0);
    units_ += sizes_.back();
    bytes_ += counts ? file.bytes : 0;
  }
}

int64_t FileRow::Cut(int64_t part, int64_t parts) const {
  return static_cast<int64_t>(static_cast<__int128>(units_) * part / parts);
}

void FileRow::Add(int64_t begin, int64_t end, std::vector<Segment>* segments) {
  while (file_ < sizes_.size()) {
    const int64_t size = sizes_[file_];
    const int64_t from = std::max<int64_t>(begin - base_, 0), to = std::min(end - base_, size);
    if (from < to) segments->push_back({.file = static_cast<int64_t>(file_), .begin = from, .end = to});
    if (base_ + size > end) break;
    base_ += size;
    ++file_;
  }
}

int64_t PartRounds(int64_t bytes, int streams, int64_t least_part) {
  return std::clamp(bytes / (streams * least_part), kLeastRounds, kMostRounds);
}

void AddExampleParts(absl::Span<const DataFile> files, int stream, int streams, std::vector<Segment>* segments) {
  FileRow row(files, [](const DataFile& file) { return file.examples != nullptr; });
  const int64_t rounds = PartRounds(row.bytes(), streams, kLeastExamplePart);
  // Returns how many of the first n examples those streams get that are below `below`, where each is dealt in turn.
  const auto dealt = [&](int64_t n, int64_t below) { return n / streams * below + std::min(n % streams, below); };
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t first = row.Cut(round, rounds), last = row.Cut(round + 1, rounds);
    const int64_t before = dealt(last, stream) - dealt(first, stream);
    const int64_t with = dealt(last, stream + 1) - dealt(first, stream + 1);
    if (round % 2 == 0) {
      row.Add(first + before, first + with, segments);
    } else {
      row.Add(last - with, last - before, segments);
    }
  }
}

}  // namespace weir
