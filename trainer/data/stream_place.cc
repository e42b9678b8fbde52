#include "trainer/data/stream_place.h"

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "trainer/files/open_bytes.h"
#include "trainer/files/tf_record_frame.h"

namespace weir {
namespace {

// Far beyond all counts of a run: sums of a few of them stay far from the end of their type.
constexpr int64_t kMostCounted = int64_t{1} << 60;

bool IsCount(int64_t number) { return number >= 0 && number <= kMostCounted; }

absl::Status WrongPlace(const std::string& why) { return absl::DataLossError(why); }

// Checks whether a record may be at `place`, as far as the segments tell.
absl::Status CheckInSegment(const PlaceOfRecord& place, absl::Span<const DataFile> files,
                            absl::Span<const Segment> segments) {
  if (place.segment < 0 || place.segment >= static_cast<int64_t>(segments.size())) {
    return WrongPlace(absl::StrCat("segment ", place.segment, " of ", segments.size()));
  }
  const Segment& segment = segments[static_cast<size_t>(place.segment)];
  const DataFile& file = files[static_cast<size_t>(segment.file)];
  // Nobody knows how long the text of a compressed file is.
  const int64_t end = file.sequential() && file.idx == nullptr ? kMostCounted : segment.end;
  const bool counted = file.idx != nullptr || file.examples != nullptr;
  const bool right = place.at >= segment.begin && place.at < end && IsCount(place.number) && IsCount(place.before) &&
                     (!counted || place.number == place.at - segment.begin) && (counted || place.number <= place.at);
  if (right) return absl::OkStatus();
  return WrongPlace(
      absl::StrCat("record ", place.number, " at ", place.at, " of ", file.name, ", behind ", place.before, " others"));
}

// Looks whether a record begins there.
absl::Status CheckInFile(int64_t at, const DataFile& file) {
  if (!file.seekable() || !(file.lines() || file.tf_record) || (file.lines() && at == 0)) return absl::OkStatus();
  char bytes[TfRecordFrame::kHeader];
  const size_t wanted = file.lines() ? 1 : sizeof(bytes);
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, OpenBytes(file, file.lines() ? at - 1 : at));
  ASSIGN_OR_RETURN(const size_t got, source->ReadFully(bytes, wanted));
  const bool begins = file.lines() ? bytes[0] == '\n' : TfRecordFrame::IsRight(bytes, TfRecordFrame::kLength);
  if (got == wanted && begins) return absl::OkStatus();
  return WrongPlace(absl::StrCat("no record begins at byte ", at, " of ", file.name));
}

absl::Status CheckBuffer(const v1::StreamPlace& place, absl::Span<const DataFile> files,
                         absl::Span<const Segment> segments, int64_t most) {
  const v1::ShuffleBuffer& buffer = place.buffer();
  if (!IsCount(buffer.draws()) || buffer.size() < (buffer.waits() ? 1 : 0) || buffer.size() > most ||
      buffer.size() > std::numeric_limits<uint32_t>::max() ||
      place.read() - place.given() != buffer.size() + (buffer.waits() ? 1 : 0)) {
    return WrongPlace(absl::StrCat("a buffer of ", buffer.size(), " examples"));
  }
  int64_t count = 0, segment = -1, number = -1;
  for (const v1::ShuffleBuffer::Part& part : buffer.parts()) count += part.at_size();
  if (count != buffer.size()) return WrongPlace(absl::StrCat("a buffer of ", count, " examples"));
  std::vector<bool> filled(static_cast<size_t>(count));
  for (const v1::ShuffleBuffer::Part& part : buffer.parts()) {
    if (part.segment() <= segment || part.at_size() == 0 || part.at_size() != part.number_size() ||
        part.at_size() != part.slot_size()) {
      return WrongPlace("the parts of a buffer");
    }
    segment = part.segment();
    PlaceOfRecord at = {.segment = segment, .before = part.before()};
    for (int i = 0; i < part.at_size(); ++i) {
      const uint64_t further = part.at(i), more = part.number(i), slot = part.slot(i);
      if (further > kMostCounted || more > kMostCounted || (i > 0 && (further == 0 || more == 0)) ||
          slot >= filled.size() || filled[slot]) {
        return WrongPlace("a record of a buffer");
      }
      filled[slot] = true;
      at.at += static_cast<int64_t>(further);
      at.number += static_cast<int64_t>(more);
      RETURN_IF_ERROR(CheckInSegment(at, files, segments));
      if (!KeptPlace::Fits(at)) return WrongPlace("a record of a buffer");
    }
    number = at.number;
  }
  // The last record of all is the last one of the buffer at most; one that waits is not in it.
  const v1::PlaceOfRecord& last = place.last();
  const bool behind = segment < last.segment() || (segment == last.segment() && number < last.number());
  const bool same = segment == last.segment() && number == last.number() && !buffer.waits();
  return behind || same ? absl::OkStatus() : WrongPlace("a buffer with records behind the last one");
}

}  // namespace

absl::Status CheckStreamPlace(const v1::StreamPlace& place, absl::Span<const DataFile> files,
                              absl::Span<const Segment> segments, int64_t epochs, int64_t most) {
  for (const int64_t number :
       {place.batches(), place.first_examples(), place.epoch(), place.epochs(), place.given(), place.read()}) {
    if (!IsCount(number)) return WrongPlace(absl::StrCat("a number of ", number));
  }
  if (place.epoch() >= place.epochs() || place.epoch_examples() < -1 || place.epoch_examples() > kMostCounted ||
      (place.epoch() > 0 && place.epoch_examples() < 0) ||
      (place.epoch_examples() >= 0 && place.epoch_examples() < place.read()) ||
      (place.ended() && place.epoch_examples() < 0)) {
    return WrongPlace(absl::StrCat("epoch ", place.epoch(), " of ", place.epochs(), ", with ", place.read(), " of ",
                                   place.epoch_examples(), " examples"));
  }
  if (place.ended() ? place.epochs() != epochs : place.epoch() >= epochs) {
    return absl::FailedPreconditionError(absl::StrCat("of ", place.epochs(), " epochs, the job has ", epochs));
  }
  if (place.epoch_examples() >= 0 && place.given() > place.epoch_examples()) {
    return WrongPlace(absl::StrCat(place.given(), " of ", place.epoch_examples(), " examples given"));
  }
  if (place.ended() || !place.has_last()) {
    // A stream that goes on there reads none of these.
    const bool plain = !place.has_last() && !place.has_buffer() && place.read() == 0;
    return plain ? absl::OkStatus() : WrongPlace("a record, or a buffer, of a stream that is not within an epoch");
  }
  const PlaceOfRecord last = {.segment = place.last().segment(),
                              .at = place.last().at(),
                              .number = place.last().number(),
                              .before = place.last().before()};
  RETURN_IF_ERROR(CheckInSegment(last, files, segments));
  if (place.read() == 0) return WrongPlace("a record of none");
  if (place.has_buffer() != (most >= 0)) return WrongPlace("the shuffle of the stream");
  if (place.has_buffer()) {
    RETURN_IF_ERROR(CheckBuffer(place, files, segments, most));
  } else if (place.read() != place.given()) {
    return WrongPlace(absl::StrCat(place.read(), " examples read and ", place.given(), " given"));
  }
  return CheckInFile(last.at, files[static_cast<size_t>(segments[static_cast<size_t>(last.segment)].file)]);
}

}  // namespace weir
