// Calls that pull, against servers that a test plays.
#include "pserver/client/pull_calls.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/base/thread_pool.h"
#include "framework/profile/profiler.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/checksum.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/payload_reader.h"
#include "framework/wire/pull_plan.h"
#include "framework/wire/slices.h"
#include "framework/wire/transfer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "pserver/member/calls.h"
#include "pserver/member/member.h"
#include "pserver/member/waits.h"
#include "tests/pserver/client/played_member.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/played_servers.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const ProfileName kName("blocks");

// Plan of a pull of two floats of block b, whose answer has 64 bytes.
PlannedPull TwoFloats() {
  const std::vector<BlockToPull> asked = {{"b", 2}};
  return PlanBlockPulls(asked, v1::WIRE_FLOAT32, kBytesPerCall)[0];
}

class PullCallsTest : public PlayedMember {
 protected:
  explicit PullCallsTest(PlayedServersOptions options = {}) : PlayedMember(/*trainer=*/1, options) {}

  // Returns a call for two floats at version 3, which come to got_.
  CallPtr NewCall(int server) { return NewCall(server, TwoFloats(), {}); }
  CallPtr NewCall(int server, PlannedPull planned, const Slices& ids) {
    return pulls_.New(server, {Waits::kProgram, /*version=*/3}, &planned, ids,
                      [this](const v1::PullReply&, PayloadReader* values) {
                        got_.resize(2);
                        values->Read(got_.data(), 2 * sizeof(float));
                        return absl::OkStatus();
                      });
  }
  absl::Status BeginAndWait(const std::vector<CallPtr>& calls) {
    for (const CallPtr& call : calls) pulls_.Begin(call);
    return pulls_.Wait(calls, "blocks of step 3", Waits::kProgram, kName);
  }
  // Answers with a checksum that is not the payload's.
  void AnswerDamaged(int server, std::string payload) {
    v1::PullReply header;
    header.set_checksum(Checksum({Slice::Borrow(payload.data(), payload.size())}) + 1);
    servers_.AnswerFrame(server, Method::kPull, header, std::move(payload));
  }

  BufferPool buffers_;
  ThreadPool pool_{"test", 2};
  PullCalls pulls_{&member_.calls(), &member_.waits(), &buffers_, &pool_};
  std::vector<float> got_;
};

TEST_F(PullCallsTest, ARequestSaysWhoAsksForWhatAtWhichVersion) {
  servers_.AnswerPull(1, {}, Encoded({1.5f, -2}));
  ASSERT_TRUE(BeginAndWait({NewCall(1)}).ok());
  const auto requests = servers_.RequestFrames<v1::PullRequest>(1, Method::kPull);
  ASSERT_THAT(requests, SizeIs(1));
  const v1::PullRequest& header = requests[0].header;
  EXPECT_EQ(header.caller().job_id(), "job");
  EXPECT_EQ(header.caller().trainer(), 1);
  EXPECT_EQ(header.version(), 3);
  EXPECT_EQ(header.wait_s(), 0.5);  // half of what a try may take
  ASSERT_EQ(header.items_size(), 1);
  EXPECT_EQ(header.items(0).name(), "b");
  EXPECT_EQ(header.items(0).count(), 2);
  EXPECT_EQ(requests[0].payload, "");
}

TEST_F(PullCallsTest, ARequestForRowsCarriesItsIds) {
  const std::vector<RowsToPull> asked = {{.tensors = {{"t", 2}}, .rows = 1}};
  const std::string ids(64, 'i');
  servers_.AnswerPull(0, {}, Encoded({1.5f, -2}));
  ASSERT_TRUE(BeginAndWait({NewCall(0, PlanRowPulls(asked, kRowBytesPerCall)[0], {Slice::Own(ids)})}).ok());
  EXPECT_EQ(servers_.RequestFrames<v1::PullRequest>(0, Method::kPull).at(0).payload, ids);
}

TEST_F(PullCallsTest, TheValuesOfAnAnswerAreTaken) {
  servers_.AnswerPull(0, {}, Encoded({1.5f, -2}));
  ASSERT_TRUE(BeginAndWait({NewCall(0)}).ok());
  EXPECT_THAT(got_, ElementsAre(1.5f, -2));
}

TEST_F(PullCallsTest, AServerThatIsNotReadyIsAskedAgain) {
  v1::PullReply not_ready;
  not_ready.set_ready(false);
  servers_.AnswerFrame(0, Method::kPull, not_ready, "");
  servers_.AnswerPull(0, {}, Encoded({1.5f, -2}));
  ASSERT_TRUE(BeginAndWait({NewCall(0)}).ok());
  EXPECT_THAT(got_, ElementsAre(1.5f, -2));
  EXPECT_THAT(servers_.RequestBytes(0, Method::kPull), SizeIs(2));
  EXPECT_EQ(member_.counters().retries(), 0);
}

TEST_F(PullCallsTest, AWaitThatIsTooLongNamesWhomTheServerWaitsFor) {
  CallSettings settings = Settings();
  settings.progress_deadline = settings.lease = absl::Milliseconds(1);
  Member hasty(settings);
  PullCalls pulls(&hasty.calls(), &hasty.waits(), &buffers_, &pool_);
  v1::PullReply not_ready;
  not_ready.set_ready(false);
  not_ready.set_waiting_for("trainer 0 at step 2");
  servers_.AnswerFrame(0, Method::kPull, not_ready, "");
  PlannedPull planned = TwoFloats();
  const CallPtr call = pulls.New(0, {Waits::kProgram, 3}, &planned, {},
                                 [](const v1::PullReply&, PayloadReader*) { return absl::OkStatus(); });
  pulls.Begin(call);
  EXPECT_STATUS(pulls.Wait({call}, "blocks of step 3", Waits::kProgram, kName), kDeadlineExceeded,
                "for server 0: blocks of step 3; the last try: nobody there; server 0 waits for trainer 0 at step 2");
}

TEST_F(PullCallsTest, APayloadOfAnotherSizeIsDamageAndNotTaken) {
  for (int tries = 0; tries < 2; ++tries) servers_.AnswerPull(0, {}, std::string(8, '\0'));
  EXPECT_STATUS(BeginAndWait({NewCall(0)}), kDataLoss, "server 0: blocks of 8 bytes came, 64 were asked for");
  EXPECT_THAT(got_, IsEmpty());
}

TEST_F(PullCallsTest, ADamagedPayloadIsAskedForOnceMore) {
  AnswerDamaged(0, Encoded({7, 7}));
  servers_.AnswerPull(0, {}, Encoded({1.5f, -2}));
  ASSERT_TRUE(BeginAndWait({NewCall(0)}).ok());
  EXPECT_THAT(got_, ElementsAre(1.5f, -2));
  EXPECT_EQ(member_.counters().retries(), 1);
}

TEST_F(PullCallsTest, APayloadThatIsDamagedAgainIsDataLoss) {
  for (int tries = 0; tries < 2; ++tries) AnswerDamaged(0, Encoded({7, 7}));
  servers_.AnswerPull(0, {}, Encoded({1.5f, -2}));
  EXPECT_STATUS(BeginAndWait({NewCall(0)}), kDataLoss, "server 0: the payload's checksum does not match");
  EXPECT_THAT(servers_.RequestBytes(0, Method::kPull), SizeIs(2));
}

TEST_F(PullCallsTest, AHeaderThatIsNoReplyIsDataLoss) {
  for (int tries = 0; tries < 2; ++tries) servers_.Answer(0, Method::kPull, EncodeFrame("\xff", {}));
  EXPECT_STATUS(BeginAndWait({NewCall(0)}), kDataLoss, "server 0: no PullReply");
}

TEST_F(PullCallsTest, AnErrorOfTheTakerEndsTheCall) {
  servers_.AnswerPull(0, {}, Encoded({1.5f, -2}));
  PlannedPull planned = TwoFloats();
  const CallPtr call = pulls_.New(0, {Waits::kProgram, 3}, &planned, {}, [](const v1::PullReply&, PayloadReader*) {
    return absl::InvalidArgumentError("no room");
  });
  EXPECT_STATUS(BeginAndWait({call}), kInvalidArgument, "server 0: no room");
  EXPECT_THAT(servers_.RequestBytes(0, Method::kPull), SizeIs(1));
}

TEST_F(PullCallsTest, AnErrorOfOneOfTwoServersEndsTheWaitForBoth) {
  servers_.AnswerPull(0, {}, Encoded({1.5f, -2}));
  servers_.Answer(1, Method::kPull, absl::InvalidArgumentError("no block b"));
  EXPECT_STATUS(BeginAndWait({NewCall(0), NewCall(1)}), kInvalidArgument, "server 1: no block b");
}

TEST_F(PullCallsTest, LossyValuesAreDecodedAndTheRestOfThePayloadIsLeft) {
  const std::string bytes = Encoded({1.5f, -2}, v1::WIRE_FLOAT16);
  const Slices payload = {Slice::Borrow(bytes.data(), bytes.size())};
  PayloadReader reader(payload);
  const WireBuffer decoded = pulls_.ReadDecoded(&reader, v1::WIRE_FLOAT16, 2, kDenseGroup);
  EXPECT_THAT(FloatsAt(std::string(decoded.data, decoded.size), 0, 2), ElementsAre(1.5f, -2));
  EXPECT_EQ(reader.left(), 60u);  // 64 without two of two bytes
}

class UncheckedPullCallsTest : public PullCallsTest {
 protected:
  UncheckedPullCallsTest() : PullCallsTest({.checks_payloads = false}) {}
};

TEST_F(UncheckedPullCallsTest, WhereBytesCannotSpoilNoChecksumIsRead) {
  AnswerDamaged(0, Encoded({1.5f, -2}));
  ASSERT_TRUE(BeginAndWait({NewCall(0)}).ok());
  EXPECT_THAT(got_, ElementsAre(1.5f, -2));
}

class InsidePullCallsTest : public PullCallsTest {
 protected:
  InsidePullCallsTest() : PullCallsTest({.answers_inside = true}) {}
};

TEST_F(InsidePullCallsTest, ACallThatIsAnsweredInsideIsMadeByTheWait) {
  servers_.AnswerPull(0, {}, Encoded({1.5f, -2}));
  const CallPtr call = NewCall(0);
  pulls_.Begin(call);
  EXPECT_THAT(servers_.RequestBytes(0, Method::kPull), IsEmpty());
  ASSERT_TRUE(pulls_.Wait({call}, "blocks of step 3", Waits::kProgram, kName).ok());
  EXPECT_THAT(servers_.RequestBytes(0, Method::kPull), SizeIs(1));
  EXPECT_THAT(got_, ElementsAre(1.5f, -2));
}

}  // namespace
}  // namespace weir
