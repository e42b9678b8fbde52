#include "framework/checkpoint/directory_lock.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

class DirectoryLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "/directory_lock." + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string dir_;
};

TEST_F(DirectoryLockTest, ADirectoryThatIsMissingIsMade) {
  const auto lock = DirectoryLock::Take(dir_ + "/a/b");
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_TRUE(fs::is_directory(dir_ + "/a/b"));
}

TEST_F(DirectoryLockTest, AnotherTakesTheLockWhenItsHolderIsDone) {
  auto lock = DirectoryLock::Take(dir_);
  ASSERT_TRUE(lock.ok()) << lock.status();
  std::atomic<bool> begun = false, given_back = false;
  std::thread other([&] {
    begun = true;
    const auto second = DirectoryLock::Take(dir_);
    EXPECT_TRUE(second.ok()) << second.status();
    EXPECT_TRUE(given_back);
  });
  while (!begun) std::this_thread::yield();
  given_back = true;
  lock->reset();
  other.join();
}

TEST_F(DirectoryLockTest, LocksOfTwoDirectoriesAreHeldAtOnce) {
  const auto first = DirectoryLock::Take(dir_ + "/a"), second = DirectoryLock::Take(dir_ + "/b");
  EXPECT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(second.ok()) << second.status();
}

TEST_F(DirectoryLockTest, AFileIsNoDirectory) {
  std::ofstream(dir_) << "a file";
  const auto lock = DirectoryLock::Take(dir_);
  ASSERT_FALSE(lock.ok());
  EXPECT_NE(lock.status().message().find(dir_), std::string::npos) << lock.status();
}

}  // namespace
}  // namespace weir
