// Counters of a process: name, unit, value. Read by the progress line, explain's check and tests. Thread-safe.
//
// Names are dotted and lower case, "send.bytes", "prefetch.rows"; units are plain words: "bytes", "rows", "messages",
// "microseconds". Adding is one relaxed atomic operation: a snapshot taken while other threads add may hold different
// counters at different moments.
#ifndef WEIR_FRAMEWORK_BASE_COUNTERS_H_
#define WEIR_FRAMEWORK_BASE_COUNTERS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/mutex.h"

namespace weir {

class Counter {
 public:
  void Add(int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  // Relaxed: nothing else is published through it.
  std::atomic<int64_t> value_{0};
};

class Counters {
 public:
  // Returns the counters of this process, which are never destroyed. Servers and trainers inside one test process have
  // their own.
  static Counters& Process();

  // Finds or creates a counter. The pointer is valid as long as this object: look it up once, not in a loop.
  // CHECK-fails if `unit` differs from the first call's.
  Counter* Get(std::string_view name, std::string_view unit);
  // Returns 0 if there is no such counter.
  int64_t Value(std::string_view name) const;

  struct Entry {
    std::string name;
    std::string unit;
    int64_t value = 0;
  };
  // Returns all counters, sorted by name.
  std::vector<Entry> Snapshot() const;
  // "prefetch.rows=120 rows, send.bytes=4096 bytes", sorted by name.
  std::string ToString() const;

 private:
  struct Named {
    std::string unit;
    Counter counter;
  };
  mutable Mutex mu_;
  std::map<std::string, std::unique_ptr<Named>, std::less<>> counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_COUNTERS_H_
