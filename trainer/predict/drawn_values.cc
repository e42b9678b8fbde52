#include "trainer/predict/drawn_values.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"

namespace weir {
namespace {

uint64_t PlaceHash(uint64_t key, const InputPosition& position) {
  return MixId(MixId(MixId(key) + static_cast<uint64_t>(position.file)) + static_cast<uint64_t>(position.offset));
}

auto OrderOf(const v1::DrawnExample& example) { return std::tuple(example.rank(), example.file(), example.offset()); }

bool Before(const v1::DrawnExample& x, const v1::DrawnExample& y) { return OrderOf(x) < OrderOf(y); }

// Keeps the first examples, in order, that are within the limits.
void KeepFirst(std::vector<v1::DrawnExample>* drawn) {
  std::sort(drawn->begin(), drawn->end(), Before);
  size_t bytes = 0, kept = 0;
  while (kept < drawn->size() && kept < ExampleDraw::kMostExamples) {
    bytes += (*drawn)[kept].ByteSizeLong();
    if (bytes > ExampleDraw::kMostBytes && kept > 0) break;
    ++kept;
  }
  drawn->resize(kept);
}

// Ids of one slot of one example, and their weights.
struct SlotIds {
  const int64_t* ids = nullptr;
  const float* weights = nullptr;  // null: each is 1
  int64_t count = 0;
};

SlotIds IdsAt(const IdBatch& batch, int64_t segment) {
  const int64_t begin = batch.offsets[static_cast<size_t>(segment)];
  return {batch.values.data() + begin, batch.weights.empty() ? nullptr : batch.weights.data() + begin,
          batch.offsets[static_cast<size_t>(segment) + 1] - begin};
}

// Returns whether every slot has one id, the common case, and so have all of of(example).
template <typename Of>
bool OneEach(const Of& of, const IdBatch& batch) {
  if (batch.values.size() + 1 != batch.offsets.size()) return false;
  for (size_t i = 0; i < batch.offsets.size(); ++i) {
    if (batch.offsets[i] != static_cast<int64_t>(i)) return false;
  }
  for (int64_t i = 0; i < batch.batch(); ++i) {
    if (of(i).count != 1) return false;
  }
  return true;
}

// Replaces the ids of a slot: `of(example)` are the new ones.
template <typename Of>
void ReplaceSlot(int64_t slot, bool weighted, const Of& of, IdBatch* batch) {
  const int64_t examples = batch->batch();
  if (!weighted && batch->weights.empty() && OneEach(of, *batch)) {
    for (int64_t i = 0; i < examples; ++i) batch->values[static_cast<size_t>(i * batch->slots + slot)] = *of(i).ids;
    return;
  }
  IdBatch made{.slots = batch->slots};
  weighted = weighted || !batch->weights.empty();
  made.values.reserve(batch->values.size());
  made.offsets.reserve(batch->offsets.size());
  if (examples > 0) made.offsets.push_back(0);
  for (int64_t i = 0; i < examples; ++i) {
    for (int64_t s = 0; s < batch->slots; ++s) {
      const SlotIds ids = s == slot ? of(i) : IdsAt(*batch, i * batch->slots + s);
      made.values.insert(made.values.end(), ids.ids, ids.ids + ids.count);
      for (int64_t k = 0; weighted && k < ids.count; ++k) {
        made.weights.push_back(ids.weights == nullptr ? 1.0f : ids.weights[k]);
      }
      made.offsets.push_back(static_cast<int64_t>(made.values.size()));
    }
  }
  *batch = std::move(made);
}

}  // namespace

ExampleDraw::ExampleDraw(uint64_t seed, std::vector<Column> columns, std::vector<size_t> read)
    : seed_(seed), columns_(std::move(columns)), read_(std::move(read)) {}

void ExampleDraw::Add(const LaneBatch& batch) {
  MutexLock lock(&mu_);
  for (int64_t i = 0; i < batch.examples; ++i) {
    const InputPosition& position = batch.positions[static_cast<size_t>(i)];
    const uint64_t rank = PlaceHash(seed_, position);
    if (rank > limit_) continue;
    v1::DrawnExample example;
    example.set_rank(rank);
    example.set_file(position.file);
    example.set_offset(position.offset);
    for (const size_t c : read_) {
      const int64_t width = columns_[c].width;
      if (columns_[c].kind == v1::DENSE) {
        const float* const floats = std::get<Tensor>(batch.vars[c]).data<float>() + i * width;
        example.mutable_floats()->Add(floats, floats + width);
        continue;
      }
      const IdBatch& ids = std::get<IdBatch>(batch.vars[c]);
      for (int64_t s = 0; s < width; ++s) {
        const SlotIds slot = IdsAt(ids, i * width + s);
        example.add_counts(static_cast<uint32_t>(slot.count));
        example.mutable_ids()->Add(slot.ids, slot.ids + slot.count);
        for (int64_t k = 0; slot.weights != nullptr && k < slot.count; ++k) {
          // Columns before this one may have no weights.
          while (example.weights_size() + (slot.count - k) < example.ids_size()) example.add_weights(1.0f);
          example.add_weights(slot.weights[k]);
        }
      }
    }
    if (example.weights_size() > 0) {
      while (example.weights_size() < example.ids_size()) example.add_weights(1.0f);
    }
    drawn_.push_back(std::move(example));
    if (drawn_.size() >= 2 * kMostExamples) Shorten(kMostExamples);
  }
}

void ExampleDraw::Shorten(size_t examples) {
  std::nth_element(drawn_.begin(), drawn_.begin() + static_cast<std::ptrdiff_t>(examples), drawn_.end(), Before);
  limit_ = drawn_[examples].rank();
  drawn_.resize(examples);
}

std::string ExampleDraw::Serialize() {
  MutexLock lock(&mu_);
  KeepFirst(&drawn_);
  v1::DrawnExamples message;
  for (v1::DrawnExample& example : drawn_) *message.add_example() = std::move(example);
  drawn_.clear();
  // Not empty, even without examples: the trainer lives.
  return absl::StrCat("-", message.SerializeAsString());
}

absl::StatusOr<DrawnValues> DrawnValues::Merge(uint64_t seed, const std::vector<Column>& columns,
                                               const std::vector<size_t>& read, const std::vector<std::string>& drawn) {
  std::vector<v1::DrawnExample> all;
  for (size_t t = 0; t < drawn.size(); ++t) {
    v1::DrawnExamples message;
    if (drawn[t].empty() || !message.ParseFromString(drawn[t].substr(1))) {
      return absl::DataLossError(absl::StrCat("the examples that trainer ", t, " has drawn cannot be read"));
    }
    for (v1::DrawnExample& example : *message.mutable_example()) all.push_back(std::move(example));
  }
  KeepFirst(&all);
  if (all.empty()) return absl::InvalidArgumentError("there are no examples to draw values from");
  DrawnValues made;
  made.seed_ = seed;
  made.examples_ = static_cast<int64_t>(all.size());
  made.vars_.resize(columns.size());
  size_t floats = 0, slots = 0;
  for (const size_t c : read) (columns[c].kind == v1::DENSE ? floats : slots) += static_cast<size_t>(columns[c].width);
  for (const size_t c : read) {
    if (columns[c].kind == v1::DENSE) {
      made.vars_[c] = Tensor(v1::FLOAT32, {made.examples_, columns[c].width});
    } else {
      made.vars_[c] = IdBatch{.slots = columns[c].width, .offsets = {0}};
    }
  }
  for (int64_t i = 0; i < made.examples_; ++i) {
    const v1::DrawnExample& example = all[static_cast<size_t>(i)];
    int64_t ids = 0;
    for (const uint32_t count : example.counts()) ids += count;
    if (static_cast<size_t>(example.floats_size()) != floats || static_cast<size_t>(example.counts_size()) != slots ||
        ids != example.ids_size() || (example.weights_size() != 0 && example.weights_size() != example.ids_size())) {
      return absl::DataLossError("an example that a trainer has drawn is not of the columns of this job");
    }
    int next_float = 0, next_slot = 0, next_id = 0;
    for (const size_t c : read) {
      if (columns[c].kind == v1::DENSE) {
        auto& tensor = std::get<Tensor>(made.vars_[c]);
        for (int64_t k = 0; k < columns[c].width; ++k) {
          tensor.data<float>()[i * columns[c].width + k] = example.floats(next_float++);
        }
        continue;
      }
      auto& batch = std::get<IdBatch>(made.vars_[c]);
      for (int64_t s = 0; s < columns[c].width; ++s) {
        for (uint32_t k = 0; k < example.counts(next_slot); ++k, ++next_id) {
          batch.values.push_back(example.ids(next_id));
          batch.weights.push_back(example.weights_size() == 0 ? 1.0f : example.weights(next_id));
        }
        ++next_slot;
        batch.offsets.push_back(static_cast<int64_t>(batch.values.size()));
      }
    }
  }
  for (const size_t c : read) {
    if (columns[c].kind == v1::DENSE) continue;
    auto& weights = std::get<IdBatch>(made.vars_[c]).weights;
    if (std::all_of(weights.begin(), weights.end(), [](float weight) { return weight == 1.0f; })) weights.clear();
  }
  return made;
}

int64_t DrawnValues::Draw(int repeat, const InputPosition& position) const {
  // Apart from the ranks, or the examples of small ranks would be drawn by themselves.
  const uint64_t key = seed_ ^ StableHash("drawn", 5, static_cast<uint64_t>(repeat));
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(PlaceHash(key, position)) * static_cast<unsigned __int128>(examples_)) >> 64);
}

void DrawnValues::Replace(const InputPlace& place, int repeat, const LaneBatch& batch,
                          std::vector<Variable>* vars) const {
  Variable& var = (*vars)[place.column];
  const auto drawn = [&](int64_t i) { return Draw(repeat, batch.positions[static_cast<size_t>(i)]); };
  if (auto* const tensor = std::get_if<Tensor>(&var)) {
    const auto& from = std::get<Tensor>(vars_[place.column]);
    const int64_t width = tensor->dims()[1];
    for (int64_t i = 0; i < batch.examples; ++i) {
      tensor->data<float>()[i * width + place.at] = from.data<float>()[drawn(i) * width + place.at];
    }
    return;
  }
  const auto& from = std::get<IdBatch>(vars_[place.column]);
  ReplaceSlot(
      place.at, !from.weights.empty(), [&](int64_t i) { return IdsAt(from, drawn(i) * from.slots + place.at); },
      &std::get<IdBatch>(var));
}

void Blank(const InputPlace& place, bool missing_id, std::vector<Variable>* vars) {
  Variable& var = (*vars)[place.column];
  if (auto* const tensor = std::get_if<Tensor>(&var)) {
    const int64_t width = tensor->dims()[1];
    for (int64_t i = 0; i < tensor->dims()[0]; ++i) tensor->data<float>()[i * width + place.at] = 0;
    return;
  }
  const SlotIds none = missing_id ? SlotIds{.ids = &place.missing_id, .count = 1} : SlotIds{};
  ReplaceSlot(
      place.at, /*weighted=*/false, [&](int64_t) { return none; }, &std::get<IdBatch>(var));
}

}  // namespace weir
