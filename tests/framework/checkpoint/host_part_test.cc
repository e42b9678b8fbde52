#include "framework/checkpoint/host_part.h"

#include <thread>

#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two hosts, three servers: 0 on host "a", 1 and 2 on host "b". Every server of a host begins and publishes.
class HostPartTest : public ::testing::Test {
 protected:
  const std::string a_ = FreshDir("host_a"), b_ = FreshDir("host_b");
  const ToyModel model_ = ToyModel::Make();

  const std::string& DirOf(int server) const { return server == 0 ? a_ : b_; }

  v1::CheckpointManifest Write(int64_t step, const std::string& temporary) {
    v1::CheckpointManifest manifest;
    manifest.set_job("toy");
    manifest.set_step(step);
    manifest.set_per_host(true);
    for (int s = 0; s < 3; ++s) {
      EXPECT_TRUE(BeginPart(DirOf(s), temporary).ok());
      const auto shard = model_.SaveShard(DirOf(s) + "/" + temporary, s, 3);
      EXPECT_TRUE(shard.ok()) << shard.status();
      if (shard.ok()) *manifest.add_shards() = *shard;
    }
    SealManifest(&manifest);
    return manifest;
  }

  void Save(int64_t step) {
    const std::string temporary = absl::StrCat("tmp-", StepDirectoryName(step), "-0123456789abcdef");
    const v1::CheckpointManifest manifest = Write(step, temporary);
    for (int s = 0; s < 3; ++s) ASSERT_OK(PublishPart(DirOf(s), temporary, manifest));
  }

  std::vector<int64_t> Steps(int server) const {
    std::vector<int64_t> steps;
    const auto found = FindParts(DirOf(server), "toy", ShardFileName(server));
    EXPECT_TRUE(found.ok());
    for (const HostPart& part : found->parts) steps.push_back(part.step);
    return steps;
  }
};

TEST_F(HostPartTest, AHostWithoutTheFiguresOfTheEvaluationHasTheSameCheckpoint) {
  const std::string temporary = absl::StrCat("tmp-", StepDirectoryName(10), "-0123456789abcdef");
  v1::CheckpointManifest manifest = Write(10, temporary);
  for (int s = 0; s < 3; ++s) ASSERT_OK(PublishPart(DirOf(s), temporary, manifest));
  manifest.set_eval_auc(0.75);
  manifest.set_eval_loss(0.5);
  // The run ends when the figures have reached host a.
  ASSERT_OK(PublishPart(a_, temporary, manifest));
  EXPECT_EQ(ReadManifest(a_ + "/step-000000000010")->eval_auc(), 0.75);
  EXPECT_FALSE(ReadManifest(b_ + "/step-000000000010")->has_eval_auc());
  const auto a = FindParts(a_, "toy", ""), b = FindParts(b_, "toy", "");
  ASSERT_EQ(a->parts.size(), 1u);
  ASSERT_EQ(b->parts.size(), 1u);
  EXPECT_EQ(a->parts[0].manifest, b->parts[0].manifest);
  // Servers of one host repeat each other.
  ASSERT_OK(PublishPart(b_, temporary, manifest));
  ASSERT_OK(PublishPart(b_, temporary, manifest));
  EXPECT_EQ(ReadManifest(b_ + "/step-000000000010")->eval_loss(), 0.5);
}

TEST_F(HostPartTest, EveryHostHoldsItsShardsUnderOneManifest) {
  Save(10);
  Save(20);
  for (int s = 0; s < 3; ++s) EXPECT_THAT(Steps(s), ElementsAre(10, 20)) << s;
  const auto a = FindParts(a_, "toy", ""), b = FindParts(b_, "toy", "");
  ASSERT_EQ(a->parts.size(), 2u);
  EXPECT_EQ(a->parts[1].manifest, b->parts[1].manifest);
  EXPECT_NE(a->parts[0].manifest, a->parts[1].manifest);
  EXPECT_THAT(MissingShards(a_ + "/step-000000000020", *ReadManifest(a_ + "/step-000000000020")),
              ElementsAre("shard-00001", "shard-00002"));
  // Nobody takes one host's part for the whole.
  const auto whole = FindNewestComplete(a_, "toy");
  EXPECT_THAT(std::string(whole.status().message()), HasSubstr("copy the shards of all hosts into one"));
}

TEST_F(HostPartTest, ADamagedShardRefusesThePartForItsServerOnly) {
  Save(10);
  FlipBit(b_ + "/step-000000000010/shard-00002", 70);
  EXPECT_THAT(Steps(0), ElementsAre(10));
  EXPECT_THAT(Steps(1), ElementsAre(10));
  EXPECT_THAT(Steps(2), IsEmpty());
  const auto found = FindParts(b_, "toy", "shard-00002");
  EXPECT_THAT(found->refused, ElementsAre(HasSubstr("shard-00002 has checksum")));
  EXPECT_THAT(FindParts(a_, "toy", "shard-00007")->refused, ElementsAre(HasSubstr("written by fewer servers")));
  EXPECT_THAT(FindParts(a_, "other", "shard-00000")->refused, ElementsAre(HasSubstr("belongs to job 'toy'")));
  EXPECT_EQ(FindParts(a_, "other", "shard-00000")->other_job, "toy");
}

TEST_F(HostPartTest, AStepPublishedAgainIsReplacedOnEveryHost) {
  Save(10);
  const auto before = ReadManifest(b_ + "/step-000000000010");
  const_cast<ToyModel&>(model_).step = 99;
  Save(10);
  for (const std::string& dir : {a_, b_}) {
    const auto after = ReadManifest(dir + "/step-000000000010");
    ASSERT_OK(after.status());
    EXPECT_NE(after->state_digest(), before->state_digest());
  }
}

TEST_F(HostPartTest, WhatWasNotWrittenHereIsNotPublished) {
  Save(10);
  const v1::CheckpointManifest manifest = Write(20, "tmp-step-000000000020-0123456789abcdef");
  ASSERT_OK(RemoveHalfWritten(a_));
  EXPECT_THAT(std::string(PublishPart(a_, "tmp-step-000000000020-0123456789abcdef", manifest).message()),
              HasSubstr("is gone"));
  EXPECT_TRUE(absl::IsInvalidArgument(PublishPart(a_, "step-000000000010", manifest)));
  EXPECT_FALSE(BeginPart(a_, "../elsewhere").ok());
  EXPECT_THAT(Steps(0), ElementsAre(10));
}

TEST_F(HostPartTest, AHostThatHasNotPublishedRemovesNothing) {
  Save(10);
  const v1::CheckpointManifest manifest = Write(20, "tmp-step-000000000020-0123456789abcdef");
  const uint64_t checksum = StableHash(ManifestText(manifest));
  ASSERT_OK(PublishPart(a_, "tmp-step-000000000020-0123456789abcdef", manifest));
  EXPECT_THAT(std::string(PruneParts(b_, 20, checksum, 1, 0).message()), HasSubstr("is not published"));
  EXPECT_THAT(std::string(PruneParts(b_, 10, checksum, 1, 0).message()), HasSubstr("is another checkpoint"));
  EXPECT_THAT(Steps(1), ElementsAre(10));
  // One of step 30 that only this host has, of a run that went on from before it, is no reason to remove one that all
  // have.
  ToyModel orphan = model_;
  const std::string temporary = "tmp-step-000000000030-0123456789abcdef";
  v1::CheckpointManifest thirty = manifest;
  thirty.set_step(30);
  ASSERT_OK(BeginPart(a_, temporary));
  ASSERT_OK(orphan.SaveShard(a_ + "/" + temporary, 0, 3).status());
  ASSERT_OK(PublishPart(a_, temporary, thirty));
  ASSERT_OK(PruneParts(a_, 20, checksum, /*keep_last=*/2, /*keep_best=*/0));
  EXPECT_THAT(Steps(0), ElementsAre(10, 20));
}

TEST_F(HostPartTest, ServersOfOneHostPublishAndPruneAtOnce) {
  for (int64_t step = 1; step <= 20; ++step) {
    const std::string temporary = absl::StrCat("tmp-", StepDirectoryName(step), "-0123456789abcdef");
    const v1::CheckpointManifest manifest = Write(step, temporary);
    std::vector<absl::Status> ends(6);
    std::vector<std::thread> servers;
    for (int s = 0; s < 6; ++s) {
      servers.emplace_back([&, s] {
        ends[s] = PublishPart(DirOf(s % 3), temporary, manifest);
        // On this host nobody waits for the other.
        const uint64_t checksum = StableHash(ManifestText(manifest));
        ends[s].Update(PruneParts(DirOf(s % 3), step, checksum, /*keep_last=*/2, /*keep_best=*/0));
      });
    }
    for (std::thread& server : servers) server.join();
    for (const absl::Status& end : ends) ASSERT_OK(end);
  }
  for (int s = 0; s < 3; ++s) EXPECT_THAT(Steps(s), ElementsAre(19, 20)) << s;
  ASSERT_OK(SetEarlierPartsAside(b_).status());
  EXPECT_EQ(*SetEarlierPartsAside(b_), "");
  EXPECT_THAT(Steps(1), IsEmpty());
  EXPECT_THAT(Steps(0), ElementsAre(19, 20));
}

}  // namespace
}  // namespace weir
