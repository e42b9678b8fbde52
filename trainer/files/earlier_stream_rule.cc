#include "trainer/files/earlier_stream_rule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "trainer/files/example_parts.h"

namespace weir {
namespace {

// A part of a plain file: below it, finding where it begins costs more than parsing it.
constexpr int64_t kLeastTextPart = 4 << 10;

Segment Whole(const DataFile& file, size_t index) {
  return {.file = static_cast<int64_t>(index), .begin = 0, .end = file.units()};
}

Segment Dealt(const DataFile& file, size_t index, int stream, int streams) {
  Segment segment = Whole(file, index);
  segment.dealt = true;
  segment.modulus = streams;
  segment.remainder = streams == 1 ? 0 : stream;
  return segment;
}

// Adds the parts of plain text and IDX files that round r deals to `stream`, for all r.
void AddParts(absl::Span<const DataFile> files, int stream, int streams, std::vector<Segment>* segments) {
  FileRow row(files, [](const DataFile& file) { return file.seekable() && file.examples == nullptr; });
  const int64_t rounds = PartRounds(row.bytes(), streams, kLeastTextPart);
  const int64_t parts = rounds * streams;
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t part = round * streams + (round % 2 == 0 ? stream : streams - 1 - stream);
    row.Add(row.Cut(part, parts), row.Cut(part + 1, parts), segments);
  }
}

int64_t PlainBytes(absl::Span<const DataFile> files) {
  int64_t bytes = 0;
  for (const DataFile& file : files) bytes += file.seekable() ? file.bytes : 0;
  return bytes;
}

// Returns, by file, the stream that gets it whole, or -1 for lines that are dealt in turn. For files that cannot be
// cut.
std::vector<int> WholeFiles(absl::Span<const DataFile> files, int streams) {
  std::vector<int> owner(files.size(), -1);
  std::vector<size_t> order;
  int64_t total = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].seekable()) continue;
    order.push_back(i);
    total += files[i].bytes;
  }
  if (total <= kDealtBytes) return owner;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return files[a].bytes > files[b].bytes; });
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

std::vector<Segment> CutStreamByEarlierRule(absl::Span<const DataFile> files, int stream, int streams) {
  std::vector<Segment> segments;
  const bool parts = PlainBytes(files) > kDealtBytes;
  if (parts) {
    AddParts(files, stream, streams, &segments);
    AddExampleParts(files, stream, streams, &segments);
  }
  const std::vector<int> owner = WholeFiles(files, streams);
  int64_t not_cut = 0;  // bytes
  for (const DataFile& file : files) not_cut += file.seekable() ? 0 : file.bytes;
  const bool numbered = not_cut <= kDealtBytes;
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].seekable() ? parts : owner[i] >= 0 && owner[i] != stream) continue;
    segments.push_back(owner[i] == stream ? Whole(files[i], i) : Dealt(files[i], i, stream, streams));
    segments.back().numbered = segments.back().dealt && numbered;
  }
  std::stable_sort(segments.begin(), segments.end(),
                   [](const Segment& a, const Segment& b) { return a.file < b.file; });
  return segments;
}

int EarlierStreamScheme(absl::Span<const DataFile> files) {
  const bool examples =
      std::any_of(files.begin(), files.end(), [](const DataFile& file) { return file.examples != nullptr; });
  return examples && PlainBytes(files) > kDealtBytes ? kExamplePartsScheme : kLinesInTurnScheme;
}

}  // namespace weir
