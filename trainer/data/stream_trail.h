// Trail of the places at which a stream goes on behind the batches that it has made, for checkpoints.
//
// A reader makes batches ahead of those that train on them, so a checkpoint needs the place of a stream as it was some
// batches ago. A trail keeps the places behind the last batches. A place of a stream that is shuffled in a window
// includes the content of the buffer. The trail has a copy of the buffer, with the places of records instead of
// records, as it was behind the batch that was last trained on, and the changes since.
#ifndef WEIR_TRAINER_DATA_STREAM_TRAIL_H_
#define WEIR_TRAINER_DATA_STREAM_TRAIL_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "framework/base/mutex.h"
#include "proto/stream_places.pb.h"
#include "trainer/data/stream_place.h"

namespace weir {

// Changes of a shuffle buffer.
struct BufferChanges {
  // The buffer has been filled anew, for another epoch, with `filled`.
  bool begins = false;
  std::vector<KeptPlace> filled;
  // One after the other: a record is put into a slot, or, if it is none, the last one of the buffer.
  struct Change {
    uint32_t slot = 0;
    KeptPlace place;
  };
  std::vector<Change> changes;
  // PlaceOfRecord.before, by segment, of those that have begun.
  std::vector<std::pair<int64_t, int64_t>> befores;
};

// Thread-safe.
class StreamTrail {
 public:
  // `epochs`: of the run.
  StreamTrail(int stream, int64_t epochs) : stream_(stream), epochs_(epochs) {}

  // Begins at a place that CheckStreamPlace has accepted. Without it a trail begins with the first Add.
  void Begin(const v1::StreamPlace& place);
  // Records the state behind the next batch, and what has changed in the buffer since the batch before.
  void Add(const StreamBorder& border, BufferChanges changes);
  // Records what has changed in the buffer by examples that were passed.
  void Skip(BufferChanges changes);

  // Frees the places before that behind `batches` batches: they will not be asked for.
  void Passed(int64_t batches);
  // Returns the newest place that is not behind more than `batches` batches, at least those of the last Passed; nullopt
  // if there is none.
  std::optional<v1::StreamPlace> At(int64_t batches);

 private:
  struct Step {
    StreamBorder border;
    BufferChanges changes;
  };
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Apply(BufferChanges* changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int stream_;
  const int64_t epochs_;
  mutable Mutex mu_;
  int64_t passed_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<v1::StreamPlace> begin_ ABSL_GUARDED_BY(mu_);  // until base_ is a later one
  std::optional<StreamBorder> base_ ABSL_GUARDED_BY(mu_);
  // Content of the buffer at base_.
  std::vector<KeptPlace> kept_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, int64_t> befores_ ABSL_GUARDED_BY(mu_);
  std::deque<Step> steps_ ABSL_GUARDED_BY(mu_);  // behind base_
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_STREAM_TRAIL_H_
