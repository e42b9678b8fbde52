#include "trainer/verify/unsplit_tables.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/initial_value.h"
#include "framework/runtime/row_rule.h"
#include "framework/runtime/row_values.h"
#include "framework/runtime/table_update.h"
#include "transpiler/base/programs.h"

namespace weir {
namespace {

// Time at which rows come and go, as docs/tables.md says it, id by id: counts the steps in which each was there.
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

  // Notes that the id is in the step. Returns whether it has a row from now on.
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

  // Removes and returns the rows that go at the border after the step.
  std::vector<int64_t> EndStep(int64_t step) {
    std::vector<int64_t> gone;
    const int64_t ttl = settings.ttl_steps(), period = std::clamp<int64_t>(ttl / 4, 1, shards);
    const auto expired = [&](const std::pair<const int64_t, Seen>& each) {
      return ttl > 0 && Shard(each.first) % period == step % period && step - each.second.step >= ttl;
    };
    for (const auto& each : rows) {
      if (expired(each)) gone.push_back(each.first);
    }
    std::erase_if(candidates, expired);
    for (int64_t id : gone) rows.erase(id);
    if (evicts()) {
      const std::vector<int64_t> evicted = Evict(&rows);
      gone.insert(gone.end(), evicted.begin(), evicted.end());
      Evict(&candidates);
    }
    for (int64_t id : gone) {
      if (settings.tombstones()) tombstones[id] = static_cast<uint32_t>(step);
    }
    return gone;
  }

  int64_t Shard(int64_t id) const { return static_cast<int64_t>(LogicalShard(id, static_cast<uint32_t>(shards))); }

  // Removes and returns ids of full shards.
  std::vector<int64_t> Evict(std::map<int64_t, Seen>* seen) const {
    const int64_t most = std::max<int64_t>(1, capacity / shards);
    std::map<int64_t, std::vector<std::tuple<uint32_t, uint32_t, int64_t>>> by_shard;
    for (const auto& [id, s] : *seen) by_shard[Shard(id)].emplace_back(least_frequent() ? s.count : 0, s.step, id);
    std::vector<int64_t> evicted;
    for (auto& [of, all] : by_shard) {
      if (static_cast<int64_t>(all.size()) <= most) continue;
      std::sort(all.begin(), all.end());
      const size_t go = all.size() - static_cast<size_t>(most - most / 16);
      for (size_t i = 0; i < go; ++i) evicted.push_back(std::get<2>(all[i]));
    }
    for (int64_t id : evicted) seen->erase(id);
    return evicted;
  }

  // Returns the words that servers keep beside a row, as bits.
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

}  // namespace

struct UnsplitTables::Table {
  int width = 0;
  int shards = 1;
  std::unique_ptr<RowInitializer> initializer;
  std::unique_ptr<RowValues> values;
  std::unique_ptr<RowRule> rule;
  std::string learning_rate;
  // Ops of the program change the whole gradient before rows are updated.
  bool merged_first = false;
  Rows rows;  // values, state
  RowLifecycle lifecycle;

  std::vector<float> Initial(int64_t id) const {
    std::vector<float> row(static_cast<size_t>(width + (rule == nullptr ? 0 : rule->state_width(width))));
    initializer->Fill(id, absl::MakeSpan(row.data(), static_cast<size_t>(width)));
    if (rule != nullptr) rule->InitState(width, row.data() + width);
    return row;
  }
};

class UnsplitTables::TableRowSource : public RowSource {
 public:
  explicit TableRowSource(const std::map<std::string, std::unique_ptr<Table>>* tables) : tables_(tables) {}

  absl::Status BeginStep(int64_t, bool) override { return absl::OkStatus(); }
  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    for (const TableRows& pull : tables) {
      const auto table = tables_->find(pull.table);
      if (table == tables_->end()) return absl::InvalidArgumentError(absl::StrCat("there is no table ", pull.table));
      const Rows& rows = table->second->rows;
      for (size_t i = 0; i < pull.ids->size(); ++i) {
        const auto row = rows.find((*pull.ids)[i]);
        const std::vector<float> fresh =
            row == rows.end() ? table->second->Initial((*pull.ids)[i]) : std::vector<float>();
        const float* from = row == rows.end() ? fresh.data() : row->second.data();
        std::copy(from, from + pull.width, pull.rows + i * static_cast<size_t>(pull.width));
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::map<std::string, std::unique_ptr<Table>>* const tables_;
};

UnsplitTables::UnsplitTables() : row_source_(std::make_unique<TableRowSource>(&tables_)) {}

UnsplitTables::~UnsplitTables() = default;

absl::Status UnsplitTables::Add(const v1::ProgramDesc& main, const v1::VarDesc& var, const Scope& scope) {
  std::unique_ptr<Table>& added = tables_[var.name()];
  added = std::make_unique<Table>();
  Table& table = *added;
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
    return absl::InvalidArgumentError(
        absl::StrCat("table ", var.name(),
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
  ASSIGN_OR_RETURN(TableUpdate update, MakeTableUpdate(var, main.seed(), ops,
                                                       [&scope](const std::string& name) { return scope.Find(name); }));
  table.rule = std::move(update.rule);
  *table.initializer = std::move(update.initializer);
  return absl::OkStatus();
}

int UnsplitTables::width(const std::string& name) const { return tables_.at(name)->width; }
int UnsplitTables::shards(const std::string& name) const { return tables_.at(name)->shards; }
bool UnsplitTables::IsMergedFirst(const std::string& name) const { return tables_.at(name)->merged_first; }
bool UnsplitTables::SkipsRows(const std::string& name) const {
  const Table& table = *tables_.at(name);
  return table.rule != nullptr && table.rule->skips_rows();
}

void UnsplitTables::Update(const std::string& name, const Rows& gradients, int64_t samples, int64_t step,
                           const Scope& scope) {
  Table& table = *tables_.at(name);
  if (table.rule == nullptr) return;
  // The program's own ops have divided a gradient that they took whole.
  const float divisor = static_cast<float>(table.merged_first ? 1 : samples);
  const float rate = std::get<Tensor>(*scope.Find(table.learning_rate)).data<float>()[0];
  for (const auto& [id, gradient] : gradients) {
    if (!table.lifecycle.Admit(id, step)) continue;
    auto [row, fresh] = table.rows.try_emplace(id);
    if (fresh) row->second = table.Initial(id);
    float* const to = row->second.data();
    const float* const from = gradient.data();
    table.rule->UpdateIds(&id, table.width, rate, divisor, 1, &to, &from);
    table.values->Round(step, id, absl::MakeSpan(to, static_cast<size_t>(table.width)));
  }
}

void UnsplitTables::EndStep(int64_t step) {
  for (auto& [name, table] : tables_) {
    for (int64_t id : table->lifecycle.EndStep(step)) table->rows.erase(id);
  }
}

void UnsplitTables::AddDigests(DigestTable* digests) const {
  for (const auto& [name, table] : tables_) {
    VariableDigester digester(name, table->shards);
    const size_t width = static_cast<size_t>(table->width);
    for (const auto& [id, values] : table->rows) {
      std::vector<float> row = values;
      const std::vector<float> words = table->lifecycle.Words(id);
      row.insert(row.end(), words.begin(), words.end());
      digester.AddRow(id, absl::MakeConstSpan(row.data(), width),
                      absl::MakeConstSpan(row.data() + width, row.size() - width));
    }
    (*digests)[name] = digester.sum();
    table->lifecycle.Digest(name, digests);
  }
}

}  // namespace weir
