// The reader gives exactly the variables that the transpiler promises to the program.

#include <map>
#include <string>

#include "framework/base/feature_id.h"
#include "framework/formats/derived.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/features.h"
#include "transpiler/job/data_schema.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

Job Parse(const std::string& text) {
  auto job = ParseJob(text, "job.textproto", {});
  CHECK(job.ok()) << job.status();
  return *job;
}

// Compares the reader's columns with the schema from which the transpiler builds the program.
void ExpectAgreement(const v1::Data& data) {
  const TextPositions positions;
  const auto schema = DataSchema(Setting(&data, "data", &positions));
  ASSERT_TRUE(schema.ok()) << schema.status();
  const auto parser = MakeLineParser(data);
  ASSERT_TRUE(parser.ok()) << parser.status();
  ASSERT_EQ(schema->size(), (*parser)->columns().size());
  for (size_t i = 0; i < schema->size(); ++i) {
    const Column& column = (*parser)->columns()[i];
    EXPECT_EQ((*schema)[i].name(), column.name);
    EXPECT_EQ((*schema)[i].kind(), column.kind);
    ASSERT_EQ((*schema)[i].dims_size(), 2);
    EXPECT_EQ((*schema)[i].dims(0), -1);
    EXPECT_EQ((*schema)[i].dims(1), column.width);
  }
}

TEST(ProgramContractTest, ColumnsAreTheVariablesOfTheSchema) {
  ExpectAgreement(ParseData("criteo {}"));
  ExpectAgreement(ParseData("criteo { integers: 0 categoricals: 3 }"));
  ExpectAgreement(ParseData("criteo { integers: 5 categoricals: 0 }"));
  ExpectAgreement(ParseData(R"(multi_slot {
      slot { name: "a" output: "ids" } slot { name: "x" type: FLOAT output: "dense" } slot { name: "no" skip: true }
      slot { name: "b" } slot { name: "y" type: FLOAT output: "dense" dim: 3 } slot { name: "c" output: "ids" } })"));
  ExpectAgreement(ParseData(R"(csv {
      column { name: "a" type: ID output: "ids" } column { name: "x" output: "dense" } column { name: "no" type: SKIP }
      column { name: "b" type: TEXT } column { name: "y" list: " " dim: 3 output: "dense" }
      column { name: "c" type: TEXT list: "|" output: "ids" } })"));
  ExpectAgreement(ParseData(R"(lib_svm {
      slot { name: "a" first: 100 last: 199 output: "ids" } slot { name: "x" type: FLOAT last: 12 output: "dense" }
      slot { name: "b" first: 200 } slot { name: "y" type: FLOAT first: 13 last: 14 output: "dense" }
      slot { name: "c" first: 15 last: 99 output: "ids" } })"));
  ExpectAgreement(ParseData("idx { values: 784 }"));
}

TEST(ProgramContractTest, ThePaddingIdOfALookUpIsTheOneThatTheReaderGives) {
  TempDir dir;
  dir.Write("f", "1 1 1 -7 1 -7\n");
  const Job job = Parse(R"(
      name: "padding"
      data { train { files: "f" } multi_slot { slot { name: "y" type: FLOAT } slot { name: "salted" }
        slot { name: "raw" } }
             ids { shared: "raw" } batch_size: 8 }
      model {
        layer { name: "a" embedding { ids: "salted" ids: "raw" table: "t" pooling: SUM padding_id: -7 } }
        loss { square_error { input: "a" label: "y" } } }
      table { name: "t" width: 1 is_sparse: true is_distributed: true }
      optimizer { sgd {} } train { lanes: 1 })");
  const auto programs = BuildSingleMachine(job);
  ASSERT_TRUE(programs.ok()) << programs.status();
  std::map<std::string, int64_t> padding;  // by ids variable
  for (const v1::OpDesc& op : programs->main.blocks(0).ops()) {
    if (op.type() != "lookup_table") continue;
    for (const v1::OpAttr& attr : op.attrs()) {
      if (attr.name() == "padding_id") padding[op.inputs(0).vars(0)] = attr.i();
    }
  }
  const DataSpec spec = MakeDataSpec(job.config, dir.path(), programs->main);
  auto reader = LaneReader::Create(OpenTrain(spec), {.spec = spec, .streams = {0, 1}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<LaneBatch> batches;
  ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
  EXPECT_EQ(std::get<IdBatch>(batches[0].vars[1]).values, std::vector<int64_t>{padding.at("salted")});
  EXPECT_EQ(std::get<IdBatch>(batches[0].vars[2]).values, std::vector<int64_t>{padding.at("raw")});
  EXPECT_EQ(padding.at("raw"), -7);
  EXPECT_EQ(padding.at("salted"), PaddingId(-7));
}

TEST(ProgramContractTest, EveryExampleIsAJobThatTranspiles) {
  for (const std::string example :
       {"adult", "california_housing", "fashion_mnist", "flights", "multi_host", "synthetic_ctr"}) {
    const auto job = LoadJob(absl::StrCat("examples/", example, "/job.textproto"), {});
    ASSERT_TRUE(job.ok()) << job.status();
    const auto transpiled = Transpile(*job);
    ASSERT_TRUE(transpiled.ok()) << transpiled.status();
    ExpectAgreement(job->config.data());
    const DataSpec spec = MakeDataSpec(job->config, job->directory, transpiled->trainer().main);
    EXPECT_EQ(spec.required, std::vector<std::string>{example == "california_housing" ? "price" : "label"});
    const auto parser = MakeLineParser(spec.config);
    ASSERT_TRUE(parser.ok()) << parser.status();
    const auto features = Features::Create(spec, **parser);
    EXPECT_TRUE(features.ok()) << features.status();
  }
}

}  // namespace
}  // namespace weir
