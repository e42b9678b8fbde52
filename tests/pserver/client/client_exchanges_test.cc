// Bytes that trainers give each other: exchanges, posts, streams, residuals, contributions.
#include "pserver/client/client.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/pserver/client/client_cluster.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

TEST(ClientTest, ExchangesOfAnySizeGiveEveryoneEverything) {
  const HandMadeJob job{.trainers = 3};
  auto cluster = MakeCluster(OptionsFor(job));
  const std::string large(size_t{70} << 20, 'x');
  const absl::Status status = cluster->RunTrainers([&](int t) -> absl::Status {
    Client& client = cluster->client(t);
    RETURN_IF_ERROR(client.Join());
    ASSIGN_OR_RETURN(const std::vector<std::string> small, client.board().Exchange("a", absl::StrCat("of ", t)));
    EXPECT_THAT(small, ElementsAre("of 0", "of 1", "of 2"));
    ASSIGN_OR_RETURN(const std::vector<std::string> sizes, client.board().Exchange("b", t == 1 ? large : ""));
    EXPECT_EQ(sizes[0], "");
    EXPECT_TRUE(sizes[1] == large);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ClientTest, PostsOfAnySizeAreReadAsTheyAre) {
  const HandMadeJob job{.trainers = 3, .sync = false};
  auto cluster = MakeCluster(OptionsFor(job));
  for (int t = 0; t < 3; ++t) ASSERT_TRUE(cluster->client(t).Join().ok());
  // Three chunks with different contents.
  std::string large(size_t{70} << 20, 'x');
  for (size_t i = 0; i < large.size(); i += 1 << 20) large[i] = static_cast<char>(i >> 20);
  ASSERT_TRUE(cluster->client(1).board().Post("k", "small", 0).ok());
  ASSERT_TRUE(cluster->client(2).board().Post("k", "of 2", 5).ok());
  const auto posted = [&](int t) { return *cluster->client(0).board().Posted("k", t); };
  EXPECT_THAT((std::vector<std::string>{posted(0), posted(1), posted(2)}), ElementsAre("", "small", "of 2"));
  ASSERT_TRUE(cluster->client(1).board().Post("k", large, 20).ok());
  EXPECT_TRUE(posted(1) == large);
  EXPECT_EQ(posted(2), "of 2");
}

TEST(ClientTest, AStreamOfAnySizeArrivesWhole) {
  const HandMadeJob job{.trainers = 2};
  auto cluster = MakeCluster(OptionsFor(job));
  // One stream has more chunks than may wait, one ends exactly at a chunk, one is empty.
  std::string large(5 * kStreamChunk, 'x');
  for (size_t i = 0; i < large.size(); i += 1 << 16) large[i] = static_cast<char>(i >> 16);
  const std::vector<std::string> all = {large + "rest", large, "", "small"};
  const absl::Status status = cluster->RunTrainers([&](int t) -> absl::Status {
    Client& client = cluster->client(t);
    RETURN_IF_ERROR(client.Join());
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string key = absl::StrCat("stream ", i);
      if (t == 0) {
        const auto stream = client.board().StreamTo(key, 1);
        for (size_t at = 0; at < all[i].size(); at += 999'999) {
          RETURN_IF_ERROR(stream->Append(std::string_view(all[i]).substr(at, 999'999)));
        }
        RETURN_IF_ERROR(stream->Finish());
        continue;
      }
      std::string read;
      RETURN_IF_ERROR(client.board().ReadStream(key, 0, [&](std::string_view bytes) {
        read += bytes;
        return absl::OkStatus();
      }));
      EXPECT_TRUE(read == all[i]) << i << ": " << read.size();
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ClientTest, AStreamSurvivesLostRequestsAndReplies) {
  const HandMadeJob job{.trainers = 2};
  ClusterOptions options = OptionsFor(job);
  options.deadlines.set_rpc_s(0.2);
  auto cluster = MakeCluster(std::move(options));
  for (int t = 0; t < 2; ++t) ASSERT_TRUE(cluster->client(t).Join().ok());
  for (int t = 0; t < 2; ++t) {
    auto calls = std::make_shared<std::atomic<int>>(0);
    cluster->transport(t).OnCall([calls](const CallInfo& info) {
      if (info.tries > 0) return Fate::kPass;
      return ++*calls % 3 == 0 ? Fate::kDropReply : Fate::kPass;
    });
  }
  std::string large(4 * kStreamChunk, 'x'), read;
  for (size_t i = 0; i < large.size(); i += 1 << 16) large[i] = static_cast<char>(i >> 16);
  const absl::Status status = cluster->RunTrainers([&](int t) -> absl::Status {
    if (t == 0) {
      const auto stream = cluster->client(0).board().StreamTo("k", 1);
      RETURN_IF_ERROR(stream->Append(large));
      return stream->Finish();
    }
    return cluster->client(1).board().ReadStream("k", 0, [&](std::string_view bytes) {
      read += bytes;
      return absl::OkStatus();
    });
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(read == large);
}

TEST(ClientTest, ResidualsGoBackToWhoHasTheirLanesNow) {
  // Three trainers with the lane nodes {0,2} {2,1}; {3,1} {4,2}; {6,2}. Then two trainers of four lanes, and three
  // again.
  const auto job_of = [](int trainers) {
    return HandMadeJob{.servers = 2, .trainers = trainers, .push = v1::WIRE_INT8};
  };
  const auto gather = [](InProcessCluster& cluster, int64_t step) {
    std::string all;
    const absl::Status gathered = cluster.RunTrainers([&](int t) {
      return cluster.client(t).residuals().Gather(step, /*to=*/0, [&](std::string_view bytes) {
        all += bytes;
        return absl::OkStatus();
      });
    });
    EXPECT_TRUE(gathered.ok()) << gathered;
    return all;
  };
  auto first = MakeCluster(OptionsFor(job_of(3)));
  ASSERT_TRUE(first->RunTrainers([&](int t) { return JoinAndTrain(*first, job_of(3), t, 3); }).ok());
  const std::string saved = gather(*first, 3);
  ASSERT_GT(saved.size(), 1000u);
  for (const int trainers : {3, 2}) {
    auto again = MakeCluster(OptionsFor(job_of(trainers)));
    const absl::Status dealt = again->RunTrainers([&](int t) -> absl::Status {
      RETURN_IF_ERROR(again->client(t).Join());
      return again->client(t).residuals().Deal(/*from=*/0, [&](const TakeBytes& take) { return take(saved); },
                                               /*step=*/3);
    });
    ASSERT_TRUE(dealt.ok()) << dealt;
    const std::string back = gather(*again, 3);
    if (trainers == 3) {
      EXPECT_TRUE(back == saved);
      continue;
    }
    // With two trainers the nodes are lanes 0 to 3 and 4 to 7, for which nothing was saved.
    EXPECT_EQ(back, "");
  }
  // A file that ends within an element is data loss for the trainer that reads it.
  auto damaged = MakeCluster(OptionsFor(job_of(1)));
  ASSERT_TRUE(damaged->client(0).Join().ok());
  EXPECT_STATUS(damaged->client(0).residuals().Deal(
                    0, [&](const TakeBytes& take) { return take(saved.substr(0, saved.size() - 1)); }, 3),
                kDataLoss, "the checkpoint's residuals: they end within an element");
}

// A step without effect: one that a trainer skips, or the one in which the run ends because somebody stops it.
TEST(ClientTest, AStepWithoutEffectLeavesResidualsAsTheyWere) {
  const HandMadeJob job{.servers = 2, .trainers = 2, .push = v1::WIRE_INT8};
  enum End { kSkipped, kStopped };
  // Residuals after three steps and one without effect, which has gradients or none.
  const auto after = [&](End end, bool empty) {
    std::string all;
    auto cluster = MakeCluster(OptionsFor(job));
    const absl::Status trained = cluster->RunTrainers([&](int t) -> absl::Status {
      Client& client = cluster->client(t);
      RETURN_IF_ERROR(client.Join());
      HandMadeParams params;
      RETURN_IF_ERROR(ReceiveHandMade(job, &client.steps(), &params));
      for (int64_t step = 0; step < 3; ++step) {
        RETURN_IF_ERROR(RunHandMadeStep(job, t, {.step = step}, &client.steps(), &params).status());
      }
      if (end == kStopped && t == 1) client.steps().EndWithNextSends();
      const HandMadeStep last = {.step = 3, .skip = end == kSkipped && t == 1, .empty = empty};
      ASSIGN_OR_RETURN(const StepOutcome outcome, RunHandMadeStep(job, t, last, &client.steps(), &params));
      EXPECT_TRUE(empty || outcome.skipped == (end == kSkipped));
      EXPECT_TRUE(empty || outcome.ended == (end == kStopped));
      return client.residuals().Gather(/*step=*/3, /*to=*/0, [&](std::string_view bytes) {
        all += bytes;
        return absl::OkStatus();
      });
    });
    EXPECT_TRUE(trained.ok()) << trained;
    return all;
  };
  for (const End end : {kSkipped, kStopped}) {
    const std::string undisturbed = after(end, /*empty=*/true);
    EXPECT_GT(undisturbed.size(), 1000u);
    EXPECT_TRUE(after(end, /*empty=*/false) == undisturbed) << end;
  }
}

TEST(ClientTest, AContributionIsCollectedWhenAllAreThere) {
  const HandMadeJob job{.trainers = 2, .sync = false};
  auto cluster = MakeCluster(OptionsFor(job));
  for (int t = 0; t < 2; ++t) ASSERT_TRUE(cluster->client(t).Join().ok());
  std::vector<std::string> all;
  ASSERT_TRUE(cluster->client(0).board().Contribute("eval.1", "zero").ok());
  EXPECT_FALSE(*cluster->client(0).board().TryCollect("eval.1", &all));
  ASSERT_TRUE(cluster->client(1).board().Contribute("eval.1", "one").ok());
  EXPECT_TRUE(*cluster->client(0).board().TryCollect("eval.1", &all));
  EXPECT_THAT(all, ElementsAre("zero", "one"));
}

}  // namespace
}  // namespace weir
