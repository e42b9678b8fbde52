#include "trainer/data/lane.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

constexpr double kMiB = 1 << 20;
// Records of a piece of work: 150 KB of a lane's text, among 1.2 MB of all of 8 lanes, which stay in a core's cache
// until the last lane has taken its own.
constexpr int64_t kPiece = 512;
// Examples of all shuffle buffers whose places are kept for checkpoints: 256 MiB of memory, and 100 MiB of a checkpoint
// (a record takes 3 bytes for its slot, and 3 for its place among the others of its stream).
constexpr int64_t kMostKept = int64_t{1} << 24;

}  // namespace

Lane::Lane(LaneContext* shared, int stream)
    : shared_(*shared),
      stream_(stream),
      records_(MakeOptions(shared, stream)),
      trail_(shared->keeps_places() ? std::make_unique<StreamTrail>(stream, shared->epochs()) : nullptr) {
  if (shared->followed() == nullptr) return;
  const StreamStart& start = shared->options.starts[static_cast<size_t>(stream - shared->options.streams.begin)];
  group_ = start.group - 1;
  examples_before_ = start.before;
  dealt_before_ = start.dealt;
  skip_records_ = start.given - start.before;
  passed_ = start.batches;
  // A batch is short only where files end for good.
  first_examples_ = std::min({shared->options.first_batches * BatchSize(), start.batches * BatchSize(), start.given});
}

ShuffledStream::Options Lane::MakeOptions(LaneContext* shared, int stream) {
  const DataSpec& spec = shared->options.spec;
  ShuffledStream::Options options;
  options.stream = {.data = &shared->data,
                    .parser = shared->parser.get(),
                    .stream = stream,
                    .streams = spec.streams(),
                    .scheme = spec.stream_scheme,
                    .seed = spec.seed,
                    .bad_line = spec.config.bad_line(),
                    .where = shared->where.empty() ? nullptr : &shared->where,
                    .required = {},
                    .label_ranges = {},
                    .may_be_absent = {},
                    .skipped = &shared->skipped_lines,
                    .cancelled = &shared->cancelled,
                    .ahead = shared->ahead.get(),
                    .lane = stream - shared->options.streams.begin,
                    .seen = shared->seen.get()};
  if (shared->options.with_positions) {
    options.stream.on_skipped = [shared](const InputPosition& position) {
      MutexLock lock(&shared->skipped_mu);
      shared->skipped.push_back(position);
    };
  }
  options.stream.label_ranges = shared->features.label_ranges();
  options.stream.forgives_labels = shared->options.labels_may_be_missing;
  if (!shared->options.labels_may_be_missing) {
    options.stream.required = shared->features.required();
  } else {
    for (const auto& [position, name] : shared->features.required()) options.stream.may_be_absent.push_back(position);
  }
  options.shuffle = shared->shuffles();
  // A batch in file order is of few blocks. A shuffle buffer would hold on to nearly all.
  options.stream.borrows = !options.shuffle;
  options.buffer_bytes = shared->shuffle_bytes();
  if (spec.config.shuffle() == v1::Data::WINDOW && spec.config.shuffle_window() > 0) {
    options.buffer_bytes = std::numeric_limits<int64_t>::max();
    options.buffer_examples = spec.config.shuffle_window();
  }
  options.seed = spec.seed;
  options.stream.begins = &shared->begins;
  options.keeps_places = shared->keeps_places();
  options.most_kept = kMostKept / spec.streams();
  return options;
}

void Lane::GoOn(v1::StreamPlace place) {
  passed_ = place.batches();
  first_examples_ = place.first_examples();
  ended_ = place.ended();
  if (trail_ != nullptr) trail_->Begin(place);
  if (place.has_last() || ended_) {
    in_epoch_ = place.given();
  } else {
    skip_records_ = place.given();
  }
  records_.GoOn(std::move(place));
}

absl::StatusOr<bool> Lane::Work(LaneBatch* batch) {
  awaited_ = 0;
  const bool prepared = ended_ || records_.Prepare(kPiece);
  RETURN_IF_ERROR(records_.status());
  if (!prepared) return false;
  if ((skip_ > 0 || skip_records_ > 0) && !ended_) {
    RETURN_IF_ERROR(Skip());
    return false;
  }
  ASSIGN_OR_RETURN(const bool gathered, Gather(&batch->positions));
  if (!gathered) return false;
  Pass();
  Mark();
  batch->examples = static_cast<int64_t>(batch_.size());
  batch->ended = batch_.empty();
  batch->stopped = stopped_;
  batch->last = shared_.followed() != nullptr && ended_ && !stopped_;
  batch->first_examples = first_examples_;
  batch->fraction = Fraction();
  shared_.features.MakeBatch(batch_, shared_.has_statistics ? &shared_.statistics : nullptr, &batch->vars);
  batch_.clear();
  return true;
}

double Lane::Fraction() const {
  if (ended_) return 1;
  if (shared_.followed() != nullptr) return 0;
  const int64_t examples = records_.expected_examples();
  if (examples <= 0) return 0;
  const double of_epoch = static_cast<double>(in_epoch_) / static_cast<double>(examples);
  return (static_cast<double>(records_.epoch()) + std::min(1.0, of_epoch)) / static_cast<double>(shared_.epochs());
}

std::string Lane::Describe() const {
  if (!shared_.shuffles()) return absl::StrCat("stream ", stream_, ": file order");
  return absl::StrFormat(
      "stream %d: %s, %d examples in the buffer, %.1f of %.1f MiB%s", stream_, records_.window() ? "WINDOW" : "ALL",
      records_.most_examples(), static_cast<double>(records_.most_bytes()) / kMiB,
      static_cast<double>(shared_.shuffle_bytes()) / kMiB,
      records_.epoch_examples() < 0 ? std::string()
                                    : absl::StrCat(", ", records_.epoch_examples(), " examples an epoch"));
}

absl::Status Lane::Skip() {
  const absl::Status skipped = SkipPiece();
  if (trail_ != nullptr) trail_->Skip(records_.TakeChanges());
  return skipped;
}

absl::Status Lane::SkipPiece() {
  const bool follows = shared_.followed() != nullptr;
  if (!follows && passed_ >= shared_.options.first_batches && records_.epoch_examples() >= 0 && Jump())
    return absl::OkStatus();
  if (skip_records_ > 0) {
    Record record;
    for (int64_t piece = kPiece; piece > 0 && skip_records_ > 0; --piece, --skip_records_) {
      if (NextRecord(&record, nullptr)) continue;
      RETURN_IF_ERROR(records_.status());
      if (follows) RETURN_IF_ERROR(EndGroup().status());
      if (follows && !ended_) return absl::OkStatus();
      ended_ = true;
      skip_records_ = 0;
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool gathered, Gather(nullptr));
  if (!gathered) return absl::OkStatus();
  --skip_;
  Pass();
  batch_.clear();
  return absl::OkStatus();
}

bool Lane::Jump() {
  const int64_t size = BatchSize(), examples = records_.epoch_examples();
  const int64_t last = shared_.epochs() - 1;
  int64_t epoch = 0;
  if (shared_.drop_last() || examples < size) {
    // Every epoch gives as many batches as the first.
    const int64_t each = shared_.drop_last() ? examples / size : 1;
    if (each == 0) return false;
    const int64_t in_epoch = (in_epoch_ + skip_records_) / size;
    const int64_t epochs = std::min((in_epoch + skip_) / each, last - records_.epoch());
    if (epochs <= 0) return false;
    epoch = records_.epoch() + epochs;
    passed_ += skip_;
    skip_ = in_epoch + skip_ - epochs * each;
    passed_ -= skip_;
    skip_records_ = 0;
  } else {
    // All batches so far were full.
    const __int128 records = static_cast<__int128>(passed_ + skip_) * size;
    epoch = static_cast<int64_t>(std::min<__int128>(records / examples, last));
    if (epoch <= records_.epoch()) return false;
    // Skipping beyond the end stops at the end.
    skip_records_ =
        static_cast<int64_t>(std::min<__int128>(records - static_cast<__int128>(epoch) * examples, examples + 1));
    passed_ += skip_;
    skip_ = 0;
  }
  batch_.clear();
  StartEpoch(epoch);
  return true;
}

bool Lane::NextRecord(Record* record, InputPosition* position) {
  const bool there = records_.Next(record, position);
  in_epoch_ += there;
  return there;
}

absl::StatusOr<bool> Lane::Gather(std::vector<InputPosition>* positions) {
  if (batch_.empty() && positions != nullptr) positions->clear();
  if (ended_) return true;
  const size_t size = static_cast<size_t>(BatchSize());
  Record record;
  InputPosition position;
  while (batch_.size() < size) {
    if (!NextRecord(&record, &position)) {
      RETURN_IF_ERROR(records_.status());
      return shared_.followed() != nullptr ? EndGroup() : EndEpoch();
    }
    batch_.push_back(std::move(record));
    if (positions != nullptr && shared_.options.with_positions) positions->push_back(position);
  }
  return true;
}

bool Lane::EndEpoch() {
  const bool has_batches = records_.epoch_examples() >= BatchSize();
  const bool last = records_.epoch() + 1 >= shared_.epochs();
  if (shared_.drop_last()) {
    batch_.clear();
    ended_ = last || !has_batches;
  } else {
    ended_ = last || records_.epoch_examples() == 0;
  }
  if (!ended_) StartEpoch(records_.epoch() + 1);
  // A batch continues into the next epoch, unless the stream never has enough records for one: then each epoch is a
  // batch.
  return ended_ || (!shared_.drop_last() && !has_batches);
}

void Lane::StartEpoch(int64_t epoch) {
  records_.StartEpoch(epoch);
  in_epoch_ = 0;
}

absl::StatusOr<bool> Lane::EndGroup() {
  StreamReading read = {.stream = stream_,
                        .group = group_,
                        .examples = examples_before_ + records_.epoch_examples(),
                        .dealt = dealt_before_ + records_.dealt_records()};
  if (files_ != nullptr) shared_.followed()->HasRead(read);
  ASSIGN_OR_RETURN(FollowedFiles::Group next, shared_.followed()->Find(stream_, group_ + 1));
  switch (next.state) {
    case FollowedFiles::Group::kUnknown:
      awaited_ = group_ + 1;
      return false;
    case FollowedFiles::Group::kThere:
      ++group_;
      examples_before_ = read.examples;
      dealt_before_ = read.dealt;
      records_.StartEpoch(group_, next.files.get(), dealt_before_);
      files_ = std::move(next.files);
      in_epoch_ = 0;
      return false;
    case FollowedFiles::Group::kStopped:
      stopped_ = true;
      break;
    case FollowedFiles::Group::kClosed:
      // A reader that knows of the last batch knows that it may be short.
      read.last = true;
      shared_.followed()->HasRead(read);
      break;
  }
  if (stopped_ || shared_.drop_last()) batch_.clear();
  ended_ = true;
  return true;
}

void Lane::Mark() {
  if (trail_ == nullptr) return;
  StreamBorder border = {.batches = passed_, .first_examples = first_examples_, .ended = ended_, .given = in_epoch_};
  records_.Describe(&border);
  trail_->Add(border, records_.TakeChanges());
}

void Lane::Pass() {
  if (passed_ < shared_.options.first_batches) first_examples_ += static_cast<int64_t>(batch_.size());
  ++passed_;
}

}  // namespace weir
