#include "pserver/channels/half_async.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"

namespace weir {

namespace {

const ProfileName kOthers("other workers");

}  // namespace

class WorkerGroup::Port : public ParamChannel {
 public:
  Port(WorkerGroup* group, int worker) : group_(*group), worker_(worker) {}

  absl::Status BeginStep(int64_t step, bool read_only) override {
    read_only_ = read_only;
    mine_.clear();
    if (!read_only) return group_.BeginStep(step);
    MutexLock lock(&group_.inner_mu_);
    return inner().BeginStep(step, /*read_only=*/true);
  }

  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    MutexLock lock(&group_.inner_mu_);
    return inner().PullRows(tables);
  }

  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override {
    return Keep({.block = block, .dense = {lanes.begin(), lanes.end()}});
  }
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override {
    return Keep({.block = block, .width = width, .rows = {lanes.begin(), lanes.end()}});
  }

  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override {
    return group_.FinishSends(worker_, samples, verdict);
  }

  absl::Status Receive(const BlockRef& block, Tensor* out) override {
    mine_[block.name] = out;
    if (worker_ > 0 && !read_only_) return absl::OkStatus();
    MutexLock lock(&group_.inner_mu_);
    return inner().Receive(block, out);
  }

  absl::Status FinishReceives(StepOutcome* outcome) override {
    if (!read_only_) return group_.FinishReceives(worker_, outcome);
    MutexLock lock(&group_.inner_mu_);
    return inner().FinishReceives(outcome);
  }

  const std::map<std::string, Tensor*>& mine() const { return mine_; }

 private:
  ParamChannel& inner() { return *group_.options_.inner; }

  absl::Status Keep(Gradient gradient) {
    if (read_only_) return absl::FailedPreconditionError("a read-only step sends nothing");
    MutexLock lock(&group_.mu_);
    const Key key{gradient.block.name, gradient.block.server};
    group_.gradients_[static_cast<size_t>(worker_)][key] = std::move(gradient);
    return absl::OkStatus();
  }

  WorkerGroup& group_;
  const int worker_;
  bool read_only_ = false;
  std::map<std::string, Tensor*> mine_;  // where this thread wants its values
};

WorkerGroup::WorkerGroup(Options options) : options_(options) {
  for (int w = 0; w < options_.workers; ++w) ports_.push_back(std::make_unique<Port>(this, w));
}

WorkerGroup::~WorkerGroup() = default;

ParamChannel* WorkerGroup::channel(int worker) { return ports_[static_cast<size_t>(worker)].get(); }

absl::Status WorkerGroup::Run(const std::function<absl::Status(int)>& fn) {
  {
    MutexLock lock(&mu_);
    failure_ = absl::OkStatus();
  }
  std::vector<absl::Status> ends(static_cast<size_t>(options_.workers));
  const auto run = [&](int worker) {
    absl::Status& end = ends[static_cast<size_t>(worker)];
    end = fn(worker);
    if (!end.ok()) Abort(end);
  };
  std::vector<std::thread> threads;
  for (int w = 1; w < options_.workers; ++w) {
    threads.push_back(StartThread("weir-worker", [&run, w] { run(w); }));
  }
  run(0);
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&mu_);
  return failure_;  // the first; the others only heard of it
}

void WorkerGroup::Abort(const absl::Status& status) {
  MutexLock lock(&mu_);
  if (failure_.ok()) failure_ = status;
  changed_.SignalAll();
}

template <typename Ready, typename What>
absl::Status WorkerGroup::WaitFor(const Ready& ready, const What& what) {
  const ProfileSpan span(ProfiledStep::current(), ProfileKind::kThreads, kOthers);
  absl::Time start = Clock::Real()->Now();
  absl::Time warn = start + options_.slow_warning;
  while (true) {
    if (!failure_.ok()) return failure_;
    if (ready()) return absl::OkStatus();
    const absl::Time now = Clock::Real()->Now();
    if (options_.excused && options_.excused()) {
      start = now;
      warn = start + options_.slow_warning;
    }
    if (now - start >= options_.progress_deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("has waited ", absl::FormatDuration(options_.progress_deadline), " for ", what()));
    }
    if (now >= warn) {
      LOG(WARNING) << "slow: step " << step_ << " waits for " << what();
      warn += options_.slow_warning;
    }
    changed_.WaitWithTimeout(&mu_, std::min(warn, start + options_.progress_deadline) - now);
  }
}

absl::Status WorkerGroup::BeginStep(int64_t step) {
  // The first worker that comes begins the step for all.
  MutexLock inner_lock(&inner_mu_);
  {
    MutexLock lock(&mu_);
    if (!failure_.ok()) return failure_;
    if (step_ == step && !received_) return absl::OkStatus();
    step_ = step;
    arrived_.assign(static_cast<size_t>(options_.workers), false);
    samples_ = 0;
    verdict_ = v1::APPLY;
    gradients_.assign(static_cast<size_t>(options_.workers), {});
    received_ = false;
    values_.clear();
  }
  sums_.Clear();
  return options_.inner->BeginStep(step, /*read_only=*/false);
}

absl::Status WorkerGroup::FinishSends(int worker, int64_t samples, v1::Verdict verdict) {
  {
    MutexLock lock(&mu_);
    samples_ += samples;
    if (verdict == v1::SKIP) verdict_ = v1::SKIP;
    arrived_[static_cast<size_t>(worker)] = true;
    changed_.SignalAll();
    if (worker > 0) return absl::OkStatus();
    const auto late = [this] {
      mu_.AssertHeld();
      std::vector<std::string> names;
      for (size_t w = 0; w < arrived_.size(); ++w) {
        if (!arrived_[w]) names.push_back(absl::StrCat("worker ", w));
      }
      return absl::StrCat("the batch of ", absl::StrJoin(names, ", "));
    };
    RETURN_IF_ERROR(WaitFor(
        [this] {
          mu_.AssertHeld();
          return std::all_of(arrived_.begin(), arrived_.end(), [](bool there) { return there; });
        },
        late));
  }
  return MergeAndSend();
}

// Only thread 0 is here, and everyone else waits for it.
absl::Status WorkerGroup::MergeAndSend() {
  std::map<Key, std::vector<Gradient*>> blocks;  // in order of the workers
  int64_t samples = 0;
  v1::Verdict verdict = v1::APPLY;
  {
    MutexLock lock(&mu_);
    for (auto& of_worker : gradients_) {
      for (auto& [key, gradient] : of_worker) blocks[key].push_back(&gradient);
    }
    samples = samples_;
    verdict = verdict_;
  }
  MutexLock inner_lock(&inner_mu_);
  options_.inner->SetStepSamples(samples);
  std::vector<const std::vector<Gradient*>*> work;
  for (const auto& [key, gradients] : blocks) work.push_back(&gradients);
  Mutex mu;
  absl::Status failure;
  options_.pool->ParallelFor(static_cast<int64_t>(work.size()), [&](int64_t i) {
    for (const Gradient* gradient : *work[static_cast<size_t>(i)]) {
      const absl::Status added = gradient->width > 0 ? sums_.AddRows(gradient->block, gradient->width, gradient->rows)
                                                     : sums_.AddDense(gradient->block, gradient->dense);
      MutexLock lock(&mu);
      if (failure.ok()) failure = added;
    }
  });
  RETURN_IF_ERROR(failure);
  RETURN_IF_ERROR(sums_.SendRest(options_.inner));
  return options_.inner->FinishSends(samples, verdict);
}

absl::Status WorkerGroup::FinishReceives(int worker, StepOutcome* outcome) {
  const std::map<std::string, Tensor*>& mine = ports_[static_cast<size_t>(worker)]->mine();
  if (worker == 0) {
    StepOutcome result;
    {
      MutexLock inner_lock(&inner_mu_);
      RETURN_IF_ERROR(options_.inner->FinishReceives(&result));
    }
    MutexLock lock(&mu_);
    for (const auto& [name, tensor] : mine) values_[name] = tensor;
    outcome_ = result;
    received_ = true;
    changed_.SignalAll();
    if (outcome != nullptr) *outcome = result;
    return absl::OkStatus();
  }
  std::map<std::string, const Tensor*> values;
  {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(WaitFor(
        [this] {
          mu_.AssertHeld();
          return received_;
        },
        [] { return std::string("the values that worker 0 receives"); }));
    values = values_;
    if (outcome != nullptr) *outcome = outcome_;
  }
  // Thread 0 does not write them before all threads have ended their step.
  for (const auto& [name, tensor] : mine) {
    const auto found = values.find(name);
    if (found == values.end() || found->second->size() != tensor->size()) {
      return absl::InternalError(
          absl::StrCat("worker ", worker, " wants block ", name, ", which worker 0 has not received"));
    }
    std::memcpy(tensor->data<float>(), found->second->data<float>(), tensor->bytes());
  }
  return absl::OkStatus();
}

}  // namespace weir
