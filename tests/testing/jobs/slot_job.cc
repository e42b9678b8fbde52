#include "tests/testing/jobs/slot_job.h"

#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/philox.h"

namespace weir {
namespace {

// In [0, 1).
double Uniform(uint64_t what, uint64_t i, uint64_t j) { return Philox(what, i, j).v[0] / 4294967296.0; }

struct SlotExample {
  double x[4];
  int64_t a, b;
};

SlotExample Make(int64_t n) {
  SlotExample e;
  for (int j = 0; j < 4; ++j) e.x[j] = std::round((2 * Uniform(1, n, j) - 1) * 1e4) / 1e4;
  e.a = static_cast<int64_t>(50 * Uniform(2, n, 0));
  e.b = 100 + static_cast<int64_t>(50 * Uniform(2, n, 1));
  return e;
}

}  // namespace

const char kSlotJob[] = R"(
name: "slots"
data {
  train { files: "train.txt" }
  eval { files: "eval.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 4 }
    slot { name: "a" output: "cat" }
    slot { name: "b" output: "cat" }
  }
  ids { shared: "cat" }
  batch_size: 32
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "wide" embedding { ids: "cat" table: "weights" pooling: SUM } }
  layer { name: "input" concat { input: "fields" input: "x" } }
  layer { name: "deep" fc { input: "input" size: 16 activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "wide" input: "out" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.05 } } }
table { name: "weights" width: 1 is_sparse: true is_distributed: true optimizer { ftrl {} } }
optimizer { adam { learning_rate: 0.005 } }
train { seed: 3 epochs: 8 digest_every_steps: 100 }
)";

int SlotLabel(int64_t example) {
  const SlotExample e = Make(example);
  const double logit = 4 * (Uniform(3, e.a, 0) + Uniform(3, e.b, 0) - 1) + e.x[0];
  return Uniform(4, example, 0) < 1 / (1 + std::exp(-logit)) ? 1 : 0;
}

std::string SlotLine(int64_t example, bool missing_label) {
  const SlotExample e = Make(example);
  return absl::StrFormat("%s 4 %.4f %.4f %.4f %.4f 1 %d 1 %d",
                         missing_label ? "0" : absl::StrCat("1 ", SlotLabel(example)), e.x[0], e.x[1], e.x[2], e.x[3],
                         e.a, e.b);
}

void WriteSlotLines(const std::string& file, int64_t begin, int64_t end, bool missing_labels) {
  std::ofstream out(file);
  for (int64_t i = begin; i < end; ++i) out << SlotLine(i, missing_labels) << "\n";
}

void WriteSlotData(const std::string& directory) {
  WriteSlotLines(directory + "/train.txt", 0, 2000);
  WriteSlotLines(directory + "/eval.txt", 2000, 3000);
}

}  // namespace weir
