// A job on two numbers of an example and their squares, and its data, in which numbers may be planted whose square is
// no float.
#ifndef WEIR_TESTS_TESTING_SQUARE_JOB_H_
#define WEIR_TESTS_TESTING_SQUARE_JOB_H_

#include <fstream>
#include <functional>
#include <string>

namespace weir {

// Eight steps of one pass, in each of which a lane reads four lines: of lane 4, lines 128 to 159.
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

// 256 lines; in those that are planted a square overflows.
inline void WriteSquares(const std::string& file, const std::function<bool(int)>& planted) {
  std::ofstream out(file);
  for (int i = 0; i < 256; ++i)
    out << "1 " << i % 2 << " 2 0." << i % 10 << " " << (planted(i) ? "3e38" : "0.25") << " 1 " << i % 2 << "\n";
}

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_SQUARE_JOB_H_
