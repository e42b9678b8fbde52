#include "framework/collective/moves.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/collective/reduce_run.h"

namespace weir {

namespace {

using Messages = std::vector<Operation::Message>;

// Below this the root sends everything to everyone: one message instead of two, one after the other.
constexpr int64_t kSmallBroadcast = 64 << 10;

// Most bytes that one rank may say it sends to another in AllToAll; more is taken for damage.
constexpr int64_t kMostBytes = int64_t{1} << 40;

void SendBytes(Operation* operation, int peer, int phase, const char* data, int64_t bytes, int64_t message_bytes,
               Messages* messages) {
  for (int64_t at = 0; at < bytes; at += message_bytes) {
    messages->push_back(operation->Send(peer, phase, at / message_bytes, data + at,
                                        static_cast<size_t>(std::min(message_bytes, bytes - at))));
  }
}

void ReceiveBytes(Operation* operation, int peer, int phase, char* data, int64_t bytes, int64_t message_bytes,
                  Messages* messages) {
  for (int64_t at = 0; at < bytes; at += message_bytes) {
    messages->push_back(operation->Receive(peer, phase, at / message_bytes, data + at,
                                           static_cast<size_t>(std::min(message_bytes, bytes - at))));
  }
}

}  // namespace

absl::Status MoveAllGather(Operation* operation, const std::vector<int64_t>& begins, int64_t message_bytes, char* all) {
  RETURN_IF_ERROR(operation->SendHeaders({}));
  const auto at = [&](int rank) { return begins[static_cast<size_t>(rank)]; };
  const int rank = operation->rank(), size = operation->size();
  Messages messages;
  for (int i = 1; i < size; ++i) {
    SendBytes(operation, (rank + i) % size, /*phase=*/0, all + at(rank), at(rank + 1) - at(rank), message_bytes,
              &messages);
  }
  std::vector<v1::CollectiveHeader> headers;
  RETURN_IF_ERROR(operation->ReceiveHeaders(&headers));
  for (int i = 1; i < size; ++i) {
    const int from = (rank + size - i) % size;
    ReceiveBytes(operation, from, /*phase=*/0, all + at(from), at(from + 1) - at(from), message_bytes, &messages);
  }
  return operation->WaitAll(&messages);
}

absl::Status MoveAllToAll(Operation* operation, const std::vector<const std::string*>& to, int64_t message_bytes,
                          std::vector<std::string>* from) {
  std::vector<int64_t> counts;
  for (const std::string* bytes : to) counts.push_back(static_cast<int64_t>(bytes->size()));
  RETURN_IF_ERROR(operation->SendHeaders(counts));
  Messages messages;
  for (int i = 1; i < operation->size(); ++i) {
    const int peer = (operation->rank() + i) % operation->size();
    const std::string& bytes = *to[static_cast<size_t>(peer)];
    SendBytes(operation, peer, /*phase=*/0, bytes.data(), static_cast<int64_t>(bytes.size()), message_bytes, &messages);
  }
  std::vector<v1::CollectiveHeader> headers;
  RETURN_IF_ERROR(operation->ReceiveHeaders(&headers));
  from->assign(static_cast<size_t>(operation->size()), "");
  for (int peer = 0; peer < operation->size(); ++peer) {
    std::string& bytes = (*from)[static_cast<size_t>(peer)];
    if (peer == operation->rank()) {
      bytes = *to[static_cast<size_t>(peer)];
      continue;
    }
    const int64_t count = headers[static_cast<size_t>(peer)].count();
    if (count < 0 || count > kMostBytes) {
      return absl::DataLossError(absl::StrCat(DescribeOperation(operation->header()), ": rank ", peer,
                                              " says that it sends ", count, " bytes"));
    }
    bytes.resize(static_cast<size_t>(count));
    ReceiveBytes(operation, peer, /*phase=*/0, bytes.data(), count, message_bytes, &messages);
  }
  return operation->WaitAll(&messages);
}

absl::Status MoveBroadcast(Operation* operation, int root, int64_t bytes, int64_t message_bytes, char* values) {
  RETURN_IF_ERROR(operation->SendHeaders({}));
  const int size = operation->size();
  const bool own = operation->rank() == root;
  Messages messages;
  std::vector<v1::CollectiveHeader> headers;
  if (size <= 2 || bytes <= kSmallBroadcast) {
    for (int i = 1; own && i < size; ++i) {
      SendBytes(operation, (root + i) % size, /*phase=*/0, values, bytes, message_bytes, &messages);
    }
    RETURN_IF_ERROR(operation->ReceiveHeaders(&headers));
    if (!own) ReceiveBytes(operation, root, /*phase=*/0, values, bytes, message_bytes, &messages);
    return operation->WaitAll(&messages);
  }
  // The root gives every rank a slice, and the ranks give each other theirs: the root sends the bytes twice at most,
  // however many ranks there are.
  const std::vector<int64_t> begins = EvenSlices(bytes, 1, size);
  const auto at = [&](int rank) { return begins[static_cast<size_t>(rank)]; };
  if (own) {
    for (int i = 1; i < size; ++i) {
      const int peer = (root + i) % size;
      SendBytes(operation, peer, /*phase=*/0, values + at(peer), at(peer + 1) - at(peer), message_bytes, &messages);
    }
    for (int i = 1; i < size; ++i) {
      const int peer = (root + i) % size;
      SendBytes(operation, peer, /*phase=*/1, values + at(root), at(root + 1) - at(root), message_bytes, &messages);
    }
    RETURN_IF_ERROR(operation->ReceiveHeaders(&headers));
    return operation->WaitAll(&messages);
  }
  const int rank = operation->rank();
  RETURN_IF_ERROR(operation->ReceiveHeaders(&headers));
  Messages mine, sends;
  ReceiveBytes(operation, root, /*phase=*/0, values + at(rank), at(rank + 1) - at(rank), message_bytes, &mine);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    ReceiveBytes(operation, peer, /*phase=*/1, values + at(peer), at(peer + 1) - at(peer), message_bytes, &messages);
  }
  RETURN_IF_ERROR(operation->WaitAll(&mine));
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    if (peer == root) continue;
    SendBytes(operation, peer, /*phase=*/1, values + at(rank), at(rank + 1) - at(rank), message_bytes, &sends);
  }
  RETURN_IF_ERROR(operation->WaitAll(&messages));
  return operation->WaitAll(&sends);
}

}  // namespace weir
