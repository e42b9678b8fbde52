// Fashion-MNIST for tests: the data of examples/fashion_mnist in a directory of the test, and its job.
#ifndef WEIR_TESTS_TESTING_JOBS_PICTURES_H_
#define WEIR_TESTS_TESTING_JOBS_PICTURES_H_

#include <string>

namespace weir {

// Returns false if WEIR_DATA_DIR does not name the data sets.
bool FashionMnistIsThere();

// Writes DIR/data/*-ubyte with the first `train` and `eval` pictures; 0: all 60,000 and 10,000. Runs
// examples/fashion_mnist/prepare, which must be among the test's data. On failure returns false and records a test
// failure.
bool PrepareFashionMnist(const std::string& dir, int train = 0, int eval = 0);

// Returns the text of a job file that is among the test's data.
std::string ContentsOf(const std::string& file);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_JOBS_PICTURES_H_
