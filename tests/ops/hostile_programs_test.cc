// Programs come from files. Whatever stands in one, the rules of every operator answer with a Status: no abort, no read
// behind the end of a list.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/graph/autodiff.h"
#include "framework/graph/builder.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

class Scrambler {
 public:
  explicit Scrambler(uint64_t seed) : random_(seed) {}

  bool Often() { return random_() % 5 != 0; }
  bool Seldom() { return random_() % 5 == 0; }
  template <typename T>
  T Any(const std::vector<T>& of) {
    return of[random_() % of.size()];
  }
  int64_t Dim() { return Any<int64_t>({-1, -1, 0, 1, 1, 2, 2, 3, 4, 8, 65536, int64_t{1} << 40, INT64_MAX}); }
  int64_t Int() { return Any<int64_t>({-2, -1, 0, 1, 2, 3, 4, 100, -100, INT64_MAX, INT64_MIN}); }

  v1::VarDesc Var(const std::string& name) {
    v1::VarDesc var;
    var.set_name(name);
    var.set_kind(Any<v1::VarKind>({v1::DENSE, v1::DENSE, v1::DENSE, v1::SELECTED_ROWS, v1::IDS, v1::TABLE}));
    if (Seldom()) var.set_dtype(Any<v1::DType>({v1::FLOAT64, v1::INT32, v1::INT64, v1::BOOL, v1::UINT8}));
    const int rank = var.kind() == v1::DENSE ? static_cast<int>(random_() % 5) : 2;
    for (int i = 0; i < rank; ++i) var.add_dims(i == 0 && Often() ? Any<int64_t>({-1, 4}) : Dim());
    if (var.kind() == v1::IDS) var.set_dims(0, -1);
    var.set_persistable(Seldom());
    var.set_is_parameter(var.persistable() && Often());
    var.set_stop_gradient(!var.persistable() || Seldom());
    return var;
  }

  void Value(v1::OpAttr* attr, const v1::OpAttr& like) {
    *attr = like;
    switch (like.value_case()) {
      case v1::OpAttr::kB: attr->set_b(random_() % 2 == 0); break;
      case v1::OpAttr::kI: attr->set_i(Int()); break;
      case v1::OpAttr::kF: attr->set_f(Any<double>({0, 1, -1, 0.5, 1e300, -1e-300, NAN, INFINITY})); break;
      case v1::OpAttr::kS: attr->set_s(Any<std::string>({"", "none", "sum", "mean", "relu", "identity", "rubbish"})); break;
      case v1::OpAttr::kInts:
        attr->mutable_ints()->clear_v();
        for (uint64_t i = random_() % 4; i > 0; --i) attr->mutable_ints()->add_v(Int());
        break;
      case v1::OpAttr::kFloats:
        attr->mutable_floats()->clear_v();
        for (uint64_t i = random_() % 4; i > 0; --i) attr->mutable_floats()->add_v(0.5);
        break;
      case v1::OpAttr::kStrings:
        attr->mutable_strings()->clear_v();
        for (uint64_t i = random_() % 4; i > 0; --i) attr->mutable_strings()->add_v("v0");
        break;
      case v1::OpAttr::kDtype: attr->set_dtype(Any<v1::DType>({v1::DTYPE_UNSET, v1::FLOAT32, v1::INT64, v1::FLOAT16})); break;
      default: break;
    }
  }

  // A slot's variables: of the right kind more often than not.
  std::string Pick(const v1::BlockDesc& block, const SlotDef& slot) {
    for (int tries = 0; tries < 20; ++tries) {
      const v1::VarDesc& var = block.vars(static_cast<int>(random_() % static_cast<uint64_t>(block.vars_size())));
      if (Seldom()) return var.name();
      if (slot.kinds.empty() ? var.kind() == v1::DENSE
                             : std::find(slot.kinds.begin(), slot.kinds.end(), var.kind()) != slot.kinds.end()) {
        return var.name();
      }
    }
    return block.vars(0).name();
  }

  v1::OpDesc Op(const OpDef& def, const v1::BlockDesc& block, bool new_outputs) {
    v1::OpDesc op;
    op.set_type(def.type);
    for (const SlotDef& slot : def.inputs) {
      if (Seldom() && (slot.optional || Seldom())) continue;
      v1::OpSlot* given = op.add_inputs();
      given->set_name(slot.name);
      for (uint64_t n = slot.variadic ? 1 + random_() % 3 : 1; n > 0; --n) given->add_vars(Pick(block, slot));
    }
    for (const SlotDef& slot : def.outputs) {
      if (Seldom() && (slot.optional || Seldom())) continue;
      v1::OpSlot* given = op.add_outputs();
      given->set_name(slot.name);
      for (uint64_t n = slot.variadic ? 1 + random_() % 3 : 1; n > 0; --n) {
        given->add_vars(new_outputs ? absl::StrCat("new", fresh_++) : Pick(block, slot));
      }
    }
    for (const AttrDef& attr : def.attrs) {
      if (attr.required ? Seldom() && Seldom() : Seldom()) continue;
      Value(op.add_attrs(), attr.default_value);
    }
    return op;
  }

 private:
  std::mt19937_64 random_;
  int fresh_ = 0;
};

constexpr int kTrials = 400;

class HostileProgramsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(HostileProgramsTest, AnyProgramIsAnsweredWithAStatus) {
  const std::string type = GetParam();
  const OpDef& def = *OpRegistry::Global().Find(type);
  int accepted = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    Scrambler scrambler(StableHash(type) + static_cast<uint64_t>(trial));
    v1::ProgramDesc program;
    ProgramBuilder builder(&program);
    for (int i = 0; i < 8; ++i) {
      while (!builder.AddVar(scrambler.Var(absl::StrCat("v", i))).ok()) {
      }
    }
    const v1::OpDesc op = scrambler.Op(def, program.blocks(0), /*new_outputs=*/scrambler.Often());
    if (getenv("WEIR_TRACE_HOSTILE") != nullptr) {
      v1::ProgramDesc shown = program;
      *shown.mutable_blocks(0)->add_ops() = op;
      fprintf(stderr, "%s", ProgramText(shown).c_str());
    }
    if (!builder.AddOp(op).ok()) {
      // The verifier sees the op as it is.
      *program.mutable_blocks(0)->add_ops() = op;
      VerifyProgram(program).IgnoreError();
      continue;
    }
    ++accepted;
    VerifyProgram(program).IgnoreError();
    const ProgramIndex index(program);
    CostOf(op, def, index.Lookup(0), 32);
    for (const v1::VarDesc& var : program.blocks(0).vars()) {
      v1::ProgramDesc trained = program;
      trained.add_losses()->set_var(var.name());
      AppendBackward(&trained).IgnoreError();
    }
    Scope scope;
    Executor::Create(program, &scope, {}).status().IgnoreError();
  }
  RecordProperty("accepted", accepted);
}

INSTANTIATE_TEST_SUITE_P(Operators, HostileProgramsTest, ::testing::ValuesIn(OpRegistry::Global().Types()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
