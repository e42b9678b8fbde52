// Files that the system refuses to open.

#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/files/line_source.h"

namespace weir {
namespace {

class ByteSourceTest : public ::testing::Test {
 protected:
  // Opens the only stream of a file that the job has found.
  absl::Status OpenStream(const DataSet& set) { return LineSource::Open(set.files()[0], set.Stream(0, 1)[0]).status(); }
  DataSet Find(const std::string& name) {
    v1::DataSource source;
    source.add_files(name);
    absl::StatusOr<DataSet> set = DataSet::Open(source, dir_.path(), "data.train");
    CHECK(set.ok()) << set.status();
    return *std::move(set);
  }
  TempDir dir_;
};

TEST_F(ByteSourceTest, AFileForWhichNoDescriptorIsLeftIsNotDamaged) {
  for (const auto& [name, content] : {std::pair<std::string, std::string>{"f", "1\n2\n"}, {"f.gz", Gzip("1\n2\n")}}) {
    dir_.Write(name, content);
    const DataSet set = Find(name);
    rlimit before = {};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    // Every number below the limit is taken: those of the program, and of libraries.
    const rlimit none = {0, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const absl::Status status = OpenStream(set);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(status, absl::ResourceExhaustedError(
                          name + ": cannot open: Too many open files (ulimit -n allows this process 0)"));
  }
}

TEST_F(ByteSourceTest, AFileThatHasGoneSinceIsNotFound) {
  dir_.Write("f", "1\n2\n");
  const DataSet set = Find("f");
  std::filesystem::remove(dir_.path() + "/f");
  EXPECT_TRUE(absl::IsNotFound(OpenStream(set)));
}

}  // namespace
}  // namespace weir
