// Fixture of a trainer whose servers a test plays, and values as they stand in payloads.
#ifndef WEIR_TESTS_PSERVER_CLIENT_PLAYED_MEMBER_H_
#define WEIR_TESTS_PSERVER_CLIENT_PLAYED_MEMBER_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "gtest/gtest.h"
#include "proto/table.pb.h"
#include "pserver/member/call_settings.h"
#include "pserver/member/member.h"
#include "tests/testing/played_servers.h"

namespace weir {

// A trainer of a job of two, which has not joined.
class PlayedMember : public ::testing::Test {
 protected:
  explicit PlayedMember(int trainer = 1, PlayedServersOptions options = {}) : servers_(options), trainer_(trainer) {}

  CallSettings Settings() {
    return {.job_name = "job",
            .trainer_id = trainer_,
            .trainers = 2,
            .process = "host:9",
            .rpc = absl::Seconds(1),
            .lease = absl::Seconds(30),
            .heartbeat_period = absl::Seconds(1),
            .slow_warning = absl::Seconds(5),
            .connect_deadline = absl::Seconds(30),
            .progress_deadline = absl::Seconds(30),
            .transport = &servers_,
            .clock = Clock::Real()};
  }

  PlayedServers servers_;
  const int trainer_;
  Member member_{Settings()};
};

// Ids by their place in the order of servers: low ones, 0 and up, lie on the first server of a table with several
// shards, and high ones, behind them, on the second of two.
inline int64_t LowId(int place) { return static_cast<int64_t>(UnmixId(static_cast<uint64_t>(place))); }
inline int64_t HighId(int place) {
  return static_cast<int64_t>(UnmixId((uint64_t{1} << 63) + static_cast<uint64_t>(place)));
}

// Returns values in a wire format, and zeros up to a multiple of 64 bytes.
inline std::string Encoded(const std::vector<float>& values, v1::WireFormat format = v1::WIRE_FLOAT32,
                           size_t group = kDenseGroup) {
  const size_t bytes = EncodedBytes(format, values.size(), group);
  const WireBuffer buffer = BufferPool().Get(AlignUp(bytes));
  Encode(format, values.data(), values.size(), group, buffer.data);
  std::memset(buffer.data + bytes, 0, AlignUp(bytes) - bytes);
  return std::string(buffer.data, AlignUp(bytes));
}

// Return the floats, the ids, or the values in a wire format that stand at an offset of a payload. Empty, with a failed
// test, if the payload ends before.
template <typename T>
std::vector<T> ValuesAt(const std::string& payload, size_t at, size_t n) {
  std::vector<T> values(n);
  EXPECT_LE(at + n * sizeof(T), payload.size());
  if (at + n * sizeof(T) > payload.size()) return {};
  std::memcpy(values.data(), payload.data() + at, n * sizeof(T));
  return values;
}
inline std::vector<float> FloatsAt(const std::string& payload, size_t at, size_t n) {
  return ValuesAt<float>(payload, at, n);
}
inline std::vector<int64_t> IdsAt(const std::string& payload, size_t at, size_t n) {
  return ValuesAt<int64_t>(payload, at, n);
}
inline std::vector<float> DecodedAt(const std::string& payload, size_t at, size_t n, v1::WireFormat format,
                                    size_t group = kDenseGroup) {
  const std::vector<char> bytes = ValuesAt<char>(payload, at, EncodedBytes(format, n, group));
  if (bytes.empty()) return {};
  std::vector<float> values(n);
  Decode(format, bytes.data(), n, group, values.data());
  return values;
}

}  // namespace weir

#endif  // WEIR_TESTS_PSERVER_CLIENT_PLAYED_MEMBER_H_
