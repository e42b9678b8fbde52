#include "framework/graph/builder.h"

#include <string>

#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

v1::VarDesc Parameter(const std::string& name, std::vector<int64_t> dims) {
  v1::VarDesc var;
  var.set_name(name);
  var.mutable_dims()->Assign(dims.begin(), dims.end());
  var.set_persistable(true);
  var.set_is_parameter(true);
  return var;
}

TEST(ProgramBuilderTest, OutputsAreDeclaredByTheShapeRule) {
  v1::ProgramDesc program;
  ProgramBuilder builder(&program);
  ASSERT_TRUE(builder.AddData("x", {-1, 4}).ok());
  ASSERT_TRUE(builder.AddVar(Parameter("w", {4, 1})).ok());
  ASSERT_TRUE(builder.AddOp(MakeOp("dot", {{"X", {"x"}}, {"W", {"w"}}}, {{"Out", {"y"}}})).ok());
  EXPECT_EQ(DescribeVar(*builder.FindVar("y")), "float32 [-1, 1]");
  EXPECT_TRUE(VerifyProgram(program).ok()) << VerifyProgram(program);
}

TEST(ProgramBuilderTest, NamesAreUniqueAndDeterministic) {
  std::string texts[2];
  for (std::string& text : texts) {
    v1::ProgramDesc program;
    ProgramBuilder builder(&program);
    ASSERT_TRUE(builder.AddData("copy.tmp_0", {-1, 1}).ok());
    EXPECT_EQ(builder.AddOpOut(MakeOp("copy", {{"X", {"copy.tmp_0"}}}, {})).value(), "copy.tmp_1");
    EXPECT_EQ(builder.AddOpOut(MakeOp("copy", {{"X", {"copy.tmp_1"}}}, {})).value(), "copy.tmp_2");
    EXPECT_EQ(builder.AddOpOut(MakeOp("copy", {{"X", {"copy.tmp_1"}}}, {}), "Out", "z").value(), "z");
    EXPECT_EQ(builder.TempName("other"), "other.tmp_0");
    EXPECT_EQ(builder.AddVar(Parameter("z", {1})).status().code(), absl::StatusCode::kAlreadyExists);
    text = ProgramText(program);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(ProgramBuilderTest, AWrongOpIsRefusedWithItsPlaceAndChangesNothing) {
  v1::ProgramDesc program;
  ProgramBuilder builder(&program);
  ASSERT_TRUE(builder.AddData("x", {-1, 5}).ok());
  ASSERT_TRUE(builder.AddVar(Parameter("w", {4, 1})).ok());
  const std::string before = ProgramText(program);
  EXPECT_EQ(builder.AddOp(MakeOp("dot", {{"X", {"x"}}, {"W", {"w"}}}, {{"Out", {"y"}}})).message(),
            "block 0, op 0 (dot): dot: X is [-1, 5] and W is [4, 1]");
  EXPECT_EQ(builder.AddOp(MakeOp("doot", {}, {})).message(),
            "block 0, op 0 (doot): unknown operator 'doot' (did you mean 'dot'?)");
  EXPECT_EQ(builder.AddOp(MakeOp("copy", {{"X", {"x"}}}, {{"Out", {"w"}}})).message(),
            "block 0, op 0 (copy): output 'w' is declared as float32 [4, 1]; the op gives float32 [-1, 5]");
  EXPECT_EQ(ProgramText(program), before);
}

TEST(ProgramBuilderTest, AnInnerBlockSeesItsParents) {
  v1::ProgramDesc program;
  ProgramBuilder outer(&program);
  ASSERT_TRUE(outer.AddData("x", {-1, 1}).ok());
  const int index = outer.AddBlock(0);
  ProgramBuilder inner(&program, index);
  EXPECT_NE(inner.FindVar("x"), nullptr);
  EXPECT_EQ(inner.MutableVar("x"), nullptr);
  ASSERT_TRUE(inner.AddOp(MakeOp("copy", {{"X", {"x"}}}, {{"Out", {"y"}}})).ok());
  EXPECT_EQ(outer.FindVar("y"), nullptr);
  EXPECT_TRUE(VerifyProgram(program).ok()) << VerifyProgram(program);
}

TEST(InferTest, CostsAreForABatch) {
  v1::ProgramDesc program;
  ProgramBuilder builder(&program);
  ASSERT_TRUE(builder.AddData("x", {-1, 4}).ok());
  ASSERT_TRUE(builder.AddOp(MakeOp("times", {{"X", {"x"}}, {"Y", {"x"}}}, {{"Out", {"y"}}})).ok());
  const ProgramIndex index(program);
  const v1::OpDesc& op = program.blocks(0).ops(0);
  EXPECT_EQ(CostOf(op, *OpRegistry::Global().Find("times"), index.Lookup(0), 32).flops, 128);
}

TEST(OpRegistryDeathTest, ATypeRegisteredTwiceIsOurMistake) {
  EXPECT_DEATH(OpRegistry::Global().Register({.type = "copy"}), "operator copy is registered twice");
}

TEST(OpRegistryDeathTest, OutputsOfAnOpThatIsCutApartAreOptional) {
  OpDef def = {.type = "cut", .outputs = {{"Left"}, {.name = "Right", .optional = true}}, .apart = "Right"};
  constexpr char kMessage[] = "operator cut: an output that is computed apart, and all others, are optional";
  EXPECT_DEATH(OpRegistry::Global().Register(def), kMessage);
  def.outputs[0].optional = true;
  def.apart = "Rigth";
  EXPECT_DEATH(OpRegistry::Global().Register(def), kMessage);
}

TEST(AttrReaderTest, DefaultsComeFromTheSignature) {
  const OpDef* def = OpRegistry::Global().Find("fill_like_batch");
  const v1::OpDesc op = MakeOp("fill_like_batch", {}, {}, {AttrB("scalar_times_batch", true)});
  const AttrReader attrs(op, *def);
  EXPECT_EQ(attrs.Float("value"), 1.0);
  EXPECT_TRUE(attrs.Bool("scalar_times_batch"));
  EXPECT_FALSE(attrs.Has("value"));
  EXPECT_TRUE(attrs.Has("scalar_times_batch"));
}

}  // namespace
}  // namespace weir
