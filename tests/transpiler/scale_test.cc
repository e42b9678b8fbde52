// Transpiling grows no faster than what it makes: ratios within one run, in processor time, so that a busy machine does
// not matter.
#include <algorithm>
#include <ctime>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/wide_job.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// The least of three: one trainer's programs and one server's, verified.
double Cost(int layers, int servers, int trainers) {
  const Job job = JobOf(WideJob(layers, servers, trainers));
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double begin = ProcessorSeconds();
    const absl::StatusOr<Transpiled> transpiled = Transpile(job);
    EXPECT_TRUE(transpiled.ok()) << transpiled.status();
    const bool served = transpiled.ok() && transpiled->Server(servers - 1).ok();
    EXPECT_TRUE(served);
    least = std::min(least, ProcessorSeconds() - begin);
  }
  return least;
}

// 100 layers are 200 parameters and 900 blocks on many servers; four times that may cost four times as much, and half
// again for caches. Work that grows with the square would cost sixteen times.
TEST(ScaleTest, TimeGrowsWithParametersAndBlocks) { EXPECT_LT(Cost(400, 100, 8) / Cost(100, 100, 8), 7); }

// From 8 servers on there are no more blocks: ten and a hundred times as many servers hold the same.
TEST(ScaleTest, TimeDoesNotGrowWithServers) { EXPECT_LT(Cost(100, 2000, 8) / Cost(100, 20, 8), 2); }

TEST(ScaleTest, TimeDoesNotGrowWithTrainers) { EXPECT_LT(Cost(100, 100, 4096) / Cost(100, 100, 8), 2); }

}  // namespace
}  // namespace weir
