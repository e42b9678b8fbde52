#include "tests/framework/testing/toy_ops.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"

namespace weir::testing {

ToyLog& ToyLog::Get() {
  static ToyLog* const log = new ToyLog();
  return *log;
}

void ToyLog::Add(std::string line) {
  MutexLock lock(&mu_);
  lines_.push_back(std::move(line));
}

std::vector<std::string> ToyLog::Take() {
  MutexLock lock(&mu_);
  return std::exchange(lines_, {});
}

namespace {

const std::vector<v1::VarKind> kDenseOrRows = {v1::DENSE, v1::SELECTED_ROWS};

absl::Status SameAsX(InferContext& c) {
  c.SetOutput("Out", c.InputShape("X"), c.Input("X").dtype());
  return absl::OkStatus();
}

absl::Status SameAsXAndY(InferContext& c) {
  if (c.InputShape("X") != c.InputShape("Y")) {
    return c.Error(absl::StrCat("X is ", ShapeString(c.InputShape("X")), " and Y is ", ShapeString(c.InputShape("Y"))));
  }
  return SameAsX(c);
}

absl::StatusOr<std::vector<v1::OpDesc>> CopyToInputs(GradContext& c) {
  std::vector<v1::OpDesc> ops;
  for (const char* slot : {"X", "Y"}) {
    const std::string grad = c.InputGrad(slot);
    if (!grad.empty()) ops.push_back(MakeOp("copy", {{"X", {c.OutputGrad("Out")}}}, {{"Out", {grad}}}));
  }
  return ops;
}

REGISTER_OP(copy)
({.type = "copy", .inputs = {{"X"}}, .outputs = {{"Out"}}, .shape = SameAsX, .gradient = CopyToInputs});

REGISTER_OP(plus)
({.type = "plus",
  .inputs = {{"X"}, {"Y"}},
  .outputs = {{"Out"}},
  .shape = SameAsXAndY,
  .gradient = CopyToInputs,
  .loss_form = LossForm::kWeightedSum});

REGISTER_OP(times)
({.type = "times",
  .inputs = {{"X"}, {"Y"}},
  .outputs = {{"Out"}},
  .shape = SameAsXAndY,
  .gradient = [](GradContext& c) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    std::vector<v1::OpDesc> ops;
    for (const auto& [slot, other] : {std::pair("X", "Y"), std::pair("Y", "X")}) {
      const std::string grad = c.InputGrad(slot);
      if (grad.empty()) continue;
      std::string factor;
      for (const v1::OpSlot& s : c.op().inputs()) {
        if (s.name() == other) factor = s.vars(0);
      }
      ops.push_back(MakeOp("times", {{"X", {c.OutputGrad("Out")}}, {"Y", {factor}}}, {{"Out", {grad}}}));
    }
    return ops;
  },
  .cost =
      [](InferContext& c) { return Cost{.flops = static_cast<double>(ElementCount(c.InputShape("X"))), .bytes = 0}; }});

REGISTER_OP(half)({.type = "half", .inputs = {{"X"}}, .outputs = {{"Out"}}, .shape = SameAsX});

REGISTER_OP(average)
({.type = "average",
  .inputs = {{"X"}},
  .outputs = {{"Out"}},
  .shape =
      [](InferContext& c) {
        c.SetOutput("Out", {});
        return absl::OkStatus();
      },
  .gradient = [](GradContext& c) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    return std::vector<v1::OpDesc>{MakeOp("average_grad",
                                          {{"X", {c.op().inputs(0).vars(0)}}, {"Out@GRAD", {c.OutputGrad("Out")}}},
                                          {{"Out", {c.InputGrad("X")}}})};
  },
  .loss_form = LossForm::kMean});
REGISTER_OP(average_grad)
({.type = "average_grad", .inputs = {{"X"}, {"Out@GRAD"}}, .outputs = {{"Out"}}, .shape = SameAsX});

REGISTER_OP(dot)
({.type = "dot",
  .inputs = {{"X"}, {"W"}},
  .outputs = {{"Out"}},
  .shape =
      [](InferContext& c) {
        if (c.InputShape("X").size() != 2 || c.InputShape("X")[1] != c.InputShape("W")[0]) {
          return c.Error(
              absl::StrCat("X is ", ShapeString(c.InputShape("X")), " and W is ", ShapeString(c.InputShape("W"))));
        }
        c.SetOutput("Out", {c.InputShape("X")[0], 1});
        return absl::OkStatus();
      },
  .gradient = [](GradContext& c) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    std::vector<std::pair<std::string, std::vector<std::string>>> outputs;
    if (const std::string g = c.InputGrad("X"); !g.empty()) outputs.push_back({"X@GRAD", {g}});
    if (const std::string g = c.InputGrad("W"); !g.empty()) outputs.push_back({"W@GRAD", {g}});
    return std::vector<v1::OpDesc>{MakeOp(
        "dot_grad",
        {{"X", {c.op().inputs(0).vars(0)}}, {"W", {c.op().inputs(1).vars(0)}}, {"Out@GRAD", {c.OutputGrad("Out")}}},
        outputs)};
  }});
REGISTER_OP(dot_grad)
({.type = "dot_grad",
  .inputs = {{"X"}, {"W"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true}, {.name = "W@GRAD", .optional = true}}});

REGISTER_OP(gather)
({.type = "gather",
  .inputs = {{"Ids", {v1::IDS}}, {"W"}},
  .outputs = {{"Out"}},
  .shape =
      [](InferContext& c) {
        c.SetOutput("Out", {-1, c.InputShape("W")[1]});
        return absl::OkStatus();
      },
  .gradient = [](GradContext& c) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    return std::vector<v1::OpDesc>{MakeOp("gather_grad",
                                          {{"Ids", {c.op().inputs(0).vars(0)}}, {"Out@GRAD", {c.OutputGrad("Out")}}},
                                          {{"W@GRAD", {c.InputGrad("W")}}})};
  }});
REGISTER_OP(gather_grad)
({.type = "gather_grad",
  .inputs = {{"Ids", {v1::IDS}}, {"Out@GRAD"}},
  .outputs = {{"W@GRAD", {v1::SELECTED_ROWS}}},
  .shape = [](InferContext& c) {
    c.Output("W@GRAD")->set_kind(v1::SELECTED_ROWS);
    return absl::OkStatus();
  }});

REGISTER_OP(sum)
({.type = "sum",
  .inputs = {{.name = "X", .kinds = kDenseOrRows, .variadic = true}},
  .outputs = {{"Out", kDenseOrRows}},
  .shape = [](InferContext& c) {
    for (int i = 1; i < c.InputCount("X"); ++i) {
      if (c.Input("X", i).kind() != c.Input("X", 0).kind()) return c.Error("rows and dense");
    }
    c.SetOutput("Out", c.InputShape("X"));
    c.Output("Out")->set_kind(c.Input("X").kind());
    return absl::OkStatus();
  }});

REGISTER_OP(fill_like_batch)
({.type = "fill_like_batch",
  .inputs = {{"X"}},
  .outputs = {{"Out"}},
  .attrs = {FloatAttr("value", 1), BoolAttr("scalar_times_batch", false)},
  .shape = SameAsX});

REGISTER_OP(fail)
({.type = "fail",
  .inputs = {{"X"}},
  .outputs = {{"Out"}},
  .attrs = {IntAttr("step", -1), IntAttr("lane", -1)},
  .shape = SameAsX});

REGISTER_OP(meet)({.type = "meet", .inputs = {{"X"}}, .outputs = {{"Out"}}, .shape = SameAsX});

REGISTER_OP(pair)
({.type = "pair",
  .inputs = {{"X"}},
  .outputs = {{.name = "Left", .optional = true}, {.name = "Right", .optional = true}},
  .shape =
      [](InferContext& c) {
        for (const char* slot : {"Left", "Right"}) {
          if (c.OutputCount(slot) > 0) c.SetOutput(slot, c.InputShape("X"));
        }
        return absl::OkStatus();
      },
  .apart = "Right"});

REGISTER_OP(stamp)
({.type = "stamp", .inputs = {{"X"}}, .outputs = {{"Out"}}, .shape = [](InferContext& c) {
    c.SetOutput("Out", {1});
    return absl::OkStatus();
  }});

REGISTER_OP(post)
({.type = "post",
  .inputs = {{.name = "X", .variadic = true}},
  .attrs = {Required(StringAttr("note", ""))},
  .scope = OpScope::kGate});

REGISTER_OP(gate_copy)
({.type = "gate_copy", .inputs = {{"X"}}, .outputs = {{"Out"}}, .scope = OpScope::kGate, .shape = SameAsX});

REGISTER_OP(total)
({.type = "total",
  .inputs = {{.name = "X", .variadic = true}},
  .outputs = {{"Out"}},
  .scope = OpScope::kStep,
  .shape = [](InferContext& c) {
    c.SetOutput("Out", {1});
    return absl::OkStatus();
  }});

REGISTER_OP(mark)
({.type = "mark",
  .inputs = {},
  .outputs = {},
  .attrs = {StringAttr("note", ""), BlocksAttr("blocks")},
  .scope = OpScope::kStep});

REGISTER_OP(descend)
({.type = "descend",
  .inputs = {{"Param"}, {"Grad", kDenseOrRows}, {"LearningRate"}, {"Pace"}},
  .outputs = {{"ParamOut"}, {"PaceOut"}},
  .scope = OpScope::kStep,
  .is_optimizer = true,
  .state = {{.slot = "Pace", .like = StateDef::kParameter}}});

// Kernels. Slots by position, as registered above.

class CopyKernel : public OpKernel {
 public:
  explicit CopyKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& c) override {
    c.output(0)->CopyFrom(c.input(0));
    return absl::OkStatus();
  }
};

// The first and the second caller wait for one another, the third and the fourth, ...
absl::Status Meet() {
  static Mutex* const mu = new Mutex();
  static CondVar* const changed = new CondVar();
  static int64_t arrived = 0;
  MutexLock lock(mu);
  const int64_t both = (arrived++ | 1) + 1;
  changed->SignalAll();
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (arrived < both && absl::Now() < deadline) changed->WaitWithTimeout(mu, absl::Seconds(1));
  if (arrived >= both) return absl::OkStatus();
  ++arrived;  // the next two are two again
  return absl::DeadlineExceededError("nobody has come to meet");
}

class MeetKernel : public OpKernel {
 public:
  explicit MeetKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& c) override {
    c.output(0)->CopyFrom(c.input(0));
    return Meet();
  }
};

// Left = X + 1, Right = X + 2. Who is asked for one of them meets who is asked for the other.
class PairKernel : public OpKernel {
 public:
  explicit PairKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& c) override {
    for (int slot = 0; slot < 2; ++slot) {
      if (!c.has_output(slot)) continue;
      Tensor* const out = c.output(slot);
      out->Resize(v1::FLOAT32, c.input(0).dims());
      for (int64_t i = 0; i < out->size(); ++i) {
        out->data<float>()[i] = c.input(0).data<float>()[i] + static_cast<float>(slot + 1);
      }
    }
    return c.has_output(0) && c.has_output(1) ? absl::OkStatus() : Meet();
  }
};

template <typename F>
class BinaryKernel : public OpKernel {
 public:
  explicit BinaryKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& c) override {
    const Tensor& x = c.input(0);
    const Tensor& y = c.input(1);
    Tensor* out = c.output(0);
    out->Resize(v1::FLOAT32, x.dims());
    for (int64_t i = 0; i < x.size(); ++i) out->data<float>()[i] = F()(x.data<float>()[i], y.data<float>()[i]);
    return absl::OkStatus();
  }
};

class FailKernel : public OpKernel {
 public:
  explicit FailKernel(const KernelInit& init) : step_(init.attrs.Int("step")), lane_(init.attrs.Int("lane")) {}
  absl::Status Run(KernelContext& c) override {
    if (c.step->step == step_ && (lane_ < 0 || lane_ == c.lane)) return absl::OutOfRangeError("told to fail");
    c.output(0)->CopyFrom(c.input(0));
    return absl::OkStatus();
  }

 private:
  const int64_t step_, lane_;
};

// Which lane of the job, in which step, with how many examples: 10000 * lane + 100 * step + batch.
class StampKernel : public OpKernel {
 public:
  explicit StampKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& c) override {
    c.output(0)->Resize(v1::FLOAT32, {1});
    c.output(0)->data<float>()[0] = static_cast<float>(10000 * c.lane + 100 * c.step->step + c.lane_batch[0]);
    return absl::OkStatus();
  }
};

class PostKernel : public OpKernel {
 public:
  explicit PostKernel(const KernelInit& init) : note_(init.attrs.String("note")) {}
  absl::Status Run(KernelContext& c) override {
    std::string line = absl::StrCat("post ", note_);
    for (int l = 0; l < c.lanes(); ++l) {
      absl::StrAppend(&line, " ", std::get<Tensor>(c.lane_input(l, 0)).data<float>()[0], "/", c.lane_batch[l]);
    }
    ToyLog::Get().Add(std::move(line));
    return absl::OkStatus();
  }

 private:
  const std::string note_;
};

class TotalKernel : public OpKernel {
 public:
  explicit TotalKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& c) override {
    float sum = 0;
    for (int l = 0; l < c.lanes(); ++l) {
      for (int i = 0; i < c.input_count(0); ++i) {
        const Tensor& x = std::get<Tensor>(c.lane_input(l, 0, i));
        for (float v : x.span<float>()) sum += v;
      }
    }
    c.output(0)->Resize(v1::FLOAT32, {1});
    c.output(0)->data<float>()[0] = sum;
    return absl::OkStatus();
  }
};

class MarkKernel : public OpKernel {
 public:
  explicit MarkKernel(const KernelInit& init) : note_(init.attrs.String("note")) {}
  absl::Status Run(KernelContext& c) override {
    ToyLog::Get().Add(absl::StrCat("mark ", note_, " lanes ", c.lanes()));
    return absl::OkStatus();
  }

 private:
  const std::string note_;
};

using PlusKernel = BinaryKernel<std::plus<float>>;
using TimesKernel = BinaryKernel<std::multiplies<float>>;
REGISTER_KERNEL(copy, MakeKernel<CopyKernel>);
REGISTER_KERNEL(plus, MakeKernel<PlusKernel>);
REGISTER_KERNEL(times, MakeKernel<TimesKernel>);
REGISTER_KERNEL(fail, MakeKernel<FailKernel>);
REGISTER_KERNEL(meet, MakeKernel<MeetKernel>);
REGISTER_KERNEL(pair, MakeKernel<PairKernel>);
REGISTER_KERNEL(stamp, MakeKernel<StampKernel>);
REGISTER_KERNEL(post, MakeKernel<PostKernel>);
REGISTER_KERNEL(total, MakeKernel<TotalKernel>);
REGISTER_KERNEL(mark, MakeKernel<MarkKernel>);

}  // namespace
}  // namespace weir::testing
