// Rule that cuts the files of a data set into streams: a function only of the files (their order, sizes and kinds) and
// of the number of streams. It reads no data, and every stream sees all regions of the data.
//
// Text:
//
//   plain, up to 16 MiB in all    Line i belongs to stream i mod n.
//   plain, more                   The bytes of all plain files, one after the other, are cut into n * R equal parts,
//                                 R = bytes / (n * 4 KiB), at least 2 and at most 256. Round r deals n parts: forth
//                                 (part r * n + s to stream s) when r is even, back when it is odd. A line belongs to
//                                 the part it begins in.
//   compressed, up to 16 MiB      Line i belongs to stream i mod n.
//   compressed, more              Largest first, a file goes whole to the stream that has the fewest bytes so far, as
//                                 long as that stream then has at most 1 % more than the mean of all. The lines of the
//                                 other files are dealt in turn: line i belongs to stream i mod n.
//
// Lines that are dealt in turn are counted over all such files, headers left out. For IDX files, examples take the
// place of lines; a plain one whose labels are compressed counts as compressed. A stream reads its parts in the order
// of the files.
//
// Streams are as even as this allows, not equal: docs/data.md describes what happens to the rest at the end of a run.
#ifndef WEIR_TRAINER_DATA_STREAM_RULE_H_
#define WEIR_TRAINER_DATA_STREAM_RULE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "trainer/data/data_file.h"

namespace weir {

// Version of the rule, stored in checkpoints: a run resumes only by the rule that it began with. 1 (or absent): one
// range of bytes for each stream, batches that end with the epoch.
inline constexpr int kStreamScheme = 2;

// Total size up to which plain files are dealt line by line; likewise for compressed files.
inline constexpr int64_t kDealtBytes = int64_t{16} << 20;

// Returns the segments of stream `stream` of `streams`, in the order in which they are read.
std::vector<Segment> CutStream(absl::Span<const DataFile> files, int stream, int streams);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_STREAM_RULE_H_
