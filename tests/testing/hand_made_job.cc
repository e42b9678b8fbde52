#include "tests/testing/hand_made_job.h"

#include <algorithm>
#include <list>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/lane_tree.h"
#include "framework/tensor/tensor.h"

namespace weir {

namespace {

constexpr int64_t kRows = 40, kColumns = 16, kBias = 5, kEmbeddings = 30, kEmbeddingWidth = 3;

v1::PlacedBlock Placed(const std::string& parameter, int block, bool cut, int server, int64_t begin,
                       std::vector<int64_t> dims) {
  v1::PlacedBlock placed;
  placed.set_name(cut ? absl::StrCat(parameter, ".block", block) : parameter);
  placed.set_parameter(parameter);
  placed.set_gradient(placed.name() + "@GRAD");
  placed.set_block(block);
  placed.set_server(server);
  placed.set_element_begin(begin);
  placed.set_element_count(ElementCount(dims));
  for (int64_t d : dims) placed.add_dims(d);
  return placed;
}

struct Updater {
  const char* type;
  std::vector<const char*> states;  // slots
  std::vector<const char*> names;
};
Updater UpdaterOf(const std::string& parameter) {
  if (parameter == "w") return {"adam", {"Moment1", "Moment2", "Step"}, {"moment1", "moment2", "step"}};
  if (parameter == "b") return {"momentum", {"Velocity"}, {"velocity"}};
  if (parameter == "u")
    return {"ftrl", {"SquaredAccumulator", "LinearAccumulator"}, {"squared_accumulator", "linear_accumulator"}};
  return {"adagrad", {"Moment"}, {"moment"}};
}

v1::OpDesc FillOp(const std::string& name, const std::vector<int64_t>& dims, double value) {
  return MakeOp("fill_constant", {}, {{"Out", {name}}},
                {AttrInts("shape", dims), AttrType("dtype", v1::FLOAT32), AttrF("value", value)});
}

v1::VarDesc* AddVar(v1::BlockDesc* block, const std::string& name, const std::vector<int64_t>& dims, bool persistable) {
  v1::VarDesc* const var = block->add_vars();
  var->set_name(name);
  for (int64_t d : dims) var->add_dims(d);
  var->set_persistable(persistable);
  return var;
}

std::vector<int64_t> WholeDims(const std::string& parameter) {
  if (parameter == "w") return {kRows, kColumns};
  if (parameter == "b") return {kBias};
  return {kEmbeddings, kEmbeddingWidth};
}

std::vector<int64_t> Dims(const v1::PlacedBlock& placed) { return {placed.dims().begin(), placed.dims().end()}; }

// State of every block and learning rate: declared in both programs, filled by the startup program.
void AddBlockVars(const v1::PlacedBlock& placed, v1::BlockDesc* block) {
  v1::VarDesc* const var = AddVar(block, placed.name(), Dims(placed), true);
  v1::BlockOf* const of = var->mutable_block_of();
  of->set_variable(placed.parameter());
  of->set_block(placed.block());
  of->set_element_begin(placed.element_begin());
  of->set_element_count(placed.element_count());
  for (int64_t d : WholeDims(placed.parameter())) of->add_whole_dims(d);
  for (const char* state : UpdaterOf(placed.parameter()).names) {
    const bool count = std::string(state) == "step";
    AddVar(block, absl::StrCat(placed.name(), ".", state), count ? std::vector<int64_t>{1} : Dims(placed), true);
  }
}

v1::OpDesc UpdateOp(const std::string& parameter, const std::string& param, const std::string& rate) {
  const Updater updater = UpdaterOf(parameter);
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs = {
      {"Param", {param}}, {"Grad", {param + "@GRAD"}}, {"LearningRate", {rate}}};
  std::vector<std::pair<std::string, std::vector<std::string>>> outputs = {{"ParamOut", {param}}};
  for (size_t i = 0; i < updater.states.size(); ++i) {
    const std::string state = absl::StrCat(param, ".", updater.names[i]);
    inputs.push_back({updater.states[i], {state}});
    outputs.push_back({absl::StrCat(updater.states[i], "Out"), {state}});
  }
  v1::OpDesc op = MakeOp(updater.type, inputs, outputs);
  op.set_role(v1::OPTIMIZE);
  return op;
}

float Noise(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  const uint64_t h = MixId(a + MixId(b + MixId(c + MixId(d))));
  // Many bits, so that the order of addition shows.
  return (static_cast<float>(h >> 40) / 16777216.0f - 0.5f) * (h % 7 == 0 ? 100.0f : 1.0f);
}

}  // namespace

v1::Plan HandMadeJob::Plan() const {
  v1::Plan plan;
  plan.set_job("hand_made");
  plan.set_servers(servers);
  plan.set_trainers(trainers);
  plan.set_lanes(lanes);
  plan.set_sync(sync);
  plan.set_batch_size(64);
  plan.set_async_eager(eager);
  plan.set_average_by_trainers(average_by_trainers);
  plan.set_seed(7);
  plan.mutable_wire()->set_pull(pull);
  plan.mutable_wire()->set_push(push);
  int64_t row = 0;
  for (int s = 0; s < servers; ++s) {
    const int64_t rows = kRows / servers + (s < kRows % servers ? 1 : 0);
    *plan.add_blocks() = Placed("w", s, servers > 1, s, row * kColumns, {rows, kColumns});
    row += rows;
  }
  *plan.add_blocks() = Placed("b", 0, false, bias_server < 0 ? servers - 1 : bias_server, 0, {kBias});
  v1::PlacedBlock e = Placed("e", 0, false, 0, 0, {kEmbeddings, kEmbeddingWidth});
  e.set_sparse_gradient(true);
  *plan.add_blocks() = e;
  for (const char* name : {"t", "u"}) {
    v1::PlacedTable* const table = plan.add_tables();
    table->set_name(name);
    table->set_width(std::string(name) == "t" ? 4 : 1);
    table->set_logical_shards(64);
    table->set_capacity(table_capacity);
    table->set_shows_and_clicks(shows && table->name() == "t");
    *table->mutable_wire() = plan.wire();
  }
  return plan;
}

v1::ProgramDesc HandMadeJob::Main(int server) const {
  v1::ProgramDesc program;
  *program.mutable_plan() = Plan();
  program.set_seed(7);
  program.add_blocks()->set_index(0);
  program.mutable_blocks(0)->set_parent(-1);
  AddVar(program.mutable_blocks(0), "learning_rate", {1}, true);
  std::vector<int32_t> optimize;
  const auto add_block = [&](const std::string& parameter, const std::string& param, bool table) {
    v1::BlockDesc* const block = program.add_blocks();
    block->set_index(program.blocks_size() - 1);
    block->set_parent(0);
    optimize.push_back(block->index());
    const std::string grad = param + "@GRAD";
    if (average_by_trainers && !table) {
      std::vector<std::string> parts;
      for (int t = 0; t < trainers; ++t) parts.push_back(absl::StrCat(grad, ".trainer_", t));
      *block->add_ops() = MakeOp("sum", {{"X", parts}}, {{"Out", {grad}}});
      *block->add_ops() = MakeOp("scale", {{"X", {grad}}}, {{"Out", {grad}}}, {AttrF("scale", 1.0 / trainers)});
    } else {
      *block->add_ops() = MakeOp("merge", {{"X", {grad}}}, {{"Out", {grad}}});
    }
    if (lambda >= 0 && !table && parameter != "e") {
      v1::VarDesc read = *std::find_if(program.blocks(0).vars().begin(), program.blocks(0).vars().end(),
                                       [&](const v1::VarDesc& var) { return var.name() == grad; });
      read.set_name(param + ".read");
      *program.mutable_blocks(0)->add_vars() = read;
      *block->add_ops() = MakeOp("delay_compensate", {{"Grad", {grad}}, {"Param", {param}}, {"Read", {read.name()}}},
                                 {{"Out", {grad}}}, {AttrF("lambda", lambda)});
    }
    *block->add_ops() = UpdateOp(parameter, param, "learning_rate");
  };
  const v1::Plan plan = Plan();
  for (const v1::PlacedBlock& placed : plan.blocks()) {
    if (placed.server() != server) continue;
    AddBlockVars(placed, program.mutable_blocks(0));
    const auto add_gradient = [&](const std::string& name) {
      v1::VarDesc* const grad = AddVar(program.mutable_blocks(0), name, Dims(placed), false);
      if (placed.sparse_gradient()) grad->set_kind(v1::SELECTED_ROWS);
    };
    add_gradient(placed.gradient());
    for (int t = 0; average_by_trainers && t < trainers; ++t)
      add_gradient(absl::StrCat(placed.gradient(), ".trainer_", t));
    add_block(placed.parameter(), placed.name(), false);
  }
  for (const v1::PlacedTable& table : plan.tables()) {
    v1::VarDesc* const var = AddVar(program.mutable_blocks(0), table.name(), {-1, table.width()}, true);
    var->set_kind(v1::TABLE);
    var->set_logical_shards(table.logical_shards());
    var->set_capacity(table.capacity());
    var->mutable_initializer()->mutable_uniform()->set_min(-0.5);
    var->mutable_initializer()->mutable_uniform()->set_max(0.5);
    v1::VarDesc* const grad = AddVar(program.mutable_blocks(0), table.name() + "@GRAD", {-1, table.width()}, false);
    grad->set_kind(v1::SELECTED_ROWS);
    add_block(table.name(), table.name(), true);
  }
  *program.mutable_blocks(0)->add_ops() =
      MakeOp("listen_and_serv", {}, {},
             {AttrI("server_id", server), AttrI("trainers", trainers), AttrI("lanes", lanes), AttrB("sync", sync),
              AttrS("average", average_by_trainers ? "trainers" : "samples"), AttrBlocks("optimize_blocks", optimize)});
  if (staleness >= 0) MutableMode(&program)->set_staleness(staleness);
  if (async_tables) MutableMode(&program)->set_async_tables(true);
  return program;
}

v1::ProgramDesc HandMadeJob::Startup(int server) const {
  v1::ProgramDesc program;
  program.set_seed(7);
  v1::BlockDesc* const block = program.add_blocks();
  block->set_index(0);
  block->set_parent(-1);
  AddVar(block, "learning_rate", {1}, true);
  *block->add_ops() = FillOp("learning_rate", {1}, 0.05);
  const v1::Plan plan = Plan();
  for (const v1::PlacedBlock& placed : plan.blocks()) {
    if (placed.server() != server) continue;
    AddBlockVars(placed, block);
    *block->add_ops() = MakeOp(
        "uniform_random", {}, {{"Out", {placed.name()}}},
        {AttrInts("shape", Dims(placed)), AttrF("min", -1), AttrF("max", 1), AttrS("variable", placed.parameter()),
         AttrI("seed", 7), AttrI("element_begin", placed.element_begin())});
    for (const char* state : UpdaterOf(placed.parameter()).names) {
      const bool count = std::string(state) == "step";
      *block->add_ops() =
          FillOp(absl::StrCat(placed.name(), ".", state), count ? std::vector<int64_t>{1} : Dims(placed), 0.0);
    }
  }
  return program;
}

std::string HandMadeJob::PlanText() const {
  return absl::StrCat("distribute.servers: ", servers, "\ndistribute.trainers: ", trainers, "\ntrain.lanes: ", lanes,
                      "\n");
}

absl::Status ReceiveHandMade(const HandMadeJob& job, ParamChannel* channel, HandMadeParams* params) {
  const v1::Plan plan = job.Plan();
  std::vector<Tensor> tensors(static_cast<size_t>(plan.blocks_size()));
  for (int i = 0; i < plan.blocks_size(); ++i) {
    const v1::PlacedBlock& placed = plan.blocks(i);
    tensors[static_cast<size_t>(i)].Resize(v1::FLOAT32, Dims(placed));
    RETURN_IF_ERROR(
        channel->Receive({placed.name(), placed.server(), placed.element_count()}, &tensors[static_cast<size_t>(i)]));
  }
  RETURN_IF_ERROR(channel->FinishReceives(nullptr));
  params->w.assign(kRows * kColumns, 0);
  params->b.assign(kBias, 0);
  params->e.assign(kEmbeddings * kEmbeddingWidth, 0);
  for (int i = 0; i < plan.blocks_size(); ++i) {
    const v1::PlacedBlock& placed = plan.blocks(i);
    std::vector<float>& to = placed.parameter() == "w" ? params->w : placed.parameter() == "b" ? params->b : params->e;
    const auto from = tensors[static_cast<size_t>(i)].span<float>();
    std::copy(from.begin(), from.end(), to.begin() + placed.element_begin());
  }
  return absl::OkStatus();
}

absl::StatusOr<StepOutcome> RunHandMadeStep(const HandMadeJob& job, int trainer, const HandMadeStep& step,
                                            ParamChannel* channel, HandMadeParams* params) {
  const v1::Plan plan = job.Plan();
  const LaneRange owned = LanesOfTrainer(job.lanes, job.trainers, trainer);
  const uint64_t s = static_cast<uint64_t>(step.step);
  RETURN_IF_ERROR(channel->BeginStep(step.step, /*read_only=*/false));

  // Ids of each lane; a few are everybody's, extremes among them.
  std::vector<std::vector<int64_t>> lane_ids;
  std::vector<int64_t> step_ids;
  std::map<int64_t, int32_t> place;
  std::vector<int64_t> lane_samples;
  int64_t samples = 0;
  for (int l = owned.begin; l < owned.begin + owned.count; ++l) {
    const uint64_t lane = static_cast<uint64_t>(l);
    const bool none = step.empty || MixId(s * 64 + lane) % 5 == 0;
    lane_samples.push_back(none ? 0 : 4 + l % 3);
    samples += lane_samples.back();
    std::set<int64_t> ids;
    if (!none) {
      for (uint64_t i = 0; i < 40; ++i) {
        const uint64_t h = MixId(s * 1000 + lane * 50 + i + 99);
        ids.insert(i % 4 == 0 ? static_cast<int64_t>(h) : static_cast<int64_t>(h % 60) - 30);
      }
      ids.insert(INT64_MIN);
      if (l % 2 == 0) ids.insert(INT64_MAX);
    }
    lane_ids.emplace_back(ids.begin(), ids.end());
    for (int64_t id : ids) {
      if (place.emplace(id, static_cast<int32_t>(step_ids.size())).second) step_ids.push_back(id);
    }
  }
  std::vector<float> t_rows(step_ids.size() * 4), u_rows(step_ids.size());
  const std::vector<ParamChannel::TableRows> pulls = {{"t", 4, &step_ids, t_rows.data()},
                                                      {"u", 1, &step_ids, u_rows.data()}};
  RETURN_IF_ERROR(channel->PullRows(pulls));

  // Gradients depend on what was pulled and received, so wrong values spread. They live until FinishSends has returned.
  std::list<std::vector<Tensor>> kept;
  std::list<std::vector<SelectedRows>> kept_rows;
  const size_t lanes = static_cast<size_t>(owned.count);
  for (const v1::PlacedBlock& placed : plan.blocks()) {
    const std::vector<float>& whole = placed.parameter() == "w"   ? params->w
                                      : placed.parameter() == "b" ? params->b
                                                                  : params->e;
    if (placed.sparse_gradient()) {
      std::vector<SelectedRows>& grads = kept_rows.emplace_back(lanes);
      std::vector<ParamChannel::LaneRows> sent;
      for (size_t i = 0; i < lanes; ++i) {
        if (lane_samples[i] == 0) continue;
        const uint64_t lane = static_cast<uint64_t>(owned.begin) + i;
        std::set<int64_t> rows;
        for (uint64_t k = 0; k < 6; ++k) rows.insert(static_cast<int64_t>(MixId(s * 77 + lane * 9 + k) % kEmbeddings));
        grads[i].ids.assign(rows.begin(), rows.end());
        grads[i].merged = grads[i].present = true;
        grads[i].values.Resize(v1::FLOAT32, {static_cast<int64_t>(rows.size()), kEmbeddingWidth});
        for (int64_t k = 0; k < grads[i].values.size(); ++k) {
          const int64_t row = grads[i].ids[static_cast<size_t>(k / kEmbeddingWidth)];
          grads[i].values.data<float>()[k] =
              Noise(s, lane, 5, static_cast<uint64_t>(k)) + 0.1f * whole[static_cast<size_t>(row * kEmbeddingWidth)];
        }
        sent.push_back({static_cast<int>(lane), &grads[i]});
      }
      if (!sent.empty()) {
        RETURN_IF_ERROR(
            channel->SendRows({placed.name(), placed.server(), placed.element_count()}, kEmbeddingWidth, sent));
      }
      continue;
    }
    std::vector<Tensor>& grads = kept.emplace_back(lanes);
    std::vector<ParamChannel::LaneTensor> sent;
    for (size_t i = 0; i < lanes; ++i) {
      const uint64_t lane = static_cast<uint64_t>(owned.begin) + i;
      // Absent here and there, a function of lane and step.
      if (lane_samples[i] == 0 || (placed.parameter() == "b" && (lane + s) % 3 == 0)) continue;
      grads[i].Resize(v1::FLOAT32, Dims(placed));
      for (int64_t k = 0; k < grads[i].size(); ++k) {
        const uint64_t element = static_cast<uint64_t>(placed.element_begin() + k);
        grads[i].data<float>()[k] =
            Noise(s, lane, placed.parameter() == "w" ? 1 : 2, element) + 0.1f * whole[static_cast<size_t>(element)];
      }
      sent.push_back({static_cast<int>(lane), &grads[i]});
    }
    if (!sent.empty()) {
      RETURN_IF_ERROR(channel->SendDense({placed.name(), placed.server(), placed.element_count()}, sent));
    }
  }
  for (const auto& [name, width] : std::vector<std::pair<std::string, int>>{{"t", 4}, {"u", 1}}) {
    const std::vector<float>& rows = name == "t" ? t_rows : u_rows;
    std::vector<SelectedRows>& grads = kept_rows.emplace_back(lanes);
    std::vector<ParamChannel::LaneRows> sent;
    for (size_t i = 0; i < lanes; ++i) {
      if (lane_samples[i] == 0) continue;
      const uint64_t lane = static_cast<uint64_t>(owned.begin) + i;
      grads[i].ids = lane_ids[i];
      grads[i].merged = grads[i].present = true;
      for (int64_t id : lane_ids[i]) grads[i].step_rows.push_back(place[id]);
      // One of the tables comes without places, as from a program that did not prefetch it.
      const std::vector<int32_t> places = grads[i].step_rows;
      if (name == "u" && s % 2 == 1) grads[i].step_rows.clear();
      grads[i].values.Resize(v1::FLOAT32, {static_cast<int64_t>(lane_ids[i].size()), width});
      for (int64_t k = 0; k < grads[i].values.size(); ++k) {
        const size_t row = static_cast<size_t>(places[static_cast<size_t>(k / width)]);
        grads[i].values.data<float>()[k] =
            Noise(s, lane, 3, static_cast<uint64_t>(lane_ids[i][static_cast<size_t>(k / width)])) +
            rows[row * static_cast<size_t>(width)];
      }
      sent.push_back({static_cast<int>(lane), &grads[i]});
    }
    if (!sent.empty()) RETURN_IF_ERROR(channel->SendRows({name, -1, 0}, width, sent));
  }
  RETURN_IF_ERROR(channel->FinishSends(samples, step.skip ? v1::SKIP : v1::APPLY));

  std::vector<Tensor> tensors(static_cast<size_t>(plan.blocks_size()));
  for (int i = 0; i < plan.blocks_size(); ++i) {
    const v1::PlacedBlock& placed = plan.blocks(i);
    tensors[static_cast<size_t>(i)].Resize(v1::FLOAT32, Dims(placed));
    RETURN_IF_ERROR(
        channel->Receive({placed.name(), placed.server(), placed.element_count()}, &tensors[static_cast<size_t>(i)]));
  }
  StepOutcome outcome;
  RETURN_IF_ERROR(channel->FinishReceives(&outcome));
  for (int i = 0; i < plan.blocks_size(); ++i) {
    const v1::PlacedBlock& placed = plan.blocks(i);
    std::vector<float>& to = placed.parameter() == "w" ? params->w : placed.parameter() == "b" ? params->b : params->e;
    const auto from = tensors[static_cast<size_t>(i)].span<float>();
    std::copy(from.begin(), from.end(), to.begin() + placed.element_begin());
  }
  return outcome;
}

}  // namespace weir
