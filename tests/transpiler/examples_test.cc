// The jobs in examples/ are good ones.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

class ExamplesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ExamplesTest, Transpiles) {
  const auto job = LoadJob(std::string("examples/") + GetParam() + ".textproto", {});
  ASSERT_TRUE(job.ok()) << job.status();
  const auto transpiled = Transpile(*job);
  ASSERT_TRUE(transpiled.ok()) << transpiled.status();
  for (int server = 0; server < transpiled->plan().servers(); ++server) {
    EXPECT_TRUE(transpiled->Server(server).ok()) << transpiled->Server(server).status();
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, ExamplesTest,
                         ::testing::Values("flights/job", "flights/wide_and_deep", "flights/dcn_v2", "flights/dlrm",
                                           "flights/xdeepfm", "movielens/din", "movielens/sasrec",
                                           "movielens/skip_gram", "movielens/two_tower", "avazu/job", "adult/job",
                                           "adult/mmoe", "california_housing/job", "fashion_mnist/job",
                                           "fashion_mnist/cnn", "synthetic_ctr/job", "synthetic_ctr/libsvm",
                                           "multi_host/job", "layouts/bank", "layouts/criteo", "layouts/libffm",
                                           "layouts/libsvm", "layouts/list_csv", "layouts/nycflights",
                                           "layouts/slot_sign", "layouts/tfrecord"));

}  // namespace
}  // namespace weir
