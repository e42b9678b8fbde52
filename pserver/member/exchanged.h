// Forms of the bytes that the trainers of a job give each other.
#ifndef WEIR_PSERVER_MEMBER_EXCHANGED_H_
#define WEIR_PSERVER_MEMBER_EXCHANGED_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// Newest post of any trainer under a key.
struct PostedWord {
  int by = -1;  // its trainer; -1: nobody has posted
  int64_t edition = -1;
  std::string text;
  // True if server 0 said in this answer that this trainer is the chief.
  bool chief = false;
};

// Receives bytes of any size, piece by piece.
using TakeBytes = std::function<absl::Status(std::string_view bytes)>;

// Bytes of any size on their way to one other trainer. Not thread-safe.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // May wait for the reader, with the usual deadlines.
  virtual absl::Status Append(std::string_view bytes) = 0;
  virtual absl::Status Finish() = 0;
};

// Posts of the trainers of a job. A post replaces what its trainer has posted under the key with a smaller edition (0
// and up). Posts are kept apart from exchanged bytes, and nobody waits for anyone. Thread-safe.
class PostBoard {
 public:
  virtual ~PostBoard() = default;
  virtual absl::Status Post(std::string_view key, std::string contribution, int64_t edition) = 0;
  // Returns a trainer's newest post, "" if it has posted none.
  virtual absl::StatusOr<std::string> Posted(std::string_view key, int trainer) = 0;
  // Returns the newest post without waiting. `above`: without its text if its edition is not larger.
  virtual absl::StatusOr<PostedWord> NewestWord(std::string_view key, int64_t above = -1) = 0;
};

// Bytes that the trainers of a job give each other, through server 0: exchanges among all of them, posts, streams from
// one to another. Thread-safe.
class Board : public PostBoard {
 public:
  // Gives this trainer's bytes under `key` and returns the bytes of every trainer, by trainer id. Waits for all
  // trainers, with the usual deadlines; in async the deadline runs only while no server's version moves. Contributions
  // may have any size. Requires: the key is new; all trainers call it. `kept`: a trainer that later takes the place of
  // a dead one gets the bytes given now. `until_stop`: a request to stop ends the wait with Cancelled when it lasts a
  // second longer; the caller then ends the job (JobMember::ReportFailure), as others may have seen the exchange
  // complete.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(std::string_view key, std::string contribution,
                                                            bool kept = false, bool until_stop = false) = 0;
  // Contribute gives this trainer's bytes without waiting; TryCollect returns whether all contributions are there, and
  // then sets `all` (async evaluation). `reader`: the one trainer that will collect them, or the chief when that one is
  // gone; -1: all trainers. `all` comes back empty when this trainer's own contribution is gone because another chief
  // has collected it.
  virtual absl::Status Contribute(std::string_view key, std::string contribution, int reader = -1) = 0;
  virtual absl::StatusOr<bool> TryCollect(std::string_view key, std::vector<std::string>* all) = 0;

  // Sends bytes of any size to one other trainer, which reads them meanwhile with ReadStream; only a few MiB are under
  // way at a time. Requires: the key is new.
  virtual std::unique_ptr<ByteStream> StreamTo(std::string_view key, int trainer) = 0;
  // Passes what another trainer streams to `take`, piece by piece, to its end. FailedPrecondition: the other trainer is
  // gone.
  virtual absl::Status ReadStream(std::string_view key, int trainer, const TakeBytes& take) = 0;

  // Waits until a post with at least this edition exists, or until this trainer is the chief. Waits twice the usual
  // deadline at most.
  virtual absl::StatusOr<PostedWord> AwaitWord(std::string_view key, int64_t edition) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_EXCHANGED_H_
