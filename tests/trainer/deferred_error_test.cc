#include "trainer/loop/deferred_error.h"

#include <memory>
#include <utility>

#include "glog/logging.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_made_cluster.h"

namespace weir {
namespace {

class DeferredErrorTest : public ::testing::Test {
 protected:
  DeferredErrorTest() {
    auto cluster = InProcessCluster::Create(OptionsFor({.trainers = 2}));
    CHECK(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    CHECK_EQ(cluster_->RunTrainers([&](int t) { return cluster_->client(t).Join(); }), absl::OkStatus());
  }
  Client& client() { return cluster_->client(0); }

  std::unique_ptr<InProcessCluster> cluster_;
};

TEST_F(DeferredErrorTest, TheFirstErrorIsKeptUntilTheParametersAreSaved) {
  DeferredError deferred(&client(), /*saves=*/true);
  EXPECT_EQ(deferred.error(), absl::OkStatus());
  EXPECT_EQ(deferred.Defer(absl::NotFoundError("first")), absl::OkStatus());
  EXPECT_TRUE(client().member().StopRequested());
  EXPECT_EQ(deferred.Defer(absl::NotFoundError("second")), absl::OkStatus());
  EXPECT_EQ(deferred.error(), absl::NotFoundError("first"));
  deferred.Saved();
  EXPECT_EQ(deferred.Defer(absl::NotFoundError("third")), absl::NotFoundError("third"));
  EXPECT_EQ(deferred.error(), absl::NotFoundError("first"));
}

TEST_F(DeferredErrorTest, WithoutCheckpointsNoErrorIsDeferred) {
  DeferredError deferred(&client(), /*saves=*/false);
  EXPECT_EQ(deferred.Defer(absl::NotFoundError("first")), absl::NotFoundError("first"));
  EXPECT_EQ(deferred.error(), absl::OkStatus());
  EXPECT_FALSE(client().member().StopRequested());
}

TEST_F(DeferredErrorTest, AnErrorAfterThatOfAnotherTrainerIsNotKept) {
  DeferredError deferred(&client(), /*saves=*/true);
  cluster_->client(1).member().ReportFailure(absl::DataLossError("of trainer 1"));
  client().member().heartbeats().Round();
  ASSERT_FALSE(client().member().JobStatus().ok());
  EXPECT_EQ(deferred.Defer(absl::NotFoundError("later")), client().member().JobStatus());
  EXPECT_EQ(deferred.error(), absl::OkStatus());
}

}  // namespace
}  // namespace weir
