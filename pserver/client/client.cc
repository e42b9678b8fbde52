#include "pserver/client/client.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/wire/buffer_pool.h"
#include "glog/logging.h"
#include "pserver/client/ahead_puller.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/block_puller.h"
#include "pserver/client/join_replies.h"
#include "pserver/client/norm_exchange.h"
#include "pserver/client/pull_calls.h"
#include "pserver/client/pusher.h"
#include "pserver/client/residual_exchange.h"
#include "pserver/client/row_puller.h"
#include "pserver/member/member.h"
#include "pserver/member/messages.h"

namespace weir {

namespace {

absl::Duration OfSeconds(double s) { return absl::Seconds(std::max(0.0, s)); }

CallSettings SettingsOf(const ClientOptions& options) {
  const v1::Deadlines& deadlines = options.deadlines;
  return {.job_name = options.job_name,
          .trainer_id = options.trainer_id,
          .trainers = options.plan.trainers(),
          .sync = options.plan.sync(),
          .process = options.process,
          .rpc = OfSeconds(deadlines.rpc_s()),
          .lease = OfSeconds(deadlines.lease_s()),
          .heartbeat_period = OfSeconds(deadlines.heartbeat_s()),
          .slow_warning = OfSeconds(deadlines.slow_warning_s()),
          .connect_deadline = OfSeconds(deadlines.connect_deadline_s()),
          .progress_deadline = OfSeconds(deadlines.progress_deadline_s()),
          .transport = options.transport,
          .clock = options.clock};
}

v1::JoinRequest Introduction(const ClientOptions& options) {
  v1::JoinRequest introduction;
  introduction.set_plan_fingerprint(StableHash(options.plan_text));
  introduction.set_plan_text(options.plan_text);
  introduction.set_arithmetic(options.arithmetic);
  return introduction;
}

// Source that Client::Ahead returns.
class AheadRows : public RowSource {
 public:
  // in_turn as in RowPuller. `received`: sync: the version of the parameters that the program has received. Borrows all
  // but in_turn.
  AheadRows(const BlockPlacement* placement, PullCalls* calls, bool in_turn, const JobView* job,
            const std::atomic<int64_t>* received)
      : puller_(placement, calls, in_turn, Waits::kAhead),
        exact_(placement, calls, &puller_.orders(), &Counters::Process()),
        job_(*job),
        received_(*received),
        sync_(placement->plan().sync()) {}

  absl::Status BeginStep(int64_t step, bool read_only) override {
    CHECK(!read_only) << "evaluation and prediction pull their own rows";
    step_ = step;
    puller_.BeginStep(step, read_only);
    return job_.failure();
  }
  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    // The step's own version may be there already.
    return sync_ && ahead_of_version_ && step_ > received_ ? exact_.Pull(step_, tables) : puller_.PullRows(tables);
  }
  void PullAheadOfVersion(bool on) { ahead_of_version_ = on; }

  int64_t rows() const { return puller_.rows() + exact_.rows(); }
  // Returns the ids asked for, by table.
  RowOrders& orders() { return puller_.orders(); }

 private:
  RowPuller puller_;
  AheadPuller exact_;
  const JobView& job_;
  const std::atomic<int64_t>& received_;
  const bool sync_;
  bool ahead_of_version_ = true;
  int64_t step_ = 0;
};

class BoardBeside : public PostBoard {
 public:
  explicit BoardBeside(Exchanges* exchanges) : exchanges_(*exchanges) {}

  absl::Status Post(std::string_view key, std::string contribution, int64_t edition) override {
    return exchanges_.Post(std::string(key), contribution, edition);
  }
  absl::StatusOr<std::string> Posted(std::string_view key, int trainer) override {
    return exchanges_.Posted(std::string(key), trainer);
  }
  absl::StatusOr<PostedWord> NewestWord(std::string_view key, int64_t above) override {
    return exchanges_.NewestWord(std::string(key), above);
  }

 private:
  Exchanges& exchanges_;
};

// Hands each function to the object whose duty it is.
class ClientImpl : public Client {
 public:
  explicit ClientImpl(ClientOptions options);

  absl::Status Join() override;
  void Heartbeat() override { member_.heartbeats().Round(); }
  int Chief() override { return member_.job().chief(); }
  absl::StatusOr<std::vector<v1::ControlReply>> Control(const v1::ControlRequest& request, bool until_stop) override;
  void RequestStop() override { member_.membership().RequestStop(); }
  bool StopRequested() override { return member_.job().stop_requested(); }
  void ReportFailure(const absl::Status& status) override { member_.membership().ReportFailure(status); }
  absl::Status Done(bool stopped) override { return member_.membership().Done(stopped); }
  absl::Status JobStatus() override { return member_.job().failure(); }
  Counters counters() const override;

  RowSource* Ahead() override { return &ahead_; }
  void PullAheadOfVersion(bool on) override { ahead_.PullAheadOfVersion(on); }
  void NeedAhead(bool needed) override { member_.waits().NeedAhead(needed); }
  void CancelAhead() override { member_.waits().CancelAhead(); }
  void SetFirstStep(int64_t step) override {
    version_wanted_ = step;
    received_ = step;
  }
  void SetFirstSamples(int64_t samples) override { pusher_.SetFirstSamples(samples); }
  void EndWithNextSends() override { ends_ = true; }
  PostBoard* Beside() override { return &beside_; }
  void SetAwaitsFiles(bool awaits) override { member_.job().SetAwaitsFiles(awaits); }
  bool AnyAwaitsFiles() override { return member_.job().any_awaits_files(); }
  std::optional<int64_t> TakesOver() override { return joined_.TakesOver(); }
  std::string RunId() override { return joined_.RunId(); }
  void SetNormParty(NormParty* party) override { norm_party_ = party; }
  bool ExchangesNorms() override;

  absl::StatusOr<std::vector<std::string>> Exchange(std::string_view key, std::string contribution, bool kept,
                                                    bool until_stop) override {
    return member_.exchanges().Exchange(std::string(key), contribution, kept, until_stop);
  }
  absl::Status Contribute(std::string_view key, std::string contribution, int reader) override {
    return member_.exchanges().Contribute(std::string(key), contribution, reader);
  }
  absl::StatusOr<bool> TryCollect(std::string_view key, std::vector<std::string>* all) override {
    return member_.exchanges().TryCollect(std::string(key), all);
  }
  absl::Status Post(std::string_view key, std::string contribution, int64_t edition) override {
    return member_.exchanges().Post(std::string(key), contribution, edition);
  }
  absl::StatusOr<std::string> Posted(std::string_view key, int trainer) override {
    return member_.exchanges().Posted(std::string(key), trainer);
  }
  std::unique_ptr<Stream> StreamTo(std::string_view key, int trainer) override {
    return member_.exchanges().StreamTo(std::string(key), trainer);
  }
  absl::Status ReadStream(std::string_view key, int trainer, const Take& take) override {
    return member_.exchanges().ReadStream(std::string(key), trainer, take);
  }
  absl::StatusOr<Word> AwaitWord(std::string_view key, int64_t edition) override {
    return member_.exchanges().AwaitWord(std::string(key), edition);
  }
  absl::StatusOr<Word> NewestWord(std::string_view key) override {
    return member_.exchanges().NewestWord(std::string(key));
  }

  absl::Span<float> DenseResidual(const std::string& parameter, int64_t count) override {
    return pusher_.residuals().DenseValues(
        parameter, LanesOfTrainer(options_.plan.lanes(), options_.plan.trainers(), options_.trainer_id), count);
  }
  bool KeepsResiduals() const override { return residuals_.Keeps(); }
  absl::Status GatherResiduals(int64_t step, int to, const Take& take) override {
    return residuals_.Gather(step, to, take);
  }
  absl::Status PostResiduals(int64_t step) override { return residuals_.Post(step); }
  absl::Status TakeResiduals(int64_t step, const Take& take) override { return residuals_.Take(step, take); }
  absl::Status DealResiduals(int from, const std::function<absl::Status(const Take&)>& read, int64_t step) override {
    return residuals_.Deal(from, read, step);
  }

  absl::Status BeginStep(int64_t step, bool read_only) override;
  void SetStepSamples(int64_t samples) override { pusher_.SetStepSamples(samples); }
  absl::Status PullRows(absl::Span<const TableRows> tables) override { return rows_.PullRows(tables); }
  void UseRowsAhead() override { rows_.orders().SwapTables(&ahead_.orders()); }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override {
    return pusher_.SendDense(block, lanes);
  }
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override {
    return pusher_.SendRows(block, width, lanes);
  }
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override;
  absl::Status Receive(const BlockRef& block, Tensor* out) override { return blocks_.Receive(block, out); }
  absl::Status FinishReceives(StepOutcome* outcome) override;

 private:
  bool ReceivesBesideSends();

  const ClientOptions options_;
  // A step begins only when the servers say so: in sync at its version, with a bound when no trainer is too far behind.
  const bool in_turn_;
  Member member_;
  JoinReplies joined_;
  const BlockPlacement placement_;
  BufferPool buffers_;
  PullCalls pulls_;
  RowPuller rows_;                    // used by the thread that runs the program
  std::atomic<int64_t> received_{0};  // sync: version that the program has received; atomic: ahead_ reads it
  AheadRows ahead_;                   // used by the thread that pulls ahead, except in UseRowsAhead
  BlockPuller blocks_;
  Pusher pusher_;
  NormExchange norms_;
  NormParty* norm_party_ = nullptr;
  ResidualExchange residuals_;
  int64_t version_wanted_ = 0;  // used by the thread that runs the program
  bool ends_ = false;           // EndWithNextSends has been called
  BoardBeside beside_;
  std::atomic<uint64_t> next_request_{1};
};

ClientImpl::ClientImpl(ClientOptions options)
    : options_(std::move(options)),
      in_turn_(options_.plan.sync() || options_.bounded_staleness),
      member_(SettingsOf(options_)),
      joined_(&member_.settings(), options_.checkpoint_per_host ? "" : options_.checkpoint_dir),
      placement_(&options_.plan),
      pulls_(&member_.calls(), &member_.waits(), &buffers_, options_.pool),
      rows_(&placement_, &pulls_, in_turn_, Waits::kProgram),
      ahead_(&placement_, &pulls_, in_turn_, &member_.job(), &received_),
      blocks_(&placement_, &pulls_, in_turn_),
      pusher_(&placement_, &member_.calls(), &buffers_, options_.pool, &rows_.orders()),
      norms_(&member_.calls(), &member_.waits()),
      residuals_(&options_.plan, options_.trainer_id, pusher_.nodes(), &pusher_.residuals(), &member_.exchanges(),
                 options_.compresses),
      beside_(&member_.exchanges_beside()) {}

absl::Status ClientImpl::Join() {
  // Heart-beats begin with the first session: a lease must not run out while another server is still missing.
  if (options_.heartbeat_thread) member_.heartbeats().Start();
  return member_.membership().Join(
      Introduction(options_), [this](int server, const v1::JoinReply& reply) { return joined_.Take(server, reply); });
}

absl::StatusOr<std::vector<v1::ControlReply>> ClientImpl::Control(const v1::ControlRequest& request, bool until_stop) {
  const CallSettings& settings = member_.settings();
  std::vector<v1::ControlReply> replies(static_cast<size_t>(settings.servers()));
  std::vector<CallPtr> calls;
  for (int s = 0; s < settings.servers(); ++s) {
    v1::ControlRequest own = request;
    *own.mutable_caller() = member_.calls().CallerFor(s);
    own.set_request_id(next_request_++);
    calls.push_back(
        Calls::New(s, Method::kControl, MessageBytes(own), [s, &replies](const Slices& answer) -> absl::StatusOr<bool> {
          ASSIGN_OR_RETURN(replies[static_cast<size_t>(s)], ParseMessage<v1::ControlReply>(answer));
          return true;
        }));
  }
  RETURN_IF_ERROR(
      member_.calls().Wait(calls, "a control call", settings.progress_deadline, {.until_stop = until_stop}));
  return replies;
}

Client::Counters ClientImpl::counters() const {
  const CallCounters& calls = member_.counters();
  return {.bytes_sent = calls.bytes_sent(),
          .bytes_received = calls.bytes_received(),
          .messages = calls.messages(),
          .rows_pulled = rows_.rows() + ahead_.rows(),
          .rows_pushed = pusher_.rows(),
          .retries = calls.retries(),
          .large_gradients = pusher_.large_gradients()};
}

bool ClientImpl::ReceivesBesideSends() {
  // Norms are asked for when the pushes are complete. Pushes to a server inside are complete at once.
  return options_.receives_beside_sends && options_.plan.sync() && !pulls_.answers_inside() && !ExchangesNorms();
}

bool ClientImpl::ExchangesNorms() {
  const std::vector<int> rounds = joined_.NormRounds();
  return std::any_of(rounds.begin(), rounds.end(), [](int n) { return n > 0; });
}

absl::Status ClientImpl::BeginStep(int64_t step, bool read_only) {
  RETURN_IF_ERROR(JobStatus());
  rows_.BeginStep(step, read_only);
  blocks_.Clear();
  if (read_only) {
    pusher_.BeginReadOnlyStep();
    return absl::OkStatus();
  }
  member_.job().SetStep(step);
  if (in_turn_) version_wanted_ = step;
  pusher_.BeginStep(step, version_wanted_);
  return absl::OkStatus();
}

absl::Status ClientImpl::FinishSends(int64_t samples, v1::Verdict verdict) {
  if (ends_ && options_.plan.sync()) verdict = v1::END;
  RETURN_IF_ERROR(pusher_.FinishSends(samples, verdict, StopRequested()));
  if (!ReceivesBesideSends()) RETURN_IF_ERROR(pusher_.AwaitSends());
  const int64_t step = pusher_.sent().step;
  // In sync another trainer's verdict may count; in async an own step without effect has no norms.
  const bool brings_norms = options_.plan.sync() ? options_.trainer_id == 0 : samples > 0 && verdict == v1::APPLY;
  if (brings_norms) RETURN_IF_ERROR(norms_.Run(step, joined_.NormRounds(), norm_party_));
  if (in_turn_) version_wanted_ = step + 1;
  return absl::OkStatus();
}

absl::Status ClientImpl::FinishReceives(StepOutcome* outcome) {
  const bool sync = options_.plan.sync();
  const std::string what = sync                         ? absl::StrCat("version ", version_wanted_)
                           : options_.bounded_staleness ? absl::StrCat("the others, to begin step ", version_wanted_)
                                                        : "blocks";
  ASSIGN_OR_RETURN(StepOutcome result, blocks_.Finish(version_wanted_, what, pusher_.TakeSends()));
  if (sync) received_ = result.version;
  if (!sync) {
    // The outcome is this trainer's own; the steps of others are no part of it.
    result.skipped = pusher_.sent().verdict == v1::SKIP;
    result.samples = pusher_.sent().samples;
    result.stop = false;
  }
  pusher_.EndStep(!result.skipped && !result.ended);
  if (outcome != nullptr) *outcome = result;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  CHECK(options.transport != nullptr && options.clock != nullptr && options.pool != nullptr);
  const v1::Plan& plan = options.plan;
  if (options.trainer_id < 0 || options.trainer_id >= plan.trainers()) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer id ", options.trainer_id, "; the job has trainers 0 to ", plan.trainers() - 1));
  }
  if (options.transport->servers() != plan.servers()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.transport->servers(), " servers are given, the plan has ", plan.servers()));
  }
  return std::unique_ptr<Client>(std::make_unique<ClientImpl>(std::move(options)));
}

}  // namespace weir
