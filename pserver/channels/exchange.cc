#include "pserver/channels/exchange.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/collective/adasum.h"
#include "glog/logging.h"
#include "pserver/protocol/merge_gradients.h"
#include "pserver/replica/node_rows.h"

namespace weir {

namespace {

using Parts = std::vector<const GradientPart*>;

// Who gets the results of an exchange.
class Delivery {
 public:
  virtual ~Delivery() = default;
  // Begin the sum of dense gradients, and the exchange of the rows of each part.
  virtual Collective::PendingPtr Add(Collective::Values values, std::vector<float>* sum) const = 0;
  virtual Collective::PendingPtr Give(const std::string& name, std::vector<std::string> rows,
                                      std::vector<std::string>* all) const = 0;
  // Returns the first element of the exchange in `sum`.
  virtual int64_t first() const = 0;
};

class ToEveryTrainer : public Delivery {
 public:
  explicit ToEveryTrainer(Collective* collective) : collective_(*collective) {}
  Collective::PendingPtr Add(Collective::Values values, std::vector<float>* sum) const override {
    sum->resize(static_cast<size_t>(values.shape[0]));
    return collective_.AllReduce(std::move(values), sum->data());
  }
  Collective::PendingPtr Give(const std::string& name, std::vector<std::string> rows,
                              std::vector<std::string>* all) const override {
    return collective_.AllGatherBytes(name, std::move(rows[0]), all);
  }
  int64_t first() const override { return 0; }

 private:
  Collective& collective_;
};

class ToOwners : public Delivery {
 public:
  ToOwners(Collective* collective, const Parts& parts) : collective_(*collective) {
    int64_t begin = 0;
    for (const GradientPart* const part : parts) {
      // Those before it own nothing more.
      begins_.resize(static_cast<size_t>(part->owner) + 1, begin);
      owners_.push_back(static_cast<size_t>(part->owner));
      begin += part->count;
    }
    begins_.resize(static_cast<size_t>(collective_.size()) + 1, begin);
  }
  Collective::PendingPtr Add(Collective::Values values, std::vector<float>* sum) const override {
    sum->resize(static_cast<size_t>(begins_[static_cast<size_t>(collective_.rank()) + 1] - first()));
    return collective_.ReduceScatter(std::move(values), begins_, sum->data());
  }
  Collective::PendingPtr Give(const std::string& name, std::vector<std::string> rows,
                              std::vector<std::string>* all) const override {
    std::vector<std::string> to(static_cast<size_t>(collective_.size()));
    for (size_t i = 0; i < rows.size(); ++i) to[owners_[i]] = std::move(rows[i]);
    return collective_.AllToAllBytes(name, std::move(to), all);
  }
  int64_t first() const override { return begins_[static_cast<size_t>(collective_.rank())]; }

 private:
  Collective& collective_;
  std::vector<int64_t> begins_;  // of the trainers' parts among the elements, and the end of the last one
  std::vector<size_t> owners_;   // by part
};

// Arguments of the constructors of all exchanges.
struct ExchangeArguments {
  const Trainers& trainers;
  std::string name;
  Parts parts;
  std::unique_ptr<Delivery> delivery = nullptr;
};

class RowExchange : public Exchange {
 public:
  explicit RowExchange(ExchangeArguments arguments)
      : Exchange(std::move(arguments.name), std::move(arguments.parts)),
        trainers_(arguments.trainers),
        delivery_(std::move(arguments.delivery)) {}

  void Clear() override {
    Exchange::Clear();
    rows_.assign(parts().size(), "");
    all_.clear();
  }
  void GiveRows(size_t i, std::string rows) override { rows_[i] = std::move(rows); }
  void Begin() override { pending_ = delivery_->Give(name(), std::move(rows_), &all_); }
  absl::Status Take(size_t i, std::vector<Gradient>* gradients) const override {
    const GradientPart& part = *parts()[i];
    for (size_t t = 0; t < all_.size(); ++t) {
      const absl::Status read =
          ReadNodeRows(all_[t], trainers_.nodes[t], part.target, part.width, part.count / part.width, gradients);
      if (!read.ok()) {
        return absl::Status(read.code(), absl::StrCat("'", part.name, "' from trainer ", t, ": ", read.message()));
      }
    }
    return absl::OkStatus();
  }

 private:
  const Trainers& trainers_;
  const std::unique_ptr<Delivery> delivery_;
  std::vector<std::string> rows_;  // of this trainer, by part
  std::vector<std::string> all_;   // by trainer
};

class TreeSum : public Exchange {
 public:
  // `nodes`: of which this trainer gives a sum each.
  TreeSum(ExchangeArguments arguments, std::vector<LaneRange> nodes)
      : Exchange(std::move(arguments.name), std::move(arguments.parts)),
        trainers_(arguments.trainers),
        delivery_(std::move(arguments.delivery)),
        nodes_(std::move(nodes)),
        memory_(nodes_.size()) {
    for (const GradientPart* const part : this->parts()) {
      begins_.push_back(count_);
      segments_.push_back(part->count);
      count_ += part->count;
    }
    if (segments_.size() == 1) return;
    // Parts may be there at the same time; a single one takes memory when it needs it.
    for (std::vector<float>& sums : memory_) sums.resize(static_cast<size_t>(count_));
  }

  void Clear() override {
    Exchange::Clear();
    sums_.assign(parts().size(), std::vector<const float*>(nodes_.size(), nullptr));
  }
  absl::Status GiveDense(size_t i, absl::Span<const StepChannel::LaneTensor> lanes) override {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      ASSIGN_OR_RETURN(sums_[i][n], SumNode(n, i, lanes));
    }
    return absl::OkStatus();
  }
  void Begin() override { pending_ = delivery_->Add(Describe(), &sum_); }
  absl::Status Take(size_t i, std::vector<Gradient>* gradients) const override {
    if (!pending_->present(i)) return absl::OkStatus();
    Gradient& gradient = gradients->emplace_back();
    gradient.target = parts()[i]->target;
    gradient.node = {0, trainers_.lanes};
    gradient.count = parts()[i]->count;
    gradient.values = sum_.data() + begins_[i] - delivery_->first();
    return absl::OkStatus();
  }

 protected:
  // Combines the lanes of a node, at least one.
  virtual absl::Status Combine(std::vector<DenseRun> lanes, absl::Span<float> sum) const {
    return SumDense(std::move(lanes), trainers_.lanes, sum);
  }
  // Describes the operation.
  virtual Collective::Values Describe() const {
    std::vector<LaneAddend> addends;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      LaneAddend addend{.lanes = nodes_[n], .values = memory_[n].data(), .present = 0};
      for (size_t i = 0; i < sums_.size(); ++i) {
        if (sums_[i][n] == nullptr) continue;
        addend.present |= uint64_t{1} << i;
        if (sums_.size() == 1) addend.values = sums_[i][n];
      }
      if (addend.present != 0) addends.push_back(addend);
    }
    return {.name = name(),
            .shape = {count_},
            .segments = segments_,
            .reduction = Reduction::kSum,
            .lanes = trainers_.lanes,
            .addends = std::move(addends)};
  }

  const Trainers& trainers_;
  std::vector<std::vector<const float*>> sums_;  // by part and node; null if no lane of the node has a gradient
  std::vector<float> sum_;                       // of all trainers: all elements, or those of this trainer's share

 private:
  // Sums the lanes of node n. Returns null if no lane has values. A part that travels alone may borrow the values of
  // the only lane that has any.
  absl::StatusOr<const float*> SumNode(size_t n, size_t i, absl::Span<const StepChannel::LaneTensor> lanes) {
    const LaneRange& node = nodes_[n];
    std::vector<DenseRun> runs;
    for (const StepChannel::LaneTensor& lane : lanes) {
      if (lane.lane < node.begin || lane.lane >= node.begin + node.count) continue;
      if (lane.value == nullptr || !lane.value->initialized()) continue;  // absent, not zero
      runs.push_back({{lane.lane, 1}, 0, lane.value->span<float>()});
    }
    if (runs.empty()) return nullptr;
    if (segments_.size() == 1) {
      if (runs.size() == 1) return runs[0].values.data();
      memory_[n].resize(static_cast<size_t>(count_));
    }
    const absl::Span<float> sum =
        absl::MakeSpan(memory_[n]).subspan(static_cast<size_t>(begins_[i]), static_cast<size_t>(segments_[i]));
    RETURN_IF_ERROR(Combine(std::move(runs), sum));
    return sum.data();
  }

  const std::unique_ptr<Delivery> delivery_;
  const std::vector<LaneRange> nodes_;
  int64_t count_ = 0;                       // elements of all parts
  std::vector<int64_t> begins_, segments_;  // of the parts among them, and how many each has
  std::vector<std::vector<float>> memory_;  // of sums, by node
};

class AdasumExchange : public TreeSum {
 public:
  using TreeSum::TreeSum;

 protected:
  absl::Status Combine(std::vector<DenseRun> lanes, absl::Span<float> sum) const override {
    std::vector<LaneAddend> means;
    means.reserve(lanes.size());
    for (const DenseRun& run : lanes) means.push_back({.lanes = run.node, .values = run.values.data()});
    Adasum(v1::FLOAT32, means, trainers_.lanes, static_cast<int64_t>(sum.size()), sum.data());
    return absl::OkStatus();
  }
  Collective::Values Describe() const override {
    Collective::Values values = TreeSum::Describe();
    values.reduction = Reduction::kAdasum;
    return values;
  }
};

class AnyOrderSum : public TreeSum {
 public:
  explicit AnyOrderSum(ExchangeArguments arguments) : TreeSum(std::move(arguments), {arguments.trainers.own}) {}

 protected:
  Collective::Values Describe() const override {
    Collective::Values values = TreeSum::Describe();
    // Trainers are the leaves.
    values.lanes = 0;
    for (LaneAddend& addend : values.addends) addend.lanes = {trainers_.collective.rank(), 1};
    values.any_order = true;
    return values;
  }
};

class SumIn16Bits : public AnyOrderSum {
 public:
  SumIn16Bits(ExchangeArguments arguments, DType format)
      : AnyOrderSum(std::move(arguments)),
        format_(format),
        compressed_(format, SegmentsOf(parts()), trainers_.residuals) {}

  void Begin() override {
    std::vector<const float*> sums;
    for (const std::vector<const float*>& nodes : sums_) sums.push_back(nodes[0]);
    void* const packed = compressed_.Pack(sums);
    Collective::Values values = Describe();
    values.dtype = format_;
    for (LaneAddend& addend : values.addends) addend.values = packed;
    values.any_order = false;
    values.lost = compressed_.lost();
    sum_.resize(static_cast<size_t>(values.shape[0]));
    pending_ = trainers_.collective.AllReduce(std::move(values), packed);
  }
  bool Unpack() override {
    return compressed_.Unpack([this](size_t segment) { return pending_->present(segment); }, sum_.data());
  }
  void Keep() override { compressed_.Keep(); }

 private:
  static std::vector<CompressedSum::Segment> SegmentsOf(const Parts& parts) {
    std::vector<CompressedSum::Segment> segments;
    for (const GradientPart* const part : parts) segments.push_back({part->name, part->count});
    return segments;
  }

  const DType format_;
  CompressedSum compressed_;
};

}  // namespace

absl::Status Exchange::GiveDense(size_t i, absl::Span<const StepChannel::LaneTensor> /*lanes*/) {
  return absl::InvalidArgumentError(absl::StrCat("gradient of ", parts_[i]->name, " is dense, the program has rows"));
}

void Exchange::GiveRows(size_t i, std::string /*rows*/) { LOG(FATAL) << parts_[i]->name << " has no rows"; }

std::unique_ptr<Exchange> MakeExchange(const v1::AllReduceMode& mode, const Trainers& trainers, std::string name,
                                       std::vector<const GradientPart*> parts) {
  ExchangeArguments arguments = {.trainers = trainers, .name = std::move(name), .parts = std::move(parts)};
  if (mode.sharded()) {
    arguments.delivery = std::make_unique<ToOwners>(&trainers.collective, arguments.parts);
  } else {
    arguments.delivery = std::make_unique<ToEveryTrainer>(&trainers.collective);
  }
  const GradientPart& first = *arguments.parts[0];
  if (first.width > 0) return std::make_unique<RowExchange>(std::move(arguments));
  const std::vector<LaneRange>& nodes = trainers.nodes[static_cast<size_t>(trainers.collective.rank())];
  if (mode.adasum() && !first.measured) return std::make_unique<AdasumExchange>(std::move(arguments), nodes);
  // With one trainer nothing is on the way.
  if (mode.compression() != v1::DTYPE_UNSET && !first.measured && trainers.nodes.size() > 1) {
    return std::make_unique<SumIn16Bits>(std::move(arguments), mode.compression());
  }
  // The owner of a share adds in the tree all the same.
  if (mode.any_order() && !mode.sharded()) return std::make_unique<AnyOrderSum>(std::move(arguments));
  return std::make_unique<TreeSum>(std::move(arguments), nodes);
}

}  // namespace weir
