#include "trainer/data/shuffled_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "glog/logging.h"

namespace weir {

ShuffledStream::ShuffledStream(Options options)
    : options_(std::move(options)),
      key_(StableHash(absl::StrCat("shuffle of stream ", options_.stream.stream)) ^ MixId(options_.seed)),
      stream_(options_.stream) {
  ExampleStream::Prepare(*options_.stream.parser, &example_);
}

bool ShuffledStream::Read(Record* record, InputPosition* position) {
  if (!stream_.Next(&example_, &pool_, record, position)) return false;
  ++read_;
  ++total_read_;
  return true;
}

bool ShuffledStream::Prepare(int64_t records) {
  if (!options_.shuffle || filled_) return true;
  InputPosition position;
  for (; records > 0; --records) {
    if (!Read(&waiting_, &position)) {
      filled_ = true;
      break;
    }
    const bool fits = buffered_bytes_ + waiting_.bytes() <= options_.buffer_bytes &&
                      static_cast<int64_t>(buffer_.size()) < options_.buffer_examples;
    if (!fits && !buffer_.empty()) {
      has_waiting_ = true;
      window_ = true;
      filled_ = true;
      break;
    }
    buffered_bytes_ += waiting_.bytes();
    buffer_.push_back(std::move(waiting_));
  }
  most_examples_ = std::max(most_examples_, static_cast<int64_t>(buffer_.size()));
  most_bytes_ = std::max(most_bytes_, buffered_bytes_);
  return filled_;
}

uint64_t ShuffledStream::Random(uint64_t draw) const {
  const PhiloxBlock random = Philox(key_, draw, static_cast<uint64_t>(epoch_));
  return static_cast<uint64_t>(random.v[1]) << 32 | random.v[0];
}

uint64_t ShuffledStream::Draw(uint64_t n) {
  const auto choose = [](uint64_t bits, uint64_t of) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * of >> 64);
  };
  if (draws_ == 0) {
    for (uint64_t i = 0; i < kAhead; ++i) ahead_[i] = Random(i);
  }
  const uint64_t chosen = choose(ahead_[draws_ % kAhead], n);
  ahead_[draws_ % kAhead] = Random(draws_ + kAhead);
  ++draws_;
  // Where later draws will look, as far as can be told; nothing depends on it. The buffer shrinks by one a draw once
  // the stream has ended.
  const auto fetched = [&](uint64_t ahead) -> Record* {
    const uint64_t size = has_waiting_ ? n : n > ahead ? n - ahead : 0;
    return size == 0 ? nullptr : &buffer_[choose(ahead_[(draws_ + ahead - 1) % kAhead], size)];
  };
  if (const Record* later = fetched(kAhead)) __builtin_prefetch(later);
  if (const Record* later = fetched(kAhead / 2)) later->Prefetch();
  return chosen;
}

bool ShuffledStream::Next(Record* record, InputPosition* position) {
  InputPosition unused;
  if (!options_.shuffle) {
    if (Read(record, position == nullptr ? &unused : position)) return true;
  } else {
    Prepare(std::numeric_limits<int64_t>::max());
    if (!status().ok()) return false;
    if (!buffer_.empty()) {
      const size_t chosen = Draw(buffer_.size());
      *record = std::move(buffer_[chosen]);
      if (has_waiting_) {
        buffer_[chosen] = std::move(waiting_);
        has_waiting_ = Read(&waiting_, &unused);
        return status().ok();
      }
      buffer_[chosen] = std::move(buffer_.back());
      buffer_.pop_back();
      return true;
    }
  }
  if (status().ok()) epoch_examples_ = read_;
  return false;
}

void ShuffledStream::StartEpoch(int64_t epoch) {
  Forget(epoch);
  stream_.Rewind(epoch);
}

void ShuffledStream::StartEpoch(int64_t epoch, const DataSet* data, int64_t dealt_before) {
  Forget(epoch);
  stream_.Rewind(epoch, data, dealt_before);
}

void ShuffledStream::Forget(int64_t epoch) {
  CHECK(status().ok() && epoch_examples_ >= 0 && epoch > epoch_);
  buffer_.clear();
  has_waiting_ = false;
  epoch_ = epoch;
  draws_ = 0;
  read_ = 0;
  buffered_bytes_ = 0;
  filled_ = false;
}

}  // namespace weir
