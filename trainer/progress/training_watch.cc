#include "trainer/progress/training_watch.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_view.h"
#include "framework/tensor/tensor.h"
#include "glog/logging.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "trainer/session/session.h"
#include "transpiler/job/job.h"
#include "transpiler/metrics/figure.h"

namespace weir {
namespace {

constexpr size_t kMostSettings = 200;  // columns of a table that a person reads

// Returns whether a figure of a progress line has a gauge of its name. A job may name its metrics as it likes, "steps"
// for one, so that all others are kept apart from the other entries.
bool HasOwnGauge(std::string_view figure) {
  constexpr std::string_view kOwn[] = {"loss", "auc", "calibration", "normalized_entropy", "examples_per_s"};
  return std::find(std::begin(kOwn), std::end(kOwn), figure) != std::end(kOwn);
}

// Adds the fields of a message that are set, by their paths: "layer[0].fc.size".
void AddSettings(const google::protobuf::Message& message, const std::string& path,
                 std::map<std::string, EventFile::HParam>* settings) {
  const google::protobuf::Reflection& of = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  of.ListFields(message, &fields);
  using Field = google::protobuf::FieldDescriptor;
  for (const Field* field : fields) {
    const int count = field->is_repeated() ? of.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (settings->size() >= kMostSettings) return;
      const std::string name = absl::StrCat(path, path.empty() ? "" : ".", field->name(),
                                            field->is_repeated() ? absl::StrCat("[", i, "]") : "");
      const auto set = [&](EventFile::HParam value) { settings->emplace(name, std::move(value)); };
      const bool many = field->is_repeated();
      switch (field->cpp_type()) {
        case Field::CPPTYPE_MESSAGE:
          AddSettings(many ? of.GetRepeatedMessage(message, field, i) : of.GetMessage(message, field), name, settings);
          break;
        case Field::CPPTYPE_BOOL:
          set(many ? of.GetRepeatedBool(message, field, i) : of.GetBool(message, field));
          break;
        case Field::CPPTYPE_INT32:
          set(static_cast<double>(many ? of.GetRepeatedInt32(message, field, i) : of.GetInt32(message, field)));
          break;
        case Field::CPPTYPE_INT64:
          set(static_cast<double>(many ? of.GetRepeatedInt64(message, field, i) : of.GetInt64(message, field)));
          break;
        case Field::CPPTYPE_UINT32:
          set(static_cast<double>(many ? of.GetRepeatedUInt32(message, field, i) : of.GetUInt32(message, field)));
          break;
        case Field::CPPTYPE_UINT64:
          set(static_cast<double>(many ? of.GetRepeatedUInt64(message, field, i) : of.GetUInt64(message, field)));
          break;
        case Field::CPPTYPE_DOUBLE:
          set(many ? of.GetRepeatedDouble(message, field, i) : of.GetDouble(message, field));
          break;
        case Field::CPPTYPE_FLOAT:
          set(static_cast<double>(many ? of.GetRepeatedFloat(message, field, i) : of.GetFloat(message, field)));
          break;
        case Field::CPPTYPE_ENUM:
          set(std::string((many ? of.GetRepeatedEnum(message, field, i) : of.GetEnum(message, field))->name()));
          break;
        case Field::CPPTYPE_STRING:
          set(many ? of.GetRepeatedString(message, field, i) : of.GetString(message, field));
          break;
      }
    }
  }
}

// Returns the program as a graph: variables that no operator makes are nodes, too.
std::vector<EventFile::Node> GraphOf(const v1::ProgramDesc& program) {
  std::vector<EventFile::Node> nodes;
  std::map<std::string, std::string> makers;  // node, by variable
  for (const v1::VarDesc& var : program.blocks(0).vars()) {
    makers[var.name()] = absl::StrCat(var.is_parameter() ? "parameters/" : "data/", var.name());
  }
  std::map<std::string, bool> made;
  for (const v1::OpDesc& op : program.blocks(0).ops()) {
    for (const v1::OpSlot& slot : op.outputs()) {
      for (const std::string& var : slot.vars()) made[var] = true;
    }
  }
  for (const v1::VarDesc& var : program.blocks(0).vars()) {
    if (!made[var.name()])
      nodes.push_back({.name = makers[var.name()], .op = var.is_parameter() ? "parameter" : "data"});
  }
  int number = 0;
  for (const v1::OpDesc& op : program.blocks(0).ops()) {
    EventFile::Node node{
        .name = absl::StrCat(absl::AsciiStrToLower(v1::OpRole_Name(op.role())), "/", number++, "_", op.type()),
        .op = op.type()};
    for (const v1::OpSlot& slot : op.inputs()) {
      for (const std::string& var : slot.vars()) {
        if (const auto maker = makers.find(var); maker != makers.end()) node.inputs.push_back(maker->second);
      }
    }
    for (const v1::OpSlot& slot : op.outputs()) {
      node.attributes[slot.name()] = absl::StrJoin(slot.vars(), ", ");
      for (const std::string& var : slot.vars()) makers[var] = node.name;
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace

TrainingWatch::TrainingWatch(const Options& options)
    : o_(options),
      prefix_(absl::StrCat("trainer.", options.trainer_id, ".")),
      steps_(Counters::Process().Get(prefix_ + "steps", "steps")),
      examples_(Counters::Process().Get(prefix_ + "examples", "examples")),
      data_(Counters::Process().Get(prefix_ + "wait.data", "microseconds")),
      border_(Counters::Process().Get(prefix_ + "wait.border", "microseconds")),
      servers_(Counters::Process().Get(prefix_ + "wait.servers", "microseconds")),
      step_time_(Counters::Process().GetHistogram(prefix_ + "step_time", "microseconds")),
      last_point_(options.clock->Now()) {}

absl::StatusOr<std::unique_ptr<TrainingWatch>> TrainingWatch::Create(const Options& options) {
  std::unique_ptr<TrainingWatch> watch(new TrainingWatch(options));
  if (!options.tensorboard.empty()) {
    ASSIGN_OR_RETURN(watch->events_,
                     EventLog::Create(absl::StrCat(options.tensorboard, "/trainer.", options.trainer_id)));
  }
  return watch;
}

void TrainingWatch::Begin(const Job& job, const v1::ProgramDesc& program, int64_t step) {
  if (events_ == nullptr) return;
  for (const v1::VarDesc& var : program.blocks(0).vars()) {
    if (var.is_parameter() && var.kind() == v1::DENSE && var.trainable()) parameters_.push_back(var.name());
  }
  std::map<std::string, bool> seen;
  for (const v1::OpDesc& op : program.blocks(0).ops()) {
    if (op.type() == "prefetch") {
      const NameList& tables = StringsOf(op, "row_tables");
      const NameList& rows = SlotVars(op.outputs(), "Rows");
      for (int i = 0; i < std::min(tables.size(), rows.size()); ++i) rows_.emplace_back(tables[i], rows[i]);
    }
    if (op.role() != v1::BACKWARD) continue;
    for (const v1::ParamGrad& grad : op.param_grads()) {
      if (!std::exchange(seen[grad.grad()], true)) gradients_.push_back(grad.grad());
    }
  }
  EventFile* const file = events_->file();
  if (step > 0) file->Resumed(step);
  file->Graph(GraphOf(program));
  // One row for the job. Later chiefs of an async job have none.
  if (o_.trainer_id != 0) return;
  std::map<std::string, EventFile::HParam> settings;
  AddSettings(job.config, "", &settings);
  file->HParams(settings, {"eval/loss", "eval/auc"});
}

Gauge* TrainingWatch::GaugeOf(const std::string& name) { return Counters::Process().GetGauge(prefix_ + name, ""); }

void TrainingWatch::StepDone(int64_t step, int64_t examples, absl::Duration time, const Session& session) {
  steps_->Add();
  examples_->Add(examples);
  step_time_->Observe(absl::ToInt64Microseconds(time));
  if (events_ != nullptr && o_.histogram_steps > 0 && step % o_.histogram_steps == 0) Histograms(step, session);
}

void TrainingWatch::Histograms(int64_t step, const Session& session) {
  const auto add = [&](const std::string& name, const std::string& variable_name) {
    const Variable* const variable = session.Find(/*lane=*/0, variable_name);
    if (variable == nullptr) return;
    const SelectedRows* const rows = std::get_if<SelectedRows>(variable);
    const Tensor* const tensor = rows != nullptr ? &rows->values : std::get_if<Tensor>(variable);
    if (tensor == nullptr || tensor->dtype() != v1::FLOAT32 || tensor->size() == 0) return;
    events_->file()->Histogram(
        name, step,
        MakeEventHistogram(absl::MakeConstSpan(tensor->data<float>(), static_cast<size_t>(tensor->size()))));
  };
  for (const std::string& name : parameters_) add(absl::StrCat("parameters/", name), name);
  for (const auto& [table, rows] : rows_) add(absl::StrCat("tables/", table), rows);
  for (const std::string& name : gradients_) add(absl::StrCat("gradients/", name), name);
}

void TrainingWatch::Point(const TrainingPoint& point) {
  std::vector<Figure> figures = {{.name = "loss", .value = point.loss},
                                 {.name = "examples_per_s", .value = point.examples_per_s}};
  figures.insert(figures.end(), point.figures.begin(), point.figures.end());
  for (const Figure& figure : figures) {
    if (std::isnan(figure.value)) continue;
    GaugeOf(HasOwnGauge(figure.name) ? figure.name : "figure." + figure.name)->Set(figure.value);
  }
  GaugeOf("fraction")->Set(point.fraction);
  GaugeOf("step")->Set(static_cast<double>(point.step));
  const absl::Time now = o_.clock->Now();
  const double elapsed = absl::ToDoubleMicroseconds(now - last_point_);
  const auto share = [&](const Counter& counter, int64_t* last) {
    const int64_t value = counter.value();
    return elapsed > 0 ? static_cast<double>(value - std::exchange(*last, value)) / elapsed : 0;
  };
  const double data = share(*data_, &last_data_), border = share(*border_, &last_border_),
               servers = share(*servers_, &last_servers_);
  last_point_ = now;
  if (events_ == nullptr) return;
  EventFile* const file = events_->file();
  for (const Figure& figure : figures) {
    if (!std::isnan(figure.value)) file->Scalar(absl::StrCat("train/", figure.name), point.step, figure.value);
  }
  file->Scalar("wait/data_share", point.step, data);
  file->Scalar("wait/servers_share", point.step, servers);
  file->Scalar("wait/border_share", point.step, border);
}

void TrainingWatch::Evaluation(int64_t step, const MetricResult& result) {
  for (const Figure& figure : result.All()) {
    if (std::isnan(figure.value)) continue;
    GaugeOf("eval." + figure.name)->Set(figure.value);
    if (events_ != nullptr) events_->file()->Scalar(absl::StrCat("eval/", figure.name), step, figure.value);
  }
}

void TrainingWatch::Restarts(int64_t restarts, double lost_seconds, int64_t repeated_steps, double goodput) {
  GaugeOf("restarts")->Set(static_cast<double>(restarts));
  GaugeOf("lost_seconds")->Set(lost_seconds);
  GaugeOf("repeated_steps")->Set(static_cast<double>(repeated_steps));
  GaugeOf("goodput")->Set(goodput);
}

void TrainingWatch::End(bool ok) {
  if (events_ != nullptr && o_.trainer_id == 0) events_->file()->HParamsEnd(ok);
}

}  // namespace weir
