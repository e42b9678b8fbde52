// Records the activity of a process for a window of steps: operators, calls, waits, reading, updates, checkpoints.
//
// Off until Start; while off, a check costs one relaxed load. While a step of the window runs, every thread appends to
// a buffer of its own, without a lock; Collect reads the published events while threads continue. Memory is bounded:
// events beyond the bound are counted and dropped. Recording changes no result.
//
// Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share; framework/profile/trace.h aligns
// those of several machines. This header does not include Abseil, so that launchers of CUDA kernels can record a
// device's work: an event with a track of its own (Track) and times converted to this clock.
#ifndef WEIR_FRAMEWORK_PROFILE_PROFILER_H_
#define WEIR_FRAMEWORK_PROFILE_PROFILER_H_

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
  kStep,      // step of a trainer, from its batches to the servers' outcome
  kBorder,    // evaluation, checkpoint or digest after a step of a trainer
  kOperator,  // run of a kernel
  kExchange,  // run of a kernel that sends values to servers or receives them
  kThreads,   // work on several threads; its self time is waiting for the other threads
  kClient,    // reading an answer and storing its values
  kCall,      // call of a client, from request to answer
  kHandler,   // handling of a call on its server
  kWait,      // waiting for a server, a version, other trainers
  kData,      // waiting for a batch
  kRead,      // making of a batch by a reader
  kServe,     // reading of a push, or copying of values for a pull, on a server
  kUpdate,    // merging of gradients and updates, on a server
  kSave,      // writing or reading of a checkpoint, or a digest, on a server
};
inline constexpr int kProfileKinds = 14;
// Returns the category in the trace: "operator", ...
std::string_view ProfileKindName(ProfileKind kind);

// Interned text that events refer to; never freed. Texts beyond the first 16,384 distinct ones become "(others)".
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
  // Object of the work, or the process waited for.
  ProfileName detail;
  // Row of the trace: 0 for the recording thread, else a result of Profiler::Track.
  uint32_t track = 0;
  int64_t begin_ns = 0, end_ns = 0;
  int64_t step = -1;
  // Lane of an operator, or stripe of a table's update. This field and the next three are -1 if they do not apply.
  int32_t lane = -1;
  // Index of the server on a trainer, of the trainer on a server.
  int32_t peer = -1;
  int64_t bytes_out = -1, bytes_in = -1;
  // Number of the call, equal at client and server. Events of one track and one call may overlap those of other calls,
  // and are shown together.
  uint64_t call = 0;
};

class Profiler {
 public:
  // Returns the profiler of this process, which is never destroyed.
  static Profiler& Process();

  // Records steps [begin, end) from now on. Discards earlier events.
  void Start(int64_t begin, int64_t end, size_t most_events = kMostEvents);
  // Stops recording; keeps the recorded events.
  void Stop();

  static bool Started() { return begin_.load(std::memory_order_relaxed) != kNever; }
  // Returns true if events of the step are recorded. -1 stands for no step and is never recorded.
  static bool Wants(int64_t step) {
    return step >= begin_.load(std::memory_order_relaxed) && step < end_.load(std::memory_order_relaxed);
  }
  static int64_t NowNs();

  // Returns the number of a row of its own in the trace, for a device's work or calls in progress.
  uint32_t Track(std::string_view name);
  // Returns a new number for a call, unique over all processes.
  uint64_t NewCall();

  // Records an event of a step for which Wants returned true. Thread-safe; locks only at a thread's first event.
  void Record(const ProfileEvent& event);

  // Returns the present step of the process, for threads that work for no step in particular (readers); -1 if it is not
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
  // Returns the published events. Thread-safe; threads may continue to record.
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
  // Relaxed: each buffer publishes its events itself. A thread that sees a change late records an event more or less.
  static inline std::atomic<int64_t> begin_{kNever}, end_{kNever}, current_{-1};
  State* const state_;  // lives for ever
};

// Sets the step of this thread until the end of the scope; code without a step argument reads it with current().
class ProfiledStep {
 public:
  explicit ProfiledStep(int64_t step) : before_(current_) { current_ = Profiler::Wants(step) ? step : -1; }
  ~ProfiledStep() { current_ = before_; }
  ProfiledStep(const ProfiledStep&) = delete;
  ProfiledStep& operator=(const ProfiledStep&) = delete;

  // Returns -1 if there is no step or it is not recorded.
  static int64_t current() { return current_; }

 private:
  static inline thread_local int64_t current_ = -1;
  const int64_t before_;
};

// Call that this thread is about to make or to answer: passes from a client to its transport, and from a server's
// transport to its handler, without being an argument.
struct ProfiledCall {
  uint64_t id = 0;  // 0 if not recorded
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

// Records the time from construction to the end of the scope, on this thread, if the step is recorded.
class ProfileSpan {
 public:
  ProfileSpan(int64_t step, ProfileKind kind, ProfileName name) {
    if (Profiler::Wants(step)) Begin(step, kind, name);
  }
  // Interns the text only if the step is recorded.
  ProfileSpan(int64_t step, ProfileKind kind, std::string_view name) {
    if (Profiler::Wants(step)) Begin(step, kind, ProfileName(name));
  }
  ~ProfileSpan() {
    if (event_.has_value()) End();
  }
  ProfileSpan(const ProfileSpan&) = delete;
  ProfileSpan& operator=(const ProfileSpan&) = delete;

  // Returns the event, to set more fields; null if it is not recorded.
  ProfileEvent* event() { return event_.has_value() ? &*event_ : nullptr; }

 private:
  void Begin(int64_t step, ProfileKind kind, ProfileName name);
  void End();

  std::optional<ProfileEvent> event_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_PROFILE_PROFILER_H_
