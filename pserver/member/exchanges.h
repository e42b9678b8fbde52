// Bytes that the trainers of a job give each other, through server 0: exchanges among all of them, posts, streams from
// one to another. Thread-safe.
#ifndef WEIR_PSERVER_MEMBER_EXCHANGES_H_
#define WEIR_PSERVER_MEMBER_EXCHANGES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/parameter_server.pb.h"
#include "pserver/member/calls.h"
#include "pserver/member/exchanged.h"
#include "pserver/member/job_view.h"

namespace weir {

class Exchanges : public Board {
 public:
  // `calls` is borrowed. `thread`: the one whose waits these are.
  Exchanges(Calls* calls, std::shared_ptr<JobView> job, Waits::Thread thread = Waits::kProgram);

  absl::StatusOr<std::vector<std::string>> Exchange(std::string_view key, std::string contribution, bool kept = false,
                                                    bool until_stop = false) override;
  absl::Status Contribute(std::string_view key, std::string contribution, int reader) override;
  absl::StatusOr<bool> TryCollect(std::string_view key, std::vector<std::string>* all) override;
  absl::Status Post(std::string_view key, std::string contribution, int64_t edition) override;
  absl::StatusOr<std::string> Posted(std::string_view key, int trainer) override;
  std::unique_ptr<ByteStream> StreamTo(std::string_view key, int trainer) override;
  absl::Status ReadStream(std::string_view key, int trainer, const TakeBytes& take) override;
  absl::StatusOr<PostedWord> AwaitWord(std::string_view key, int64_t edition) override;
  absl::StatusOr<PostedWord> NewestWord(std::string_view key, int64_t above) override;

 private:
  class StreamWriter;
  using Accept = std::function<absl::StatusOr<bool>(v1::ExchangeReply reply)>;

  v1::ExchangeRequest NewRequest(const std::string& key) const;
  // Makes a call to server 0 whose answer is parsed before it is accepted.
  static CallPtr NewCall(const v1::ExchangeRequest& request, Accept accept);
  // Makes one whose answer comes when another trainer has done its part.
  static CallPtr NewCallForOthers(const v1::ExchangeRequest& request, Accept accept);
  // Waits for an answer that needs no other trainer.
  absl::Status WaitForExchange(absl::Span<const CallPtr> calls, const std::string& key);
  // Waits for an answer that comes when others have done their part. `what` and `deadline`: of Calls::Wait.
  absl::Status WaitForOthers(const CallPtr& call, const std::string& what, absl::Duration deadline,
                             bool until_stop = false);

  // Options of Upload: ExchangeRequest.keep, reader, edition (-1: no post).
  struct UploadAs {
    bool kept = false;
    int reader = -1;
    int64_t edition = -1;
  };
  absl::Status Upload(const std::string& key, const std::string& contribution, const UploadAs& as);
  absl::Status ReadAll(const std::string& key, std::vector<std::string>* all);
  // Returns a trainer's post. Sets `replaced` if a newer edition took its place meanwhile; the result is then not
  // usable.
  absl::StatusOr<std::string> ReadPost(const std::string& key, int trainer, bool* replaced);
  // Finds the trainer that has posted the newest edition, without its text. `wait`: until there is one of at least
  // `edition`, or this trainer is the chief.
  absl::StatusOr<PostedWord> FindWord(const std::string& key, int64_t edition, bool wait);
  absl::StatusOr<PostedWord> HearWord(const std::string& key, int64_t edition, bool wait, int64_t above = -1);
  // Sends a chunk of a stream when there is room for it. chunks: number of chunks of the whole stream, 0 while unknown.
  absl::Status SendChunk(const std::string& key, int trainer, int chunk, int chunks, std::string bytes);
  void HearOfChief(const v1::ExchangeReply& reply);

  Calls& calls_;
  const CallSettings& settings_;
  const std::shared_ptr<JobView> job_;
  const Waits::Thread thread_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_EXCHANGES_H_
