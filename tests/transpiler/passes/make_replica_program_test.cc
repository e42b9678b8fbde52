// Programs of what a trainer updates itself.
#include "transpiler/passes/make_replica_program.h"

#include <set>
#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

absl::StatusOr<Programs> ReplicaOf(std::vector<std::string> overrides, int trainer) {
  overrides.push_back("distribute.trainers=2");
  absl::StatusOr<Job> job = ParseJob(kSlotJob, "job.textproto", overrides);
  if (!job.ok()) return job.status();
  const absl::StatusOr<Transpiled> transpiled = Transpile(*job);
  if (!transpiled.ok()) return transpiled.status();
  return transpiled->Replica(trainer);
}

Programs Sharded(int trainer) {
  const absl::StatusOr<Programs> programs =
      ReplicaOf({"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED",
                 "optimizer.schedule={exponential { decay_steps: 40 decay_rate: 0.7 }}"},
                trainer);
  EXPECT_TRUE(programs.ok()) << programs.status();
  return programs.ok() ? *programs : Programs();
}

// Parameters that the optimize blocks update.
std::set<std::string> Updated(const Programs& programs) {
  std::set<std::string> updated;
  const v1::OpDesc& serve = programs.main.blocks(0).ops(0);
  for (const int32_t index : AttrReader(serve, *OpRegistry::Global().Find(serve.type())).Blocks("optimize_blocks")) {
    for (const v1::OpDesc& op : programs.main.blocks(index).ops()) {
      if (const std::string parameter = InputOf(op, "Param"); !parameter.empty()) updated.insert(parameter);
    }
  }
  return updated;
}

std::set<std::string> Initialised(const Programs& programs) {
  std::set<std::string> names;
  for (const v1::OpDesc& op : programs.startup.blocks(0).ops()) names.insert(OutputOf(op, "Out"));
  return names;
}

// deep.w [12, 16] and out.b of one trainer, the rest of the other.
TEST(MakeReplicaProgramTest, OnlyTheOwnUpdatesAndTheirInitialValuesStay) {
  const Programs programs = Sharded(0);
  EXPECT_THAT(Updated(programs), UnorderedElementsAre("deep.w"));
  EXPECT_THAT(Initialised(programs), UnorderedElementsAre("deep.w", "deep.w.moment1", "deep.w.moment2", "deep.w.step",
                                                          "learning_rate", "learning_rate.step"));
  ASSERT_EQ(programs.main.plan().blocks_size(), 1);
  EXPECT_EQ(programs.main.plan().blocks(0).name(), "deep.w");
}

TEST(MakeReplicaProgramTest, TheOtherTrainerKeepsTheRest) {
  const Programs programs = Sharded(1);
  EXPECT_THAT(Updated(programs), UnorderedElementsAre("deep.b", "out.w", "out.b"));
  EXPECT_THAT(Initialised(programs), IsSupersetOf({"out.w", "out.w.moment1", "deep.b", "out.b", "learning_rate"}));
  EXPECT_FALSE(Initialised(programs).contains("deep.w"));
  EXPECT_FALSE(Initialised(programs).contains("deep.w.moment1"));
}

// More trainers than blocks.
TEST(MakeReplicaProgramTest, ATrainerWithoutAnyBlockKeepsTheLearningRates) {
  const Programs programs = Sharded(7);
  EXPECT_THAT(Updated(programs), IsEmpty());
  EXPECT_THAT(Initialised(programs), IsSupersetOf({"learning_rate"}));
  EXPECT_EQ(programs.main.plan().blocks_size(), 0);
}

TEST(MakeReplicaProgramTest, AReplicaHasTheDenseBlocksAndANumberBehindTheServers) {
  const absl::StatusOr<Programs> programs =
      ReplicaOf({"distribute.dense=ALL_REDUCE", "distribute.servers=3"}, /*trainer=*/1);
  ASSERT_TRUE(programs.ok()) << programs.status();
  EXPECT_THAT(Updated(*programs), UnorderedElementsAre("deep.w", "deep.b", "out.w", "out.b"));
  for (const v1::PlacedBlock& block : programs->main.plan().blocks()) EXPECT_EQ(block.server(), 4);
  EXPECT_EQ(programs->main.plan().tables_size(), 0);
}

TEST(MakeReplicaProgramTest, ACopyOfGeoHasTheTablesToo) {
  const absl::StatusOr<Programs> programs =
      ReplicaOf({"distribute.sync=false", "distribute.geo.every_steps=4"}, /*trainer=*/1);
  ASSERT_TRUE(programs.ok()) << programs.status();
  for (const v1::PlacedBlock& block : programs->main.plan().blocks()) EXPECT_EQ(block.server(), 0);
  EXPECT_GT(programs->main.plan().tables_size(), 0);
  EXPECT_THAT(Updated(*programs), IsSupersetOf({std::string("deep.w"), programs->main.plan().tables(0).name()}));
}

TEST(MakeReplicaProgramTest, TrainersOfServersUpdateNothingThemselves) {
  EXPECT_THAT(std::string(ReplicaOf({}, /*trainer=*/0).status().message()), HasSubstr("updates nothing itself"));
}

}  // namespace
}  // namespace weir
