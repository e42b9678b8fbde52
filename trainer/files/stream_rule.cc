#include "trainer/files/stream_rule.h"

#include <algorithm>
#include <cstddef>

#include "glog/logging.h"
#include "trainer/files/earlier_stream_rule.h"
#include "trainer/files/example_parts.h"

namespace weir {

bool CutsBy(int scheme, absl::Span<const DataFile> files) {
  return scheme == kStreamScheme || scheme == EarlierStreamScheme(files);
}

bool CutsFollowedBy(int scheme) { return scheme == kStreamScheme || scheme == kExamplePartsScheme; }

std::vector<Segment> CutStream(absl::Span<const DataFile> files, int stream, int streams, int scheme) {
  CHECK(stream >= 0 && stream < streams) << stream << " of " << streams;
  if (scheme != kStreamScheme) return CutStreamByEarlierRule(files, stream, streams);
  int64_t plain = 0;  // bytes
  for (const DataFile& file : files) plain += file.seekable() ? file.bytes : 0;
  const bool parts = plain > kDealtBytes;
  std::vector<Segment> segments;
  if (parts) AddExampleParts(files, stream, streams, &segments);
  for (size_t i = 0; i < files.size(); ++i) {
    if (parts && files[i].examples != nullptr) continue;
    segments.push_back({.file = static_cast<int64_t>(i),
                        .begin = 0,
                        .end = files[i].units(),
                        .dealt = true,
                        .drawn = true,
                        .numbered = true,
                        .modulus = streams,
                        .remainder = stream});
  }
  std::stable_sort(segments.begin(), segments.end(),
                   [](const Segment& a, const Segment& b) { return a.file < b.file; });
  return segments;
}

RoundDealer::RoundDealer(uint64_t seed, int64_t streams) : streams_(streams) {
  // The key differs from that of Example.draw, which is drawn from the same numbers.
  constexpr uint64_t kKey = 0x9d5c1e37b8a4f263;
  key_ = MixId(MixId(seed) ^ kKey);
}

}  // namespace weir
