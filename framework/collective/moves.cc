#include "framework/collective/moves.h"

#include <algorithm>

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
    if (count < 0 || count > kMostBytes) {
      return operation->Fail(absl::DataLossError(absl::StrCat(DescribeOperation(operation->header()), ": rank ", peer,
                                                              " says that it sends ", count, " bytes")));
    }
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
