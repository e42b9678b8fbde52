#include "tests/pserver/replica/replica_job.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/placement.h"
#include "framework/graph/training_mode.h"
#include "framework/tensor/tensor.h"
#include "glog/logging.h"
#include "transpiler/passes/share_out.h"

namespace weir {

namespace {

using Parameter = ReplicaJob::Parameter;
using Optimizer = ReplicaJob::Optimizer;
using Slots = std::vector<std::pair<std::string, std::vector<std::string>>>;

struct State {
  const char* slot;
  const char* name;
  // One for the whole parameter, or for each row.
  bool counts = false;
};
struct Update {
  const char* op;
  std::vector<State> states;
  std::vector<v1::OpAttr> attrs;
};

Update UpdateOf(Optimizer optimizer) {
  const std::vector<State> moments = {{"Moment1", "moment1"}, {"Moment2", "moment2"}, {"Step", "step", true}};
  switch (optimizer) {
    case Optimizer::kSgd:
      return {"sgd", {}, {}};
    case Optimizer::kMomentum:
      return {"momentum", {{"Velocity", "velocity"}}, {AttrF("mu", 0.9), AttrB("use_nesterov", false)}};
    case Optimizer::kAdagrad:
      return {"adagrad", {{"Moment", "moment"}}, {AttrF("epsilon", 1e-6), AttrF("initial_accumulator", 0)}};
    case Optimizer::kAdam:
      return {"adam", moments, {AttrF("beta1", 0.9), AttrF("beta2", 0.999), AttrF("epsilon", 1e-8)}};
    case Optimizer::kLamb:
      return {"lamb",
              moments,
              {AttrF("beta1", 0.9), AttrF("beta2", 0.999), AttrF("epsilon", 1e-6), AttrF("weight_decay", 0.01)}};
    case Optimizer::kLarsMomentum:
      return {"lars_momentum",
              {{"Velocity", "velocity"}},
              {AttrF("mu", 0.9), AttrF("lars_coeff", 0.001), AttrF("lars_weight_decay", 5e-4), AttrF("epsilon", 0)}};
  }
  LOG(FATAL) << static_cast<int>(optimizer);
}

// A block of a parameter.
struct Piece {
  const Parameter* of;
  v1::PlacedBlock placed;
  std::string suffix;  // of its gradient
};

v1::VarDesc MakeVar(const std::string& name, const std::vector<int64_t>& dims, v1::DType dtype = v1::FLOAT32) {
  v1::VarDesc var;
  var.set_name(name);
  var.set_dtype(dtype);
  for (const int64_t d : dims) var.add_dims(d);
  return var;
}

std::vector<int64_t> DimsOf(const v1::PlacedBlock& placed) { return {placed.dims().begin(), placed.dims().end()}; }

v1::OpDesc WithRole(v1::OpDesc op, v1::OpRole role, const std::string& parameter, const std::string& gradient) {
  op.set_role(role);
  v1::ParamGrad* const pair = op.add_param_grads();
  pair->set_param(parameter);
  pair->set_grad(gradient);
  return op;
}

class ProgramsMaker {
 public:
  explicit ProgramsMaker(const ReplicaJob& job) : job_(job), update_(UpdateOf(job.optimizer)) {
    for (auto [program, name] : {std::pair(&made_.main, "main"), std::pair(&made_.startup, "startup")}) {
      program->set_name(absl::StrCat(job.name, ".trainer.", name));
      program->set_seed(job.seed);
      AddBlock(program, -1);
    }
    AddBlock(&made_.startup, 0);
    if (job.sharded) mode_.set_sharded(true);
    if (job.any_order) mode_.set_any_order(true);
    if (job.adasum) mode_.set_adasum(true);
    if (job.compression != v1::DTYPE_UNSET) mode_.set_compression(job.compression);
    if (job.local_steps > 0) mode_.set_local_steps(job.local_steps);
  }

  ReplicaPrograms Make() {
    Cut();
    Keep(MakeVar("learning_rate", {1}), job_.learning_rate);
    for (const Piece& piece : pieces_) AddUpdate(piece);
    if (job_.schedule.has_type()) AddSchedule();
    *MutableMode(&made_.main)->mutable_all_reduce() = mode_;
    for (const Parameter& parameter : job_.parameters) {
      for (const Piece& piece : pieces_) {
        if (piece.of == &parameter) AddSend(piece);
      }
    }
    return std::move(made_);
  }

 private:
  static v1::BlockDesc* AddBlock(v1::ProgramDesc* program, int parent) {
    v1::BlockDesc* const block = program->add_blocks();
    block->set_index(program->blocks_size() - 1);
    block->set_parent(parent);
    return block;
  }
  void Declare(v1::VarDesc var) { *made_.main.mutable_blocks(0)->add_vars() = std::move(var); }
  // Declares a variable that lasts, and makes its value.
  void Keep(v1::VarDesc var, v1::OpDesc make) {
    var.set_persistable(true);
    make.set_role(v1::INIT);
    *made_.startup.mutable_blocks(0)->add_vars() = var;
    *made_.startup.mutable_blocks(1)->add_ops() = std::move(make);
    Declare(std::move(var));
  }
  void Keep(const v1::VarDesc& var, double value) {
    const std::vector<int64_t> dims(var.dims().begin(), var.dims().end());
    Keep(var, MakeOp("fill_constant", {}, {{"Out", {var.name()}}},
                     {AttrInts("shape", dims), AttrType("dtype", var.dtype()), AttrF("value", value)}));
  }

  // Makes the plan, and the pieces of all parameters.
  void Cut();
  // Returns the variable for a piece of `whole`, which has the shape of the parameter, or one element for each row.
  static v1::VarDesc PieceVar(const Piece& piece, const std::string& name, const std::string& whole,
                              bool by_row = false);
  void AddValues(const Piece& piece);
  void AddUpdate(const Piece& piece);
  void AddOptimizer(const Piece& piece, v1::BlockDesc* block);
  // Adds the norm of a whole variable, of which the piece has `squares`.
  void AddNorm(const Piece& piece, v1::BlockDesc* block, const std::string& squares, const std::string& norm,
               const std::string& name, bool with_tables = false);
  void AddSquares(const Piece& piece, v1::BlockDesc* block, const std::string& of, const std::string& squares);
  void AddOp(const Piece& piece, v1::BlockDesc* block, v1::OpDesc op) {
    *block->add_ops() = WithRole(std::move(op), v1::OPTIMIZE, piece.placed.name(), GradientOf(piece));
  }
  void AddSchedule();
  void AddSend(const Piece& piece);

  static std::string GradientOf(const Piece& piece) { return piece.placed.gradient() + piece.suffix; }
  static int64_t RowElements(const Piece& piece) { return piece.placed.element_count() / piece.placed.dims(0); }

  const ReplicaJob& job_;
  const Update update_;
  ReplicaPrograms made_;
  v1::AllReduceMode mode_;
  std::vector<Piece> pieces_;  // in the order of the plan
  bool has_average_rate_ = false;
};

void ProgramsMaker::Cut() {
  v1::Plan* const plan = made_.main.mutable_plan();
  plan->set_scheme_version(1);
  plan->set_job(job_.name);
  plan->set_servers(1);
  plan->set_trainers(job_.trainers);
  plan->set_lanes(job_.lanes);
  plan->set_sync(true);
  plan->set_batch_size(job_.batch_size);
  plan->set_average_by_trainers(false);
  plan->set_async_eager(false);
  plan->set_seed(job_.seed);
  plan->set_merge_hosts(v1::Plan::AUTO);
  std::vector<const Parameter*> parameters;
  for (const Parameter& parameter : job_.parameters) parameters.push_back(&parameter);
  std::sort(parameters.begin(), parameters.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  std::vector<int64_t> state_bytes;
  for (const Parameter* const parameter : parameters) {
    const std::vector<int64_t> counts = PieceElements(parameter->dims, job_.sharded ? job_.trainers : 1);
    int64_t begin = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const std::string suffix = counts.size() == 1 ? "" : absl::StrCat(".block", i);
      v1::PlacedBlock* const placed = plan->add_blocks();
      placed->set_name(parameter->name + suffix);
      placed->set_parameter(parameter->name);
      placed->set_gradient(GradName(parameter->name));
      placed->set_block(static_cast<int32_t>(i));
      placed->set_server(kEveryTrainer);
      placed->set_element_begin(begin);
      placed->set_element_count(counts[i]);
      for (const int64_t d : parameter->dims) placed->add_dims(d);
      placed->set_dims(0, parameter->dims[0] * counts[i] / ElementCount(parameter->dims));
      placed->set_sparse_gradient(parameter->rows);
      begin += counts[i];
      pieces_.push_back({parameter, {}, suffix});
      int64_t state = 0;
      for (const State& each : update_.states) {
        state += !each.counts ? counts[i] : parameter->rows ? placed->dims(0) : 1;
      }
      state_bytes.push_back(parameter->average ? 0 : state * static_cast<int64_t>(sizeof(float)));
    }
  }
  if (job_.sharded) ShareOut(state_bytes, plan);
  for (size_t i = 0; i < pieces_.size(); ++i) pieces_[i].placed = plan->blocks(static_cast<int>(i));
}

v1::VarDesc ProgramsMaker::PieceVar(const Piece& piece, const std::string& name, const std::string& whole,
                                    bool by_row) {
  const int64_t elements = by_row ? RowElements(piece) : 1;  // of the parameter, for one of the variable
  v1::VarDesc var = MakeVar(name, DimsOf(piece.placed));
  if (by_row) var.mutable_dims()->Truncate(1);
  if (piece.suffix.empty()) return var;
  v1::BlockOf* const of = var.mutable_block_of();
  of->set_variable(whole);
  of->set_block(piece.placed.block());
  of->set_element_begin(piece.placed.element_begin() / elements);
  of->set_element_count(piece.placed.element_count() / elements);
  for (const int64_t d : piece.of->dims) of->add_whole_dims(d);
  if (by_row) of->mutable_whole_dims()->Truncate(1);
  return var;
}

void ProgramsMaker::AddValues(const Piece& piece) {
  const v1::PlacedBlock& placed = piece.placed;
  v1::OpDesc make =
      MakeOp(piece.of->initial.type(), {}, {{"Out", {placed.name()}}}, {AttrInts("shape", DimsOf(placed))});
  make.mutable_attrs()->MergeFrom(piece.of->initial.attrs());
  if (make.type() != "fill_constant") {
    *make.add_attrs() = AttrS("variable", placed.parameter());
    *make.add_attrs() = AttrI("seed", static_cast<int64_t>(job_.seed));
    *make.add_attrs() = AttrI("element_begin", placed.element_begin());
  }
  Keep(PieceVar(piece, placed.name(), placed.parameter()), std::move(make));
  v1::VarDesc gradient = PieceVar(piece, GradientOf(piece), placed.gradient());
  if (piece.of->rows) gradient.set_kind(v1::SELECTED_ROWS);
  Declare(std::move(gradient));
}

void ProgramsMaker::AddSquares(const Piece& piece, v1::BlockDesc* block, const std::string& of,
                               const std::string& squares) {
  constexpr int64_t kExactSumWords = 21;
  Declare(MakeVar(squares, {kExactSumWords}, v1::INT64));
  AddOp(piece, block, MakeOp("sum_of_squares", {{"X", {of}}}, {{"Out", {squares}}}));
}

void ProgramsMaker::AddNorm(const Piece& piece, v1::BlockDesc* block, const std::string& squares,
                            const std::string& norm, const std::string& name, bool with_tables) {
  if (piece.placed.block() == 0) Declare(MakeVar(norm, {1}, v1::FLOAT64));
  std::vector<v1::OpAttr> attrs = {AttrS("name", name)};
  if (with_tables) attrs.push_back(AttrB("with_tables", true));
  AddOp(piece, block, MakeOp("whole_norm", {{"X", {squares}}}, {{"Out", {norm}}}, std::move(attrs)));
}

void ProgramsMaker::AddUpdate(const Piece& piece) {
  AddValues(piece);
  v1::BlockDesc* const block = AddBlock(&made_.main, 0);
  mode_.add_blocks(block->index());
  const std::string &parameter = piece.placed.name(), gradient = GradientOf(piece), &whole = piece.placed.gradient();
  if (!job_.adasum) AddOp(piece, block, MakeOp("merge", {{"X", {gradient}}}, {{"Out", {gradient}}}));
  if (piece.of->average) {
    constexpr char kRate[] = "running_average.x0.1";
    if (!has_average_rate_) Keep(MakeVar(kRate, {1}), 0.1F);
    has_average_rate_ = true;
    return AddOp(piece, block,
                 MakeOp("running_average", {{"Param", {parameter}}, {"Grad", {gradient}}, {"LearningRate", {kRate}}},
                        {{"ParamOut", {parameter}}}));
  }
  if (job_.clip != ReplicaJob::Clip::kNone) {
    const std::string squares = absl::StrCat(whole, ".clip_squares", piece.suffix), norm = whole + ".clip_norm";
    AddSquares(piece, block, gradient, squares);
    const bool global = job_.clip == ReplicaJob::Clip::kByGlobalNorm;
    AddNorm(piece, block, squares, norm, global ? "optimizer.clip" : whole + ".clip", job_.norm_with_tables);
    AddOp(piece, block,
          MakeOp("clip_by_norm", {{"X", {gradient}}, {"Norm", {norm}}}, {{"Out", {gradient}}},
                 {AttrF("max_norm", job_.max_norm)}));
  }
  if (job_.l2_decay > 0) {
    AddOp(piece, block,
          MakeOp("decay", {{"Param", {parameter}}, {"Grad", {gradient}}}, {{"Out", {gradient}}},
                 {AttrF("l1", 0), AttrF("l2", job_.l2_decay)}));
  }
  AddOptimizer(piece, block);
}

void ProgramsMaker::AddOptimizer(const Piece& piece, v1::BlockDesc* block) {
  const std::string &name = piece.placed.name(), &whole = piece.placed.parameter(), gradient = GradientOf(piece);
  Slots inputs = {{"Param", {name}}, {"Grad", {gradient}}}, outputs = {{"ParamOut", {name}}}, states;
  for (const State& each : update_.states) {
    const std::string state = absl::StrCat(name, ".", each.name);
    if (each.counts && !piece.of->rows) {
      Keep(MakeVar(state, {1}), 0);
    } else {
      Keep(PieceVar(piece, state, absl::StrCat(whole, ".", each.name), each.counts), 0);
    }
    states.push_back({each.slot, {state}});
    outputs.push_back({absl::StrCat(each.slot, "Out"), {state}});
  }
  Slots norms;
  if (job_.optimizer == Optimizer::kLamb || job_.optimizer == Optimizer::kLarsMomentum) {
    const bool lamb = job_.optimizer == Optimizer::kLamb;
    AddSquares(piece, block, name, absl::StrCat(whole, ".squares", piece.suffix));
    // What the parameter is compared with.
    const std::string other = lamb ? whole + ".direction" : piece.placed.gradient();
    if (lamb) {
      v1::VarDesc direction = PieceVar(piece, name + ".direction", other);
      if (piece.of->rows) direction.set_kind(v1::SELECTED_ROWS);
      Declare(std::move(direction));
      Slots of = inputs;
      of.insert(of.end(), states.begin(), states.end());
      AddOp(piece, block, MakeOp("lamb_direction", std::move(of), {{"Out", {name + ".direction"}}}, update_.attrs));
    }
    AddSquares(piece, block, lamb ? name + ".direction" : gradient, absl::StrCat(other, ".squares", piece.suffix));
    AddNorm(piece, block, absl::StrCat(whole, ".squares", piece.suffix), whole + ".norm", whole);
    AddNorm(piece, block, absl::StrCat(other, ".squares", piece.suffix), other + ".norm", other);
    norms = {{"ParamNorm", {whole + ".norm"}}, {lamb ? "DirectionNorm" : "GradNorm", {other + ".norm"}}};
  }
  inputs.push_back({"LearningRate", {"learning_rate"}});
  inputs.insert(inputs.end(), states.begin(), states.end());
  inputs.insert(inputs.end(), norms.begin(), norms.end());
  AddOp(piece, block, MakeOp(update_.op, std::move(inputs), std::move(outputs), update_.attrs));
}

void ProgramsMaker::AddSchedule() {
  v1::BlockDesc* const block = AddBlock(&made_.main, 0);
  mode_.set_lr_block(block->index());
  const std::string step = "learning_rate.step", schedule = "learning_rate.schedule";
  Keep(MakeVar(step, {1}, v1::INT64), 0);
  Declare(MakeVar(schedule, {1}, v1::FLOAT64));
  v1::OpDesc rate = MakeOp(job_.schedule.type(), {{"Step", {step}}}, {{"Out", {schedule}}});
  *rate.mutable_attrs() = job_.schedule.attrs();
  *block->add_ops() = std::move(rate);
  *block->add_ops() = MakeOp("lr_rate", {{"X", {schedule}}}, {{"Out", {"learning_rate"}}}, {AttrF("factor", 1)});
  *block->add_ops() = MakeOp("lr_count", {{"Step", {step}}}, {{"StepOut", {step}}});
  for (v1::OpDesc& op : *block->mutable_ops()) op.set_role(v1::LR_SCHEDULE);
}

void ProgramsMaker::AddSend(const Piece& piece) {
  std::vector<v1::OpAttr> attrs = {AttrS("block", piece.placed.name()),
                                   AttrI("width", piece.of->rows ? RowElements(piece) : 0)};
  if (job_.adasum) attrs.push_back(AttrB("mean", true));
  if (job_.local_steps == 0) attrs.push_back(AttrI("bucket", piece.of->bucket));
  *made_.main.mutable_blocks(0)->add_ops() = WithRole(MakeOp(job_.local_steps > 0 ? "local_gradient" : "all_reduce",
                                                             {{"X", {GradientOf(piece)}}}, {}, std::move(attrs)),
                                                      v1::RPC, piece.placed.parameter(), piece.placed.gradient());
}

Parameter Constant(const std::string& name, int64_t count, int64_t bucket, double value = 0) {
  return {.name = name,
          .dims = {count},
          .initial = MakeOp("fill_constant", {}, {}, {AttrType("dtype", v1::FLOAT32), AttrF("value", value)}),
          .bucket = bucket};
}
Parameter Average(const std::string& name, int64_t count, int64_t bucket, double value) {
  Parameter average = Constant(name, count, bucket, value);
  average.average = true;
  return average;
}
Parameter Matrix(const std::string& name, int64_t rows, int64_t columns, int64_t bucket) {
  return {
      .name = name,
      .dims = {rows, columns},
      .initial = MakeOp("xavier", {}, {}, {AttrB("uniform", true), AttrI("fan_in", rows), AttrI("fan_out", columns)}),
      .bucket = bucket};
}
Parameter Filters(const std::string& name, const std::vector<int64_t>& dims, int64_t bucket) {
  const int64_t inputs = ElementCount(dims) / dims[0];
  return {.name = name,
          .dims = dims,
          .initial = MakeOp("gaussian_random", {}, {},
                            {AttrF("mean", 0), AttrF("stddev", std::sqrt(2 / static_cast<double>(inputs)))}),
          .bucket = bucket};
}
Parameter Rows(const std::string& name, int64_t rows, int64_t width, int64_t bucket) {
  return {.name = name,
          .dims = {rows, width},
          .initial = MakeOp("uniform_random", {}, {}, {AttrF("min", -0.5), AttrF("max", 0.5)}),
          .bucket = bucket,
          .rows = true};
}

}  // namespace

ReplicaPrograms ReplicaJob::Programs() const { return ProgramsMaker(*this).Make(); }

v1::OpDesc ExponentialRate(double learning_rate, int64_t decay_steps, double decay_rate) {
  return MakeOp("lr_exponential", {}, {},
                {AttrF("learning_rate", learning_rate), AttrI("decay_steps", decay_steps),
                 AttrF("decay_rate", decay_rate), AttrB("staircase", false)});
}

ReplicaJob SlotReplica() {
  return {.name = "slots",
          .parameters = {Constant("out.b", 1, 0), Matrix("out.w", 16, 1, 1), Constant("deep.b", 16, 2),
                         Matrix("deep.w", 12, 16, 3)},
          .learning_rate = 0.005,
          .seed = 3};
}

ReplicaJob ClippedReplica() {
  return {.name = "clipped",
          .parameters = {Constant("out.b", 1, 0), Matrix("out.w", 8, 1, 1), Constant("deep.1.b", 8, 2),
                         Matrix("deep.1.w", 16, 8, 2), Constant("deep.0.b", 16, 3), Matrix("deep.0.w", 104, 16, 3)},
          .optimizer = Optimizer::kSgd,
          .learning_rate = 0.1,
          .clip = ReplicaJob::Clip::kByGlobalNorm,
          .max_norm = 1,
          .norm_with_tables = true};
}

std::vector<ReplicaJob> CutReplicas() {
  const ReplicaJob plain = {
      .name = "sharded",
      .parameters = {Constant("out.b", 1, 0), Matrix("out.w", 64, 1, 0), Constant("deep.1.b", 64, 1),
                     Matrix("deep.1.w", 96, 64, 2), Constant("deep.0.b", 96, 3), Matrix("deep.0.w", 33, 96, 4),
                     Rows("held", 700, 4, 4)},
      .batch_size = 64};
  std::vector<ReplicaJob> jobs(5, plain);
  jobs[0].schedule = ExponentialRate(0.01, 2, 0.5);
  jobs[0].clip = ReplicaJob::Clip::kByGlobalNorm;
  jobs[0].max_norm = 0.05;
  jobs[0].l2_decay = 0.01;
  jobs[1].optimizer = Optimizer::kLamb;
  jobs[2].optimizer = Optimizer::kLarsMomentum;
  jobs[2].learning_rate = 0.1;
  jobs[3].optimizer = Optimizer::kMomentum;
  jobs[3].learning_rate = 0.1;
  jobs[3].clip = ReplicaJob::Clip::kByNorm;
  jobs[3].max_norm = 0.05;
  jobs[4].optimizer = Optimizer::kSgd;
  jobs[4].learning_rate = 0.1;
  return jobs;
}

ReplicaJob WideReplica() {
  return {.name = "sharded",
          .parameters = {Constant("out.b", 1, 0), Matrix("out.w", 64, 1, 0), Constant("deep.1.b", 64, 1),
                         Matrix("deep.1.w", 2000, 64, 1), Constant("deep.0.b", 2000, 2),
                         Matrix("deep.0.w", 33, 2000, 3), Rows("held", 700, 4, 3)},
          .batch_size = 64};
}

ReplicaJob DeepFmReplica() {
  return {.name = "deepfm",
          .parameters = {Constant("out.b", 1, 0), Matrix("out.w", 400, 1, 0), Constant("deep.2.b", 400, 1),
                         Matrix("deep.2.w", 400, 400, 1), Constant("deep.1.b", 400, 2), Matrix("deep.1.w", 400, 400, 2),
                         Constant("deep.0.b", 400, 3), Matrix("deep.0.w", 429, 400, 3)},
          .learning_rate = 0.001,
          .schedule = ExponentialRate(0.001, 40, 0.7),
          .batch_size = 2048};
}

ReplicaJob CnnReplica() {
  ReplicaJob job = {
      .name = "fashion_mnist_cnn",
      .parameters = {Constant("logits.b", 10, 0), Matrix("logits.w", 128, 10, 0), Constant("hidden.0.b", 128, 1),
                     Matrix("hidden.0.w", 3136, 128, 1)},
      .learning_rate = 0.002,
      .schedule = MakeOp("lr_cosine", {}, {},
                         {AttrF("learning_rate", 0.002), AttrI("decay_steps", 1175), AttrF("end_learning_rate", 0)}),
      .batch_size = 256};
  const auto add = [&job](const std::string& norm, int64_t channels, int64_t bucket) {
    job.parameters.push_back(Average(norm + ".mean", channels, bucket, 0));
    job.parameters.push_back(Constant(norm + ".scale", channels, bucket, 1));
    job.parameters.push_back(Constant(norm + ".shift", channels, bucket, 0));
    job.parameters.push_back(Average(norm + ".variance", channels, bucket, 1));
  };
  add("norm2", 64, 2);
  job.parameters.push_back(Filters("conv2.w", {64, 32, 3, 3}, 3));
  add("norm1", 32, 4);
  job.parameters.push_back(Filters("conv1.w", {32, 1, 3, 3}, 4));
  return job;
}

}  // namespace weir
