// What a server remembers of pulls ahead of their step, and what its corrections take.
#include <cstdint>
#include <string>
#include <vector>

#include "framework/wire/frame.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "pserver/server/rows_ahead.h"
#include "tests/testing/core_by_hand.h"

namespace weir {
namespace {

class PullsAheadTest : public CoreByHand {
 protected:
  absl::StatusOr<Pulled> PullOf(v1::PullRequest request) {
    *request.mutable_caller() = CallerOf(0);
    return PulledOf(Call(Method::kPull, Flatten(EncodeFrame(request.SerializeAsString(), {}))));
  }
};

TEST_F(PullsAheadTest, CorrectionsOfCallsWithManyItemsDoNotFillTheHeader) {
  Start({.trainers = 2});
  JoinAll();
  v1::PullRequest ahead, corrects;
  ahead.set_ahead_of(1);
  for (int i = 0; i < 40000; ++i) {
    v1::PullItem* const item = ahead.add_items();
    item->set_name("t");
    item->set_width(4);
    item->set_count(0);
  }
  corrects.set_version(1);
  for (const int64_t call : {1, 2}) {
    ahead.set_ahead_call(call);
    corrects.add_corrects(call);
    ASSERT_TRUE(PullOf(ahead).ok());
  }
  for (int t = 0; t < 2; ++t) ASSERT_TRUE(PushStep(t, 0, {}, 1).ok());
  const auto corrected = PullOf(corrects);
  ASSERT_TRUE(corrected.ok()) << corrected.status();
  EXPECT_EQ(corrected->header.corrections(0).rows_size(), 40000);
  EXPECT_TRUE(corrected->header.corrections(1).forgotten());
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
