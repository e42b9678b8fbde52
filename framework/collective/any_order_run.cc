#include "framework/collective/any_order_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "framework/base/status_macros.h"
#include "framework/collective/addend_nodes.h"
#include "framework/collective/reduce_run.h"

namespace weir {

namespace {

// Messages that are asked for while one is added.
constexpr int64_t kAhead = 2;

// All-reduce of `count` elements around a ring.
//
// The elements are cut into a slice for each rank. In p - 1 steps the sums of slices go around: a rank sends one to the
// next rank and adds its own values to the one that comes from the rank before. Then the results go around in p - 1
// steps. A rank sends in a step what it has received in the step before. Slices are cut into messages, numbered through
// all steps: message q of a rank can be sent once message q - messages_ has come.
class Ring {
 public:
  Ring(Operation* operation, DType dtype, char* values, int64_t count, int64_t message_bytes, int64_t first_number)
      : operation_(*operation),
        dtype_(dtype),
        element_bytes_(static_cast<int64_t>(DTypeSize(dtype))),
        values_(values),
        begins_(EvenSlices(count, DTypeSize(dtype), operation->size())),
        message_elements_(std::max<int64_t>(1, message_bytes / static_cast<int64_t>(DTypeSize(dtype)))),
        first_number_(first_number) {
    for (int r = 0; r < ranks(); ++r) {
      messages_ = std::max(messages_, (SliceCount(r) + message_elements_ - 1) / message_elements_);
    }
  }

  // Number of messages that a rank sends.
  int64_t total() const { return 2 * (ranks() - 1) * messages_; }

  absl::Status Run() {
    for (int64_t q = 0; q < total(); ++q) {
      const int64_t may_leave = std::min({total(), q + 1 + kAhead, q + messages_});
      while (begun_sends_ < may_leave) Send(begun_sends_);
      RETURN_IF_ERROR(AskFor(q, /*waits=*/true));
      RETURN_IF_ERROR(AskFor(std::min(q + kAhead, total() - 1), /*waits=*/false));
      RETURN_IF_ERROR(Take(q));
      // The next rank has asked for these, or will, whatever this one does.
      RETURN_IF_ERROR(WaitForSends(q + 1 - kAhead));
    }
    return WaitForSends(begun_sends_);
  }

 private:
  struct Part {
    int64_t begin = 0, count = 0;
  };
  struct Arriving {
    Operation::Message message;
    MessageMemory::Block block;  // of an addend; a result comes to its place
  };

  int ranks() const { return operation_.size(); }
  int64_t SliceCount(int slice) const {
    return begins_[static_cast<size_t>(slice) + 1] - begins_[static_cast<size_t>(slice)];
  }
  // Returns true if incoming message q carries results; false: addends.
  bool IsResult(int64_t q) const { return q >= total() / 2; }
  // Returns the elements that the rank `back` ranks before this one sends in message q.
  Part PartOf(int64_t q, int back) const {
    const auto step = static_cast<int>(q / messages_);
    // Rank r begins with slice r, and has slice r + 1 complete after p - 1 steps, with which it goes on.
    const int slice = ((operation_.rank() - back - step) % ranks() + ranks()) % ranks();
    const int64_t begin = std::min(SliceCount(slice), q % messages_ * message_elements_);
    return {begins_[static_cast<size_t>(slice)] + begin, std::min(message_elements_, SliceCount(slice) - begin)};
  }
  char* At(int64_t element) const { return values_ + element * element_bytes_; }
  size_t Bytes(int64_t count) const { return static_cast<size_t>(count * element_bytes_); }

  void Send(int64_t q) {
    const Part part = PartOf(q, /*back=*/0);
    sends_.push_back(operation_.Send((operation_.rank() + 1) % ranks(), /*phase=*/0, first_number_ + q, At(part.begin),
                                     Bytes(part.count)));
    ++begun_sends_;
  }
  // Begins to receive messages up to q, unless it has begun. A result comes to memory from which an addend was sent:
  // waits: returns when that is over, else leaves the message for later if it is not.
  absl::Status AskFor(int64_t q, bool waits) {
    for (; asked_ <= q; ++asked_) {
      const Part part = PartOf(asked_, /*back=*/1);
      Arriving arriving;
      char* to = At(part.begin);
      if (IsResult(asked_)) {
        const int64_t sent = asked_ - total() / 2;
        if (!waits && begun_sends_ - static_cast<int64_t>(sends_.size()) <= sent) return absl::OkStatus();
        RETURN_IF_ERROR(WaitForSends(sent + 1));
      } else if (part.count > 0) {
        arriving.block = operation_.memory()->Take(Bytes(part.count));
        to = arriving.block.data.get();
      }
      arriving.message = operation_.Receive((operation_.rank() + ranks() - 1) % ranks(), /*phase=*/0,
                                            first_number_ + asked_, to, Bytes(part.count));
      arriving_.push_back(std::move(arriving));
    }
    return absl::OkStatus();
  }
  // Waits for message q, and adds it if it is an addend.
  absl::Status Take(int64_t q) {
    Arriving arriving = std::move(arriving_.front());
    arriving_.pop_front();
    RETURN_IF_ERROR(operation_.Wait(&arriving.message));
    if (IsResult(q)) return absl::OkStatus();
    const Part part = PartOf(q, /*back=*/1);
    if (part.count > 0) AddValues(dtype_, At(part.begin), arriving.block.data.get(), part.count, At(part.begin));
    operation_.memory()->Give(std::move(arriving.block));
    return absl::OkStatus();
  }
  // Waits until the first `count` messages are sent.
  absl::Status WaitForSends(int64_t count) {
    while (begun_sends_ - static_cast<int64_t>(sends_.size()) < count) {
      RETURN_IF_ERROR(operation_.Wait(&sends_.front()));
      sends_.pop_front();
    }
    return absl::OkStatus();
  }

  Operation& operation_;
  const DType dtype_;
  const int64_t element_bytes_;
  char* const values_;
  const std::vector<int64_t> begins_;
  const int64_t message_elements_;
  const int64_t first_number_;
  int64_t messages_ = 0;  // of a step
  std::deque<Arriving> arriving_;
  std::deque<Operation::Message> sends_;
  int64_t asked_ = 0, begun_sends_ = 0;
};

}  // namespace

bool CanReduceInAnyOrder(Reduction reduction, DType dtype) {
  return (reduction == Reduction::kSum || reduction == Reduction::kAverage) && CanReduce(reduction, dtype) &&
         DTypeSize(dtype) >= sizeof(float);
}

AnyOrderRun::AnyOrderRun(Operation* operation, Options options)
    : operation_(*operation), options_(std::move(options)), element_bytes_(DTypeSize(options_.dtype)) {}

uint64_t AnyOrderRun::AddOwn() {
  TreeReducer reducer(Reduction::kSum, options_.dtype, options_.lanes);
  uint64_t own = 0;
  int64_t begin = 0;
  for (size_t s = 0; s < options_.segments.size(); ++s) {
    std::vector<LaneAddend> addends;
    for (const LaneAddend& addend : options_.addends) {
      if ((addend.present >> s & 1) == 0) continue;
      const char* const values = static_cast<const char*>(addend.values) + begin * static_cast<int64_t>(element_bytes_);
      addends.push_back({.lanes = addend.lanes, .values = values});
    }
    if (!addends.empty()) {
      own |= uint64_t{1} << s;
      reducer.Reduce(addends, /*samples=*/1, options_.segments[s], At(begin));
    }
    begin += options_.segments[s];
  }
  return own;
}

std::vector<AnyOrderRun::Part> AnyOrderRun::PresentParts() const {
  std::vector<Part> parts;
  int64_t begin = 0;
  for (size_t s = 0; s < options_.segments.size(); ++s) {
    const int64_t count = options_.segments[s];
    const bool follows = !parts.empty() && parts.back().begin + parts.back().count == begin;
    if ((present_ >> s & 1) != 0 && count > 0) {
      if (follows) {
        parts.back().count += count;
      } else {
        parts.push_back({begin, count});
      }
    }
    begin += count;
  }
  return parts;
}

absl::Status AnyOrderRun::ByMesh(const Part& part) {
  const DType dtype = options_.dtype;
  absl::Status waited;  // says what it is about, unlike errors of the mesh
  const absl::Status status =
      operation_.mesh().AllReduce({.number = static_cast<uint64_t>(operation_.header().sequence()),
                                   .values = At(part.begin),
                                   .count = static_cast<size_t>(part.count),
                                   .element_bytes = element_bytes_,
                                   .add = [dtype](void* out, const void* a, const void* b,
                                                  size_t n) { AddValues(dtype, a, b, static_cast<int64_t>(n), out); },
                                   .waits = [&](int peer) { return waited = operation_.StillWaits(peer); },
                                   .moved = [this] { operation_.Moved(); }});
  if (status.ok() || !waited.ok()) return operation_.Fail(waited);
  return operation_.Fail(absl::Status(
      status.code(), absl::StrCat(DescribeOperation(operation_.header()), ": ", std::string(status.message()))));
}

absl::Status AnyOrderRun::ByRing(const Part& part) {
  Ring ring(&operation_, options_.dtype, At(part.begin), part.count, options_.message_bytes, next_number_);
  next_number_ += ring.total();
  return ring.Run();
}

absl::Status AnyOrderRun::Run() {
  RETURN_IF_ERROR(operation_.SendHeaders({}));
  const auto nodes = [this](absl::Span<const v1::CollectiveHeader> headers) {
    return AddendNodesOf(headers, options_.segments.size(), options_.lanes);
  };
  // While headers are under way. What is wrong is reported with them.
  const uint64_t own = nodes(absl::MakeConstSpan(&operation_.header(), 1)).ok() ? AddOwn() : 0;
  std::vector<v1::CollectiveHeader> headers;
  RETURN_IF_ERROR(operation_.ReceiveHeaders(&headers));
  const absl::StatusOr<AddendNodes> all = nodes(headers);
  RETURN_IF_ERROR(operation_.Fail(all.status()));
  present_ = all->present;
  samples_ = all->samples;
  const bool divides = options_.reduction == Reduction::kAverage;
  if (divides) RETURN_IF_ERROR(operation_.Fail(CheckDivisor(operation_.header(), present_, samples_)));
  int64_t begin = 0;
  for (size_t s = 0; s < options_.segments.size(); ++s) {
    const auto bytes = static_cast<size_t>(options_.segments[s]) * element_bytes_;
    if (((present_ & ~own) >> s & 1) != 0 && bytes > 0) std::memset(At(begin), 0, bytes);
    begin += options_.segments[s];
  }
  for (const Part& part : PresentParts()) {
    if (operation_.size() > 1) {
      RETURN_IF_ERROR(operation_.mesh().HasAllReduce() ? ByMesh(part) : ByRing(part));
    }
    if (divides) DivideValues(options_.dtype, samples_, part.count, At(part.begin));
  }
  return operation_.EndHeaders();
}

}  // namespace weir
