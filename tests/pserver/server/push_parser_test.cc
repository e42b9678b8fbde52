// Parsing of pushes: the gradients that a server takes from one, and the pushes that it refuses.
#include "pserver/params/push_parser.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/lane_tree.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/tables/sparse_table.h"
#include "tests/testing/hand_made_job.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Node of the trainer's lanes.
constexpr LaneRange kNode = {0, 8};

class PushParserTest : public ::testing::Test {
 protected:
  void MakeServer(const HandMadeJob& job, int server = 0) {
    auto params = ServerParams::Create(job.Main(server), job.Startup(server), server, &pool_);
    ASSERT_TRUE(params.ok()) << params.status();
    params_ = *std::move(params);
  }

  // Appends an item and returns it for changes.
  v1::PushItem* AddDense(const std::string& name, const std::vector<float>& values, int64_t begin = 0) {
    v1::PushItem* const item = AddItem(name, static_cast<int64_t>(values.size()));
    item->set_begin(begin);
    Append(values.data(), values.size() * sizeof(float));
    return item;
  }
  v1::PushItem* AddRows(const std::string& name, int width, const std::vector<int64_t>& ids,
                        const std::vector<float>& values) {
    v1::PushItem* const item = AddItem(name, static_cast<int64_t>(ids.size()));
    item->set_width(width);
    Append(ids.data(), ids.size() * sizeof(int64_t));
    payload_.resize(AlignUp(payload_.size()));
    Append(values.data(), values.size() * sizeof(float));
    return item;
  }
  v1::PushItem* AddItem(const std::string& name, int64_t count) {
    v1::PushItem* const item = request_.add_items();
    item->set_name(name);
    item->set_lane(kNode.begin);
    item->set_lanes(kNode.count);
    item->set_count(count);
    payload_.resize(AlignUp(payload_.size()));
    item->set_offset(static_cast<int64_t>(payload_.size()));
    return item;
  }
  void Append(const void* bytes, size_t n) { payload_.append(static_cast<const char*>(bytes), n); }

  absl::Status Parse() {
    gradients_.clear();
    // A copy that is aligned and has the exact size, so that sanitizers see reads beyond it.
    aligned_.assign(payload_.size() / sizeof(double) + 1, 0);
    std::memcpy(aligned_.data(), payload_.data(), payload_.size());
    return ParseGradients(request_, Slice::Borrow(aligned_.data(), payload_.size()), {kNode}, *params_, &gradients_);
  }
  void ExpectRefused(const std::string& why) {
    const absl::Status status = Parse();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }

  ThreadPool pool_{"test", 0};
  std::unique_ptr<ServerParams> params_;
  v1::PushRequest request_;
  std::string payload_;
  std::vector<double> aligned_;
  std::vector<Gradient> gradients_;
};

uint64_t Mixed(int64_t id) { return MixId(static_cast<uint64_t>(id)); }

TEST_F(PushParserTest, DenseValuesAreReadWhereTheyLie) {
  MakeServer({});
  AddDense("b", {1, 2, 3}, /*begin=*/2);
  ASSERT_TRUE(Parse().ok());
  ASSERT_THAT(gradients_, SizeIs(1));
  const Gradient& g = gradients_[0];
  EXPECT_FALSE(g.of_table);
  EXPECT_EQ(g.target, params_->FindBlock("b"));
  EXPECT_EQ(g.node, kNode);
  EXPECT_EQ(g.begin, 2);
  EXPECT_EQ(g.values, reinterpret_cast<const float*>(aligned_.data()));
  EXPECT_THAT(std::vector<float>(g.values, g.values + g.count), ElementsAre(1, 2, 3));
  EXPECT_EQ(g.decoded_bytes, 0u);
}

TEST_F(PushParserTest, ValuesIn16BitsAreDecodedAndTheirMemoryIsReported) {
  MakeServer({.push = v1::WIRE_FLOAT16});
  const std::vector<float> values = {1, -2, 0.5f, 4, 8};
  AddItem("b", 5)->set_format(v1::WIRE_FLOAT16);
  alignas(64) char encoded[64];
  Encode(v1::WIRE_FLOAT16, values.data(), values.size(), kDenseGroup, encoded);
  Append(encoded, EncodedBytes(v1::WIRE_FLOAT16, values.size(), kDenseGroup));
  ASSERT_TRUE(Parse().ok());
  EXPECT_EQ(std::vector<float>(gradients_[0].values, gradients_[0].values + 5), values);
  EXPECT_EQ(gradients_[0].decoded_bytes, 5 * sizeof(float));
}

TEST_F(PushParserTest, ExponentsMakeValuesIn16BitsLarge) {
  MakeServer({.push = v1::WIRE_FLOAT16});
  const std::vector<float> dense = {1, -2, 0x1p20f, 4, 8}, rows = {1, 2, 3, 4, -0x1p100f, 0, 0, 0x1p99f};
  alignas(64) char encoded[64];
  v1::PushItem* item = AddItem("b", 5);
  item->set_format(v1::WIRE_FLOAT16);
  item->set_exponents(EncodeWithExponents(dense.data(), dense.size(), kDenseGroup, encoded));
  Append(encoded, 10);
  item = AddRows("t", 4, {5, 6}, {});
  item->set_format(v1::WIRE_FLOAT16);
  item->set_exponents(EncodeWithExponents(rows.data(), rows.size(), 4, encoded));
  Append(encoded, 16);
  ASSERT_TRUE(Parse().ok());
  EXPECT_EQ(std::vector<float>(gradients_[0].values, gradients_[0].values + 5), dense);
  EXPECT_EQ(std::vector<float>(gradients_[1].values, gradients_[1].values + 8), rows);
}

TEST_F(PushParserTest, ExponentsThatAreNoneAreRefused) {
  MakeServer({.push = v1::WIRE_FLOAT16});
  AddRows("t", 4, {5, 6}, {})->set_format(v1::WIRE_FLOAT16);
  payload_.resize(payload_.size() + 16);
  v1::PushItem* const item = request_.mutable_items(0);
  for (const std::string& exponents :
       {std::string(), std::string("\1"), std::string(3, '\0'), std::string("\0\x71", 2), std::string("\xff\0", 2)}) {
    item->set_exponents(exponents);
    ExpectRefused(std::to_string(exponents.size()) +
                  " exponents for 8 values in groups of 4; it takes one for each group, from 0 to 112");
  }
  item->set_exponents(std::string("\0\x70", 2));
  EXPECT_TRUE(Parse().ok());
}

TEST_F(PushParserTest, OtherFormatsHaveNoExponents) {
  MakeServer({});
  AddDense("b", {1, 2, 3})->set_exponents(std::string(1, '\0'));
  ExpectRefused("gradient of b: comes as WIRE_FLOAT32 with exponents, which only WIRE_FLOAT16 has");
}

TEST_F(PushParserTest, AFormatThatIsNotThePlansIsRefused) {
  MakeServer({.push = v1::WIRE_FLOAT16});
  AddDense("b", {1, 2, 3, 4, 5});
  ExpectRefused("gradient of b: comes as WIRE_FLOAT32; by the plan it travels as WIRE_FLOAT16");
}

TEST_F(PushParserTest, RowsThatAscendNeedNoOrder) {
  MakeServer({});
  std::vector<int64_t> ids = {5, 6, 7, 8};
  std::sort(ids.begin(), ids.end(), [](int64_t a, int64_t b) { return Mixed(a) < Mixed(b); });
  AddRows("u", 1, ids, {1, 2, 3, 4});
  ASSERT_TRUE(Parse().ok());
  EXPECT_TRUE(gradients_[0].of_table);
  EXPECT_EQ(gradients_[0].target, params_->FindTable("u"));
  EXPECT_THAT(gradients_[0].order, IsEmpty());
}

TEST_F(PushParserTest, RowsInAnotherOrderGetOne) {
  MakeServer({});
  const std::vector<int64_t> ids = {5, 6, 7, 8, 9, 10};
  AddRows("u", 1, ids, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(Parse().ok());
  const std::vector<uint32_t>& order = gradients_[0].order;
  ASSERT_THAT(order, SizeIs(ids.size()));
  for (size_t i = 1; i < order.size(); ++i) EXPECT_LT(Mixed(ids[order[i - 1]]), Mixed(ids[order[i]]));
}

TEST_F(PushParserTest, ANodeWithoutRowsIsAbsent) {
  MakeServer({});
  AddRows("u", 1, {}, {});
  ASSERT_TRUE(Parse().ok());
  EXPECT_THAT(gradients_, IsEmpty());
}

TEST_F(PushParserTest, AnIdThatRepeatsIsNamed) {
  MakeServer({});
  AddRows("u", 1, {5, 6, 5}, {1, 2, 3});
  ExpectRefused("gradient of u: id 5 stands there twice; merge rows by id before sending");
}

TEST_F(PushParserTest, AnIdOfAnotherServerIsNamed) {
  MakeServer({.servers = 2});
  int64_t foreign = 0;
  while (params_->table(params_->FindTable("u")).Owns(foreign)) ++foreign;
  AddRows("u", 1, {foreign}, {1});
  ExpectRefused("id " + std::to_string(foreign) + " belongs to a logical shard of another server");
}

TEST_F(PushParserTest, ARowBeyondTheBlockIsNamed) {
  MakeServer({});
  AddRows("e", 3, {30}, {1, 2, 3});
  ExpectRefused("gradient of e: row 30 of a block with 30 rows");
}

TEST_F(PushParserTest, NamesOfNothingAreRefused) {
  MakeServer({});
  AddDense("x", {1});
  ExpectRefused("gradient of x: this server has no such block");
  request_.Clear();
  AddRows("x", 1, {5}, {1});
  ExpectRefused("gradient of x: this server has no such table or block");
}

TEST_F(PushParserTest, RowsAndDenseGradientsAreNotMistakenForEachOther) {
  MakeServer({});
  AddDense("e", {1, 2, 3});
  ExpectRefused("gradient of e: the block takes rows of width 3");
  request_.Clear();
  AddRows("b", 1, {1}, {1});
  ExpectRefused("gradient of b: rows came, but the block takes a dense gradient");
  request_.Clear();
  AddRows("t", 3, {1}, {1, 2, 3});
  ExpectRefused("gradient of t: rows of 3 floats; it has rows of 4");
}

TEST_F(PushParserTest, LanesOfAnotherTrainerAreRefused) {
  MakeServer({});
  AddDense("b", {1, 2, 3, 4, 5})->set_lanes(4);
  ExpectRefused("lanes [0, 0 + 4) are not one of the largest aligned runs of the trainer's lanes");
}

TEST_F(PushParserTest, ElementsOutsideTheBlockAreRefused) {
  MakeServer({});
  AddDense("b", {1, 2, 3}, /*begin=*/3);
  ExpectRefused("gradient of b: elements [3, 3 + 3) of a block of 5");
  request_.mutable_items(0)->set_begin(std::numeric_limits<int64_t>::max());
  ExpectRefused("of a block of 5");
  request_.mutable_items(0)->set_begin(-1);
  ExpectRefused("elements [-1, -1 + 3)");
}

TEST_F(PushParserTest, CountsBeyondThePayloadAreRefusedBeforeAnythingIsAllocated) {
  MakeServer({});
  AddRows("u", 1, {5}, {1})->set_count(std::numeric_limits<int64_t>::max());
  ExpectRefused("rows of width 1 do not fit in the");
  request_.mutable_items(0)->set_count(-1);
  ExpectRefused("count is -1");
}

TEST_F(PushParserTest, ItemsStandOneBehindTheOther) {
  MakeServer({});
  AddDense("b", {1, 2, 3, 4, 5});
  AddDense("b", {1, 2, 3, 4, 5})->set_offset(0);
  ExpectRefused("offset 0 lies before byte 20");
  request_.mutable_items(1)->set_offset(1);
  ExpectRefused("offset 1 is not a multiple of 64");
  request_.mutable_items(1)->set_offset(1 << 20);
  ExpectRefused("offset 1048576 is not a multiple of 64 inside a payload of 84 bytes");
}

TEST_F(PushParserTest, ShowsAndClicksFollowTheRowsOfATableThatCountsThem) {
  MakeServer({.shows = true});
  AddRows("t", 4, {5}, {1, 2, 3, 4})->set_shows_and_clicks(true);
  payload_.resize(AlignUp(payload_.size()));
  const float shows[] = {7, 2};
  Append(shows, sizeof(shows));
  ASSERT_TRUE(Parse().ok());
  EXPECT_THAT(std::vector<float>(gradients_[0].counts, gradients_[0].counts + 2), ElementsAre(7, 2));
}

// A payload in shared memory can change after it has been checked.
TEST_F(PushParserTest, WhatIsCheckedIsACopy) {
  MakeServer({.shows = true});
  AddRows("t", 4, {5}, {1, 2, 3, 4})->set_shows_and_clicks(true);
  payload_.resize(AlignUp(payload_.size()));
  const float shows[] = {7, 2};
  Append(shows, sizeof(shows));
  ASSERT_TRUE(Parse().ok());
  std::memset(aligned_.data(), 0xff, payload_.size());
  EXPECT_EQ(gradients_[0].ids[0], 5);
  EXPECT_THAT(std::vector<float>(gradients_[0].counts, gradients_[0].counts + 2), ElementsAre(7, 2));
}

TEST_F(PushParserTest, ShowsThatAreNotFiniteAreRefused) {
  MakeServer({.shows = true});
  AddRows("t", 4, {5}, {1, 2, 3, 4})->set_shows_and_clicks(true);
  payload_.resize(AlignUp(payload_.size()));
  const float shows[] = {std::numeric_limits<float>::infinity(), 0};
  Append(shows, sizeof(shows));
  ExpectRefused("gradient of t: shows or clicks are not finite");
}

TEST_F(PushParserTest, ShowsThatNothingCountsAreRefused) {
  MakeServer({});
  AddRows("t", 4, {5}, {1, 2, 3, 4})->set_shows_and_clicks(true);
  ExpectRefused("gradient of t: brings shows and clicks, which nobody counts");
}

}  // namespace
}  // namespace weir
