// What one trainer keeps of programs in which all trainers' updates stand.
#include "pserver/replica/update_share.h"

#include <set>
#include <string>

#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/graph/training_mode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"

namespace weir {
namespace {

using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

class UpdateShareTest : public ::testing::Test {
 protected:
  UpdateShareTest() {
    const absl::StatusOr<Job> job =
        ParseJob(kSlotJob, "job.textproto",
                 {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED", "distribute.trainers=2",
                  "optimizer.schedule={exponential { decay_steps: 40 decay_rate: 0.7 }}"});
    EXPECT_TRUE(job.ok()) << job.status();
    const absl::StatusOr<Programs> programs = TrainerPrograms(*job, "", "");
    EXPECT_TRUE(programs.ok()) << programs.status();
    programs_ = *programs;
    // Blocks of servers are none of a replica's.
    for (const v1::PlacedBlock& block : programs_.main.plan().blocks()) EXPECT_EQ(block.server(), -1);
  }

  // Keeps a trainer's share, and returns the parameters that its optimize blocks update.
  std::set<std::string> Keep(int trainer) {
    const v1::AllReduceMode mode = ModeOf(programs_.main).all_reduce();
    google::protobuf::RepeatedField<int32_t> blocks = mode.blocks();
    KeepShare(trainer, mode.lr_block(), &programs_.main, &programs_.startup, &blocks);
    std::set<std::string> updated;
    for (const int32_t index : blocks) {
      for (const v1::OpDesc& op : programs_.main.blocks(index).ops()) {
        if (const std::string parameter = InputOf(op, "Param"); !parameter.empty()) updated.insert(parameter);
      }
    }
    return updated;
  }
  std::set<std::string> Initialised() {
    std::set<std::string> names;
    for (const v1::OpDesc& op : programs_.startup.blocks(1).ops()) names.insert(OutputOf(op, "Out"));
    return names;
  }

  Programs programs_;
};

// deep.w [12, 16] and out.b of one trainer, the rest of the other.
TEST_F(UpdateShareTest, OnlyTheOwnUpdatesAndTheirInitialValuesStay) {
  EXPECT_THAT(Keep(0), UnorderedElementsAre("deep.w"));
  EXPECT_THAT(Initialised(), UnorderedElementsAre("deep.w", "deep.w.moment1", "deep.w.moment2", "deep.w.step",
                                                  "learning_rate", "learning_rate.step"));
  ASSERT_EQ(programs_.main.plan().blocks_size(), 1);
  EXPECT_EQ(programs_.main.plan().blocks(0).name(), "deep.w");
}

TEST_F(UpdateShareTest, TheOtherTrainerKeepsTheRest) {
  EXPECT_THAT(Keep(1), UnorderedElementsAre("deep.b", "out.w", "out.b"));
  EXPECT_THAT(Initialised(), IsSupersetOf({"out.w", "out.w.moment1", "deep.b", "out.b", "learning_rate"}));
  EXPECT_FALSE(Initialised().contains("deep.w"));
  EXPECT_FALSE(Initialised().contains("deep.w.moment1"));
}

// More trainers than blocks.
TEST_F(UpdateShareTest, ATrainerWithoutAnyBlockKeepsTheLearningRates) {
  EXPECT_TRUE(Keep(7).empty());
  EXPECT_THAT(Initialised(), IsSupersetOf({"learning_rate"}));
  EXPECT_EQ(programs_.main.plan().blocks_size(), 0);
}

}  // namespace
}  // namespace weir
