// Bytes of data statistics: in checkpoints, and between trainers. Private to statistics.cc and data_statistics.cc.
#ifndef WEIR_TRAINER_STATISTICS_STATISTICS_BYTES_H_
#define WEIR_TRAINER_STATISTICS_STATISTICS_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "framework/base/stable_hash.h"
#include "trainer/statistics/moments.h"

namespace weir {

// Writes a magic number, little-endian values one after the other, and a checksum over all of them at the end.
class StatisticsWriter {
 public:
  explicit StatisticsWriter(uint32_t magic) { Put(magic); }

  template <typename T>
  void Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void PutVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  void PutText(std::string_view text) {
    Put<uint64_t>(text.size());
    bytes_.append(text);
  }
  void PutMoments(const Moments& m) {
    Put(m.count);
    Put(m.mean);
    Put(m.m2);
  }
  std::string Finish() && {
    Put(StableHash(bytes_));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

// Returns the magic number of such bytes, which may be any; 0 if there is none.
inline uint32_t StatisticsMagic(std::string_view bytes) {
  uint32_t magic = 0;
  if (bytes.size() >= sizeof(magic)) std::memcpy(&magic, bytes.data(), sizeof(magic));
  return magic;
}

// Reads them.
class StatisticsReader {
 public:
  // Any wrong byte makes ok() false; the values read are then zeros.
  StatisticsReader(std::string_view bytes, uint32_t magic) : rest_(bytes) {
    uint64_t sum = 0;
    ok_ = bytes.size() >= sizeof(sum);
    if (!ok_) return;
    rest_ = bytes.substr(0, bytes.size() - sizeof(sum));
    std::memcpy(&sum, bytes.data() + rest_.size(), sizeof(sum));
    ok_ = sum == StableHash(rest_) && Get<uint32_t>() == magic;
  }
  template <typename T>
  T Get() {
    T value{};
    ok_ = ok_ && rest_.size() >= sizeof(T);
    if (!ok_) return value;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  uint64_t GetVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = Get<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  std::string GetText() {
    const size_t size = GetCount(1);
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  Moments GetMoments() {
    Moments m;
    m.count = Get<int64_t>();
    m.mean = Get<double>();
    m.m2 = Get<double>();
    ok_ = ok_ && m.Plausible();
    return ok_ ? m : Moments();
  }
  // Returns the number of the things of at least `size` bytes each that follow; 0 if so many cannot follow.
  size_t GetCount(size_t size) {
    const uint64_t n = Get<uint64_t>();
    ok_ = ok_ && n <= rest_.size() / size;
    return ok_ ? static_cast<size_t>(n) : 0;
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = false;
};

inline absl::Status DamagedStatistics() { return absl::DataLossError("data statistics: the bytes are cut or damaged"); }

}  // namespace weir

#endif  // WEIR_TRAINER_STATISTICS_STATISTICS_BYTES_H_
