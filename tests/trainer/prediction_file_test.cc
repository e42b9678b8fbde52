// Files of predictions in each format, read back by Weir's own readers where they have one.

#include "trainer/predict/prediction_file.h"
#include "framework/formats/derived.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "framework/base/atomic_file.h"
#include "framework/base/stable_hash.h"
#include "framework/formats/line_parser.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/example_stream.h"
#include "trainer/files/data_set.h"
#include "trainer/files/open_bytes.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const std::vector<CarriedColumn>& Columns() {
  static const auto* const columns = new std::vector<CarriedColumn>{
      {.name = "user", .id_kind = IdKind::kText, .is_field = true},
      {.name = "items", .id_kind = IdKind::kInteger},
      {.name = "x", .floats = true, .width = 2},
      {.name = "C7", .id_kind = IdKind::kHex},
  };
  return *columns;
}

std::vector<CarriedValue> Row(const std::string& user, std::vector<int64_t> items, std::vector<float> weights,
                              std::vector<float> x, std::vector<int64_t> c7) {
  std::vector<CarriedValue> row(4);
  row[0] = {.has_field = true, .field = user, .texts = {user}, .ids = {77}};
  row[1] = {.ids = std::move(items), .weights = std::move(weights)};
  row[2] = {.floats = std::move(x)};
  row[3] = {.ids = std::move(c7)};
  return row;
}

std::vector<CarriedValue> Missing() {
  std::vector<CarriedValue> row;
  for (const CarriedColumn& column : Columns()) row.push_back(MissingValue(column));
  return row;
}

class PredictionFileTest : public ::testing::Test {
 protected:
  // Writes three examples, the second of which is missing, and returns the path.
  std::string Write(const std::string& name, int64_t width) {
    const std::string path = dir_.path() + "/" + name;
    const auto format = PredictionFormatOf(path, /*carries=*/false);
    CHECK(format.ok()) << format.status();
    const bool carries = *format != PredictionFormat::kText;
    auto file = PredictionFile::Create(path, *format, carries ? Columns() : std::vector<CarriedColumn>(), width);
    CHECK(file.ok()) << file.status();
    const auto add = [&](const std::vector<float>& values, const std::vector<CarriedValue>& row) {
      CHECK_EQ((*file)->Add(absl::MakeConstSpan(values).first(static_cast<size_t>(width)), row), absl::OkStatus());
    };
    add({0.5f, 1e-30f}, Row("an \"old\", user", {-3, 1L << 40}, {}, {0.1f, -2}, {0x5db9164}));
    add({kNan, kNan}, Missing());
    add({0.333333343f, 1}, Row("u", {5, 6}, {0.25f, 1}, {kNan, 16777216}, {}));
    CHECK(!std::filesystem::exists(path));
    CHECK_EQ((*file)->Finish(), absl::OkStatus());
    return path;
  }
  static std::string Contents(const std::string& path) {
    auto bytes = ReadWholeFile(path);
    CHECK(bytes.ok()) << bytes.status();
    return *std::move(bytes);
  }
  // Reads a file with a reader of the job.
  static std::vector<Example> Read(const std::string& path, const std::string& reader) {
    v1::Data data = ParseData(reader);
    data.mutable_train()->add_files(path);
    const auto set = DataSet::Open(data, data.train(), "", "data.train");
    CHECK(set.ok()) << set.status();
    const auto parser = MakeLineParser(data);
    CHECK(parser.ok()) << parser.status();
    ExampleStream stream({.data = &*set, .parser = parser->get()});
    std::vector<Example> examples;
    Example example;
    ExampleStream::Prepare(**parser, &example);
    InputPosition position;
    while (stream.Next(&example, &position)) examples.push_back(example);
    CHECK_EQ(stream.status(), absl::OkStatus());
    return examples;
  }

  TempDir dir_;
};

TEST_F(PredictionFileTest, TextHasThePredictionsAlone) {
  EXPECT_EQ(Contents(Write("scores", 2)), "0.5 1e-30\nnan nan\n0.333333343 1\n");
}

TEST_F(PredictionFileTest, CsvHasAHeaderAndFieldsAsTheyWere) {
  EXPECT_EQ(Contents(Write("scores.csv", 1)),
            "user,items,x[0],x[1],C7,prediction\n"
            "\"an \"\"old\"\", user\",-3 1099511627776,0.1,-2,05db9164,0.5\n"
            ",,,,,nan\n"
            "u,5:0.25 6:1,,16777216,,0.333333343\n");
  EXPECT_THAT(Contents(Write("classes.csv", 2)),
              AllOf(HasSubstr(",C7,prediction_0,prediction_1\n"), HasSubstr("\n,,,,,nan,nan\n")));
}

TEST_F(PredictionFileTest, TheCsvReaderReadsWhatWasWritten) {
  const std::vector<Example> read = Read(Write("scores.csv", 1), R"(csv {
      column { name: "prediction" missing: "nan" } column { name: "x[0]" } column { name: "user" type: TEXT }
      column { name: "items" type: ID list: " " weight: ":" } })");
  ASSERT_EQ(read.size(), 3u);
  EXPECT_THAT(read[0].floats, ElementsAre(0.5f, 0.1f));
  EXPECT_THAT(read[0].counts, ElementsAre(1, 2));
  EXPECT_THAT(read[2].weights, ElementsAre(1, 0.25f, 1));
}

TEST_F(PredictionFileTest, TheTfRecordReaderReadsWhatWasWritten) {
  const std::vector<Example> read = Read(Write("scores.tfrecord", 2), R"(tf_record {
      feature { name: "prediction" dim: 2 } feature { name: "x" dim: 2 } feature { name: "user" type: TEXT }
      feature { name: "items" type: ID weights: "items.weights" } feature { name: "C7" type: ID } })");
  ASSERT_EQ(read.size(), 3u);
  EXPECT_THAT(read[0].floats, ElementsAre(0.5f, 1e-30f, 0.1f, -2));
  EXPECT_THAT(read[0].counts, ElementsAre(1, 2, 1));
  EXPECT_THAT(read[0].ids, ElementsAre(static_cast<int64_t>(StableHash("an \"old\", user")), -3, 1L << 40, 0x5db9164));
  EXPECT_THAT(read[1].floats, ElementsAre(IsNan(), IsNan(), IsNan(), IsNan()));
  EXPECT_THAT(read[1].ids, IsEmpty());
  EXPECT_THAT(read[2].floats, ElementsAre(0.333333343f, 1, IsNan(), 16777216));
  EXPECT_THAT(read[2].weights, ElementsAre(1, 0.25f, 1));
}

// Length, its masked CRC-32C, the message, its masked CRC-32C: computed by hand from the format's definition.
TEST_F(PredictionFileTest, TfRecordsHaveTheFramesOfTensorFlow) {
  const std::string path = dir_.path() + "/one.tfrecords";
  auto file = PredictionFile::Create(path, PredictionFormat::kTfRecord, {}, 1);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->Add({0.5f}, {}), absl::OkStatus());
  ASSERT_EQ((*file)->Finish(), absl::OkStatus());
  EXPECT_EQ(absl::BytesToHexString(Contents(path)),
            "1a00000000000000129bd82d"
            "0a180a160a0a70726564696374696f6e120812060a040000003fb0ffc769");
}

TEST_F(PredictionFileTest, ExampleFilesHaveTheVariables) {
  const std::string reader = R"(csv { header: false column { name: "user" type: TEXT } column { name: "items" type: ID }
      column { name: "x" list: " " dim: 2 } column { name: "C7" type: ID }
      column { name: "prediction" list: " " dim: 2 } })";
  const std::vector<Example> read = Read(Write("scores.examples", 2), reader);
  ASSERT_EQ(read.size(), 3u);
  EXPECT_THAT(read[0].floats, ElementsAre(0.1f, -2, 0.5f, 1e-30f));
  EXPECT_THAT(read[0].ids, ElementsAre(77, -3, 1L << 40, 0x5db9164));
  EXPECT_THAT(read[0].weights, IsEmpty());
  EXPECT_THAT(read[1].floats, ElementsAre(IsNan(), IsNan(), IsNan(), IsNan()));
  EXPECT_THAT(read[1].counts, ElementsAre(0, 0, 0));
  EXPECT_THAT(read[2].counts, ElementsAre(1, 2, 0));
  EXPECT_THAT(read[2].weights, ElementsAre(1, 0.25f, 1));
}

TEST_F(PredictionFileTest, FilesBeyondOneWriteAreWhole) {
  // More than is written at once.
  const std::string path = dir_.path() + "/many.csv";
  auto file = PredictionFile::Create(path, PredictionFormat::kCsv, {{.name = "n", .floats = true}}, 1);
  ASSERT_TRUE(file.ok()) << file.status();
  std::string expected = "n,prediction\n";
  for (int i = 0; i < 50'000; ++i) {
    const std::vector<CarriedValue> row = {{.floats = {static_cast<float>(i)}}};
    ASSERT_EQ((*file)->Add({0.25f}, row), absl::OkStatus());
    absl::StrAppend(&expected, i, ",0.25\n");
  }
  ASSERT_EQ((*file)->Finish(), absl::OkStatus());
  EXPECT_EQ(Contents(path), expected);
}

TEST_F(PredictionFileTest, CompressedFilesHoldWhatPlainOnesDo) {
  constexpr int kRows = 40000;  // several pieces
  const auto write = [&](const std::string& path) {
    const auto format = PredictionFormatOf(path, /*carries=*/true);
    ASSERT_EQ(format.status(), absl::OkStatus());
    auto file = PredictionFile::Create(path, *format, Columns(), 1);
    ASSERT_EQ(file.status(), absl::OkStatus());
    for (int i = 0; i < kRows; ++i) {
      const float prediction = static_cast<float>(i * 7919 % 1000) / 1000;
      ASSERT_EQ((*file)->Add({prediction}, Row("user", {i}, {}, {prediction, 2}, {5})), absl::OkStatus());
    }
    ASSERT_EQ((*file)->Finish(), absl::OkStatus());
  };
  for (const char* const name : {"p.csv", "p.tfrecord"}) {
    write(dir_.path() + "/" + name);
    const std::string plain = Contents(dir_.path() + "/" + name);
    for (const char* const ending : {".gz", ".zst", ".zstd"}) {
      const std::string path = dir_.path() + "/" + name + ending;
      write(path);
      const std::string packed = Contents(path);
      EXPECT_LT(packed.size(), plain.size() / 2) << path;
      const DataFile file = {.path = path,
                             .name = path,
                             .bytes = static_cast<int64_t>(packed.size()),
                             .compression = ending == std::string(".gz") ? Compression::kGzip : Compression::kZstd};
      auto source = OpenBytes(file, 0);
      ASSERT_EQ(source.status(), absl::OkStatus());
      std::string unpacked(plain.size() + 1, '\0');
      const auto read = (*source)->ReadFully(unpacked.data(), unpacked.size());
      ASSERT_EQ(read.status(), absl::OkStatus());
      unpacked.resize(*read);
      EXPECT_TRUE(unpacked == plain) << path;
    }
  }
}

TEST_F(PredictionFileTest, EndingsThatCannotBeAreRefused) {
  EXPECT_THAT(PredictionFormatOf("a/scores.txt", /*carries=*/true).status(),
              StatusIs(kInvalid,
                       "--carry needs an --output that ends in .csv, .tfrecord or .examples; 'a/scores.txt' would be "
                       "text, which holds predictions alone"));
  EXPECT_THAT(PredictionFormatOf("scores.examples.gz", /*carries=*/false).status(),
              StatusIs(kInvalid,
                       "--output: example files are not compressed, so that they can be mapped into memory; "
                       "'scores.examples.gz' must end in .examples"));
  EXPECT_EQ(*PredictionFormatOf("scores.tfrecord.gz", /*carries=*/true), PredictionFormat::kTfRecord);
  EXPECT_EQ(*PredictionFormatOf("scores.gz", /*carries=*/false), PredictionFormat::kText);
  EXPECT_EQ(*PredictionFormatOf("scores.txt", /*carries=*/false), PredictionFormat::kText);
}

TEST_F(PredictionFileTest, AnEndingThatPromisesAnotherFormatIsRefused) {
  for (const char* const path :
       {"scores.parquet", "out/scores.JSON", "scores.npy", "scores.jsonl.gz", "scores.csv.xz"}) {
    const absl::Status refused = PredictionFormatOf(path, /*carries=*/false).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("must end in .csv, .tfrecord or .examples, or in something"));
  }
  for (const char* const path : {"scores", "scores.txt", "scores.tsv", "a.parquet/scores", ".json", "json"}) {
    EXPECT_EQ(*PredictionFormatOf(path, /*carries=*/false), PredictionFormat::kText) << path;
  }
}

}  // namespace
}  // namespace weir
