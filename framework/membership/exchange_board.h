// Board on which every trainer leaves bytes under a key and reads the bytes of all. Not thread-safe; its owner locks
// around it.
//
// A trainer's bytes, with keys and bookkeeping, may take at most `room`; more is ResourceExhausted.
#ifndef WEIR_FRAMEWORK_MEMBERSHIP_EXCHANGE_BOARD_H_
#define WEIR_FRAMEWORK_MEMBERSHIP_EXCHANGE_BOARD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/membership.pb.h"

namespace weir {

class ExchangeBoard {
 public:
  explicit ExchangeBoard(int trainers) : ExchangeBoard(std::vector<size_t>(static_cast<size_t>(trainers), SIZE_MAX)) {}
  // Room in bytes, by trainer.
  explicit ExchangeBoard(std::vector<size_t> room)
      : trainers_(static_cast<int>(room.size())), room_(std::move(room)), used_(room_.size(), 0) {}

  // Returns InvalidArgument if the key is empty or longer than kMaxExchangeKey (framework/membership/limits.h).
  static absl::Status CheckKey(const std::string& key);
  // Stores a chunk of the contribution of `trainer`; a repeated chunk changes nothing. InvalidArgument when chunk
  // numbers are out of range or contradict earlier ones. ResourceExhausted: the trainer's room is full. Requires: the
  // trainer exists; CheckKey has accepted the key.
  absl::Status Put(const v1::ExchangeRequest& request, int trainer);
  // Returns the trainers whose contribution under the key is not complete, without those for which `excused` is true.
  std::vector<int> Missing(const std::string& key, const std::function<bool(int)>& excused) const;
  // Copies chunk `request.chunk` of the contribution of `request.read_trainer` into the reply for `trainer`; a
  // contribution that is not complete (of an excused trainer) reads as one empty chunk. InvalidArgument if there is no
  // such trainer or chunk.
  absl::Status Read(const v1::ExchangeRequest& request, int trainer, v1::ExchangeReply* reply);
  // Posts (ExchangeRequest.edition): keeps each trainer's newest post; nobody waits for posts. Drops chunks of an
  // edition older than the newest that has begun. Errors as Put.
  absl::Status Post(const v1::ExchangeRequest& request, int trainer);
  // Copies chunk `request.chunk` of the newest post of `request.read_trainer` into the reply, with edition and number
  // of chunks. Without a post the reply has no edition; a chunk beyond the last is empty. InvalidArgument if there is
  // no such trainer.
  absl::Status ReadPost(const v1::ExchangeRequest& request, v1::ExchangeReply* reply) const;
  // Returns the number of bytes that Read, or with an edition ReadPost, would put into its reply; 0 where it would
  // fail.
  size_t ReadBytes(const v1::ExchangeRequest& request) const;
  // Newest post of any trainer under the key, by edition; of equal editions the lower trainer's.
  struct NewestPost {
    int trainer = -1;  // -1: none
    int64_t edition = -1;
  };
  NewestPost Newest(const std::string& key) const;

  // Forgets keys whose readers (excused ones aside) finished reading more than `keep` ago; before that a reader whose
  // reply was lost may come again. A key whose only reader is excused is the chief's to read. Keys with
  // ExchangeRequest.keep stay.
  void Expire(absl::Time now, absl::Duration keep, const std::function<bool(int)>& excused, int chief);

  // Returns the bytes of the trainer's room in use.
  size_t used(int trainer) const { return used_[static_cast<size_t>(trainer)]; }

 private:
  struct Contribution {
    std::vector<std::string> chunks;
    std::vector<bool> have;
    bool complete = false;
    size_t bytes = 0;  // counted against the trainer's room
  };
  struct Entry {
    int maker = 0;  // trainer whose room the key is counted against
    size_t bytes = 0;
    std::vector<Contribution> contributions;
    std::vector<bool> read;  // trainers that have taken the last chunk of the last contribution
    bool keep = false;
    int reader = -1;  // -1: all
    absl::Time all_read = absl::InfiniteFuture();
  };
  struct Posted {
    int64_t edition = -1;  // of `contribution`; -1: none
    Contribution contribution;
    int64_t coming_edition = -1;
    Contribution coming;
  };
  static absl::Status CheckChunk(const v1::ExchangeRequest& request);
  // Stores one chunk of `contribution`.
  absl::Status AddChunk(const v1::ExchangeRequest& request, int trainer, Contribution* contribution);
  // Takes bytes of the trainer's room, for messages under a key.
  absl::Status Take(int trainer, size_t bytes, const std::string& key);
  void GiveBack(int trainer, size_t bytes) { used_[static_cast<size_t>(trainer)] -= bytes; }
  // Returns the bytes that a key takes without its contributions.
  size_t KeyBytes(const std::string& key) const;

  int trainers_;
  // By trainer. Invariant: used_[t] <= room_[t].
  std::vector<size_t> room_, used_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::vector<Posted>> posts_;  // by trainer
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_MEMBERSHIP_EXCHANGE_BOARD_H_
