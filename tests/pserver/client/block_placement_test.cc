#include "pserver/client/block_placement.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/plan.pb.h"

namespace weir {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

void AddBlock(const std::string& name, const std::string& parameter, int server, int64_t begin,
              const std::vector<int64_t>& dims, v1::Plan* plan) {
  v1::PlacedBlock* const block = plan->add_blocks();
  block->set_name(name);
  block->set_parameter(parameter);
  block->set_server(server);
  block->set_element_begin(begin);
  int64_t count = 1;
  for (const int64_t dim : dims) {
    block->add_dims(dim);
    count *= dim;
  }
  block->set_element_count(count);
}

void AddFetched(const std::string& parameter, int64_t rows, v1::Plan* plan) {
  plan->add_fetched_rows()->set_parameter(parameter);
  plan->mutable_fetched_rows(plan->fetched_rows_size() - 1)->set_rows(rows);
}

TEST(BlockPlacementTest, ABlockIsFoundByItsOwnNameAndNotByThatOfItsParameter) {
  v1::Plan plan;
  AddBlock("w.block0", "w", 0, 0, {4, 3}, &plan);
  AddBlock("w.block1", "w", 1, 12, {6, 3}, &plan);
  const BlockPlacement placement(&plan);
  EXPECT_EQ(placement.BlockCount("w.block0"), 12);
  EXPECT_EQ(placement.BlockCount("w.block1"), 18);
  EXPECT_EQ(placement.BlockCount("w"), std::nullopt);
}

TEST(BlockPlacementTest, TablesAndBlocksWithGradientsOfRowsHaveAWidth) {
  v1::Plan plan;
  AddBlock("w", "w", 0, 0, {4, 3}, &plan);
  AddBlock("e", "e", 0, 0, {6, 5}, &plan);
  plan.mutable_blocks(1)->set_sparse_gradient(true);
  plan.add_tables()->set_name("t");
  plan.mutable_tables(0)->set_width(8);
  const BlockPlacement placement(&plan);
  EXPECT_EQ(placement.RowWidth("w"), 0);
  EXPECT_EQ(placement.RowWidth("e"), 5);
  EXPECT_EQ(placement.RowWidth("t"), 8);
  EXPECT_EQ(placement.RowWidth("x"), 0);
}

TEST(BlockPlacementTest, ABlockOnAServerThatThePlanDoesNotHaveIsNotFound) {
  v1::Plan plan;
  plan.set_servers(2);
  AddBlock("b", "b", 1, 0, {5}, &plan);
  const BlockPlacement placement(&plan);
  EXPECT_EQ(placement.BlockCount({.name = "b", .server = 1}), 5);
  EXPECT_EQ(placement.BlockCount({.name = "b", .server = 2}), std::nullopt);
  EXPECT_EQ(placement.BlockCount({.name = "b", .server = -1}), std::nullopt);
  EXPECT_EQ(placement.BlockCount({.name = "c", .server = 1}), std::nullopt);
}

TEST(BlockPlacementTest, AnEmptyBlockIsFoundToo) {
  v1::Plan plan;
  AddBlock("b", "b", 0, 0, {0}, &plan);
  EXPECT_EQ(BlockPlacement(&plan).BlockCount("b"), 0);
}

TEST(BlockPlacementTest, TablesAreNoBlocksAndBlocksNoTables) {
  v1::Plan plan;
  plan.add_tables()->set_name("t");
  AddBlock("b", "b", 0, 0, {5}, &plan);
  const BlockPlacement placement(&plan);
  EXPECT_EQ(placement.FindTable("t"), &plan.tables(0));
  EXPECT_EQ(placement.FindTable("b"), nullptr);
  EXPECT_EQ(placement.BlockCount("t"), std::nullopt);
}

TEST(BlockPlacementTest, AFetchedParameterKnowsTheRowsAndServersOfItsBlocks) {
  v1::Plan plan;
  AddFetched("w", 10, &plan);
  AddBlock("w.block0", "w", 1, 0, {4, 3}, &plan);
  AddBlock("v", "v", 0, 0, {7, 3}, &plan);
  AddBlock("w.block1", "w", 0, 12, {6, 3}, &plan);
  const BlockPlacement placement(&plan);
  const FetchedParameter* const fetched = placement.FindFetched("w");
  ASSERT_NE(fetched, nullptr);
  EXPECT_EQ(fetched->rows, 10);
  ASSERT_THAT(fetched->blocks, SizeIs(2));
  EXPECT_EQ(fetched->blocks[0].name, "w.block0");
  EXPECT_EQ(fetched->blocks[0].server, 1);
  EXPECT_EQ(fetched->blocks[0].begin, 0);
  EXPECT_EQ(fetched->blocks[0].end, 4);
  EXPECT_EQ(fetched->blocks[1].name, "w.block1");
  EXPECT_EQ(fetched->blocks[1].server, 0);
  EXPECT_EQ(fetched->blocks[1].begin, 4);
  EXPECT_EQ(fetched->blocks[1].end, 10);
  EXPECT_EQ(placement.FindFetched("v"), nullptr);
  EXPECT_EQ(placement.FindFetched("w.block0"), nullptr);
}

TEST(BlockPlacementTest, RowsWithoutElementsBeginAtZero) {
  v1::Plan plan;
  AddFetched("w", 4, &plan);
  AddBlock("w", "w", 0, 0, {4, 0}, &plan);
  const FetchedParameter fetched = *BlockPlacement(&plan).FindFetched("w");
  ASSERT_THAT(fetched.blocks, SizeIs(1));
  EXPECT_EQ(fetched.blocks[0].begin, 0);
  EXPECT_EQ(fetched.blocks[0].end, 4);
}

TEST(BlockPlacementTest, ABlockThatIsNoMatrixHasNoRowsToFetch) {
  v1::Plan plan;
  AddFetched("w", 4, &plan);
  AddBlock("w", "w", 0, 0, {4}, &plan);
  EXPECT_THAT(BlockPlacement(&plan).FindFetched("w")->blocks, IsEmpty());
}

TEST(BlockPlacementTest, AMissingBlockIsNamedWithItsServer) {
  EXPECT_EQ(BlockPlacement::NoBlock({.name = "b", .server = 2}),
            absl::InvalidArgumentError("the plan has no block b on server 2"));
}

}  // namespace
}  // namespace weir
