#include "framework/collective/moves.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/collective/flows.h"
#include "framework/collective/reduce_run.h"

namespace weir {

namespace {

// Below this the root sends everything to everyone: one message instead of two, one after the other.
constexpr int64_t kSmallBroadcast = 64 << 10;

// Most bytes that one rank may say it sends to another in AllToAll; more is taken for damage.
constexpr int64_t kMostBytes = int64_t{1} << 40;
// A rank is believed that it sends so many bytes. For more, memory is taken as they come: so much again each time.
constexpr int64_t kBelieved = int64_t{64} << 20;

// Returns OK if a rank can send so many bytes.
absl::Status CheckCount(Operation* operation, int rank, int64_t count) {
  if (count >= 0 && count <= kMostBytes) return absl::OkStatus();
  return operation->Fail(absl::DataLossError(
      absl::StrCat(DescribeOperation(operation->header()), ": rank ", rank, " says that it sends ", count, " bytes")));
}

}  // namespace

absl::Status MoveAllGather(Operation* operation, const std::vector<int64_t>& begins, int64_t message_bytes, char* all) {
  RETURN_IF_ERROR(operation->SendHeaders({}));
  const auto at = [&](int rank) { return begins[static_cast<size_t>(rank)]; };
  const int rank = operation->rank(), size = operation->size();
  Flows flows(operation, message_bytes);
  for (int i = 1; i < size; ++i) {
    flows.Send((rank + i) % size, /*phase=*/0, all + at(rank), at(rank + 1) - at(rank));
  }
  flows.Begin();
  std::vector<v1::CollectiveHeader> headers;
  RETURN_IF_ERROR(operation->ReceiveHeaders(&headers));
  for (int i = 1; i < size; ++i) {
    const int from = (rank + size - i) % size;
    flows.Receive(from, /*phase=*/0, all + at(from), at(from + 1) - at(from));
  }
  RETURN_IF_ERROR(flows.Run());
  return operation->EndHeaders();
}

absl::Status MoveAllToAll(Operation* operation, const std::vector<const std::string*>& to, int64_t message_bytes,
                          std::vector<std::string>* from) {
  const int rank = operation->rank(), size = operation->size();
  std::vector<int64_t> counts;
  counts.reserve(to.size());
  for (const std::string* bytes : to) counts.push_back(static_cast<int64_t>(bytes->size()));
  RETURN_IF_ERROR(operation->SendHeaders(counts));
  Flows flows(operation, message_bytes);
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    const std::string& bytes = *to[static_cast<size_t>(peer)];
    flows.Send(peer, /*phase=*/0, bytes.data(), static_cast<int64_t>(bytes.size()));
  }
  flows.Begin();
  std::vector<v1::CollectiveHeader> headers;
  RETURN_IF_ERROR(operation->ReceiveHeaders(&headers));
  from->assign(static_cast<size_t>(size), "");
  (*from)[static_cast<size_t>(rank)] = *to[static_cast<size_t>(rank)];
  std::vector<Flows::Flow*> receives;
  int64_t most = 0;
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + size - i) % size;
    const int64_t count = headers[static_cast<size_t>(peer)].count();
    RETURN_IF_ERROR(CheckCount(operation, peer, count));
    most = std::max(most, count);
    receives.push_back(flows.Receive(peer, /*phase=*/0, nullptr, count));
  }
  const int64_t step = std::max<int64_t>(1, kBelieved / message_bytes);  // messages
  for (int64_t limit = step;; limit += step) {
    for (Flows::Flow* flow : receives) {
      std::string& bytes = (*from)[static_cast<size_t>(flow->peer)];
      bytes.resize(static_cast<size_t>(std::min(flow->bytes, limit * message_bytes)));
      flow->data = bytes.data();
      flow->limit = limit;
    }
    if (limit * message_bytes >= most) break;
    RETURN_IF_ERROR(flows.Run(/*receives=*/true));
  }
  RETURN_IF_ERROR(flows.Run());
  return operation->EndHeaders();
}

namespace {

// Bytes of all ranks on their way, where ranks share hosts.
class HostedFlows {
 public:
  // counts: bytes of each rank.
  HostedFlows(Operation* operation, const Hosts& hosts, std::vector<int64_t> counts, int64_t message_bytes)
      : flows_(operation, message_bytes), counts_(std::move(counts)), flows_of_(counts_.size()) {
    const int rank = operation->rank(), size = operation->size(), host = hosts.of(rank);
    const auto count = [this](int of) { return counts_[static_cast<size_t>(of)]; };
    const auto is_proxy = [&](int of) { return of != rank && hosts.Proxy(host, of) == rank; };
    // What is handed on comes first: a rank waits for it before it waits for what others hand on.
    for (int from = 0; from < size; ++from) {
      if (is_proxy(from)) Add(from, flows_.Receive(from, /*phase=*/0, nullptr, count(from)));
    }
    for (int i = 1; i < size; ++i) {
      const int peer = (rank + i) % size;
      if (hosts.Proxy(hosts.of(peer), rank) == peer || hosts.of(peer) == host) {
        Add(rank, flows_.Send(peer, /*phase=*/0, nullptr, count(rank)));
      }
      if (hosts.of(peer) == host) Add(peer, flows_.Receive(peer, /*phase=*/0, nullptr, count(peer)));
    }
    std::vector<int64_t> first(counts_.size());  // number of the next message that each rank of this host hands on
    for (int from = 0; from < size; ++from) {
      if (hosts.of(from) == host) continue;
      const int proxy = hosts.Proxy(host, from);
      int64_t& number = first[static_cast<size_t>(proxy)];
      for (const int to : hosts.ranks(host)) {
        if (to == proxy) continue;
        if (proxy == rank) {
          Add(from,
              flows_.Send(to, /*phase=*/1, nullptr, count(from), flows_of_[static_cast<size_t>(from)][0], number));
        } else if (to == rank) {
          Add(from, flows_.Receive(proxy, /*phase=*/1, nullptr, count(from), number));
        }
      }
      number += flows_.Messages(count(from));
    }
  }

  // Sets the memory of a rank's bytes, of which this rank's own are there. Requires: none of them is under way.
  void SetData(int of, char* data) {
    for (Flows::Flow* const flow : flows_of_[static_cast<size_t>(of)]) flow->data = data;
  }
  // Moves the messages before `limit`.
  absl::Status Run(int64_t limit) {
    for (const std::vector<Flows::Flow*>& of_rank : flows_of_) {
      for (Flows::Flow* const flow : of_rank) flow->limit = limit;
    }
    return flows_.Run();
  }

 private:
  void Add(int of, Flows::Flow* flow) { flows_of_[static_cast<size_t>(of)].push_back(flow); }

  Flows flows_;
  const std::vector<int64_t> counts_;
  std::vector<std::vector<Flows::Flow*>> flows_of_;  // by rank whose bytes they have
};

}  // namespace

absl::Status MoveHostedAllGather(Operation* operation, const Hosts& hosts, const std::vector<int64_t>& begins,
                                 int64_t message_bytes, char* all) {
  std::vector<v1::CollectiveHeader> headers;
  RETURN_IF_ERROR(operation->ExchangeHeaders(&headers));
  std::vector<int64_t> counts;
  for (size_t r = 0; r + 1 < begins.size(); ++r) counts.push_back(begins[r + 1] - begins[r]);
  HostedFlows flows(operation, hosts, counts, message_bytes);
  for (int r = 0; r < operation->size(); ++r) flows.SetData(r, all + begins[static_cast<size_t>(r)]);
  return flows.Run(std::numeric_limits<int64_t>::max());
}

absl::Status MoveHostedAllGatherBytes(Operation* operation, const Hosts& hosts, const std::string& own,
                                      int64_t message_bytes, std::vector<std::string>* all) {
  const int rank = operation->rank(), size = operation->size();
  std::vector<v1::CollectiveHeader> headers;
  RETURN_IF_ERROR(operation->ExchangeHeaders(
      &headers, std::vector<int64_t>(static_cast<size_t>(size), static_cast<int64_t>(own.size()))));
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) {
    const int64_t count = r == rank ? static_cast<int64_t>(own.size()) : headers[static_cast<size_t>(r)].count();
    RETURN_IF_ERROR(CheckCount(operation, r, count));
    counts.push_back(count);
  }
  all->assign(static_cast<size_t>(size), "");
  (*all)[static_cast<size_t>(rank)] = own;
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  HostedFlows flows(operation, hosts, counts, message_bytes);
  const int64_t step = std::max<int64_t>(1, kBelieved / message_bytes);  // messages
  for (int64_t limit = step;; limit += step) {
    for (int r = 0; r < size; ++r) {
      std::string& bytes = (*all)[static_cast<size_t>(r)];
      if (r != rank) bytes.resize(static_cast<size_t>(std::min(counts[static_cast<size_t>(r)], limit * message_bytes)));
      flows.SetData(r, bytes.data());
    }
    // To the end of these messages: what is handed on lies in memory that may move.
    RETURN_IF_ERROR(flows.Run(limit));
    if (limit * message_bytes >= most) return absl::OkStatus();
  }
}

absl::Status MoveBroadcast(Operation* operation, int root, int64_t bytes, int64_t message_bytes, char* values) {
  RETURN_IF_ERROR(operation->SendHeaders({}));
  const int rank = operation->rank(), size = operation->size();
  const bool own = rank == root;
  const bool direct = size <= 2 || bytes <= kSmallBroadcast;
  // Else the root gives every rank a slice, and the ranks give each other theirs: the root sends the bytes twice at
  // most, however many ranks there are.
  const std::vector<int64_t> begins = EvenSlices(bytes, 1, size);
  const auto slice = [&](int of) { return values + begins[static_cast<size_t>(of)]; };
  const auto length = [&](int of) { return begins[static_cast<size_t>(of) + 1] - begins[static_cast<size_t>(of)]; };
  Flows flows(operation, message_bytes);
  for (int i = 1; own && i < size; ++i) {
    const int peer = (root + i) % size;
    if (direct) {
      flows.Send(peer, /*phase=*/0, values, bytes);
    } else {
      flows.Send(peer, /*phase=*/0, slice(peer), length(peer));
      flows.Send(peer, /*phase=*/1, slice(root), length(root));
    }
  }
  flows.Begin();
  std::vector<v1::CollectiveHeader> headers;
  RETURN_IF_ERROR(operation->ReceiveHeaders(&headers));
  if (!own && direct) {
    flows.Receive(root, /*phase=*/0, values, bytes);
  } else if (!own) {
    const Flows::Flow* const mine = flows.Receive(root, /*phase=*/0, slice(rank), length(rank));
    for (int i = 1; i < size; ++i) {
      const int peer = (rank + i) % size;
      flows.Receive(peer, /*phase=*/1, slice(peer), length(peer));
      if (peer != root) flows.Send(peer, /*phase=*/1, slice(rank), length(rank), mine);
    }
  }
  RETURN_IF_ERROR(flows.Run());
  return operation->EndHeaders();
}

}  // namespace weir
