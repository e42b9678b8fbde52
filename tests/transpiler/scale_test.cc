// Cost of transpiling grows no faster than the size of its result. Compares ratios of processor time within one run, so
// that a busy machine does not matter.
#include <algorithm>
#include <ctime>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/jobs/wide_job.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Size {
  int layers, servers, trainers;
};

// Returns the processor time of one trainer's programs and one server's, verified.
double Cost(const Job& job, const Size& size) {
  const double begin = ProcessorSeconds();
  const absl::StatusOr<Transpiled> transpiled = Transpile(job);
  EXPECT_TRUE(transpiled.ok()) << transpiled.status();
  const bool served = transpiled.ok() && transpiled->Server(size.servers - 1).ok();
  EXPECT_TRUE(served);
  return ProcessorSeconds() - begin;
}

// Returns the ratio of the least of five costs each. The runs alternate, so that a slow phase of the machine affects
// both.
double Ratio(const Size& large, const Size& small) {
  const Job large_job = JobOf(WideJob(large.layers, large.servers, large.trainers));
  const Job small_job = JobOf(WideJob(small.layers, small.servers, small.trainers));
  double least_large = 1e9, least_small = 1e9;
  for (int i = 0; i < 5; ++i) {
    least_large = std::min(least_large, Cost(large_job, large));
    least_small = std::min(least_small, Cost(small_job, small));
  }
  return least_large / least_small;
}

// 100 layers are 200 parameters and 900 blocks on many servers. Four times as many cost four to six times as much, and
// up to nine if other processes use the caches. Quadratic work would cost sixteen times.
TEST(ScaleTest, TimeGrowsWithParametersAndBlocks) { EXPECT_LT(Ratio({400, 100, 8}, {100, 100, 8}), 11); }

// From 8 servers on the number of blocks stays the same, so more servers hold the same blocks.
TEST(ScaleTest, TimeDoesNotGrowWithServers) { EXPECT_LT(Ratio({100, 2000, 8}, {100, 20, 8}), 2); }

TEST(ScaleTest, TimeDoesNotGrowWithTrainers) { EXPECT_LT(Ratio({100, 100, 4096}, {100, 100, 8}), 2); }

}  // namespace
}  // namespace weir
