// Registry of what a process counts and measures: counters, gauges and histograms, each with a name and a unit. The
// progress line, explain's check, /metrics, event files and tests read it. Thread-safe.
//
// Names are dotted and lower case, "send.bytes", "prefetch.rows"; units are plain words: "bytes", "rows", "messages",
// "microseconds". Adding is one relaxed atomic operation (two for a histogram): a snapshot taken while other threads
// add may hold different entries at different moments.
#ifndef WEIR_FRAMEWORK_BASE_COUNTERS_H_
#define WEIR_FRAMEWORK_BASE_COUNTERS_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/mutex.h"

namespace weir {

// A number that only grows.
class Counter {
 public:
  void Add(int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  // Relaxed: nothing else is published through it.
  std::atomic<int64_t> value_{0};
};

// A number that is replaced: the loss, the rows of a table.
class Gauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};  // relaxed, as in Counter
};

// Distribution of whole numbers, mostly times in microseconds, in buckets of powers of two.
class Histogram {
 public:
  // Bucket i holds values in (2^(i-1), 2^i], bucket 0 those up to 1, and the last one all above 2^(kBuckets - 2): in
  // microseconds, those above 67 s.
  static constexpr int kBuckets = 28;
  struct Counts {
    std::array<int64_t, kBuckets> buckets = {};
    int64_t sum = 0;  // of the values
    int64_t count() const {
      int64_t n = 0;
      for (const int64_t bucket : buckets) n += bucket;
      return n;
    }
  };

  void Observe(int64_t value) {
    const size_t bucket = value <= 1 ? 0 : static_cast<size_t>(std::bit_width(static_cast<uint64_t>(value - 1)));
    buckets_[bucket < kBuckets ? bucket : kBuckets - 1].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }
  Counts counts() const {
    Counts counts;
    for (size_t i = 0; i < kBuckets; ++i) counts.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    counts.sum = sum_.load(std::memory_order_relaxed);
    return counts;
  }

 private:
  // Relaxed, as in Counter.
  std::array<std::atomic<int64_t>, kBuckets> buckets_ = {};
  std::atomic<int64_t> sum_{0};
};

class Counters {
 public:
  // Returns the counters of this process, which are never destroyed. Servers and trainers inside one test process have
  // their own.
  static Counters& Process();

  // Finds or creates a counter. The pointer is valid as long as this object: look it up once, not in a loop.
  // CHECK-fails if `unit` differs from the first call's, or if the name is that of a gauge or a histogram.
  Counter* Get(std::string_view name, std::string_view unit);
  // Find or create a gauge or a histogram in the same way.
  Gauge* GetGauge(std::string_view name, std::string_view unit);
  Histogram* GetHistogram(std::string_view name, std::string_view unit);
  // Returns the value of a counter, 0 if there is none of that name.
  int64_t Value(std::string_view name) const;

  enum class Kind { kCounter, kGauge, kHistogram };
  struct Entry {
    std::string name;
    std::string unit;
    int64_t value = 0;  // of a counter
    Kind kind = Kind::kCounter;
    double gauge = 0;
    Histogram::Counts histogram = {};
  };
  // Returns all entries, sorted by name.
  std::vector<Entry> Snapshot() const;
  // Returns the counters: "prefetch.rows=120 rows, send.bytes=4096 bytes", sorted by name.
  std::string ToString() const;

 private:
  struct Named {
    std::string unit;
    Kind kind = Kind::kCounter;
    Counter counter;
    Gauge gauge;
    std::unique_ptr<Histogram> histogram;  // of that kind only: it is large
  };
  Named* Find(std::string_view name, std::string_view unit, Kind kind);

  mutable Mutex mu_;
  std::map<std::string, std::unique_ptr<Named>, std::less<>> counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_COUNTERS_H_
