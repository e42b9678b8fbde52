// Where every trainer leaves bytes under a key and takes everyone's. Not thread-safe; ServerCore locks around it.
//
// What a trainer has left here, keys and bookkeeping included, takes `room` bytes at most; more is ResourceExhausted.
#ifndef WEIR_PSERVER_SERVER_EXCHANGE_BOARD_H_
#define WEIR_PSERVER_SERVER_EXCHANGE_BOARD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/parameter_server.pb.h"

namespace weir {

class ExchangeBoard {
 public:
  explicit ExchangeBoard(int trainers) : ExchangeBoard(std::vector<size_t>(static_cast<size_t>(trainers), SIZE_MAX)) {}
  // By trainer.
  explicit ExchangeBoard(std::vector<size_t> room)
      : trainers_(static_cast<int>(room.size())), room_(std::move(room)), used_(room_.size(), 0) {}

  // InvalidArgument: a key that is none.
  static absl::Status CheckKey(const std::string& key);
  // Keeps a chunk of a contribution; the same chunk again changes nothing. InvalidArgument when chunk numbers make no
  // sense or contradict earlier ones. ResourceExhausted: see above.
  absl::Status Put(const v1::ExchangeRequest& request, int trainer);
  // Trainers whose contribution under the key is not complete, without those that `excused` says are not waited for.
  std::vector<int> Missing(const std::string& key, const std::function<bool(int)>& excused) const;
  // Chunk `request.chunk` of the contribution of `request.read_trainer`; one of an excused trainer is empty.
  absl::Status Read(const v1::ExchangeRequest& request, int trainer, v1::ExchangeReply* reply);
  // Posts (ExchangeRequest.edition): each trainer's newest, apart from what is waited for. Chunks of an edition older
  // than the newest that has begun are dropped. InvalidArgument as Put.
  absl::Status Post(const v1::ExchangeRequest& request, int trainer);
  absl::Status ReadPost(const v1::ExchangeRequest& request, v1::ExchangeReply* reply) const;
  // Bytes that Read, or with an edition ReadPost, would put into its reply; 0 where it would fail.
  size_t ReadBytes(const v1::ExchangeRequest& request) const;
  // The newest post of anyone under the key, by edition; of two the lower trainer's.
  struct NewestPost {
    int trainer = -1;  // -1: none
    int64_t edition = -1;
  };
  NewestPost Newest(const std::string& key) const;

  // Forgets keys that their readers (but the excused) have read to the end longer than `keep` ago: until then a reader
  // whose reply was lost may come again. What an excused reader alone was to read is the chief's. Those with
  // ExchangeRequest.keep stay.
  void Expire(absl::Time now, absl::Duration keep, const std::function<bool(int)>& excused, int chief);

  // Of a trainer.
  size_t used(int trainer) const { return used_[static_cast<size_t>(trainer)]; }

 private:
  struct Contribution {
    std::vector<std::string> chunks;
    std::vector<bool> have;
    bool complete = false;
    size_t bytes = 0;  // of the trainer's room
  };
  struct Entry {
    int maker = 0;  // whose room has the key
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
  // Keeps a chunk of what `contribution` becomes.
  absl::Status AddChunk(const v1::ExchangeRequest& request, int trainer, Contribution* contribution);
  // Takes room, for messages under a key.
  absl::Status Take(int trainer, size_t bytes, const std::string& key);
  void GiveBack(int trainer, size_t bytes) { used_[static_cast<size_t>(trainer)] -= bytes; }
  // That a key takes without what is said under it.
  size_t KeyBytes(const std::string& key) const;

  int trainers_;
  std::vector<size_t> room_, used_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::vector<Posted>> posts_;  // by trainer
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_EXCHANGE_BOARD_H_
