// Transport to another one, on whose way a test looks at each call, changes it, holds it or answers it.
#ifndef WEIR_TESTS_TESTING_TAPPED_TRANSPORT_H_
#define WEIR_TESTS_TESTING_TAPPED_TRANSPORT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/wire/frame.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"
#include "pserver/protocol/transport.h"

namespace weir {

// Requests that tests look at, and their methods.
inline Method MethodOf(const v1::HeartbeatRequest&) { return Method::kHeartbeat; }
inline Method MethodOf(const v1::PushRequest&) { return Method::kPush; }
inline Method MethodOf(const v1::PullRequest&) { return Method::kPull; }
inline Method MethodOf(const v1::ExchangeRequest&) { return Method::kExchange; }
inline Method MethodOf(const v1::ControlRequest&) { return Method::kControl; }

// A call under way, which its owner lets go on, or answers with `done`, once.
struct TappedCall {
  Transport* inner = nullptr;
  int server = 0;
  Method method = Method::kPush;
  Slices request;  // may borrow bytes until the tap returns; call Own before holding it longer
  absl::Duration timeout;
  ReplyCallback done;

  // Returns the request, or the header of its frame; none if it is of another method, or no such message.
  template <typename Message>
  std::optional<Message> As() const {
    Message message;
    if (method != MethodOf(message)) return std::nullopt;
    std::string bytes = Flatten(request);
    if (method == Method::kPush || method == Method::kPull) {
      const absl::StatusOr<Frame> frame = DecodeFrame(request);
      if (!frame.ok()) return std::nullopt;
      bytes = frame->header;
    }
    return message.ParseFromString(bytes) ? std::optional<Message>(std::move(message)) : std::nullopt;
  }
  void Own() { request = {Slice::Own(Flatten(request))}; }
  // Lets a function see and change the answer before the caller gets it.
  void OnAnswer(std::function<void(absl::StatusOr<Slices>&)> see) {
    done = [see = std::move(see), done = std::move(done)](absl::StatusOr<Slices> answer) {
      see(answer);
      done(std::move(answer));
    };
  }
  void GoOn() { inner->Call(server, method, std::move(request), timeout, std::move(done)); }
};

// Looks like a transport between processes: no call is answered inside, and payloads have checksums.
class TappedTransport : public Transport {
 public:
  // Gets each call, on the thread that makes it.
  using Tap = std::function<void(TappedCall call)>;
  // `inner` is borrowed.
  TappedTransport(Transport* inner, Tap tap) : inner_(*inner), tap_(std::move(tap)) {}

  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    tap_({&inner_, server, method, std::move(request), timeout, std::move(done)});
  }
  std::string Describe(int server) const override { return inner_.Describe(server); }
  int servers() const override { return inner_.servers(); }

 private:
  Transport& inner_;
  const Tap tap_;
};

inline std::unique_ptr<Transport> Tapped(Transport* inner, TappedTransport::Tap tap) {
  return std::make_unique<TappedTransport>(inner, std::move(tap));
}

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_TAPPED_TRANSPORT_H_
