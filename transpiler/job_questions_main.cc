#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/base/thread_budget.h"
#include "framework/base/thread_pool.h"
#include "framework/device/device_executor.h"
#include "google/protobuf/text_format.h"
#include "ops/arithmetic.h"
#include "trainer/verify/calibrate.h"
#include "trainer/verify/job_steps.h"
#include "trainer/verify/verify_split.h"
#include "transpiler/explain/explain.h"
#include "transpiler/job/job.h"
#include "transpiler/job_questions.h"
#include "transpiler/loopback.h"

namespace weir {
namespace {

// A file of this size is no calibration.
constexpr uint64_t kMostCalibrationBytes = 1 << 20;

// Shows the explainer up to `sample` steps of the job's data, fewer when it ends before. Returns a note on the data;
// may be empty.
absl::StatusOr<std::string> Sample(const Job& job, int64_t sample, Explainer* explainer) {
  ThreadPool pool("weir-sample", PoolWorkers(0));
  ASSIGN_OR_RETURN(const std::unique_ptr<JobSteps> steps, JobSteps::OfData(job, explainer->trainer().main, &pool));
  std::vector<std::vector<LaneBatch>> batches(static_cast<size_t>(std::max(1, job.config.train().accumulate_steps())));
  for (int64_t step = 0; step < sample; ++step) {
    StepInput input;
    bool ended = true;
    for (std::vector<LaneBatch>& batch : batches) {
      RETURN_IF_ERROR(steps->Next(&batch));
      ended &= std::all_of(batch.begin(), batch.end(), [](const LaneBatch& lane) { return lane.ended; });
      input.push_back(BatchInputOf(batch, steps->columns()));
    }
    if (ended) break;
    explainer->AddStep(input);
  }
  return steps->NoteOnData();
}

// Checks a calibration that somebody may have edited.
absl::Status CheckCalibration(const google::protobuf::Message& message, const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = type.field(i);
    const std::string name(field->name());
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!reflection.HasField(message, field))
        return absl::InvalidArgumentError(absl::StrCat("--calibrate=", path, ": there is no '", name, "'"));
      RETURN_IF_ERROR(CheckCalibration(reflection.GetMessage(message, field), path));
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) {
      const double value = reflection.GetDouble(message, field);
      if (!(value >= 0 && std::isfinite(value))) {
        return absl::InvalidArgumentError(
            absl::StrCat("--calibrate=", path, ": ", name, " must be finite and not negative, got ", value));
      }
    }
  }
  return absl::OkStatus();
}

// Reads the calibration, or makes it.
absl::StatusOr<v1::Calibration> CalibrationOf(const Job& job, const ExplainQuestion& question) {
  const std::string& path = question.calibrate;
  v1::Calibration calibration;
  if (const absl::StatusOr<std::string> text = ReadWholeFile(path, kMostCalibrationBytes); text.ok()) {
    RETURN_IF_ERROR(ParseTextProto(*text, path, &calibration, nullptr));
  } else if (!absl::IsNotFound(text.status())) {
    return text.status();
  } else {
    RETURN_IF_ERROR(CheckCalibrateSeconds(question.calibrate_seconds));
    std::fprintf(stderr, "%s does not exist: measuring for about %.0f s, on a machine that does nothing else\n",
                 path.c_str(), question.calibrate_seconds);
    ASSIGN_OR_RETURN(calibration, Calibrate(job, {.seconds = question.calibrate_seconds,
                                                  .network = {.to_servers = LoopbackTo, .echo = LoopbackEcho}}));
    std::string out;
    google::protobuf::TextFormat::PrintToString(calibration, &out);
    RETURN_IF_ERROR(WriteFileAtomically(
        path, absl::StrCat("# proto-file: proto/calibration.proto\n# proto-message: weir.v1.Calibration\n", out)));
  }
  RETURN_IF_ERROR(CheckCalibration(calibration, path));
  if (calibration.cores() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--calibrate=", path, ": cores must be at least 1, got ", calibration.cores()));
  }
  ASSIGN_OR_RETURN(const std::string program, CalibratedProgram(job));
  if (calibration.program() != program) {
    return absl::InvalidArgumentError(absl::StrCat("--calibrate=", path, " was measured for another model (program ",
                                                   calibration.program(), ", this job has ", program,
                                                   "): give a file that does not exist, and it is measured"));
  }
  return calibration;
}

absl::Status CheckTrainersPerHost(const Job& job, const ExplainQuestion& question) {
  const int trainers_per_host = question.trainers_per_host;
  if (trainers_per_host == 1) return absl::OkStatus();
  if (trainers_per_host < 1) {
    return absl::InvalidArgumentError(absl::StrCat("--trainers_per_host must be at least 1, got ", trainers_per_host));
  }
  if (question.one_machine) {
    return absl::InvalidArgumentError(
        "--trainers_per_host is for trainers on other hosts than the servers, and with --one_machine all processes are "
        "on one: leave out one of the two");
  }
  if (job.config.distribute().servers() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--trainers_per_host is about what trainers exchange with servers, and distribute.servers is 0: leave it out, or "
      "--set distribute.servers=1 or more");
}

}  // namespace

absl::StatusOr<std::string> AnswerExplain(const Job& job, const ExplainQuestion& question) {
  const std::string& format = question.format;
  const int64_t sample = question.sample;
  if (format != "text" && format != "json" && format != "html") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format must be text, json or html with --print=explain, got '", format, "'"));
  }
  RETURN_IF_ERROR(CheckTrainersPerHost(job, question));
  if (sample < 0) return absl::InvalidArgumentError(absl::StrCat("--sample must not be negative, got ", sample));
  ExplainOptions options;
  if (question.link_gbit.has_value()) options.link.gbit = *question.link_gbit;
  if (question.link_us.has_value()) options.link.us = *question.link_us;
  if (!(options.link.gbit > 0 && std::isfinite(options.link.gbit))) {
    return absl::InvalidArgumentError(absl::StrCat("--link_gbit must be positive, got ", options.link.gbit));
  }
  if (!(options.link.us >= 0 && std::isfinite(options.link.us))) {
    return absl::InvalidArgumentError(absl::StrCat("--link_us must not be negative, got ", options.link.us));
  }
  options.machines.trainers_per_host = question.trainers_per_host;
  v1::Calibration calibration;
  if (!question.calibrate.empty()) {
    ASSIGN_OR_RETURN(calibration, CalibrationOf(job, question));
    options.calibration = &calibration;
    options.machines.one_machine = question.one_machine;
    if (!question.one_machine || question.link_gbit.has_value() || question.link_us.has_value()) {
      options.machines.link = options.link;
    }
  } else if (question.one_machine) {
    return absl::InvalidArgumentError("--one_machine is for predictions: --calibrate=FILE");
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Explainer> explainer, Explainer::Create(job, options));
  std::string of_data;
  if (sample > 0) {
    ASSIGN_OR_RETURN(of_data, Sample(job, sample, explainer.get()));
  }
  ASSIGN_OR_RETURN(v1::Explanation explanation, explainer->Finish());
  if (!of_data.empty()) explanation.add_note(of_data);
  for (const std::string& note : DeviceNotes(job, explainer->trainer().main)) explanation.add_note(note);
  if (format == "json") return ExplanationJson(explanation);
  return format == "html" ? ExplanationHtml(explanation) : ExplanationText(explanation);
}

std::vector<std::string> DeviceNotes(const Job& job, const v1::ProgramDesc& main) {
  const v1::Train& train = job.config.train();
  if (train.device() != v1::Train::CUDA) return {};
  const std::vector<std::string> cpu_ops(train.cpu_ops().begin(), train.cpu_ops().end());
  if (const std::vector<std::string> refused = OpsWithoutDeviceKernel(main, 0, cpu_ops); !refused.empty()) {
    return {absl::StrCat("device CUDA: a trainer refuses this program, which has operators without a CUDA kernel: ",
                         absl::StrJoin(refused, ", "), "; train.cpu_ops with their names runs them on the CPU")};
  }
  std::vector<std::string> notes;
  const std::vector<DeviceCopy> copies = DeviceCopies(main, 0, cpu_ops);
  for (size_t begin = 0, end; begin < copies.size(); begin = end) {
    std::vector<std::string> variables;
    for (end = begin; end < copies.size() && copies[end].for_op == copies[begin].for_op &&
                      copies[end].to_host == copies[begin].to_host;
         ++end) {
      variables.push_back(copies[end].variable);
    }
    notes.push_back(absl::StrCat("device CUDA: each step copies ", absl::StrJoin(variables, ", "),
                                 copies[begin].to_host ? " to the host for " : " to the device for ",
                                 copies[begin].for_op));
  }
  return notes;
}

absl::StatusOr<Verdict> AnswerVerify(const Job& job, int64_t steps) {
  RETURN_IF_ERROR(SetArithmetic(job.config.train().arithmetic(), PrecisionOnCpu(job.config.train())));
  ASSIGN_OR_RETURN(const VerifyReport report,
                   VerifySplit(job, {.steps = steps, .threads = PoolWorkers(job.config.train().threads()) + 1}));
  return Verdict{.equal = report.equal, .text = report.text};
}

}  // namespace weir
