#include "tests/testing/jobs/history_job.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <vector>

#include "absl/strings/str_format.h"
#include "framework/base/philox.h"

namespace weir {
namespace {

constexpr int64_t kItems = 12, kGroups = 3, kPadding = -1;

// In [0, 1).
double Uniform(uint64_t what, uint64_t i, uint64_t j) { return Philox(what, i, j).v[0] / 4294967296.0; }

// A like of the item is as good as its share of the last six in its history that are of its group.
void WriteLines(const std::string& file, uint64_t begin, uint64_t end) {
  std::ofstream out(file);
  for (uint64_t n = begin; n < end; ++n) {
    const int64_t item = static_cast<int64_t>(kItems * Uniform(1, n, 0));
    const double x = std::round((2 * Uniform(2, n, 0) - 1) * 1e4) / 1e4;
    std::vector<int64_t> history(static_cast<size_t>(10 * Uniform(3, n, 0)));
    for (size_t i = 0; i < history.size(); ++i) {
      history[i] = Uniform(4, n, i) < 0.1 ? kPadding : static_cast<int64_t>(kItems * Uniform(5, n, i));
    }
    int seen = 0, alike = 0;
    for (size_t i = history.size(); i > 0 && seen < 6; --i) {
      if (history[i - 1] == kPadding) continue;
      ++seen;
      alike += history[i - 1] % kGroups == item % kGroups;
    }
    const double logit = 6.0 * alike / (seen + 1) - 1.2 + x;
    out << absl::StrFormat("1 %d 2 %.4f 0.5 1 %d %d", Uniform(6, n, 0) < 1 / (1 + std::exp(-logit)) ? 1 : 0, x, item,
                           history.size());
    for (const int64_t id : history) out << " " << id;
    out << "\n";
  }
}

}  // namespace

const char kHistoryJob[] = R"(
name: "history"
data {
  train { files: "train.txt" }
  eval { files: "eval.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 2 }
    slot { name: "item" }
    slot { name: "history" }
  }
  ids { shared: "item" shared: "history" empty: ZERO }
  batch_size: 32
}
model {
  layer { name: "target" embedding { ids: "item" table: "items" } }
  layer { name: "read" embedding { ids: "history" table: "items" sequence: 6 padding_id: -1 } }
  layer { name: "interest" attention_pool { query: "target" sequence: "read" sizes: 8 } }
  layer { name: "look" attention_pool { query: "target" sequence: "read" sizes: [4, 3] activation: TANH
    softmax: true } }
  layer { name: "mean" sequence_pool { input: "read" } }
  layer { name: "most" sequence_pool { input: "read" type: MAX } }
  layer { name: "latest" embedding { ids: "history" table: "codes" sequence: 3 padding_id: -1 } }
  layer { name: "last" sequence_pool { input: "latest" type: LAST } }
  layer { name: "root" sequence_pool { input: "latest" type: SQRT_N length: "latest.length" } }
  layer { name: "all" embedding { ids: "history" table: "all_items" pooling: SUM } }
  layer { name: "recent" embedding { ids: "history" table: "recent_items" sequence: 2 } }
  layer { name: "first" sequence_pool { input: "recent" type: FIRST } }
  layer {
    name: "pairs"
    dot_interaction { input: "target" input: "interest" input: "look" input: "mean" input: "most" input: "read" }
  }
  layer { name: "squares" dot_interaction { input: "last" input: "root" self_interaction: true } }
  layer {
    name: "input"
    concat { input: "target" input: "interest" input: "look" input: "pairs" input: "squares" input: "all"
             input: "first" input: "x" input: "read.length" }
  }
  layer { name: "crossed" cross { input: "input" } }
  layer { name: "low" cross { input: "crossed" layers: 1 rank: 3 } }
  layer { name: "deep" fc { input: "low" size: 16 activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table {
  name: "items" width: 4 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.1 } }
  initializer { uniform { min: -0.5 max: 0.5 } }
}
table { name: "all_items" width: 1 is_sparse: true is_distributed: true optimizer { ftrl {} } }
table { name: "recent_items" width: 2 is_sparse: true is_distributed: true }
table { name: "codes" width: 3 is_sparse: true dict_size: 12 fetch: ROWS }
optimizer { adam { learning_rate: 0.003 } }
train { seed: 3 epochs: 3 digest_every_steps: 60 }
)";

void WriteHistoryData(const std::string& directory) {
  WriteLines(directory + "/train.txt", 0, 6000);
  WriteLines(directory + "/eval.txt", 6000, 8000);
}

}  // namespace weir
