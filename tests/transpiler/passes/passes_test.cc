// Every pass of the list: with something to do, with nothing to do, and twice.
#include "transpiler/passes/passes.h"

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

// Work for every pass: a cut matrix, distributed tables, a table that is fetched by rows, shared buffers.
Job Rich() {
  std::string text = Replaced(
      kDeepFm, "layer { name: \"fm\"",
      "layer { name: \"more\" embedding { ids: \"cat\" table: \"held\" pooling: SUM } }\n  layer { name: \"fm\"");
  text = Replaced(text, "input: \"fields\" input: \"dense\"", "input: \"fields\" input: \"dense\" input: \"more\"");
  text = Replaced(text, "batch_size: 64", "batch_size: 64 ids { shared: \"cat\" }");
  text = Replaced(text, "optimizer { sgd",
                  "table { name: \"held\" width: 4 is_sparse: true dict_size: 5000 }\noptimizer { sgd");
  return JobOf(Replaced(text, "servers: 2", "servers: 2 memory_optimize: true"));
}

// A program that brings all that it can, and no rows: the passes of the single machine have nothing to add but their
// checks.
Job Done() {
  std::string text =
      Replaced(kDeepFm, "embedding { ids: \"cat\" table: \"vectors\" }", "reshape { input: \"dense\" dims: [6, 1] }");
  text =
      Replaced(text, "embedding { ids: \"cat\" table: \"weights\" pooling: SUM }", "fc { input: \"dense\" size: 1 }");
  const size_t begin = text.find("table {"), end = text.find("optimizer { sgd");
  text.erase(begin, end - begin);
  const std::string path = ::testing::TempDir() + "/done.program";
  std::ofstream(path) << ProgramText(BuildSingleMachine(JobOf(text))->main);
  const auto job = ParseJob(text, "job.textproto", {}, {.program = path});
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : Job();
}

constexpr char kCatalogue[] = R"(name: "catalogue"
data {
  train { files: "train.txt" }
  eval { files: "eval.txt" }
  multi_slot { slot { name: "user" } slot { name: "item" } }
  batch_size: 64
}
model {
  layer { name: "u" embedding { ids: "user" table: "users" pooling: SUM } }
  layer { name: "i" embedding { ids: "item" table: "items" pooling: SUM } }
  loss { in_batch_softmax { query: "u" item: "i" } }
}
table { name: "users" width: 4 is_sparse: true is_distributed: true }
table { name: "items" width: 4 is_sparse: true is_distributed: true }
optimizer { sgd {} }
metric { recall { catalogue { query: "u" item: "i" id: "item" items: 9 } } }
distribute { servers: 1 }
)";

std::string Text(const Programs& programs) {
  return absl::StrCat(programs.main.SerializeAsString(), programs.startup.SerializeAsString());
}

// Runs all passes; which of them changed something. Each runs twice: the second run changes nothing.
std::set<std::string> Changed(const Job& job) {
  std::set<std::string> changed;
  Programs programs;
  for (const auto* passes : {&SingleMachinePasses(), &PlacementPasses(), &TrainerPasses()}) {
    for (const Pass& pass : *passes) {
      const std::string before = Text(programs);
      const absl::StatusOr<bool> once = pass.run(job, &programs);
      EXPECT_TRUE(once.ok()) << pass.name << ": " << once.status();
      if (!once.ok()) return changed;
      EXPECT_EQ(*once, Text(programs) != before) << pass.name << " says otherwise than it does";
      if (*once) changed.insert(pass.name);
      const std::string after = Text(programs);
      const absl::StatusOr<bool> twice = pass.run(job, &programs);
      EXPECT_TRUE(twice.ok()) << pass.name << ": " << twice.status();
      EXPECT_FALSE(twice.ok() && *twice) << pass.name;
      EXPECT_EQ(Text(programs), after) << pass.name << " twice";
    }
  }
  return changed;
}

TEST(PassesTest, EachHasSomethingToDoAndTwiceIsOnce) {
  std::set<std::string> changed = Changed(Rich());
  // Only geo trainers keep their updates.
  changed.merge(Changed(JobOf(Replaced(kDeepFm, "servers: 2", "servers: 2 sync: false geo {}"))));
  // Only trainers that add gradients among themselves put them into buckets.
  changed.merge(Changed(JobOf(Replaced(kDeepFm, "servers: 2", "servers: 2 dense: ALL_REDUCE"))));
  // Only such trainers can share the updates out.
  changed.merge(Changed(JobOf(Replaced(kDeepFm, "servers: 2", "servers: 2 dense: ALL_REDUCE update: SHARDED"))));
  // Only metrics of a catalogue keep what they read.
  changed.merge(Changed(JobOf(kCatalogue)));
  changed.merge(Changed(JobOf(absl::StrCat(kDeepFm, "train { freeze: \"vectors\" }\n"))));
  const std::vector<std::string> names = PassNames();
  EXPECT_EQ(changed, std::set<std::string>(names.begin(), names.end()));
}

TEST(PassesTest, NothingToDoIsLeftAlone) {
  const std::set<std::string> changed = Changed(Done());
  for (const char* pass : {"append_backward", "append_optimizer", "choose_fetch", "prefetch_tables", "share_buffers"}) {
    EXPECT_FALSE(changed.contains(pass)) << pass;
  }
}

// A transpiled program has all of it behind it.
TEST(PassesTest, ATrainersProgramIsLeftAloneByEveryPass) {
  const Job job = Rich();
  Programs programs = TranspiledOf(job).trainer();
  const std::string before = Text(programs);
  for (const auto* passes : {&SingleMachinePasses(), &PlacementPasses(), &TrainerPasses()}) {
    for (const Pass& pass : *passes) {
      if (std::string(pass.name) == "append_optimizer") continue;  // its updates have gone to the servers
      const absl::StatusOr<bool> changed = pass.run(job, &programs);
      ASSERT_TRUE(changed.ok()) << pass.name << ": " << changed.status();
      EXPECT_FALSE(*changed) << pass.name;
    }
  }
  EXPECT_EQ(Text(programs), before);
}

TEST(PassesTest, NamesAreUniqueAndInOrder) {
  const std::vector<std::string> names = PassNames();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(names.front(), "build_forward");
}

TEST(PassesTest, NothingRunsBehindStopAfter) {
  PassTrace trace{.stop_after = "slice_variables"};
  const auto programs = TranspileUntil(Rich(), &trace);
  ASSERT_TRUE(programs.ok()) << programs.status();
  EXPECT_TRUE(trace.stopped);
  EXPECT_TRUE(programs->main.has_plan());
  for (const v1::PlacedBlock& block : programs->main.plan().blocks()) EXPECT_FALSE(block.has_server());
}

}  // namespace
}  // namespace weir
