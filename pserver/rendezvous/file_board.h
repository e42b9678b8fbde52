// Greetings and answers of a rendezvous as files of a shared directory.
//
//   trainer.1.<incarnation>.here     greeting of trainer 1, written anew every half second while it waits
//   trainer.1.<incarnation>.answer   answer of trainer 0 to it
//
// A process takes part while its greeting changes. Nothing depends on clocks: the reader compares what it reads with
// what it has read before.
#ifndef WEIR_PSERVER_RENDEZVOUS_FILE_BOARD_H_
#define WEIR_PSERVER_RENDEZVOUS_FILE_BOARD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/rendezvous.pb.h"

namespace weir {

// Not thread-safe.
class FileBoard {
 public:
  // Greeting that a process has left.
  struct Post {
    v1::RendezvousGreeting greeting;
    absl::Time changed;  // by this process's clock
    // True if this process has seen the greeting change within the last `silence`.
    bool alive = false;
    // True if the greeting has not changed for `silence`.
    bool stale = false;
  };

  // Creates the directory, if only its parent exists, and leaves the first greeting. `silence`: a greeting that does
  // not change for so long is of a process that is gone. FailedPrecondition: the directory cannot be made or written.
  static absl::StatusOr<std::unique_ptr<FileBoard>> Open(const std::string& directory,
                                                         const v1::RendezvousGreeting& own, absl::Duration silence);
  // Removes the own greeting and the answer to it.
  ~FileBoard();
  FileBoard(const FileBoard&) = delete;
  FileBoard& operator=(const FileBoard&) = delete;

  // Writes the own greeting anew if it is time to.
  absl::Status Beat();
  // Looks at all greetings but the own one. Files that are none of ours, or damaged, are left out.
  absl::Status Look();
  // Result of Look, by file name.
  const std::map<std::string, Post>& posts() const { return posts_; }

  // Returns the answer to the own greeting, if there is one.
  absl::StatusOr<std::optional<v1::RendezvousAnswer>> Answer() const;
  // Leaves an answer to another greeting.
  absl::Status Reply(const v1::RendezvousGreeting& to, const v1::RendezvousAnswer& answer) const;
  // Removes a greeting that another process has left, and the answer to it.
  void Remove(const v1::RendezvousGreeting& of) const;

 private:
  FileBoard(std::string directory, v1::RendezvousGreeting own, absl::Duration silence);
  std::string PathOf(const v1::RendezvousGreeting& greeting, const char* ending) const;
  absl::Status Write(const std::string& path, const std::string& bytes) const;
  void LookAt(const std::string& name, const v1::RendezvousGreeting& greeting);

  const std::string directory_;
  v1::RendezvousGreeting own_;
  const absl::Duration silence_;
  absl::Time next_beat_ = absl::InfinitePast();
  std::map<std::string, Post> posts_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_RENDEZVOUS_FILE_BOARD_H_
