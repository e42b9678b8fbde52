// The commands that examples/corners/README.md shows, run by a shell as they stand there: real processes, on a part of
// the data and for fewer steps.

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/pictures.h"
#include "tools/hosts/reserved_ports.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Returns the fenced blocks of a document that run programs.
std::vector<std::string> CommandBlocks(const std::string& document) {
  std::vector<std::string> blocks;
  const std::vector<std::string> parts = absl::StrSplit(document, "```\n");
  for (size_t i = 1; i < parts.size(); i += 2) {
    if (parts[i].find("bazel-bin/") != std::string::npos) blocks.push_back(parts[i]);
  }
  return blocks;
}

class CornersCommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("WEIR_DATA_DIR");
    if (data == nullptr || !fs::exists(absl::StrCat(data, "/nycflights-late/flights.csv.gz")) ||
        !FashionMnistIsThere()) {
      GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (nycflights-late, fashion-mnist)";
    }
    root_ = fs::current_path();
    dir_ = fs::path(::testing::TempDir()) / "commands";
    fs::remove_all(dir_);
    fs::create_directories(dir_ / "examples/corners");
    for (const char* job : {"flights.textproto", "fashion_mnist.textproto"}) {
      fs::copy_file(root_ / "examples/corners" / job, dir_ / "examples/corners" / job);
    }
    Stand("examples/flights/prepare", absl::StrCat("--rows=20000 --output=", dir_.string(), "/examples/flights/data"));
    Stand("examples/fashion_mnist/prepare", absl::StrCat("--output=", dir_.string(), "/examples/fashion_mnist/data"));
    Stand("tools/launch", "", "bazel-bin/tools/launch");
    Stand("trainer/trainer", "--set train.max_steps=2 --set train.digest_every_steps=2", "bazel-bin/trainer/trainer");
    blocks_ = CommandBlocks(ContentsOf("examples/corners/README.md"));
    // The corners, the resume, the job of the NCCL2 mode.
    ASSERT_THAT(blocks_, SizeIs(3));
  }
  void TearDown() override {
    if (!dir_.empty()) fs::remove_all(dir_);
  }

  // Puts a program at the place where the README calls it, that runs `program` of this test with `arguments` before
  // those of the caller.
  void Stand(const std::string& program, const std::string& arguments, std::string place = "") {
    if (place.empty()) place = program;
    fs::create_directories((dir_ / place).parent_path());
    std::ofstream(dir_ / place) << "#!/bin/sh\nexec '" << (root_ / program).string() << "' " << arguments
                                << " \"$@\"\n";
    fs::permissions(dir_ / place, fs::perms::owner_all);
  }

  // Runs the commands in dir_ and returns what they print.
  std::string Run(const std::string& commands) {
    std::ofstream(dir_ / "commands.sh") << commands;
    const std::string shell =
        absl::StrCat("cd '", dir_.string(), "' && timeout 600 bash -eu commands.sh > commands.log 2>&1");
    const int ended = std::system(shell.c_str());
    const std::string log = ContentsOf((dir_ / "commands.log").string());
    EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << commands << log;
    return log;
  }

  fs::path root_, dir_;
  std::vector<std::string> blocks_;
};

// Returns what digest lines say of each step.
std::map<int, std::vector<std::string>> DigestsIn(const std::string& log) {
  static const std::regex line(R"re(digest step=(\d+) (values=\w+ state=\w+))re");
  std::map<int, std::vector<std::string>> digests;
  for (std::sregex_iterator it(log.begin(), log.end(), line), end; it != end; ++it) {
    digests[std::stoi((*it)[1])].push_back((*it)[2]);
  }
  return digests;
}

int DoneLines(const std::string& log) {
  static const std::regex done(R"re((^|\n)done steps=)re");
  return static_cast<int>(std::distance(std::sregex_iterator(log.begin(), log.end(), done), std::sregex_iterator()));
}

TEST_F(CornersCommandsTest, EveryCornerPrintsTheSameDigestsAndAResumeElsewhereToo) {
  const auto fewer = [](const std::string& block) {
    return absl::StrReplaceAll(block, {{"--digest_every=200", "--digest_every=10"}, {"max_steps=300", "max_steps=15"}});
  };
  const std::string log = Run(fewer(blocks_[0]));
  EXPECT_EQ(DoneLines(log), 4) << log;
  std::map<int, std::vector<std::string>> digests = DigestsIn(log);
  // 18,000 examples are 35 steps of 512.
  ASSERT_THAT(digests, SizeIs(3)) << log;
  std::set<std::string> different;
  for (const auto& [step, lines] : digests) {
    EXPECT_THAT(lines, SizeIs(4)) << step;
    EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), 1u) << "step " << step << "\n" << log;
    different.insert(lines.begin(), lines.end());
  }
  EXPECT_THAT(different, SizeIs(3));

  const std::string resumed = Run(fewer(blocks_[1]));
  EXPECT_THAT(resumed, HasSubstr("resumed from"));
  EXPECT_EQ(DoneLines(resumed), 2) << resumed;
  for (const auto& [step, lines] : DigestsIn(resumed)) {
    EXPECT_THAT(lines, ::testing::Each(digests[step][0])) << step;
    EXPECT_GT(step, 15);
  }
  EXPECT_THAT(DigestsIn(resumed), SizeIs(2)) << resumed;
}

TEST_F(CornersCommandsTest, FluidsVariablesStartAJobOfTheNccl2Mode) {
  absl::StatusOr<ReservedPorts> ports = ReservedPorts::Draw(2);
  ASSERT_TRUE(ports.ok()) << ports.status();
  const std::string log = Run(absl::StrReplaceAll(
      blocks_[2], {{":6170", absl::StrCat(":", ports->ports()[0])}, {":6171", absl::StrCat(":", ports->ports()[1])}}));
  EXPECT_THAT(log, HasSubstr("done steps=2 examples=512 "));
  const std::map<int, std::vector<std::string>> digests = DigestsIn(log);
  ASSERT_THAT(digests, SizeIs(1)) << log;

  // One process alone has the same bits.
  const std::string alone =
      Run("bazel-bin/trainer/trainer --job=examples/corners/fashion_mnist.textproto --role=local\n");
  EXPECT_EQ(DigestsIn(alone), digests) << alone;
}

}  // namespace
}  // namespace weir
