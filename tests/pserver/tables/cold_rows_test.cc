#include "pserver/tables/cold_rows.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/env.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

uint64_t Mixed(int64_t id) { return MixId(static_cast<uint64_t>(id)); }

class ColdRowsTest : public ::testing::Test {
 protected:
  ColdRowsTest() : directory_(absl::StrCat(::testing::TempDir(), "/cold_rows.", getpid(), "/rows")) {}
  ~ColdRowsTest() override { fs::remove_all(fs::path(directory_).parent_path()); }

  std::unique_ptr<ColdRows> Open(int64_t row_bytes, rocksdb::Env* env = nullptr) {
    absl::StatusOr<std::unique_ptr<ColdRows>> rows = OpenColdRows(
        {.table = "t", .directory = directory_, .row_bytes = row_bytes, .memory_bytes = 1 << 20, .env = env});
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? *std::move(rows) : nullptr;
  }

  const std::string directory_;
};

// Row of `bytes` that says whose it is and which edition.
std::string Row(int64_t id, int edition, size_t bytes) {
  std::string row(bytes, '\0');
  std::mt19937_64 random(static_cast<uint64_t>(id) * 1000 + static_cast<uint64_t>(edition));
  for (char& c : row) c = static_cast<char>(random());
  return row;
}

std::string Joined(const std::vector<int64_t>& ids, int edition, size_t bytes) {
  std::string rows;
  for (int64_t id : ids) rows += Row(id, edition, bytes);
  return rows;
}

TEST_F(ColdRowsTest, WhatWasPutIsGotAndTheRestIsLeftAlone) {
  const auto rows = Open(4);
  ASSERT_TRUE(rows->Put({kMin, 7, kMax}, "lowlsevnhigh").ok());
  std::string out = "................";
  std::vector<uint8_t> found(4, 9);
  ASSERT_TRUE(rows->Get({7, 8, kMax, kMin}, out.data(), found.data()).ok());
  EXPECT_EQ(out, "sevn....highlowl");
  EXPECT_THAT(found, ElementsAre(1, 0, 1, 1));
  ASSERT_TRUE(rows->Delete({7, 8}).ok());
  ASSERT_TRUE(rows->Get({7}, out.data(), found.data()).ok());
  EXPECT_EQ(found[0], 0);
  const ColdRows::Counts counts = rows->counts();
  EXPECT_EQ(counts.asked, 5);
  EXPECT_EQ(counts.found, 3);
  EXPECT_EQ(counts.put, 3);
  EXPECT_EQ(counts.deleted, 2);
}

TEST_F(ColdRowsTest, RandomOperationsGiveWhatAMapGives) {
  constexpr size_t kBytes = 200;
  const auto rows = Open(kBytes);
  std::map<int64_t, int> model;  // editions
  std::mt19937_64 random(1);
  const auto pick = [&] {
    std::vector<int64_t> ids(1 + random() % 700);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % 20000) - 10000;
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    if (random() % 2 == 0) std::shuffle(ids.begin(), ids.end(), random);
    return ids;
  };
  std::string out;
  std::vector<uint8_t> found;
  for (int step = 0; step < 600; ++step) {
    const std::vector<int64_t> ids = pick();
    switch (random() % 4) {
      case 0:
      case 1:
        ASSERT_TRUE(rows->Put(ids, Joined(ids, step, kBytes).data()).ok());
        for (int64_t id : ids) model[id] = step;
        break;
      case 2:
        if (step % 3 == 0) {
          ASSERT_TRUE(rows->Delete(ids).ok());
          for (int64_t id : ids) model.erase(id);
        }
        break;
      default:
        out.assign(ids.size() * kBytes, '.');
        found.assign(ids.size(), 9);
        ASSERT_TRUE(rows->Get(ids, out.data(), found.data()).ok());
        for (size_t i = 0; i < ids.size(); ++i) {
          const auto at = model.find(ids[i]);
          ASSERT_EQ(found[i], at != model.end()) << ids[i];
          ASSERT_EQ(out.substr(i * kBytes, kBytes),
                    found[i] ? Row(ids[i], at->second, kBytes) : std::string(kBytes, '.'))
              << ids[i];
        }
    }
    if (step == 300) {
      ASSERT_TRUE(rows->Clear().ok());
      model.clear();
    }
    if (step % 50 != 0) continue;
    const uint64_t first = random() >> 1, last = first + (random() >> 1);
    std::map<int64_t, std::string> visited;
    uint64_t before = 0;
    ASSERT_TRUE(rows->Visit(first, last,
                            [&](int64_t id, const char* row) {
                              EXPECT_GE(Mixed(id), before);
                              before = Mixed(id);
                              visited[id] = std::string(row, kBytes);
                            })
                    .ok());
    std::map<int64_t, std::string> expected;
    for (const auto& [id, edition] : model) {
      if (Mixed(id) >= first && Mixed(id) <= last) expected[id] = Row(id, edition, kBytes);
    }
    EXPECT_EQ(visited, expected);
  }
  EXPECT_GT(rows->counts().disk_bytes, 1 << 20);
}

TEST_F(ColdRowsTest, ClearLeavesNothingInMemoryOrFiles) {
  const auto rows = Open(1000);
  std::vector<int64_t> ids(10000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  ASSERT_TRUE(rows->Put(ids, Joined(ids, 0, 1000).data()).ok());
  ASSERT_TRUE(rows->Clear().ok());
  int visited = 0;
  ASSERT_TRUE(rows->Visit(0, UINT64_MAX, [&](int64_t, const char*) { ++visited; }).ok());
  EXPECT_EQ(visited, 0);
  EXPECT_LT(rows->counts().disk_bytes, 100000);
  ASSERT_TRUE(rows->Put({1}, std::string(1000, 'x').data()).ok());
  ASSERT_TRUE(rows->Visit(0, UINT64_MAX, [&](int64_t id, const char*) { visited += static_cast<int>(id); }).ok());
  EXPECT_EQ(visited, 1);
}

TEST_F(ColdRowsTest, FilesGoWithTheirOwner) {
  {
    const auto rows = Open(8);
    ASSERT_TRUE(rows->Put({1}, "12345678").ok());
    EXPECT_FALSE(fs::is_empty(directory_));
  }
  EXPECT_TRUE(!fs::exists(directory_) || fs::is_empty(directory_));
}

TEST_F(ColdRowsTest, ReadersSeeWholeRowsWhileOthersWrite) {
  constexpr size_t kBytes = 256;
  const auto rows = Open(kBytes);
  std::vector<int64_t> ids(2000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  std::string all(ids.size() * kBytes, 'a');
  ASSERT_TRUE(rows->Put(ids, all.data()).ok());
  std::atomic<bool> done{false};
  std::thread reader([&] {
    std::string out(ids.size() * kBytes, '.');
    std::vector<uint8_t> found(ids.size());
    while (!done) {
      ASSERT_TRUE(rows->Get(ids, out.data(), found.data()).ok());
      for (size_t i = 0; i < ids.size(); ++i) {
        ASSERT_EQ(found[i], 1);
        ASSERT_EQ(out.find_first_not_of(out[i * kBytes], i * kBytes) >= (i + 1) * kBytes, true);
      }
    }
  });
  for (char c = 'b'; c <= 'z'; ++c) {
    std::fill(all.begin(), all.end(), c);
    EXPECT_TRUE(rows->Put(ids, all.data()).ok());
  }
  done = true;
  reader.join();
}

TEST_F(ColdRowsTest, ADamagedFileIsDataLoss) {
  const auto rows = Open(1000);
  std::vector<int64_t> ids(8000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  ASSERT_TRUE(rows->Put(ids, Joined(ids, 0, 1000).data()).ok());
  std::vector<int64_t> more = {100000};
  // Until the last buffer has been written.
  for (int i = 0; i < 4000; ++i) ASSERT_TRUE(rows->Put(more, std::string(1000, 'x').data()).ok());
  // Files are merged in the background: what is damaged may be gone before it is read, so all of them are damaged until
  // it is seen.
  absl::Status status;
  for (int i = 0; i < 200 && status.ok(); ++i) {
    for (const fs::directory_entry& file : fs::directory_iterator(directory_)) {
      std::error_code gone;
      const auto size = fs::file_size(file.path(), gone);
      if (gone || file.path().extension() != ".sst") continue;
      std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      for (int64_t at = 100; at < static_cast<int64_t>(size) / 2; at += 1000) {
        bytes.seekp(at);
        bytes.write("damage", 6);
      }
    }
    std::string out(ids.size() * 1000, '.');
    std::vector<uint8_t> found(ids.size());
    status = rows->Get(ids, out.data(), found.data());
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("table t"), HasSubstr(directory_), HasSubstr("set disk.dir"), HasSubstr("--resume")));
}

// A disk of so many bytes. Nothing is ever freed.
class SmallDisk : public rocksdb::EnvWrapper {
 public:
  explicit SmallDisk(int64_t bytes) : EnvWrapper(rocksdb::Env::Default()), left_(bytes) {}

  rocksdb::Status NewWritableFile(const std::string& name, std::unique_ptr<rocksdb::WritableFile>* file,
                                  const rocksdb::EnvOptions& options) override {
    std::unique_ptr<rocksdb::WritableFile> opened;
    const rocksdb::Status status = EnvWrapper::NewWritableFile(name, &opened, options);
    if (status.ok()) *file = std::make_unique<File>(std::move(opened), &left_);
    return status;
  }

 private:
  class File : public rocksdb::WritableFileWrapper {
   public:
    File(std::unique_ptr<rocksdb::WritableFile> file, std::atomic<int64_t>* left)
        : WritableFileWrapper(file.get()), file_(std::move(file)), left_(left) {}
    rocksdb::Status Append(const rocksdb::Slice& data) override {
      if ((*left_ -= static_cast<int64_t>(data.size())) < 0)
        return rocksdb::Status::NoSpace("append", "no space is left");
      return file_->Append(data);
    }
    rocksdb::Status Append(const rocksdb::Slice& data, const rocksdb::DataVerificationInfo&) override {
      return Append(data);
    }

   private:
    const std::unique_ptr<rocksdb::WritableFile> file_;
    std::atomic<int64_t>* const left_;
  };
  std::atomic<int64_t> left_;
};

TEST_F(ColdRowsTest, AFullDiskIsResourceExhaustedAndSaysWhatToDo) {
  SmallDisk disk(8 << 20);
  const auto rows = Open(1000, &disk);
  ASSERT_NE(rows, nullptr);
  absl::Status status;
  std::vector<int64_t> ids(100);
  // Twelve times the disk, so that no buffer hides it.
  for (int64_t i = 0; i < 1000 && status.ok(); ++i) {
    for (size_t k = 0; k < ids.size(); ++k) ids[k] = 100 * i + static_cast<int64_t>(k);
    status = rows->Put(ids, Joined(ids, 0, 1000).data());
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("table t, rows on disk in " + directory_), HasSubstr("no space is left"),
                    HasSubstr("disk is full: free some")));
}

TEST_F(ColdRowsTest, ADirectoryThatCannotBeMadeIsNamed) {
  fs::create_directories(fs::path(directory_).parent_path());
  std::ofstream(directory_) << "a file";
  const absl::Status status = OpenColdRows({.table = "t", .directory = directory_, .row_bytes = 4}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_));
}

// Not a test: another process of this program, which ends by a signal.
TEST(ColdRowsHolder, DISABLED_HoldsTheDirectory) {
  const char* const directory = getenv("COLD_ROWS_DIRECTORY");
  ASSERT_NE(directory, nullptr);
  auto rows = OpenColdRows({.table = "t", .directory = directory, .row_bytes = 1000, .memory_bytes = 1 << 20});
  ASSERT_TRUE(rows.ok()) << rows.status();
  std::vector<int64_t> ids(10000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  ASSERT_TRUE((*rows)->Put(ids, Joined(ids, 0, 1000).data()).ok());
  ASSERT_EQ(write(atoi(getenv("COLD_ROWS_READY")), "r", 1), 1);
  alarm(60);
  while (true) pause();
}

// Process that has the directory.
class OtherServer {
 public:
  explicit OtherServer(const std::string& directory) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    setenv("COLD_ROWS_DIRECTORY", directory.c_str(), 1);
    setenv("COLD_ROWS_READY", std::to_string(ready[1]).c_str(), 1);
    pid_ = fork();
    if (pid_ == 0) {
      execl("/proc/self/exe", "cold_rows_test", "--gtest_also_run_disabled_tests", "--gtest_filter=ColdRowsHolder.*",
            "--gtest_output=", nullptr);
      _exit(127);
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1) << "the other process ended";
    close(ready[0]);
  }
  ~OtherServer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// Kills a process when the log names it, and keeps the line.
class KillWhenNamed : public google::LogSink {
 public:
  explicit KillWhenNamed(pid_t pid) : pid_(pid) { google::AddLogSink(this); }
  ~KillWhenNamed() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity, const char*, const char*, int, const google::LogMessageTime&, const char* message,
            size_t size) override {
    const std::string line(message, size);
    if (line.find(absl::StrCat("process ", pid_, " (")) == std::string::npos) return;
    line_ = line;
    kill(pid_, SIGKILL);
  }
  const std::string& line() const { return line_; }

 private:
  const pid_t pid_;
  std::string line_;
};

TEST_F(ColdRowsTest, ADirectoryThatAnotherProcessKeepsIsUnavailableAfterTheWait) {
  const OtherServer other(directory_);
  const absl::Time begin = Clock::Real()->Now();
  const absl::Status held =
      OpenColdRows({.table = "t", .directory = directory_, .row_bytes = 1000, .lock_wait = absl::Milliseconds(200)})
          .status();
  EXPECT_GE(Clock::Real()->Now() - begin, absl::Milliseconds(200));
  EXPECT_EQ(held.code(), absl::StatusCode::kUnavailable) << held;
  EXPECT_THAT(std::string(held.message()),
              AllOf(HasSubstr(directory_ + "/LOCK"), HasSubstr("after 200ms it is still held by "),
                    HasSubstr("end that server and start again with --resume, or set another disk.dir")));
}

TEST_F(ColdRowsTest, AProcessThatIsEndingIsWaitedForAndWhatItLeftIsEmptied) {
  const OtherServer other(directory_);
  const KillWhenNamed killer(other.pid());
  const absl::StatusOr<std::unique_ptr<ColdRows>> rows =
      OpenColdRows({.table = "t", .directory = directory_, .row_bytes = 1000, .lock_wait = absl::Seconds(30)});
  if (killer.line().empty()) GTEST_SKIP() << "/proc/locks does not name the process that has " << directory_;
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(killer.line(),
              AllOf(HasSubstr("table t, rows on disk in " + directory_),
                    HasSubstr("waits for " + directory_ + "/LOCK, held by process "), HasSubstr(", for 0 of 30s")));
  int visited = 0;
  ASSERT_TRUE((*rows)->Visit(0, UINT64_MAX, [&](int64_t, const char*) { ++visited; }).ok());
  EXPECT_EQ(visited, 0);
}

TEST_F(ColdRowsTest, WhatAKilledProcessLeftIsEmptied) {
  { const OtherServer killed(directory_); }
  EXPECT_FALSE(fs::is_empty(directory_));
  const auto rows = Open(1000);
  ASSERT_NE(rows, nullptr);
  int visited = 0;
  ASSERT_TRUE(rows->Visit(0, UINT64_MAX, [&](int64_t, const char*) { ++visited; }).ok());
  EXPECT_EQ(visited, 0);
}

// Nobody would release it.
TEST_F(ColdRowsTest, ADirectoryOfThisProcessIsNotWaitedFor) {
  const auto rows = Open(1000);
  const absl::Status second =
      OpenColdRows({.table = "u", .directory = directory_, .row_bytes = 1000, .lock_wait = absl::Hours(1)}).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition) << second;
  EXPECT_THAT(std::string(second.message()),
              AllOf(HasSubstr("table u, rows on disk in " + directory_), HasSubstr("another disk.dir")));
}

}  // namespace
}  // namespace weir
