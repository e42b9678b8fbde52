#include "trainer/unsplit_run.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/running_averages.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/initial_value.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/param_channel.h"
#include "framework/runtime/row_rule.h"
#include "framework/runtime/row_values.h"
#include "framework/runtime/scope.h"
#include "framework/runtime/table_update.h"
#include "trainer/loss_scaler.h"
#include "transpiler/base/programs.h"
#include "transpiler/base/state_name.h"
#include "transpiler/passes/prefetch_tables.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

// As pserver/server/learning_rates.h names what schedules keep, in digests.
constexpr char kSchedules[] = "@LR_SCHEDULE";

// When rows come and go, as docs/tables.md says it, id by id: the steps in which each was there.
struct RowLifecycle {
  v1::Lifecycle settings;
  uint64_t key = 0;
  int shards = 1;
  int64_t capacity = 0;
  struct Seen {
    uint32_t count = 0, step = 0;
  };
  std::map<int64_t, Seen> rows, candidates;
  std::map<int64_t, uint32_t> tombstones;

  bool evicts() const { return capacity > 0 && settings.when_full() != v1::Lifecycle::REFUSE; }
  bool least_frequent() const { return evicts() && settings.when_full() == v1::Lifecycle::EVICT_LEAST_FREQUENT; }
  bool keeps_candidates() const { return settings.admit_after() > 1; }
  bool keeps_steps() const { return settings.ttl_steps() > 0 || evicts(); }

  // The id is in the step; whether it has a row from now on.
  bool Admit(int64_t id, int64_t step) {
    Seen seen;
    if (!rows.contains(id)) {
      if (keeps_candidates()) {
        seen = candidates[id];
        seen = {seen.count + 1, static_cast<uint32_t>(step)};
        candidates[id] = seen;
        if (seen.count < settings.admit_after()) return false;
        candidates.erase(id);
        --seen.count;
      } else if (settings.has_admit_probability()) {
        const PhiloxBlock block = Philox(key, static_cast<uint64_t>(step), static_cast<uint64_t>(id));
        const uint64_t bits = (uint64_t{block.v[0]} << 32 | block.v[1]) >> 11;
        if (static_cast<double>(bits) >= settings.admit_probability() * 0x1p53) return false;
      }
      tombstones.erase(id);
      rows[id] = seen;
    }
    Seen& now = rows[id];
    now = {now.count + 1, static_cast<uint32_t>(step)};
    return true;
  }

  // Rows that go at the border behind the step.
  std::vector<int64_t> EndStep(int64_t step) {
    std::vector<int64_t> gone;
    const auto shard = [this](int64_t id) {
      return static_cast<int64_t>(LogicalShard(id, static_cast<uint32_t>(shards)));
    };
    const int64_t ttl = settings.ttl_steps(), period = std::clamp<int64_t>(ttl / 4, 1, shards);
    const auto expired = [&](const std::pair<const int64_t, Seen>& each) {
      return ttl > 0 && shard(each.first) % period == step % period && step - each.second.step >= ttl;
    };
    for (const auto& each : rows) {
      if (expired(each)) gone.push_back(each.first);
    }
    std::erase_if(candidates, expired);
    for (int64_t id : gone) rows.erase(id);
    if (evicts()) {
      const int64_t most = std::max<int64_t>(1, capacity / shards);
      const auto evict = [&](std::map<int64_t, Seen>* seen, bool by_count) {
        std::map<int64_t, std::vector<std::tuple<uint32_t, uint32_t, int64_t>>> by_shard;
        for (const auto& [id, s] : *seen) by_shard[shard(id)].emplace_back(by_count ? s.count : 0, s.step, id);
        std::vector<int64_t> evicted;
        for (auto& [of, all] : by_shard) {
          if (static_cast<int64_t>(all.size()) <= most) continue;
          std::sort(all.begin(), all.end());
          const size_t go = all.size() - static_cast<size_t>(most - most / 16);
          for (size_t i = 0; i < go; ++i) evicted.push_back(std::get<2>(all[i]));
        }
        for (int64_t id : evicted) seen->erase(id);
        return evicted;
      };
      const std::vector<int64_t> evicted = evict(&rows, least_frequent());
      gone.insert(gone.end(), evicted.begin(), evicted.end());
      evict(&candidates, least_frequent());
    }
    for (int64_t id : gone) {
      if (settings.tombstones()) tombstones[id] = static_cast<uint32_t>(step);
    }
    return gone;
  }

  // What servers keep beside a row, and of ids without one, as bits.
  std::vector<float> Words(int64_t id) const {
    const Seen seen = rows.at(id);
    std::vector<float> words;
    if (least_frequent()) words.push_back(std::bit_cast<float>(seen.count));
    if (keeps_steps() || settings.tombstones()) words.push_back(std::bit_cast<float>(seen.step));
    return words;
  }
  void Digest(const std::string& table, DigestTable* digests) const {
    if (keeps_candidates()) {
      VariableDigester digester(table + "@candidates", shards);
      for (const auto& [id, seen] : candidates) {
        const float words[] = {std::bit_cast<float>(seen.count), std::bit_cast<float>(seen.step)};
        digester.AddRow(id, absl::MakeConstSpan(words, 1), absl::MakeConstSpan(words + 1, keeps_steps() ? 1 : 0));
      }
      (*digests)[digester.name()] = digester.sum();
    }
    if (settings.tombstones()) {
      VariableDigester digester(table + "@tombstones", shards);
      for (const auto& [id, step] : tombstones) {
        const float word = std::bit_cast<float>(step);
        digester.AddRow(id, absl::MakeConstSpan(&word, 1), {});
      }
      (*digests)[digester.name()] = digester.sum();
    }
  }
};

// Rows of one distributed table.
struct RowTable {
  int width = 0;
  int shards = 1;
  std::unique_ptr<RowInitializer> initializer;
  std::unique_ptr<RowValues> values;
  std::unique_ptr<RowRule> rule;
  std::string learning_rate;
  // Ops of the program change the whole gradient before rows are updated.
  bool merged_first = false;
  std::map<int64_t, std::vector<float>> rows;  // values, state
  RowLifecycle lifecycle;

  std::vector<float> Initial(int64_t id) const {
    std::vector<float> row(static_cast<size_t>(width + (rule == nullptr ? 0 : rule->state_width(width))));
    initializer->Fill(id, absl::MakeSpan(row.data(), static_cast<size_t>(width)));
    if (rule != nullptr) rule->InitState(width, row.data() + width);
    return row;
  }
};

// Gives prefetch the rows of the step.
class TableRowSource : public RowSource {
 public:
  explicit TableRowSource(const std::map<std::string, RowTable>* tables) : tables_(tables) {}

  absl::Status BeginStep(int64_t, bool) override { return absl::OkStatus(); }
  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    for (const TableRows& pull : tables) {
      const auto table = tables_->find(pull.table);
      if (table == tables_->end()) return absl::InvalidArgumentError(absl::StrCat("there is no table ", pull.table));
      for (size_t i = 0; i < pull.ids->size(); ++i) {
        const auto row = table->second.rows.find((*pull.ids)[i]);
        const std::vector<float> fresh =
            row == table->second.rows.end() ? table->second.Initial((*pull.ids)[i]) : std::vector<float>();
        const float* from = row == table->second.rows.end() ? fresh.data() : row->second.data();
        std::copy(from, from + pull.width, pull.rows + i * static_cast<size_t>(pull.width));
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::map<std::string, RowTable>* const tables_;
};

// Lanes added in the tree of `leaves`, absent ones skipped; consumes the values.
std::vector<float> TreeSum(std::vector<std::pair<int, std::vector<float>>> lanes, int leaves) {
  std::vector<LaneRange> present;
  for (const auto& [lane, values] : lanes) present.push_back({lane, 1});
  for (const LaneAdd& add : TreeAdds(present, leaves)) {
    std::vector<float>& left = lanes[static_cast<size_t>(add.left)].second;
    const std::vector<float>& right = lanes[static_cast<size_t>(add.right)].second;
    for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  }
  return std::move(lanes[0].second);
}

class UnsplitRunImpl : public UnsplitRun {
 public:
  UnsplitRunImpl(const Job& job, ThreadPool* pool)
      : job_(job), pool_(pool), loss_scaler_(job.config.train()), row_source_(&tables_) {}

  absl::Status Init() {
    ASSIGN_OR_RETURN(Programs single, BuildSingleMachine(job_));
    updates_ = single.main;
    seed_ = single.main.seed();
    FindCounters(single.main);
    ASSIGN_OR_RETURN(measured_, RunningAveragesOf(single.main));
    const v1::Distribute& distribute = job_.config.distribute();
    lanes_ = job_.config.train().lanes() == 0 ? distribute.trainers() : job_.config.train().lanes();
    ASSIGN_OR_RETURN(startup_, Executor::Create(single.startup, &scope_, {.lanes = 1}));
    const std::vector<int64_t> nobody = {0};
    RETURN_IF_ERROR(startup_->Run(Context(0, 0), nobody));
    for (const v1::ParamGrad& pair : UpdatedParameters(single.main)) {
      const v1::VarDesc* param = FindVar(single.main.blocks(0), pair.param());
      if (param->kind() == v1::TABLE) {
        RETURN_IF_ERROR(AddTable(single.main, *param));
      } else {
        AddParameter(single.main, pair, *param);
      }
      pairs_.push_back(pair);
    }
    for (const v1::LossDesc& loss : single.main.losses()) losses_.push_back(loss.var());
    for (const v1::VarDesc& var : single.main.blocks(0).vars()) {
      if (var.kind() == v1::TABLE && !tables_.contains(var.name())) RETURN_IF_ERROR(AddTable(single.main, var));
    }
    RETURN_IF_ERROR(PrefetchTables(job_, &single).status());
    FilterOps(single.main.mutable_blocks(0),
              [](const v1::OpDesc& op) { return op.role() != v1::OPTIMIZE && op.role() != v1::LR_SCHEDULE; });
    ASSIGN_OR_RETURN(forward_backward_, Executor::Create(single.main, &scope_, {.lanes = lanes_}));
    return absl::OkStatus();
  }

  absl::Status Step(const std::vector<std::vector<LaneBatch>>& batches, const std::vector<Column>& columns) override {
    int64_t samples = 0;
    std::map<std::string, LaneSums> sums;  // by parameter
    std::string bad_loss, bad;             // that are not finite
    for (size_t b = 0; b < batches.size(); ++b) {
      CHECK_EQ(static_cast<int>(batches[b].size()), lanes_);
      std::vector<int64_t> examples;
      for (int lane = 0; lane < lanes_; ++lane) {
        const LaneBatch& batch = batches[b][static_cast<size_t>(lane)];
        examples.push_back(batch.examples);
        samples += batch.examples;
        for (size_t c = 0; c < columns.size(); ++c) {
          if (Variable* var = forward_backward_->Find(lane, columns[c].name); var != nullptr) *var = batch.vars[c];
        }
      }
      // Random numbers differ from batch to batch.
      StepContext context = Context(0, 0);
      context.step = step_ * static_cast<int64_t>(batches.size()) + static_cast<int64_t>(b);
      RETURN_IF_ERROR(forward_backward_->Run(context, examples));
      for (const v1::ParamGrad& pair : pairs_) AddLanes(pair, examples, &sums[pair.param()]);
      for (const std::string& loss : losses_) {
        if (!LossIsFinite(loss, examples)) bad_loss = loss;
      }
    }
    if (samples == 0) return absl::OkStatus();  // changes nothing
    for (const v1::ParamGrad& pair : pairs_) {
      const auto table = tables_.find(pair.param());
      if (table != tables_.end() && table->second.rule != nullptr && table->second.rule->skips_rows()) continue;
      if (!IsFinite(sums[pair.param()])) bad = pair.grad();
    }
    const bool overflow = bad_loss.empty() && loss_scaler_.scale() > 1;
    if (!bad_loss.empty()) bad = bad_loss;
    if (!bad.empty() && !overflow && job_.config.train().nan_policy() == v1::Train::STOP) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", bad, "' is not finite at step ", step_, ": the job would stop here"));
    }
    loss_scaler_.StepDone(/*skipped=*/!bad.empty());
    if (!bad.empty()) {
      ++step_;
      return absl::OkStatus();
    }
    std::map<std::string, Variable> gradients;  // of dense parameters that have one in this step
    std::map<std::string, std::map<int64_t, std::vector<float>>> rows;
    for (auto& [param, of] : sums) SumLanes(param, std::move(of), &gradients, &rows);
    RETURN_IF_ERROR(Update(samples, std::move(gradients), &rows));
    for (const auto& [name, of_table] : rows) {
      RowTable& table = tables_.at(name);
      UpdateTable(&table, of_table, table.merged_first ? 1 : samples);
    }
    for (auto& [name, table] : tables_) {
      for (int64_t id : table.lifecycle.EndStep(step_)) table.rows.erase(id);
    }
    ++step_;
    ++updates_run_;
    return absl::OkStatus();
  }

  DigestTable Digests() const override {
    DigestTable digests;
    for (const auto& [name, parameter] : parameters_) {
      const absl::Span<const float> values = Values(name);
      VariableDigester digester(name, static_cast<int64_t>(values.size()));
      digester.AddValues(0, values);
      for (const auto& [state, var] : parameter.states) {
        const Tensor& tensor = std::get<Tensor>(*scope_.Find(var));
        // Bits, whatever the type.
        digester.AddState(state, 0,
                          absl::MakeConstSpan(static_cast<const float*>(tensor.raw()), tensor.bytes() / sizeof(float)));
      }
      digests[name] = digester.sum();
    }
    for (const auto& [name, table] : tables_) {
      VariableDigester digester(name, table.shards);
      const size_t width = static_cast<size_t>(table.width);
      for (const auto& [id, values] : table.rows) {
        std::vector<float> row = values;
        const std::vector<float> words = table.lifecycle.Words(id);
        row.insert(row.end(), words.begin(), words.end());
        digester.AddRow(id, absl::MakeConstSpan(row.data(), width),
                        absl::MakeConstSpan(row.data() + width, row.size() - width));
      }
      digests[name] = digester.sum();
      table.lifecycle.Digest(name, &digests);
    }
    if (scheduled_) digests[kSchedules] = ScheduleDigest();
    return digests;
  }

  std::vector<std::string> Parameters() const override {
    std::vector<std::string> names;
    for (const auto& [name, parameter] : parameters_) names.push_back(name);
    return names;
  }
  absl::Span<const float> Values(std::string_view parameter) const override {
    return std::get<Tensor>(*scope_.Find(parameter)).span<float>();
  }
  int64_t RowElements(std::string_view parameter) const override {
    const auto found = parameters_.find(parameter);
    return found == parameters_.end() ? 1 : found->second.row;
  }
  int64_t Shards(std::string_view table) const override {
    return tables_.at(std::string(table.substr(0, table.find('@')))).shards;
  }
  int64_t Elements(std::string_view variable) const override {
    return parameters_.find(variable) == parameters_.end() ? -1 : static_cast<int64_t>(Values(variable).size());
  }

 private:
  VariableDigestSum ScheduleDigest() const {
    VariableDigester digester(kSchedules, 1);
    for (const std::string& name : counters_) {
      const Tensor& tensor = std::get<Tensor>(*scope_.Find(name));
      digester.AddState(name, 0,
                        absl::MakeConstSpan(static_cast<const float*>(tensor.raw()), tensor.bytes() / sizeof(float)));
    }
    // Steps that have taken effect; its bits, as servers keep it.
    float bits[2];
    std::memcpy(bits, &updates_run_, sizeof bits);
    digester.AddState("transactions", 0, bits);
    return digester.sum();
  }

  struct Parameter {
    int64_t row = 1;
    std::vector<std::pair<std::string, std::string>> states;  // name as digests have it, variable
  };

  StepContext Context(int64_t samples, int trainers) {
    return {.step = step_,
            .seed = seed_,
            .training = true,
            .first_lane = 0,
            .job_lanes = std::max(1, job_.config.train().lanes()),
            .rows = &row_source_,
            .pool = pool_,
            .health = &health_,
            .loss_scale = loss_scaler_.scale(),
            .samples = samples,
            .trainers = std::max(1, trainers)};
  }

  absl::Status AddTable(const v1::ProgramDesc& main, const v1::VarDesc& var) {
    RowTable& table = tables_[var.name()];
    table.width = static_cast<int>(var.dims(1));
    table.shards = var.logical_shards();
    table.initializer = std::make_unique<RowInitializer>(var.initializer(), main.seed(), var.name(), var.dtype());
    table.values = std::make_unique<RowValues>(var.dtype(), main.seed(), var.name());
    if (var.lifecycle().ttl_seconds() > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", var.name(),
                       ": lifecycle.ttl_seconds goes by the servers' clocks; there is nothing to compare it with"));
    }
    if (var.lifecycle().has_click()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table ", var.name(),
          ": --verify does not count shows and clicks (lifecycle.click); leave it out to compare the rest"));
    }
    const std::string admission = "admission of " + var.name();
    table.lifecycle = {.settings = var.lifecycle(),
                       .key = StableHash(admission.data(), admission.size(), main.seed()),
                       .shards = var.logical_shards(),
                       .capacity = var.capacity()};
    // Clip, decay and update, the update last, as far as they have a row form; what has none (a norm over all rows)
    // runs on the merged gradient before.
    std::vector<const v1::OpDesc*> ops;
    for (int i = 0; i < main.blocks(0).ops_size(); ++i) {
      const v1::OpDesc& op = main.blocks(0).ops(i);
      const bool of_table = std::any_of(op.param_grads().begin(), op.param_grads().end(),
                                        [&](const v1::ParamGrad& pair) { return pair.param() == var.name(); });
      if (op.role() != v1::OPTIMIZE || !of_table) continue;
      if (HasRowForm(op)) {
        ops.push_back(&op);
        row_ops_.insert(i);
      } else {
        table.merged_first = true;
      }
      if (const std::string rate = InputOf(op, "LearningRate"); !rate.empty()) table.learning_rate = rate;
    }
    if (ops.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(TableUpdate update, MakeTableUpdate(var, main.seed(), ops, [this](const std::string& name) {
                       return scope_.Find(name);
                     }));
    table.rule = std::move(update.rule);
    *table.initializer = std::move(update.initializer);
    return absl::OkStatus();
  }

  // Variables that live across steps and that schedules write: counters and rates.
  void FindCounters(const v1::ProgramDesc& main) {
    for (const v1::OpDesc& op : main.blocks(0).ops()) {
      if (op.role() != v1::LR_SCHEDULE) continue;
      scheduled_ = true;
      for (const v1::OpSlot& slot : op.outputs()) {
        for (const std::string& name : slot.vars()) {
          const v1::VarDesc* var = FindVar(main.blocks(0), name);
          if (var != nullptr && var->persistable() && var->kind() == v1::DENSE) counters_.insert(name);
        }
      }
    }
  }

  void AddParameter(const v1::ProgramDesc& main, const v1::ParamGrad& pair, const v1::VarDesc& var) {
    Parameter& parameter = parameters_[var.name()];
    for (int d = 1; d < var.dims_size(); ++d) parameter.row *= var.dims(d);
    for (const v1::OpDesc& op : main.blocks(0).ops()) {
      const OpDef* def = OpRegistry::Global().Find(op.type());
      if (op.role() != v1::OPTIMIZE || def == nullptr || !def->is_optimizer || InputOf(op, "Param") != pair.param())
        continue;
      for (const StateDef& state : def->state) {
        const std::string name = InputOf(op, state.slot);
        if (name.empty()) continue;
        const std::string prefix = var.name() + ".";
        parameter.states.emplace_back(name.starts_with(prefix) ? name.substr(prefix.size()) : state.slot, name);
      }
    }
  }

  // Gradients of one parameter by lane, over the batches of a step.
  struct LaneSums {
    std::map<int, std::vector<float>> dense;
    std::map<int64_t, std::map<int, std::vector<float>>> rows;  // by id
    Shape dims;                                                 // of a dense one
    int64_t height = -1, width = 1;                             // of rows
  };

  static void AddTo(const float* values, int64_t n, float factor, std::vector<float>* sum) {
    const bool first = sum->empty();
    if (first) sum->resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const float value = values[i] * factor;
      (*sum)[static_cast<size_t>(i)] = first ? value : (*sum)[static_cast<size_t>(i)] + value;
    }
  }

  // Adds the gradient of the batch that has just run; a lane without examples, or whose gradient is absent, adds
  // nothing.
  void AddLanes(const v1::ParamGrad& pair, const std::vector<int64_t>& examples, LaneSums* sums) {
    const float factor = measured_.contains(pair.param()) ? 1 : 1 / loss_scaler_.scale();
    for (int lane = 0; lane < lanes_; ++lane) {
      const Variable* var = forward_backward_->Find(lane, pair.grad());
      if (examples[static_cast<size_t>(lane)] == 0 || var == nullptr) continue;
      if (const Tensor* tensor = std::get_if<Tensor>(var)) {
        if (!tensor->initialized()) continue;
        sums->dims.assign(tensor->dims().begin(), tensor->dims().end());
        AddTo(tensor->data<float>(), tensor->size(), factor, &sums->dense[lane]);
      } else if (const SelectedRows* rows = std::get_if<SelectedRows>(var)) {
        if (!rows->present) continue;
        sums->height = std::max(sums->height, rows->height);
        if (rows->values.rank() == 2) sums->width = rows->values.dim(1);
        for (size_t r = 0; r < rows->ids.size(); ++r) {
          AddTo(rows->values.data<float>() + r * static_cast<size_t>(sums->width), sums->width, factor,
                &sums->rows[rows->ids[r]][lane]);
        }
      }
    }
  }

  bool LossIsFinite(const std::string& loss, const std::vector<int64_t>& examples) const {
    for (int lane = 0; lane < lanes_; ++lane) {
      const Variable* var = forward_backward_->Find(lane, loss);
      if (examples[static_cast<size_t>(lane)] == 0 || var == nullptr) continue;
      if (const Tensor* tensor = std::get_if<Tensor>(var); tensor != nullptr && !AllFinite(tensor->span<float>()))
        return false;
    }
    return true;
  }

  // As the trainers of its lanes judge it, before lanes are added.
  static bool IsFinite(const LaneSums& sums) {
    const auto finite = [](const auto& of_lanes) {
      return std::all_of(of_lanes.begin(), of_lanes.end(), [](const auto& lane) { return AllFinite(lane.second); });
    };
    return finite(sums.dense) &&
           std::all_of(sums.rows.begin(), sums.rows.end(), [&](const auto& row) { return finite(row.second); });
  }

  static bool AllFinite(absl::Span<const float> values) {
    return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  }

  // The lanes in their tree.
  void SumLanes(const std::string& param, LaneSums sums, std::map<std::string, Variable>* gradients,
                std::map<std::string, std::map<int64_t, std::vector<float>>>* table_rows) const {
    const auto tree_sum = [this](std::map<int, std::vector<float>>* lanes) {
      std::vector<std::pair<int, std::vector<float>>> present;
      for (auto& [lane, values] : *lanes) present.emplace_back(lane, std::move(values));
      return TreeSum(std::move(present), lanes_);
    };
    if (!sums.dense.empty()) {
      const std::vector<float> sum = tree_sum(&sums.dense);
      (*gradients)[param] = Tensor::Of<float>(sums.dims, sum);
      return;
    }
    if (sums.rows.empty()) return;
    const auto table = tables_.find(param);
    if (table != tables_.end() && !table->second.merged_first) {
      for (auto& [id, lanes] : sums.rows) (*table_rows)[param][id] = tree_sum(&lanes);
      return;
    }
    SelectedRows merged{.height = sums.height, .merged = true, .present = true};
    std::vector<float> values;
    for (auto& [id, lanes] : sums.rows) {
      const std::vector<float> sum = tree_sum(&lanes);
      merged.ids.push_back(id);
      values.insert(values.end(), sum.begin(), sum.end());
    }
    merged.values = Tensor::Of<float>({static_cast<int64_t>(merged.ids.size()), sums.width}, values);
    (*gradients)[param] = std::move(merged);
  }

  // Schedules, then merge, clips, decays and updates of the parameters that have a gradient, in the order of the
  // program. Gradients of tables that had to be whole for it come back as rows.
  absl::Status Update(int64_t samples, std::map<std::string, Variable> gradients,
                      std::map<std::string, std::map<int64_t, std::vector<float>>>* rows) {
    std::set<std::string> present;
    for (const auto& [name, gradient] : gradients) present.insert(name);
    std::unique_ptr<Executor>& executor = updaters_[present];
    if (executor == nullptr) {
      ASSIGN_OR_RETURN(executor, Executor::Create(UpdateProgram(present), &scope_, {.lanes = 1}));
    }
    for (const v1::ParamGrad& pair : pairs_) {
      const auto gradient = gradients.find(pair.param());
      if (gradient == gradients.end()) continue;
      *executor->Find(0, pair.grad()) = std::move(gradient->second);
    }
    const std::vector<int64_t> nobody = {0};
    RETURN_IF_ERROR(executor->Run(Context(samples, 1), nobody));
    for (const v1::ParamGrad& pair : pairs_) {
      if (!present.contains(pair.param()) || !tables_.contains(pair.param())) continue;
      const SelectedRows& merged = std::get<SelectedRows>(*executor->Find(0, pair.grad()));
      const int64_t width = tables_.at(pair.param()).width;
      for (size_t r = 0; r < merged.ids.size(); ++r) {
        const float* row = merged.values.data<float>() + static_cast<int64_t>(r) * width;
        (*rows)[pair.param()][merged.ids[r]].assign(row, row + width);
      }
    }
    return absl::OkStatus();
  }

  v1::ProgramDesc UpdateProgram(const std::set<std::string>& present) const {
    v1::ProgramDesc program = updates_;
    v1::BlockDesc* block = program.mutable_blocks(0);
    google::protobuf::RepeatedPtrField<v1::OpDesc> ops;
    bool merged = false;
    std::set<std::string> there;  // what ops may read
    for (const v1::VarDesc& var : block->vars()) {
      if (var.persistable()) there.insert(var.name());
    }
    for (int i = 0; i < updates_.blocks(0).ops_size(); ++i) {
      v1::OpDesc op = updates_.blocks(0).ops(i);
      const bool schedule = op.role() == v1::LR_SCHEDULE;
      if ((op.role() != v1::OPTIMIZE && !schedule) || row_ops_.contains(i)) continue;
      if (!merged && !schedule) {
        merged = true;
        for (const v1::ParamGrad& pair : pairs_) {
          if (!present.contains(pair.param())) continue;
          there.insert(pair.grad());
          *ops.Add() = WithRole(MakeOp("merge", {{"X", {pair.grad()}}}, {{"Out", {pair.grad()}}}), v1::OPTIMIZE, &pair);
        }
      }
      const bool wanted = schedule || op.param_grads().empty() ||
                          std::any_of(op.param_grads().begin(), op.param_grads().end(),
                                      [&](const v1::ParamGrad& pair) { return present.contains(pair.param()); });
      if (!wanted) continue;
      // An op over several parameters (a norm) does without those that have no gradient in this step.
      if (op.param_grads_size() > 1) {
        for (v1::OpSlot& slot : *op.mutable_inputs()) {
          auto* vars = slot.mutable_vars();
          vars->erase(
              std::remove_if(vars->begin(), vars->end(), [&](const std::string& var) { return !there.contains(var); }),
              vars->end());
        }
      }
      for (const v1::OpSlot& slot : op.outputs()) there.insert(slot.vars().begin(), slot.vars().end());
      *ops.Add() = std::move(op);
    }
    block->mutable_ops()->Swap(&ops);
    return program;
  }

  void UpdateTable(RowTable* table, const std::map<int64_t, std::vector<float>>& gradients, int64_t samples) {
    if (table->rule == nullptr) return;
    const float rate = std::get<Tensor>(*scope_.Find(table->learning_rate)).data<float>()[0];
    for (const auto& [id, gradient] : gradients) {
      if (!table->lifecycle.Admit(id, step_)) continue;
      auto [row, fresh] = table->rows.try_emplace(id);
      if (fresh) row->second = table->Initial(id);
      float* const to = row->second.data();
      const float* const from = gradient.data();
      table->rule->UpdateIds(&id, table->width, rate, static_cast<float>(samples), 1, &to, &from);
      table->values->Round(step_, id, absl::MakeSpan(to, static_cast<size_t>(table->width)));
    }
  }

  const Job& job_;
  ThreadPool* const pool_;
  LossScaler loss_scaler_;
  std::map<std::string, RunningAverage> measured_;  // parameters whose "gradients" are not scaled
  int lanes_ = 1;
  uint64_t seed_ = 1;
  int64_t step_ = 0;
  int64_t updates_run_ = 0;
  bool scheduled_ = false;
  std::set<std::string> counters_;
  Scope scope_;
  StepHealth health_;
  std::map<std::string, RowTable> tables_;
  TableRowSource row_source_;
  std::unique_ptr<Executor> startup_, forward_backward_;
  v1::ProgramDesc updates_;
  std::vector<v1::ParamGrad> pairs_;
  std::vector<std::string> losses_;
  // Ops of updates_ that work on rows of a table, by index.
  std::set<int> row_ops_;
  std::map<std::string, Parameter, std::less<>> parameters_;
  // By the parameters that have a gradient: nearly always all of them.
  std::map<std::set<std::string>, std::unique_ptr<Executor>> updaters_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnsplitRun>> UnsplitRun::Create(const Job& job, ThreadPool* pool) {
  auto run = std::make_unique<UnsplitRunImpl>(job, pool);
  RETURN_IF_ERROR(run->Init());
  return std::unique_ptr<UnsplitRun>(std::move(run));
}

}  // namespace weir
