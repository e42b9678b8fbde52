#include "transpiler/explain/explain.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_view.h"
#include "framework/runtime/row_values.h"
#include "google/protobuf/util/json_util.h"
#include "transpiler/explain/cluster_model.h"
#include "transpiler/explain/columns.h"
#include "transpiler/job/check_modes.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/job/modes.h"
#include "transpiler/passes/passes.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

// Servers whose programs are drawn; a page with a hundred would not be readable.
constexpr int kDrawnServers = 4;
// Steps of a sample on which other choices are compared with the job's.
constexpr size_t kKeptSteps = 64;

// Returns how many trainers of a host merge what they exchange with servers; 1: none do. On one machine shared memory
// reaches the servers, too.
int MergingOf(const v1::Distribute& distribute, const Machines& machines) {
  const v1::Plan::MergeHosts merges = MergeTowardsServersOf(distribute);
  if (merges == v1::Plan::OFF) return 1;
  if (machines.one_machine) return merges == v1::Plan::ON ? distribute.trainers() : 1;
  return std::min(machines.trainers_per_host, distribute.trainers());
}

// Likewise of dense gradients that trainers add among themselves. On one machine nothing leaves a host.
int AddingOf(const v1::Distribute& distribute, const Machines& machines) {
  if (machines.one_machine || MergeHostsOf(distribute) == v1::Plan::OFF) return 1;
  return std::min(machines.trainers_per_host, distribute.trainers());
}

absl::StatusOr<std::unique_ptr<ClusterModel>> ModelOf(const Job& job, const ExplainOptions& options,
                                                      const Programs& unplaced) {
  Programs single = unplaced;
  RETURN_IF_ERROR(RunPasses(PlacementPasses(), job, &single));
  Programs trainer = single;
  RETURN_IF_ERROR(RunPasses(TrainerPasses(), job, &trainer));
  const ClusterModel::Merging merging = {.servers = MergingOf(job.config.distribute(), options.machines),
                                         .trainers = AddingOf(job.config.distribute(), options.machines)};
  return std::make_unique<ClusterModel>(job.config, options.link, std::move(single), std::move(trainer), merging);
}

// Adds what each process has and exchanges.
void AddProcesses(const ClusterModel& model, v1::Explanation* e) {
  for (v1::ExplainedServer& server : model.Servers()) *e->add_server() = std::move(server);
  for (v1::ExplainedTrainer& trainer : model.Trainers()) *e->add_trainer() = std::move(trainer);
  if (const FlowSum norms = model.Norms(); norms.messages > 0) *e->mutable_norms() = ToProto(norms);
  if (std::optional<v1::AllReduced> all = model.AllReduces(); all.has_value()) {
    *e->mutable_all_reduced() = *std::move(all);
  }
  if (std::optional<v1::MergedHosts> merged = model.Merged(); merged.has_value()) {
    *e->mutable_merged_hosts() = *std::move(merged);
  }
}

// Figures by which two choices are compared.
struct Figures {
  v1::Balance balance;
  double messages = 0;
  int64_t most_bytes = 0;
  int64_t memory = 0;
  double host_bytes = 0;    // of a step, between all hosts and all servers
  double step_seconds = 0;  // 0: not predicted
};

Figures FiguresOf(const ClusterModel& model) {
  v1::Explanation e;
  AddProcesses(model, &e);
  Figures figures;
  figures.balance = model.BalanceOf({e.server().begin(), e.server().end()});
  for (const v1::ExplainedServer& server : e.server()) {
    figures.most_bytes = std::max(figures.most_bytes, server.bytes_at_rest());
    figures.host_bytes += server.step().total().bytes_out() + server.step().total().bytes_in();
  }
  for (const v1::ExplainedTrainer& trainer : e.trainer()) {
    figures.messages = std::max(figures.messages, trainer.step().total().messages());
    figures.memory = std::max(figures.memory, trainer.memory().total());
  }
  return figures;
}

bool Differs(double a, double b, double by) { return std::abs(a - b) > by; }

// Returns "4 servers: max/mean by bytes 1.02 instead of 1.31, 12 messages a step instead of 6"; empty if nothing would
// change. by_host: several trainers share a host.
std::string Comparison(const std::string& what, const Figures& other, const Figures& now, bool by_host) {
  std::vector<std::string> parts;
  const auto ratio = [&](const char* by, double a, double b) {
    if (Differs(a, b, 0.005)) parts.push_back(absl::StrFormat("max/mean by %s %.2f instead of %.2f", by, a, b));
  };
  ratio("bytes", other.balance.bytes(), now.balance.bytes());
  ratio("load", other.balance.load(), now.balance.load());
  if (other.balance.idle() != now.balance.idle()) {
    parts.push_back(absl::StrCat(other.balance.idle(), " servers without a block instead of ", now.balance.idle()));
  }
  if (Differs(other.messages, now.messages, 0.5)) {
    parts.push_back(absl::StrFormat("%.0f messages a step instead of %.0f", other.messages, now.messages));
  }
  if (other.most_bytes != now.most_bytes) {
    parts.push_back(absl::StrCat("fullest server ", HumanBytes(static_cast<double>(other.most_bytes)), " instead of ",
                                 HumanBytes(static_cast<double>(now.most_bytes))));
  }
  if (HumanBytes(static_cast<double>(other.memory)) != HumanBytes(static_cast<double>(now.memory))) {
    parts.push_back(absl::StrCat("trainer ", HumanBytes(static_cast<double>(other.memory)), " instead of ",
                                 HumanBytes(static_cast<double>(now.memory))));
  }
  if (by_host && HumanBytes(other.host_bytes) != HumanBytes(now.host_bytes)) {
    parts.push_back(absl::StrCat(HumanBytes(other.host_bytes), " between hosts and servers instead of ",
                                 HumanBytes(now.host_bytes)));
  }
  if (other.step_seconds > 0 && std::abs(other.step_seconds / now.step_seconds - 1) >= 0.01) {
    parts.push_back(
        absl::StrCat("a step of ", HumanSeconds(other.step_seconds), " instead of ", HumanSeconds(now.step_seconds)));
  }
  if (parts.empty()) return "";
  std::string text = absl::StrCat(what, ": ");
  for (size_t i = 0; i < parts.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", parts[i]);
  return text;
}

struct Choice {
  std::string what;
  std::string change;
  std::function<void(v1::Distribute*)> apply;
};

std::vector<Choice> Choices(const v1::Distribute& now, bool by_host) {
  std::vector<Choice> choices;
  const std::set<int> servers =
      now.servers() == 0 ? std::set<int>{ServersOf(now)}
                         : std::set<int>{std::max(1, now.servers() / 2), now.servers() + 1, 2 * now.servers()};
  for (const int n : servers) {
    if (n == now.servers()) continue;
    choices.push_back({absl::StrCat(n, n == 1 ? " server" : " servers"), absl::StrCat("distribute.servers=", n),
                       [n](v1::Distribute* d) { d->set_servers(n); }});
  }
  if (ServersOf(now) > 1) {
    for (int m = v1::Distribute::SplitMethod_MIN; m <= v1::Distribute::SplitMethod_MAX; ++m) {
      const auto method = static_cast<v1::Distribute::SplitMethod>(m);
      if (method == now.split_method() || now.has_custom_dispatcher()) continue;
      const std::string name = v1::Distribute::SplitMethod_Name(method);
      choices.push_back({name, absl::StrCat("distribute.split_method=", name),
                         [method](v1::Distribute* d) { d->set_split_method(method); }});
    }
    const bool slice = !now.slice_var_up();
    choices.push_back({slice ? "with slicing" : "without slicing",
                       absl::StrCat("distribute.slice_var_up=", slice ? "true" : "false"),
                       [slice](v1::Distribute* d) { d->set_slice_var_up(slice); }});
  }
  v1::Distribute merging = now;
  merging.set_merge_hosts(v1::Distribute::true_);
  if (by_host && MergeTowardsServersOf(merging) != v1::Plan::OFF) {
    const bool merge = MergeTowardsServersOf(now) == v1::Plan::OFF;
    choices.push_back({merge ? "with merge_hosts" : "without merge_hosts",
                       absl::StrCat("distribute.merge_hosts=", merge ? "true" : "false"), [merge](v1::Distribute* d) {
                         d->set_merge_hosts(merge ? v1::Distribute::true_ : v1::Distribute::false_);
                       }});
  }
  const bool optimize = !now.memory_optimize();
  choices.push_back({optimize ? "with memory_optimize" : "without memory_optimize",
                     absl::StrCat("distribute.memory_optimize=", optimize ? "true" : "false"),
                     [optimize](v1::Distribute* d) { d->set_memory_optimize(optimize); }});
  return choices;
}

v1::DrawnProgram Draw(const v1::ProgramDesc& program, int64_t batch) {
  v1::DrawnProgram drawn;
  drawn.set_name(program.name());
  const ProgramIndex index(program);
  for (const v1::BlockDesc& block : program.blocks()) {
    for (const v1::OpDesc& op : block.ops()) {
      v1::DrawnOp* to = drawn.add_op();
      to->set_block(block.index());
      to->set_type(op.type());
      to->set_role(v1::OpRole_Name(op.role()));
      ForEachVar(op.inputs(), [&](const std::string& var) { to->add_inputs(var); });
      ForEachVar(op.outputs(), [&](const std::string& var) { to->add_outputs(var); });
      const OpDef* def = OpRegistry::Global().Find(op.type());
      if (def != nullptr) to->set_flops(CostOf(op, *def, index.Lookup(block.index()), batch).flops);
    }
  }
  return drawn;
}

class ExplainerImpl : public Explainer {
 public:
  ExplainerImpl(const Job& job, const ExplainOptions& options) : job_(job), options_(options) {}

  absl::Status Init() {
    ASSIGN_OR_RETURN(unplaced_, BuildSingleMachine(job_));
    ASSIGN_OR_RETURN(model_, ModelOf(job_, options_, unplaced_));
    return absl::OkStatus();
  }

  void AddStep(const StepInput& step) override {
    // Other choices may merge where the job does not.
    const int trainers_per_host = options_.machines.one_machine ? MergingOf(job_.config.distribute(), options_.machines)
                                                                : options_.machines.trainers_per_host;
    auto ids = std::make_unique<StepIds>(step, model_->traffic().targets(), model_->plan(), trainers_per_host);
    model_->AddStep(ids.get());
    if (kept_.size() < kKeptSteps) kept_.push_back(std::move(ids));
  }

  const Programs& trainer() const override { return model_->trainer(); }

  absl::StatusOr<v1::Explanation> Finish() override {
    v1::Explanation e;
    const int64_t sampled = model_->steps();
    if (sampled == 0) model_->AddStep(nullptr);
    const v1::Plan& plan = model_->plan();
    e.set_job(plan.job());
    e.set_fingerprint(absl::StrCat(absl::Hex(PlanFingerprint(PlanText(job_, plan)), absl::kZeroPad16)));
    e.set_servers(plan.servers());
    e.set_trainers(plan.trainers());
    e.set_lanes(plan.lanes());
    e.set_sync(plan.sync());
    e.set_batch_size(plan.batch_size());
    e.set_sampled_steps(sampled);
    e.set_at_most(sampled == 0 && !model_->traffic().targets().empty());
    AddProcesses(*model_, &e);
    AddTables(&e);
    AddRowFetch(&e);
    *e.mutable_balance() = model_->BalanceOf({e.server().begin(), e.server().end()});
    if (options_.calibration != nullptr) {
      ASSIGN_OR_RETURN(*e.mutable_speed(), SpeedOf(job_, *model_));
    }
    AddNotes(&e);
    for (const std::string& text : ColumnTexts(job_.config)) e.add_column(text);
    if (options_.alternatives) AddAlternatives(&e);
    RETURN_IF_ERROR(AddPrograms(&e));
    return e;
  }

 private:
  void AddNotes(v1::Explanation* e) const {
    const v1::Train& train = job_.config.train();
    if (train.accumulate_steps() > 1) {
      e->add_note(absl::StrCat("train.accumulate_steps: a step is ", train.accumulate_steps(),
                               " batches; rows are fetched for each, ", "gradients and parameters pass once"));
    }
    for (const JobMode* mode : ModesOf(job_.config.distribute())) {
      if (mode->note != nullptr) e->add_note(mode->note(job_.config));
    }
    for (const v1::Table& table : job_.config.table()) {
      if (!table.has_disk()) continue;
      e->add_note(absl::StrCat("table '", table.name(), "': of its rows ", table.disk().memory_mb(),
                               " MiB are in the servers' memory, ",
                               "the others on their disks; the numbers above do not tell one from the other"));
    }
    AddScratchNotes(e);
  }

  // Says what operators take beside variables, where that is much.
  void AddScratchNotes(v1::Explanation* e) const {
    const v1::BlockDesc& block = model_->trainer().main.blocks(0);
    for (const v1::OpDesc& op : block.ops()) {
      if (op.type() != "in_batch_softmax_grad") continue;
      const v1::VarDesc* const query = FindVar(block, InputOf(op, "Query"));
      if (query == nullptr || query->dims_size() != 2) continue;
      // Must match ops/in_batch_softmax.cc: rows of a block, blocks of a group, and groups.
      constexpr int64_t kRows = 128, kLeastGroup = 4, kMostGroups = 8;
      const int64_t batch = LaneBatchOf(), blocks = (batch + kRows - 1) / kRows;
      const int64_t group = std::max(kLeastGroup, (blocks + kMostGroups - 1) / kMostGroups);
      const int64_t beside = std::max<int64_t>((blocks + group - 1) / group - 1, 0) * batch * query->dims(1);
      e->add_note(
          absl::StrCat("in_batch_softmax: beside the variables that are counted above, a lane that is computed "
                       "takes ",
                       HumanBytes(4 * static_cast<double>(beside)), " for gradients of items, and each thread ",
                       HumanBytes(4 * static_cast<double>(std::min(batch, kRows) * batch)), " of scores"));
    }
  }

  void AddTables(v1::Explanation* e) const {
    const v1::Plan& plan = model_->plan();
    for (const v1::PlacedTable& table : plan.tables()) {
      v1::ExplainedTable* to = e->add_table();
      to->set_name(table.name());
      to->set_width(table.width());
      to->set_state_width(table.state_width());
      to->set_logical_shards(table.logical_shards());
      for (int s = 0; s < plan.servers(); ++s) to->add_shards(0);
      for (int shard = 0; shard < table.logical_shards(); ++shard) {
        const int server =
            ShardServer(static_cast<uint32_t>(shard), static_cast<uint32_t>(table.logical_shards()), plan.servers());
        to->set_shards(server, to->shards(server) + 1);
      }
      const v1::VarDesc* const var = FindVar(model_->trainer().main.blocks(0), table.name());
      const v1::DType values = var == nullptr ? v1::FLOAT32 : var->dtype();
      to->set_value_bytes(static_cast<int32_t>(DTypeSize(values)));
      // Must match the layout of rows in pserver/tables/sparse_table.h.
      to->set_row_bytes(8 + RowValues::BytesOf(values, table.width()) + 4 * int64_t{table.state_width()});
      to->set_capacity(table.capacity());
      to->set_rows_of_step(model_->RowsOfStep(table.name()));
    }
  }

  // Adds sparse parameters that servers store as dense blocks.
  void AddRowFetch(v1::Explanation* e) const {
    const v1::Plan& plan = model_->plan();
    for (const v1::FetchedRows& fetched : plan.fetched_rows()) {
      v1::RowFetch* to = e->add_row_fetch();
      to->set_parameter(fetched.parameter());
      to->set_by_row(true);
      to->set_why(fetched.forced()
                      ? absl::StrCat("table.fetch says so; a step names at most ", fetched.most_rows(), " rows, of ",
                                     fetched.rows())
                      : absl::StrCat("a step names at most ", fetched.most_rows(), " rows, of ", fetched.rows()));
    }
    for (const SparseTarget& target : model_->traffic().targets()) {
      if (target.table || !target.pulled_by.empty()) continue;
      int64_t named = 0;
      for (const SparseTarget::Source& source : target.pushed_by) named += source.slots * plan.batch_size();
      v1::RowFetch* to = e->add_row_fetch();
      to->set_parameter(target.parameter);
      to->set_by_row(false);
      to->set_why(
          absl::StrCat("received whole, ", target.rows, " rows; a step names at most ", std::min(named, target.rows)));
    }
  }

  // Predicts the step of a job. `model`: of that job, with the steps added.
  absl::StatusOr<v1::SpeedPrediction> SpeedOf(const Job& job, const ClusterModel& model) const {
    v1::Explanation processes;
    const bool servers_work = !model.AllReduces().has_value() || model.plan().tables_size() > 0;
    if (servers_work && TrainerAround(model.plan(), 0) == 0) {
      // Calls of a trainer to its own server are no traffic, but they are work.
      Job apart = job;
      apart.config.mutable_distribute()->set_servers(model.plan().trainers());
      ASSIGN_OR_RETURN(const std::unique_ptr<ClusterModel> of_apart, ModelOf(apart, options_, unplaced_));
      AddKept(of_apart.get());
      AddProcesses(*of_apart, &processes);
    } else {
      AddProcesses(model, &processes);
    }
    return PredictSpeed(*options_.calibration, options_.machines, job.config, model.plan(), processes);
  }

  // Adds the kept steps, or one of upper bounds if there are none.
  void AddKept(ClusterModel* model) const {
    for (const std::unique_ptr<StepIds>& step : kept_) model->AddStep(step.get());
    if (kept_.empty()) model->AddStep(nullptr);
  }

  // Computes the figures of a job on the kept steps, or upper bounds if there are none.
  absl::StatusOr<Figures> FiguresWith(const Job& job) const {
    ASSIGN_OR_RETURN(const std::unique_ptr<ClusterModel> model, ModelOf(job, options_, unplaced_));
    AddKept(model.get());
    Figures figures = FiguresOf(*model);
    if (options_.calibration != nullptr) {
      ASSIGN_OR_RETURN(const v1::SpeedPrediction speed, SpeedOf(job, *model));
      figures.step_seconds = speed.step_seconds();
    }
    return figures;
  }

  void AddAlternatives(v1::Explanation* e) const {
    const absl::StatusOr<Figures> now = FiguresWith(job_);
    if (!now.ok()) return;
    const bool by_host = options_.machines.trainers_per_host > 1;
    for (const Choice& choice : Choices(job_.config.distribute(), by_host)) {
      Job other = job_;
      choice.apply(other.config.mutable_distribute());
      // A choice that cannot be placed is left out.
      const absl::StatusOr<Figures> figures = FiguresWith(other);
      if (!figures.ok()) continue;
      const std::string text = Comparison(choice.what, *figures, *now, by_host);
      if (text.empty()) continue;
      v1::Alternative* to = e->add_alternative();
      to->set_change(choice.change);
      *to->mutable_balance() = figures->balance;
      to->set_messages(figures->messages);
      to->set_most_bytes(figures->most_bytes);
      to->set_trainer_memory(figures->memory);
      if (figures->step_seconds > 0) to->set_step_seconds(figures->step_seconds);
      if (by_host) to->set_host_bytes(figures->host_bytes);
      to->set_text(text);
    }
  }

  absl::Status AddPrograms(v1::Explanation* e) const {
    *e->add_program() = Draw(model_->trainer().main, LaneBatchOf());
    ASSIGN_OR_RETURN(const Transpiled transpiled, Transpile(job_));
    for (int s = 0; s < std::min(kDrawnServers, transpiled.plan().servers()); ++s) {
      ASSIGN_OR_RETURN(const Programs server, transpiled.Server(s));
      *e->add_program() = Draw(server.main, 1);
    }
    return absl::OkStatus();
  }

  int64_t LaneBatchOf() const {
    const v1::Plan& plan = model_->plan();
    return plan.batch_size() / std::max(1, plan.lanes() == 0 ? plan.trainers() : plan.lanes());
  }

  const Job job_;
  const ExplainOptions options_;
  Programs unplaced_;
  std::unique_ptr<ClusterModel> model_;
  std::vector<std::unique_ptr<StepIds>> kept_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Explainer>> Explainer::Create(const Job& job, const ExplainOptions& options) {
  auto explainer = std::make_unique<ExplainerImpl>(job, options);
  RETURN_IF_ERROR(explainer->Init());
  return std::unique_ptr<Explainer>(std::move(explainer));
}

absl::StatusOr<std::string> ExplanationJson(const v1::Explanation& explanation) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(explanation, &text, options);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  return text;
}

std::string HumanBytes(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f B", bytes) : absl::StrFormat("%.1f %s", bytes, units[unit]);
}

std::string HumanFlops(double flops) {
  const std::string count = HumanCount(flops);
  return absl::StrCat(count, count.back() >= '0' && count.back() <= '9' ? " flop" : "flop");
}

std::string HumanSeconds(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.2f s", seconds);
  return seconds >= 1e-3 ? absl::StrFormat("%.1f ms", seconds * 1e3) : absl::StrFormat("%.0f us", seconds * 1e6);
}

std::string HumanCount(double count) {
  const char* const units[] = {"", " k", " M", " G", " T"};
  int unit = 0;
  while (count >= 10000 && unit < 4) {
    count /= 1000;
    ++unit;
  }
  return unit == 0 && count == std::floor(count) ? absl::StrFormat("%.0f", count)
                                                 : absl::StrFormat("%.1f%s", count, units[unit]);
}

}  // namespace weir
