// The bytes of a connection of plain sockets: the greeting of each end, and batches behind the number of their bytes
// (socket_link.h has the layout).
#ifndef WEIR_PSERVER_SOCKETS_SOCKET_INPUT_H_
#define WEIR_PSERVER_SOCKETS_SOCKET_INPUT_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "framework/wire/slices.h"

namespace weir {

inline constexpr std::string_view kGreeting = "WEIRTENS";
inline constexpr size_t kGreetingBytes = 64;
inline constexpr uint32_t kSocketVersion = 1;
// A record of the largest payload, and more than a batch of small ones.
inline constexpr size_t kMostBatchBytes = kMaxMessageBytes + (size_t{1} << 20);

// Returns the greeting of this end.
std::string SocketGreeting();
// Returns what precedes a batch.
std::string BatchLength(uint64_t bytes);

// Cuts the bytes of a connection into the greeting and batches. Not thread-safe.
class SocketInput {
 public:
  // Returns a batch that has come as a whole; nothing: more has to be read. Its memory is aligned as payloads in it
  // are. An error is final. InvalidArgument: the other end sends something else, or too large a batch.
  // FailedPrecondition: it speaks another version; the message names both.
  absl::StatusOr<std::optional<Slices>> Next();
  // Reads what the system has of the batch that Next waits for, and some bytes more. Returns what recvmsg does.
  ssize_t Read(int socket);
  // Next would return a batch without another Read.
  bool HasWhole() const;
  // The greeting has come.
  bool greeted() const { return greeted_; }

 private:
  void Take(size_t bytes, char* to);

  bool greeted_ = false;
  // Bytes that have been read beyond the batch that comes: from begin_ to end_.
  std::array<char, size_t{16} << 10> ahead_;
  size_t begin_ = 0, end_ = 0;
  // The batch that comes: of bytes_, have_ are there.
  std::shared_ptr<char> batch_;
  size_t bytes_ = 0, have_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SOCKETS_SOCKET_INPUT_H_
