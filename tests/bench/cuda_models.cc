#include "tests/bench/cuda_models.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/status_macros.h"
#include "framework/graph/autodiff.h"
#include "framework/graph/builder.h"

namespace weir {
namespace {

constexpr int64_t kFields = 26, kWidth = 16, kDense = 13;

// A first dim of -1 is the batch.
absl::Status AddLasting(ProgramBuilder* builder, CudaModel* model, const std::string& name, Shape dims,
                        bool parameter) {
  v1::VarDesc var;
  var.set_name(name);
  var.set_kind(v1::DENSE);
  var.set_dtype(v1::FLOAT32);
  for (int64_t d : dims) var.add_dims(d);
  var.set_persistable(true);
  var.set_is_parameter(parameter);
  var.set_trainable(parameter);
  var.set_stop_gradient(!parameter);
  if (dims[0] < 0) dims[0] = model->batch;
  model->lasting.push_back({name, dims});
  return builder->AddVar(std::move(var)).status();
}

// Fully connected layers of these sizes, "<name>.0" and so on, with relu between them, and behind the last one when
// asked for. Returns the output of the last.
absl::StatusOr<std::string> AddMlp(ProgramBuilder* builder, CudaModel* model, const std::string& name, std::string x,
                                   int64_t width, const std::vector<int64_t>& sizes, bool relu_behind) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string layer = absl::StrCat(name, ".", i), w = layer + ".w", b = layer + ".b";
    RETURN_IF_ERROR(AddLasting(builder, model, w, {width, sizes[i]}, true));
    RETURN_IF_ERROR(AddLasting(builder, model, b, {sizes[i]}, true));
    const bool relu = i + 1 < sizes.size() || relu_behind;
    RETURN_IF_ERROR(builder
                        ->AddOpOut(MakeOp("fc", {{"X", {x}}, {"W", {w}}, {"Bias", {b}}}, {},
                                          {AttrS("activation", relu ? "relu" : "identity")}),
                                   "Out", layer)
                        .status());
    x = layer;
    width = sizes[i];
  }
  return x;
}

// Fields, dense values and labels.
absl::Status AddData(ProgramBuilder* builder, CudaModel* model) {
  RETURN_IF_ERROR(AddLasting(builder, model, "fields", {-1, kFields, kWidth}, true));
  RETURN_IF_ERROR(AddLasting(builder, model, "dense", {-1, kDense}, false));
  return AddLasting(builder, model, "label", {-1, 1}, false);
}

// Loss, backward and updates. Backward is seeded with 1 / batch: gradients are means.
absl::Status AddTraining(const std::string& logit, CudaModel* model) {
  {
    ProgramBuilder builder(&model->program);
    RETURN_IF_ERROR(
        builder
            .AddOpOut(MakeOp("sigmoid_cross_entropy_with_logits", {{"X", {logit}}, {"Label", {"label"}}}, {}), "Out",
                      "loss")
            .status());
  }
  v1::LossDesc* loss = model->program.add_losses();
  loss->set_name("loss");
  loss->set_var("loss");
  loss->set_weight(1.0 / static_cast<double>(model->batch));
  RETURN_IF_ERROR(AppendBackward(&model->program));
  ProgramBuilder builder(&model->program);
  RETURN_IF_ERROR(AddLasting(&builder, model, "learning_rate", {1}, false));
  const std::vector<std::pair<std::string, Shape>> lasting = model->lasting;
  for (const auto& [name, dims] : lasting) {
    // Rows of embeddings are the servers'.
    if (!name.ends_with(".w") && !name.ends_with(".b")) continue;
    for (const char* state : {".m", ".v"}) RETURN_IF_ERROR(AddLasting(&builder, model, name + state, dims, false));
    RETURN_IF_ERROR(AddLasting(&builder, model, name + ".t", {1}, false));
    v1::OpDesc update = MakeOp("adam",
                               {{"Param", {name}},
                                {"Grad", {GradName(name)}},
                                {"LearningRate", {"learning_rate"}},
                                {"Moment1", {name + ".m"}},
                                {"Moment2", {name + ".v"}},
                                {"Step", {name + ".t"}}},
                               {{"ParamOut", {name}},
                                {"Moment1Out", {name + ".m"}},
                                {"Moment2Out", {name + ".v"}},
                                {"StepOut", {name + ".t"}}});
    update.set_role(v1::OPTIMIZE);
    RETURN_IF_ERROR(builder.AddOp(std::move(update)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CudaModel> DeepFm(int64_t batch) {
  CudaModel model = {.name = "deepfm", .batch = batch};
  {
    ProgramBuilder builder(&model.program);
    const auto out = [&](v1::OpDesc op, const std::string& name) {
      return builder.AddOpOut(std::move(op), "Out", name).status();
    };
    RETURN_IF_ERROR(AddData(&builder, &model));
    RETURN_IF_ERROR(AddLasting(&builder, &model, "wide", {-1, 1}, true));
    RETURN_IF_ERROR(
        builder.AddOp(MakeOp("fm_interaction", {{"X", {"fields"}}}, {{"Out", {"fm"}}, {"Sum", {"fm.sum"}}})));
    RETURN_IF_ERROR(
        out(MakeOp("reshape", {{"X", {"fields"}}}, {}, {AttrInts("shape", {-1, kFields * kWidth})}), "flat"));
    RETURN_IF_ERROR(out(MakeOp("concat", {{"X", {"flat", "dense"}}}, {}, {AttrI("axis", 1)}), "input"));
    ASSIGN_OR_RETURN(const std::string deep,
                     AddMlp(&builder, &model, "deep", "input", kFields * kWidth + kDense, {400, 400, 400, 1}, false));
    RETURN_IF_ERROR(out(MakeOp("elementwise_add", {{"X", {"wide"}}, {"Y", {"fm"}}}, {}), "first"));
    RETURN_IF_ERROR(out(MakeOp("elementwise_add", {{"X", {"first"}}, {"Y", {deep}}}, {}), "logit"));
  }
  RETURN_IF_ERROR(AddTraining("logit", &model));
  return model;
}

absl::StatusOr<CudaModel> Dlrm(int64_t batch) {
  CudaModel model = {.name = "dlrm", .batch = batch};
  std::string logit;
  {
    ProgramBuilder builder(&model.program);
    const auto out = [&](v1::OpDesc op, const std::string& name) {
      return builder.AddOpOut(std::move(op), "Out", name).status();
    };
    RETURN_IF_ERROR(AddData(&builder, &model));
    ASSIGN_OR_RETURN(const std::string bottom,
                     AddMlp(&builder, &model, "bottom", "dense", kDense, {512, 256, 64, kWidth}, true));
    RETURN_IF_ERROR(out(MakeOp("dot_interaction", {{"X", {bottom, "fields"}}}, {}), "pairs"));
    RETURN_IF_ERROR(out(MakeOp("concat", {{"X", {bottom, "pairs"}}}, {}, {AttrI("axis", 1)}), "input"));
    ASSIGN_OR_RETURN(
        logit, AddMlp(&builder, &model, "top", "input", kWidth + (kFields + 1) * kFields / 2, {512, 256, 1}, false));
  }
  RETURN_IF_ERROR(AddTraining(logit, &model));
  return model;
}

void Fill(const CudaModel& model, Scope* scope) {
  for (size_t v = 0; v < model.lasting.size(); ++v) {
    const auto& [name, dims] = model.lasting[v];
    Tensor t(v1::FLOAT32, dims);
    const bool state = name.ends_with(".m") || name.ends_with(".v") || name.ends_with(".t");
    for (int64_t i = 0; i < t.size(); ++i) {
      const float u = UniformFloat(Philox(v, static_cast<uint64_t>(i), 0).v[0]);
      t.data<float>()[i] = state                     ? 0
                           : name == "label"         ? (u < 0.25f ? 1.0f : 0.0f)
                           : name == "learning_rate" ? 1e-3f
                                                     : 0.1f * (u - 0.5f);
    }
    *scope->FindOrCreate(name) = std::move(t);
  }
}

}  // namespace weir
