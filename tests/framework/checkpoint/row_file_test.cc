#include "framework/checkpoint/row_file.h"

#include <sys/stat.h>

#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "framework/checkpoint/table_reader.h"
#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

using Rows = std::map<int64_t, std::vector<float>>;

const TableLayout kLayout{.table = "t", .width = 3, .states = {{"moment", 1}}, .logical_shards = 64};

// A checkpoint of the table, in order of nothing, over `servers` shard files.
NewestCheckpoint SaveTable(const std::string& dir, int64_t step, const Rows& rows, int servers) {
  const auto temporary = BeginCheckpoint(dir, step);
  EXPECT_TRUE(temporary.ok()) << temporary.status();
  v1::CheckpointManifest manifest;
  manifest.set_job("job");
  manifest.set_step(step);
  for (int s = 0; s < servers; ++s) {
    auto writer = ShardWriter::Create(absl::StrCat(dir, "/", *temporary, "/", ShardFileName(s)));
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->BeginTable(kLayout).ok());
    for (const auto& [id, row] : rows) {
      if (ShardServer(LogicalShard(id, 64), 64, servers) != s) continue;
      EXPECT_TRUE((*writer)->AddRow(id, row).ok());
    }
    EXPECT_TRUE((*writer)->EndTable().ok());
    *manifest.add_shards() = *(*writer)->Finish();
  }
  const auto path = PublishCheckpoint(dir, *temporary, manifest);
  EXPECT_TRUE(path.ok()) << path.status();
  return *OpenCheckpoint(*path);
}

TableReader ReaderOf(const NewestCheckpoint& checkpoint) {
  auto reader = TableReader::Open(checkpoint.found.path, checkpoint.manifest, "t");
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

// Collects the changes of VisitChanges as sets; each id occurs once.
struct Seen {
  Rows rows;
  std::set<int64_t> removed;
  std::vector<int64_t> order;
};
Seen ChangesOf(const TableReader& now, const TableReader* before, bool state) {
  Seen seen;
  const size_t floats = state ? 4 : 3;
  EXPECT_TRUE(VisitChanges(now, before, state, [&](const TableChanges& changes) {
                for (size_t i = 0; i < changes.ids.size(); ++i) {
                  const float* const row = changes.rows.data() + i * floats;
                  EXPECT_TRUE(seen.rows.emplace(changes.ids[i], std::vector<float>(row, row + floats)).second);
                  seen.order.push_back(changes.ids[i]);
                }
                for (const int64_t id : changes.removed) EXPECT_TRUE(seen.removed.insert(id).second);
                return absl::OkStatus();
              }).ok());
  return seen;
}

TEST(TableReaderTest, ChangesAreThoseOfAPlainComparisonWhateverServersWroteTheTwo) {
  const std::string dir = FreshDir("changes");
  std::mt19937_64 random(5);
  Rows before = {{INT64_MIN, {1, 2, 3, 4}}, {INT64_MAX, {5, 6, 7, 8}}, {0, {0.0f, 0, 0, 0}}};
  for (int i = 0; i < 5000; ++i) before[static_cast<int64_t>(random())] = {1, 2, static_cast<float>(i), 4};
  Rows now = before;
  Rows changed, changed_with_state;
  std::set<int64_t> removed;
  for (const auto& [id, row] : before) {
    switch (random() % 5) {
      case 0:
        now.erase(id);
        removed.insert(id);
        break;
      case 1:
        now[id][1] = -row[1];
        break;
      case 2:
        now[id][3] += 1;  // state alone
        break;
    }
  }
  for (int i = 0; i < 1000; ++i) now[static_cast<int64_t>(random())] = {7, 8, 9, static_cast<float>(i)};
  // An equal number with other bits counts as a change.
  now[0] = {-0.0f, 0, 0, 0};
  removed.erase(0);
  for (const auto& [id, row] : now) {
    const auto was = before.find(id);
    const std::vector<float> values(row.begin(), row.begin() + 3);
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are meant
    const bool same_values = was != before.end() && std::memcmp(was->second.data(), row.data(), 12) == 0;
    if (!same_values) changed[id] = values;
    if (!same_values || was->second[3] != row[3]) changed_with_state[id] = row;
  }
  const TableReader a = ReaderOf(SaveTable(dir, 1, before, 3));
  std::vector<int64_t> order;
  for (int servers : {1, 2, 5}) {
    const TableReader b = ReaderOf(SaveTable(dir, 1 + servers, now, servers));
    EXPECT_EQ(b.rows(), static_cast<int64_t>(now.size()));
    const Seen seen = ChangesOf(b, &a, /*state=*/false);
    EXPECT_EQ(seen.rows, changed) << servers;
    EXPECT_EQ(seen.removed, removed) << servers;
    EXPECT_EQ(ChangesOf(b, &a, /*state=*/true).rows, changed_with_state);
    EXPECT_EQ(ChangesOf(b, nullptr, /*state=*/true).rows, now);
    // By (logical shard, id), on every cluster.
    if (order.empty()) order = seen.order;
    EXPECT_EQ(seen.order, order);
  }
}

TEST(TableReaderTest, AMissingTableIsNamedWithThoseThatThereAre) {
  const std::string dir = FreshDir("missing");
  const NewestCheckpoint checkpoint = SaveTable(dir, 1, {{1, {1, 2, 3, 4}}}, 1);
  const auto reader = TableReader::Open(checkpoint.found.path, checkpoint.manifest, "u");
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr("has no table 'u'; it has t"));
}

TEST(TableReaderTest, ADescriptionThatContradictsItselfIsDataLoss) {
  NewestCheckpoint checkpoint = SaveTable(FreshDir("contradicts"), 1, {{1, {1, 2, 3, 4}}}, 1);
  checkpoint.manifest.mutable_shards(0)->mutable_tables(0)->clear_state_widths();
  const auto reader = TableReader::Open(checkpoint.found.path, checkpoint.manifest, "t");
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kDataLoss) << reader.status();
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr("entry 't' has widths that make no sense"));
}

class RowFileTest : public ::testing::Test {
 protected:
  void SetUp() override { path_ = FreshDir("row_file") + "/t.rows"; }

  absl::StatusOr<v1::RowFile> Write(const Rows& rows, const std::vector<int64_t>& removed) {
    ASSIGN_OR_RETURN(const auto writer, RowFileWriter::Create(path_, kLayout, "job", 20, 10));
    std::vector<int64_t> ids;
    std::vector<float> values;
    for (const auto& [id, row] : rows) {
      ids.push_back(id);
      values.insert(values.end(), row.begin(), row.end());
    }
    RETURN_IF_ERROR(writer->Add(ids, values, removed));
    return writer->Finish();
  }
  // All of it.
  absl::StatusOr<RowFileReader::Chunk> ReadAll() {
    ASSIGN_OR_RETURN(const auto reader, RowFileReader::Open(path_));
    RowFileReader::Chunk all;
    for (int i = 0; i < reader->description().chunks_size(); ++i) {
      ASSIGN_OR_RETURN(const RowFileReader::Chunk chunk, reader->Read(i));
      all.ids.insert(all.ids.end(), chunk.ids.begin(), chunk.ids.end());
      all.rows.insert(all.rows.end(), chunk.rows.begin(), chunk.rows.end());
      all.removed.insert(all.removed.end(), chunk.removed.begin(), chunk.removed.end());
    }
    return all;
  }
  std::string path_;
};

TEST_F(RowFileTest, WhatIsWrittenIsReadInManyChunksAndInNone) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{700000}}) {
    Rows rows;
    for (int64_t i = 0; i < n; ++i) rows[i * 7 - 100] = {static_cast<float>(i), 1, 2, 3};
    std::vector<int64_t> removed = {INT64_MIN, -3, INT64_MAX};
    if (n == 0) removed.clear();
    const auto written = Write(rows, removed);
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(written->rows(), n);
    EXPECT_EQ(written->chunks_size(), n == 0 ? 0 : n == 1 ? 1 : 3);
    const auto reader = RowFileReader::Open(path_);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ((*reader)->description().SerializeAsString(), written->SerializeAsString());
    EXPECT_EQ((*reader)->layout().states, kLayout.states);
    const auto all = ReadAll();
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(all->removed, removed);
    ASSERT_EQ(static_cast<int64_t>(all->ids.size()), n);
    size_t at = 0;
    for (const auto& [id, row] : rows) {
      ASSERT_EQ(all->ids[at], id);
      ASSERT_EQ(std::vector<float>(all->rows.begin() + static_cast<std::ptrdiff_t>(4 * at),
                                   all->rows.begin() + static_cast<std::ptrdiff_t>(4 * at + 4)),
                row);
      ++at;
    }
  }
}

TEST_F(RowFileTest, EveryFlippedBitOfTheContentAndEveryCutIsSeen) {
  ASSERT_TRUE(Write({{1, {1, 2, 3, 4}}, {2, {5, 6, 7, 8}}, {3, {0, 0, 0, 0}}}, {9, 10}).ok());
  const auto whole = ReadWholeFile(path_);
  ASSERT_TRUE(whole.ok());
  const auto good = RowFileReader::Open(path_);
  ASSERT_TRUE(good.ok());
  const v1::RowFileChunk chunk = (*good)->description().chunks(0);
  for (size_t byte = 0; byte < whole->size(); ++byte) {
    // Padding that no checksum covers holds nothing: behind the head, and between the chunks and the description.
    const bool head = byte >= 12 && byte < 64;
    const int64_t end = chunk.offset() + chunk.bytes();
    const bool between = static_cast<int64_t>(byte) >= end && static_cast<int64_t>(byte) < (end + 63) / 64 * 64;
    if (head || between) continue;
    ASSERT_OK(WriteFileAtomically(path_, *whole));
    FlipBit(path_, static_cast<int64_t>(byte));
    EXPECT_FALSE(ReadAll().ok()) << byte;
  }
  for (size_t kept = 0; kept < whole->size(); kept += 3) {
    ASSERT_OK(WriteFileAtomically(path_, whole->substr(0, kept)));
    const absl::Status status = ReadAll().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << kept << ": " << status;
  }
}

TEST_F(RowFileTest, ANewerFormatIsRefusedWithBothNumbers) {
  ASSERT_TRUE(Write({{1, {1, 2, 3, 4}}}, {}).ok());
  auto bytes = ReadWholeFile(path_);
  ASSERT_TRUE(bytes.ok());
  (*bytes)[8] = 9;
  ASSERT_OK(WriteFileAtomically(path_, *bytes));
  const auto reader = RowFileReader::Open(path_);
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr("has format 9; this build reads up to 1"));
}

TEST_F(RowFileTest, ChunksThatShareBytesAreRefused) {
  ASSERT_TRUE(Write({{1, {1, 2, 3, 4}}}, {}).ok());
  v1::RowFile description = (*RowFileReader::Open(path_))->description();
  const v1::RowFileChunk chunk = description.chunks(0);
  *description.add_chunks() = chunk;
  description.set_rows(2 * description.rows());
  const std::string text = description.SerializeAsString();
  const uint64_t numbers[] = {text.size(), StableHash(text)};
  ASSERT_OK(WriteFileAtomically(
      path_, absl::StrCat(ReadWholeFile(path_)->substr(0, static_cast<size_t>(chunk.offset() + chunk.bytes())), text,
                          absl::string_view(reinterpret_cast<const char*>(numbers), sizeof(numbers)), "WEIRROWE")));
  const absl::Status status = RowFileReader::Open(path_).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("two chunks that share bytes"));
}

TEST_F(RowFileTest, ALinkIsFollowedAndAPipeIsWritten) {
  const std::string link = path_ + ".link";
  std::filesystem::create_symlink(std::filesystem::path(path_).filename(), link);
  const std::string target = std::exchange(path_, link);
  ASSERT_TRUE(Write({{1, {1, 2, 3, 4}}}, {}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(RowFileReader::Open(target).ok());
  const std::string bytes = *ReadWholeFile(target);
  std::filesystem::remove(target);
  ASSERT_EQ(mkfifo(target.c_str(), 0600), 0);
  std::string piped;
  std::thread reader([&] { piped = ReadWholeFile(target).value_or(""); });
  ASSERT_TRUE(Write({{1, {1, 2, 3, 4}}}, {}).ok());
  reader.join();
  EXPECT_EQ(piped, bytes);
}

TEST_F(RowFileTest, AnUnfinishedFileLeavesTheOldOneAlone) {
  ASSERT_TRUE(Write({{1, {1, 2, 3, 4}}}, {}).ok());
  {
    const auto writer = RowFileWriter::Create(path_, kLayout, "job", 30, -1);
    ASSERT_TRUE(writer.ok());
    const std::vector<int64_t> ids = {5};
    EXPECT_FALSE((*writer)->Add(ids, {}, {}).ok());
  }
  const auto all = ReadAll();
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->ids, ::testing::ElementsAre(1));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(path_).parent_path()))
    files += entry.exists();
  EXPECT_EQ(files, 1);
}

}  // namespace
}  // namespace weir
