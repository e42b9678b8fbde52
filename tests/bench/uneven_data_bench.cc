// Data that nobody has prepared, on 8 lanes beside 1 lane that shuffles all of it: whether the rule that cuts data into
// streams, and the one that ends a run, cost the model anything. Sets whose lines alternate with a period train a model
// with batch_norm, whose lanes normalise their own examples, beside the same lines in random order.
//
//   bazel run //tests/bench:uneven_data_bench [-- --seeds=10 --only=TEXT]
//
// A table of examples whose regions differ in label rate and in length of line, or sorted by label or time, in files of
// several layouts, trains a small click model. For each set the paired differences over seeds are printed: AUC and log
// loss of 8 lanes less those beside them, with twice their standard error; the smallest step that took effect as a part
// of step 0; the most examples left out, as a part of an epoch, and whether that is said. Ends with 1 if a set misses
// what is asked of it: AUC within .001 (.002 of lines that alternate) or two standard errors, log loss within .001 or
// two standard errors, no step below a half, at most half a batch and .5 % of an epoch left out, or a warning (more
// than 1 %).

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "framework/base/mutex.h"
#include "framework/base/philox.h"
#include "glog/logging.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/tapped_transport.h"
#include "tests/testing/train_in_process.h"
#include "tests/trainer/data/data_testing.h"

ABSL_FLAG(int, seeds, 10, "Runs of each set.");
ABSL_FLAG(std::string, only, "", "Only sets whose name holds this text.");

namespace weir {
namespace {

constexpr int kBatch = 512;
constexpr int kEvalLines = 20000;

constexpr char kJob[] = R"(
name: "uneven"
data {
  train { files: "train*" }
  eval { files: "eval" }
  csv {
    column { name: "label" }
    column { name: "x" output: "x" }
    column { name: "a" type: ID output: "cat" }
    column { name: "b" type: ID output: "cat" }
  }
  batch_size: 512
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "wide" embedding { ids: "cat" table: "weights" pooling: SUM } }
  layer { name: "input" concat { input: "fields" input: "x" } }
  layer { name: "deep" fc { input: "input" size: 16 activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "wide" input: "out" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true }
table { name: "weights" width: 1 is_sparse: true is_distributed: true }
optimizer { adam { learning_rate: 0.01 } }
train { seed: 1 epochs: 1 }
)";

// The same with batch_norm.
std::string NormedJob() {
  return absl::StrReplaceAll(kJob, {{R"(layer { name: "deep" fc { input: "input" size: 16 activation: RELU } })",
                                     R"(layer { name: "hidden" fc { input: "input" size: 16 } }
  layer { name: "deep" batch_norm { input: "hidden" activation: RELU } })"}});
}

enum Order { kRegions, kByLabel, kByTime, kPeriodic };
enum Layout { kOnePlain, kOneGzip, kUnequalPlain, kUnequalGzip, kEightGzip, kManyPlain };

struct Set {
  const char* name;
  int lines;
  Order order;
  Layout layout;
  int epochs = 1;
  double bad = 0;             // part of the lines of one region that do not parse
  int resume_before_end = 0;  // steps; 0: undisturbed
  int padding = 0;            // bytes behind each line
  int period = 0;             // kPeriodic: of each so many lines the first half has label 1
};

const Set kSets[] = {
    {"regions, one plain file", 33000, kRegions, kOnePlain},
    {"regions, one plain file, 2 epochs", 33000, kRegions, kOnePlain, 2},
    {"regions, one plain file, 5 epochs", 33000, kRegions, kOnePlain, 5},
    {"regions, one plain file of 28 MB", 81000, kRegions, kOnePlain, 1, 0, 0, 300},
    {"regions, one plain file of 28 MB, 5 epochs", 81000, kRegions, kOnePlain, 5, 0, 0, 300},
    {"regions, one plain file of 70 MB", 200000, kRegions, kOnePlain, 1, 0, 0, 300},
    {"regions, one gzip file", 33000, kRegions, kOneGzip},
    {"regions, one gzip file, 2 epochs", 81000, kRegions, kOneGzip, 2},
    {"regions, 12 unequal plain files", 33000, kRegions, kUnequalPlain},
    {"regions, 12 unequal gzip files", 33000, kRegions, kUnequalGzip},
    {"regions, 12 unequal gzip files, 5 epochs", 33000, kRegions, kUnequalGzip, 5},
    {"regions, 8 gzip files", 81000, kRegions, kEightGzip},
    {"regions, 8 gzip files, 2 epochs", 81000, kRegions, kEightGzip, 2},
    {"regions, 200 plain files", 33000, kRegions, kManyPlain},
    {"sorted by label, one plain file", 33000, kByLabel, kOnePlain},
    {"sorted by label, one plain file of 28 MB, 2 epochs", 81000, kByLabel, kOnePlain, 2, 0, 0, 300},
    {"sorted by label, 8 gzip files", 81000, kByLabel, kEightGzip},
    {"sorted by time, one plain file", 33000, kByTime, kOnePlain},
    {"sorted by time, 12 unequal gzip files, 2 epochs", 33000, kByTime, kUnequalGzip, 2},
    {"half of a region bad, plain", 33000, kRegions, kOnePlain, 1, .5},
    {"half of a region bad, plain, 28 MB, 2 epochs", 81000, kRegions, kOnePlain, 2, .5, 0, 300},
    {"half of a region bad, 8 gzip files", 81000, kRegions, kEightGzip, 1, .5},
    {"fewer examples than a batch, 5 epochs", 300, kRegions, kOnePlain, 5},
    {"1.3 batches", 666, kRegions, kOnePlain},
    {"1.3 batches, 5 epochs", 666, kRegions, kOnePlain, 5},
    {"period 2, one plain file", 33000, kPeriodic, kOnePlain, 2, 0, 0, 0, 2},
    {"period 2, one plain file of 28 MB", 81000, kPeriodic, kOnePlain, 1, 0, 0, 300, 2},
    {"period 2, one gzip file", 81000, kPeriodic, kOneGzip, 1, 0, 0, 300, 2},
    {"period 3, one plain file", 33000, kPeriodic, kOnePlain, 2, 0, 0, 0, 3},
    {"period 5, 12 unequal gzip files", 33000, kPeriodic, kUnequalGzip, 2, 0, 0, 0, 5},
    {"period 8, one plain file", 33000, kPeriodic, kOnePlain, 2, 0, 0, 0, 8},
    {"period 16, 8 gzip files", 81000, kPeriodic, kEightGzip, 1, 0, 0, 0, 16},
    {"period 64, one plain file", 33000, kPeriodic, kOnePlain, 2, 0, 0, 0, 64},
    {"goes on 1 step before the end", 33000, kRegions, kOnePlain, 1, 0, 1},
    {"goes on 3 steps before the end, 2 epochs", 33000, kRegions, kOneGzip, 2, 0, 3},
};

double Uniform(uint64_t seed, uint64_t what, uint64_t i) { return Philox(seed, what, i).v[0] / 4294967296.0; }

struct Line {
  int label = 0;
  std::string text;
};

// Region `region` of 10 has a rate of labels and a length of line of its own.
Line Make(uint64_t seed, uint64_t n, int region, const Set& set, bool bad) {
  const int64_t a = static_cast<int64_t>(400 * Uniform(seed, 1, n)),
                b = static_cast<int64_t>(400 * Uniform(seed, 2, n));
  const double x = 2 * Uniform(seed, 3, n) - 1;
  const double bias = set.order == kByTime ? .3 * region - 1.5 : (region * 7 % 10) * .5 - 2.5;
  // The weights of ids do not depend on the seed, so that one evaluation set serves all seeds.
  const double logit =
      3 * (Uniform(77, 4, static_cast<uint64_t>(a)) + Uniform(77, 5, static_cast<uint64_t>(b)) - 1) + x + bias;
  Line line;
  line.label = Uniform(seed, 6, n) < 1 / (1 + std::exp(-logit)) ? 1 : 0;
  const size_t padding =
      static_cast<size_t>(set.padding) + static_cast<size_t>(region * 13 % 10 * (set.padding > 0 ? 10 : 4));
  line.text =
      absl::StrFormat("%s,%.4f,%d,%d,%s\n", bad ? "?" : absl::StrCat(line.label), x, a, b, std::string(padding, '.'));
  return line;
}

constexpr char kHeader[] = "label,x,a,b,padding\n";

// Of each `period` lines the first half, rounded down, has label 1. Without the lines that are left of one label.
std::vector<Line> Alternating(std::vector<Line> lines, int period) {
  std::vector<Line> of_label[2], made;
  for (Line& line : lines) of_label[line.label].push_back(std::move(line));
  size_t at[2] = {0, 0};
  for (int i = 0;; i = (i + 1) % period) {
    const int label = i < period / 2 ? 1 : 0;
    if (at[label] == of_label[label].size()) return made;
    made.push_back(std::move(of_label[label][at[label]++]));
  }
}

// The lines of the set in random order.
std::vector<Line> Mixed(std::vector<Line> lines, uint64_t seed) {
  for (size_t i = lines.size(); i > 1; --i) {
    std::swap(lines[i - 1], lines[static_cast<size_t>(static_cast<double>(i) * Uniform(seed, 8, i))]);
  }
  return lines;
}

// `mixed`: a set whose lines alternate, in random order.
void WriteData(const std::string& directory, const Set& set, uint64_t seed, bool mixed = false) {
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  std::vector<Line> lines;
  for (int n = 0; n < set.lines; ++n) {
    const int region = static_cast<int>(int64_t{10} * n / set.lines);
    lines.push_back(Make(seed, static_cast<uint64_t>(n), region, set,
                         region == 4 && Uniform(seed, 7, static_cast<uint64_t>(n)) < set.bad));
  }
  if (set.order == kByLabel) {
    std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.label < b.label; });
  }
  if (set.order == kPeriodic) lines = Alternating(std::move(lines), set.period);
  if (mixed) lines = Mixed(std::move(lines), seed);
  std::vector<size_t> ends;
  const size_t all = lines.size();
  switch (set.layout) {
    case kOnePlain:
    case kOneGzip:
      ends = {all};
      break;
    case kUnequalPlain:
    case kUnequalGzip:
      for (int f = 1; f < 12; ++f) ends.push_back(all - all / (size_t{1} << f) / 2 - all / 4 / static_cast<size_t>(f));
      std::sort(ends.begin(), ends.end());
      ends.push_back(all);
      break;
    case kEightGzip:
      for (size_t f = 1; f <= 8; ++f) ends.push_back(all * f / 8);
      break;
    case kManyPlain:
      for (size_t f = 1; f <= 200; ++f) ends.push_back(all * f / 200);
      break;
  }
  const bool gzip = set.layout == kOneGzip || set.layout == kUnequalGzip || set.layout == kEightGzip;
  size_t at = 0;
  for (size_t f = 0; f < ends.size(); ++f) {
    std::string text = kHeader;
    for (; at < ends[f]; ++at) text += lines[at].text;
    std::ofstream(absl::StrFormat("%s/train-%03d", directory, f), std::ios::binary) << (gzip ? Gzip(text) : text);
  }
  std::ofstream eval(directory + "/eval", std::ios::binary);
  eval << kHeader;
  for (int n = 0; n < kEvalLines; ++n) eval << Make(1000 + seed, static_cast<uint64_t>(n), n % 10, set, false).text;
}

// Collects the warnings that are logged during its lifetime.
class Warnings : public google::LogSink {
 public:
  Warnings() { google::AddLogSink(this); }
  ~Warnings() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity severity, const char*, const char*, int, const google::LogMessageTime&,
            const char* message, size_t length) override {
    if (severity >= google::GLOG_WARNING) text_.append(message, length).append("\n");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct Outcome {
  double auc = 0, loss = 0;
  double smallest = 1;  // step that took effect, of step 0
  double left_out = 0;  // of an epoch
  int64_t left_out_examples = 0;
  bool warned = false;
};

Outcome Train(const std::string& directory, const Set& set, uint64_t seed, int lanes) {
  Mutex mu;
  std::map<int64_t, int64_t> samples;  // of every step that is pushed; guarded by mu
  InProcessRun run = {.job_text = set.period > 0 ? NormedJob() : kJob,
                      .directory = directory,
                      .overrides = {absl::StrCat("train.seed=", seed), absl::StrCat("train.epochs=", set.epochs),
                                    absl::StrCat("train.lanes=", lanes), "data.bad_line=SKIP"},
                      .threads = 2,
                      .between = [&](int, Transport* servers) {
                        return Tapped(servers, [&](TappedCall call) {
                          if (const auto push = call.As<v1::PushRequest>(); push && push->has_part_count()) {
                            MutexLock lock(&mu);
                            samples[push->step()] = push->samples();
                          }
                          call.GoOn();
                        });
                      }};
  if (set.resume_before_end > 0) {
    const int64_t steps = static_cast<int64_t>(set.lines) * set.epochs / kBatch;
    run.overrides.push_back(absl::StrCat("checkpoint.dir=\"", directory, "/checkpoints", lanes, "\""));
    InProcessRun first = run;
    first.overrides.push_back(absl::StrCat("train.max_steps=", steps - set.resume_before_end));
    const absl::StatusOr<InProcessResult> begun = TrainInProcess(first);
    CHECK(begun.ok()) << set.name << ": " << begun.status();
    run.resume = true;
  }
  const Warnings warnings;
  const absl::StatusOr<InProcessResult> result = TrainInProcess(run);
  CHECK(result.ok()) << set.name << ": " << result.status();
  const TrainSummary& summary = result->summary;
  CHECK(summary.eval.has_value() && summary.eval->samples == kEvalLines);
  Outcome outcome = {.auc = summary.eval->Measure("auc"),
                     .loss = summary.eval->Measure("loss"),
                     .left_out_examples = summary.left_out};
  for (const auto& [step, of_step] : samples) {
    if (step >= summary.steps) continue;
    outcome.smallest = std::min(outcome.smallest, static_cast<double>(of_step) / static_cast<double>(samples.at(0)));
  }
  outcome.left_out = static_cast<double>(summary.left_out) / set.lines;
  outcome.warned = absl::StrContains(warnings.text(), "examples were left out at the end");
  return outcome;
}

struct Paired {
  std::vector<double> differences;
  double Mean() const {
    double sum = 0;
    for (const double d : differences) sum += d;
    return sum / static_cast<double>(differences.size());
  }
  double TwoErrors() const {
    if (differences.size() < 2) return 0;
    double sum = 0;
    for (const double d : differences) sum += (d - Mean()) * (d - Mean());
    const double n = static_cast<double>(differences.size());
    return 2 * std::sqrt(sum / (n - 1) / n);
  }
};

int Main() {
  const std::string directory =
      (std::filesystem::temp_directory_path() / absl::StrCat("uneven_data_bench.", getpid())).string();
  const int seeds = absl::GetFlag(FLAGS_seeds);
  bool all_good = true;
  std::printf("%-52s %7s %8s %8s %8s %8s %8s %9s\n", "set", "AUC", "less", "2 err.", "logloss", "2 err.", "smallest",
              "left out");
  for (const Set& set : kSets) {
    if (!absl::StrContains(set.name, absl::GetFlag(FLAGS_only))) continue;
    Paired auc, loss;
    double mean_auc = 0, smallest = 1, left_out = 0;
    bool said = true;
    for (int seed = 1; seed <= seeds; ++seed) {
      WriteData(directory, set, static_cast<uint64_t>(seed));
      const Outcome lanes = Train(directory, set, static_cast<uint64_t>(seed), 8);
      if (set.period > 0) WriteData(directory, set, static_cast<uint64_t>(seed), /*mixed=*/true);
      const Outcome one = Train(directory, set, static_cast<uint64_t>(seed), set.period > 0 ? 8 : 1);
      auc.differences.push_back(lanes.auc - one.auc);
      loss.differences.push_back(lanes.loss - one.loss);
      mean_auc += lanes.auc / seeds;
      smallest = std::min(smallest, lanes.smallest);
      left_out = std::max(left_out, lanes.left_out);
      said &= lanes.warned || static_cast<double>(lanes.left_out_examples) <= .5 * kBatch + .005 * set.lines;
    }
    const bool good = auc.Mean() >= -std::max(set.period > 0 ? .002 : .001, auc.TwoErrors()) &&
                      loss.Mean() <= std::max(.001, loss.TwoErrors()) && smallest >= .5 && said;
    all_good &= good;
    std::printf("%-52s %7.4f %+8.4f %8.4f %+8.4f %8.4f %8.2f %8.2f%%%s\n", set.name, mean_auc, auc.Mean(),
                auc.TwoErrors(), loss.Mean(), loss.TwoErrors(), smallest, 100 * left_out, good ? "" : "  MISSED");
    std::fflush(stdout);
  }
  std::filesystem::remove_all(directory);
  return all_good ? 0 : 1;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  // Warnings are for Warnings alone: not printed, and written to no file.
  FLAGS_minloglevel = google::GLOG_WARNING;
  FLAGS_stderrthreshold = google::GLOG_ERROR;
  google::SetLogDestination(google::GLOG_WARNING, "");
  absl::ParseCommandLine(argc, argv);
  return weir::Main();
}
