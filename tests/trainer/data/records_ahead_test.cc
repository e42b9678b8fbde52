// Records of files that lanes read together: read once for lanes that stay close together, and decompressed ahead.

#include "trainer/data/records_ahead.h"
#include "framework/formats/derived.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/example_stream.h"
#include "trainer/files/line_source.h"
#include "trainer/files/open_records.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

using PlacedLines = std::vector<std::pair<std::string, int64_t>>;

// Every line that is left, and where it stands.
PlacedLines Rest(RecordSource& source) {
  PlacedLines lines;
  std::string_view line;
  int64_t offset;
  while (source.Next(&line, &offset)) lines.emplace_back(line, offset);
  return lines;
}

class RecordsAheadTest : public ::testing::Test {
 protected:
  // A file with these bytes.
  const DataFile& File(const std::string& name, const std::string& bytes) {
    dir_.Write(name, bytes);
    v1::DataSource source;
    source.add_files(name);
    auto set = DataSet::Open(source, dir_.path(), "data.train");
    CHECK(set.ok()) << set.status();
    sets_.push_back(std::make_unique<DataSet>(*std::move(set)));
    return sets_.back()->files()[0];
  }
  static std::unique_ptr<RecordSource> Open(RecordsAhead& ahead, const DataFile& file,
                                            const RecordsAhead::Reader& reader) {
    auto source = ahead.Open(file, reader);
    CHECK(source.ok()) << source.status();
    return *std::move(source);
  }
  static PlacedLines Plainly(const DataFile& file) {
    auto source = OpenRecords(file, {.begin = 0, .end = file.bytes});
    CHECK(source.ok()) << source.status();
    PlacedLines lines = Rest(**source);
    CHECK((*source)->status().ok()) << (*source)->status();
    return lines;
  }

  TempDir dir_;
  std::vector<std::unique_ptr<DataSet>> sets_;
};

// Lines of many lengths.
std::string Text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i)
    absl::StrAppend(&text, i, std::string(static_cast<size_t>(i * 7 % 31), 'x'), i % 3 == 0 ? "\r\n" : "\n");
  return text;
}

// TFRecords of many sizes.
std::string Records(size_t records) {
  std::string bytes;
  for (size_t i = 0; i < records; ++i) bytes += Framed(absl::StrCat(i, std::string(i * 7 % 301, 'x')));
  return bytes;
}

TEST_F(RecordsAheadTest, TfRecordsAndWhatIsSaidOfDamageAreThoseOfTheirSource) {
  const std::string whole = Records(100);
  std::string bad_length = whole, bad_bytes = whole, bad_begin = whole;
  bad_begin[3] ^= 1;
  bad_length[Records(40).size() + 2] ^= 1;
  bad_bytes[Records(40).size() + 13] ^= 1;
  const std::string texts[] = {whole,     "",        whole.substr(0, whole.size() - 1), whole.substr(0, 7), bad_length,
                               bad_bytes, bad_begin, Records(50) + whole.substr(0, 9)};
  for (size_t t = 0; t < std::size(texts); ++t) {
    for (const std::string& packed : {texts[t], Gzip(texts[t]), Zstd(texts[t])}) {
      if (packed.empty()) continue;
      DataFile file = File("f", packed);
      file.tf_record = true;
      const auto source = OpenRecords(file, {.begin = 0, .end = file.bytes});
      ASSERT_TRUE(source.ok()) << source.status();
      const PlacedLines expected = Rest(**source);
      EXPECT_EQ((*source)->status().ok(), t < 2);
      for (const size_t block : {1, 64, 1000, 1 << 18}) {
        RecordsAhead ahead({.block = block});
        const auto read = Open(ahead, file, {});
        EXPECT_EQ(Rest(*read), expected) << t << ", blocks of " << block;
        EXPECT_EQ(read->status(), (*source)->status());
        std::string_view record;
        int64_t offset;
        EXPECT_FALSE(read->Next(&record, &offset));
      }
    }
  }
}

TEST_F(RecordsAheadTest, FilesThatFollowAreDecompressedOnceInEveryRound) {
  constexpr int kLanes = 3;
  std::vector<const DataFile*> files;
  for (int i = 0; i < 5; ++i) files.push_back(&File(absl::StrCat("f", i), i == 3 ? Text(70) : Zstd(Text(50 * i + 7))));
  for (const int threads : {1, 3}) {
    RecordsAhead ahead({.lanes = kLanes, .threads = threads, .block = 64, .ahead = 2, .window = 8});
    for (int64_t round = 0; round < 3; ++round) {
      for (size_t f = 0; f < files.size(); ++f) {
        std::vector<RecordsAhead::Following> following;
        for (size_t i = f + 1; i < files.size(); ++i)
          following.push_back({.file = static_cast<int64_t>(i), .of = files[i]});
        const PlacedLines expected = Plainly(*files[f]);
        std::vector<std::unique_ptr<RecordSource>> sources;
        for (int lane = 0; lane < kLanes; ++lane) {
          auto source = ahead.Open(
              *files[f], {.file = static_cast<int64_t>(f), .lane = lane, .round = round, .shared = true}, following);
          ASSERT_TRUE(source.ok()) << source.status();
          sources.push_back(*std::move(source));
        }
        std::string_view line;
        int64_t offset;
        for (const auto& [text, place] : expected) {
          for (const auto& source : sources) {
            ASSERT_TRUE(source->Next(&line, &offset));
            ASSERT_EQ(line, text);
            ASSERT_EQ(offset, place);
          }
        }
        for (const auto& source : sources) EXPECT_FALSE(source->Next(&line, &offset)) << source->status();
      }
      EXPECT_EQ(ahead.passes(), (round + 1) * 5) << threads << " threads";
    }
  }
}

TEST_F(RecordsAheadTest, AFileThatFollowsAndIsGoneIsNotFoundWhenItsTurnComes) {
  const DataFile& file = File("f", Gzip("a\n"));
  const DataFile& gone = File("g", Gzip("b\n"));
  std::filesystem::remove(gone.path);
  RecordsAhead ahead({.lanes = 1});
  auto source = ahead.Open(file, {.file = 0, .shared = true}, {{{.file = 1, .of = &gone}}});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT(Rest(**source), SizeIs(1));
  EXPECT_THAT(ahead.Open(gone, {.file = 1, .shared = true}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("g: cannot open")));
}

TEST_F(RecordsAheadTest, LinesAndTheirPlacesAreThoseOfLineSource) {
  const std::string texts[] = {Text(200),
                               Text(200) + "no newline at the end",
                               Text(50) + std::string(5000, 'y') + "\n" + Text(50),
                               "\n\n\n",
                               "\r\n",
                               ""};
  for (size_t t = 0; t < std::size(texts); ++t) {
    const DataFile& gzip = File(absl::StrCat("t", t, ".gz"), Gzip(texts[t]));
    const DataFile& zstd = File(absl::StrCat("t", t, ".zst"), Zstd(texts[t]));
    std::vector<const DataFile*> files = {&gzip, &zstd};
    if (!texts[t].empty()) files.push_back(&File(absl::StrCat("t", t), texts[t]));
    for (const DataFile* file : files) {
      for (const size_t block : {1, 7, 64, 1 << 18}) {
        RecordsAhead ahead({.block = block});
        const auto source = Open(ahead, *file, {});
        EXPECT_EQ(Rest(*source), Plainly(*file)) << file->name << ", blocks of " << block;
        EXPECT_TRUE(source->status().ok()) << source->status();
      }
    }
  }
}

TEST_F(RecordsAheadTest, SkippedLinesAreThoseThatNextWouldHaveGiven) {
  const DataFile& file = File("f", Gzip(Text(300)));
  const PlacedLines all = Plainly(file);
  RecordsAhead ahead({.block = 64});
  const auto source = Open(ahead, file, {});
  std::string_view line;
  int64_t offset;
  for (size_t at = 0, step = 0; at + step < all.size(); at += step + 1, step = (step + 5) % 17) {
    ASSERT_EQ(source->Skip(static_cast<int64_t>(step)), static_cast<int64_t>(step));
    ASSERT_TRUE(source->Next(&line, &offset));
    ASSERT_EQ(std::pair(std::string(line), offset), all[at + step]);
  }
  EXPECT_LT(source->Skip(1000), 40);
  EXPECT_FALSE(source->Next(&line, &offset));
  EXPECT_TRUE(source->status().ok());
}

TEST_F(RecordsAheadTest, LanesThatStayTogetherShareOnePassInEveryRound) {
  const DataFile& file = File("f", Gzip(Text(1000)));
  const PlacedLines all = Plainly(file);
  RecordsAhead ahead({.lanes = 4, .threads = 2, .block = 64, .ahead = 2, .window = 8});
  for (int64_t round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<RecordSource>> lanes;
    for (int lane = 0; lane < 4; ++lane)
      lanes.push_back(Open(ahead, file, {.lane = lane, .round = round, .shared = true}));
    std::string_view line;
    int64_t offset;
    for (const auto& expected : all) {
      for (const auto& lane : lanes) {
        ASSERT_TRUE(lane->Next(&line, &offset));
        ASSERT_EQ(std::pair(std::string(line), offset), expected);
      }
    }
    for (const auto& lane : lanes) EXPECT_FALSE(lane->Next(&line, &offset));
    EXPECT_EQ(ahead.passes(), round + 1);
  }
}

TEST_F(RecordsAheadTest, AFileThatFitsIntoTheWindowIsDecompressedOnceForLanesThatComeOneAfterTheOther) {
  const DataFile& file = File("f", Gzip(Text(100)));
  RecordsAhead ahead({.lanes = 3});
  for (int lane = 0; lane < 3; ++lane)
    EXPECT_EQ(Rest(*Open(ahead, file, {.lane = lane, .shared = true})), Plainly(file));
  EXPECT_EQ(ahead.passes(), 1);
}

TEST_F(RecordsAheadTest, ALaneFarAheadWaitsForNobodyAndTheOthersShareAnotherPass) {
  const DataFile& file = File("f", Gzip(Text(1000)));
  const PlacedLines all = Plainly(file);
  RecordsAhead ahead({.lanes = 3, .threads = 1, .block = 64, .ahead = 2, .window = 4});
  const auto second = Open(ahead, file, {.lane = 1, .shared = true});
  const auto third = Open(ahead, file, {.lane = 2, .shared = true});
  std::string_view line;
  int64_t offset;
  // The second lane stands in the middle of a block when the first runs away.
  ASSERT_TRUE(second->Next(&line, &offset));
  EXPECT_EQ(Rest(*Open(ahead, file, {.lane = 0, .shared = true})), all);
  EXPECT_EQ(ahead.passes(), 1);
  PlacedLines of_second = {all[0]}, of_third;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && second->Next(&line, &offset)) of_second.emplace_back(line, offset);
    if (third->Next(&line, &offset)) of_third.emplace_back(line, offset);
  }
  EXPECT_EQ(of_second, all);
  EXPECT_EQ(of_third, all);
  EXPECT_EQ(ahead.passes(), 2);
}

class RecordsOfManyThreadsTest : public RecordsAheadTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Packed, RecordsOfManyThreadsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "gzip" : "plain"; });

TEST_P(RecordsOfManyThreadsTest, LanesAtAnySpeedGetEveryLine) {
  const DataFile& file = File("f", GetParam() ? Gzip(Text(3000)) : Text(3000));
  const PlacedLines all = Plainly(file);
  constexpr int kLanes = 5;
  constexpr int64_t kRounds = 3;
  RecordsAhead ahead({.lanes = kLanes, .threads = 3, .block = 512, .ahead = 1, .window = 3});
  std::vector<std::thread> threads;
  std::vector<PlacedLines> dealt(kLanes);
  for (int lane = 0; lane < kLanes; ++lane) {
    threads.emplace_back([&, lane] {
      for (int64_t round = 0; round < kRounds; ++round) {
        const auto source = Open(ahead, file, {.lane = lane, .round = round, .shared = true});
        std::string_view line;
        int64_t offset;
        source->Skip(lane);
        while (source->Next(&line, &offset)) {
          dealt[static_cast<size_t>(lane)].emplace_back(line, offset);
          source->Skip(kLanes - 1);
          if (lane == 3 && offset % 5 == 0) std::this_thread::yield();
        }
        // One stops early.
        if (lane == 4 && round == 1) break;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t lane = 0; lane < kLanes; ++lane) {
    PlacedLines expected;
    for (int64_t round = 0; round < (lane == 4 ? 2 : kRounds); ++round) {
      for (size_t i = lane; i < all.size(); i += kLanes) expected.push_back(all[i]);
    }
    EXPECT_EQ(dealt[lane], expected) << lane;
  }
}

// A lane that falls out of the first pass joins another, whose first block is kept for a lane that never comes.
TEST_F(RecordsAheadTest, ALaneThatFallsOutDoesNotWaitForOneThatNeverComes) {
  const DataFile& file = File("f", Text(3000));
  const PlacedLines all = Plainly(file);
  RecordsAhead ahead({.lanes = 3, .threads = 1, .block = 512, .ahead = 1, .window = 3});
  const auto fast = Open(ahead, file, {.lane = 0, .round = 0, .shared = true});
  const auto slow = Open(ahead, file, {.lane = 2, .round = 0, .shared = true});
  // Together, far beyond the window; then one runs ahead.
  constexpr int64_t kTogether = 300;
  for (int64_t i = 0; i < kTogether; ++i) {
    ASSERT_EQ(fast->Skip(1), 1);
    ASSERT_EQ(slow->Skip(1), 1);
  }
  const PlacedLines rest(all.begin() + kTogether, all.end());
  EXPECT_EQ(Rest(*fast), rest);
  EXPECT_EQ(Rest(*slow), rest);
}

TEST_F(RecordsAheadTest, LinesBeforeTheDamageAreGivenAndThenTheError) {
  const std::string whole = Gzip(Text(1000));
  const DataFile& file = File("f", whole.substr(0, whole.size() - 100));
  for (const size_t block : {64, 1 << 18}) {
    RecordsAhead ahead({.lanes = 2, .block = block});
    auto plainly = LineSource::Open(file, {});
    ASSERT_TRUE(plainly.ok());
    const PlacedLines expected = Rest(**plainly);
    for (int lane = 0; lane < 2; ++lane) {
      const auto source = Open(ahead, file, {.lane = lane, .shared = true});
      EXPECT_EQ(Rest(*source), expected);
      EXPECT_EQ(source->status(), (*plainly)->status());
      EXPECT_THAT(source->status(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("f: cut: ")));
    }
  }
}

TEST_F(RecordsAheadTest, AZstdFileReadAfterDamageOrHalfwayHasItsLines) {
  const std::string whole = Zstd(Text(3000));
  std::string damaged = whole;
  for (size_t i = damaged.size() / 2; i < damaged.size() / 2 + 64; ++i) damaged[i] = static_cast<char>(~damaged[i]);
  const DataFile& good = File("good", whole);
  const PlacedLines expected = Plainly(good);
  // Decompressors are used again, whatever they have met.
  for (const DataFile* before : {&File("cut", whole.substr(0, whole.size() / 2)), &File("damaged", damaged), &good}) {
    {
      RecordsAhead ahead({.block = 64});
      const auto source = Open(ahead, *before, {});
      std::string_view line;
      int64_t offset;
      if (before == &good) {
        ASSERT_TRUE(source->Next(&line, &offset));
      } else {
        EXPECT_THAT(Rest(*source), SizeIs(::testing::Lt(expected.size())));
        EXPECT_THAT(source->status(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(before->name)));
      }
    }
    EXPECT_EQ(Plainly(good), expected) << "after " << before->name;
  }
}

TEST_F(RecordsAheadTest, LanesOfFilesOfTheirOwnInStepGetEveryLineFromOneThread) {
  constexpr size_t kLanes = 5;
  std::vector<const DataFile*> files;
  for (size_t i = 0; i < kLanes; ++i)
    files.push_back(&File(absl::StrCat("f", i), Zstd(Text(100 * static_cast<int>(i) + 7))));
  for (const int64_t blocks : {1, 2, 3, 8}) {
    RecordsAhead ahead({.lanes = kLanes, .threads = 1, .block = 64, .ahead = blocks, .window = 8});
    std::vector<std::unique_ptr<RecordSource>> sources;
    for (size_t i = 0; i < kLanes; ++i)
      sources.push_back(Open(ahead, *files[i], {.file = static_cast<int64_t>(i), .lane = static_cast<int>(i)}));
    std::vector<PlacedLines> read(kLanes);
    std::string_view line;
    int64_t offset;
    for (bool more = true; more;) {
      more = false;
      for (size_t i = 0; i < kLanes; ++i) {
        for (int some = 0; some < 3 && sources[i]->Next(&line, &offset); ++some) {
          read[i].emplace_back(line, offset);
          more = true;
        }
      }
    }
    for (size_t i = 0; i < kLanes; ++i)
      EXPECT_EQ(read[i], Plainly(*files[i])) << "lane " << i << ", " << blocks << " blocks ahead";
  }
}

TEST_F(RecordsAheadTest, ALineWithoutEndIsRefused) {
  const DataFile& file = File("f", Gzip("a\n" + std::string(static_cast<size_t>(2 * LineSource::kMaxLine), 'x')));
  RecordsAhead ahead({});
  const auto source = Open(ahead, file, {});
  EXPECT_THAT(Rest(*source), SizeIs(1));
  EXPECT_THAT(source->status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "f:2: the line at byte 2 is longer than 16777216 bytes: is this a text with lines?"));
}

TEST_F(RecordsAheadTest, TheLongestLineIsThatOfLineSource) {
  for (const int64_t more : {0, 1}) {
    const std::string line(static_cast<size_t>(LineSource::kMaxLine + more), 'x');
    const DataFile& file = File(absl::StrCat("f", more), "a\n" + line + "\nb\n");
    RecordsAhead ahead({});
    const auto source = Open(ahead, file, {});
    const auto plain = LineSource::Open(file, {.begin = 0, .end = file.bytes});
    ASSERT_TRUE(plain.ok());
    EXPECT_THAT(Rest(*source), SizeIs(more == 0 ? 3 : 1));
    EXPECT_THAT(Rest(**plain), SizeIs(more == 0 ? 3 : 1));
    EXPECT_EQ(source->status(), (*plain)->status());
    EXPECT_EQ(source->status().ok(), more == 0);
  }
}

TEST_F(RecordsAheadTest, MarksOfByteOrderAreThoseOfLineSource) {
  const std::string mark = "\xEF\xBB\xBF";
  for (const std::string& text :
       {mark, mark + "\n", mark + "a\nb\n", mark + "a\n" + mark, std::string("\xFF\xFE\n\0", 4)}) {
    for (const size_t block : {1, 3, 64}) {
      const DataFile& file = File(absl::StrCat("f", text.size()), Gzip(text));
      RecordsAhead ahead({.block = block});
      const auto source = Open(ahead, file, {});
      const auto plain = LineSource::Open(file, {});
      ASSERT_TRUE(plain.ok());
      EXPECT_EQ(Rest(*source), Rest(**plain)) << text.size() << " " << block;
      EXPECT_EQ(source->status(), (*plain)->status());
    }
  }
}

TEST_F(RecordsAheadTest, AFileThatIsGoneIsNotFound) {
  const DataFile& file = File("f", Gzip("a\n"));
  std::filesystem::remove(file.path);
  RecordsAhead ahead({});
  EXPECT_THAT(ahead.Open(file, {}).status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("f: cannot open")));
}

TEST_F(RecordsAheadTest, CancelEndsReading) {
  const DataFile& file = File("f", Gzip(Text(1000)));
  RecordsAhead ahead({.lanes = 2, .block = 64});
  const auto source = Open(ahead, file, {.shared = true});
  std::string_view line;
  int64_t offset;
  ASSERT_TRUE(source->Next(&line, &offset));
  ahead.Cancel();
  EXPECT_LT(Rest(*source).size(), 10u);
  EXPECT_THAT(source->status(), StatusIs(absl::StatusCode::kCancelled, "reading was cancelled"));
}

TEST_F(RecordsAheadTest, SourcesMayOutliveIt) {
  const DataFile& file = File("f", Gzip(Text(1000)));
  auto ahead = std::make_unique<RecordsAhead>(RecordsAhead::Options{.lanes = 2, .block = 64});
  const auto source = Open(*ahead, file, {.shared = true});
  std::string_view line;
  int64_t offset;
  ASSERT_TRUE(source->Next(&line, &offset));
  ahead = nullptr;
  EXPECT_EQ(line, "0");
  Rest(*source);
  EXPECT_EQ(source->status().code(), absl::StatusCode::kCancelled);
}

// Examples of all streams of files whose lines are dealt to streams, with and without threads that decompress.
TEST_F(RecordsAheadTest, StreamsGiveTheSameExamplesWithAndWithoutIt) {
  const v1::Data job = ParseData("csv { column { name: 'x' } }");
  auto parser = MakeLineParser(job);
  ASSERT_TRUE(parser.ok());
  std::string texts[3];
  for (size_t f = 0; f < 3; ++f) {
    texts[f] = "x\n";
    for (size_t i = 0; i < 50 + 3 * f; ++i) absl::StrAppend(&texts[f], 100 * f + i, "\n");
  }
  dir_.Write("a", Gzip(texts[0]));
  dir_.Write("b", texts[1]);
  dir_.Write("c", Zstd(texts[2]));
  v1::DataSource files;
  for (const char* name : {"a", "b", "c"}) files.add_files(name);
  const auto set = DataSet::Open(files, dir_.path(), "data.train");
  ASSERT_TRUE(set.ok()) << set.status();
  for (const int streams : {1, 2, 3, 5, 8}) {
    RecordsAhead ahead({.lanes = streams, .block = 16, .ahead = 1, .window = 2});
    for (int stream = 0; stream < streams; ++stream) {
      const auto read = [&](RecordsAhead* with) {
        ExampleStream examples({.data = &*set,
                                .parser = parser->get(),
                                .stream = stream,
                                .streams = streams,
                                .ahead = with,
                                .lane = stream});
        Example example;
        ExampleStream::Prepare(**parser, &example);
        InputPosition position;
        std::vector<std::pair<float, InputPosition>> all;
        for (int epoch = 0; epoch < 2; ++epoch) {
          while (examples.Next(&example, &position)) all.emplace_back(example.floats[0], position);
          CHECK(examples.status().ok()) << examples.status();
          examples.Rewind();
        }
        return all;
      };
      EXPECT_EQ(read(&ahead), read(nullptr)) << "stream " << stream << " of " << streams;
    }
  }
}

}  // namespace
}  // namespace weir
