#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(ShardTest, ManyRowsComeBackAndMemoryChunksAreInvisible) {
  const std::string dir = FreshDir("shard_many");
  auto writer = ShardWriter::Create(dir + "/shard-00000");
  ASSERT_OK(writer.status());
  const TableLayout layout{.table = "big", .width = 15, .states = {{"a", 16}}, .logical_shards = 64};
  ASSERT_OK((*writer)->BeginTable(layout));
  constexpr int kRows = 200'000;  // about 26 MiB: several chunks
  std::vector<float> row(31);
  for (int64_t id = 0; id < kRows; ++id) {
    row[0] = static_cast<float>(id);
    row[30] = static_cast<float>(-id);
    ASSERT_OK((*writer)->AddRow(id * 7 - 1000, row));
  }
  ASSERT_OK((*writer)->EndTable());
  const auto shard = (*writer)->Finish();
  ASSERT_OK(shard.status());
  EXPECT_GT(shard->tables_size(), 2);

  auto reader = ShardReader::Open(dir, *shard);
  ASSERT_OK(reader.status());
  int64_t seen = 0;
  for (int i = 0; i < shard->tables_size(); ++i) {
    ASSERT_OK((*reader)->ReadTable(i, [&](absl::Span<const int64_t> ids, absl::Span<const float> rows) {
      for (size_t r = 0; r < ids.size(); ++r, ++seen) {
        if (ids[r] != seen * 7 - 1000 || rows[r * 31] != static_cast<float>(seen) ||
            rows[r * 31 + 30] != static_cast<float>(-seen)) {
          return absl::InternalError(absl::StrCat("row ", seen));
        }
      }
      return absl::OkStatus();
    }));
  }
  EXPECT_EQ(seen, kRows);
}

TEST(ShardTest, APieceOutsideItsVariableIsRefused) {
  const std::string dir = FreshDir("shard_outside");
  auto writer = ShardWriter::Create(dir + "/shard-00000");
  ASSERT_OK(writer.status());
  const absl::Status status =
      (*writer)->AddDense({.variable = "w", .whole_dims = {2, 2}, .element_begin = 3}, {1.0f, 2.0f});
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("elements [3, 5) do not fit in 4 elements"));
}

TEST(ShardTest, AFileThatWasNotFinishedIsGone) {
  const std::string dir = FreshDir("shard_unfinished");
  {
    auto writer = ShardWriter::Create(dir + "/shard-00000");
    ASSERT_OK(writer.status());
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir));
}

class DamagedShardTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = FreshDir("shard_damaged");
    auto shard = ToyModel::Make().SaveShard(dir_, 0, 1);
    ASSERT_OK(shard.status());
    shard_ = *shard;
    file_ = dir_ + "/shard-00000";
  }
  absl::Status Open() { return ShardReader::Open(dir_, shard_).status(); }
  std::string dir_, file_;
  v1::CheckpointShard shard_;
};

TEST_F(DamagedShardTest, TornShardIsReportedAsDataLoss) {
  for (const int64_t kept : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{64}, shard_.file().bytes() - 1}) {
    ASSERT_OK(ToyModel::Make().SaveShard(dir_, 0, 1).status());
    CutFile(file_, kept);
    const absl::Status status = Open();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file_ + " has " + std::to_string(kept) + " bytes"));
  }
}

TEST_F(DamagedShardTest, EveryFlippedBitIsReportedAsDataLoss) {
  for (int64_t byte = 0; byte < shard_.file().bytes(); ++byte) {
    FlipBit(file_, byte);
    const absl::Status status = Open();
    EXPECT_TRUE(absl::IsDataLoss(status)) << byte << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file_));
    FlipBit(file_, byte);
  }
  ASSERT_OK(Open());
}

TEST_F(DamagedShardTest, AMissingFileIsReportedAsDataLoss) {
  std::filesystem::remove(file_);
  const absl::Status status = Open();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_EQ(status.message(), file_ + " is missing");
}

// A manifest comes from outside too: no number in it may lead to a crash.
TEST_F(DamagedShardTest, DescriptionsThatMakeNoSenseAreRefused) {
  const std::vector<std::function<void(v1::CheckpointShard*)>> lies = {
      [](auto* s) { s->mutable_dense(0)->set_offset(-8); },
      [](auto* s) { s->mutable_dense(0)->set_offset(INT64_MAX); },
      [](auto* s) { s->mutable_dense(0)->set_element_count(INT64_MAX); },
      [](auto* s) { s->mutable_dense(0)->set_element_count(-1); },
      [](auto* s) { s->mutable_dense(0)->set_element_begin(INT64_MIN); },
      [](auto* s) { s->mutable_dense(0)->set_whole_dims(0, INT64_MAX); },
      [](auto* s) { s->mutable_dense(0)->set_whole_dims(0, -1); },
      [](auto* s) { s->mutable_tables(0)->set_row_count(INT64_MAX); },
      [](auto* s) { s->mutable_tables(0)->set_row_count(-1); },
      [](auto* s) { s->mutable_tables(0)->set_width(INT32_MAX); },
      [](auto* s) { s->mutable_tables(0)->set_width(0); },
      [](auto* s) {
        s->mutable_tables(0)->set_width(INT32_MAX);
        s->mutable_tables(0)->set_row_count(0);
      },
      [](auto* s) { s->mutable_tables(0)->clear_state_widths(); },
      [](auto* s) { s->mutable_tables(0)->set_state_width(-5); },
      [](auto* s) { s->mutable_tables(0)->set_logical_shards(0); },
      [](auto* s) { s->mutable_file()->set_name("../shard-00000"); },
      [](auto* s) { s->mutable_file()->set_name(""); },
      [](auto* s) { s->mutable_file()->set_name(std::string("shard-00000\0x", 13)); },
      // Entries that claim the same bytes are larger than the file together.
      [](auto* s) { *s->add_dense() = s->dense(0); },
      [](auto* s) { *s->add_tables() = s->tables(0); },
      [](auto* s) { s->mutable_tables(0)->set_offset(s->dense(0).offset()); },
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    v1::CheckpointShard shard = shard_;
    lies[i](&shard);
    EXPECT_TRUE(absl::IsDataLoss(ShardReader::Open(dir_, shard).status())) << i;
  }
}

}  // namespace
}  // namespace weir
