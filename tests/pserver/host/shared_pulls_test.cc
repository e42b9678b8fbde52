// Pulls that the trainers of a host share, against a server with versions that a test plays: each trainer gets the rows
// and blocks of the version of its step, and what several want is asked for once.
#include "pserver/host/shared_pulls.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/counters.h"
#include "framework/base/exhausted.h"
#include "framework/base/stable_hash.h"
#include "framework/wire/checksum.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "pserver/client/block_placement.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/hand_made_job.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Random = std::mt19937;

// ---------------------------------------------------------------------------------------------------------- parameters

// Returns the version in which a row has changed last, as seen at `version`: some third of all rows change in a step.
int64_t ChangedAt(const std::string& name, int64_t id, int64_t version) {
  for (int64_t v = version; v > 0; --v) {
    if (MixId(StableHash(name) + static_cast<uint64_t>(id * 1000 + v)) % 3 == 0) return v;
  }
  return 0;
}
float Value(const std::string& name, int64_t of, int64_t version, size_t k) {
  const uint64_t h = MixId(StableHash(name) + static_cast<uint64_t>(of * 100000 + version * 100) + k);
  return static_cast<float>(h >> 40) / 16777216.0F - 0.5F;
}
std::vector<float> RowAt(const std::string& name, int width, int64_t id, int64_t version) {
  std::vector<float> row;
  for (int k = 0; k < width; ++k) row.push_back(Value(name, id, ChangedAt(name, id, version), static_cast<size_t>(k)));
  return row;
}
std::vector<float> BlockAt(const std::string& name, int64_t begin, int64_t count, int64_t version) {
  std::vector<float> values;
  for (int64_t i = begin; i < begin + count; ++i) values.push_back(Value(name, i, version, 0));
  return values;
}

std::string Encoded(v1::WireFormat format, const std::vector<float>& values, size_t group) {
  BufferPool buffers;
  const size_t bytes = EncodedBytes(format, values.size(), group);
  const WireBuffer out = buffers.Get(AlignUp(bytes));
  std::memset(out.data, 0, out.size);
  if (!values.empty()) Encode(format, values.data(), values.size(), group, out.data);
  return {out.data, AlignUp(bytes)};
}
// Returns what a trainer that pulls by itself makes of values in a format.
std::vector<float> Rounded(v1::WireFormat format, const std::vector<float>& values, size_t group) {
  std::vector<float> rounded(values.size());
  if (values.empty()) return rounded;
  Decode(format, Encoded(format, values, group).data(), values.size(), group, rounded.data());
  return rounded;
}

std::string Padded(std::string bytes) {
  bytes.resize(AlignUp(bytes.size()));
  return bytes;
}
Slice SliceOf(const std::string& bytes, BufferPool* buffers) {
  const WireBuffer buffer = buffers->Get(bytes.size());
  std::memcpy(buffer.data, bytes.data(), bytes.size());
  return buffer.Piece(0, bytes.size());
}

// -------------------------------------------------------------------------------------------------------------- server

// Answers pulls as a server in sync does (proto/parameter_server.proto).
class PlayedServer {
 public:
  struct Options {
    v1::WireFormat pull = v1::WIRE_FLOAT32;
    size_t remembers = SIZE_MAX;  // calls ahead of a step; more are forgotten
  };
  explicit PlayedServer(const Options& options) : options_(options) {}

  struct Call {
    v1::PullRequest request;
    Slice payload;
    ReplyCallback done;
  };
  static Call Read(const Slices& request, ReplyCallback done, BufferPool* buffers) {
    Call call{.done = std::move(done)};
    const absl::StatusOr<Frame> frame = DecodeFrame(request);
    EXPECT_TRUE(frame.ok() && call.request.ParseFromString(frame->header));
    if (frame.ok()) call.payload = CopyOf(frame->payload, buffers);
    EXPECT_EQ(call.request.caller().session(), 5u);
    return call;
  }

  // Answers a call; false if it has to wait for its version.
  bool Answer(const Call& call) {
    std::optional<Slices> answer;
    {
      MutexLock lock(&mu_);
      if (call.request.version() > version_) return false;
      answer = Reply(call);
    }
    call.done(*answer);
    return true;
  }
  void SetVersion(int64_t version) {
    MutexLock lock(&mu_);
    version_ = version;
  }
  void ForgetAll() {
    MutexLock lock(&mu_);
    ahead_.clear();
  }
  // Returns how often the server was asked for a row at a version: by table, id and version. Rows that had to be asked
  // for again, since it had forgotten a call, are not counted.
  std::map<std::tuple<std::string, int64_t, int64_t>, int> asked() {
    MutexLock lock(&mu_);
    return asked_;
  }
  std::map<std::pair<std::string, int64_t>, int> blocks_asked() {
    MutexLock lock(&mu_);
    return blocks_asked_;
  }

 private:
  struct Ahead {
    Call call;
    int64_t version = 0;
  };

  std::string RowsOf(const v1::PullItem& item, const std::vector<int64_t>& ids, int64_t version) const {
    std::vector<float> values;
    for (const int64_t id : ids) {
      for (const float value : RowAt(item.name(), item.width(), id, version)) values.push_back(value);
    }
    return Encoded(options_.pull, values, static_cast<size_t>(item.width()));
  }
  static std::vector<int64_t> IdsOf(const v1::PullItem& item, const Slice& payload) {
    std::vector<int64_t> ids(static_cast<size_t>(item.count()));
    EXPECT_LE(static_cast<size_t>(item.offset()) + ids.size() * sizeof(int64_t), payload.size);
    if (!ids.empty()) std::memcpy(ids.data(), payload.data + item.offset(), ids.size() * sizeof(int64_t));
    return ids;
  }
  Slices Reply(const Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const v1::PullRequest& request = call.request;
    v1::PullReply reply;
    reply.set_version(version_);
    reply.set_samples(version_ * 10);
    std::string payload;
    const bool again = forgotten_ && !request.has_ahead_of();
    for (const v1::PullItem& item : request.items()) {
      EXPECT_EQ(item.format(), options_.pull) << item.name();
      if (item.width() == 0) {
        ++blocks_asked_[{absl::StrCat(item.name(), "+", item.begin()), request.version()}];
        payload += Encoded(options_.pull, BlockAt(item.name(), item.begin(), item.count(), version_), kDenseGroup);
        continue;
      }
      const std::vector<int64_t> ids = IdsOf(item, call.payload);
      const int64_t of = request.has_ahead_of() ? request.ahead_of() : request.version();
      for (const int64_t id : ids) {
        if (!again) ++asked_[{item.name(), id, of}];
      }
      payload += RowsOf(item, ids, version_);
    }
    if (request.has_ahead_of() && version_ < request.ahead_of()) {
      EXPECT_EQ(request.version() + 1, request.ahead_of());
      // As a server, which keeps calls ahead of one step.
      std::erase_if(ahead_, [&](const auto& each) { return each.first.first != request.ahead_of(); });
      if (ahead_.size() < options_.remembers) ahead_[{request.ahead_of(), request.ahead_call()}] = {call, version_};
    }
    EXPECT_TRUE(std::is_sorted(request.corrects().begin(), request.corrects().end()));
    for (const int64_t number : request.corrects()) {
      v1::Correction* const correction = reply.add_corrections();
      const auto found = ahead_.find({request.version(), number});
      if (found == ahead_.end()) {
        forgotten_ = true;
        correction->set_forgotten(true);
        continue;
      }
      AddCorrection(found->second, correction, &payload);
    }
    const Slice values = SliceOf(payload, &buffers_);
    reply.set_checksum(Checksum({values}));
    return EncodeFrame(reply.SerializeAsString(), {values});
  }
  void AddCorrection(const Ahead& ahead, v1::Correction* correction, std::string* payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const v1::PullItem& item : ahead.call.request.items()) {
      std::vector<int64_t> ids, changed;
      std::string places;
      ids = IdsOf(item, ahead.call.payload);
      for (uint32_t r = 0; r < ids.size(); ++r) {
        if (ChangedAt(item.name(), ids[r], version_) <= ahead.version) continue;
        changed.push_back(ids[r]);
        places.append(reinterpret_cast<const char*>(&r), sizeof(r));
      }
      correction->add_rows(static_cast<int64_t>(changed.size()));
      if (!changed.empty()) *payload += Padded(places) + RowsOf(item, changed, version_);
    }
  }

  const Options options_;
  BufferPool buffers_;
  Mutex mu_;
  int64_t version_ ABSL_GUARDED_BY(mu_) = 0;
  bool forgotten_ ABSL_GUARDED_BY(mu_) = false;                              // some call
  std::map<std::pair<int64_t, int64_t>, Ahead> ahead_ ABSL_GUARDED_BY(mu_);  // by step and call
  std::map<std::tuple<std::string, int64_t, int64_t>, int> asked_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, int64_t>, int> blocks_asked_ ABSL_GUARDED_BY(mu_);
};

// ------------------------------------------------------------------------------------------------------------ trainers

struct Wanted {
  std::string name;
  int width = 0;
  std::vector<int64_t> ids;
};

// A pull of a trainer for the relay.
struct Pull {
  v1::PullRequest request;
  Slice payload;
};

Pull PullOf(int trainer, const std::vector<Wanted>& wanted, int64_t version, BufferPool* buffers) {
  Pull pull;
  pull.request.mutable_caller()->set_trainer(trainer);
  pull.request.set_version(version);
  pull.request.set_wait_s(1);
  std::string ids;
  for (size_t i = 0; i < wanted.size(); ++i) {
    v1::PullItem* const item = pull.request.add_items();
    item->set_name(wanted[i].name);
    item->set_width(wanted[i].width);
    item->set_count(static_cast<int64_t>(wanted[i].ids.size()));
    // Tables that are asked for the same ids have them in common.
    if (i > 0 && wanted[i].ids == wanted[i - 1].ids) {
      item->set_offset(pull.request.items(static_cast<int>(i) - 1).offset());
      continue;
    }
    item->set_offset(static_cast<int64_t>(ids.size()));
    ids += Padded({reinterpret_cast<const char*>(wanted[i].ids.data()), wanted[i].ids.size() * sizeof(int64_t)});
  }
  pull.payload = SliceOf(ids, buffers);
  return pull;
}
Pull AheadOf(Pull pull, int64_t step, int64_t call) {
  pull.request.set_version(step - 1);
  pull.request.set_ahead_of(step);
  pull.request.set_ahead_call(call);
  return pull;
}
Pull BlockPull(int trainer, const std::string& name, int64_t begin, int64_t count, int64_t version) {
  Pull pull;
  pull.request.mutable_caller()->set_trainer(trainer);
  pull.request.set_version(version);
  v1::PullItem* const item = pull.request.add_items();
  item->set_name(name);
  item->set_begin(begin);
  item->set_count(count);
  return pull;
}

// Answer of the relay.
struct Answer {
  v1::PullReply header;
  Slice payload;
  size_t at = 0;

  std::vector<float> Floats(size_t n) {
    EXPECT_LE(at + AlignUp(n * sizeof(float)), payload.size);
    std::vector<float> values(n);
    if (n > 0) std::memcpy(values.data(), payload.data + at, n * sizeof(float));
    at += AlignUp(n * sizeof(float));
    return values;
  }
  std::vector<uint32_t> Places(size_t n) {
    std::vector<uint32_t> places(n);
    EXPECT_LE(at + AlignUp(n * sizeof(uint32_t)), payload.size);
    if (n > 0) std::memcpy(places.data(), payload.data + at, n * sizeof(uint32_t));
    at += AlignUp(n * sizeof(uint32_t));
    return places;
  }
};

class Reply {
 public:
  void Set(const absl::StatusOr<Slices>& answer) {
    MutexLock lock(&mu_);
    EXPECT_FALSE(answer_.has_value()) << "answered twice";
    answer_ = Parse(answer);
    set_.SignalAll();
  }
  bool has() {
    MutexLock lock(&mu_);
    return answer_.has_value();
  }
  absl::StatusOr<Answer> Await() {
    MutexLock lock(&mu_);
    while (!answer_.has_value()) {
      if (set_.WaitWithTimeout(&mu_, absl::Seconds(60))) return absl::DeadlineExceededError("no answer");
    }
    return *answer_;
  }

 private:
  absl::StatusOr<Answer> Parse(const absl::StatusOr<Slices>& answer) {
    if (!answer.ok()) return answer.status();
    const absl::StatusOr<Frame> frame = DecodeFrame(*answer);
    if (!frame.ok()) return frame.status();
    Answer parsed;
    EXPECT_TRUE(parsed.header.ParseFromString(frame->header));
    parsed.payload = CopyOf(frame->payload, &buffers_);
    EXPECT_EQ(parsed.header.checksum(), Checksum({parsed.payload}));
    return parsed;
  }

  BufferPool buffers_;
  Mutex mu_;
  CondVar set_;
  std::optional<absl::StatusOr<Answer>> answer_ ABSL_GUARDED_BY(mu_);
};
using ReplyPtr = std::shared_ptr<Reply>;

class SharedPullsTest : public ::testing::Test {
 protected:
  using Send = std::function<void(Slices request, ReplyCallback done)>;

  // Calls wait in calls_ until the test answers them, unless it sends them elsewhere.
  void Begin(const PlayedServer::Options& options = {}, Send send = nullptr) {
    format_ = options.pull;
    plan_ = HandMadeJob{.trainers = 4, .pull = options.pull}.Plan();
    placement_ = std::make_unique<BlockPlacement>(&plan_);
    server_ = std::make_unique<PlayedServer>(options);
    if (send == nullptr) {
      send = [this](const Slices& request, ReplyCallback done) {
        calls_.push_back(PlayedServer::Read(request, std::move(done), &buffers_));
      };
    }
    counters_ = std::make_unique<Counters>();
    pulls_ = std::make_unique<SharedPulls>(SharedPulls::Options{.placement = placement_.get(),
                                                                .buffers = &buffers_,
                                                                .counters = counters_.get(),
                                                                .checksums = true,
                                                                .caller =
                                                                    [] {
                                                                      v1::Caller caller;
                                                                      caller.set_trainer(1);
                                                                      caller.set_session(5);
                                                                      return caller;
                                                                    },
                                                                .send = std::move(send)});
  }
  ReplyPtr Ask(const Pull& pull) {
    auto reply = std::make_shared<Reply>();
    pulls_->Handle(pull.request, pull.payload, [reply](const absl::StatusOr<Slices>& answer) { reply->Set(answer); });
    return reply;
  }
  // Answers the calls that have come, and those that come of it.
  void AnswerAll() {
    while (!calls_.empty()) {
      const PlayedServer::Call call = std::move(calls_.front());
      calls_.erase(calls_.begin());
      ASSERT_TRUE(server_->Answer(call));
    }
  }
  void Refuse(const absl::Status& status) {
    const PlayedServer::Call call = std::move(calls_.front());
    calls_.erase(calls_.begin());
    call.done(status);
  }
  std::vector<float> Expected(const Wanted& wanted, int64_t version) const {
    std::vector<float> values;
    for (const int64_t id : wanted.ids) {
      for (const float value : RowAt(wanted.name, wanted.width, id, version)) values.push_back(value);
    }
    return Rounded(format_, values, static_cast<size_t>(wanted.width));
  }
  // Applies a correction of a pull to its rows. Returns false if the relay has forgotten the pull.
  static bool Correct(const v1::Correction& correction, const std::vector<Wanted>& wanted, Answer* answer,
                      std::vector<std::vector<float>>* rows) {
    if (correction.forgotten()) return false;
    EXPECT_EQ(correction.rows_size(), static_cast<int>(wanted.size()));
    for (size_t i = 0; i < wanted.size(); ++i) {
      const size_t n = static_cast<size_t>(correction.rows(static_cast<int>(i)));
      const size_t width = static_cast<size_t>(wanted[i].width);
      if (n == 0) continue;
      const std::vector<uint32_t> places = answer->Places(n);
      const std::vector<float> values = answer->Floats(n * width);
      EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
      for (size_t k = 0; k < n; ++k) {
        EXPECT_LT(places[k], wanted[i].ids.size());
        std::copy_n(values.begin() + static_cast<ptrdiff_t>(k * width), width,
                    (*rows)[i].begin() + static_cast<ptrdiff_t>(places[k] * width));
      }
    }
    return true;
  }

  v1::WireFormat format_ = v1::WIRE_FLOAT32;
  v1::Plan plan_;
  std::unique_ptr<BlockPlacement> placement_;
  BufferPool buffers_;
  std::unique_ptr<Counters> counters_;
  std::unique_ptr<PlayedServer> server_;
  std::vector<PlayedServer::Call> calls_;
  std::unique_ptr<SharedPulls> pulls_;
};

TEST_F(SharedPullsTest, ABlockIsFetchedOnceAndEachGetsItWithTheOutcomeOfTheStep) {
  Begin();
  server_->SetVersion(3);
  const ReplyPtr first = Ask(BlockPull(0, "w", 0, 640, 3)), second = Ask(BlockPull(1, "w", 0, 640, 3));
  ASSERT_THAT(calls_, SizeIs(1));
  AnswerAll();
  const ReplyPtr late = Ask(BlockPull(2, "w", 0, 640, 3)), other = Ask(BlockPull(2, "w", 0, 100, 3));
  EXPECT_THAT(calls_, SizeIs(1)) << "of another piece";
  AnswerAll();
  for (const ReplyPtr& reply : {first, second, late}) {
    absl::StatusOr<Answer> answer = reply->Await();
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->header.version(), 3);
    EXPECT_EQ(answer->header.samples(), 30);
    EXPECT_EQ(answer->Floats(640), BlockAt("w", 0, 640, 3));
    EXPECT_EQ(answer->at, answer->payload.size);
  }
  EXPECT_EQ(other->Await()->Floats(100), BlockAt("w", 0, 100, 3));
}

// A server without blocks is asked for its version alone.
TEST_F(SharedPullsTest, APullOfNothingTellsTheOutcome) {
  Begin();
  server_->SetVersion(2);
  Pull pull;
  pull.request.set_version(2);
  const ReplyPtr first = Ask(pull), second = Ask(pull);
  EXPECT_THAT(calls_, SizeIs(1));
  AnswerAll();
  EXPECT_EQ(first->Await()->header.samples(), 20);
  EXPECT_EQ(second->Await()->header.samples(), 20);
}

TEST_F(SharedPullsTest, RowsAreFetchedOnceAndLossyOnesAreDecodedToTheSameFloats) {
  for (const v1::WireFormat format : {v1::WIRE_FLOAT32, v1::WIRE_FLOAT16, v1::WIRE_BFLOAT16, v1::WIRE_INT8}) {
    Begin({.pull = format});
    server_->SetVersion(4);
    // An id that comes twice, and rows of a block.
    const Wanted t = {"t", 4, {1, 2, 3, 2}}, u = {"u", 1, {1, 2, 3, 2}}, e = {"e", 3, {0, 7}}, more = {"t", 4, {3, 9}};
    const ReplyPtr first = Ask(PullOf(0, {t, u, e}, 4, &buffers_)), second = Ask(PullOf(1, {more, e}, 4, &buffers_));
    ASSERT_THAT(calls_, SizeIs(2));
    EXPECT_EQ(calls_[0].request.items(1).offset(), 0) << "t and u have their ids in common";
    EXPECT_EQ(calls_[1].request.items_size(), 1);
    EXPECT_EQ(calls_[1].request.items(0).count(), 1);
    AnswerAll();
    absl::StatusOr<Answer> answer = first->Await();
    ASSERT_TRUE(answer.ok()) << answer.status();
    for (const Wanted& wanted : {t, u, e}) {
      EXPECT_EQ(answer->Floats(wanted.ids.size() * static_cast<size_t>(wanted.width)), Expected(wanted, 4));
    }
    EXPECT_EQ(answer->at, answer->payload.size);
    absl::StatusOr<Answer> of_second = second->Await();
    ASSERT_TRUE(of_second.ok()) << of_second.status();
    EXPECT_EQ(of_second->Floats(8), Expected(more, 4));
    EXPECT_EQ(of_second->Floats(6), Expected(e, 4));
    EXPECT_EQ(counters_->Value("host.rows_wanted"), 14);
    EXPECT_EQ(counters_->Value("host.rows_fetched"), 9);
  }
}

// The newest version may be another one for the next who asks.
TEST_F(SharedPullsTest, PullsOfAnyVersionAreEachTrainersOwn) {
  Begin();
  server_->SetVersion(6);
  const Wanted t = {"t", 4, {1, 2}};
  const std::vector<ReplyPtr> rows = {Ask(PullOf(0, {t}, 0, &buffers_)), Ask(PullOf(1, {t}, 0, &buffers_))};
  const std::vector<ReplyPtr> blocks = {Ask(BlockPull(0, "b", 0, 5, 0)), Ask(BlockPull(1, "b", 0, 5, 0))};
  EXPECT_THAT(calls_, SizeIs(4));
  AnswerAll();
  for (const ReplyPtr& reply : rows) {
    absl::StatusOr<Answer> answer = reply->Await();
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->header.version(), 6);
    EXPECT_EQ(answer->Floats(8), Expected(t, 6));
  }
  for (const ReplyPtr& reply : blocks) EXPECT_EQ(reply->Await()->Floats(5), BlockAt("b", 0, 5, 6));
}

TEST_F(SharedPullsTest, AFailureReachesAllThatWaitAndTheNextOneFetchesAgain) {
  Begin();
  server_->SetVersion(1);
  const Wanted t = {"t", 4, {1, 2}}, more = {"t", 4, {2, 3}};
  for (const bool ready : {false, true}) {
    const std::vector<ReplyPtr> waiting = {Ask(BlockPull(0, "b", 0, 5, 1)), Ask(BlockPull(1, "b", 0, 5, 1)),
                                           Ask(PullOf(0, {t}, 1, &buffers_)), Ask(PullOf(1, {more}, 1, &buffers_))};
    ASSERT_THAT(calls_, SizeIs(3));
    if (ready) {
      AnswerAll();
      for (const ReplyPtr& reply : waiting) EXPECT_TRUE(reply->Await().ok());
      continue;
    }
    Refuse(absl::UnavailableError("a"));
    Refuse(absl::UnavailableError("b"));
    EXPECT_TRUE(waiting[0]->has() && waiting[1]->has() && waiting[2]->has());
    // Waits for rows of its own, too.
    EXPECT_FALSE(waiting[3]->has());
    Refuse(absl::UnavailableError("c"));
    for (const ReplyPtr& reply : waiting) EXPECT_EQ(reply->Await().status().code(), absl::StatusCode::kUnavailable);
  }
}

TEST_F(SharedPullsTest, AServerThatIsNotReadyIsAskedAgain) {
  Begin();
  const ReplyPtr first = Ask(BlockPull(0, "b", 0, 5, 1)), second = Ask(BlockPull(1, "b", 0, 5, 1));
  v1::PullReply not_ready;
  not_ready.set_ready(false);
  not_ready.set_waiting_for("trainer 3");
  calls_[0].done(EncodeFrame(not_ready.SerializeAsString(), {}));
  calls_.clear();
  for (const ReplyPtr& reply : {first, second}) {
    absl::StatusOr<Answer> answer = reply->Await();
    ASSERT_TRUE(answer.ok());
    EXPECT_FALSE(answer->header.ready());
    EXPECT_EQ(answer->header.waiting_for(), "trainer 3");
  }
  server_->SetVersion(1);
  const ReplyPtr again = Ask(BlockPull(0, "b", 0, 5, 1));
  AnswerAll();
  EXPECT_EQ(again->Await()->Floats(5), BlockAt("b", 0, 5, 1));
}

// Rows ahead of step 8, read at version 7, of which some change.
class RowsAheadTest : public SharedPullsTest {
 protected:
  void Pulled(const PlayedServer::Options& options = {}) {
    Begin(options);
    server_->SetVersion(7);
    for (const int trainer : {0, 2}) {
      const ReplyPtr reply = Ask(AheadOf(PullOf(trainer, {Rows(trainer)}, 0, &buffers_), 8, 1));
      AnswerAll();
      absl::StatusOr<Answer> answer = reply->Await();
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_EQ(answer->header.version(), 7);
      rows_[trainer] = {answer->Floats(Rows(trainer).ids.size() * 4)};
      EXPECT_EQ(rows_[trainer][0], Expected(Rows(trainer), 7));
    }
    server_->SetVersion(8);
  }
  // Some of them are those of both trainers.
  static Wanted Rows(int trainer) {
    Wanted rows = {"t", 4, {}};
    for (int64_t id = 0; id < 20; ++id) rows.ids.push_back(trainer == 0 ? id : 30 - id);
    return rows;
  }
  ReplyPtr AskCorrections(int trainer, std::vector<int64_t> calls = {1}) {
    Pull pull = PullOf(trainer, {}, 8, &buffers_);
    for (const int64_t call : calls) pull.request.add_corrects(call);
    return Ask(pull);
  }
  void ExpectCorrected(int trainer, const ReplyPtr& reply) {
    absl::StatusOr<Answer> answer = reply->Await();
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_EQ(answer->header.corrections_size(), 1);
    EXPECT_GT(answer->header.corrections(0).rows(0), 0);
    EXPECT_TRUE(Correct(answer->header.corrections(0), {Rows(trainer)}, &*answer, &rows_[trainer]));
    EXPECT_EQ(rows_[trainer][0], Expected(Rows(trainer), 8)) << "trainer " << trainer;
    EXPECT_EQ(answer->at, answer->payload.size);
  }

  std::map<int, std::vector<std::vector<float>>> rows_;
};

TEST_F(RowsAheadTest, EachTrainerGetsTheCorrectionsOfItsRowsHoweverLateItAsks) {
  for (const v1::WireFormat format : {v1::WIRE_FLOAT32, v1::WIRE_INT8}) {
    Pulled({.pull = format});
    const ReplyPtr first = AskCorrections(0);
    ASSERT_THAT(calls_, SizeIs(1));
    EXPECT_THAT(calls_[0].request.corrects(), ElementsAre(1));
    AnswerAll();
    ExpectCorrected(0, first);
    // Some of its rows came with those of trainer 0, and have been corrected; the others are.
    const ReplyPtr second = AskCorrections(2);
    ASSERT_THAT(calls_, SizeIs(1));
    EXPECT_THAT(calls_[0].request.corrects(), ElementsAre(2));
    AnswerAll();
    ExpectCorrected(2, second);
    // Nothing is asked for again.
    ExpectCorrected(2, AskCorrections(2));
    EXPECT_THAT(calls_, IsEmpty());
  }
}

TEST_F(RowsAheadTest, TrainersThatAskTogetherWaitForOneCorrection) {
  Pulled();
  const ReplyPtr second = AskCorrections(2), first = AskCorrections(0);
  ASSERT_THAT(calls_, SizeIs(1));
  EXPECT_THAT(calls_[0].request.corrects(), ElementsAre(1, 2));
  AnswerAll();
  ExpectCorrected(0, first);
  ExpectCorrected(2, second);
}

TEST_F(RowsAheadTest, RowsOfTheStepItselfAreCorrectedBeforeTheyAreAnswered) {
  Pulled();
  const Wanted rows = {"t", 4, {3, 4, 25, 40}};
  const ReplyPtr reply = Ask(PullOf(1, {rows}, 8, &buffers_));
  AnswerAll();
  absl::StatusOr<Answer> answer = reply->Await();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->header.version(), 8);
  EXPECT_EQ(answer->Floats(16), Expected(rows, 8));
}

TEST_F(RowsAheadTest, ACorrectionThatFailsIsAskedForAgain) {
  Pulled();
  const ReplyPtr first = AskCorrections(0), second = AskCorrections(2);
  ASSERT_THAT(calls_, SizeIs(2));
  Refuse(absl::UnavailableError("later"));
  EXPECT_FALSE(second->has()) << "it waits for two";
  AnswerAll();
  EXPECT_EQ(first->Await().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(second->Await().status().code(), absl::StatusCode::kUnavailable);
  const ReplyPtr again = AskCorrections(2), first_again = AskCorrections(0);
  AnswerAll();
  ExpectCorrected(2, again);
  ExpectCorrected(0, first_again);
}

// All of them count as changed then.
TEST_F(RowsAheadTest, RowsThatTheServerHasForgottenAreFetchedAgain) {
  Pulled({.remembers = 1});
  const ReplyPtr second = AskCorrections(2), first = AskCorrections(0);
  AnswerAll();
  ExpectCorrected(0, first);
  ExpectCorrected(2, second);
  Pulled();
  server_->ForgetAll();
  const ReplyPtr third = AskCorrections(2);
  server_->Answer(std::exchange(calls_, {})[0]);
  // Two fetches; the first fails.
  ASSERT_THAT(calls_, SizeIs(2));
  Refuse(absl::UnavailableError("later"));
  AnswerAll();
  EXPECT_EQ(third->Await().status().code(), absl::StatusCode::kUnavailable);
  const ReplyPtr again = AskCorrections(2);
  AnswerAll();
  ExpectCorrected(2, again);
}

TEST_F(RowsAheadTest, CallsThatTheRelayDoesNotRememberAreForgotten) {
  Pulled();
  const ReplyPtr reply = AskCorrections(1);
  AnswerAll();
  EXPECT_TRUE(reply->Await()->header.corrections(0).forgotten());
  // Neither are those ahead of earlier steps.
  server_->SetVersion(9);
  const ReplyPtr blocks = Ask(BlockPull(0, "b", 0, 5, 9));
  AnswerAll();
  EXPECT_TRUE(blocks->Await().ok());
  const ReplyPtr late = AskCorrections(0);
  AnswerAll();
  EXPECT_TRUE(late->Await()->header.corrections(0).forgotten());
}

TEST_F(RowsAheadTest, RowsThatAreReadAtTheVersionOfTheirStepNeedNoCorrection) {
  Begin();
  server_->SetVersion(8);
  const ReplyPtr reply = Ask(AheadOf(PullOf(0, {Rows(0)}, 0, &buffers_), 8, 1));
  AnswerAll();
  EXPECT_EQ(reply->Await()->header.version(), 8);
  EXPECT_EQ(reply->Await()->Floats(80), Expected(Rows(0), 8));
  const ReplyPtr rows = Ask(PullOf(1, {Rows(0)}, 8, &buffers_));
  EXPECT_TRUE(rows->has());
}

TEST_F(SharedPullsTest, PullsWithoutSenseAreRefused) {
  Begin();
  const Wanted t = {"t", 4, {1, 2, 3}};
  const auto refused = [&](const std::function<void(Pull*)>& edit, const std::string& text) {
    Pull pull = PullOf(0, {t}, 1, &buffers_);
    edit(&pull);
    EXPECT_STATUS(Ask(pull)->Await().status(), kInvalidArgument, text);
  };
  const auto item = [](Pull* pull) { return pull->request.mutable_items(0); };
  // Rows of two widths under one name would be read beyond their ends.
  refused([&](Pull* p) { item(p)->set_width(8); },
          "pull of t through the relay: rows of 8 floats; by the plan they have 4");
  refused([&](Pull* p) { item(p)->set_name("w"); }, "rows of 4 floats; by the plan they have 0");
  refused([&](Pull* p) { item(p)->set_format(v1::WIRE_INT8); }, "asked for as WIRE_INT8; a relay answers in float32");
  refused([&](Pull* p) { item(p)->set_count(-1); }, "count is -1");
  for (const int64_t count : {int64_t{9}, INT64_MAX}) {
    refused([&](Pull* p) { item(p)->set_count(count); },
            absl::StrCat(count, " ids at offset 0 of a payload of 64 bytes"));
  }
  for (const int64_t offset : {int64_t{-64}, int64_t{8}, int64_t{64}, INT64_MAX}) {
    refused([&](Pull* p) { item(p)->set_offset(offset); },
            absl::StrCat("3 ids at offset ", offset, " of a payload of 64 bytes"));
  }
  refused([&](Pull* p) { *p->request.add_items() = BlockPull(0, "b", 0, 5, 1).request.items(0); },
          "pull of b through the relay: blocks and rows are pulled apart");
  refused([&](Pull* p) { *p = BlockPull(0, "x", 0, 5, 1); }, "the plan has no such block");
  refused([&](Pull* p) { *p = BlockPull(0, "b", 0, INT64_MAX, 1); }, "more than 66584576 bytes; ask in several calls");
  refused([&](Pull* p) { p->request.set_ahead_of(1); },
          "ahead of step 1 at version 1, with 0 calls to correct; only rows are pulled ahead");
  refused([&](Pull* p) { *p = AheadOf(BlockPull(0, "b", 0, 5, 1), 2, 1); }, "only rows are pulled ahead");
  refused(
      [&](Pull* p) {
        *p = AheadOf(*p, 2, 1);
        p->request.add_corrects(1);
      },
      "with 1 calls to correct");
  refused(
      [&](Pull* p) {
        for (int i = 0; i < 4097; ++i) p->request.add_corrects(i);
      },
      "corrects 4097 calls; at most 4096 are possible");
  EXPECT_THAT(calls_, IsEmpty());
}

// Items that name the same ids again and again would make a message for the server that nothing may send.
TEST_F(SharedPullsTest, NoPullMakesAMessageThatIsTooLarge) {
  Begin();
  Wanted u = {"u", 1, std::vector<int64_t>(1 << 20, 3)};
  Pull pull = PullOf(0, {u}, 1, &buffers_);
  for (int i = 0; i < 8; ++i) *pull.request.add_items() = pull.request.items(0);
  EXPECT_STATUS(Ask(pull)->Await().status(), kInvalidArgument,
                "the message would have more than 66584576 bytes; ask in several calls");
}

// A trainer that names one call again and again gets what has room.
TEST_F(RowsAheadTest, CorrectionsWithoutRoomAreForgotten) {
  Begin();
  server_->SetVersion(7);
  int64_t id = 0;
  while (ChangedAt("t", id, 8) != 8) ++id;
  // 16 MiB of one row.
  const Wanted many = {"t", 4, std::vector<int64_t>(1 << 20, id)};
  const ReplyPtr ahead = Ask(AheadOf(PullOf(0, {many}, 0, &buffers_), 8, 1));
  AnswerAll();
  EXPECT_TRUE(ahead->Await().ok());
  server_->SetVersion(8);
  const ReplyPtr reply = AskCorrections(0, {1, 1, 1, 1, 1});
  AnswerAll();
  absl::StatusOr<Answer> answer = reply->Await();
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->header.corrections_size(), 5);
  EXPECT_EQ(answer->header.corrections(0).rows(0), 1 << 20);
  EXPECT_TRUE(answer->header.corrections(4).forgotten());
}

// A server that answers with other sizes than it was asked for.
TEST_F(SharedPullsTest, AnswersOfAnotherSizeAreDamage) {
  Begin();
  const auto answer = [&](const std::string& bytes, bool right_checksum = true) {
    v1::PullReply reply;
    reply.set_version(1);
    const Slice values = SliceOf(bytes, &buffers_);
    reply.set_checksum(Checksum({values}) + (right_checksum ? 0 : 1));
    std::exchange(calls_, {})[0].done(EncodeFrame(reply.SerializeAsString(), {values}));
  };
  const std::vector<std::tuple<size_t, bool, std::string>> cases = {
      {0, true, "0 bytes came, more were asked for"},
      {128, true, "128 bytes came, 64 were asked for"},
      {64, false, "the payload's checksum does not match"},
  };
  for (const auto& [bytes, right, text] : cases) {
    const ReplyPtr reply = Ask(BlockPull(0, "b", 0, 5, 1));
    answer(std::string(bytes, 'x'), right);
    EXPECT_STATUS(reply->Await().status(), kDataLoss, text);
  }
  const ReplyPtr reply = Ask(BlockPull(0, "b", 0, 5, 1));
  std::exchange(calls_, {})[0].done(Slices{Slice::Own("no frame")});
  EXPECT_FALSE(reply->Await().ok());
}

TEST_F(RowsAheadTest, CorrectionsThatContradictTheirPullAreDamage) {
  const auto places = [](std::vector<uint32_t> rows) {
    return Padded({reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(uint32_t)});
  };
  const std::vector<std::tuple<std::vector<int64_t>, std::string, std::string>> cases = {
      {{}, "", "a correction of another pull came"},
      {{1, 0}, "", "a correction of another pull came"},
      {{-1}, "", "a correction of -1 rows came for 20"},
      {{21}, std::string(1024, 0), "a correction of 21 rows came for 20"},
      {{INT64_MAX}, "", "rows came for 20"},
      {{1}, "", "a correction of 1 rows came for 20"},
      {{1}, places({0}), "a correction ends beyond its message"},
      {{1}, places({20}) + std::string(64, 0), "a correction of row 20 came"},
      {{1}, places({0}) + std::string(128, 0), "192 bytes came, 128 were asked for"},
  };
  for (const auto& [rows, bytes, text] : cases) {
    Pulled();
    const ReplyPtr reply = AskCorrections(0);
    v1::PullReply header;
    header.set_version(8);
    v1::Correction* const correction = header.add_corrections();
    for (const int64_t n : rows) correction->add_rows(n);
    const Slice values = SliceOf(bytes, &buffers_);
    header.set_checksum(Checksum({values}));
    std::exchange(calls_, {})[0].done(EncodeFrame(header.SerializeAsString(), {values}));
    EXPECT_STATUS(reply->Await().status(), kDataLoss, text);
  }
}

// --------------------------------------------------------------------------------------------------------- many
// threads

struct Storm {
  const char* name;
  v1::WireFormat pull = v1::WIRE_FLOAT32;
  size_t remembers = SIZE_MAX;
  bool fails = false;  // answers that are errors, or not ready; calls that are made twice
};

// Threads of a server, which answer calls in any order, and sometimes not as wished.
class Threads {
 public:
  Threads(PlayedServer* server, bool fails) : server_(*server), fails_(fails) {
    for (unsigned i = 0; i < 2; ++i) {
      threads_.push_back(StartThread("server", [this, i] { Serve(Random(i)); }));
    }
  }
  // Requires: no call is under way.
  ~Threads() {
    {
      MutexLock lock(&mu_);
      ended_ = true;
      changed_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }
  void Take(PlayedServer::Call call) {
    MutexLock lock(&mu_);
    calls_.push_back(std::move(call));
    changed_.SignalAll();
  }
  // Says that the version of the server may have changed.
  void Look() {
    MutexLock lock(&mu_);
    changed_.SignalAll();
  }

 private:
  void Serve(Random random) {
    while (true) {
      std::optional<PlayedServer::Call> call;
      {
        MutexLock lock(&mu_);
        while (calls_.empty() && !ended_) changed_.Wait(&mu_);
        if (ended_) return;
        const auto at = calls_.begin() + static_cast<ptrdiff_t>(random() % calls_.size());
        call = std::move(*at);
        calls_.erase(at);
      }
      if (fails_ && random() % 10 == 0) {
        call->done(absl::UnavailableError("try again"));
      } else if (!server_.Answer(*call)) {
        if (fails_ && random() % 10 == 0) {
          v1::PullReply not_ready;
          not_ready.set_ready(false);
          call->done(EncodeFrame(not_ready.SerializeAsString(), {}));
          continue;
        }
        std::this_thread::yield();
        MutexLock lock(&mu_);
        calls_.push_back(*std::move(call));
      }
    }
  }

  PlayedServer& server_;
  const bool fails_;
  Mutex mu_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<PlayedServer::Call> calls_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

class StormTest : public SharedPullsTest, public ::testing::WithParamInterface<Storm> {
 protected:
  static constexpr int kTrainers = 4;
  static constexpr int64_t kSteps = 25;

  // Pulls until there is an answer; sometimes twice, as a trainer does whose first try was late.
  absl::StatusOr<Answer> Await(const Pull& pull, Random* random) {
    while (true) {
      const ReplyPtr reply = Ask(pull);
      if (GetParam().fails && (*random)() % 8 == 0) Ask(pull);
      absl::StatusOr<Answer> answer = reply->Await();
      if (absl::IsUnavailable(answer.status()) || (answer.ok() && !answer->header.ready())) continue;
      return answer;
    }
  }
  // Ids of a step: some are those of most steps and trainers, some come twice.
  static std::vector<Wanted> DrawRows(Random* random) {
    std::vector<int64_t> ids, of_block;
    const size_t n = 5 + (*random)() % 40;
    for (size_t i = 0; i < n; ++i) {
      const int64_t id = static_cast<int64_t>((*random)() % 60);
      ids.push_back(id * id / 20);
    }
    for (size_t i = 0; i < n / 4; ++i) of_block.push_back(static_cast<int64_t>((*random)() % 30));
    std::vector<Wanted> rows = {{"t", 4, ids}, {"u", 1, ids}};
    if (!of_block.empty()) rows.push_back({"e", 3, of_block});
    return rows;
  }
  // Some rows of a step, ahead of it.
  struct Ahead {
    int64_t call = 0;
    std::vector<Wanted> rows;
    std::vector<std::vector<float>> values;
    bool final = false;
  };
  void ReadRows(const std::vector<Wanted>& wanted, Answer* answer, std::vector<std::vector<float>>* values) const {
    values->clear();
    for (const Wanted& rows : wanted) {
      values->push_back(answer->Floats(rows.ids.size() * static_cast<size_t>(rows.width)));
    }
  }
  void ExpectRows(const std::vector<Wanted>& wanted, const std::vector<std::vector<float>>& values,
                  int64_t step) const {
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(values[i], Expected(wanted[i], step)) << wanted[i].name << " step " << step;
    }
  }
  void Train(int trainer) {
    Random random(static_cast<unsigned>(trainer + 1));
    int64_t last_call = 0;
    for (int64_t step = 1; step <= kSteps; ++step) {
      std::vector<Ahead> ahead(random() % 3);
      for (Ahead& each : ahead) {
        each.call = ++last_call;
        each.rows = DrawRows(&random);
        absl::StatusOr<Answer> answer =
            Await(AheadOf(PullOf(trainer, each.rows, 0, &buffers_), step, each.call), &random);
        ASSERT_TRUE(answer.ok()) << answer.status();
        ReadRows(each.rows, &*answer, &each.values);
        each.final = answer->header.version() >= step;
        if (each.final) ExpectRows(each.rows, each.values, step);
      }
      Push();
      absl::StatusOr<Answer> block = Await(BlockPull(trainer, "b", 0, 5, step), &random);
      ASSERT_TRUE(block.ok()) << block.status();
      EXPECT_EQ(block->Floats(5), Rounded(format_, BlockAt("b", 0, 5, step), kDenseGroup));
      Finish(trainer, step, &ahead, &random);
    }
  }
  // Pulls what is left of a step, with corrections of what was pulled ahead.
  void Finish(int trainer, int64_t step, std::vector<Ahead>* ahead, Random* random) {
    const std::vector<Wanted> left = DrawRows(random);
    Pull pull = PullOf(trainer, left, step, &buffers_);
    std::vector<Ahead*> corrected;
    for (Ahead& each : *ahead) {
      if (each.final) continue;
      pull.request.add_corrects(each.call);
      corrected.push_back(&each);
    }
    absl::StatusOr<Answer> answer = Await(pull, random);
    ASSERT_TRUE(answer.ok()) << answer.status();
    std::vector<std::vector<float>> values;
    ReadRows(left, &*answer, &values);
    ExpectRows(left, values, step);
    ASSERT_EQ(answer->header.corrections_size(), static_cast<int>(corrected.size()));
    for (size_t c = 0; c < corrected.size(); ++c) {
      ASSERT_TRUE(Correct(answer->header.corrections(static_cast<int>(c)), corrected[c]->rows, &*answer,
                          &corrected[c]->values));
      ExpectRows(corrected[c]->rows, corrected[c]->values, step);
    }
    EXPECT_EQ(answer->at, answer->payload.size);
  }
  // The version changes when all have pushed.
  void Push() {
    MutexLock lock(&mu_);
    if (++pushed_ % kTrainers != 0) return;
    server_->SetVersion(pushed_ / kTrainers);
    server_threads_->Look();
  }

  std::unique_ptr<Threads> server_threads_;
  Mutex mu_;
  int64_t pushed_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST_P(StormTest, EachTrainerHasTheRowsOfItsStepAndEachRowIsAskedForOnce) {
  Begin({.pull = GetParam().pull, .remembers = GetParam().remembers},
        [this](const Slices& request, ReplyCallback done) {
          server_threads_->Take(PlayedServer::Read(request, std::move(done), &buffers_));
        });
  server_threads_ = std::make_unique<Threads>(server_.get(), GetParam().fails);
  std::vector<std::thread> trainers;
  for (int t = 0; t < kTrainers; ++t) trainers.push_back(StartThread("trainer", [this, t] { Train(t); }));
  for (std::thread& trainer : trainers) trainer.join();
  server_threads_ = nullptr;
  if (GetParam().fails) return;
  for (const auto& [row, times] : server_->asked()) {
    EXPECT_EQ(times, 1) << std::get<0>(row) << " row " << std::get<1>(row) << " at version " << std::get<2>(row);
  }
  for (const auto& [block, times] : server_->blocks_asked()) EXPECT_EQ(times, 1) << block.first;
  EXPECT_GT(counters_->Value("host.rows_wanted"), counters_->Value("host.rows_fetched"));
}

INSTANTIATE_TEST_SUITE_P(
    Storms, StormTest,
    ::testing::Values(Storm{.name = "Calm"}, Storm{.name = "Lossy", .pull = v1::WIRE_INT8},
                      Storm{.name = "Forgetful", .remembers = 2}, Storm{.name = "Failing", .fails = true},
                      Storm{.name = "FailingAndForgetful", .pull = v1::WIRE_FLOAT16, .remembers = 1, .fails = true}),
    [](const ::testing::TestParamInfo<Storm>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weir
