#include "tools/launching/console.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ConsoleTest : public ::testing::Test {
 protected:
  ConsoleTest() {
    signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(pipe(fds_), 0);
    fcntl(fds_[0], F_SETFL, O_NONBLOCK);
  }
  ~ConsoleTest() override {
    CloseReader();
    close(fds_[1]);
  }

  void CloseReader() {
    if (fds_[0] >= 0) close(fds_[0]);
    fds_[0] = -1;
  }
  std::string ReadAll() {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(fds_[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    return text;
  }

  int fds_[2] = {-1, -1};
};

TEST_F(ConsoleTest, LinesArriveAtOnce) {
  Console console(fds_[1]);
  console.Line("one");
  console.Line("two");
  EXPECT_EQ(ReadAll(), "one\ntwo\n");
  EXPECT_FALSE(console.pending());
}

TEST_F(ConsoleTest, AReaderThatDoesNotReadIsNotWaitedForAndMissesWholeLines) {
  Console console(fds_[1], /*limit=*/1000);
  // More than a pipe and the buffer hold.
  const std::string line(99, 'x');
  for (int i = 0; i < 20000; ++i) console.Line(line);
  EXPECT_TRUE(console.pending());
  std::string text = ReadAll();
  console.Flush();
  console.Line("back again");
  text += ReadAll();
  EXPECT_THAT(text, HasSubstr(" lines were not shown here; the log files have them\nback again\n"));
  EXPECT_THAT(text, StartsWith(line + "\n" + line + "\n"));
  EXPECT_LT(text.size(), 20000u * 100);
  // No line is cut in two.
  size_t start = 0;
  for (size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    const std::string each = text.substr(start, end - start);
    EXPECT_TRUE(each == line || each.starts_with("launch: ") || each == "back again") << each;
  }
}

TEST_F(ConsoleTest, AReaderThatIsGoneIsForgotten) {
  Console console(fds_[1]);
  CloseReader();
  console.Line("nobody hears this");
  EXPECT_FALSE(console.pending());
  EXPECT_EQ(console.error(), EPIPE);
}

TEST_F(ConsoleTest, AFullDiskIsKnown) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  Console console(full);
  EXPECT_EQ(console.error(), 0);
  console.Line("no room for this");
  EXPECT_EQ(console.error(), ENOSPC);
  EXPECT_FALSE(console.pending());
  close(full);
}

TEST_F(ConsoleTest, DrainGivesUpInTime) {
  Console console(fds_[1]);
  for (int i = 0; i < 20000; ++i) console.Line(std::string(99, 'x'));
  const absl::Time start = absl::Now();
  console.Drain(absl::Milliseconds(50));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(50));
  EXPECT_TRUE(console.pending());
}

}  // namespace
}  // namespace weir
