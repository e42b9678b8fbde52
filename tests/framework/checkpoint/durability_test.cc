// In which order a checkpoint comes to disk, and what happens when the file system refuses.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "framework/checkpoint/file.h"
#include "framework/checkpoint/host_part.h"
#include "tests/framework/checkpoint/fixture.h"
#include "tests/testing/file_calls.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> Steps(const std::string& dir) {
  std::vector<int64_t> steps;
  const auto found = ListCheckpoints(dir);
  for (const CheckpointPath& each : *found) steps.push_back(each.step);
  return steps;
}

class DurabilityTest : public ::testing::Test {
 protected:
  const ToyModel model_ = ToyModel::Make();
  std::vector<FileCall> calls_;

  int Record(FileCall call) {
    call.path = Normal(call.path);
    call.to = Normal(call.to);
    calls_.push_back(std::move(call));
    return 0;
  }
  static std::string Normal(const std::string& path) { return std::filesystem::path(path).lexically_normal().string(); }
  static std::string Fresh(const std::string& name) { return Normal(FreshDir(name)); }

  // Where the first call of this name is whose path ends like this, from `from` on; -1: nowhere.
  int At(const std::string& name, const std::string& end, int from = 0) const {
    for (size_t i = static_cast<size_t>(from); i < calls_.size(); ++i) {
      if (calls_[i].name == name && calls_[i].path.ends_with(end)) return static_cast<int>(i);
    }
    return -1;
  }
  int LastAt(const std::string& name, const std::string& part) const {
    int last = -1;
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i].name == name && calls_[i].path.find(part) != std::string::npos) last = static_cast<int>(i);
    }
    return last;
  }
  // All that the step's directory holds is on disk before it gets its name, and the name is before anybody is told.
  void ExpectDurable(const std::string& dir, int64_t step, const std::string& rename) const {
    int published = -1;
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i].name == rename && calls_[i].to == dir + "/" + StepDirectoryName(step))
        published = static_cast<int>(i);
    }
    ASSERT_GE(published, 0);
    for (const char* file : {"/shard-00000", "/shard-00001"}) {
      const int written = LastAt("write", file);
      ASSERT_GE(written, 0) << file;
      const int synced = At("fsync", file, written);
      EXPECT_GT(synced, written) << file;
      EXPECT_LT(synced, published) << file;
    }
    const std::string temporary = calls_[static_cast<size_t>(published)].path;
    const int manifest = LastAt("write", "/MANIFEST");
    ASSERT_GE(manifest, 0);
    const int synced = LastAt("fsync", "/MANIFEST");
    EXPECT_GT(synced, manifest);
    EXPECT_LT(synced, published);
    // The names in it, the MANIFEST's too.
    const int named = At("fsync", temporary, synced);
    EXPECT_GT(named, synced);
    EXPECT_LT(named, published);
    EXPECT_GT(At("fsync", dir, published), published);
  }
};

TEST_F(DurabilityTest, ACheckpointIsOnDiskBeforeItHasItsNameAndTheNameBeforeAnybodyIsTold) {
  const std::string dir = Fresh("durable");
  {
    const FileCallHook hook([&](const FileCall& call) { return Record(call); });
    ASSERT_OK(model_.Save(dir, 10, 2).status());
  }
  ExpectDurable(dir, 10, "rename");
}

TEST_F(DurabilityTest, SoIsOneThatTakesThePlaceOfAnother) {
  const std::string dir = Fresh("durable_again");
  ASSERT_OK(model_.Save(dir, 10, 2).status());
  {
    const FileCallHook hook([&](const FileCall& call) { return Record(call); });
    ASSERT_OK(model_.Save(dir, 10, 2).status());
  }
  ExpectDurable(dir, 10, "exchange");
  // The old one goes when the new one is safe.
  const int removed = LastAt("rename", "tmp-step-000000000010");
  EXPECT_GT(removed, At("fsync", dir, LastAt("exchange", "tmp-step-000000000010")));
}

TEST_F(DurabilityTest, WhereNothingCanBeExchangedTheOldOneGoesWhenTheNewOneIsOnDisk) {
  const std::string dir = Fresh("durable_moves");
  ASSERT_OK(model_.Save(dir, 10, 2).status());
  {
    const FileCallHook hook([&](const FileCall& call) {
      if (call.name == "exchange") return EINVAL;
      return Record(call);
    });
    ASSERT_OK(model_.Save(dir, 10, 2).status());
  }
  ExpectDurable(dir, 10, "rename");
  EXPECT_GT(At("unlink", "/shard-00000"), At("fsync", dir, LastAt("rename", "tmp-step-000000000010")));
  ASSERT_OK(VerifyCheckpoint(dir + "/step-000000000010").status());
}

TEST_F(DurabilityTest, WhatIsSetAsideIsOnDiskThere) {
  const std::string dir = Fresh("durable_aside");
  for (const int64_t step : {10, 20}) ASSERT_OK(model_.Save(dir, step, 1).status());
  {
    const FileCallHook hook([&](const FileCall& call) { return Record(call); });
    ASSERT_OK(SetEarlierCheckpointsAside(dir, 10).status());
  }
  const int moved = At("rename", "/step-000000000020");
  ASSERT_GE(moved, 0);
  EXPECT_GT(At("fsync", "/earlier-1", moved), moved);
  EXPECT_GT(At("fsync", dir, moved), moved);
}

// The old one is removed while its manifest is read, and the new one has its name.
TEST_F(DurabilityTest, ACheckpointThatIsReplacedWhileItIsReadIsReadAgain) {
  const std::string dir = Fresh("replaced"), other = Fresh("replaced_other");
  const auto path = model_.Save(dir, 10, 1), again = model_.Save(other, 10, 1);
  ASSERT_TRUE(path.ok() && again.ok());
  int reads = 0;
  const FileCallHook hook([&](const FileCall& call) {
    if (call.name != "read" || !call.path.ends_with("/MANIFEST") || reads++ > 0) return 0;
    std::filesystem::rename(*path, dir + "/old");
    std::filesystem::rename(*again, *path);
    return ESTALE;
  });
  const auto newest = FindNewestComplete(dir, "toy");
  EXPECT_TRUE(newest.ok()) << newest.status();
  EXPECT_GT(reads, 1);
}

// NFS: a reader has a file of the step open; the directory is not empty.
TEST_F(DurabilityTest, OneThatCannotBeRemovedKeepsNoneOfTheOthersAndEndsNoSave) {
  const std::string dir = Fresh("stuck");
  for (const int64_t step : {10, 20, 30}) ASSERT_OK(model_.Save(dir, step, 1).status());
  const FileCallHook hook([](const FileCall& call) {
    return call.name == "unlink" && call.path.find("trash-step-000000000010") != std::string::npos ? ENOTEMPTY : 0;
  });
  const absl::Status status = PruneCheckpoints(dir, 1, 0);
  EXPECT_THAT(std::string(status.message()), HasSubstr("trash-step-000000000010"));
  EXPECT_THAT(Steps(dir), ElementsAre(30));
  // The rest of the removed checkpoint stays until it can be removed.
  ASSERT_OK(model_.Save(dir, 40, 1).status());
  EXPECT_THAT(Steps(dir), ElementsAre(30, 40));
}

TEST_F(DurabilityTest, OneThatIsReplacedAndCannotBeRemovedEndsNoSave) {
  const std::string dir = Fresh("stuck_replaced");
  ASSERT_OK(model_.Save(dir, 10, 1).status());
  for (const bool exchange : {true, false}) {
    const FileCallHook hook([&](const FileCall& call) {
      if (call.name == "exchange" && !exchange) return EINVAL;
      return call.name == "unlink" && call.path.find("trash-") != std::string::npos ? ENOTEMPTY : 0;
    });
    ASSERT_OK(model_.Save(dir, 10, 1).status());
  }
  ASSERT_OK(VerifyCheckpoint(dir + "/step-000000000010").status());
}

// Errors that the user must correct have another code than errors that may be over at the next try.
TEST_F(DurabilityTest, ADiskThatRefusesIsTheUsersToMend) {
  const std::string dir = Fresh("refused");
  for (const int error : {EROFS, EACCES, ENOSPC, EDQUOT, ENOTDIR}) {
    const FileCallHook hook([&](const FileCall& call) { return call.name == "mkdir" ? error : 0; });
    const absl::Status status = BeginCheckpoint(dir, 10).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(strerror(error)));
  }
  for (const int error : {EIO, ESTALE}) {
    const FileCallHook hook([&](const FileCall& call) { return call.name == "mkdir" ? error : 0; });
    EXPECT_TRUE(absl::IsUnavailable(BeginCheckpoint(dir, 10).status()));
  }
}

TEST_F(DurabilityTest, AFullDiskIsFoundBeforeThePublication) {
  const std::string dir = Fresh("full");
  ASSERT_OK(model_.Save(dir, 10, 1).status());
  for (const char* file : {"shard-00000", "MANIFEST"}) {
    const FileCallHook hook([&](const FileCall& call) {
      return call.name == "write" && call.path.find(file) != std::string::npos ? ENOSPC : 0;
    });
    const absl::Status status = model_.Save(dir, 20, 1).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device")) << file;
    EXPECT_THAT(Steps(dir), ElementsAre(10));
  }
  // A file system that says so only when the file is brought to disk.
  const FileCallHook hook(
      [](const FileCall& call) { return call.name == "fsync" && call.path.ends_with("/shard-00000") ? ENOSPC : 0; });
  EXPECT_FALSE(model_.Save(dir, 20, 1).ok());
  EXPECT_THAT(Steps(dir), ElementsAre(10));
}

}  // namespace
}  // namespace weir
