#include "tools/reporting/report.h"

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/shard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/tables/sparse_table.h"
#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

float Word(uint32_t bits) { return std::bit_cast<float>(bits); }

// Table of a checkpoint to be written.
struct Saved {
  TableLayout layout;
  std::vector<std::pair<int64_t, std::vector<float>>> rows;
};

// Saves tables on one server for each of `shards`, whose rows are divided evenly.
class ReportTest : public ::testing::Test {
 protected:
  std::string Save(const std::vector<Saved>& tables, int shards = 1, v1::CheckpointManifest manifest = {}) {
    const std::string dir = FreshDir(absl::StrCat("report", ++saved_));
    const absl::StatusOr<std::string> name = BeginCheckpoint(dir, 100);
    EXPECT_TRUE(name.ok()) << name.status();
    manifest.set_job("reported");
    manifest.set_step(100);
    for (int s = 0; s < shards; ++s) {
      auto writer = ShardWriter::Create(absl::StrCat(dir, "/", *name, "/", ShardFileName(s)));
      EXPECT_TRUE(writer.ok()) << writer.status();
      for (const Saved& table : tables) {
        EXPECT_TRUE((*writer)->BeginTable(table.layout).ok());
        for (size_t r = static_cast<size_t>(s); r < table.rows.size(); r += static_cast<size_t>(shards)) {
          EXPECT_TRUE((*writer)->AddRow(table.rows[r].first, table.rows[r].second).ok());
        }
        EXPECT_TRUE((*writer)->EndTable().ok());
      }
      v1::CheckpointShard shard = *(*writer)->Finish();
      if (table_steps_ > 0) shard.set_table_steps(table_steps_ + s);
      *manifest.add_shards() = shard;
    }
    const absl::StatusOr<std::string> path = PublishCheckpoint(dir, *name, manifest);
    EXPECT_TRUE(path.ok()) << path.status();
    return *path;
  }

  absl::StatusOr<v1::CheckpointReport> Report(const std::string& path, ReportOptions options = {}) {
    const absl::StatusOr<NewestCheckpoint> opened = OpenCheckpoint(path);
    if (!opened.ok()) return opened.status();
    if (options.pool == nullptr) options.pool = &pool_;
    return ReportOn(*opened, options);
  }
  v1::TableReport OnlyTable(const std::string& path) {
    const absl::StatusOr<v1::CheckpointReport> report = Report(path);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->table_size(), 1);
    return report->table(0);
  }

  static v1::CheckpointManifest OfJob(const std::string& text) {
    v1::CheckpointManifest manifest;
    manifest.set_job_text(text);
    return manifest;
  }

  ThreadPool pool_{"report", 1};
  int64_t table_steps_ = 0;
  int saved_ = 0;
};

const v1::WhatIf* With(const v1::TableReport& table, const std::string& setting) {
  for (const auto* list : {&table.lifecycle(), &table.saving()}) {
    for (const v1::WhatIf& each : *list) {
      if (each.setting() == setting) return &each;
    }
  }
  return nullptr;
}

// Rule of a table whose rows come and go.
class NoUpdate : public RowRule {
 public:
  std::vector<State> states(int) const override { return {}; }
  void InitState(int, float*) const override {}
  void Update(int, float, float, int64_t, float* const*, const float* const*) const override {}
};

// Values [2], and a count and a step of a lifecycle.
Saved Counted(const std::vector<std::pair<uint32_t, uint32_t>>& counts_and_steps) {
  Saved table = {
      .layout = {
          .table = "t", .width = 2, .states = {{"lifecycle.count", 1}, {"lifecycle.step", 1}}, .logical_shards = 1}};
  int64_t id = 0;
  for (const auto& [count, step] : counts_and_steps) {
    table.rows.push_back({id++, {3, 4, Word(count), Word(step)}});
  }
  return table;
}

TEST_F(ReportTest, CountsAndStepsOfALifecycleTellWhatItsSettingsWouldRemove) {
  // The last step before the checkpoint was 99.
  const v1::TableReport table = OnlyTable(Save({Counted({{1, 99}, {2, 98}, {7, 50}, {10, 49}, {0, 0}})}));
  EXPECT_EQ(table.rows(), 5);
  EXPECT_EQ(table.norm().mean(), 5);
  EXPECT_EQ(table.training().by(), "lifecycle.count");
  EXPECT_EQ(table.training().never(), 1);
  EXPECT_EQ(table.training().at_most_once(), 2);
  EXPECT_EQ(table.hottest().counts(), 20);
  EXPECT_EQ(table.hottest().top_1(), 0.5);
  EXPECT_EQ(table.hottest().top_percent(), 0.5);
  EXPECT_EQ(table.hottest().top_100(), 1);
  EXPECT_EQ(table.age_steps().min(), 0);
  EXPECT_EQ(table.age_steps().p50(), 49);
  EXPECT_EQ(table.age_steps().max(), 99);
  ASSERT_NE(With(table, "lifecycle.ttl_steps=50"), nullptr);
  EXPECT_EQ(With(table, "lifecycle.ttl_steps=50")->rows(), 2);
  EXPECT_EQ(With(table, "lifecycle.ttl_steps=50")->bytes(), 2 * (8 + 8));
  ASSERT_NE(With(table, "lifecycle.admit_after=3"), nullptr);
  EXPECT_EQ(With(table, "lifecycle.admit_after=3")->rows(), 3);
  // Of each id the updates before the third: 1 + 2 + 2 + 2 + 0 of 20.
  EXPECT_EQ(With(table, "lifecycle.admit_after=3")->lost(), 7 / 20.0);
  EXPECT_THAT(table.unknown(), ElementsAre(HasSubstr("no job that this build can read")));
}

TEST_F(ReportTest, ARowThatWasAdmittedHadStepsAsACandidate) {
  const std::string job =
      "table { name: 't' width: 2 is_distributed: true dict_size: 9 "
      "lifecycle { admit_after: 4 when_full: EVICT_LEAST_FREQUENT } }";
  const v1::TableReport table = OnlyTable(Save({Counted({{4, 1}, {5, 1}, {0, 0}})}, 1, OfJob(job)));
  EXPECT_EQ(table.training().at_most_once(), 2);
  // Adam counts updates, of which a candidate has none.
  Saved adam = {.layout = {.table = "t", .width = 2, .states = {{"step", 1}}, .logical_shards = 1}};
  adam.rows = {{1, {1, 1, 1}}, {2, {1, 1, 2}}, {3, {1, 1, 4}}};
  EXPECT_EQ(OnlyTable(Save({adam}, 1, OfJob(job))).training().at_most_once(), 1);
}

TEST_F(ReportTest, AValueThatIsRareInTheDataIsInFewStepsOfEachEpoch) {
  const std::string job = "train { epochs: 3 } table { name: 't' width: 2 is_distributed: true }";
  const Saved saved = Counted({{3, 1}, {4, 1}, {6, 1}, {7, 1}});
  const v1::TableReport table = OnlyTable(Save({saved}, 1, OfJob(job)));
  ASSERT_NE(With(table, "data.ids.min_count=2"), nullptr);
  EXPECT_EQ(With(table, "data.ids.min_count=2")->rows(), 1);
  EXPECT_EQ(With(table, "data.ids.min_count=3")->rows(), 3);
  EXPECT_EQ(With(table, "lifecycle.admit_after=5")->rows(), 2);
  const v1::TableReport follows = OnlyTable(Save({saved}, 1, OfJob(job + " data { follow {} }")));
  EXPECT_EQ(With(follows, "data.ids.min_count=2"), nullptr);
}

TEST_F(ReportTest, EvictionRemovesWhatATableWouldRemove) {
  std::vector<std::pair<uint32_t, uint32_t>> rows(200, {1, 7});
  Saved saved = Counted(rows);
  saved.layout.logical_shards = 2;
  const v1::TableReport report = OnlyTable(Save({saved}, 3));
  const v1::WhatIf* const half = With(report, "dict_size=100");
  ASSERT_NE(half, nullptr);

  SparseTableOptions options{.name = "t",
                             .width = 2,
                             .logical_shards = 2,
                             .shard_end = 2,
                             .capacity = 100,
                             .initializer = RowInitializer(v1::Initializer(), /*seed=*/1, "t", v1::FLOAT32)};
  options.rule = std::make_unique<NoUpdate>();
  options.lifecycle.set_when_full(v1::Lifecycle::EVICT_LEAST_RECENT);
  const auto table = SparseTable::Create(std::move(options));
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<int64_t> ids;
  for (const auto& [id, row] : saved.rows) ids.push_back(id);
  const std::vector<float> gradients(400, 0.0f);
  ASSERT_OK((*table)->Update(ids, gradients.data(), 1, 0, nullptr, {.step = 7}));
  for (int s = 0; s < (*table)->stripes(); ++s) ASSERT_OK((*table)->EndStep(s, {.step = 7}));
  EXPECT_EQ(half->rows(), (*table)->counts().evicted);
  EXPECT_GT(half->rows(), 100);
  EXPECT_EQ(With(report, "dict_size=25")->rows(), 200 - 2 * 12);
}

TEST_F(ReportTest, AgesAreFromTheStepsOfTheServerThatHasTheRow) {
  table_steps_ = 1000;
  // Row 0 is on server 0, which has done 1000 steps, row 1 on server 1 with 1001; row 2 wrapped around.
  const v1::TableReport table = OnlyTable(Save({Counted({{1, 999}, {1, 999}, {1, 0xffffffffu}})}, 2));
  EXPECT_EQ(table.age_steps().min(), 0);
  EXPECT_EQ(table.age_steps().p50(), 1);
  EXPECT_EQ(table.age_steps().max(), 1000);
  EXPECT_NE(With(table, "lifecycle.ttl_steps=500"), nullptr);
}

TEST_F(ReportTest, SecondsAreBeforeTheMostRecentRow) {
  Saved table = {.layout = {.table = "t", .width = 1, .states = {{"lifecycle.second", 1}}, .logical_shards = 1}};
  for (const uint32_t second : {1'700'000'100u, 1'700'000'003u, 1'700'000'000u}) {
    table.rows.push_back({second, {1, Word(second)}});
  }
  const v1::TableReport report = OnlyTable(Save({table}));
  EXPECT_EQ(report.age_seconds().min(), 0);
  EXPECT_EQ(report.age_seconds().p50(), 97);
  EXPECT_EQ(report.age_seconds().max(), 100);
  EXPECT_FALSE(report.has_age_steps());
}

TEST_F(ReportTest, RowsOfZerosAndRowsWithoutAFiniteNumberAreCounted) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Saved table = {.layout = {.table = "t", .width = 2, .states = {{"moment", 2}}, .logical_shards = 16}};
  table.rows = {{1, {0, -0.0f, 1, 1}}, {2, {0, 1e-45f, 1, 1}}, {3, {kInfinity, 0, 1, 1}},
                {4, {3, 4, NAN, 1}},   {5, {NAN, NAN, 1, 1}},  {6, {6, 8, 1, 1}}};
  const v1::TableReport report = OnlyTable(Save({table}));
  EXPECT_EQ(report.zero_rows(), 1);
  EXPECT_EQ(report.not_finite_rows(), 3);
  EXPECT_EQ(report.norm().count(), 4);
  EXPECT_EQ(report.norm().not_finite(), 2);
  EXPECT_EQ(report.norm().max(), 10);
  ASSERT_EQ(report.state_size(), 1);
  EXPECT_EQ(report.state(0).figures().count(), 11);
  EXPECT_EQ(report.state(0).figures().not_finite(), 1);
  // Of 9 + 16 + 36 + 64 = 125, and the denormal's.
  EXPECT_DOUBLE_EQ(With(report, "width=1")->squares_cut(), 80 / 125.0);
}

TEST_F(ReportTest, StorageOfTheJobDecidesTheBytes) {
  Saved table = {.layout = {.table = "t", .width = 3, .states = {{"moment", 3}}, .logical_shards = 16}};
  table.rows = {{1, {1, 2, 3, 0, 0, 0}}, {2, {1, 2, 3, 0.5f, 0, 0}}};
  const std::string job =
      "optimizer { adagrad {} } table { name: 't' width: 3 is_distributed: true storage: BFLOAT16 }";
  const v1::TableReport report = OnlyTable(Save({table}, 1, OfJob(job)));
  EXPECT_EQ(report.storage(), "BFLOAT16");
  // Three 16-bit values are filled up to two words.
  EXPECT_EQ(report.bytes().values(), 2 * 8);
  EXPECT_EQ(report.bytes().state(), 2 * 12);
  EXPECT_EQ(report.bytes().in_files(), 2 * (8 + 24));
  EXPECT_EQ(With(report, "width=1")->bytes(), 2 * (8 + 12 - 4 - 4));
  EXPECT_EQ(With(report, "storage=FLOAT16")->bytes(), 0);
  EXPECT_EQ(With(report, "storage=BFLOAT16"), nullptr);
  EXPECT_EQ(report.training().by(), "moment");
  EXPECT_EQ(report.training().never(), 1);
  EXPECT_FALSE(report.training().has_at_most_once());
}

TEST_F(ReportTest, SegmentsHaveStatesAndWidthsOfTheirOwn) {
  Saved table = {.layout = {.table = "t",
                            .width = 3,
                            .states = {{"0.squared_accumulator", 1}, {"0.linear_accumulator", 1}, {"1.moment", 2}},
                            .logical_shards = 16}};
  table.rows = {{1, {0, 1, 1, 0.1f, 0, 0.25f, 0.25f}}, {2, {0, 1, 1, 0.1f, 0, 0, 0}}};
  const std::string job =
      "optimizer { sgd {} } table { name: 't' width: 3 is_distributed: true "
      "segment { width: 1 optimizer { ftrl {} } } segment { width: 2 optimizer { adagrad { initial_accumulator: 0.25 "
      "} } } }";
  const v1::TableReport report = OnlyTable(Save({table}, 1, OfJob(job)));
  EXPECT_EQ(report.training().never(), 1);
  EXPECT_EQ(With(report, "width=1"), nullptr);
  EXPECT_THAT(report.unknown(), ::testing::Contains(HasSubstr("segments of a row have widths of their own")));
}

// Many rows of several chunks and servers, of a table that counts.
Saved ManyRows() {
  Saved table = {.layout = {.table = "t",
                            .width = 9,
                            .states = {{"moment1", 9}, {"moment2", 9}, {"step", 1}, {"lifecycle.shows", 1}},
                            .logical_shards = 4096}};
  for (int64_t i = 0; i < 30000; ++i) {
    std::vector<float> row;
    for (int c = 0; c < 29; ++c) {
      row.push_back(static_cast<float>(MixId(static_cast<uint64_t>(i * 32 + c)) % 10007) * (c < 9 ? -0.01f : 0.1f));
    }
    row[27] = static_cast<float>(1 + i % 100);
    table.rows.push_back({i, row});
  }
  return table;
}

TEST_F(ReportTest, ThreadsChangeNoBit) {
  const std::string path = Save({ManyRows()}, 3);
  ThreadPool none("none", 0), three("three", 3);
  const absl::StatusOr<v1::CheckpointReport> one = Report(path, {.pool = &none}), many = Report(path, {.pool = &three});
  ASSERT_TRUE(one.ok() && many.ok()) << one.status() << many.status();
  EXPECT_EQ(one->SerializeAsString(), many->SerializeAsString());
  EXPECT_EQ(one->table(0).hottest().by(), "step");
  EXPECT_EQ(one->table(0).hottest().counts(), 30000 * 50.5);
  EXPECT_EQ(one->table(0).hottest().top_percent(), 300 * 100 / (30000 * 50.5));
}

TEST_F(ReportTest, ColumnsThatAreTooLongSayHowExactTheyAre) {
  const std::string path = Save({ManyRows()}, 2);
  const absl::StatusOr<v1::CheckpointReport> exact = Report(path), sketched = Report(path, {.exact_column = 30000});
  ASSERT_TRUE(exact.ok() && sketched.ok());
  const v1::TableReport &a = exact->table(0), &b = sketched->table(0);
  EXPECT_EQ(a.norm().SerializeAsString(), b.norm().SerializeAsString());
  EXPECT_EQ(a.state(0).figures().quantile_error(), 0);
  EXPECT_EQ(b.state(0).figures().quantile_error(), kClassError);
  EXPECT_NEAR(b.state(0).figures().p50(), a.state(0).figures().p50(), kClassError * a.state(0).figures().p50());
  EXPECT_EQ(a.state(0).figures().mean(), b.state(0).figures().mean());
  const absl::StatusOr<v1::CheckpointReport> none = Report(path, {.exact_column = 0});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->table(0).hottest().error(), kClassError);
  EXPECT_NEAR(none->table(0).hottest().top_percent(), a.hottest().top_percent(), 1e-9);
  EXPECT_EQ(none->table(0).hottest().top_100(), a.hottest().top_100());
  EXPECT_THAT(ReportText(*none), HasSubstr("within 0.2 %"));
}

TEST_F(ReportTest, CandidatesAndTombstonesAreNumbersOfTheirTable) {
  Saved candidates = {.layout = {.table = "t@candidates", .width = 1, .logical_shards = 1}};
  candidates.rows = {{70, {Word(1)}}, {71, {Word(2)}}};
  Saved tombstones = {.layout = {.table = "t@tombstones", .width = 1, .logical_shards = 1}};
  const v1::TableReport table = OnlyTable(Save({Counted({{1, 1}}), candidates, tombstones}));
  EXPECT_EQ(table.rows(), 1);
  EXPECT_EQ(table.candidates(), 2);
  EXPECT_TRUE(table.has_tombstones());
  EXPECT_EQ(table.tombstones(), 0);
}

TEST_F(ReportTest, ATableWithoutRowsIsReported) {
  const v1::TableReport table = OnlyTable(Save({Counted({})}, 2));
  EXPECT_EQ(table.rows(), 0);
  EXPECT_EQ(table.norm().count(), 0);
  EXPECT_EQ(table.hottest().top_1(), 0);
  v1::CheckpointReport report;
  *report.add_table() = table;
  EXPECT_THAT(ReportText(report), HasSubstr("table t: 0 rows of width 2"));
}

TEST_F(ReportTest, DigestsThatAreNotTheManifestsAreDamage) {
  const std::string path = Save({Counted({{1, 1}})});
  absl::StatusOr<NewestCheckpoint> opened = OpenCheckpoint(path);
  ASSERT_TRUE(opened.ok());
  opened->manifest.set_state_digest(opened->manifest.state_digest() + 1);
  const absl::Status status = ReportOn(*opened, {.pool = &pool_}).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(", the manifest says values="));
}

TEST_F(ReportTest, DenseParametersCountInTheDigests) {
  const absl::StatusOr<std::string> path = ToyModel::Make().Save(FreshDir("toy_report"), 3, 2);
  ASSERT_TRUE(path.ok());
  const v1::TableReport table = OnlyTable(*path);
  EXPECT_EQ(table.rows(), 6);
  EXPECT_THAT(table.lifecycle(), IsEmpty());
}

TEST_F(ReportTest, DamageIsFoundWhereTheFileIsRead) {
  const std::string path = Save({ManyRows()}, 2);
  const absl::StatusOr<NewestCheckpoint> opened = OpenCheckpoint(path);
  ASSERT_TRUE(opened.ok());
  CutFile(path + "/shard-00001", 100000);
  absl::Status status = ReportOn(*opened, {.pool = &pool_}).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard-00001 has 100000 bytes, the manifest says"));
  EXPECT_TRUE(absl::IsDataLoss(Report(path).status()));
}

TEST_F(ReportTest, ChecksumsAreComparedBesideThePass) {
  const std::string path = Save({ManyRows()}, 2);
  const absl::StatusOr<NewestCheckpoint> opened = OpenCheckpoint(path);
  ASSERT_TRUE(opened.ok());
  ThreadPool none("none", 0), three("three", 3);
  for (ThreadPool* const pool : {&none, &three}) {
    EXPECT_TRUE(ReportOn(*opened, {.check_sums = true, .pool = pool}).ok());
  }
  // In the bytes that align the rows, which no digest covers.
  FlipBit(path + "/shard-00001", 30);
  EXPECT_TRUE(ReportOn(*opened, {.pool = &pool_}).ok());
  for (ThreadPool* const pool : {&none, &three}) {
    const absl::Status status = ReportOn(*opened, {.check_sums = true, .pool = pool}).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("shard-00001 has checksum"));
  }
}

TEST_F(ReportTest, TwoLayoutsOfATableAreDamage) {
  Saved other = Counted({{1, 1}});
  other.layout.table = "u";
  absl::StatusOr<NewestCheckpoint> opened = OpenCheckpoint(Save({Counted({{1, 1}}), other}));
  ASSERT_TRUE(opened.ok());
  v1::CheckpointShard* const shard = opened->manifest.mutable_shards(0);
  shard->mutable_tables(0)->set_table("u");
  shard->mutable_tables(0)->set_logical_shards(2);
  const absl::Status status = ReportOn(*opened, {.pool = &pool_}).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("table 'u' has two layouts"));
}

TEST_F(ReportTest, MoreLogicalShardsThanAJobCanHaveAreNotCounted) {
  absl::StatusOr<NewestCheckpoint> opened = OpenCheckpoint(Save({Counted({{1, 1}, {1, 1}})}));
  ASSERT_TRUE(opened.ok());
  opened->manifest.mutable_shards(0)->mutable_tables(0)->set_logical_shards(std::numeric_limits<int32_t>::max());
  const absl::StatusOr<v1::CheckpointReport> report = ReportOn(*opened, {.pool = &pool_});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->table(0).rows(), 2);
}

TEST_F(ReportTest, AnUnknownTableBringsThoseThatThereAre) {
  const absl::Status status = Report(Save({Counted({})}), {.table = "v"}).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has no table 'v'; it has t"));
}

TEST_F(ReportTest, RowsAreCountedForEachSlotThatUsesTheirIds) {
  // Ids 0 to 4 with values {id, 0}, counts and steps.
  Saved table = {
      .layout = {
          .table = "t", .width = 2, .states = {{"lifecycle.count", 1}, {"lifecycle.step", 1}}, .logical_shards = 1}};
  const uint32_t counts[] = {1, 2, 3, 10, 4};
  for (int64_t id = 0; id < 5; ++id) {
    table.rows.push_back({id, {static_cast<float>(id), 0, Word(counts[id]), Word(static_cast<uint32_t>(90 + id))}});
  }
  SlotUsesByTable uses;
  SlotUses& of = uses["t"];
  const int a = of.AddSlot("cat.A"), b = of.AddSlot("cat.B");
  for (const int64_t id : {0, 3, 3, 77}) of.Add(a, id);
  for (const int64_t id : {3, 4}) of.Add(b, id);
  const absl::StatusOr<v1::CheckpointReport> report = Report(Save({table}, 2), {.slots = &uses});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->table(0).slot_size(), 3);
  const v1::SlotReport &in_a = report->table(0).slot(0), &in_b = report->table(0).slot(1),
                       &none = report->table(0).slot(2);
  EXPECT_EQ(in_a.name(), "cat.A");
  EXPECT_EQ(in_a.ids(), 3);
  EXPECT_EQ(in_a.lookups(), 4);
  EXPECT_EQ(in_a.rows(), 2) << "id 77 has no row";
  EXPECT_EQ(in_a.bytes() * 5, 2 * (report->table(0).bytes().values() + report->table(0).bytes().lifecycle()));
  EXPECT_EQ(in_a.zero_rows(), 1);
  EXPECT_EQ(in_a.mean_norm(), 1.5);
  EXPECT_EQ(in_a.at_most_once(), 1);
  EXPECT_EQ(in_a.counts(), 11.0 / 20);
  EXPECT_EQ(in_a.mean_age_steps(), (9 + 6) / 2.0);
  EXPECT_EQ(in_b.rows(), 2);
  EXPECT_EQ(in_b.mean_norm(), 3.5) << "id 3 counts for both";
  EXPECT_FALSE(none.has_name());
  EXPECT_EQ(none.rows(), 2);
  EXPECT_FALSE(none.has_ids());
  EXPECT_THAT(ReportText(*report), HasSubstr("(not in the data)"));
}

}  // namespace
}  // namespace weir
