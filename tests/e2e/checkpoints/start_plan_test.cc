// A fresh run that begins with values of another job's checkpoint, by a plan made here: the values are those that a
// plain reference puts together, and the run goes on with the same bits in every corner.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/table_reader.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr char kAllReduce[] = "distribute.dense=ALL_REDUCE";

// Rows of "vectors" are counted, and age. The weight of "deep" is large enough for two blocks.
std::string OldJob() {
  return absl::StrReplaceAll(kSlotJob, {{"width: 4 is_sparse",
                                         "width: 4 lifecycle { ttl_steps: 40 admit_after: 2 } "
                                         "is_sparse"},
                                        {"size: 16 activation", "size: 1400 activation"}});
}
// Two more columns of "vectors", whose rows come before "x" in the input of "deep".
std::string NewJob() {
  return absl::StrReplaceAll(OldJob(), {{"name: \"slots\"", "name: \"wider\" start_from { checkpoint: \"old\" }"},
                                        {"width: 4 lifecycle", "width: 6 lifecycle"},
                                        {"every_steps: 100", "every_steps: 20"}});
}

std::map<int64_t, std::vector<float>> RowsOf(const NewestCheckpoint& checkpoint, const std::string& table) {
  const auto reader = TableReader::Open(checkpoint.found.path, checkpoint.manifest, table);
  EXPECT_TRUE(reader.ok()) << reader.status();
  std::map<int64_t, std::vector<float>> rows;
  if (!reader.ok()) return rows;
  const auto read = reader->Read(0, static_cast<uint32_t>(reader->layout().logical_shards));
  EXPECT_TRUE(read.ok()) << read.status();
  const size_t floats = read->rows.size() / std::max<size_t>(1, read->ids.size());
  for (size_t i = 0; i < read->ids.size(); ++i) {
    rows[read->ids[i]] = {read->rows.begin() + i * floats, read->rows.begin() + (i + 1) * floats};
  }
  return rows;
}

class StartTest : public SlotJobTest {
 protected:
  static void SetUpTestSuite() {
    SlotJobTest::SetUpTestSuite();
    // On a cluster of its own; 50 steps, of which an id has some.
    const InProcessResult old = Run(
        {.job_text = OldJob(), .overrides = {CheckpointIn("old"), "train.max_steps=50"}, .servers = 3, .trainers = 2});
    ASSERT_EQ(old.summary.steps, 50);
  }
  void TearDown() override {
    for (const char* name : {"new", "fresh"}) std::filesystem::remove_all(Path(name));
  }

  static v1::StartPlan Plan() {
    v1::StartPlan plan;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"pb(
                                                                dense {
                                                                  variable: "deep.w"
                                                                  dims: [ 16, 1400 ]
                                                                  parts {
                                                                    variable: "deep.w"
                                                                    dims: [ 12, 1400 ]
                                                                    axes {
                                                                      runs { to: 0 from: 0 count: 4 }
                                                                      runs { to: 6 from: 4 count: 4 }
                                                                      runs { to: 12 from: 8 count: 4 }
                                                                    }
                                                                    axes { runs { to: 0 from: 0 count: 1400 } }
                                                                    states: "moment1"
                                                                    states: "moment2"
                                                                  }
                                                                  zeros {
                                                                    axes { ranges { begin: 4 count: 2 } }
                                                                    axes { ranges { begin: 0 count: 1400 } }
                                                                  }
                                                                }
                                                                dense {
                                                                  variable: "deep.b"
                                                                  dims: [ 1400 ]
                                                                  parts {
                                                                    variable: "deep.b"
                                                                    dims: [ 1400 ]
                                                                    axes { runs { to: 0 from: 0 count: 1400 } }
                                                                    states: "moment1"
                                                                  }
                                                                }
                                                                dense {
                                                                  variable: "out.w"
                                                                  dims: [ 1400, 1 ]
                                                                  parts {
                                                                    variable: "out.w"
                                                                    dims: [ 1400, 1 ]
                                                                    axes { runs { to: 0 from: 0 count: 1400 } }
                                                                    axes { runs { to: 0 from: 0 count: 1 } }
                                                                  }
                                                                }
                                                                tables {
                                                                  table: "vectors"
                                                                  zero_begin: 5
                                                                  zero_end: 6
                                                                  parts {
                                                                    table: "vectors"
                                                                    width: 4
                                                                    columns { to: 0 from: 0 count: 4 }
                                                                  }
                                                                }
                                                                tables {
                                                                  table: "weights"
                                                                  parts {
                                                                    table: "weights"
                                                                    width: 1
                                                                    columns { to: 0 from: 0 count: 1 }
                                                                  }
                                                                }
                                                              )pb",
                                                              &plan));
    return plan;
  }
  static absl::StatusOr<Start> Planned(v1::StartPlan plan) {
    const absl::StatusOr<NewestCheckpoint> old = OpenCheckpoint(Path("old"));
    if (!old.ok()) return old.status();
    v1::StartSource* const source = plan.add_sources();
    source->set_name(old->found.name);
    source->set_directory(Path("old"));
    source->set_manifest(ManifestIdentity(old->manifest));
    Start planned{.plan = std::move(plan)};
    v1::Ancestor* const ancestor = planned.lineage.add_ancestors();
    ancestor->set_job("slots");
    ancestor->set_step(old->manifest.step());
    return planned;
  }
  static InProcessRun NewRun(std::vector<std::string> overrides, int servers = 1, int trainers = 1) {
    InProcessRun run{.job_text = NewJob(), .servers = servers, .trainers = trainers};
    run.overrides = {CheckpointIn("new"), "train.max_steps=60", "checkpoint.every_steps=1000"};
    run.overrides.insert(run.overrides.end(), overrides.begin(), overrides.end());
    run.plan_start = [](const Job&) { return Planned(Plan()); };
    return run;
  }
};

// A corner of docs/collective.md.
struct Corner {
  const char* name;
  std::vector<std::string> overrides;
  int servers, trainers;
};
const std::vector<Corner>& Corners() {
  static const auto& corners = *new std::vector<Corner>{
      {"local", {}, 1, 1},
      {"servers inside", {}, 0, 2},
      {"2 + 2", {}, 2, 2},
      {"3 + 1", {}, 3, 1},
      {"hybrid", {kAllReduce}, 2, 2},
      {"all-reduce", {kAllReduce}, 0, 2},
      {"sharded", {kAllReduce, "distribute.update=SHARDED"}, 0, 3},
      {"hybrid, sharded", {kAllReduce, "distribute.update=SHARDED"}, 2, 2},
  };
  return corners;
}

// An update of 1e-30 changes no bit of a weight, and 0 by as much.
std::string StillJob() {
  return absl::StrReplaceAll(NewJob(), {{"adagrad { learning_rate: 0.05 }", "sgd { learning_rate: 1e-30 }"},
                                        {"ftrl {}", "sgd { learning_rate: 1e-30 }"},
                                        {"adam { learning_rate: 0.005 }", "sgd { learning_rate: 1e-30 }"}});
}

TEST_F(StartTest, AllCornersBeginWithTheValuesThatThePlanSays) {
  InProcessRun run = NewRun({});
  run.job_text = absl::StrReplaceAll(StillJob(), {{"start_from { checkpoint: \"old\" }", ""}});
  run.overrides[0] = CheckpointIn("fresh");
  Run(run);
  const auto fresh = OpenCheckpoint(Path("fresh")), old = OpenCheckpoint(Path("old"));
  ASSERT_TRUE(fresh.ok() && old.ok()) << fresh.status() << old.status();
  const auto whole = [](const NewestCheckpoint& checkpoint, const std::string& variable) {
    const auto read = ReadWhole(checkpoint.found.path, checkpoint.manifest, variable, "");
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? read->values : std::vector<float>();
  };
  std::vector<float> deep = whole(*fresh, "deep.w");
  const std::vector<float> old_deep = whole(*old, "deep.w");
  ASSERT_EQ(deep.size(), 22400u);
  ASSERT_EQ(old_deep.size(), 16800u);
  for (size_t row = 0; row < 16; ++row) {
    for (size_t c = 0; c < 1400; ++c) {
      float& value = deep[1400 * row + c];
      if (row < 4) value = old_deep[1400 * row + c];
      if (row == 4 || row == 5) value = 0;
      if (row >= 6 && row < 10) value = old_deep[1400 * (row - 2) + c];
      if (row >= 12) value = old_deep[1400 * (row - 4) + c];
    }
  }
  const auto old_rows = RowsOf(*old, "vectors"), fresh_rows = RowsOf(*fresh, "vectors");
  ASSERT_GT(old_rows.size(), 60u);

  for (const Corner& corner : Corners()) {
    std::filesystem::remove_all(Path("new"));
    InProcessRun start = NewRun(corner.overrides, corner.servers, corner.trainers);
    start.job_text = StillJob();
    v1::StartPlan plan = Plan();
    for (v1::DenseStart& dense : *plan.mutable_dense()) dense.mutable_parts(0)->clear_states();
    start.plan_start = [&](const Job&) { return Planned(plan); };
    Run(start);
    const auto made = OpenCheckpoint(Path("new"));
    ASSERT_TRUE(made.ok()) << corner.name << made.status();
    const auto near = [&](const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
      ASSERT_EQ(a.size(), b.size()) << corner.name << " " << what;
      for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-20) << corner.name << " " << what << " " << i;
    };
    near(whole(*made, "deep.w"), deep, "deep.w");
    near(whole(*made, "deep.b"), whole(*old, "deep.b"), "deep.b");
    near(whole(*made, "out.w"), whole(*old, "out.w"), "out.w");
    near(whole(*made, "out.b"), whole(*fresh, "out.b"), "out.b");
    for (auto& [id, row] : RowsOf(*made, "vectors")) {
      const auto was = old_rows.find(id);
      ASSERT_EQ(row.size(), 7u);  // with lifecycle.step
      std::vector<float> expected = fresh_rows.at(id);
      if (was != old_rows.end()) std::copy_n(was->second.begin(), 4, expected.begin());
      expected[5] = 0;
      row.resize(6);
      expected.resize(6);
      near(row, expected, absl::StrCat("row ", id));
    }
    const auto entry = made->manifest.shards(0).tables(0);
    EXPECT_EQ(entry.zero_begin(), 5) << corner.name;
    EXPECT_EQ(entry.zero_end(), 6) << corner.name;
    ASSERT_EQ(made->manifest.trainers().lineage().ancestors_size(), 1) << corner.name;
    EXPECT_EQ(made->manifest.trainers().lineage().ancestors(0).step(), 50);
  }
}

// State of the optimizers, counts and ages of rows, and candidates decide what comes.
TEST_F(StartTest, AllCornersGoOnWithTheSameBits) {
  const InProcessResult alone = Run(NewRun({}));
  ASSERT_EQ(alone.digests.size(), 3u);
  InProcessRun without = NewRun({});
  without.job_text = absl::StrReplaceAll(NewJob(), {{"start_from { checkpoint: \"old\" }", ""}});
  EXPECT_NE(Run(without).digests, alone.digests);
  for (const Corner& corner : Corners()) {
    std::filesystem::remove_all(Path("new"));
    EXPECT_EQ(Run(NewRun(corner.overrides, corner.servers, corner.trainers)).digests, alone.digests) << corner.name;
  }
}

// A run that is resumed keeps lineage and zero columns, on another cluster too.
TEST_F(StartTest, ARunThatIsResumedGoesOnAsIfItHadNotEnded) {
  const InProcessResult whole = Run(NewRun({}));
  std::filesystem::remove_all(Path("new"));
  Run(NewRun({"train.max_steps=25"}, 2, 2));
  InProcessRun resumed = NewRun({}, 1, 3);
  resumed.resume = true;
  resumed.plan_start = [](const Job&) { return absl::InternalError("a run that resumes plans no start"); };
  const InProcessResult rest = Run(resumed);
  ASSERT_EQ(rest.digests.size(), 2u);
  EXPECT_EQ(rest.digests[0], whole.digests[1]);
  EXPECT_EQ(rest.digests[1], whole.digests[2]);
  const auto made = OpenCheckpoint(Path("new"));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->manifest.step(), 60);
  EXPECT_EQ(made->manifest.trainers().lineage().ancestors_size(), 1);
  EXPECT_EQ(made->manifest.shards(0).tables(0).zero_end(), 6);
}

TEST_F(StartTest, ARunWithoutACheckpointOfItsOwnStarts) {
  InProcessRun run = NewRun({});
  const InProcessResult whole = Run(run);
  std::filesystem::remove_all(Path("new"));
  run.run_id = "monday";
  run.resume_run = true;
  EXPECT_EQ(Run(run).digests, whole.digests);
  // And goes on from it then.
  run.plan_start = [](const Job&) { return absl::InternalError("a run that resumes plans no start"); };
  run.overrides.push_back("train.max_steps=63");
  EXPECT_EQ(Run(run).summary.steps, 63);
}

// Modes without equal bits begin with the values, too.
TEST_F(StartTest, AsyncGeoAndLocalSgdStartToo) {
  const std::vector<Corner> modes = {
      {"async", {"distribute.sync=false"}, 2, 2},
      {"geo", {"distribute.sync=false", "distribute.geo.every_steps=4"}, 2, 2},
      {"local_sgd", {kAllReduce, "distribute.reproducible=false", "distribute.local_sgd={every_steps: 2}"}, 0, 2},
  };
  const auto old = OpenCheckpoint(Path("old"));
  ASSERT_TRUE(old.ok()) << old.status();
  for (const Corner& mode : modes) {
    std::filesystem::remove_all(Path("new"));
    InProcessRun run = NewRun(mode.overrides, mode.servers, mode.trainers);
    // Geo has no lifecycles.
    run.job_text = absl::StrReplaceAll(StillJob(), {{"lifecycle { ttl_steps: 40 admit_after: 2 } ", ""}});
    v1::StartPlan plan = Plan();
    for (v1::DenseStart& dense : *plan.mutable_dense()) dense.mutable_parts(0)->clear_states();
    run.plan_start = [&](const Job&) { return Planned(plan); };
    Run(run);
    const auto made = OpenCheckpoint(Path("new"));
    ASSERT_TRUE(made.ok()) << mode.name << made.status();
    for (const char* name : {"deep.b", "out.w"}) {
      const auto was = ReadWhole(old->found.path, old->manifest, name, "");
      const auto is = ReadWhole(made->found.path, made->manifest, name, "");
      ASSERT_TRUE(was.ok() && is.ok()) << mode.name << " " << name << was.status() << is.status();
      ASSERT_EQ(was->values.size(), is->values.size()) << mode.name << " " << name;
      for (size_t i = 0; i < was->values.size(); ++i) {
        EXPECT_NEAR(was->values[i], is->values[i], 1e-20) << mode.name << " " << name << " " << i;
      }
    }
  }
}

TEST_F(StartTest, WhatDoesNotFitEndsTheRunBeforeItsFirstStep) {
  InProcessRun run = NewRun({}, 2, 2);
  run.plan_start = [](const Job&) {
    v1::StartPlan plan = Plan();
    plan.mutable_tables(0)->mutable_parts(0)->set_width(5);
    return Planned(plan);
  };
  absl::Status status = TryRun(run).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("table 'vectors' has width 4 in checkpoint"));
  // Another checkpoint under the name than was planned with.
  run.plan_start = [](const Job&) -> absl::StatusOr<Start> {
    absl::StatusOr<Start> planned = Planned(Plan());
    planned->plan.mutable_sources(0)->set_manifest(1);
    return planned;
  };
  status = TryRun(run).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has another one at"));
  EXPECT_TRUE(ListCheckpoints(Path("new"))->empty());
  // Without a planner.
  run.plan_start = nullptr;
  EXPECT_THAT(std::string(TryRun(run).status().message()), HasSubstr("start_from"));
}

}  // namespace
}  // namespace weir
