// The network of examples/fashion_mnist/cnn.textproto on 28 x 28 pictures, batch 256 in 8 lanes, Adam, one process with
// an embedded server. Milliseconds of a training step, the median of the timed ones:
//
//   cnn_bench
//   cnn_bench --peer="python3 tests/bench/cnn_torch.py"   by turns with PyTorch, and the ratio
//   cnn_bench --profile=FILE                              also writes a trace of steps 20 to 39 and prints its table
//
// Pictures are made before the timer. Checked first: without dropout, the losses of the first steps are those of
// another run of the same job, bit by bit; and with a peer, which begins with the same values and pictures and
// normalises by lanes as well, they are its losses within 1e-3. A call whose losses differ has no figures.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/strings/substitute.h"
#include "absl/time/clock.h"
#include "framework/base/clock.h"
#include "framework/base/exit_code.h"
#include "framework/base/philox.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/formats/derived.h"
#include "framework/formats/line_parser.h"
#include "framework/process/command_line.h"
#include "framework/profile/profile_run.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "ops/arithmetic.h"
#include "pserver/client/client.h"
#include "pserver/inside/in_process.h"
#include "trainer/data/data_spec.h"
#include "trainer/session/session.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/split/transpile.h"

ABSL_FLAG(std::string, peer, "",
          "command of the same job elsewhere (tests/bench/cnn_torch.py); runs in the directory of the call");
ABSL_FLAG(int, turns, 3, "peer: runs of each");
ABSL_FLAG(int, steps, 40, "timed steps");
ABSL_FLAG(int, warmup, 10, "steps before the timer");
ABSL_FLAG(int, threads, 0, "threads of the machine to use; 0 = all");

namespace weir {
namespace {

constexpr int64_t kBatch = 256, kPixels = 784, kClasses = 10;
constexpr int kChecked = 5;
// Five steps of Adam: sums in another order, and where a gradient is nearly nothing its sign decides.
constexpr double kTolerance = 1e-3;

constexpr char kJob[] = R"(
name: "cnn_bench"
data {
  train { files: "none" labels: "none" }
  idx { values: 784 }
  batch_size: 256
}
model {
  layer { name: "picture" reshape { input: "image" dims: [1, 28, 28] } }
  layer { name: "conv1" conv2d { input: "picture" filters: 32 kernel: 3 padding: 1 bias: false } }
  layer { name: "pool1" pool2d { input: "conv1" kernel: 2 } }
  layer { name: "norm1" batch_norm { input: "pool1" activation: RELU } }
  layer { name: "conv2" conv2d { input: "norm1" filters: 64 kernel: 3 padding: 1 bias: false } }
  layer { name: "pool2" pool2d { input: "conv2" kernel: 2 } }
  layer { name: "norm2" batch_norm { input: "pool2" activation: RELU } }
  layer { name: "hidden" mlp { input: "norm2" sizes: [128] activation: RELU dropout: $0 } }
  layer { name: "logits" fc { input: "hidden" size: 10 } }
  loss { softmax_cross_entropy { logits: "logits" label: "label" } }
}
optimizer { adam { learning_rate: 0.002 } }
distribute { sync: true servers: 1 trainers: 1 }
train { seed: 1 lanes: 8 }
)";

// Grey noise with a bright line, whose place is the class: picture n alone decides what it is.
int ClassOf(int64_t n) { return static_cast<int>(Philox(1, static_cast<uint64_t>(n), 0).v[0] % kClasses); }
void Draw(int64_t n, float* pixels) {
  const int line = 2 + ClassOf(n);
  for (int64_t i = 0; i < kPixels; ++i) {
    const float noise = UniformFloat(Philox(2, static_cast<uint64_t>(n), static_cast<uint64_t>(i)).v[0]);
    pixels[i] = i / 28 / 2 == line ? 1 - 0.4f * noise : 0.4f * noise;
  }
}

// One lane's part of one step: pictures follow one another through lanes and steps.
LaneBatch MakeBatch(const std::vector<Column>& columns, int64_t step, int lane, int64_t examples) {
  Tensor image(v1::FLOAT32, {examples, kPixels}), label(v1::FLOAT32, {examples, 1});
  for (int64_t i = 0; i < examples; ++i) {
    const int64_t n = step * kBatch + lane * examples + i;
    Draw(n, image.data<float>() + i * kPixels);
    label.data<float>()[i] = static_cast<float>(ClassOf(n));
  }
  LaneBatch batch{.examples = examples};
  for (const Column& column : columns) {
    CHECK(column.name == "image" || column.name == "label") << column.name;
    batch.vars.push_back(column.name == "image" ? image : label);
  }
  return batch;
}

struct RunResult {
  double step_ms = 0;
  std::vector<double> losses;  // of the first kChecked steps
};

int Threads() {
  const int given = absl::GetFlag(FLAGS_threads);
  return given > 0 ? given : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void WriteFloats(const std::string& file, const float* values, int64_t n) {
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(values), static_cast<std::streamsize>(n) * 4);
}

// `started` sees the session when it has the parameters of step 0.
absl::StatusOr<RunResult> Run(double dropout, int64_t warmup, int64_t steps,
                              const std::function<absl::Status(const Session&, const v1::ProgramDesc&)>& started = {}) {
  ASSIGN_OR_RETURN(const Job job, ParseJob(absl::Substitute(kJob, dropout), "cnn_bench.textproto", {}));
  ThreadPool pool("weir-compute", Threads() - 1);
  ASSIGN_OR_RETURN(const Programs programs, TrainerPrograms(job, "", ""));
  ASSIGN_OR_RETURN(const Programs server, ServerPrograms(job, 0, "", ""));
  const std::string plan_text = PlanText(job, programs.main.plan());
  std::vector<ServerOptions> servers(1);
  servers[0] = {.main = server.main,
                .startup = server.startup,
                .job_name = job.config.name(),
                .plan_text = plan_text,
                .deadlines = job.config.deadlines(),
                .process = "embedded",
                .arithmetic = ResolvedArithmetic(),
                .clock = Clock::Real(),
                .pool = &pool};
  ASSIGN_OR_RETURN(std::unique_ptr<InProcessServers> transport, InProcessServers::Create(std::move(servers), true));
  ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Create({.plan = programs.main.plan(),
                                                                   .trainer_id = 0,
                                                                   .job_name = job.config.name(),
                                                                   .plan_text = plan_text,
                                                                   .deadlines = job.config.deadlines(),
                                                                   .process = absl::StrCat("localhost:", getpid()),
                                                                   .arithmetic = ResolvedArithmetic(),
                                                                   .transport = transport.get(),
                                                                   .clock = Clock::Real(),
                                                                   .pool = &pool}));
  RETURN_IF_ERROR(client->Join());
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(job.config.data()));
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create({.main = programs.main,
                                                                      .startup = programs.startup,
                                                                      .trainer_id = 0,
                                                                      .columns = parser->columns(),
                                                                      .channel = &client->steps(),
                                                                      .pool = &pool}));
  const LaneRange lanes = session->lanes();
  std::vector<std::vector<LaneBatch>> batches(static_cast<size_t>(warmup + steps));
  for (int64_t step = 0; step < warmup + steps; ++step) {
    for (int lane = 0; lane < lanes.count; ++lane) {
      batches[static_cast<size_t>(step)].push_back(MakeBatch(parser->columns(), step, lane, kBatch / lanes.count));
    }
  }
  RETURN_IF_ERROR(client->board().Exchange("ready", "").status());
  RETURN_IF_ERROR(session->Start(0));
  if (started) RETURN_IF_ERROR(started(*session, programs.main));
  RunResult result;
  std::vector<double> times;
  for (int64_t step = 0; step < warmup + steps; ++step) {
    const ProfiledStep profiled(step);
    const ProfileSpan span(step, ProfileKind::kStep, "step");
    const absl::Time start = absl::Now();
    ASSIGN_OR_RETURN(const StepResult of_step, session->Train(step, /*batch=*/0, &batches[static_cast<size_t>(step)]));
    if (step >= warmup) times.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
    if (step < kChecked) result.losses.push_back(of_step.loss_sum / static_cast<double>(of_step.examples));
  }
  result.step_ms = times.empty() ? 0 : Median(times);
  RETURN_IF_ERROR(client->board().Exchange("end", "").status());
  RETURN_IF_ERROR(client->member().Done());
  return result;
}

std::string Losses(const std::vector<double>& losses) {
  return absl::StrJoin(losses, " ", [](std::string* out, double loss) { absl::StrAppendFormat(out, "%.6f", loss); });
}

// Writes the initial state of the peer: a file of floats per parameter, and the pictures and labels of the steps.
absl::Status WriteStart(const std::string& dir, const Session& session, const v1::ProgramDesc& program) {
  for (const v1::VarDesc& var : program.blocks(0).vars()) {
    if (!var.is_parameter()) continue;
    const Variable* const value = session.Find(0, var.name());
    if (value == nullptr || !std::holds_alternative<Tensor>(*value) || !std::get<Tensor>(*value).initialized()) {
      return absl::InternalError(absl::StrCat("parameter ", var.name(), " has no value in the trainer"));
    }
    const Tensor& tensor = std::get<Tensor>(*value);
    WriteFloats(absl::StrCat(dir, "/", var.name(), ".f32"), tensor.data<float>(), tensor.size());
  }
  const int64_t pictures = kBatch * (absl::GetFlag(FLAGS_warmup) + absl::GetFlag(FLAGS_steps));
  std::vector<float> images(static_cast<size_t>(pictures * kPixels)), labels(static_cast<size_t>(pictures));
  for (int64_t n = 0; n < pictures; ++n) {
    Draw(n, &images[static_cast<size_t>(n * kPixels)]);
    labels[static_cast<size_t>(n)] = static_cast<float>(ClassOf(n));
  }
  WriteFloats(dir + "/images.f32", images.data(), pictures * kPixels);
  WriteFloats(dir + "/labels.f32", labels.data(), pictures);
  return absl::OkStatus();
}

// Parses the output of a peer: "losses L L ..", and last "NAME: T ms a step".
absl::StatusOr<RunResult> RunPeer(const std::string& command) {
  FILE* const out = popen(command.c_str(), "r");
  if (out == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot run ", command));
  RunResult result;
  std::string last;
  char line[512];
  while (std::fgets(line, sizeof(line), out) != nullptr) {
    last = line;
    absl::string_view losses = absl::StripAsciiWhitespace(last);
    if (!absl::ConsumePrefix(&losses, "losses ")) continue;
    for (const absl::string_view loss : absl::StrSplit(losses, ' ')) {
      double value = 0;
      if (absl::SimpleAtod(loss, &value)) result.losses.push_back(value);
    }
  }
  const int status = pclose(out);
  const size_t colon = last.rfind(": ");
  if (status == 0 && colon != std::string::npos) result.step_ms = std::atof(last.c_str() + colon + 2);
  if (!(result.step_ms > 0) || result.losses.size() != kChecked) {
    return absl::InternalError(absl::StrCat("'", command, "' ended with ", status, " and says '", last, "'; want ",
                                            kChecked, " losses and 'NAME: T ms a step'"));
  }
  std::printf("%s", last.c_str());
  std::fflush(stdout);
  return result;
}

absl::Status BenchPeer(const std::string& command, const std::string& dir) {
  ASSIGN_OR_RETURN(const RunResult check,
                   Run(/*dropout=*/0, 0, kChecked, [&](const Session& session, const v1::ProgramDesc& program) {
                     return WriteStart(dir, session, program);
                   }));
  const std::string peer =
      absl::StrCat(command, " --dir=", dir, " --threads=", Threads(), " --warmup=", absl::GetFlag(FLAGS_warmup),
                   " --steps=", absl::GetFlag(FLAGS_steps), " --checked=", kChecked);
  std::vector<double> ours, theirs;
  for (int turn = 0; turn < absl::GetFlag(FLAGS_turns); ++turn) {
    ASSIGN_OR_RETURN(const RunResult one, Run(0.3, absl::GetFlag(FLAGS_warmup), absl::GetFlag(FLAGS_steps)));
    std::printf("weir: %.1f ms a step\n", one.step_ms);
    std::fflush(stdout);
    ours.push_back(one.step_ms);
    ASSIGN_OR_RETURN(const RunResult other, RunPeer(peer));
    theirs.push_back(other.step_ms);
    for (size_t i = 0; i < check.losses.size(); ++i) {
      if (std::fabs(check.losses[i] - other.losses[i]) <= kTolerance) continue;
      return absl::InternalError(absl::StrCat("losses of the first steps differ by more than ", kTolerance, ": ",
                                              Losses(check.losses), " and ", Losses(other.losses),
                                              "; the figures above count for nothing"));
    }
    if (turn == 0)
      std::printf("losses of the first steps: %s, the peer's %s\n", Losses(check.losses).c_str(),
                  Losses(other.losses).c_str());
  }
  std::printf("medians: %.1f ms a step, %.0f examples/s; peer %.1f ms, %.0f examples/s; ratio %.2f\n", Median(ours),
              1000 * kBatch / Median(ours), Median(theirs), 1000 * kBatch / Median(theirs),
              Median(theirs) / Median(ours));
  return absl::OkStatus();
}

absl::Status Bench() {
  RETURN_IF_ERROR(SetArithmetic(v1::Train::AUTO));
  std::printf("Fashion-MNIST CNN, batch %d, lanes 8; %d threads, %s, %d steps\n", static_cast<int>(kBatch), Threads(),
              ResolvedArithmetic().c_str(), absl::GetFlag(FLAGS_steps));
  std::fflush(stdout);
  ASSIGN_OR_RETURN(const RunResult first, Run(/*dropout=*/0, 0, kChecked));
  ASSIGN_OR_RETURN(const RunResult again, Run(/*dropout=*/0, 0, kChecked));
  if (first.losses != again.losses) {
    return absl::InternalError(absl::StrCat("two runs lose ", Losses(first.losses), " and ", Losses(again.losses)));
  }
  if (const std::string peer = absl::GetFlag(FLAGS_peer); !peer.empty()) {
    char pattern[] = "/tmp/cnn_bench.XXXXXX";
    if (mkdtemp(pattern) == nullptr) return absl::ErrnoToStatus(errno, "cannot make a directory in /tmp");
    absl::Status status = BenchPeer(peer, pattern);
    std::filesystem::remove_all(pattern);
    return status;
  }
  ASSIGN_OR_RETURN(ProfileRun profile, ProfileRun::Start("trainer 0"));
  ASSIGN_OR_RETURN(const RunResult result, Run(0.3, absl::GetFlag(FLAGS_warmup), absl::GetFlag(FLAGS_steps)));
  std::fputs(profile.Finish().c_str(), stdout);
  std::printf("%.1f ms a step, %.0f examples/s; losses of the first steps without dropout %s\n", result.step_ms,
              1000 * kBatch / result.step_ms, Losses(first.losses).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  absl::StatusOr<weir::CommandLine> command = weir::ParseCommandLine(argc, argv);
  absl::Status status = command.status();
  if (status.ok()) status = weir::Bench();
  if (!status.ok()) std::fprintf(stderr, "cnn_bench: %s\n", std::string(status.message()).c_str());
  return weir::ExitCodeOf(status);
}
