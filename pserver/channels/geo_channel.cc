#include "pserver/channels/geo_channel.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/lane_tree.h"
#include "glog/logging.h"
#include "pserver/params/server_params.h"
#include "pserver/tables/sparse_table.h"
#include "transpiler/passes/make_replica_program.h"

namespace weir {

namespace {

class GeoChannelImpl : public GeoChannel {
 public:
  explicit GeoChannelImpl(GeoOptions options) : o_(std::move(options)) {}
  absl::Status Init();

  absl::Status BeginStep(int64_t step, bool read_only) override;
  absl::Status PullRows(absl::Span<const TableRows> tables) override;
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override;
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override;
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override;
  absl::Status Receive(const BlockRef& block, Tensor* out) override;
  absl::Status FinishReceives(StepOutcome* outcome) override;
  absl::Status Finish() override;
  int64_t exchanges() const override { return exchanges_; }

 private:
  // Rows that this trainer has changed since the last exchange.
  struct Touched {
    std::vector<int64_t> ids;
    absl::flat_hash_map<int64_t, size_t> place_of;  // in ids
    void Add(absl::Span<const int64_t> more) {
      for (const int64_t id : more) {
        if (place_of.emplace(id, ids.size()).second) ids.push_back(id);
      }
    }
    void Clear() {
      ids.clear();
      place_of.clear();
    }
  };
  struct Block {
    BlockRef ref;   // its block on the server
    int width = 0;  // > 0: differences go by row
    Shape dims;
    Tensor base;
    Tensor send;  // difference, or null
    SelectedRows rows;
    Tensor pulled;
    Touched touched;  // width > 0
  };
  // Rows of a table that this trainer has pulled.
  struct Table {
    std::string name;
    int width = 0;
    SparseTable* copy = nullptr;   // null: nothing updates the table, and `base` has its rows
    std::vector<float> new_state;  // of a row that has never been updated
    absl::flat_hash_map<int64_t, size_t> place_of;
    std::vector<float> base;        // [rows, width]
    std::vector<int64_t> exchange;  // number of the newest exchange that the row includes
    Touched touched;
    SelectedRows rows;
    std::vector<float> pulled;
  };

  // Lane in the tree of the copy, which has one trainer and, without lanes, one leaf.
  LaneRange Leaf(int lane) const { return {o_.main.plan().lanes() == 0 ? 0 : lane, 1}; }
  bool FromServers() const { return read_only_ || finished_; }
  void AddTable(std::string name, int width, SparseTable* copy);
  absl::StatusOr<Table*> FindTable(std::string_view name);
  absl::Status ReadRows(const Table& table, absl::Span<const int64_t> ids, float* rows);
  absl::Status FetchRows(absl::Span<const TableRows> tables);
  absl::Status Look(absl::Span<const TableRows> tables);
  absl::Status Exchange();
  absl::Status SendDifferences();
  void BlockDifference(int index);
  absl::Status TableDifference(int index);
  absl::Status TakeServersValues();

  const GeoOptions o_;
  int64_t every_steps_ = 1;  // between two exchanges
  int lane_ = 0;             // lane under which differences are sent
  float trainers_ = 1;
  std::unique_ptr<ServerParams> copy_;
  std::vector<Block> blocks_;  // in the order of copy_'s blocks
  std::vector<Table> tables_;  // those of copy_ in its order, then those that nothing updates
  std::map<std::string, size_t, std::less<>> table_index_;
  std::map<std::string, BlockRef, std::less<>> refs_;

  bool read_only_ = false;
  bool finished_ = false;
  int64_t step_ = 0;
  int64_t steps_since_ = 0;  // the last exchange
  int64_t exchanges_ = 0;
  int64_t samples_ = 0;
  bool skipped_ = false;
  std::vector<std::pair<int, Tensor*>> wanted_;

  Mutex mu_;
  std::vector<Gradient> gradients_ ABSL_GUARDED_BY(mu_);
};

absl::Status GeoChannelImpl::Init() {
  CHECK(o_.servers != nullptr && o_.pool != nullptr);
  ASSIGN_OR_RETURN(const Programs own, MakeReplicaProgram(o_.main, o_.startup, o_.trainer_id));
  every_steps_ = ModeOf(o_.main).geo().every_steps();
  ASSIGN_OR_RETURN(copy_, ServerParams::Create(own.main, own.startup, /*server_id=*/0, o_.pool));
  RETURN_IF_ERROR(copy_->AdvanceSchedules(o_.first_step));
  const v1::Plan& plan = o_.main.plan();
  lane_ = LanesOfTrainer(plan.lanes(), plan.trainers(), o_.trainer_id).begin;
  trainers_ = static_cast<float>(plan.trainers());
  blocks_.resize(static_cast<size_t>(copy_->blocks()));
  for (const v1::PlacedBlock& placed : plan.blocks()) {
    const int index = copy_->FindBlock(placed.name());
    CHECK_GE(index, 0) << placed.name();
    Block& block = blocks_[static_cast<size_t>(index)];
    block.ref = {placed.name(), placed.server(), placed.element_count()};
    block.width = copy_->block(index).sparse_width;
    block.dims.assign(placed.dims().begin(), placed.dims().end());
    block.base.Resize(v1::FLOAT32, block.dims);
    copy_->CopyBlock(index, 0, block.ref.count, block.base.data<float>(), /*reader=*/0);
  }
  for (int t = 0; t < copy_->tables(); ++t) {
    SparseTable& table = copy_->table(t);
    AddTable(table.name(), table.width(), &table);
  }
  for (const v1::PlacedTable& placed : plan.tables()) {
    if (!table_index_.contains(placed.name())) AddTable(placed.name(), placed.width(), /*copy=*/nullptr);
  }
  return absl::OkStatus();
}

void GeoChannelImpl::AddTable(std::string name, int width, SparseTable* copy) {
  table_index_[name] = tables_.size();
  Table& table = tables_.emplace_back();
  table.name = std::move(name);
  table.width = width;
  table.copy = copy;
  if (copy == nullptr) return;
  table.new_state.resize(static_cast<size_t>(copy->state_width()));
  if (copy->rule() != nullptr) copy->rule()->InitState(width, table.new_state.data());
}

absl::Status GeoChannelImpl::BeginStep(int64_t step, bool read_only) {
  read_only_ = read_only;
  wanted_.clear();
  RETURN_IF_ERROR(o_.servers->BeginStep(step, read_only));
  if (read_only) return absl::OkStatus();
  step_ = step;
  MutexLock lock(&mu_);
  gradients_.clear();
  return absl::OkStatus();
}

// --------------------------------------------------------------------------------------------------------------- rows

absl::StatusOr<GeoChannelImpl::Table*> GeoChannelImpl::FindTable(std::string_view name) {
  const auto found = table_index_.find(name);
  if (found == table_index_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has no table ", std::string(name)));
  }
  return &tables_[found->second];
}

// Copies the rows that the trainer has; the others are undefined.
absl::Status GeoChannelImpl::ReadRows(const Table& table, absl::Span<const int64_t> ids, float* rows) {
  if (table.copy != nullptr) return table.copy->Pull(ids, /*create=*/false, rows, o_.pool);
  const size_t width = static_cast<size_t>(table.width);
  for (size_t r = 0; r < ids.size(); ++r) {
    const auto place = table.place_of.find(ids[r]);
    if (place == table.place_of.end()) continue;
    std::copy_n(table.base.data() + place->second * width, width, rows + r * width);
  }
  return absl::OkStatus();
}

absl::Status GeoChannelImpl::PullRows(absl::Span<const TableRows> tables) {
  if (finished_) return o_.servers->PullRows(tables);
  if (read_only_) return Look(tables);
  RETURN_IF_ERROR(FetchRows(tables));
  for (const TableRows& rows : tables) {
    ASSIGN_OR_RETURN(const Table* table, FindTable(rows.table));
    RETURN_IF_ERROR(ReadRows(*table, *rows.ids, rows.rows));
  }
  return absl::OkStatus();
}

// Brings rows of the copy up to the last exchange. A row that nothing updates is fetched once.
absl::Status GeoChannelImpl::FetchRows(absl::Span<const TableRows> tables) {
  std::vector<std::vector<int64_t>> ids(tables.size());
  std::vector<std::vector<float>> values(tables.size());
  std::vector<TableRows> pulls;
  for (size_t i = 0; i < tables.size(); ++i) {
    ASSIGN_OR_RETURN(const Table* table, FindTable(tables[i].table));
    for (const int64_t id : *tables[i].ids) {
      const auto place = table->place_of.find(id);
      const bool known = place != table->place_of.end();
      if (!known || (table->copy != nullptr && table->exchange[place->second] < exchanges_)) ids[i].push_back(id);
    }
    if (ids[i].empty()) continue;
    values[i].resize(ids[i].size() * static_cast<size_t>(table->width));
    pulls.push_back({.table = table->name, .width = table->width, .ids = &ids[i], .rows = values[i].data()});
  }
  if (pulls.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(o_.servers->PullRows(pulls));
  for (size_t i = 0; i < tables.size(); ++i) {
    if (ids[i].empty()) continue;
    ASSIGN_OR_RETURN(Table * table, FindTable(tables[i].table));
    const size_t width = static_cast<size_t>(table->width);
    std::vector<int64_t> fresh, known;
    std::vector<float> rows, changes;
    for (size_t r = 0; r < ids[i].size(); ++r) {
      const float* const now = values[i].data() + r * width;
      const auto [place, is_new] = table->place_of.emplace(ids[i][r], table->exchange.size());
      if (is_new) {
        fresh.push_back(ids[i][r]);
        rows.insert(rows.end(), now, now + width);
        rows.insert(rows.end(), table->new_state.begin(), table->new_state.end());
        table->base.insert(table->base.end(), now, now + width);
        table->exchange.push_back(exchanges_);
        continue;
      }
      // Adds the change on the servers since the last pull, which keeps the trainer's own changes in the copy.
      known.push_back(ids[i][r]);
      float* const base = table->base.data() + place->second * width;
      for (size_t j = 0; j < width; ++j) changes.push_back(now[j] - base[j]);
      std::copy(now, now + width, base);
      table->exchange[place->second] = exchanges_;
    }
    if (table->copy == nullptr) continue;
    RETURN_IF_ERROR(table->copy->SetRows(fresh, rows.data()));
    RETURN_IF_ERROR(table->copy->AddToValues(known, changes.data()));
  }
  return absl::OkStatus();
}

// Pulls rows for an evaluation: rows of the copy as they are, others from the servers. Keeps nothing.
absl::Status GeoChannelImpl::Look(absl::Span<const TableRows> tables) {
  std::vector<std::vector<int64_t>> ids(tables.size());
  std::vector<std::vector<size_t>> places(tables.size());
  std::vector<std::vector<float>> values(tables.size());
  std::vector<TableRows> pulls;
  for (size_t i = 0; i < tables.size(); ++i) {
    ASSIGN_OR_RETURN(const Table* table, FindTable(tables[i].table));
    for (size_t r = 0; r < tables[i].ids->size(); ++r) {
      const int64_t id = (*tables[i].ids)[r];
      if (table->place_of.contains(id)) continue;
      ids[i].push_back(id);
      places[i].push_back(r);
    }
    RETURN_IF_ERROR(ReadRows(*table, *tables[i].ids, tables[i].rows));
    if (ids[i].empty()) continue;
    values[i].resize(ids[i].size() * static_cast<size_t>(table->width));
    pulls.push_back({.table = table->name, .width = table->width, .ids = &ids[i], .rows = values[i].data()});
  }
  if (pulls.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(o_.servers->PullRows(pulls));
  for (size_t i = 0; i < tables.size(); ++i) {
    const size_t width = static_cast<size_t>(tables[i].width);
    for (size_t r = 0; r < ids[i].size(); ++r) {
      std::memcpy(tables[i].rows + places[i][r] * width, values[i].data() + r * width, width * sizeof(float));
    }
  }
  return absl::OkStatus();
}

// ----------------------------------------------------------------------------------------------------------- gradients

absl::Status GeoChannelImpl::SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) {
  if (read_only_)
    return absl::FailedPreconditionError(absl::StrCat("block ", block.name, ": a read-only step sends nothing"));
  const int index = copy_->FindBlock(block.name);
  if (index < 0) return absl::InvalidArgumentError(absl::StrCat("the plan has no block ", block.name));
  std::vector<Gradient> gradients;
  for (const LaneTensor& lane : lanes) {
    if (lane.value == nullptr || !lane.value->initialized()) continue;  // absent, not zero
    if (lane.value->size() != copy_->block(index).count) {
      return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, " has ", lane.value->size(),
                                                     " elements, the block has ", copy_->block(index).count));
    }
    Gradient& gradient = gradients.emplace_back();
    gradient.target = index;
    gradient.node = Leaf(lane.lane);
    gradient.count = lane.value->size();
    gradient.values = lane.value->data<float>();
  }
  MutexLock lock(&mu_);
  std::move(gradients.begin(), gradients.end(), std::back_inserter(gradients_));
  return absl::OkStatus();
}

absl::Status GeoChannelImpl::SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) {
  if (read_only_)
    return absl::FailedPreconditionError(absl::StrCat("table ", block.name, ": a read-only step sends nothing"));
  const bool of_table = block.server < 0;
  const int index = of_table ? copy_->FindTable(block.name) : copy_->FindBlock(block.name);
  if (index < 0) return absl::InvalidArgumentError(absl::StrCat("the plan has no table or block ", block.name));
  std::vector<Gradient> gradients;
  for (const LaneRows& lane : lanes) {
    const std::vector<int64_t>& ids = lane.value->ids;
    if (ids.empty()) continue;
    Gradient& gradient = gradients.emplace_back();
    gradient.of_table = of_table;
    gradient.target = index;
    gradient.node = Leaf(lane.lane);
    gradient.count = static_cast<int64_t>(ids.size());
    gradient.width = width;
    gradient.values = lane.value->values.data<float>();
    gradient.ids = ids.data();
  }
  o_.pool->ParallelFor(static_cast<int64_t>(gradients.size()), [&](int64_t i) {
    Gradient& gradient = gradients[static_cast<size_t>(i)];
    gradient.order.resize(static_cast<size_t>(gradient.count));
    std::iota(gradient.order.begin(), gradient.order.end(), 0u);
    std::sort(gradient.order.begin(), gradient.order.end(), [ids = gradient.ids](uint32_t a, uint32_t b) {
      return MixId(static_cast<uint64_t>(ids[a])) < MixId(static_cast<uint64_t>(ids[b]));
    });
  });
  // No lock: only one thread sends gradients of a table or block, and only it accesses `touched`.
  Touched& touched =
      of_table ? tables_[static_cast<size_t>(index)].touched : blocks_[static_cast<size_t>(index)].touched;
  for (const LaneRows& lane : lanes) {
    if (of_table) {
      const auto& met = tables_[static_cast<size_t>(index)].place_of;
      for (const int64_t id : lane.value->ids) {
        if (met.contains(id)) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("gradient of ", block.name, ": row ", id, " was not asked for before its gradient came"));
      }
    }
    touched.Add(lane.value->ids);
  }
  MutexLock lock(&mu_);
  std::move(gradients.begin(), gradients.end(), std::back_inserter(gradients_));
  return absl::OkStatus();
}

absl::Status GeoChannelImpl::FinishSends(int64_t samples, v1::Verdict verdict) {
  TrainerGradients own{.trainer = 0, .samples = samples};
  {
    MutexLock lock(&mu_);
    own.gradients = std::move(gradients_);
    gradients_.clear();
  }
  samples_ = samples;
  skipped_ = verdict == v1::SKIP;
  ++steps_since_;
  if (samples == 0 || skipped_) return absl::OkStatus();
  return copy_->Apply(step_, absl::MakeConstSpan(&own, 1));
}

absl::Status GeoChannelImpl::Receive(const BlockRef& block, Tensor* out) {
  const int index = copy_->FindBlock(block.name);
  if (index < 0) return absl::InvalidArgumentError(absl::StrCat("the plan has no block ", block.name));
  if (out->dtype() != v1::FLOAT32 || out->size() != copy_->block(index).count) {
    return absl::InvalidArgumentError(absl::StrCat("block ", block.name, " has ", copy_->block(index).count,
                                                   " floats, the variable ", ShapeString(out->dims())));
  }
  wanted_.emplace_back(index, out);
  return FromServers() ? o_.servers->Receive(block, out) : absl::OkStatus();
}

absl::Status GeoChannelImpl::FinishReceives(StepOutcome* outcome) {
  if (FromServers()) {
    // At the start the copy takes the servers' values. After Finish the copy is not read any more.
    RETURN_IF_ERROR(o_.servers->FinishReceives(outcome));
    for (const auto& [index, out] : wanted_) {
      copy_->SetBlock(index, out->span<float>());
      blocks_[static_cast<size_t>(index)].base.CopyFrom(*out);
    }
    return absl::OkStatus();
  }
  if ((step_ + 1) % every_steps_ == 0) RETURN_IF_ERROR(Exchange());
  o_.pool->ParallelFor(static_cast<int64_t>(wanted_.size()), [&](int64_t i) {
    const auto& [index, out] = wanted_[static_cast<size_t>(i)];
    copy_->CopyBlock(index, 0, out->size(), out->data<float>(), /*reader=*/0);
  });
  if (outcome != nullptr) *outcome = {.version = step_ + 1, .skipped = skipped_, .samples = samples_};
  return absl::OkStatus();
}

absl::Status GeoChannelImpl::Finish() {
  if (steps_since_ > 0) {
    // An evaluation after the last step may have left the channel read-only.
    RETURN_IF_ERROR(BeginStep(step_, /*read_only=*/false));
    RETURN_IF_ERROR(Exchange());
  }
  finished_ = true;
  return absl::OkStatus();
}

// ----------------------------------------------------------------------------------------------------------- exchanges

absl::Status GeoChannelImpl::Exchange() {
  RETURN_IF_ERROR(SendDifferences());
  // The servers divide a push by its samples, so a difference is sent as one sample.
  RETURN_IF_ERROR(o_.servers->FinishSends(/*samples=*/1, v1::APPLY));
  ++exchanges_;
  steps_since_ = 0;
  return TakeServersValues();
}

void GeoChannelImpl::BlockDifference(int index) {
  Block& block = blocks_[static_cast<size_t>(index)];
  float* const base = block.base.data<float>();
  Tensor now(v1::FLOAT32, block.dims);
  copy_->CopyBlock(index, 0, block.ref.count, now.data<float>(), /*reader=*/0);
  const auto difference = [&](int64_t at, float* to) {
    *to = (now.data<float>()[at] - base[at]) / trainers_;
    base[at] += *to;
  };
  if (block.width == 0) {
    block.send.Resize(v1::FLOAT32, block.dims);
    for (int64_t i = 0; i < block.ref.count; ++i) difference(i, block.send.data<float>() + i);
    return;
  }
  block.rows.ids = block.touched.ids;
  block.rows.values.Resize(v1::FLOAT32, {static_cast<int64_t>(block.rows.ids.size()), block.width});
  float* to = block.rows.values.data<float>();
  for (const int64_t id : block.rows.ids) {
    for (int j = 0; j < block.width; ++j) difference(id * block.width + j, to++);
  }
}

absl::Status GeoChannelImpl::TableDifference(int index) {
  Table& table = tables_[static_cast<size_t>(index)];
  const size_t width = static_cast<size_t>(table.width);
  table.rows.ids = table.touched.ids;
  table.rows.values.Resize(v1::FLOAT32, {static_cast<int64_t>(table.rows.ids.size()), table.width});
  float* const values = table.rows.values.data<float>();
  RETURN_IF_ERROR(ReadRows(table, table.rows.ids, values));
  for (size_t r = 0; r < table.rows.ids.size(); ++r) {
    float* const base = table.base.data() + table.place_of.at(table.rows.ids[r]) * width;
    for (size_t j = 0; j < width; ++j) {
      float& difference = values[r * width + j];
      difference = (difference - base[j]) / trainers_;
      base[j] += difference;
    }
  }
  return absl::OkStatus();
}

absl::Status GeoChannelImpl::SendDifferences() {
  const int blocks = copy_->blocks(), tables = copy_->tables();
  Mutex mu;
  absl::Status status;
  o_.pool->ParallelFor(blocks + tables, [&](int64_t i) {
    absl::Status done;
    if (i < blocks) {
      BlockDifference(static_cast<int>(i));
    } else {
      done = TableDifference(static_cast<int>(i) - blocks);
    }
    MutexLock lock(&mu);
    if (status.ok()) status = done;
  });
  RETURN_IF_ERROR(status);
  const auto send_rows = [&](const BlockRef& ref, int width, SelectedRows* rows) -> absl::Status {
    if (rows->ids.empty()) return absl::OkStatus();
    rows->merged = rows->present = true;
    const LaneRows lane{.lane = lane_, .value = rows};
    return o_.servers->SendRows(ref, width, absl::MakeConstSpan(&lane, 1));
  };
  for (Block& block : blocks_) {
    if (block.width > 0) {
      RETURN_IF_ERROR(send_rows(block.ref, block.width, &block.rows));
      continue;
    }
    const LaneTensor lane{.lane = lane_, .value = &block.send};
    RETURN_IF_ERROR(o_.servers->SendDense(block.ref, absl::MakeConstSpan(&lane, 1)));
  }
  for (Table& table : tables_) RETURN_IF_ERROR(send_rows({.name = table.name, .server = -1}, table.width, &table.rows));
  return absl::OkStatus();
}

// Adds to the copy what the other trainers have changed on the servers since the last exchange.
absl::Status GeoChannelImpl::TakeServersValues() {
  for (Block& block : blocks_) {
    block.pulled.Resize(v1::FLOAT32, block.dims);
    RETURN_IF_ERROR(o_.servers->Receive(block.ref, &block.pulled));
  }
  RETURN_IF_ERROR(o_.servers->FinishReceives(nullptr));
  std::vector<TableRows> pulls;
  for (Table& table : tables_) {
    if (table.touched.ids.empty()) continue;
    table.pulled.resize(table.touched.ids.size() * static_cast<size_t>(table.width));
    pulls.push_back(
        {.table = table.name, .width = table.width, .ids = &table.touched.ids, .rows = table.pulled.data()});
  }
  if (!pulls.empty()) RETURN_IF_ERROR(o_.servers->PullRows(pulls));

  o_.pool->ParallelFor(copy_->blocks(), [&](int64_t i) {
    Block& block = blocks_[static_cast<size_t>(i)];
    float* const base = block.base.data<float>();
    float* const pulled = block.pulled.data<float>();
    for (int64_t e = 0; e < block.ref.count; ++e) {
      const float change = pulled[e] - base[e];
      base[e] = pulled[e];
      pulled[e] = change;
    }
    copy_->AddToBlock(static_cast<int>(i), block.pulled.span<float>());
    block.touched.Clear();
  });
  for (Table& table : tables_) {
    if (table.touched.ids.empty()) continue;
    const size_t width = static_cast<size_t>(table.width);
    for (size_t r = 0; r < table.touched.ids.size(); ++r) {
      const size_t place = table.place_of.at(table.touched.ids[r]);
      table.exchange[place] = exchanges_;
      for (size_t j = 0; j < width; ++j) {
        float& base = table.base[place * width + j];
        float& pulled = table.pulled[r * width + j];
        const float change = pulled - base;
        base = pulled;
        pulled = change;
      }
    }
    RETURN_IF_ERROR(table.copy->AddToValues(table.touched.ids, table.pulled.data()));
    table.touched.Clear();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GeoChannel>> GeoChannel::Create(GeoOptions options) {
  auto channel = std::make_unique<GeoChannelImpl>(std::move(options));
  RETURN_IF_ERROR(channel->Init());
  return std::unique_ptr<GeoChannel>(std::move(channel));
}

}  // namespace weir
