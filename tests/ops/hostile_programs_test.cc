// Programs come from files. Whatever stands in one, the rules of every operator answer with a Status: no abort, no read
// behind the end of a list. What the verifier accepts is run, on lanes that keep to the descriptions and on lanes that
// do not: kernels answer with a Status too.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
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
#include "framework/runtime/kernel.h"
#include "framework/runtime/scope.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

class Scrambler {
 public:
  // `tame`: few shapes and no absurd numbers, so that some ops come out well-formed; `pictures`: those of ops with
  // windows; `sequences`: those of ops with lengths.
  Scrambler(uint64_t seed, bool tame, bool pictures, bool sequences, bool weights)
      : random_(seed), tame_(tame), pictures_(pictures) {
    if (pictures) shapes_ = {{-1, 1, 4, 4}, {1, 1, 1, 1}, {1, 1, 2, 2}, {1}, {-1, 1, 2, 2}};
    if (sequences) shapes_ = {{-1, 1}, {-1, 1, 1}, {-1, 1, 4}, {-1, 4}};
    if (sequences && weights) shapes_.push_back({1, 4});
    for (int i = 0; i < 3 && !pictures && !sequences; ++i)
      shapes_.push_back(Any<std::vector<int64_t>>({{-1, 1}, {4}, {1}, {}, {-1}, {-1, 1, 4}, {4, 1}, {1, 4}}));
  }

  bool Often() { return random_() % 5 != 0; }
  bool Seldom() { return random_() % 5 == 0; }
  template <typename T>
  T Any(const std::vector<T>& of) {
    return of[random_() % of.size()];
  }
  int64_t Dim() { return Any<int64_t>({-1, -1, 0, 1, 1, 2, 2, 3, 4, 8, 65536, int64_t{1} << 40, INT64_MAX}); }
  int64_t Int() { return Any<int64_t>({-2, -1, 0, 1, 2, 3, 4, 100, -100, INT64_MAX, INT64_MIN}); }

  v1::VarDesc TameVar(const std::string& name) {
    v1::VarDesc var;
    var.set_name(name);
    var.set_kind(Any<v1::VarKind>(
        {v1::DENSE, v1::DENSE, v1::DENSE, v1::DENSE, v1::DENSE, v1::SELECTED_ROWS, v1::IDS, v1::TABLE}));
    if (Seldom() && Often()) var.set_dtype(Any<v1::DType>({v1::INT32, v1::INT64, v1::FLOAT64}));
    std::vector<int64_t> dims = Any(shapes_);
    if (var.kind() == v1::SELECTED_ROWS) dims = Any<std::vector<int64_t>>({{-1, 4}, {4, 4}});
    if (var.kind() == v1::IDS || var.kind() == v1::TABLE)
      dims = {-1, var.kind() == v1::TABLE ? 4 : Any<int64_t>({1, 4})};
    // Counts by bucket.
    if (var.kind() == v1::DENSE && dims == std::vector<int64_t>{4} && Any<bool>({true, false}))
      var.set_dtype(v1::INT64);
    for (int64_t d : dims) var.add_dims(d);
    var.set_persistable(var.kind() == v1::TABLE ||
                        (var.kind() == v1::DENSE && (dims.empty() || dims[0] > 0) && Often()));
    var.set_stop_gradient(!var.persistable());
    return var;
  }

  // Returns variables of shapes that only a few ops accept, and require: rates, norms, counts of steps, exact sums.
  static std::vector<v1::VarDesc> Particular() {
    std::vector<v1::VarDesc> vars;
    for (const auto& [dtype, size] : std::vector<std::pair<v1::DType, int64_t>>{
             {v1::FLOAT32, 1}, {v1::FLOAT64, 1}, {v1::INT64, 1}, {v1::INT64, 21}}) {
      v1::VarDesc& var = vars.emplace_back();
      var.set_name(absl::StrCat("particular", vars.size()));
      var.set_dtype(dtype);
      var.add_dims(size);
      var.set_persistable(true);
    }
    return vars;
  }

  // Returns variables named like the slots of an op whose shapes chance would not bring together.
  static std::vector<v1::VarDesc> OfSlots(const std::string& type) {
    std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
    if (type.starts_with("gru")) {
      shapes = {{"X", {-1, 2, 1}},
                {"Length", {-1, 1}},
                {"W", {1, 3}},
                {"U", {1, 3}},
                {"B", {3}},
                {"C", {3}},
                {"Hidden", {-1, 2, 1}},
                {"Gates", {-1, 2, 4}},
                {"Hidden@GRAD", {-1, 2, 1}},
                {"Last@GRAD", {-1, 1}}};
    } else if (type.starts_with("bilinear")) {
      shapes = {{"X", {-1, 3, 2}}, {"W", {2, 2, 2}}, {"Out@GRAD", {-1, 3, 2}}};
    }
    std::vector<v1::VarDesc> vars;
    for (const auto& [name, dims] : shapes) {
      v1::VarDesc& var = vars.emplace_back();
      var.set_name(name);
      var.set_dtype(v1::FLOAT32);
      for (const int64_t d : dims) var.add_dims(d);
      var.set_persistable(dims[0] > 0);
      var.set_stop_gradient(!var.persistable());
    }
    return vars;
  }

  v1::VarDesc Var(const std::string& name) {
    if (tame_) return TameVar(name);
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
    if (tame_) return TameValue(attr);
    switch (like.value_case()) {
      case v1::OpAttr::kB:
        attr->set_b(random_() % 2 == 0);
        break;
      case v1::OpAttr::kI:
        attr->set_i(Int());
        break;
      case v1::OpAttr::kF:
        attr->set_f(Any<double>({0, 1, -1, 0.5, 1e300, -1e-300, NAN, INFINITY}));
        break;
      case v1::OpAttr::kS:
        attr->set_s(Any<std::string>({"", "none", "sum", "mean", "relu", "identity", "rubbish"}));
        break;
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
      case v1::OpAttr::kDtype:
        attr->set_dtype(Any<v1::DType>({v1::DTYPE_UNSET, v1::FLOAT32, v1::INT64, v1::FLOAT16}));
        break;
      default:
        break;
    }
  }

  void TameValue(v1::OpAttr* attr) {
    const auto set = [](auto* list, const auto& values) {
      list->clear_v();
      for (const auto& v : values) list->add_v(v);
    };
    switch (attr->value_case()) {
      case v1::OpAttr::kB:
        attr->set_b(random_() % 2 == 0);
        break;
      case v1::OpAttr::kI:
        attr->set_i(Any<int64_t>({-1, 0, 1, 4, 4}));
        break;
      case v1::OpAttr::kF:
        attr->set_f(Any<double>({0, 0.5, 1}));
        break;
      case v1::OpAttr::kS:
        if (pictures_) {
          attr->set_s(Any<std::string>({"identity", "relu", "max", "average"}));
          break;
        }
        attr->set_s(Any<std::string>({attr->s(), attr->s(), "v0", "sum", "stop", "relu"}));
        break;
      case v1::OpAttr::kInts:
        if (pictures_) {
          set(attr->mutable_ints(), Any<std::vector<std::vector<int64_t>>::value_type>(
                                        {{1, 1}, {1, 1}, {0, 0}, {0, 0}, {2, 2}, {1, 0}, {1}}));
          break;
        }
        set(attr->mutable_ints(), Any<std::vector<std::vector<int64_t>>::value_type>(
                                      {{4}, {0}, {1}, {1, 3}, {0, 1}, {-1, 4}, {-1, 1, 4}, {}}));
        break;
      case v1::OpAttr::kFloats:
        set(attr->mutable_floats(), std::vector<double>{0.5});
        break;
      case v1::OpAttr::kStrings:
        set(attr->mutable_strings(), std::vector<std::string>{"v0"});
        break;
      case v1::OpAttr::kDtype:
        attr->set_dtype(Any<v1::DType>({v1::FLOAT32, v1::INT64}));
        break;
      default:
        break;
    }
  }

  // A slot's variables: of the right kind more often than not.
  std::string Pick(const v1::BlockDesc& block, const SlotDef& slot) {
    const bool known = std::any_of(block.vars().begin(), block.vars().end(),
                                   [&](const v1::VarDesc& var) { return var.name() == slot.name; });
    if (known && Often()) return slot.name;
    for (int tries = 0; tries < 20; ++tries) {
      // Slots of one op are alike more often than chance would have it.
      const bool again = tame_ && tries == 0 && last_ >= 0 && Any<bool>({true, false});
      last_ = again ? last_ : static_cast<int>(random_() % static_cast<uint64_t>(block.vars_size()));
      const v1::VarDesc& var = block.vars(last_);
      if (!tame_ && Seldom()) return var.name();
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
    last_ = -1;
    // The state of an update is optional for tables only.
    const auto left_out = [&](const SlotDef& slot) {
      if (tame_) return slot.optional && !def.is_optimizer && random_() % 2 == 0;
      return Seldom() && (slot.optional || Seldom());
    };
    const auto count = [&](const SlotDef& slot) {
      return slot.variadic ? 1 + (tame_ && Often() ? 0 : random_() % 3) : 1;
    };
    for (const SlotDef& slot : def.inputs) {
      if (left_out(slot)) continue;
      v1::OpSlot* given = op.add_inputs();
      given->set_name(slot.name);
      for (uint64_t n = count(slot); n > 0; --n) given->add_vars(Pick(block, slot));
    }
    for (const SlotDef& slot : def.outputs) {
      if (left_out(slot)) continue;
      v1::OpSlot* given = op.add_outputs();
      given->set_name(slot.name);
      const v1::OpSlot* same = tame_ && def.is_optimizer ? InputOfOutput(op, slot.name) : nullptr;
      for (uint64_t n = count(slot); n > 0; --n) {
        given->add_vars(same != nullptr ? same->vars(0)
                        : new_outputs   ? absl::StrCat("new", fresh_++)
                                        : Pick(block, slot));
      }
    }
    for (const AttrDef& attr : def.attrs) {
      if (attr.required ? !tame_ && Seldom() && Seldom() : Seldom() || (tame_ && Seldom())) continue;
      Value(op.add_attrs(), attr.default_value);
    }
    return op;
  }

  // A value as described, for lane `lane`; -1 is three examples. `obedient` is false: of other sizes than described.
  Variable Fill(const v1::VarDesc& var, bool obedient) {
    std::vector<int64_t> dims(var.dims().begin(), var.dims().end());
    for (int64_t& d : dims)
      d = d < 0 ? (obedient ? 3 : Any<int64_t>({0, 1, 3, 5})) : obedient || Often() ? d : Any<int64_t>({0, 1, 2});
    if (var.kind() == v1::IDS) {
      IdBatch ids;
      ids.slots = dims[1];
      ids.offsets = {0};
      for (int64_t i = 0; i < dims[0] * dims[1]; ++i) {
        ids.values.push_back(static_cast<int64_t>(random_() % 4));
        ids.offsets.push_back(static_cast<int64_t>(ids.values.size()));
      }
      return ids;
    }
    if (var.kind() == v1::SELECTED_ROWS) {
      SelectedRows rows;
      rows.height = var.dims(0);
      for (int64_t i = 0; i < std::min<int64_t>(dims[0], 4); ++i) rows.ids.push_back(i);
      rows.values = Filled(v1::FLOAT32, {static_cast<int64_t>(rows.ids.size()), dims[1]});
      rows.merged = rows.present = true;
      return rows;
    }
    if (var.kind() == v1::TABLE || (!obedient && Seldom())) return Tensor();
    return Filled(var.dtype(), dims);
  }

 private:
  Tensor Filled(DType dtype, const std::vector<int64_t>& dims) {
    Tensor tensor(dtype, dims);
    std::fill_n(static_cast<char*>(tensor.raw()), tensor.bytes(), '\0');
    if (dtype == v1::FLOAT32)
      std::generate_n(tensor.data<float>(), tensor.size(), [this] { return Any<float>({0, 0.5f, 1}); });
    return tensor;
  }

  static const v1::OpSlot* InputOfOutput(const v1::OpDesc& op, const std::string& output) {
    for (const v1::OpSlot& slot : op.inputs()) {
      if (slot.name() + "Out" == output && slot.vars_size() == 1) return &slot;
    }
    return nullptr;
  }

  std::mt19937_64 random_;
  const bool tame_, pictures_;
  std::vector<std::vector<int64_t>> shapes_ = {{-1, 4}, {4, 4}};
  int last_ = -1;  // variable that was picked last for this op
  int fresh_ = 0;
};

constexpr int kTrials = 400;
// Programs for which an op is drawn until the builder accepts it, and draws per program; more programs for an op that
// is hard to guess.
constexpr int kTameTrials = 100, kTries = 200, kMostTameTrials = 1500;

// Returns true for a program that is small enough to run here.
bool IsSmall(const v1::ProgramDesc& program) {
  for (const v1::VarDesc& var : program.blocks(0).vars()) {
    double elements = 1;
    // Fill may replace a dimension, also one of 0, by up to 2.
    for (int64_t d : var.dims()) elements *= static_cast<double>(d < 0 ? 5 : std::max<int64_t>(d, 2));
    if (elements > 1e5) return false;
  }
  return true;
}

class HostileProgramsTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Verifies, differentiates and runs a program whose op the builder has accepted.
  void UseAccepted(const v1::ProgramDesc& program, const v1::OpDesc& op, const OpDef& def, Scrambler* scrambler) {
    ++accepted_;
    const bool verified = VerifyProgram(program).ok();
    const ProgramIndex index(program);
    CostOf(op, def, index.Lookup(0), 32);
    for (const v1::VarDesc& var : program.blocks(0).vars()) {
      v1::ProgramDesc trained = program;
      trained.add_losses()->set_var(var.name());
      AppendBackward(&trained).IgnoreError();
    }
    constexpr int kLanes = 2;
    for (const bool obedient : {true, false}) {
      Scope scope;
      const auto executor = Executor::Create(program, &scope, {.lanes = kLanes});
      if (!executor.ok() || !verified || !IsSmall(program)) return;
      for (int lane = 0; lane < kLanes; ++lane) {
        for (const v1::VarDesc& var : program.blocks(0).vars()) {
          if (Variable* value = (*executor)->Find(lane, var.name()); value != nullptr)
            *value = scrambler->Fill(var, obedient);
        }
      }
      StepContext step;
      step.samples = 1;
      const absl::Status status = (*executor)->Run(step, std::vector<int64_t>{3, 3});
      ++ran_;
      succeeded_ += obedient && status.ok();
    }
  }

  int accepted_ = 0, ran_ = 0, succeeded_ = 0;
};

TEST_P(HostileProgramsTest, AnyProgramIsAnsweredWithAStatus) {
  const std::string type = GetParam();
  const OpDef& def = *OpRegistry::Global().Find(type);
  const bool runs = KernelRegistry::Global().Find(type) != nullptr;
  const bool pictures =
      std::any_of(def.attrs.begin(), def.attrs.end(), [](const AttrDef& attr) { return attr.name == "stride"; });
  const auto found = [&] { return runs ? ran_ > 0 : accepted_ > 0; };
  for (int trial = 0; trial < kTrials + (found() ? kTameTrials : kMostTameTrials); ++trial) {
    const bool tame = trial >= kTrials;
    Scrambler scrambler(StableHash(type) + static_cast<uint64_t>(trial), tame, tame && pictures,
                        tame && def.InputIndex("Length") >= 0, def.InputIndex("W") >= 0);
    v1::ProgramDesc program;
    ProgramBuilder builder(&program);
    for (int i = 0; i < (tame ? 12 : 8); ++i) {
      while (!builder.AddVar(scrambler.Var(absl::StrCat("v", i))).ok()) {
      }
    }
    for (v1::VarDesc& var : tame ? Scrambler::Particular() : std::vector<v1::VarDesc>()) {
      ASSERT_TRUE(builder.AddVar(std::move(var)).ok());
    }
    for (v1::VarDesc& var : tame ? Scrambler::OfSlots(type) : std::vector<v1::VarDesc>()) {
      ASSERT_TRUE(builder.AddVar(std::move(var)).ok());
    }
    for (int tries = tame ? kTries : 1; tries > 0; --tries) {
      const v1::OpDesc op = scrambler.Op(def, program.blocks(0), /*new_outputs=*/scrambler.Often());
      if (getenv("WEIR_TRACE_HOSTILE") != nullptr) {
        v1::ProgramDesc shown = program;
        *shown.mutable_blocks(0)->add_ops() = op;
        fprintf(stderr, "%s", ProgramText(shown).c_str());
      }
      if (builder.AddOp(op).ok()) {
        UseAccepted(program, op, def, &scrambler);
        break;
      }
      if (tame) continue;
      // The verifier sees the op as it is.
      *program.mutable_blocks(0)->add_ops() = op;
      VerifyProgram(program).IgnoreError();
    }
  }
  RecordProperty("accepted", accepted_);
  RecordProperty("ran", ran_);
  RecordProperty("succeeded", succeeded_);
  EXPECT_GT(accepted_, 0);
  if (runs) {
    EXPECT_GT(ran_, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, HostileProgramsTest, ::testing::ValuesIn(OpRegistry::Global().Types()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
