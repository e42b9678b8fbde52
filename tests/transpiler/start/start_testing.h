// Jobs that start from checkpoints of others, and these checkpoints, written by hand.
#ifndef WEIR_TESTS_TRANSPILER_START_START_TESTING_H_
#define WEIR_TESTS_TRANSPILER_START_START_TESTING_H_

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/shard.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/start/start.h"

namespace weir {

// A DeepFM without and with a linear part; CTR data in columns.
inline constexpr char kOld[] = R"(name: "old"
data {
  train { files: "train.csv" }
  csv {
    header: false
    column { name: "label" }
    column { name: "age" output: "dense" }
    column { name: "hour" output: "dense" }
    column { name: "user" type: TEXT output: "cat" }
    column { name: "item" type: TEXT output: "cat" }
  }
  batch_size: 64
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "wide" embedding { ids: "cat" table: "weights" pooling: SUM } }
  layer { name: "fm" fm_interaction { input: "fields" } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "deep" mlp { input: "input" sizes: [16, 8] } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "wide" input: "fm" input: "out" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true }
table { name: "weights" width: 1 is_sparse: true is_distributed: true }
optimizer { adam { learning_rate: 0.1 } }
)";

// Returns the job with each replacement made.
inline std::string Edited(const std::vector<std::pair<std::string, std::string>>& edits,
                          const std::string& text = kOld) {
  std::string edited = text;
  for (const auto& [from, to] : edits) edited = Replaced(edited, from, to);
  return edited;
}

struct WrittenCheckpoint {
  // Whether the manifest has the text of the job.
  bool with_job = true;
  // Changes the manifest before it is published.
  std::function<void(v1::CheckpointManifest*)> edit = nullptr;
};

class StartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(::testing::TempDir() + "/start").lexically_normal().string();
    std::filesystem::remove_all(dir_);
    WriteCheckpoint("old", kOld);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Writes a checkpoint of a job with all its parameters, some state, and three rows a table.
  void WriteCheckpoint(const std::string& name, const std::string& text, const WrittenCheckpoint& as = {}) {
    const Job job = JobOf(text);
    const absl::StatusOr<Programs> single = BuildSingleMachine(job);
    ASSERT_TRUE(single.ok()) << single.status();
    const std::string checkpoints = absl::StrCat(dir_, "/", name);
    const absl::StatusOr<std::string> temporary = BeginCheckpoint(checkpoints, 7);
    ASSERT_TRUE(temporary.ok()) << temporary.status();
    auto writer = ShardWriter::Create(absl::StrCat(checkpoints, "/", *temporary, "/", ShardFileName(0)));
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const v1::VarDesc& var : single->main.blocks(0).vars()) {
      if (!var.persistable() || var.kind() == v1::TABLE || var.name() == "learning_rate") continue;
      DensePiece piece{.variable = var.name(), .whole_dims = {var.dims().begin(), var.dims().end()}};
      for (const char* state : {"moment1", "moment2", "step"}) {
        if (!absl::EndsWith(var.name(), absl::StrCat(".", state))) continue;
        piece.variable = var.name().substr(0, var.name().size() - std::string(state).size() - 1);
        piece.state_name = state;
        piece.scalar = var.dims_size() == 1 && var.dims(0) == 1 && piece.state_name == "step";
      }
      int64_t count = 1;
      for (const int64_t dim : var.dims()) count *= dim;
      ASSERT_TRUE((*writer)->AddDense(piece, std::vector<float>(static_cast<size_t>(count), 1)).ok()) << var.name();
    }
    for (const v1::VarDesc& var : single->main.blocks(0).vars()) {
      if (var.kind() != v1::TABLE) continue;
      TableLayout layout{.table = var.name(), .width = static_cast<int>(var.dims(1))};
      ASSERT_TRUE((*writer)->BeginTable(layout).ok());
      ASSERT_TRUE((*writer)->AddRows({1, 2, 3}, std::vector<float>(static_cast<size_t>(3 * layout.width), 1)).ok());
      ASSERT_TRUE((*writer)->EndTable().ok());
    }
    v1::CheckpointManifest manifest;
    auto shard = (*writer)->Finish();
    ASSERT_TRUE(shard.ok()) << shard.status();
    *manifest.add_shards() = *shard;
    manifest.set_job(job.config.name());
    manifest.set_step(7);
    if (as.with_job) google::protobuf::TextFormat::PrintToString(job.config, manifest.mutable_job_text());
    SealManifest(&manifest);
    if (as.edit != nullptr) as.edit(&manifest);
    const auto published = PublishSealed(checkpoints, *temporary, manifest, MissingFiles::kRefuse);
    ASSERT_TRUE(published.ok()) << published.status();
  }

  // Returns the start of a job made of `kOld` by replacements. `from`: inside start_from.
  absl::StatusOr<Start> Plan(const std::string& text, const std::string& from, const std::string& checkpoint = "old") {
    return PlanStart(
        JobOf(absl::StrCat(text, "start_from {\n  checkpoint: \"", dir_, "/", checkpoint, "\"\n", from, "\n}\n")));
  }
  Start Planned(const std::string& text, const std::string& from) {
    absl::StatusOr<Start> start = Plan(text, from);
    EXPECT_TRUE(start.ok()) << start.status();
    return start.ok() ? *std::move(start) : Start();
  }
  // Returns "0<-0x4 8<-4x8" for axis `axis` of a parameter.
  static std::string Map(const Start& start, const std::string& name, int axis) {
    for (const v1::DenseStart& dense : start.plan.dense()) {
      if (dense.variable() != name || dense.parts_size() != 1) continue;
      std::string text;
      for (const v1::AxisRun& run : dense.parts(0).axes(axis).runs()) {
        absl::StrAppend(&text, text.empty() ? "" : " ", run.to(), "<-", run.from(), "x", run.count());
      }
      return text;
    }
    return "none";
  }
  // Returns "16-20 x 0-16; ..." for the zeros of a parameter.
  static std::string Zeros(const Start& start, const std::string& name) {
    std::string text;
    for (const v1::DenseStart& dense : start.plan.dense()) {
      if (dense.variable() != name) continue;
      for (const v1::DenseZeros& zeros : dense.zeros()) {
        if (!text.empty()) text += "; ";
        for (int a = 0; a < zeros.axes_size(); ++a) {
          if (a > 0) text += " x ";
          std::string ranges;
          for (const v1::AxisRange& range : zeros.axes(a).ranges()) {
            absl::StrAppend(&ranges, ranges.empty() ? "" : ",", range.begin(), "-", range.begin() + range.count());
          }
          text += ranges;
        }
      }
    }
    return text;
  }
  static std::string ZeroColumns(const Start& start, const std::string& name) {
    for (const v1::TableStart& table : start.plan.tables()) {
      if (table.table() == name) return absl::StrCat(table.zero_begin(), "-", table.zero_end());
    }
    return "none";
  }

  std::string dir_;
};

inline const std::string kNewColumn = "    column { name: \"shop\" type: TEXT output: \"cat\" }\n";

// Layers between the look-up and an fc, in place of the flattened fields.
inline std::string Between(const std::string& layers, const std::string& input) {
  return Replaced(
      kOld, "  layer { name: \"input\" concat { input: \"fields\" input: \"dense\" } }\n",
      absl::StrCat(layers, "  layer { name: \"input\" concat { input: \"", input, "\" input: \"dense\" } }\n"));
}

}  // namespace weir

#endif  // WEIR_TESTS_TRANSPILER_START_START_TESTING_H_
