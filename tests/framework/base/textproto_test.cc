#include "framework/base/textproto.h"

#include <chrono>
#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/framework/base/sample.pb.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Inner;
using testing::Sample;

// The message of the error that `text` gives in job.textproto, or "no error".
std::string ErrorOf(const std::string& text) {
  Sample sample;
  const absl::Status status = ParseTextProto(text, "job.textproto", &sample, nullptr);
  return status.ok() ? "no error" : std::string(status.message());
}

Sample Parsed(const std::string& text) {
  Sample sample;
  const absl::Status status = ParseTextProto(text, "job.textproto", &sample, nullptr);
  EXPECT_TRUE(status.ok()) << status;
  return sample;
}

std::string OverrideError(const std::string& assignment, Sample sample = Sample()) {
  const absl::Status status = ApplyOverride(assignment, &sample, nullptr);
  return status.ok() ? "no error" : std::string(status.message());
}

TEST(TextProtoTest, AMarkInFrontOfUtf8IsPassedByAndUtf16IsNamed) {
  EXPECT_EQ(Parsed("\xef\xbb\xbfname: 'a'").name(), "a");
  EXPECT_EQ(ErrorOf(std::string("\xff\xfen\0a\0", 6)), "job.textproto:1:1: the text is UTF-16; save it as UTF-8");
  EXPECT_EQ(ErrorOf(std::string("\xfe\xff\0n\0a", 6)), "job.textproto:1:1: the text is UTF-16; save it as UTF-8");
}

TEST(TextProtoTest, EveryKindOfValueIsRead) {
  const Sample sample = Parsed(R"(# a comment
    name: "a" 'b'   # two pieces
    learning_rate: -1e-3
    batch_size: -9223372036854775808
    seed: 0xffffffffffffffff, servers: 017;
    sync: true
    split_method: HASH_NAME
    sizes: [400, 200] sizes: 1
    table { name: "x" } table: < width: 8 >
    table: [{ width: 1 }, { width: 2 }]
    token: "\x00\377"
    small: 1.5f
    files: []
  )");
  EXPECT_EQ(sample.name(), "ab");
  EXPECT_EQ(sample.learning_rate(), -1e-3);
  EXPECT_EQ(sample.batch_size(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(sample.seed(), ~uint64_t{0});
  EXPECT_EQ(sample.servers(), 15);
  EXPECT_TRUE(sample.sync());
  EXPECT_EQ(sample.split_method(), Sample::HASH_NAME);
  EXPECT_THAT(sample.sizes(), ElementsAre(400, 200, 1));
  ASSERT_EQ(sample.table_size(), 4);
  EXPECT_EQ(sample.table(3).width(), 2);
  EXPECT_EQ(sample.token(), std::string("\0\377", 2));
  EXPECT_EQ(sample.small(), 1.5f);
}

TEST(TextProtoTest, WhatProtocolBuffersPrintIsReadBack) {
  Sample sample;
  sample.set_name("quote \" and \n line");
  sample.set_learning_rate(0.1);
  sample.set_small(-std::numeric_limits<float>::infinity());
  sample.set_token(std::string("\0\1\2", 3));
  sample.mutable_child()->mutable_child()->add_sizes(-1);
  Inner inner;
  inner.set_width(3);
  sample.mutable_custom()->PackFrom(inner);
  std::string text;
  ASSERT_TRUE(google::protobuf::TextFormat::PrintToString(sample, &text));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(Parsed(text), sample)) << text;
}

TEST(TextProtoTest, NotANumberAndInfinityAreNumbers) {
  EXPECT_TRUE(std::isnan(Parsed("learning_rate: nan").learning_rate()));
  EXPECT_EQ(Parsed("learning_rate: -inf").learning_rate(), -std::numeric_limits<double>::infinity());
}

TEST(TextProtoTest, UnknownFieldNamesPlaceAndNearestField) {
  EXPECT_EQ(ErrorOf("name: \"x\"\n\n    learnig_rate: 1\n"),
            "job.textproto:3:5: unknown field 'learnig_rate' (did you mean 'learning_rate'?)");
  EXPECT_EQ(ErrorOf("table { wdith: 1 }"), "job.textproto:1:9: unknown field 'wdith' (did you mean 'width'?)");
}

TEST(TextProtoTest, UnknownFieldUnlikeAnyOtherListsThoseThereAre) {
  EXPECT_EQ(ErrorOf("inner { zzzzzz: 1 }"), "job.textproto:1:9: unknown field 'zzzzzz'; known: name, width, rate");
}

TEST(TextProtoTest, WrongEnumNamesTheNearestValue) {
  EXPECT_EQ(ErrorOf("split_method: ROUNDROBIN"),
            "job.textproto:1:15: 'ROUNDROBIN' is no value of 'split_method' (did you mean 'ROUND_ROBIN'?)");
  EXPECT_EQ(ErrorOf("split_method: 7"),
            "job.textproto:1:15: 'split_method' takes one of ROUND_ROBIN, HASH_NAME, got '7'");
}

TEST(TextProtoTest, WrongTypesSayWhatTheFieldTakes) {
  EXPECT_EQ(ErrorOf("batch_size: 0.5"), "job.textproto:1:13: 'batch_size' takes an integer, got '0.5'");
  EXPECT_EQ(ErrorOf("servers: 3000000000"),
            "job.textproto:1:10: 'servers' takes an integer from -2147483648 to 2147483647, got '3000000000'");
  EXPECT_EQ(ErrorOf("seed: -1"), "job.textproto:1:8: 'seed' takes an integer from 0 to 18446744073709551615, got '-1'");
  EXPECT_EQ(ErrorOf("sync: yes"), "job.textproto:1:7: 'sync' takes true or false, got 'yes'");
  EXPECT_EQ(ErrorOf("learning_rate: \"0.1\""), "job.textproto:1:16: 'learning_rate' takes a number, got \"0.1\"");
  EXPECT_EQ(ErrorOf("name: x"), "job.textproto:1:7: 'name' takes a string in quotes, got 'x'");
  EXPECT_EQ(ErrorOf("inner: 3"), "job.textproto:1:8: 'inner' takes a message in braces, got '3'");
  EXPECT_EQ(ErrorOf("sync { }"), "job.textproto:1:6: expected ':' after 'sync', got '{'");
  EXPECT_EQ(ErrorOf("inner 3"), "job.textproto:1:7: expected '{' after 'inner', got '3'");
}

TEST(TextProtoTest, MissingBraceNamesWhatIsOpen) {
  EXPECT_EQ(ErrorOf("\n  inner {\n width: 1\n"),
            "job.textproto:4:1: expected '}' to close 'inner' opened at job.textproto:2:9, got the end of the text");
  EXPECT_EQ(ErrorOf("inner { } }"), "job.textproto:1:11: expected a field name, got '}'");
  EXPECT_EQ(ErrorOf("sizes: [1, 2"),
            "job.textproto:1:13: expected ',' or ']' in the list of 'sizes', got the end of the text");
}

TEST(TextProtoTest, WrittenTwiceIsAnErrorNotALastValue) {
  EXPECT_EQ(ErrorOf("sync: true\nsync: false"),
            "job.textproto:2:1: 'sync' is written twice, first at job.textproto:1:1");
  EXPECT_EQ(ErrorOf("adam { }\nsgd { }"),
            "job.textproto:2:1: 'sgd' excludes 'adam', which is written at job.textproto:1:1");
  // Each entry of a repeated message is a message of its own.
  EXPECT_EQ(ErrorOf("table { width: 1 } table { width: 2 }"), "no error");
}

TEST(TextProtoTest, BytesFromOutsideNeverAbort) {
  EXPECT_THAT(ErrorOf("name: \"open\n"), HasSubstr("job.textproto:1:"));
  EXPECT_THAT(ErrorOf(std::string("name: \0\1\2", 9)), HasSubstr("job.textproto:1:"));
  EXPECT_THAT(ErrorOf("/* never closed"), HasSubstr("job.textproto:1:1"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "child { ";
  EXPECT_THAT(ErrorOf(deep), HasSubstr("nested more than 64 deep"));
}

TEST(TextProtoTest, EveryCutOfATextIsReadOrRefused) {
  const std::string text = "name: \"x\" table { width: 3 } sizes: [1, 2] custom { [weir.testing.Inner] { width: 1 } }";
  for (size_t n = 0; n < text.size(); ++n) {
    const std::string error = ErrorOf(text.substr(0, n));
    EXPECT_TRUE(error == "no error" || error.find("job.textproto:1:") == 0) << error;
  }
}

TEST(TextProtoTest, AnyIsReadByTypeName) {
  for (const char* text : {"custom { [type.googleapis.com/weir.testing.Inner] { width: 5 } }",
                           "custom { [weir.testing.Inner] { width: 5 } }"}) {
    Inner inner;
    ASSERT_TRUE(Parsed(text).custom().UnpackTo(&inner)) << text;
    EXPECT_EQ(inner.width(), 5);
  }
  EXPECT_EQ(ErrorOf("custom { [weir.testing.Nobody] { } }"),
            "job.textproto:1:10: no message type 'weir.testing.Nobody' is linked into this program");
  EXPECT_EQ(ErrorOf("custom { [weir.testing.Inner] { widht: 5 } }"),
            "job.textproto:1:33: unknown field 'widht' (did you mean 'width'?)");
}

TEST(ForeignTextTest, UnknownFieldsAreSkippedAndErrorsHaveAPlace) {
  Sample sample;
  std::string error;
  ASSERT_TRUE(ParseForeignText("name: 'a' of_tomorrow { x: [1, 2] y { z: 3 } } sizes: 4", &sample, &error)) << error;
  EXPECT_EQ(sample.name(), "a");
  ASSERT_EQ(sample.sizes_size(), 1);
  EXPECT_FALSE(ParseForeignText("name: 'a'\nsizes: x", &sample, &error));
  EXPECT_THAT(error, HasSubstr("2:8: "));
  EXPECT_FALSE(ParseForeignText("name {", &sample));
}

TEST(ForeignTextTest, NestingOfAnyDepthIsRefused) {
  Sample sample;
  for (const char* open : {"a{", "a:{", "a:<", "a:[{", "table{", "[x.y]{"}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += open;
    EXPECT_FALSE(ParseForeignText(text, &sample)) << open;
  }
}

TEST(TextPositionsTest, FieldsAreFoundByPath) {
  Sample sample;
  TextPositions at;
  ASSERT_TRUE(ParseTextProto("table {\n  width: 1\n}\ntable {\n    width: 2\n}\nsizes: [1,\n 2]\n"
                             "custom {\n [weir.testing.Inner] {\n  width: 3 } }\n",
                             "job.textproto", &sample, &at)
                  .ok());
  EXPECT_EQ(at.At("table[0].width"), "job.textproto:2:3");
  EXPECT_EQ(at.At("table[1].width"), "job.textproto:5:5");
  EXPECT_EQ(at.At("table[1]"), "job.textproto:4:1");
  EXPECT_EQ(at.At("sizes[1]"), "job.textproto:8:2");
  EXPECT_EQ(at.At("custom.width"), "job.textproto:11:3");
}

TEST(TextPositionsTest, WhatIsNotWrittenStandsWhereItsParentDoes) {
  Sample sample;
  TextPositions at;
  ASSERT_TRUE(ParseTextProto("\n table { width: 1 }", "job.textproto", &sample, &at).ok());
  EXPECT_EQ(at.At("table[0].rate"), "job.textproto:2:2");
  EXPECT_EQ(at.At("inner.rate"), "job.textproto");
  EXPECT_EQ(at.Error("table[0].rate", "table.rate must be positive, got -1").message(),
            "job.textproto:2:2: table.rate must be positive, got -1");
}

TEST(OverrideTest, ValuesAreTextLiterals) {
  Sample sample = Parsed("table { width: 1 } table { width: 2 } sizes: [1, 2] adam { }");
  for (const char* set : {"servers=3", "name=a b", "split_method=HASH_NAME", "table[1].width=8", "sizes=[7, 8, 9]",
                          "sgd.rate=0.5", "inner={ name: \"i\" width: 4 }", "files=data/*.gz", "small = 2.5"}) {
    const absl::Status status = ApplyOverride(set, &sample, nullptr);
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(sample.servers(), 3);
  EXPECT_EQ(sample.name(), "a b");
  EXPECT_EQ(sample.table(0).width(), 1);
  EXPECT_EQ(sample.table(1).width(), 8);
  EXPECT_THAT(sample.sizes(), ElementsAre(7, 8, 9));
  EXPECT_FALSE(sample.has_adam());
  EXPECT_EQ(sample.sgd().rate(), 0.5);
  EXPECT_EQ(sample.inner().width(), 4);
  EXPECT_THAT(sample.files(), ElementsAre("data/*.gz"));
  EXPECT_EQ(sample.small(), 2.5f);
  ASSERT_TRUE(ApplyOverride("files=[\"a\", \"b\"]", &sample, nullptr).ok());
  EXPECT_THAT(sample.files(), ElementsAre("a", "b"));
  ASSERT_TRUE(ApplyOverride("sizes[1]=0", &sample, nullptr).ok());
  EXPECT_THAT(sample.sizes(), ElementsAre(7, 0, 9));
}

TEST(OverrideTest, MessagesAreThoseOfAFile) {
  EXPECT_EQ(OverrideError("learnig_rate=1"),
            "--set learnig_rate: unknown field 'learnig_rate' (did you mean 'learning_rate'?)");
  EXPECT_EQ(OverrideError("servers=many"), "--set servers: 'servers' takes an integer, got 'many'");
  EXPECT_EQ(OverrideError("servers=3 4"), "--set servers: expected the end of the value, got '4'");
  EXPECT_EQ(OverrideError("servers"), "--set servers: expected 'path.to.field=value', got no '='");
  EXPECT_EQ(OverrideError("table[0].width=1"), "--set table[0].width: 'table' has 0 entries, there is no index 0");
  EXPECT_EQ(OverrideError("files[0]=x"),
            "--set files[0]: 'files' has 0 entries, there is no index 0; 'files=[a, b]' sets the whole list");
  EXPECT_EQ(OverrideError("table.width=1"), "--set table.width: 'table' is repeated, write 'table[0].width'");
  EXPECT_EQ(OverrideError("servers.x=1"), "--set servers.x: 'servers' has no fields of its own");
  EXPECT_EQ(OverrideError("table[x].width=1"), "--set table[x].width: expected 'name[index]', got 'table[x]'");
}

TEST(OverrideTest, AWrongValueLeavesTheMessageAsItWas) {
  Sample sample = Parsed("sizes: [1, 2]");
  EXPECT_FALSE(ApplyOverride("sizes=[3, x]", &sample, nullptr).ok());
  EXPECT_THAT(sample.sizes(), ElementsAre(1, 2));
}

TEST(OverrideTest, PlacesFollow) {
  Sample sample;
  TextPositions at;
  ASSERT_TRUE(ParseTextProto("inner { width: 1 }", "job.textproto", &sample, &at).ok());
  ASSERT_TRUE(ApplyOverride("inner={ rate: 1 }", &sample, &at).ok());
  EXPECT_EQ(at.At("inner.width"), "--set inner");
  ASSERT_TRUE(ApplyOverride("inner.rate=2", &sample, &at).ok());
  EXPECT_EQ(at.At("inner.rate"), "--set inner.rate");
}

TEST(OverrideTest, ReachesIntoAnAny) {
  Sample sample = Parsed("custom { [weir.testing.Inner] { width: 5 } }");
  ASSERT_TRUE(ApplyOverride("custom.width=6", &sample, nullptr).ok());
  Inner inner;
  ASSERT_TRUE(sample.custom().UnpackTo(&inner));
  EXPECT_EQ(inner.width(), 6);
}

TEST(NearestNameTest, CandidatesThatAreTooLongCostNothing) {
  // 200 * 200 * 100,000 comparisons would take tens of seconds.
  std::vector<std::string> known(200, std::string(100000, 'x'));
  known.push_back("relu");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(NearestName("rleu", known), "relu");
  EXPECT_EQ(NearestName(std::string(200, 'x'), known), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(NearestNameTest, FarNamesAreNotSuggested) {
  EXPECT_EQ(NearestName("rleu", {"relu", "tanh"}), "relu");
  EXPECT_EQ(NearestName("HASHNAME", {"ROUND_ROBIN", "HASH_NAME"}), "HASH_NAME");
  EXPECT_EQ(NearestName("embedding", {"relu", "tanh"}), "");
  EXPECT_EQ(NearestName(std::string(100000, 'x'), {"relu"}), "");
}

}  // namespace
}  // namespace weir
