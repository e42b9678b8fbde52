// Event file that a thread of its own writes to the disk, so that a thread that adds to it never waits for the disk.
#ifndef WEIR_FRAMEWORK_WATCH_EVENT_LOG_H_
#define WEIR_FRAMEWORK_WATCH_EVENT_LOG_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "framework/watch/event_file.h"

namespace weir {

class EventLog {
 public:
  // Creates the file in `directory` (EventFile::Create) and starts the thread, which writes every `interval`.
  static absl::StatusOr<std::unique_ptr<EventLog>> Create(const std::string& directory,
                                                          absl::Duration interval = absl::Seconds(2));
  // Writes what is left. A disk that does not answer within two seconds is left behind with a line in the log.
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Thread-safe to add to.
  EventFile* file() { return file_.get(); }

 private:
  // Shared with the thread, which may outlive this object.
  struct State {
    Mutex mu;
    CondVar changed;
    bool stop ABSL_GUARDED_BY(mu) = false;
    bool ended ABSL_GUARDED_BY(mu) = false;
  };
  static void Write(EventFile* file, State* state, absl::Duration interval);

  EventLog(std::shared_ptr<EventFile> file) : file_(std::move(file)), state_(std::make_shared<State>()) {}

  const std::shared_ptr<EventFile> file_;
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WATCH_EVENT_LOG_H_
