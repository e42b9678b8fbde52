// The rule that cut files into streams before the one of trainer/files/stream_rule.h, for runs that began with it: a
// function only of the files (their order, sizes and kinds) and of the number of streams n.
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
//   example files                 Up to 16 MiB of plain files in all like plain text, else as in stream_rule.h.
//
// Lines that are dealt in turn are counted over all such files, headers left out. For IDX files, examples take the
// place of lines; a plain one whose labels are compressed counts as compressed. A stream reads its parts in the order
// of the files.
#ifndef WEIR_TRAINER_FILES_EARLIER_STREAM_RULE_H_
#define WEIR_TRAINER_FILES_EARLIER_STREAM_RULE_H_

#include <vector>

#include "absl/types/span.h"
#include "trainer/files/data_file.h"

namespace weir {

// Version of the rule where no example files are cut into parts, and where some are (their parts were ranges of bytes
// in the first build that read them, whose runs have 2).
inline constexpr int kLinesInTurnScheme = 2;
inline constexpr int kExamplePartsScheme = 3;
// Returns which of them it is for the files.
int EarlierStreamScheme(absl::Span<const DataFile> files);

std::vector<Segment> CutStreamByEarlierRule(absl::Span<const DataFile> files, int stream, int streams);

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_EARLIER_STREAM_RULE_H_
