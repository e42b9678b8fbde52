// Readers of a server: what their answers may take, and that they change no bit of the training. One server under a
// fake clock.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "framework/membership/limits.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/core_by_hand.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr int kThreads = 2;
constexpr int kSteps = 40;

class ServerReadersTest : public CoreByHand {
 protected:
  ~ServerReadersTest() override {
    core_.reset();
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  // From now on the calls of trainer kReader are those of this reader.
  void Become(const std::string& process) {
    v1::JoinRequest request;
    request.mutable_caller()->set_trainer(kReader);
    request.set_reader(true);
    request.set_wire_version(kWireVersion);
    request.set_process(process);
    const auto reply = CallNow<v1::JoinReply>(Method::kJoin, request.SerializeAsString());
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_NE(reply->session(), 0u);
    sessions_[kReader] = reply->session();
  }
  int64_t RowsOf(const std::string& table) {
    for (const ServerReport::Table& each : core_->Report().tables) {
      if (each.name == table) return each.rows;
    }
    return -1;
  }
  // Returns one step's gradients of a trainer: of all blocks and tables, others in every step.
  std::vector<Item> Gradients(int trainer, int64_t step) {
    const int lanes = job_.lanes / job_.trainers;
    const auto numbers = [&](size_t n, uint64_t seed) {
      std::vector<float> values;
      for (size_t i = 0; i < n; ++i) {
        const uint64_t h = MixId(MixId(MixId(seed) + static_cast<uint64_t>(step)) + i + 1000 * (trainer + 1));
        values.push_back(static_cast<float>(h >> 40) / 16777216.0f - 0.5f);
      }
      return values;
    };
    std::vector<int64_t> ids = {1000000 + step};
    for (int64_t i = 0; i < 20; ++i) ids.push_back((step * 7 + i * (trainer + 1)) % 60);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::vector<Item> items = {{.name = "w", .values = numbers(640, 1)},
                               {.name = "b", .values = numbers(5, 2)},
                               {.name = "e", .values = numbers(6, 3), .ids = {step % 29, 29}, .width = 3},
                               {.name = "t", .values = numbers(4 * ids.size(), 4), .ids = ids, .width = 4},
                               {.name = "u", .values = numbers(ids.size(), 5), .ids = ids, .width = 1}};
    for (Item& item : items) {
      item.lane = trainer * lanes;
      item.lanes = lanes;
    }
    return items;
  }
  // Returns a pull of everything: blocks, rows that steps change, and rows that there will never be.
  static std::string EverythingBytes(const v1::Caller& caller, int64_t version) {
    std::vector<int64_t> ids;
    for (int64_t id = 0; id < 64; ++id) ids.push_back(id);
    for (int64_t id = 0; id < 16; ++id) ids.push_back(-1 - id * 12345);
    v1::PullRequest request;
    *request.mutable_caller() = caller;
    request.set_version(version);
    request.set_wait_s(30);
    const auto add = [&request](const char* name, int64_t count, int width) {
      v1::PullItem* const item = request.add_items();
      item->set_name(name);
      item->set_count(count);
      item->set_width(width);
    };
    add("w", 640, 0);
    add("b", 5, 0);
    add("e", 90, 0);
    add("t", static_cast<int64_t>(ids.size()), 4);
    add("u", static_cast<int64_t>(ids.size()), 1);
    const std::string payload(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t));
    return Flatten(EncodeFrame(request.SerializeAsString(), {Slice::Own(payload)}));
  }

  std::string dir_;
};

TEST_F(ServerReadersTest, AReaderThatDoesNotReadGetsNoMoreAndTrainersGoOn) {
  edit_ = [](ServerOptions* options) { options->reader_bytes = 2500; };
  Start({.trainers = 2});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  EXPECT_STATUS(Pull(kReader, 0, "w", 640).status(), kInvalidArgument, "the reply would have more than 2500 bytes");
  auto first = Call(Method::kPull, PullBytes(kReader, 0, 5, "w", 600));
  ASSERT_TRUE(first->has_value());
  const auto second = Call(Method::kPull, PullBytes(kReader, 0, 5, "w", 600));
  EXPECT_FALSE(second->has_value());
  absl::Status refused;
  std::vector<std::shared_ptr<Answer>> more;
  while (refused.ok() && more.size() < 20) {
    more.push_back(Call(Method::kPull, PullBytes(kReader, 0, 5, "b", 5)));
    if (more.back()->has_value()) refused = (*more.back())->status();
  }
  EXPECT_STATUS(refused, kResourceExhausted, "reader (reader:1) has pulls of ");
  EXPECT_TRUE(Pull(0, 0, "w", 640).ok());
  Pass(5.5, {0, 1, kReader});
  ASSERT_TRUE(second->has_value());
  EXPECT_FALSE(PulledOf(second)->header.ready());
  EXPECT_THAT(PulledOf(second)->header.waiting_for(), HasSubstr("reader (reader:1) itself, or other readers"));
  const auto third = Call(Method::kPull, PullBytes(kReader, 0, 5, "w", 600));
  first->reset();
  core_->Tick();
  ASSERT_TRUE(third->has_value());
  EXPECT_TRUE(PulledOf(third)->header.ready());
}

TEST_F(ServerReadersTest, AllReadersTogetherHaveTheRoomOfATrainerAlsoAfterTheirEnd) {
  unread_bytes_ = 6000;
  Start({.trainers = 2});
  JoinAll();
  std::vector<std::shared_ptr<Answer>> kept;
  for (int i = 0; i < 2; ++i) {
    ASSERT_NO_FATAL_FAILURE(Become(absl::StrCat("reader:", i)));
    kept.push_back(Call(Method::kPull, PullBytes(kReader, 0, 5, "w", 640)));
    ASSERT_TRUE(kept.back()->has_value());
    ASSERT_TRUE(Beat(kReader, [](v1::HeartbeatRequest& beat) { beat.set_leave(true); }).ok());
  }
  ASSERT_NO_FATAL_FAILURE(Become("reader:2"));
  const auto waiting = Call(Method::kPull, PullBytes(kReader, 0, 5, "w", 640));
  EXPECT_FALSE(waiting->has_value());
  EXPECT_TRUE(Pull(0, 0, "w", 640).ok());
  kept.clear();
  core_->Tick();
  EXPECT_TRUE(waiting->has_value());
}

TEST_F(ServerReadersTest, PlansThatAreNotReadAreNotSentWithoutEnd) {
  const size_t plan = HandMadeJob().Plan().ByteSizeLong();
  edit_ = [plan](ServerOptions* options) { options->reader_bytes = 3 * plan; };
  Start({});
  v1::JoinRequest request;
  request.mutable_caller()->set_trainer(kReader);
  request.set_reader(true);
  request.set_wire_version(kWireVersion);
  std::vector<std::shared_ptr<Answer>> unread;
  for (int i = 0; i < 4; ++i) unread.push_back(Call(Method::kJoin, request.SerializeAsString()));
  EXPECT_TRUE((*unread[2])->ok());
  EXPECT_STATUS((*unread[3])->status(), kResourceExhausted, "have answers to read before this one");
  unread.clear();
  EXPECT_TRUE(CallNow<v1::JoinReply>(Method::kJoin, request.SerializeAsString()).ok());
}

// The answer is sent while its reader still counts as reading: what comes meanwhile waits for it.
TEST_F(ServerReadersTest, AnUpdateWaitsForAReadAndFurtherReadsWaitForTheUpdate) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  ASSERT_TRUE(PushStep(0, 0, Gradients(0, 0), 1).ok());
  const std::string bytes = PullBytes(kReader, 0, 30, "b", 5);
  std::shared_ptr<Answer> second;
  bool answered = false;
  core_->Handle(Method::kPull, {Slice::Own(bytes)}, [&](const absl::StatusOr<Slices>& answer) {
    answered = answer.ok();
    EXPECT_TRUE(PushStep(1, 0, Gradients(1, 0), 1).ok());
    EXPECT_EQ(core_->Version(), 0);
    second = Call(Method::kPull, bytes);
    EXPECT_FALSE(second->has_value());
    // Trainers are not affected.
    EXPECT_TRUE(Beat(0).ok());
  });
  EXPECT_TRUE(answered);
  EXPECT_EQ(core_->Version(), 1);
  ASSERT_TRUE(second != nullptr && second->has_value());
  EXPECT_EQ(PulledOf(second)->header.version(), 1);
}

TEST_F(ServerReadersTest, ALoadWaitsForAReadAndFurtherReadsWaitForTheLoad) {
  for (const auto& [sync, starts] : {std::pair(true, false), std::pair(false, false), std::pair(true, true)}) {
    Start({.sync = sync});
    JoinAll();
    ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
    v1::ControlRequest load;
    *load.mutable_caller() = CallerOf(0);
    load.mutable_load_rows();
    // A plan that takes nothing.
    if (starts) load.mutable_start();
    const std::string bytes = PullBytes(kReader, 0, 30, "b", 5);
    std::shared_ptr<Answer> loaded, second;
    core_->Handle(Method::kPull, {Slice::Own(bytes)}, [&](const absl::StatusOr<Slices>&) {
      loaded = Call(Method::kControl, load.SerializeAsString());
      EXPECT_FALSE(loaded->has_value());
      second = Call(Method::kPull, bytes);
      EXPECT_FALSE(second->has_value());
      EXPECT_THAT(PulledOf(Call(Method::kPull, PullBytes(kReader, 0, 0, "b", 5)))->header.waiting_for(),
                  HasSubstr("values that server 0 (server:1) reads from files"));
    });
    ASSERT_TRUE(loaded != nullptr && loaded->has_value() && second->has_value());
    EXPECT_TRUE(PulledOf(second)->header.ready());
  }
}

// A call that blocks until its answer is there, from whichever thread it comes.
class BlockingAnswer {
 public:
  ReplyCallback Callback() {
    return [this](absl::StatusOr<Slices> answer) {
      MutexLock lock(&mu_);
      answer_ = std::move(answer);
      there_ = true;
      changed_.SignalAll();
    };
  }
  absl::StatusOr<Slices> Take() {
    MutexLock lock(&mu_);
    while (!there_) changed_.Wait(&mu_);
    return std::move(answer_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool there_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusOr<Slices> answer_ ABSL_GUARDED_BY(mu_);
};

struct Kind {
  std::string name;
  HandMadeJob job;
  std::function<void(v1::VarDesc*)> table = {};  // edits the table t
};

class ReadersBesideTrainingTest : public ServerReadersTest {
 protected:
  void SetUp() override { dir_ = absl::StrCat(::testing::TempDir(), "/readers_beside_training"); }

  // What a job has come to.
  struct Result {
    uint64_t values = 0, state = 0;
    int64_t rows = 0;
    bool operator==(const Result&) const = default;
  };
  using Versions = std::map<int64_t, std::string>;

  // Trains, with readers that pull all the time or without. `versions`: bytes of all values by version: set without
  // readers, and compared to what readers get with them. Null: not compared (async).
  Result Train(const Kind& kind, bool readers, Versions* versions) {
    core_.reset();
    std::filesystem::remove_all(dir_);
    edit_ = [&](ServerOptions* options) {
      for (v1::VarDesc& var : *options->main.mutable_blocks(0)->mutable_vars()) {
        if (var.name() == "t" && kind.table) kind.table(&var);
      }
    };
    Start(kind.job);
    JoinAll();
    std::atomic<bool> over = false;
    std::atomic<int64_t> reads = 0;
    std::vector<std::thread> threads;
    for (int r = 0; readers && r < kThreads; ++r) {
      EXPECT_NO_FATAL_FAILURE(Become(absl::StrCat("reader:", r)));
      threads.emplace_back([&, bytes = EverythingBytes(CallerOf(kReader), 0)] {
        while (!over) {
          BlockingAnswer answer;
          core_->Handle(Method::kPull, {Slice::Own(bytes)}, answer.Callback());
          Compare(answer.Take(), versions);
          ++reads;
        }
      });
    }
    const auto steps = [&](int trainer) {
      for (int64_t step = 0; step < kSteps; ++step) {
        EXPECT_TRUE(PushStep(trainer, step, Gradients(trainer, step), 8).ok());
        while (kind.job.sync && core_->Version() <= step) std::this_thread::yield();
      }
    };
    if (versions != nullptr && !readers) Remember(Call(Method::kPull, EverythingBytes(CallerOf(0), 0)), versions);
    if (kind.job.sync && readers) {
      std::vector<std::thread> trainers;
      for (int t = 0; t < kind.job.trainers; ++t) trainers.emplace_back(steps, t);
      for (std::thread& thread : trainers) thread.join();
    } else {
      // One order: in async the bits depend on it.
      for (int64_t step = 0; step < kSteps; ++step) {
        for (int t = 0; t < kind.job.trainers; ++t) {
          if (kind.job.lambda >= 0) {
            EXPECT_TRUE(Pull(t, 0, "w", 640).ok());
          }
          EXPECT_TRUE(PushStep(t, step, Gradients(t, step), 8).ok());
        }
        if (versions != nullptr && !readers) {
          Remember(Call(Method::kPull, EverythingBytes(CallerOf(0), step + 1)), versions);
        }
        // Readers get a turn between any two steps.
        const int64_t seen = reads;
        while (readers && reads < seen + 2) std::this_thread::yield();
      }
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(reads > 0, readers);
    const auto digest = Digest(0);
    EXPECT_TRUE(digest.ok()) << digest.status();
    return {digest->values(), digest->state(), RowsOf("t") + 1000 * RowsOf("u")};
  }

  void ExpectWholeVersions(const Kind& kind) {
    Versions versions;
    const Result alone = Train(kind, /*readers=*/false, &versions);
    EXPECT_EQ(versions.size(), kSteps + 1u) << kind.name;
    EXPECT_EQ(Train(kind, /*readers=*/true, &versions), alone) << kind.name;
  }
  void ExpectNoChange(const Kind& kind) {
    const Result alone = Train(kind, /*readers=*/false, nullptr);
    EXPECT_EQ(Train(kind, /*readers=*/true, nullptr), alone) << kind.name;
  }

 private:
  void Remember(const std::shared_ptr<Answer>& answer, Versions* versions) {
    const auto pulled = PulledOf(answer);
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    (*versions)[pulled->header.version()] = Bits(pulled->values);
  }
  static std::string Bits(const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  void Compare(absl::StatusOr<Slices> answer, const Versions* versions) {
    const auto pulled = PulledOf(std::make_shared<Answer>(std::move(answer)));
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    ASSERT_TRUE(pulled->header.ready());
    if (versions == nullptr) return;
    const auto expected = versions->find(pulled->header.version());
    ASSERT_TRUE(expected != versions->end()) << pulled->header.version();
    EXPECT_TRUE(Bits(pulled->values) == expected->second) << "version " << pulled->header.version();
  }
};

TEST_F(ReadersBesideTrainingTest, InSyncReadersGetWholeVersionsAndChangeNoBit) {
  ExpectWholeVersions({"plain", {.trainers = 2}});
  ExpectWholeVersions({"rows that come and go", {.trainers = 2}, [](v1::VarDesc* t) {
                         t->mutable_lifecycle()->set_admit_after(2);
                         t->mutable_lifecycle()->set_ttl_steps(3);
                         t->mutable_lifecycle()->set_tombstones(true);
                       }});
  ExpectWholeVersions({"rows in 16 bits", {.trainers = 2}, [](v1::VarDesc* t) { t->set_dtype(v1::FLOAT16); }});
  ExpectWholeVersions({"a limit that evicts", {.trainers = 2}, [](v1::VarDesc* t) {
                         t->set_capacity(64);
                         t->mutable_lifecycle()->set_when_full(v1::Lifecycle::EVICT_LEAST_RECENT);
                       }});
}

TEST_F(ReadersBesideTrainingTest, OutsideSyncReadersChangeNoBit) {
  ExpectNoChange({"plain", {.trainers = 2, .sync = false}});
  ExpectNoChange({"delay compensation", {.trainers = 2, .sync = false, .lambda = 0.5}});
  ExpectNoChange({"bounded staleness", {.trainers = 2, .sync = false, .staleness = 1}});
}

// Rows take effect in the order of their coming, so only their number is that of the job.
TEST_F(ReadersBesideTrainingTest, AsyncTablesAreReadWhileTheirRowsChange) {
  const Kind kind{"async tables", {.trainers = 2, .async_tables = true}};
  EXPECT_EQ(Train(kind, /*readers=*/true, nullptr).rows, Train(kind, /*readers=*/false, nullptr).rows);
}

TEST_F(ReadersBesideTrainingTest, RowsOnDiskAreReadAndNoBitChanges) {
#ifdef WEIR_TSAN
  GTEST_SKIP() << "ThreadSanitizer does not see the locks of RocksDB, which is not instrumented";
#endif
  const auto on_disk = [this](v1::VarDesc* t) {
    t->mutable_disk()->set_dir(dir_);
    t->mutable_disk()->set_memory_mb(0);
  };
  ExpectWholeVersions({"sync", {.trainers = 2}, on_disk});
  ExpectNoChange({"async, rows that come and go in 16 bits", {.trainers = 2, .sync = false}, [&](v1::VarDesc* t) {
                    on_disk(t);
                    t->mutable_lifecycle()->set_ttl_steps(5);
                    t->set_dtype(v1::BFLOAT16);
                  }});
}

TEST_F(ServerReadersTest, AReadMakesNoRowAndCountsNone) {
  edit_ = [](ServerOptions* options) {
    for (v1::VarDesc& var : *options->main.mutable_blocks(0)->mutable_vars()) {
      if (var.name() == "t") var.mutable_lifecycle()->set_admit_after(2);
    }
  };
  Start({.sync = false});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  const auto first = Pull(kReader, 0, "t", 2, {5, 6}, 4);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Pull(kReader, 0, "t", 2, {5, 6}, 4)->values, first->values);
  EXPECT_EQ(Pull(0, 0, "t", 2, {5, 6}, 4)->values, first->values);
  EXPECT_EQ(RowsOf("t"), 0);
  const std::vector<Item> push = {{.name = "t", .values = {1, 1, 1, 1}, .ids = {5}, .width = 4}};
  ASSERT_TRUE(PushStep(0, 0, push, 1).ok());
  ASSERT_TRUE(Pull(kReader, 0, "t", 2, {5, 6}, 4).ok());
  EXPECT_EQ(RowsOf("t"), 0) << "one step has had the id";
  ASSERT_TRUE(PushStep(0, 1, push, 1).ok());
  EXPECT_EQ(RowsOf("t"), 1);
}

}  // namespace
}  // namespace weir
