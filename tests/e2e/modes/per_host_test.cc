// checkpoint.per_host: nothing is shared. Server 0 and the chief on one host, servers 1 and 2 on another.

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/owner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "pserver/protocol/transport.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/tapped_transport.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PerHostTest : public ::testing::Test {
 protected:
  PerHostTest() {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    WriteClickData(dir_);
  }
  ~PerHostTest() override { fs::remove_all(dir_); }

  std::string Host(int server) const { return absl::StrCat(dir_, server <= 0 ? "/checkpoints" : "/b"); }

  absl::StatusOr<InProcessResult> Run(InProcessRun run, int keep_last = 2) const {
    run.job_text = kClickJob;
    run.directory = dir_;
    run.overrides.insert(run.overrides.begin(), {"train.max_steps=200", "checkpoint.dir=\"checkpoints\""});
    run.overrides.push_back("checkpoint.every_steps=50");
    run.overrides.push_back(absl::StrCat("checkpoint.keep_last=", keep_last));
    if (run.servers == 0) run.servers = 3;
    if (!run.checkpoint_dir) {
      run.overrides.push_back("checkpoint.per_host=true");
      run.checkpoint_dir = [this](int server) { return Host(server); };
    }
    return TrainInProcess(run);
  }

  static std::vector<std::string> Steps(const std::string& dir) {
    std::vector<std::string> names;
    const auto found = ListCheckpoints(dir);
    for (const CheckpointPath& each : *found) names.push_back(each.name);
    return names;
  }
  static void FlipByte(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(100);
    const char was = static_cast<char>(file.get());
    file.seekp(100);
    file.put(static_cast<char>(was ^ 1));
  }

  const std::string dir_ = ::testing::TempDir() + "/per_host";
};

TEST_F(PerHostTest, EveryHostKeepsItsShardsAndAResumeGivesTheSameBits) {
  const auto whole = Run({.servers = 3, .trainers = 2});
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ(whole->digests.size(), 4u);
  for (const int server : {0, 1}) {
    EXPECT_THAT(Steps(Host(server)), ElementsAre("step-000000000150", "step-000000000200")) << server;
  }
  EXPECT_TRUE(fs::exists(Host(0) + "/step-000000000200/shard-00000"));
  EXPECT_FALSE(fs::exists(Host(0) + "/step-000000000200/shard-00001"));
  EXPECT_TRUE(fs::exists(Host(1) + "/step-000000000200/shard-00001"));
  EXPECT_TRUE(fs::exists(Host(1) + "/step-000000000200/shard-00002"));

  // The newest one is bad on one host: all go on from the one before.
  FlipByte(Host(1) + "/step-000000000200/shard-00002");
  const auto resumed = Run({.servers = 3, .trainers = 1, .resume = true});
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  ASSERT_EQ(resumed->digests.size(), 1u);
  EXPECT_EQ(resumed->digests[0], whole->digests[3]);

  // A fresh run leaves none of them to be mistaken for its own, on any host.
  ASSERT_TRUE(Run({.overrides = {"train.max_steps=50"}, .servers = 3}).ok());
  for (const int server : {0, 1}) {
    EXPECT_THAT(Steps(Host(server) + "/earlier-1"), ElementsAre("step-000000000200")) << server;  // which was bad
    EXPECT_THAT(Steps(Host(server) + "/earlier-2"), ElementsAre("step-000000000150", "step-000000000200")) << server;
  }
}

TEST_F(PerHostTest, OtherServersNeedTheShardsOfAllHostsInOneDirectory) {
  const auto whole = Run({.servers = 3, .trainers = 2});
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto fewer = Run({.servers = 2, .resume = true});
  ASSERT_FALSE(fewer.ok());
  EXPECT_THAT(std::string(fewer.status().message()), HasSubstr("copy the shards of all hosts into this directory"));

  const std::string all = dir_ + "/all";
  for (const char* step : {"/step-000000000150", "/step-000000000200"}) {
    fs::create_directories(all + step);
    for (const int server : {0, 1}) {
      fs::copy(Host(server) + step, all + step, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    }
  }
  EXPECT_TRUE(VerifyCheckpoint(all + "/step-000000000200").ok())
      << VerifyCheckpoint(all + "/step-000000000200").status();
  fs::remove_all(all + "/step-000000000200");
  const auto resumed =
      Run({.overrides = {"checkpoint.dir=\"all\""}, .servers = 2, .resume = true, .checkpoint_dir = [&all](int) {
             return std::string(all);
           }});
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->digests.back(), whole->digests[3]);
}

TEST_F(PerHostTest, WhenNoCheckpointIsOnEveryHostTheErrorSaysWhoHasWhat) {
  ASSERT_TRUE(Run({.servers = 3}).ok());
  fs::remove_all(Host(1));
  const auto resumed = Run({.servers = 3, .resume = true});
  ASSERT_FALSE(resumed.ok());
  EXPECT_TRUE(absl::IsDataLoss(resumed.status())) << resumed.status();
  EXPECT_THAT(std::string(resumed.status().message()), HasSubstr("no checkpoint is complete on every host"));
  EXPECT_THAT(std::string(resumed.status().message()), HasSubstr("server 0 2, server 1 0, server 2 0"));
}

// Calls of the chief that say `publish` to server 1 from the second checkpoint on never arrive, as when its host has
// lost power.
std::unique_ptr<Transport> LosesServerOne(int, Transport* servers) {
  return Tapped(servers, [publications = std::make_shared<std::atomic<int>>(0)](TappedCall call) {
    const auto control = call.As<v1::ControlRequest>();
    if (call.server == 1 && control && control->has_publish() && ++*publications > 1) {
      return call.done(absl::FailedPreconditionError("server 1 has lost its power"));
    }
    call.GoOn();
  });
}

TEST_F(PerHostTest, NothingIsRemovedBeforeAllHostsHavePublished) {
  const auto whole = Run({.overrides = {"train.max_steps=100"}, .servers = 2});
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto cut = Run({.overrides = {"train.max_steps=100"}, .servers = 2, .between = LosesServerOne},
                       /*keep_last=*/1);
  EXPECT_THAT(std::string(cut.status().message()), HasSubstr("has lost its power"));
  EXPECT_THAT(Steps(Host(0)), ElementsAre("step-000000000050", "step-000000000100"));
  EXPECT_THAT(Steps(Host(1)), ElementsAre("step-000000000050"));

  // The orphan of step 100 is out of the way when the next is published below it, and counts for nothing.
  const auto resumed = Run({.overrides = {"train.max_steps=80"}, .servers = 2, .resume = true}, /*keep_last=*/1);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  for (const int server : {0, 1}) EXPECT_THAT(Steps(Host(server)), ElementsAre("step-000000000080")) << server;
  EXPECT_THAT(Steps(Host(0) + "/earlier-2"), ElementsAre("step-000000000100"));
  const auto end = Run({.overrides = {"train.max_steps=100"}, .servers = 2, .resume = true}, /*keep_last=*/1);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->digests.back(), whole->digests.back());
}

TEST_F(PerHostTest, AnotherJobOnOneOfTheHostsIsNamed) {
  DirectoryOwner other({.dir = Host(1), .job = "elsewhere", .run = "1", .beat = absl::Milliseconds(10)});
  std::string holder;
  ASSERT_TRUE(*other.Take(&holder));
  const absl::Status refused = Run({.servers = 2}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("belongs to job 'elsewhere'"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("server 1"));
}

}  // namespace
}  // namespace weir
