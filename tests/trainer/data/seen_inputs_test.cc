// Names of a job that are in no record.

#include "trainer/statistics/seen_inputs.h"
#include "framework/formats/derived.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/tf_example.pb.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

constexpr char kFrame[] = "batch_size: 4 ";

class SeenInputsTest : public ::testing::Test {
 protected:
  // Reads all of "f", on two streams. Returns what is absent, in words.
  std::string Absent(const std::string& reader, bool* whole = nullptr, const std::string& where = "") {
    LaneReaderOptions options;
    options.spec = MakeSpec(absl::StrCat(kFrame, "train { files: 'f' ", where, " } ", reader), dir_);
    options.spec.lanes = 2;
    options.streams = {0, 2};
    absl::StatusOr<DataSet> data =
        DataSet::Open(options.spec.config, options.spec.config.train(), dir_.path(), "data.train");
    CHECK(data.ok()) << data.status();
    const auto parser = MakeLineParser(options.spec.config);
    CHECK(parser.ok()) << parser.status();
    const std::string first = InFirstRecord(**parser, *data);
    absl::StatusOr<std::unique_ptr<LaneReader>> made = LaneReader::Create(*data, options);
    CHECK(made.ok()) << made.status();
    std::vector<LaneBatch> batches;
    while (!(*made)->ended()) {
      const absl::Status read = (*made)->Next(absl::Seconds(60), &batches);
      CHECK(read.ok()) << read;
    }
    const v1::AbsentInputs absent = (*made)->absent_inputs();
    if (whole != nullptr) *whole = absent.whole();
    const std::string names = NamesOf(ExpectedInputs(**parser, options.spec.config), absent.places());
    return names.empty() ? "" : names + first;
  }

  TempDir dir_;
};

TEST_F(SeenInputsTest, SlotsOfWordsAreFoundByTheirNames) {
  std::string lines;
  for (int i = 0; i < 9; ++i) absl::StrAppend(&lines, "click:1 user:", i, i == 8 ? " rare:1 price:2" : "", "\n");
  dir_.Write("f", lines);
  bool whole = false;
  const std::string good =
      "slot { name: 'click' type: FLOAT } slot { name: 'user' } slot { name: 'rare' } slot { name: 'price' type: FLOAT "
      "}";
  EXPECT_EQ(Absent(absl::StrCat("slot_sign { ", good, " }"), &whole), "");
  EXPECT_TRUE(whole);
  EXPECT_EQ(Absent(absl::StrCat("slot_sign { ", good, " slot { name: 'users' } slot { name: 'cost' type: FLOAT } }")),
            "slot 'users' and slot 'cost'; the first record of f has click, user");
  EXPECT_EQ(Absent(absl::StrCat("slot_sign { ", good, " slot { name: 'users' } } may_be_absent: 'users'")), "");
  EXPECT_EQ(Absent(absl::StrCat("slot_sign { ", good, " }"), nullptr, "where { of: 'user' below: 8 }"),
            "slot 'rare' and slot 'price'; the first record of f has click, user");
}

TEST_F(SeenInputsTest, ALeadingWordIsInEveryLine) {
  dir_.Write("f", "1 user:2\n");
  EXPECT_EQ(Absent("slot_sign { leading: 'click' slot { name: 'click' type: FLOAT } slot { name: 'user' } }"), "");
}

TEST_F(SeenInputsTest, SlotsOfIndexesAreFoundByTheirRanges) {
  dir_.Write("f", "1 1:7:1 1:8:1\n0 1:9:1 3:1:0.5\n");
  EXPECT_EQ(Absent("lib_svm { fields: true slot { name: 'a' field: 1 } slot { name: 'x' type: FLOAT field: 3 first: 1 "
                   "last: 2 } }"),
            "");
  EXPECT_EQ(
      Absent("lib_svm { fields: true slot { name: 'a' field: 0 first: 1 } slot { name: 'b' field: 1 first: 100 "
             "last: 200 } slot { name: 'x' type: FLOAT field: 2 first: 1 last: 2 } }"),
      "slot 'a' (field 0, indexes 1 to 18446744073709551615), slot 'b' (field 1, indexes 100 to 200) and slot 'x' "
      "(field 2, indexes 1 to 2); the first record of f has the field:index 1:7, 1:8");
}

TEST_F(SeenInputsTest, FeaturesAreFoundByTheirNames) {
  v1::TfExample example;
  const auto add = [&](const std::string& name, const v1::TfFeature& feature) {
    auto* const entry = example.mutable_features()->add_feature();
    entry->set_key(name);
    entry->set_value(feature.SerializeAsString());
  };
  v1::TfFeature label, user;
  label.mutable_float_list()->add_value(1);
  user.mutable_int64_list()->add_value(7);
  add("label", label);
  add("user", user);
  dir_.Write("f", Framed(example.SerializeAsString()) + Framed(example.SerializeAsString()));
  EXPECT_EQ(Absent("tf_record { feature { name: 'label' } feature { name: 'user' type: ID } }"), "");
  EXPECT_EQ(Absent("tf_record { feature { name: 'label' } feature { name: 'User' type: ID } }"),
            "feature 'User'; the first record of f has label, user");
}

TEST_F(SeenInputsTest, ColumnsAreFoundByTheirPlaces) {
  dir_.Write("f", "1 1 0\n");
  EXPECT_EQ(Absent("multi_slot { slot { name: 'label' type: FLOAT } slot { name: 'user' } }"), "");
}

}  // namespace
}  // namespace weir
