// Messages tf.train.Example.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/formats/derived.h"
#include "framework/formats/line_parser.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/tf_example.pb.h"
#include "tests/framework/formats/parser_testing.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kFeatures[] =
    "feature { name: 'label' } feature { name: 'dense' dim: 2 } feature { name: 'age' output: 'dense' } "
    "feature { name: 'user' type: ID output: 'cat' } feature { name: 'city' type: TEXT output: 'cat' } "
    "feature { name: 'items' type: ID weights: 'scores' }";

int64_t Text(std::string_view text) { return static_cast<int64_t>(StableHash(text)); }

// Builds a message.
class Record {
 public:
  Record& Floats(const std::string& name, const std::vector<float>& values) {
    v1::TfFeature feature;
    feature.mutable_float_list()->mutable_value()->Add(values.begin(), values.end());
    return Add(name, feature);
  }
  Record& Ints(const std::string& name, const std::vector<int64_t>& values) {
    v1::TfFeature feature;
    feature.mutable_int64_list()->mutable_value()->Add(values.begin(), values.end());
    return Add(name, feature);
  }
  Record& Texts(const std::string& name, const std::vector<std::string>& values) {
    v1::TfFeature feature;
    feature.mutable_bytes_list();
    for (const std::string& value : values) feature.mutable_bytes_list()->add_value(value);
    return Add(name, feature);
  }
  Record& Add(const std::string& name, const v1::TfFeature& feature) {
    return AddBytes(name, feature.SerializeAsString());
  }
  Record& AddBytes(const std::string& name, const std::string& feature) {
    v1::TfFeatures::Entry* const entry = example_.mutable_features()->add_feature();
    entry->set_key(name);
    entry->set_value(feature);
    return *this;
  }
  operator std::string() const { return example_.SerializeAsString(); }  // NOLINT(google-explicit-constructor)

 private:
  v1::TfExample example_;
};

class TfRecordTest : public ::testing::Test {
 protected:
  void SetUp() override { Configure(kFeatures); }
  void Configure(const std::string& settings) {
    auto parser = MakeLineParser(ParseData(absl::StrCat("tf_record { ", settings, " }")));
    ASSERT_TRUE(parser.ok()) << parser.status();
    parser_ = std::move(parser).value();
    ExampleStream::Prepare(*parser_, &example_);
  }
  absl::Status Parse(const std::string& record) { return ParseBothWays(*parser_, record, &example_); }

  std::unique_ptr<LineParser> parser_;
  Example example_;
};

TEST_F(TfRecordTest, FeaturesMayStandInAnyOrder) {
  ASSERT_EQ(Parse(Record()
                      .Texts("city", {"Rome"})
                      .Floats("scores", {0.5f, 2})
                      .Ints("age", {37})
                      .Texts("ignored", {"x"})
                      .Ints("items", {int64_t{1} << 40, -5})
                      .Ints("label", {1})
                      .Ints("user", {7})
                      .Floats("dense", {0.25f, -3})),
            absl::OkStatus());
  EXPECT_THAT(example_.floats, ElementsAre(1, 0.25f, -3, 37));
  EXPECT_THAT(example_.counts, ElementsAre(1, 1, 2));
  EXPECT_THAT(example_.ids, ElementsAre(7, Text("Rome"), int64_t{1} << 40, -5));
  EXPECT_THAT(example_.weights, ElementsAre(1, 1, 0.5f, 2));
}

TEST_F(TfRecordTest, WhatIsNotThereIsMissing) {
  for (const std::string& record :
       {std::string(), std::string(Record().Ints("user", {}).Floats("label", {}).Texts("city", {}).Ints("dense", {})),
        std::string(Record().AddBytes("user", "").AddBytes("label", ""))}) {
    ASSERT_EQ(Parse(record), absl::OkStatus());
    for (const float x : example_.floats) EXPECT_TRUE(std::isnan(x));
    EXPECT_THAT(example_.counts, ElementsAre(0, 0, 0));
    EXPECT_THAT(example_.ids, IsEmpty());
  }
  ASSERT_EQ(Parse(Record().Floats("label", {std::numeric_limits<float>::quiet_NaN()}).Ints("items", {5})),
            absl::OkStatus());
  EXPECT_TRUE(std::isnan(example_.floats[0]));
  EXPECT_THAT(example_.weights, IsEmpty()) << "without weights all are 1";
}

// Bytes of lists that are not packed, as some writers make them, and of entries in unusual order.
TEST_F(TfRecordTest, OtherFormsOfTheSameMessageAreRead) {
  std::string floats("\x12\x0a\x0d\0\0\x80\x3e\x0d\0\0\x40\xc0", 12);  // 0.25, -3
  std::string ints("\x1a\x04\x08\x07\x08\x09", 6);                     // 7, 9
  ASSERT_EQ(Parse(Record().AddBytes("dense", floats).AddBytes("items", ints)), absl::OkStatus());
  EXPECT_EQ(example_.floats[1], 0.25f);
  EXPECT_EQ(example_.floats[2], -3);
  EXPECT_THAT(example_.ids, ElementsAre(7, 9));
  // The last of two entries counts.
  ASSERT_EQ(Parse(Record().Ints("user", {7}).Ints("user", {8})), absl::OkStatus());
  EXPECT_THAT(example_.ids, ElementsAre(8));
  // Unknown fields, and an entry with the value before the key.
  std::string entry("\x12\x04\x1a\x02\x08\x05\x0a\x04user", 12);
  std::string features = absl::StrCat("\x0a", std::string(1, static_cast<char>(entry.size())), entry);
  ASSERT_EQ(Parse(absl::StrCat("\x0a", std::string(1, static_cast<char>(features.size())), features, "\x10\x01")),
            absl::OkStatus());
  EXPECT_THAT(example_.ids, ElementsAre(5));
}

// The plain way is nine times slower, and no record shall take it only because there are many features. Where features
// stand in another order than before, reading the fast way leaves a hint for each of them.
TEST_F(TfRecordTest, ManyFeaturesAreReadTheFastWay) {
  constexpr int64_t kMany = 700;
  std::string settings;
  Record record, twice;
  for (int64_t i = 0; i < kMany; ++i) {
    absl::StrAppend(&settings, "feature { name: 'f", i, "' type: ID }");
    record.Ints(absl::StrCat("f", i), {i});
    twice.Ints(absl::StrCat("f", i), {i});
  }
  Configure(settings);
  ASSERT_EQ(Parse(record), absl::OkStatus());
  EXPECT_EQ(example_.hints.size(), static_cast<size_t>(kMany));
  for (int64_t i = 0; i < kMany; ++i) EXPECT_EQ(example_.ids[static_cast<size_t>(i)], i);
  // The last of two entries counts, also far behind.
  twice.Ints("f650", {-1});
  ASSERT_EQ(Parse(twice), absl::OkStatus());
  EXPECT_EQ(example_.ids[650], -1);
  EXPECT_EQ(example_.ids.size(), static_cast<size_t>(kMany));
}

TEST_F(TfRecordTest, WrongRecordsSayWhatIsWrong) {
  EXPECT_THAT(Parse("label,1"), StatusIs(kInvalid, "is no message tf.train.Example"));
  EXPECT_THAT(Parse(Record().AddBytes("user", "\x1a\x05")),
              StatusIs(kInvalid, "feature 'user': is no message tf.train.Feature"));
  EXPECT_THAT(Parse(Record().Texts("label", {"yes"})),
              StatusIs(kInvalid,
                       "feature 'label': is a bytes_list, expected a float_list or an int64_list; texts are of "
                       "type TEXT"));
  EXPECT_THAT(Parse(Record().Texts("user", {"u7"})),
              StatusIs(kInvalid, "feature 'user': is a bytes_list, expected an int64_list; texts are of type TEXT"));
  EXPECT_THAT(Parse(Record().Ints("city", {7})),
              StatusIs(kInvalid, "feature 'city': is an int64_list, expected a bytes_list; numbers are of type ID"));
  EXPECT_THAT(Parse(Record().Ints("scores", {7})),
              StatusIs(kInvalid, "feature 'scores': is an int64_list, expected a float_list, of weights"));
  EXPECT_THAT(Parse(Record().Floats("dense", {1})),
              StatusIs(kInvalid, "feature 'dense': expected 2 values, or 0 for missing, got 1"));
  EXPECT_THAT(Parse(Record().Floats("label", {INFINITY})),
              StatusIs(kInvalid, "feature 'label': 'inf' is not a finite number"));
  EXPECT_THAT(Parse(Record().Ints("items", {1, 2, 3}).Floats("scores", {1, 2})),
              StatusIs(kInvalid, "feature 'items': has 3 ids, and its weights 'scores' are 2"));
  EXPECT_THAT(Parse(Record().Ints("items", std::vector<int64_t>(65536, 1))),
              StatusIs(kInvalid, "feature 'items': has 65536 values; at most 65535 are possible"));
}

// Both ways take and refuse the same of the features that the job names, however their bytes are damaged.
TEST_F(TfRecordTest, DamagedRecordsAreReadOrRefusedAlike) {
  const std::string good = Record()
                               .Floats("dense", {0.25f, -3})
                               .Ints("items", {300, 5})
                               .Floats("scores", {0.5f, 2})
                               .Texts("city", {"Rome"})
                               .Ints("label", {1});
  const auto parse = [&](const std::string& record) { return Parse(record); };
  EXPECT_GT(RefusedOfChanged(good,
                             std::string("\0\x01\x02\x08\x0a\x0d\x12\x1a\x80\xff"
                                         "ei",
                                         12),
                             parse),
            1000);
  for (size_t size = 0; size < good.size(); ++size) (void)Parse(good.substr(0, size));
}

}  // namespace
}  // namespace weir
