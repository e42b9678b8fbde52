// Jobs that tests of the transpiler start from.
#ifndef WEIR_TESTS_TRANSPILER_JOBS_H_
#define WEIR_TESTS_TRANSPILER_JOBS_H_

#include <string>
#include <string_view>
#include <vector>

#include "framework/graph/program_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/transpile.h"

namespace weir {

// A small DeepFM: two distributed tables, a tower whose first matrix, [126, 192], is cut over two servers.
inline constexpr char kDeepFm[] = R"(name: "deepfm"
data {
  train { files: "train.tsv" }
  criteo { integers: 6 categoricals: 30 }
  batch_size: 64
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "wide" embedding { ids: "cat" table: "weights" pooling: SUM } }
  layer { name: "fm" fm_interaction { input: "fields" } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "deep" mlp { input: "input" sizes: [192, 8] } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "wide" input: "fm" input: "out" } }
  loss { name: "ctr" sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.05 } } }
table { name: "weights" width: 1 is_sparse: true is_distributed: true }
optimizer { sgd { learning_rate: 0.1 } }
distribute { servers: 2 trainers: 2 }
)";

inline std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "no '" << from << "' in the job";
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

inline Job JobOf(const std::string& text, const std::vector<std::string>& overrides = {}) {
  absl::StatusOr<Job> job = ParseJob(text, "job.textproto", overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *std::move(job) : Job();
}

inline Transpiled TranspiledOf(const Job& job) {
  absl::StatusOr<Transpiled> transpiled = Transpile(job);
  EXPECT_TRUE(transpiled.ok()) << transpiled.status();
  return transpiled.ok() ? *std::move(transpiled) : Transpiled();
}

// Returns the types of the ops of a block, in order.
inline std::vector<std::string> Types(const v1::ProgramDesc& program, int block = 0) {
  std::vector<std::string> types;
  for (const v1::OpDesc& op : program.blocks(block).ops()) types.push_back(op.type());
  return types;
}

// Returns the only op of a type in a block.
inline v1::OpDesc OnlyOp(const v1::ProgramDesc& program, std::string_view type, int block = 0) {
  std::vector<v1::OpDesc> found;
  for (const v1::OpDesc& op : program.blocks(block).ops()) {
    if (op.type() == type) found.push_back(op);
  }
  EXPECT_EQ(found.size(), 1u) << type;
  return found.empty() ? v1::OpDesc() : found[0];
}

}  // namespace weir

#endif  // WEIR_TESTS_TRANSPILER_JOBS_H_
