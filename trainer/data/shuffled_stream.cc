#include "trainer/data/shuffled_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "glog/logging.h"

namespace weir {

ShuffledStream::ShuffledStream(Options options) : options_(std::move(options)), stream_(options_.stream) {
  draws_.key = StableHash(absl::StrCat("shuffle of stream ", options_.stream.stream)) ^ MixId(options_.seed);
  ExampleStream::Prepare(*options_.stream.parser, &example_);
  ForgetPlaces();
}

void ShuffledStream::ForgetPlaces() {
  last_ = {};
  kept_ = options_.keeps_places && options_.shuffle && !fits_;
  changes_ = {};
  changes_.begins = true;
}

bool ShuffledStream::Read(Record* record, InputPosition* position) {
  if (!stream_.Next(&example_, &pool_, record, position)) {
    if (status().ok() && expected_ >= 0 && read_ != expected_) {
      stream_.Fail(absl::FailedPreconditionError(absl::StrCat(
          "--resume: stream ", options_.stream.stream, " had ", expected_,
          " examples in an epoch when the checkpoint was written, and has ", read_,
          " in the data of data.train now: the files are others; bring back those of before, or start a fresh run "
          "without --resume")));
    }
    return false;
  }
  if (kept_ && stream_.place().segment != last_.segment) {
    changes_.befores.emplace_back(stream_.place().segment, stream_.place().before);
  }
  last_ = stream_.place();
  ++read_;
  ++total_read_;
  return true;
}

void ShuffledStream::GoOn(v1::StreamPlace place) {
  epoch_ = place.epoch();
  epoch_examples_ = place.epoch_examples();
  const absl::Span<const DataFile> files = options_.stream.data->files();
  const bool piped = std::any_of(files.begin(), files.end(), [](const DataFile& file) { return file.pipe != nullptr; });
  if (!piped) expected_ = epoch_examples_;
  stream_.BeginWith(epoch_);
  if (!place.has_last()) return;
  read_ = place.read();
  changes_.begins = false;
  draws_.done = static_cast<uint64_t>(place.buffer().draws());
  if (draws_.done > 0) DrawAhead();
  window_ = options_.shuffle;
  buffer_.resize(static_cast<size_t>(place.buffer().size()));
  again_ = std::make_unique<Again>(Again{.place = std::move(place)});
}

bool ShuffledStream::ReadAgainAt(const PlaceOfRecord& place, bool last, int64_t most, Record* record) {
  const bool there = stream_.ReadAgain(place, last, most, &example_, &pool_, record);
  // Lanes that read one file keep together by it.
  total_read_ = stream_.own_passed();
  return there;
}

bool ShuffledStream::ReadAgain(int64_t records) {
  const v1::StreamPlace& place = again_->place;
  const PlaceOfRecord last = {.segment = place.last().segment(),
                              .at = place.last().at(),
                              .number = place.last().number(),
                              .before = place.last().before()};
  const bool waits = place.buffer().waits();
  bool read_last = false;
  for (; again_->part < place.buffer().parts_size(); --records) {
    if (records <= 0) return false;
    const v1::ShuffleBuffer::Part& part = place.buffer().parts(again_->part);
    const int i = again_->record;
    PlaceOfRecord next = i == 0 ? PlaceOfRecord{} : again_->at;
    next.segment = part.segment();
    next.before = part.before();
    next.at += static_cast<int64_t>(part.at(i));
    next.number += static_cast<int64_t>(part.number(i));
    // The last record that was read may still be in the buffer.
    read_last = next.segment == last.segment && next.number == last.number;
    if (!ReadAgainAt(next, read_last, records, &buffer_[part.slot(i)])) return false;
    again_->at = next;
    ++again_->record;
    if (again_->record == part.at_size()) {
      ++again_->part;
      again_->record = 0;
    }
  }
  if (!read_last && !ReadAgainAt(last, true, records, waits ? &waiting_.record : nullptr)) return false;
  total_read_ = place.read();
  waiting_.there = waits;
  last_ = waiting_.place = last;
  filled_ = options_.shuffle;
  for (const Record& record : buffer_) size_.bytes += record.bytes();
  size_.most_examples = static_cast<int64_t>(buffer_.size());
  size_.most_bytes = size_.bytes;
  again_ = nullptr;
  return true;
}

bool ShuffledStream::Prepare(int64_t records) {
  if (again_ != nullptr) return ReadAgain(records);
  if (!options_.shuffle || filled_) return true;
  InputPosition position;
  for (; records > 0; --records) {
    if (!Read(&waiting_.record, &position)) {
      filled_ = true;
      // Shuffled as a whole: nothing but the beginning of the epoch is a place to go on.
      fits_ = true;
      kept_ = false;
      changes_.filled = {};
      break;
    }
    waiting_.place = last_;
    const bool fits = size_.bytes + waiting_.record.bytes() <= options_.buffer_bytes &&
                      static_cast<int64_t>(buffer_.size()) < options_.buffer_examples;
    if (!fits && !buffer_.empty()) {
      waiting_.there = true;
      window_ = true;
      filled_ = true;
      break;
    }
    size_.bytes += waiting_.record.bytes();
    Note(buffer_.size());
    buffer_.push_back(std::move(waiting_.record));
  }
  size_.most_examples = std::max(size_.most_examples, static_cast<int64_t>(buffer_.size()));
  size_.most_bytes = std::max(size_.most_bytes, size_.bytes);
  return filled_;
}

uint64_t ShuffledStream::Random(uint64_t draw) const {
  const PhiloxBlock random = Philox(draws_.key, draw, static_cast<uint64_t>(epoch_));
  return static_cast<uint64_t>(random.v[1]) << 32 | random.v[0];
}

uint64_t ShuffledStream::Draw(uint64_t n) {
  const auto choose = [](uint64_t bits, uint64_t of) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * of >> 64);
  };
  if (draws_.done == 0) DrawAhead();
  const uint64_t chosen = choose(draws_.ahead[draws_.done % kAhead], n);
  draws_.ahead[draws_.done % kAhead] = Random(draws_.done + kAhead);
  ++draws_.done;
  // Predict the record of a later draw, to prefetch it; results do not depend on it. The buffer shrinks by one a draw
  // once the stream has ended.
  const auto fetched = [&](uint64_t ahead) -> Record* {
    const uint64_t size = waiting_.there ? n : n > ahead ? n - ahead : 0;
    return size == 0 ? nullptr : &buffer_[choose(draws_.ahead[(draws_.done + ahead - 1) % kAhead], size)];
  };
  if (const Record* later = fetched(kAhead)) __builtin_prefetch(later);
  if (const Record* later = fetched(kAhead / 2)) later->Prefetch();
  return chosen;
}

bool ShuffledStream::Next(Record* record, InputPosition* position) {
  InputPosition unused;
  if (!Prepare(std::numeric_limits<int64_t>::max())) return false;
  if (!options_.shuffle) {
    if (Read(record, position == nullptr ? &unused : position)) return true;
  } else {
    if (!status().ok()) return false;
    if (!buffer_.empty()) {
      const size_t chosen = Draw(buffer_.size());
      *record = std::move(buffer_[chosen]);
      if (waiting_.there) {
        Note(chosen);
        buffer_[chosen] = std::move(waiting_.record);
        waiting_.there = Read(&waiting_.record, &unused);
        waiting_.place = last_;
        return status().ok();
      }
      if (kept_) changes_.changes.push_back({.slot = static_cast<uint32_t>(chosen)});
      buffer_[chosen] = std::move(buffer_.back());
      buffer_.pop_back();
      return true;
    }
  }
  if (status().ok()) epoch_examples_ = read_;
  return false;
}

void ShuffledStream::Note(size_t slot) {
  if (!kept_) return;
  if (static_cast<int64_t>(slot) >= options_.most_kept || !KeptPlace::Fits(waiting_.place)) {
    kept_ = false;
    changes_ = {.begins = true};
  } else if (slot == buffer_.size()) {
    changes_.begins = true;
    changes_.filled.emplace_back(waiting_.place);
  } else {
    changes_.changes.push_back({.slot = static_cast<uint32_t>(slot), .place = KeptPlace(waiting_.place)});
  }
}

void ShuffledStream::Describe(StreamBorder* border) const {
  border->epoch = epoch_;
  border->epoch_examples = epoch_examples_;
  border->read = read_;
  border->shuffled = options_.shuffle;
  border->draws = static_cast<int64_t>(draws_.done);
  border->waits = waiting_.there;
  if (!options_.shuffle || (kept_ && filled_)) border->last = last_;
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
  waiting_.there = false;
  epoch_ = epoch;
  draws_.done = 0;
  read_ = 0;
  size_.bytes = 0;
  filled_ = false;
  ForgetPlaces();
}

}  // namespace weir
