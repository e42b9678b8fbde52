#include "trainer/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_view.h"
#include "framework/runtime/lane_tree.h"

namespace weir {
namespace {

absl::StatusOr<double> LabelAt(const Tensor& label, int64_t i) {
  if (label.dtype() == v1::INT64) return static_cast<double>(label.data<int64_t>()[i]);
  if (label.dtype() == v1::FLOAT32) return label.data<float>()[i];
  return absl::InvalidArgumentError(
      absl::StrCat("label is ", v1::DType_Name(label.dtype()), ", expected FLOAT32 or INT64"));
}

int BucketOf(float p) {
  // NaN and everything below 0 count as 0.
  if (!(p > 0)) return 0;
  return std::min<int64_t>(static_cast<int64_t>(std::min(p, 1.0f) * Metrics::kBuckets), Metrics::kBuckets - 1);
}

void Put(std::string* out, int64_t v) { out->append(reinterpret_cast<const char*>(&v), sizeof v); }
void Put(std::string* out, double v) { out->append(reinterpret_cast<const char*>(&v), sizeof v); }

// Largest count of examples in a message: sums over a few thousand trainers stay within int64.
constexpr int64_t kMostExamples = int64_t{1} << 48;
bool CanBeCount(int64_t n) { return n >= 0 && n <= kMostExamples; }

class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  bool Get(T* v) {
    if (bytes_.size() < sizeof *v) return false;
    std::memcpy(v, bytes_.data(), sizeof *v);
    bytes_.remove_prefix(sizeof *v);
    return true;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

}  // namespace

std::vector<Figure> MetricResult::All() const {
  std::vector<Figure> all;
  const auto add = [&](Figure figure) {
    if (!HasFigure(figure.name)) all.push_back(std::move(figure));
  };
  add({.name = "loss", .value = loss, .lower_is_better = true});
  switch (kind) {
    case v1::LossDesc::BINARY:
      if (!has_label) break;
      add({.name = "auc",
           .value = auc,
           .undefined = positives == 0 ? "no example has label 1" : "every example has label 1"});
      break;
    case v1::LossDesc::MULTI_CLASS:
      add({.name = "accuracy", .value = accuracy});
      break;
    case v1::LossDesc::REGRESSION:
      // A prediction of several numbers has no distance.
      if (std::isnan(rmse)) break;
      add({.name = "rmse", .value = rmse, .lower_is_better = true});
      add({.name = "mae", .value = mae, .lower_is_better = true});
      break;
  }
  all.insert(all.end(), figures.begin(), figures.end());
  return all;
}

std::string MetricResult::ToString() const {
  if (samples == 0) return "(loss is undefined: there are no examples)";
  std::vector<std::string> figures, notes;
  for (const Figure& figure : All()) {
    if (std::isnan(figure.value) && figure.name != "loss") {
      notes.push_back(absl::StrCat(" (", figure.name, " is undefined: ", figure.undefined, ")"));
      continue;
    }
    figures.push_back(FigureText(figure));
    // The job's own auc is exact.
    const bool in_buckets = figure.name == "auc" && kind == v1::LossDesc::BINARY && !HasFigure("auc");
    if (in_buckets) figures.push_back(absl::StrFormat("auc_error=%.1e", auc_error));
  }
  return absl::StrCat(absl::StrJoin(figures, " "), absl::StrJoin(notes, ""));
}

std::optional<double> MetricResult::RankBy(std::string_view name) const {
  if (samples == 0) return std::nullopt;
  const std::string_view wanted = !name.empty() ? name : DefaultFigure();
  for (const Figure& figure : All()) {
    if (figure.name != wanted) continue;
    if (!std::isfinite(figure.value)) return std::nullopt;
    return figure.lower_is_better ? -figure.value : figure.value;
  }
  return std::nullopt;
}

bool MetricResult::HasFigure(std::string_view name) const {
  return std::any_of(figures.begin(), figures.end(), [&](const Figure& figure) { return figure.name == name; });
}

bool HasLabel(const v1::ProgramDesc& program, const v1::LossDesc& loss) {
  if (program.blocks_size() == 0) return true;
  const auto& ops = program.blocks(0).ops();
  return std::none_of(ops.begin(), ops.end(), [&](const v1::OpDesc& op) {
    return op.type() == "fill_like_batch" && OutputOf(op, "Out") == loss.label();
  });
}

Metrics::LaneSums* Metrics::Lane(int lane) {
  auto it = std::lower_bound(lanes_.begin(), lanes_.end(), lane, [](const LaneSums& s, int l) { return s.lane < l; });
  if (it == lanes_.end() || it->lane != lane) it = lanes_.insert(it, LaneSums{.lane = lane});
  return &*it;
}

absl::Status Metrics::Add(int lane, const Tensor& loss, const Tensor& prediction, const Tensor& label) {
  // A scalar is the mean over the examples, whose number is the size of the label.
  const bool scalar = loss.rank() == 0 && loss.size() == 1;
  const int64_t n = scalar ? label.size() : loss.size();
  if (n == 0) return absl::OkStatus();
  const int64_t classes = prediction.size() / n;
  // A label for each example, or for each of its numbers.
  if ((label.size() != n && label.size() != prediction.size()) || classes * n != prediction.size() || classes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("loss ", ShapeString(loss.dims()), ", prediction ",
                                                   ShapeString(prediction.dims()), " and label ",
                                                   ShapeString(label.dims()), " are not of the same examples"));
  }
  LaneSums* sums = Lane(lane);
  const float* losses = loss.data<float>();
  if (scalar) {
    sums->loss += static_cast<double>(losses[0]) * static_cast<double>(n);
    if (!std::isfinite(losses[0])) not_finite_ += n;
  } else {
    for (int64_t i = 0; i < n; ++i) {
      sums->loss += losses[i];
      not_finite_ += std::isfinite(losses[i]) ? 0 : 1;
    }
  }
  sums->samples += n;
  const float* p = prediction.data<float>();
  if (kind_ == v1::LossDesc::BINARY) {
    positives_.resize(kBuckets);
    negatives_.resize(kBuckets);
    if (label.size() != prediction.size()) {
      return absl::InvalidArgumentError(absl::StrCat("label ", ShapeString(label.dims()),
                                                     " is not one for each number of "
                                                     "prediction ",
                                                     ShapeString(prediction.dims())));
    }
    for (int64_t i = 0; i < label.size(); ++i) {
      ASSIGN_OR_RETURN(const double truth, LabelAt(label, i));
      if (std::isnan(truth)) continue;  // Loss.label_may_be_missing
      ++(truth >= 0.5 ? positives_ : negatives_)[BucketOf(p[i])];
    }
  } else if (kind_ == v1::LossDesc::MULTI_CLASS) {
    for (int64_t i = 0; i < n; ++i) {
      ASSIGN_OR_RETURN(const double truth, LabelAt(label, i));
      const float* row = p + i * classes;
      sums->correct += std::max_element(row, row + classes) - row == static_cast<int64_t>(truth);
    }
  } else if (classes != 1) {
    sums->squares = sums->distances = std::numeric_limits<double>::quiet_NaN();
  } else {
    for (int64_t i = 0; i < n; ++i) {
      ASSIGN_OR_RETURN(const double truth, LabelAt(label, i));
      const double error = p[i] - truth;
      sums->squares += error * error;
      sums->distances += std::fabs(error);
    }
  }
  return absl::OkStatus();
}

void Metrics::Clear() {
  not_finite_ = 0;
  lanes_.clear();
  positives_.clear();
  negatives_.clear();
}

std::string Metrics::Serialize() const {
  std::string out;
  Put(&out, static_cast<int64_t>(lanes_.size()));
  for (const LaneSums& s : lanes_) {
    Put(&out, static_cast<int64_t>(s.lane));
    Put(&out, s.loss);
    Put(&out, s.samples);
    Put(&out, s.correct);
    if (kind_ != v1::LossDesc::REGRESSION) continue;
    Put(&out, s.squares);
    Put(&out, s.distances);
  }
  for (size_t b = 0; b < positives_.size(); ++b) {
    if (positives_[b] == 0 && negatives_[b] == 0) continue;
    Put(&out, static_cast<int64_t>(b));
    Put(&out, positives_[b]);
    Put(&out, negatives_[b]);
  }
  return out;
}

absl::Status Metrics::MergeSerialized(std::string_view bytes, int64_t not_finite) {
  const absl::Status bad = absl::DataLossError("metrics of a trainer cannot be read: the bytes are cut or not metrics");
  Metrics other(kind_, has_label_);
  Cursor in(bytes);
  int64_t lanes = 0;
  if (!in.Get(&lanes) || !CanBeCount(not_finite)) return bad;
  for (int64_t i = 0; i < lanes; ++i) {
    int64_t lane = 0, samples = 0, correct = 0;
    double loss = 0, squares = 0, distances = 0;
    if (!in.Get(&lane) || !in.Get(&loss) || !in.Get(&samples) || !in.Get(&correct)) return bad;
    if (kind_ == v1::LossDesc::REGRESSION && (!in.Get(&squares) || !in.Get(&distances))) return bad;
    if (lane < 0 || lane > (1 << 24) || !CanBeCount(samples) || !CanBeCount(correct)) return bad;
    *other.Lane(static_cast<int>(lane)) = {static_cast<int>(lane), loss, samples, correct, squares, distances};
  }
  for (int64_t last = -1; !in.empty();) {
    int64_t bucket = 0, positives = 0, negatives = 0;
    if (!in.Get(&bucket) || !in.Get(&positives) || !in.Get(&negatives)) return bad;
    if (bucket <= last || bucket >= kBuckets || !CanBeCount(positives) || !CanBeCount(negatives)) return bad;
    other.positives_.resize(kBuckets);
    other.negatives_.resize(kBuckets);
    other.positives_[bucket] = positives;
    other.negatives_[bucket] = negatives;
    last = bucket;
  }
  not_finite_ += not_finite;
  for (const LaneSums& s : other.lanes_) {
    LaneSums* mine = Lane(s.lane);
    mine->loss += s.loss;
    mine->samples += s.samples;
    mine->correct += s.correct;
    mine->squares += s.squares;
    mine->distances += s.distances;
  }
  if (!other.positives_.empty()) {
    positives_.resize(kBuckets);
    negatives_.resize(kBuckets);
    for (int b = 0; b < kBuckets; ++b) {
      positives_[b] += other.positives_[b];
      negatives_[b] += other.negatives_[b];
    }
  }
  return absl::OkStatus();
}

MetricResult Metrics::Result() const {
  MetricResult result{.not_finite = not_finite_, .kind = kind_, .has_label = has_label_};
  std::vector<double> loss, squares, distances;
  std::vector<LaneRange> nodes;
  int64_t correct = 0;
  for (const LaneSums& s : lanes_) {
    result.samples += s.samples;
    correct += s.correct;
    nodes.push_back({s.lane, 1});
    loss.push_back(s.loss);
    squares.push_back(s.squares);
    distances.push_back(s.distances);
  }
  if (result.samples == 0) {
    result.auc = std::numeric_limits<double>::quiet_NaN();
    return result;
  }
  for (const LaneAdd& add : TreeAdds(nodes, nodes.back().begin + 1)) {
    for (std::vector<double>* sums : {&loss, &squares, &distances}) (*sums)[add.left] += (*sums)[add.right];
  }
  result.rmse = std::sqrt(squares[0] / static_cast<double>(result.samples));
  result.mae = distances[0] / static_cast<double>(result.samples);
  result.loss = loss[0] / static_cast<double>(result.samples);
  result.accuracy = static_cast<double>(correct) / static_cast<double>(result.samples);
  // 128 bits, since the pairs of 10^11 examples do not fit into 64.
  __int128 twice_ordered = 0, within = 0;
  int64_t negatives_below = 0, positives = 0;
  for (size_t b = 0; b < positives_.size(); ++b) {
    twice_ordered +=
        static_cast<__int128>(positives_[b]) * (2 * static_cast<__int128>(negatives_below) + negatives_[b]);
    within += static_cast<__int128>(positives_[b]) * negatives_[b];
    negatives_below += negatives_[b];
    positives += positives_[b];
  }
  result.positives = positives;
  const double pairs = static_cast<double>(positives) * static_cast<double>(negatives_below);
  if (pairs == 0) {
    result.auc = std::numeric_limits<double>::quiet_NaN();
  } else {
    result.auc = static_cast<double>(twice_ordered) / 2 / pairs;
    result.auc_error = static_cast<double>(within) / 2 / pairs;
  }
  return result;
}

}  // namespace weir
