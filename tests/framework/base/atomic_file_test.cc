#include "framework/base/atomic_file.h"

#include <sys/stat.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = CreateUniqueDirectory(::testing::TempDir(), "atomic.");
    ASSERT_TRUE(made.ok()) << made.status();
    dir_ = *made;
  }
  void TearDown() override { EXPECT_TRUE(RemoveTree(dir_).ok()); }

  std::string Path(const std::string& name) const { return JoinPath(dir_, name); }
  std::vector<std::string> Names() const { return ListDirectory(dir_).value(); }

  std::string dir_;
};

TEST_F(AtomicFileTest, WhatIsWrittenIsRead) {
  const std::string data("\0binary\n", 8);
  ASSERT_TRUE(WriteFileAtomically(Path("a"), data).ok());
  EXPECT_EQ(ReadWholeFile(Path("a")).value(), data);
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(AtomicFileTest, NothingIsSeenBeforeCommitAndNothingLeftWithoutIt) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "old").ok());
  {
    auto file = AtomicFile::Create(Path("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Append("new and unfinished").ok());
    EXPECT_EQ(ReadWholeFile(Path("a")).value(), "old");
  }
  EXPECT_EQ(ReadWholeFile(Path("a")).value(), "old");
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(AtomicFileTest, CommitReplacesOnce) {
  auto file = AtomicFile::Create(Path("a"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("one ").ok());
  ASSERT_TRUE((*file)->Append("two").ok());
  EXPECT_EQ((*file)->size(), 7u);
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(ReadWholeFile(Path("a")).value(), "one two");
  EXPECT_EQ((*file)->Commit().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*file)->Append("x").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(AtomicFileTest, ErrorsNameThePath) {
  EXPECT_EQ(ReadWholeFile(Path("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadWholeFile(Path("none")).status().message()), HasSubstr(Path("none")));
  EXPECT_EQ(WriteFileAtomically(Path("no/where"), "x").code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ReadWholeFile(dir_).ok());
}

TEST_F(AtomicFileTest, ALimitIsKept) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "12345").ok());
  EXPECT_EQ(ReadWholeFile(Path("a"), 5).value(), "12345");
  EXPECT_EQ(ReadWholeFile(Path("a"), 4).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(AtomicFileTest, ADirectoryIsPublishedWholeAndNeverOverAnother) {
  const std::string first = CreateUniqueDirectory(dir_, "tmp.").value();
  ASSERT_TRUE(CreateDirectories(JoinPath(first, "sub/deep")).ok());
  ASSERT_TRUE(WriteFileAtomically(JoinPath(first, "sub/deep/f"), "x").ok());
  ASSERT_TRUE(PublishDirectory(first, Path("step-1")).ok());
  EXPECT_EQ(ReadWholeFile(Path("step-1/sub/deep/f")).value(), "x");
  EXPECT_THAT(Names(), ElementsAre("step-1"));

  const std::string second = CreateUniqueDirectory(dir_, "tmp.").value();
  EXPECT_EQ(PublishDirectory(second, Path("step-1")).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(PathExists(second));
  EXPECT_EQ(ReadWholeFile(Path("step-1/sub/deep/f")).value(), "x");
}

TEST_F(AtomicFileTest, UniqueDirectoriesDiffer) {
  EXPECT_NE(CreateUniqueDirectory(dir_, "p.").value(), CreateUniqueDirectory(dir_, "p.").value());
  EXPECT_EQ(CreateUniqueDirectory(Path("none"), "p.").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(AtomicFileTest, FilesHaveTheModeOfTheProcess) {
  const mode_t before = umask(027);
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "x").ok());
  umask(before);
  struct stat info;
  ASSERT_EQ(stat(Path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(AtomicFileTest, DirectoriesAreMadeAndRemovedTwiceWithoutHarm) {
  EXPECT_TRUE(CreateDirectories(Path("x/y")).ok());
  EXPECT_TRUE(CreateDirectories(Path("x/y")).ok());
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "").ok());
  EXPECT_FALSE(CreateDirectories(Path("f")).ok());
  EXPECT_TRUE(RemoveTree(Path("x")).ok());
  EXPECT_TRUE(RemoveTree(Path("x")).ok());
  EXPECT_TRUE(RemoveTree(Path("f")).ok());
  EXPECT_THAT(Names(), IsEmpty());
}

TEST(PathTest, JoinsAndCuts) {
  EXPECT_EQ(JoinPath("a/b", "c"), "a/b/c");
  EXPECT_EQ(JoinPath("a/", "c"), "a/c");
  EXPECT_EQ(JoinPath("", "c"), "c");
  EXPECT_EQ(JoinPath("a", "/c"), "/c");
  EXPECT_EQ(DirectoryOf("a/b/c"), "a/b");
  EXPECT_EQ(DirectoryOf("c"), ".");
  EXPECT_EQ(DirectoryOf("/c"), "/");
}

}  // namespace
}  // namespace weir
