// Any bytes as messages of rank 1 to rank 0 of a group of two. The first byte says which operation rank 0 has begun.
// Messages follow: a byte that says what they are, and a piece. 0: bytes as they are. 1: a header, which is that of
// rank 0 merged with the piece. 2: a header of any bytes. Else: data under the tag that the byte says, with its
// checksum made right. When none are left the group ends.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/collective/collective.h"
#include "framework/wire/checksum.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "proto/collective.pb.h"
#include "pserver/collective/wire_mesh.h"
#include "tests/fuzz/input.h"

namespace weir {
namespace {

constexpr uint64_t kGroup = 9, kHeaderTag = uint64_t{3} << 30;
constexpr size_t kHeaderBytes = 1024;

// Takes what rank 0 sends, and keeps its header.
class Listener : public Transport {
 public:
  void Call(int, Method, Slices request, absl::Duration, ReplyCallback done) override {
    const absl::StatusOr<Frame> frame = DecodeFrame(request);
    v1::DeliverRequest header;
    CHECK(frame.ok() && header.ParseFromString(frame->header));
    if (header.tag() == kHeaderTag) {
      const std::string bytes = Flatten(frame->payload);
      uint32_t length = 0;
      std::memcpy(&length, bytes.data(), sizeof(length));
      MutexLock lock(&mu_);
      header_ = bytes.substr(sizeof(length), length);
      changed_.SignalAll();
    }
    done(Slices());
  }
  std::string Describe(int server) const override { return "trainer " + std::to_string(server); }
  int servers() const override { return 2; }

  v1::CollectiveHeader Header() {
    MutexLock lock(&mu_);
    while (header_.empty()) CHECK(!changed_.WaitWithTimeout(&mu_, absl::Seconds(60))) << "no header";
    v1::CollectiveHeader header;
    CHECK(header.ParseFromString(header_));
    return header;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::string header_ ABSL_GUARDED_BY(mu_);
};

void Send(WireMesh* mesh, uint64_t tag, std::string payload) {
  v1::DeliverRequest header;
  header.set_group(kGroup);
  header.set_from(1);
  header.set_tag(tag);
  const Slices slices = {Slice::Own(std::move(payload))};
  header.set_checksum(Checksum(slices));
  mesh->HandleDeliver(EncodeFrame(header.SerializeAsString(), slices), [](const absl::StatusOr<Slices>&) {});
}

// Returns a header as it is sent: its length, its bytes, zeros.
std::string Padded(const std::string& text) {
  const auto length = static_cast<uint32_t>(text.size());
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += text;
  bytes.resize(kHeaderBytes);
  return bytes;
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static const bool quiet = [] {
    FLAGS_minloglevel = google::GLOG_FATAL;
    return true;
  }();
  (void)quiet;
  FuzzInput input(data, size);
  Listener transport;
  const auto mesh = WireMesh::Create({.group = kGroup, .rank = 0, .transport = &transport});
  std::vector<float> values(100, 1);
  std::vector<std::string> all;
  Collective collective(mesh.get(), {.streams = 1, .message_bytes = 64});
  const auto begin = [&](uint8_t what) {
    switch (what % 4) {
      case 0:
        return collective.AllReduce(
            {.name = "g", .shape = {100}, .lanes = 4, .addends = {{.lanes = {0, 2}, .values = values.data()}}},
            values.data());
      case 1:
        return collective.AllGatherBytes("g", "some bytes", &all);
      case 2:
        return collective.AllGather("g", v1::FLOAT32, {0, 10, 100}, values.data());
      default:
        return collective.Broadcast("g", v1::FLOAT32, {100}, /*root=*/1, values.data());
    }
  };
  const Collective::PendingPtr pending = begin(input.Byte());
  const v1::CollectiveHeader own = transport.Header();
  while (!input.empty()) {
    const uint8_t how = input.Byte();
    std::string piece = input.Piece();
    if (how == 0) {
      mesh->HandleDeliver({Slice::Own(std::move(piece))}, [](const absl::StatusOr<Slices>&) {});
    } else if (how == 1) {
      v1::CollectiveHeader header = own;
      (void)header.MergeFromString(piece);
      const std::string text = header.SerializeAsString();
      if (text.size() <= kHeaderBytes - sizeof(uint32_t)) Send(mesh.get(), kHeaderTag, Padded(text));
    } else if (how == 2) {
      piece.resize(kHeaderBytes);
      Send(mesh.get(), kHeaderTag, std::move(piece));
    } else {
      Send(mesh.get(), how - 3, std::move(piece));
    }
  }
  collective.Abort(absl::CancelledError("the input has ended"));
  if (pending->Wait().ok() && !all.empty()) CHECK_EQ(all.size(), 2);
  return 0;
}
