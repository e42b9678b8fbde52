// Any bytes as a server's answers to a client. The first byte says what the client asks for once it has joined, the
// second in which formats it does; answers follow, in the order in which they are asked for: a byte that says how (a
// message, a frame with its checksum made right, bytes as they are, an error), a header and a payload. When none are
// left the server answers with an error.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/tensor/tensor.h"
#include "framework/wire/checksum.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "pserver/client/client.h"
#include "tests/fuzz/input.h"

namespace weir {
namespace {

// Time passes by being looked at: what is tried again later is tried at once.
class ImpatientClock : public Clock {
 public:
  absl::Time Now() override {
    MutexLock lock(&mu_);
    return now_ += absl::Milliseconds(50);
  }

 private:
  Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_) = absl::FromUnixSeconds(1'000'000'000);
};

class ScriptedServer : public Transport {
 public:
  explicit ScriptedServer(FuzzInput* script) : script_(script) {}

  void Call(int, Method method, Slices, absl::Duration, ReplyCallback done) override { done(Next(method)); }
  std::string Describe(int server) const override { return "server " + std::to_string(server); }
  int servers() const override { return 1; }

 private:
  absl::StatusOr<Slices> Next(Method method) {
    if (script_->empty() && aborted_ && method == Method::kHeartbeat) {
      v1::HeartbeatReply reply;
      reply.mutable_failure()->set_message("the script has ended");
      return Slices{Slice::Own(reply.SerializeAsString())};
    }
    if (script_->empty()) return absl::InternalError("the script has ended");
    const uint8_t how = script_->Byte();
    std::string header = script_->Piece(), payload = script_->Piece();
    switch (how % 4) {
      case 0:
        return Slices{Slice::Own(std::move(header))};
      case 1: {
        v1::PullReply reply;
        const Slices values = {Slice::Own(std::move(payload))};
        if (method == Method::kPull && reply.ParseFromString(header)) {
          reply.set_checksum(Checksum(values));
          header = reply.SerializeAsString();
        }
        return EncodeFrame(header, values);
      }
      case 2:
        return EncodeFrame(header, {Slice::Own(std::move(payload))});
      default: {
        const auto code = static_cast<absl::StatusCode>(1 + how / 4 % 16);
        // Who hears this asks a second long for the reason.
        aborted_ |= code == absl::StatusCode::kAborted;
        return absl::Status(code, header);
      }
    }
  }
  FuzzInput* const script_;
  bool aborted_ = false;
};

constexpr int kTrainers = 2;

// w [40, 16] and b [5] dense, tables t of width 4 and u of width 1.
v1::Plan PlanWith(bool sync, uint8_t formats) {
  v1::Plan plan;
  plan.set_job("job");
  plan.set_servers(1);
  plan.set_trainers(kTrainers);
  plan.set_lanes(2);
  plan.set_sync(sync);
  plan.mutable_wire()->set_pull(static_cast<v1::WireFormat>(formats % 4));
  plan.mutable_wire()->set_push(static_cast<v1::WireFormat>(formats / 4 % 4));
  for (const auto& [name, count] : {std::pair("w", 640), std::pair("b", 5)}) {
    v1::PlacedBlock* const block = plan.add_blocks();
    block->set_name(name);
    block->set_parameter(name);
    block->set_element_count(count);
    block->add_dims(count);
  }
  for (const auto& [name, width] : {std::pair("t", 4), std::pair("u", 1)}) {
    v1::PlacedTable* const table = plan.add_tables();
    table->set_name(name);
    table->set_width(width);
    table->set_logical_shards(64);
    *table->mutable_wire() = plan.wire();
  }
  return plan;
}

absl::Status Dense(Client* client) {
  Tensor w, b;
  w.Resize(v1::FLOAT32, {640});
  b.Resize(v1::FLOAT32, {5});
  RETURN_IF_ERROR(client->steps().Receive({"w", 0, 640}, &w));
  RETURN_IF_ERROR(client->steps().Receive({"b", 0, 5}, &b));
  return client->steps().FinishReceives(nullptr);
}

absl::Status Rows(Client* client) {
  const std::vector<int64_t> ids = {5, -9, INT64_MAX, 7};
  const std::vector<uint8_t> there = {0, 1, 0, 0};
  std::vector<float> t(4 * 4), u(4);
  RETURN_IF_ERROR(client->steps().BeginStep(0, /*read_only=*/false));
  const std::vector<ParamChannel::TableRows> pulls = {{"t", 4, &ids, t.data(), there.data()}, {"u", 1, &ids, u.data()}};
  return client->steps().PullRows(pulls);
}

absl::Status Gradients(Client* client) {
  Tensor b;
  b.Resize(v1::FLOAT32, {5});
  std::fill_n(b.data<float>(), 5, 0.5f);
  SelectedRows t;
  t.ids = {5, -9};
  t.merged = t.present = true;
  t.values.Resize(v1::FLOAT32, {2, 4});
  std::fill_n(t.values.data<float>(), 8, -1.5f);
  const ParamChannel::LaneTensor dense[] = {{0, &b}};
  const ParamChannel::LaneRows rows[] = {{0, &t}};
  RETURN_IF_ERROR(client->steps().BeginStep(0, /*read_only=*/false));
  RETURN_IF_ERROR(client->steps().SendDense({"b", 0, 5}, dense));
  RETURN_IF_ERROR(client->steps().SendRows({"t", -1, 0}, 4, rows));
  return client->steps().FinishSends(/*samples=*/4, v1::APPLY);
}

void Streams(Client* client) {
  const std::unique_ptr<ByteStream> stream = client->board().StreamTo("key", 1);
  if (stream->Append("some").ok()) (void)stream->Finish();
  (void)client->residuals().Deal(/*from=*/1, {}, /*step=*/0);
}

void Ask(uint8_t what, Client* client) {
  // Beyond the numbers that other seeds have.
  if (what >= 220) return Streams(client);
  switch (what % 11) {
    case 0:
      (void)Dense(client);
      break;
    case 1:
      (void)Rows(client);
      break;
    case 2:
      (void)Gradients(client);
      break;
    case 3: {
      const auto all = client->board().Exchange("key", "mine");
      if (all.ok() && all->size() != kTrainers) std::abort();
      break;
    }
    case 4: {
      std::vector<std::string> all;
      const auto ready = client->board().TryCollect("key", &all);
      if (ready.ok() && *ready && !all.empty() && all.size() != kTrainers) std::abort();
      break;
    }
    case 5: {
      v1::ControlRequest request;
      request.mutable_digest();
      const auto replies = client->member().Control(request);
      if (replies.ok() && replies->size() != 1) std::abort();
      break;
    }
    case 6:
      (void)client->member().Done();
      break;
    case 7:
      client->member().heartbeats().Round();
      client->member().heartbeats().Round();
      (void)client->member().StopRequested();
      break;
    case 8:
      client->steps().SetFirstStep(client->member().TakesOver().value_or(0));
      (void)client->board().Contribute("key", "mine", /*reader=*/0);
      break;
    case 9: {
      (void)client->board().Post("key", "mine", 3);
      for (int t = 0; t < kTrainers; ++t) (void)client->board().Posted("key", t);
      const auto word = client->board().NewestWord("key");
      if (word.ok() && (word->by < -1 || word->by >= kTrainers)) std::abort();
      if (client->member().Chief() < 0 || client->member().Chief() >= kTrainers) std::abort();
      break;
    }
    default:
      client->member().ReportFailure(absl::InternalError("enough"));
  }
  (void)client->member().JobStatus();
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  const ScratchDirectory& scratch = QuietScratch("answers");
  static const std::string probe = scratch.Write("probe-1", "token");
  FuzzInput input(data, size);
  const uint8_t what = input.Byte();
  const uint8_t formats = input.Byte();
  ThreadPool pool("fuzz", 0);
  ImpatientClock clock;
  ScriptedServer server(&input);
  auto client = Client::Create({.plan = PlanWith(/*sync=*/what / 11 % 2 == 1, formats),
                                .trainer_id = 0,
                                .job_name = "job",
                                .plan_text = "plan",
                                .checkpoint_dir = scratch.path(),
                                .process = "trainer:0",
                                .arithmetic = "avx2",
                                .transport = &server,
                                .clock = &clock,
                                .pool = &pool,
                                .heartbeat_thread = false});
  CHECK(client.ok()) << client.status();
  if ((*client)->Join().ok()) Ask(what, client->get());
  return 0;
}
