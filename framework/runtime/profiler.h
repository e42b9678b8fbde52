// What a process does and when, recorded for a window of steps: operators, calls, waits, reading, updates, checkpoints.
//
// Off until Start: then whatever asks costs one relaxed load. While a step of the window runs, every thread appends to
// a buffer of its own, without a lock; Collect reads what has been handed over while threads go on. Memory is bounded:
// events beyond the bound are counted and dropped. Recording changes no result.
//
// Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share; framework/runtime/trace.h brings
// those of several machines together. Nothing here needs Abseil, so that launchers of CUDA kernels can record what a
// device did: an event with a track of its own (Track) and times brought to this clock.
#ifndef WEIR_FRAMEWORK_RUNTIME_PROFILER_H_
#define WEIR_FRAMEWORK_RUNTIME_PROFILER_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weir {

enum class ProfileKind : uint8_t {
  kStep,      // of a trainer, from its batches to what the servers say of it
  kBorder,    // evaluation, checkpoint or digest behind a step of a trainer
  kOperator,  // a kernel's run
  kExchange,  // a kernel's run that brings values to servers or from them
  kThreads,   // work on several threads: what is left of it beside work is waiting for the others
  kClient,    // an answer is read and put in its place
  kCall,      // a call of a client, from request to answer
  kHandler,   // the same on its server
  kWait,      // for a server, a version, other trainers
  kData,      // waiting for a batch
  kRead,      // a reader makes a batch
  kServe,     // a server reads a push, or copies values for a pull
  kUpdate,    // a server merges gradients and updates
  kSave,      // a server writes or reads a checkpoint, or takes a digest
};
inline constexpr int kProfileKinds = 14;
// "operator", ...: the category in the trace.
std::string_view ProfileKindName(ProfileKind kind);

// A text that events refer to; kept for ever, equal texts are one. Of texts beyond the first 16,384 all are "(others)".
// Thread-safe.
class ProfileName {
 public:
  ProfileName() = default;  // none
  explicit ProfileName(std::string_view text);
  uint32_t id() const { return id_; }

 private:
  uint32_t id_ = 0;
};

struct ProfileEvent {
  ProfileKind kind = ProfileKind::kOperator;
  ProfileName name;
  // What it worked on, or for whom it waited.
  ProfileName detail;
  // 0: the thread that records. Else of Profiler::Track.
  uint32_t track = 0;
  int64_t begin_ns = 0, end_ns = 0;
  int64_t step = -1;
  // What follows is -1 where it means nothing. Of an operator; of a table's update its stripe.
  int32_t lane = -1;
  // Index of the server on a trainer, of the trainer on a server.
  int32_t peer = -1;
  int64_t bytes_out = -1, bytes_in = -1;
  // Of a call, the same at both ends. Events of one track and one call may overlap those of other calls, and are shown
  // together.
  uint64_t call = 0;
};

class Profiler {
 public:
  // Of this process; lives for ever.
  static Profiler& Process();

  // Steps [begin, end) are recorded from now on. Forgets what was recorded before.
  void Start(int64_t begin, int64_t end, size_t most_events = kMostEvents);
  // Nothing is recorded any more; what was stays.
  void Stop();

  static bool Started() { return begin_.load(std::memory_order_relaxed) != kNever; }
  // Whether what happens in a step is recorded. -1 is no step.
  static bool Wants(int64_t step) {
    return step >= begin_.load(std::memory_order_relaxed) && step < end_.load(std::memory_order_relaxed);
  }
  static int64_t NowNs();

  // Another row than the thread's: what a device did, calls under way.
  uint32_t Track(std::string_view name);
  // A new number for a call, that no other process gives.
  uint64_t NewCall();

  // Keeps an event that Wants said yes to. Thread-safe, no lock but at a thread's first event.
  void Record(const ProfileEvent& event);

  // The step that the process is in, for threads that work for no step in particular (readers); -1: none that is
  // recorded.
  static int64_t CurrentStep() { return current_.load(std::memory_order_relaxed); }
  static void SetCurrentStep(int64_t step) { current_.store(Wants(step) ? step : -1, std::memory_order_relaxed); }

  struct Recorded {
    struct Thread {
      std::string name;
      std::vector<ProfileEvent> events;  // in order of their ends
    };
    std::vector<Thread> threads;
    std::vector<std::string> names;   // by id
    std::vector<std::string> tracks;  // by number
    int64_t dropped = 0;
    int64_t begin = 0, end = 0;
  };
  // Thread-safe; threads may go on recording.
  Recorded Collect();

  // 21 MB: ten times what a tower of fifty layers records in 20 steps on 8 lanes.
  static constexpr size_t kMostEvents = size_t{1} << 18;

 private:
  struct Chunk;
  struct Buffer;
  struct State;

  Profiler();
  Buffer* BufferOfThread();

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // Relaxed: what is recorded is handed over by each buffer itself. A thread that sees a change late records an event
  // more or less.
  static inline std::atomic<int64_t> begin_{kNever}, end_{kNever}, current_{-1};
  State* const state_;  // lives for ever
};

// The step that this thread works for, until the end of the scope; what does not know of steps asks current().
class ProfiledStep {
 public:
  explicit ProfiledStep(int64_t step) : before_(current_) { current_ = Profiler::Wants(step) ? step : -1; }
  ~ProfiledStep() { current_ = before_; }
  ProfiledStep(const ProfiledStep&) = delete;
  ProfiledStep& operator=(const ProfiledStep&) = delete;

  // -1: none that is recorded.
  static int64_t current() { return current_; }

 private:
  static inline thread_local int64_t current_ = -1;
  const int64_t before_;
};

// The call that this thread is about to make, or to answer: it goes from a client to its transport, and from a server's
// transport to its handler, beside what the call says.
struct ProfiledCall {
  uint64_t id = 0;  // 0: it is not recorded
  int64_t step = -1;
};
class ProfiledCallScope {
 public:
  explicit ProfiledCallScope(ProfiledCall call) : before_(current_) { current_ = call; }
  ~ProfiledCallScope() { current_ = before_; }
  ProfiledCallScope(const ProfiledCallScope&) = delete;
  ProfiledCallScope& operator=(const ProfiledCallScope&) = delete;

  static ProfiledCall current() { return current_; }

 private:
  static inline thread_local ProfiledCall current_;
  const ProfiledCall before_;
};

// Records the time from here to the end of the scope, on this thread, when the step is wanted.
class ProfileSpan {
 public:
  ProfileSpan(int64_t step, ProfileKind kind, ProfileName name) {
    if (Profiler::Wants(step)) Begin(step, kind, name);
  }
  // The text becomes a name when the step is wanted.
  ProfileSpan(int64_t step, ProfileKind kind, std::string_view name) {
    if (Profiler::Wants(step)) Begin(step, kind, ProfileName(name));
  }
  ~ProfileSpan() {
    if (event_.has_value()) End();
  }
  ProfileSpan(const ProfileSpan&) = delete;
  ProfileSpan& operator=(const ProfileSpan&) = delete;

  // To say more of it; null when nothing is recorded.
  ProfileEvent* event() { return event_.has_value() ? &*event_ : nullptr; }

 private:
  void Begin(int64_t step, ProfileKind kind, ProfileName name);
  void End();

  std::optional<ProfileEvent> event_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_PROFILER_H_
