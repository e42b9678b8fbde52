#include "framework/graph/training_mode.h"

#include <string>

#include "framework/graph/program_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TrainingMode ModeOfBlock(const std::string& ops, const std::string& more_blocks = "") {
  const auto program =
      ParseProgramText("weir program\nblock 0 parent -1 {\n" + ops + "\n}\n" + more_blocks, "x.program");
  EXPECT_TRUE(program.ok()) << program.status();
  return ModeOf(*program);
}

void ExpectDefaults(const TrainingMode& mode) {
  EXPECT_EQ(mode.accumulate, 1);
  EXPECT_EQ(mode.workers, 1);
  EXPECT_EQ(mode.staleness, -1);
  EXPECT_FALSE(mode.prefetch_rows);
  EXPECT_FALSE(mode.async_tables);
  EXPECT_EQ(mode.geo_every_steps, 0);
  EXPECT_THAT(mode.geo_blocks, IsEmpty());
  EXPECT_EQ(mode.geo_lr_block, -1);
}

TEST(TrainingModeTest, AProgramThatSaysNothingHasTheDefaults) {
  ExpectDefaults(ModeOf(v1::ProgramDesc()));
  ExpectDefaults(ModeOfBlock("send_barrier() @RPC"));
}

TEST(TrainingModeTest, BarriersSayHowBatchesAreMerged) {
  const TrainingMode mode = ModeOfBlock("send_barrier() accumulate=3 workers=2 @RPC");
  EXPECT_EQ(mode.accumulate, 3);
  EXPECT_EQ(mode.workers, 2);
}

TEST(TrainingModeTest, AServerSaysHowFarATrainerMayBeAhead) {
  const TrainingMode mode = ModeOfBlock("listen_and_serv() staleness=4 async_tables=true @RPC");
  EXPECT_EQ(mode.staleness, 4);
  EXPECT_TRUE(mode.async_tables);
}

TEST(TrainingModeTest, OnePrefetchAheadIsEnough) {
  EXPECT_TRUE(ModeOfBlock("prefetch() ahead=true @RPC\nprefetch() ahead=false @RPC").prefetch_rows);
  EXPECT_FALSE(ModeOfBlock("prefetch() ahead=false @RPC").prefetch_rows);
}

TEST(TrainingModeTest, GeoNamesItsBlocks) {
  const TrainingMode mode =
      ModeOfBlock("fetch_barrier() geo_every_steps=10 geo_blocks=blocks[2, 3] geo_lr_block=block(1) @RPC");
  EXPECT_EQ(mode.geo_every_steps, 10);
  EXPECT_THAT(mode.geo_blocks, ElementsAre(2, 3));
  EXPECT_EQ(mode.geo_lr_block, 1);
}

TEST(TrainingModeTest, OtherOperatorsAndOtherBlocksSayNothing) {
  ExpectDefaults(ModeOfBlock("send() accumulate=3 staleness=4 @RPC",
                             "block 1 parent 0 {\nsend_barrier() accumulate=3 workers=2 @RPC\n}\n"));
}

}  // namespace
}  // namespace weir
