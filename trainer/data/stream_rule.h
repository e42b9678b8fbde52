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
// Example files are plain, and count with plain text for the limit of 16 MiB. Up to it they are dealt example by
// example, so that a job has the same streams on small text and on the example files made of it. More are cut by
// themselves, beside the text:
//
//   example files, more           The examples of all example files, one after the other, are cut into R equal rounds,
//                                 R = bytes / (n * 64 KiB), at least 2 and at most 256. A round is cut into n parts in
//                                 the order of the streams, forth when r is even, back when it is odd. A stream's part
//                                 of a round has as many examples as the stream would get of the round if example i
//                                 belonged to stream i mod n.
//
// By that, no two streams differ by more than one example, however many bytes an example has. Parts of equal bytes
// would not do: where they are about as long as blocks, or as examples, their borders fall into step with those, and
// some streams get next to nothing.
//
// Streams of text are as even as this allows, not equal: docs/data.md describes what happens to the rest at the end of
// a run.
#ifndef WEIR_TRAINER_DATA_STREAM_RULE_H_
#define WEIR_TRAINER_DATA_STREAM_RULE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "trainer/data/data_file.h"

namespace weir {

// Version of the rule, stored in checkpoints: a run resumes only by the rule that it began with. 1 (or absent): one
// range of bytes for each stream, batches that end with the epoch. 2: the rule above; it has never changed but for
// example files that are cut, whose parts were ranges of bytes at first. With these it is 3.
inline constexpr int kStreamScheme = 2;
inline constexpr int kExamplePartsScheme = 3;
// Returns the version of the rule that CutStream applies to the files.
int StreamScheme(absl::Span<const DataFile> files);

// Total size up to which plain files are dealt line by line; likewise for compressed files.
inline constexpr int64_t kDealtBytes = int64_t{16} << 20;

// Returns the segments of stream `stream` of `streams`, in the order in which they are read.
std::vector<Segment> CutStream(absl::Span<const DataFile> files, int stream, int streams);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_STREAM_RULE_H_
