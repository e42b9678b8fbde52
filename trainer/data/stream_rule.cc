#include "trainer/data/stream_rule.h"

#include <algorithm>
#include <cstddef>

#include "glog/logging.h"
#include "trainer/data/example_file.h"

namespace weir {
namespace {

// A part of a plain file: below it, finding where it begins costs more than parsing it.
constexpr int64_t kLeastPart = 4 << 10;
constexpr int64_t kLeastRounds = 2;
// 256 parts of each stream: what regions of the data differ by is seen by all within 0.4 % of an epoch.
constexpr int64_t kMostRounds = 256;
// A part of an example file: a part that begins within a block reads and checks all of it, so that parts of two blocks
// read at most half of the bytes twice.
constexpr int64_t kLeastExamplePart = int64_t{2} * ExampleFileWriter::kBlock;

// Whether reading may begin in the middle of a file.
bool Seekable(const DataFile& file) {
  const bool labels_compressed = file.idx != nullptr && file.idx->labels != nullptr && file.idx->labels->sequential();
  return !file.sequential() && !labels_compressed;
}

// Text is measured in bytes, so that files of several kinds are divided evenly; IDX and example files in examples.
int64_t Units(const DataFile& file) {
  if (file.examples != nullptr) return file.examples->examples();
  return file.idx != nullptr ? file.idx->examples : file.bytes;
}

Segment Part(size_t file, int64_t begin, int64_t end) {
  return {.file = static_cast<int64_t>(file), .begin = begin, .end = end};
}

Segment Whole(const DataFile& file, size_t index) { return Part(index, 0, Units(file)); }

Segment Dealt(const DataFile& file, size_t index, int stream, int streams) {
  Segment segment = Whole(file, index);
  segment.dealt = true;
  segment.modulus = streams;
  segment.remainder = streams == 1 ? 0 : stream;
  return segment;
}

// Files side by side, measured in units, which are cut from the front to the back.
class Row {
 public:
  // `is_of`: whether a file is of the row.
  template <typename IsOf>
  Row(absl::Span<const DataFile> files, const IsOf& is_of) {
    for (const DataFile& file : files) {
      sizes_.push_back(is_of(file) ? Units(file) : 0);
      units_ += sizes_.back();
    }
  }
  int64_t units() const { return units_; }
  // Returns units * part / parts.
  int64_t Cut(int64_t part, int64_t parts) const {
    return static_cast<int64_t>(static_cast<__int128>(units_) * part / parts);
  }
  // Adds what is in [begin, end), which must not begin before the range of the last call.
  void Add(int64_t begin, int64_t end, std::vector<Segment>* segments) {
    while (file_ < sizes_.size()) {
      const int64_t size = sizes_[file_];
      const int64_t from = std::max<int64_t>(begin - base_, 0), to = std::min(end - base_, size);
      if (from < to) segments->push_back(Part(file_, from, to));
      if (base_ + size > end) break;
      base_ += size;
      ++file_;
    }
  }

 private:
  std::vector<int64_t> sizes_;  // by file; 0 of those that are not of the row
  int64_t units_ = 0;
  size_t file_ = 0;
  int64_t base_ = 0;  // of the file, in units
};

int64_t Rounds(int64_t bytes, int streams, int64_t least_part) {
  return std::clamp(bytes / (streams * least_part), kLeastRounds, kMostRounds);
}

// Adds the parts of plain text and IDX files that round r deals to `stream`, for all r.
void AddParts(Row row, int64_t bytes, int stream, int streams, std::vector<Segment>* segments) {
  const int64_t rounds = Rounds(bytes, streams, kLeastPart);
  const int64_t parts = rounds * streams;
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t part = round * streams + (round % 2 == 0 ? stream : streams - 1 - stream);
    row.Add(row.Cut(part, parts), row.Cut(part + 1, parts), segments);
  }
}

// Adds the parts of example files that round r deals to `stream`, for all r.
void AddExampleParts(Row row, int64_t bytes, int stream, int streams, std::vector<Segment>* segments) {
  const int64_t rounds = Rounds(bytes, streams, kLeastExamplePart);
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

struct PlainBytes {
  int64_t text = 0;  // and IDX
  int64_t examples = 0;
};
PlainBytes PlainBytesOf(absl::Span<const DataFile> files) {
  PlainBytes bytes;
  for (const DataFile& file : files) {
    if (Seekable(file)) (file.examples != nullptr ? bytes.examples : bytes.text) += file.bytes;
  }
  return bytes;
}

// By file: the stream that gets it whole, or -1 for lines that are dealt in turn. Of files that cannot be cut.
std::vector<int> WholeFiles(absl::Span<const DataFile> files, int streams) {
  std::vector<int> owner(files.size(), -1);
  std::vector<size_t> order;
  int64_t total = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    if (Seekable(files[i])) continue;
    order.push_back(i);
    total += files[i].bytes;
  }
  // Every process can decompress so few in no time, and no stream lacks what stands in another's files.
  if (total <= kDealtBytes) return owner;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return files[a].bytes > files[b].bytes; });
  // Files of like size, as many as streams, shall go whole though no two have the same number of bytes.
  const double most = 1.01 * static_cast<double>(total) / streams;
  std::vector<int64_t> bytes(static_cast<size_t>(streams), 0);
  for (const size_t i : order) {
    const auto lightest = std::min_element(bytes.begin(), bytes.end());
    if (static_cast<double>(*lightest + files[i].bytes) > most) continue;
    *lightest += files[i].bytes;
    owner[i] = static_cast<int>(lightest - bytes.begin());
  }
  return owner;
}

}  // namespace

std::vector<Segment> CutStream(absl::Span<const DataFile> files, int stream, int streams) {
  CHECK(stream >= 0 && stream < streams) << stream << " of " << streams;
  const PlainBytes bytes = PlainBytesOf(files);
  std::vector<Segment> segments;
  const bool parts = bytes.text + bytes.examples > kDealtBytes;
  if (parts) {
    AddParts(Row(files, [](const DataFile& file) { return Seekable(file) && file.examples == nullptr; }), bytes.text,
             stream, streams, &segments);
    AddExampleParts(Row(files, [](const DataFile& file) { return file.examples != nullptr; }), bytes.examples, stream,
                    streams, &segments);
  }
  const std::vector<int> owner = WholeFiles(files, streams);
  int64_t not_cut = 0;  // bytes
  for (const DataFile& file : files) not_cut += Seekable(file) ? 0 : file.bytes;
  const bool numbered = not_cut <= kDealtBytes;
  for (size_t i = 0; i < files.size(); ++i) {
    if (Seekable(files[i]) ? parts : owner[i] >= 0 && owner[i] != stream) continue;
    segments.push_back(owner[i] == stream ? Whole(files[i], i) : Dealt(files[i], i, stream, streams));
    segments.back().numbered = segments.back().dealt && numbered;
  }
  std::stable_sort(segments.begin(), segments.end(),
                   [](const Segment& a, const Segment& b) { return a.file < b.file; });
  return segments;
}

int StreamScheme(absl::Span<const DataFile> files) {
  const PlainBytes bytes = PlainBytesOf(files);
  return bytes.examples > 0 && bytes.text + bytes.examples > kDealtBytes ? kExamplePartsScheme : kStreamScheme;
}

}  // namespace weir
