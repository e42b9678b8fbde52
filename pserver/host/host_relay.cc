#include "pserver/host/host_relay.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/wire/frame.h"
#include "proto/parameter_server.pb.h"

namespace weir {

std::shared_ptr<HostRelay> HostRelay::Create(Options options) {
  return std::shared_ptr<HostRelay>(new HostRelay(std::move(options)));
}

HostRelay::HostRelay(Options options) : options_(std::move(options)), placement_(&options_.plan) {
  const HostGroup& group = options_.group;
  const bool checksums = options_.transport->checks_payloads();
  for (int s = 0; s < options_.transport->servers(); ++s) {
    OfServer& of = servers_.emplace_back();
    if (!group.Relays(s)) continue;
    const auto caller = [this, s] { return options_.caller(s); };
    of.pushes = std::make_unique<MergedPushes>(
        MergedPushes::Options{.group = &group,
                              .placement = &placement_,
                              .residuals = options_.residuals,
                              .buffers = &buffers_,
                              .pool = options_.pool,
                              .merged = options_.counters->Get("host.pushes_merged", "steps"),
                              .checksums = checksums,
                              .caller = caller,
                              .send = SenderTo(s, Method::kPush)});
    of.pulls = std::make_unique<SharedPulls>(SharedPulls::Options{.placement = &placement_,
                                                                  .buffers = &buffers_,
                                                                  .counters = options_.counters,
                                                                  .checksums = checksums,
                                                                  .caller = caller,
                                                                  .send = SenderTo(s, Method::kPull)});
  }
}

std::function<void(Slices, ReplyCallback)> HostRelay::SenderTo(int server, Method method) {
  return [this, server, method](Slices request, ReplyCallback done) {
    options_.calls->Request(method, TotalSize(request));
    options_.transport->Call(server, method, std::move(request), options_.rpc,
                             [self = shared_from_this(), calls = options_.calls, method,
                              done = std::move(done)](absl::StatusOr<Slices> answer) {
                               if (answer.ok()) calls->Answer(method, TotalSize(*answer));
                               done(std::move(answer));
                             });
  };
}

void HostRelay::Handle(Method method, int server, const Slices& request, const ReplyCallback& reply, bool own) {
  if ((method != Method::kPush && method != Method::kPull) || !options_.group.Relays(server)) {
    return reply(absl::InvalidArgumentError(
        absl::StrCat("the relay of this host takes pushes and pulls for servers that it speaks to; this is ",
                     std::string(MethodName(method)), " for server ", server)));
  }
  absl::StatusOr<Frame> frame = DecodeFrame(request);
  if (!frame.ok()) return reply(frame.status());
  const auto payload = [&] { return own ? Contiguous(frame->payload, &buffers_) : CopyOf(frame->payload, &buffers_); };
  const OfServer& of = servers_[static_cast<size_t>(server)];
  if (method == Method::kPush) {
    v1::PushRequest push;
    if (!push.ParseFromString(frame->header)) return reply(absl::InvalidArgumentError("no PushRequest"));
    return of.pushes->Handle(push, payload(), reply);
  }
  v1::PullRequest pull;
  if (!pull.ParseFromString(frame->header)) return reply(absl::InvalidArgumentError("no PullRequest"));
  if (options_.group.PlaceOf(pull.caller().trainer()) < 0) {
    return reply(absl::InvalidArgumentError(
        absl::StrCat("trainer ", pull.caller().trainer(), " is not one of those that this host's relay serves")));
  }
  of.pulls->Handle(std::move(pull), payload(), reply);
}

}  // namespace weir
