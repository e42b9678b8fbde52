// Any calls of two trainers and a reader to a server of a job with norms over servers, one after the other: a byte that
// says which, a header and (pushes and pulls) a payload. What every right call has is made right: job and sessions, a
// join's plan and build, a push's checksum; so what is behind it is reached. 7 lets time pass. The job is async, or
// sync if the highest bit of the first byte is set.
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "ops/arithmetic.h"
#include "proto/parameter_server.pb.h"
#include "pserver/protocol/handshake.h"
#include "pserver/server/server_core.h"
#include "tests/fuzz/input.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

constexpr char kJob[] = R"(
name: "job"
data { train { files: "none" } criteo { integers: 2 categoricals: 3 } batch_size: 8 }
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true }
optimizer { adagrad { learning_rate: 0.1 } clip { by_global_norm { max_norm: 0.5 } } }
distribute { sync: false servers: 2 trainers: 2 }
train { lanes: 2 arithmetic: AVX2 }
)";

struct Parts {
  Programs programs;
  std::string plan_text;
};

const Parts* MakeServerParts(bool sync) {
  FLAGS_minloglevel = google::GLOG_FATAL;
  CHECK(SetArithmetic(v1::Train::AUTO).ok());
  const auto job = ParseJob(kJob, "job.textproto", {absl::StrCat("distribute.sync=", sync ? "true" : "false")});
  CHECK(job.ok()) << job.status();
  auto programs = ServerPrograms(*job, 0, "", "");
  CHECK(programs.ok()) << programs.status();
  return new Parts{*programs, PlanText(*job, programs->main.plan())};
}

const Parts& ServerParts(bool sync) {
  static const Parts* const of_async = MakeServerParts(/*sync=*/false);
  static const Parts* const of_sync = MakeServerParts(/*sync=*/true);
  return sync ? *of_sync : *of_async;
}

class FuzzedCalls {
 public:
  explicit FuzzedCalls(bool sync) : parts_(ServerParts(sync)), pool_("fuzz", 0) {
    auto core = ServerCore::Create({.main = parts_.programs.main,
                                    .startup = parts_.programs.startup,
                                    .job_name = "job",
                                    .plan_text = parts_.plan_text,
                                    .sync = sync,
                                    .process = "server:1",
                                    .arithmetic = "avx2",
                                    .clock = &clock_,
                                    .pool = &pool_});
    CHECK(core.ok()) << core.status();
    core_ = *std::move(core);
  }

  void Next(FuzzInput* input) {
    const uint8_t which = input->Byte() % 8;
    if (which == 7) {
      clock_.Advance(absl::Milliseconds(200) * input->Byte());
      core_->Tick();
      return;
    }
    const std::string message = input->Piece();
    switch (static_cast<Method>(which)) {
      case Method::kJoin:
        return Join(message);
      case Method::kHeartbeat:
        return Call<v1::HeartbeatRequest>(Method::kHeartbeat, message);
      case Method::kPush:
        return CallWithPayload<v1::PushRequest>(Method::kPush, message, input->Piece());
      case Method::kPull:
        return CallWithPayload<v1::PullRequest>(Method::kPull, message, input->Piece());
      case Method::kExchange:
        return Call<v1::ExchangeRequest>(Method::kExchange, message);
      case Method::kControl:
        return Call<v1::ControlRequest>(Method::kControl, message);
      case Method::kNorms:
        return Call<v1::NormsRequest>(Method::kNorms, message);
      case Method::kDeliver:
        return;  // of another service
    }
  }

 private:
  // An answer that comes twice, or never, would leave a trainer in doubt.
  ReplyCallback Once() {
    auto answers = std::make_shared<int>(0);
    return [answers](const absl::StatusOr<Slices>&) {
      if (++*answers > 1) std::abort();
    };
  }
  template <typename Request>
  void MakeCallerRight(Request* request) {
    v1::Caller* const caller = request->mutable_caller();
    caller->set_job_id("job");
    const auto session = sessions_.find(caller->trainer());
    if (session != sessions_.end()) caller->set_session(session->second);
  }
  void Join(const std::string& message) {
    v1::JoinRequest request;
    if (!request.ParseFromString(message)) return;
    MakeCallerRight(&request);
    if (!request.has_plan_text()) {
      request.set_plan_text(parts_.plan_text);
      request.set_plan_fingerprint(StableHash(parts_.plan_text));
    }
    if (!request.has_build()) request.set_build(std::string(kBuild));
    if (!request.has_wire_version()) request.set_wire_version(kWireVersion);
    core_->Handle(Method::kJoin, {Slice::Own(request.SerializeAsString())}, [&](absl::StatusOr<Slices> answer) {
      v1::JoinReply reply;
      if (!answer.ok()) return;
      if (!reply.ParseFromString(Flatten(*answer))) std::abort();
      sessions_[request.caller().trainer()] = reply.session();
    });
  }
  template <typename Request>
  void Call(Method method, const std::string& message) {
    Request request;
    if (!request.ParseFromString(message)) return core_->Handle(method, {Slice::Own(message)}, Once());
    MakeCallerRight(&request);
    core_->Handle(method, {Slice::Own(request.SerializeAsString())}, Once());
  }
  void MakeRight(const std::string& payload, v1::PushRequest* request) {
    request->set_checksum(StableHash(payload));
    for (v1::MergedTrainer& merged : *request->mutable_merged()) {
      const auto session = sessions_.find(merged.trainer());
      if (session != sessions_.end()) merged.set_session(session->second);
    }
  }
  static void MakeRight(const std::string&, v1::PullRequest*) {}
  template <typename Request>
  void CallWithPayload(Method method, const std::string& message, std::string payload) {
    Request request;
    if (!request.ParseFromString(message)) return;
    MakeCallerRight(&request);
    MakeRight(payload, &request);
    core_->Handle(method, EncodeFrame(request.SerializeAsString(), {Slice::Own(std::move(payload))}), Once());
  }

  const Parts& parts_;
  FakeClock clock_;
  ThreadPool pool_;
  std::map<int, uint64_t> sessions_;  // by trainer, of those that have joined; kReader: of the reader
  std::unique_ptr<ServerCore> core_;
};

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::FuzzInput input(data, size);
  weir::FuzzedCalls calls(/*sync=*/size > 0 && (data[0] & 0x80) != 0);
  while (!input.empty()) calls.Next(&input);
  return 0;
}
