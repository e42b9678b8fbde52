#include "framework/profile/profiler.h"

#include <pthread.h>
#include <time.h>

#include <array>
#include <random>
#include <unordered_map>
#include <utility>

#include "framework/base/mutex.h"

namespace weir {

namespace {

constexpr size_t kMostNames = size_t{1} << 14;
constexpr size_t kChunkEvents = 256;

// Interns texts by id; id 0 is "". Separate from the profiler, so that static initializers can make names.
class Names {
 public:
  static Names& All() {
    static Names* const all = new Names;
    return *all;
  }
  uint32_t Id(std::string_view text) {
    MutexLock lock(&mu_);
    const auto found = ids_.find(std::string(text));
    if (found != ids_.end()) return found->second;
    if (texts_.size() >= kMostNames) return 1;
    texts_.emplace_back(text);
    const uint32_t id = static_cast<uint32_t>(texts_.size() - 1);
    ids_.emplace(text, id);
    return id;
  }
  std::vector<std::string> Texts() {
    MutexLock lock(&mu_);
    return texts_;
  }

 private:
  Names() : texts_({"", "(others)"}), ids_({{"", 0}, {"(others)", 1}}) {}

  Mutex mu_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, uint32_t> ids_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::string_view ProfileKindName(ProfileKind kind) {
  static constexpr std::array<std::string_view, kProfileKinds> names = {
      "step",    "border", "operator", "exchange", "threads", "client", "call",
      "handler", "wait",   "data",     "read",     "serve",   "update", "save"};
  return names[static_cast<size_t>(kind)];
}

ProfileName::ProfileName(std::string_view text) : id_(Names::All().Id(text)) {}

struct Profiler::Chunk {
  std::array<ProfileEvent, kChunkEvents> events;
  std::unique_ptr<Chunk> next;
};

// One thread writes it and never waits; Collect reads it up to `size`.
struct Profiler::Buffer {
  uint64_t generation = 0;
  std::string name;
  // Written by the owning thread only. Collect reads the chunks up to `size`, which is released after they are linked.
  std::unique_ptr<Chunk> first;
  Chunk* last = nullptr;
  size_t written = 0;
  // Number of complete events. Released by the writer, acquired by Collect.
  std::atomic<size_t> size{0};
};

struct Profiler::State {
  // Relaxed: `chunks_left` and `dropped` are counters that need not be exact to the event.
  std::atomic<int64_t> chunks_left{0};
  std::atomic<int64_t> dropped{0};
  std::atomic<uint64_t> next_call{0};
  // Counts calls of Start; a buffer with an older generation is stale. Acquired when a thread looks for its buffer.
  std::atomic<uint64_t> generation{0};
  Mutex mu;
  // Shared with the threads: a thread that ends leaves its events here; one that outlives a Start keeps its own buffer.
  std::vector<std::shared_ptr<Buffer>> buffers ABSL_GUARDED_BY(mu);
  std::vector<std::string> tracks ABSL_GUARDED_BY(mu) = {""};
  int64_t begin ABSL_GUARDED_BY(mu) = 0, end ABSL_GUARDED_BY(mu) = 0;
};

Profiler::Profiler() : state_(new State) {}

Profiler& Profiler::Process() {
  static Profiler* const process = new Profiler;
  return *process;
}

int64_t Profiler::NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void Profiler::Start(int64_t begin, int64_t end, size_t most_events) {
  Stop();
  std::random_device random;
  {
    MutexLock lock(&state_->mu);
    state_->buffers.clear();
    state_->begin = begin;
    state_->end = end;
    state_->dropped.store(0, std::memory_order_relaxed);
    state_->chunks_left.store(static_cast<int64_t>((most_events + kChunkEvents - 1) / kChunkEvents),
                              std::memory_order_relaxed);
    // A random upper half makes the ids of calls unique across processes.
    state_->next_call.store((uint64_t{random()} << 32) | 1, std::memory_order_relaxed);
    state_->generation.fetch_add(1, std::memory_order_release);
  }
  end_.store(end, std::memory_order_relaxed);
  begin_.store(begin, std::memory_order_relaxed);
}

void Profiler::Stop() {
  begin_.store(kNever, std::memory_order_relaxed);
  current_.store(-1, std::memory_order_relaxed);
}

uint32_t Profiler::Track(std::string_view name) {
  MutexLock lock(&state_->mu);
  for (size_t i = 1; i < state_->tracks.size(); ++i) {
    if (state_->tracks[i] == name) return static_cast<uint32_t>(i);
  }
  state_->tracks.emplace_back(name);
  return static_cast<uint32_t>(state_->tracks.size() - 1);
}

uint64_t Profiler::NewCall() { return state_->next_call.fetch_add(1, std::memory_order_relaxed); }

Profiler::Buffer* Profiler::BufferOfThread() {
  static thread_local std::shared_ptr<Buffer> own;
  const uint64_t generation = state_->generation.load(std::memory_order_acquire);
  if (own != nullptr && own->generation == generation) return own.get();
  auto fresh = std::make_shared<Buffer>();
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  fresh->name = name;
  MutexLock lock(&state_->mu);
  fresh->generation = state_->generation.load(std::memory_order_relaxed);
  state_->buffers.push_back(fresh);
  own = std::move(fresh);
  return own.get();
}

void Profiler::Record(const ProfileEvent& event) {
  Buffer* const buffer = BufferOfThread();
  const size_t place = buffer->written % kChunkEvents;
  if (place == 0) {
    if (state_->chunks_left.fetch_sub(1, std::memory_order_relaxed) <= 0) {
      state_->chunks_left.store(0, std::memory_order_relaxed);
      state_->dropped.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    auto chunk = std::make_unique<Chunk>();
    Chunk* const last = chunk.get();
    (buffer->last == nullptr ? buffer->first : buffer->last->next) = std::move(chunk);
    buffer->last = last;
  }
  buffer->last->events[place] = event;
  buffer->size.store(++buffer->written, std::memory_order_release);
}

Profiler::Recorded Profiler::Collect() {
  Recorded recorded;
  std::vector<std::shared_ptr<Buffer>> buffers;
  {
    MutexLock lock(&state_->mu);
    buffers = state_->buffers;
    recorded.tracks = state_->tracks;
    recorded.begin = state_->begin;
    recorded.end = state_->end;
  }
  for (const auto& buffer : buffers) {
    Recorded::Thread thread{.name = buffer->name, .events = {}};
    const size_t size = buffer->size.load(std::memory_order_acquire);
    thread.events.reserve(size);
    const Chunk* chunk = nullptr;
    for (size_t i = 0; i < size; ++i) {
      if (i % kChunkEvents == 0) chunk = chunk == nullptr ? buffer->first.get() : chunk->next.get();
      thread.events.push_back(chunk->events[i % kChunkEvents]);
    }
    recorded.threads.push_back(std::move(thread));
  }
  // Read after the events, so that every name they refer to is present.
  recorded.names = Names::All().Texts();
  recorded.dropped = state_->dropped.load(std::memory_order_relaxed);
  return recorded;
}

void ProfileSpan::Begin(int64_t step, ProfileKind kind, ProfileName name) {
  event_.emplace();
  event_->kind = kind;
  event_->name = name;
  event_->step = step;
  event_->begin_ns = Profiler::NowNs();
}

void ProfileSpan::End() {
  event_->end_ns = Profiler::NowNs();
  Profiler::Process().Record(*event_);
}

}  // namespace weir
