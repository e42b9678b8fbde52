#include "tools/hosts/ssh.h"

#include <stdio.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What `sh -c script` writes.
std::string OutputOfShell(const std::string& script) {
  FILE* const pipe = popen(script.c_str(), "r");  // NOLINT(cert-env33-c): it is the shell that is tested
  if (pipe == nullptr) return "no shell";
  std::string output;
  char buffer[4096];
  for (size_t n = fread(buffer, 1, sizeof buffer, pipe); n > 0; n = fread(buffer, 1, sizeof buffer, pipe)) {
    output.append(buffer, n);
  }
  pclose(pipe);
  return output;
}

TEST(ShellQuoteTest, AShellReadsAnyWordsAsTheyWere) {
  std::mt19937 random(1);
  // Twice as likely: characters that mean something to a shell.
  const std::string special = "'\"\\$`!*?~#&|;<>(){}[]= \t\n";
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> words;
    for (unsigned n = random() % 5 + 1; n > 0; --n) {
      std::string word;
      for (unsigned size = random() % 20; size > 0; --size) {
        word.push_back(random() % 2 == 0 ? special[random() % special.size()] : static_cast<char>(random() % 255 + 1));
      }
      words.push_back(word);
    }
    std::vector<std::string> quoted;
    for (const std::string& word : words) quoted.push_back(ShellQuote(word));
    // Each word with a mark behind it, so that blanks at its end count.
    ASSERT_EQ(OutputOfShell(absl::StrCat("printf '%s|\\n' ", absl::StrJoin(quoted, " "))),
              absl::StrCat(absl::StrJoin(words, "|\n"), "|\n"))
        << "round " << round;
  }
}

TEST(ShellQuoteTest, NothingIsAWordToo) { EXPECT_EQ(ShellQuote(""), "''"); }

TEST(SplitWordsTest, QuotesAndBackslashesKeepBlanks) {
  EXPECT_THAT(*SplitWords("  -i 'my key' -o \"Proxy Command=a \\\" b\" c\\ d '' e'f'g "),
              ElementsAre("-i", "my key", "-o", "Proxy Command=a \" b", "c d", "", "efg"));
  EXPECT_THAT(*SplitWords(""), ElementsAre());
}

TEST(SplitWordsTest, WhatIsQuotedIsSplitInOne) {
  EXPECT_THAT(*SplitWords(ShellQuote("it's \"a\" \\ b")), ElementsAre("it's \"a\" \\ b"));
}

TEST(SplitWordsTest, AQuoteWithoutItsEndIsRefused) {
  EXPECT_THAT(std::string(SplitWords("-i 'key").status().message()), HasSubstr("has a ' without its end"));
}

TEST(SshCommandTest, TheUsersOptionsComeFirstAndTheHostCannotBeAnOption) {
  const std::vector<std::string> command =
      SshCommand({.program = "/usr/bin/ssh", .port = 2222, .options = {"-i", "a key"}, .timeout = absl::Seconds(7)},
                 "ps-1", {"/opt/my programs/launch", "--agent"});
  EXPECT_THAT(command, ElementsAre("/usr/bin/ssh", "-T", "-o", "BatchMode=yes", "-p", "2222", "-i", "a key", "-o",
                                   "ConnectTimeout=7", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
                                   "-o", "ClearAllForwardings=yes", "-o", "ControlPath=none", "--", "ps-1",
                                   "exec '/opt/my programs/launch' '--agent'"));
}

TEST(SshCommandTest, ADeadConnectionIsNoticedWithinItsLimit) {
  const auto command = [](absl::Duration lost_after) {
    return absl::StrJoin(SshCommand({.program = "ssh", .lost_after = lost_after}, "ps-1", {"launch"}), " ");
  };
  EXPECT_THAT(command(absl::Seconds(4)), HasSubstr("-o ServerAliveInterval=1 -o ServerAliveCountMax=3"));
  EXPECT_THAT(command(absl::Seconds(11)), HasSubstr("-o ServerAliveInterval=2 -o ServerAliveCountMax=3"));
}

}  // namespace
}  // namespace weir
