// Records that borrow from the blocks of an example file: they outlive the block at hand and the source, which does not
// read into a block that is borrowed from.

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/files/example_file.h"
#include "trainer/files/record.h"

namespace weir {
namespace {

constexpr int64_t kExamples = 20000;  // of many blocks

class BorrowedRecordsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<Column> columns = {{.name = "x", .width = 4}};
    const std::string path = dir_.path() + "/numbers.examples";
    auto writer = ExampleFileWriter::Create(path, columns, "");
    ASSERT_TRUE(writer.ok()) << writer.status();
    Example example;
    example.floats.resize(4);
    for (int64_t i = 0; i < kExamples; ++i) {
      example.floats.assign(4, static_cast<float>(i));
      ASSERT_EQ((*writer)->Add(example), absl::OkStatus());
    }
    ASSERT_EQ((*writer)->Finish().status(), absl::OkStatus());
    file_ = {.path = path, .name = path, .bytes = static_cast<int64_t>(std::filesystem::file_size(path))};
    ASSERT_EQ(LookAtExampleFile(&file_), absl::OkStatus());
  }
  static float FirstFloat(const Record& record) {
    Example example;
    example.floats.resize(4);
    record.CopyTo(&example);
    return example.floats[0];
  }

  TempDir dir_;
  DataFile file_;
};

TEST_F(BorrowedRecordsTest, OutliveTheBlockAndTheSource) {
  std::vector<Record> records;
  {
    ExampleFileSource source(file_, {.begin = 0, .end = kExamples});
    std::string_view bytes;
    int64_t offset = 0;
    while (source.Next(&bytes, &offset)) {
      Record record(const_cast<char*>(bytes.data()), source.sizes(), source.block());
      // Every third is kept; the others are gone at once.
      if (offset % 3 == 0) records.push_back(std::move(record));
    }
    EXPECT_EQ(source.status(), absl::OkStatus());
  }
  ASSERT_EQ(records.size(), static_cast<size_t>((kExamples + 2) / 3));
  for (size_t i = 0; i < records.size(); ++i) ASSERT_EQ(FirstFloat(records[i]), static_cast<float>(3 * i));
}

TEST_F(BorrowedRecordsTest, ABlockThatARecordUsesIsNotReadInto) {
  ExampleFileSource source(file_, {.begin = 0, .end = kExamples});
  std::string_view bytes;
  int64_t offset = 0;
  ASSERT_TRUE(source.Next(&bytes, &offset));
  EXPECT_TRUE(source.block()->used_once());
  const Record kept(const_cast<char*>(bytes.data()), source.sizes(), source.block());
  const RecordBlock* const used = source.block();
  EXPECT_FALSE(used->used_once());
  while (source.Next(&bytes, &offset)) {
  }
  EXPECT_NE(source.block(), used);
  EXPECT_TRUE(used->used_once()) << "the source has left it";
  EXPECT_EQ(FirstFloat(kept), 0.0f);
}

}  // namespace
}  // namespace weir
