// A server with one joined trainer and one reader, for fuzzing its handlers.
#ifndef WEIR_TESTS_FUZZ_SERVER_FUZZ_H_
#define WEIR_TESTS_FUZZ_SERVER_FUZZ_H_

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "framework/membership/limits.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "proto/parameter_server.pb.h"
#include "pserver/protocol/handshake.h"
#include "pserver/server/server_core.h"
#include "tests/testing/hand_made_job.h"

namespace weir {

class FuzzedServer {
 public:
  struct Options {
    std::string checkpoint_dir = {};
    std::map<std::string, std::vector<std::string>> row_files = {};
    // Wire format of its plan, for pulls and pushes.
    v1::WireFormat format = v1::WIRE_FLOAT32;
  };
  FuzzedServer() : FuzzedServer(Options()) {}
  explicit FuzzedServer(const Options& options) : pool_("fuzz", 0) {
    const HandMadeJob job{.sync = false, .pull = options.format, .push = options.format};
    auto core = ServerCore::Create({.main = job.Main(0),
                                    .startup = job.Startup(0),
                                    .job_name = "job",
                                    .plan_text = job.PlanText(),
                                    .sync = false,
                                    .checkpoint_dir = options.checkpoint_dir,
                                    .row_files = options.row_files,
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
    join.set_wire_version(kWireVersion);
    join.set_arithmetic("avx2");
    join.set_process("trainer:0");
    caller_.set_job_id("job");
    caller_.set_trainer(0);
    caller_.set_session(SessionOf(join));
    v1::JoinRequest reads;
    reads.mutable_caller()->set_trainer(kReader);
    reads.set_wire_version(kWireVersion);
    reads.set_reader(true);
    reader_.set_trainer(kReader);
    reader_.set_session(SessionOf(reads));
  }

  // Returns the server of a format. There is one per format, because another format than the plan's is refused at once.
  static std::unique_ptr<FuzzedServer>& Of(v1::WireFormat format) {
    static auto* const servers = new std::map<v1::WireFormat, std::unique_ptr<FuzzedServer>>;
    std::unique_ptr<FuzzedServer>& server = (*servers)[format];
    if (server == nullptr) server = std::make_unique<FuzzedServer>(Options{.format = format});
    return server;
  }

  // Splits the input: two bytes with the size of the header (little-endian), the header, the payload.
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
  // Returns the answer of a call that is answered at once.
  absl::StatusOr<std::string> HandleMessage(Method method, const std::string& message) {
    absl::StatusOr<std::string> answer = absl::UnknownError("no answer");
    core_->Handle(method, {Slice::Own(message)}, [&answer](absl::StatusOr<Slices> reply) {
      if (reply.ok()) {
        answer = Flatten(*reply);
      } else {
        answer = reply.status();
      }
    });
    return answer;
  }
  const v1::Caller& caller() const { return caller_; }
  const v1::Caller& reader() const { return reader_; }
  bool failed() { return !core_->JobStatus().ok(); }

 private:
  uint64_t SessionOf(const v1::JoinRequest& join) {
    const absl::StatusOr<std::string> answer = HandleMessage(Method::kJoin, join.SerializeAsString());
    CHECK(answer.ok()) << answer.status();
    v1::JoinReply reply;
    CHECK(reply.ParseFromString(*answer));
    return reply.session();
  }

  FakeClock clock_;
  ThreadPool pool_;
  v1::Caller caller_, reader_;
  std::unique_ptr<ServerCore> core_;
};

}  // namespace weir

#endif  // WEIR_TESTS_FUZZ_SERVER_FUZZ_H_
