#include "tests/testing/jobs/click_job.h"

#include <cstdint>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"

namespace weir {

const char kClickJob[] = R"(
name: "equality"
data {
  train { files: "train-*.tsv" }
  criteo {}
  dense { transform: STANDARDIZE }
  ids { min_count: 2 }
  shuffle: ALL
  batch_size: 64
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "field_vectors" } }
  layer { name: "wide" embedding { ids: "cat" table: "field_weights" pooling: SUM } }
  layer { name: "fm" fm_interaction { input: "fields" } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "deep" mlp { input: "input" sizes: [256, 64] activation: RELU dropout: 0.1 } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "wide" input: "fm" input: "out" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "field_vectors" width: 8 is_sparse: true is_distributed: true
  optimizer { adagrad { learning_rate: 0.05 } } }
table { name: "field_weights" width: 1 is_sparse: true is_distributed: true optimizer { ftrl {} } }
optimizer { adam { learning_rate: 0.001 } }
distribute { sync: true }
train { seed: 5 lanes: 8 epochs: 100 max_steps: 200 digest_every_steps: 50 }
)";

void WriteClickData(const std::string& directory) {
  int64_t example = 0;
  for (int file = 0; file < 3; ++file) {
    std::ofstream out(absl::StrCat(directory, "/train-", file, ".tsv"));
    for (int i = 0; i < 1000 * (file + 1) - 333 * (file == 2); ++i, ++example) {
      std::string line = absl::StrCat(Philox(1, example, 0).v[0] % 4 == 0 ? 1 : 0);
      for (int j = 0; j < 13; ++j) {
        const uint32_t r = Philox(2, example, j).v[0];
        absl::StrAppend(&line, "\t", r % 7 == 0 ? "" : absl::StrCat(r % 1000));
      }
      for (int f = 0; f < 26; ++f) {
        const uint32_t r = Philox(3, example, f).v[0];
        char hex[16];
        std::snprintf(hex, sizeof hex, "%x", r % (10 + 40 * f));
        absl::StrAppend(&line, "\t", r % 31 == 0 ? "" : hex);
      }
      out << line << "\n";
    }
  }
}

}  // namespace weir
