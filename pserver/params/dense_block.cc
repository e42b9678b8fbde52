#include "pserver/params/dense_block.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "framework/base/exact_sum.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/graph/var_index.h"
#include "glog/logging.h"
#include "pserver/params/prefixed.h"
#include "pserver/tables/finite_values.h"

namespace weir {

namespace {

const ProfileName kBlock("update block");

// Returns the 4-byte units of a state variable, whatever its type: state is saved and digested as bits.
absl::Span<float> Bits(Variable* var) {
  Tensor& tensor = std::get<Tensor>(*var);
  return absl::MakeSpan(static_cast<float*>(tensor.raw()), tensor.bytes() / sizeof(float));
}

// Place of a piece of state in the whole state variable, which has the shape of the parameter, or one unit (of 4 bytes
// or more) per row of it.
struct StatePlace {
  std::vector<int64_t> whole_dims;
  int64_t element_begin = 0;
};
StatePlace PlaceState(const v1::PlacedBlock& placed, const std::vector<int64_t>& whole_dims, int64_t units) {
  if (units == placed.element_count()) return {whole_dims, placed.element_begin()};
  int64_t row = 1;
  for (size_t i = 1; i < whole_dims.size(); ++i) row *= whole_dims[i];
  const int64_t rows = std::max<int64_t>(1, placed.element_count() / row);
  const int64_t per_row = units / rows;
  return {{whole_dims.empty() ? 1 : whole_dims[0], per_row}, placed.element_begin() / row * per_row};
}

// Returns the initialized tensor in a variable; nullptr if there is none.
Tensor* FindTensor(Variable* var) {
  Tensor* const tensor = var == nullptr ? nullptr : std::get_if<Tensor>(var);
  return tensor == nullptr || !tensor->initialized() ? nullptr : tensor;
}

}  // namespace

DenseBlock::DenseBlock(int index, const v1::PlacedBlock& placed, const Source& source)
    : placed_(placed),
      profiled_as_(placed.name()),
      averaging_(*source.averaging),
      pool_(source.pool),
      seed_(source.main.seed()),
      info_{.index = index, .name = placed.name(), .count = placed.element_count()} {}

absl::StatusOr<std::unique_ptr<DenseBlock>> DenseBlock::Create(int index, const v1::PlacedBlock& placed,
                                                               const Source& source, int optimize_block,
                                                               const v1::OpDesc* update) {
  std::unique_ptr<DenseBlock> block(new DenseBlock(index, placed, source));
  RETURN_IF_ERROR(block->InitValue(source.scope, FindVar(source.main.blocks(0), placed.name())));
  if (update == nullptr) return block;
  RETURN_IF_ERROR(block->InitUpdate(source, optimize_block, *update));
  RETURN_IF_ERROR(block->InitStates(source.scope, *update));
  return block;
}

absl::Status DenseBlock::InitValue(Scope* scope, const v1::VarDesc* desc) {
  value_ = FindTensor(scope->Find(info_.name));
  if (value_ == nullptr) return absl::InvalidArgumentError("the startup program gives it no value");
  if (value_->dtype() != v1::FLOAT32 || value_->size() != placed_.element_count()) {
    return absl::InvalidArgumentError(absl::StrCat("the startup program makes ", v1::DType_Name(value_->dtype()), " ",
                                                   ShapeString(value_->dims()), ", the plan says ",
                                                   placed_.element_count(), " float32 elements"));
  }
  info_.dims.assign(value_->dims().begin(), value_->dims().end());
  if (desc != nullptr && desc->has_block_of()) {
    whole_dims_.assign(desc->block_of().whole_dims().begin(), desc->block_of().whole_dims().end());
  }
  if (whole_dims_.empty()) whole_dims_ = info_.dims;
  if (!placed_.sparse_gradient()) return absl::OkStatus();
  if (value_->rank() != 2) {
    return absl::InvalidArgumentError(absl::StrCat("gradient rows need a matrix, got ", ShapeString(value_->dims())));
  }
  info_.rows = value_->dim(0);
  info_.sparse_width = static_cast<int>(value_->dim(1));
  return absl::OkStatus();
}

absl::Status DenseBlock::InitUpdate(const Source& source, int optimize_block, const v1::OpDesc& update) {
  const v1::BlockDesc& optimize = source.main.blocks(optimize_block);
  MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(update_, Executor::Create(source.main, source.scope, {.block = optimize_block, .lanes = 1}));
  ASSIGN_OR_RETURN(cuts_, NormCutsOf(optimize));
  end_op_ = optimize.ops_size();
  for (const std::string& name : averaging_.SumVariables(OnlyVar(update.inputs(), "Grad"))) {
    Variable* found = update_->Find(0, name);
    if (found == nullptr) found = source.scope->Find(name);
    if (found == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("optimize block ", optimize_block, " has no variable ", name));
    }
    gradients_.push_back(found);
  }
  for (const v1::OpDesc& op : optimize.ops()) {
    if (op.type() != "delay_compensate") continue;
    read_ = update_->Find(0, OnlyVar(op.inputs(), "Read"));
    if (read_ == nullptr) {
      return absl::InvalidArgumentError("delay_compensate reads a variable that is not of the step");
    }
    read_values_ = std::make_unique<ReadValues>(averaging_.trainers());
    read_values_bytes_ += averaging_.trainers() * static_cast<int64_t>(value_->bytes());
  }
  return absl::OkStatus();
}

absl::Status DenseBlock::InitStates(Scope* scope, const v1::OpDesc& update) {
  // State: the inputs of the update that its operator declares as state.
  ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get(update.type()));
  for (const StateDef& state : def->state) {
    const std::string variable = OnlyVar(update.inputs(), state.slot);
    Variable* const var = scope->Find(variable);
    if (FindTensor(var) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the startup program gives its state ", state.slot, " (", variable, ") no value"));
    }
    // "fc_0.w.block1.moment1" is moment1.
    const std::string prefix = info_.name + ".";
    const std::string short_name =
        variable.compare(0, prefix.size(), prefix) == 0 ? variable.substr(prefix.size()) : state.slot;
    const bool scalar = state.like == StateDef::kScalar || (state.like == StateDef::kCount && info_.sparse_width == 0);
    states_.push_back({short_name, var, scalar});
  }
  return absl::OkStatus();
}

absl::Status DenseBlock::Apply(const UpdateTask& task) {
  // Its ops are recorded, too.
  const ProfiledStep step(task.step);
  ProfileSpan span(task.step, ProfileKind::kUpdate, kBlock);
  if (ProfileEvent* const event = span.event()) event->detail = profiled_as_;
  const std::string what = absl::StrCat("block ", info_.name);
  MutexLock lock(&mu_);
  if (update_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": has no optimizer, yet a gradient came"));
  }
  if (next_op_ == 0) {
    const absl::StatusOr<bool> begun = Begin(task);
    if (!begun.ok()) return Prefixed(what, begun.status());
    if (!*begun) return absl::OkStatus();
  }
  absl::Status status = RunOps(task);
  if (task.round < 0 && status.ok()) status = CheckValues();
  if (task.round < 0 && !changes_.all) RecordRows();
  if (!task.keep || !status.ok()) next_op_ = 0;
  return Prefixed(what, status);
}

absl::StatusOr<bool> DenseBlock::Begin(const UpdateTask& task) {
  ASSIGN_OR_RETURN(const bool present, averaging_.SumBlock(info_, task.trainers, gradients_));
  // A block of rows that gets none in this step has its part of the parameter's norm all the same.
  if (!present && cuts_.empty()) return false;
  if (read_ == nullptr) return true;
  if (task.trainers.size() != 1) {
    return absl::FailedPreconditionError("delay_compensate takes the gradient of one trainer, sync: false");
  }
  *read_ = read_values_->Of(task.trainers[0].trainer, *value_);
  return true;
}

void DenseBlock::RecordRows() {
  for (const Variable* const sum : gradients_) {
    if (const SelectedRows* const rows = std::get_if<SelectedRows>(sum); rows != nullptr) {
      changes_.rows.insert(changes_.rows.end(), rows->ids.begin(), rows->ids.end());
    } else {
      changes_.all = true;
    }
  }
}

absl::Status DenseBlock::CheckValues() const {
  const float* const values = value_->data<float>();
  const auto check = [&](int64_t begin, int64_t count) -> absl::Status {
    const int64_t bad = FirstNotFinite(values + begin, count);
    if (bad == count) return absl::OkStatus();
    return NotFinite(absl::StrCat("element ", placed_.element_begin() + begin + bad), values[begin + bad]);
  };
  if (info_.sparse_width == 0) return check(0, info_.count);
  // Only rows with gradients change.
  for (const Variable* const sum : gradients_) {
    const SelectedRows* const rows = std::get_if<SelectedRows>(sum);
    if (rows == nullptr) return check(0, info_.count);
    for (const int64_t id : rows->ids) RETURN_IF_ERROR(check(id * info_.sparse_width, info_.sparse_width));
  }
  return absl::OkStatus();
}

absl::Status DenseBlock::RunOps(const UpdateTask& task) {
  StepContext context;
  context.step = task.step;
  context.seed = seed_;
  context.pool = pool_;
  context.samples = task.samples;
  context.trainers = averaging_.trainers();
  const int64_t no_examples = 0;
  const auto run_to = [&](int end) {
    mu_.AssertHeld();
    const int begin = next_op_;
    next_op_ = end;
    return update_->RunOps(context, absl::MakeConstSpan(&no_examples, 1), begin, end);
  };
  for (int c = 0; c < static_cast<int>(cuts_.size()); ++c) {
    const NormCut& cut = cuts_[static_cast<size_t>(c)];
    if (cut.begin < next_op_) continue;
    RETURN_IF_ERROR(run_to(cut.begin));
    RETURN_IF_ERROR(PassCut(task, cut, /*add_sums=*/c == task.round));
    if (c == task.round) return absl::OkStatus();
    next_op_ = cut.end;
  }
  return run_to(end_op_);
}

absl::Status DenseBlock::PassCut(const UpdateTask& task, const NormCut& cut, bool add_sums) {
  for (const NormCut::Norm& norm : cut.norms) {
    ASSIGN_OR_RETURN(const ExactSum part,
                     ExactSum::FromWords(std::get<Tensor>(*update_->Find(0, norm.part)).span<int64_t>()));
    if (add_sums) {
      task.sums->Add(norm.name, part);
      continue;
    }
    const auto found = task.norms->find(norm.name);
    if (found == task.norms->end()) {
      return absl::InternalError(absl::StrCat("the norm of ", norm.name, " is missing"));
    }
    for (const std::string& out : norm.outs) {
      Variable* const var = update_->Find(0, out);
      if (!std::holds_alternative<Tensor>(*var)) *var = Tensor();
      std::get<Tensor>(*var).Resize(v1::FLOAT64, {1});
      std::get<Tensor>(*var).data<double>()[0] = found->second;
    }
  }
  return absl::OkStatus();
}

void DenseBlock::Copy(int64_t begin, int64_t count, float* out, int reader) {
  MutexLock lock(&mu_);
  std::memcpy(out, value_->data<float>() + begin, static_cast<size_t>(count) * sizeof(float));
  if (read_values_ != nullptr && reader >= 0) read_values_->Read(reader, *value_, begin, count);
}

void DenseBlock::Set(absl::Span<const float> values) {
  MutexLock lock(&mu_);
  CHECK_EQ(static_cast<int64_t>(values.size()), value_->size());
  changes_.all = true;
  std::copy(values.begin(), values.end(), value_->data<float>());
}

void DenseBlock::Add(absl::Span<const float> changes) {
  MutexLock lock(&mu_);
  CHECK_EQ(static_cast<int64_t>(changes.size()), value_->size());
  changes_.all = true;
  float* const to = value_->data<float>();
  for (size_t i = 0; i < changes.size(); ++i) to[i] += changes[i];
}

void DenseBlock::CopyRows(absl::Span<const int64_t> ids, float* out) {
  const size_t width = static_cast<size_t>(info_.sparse_width);
  MutexLock lock(&mu_);
  const float* const values = value_->data<float>();
  for (const int64_t id : ids) {
    CHECK(id >= 0 && id < info_.rows) << info_.name << ": row " << id;
    std::memcpy(out, values + static_cast<size_t>(id) * width, width * sizeof(float));
    out += width;
  }
}

void DenseBlock::BeginChanges(bool record) {
  if (info_.sparse_width == 0) return;
  MutexLock lock(&mu_);
  changes_.all = !record;
  changes_.rows.clear();
}

void DenseBlock::PullChanged(absl::Span<const int64_t> ids, std::vector<uint32_t>* positions,
                             std::vector<float>* rows) {
  positions->clear();
  std::vector<int64_t> changed;
  {
    MutexLock lock(&mu_);
    std::sort(changes_.rows.begin(), changes_.rows.end());
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!changes_.all && !std::binary_search(changes_.rows.begin(), changes_.rows.end(), ids[i])) continue;
      positions->push_back(static_cast<uint32_t>(i));
      changed.push_back(ids[i]);
    }
  }
  rows->resize(changed.size() * static_cast<size_t>(info_.sparse_width));
  CopyRows(changed, rows->data());
}

std::vector<DenseBlock::Piece> DenseBlock::Pieces() {
  const DensePiece values{
      .variable = placed_.parameter(), .whole_dims = whole_dims_, .element_begin = placed_.element_begin()};
  std::vector<Piece> pieces = {{values, value_->span<float>()}};
  for (const State& state : states_) {
    Piece piece{values, Bits(state.var)};
    piece.place.state_name = state.name;
    piece.place.scalar = state.scalar;
    if (!state.scalar) {
      StatePlace place = PlaceState(placed_, whole_dims_, static_cast<int64_t>(piece.bits.size()));
      piece.place.whole_dims = std::move(place.whole_dims);
      piece.place.element_begin = place.element_begin;
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

int64_t DenseBlock::whole_count() const {
  int64_t count = 1;
  for (const int64_t dim : whole_dims_) count *= dim;
  return count;
}

void DenseBlock::Restore(absl::Span<float> piece, absl::Span<const float> from) {
  MutexLock lock(&mu_);
  next_op_ = 0;
  changes_.all = true;
  std::copy(from.begin(), from.end(), piece.begin());
}

}  // namespace weir
