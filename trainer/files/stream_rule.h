// Rule that cuts the files of a data set into streams: a function only of the files (their order, kinds and sizes), the
// number of streams n and the seed. It reads no data.
//
//   text, IDX, TFRecord; example files up to 16 MiB
//       The records of all these files, in the order of the files and without headers, are numbered from 0. Each n that
//       follow each other are a round, and every stream gets one record of it: stream s gets record (s + d) mod n,
//       where d is drawn for each round from (seed, number of the round).
//   example files, more
//       The examples of all example files, one after the other, are cut into R equal rounds, R = bytes / (n * 64 KiB),
//       at least 2 and at most 256. A round is cut into n parts in the order of the streams, forth when r is even, back
//       when it is odd. A stream's part of a round has as many examples as the stream would get of the round if example
//       i belonged to stream i mod n.
//
// So of either kind no stream gets more than one record more than another. The record that a stream gets of a round is
// independent of those of other rounds, and equally likely to be any record of the round: a period in the order of the
// records (a negative drawn behind each positive) does not show in a stream. Records and not bytes are counted, and
// compression does not matter: a file and its packed form give the same streams. A process that reads some streams has
// to look at the records of all of them; with example files, which are for large data on many trainers, only at its
// own.
//
// Text and example files up to 16 MiB in all are dealt alike so that a job has the same streams on small text and on
// the example files made of it.
#ifndef WEIR_TRAINER_FILES_STREAM_RULE_H_
#define WEIR_TRAINER_FILES_STREAM_RULE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/base/stable_hash.h"
#include "trainer/files/data_file.h"

namespace weir {

// Version of the rule, stored in checkpoints: a run resumes by the rule that it began with.
//
//   1 (or absent)  one range of bytes for each stream, batches that end with the epoch; no build resumes it
//   2, 3           trainer/files/earlier_stream_rule.h
//   4              the rule above
inline constexpr int kStreamScheme = 4;
// Returns true if a run on these files may have been cut by rule `scheme`, which CutStream then knows.
bool CutsBy(int scheme, absl::Span<const DataFile> files);
// The same for the files of data.follow.
bool CutsFollowedBy(int scheme);

// Returns the segments of stream `stream` of `streams`, in the order in which they are read.
std::vector<Segment> CutStream(absl::Span<const DataFile> files, int stream, int streams, int scheme = kStreamScheme);

// Determines which record of a round each stream gets.
class RoundDealer {
 public:
  RoundDealer(uint64_t seed, int64_t streams);

  // Returns the place in a round, from 0 to `streams` - 1, of the record that `stream` gets.
  int64_t PlaceOf(int64_t stream, int64_t round) const {
    const uint64_t drawn = MixId(key_ ^ static_cast<uint64_t>(round));
    const auto first =
        static_cast<int64_t>(static_cast<unsigned __int128>(drawn) * static_cast<uint64_t>(streams_) >> 64);
    const int64_t place = stream + first;
    return place < streams_ ? place : place - streams_;
  }

 private:
  uint64_t key_;
  int64_t streams_;
};

inline int64_t PlaceInRound(uint64_t seed, int64_t round, int64_t stream, int64_t streams) {
  return RoundDealer(seed, streams).PlaceOf(stream, round);
}

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_STREAM_RULE_H_
