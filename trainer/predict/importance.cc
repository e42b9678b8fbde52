#include "trainer/predict/importance.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/graph/loss_facts.h"
#include "framework/graph/op_view.h"
#include "framework/graph/reported_loss.h"
#include "framework/watch/message_json.h"
#include "glog/logging.h"
#include "proto/evaluation.pb.h"
#include "trainer/metrics/job_metrics.h"
#include "trainer/predict/drawn_values.h"
#include "trainer/predict/parts.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

// Returns the columns that some prediction is computed from.
std::vector<size_t> ReadColumns(const v1::ProgramDesc& main, const std::vector<v1::LossDesc>& losses,
                                const std::vector<Column>& columns) {
  std::set<std::string> needed;
  for (const v1::LossDesc& loss : losses) needed.insert(loss.prediction());
  const v1::ProgramDesc program = EvaluationProgram(main);
  const auto& ops = program.blocks(0).ops();
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    if (std::none_of(needed.begin(), needed.end(), [&](const std::string& name) { return Writes(*op, name); }))
      continue;
    for (const v1::OpSlot& slot : op->inputs()) needed.insert(slot.vars().begin(), slot.vars().end());
  }
  std::vector<size_t> read;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (needed.contains(columns[c].name)) read.push_back(c);
  }
  return read;
}

// Examples of a batch where batches change no figure: smaller ones take up to twice the time.
constexpr int64_t kBatch = 4096;

// Returns whether the size of batches may change a bit of the figures: a loss that reads other examples of its batch,
// or one that is a mean over them.
bool DependsOnBatch(const v1::ProgramDesc& main) {
  const std::string reported = ReportedLoss(main, main.losses(0));
  for (const v1::VarDesc& var : main.blocks(0).vars()) {
    if (var.name() == reported && var.dims_size() == 0) return true;
  }
  return std::any_of(main.blocks(0).ops().begin(), main.blocks(0).ops().end(), [](const v1::OpDesc& op) {
    const LossFacts* const facts = LossFactsOf(op.type());
    return facts != nullptr && facts->across_examples;
  });
}

// One of the models that are judged beside each other: the parts altered, or none.
struct Variant {
  const Part* part = nullptr;
  int repeat = 0;
};

// State of a run.
class Run {
 public:
  explicit Run(const ImportanceOptions& options) : o_(options), s_(options.scoring) {}

  absl::StatusOr<v1::Importance> Work();

 private:
  bool shuffles() const { return o_.alteration == v1::Importance::SHUFFLE; }
  absl::Status Prepare();
  // Evaluates variants in one pass, and appends the results of all trainers to results_.
  absl::Status Evaluate(absl::Span<const Variant> variants, ExampleDraw* draw);
  std::function<void(const LaneBatch&, std::vector<Variable>*)> Alter(const Variant& variant, ExampleDraw* draw) const;
  v1::Importance Report(const TrainedModel& model) const;

  const ImportanceOptions& o_;
  const Scoring& s_;
  TrainedModel model_;
  ScoredExamples examples_;
  std::vector<Column> columns_;
  std::vector<size_t> read_;
  std::vector<Part> parts_;
  std::shared_ptr<const MetricPlan> plan_;
  ScoringSession scoring_;
  std::optional<DrawnValues> drawn_;
  std::vector<MetricResult> results_;  // by variant, at the chief
};

absl::Status Run::Prepare() {
  if (o_.repeats < 1)
    return absl::InvalidArgumentError(absl::StrCat("--repeats is ", o_.repeats, ", must be 1 or more"));
  if (!shuffles() && o_.repeats > 1) {
    return absl::InvalidArgumentError("--repeats goes with --alter=shuffle: each repeat of --alter=blank is the same");
  }
  ASSIGN_OR_RETURN(model_, LoadModel(s_));
  ASSIGN_OR_RETURN(examples_, OpenExamples(s_, model_));
  if (!DependsOnBatch(s_.programs->main)) {
    v1::Data& data = examples_.spec.config;
    data.set_batch_size(std::max<int64_t>(data.batch_size(), kBatch));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LaneReader> reader, examples_.Read(s_, /*labels_may_be_missing=*/false));
  columns_ = reader->columns();
  const v1::ProgramDesc& main = s_.programs->main;
  ASSIGN_OR_RETURN(plan_,
                   MetricPlan::Create(s_.job->config, main, columns_,
                                      examples_.statistics.has_value() ? &examples_.statistics->learned() : nullptr));
  std::vector<v1::LossDesc> losses = plan_->losses();
  losses.push_back(main.losses(0));
  read_ = ReadColumns(main, losses, columns_);
  ASSIGN_OR_RETURN(parts_, MakeParts(s_.job->config.data(), columns_, read_, o_.parts, o_.together));
  ASSIGN_OR_RETURN(
      scoring_,
      StartSession(s_, model_,
                   {.columns = columns_, .judged = plan_->JudgedVariables(), .items = plan_->ItemVariables()}));
  return absl::OkStatus();
}

std::function<void(const LaneBatch&, std::vector<Variable>*)> Run::Alter(const Variant& variant,
                                                                         ExampleDraw* draw) const {
  if (variant.part == nullptr) {
    if (draw == nullptr) return nullptr;
    return [draw](const LaneBatch& batch, std::vector<Variable>*) { draw->Add(batch); };
  }
  return [this, variant](const LaneBatch& batch, std::vector<Variable>* vars) {
    for (const InputPlace& place : variant.part->places) {
      if (shuffles()) {
        drawn_->Replace(place, variant.repeat, batch, vars);
      } else {
        Blank(place, examples_.spec.config.ids().empty() == v1::IdTransform::MISSING_ID, vars);
      }
    }
  };
}

absl::Status Run::Evaluate(absl::Span<const Variant> variants, ExampleDraw* draw) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LaneReader> reader, examples_.Read(s_, /*labels_may_be_missing=*/false));
  std::vector<JobMetrics> metrics(variants.size(), JobMetrics(plan_));
  std::vector<Session::Alteration> alterations;
  for (size_t v = 0; v < variants.size(); ++v) alterations.push_back({Alter(variants[v], draw), &metrics[v]});
  RETURN_IF_ERROR(scoring_.session->EvaluateEach(
      model_.step, reader.get(), [&] { return s_.CheckStop(); }, alterations));
  if (reader->skipped_lines() > 0 && draw != nullptr) {
    LOG(WARNING) << reader->skipped_lines() << " lines did not parse (data.bad_line: SKIP), and are left out";
  }
  for (JobMetrics& each : metrics) {
    ASSIGN_OR_RETURN(const std::string mine, each.SerializedPart());
    ASSIGN_OR_RETURN(const std::vector<std::string> all, s_.OfAll(absl::StrCat("importance.", results_.size()), mine));
    JobMetrics merged(plan_);
    for (size_t t = 0; t < all.size(); ++t) {
      v1::EvaluationPart part;
      if (!part.ParseFromString(all[t])) {
        return absl::DataLossError(absl::StrCat("the evaluation of trainer ", t, " cannot be read"));
      }
      RETURN_IF_ERROR(merged.Merge(part));
    }
    results_.push_back(merged.Result());
    // Frees what has been added up.
    each = JobMetrics(plan_);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Importance> Run::Work() {
  RETURN_IF_ERROR(Prepare());
  std::vector<Variant> variants = {{}};
  for (const Part& part : parts_) {
    for (int repeat = 0; repeat < o_.repeats; ++repeat) variants.push_back({&part, repeat});
  }
  const absl::Span<const Variant> all = variants;
  size_t done = 0;
  // What metrics of groups take, and whose values are drawn, is known after a pass without alterations.
  if (shuffles() || plan_->BytesOf(1) > plan_->BytesOf(0)) {
    ExampleDraw draw(s_.job->config.train().seed(), columns_, read_);
    RETURN_IF_ERROR(Evaluate(all.subspan(0, 1), &draw));
    done = 1;
    if (shuffles()) {
      ASSIGN_OR_RETURN(const std::vector<std::string> drawn, s_.OfAll("drawn", draw.Serialize()));
      ASSIGN_OR_RETURN(drawn_, DrawnValues::Merge(s_.job->config.train().seed(), columns_, read_, drawn));
    }
  }
  const int64_t examples = done == 0 ? 0 : results_[0].samples;
  const auto at_once = static_cast<size_t>(std::max<int64_t>(1, o_.memory / plan_->BytesOf(examples)));
  if (s_.IsChief()) {
    LOG(INFO) << parts_.size() << " parts, " << all.size() - 1 << " altered models, " << std::min(at_once, all.size())
              << " at a time";
  }
  for (; done < all.size(); done += at_once) RETURN_IF_ERROR(Evaluate(all.subspan(done, at_once), nullptr));
  v1::Importance found = Report(model_);
  if (s_.IsChief() && !o_.output.empty()) {
    ASSIGN_OR_RETURN(const std::string json, MessageAsJson(found));
    RETURN_IF_ERROR(WriteFileAtomically(o_.output, absl::StrCat(json, "\n")));
  }
  // Every trainer waits until the file is written, as with predictions.
  RETURN_IF_ERROR(s_.OfAll("written", "-", /*until_stop=*/false).status());
  return found;
}

const v1::Importance::Lost* FindLost(const v1::Importance::Part& part, std::string_view figure) {
  for (const v1::Importance::Lost& lost : part.lost()) {
    if (lost.figure() == figure) return &lost;
  }
  return nullptr;
}

// By how much a figure is worse.
double LostOf(const Figure& before, double after) {
  return before.lower_is_better ? after - before.value : before.value - after;
}

v1::Importance Run::Report(const TrainedModel& model) const {
  v1::Importance found;
  const MetricResult& base = results_[0];
  found.set_job(s_.job->config.name());
  found.set_checkpoint(model.path);
  found.set_step(model.step);
  if (!s_.input.empty()) found.set_input(s_.input);
  found.set_examples(base.samples);
  found.set_alteration(o_.alteration);
  found.set_repeats(o_.repeats);
  if (drawn_.has_value()) {
    found.set_seed(s_.job->config.train().seed());
    found.set_drawn_from(drawn_->examples());
  }
  std::vector<Figure> figures = base.All();
  std::erase_if(figures, [](const Figure& figure) { return figure.is_count || !std::isfinite(figure.value); });
  for (const Figure& figure : figures) {
    v1::Importance::Figure& shown = *found.add_figure();
    shown.set_name(figure.name);
    shown.set_value(figure.value);
  }
  const auto repeats = static_cast<size_t>(o_.repeats);
  for (size_t p = 0; p < parts_.size(); ++p) {
    v1::Importance::Part& part = *found.add_part();
    part.set_name(parts_[p].name);
    for (const Figure& figure : figures) {
      std::vector<double> lost;
      for (size_t r = 0; r < repeats; ++r) {
        for (const Figure& after : results_[1 + p * repeats + r].All()) {
          if (after.name == figure.name && std::isfinite(after.value)) lost.push_back(LostOf(figure, after.value));
        }
      }
      // A figure of a slice may be undefined with other values.
      if (lost.size() < repeats) continue;
      const auto n = static_cast<double>(lost.size());
      double sum = 0, squares = 0;
      for (const double x : lost) sum += x;
      const double mean = sum / n;
      for (const double x : lost) squares += (x - mean) * (x - mean);
      v1::Importance::Lost& entry = *part.add_lost();
      entry.set_figure(figure.name);
      entry.set_mean(mean);
      if (lost.size() > 1) entry.set_error(std::sqrt(squares / (n - 1) / n));
    }
  }
  const auto lost_of = [](const v1::Importance::Part& part) {
    const v1::Importance::Lost* const lost = FindLost(part, "loss");
    return lost == nullptr ? 0.0 : lost->mean();
  };
  std::stable_sort(found.mutable_part()->begin(), found.mutable_part()->end(),
                   [&](const auto& x, const auto& y) { return lost_of(x) > lost_of(y); });
  return found;
}

}  // namespace

absl::StatusOr<v1::Importance> RunImportance(const ImportanceOptions& options) {
  absl::StatusOr<v1::Importance> found = Run(options).Work();
  Member& member = options.scoring.client->member();
  if (!absl::IsCancelled(found.status()) || !member.StopRequested() || !member.JobStatus().ok()) return found;
  return absl::CancelledError(absl::StrCat("the importance was asked to stop and is not complete (",
                                           found.status().message(), "): nothing was written; start it again"));
}

std::string ImportanceText(const v1::Importance& importance) {
  std::string text = absl::StrFormat(
      "importance of %d parts, %s, of %d examples, with step %d of %s\n", importance.part_size(),
      importance.alteration() == v1::Importance::BLANK
          ? "each without a value"
          : absl::StrCat("each shuffled ", importance.repeats(), importance.repeats() == 1 ? " time" : " times"),
      importance.examples(), importance.step(), importance.job());
  // The loss, and what ranks models of its kind.
  std::vector<std::string> shown;
  text += "unaltered:";
  for (const v1::Importance::Figure& figure : importance.figure()) {
    if (shown.size() == 2) break;
    shown.push_back(figure.name());
    absl::StrAppendFormat(&text, " %s=%.6f", figure.name(), figure.value());
  }
  size_t width = 4;
  for (const auto& part : importance.part()) width = std::max(width, part.name().size());
  absl::StrAppendFormat(&text, "\n%-*s", static_cast<int>(width), "part");
  const bool errors = importance.repeats() > 1;
  for (const std::string& name : shown) {
    absl::StrAppendFormat(&text, "  %12s", absl::StrCat(name, " lost"));
    if (errors) absl::StrAppendFormat(&text, "  %8s", "+-");
  }
  text += "\n";
  for (const auto& part : importance.part()) {
    absl::StrAppendFormat(&text, "%-*s", static_cast<int>(width), part.name());
    for (const std::string& name : shown) {
      const v1::Importance::Lost* const lost = FindLost(part, name);
      if (lost == nullptr) {
        absl::StrAppendFormat(&text, "  %12s", "-");
        if (errors) absl::StrAppendFormat(&text, "  %8s", "-");
        continue;
      }
      absl::StrAppendFormat(&text, "  %+12.6f", lost->mean());
      if (errors) absl::StrAppendFormat(&text, "  %8.6f", lost->error());
    }
    text += "\n";
  }
  return text;
}

}  // namespace weir
