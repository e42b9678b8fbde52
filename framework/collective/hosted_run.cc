#include "framework/collective/hosted_run.h"

#include <algorithm>
#include <utility>

#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/lane_tree.h"

namespace weir {

namespace {

constexpr int kHostAddends = 0, kHostResults = 1, kHostSums = 2;
// Messages of a slice that are under way while one is reduced.
constexpr int64_t kHostAhead = 2;
// Bound of the numbers of messages (Operation).
constexpr int64_t kMostHostNumbers = int64_t{1} << 30;

const ProfileName kHostBeginName("others begin"), kHostReduceName("reduce-scatter"), kHostGatherName("all-gather");

// Returns the smallest aligned node that has the lanes from `begin` to `end`.
LaneRange Cover(int begin, int end) {
  int size = 1;
  while (begin / size * size + size < end) size *= 2;
  return {begin / size * size, size};
}

SliceParts PartsOf(const ReduceRun::Options& o) {
  return SliceParts(o.begins, o.segments, DTypeSize(o.dtype), o.message_bytes);
}

// Most places of addends in the messages of a slice between two ranks.
int64_t PlacesOf(const Hosts& hosts) { return int64_t{kMostAddends} * hosts.most_ranks(); }

}  // namespace

std::vector<HostNode> HostNodesOf(const std::vector<AddendNode>& nodes, int lanes, const Hosts& hosts) {
  std::vector<LaneRange> present;
  std::vector<HostNode> groups;
  std::vector<bool> closed(nodes.size());  // has been added to another host's
  for (size_t i = 0; i < nodes.size(); ++i) {
    present.push_back(nodes[i].lanes);
    groups.push_back({hosts.of(nodes[i].rank), nodes[i].lanes, {i}, nodes[i].present});
  }
  std::vector<HostNode> done;
  for (const LaneAdd& add : TreeAdds(present, lanes)) {
    const size_t left = static_cast<size_t>(add.left), right = static_cast<size_t>(add.right);
    HostNode &a = groups[left], &b = groups[right];
    if (!closed[left] && !closed[right] && a.host == b.host) {
      a.nodes.insert(a.nodes.end(), b.nodes.begin(), b.nodes.end());
      a.lanes = Cover(a.lanes.begin, b.lanes.begin + b.lanes.count);
      a.present |= b.present;
      continue;
    }
    if (!closed[left]) done.push_back(a);
    if (!closed[right]) done.push_back(b);
    closed[left] = closed[right] = true;
  }
  if (!nodes.empty() && !closed[0]) done.push_back(groups[0]);
  std::sort(done.begin(), done.end(),
            [](const HostNode& a, const HostNode& b) { return a.lanes.begin < b.lanes.begin; });
  return done;
}

bool HostedRun::Fits(const ReduceRun::Options& reduction, const Hosts& hosts) {
  const SliceParts parts = PartsOf(reduction);
  const int64_t slices = static_cast<int64_t>(reduction.begins.size()) - 1;
  return parts.messages() < kMostHostNumbers / (slices * PlacesOf(hosts) * parts.most_runs());
}

HostedRun::HostedRun(Operation* operation, Options options)
    : operation_(*operation),
      options_(std::move(options.reduction)),
      hosts_(*options.hosts),
      rank_(operation_.rank()),
      host_(hosts_.of(rank_)),
      parts_(PartsOf(options_)),
      whole_(options_.reduction, options_.dtype, options_.lanes),
      partial_(options_.reduction == Reduction::kAverage ? Reduction::kSum : options_.reduction, options_.dtype,
               options_.lanes) {
  for (const LaneAddend& addend : options_.addends) in_place_ |= SharesResults() && addend.values == options_.out;
  for (int r = 0; r < operation_.size(); ++r) {
    if (IsProxy(r)) proxied_.push_back(r);
  }
}

int64_t HostedRun::Number(int64_t m, int slice, size_t place, size_t run) const {
  return ((m * operation_.size() + slice) * PlacesOf(hosts_) + static_cast<int64_t>(place)) * parts_.most_runs() +
         static_cast<int64_t>(run);
}

absl::Status HostedRun::TakeHeaders(const std::vector<v1::CollectiveHeader>& headers) {
  ASSIGN_OR_RETURN(AddendNodes all, AddendNodesOf(headers, parts_.segments(), options_.lanes));
  nodes_ = std::move(all.nodes);
  present_ = all.present;
  samples_ = all.samples;
  if (options_.reduction == Reduction::kAverage) RETURN_IF_ERROR(CheckDivisor(operation_.header(), present_, samples_));
  of_hosts_ = HostNodesOf(nodes_, options_.lanes, hosts_);
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------------------------ messages

void HostedRun::SendAddends(int64_t m) {
  Messages& sends = addend_sends_.emplace_back();
  // Begin with the next rank, so that not all ranks send to the same one first.
  for (int i = 1; i < operation_.size(); ++i) {
    const int slice = (rank_ + i) % operation_.size();
    const int to = hosts_.Proxy(host_, slice);
    if (to == rank_) continue;
    const Part part = parts_.PartOf(slice, m);
    for (size_t a = 0; a < options_.addends.size(); ++a) {
      const char* const values = static_cast<const char*>(options_.addends[a].values);
      const std::vector<Part> runs = parts_.PresentOf(part, options_.addends[a].present);
      for (size_t r = 0; r < runs.size(); ++r) {
        sends.push_back(operation_.Send(to, kHostAddends, Number(m, slice, a, r), values + Bytes(runs[r].begin),
                                        Bytes(runs[r].count)));
      }
    }
  }
}

HostedRun::Arriving HostedRun::ReceiveAddends(int64_t m, int slice) {
  Arriving arriving;
  const Part part = parts_.PartOf(slice, m);
  const size_t bytes = Bytes(part.count);
  if (bytes == 0) return arriving;
  // Ranks of this host send their addends themselves; other hosts send to the owner what they have added.
  struct Source {
    Addend addend;
    int from, phase;
    size_t place;
  };
  std::vector<Source> sources;
  for (const AddendNode& node : nodes_) {
    if (hosts_.of(node.rank) != host_) continue;
    sources.push_back({{node.lanes, node.present, nullptr}, node.rank, kHostAddends, static_cast<size_t>(node.index)});
    Source& source = sources.back();
    if (node.rank != rank_) continue;
    const void* const own = options_.addends[static_cast<size_t>(node.index)].values;
    source.addend.values = static_cast<const char*>(own) + Bytes(part.begin);
  }
  if (slice == rank_) {
    std::vector<size_t> places(static_cast<size_t>(hosts_.count()));
    for (const HostNode& node : of_hosts_) {
      const size_t place = places[static_cast<size_t>(node.host)]++;
      if (node.host == host_) continue;
      sources.push_back({{node.lanes, node.present, nullptr}, hosts_.Proxy(node.host, rank_), kHostSums, place});
    }
    std::sort(sources.begin(), sources.end(),
              [](const Source& a, const Source& b) { return a.addend.lanes.begin < b.addend.lanes.begin; });
  }
  const auto arrive = std::count_if(sources.begin(), sources.end(),
                                    [](const Source& source) { return source.addend.values == nullptr; });
  if (arrive > 0) arriving.bytes = operation_.memory()->Take(static_cast<size_t>(arrive) * bytes);
  char* to = arriving.bytes.data.get();
  for (Source& source : sources) {
    if (source.addend.values == nullptr) {
      const std::vector<Part> runs = parts_.PresentOf(part, source.addend.present);
      for (size_t r = 0; r < runs.size(); ++r) {
        arriving.messages.push_back(operation_.Receive(source.from, source.phase, Number(m, slice, source.place, r),
                                                       to + Bytes(runs[r].begin - part.begin), Bytes(runs[r].count)));
      }
      source.addend.values = to;
      to += bytes;
    }
    arriving.addends.push_back(source.addend);
  }
  return arriving;
}

void HostedRun::Receive(int64_t m) {
  own_.push_back(ReceiveAddends(m, rank_));
  std::vector<Arriving>& for_owners = for_owners_.emplace_back();
  for (const int slice : proxied_) for_owners.push_back(ReceiveAddends(m, slice));
}

void HostedRun::ReceiveResults(int64_t m) {
  std::vector<Messages>& to_forward = to_forward_.emplace_back(proxied_.size());
  if (!SharesResults()) return;
  size_t next = 0;
  for (int slice = 0; slice < operation_.size(); ++slice) {
    if (slice == rank_) continue;
    const bool proxied = IsProxy(slice);
    const int from = proxied ? slice : hosts_.Proxy(host_, slice);
    Messages* const messages = proxied ? &to_forward[next++] : &results_;
    const std::vector<Part> runs = parts_.PresentOf(parts_.PartOf(slice, m), present_);
    for (size_t r = 0; r < runs.size(); ++r) {
      messages->push_back(operation_.Receive(from, kHostResults, Number(m, slice, 0, r),
                                             options_.out + Bytes(runs[r].begin), Bytes(runs[r].count)));
    }
  }
}

// ------------------------------------------------------------------------------------------------------------
// additions

void HostedRun::Add(TreeReducer* reducer, const Part& part, absl::Span<const Addend> addends, char* out) const {
  std::vector<uint64_t> present;
  for (const Addend& addend : addends) present.push_back(addend.present);
  const std::vector<int> kinds = parts_.KindsOf(present);
  for (const Part& run : parts_.RunsOf(part, [&](size_t s) { return kinds[s]; })) {
    const size_t segment = parts_.SegmentOf(run.begin), offset = Bytes(run.begin - part.begin);
    std::vector<LaneAddend> values;
    for (const Addend& addend : addends) {
      if ((addend.present >> segment & 1) != 0)
        values.push_back({.lanes = addend.lanes, .values = addend.values + offset});
    }
    reducer->Reduce(values, samples_, run.count, out + offset);
  }
}

absl::Status HostedRun::MergeForOwners(int64_t m) {
  std::vector<Arriving> arrived = std::move(for_owners_.front());
  for_owners_.pop_front();
  std::vector<Merged>& merged = merged_sends_.emplace_back();
  for (size_t i = 0; i < proxied_.size(); ++i) {
    const int slice = proxied_[i];
    Arriving& arriving = arrived[i];
    RETURN_IF_ERROR(operation_.WaitAll(&arriving.messages));
    const Part part = parts_.PartOf(slice, m);
    if (part.count == 0) continue;
    const auto own =
        std::count_if(of_hosts_.begin(), of_hosts_.end(), [this](const HostNode& node) { return node.host == host_; });
    Merged& sums = merged.emplace_back();
    sums.bytes = operation_.memory()->Take(static_cast<size_t>(own) * Bytes(part.count));
    char* out = sums.bytes.data.get();
    size_t place = 0;
    for (const HostNode& node : of_hosts_) {
      if (node.host != host_) continue;
      std::vector<Addend> addends;
      for (const Addend& addend : arriving.addends) {
        if (addend.lanes.begin >= node.lanes.begin && addend.lanes.begin < node.lanes.begin + node.lanes.count) {
          addends.push_back(addend);
        }
      }
      Add(&partial_, part, addends, out);
      const std::vector<Part> runs = parts_.PresentOf(part, node.present);
      for (size_t r = 0; r < runs.size(); ++r) {
        sums.messages.push_back(operation_.Send(slice, kHostSums, Number(m, slice, place, r),
                                                out + Bytes(runs[r].begin - part.begin), Bytes(runs[r].count)));
      }
      ++place;
      out += Bytes(part.count);
    }
    operation_.memory()->Give(std::move(arriving.bytes));
  }
  return absl::OkStatus();
}

absl::Status HostedRun::ReduceOwn(int64_t m) {
  Arriving arriving = std::move(own_.front());
  own_.pop_front();
  RETURN_IF_ERROR(operation_.WaitAll(&arriving.messages));
  const Part part = parts_.PartOf(rank_, m);
  if (part.count == 0) return absl::OkStatus();
  char* const result = options_.out + Bytes(SharesResults() ? part.begin : part.begin - parts_.Begin(rank_));
  Add(&whole_, part, arriving.addends, result);
  operation_.memory()->Give(std::move(arriving.bytes));
  Messages& sends = result_sends_.emplace_back();
  if (!SharesResults()) return absl::OkStatus();
  const std::vector<Part> runs = parts_.PresentOf(part, present_);
  const auto send = [&](int to) {
    for (size_t r = 0; r < runs.size() && to != rank_; ++r) {
      sends.push_back(operation_.Send(to, kHostResults, Number(m, rank_, 0, r),
                                      result + Bytes(runs[r].begin - part.begin), Bytes(runs[r].count)));
    }
  };
  for (int host = 0; host < hosts_.count(); ++host) {
    if (host != host_) send(hosts_.Proxy(host, rank_));
  }
  for (const int rank : hosts_.ranks(host_)) send(rank);
  return absl::OkStatus();
}

absl::Status HostedRun::Forward(int64_t m) {
  std::vector<Messages> arrived = std::move(to_forward_.front());
  to_forward_.pop_front();
  Messages& sends = forward_sends_.emplace_back();
  if (!SharesResults()) return absl::OkStatus();
  for (size_t i = 0; i < proxied_.size(); ++i) {
    RETURN_IF_ERROR(operation_.WaitAll(&arrived[i]));
    const std::vector<Part> runs = parts_.PresentOf(parts_.PartOf(proxied_[i], m), present_);
    for (const int rank : hosts_.ranks(host_)) {
      for (size_t r = 0; r < runs.size() && rank != rank_; ++r) {
        sends.push_back(operation_.Send(rank, kHostResults, Number(m, proxied_[i], 0, r),
                                        options_.out + Bytes(runs[r].begin), Bytes(runs[r].count)));
      }
    }
  }
  return absl::OkStatus();
}

// -------------------------------------------------------------------------------------------------------------- course

absl::Status HostedRun::Begin() {
  const ProfileSpan span(ProfiledStep::current(), ProfileKind::kExchange, kHostBeginName);
  RETURN_IF_ERROR(operation_.SendHeaders({}));
  // Data leaves before the headers of others have come: a rank at another operation refuses it.
  for (int64_t m = 0; m < std::min(kHostAhead, parts_.messages()); ++m) SendAddends(m);
  std::vector<v1::CollectiveHeader> headers;
  RETURN_IF_ERROR(operation_.ReceiveHeaders(&headers));
  return operation_.Fail(TakeHeaders(headers));
}

absl::Status HostedRun::Reduce(int64_t m) {
  // A result comes when its owner has the addends of it, but a lost answer could have them sent again.
  if (in_place_) RETURN_IF_ERROR(operation_.WaitForOldest(addend_sends_.size() - 1, &addend_sends_));
  ReceiveResults(m);
  RETURN_IF_ERROR(MergeForOwners(m));
  RETURN_IF_ERROR(ReduceOwn(m));
  if (m + kHostAhead < parts_.messages()) {
    Receive(m + kHostAhead);
    SendAddends(m + kHostAhead);
  }
  RETURN_IF_ERROR(Forward(m));
  RETURN_IF_ERROR(operation_.WaitForOldest(2 * kHostAhead, &addend_sends_));
  RETURN_IF_ERROR(operation_.WaitForOldest(kHostAhead, &result_sends_));
  RETURN_IF_ERROR(operation_.WaitForOldest(kHostAhead, &forward_sends_));
  while (merged_sends_.size() > kHostAhead) {
    for (Merged& merged : merged_sends_.front()) {
      RETURN_IF_ERROR(operation_.WaitAll(&merged.messages));
      operation_.memory()->Give(std::move(merged.bytes));
    }
    merged_sends_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status HostedRun::Run() {
  RETURN_IF_ERROR(Begin());
  if (present_ != 0) {
    const ProfileSpan span(ProfiledStep::current(), ProfileKind::kExchange, kHostReduceName);
    for (int64_t m = 0; m < std::min(kHostAhead, parts_.messages()); ++m) Receive(m);
    // No rank waits for one that is behind in a way that would hold that one up. For message m a rank waits for addends
    // of its host, then for the sums of other hosts, then for results: each needs only what ranks send of the same
    // message before they wait for the next of these, and addends have left kHostAhead messages earlier.
    for (int64_t m = 0; m < parts_.messages(); ++m) RETURN_IF_ERROR(Reduce(m));
  }
  const ProfileSpan span(ProfiledStep::current(), ProfileKind::kExchange, kHostGatherName);
  RETURN_IF_ERROR(operation_.WaitAll(&results_));
  RETURN_IF_ERROR(operation_.WaitForOldest(0, &addend_sends_));
  RETURN_IF_ERROR(operation_.WaitForOldest(0, &result_sends_));
  RETURN_IF_ERROR(operation_.WaitForOldest(0, &forward_sends_));
  for (std::vector<Merged>& merged : merged_sends_) {
    for (Merged& each : merged) RETURN_IF_ERROR(operation_.WaitAll(&each.messages));
  }
  return operation_.EndHeaders();
}

}  // namespace weir
