// generate_ctr: writes a click log in the Criteo text layout, or as libsvm, from a planted model, and prints the AUC
// that the model itself reaches on it.
//
// The planted model is a factorisation machine: every value of a categorical has a weight and a vector, every integer a
// weight on log(1 + x); a label is 1 with probability sigmoid(bias + weights + sum over pairs of fields <v_i, v_j>).
// Popularity of values follows Zipf's law; some fields are missing, which adds nothing. Every number is a function of
// (seed, purpose), so the same flags give the same bytes. The same rows in another layout have the same labels.
//
// libsvm: integer i is " i:x" with i from 1, value v of categorical c from 0 is " n:1" with n = kFirstValue + c * ids +
// v.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "framework/base/atomic_file.h"
#include "framework/base/exit_code.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/process/command_line.h"
#include "framework/process/standard_output.h"

ABSL_FLAG(
    std::string, output, "",
    "directory for train-<i>.tsv and eval.tsv (or .libsvm), those of an earlier run replaced; made if it is not there");
ABSL_FLAG(std::string, format, "criteo", "criteo or libsvm");
ABSL_FLAG(int64_t, rows, 300000, "lines to train on");
ABSL_FLAG(int64_t, eval_rows, 40000, "lines to evaluate on");
ABSL_FLAG(int64_t, files, 8, "train files");
ABSL_FLAG(int64_t, ids, 1000, "values of each categorical field");
ABSL_FLAG(double, zipf, 1.2, "popularity of the n-th value is n to the power of minus this");
ABSL_FLAG(double, positives, 0.25, "share of positives aimed at");
ABSL_FLAG(double, weight_scale, 0.3, "standard deviation of the weights of values");
ABSL_FLAG(double, vector_scale, 0.1, "standard deviation of the elements of their vectors");
ABSL_FLAG(uint64_t, seed, 1, "the same seed gives the same bytes");

namespace weir {
namespace {

constexpr char kUsage[] =
    "generate_ctr --output=DIR [--format=libsvm] [--rows=N] [--seed=S] ...\n"
    "\n"
    "Writes a click log in the Criteo text layout, or as libsvm, from a planted model, and prints the AUC\n"
    "that the model itself reaches on it.\n";

constexpr size_t kWritten = size_t{1} << 20;  // bytes a write
constexpr int kIntegers = 13;
constexpr int kCategoricals = 26;
constexpr int kWidth = 4;  // width of the planted vectors
constexpr double kMissing = 0.05;
constexpr int64_t kFirstValue = 1000;  // index in libsvm of the first categorical's first value

// Random numbers for one purpose: number i is a function of (seed, purpose, i).
class Random {
 public:
  Random(uint64_t seed, std::string_view purpose) : key_(StableHash(purpose) ^ MixId(seed)) {}
  double Uniform(uint64_t i, uint64_t j) const {  // [0, 1)
    const PhiloxBlock block = Philox(key_, i, j);
    return static_cast<double>((static_cast<uint64_t>(block.v[1]) << 32 | block.v[0]) >> 11) * 0x1p-53;
  }
  double Gaussian(uint64_t i, uint64_t j) const {  // Box and Muller
    const PhiloxBlock block = Philox(key_, i, j);
    const double u = (block.v[0] + 1.0) * 0x1p-32;
    const double angle = 2 * std::numbers::pi * (block.v[1] * 0x1p-32);
    return std::sqrt(-2 * std::log(u)) * std::cos(angle);
  }

 private:
  uint64_t key_;
};

struct Config {
  std::string output;
  bool libsvm;
  int64_t rows, eval_rows, files, ids;
  double zipf, positives, weight_scale, vector_scale;
  uint64_t seed;
  std::string suffix() const { return libsvm ? ".libsvm" : ".tsv"; }
};

// One example: its text without the label, and its logit without the bias.
struct Row {
  std::string fields;
  double logit = 0;
};

class Generator {
 public:
  explicit Generator(const Config& config)
      : config_(config),
        rows_(config.seed, "rows"),
        labels_(config.seed, "labels"),
        popularity_(static_cast<size_t>(config.ids)) {
    double sum = 0;
    for (int64_t n = 0; n < config.ids; ++n) {
      sum += std::pow(static_cast<double>(n + 1), -config.zipf);
      popularity_[static_cast<size_t>(n)] = sum;
    }
    for (double& p : popularity_) p /= sum;
    const Random planted(config.seed, "planted model");
    values_.resize(static_cast<size_t>(kCategoricals * config.ids));
    for (uint64_t v = 0; v < values_.size(); ++v) {
      values_[v].weight = config.weight_scale * planted.Gaussian(v, 0);
      for (int k = 0; k < kWidth; ++k) {
        values_[v].vector[static_cast<size_t>(k)] =
            config.vector_scale * planted.Gaussian(v, static_cast<uint64_t>(k) + 1);
      }
    }
    for (size_t i = 0; i < kIntegers; ++i) slopes_[i] = 0.1 * planted.Gaussian(i, 1000);
    bias_ = FindBias();
  }

  // Makes row `n`. Rows for evaluation are numbered after those for training.
  Row Make(uint64_t n) const {
    Row row;
    AddIntegers(n, &row);
    AddCategoricals(n, &row);
    return row;
  }
  double Probability(const Row& row) const { return 1 / (1 + std::exp(-bias_ - row.logit)); }
  bool Label(uint64_t n, const Row& row) const { return labels_.Uniform(n, 0) < Probability(row); }

 private:
  struct Value {
    double weight;
    std::array<double, kWidth> vector;
  };

  void AddIntegers(uint64_t n, Row* row) const {
    for (size_t i = 0; i < kIntegers; ++i) {
      if (!config_.libsvm) row->fields += '\t';
      if (rows_.Uniform(n, 3 * i) < kMissing) continue;
      const double x = std::floor(std::exp(1.2 * rows_.Gaussian(n, 3 * i + 1) + 1));
      if (config_.libsvm) absl::StrAppend(&row->fields, " ", i + 1, ":");
      absl::StrAppend(&row->fields, static_cast<int64_t>(x));
      row->logit += slopes_[i] * (std::log1p(x) - 1.3);  // 1.3 is about its mean
    }
  }

  void AddCategoricals(uint64_t n, Row* row) const {
    std::array<double, kWidth> sum = {};
    double squares = 0;
    for (uint64_t c = 0; c < kCategoricals; ++c) {
      if (!config_.libsvm) row->fields += '\t';
      if (rows_.Uniform(n, 1000 + 2 * c) < kMissing) continue;
      const double u = rows_.Uniform(n, 1001 + 2 * c);
      const int64_t rank = std::min<int64_t>(
          std::upper_bound(popularity_.begin(), popularity_.end(), u) - popularity_.begin(), config_.ids - 1);
      if (config_.libsvm) {
        absl::StrAppend(&row->fields, " ", kFirstValue + static_cast<int64_t>(c) * config_.ids + rank, ":1");
      } else {
        // An odd factor permutes 32-bit numbers, so two values of a field never share their eight digits.
        const uint32_t id = static_cast<uint32_t>(rank) * 2654435761u + static_cast<uint32_t>(c) * 40503u;
        absl::StrAppend(&row->fields, absl::Hex(id, absl::kZeroPad8));
      }
      const Value& value = values_[static_cast<size_t>(static_cast<int64_t>(c) * config_.ids + rank)];
      row->logit += value.weight;
      for (size_t k = 0; k < kWidth; ++k) {
        sum[k] += value.vector[k];
        squares += value.vector[k] * value.vector[k];
      }
    }
    double square_of_sum = 0;
    for (const double s : sum) square_of_sum += s * s;
    row->logit += 0.5 * (square_of_sum - squares);
  }

  // Finds the bias at which the mean probability of a sample of rows is the wanted share of positives.
  double FindBias() const {
    std::vector<double> logits;
    for (uint64_t n = 0; n < 20000; ++n) logits.push_back(Make(n).logit);
    double low = -40;
    double high = 40;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      double sum = 0;
      for (const double logit : logits) sum += 1 / (1 + std::exp(-middle - logit));
      (sum < config_.positives * static_cast<double>(logits.size()) ? low : high) = middle;
    }
    return (low + high) / 2;
  }

  const Config config_;
  const Random rows_;
  const Random labels_;
  std::vector<double> popularity_;  // cumulative
  std::vector<Value> values_;       // [field][rank]
  std::array<double, kIntegers> slopes_ = {};
  double bias_ = 0;
};

// Computes the AUC of (score, label) pairs: the share of pairs in right order, ties counted half.
double Auc(std::vector<std::pair<double, bool>> scored) {
  std::sort(scored.begin(), scored.end());
  double right = 0, positives = 0, negatives = 0;
  for (size_t begin = 0; begin < scored.size();) {
    size_t end = begin;
    double p = 0;
    for (; end < scored.size() && scored[end].first == scored[begin].first; ++end) p += scored[end].second;
    const double n = static_cast<double>(end - begin) - p;
    right += p * (negatives + n / 2);
    positives += p;
    negatives += n;
    begin = end;
  }
  return positives * negatives == 0 ? 0.5 : right / (positives * negatives);
}

// Writes rows [begin, end) to one file, which gets its name when it is complete.
absl::Status WriteRows(const Generator& generator, const std::string& path, int64_t begin, int64_t end,
                       int64_t* positives, std::vector<std::pair<double, bool>>* scored) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  std::string lines;
  for (int64_t n = begin; n < end; ++n) {
    const Row row = generator.Make(static_cast<uint64_t>(n));
    const bool label = generator.Label(static_cast<uint64_t>(n), row);
    lines += label ? '1' : '0';
    lines.append(row.fields).push_back('\n');
    if (lines.size() >= kWritten) {
      RETURN_IF_ERROR(file->Append(lines));
      lines.clear();
    }
    *positives += label;
    if (scored != nullptr) scored->emplace_back(row.logit, label);
  }
  RETURN_IF_ERROR(file->Append(lines));
  return file->Commit();
}

// Removes files of an earlier run that had more of them, since train-*.tsv would match both data sets.
absl::Status RemoveLaterFiles(const std::string& directory, int64_t files, const std::string& suffix) {
  std::error_code error;
  std::vector<std::filesystem::path> stale;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const absl::string_view digits = absl::StripSuffix(absl::StripPrefix(name, "train-"), suffix);
    int64_t i = 0;
    if (absl::SimpleAtoi(digits, &i) && i >= files && name == absl::StrCat("train-", i, suffix)) {
      stale.push_back(entry.path());
    }
  }
  for (const std::filesystem::path& path : stale) {
    if (!error) std::filesystem::remove(path, error);
  }
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot remove older files of ", directory, ": ", error.message()));
}

absl::Status Check(const Config& config) {
  if (config.output.empty()) return absl::InvalidArgumentError("--output must name a directory");
  if (config.rows < 1 || config.eval_rows < 1 || config.files < 1 || config.files > config.rows) {
    return absl::InvalidArgumentError("--rows, --eval_rows and --files must be positive, and --files at most --rows");
  }
  if (config.ids < 1 || config.ids > 100'000'000) return absl::InvalidArgumentError("--ids must be in 1..100000000");
  if (!(config.positives > 0 && config.positives < 1))
    return absl::InvalidArgumentError("--positives must be between 0 and 1");
  return absl::OkStatus();
}

absl::Status Write(const Config& config) {
  RETURN_IF_ERROR(Check(config));
  std::error_code error;
  std::filesystem::create_directories(config.output, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("cannot make ", config.output, ": ", error.message()));
  RETURN_IF_ERROR(RemoveLaterFiles(config.output, config.files, config.suffix()));
  const Generator generator(config);
  int64_t train_positives = 0;
  for (int64_t f = 0; f < config.files; ++f) {
    RETURN_IF_ERROR(WriteRows(generator, absl::StrCat(config.output, "/train-", f, config.suffix()),
                              config.rows * f / config.files, config.rows * (f + 1) / config.files, &train_positives,
                              nullptr));
  }
  int64_t eval_positives = 0;
  std::vector<std::pair<double, bool>> scored;
  RETURN_IF_ERROR(WriteRows(generator, absl::StrCat(config.output, "/eval", config.suffix()), config.rows,
                            config.rows + config.eval_rows, &eval_positives, &scored));
  absl::PrintF("rows=%d eval_rows=%d positives=%.4f eval_positives=%.4f possible_auc=%.4f\n", config.rows,
               config.eval_rows, static_cast<double>(train_positives) / static_cast<double>(config.rows),
               static_cast<double>(eval_positives) / static_cast<double>(config.eval_rows), Auc(std::move(scored)));
  return absl::OkStatus();
}

absl::Status Generate() {
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format != "criteo" && format != "libsvm") {
    return absl::InvalidArgumentError(absl::StrCat("--format must be criteo or libsvm, got '", format, "'"));
  }
  return Write({.output = absl::GetFlag(FLAGS_output),
                .libsvm = format == "libsvm",
                .rows = absl::GetFlag(FLAGS_rows),
                .eval_rows = absl::GetFlag(FLAGS_eval_rows),
                .files = absl::GetFlag(FLAGS_files),
                .ids = absl::GetFlag(FLAGS_ids),
                .zipf = absl::GetFlag(FLAGS_zipf),
                .positives = absl::GetFlag(FLAGS_positives),
                .weight_scale = absl::GetFlag(FLAGS_weight_scale),
                .vector_scale = absl::GetFlag(FLAGS_vector_scale),
                .seed = absl::GetFlag(FLAGS_seed)});
}

absl::Status Run(int argc, char** argv) {
  ASSIGN_OR_RETURN(const CommandLine line, ParseCommandLine(argc, argv));
  if (line.help) {
    std::cout << HelpText(kUsage, /*reads_job=*/false);
    return absl::OkStatus();
  }
  if (!line.rest.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("'", line.rest[0], "' is no flag; --help lists them"));
  }
  if (!line.overrides.empty()) return absl::InvalidArgumentError("--set is no flag of generate_ctr");
  return Generate();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  const absl::Status status = weir::Run(argc, argv);
  if (!status.ok()) std::cerr << "generate_ctr: " << status.message() << "\n";
  return weir::EndWithOutput("generate_ctr", weir::ExitCodeOf(status));
}
