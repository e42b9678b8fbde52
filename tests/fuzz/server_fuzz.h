// A server with one trainer that has joined, for fuzzing its handlers.
#ifndef WEIR_TESTS_FUZZ_SERVER_FUZZ_H_
#define WEIR_TESTS_FUZZ_SERVER_FUZZ_H_

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "proto/parameter_server.pb.h"
#include "pserver/handshake.h"
#include "pserver/server_core.h"
#include "tests/testing/hand_made_job.h"

namespace weir {

class FuzzedServer {
 public:
  FuzzedServer() : pool_("fuzz", 0) {
    const HandMadeJob job{.sync = false};
    auto core = ServerCore::Create({.main = job.Main(0),
                                    .startup = job.Startup(0),
                                    .job_name = "job",
                                    .plan_text = job.PlanText(),
                                    .sync = false,
                                    .process = "server:1",
                                    .arithmetic = "avx2",
                                    .clock = &clock_,
                                    .pool = &pool_});
    CHECK(core.ok()) << core.status();
    core_ = *std::move(core);
    v1::JoinRequest join;
    join.mutable_caller()->set_job_id("job");
    join.set_plan_fingerprint(StableHash(job.PlanText()));
    join.set_plan_text(job.PlanText());
    join.set_build(std::string(kBuild));
    join.set_arithmetic("avx2");
    join.set_process("trainer:0");
    core_->Handle(Method::kJoin, {Slice::Own(join.SerializeAsString())}, [this](absl::StatusOr<Slices> answer) {
      CHECK(answer.ok()) << answer.status();
      v1::JoinReply reply;
      CHECK(reply.ParseFromString(Flatten(*answer)));
      caller_.set_job_id("job");
      caller_.set_trainer(0);
      caller_.set_session(reply.session());
    });
  }

  // Input: bytes of the header (two, little-endian), the header, the payload.
  static bool Split(const uint8_t* data, size_t size, std::string* header, std::string* payload) {
    if (size < 2) return false;
    const size_t n = std::min<size_t>(size - 2, data[0] | data[1] << 8);
    header->assign(reinterpret_cast<const char*>(data) + 2, n);
    payload->assign(reinterpret_cast<const char*>(data) + 2 + n, size - 2 - n);
    return true;
  }
  void Handle(Method method, const std::string& header, std::string payload) {
    core_->Handle(method, EncodeFrame(header, {Slice::Own(std::move(payload))}), [](absl::StatusOr<Slices>) {});
    if (!core_->JobStatus().ok()) return;
    core_->Tick();
  }
  const v1::Caller& caller() const { return caller_; }
  bool failed() { return !core_->JobStatus().ok(); }

 private:
  FakeClock clock_;
  ThreadPool pool_;
  v1::Caller caller_;
  std::unique_ptr<ServerCore> core_;
};

}  // namespace weir

#endif  // WEIR_TESTS_FUZZ_SERVER_FUZZ_H_
