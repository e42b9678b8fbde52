// Streams whose parser looks values up: lines are begun ahead, and nothing else changes.
#include "trainer/data/example_stream.h"
#include "framework/formats/derived.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/formats/learned.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/tf_example.pb.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kData[] = R"(
  train { files: "train.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "item" } }
  derived { name: "word" vocabulary { of: "item" file: "words.txt" refuse_unknown: true } }
)";

// The place of the word 1000 + i in a list of `words` words is i.
std::unique_ptr<LineParser> Parser(int64_t words, const std::string& config = kData) {
  std::vector<int64_t> ids(static_cast<size_t>(words));
  std::iota(ids.begin(), ids.end(), 1000);
  Learned learned;
  learned.lessons.push_back({.kind = Lesson::kVocabulary,
                             .index = 0,
                             .name = "word",
                             .of = "item",
                             .list = std::make_shared<IdList>(std::move(ids), std::vector<double>())});
  auto parser = MakeLineParser(ParseData(config), &learned);
  CHECK(parser.ok()) << parser.status();
  return *std::move(parser);
}

constexpr int64_t kFew = 100, kMany = 5000;

// What a stream gives: "offset:label:word", then the status if it is an error.
std::vector<std::string> Given(const TempDir& dir, int64_t words, ExampleStream::Options options, int passes = 1) {
  const DataSet data = OpenTrain(MakeSpec(kData, dir));
  const std::unique_ptr<LineParser> parser = Parser(words);
  options.data = &data;
  options.parser = parser.get();
  options.label_ranges = {{0, {.variable = "label", .loss = "a loss", .most = 1}}};
  ExampleStream stream(options);
  Example example;
  ExampleStream::Prepare(*parser, &example);
  std::vector<std::string> given;
  for (int pass = 0; pass < passes; ++pass) {
    if (pass > 0) stream.Rewind(pass);
    InputPosition position;
    while (stream.Next(&example, &position)) {
      given.push_back(absl::StrCat(position.offset, ":", example.floats[0], ":", example.ids.back()));
      EXPECT_EQ(stream.line(), absl::StrCat("1 ", example.floats[0], " 1 ", 1000 + example.ids.back()));
    }
  }
  if (!stream.status().ok()) given.emplace_back(stream.status().message());
  return given;
}

TEST(ExampleStreamTest, OnlyALargeListIsLookedUpAhead) {
  EXPECT_FALSE(Parser(kFew)->looks_up());
  EXPECT_TRUE(Parser(kMany)->looks_up());
}

TEST(ExampleStreamTest, LinesThatAreBegunAheadAreThoseOfTheFile) {
  TempDir dir;
  std::string lines;
  std::vector<std::string> wanted;
  for (int64_t i = 0; i < 90; ++i) {
    wanted.push_back(absl::StrCat(lines.size(), ":", i % 2, ":", i));
    absl::StrAppend(&lines, "1 ", i % 2, " 1 ", 1000 + i, "\n");
  }
  dir.Write("train.txt", lines);
  EXPECT_EQ(Given(dir, kFew, {}), wanted);
  EXPECT_EQ(Given(dir, kMany, {}), wanted);
  std::vector<std::string> twice = wanted;
  twice.insert(twice.end(), wanted.begin(), wanted.end());
  EXPECT_EQ(Given(dir, kMany, {}, 2), twice);
}

TEST(ExampleStreamTest, BadLinesAreSkippedWhereverTheyAreFound) {
  TempDir dir;
  // No number; a label out of range; a word that is not known; an empty line; at the end one more.
  dir.Write("train.txt", "1 0 1 1000\n1 x 1 1001\n1 7 1 1002\n1 1 1 999\n\n1 1 1 1003\n1 1 1\n");
  for (const int64_t words : {kFew, kMany}) {
    std::vector<int64_t> skipped;
    EXPECT_THAT(Given(dir, words,
                      {.bad_line = v1::Data::SKIP,
                       .on_skipped = [&](const InputPosition& position) { skipped.push_back(position.offset); }}),
                ElementsAre("0:0:0", "44:1:3"));
    EXPECT_THAT(skipped, ElementsAre(11, 22, 33, 43, 55));
  }
}

TEST(ExampleStreamTest, TheFirstBadLineIsTheErrorAfterAllLinesBeforeIt) {
  TempDir dir;
  // The second line is found bad when it ends, the third when it begins.
  dir.Write("train.txt", "1 0 1 1000\n1 1 1 999\n1 x 1 1001\n");
  for (const int64_t words : {kFew, kMany}) {
    EXPECT_THAT(Given(dir, words, {}), ElementsAre("0:0:0", HasSubstr("train.txt:2: 'word': the vocabulary of")));
  }
  dir.Write("train.txt", "1 0 1 1000\n1 x 1 999\n1 1 1 999\n");
  for (const int64_t words : {kFew, kMany}) {
    EXPECT_THAT(Given(dir, words, {}), ElementsAre("0:0:0", HasSubstr("train.txt:2: ")));
  }
}

TEST(ExampleStreamTest, TheBytesOfARecordAreThoseOfItsExample) {
  const std::string config = R"(
    train { files: "train.tfrecord" }
    tf_record { feature { name: "label" } feature { name: "item" type: ID } }
    derived { name: "word" vocabulary { of: "item" file: "words.txt" } })";
  TempDir dir;
  std::vector<std::string> records;
  std::string file;
  for (int64_t i = 0; i < 20; ++i) {
    v1::TfExample example;
    const auto add = [&](const std::string& name, int64_t value) {
      v1::TfFeature feature;
      feature.mutable_int64_list()->add_value(value);
      v1::TfFeatures::Entry* const entry = example.mutable_features()->add_feature();
      entry->set_key(name);
      entry->set_value(feature.SerializeAsString());
    };
    add("label", i % 2);
    add("item", 1000 + i);
    records.push_back(example.SerializeAsString());
    file += Framed(records.back());
  }
  dir.Write("train.tfrecord", file);
  const DataSpec spec = MakeSpec(config, dir);
  const absl::StatusOr<DataSet> data = DataSet::Open(spec.config, spec.config.train(), spec.directory, "data.train");
  ASSERT_TRUE(data.ok()) << data.status();
  const std::unique_ptr<LineParser> parser = Parser(kMany, config);
  ASSERT_TRUE(parser->looks_up());
  ExampleStream stream({.data = &*data, .parser = parser.get()});
  Example example;
  ExampleStream::Prepare(*parser, &example);
  InputPosition position;
  for (int64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(stream.Next(&example, &position)) << stream.status();
    EXPECT_EQ(example.ids.back(), i);
    EXPECT_EQ(stream.line(), records[static_cast<size_t>(i)]);
  }
  EXPECT_FALSE(stream.Next(&example, &position));
}

TEST(ExampleStreamTest, AnErrorOfTheFileComesAfterTheLineBeforeIt) {
  TempDir dir;
  std::string lines;
  for (int64_t i = 0; i < 3000; ++i) absl::StrAppend(&lines, "1 0 1 ", 1000 + i * 7919 % kMany, "\n");
  const std::string whole = Gzip(lines);
  dir.Write("train.txt", whole.substr(0, whole.size() / 2));
  const std::vector<std::string> given = Given(dir, kMany, {});
  ASSERT_GT(given.size(), 100u);
  EXPECT_THAT(given.back(), HasSubstr("train.txt"));
  for (size_t i = 0; i + 1 < given.size(); ++i) {
    ASSERT_THAT(given[i], ::testing::EndsWith(absl::StrCat(":", static_cast<int64_t>(i) * 7919 % kMany)));
  }
}

}  // namespace
}  // namespace weir
