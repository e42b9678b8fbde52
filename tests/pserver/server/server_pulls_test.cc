// What pulls and pushes take, their formats, and what a profile says of them. One server under a fake clock.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/profile/profiler.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/core_by_hand.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class ServerPullsTest : public CoreByHand {};

// One pull waits for its reader, one for another trainer's step.
TEST_F(ServerPullsTest, AProfileSaysWhatAPullHasWaitedFor) {
  Profiler::Process().Start(0, 10);
  unread_bytes_ = 1200;
  Start({.trainers = 2});
  JoinAll();
  auto first = Call(Method::kPull, PullBytes(0, 0, 5, "w", 320));
  const auto second = Call(Method::kPull, PullBytes(0, 0, 5, "w", 320));
  const auto next = Call(Method::kPull, PullBytes(1, 1, 5, "b", 5));
  ASSERT_TRUE(PushStep(0, 0, {}, 1).ok());
  EXPECT_FALSE(second->has_value() || next->has_value());
  first->reset();
  core_->Tick();
  ASSERT_TRUE(PushStep(1, 0, {}, 1).ok());
  ASSERT_TRUE(second->has_value() && next->has_value());
  Profiler::Process().Stop();
  const Profiler::Recorded recorded = Profiler::Process().Collect();
  std::vector<std::string> waits;
  for (const auto& thread : recorded.threads) {
    for (const ProfileEvent& event : thread.events) {
      if (event.kind == ProfileKind::kWait) {
        waits.push_back(absl::StrCat("trainer ", event.peer, " for ", recorded.names[event.detail.id()]));
        EXPECT_EQ(event.bytes_in, -1);  // a wait has none
      } else if (event.kind == ProfileKind::kHandler) {
        EXPECT_GT(event.bytes_in, 0);
      }
    }
  }
  EXPECT_THAT(waits, UnorderedElementsAre("trainer 0 for trainer 0", "trainer 1 for trainers 0, 1"));
}

TEST_F(ServerPullsTest, PullsThatPileUpBehindUnreadAnswersAreRefused) {
  unread_bytes_ = 1200;
  Start({.trainers = 2, .sync = false});
  JoinAll();
  const auto unread = Call(Method::kPull, PullBytes(0, 0, 5, "w", 320));
  const std::vector<int64_t> ids(60, 7);
  const auto waiting = Call(Method::kPull, PullBytes(0, 0, 5, "t", 60, ids, 4));
  EXPECT_FALSE(waiting->has_value());
  const absl::Status refused =
      PulledOf(Call(Method::kPull, PullBytes(0, 0, 5, "t", 80, std::vector<int64_t>(80, 7), 4))).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()),
              ::testing::ContainsRegex(
                  "trainer 0 \\(trainer:0\\) has pulls of 2[0-9]{3} bytes waiting and 1280 bytes of answers unread"));
  EXPECT_TRUE(Pull(1, 0, "t", 60, ids, 4).ok());
}

TEST_F(ServerPullsTest, PullsWithoutRowsPileUpToo) {
  unread_bytes_ = 10000;
  Start({.trainers = 2, .sync = false});
  JoinAll();
  int waiting = 0;
  absl::Status refused;
  std::vector<std::shared_ptr<Answer>> kept;
  while (refused.ok() && waiting < 1000) {
    // Version 100 never comes, so the pull waits.
    kept.push_back(Call(Method::kPull, PullBytes(0, 100, 5, "b", 5)));
    if (!kept.back()->has_value()) {
      ++waiting;
    } else {
      refused = PulledOf(kept.back()).status();
    }
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_GT(waiting, 5);
  EXPECT_LT(waiting, 100);
}

// A table may use another wire format than blocks do, even if it is the first item.
TEST_F(ServerPullsTest, ATablesRowsComeInTheTablesOwnFormat) {
  edit_ = [](ServerOptions* options) {
    options->main.mutable_plan()->mutable_tables(0)->mutable_wire()->set_pull(v1::WIRE_FLOAT16);
  };
  Start({.sync = false});
  JoinAll();
  const std::vector<int64_t> ids = {5};
  const std::string id_bytes(reinterpret_cast<const char*>(ids.data()), 8);
  for (const bool right : {false, true}) {
    v1::PullRequest pull;
    *pull.mutable_caller() = CallerOf(0);
    v1::PullItem* const item = pull.add_items();
    item->set_name("t");
    item->set_width(4);
    item->set_count(1);
    if (right) item->set_format(v1::WIRE_FLOAT16);
    const auto answer = Call(Method::kPull, Flatten(EncodeFrame(pull.SerializeAsString(), {Slice::Own(id_bytes)})));
    ASSERT_TRUE(answer->has_value());
    EXPECT_EQ((*answer)->ok(), right) << (*answer)->status();
  }
}

TEST_F(ServerPullsTest, LossyFormatsAreDecodedOnArrivalAndEncodedOnTheWayOut) {
  for (const v1::WireFormat format : {v1::WIRE_FLOAT16, v1::WIRE_BFLOAT16, v1::WIRE_INT8}) {
    Start({.sync = false, .pull = format});
    JoinAll();
    // Rows of t are multiples of powers of two, which every format represents exactly.
    v1::PullRequest pull;
    *pull.mutable_caller() = CallerOf(0);
    for (const auto& [name, width, count] : {std::tuple("t", 4, 3), std::tuple("b", 0, 5)}) {
      v1::PullItem* const item = pull.add_items();
      item->set_name(name);
      item->set_width(width);
      item->set_count(count);
      item->set_format(format);
    }
    const std::vector<int64_t> ids = {5, -9, 77};
    const std::string id_bytes(reinterpret_cast<const char*>(ids.data()), 24);
    const auto answer =
        PulledOf(Call(Method::kPull, Flatten(EncodeFrame(pull.SerializeAsString(), {Slice::Own(id_bytes)}))));
    ASSERT_TRUE(answer.ok()) << answer.status();
    const size_t rows = EncodedBytes(format, 12, 4), block = EncodedBytes(format, 5, kDenseGroup);
    ASSERT_EQ(answer->values.size() * 4, AlignUp(rows) + AlignUp(block));
    std::vector<float> got(12);
    Decode(format, reinterpret_cast<const char*>(answer->values.data()), 12, 4, got.data());
    Start({.sync = false});
    JoinAll();
    const auto exact = Pull(0, 0, "t", 3, ids, 4);
    ASSERT_TRUE(exact.ok()) << exact.status();
    for (size_t i = 0; i < 12; ++i)
      EXPECT_NEAR(got[i], exact->values[i], 0.01 * std::abs(exact->values[i]) + 0.01) << i;
  }
}

TEST_F(ServerPullsTest, AGradientInALossyFormatTakesEffectAsWhatItSays) {
  Start({.sync = false});
  JoinAll();
  const std::vector<float> before = Bias(0);
  std::vector<float> after[2];
  const std::vector<float> gradient = {1, -2, 0.5f, 0, 127};
  for (const bool lossy : {false, true}) {
    Start({.sync = false, .push = lossy ? v1::WIRE_INT8 : v1::WIRE_FLOAT32});
    JoinAll();
    auto [request, payload] = MakePush({.items = {{.name = "b", .values = gradient}}, .part_count = 1, .samples = 1});
    if (lossy) {
      request.mutable_items(0)->set_format(v1::WIRE_INT8);
      payload.assign(AlignUp(EncodedBytes(v1::WIRE_INT8, 5, kDenseGroup)), '\0');
      Encode(v1::WIRE_INT8, gradient.data(), 5, kDenseGroup, payload.data());
    }
    ASSERT_TRUE(PushStatus(request, payload).ok());
    after[lossy] = Bias(0);
  }
  EXPECT_NE(after[0], before);
  // 0.5 lies halfway between two steps of 127 / 127 = 1; the even one is 0.
  EXPECT_EQ(after[1][0], after[0][0]);
  EXPECT_EQ(after[1][1], after[0][1]);
  EXPECT_EQ(after[1][2], before[2]);
  EXPECT_EQ(after[1][4], after[0][4]);
}

TEST_F(ServerPullsTest, BytesThatDoNotMakeALossyGradientAreRefused) {
  Start({.sync = false, .push = v1::WIRE_INT8});
  JoinAll();
  auto [request, payload] =
      MakePush({.items = {{.name = "b", .values = {1, 2, 3, 4, 5}}}, .part_count = 1, .samples = 1});
  request.mutable_items(0)->set_format(v1::WIRE_INT8);
  // A scale, and five bytes from byte 64 on: five more than the payload has.
  EXPECT_STATUS(PushStatus(request, payload), kInvalidArgument, "gradient of b: 5 floats do not fit in the 64 bytes");
  auto [rows, row_payload] = MakePush(
      {.items = {{.name = "t", .values = {1, 2, 3, 4}, .ids = {1, 2}, .width = 4}}, .part_count = 1, .samples = 1});
  rows.mutable_items(0)->set_format(v1::WIRE_INT8);
  EXPECT_STATUS(PushStatus(rows, row_payload), kInvalidArgument, "gradient of t: 2 rows of width 4 do not fit");
}

TEST_F(ServerPullsTest, ShowsAndClicksComeWithTheRowsOfATableThatCountsThemAndWithNoOther) {
  // Two rows: ids up to byte 16, values from 64 to 96, counts from 128 to 144.
  const auto push = [&](size_t payload_bytes, float clicks) {
    auto made = MakePush({.items = {{.name = "t", .values = std::vector<float>(8, 1), .ids = {1, 2}, .width = 4}},
                          .part_count = 1,
                          .samples = 1});
    made.first.mutable_items(0)->set_shows_and_clicks(true);
    made.second.resize(std::max(payload_bytes, made.second.size()));
    const float counts[] = {2, clicks, 1, 0};
    std::memcpy(made.second.data() + made.second.size() - 16, counts, sizeof(counts));
    made.second.resize(payload_bytes);
    return made;
  };
  const auto status = [&](const std::pair<v1::PushRequest, std::string>& made) {
    return PushStatus(made.first, made.second);
  };
  Start({.sync = false, .shows = true});
  JoinAll();
  auto without = push(144, 1);
  without.first.mutable_items(0)->clear_shows_and_clicks();
  EXPECT_STATUS(status(without), kInvalidArgument,
                "gradient of t: comes without shows and clicks, which this table counts");
  EXPECT_STATUS(status(push(140, 1)), kInvalidArgument,
                "gradient of t: shows and clicks of 2 rows do not fit in the 140 bytes");
  EXPECT_STATUS(status(push(96, 1)), kInvalidArgument, "shows and clicks of 2 rows do not fit in the 96 bytes");
  EXPECT_STATUS(status(push(144, std::nanf(""))), kInvalidArgument, "gradient of t: shows or clicks are not finite");
  EXPECT_TRUE(status(push(144, 1)).ok());
  Start({.sync = false});
  JoinAll();
  EXPECT_STATUS(status(push(144, 1)), kInvalidArgument, "gradient of t: brings shows and clicks, which nobody counts");
}

}  // namespace
}  // namespace weir
