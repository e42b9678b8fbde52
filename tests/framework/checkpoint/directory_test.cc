#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "framework/checkpoint/file.h"
#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int64_t> Steps(const std::string& dir) {
  std::vector<int64_t> steps;
  const auto found = ListCheckpoints(dir);
  for (const CheckpointPath& each : *found) steps.push_back(each.step);
  return steps;
}

TEST(DirectoryTest, NamesOfStepsAreReadBackAndNothingElseIs) {
  EXPECT_EQ(StepDirectoryName(120), "step-000000000120");
  EXPECT_EQ(ParseStepDirectoryName("step-000000000120"), 120);
  for (const char* other : {"step-120", "tmp-step-000000000120-ab", "step-00000000012x", "step-", "",
                            "step-0000000000120", "step-99999999999999999999"}) {
    EXPECT_EQ(ParseStepDirectoryName(other), std::nullopt) << other;
  }
}

TEST(DirectoryTest, ADirectoryThatDoesNotExistHoldsNoCheckpoints) {
  EXPECT_THAT(Steps(FreshDir("none") + "/deeper"), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(FindNewestComplete(FreshDir("none"), "").status()));
}

TEST(DirectoryTest, TheNewestGoodOneIsTakenAndTheBadOnesAreNamed) {
  const std::string dir = FreshDir("newest");
  const ToyModel model = ToyModel::Make();
  for (const int64_t step : {10, 20, 30, 40, 50}) ASSERT_OK(model.Save(dir, step, 2).status());
  FlipBit(dir + "/step-000000000050/shard-00001", 100);
  CutFile(dir + "/step-000000000040/shard-00000", 100);
  std::filesystem::remove(dir + "/step-000000000030/MANIFEST");
  const auto newest = FindNewestComplete(dir, "toy");
  ASSERT_OK(newest.status());
  EXPECT_EQ(newest->found.step, 20);
  EXPECT_THAT(newest->refused,
              ElementsAre(HasSubstr("step-000000000050/shard-00001 has checksum"),
                          HasSubstr("step-000000000040/shard-00000 has 100 bytes"), HasSubstr("MANIFEST is missing")));
}

TEST(DirectoryTest, EveryFlippedBitOfAManifestIsReportedAsDataLoss) {
  const auto path = ToyModel::Make().Save(FreshDir("manifest"), 10, 1);
  ASSERT_OK(path.status());
  const std::string file = *path + "/MANIFEST";
  const int64_t size = static_cast<int64_t>(std::filesystem::file_size(file));
  for (int64_t byte = 0; byte < size; ++byte) {
    FlipBit(file, byte);
    EXPECT_TRUE(absl::IsDataLoss(ReadManifest(*path).status())) << byte;
    FlipBit(file, byte);
  }
  ASSERT_OK(ReadManifest(*path).status());
  CutFile(file, size / 2);
  EXPECT_TRUE(absl::IsDataLoss(ReadManifest(*path).status()));
}

TEST(DirectoryTest, ANewerFormatIsRefusedWithBothNumbers) {
  const std::string dir = FreshDir("newer");
  const auto path = ToyModel::Make().Save(dir, 10, 1);
  ASSERT_OK(path.status());
  std::string text = *ReadWholeFile(*path + "/MANIFEST");
  text = text.substr(text.find('\n') + 1);
  text.replace(text.find("format_version: 2"), 17, "format_version: 9\nfield_of_tomorrow: 3");
  ASSERT_OK(WriteFileAtomically(
      *path + "/MANIFEST", absl::StrCat("# weir checkpoint manifest, xxh3 ", DigestHex(StableHash(text)), "\n", text)));
  const absl::Status status = ReadManifest(*path).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has format 9; this build reads up to 2"));
}

void WriteManifest(const std::string& path, const std::string& text) {
  ASSERT_OK(WriteFileAtomically(
      path + "/MANIFEST", absl::StrCat("# weir checkpoint manifest, xxh3 ", DigestHex(StableHash(text)), "\n", text)));
}

TEST(DirectoryTest, AManifestOfFormat1IsReadInThePresentForm) {
  const auto path = ToyModel::Make().Save(FreshDir("format_1"), 10, 1);
  ASSERT_OK(path.status());
  const auto write = [&](const std::string& fields) {
    std::string text = *ReadWholeFile(*path + "/MANIFEST");
    text = text.substr(text.find('\n') + 1);
    text.replace(text.find("format_version:"), 17, absl::StrCat("format_version: 1\n", fields));
    WriteManifest(*path, text);
  };
  write("");
  EXPECT_EQ(ReadManifest(*path)->trainers().ShortDebugString(), "stream_scheme: 1") << "what the first builds had";
  write(
      "loss_scale { scale: 1024 good_steps: 3 } first_step_examples: 64 stream_scheme: 3 early_stop { metric: 'auc' "
      "best: 0.75 evaluations: 2 step: 10 } follow { first_group: 5 last_file: 'c' streams { group: 5 given: 9 } }");
  const auto lifted = ReadManifest(*path);
  ASSERT_OK(lifted.status());
  v1::TrainerState expected;
  expected.mutable_loss_scale()->set_scale(1024);
  expected.mutable_loss_scale()->set_good_steps(3);
  expected.set_first_step_examples(64);
  expected.set_stream_scheme(3);
  expected.mutable_early_stop()->set_metric("auc");
  expected.mutable_early_stop()->set_best(0.75);
  expected.mutable_early_stop()->set_evaluations(2);
  expected.mutable_early_stop()->set_step(10);
  expected.mutable_follow()->set_first_group(5);
  expected.mutable_follow()->set_last_file("c");
  expected.mutable_follow()->add_streams()->set_group(5);
  expected.mutable_follow()->mutable_streams(0)->set_given(9);
  EXPECT_EQ(lifted->trainers().DebugString(), expected.DebugString());
  // The figures of an evaluation are added to it as to any other; builds that would not find the state refuse it then.
  ASSERT_OK(ReplaceManifest(*path, *lifted));
  EXPECT_THAT(*ReadWholeFile(*path + "/MANIFEST"), HasSubstr("\nformat_version: 2\n"));
  EXPECT_EQ(ReadManifest(*path)->DebugString(), lifted->DebugString());
}

TEST(DirectoryTest, AManifestOfAnyNestingIsRefused) {
  const std::string path = FreshDir("nested");
  for (const char* open : {"a{", "a:<", "shards{", "a:[{"}) {
    std::string text = "step: 1 ";
    for (int i = 0; i < 100'000; ++i) text += open;
    WriteManifest(path, text);
    const absl::Status status = ReadManifest(path).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << open << ": " << status;
  }
}

TEST(DirectoryTest, AFileThatIsNamedTwiceIsRefused) {
  const auto path = ToyModel::Make().Save(FreshDir("twice"), 10, 1);
  ASSERT_OK(path.status());
  v1::CheckpointManifest manifest = *ReadManifest(*path);
  *manifest.add_shards() = manifest.shards(0);
  WriteManifest(*path, manifest.DebugString());
  const absl::Status status = ReadManifest(*path).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("names the file 'shard-00000' twice"));
}

TEST(DirectoryTest, FilesThatAreNoRegularOnesAreRefusedAtOnce) {
  const auto path = ToyModel::Make().Save(FreshDir("fifos"), 10, 1);
  ASSERT_OK(path.status());
  for (const char* name : {"/shard-00000", "/MANIFEST"}) {
    const std::string file = *path + name;
    std::filesystem::remove(file);
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    EXPECT_THAT(std::string(VerifyCheckpoint(*path).status().message()),
                HasSubstr(absl::StrCat(name, " is a FIFO; a regular file was expected")));
    std::filesystem::remove(file);
    std::filesystem::create_symlink("/dev/zero", file);
    EXPECT_THAT(std::string(VerifyCheckpoint(*path).status().message()),
                HasSubstr(absl::StrCat(name, " is a device; a regular file was expected")));
  }
}

TEST(DirectoryTest, ALongNameOfAFileIsAnErrorLikeAnyOther) {
  const auto path = ToyModel::Make().Save(FreshDir("long_name"), 10, 1);
  ASSERT_OK(path.status());
  v1::CheckpointManifest manifest = *ReadManifest(*path);
  manifest.set_per_host(true);
  manifest.mutable_shards(0)->mutable_file()->set_name(std::string(5000, 'x'));
  WriteManifest(*path, manifest.DebugString());
  EXPECT_FALSE(VerifyCheckpoint(*path).ok());
  EXPECT_TRUE(CheckpointDigests(*path, manifest).ok());  // the shard counts as one of another host
}

// Names and files that a run writes, and none that a user might.
TEST(DirectoryTest, ASaveRemovesWhatDeadRunsLeftAndNothingElse) {
  const std::string dir = FreshDir("leftovers");
  const std::string unfinished = "tmp-step-000000000010-0123456789abcdef";
  const auto make = [&dir](const std::string& name, const std::vector<std::string>& files) {
    std::filesystem::create_directories(dir + "/" + name);
    for (const std::string& file : files) std::ofstream(absl::StrCat(dir, "/", name, "/", file)) << "x";
  };
  make(unfinished, {"shard-00000", "shard-00001", "statistics", "residuals", "MANIFEST.tmp.12-1a2b3c-0"});
  make("trash-step-000000000010-0123456789abcdef", {"MANIFEST", "shard-00000"});
  make("trash-" + unfinished + "-00000000000000ff", {"MANIFEST"});
  std::ofstream(dir + "/tmp-owner-1a2b") << "x";
  ASSERT_OK(RemoveHalfWritten(dir));
  EXPECT_THAT(*ListDirectory(dir), IsEmpty());

  make("tmp-mine", {"notes.txt"});
  make("trash-old", {"shard-00000"});
  make("tmp-step-10-0123456789abcdef", {"shard-00000"});
  make(unfinished, {"shard-00000", "notes.txt"});
  make("tmp-step-000000000020-0123456789abcdef/deeper", {"shard-00000"});
  make("elsewhere", {"shard-00000"});
  std::filesystem::create_directory_symlink("elsewhere", dir + "/tmp-step-000000000030-0123456789abcdef");
  make("tmp-step-000000000040-0123456789abcdef", {});
  std::filesystem::create_symlink("../elsewhere/shard-00000",
                                  dir + "/tmp-step-000000000040-0123456789abcdef/shard-00000");
  std::ofstream(dir + "/tmp-owner-of-the-data") << "x";
  std::ofstream(dir + "/tmp-step-000000000050-0123456789abcdef") << "x";
  const auto all = [&dir] {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
  };
  const std::vector<std::string> before = all();
  ASSERT_OK(RemoveHalfWritten(dir));
  EXPECT_EQ(all(), before);
  EXPECT_TRUE(std::filesystem::is_symlink(dir + "/tmp-step-000000000030-0123456789abcdef"));
}

TEST(DirectoryTest, AFileOfACheckpointIsWrittenThroughNoLink) {
  const std::string dir = FreshDir("planted");
  ASSERT_OK(WriteFileAtomically(dir + "/precious", "kept"));
  std::filesystem::create_symlink("precious", dir + "/shard-00000");
  EXPECT_TRUE(absl::IsFailedPrecondition(FileWriter::Create(dir + "/shard-00000").status()));
  EXPECT_EQ(*ReadWholeFile(dir + "/precious"), "kept");
  ASSERT_EQ(mkfifo((dir + "/shard-00001").c_str(), 0600), 0);
  EXPECT_FALSE(FileWriter::Create(dir + "/shard-00001").ok());
}

TEST(DirectoryTest, StepsBeyondAllRunsAreReportedAsDataLoss) {
  const auto path = ToyModel::Make().Save(FreshDir("steps"), 10, 1);
  ASSERT_OK(path.status());
  const v1::CheckpointManifest good = *ReadManifest(*path);
  const std::string head = "# weir checkpoint manifest, xxh3 ";
  for (const int64_t step : {int64_t{-1}, (int64_t{1} << 60) + 1, INT64_MIN, INT64_MAX}) {
    const auto read = [&](const v1::CheckpointManifest& manifest) {
      const std::string text = manifest.DebugString();
      EXPECT_TRUE(
          WriteFileAtomically(*path + "/MANIFEST", absl::StrCat(head, DigestHex(StableHash(text)), "\n", text)).ok());
      return ReadManifest(*path).status();
    };
    std::vector<v1::CheckpointManifest> bad(4, good);
    bad[0].set_step(step);
    bad[1].mutable_data()->add_trainer_steps(step);
    bad[2].mutable_shards(0)->add_trainer_steps(step);
    bad[3].mutable_shards(0)->set_table_steps(step);
    for (size_t i = 0; i < bad.size(); ++i) {
      const absl::Status status = read(bad[i]);
      EXPECT_TRUE(absl::IsDataLoss(status)) << i << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("speaks of step ", step)));
    }
    EXPECT_TRUE(read(good).ok());
  }
}

TEST(DirectoryTest, FiguresOfAnEvaluationAreAddedInPlaceToThatCheckpointOnly) {
  const std::string dir = FreshDir("figures");
  ToyModel model = ToyModel::Make();
  v1::CheckpointManifest manifest;
  manifest.mutable_trainers()->set_stream_scheme(4);
  const auto path = model.Save(dir, 10, 2, manifest);
  ASSERT_OK(path.status());
  manifest = *ReadManifest(*path);
  const uint64_t identity = ManifestIdentity(manifest);
  manifest.set_eval_auc(0.75);
  manifest.mutable_trainers()->mutable_early_stop()->set_step(10);
  EXPECT_EQ(ManifestIdentity(manifest), identity);
  ASSERT_OK(ReplaceManifest(*path, manifest));
  const auto judged = VerifyCheckpoint(*path);
  ASSERT_OK(judged.status());
  EXPECT_EQ(judged->eval_auc(), 0.75);
  model.step = 99;
  ASSERT_OK(model.Save(dir, 10, 1).status());
  EXPECT_TRUE(absl::IsFailedPrecondition(ReplaceManifest(*path, manifest)));
  EXPECT_FALSE(ReadManifest(*path)->has_eval_auc());
}

TEST(DirectoryTest, ADirectoryThatIsAFileIsNamedWithItsField) {
  const std::string file = FreshDir("is_a_file") + "-file";
  ASSERT_OK(WriteFileAtomically(file, "x"));
  for (const absl::Status& status : {BeginCheckpoint(file, 1).status(), WriteProbe(file).status()}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("checkpoint.dir: cannot make directory"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("it is a file; name a directory"));
  }
}

TEST(DirectoryTest, ACheckpointOfAnotherJobIsRefusedByName) {
  const std::string dir = FreshDir("other_job");
  ASSERT_OK(ToyModel::Make().Save(dir, 10, 1).status());
  const absl::Status status = FindNewestComplete(dir, "flights").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("belongs to job 'toy', not to 'flights'"));
}

TEST(DirectoryTest, WhatWasNotPublishedDoesNotExistAndIsCleanedUpByTheNextOne) {
  const std::string dir = FreshDir("unpublished");
  ASSERT_OK(ToyModel::Make().Save(dir, 10, 1).status());
  const auto dead = BeginCheckpoint(dir, 20);
  ASSERT_OK(dead.status());
  ASSERT_OK(ToyModel::Make().SaveShard(dir + "/" + *dead, 0, 1).status());
  EXPECT_THAT(Steps(dir), ElementsAre(10));
  ASSERT_OK(ToyModel::Make().Save(dir, 30, 1).status());
  EXPECT_THAT(Steps(dir), ElementsAre(10, 30));
  EXPECT_FALSE(std::filesystem::exists(dir + "/" + *dead));
}

TEST(DirectoryTest, AShardThatThePublisherDoesNotSeeStopsThePublication) {
  const std::string dir = FreshDir("unseen");
  const auto name = BeginCheckpoint(dir, 20);
  ASSERT_OK(name.status());
  v1::CheckpointManifest manifest;
  manifest.set_step(20);
  auto shard = ToyModel::Make().SaveShard(dir + "/" + *name, 0, 1);
  ASSERT_OK(shard.status());
  *manifest.add_shards() = *shard;
  CutFile(dir + "/" + *name + "/shard-00000", 10);
  EXPECT_TRUE(absl::IsDataLoss(PublishCheckpoint(dir, *name, manifest).status()));
  std::filesystem::remove(dir + "/" + *name + "/shard-00000");
  const absl::Status status = PublishCheckpoint(dir, *name, manifest).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard-00000 was written, and is not here"));
  EXPECT_THAT(Steps(dir), IsEmpty());
}

TEST(DirectoryTest, AStepPublishedAgainIsReplacedAsAWhole) {
  const std::string dir = FreshDir("again");
  ToyModel model = ToyModel::Make();
  ASSERT_OK(model.Save(dir, 10, 3).status());
  model.step = 99;
  const auto path = model.Save(dir, 10, 1);
  ASSERT_OK(path.status());
  const auto manifest = VerifyCheckpoint(*path);
  ASSERT_OK(manifest.status());
  ToyModel back = ToyModel::Empty();
  ASSERT_OK(ToyModel::LoadShare(*path, *manifest, 0, 1, &back));
  EXPECT_TRUE(back == model);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir), {}), 1);
}

TEST(DirectoryTest, ReadersNeverSeeHalfACheckpointWhileOthersArePublishedAndPruned) {
  const std::string dir = FreshDir("readers");
  const ToyModel model = ToyModel::Make();
  ASSERT_OK(model.Save(dir, 1, 2).status());
  std::atomic<bool> stop{false};
  std::atomic<int> looks{0};
  std::string trouble;
  std::thread reader([&] {
    while (!stop || looks == 0) {
      const auto newest = FindNewestComplete(dir, "toy");
      if (!newest.ok()) trouble = newest.status().ToString();
      ++looks;
    }
  });
  for (int64_t step = 2; step < 40; ++step) {
    EXPECT_TRUE(model.Save(dir, step - step % 2, 2).ok());  // every second one replaces
    EXPECT_TRUE(PruneCheckpoints(dir, 1, 0).ok());
  }
  stop = true;
  reader.join();
  EXPECT_EQ(trouble, "");
  EXPECT_GT(looks, 0);
}

// The moves of PublishCheckpoint where two directories cannot be exchanged: the name is away for a moment, and comes
// back.
TEST(DirectoryTest, ReadersOutlastAReplacementByTwoMoves) {
  const std::string dir = FreshDir("moves");
  const std::string other = FreshDir("moves_other");
  const ToyModel model = ToyModel::Make();
  const auto path = model.Save(dir, 10, 2);
  ASSERT_OK(path.status());
  std::atomic<bool> stop{false};
  std::atomic<int> looks{0};
  std::string trouble;
  std::thread reader([&] {
    while (!stop || looks == 0) {
      const auto newest = FindNewestComplete(dir, "toy");
      if (!newest.ok()) trouble = newest.status().ToString();
      ++looks;
    }
  });
  for (int i = 0; i < 200; ++i) {
    const auto again = model.Save(other, 10, 2);
    EXPECT_TRUE(again.ok());
    if (!again.ok()) break;
    std::filesystem::rename(*again, dir + "/tmp-step-000000000010-0123456789abcdef");
    std::filesystem::rename(*path, dir + "/trash-step-000000000010-0123456789abcdef");
    std::filesystem::rename(dir + "/tmp-step-000000000010-0123456789abcdef", *path);
    std::filesystem::remove_all(dir + "/trash-step-000000000010-0123456789abcdef");
  }
  stop = true;
  reader.join();
  EXPECT_EQ(trouble, "");
}

TEST(DirectoryTest, ACheckpointIsOpenedByItselfUnderAnyName) {
  const std::string dir = FreshDir("renamed");
  const auto path = ToyModel::Make().Save(dir, 10, 1);
  ASSERT_OK(path.status());
  std::filesystem::rename(*path, dir + "/best");
  const auto renamed = OpenCheckpoint(dir + "/best");
  ASSERT_OK(renamed.status());
  EXPECT_EQ(renamed->manifest.step(), 10);
  // Without a manifest it is known by its name, and said to be damaged.
  std::filesystem::rename(dir + "/best", *path);
  std::filesystem::remove(*path + "/MANIFEST");
  EXPECT_THAT(std::string(OpenCheckpoint(*path).status().message()), HasSubstr("MANIFEST is missing"));
}

TEST(FileReaderTest, AFileThatEndsTooSoonIsDamaged) {
  const std::string path = FreshDir("short") + "/file";
  ASSERT_OK(WriteFileAtomically(path, "0123456789"));
  const auto reader = FileReader::Open(path);
  ASSERT_OK(reader.status());
  char last = 0;
  ASSERT_OK((*reader)->Read(9, &last, 1));
  EXPECT_EQ(last, '9');
  char more[10];
  const absl::Status cut = (*reader)->Read(5, more, sizeof(more));
  EXPECT_TRUE(absl::IsDataLoss(cut)) << cut;
  EXPECT_THAT(std::string(cut.message()), HasSubstr("ends at byte 10; 5 more bytes belong to it"));
}

// Between the two moves of a replacement there is nothing but what is on its way out.
TEST(DirectoryTest, ACheckpointThatIsAwayForAMomentIsWaitedFor) {
  for (const char* away : {"trash-step-000000000010-0123456789abcdef", "tmp-step-000000000010-0123456789abcdef"}) {
    const std::string dir = FreshDir("away");
    const auto path = ToyModel::Make().Save(dir, 10, 1);
    ASSERT_OK(path.status());
    std::filesystem::rename(*path, absl::StrCat(dir, "/", away));
    std::thread writer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      std::filesystem::rename(absl::StrCat(dir, "/", away), *path);
    });
    const auto newest = FindNewestComplete(dir, "toy");
    writer.join();
    EXPECT_TRUE(newest.ok()) << away << ": " << newest.status();
  }
}

TEST(DirectoryTest, TheLastAndTheBestAreKept) {
  const std::string dir = FreshDir("prune");
  const double aucs[] = {0.71, 0.75, 0.73, 0.75, 0.70, 0.69};
  for (int i = 0; i < 6; ++i) {
    v1::CheckpointManifest manifest;
    manifest.set_eval_auc(aucs[i]);
    ASSERT_OK(ToyModel::Make().Save(dir, 10 * (i + 1), 1, manifest).status());
  }
  ASSERT_OK(PruneCheckpoints(dir, /*keep_last=*/1, /*keep_best=*/2));
  EXPECT_THAT(Steps(dir), ElementsAre(20, 40, 60));
  ASSERT_OK(PruneCheckpoints(dir, /*keep_last=*/0, /*keep_best=*/1));
  EXPECT_THAT(Steps(dir), ElementsAre(40, 60));
}

TEST(DirectoryTest, AsManyOfTheLastAreKeptAsAreAskedFor) {
  for (const int keep_last : {1, 2, 3, 5}) {
    const std::string dir = FreshDir(absl::StrCat("prune_", keep_last));
    for (const int64_t step : {10, 20, 30, 40, 50, 60}) ASSERT_OK(ToyModel::Make().Save(dir, step, 1).status());
    ASSERT_OK(PruneCheckpoints(dir, keep_last, /*keep_best=*/0));
    std::vector<int64_t> last = {10, 20, 30, 40, 50, 60};
    last.erase(last.begin(), last.end() - keep_last);
    EXPECT_EQ(Steps(dir), last);
  }
}

// A run that has gone on at 700 publishes below what it went on from.
TEST(DirectoryTest, WhatWasJustPublishedIsNeverRemoved) {
  const std::string dir = FreshDir("prune_below");
  for (const int64_t step : {800, 900, 1000, 750}) ASSERT_OK(ToyModel::Make().Save(dir, step, 1).status());
  ASSERT_OK(PruneCheckpoints(dir, /*keep_last=*/3, /*keep_best=*/0, MissingFiles::kRefuse, /*published=*/750));
  EXPECT_THAT(Steps(dir), ElementsAre(750, 800, 900, 1000));
}

TEST(DirectoryTest, AfterAPublicationNothingHasAHigherNumber) {
  const std::string dir = FreshDir("prune_aside");
  for (const int64_t step : {600, 800, 900, 1000, 750}) ASSERT_OK(ToyModel::Make().Save(dir, step, 1).status());
  ASSERT_OK(SetAsideAndPrune(dir, 750, /*keep_last=*/1, /*keep_best=*/0));
  EXPECT_THAT(Steps(dir), ElementsAre(750));
  EXPECT_THAT(Steps(dir + "/earlier-1"), ElementsAre(800, 900, 1000));
  EXPECT_EQ(FindNewestComplete(dir, "toy")->found.step, 750);
  ASSERT_OK(ToyModel::Make().Save(dir, 800, 1).status());
  ASSERT_OK(SetAsideAndPrune(dir, 800, /*keep_last=*/2, /*keep_best=*/0));
  EXPECT_THAT(Steps(dir), ElementsAre(750, 800));
  EXPECT_FALSE(std::filesystem::exists(dir + "/earlier-2"));
}

TEST(DirectoryTest, RanksByAnotherFigureThanTheNewestOnesDoNotCount) {
  const std::string dir = FreshDir("prune_ranked");
  const std::pair<double, const char*> ranks[] = {{0.77, "auc"}, {-0.46, "loss"}, {-0.44, "loss"}, {-0.45, "loss"}};
  for (int i = 0; i < 4; ++i) {
    v1::CheckpointManifest manifest;
    manifest.set_eval_loss(0.4);
    manifest.set_eval_rank(ranks[i].first);
    manifest.set_eval_ranked_by(ranks[i].second);
    ASSERT_OK(ToyModel::Make().Save(dir, 10 * (i + 1), 1, manifest).status());
  }
  ASSERT_OK(PruneCheckpoints(dir, 1, 2));
  EXPECT_THAT(Steps(dir), ElementsAre(30, 40));
  ASSERT_OK(PruneCheckpoints(dir, 1, 1));
  EXPECT_THAT(Steps(dir), ElementsAre(30, 40));
}

TEST(DirectoryTest, WithoutAucTheLowestLossIsBest) {
  const std::string dir = FreshDir("prune_loss");
  const double losses[] = {0.5, 0.4, 0.6};
  for (int i = 0; i < 3; ++i) {
    v1::CheckpointManifest manifest;
    manifest.set_eval_loss(losses[i]);
    ASSERT_OK(ToyModel::Make().Save(dir, 10 * (i + 1), 1, manifest).status());
  }
  ASSERT_OK(PruneCheckpoints(dir, 1, 1));
  EXPECT_THAT(Steps(dir), ElementsAre(20, 30));
}

TEST(DirectoryTest, DamagedOnesDoNotCountAsKept) {
  const std::string dir = FreshDir("prune_damaged");
  for (const int64_t step : {10, 20, 30}) ASSERT_OK(ToyModel::Make().Save(dir, step, 1).status());
  CutFile(dir + "/step-000000000030/shard-00000", 5);
  ASSERT_OK(PruneCheckpoints(dir, 1, 0));
  EXPECT_THAT(Steps(dir), ElementsAre(20, 30));
}

TEST(DirectoryTest, AFreshRunSetsEarlierCheckpointsAside) {
  const std::string dir = FreshDir("aside");
  EXPECT_EQ(*SetEarlierCheckpointsAside(dir), "");
  ASSERT_OK(ToyModel::Make().Save(dir, 2000, 1).status());
  EXPECT_EQ(*SetEarlierCheckpointsAside(dir), dir + "/earlier-1");
  EXPECT_THAT(Steps(dir), IsEmpty());
  EXPECT_THAT(Steps(dir + "/earlier-1"), ElementsAre(2000));
  ASSERT_OK(VerifyCheckpoint(dir + "/earlier-1/step-000000002000").status());
  ASSERT_OK(ToyModel::Make().Save(dir, 100, 1).status());
  EXPECT_EQ(*SetEarlierCheckpointsAside(dir), dir + "/earlier-2");
}

TEST(DirectoryTest, AProbeProvesOneDirectoryAndItsAbsenceIsNamed) {
  const std::string dir = FreshDir("probe") + "/made", other = FreshDir("probe_other");
  const auto probe = WriteProbe(dir);
  ASSERT_OK(probe.status());
  EXPECT_EQ(*ReadProbe(dir, probe->name), probe->token);
  const absl::Status status = ReadProbe(other, probe->name).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("All processes must share one directory"));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadProbe(dir, "../secret").status()));
  RemoveProbe(dir, probe->name);
  EXPECT_FALSE(ReadProbe(dir, probe->name).ok());
}

}  // namespace
}  // namespace weir
