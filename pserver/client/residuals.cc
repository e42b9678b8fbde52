#include "pserver/client/residuals.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/wire/codecs.h"
#include "glog/logging.h"
#include "google/protobuf/io/coded_stream.h"

namespace weir {

namespace {

// A residual that is not beyond it is always added: it may be the sum of gradients that are too small for their format.
constexpr float kLargeResidual = 0x1p-10f;

// A gradient and its residual, or the gradient alone if their sum is none.
float WithResidual(float value, float left) {
  const float sum = value + left;
  return std::isfinite(sum) ? sum : value;
}

// Adds the residuals of a group, but for those that are left from gradients of another size.
void AddResiduals(const float* left, size_t n, float* values) {
  const auto is_large = [](float residual) { return std::abs(residual) > kLargeResidual; };
  float most = std::numeric_limits<float>::max();
  if (std::any_of(left, left + n, is_large)) {
    most = kLargeResidual;
    for (size_t i = 0; i < n; ++i) most = std::isfinite(values[i]) ? std::max(most, std::abs(values[i])) : most;
  }
  for (size_t i = 0; i < n; ++i) values[i] = std::abs(left[i]) <= most ? WithResidual(values[i], left[i]) : values[i];
}

}  // namespace

std::string Residuals::EncodeAndSubtract(const std::string& name, absl::Span<float> values, size_t group,
                                         v1::WireFormat format, char* out) {
  const size_t large = format == v1::WIRE_FLOAT16 ? CountBeyondFloat16(values.data(), values.size()) : 0;
  // Kept between calls to avoid allocation; safe because nothing below calls back into this function.
  static thread_local std::vector<float> sent;
  sent.resize(values.size());
  std::string exponents;
  if (large == 0) {
    Encode(format, values.data(), values.size(), group, out);
    Decode(format, out, values.size(), group, sent.data());
  } else {
    exponents = EncodeWithExponents(values.data(), values.size(), group, out);
    DecodeWithExponents(out, values.size(), group, exponents, sent.data());
    MutexLock lock(&mu_);
    if (large_.count == 0) large_.first = name;
    large_.count += static_cast<int64_t>(large);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const float lost = values[i] - sent[i];
    values[i] = std::isfinite(lost) ? lost : 0;
  }
  return exponents;
}

Residuals::Rows::Rows(int w, size_t bytes) : width(w), locks(std::make_unique<Mutex[]>(kLocks)) {
  const size_t row = sizeof(int64_t) + 1 + static_cast<size_t>(w) * sizeof(float);
  const size_t places = std::clamp<size_t>(bytes / row, 1, UINT32_MAX);
  ids.resize(places);
  used.resize(places);
  left.resize(places * static_cast<size_t>(w));
}

size_t Residuals::Rows::Place(int64_t id) const {
  return static_cast<size_t>((MixId(static_cast<uint64_t>(id)) >> 32) * ids.size() >> 32);
}

float* Residuals::Rows::Of(int64_t id, size_t place) {
  float* const row = left.data() + place * static_cast<size_t>(width);
  if (used[place] == 0 || ids[place] != id) {
    std::fill_n(row, width, 0.0f);
    ids[place] = id;
    used[place] = 1;
  }
  return row;
}

Residuals::Dense* Residuals::DenseOf(const std::string& block, const LaneRange& node, int64_t count) {
  MutexLock lock(&mu_);
  std::unique_ptr<Dense>& dense = dense_[{block, {node.begin, node.count}}];
  if (dense == nullptr || dense->left.size() != static_cast<size_t>(count)) {
    dense = std::make_unique<Dense>();
    dense->left.resize(static_cast<size_t>(count));
  }
  return dense.get();
}

Residuals::Rows* Residuals::RowsOf(const std::string& table, const LaneRange& node, int width) {
  MutexLock lock(&mu_);
  std::unique_ptr<Rows>& rows = rows_[{table, {node.begin, node.count}}];
  if (rows == nullptr || rows->width != width) rows = std::make_unique<Rows>(width, row_bytes_);
  return rows.get();
}

std::string Residuals::EncodeDense(const std::string& block, const LaneRange& node, int64_t count, int64_t begin,
                                   absl::Span<float> values, v1::WireFormat format, char* out) {
  Dense* const dense = DenseOf(block, node, count);
  float* const left = dense->left.data() + begin;
  DenseBefore before = {dense, static_cast<size_t>(begin), std::vector<float>(left, left + values.size())};
  for (size_t i = 0; i < values.size(); i += kDenseGroup) {
    AddResiduals(left + i, std::min(kDenseGroup, values.size() - i), values.data() + i);
  }
  std::string exponents = EncodeAndSubtract(block, values, kDenseGroup, format, out);
  std::copy(values.begin(), values.end(), left);
  MutexLock lock(&mu_);
  dense_before_.push_back(std::move(before));
  return exponents;
}

Residuals::RowsBefore Residuals::TakeSpare() {
  MutexLock lock(&mu_);
  if (spare_.empty()) return {};
  RowsBefore taken = std::move(spare_.back());
  spare_.pop_back();
  taken.places.clear();
  taken.ids.clear();
  taken.used.clear();
  taken.left.clear();
  return taken;
}

std::string Residuals::EncodeRows(const std::string& table, const LaneRange& node, int width,
                                  absl::Span<const int64_t> ids, const int64_t* before, absl::Span<float> values,
                                  v1::WireFormat format, char* out) {
  Rows& rows = *RowsOf(table, node, width);
  const size_t place_before = before == nullptr ? SIZE_MAX : rows.Place(*before);
  const size_t w = static_cast<size_t>(width);
  // Residuals are scattered in memory, so those of the next ids are prefetched while these are processed. Ids mostly
  // ascend by place, so one lock serves many.
  constexpr size_t kTogether = 16;
  const auto each = [&](const auto& see, const auto& fn) {
    size_t places[2][kTogether];
    const auto fetch = [&](size_t begin) {
      size_t* const to = places[begin / kTogether % 2];
      const size_t n = begin < ids.size() ? std::min(kTogether, ids.size() - begin) : 0;
      for (size_t i = 0; i < n; ++i) to[i] = rows.Place(ids[begin + i]);
      for (size_t i = 0; i < n; ++i) {
        __builtin_prefetch(&rows.ids[to[i]], 1, 2);
        __builtin_prefetch(&rows.used[to[i]], 1, 2);
        const float* const left = rows.left.data() + to[i] * w;
        for (size_t j = 0; j < w; j += 16) __builtin_prefetch(left + j, 1, 2);
        __builtin_prefetch(left + w - 1, 1, 2);
      }
      return n;
    };
    size_t n = fetch(0), last = place_before;
    for (size_t begin = 0; n > 0; begin += kTogether) {
      const size_t next = fetch(begin + kTogether);
      const size_t* const at = places[begin / kTogether % 2];
      for (size_t i = 0; i < n;) {
        const size_t stripe = at[i] * kLocks / rows.ids.size();
        MutexLock lock(&rows.locks[stripe]);
        do {
          // Another row has already used this place in this step; it keeps the residual.
          if (at[i] == last) continue;
          last = at[i];
          see(at[i]);
          fn(rows.Of(ids[begin + i], at[i]), values.data() + (begin + i) * w);
        } while (++i < n && at[i] * kLocks / rows.ids.size() == stripe);
      }
      n = next;
    }
  };
  RowsBefore was = TakeSpare();
  was.rows = &rows;
  const auto remember = [&](size_t place) {
    was.places.push_back(place);
    was.ids.push_back(rows.ids[place]);
    was.used.push_back(rows.used[place]);
    const float* const left = rows.left.data() + place * w;
    was.left.insert(was.left.end(), left, left + w);
  };
  each(remember, [w](const float* left, float* row) { AddResiduals(left, w, row); });
  std::string exponents = EncodeAndSubtract(table, values, w, format, out);
  each([](size_t) {}, [w](float* left, const float* row) { std::copy_n(row, w, left); });
  MutexLock lock(&mu_);
  rows_before_.push_back(std::move(was));
  return exponents;
}

void Residuals::Keep() {
  MutexLock lock(&mu_);
  dense_before_.clear();
  for (RowsBefore& was : rows_before_) spare_.push_back(std::move(was));
  rows_before_.clear();
}

void Residuals::Drop() {
  {
    MutexLock lock(&mu_);
    for (const DenseBefore& was : dense_before_) {
      std::copy(was.left.begin(), was.left.end(), was.dense->left.begin() + static_cast<ptrdiff_t>(was.begin));
    }
    // Undo in reverse order: if a place was used twice, the first record has its value from before the step.
    for (auto it = rows_before_.rbegin(); it != rows_before_.rend(); ++it) {
      const RowsBefore& was = *it;
      const size_t w = static_cast<size_t>(was.rows->width);
      for (size_t i = was.places.size(); i-- > 0;) {
        const size_t place = was.places[i];
        was.rows->ids[place] = was.ids[i];
        was.rows->used[place] = was.used[i];
        std::copy_n(was.left.data() + i * w, w, was.rows->left.data() + place * w);
      }
    }
  }
  Keep();
}

absl::Status Residuals::Save(int64_t step, const std::function<absl::Status(const v1::Residual&)>& take) const {
  const auto message = [step](const Key& key, int width) {
    v1::Residual of;
    of.set_name(key.first);
    of.set_lane(key.second.first);
    of.set_lanes(key.second.second);
    of.set_width(width);
    of.set_step(step);
    return of;
  };
  // The entries outlive this call, so mu_ need not be held while `take` writes.
  std::vector<std::pair<const Key*, const Dense*>> dense;
  std::vector<std::pair<const Key*, const Rows*>> rows;
  {
    MutexLock lock(&mu_);
    for (const auto& [key, of] : dense_) dense.emplace_back(&key, of.get());
    for (const auto& [key, of] : rows_) rows.emplace_back(&key, of.get());
  }
  const size_t floats = std::max<size_t>(1, message_bytes_ / sizeof(float));
  for (const auto& [key, of] : dense) {
    for (size_t begin = 0; begin < of->left.size(); begin += floats) {
      v1::Residual piece = message(*key, 0);
      if (begin > 0) piece.set_begin(static_cast<int64_t>(begin));
      const float* const from = of->left.data() + begin;
      piece.mutable_values()->Add(from, from + std::min(floats, of->left.size() - begin));
      RETURN_IF_ERROR(take(piece));
    }
  }
  for (const auto& [key, of] : rows) {
    v1::Residual piece = message(*key, of->width);
    for (size_t place = 0; place < of->ids.size(); ++place) {
      const float* const row = of->left.data() + place * static_cast<size_t>(of->width);
      if (of->used[place] == 0 || std::all_of(row, row + of->width, [](float v) { return v == 0; })) continue;
      if (static_cast<size_t>(piece.values_size()) >= floats) {
        RETURN_IF_ERROR(take(piece));
        piece = message(*key, of->width);
      }
      piece.add_ids(of->ids[place]);
      piece.mutable_values()->Add(row, row + of->width);
    }
    if (piece.ids_size() > 0) RETURN_IF_ERROR(take(piece));
  }
  return absl::OkStatus();
}

absl::Status Residuals::Restore(const v1::Residual& of, absl::Span<const LaneRange> nodes, int64_t step) {
  const size_t width = static_cast<size_t>(std::max(0, of.width()));
  const size_t values = static_cast<size_t>(of.values_size());
  if (of.width() < 0 || of.begin() < 0 || (width > 0 && of.begin() > 0) ||
      (width > 0 && (values / width != static_cast<size_t>(of.ids_size()) || values % width != 0))) {
    return absl::InvalidArgumentError(absl::StrCat("residuals of ", of.name(), ": ", of.values_size(), " values for ",
                                                   of.ids_size(), " ids of width ", of.width()));
  }
  const LaneRange node{of.lane(), of.lanes()};
  if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) return absl::OkStatus();
  if (width == 0) {
    if (of.has_step() && of.step() != step) return absl::OkStatus();
    MutexLock lock(&mu_);
    std::unique_ptr<Dense>& dense = dense_[{of.name(), {node.begin, node.count}}];
    if (dense == nullptr || of.begin() == 0) dense = std::make_unique<Dense>();
    if (static_cast<size_t>(of.begin()) != dense->left.size()) {
      return absl::InvalidArgumentError(absl::StrCat("residuals of ", of.name(), ": values from element ", of.begin(),
                                                     " on come behind those of ", dense->left.size()));
    }
    dense->left.insert(dense->left.end(), of.values().begin(), of.values().end());
    return absl::OkStatus();
  }
  // Avoids creating a table of residuals for a message without rows.
  if (of.ids_size() == 0) return absl::OkStatus();
  Rows& rows = *RowsOf(of.name(), node, of.width());
  for (int i = 0; i < of.ids_size(); ++i) {
    const size_t place = rows.Place(of.ids(i));
    MutexLock lock(&rows.locks[place * kLocks / rows.ids.size()]);
    float* const left = rows.Of(of.ids(i), place);
    std::copy_n(of.values().data() + static_cast<size_t>(i) * width, width, left);
  }
  return absl::OkStatus();
}

size_t Residuals::bytes() const {
  MutexLock lock(&mu_);
  size_t sum = 0;
  for (const auto& [key, dense] : dense_) sum += dense->left.size() * sizeof(float);
  for (const auto& [key, rows] : rows_)
    sum += rows->ids.size() * (sizeof(int64_t) + 1) + rows->left.size() * sizeof(float);
  return sum;
}

namespace {

using google::protobuf::io::CodedInputStream;

constexpr uint32_t kElementTag = v1::Residuals::kResidualsFieldNumber << 3 | 2;

}  // namespace

std::string ResidualElement(const v1::Residual& residual) {
  // Serialization cannot fail: one Residual has a few MiB, far below protobuf's limit of 2 GiB.
  v1::Residuals all;
  *all.add_residuals() = residual;
  std::string element;
  CHECK(all.SerializeToString(&element));
  return element;
}

absl::Status ResidualReader::Append(std::string_view bytes) {
  rest_.append(bytes);
  size_t at = 0;
  while (at < rest_.size()) {
    const size_t left = std::min<size_t>(rest_.size() - at, INT_MAX);
    CodedInputStream in(reinterpret_cast<const uint8_t*>(rest_.data()) + at, static_cast<int>(left));
    uint32_t tag = 0, size = 0;
    if (!in.ReadVarint32(&tag) || !in.ReadVarint32(&size)) {
      // Tag and length take at most 10 bytes; with fewer bytes left the rest may still arrive.
      if (left <= 10) break;
      return absl::DataLossError("residuals: bytes that are none");
    }
    if (tag != kElementTag || size > INT_MAX)
      return absl::DataLossError(absl::StrCat("residuals: a field with tag ", tag));
    const size_t head = static_cast<size_t>(in.CurrentPosition());
    if (left - head < size) break;
    v1::Residual residual;
    if (!residual.ParseFromArray(rest_.data() + at + head, static_cast<int>(size))) {
      return absl::DataLossError("residuals: an element that is none");
    }
    RETURN_IF_ERROR(take_(residual, std::string_view(rest_).substr(at, head + size)));
    at += head + size;
  }
  rest_.erase(0, at);
  return absl::OkStatus();
}

absl::Status ResidualReader::Finish() const {
  if (rest_.empty()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("residuals: they end within an element, ", rest_.size(), " bytes behind its beginning"));
}

}  // namespace weir
