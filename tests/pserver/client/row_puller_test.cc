// Pulls of rows by one thread, against two servers that a test plays.
#include "pserver/client/row_puller.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/param_channel.h"
#include "framework/wire/buffer_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/pull_calls.h"
#include "pserver/member/waits.h"
#include "tests/pserver/client/played_member.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/played_servers.h"

namespace weir {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Tables t, u and wide of float32 and h of float16, and the rows 0 to 3 of parameter w, two on each of two servers.
v1::Plan MakePlan() {
  v1::Plan plan;
  plan.set_servers(2);
  plan.set_trainers(2);
  plan.set_sync(true);
  for (const char* name : {"t", "u", "h", "wide"}) {
    v1::PlacedTable* const table = plan.add_tables();
    table->set_name(name);
    table->set_logical_shards(16);
    if (*name == 'h') table->mutable_wire()->set_pull(v1::WIRE_FLOAT16);
  }
  v1::FetchedRows* const fetched = plan.add_fetched_rows();
  fetched->set_parameter("w");
  fetched->set_rows(4);
  for (int b = 0; b < 2; ++b) {
    v1::PlacedBlock* const block = plan.add_blocks();
    block->set_name("w.block" + std::to_string(b));
    block->set_parameter("w");
    block->set_server(b);
    block->set_element_begin(b * 4);
    block->set_element_count(4);
    block->add_dims(2);
    block->add_dims(2);
  }
  return plan;
}

class RowPullerTest : public PlayedMember {
 protected:
  RowPullerTest() { rows_.BeginStep(7, /*read_only=*/false); }

  // Rows of a table for PullRows, which come to `values`.
  static RowSource::TableRows Rows(const std::string& table, int width, const std::vector<int64_t>& ids,
                                   std::vector<float>* values) {
    values->assign(ids.size() * static_cast<size_t>(width), -1);
    return {.table = table, .width = width, .ids = &ids, .rows = values->data()};
  }
  std::vector<PlayedFrame<v1::PullRequest>> Requests(int server) {
    return servers_.RequestFrames<v1::PullRequest>(server, Method::kPull);
  }

  const v1::Plan plan_ = MakePlan();
  const BlockPlacement placement_{&plan_};
  BufferPool buffers_;
  ThreadPool pool_{"test", 2};
  PullCalls pulls_{&member_.calls(), &member_.waits(), &buffers_, &pool_};
  RowPuller rows_{&placement_, &pulls_, /*in_turn=*/true, Waits::kProgram};
  std::vector<float> values_;
};

TEST_F(RowPullerTest, RowsComeToThePositionsOfTheirIds) {
  servers_.AnswerPull(0, {}, Encoded({1, 2, 3, 4}));
  servers_.AnswerPull(1, {}, Encoded({5, 6}));
  const std::vector<int64_t> ids = {HighId(0), LowId(1), LowId(0)};
  ASSERT_TRUE(rows_.PullRows({Rows("t", 2, ids, &values_)}).ok());
  EXPECT_THAT(values_, ElementsAre(5, 6, 3, 4, 1, 2));
  EXPECT_EQ(rows_.rows(), 3);
}

TEST_F(RowPullerTest, EachServerIsAskedForItsIdsInTheirOrder) {
  servers_.AnswerPull(0, {}, Encoded({1, 2, 3, 4}));
  servers_.AnswerPull(1, {}, Encoded({5, 6}));
  const std::vector<int64_t> ids = {HighId(0), LowId(1), LowId(0)};
  ASSERT_TRUE(rows_.PullRows({Rows("t", 2, ids, &values_)}).ok());
  ASSERT_THAT(Requests(0), SizeIs(1));
  EXPECT_EQ(Requests(0)[0].header.items(0).count(), 2);
  EXPECT_EQ(Requests(0)[0].header.items(0).width(), 2);
  EXPECT_THAT(IdsAt(Requests(0)[0].payload, 0, 2), ElementsAre(LowId(0), LowId(1)));
  ASSERT_THAT(Requests(1), SizeIs(1));
  EXPECT_THAT(IdsAt(Requests(1)[0].payload, 0, 1), ElementsAre(HighId(0)));
}

TEST_F(RowPullerTest, AServerThatHasNoneOfTheRowsIsNotAsked) {
  servers_.AnswerPull(0, {}, Encoded({1, 2}));
  const std::vector<int64_t> ids = {LowId(0)};
  ASSERT_TRUE(rows_.PullRows({Rows("t", 2, ids, &values_)}).ok());
  EXPECT_THAT(Requests(1), IsEmpty());
}

TEST_F(RowPullerTest, TablesWithTheSameIdsAreAskedForTogether) {
  servers_.AnswerPull(0, {}, Encoded({1, 2}) + Encoded({3}));
  const std::vector<int64_t> ids = {LowId(0)};
  std::vector<float> of_u;
  ASSERT_TRUE(rows_.PullRows({Rows("t", 2, ids, &values_), Rows("u", 1, ids, &of_u)}).ok());
  EXPECT_THAT(values_, ElementsAre(1, 2));
  EXPECT_THAT(of_u, ElementsAre(3));
  ASSERT_THAT(Requests(0), SizeIs(1));
  const v1::PullRequest request = Requests(0)[0].header;
  ASSERT_EQ(request.items_size(), 2);
  EXPECT_EQ(request.items(0).name(), "t");
  EXPECT_EQ(request.items(1).name(), "u");
  EXPECT_EQ(request.items(0).offset(), request.items(1).offset());
  EXPECT_EQ(Requests(0)[0].payload.size(), 64u);  // one list
}

TEST_F(RowPullerTest, RowsThatAreThereStayAsTheyAre) {
  servers_.AnswerPull(0, {}, Encoded({3, 4}));
  const std::vector<int64_t> ids = {LowId(0), LowId(1)};
  const std::vector<uint8_t> there = {1, 0};
  RowSource::TableRows rows = Rows("t", 2, ids, &values_);
  rows.there = there.data();
  ASSERT_TRUE(rows_.PullRows({rows}).ok());
  EXPECT_THAT(values_, ElementsAre(-1, -1, 3, 4));
  EXPECT_THAT(IdsAt(Requests(0).at(0).payload, 0, 1), ElementsAre(LowId(1)));
}

TEST_F(RowPullerTest, FetchedRowsAreAskedForByTheirPlacesInTheBlocks) {
  servers_.AnswerPull(0, {}, Encoded({1, 2}));
  servers_.AnswerPull(1, {}, Encoded({7, 8}));
  const std::vector<int64_t> ids = {3, 0};
  ASSERT_TRUE(rows_.PullRows({Rows("w", 2, ids, &values_)}).ok());
  EXPECT_THAT(values_, ElementsAre(7, 8, 1, 2));
  EXPECT_EQ(Requests(0).at(0).header.items(0).name(), "w.block0");
  EXPECT_THAT(IdsAt(Requests(0)[0].payload, 0, 1), ElementsAre(0));
  EXPECT_EQ(Requests(1).at(0).header.items(0).name(), "w.block1");
  EXPECT_THAT(IdsAt(Requests(1)[0].payload, 0, 1), ElementsAre(1));  // behind rows 0 and 1
}

TEST_F(RowPullerTest, RowsThatAFetchedParameterDoesNotHaveAreZeroUnasked) {
  const std::vector<int64_t> ids = {4, -1};
  ASSERT_TRUE(rows_.PullRows({Rows("w", 2, ids, &values_)}).ok());
  EXPECT_THAT(values_, Each(0));
  EXPECT_THAT(Requests(0), IsEmpty());
  EXPECT_THAT(Requests(1), IsEmpty());
}

TEST_F(RowPullerTest, RowsInALossyFormatAreDecoded) {
  servers_.AnswerPull(0, {}, Encoded({0.5f, -4, 2, 3}, v1::WIRE_FLOAT16, /*group=*/2));
  const std::vector<int64_t> ids = {LowId(1), LowId(0)};
  ASSERT_TRUE(rows_.PullRows({Rows("h", 2, ids, &values_)}).ok());
  EXPECT_THAT(values_, ElementsAre(2, 3, 0.5f, -4));
  EXPECT_EQ(Requests(0).at(0).header.items(0).format(), v1::WIRE_FLOAT16);
}

TEST_F(RowPullerTest, RowsInTurnAreThoseOfTheStepsVersion) {
  servers_.AnswerPull(0, {}, Encoded({1, 2}));
  const std::vector<int64_t> ids = {LowId(0)};
  ASSERT_TRUE(rows_.PullRows({Rows("t", 2, ids, &values_)}).ok());
  EXPECT_EQ(Requests(0).at(0).header.version(), 7);
}

TEST_F(RowPullerTest, RowsOutOfTurnAreTakenAsTheyAre) {
  RowPuller out_of_turn(&placement_, &pulls_, /*in_turn=*/false, Waits::kProgram);
  out_of_turn.BeginStep(7, /*read_only=*/false);
  servers_.AnswerPull(0, {}, Encoded({1, 2}));
  const std::vector<int64_t> ids = {LowId(0)};
  ASSERT_TRUE(out_of_turn.PullRows({Rows("t", 2, ids, &values_)}).ok());
  EXPECT_EQ(Requests(0).at(0).header.version(), 0);
}

TEST_F(RowPullerTest, AReadOnlyStepTakesRowsAsTheyAreAndItsIdsBelongToNoStep) {
  rows_.BeginStep(8, /*read_only=*/true);
  servers_.AnswerPull(0, {}, Encoded({1, 2}));
  const std::vector<int64_t> ids = {LowId(0)};
  ASSERT_TRUE(rows_.PullRows({Rows("t", 2, ids, &values_)}).ok());
  EXPECT_EQ(Requests(0).at(0).header.version(), 0);
  EXPECT_EQ(rows_.orders().Find("t", 7).order, nullptr);
  EXPECT_EQ(rows_.orders().Find("t", 8).order, nullptr);
}

TEST_F(RowPullerTest, ALostPullIsRepeatedUnchanged) {
  servers_.Answer(0, Method::kPull, absl::UnavailableError("gone for a moment"));
  servers_.AnswerPull(0, {}, Encoded({1, 2}));
  const std::vector<int64_t> ids = {LowId(0)};
  ASSERT_TRUE(rows_.PullRows({Rows("t", 2, ids, &values_)}).ok());
  EXPECT_THAT(values_, ElementsAre(1, 2));
  const std::vector<std::string> requests = servers_.RequestBytes(0, Method::kPull);
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_EQ(requests[0], requests[1]);
}

TEST_F(RowPullerTest, TooFewRowsAreDataLoss) {
  const std::vector<float> one_row(16, 1);
  for (int tries = 0; tries < 2; ++tries) servers_.AnswerPull(0, {}, Encoded(one_row));
  const std::vector<int64_t> ids = {LowId(0), LowId(1)};
  EXPECT_STATUS(rows_.PullRows({Rows("wide", 16, ids, &values_)}), kDataLoss,
                "server 0: rows of 64 bytes came, 128 were asked for");
  EXPECT_THAT(values_, Each(-1));
}

TEST_F(RowPullerTest, AnErrorOfOneOfTwoServersNamesIt) {
  servers_.AnswerPull(0, {}, Encoded({1, 2}));
  servers_.Answer(1, Method::kPull, absl::FailedPreconditionError("the lease has run out"));
  const std::vector<int64_t> ids = {LowId(0), HighId(0)};
  EXPECT_STATUS(rows_.PullRows({Rows("t", 2, ids, &values_)}), kFailedPrecondition, "server 1: the lease has run out");
}

TEST_F(RowPullerTest, ATableThatThePlanDoesNotHaveIsRefusedBeforeAnyoneIsAsked) {
  const std::vector<int64_t> ids = {LowId(0)};
  EXPECT_STATUS(rows_.PullRows({Rows("t", 2, ids, &values_), Rows("nothing", 2, ids, &values_)}), kInvalidArgument,
                "pull of table nothing, which the plan does not have");
  EXPECT_THAT(Requests(0), IsEmpty());
}

TEST_F(RowPullerTest, APullAheadEndsWhenItIsCancelled) {
  RowPuller ahead(&placement_, &pulls_, /*in_turn=*/true, Waits::kAhead);
  ahead.BeginStep(8, /*read_only=*/false);
  member_.waits().CancelAhead();
  const std::vector<int64_t> ids = {LowId(0)};
  EXPECT_EQ(ahead.PullRows({Rows("t", 2, ids, &values_)}),
            absl::CancelledError("nobody waits any more for rows of step 8, ahead of it"));
}

}  // namespace
}  // namespace weir
