#include "framework/formats/schema.h"
#include "framework/formats/derived.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/slot_schema.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class FieldErrors : public SettingErrors {
 public:
  absl::Status Error(std::string_view field, std::string_view text) const override {
    return absl::InvalidArgumentError(absl::StrCat(std::string(field), ": ", std::string(text)));
  }
};

TEST(DataSchemaTest, EveryReaderOfTheJobHasASchemaUnderItsName) {
  const google::protobuf::OneofDescriptor* readers = v1::Data::descriptor()->FindOneofByName("reader");
  for (int i = 0; i < readers->field_count(); ++i) {
    if (readers->field(i)->name() == "custom") continue;
    EXPECT_NE(FindDataSchema(readers->field(i)->name()), nullptr) << readers->field(i)->name();
  }
  EXPECT_THAT(DataFormatNames(),
              ElementsAre("criteo", "csv", "idx", "lib_svm", "multi_slot", "slot_sign", "tf_record"));
  EXPECT_EQ(FindDataSchema("weir.v1.Csv"), nullptr);
}

TEST(DataSchemaTest, EveryReaderOfTheJobHasAParser) {
  v1::Data data;
  const google::protobuf::OneofDescriptor* readers = v1::Data::descriptor()->FindOneofByName("reader");
  for (int i = 0; i < readers->field_count(); ++i) {
    if (readers->field(i)->name() == "custom") continue;
    data.GetReflection()->MutableMessage(&data, readers->field(i));
    EXPECT_THAT(MakeLineParser(data).status().message(), Not(HasSubstr("is registered"))) << readers->field(i)->name();
  }
}

TEST(DataSchemaTest, DataWithoutAReaderIsToldTheReadersThereAre) {
  EXPECT_EQ(MakeLineParser(v1::Data()).status(),
            absl::InvalidArgumentError("data: no reader; write criteo {}, multi_slot { ... }, csv { ... }, lib_svm { "
                                       "... }, idx { ... }, tf_record { ... }, slot_sign { ... } or custom { ... }"));
}

TEST(DataSchemaTest, ARuleSaysWhichFieldIsWrong) {
  v1::Criteo criteo;
  criteo.set_integers(-1);
  EXPECT_EQ((*FindDataSchema("criteo"))(criteo, FieldErrors()).status().message(),
            "integers: must not be negative, got -1");
}

TEST(SlotSchemaTest, SlotsWithOneOutputStandSideBySide) {
  const FieldErrors errors;
  SlotSchema schema("slot", errors, {DataVariable("label", v1::DENSE, 1)});
  ASSERT_TRUE(schema.Add("ids", v1::IDS, 1, "slot[0]", "").ok());
  ASSERT_TRUE(schema.Add("dense", v1::DENSE, 3, "slot[1]", "").ok());
  ASSERT_TRUE(schema.Add("ids", v1::IDS, 1, "slot[2]", "").ok());
  const auto vars = std::move(schema).Finish("");
  ASSERT_TRUE(vars.ok()) << vars.status();
  ASSERT_EQ(vars->size(), 3u);
  EXPECT_EQ((*vars)[1].name(), "ids");
  EXPECT_THAT((*vars)[1].dims(), ElementsAre(-1, 2));
  EXPECT_EQ((*vars)[1].dtype(), v1::INT64);
  EXPECT_THAT((*vars)[2].dims(), ElementsAre(-1, 3));
}

TEST(SlotSchemaTest, AnOutputHoldsFloatsOrIdsAndIsNotTheFormatsOwn) {
  const FieldErrors errors;
  SlotSchema schema("column", errors, {DataVariable("label", v1::DENSE, 1)});
  EXPECT_EQ(schema.Add("label", v1::DENSE, 1, "column[0]", "").message(),
            "column[0]: gives 'label', which the format itself does; it needs another output");
  ASSERT_TRUE(schema.Add("a", v1::IDS, 1, "column[1]", "").ok());
  EXPECT_EQ(schema.Add("a", v1::DENSE, 1, "column[2]", "").message(),
            "column[2]: gives floats to 'a', which earlier columns fill with ids");
}

TEST(SlotSchemaTest, FloatsOfAllSlotsTogetherHaveALimit) {
  const FieldErrors errors;
  SlotSchema schema("slot", errors);
  ASSERT_TRUE(schema.Add("a", v1::DENSE, kMaxColumns, "slot[0]", "slot[0].dim").ok());
  EXPECT_THAT(schema.Add("b", v1::DENSE, 1, "slot[1]", "slot[1].dim").message(),
              HasSubstr("slot[1].dim: makes 1048577 floats of all slots together"));
}

TEST(SlotSchemaTest, NamesAreGivenOnceAndThereIsAtLeastOneSlot) {
  const FieldErrors errors;
  SlotSchema schema("slot", errors);
  EXPECT_TRUE(schema.Name("a", "slot[0]").ok());
  EXPECT_EQ(schema.Name("a", "slot[1]").message(), "slot[1].name: 'a' is the name of an earlier slot");
  EXPECT_EQ(schema.Name("", "slot[2]").message(), "slot[2]: needs a name");
  EXPECT_EQ(std::move(schema).Finish(" that is not skipped").status().message(),
            "slot: must name at least one slot that is not skipped");
}

}  // namespace
}  // namespace weir
