#include "trainer/data/stream_rule.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "glog/logging.h"
#include "trainer/data/example_file.h"

namespace weir {
namespace {

// A part of a plain file: below it, finding where it begins costs more than parsing it.
constexpr int64_t kLeastPart = 4 << 10;
constexpr int64_t kLeastRounds = 2;
// 256 parts of each stream: what regions of the data differ by is seen by all within 0.4 % of an epoch.
constexpr int64_t kMostRounds = 256;

// Whether reading may begin in the middle of a file.
bool Seekable(const DataFile& file) {
  const bool labels_compressed = file.idx != nullptr && file.idx->labels != nullptr && file.idx->labels->compressed();
  return !file.compressed() && !labels_compressed;
}

// IDX files are measured in examples. Others in bytes, so that files of several kinds are divided evenly.
int64_t Units(const DataFile& file) { return file.idx != nullptr ? file.idx->examples : file.bytes; }

// Returns the part of a file from one place to another, in units. Of an example file it has the blocks that begin
// there.
Segment Part(const DataFile& file, size_t index, int64_t begin, int64_t end) {
  const auto place = [&](int64_t units) {
    if (file.examples == nullptr) return units;
    const std::vector<int64_t>& places = file.examples->place;
    // Behind the last block there is the description.
    const auto block = std::lower_bound(places.begin(), places.end() - 1, units) - places.begin();
    return file.examples->first[static_cast<size_t>(block)];
  };
  return {.file = static_cast<int64_t>(index), .begin = place(begin), .end = place(end)};
}

Segment Whole(const DataFile& file, size_t index) { return Part(file, index, 0, Units(file)); }

Segment Dealt(const DataFile& file, size_t index, int stream, int streams) {
  Segment segment = Whole(file, index);
  segment.modulus = streams;
  segment.remainder = streams == 1 ? 0 : stream;
  return segment;
}

// The parts of plain files that round r deals to `stream`, for all r.
void AddParts(absl::Span<const DataFile> files, int64_t bytes, int stream, int streams,
              std::vector<Segment>* segments) {
  int64_t units = 0;
  for (const DataFile& file : files) units += Seekable(file) ? Units(file) : 0;
  const int64_t rounds = std::clamp(bytes / (streams * kLeastPart), kLeastRounds, kMostRounds);
  const int64_t parts = rounds * streams;
  const auto cut = [&](int64_t part) { return static_cast<int64_t>(static_cast<__int128>(units) * part / parts); };
  size_t file = 0;
  int64_t base = 0;  // of the file, in units
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t part = round * streams + (round % 2 == 0 ? stream : streams - 1 - stream);
    const int64_t begin = cut(part), end = cut(part + 1);
    while (file < files.size()) {
      const int64_t size = Seekable(files[file]) ? Units(files[file]) : 0;
      const int64_t from = std::max<int64_t>(begin - base, 0), to = std::min(end - base, size);
      if (from < to) segments->push_back(Part(files[file], file, from, to));
      if (base + size > end) break;
      base += size;
      ++file;
    }
  }
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
  int64_t plain_bytes = 0;
  for (const DataFile& file : files) plain_bytes += Seekable(file) ? file.bytes : 0;
  std::vector<Segment> segments;
  const bool parts = plain_bytes > kDealtBytes;
  if (parts) AddParts(files, plain_bytes, stream, streams, &segments);
  const std::vector<int> owner = WholeFiles(files, streams);
  for (size_t i = 0; i < files.size(); ++i) {
    if (Seekable(files[i]) ? parts : owner[i] >= 0 && owner[i] != stream) continue;
    segments.push_back(owner[i] == stream ? Whole(files[i], i) : Dealt(files[i], i, stream, streams));
  }
  std::stable_sort(segments.begin(), segments.end(),
                   [](const Segment& a, const Segment& b) { return a.file < b.file; });
  return segments;
}

}  // namespace weir
