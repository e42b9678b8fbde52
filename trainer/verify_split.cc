#include "trainer/verify_split.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/digest_log.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/lane_tree.h"
#include "glog/logging.h"
#include "ops/arithmetic.h"
#include "pserver/client/client.h"
#include "pserver/embedded/all_reduce_channel.h"
#include "pserver/embedded/dense_replica.h"
#include "trainer/job_steps.h"
#include "trainer/loss_scaler.h"
#include "trainer/session.h"
#include "trainer/unsplit_run.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

// Variables named in a report. A wrong layer soon changes every parameter, so more would not help.
constexpr size_t kNamed = 12;
// Limit for a wait inside the split run; a run that hangs is a finding too.
constexpr double kDeadlineSeconds = 60;

struct Difference {
  std::string variable;
  std::string where;
};

// Returns "rows 3 to 5", or "elements 3 to 5" for a vector.
std::string RowsText(int64_t first, int64_t last, int64_t row) {
  const char* const what = row > 1 ? "row" : "element";
  first /= row;
  last /= row;
  return first == last ? absl::StrCat(what, " ", first) : absl::StrCat(what, "s ", first, " to ", last);
}

// The whole cluster: the servers, and the trainers on threads of their own.
class SplitRun {
 public:
  SplitRun(const Job& job, const VerifyOptions& options)
      : job_(job), options_(options), loss_scaler_(job.config.train()), pool_("weir-verify", options.threads - 1) {}

  absl::Status Start(const std::vector<Column>& columns) {
    ASSIGN_OR_RETURN(trainer_, TrainerPrograms(job_, "", ""));
    // Another order of sums gives another result, and is no mistake in the split: all are added in the lane tree.
    if (ModeOf(trainer_.main).has_all_reduce()) MutableMode(&trainer_.main)->mutable_all_reduce()->clear_any_order();
    const std::string plan_text = PlanText(job_, trainer_.main.plan());
    v1::Deadlines deadlines = job_.config.deadlines();
    deadlines.set_progress_deadline_s(std::min(kDeadlineSeconds, deadlines.progress_deadline_s()));
    std::vector<ServerOptions> servers(static_cast<size_t>(plan().servers()));
    for (int s = 0; s < plan().servers(); ++s) {
      ASSIGN_OR_RETURN(Programs server, ServerPrograms(job_, s, "", ""));
      if (options_.edit) options_.edit(s, &server);
      servers[static_cast<size_t>(s)] = {.server_id = s,
                                         .main = std::move(server.main),
                                         .startup = std::move(server.startup),
                                         .job_name = job_.config.name(),
                                         .plan_text = plan_text,
                                         .sync = true,
                                         .deadlines = deadlines,
                                         .process = absl::StrCat("server:", s),
                                         .clock = Clock::Real(),
                                         .pool = &pool_,
                                         .dense_sum = options_.dense_sum};
    }
    ASSIGN_OR_RETURN(servers_, InProcessServers::Create(std::move(servers), /*tick_thread=*/true));
    if (options_.edit) options_.edit(-1, &trainer_);
    for (int t = 0; t < plan().trainers(); ++t) {
      pools_.push_back(std::make_unique<ThreadPool>("weir-trainer", options_.threads - 1));
      ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Create({.plan = plan(),
                                                                       .trainer_id = t,
                                                                       .job_name = job_.config.name(),
                                                                       .plan_text = plan_text,
                                                                       .deadlines = deadlines,
                                                                       .process = absl::StrCat("trainer:", t),
                                                                       .transport = servers_.get(),
                                                                       .clock = Clock::Real(),
                                                                       .pool = pools_.back().get()}));
      RETURN_IF_ERROR(client->Join());
      clients_.push_back(std::move(client));
    }
    if (ModeOf(trainer_.main).has_all_reduce()) {
      RETURN_IF_ERROR(MakeReplicas(deadlines));
      RETURN_IF_ERROR(GatherValues());
    }
    for (int t = 0; t < plan().trainers(); ++t) {
      ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                       Session::Create({.main = trainer_.main,
                                        .startup = trainer_.startup,
                                        .trainer_id = t,
                                        .precision = PrecisionOnCpu(job_.config.train()),
                                        .columns = columns,
                                        .channel = channel(t),
                                        .pool = pools_[static_cast<size_t>(t)].get()}));
      RETURN_IF_ERROR(session->Start(0));
      sessions_.push_back(std::move(session));
    }
    return absl::OkStatus();
  }

  absl::Status Step(int64_t step, const std::vector<std::vector<LaneBatch>>& batches) {
    std::vector<absl::Status> ends(sessions_.size());
    std::vector<uint8_t> skipped(sessions_.size(), 0);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < sessions_.size(); ++t) {
      sessions_[t]->SetLossScale(loss_scaler_.scale());
      threads.push_back(StartThread("weir-trainer", [&, t] {
        const LaneRange lanes = sessions_[t]->lanes();
        for (size_t b = 0; b < batches.size() && ends[t].ok(); ++b) {
          std::vector<LaneBatch> own(batches[b].begin() + lanes.begin, batches[b].begin() + lanes.begin + lanes.count);
          const absl::StatusOr<StepResult> result = sessions_[t]->Train(step, static_cast<int>(b), &own);
          ends[t] = result.status();
          skipped[t] = result.ok() && result->outcome.skipped ? 1 : 0;
        }
        // Reports the failure so that the other trainers end too.
        if (!ends[t].ok() && clients_[t]->JobStatus().ok()) clients_[t]->ReportFailure(ends[t]);
        if (!ends[t].ok() && !channels_.empty()) {
          channels_[t]->EndExchanges(ends[t]);
          // Others may wait for an exchange that this trainer has not begun.
          collectives_[t]->Abort(ends[t]);
        }
      }));
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t t = 0; t < ends.size(); ++t) {
      // Returns the first cause rather than an error that it caused elsewhere.
      if (!ends[t].ok()) return clients_[t]->JobStatus().ok() ? ends[t] : clients_[t]->JobStatus();
    }
    // All trainers skip the same steps.
    loss_scaler_.StepDone(skipped[0] != 0);
    return absl::OkStatus();
  }

  // Creates what trainers have that hold the dense parameters.
  absl::Status MakeReplicas(const v1::Deadlines& deadlines) {
    meshes_ = std::make_unique<LocalMeshes>(plan().trainers());
    for (int t = 0; t < plan().trainers(); ++t) {
      Client* const client = clients_[static_cast<size_t>(t)].get();
      collectives_.push_back(std::make_unique<Collective>(
          meshes_->mesh(t), Collective::Options{.waits = {.deadline = absl::Seconds(deadlines.progress_deadline_s()),
                                                          .job = [client] { return client->JobStatus(); }}}));
      ASSIGN_OR_RETURN(replicas_.emplace_back(), DenseReplica::Create({.main = &trainer_.main,
                                                                       .startup = &trainer_.startup,
                                                                       .pool = pools_[static_cast<size_t>(t)].get(),
                                                                       .collective = collectives_.back().get()}));
      ASSIGN_OR_RETURN(
          channels_.emplace_back(),
          AllReduceChannel::Create(
              {.main = &trainer_.main, .trainer_id = t, .replica = replicas_.back().get(), .servers = client}));
      client->SetNormParty(channels_.back()->norm_party());
    }
    return absl::OkStatus();
  }
  // Makes the values of all replicas known to all of them.
  absl::Status GatherValues() {
    std::vector<absl::Status> ends(replicas_.size());
    std::vector<std::thread> threads;
    for (size_t t = 0; t < replicas_.size(); ++t) {
      threads.push_back(StartThread("weir-trainer", [&, t] { ends[t] = replicas_[t]->Gather(); }));
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& end : ends) RETURN_IF_ERROR(end);
    return absl::OkStatus();
  }
  ParamChannel* channel(int trainer) {
    const size_t t = static_cast<size_t>(trainer);
    return channels_.empty() ? static_cast<ParamChannel*>(clients_[t].get()) : channels_[t].get();
  }

  absl::StatusOr<DigestTable> Digests(int64_t version) {
    v1::ControlRequest request;
    request.mutable_digest()->set_step(version);
    ASSIGN_OR_RETURN(std::vector<v1::ControlReply> replies, clients_[0]->Control(request));
    for (const auto& replica : replicas_) {
      // If each has everything, that of the first is enough.
      if (replica != replicas_[0] && !replica->sharded()) continue;
      ASSIGN_OR_RETURN(replies.emplace_back(), replica->Digest());
    }
    DigestTable table;
    for (const v1::ControlReply& reply : replies) {
      for (const v1::VariableDigest& v : reply.variables()) {
        VariableDigestSum sum{.values = v.values(), .state = v.state()};
        for (int i = 0; i < std::min(kDigestRanges, v.ranges_size()); ++i)
          sum.ranges[static_cast<size_t>(i)] = v.ranges(i);
        table[v.name()] += sum;
      }
    }
    return table;
  }

  // Returns the value that a trainer has received; nullptr if its program has no such variable.
  const Tensor* Received(size_t trainer, const std::string& parameter) const {
    const Variable* var = sessions_[trainer]->Find(0, parameter);
    const Tensor* tensor = var == nullptr ? nullptr : std::get_if<Tensor>(var);
    return tensor != nullptr && tensor->initialized() ? tensor : nullptr;
  }

  size_t trainers() const { return sessions_.size(); }
  const v1::Plan& plan() const { return trainer_.main.plan(); }

 private:
  const Job& job_;
  const VerifyOptions& options_;
  LossScaler loss_scaler_;
  ThreadPool pool_;                                 // of the servers
  std::vector<std::unique_ptr<ThreadPool>> pools_;  // one per trainer, as in separate processes
  Programs trainer_;
  std::unique_ptr<InProcessServers> servers_;
  std::vector<std::unique_ptr<Client>> clients_;
  // With dense: ALL_REDUCE, by trainer; else empty.
  std::unique_ptr<LocalMeshes> meshes_;
  std::vector<std::unique_ptr<Collective>> collectives_;
  std::vector<std::unique_ptr<DenseReplica>> replicas_;
  std::vector<std::unique_ptr<AllReduceChannel>> channels_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

// Describes where two sums of one variable differ: rows of a parameter, shards of a table.
std::string Ranges(const UnsplitRun& whole, const std::string& name, const VariableDigestSum& a,
                   const VariableDigestSum& b) {
  int first = -1, last = -1, count = 0;
  for (int r = 0; r < kDigestRanges; ++r) {
    if (a.ranges[static_cast<size_t>(r)] == b.ranges[static_cast<size_t>(r)]) continue;
    if (first < 0) first = r;
    last = r;
    ++count;
  }
  if (first < 0) return "";
  const std::string ranges = absl::StrCat(count, " of ", kDigestRanges, " ranges");
  const int64_t elements = whole.Elements(name);
  const DigestExtent extent = elements < 0 ? DigestExtent{.shards = whole.Shards(name)}
                                           : DigestExtent{.elements = elements, .row = whole.RowElements(name)};
  return absl::StrCat(DigestRangeText(extent, first, last), ", ", ranges);
}

std::vector<Difference> OnServers(const UnsplitRun& whole, const DigestTable& split) {
  std::vector<Difference> found;
  const DigestTable expected = whole.Digests();
  for (const auto& [name, sum] : expected) {
    const auto other = split.find(name);
    if (other == split.end()) {
      found.push_back({name, "no server has it"});
      continue;
    }
    if (sum.values != other->second.values) {
      found.push_back({name, absl::StrCat("values on the servers, ", Ranges(whole, name, sum, other->second))});
    } else if (sum.state != other->second.state) {
      found.push_back({name, "optimizer state on the servers"});
    }
  }
  for (const auto& [name, sum] : split) {
    if (!expected.contains(name)) found.push_back({name, "servers have it, the unsplit program does not"});
  }
  return found;
}

std::vector<Difference> OnTrainers(const UnsplitRun& whole, const SplitRun& split) {
  std::vector<Difference> found;
  for (const std::string& name : whole.Parameters()) {
    const absl::Span<const float> expected = whole.Values(name);
    for (size_t t = 0; t < split.trainers(); ++t) {
      const Tensor* received = split.Received(t, name);
      // A trainer that fetches rows, or whose program does not read the parameter, has no whole copy.
      if (received == nullptr) continue;
      if (received->size() != static_cast<int64_t>(expected.size())) {
        found.push_back(
            {name, absl::StrCat("trainer ", t, " has ", received->size(), " elements of ", expected.size())});
        break;
      }
      const float* values = received->data<float>();
      int64_t first = -1, last = -1;
      for (size_t i = 0; i < expected.size(); ++i) {
        if (std::bit_cast<uint32_t>(values[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
        if (first < 0) first = static_cast<int64_t>(i);
        last = static_cast<int64_t>(i);
      }
      if (first < 0) continue;
      found.push_back({name, absl::StrCat("values that trainer ", t, " has received, ",
                                          RowsText(first, last, whole.RowElements(name)))});
      break;
    }
  }
  return found;
}

VerifyReport Differs(int64_t step, const std::vector<Difference>& found, VerifyReport report) {
  report.equal = false;
  report.step = step;
  report.variable = found[0].variable;
  report.text = step == 0 ? "first difference before the first step, in initial values:"
                          : absl::StrCat("first difference after step ", step,
                                         step > 1 ? absl::StrCat(" (equal until step ", step - 1, ")") : "", ":");
  for (size_t i = 0; i < std::min(kNamed, found.size()); ++i) {
    absl::StrAppend(&report.text, "\n  ", found[i].variable, ": ", found[i].where);
  }
  if (found.size() > kNamed) absl::StrAppend(&report.text, "\n  and ", found.size() - kNamed, " more");
  return report;
}

// Reports that the split run ended with an error, which counts as a difference.
VerifyReport Stopped(int64_t step, const absl::Status& status, const std::vector<std::string>& names,
                     VerifyReport report) {
  report.equal = false;
  report.step = step;
  const std::string message(status.message());
  // Takes the longest name in the message, since "deep.w" is part of "deep.w.block1".
  for (const std::string& name : names) {
    if (name.size() > report.variable.size() && message.find(name) != std::string::npos) report.variable = name;
  }
  report.text = absl::StrCat("the split programs stop ",
                             step == 0 ? "before the first step" : absl::StrCat("in step ", step), ": ", message);
  return report;
}

absl::Status CheckJob(const Job& job) {
  const v1::Distribute& distribute = job.config.distribute();
  if (!distribute.sync()) {
    return job.positions.Error(
        "distribute.sync",
        "--verify needs sync: without it the result depends on who comes first; --set distribute.sync=true");
  }
  if (distribute.average() == v1::Distribute::BY_TRAINERS) {
    return job.positions.Error("distribute.average",
                               "--verify needs BY_SAMPLES: the mean of trainers depends on their number");
  }
  if (distribute.has_local_sgd()) {
    return job.positions.Error("distribute.local_sgd",
                               "--verify compares with one trainer after each step: trainers that update by themselves "
                               "between averages differ from it; leave local_sgd out");
  }
  if (Compresses(distribute)) {
    return job.positions.Error("distribute.all_reduce.compression",
                               "--verify needs sums that are not rounded on the way; --set "
                               "distribute.all_reduce.compression=NONE");
  }
  if (distribute.async_tables()) {
    return job.positions.Error("distribute.async_tables",
                               "--verify needs sync tables: without it the result depends on who comes first");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<JobSteps>> StepsOf(const Job& job, const VerifyOptions& options, ThreadPool* pool,
                                                  std::string* data) {
  ASSIGN_OR_RETURN(const Programs single, BuildSingleMachine(job));
  if (!options.made_up && job.config.data().train().files_size() > 0) {
    absl::StatusOr<std::unique_ptr<JobSteps>> steps = JobSteps::OfData(job, single.main, pool);
    *data = "the job's data";
    if (steps.ok() || !absl::IsNotFound(steps.status())) return steps;
    LOG(INFO) << "no data files (" << steps.status().message() << "): batches are generated";
  }
  *data = "generated batches";
  return JobSteps::MadeUp(job, single.main);
}

}  // namespace

absl::StatusOr<VerifyReport> VerifySplit(const Job& job, const VerifyOptions& options) {
  RETURN_IF_ERROR(CheckJob(job));
  if (options.steps < 1)
    return absl::InvalidArgumentError(absl::StrCat("--steps must be at least 1, got ", options.steps));
  ThreadPool pool("weir-unsplit", options.threads - 1);
  VerifyReport report;
  ASSIGN_OR_RETURN(const std::unique_ptr<JobSteps> steps, StepsOf(job, options, &pool, &report.data));
  ASSIGN_OR_RETURN(const std::unique_ptr<UnsplitRun> whole, UnsplitRun::Create(job, &pool));
  std::vector<std::string> names;
  for (const auto& [name, sum] : whole->Digests()) names.push_back(name);
  SplitRun split(job, options);
  const absl::Status started = split.Start(steps->columns());
  if (!started.ok()) return Stopped(0, started, names, report);
  std::vector<std::vector<LaneBatch>> batches(static_cast<size_t>(std::max(1, job.config.train().accumulate_steps())));
  for (int64_t step = 0; step <= options.steps; ++step) {
    if (step > 0) {
      bool ended = true;
      for (std::vector<LaneBatch>& batch : batches) {
        RETURN_IF_ERROR(steps->Next(&batch));
        ended &= std::all_of(batch.begin(), batch.end(), [](const LaneBatch& lane) { return lane.ended; });
      }
      if (ended) break;
      RETURN_IF_ERROR(whole->Step(batches, steps->columns()));
      const absl::Status stepped = split.Step(step - 1, batches);
      if (!stepped.ok()) return Stopped(step, stepped, names, report);
    }
    report.steps = step;
    const absl::StatusOr<DigestTable> digests = split.Digests(step);
    if (!digests.ok()) return Stopped(step, digests.status(), names, report);
    std::vector<Difference> found = OnServers(*whole, *digests);
    if (found.empty()) found = OnTrainers(*whole, split);
    if (!found.empty()) return Differs(step, found, report);
  }
  report.equal = true;
  const v1::Plan& plan = split.plan();
  report.text = absl::StrCat("equal after each of ", report.steps, " steps of ", report.data, ": ", names.size(),
                             " parameters and tables, their optimizer state, and what trainers received; ",
                             plan.servers(), plan.servers() == 1 ? " server, " : " servers, ", plan.trainers(),
                             plan.trainers() == 1 ? " trainer, " : " trainers, ", plan.lanes(), " lanes");
  return report;
}

}  // namespace weir
