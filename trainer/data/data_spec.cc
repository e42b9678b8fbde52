#include "trainer/data/data_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/graph/loss_facts.h"
#include "framework/graph/loss_inputs.h"
#include "framework/graph/op_view.h"
#include "framework/graph/reported_loss.h"
#include "framework/graph/var_index.h"

namespace weir {
namespace {

bool Names(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, const std::string& name) {
  for (const v1::OpSlot& slot : slots) {
    if (std::find(slot.vars().begin(), slot.vars().end(), name) != slot.vars().end()) return true;
  }
  return false;
}

// Returns whether the label may be missing (Loss.label_may_be_missing): only known_label reads it.
bool MayBeMissing(const v1::ProgramDesc& program, const std::string& label) {
  bool optional = false;
  for (const v1::BlockDesc& block : program.blocks()) {
    for (const v1::OpDesc& op : block.ops()) {
      if (!Names(op.inputs(), label)) continue;
      if (op.type() != "known_label") return false;
      optional = true;
    }
  }
  return optional;
}

bool IsWritten(const v1::BlockDesc& block, const std::string& name) {
  return std::any_of(block.ops().begin(), block.ops().end(),
                     [&](const v1::OpDesc& op) { return Names(op.outputs(), name); });
}

// Returns the label of the loss that the operator computes; "" if it computes none.
std::string LabelOf(const v1::ProgramDesc& program, const v1::OpDesc& op) {
  for (const v1::LossDesc& loss : program.losses()) {
    if (Names(op.outputs(), ReportedLoss(program, loss))) return loss.label();
  }
  return "";
}

// Returns the ranges that the program's losses require of numbers that come from the data.
std::vector<LabelRange> LabelRanges(const v1::ProgramDesc& program) {
  std::vector<LabelRange> ranges;
  if (program.blocks_size() == 0) return ranges;
  const v1::BlockDesc& block = program.blocks(0);
  for (const v1::OpDesc& op : block.ops()) {
    const LossFacts* const facts = LossFactsOf(op.type());
    if (facts == nullptr) continue;
    for (const LossFacts::Number& number : facts->numbers) {
      const std::string variable = InputOf(op, number.slot);
      if (!number.above_zero || variable.empty() || IsWritten(block, variable)) continue;
      ranges.push_back(
          {.variable = variable, .loss = op.type(), .most = std::numeric_limits<float>::max(), .above_zero = true});
    }
    LabelRange range{.variable = InputOf(op, "Label"), .loss = op.type()};
    switch (facts->labels) {
      case LossFacts::Labels::kAny:
        continue;
      case LossFacts::Labels::kTwoClasses:
        break;
      case LossFacts::Labels::kFactor:
        // The operator reads it as, or in, its weight.
        range.variable = LabelOf(program, op);
        if (range.variable.empty()) continue;
        break;
      case LossFacts::Labels::kClass:
        range.whole = true;
        if (const v1::VarDesc* const scores = FindVar(block, InputOf(op, facts->classes));
            scores != nullptr && scores->dims_size() == 2) {
          range.most = static_cast<float>(scores->dims(1) - 1);
        }
        break;
      case LossFacts::Labels::kNotNegative:
        range.most = std::numeric_limits<float>::max();
        break;
    }
    // A label that may be missing must be in the range where it is there.
    for (const v1::OpDesc& other : block.ops()) {
      if (other.type() == "known_label" && Names(other.outputs(), range.variable)) range.variable = InputOf(other, "X");
    }
    if (!IsWritten(block, range.variable)) ranges.push_back(range);
  }
  std::set<std::string> weights;
  for (const v1::LossDesc& loss : program.losses()) {
    const std::string& weight = loss.sample_weight();
    if (weight.empty() || IsWritten(block, weight) || !weights.insert(weight).second) continue;
    ranges.push_back(
        {.variable = weight, .loss = loss.name(), .most = std::numeric_limits<float>::max(), .weight = true});
  }
  return ranges;
}

}  // namespace

bool LabelRange::Holds(float label) const {
  return (above_zero ? label > 0 : label >= 0) && label <= most && (!whole || std::floor(label) == label);
}

std::string LabelRange::Wanted(float label) const {
  if (weight) {
    return "sample_weight needs a number that is not negative: training would move away from the label; 0 takes an "
           "example out of the loss, and data.train.where out of the data";
  }
  if (!metric.empty()) {
    return absl::StrCat(metric, " needs a number that is finite and not negative; 0 takes an example out of the ",
                        "metric, and data.eval.where out of the evaluation");
  }
  if (whole) return absl::StrCat(loss, " needs a class, a whole number from 0 to ", most);
  if (above_zero) return absl::StrCat(loss, " needs a probability, a number above 0");
  const LossFacts* const facts = LossFactsOf(loss);
  if (facts != nullptr && facts->labels == LossFacts::Labels::kFactor) {
    return absl::StrCat(loss, " needs 0 or 1, or what is between; a factor of another size is for sample_weight");
  }
  if (facts != nullptr && facts->labels == LossFacts::Labels::kNotNegative) {
    return absl::StrCat(loss, " needs a ", facts->label_name, ", which is not negative");
  }
  return absl::StrCat(loss, " needs 0 or 1, or what is between",
                      label == -1 ? "; a layer scale { scale: 0.5 bias: 0.5 } makes them of -1 and 1" : "");
}

int64_t DataSpec::StreamBatch(int stream) const {
  const int64_t n = streams();
  return config.batch_size() / n + (stream < config.batch_size() % n ? 1 : 0);
}

DataSpec MakeDataSpec(const v1::JobConfig& job, const std::string& directory, const v1::ProgramDesc& program) {
  DataSpec spec;
  spec.config = job.data();
  spec.directory = directory;
  spec.seed = job.train().seed();
  spec.lanes = job.train().lanes();
  spec.trainers = job.distribute().trainers();
  spec.epochs = job.train().epochs();
  LossInputs inputs = LossInputsOf(program);
  spec.required = std::move(inputs.required);
  spec.never_transformed = std::move(inputs.untransformed);
  spec.label_ranges = LabelRanges(program);
  for (const std::string& label : spec.never_transformed) {
    if (MayBeMissing(program, label)) spec.keeps_missing.push_back(label);
  }
  for (const std::string& label : spec.keeps_missing) std::erase(spec.required, label);
  if (spec.config.dense().except_size() > 0) {
    spec.never_transformed.assign(spec.config.dense().except().begin(), spec.config.dense().except().end());
  }
  for (const v1::Layer& layer : job.model().layer()) {
    if (!layer.has_embedding() || !layer.embedding().has_padding_id()) continue;
    for (const std::string& ids : layer.embedding().ids()) {
      std::vector<int64_t>& padding = spec.padding_ids[ids];
      if (std::find(padding.begin(), padding.end(), layer.embedding().padding_id()) == padding.end()) {
        padding.push_back(layer.embedding().padding_id());
      }
    }
  }
  return spec;
}

DataSpec SpecOfEvaluation(DataSpec spec, const v1::JobConfig& job) {
  for (int i = 0; i < job.metric_size(); ++i) {
    const std::string& weight = job.metric(i).weight();
    if (weight.empty()) continue;
    if (std::find(spec.required.begin(), spec.required.end(), weight) == spec.required.end()) {
      spec.required.push_back(weight);
    }
    const auto same = [&](const LabelRange& range) { return range.variable == weight && !range.metric.empty(); };
    if (std::any_of(spec.label_ranges.begin(), spec.label_ranges.end(), same)) continue;
    spec.label_ranges.push_back({.variable = weight,
                                 .most = std::numeric_limits<float>::max(),
                                 .metric = absl::StrCat("metric[", i, "].weight")});
  }
  return spec;
}

}  // namespace weir
