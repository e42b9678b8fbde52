#include "tests/testing/op_test.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using Descs = std::map<std::string, v1::VarDesc, std::less<>>;

std::string Str(std::string_view s) { return std::string(s); }

const v1::OpSlot* FindSlot(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, std::string_view name) {
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name) return &slot;
  }
  return nullptr;
}

v1::OpSlot* SlotOrAdd(google::protobuf::RepeatedPtrField<v1::OpSlot>* slots, std::string_view name) {
  for (v1::OpSlot& slot : *slots) {
    if (slot.name() == name) return &slot;
  }
  v1::OpSlot* slot = slots->Add();
  slot->set_name(Str(name));
  return slot;
}

Variable DeepCopy(const Variable& from) {
  if (const Tensor* tensor = std::get_if<Tensor>(&from)) {
    Tensor copy;
    copy.CopyFrom(*tensor);
    return copy;
  }
  if (const SelectedRows* rows = std::get_if<SelectedRows>(&from)) {
    SelectedRows copy = *rows;
    copy.values = Tensor();
    copy.values.CopyFrom(rows->values);
    return copy;
  }
  return from;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  if (a.initialized() != b.initialized()) return false;
  if (!a.initialized()) return true;
  return a.dtype() == b.dtype() && a.dims() == b.dims() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

bool SameBits(const Variable& a, const Variable& b) {
  if (a.index() != b.index()) return false;
  if (const Tensor* tensor = std::get_if<Tensor>(&a)) return SameBits(*tensor, std::get<Tensor>(b));
  if (const SelectedRows* rows = std::get_if<SelectedRows>(&a)) {
    const SelectedRows& other = std::get<SelectedRows>(b);
    return rows->present == other.present && rows->ids == other.ids && SameBits(rows->values, other.values);
  }
  const IdBatch& x = std::get<IdBatch>(a);
  const IdBatch& y = std::get<IdBatch>(b);
  return x.slots == y.slots && x.values == y.values && x.offsets == y.offsets && x.weights == y.weights;
}

class HarnessInfer : public InferContext {
 public:
  HarnessInfer(const v1::OpDesc& op, const OpDef& def, Descs* descs) : op_(op), def_(def), descs_(descs) {}
  const v1::OpDesc& op() const override { return op_; }
  AttrReader attrs() const override { return AttrReader(op_, def_); }
  int InputCount(std::string_view slot) const override {
    const v1::OpSlot* s = FindSlot(op_.inputs(), slot);
    return s == nullptr ? 0 : s->vars_size();
  }
  int OutputCount(std::string_view slot) const override {
    const v1::OpSlot* s = FindSlot(op_.outputs(), slot);
    return s == nullptr ? 0 : s->vars_size();
  }
  const v1::VarDesc& Input(std::string_view slot, int i) const override {
    const v1::OpSlot* s = FindSlot(op_.inputs(), slot);
    CHECK(s != nullptr && i < s->vars_size()) << op_.type() << " has no input " << slot << "[" << i << "]";
    const auto it = descs_->find(s->vars(i));
    CHECK(it != descs_->end()) << op_.type() << " reads " << s->vars(i) << ", which nothing has written";
    return it->second;
  }
  v1::VarDesc* Output(std::string_view slot, int i) override {
    const v1::OpSlot* s = FindSlot(op_.outputs(), slot);
    CHECK(s != nullptr && i < s->vars_size()) << op_.type() << " has no output " << slot << "[" << i << "]";
    v1::VarDesc& desc = (*descs_)[s->vars(i)];
    desc.set_name(s->vars(i));
    return &desc;
  }

 private:
  const v1::OpDesc& op_;
  const OpDef& def_;
  Descs* descs_;
};

class HarnessGrad : public GradContext {
 public:
  HarnessGrad(const v1::OpDesc& op, const OpDef& def, const Descs& descs, std::set<std::string> wanted,
              std::set<std::string> given)
      : op_(op), def_(def), descs_(descs), wanted_(std::move(wanted)), given_(std::move(given)) {}
  const v1::OpDesc& op() const override { return op_; }
  AttrReader attrs() const override { return AttrReader(op_, def_); }
  std::string OutputGrad(std::string_view slot, int i) const override {
    const v1::OpSlot* s = FindSlot(op_.outputs(), slot);
    if (s == nullptr || i >= s->vars_size() || !given_.contains(GradName(s->vars(i)))) return "";
    return GradName(s->vars(i));
  }
  std::string InputGrad(std::string_view slot, int i) override {
    const v1::OpSlot* s = FindSlot(op_.inputs(), slot);
    if (s == nullptr || i >= s->vars_size() || !wanted_.contains(s->vars(i))) return "";
    return GradName(s->vars(i));
  }
  const v1::VarDesc& Var(std::string_view name) const override {
    const auto it = descs_.find(name);
    CHECK(it != descs_.end()) << "no variable " << name;
    return it->second;
  }

 private:
  const v1::OpDesc& op_;
  const OpDef& def_;
  const Descs& descs_;
  const std::set<std::string> wanted_;
  const std::set<std::string> given_;
};

float GradientSeed(int64_t i) { return 0.5f + static_cast<float>((i * 37 + 11) % 64) / 64.0f; }

Tensor SeedTensor(const Tensor& like) {
  Tensor seed(v1::FLOAT32, like.dims());
  for (int64_t i = 0; i < seed.size(); ++i) seed.data<float>()[i] = GradientSeed(i);
  return seed;
}

// The gradient as a dense matrix of the variable's shape.
Tensor Dense(const Variable& gradient, const Tensor& variable) {
  if (const Tensor* tensor = std::get_if<Tensor>(&gradient)) return *tensor;
  const SelectedRows& rows = std::get<SelectedRows>(gradient);
  Tensor out(v1::FLOAT32, variable.dims());
  std::fill_n(out.data<float>(), out.size(), 0.0f);
  const int64_t width = variable.dim(0) == 0 ? 0 : variable.size() / variable.dim(0);
  for (size_t r = 0; r < rows.ids.size(); ++r) {
    CHECK(rows.ids[r] >= 0 && rows.ids[r] < variable.dim(0)) << "row " << rows.ids[r] << " of " << variable.dim(0);
    for (int64_t c = 0; c < width; ++c) {
      out.data<float>()[rows.ids[r] * width + c] += rows.values.data<float>()[r * width + c];
    }
  }
  return out;
}

}  // namespace

OpTest::OpTest(std::string type, std::vector<v1::OpAttr> attrs) {
  absl::StatusOr<const OpDef*> def = OpRegistry::Global().Get(type);
  CHECK(def.ok()) << def.status();
  def_ = *def;
  op_.set_type(type);
  for (v1::OpAttr& attr : attrs) *op_.add_attrs() = std::move(attr);
  step_.seed = 1;
}

OpTest& OpTest::Add(std::string_view slot, Variable value, v1::VarDesc desc) {
  CHECK_GE(def_->InputIndex(slot), 0) << op_.type() << " has no input slot " << slot;
  v1::OpSlot* s = SlotOrAdd(op_.mutable_inputs(), slot);
  const std::string name = absl::StrCat(Str(slot), "_", s->vars_size());
  s->add_vars(name);
  desc.set_name(name);
  input_descs_[name] = std::move(desc);
  inputs_[name] = std::move(value);
  return *this;
}

OpTest& OpTest::Batched(std::string_view slot, absl::Span<const int64_t> dims, const std::vector<float>& values) {
  return Batched(slot, Tensor::Of<float>(dims, values));
}

OpTest& OpTest::Batched(std::string_view slot, Tensor value) {
  CHECK_GT(value.rank(), 0) << "a batched variable has at least the batch dimension";
  v1::VarDesc desc;
  desc.set_dtype(value.dtype());
  desc.add_dims(-1);
  for (int i = 1; i < value.rank(); ++i) desc.add_dims(value.dim(i));
  if (batch_ < 0) batch_ = value.dim(0);
  Add(slot, std::move(value), std::move(desc));
  batched_[FindSlot(op_.inputs(), slot)->vars().rbegin()[0]] = true;
  return *this;
}

OpTest& OpTest::Fixed(std::string_view slot, absl::Span<const int64_t> dims, const std::vector<float>& values) {
  return Fixed(slot, Tensor::Of<float>(dims, values));
}

OpTest& OpTest::Fixed(std::string_view slot, Tensor value) {
  v1::VarDesc desc;
  desc.set_dtype(value.dtype());
  for (int64_t d : value.dims()) desc.add_dims(d);
  return Add(slot, std::move(value), std::move(desc));
}

OpTest& OpTest::Ids(std::string_view slot, IdBatch value) {
  v1::VarDesc desc;
  desc.set_kind(v1::IDS);
  desc.set_dtype(v1::INT64);
  desc.add_dims(-1);
  desc.add_dims(value.slots);
  if (batch_ < 0) batch_ = value.batch();
  Add(slot, std::move(value), std::move(desc));
  batched_[FindSlot(op_.inputs(), slot)->vars().rbegin()[0]] = true;
  return *this;
}

OpTest& OpTest::Rows(std::string_view slot, SelectedRows value, int64_t width) {
  v1::VarDesc desc;
  desc.set_kind(v1::SELECTED_ROWS);
  desc.add_dims(value.height);
  desc.add_dims(width);
  return Add(slot, std::move(value), std::move(desc));
}

OpTest& OpTest::Absent(std::string_view slot, absl::Span<const int64_t> declared_dims) {
  v1::VarDesc desc;
  desc.mutable_dims()->Assign(declared_dims.begin(), declared_dims.end());
  return Add(slot, Tensor(), std::move(desc));
}

OpTest& OpTest::Outputs(std::string_view slot, int count) {
  CHECK_GE(def_->OutputIndex(slot), 0) << op_.type() << " has no output slot " << slot;
  output_counts_[Str(slot)] = count;
  return *this;
}

OpTest& OpTest::SameVariable(std::string_view output, std::string_view input) {
  CHECK_GE(def_->OutputIndex(output), 0) << op_.type() << " has no output slot " << output;
  CHECK_GE(def_->InputIndex(input), 0) << op_.type() << " has no input slot " << input;
  same_variable_[Str(output)] = Str(input);
  return *this;
}

void OpTest::FillOutputs(v1::OpDesc* op, Descs* descs) const {
  op->clear_outputs();
  for (const SlotDef& slot : def_->outputs) {
    const auto same = same_variable_.find(slot.name);
    if (same != same_variable_.end()) {
      const v1::OpSlot* input = FindSlot(op->inputs(), same->second);
      CHECK(input != nullptr) << "no input " << same->second << " to share with " << slot.name;
      *SlotOrAdd(op->mutable_outputs(), slot.name)->mutable_vars() = input->vars();
      continue;
    }
    const auto given = output_counts_.find(slot.name);
    const int count = given != output_counts_.end() ? given->second : slot.optional ? 0 : 1;
    for (int i = 0; i < count; ++i) {
      const std::string name = absl::StrCat(slot.name, "_", i);
      CHECK(!inputs_.contains(name)) << "slot " << slot.name << " is input and output: use SameVariable";
      SlotOrAdd(op->mutable_outputs(), slot.name)->add_vars(name);
      (*descs)[name].set_name(name);
    }
  }
}

std::vector<std::string> OpTest::Vars(bool outputs, std::string_view slot) const {
  const v1::OpSlot* s = FindSlot(outputs ? op_.outputs() : op_.inputs(), slot);
  if (s == nullptr) return {};
  return {s->vars().begin(), s->vars().end()};
}

absl::Status OpTest::Infer(const v1::OpDesc& op, Descs* descs) const {
  ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get(op.type()));
  for (const auto* slots : {&op.inputs(), &op.outputs()}) {
    for (const v1::OpSlot& slot : *slots) {
      const bool known = slots == &op.inputs() ? def->InputIndex(slot.name()) >= 0 : def->OutputIndex(slot.name()) >= 0;
      if (!known) return absl::InternalError(absl::StrCat(op.type(), " has no slot ", slot.name()));
    }
  }
  for (const SlotDef& slot : def->inputs) {
    const v1::OpSlot* given = FindSlot(op.inputs(), slot.name);
    const int count = given == nullptr ? 0 : given->vars_size();
    if (count == 0 && !slot.optional) {
      return absl::InvalidArgumentError(absl::StrCat(op.type(), ": input ", slot.name, " is missing"));
    }
    if (count > 1 && !slot.variadic) {
      return absl::InvalidArgumentError(
          absl::StrCat(op.type(), ": input ", slot.name, " takes one variable, got ", count));
    }
  }
  if (!def->shape) return absl::InternalError(absl::StrCat(op.type(), " has no shape rule"));
  HarnessInfer infer(op, *def, descs);
  RETURN_IF_ERROR(def->shape(infer));
  if (def->cost) {
    Descs numbers = *descs;
    for (auto& [name, desc] : numbers) {
      for (int i = 0; i < desc.dims_size(); ++i) {
        if (desc.dims(i) < 0) desc.set_dims(i, std::max<int64_t>(batch_, 0));
      }
    }
    HarnessInfer with_numbers(op, *def, &numbers);
    const Cost cost = def->cost(with_numbers);
    if (!(cost.flops >= 0 && cost.bytes >= 0)) {
      return absl::InternalError(absl::StrCat(op.type(), ": cost ", cost.flops, " flops, ", cost.bytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status OpTest::InferShapes() {
  descs_ = input_descs_;
  FillOutputs(&op_, &descs_);
  return Infer(op_, &descs_);
}

namespace {

// Runs a kernel with the variables that `find` gives.
absl::Status RunKernel(const v1::OpDesc& op, const Descs& descs, const StepContext& step, int lane, int64_t batch,
                       const std::function<Variable*(bool output, const std::string& name)>& find) {
  ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get(op.type()));
  const KernelFactory* factory = KernelRegistry::Global().Find(op.type());
  if (factory == nullptr) return absl::NotFoundError(absl::StrCat(op.type(), " has no kernel"));
  const KernelInit init = {.op = op,
                           .def = *def,
                           .attrs = AttrReader(op, *def),
                           .vars = [&descs](std::string_view name) -> const v1::VarDesc* {
                             const auto it = descs.find(name);
                             return it == descs.end() ? nullptr : &it->second;
                           }};
  ASSIGN_OR_RETURN(std::unique_ptr<OpKernel> kernel, (*factory)(init));
  KernelContext ctx;
  const int64_t lane_batch = batch < 0 ? 1 : batch;
  ctx.step = &step;
  ctx.lane = lane;
  ctx.lane_batch = &lane_batch;
  ctx.inputs.resize(1);
  ctx.outputs.resize(1);
  for (const SlotDef& slot : def->inputs) {
    KernelContext::Slot& to = ctx.inputs[0].emplace_back();
    if (const v1::OpSlot* s = FindSlot(op.inputs(), slot.name)) {
      for (const std::string& name : s->vars()) to.vars.push_back(find(/*output=*/false, name));
    }
  }
  for (const SlotDef& slot : def->outputs) {
    KernelContext::Slot& to = ctx.outputs[0].emplace_back();
    if (const v1::OpSlot* s = FindSlot(op.outputs(), slot.name)) {
      for (const std::string& name : s->vars()) to.vars.push_back(find(/*output=*/true, name));
    }
  }
  return kernel->Run(ctx);
}

}  // namespace

absl::Status OpTest::RunOp(const v1::OpDesc& op, const Descs& descs, Values_* values) const {
  return RunKernel(op, descs, step_, lane_, batch_,
                   [values](bool, const std::string& name) { return &(*values)[name]; });
}

absl::Status OpTest::CheckShapes(const v1::OpDesc& op, const Descs& descs, const Values_& values) const {
  for (const v1::OpSlot& slot : op.outputs()) {
    for (const std::string& name : slot.vars()) {
      const v1::VarDesc& desc = descs.find(name)->second;
      const Variable& var = values.find(name)->second;
      const std::string inferred = ShapeString(Shape(desc.dims().begin(), desc.dims().end()));
      if (const Tensor* tensor = std::get_if<Tensor>(&var)) {
        if (!tensor->initialized()) continue;  // absent: nothing to add
        bool same = desc.kind() == v1::DENSE && desc.dims_size() == tensor->rank() && desc.dtype() == tensor->dtype();
        for (int i = 0; same && i < tensor->rank(); ++i) {
          same = tensor->dim(i) == desc.dims(i) ||
                 (desc.dims(i) == -1 && (i > 0 || batch_ < 0 || tensor->dim(i) == batch_));
        }
        if (!same) {
          return absl::InternalError(absl::StrCat(op.type(), ": ", name, " is inferred as ",
                                                  v1::DType_Name(desc.dtype()), " ", inferred, ", the kernel made ",
                                                  v1::DType_Name(tensor->dtype()), " ", ShapeString(tensor->dims())));
        }
      } else if (const SelectedRows* rows = std::get_if<SelectedRows>(&var)) {
        if (!rows->present) continue;
        const bool same = desc.kind() == v1::SELECTED_ROWS && desc.dims_size() == 2 && rows->values.rank() == 2 &&
                          rows->values.dim(0) == static_cast<int64_t>(rows->ids.size()) &&
                          rows->values.dim(1) == desc.dims(1);
        if (!same) {
          return absl::InternalError(absl::StrCat(op.type(), ": ", name, " is inferred as rows of ", inferred,
                                                  ", the kernel made ", rows->ids.size(), " ids and values ",
                                                  ShapeString(rows->values.dims())));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status OpTest::CheckInPlace(const v1::OpDesc& op, const Descs& descs, const Values_& before,
                                  const Values_& after) const {
  ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get(op.type()));
  for (const InPlaceRule& rule : def->in_place) {
    const v1::OpSlot* input = FindSlot(op.inputs(), rule.input);
    const v1::OpSlot* output = FindSlot(op.outputs(), rule.output);
    if (input == nullptr || output == nullptr || input->vars_size() == 0 || output->vars_size() == 0) continue;
    if (input->vars(0) == output->vars(0)) continue;
    Values_ values;
    for (const auto& [name, value] : before) values[name] = DeepCopy(value);
    const absl::Status status =
        RunKernel(op, descs, step_, lane_, batch_, [&](bool is_output, const std::string& name) {
          return &values[is_output && name == output->vars(0) ? input->vars(0) : name];
        });
    RETURN_IF_ERROR(status);
    for (const v1::OpSlot& slot : op.outputs()) {
      for (const std::string& name : slot.vars()) {
        const Variable& in_place = values[name == output->vars(0) ? input->vars(0) : name];
        if (!SameBits(in_place, after.find(name)->second)) {
          return absl::InternalError(
              absl::StrCat(op.type(), ": ", rule.output, " in place of ", rule.input, " gives other values of ", name));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status OpTest::Run() {
  RETURN_IF_ERROR(InferShapes());
  values_.clear();
  for (const auto& [name, value] : inputs_) values_[name] = DeepCopy(value);
  RETURN_IF_ERROR(RunOp(op_, descs_, &values_));
  RETURN_IF_ERROR(CheckShapes(op_, descs_, values_));
  return CheckInPlace(op_, descs_, inputs_, values_);
}

const v1::VarDesc& OpTest::OutputDesc(std::string_view slot, int i) const {
  const std::vector<std::string> vars = Vars(/*outputs=*/true, slot);
  CHECK_LT(i, static_cast<int>(vars.size())) << slot;
  return descs_.find(vars[i])->second;
}

const Variable& OpTest::OutputVar(std::string_view slot, int i) const {
  const std::vector<std::string> vars = Vars(/*outputs=*/true, slot);
  CHECK_LT(i, static_cast<int>(vars.size())) << slot;
  const auto it = values_.find(vars[i]);
  CHECK(it != values_.end()) << "Run first";
  return it->second;
}

const Tensor& OpTest::Output(std::string_view slot, int i) const { return std::get<Tensor>(OutputVar(slot, i)); }

std::vector<float> OpTest::Values(std::string_view slot, int i) const {
  const Tensor& tensor = Output(slot, i);
  return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
}

void OpTest::ExpectOutput(std::string_view slot, absl::Span<const int64_t> dims, const std::vector<float>& values,
                          double tolerance, int i) const {
  const Tensor& tensor = Output(slot, i);
  EXPECT_EQ(ShapeString(tensor.dims()), ShapeString(dims)) << slot;
  std::vector<::testing::Matcher<float>> near;
  for (float v : values) near.push_back(::testing::FloatNear(v, static_cast<float>(tolerance)));
  EXPECT_THAT(Values(slot, i), ::testing::ElementsAreArray(near)) << slot;
}

absl::StatusOr<OpTest::Values_> OpTest::Backward(const std::vector<std::string>& wanted,
                                                 const std::vector<std::pair<std::string, Tensor>>& output_grads,
                                                 const Values_& forward) {
  if (!def_->gradient) return absl::NotFoundError(absl::StrCat(op_.type(), " has no gradient rule"));
  Descs descs = descs_;
  Values_ values;
  for (const auto& [name, value] : forward) values[name] = DeepCopy(value);
  std::set<std::string> given;
  for (const auto& [name, tensor] : output_grads) {
    const std::string grad = GradName(name);
    given.insert(grad);
    descs[grad] = descs.at(name);
    descs[grad].set_name(grad);
    values[grad] = DeepCopy(tensor);
  }
  HarnessGrad context(op_, *def_, descs, {wanted.begin(), wanted.end()}, given);
  ASSIGN_OR_RETURN(std::vector<v1::OpDesc> ops, def_->gradient(context));
  for (const v1::OpDesc& op : ops) {
    RETURN_IF_ERROR(Infer(op, &descs));
    Values_ before;
    for (const auto& [name, value] : values) before[name] = DeepCopy(value);
    RETURN_IF_ERROR(RunOp(op, descs, &values));
    RETURN_IF_ERROR(CheckShapes(op, descs, values));
    RETURN_IF_ERROR(CheckInPlace(op, descs, before, values));
  }
  for (const std::string& name : wanted) {
    const auto desc = descs.find(GradName(name));
    if (desc == descs.end()) continue;
    if (desc->second.kind() == v1::DENSE) {
      const v1::VarDesc& var = descs.at(name);
      if (ShapeString(Shape(var.dims().begin(), var.dims().end())) !=
          ShapeString(Shape(desc->second.dims().begin(), desc->second.dims().end()))) {
        return absl::InternalError(absl::StrCat("the gradient of ", name, " is inferred with another shape: ",
                                                desc->second.ShortDebugString(), " for ", var.ShortDebugString()));
      }
    }
  }
  return values;
}

void OpTest::CheckGradient(const GradientCheck& check) {
  ASSERT_OK(Run());
  std::vector<std::string> output_slots = check.outputs;
  if (output_slots.empty()) output_slots = {def_->outputs[0].name};
  std::vector<std::string> outputs;
  for (const std::string& slot : output_slots) {
    for (const std::string& name : Vars(/*outputs=*/true, slot)) outputs.push_back(name);
  }
  std::vector<std::string> wanted;
  for (const std::string& slot : check.inputs) {
    const std::vector<std::string> vars = Vars(/*outputs=*/false, slot);
    ASSERT_FALSE(vars.empty()) << "no input " << slot;
    wanted.insert(wanted.end(), vars.begin(), vars.end());
  }
  std::vector<std::pair<std::string, Tensor>> seeds;
  for (const std::string& name : outputs) seeds.emplace_back(name, SeedTensor(std::get<Tensor>(values_.at(name))));
  absl::StatusOr<Values_> backward = Backward(wanted, seeds, values_);
  ASSERT_OK(backward.status());

  const auto objective = [&](const Values_& inputs) -> absl::StatusOr<double> {
    Values_ values;
    for (const auto& [name, value] : inputs) values[name] = DeepCopy(value);
    RETURN_IF_ERROR(RunOp(op_, descs_, &values));
    double sum = 0;
    for (const auto& [name, seed] : seeds) {
      const Tensor& out = std::get<Tensor>(values.at(name));
      for (int64_t i = 0; i < out.size(); ++i) sum += static_cast<double>(seed.data<float>()[i]) * out.data<float>()[i];
    }
    return sum;
  };

  // A power of two: x + h is exact.
  const double h = std::exp2(std::round(std::log2(check.eps)));
  for (const std::string& name : wanted) {
    const auto gradient = backward->find(GradName(name));
    ASSERT_TRUE(gradient != backward->end()) << op_.type() << " computes no gradient of " << name;
    const Tensor& input = std::get<Tensor>(inputs_.at(name));
    const Tensor analytic = Dense(gradient->second, input);
    ASSERT_TRUE(analytic.initialized()) << op_.type() << " leaves the gradient of " << name << " empty";
    ASSERT_EQ(analytic.size(), input.size()) << name;
    for (int64_t i = 0; i < input.size(); ++i) {
      Values_ moved;
      for (const auto& [var, value] : inputs_) moved[var] = DeepCopy(value);
      float* element = &std::get<Tensor>(moved[name]).data<float>()[i];
      const float x = *element;
      double at[4];
      const double offsets[4] = {-2 * h, -h, h, 2 * h};
      for (int k = 0; k < 4; ++k) {
        *element = static_cast<float>(x + offsets[k]);
        absl::StatusOr<double> value = objective(moved);
        ASSERT_OK(value.status());
        at[k] = *value;
      }
      const double numeric = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h);
      const double got = analytic.data<float>()[i];
      EXPECT_NEAR(got, numeric, check.tolerance * std::max(1.0, std::abs(numeric)))
          << op_.type() << ": gradient of " << name << "[" << i << "] at " << x;
    }
    if (wanted.size() > 1) {
      absl::StatusOr<Values_> alone = Backward({name}, seeds, values_);
      ASSERT_OK(alone.status());
      EXPECT_TRUE(SameBits(alone->at(GradName(name)), gradient->second))
          << op_.type() << ": the gradient of " << name << " differs when it alone is wanted";
    }
  }
}

absl::StatusOr<Variable> OpTest::Gradient(std::string_view input_slot, int input_index,
                                          const std::vector<std::pair<std::string, Tensor>>& output_grads) {
  const std::vector<std::string> inputs = Vars(/*outputs=*/false, input_slot);
  CHECK_LT(input_index, static_cast<int>(inputs.size())) << input_slot;
  std::vector<std::pair<std::string, Tensor>> seeds;
  for (const auto& [slot, tensor] : output_grads) {
    // "Out" is its first variable; "Out_1" names one.
    const bool is_slot = def_->OutputIndex(slot) >= 0;
    seeds.emplace_back(is_slot ? Vars(/*outputs=*/true, slot).at(0) : slot, tensor);
  }
  ASSIGN_OR_RETURN(Values_ values, Backward({inputs[input_index]}, seeds, values_));
  const auto it = values.find(GradName(inputs[input_index]));
  if (it == values.end()) return absl::NotFoundError(absl::StrCat("no gradient of ", inputs[input_index]));
  return std::move(it->second);
}

void OpTest::CheckBatchZero(std::vector<std::string> outputs) {
  if (outputs.empty()) outputs = {def_->outputs[0].name};
  OpTest empty = *this;
  for (auto& [name, value] : empty.inputs_) {
    if (!batched_.contains(name)) {
      value = DeepCopy(value);
      continue;
    }
    if (const IdBatch* ids = std::get_if<IdBatch>(&value)) {
      value = IdBatch{.slots = ids->slots};
    } else {
      const Tensor& tensor = std::get<Tensor>(value);
      Shape dims(tensor.dims().begin(), tensor.dims().end());
      dims[0] = 0;
      value = Tensor(tensor.dtype(), dims);
    }
  }
  empty.batch_ = 0;
  ASSERT_OK(empty.Run());
  if (!def_->gradient) return;
  std::vector<std::pair<std::string, Tensor>> seeds;
  for (const std::string& slot : outputs) {
    for (const std::string& name : empty.Vars(/*outputs=*/true, slot)) {
      seeds.emplace_back(name, SeedTensor(std::get<Tensor>(empty.values_.at(name))));
    }
  }
  std::vector<std::string> wanted;
  for (const auto& [name, value] : empty.inputs_) {
    if (std::holds_alternative<Tensor>(value) && std::get<Tensor>(value).dtype() == v1::FLOAT32) wanted.push_back(name);
  }
  absl::StatusOr<Values_> backward = empty.Backward(wanted, seeds, empty.values_);
  ASSERT_OK(backward.status());
  for (const std::string& name : wanted) {
    const auto gradient = backward->find(GradName(name));
    if (gradient == backward->end()) continue;  // not differentiable: labels
    if (const Tensor* tensor = std::get_if<Tensor>(&gradient->second)) {
      if (!tensor->initialized()) continue;
      EXPECT_EQ(ShapeString(tensor->dims()), ShapeString(std::get<Tensor>(empty.inputs_.at(name)).dims())) << name;
      EXPECT_THAT(tensor->span<float>(), ::testing::Each(0.0f)) << "the gradient of " << name << " without examples";
    } else if (const SelectedRows* rows = std::get_if<SelectedRows>(&gradient->second)) {
      EXPECT_TRUE(rows->ids.empty()) << name;
    }
  }
}

std::vector<float> PartOfBatch(const std::vector<float>& values, int64_t batch, int64_t first, int64_t rows) {
  const int64_t each = static_cast<int64_t>(values.size()) / batch;
  return {values.begin() + first * each, values.begin() + (first + rows) * each};
}

void ExpectBitsOfExamplesAlone(
    int64_t batch,
    const std::function<void(int64_t first, int64_t rows, std::vector<std::vector<float>>* results)>& run) {
  std::vector<std::vector<float>> all;
  run(0, batch, &all);
  ASSERT_FALSE(all.empty());
  const std::pair<int64_t, int64_t> parts[] = {{0, 1}, {batch - 1, 1}, {3, 2}, {batch / 3, 17}, {7, batch - 20}};
  for (const auto& [first, rows] : parts) {
    std::vector<std::vector<float>> some;
    run(first, rows, &some);
    ASSERT_EQ(some.size(), all.size());
    for (size_t r = 0; r < some.size(); ++r) {
      EXPECT_EQ(some[r], PartOfBatch(all[r], batch, first, rows)) << rows << " from " << first << ", result " << r;
    }
  }
}

}  // namespace weir
