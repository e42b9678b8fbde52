// The rule that cuts files into streams: every record once, no stream longer than another, and no period of the data in
// any of them.

#include "trainer/files/stream_rule.h"
#include "framework/formats/derived.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "tests/trainer/data/sized_files.h"
#include "trainer/data/example_stream.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

TEST(StreamRuleTest, TextIsDealtLineByLineWhateverItsSizeAndCompression) {
  EXPECT_THAT(Text(CutStream({Plain(10), Packed(50 * kMiB), Plain(50 * kMiB)}, 1, 4)),
              ElementsAre("0:0-10/4", absl::StrCat("1:0-", 50 * kMiB, "/4"), absl::StrCat("2:0-", 50 * kMiB, "/4")));
}

TEST(StreamRuleTest, EveryRoundIsDealtOnce) {
  for (const int64_t streams : {1, 2, 3, 8, 64, 1000}) {
    for (const int64_t round : {int64_t{0}, int64_t{1}, int64_t{12345}, int64_t{1} << 40}) {
      std::set<int64_t> places;
      for (int64_t s = 0; s < streams; ++s) places.insert(PlaceInRound(7, round, s, streams));
      EXPECT_EQ(places.size(), static_cast<size_t>(streams));
      EXPECT_EQ(*places.begin(), 0);
      EXPECT_EQ(*places.rbegin(), streams - 1);
    }
  }
}

// Each place is as likely as another, whatever the stream got of the round before: neither the places nor their pairs
// differ from that by more than chance (the statistic of chi squared within five deviations of its mean).
TEST(StreamRuleTest, WhatAStreamGetsOfARoundIsAnyRecordAndIndependentOfOtherRounds) {
  constexpr int64_t kRounds = 200'000;
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{1} << 63}) {
    for (const int64_t streams : {2, 3, 8, 13}) {
      for (const int64_t stream : {int64_t{0}, streams - 1}) {
        std::vector<double> places(static_cast<size_t>(streams)), pairs(places.size() * places.size());
        int64_t before = PlaceInRound(seed, 0, stream, streams);
        for (int64_t round = 1; round <= kRounds; ++round) {
          const int64_t place = PlaceInRound(seed, round, stream, streams);
          ++places[static_cast<size_t>(place)];
          ++pairs[static_cast<size_t>(before * streams + place)];
          before = place;
        }
        for (const std::vector<double>& counts : {places, pairs}) {
          const double expected = static_cast<double>(kRounds) / static_cast<double>(counts.size());
          double chi = 0;
          for (const double count : counts) chi += (count - expected) * (count - expected) / expected;
          const double freedom = static_cast<double>(counts.size()) - 1;
          EXPECT_LT(std::abs(chi - freedom), 5 * std::sqrt(2 * freedom) + 5)
              << "seed " << seed << ", stream " << stream << " of " << streams;
        }
      }
    }
  }
  EXPECT_NE(PlaceInRound(1, 0, 0, 1 << 20), PlaceInRound(2, 0, 0, 1 << 20)) << "another seed draws otherwise";
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
      EXPECT_FALSE(segment.dealt);
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

TEST(StreamRuleTest, SmallExampleFilesAreDealtAsTheTextThatTheyWereMadeOf) {
  EXPECT_THAT(Text(CutStream({Examples(100'000, 128), Plain(kMiB)}, 1, 4)),
              ElementsAre("0:0-100000/4", absl::StrCat("1:0-", kMiB, "/4")));
  // Packed text does not count.
  EXPECT_THAT(Text(CutStream({Examples(100, 128), Packed(50 * kMiB)}, 1, 4)),
              ElementsAre("0:0-100/4", absl::StrCat("1:0-", 50 * kMiB, "/4")));
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
    int64_t most = 0, least = lines;
    for (int s = 0; s < streams; ++s) {
      int64_t given = 0;
      ExampleStream stream({.data = &set, .parser = parser->get(), .stream = s, .streams = streams});
      Example example;
      ExampleStream::Prepare(**parser, &example);
      InputPosition position;
      float last = -1;
      while (stream.Next(&example, &position)) {
        ++given;
        EXPECT_GT(example.floats[0], last);
        last = example.floats[0];
        ++seen[static_cast<size_t>(last)];
      }
      ASSERT_TRUE(stream.status().ok()) << stream.status();
      most = std::max(most, given);
      least = std::min(least, given);
    }
    EXPECT_LE(most - least, 1);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), lines) << streams << " streams";
  }
}

// Lines whose kind alternates with a period: a stream gets of each kind what a random choice of lines would.
TEST(StreamRuleTest, NoPeriodOfTheLinesShowsInAStream) {
  constexpr int kLines = 40'000;
  TempDir dir;
  std::string text;
  for (int i = 0; i < kLines; ++i) absl::StrAppend(&text, "1 ", i, "\n");
  dir.Write("plain", text);
  dir.Write("gzip", Gzip(text));
  dir.Write("zstd", Zstd(text));
  for (const char* file : {"plain", "gzip", "zstd"}) {
    const DataSpec spec = MakeSpec(absl::StrCat("train { files: '", file, "' } ", kOneNumber), dir);
    const DataSet set = OpenTrain(spec);
    const auto parser = MakeLineParser(spec.config);
    ASSERT_TRUE(parser.ok()) << parser.status();
    for (const int streams : {2, 8, 32}) {
      ExampleStream stream({.data = &set, .parser = parser->get(), .stream = 1, .streams = streams, .seed = 5});
      Example example;
      ExampleStream::Prepare(**parser, &example);
      InputPosition position;
      std::vector<int> given;
      while (stream.Next(&example, &position)) given.push_back(static_cast<int>(example.floats[0]));
      ASSERT_TRUE(stream.status().ok()) << stream.status();
      for (const int period : {2, 3, 5, 8, 16, 64}) {
        std::vector<double> kinds(static_cast<size_t>(period));
        for (const int line : given) ++kinds[static_cast<size_t>(line % period)];
        const double share = static_cast<double>(given.size()) / period;
        for (const double kind : kinds) {
          EXPECT_NEAR(kind, share, 5 * std::sqrt(share)) << file << ", period " << period << ", " << streams;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weir
