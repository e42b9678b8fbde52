// The rule that cuts files into streams: every line once, all regions in every stream, streams as even as files allow.

#include "trainer/data/stream_rule.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/example_file.h"
#include "trainer/data/example_stream.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMiB = int64_t{1} << 20;

DataFile Plain(int64_t bytes) { return {.path = "", .name = "", .bytes = bytes}; }
DataFile Packed(int64_t bytes) { return {.path = "", .name = "", .bytes = bytes, .compression = Compression::kGzip}; }

// "file:begin-end", and "/modulus" of what is dealt in turn.
std::vector<std::string> Text(const std::vector<Segment>& segments) {
  std::vector<std::string> text;
  for (const Segment& s : segments) {
    text.push_back(absl::StrCat(s.file, ":", s.begin, "-", s.end));
    if (s.modulus > 1) absl::StrAppend(&text.back(), "/", s.modulus);
  }
  return text;
}

// Files of all sizes and both kinds, drawn from `seed`.
std::vector<DataFile> SomeFiles(uint32_t seed) {
  std::vector<DataFile> files;
  const auto draw = [&] { return seed = seed * 1664525u + 1013904223u, seed >> 8; };
  const uint32_t count = 1 + draw() % 12;
  for (uint32_t i = 0; i < count; ++i) {
    const int64_t bytes = draw() % 7 == 0 ? 0 : int64_t{1} << draw() % 27;
    files.push_back(draw() % 2 == 0 ? Plain(bytes + draw() % 1000) : Packed(bytes + draw() % 1000));
  }
  return files;
}

TEST(StreamRuleTest, EveryByteAndEveryFileIsCutIntoStreamsOnce) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const std::vector<DataFile> files = SomeFiles(seed);
    for (const int streams : {1, 2, 3, 8, 64}) {
      std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> ranges;  // by file
      std::map<int64_t, std::set<int64_t>> dealt;
      for (int s = 0; s < streams; ++s) {
        int64_t last = -1;
        for (const Segment& segment : CutStream(files, s, streams)) {
          EXPECT_GE(segment.file, last) << "not in the order of the files";
          last = segment.file;
          if (segment.modulus > 1) {
            EXPECT_EQ(segment.modulus, streams);
            EXPECT_TRUE(dealt[segment.file].insert(segment.remainder).second);
          } else {
            ranges[segment.file].emplace_back(segment.begin, segment.end);
          }
        }
      }
      for (size_t f = 0; f < files.size(); ++f) {
        auto& of_file = ranges[static_cast<int64_t>(f)];
        if (!dealt[static_cast<int64_t>(f)].empty()) {
          EXPECT_TRUE(of_file.empty());
          EXPECT_EQ(dealt[static_cast<int64_t>(f)].size(), static_cast<size_t>(streams));
          continue;
        }
        std::sort(of_file.begin(), of_file.end());
        int64_t at = 0;
        for (const auto& [begin, end] : of_file) {
          EXPECT_EQ(begin, at) << "seed " << seed << ", file " << f << ", " << streams << " streams";
          at = end;
        }
        EXPECT_EQ(at, files[f].bytes) << "seed " << seed << ", file " << f << ", " << streams << " streams";
      }
    }
  }
}

TEST(StreamRuleTest, SmallPlainFilesAreDealtLineByLine) {
  EXPECT_THAT(Text(CutStream({Plain(10 * kMiB), Plain(6 * kMiB)}, 1, 4)),
              ElementsAre(absl::StrCat("0:0-", 10 * kMiB, "/4"), absl::StrCat("1:0-", 6 * kMiB, "/4")));
  EXPECT_THAT(Text(CutStream({Plain(10 * kMiB), Plain(6 * kMiB + 1)}, 1, 4)), ::testing::SizeIs(::testing::Ge(256u)));
}

TEST(StreamRuleTest, PartsAreDealtForthAndBack) {
  // 32 MiB over 4096 streams: two rounds of 4 KiB.
  const std::vector<DataFile> file = {Plain(32 * kMiB)};
  const auto part = [](int64_t p) { return absl::StrCat("0:", p * 4096, "-", (p + 1) * 4096); };
  EXPECT_THAT(Text(CutStream(file, 0, 4096)), ElementsAre(part(0), part(8191)));
  EXPECT_THAT(Text(CutStream(file, 1, 4096)), ElementsAre(part(1), part(8190)));
  EXPECT_THAT(Text(CutStream(file, 4095, 4096)), ElementsAre(part(4095), part(4096)));
}

TEST(StreamRuleTest, AStreamOfABigFileHasAtMost256Parts) {
  const std::vector<Segment> segments = CutStream({Plain(int64_t{1} << 40)}, 3, 8);
  ASSERT_EQ(segments.size(), 256u);
  EXPECT_EQ(segments[0].begin, 3 * (int64_t{1} << 29));
  EXPECT_EQ(segments[1].begin, (8 + 4) * (int64_t{1} << 29));
}

TEST(StreamRuleTest, EveryStreamSeesEveryHundredthOfThePlainText) {
  for (const int streams : {2, 8, 32}) {
    const std::vector<DataFile> files = {Plain(20 * kMiB), Plain(1 * kMiB), Plain(70 * kMiB)};
    for (int s = 0; s < streams; ++s) {
      std::vector<int64_t> bytes(100, 0);
      int64_t base[] = {0, 20 * kMiB, 21 * kMiB};
      for (const Segment& segment : CutStream(files, s, streams)) {
        const double middle = static_cast<double>(base[segment.file] + ((segment.begin + segment.end) >> 1));
        bytes[static_cast<size_t>(100 * middle / static_cast<double>(91 * kMiB))] += segment.end - segment.begin;
      }
      for (const int64_t of_hundredth : bytes) EXPECT_GT(of_hundredth, 0) << "stream " << s << " of " << streams;
    }
  }
}

TEST(StreamRuleTest, SmallCompressedFilesAreDealtLineByLine) {
  EXPECT_THAT(Text(CutStream({Packed(8 * kMiB), Packed(8 * kMiB)}, 1, 2)),
              ElementsAre(absl::StrCat("0:0-", 8 * kMiB, "/2"), absl::StrCat("1:0-", 8 * kMiB, "/2")));
  EXPECT_THAT(Text(CutStream({Packed(8 * kMiB), Packed(8 * kMiB + 1)}, 1, 2)),
              ElementsAre(absl::StrCat("0:0-", 8 * kMiB)));
  // Plain bytes beside them count for themselves.
  EXPECT_THAT(Text(CutStream({Packed(8 * kMiB), Plain(16 * kMiB)}, 0, 2)),
              ElementsAre(absl::StrCat("0:0-", 8 * kMiB, "/2"), absl::StrCat("1:0-", 16 * kMiB, "/2")));
}

TEST(StreamRuleTest, CompressedFilesGoWholeLargestFirstToTheLightestStream) {
  // 60 to stream 0, 50 to stream 1, 30 to stream 1, 20 to stream 0.
  const std::vector<DataFile> files = {Packed(20 * kMiB), Packed(30 * kMiB), Packed(50 * kMiB), Packed(60 * kMiB)};
  EXPECT_THAT(Text(CutStream(files, 0, 2)),
              ElementsAre(absl::StrCat("0:0-", 20 * kMiB), absl::StrCat("3:0-", 60 * kMiB)));
  EXPECT_THAT(Text(CutStream(files, 1, 2)),
              ElementsAre(absl::StrCat("1:0-", 30 * kMiB), absl::StrCat("2:0-", 50 * kMiB)));
}

TEST(StreamRuleTest, ACompressedFileAboveTheMeanIsDealtLineByLine) {
  // The mean of two streams is 100.
  const std::vector<DataFile> files = {Packed(40 * kMiB), Packed(120 * kMiB), Packed(40 * kMiB)};
  const std::string dealt = absl::StrCat("1:0-", 120 * kMiB, "/2");
  EXPECT_THAT(Text(CutStream(files, 0, 2)), ElementsAre(absl::StrCat("0:0-", 40 * kMiB), dealt));
  EXPECT_THAT(Text(CutStream(files, 1, 2)), ElementsAre(dealt, absl::StrCat("2:0-", 40 * kMiB)));
}

TEST(StreamRuleTest, CompressedFilesOfLikeSizeGoWhole) {
  const std::vector<DataFile> files = {Packed(1003 * kMiB), Packed(997 * kMiB), Packed(1001 * kMiB),
                                       Packed(999 * kMiB)};
  for (int s = 0; s < 4; ++s) {
    const std::vector<Segment> segments = CutStream(files, s, 4);
    ASSERT_EQ(segments.size(), 1u);
    EXPECT_EQ(segments[0].modulus, 1);
  }
}

TEST(StreamRuleTest, NoStreamHasMuchMoreThanTheMeanOfCompressedBytes) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const std::vector<DataFile> files = SomeFiles(seed);
    for (const int streams : {2, 8}) {
      double total = 0;
      for (const DataFile& file : files) total += file.sequential() ? static_cast<double>(file.bytes) : 0;
      for (int s = 0; s < streams; ++s) {
        double whole = 0;
        for (const Segment& segment : CutStream(files, s, streams)) {
          const DataFile& file = files[static_cast<size_t>(segment.file)];
          if (file.sequential() && segment.modulus == 1) whole += static_cast<double>(file.bytes);
        }
        EXPECT_LE(whole, 1.01 * total / streams) << "seed " << seed;
      }
    }
  }
}

TEST(StreamRuleTest, PicturesWhoseLabelsAreCompressedAreNotReadFromTheMiddle) {
  DataFile labels = Packed(100);
  auto idx = std::make_shared<IdxFile>();
  idx->examples = 1'000'000;
  idx->values = 784;
  idx->labels = std::make_shared<const DataFile>(labels);
  DataFile file = Plain(784 * kMiB);
  file.idx = idx;
  EXPECT_THAT(Text(CutStream({file}, 1, 2)), ElementsAre("0:0-1000000/2"));
  idx->labels = nullptr;
  EXPECT_EQ(CutStream({file}, 1, 2).size(), 256u);
}

// An example file of equal examples, in the blocks that the writer makes of them.
DataFile Examples(int64_t examples, int64_t bytes_each) {
  auto info = std::make_shared<ExampleFile>();
  info->place.push_back(64);
  info->first.push_back(0);
  const auto block = static_cast<int64_t>(ExampleFileWriter::kBlock);
  const int64_t in_block = (block + bytes_each - 1) / bytes_each;
  while (info->examples() < examples) {
    info->first.push_back(std::min(info->examples() + in_block, examples));
    info->place.push_back(64 + info->examples() * bytes_each);
  }
  DataFile file = Plain(info->place.back() + 3000);
  file.examples = std::move(info);
  return file;
}

struct Reach {
  int64_t least = INT64_MAX, most = 0;
};
// Returns how many examples of example files the streams have. Every example must be in one stream.
Reach ExamplesOfStreams(const std::vector<DataFile>& files, int streams) {
  Reach reach;
  std::vector<std::vector<int>> seen(files.size());
  for (size_t f = 0; f < files.size(); ++f) {
    if (files[f].examples != nullptr) seen[f].assign(static_cast<size_t>(files[f].examples->examples()), 0);
  }
  for (int s = 0; s < streams; ++s) {
    int64_t examples = 0;
    InputPosition last{.file = -1};
    for (const Segment& segment : CutStream(files, s, streams)) {
      const auto f = static_cast<size_t>(segment.file);
      if (files[f].examples == nullptr) continue;
      EXPECT_EQ(segment.modulus, 1);
      EXPECT_LT(last, (InputPosition{.file = segment.file, .offset = segment.begin}));
      last = {.file = segment.file, .offset = segment.begin};
      for (int64_t i = segment.begin; i < segment.end; ++i) ++seen[f][static_cast<size_t>(i)];
      examples += segment.end - segment.begin;
    }
    reach.least = std::min(reach.least, examples);
    reach.most = std::max(reach.most, examples);
  }
  for (const std::vector<int>& of_file : seen) {
    EXPECT_EQ(std::count(of_file.begin(), of_file.end(), 1), static_cast<int64_t>(of_file.size()));
  }
  return reach;
}

// Sizes at which ranges of bytes, and blocks, of equal length would fall into step.
TEST(StreamRuleTest, StreamsOfExampleFilesDifferByOneExampleHoweverLongExamplesAre) {
  for (const int streams : {2, 3, 16, 64}) {
    for (const int64_t examples : {196'500, 185'500, 180'000, 163'500}) {
      const Reach reach = ExamplesOfStreams({Examples(examples, 128)}, streams);
      EXPECT_LE(reach.most - reach.least, 1) << examples << " examples, " << streams << " streams";
    }
    for (const int64_t bytes_each : {100, 4096, 5000, 65536, 1 << 20}) {
      for (const int64_t mib : {17, 24, 40, 300}) {
        const int64_t examples = mib * kMiB / bytes_each;
        const Reach reach = ExamplesOfStreams({Examples(examples / 3, bytes_each), Plain(5 * kMiB), Plain(1),
                                               Examples(0, 8), Examples(examples - examples / 3, bytes_each)},
                                              streams);
        EXPECT_LE(reach.most - reach.least, 1) << mib << " MiB of " << bytes_each << " bytes, " << streams;
      }
    }
  }
}

TEST(StreamRuleTest, ExampleFilesAreCutInRoundsForthAndBack) {
  // 32 MiB over 64 streams: 8 rounds of 64 KiB, that is 512 examples.
  const std::vector<DataFile> file = {Examples(int64_t{64} * 8 * 512, 128)};
  const auto part = [](int64_t p) { return absl::StrCat("0:", p * 512, "-", (p + 1) * 512); };
  EXPECT_THAT(Text(CutStream(file, 5, 64)),
              ElementsAre(part(5), part(122), part(133), part(250), part(261), part(378), part(389), part(506)));
  EXPECT_EQ(CutStream({Examples(int64_t{1} << 24, 128)}, 3, 8).size(), 256u);
  EXPECT_THAT(Text(CutStream({Examples(100, 128)}, 1, 4)), ElementsAre("0:0-100/4"));
}

// Text beside example files is cut as if it were alone, and where there is enough of both to be cut.
TEST(StreamRuleTest, ExampleFilesDoNotChangeThePartsOfText) {
  for (int s = 0; s < 8; ++s) {
    std::vector<std::string> text;
    for (const std::string& segment : Text(CutStream({Examples(300'000, 128), Plain(50 * kMiB)}, s, 8))) {
      if (segment.starts_with("1:")) text.push_back(absl::StrCat("0", segment.substr(1)));
    }
    EXPECT_EQ(text, Text(CutStream({Plain(50 * kMiB)}, s, 8)));
  }
}

TEST(StreamRuleTest, TheVersionIsThatOfTheRuleForTheFiles) {
  EXPECT_EQ(StreamScheme({Plain(50 * kMiB), Packed(50 * kMiB)}), 2);
  EXPECT_EQ(StreamScheme({Examples(100'000, 128), Packed(50 * kMiB)}), 2) << "dealt in turn";
  EXPECT_EQ(StreamScheme({Examples(200'000, 128)}), 3);
  EXPECT_EQ(StreamScheme({Examples(100, 128), Plain(50 * kMiB)}), 3);
}

// Lines of 20 to 300 bytes, with their number in front, cut into files; then every line is in one stream, in its order.
TEST(StreamRuleTest, EveryLineOfRealFilesIsInOneStreamInTheirOrder) {
  TempDir dir;
  int lines = 0;
  for (int f = 0; f < 3; ++f) {
    std::string text;
    const size_t bytes = f == 1 ? 300 : 9 << 20;
    while (text.size() < bytes) {
      absl::StrAppend(&text, "1 ", lines, std::string(static_cast<size_t>(lines % 97 * 3), ' '), "\n");
      ++lines;
    }
    if (f == 1) text.pop_back();
    dir.Write(absl::StrCat("f", f), text);
  }
  const DataSpec spec = MakeSpec(absl::StrCat("train { files: 'f*' } ", kOneNumber), dir);
  const DataSet set = OpenTrain(spec);
  const auto parser = MakeLineParser(spec.config);
  ASSERT_TRUE(parser.ok()) << parser.status();
  for (const int streams : {1, 3, 8}) {
    std::vector<int> seen(static_cast<size_t>(lines), 0);
    for (int s = 0; s < streams; ++s) {
      ExampleStream stream({.data = &set, .parser = parser->get(), .stream = s, .streams = streams});
      Example example;
      ExampleStream::Prepare(**parser, &example);
      InputPosition position;
      float last = -1;
      while (stream.Next(&example, &position)) {
        EXPECT_GT(example.floats[0], last);
        last = example.floats[0];
        ++seen[static_cast<size_t>(last)];
      }
      ASSERT_TRUE(stream.status().ok()) << stream.status();
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), lines) << streams << " streams";
  }
}

}  // namespace
}  // namespace weir
