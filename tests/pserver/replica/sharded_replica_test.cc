// Replicas of trainers that share the updates out: who holds which state, and how much; a copy that is not what its
// trainer has updated; shards of checkpoints, which trainers of both kinds write together.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/params/server_params.h"
#include "pserver/replica/dense_replica.h"
#include "pserver/replica/make_replica.h"
#include "tests/pserver/replica/replica_job.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using MakeJob = ReplicaJob (*)();

// The replicas of all trainers of a job.
class Replicas {
 public:
  Replicas(MakeJob make_job, int trainers, std::string_view update) : meshes_(trainers, /*shuffle=*/3) {
    ReplicaJob job = make_job();
    job.trainers = trainers;
    job.sharded = update == "SHARDED";
    const ReplicaPrograms programs = job.Programs();
    plan_ = programs.main.plan();
    for (int t = 0; t < trainers; ++t) {
      collectives_.push_back(std::make_unique<Collective>(meshes_.mesh(t), Collective::Options()));
      absl::StatusOr<std::unique_ptr<DenseReplica>> replica = MakeReplica({.main = &programs.main,
                                                                           .startup = &programs.startup,
                                                                           .pool = &pool_,
                                                                           .collective = collectives_.back().get()});
      EXPECT_TRUE(replica.ok()) << replica.status();
      replicas_.push_back(*std::move(replica));
    }
  }

  // Runs `work` on all trainers at the same time; the results are by trainer.
  std::vector<absl::Status> OnAll(const std::function<absl::Status(DenseReplica&, int)>& work) {
    std::vector<absl::Status> ends(replicas_.size());
    std::vector<std::thread> threads;
    for (size_t t = 0; t < replicas_.size(); ++t) {
      threads.emplace_back([&, t] { ends[t] = work(*replicas_[t], static_cast<int>(t)); });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }
  void OnAllOk(const std::function<absl::Status(DenseReplica&, int)>& work) {
    for (const absl::Status& end : OnAll(work)) EXPECT_TRUE(end.ok()) << end;
  }

  // Writes the shards of all trainers; returns them as the chief gets them.
  std::vector<v1::CheckpointShard> Save(const std::string& directory) {
    std::vector<v1::CheckpointShard> shards;
    OnAllOk([&](DenseReplica& replica, int t) -> absl::Status {
      absl::StatusOr<std::vector<v1::CheckpointShard>> saved = replica.SaveShards(/*root=*/0, directory);
      if (!saved.ok()) return saved.status();
      EXPECT_TRUE(t == 0 || saved->empty());
      if (t == 0) shards = *std::move(saved);
      return absl::OkStatus();
    });
    return shards;
  }
  // The digests of what all hold together.
  std::map<std::string, std::pair<uint64_t, uint64_t>> Digests() {
    std::map<std::string, std::pair<uint64_t, uint64_t>> sums;
    OnAllOk([&](DenseReplica& replica, int t) -> absl::Status {
      const absl::StatusOr<std::vector<v1::ControlReply>> replies = replica.Digests(/*root=*/0);
      if (!replies.ok() || t > 0) return replies.status();
      for (const v1::ControlReply& reply : *replies) {
        for (const v1::VariableDigest& v : reply.variables()) {
          sums[v.name()].first += v.values();
          sums[v.name()].second += v.state();
        }
      }
      return absl::OkStatus();
    });
    return sums;
  }

  DenseReplica& operator[](size_t t) { return *replicas_[t]; }
  const v1::Plan& plan() const { return plan_; }

 private:
  LocalMeshes meshes_;
  ThreadPool pool_{"test", 0};
  v1::Plan plan_;
  std::vector<std::unique_ptr<Collective>> collectives_;
  std::vector<std::unique_ptr<DenseReplica>> replicas_;
};

std::string Directory(const std::string& name) {
  const std::string directory = ::testing::TempDir() + "/" + name;
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  return directory;
}

int64_t StateBytes(const v1::CheckpointShard& shard) {
  int64_t bytes = 0;
  for (const v1::DenseEntry& entry : shard.dense()) bytes += entry.has_state_of() ? 4 * entry.element_count() : 0;
  return bytes;
}

v1::CheckpointManifest ManifestOf(const std::vector<v1::CheckpointShard>& shards) {
  v1::CheckpointManifest manifest;
  for (const v1::CheckpointShard& shard : shards) *manifest.add_shards() = shard;
  SealManifest(&manifest);
  return manifest;
}

// Flips the lowest bit of the first element of a block that a trainer updates.
void FlipABit(DenseReplica* replica, int target) {
  ServerParams& params = replica->params();
  std::vector<float> values(static_cast<size_t>(params.block(target).count));
  params.CopyBlock(target, 0, params.block(target).count, values.data(), /*reader=*/0);
  uint32_t bits = 0;
  std::memcpy(&bits, values.data(), sizeof(bits));
  bits ^= 1;
  std::memcpy(values.data(), &bits, sizeof(bits));
  params.SetBlock(target, values);
}

class StateTest : public ::testing::TestWithParam<MakeJob> {};

// What a trainer keeps of optimizer state is what it saves of it.
TEST_P(StateTest, ATrainerHoldsItsPartOfTheStateAndTwoPercentAtMost) {
  const std::string directory = Directory("state");
  const std::vector<v1::CheckpointShard> alone = Replicas(GetParam(), 1, "REPLICATED").Save(directory);
  ASSERT_EQ(alone.size(), 1u);
  const int64_t whole = StateBytes(alone[0]);
  EXPECT_GT(whole, 2'000'000);
  for (int trainers = 2; trainers <= 8; ++trainers) {
    const std::vector<v1::CheckpointShard> shards = Replicas(GetParam(), trainers, "SHARDED").Save(directory);
    ASSERT_EQ(shards.size(), static_cast<size_t>(trainers));
    int64_t most = 0, sum = 0;
    for (const v1::CheckpointShard& shard : shards) {
      most = std::max(most, StateBytes(shard));
      sum += StateBytes(shard);
    }
    EXPECT_LE(static_cast<double>(most), (1.0 / trainers + 0.02) * static_cast<double>(whole)) << trainers;
    EXPECT_GE(sum, whole) << trainers;
    RecordProperty(absl::StrCat("share_of_", trainers),
                   absl::StrCat(100.0 * static_cast<double>(most) / static_cast<double>(whole)));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StateTest, ::testing::Values(DeepFmReplica, CnnReplica),
                         [](const ::testing::TestParamInfo<MakeJob>& info) {
                           return std::string(info.param == DeepFmReplica ? "DeepFm" : "Cnn");
                         });

TEST(ShardedReplicaTest, EachUpdatesItsBlocksAlone) {
  Replicas replicas(DeepFmReplica, 3, "SHARDED");
  std::set<std::string> held;
  for (size_t t = 0; t < 3; ++t) {
    EXPECT_TRUE(replicas[t].sharded());
    for (int i = 0; i < replicas[t].params().blocks(); ++i) {
      EXPECT_TRUE(held.insert(replicas[t].params().block(i).name).second) << replicas[t].params().block(i).name;
    }
  }
  EXPECT_EQ(held.size(), static_cast<size_t>(replicas.plan().blocks_size()));
}

TEST(ShardedReplicaTest, AfterTheGatherAllHaveTheInitialValues) {
  Replicas replicas(DeepFmReplica, 3, "SHARDED"), whole(DeepFmReplica, 1, "REPLICATED");
  replicas.OnAllOk([](DenseReplica& replica, int) { return replica.Gather(); });
  replicas.OnAllOk([](DenseReplica& replica, int) { return replica.CheckEqual("now"); });
  EXPECT_EQ(replicas.Digests(), whole.Digests());
  for (int b = 0; b < replicas.plan().blocks_size(); ++b) {
    const v1::PlacedBlock& placed = replicas.plan().blocks(b);
    std::vector<float> expected(static_cast<size_t>(placed.element_count()));
    const int target = whole[0].params().FindBlock(placed.parameter());
    whole[0].params().CopyBlock(target, placed.element_begin(), placed.element_count(), expected.data(), /*reader=*/0);
    for (size_t t = 0; t < 3; ++t) {
      std::vector<float> values(expected.size());
      replicas[t].CopyBlock(replicas[t].FindBlock(placed.name()), values.data());
      EXPECT_EQ(values, expected) << placed.name() << " on trainer " << t;
    }
  }
}

TEST(ShardedReplicaTest, ValuesThatWereUpdatedAndNotGatheredAreNamed) {
  Replicas replicas(DeepFmReplica, 3, "SHARDED");
  replicas.OnAllOk([](DenseReplica& replica, int) { return replica.Gather(); });
  FlipABit(&replicas[1], 0);
  const std::string block = replicas[1].params().block(0).name;
  const std::string parameter = block.substr(0, block.find(".block"));
  for (const absl::Status& end :
       replicas.OnAll([](DenseReplica&replica, int) { return replica.CheckEqual("before step 7"); })) {
    EXPECT_EQ(end.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(end.message()),
                HasSubstr("not equal before step 7: trainer 1 differs in '" + parameter + "' from trainer 0, 2"));
  }
  replicas.OnAllOk([](DenseReplica& replica, int) { return replica.Gather(); });
  replicas.OnAllOk([](DenseReplica& replica, int) { return replica.CheckEqual("now"); });
}

class SavedTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SavedTest, EveryTrainerWritesAPartOfEverything) {
  const std::string directory = Directory("saved");
  Replicas replicas(DeepFmReplica, 3, GetParam());
  const std::vector<v1::CheckpointShard> shards = replicas.Save(directory);
  ASSERT_EQ(shards.size(), 3u);
  std::map<std::string, int64_t> elements;  // by variable, without counts and rates
  for (size_t t = 0; t < shards.size(); ++t) {
    EXPECT_EQ(shards[t].file().name(), absl::StrCat("shard-0000", 1 + t));
    EXPECT_TRUE(std::filesystem::exists(directory + "/" + shards[t].file().name()));
    int64_t values = 0;
    for (const v1::DenseEntry& entry : shards[t].dense()) {
      if (entry.scalar()) continue;
      elements[entry.variable()] += entry.element_count();
      if (!entry.has_state_of()) values += entry.element_count();
    }
    // 493,201 in all; whole parameters, the largest of 171,600, or pieces.
    EXPECT_GT(values, 150'000) << t;
    EXPECT_LT(values, 173'000) << t;
  }
  const Replicas whole(DeepFmReplica, 1, "REPLICATED");
  for (const v1::PlacedBlock& placed : whole.plan().blocks()) {
    EXPECT_EQ(elements[placed.parameter()], placed.element_count()) << placed.parameter();
    EXPECT_EQ(elements[placed.parameter() + ".moment1"], placed.element_count()) << placed.parameter();
  }
}

TEST_P(SavedTest, WhatWasSavedIsReadByTheOtherKindAndOtherNumbers) {
  const std::string directory = Directory("read");
  Replicas written(DeepFmReplica, 3, GetParam());
  // Not the initial values.
  for (size_t t = 0; t < 3; ++t) {
    for (int i = 0; i < written[t].params().blocks(); ++i) FlipABit(&written[t], i);
  }
  const auto expected = written.Digests();
  const v1::CheckpointManifest manifest = ManifestOf(written.Save(directory));
  for (const char* update : {"REPLICATED", "SHARDED"}) {
    for (const int trainers : {1, 2, 5}) {
      Replicas read(DeepFmReplica, trainers, update);
      EXPECT_NE(read.Digests(), expected);
      read.OnAllOk([&](DenseReplica& replica, int) { return replica.Load(directory, manifest); });
      read.OnAllOk([](DenseReplica& replica, int) { return replica.Gather(); });
      read.OnAllOk([](DenseReplica& replica, int) { return replica.CheckEqual("now"); });
      EXPECT_EQ(read.Digests(), expected) << update << ", " << trainers << " trainers";
    }
    // Predictions: values alone, which one trainer reads for all.
    Replicas predict(DeepFmReplica, 2, update);
    predict.OnAllOk([&](DenseReplica& replica, int t) {
      return t == 1 ? replica.LoadValues(directory, manifest) : absl::OkStatus();
    });
    predict.OnAllOk([](DenseReplica& replica, int) { return replica.Broadcast(/*root=*/1); });
    Replicas all(DeepFmReplica, 1, "REPLICATED");
    all.OnAllOk([&](DenseReplica& replica, int) { return replica.Load(directory, manifest); });
    for (int b = 0; b < predict.plan().blocks_size(); ++b) {
      const v1::PlacedBlock& placed = predict.plan().blocks(b);
      std::vector<float> wanted(static_cast<size_t>(placed.element_count())), values(wanted.size());
      all[0].params().CopyBlock(all[0].params().FindBlock(placed.parameter()), placed.element_begin(),
                                placed.element_count(), wanted.data(), /*reader=*/0);
      for (size_t t = 0; t < 2; ++t) {
        predict[t].CopyBlock(predict[t].FindBlock(placed.name()), values.data());
        EXPECT_EQ(values, wanted) << update << ": " << placed.name() << " on trainer " << t;
      }
    }
  }
}

TEST_P(SavedTest, ATrainerThatCannotWriteIsNamed) {
  const std::string directory = Directory("named");
  Replicas replicas(DeepFmReplica, 3, GetParam());
  const std::vector<absl::Status> ends = replicas.OnAll([&](DenseReplica& replica, int t) {
    return replica.SaveShards(/*root=*/0, t == 2 ? directory + "/absent" : directory).status();
  });
  EXPECT_THAT(std::string(ends[0].message()), AllOf(HasSubstr("trainer 2: "), HasSubstr("/absent/shard-00003")));
  // The chief ends the job, with the reason.
  EXPECT_TRUE(ends[1].ok()) << ends[1];
  EXPECT_TRUE(ends[2].ok()) << ends[2];
}

INSTANTIATE_TEST_SUITE_P(Kinds, SavedTest, ::testing::Values("REPLICATED", "SHARDED"),
                         [](const ::testing::TestParamInfo<const char*>& info) { return std::string(info.param); });

TEST(ShardedReplicaTest, AllAgreeOnTheNameOfTheChief) {
  Replicas replicas(DeepFmReplica, 3, "SHARDED");
  replicas.OnAllOk([](DenseReplica& replica, int t) -> absl::Status {
    const absl::StatusOr<std::string> name = replica.AgreeOnSave(/*root=*/1, absl::StrCat("name of ", t));
    EXPECT_EQ(name.value_or(""), "name of 1");
    return name.status();
  });
}

// A checkpoint in which one trainer's piece of a matrix is missing.
TEST(ShardedReplicaTest, ElementsThatNoShardHoldsAreNamed) {
  const std::string directory = Directory("lacks");
  Replicas replicas(DeepFmReplica, 2, "SHARDED");
  std::vector<v1::CheckpointShard> shards = replicas.Save(directory);
  ASSERT_EQ(shards.size(), 2u);
  google::protobuf::RepeatedPtrField<v1::DenseEntry> kept;
  for (const v1::DenseEntry& entry : shards[1].dense()) {
    if (!absl::StartsWith(entry.variable(), "deep.0.w")) *kept.Add() = entry;
  }
  EXPECT_EQ(kept.size() + 4, shards[1].dense_size());
  shards[1].mutable_dense()->Swap(&kept);
  const v1::CheckpointManifest manifest = ManifestOf(shards);
  Replicas read(DeepFmReplica, 1, "SHARDED");
  const absl::Status status = read[0].Load(directory, manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no shard holds them"));
  EXPECT_FALSE(read[0].LoadValues(directory, manifest).ok());
}

}  // namespace
}  // namespace weir
