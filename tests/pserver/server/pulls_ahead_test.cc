// Pulls ahead of their step and their corrections, one by one, on one server under a fake clock; and what a server
// remembers of them.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "pserver/server/rows_ahead.h"
#include "tests/testing/core_by_hand.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PullsAheadTest : public CoreByHand {
 protected:
  // Returns the bytes of a pull of rows of t, for `edit` to say what for.
  std::string RowsBytes(int trainer, int64_t version, const std::vector<int64_t>& ids,
                        const std::function<void(v1::PullRequest*)>& edit) {
    v1::PullRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.set_version(version);
    Slices payload;
    if (!ids.empty()) {
      v1::PullItem* const item = request.add_items();
      item->set_name("t");
      item->set_width(4);
      item->set_count(static_cast<int64_t>(ids.size()));
      payload.push_back(Slice::Own(std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8)));
    }
    edit(&request);
    return Flatten(EncodeFrame(request.SerializeAsString(), payload));
  }
  absl::StatusOr<Pulled> PullAhead(int trainer, int64_t step, int64_t call, const std::vector<int64_t>& ids) {
    return PulledOf(Call(Method::kPull, RowsBytes(trainer, step - 1, ids, [&](v1::PullRequest* request) {
                           request->set_ahead_of(step);
                           request->set_ahead_call(call);
                         })));
  }
  absl::StatusOr<Pulled> Correct(int trainer, int64_t step, const std::vector<int64_t>& calls,
                                 const std::vector<int64_t>& ids = {}) {
    return PulledOf(Call(Method::kPull, RowsBytes(trainer, step, ids, [&](v1::PullRequest* request) {
                           for (const int64_t call : calls) request->add_corrects(call);
                         })));
  }
  absl::Status PushRows(int trainer, int64_t step, const std::vector<int64_t>& ids, v1::Verdict verdict = v1::APPLY) {
    const int lanes = job_.lanes / job_.trainers;
    std::vector<Item> items;
    if (!ids.empty()) {
      items.push_back({.name = "t",
                       .lane = trainer * lanes,
                       .lanes = lanes,
                       .values = std::vector<float>(ids.size() * 4, 1.0f),
                       .ids = ids,
                       .width = 4});
    }
    return PushStep(trainer, step, items, 1, verdict);
  }
  // Returns the positions of the corrected rows of a call without other rows, and their values.
  static std::vector<uint32_t> Positions(const Pulled& pulled, int64_t n) {
    std::vector<uint32_t> positions(static_cast<size_t>(n));
    std::memcpy(positions.data(), pulled.values.data(), positions.size() * 4);
    return positions;
  }
};

TEST_F(PullsAheadTest, RowsThatOthersHaveChangedAreCorrected) {
  Start({.trainers = 2});
  JoinAll();
  const auto ahead = PullAhead(0, 1, 7, {10, 11, 12});
  ASSERT_TRUE(ahead.ok()) << ahead.status();
  EXPECT_EQ(ahead->header.version(), 0);
  ASSERT_TRUE(PushRows(0, 0, {20}).ok());
  ASSERT_TRUE(PushRows(1, 0, {11, 13}).ok());
  const auto corrected = Correct(0, 1, {7}, {20});
  ASSERT_TRUE(corrected.ok()) << corrected.status();
  ASSERT_EQ(corrected->header.corrections_size(), 1);
  const v1::Correction& correction = corrected->header.corrections(0);
  EXPECT_FALSE(correction.forgotten());
  EXPECT_THAT(correction.rows(), ElementsAre(1));
  // A row of 16 bytes, padded; the position, padded; the row.
  ASSERT_EQ(corrected->values.size(), 3 * 16u);
  uint32_t position = 0;
  std::memcpy(&position, corrected->values.data() + 16, 4);
  EXPECT_EQ(position, 1u);
  const auto now = Pull(0, 1, "t", 1, {11}, 4);
  ASSERT_TRUE(now.ok());
  EXPECT_EQ(std::vector<float>(corrected->values.begin() + 32, corrected->values.begin() + 36),
            std::vector<float>(now->values.begin(), now->values.begin() + 4));
  EXPECT_NE(now->values[0], ahead->values[4]);
  // A repeat gets the same.
  EXPECT_EQ(Correct(0, 1, {7}, {20})->values, corrected->values);
}

TEST_F(PullsAheadTest, AStepWithoutEffectChangesNothing) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(PullAhead(0, 1, 1, {10, 11}).ok());
  ASSERT_TRUE(PushRows(0, 0, {20}).ok());
  ASSERT_TRUE(PushRows(1, 0, {11}).ok());
  // From the second step on the server knows what changes.
  EXPECT_THAT(Correct(0, 1, {1})->header.corrections(0).rows(), ElementsAre(1));
  ASSERT_TRUE(PullAhead(0, 2, 2, {10, 11}).ok());
  ASSERT_TRUE(PushRows(0, 1, {20}).ok());
  ASSERT_TRUE(PushRows(1, 1, {11}, v1::SKIP).ok());
  const auto corrected = Correct(0, 2, {2});
  ASSERT_TRUE(corrected.ok()) << corrected.status();
  EXPECT_TRUE(corrected->header.skipped());
  EXPECT_THAT(corrected->header.corrections(0).rows(), ElementsAre(0));
  EXPECT_THAT(corrected->values, IsEmpty());
}

TEST_F(PullsAheadTest, WhatIsReadAtTheStepsOwnVersionNeedsNoCorrection) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(PushRows(0, 0, {20}).ok());
  ASSERT_TRUE(PushRows(1, 0, {11}).ok());
  const auto ahead = PullAhead(0, 1, 3, {11});
  ASSERT_TRUE(ahead.ok()) << ahead.status();
  EXPECT_EQ(ahead->header.version(), 1);
  // And is not remembered.
  EXPECT_TRUE(Correct(0, 1, {3})->header.corrections(0).forgotten());
}

TEST_F(PullsAheadTest, OtherCallsAndOlderStepsAreForgotten) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(PullAhead(0, 1, 1, {10}).ok());
  ASSERT_TRUE(PullAhead(0, 1, 2, {11}).ok());
  ASSERT_TRUE(PushRows(0, 0, {}).ok());
  ASSERT_TRUE(PushRows(1, 0, {11}).ok());
  const auto corrected = Correct(0, 1, {1, 2, 5});
  ASSERT_TRUE(corrected.ok()) << corrected.status();
  ASSERT_EQ(corrected->header.corrections_size(), 3);
  EXPECT_THAT(corrected->header.corrections(0).rows(), ElementsAre(0));
  EXPECT_THAT(corrected->header.corrections(1).rows(), ElementsAre(1));
  EXPECT_TRUE(corrected->header.corrections(2).forgotten());
  EXPECT_THAT(Positions(*corrected, 1), ElementsAre(0u));
  // Another trainer's.
  EXPECT_TRUE(Correct(1, 1, {1})->header.corrections(0).forgotten());
  ASSERT_TRUE(PullAhead(0, 2, 3, {10}).ok());
  EXPECT_TRUE(Correct(0, 1, {1})->header.corrections(0).forgotten());
}

TEST_F(PullsAheadTest, WrongOnesAreRefused) {
  Start({.trainers = 2});
  JoinAll();
  const auto status = [&](const std::function<void(v1::PullRequest*)>& edit) {
    return PulledOf(Call(Method::kPull, RowsBytes(0, 0, {10}, edit))).status();
  };
  EXPECT_STATUS(status([](v1::PullRequest* r) { r->set_ahead_of(1); }), kInvalidArgument, "call 0 ahead of step 1");
  EXPECT_STATUS(status([](v1::PullRequest* r) {
                  r->set_ahead_of(2);
                  r->set_ahead_call(1);
                }),
                kInvalidArgument, "call 1 ahead of step 2 at version 0");
  EXPECT_STATUS(status([](v1::PullRequest* r) {
                  r->set_ahead_of(1);
                  r->set_ahead_call(1);
                  r->add_corrects(1);
                }),
                kInvalidArgument, "a pull ahead of a step corrects no other");
  EXPECT_STATUS(status([](v1::PullRequest* r) {
                  r->add_corrects(1);
                  v1::PullItem* const item = r->add_items();
                  item->set_name("b");
                  item->set_count(5);
                }),
                kInvalidArgument, "pull of b: only rows are pulled ahead of a step");
  EXPECT_STATUS(status([](v1::PullRequest* r) {
                  for (int i = 0; i < 5000; ++i) r->add_corrects(i);
                }),
                kInvalidArgument, "corrects 5000 calls; at most 4096");
  EXPECT_STATUS(status([](v1::PullRequest* r) {
                  r->add_corrects(7);
                  r->add_corrects(7);
                }),
                kInvalidArgument, "corrects call 7 after 7; the calls must ascend");
}

TEST_F(PullsAheadTest, InAsyncTheyAreRefused) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  EXPECT_STATUS(PullAhead(0, 1, 1, {10}).status(), kInvalidArgument, "only in sync");
  EXPECT_STATUS(Correct(0, 0, {1}).status(), kInvalidArgument, "only in sync");
}

TEST_F(PullsAheadTest, CorrectionsOfCallsWithManyItemsDoNotFillTheHeader) {
  Start({.trainers = 2});
  JoinAll();
  const auto many = [](int64_t call) {
    return [call](v1::PullRequest* request) {
      request->set_ahead_of(1);
      request->set_ahead_call(call);
      const v1::PullItem one = request->items(0);
      request->clear_items();
      for (int i = 0; i < 40000; ++i) {
        *request->add_items() = one;
        request->mutable_items(i)->set_count(0);
      }
    };
  };
  for (const int64_t call : {1, 2}) {
    ASSERT_TRUE(PulledOf(Call(Method::kPull, RowsBytes(0, 0, {10}, many(call)))).ok());
  }
  ASSERT_TRUE(PushRows(0, 0, {}).ok());
  ASSERT_TRUE(PushRows(1, 0, {11}).ok());
  const auto corrected = Correct(0, 1, {1, 2});
  ASSERT_TRUE(corrected.ok()) << corrected.status();
  EXPECT_EQ(corrected->header.corrections(0).rows_size(), 40000);
  EXPECT_TRUE(corrected->header.corrections(1).forgotten());
}

TEST_F(PullsAheadTest, TheNextStepsPullEndsTheMemoryOfAStep) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(PullAhead(0, 1, 1, {10}).ok());
  for (int64_t step = 0; step < 2; ++step) {
    ASSERT_TRUE(PushRows(0, step, {}).ok());
    ASSERT_TRUE(PushRows(1, step, {11}).ok());
    EXPECT_EQ(Correct(0, step + 1, {1})->header.corrections(0).forgotten(), step > 0);
  }
  EXPECT_TRUE(Correct(0, 1, {1})->header.corrections(0).forgotten());
}

v1::PullRequest Request(uint64_t session, int64_t step, int64_t call) {
  v1::PullRequest request;
  request.mutable_caller()->set_trainer(0);
  request.mutable_caller()->set_session(session);
  request.set_ahead_of(step);
  request.set_ahead_call(call);
  return request;
}

TEST(RowsAheadTest, RemembersOneStepOfOneSession) {
  RowsAhead rows({1000});
  const Slice payload = Slice::Own("12345678");
  rows.Remember({Request(5, 3, 1), payload});
  rows.Remember({Request(5, 3, 2), payload});
  EXPECT_NE(rows.Find(Request(5, 3, 1).caller(), 3, 1), nullptr);
  EXPECT_EQ(rows.Find(Request(5, 3, 1).caller(), 3, 2)->payload.size, 8u);
  EXPECT_EQ(rows.Find(Request(5, 3, 1).caller(), 4, 1), nullptr);
  EXPECT_EQ(rows.Find(Request(6, 3, 1).caller(), 3, 1), nullptr);
  rows.Remember({Request(6, 3, 1), payload});
  EXPECT_EQ(rows.Find(Request(5, 3, 1).caller(), 3, 1), nullptr);
  EXPECT_EQ(rows.Find(Request(6, 3, 1).caller(), 3, 2), nullptr);
  rows.Remember({Request(6, 4, 1), payload});
  EXPECT_EQ(rows.Find(Request(6, 3, 1).caller(), 3, 1), nullptr);
  EXPECT_NE(rows.Find(Request(6, 4, 1).caller(), 4, 1), nullptr);
}

TEST(RowsAheadTest, RemembersNoMoreThanItHasRoomFor) {
  RowsAhead rows({10000});
  const Slice payload = Slice::Own(std::string(4000, 'x'));
  for (int64_t call = 1; call <= 5; ++call) rows.Remember({Request(5, 3, call), payload});
  const v1::Caller caller = Request(5, 3, 1).caller();
  EXPECT_NE(rows.Find(caller, 3, 2), nullptr);
  EXPECT_EQ(rows.Find(caller, 3, 3), nullptr);
  EXPECT_EQ(rows.Find(caller, 3, 5), nullptr);
  // A repeat takes the room of the first, and no more.
  rows.Remember({Request(5, 3, 2), payload});
  EXPECT_NE(rows.Find(caller, 3, 2), nullptr);
  rows.Remember({Request(5, 3, 2), Slice::Own(std::string(9000, 'x'))});
  EXPECT_EQ(rows.Find(caller, 3, 2), nullptr);
  EXPECT_NE(rows.Find(caller, 3, 1), nullptr);
  rows.Pass(caller, 3);
  EXPECT_NE(rows.Find(caller, 3, 1), nullptr);
  rows.Pass(caller, 4);
  EXPECT_EQ(rows.Find(caller, 3, 1), nullptr);
  rows.Remember({Request(5, 4, 1), payload});
  EXPECT_NE(rows.Find(caller, 4, 1), nullptr);
}

}  // namespace
}  // namespace weir
