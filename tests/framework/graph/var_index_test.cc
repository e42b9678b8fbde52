#include "framework/graph/var_index.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

v1::BlockDesc Block() {
  v1::BlockDesc block;
  for (const char* name : {"a", "b"}) block.add_vars()->set_name(name);
  block.mutable_vars(1)->add_dims(-1);
  block.mutable_vars(1)->add_dims(4);
  return block;
}

TEST(VarIndexTest, FindsWhatFindVarFinds) {
  v1::BlockDesc block = Block();
  const VarIndex index(block);
  EXPECT_EQ(index.Find("b"), &block.vars(1));
  EXPECT_EQ(index.Find("b"), FindVar(block, "b"));
  EXPECT_EQ(FindVar(&block, "b"), block.mutable_vars(1));
  EXPECT_EQ(index.Find("c"), nullptr);
  EXPECT_EQ(FindVar(block, "c"), nullptr);
  EXPECT_TRUE(index.Contains("a"));
  EXPECT_FALSE(index.Contains("c"));
}

TEST(VarIndexTest, AnAddedVariableIsFound) {
  v1::BlockDesc block = Block();
  VarIndex index(block);
  v1::VarDesc* const added = block.add_vars();
  added->set_name("c");
  EXPECT_FALSE(index.Contains("c"));
  index.Add(*added);
  EXPECT_EQ(index.Find("c"), added);
}

TEST(VarIndexTest, TheFirstOfEqualNamesCounts) {
  v1::BlockDesc block = Block();
  block.add_vars()->set_name("a");
  EXPECT_EQ(VarIndex(block).Find("a"), &block.vars(0));
}

TEST(VarIndexTest, DimsAreThoseOfTheVariable) {
  const v1::BlockDesc block = Block();
  EXPECT_THAT(Dims(block.vars(1)), ::testing::ElementsAre(-1, 4));
  EXPECT_THAT(Dims(block.vars(0)), ::testing::IsEmpty());
}

}  // namespace
}  // namespace weir
