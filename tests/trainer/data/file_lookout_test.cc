// Looks for files that appear: which are taken, in which order, and when no more come.

#include "trainer/data/file_lookout.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/files/data_set.h"
#include "trainer/files/piped_command.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kEvery = 0.03;  // seconds between looks

class FileLookoutTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir_.path() + "/in"); }
  v1::Data Data(const std::string& more = "until: 'in/DONE'", const std::string& settings = "") {
    return ParseData(absl::StrCat("train { files: 'in/*.txt' } follow { look_every_s: ", kEvery, " ", more, " } ",
                                  kOneNumber, settings));
  }
  void Write(const std::string& name, const std::string& text = "1 1\n") { dir_.Write("in/" + name, text); }
  // What a lookout has found, over all calls of Take.
  struct Seen {
    std::vector<std::string> files;
    bool closed = false;
    std::string changing;
    absl::Status trouble, failure;
  };
  static void Take(FileLookout& lookout, Seen* seen) {
    const FileLookout::News news = lookout.Take();
    for (const FoundFile& file : news.files) seen->files.push_back(file.name);
    seen->closed |= news.closed;
    seen->changing = news.changing;
    seen->trouble = news.trouble;
    seen->failure = news.failure;
  }
  static bool Await(FileLookout& lookout, Seen* seen, const std::function<bool()>& done) {
    const absl::Time deadline = Clock::Real()->Now() + absl::Seconds(60);
    while (Clock::Real()->Now() < deadline) {
      Take(lookout, seen);
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  // Time in which several looks are made.
  static void SeveralLooks() {
    std::this_thread::sleep_for(std::chrono::milliseconds(static_cast<int>(8000 * kEvery)));
  }

  TempDir dir_;
};

TEST_F(FileLookoutTest, FilesAreTakenInOrderOfNamesAndOnce) {
  Write("b.txt");
  Write("a.txt");
  Write("other.csv");
  FileLookout lookout(Data(), dir_.path(), "");
  Seen seen;
  ASSERT_TRUE(Await(lookout, &seen, [&] { return seen.files.size() == 2; }));
  Write("c.txt");
  ASSERT_TRUE(Await(lookout, &seen, [&] { return seen.files.size() == 3; }));
  SeveralLooks();
  Take(lookout, &seen);
  EXPECT_THAT(seen.files, ElementsAre("in/a.txt", "in/b.txt", "in/c.txt"));
  EXPECT_FALSE(seen.closed);
}

TEST_F(FileLookoutTest, NewsIsThereWhenALookIsTold) {
  Write("a.txt");
  Mutex mu;
  CondVar changed;
  int looks = 0;
  FileLookout lookout(Data(), dir_.path(), "", [&] {
    MutexLock lock(&mu);
    ++looks;
    changed.SignalAll();
  });
  {
    // A file is taken at the second look at it.
    MutexLock lock(&mu);
    const absl::Time deadline = Clock::Real()->Now() + absl::Seconds(60);
    while (looks < 2 && Clock::Real()->Now() < deadline) changed.WaitWithTimeout(&mu, absl::Seconds(1));
  }
  Seen seen;
  Take(lookout, &seen);
  EXPECT_THAT(seen.files, ElementsAre("in/a.txt"));
}

TEST_F(FileLookoutTest, FilesUpToANameAreNotTakenAgain) {
  for (const char* name : {"a.txt", "b.txt", "c.txt"}) Write(name);
  FileLookout lookout(Data(), dir_.path(), "in/b.txt");
  Seen seen;
  ASSERT_TRUE(Await(lookout, &seen, [&] { return !seen.files.empty(); }));
  EXPECT_THAT(seen.files, ElementsAre("in/c.txt"));
}

TEST_F(FileLookoutTest, AFileThatGrowsHoldsUpThoseBehindIt) {
  AllowPipes();
  // b grows from look to look, however late a look is, until it is whole.
  const std::string bytes = dir_.path() + "/bytes", whole = dir_.path() + "/whole";
  dir_.Write("bytes", "1");
  const std::string list =
      absl::StrCat("n=$(cat ", bytes, "); test -e ", whole, " || echo $((n + 1)) > ", bytes,
                   "; printf 'in/a.txt\\t1\\tv1\\nin/b.txt\\t%d\\tv1\\nin/c.txt\\t1\\tv1\\n' $n #{}");
  FileLookout lookout(Data("", absl::StrCat("pipe: 'cat {}' pipe_list: \"", absl::CEscape(list), "\"")), dir_.path(),
                      "");
  Seen seen;
  EXPECT_TRUE(Await(lookout, &seen, [&] { return !seen.files.empty(); }));
  SeveralLooks();
  Take(lookout, &seen);
  EXPECT_THAT(seen.files, ElementsAre("in/a.txt"));
  EXPECT_EQ(seen.changing, "in/b.txt");
  dir_.Write("whole", "");
  EXPECT_TRUE(Await(lookout, &seen, [&] { return seen.files.size() == 3; }));
  EXPECT_THAT(seen.files, ElementsAre("in/a.txt", "in/b.txt", "in/c.txt"));
}

TEST_F(FileLookoutTest, ALookTellsAFileThatHasGrown) {
  const v1::Data data = Data();
  Write("a.txt", "1 1\n");
  const auto before = DataSet::Look(data, data.train(), dir_.path(), "data.train.files");
  const auto same = DataSet::Look(data, data.train(), dir_.path(), "data.train.files");
  Write("a.txt", "1 1\n1 2\n");
  const auto after = DataSet::Look(data, data.train(), dir_.path(), "data.train.files");
  ASSERT_TRUE(before.ok() && same.ok() && after.ok()) << before.status() << same.status() << after.status();
  ASSERT_EQ(before->size(), 1u);
  ASSERT_EQ(after->size(), 1u);
  EXPECT_EQ((*before)[0].bytes, (*same)[0].bytes);
  EXPECT_EQ((*before)[0].version, (*same)[0].version);
  EXPECT_EQ((*before)[0].bytes, 4);
  EXPECT_EQ((*after)[0].bytes, 8);
}

TEST_F(FileLookoutTest, TheFileOfUntilMakesTheOthersTheLast) {
  Write("a.txt");
  Write("b.txt");
  Write("DONE", "");
  FileLookout lookout(Data(), dir_.path(), "");
  Seen seen;
  // At the first look: nothing more can change.
  ASSERT_TRUE(Await(lookout, &seen, [&] { return seen.closed; }));
  EXPECT_THAT(seen.files, ElementsAre("in/a.txt", "in/b.txt"));
  Write("c.txt");
  SeveralLooks();
  Take(lookout, &seen);
  EXPECT_EQ(seen.files.size(), 2u);
}

TEST_F(FileLookoutTest, TheFileOfUntilIsNoData) {
  Write("a.txt");
  Write("DONE.txt");
  FileLookout lookout(Data("until: 'in/*DONE*'"), dir_.path(), "");
  Seen seen;
  ASSERT_TRUE(Await(lookout, &seen, [&] { return seen.closed; }));
  EXPECT_THAT(seen.files, ElementsAre("in/a.txt"));
}

TEST_F(FileLookoutTest, AFileThatComesTooLateIsNeverTaken) {
  Write("b.txt");
  FileLookout lookout(Data(), dir_.path(), "");
  Seen seen;
  ASSERT_TRUE(Await(lookout, &seen, [&] { return seen.files.size() == 1; }));
  testing::internal::CaptureStderr();
  Write("a.txt");
  Write("c.txt");
  EXPECT_TRUE(Await(lookout, &seen, [&] { return seen.files.size() == 2; }));
  SeveralLooks();
  Take(lookout, &seen);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(seen.files, ElementsAre("in/b.txt", "in/c.txt"));
  const size_t first = log.find("'in/a.txt' is never read: it has appeared after 'in/b.txt' was taken");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("is never read", first + 100), std::string::npos) << "said once: " << log;
}

TEST_F(FileLookoutTest, ADirectoryMayComeLater) {
  v1::Data data = Data();
  fs::remove(dir_.path() + "/in");
  FileLookout lookout(data, dir_.path(), "");
  SeveralLooks();
  Seen seen;
  Take(lookout, &seen);
  EXPECT_TRUE(seen.failure.ok() && seen.trouble.ok()) << seen.failure << seen.trouble;
  fs::create_directories(dir_.path() + "/in");
  Write("a.txt");
  EXPECT_TRUE(Await(lookout, &seen, [&] { return seen.files.size() == 1; }));
}

TEST_F(FileLookoutTest, ACommandThatFailsIsTriedAgain) {
  AllowPipes();
  const std::string flag = dir_.path() + "/up";
  const std::string list =
      absl::StrCat("test -e ", flag, " && printf 's3://b/1.csv\\t10\\tv1\\n' || { echo down >&2; exit 7; } #{}");
  FileLookout lookout(Data("", absl::StrCat("pipe: 'cat {}' pipe_list: \"", absl::CEscape(list), "\"")), dir_.path(),
                      "");
  Seen seen;
  ASSERT_TRUE(Await(lookout, &seen, [&] { return !seen.trouble.ok(); }));
  EXPECT_THAT(std::string(seen.trouble.message()), HasSubstr("down"));
  EXPECT_TRUE(seen.failure.ok());
  dir_.Write("up", "");
  ASSERT_TRUE(Await(lookout, &seen, [&] { return seen.files.size() == 1; }));
  EXPECT_EQ(seen.files[0], "s3://b/1.csv");
  EXPECT_TRUE(seen.trouble.ok());
}

TEST_F(FileLookoutTest, AListingThatIsNoneEndsTheLooks) {
  AllowPipes();
  FileLookout lookout(Data("", "pipe: 'cat {}' pipe_list: 'echo nonsense #{}'"), dir_.path(), "");
  Seen seen;
  ASSERT_TRUE(Await(lookout, &seen, [&] { return !seen.failure.ok(); }));
  EXPECT_THAT(seen.failure, StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("data.train.files: a line of data.pipe_list for 'in/*.txt'")));
}

}  // namespace
}  // namespace weir
