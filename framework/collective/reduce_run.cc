#include "framework/collective/reduce_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"

namespace weir {

namespace {

constexpr int kAddends = 0, kResults = 1;
// Messages of a slice that are under way while one is reduced.
constexpr int64_t kAhead = 2;

// framework/profile/profile_table.cc knows the first two.
const ProfileName kBeginName("others begin"), kReduceName("reduce-scatter"), kGatherName("all-gather");

}  // namespace

ReduceRun::ReduceRun(Operation* operation, Options options)
    : operation_(*operation),
      options_(std::move(options)),
      parts_(options_.begins, options_.segments, DTypeSize(options_.dtype), options_.message_bytes),
      reducer_(options_.reduction, options_.dtype, options_.lanes) {
  for (const LaneAddend& addend : options_.addends)
    in_place_ |= Reads(operation_.rank()) && addend.values == options_.out;
}

absl::Status ReduceRun::TakeHeaders(const std::vector<v1::CollectiveHeader>& headers) {
  ASSIGN_OR_RETURN(AddendNodes all, AddendNodesOf(headers, parts_.segments(), options_.lanes));
  nodes_ = std::move(all.nodes);
  present_ = all.present;
  samples_ = all.samples;
  if (options_.reduction == Reduction::kAverage) RETURN_IF_ERROR(CheckDivisor(operation_.header(), present_, samples_));
  std::vector<uint64_t> present;
  for (const AddendNode& node : nodes_) present.push_back(node.present);
  kinds_ = parts_.KindsOf(present);
  return absl::OkStatus();
}

void ReduceRun::SendAddends(int64_t m) {
  std::vector<Operation::Message>& sends = addend_sends_.emplace_back();
  // Begin with the next rank, so that not all ranks send to the same one first.
  for (int i = 1; i < operation_.size(); ++i) {
    const int peer = (operation_.rank() + i) % operation_.size();
    const Part part = parts_.PartOf(peer, m);
    for (size_t a = 0; a < options_.addends.size(); ++a) {
      const char* const values = static_cast<const char*>(options_.addends[a].values);
      const std::vector<Part> runs = parts_.PresentOf(part, options_.addends[a].present);
      for (size_t i = 0; i < runs.size(); ++i) {
        sends.push_back(operation_.Send(peer, kAddends, AddendNumber(m, static_cast<int>(a), i),
                                        values + Bytes(runs[i].begin), Bytes(runs[i].count)));
      }
    }
  }
}

void ReduceRun::ReceiveAddends(int64_t m) {
  Arriving& arriving = arriving_.emplace_back();
  const Part part = parts_.PartOf(operation_.rank(), m);
  const size_t bytes = Bytes(part.count);
  const auto others = std::count_if(nodes_.begin(), nodes_.end(),
                                    [this](const AddendNode& node) { return node.rank != operation_.rank(); });
  if (others == 0 || bytes == 0) return;
  arriving.bytes = operation_.memory()->Take(static_cast<size_t>(others) * bytes);
  char* to = arriving.bytes.data.get();
  for (const AddendNode& node : nodes_) {
    if (node.rank == operation_.rank()) continue;
    const std::vector<Part> runs = parts_.PresentOf(part, node.present);
    for (size_t i = 0; i < runs.size(); ++i) {
      arriving.messages.push_back(operation_.Receive(node.rank, kAddends, AddendNumber(m, node.index, i),
                                                     to + Bytes(runs[i].begin - part.begin), Bytes(runs[i].count)));
    }
    to += bytes;
  }
}

absl::Status ReduceRun::ReduceMessage(int64_t m) {
  Arriving arriving = std::move(arriving_.front());
  arriving_.pop_front();
  RETURN_IF_ERROR(operation_.WaitAll(&arriving.messages));
  const Part part = parts_.PartOf(operation_.rank(), m);
  if (part.count == 0) return absl::OkStatus();
  std::vector<const char*> values;  // of the part, by node
  const char* arrived = arriving.bytes.data.get();
  for (const AddendNode& node : nodes_) {
    if (node.rank == operation_.rank()) {
      const void* const own = options_.addends[static_cast<size_t>(node.index)].values;
      values.push_back(static_cast<const char*>(own) + Bytes(part.begin));
    } else {
      values.push_back(arrived);
      arrived += Bytes(part.count);
    }
  }
  char* result = options_.out;
  if (options_.reader == kNobody) {
    result += Bytes(part.begin - parts_.Begin(operation_.rank()));
  } else if (Reads(operation_.rank())) {
    result += Bytes(part.begin);
  } else {
    results_.resize(Bytes(parts_.Count(operation_.rank())));
    result = results_.data() + Bytes(part.begin - parts_.Begin(operation_.rank()));
  }
  for (const Part& run : parts_.RunsOf(part, [this](size_t s) { return kinds_[s]; })) {
    const size_t segment = parts_.SegmentOf(run.begin), offset = Bytes(run.begin - part.begin);
    std::vector<LaneAddend> addends;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if ((nodes_[n].present >> segment & 1) == 0) continue;
      addends.push_back({.lanes = nodes_[n].lanes, .values = values[n] + offset});
    }
    float* const lost = options_.lost == nullptr ? nullptr : options_.lost + run.begin;
    reducer_.Reduce(addends, samples_, run.count, result + offset, lost);
  }
  operation_.memory()->Give(std::move(arriving.bytes));
  std::vector<Operation::Message>& sends = result_sends_.emplace_back();
  const std::vector<Part> runs = parts_.PresentOf(part, present_);
  for (int i = 1; i < operation_.size(); ++i) {
    const int peer = (operation_.rank() + i) % operation_.size();
    for (size_t r = 0; r < runs.size() && Reads(peer); ++r) {
      sends.push_back(operation_.Send(peer, kResults, ResultNumber(m, r), result + Bytes(runs[r].begin - part.begin),
                                      Bytes(runs[r].count)));
    }
  }
  return absl::OkStatus();
}

void ReduceRun::ReceiveResults(int64_t m) {
  if (!Reads(operation_.rank())) return;
  for (int i = 1; i < operation_.size(); ++i) {
    const int peer = (operation_.rank() + i) % operation_.size();
    const std::vector<Part> runs = parts_.PresentOf(parts_.PartOf(peer, m), present_);
    for (size_t r = 0; r < runs.size(); ++r) {
      results_of_others_.push_back(operation_.Receive(peer, kResults, ResultNumber(m, r),
                                                      options_.out + Bytes(runs[r].begin), Bytes(runs[r].count)));
    }
  }
}

absl::Status ReduceRun::Begin() {
  const ProfileSpan span(ProfiledStep::current(), ProfileKind::kExchange, kBeginName);
  RETURN_IF_ERROR(operation_.SendHeaders({}));
  // Data leaves before the headers of others have come: a rank at another operation refuses it.
  for (int64_t m = 0; m < std::min(kAhead, parts_.messages()); ++m) SendAddends(m);
  std::vector<v1::CollectiveHeader> headers;
  RETURN_IF_ERROR(operation_.ReceiveHeaders(&headers));
  return operation_.Fail(TakeHeaders(headers));
}

absl::Status ReduceRun::ReduceOwnSlice() {
  if (present_ == 0) return absl::OkStatus();
  const ProfileSpan span(ProfiledStep::current(), ProfileKind::kExchange, kReduceName);
  for (int64_t m = 0; m < std::min(kAhead, parts_.messages()); ++m) ReceiveAddends(m);
  // No rank waits for one that is behind in a way that would hold that one up: before it has reduced message m, it has
  // sent its addends of the kAhead messages from m on, and asked for those of others and for all results up to m.
  for (int64_t m = 0; m < parts_.messages(); ++m) {
    // A result comes when its owner has the addends of it, but a lost answer could have them sent again.
    if (in_place_) RETURN_IF_ERROR(operation_.WaitForOldest(addend_sends_.size() - 1, &addend_sends_));
    ReceiveResults(m);
    RETURN_IF_ERROR(ReduceMessage(m));
    if (m + kAhead < parts_.messages()) {
      ReceiveAddends(m + kAhead);
      SendAddends(m + kAhead);
    }
    RETURN_IF_ERROR(operation_.WaitForOldest(2 * kAhead, &addend_sends_));
    RETURN_IF_ERROR(operation_.WaitForOldest(kAhead, &result_sends_));
  }
  return absl::OkStatus();
}

absl::Status ReduceRun::Run() {
  RETURN_IF_ERROR(Begin());
  RETURN_IF_ERROR(ReduceOwnSlice());
  const ProfileSpan span(ProfiledStep::current(), ProfileKind::kExchange, kGatherName);
  RETURN_IF_ERROR(operation_.WaitAll(&results_of_others_));
  RETURN_IF_ERROR(operation_.WaitForOldest(0, &addend_sends_));
  RETURN_IF_ERROR(operation_.WaitForOldest(0, &result_sends_));
  return operation_.EndHeaders();
}

}  // namespace weir
