// Readers of a job: processes that read values and ask for news, and take no part. Nobody waits for them; no count, no
// failure and no end of the job depends on them.
//
// A reader has a session, which every call of it renews. It ends without a word when the reader leaves, or when its
// lease has run out.
//
// Not thread-safe: its owner locks around it, and tells it the time.
#ifndef WEIR_FRAMEWORK_MEMBERSHIP_READERS_H_
#define WEIR_FRAMEWORK_MEMBERSHIP_READERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/membership/reply_credits.h"

namespace weir {

class Readers {
 public:
  struct Options {
    absl::Duration lease;                   // longest silence of a reader
    size_t unread_bytes = SIZE_MAX;         // limit of each session's answers
    size_t unread_bytes_of_all = SIZE_MAX;  // limit of the answers of all sessions, those that have ended included
  };
  struct Reader {
    std::string process;       // "host:pid"
    uint64_t incarnation = 0;  // JoinRequest.incarnation
    absl::Time lease_until;
    std::shared_ptr<ReplyCredits> credits;
  };

  explicit Readers(Options options);

  // Gives a process a session, which never is 0; a repeat gets the session that it has. ResourceExhausted: there are
  // kMaxReaders.
  absl::StatusOr<uint64_t> Admit(std::string_view process, uint64_t incarnation, absl::Time now);
  // Returns the reader, null if there is no such session. Valid until the next call of a function that is not const.
  const Reader* Find(uint64_t session) const;
  // Returns "reader (host:pid)", or "a reader that is gone".
  std::string Name(uint64_t session) const;
  // Makes the lease last as if the reader called at `now`, which may be the end of a wait. Returns false if there is no
  // such session.
  bool Renew(uint64_t session, absl::Time now);
  void Release(uint64_t session) { readers_.erase(session); }
  // Ends the sessions whose leases have run out.
  void Expire(absl::Time now);
  // Returns the time at which the first session ends unless it is renewed.
  absl::Time FirstEnd() const;
  // Makes every lease last until `until` at least.
  void Extend(absl::Time until);
  // Takes bytes for an answer (ReplyCredits::Take) of the limits of the reader and of all. Null: it would exceed one,
  // or there is no such session.
  std::shared_ptr<const void> TakeCredit(uint64_t session, size_t bytes);

 private:
  const Options options_;
  const std::shared_ptr<ReplyCredits> all_;
  std::map<uint64_t, Reader> readers_;  // by session
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_MEMBERSHIP_READERS_H_
