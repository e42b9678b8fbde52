// Files of a job with data.follow, as far as they are known: groups of files, numbered from 1, each of which is cut
// into streams by itself, as an epoch is. Connects the thread that learns of groups with the readers that wait for
// them.
#ifndef WEIR_TRAINER_DATA_FOLLOWED_FILES_H_
#define WEIR_TRAINER_DATA_FOLLOWED_FILES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/runtime/lane_tree.h"
#include "trainer/files/data_set.h"

namespace weir {

// Place in the files at which a stream begins to read.
struct StreamStart {
  int64_t group = 1;
  int64_t before = 0;  // examples of the stream in earlier groups
  int64_t given = 0;  // examples that it has given, at least `before`; the first given - before of the group are passed
  int64_t batches = 0;  // batches that it has given
  // Records that were dealt one by one in earlier groups, of all streams.
  int64_t dealt = 0;
};

// The examples of a stream up to the end of a group.
struct StreamReading {
  int stream = 0;
  int64_t group = 0;
  int64_t examples = 0;  // of the group and all groups before it
  int64_t dealt = 0;     // records that were dealt one by one in these, of all streams
  bool last = false;     // the stream has ended here
};

// Thread-safe.
class FollowedFiles {
 public:
  // `streams`: those that are read here. `next`: number of the first group that Add will bring.
  FollowedFiles(LaneRange streams, int64_t next);

  // Adds the group of number next(). Requires: not after Close.
  void Add(std::shared_ptr<const DataSet> files);
  int64_t next() const;
  // Records that no group follows: streams end with the examples that are there, in a batch that may be short.
  void Close();
  // Records that nobody wants more examples: a stream that waits for a group ends without the batch that it has begun.
  void Stop();
  // Records that no group can follow: a stream that needs one ends with this error.
  void Fail(const absl::Status& status);

  struct Group {
    enum State { kUnknown, kThere, kClosed, kStopped } state = kUnknown;
    std::shared_ptr<const DataSet> files = nullptr;  // kThere
  };
  // Returns group `number` for a stream, or what is known of it; the error of Fail. Requires: the stream has read all
  // groups before it, since groups that every stream has passed are dropped.
  absl::StatusOr<Group> Find(int stream, int64_t number);
  // Returns true if Find would not say kUnknown.
  bool Knows(int64_t number) const;
  // Records that a stream has read a group to its end.
  void HasRead(const StreamReading& reading);
  // Returns what has been recorded, in order of streams and groups; forgets, for each stream, what ends before the last
  // reading of at most keep(stream) examples.
  std::vector<StreamReading> Readings(const std::function<int64_t(int stream)>& keep);

  // Sets whether the caller that wants examples waits because a stream does (LaneReader::AwaitsFiles).
  void SetAwaited(bool awaited);
  bool awaited() const;
  // Sets whether a group is known and its files are being opened: missing files then no longer excuse a wait.
  void SetOpening(bool opening);
  bool opening() const;

  // Sets what is called, without a lock, after each change of the groups; null: nothing.
  void OnNews(std::function<void()> on_news);
  // Sets what is called after each change of the groups, of awaited() and of the readings; null: nothing. It only wakes
  // threads: callers may hold locks.
  void OnChange(std::function<void()> on_change);
  // Calls it, because something else has changed.
  void Changed();

 private:
  bool KnowsLocked(int64_t number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Tell();

  mutable Mutex mu_;
  int64_t next_ ABSL_GUARDED_BY(mu_);
  // Invariant: numbers in groups_ are consecutive and below next_.
  std::map<int64_t, std::shared_ptr<const DataSet>> groups_ ABSL_GUARDED_BY(mu_);  // that some stream has yet to read
  std::map<int, int64_t> at_ ABSL_GUARDED_BY(mu_);                                 // by stream: the group it is in
  std::map<int, std::map<int64_t, StreamReading>> readings_ ABSL_GUARDED_BY(mu_);  // by stream and group
  bool awaited_ ABSL_GUARDED_BY(mu_) = false;
  bool opening_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  // Guards on_news_ and is held while that runs, so that OnNews(nullptr) returns when no call of it is under way.
  Mutex news_mu_;
  std::function<void()> on_news_ ABSL_GUARDED_BY(news_mu_);
  // Likewise. Apart, because a reader calls SetAwaited with the lock that on_news_ takes.
  Mutex change_mu_;
  std::function<void()> on_change_ ABSL_GUARDED_BY(change_mu_);
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_FOLLOWED_FILES_H_
