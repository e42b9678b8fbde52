// Place in its files at which a stream goes on, as checkpoints keep it (proto/stream_places.proto).
#ifndef WEIR_TRAINER_DATA_STREAM_PLACE_H_
#define WEIR_TRAINER_DATA_STREAM_PLACE_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/stream_places.pb.h"
#include "trainer/files/block_reader.h"
#include "trainer/files/data_file.h"

namespace weir {

// A record in the segments of a stream (v1::PlaceOfRecord).
struct PlaceOfRecord {
  int64_t segment = -1;  // -1: none
  int64_t at = 0;
  int64_t number = 0;
  int64_t before = 0;
};

// PlaceOfRecord without `before`, in 16 bytes.
class KeptPlace {
 public:
  KeptPlace() = default;
  // Requires Fits(place).
  explicit KeptPlace(const PlaceOfRecord& place)
      : where_(static_cast<uint64_t>(place.segment) << kAtBits | static_cast<uint64_t>(place.at)),
        number_(place.number) {}
  static bool Fits(const PlaceOfRecord& place) {
    return place.segment >= 0 && place.segment < (int64_t{1} << (64 - kAtBits)) - 1 && place.at >= 0 &&
           place.at < int64_t{1} << kAtBits;
  }
  int64_t segment() const { return static_cast<int64_t>(where_ >> kAtBits); }
  int64_t at() const { return static_cast<int64_t>(where_ & ((uint64_t{1} << kAtBits) - 1)); }
  int64_t number() const { return number_; }
  // Returns whether it is the place of a record.
  bool there() const { return where_ != kNowhere; }
  // Orders places as a stream reads them.
  bool operator<(const KeptPlace& other) const { return where_ < other.where_; }

 private:
  static constexpr int kAtBits = 48;  // files of 256 TiB, and 65535 segments
  static constexpr uint64_t kNowhere = ~uint64_t{0};

  uint64_t where_ = kNowhere;
  int64_t number_ = 0;
};

// State of a stream behind a batch (v1::StreamPlace).
struct StreamBorder {
  int64_t batches = 0;
  int64_t first_examples = 0;
  int64_t epoch = 0;
  bool ended = false;
  int64_t given = 0;
  int64_t epoch_examples = -1;
  int64_t read = 0;
  // Last record read in this epoch. None: no record, or the stream is shuffled as a whole, and begins the epoch anew.
  PlaceOfRecord last = {};
  // Set with `last`, for a stream that is shuffled in a window.
  bool shuffled = false;
  int64_t draws = 0;
  bool waits = false;
};

// Checks that a stream which was cut into `segments` can go on at `place`: that its numbers are possible, and that a
// record begins in the file where it says. `epochs`: of the run that goes on. `most`: examples that the buffer may
// hold; -1: the stream is not shuffled. DataLoss: the place contradicts itself or the files. FailedPrecondition: with
// this number of epochs the stream goes on elsewhere. Errors of the file.
absl::Status CheckStreamPlace(const v1::StreamPlace& place, absl::Span<const DataFile> files,
                              absl::Span<const Segment> segments, int64_t epochs, int64_t most);

// Places at which plain files begin to be read, ascending, by epoch and file, for all streams of a process that go on
// in them: each begins at the last one that is not behind its place. `records` of a begin leaves a header out.
using FileBegins = std::map<std::pair<int64_t, int64_t>, std::vector<BlockReader::Begin>>;

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_STREAM_PLACE_H_
