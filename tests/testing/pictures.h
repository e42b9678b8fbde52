// Fashion-MNIST for tests: the data of examples/fashion_mnist in a directory of the test's own, and the job on it.
#ifndef WEIR_TESTS_TESTING_PICTURES_H_
#define WEIR_TESTS_TESTING_PICTURES_H_

#include <string>

namespace weir {

// False where WEIR_DATA_DIR does not name the data sets.
bool FashionMnistIsThere();

// Writes DIR/data/*-ubyte with the first `train` and `eval` pictures; 0: all 60,000 and 10,000. Runs
// examples/fashion_mnist/prepare, which a test must have among its data. False, and a failure of the test, when that
// does not succeed.
bool PrepareFashionMnist(const std::string& dir, int train = 0, int eval = 0);

// A job file that the test has among its data.
std::string ContentsOf(const std::string& file);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_PICTURES_H_
