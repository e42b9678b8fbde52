#include "trainer/verify/calibrate.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_budget.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/program_text.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/lane_tree.h"
#include "glog/logging.h"
#include "ops/arithmetic.h"
#include "trainer/verify/job_steps.h"
#include "trainer/verify/split_run.h"
#include "trainer/verify/two_costs.h"
#include "transpiler/explain/explain.h"
#include "transpiler/job/job.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

// Steps of the job's data that are kept in memory and run again and again, and their bytes.
constexpr size_t kKeptSteps = 48, kKeptBytes = size_t{256} << 20;
// Recorded steps of a run: the profiler has room for them.
constexpr int64_t kFewestSteps = 4, kMostSteps = 60;
// Room for a few thousand spans in each of them; memory is taken as spans are recorded.
constexpr size_t kMostEvents = size_t{1} << 21;

// Longest calibration that may be asked for: a longer one is a mistake in the flag.
constexpr double kMostSeconds = 3600;

using Step = std::vector<std::vector<LaneBatch>>;

// Parts of a step, by who does them.
enum Part {
  kCompute,
  kTrainerRows,
  kTrainerPush,
  kTrainerBlocks,
  kServerRows,
  kServerBlocks,
  kServerPush,
  kUpdateRows,
  kUpdateBlocks,
  kNoPart,  // waiting
  kParts
};
using PartTimes = std::array<double, kParts>;

// Returns the part that a span is about; kParts: that of the span around it.
Part PartOf(const ProfileEvent& event, std::string_view name) {
  static const auto* const exchanges = new std::map<std::string_view, Part>(
      {{"prefetch", kTrainerRows}, {"recv", kTrainerBlocks}, {"fetch_barrier", kTrainerBlocks}});
  static const auto* const others = new std::map<std::string_view, Part>({{"copy rows for pulls", kServerRows},
                                                                          {"copy blocks for pulls", kServerBlocks},
                                                                          {"read pushes", kServerPush},
                                                                          {"update table", kUpdateRows},
                                                                          {"end of step, tables", kUpdateRows},
                                                                          {"update block", kUpdateBlocks}});
  switch (event.kind) {
    case ProfileKind::kOperator:
      return kCompute;
    case ProfileKind::kExchange: {
      const auto found = exchanges->find(name);
      return found == exchanges->end() ? kTrainerPush : found->second;
    }
    case ProfileKind::kServe:
    case ProfileKind::kUpdate: {
      const auto found = others->find(name);
      return found == others->end() ? kUpdateBlocks : found->second;
    }
    case ProfileKind::kWait:
      return kNoPart;
    default:
      return kParts;
  }
}

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns nanoseconds of each part in a step, on all threads, as medians over the steps: self times of spans, which
// nest.
PartTimes TimesOf(const Profiler::Recorded& recorded) {
  std::map<int64_t, PartTimes> by_step;
  struct Open {
    int64_t end = 0;
    Part part = kNoPart;
  };
  for (const Profiler::Recorded::Thread& thread : recorded.threads) {
    std::vector<const ProfileEvent*> spans;
    for (const ProfileEvent& event : thread.events) {
      // Calls and their handlers overlap others.
      const bool nests = event.track == 0 && event.kind != ProfileKind::kCall && event.kind != ProfileKind::kHandler;
      if (nests) spans.push_back(&event);
    }
    std::sort(spans.begin(), spans.end(), [](const ProfileEvent* a, const ProfileEvent* b) {
      return a->begin_ns < b->begin_ns || (a->begin_ns == b->begin_ns && a->end_ns > b->end_ns);
    });
    std::vector<Open> open;
    for (const ProfileEvent* span : spans) {
      while (!open.empty() && open.back().end <= span->begin_ns) open.pop_back();
      Part part = PartOf(*span, recorded.names[span->name.id()]);
      const Part outer = open.empty() ? kNoPart : open.back().part;
      if (part == kParts) part = outer;
      const double ns = static_cast<double>(span->end_ns - span->begin_ns);
      PartTimes& times = by_step[span->step];
      times[part] += ns;
      if (!open.empty()) times[outer] -= ns;
      open.push_back({span->end_ns, part});
    }
  }
  PartTimes medians = {};
  for (size_t part = 0; part < kParts && !by_step.empty(); ++part) {
    std::vector<double> times;
    for (const auto& [step, of_step] : by_step) times.push_back(std::max(0.0, of_step[part]));
    medians[part] = MedianOf(std::move(times));
  }
  return medians;
}

int64_t ProcessCpuNs() {
  timespec now = {};
  CHECK_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

size_t BytesOf(const Step& step) {
  size_t bytes = 0;
  for (const std::vector<LaneBatch>& batch : step) {
    for (const LaneBatch& lane : batch) {
      for (const Variable& var : lane.vars) {
        if (const auto* tensor = std::get_if<Tensor>(&var); tensor != nullptr && tensor->initialized()) {
          bytes += tensor->bytes();
        } else if (const auto* ids = std::get_if<IdBatch>(&var)) {
          bytes += 8 * (ids->values.size() + ids->offsets.size());
        }
      }
    }
  }
  return bytes;
}

// Returns the job on one server and `trainers` trainers, with batches of batch_size / smaller, in a mode whose parts
// can be told apart.
Job Smaller(const Job& job, int trainers, int smaller) {
  Job result = job;
  v1::Distribute* const d = result.config.mutable_distribute();
  v1::Train* const train = result.config.mutable_train();
  int lanes = train->lanes();
  int64_t batch = result.config.data().batch_size();
  if (lanes == 0) {
    // Without lanes a trainer's batch is one lane.
    batch = std::max<int64_t>(1, batch / std::max(1, d->trainers())) * 2;
    lanes = 2;
  }
  train->set_lanes(lanes);
  // The number of threads is that of each run.
  train->clear_threads();
  result.config.mutable_data()->set_batch_size(std::max<int64_t>(lanes, batch / smaller));
  // A shuffled stream is read ahead, or as a whole, before its first example.
  result.config.mutable_data()->set_shuffle(v1::Data::NO_SHUFFLE);
  d->set_trainers(trainers);
  // A server inside the only trainer would have no messages to count.
  const bool owns = d->servers() > 0 || d->dense() != v1::Distribute::ALL_REDUCE || result.config.table_size() > 0;
  d->set_servers(owns ? 1 : 0);
  d->set_sync(true);
  d->clear_async_tables();
  d->clear_geo();
  d->clear_local_sgd();
  d->clear_half_async();
  d->clear_prefetch_rows();
  d->clear_assign();
  train->clear_workers();
  return result;
}

// Batches of a job, made before anything is measured.
struct Batches {
  std::vector<Step> steps;
  std::vector<Column> columns;
  double read_ns = 0;  // processor time of an example
  bool made_up = false;
};

absl::StatusOr<Batches> ReadBatches(const Job& job, size_t most_steps, ThreadPool* pool) {
  ASSIGN_OR_RETURN(const Programs single, BuildSingleMachine(job));
  Batches result;
  std::unique_ptr<JobSteps> steps;
  if (job.config.data().train().files_size() > 0) {
    absl::StatusOr<std::unique_ptr<JobSteps>> of_data = JobSteps::OfData(job, single.main, pool);
    if (!of_data.ok() && !absl::IsNotFound(of_data.status())) return of_data.status();
    if (of_data.ok()) steps = std::move(of_data).value();
  }
  if (steps == nullptr) {
    result.made_up = true;
    ASSIGN_OR_RETURN(steps, JobSteps::MadeUp(job, single.main));
  }
  result.columns = steps->columns();
  const size_t batches = static_cast<size_t>(std::max(1, job.config.train().accumulate_steps()));
  const int64_t before = ProcessCpuNs();
  int64_t examples = 0;
  size_t bytes = 0;
  while (result.steps.size() < most_steps && bytes < kKeptBytes) {
    Step step(batches);
    int64_t of_step = 0;
    for (std::vector<LaneBatch>& batch : step) {
      RETURN_IF_ERROR(steps->Next(&batch));
      for (const LaneBatch& lane : batch) of_step += lane.examples;
    }
    examples += of_step;
    if (of_step < static_cast<int64_t>(batches) * job.config.data().batch_size()) break;
    bytes += BytesOf(step);
    result.steps.push_back(std::move(step));
  }
  if (result.steps.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("data.train has fewer examples than a step of ",
                                                      job.config.data().batch_size(),
                                                      " needs: there is nothing to calibrate with"));
  }
  if (!result.made_up) {
    result.read_ns = static_cast<double>(ProcessCpuNs() - before) / static_cast<double>(std::max<int64_t>(1, examples));
  }
  return result;
}

// A run of a small cluster: nanoseconds of each part in a step, seconds of a step, and what explain counts for it.
struct Measured {
  PartTimes times = {};
  double step_seconds = 0;
  v1::Explanation counts;
};

absl::StatusOr<Measured> Run(const Job& job, const Batches& batches, int threads, const CalibrationNetwork* network,
                             double seconds) {
  SplitRunOptions options = {.threads = threads, .check_payloads = true};
  if (network != nullptr) options.network = network->to_servers;
  SplitRun run(job, std::move(options));
  RETURN_IF_ERROR(run.Start(batches.columns));
  int64_t step = 0;
  const auto one_step = [&]() -> absl::Status {
    const absl::Status done = run.Step(step, batches.steps[static_cast<size_t>(step) % batches.steps.size()]);
    ++step;
    return done;
  };
  // The first round makes the rows.
  const int64_t begin = Profiler::NowNs();
  do {
    RETURN_IF_ERROR(one_step());
  } while (step < static_cast<int64_t>(batches.steps.size()) &&
           static_cast<double>(Profiler::NowNs() - begin) < 0.5e9 * seconds);
  const double warm_ns = static_cast<double>(Profiler::NowNs() - begin) / static_cast<double>(step);
  const int64_t recorded =
      std::clamp(static_cast<int64_t>(0.5e9 * seconds / std::max(1.0, warm_ns)), kFewestSteps, kMostSteps);
  Profiler::Process().Start(step, step + recorded, kMostEvents);
  std::vector<double> step_ns;
  absl::Status ran;
  for (int64_t s = 0; s < recorded && ran.ok(); ++s) {
    const int64_t step_begin = Profiler::NowNs();
    ran = one_step();
    step_ns.push_back(static_cast<double>(Profiler::NowNs() - step_begin));
  }
  Profiler::Process().Stop();
  RETURN_IF_ERROR(ran);
  Measured result;
  result.step_seconds = 1e-9 * MedianOf(std::move(step_ns));
  const Profiler::Recorded spans = Profiler::Process().Collect();
  if (spans.dropped > 0) {
    return absl::InternalError(absl::StrCat("the profiler has dropped ", spans.dropped, " events of ", recorded,
                                            " steps: the calibration would be wrong"));
  }
  result.times = TimesOf(spans);
  ASSIGN_OR_RETURN(const std::unique_ptr<Explainer> explainer, Explainer::Create(job, {.alternatives = false}));
  for (const Step& of : batches.steps) {
    StepInput input;
    for (const std::vector<LaneBatch>& batch : of) input.push_back(BatchInputOf(batch, batches.columns));
    explainer->AddStep(input);
  }
  ASSIGN_OR_RETURN(result.counts, explainer->Finish());
  return result;
}

// Counts of explain for a whole small cluster.
struct Counts {
  double rows_pulled = 0, rows_pushed = 0, rows_updated = 0;
  double bytes_pushed = 0, block_bytes_pulled = 0;
  double dense_bytes = 0, nodes = 0;
};
Counts CountsOf(const v1::Explanation& e, int lanes) {
  Counts counts;
  const auto add_blocks = [&](const v1::ExplainedServer& server) {
    for (const v1::ExplainedBlock& block : server.block()) {
      if (!block.sparse_gradient()) counts.dense_bytes += static_cast<double>(block.bytes());
    }
  };
  for (const v1::ExplainedServer& server : e.server()) {
    counts.rows_updated += server.rows_updated();
    add_blocks(server);
  }
  if (e.has_all_reduced()) add_blocks(e.all_reduced().replica());
  // The servers' flows: with servers inside trainers those of a trainer to itself are not counted.
  for (const v1::ExplainedTrainer& trainer : e.trainer()) {
    const v1::Flows& flows = trainer.step();
    counts.rows_pulled += trainer.count() * flows.pull_rows().rows();
    counts.rows_pushed += trainer.count() * flows.push().rows();
    counts.bytes_pushed += trainer.count() * flows.push().bytes_out();
    counts.block_bytes_pulled += trainer.count() * flows.pull_blocks().bytes_in();
  }
  for (int t = 0; t < e.trainers(); ++t) {
    counts.nodes += static_cast<double>(AlignedNodes(LanesOfTrainer(lanes, e.trainers(), t)).size());
  }
  return counts;
}

double Per(double ns, double units) { return units > 0 ? ns / units : 0; }

// Measures calls, one after the other.
absl::StatusOr<v1::WireCosts> MeasureWire(Transport* transport, double seconds) {
  constexpr size_t kSmall = 256, kLarge = 1 << 20;
  struct Figures {
    double cpu_ns = 0, clock_ns = 0;
  };
  const auto measure = [&](size_t bytes) -> absl::StatusOr<Figures> {
    const std::string message(bytes, 'x');
    const Slice slice = Slice::Own(message);
    int64_t calls = 0, begin = 0, cpu = 0;
    std::vector<double> round_trips;
    for (const bool warm : {true, false}) {
      begin = Profiler::NowNs();
      cpu = ProcessCpuNs();
      calls = 0;
      const double most_ns = 1e9 * seconds * (warm ? 0.1 : 0.4);
      do {
        const int64_t sent = Profiler::NowNs();
        // The transport answers every call, at the latest after its timeout.
        const auto answered = std::make_shared<std::promise<absl::Status>>();
        transport->Call(0, Method::kDeliver, {slice}, absl::Seconds(10),
                        [answered](absl::StatusOr<Slices> reply) { answered->set_value(reply.status()); });
        RETURN_IF_ERROR(answered->get_future().get());
        if (!warm) round_trips.push_back(static_cast<double>(Profiler::NowNs() - sent));
        ++calls;
      } while (static_cast<double>(Profiler::NowNs() - begin) < most_ns);
    }
    return Figures{.cpu_ns = static_cast<double>(ProcessCpuNs() - cpu) / static_cast<double>(calls),
                   .clock_ns = MedianOf(std::move(round_trips))};
  };
  ASSIGN_OR_RETURN(const Figures small, measure(kSmall));
  ASSIGN_OR_RETURN(const Figures large, measure(kLarge));
  v1::WireCosts costs;
  costs.set_byte_ns(std::max(0.0, (large.cpu_ns - small.cpu_ns) / static_cast<double>(kLarge - kSmall)));
  costs.set_message_ns(small.cpu_ns);
  costs.set_round_trip_ns(small.clock_ns);
  return costs;
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "an unknown processor";
}

// Sets the costs of a trainer from runs of `job` with all its lanes, with half its batch, and with two trainers.
void SetTrainerCosts(const v1::JobConfig& job, const v1::JobConfig& half, const Measured& alone,
                     const Measured& smaller, const Measured& pair, v1::Calibration* c) {
  const int lanes = job.train().lanes();
  const Counts counts = CountsOf(alone.counts, lanes), of_pair = CountsOf(pair.counts, lanes);
  v1::TrainerCosts* const trainer = c->mutable_trainer();
  const double batches_of_step = std::max(1, job.train().accumulate_steps());
  const double lane_runs = lanes * batches_of_step;
  const double lane_batch = static_cast<double>(job.data().batch_size()) / lanes;
  const double half_batch = static_cast<double>(half.data().batch_size()) / lanes;
  const double lane = alone.times[kCompute] / lane_runs, half_lane = smaller.times[kCompute] / lane_runs;
  const double example = lane_batch > half_batch
                             ? std::clamp((lane - half_lane) / (lane_batch - half_batch), 0.0, lane / lane_batch)
                             : lane / lane_batch;
  trainer->set_example_ns(example);
  // lane / lane_batch * lane_batch can round to more than lane.
  trainer->set_lane_ns(std::max(0.0, lane - example * lane_batch));
  trainer->set_row_ns(Per(alone.times[kTrainerRows], counts.rows_pulled));
  // Two trainers add gradients up at the same time, each on a core.
  const TwoCosts push = SolveTwoCosts(alone.times[kTrainerPush], pair.times[kTrainerPush] / c->crowding(), lanes,
                                      counts.bytes_pushed, of_pair.bytes_pushed);
  trainer->set_push_lane_ns(push.once);
  trainer->set_push_byte_ns(push.often);
  trainer->set_block_byte_ns(Per(alone.times[kTrainerBlocks], counts.block_bytes_pulled));
}

void SetServerCosts(const Measured& alone, const Measured& pair, int lanes, v1::ServerCosts* server) {
  const Counts counts = CountsOf(alone.counts, lanes), of_pair = CountsOf(pair.counts, lanes);
  server->set_row_ns(Per(alone.times[kServerRows], counts.rows_pulled));
  server->set_block_byte_ns(Per(alone.times[kServerBlocks], counts.block_bytes_pulled));
  server->set_push_byte_ns(Per(alone.times[kServerPush], counts.bytes_pushed));
  const TwoCosts rows = SolveTwoCosts(alone.times[kUpdateRows], pair.times[kUpdateRows], counts.rows_updated,
                                      counts.rows_pushed, of_pair.rows_pushed);
  server->set_update_row_ns(rows.once);
  server->set_merge_row_ns(rows.often);
  const TwoCosts dense = SolveTwoCosts(alone.times[kUpdateBlocks], pair.times[kUpdateBlocks], counts.dense_bytes,
                                       counts.dense_bytes * counts.nodes, of_pair.dense_bytes * of_pair.nodes);
  server->set_update_byte_ns(dense.once);
  server->set_merge_byte_ns(dense.often);
}

}  // namespace

absl::StatusOr<std::string> CalibratedProgram(const Job& job) {
  ASSIGN_OR_RETURN(const Programs single, BuildSingleMachine(job));
  ASSIGN_OR_RETURN(const std::string text, FormatProgram(single.main, "text"));
  return absl::StrCat(absl::Hex(StableHash(text), absl::kZeroPad16));
}

absl::Status CheckCalibrateSeconds(double seconds) {
  if (seconds > 0 && seconds <= kMostSeconds) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--calibrate_seconds must be positive and at most ", kMostSeconds, ", got ", seconds));
}

absl::StatusOr<v1::Calibration> Calibrate(const Job& job, const CalibrateOptions& options) {
  RETURN_IF_ERROR(CheckCalibrateSeconds(options.seconds));
  const v1::Train& train = job.config.train();
  RETURN_IF_ERROR(SetArithmetic(train.arithmetic(), PrecisionOnCpu(train)));
  const int cores = UsableCores();
  ThreadPool pool("weir-calibrate", PoolWorkers(0));
  v1::Calibration c;
  c.set_processor(ProcessorName());
  c.set_cores(cores);
  c.set_arithmetic(ResolvedArithmetic(PrecisionOnCpu(train)));
  ASSIGN_OR_RETURN(*c.mutable_program(), CalibratedProgram(job));

  const Job one = Smaller(job, 1, 1), two = Smaller(job, 2, 1), half = Smaller(job, 1, 2);
  ASSIGN_OR_RETURN(const Batches batches, ReadBatches(one, kKeptSteps, &pool));
  ASSIGN_OR_RETURN(const Batches halves, ReadBatches(half, kKeptSteps / 4, &pool));
  c.set_data(batches.made_up ? "generated batches" : "the job's data");
  const double share = options.seconds / 6;
  const int lanes = one.config.train().lanes();
  ASSIGN_OR_RETURN(const Measured alone, Run(one, batches, 1, nullptr, 1.5 * share));
  ASSIGN_OR_RETURN(const Measured smaller, Run(half, halves, 1, nullptr, 0.5 * share));
  Measured crowded = alone;
  if (cores > 1) {
    ASSIGN_OR_RETURN(crowded, Run(one, batches, cores, nullptr, share));
  }
  Measured pair = alone;
  if (lanes > 1) {
    ASSIGN_OR_RETURN(pair, Run(two, batches, 1, nullptr, share));
  }
  ASSIGN_OR_RETURN(const Measured over_socket, Run(one, batches, cores, &options.network, share));
  for (const bool unix_socket : {false, true}) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Transport> echo, options.network.echo(unix_socket));
    ASSIGN_OR_RETURN(*(unix_socket ? c.mutable_unix_socket() : c.mutable_tcp()), MeasureWire(echo.get(), 0.5 * share));
  }

  c.set_crowding(std::max(1.0, Per(crowded.times[kCompute], alone.times[kCompute])));
  SetTrainerCosts(one.config, half.config, alone, smaller, pair, &c);
  c.mutable_trainer()->set_read_ns(batches.read_ns);
  SetServerCosts(alone, pair, lanes, c.mutable_server());

  // Predict the run over a socket, which read no data, with these costs.
  c.set_moving(1);
  v1::Calibration without_reading = c;
  without_reading.mutable_trainer()->clear_read_ns();
  ASSIGN_OR_RETURN(const Transpiled transpiled, Transpile(one));
  const v1::SpeedPrediction predicted =
      PredictSpeed(without_reading, {.one_machine = true}, one.config, transpiled.plan(), over_socket.counts);
  double moving = 0, computing = 0;
  for (const v1::SpeedPhase& phase : predicted.phase())
    (phase.name() == "compute" ? computing : moving) += phase.seconds();
  if (moving > 0) c.set_moving(std::clamp((over_socket.step_seconds - computing) / moving, 1.0, 4.0));
  return c;
}

}  // namespace weir
