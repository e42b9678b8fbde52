#include "framework/base/philox.h"

#include <cstdint>
#include <set>

#include "framework/base/stable_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

// The vectors that the authors of Philox publish with Random123 (kat_vectors, philox4x32 10).
TEST(PhiloxTest, GivesThePublishedVectors) {
  EXPECT_THAT(Philox(0, 0, 0).v, ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(Philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}).v,
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
  EXPECT_THAT(Philox(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu).v,
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(PhiloxTest, UniformFloatsAreBelowOne) {
  EXPECT_EQ(UniformFloat(0), 0.0f);
  EXPECT_LT(UniformFloat(~uint32_t{0}), 1.0f);
  EXPECT_EQ(UniformFloat(0x80000000u), 0.5f);
}

// Data on disk and agreements between processes depend on these values: they must never change.
TEST(StableHashTest, NeverChanges) {
  EXPECT_EQ(StableHash(""), 0x2d06800538d394c2u);
  EXPECT_EQ(StableHash("fc_0.w"), StableHash("fc_0.w", 6));
  EXPECT_NE(StableHash("fc_0.w", 6, 1), StableHash("fc_0.w", 6));
  EXPECT_EQ(MixId(0), 0xe220a8397b1dcdafu);  // splitmix64's first output from seed 0
  for (const uint64_t id : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{0x0123456789abcdef}})
    EXPECT_EQ(UnmixId(MixId(id)), id);
}

TEST(StableHashTest, ShardsCoverServersInRuns) {
  std::set<int> servers;
  int last = 0;
  for (uint32_t shard = 0; shard < 4096; ++shard) {
    const int server = ShardServer(shard, 4096, 3);
    EXPECT_GE(server, last);
    last = server;
    servers.insert(server);
  }
  EXPECT_THAT(servers, ElementsAre(0, 1, 2));
  for (int64_t id : {INT64_MIN, int64_t{-1}, int64_t{0}, INT64_MAX}) EXPECT_LT(LogicalShard(id, 4096), 4096u);
}

}  // namespace
}  // namespace weir
