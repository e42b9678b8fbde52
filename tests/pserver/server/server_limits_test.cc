// Memory that callers can make a server keep or allocate: nothing for strangers, for trainers the limits of
// docs/wire.md ("Limits").
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/core_by_hand.h"

namespace {

// Bytes that operator new has allocated.
std::atomic<size_t> g_allocated{0};

void* Allocate(size_t size) {
  g_allocated += size;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* Allocate(size_t size, std::align_val_t alignment) {
  g_allocated += size;
  const size_t align = static_cast<size_t>(alignment);
  if (void* const memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void* operator new(size_t size, std::align_val_t alignment) { return Allocate(size, alignment); }
void* operator new[](size_t size, std::align_val_t alignment) { return Allocate(size, alignment); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace weir {
namespace {

using ::testing::HasSubstr;

// Upper bound for the messages of one call, whatever it asks for.
constexpr size_t kSmall = size_t{64} << 10;

class ServerLimitsTest : public CoreByHand {
 protected:
  // Returns the status of the answer, and what was allocated for it.
  absl::Status Cost(Method method, const std::string& bytes, size_t* allocated) {
    const Slices slices = {Slice::Own(bytes)};
    absl::Status status = absl::UnknownError("no answer yet");
    const size_t before = g_allocated;
    core_->Handle(method, slices, [&status](const absl::StatusOr<Slices>& answer) { status = answer.status(); });
    *allocated = g_allocated - before;
    return status;
  }

  // Returns requests, by method, that take much more memory than their bytes.
  static std::vector<std::pair<Method, std::string>> Greedy(const v1::Caller& caller) {
    std::vector<std::pair<Method, std::string>> all;
    v1::PushRequest push;
    for (int i = 0; i < 200000; ++i) push.add_items()->set_name("w");
    *push.mutable_caller() = caller;
    all.emplace_back(Method::kPush, Seal(push, std::string(1 << 20, 'x')));
    v1::PullRequest pull;
    for (int i = 0; i < 200000; ++i) pull.add_items()->set_name("w");
    *pull.mutable_caller() = caller;
    all.emplace_back(Method::kPull,
                     Flatten(EncodeFrame(pull.SerializeAsString(), {Slice::Own(std::string(1 << 20, 'x'))})));
    v1::ExchangeRequest exchange;
    *exchange.mutable_caller() = caller;
    exchange.set_key(std::string(1 << 20, 'k'));
    exchange.set_contribution(std::string(4 << 20, 'c'));
    all.emplace_back(Method::kExchange, exchange.SerializeAsString());
    v1::ControlRequest control;
    *control.mutable_caller() = caller;
    control.mutable_publish()->set_manifest(std::string(4 << 20, 'm'));
    all.emplace_back(Method::kControl, control.SerializeAsString());
    v1::NormsRequest norms;
    *norms.mutable_caller() = caller;
    for (int i = 0; i < 200000; ++i) norms.add_norms()->set_name("w");
    all.emplace_back(Method::kNorms, norms.SerializeAsString());
    v1::HeartbeatRequest beat;
    *beat.mutable_caller() = caller;
    beat.set_waiting_for(std::string(3 << 20, 'w'));
    beat.mutable_failure()->set_message(std::string(1 << 20, 'f'));
    all.emplace_back(Method::kHeartbeat, beat.SerializeAsString());
    return all;
  }
};

// ---------------------------------------------------------------------------------------------------------- strangers

TEST_F(ServerLimitsTest, OfAStrangerNothingIsReadButWhoItIs) {
  Start({.trainers = 3, .sync = false});
  ASSERT_TRUE(Join(0, "trainer:0").ok());
  ASSERT_TRUE(Join(1, "trainer:1").ok());
  struct Stranger {
    std::string job = "job";
    int trainer = 0;
    uint64_t session = 1;
    absl::StatusCode code = absl::StatusCode::kFailedPrecondition;
    std::string told;
  };
  const std::vector<Stranger> strangers = {
      {.session = sessions_[1], .told = "the lease of trainer 0 has passed to trainer:0"},
      {.job = "another",
       .session = sessions_[0],
       .told = "comes with job another, which is not the one that is run here"},
      {.trainer = 2, .session = 0, .told = "trainer 2 has not joined"},
      {.trainer = 2, .code = absl::StatusCode::kAborted, .told = "trainer 2 has not joined"},
      {.trainer = 9, .code = absl::StatusCode::kInvalidArgument, .told = "trainer id 9; the job has trainers 0 to 2"},
      {.trainer = -1, .told = "server 0 (server:1) has no such reader"},
      {.trainer = -2, .code = absl::StatusCode::kInvalidArgument, .told = "trainer id -2"},
  };
  for (const Stranger& stranger : strangers) {
    v1::Caller caller;
    caller.set_job_id(stranger.job);
    caller.set_trainer(stranger.trainer);
    caller.set_session(stranger.session);
    for (const auto& [method, bytes] : Greedy(caller)) {
      size_t allocated = 0;
      const absl::Status status = Cost(method, bytes, &allocated);
      EXPECT_EQ(status.code(), stranger.code) << MethodName(method) << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(stranger.told)) << MethodName(method);
      EXPECT_LT(allocated, kSmall) << MethodName(method) << " of " << bytes.size() << " bytes: " << status;
    }
  }
  EXPECT_TRUE(core_->JobStatus().ok());
}

TEST_F(ServerLimitsTest, ACallerThatIsLargeItselfIsNoCaller) {
  Start({});
  JoinAll();
  v1::Caller caller = CallerOf(0);
  caller.set_job_id(std::string(1 << 20, 'j'));
  for (const auto& [method, bytes] : Greedy(caller)) {
    size_t allocated = 0;
    EXPECT_STATUS(Cost(method, bytes, &allocated), kInvalidArgument, "field 1 has more than 16384 bytes");
    EXPECT_LT(allocated, kSmall) << MethodName(method);
  }
}

TEST_F(ServerLimitsTest, ACallerBehindOtherFieldsIsFound) {
  Start({.sync = false});
  JoinAll();
  v1::ExchangeRequest rest, caller;
  rest.set_key("key");
  rest.set_contribution("said");
  *caller.mutable_caller() = CallerOf(0);
  const auto reply =
      CallNow<v1::ExchangeReply>(Method::kExchange, rest.SerializeAsString() + caller.SerializeAsString());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->ready());
}

TEST_F(ServerLimitsTest, InAFailedJobAStrangersHeartbeatIsToldWhyAndNoMoreIsRead) {
  Start({});
  JoinAll();
  ASSERT_TRUE(Beat(0, [](v1::HeartbeatRequest& beat) { beat.mutable_failure()->set_message("no more disk"); }).ok());
  v1::HeartbeatRequest beat;
  beat.mutable_caller()->set_job_id("job");
  beat.set_waiting_for(std::string(3 << 20, 'w'));
  size_t allocated = 0;
  EXPECT_TRUE(Cost(Method::kHeartbeat, beat.SerializeAsString(), &allocated).ok());
  EXPECT_LT(allocated, kSmall);
  EXPECT_EQ(CallNow<v1::HeartbeatReply>(Method::kHeartbeat, beat.SerializeAsString())->failure().message(),
            "no more disk");
  // One of another job hears nothing.
  beat.mutable_caller()->set_job_id("another");
  EXPECT_STATUS(CallNow<v1::HeartbeatReply>(Method::kHeartbeat, beat.SerializeAsString()).status(), kFailedPrecondition,
                "comes with job another");
}

TEST_F(ServerLimitsTest, AJoinIsAsLargeAsItsPlanMayBe) {
  Start({});
  v1::JoinRequest join = JoinMessage(0, std::string(1 << 19, 'p'));
  join.set_build("another");
  const absl::Status other = CallNow<v1::JoinReply>(Method::kJoin, join.SerializeAsString()).status();
  EXPECT_STATUS(other, kFailedPrecondition, "build another and wire version 4; this server has another one of them");
  EXPECT_LT(other.message().size(), 2000u);
  join.set_plan_text(std::string(8 << 20, 'p'));
  size_t allocated = 0;
  EXPECT_STATUS(Cost(Method::kJoin, join.SerializeAsString(), &allocated), kInvalidArgument, "JoinRequest: ");
  EXPECT_LT(allocated, kSmall);
}

// -------------------------------------------------------------------------------------------------------------- pulls

TEST_F(ServerLimitsTest, APullWhoseAnswerIsLargerThanItsFloatsIsRefusedByName) {
  Start({.sync = false, .pull = v1::WIRE_INT8});
  JoinAll();
  // The rows would fill an answer exactly as float32. As int8 of width 1 they need more, since each value takes a scale
  // beside its byte.
  constexpr int64_t kIds = 1040384;
  v1::PullRequest pull;
  *pull.mutable_caller() = CallerOf(0);
  for (int i = 0; i < 16; ++i) {
    v1::PullItem* const item = pull.add_items();
    item->set_name("u");
    item->set_count(kIds);
    item->set_width(1);
    item->set_format(v1::WIRE_INT8);
  }
  const std::string ids(static_cast<size_t>(kIds) * sizeof(int64_t), '\0');
  const auto ask = [&] {
    return PulledOf(Call(Method::kPull, Flatten(EncodeFrame(pull.SerializeAsString(), {Slice::Own(ids)}))));
  };
  EXPECT_STATUS(ask().status(), kInvalidArgument, "pull of u: the reply would have more than 66584576 bytes");
  // With fewer items the answer is below the limit.
  pull.mutable_items()->DeleteSubrange(12, 4);
  const auto answer = ask();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->values.size() * sizeof(float), 12 * AlignUp(EncodedBytes(v1::WIRE_INT8, kIds, 1)));
}

TEST_F(ServerLimitsTest, FormatsThatAreNotThePlansAreRefused) {
  for (const v1::WireFormat of_plan : {v1::WIRE_FLOAT32, v1::WIRE_BFLOAT16}) {
    Start({.sync = false, .pull = of_plan, .push = of_plan});
    JoinAll();
    for (const v1::WireFormat format : {v1::WIRE_FLOAT32, v1::WIRE_FLOAT16, v1::WIRE_BFLOAT16, v1::WIRE_INT8}) {
      for (const auto& [name, width] : {std::pair("b", 0), std::pair("e", 3), std::pair("t", 4)}) {
        v1::PullRequest pull;
        *pull.mutable_caller() = CallerOf(0);
        v1::PullItem* const item = pull.add_items();
        item->set_name(name);
        item->set_width(width);
        item->set_count(1);
        item->set_format(format);
        const Slices id = {Slice::Own(std::string(8, '\0'))};
        const absl::Status pulled =
            PulledOf(Call(Method::kPull, Flatten(EncodeFrame(pull.SerializeAsString(), width > 0 ? id : Slices()))))
                .status();
        Item gradient{.name = name, .width = width};
        if (width > 0) gradient.ids = {0};
        gradient.values.resize(static_cast<size_t>(std::max(1, width)));
        auto [push, payload] = MakePush({.items = {gradient}});
        push.mutable_items(0)->set_format(format);
        push.set_step(5);
        const absl::Status pushed = PushStatus(push, payload + std::string(128, '\0'));
        if (format == of_plan) {
          EXPECT_TRUE(pulled.ok()) << pulled;
          EXPECT_TRUE(pushed.ok()) << pushed;
          // The next push needs a new server.
          Start({.sync = false, .pull = of_plan, .push = of_plan});
          JoinAll();
          continue;
        }
        const std::string plan = absl::StrCat("by the plan it travels as ", v1::WireFormat_Name(of_plan));
        EXPECT_STATUS(pulled, kInvalidArgument,
                      absl::StrCat("pull of ", name, ": asked for as ", v1::WireFormat_Name(format), "; ", plan));
        EXPECT_STATUS(pushed, kInvalidArgument,
                      absl::StrCat("gradient of ", name, ": comes as ", v1::WireFormat_Name(format), "; ", plan));
      }
    }
  }
}

TEST_F(ServerLimitsTest, HeadersOfWaitingPullsCountAsTheMessagesThatTheyAre) {
  unread_bytes_ = size_t{8} << 20;
  Start({.sync = false});
  JoinAll();
  v1::PullRequest pull;
  *pull.mutable_caller() = CallerOf(0);
  pull.set_version(100);
  pull.set_wait_s(30);
  // Each item takes two bytes on the wire and more than a hundred as a message.
  for (int i = 0; i < 50000; ++i) pull.add_items()->set_name("b");
  const std::string bytes = Flatten(EncodeFrame(pull.SerializeAsString(), {}));
  std::vector<std::shared_ptr<Answer>> kept;
  absl::Status refused;
  while (refused.ok() && kept.size() < 100) {
    kept.push_back(Call(Method::kPull, bytes));
    if (kept.back()->has_value()) refused = PulledOf(kept.back()).status();
  }
  EXPECT_STATUS(refused, kResourceExhausted, "trainer 0 (trainer:0) has pulls of ");
  EXPECT_LT(kept.size(), 4u);
}

// ------------------------------------------------------------------------------------------------------------- pushes

TEST_F(ServerLimitsTest, ItemsThatShareBytesAreRefusedBeforeTheyAreDecoded) {
  Start({.sync = false, .push = v1::WIRE_INT8});
  JoinAll();
  auto [push, payload] = MakePush({.items = {{.name = "w", .values = std::vector<float>(640, 1)}}});
  const v1::PushItem item = push.items(0);
  push.clear_items();
  payload.assign(AlignUp(EncodedBytes(v1::WIRE_INT8, 640, kDenseGroup)), '\0');
  for (int i = 0; i < 10000; ++i) {
    v1::PushItem* const again = push.add_items();
    *again = item;
    again->set_format(v1::WIRE_INT8);
  }
  size_t allocated = 0;
  EXPECT_STATUS(Cost(Method::kPush, Seal(push, payload), &allocated), kInvalidArgument,
                "gradient of w: offset 0 lies before byte 704, where the item before it ends");
  // Room for the message itself and one block of floats.
  EXPECT_LT(allocated, 10000 * 300u);
  // The refused push leaves nothing behind: the step is accepted now.
  push.mutable_items()->DeleteSubrange(1, 9999);
  push.set_part_count(1);
  push.set_samples(1);
  EXPECT_TRUE(PushStatus(push, payload).ok());
}

TEST_F(ServerLimitsTest, RowsThatShareBytesAreRefused) {
  Start({.sync = false});
  JoinAll();
  const Item rows{.name = "t",
                  .values = std::vector<float>(64, 1),
                  .ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
                  .width = 4};
  auto [push, payload] = MakePush({.items = {rows, rows}});
  push.mutable_items(1)->set_offset(0);
  EXPECT_STATUS(PushStatus(push, payload), kInvalidArgument, "gradient of t: offset 0 lies before byte 384");
  // The values of one item may not be the ids of the next.
  push.mutable_items(1)->set_offset(128);
  EXPECT_STATUS(PushStatus(push, payload), kInvalidArgument, "gradient of t: offset 128 lies before byte 384");
}

TEST_F(ServerLimitsTest, PushesOfAStepTakeWhatThePlanNeedsAndNoMore) {
  pending_row_bytes_ = 1 << 20;
  Start({.trainers = 2, .sync = false});
  JoinAll();
  // 64 MiB; the blocks w and b in a node of four lanes; for rows 1 MiB, and 64 KiB for each of 64 examples.
  const size_t room = (size_t{64} << 20) + 4 * (640 + 5) + 3 * 1024 + (1 << 20) + 64 * (size_t{64} << 10);
  std::vector<int64_t> ids(1 << 17);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  const Item rows{.name = "t", .lanes = 4, .values = std::vector<float>(ids.size() * 4, 1), .ids = ids, .width = 4};
  absl::Status refused;
  int part = 0;
  for (; refused.ok() && part < 100; ++part) refused = Push({.part = part, .items = {rows}}).status();
  const size_t each = ids.size() * (8 + 16 + 4);
  EXPECT_STATUS(refused, kResourceExhausted,
                absl::StrCat("trainer 0 (trainer:0), step 0, part ", part - 1, ": its pushes of the step would take "));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("at most ", room, " may, by the plan and --pending_rows_mb")));
  EXPECT_GT(static_cast<size_t>(part) * each, room - (1 << 20));
  EXPECT_LT(static_cast<size_t>(part - 1) * each, room);
  // A part without gradients takes no memory, and the other trainer has a limit of its own.
  EXPECT_TRUE(Push({.part = part - 1}).ok());
  EXPECT_TRUE(Push({.trainer = 1,
                    .items = {{.name = "t", .lane = 4, .lanes = 4, .values = {1, 1, 1, 1}, .ids = {5}, .width = 4}}})
                  .ok());
}

// Floats that are decoded on arrival count in addition to the bytes that they came in.
TEST_F(ServerLimitsTest, DecodedGradientsOfAStepCountAsFloats) {
  pending_row_bytes_ = 1 << 20;
  Start({.trainers = 2, .sync = false, .push = v1::WIRE_FLOAT16});
  JoinAll();
  const size_t room = (size_t{64} << 20) + 4 * (640 + 5) + 3 * 1024 + (1 << 20) + 64 * (size_t{64} << 10);
  std::vector<int64_t> ids(1 << 17);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  // Zeros of the same size as four halves a row.
  const Item rows{.name = "t", .lanes = 4, .values = std::vector<float>(ids.size() * 2), .ids = ids, .width = 4};
  absl::Status refused;
  int part = 0;
  for (; refused.ok() && part < 100; ++part) {
    auto [push, payload] = MakePush({.part = part, .items = {rows}});
    push.mutable_items(0)->set_format(v1::WIRE_FLOAT16);
    refused = PushStatus(push, payload);
  }
  EXPECT_STATUS(refused, kResourceExhausted, "its pushes of the step would take ");
  // Each row takes its id, its halves, its floats and its place in the order.
  const size_t each = ids.size() * (8 + 8 + 16 + 4);
  EXPECT_GT(static_cast<size_t>(part) * each, room - (1 << 20));
  EXPECT_LT(static_cast<size_t>(part - 1) * each, room);
}

// ---------------------------------------------------------------------------------------- exchanges, control, waiting

v1::ExchangeRequest Say(const v1::Caller& caller, const std::string& key, size_t bytes) {
  v1::ExchangeRequest request;
  *request.mutable_caller() = caller;
  request.set_key(key);
  request.set_contribution(std::string(bytes, 'c'));
  return request;
}

TEST_F(ServerLimitsTest, ContributionsHaveARoomAndItComesBackWhenTheyHaveBeenRead) {
  exchange_bytes_ = 1 << 20;
  Start({.trainers = 2, .sync = false});
  JoinAll();
  const auto say = [&](int trainer, const std::string& key, size_t bytes) {
    return CallNow<v1::ExchangeReply>(Method::kExchange, Say(CallerOf(trainer), key, bytes).SerializeAsString())
        .status();
  };
  EXPECT_TRUE(say(0, "a", 600000).ok());
  EXPECT_STATUS(say(0, "b", 600000), kResourceExhausted, "exchange b: trainer 0 has 60");
  EXPECT_STATUS(say(0, "b", 600000), kResourceExhausted, "and brings 600000 more; at most 1048576 may be there");
  EXPECT_TRUE(say(1, "a", 600000).ok());
  for (int reader = 0; reader < 2; ++reader) {
    for (int of = 0; of < 2; ++of) {
      v1::ExchangeRequest read;
      *read.mutable_caller() = CallerOf(reader);
      read.set_key("a");
      read.set_read_trainer(of);
      ASSERT_EQ(CallNow<v1::ExchangeReply>(Method::kExchange, read.SerializeAsString())->contribution().size(),
                600000u);
    }
  }
  Pass(200, {0, 1});
  EXPECT_TRUE(say(0, "b", 600000).ok());
}

// docs/wire.md, "Limits": the residuals of a node twice, as floats of dense blocks plus 36 MiB for each table and block
// of rows.
TEST_F(ServerLimitsTest, WhereGradientsLoseBitsThereIsRoomForWhatTheyLose) {
  exchange_bytes_ = 1 << 20;
  Start({.trainers = 1, .sync = false, .push = v1::WIRE_INT8});
  JoinAll();
  const size_t room = (1 << 20) + 2 * (4 * (640 + 5) + 3 * (size_t{36} << 20));
  v1::ExchangeRequest say = Say(CallerOf(0), "k", size_t{60} << 20);
  say.set_chunks(8);
  absl::Status refused;
  for (int chunk = 0; refused.ok() && chunk < 8; ++chunk) {
    say.set_chunk(chunk);
    refused = CallNow<v1::ExchangeReply>(Method::kExchange, say.SerializeAsString()).status();
  }
  EXPECT_STATUS(refused, kResourceExhausted, absl::StrCat("at most ", room, " may be there"));
}

// Released memory is counted to the byte, however often it is taken.
TEST_F(ServerLimitsTest, ARoomThatComesBackIsTheWholeRoom) {
  exchange_bytes_ = 1 << 20;
  Start({.trainers = 1, .sync = false});
  JoinAll();
  const auto say = [&](const std::string& key, size_t bytes) {
    return CallNow<v1::ExchangeReply>(Method::kExchange, Say(CallerOf(0), key, bytes).SerializeAsString()).status();
  };
  std::string refused;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(say("a", 600000).ok());
    const absl::Status status = say("b", 600000);
    EXPECT_STATUS(status, kResourceExhausted, "exchange b: trainer 0 has 600");
    if (i == 0) refused = std::string(status.message());
    EXPECT_EQ(std::string(status.message()), refused);
    v1::ExchangeRequest read;
    *read.mutable_caller() = CallerOf(0);
    read.set_key("a");
    read.set_read_trainer(0);
    ASSERT_EQ(CallNow<v1::ExchangeReply>(Method::kExchange, read.SerializeAsString())->contribution().size(), 600000u);
    Pass(200, {0});
  }
}

TEST_F(ServerLimitsTest, KeysAreNotFreeAndHaveALength) {
  exchange_bytes_ = 100000;
  Start({.sync = false});
  JoinAll();
  absl::Status refused;
  int keys = 0;
  for (; refused.ok() && keys < 1000; ++keys) {
    v1::ExchangeRequest say = Say(CallerOf(0), absl::StrCat("key ", keys), 0);
    if (keys % 2 == 0) say.set_edition(0);
    refused = CallNow<v1::ExchangeReply>(Method::kExchange, say.SerializeAsString()).status();
  }
  EXPECT_STATUS(refused, kResourceExhausted, "exchange key ");
  EXPECT_LT(keys, 500);
  EXPECT_STATUS(
      CallNow<v1::ExchangeReply>(Method::kExchange, Say(CallerOf(0), std::string(1025, 'k'), 0).SerializeAsString())
          .status(),
      kInvalidArgument, "a key of 1025 bytes; it has at most 1024");
}

// Chunks that are announced and never sent take room too: 33 bytes each.
TEST_F(ServerLimitsTest, ChunksThatAreAnnouncedTakeRoom) {
  exchange_bytes_ = 30000;
  Start({.sync = false});
  JoinAll();
  v1::ExchangeRequest say = Say(CallerOf(0), "k", 0);
  say.set_chunks(1024);
  EXPECT_STATUS(CallNow<v1::ExchangeReply>(Method::kExchange, say.SerializeAsString()).status(), kResourceExhausted,
                "and brings 33792 more; at most 30000 may be there");
}

TEST_F(ServerLimitsTest, APostTakesTheRoomOfTheOneBefore) {
  exchange_bytes_ = 1 << 20;
  Start({.sync = false});
  JoinAll();
  for (int64_t edition = 0; edition < 20; ++edition) {
    v1::ExchangeRequest post = Say(CallerOf(0), "k", 400000);
    post.set_edition(edition);
    const auto posted = CallNow<v1::ExchangeReply>(Method::kExchange, post.SerializeAsString());
    ASSERT_TRUE(posted.ok()) << edition << ": " << posted.status();
  }
}

TEST_F(ServerLimitsTest, AnswersOfExchangesThatAreNotReadHoldBackTheNext) {
  unread_bytes_ = 1000;
  // The other trainer is dead and has contributed nothing.
  Start({.trainers = 2, .sync = false});
  JoinAll();
  Pass(60, {0});
  ASSERT_TRUE(CallNow<v1::ExchangeReply>(Method::kExchange, Say(CallerOf(0), "k", 5000).SerializeAsString()).ok());
  v1::ExchangeRequest post = Say(CallerOf(0), "p", 5000);
  post.set_edition(1);
  ASSERT_TRUE(CallNow<v1::ExchangeReply>(Method::kExchange, post.SerializeAsString()).ok());
  for (const bool posted : {false, true}) {
    v1::ExchangeRequest read;
    *read.mutable_caller() = CallerOf(0);
    read.set_key(posted ? "p" : "k");
    read.set_read_trainer(0);
    read.set_wait_s(5);
    if (posted) read.set_edition(0);
    const auto first = Call(Method::kExchange, read.SerializeAsString()),
               second = Call(Method::kExchange, read.SerializeAsString());
    ASSERT_TRUE(first->has_value());
    core_->Tick();
    EXPECT_FALSE(second->has_value());
    first->reset();
    core_->Tick();
    ASSERT_TRUE(second->has_value() && (*second)->ok());
    v1::ExchangeReply reply;
    ASSERT_TRUE(reply.ParseFromString(Flatten(***second)));
    EXPECT_TRUE(reply.ready());
    EXPECT_EQ(reply.contribution().size(), 5000u);
    second->reset();
  }
}

TEST_F(ServerLimitsTest, OfAStreamTwoChunksAreKept) {
  Start({.trainers = 3, .sync = false});
  JoinAll();
  const auto write = [&](int chunk, size_t bytes, int chunks = 0, int to = 1) {
    v1::ExchangeRequest request = Say(CallerOf(0), "k", bytes);
    request.set_stream_to(to);
    request.set_chunk(chunk);
    request.set_chunks(chunks);
    return CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).status();
  };
  const auto room = [&](int chunk) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerOf(0);
    request.set_key("k");
    request.set_stream_to(1);
    request.set_chunk(chunk);
    request.set_wait_s(5);
    return Call(Method::kExchange, request.SerializeAsString());
  };
  const auto read = [&](int chunk) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerOf(1);
    request.set_key("k");
    request.set_stream_from(0);
    request.set_chunk(chunk);
    return CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString());
  };
  EXPECT_STATUS(write(0, (4 << 20) + 1), kInvalidArgument,
                "stream k from trainer 0 to 1: chunk 0 has 4194305 bytes; it has at most 4194304");
  EXPECT_STATUS(write(0, 1, 0, 0), kInvalidArgument, "between trainers 0 and 0; it needs two");
  EXPECT_STATUS(write(0, 1, 0, 3), kInvalidArgument, "the job has trainers 0 to 2");
  EXPECT_FALSE(read(0)->ready());
  EXPECT_TRUE(write(0, 100).ok());
  EXPECT_TRUE(write(1, 101).ok());
  EXPECT_TRUE(write(0, 100).ok());  // a repeat
  EXPECT_STATUS(write(2, 102), kResourceExhausted, "chunk 2: trainer 1 has yet to take 2 chunks before it");
  EXPECT_STATUS(write(3, 103), kInvalidArgument, "chunk 3 of 0, where 2 comes next");
  const auto waiting = room(2);
  EXPECT_FALSE(waiting->has_value());
  EXPECT_EQ(read(0)->contribution().size(), 100u);
  EXPECT_EQ(read(0)->contribution().size(), 100u);  // a repeat
  EXPECT_FALSE(waiting->has_value());
  EXPECT_EQ(read(1)->contribution().size(), 101u);
  EXPECT_TRUE(waiting->has_value());
  EXPECT_STATUS(read(0).status(), kInvalidArgument, "asks for chunk 0; it has taken 1 of 2");
  EXPECT_TRUE(write(2, 102, 3).ok());
  EXPECT_STATUS(write(3, 103), kInvalidArgument, "and 3 is the end");
  // Eight more streams than there are trainers.
  for (int i = 0; i < 12; ++i) {
    v1::ExchangeRequest another = Say(CallerOf(0), absl::StrCat("another ", i), 10);
    another.set_stream_to(2);
    const absl::Status status = CallNow<v1::ExchangeReply>(Method::kExchange, another.SerializeAsString()).status();
    if (i < 10) {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      EXPECT_STATUS(status, kResourceExhausted, "the trainer has 11 streams that have not been read");
    }
  }
  EXPECT_EQ(read(2)->chunks(), 3);
  EXPECT_TRUE(read(3)->ready());
  EXPECT_TRUE(read(3)->ready());
}

TEST_F(ServerLimitsTest, OfAStreamWhoseWriterDiesItsReaderIsTold) {
  Start({.trainers = 3, .sync = false});
  JoinAll();
  v1::ExchangeRequest request;
  *request.mutable_caller() = CallerOf(1);
  request.set_key("k");
  request.set_stream_from(0);
  request.set_wait_s(60);
  const auto waiting = Call(Method::kExchange, request.SerializeAsString());
  Pass(12, {1, 2});
  ASSERT_TRUE(waiting->has_value() && (*waiting)->ok());
  v1::ExchangeReply reply;
  ASSERT_TRUE(reply.ParseFromString(Flatten(***waiting)));
  EXPECT_TRUE(reply.ready());
  ASSERT_EQ(reply.missing_size(), 1);
  EXPECT_EQ(reply.missing(0), 0);
  // A trainer that takes the place of a dead reader does not know of the stream, so the writer must not be held up.
  v1::ExchangeRequest write = Say(CallerOf(1), "other", 10);
  write.set_stream_to(2);
  write.set_chunks(0);
  ASSERT_TRUE(CallNow<v1::ExchangeReply>(Method::kExchange, write.SerializeAsString()).ok());
  Pass(12, {1});
  ASSERT_TRUE(Join(2, "another:2").ok());
  write.set_chunk(5);
  write.clear_contribution();
  EXPECT_TRUE(CallNow<v1::ExchangeReply>(Method::kExchange, write.SerializeAsString())->ready());
}

TEST_F(ServerLimitsTest, WaitingExchangesAreCountedAndSmall) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  v1::ExchangeRequest wait;
  *wait.mutable_caller() = CallerOf(0);
  wait.set_key("never");
  wait.set_wait_s(30);
  std::vector<std::shared_ptr<Answer>> kept;
  absl::Status refused;
  while (refused.ok() && kept.size() < 5000) {
    kept.push_back(Call(Method::kExchange, wait.SerializeAsString()));
    if (kept.back()->has_value()) refused = (**kept.back()).status();
  }
  EXPECT_STATUS(refused, kResourceExhausted, "trainer 0 (trainer:0) has 1024 exchanges waiting for their answers");
  EXPECT_EQ(kept.size(), 1025u);
  EXPECT_TRUE(CallNow<v1::ExchangeReply>(Method::kExchange, Say(CallerOf(1), "other", 5).SerializeAsString()).ok());
}

}  // namespace
}  // namespace weir
