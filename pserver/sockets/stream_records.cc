#include "pserver/sockets/stream_records.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/wire/frame.h"

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little);

// The head as it lies in a batch.
struct Head {
  uint32_t version, kind;
  uint64_t call;
  uint32_t method, flags;
  uint64_t bytes, run, epoch, profiled_id;
  int64_t step;
};
static_assert(sizeof(Head) == kRecordHead);

constexpr uint32_t kAnswerMayWait = 1;  // of flags; others mean nothing yet

size_t Padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Takes bytes from the front of slices, one after the other.
class Front {
 public:
  explicit Front(const Slices& slices) : slices_(slices), left_(TotalSize(slices)) {}

  size_t left() const { return left_; }
  // Requires: there are so many bytes.
  void Copy(size_t bytes, char* to) {
    Take(bytes, [&to](const Slice& slice) {
      std::memcpy(to, slice.data, slice.size);
      to += slice.size;
    });
  }
  Slices Share(size_t bytes) {
    Slices shared;
    Take(bytes, [&shared](const Slice& slice) { shared.push_back(slice); });
    return shared;
  }
  void Skip(size_t bytes) {
    Take(bytes, [](const Slice&) {});
  }

 private:
  template <typename Use>
  void Take(size_t bytes, const Use& use) {
    left_ -= bytes;
    while (bytes > 0) {
      const Slice& slice = slices_[at_];
      const size_t n = std::min(bytes, slice.size - offset_);
      if (n > 0) use(Slice{slice.data + offset_, n, slice.owner});
      bytes -= n;
      offset_ += n;
      if (offset_ < slice.size) continue;
      ++at_;
      offset_ = 0;
    }
  }

  const Slices& slices_;
  size_t left_;
  size_t at_ = 0, offset_ = 0;
};

}  // namespace

size_t Record::bytes() const { return kRecordHead + Padded(TotalSize(payload)); }

void AppendRecord(const Record& record, Slices* batch) {
  const size_t bytes = TotalSize(record.payload);
  const Head head = {.version = kRecordVersion,
                     .kind = record.head.kind,
                     .call = record.head.call,
                     .method = record.head.method,
                     .flags = record.head.answer_may_wait ? kAnswerMayWait : 0,
                     .bytes = bytes,
                     .run = record.head.run,
                     .epoch = record.head.epoch,
                     .profiled_id = record.head.profiled_id,
                     .step = record.head.step};
  batch->push_back(Slice::Own(std::string(reinterpret_cast<const char*>(&head), sizeof(head))));
  for (const Slice& slice : record.payload) {
    if (slice.size == 0) continue;
    batch->push_back(slice.owner != nullptr ? slice : Slice::Own(std::string(slice.data, slice.size)));
  }
  if (const size_t rest = Padded(bytes) - bytes; rest > 0) batch->push_back(Slice::Own(std::string(rest, '\0')));
}

absl::StatusOr<std::vector<Record>> ReadRecords(const Slices& batch) {
  std::vector<Record> records;
  Front front(batch);
  while (front.left() > 0) {
    if (front.left() < kRecordHead) {
      return absl::InvalidArgumentError(
          absl::StrCat("a batch of records ends with ", front.left(), " bytes, which are no head of a record"));
    }
    if (records.size() == kMostRecords) {
      return absl::InvalidArgumentError(absl::StrCat("a batch has more than ", kMostRecords, " records"));
    }
    Head head;
    front.Copy(sizeof(head), reinterpret_cast<char*>(&head));
    if (head.version != kRecordVersion) {
      return absl::FailedPreconditionError(absl::StrCat("the other process sends records of version ", head.version,
                                                        ", and this one reads version ", kRecordVersion,
                                                        ": run the same version of Weir on all hosts"));
    }
    if (head.kind < RecordHead::kRequest || head.kind > RecordHead::kApply) {
      return absl::InvalidArgumentError(absl::StrCat("a record of the unknown kind ", head.kind));
    }
    if (head.bytes > kMaxMessageBytes || Padded(head.bytes) > front.left()) {
      return absl::InvalidArgumentError(absl::StrCat("a record says that it has ", head.bytes, " bytes, and the batch ",
                                                     "has ", front.left(), " more"));
    }
    Record& record = records.emplace_back();
    record.head = {.kind = head.kind,
                   .call = head.call,
                   .method = head.method,
                   .answer_may_wait = (head.flags & kAnswerMayWait) != 0,
                   .run = head.run,
                   .epoch = head.epoch,
                   .profiled_id = head.profiled_id,
                   .step = head.step};
    record.payload = front.Share(head.bytes);
    front.Skip(Padded(head.bytes) - head.bytes);
  }
  return records;
}

}  // namespace weir
