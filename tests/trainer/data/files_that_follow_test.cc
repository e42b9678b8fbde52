// Batches of files that appear while they are read: they are those of a reader that knew all files from the beginning.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/followed_files.h"
#include "trainer/data/lane_reader.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FilesThatFollowTest : public ::testing::Test {
 protected:
  LaneReaderOptions Options(const std::string& settings, int lanes = 2) {
    LaneReaderOptions options;
    options.spec = MakeSpec(absl::StrCat("train { files: 'f*' } follow {} ", kOneNumber, settings), dir_);
    options.spec.lanes = lanes;
    options.streams = {0, lanes};
    options.threads = 2;
    return options;
  }
  // A reader that knows no group yet. `starts`: null: at the first group.
  struct Following {
    std::shared_ptr<FollowedFiles> files;
    std::unique_ptr<LaneReader> reader;
  };
  Following Open(LaneReaderOptions options, const std::vector<StreamStart>* starts = nullptr) {
    int64_t next = 1;
    options.starts.assign(static_cast<size_t>(options.streams.count), StreamStart());
    if (starts != nullptr) options.starts = *starts;
    if (starts != nullptr) {
      next = std::min_element(starts->begin(), starts->end(), [](const StreamStart& a, const StreamStart& b) {
               return a.group < b.group;
             })->group;
    }
    Following following = {.files = std::make_shared<FollowedFiles>(options.streams, next)};
    options.followed = following.files;
    auto reader = LaneReader::Create(*Group(options.spec, {}), options);
    CHECK(reader.ok()) << reader.status();
    following.reader = *std::move(reader);
    return following;
  }
  static std::shared_ptr<const DataSet> Group(const DataSpec& spec, const std::vector<std::string>& names) {
    std::vector<FoundFile> found;
    for (const std::string& name : names) {
      found.push_back(
          {.name = name, .bytes = static_cast<int64_t>(std::filesystem::file_size(spec.directory + "/" + name))});
    }
    auto set = DataSet::OpenFound(spec.config, spec.config.train(), spec.directory, "data.train", found);
    CHECK(set.ok()) << set.status();
    return std::make_shared<const DataSet>(*std::move(set));
  }
  // Adds batches to `numbers`, until the reader has ended or has nothing more to give for a moment.
  static absl::Status Drain(LaneReader& reader, Numbers* numbers, absl::Duration patience = absl::Seconds(60)) {
    numbers->resize(static_cast<size_t>(reader.lanes()));
    std::vector<LaneBatch> batches;
    while (true) {
      const absl::Status status = reader.Next(patience, &batches);
      if (!status.ok() || reader.ended()) return status;
      for (size_t lane = 0; lane < batches.size(); ++lane) {
        if (batches[lane].ended) continue;
        const Tensor& x = std::get<Tensor>(batches[lane].vars[0]);
        (*numbers)[lane].emplace_back(x.span<float>().begin(), x.span<float>().end());
      }
    }
  }
  // Calls a Next that must be late, again until files are what it lacks; returns what it says.
  static absl::Status NextThatAwaitsFiles(LaneReader& reader) {
    const absl::Time end = Clock::Real()->Now() + absl::Seconds(60);
    std::vector<LaneBatch> batches;
    absl::Status late;
    do {
      late = reader.Next(absl::Milliseconds(30), &batches);
    } while (absl::IsDeadlineExceeded(late) && !reader.AwaitsFiles() && Clock::Real()->Now() < end);
    EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
    EXPECT_TRUE(reader.AwaitsFiles());
    return late;
  }
  // Adds the batches that there are before files have to come.
  static void DrainUntilFilesAreAwaited(LaneReader& reader, Numbers* numbers) {
    const absl::Time end = Clock::Real()->Now() + absl::Seconds(60);
    absl::Status drained;
    do {
      drained = Drain(reader, numbers, absl::Milliseconds(30));
    } while (absl::IsDeadlineExceeded(drained) && !reader.AwaitsFiles() && Clock::Real()->Now() < end);
    EXPECT_EQ(drained.code(), absl::StatusCode::kDeadlineExceeded) << drained;
    EXPECT_TRUE(reader.AwaitsFiles());
  }
  // Reads groups that are known from the beginning.
  Numbers ReadKnown(const LaneReaderOptions& options, const std::vector<std::vector<std::string>>& groups) {
    Following following = Open(options);
    for (const auto& names : groups) following.files->Add(Group(options.spec, names));
    following.files->Close();
    Numbers numbers;
    CHECK_EQ(Drain(*following.reader, &numbers), absl::OkStatus());
    return numbers;
  }
  // Reads groups each of which comes when all before it have been read.
  Numbers ReadAsTheyCome(const LaneReaderOptions& options, const std::vector<std::vector<std::string>>& groups) {
    Following following = Open(options);
    Numbers numbers;
    for (const auto& names : groups) {
      DrainUntilFilesAreAwaited(*following.reader, &numbers);
      following.files->Add(Group(options.spec, names));
    }
    DrainUntilFilesAreAwaited(*following.reader, &numbers);
    following.files->Close();
    EXPECT_EQ(Drain(*following.reader, &numbers), absl::OkStatus());
    EXPECT_FALSE(following.reader->AwaitsFiles());
    return numbers;
  }

  TempDir dir_;
};

TEST_F(FilesThatFollowTest, ABatchGoesOnWithTheNextGroup) {
  dir_.Write("f1", NumberLines(10, 15));
  dir_.Write("f2", NumberLines(20, 22));
  dir_.Write("f3", NumberLines(30, 36));
  const LaneReaderOptions options = Options("shuffle: NO_SHUFFLE batch_size: 4");
  const Numbers n = ReadAsTheyCome(options, {{"f1"}, {"f2"}, {"f3"}});
  // Rounds of lines go on from file to file.
  EXPECT_THAT(n[0], ElementsAre(ElementsAre(11, 13), ElementsAre(14, 30), ElementsAre(31, 33), ElementsAre(35)));
  EXPECT_THAT(n[1], ElementsAre(ElementsAre(10, 12), ElementsAre(20, 21), ElementsAre(32, 34)));
  EXPECT_EQ(ReadKnown(options, {{"f1"}, {"f2"}, {"f3"}}), n);
}

TEST_F(FilesThatFollowTest, WhenFilesAppearChangesNoBatch) {
  std::vector<std::vector<std::string>> each, pairs;
  for (int f = 0; f < 8; ++f) {
    const std::string name = absl::StrCat("f", f, f % 3 == 1 ? ".gz" : f % 3 == 2 ? ".zst" : "");
    const std::string text = NumberLines(100 * f, 100 * f + 37 * (f % 4));  // every fourth has no line
    dir_.Write(name, f % 3 == 1 ? Gzip(text) : f % 3 == 2 ? Zstd(text) : text);
    each.push_back({name});
    if (f % 2 == 0) pairs.emplace_back();
    pairs.back().push_back(name);
  }
  for (const char* settings : {"shuffle: NO_SHUFFLE batch_size: 12", "batch_size: 12", "batch_size: 300",
                               "shuffle: WINDOW shuffle_window: 5 batch_size: 9", "drop_last: true batch_size: 12"}) {
    for (const int lanes : {1, 3}) {
      const LaneReaderOptions options = Options(settings, lanes);
      EXPECT_EQ(ReadAsTheyCome(options, each), ReadKnown(options, each)) << settings << " lanes " << lanes;
      EXPECT_EQ(ReadAsTheyCome(options, pairs), ReadKnown(options, pairs)) << settings << " lanes " << lanes;
    }
  }
}

TEST_F(FilesThatFollowTest, EveryExampleIsGivenOnce) {
  std::vector<std::vector<std::string>> groups;
  std::vector<float> wanted;
  for (int f = 0; f < 6; ++f) {
    dir_.Write(absl::StrCat("f", f), NumberLines(100 * f, 100 * f + 40 + f));
    groups.push_back({absl::StrCat("f", f)});
    for (int i = 100 * f; i < 100 * f + 40 + f; ++i) wanted.push_back(static_cast<float>(i));
  }
  std::vector<float> given;
  for (const auto& lane : ReadAsTheyCome(Options("batch_size: 21", 3), groups)) {
    for (size_t b = 0; b < lane.size(); ++b) {
      EXPECT_TRUE(lane[b].size() == 7 || b + 1 == lane.size()) << "only the last batch may be short";
      given.insert(given.end(), lane[b].begin(), lane[b].end());
    }
  }
  std::sort(given.begin(), given.end());
  EXPECT_EQ(given, wanted);
}

TEST_F(FilesThatFollowTest, StreamsShareManySmallFilesEvenly) {
  std::vector<std::vector<std::string>> groups;
  int written = 0;
  for (int f = 0; f < 101; ++f) {
    // Never as many lines as streams.
    const std::string name = absl::StrCat("f", f, f % 5 == 0 ? ".gz" : "");
    const std::string text = NumberLines(written, written + f % 4);
    dir_.Write(name, f % 5 == 0 ? Gzip(text) : text);
    groups.push_back({name});
    written += f % 4;
  }
  const Numbers n = ReadKnown(Options("shuffle: NO_SHUFFLE batch_size: 8", 8), groups);
  std::vector<float> given;
  for (const auto& lane : n) {
    EXPECT_NEAR(static_cast<double>(lane.size()), written / 8.0, 1);
    for (const auto& batch : lane) given.push_back(batch[0]);
  }
  std::sort(given.begin(), given.end());
  for (int i = 0; i < written; ++i) EXPECT_EQ(given[static_cast<size_t>(i)], i);
}

TEST_F(FilesThatFollowTest, EachFileHasItsOwnHeader) {
  dir_.Write("f1", "x,y\n1,10\n2,20\n");
  dir_.Write("f2", "y,x\n30,3\n");
  dir_.Write("f3", "x\n4\n");
  LaneReaderOptions options = Options("", 1);
  options.spec.config =
      ParseData("train { files: 'f*' } follow {} csv { column { name: 'x' } } shuffle: NO_SHUFFLE batch_size: 2");
  EXPECT_THAT(ReadAsTheyCome(options, {{"f1"}, {"f2"}, {"f3"}})[0], ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4)));
}

TEST_F(FilesThatFollowTest, AStopLeavesOutTheBatchThatLacksExamples) {
  dir_.Write("f1", NumberLines(10, 17));
  Following following = Open(Options("shuffle: NO_SHUFFLE batch_size: 4"));
  following.files->Add(Group(Options("").spec, {"f1"}));
  Numbers numbers;
  // Stream 1 has four examples, which are two batches; stream 0 has three.
  DrainUntilFilesAreAwaited(*following.reader, &numbers);
  EXPECT_THAT(numbers[0], ElementsAre(ElementsAre(11, 13)));
  following.files->Stop();
  std::vector<LaneBatch> batches;
  ASSERT_EQ(following.reader->Next(absl::Seconds(60), &batches), absl::OkStatus());
  EXPECT_EQ(batches[1].examples, 2);
  EXPECT_FALSE(batches[1].stopped);
  EXPECT_EQ(batches[0].examples, 0);
  EXPECT_TRUE(batches[0].stopped && batches[0].ended);
  ASSERT_EQ(following.reader->Next(absl::Seconds(60), &batches), absl::OkStatus());
  EXPECT_TRUE(batches[0].stopped && batches[1].stopped && following.reader->ended());
}

TEST_F(FilesThatFollowTest, AnErrorComesAfterWhatIsThere) {
  dir_.Write("f1", NumberLines(10, 18));
  Following following = Open(Options("shuffle: NO_SHUFFLE batch_size: 4"));
  following.files->Add(Group(Options("").spec, {"f1"}));
  following.files->Fail(absl::DataLossError("the next file is cut"));
  Numbers numbers;
  EXPECT_THAT(Drain(*following.reader, &numbers), StatusIs(absl::StatusCode::kDataLoss, "the next file is cut"));
  EXPECT_THAT(numbers[0], ElementsAre(ElementsAre(11, 13), ElementsAre(14, 17)));
}

TEST_F(FilesThatFollowTest, AWaitForFilesIsNamed) {
  dir_.Write("f1", NumberLines(10, 13));
  Following following = Open(Options("shuffle: NO_SHUFFLE batch_size: 4"));
  following.files->Add(Group(Options("").spec, {"f1"}));
  EXPECT_THAT(std::string(NextThatAwaitsFiles(*following.reader).message()),
              HasSubstr("for data of stream 0 (new files)"));
  EXPECT_TRUE(following.files->awaited());
  following.files->Close();
  std::vector<LaneBatch> batches;
  ASSERT_EQ(following.reader->Next(absl::Seconds(60), &batches), absl::OkStatus());
  EXPECT_FALSE(following.files->awaited());
}

// It is late because of its disk, whatever another one waits for.
TEST_F(FilesThatFollowTest, AStreamThatIsStuckInAReadIsNotExcused) {
  dir_.Write("f1", NumberLines(10, 14));
  LaneReaderOptions options = Options("shuffle: NO_SHUFFLE batch_size: 4");
  Mutex mu;
  CondVar changed;
  bool stuck = true;
  options.before_batch = [&](int stream, int64_t batch) {
    if (stream != 1 || batch != 1) return;
    MutexLock lock(&mu);
    while (stuck) changed.Wait(&mu);
  };
  Following following = Open(options);
  following.files->Add(Group(options.spec, {"f1"}));
  std::vector<LaneBatch> batches;
  ASSERT_EQ(following.reader->Next(absl::Seconds(60), &batches), absl::OkStatus());
  EXPECT_FALSE(following.reader->Next(absl::Milliseconds(300), &batches).ok());
  EXPECT_FALSE(following.reader->AwaitsFiles());
  {
    MutexLock lock(&mu);
    stuck = false;
    changed.SignalAll();
  }
  NextThatAwaitsFiles(*following.reader).IgnoreError();
  // Files that are there and cannot be opened are no excuse either.
  following.files->SetOpening(true);
  EXPECT_FALSE(following.reader->Next(absl::Milliseconds(300), &batches).ok());
  EXPECT_FALSE(following.reader->AwaitsFiles());
  following.files->SetOpening(false);
  following.files->Close();
}

TEST_F(FilesThatFollowTest, AReaderThatIsDestroyedWhileItWaitsEnds) {
  Following following = Open(Options("batch_size: 4"));
  std::vector<LaneBatch> batches;
  EXPECT_FALSE(following.reader->Next(absl::Milliseconds(50), &batches).ok());
  following.reader = nullptr;
  following.files->Close();  // nobody listens any more
}

// From every step on a second reader gives what the first one has given from there.
TEST_F(FilesThatFollowTest, AStartAnywhereGivesWhatTheFirstRunGave) {
  std::vector<std::vector<std::string>> groups;
  for (int f = 0; f < 5; ++f) {
    dir_.Write(absl::StrCat("f", f), f == 2 ? "" : NumberLines(100 * f, 100 * f + 9 + 4 * f));
    groups.push_back({absl::StrCat("f", f)});
  }
  for (const char* settings : {"shuffle: NO_SHUFFLE batch_size: 6", "batch_size: 6", "batch_size: 32"}) {
    const LaneReaderOptions options = Options(settings);
    Following first = Open(options);
    for (const auto& names : groups) first.files->Add(Group(options.spec, names));
    first.files->Close();
    Numbers whole;
    ASSERT_EQ(Drain(*first.reader, &whole), absl::OkStatus());
    const std::vector<StreamReading> readings = first.files->Readings([](int) { return 0; });
    EXPECT_EQ(readings.size(), 2 * groups.size());
    const int64_t size = options.spec.StreamBatch(0);
    for (int64_t step = 0; step < static_cast<int64_t>(whole[0].size()); ++step) {
      std::vector<StreamStart> starts;
      for (int s = 0; s < 2; ++s) {
        StreamStart start = {.given = step * size, .batches = step};
        for (const StreamReading& reading : readings) {
          if (reading.stream != s || reading.examples > start.given) continue;
          start.group = reading.group + 1;
          start.before = reading.examples;
          start.dealt = reading.dealt;
        }
        starts.push_back(start);
      }
      Following later = Open(options, &starts);
      for (size_t g = static_cast<size_t>(later.files->next()); g <= groups.size(); ++g)
        later.files->Add(Group(options.spec, groups[g - 1]));
      later.files->Close();
      Numbers rest;
      ASSERT_EQ(Drain(*later.reader, &rest), absl::OkStatus());
      for (size_t s = 0; s < 2; ++s) {
        const auto from = whole[s].begin() + std::min<int64_t>(step, static_cast<int64_t>(whole[s].size()));
        EXPECT_EQ(rest[s], std::vector(from, whole[s].end())) << settings << " from step " << step;
      }
    }
  }
}

TEST(FollowedFilesTest, ReadingsBelowWhatIsKeptAreForgotten) {
  FollowedFiles files({0, 1}, 1);
  for (int64_t g = 1; g <= 5; ++g) files.HasRead({.stream = 0, .group = g, .examples = 10 * g});
  const auto groups = [&](int64_t keep) {
    std::vector<int64_t> kept;
    for (const StreamReading& reading : files.Readings([&](int) { return keep; })) kept.push_back(reading.group);
    return kept;
  };
  EXPECT_THAT(groups(0), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(groups(9), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(groups(34), ElementsAre(3, 4, 5));
  EXPECT_THAT(groups(1000), ElementsAre(5));
}

TEST(FollowedFilesTest, EachChangeIsToldOnce) {
  FollowedFiles files({0, 1}, 1);
  int changes = 0;
  files.OnChange([&] { ++changes; });
  files.SetAwaited(false);
  EXPECT_EQ(changes, 0);
  files.SetAwaited(true);
  files.SetAwaited(true);
  EXPECT_EQ(changes, 1);
  files.HasRead({.stream = 0, .group = 1});
  EXPECT_EQ(changes, 2);
  files.Close();
  EXPECT_EQ(changes, 3);
  files.OnChange(nullptr);
  files.SetAwaited(false);
  EXPECT_EQ(changes, 3);
}

TEST(FollowedFilesTest, WhatIsKnownOfAGroupThatHasNotCome) {
  const auto state = [](FollowedFiles& files) { return files.Find(0, 1)->state; };
  FollowedFiles closed({0, 1}, 1), stopped({0, 1}, 1), failed({0, 1}, 1);
  EXPECT_EQ(state(closed), FollowedFiles::Group::kUnknown);
  EXPECT_FALSE(closed.Knows(1));
  closed.Close();
  closed.Stop();
  EXPECT_EQ(state(closed), FollowedFiles::Group::kClosed) << "nothing is missing from its last batch";
  stopped.Stop();
  EXPECT_EQ(state(stopped), FollowedFiles::Group::kStopped);
  failed.Fail(absl::NotFoundError("first"));
  failed.Fail(absl::NotFoundError("second"));
  EXPECT_EQ(failed.Find(0, 1).status().message(), "first");
  EXPECT_TRUE(closed.Knows(1) && stopped.Knows(1) && failed.Knows(1));
}

TEST_F(FilesThatFollowTest, AFileThatHasChangedSinceItWasFoundIsRefused) {
  dir_.Write("f1", NumberLines(10, 13));
  const DataSpec spec = Options("").spec;
  const auto open = [&](int64_t bytes, uint64_t sample) {
    return DataSet::OpenFound(spec.config, spec.config.train(), spec.directory, "data.train",
                              {{.name = "f1", .bytes = bytes, .sample = sample, .version = ""}});
  };
  const auto good = open(15, 0);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_TRUE(open(15, good->files()[0].sample).ok());
  EXPECT_THAT(open(14, 0).status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                             HasSubstr("data.train: 'f1' had 14 bytes when the chief took it, and has "
                                                       "15 here: give all trainers the same files")));
  EXPECT_THAT(open(15, 1).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has 15 here with other contents")));
}

}  // namespace
}  // namespace weir
