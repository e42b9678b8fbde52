#include "framework/graph/training_mode.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/graph/format_version.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::ProgramDesc Parsed(const std::string& text) {
  const auto program = ParseProgramText(text, "x.program");
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *program : v1::ProgramDesc();
}

// Returns the verifier's error for a program with this mode and a plan that is sync or not; "" if there is none.
std::string Verified(const std::string& mode, bool sync = false, const std::string& op = "") {
  const std::string text = absl::StrReplaceAll(
      "weir program 2\nmode $mode\nplan {\n  sync: $sync\n}\n"
      "block 0 parent -1 {\n$op}\nblock 1 parent 0 {\n}\nblock 2 parent 0 {\n}\n",
      {{"$mode", mode}, {"$sync", sync ? "true" : "false"}, {"$op", op}});
  return std::string(VerifyProgram(Parsed(text)).message());
}

TEST(TrainingModeTest, AProgramThatSaysNothingHasTheDefaults) {
  for (const char* text : {"weir program 1\n", "weir program 1\nblock 0 parent -1 {\n  send_barrier()\n}\n"}) {
    const v1::TrainingMode mode = ModeOf(Parsed(text));
    EXPECT_EQ(mode.accumulate(), 1);
    EXPECT_EQ(mode.workers(), 1);
    EXPECT_EQ(mode.staleness(), -1);
    EXPECT_FALSE(mode.prefetch_rows());
    EXPECT_FALSE(mode.async_tables());
    EXPECT_FALSE(mode.has_geo());
  }
}

TEST(TrainingModeTest, AttributesOfTheFirstFormatAreRead) {
  const v1::TrainingMode trainer =
      ModeOf(Parsed("weir program 1\n"
                    "block 0 parent -1 {\n"
                    "  prefetch() ahead=true\n"
                    "  prefetch() ahead=false\n"
                    "  send_barrier() accumulate=4 workers=3\n"
                    "  fetch_barrier() staleness=7 geo_every_steps=5 geo_blocks=blocks[1, 2] geo_lr_block=block(3)\n"
                    "}\n"));
  EXPECT_EQ(trainer.accumulate(), 4);
  EXPECT_EQ(trainer.workers(), 3);
  EXPECT_EQ(trainer.staleness(), 7);
  EXPECT_TRUE(trainer.prefetch_rows());
  EXPECT_EQ(trainer.geo().every_steps(), 5);
  EXPECT_THAT(trainer.geo().blocks(), ElementsAre(1, 2));
  EXPECT_EQ(trainer.geo().lr_block(), 3);

  const v1::TrainingMode server =
      ModeOf(Parsed("weir program 1\nblock 0 parent -1 {\n  listen_and_serv() staleness=2 async_tables=true\n}\n"));
  EXPECT_EQ(server.staleness(), 2);
  EXPECT_TRUE(server.async_tables());
}

TEST(TrainingModeTest, DefaultsThatAreWrittenAsAttributesAreNoGeo) {
  EXPECT_FALSE(ModeOf(Parsed("weir program 1\nblock 0 parent -1 {\n"
                             "  fetch_barrier() geo_every_steps=0 geo_blocks=blocks[]\n}\n"))
                   .has_geo());
}

TEST(TrainingModeTest, AnAttributeOfAnotherOpSaysNothing) {
  EXPECT_EQ(ModeOf(Parsed("weir program 1\nblock 0 parent -1 {\n  scale() workers=3\n}\n")).workers(), 1);
  EXPECT_EQ(ModeOf(Parsed("weir program 1\nblock 0 parent -1 {\n}\nblock 1 parent 0 {\n"
                          "  send_barrier() workers=3\n}\n"))
                .workers(),
            1);
}

TEST(TrainingModeTest, AProgramWithAModeIsOfTheSecondFormat) {
  v1::ProgramDesc program = Parsed("weir program 1\nblock 0 parent -1 {\n}\n");
  MutableMode(&program)->set_accumulate(4);
  EXPECT_EQ(program.format_version(), kModeProgramFormat);
  EXPECT_EQ(ModeOf(program).accumulate(), 4);
  EXPECT_THAT(ProgramText(program), HasSubstr("weir program 2\nmode accumulate: 4\n"));
  EXPECT_EQ(VerifyProgram(program), absl::OkStatus());
  program.set_format_version(1);
  EXPECT_THAT(std::string(VerifyProgram(program).message()),
              HasSubstr("a program with a mode has format version 2 or later, got 1"));
}

TEST(TrainingModeTest, ModesOutsideTheirRangeAreRefused) {
  EXPECT_THAT(Verified("accumulate: 4 workers: 2 staleness: 0 prefetch_rows: true"), IsEmpty());
  EXPECT_THAT(Verified("geo { every_steps: 5 blocks: [1, 2] lr_block: -1 }"), IsEmpty());
  EXPECT_EQ(Verified("accumulate: 0"), "mode: accumulate must be in [1, 1048576], got 0");
  EXPECT_EQ(Verified("workers: 2000000"), "mode: workers must be in [1, 1048576], got 2000000");
  EXPECT_EQ(Verified("all_reduce { local_steps: -1 }"), "mode: all_reduce.local_steps must be at least 0, got -1");
  EXPECT_EQ(Verified("staleness: -2"), "mode: staleness must be at least -1, got -2");
  EXPECT_EQ(Verified("geo { blocks: 1 }"), "mode: geo.every_steps must be at least 1, got 0");
  EXPECT_EQ(Verified("geo { every_steps: 1 blocks: 3 }"), "mode: geo names block 3; blocks inside block 0 are 1 to 2");
  EXPECT_EQ(Verified("geo { every_steps: 1 lr_block: 0 }"),
            "mode: geo names block 0; blocks inside block 0 are 1 to 2");
}

TEST(TrainingModeTest, ModesThatThePlanContradictsAreRefused) {
  for (const auto& [part, mode] : {std::pair("staleness", "staleness: 0"), std::pair("staleness", "staleness: 3"),
                                   std::pair("geo", "geo { every_steps: 1 }")}) {
    EXPECT_THAT(Verified(mode, /*sync=*/false), IsEmpty());
    EXPECT_EQ(Verified(mode, /*sync=*/true), absl::StrCat("mode: ", part, " needs a plan with sync: false"));
  }
  EXPECT_THAT(Verified("async_tables: true", /*sync=*/true), IsEmpty());
  EXPECT_EQ(Verified("async_tables: true", /*sync=*/false), "mode: async_tables needs a plan with sync: true");
}

TEST(TrainingModeTest, PartsThatNeedDifferentPlansContradictEachOther) {
  EXPECT_EQ(Verified("geo { every_steps: 1 } all_reduce {}"), "mode: has both geo and all_reduce");
  EXPECT_EQ(Verified("staleness: 2 async_tables: true"), "mode: has both staleness and async_tables");
}

}  // namespace
}  // namespace weir
