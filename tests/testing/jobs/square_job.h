// A job on two numbers of an example and their squares, and its data, into which numbers can be planted whose square is
// not a float.
#ifndef WEIR_TESTS_TESTING_JOBS_SQUARE_JOB_H_
#define WEIR_TESTS_TESTING_JOBS_SQUARE_JOB_H_

#include <fstream>
#include <functional>
#include <string>

namespace weir {

// One pass of eight steps, in each of which a lane reads four lines: lane l of step t reads lines 32 t + l + 8 k, k
// from 0 to 3.
inline constexpr char kSquareJob[] = R"(
name: "square"
data {
  train { files: "square.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 2 } slot { name: "id" } }
  shuffle: NO_SHUFFLE
  batch_size: 32
}
model {
  layer { name: "squared" square { input: "x" } }
  layer { name: "vector" embedding { ids: "id" table: "vectors" pooling: SUM } }
  layer { name: "input" concat { input: "squared" input: "vector" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 2 is_sparse: true is_distributed: true optimizer { adagrad {} } }
optimizer { adam { learning_rate: 0.01 } }
train { lanes: 8 digest_every_steps: 1 }
)";

// Writes 256 lines; in the planted ones a square overflows.
inline void WriteSquares(const std::string& file, const std::function<bool(int)>& planted) {
  std::ofstream out(file);
  for (int i = 0; i < 256; ++i)
    out << "1 " << i % 2 << " 2 0." << i % 10 << " " << (planted(i) ? "3e38" : "0.25") << " 1 " << i % 2 << "\n";
}

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_JOBS_SQUARE_JOB_H_
