// Programs that are started without standard output, or with a limit for their files.

#include "framework/process/inherited_state.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/exhausted.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(InheritedStateDeathTest, NothingElseGetsTheNumberOfAClosedStandardDescriptor) {
  EXPECT_EXIT(
      {
        ::close(STDIN_FILENO);
        ::close(STDOUT_FILENO);
        MendInheritedState();
        const bool others_are_above = ::open("/dev/zero", O_RDONLY) > STDERR_FILENO;
        const bool output_fails = ::write(STDOUT_FILENO, "x", 1) < 0 && errno == EBADF;
        char byte;
        const bool input_is_empty = ::read(STDIN_FILENO, &byte, 1) == 0;
        ::_exit(others_are_above && output_fails && input_is_empty ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(InheritedStateDeathTest, AWriteBeyondTheLimitOfFilesFailsWithTheNameOfTheFileAndTheLimit) {
  const std::string file = absl::StrCat(::testing::TempDir(), "/too_large");
  EXPECT_EXIT(
      {
        MendInheritedState();
        rlimit limit = {};
        limit.rlim_cur = limit.rlim_max = 1000;
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
        const absl::Status status = WriteFileAtomically(file, std::string(2000, 'x'));
        const std::string text(status.message());
        (void)!::write(STDERR_FILENO, text.data(), text.size());
        ::_exit(7);
      },
      ::testing::ExitedWithCode(7),
      "cannot write .*/too_large .ulimit -f allows this process files of 1000 bytes.: File too large");
}

TEST(InheritedStateTest, OtherErrorsHaveNoLimit) {
  EXPECT_EQ(FileSizeLimitText(ENOSPC), "");
  EXPECT_EQ(FileSizeLimitText(EFBIG), "");  // as long as there is none
}

}  // namespace
}  // namespace weir
