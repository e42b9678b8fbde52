#include "trainer/data/features.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/feature_id.h"
#include "framework/base/status_macros.h"
#include "framework/formats/float_bound.h"
#include "trainer/data/data_statistics.h"
#include "trainer/data/salt_ids.h"

namespace weir {
namespace {

struct Place {
  const Column* column = nullptr;
  int64_t begin = 0;  // first position in floats, or first slot
};

// Finds the column of that name and kind. InvalidArgument lists the existing columns.
absl::StatusOr<Place> Find(const std::vector<Column>& columns, const std::string& name, v1::VarKind kind,
                           const std::string& field) {
  int64_t begin = 0;
  std::vector<std::string> known;
  for (const Column& column : columns) {
    if (column.kind != kind) continue;
    if (column.name == name) return Place{&column, begin};
    known.push_back(column.name);
    begin += column.width;
  }
  const char* const what = kind == v1::IDS ? "ids" : "float";
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": the data has no ", what, " variable '", name, "'; it has ",
                   known.empty() ? absl::StrCat("no ", what, " variable") : absl::StrJoin(known, ", ")));
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::Status SetColumn(const v1::DenseTransform::Column& in, const std::string& field,
                       const std::vector<Column>& columns, const std::vector<std::string>& never,
                       std::vector<Features::Float>* floats) {
  ASSIGN_OR_RETURN(const Place place, Find(columns, in.variable(), v1::DENSE, absl::StrCat(field, ".variable")));
  if (in.index() < 0 || in.index() >= place.column->width) {
    return absl::InvalidArgumentError(absl::StrCat(field, ".index: '", in.variable(), "' has columns 0 to ",
                                                   place.column->width - 1, ", got ", in.index()));
  }
  if (Contains(never, in.variable())) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": '", in.variable(),
                     "' is never transformed: it is learned from the data, a loss reads it as a label, sample weight, ",
                     "length or probability, or data.dense.except names it; take it out of there, or name there only ",
                     "what is to stay as it is, or drop this column"));
  }
  const bool bucketize = in.transform() == v1::DenseTransform::BUCKETIZE;
  if (bucketize != (in.boundaries_size() > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ".boundaries: ", bucketize ? "BUCKETIZE needs at least one" : "only BUCKETIZE has boundaries"));
  }
  std::vector<float> boundaries;
  for (int i = 0; i < in.boundaries_size(); ++i) {
    boundaries.push_back(NearestFloat(in.boundaries(i)));
    if (i == 0 || boundaries[static_cast<size_t>(i) - 1] < boundaries.back()) continue;
    const double before = in.boundaries(i - 1), here = in.boundaries(i);
    return absl::InvalidArgumentError(
        before < here ? absl::StrCat(field, ".boundaries[", i, "]: ", SameFloats(before, here))
                      : absl::StrCat(field, ".boundaries: must ascend, got ", before, " before ", here));
  }
  (*floats)[static_cast<size_t>(place.begin + in.index())] = {in.transform(), std::move(boundaries)};
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Features> Features::Create(const DataSpec& spec, const LineParser& parser) {
  Features made;
  made.columns_ = parser.columns();
  made.missing_id_ = spec.config.ids().empty() == v1::IdTransform::MISSING_ID;
  const v1::DenseTransform& dense = spec.config.dense();
  for (const std::string& name : dense.except()) {
    RETURN_IF_ERROR(Find(made.columns_, name, v1::DENSE, "data.dense.except").status());
  }
  if (dense.transform() == v1::DenseTransform::BUCKETIZE) {
    return absl::InvalidArgumentError("data.dense.transform: BUCKETIZE needs boundaries; set it per data.dense.column");
  }
  for (const Column& column : made.columns_) {
    if (column.kind != v1::DENSE) {
      made.keeps_missing_.push_back(false);
      continue;
    }
    const bool never = column.learned || Contains(spec.never_transformed, column.name);
    made.keeps_missing_.push_back(Contains(spec.keeps_missing, column.name));
    made.floats_.resize(made.floats_.size() + static_cast<size_t>(column.width),
                        {never ? v1::DenseTransform::NONE : dense.transform()});
  }
  std::vector<std::string> never = spec.never_transformed;
  for (const Column& column : made.columns_) {
    if (column.learned && column.kind == v1::DENSE) never.push_back(column.name);
  }
  for (int i = 0; i < dense.column_size(); ++i) {
    RETURN_IF_ERROR(
        SetColumn(dense.column(i), absl::StrCat("data.dense.column[", i, "]"), made.columns_, never, &made.floats_));
  }
  for (const Float& f : made.floats_) made.standardizes_ |= f.transform == v1::DenseTransform::STANDARDIZE;
  for (const std::string& name : spec.required) {
    // The program's verifier reports a label that is an id or no data at all.
    const absl::StatusOr<Place> place = Find(made.columns_, name, v1::DENSE, "label");
    if (!place.ok()) continue;
    for (int64_t i = 0; i < place->column->width; ++i) made.required_.emplace_back(place->begin + i, name);
  }
  for (const LabelRange& range : spec.label_ranges) {
    const absl::StatusOr<Place> place = Find(made.columns_, range.variable, v1::DENSE, "label");
    if (!place.ok()) continue;
    for (int64_t at = place->begin; at < place->begin + place->column->width; ++at) {
      if (made.floats_[static_cast<size_t>(at)].transform == v1::DenseTransform::NONE) {
        made.label_ranges_.emplace_back(at, range);
      }
    }
  }
  std::vector<std::string> learned;  // variables of ids
  for (const Column& column : made.columns_) {
    if (column.learned && column.kind == v1::IDS && column.ids_of.empty()) learned.push_back(column.name);
  }
  std::vector<std::string> shared(spec.config.ids().shared().begin(), spec.config.ids().shared().end());
  for (const std::string& name : shared) {
    RETURN_IF_ERROR(Find(made.columns_, name, v1::IDS, "data.ids.shared").status());
  }
  for (const Column& column : made.columns_) {
    if (column.kind != v1::IDS) continue;
    const std::string& ids_of = column.ids_of.empty() ? column.name : column.ids_of;
    const bool is_shared = Contains(shared, ids_of);
    const auto padding = spec.padding_ids.find(column.name);
    for (const std::string& slot : column.slot_names) {
      const bool drawn = !column.ids_of.empty();
      made.slots_.push_back({.salt = SlotSalt(ids_of, is_shared ? "" : slot),
                             .shared = is_shared,
                             .counted = !drawn && !column.learned &&
                                        spec.uncounted_slots.count(absl::StrCat(column.name, "\n", slot)) == 0,
                             .learned = drawn ? Contains(learned, column.ids_of) : column.learned,
                             .padding = padding == spec.padding_ids.end() ? std::vector<int64_t>() : padding->second});
      made.salts_.push_back(made.slots_.back().salt);
      made.missing_ids_.push_back(MissingId(made.salts_.back()));
    }
  }
  made.FindPlainColumns();
  made.FindIdGroups();
  return made;
}

void Features::FindPlainColumns() {
  size_t position = 0, slot = 0;
  for (const Column& column : columns_) {
    bool plain = true;
    for (int64_t i = 0; i < column.width; ++i) {
      if (column.kind == v1::DENSE) {
        plain = plain && floats_[position++].transform == v1::DenseTransform::NONE;
      } else {
        plain = plain && !slots_[slot].shared && slots_[slot].padding.empty();
        ++slot;
      }
    }
    plain_.push_back(plain);
  }
}

void Features::FindIdGroups() {
  // Number of ids that the machine salts at once.
  constexpr size_t kWide = 8;
  size_t slot = 0;
  bool joins = false;  // the last group is of narrow plain columns
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].kind != v1::IDS) continue;
    const auto width = static_cast<size_t>(columns_[c].width);
    const bool narrow = plain_[c] && width < kWide;
    if (!joins || !narrow) id_groups_.push_back({.slot = slot, .plain = plain_[c]});
    joins = narrow;
    id_groups_.back().width += width;
    id_groups_.back().columns.push_back(c);
    slot += width;
  }
}

namespace {

float PlainLog1p(double x) { return static_cast<float>(std::copysign(std::log1p(std::fabs(x)), x)); }

// Returns log(1 + |x|) with the sign of x. Most values are small counts, which are looked up.
float Log1p(double x) {
  constexpr int kWhole = 1024;
  static const auto* const logarithms = [] {
    auto* made = new std::array<float, kWhole>();
    for (int i = 0; i < kWhole; ++i) (*made)[static_cast<size_t>(i)] = PlainLog1p(i);
    return made;
  }();
  const double magnitude = std::fabs(x);
  if (!(magnitude < kWhole)) return PlainLog1p(x);
  const int whole = static_cast<int>(magnitude);
  if (whole != magnitude) return PlainLog1p(x);
  return std::copysign((*logarithms)[static_cast<size_t>(whole)], static_cast<float>(x));
}

}  // namespace

float Features::Transform(size_t position, float x, const DataStatistics* statistics) const {
  if (std::isnan(x)) return 0;
  const double value = x;
  switch (floats_[position].transform) {
    case v1::DenseTransform::NONE:
      return x;
    case v1::DenseTransform::LOG1P:
      return Log1p(value);
    case v1::DenseTransform::STANDARDIZE: {
      const Moments& moments = statistics->moments()[position];
      return static_cast<float>((value - moments.mean) / moments.Deviation());
    }
    case v1::DenseTransform::BUCKETIZE: {
      const std::vector<float>& b = floats_[position].boundaries;
      return static_cast<float>(std::upper_bound(b.begin(), b.end(), x) - b.begin());
    }
  }
  return x;
}

int64_t Features::Id(const Slot& slot, int64_t raw, const DataStatistics* statistics) const {
  for (const int64_t padding : slot.padding) {
    if (raw == padding) return slot.shared ? raw : PaddingId(raw);
  }
  const int64_t salted = SaltId(slot.salt, raw);
  if (statistics != nullptr && !slot.learned && !statistics->Keeps(static_cast<uint64_t>(salted)))
    return RareId(slot.salt);
  return slot.shared ? raw : salted;
}

namespace {

template <typename T>
T Load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

int64_t IdAt(const Record::View& view, size_t i) {
  return view.wide ? Load<int64_t>(view.ids + i * 8) : Load<uint32_t>(view.ids + i * 4);
}

// Appends room for more values and returns its beginning.
int64_t* Extend(size_t more, std::vector<int64_t>* values) {
  values->resize(values->size() + more);
  return values->data() + values->size() - more;
}

}  // namespace

void Features::AddFloats(size_t begin, size_t width, bool plain, const char* in, const DataStatistics* statistics,
                         float* out) const {
  if (plain) {
    for (size_t i = 0; i < width; ++i) {
      const float x = Load<float>(in + i * sizeof(float));
      out[i] = std::isnan(x) ? 0 : x;
    }
    return;
  }
  for (size_t i = 0; i < width; ++i) out[i] = Transform(begin + i, Load<float>(in + i * sizeof(float)), statistics);
}

// Adds the ids of one slot, beginning with the record's `*id`-th.
void Features::AddSlot(size_t slot, const Record::View& view, size_t* id, const DataStatistics* statistics,
                       IdBatch* out) const {
  const uint16_t count = view.counts == nullptr ? 1 : Load<uint16_t>(view.counts + slot * sizeof(uint16_t));
  if (view.weights != nullptr && out->weights.empty()) out->weights.assign(out->values.size(), 1.0f);
  for (uint16_t i = 0; i < count; ++i, ++*id) {
    out->values.push_back(Id(slots_[slot], IdAt(view, *id), statistics));
    if (view.weights != nullptr) {
      out->weights.push_back(Load<float>(view.weights + *id * sizeof(float)));
    } else if (!out->weights.empty()) {
      out->weights.push_back(1.0f);
    }
  }
  if (count == 0 && missing_id_) {
    out->values.push_back(MissingId(slots_[slot].salt));
    if (view.weights != nullptr || !out->weights.empty()) out->weights.push_back(1.0f);
  }
  out->offsets.push_back(static_cast<int64_t>(out->values.size()));
}

// Returns the variable of a column of ids, without weights.
IdBatch& Features::IdsOf(size_t column, std::vector<Variable>* vars) const {
  Variable& var = (*vars)[column];
  if (!std::holds_alternative<IdBatch>(var)) var = IdBatch();
  IdBatch& ids = std::get<IdBatch>(var);
  ids.slots = columns_[column].width;
  ids.weights.clear();
  return ids;
}

// Returns whether every slot of a column gives one value: its id, or its missing id.
bool Features::OneValueEach(size_t begin, size_t width, const Record::View& view) const {
  if (view.weights != nullptr) return false;
  if (view.counts == nullptr) return true;
  uint16_t any = 0, all = 1;
  for (size_t s = begin; s < begin + width; ++s) {
    const uint16_t count = Load<uint16_t>(view.counts + s * sizeof(uint16_t));
    any |= count;
    all &= count;
  }
  return any <= 1 && (missing_id_ || all == 1);
}

// Writes those values, beginning with the record's `id`-th id. Returns how many ids there are.
size_t Features::SaltSlots(size_t begin, size_t width, const Record::View& view, size_t id, int64_t* values) const {
  const char* const ids = view.ids + id * (view.wide ? 8 : 4);
  if (view.counts != nullptr) {
    return SaltIdsOrMissing(salts_.data() + begin, missing_ids_.data() + begin, view.counts + begin * sizeof(uint16_t),
                            ids, view.wide, width, values);
  }
  SaltIds(salts_.data() + begin, ids, view.wide, width, values);
  return width;
}

// Makes plain columns side by side, of which every slot gives one value in every record: the common case.
void Features::MakeOneValueEach(const std::vector<Record>& records, size_t slot, absl::Span<const size_t> columns,
                                std::vector<size_t>* next, std::vector<Variable>* vars) const {
  // Destination of the next record's values, by column.
  std::vector<int64_t*> out(columns.size());
  size_t width = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto of_column = static_cast<size_t>(columns_[columns[i]].width);
    width += of_column;
    IdBatch& ids = IdsOf(columns[i], vars);
    const size_t all = records.size() * of_column;
    // Batches usually have equal sizes, so resize writes nothing.
    ids.values.resize(all);
    out[i] = ids.values.data();
    ids.offsets.resize(all + 1);
    int64_t* const offsets = ids.offsets.data();
    for (size_t at = 0; at <= all; ++at) offsets[at] = static_cast<int64_t>(at);
  }
  std::vector<int64_t> together(columns.size() == 1 ? 0 : width);
  for (size_t r = 0; r < records.size(); ++r) {
    const Record::View view = records[r].Look(floats_.size(), slots_.size());
    size_t& id = (*next)[r];
    if (columns.size() == 1) {
      id += SaltSlots(slot, width, view, id, out[0]);
      out[0] += width;
      continue;
    }
    const int64_t* values = together.data();
    id += SaltSlots(slot, width, view, id, together.data());
    for (size_t i = 0; i < columns.size(); ++i) {
      for (int64_t s = 0; s < columns_[columns[i]].width; ++s) *out[i]++ = *values++;
    }
  }
}

// Returns, for each column of a group, whether every slot of it gives one value in every record.
std::vector<bool> Features::ColumnsOfOneValue(const IdGroup& group, const std::vector<Record>& records) const {
  std::vector<bool> good(group.columns.size(), true);
  size_t left = good.size();
  for (const Record& record : records) {
    const Record::View view = record.Look(floats_.size(), slots_.size());
    if (OneValueEach(group.slot, group.width, view)) continue;
    size_t slot = group.slot;
    for (size_t i = 0; i < good.size(); ++i) {
      const auto width = static_cast<size_t>(columns_[group.columns[i]].width);
      if (good[i] && !OneValueEach(slot, width, view)) {
        good[i] = false;
        --left;
      }
      slot += width;
    }
    if (left == 0) break;
  }
  return good;
}

void Features::MakeGroup(const IdGroup& group, const std::vector<Record>& records, const DataStatistics* statistics,
                         std::vector<size_t>* next, std::vector<Variable>* vars) const {
  const bool salted = group.plain && (statistics == nullptr || statistics->min_count() <= 1);
  std::vector<bool> good(group.columns.size(), false);
  if (salted && !records.empty()) good = ColumnsOfOneValue(group, records);
  size_t slot = group.slot;
  for (size_t i = 0; i < group.columns.size();) {
    size_t end = i, width = 0;
    do {
      width += static_cast<size_t>(columns_[group.columns[end]].width);
      ++end;
    } while (good[i] && end < group.columns.size() && good[end]);
    if (good[i]) {
      MakeOneValueEach(records, slot, absl::MakeConstSpan(group.columns).subspan(i, end - i), next, vars);
    } else {
      MakeIds(records, slot, width, salted, statistics, next, &IdsOf(group.columns[i], vars));
    }
    slot += width;
    i = end;
  }
}

// Makes a column of any records. next[r] is the first of its ids in record r, and becomes the one behind them.
void Features::MakeIds(const std::vector<Record>& records, size_t slot, size_t width, bool salted,
                       const DataStatistics* statistics, std::vector<size_t>* next, IdBatch* out) const {
  out->values.clear();
  out->values.reserve(records.size() * width);
  out->offsets.clear();
  out->offsets.reserve(records.size() * width + 1);
  if (!records.empty()) out->offsets.push_back(0);
  for (size_t r = 0; r < records.size(); ++r) {
    const Record::View view = records[r].Look(floats_.size(), slots_.size());
    size_t& id = (*next)[r];
    if (salted && out->weights.empty() && OneValueEach(slot, width, view)) {
      int64_t at = static_cast<int64_t>(out->values.size());
      id += SaltSlots(slot, width, view, id, Extend(width, &out->values));
      int64_t* const offsets = Extend(width, &out->offsets);
      for (size_t s = 0; s < width; ++s) offsets[s] = ++at;
      continue;
    }
    for (size_t s = 0; s < width; ++s) AddSlot(slot + s, view, &id, statistics, out);
  }
}

void Features::MakeBatch(const std::vector<Record>& records, const DataStatistics* statistics,
                         std::vector<Variable>* vars) const {
  vars->resize(columns_.size());
  std::vector<size_t> next(slots_.empty() ? 0 : records.size(), 0);
  for (const IdGroup& group : id_groups_) MakeGroup(group, records, statistics, &next, vars);
  size_t position = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].kind != v1::DENSE) continue;
    const size_t width = static_cast<size_t>(columns_[c].width);
    Variable& var = (*vars)[c];
    if (!std::holds_alternative<Tensor>(var)) var = Tensor();
    Tensor& tensor = std::get<Tensor>(var);
    tensor.Resize(v1::FLOAT32, {static_cast<int64_t>(records.size()), columns_[c].width});
    float* out = tensor.data<float>();
    for (const Record& record : records) {
      const Record::View view = record.Look(floats_.size(), slots_.size());
      const char* const in = view.floats + position * sizeof(float);
      if (keeps_missing_[c]) {
        std::memcpy(out, in, width * sizeof(float));
      } else {
        AddFloats(position, width, plain_[c], in, statistics, out);
      }
      out += width;
    }
    position += width;
  }
}

}  // namespace weir
