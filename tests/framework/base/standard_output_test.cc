// Ends of programs whose standard output does or does not take what they print.

#include "framework/process/standard_output.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "framework/base/exit_code.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr char kFull[] = "tool: the standard output cannot be written: No space left on device; some of what";

void PrintTo(const char* file) {
  if (std::freopen(file, "w", stdout) == nullptr) std::abort();
}

TEST(StandardOutputDeathTest, WhatWasPrintedIsThereAtTheEnd) {
  const std::string file = ::testing::TempDir() + "/printed";
  EXPECT_EXIT(
      {
        PrintTo(file.c_str());
        std::printf("one ");
        std::cout << "two";
        const int code = EndWithOutput("tool", kExitOk);
        _exit(code);  // flushes nothing
      },
      ::testing::ExitedWithCode(kExitOk), "^$");
  std::string text;
  std::getline(std::ifstream(file), text);
  EXPECT_EQ(text, "one two");
}

TEST(StandardOutputDeathTest, AFullDiskIsAFailure) {
  EXPECT_EXIT(
      {
        PrintTo("/dev/full");
        std::printf("a line\n");
        std::exit(EndWithOutput("tool", kExitOk));
      },
      ::testing::ExitedWithCode(kExitFailure), kFull);
  EXPECT_EXIT(
      {
        PrintTo("/dev/full");
        std::cout << "a line\n" << std::flush;
        std::exit(EndWithOutput("tool", kExitOk));
      },
      ::testing::ExitedWithCode(kExitFailure), "tool: the standard output cannot be written");
}

TEST(StandardOutputDeathTest, AnotherFailureKeepsItsCode) {
  EXPECT_EXIT(
      {
        PrintTo("/dev/full");
        std::printf("a line\n");
        std::exit(EndWithOutput("tool", kExitDataLoss));
      },
      ::testing::ExitedWithCode(kExitDataLoss), kFull);
}

TEST(StandardOutputDeathTest, AClosedOutputMattersIfSomethingWasPrinted) {
  EXPECT_EXIT(
      {
        close(STDOUT_FILENO);
        std::exit(EndWithOutput("tool", kExitOk));
      },
      ::testing::ExitedWithCode(kExitOk), "");
  EXPECT_EXIT(
      {
        close(STDOUT_FILENO);
        std::printf("a line\n");
        std::exit(EndWithOutput("tool", kExitOk));
      },
      ::testing::ExitedWithCode(kExitFailure), "tool: the standard output cannot be written: Bad file descriptor");
}

}  // namespace
}  // namespace weir
