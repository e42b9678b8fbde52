// Any bytes from the other end of a plain socket, in two pieces. The batches are exactly the bytes that were announced,
// and an error is final.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "framework/wire/frame.h"
#include "pserver/sockets/socket_input.h"

namespace weir {
namespace {

// What is to come of the bytes.
struct Expected {
  std::vector<std::string> batches;
  bool error = false;
};

Expected Parse(std::string_view bytes) {
  Expected expected;
  if (bytes.size() < kGreetingBytes) return expected;
  // Name and version; what follows in a greeting means nothing.
  if (bytes.substr(0, 12) != SocketGreeting().substr(0, 12)) return {.error = true};
  bytes.remove_prefix(kGreetingBytes);
  uint64_t length = 0;
  while (bytes.size() >= sizeof(length)) {
    std::memcpy(&length, bytes.data(), sizeof(length));
    bytes.remove_prefix(sizeof(length));
    expected.error = length > kMostBatchBytes;
    if (length > bytes.size()) break;
    expected.batches.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return expected;
}

// What has been read.
class Reader {
 public:
  explicit Reader(int socket) : socket_(socket) {}

  // Reads what there is.
  void Read() {
    do {
      TakeBatches();
    } while (!failed_ && input_.Read(socket_) > 0);
  }
  void Expect(const Expected& expected) const {
    if (read_ != expected.batches || failed_ != expected.error) std::abort();
  }

 private:
  void TakeBatches() {
    while (!failed_) {
      const bool whole = input_.greeted() && input_.HasWhole();
      const auto batch = input_.Next();
      failed_ = !batch.ok();
      // A link waits for more bytes where HasWhole is false, and spins where it is true without a batch.
      if (whole && (failed_ || !batch->has_value())) std::abort();
      if (failed_ || !batch->has_value()) break;
      if (reinterpret_cast<uintptr_t>((**batch)[0].data) % kAlignment != 0) std::abort();
      read_.push_back(Flatten(**batch));
    }
    if (!failed_ && input_.HasWhole()) std::abort();
  }

  const int socket_;
  SocketInput input_;
  bool failed_ = false;
  std::vector<std::string> read_;
};

// More would not fit into the socket while nobody reads.
constexpr size_t kMostBytes = size_t{64} << 10;

void Run(std::string_view bytes) {
  const std::string_view all = bytes.substr(0, kMostBytes);
  std::array<int, 2> ends = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
  Reader reader(ends[0]);
  const size_t cut = all.empty() ? 0 : static_cast<uint8_t>(all.back()) % (all.size() + 1);
  for (const std::string_view piece : {all.substr(0, cut), all.substr(cut)}) {
    if (::send(ends[1], piece.data(), piece.size(), 0) != static_cast<ssize_t>(piece.size())) std::abort();
    reader.Read();
  }
  reader.Expect(Parse(all));
  for (const int end : ends) ::close(end);
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
