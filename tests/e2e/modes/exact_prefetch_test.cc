// distribute.prefetch_rows in sync on the real train loop: the bits are those without it, whatever changes rows between
// the pull ahead and its correction, over any cluster, and however late messages are.

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/base/clock.h"
#include "framework/base/counters.h"
#include "framework/base/mutex.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/faulty_transport.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/tapped_transport.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

const std::string kAhead = "distribute.prefetch_rows=true";

int64_t ProcessCount(const std::string& name) { return Counters::Process().Get(name, "rows")->value(); }

// What a run has learned and said.
struct Trained {
  InProcessResult result;
  std::vector<std::string> digests, evaluations;
  // Rows pulled ahead, and those of them that were corrected.
  int64_t ahead = 0, corrected = 0;
};

class ExactPrefetchTest : public SlotJobTest {
 protected:
  // Ahead of the version in every step, unless `measured`.
  static Trained Train(InProcessRun run, bool measured = false) {
    run.always_ahead = !measured;
    const int64_t ahead = ProcessCount("prefetch.ahead"), corrected = ProcessCount("prefetch.corrected");
    Trained trained{.result = Run(std::move(run))};
    trained.ahead = ProcessCount("prefetch.ahead") - ahead;
    trained.corrected = ProcessCount("prefetch.corrected") - corrected;
    trained.digests = trained.result.digests;
    for (const auto line : absl::StrSplit(trained.result.output, '\n')) {
      if (line.substr(0, 5) == "eval ") trained.evaluations.emplace_back(line);
    }
    return trained;
  }

  static std::vector<std::string> With(std::vector<std::string> overrides, const std::vector<std::string>& more) {
    overrides.insert(overrides.end(), more.begin(), more.end());
    return overrides;
  }

  // Batches with few of the ids, so that most of the next batch's are not in the present one.
  static std::vector<std::string> Sparse(const std::vector<std::string>& more) {
    return With({"data.batch_size=8", "train.lanes=4", "train.max_steps=120", "train.digest_every_steps=10"}, more);
  }

  static void ExpectEqual(const Trained& with, const Trained& without, const std::string& what) {
    ASSERT_FALSE(without.digests.empty()) << what;
    EXPECT_EQ(with.digests, without.digests) << what;
    EXPECT_EQ(with.evaluations, without.evaluations) << what;
    EXPECT_EQ(with.result.summary.steps, without.result.summary.steps) << what;
    EXPECT_EQ(with.result.summary.examples, without.result.summary.examples) << what;
    EXPECT_EQ(with.result.summary.skipped_steps, without.result.summary.skipped_steps) << what;
    EXPECT_EQ(with.result.summary.left_out, without.result.summary.left_out) << what;
  }
};

struct Bits {
  const char* name;
  std::vector<std::string> overrides;
};
void PrintTo(const Bits& bits, std::ostream* out) { *out << bits.name; }

class ExactPrefetchBitsTest : public ExactPrefetchTest, public ::testing::WithParamInterface<Bits> {};

TEST_P(ExactPrefetchBitsTest, AreThoseWithout) {
  const std::vector<std::string> overrides = Sparse(GetParam().overrides);
  const Trained without = Train({.overrides = overrides});
  EXPECT_EQ(without.ahead, 0);
  struct Cluster {
    int servers, trainers;
  };
  for (const Cluster& cluster : {Cluster{1, 1}, Cluster{2, 2}, Cluster{3, 4}}) {
    const std::string what = absl::StrCat(cluster.servers, " servers, ", cluster.trainers, " trainers");
    const Trained with = Train({.overrides = With(overrides, {kAhead}),
                                .servers = cluster.servers,
                                .trainers = cluster.trainers,
                                .threads = 2});
    ExpectEqual(with, without, what);
    // How many depends on time: a pull that starts when its version is there already (AheadRows::PullRows) is not
    // ahead. Without the overlap there are none.
    EXPECT_GT(with.ahead, 20) << what;
    // One trainer changes only the rows that it leaves out, and those that a border removes.
    if (cluster.trainers > 1) {
      EXPECT_GT(with.corrected, 100) << what;
    }
    EXPECT_LE(with.corrected, with.ahead) << what;
    // Where few came ahead, on a busy machine, all of them may have changed.
    if (with.ahead > 1000) {
      EXPECT_LT(with.corrected, with.ahead) << what;
    }
  }
  // By turns ahead of the version and waiting for it, as trainer/loop/overlap_switch.h has it.
  const Trained measured =
      Train({.overrides = With(overrides, {kAhead}), .servers = 2, .trainers = 2, .threads = 2}, /*measured=*/true);
  ExpectEqual(measured, without, "measured");
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, ExactPrefetchBitsTest,
    ::testing::Values(
        Bits{"Plain", {}}, Bits{"Evaluations", {"train.eval_every_steps=25"}},
        Bits{"Accumulated", {"train.accumulate_steps=3", "train.max_steps=40"}},
        Bits{"Norms", {"optimizer.clip.by_global_norm.max_norm=0.05"}},
        Bits{"TableNorms", {"table[0].optimizer.clip.by_norm.max_norm=0.01"}},
        Bits{"Expiry", {"table[0].lifecycle={ttl_steps: 3}", "table[1].lifecycle={ttl_steps: 2}"}},
        Bits{"Admission", {"table[0].lifecycle={admit_after: 3 ttl_steps: 9}"}},
        Bits{"Fade", {"table[0].lifecycle={click: \"label\" decay: 0.5 decay_every_steps: 1 min_score: 0.08}"}},
        Bits{"Eviction",
             {"table[0].dict_size=40", "table[0].lifecycle={when_full: EVICT_LEAST_RECENT}",
              "table[0].logical_shards=4"}},
        Bits{"Storage16", {"table[0].storage=FLOAT16", "table[1].storage=BFLOAT16"}},
        Bits{"Wire16", {"distribute.wire={pull: WIRE_FLOAT16}", "distribute.reproducible=false"}},
        Bits{"FetchedRows", {"table[1].is_distributed=false", "table[1].dict_size=2000", "table[1].fetch=ROWS"}},
        Bits{"FetchedRowsAndNorms",
             {"table[1].is_distributed=false", "table[1].dict_size=2000", "table[1].fetch=ROWS",
              "optimizer.clip.by_global_norm.max_norm=0.05", "table[1].optimizer.clip.by_norm.max_norm=0.01"}},
        Bits{"BySteps", {"optimizer.schedule={cosine {decay_steps: 100}}"}},
        Bits{"SharedBuffers", {"distribute.memory_optimize=true"}}),
    [](const ::testing::TestParamInfo<Bits>& info) { return info.param.name; });

// Rows on disk: as tests/e2e/checkpoints/rows_on_disk_test.cc, servers keep a row a stripe in memory.
TEST_F(ExactPrefetchTest, RowsOnDiskHaveTheBitsWithout) {
  const std::vector<std::string> overrides =
      Sparse({"table[0].lifecycle={ttl_steps: 4}", "table[0].logical_shards=64", "table[1].logical_shards=64"});
  const Trained without = Train({.overrides = overrides});
  const Trained with = Train({.overrides = With(overrides, {kAhead, "table[0].disk={dir: \"rows\" memory_mb: 64}"}),
                              .servers = 2,
                              .trainers = 2,
                              .edit = [](int, Programs* programs) {
                                for (v1::VarDesc& var : *programs->main.mutable_blocks(0)->mutable_vars()) {
                                  if (var.has_disk()) var.mutable_disk()->set_memory_mb(0);
                                }
                              }});
  ExpectEqual(with, without, "disk");
  EXPECT_GT(Count(with.result, "table.vectors.read_from_disk"), 100);
  EXPECT_GT(Count(with.result, "table.vectors.written_to_disk"), 100);
  EXPECT_GT(with.corrected, 100);
}

TEST_F(ExactPrefetchTest, SkippedStepsChangeNoRow) {
  {
    std::ofstream out(Path("skips.txt"));
    for (int64_t i = 0; i < 2000; ++i) {
      std::vector<std::string> words = absl::StrSplit(SlotLine(i), ' ');
      if (i % 97 == 50) words[3] = "3e38";  // whose square is infinite
      for (size_t w = 0; w < words.size(); ++w) out << (w > 0 ? " " : "") << words[w];
      out << "\n";
    }
  }
  const std::string job =
      absl::StrReplaceAll(kSlotJob, {{"  layer { name: \"input\" concat { input: \"fields\" input: \"x\" } }",
                                      "  layer { name: \"squared\" square { input: \"x\" } }\n"
                                      "  layer { name: \"input\" concat { input: \"fields\" input: \"squared\" } }"}});
  const std::vector<std::string> overrides =
      Sparse({"data.train.files=[\"skips.txt\"]", "train.nan_policy=SKIP_STEP", "table[0].lifecycle={ttl_steps: 3}"});
  const Trained without = Train({.job_text = job, .overrides = overrides});
  EXPECT_GT(without.result.summary.skipped_steps, 5);
  EXPECT_LT(without.result.summary.skipped_steps, 60);
  ExpectEqual(
      Train({.job_text = job, .overrides = With(overrides, {kAhead}), .servers = 2, .trainers = 2, .threads = 2}),
      without, "skips");
}

// All examples, to the last step with fewer than the others; batches are read ahead of the end.
TEST_F(ExactPrefetchTest, TheEndOfTheDataIsThatWithout) {
  const std::vector<std::string> overrides = {"train.lanes=4", "train.epochs=2", "data.batch_size=36",
                                              "train.digest_every_steps=7"};
  const Trained without = Train({.overrides = overrides, .servers = 2, .trainers = 2});
  ExpectEqual(Train({.overrides = With(overrides, {kAhead}), .servers = 2, .trainers = 2}), without, "two trainers");
  ExpectEqual(Train({.overrides = With(overrides, {kAhead}), .servers = 1, .trainers = 3}), without, "three trainers");
  ExpectEqual(Train({.overrides = With(overrides, {kAhead}), .servers = 2, .trainers = 2}, /*measured=*/true), without,
              "measured");
}

TEST_F(ExactPrefetchTest, AResumedRunGoesOnAsTheUndisturbedOne) {
  const std::vector<std::string> overrides =
      Sparse({"table[0].lifecycle={ttl_steps: 5}", "checkpoint.every_steps=7", "train.eval_every_steps=20"});
  const Trained whole = Train({.overrides = With(overrides, {CheckpointIn("whole")})});
  const std::vector<std::string> ahead = With(overrides, {kAhead, CheckpointIn("resumed")});
  Train({.overrides = With(ahead, {"train.max_steps=50"}), .servers = 2, .trainers = 2});
  const Trained rest = Train({.overrides = ahead, .servers = 3, .trainers = 2, .resume = true});
  ASSERT_FALSE(whole.digests.empty());
  ASSERT_FALSE(rest.digests.empty());
  EXPECT_EQ(rest.digests.back(), whole.digests.back());
  ASSERT_FALSE(rest.evaluations.empty());
  EXPECT_EQ(rest.evaluations.back(), whole.evaluations.back());
}

TEST_F(ExactPrefetchTest, TrainersThatAllReduceHaveTheBitsWithout) {
  const std::vector<std::string> overrides =
      Sparse({"table[0].lifecycle={ttl_steps: 3}", "train.lanes=8", "optimizer.clip.by_global_norm.max_norm=0.05"});
  const Trained without = Train({.overrides = overrides});
  const std::vector<std::string> reduced = With(overrides, {kAhead, "distribute.dense=ALL_REDUCE"});
  for (const auto& [servers, trainers] : {std::pair{0, 2}, std::pair{0, 3}, std::pair{2, 2}}) {
    const Trained with = Train({.overrides = reduced, .servers = servers, .trainers = trainers, .threads = 2});
    ExpectEqual(with, without, absl::StrCat(servers, " servers, ", trainers, " trainers"));
    EXPECT_GT(with.corrected, 100);
  }
  // Rows of a parameter that every trainer holds are read when their step has come.
  const std::vector<std::string> fetched = {"table[1].is_distributed=false", "table[1].dict_size=2000",
                                            "table[1].fetch=ROWS"};
  ExpectEqual(Train({.overrides = With(reduced, fetched), .servers = 0, .trainers = 2}),
              Train({.overrides = With(overrides, fetched)}), "fetched rows of a replica");
}

TEST_F(ExactPrefetchTest, LateLostAndRepeatedMessagesChangeNoBit) {
  // A step with norms waits for its pushes before anything else, one without does not.
  for (const bool norms : {true, false}) {
    const std::vector<std::string> overrides =
        Sparse({"table[0].lifecycle={ttl_steps: 3}", "train.max_steps=60",
                norms ? "optimizer.clip.by_global_norm.max_norm=0.05" : "train.threads=1"});
    const Trained without = Train({.overrides = overrides});
    for (const bool measured : {false, true}) {
      FaultCounters counters;
      const Trained with = Train({.overrides = With(overrides, {kAhead, "deadlines.rpc_s=0.1", "deadlines.lease_s=20"}),
                                  .servers = 3,
                                  .trainers = 3,
                                  .threads = 2,
                                  .between = NetworksWith({.seed = measured ? 1u : 2u,
                                                           .drop_request = 0.003,
                                                           .drop_reply = 0.003,
                                                           .duplicate = 0.1,
                                                           .delay = 0.3,
                                                           .max_delay = absl::Milliseconds(4)},
                                                          &counters)},
                                 measured);
      ExpectEqual(with, without, absl::StrCat(norms ? "norms" : "no norms", measured ? ", measured" : ""));
      EXPECT_GT(counters.delays, 100);
      EXPECT_GT(counters.duplicates, 30);
      EXPECT_GT(counters.dropped_requests + counters.dropped_replies, 3);
    }
  }
}

// Sends another pull in the place of this one, with the same ids.
void Replace(const v1::PullRequest& pull, TappedCall* call) {
  call->request = EncodeFrame(pull.SerializeAsString(), DecodeFrame(call->request)->payload);
}

// A server may forget pulls, for want of memory: then their rows are pulled again.
TEST_F(ExactPrefetchTest, ForgottenPullsAreMadeAgain) {
  const std::vector<std::string> overrides = Sparse({"table[0].lifecycle={ttl_steps: 3}"});
  const Trained without = Train({.overrides = overrides});
  const Trained with = Train(
      {.overrides = With(overrides, {kAhead}), .servers = 2, .trainers = 2, .between = [](int, Transport* servers) {
         return Tapped(servers, [](TappedCall call) {
           auto pull = call.As<v1::PullRequest>();
           // Every third is remembered under another number.
           if (pull && pull->ahead_call() % 3 == 0) {
             pull->set_ahead_call(pull->ahead_call() + 1000000);
             Replace(*pull, &call);
           }
           call.GoOn();
         });
       }});
  ExpectEqual(with, without, "forgotten");
  EXPECT_GT(with.corrected, with.ahead / 4);
}

// Answers pulls as if no row that was pulled ahead had changed.
class Uncorrected {
 public:
  void operator()(TappedCall call) {
    auto pull = call.As<v1::PullRequest>();
    if (!pull) return call.GoOn();
    std::vector<int> items;
    {
      MutexLock lock(&mu_);
      if (pull->has_ahead_call()) items_[pull->ahead_call()] = pull->items_size();
      for (const int64_t corrected : pull->corrects()) items.push_back(items_[corrected]);
    }
    pull->clear_corrects();
    Replace(*pull, &call);
    call.OnAnswer([items](absl::StatusOr<Slices>& answer) {
      const absl::StatusOr<Frame> got = answer.ok() ? DecodeFrame(*answer) : answer.status();
      v1::PullReply reply;
      if (!got.ok() || !reply.ParseFromString(got->header)) return;
      for (const int n : items) {
        v1::Correction* const correction = reply.add_corrections();
        for (int i = 0; i < n; ++i) correction->add_rows(0);
      }
      answer = EncodeFrame(reply.SerializeAsString(), got->payload);
    });
    call.GoOn();
  }

 private:
  Mutex mu_;
  std::map<int64_t, int> items_ ABSL_GUARDED_BY(mu_);
};

// The bits above would say nothing if rows that are not corrected were right all the same.
TEST_F(ExactPrefetchTest, RowsThatAreNotCorrectedHaveOtherBits) {
  const auto bits = [](const std::vector<std::string>& overrides, int trainers) {
    const auto between = [](int, Transport* servers) {
      return Tapped(servers, [tap = std::make_shared<Uncorrected>()](TappedCall call) { (*tap)(std::move(call)); });
    };
    return Train({.overrides = With(overrides, {kAhead}), .trainers = trainers, .between = between}).digests;
  };
  const std::vector<std::string> plain = Sparse({}), expiring = Sparse({"table[0].lifecycle={ttl_steps: 3}"});
  EXPECT_NE(bits(expiring, 1), Train({.overrides = expiring}).digests);
  EXPECT_NE(bits(plain, 2), Train({.overrides = plain}).digests);
}

TEST_F(ExactPrefetchTest, IsRefusedWhereNoBorderCorrects) {
  const absl::Status status =
      TryRun({.overrides = {kAhead, "distribute.async_tables=true", "distribute.reproducible=false"}}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("distribute.prefetch_rows contradicts async_tables"));
}

}  // namespace
}  // namespace weir
