// Hints of a caller to transports that can put several calls, or answers, into one message.
#ifndef WEIR_PSERVER_PROTOCOL_CALL_HINTS_H_
#define WEIR_PSERVER_PROTOCOL_CALL_HINTS_H_

#include <functional>
#include <map>

namespace weir {

// While one lives on a thread, calls of that thread may wait for its end, so that those to one server go in one
// message. They are not later than that. May not be nested.
class CallsTogether {
 public:
  CallsTogether();
  ~CallsTogether();
  CallsTogether(const CallsTogether&) = delete;
  CallsTogether& operator=(const CallsTogether&) = delete;

  // Returns that of the calling thread; null if there is none.
  static CallsTogether* current();
  // For transports: sends what waits at `place`. Runs once at the end, however often it is asked for.
  void AtEnd(const void* place, std::function<void()> send);

 private:
  std::map<const void*, std::function<void()>> sends_;
};

// While one lives on a thread, nobody waits for answers of calls of that thread alone: the other end may keep such an
// answer until it answers another call of this process.
class AnswersMayWait {
 public:
  explicit AnswersMayWait(bool may_wait);
  ~AnswersMayWait();
  AnswersMayWait(const AnswersMayWait&) = delete;
  AnswersMayWait& operator=(const AnswersMayWait&) = delete;

  static bool current();

 private:
  const bool before_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_CALL_HINTS_H_
