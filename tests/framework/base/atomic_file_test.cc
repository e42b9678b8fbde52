#include "framework/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

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

TEST_F(AtomicFileTest, ALinkStaysAndItsTargetIsWritten) {
  ASSERT_TRUE(CreateDirectories(Path("far")).ok());
  ASSERT_TRUE(WriteFileAtomically(Path("far/real"), "old").ok());
  std::filesystem::create_symlink("far/real", Path("link"));
  std::filesystem::create_symlink(Path("link"), Path("link of link"));
  ASSERT_TRUE(WriteFileAtomically(Path("link of link"), "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_EQ(ReadWholeFile(Path("far/real")).value(), "new");
  EXPECT_THAT(ListDirectory(Path("far")).value(), ElementsAre("real"));

  // A link to what is not there yet.
  std::filesystem::create_symlink("far/later", Path("dangling"));
  ASSERT_TRUE(WriteFileAtomically(Path("dangling"), "x").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("dangling")));
  EXPECT_EQ(ReadWholeFile(Path("far/later")).value(), "x");
  std::filesystem::create_symlink("circle", Path("circle"));
  EXPECT_FALSE(WriteFileAtomically(Path("circle"), "x").ok());
}

TEST_F(AtomicFileTest, ALinkAtANameOfOursIsReplaced) {
  ASSERT_TRUE(WriteFileAtomically(Path("precious"), "kept").ok());
  std::filesystem::create_symlink("precious", Path("link"));
  ASSERT_TRUE(WriteFileAtomically(Path("link"), "ours", Links::kRefuse).ok());
  EXPECT_FALSE(std::filesystem::is_symlink(Path("link")));
  EXPECT_EQ(ReadWholeFile(Path("link")).value(), "ours");
  EXPECT_EQ(ReadWholeFile(Path("precious")).value(), "kept");
}

TEST_F(AtomicFileTest, ADirectoryIsRefusedBeforeAnythingIsWritten) {
  ASSERT_TRUE(CreateDirectories(Path("d")).ok());
  std::filesystem::create_symlink("d", Path("link"));
  for (const char* name : {"d", "link"}) {
    const absl::Status status = AtomicFile::Create(Path(name)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is a directory; name a file"));
  }
}

TEST_F(AtomicFileTest, ADeviceIsWrittenAndStays) {
  // Never the real one, which a root that fails here would replace.
  if (mknod(Path("null").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0) GTEST_SKIP() << "no device can be made here";
  if (const int fd = open(Path("null").c_str(), O_WRONLY); fd < 0) {
    GTEST_SKIP() << "devices cannot be opened here";
  } else {
    close(fd);
  }
  ASSERT_TRUE(WriteFileAtomically(Path("null"), "x").ok());
  EXPECT_TRUE(std::filesystem::is_character_file(Path("null")));
  EXPECT_THAT(Names(), ElementsAre("null"));
}

TEST_F(AtomicFileTest, APipeIsWrittenAndReadToItsEnd) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const std::string data(200'000, 'x');  // more than a pipe holds
  absl::Status written;
  std::thread writer([&] { written = WriteFileAtomically(Path("pipe"), data); });
  EXPECT_EQ(ReadWholeFile(Path("pipe")).value(), data);
  writer.join();
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_TRUE(std::filesystem::is_fifo(Path("pipe")));
}

TEST_F(AtomicFileTest, ADescriptorOfThisProcessIsWrittenAtItsPlace) {
  const int fd = open(Path("log").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(write(fd, "one ", 4), 4);
  // As /dev/stdout is a link to /proc/self/fd/1.
  std::filesystem::create_symlink(absl::StrCat("/proc/self/fd/", fd), Path("stdout"));
  for (const std::string& name : {Path("stdout"), absl::StrCat("/dev/fd/", fd)}) {
    auto file = AtomicFile::Create(name);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE((*file)->direct());
    ASSERT_TRUE((*file)->Append("two ").ok());
    ASSERT_TRUE((*file)->Commit().ok());
  }
  ASSERT_EQ(write(fd, "three", 5), 5);
  close(fd);
  EXPECT_EQ(ReadWholeFile(Path("log")).value(), "one two two three");
  EXPECT_THAT(Names(), ElementsAre("log", "stdout"));

  const int in = open(Path("log").c_str(), O_RDONLY);
  EXPECT_EQ(AtomicFile::Create(absl::StrCat("/proc/self/fd/", in)).status().code(), absl::StatusCode::kInvalidArgument);
  close(in);
}

TEST_F(AtomicFileTest, OnlyRegularFilesAreReadWhereNothingElseIsExpected) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "12345").ok());
  std::filesystem::create_symlink("a", Path("link"));
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(ReadRegularFile(Path("link"), 5).value(), "12345");
  EXPECT_EQ(ReadRegularFile(Path("a"), 4).status().code(), absl::StatusCode::kResourceExhausted);
  const auto error = [](const absl::StatusOr<std::string>& read) {
    EXPECT_EQ(read.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(read.status().message());
  };
  EXPECT_THAT(error(ReadRegularFile(Path("link"), 5, Links::kRefuse)), HasSubstr("link is a symbolic link; a regular"));
  EXPECT_THAT(error(ReadRegularFile(Path("pipe"), 5)), HasSubstr("pipe is a FIFO; a regular file was expected"));
  EXPECT_THAT(error(ReadRegularFile("/dev/zero", 5)), HasSubstr("/dev/zero is a device; a regular file was expected"));
  EXPECT_EQ(ReadWholeFile("/dev/zero", 1000).status().code(), absl::StatusCode::kResourceExhausted);
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
