// transpile: prints what a process of a job runs, or the plan.
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/atomic_file.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/graph/program_text.h"
#include "framework/process/command_line.h"
#include "framework/process/standard_output.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "transpiler/explain/explain_plan.h"
#include "transpiler/job/checkpoint_job.h"
#include "transpiler/job/job_dir.h"
#include "transpiler/job/load_job.h"
#include "transpiler/job/trained_job.h"
#include "transpiler/job_questions.h"
#include "transpiler/split/transpile.h"
#include "transpiler/split/write_programs.h"
#include "transpiler/start/start.h"
#include "transpiler/start/start_from_flag.h"

ABSL_FLAG(std::string, job, "", "the job file");
ABSL_FLAG(
    std::string, role, "",
    "whose program: trainer, pserver, or replica (what a trainer updates itself: its dense parameters with dense: "
    "ALL_REDUCE, its copy in geo); not needed for --print=plan and --print=single");
ABSL_FLAG(int, trainer_id, 0, "which trainer; trainers run the same program, and replicas may differ");
ABSL_FLAG(int, server, 0, "which server, from 0");
ABSL_FLAG(std::string, print, "main",
          "main, startup, plan (who owns what), explain (what it will cost: bytes, messages, arithmetic, memory, "
          "balance), agreement "
          "(all that processes must have in common), single (the program before it is split), differences or "
          "checkpoint_job (see --trained_with), start (what the job takes from the checkpoints of its start_from), or "
          "passes");
ABSL_FLAG(
    std::string, trained_with, "",
    "file with the job text of a checkpoint. --print=differences: the settings by which this job makes other "
    "predictions, "
    "a line each with its place, and nothing if it makes the same. --print=checkpoint_job: this job with the model of "
    "that one, by which trainer --checkpoint_job predicts");
ABSL_FLAG(std::string, format, "text",
          "text (one operator per line), textproto or json; with --print=explain text, json or html");
ABSL_FLAG(int64_t, sample, 0,
          "--print=explain: read so many batches of the job's data and predict instead of bounding");
ABSL_FLAG(std::optional<double>, link_gbit, std::nullopt,
          "--print=explain, for exchanges among trainers and with --calibrate: bandwidth of each process in each "
          "direction, 10^9 bits a second; 10 if not given, or shared memory with --one_machine");
ABSL_FLAG(std::optional<double>, link_us, std::nullopt,
          "--print=explain: microseconds until a message arrives; 50 if not given");
ABSL_FLAG(std::string, calibrate, "",
          "--print=explain: predict the time of a step from this file; if it does not exist, measure the job on this "
          "machine for half a minute and write it");
ABSL_FLAG(double, calibrate_seconds, 30, "--calibrate: about how long to measure");
ABSL_FLAG(bool, one_machine, false,
          "--calibrate: all processes share the cores of one machine; else each has a machine like this one");
ABSL_FLAG(int, trainers_per_host, 1,
          "--print=explain: so many trainers share a host, its cores and its link; servers are on other hosts. See "
          "distribute.merge_hosts");
ABSL_FLAG(bool, verify, false,
          "run the unsplit program and all split ones side by side in this process, and compare every bit after each "
          "step; on "
          "the job's data, or on generated batches where there are no files");
ABSL_FLAG(int64_t, steps, 10, "--verify: so many steps");
ABSL_FLAG(std::string, out, "", "write here instead of to the standard output");
ABSL_FLAG(
    std::string, program, "",
    "a program file (.program, .textproto, .json, .pb) of the single machine, in the place of the job's model: forward "
    "only, with backward, or with update ops");
ABSL_FLAG(
    std::string, out_dir, "",
    "write the programs of all processes and the plan into this directory, as --format says, and print their names");
ABSL_FLAG(std::string, dump_dir, "", "write the programs as they are after each pass into this directory, numbered");
ABSL_FLAG(std::string, stop_after, "", "print the programs as they are after this pass; --print=passes lists them");

namespace weir {
namespace {

constexpr char kUsage[] =
    "transpile --job=F --role=trainer|pserver|replica [--trainer_id=N|--server=I] [--print=main|startup] "
    "[--format=text|textproto|json]\n"
    "transpile --job=F --print=plan|agreement|single\n"
    "transpile --job=F --print=differences|checkpoint_job --trained_with=T\n"
    "transpile --job=F --print=start [--start_from=DIR] [--format=text|textproto|json]\n"
    "transpile --job=F --out_dir=D [--program=P]\n"
    "transpile --job=F --stop_after=PASS [--print=main|startup] [--dump_dir=D]\n"
    "transpile --print=passes\n"
    "transpile --job=F --print=explain [--sample=N] [--format=text|json|html] [--link_gbit=G] [--link_us=U] "
    "[--trainers_per_host=N]\n"
    "transpile --job=F --print=explain --calibrate=FILE [--one_machine|--trainers_per_host=N] [--sample=N] "
    "[--link_gbit=G] "
    "[--link_us=U]\n"
    "transpile --job=F --verify [--steps=N]\n"
    "\n"
    "Prints the program that a process of the job runs, or the plan. The same job gives the same bytes. What it prints "
    "can be\n"
    "written to a file (--out=main.program, main.textproto, main.json) and given to trainer and pserver with --program "
    "and\n"
    "--startup_program. --verify ends with code 1 when the split programs differ from the unsplit one, and names step "
    "and variable.";

// Returns a message as textproto or json.
absl::StatusOr<std::string> FormatMessage(const google::protobuf::Message& message, const std::string& format) {
  std::string text;
  if (format == "textproto") {
    google::protobuf::TextFormat::PrintToString(message, &text);
    return text;
  }
  if (format == "json") {
    google::protobuf::util::JsonPrintOptions options;
    options.add_whitespace = true;
    options.preserve_proto_field_names = true;
    const auto printed = google::protobuf::util::MessageToJsonString(message, &text, options);
    if (!printed.ok()) return absl::InternalError(printed.ToString());
    return text;
  }
  return absl::InvalidArgumentError(absl::StrCat("--format must be text, textproto or json, got '", format, "'"));
}

absl::StatusOr<std::string> FormatStart(const Job& job, const std::string& format) {
  if (job.config.start_from_size() == 0) {
    return absl::InvalidArgumentError(
        "--print=start is about start_from, which the job does not have: add it, or give --start_from=DIR");
  }
  ASSIGN_OR_RETURN(const Start start, PlanStart(job));
  return format == "text" ? StartText(start) : FormatMessage(start.lineage, format);
}

absl::StatusOr<std::string> FormatPlan(const Job& job, const v1::ProgramDesc& main, const std::string& format) {
  if (format != "text") return FormatMessage(main.plan(), format);
  std::string text = ExplainPlan(job, main);
  for (const std::string& note : DeviceNotes(job, main)) absl::StrAppend(&text, note, "\n");
  return text;
}

absl::StatusOr<Programs> ProgramsOf(const Transpiled& transpiled) {
  const std::string role = absl::GetFlag(FLAGS_role);
  if (role == "trainer" || role == "replica") {
    const int id = absl::GetFlag(FLAGS_trainer_id);
    if (id < 0 || id >= transpiled.plan().trainers()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--trainer_id must be in [0, ", transpiled.plan().trainers(), "), got ", id));
    }
    return role == "trainer" ? transpiled.trainer() : transpiled.Replica(id);
  }
  if (role == "pserver" || role == "server") return transpiled.Server(absl::GetFlag(FLAGS_server));
  return absl::InvalidArgumentError(role.empty()
                                        ? "--role=trainer, --role=pserver or --role=replica is required"
                                        : absl::StrCat("--role must be trainer, pserver or replica, got '", role, "'"));
}

// `trained`: as BesideJob::trained.
absl::StatusOr<Job> ReadJob(const std::string& file, const std::vector<std::string>& overrides,
                            const std::string& trained = "") {
  ASSIGN_OR_RETURN(const std::string directory, JobDirectory());
  ASSIGN_OR_RETURN(const std::vector<std::string> start_from, StartFromFlag());
  return LoadJob(
      file, overrides,
      {.program = absl::GetFlag(FLAGS_program), .directory = directory, .trained = trained, .start_from = start_from});
}

absl::StatusOr<std::string> Print(const std::vector<std::string>& overrides) {
  const std::string file = absl::GetFlag(FLAGS_job), print = absl::GetFlag(FLAGS_print),
                    format = absl::GetFlag(FLAGS_format);
  if (print == "passes") return absl::StrCat(absl::StrJoin(PassNames(), "\n"), "\n");
  if (file.empty()) return absl::InvalidArgumentError("--job is required");
  if (print != "main" && print != "startup" && print != "plan" && print != "explain" && print != "agreement" &&
      print != "single" && print != "differences" && print != "checkpoint_job" && print != "start") {
    return absl::InvalidArgumentError(
        absl::StrCat("--print must be main, startup, plan, explain, agreement, single, differences, checkpoint_job, "
                     "start or passes, got '",
                     print, "'"));
  }
  const std::string trained_with = absl::GetFlag(FLAGS_trained_with);
  if ((print == "differences" || print == "checkpoint_job") == trained_with.empty()) {
    return absl::InvalidArgumentError(
        "--print=differences or --print=checkpoint_job, and --trained_with=FILE, go together");
  }
  std::string trained;
  if (!trained_with.empty()) {
    ASSIGN_OR_RETURN(trained, ReadWholeFile(trained_with));
  }
  ASSIGN_OR_RETURN(const Job job, ReadJob(file, overrides, print == "checkpoint_job" ? trained : ""));
  PassTrace trace{.dump_dir = absl::GetFlag(FLAGS_dump_dir), .stop_after = absl::GetFlag(FLAGS_stop_after)};
  const bool program = print == "main" || print == "startup";
  for (const auto& [flag, given] :
       {std::pair("--stop_after", !trace.stop_after.empty()), std::pair("--dump_dir", !trace.dump_dir.empty()),
        std::pair("--out_dir", !absl::GetFlag(FLAGS_out_dir).empty())}) {
    if (!given || program) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, " is about programs, not about --print=", print));
  }
  if (absl::GetFlag(FLAGS_sample) > 0 && print != "explain") {
    return absl::InvalidArgumentError("--sample is for --print=explain");
  }
  if (!absl::GetFlag(FLAGS_calibrate).empty() && print != "explain") {
    return absl::InvalidArgumentError("--calibrate is for --print=explain");
  }
  if (absl::GetFlag(FLAGS_one_machine) && print != "explain") {
    return absl::InvalidArgumentError("--one_machine is for --print=explain --calibrate=FILE");
  }
  if (absl::GetFlag(FLAGS_trainers_per_host) != 1 && print != "explain") {
    return absl::InvalidArgumentError("--trainers_per_host is for --print=explain");
  }
  if (!trace.stop_after.empty()) {
    ASSIGN_OR_RETURN(const Programs programs, TranspileUntil(job, &trace));
    return FormatProgram(print == "startup" ? programs.startup : programs.main, format);
  }
  if (print == "explain") {
    return AnswerExplain(job, {.format = format,
                               .sample = absl::GetFlag(FLAGS_sample),
                               .link_gbit = absl::GetFlag(FLAGS_link_gbit),
                               .link_us = absl::GetFlag(FLAGS_link_us),
                               .calibrate = absl::GetFlag(FLAGS_calibrate),
                               .calibrate_seconds = absl::GetFlag(FLAGS_calibrate_seconds),
                               .one_machine = absl::GetFlag(FLAGS_one_machine),
                               .trainers_per_host = absl::GetFlag(FLAGS_trainers_per_host)});
  }
  if (print == "differences") {
    ASSIGN_OR_RETURN(const v1::JobConfig earlier, ReadTrainedJob(trained));
    std::string text;
    for (const SettingDifference& each : ScoreDifferences(earlier, job)) {
      absl::StrAppend(&text, DifferenceText(each, job), "\n");
    }
    return text;
  }
  if (print == "checkpoint_job") {
    std::string text;
    google::protobuf::TextFormat::PrintToString(job.config, &text);
    return text;
  }
  if (print == "start") return FormatStart(job, format);
  if (print == "single") {
    ASSIGN_OR_RETURN(const Programs single, BuildSingleMachine(job));
    return FormatProgram(single.main, format);
  }
  ASSIGN_OR_RETURN(const Transpiled transpiled, Transpile(job, &trace));
  if (!absl::GetFlag(FLAGS_out_dir).empty()) {
    return WriteProcessPrograms(job, transpiled, absl::GetFlag(FLAGS_out_dir), format);
  }
  if (print == "plan") return FormatPlan(job, transpiled.trainer().main, format);
  if (print == "agreement") return PlanText(job, transpiled.plan());
  ASSIGN_OR_RETURN(const Programs programs, ProgramsOf(transpiled));
  return FormatProgram(print == "main" ? programs.main : programs.startup, format);
}

absl::Status Write(const std::string& text) {
  const std::string path = absl::GetFlag(FLAGS_out);
  if (path.empty()) {
    std::cout << text;
    return absl::OkStatus();
  }
  return WriteFileAtomically(path, text);
}

// Unknown: no fault of the user's, exit code 1.
absl::Status Verify(const std::vector<std::string>& overrides) {
  const std::string file = absl::GetFlag(FLAGS_job);
  if (file.empty()) return absl::InvalidArgumentError("--job is required");
  ASSIGN_OR_RETURN(const Job job, ReadJob(file, overrides));
  ASSIGN_OR_RETURN(const Verdict verdict, AnswerVerify(job, absl::GetFlag(FLAGS_steps)));
  if (!verdict.equal) return absl::UnknownError(verdict.text);
  return Write(verdict.text + "\n");
}

absl::Status Run(int argc, char** argv) {
  ASSIGN_OR_RETURN(const CommandLine line, ParseCommandLine(argc, argv));
  if (line.help) {
    std::cout << HelpText(kUsage);
    return absl::OkStatus();
  }
  if (!line.rest.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("'", line.rest[0], "' is no flag; --help lists them"));
  }
  if (absl::GetFlag(FLAGS_verify)) return Verify(line.overrides);
  ASSIGN_OR_RETURN(const std::string text, Print(line.overrides));
  return Write(text);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::GLOG_WARNING;
  google::InitGoogleLogging(argv[0]);
  const absl::Status status = weir::Run(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return weir::EndWithOutput("transpile", weir::ExitCodeOf(status));
}
