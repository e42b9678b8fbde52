#include "tools/reporting/report.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/file.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/shard.h"
#include "framework/runtime/row_values.h"
#include "pserver/tables/lifecycle_rules.h"
#include "tools/reporting/slot_pass.h"
#include "tools/reporting/table_facts.h"
#include "tools/reporting/table_pass.h"
#include "transpiler/job/trained_job.h"

namespace weir {
namespace {

// Least counts that the report tries.
constexpr int64_t kCounts[] = {2, 3, 5, 10};

// Bytes of one row.
struct RowSize {
  int64_t values = 0, state = 0, lifecycle = 0;
  int64_t sum() const { return values + state + lifecycle; }
};

bool IsOfLifecycle(const std::string& state) { return absl::StartsWith(state, "lifecycle."); }

// Size of a row of this layout on a server. State as wide as the row has `width`, too.
RowSize SizeOf(const TableLayout& layout, DType storage, int width) {
  RowSize size{.values = RowValues::BytesOf(storage, width)};
  for (const auto& [name, floats] : layout.states) {
    (IsOfLifecycle(name) ? size.lifecycle : size.state) += 4 * int64_t{floats == layout.width ? width : floats};
  }
  return size;
}

// Table of a checkpoint, with the chunks of its rows.
struct Source {
  TableLayout layout;
  std::vector<TableChunk> chunks;
};

// Shards of a checkpoint, opened.
class Shards {
 public:
  // Checks the sizes of files, and where their entries lie.
  static absl::StatusOr<Shards> Open(const NewestCheckpoint& opened) {
    Shards shards;
    const std::string& directory = opened.found.path;
    for (const v1::CheckpointShard& shard : opened.manifest.shards()) {
      ASSIGN_OR_RETURN(std::unique_ptr<ShardReader> reader, ShardReader::Open(directory, shard, /*check_sum=*/false));
      const int64_t steps = shard.has_table_steps() ? shard.table_steps() : opened.manifest.step();
      for (int i = 0; i < shard.tables_size(); ++i) {
        const v1::TableEntry& e = shard.tables(i);
        TableLayout layout{.table = e.table(), .width = e.width(), .logical_shards = e.logical_shards()};
        for (int s = 0; s < e.state_names_size(); ++s) layout.states.emplace_back(e.state_names(s), e.state_widths(s));
        Source& source = shards.tables_[e.table()];
        if (source.chunks.empty()) source.layout = layout;
        const TableLayout& first = source.layout;
        if (first.width != layout.width || first.states != layout.states ||
            first.logical_shards != layout.logical_shards) {
          return absl::DataLossError(absl::StrCat(directory, ": table '", e.table(), "' has two layouts"));
        }
        source.chunks.push_back({.reader = reader.get(), .entry = i, .steps = steps});
      }
      shards.readers_.push_back(std::move(reader));
    }
    return shards;
  }

  const std::map<std::string, Source>& tables() const { return tables_; }
  const std::vector<std::unique_ptr<ShardReader>>& readers() const { return readers_; }

 private:
  std::vector<std::unique_ptr<ShardReader>> readers_;
  std::map<std::string, Source> tables_;
};

int64_t RowsOf(const std::map<std::string, Source>& tables, const std::string& name) {
  const auto found = tables.find(name);
  int64_t rows = 0;
  if (found == tables.end()) return rows;
  for (const TableChunk& chunk : found->second.chunks) rows += chunk.description().row_count();
  return rows;
}

double Share(double part, double whole) { return whole == 0 ? 0 : part / whole; }

// Turns the seconds of rows into seconds before the last of them, by which quantiles change places.
v1::ColumnFigures SecondsBeforeLast(const v1::ColumnFigures& seconds) {
  v1::ColumnFigures ages = seconds;
  const double last = seconds.max();
  ages.set_mean(last - seconds.mean());
  ages.set_min(0);
  ages.set_p1(last - seconds.p99());
  ages.set_p50(last - seconds.p50());
  ages.set_p99(last - seconds.p1());
  ages.set_max(last - seconds.min());
  return ages;
}

// Makes the report of one table of its totals.
class Reporter {
 public:
  Reporter(const Source& source, const TableFacts& facts, int64_t steps)
      : layout_(source.layout), facts_(facts), size_(SizeOf(layout_, facts.storage(), layout_.width)) {
    if (facts.lifecycle().has_admit_after()) options_.once = std::max<int64_t>(1, facts.lifecycle().admit_after());
    options_.admit_after.assign(std::begin(kCounts), std::end(kCounts));
    if (facts.epochs().has_value()) {
      // A value that is n - 1 times in the data is in no more steps of an epoch.
      const int64_t epochs = std::min(*facts.epochs(), int64_t{1} << 32);
      for (const int64_t n : kCounts) options_.admit_after.push_back(epochs * (n - 1) + 1);
    }
    for (const int64_t part : {16, 8, 4, 2}) {
      const int64_t ttl = steps / part;
      if (ttl > 0 && (options_.ttl_steps.empty() || options_.ttl_steps.back() < ttl)) options_.ttl_steps.push_back(ttl);
    }
    // The state of a row before its first step. Unknown if a part of it is.
    std::vector<float> initial;
    for (const auto& [name, width] : layout_.states) {
      if (IsOfLifecycle(name)) continue;
      const std::optional<float> value = facts.InitialState(name);
      if (!value.has_value()) return;
      initial.insert(initial.end(), static_cast<size_t>(width), *value);
    }
    if (!initial.empty()) options_.initial_state = std::move(initial);
  }

  TablePassOptions* options() { return &options_; }
  // Bytes of a row in the memory of a server.
  int64_t row_bytes() const { return size_.sum(); }

  v1::TableReport Report(const TableTotals& totals) {
    totals_ = &totals;
    report_.set_name(layout_.table);
    report_.set_rows(totals.rows);
    report_.set_width(layout_.width);
    for (const v1::TableReader& reader : facts_.readers()) *report_.add_reader() = reader;
    if (facts_.known()) {
      report_.set_storage(v1::DType_Name(facts_.storage()));
    } else {
      Unknown(
          "storage, slots and settings: the checkpoint has no job that this build can read, or one without this table");
    }
    Bytes();
    report_.set_zero_rows(totals.zero_rows);
    report_.set_not_finite_rows(totals.not_finite_rows);
    Columns();
    Training();
    Hottest();
    Lifecycle();
    Savings();
    return std::move(report_);
  }

 private:
  void Unknown(const std::string& text) { report_.add_unknown(text); }
  const TableColumn& CountColumn() const { return totals_->columns[static_cast<size_t>(totals_->count_column)]; }

  void Bytes() {
    v1::RowBytes* const bytes = report_.mutable_bytes();
    bytes->set_values(totals_->rows * size_.values);
    bytes->set_state(totals_->rows * size_.state);
    bytes->set_lifecycle(totals_->rows * size_.lifecycle);
    bytes->set_in_files(totals_->rows * (8 + 4 * (int64_t{layout_.width} + layout_.state_width())));
  }

  void Columns() {
    bool ages = false;
    for (size_t c = 0; c < totals_->columns.size(); ++c) {
      const TableColumn& column = totals_->columns[c];
      const v1::ColumnFigures& figures = totals_->figures[c];
      switch (column.kind) {
        case TableColumn::kNorm:
          *report_.mutable_norm() = figures;
          break;
        case TableColumn::kStep:
          *report_.mutable_age_steps() = figures;
          ages = true;
          break;
        case TableColumn::kSecond:
          *report_.mutable_age_seconds() = SecondsBeforeLast(figures);
          ages = true;
          break;
        default: {
          v1::StateFigures* const state = report_.add_state();
          state->set_name(column.name);
          state->set_width(static_cast<int32_t>(column.width));
          *state->mutable_figures() = figures;
        }
      }
    }
    if (!ages) {
      Unknown(
          "ages, and what ttl_steps would remove: rows keep their last step with lifecycle.ttl_steps, tombstones, "
          "or an eviction (lifecycle.when_full with dict_size)");
    }
  }

  void Training() {
    v1::RowTraining* const training = report_.mutable_training();
    if (totals_->counts_steps) {
      training->set_by(CountColumn().name);
      training->set_never(totals_->never);
      training->set_at_most_once(totals_->at_most_once);
      return;
    }
    Unknown(
        "rows trained once at most, and what admit_after would remove: rows count their steps with "
        "lifecycle.when_full: EVICT_LEAST_FREQUENT, or with an optimizer of the family of adam");
    if (!options_.initial_state.has_value()) {
      report_.clear_training();
      Unknown(size_.state == 0 ? "rows never trained: they have no state of an optimizer"
                               : "rows never trained: the initial values of their state are not known");
      return;
    }
    std::vector<std::string> names;
    for (const auto& [name, width] : layout_.states) {
      if (!IsOfLifecycle(name)) names.push_back(name);
    }
    training->set_by(absl::StrJoin(names, ", "));
    training->set_never(totals_->never);
  }

  void Hottest() {
    if (totals_->count_column < 0) {
      Unknown("shares of the hottest ids: rows keep no counts");
      return;
    }
    v1::HottestIds* const hottest = report_.mutable_hottest();
    hottest->set_by(CountColumn().name);
    hottest->set_counts(totals_->counts);
    hottest->set_top_1(Share(totals_->top_1, totals_->counts));
    hottest->set_top_100(Share(totals_->top_100, totals_->counts));
    hottest->set_top_percent(Share(totals_->top_percent, totals_->counts));
    hottest->set_error(totals_->counts_exact ? 0 : kClassError);
  }

  v1::WhatIf* Removal(const std::string& setting, int64_t rows) {
    v1::WhatIf* const removal = report_.add_lifecycle();
    removal->set_setting(setting);
    removal->set_rows(rows);
    removal->set_bytes(rows * size_.sum());
    return removal;
  }

  void Lifecycle() {
    if (report_.has_age_steps()) {
      for (size_t i = 0; i < options_.ttl_steps.size(); ++i) {
        Removal(absl::StrCat("lifecycle.ttl_steps=", options_.ttl_steps[i]), totals_->rows_older[i]);
      }
    }
    if (totals_->counts_steps) {
      constexpr size_t kSettings = std::size(kCounts);
      for (size_t i = 0; i < kSettings; ++i) {
        Removal(absl::StrCat("lifecycle.admit_after=", kCounts[i]), totals_->rows_below[i])
            ->set_lost(Share(totals_->counts_below[i], totals_->counts));
      }
      for (size_t i = kSettings; i < options_.admit_after.size(); ++i) {
        Removal(absl::StrCat("data.ids.min_count=", kCounts[i - kSettings]), totals_->rows_below[i]);
      }
    }
    v1::Lifecycle evicting;
    evicting.set_when_full(v1::Lifecycle::EVICT_LEAST_RECENT);
    for (const int64_t part : {2, 4, 8}) {
      const int64_t capacity = totals_->rows / part;
      // Each logical shard needs a part of at least one row.
      if (capacity < layout_.logical_shards || totals_->rows_of_shard.empty()) break;
      const LifecycleRules rules(evicting, /*seed=*/0, layout_.table, capacity,
                                 static_cast<uint32_t>(layout_.logical_shards));
      int64_t going = 0;
      for (const int64_t rows : totals_->rows_of_shard) {
        if (rows > rules.most_in_shard()) going += rows - rules.kept_in_shard();
      }
      Removal(absl::StrCat("dict_size=", capacity), going);
    }
  }

  void Savings() {
    const auto saving = [this](const std::string& setting, const RowSize& size) {
      v1::WhatIf* const saving = report_.add_saving();
      saving->set_setting(setting);
      saving->set_bytes(totals_->rows * (size_.sum() - size.sum()));
      return saving;
    };
    double all = 0;
    for (const double squares : totals_->squares) all += squares;
    for (const int part : {2, 4}) {
      const int width = layout_.width / part;
      if (width == 0) break;
      if (facts_.has_segments()) {
        Unknown("what another width would save: the segments of a row have widths of their own");
        break;
      }
      double cut = 0;
      for (size_t c = static_cast<size_t>(width); c < totals_->squares.size(); ++c) cut += totals_->squares[c];
      saving(absl::StrCat("width=", width), SizeOf(layout_, facts_.storage(), width))->set_squares_cut(Share(cut, all));
    }
    for (const DType storage : {v1::FLOAT16, v1::BFLOAT16}) {
      if (storage == facts_.storage()) continue;
      const RoundingErrors& errors = storage == v1::FLOAT16 ? totals_->errors.float16 : totals_->errors.bfloat16;
      v1::WhatIf* const stored =
          saving(absl::StrCat("storage=", v1::DType_Name(storage)), SizeOf(layout_, storage, layout_.width));
      stored->set_mean_error(Share(errors.sum, static_cast<double>(errors.values)));
      stored->set_max_error(static_cast<double>(errors.max));
      stored->set_beyond(errors.beyond);
    }
  }

  const TableLayout& layout_;
  const TableFacts& facts_;
  const RowSize size_;
  TablePassOptions options_;
  const TableTotals* totals_ = nullptr;
  v1::TableReport report_;
};

// Compares checksums of files on a pool, while its other threads have other work.
class Checksums {
 public:
  // `pool` is borrowed. Tasks that still run when this object is destroyed touch nothing of its.
  Checksums(const std::string& directory, const v1::CheckpointManifest& manifest, ThreadPool* pool)
      : pool_(pool), state_(std::make_shared<State>()) {
    std::vector<v1::CheckpointFile> files;
    for (const v1::CheckpointFile* const file : FilesOf(manifest)) files.push_back(*file);
    {
      MutexLock lock(&state_->mu);
      state_->left = files.size();
    }
    for (v1::CheckpointFile& file : files) {
      std::string path = absl::StrCat(directory, "/", file.name());
      pool->Schedule([state = state_, path = std::move(path), file = std::move(file)] {
        const absl::Status status = Compare(path, file);
        MutexLock lock(&state->mu);
        state->first_error.Update(status);
        if (--state->left == 0) state->ended.SignalAll();
      });
    }
  }

  // Returns the first error, when all have ended. Ends when the disk has given the bytes of the files.
  absl::Status Wait() {
    while (pool_->TryRunOne()) {
    }
    MutexLock lock(&state_->mu);
    while (state_->left > 0) state_->ended.Wait(&state_->mu);
    return state_->first_error;
  }

 private:
  struct State {
    Mutex mu;
    CondVar ended;
    size_t left ABSL_GUARDED_BY(mu) = 0;
    absl::Status first_error ABSL_GUARDED_BY(mu);
  };

  static absl::Status Compare(const std::string& path, const v1::CheckpointFile& file) {
    ASSIGN_OR_RETURN(const std::unique_ptr<FileReader> reader, FileReader::Open(path));
    return CheckFile(*reader, path, file, /*check_sum=*/true);
  }

  ThreadPool* const pool_;
  const std::shared_ptr<State> state_;
};

// Adds the digests of the dense parameters.
absl::Status AddDense(const ShardReader& reader, VariableDigestSum* total) {
  std::vector<float> values;
  for (int i = 0; i < reader.shard().dense_size(); ++i) {
    const v1::DenseEntry& e = reader.shard().dense(i);
    values.resize(static_cast<size_t>(e.element_count()));
    RETURN_IF_ERROR(reader.ReadDense(i, 0, absl::MakeSpan(values)));
    VariableDigester digester(e.has_state_of() ? e.state_of() : e.variable(), 1);
    if (e.scalar()) {
      digester.AddScalarState(e.state_name(), e.element_begin(), values);
    } else if (e.has_state_of()) {
      digester.AddState(e.state_name(), e.element_begin(), values);
    } else {
      digester.AddValues(e.element_begin(), values);
    }
    *total += digester.sum();
  }
  return absl::OkStatus();
}

const SlotUses* UsesOf(const ReportOptions& options, const std::string& table) {
  if (options.slots == nullptr) return nullptr;
  const auto found = options.slots->find(table);
  return found == options.slots->end() ? nullptr : &found->second;
}

}  // namespace

absl::StatusOr<v1::CheckpointReport> ReportOn(const NewestCheckpoint& opened, const ReportOptions& options) {
  const v1::CheckpointManifest& manifest = opened.manifest;
  ASSIGN_OR_RETURN(const Shards shards, Shards::Open(opened));
  const std::map<std::string, Source>& tables = shards.tables();
  if (!options.table.empty() && !tables.contains(options.table)) {
    std::vector<std::string> names;
    names.reserve(tables.size());
    for (const auto& [name, source] : tables) names.push_back(name);
    return absl::NotFoundError(absl::StrCat(opened.found.path, " has no table '", options.table, "'; it has ",
                                            names.empty() ? "none" : absl::StrJoin(names, ", ")));
  }
  const absl::StatusOr<v1::JobConfig> job = manifest.job_text().empty()
                                                ? absl::NotFoundError("the checkpoint has no job")
                                                : ReadTrainedJob(manifest.job_text());
  std::optional<Checksums> checksums;
  if (options.check_sums) checksums.emplace(opened.found.path, manifest, options.pool);
  v1::CheckpointReport report;
  report.set_path(opened.found.path);
  report.set_job(manifest.job());
  report.set_step(manifest.step());
  VariableDigestSum digest;
  for (const auto& [name, source] : tables) {
    if (!options.table.empty() && name != options.table) continue;
    // Candidates and tombstones are tables of their own, without rows: numbers in the report of their table.
    if (options.table.empty() && name.find('@') != std::string::npos) {
      ASSIGN_OR_RETURN(const VariableDigestSum ids, DigestOf(source.layout, source.chunks, options.pool));
      digest += ids;
      continue;
    }
    const TableFacts facts(job, name);
    int64_t steps = 0;
    for (const TableChunk& chunk : source.chunks) steps = std::max(steps, chunk.steps);
    Reporter reporter(source, facts, steps);
    reporter.options()->exact_column = options.exact_column;
    ASSIGN_OR_RETURN(const TableTotals totals,
                     PassOver(source.layout, source.chunks, *reporter.options(), options.pool));
    digest += totals.digest;
    v1::TableReport& table = *report.add_table();
    table = reporter.Report(totals);
    if (const auto* const uses = UsesOf(options, name); uses != nullptr) {
      ASSIGN_OR_RETURN(const std::vector<v1::SlotReport> slots,
                       PassBySlot(source.layout, source.chunks, totals, *reporter.options(), reporter.row_bytes(),
                                  *uses, options.pool));
      for (const v1::SlotReport& slot : slots) *table.add_slot() = slot;
    }
    if (tables.contains(name + "@candidates")) table.set_candidates(RowsOf(tables, name + "@candidates"));
    if (tables.contains(name + "@tombstones")) table.set_tombstones(RowsOf(tables, name + "@tombstones"));
  }
  if (checksums.has_value()) RETURN_IF_ERROR(checksums->Wait());
  if (!options.table.empty()) return report;
  for (const auto& reader : shards.readers()) RETURN_IF_ERROR(AddDense(*reader, &digest));
  if (digest.values != manifest.values_digest() || digest.state != manifest.state_digest()) {
    return absl::DataLossError(absl::StrCat(opened.found.path, ": digests are values=", DigestHex(digest.values),
                                            " state=", DigestHex(digest.state),
                                            ", the manifest says values=", DigestHex(manifest.values_digest()),
                                            " state=", DigestHex(manifest.state_digest())));
  }
  return report;
}

}  // namespace weir
