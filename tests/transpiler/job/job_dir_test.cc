#include "transpiler/job/job_dir.h"

#include <string>

#include "absl/flags/flag.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

class JobDirTest : public ::testing::Test {
 protected:
  ~JobDirTest() override { absl::SetFlag(&FLAGS_job_dir, ""); }
};

TEST_F(JobDirTest, NoDirectoryIsGivenUnlessTheFlagIs) { EXPECT_EQ(*JobDirectory(), ""); }

TEST_F(JobDirTest, ADirectoryIsTakenAsItIsWritten) {
  absl::SetFlag(&FLAGS_job_dir, ".");
  EXPECT_EQ(*JobDirectory(), ".");
}

TEST_F(JobDirTest, WhatIsNoDirectoryIsNamed) {
  for (const char* path : {"/nowhere", "/dev/null"}) {
    absl::SetFlag(&FLAGS_job_dir, path);
    EXPECT_EQ(JobDirectory().status(),
              absl::NotFoundError(std::string("--job_dir=") + path +
                                  ": there is no such directory, to which paths in the job are relative"));
  }
}

}  // namespace
}  // namespace weir
