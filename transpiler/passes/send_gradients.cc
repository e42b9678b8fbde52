// Pass: sends gradients to those who update the parameters and removes updates from the trainer's step.
//
// Before: a placed program with update ops. After: the last op that writes a parameter's gradient is followed by its
// send, or by the all_reduce of each of its blocks if every trainer holds the parameter (local_gradient with
// local_sgd), after split_byref (dense) or split_selected_rows (rows) if it is cut; update ops are gone; send_barrier
// ends the step. Errors: a gradient that no op writes, an unsuitable lifecycle.click variable, backward seeds that
// loss_scaling cannot scale. Returns false if there is a send_barrier.
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/def_use.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/placement.h"
#include "framework/graph/running_averages.h"
#include "framework/graph/training_mode.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/pass.h"
#include "transpiler/passes/slice_variables.h"

namespace weir {
namespace {

// Way in which the gradient of one parameter is sent.
struct Sending {
  // Type of the op for a parameter that every trainer holds.
  std::string own;
  bool drops_bad_rows = false;
  bool measured = false;
  bool adasum = false;
};

// Returns the ops that send the gradient of one parameter: the split, if there is one, then the send, or the all_reduce
// of each block.
std::vector<v1::OpDesc> SendOps(const VarIndex& vars, const std::vector<const v1::PlacedBlock*>& placed,
                                const v1::ParamGrad& pair, const Sending& sending) {
  const v1::VarDesc* grad = vars.Find(pair.grad());
  CHECK(grad != nullptr) << pair.grad();
  const bool rows = grad->kind() == v1::SELECTED_ROWS;
  const int64_t width = rows ? ElementCount(Dims(*grad).subspan(1)) : 0;
  if (vars.Find(pair.param())->kind() == v1::TABLE) {
    std::vector<v1::OpAttr> attrs = {AttrStrings("blocks", {pair.param()}), AttrInts("servers", {-1}),
                                     AttrI("width", width)};
    if (sending.drops_bad_rows) attrs.push_back(AttrB("bad_rows", true));
    return {WithRole(MakeOp("send", {{"X", {pair.grad()}}}, {}, std::move(attrs)), v1::RPC, &pair)};
  }
  std::vector<std::string> blocks;
  std::vector<int64_t> servers, sections;
  for (const v1::PlacedBlock* block : placed) {
    blocks.push_back(block->name());
    servers.push_back(block->server());
    sections.push_back(rows ? block->dims(0) : block->element_count());
  }
  std::vector<std::string> pieces;
  for (size_t i = 0; i < blocks.size(); ++i) {
    pieces.push_back(BlockName(pair.grad(), static_cast<int>(i), static_cast<int>(blocks.size())));
  }
  std::vector<v1::OpDesc> ops;
  if (blocks.size() > 1) {
    ops.push_back(WithRole(
        rows ? MakeOp("split_selected_rows", {{"X", {pair.grad()}}}, {{"Out", pieces}},
                      {AttrInts("height_sections", sections)})
             : MakeOp("split_byref", {{"X", {pair.grad()}}}, {{"Out", pieces}}, {AttrInts("sections", sections)}),
        v1::DIST, &pair));
  }
  if (placed.front()->server() == kEveryTrainer) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      std::vector<v1::OpAttr> attrs = {AttrS("block", blocks[i]), AttrI("width", width)};
      if (sending.drops_bad_rows) attrs.push_back(AttrB("bad_rows", true));
      if (sending.measured) attrs.push_back(AttrB("measured", true));
      // Rows of lanes rarely have ids in common: their sum is their adasum but for those, so they are averaged as ever.
      if (sending.adasum && !rows && !sending.measured) attrs.push_back(AttrB("mean", true));
      ops.push_back(WithRole(MakeOp(sending.own, {{"X", {pieces[i]}}}, {}, std::move(attrs)), v1::RPC, &pair));
    }
    return ops;
  }
  std::vector<v1::OpAttr> attrs = {AttrStrings("blocks", blocks), AttrInts("servers", servers), AttrI("width", width)};
  if (sending.measured) attrs.push_back(AttrB("measured", true));
  ops.push_back(WithRole(MakeOp("send", {{"X", pieces}}, {}, std::move(attrs)), v1::RPC, &pair));
  return ops;
}

// Returns the op that counts shows and clicks of the table's rows from all ids that read it; declares Out.
absl::StatusOr<v1::OpDesc> ShowsOp(const Job& job, v1::BlockDesc* block, const VarIndex& vars, const v1::VarDesc& table,
                                   const v1::ParamGrad& pair) {
  const std::string& click = table.lifecycle().click();
  const v1::VarDesc* clicks = vars.Find(click);
  if (clicks == nullptr || clicks->kind() != v1::DENSE || clicks->dtype() != v1::FLOAT32 || clicks->dims_size() != 2 ||
      clicks->dims(1) != 1) {
    std::string path = "table";
    for (int i = 0; i < job.config.table_size(); ++i) {
      if (job.config.table(i).name() == table.name()) path = absl::StrCat("table[", i, "].lifecycle.click");
    }
    return job.positions.Error(
        path, absl::StrCat("'", click, "' is ", clicks == nullptr ? "no variable of the program" : DescribeVar(*clicks),
                           "; clicks are float32 [-1, 1]"));
  }
  std::vector<std::string> ids, indexes;
  for (const v1::OpDesc& op : block->ops()) {
    if (op.type() != "prefetch") continue;
    const auto &tables = StringsOf(op, "tables"), &all_ids = SlotVars(op.inputs(), "Ids"),
               &all_indexes = SlotVars(op.outputs(), "Index");
    for (int i = 0; i < tables.size(); ++i) {
      if (tables.Get(i) != table.name()) continue;
      ids.push_back(all_ids.Get(i));
      indexes.push_back(all_indexes.Get(i));
    }
  }
  v1::VarDesc* const counts = block->add_vars();
  counts->set_name(table.name() + "@SHOWS");
  counts->set_kind(v1::SELECTED_ROWS);
  counts->set_dtype(v1::FLOAT32);
  counts->add_dims(-1);
  counts->add_dims(2);
  return WithRole(MakeOp("shows", {{"Grad", {pair.grad()}}, {"Ids", ids}, {"Index", indexes}, {"Click", {click}}},
                         {{"Out", {counts->name()}}}),
                  v1::DIST, &pair);
}

// Checks that all gradients come from seeds that are multiplied by the loss scale, since they are divided by it before
// they are sent.
absl::Status CheckSeeds(const Job& job, const v1::ProgramDesc& main) {
  std::set<std::string> seeded;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() == "fill_like_batch" && op.role() == v1::BACKWARD) seeded.insert(InputOf(op, "X"));
  }
  for (const v1::LossDesc& loss : main.losses()) {
    if (seeded.contains(loss.var())) continue;
    return job.positions.Error(
        "train.loss_scaling",
        absl::StrCat("scales the seeds of backward, and no fill_like_batch of role BACKWARD reads loss '", loss.var(),
                     "': leave backward out of the program, or loss_scaling out of the job"));
  }
  return absl::OkStatus();
}

// Returns whether the op updates parameters or rates; make_server_program moves these ops to servers.
bool OnServers(const v1::OpDesc& op) { return op.role() == v1::OPTIMIZE || op.role() == v1::LR_SCHEDULE; }

// Returns the last op of the trainer that writes the variable; -1 if there is none.
int LastWriter(const v1::BlockDesc& block, const DefUse& uses, const std::string& var) {
  int last = -1;
  for (const int i : uses.Writers(var)) {
    if (!OnServers(block.ops(i))) last = i;
  }
  return last;
}

// Puts `behind`, by index of the op they follow, into the block, and a send_barrier at its end. Removes what servers
// run.
void PlaceSends(const Job& job, const v1::ProgramDesc& main, std::map<int, std::vector<v1::OpDesc>> behind,
                v1::BlockDesc* block) {
  google::protobuf::RepeatedPtrField<v1::OpDesc> ops;
  for (int i = 0; i < block->ops_size(); ++i) {
    if (!OnServers(block->ops(i))) *ops.Add() = std::move(*block->mutable_ops(i));
    const auto sends = behind.find(i);
    if (sends == behind.end()) continue;
    for (v1::OpDesc& op : sends->second) *ops.Add() = std::move(op);
  }
  std::vector<std::string> losses;
  for (const v1::LossDesc& loss : main.losses()) losses.push_back(loss.var());
  const bool skip = job.config.train().nan_policy() == v1::Train::SKIP_STEP;
  *ops.Add() =
      WithRole(MakeOp("send_barrier", {{"X", losses}}, {}, {AttrS("nan_policy", skip ? "skip" : "stop")}), v1::RPC);
  block->mutable_ops()->Swap(&ops);
}

absl::StatusOr<bool> SendGradients(const Job& job, Programs* programs) {
  v1::ProgramDesc* main = &programs->main;
  v1::BlockDesc* block = main->mutable_blocks(0);
  std::map<int, std::vector<v1::OpDesc>> behind;  // by index of the op they follow
  for (const v1::OpDesc& op : block->ops()) {
    if (op.type() == "send_barrier") return false;
  }
  const DefUse uses(*block);
  std::set<std::string> dropping;  // gradients whose bad rows servers drop
  for (const v1::OpDesc& op : block->ops()) {
    if (op.type() == "drop_bad_rows") dropping.insert(InputOf(op, "Grad"));
  }
  // Measurements that are told from gradients: these are divided by the loss scale, compressed or combined by adasum.
  std::map<std::string, RunningAverage> measured;
  const bool scales = job.config.train().has_loss_scaling();
  if (scales) RETURN_IF_ERROR(CheckSeeds(job, *main));
  if (scales || Compresses(job.config.distribute()) || UsesAdasum(job.config.distribute())) {
    ASSIGN_OR_RETURN(measured, RunningAveragesOf(*main));
  }
  std::unordered_map<std::string_view, std::vector<const v1::PlacedBlock*>> placed;  // by parameter
  for (const v1::PlacedBlock& p : main->plan().blocks()) placed[p.parameter()].push_back(&p);
  const VarIndex vars(*block);
  const std::string own = job.config.distribute().has_local_sgd() ? "local_gradient" : "all_reduce";
  for (const v1::ParamGrad& pair : UpdatedParameters(*main)) {
    const int last = LastWriter(*block, uses, pair.grad());
    if (last < 0) {
      return job.positions.Error(
          "program", absl::StrCat("no operator writes '", pair.grad(), "', the gradient of '", pair.param(), "'"));
    }
    std::vector<v1::OpDesc> ops = SendOps(vars, placed[pair.param()], pair,
                                          {.own = own,
                                           .drops_bad_rows = dropping.contains(pair.grad()),
                                           .measured = measured.contains(pair.param()),
                                           .adasum = UsesAdasum(job.config.distribute())});
    if (const v1::VarDesc& param = *vars.Find(pair.param()); param.lifecycle().has_click()) {
      ASSIGN_OR_RETURN(v1::OpDesc shows, ShowsOp(job, block, vars, param, pair));
      v1::OpSlot* const counts = ops.back().add_inputs();
      counts->set_name("Counts");
      counts->add_vars(OutputOf(shows, "Out"));
      ops.insert(ops.begin(), std::move(shows));
    }
    std::vector<v1::OpDesc>& there = behind[last];
    there.insert(there.end(), std::make_move_iterator(ops.begin()), std::make_move_iterator(ops.end()));
  }
  PlaceSends(job, *main, std::move(behind), block);
  const v1::Train& train = job.config.train();
  if (train.accumulate_steps() > 1) MutableMode(main)->set_accumulate(train.accumulate_steps());
  if (train.workers() > 1) MutableMode(main)->set_workers(train.workers());
  return true;
}

REGISTER_PASS(send_gradients)
({.name = "send_gradients", .run = SendGradients, .phase = Phase::kTrainer, .after = "fuse_lookups"});

}  // namespace
}  // namespace weir
