// Ops of each mode in the programs, and settings that contradict each other.
#include "framework/graph/training_mode.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/explain/explain_plan.h"
#include "transpiler/split/process_programs.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Transpiled Mode(std::vector<std::string> overrides) { return TranspiledOf(JobOf(kDeepFm, overrides)); }

v1::ProgramDesc Server(const Transpiled& transpiled, int server) {
  const auto programs = transpiled.Server(server);
  EXPECT_TRUE(programs.ok()) << programs.status();
  return programs.ok() ? programs->main : v1::ProgramDesc();
}

TEST(ModesTest, APlainJobSaysNothingOfModes) {
  const Transpiled transpiled = Mode({});
  for (const v1::ProgramDesc& program : {transpiled.trainer().main, Server(transpiled, 0)}) {
    const v1::TrainingMode mode = ModeOf(program);
    EXPECT_EQ(mode.accumulate(), 1);
    EXPECT_EQ(mode.workers(), 1);
    EXPECT_EQ(mode.staleness(), -1);
    EXPECT_FALSE(mode.async_tables());
    EXPECT_FALSE(mode.prefetch_rows());
    EXPECT_FALSE(mode.has_geo());
    EXPECT_FALSE(program.has_mode());
    EXPECT_EQ(program.format_version(), 1u);
  }
}

TEST(ModesTest, WithoutServersEveryTrainerHasOne) {
  const Transpiled inside = TranspiledOf(JobOf(kDeepFm, {"distribute.servers=0", "distribute.trainers=3"}));
  const Transpiled beside = TranspiledOf(JobOf(kDeepFm, {"distribute.servers=3", "distribute.trainers=3"}));
  v1::Plan plan = beside.plan();
  EXPECT_FALSE(plan.has_servers_in_trainers());
  plan.set_servers_in_trainers(true);
  plan.clear_merge_hosts();
  EXPECT_EQ(inside.plan().SerializeAsString(), plan.SerializeAsString());
  EXPECT_TRUE(inside.Server(2).ok());
  EXPECT_EQ(std::string(inside.Server(3).status().message()), "there is no server 3; each of the 3 trainers has one");
}

TEST(ModesTest, ThePlanSaysWhetherHostsMerge) {
  EXPECT_EQ(Mode({}).plan().merge_hosts(), v1::Plan::AUTO);
  EXPECT_EQ(Mode({"distribute.merge_hosts=true"}).plan().merge_hosts(), v1::Plan::ON);
  for (const char* off : {"distribute.merge_hosts=false", "distribute.sync=false", "distribute.servers=0"}) {
    EXPECT_FALSE(Mode({off}).plan().has_merge_hosts()) << off;
  }
}

TEST(ModesTest, BatchesOfAStepStandInTheMode) {
  const v1::TrainingMode mode =
      ModeOf(Mode({"train.accumulate_steps=4", "distribute.sync=false", "distribute.half_async={}", "train.workers=3"})
                 .trainer()
                 .main);
  EXPECT_EQ(mode.accumulate(), 4);
  EXPECT_EQ(mode.workers(), 3);
}

TEST(ModesTest, TheBoundStandsInTheProgramsOfBothSides) {
  const Transpiled transpiled = Mode({"distribute.sync=false", "distribute.bounded_staleness.steps=7"});
  EXPECT_EQ(ModeOf(transpiled.trainer().main).staleness(), 7);
  EXPECT_EQ(ModeOf(transpiled.trainer().startup).staleness(), 7);
  EXPECT_EQ(ModeOf(Server(transpiled, 1)).staleness(), 7);
}

TEST(ModesTest, RowsAheadAreTheTrainersBusiness) {
  EXPECT_TRUE(ModeOf(Mode({"distribute.prefetch_rows=true"}).trainer().main).prefetch_rows());  // sync
  const std::vector<std::string> async = {"distribute.sync=false"};
  const Transpiled transpiled = Mode({async[0], "distribute.prefetch_rows=true"});
  EXPECT_TRUE(ModeOf(transpiled.trainer().main).prefetch_rows());
  EXPECT_FALSE(ModeOf(Mode(async).trainer().main).prefetch_rows());
  EXPECT_EQ(ProgramText(Server(transpiled, 0)), ProgramText(Server(Mode(async), 0)));
  // The plan shows the setting.
  const Job job = JobOf(kDeepFm, {async[0], "distribute.prefetch_rows=true"});
  EXPECT_THAT(ExplainPlan(job, transpiled.trainer().main), HasSubstr(", rows a batch ahead of their use\n"));
  EXPECT_THAT(FirstDifference(PlanText(JobOf(kDeepFm, async), transpiled.plan()), PlanText(job, transpiled.plan())),
              HasSubstr("distribute.prefetch_rows"));
}

TEST(ModesTest, RowsAheadWithoutRowsAreRefused) {
  std::vector<std::string> whole = {"distribute.sync=false", "data.ids.shared=[\"cat\"]"};
  for (const char* table : {"table[0]", "table[1]"}) {
    for (const char* setting : {".is_distributed=false", ".dict_size=500", ".fetch=WHOLE"})
      whole.push_back(absl::StrCat(table, setting));
  }
  EXPECT_TRUE(Transpile(JobOf(kDeepFm, whole)).ok()) << Transpile(JobOf(kDeepFm, whole)).status();
  whole.push_back("distribute.prefetch_rows=true");
  const absl::Status status = Transpile(JobOf(kDeepFm, whole)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("distribute.prefetch_rows has nothing to act on: trainers fetch no table of the job by rows"));
}

TEST(ModesTest, AsyncTablesAreTheServersBusiness) {
  const Transpiled transpiled = Mode({"distribute.async_tables=true", "distribute.reproducible=false"});
  EXPECT_TRUE(ModeOf(Server(transpiled, 0)).async_tables());
  // Nothing is merged where tables do not wait.
  EXPECT_EQ(ProgramText(transpiled.trainer().main), ProgramText(Mode({"distribute.merge_hosts=false"}).trainer().main));
}

TEST(ModesTest, DelayCompensationStandsBetweenTheAverageAndTheUpdateOfDenseBlocks) {
  const v1::ProgramDesc server =
      Server(Mode({"distribute.sync=false", "distribute.delay_compensation.lambda=0.25"}), 0);
  int dense = 0, tables = 0;
  for (int b = 1; b < server.blocks_size(); ++b) {
    const std::string updated = server.blocks(b).ops(0).param_grads(0).param();
    if (updated == "vectors" || updated == "weights") {
      ++tables;
      EXPECT_EQ(Types(server, b)[0], "merge");
      EXPECT_EQ(Types(server, b).size(), 2u);
      continue;
    }
    ++dense;
    EXPECT_THAT(Types(server, b), ElementsAre("merge", "delay_compensate", "sgd"));
    const v1::OpDesc op = OnlyOp(server, "delay_compensate", b);
    EXPECT_EQ(op.attrs(0).f(), 0.25);
    EXPECT_EQ(InputOf(op, "Read"), InputOf(op, "Param") + ".read");
  }
  EXPECT_GT(dense, 0);
  EXPECT_EQ(tables, 2);
}

TEST(ModesTest, GeoTrainersCarryTheUpdatesAndServersAddDifferences) {
  const Transpiled transpiled = Mode({"distribute.sync=false", "distribute.geo.every_steps=5"});
  const v1::ProgramDesc& main = transpiled.trainer().main;
  const v1::TrainingMode mode = ModeOf(main);
  EXPECT_EQ(mode.geo().every_steps(), 5);
  // One block for every parameter block and table of both servers.
  EXPECT_EQ(static_cast<int>(mode.geo().blocks().size()),
            transpiled.plan().blocks_size() + transpiled.plan().tables_size());
  EXPECT_EQ(main.blocks_size(), static_cast<int>(mode.geo().blocks().size()) + 1);
  for (const int32_t b : mode.geo().blocks()) EXPECT_EQ(Types(main, b)[0], "merge");
  // Initial values of all blocks, states included, are made in a separate block that the trainer does not run.
  const v1::ProgramDesc& startup = transpiled.trainer().startup;
  ASSERT_EQ(startup.blocks_size(), 2);
  EXPECT_GT(startup.blocks(1).ops_size(), transpiled.plan().blocks_size());
  for (const std::string& type : Types(startup)) EXPECT_NE(type, "fill_constant");
  // Servers apply w -= -1 * difference, without state.
  for (int s = 0; s < 2; ++s) {
    const v1::ProgramDesc server = Server(transpiled, s);
    for (int b = 1; b < server.blocks_size(); ++b) EXPECT_THAT(Types(server, b), ElementsAre("merge", "sgd"));
    const auto programs = transpiled.Server(s);
    bool found = false;
    for (const v1::OpDesc& op : programs->startup.blocks(0).ops()) {
      if (OutputOf(op, "Out") != "geo.learning_rate") continue;
      found = true;
      for (const v1::OpAttr& attr : op.attrs()) {
        if (attr.name() != "value") continue;
        EXPECT_EQ(attr.f(), -1);
      }
    }
    EXPECT_TRUE(found);
  }
}

// Programs of every mode can be dumped, read back, and run by trainer and pserver.
TEST(ModesTest, ProgramsOfEveryModeReadBackAndFitTheirJob) {
  const std::vector<std::vector<std::string>> modes = {
      {"train.accumulate_steps=2"},
      {"distribute.sync=false", "distribute.half_async={}", "train.workers=2"},
      {"distribute.sync=false", "distribute.bounded_staleness={}"},
      {"distribute.sync=false", "distribute.delay_compensation={}"},
      {"distribute.sync=false", "distribute.prefetch_rows=true", "distribute.memory_optimize=true"},
      {"distribute.sync=false", "distribute.geo={}"},
      {"distribute.async_tables=true", "distribute.reproducible=false"}};
  for (const std::vector<std::string>& overrides : modes) {
    for (const char* servers : {"distribute.servers=1", "distribute.servers=3"}) {
      std::vector<std::string> all = overrides;
      all.push_back(servers);
      const Job job = JobOf(kDeepFm, all);
      const auto trainer = TrainerPrograms(job, "", "");
      ASSERT_TRUE(trainer.ok()) << overrides.back() << ": " << trainer.status();
      const auto server = ServerPrograms(job, 0, "", "");
      ASSERT_TRUE(server.ok()) << overrides.back() << ": " << server.status();
      for (const v1::ProgramDesc* program : {&trainer->main, &trainer->startup, &server->main, &server->startup}) {
        const auto parsed = ParseProgramText(ProgramText(*program), "text");
        ASSERT_TRUE(parsed.ok()) << parsed.status();
        EXPECT_EQ(parsed->SerializeAsString(), program->SerializeAsString()) << overrides.back();
        EXPECT_TRUE(VerifyProgram(*parsed).ok()) << VerifyProgram(*parsed);
      }
    }
  }
}

TEST(ModesTest, TheModeIsPartOfTheFingerprint) {
  const Job plain = JobOf(kDeepFm, {"distribute.sync=false"});
  const Job bounded = JobOf(kDeepFm, {"distribute.sync=false", "distribute.bounded_staleness.steps=3"});
  const std::string difference =
      FirstDifference(PlanText(plain, TranspiledOf(plain).plan()), PlanText(bounded, TranspiledOf(bounded).plan()));
  EXPECT_THAT(difference, HasSubstr("bounded_staleness"));
}

struct Wrong {
  const char* distribute;
  const char* train;
  const char* message;
};

TEST(ModesTest, SettingsThatContradictEachOtherAreRefusedAtTheirPlace) {
  const Wrong wrong[] = {
      {"half_async {}", "workers: 2", "job.textproto:20:37: distribute.half_async contradicts sync: true"},
      {"geo {}", "", "job.textproto:20:37: distribute.geo contradicts sync: true"},
      {"bounded_staleness {}", "", "job.textproto:20:37: distribute.bounded_staleness contradicts sync: true"},
      {"delay_compensation {}", "", "job.textproto:20:37: distribute.delay_compensation contradicts sync: true"},
      {"sync: false half_async {}", "", "job.textproto:20:49: distribute.half_async needs train.workers above 1"},
      {"sync: false", "workers: 4", "job.textproto:21:9: train.workers is 4, but only distribute.half_async"},
      {"", "workers: 4", "job.textproto:21:9: train.workers is 4, but only distribute.half_async"},
      {"", "workers: 0", "train.workers must be in [1, 1024], got 0"},
      {"", "accumulate_steps: 0", "job.textproto:21:9: train.accumulate_steps must be in [1, 1048576], got 0"},
      {"sync: false geo { every_steps: 0 }", "", "job.textproto:20:55: distribute.geo.every_steps must be in [1, "},
      {"sync: false geo {} delay_compensation {}", "", "distribute.delay_compensation contradicts geo"},
      {"sync: false async_apply: EAGER geo {}", "", "distribute.geo contradicts async_apply: EAGER"},
      {"sync: false async_apply: EAGER bounded_staleness {}", "",
       "distribute.bounded_staleness contradicts async_apply: EAGER"},
      {"sync: false bounded_staleness { steps: -1 }", "", "distribute.bounded_staleness.steps must be in [0, "},
      {"sync: false delay_compensation { lambda: -0.5 }", "",
       "distribute.delay_compensation.lambda must be finite and not neg"},
      {"prefetch_rows: true async_tables: true reproducible: false", "",
       "job.textproto:20:37: distribute.prefetch_rows contradicts async_tables, whose rows take effect at no border at "
       "which those read ahead could be corrected; leave out one of the two"},
      {"sync: false prefetch_rows: true geo {}", "",
       "job.textproto:20:49: distribute.prefetch_rows contradicts geo: its trainers "
       "read their own copies, and ask for a row once an exchange"},
      {"sync: false prefetch_rows: true bounded_staleness { steps: 0 }", "",
       "job.textproto:20:49: distribute.prefetch_rows contradicts bounded_staleness.steps: 0, whose rows hold all "
       "steps before: one "
       "that is read a step ahead misses the trainer's own; set steps to 1 or more, or leave it out"},
      {"async_tables: true", "",
       "job.textproto:20:37: distribute.async_tables makes the result depend on who comes first"},
      {"sync: false async_tables: true", "", "distribute.async_tables says nothing with sync: false"},
      {"async_tables: true reproducible: false average: BY_TRAINERS", "",
       "async_tables contradicts average: BY_TRAINERS"},
  };
  for (const Wrong& each : wrong) {
    std::string text = Replaced(kDeepFm, "distribute { servers: 2 trainers: 2 }",
                                "distribute { servers: 2 trainers: 2 " + std::string(each.distribute) + " }");
    text += std::string("train { ") + each.train + " }\n";
    const auto job = ParseJob(text, "job.textproto", {});
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << each.message;
    EXPECT_THAT(std::string(job.status().message()), HasSubstr(each.message)) << text;
  }
}

}  // namespace
}  // namespace weir
