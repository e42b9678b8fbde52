// Fixture with one server under a fake clock, whose requests are made by hand; nothing runs beside it.
#ifndef WEIR_TESTS_TESTING_CORE_BY_HAND_H_
#define WEIR_TESTS_TESTING_CORE_BY_HAND_H_

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/wire/checksum.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "pserver/protocol/handshake.h"
#include "pserver/server/server_core.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/hand_made_job.h"

namespace weir {

using Answer = std::optional<absl::StatusOr<Slices>>;

struct Item {
  std::string name = "b";
  int lane = 0, lanes = 8;
  std::vector<float> values;
  std::vector<int64_t> ids = {};
  int width = 0;
  int64_t begin = 0;
  std::vector<float> counts = {};  // shows and clicks of each row
};

// PushRequest.merged, with the session that the trainer has.
struct Merged {
  int trainer = 0;
  int64_t samples = 0;
  v1::Verdict verdict = v1::APPLY;
  bool stop = false;
};

// A push, with its payload laid out as clients do.
struct PushSpec {
  int trainer = 0;
  int64_t step = 0;
  int part = 0;
  std::vector<Item> items = {};
  int part_count = 0;  // 0: not the last
  int64_t samples = 0;
  v1::Verdict verdict = v1::APPLY;
  int64_t first_samples = 0;
  std::vector<Merged> merged = {};
};

class CoreByHand : public ::testing::Test {
 protected:
  void Start(HandMadeJob job, int server = 0, std::string arithmetic = "avx2") {
    job_ = job;
    ServerOptions options{.server_id = server,
                          .main = job.Main(server),
                          .startup = job.Startup(server),
                          .job_name = "job",
                          .plan_text = job.PlanText(),
                          .sync = job.sync,
                          .process = "server:1",
                          .arithmetic = arithmetic,
                          .clock = &clock_,
                          .pool = &pool_,
                          .unread_bytes = unread_bytes_,
                          .pending_row_bytes = pending_row_bytes_,
                          .exchange_bytes = exchange_bytes_};
    if (edit_) edit_(&options);
    absl::StatusOr<std::unique_ptr<ServerCore>> core = ServerCore::Create(std::move(options));
    ASSERT_TRUE(core.ok()) << core.status();
    core_ = *std::move(core);
    server_ = server;
  }

  // Sends a request and returns the answer, which has no value while the server still waits.
  std::shared_ptr<Answer> Call(Method method, const std::string& bytes) {
    auto answer = std::make_shared<Answer>();
    core_->Handle(method, {Slice::Own(bytes)}, [answer](absl::StatusOr<Slices> a) {
      EXPECT_FALSE(answer->has_value()) << "answered twice";
      *answer = std::move(a);
    });
    return answer;
  }
  template <typename Reply>
  absl::StatusOr<Reply> CallNow(Method method, const std::string& bytes) {
    const std::shared_ptr<Answer> answer = Call(method, bytes);
    if (!answer->has_value()) return absl::DeadlineExceededError("no answer yet");
    if (!(*answer)->ok()) return (*answer)->status();
    Reply reply;
    EXPECT_TRUE(reply.ParseFromString(Flatten(***answer)));
    return reply;
  }

  v1::JoinRequest JoinMessage(int trainer, const std::string& process) {
    v1::JoinRequest request;
    request.mutable_caller()->set_job_id("job");
    request.mutable_caller()->set_trainer(trainer);
    request.set_server_index(server_);
    request.set_plan_fingerprint(StableHash(job_.PlanText()));
    request.set_plan_text(job_.PlanText());
    request.set_build(std::string(kBuild));
    request.set_wire_version(kWireVersion);
    request.set_arithmetic("avx2");
    request.set_process(process);
    return request;
  }
  absl::Status Join(int trainer, const std::string& process) {
    const auto reply = CallNow<v1::JoinReply>(Method::kJoin, JoinMessage(trainer, process).SerializeAsString());
    if (!reply.ok()) return reply.status();
    sessions_[trainer] = reply->session();
    return absl::OkStatus();
  }
  void JoinAll() {
    for (int t = 0; t < job_.trainers; ++t) ASSERT_TRUE(Join(t, absl::StrCat("trainer:", t)).ok());
  }
  v1::Caller CallerOf(int trainer) {
    v1::Caller caller;
    caller.set_job_id("job");
    caller.set_trainer(trainer);
    caller.set_session(sessions_[trainer]);
    return caller;
  }
  absl::StatusOr<v1::HeartbeatReply> Beat(int trainer, const std::function<void(v1::HeartbeatRequest&)>& edit = {}) {
    v1::HeartbeatRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    if (edit) edit(request);
    return CallNow<v1::HeartbeatReply>(Method::kHeartbeat, request.SerializeAsString());
  }
  // Lets time pass; trainers in `alive` send heart-beats.
  void Pass(double seconds, const std::vector<int>& alive) {
    for (double t = 0; t < seconds; t += 0.5) {
      clock_.Advance(absl::Seconds(0.5));
      for (int trainer : alive) (void)Beat(trainer);
      core_->Tick();
    }
  }

  std::pair<v1::PushRequest, std::string> MakePush(const PushSpec& spec) {
    v1::PushRequest request;
    *request.mutable_caller() = CallerOf(spec.trainer);
    request.set_step(spec.step);
    request.set_part(spec.part);
    if (spec.part_count > 0) {
      request.set_part_count(spec.part_count);
      request.set_samples(spec.samples);
      request.set_verdict(spec.verdict);
      request.set_first_samples(spec.first_samples);
    }
    for (const Merged& from : spec.merged) {
      v1::MergedTrainer* const merged = request.add_merged();
      merged->set_trainer(from.trainer);
      merged->set_session(sessions_[from.trainer]);
      if (spec.part_count > 0) {
        merged->set_samples(from.samples);
        merged->set_verdict(from.verdict);
      }
      if (from.stop) merged->set_stop_requested(true);
    }
    std::string payload;
    const auto append = [&payload](const void* data, size_t bytes) {
      payload.append(static_cast<const char*>(data), bytes);
      payload.resize(AlignUp(payload.size()), '\0');
    };
    for (const Item& from : spec.items) {
      v1::PushItem* const item = request.add_items();
      item->set_name(from.name);
      item->set_lane(from.lane);
      item->set_lanes(from.lanes);
      item->set_width(from.width);
      item->set_begin(from.begin);
      item->set_offset(static_cast<int64_t>(payload.size()));
      item->set_count(static_cast<int64_t>(from.width > 0 ? from.ids.size() : from.values.size()));
      if (from.width > 0) append(from.ids.data(), from.ids.size() * 8);
      append(from.values.data(), from.values.size() * 4);
      if (from.counts.empty()) continue;
      item->set_shows_and_clicks(true);
      append(from.counts.data(), from.counts.size() * 4);
    }
    return {request, payload};
  }
  static std::string Seal(v1::PushRequest request, const std::string& payload) {
    const Slices slices = {Slice::Own(payload)};
    request.set_checksum(Checksum(slices));
    return Flatten(EncodeFrame(request.SerializeAsString(), slices));
  }
  absl::StatusOr<v1::PushReply> PushReplyOf(const std::shared_ptr<Answer>& answer) {
    if (!answer->has_value()) return absl::DeadlineExceededError("no answer yet");
    if (!(*answer)->ok()) return (*answer)->status();
    const absl::StatusOr<Frame> frame = DecodeFrame(***answer);
    if (!frame.ok()) return frame.status();
    v1::PushReply reply;
    EXPECT_TRUE(reply.ParseFromString(frame->header));
    return reply;
  }
  absl::StatusOr<v1::PushReply> Push(const PushSpec& spec) {
    const auto [request, payload] = MakePush(spec);
    return PushReplyOf(Call(Method::kPush, Seal(request, payload)));
  }
  absl::Status PushStatus(v1::PushRequest request, const std::string& payload) {
    return PushReplyOf(Call(Method::kPush, Seal(std::move(request), payload))).status();
  }
  // Pushes a whole step in one part.
  absl::Status PushStep(int trainer, int64_t step, std::vector<Item> items, int64_t samples,
                        v1::Verdict verdict = v1::APPLY) {
    return Push({.trainer = trainer,
                 .step = step,
                 .items = std::move(items),
                 .part_count = 1,
                 .samples = samples,
                 .verdict = verdict})
        .status();
  }

  struct Pulled {
    v1::PullReply header;
    std::vector<float> values;
  };
  std::string PullBytes(int trainer, int64_t version, double wait, const std::string& name, int64_t count,
                        std::vector<int64_t> ids = {}, int width = 0) {
    v1::PullRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.set_version(version);
    request.set_wait_s(wait);
    if (!name.empty()) {
      v1::PullItem* const item = request.add_items();
      item->set_name(name);
      item->set_count(count);
      item->set_width(width);
    }
    Slices payload;
    if (!ids.empty())
      payload.push_back(Slice::Own(std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8)));
    return Flatten(EncodeFrame(request.SerializeAsString(), payload));
  }
  absl::StatusOr<Pulled> PulledOf(const std::shared_ptr<Answer>& answer) {
    if (!answer->has_value()) return absl::DeadlineExceededError("no answer yet");
    if (!(*answer)->ok()) return (*answer)->status();
    const absl::StatusOr<Frame> frame = DecodeFrame(***answer);
    if (!frame.ok()) return frame.status();
    Pulled pulled;
    EXPECT_TRUE(pulled.header.ParseFromString(frame->header));
    EXPECT_EQ(pulled.header.checksum(), Checksum(frame->payload));
    const std::string bytes = Flatten(frame->payload);
    pulled.values.resize(bytes.size() / 4);
    if (!bytes.empty()) std::memcpy(pulled.values.data(), bytes.data(), pulled.values.size() * 4);
    return pulled;
  }
  absl::StatusOr<Pulled> Pull(int trainer, int64_t version, const std::string& name, int64_t count,
                              std::vector<int64_t> ids = {}, int width = 0) {
    return PulledOf(Call(Method::kPull, PullBytes(trainer, version, 0, name, count, std::move(ids), width)));
  }
  std::vector<float> Bias(int trainer) {
    const auto pulled = Pull(trainer, 0, "b", 5);
    EXPECT_TRUE(pulled.ok()) << pulled.status();
    return pulled.ok() ? std::vector<float>(pulled->values.begin(), pulled->values.begin() + 5) : std::vector<float>();
  }
  absl::StatusOr<v1::ControlReply> Digest(int trainer) {
    v1::ControlRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.mutable_digest();
    return CallNow<v1::ControlReply>(Method::kControl, request.SerializeAsString());
  }

  HandMadeJob job_;
  size_t unread_bytes_ = size_t{1} << 28, pending_row_bytes_ = size_t{1} << 30, exchange_bytes_ = size_t{1} << 30;
  // Edits the options that Start makes; may be empty.
  std::function<void(ServerOptions*)> edit_;
  int server_ = 0;
  FakeClock clock_;
  ThreadPool pool_{"test", 0};
  std::map<int, uint64_t> sessions_;
  std::unique_ptr<ServerCore> core_;
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_CORE_BY_HAND_H_
