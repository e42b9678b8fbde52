// Commands in front of readers: what they write, how they fail, and when they are killed.

#include "trainer/files/piped_command.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/files/data_set.h"
#include "trainer/files/line_source.h"
#include "trainer/files/open_records.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kAny = size_t{1} << 26;

absl::StatusOr<std::string> Output(const std::string& command, absl::Duration deadline = absl::Seconds(20)) {
  return OutputOf({.command = command, .name = "part-0", .deadline = deadline}, kAny);
}

bool Runs(pid_t pid) { return ::kill(pid, 0) == 0 || errno != ESRCH; }

// Waits until the process has ended. Its parent need not have reaped it.
bool Ends(pid_t pid) {
  const absl::Time until = absl::Now() + absl::Seconds(20);
  while (Runs(pid) && absl::Now() < until) {
    std::string stat;
    std::getline(std::ifstream(absl::StrCat("/proc/", pid, "/stat")), stat);
    if (stat.find(") Z") != std::string::npos) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return !Runs(pid);
}

TEST(PipedCommandTest, GivesAllThatACommandWrites) {
  const absl::StatusOr<std::string> output = Output("seq 1 400000");
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->size(), 2688895);
  EXPECT_THAT(*output, StartsWith("1\n2\n3\n"));
  EXPECT_EQ(*Output("true"), "");
}

TEST(PipedCommandTest, StandardInputIsEmpty) { EXPECT_EQ(*Output("cat; echo end"), "end\n"); }

TEST(PipedCommandTest, ANameIsOneWordOfTheShellWhateverIsInIt) {
  const std::string name = "a b'; echo $HOME \"\n{}";
  EXPECT_EQ(*Output(CommandFor("printf %s {}", name)), name);
  EXPECT_EQ(CommandFor("zcat {} | tee {}", "x"), "zcat 'x' | tee 'x'");
}

TEST(PipedCommandTest, AFailureAtTheEndNamesCommandCodeAndLastWords) {
  const absl::Status status = Output("echo 1; echo no such bucket >&2; exit 1").status();
  EXPECT_EQ(status, absl::UnavailableError("part-0: the command `echo 1; echo no such bucket >&2; exit 1` failed: exit "
                                           "code 1; its last words: no such bucket"));
  EXPECT_THAT(Output("exit 7").status().message(), HasSubstr("exit code 7; it wrote nothing to its standard error"));
}

TEST(PipedCommandTest, TheExitCodeSaysWhatHelps) {
  EXPECT_TRUE(absl::IsInvalidArgument(Output("exit 2").status()));
  EXPECT_TRUE(absl::IsDataLoss(Output("exit 4").status()));
  const absl::Status missing = Output("weir-has-no-such-program").status();
  EXPECT_TRUE(absl::IsInvalidArgument(missing));
  EXPECT_THAT(missing.message(), HasSubstr("cannot be run: exit code 127; its last words: sh: 1: weir-has-no-such"));
  const absl::Status killed = Output("kill -9 $$").status();
  EXPECT_TRUE(absl::IsUnavailable(killed));
  EXPECT_THAT(killed.message(), HasSubstr("was ended by signal 9 (Killed)"));
}

TEST(PipedCommandTest, ACommandThatHangsEndsAtTheDeadline) {
  const absl::Status status = Output("echo half; echo waiting >&2; sleep 100", absl::Milliseconds(300)).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("has written nothing for 300ms (data.pipe_deadline_s)"));
  const absl::Status closed = Output("echo all; exec >&-; exec sleep 100", absl::Milliseconds(300)).status();
  EXPECT_THAT(closed.message(), HasSubstr("has closed its output and not ended within 300ms"));
}

TEST(PipedCommandTest, ManyLastWordsAreCutAtTheirBegin) {
  const absl::Status status = Output("seq 1 100000 >&2; exit 3").status();
  EXPECT_THAT(status.message(), HasSubstr("99999\n100000"));
  EXPECT_LT(status.message().size(), 2200u);
}

TEST(PipedCommandTest, TheDestructorKillsTheWholePipeline) {
  pid_t members[2] = {0, 0};
  {
    absl::StatusOr<std::unique_ptr<PipedCommand>> command =
        PipedCommand::Start({.command = "(echo $$; sleep 100 & echo $!; wait) | cat", .name = "p"});
    ASSERT_TRUE(command.ok()) << command.status();
    std::string text;
    while (std::count(text.begin(), text.end(), '\n') < 2) {
      char block[64];
      const absl::StatusOr<size_t> got = (*command)->Read(block, sizeof block);
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_GT(*got, 0u);
      text.append(block, *got);
    }
    char* rest = nullptr;
    members[0] = static_cast<pid_t>(std::strtol(text.c_str(), &rest, 10));
    members[1] = static_cast<pid_t>(std::strtol(rest, nullptr, 10));
    EXPECT_TRUE(Runs(members[1]));
  }
  // The leader is reaped by the destructor; the others by whoever has become their parent.
  EXPECT_TRUE(Ends(members[0]));
  EXPECT_FALSE(Runs(members[0]));
  EXPECT_TRUE(Ends(members[1]));
}

TEST(PipedCommandDeathTest, ADeathOfTheProcessEndsWhatTheCommandHasStarted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // The process that dies runs these lines, too, and must come to the same name.
  const std::string file = ::testing::TempDir() + "/member_of_a_pipeline";
  std::filesystem::remove(file);
  // The test waits until the pipe of the dying process to it is closed everywhere.
  const std::string command = absl::StrCat("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; (sleep 100 & echo $! > ", file,
                                           "; echo begun; wait) | cat");
  EXPECT_EXIT(
      {
        const auto running = PipedCommand::Start({.command = command, .name = "p"});
        char block[64];
        if (running.ok() && (*running)->Read(block, sizeof block).ok()) ::raise(SIGKILL);
      },
      ::testing::KilledBySignal(SIGKILL), "");
  pid_t member = 0;
  std::ifstream(file) >> member;
  ASSERT_GT(member, 0);
  EXPECT_TRUE(Ends(member));
}

class PipedDataTest : public ::testing::Test {
 protected:
  PipedDataTest() {
    AllowPipes();
    data_.mutable_criteo();
    data_.set_pipe("zcat -f {}");
  }
  absl::StatusOr<DataSet> Open() { return DataSet::Open(data_, data_.train(), dir_.path(), "data.train"); }
  std::vector<std::string> Lines(const DataFile& file) {
    const absl::StatusOr<std::unique_ptr<RecordSource>> source = OpenRecords(file, {});
    CHECK(source.ok()) << source.status();
    std::vector<std::string> lines;
    std::string_view line;
    for (int64_t offset; (*source)->Next(&line, &offset);) lines.emplace_back(line);
    status_ = (*source)->status();
    return lines;
  }
  TempDir dir_;
  v1::Data data_;
  absl::Status status_;
};

TEST_F(PipedDataTest, AFileIsWhatItsCommandWrites) {
  dir_.Write("b.gz", Gzip("3\n4\n"));
  dir_.Write("a", "1\n2");
  data_.mutable_train()->add_files("*");
  const absl::StatusOr<DataSet> set = Open();
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ(set->files().size(), 2u);
  EXPECT_THAT(Lines(set->files()[0]), ElementsAre("1", "2"));
  EXPECT_THAT(Lines(set->files()[1]), ElementsAre("3", "4"));
  EXPECT_TRUE(status_.ok()) << status_;
  // Files behind commands are dealt line by line, or whole, as compressed ones are.
  EXPECT_EQ(set->Stream(1, 2).size(), 2u);
  EXPECT_EQ(set->Stream(1, 2)[0].modulus, 2);
}

TEST_F(PipedDataTest, WhatTheCommandWritesMayBeCompressed) {
  dir_.Write("a", Gzip("1\n2\n"));
  data_.set_pipe("cat {}");
  data_.mutable_train()->add_files("a");
  const absl::StatusOr<DataSet> set = Open();
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(Lines(set->files()[0]), ElementsAre("1", "2"));
}

TEST_F(PipedDataTest, LinesBeforeAFailureAreGivenAndTheErrorFollows) {
  dir_.Write("a", "1\n2\n");
  data_.set_pipe("cat {}; echo 3; exit 9");
  data_.mutable_train()->add_files("a");
  const absl::StatusOr<DataSet> set = Open();
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(Lines(set->files()[0]), ElementsAre("1", "2", "3"));
  EXPECT_THAT(status_.message(), HasSubstr("failed: exit code 9"));
}

TEST_F(PipedDataTest, ACommandListsFilesThatAreElsewhere) {
  data_.set_pipe("printf '%s\\n' {}");
  data_.set_pipe_list("printf 'far/b\\t7\\tv1\\nfar/a\\t5\\n'; echo {} >&2");
  data_.mutable_train()->add_files("far/*");
  const absl::StatusOr<DataSet> set = Open();
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ(set->files().size(), 2u);
  EXPECT_EQ(set->files()[0].name, "far/a");
  EXPECT_EQ(set->files()[1].bytes, 7);
  EXPECT_THAT(Lines(set->files()[1]), ElementsAre("far/b"));
  const std::string before = set->Description();
  data_.set_pipe_list("printf 'far/b\\t7\\tv2\\nfar/a\\t5\\n'; echo {} >&2");
  EXPECT_THAT(FirstDataDifference(before, Open()->Description()), HasSubstr("'far/b'"));
}

TEST_F(PipedDataTest, ListsThatAreWrongAreRefused) {
  data_.mutable_train()->add_files("far/*");
  const auto error = [&](const std::string& list) {
    data_.set_pipe_list(list);
    return std::string(Open().status().message());
  };
  EXPECT_EQ(error("true {}"), "data.train.files: the command of data.pipe_list lists no file for 'far/*'");
  EXPECT_EQ(error("echo {}"),
            "data.train.files: a line of data.pipe_list for 'far/*' must be a name, a tab, a number of bytes, and "
            "perhaps a tab and a version; got 'far/*'");
  EXPECT_THAT(
      error("echo {} >&2; exit 5"),
      HasSubstr("data.train.files 'far/*': the command `echo 'far/*' >&2; exit 5` failed: exit code 5; its last "
                "words: far/*"));
}

TEST_F(PipedDataTest, ExampleFilesAndColumnsForOtherReadersAreRefused) {
  dir_.Write("a", "WEIREXMP and more");
  dir_.Write("b", "WEIRCOL1 and more");
  data_.set_pipe("cat {}");
  data_.mutable_multi_slot();
  data_.mutable_train()->add_files("*");
  const absl::StatusOr<DataSet> set = Open();
  ASSERT_TRUE(set.ok()) << set.status();
  Lines(set->files()[0]);
  EXPECT_THAT(status_.message(), HasSubstr("writes an example file"));
  Lines(set->files()[1]);
  EXPECT_THAT(status_.message(), HasSubstr("writes columns, which only data.csv and data.criteo take"));
  // Columns that are made lines have no dialect.
  const std::pair<const char*, const char*> dialects[] = {{"separator: '::'", "separator"},
                                                          {"quote: ''", "quote"},
                                                          {"decimal_comma: true separator: ';'", "decimal_comma"},
                                                          {"skip_lines: 1", "skip_lines"},
                                                          {"skip_blank_lines: true", "skip_blank_lines"},
                                                          {"comment: '#'", "comment"}};
  for (const auto& [dialect, field] : dialects) {
    *data_.mutable_csv() = ParseData(absl::StrCat("csv { ", dialect, " column { name: 'x' } }")).csv();
    const absl::StatusOr<DataSet> csv = Open();
    ASSERT_TRUE(csv.ok()) << csv.status();
    Lines(csv->files()[1]);
    EXPECT_THAT(status_.message(), HasSubstr(absl::StrCat("b: the command of data.pipe writes columns, which have no "
                                                          "dialect of text: take data.csv.",
                                                          field, " out of the job")));
  }
}

TEST_F(PipedDataTest, WhatACommandWritesMayHaveADialect) {
  dir_.Write("a", "about\n\nx\n# one\n1\n\n2\n");
  data_ =
      ParseData("csv { skip_lines: 1 skip_blank_lines: true comment: '#' column { name: 'x' } } train { files: 'a' }");
  data_.set_pipe("cat {}");
  const absl::StatusOr<DataSet> set = Open();
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(Lines(set->files()[0]), ElementsAre("x", "1", "2"));
}

}  // namespace
}  // namespace weir
