#include "framework/graph/program_text.h"

#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "framework/base/atomic_file.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/verifier.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Difference(const v1::ProgramDesc& a, const v1::ProgramDesc& b) {
  std::string text;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&text);
  differencer.Compare(a, b);
  return text;
}

std::string ErrorOf(const std::string& text) {
  const auto program = ParseProgramText(text, "x.program");
  return program.ok() ? "no error" : std::string(program.status().message());
}

// Sets fields at random, whatever they are: a field that is added later is tested from its first day.
class Scrambler {
 public:
  explicit Scrambler(uint64_t seed) : random_(seed) {}

  void Fill(Message* message, int depth) {
    const auto* type = message->GetDescriptor();
    const auto* reflection = message->GetReflection();
    for (int f = 0; f < type->field_count(); ++f) {
      const FieldDescriptor* field = type->field(f);
      if (field->is_repeated()) {
        const int n = static_cast<int>(random_() % 4);
        for (int i = 0; i < n; ++i) Add(message, reflection, field, depth);
      } else if (random_() % 3 != 0) {
        Set(message, reflection, field, depth);
      }
    }
  }

 private:
  std::string Text() {
    static const char* const some[] = {"fc_0.w@GRAD", "",      "a b", "q\"uote", "line\nbreak", "\xff\x01",
                                       "~",           "grads", "7",   "ä",       "-x",          "}"};
    return some[random_() % (sizeof(some) / sizeof(some[0]))];
  }
  double Float() {
    static const double some[] = {0.0, -0.0, 1.0, 0.1, -1e300, 5e-324, 1e22, std::numeric_limits<double>::infinity(),
                                  3.0, 1e6};
    return some[random_() % (sizeof(some) / sizeof(some[0]))];
  }
  int64_t Int() {
    static const int64_t some[] = {0, -1, 1, INT64_MIN, INT64_MAX, 221};
    return some[random_() % (sizeof(some) / sizeof(some[0]))];
  }

#define WEIR_KINDS(verb)                                                                                \
  switch (field->cpp_type()) {                                                                          \
    case FieldDescriptor::CPPTYPE_INT32:                                                                \
      return r->verb##Int32(m, field, static_cast<int32_t>(Int()));                                     \
    case FieldDescriptor::CPPTYPE_INT64:                                                                \
      return r->verb##Int64(m, field, Int());                                                           \
    case FieldDescriptor::CPPTYPE_UINT32:                                                               \
      return r->verb##UInt32(m, field, static_cast<uint32_t>(random_() % 2));                           \
    case FieldDescriptor::CPPTYPE_UINT64:                                                               \
      return r->verb##UInt64(m, field, static_cast<uint64_t>(Int()));                                   \
    case FieldDescriptor::CPPTYPE_DOUBLE:                                                               \
      return r->verb##Double(m, field, Float());                                                        \
    case FieldDescriptor::CPPTYPE_FLOAT:                                                                \
      return r->verb##Float(m, field, 0.5f);                                                            \
    case FieldDescriptor::CPPTYPE_BOOL:                                                                 \
      return r->verb##Bool(m, field, random_() % 2 == 0);                                               \
    case FieldDescriptor::CPPTYPE_ENUM:                                                                 \
      return r->verb##Enum(m, field,                                                                    \
                           field->enum_type()->value(static_cast<int>(                                  \
                               random_() % static_cast<uint64_t>(field->enum_type()->value_count())))); \
    case FieldDescriptor::CPPTYPE_STRING:                                                               \
      return r->verb##String(m, field, Text());                                                         \
    case FieldDescriptor::CPPTYPE_MESSAGE:                                                              \
      break;                                                                                            \
  }
  void Add(Message* m, const google::protobuf::Reflection* r, const FieldDescriptor* field, int depth) {
    WEIR_KINDS(Add);
    Fill(r->AddMessage(m, field), depth + 1);
  }
  void Set(Message* m, const google::protobuf::Reflection* r, const FieldDescriptor* field, int depth) {
    WEIR_KINDS(Set);
    Fill(r->MutableMessage(m, field), depth + 1);
  }
#undef WEIR_KINDS

  std::mt19937_64 random_;
};

TEST(ProgramTextTest, RandomProgramsComeBackEqualInEveryField) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    v1::ProgramDesc program;
    Scrambler(seed).Fill(&program, 0);
    const std::string text = ProgramText(program);
    const auto back = ParseProgramText(text, "x.program");
    ASSERT_TRUE(back.ok()) << back.status() << "\n" << text;
    ASSERT_EQ(back->SerializeAsString(), program.SerializeAsString()) << Difference(program, *back) << "\n" << text;
    EXPECT_EQ(ProgramText(*back), text);
  }
}

TEST(ProgramTextTest, TheOtherFormatsLoseNothingEither) {
  const std::string dir = CreateUniqueDirectory(::testing::TempDir(), "programs.").value();
  v1::ProgramDesc program;
  program.set_seed(~uint64_t{0});
  program.add_losses()->set_weight(0.1);
  program.mutable_plan()->set_servers(3);
  v1::OpDesc* op = program.add_blocks()->add_ops();
  *op = MakeOp("dropout", {{"X", {"x"}}}, {{"Out", {"y"}}}, {AttrF("rate", 0.1), AttrInts("dims", {})});
  for (const char* name : {"p.program", "p.textproto", "p.json", "p.pb"}) {
    const std::string path = JoinPath(dir, name);
    ASSERT_TRUE(WriteProgramFile(path, program).ok());
    const auto back = ReadProgramFile(path);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(Difference(program, *back), "") << name;
  }
  EXPECT_THAT(std::string(WriteProgramFile(JoinPath(dir, "p.txt"), program).message()),
              HasSubstr(".program, .textproto"));
  EXPECT_EQ(ReadProgramFile(JoinPath(dir, "none.program")).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomically(JoinPath(dir, "wrong.json"), R"({"blocks": [{"ops": [{"tpye": "fc"}]}]})").ok());
  EXPECT_THAT(std::string(ReadProgramFile(JoinPath(dir, "wrong.json")).status().message()),
              AllOf(HasSubstr("unknown field 'tpye' (did you mean 'type'?)"), HasSubstr("wrong.json: ")));
  ASSERT_TRUE(WriteFileAtomically(JoinPath(dir, "cut.pb"), program.SerializeAsString().substr(0, 5)).ok());
  EXPECT_EQ(ReadProgramFile(JoinPath(dir, "cut.pb")).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(RemoveTree(dir).ok());
}

TEST(ProgramTextTest, AnOpIsOneLine) {
  v1::OpDesc op = MakeOp("fc", {{"X", {"input"}}, {"W", {"deep.0.w"}}, {"Bias", {}}}, {{"Out", {"deep.0"}}},
                         {AttrS("activation", "relu"), AttrF("rate", 1), AttrI("axis", -1), AttrInts("shape", {1, 2}),
                          AttrFloats("f", {0.5, 2}), AttrStrings("names", {}), AttrB("flag", true),
                          AttrBlock("body", 1), AttrBlocks("all", {1, 2}), AttrType("to", v1::INT64)});
  op.set_role(v1::BACKWARD);
  v1::ParamGrad* pair = op.add_param_grads();
  pair->set_param("w");
  pair->set_grad("w@GRAD");
  EXPECT_EQ(
      OpText(op),
      "Out=deep.0 <- fc(X=input, W=deep.0.w, Bias=[]) activation=\"relu\" rate=1.0 axis=-1 shape=[1, 2] f=[0.5, 2.0] "
      "names=strings[] flag=true body=block(1) all=blocks[1, 2] to=dtype(INT64) @BACKWARD grads(w=w@GRAD)");
  EXPECT_EQ(OpText(MakeOp("send", {{"X", {"a", "odd name"}}}, {})), "send(X=[a, \"odd name\"])");
}

TEST(ProgramTextTest, TheSmallestTextThatAPersonWrites) {
  const auto program = ParseProgramText(R"(# by hand
weir program
block 0 {
  var x [-1, 4] stop_gradient: true
  var w [4, 1] persistable: true is_parameter: true initializer { xavier { } }
  var ids ids int64 [-1, 2]
  var y [-1, 1]

  Out=y <- dot(X=x, W=w)
}
)",
                                        "x.program");
  ASSERT_TRUE(program.ok()) << program.status();
  const v1::BlockDesc& block = program->blocks(0);
  EXPECT_FALSE(block.has_parent());
  EXPECT_TRUE(block.vars(1).initializer().has_xavier());
  EXPECT_EQ(block.vars(2).kind(), v1::IDS);
  EXPECT_EQ(block.vars(2).dtype(), v1::INT64);
  EXPECT_EQ(block.ops(0).inputs(1).vars(0), "w");
}

TEST(ProgramTextTest, ErrorsNameTheirPlace) {
  const std::string head = "weir program 1\nblock 0 {\n";
  EXPECT_EQ(ErrorOf(""), "x.program:1:1: expected 'weir program', got an empty text");
  EXPECT_EQ(ErrorOf("hello"), "x.program:1:1: expected 'weir program', got 'hello'");
  EXPECT_EQ(ErrorOf("weir program 9\n"),
            "x.program:1:1: program format version 9 is newer than 2, the newest that this build reads");
  EXPECT_EQ(ErrorOf("weir program 1\nblok 0 {"),
            "x.program:2:1: expected name, seed, loss, kept, mode, plan or block, got 'blok 0 {'");
  EXPECT_EQ(ErrorOf(head), "x.program:2:10: a block without its '}'");
  EXPECT_EQ(ErrorOf(head + "  Out=y <- relu\n}"), "x.program:3:16: expected '(' after 'relu', got the end of the line");
  EXPECT_EQ(ErrorOf(head + "  Out=y <- relu(X=)\n}"), "x.program:3:19: expected a name, got ')'");
  EXPECT_EQ(ErrorOf(head + "  relu(X=x) rate=\n}"), "x.program:3:18: expected a value, got the end of the line");
  EXPECT_EQ(ErrorOf(head + "  relu(X=x) dims=[]\n}"),
            "x.program:3:20: an empty list says of what: ints[], strings[], ...");
  EXPECT_EQ(ErrorOf(head + "  relu(X=x) @FORWORD\n}"),
            "x.program:3:14: expected a role (FORWARD, BACKWARD, OPTIMIZE, RPC, ...), got 'FORWORD'");
  EXPECT_EQ(ErrorOf(head + "  relu(X=x) note=\"open\n}"), "x.program:3:18: a string without its closing quote");
  EXPECT_EQ(
      ErrorOf(head + "  var x float31 [1]\n}"),
      "x.program:3:9: expected a kind (dense, selected_rows, ids, table), a dtype (float32, ...) or dims in brackets, "
      "got 'float31 [1]'");
  EXPECT_EQ(ErrorOf(head + "  var x [1] persistible: true\n}"),
            "x.program:3:13: unknown field 'persistible' (did you mean 'persistable'?)");
  EXPECT_EQ(ErrorOf("weir program 1\nplan {\n  servres: 2\n}\n"),
            "x.program:3:3: unknown field 'servres' (did you mean 'servers'?)");
}

TEST(ProgramTextTest, EveryCutOfAProgramIsReadOrRefused) {
  v1::ProgramDesc program;
  Scrambler(7).Fill(&program, 0);
  const std::string text = ProgramText(program);
  for (size_t n = 0; n < text.size(); ++n) {
    const std::string error = ErrorOf(text.substr(0, n));
    EXPECT_TRUE(error == "no error" || error.find("x.program:") == 0) << error;
  }
}

// Written by version 1 and kept: programs on disk load for ever.
TEST(ProgramTextTest, TheGoldenProgramLoads) {
  const std::string path = "tests/framework/testdata/golden_v1.program";
  const auto program = ReadProgramFile(path);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(ProgramText(*program), ReadWholeFile(path).value());
  EXPECT_TRUE(VerifyProgram(*program).ok()) << VerifyProgram(*program);
  EXPECT_EQ(program->plan().blocks(1).name(), "w.block1");
  EXPECT_EQ(program->losses(0).var(), "cost");
  EXPECT_EQ(program->blocks(0).vars(2).initializer().uniform().max(), 0.5);
}

}  // namespace
}  // namespace weir
