// Where every trainer leaves bytes under a key and takes everyone's. Not thread-safe; ServerCore locks around it.
#ifndef WEIR_PSERVER_EXCHANGE_BOARD_H_
#define WEIR_PSERVER_EXCHANGE_BOARD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/parameter_server.pb.h"

namespace weir {

class ExchangeBoard {
 public:
  explicit ExchangeBoard(int trainers) : trainers_(trainers) {}

  // Keeps a chunk of a contribution; the same chunk again changes nothing. InvalidArgument when chunk numbers make no sense or
  // contradict earlier ones.
  absl::Status Put(const v1::ExchangeRequest& request, int trainer);
  // Trainers whose contribution under the key is not complete, without those that `excused` says are not waited for.
  std::vector<int> Missing(const std::string& key, const std::function<bool(int)>& excused) const;
  // Chunk `request.chunk` of the contribution of `request.read_trainer`; one of an excused trainer is empty.
  absl::Status Read(const v1::ExchangeRequest& request, int trainer, v1::ExchangeReply* reply);
  // Posts (ExchangeRequest.edition): each trainer's newest, apart from what is waited for. Chunks of an edition older than the
  // newest that has begun are dropped. InvalidArgument as Put.
  absl::Status Post(const v1::ExchangeRequest& request, int trainer);
  absl::Status ReadPost(const v1::ExchangeRequest& request, v1::ExchangeReply* reply) const;

  // Forgets keys that their readers (but the excused) have read to the end longer than `keep` ago: until then a reader whose
  // reply was lost may come again. Those with ExchangeRequest.keep stay.
  void Expire(absl::Time now, absl::Duration keep, const std::function<bool(int)>& excused);

 private:
  struct Contribution {
    std::vector<std::string> chunks;
    std::vector<bool> have;
    bool complete = false;
  };
  struct Entry {
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
  Entry& Find(const std::string& key);
  static absl::Status CheckChunk(const v1::ExchangeRequest& request);
  // Keeps a chunk of what `contribution` becomes.
  static absl::Status AddChunk(const v1::ExchangeRequest& request, int trainer, Contribution* contribution);

  int trainers_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::vector<Posted>> posts_;  // by trainer
};

}  // namespace weir

#endif  // WEIR_PSERVER_EXCHANGE_BOARD_H_
