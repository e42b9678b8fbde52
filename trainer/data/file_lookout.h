// Looks for the files of a job with data.follow, again and again, on a thread of its own: a disk or a command may take
// its time to answer.
#ifndef WEIR_TRAINER_DATA_FILE_LOOKOUT_H_
#define WEIR_TRAINER_DATA_FILE_LOOKOUT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "trainer/files/data_set.h"

namespace weir {

// One thread at a time.
class FileLookout {
 public:
  // Begins to look for files of data.train that sort behind the name `after`. `directory`: that of the job file.
  // `on_look`: called after each look, on the thread, which may outlive this; may be empty.
  FileLookout(v1::Data data, std::string directory, std::string after, std::function<void()> on_look = {});
  // A thread that does not return from a look within two seconds is abandoned with a line in the log.
  ~FileLookout();
  FileLookout(const FileLookout&) = delete;
  FileLookout& operator=(const FileLookout&) = delete;

  struct News {
    // Files to take, in order: each has been found unchanged by two looks, and so have all before it.
    std::vector<FoundFile> files;
    // The file of data.follow.until is there: these are the last files, whether changed or not.
    bool closed = false;
    // File that holds up those behind it, because it differs from look to look; "": none does.
    std::string changing;
    // Error of the last look; the next one may succeed.
    absl::Status trouble;
    // Error because of which no look can succeed.
    absl::Status failure;
  };
  // Returns what has been found since the last call.
  News Take();

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);
  // Returns true if it was the last look.
  static bool LookOnce(State* state);

  const std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_FILE_LOOKOUT_H_
