#include "framework/checkpoint/start.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/atomic_file.h"
#include "framework/base/printable.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/file.h"
#include "framework/checkpoint/part_copy.h"
#include "framework/checkpoint/source_shards.h"
#include "framework/checkpoint/start_plan_check.h"

namespace weir {
namespace {

// Words of a lifecycle (pserver/tables/lifecycle_rules.cc).
constexpr char kWordPrefix[] = "lifecycle.";
constexpr char kStepWord[] = "lifecycle.step", kSecondWord[] = "lifecycle.second", kCountWord[] = "lifecycle.count",
               kShowsWord[] = "lifecycle.shows", kClicksWord[] = "lifecycle.clicks";
// No table has more logical shards (SparseTable::Create).
constexpr int32_t kMostShards = 1 << 20;

bool Has(const google::protobuf::RepeatedPtrField<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const v1::DenseStart* FindDense(const v1::StartPlan& plan, std::string_view variable) {
  for (const v1::DenseStart& dense : plan.dense()) {
    if (dense.variable() == variable) return &dense;
  }
  return nullptr;
}

const v1::TableStart* FindTable(const v1::StartPlan& plan, std::string_view table) {
  for (const v1::TableStart& start : plan.tables()) {
    if (start.table() == table) return &start;
  }
  return nullptr;
}

// A piece of the targets, and what the plan says of its variable.
struct HeldPiece {
  const LoadPlan::Dense* piece = nullptr;
  const v1::DenseStart* start = nullptr;
  // Returns whether the part gives this piece something.
  bool TakesFrom(const v1::DensePart& part) const {
    const std::string& state = piece->piece.state_name;
    return state.empty() || Has(part.states(), state);
  }
};

struct HeldTable {
  const StartTargets::Table* table = nullptr;
  const v1::TableStart* start = nullptr;
  const TableLayout& layout() const { return table->rows.layout; }
};

// Columns and state of a row of a checkpoint, and where they go in a row of this job: in floats.
struct RowMap {
  struct Run {
    size_t to = 0, from = 0, count = 0;
  };
  std::vector<Run> runs;
  // Columns that get initial values.
  struct Range {
    int begin = 0, end = 0;
  };
  std::vector<Range> initial;
  int step_to = -1, step_from = -1;  // -1: no step is taken
  size_t floats = 0, from_floats = 0;
};

// Adds a run, or makes the last one longer.
void AddRun(size_t to, size_t from, size_t count, std::vector<RowMap::Run>* runs) {
  if (!runs->empty() && runs->back().to + runs->back().count == to && runs->back().from + runs->back().count == from) {
    runs->back().count += count;
  } else {
    runs->push_back({to, from, count});
  }
}

// Maps the state of a row. `from_states`: of the checkpoint.
void MapState(const TableLayout& layout, const v1::TablePart& part,
              const std::vector<std::pair<std::string, int>>& from_states, RowMap* map) {
  const bool same_columns = layout.width == part.width() && part.columns_size() == 1 && part.columns(0).to() == 0 &&
                            part.columns(0).from() == 0 && part.columns(0).count() == layout.width;
  size_t to = static_cast<size_t>(layout.width);
  for (const auto& [name, width] : layout.states) {
    size_t from = static_cast<size_t>(part.width());
    for (const auto& [from_name, from_width] : from_states) {
      const bool word = absl::StartsWith(name, kWordPrefix);
      if (from_name == name && (word || part.state())) {
        if (name == kStepWord && width == 1 && from_width == 1) {
          map->step_to = static_cast<int>(to);
          map->step_from = static_cast<int>(from);
        }
        const bool by_column = width == layout.width && from_width == part.width();
        if (width == from_width && (same_columns || !by_column)) {
          AddRun(to, from, static_cast<size_t>(width), &map->runs);
        } else if (by_column) {
          for (const v1::AxisRun& run : part.columns()) {
            AddRun(to + static_cast<size_t>(run.to()), from + static_cast<size_t>(run.from()),
                   static_cast<size_t>(run.count()), &map->runs);
          }
        }
      }
      from += static_cast<size_t>(from_width);
    }
    to += static_cast<size_t>(width);
  }
}

// Adds columns [begin, end) without those that begin with 0.
void AddInitial(int begin, int end, const v1::TableStart& start, std::vector<RowMap::Range>* ranges) {
  const int zero_begin = std::clamp(start.zero_begin(), begin, end),
            zero_end = std::clamp(start.zero_end(), begin, end);
  if (zero_begin >= zero_end) {
    if (begin < end) ranges->push_back({begin, end});
    return;
  }
  if (begin < zero_begin) ranges->push_back({begin, zero_begin});
  if (zero_end < end) ranges->push_back({zero_end, end});
}

RowMap MapRow(const HeldTable& held, const v1::TablePart& part,
              const std::vector<std::pair<std::string, int>>& from_states) {
  const TableLayout& layout = held.layout();
  RowMap map;
  int column = 0;
  for (const v1::AxisRun& run : part.columns()) {
    AddInitial(column, static_cast<int>(run.to()), *held.start, &map.initial);
    AddRun(static_cast<size_t>(run.to()), static_cast<size_t>(run.from()), static_cast<size_t>(run.count()), &map.runs);
    column = static_cast<int>(run.to() + run.count());
  }
  AddInitial(column, layout.width, *held.start, &map.initial);
  MapState(layout, part, from_states, &map);
  map.floats = static_cast<size_t>(layout.width) + static_cast<size_t>(layout.state_width());
  map.from_floats = static_cast<size_t>(part.width());
  for (const auto& [name, width] : from_states) map.from_floats += static_cast<size_t>(width);
  return map;
}

std::vector<std::pair<std::string, int>> StatesOf(const v1::TableEntry& e) {
  std::vector<std::pair<std::string, int>> states;
  for (int i = 0; i < std::min(e.state_names_size(), e.state_widths_size()); ++i) {
    states.emplace_back(e.state_names(i), e.state_widths(i));
  }
  return states;
}

// Returns an entry of a table in a checkpoint; null: it has none.
const v1::TableEntry* FindEntry(const v1::CheckpointManifest& manifest, std::string_view table) {
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    for (const v1::TableEntry& e : shard.tables()) {
      if (e.table() == table) return &e;
    }
  }
  return nullptr;
}

// Returns the names of the words of the candidates of a table in a checkpoint, which holds all names but the first.
// LifecycleRules adds [count] [step] [second] [shows clicks]; a row has a step for its candidates' sake or for its
// tombstone's. Empty: there are none, or the first could be either of two.
std::vector<std::string> CandidateWords(const v1::CheckpointManifest& manifest, const std::string& table) {
  const v1::TableEntry* const rows = FindEntry(manifest, table);
  const v1::TableEntry* const candidates = FindEntry(manifest, absl::StrCat(table, "@candidates"));
  if (rows == nullptr || candidates == nullptr || candidates->width() != 1) return {};
  const bool tombstones = FindEntry(manifest, absl::StrCat(table, "@tombstones")) != nullptr;
  const bool shows = Has(rows->state_names(), kShowsWord), step = Has(rows->state_names(), kStepWord);
  std::vector<std::string> words;
  if (Has(rows->state_names(), kSecondWord)) words.push_back(kSecondWord);
  if (shows) words.insert(words.end(), {kShowsWord, kClicksWord});
  const auto size = static_cast<size_t>(candidates->state_names_size()) + 1;
  if (size == words.size() + 2) {
    words.insert(words.begin(), {kCountWord, kStepWord});
  } else if (size == words.size() + 1) {
    // Without scores ids are admitted by their count.
    if (step && tombstones && shows) return {};
    words.insert(words.begin(), step && !tombstones ? kStepWord : kCountWord);
  }
  if (words.size() != size || !std::equal(words.begin() + 1, words.end(), candidates->state_names().begin())) return {};
  return words;
}

std::vector<std::string> MemoryWords(const v1::CheckpointManifest& manifest, const std::string& table,
                                     const std::string& suffix) {
  if (suffix == "@candidates") return CandidateWords(manifest, table);
  const v1::TableEntry* const entry = FindEntry(manifest, absl::StrCat(table, suffix));
  if (entry == nullptr || entry->width() != 1 || entry->state_names_size() != 0) return {};
  return {kStepWord};
}

// Turns a step, as a word, into its distance from `end`. Later ones count as just used.
void Rebase(int64_t end, float* word) {
  uint32_t step;
  std::memcpy(&step, word, sizeof(step));
  const uint32_t relative = step - static_cast<uint32_t>(end);
  step = static_cast<int32_t>(relative) > 0 ? 0 : relative;
  std::memcpy(word, &step, sizeof(step));
}

class Starter {
 public:
  Starter(absl::Span<const StartCheckpoint> checkpoints, const v1::StartPlan& plan, const StartTargets& targets)
      : checkpoints_(checkpoints), plan_(plan) {
    for (const LoadPlan::Dense& piece : targets.dense) {
      if (const v1::DenseStart* start = FindDense(plan, piece.piece.variable)) pieces_.push_back({&piece, start});
    }
    for (const StartTargets::Table& table : targets.tables) {
      if (const v1::TableStart* start = FindTable(plan, table.rows.layout.table)) tables_.push_back({&table, start});
    }
  }

  absl::Status Run() {
    RETURN_IF_ERROR(CheckTargets());
    for (const HeldTable& held : tables_) RETURN_IF_ERROR(CheckTable(held));
    dense_names_.resize(checkpoints_.size());
    for (const HeldPiece& held : pieces_) {
      for (const v1::DensePart& part : held.start->parts()) {
        if (held.TakesFrom(part)) dense_names_[static_cast<size_t>(part.source())].insert(part.variable());
      }
    }
    for (int s = 0; s < plan_.sources_size(); ++s) {
      ASSIGN_OR_RETURN(
          SourceShards opened,
          SourceShards::Open(checkpoints_[static_cast<size_t>(s)].directory,
                             checkpoints_[static_cast<size_t>(s)].manifest,
                             {.wants = [this, s](const auto& shard) { return Wants(s, shard); }, .need_all = true}));
      sources_.push_back(std::move(opened));
    }
    for (const HeldPiece& held : pieces_) {
      for (const v1::DensePart& part : held.start->parts()) {
        if (held.TakesFrom(part)) RETURN_IF_ERROR(FindPieces(held, part).status());
      }
    }
    for (const HeldPiece& held : pieces_) RETURN_IF_ERROR(FillPiece(held));
    for (const HeldTable& held : tables_) RETURN_IF_ERROR(FillTable(held));
    return absl::OkStatus();
  }

 private:
  const v1::CheckpointManifest& manifest(int source) const {
    return checkpoints_[static_cast<size_t>(source)].manifest;
  }
  const std::string& directory(int source) const { return checkpoints_[static_cast<size_t>(source)].directory; }

  absl::Status CheckTargets() const {
    std::map<std::string_view, std::set<std::string_view>> held_states;
    for (const HeldPiece& held : pieces_) {
      const DensePiece& piece = held.piece->piece;
      held_states[piece.variable].insert(piece.state_name);
      if (!piece.state_name.empty()) continue;
      if (std::equal(held.start->dims().begin(), held.start->dims().end(), piece.whole_dims.begin(),
                     piece.whole_dims.end())) {
        continue;
      }
      return absl::FailedPreconditionError(absl::StrCat("start plan: ", VariableText(piece.variable, ""), " is ",
                                                        DimsText(held.start->dims()), " in the plan and ",
                                                        DimsText(piece.whole_dims), " in this job"));
    }
    for (const auto& [variable, states] : held_states) {
      // A parameter that is never updated here has no state: it is frozen, or trainers update it.
      if (states.size() == 1) continue;
      for (const v1::DensePart& part : FindDense(plan_, variable)->parts()) {
        for (const std::string& state : part.states()) {
          if (states.count(state) > 0) continue;
          return absl::FailedPreconditionError(absl::StrCat("start plan: takes ", VariableText(variable, state),
                                                            ", which the optimizer of this job does not have"));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckTable(const HeldTable& held) const {
    const TableLayout& layout = held.layout();
    if (held.start->zero_end() > layout.width) {
      return absl::FailedPreconditionError(absl::StrCat("start plan: table '", layout.table,
                                                        "' has zero columns up to ", held.start->zero_end(),
                                                        " and width ", layout.width));
    }
    for (const v1::TablePart& part : held.start->parts()) {
      const int columns = part.columns_size();
      if (columns > 0 && part.columns(columns - 1).to() + part.columns(columns - 1).count() > layout.width) {
        return absl::FailedPreconditionError(
            absl::StrCat("start plan: table '", layout.table, "' has width ", layout.width, ", and its columns are ",
                         "given up to ", part.columns(columns - 1).to() + part.columns(columns - 1).count()));
      }
      RETURN_IF_ERROR(CheckEntries(part));
    }
    return absl::OkStatus();
  }

  // Checks the entries of a table in a checkpoint, whose manifest may contradict itself.
  absl::Status CheckEntries(const v1::TablePart& part) const {
    const v1::TableEntry* first = nullptr;
    for (const v1::CheckpointShard& shard : manifest(part.source()).shards()) {
      for (const v1::TableEntry& e : shard.tables()) {
        if (e.table() != part.table()) continue;
        if (e.width() != part.width()) {
          return absl::FailedPreconditionError(absl::StrCat("table '", part.table(), "' has width ", e.width(),
                                                            " in checkpoint ", directory(part.source()), " and ",
                                                            part.width(), " in the start plan"));
        }
        if (first == nullptr) first = &e;
        if (StatesOf(e) != StatesOf(*first) || e.state_names_size() != e.state_widths_size()) {
          return absl::DataLossError(
              absl::StrCat(directory(part.source()), ": table '", e.table(), "' has two layouts"));
        }
      }
    }
    if (first != nullptr) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", directory(part.source()), " has no table '", part.table(), "'"));
  }

  static bool EntryWanted(const v1::TableEntry& e, const HeldTable& held) {
    const TableLayout& layout = held.layout();
    if (e.row_count() == 0) return false;
    // Shards of another number are elsewhere.
    if (e.logical_shards() != layout.logical_shards || e.logical_shards() > kMostShards || e.shard_begin() < 0 ||
        e.shard_end() > e.logical_shards()) {
      return true;
    }
    return HoldsWanted(e, held.table->rows.wants);
  }

  // Returns true if a shard of a checkpoint holds something for the targets.
  bool Wants(int source, const v1::CheckpointShard& shard) const {
    const std::set<std::string>& names = dense_names_[static_cast<size_t>(source)];
    for (const v1::DenseEntry& e : shard.dense()) {
      if (names.contains(e.has_state_of() ? e.state_of() : e.variable())) return true;
    }
    for (const HeldTable& held : tables_) {
      for (const v1::TablePart& part : held.start->parts()) {
        if (part.source() != source) continue;
        for (const v1::TableEntry& e : shard.tables()) {
          const bool named =
              e.table() == part.table() ||
              std::any_of(held.table->memories.begin(), held.table->memories.end(),
                          [&](const auto& memory) { return e.table() == absl::StrCat(part.table(), memory.suffix); });
          if (named && EntryWanted(e, held)) return true;
        }
      }
    }
    return false;
  }

  // ----------------------------------------------------------------------------------------------------------- dense

  // State that a parameter keeps for each row, in place of each element: [rows, floats of a row].
  static bool ByRows(const HeldPiece& held, const v1::DensePart& part, const v1::DenseEntry& e) {
    const DensePiece& piece = held.piece->piece;
    return !piece.state_name.empty() && piece.whole_dims.size() == 2 && e.whole_dims_size() == 2 &&
           held.start->dims_size() > 0 && piece.whole_dims[0] == held.start->dims(0) &&
           e.whole_dims(0) == part.dims(0) && piece.whole_dims[1] == e.whole_dims(1);
  }
  static bool ByElements(const HeldPiece& held, const v1::DensePart& part, const v1::DenseEntry& e) {
    const DensePiece& piece = held.piece->piece;
    return std::equal(held.start->dims().begin(), held.start->dims().end(), piece.whole_dims.begin(),
                      piece.whole_dims.end()) &&
           std::equal(part.dims().begin(), part.dims().end(), e.whole_dims().begin(), e.whole_dims().end());
  }

  // Returns the pieces of a checkpoint that a part takes from, or an error that says what it has instead.
  absl::StatusOr<const std::vector<SourceShards::Piece>*> FindPieces(const HeldPiece& held,
                                                                     const v1::DensePart& part) const {
    const SourceShards& source = sources_[static_cast<size_t>(part.source())];
    const DensePiece& piece = held.piece->piece;
    const std::string what = VariableText(part.variable(), piece.state_name);
    const SourceShards::States* const states = source.Find(part.variable());
    const auto found = states == nullptr ? SourceShards::States::const_iterator() : states->find(piece.state_name);
    if (states == nullptr || found == states->end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("checkpoint ", directory(part.source()), " has no ", what, ", which the start plan takes"));
    }
    for (const SourceShards::Piece& each : found->second) {
      const v1::DenseEntry& e = each.entry();
      if (e.scalar() != piece.scalar) {
        return absl::FailedPreconditionError(absl::StrCat(what, " is ", piece.scalar ? "a scalar" : "an array",
                                                          " in this job and not so in checkpoint ",
                                                          directory(part.source())));
      }
      if (piece.scalar ? e.element_count() == static_cast<int64_t>(held.piece->out.size())
                       : ByElements(held, part, e) || ByRows(held, part, e)) {
        continue;
      }
      if (piece.scalar) {
        return absl::FailedPreconditionError(absl::StrCat(what, " has ", held.piece->out.size(),
                                                          " floats in this job and ", e.element_count(),
                                                          " in checkpoint ", directory(part.source())));
      }
      return absl::FailedPreconditionError(absl::StrCat(
          what, " is ", DimsText(e.whole_dims()), " in checkpoint ", directory(part.source()),
          "; the start plan takes ", DimsText(part.dims()), " for ", DimsText(piece.whole_dims), " of this job"));
    }
    return &found->second;
  }

  absl::Status FillPiece(const HeldPiece& held) const {
    const DensePiece& piece = held.piece->piece;
    const absl::Span<float> out = held.piece->out;
    for (const v1::DensePart& part : held.start->parts()) {
      if (!held.TakesFrom(part)) continue;
      const SourceShards& source = sources_[static_cast<size_t>(part.source())];
      ASSIGN_OR_RETURN(const std::vector<SourceShards::Piece>* pieces, FindPieces(held, part));
      // In async the blocks of a parameter may have different ones. The first one is there in every cut.
      if (piece.scalar) return pieces->front().reader->ReadDense(pieces->front().index, 0, out);
      const std::string what = VariableText(part.variable(), piece.state_name);
      const PartCopy::Read read = [&](int64_t begin, absl::Span<float> to) {
        return source.Read(*pieces, what, begin, to);
      };
      const v1::DenseEntry& entry = pieces->front().entry();
      if (ByElements(held, part, entry)) {
        RETURN_IF_ERROR(PartCopy(PartCopy::AxesOf(part, held.start->dims()), read).Fill(piece.element_begin, out));
        continue;
      }
      std::vector<PartCopy::Axis> axes = PartCopy::AxesOf(part, held.start->dims());
      const int64_t row = entry.whole_dims(1);
      axes.resize(1);
      axes.push_back({.to_dim = row, .from_dim = row, .runs = {{0, 0, row}}});
      if (row == 0) axes.back().runs.clear();
      RETURN_IF_ERROR(PartCopy(std::move(axes), read).Fill(piece.element_begin, out));
    }
    if (!piece.state_name.empty()) return absl::OkStatus();
    for (const v1::DenseZeros& zeros : held.start->zeros()) {
      RETURN_IF_ERROR(
          PartCopy(PartCopy::AxesOf(zeros, held.start->dims()), PartCopy::Zeros()).Fill(piece.element_begin, out));
    }
    return absl::OkStatus();
  }

  // ---------------------------------------------------------------------------------------------------------- tables

  // Calls visit(ids, rows, step) with the entries of `table` in a checkpoint that may hold ids of `held`; `step`: of
  // the rows' end.
  template <typename Visit>
  absl::Status VisitEntries(const HeldTable& held, int source, const std::string& table, const Visit& visit) const {
    for (const auto& reader : sources_[static_cast<size_t>(source)].readers()) {
      const v1::CheckpointShard& shard = reader->shard();
      const int64_t end = shard.has_table_steps() ? shard.table_steps() : manifest(source).step();
      for (int i = 0; i < shard.tables_size(); ++i) {
        if (shard.tables(i).table() != table || !EntryWanted(shard.tables(i), held)) continue;
        RETURN_IF_ERROR(reader->ReadTable(
            i, [&](absl::Span<const int64_t> ids, absl::Span<const float> rows) { return visit(ids, rows, end); }));
      }
    }
    return absl::OkStatus();
  }

  absl::Status FillTable(const HeldTable& held) const {
    RETURN_IF_ERROR(held.table->begin(held.start->zero_begin(), held.start->zero_end()));
    const int parts = held.start->parts_size();
    // Ids of rows that were added, where later parts or memories may have them, too.
    absl::flat_hash_set<int64_t> seen;
    for (int p = 0; p < parts; ++p) {
      const bool note = parts > 1 && (p + 1 < parts || !held.table->memories.empty());
      RETURN_IF_ERROR(FillRows(held, held.start->parts(p), note, &seen));
    }
    for (const StartTargets::Table::Memory& memory : held.table->memories) {
      absl::flat_hash_set<int64_t> seen_here = seen;
      for (const v1::TablePart& part : held.start->parts()) {
        if (MemoryWords(manifest(part.source()), part.table(), memory.suffix) != memory.words) continue;
        RETURN_IF_ERROR(FillMemory(held, part, memory, parts > 1, &seen_here));
      }
    }
    return absl::OkStatus();
  }

  // Adds the rows of a part, without the ids in `seen`. `note`: adds their ids to it.
  absl::Status FillRows(const HeldTable& held, const v1::TablePart& part, bool note,
                        absl::flat_hash_set<int64_t>* seen) const {
    const TableLayout& layout = held.layout();
    const auto shards = static_cast<uint32_t>(layout.logical_shards);
    const RowMap map = MapRow(held, part, StatesOf(*FindEntry(manifest(part.source()), part.table())));
    // A row before columns and state are taken.
    std::vector<float> fresh(map.floats, 0.0f);
    std::copy(held.table->initial_state.begin(), held.table->initial_state.end(), fresh.begin() + layout.width);
    const bool whole = map.runs.size() == 1 && map.runs[0].to == 0 && map.runs[0].count == map.floats;
    std::vector<int64_t> mine;
    std::vector<float> my_rows;
    return VisitEntries(
        held, part.source(), part.table(),
        [&](absl::Span<const int64_t> ids, absl::Span<const float> rows, int64_t end) {
          mine.clear();
          my_rows.resize(ids.size() * map.floats);
          float* to = my_rows.data();
          for (size_t i = 0; i < ids.size(); ++i) {
            if (!held.table->rows.wants(LogicalShard(ids[i], shards))) continue;
            if (note ? !seen->insert(ids[i]).second : seen->contains(ids[i])) continue;
            mine.push_back(ids[i]);
            const float* const from = rows.data() + i * map.from_floats;
            if (!whole) std::memcpy(to, fresh.data(), map.floats * sizeof(float));
            for (const RowMap::Run& run : map.runs)
              std::memcpy(to + run.to, from + run.from, run.count * sizeof(float));
            if (map.step_to >= 0) Rebase(end, to + map.step_to);
            to += map.floats;
          }
          if (mine.empty()) return absl::OkStatus();
          for (const RowMap::Range& range : map.initial) {
            held.table->initial_values(mine, range.begin, range.end, my_rows.data() + range.begin, map.floats);
          }
          return held.table->rows.add(mine, absl::MakeConstSpan(my_rows).first(mine.size() * map.floats));
        });
  }

  absl::Status FillMemory(const HeldTable& held, const v1::TablePart& part, const StartTargets::Table::Memory& memory,
                          bool note, absl::flat_hash_set<int64_t>* seen) const {
    const auto shards = static_cast<uint32_t>(held.layout().logical_shards);
    const size_t size = memory.words.size();
    const auto step = std::find(memory.words.begin(), memory.words.end(), kStepWord);
    std::vector<int64_t> mine;
    std::vector<float> words;
    return VisitEntries(
        held, part.source(), absl::StrCat(part.table(), memory.suffix),
        [&](absl::Span<const int64_t> ids, absl::Span<const float> rows, int64_t end) {
          if (rows.size() != ids.size() * size) {
            return absl::DataLossError(
                absl::StrCat(directory(part.source()), ": '", part.table(), memory.suffix, "' has two layouts"));
          }
          mine.clear();
          words.clear();
          for (size_t i = 0; i < ids.size(); ++i) {
            if (!held.table->rows.wants(LogicalShard(ids[i], shards))) continue;
            if (note && !seen->insert(ids[i]).second) continue;
            mine.push_back(ids[i]);
            words.insert(words.end(), rows.begin() + i * size, rows.begin() + (i + 1) * size);
            if (step == memory.words.end()) continue;
            Rebase(end, words.data() + words.size() - size + static_cast<size_t>(step - memory.words.begin()));
          }
          return mine.empty() ? absl::OkStatus() : memory.add(mine, words);
        });
  }

  const absl::Span<const StartCheckpoint> checkpoints_;
  const v1::StartPlan& plan_;
  std::vector<HeldPiece> pieces_;
  std::vector<HeldTable> tables_;
  // Parameters that the pieces take something of, by checkpoint.
  std::vector<std::set<std::string>> dense_names_;
  std::vector<SourceShards> sources_;
};

}  // namespace

absl::StatusOr<std::vector<StartCheckpoint>> FindStartCheckpoints(const std::vector<std::string>& start_from,
                                                                  const v1::StartPlan& plan,
                                                                  const std::string& process) {
  if (static_cast<size_t>(plan.sources_size()) != start_from.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run starts from ", plan.sources_size(), " checkpoints, and the job of ", process, " has ",
                     start_from.size(), " start_from: give all processes the same job"));
  }
  std::vector<StartCheckpoint> found;
  for (int i = 0; i < plan.sources_size(); ++i) {
    const v1::StartSource& source = plan.sources(i);
    RETURN_IF_ERROR(CheckFileName(source.name()));
    std::string path = start_from[static_cast<size_t>(i)];
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    if (path.substr(path.rfind('/') + 1) != source.name()) absl::StrAppend(&path, "/", source.name());
    const bool none = !PathExists(path);
    absl::StatusOr<v1::CheckpointManifest> manifest;
    if (!none) {
      manifest = ReadManifest(path);
      RETURN_IF_ERROR(manifest.status());
    }
    if (none || ManifestIdentity(*manifest) != source.manifest()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the run starts from ", Printable(source.directory()), "/", source.name(), ", and ", process,
                       ", which reads start_from[", i, "] of its own job, has ", none ? "none at " : "another one at ",
                       path, ": give every process a directory in which it sees the checkpoint"));
    }
    found.push_back({path, *std::move(manifest)});
  }
  return found;
}

absl::Status StartFromCheckpoints(absl::Span<const StartCheckpoint> sources, const v1::StartPlan& plan,
                                  const StartTargets& targets) {
  if (static_cast<size_t>(plan.sources_size()) != sources.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("start plan: has ", plan.sources_size(), " checkpoints, and ", sources.size(), " are there"));
  }
  RETURN_IF_ERROR(CheckStartPlan(plan));
  return Starter(sources, plan, targets).Run();
}

}  // namespace weir
