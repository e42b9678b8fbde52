#include "pserver/channels/all_reduce_channel.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/placement.h"
#include "framework/graph/training_mode.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "pserver/channels/exchange.h"
#include "pserver/replica/shared_norms.h"

namespace weir {

namespace {

static_assert(kMostInBucket == kMostSegments);

const ProfileName kExchangesName("gradients of all trainers");

Trainers TrainersOf(const ReplicaChannel::Options& options, int lanes) {
  const v1::Plan& plan = options.main->plan();
  Trainers trainers = {.collective = options.replica->collective(),
                       .lanes = lanes,
                       .own = LanesOfTrainer(plan.lanes(), plan.trainers(), options.trainer_id),
                       .residuals = options.residuals};
  for (int t = 0; t < plan.trainers(); ++t) {
    trainers.nodes.push_back(AlignedNodes(LanesOfTrainer(plan.lanes(), plan.trainers(), t)));
  }
  return trainers;
}

// Returns the bucket of each all_reduce op.
std::vector<int64_t> BucketsOf(const v1::ProgramDesc& main) {
  std::vector<int64_t> buckets;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() != "all_reduce") continue;
    buckets.push_back(AttrReader(op, *OpRegistry::Global().Find(op.type())).Int("bucket"));
  }
  return buckets;
}

class AllReduceChannel : public ReplicaChannel {
 public:
  explicit AllReduceChannel(const Options& options)
      : ReplicaChannel(options),
        mode_(ModeOf(*options.main).all_reduce()),
        trainers_(TrainersOf(options, lanes())),
        shared_norms_(SharedNorms::Create(*options.main, options.replica)) {}
  ~AllReduceChannel() override { EndExchanges(absl::CancelledError("the trainer ends in the middle of a step")); }
  absl::Status Init(const v1::ProgramDesc& main);

  void EndExchanges(const absl::Status& error) override;
  NormParty* norm_party() override { return shared_norms_.get(); }

 protected:
  void Clear() override;
  absl::Status GiveDense(size_t part, absl::Span<const LaneTensor> lanes) override;
  void GiveRows(size_t part, std::string rows) override;
  absl::Status Finish(int64_t samples, v1::Verdict verdict) override;
  absl::Status End(const StepOutcome& outcome, bool effective) override;

 private:
  // Gradients that will be an exchange, in the order of the program.
  struct Group {
    bool rows = false;
    std::vector<const GradientPart*> parts = {};
  };
  std::vector<Group> GroupParts(const std::vector<int64_t>& buckets) const;
  // Begins exchanges, in their order, until one lacks a gradient.
  void Ready(size_t part);
  void BeginNext(size_t part);
  // Waits for the exchanges, and for their results.
  absl::Status WaitForExchanges();
  // Returns false if a sum is not finite.
  bool Unpack();
  absl::Status SendAndWait(int64_t samples, v1::Verdict verdict);
  absl::StatusOr<TrainerGradients> TakeResults(int64_t samples) const;

  const v1::AllReduceMode mode_;
  const Trainers trainers_;
  const std::unique_ptr<SharedNorms> shared_norms_;  // null: no norm covers tables and dense parameters
  // Constant after Init. What an exchange has of the step belongs to the threads that give its gradients until it
  // begins, and is constant from then until Finish has waited for it.
  std::vector<std::unique_ptr<Exchange>> exchanges_;  // in the order in which they begin
  struct Place {
    size_t exchange = 0;
    size_t index = 0;  // among its parts
  };
  std::vector<Place> places_;  // by part

  bool told_ = false;  // a sum that is not finite has been reported; used by the thread that runs the program
  Mutex mu_;
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;              // first exchange that has not begun
  bool open_ ABSL_GUARDED_BY(mu_) = false;            // some have begun and were not waited for
  std::vector<size_t> missing_ ABSL_GUARDED_BY(mu_);  // by exchange: parts whose gradient is not there
};

absl::Status AllReduceChannel::Init(const v1::ProgramDesc& main) {
  RETURN_IF_ERROR(ReadParts(main, "all_reduce"));
  places_.resize(parts().size());
  for (const Group& group : GroupParts(BucketsOf(main))) {
    std::string name = group.parts[0]->name;
    if (group.parts.size() > 1) {
      const std::string more = absl::StrCat(" and ", group.parts.size() - 1, " more");
      name = name.substr(0, kMostOperationName - more.size()) + more;
    }
    name.resize(std::min(name.size(), kMostOperationName));
    std::vector<const GradientPart*> by_owner = group.parts;
    std::stable_sort(by_owner.begin(), by_owner.end(),
                     [](const GradientPart* a, const GradientPart* b) { return a->owner < b->owner; });
    if (!group.rows && by_owner.size() > kMostInBucket) {
      return absl::InvalidArgumentError(absl::StrCat("program ", main.name(), ": the bucket of '", by_owner[0]->name,
                                                     "' has ", by_owner.size(), " parameters; at most ", kMostInBucket,
                                                     " travel together"));
    }
    for (size_t i = 0; i < by_owner.size(); ++i) {
      places_[static_cast<size_t>(by_owner[i] - parts().data())] = {exchanges_.size(), i};
    }
    exchanges_.push_back(MakeExchange(mode_, trainers_, std::move(name), std::move(by_owner)));
  }
  return absl::OkStatus();
}

std::vector<AllReduceChannel::Group> AllReduceChannel::GroupParts(const std::vector<int64_t>& buckets) const {
  std::vector<Group> groups;
  // The groups of a bucket: of gradients, and of what the mode does not concern.
  std::map<std::pair<int64_t, bool>, size_t> filled;
  const bool tells_apart = mode_.adasum() || mode_.compression() != v1::DTYPE_UNSET;
  // Rows of one parameter, each with another owner.
  const auto joins_rows = [](const GradientPart& part, const Group& group) {
    return group.rows && std::all_of(group.parts.begin(), group.parts.end(), [&](const GradientPart* other) {
             return other->parameter == part.parameter && other->owner != part.owner;
           });
  };
  for (size_t p = 0; p < parts().size(); ++p) {
    const GradientPart& part = parts()[p];
    size_t g = groups.size();
    if (part.width > 0) {
      if (!groups.empty() && joins_rows(part, groups.back())) g = groups.size() - 1;
    } else {
      g = filled.emplace(std::pair(buckets[p], tells_apart && part.measured), g).first->second;
    }
    if (g == groups.size()) groups.push_back({.rows = part.width > 0});
    groups[g].parts.push_back(&part);
  }
  std::sort(groups.begin(), groups.end(),
            [](const Group& a, const Group& b) { return a.parts.back() < b.parts.back(); });
  return groups;
}

void AllReduceChannel::Clear() {
  MutexLock lock(&mu_);
  next_ = 0;
  missing_.clear();
  for (const auto& exchange : exchanges_) {
    exchange->Clear();
    missing_.push_back(exchange->parts().size());
  }
}

absl::Status AllReduceChannel::GiveDense(size_t part, absl::Span<const LaneTensor> lanes) {
  RETURN_IF_ERROR(exchanges_[places_[part].exchange]->GiveDense(places_[part].index, lanes));
  Ready(part);
  return absl::OkStatus();
}

void AllReduceChannel::GiveRows(size_t part, std::string rows) {
  exchanges_[places_[part].exchange]->GiveRows(places_[part].index, std::move(rows));
  Ready(part);
}

void AllReduceChannel::Ready(size_t part) {
  BeginNext(part);
  // Without the lock, under which nothing is sent.
  replica().collective().SendBegun();
}

void AllReduceChannel::BeginNext(size_t part) {
  MutexLock lock(&mu_);
  --missing_[places_[part].exchange];
  // All trainers begin in one order, whatever order their gradients come in.
  for (; next_ < exchanges_.size() && missing_[next_] == 0; ++next_) {
    open_ = true;
    exchanges_[next_]->Begin();
  }
}

void AllReduceChannel::EndExchanges(const absl::Status& error) {
  {
    MutexLock lock(&mu_);
    if (!open_) return;
    open_ = false;
    // Exchanges that have not begun do not begin any more.
    next_ = exchanges_.size();
  }
  replica().collective().Abort(error);
  for (const auto& exchange : exchanges_) exchange->Wait().IgnoreError();
}

absl::Status AllReduceChannel::WaitForExchanges() {
  // The program may change its gradients when this returns.
  const ProfileSpan span(step(), ProfileKind::kBorder, kExchangesName);
  for (const auto& exchange : exchanges_) RETURN_IF_ERROR(exchange->Wait());
  MutexLock lock(&mu_);
  open_ = false;
  return absl::OkStatus();
}

bool AllReduceChannel::Unpack() {
  bool finite = true;
  for (const auto& exchange : exchanges_) {
    if (exchange->Unpack()) continue;
    finite = false;
    if (told_) continue;
    told_ = true;
    LOG(WARNING) << "step " << step() << ": the sum of the gradients of '" << exchange->name() << "' is not finite in "
                 << v1::DType_Name(mode_.compression())
                 << " on the way (distribute.all_reduce.compression), so all trainers skip the step; BFLOAT16 has the "
                    "range of float32. Later steps are only counted";
  }
  return finite;
}

absl::Status AllReduceChannel::SendAndWait(int64_t samples, v1::Verdict verdict) {
  if (mode_.compression() == v1::DTYPE_UNSET) {
    RETURN_IF_ERROR(servers().FinishSends(samples, verdict));
    return WaitForExchanges();
  }
  RETURN_IF_ERROR(WaitForExchanges());
  return servers().FinishSends(samples, Unpack() ? verdict : v1::SKIP);
}

absl::Status AllReduceChannel::Finish(int64_t samples, v1::Verdict verdict) {
  {
    // Exchanges that no lane has anything for; other trainers may have.
    MutexLock lock(&mu_);
    open_ = open_ || next_ < exchanges_.size();
    for (; next_ < exchanges_.size(); ++next_) exchanges_[next_]->Begin();
  }
  replica().collective().SendBegun();
  if (shared_norms_ != nullptr) {
    shared_norms_->Begin(samples, [this](int64_t all_samples) -> absl::StatusOr<TrainerGradients> {
      RETURN_IF_ERROR(WaitForExchanges());
      return TakeResults(all_samples);
    });
  }
  absl::Status status = SendAndWait(samples, verdict);
  if (status.ok() && shared_norms_ != nullptr) status = shared_norms_->Finish(step());
  if (!status.ok()) EndExchanges(status);
  // Not told by EndExchanges if all exchanges have ended; the others may wait for this trainer's norms.
  if (!status.ok()) replica().collective().Abort(status);
  return status;
}

// Returns the gradients of what this trainer updates in the step, as those of one trainer.
absl::StatusOr<TrainerGradients> AllReduceChannel::TakeResults(int64_t samples) const {
  TrainerGradients all{.trainer = 0, .samples = samples};
  for (size_t p = 0; p < parts().size(); ++p) {
    if (parts()[p].target < 0) continue;
    RETURN_IF_ERROR(exchanges_[places_[p].exchange]->Take(places_[p].index, &all.gradients));
  }
  return all;
}

absl::Status AllReduceChannel::End(const StepOutcome& outcome, bool effective) {
  if (!effective) return absl::OkStatus();
  Norms shared;
  if (shared_norms_ != nullptr) {
    ASSIGN_OR_RETURN(shared, shared_norms_->Exchange());
  }
  ASSIGN_OR_RETURN(const TrainerGradients gradients, TakeResults(outcome.samples));
  RETURN_IF_ERROR(replica().Update(step(), absl::MakeConstSpan(&gradients, 1), shared));
  for (const auto& exchange : exchanges_) exchange->Keep();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReplicaChannel>> MakeAllReduceChannel(const ReplicaChannel::Options& options) {
  auto channel = std::make_unique<AllReduceChannel>(options);
  RETURN_IF_ERROR(channel->Init(*options.main));
  return channel;
}

}  // namespace weir
