// The rule that cut files into streams before the present one: runs that began with it go on with the same lines.

#include "trainer/files/earlier_stream_rule.h"

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
#include "tests/trainer/data/sized_files.h"
#include "trainer/files/stream_rule.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

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

TEST(EarlierStreamRuleTest, EveryByteAndEveryFileIsCutIntoStreamsOnce) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const std::vector<DataFile> files = SomeFiles(seed);
    for (const int streams : {1, 2, 3, 8, 64}) {
      std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> ranges;  // by file
      std::map<int64_t, std::set<int64_t>> dealt;
      for (int s = 0; s < streams; ++s) {
        int64_t last = -1;
        for (const Segment& segment : CutStreamByEarlierRule(files, s, streams)) {
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

TEST(EarlierStreamRuleTest, SmallPlainFilesAreDealtLineByLine) {
  EXPECT_THAT(Text(CutStreamByEarlierRule({Plain(10 * kMiB), Plain(6 * kMiB)}, 1, 4)),
              ElementsAre(absl::StrCat("0:0-", 10 * kMiB, "/4"), absl::StrCat("1:0-", 6 * kMiB, "/4")));
  EXPECT_THAT(Text(CutStreamByEarlierRule({Plain(10 * kMiB), Plain(6 * kMiB + 1)}, 1, 4)),
              ::testing::SizeIs(::testing::Ge(256u)));
}

TEST(EarlierStreamRuleTest, PartsAreDealtForthAndBack) {
  // 32 MiB over 4096 streams: two rounds of 4 KiB.
  const std::vector<DataFile> file = {Plain(32 * kMiB)};
  const auto part = [](int64_t p) { return absl::StrCat("0:", p * 4096, "-", (p + 1) * 4096); };
  EXPECT_THAT(Text(CutStreamByEarlierRule(file, 0, 4096)), ElementsAre(part(0), part(8191)));
  EXPECT_THAT(Text(CutStreamByEarlierRule(file, 1, 4096)), ElementsAre(part(1), part(8190)));
  EXPECT_THAT(Text(CutStreamByEarlierRule(file, 4095, 4096)), ElementsAre(part(4095), part(4096)));
}

TEST(EarlierStreamRuleTest, AStreamOfABigFileHasAtMost256Parts) {
  const std::vector<Segment> segments = CutStreamByEarlierRule({Plain(int64_t{1} << 40)}, 3, 8);
  ASSERT_EQ(segments.size(), 256u);
  EXPECT_EQ(segments[0].begin, 3 * (int64_t{1} << 29));
  EXPECT_EQ(segments[1].begin, (8 + 4) * (int64_t{1} << 29));
}

TEST(EarlierStreamRuleTest, EveryStreamSeesEveryHundredthOfThePlainText) {
  for (const int streams : {2, 8, 32}) {
    const std::vector<DataFile> files = {Plain(20 * kMiB), Plain(1 * kMiB), Plain(70 * kMiB)};
    for (int s = 0; s < streams; ++s) {
      std::vector<int64_t> bytes(100, 0);
      int64_t base[] = {0, 20 * kMiB, 21 * kMiB};
      for (const Segment& segment : CutStreamByEarlierRule(files, s, streams)) {
        const double middle = static_cast<double>(base[segment.file] + ((segment.begin + segment.end) >> 1));
        bytes[static_cast<size_t>(100 * middle / static_cast<double>(91 * kMiB))] += segment.end - segment.begin;
      }
      for (const int64_t of_hundredth : bytes) EXPECT_GT(of_hundredth, 0) << "stream " << s << " of " << streams;
    }
  }
}

TEST(EarlierStreamRuleTest, SmallCompressedFilesAreDealtLineByLine) {
  EXPECT_THAT(Text(CutStreamByEarlierRule({Packed(8 * kMiB), Packed(8 * kMiB)}, 1, 2)),
              ElementsAre(absl::StrCat("0:0-", 8 * kMiB, "/2"), absl::StrCat("1:0-", 8 * kMiB, "/2")));
  EXPECT_THAT(Text(CutStreamByEarlierRule({Packed(8 * kMiB), Packed(8 * kMiB + 1)}, 1, 2)),
              ElementsAre(absl::StrCat("0:0-", 8 * kMiB)));
  // Plain bytes beside them count for themselves.
  EXPECT_THAT(Text(CutStreamByEarlierRule({Packed(8 * kMiB), Plain(16 * kMiB)}, 0, 2)),
              ElementsAre(absl::StrCat("0:0-", 8 * kMiB, "/2"), absl::StrCat("1:0-", 16 * kMiB, "/2")));
}

TEST(EarlierStreamRuleTest, CompressedFilesGoWholeLargestFirstToTheLightestStream) {
  // 60 to stream 0, 50 to stream 1, 30 to stream 1, 20 to stream 0.
  const std::vector<DataFile> files = {Packed(20 * kMiB), Packed(30 * kMiB), Packed(50 * kMiB), Packed(60 * kMiB)};
  EXPECT_THAT(Text(CutStreamByEarlierRule(files, 0, 2)),
              ElementsAre(absl::StrCat("0:0-", 20 * kMiB), absl::StrCat("3:0-", 60 * kMiB)));
  EXPECT_THAT(Text(CutStreamByEarlierRule(files, 1, 2)),
              ElementsAre(absl::StrCat("1:0-", 30 * kMiB), absl::StrCat("2:0-", 50 * kMiB)));
}

TEST(EarlierStreamRuleTest, ACompressedFileAboveTheMeanIsDealtLineByLine) {
  // The mean of two streams is 100.
  const std::vector<DataFile> files = {Packed(40 * kMiB), Packed(120 * kMiB), Packed(40 * kMiB)};
  const std::string dealt = absl::StrCat("1:0-", 120 * kMiB, "/2");
  EXPECT_THAT(Text(CutStreamByEarlierRule(files, 0, 2)), ElementsAre(absl::StrCat("0:0-", 40 * kMiB), dealt));
  EXPECT_THAT(Text(CutStreamByEarlierRule(files, 1, 2)), ElementsAre(dealt, absl::StrCat("2:0-", 40 * kMiB)));
}

TEST(EarlierStreamRuleTest, CompressedFilesOfLikeSizeGoWhole) {
  const std::vector<DataFile> files = {Packed(1003 * kMiB), Packed(997 * kMiB), Packed(1001 * kMiB),
                                       Packed(999 * kMiB)};
  for (int s = 0; s < 4; ++s) {
    const std::vector<Segment> segments = CutStreamByEarlierRule(files, s, 4);
    ASSERT_EQ(segments.size(), 1u);
    EXPECT_EQ(segments[0].modulus, 1);
  }
}

TEST(EarlierStreamRuleTest, NoStreamHasMuchMoreThanTheMeanOfCompressedBytes) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const std::vector<DataFile> files = SomeFiles(seed);
    for (const int streams : {2, 8}) {
      double total = 0;
      for (const DataFile& file : files) total += file.sequential() ? static_cast<double>(file.bytes) : 0;
      for (int s = 0; s < streams; ++s) {
        double whole = 0;
        for (const Segment& segment : CutStreamByEarlierRule(files, s, streams)) {
          const DataFile& file = files[static_cast<size_t>(segment.file)];
          if (file.sequential() && segment.modulus == 1) whole += static_cast<double>(file.bytes);
        }
        EXPECT_LE(whole, 1.01 * total / streams) << "seed " << seed;
      }
    }
  }
}

TEST(EarlierStreamRuleTest, PicturesWhoseLabelsAreCompressedAreNotReadFromTheMiddle) {
  DataFile labels = Packed(100);
  auto idx = std::make_shared<IdxFile>();
  idx->examples = 1'000'000;
  idx->values = 784;
  idx->labels = std::make_shared<const DataFile>(labels);
  DataFile file = Plain(784 * kMiB);
  file.idx = idx;
  EXPECT_THAT(Text(CutStreamByEarlierRule({file}, 1, 2)), ElementsAre("0:0-1000000/2"));
  idx->labels = nullptr;
  EXPECT_EQ(CutStreamByEarlierRule({file}, 1, 2).size(), 256u);
}

// Text beside example files is cut as if it were alone, and where there is enough of both to be cut.
TEST(EarlierStreamRuleTest, ExampleFilesDoNotChangeThePartsOfText) {
  for (int s = 0; s < 8; ++s) {
    std::vector<std::string> text;
    for (const std::string& segment : Text(CutStreamByEarlierRule({Examples(300'000, 128), Plain(50 * kMiB)}, s, 8))) {
      if (segment.starts_with("1:")) text.push_back(absl::StrCat("0", segment.substr(1)));
    }
    EXPECT_EQ(text, Text(CutStreamByEarlierRule({Plain(50 * kMiB)}, s, 8)));
  }
}

TEST(EarlierStreamRuleTest, TheVersionIsThatOfTheRuleForTheFiles) {
  EXPECT_EQ(EarlierStreamScheme({Plain(50 * kMiB), Packed(50 * kMiB)}), 2);
  EXPECT_EQ(EarlierStreamScheme({Examples(100'000, 128), Packed(50 * kMiB)}), 2) << "dealt in turn";
  EXPECT_EQ(EarlierStreamScheme({Examples(200'000, 128)}), 3);
  EXPECT_EQ(EarlierStreamScheme({Examples(100, 128), Plain(50 * kMiB)}), 3);
}

TEST(EarlierStreamRuleTest, ARunGoesOnByItOnTheFilesThatItCut) {
  const std::vector<DataFile> text = {Plain(50 * kMiB)}, examples = {Examples(200'000, 128)};
  EXPECT_EQ(CutStream(text, 1, 2, 2), CutStreamByEarlierRule(text, 1, 2));
  EXPECT_NE(CutStream(text, 1, 2), CutStreamByEarlierRule(text, 1, 2));
  for (const int scheme : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(CutsBy(scheme, text), scheme == 2 || scheme == 4) << scheme;
    EXPECT_EQ(CutsBy(scheme, examples), scheme == 3 || scheme == 4) << scheme;
    EXPECT_EQ(CutsFollowedBy(scheme), scheme == 3 || scheme == 4) << scheme;
  }
}

}  // namespace
}  // namespace weir
