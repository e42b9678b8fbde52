#include "framework/checkpoint/start.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "framework/checkpoint/start_plan_check.h"
#include "google/protobuf/text_format.h"
#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Random = std::mt19937_64;
int64_t Below(Random* random, int64_t n) { return static_cast<int64_t>((*random)() % static_cast<uint64_t>(n)); }

int64_t CountOf(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

// A parameter with state "moment" of its elements, "rows" of two floats for each row, and the scalar "steps".
struct Parameter {
  std::vector<int64_t> dims;
  std::vector<float> values, moment, rows;
  float steps = 0;

  static Parameter Make(const std::vector<int64_t>& dims, Random* random) {
    Parameter p{.dims = dims, .steps = static_cast<float>(Below(random, 1000))};
    for (int64_t i = 0; i < CountOf(dims); ++i) {
      p.values.push_back(static_cast<float>(Below(random, 1 << 20)));
      p.moment.push_back(-static_cast<float>(Below(random, 1 << 20)));
    }
    for (int64_t i = 0; i < 2 * dims[0]; ++i) p.rows.push_back(static_cast<float>(Below(random, 1 << 20)));
    return p;
  }
  int64_t row() const { return CountOf(dims) / std::max<int64_t>(1, dims[0]); }
  // Piece of rows [first, last), or of state of it.
  DensePiece Piece(const std::string& name, int64_t first, const std::string& state) const {
    DensePiece piece{.variable = name, .whole_dims = dims, .element_begin = first * row(), .state_name = state};
    piece.scalar = state == "steps";
    if (state == "rows") {
      piece.whole_dims = {dims[0], 2};
      piece.element_begin = first * 2;
    }
    return piece;
  }
  // Elements of that piece.
  absl::Span<float> Part(int64_t first, int64_t last, const std::string& state) {
    if (state == "steps") return absl::MakeSpan(&steps, 1);
    const int64_t each = state == "rows" ? 2 : row();
    std::vector<float>& all = state == "rows" ? rows : state == "moment" ? moment : values;
    return absl::MakeSpan(all).subspan(static_cast<size_t>(first * each), static_cast<size_t>((last - first) * each));
  }
};
const char* const kStates[] = {"", "moment", "rows", "steps"};

using Model = std::map<std::string, Parameter>;

// Rows [cuts[s], cuts[s + 1]) of each parameter are in shard s.
std::vector<int64_t> Cuts(int64_t rows, int shards, Random* random) {
  std::vector<int64_t> cuts = {0, rows};
  for (int s = 1; s < shards; ++s) cuts.push_back(Below(random, rows + 1));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

StartCheckpoint SaveModel(const std::string& dir, Model model, int shards, Random* random) {
  std::map<std::string, std::vector<int64_t>> cuts;
  for (const auto& [name, p] : model) cuts[name] = Cuts(p.dims[0], shards, random);
  const std::string name = *BeginCheckpoint(dir, 100);
  v1::CheckpointManifest manifest;
  manifest.set_job("old");
  manifest.set_step(100);
  for (int s = 0; s < shards; ++s) {
    auto writer = *ShardWriter::Create(absl::StrCat(dir, "/", name, "/", ShardFileName(s)));
    for (auto& [variable, p] : model) {
      const int64_t first = cuts[variable][static_cast<size_t>(s)], last = cuts[variable][static_cast<size_t>(s) + 1];
      if (first == last) continue;
      for (const char* state : kStates) {
        EXPECT_TRUE(writer->AddDense(p.Piece(variable, first, state), p.Part(first, last, state)).ok());
      }
    }
    *manifest.add_shards() = *writer->Finish();
  }
  const std::string path = *PublishCheckpoint(dir, name, manifest);
  return {path, *ReadManifest(path)};
}

// Up to `most` runs into [begin, end), from [0, from_dim).
v1::AxisMap RandomMap(int64_t begin, int64_t end, int64_t from_dim, int most, Random* random) {
  v1::AxisMap map;
  int64_t at = begin;
  for (int r = 0; r < most && at < end; ++r) {
    const int64_t to = at + (Below(random, 2) == 0 ? 0 : Below(random, end - at));
    const int64_t count = 1 + Below(random, std::min(end - to, from_dim));
    v1::AxisRun* const run = map.add_runs();
    run->set_to(to);
    run->set_count(count);
    run->set_from(Below(random, from_dim - count + 1));
    at = to + count;
  }
  return map;
}

// Returns the index that a map gives for `to`; -1: none.
int64_t From(const v1::AxisMap& map, int64_t to) {
  for (const v1::AxisRun& run : map.runs()) {
    if (to >= run.to() && to < run.to() + run.count()) return run.from() + (to - run.to());
  }
  return -1;
}

// Sets `out` as a plan says, an element at a time.
void Reference(const v1::DenseStart& start, const std::vector<Model>& sources, Parameter* out) {
  bool scalar_taken = false;
  for (const v1::DensePart& part : start.parts()) {
    const Parameter& from = sources[static_cast<size_t>(part.source())].at(part.variable());
    const bool moment = std::count(part.states().begin(), part.states().end(), "moment") > 0;
    const bool rows = std::count(part.states().begin(), part.states().end(), "rows") > 0;
    if (std::count(part.states().begin(), part.states().end(), "steps") > 0 && !scalar_taken) {
      out->steps = from.steps;
      scalar_taken = true;
    }
    bool mapped = true;
    for (const v1::AxisMap& axis : part.axes()) mapped &= axis.runs_size() > 0;
    for (int64_t e = 0; e < CountOf(out->dims); ++e) {
      int64_t rest = e, stride = 1, there = 0;
      bool taken = true;
      for (int k = static_cast<int>(out->dims.size()) - 1; k >= 0; --k) {
        const int64_t index = From(part.axes(k), rest % out->dims[static_cast<size_t>(k)]);
        rest /= out->dims[static_cast<size_t>(k)];
        taken &= index >= 0;
        there += index * stride;
        stride *= from.dims[static_cast<size_t>(k)];
      }
      if (!taken) continue;
      out->values[static_cast<size_t>(e)] = from.values[static_cast<size_t>(there)];
      if (moment) out->moment[static_cast<size_t>(e)] = from.moment[static_cast<size_t>(there)];
    }
    for (int64_t r = 0; rows && r < out->dims[0]; ++r) {
      const int64_t index = From(part.axes(0), r);
      for (int64_t j = 0; index >= 0 && j < 2; ++j) {
        out->rows[static_cast<size_t>(2 * r + j)] = from.rows[static_cast<size_t>(2 * index + j)];
      }
    }
  }
  for (const v1::DenseZeros& zeros : start.zeros()) {
    for (int64_t e = 0; e < CountOf(out->dims); ++e) {
      int64_t rest = e;
      bool zero = true;
      for (int k = static_cast<int>(out->dims.size()) - 1; k >= 0; --k) {
        const int64_t index = rest % out->dims[static_cast<size_t>(k)];
        rest /= out->dims[static_cast<size_t>(k)];
        zero &= std::any_of(zeros.axes(k).ranges().begin(), zeros.axes(k).ranges().end(), [&](const auto& range) {
          return index >= range.begin() && index < range.begin() + range.count();
        });
      }
      if (zero) out->values[static_cast<size_t>(e)] = 0;
    }
  }
}

v1::DenseStart RandomStart(const Parameter& p, const std::vector<Model>& sources, Random* random) {
  v1::DenseStart start;
  start.mutable_dims()->Assign(p.dims.begin(), p.dims.end());
  const int64_t middle = Below(random, p.dims[0] + 1);
  for (const bool second : {false, true}) {
    // Apart on the first axis.
    const int64_t begin = second ? middle : 0, end = second ? p.dims[0] : middle;
    const int source = static_cast<int>(Below(random, static_cast<int64_t>(sources.size())));
    const std::string name = absl::StrCat("p", p.dims.size());
    const Parameter& from = sources[static_cast<size_t>(source)].at(name);
    v1::DensePart part;
    part.set_source(source);
    part.set_variable(name);
    part.mutable_dims()->Assign(from.dims.begin(), from.dims.end());
    for (size_t k = 0; k < p.dims.size(); ++k) {
      const bool whole = k > 0 && from.dims[k] == p.dims[k] && Below(random, 3) > 0;
      v1::AxisMap* const map = part.add_axes();
      *map = RandomMap(k == 0 ? begin : 0, k == 0 ? end : p.dims[k], from.dims[k],
                       1 + static_cast<int>(Below(random, 4)), random);
      if (!whole) continue;
      map->clear_runs();
      v1::AxisRun* const run = map->add_runs();
      run->set_to(0);
      run->set_from(0);
      run->set_count(p.dims[k]);
    }
    for (const char* state : {"moment", "rows", "steps"}) {
      if (Below(random, 3) > 0) part.add_states(state);
    }
    if (part.axes(0).runs_size() > 0) *start.add_parts() = part;
  }
  for (int64_t z = Below(random, 3); z > 0; --z) {
    v1::DenseZeros* const zeros = start.add_zeros();
    for (const int64_t dim : p.dims) {
      v1::AxisRanges* const ranges = zeros->add_axes();
      for (int64_t r = Below(random, 3); r > 0; --r) {
        v1::AxisRange* const range = ranges->add_ranges();
        range->set_begin(Below(random, dim));
        range->set_count(Below(random, dim - range->begin() + 1));
      }
    }
  }
  return start;
}

// Fills a model through targets that are cut into blocks of rows, as servers hold them, a call for each.
absl::Status FillInBlocks(const std::vector<StartCheckpoint>& sources, const v1::StartPlan& plan, int servers,
                          Random* random, Model* model) {
  std::map<std::string, std::vector<int64_t>> cuts;
  for (const auto& [name, p] : *model) cuts[name] = Cuts(p.dims[0], servers, random);
  for (int s = 0; s < servers; ++s) {
    StartTargets targets;
    // Every owner of a block has scalars of its own.
    std::vector<std::pair<float*, std::unique_ptr<float>>> scalars;
    for (auto& [name, p] : *model) {
      const int64_t first = cuts[name][static_cast<size_t>(s)], last = cuts[name][static_cast<size_t>(s) + 1];
      if (first == last) continue;
      for (const char* state : kStates) {
        absl::Span<float> out = p.Part(first, last, state);
        if (std::string(state) == "steps") {
          scalars.emplace_back(&p.steps, std::make_unique<float>(p.steps));
          out = absl::MakeSpan(scalars.back().second.get(), 1);
        }
        targets.dense.push_back({p.Piece(name, first, state), out});
      }
    }
    RETURN_IF_ERROR(StartFromCheckpoints(sources, plan, targets));
    for (auto& [to, scalar] : scalars) *to = *scalar;
  }
  return absl::OkStatus();
}

void ExpectEqual(const Parameter& a, const Parameter& b, const std::string& what) {
  EXPECT_EQ(a.values, b.values) << what;
  EXPECT_EQ(a.moment, b.moment) << what;
  EXPECT_EQ(a.rows, b.rows) << what;
  EXPECT_EQ(a.steps, b.steps) << what;
}

// Random dims, maps, cuts of both sides and states, against the plain reference.
TEST(StartTest, AnyCutGivesTheElementsThatThePlanSays) {
  Random random(7);
  for (int round = 0; round < 40; ++round) {
    const auto dims = [&](size_t rank) {
      std::vector<int64_t> all;
      // A third of all rounds has rows beyond a window of the reader.
      const bool large = round % 3 == 0;
      for (size_t k = 0; k < rank; ++k) all.push_back(1 + Below(&random, large && k == 0 ? 1500 : 9));
      return all;
    };
    std::vector<Model> sources;
    std::vector<StartCheckpoint> checkpoints;
    v1::StartPlan plan;
    for (int s = 0; s < 2; ++s) {
      Model model;
      for (size_t rank = 1; rank <= 3; ++rank) {
        model[absl::StrCat("p", rank)] = Parameter::Make(dims(rank), &random);
      }
      sources.push_back(model);
      checkpoints.push_back(
          SaveModel(FreshDir(absl::StrCat("start_any", s)), model, 1 + static_cast<int>(Below(&random, 4)), &random));
      plan.add_sources();
    }
    Model expected, filled;
    for (size_t rank = 1; rank <= 3; ++rank) {
      const std::string name = absl::StrCat("q", rank);
      const size_t like = static_cast<size_t>(Below(&random, 2));
      // Half of them differ in the first axis alone.
      std::vector<int64_t> to = dims(rank);
      if (Below(&random, 2) == 0) {
        const std::vector<int64_t>& old = sources[like][absl::StrCat("p", rank)].dims;
        std::copy(old.begin() + 1, old.end(), to.begin() + 1);
      }
      expected[name] = filled[name] = Parameter::Make(to, &random);
      v1::DenseStart start = RandomStart(expected[name], sources, &random);
      start.set_variable(name);
      Reference(start, sources, &expected[name]);
      *plan.add_dense() = start;
    }
    // Not in the plan.
    expected["kept"] = filled["kept"] = Parameter::Make({3, 2}, &random);
    ASSERT_OK(FillInBlocks(checkpoints, plan, 1 + static_cast<int>(Below(&random, 4)), &random, &filled));
    for (const auto& [name, p] : expected) {
      ExpectEqual(p, filled[name], absl::StrCat(name, " in round ", round, ": ", plan.ShortDebugString()));
    }
    if (testing::Test::HasFailure()) return;
  }
}

// ------------------------------------------------------------------------------------------------------------- tables

float Bits(uint32_t word) { return std::bit_cast<float>(word); }

// A table of a checkpoint or of the job under test, with initial value 1000 * column + id.
struct Table {
  TableLayout layout;
  std::map<int64_t, std::vector<float>> rows;
  std::map<int64_t, std::vector<float>> candidates;
  std::vector<std::string> candidate_words;
  int zero_begin = 0, zero_end = 0;
  int begun = 0;

  size_t floats() const { return static_cast<size_t>(layout.width) + static_cast<size_t>(layout.state_width()); }

  StartTargets::Table Target(int server, int servers) {
    StartTargets::Table target;
    target.rows.layout = layout;
    target.rows.wants = [server, servers, n = layout.logical_shards](uint32_t shard) {
      return ShardServer(shard, static_cast<uint32_t>(n), servers) == server;
    };
    target.rows.add = [this](absl::Span<const int64_t> ids, absl::Span<const float> added) -> absl::Status {
      for (size_t i = 0; i < ids.size(); ++i) {
        if (rows.count(ids[i]) > 0) return absl::InternalError(absl::StrCat("row ", ids[i], " came twice"));
        rows[ids[i]] = {added.begin() + i * floats(), added.begin() + (i + 1) * floats()};
      }
      return absl::OkStatus();
    };
    target.begin = [this](int begin, int end) {
      zero_begin = begin;
      zero_end = end;
      ++begun;
      return absl::OkStatus();
    };
    target.initial_values = [](absl::Span<const int64_t> ids, int begin, int end, float* out, size_t stride) {
      for (size_t i = 0; i < ids.size(); ++i) {
        for (int c = begin; c < end; ++c) {
          out[i * stride + static_cast<size_t>(c - begin)] = static_cast<float>(1000 * c + ids[i]);
        }
      }
    };
    target.initial_state.assign(static_cast<size_t>(layout.state_width()), -1.0f);
    if (!candidate_words.empty()) {
      target.memories.push_back(
          {"@candidates", candidate_words, [this](absl::Span<const int64_t> ids, absl::Span<const float> words) {
             const size_t n = candidate_words.size();
             for (size_t i = 0; i < ids.size(); ++i) {
               candidates[ids[i]] = {words.begin() + i * n, words.begin() + (i + 1) * n};
             }
             return absl::OkStatus();
           }});
    }
    return target;
  }
};

StartCheckpoint SaveTables(const std::string& dir, const std::vector<Table>& tables, int shards,
                           std::optional<int64_t> table_steps = std::nullopt) {
  const std::string name = *BeginCheckpoint(dir, 100);
  v1::CheckpointManifest manifest;
  manifest.set_job("old");
  manifest.set_step(100);
  for (int s = 0; s < shards; ++s) {
    auto writer = *ShardWriter::Create(absl::StrCat(dir, "/", name, "/", ShardFileName(s)));
    const auto add = [&](const TableLayout& layout, const std::map<int64_t, std::vector<float>>& rows) {
      const auto n = static_cast<uint32_t>(layout.logical_shards);
      EXPECT_TRUE(writer->BeginTable(layout).ok());
      for (const auto& [id, row] : rows) {
        if (ShardServer(LogicalShard(id, n), n, shards) != s) continue;
        EXPECT_TRUE(writer->AddRow(id, row).ok());
      }
      EXPECT_TRUE(writer->EndTable().ok());
    };
    for (const Table& table : tables) {
      add(table.layout, table.rows);
      if (table.candidate_words.empty()) continue;
      TableLayout layout{.table = table.layout.table + "@candidates", .width = 1};
      layout.logical_shards = table.layout.logical_shards;
      for (size_t i = 1; i < table.candidate_words.size(); ++i) layout.states.emplace_back(table.candidate_words[i], 1);
      add(layout, table.candidates);
    }
    v1::CheckpointShard shard = *writer->Finish();
    if (table_steps.has_value()) shard.set_table_steps(*table_steps);
    *manifest.add_shards() = shard;
  }
  const std::string path = *PublishCheckpoint(dir, name, manifest);
  return {path, *ReadManifest(path)};
}

Table OldTable(const std::string& name, int width, int64_t ids, float base, int logical_shards = 16) {
  Table table{.layout = {.table = name,
                         .width = width,
                         .states = {{"moment", width}, {"count", 1}},
                         .logical_shards = logical_shards}};
  for (int64_t id = 0; id < ids; ++id) {
    std::vector<float> row;
    for (size_t i = 0; i < table.floats(); ++i) row.push_back(base + static_cast<float>(100 * id) + 0.5f * i);
    table.rows[id * 7919 - 20000] = row;
  }
  return table;
}

v1::TablePart* AddPart(const Table& from, int source, v1::TableStart* start,
                       const std::vector<std::array<int64_t, 3>>& columns) {
  v1::TablePart* const part = start->add_parts();
  part->set_source(source);
  part->set_table(from.layout.table);
  part->set_width(from.layout.width);
  for (const auto& [to, at, count] : columns) {
    v1::AxisRun* const run = part->add_columns();
    run->set_to(to);
    run->set_from(at);
    run->set_count(count);
  }
  return part;
}

absl::Status Fill(const std::vector<StartCheckpoint>& sources, const v1::StartPlan& plan, int servers, Table* table) {
  for (int s = 0; s < servers; ++s) {
    StartTargets targets;
    targets.tables.push_back(table->Target(s, servers));
    RETURN_IF_ERROR(StartFromCheckpoints(sources, plan, targets));
  }
  return absl::OkStatus();
}

// 3 columns into 8, of other numbers of logical shards, read by any number of servers.
TEST(StartTest, AWiderTableHasInitialValuesAndZerosBesideItsOldColumns) {
  for (const int logical_shards : {16, 64}) {
    const Table old = OldTable("old", 3, 500, 1);
    const StartCheckpoint checkpoint = SaveTables(FreshDir("start_wide"), {old}, 3);
    v1::StartPlan plan;
    plan.add_sources();
    v1::TableStart* const start = plan.add_tables();
    start->set_table("t");
    start->set_zero_begin(6);
    start->set_zero_end(8);
    // Columns 0 and 1 go to 4 and 5, 2 to 1.
    AddPart(old, 0, start, {{1, 2, 1}, {4, 0, 2}});
    for (const int servers : {1, 3}) {
      Table table = OldTable("t", 8, 0, 0, logical_shards);
      ASSERT_OK(Fill({checkpoint}, plan, servers, &table));
      EXPECT_EQ(table.zero_begin, 6);
      EXPECT_EQ(table.zero_end, 8);
      ASSERT_EQ(table.rows.size(), old.rows.size());
      for (const auto& [id, row] : old.rows) {
        const auto initial = [id = id](int c) { return static_cast<float>(1000 * c + id); };
        EXPECT_THAT(table.rows[id], ElementsAre(initial(0), row[2], initial(2), initial(3), row[0], row[1], 0, 0,  //
                                                -1, row[5], -1, -1, row[3], row[4], -1, -1, row[6]));
      }
    }
  }
}

TEST(StartTest, WithoutStateRowsBeginWithNewState) {
  const Table old = OldTable("old", 2, 50, 1);
  const StartCheckpoint checkpoint = SaveTables(FreshDir("start_stateless"), {old}, 2);
  v1::StartPlan plan;
  plan.add_sources();
  v1::TableStart* const start = plan.add_tables();
  start->set_table("t");
  AddPart(old, 0, start, {{0, 0, 2}})->set_state(false);
  Table table = OldTable("t", 2, 0, 0);
  ASSERT_OK(Fill({checkpoint}, plan, 1, &table));
  for (const auto& [id, row] : old.rows) EXPECT_THAT(table.rows[id], ElementsAre(row[0], row[1], -1, -1, -1));
}

TEST(StartTest, AnotherOptimizersStateIsTakenByNameAndWidth) {
  Table old = OldTable("old", 2, 40, 1);
  old.layout.states = {{"moment", 1}, {"count", 1}, {"velocity", 2}};
  for (auto& [id, row] : old.rows) row.resize(6, 9);
  const StartCheckpoint checkpoint = SaveTables(FreshDir("start_optimizer"), {old}, 2);
  v1::StartPlan plan;
  plan.add_sources();
  v1::TableStart* const start = plan.add_tables();
  start->set_table("t");
  AddPart(old, 0, start, {{0, 0, 2}});
  Table table = OldTable("t", 2, 0, 0);
  ASSERT_OK(Fill({checkpoint}, plan, 2, &table));
  // "moment" has a value for each column here, and one for the row there.
  for (const auto& [id, row] : old.rows) EXPECT_THAT(table.rows[id], ElementsAre(row[0], row[1], -1, -1, row[3]));
}

TEST(StartTest, AnIdOfSeveralPartsHasTheRowOfTheFirst) {
  const Table a = OldTable("a", 2, 300, 1), b = OldTable("b", 2, 600, 500000);
  const StartCheckpoint first = SaveTables(FreshDir("start_a"), {a}, 2),
                        second = SaveTables(FreshDir("start_b"), {b}, 3);
  v1::StartPlan plan;
  plan.add_sources();
  plan.add_sources();
  v1::TableStart* const start = plan.add_tables();
  start->set_table("t");
  AddPart(a, 1, start, {{0, 0, 2}});
  AddPart(b, 0, start, {{0, 0, 2}});
  for (const int servers : {1, 4}) {
    Table table = OldTable("t", 2, 0, 0);
    ASSERT_OK(Fill({second, first}, plan, servers, &table));
    ASSERT_EQ(table.rows.size(), 600u);
    for (const auto& [id, row] : table.rows) EXPECT_EQ(row, a.rows.count(id) > 0 ? a.rows.at(id) : b.rows.at(id));
  }
}

Table WithLifecycle(Table table, const std::vector<uint32_t>& steps) {
  table.layout.states.insert(table.layout.states.end(), {{"lifecycle.count", 1}, {"lifecycle.step", 1}});
  size_t i = 0;
  for (auto& [id, row] : table.rows) {
    row.push_back(Bits(static_cast<uint32_t>(i)));
    row.push_back(Bits(steps[i++ % steps.size()]));
  }
  return table;
}

// Steps beside rows are 32 bits that may have wrapped around.
TEST(StartTest, ARowIsAsOldAtStep0AsItWasAtTheCheckpoint) {
  // Table steps of the shard count, where there are some, and not the step of the manifest.
  for (const std::optional<int64_t> table_steps : {std::optional<int64_t>(), std::optional<int64_t>((1LL << 32) + 4)}) {
    const auto now = static_cast<uint32_t>(table_steps.value_or(100));
    const Table old = WithLifecycle(OldTable("old", 1, 3, 1), {now - 10, now - 1, now + 5});
    const StartCheckpoint checkpoint = SaveTables(FreshDir("start_ages"), {old}, 1, table_steps);
    v1::StartPlan plan;
    plan.add_sources();
    v1::TableStart* const start = plan.add_tables();
    start->set_table("t");
    AddPart(old, 0, start, {{0, 0, 1}})->set_state(false);
    Table table = WithLifecycle(OldTable("t", 1, 0, 0), {0});
    // A word that the old table does not have is new.
    table.layout.states.emplace_back("lifecycle.second", 1);
    ASSERT_OK(Fill({checkpoint}, plan, 1, &table));
    std::vector<uint32_t> steps, counts;
    for (const auto& [id, row] : table.rows) {
      counts.push_back(std::bit_cast<uint32_t>(row[3]));
      steps.push_back(std::bit_cast<uint32_t>(row[4]));
      EXPECT_EQ(row[5], -1);
    }
    EXPECT_THAT(steps, ElementsAre(static_cast<uint32_t>(-10), static_cast<uint32_t>(-1), 0u));
    EXPECT_THAT(counts, ElementsAre(0u, 1u, 2u));
  }
}

TEST(StartTest, CandidatesOfEqualWordsComeAlongWithoutThoseThatHaveRows) {
  const std::vector<std::string> words = {"lifecycle.count", "lifecycle.step"};
  Table a = WithLifecycle(OldTable("a", 1, 4, 1), {90}), b = WithLifecycle(OldTable("b", 1, 2, 1), {90});
  a.candidate_words = b.candidate_words = words;
  a.candidates = {{5, {Bits(2), Bits(95)}}, {6, {Bits(1), Bits(99)}}};
  // Row -20000 is in both, and row -4162 (the third) in the other table alone.
  b.candidates = {{6, {Bits(7), Bits(91)}}, {-4162, {Bits(7), Bits(91)}}, {8, {Bits(3), Bits(92)}}};
  const StartCheckpoint checkpoint = SaveTables(FreshDir("start_candidates"), {a, b}, 2);
  v1::StartPlan plan;
  plan.add_sources();
  v1::TableStart* const start = plan.add_tables();
  start->set_table("t");
  AddPart(a, 0, start, {{0, 0, 1}});
  AddPart(b, 0, start, {{0, 0, 1}});
  Table table = WithLifecycle(OldTable("t", 1, 0, 0), {0});
  table.candidate_words = words;
  ASSERT_OK(Fill({checkpoint}, plan, 2, &table));
  std::map<int64_t, std::pair<uint32_t, int32_t>> found;
  for (const auto& [id, entry] : table.candidates) {
    found[id] = {std::bit_cast<uint32_t>(entry[0]), std::bit_cast<int32_t>(entry[1])};
  }
  const std::map<int64_t, std::pair<uint32_t, int32_t>> expected = {{5, {2, -5}}, {6, {1, -1}}, {8, {3, -8}}};
  EXPECT_EQ(found, expected);

  Table other = WithLifecycle(OldTable("t", 1, 0, 0), {0});
  other.candidate_words = {"lifecycle.step", "lifecycle.second"};
  ASSERT_OK(Fill({checkpoint}, plan, 1, &other));
  EXPECT_TRUE(other.candidates.empty());
}

// ------------------------------------------------------------------------------------------------------ what is wrong

class StartErrorsTest : public testing::Test {
 protected:
  void SetUp() override {
    Random random(3);
    dense_ = SaveModel(FreshDir("start_errors_dense"), {{"w", Parameter::Make({6, 4}, &random)}}, 2, &random);
    old_ = OldTable("old", 3, 20, 1);
    tables_ = SaveTables(FreshDir("start_errors_tables"), {old_}, 2);
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"pb(
                                                                sources {}
                                                                sources {}
                                                                dense {
                                                                  variable: "w"
                                                                  dims: [ 6, 5 ]
                                                                  parts {
                                                                    source: 0
                                                                    variable: "w"
                                                                    dims: [ 6, 4 ]
                                                                    axes { runs { to: 0 from: 0 count: 6 } }
                                                                    axes { runs { to: 1 from: 0 count: 4 } }
                                                                    states: "moment"
                                                                  }
                                                                }
                                                                tables {
                                                                  table: "t"
                                                                  parts {
                                                                    source: 1
                                                                    table: "old"
                                                                    width: 3
                                                                    columns { to: 1 from: 0 count: 3 }
                                                                  }
                                                                }
                                                              )pb",
                                                              &plan_));
  }
  // Runs the plan, after a change of its text. Expects that nothing is written.
  absl::Status Run(const std::function<void(v1::StartPlan*)>& edit) {
    v1::StartPlan plan = plan_;
    edit(&plan);
    Random random(4);
    Parameter w = Parameter::Make({6, 5}, &random);
    const Parameter before = w;
    Table table = OldTable("t", 4, 0, 0);
    StartTargets targets;
    for (const char* state : {"", "moment"}) targets.dense.push_back({w.Piece("w", 0, state), w.Part(0, 6, state)});
    targets.tables.push_back(table.Target(0, 1));
    const absl::Status status = StartFromCheckpoints({dense_, tables_}, plan, targets);
    if (!status.ok()) {
      ExpectEqual(w, before, "after an error");
      EXPECT_EQ(table.begun, 0);
      EXPECT_TRUE(table.rows.empty());
    }
    return status;
  }

  StartCheckpoint dense_, tables_;
  Table old_;
  v1::StartPlan plan_;
};

TEST_F(StartErrorsTest, ThePlanItselfIsCarriedOut) {
  EXPECT_EQ(Run([](v1::StartPlan*) {}), absl::OkStatus());
}

TEST_F(StartErrorsTest, APlanThatContradictsItselfIsRefused) {
  const std::vector<std::function<void(v1::StartPlan*)>> wrong = {
      [](auto* p) { p->mutable_dense(0)->mutable_parts(0)->set_source(2); },
      [](auto* p) { p->mutable_dense(0)->mutable_parts(0)->set_source(-1); },
      [](auto* p) { p->mutable_dense(0)->mutable_parts(0)->mutable_axes()->RemoveLast(); },
      [](auto* p) { p->mutable_dense(0)->mutable_parts(0)->add_dims(1); },
      [](auto* p) { p->mutable_dense(0)->set_dims(0, -6); },
      [](auto* p) { p->mutable_dense(0)->mutable_dims()->Add(INT64_MAX); },
      [](auto* p) {
        for (const int64_t dim : {INT64_MAX, INT64_MAX, int64_t{0}}) p->mutable_dense(0)->add_dims(dim);
      },
      [](auto* p) { p->mutable_dense(0)->mutable_parts(0)->set_dims(1, INT64_MAX); },
      [](auto* p) { p->mutable_dense(0)->mutable_parts(0)->mutable_axes(0)->mutable_runs(0)->set_count(7); },
      [](auto* p) { p->mutable_dense(0)->mutable_parts(0)->mutable_axes(0)->mutable_runs(0)->set_count(0); },
      [](auto* p) { p->mutable_dense(0)->mutable_parts(0)->mutable_axes(0)->mutable_runs(0)->set_to(INT64_MAX); },
      [](auto* p) { p->mutable_dense(0)->mutable_parts(0)->mutable_axes(1)->mutable_runs(0)->set_from(INT64_MIN); },
      [](auto* p) { p->mutable_dense(0)->mutable_parts(0)->mutable_axes(1)->mutable_runs(0)->set_from(1); },
      [](auto* p) {
        *p->mutable_dense(0)->mutable_parts(0)->mutable_axes(0)->add_runs() = p->dense(0).parts(0).axes(0).runs(0);
      },
      [](auto* p) { *p->mutable_dense(0)->add_parts() = v1::DensePart(p->dense(0).parts(0)); },
      [](auto* p) { *p->add_dense() = v1::DenseStart(p->dense(0)); },
      [](auto* p) { *p->add_tables() = v1::TableStart(p->tables(0)); },
      [](auto* p) { p->mutable_dense(0)->add_zeros()->add_axes(); },
      [](auto* p) {
        v1::DenseZeros* const zeros = p->mutable_dense(0)->add_zeros();
        zeros->add_axes();
        zeros->add_axes()->add_ranges()->set_begin(INT64_MAX);
        zeros->mutable_axes(1)->mutable_ranges(0)->set_count(INT64_MAX);
      },
      [](auto* p) { p->mutable_tables(0)->mutable_parts(0)->set_width(0); },
      [](auto* p) { p->mutable_tables(0)->mutable_parts(0)->set_source(9); },
      [](auto* p) { p->mutable_tables(0)->mutable_parts(0)->mutable_columns(0)->set_count(4); },
      [](auto* p) { p->mutable_tables(0)->set_zero_begin(-1); },
      [](auto* p) { p->mutable_tables(0)->set_zero_begin(2); },
      [](auto* p) { p->mutable_sources()->RemoveLast(); },
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_EQ(Run(wrong[i]).code(), absl::StatusCode::kInvalidArgument) << i << ": " << Run(wrong[i]);
  }
}

TEST_F(StartErrorsTest, APlanThatDoesNotFitIsRefusedWithBoth) {
  const auto refusal = [this](const std::function<void(v1::StartPlan*)>& edit) {
    const absl::Status status = Run(edit);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](auto* p) { p->mutable_dense(0)->set_dims(0, 8); }),
              HasSubstr("'w' is [8, 5] in the plan and [6, 5] in this job"));
  EXPECT_THAT(refusal([](auto* p) { p->mutable_dense(0)->mutable_parts(0)->set_dims(0, 7); }),
              HasSubstr("'w' is [6, 4] in checkpoint " + dense_.directory + "; the start plan takes [7, 4]"));
  EXPECT_THAT(refusal([](auto* p) { p->mutable_dense(0)->mutable_parts(0)->set_variable("v"); }),
              HasSubstr("checkpoint " + dense_.directory + " has no 'v'"));
  EXPECT_THAT(refusal([](auto* p) { p->mutable_dense(0)->mutable_parts(0)->add_states("steps"); }),
              HasSubstr("takes state 'steps' of 'w', which the optimizer of this job does not have"));
  EXPECT_THAT(refusal([](auto* p) { p->mutable_tables(0)->mutable_parts(0)->set_table("none"); }),
              HasSubstr("checkpoint " + tables_.directory + " has no table 'none'"));
  EXPECT_THAT(refusal([](auto* p) { p->mutable_tables(0)->mutable_parts(0)->set_width(4); }),
              HasSubstr("table 'old' has width 3 in checkpoint " + tables_.directory + " and 4 in the start plan"));
  EXPECT_THAT(refusal([](auto* p) { p->mutable_tables(0)->mutable_parts(0)->mutable_columns(0)->set_to(2); }),
              HasSubstr("table 't' has width 4, and its columns are given up to 5"));
  EXPECT_THAT(refusal([](auto* p) { p->mutable_tables(0)->set_zero_end(5); }),
              HasSubstr("table 't' has zero columns up to 5 and width 4"));
}

// Such as the parameters of servers whose trainers update them (distribute.geo).
TEST_F(StartErrorsTest, AParameterWithoutStateNeedsNone) {
  Parameter w{.dims = {6, 5}, .values = std::vector<float>(30, -1)};
  StartTargets targets;
  targets.dense.push_back({w.Piece("w", 0, ""), w.Part(0, 6, "")});
  ASSERT_OK(StartFromCheckpoints({dense_, tables_}, plan_, targets));
  EXPECT_EQ(w.values[0], -1);
  EXPECT_GE(w.values[1], 0);
}

TEST_F(StartErrorsTest, ADamagedShardIsFoundBeforeAnythingIsWritten) {
  // The last byte of the second checkpoint.
  FlipBit(tables_.directory + "/" + ShardFileName(1), tables_.manifest.shards(1).file().bytes() - 1);
  const absl::Status status = Run([](v1::StartPlan*) {});
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  // Values of the job come from other shards only.
  EXPECT_EQ(Run([](v1::StartPlan* p) { p->clear_tables(); }), absl::OkStatus());
}

TEST_F(StartErrorsTest, AShardOfAnotherHostIsNamed) {
  tables_.manifest.set_per_host(true);
  std::filesystem::remove(tables_.directory + "/" + ShardFileName(1));
  const absl::Status status = Run([](v1::StartPlan*) {});
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("shard-00001"), HasSubstr("copy the shards")));
}

TEST_F(StartErrorsTest, ACheckpointIsFoundByItsNameAndRefusedIfItIsAnother) {
  v1::StartPlan plan = plan_;
  for (int i = 0; i < 2; ++i) {
    const StartCheckpoint& each = i == 0 ? dense_ : tables_;
    plan.mutable_sources(i)->set_name("step-000000000100");
    plan.mutable_sources(i)->set_manifest(ManifestIdentity(each.manifest));
    plan.mutable_sources(i)->set_directory("/of/the/chief");
  }
  const std::string parent = dense_.directory.substr(0, dense_.directory.rfind('/'));
  // A directory of checkpoints, or of the checkpoint itself.
  const auto found = FindStartCheckpoints({parent, tables_.directory + "/"}, plan, "server 1");
  ASSERT_OK(found.status());
  EXPECT_EQ((*found)[0].directory, dense_.directory);
  EXPECT_EQ((*found)[1].directory, tables_.directory);

  const auto error = [&](const std::vector<std::string>& start_from) {
    const auto status = FindStartCheckpoints(start_from, plan, "server 1").status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error({dense_.directory, dense_.directory}),
              AllOf(HasSubstr("the run starts from /of/the/chief/step-000000000100, and server 1"),
                    HasSubstr("has another one at " + dense_.directory)));
  EXPECT_THAT(error({parent + "/nowhere", tables_.directory}), HasSubstr("has none at " + parent + "/nowhere"));
  EXPECT_THAT(error({parent}), HasSubstr("the job of server 1 has 1 start_from"));
  plan.mutable_sources(0)->set_name("../start_errors_dense");
  EXPECT_FALSE(FindStartCheckpoints({parent, parent}, plan, "server 1").ok());
}

}  // namespace
}  // namespace weir
