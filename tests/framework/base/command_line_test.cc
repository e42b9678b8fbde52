#include "framework/process/command_line.h"

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(int, server_id, 0, "index of this server");
ABSL_FLAG(bool, resume, true, "go on from the newest checkpoint");
ABSL_FLAG(std::string, job_file, "", "the job");

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<CommandLine> Parse(std::vector<const char*> args) {
  args.insert(args.begin(), "program");
  return ParseCommandLine(static_cast<int>(args.size()), args.data());
}

TEST(CommandLineTest, EverySetIsKeptInOrder) {
  const auto line = Parse({"--set", "distribute.servers=3", "--job_file=a b", "--set=train.seed=2"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->overrides, ElementsAre("distribute.servers=3", "train.seed=2"));
  EXPECT_EQ(absl::GetFlag(FLAGS_job_file), "a b");
}

TEST(CommandLineTest, BooleansTakeFalse) {
  ASSERT_TRUE(Parse({"--resume=false"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_resume));
  ASSERT_TRUE(Parse({"--resume"}).ok());
  EXPECT_TRUE(absl::GetFlag(FLAGS_resume));
  ASSERT_TRUE(Parse({"--noresume"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_resume));
}

TEST(CommandLineTest, DashAndUnderscoreNameTheSameFlag) {
  ASSERT_TRUE(Parse({"--server-id", "5"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_server_id), 5);
}

TEST(CommandLineTest, WhatFollowsTwoDashesIsNoFlag) {
  const auto line = Parse({"file", "--", "--server_id=9"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->rest, ElementsAre("file", "--server_id=9"));
}

TEST(CommandLineTest, WrongLinesAreNamed) {
  EXPECT_THAT(std::string(Parse({"--server_idd=1"}).status().message()),
              HasSubstr("unknown flag --server_idd (did you mean --server_id?)"));
  EXPECT_THAT(std::string(Parse({"--server_id=x"}).status().message()), HasSubstr("--server_id=x"));
  EXPECT_THAT(std::string(Parse({"--set"}).status().message()), HasSubstr("--set needs a value"));
}

TEST(CommandLineTest, HelpListsOurFlagsAndSet) {
  const auto line = Parse({"--help"});
  ASSERT_TRUE(line.ok());
  EXPECT_TRUE(line->help);
  const std::string help = HelpText("usage");
  EXPECT_THAT(help, HasSubstr("--server_id  index of this server (default: 0)"));
  EXPECT_THAT(help, HasSubstr("--set"));
  EXPECT_EQ(HelpText("usage", /*reads_job=*/false), help.substr(0, help.find("  --set")));
}

}  // namespace
}  // namespace weir
