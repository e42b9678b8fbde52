// Borders of the steps of tables in async: each runs once, by the transaction that ends last.

#include "pserver/consistency/table_steps.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(TableStepsTest, OneTransactionAfterTheOtherRunsItsOwnBorder) {
  TableSteps steps;
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(steps.Begin(), i);
    const TableSteps::Borders borders = steps.End(i);
    EXPECT_EQ(borders.begin, i);
    EXPECT_EQ(borders.end, i + 1);
  }
  EXPECT_EQ(steps.Count(), 3);
}

TEST(TableStepsTest, ABorderWaitsForEarlierTransactionsUnderWay) {
  TableSteps steps;
  const int64_t first = steps.Begin(), second = steps.Begin(), third = steps.Begin();
  TableSteps::Borders borders = steps.End(second);
  EXPECT_EQ(borders.begin, borders.end);
  borders = steps.End(first);
  EXPECT_EQ(borders.begin, 0);
  EXPECT_EQ(borders.end, 2);
  borders = steps.End(third);
  EXPECT_EQ(borders.begin, 2);
  EXPECT_EQ(borders.end, 3);
}

TEST(TableStepsTest, ARestoredCountHasItsBordersBehindIt) {
  TableSteps steps;
  steps.Restore(10);
  EXPECT_EQ(steps.Begin(), 10);
  const TableSteps::Borders borders = steps.End(10);
  EXPECT_EQ(borders.begin, 10);
  EXPECT_EQ(borders.end, 11);
}

}  // namespace
}  // namespace weir
