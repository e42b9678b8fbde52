// Compares the prediction of `--print=explain --sample=N` with the counters of a real run: bytes and messages agree
// within 2 %, memory of a trainer's variables within 10 %.

#include "transpiler/explain/explain.h"
#include "tests/testing/tapped_transport.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/counters.h"
#include "framework/base/thread_pool.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/jobs/history_job.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/train_in_process.h"
#include "trainer/verify/job_steps.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

constexpr int64_t kSteps = 30;

struct Cluster {
  int servers, trainers;
  std::vector<std::string> settings;
  std::string job = kClickJob;
  // Servers have nothing, so a request has 35 bytes. A few of them depend on chance: the session is a random number
  // that takes 10 bytes or 9, seldom fewer.
  bool small_calls = false;
};

// Puts a batch_norm behind the tower of the slot job.
std::string WithBatchNorm(std::string job) {
  const std::string out = "layer { name: \"out\" fc { input: \"deep\" size: 1 } }";
  return job.replace(job.find(out), out.size(),
                     "layer { name: \"normed\" batch_norm { input: \"deep\" activation: RELU } }\n"
                     "  layer { name: \"out\" fc { input: \"normed\" size: 1 } }");
}

// An evaluation pulls rows too, and is no part of a step.
std::string WithoutEvaluation(std::string job) {
  const std::string eval = "  eval { files: \"eval.txt\" }\n";
  return job.erase(job.find(eval), eval.size());
}

class ExplainRunTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/explain";
    std::filesystem::create_directories(dir_);
    WriteClickData(dir_);
    WriteSlotData(dir_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir_); }

  static std::vector<std::string> Overrides(const Cluster& cluster) {
    std::vector<std::string> overrides = cluster.settings;
    overrides.push_back(absl::StrCat("train.max_steps=", kSteps));
    overrides.push_back("train.digest_every_steps=0");
    return overrides;
  }

  static v1::Explanation Predicted(const Cluster& cluster) {
    std::vector<std::string> overrides = Overrides(cluster);
    overrides.push_back(absl::StrCat("distribute.servers=", cluster.servers));
    overrides.push_back(absl::StrCat("distribute.trainers=", cluster.trainers));
    const auto job = ParseJob(cluster.job, dir_ + "/job.textproto", overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    const auto explainer = Explainer::Create(*job);
    EXPECT_TRUE(explainer.ok()) << explainer.status();
    ThreadPool pool("test", 0);
    const auto steps = JobSteps::OfData(*job, (*explainer)->trainer().main, &pool);
    EXPECT_TRUE(steps.ok()) << steps.status();
    std::vector<std::vector<LaneBatch>> batches(static_cast<size_t>(job->config.train().accumulate_steps()));
    for (int64_t step = 0; step < kSteps; ++step) {
      StepInput input;
      for (std::vector<LaneBatch>& batch : batches) {
        const absl::Status next = (*steps)->Next(&batch);
        EXPECT_TRUE(next.ok()) << next;
        input.push_back(BatchInputOf(batch, (*steps)->columns()));
      }
      (*explainer)->AddStep(input);
    }
    const auto explanation = (*explainer)->Finish();
    EXPECT_TRUE(explanation.ok()) << explanation.status();
    return *explanation;
  }

  // Returns the increase of every counter of the process during a run.
  static std::map<std::string, double> Counted(const Cluster& cluster) {
    std::map<std::string, double> counted;
    for (const Counters::Entry& entry : Counters::Process().Snapshot())
      counted[entry.name] -= static_cast<double>(entry.value);
    const auto result = TrainInProcess({.job_text = cluster.job,
                                        .directory = dir_,
                                        .overrides = Overrides(cluster),
                                        .servers = cluster.servers,
                                        .trainers = cluster.trainers,
                                        .between = [](int, Transport* transport) -> std::unique_ptr<Transport> {
                                          return Tapped(transport, [](TappedCall call) { call.GoOn(); });
                                        }});
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->summary.steps, kSteps);
    for (const Counters::Entry& entry : Counters::Process().Snapshot())
      counted[entry.name] += static_cast<double>(entry.value);
    return counted;
  }

  static void ExpectWithin(double predicted, double counted, double share, const std::string& what) {
    ::testing::Test::RecordProperty(what, absl::StrCat(predicted, " predicted, ", counted, " counted"));
    EXPECT_GT(counted, 0) << what;
    EXPECT_LE(std::abs(predicted - counted), share * counted)
        << what << ": " << predicted << " predicted, " << counted << " counted";
    std::printf("%-40s %14.0f predicted %14.0f counted %+.2f %%\n", what.c_str(), predicted, counted,
                100 * (predicted / counted - 1));
  }

  // Compares what trainers exchange, and its parts with the formula.
  static void CheckExchange(const v1::ExplainedTrainer& trainer, const std::string& who,
                            const std::function<double(const char* what)>& counter) {
    const double n = trainer.count(), steps = kSteps * n;
    const v1::TrainerExchange& exchange = trainer.exchange();
    const v1::Flow &total = exchange.total(), &check = exchange.check();
    ExpectWithin(steps * total.messages() + n * check.messages(), counter("messages"), 0.02, who + "exchange messages");
    ExpectWithin(steps * total.bytes_out() + n * check.bytes_out(), counter("bytes_out"), 0.02,
                 who + "exchange bytes out");
    ExpectWithin(steps * total.bytes_in() + n * check.bytes_in(), counter("bytes_in"), 0.02, who + "exchange bytes in");
    const double control = exchange.headers().bytes_out() + exchange.rows().bytes_out() + exchange.norms().bytes_out();
    ExpectWithin(steps * (exchange.direct_bytes() + control) + n * check.bytes_out(), counter("bytes_out"), 0.02,
                 who + "(k+1)(p-1)/p V, k " + std::to_string(exchange.nodes()));
  }

  // Compares the exchange of each trainer where they share the updates out, and of a group of trainers the formula of
  // the one whose figures it has.
  static void CheckShares(const v1::Explanation& e, const std::string& who,
                          const std::function<double(int trainer, const char* what)>& counter) {
    const v1::Flow& check = e.trainer(0).exchange().check();
    ASSERT_EQ(e.all_reduced().share_size(), e.trainers());
    for (const v1::UpdateShare& share : e.all_reduced().share()) {
      const int t = share.trainer();
      const std::string name = absl::StrCat(who, "share of trainer ", t, " ");
      const v1::Flow &step = share.step(), &gather = share.gather();
      ExpectWithin(kSteps * step.messages() + check.messages() + gather.messages(), counter(t, "messages"), 0.02,
                   name + "messages");
      ExpectWithin(kSteps * step.bytes_out() + check.bytes_out() + gather.bytes_out(), counter(t, "bytes_out"), 0.02,
                   name + "bytes out");
      ExpectWithin(kSteps * step.bytes_in() + check.bytes_in() + gather.bytes_in(), counter(t, "bytes_in"), 0.02,
                   name + "bytes in");
    }
    for (const v1::ExplainedTrainer& group : e.trainer()) {
      const v1::TrainerExchange& exchange = group.exchange();
      const v1::UpdateShare& share = e.all_reduced().share(exchange.trainer());
      EXPECT_EQ(exchange.total().bytes_out(), share.step().bytes_out());
      EXPECT_EQ(exchange.total().bytes_in(), share.step().bytes_in());
      for (int t = group.first(); t < group.first() + group.count(); ++t) {
        EXPECT_LE(e.all_reduced().share(t).step().bytes_out(), share.step().bytes_out()) << t;
      }
      const double control = exchange.headers().bytes_out() + exchange.rows().bytes_out() +
                             exchange.updated_rows().bytes_out() + exchange.norms().bytes_out();
      ExpectWithin(kSteps * (exchange.direct_bytes() + control) + check.bytes_out() + share.gather().bytes_out(),
                   counter(exchange.trainer(), "bytes_out"), 0.02,
                   who + "k(V-S)+(p-1)S, k " + std::to_string(exchange.nodes()));
    }
  }

  static void Check(const Cluster& cluster) {
    const v1::Explanation e = Predicted(cluster);
    std::map<std::string, double> counted = Counted(cluster);
    const double of_calls = cluster.small_calls ? 0.15 : 0.02;
    const auto of = [&](const std::string& role, int first, int count, const std::vector<std::string>& methods,
                        const char* what) {
      double sum = 0;
      for (int i = first; i < first + count; ++i) {
        for (const std::string& method : methods) sum += counted[absl::StrCat(role, ".", i, ".", method, ".", what)];
      }
      return sum;
    };
    if (e.has_all_reduced() && !e.all_reduced().share().empty()) {
      CheckShares(e, absl::StrCat(cluster.servers, "x", cluster.trainers, " "),
                  [&](int trainer, const char* what) { return of("trainer", trainer, 1, {"collective"}, what); });
    }
    for (const v1::ExplainedTrainer& trainer : e.trainer()) {
      const double n = trainer.count(), steps = kSteps * n;
      const std::string who = absl::StrCat(cluster.servers, "x", cluster.trainers, " trainer ", trainer.first(), " ");
      const v1::Flow &push = trainer.step().push(), &rows = trainer.step().pull_rows(),
                     &blocks = trainer.step().pull_blocks(), &startup = trainer.startup();
      const auto counter = [&](const char* method, const char* what) {
        return of("trainer", trainer.first(), trainer.count(), {method}, what);
      };
      ExpectWithin(steps * push.messages(), counter("push", "messages"), 0.02, who + "push messages");
      ExpectWithin(steps * push.bytes_out(), counter("push", "bytes_out"), of_calls, who + "push bytes out");
      ExpectWithin(steps * push.bytes_in(), counter("push", "bytes_in"), 0.02, who + "push bytes in");
      ExpectWithin(steps * (rows.messages() + blocks.messages()) + n * startup.messages(), counter("pull", "messages"),
                   0.02, who + "pull messages");
      ExpectWithin(steps * (rows.bytes_out() + blocks.bytes_out()) + n * startup.bytes_out(),
                   counter("pull", "bytes_out"), of_calls, who + "pull bytes out");
      ExpectWithin(steps * (rows.bytes_in() + blocks.bytes_in()) + n * startup.bytes_in(), counter("pull", "bytes_in"),
                   0.02, who + "pull bytes in");
      ExpectWithin(static_cast<double>(trainer.memory().total()),
                   counted[absl::StrCat("trainer.", trainer.first(), ".variables.bytes")], 0.10, who + "variables");
      if (e.has_all_reduced() && e.all_reduced().share().empty()) {
        CheckExchange(trainer, who, [&](const char* what) { return counter("collective", what); });
      }
    }
    if (e.has_norms()) {
      const std::string who = absl::StrCat(cluster.servers, "x", cluster.trainers, " norms ");
      const auto counter = [&](const char* what) { return of("trainer", 0, 1, {"norms"}, what); };
      ExpectWithin(kSteps * e.norms().messages(), counter("messages"), 0.02, who + "messages");
      ExpectWithin(kSteps * e.norms().bytes_out(), counter("bytes_out"), 0.02, who + "bytes out");
      ExpectWithin(kSteps * e.norms().bytes_in(), counter("bytes_in"), 0.02, who + "bytes in");
    }
    // A server that is inside a trainer counts that trainer's calls too.
    if (cluster.servers == 0) return;
    for (const v1::ExplainedServer& server : e.server()) {
      const std::string who = absl::StrCat(cluster.servers, "x", cluster.trainers, " server ", server.index(), " ");
      const v1::Flow& total = server.step().total();
      const double startup = static_cast<double>(cluster.trainers) / kSteps;
      const auto counter = [&](const char* what) { return of("server", server.index(), 1, {"push", "pull"}, what); };
      // The parameters before the first step come once more than in a step.
      const double more = 1 + startup / cluster.trainers;
      const v1::Flow& blocks = server.step().pull_blocks();
      ExpectWithin(kSteps * (total.messages() + blocks.messages() * (more - 1)), counter("messages"), 0.02,
                   who + "messages");
      ExpectWithin(kSteps * (total.bytes_out() + blocks.bytes_out() * (more - 1)), counter("bytes_in"), of_calls,
                   who + "bytes in");
      ExpectWithin(kSteps * (total.bytes_in() + blocks.bytes_in() * (more - 1)), counter("bytes_out"), 0.02,
                   who + "bytes out");
    }
  }

  static std::string dir_;
};
std::string ExplainRunTest::dir_;

TEST_F(ExplainRunTest, OneServerAndOneTrainer) { Check({1, 1, {}}); }
TEST_F(ExplainRunTest, TrainersWithSeveralNodesOfTheLaneTree) { Check({2, 3, {}}); }
TEST_F(ExplainRunTest, SharedBuffers) { Check({2, 2, {"distribute.memory_optimize=true"}}); }
TEST_F(ExplainRunTest, FewerLanesAndMoreExamples) { Check({3, 1, {"train.lanes=4", "data.batch_size=128"}}); }
TEST_F(ExplainRunTest, AParameterWhoseGradientComesAsRows) {
  Check({2, 2, {"table[1].is_distributed=false", "table[1].dict_size=200"}, WithoutEvaluation(kSlotJob)});
}
TEST_F(ExplainRunTest, SequencesOfIds) {
  // Its files have names that others have, too.
  const std::string others = std::exchange(dir_, dir_ + "/history");
  std::filesystem::create_directories(dir_);
  WriteHistoryData(dir_);
  Check({2, 2, {}, WithoutEvaluation(kHistoryJob)});
  dir_ = others;
}
TEST_F(ExplainRunTest, NormsOfAGroup) { Check({2, 2, {"optimizer.clip.by_global_norm.max_norm=0.5"}}); }
TEST_F(ExplainRunTest, ServersInsideTrainers) { Check({0, 3, {"optimizer.clip.by_global_norm.max_norm=0.5"}}); }
TEST_F(ExplainRunTest, TrainersThatAddGradientsAmongThemselves) {
  for (const char* lanes : {"train.lanes=8", "train.lanes=64"}) {
    for (int trainers = 2; trainers <= 8; ++trainers) {
      Check({1, trainers, {"distribute.dense=ALL_REDUCE", lanes}});
    }
  }
}
TEST_F(ExplainRunTest, TrainersThatAddGradientsAndHaveTheRows) {
  Check({0, 3, {"distribute.dense=ALL_REDUCE", "optimizer.clip.by_global_norm.max_norm=0.5"}});
}
TEST_F(ExplainRunTest, RowsThatTrainersExchange) {
  Check({1,
         3,
         {"distribute.dense=ALL_REDUCE", "table[1].is_distributed=false", "table[1].dict_size=200"},
         WithoutEvaluation(kSlotJob)});
}
TEST_F(ExplainRunTest, NormsOverWhatTrainersAndServersHold) {
  std::string text = kClickJob;
  const std::string own = "\n  optimizer { adagrad { learning_rate: 0.05 } } }";
  text.replace(text.find(own), own.size(), " }");
  for (const int servers : {1, 2, 0}) {
    Check({servers, 3, {"distribute.dense=ALL_REDUCE", "optimizer.clip.by_global_norm.max_norm=0.5"}, text});
  }
}
TEST_F(ExplainRunTest, TrainersThatShareTheUpdatesOut) {
  for (const char* lanes : {"train.lanes=8", "train.lanes=64"}) {
    for (int trainers = 2; trainers <= 8; ++trainers) {
      Check({1, trainers, {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED", lanes}});
    }
  }
}
TEST_F(ExplainRunTest, SharedOutUpdatesWithRowsOnTheTrainersAndAClip) {
  Check({0,
         3,
         {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED", "optimizer.clip.by_global_norm.max_norm=0.5"}});
}
TEST_F(ExplainRunTest, RowsOfSharedOutUpdates) {
  for (const int trainers : {2, 3, 4}) {
    Check({1,
           trainers,
           {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED", "table[0].is_distributed=false",
            "table[0].dict_size=4000"},
           WithoutEvaluation(kSlotJob)});
  }
}
TEST_F(ExplainRunTest, SharedOutUpdatesWithNothingOnServers) {
  // Rows of 4000 x 4 are in a block of each trainer, or without slices in one.
  for (const char* slices : {"distribute.slice_var_up=true", "distribute.slice_var_up=false"}) {
    for (const int trainers : {2, 3, 4}) {
      Check({1,
             trainers,
             {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED", "table[0].is_distributed=false",
              "table[0].dict_size=4000", "table[1].is_distributed=false", "table[1].dict_size=200", slices},
             WithoutEvaluation(kSlotJob),
             /*small_calls=*/true});
    }
  }
}
TEST_F(ExplainRunTest, SharedOutUpdatesWithBatchNorm) {
  for (const int servers : {0, 2}) {
    Check({servers,
           3,
           {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED"},
           WithBatchNorm(WithoutEvaluation(kSlotJob))});
  }
}
TEST_F(ExplainRunTest, NormsOverSharesAndWhatServersHold) {
  std::string text = kClickJob;
  const std::string own = "\n  optimizer { adagrad { learning_rate: 0.05 } } }";
  text.replace(text.find(own), own.size(), " }");
  for (const int servers : {1, 2, 0}) {
    Check({servers,
           3,
           {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED", "optimizer.clip.by_global_norm.max_norm=0.5"},
           text});
  }
}
TEST_F(ExplainRunTest, AveragesOfReplicas) {
  // 30 steps: an average after 5, 10, ...
  Check({2,
         3,
         {"distribute.dense=ALL_REDUCE", "distribute.local_sgd={every_steps: 5}", "distribute.reproducible=false"}});
}
TEST_F(ExplainRunTest, SeveralBatchesAStep) { Check({2, 2, {"train.accumulate_steps=3"}}); }
TEST_F(ExplainRunTest, AsyncWithRowsAhead) {
  Check({2, 1, {"distribute.sync=false", "distribute.prefetch_rows=true"}});
}
TEST_F(ExplainRunTest, Async) { Check({2, 1, {"distribute.sync=false"}}); }

}  // namespace
}  // namespace weir
