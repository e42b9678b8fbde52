// Columns that predictions carry: found by their names, read again as the input has them.

#include "trainer/predict/carried_input.h"
#include "framework/formats/derived.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/stable_hash.h"
#include "framework/formats/csv_fields.h"
#include "framework/formats/line_parser.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/example_stream.h"
#include "trainer/data/statistics.h"
#include "trainer/files/example_file.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kCsv[] = R"(csv { separator: ";" trim: true
    column { name: "label" }
    column { name: "user" type: TEXT output: "cat" missing: "?" }
    column { name: "age" output: "dense" }
    column { name: "city" type: ID output: "cat" }
    column { name: "tags" type: TEXT list: "|" weight: ":" missing: "?" }
    column { name: "height" list: " " dim: 2 output: "dense" } }
  derived { name: "city_hash" hash { of: "city" buckets: 1000 } } )";

class CarriedInputTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<CarriedInput>> Open(const std::string& data, const std::vector<std::string>& names,
                                                     PredictionFormat format = PredictionFormat::kCsv) {
    spec_ = MakeSpec(absl::StrCat(data, " train { files: '", files_, "' }"), dir_);
    spec_.required = {"label"};
    return CarriedInput::Create(spec_, OpenFiles(), names, format);
  }
  DataSet OpenFiles() {
    auto data = DataSet::Open(spec_.config, spec_.config.train(), dir_.path(), "data.train");
    CHECK(data.ok()) << data.status();
    return *std::move(data);
  }
  absl::Status Refusal(const std::string& data, const std::vector<std::string>& names,
                       PredictionFormat format = PredictionFormat::kCsv) {
    return Open(data, names, format).status();
  }
  // All rows, as lines of .csv without predictions, and the names of the columns in front.
  std::string Csv(const std::string& data, const std::vector<std::string>& names) {
    auto input = Open(data, names);
    CHECK(input.ok()) << input.status();
    const std::string path = dir_.path() + "/out.csv";
    auto file = PredictionFile::Create(path, PredictionFormat::kCsv, (*input)->columns(), 1);
    CHECK(file.ok()) << file.status();
    std::vector<CarriedValue> row;
    for (const InputPosition& position : Positions()) {
      CHECK_EQ((*input)->Next(position, &row), absl::OkStatus());
      CHECK_EQ((*file)->Add({1.0f}, row), absl::OkStatus());
    }
    CHECK_EQ((*file)->Finish(), absl::OkStatus());
    auto text = ReadWholeFile(path);
    CHECK(text.ok()) << text.status();
    std::filesystem::remove(path);
    return *std::move(text);
  }
  // Positions of all examples in input order.
  std::vector<InputPosition> Positions() {
    const DataSet data = OpenFiles();
    const auto parser = MakeLineParser(spec_.config);
    CHECK(parser.ok()) << parser.status();
    std::vector<int64_t> labels = {0};
    ExampleStream stream(
        {.data = &data, .parser = parser->get(), .bad_line = spec_.config.bad_line(), .may_be_absent = labels});
    std::vector<InputPosition> positions;
    Example example;
    ExampleStream::Prepare(**parser, &example);
    InputPosition position;
    while (stream.Next(&example, &position)) positions.push_back(position);
    CHECK_EQ(stream.status(), absl::OkStatus());
    return positions;
  }
  // Writes f, with the columns in another order and two that the job does not name, and g.
  void WriteTwoFiles() {
    dir_.Write("f1",
               "order;tags;city;age;user;height;label\r\n"
               "17;a:2|b;5;0.10; \"o \"\"x\"\" ,\" ;1 2;1\r\n"
               ";;;;?;;0\n");
    dir_.Write("f2", "\xEF\xBB\xBFlabel;user;age;city;tags;height;order\n1; v ;33;-6;c|?||d;3 4.50;\"18\"\n");
  }

  TempDir dir_;
  std::string files_ = "f*";
  DataSpec spec_;
};

TEST_F(CarriedInputTest, FieldsOfCsvAreTheTextsOfTheInput) {
  WriteTwoFiles();
  EXPECT_EQ(Csv(kCsv, {"order", "user", "age", "tags", "height", "city"}),
            "order,user,age,tags,height,city,prediction\n"
            "17,\"o \"\"x\"\" ,\",0.10,a:2|b,1 2,5,1\n"
            ",?,,,,,1\n"
            "18,v,33,c|?||d,3 4.50,-6,1\n");
}

TEST_F(CarriedInputTest, AnOutputStandsForItsColumnsAndADerivedVariableHasIds) {
  WriteTwoFiles();
  const auto hash = [](int64_t id) { return StableHash({reinterpret_cast<const char*>(&id), sizeof(id)}) % 1000; };
  EXPECT_EQ(Csv(kCsv, {"cat", "city_hash", "dense[2]"}),
            absl::StrCat("user,city,city_hash,dense[2],prediction\n\"o \"\"x\"\" ,\",5,", hash(5),
                         ",2,1\n?,,,,1\nv,-6,", hash(-6), ",4.5,1\n"));
}

TEST_F(CarriedInputTest, TextsOfTfRecordsAreThoseWhoseHashesTheJobReads) {
  WriteTwoFiles();
  auto input = Open(kCsv, {"order", "user", "tags", "height", "city"}, PredictionFormat::kTfRecord);
  ASSERT_TRUE(input.ok()) << input.status();
  std::vector<CarriedValue> row;
  const std::vector<InputPosition> positions = Positions();
  ASSERT_EQ(positions.size(), 3u);
  ASSERT_EQ((*input)->Next(positions[0], &row), absl::OkStatus());
  EXPECT_THAT(row[0].texts, ElementsAre("17"));
  EXPECT_THAT(row[1].texts, ElementsAre("o \"x\" ,"));
  EXPECT_THAT(row[1].weights, IsEmpty());
  EXPECT_THAT(row[2].texts, ElementsAre("a", "b"));
  EXPECT_THAT(row[2].weights, ElementsAre(2, 1));
  EXPECT_THAT(row[3].floats, ElementsAre(1, 2));
  EXPECT_THAT(row[4].ids, ElementsAre(5));
  EXPECT_THAT(row[4].texts, IsEmpty());
  ASSERT_EQ((*input)->Next(positions[1], &row), absl::OkStatus());
  for (const CarriedValue& value : row) {
    EXPECT_THAT(value.texts, IsEmpty());
    EXPECT_THAT(value.ids, IsEmpty());
  }
  dir_.Write("f2", "label;user;age;city;tags;height;order\n1;v;33;-6;c|?||d;3 4.50;18\n");
  input = Open(kCsv, {"tags"}, PredictionFormat::kTfRecord);
  ASSERT_TRUE(input.ok()) << input.status();
  for (const InputPosition& position : Positions()) ASSERT_EQ((*input)->Next(position, &row), absl::OkStatus());
  EXPECT_THAT(row[0].texts, ElementsAre("c", "d"));
  EXPECT_THAT(row[0].ids, ElementsAre(static_cast<int64_t>(StableHash("c")), static_cast<int64_t>(StableHash("d"))));
}

// Writes a file with the writer of predictions, and carries what is in it.
TEST_F(CarriedInputTest, FeaturesOfTfRecordsHaveTheirTexts) {
  auto file = PredictionFile::Create(dir_.path() + "/f", PredictionFormat::kTfRecord,
                                     {{.name = "label", .floats = true},
                                      {.name = "user", .is_field = true},
                                      {.name = "item"},
                                      {.name = "x", .floats = true, .width = 2}},
                                     1);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<CarriedValue> row(4);
  row[0].floats = {1};
  row[1].texts = {"a, b", "c"};
  row[1].weights = {0.5f, 1};
  row[2].ids = {-7};
  row[3].floats = {0.25f, 3};
  ASSERT_EQ((*file)->Add({0.5f}, row), absl::OkStatus());
  row[1] = {};
  row[2] = {};
  ASSERT_EQ((*file)->Add({0.75f}, row), absl::OkStatus());
  ASSERT_EQ((*file)->Finish(), absl::OkStatus());
  const std::string reader = R"(tf_record { feature { name: "label" }
      feature { name: "item" type: ID output: "cat" } feature { name: "x" dim: 2 }
      feature { name: "user" type: TEXT weights: "user.weights" output: "cat" } feature { name: "prediction" } })";
  EXPECT_EQ(Csv(reader, {"cat", "x", "label"}),
            "item,user,x[0],x[1],label,prediction\n-7,\"a, b:0.5|c:1\",0.25,3,1,1\n,,0.25,3,1,1\n");
  auto input = Open(reader, {"user", "x[1]"}, PredictionFormat::kTfRecord);
  ASSERT_TRUE(input.ok()) << input.status();
  ASSERT_EQ((*input)->Next({0, 0}, &row), absl::OkStatus());
  EXPECT_THAT(row[0].texts, ElementsAre("a, b", "c"));
  EXPECT_THAT(row[0].weights, ElementsAre(0.5f, 1));
  EXPECT_THAT(row[0].ids, ElementsAre(static_cast<int64_t>(StableHash("a, b")), static_cast<int64_t>(StableHash("c"))));
  EXPECT_THAT(row[1].floats, ElementsAre(3));
  EXPECT_THAT(
      Refusal(reader, {"user.weights"}),
      StatusIs(kInvalid, HasSubstr("has no column 'user.weights'; there are label, item, x, user, prediction, cat")));
}

TEST_F(CarriedInputTest, LearnedVariablesHaveWhatTheJobHasLearned) {
  dir_.Write("f", "label,item\nyes,7\nno,9\nyes,9\n");
  const std::string reader = R"(csv { column { name: "label" learn_classes: true } column { name: "item" type: ID } }
      derived { name: "place" vocabulary { of: "item" learned {} } })";
  spec_ = MakeSpec(reader + " train { files: 'f*' }", dir_);
  const auto mine = CollectStatistics(spec_, OpenFiles(), {0, spec_.streams()}, nullptr);
  ASSERT_TRUE(mine.ok()) << mine.status();
  const auto statistics = MergeStatistics(spec_, {*mine});
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  // 9 is more frequent, and "no" stands before "yes".
  const auto input =
      CarriedInput::Create(spec_, OpenFiles(), {"place", "label"}, PredictionFormat::kTfRecord, &*statistics);
  ASSERT_TRUE(input.ok()) << input.status();
  std::vector<CarriedValue> row;
  ASSERT_EQ((*input)->Next({0, 11}, &row), absl::OkStatus());
  EXPECT_THAT(row[0].ids, ElementsAre(1));
  EXPECT_THAT(row[1].floats, ElementsAre(1));
  ASSERT_EQ((*input)->Next({0, 17}, &row), absl::OkStatus());
  EXPECT_THAT(row[0].ids, ElementsAre(0));
  EXPECT_THAT(row[1].floats, ElementsAre(0));
}

TEST_F(CarriedInputTest, WithoutAHeaderSkippedColumnsWithANameAreThere) {
  dir_.Write("f", "1,x y,7\n0,\"z,\",\n");
  EXPECT_EQ(Csv(R"(csv { header: false column { name: "label" } column { name: "note" type: SKIP }
                         column { name: "item" type: ID } })",
                {"note", "item"}),
            "note,item,prediction\nx y,7,1\n\"z,\",,1\n");
}

TEST_F(CarriedInputTest, OtherFormatsHaveValues) {
  dir_.Write("f", "1 1 2 0.1 -3 1 5 2 6 7:0.5\n1 0 0 0 1 -8\n");
  const std::string reader = R"(multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 2 }
      slot { name: "a" output: "ids" } slot { name: "b" output: "ids" } })";
  EXPECT_EQ(Csv(reader, {"b", "x", "label"}), "b,x[0],x[1],label,prediction\n6:1 7:0.5,0.1,-3,1,1\n-8,,,0,1\n");
  EXPECT_EQ(Csv(reader, {"ids", "x[1]"}), "a,b,x[1],prediction\n5,6:1 7:0.5,-3,1\n,-8,,1\n");
}

TEST_F(CarriedInputTest, IdsOfCriteoAreHexadecimal) {
  dir_.Write("f", "1\t2\t\t05db9164\tff\n");
  EXPECT_EQ(Csv("criteo { integers: 2 categoricals: 2 }", {"C2", "dense[0]", "C1"}),
            "C2,dense[0],C1,prediction\n000000ff,2,05db9164,1\n");
}

TEST_F(CarriedInputTest, LinesThatAreLeftOutAreNotCounted) {
  dir_.Write("f", "label,user\n1,7\nbroken\n0,8\n1,9\n");
  auto input = Open(R"(csv { column { name: "label" } column { name: "user" type: ID } } bad_line: SKIP)", {"user"});
  ASSERT_TRUE(input.ok()) << input.status();
  spec_.config.mutable_train()->add_where()->set_of("user");
  spec_.config.mutable_train()->mutable_where(0)->set_modulo(2);
  spec_.config.mutable_train()->mutable_where(0)->add_remainder(1);
  input = CarriedInput::Create(spec_, OpenFiles(), {"user"}, PredictionFormat::kCsv);
  ASSERT_TRUE(input.ok()) << input.status();
  std::vector<CarriedValue> row;
  ASSERT_EQ((*input)->Next({0, 11}, &row), absl::OkStatus());
  EXPECT_EQ(row[0].field, "7");
  ASSERT_EQ((*input)->Next({0, 26}, &row), absl::OkStatus());
  EXPECT_EQ(row[0].field, "9");
}

TEST_F(CarriedInputTest, AFileThatHasChangedIsNoticed) {
  WriteTwoFiles();
  auto input = Open(kCsv, {"user"});
  ASSERT_TRUE(input.ok()) << input.status();
  std::vector<CarriedValue> row;
  EXPECT_THAT((*input)->Next({0, 1}, &row), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                     "f1 has changed while it was scored; start the prediction again"));
  // There are more scores than examples.
  input = Open(kCsv, {"user"});
  ASSERT_TRUE(input.ok()) << input.status();
  for (const InputPosition& position : Positions()) ASSERT_EQ((*input)->Next(position, &row), absl::OkStatus());
  EXPECT_THAT((*input)->Next({1, 1000}, &row),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("f2 has changed")));
}

TEST_F(CarriedInputTest, NamesThatCannotBeCarriedAreRefused) {
  WriteTwoFiles();
  EXPECT_THAT(Refusal(kCsv, {"user", "usr"}),
              StatusIs(kInvalid,
                       "--carry: the data has no column 'usr'; there are label, user, age, city, tags, height, cat, "
                       "dense, city_hash, order"));
  EXPECT_THAT(Refusal(kCsv, {"user", "cat"}),
              StatusIs(kInvalid, "--carry: 'user' would be there twice; name every column once"));
  dir_.Write("f1", "label,prediction,prediction_1,prediction_x\n1,2,3,4\n");
  dir_.Write("f2", "label,prediction,prediction_1\n1,2,3\n");
  const std::string reader = "csv { column { name: 'label' } }";
  for (const char* const name : {"prediction", "prediction_1"}) {
    EXPECT_THAT(Refusal(reader, {name}),
                StatusIs(kInvalid, absl::StrCat("--carry: '", name,
                                                "' is a name of predictions in the output; a column with that name "
                                                "cannot be carried")));
  }
  EXPECT_THAT(Refusal(reader, {"prediction_x"}),
              StatusIs(kInvalid,
                       "--carry: f2:1: the header has no column 'prediction_x'; its 3 are label, prediction, "
                       "prediction_1"));
  dir_.Write("f2", "label,prediction_x,prediction_x\n1,2,3\n");
  EXPECT_THAT(Refusal(reader, {"prediction_x"}),
              StatusIs(kInvalid, HasSubstr("f2:1: the header has two columns 'prediction_x'; its 3 are")));
  EXPECT_THAT(Refusal(reader, {"prediction_x"}, PredictionFormat::kExamples),
              StatusIs(kInvalid, HasSubstr("--carry: the job does not read 'prediction_x', and an example file holds "
                                           "no texts; write .csv or .tfrecord")));
  dir_.Write("f1", "1 0 1 7 1 8\n");
  dir_.Write("f2", "1 0 1 7 1 8\n");
  EXPECT_THAT(Refusal(R"(multi_slot { slot { name: "label" type: FLOAT } slot { name: "a" output: "u" }
                         slot { name: "b" output: "u" } })",
                      {"c"}),
              StatusIs(kInvalid, "--carry: the data has no column 'c'; there are label, u, a, b"));
}

TEST_F(CarriedInputTest, ExampleFilesHaveValuesAndNoTexts) {
  const std::string reader = R"(csv { column { name: "label" } column { name: "user" type: TEXT }
                                      column { name: "item" type: ID } })";
  spec_ = MakeSpec(reader, dir_);
  const auto parser = MakeLineParser(spec_.config);
  ASSERT_TRUE(parser.ok());
  auto writer = ExampleFileWriter::Create(dir_.path() + "/f1", (*parser)->columns(), "");
  ASSERT_TRUE(writer.ok());
  ASSERT_EQ((*writer)->Add({.floats = {0.25f}, .ids = {77, -3}, .counts = {1, 1}}), absl::OkStatus());
  ASSERT_TRUE((*writer)->Finish().ok());
  dir_.Write("f2", "item,label,user\n007,1,x\n");
  EXPECT_EQ(Csv(reader, {"item", "label"}), "item,label,prediction\n-3,0.25,1\n007,1,1\n");
  EXPECT_THAT(
      Refusal(reader, {"user"}),
      StatusIs(kInvalid,
               "--carry: f1 is an example file, which does not hold the texts of 'user'; score the file that it "
               "was converted from, or write .examples"));
  auto input = Open(reader, {"user"}, PredictionFormat::kExamples);
  ASSERT_TRUE(input.ok()) << input.status();
  std::vector<CarriedValue> row;
  ASSERT_EQ((*input)->Next({0, 0}, &row), absl::OkStatus());
  EXPECT_THAT(row[0].ids, ElementsAre(77));
  ASSERT_EQ((*input)->Next({1, 16}, &row), absl::OkStatus());
  EXPECT_THAT(row[0].ids, ElementsAre(static_cast<int64_t>(StableHash("x"))));
}

TEST_F(CarriedInputTest, PartitionsAreTheTextsOfNames) {
  const std::string partitions =
      "partition { name: 'dt' type: ID } partition { name: 'hour' } partition { name: 'city' type: TEXT } ";
  for (const auto& [in, text] :
       {std::pair{"fdt=1/dt=20240105/hour=03/city=a%2Cb", "about\nlabel::u\n# x\n1::'7'\n\n0::\n"},
        std::pair{"fdt=1/dt=20240106/hour=04/city=", "\nu::label\n9::1"}}) {
    std::filesystem::create_directories(absl::StrCat(dir_.path(), "/", in));
    dir_.Write(absl::StrCat(in, "/part"), text);
  }
  const std::string data = absl::StrCat(
      "csv { separator: '::' quote: \"'\" skip_lines: 1 skip_blank_lines: true comment: '#' column { name: 'label' } "
      "column { name: 'u' type: TEXT } } ",
      partitions);
  const std::string wanted =
      "dt,u,city,hour,prediction\n20240105,7,\"a,b\",03,1\n20240105,,\"a,b\",03,1\n20240106,9,,04,1\n";
  files_ = "f*/*/*/*/part";
  EXPECT_EQ(Csv(data, {"dt", "u", "city", "hour"}), wanted);
  // No field of a line is wanted.
  EXPECT_EQ(Csv(data, {"city"}), "city,prediction\n\"a,b\",1\n\"a,b\",1\n,1\n");
  auto input = Open(data, {"dt", "city", "hour"}, PredictionFormat::kTfRecord);
  ASSERT_TRUE(input.ok()) << input.status();
  std::vector<CarriedValue> row;
  ASSERT_EQ((*input)->Next({0, 19}, &row), absl::OkStatus());
  EXPECT_THAT(row[0].ids, ElementsAre(20240105));
  EXPECT_THAT(row[1].texts, ElementsAre("a,b"));
  EXPECT_THAT(row[2].floats, ElementsAre(3));
}

TEST_F(CarriedInputTest, PartitionsOfOtherReadersAreCarried) {
  std::filesystem::create_directories(dir_.path() + "/f/city=b");
  dir_.Write("f/city=b/part", "label:1 u:7\n");
  files_ = "f/*/part";
  EXPECT_EQ(
      Csv("slot_sign { slot { name: 'label' type: FLOAT } slot { name: 'u' } } partition { name: 'city' type: TEXT }",
          {"u", "city"}),
      "u,city,prediction\n7,b,1\n");
}

TEST(CsvFieldsTest, AFieldThatIsWrittenIsRead) {
  const std::vector<std::string> fields = {"", "a", " a", "\"", "a,b", "\"\"x", "a\"b", "\t"};
  std::string line;
  for (const std::string& field : fields) {
    if (&field != &fields[0]) line += ',';
    AppendCsvField(field, &line);
  }
  EXPECT_EQ(line, ",a,\" a\",\"\"\"\",\"a,b\",\"\"\"\"\"x\",\"a\"\"b\",\"\t\"");
  std::vector<std::string> read = {"something", "else"};
  ASSERT_TRUE(SplitCsvFields(line, CsvDialect(), &read).ok());
  EXPECT_EQ(read, fields);
  for (const char* const wrong : {"\"a", "a,\"b\"c", "\"", "\"\"\""}) {
    EXPECT_FALSE(SplitCsvFields(wrong, {.trim = true}, &read).ok()) << wrong;
  }
}

}  // namespace
}  // namespace weir
