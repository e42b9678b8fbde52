#include "trainer/data/stream_trail.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "glog/logging.h"

namespace weir {
namespace {

// Writes a buffer in the order in which its records were read. Returns false if `befores` lacks a segment.
bool WriteBuffer(const std::vector<KeptPlace>& kept, const std::map<int64_t, int64_t>& befores,
                 v1::ShuffleBuffer* buffer) {
  std::vector<uint32_t> slots(kept.size());
  std::iota(slots.begin(), slots.end(), 0);
  std::sort(slots.begin(), slots.end(), [&](uint32_t a, uint32_t b) { return kept[a] < kept[b]; });
  v1::ShuffleBuffer::Part* part = nullptr;
  int64_t at = 0, number = 0;
  for (const uint32_t slot : slots) {
    const KeptPlace& place = kept[slot];
    if (part == nullptr || part->segment() != place.segment()) {
      part = buffer->add_parts();
      part->set_segment(static_cast<int32_t>(place.segment()));
      const auto before = befores.find(place.segment());
      if (before == befores.end()) return false;
      part->set_before(before->second);
      at = number = 0;
    }
    part->add_at(static_cast<uint64_t>(place.at() - std::exchange(at, place.at())));
    part->add_number(static_cast<uint64_t>(place.number() - std::exchange(number, place.number())));
    part->add_slot(slot);
  }
  return true;
}

}  // namespace

void StreamTrail::Begin(const v1::StreamPlace& place) {
  MutexLock lock(&mu_);
  begin_ = place;
  if (place.has_last()) befores_[place.last().segment()] = place.last().before();
  kept_.resize(static_cast<size_t>(place.buffer().size()));
  for (const v1::ShuffleBuffer::Part& part : place.buffer().parts()) {
    befores_[part.segment()] = part.before();
    PlaceOfRecord at = {.segment = part.segment()};
    for (int i = 0; i < part.at_size(); ++i) {
      at.at += static_cast<int64_t>(part.at(i));
      at.number += static_cast<int64_t>(part.number(i));
      if (KeptPlace::Fits(at)) kept_[part.slot(i)] = KeptPlace(at);
    }
  }
}

void StreamTrail::Add(const StreamBorder& border, BufferChanges changes) {
  MutexLock lock(&mu_);
  Advance();
  steps_.push_back({border, std::move(changes)});
}

void StreamTrail::Skip(BufferChanges changes) {
  MutexLock lock(&mu_);
  CHECK(steps_.empty() && !base_.has_value());
  Apply(&changes);
}

void StreamTrail::Passed(int64_t batches) {
  MutexLock lock(&mu_);
  passed_ = std::max(passed_, batches);
}

void StreamTrail::Advance() {
  while (!steps_.empty() && steps_.front().border.batches <= passed_) {
    Apply(&steps_.front().changes);
    base_ = steps_.front().border;
    begin_.reset();
    steps_.pop_front();
  }
}

void StreamTrail::Apply(BufferChanges* changes) {
  if (changes->begins) kept_ = std::move(changes->filled);
  if (changes->begins) befores_.clear();
  for (const auto& [segment, before] : changes->befores) befores_[segment] = before;
  for (const BufferChanges::Change& change : changes->changes) {
    if (change.place.there()) {
      kept_[change.slot] = change.place;
    } else {
      kept_[change.slot] = kept_.back();
      kept_.pop_back();
    }
  }
}

std::optional<v1::StreamPlace> StreamTrail::At(int64_t batches) {
  StreamBorder border;
  std::vector<KeptPlace> kept;
  std::map<int64_t, int64_t> befores;
  {
    MutexLock lock(&mu_);
    passed_ = std::max(passed_, batches);
    Advance();
    if (!base_.has_value() || base_->batches > batches) {
      return begin_.has_value() && begin_->batches() <= batches ? begin_ : std::nullopt;
    }
    border = *base_;
    if (border.last.segment >= 0 && border.shuffled && !border.ended) {
      kept = kept_;
      befores = befores_;
    }
  }
  v1::StreamPlace place;
  place.set_stream(stream_);
  place.set_batches(border.batches);
  place.set_first_examples(border.first_examples);
  place.set_epoch(border.epoch);
  place.set_epochs(epochs_);
  place.set_given(border.given);
  place.set_epoch_examples(border.epoch_examples);
  if (border.ended) {
    place.set_ended(true);
    return place;
  }
  if (border.last.segment < 0) return place;
  place.set_read(border.read);
  place.mutable_last()->set_segment(static_cast<int32_t>(border.last.segment));
  place.mutable_last()->set_at(border.last.at);
  place.mutable_last()->set_number(border.last.number);
  place.mutable_last()->set_before(border.last.before);
  if (!border.shuffled) return place;
  place.mutable_buffer()->set_draws(border.draws);
  place.mutable_buffer()->set_waits(border.waits);
  place.mutable_buffer()->set_size(static_cast<int64_t>(kept.size()));
  if (!WriteBuffer(kept, befores, place.mutable_buffer())) {
    LOG(DFATAL) << "a segment of stream " << stream_ << " is not known";
    place.clear_buffer();
    place.clear_last();
    place.clear_read();
  }
  return place;
}

}  // namespace weir
