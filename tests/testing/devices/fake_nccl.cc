// A library with the functions of NCCL that Weir uses, for tests without a GPU. Ranks are threads of one process, each
// with an emulated device; a stream is that device (pserver/collective/nccl_communicator.h). Operations run when the
// device's queue reaches them, and wait there for the other ranks as NCCL's kernels do: a send ends when it has been
// received, so ranks that begin operations in different orders wait for ever, or until they abort.
//
// Tests change its behaviour by FakeNcclSet.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "framework/tensor/device.h"
#include "pserver/collective/nccl_library.h"

namespace weir {
namespace {

// Settings, by FakeNcclSet.
std::atomic<int> version{22809};
std::atomic<int> init_result{kNcclSuccess};   // of init_rank
std::atomic<int> async_result{kNcclSuccess};  // of operations under way on rank async_rank
std::atomic<int> async_rank{-1};
std::atomic<int> id_result{kNcclSuccess};  // of get_unique_id
std::atomic<int> living{0};                // communicators
std::atomic<int> aborts{0};
std::atomic<int> messages{0};  // received

struct Message {
  std::vector<char> bytes;
  bool taken = false;
};

// An operation of all ranks.
struct Meeting {
  std::vector<std::vector<char>> inputs;
  size_t arrived = 0;
};

// What the ranks of a communicator share.
struct Shared {
  explicit Shared(int size) : size(size) {}
  const int size;
  std::mutex mu;
  std::condition_variable changed;
  int joined = 0;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> sent;
  std::map<int64_t, Meeting> meetings;
};

struct Communicator {
  std::shared_ptr<Shared> shared;
  int rank = 0;
  int64_t operations = 0;  // of all ranks that this rank has begun
  // Guarded by shared->mu.
  bool aborted = false;
  NcclResult failed = kNcclSuccess;
};
using CommunicatorPtr = std::shared_ptr<Communicator>;

CommunicatorPtr Of(NcclComm comm) { return *reinterpret_cast<CommunicatorPtr*>(comm); }

thread_local std::string last_error;

NcclResult Refuse(const std::string& why) {
  last_error = why;
  return kNcclInvalidArgument;
}

std::mutex all_mu;
std::map<std::string, std::shared_ptr<Shared>>& All() {
  static auto* const all = new std::map<std::string, std::shared_ptr<Shared>>();
  return *all;
}

size_t SizeOf(NcclType type) {
  switch (type) {
    case kNcclUint8:
      return 1;
    case kNcclInt32:
    case kNcclFloat32:
      return 4;
    case kNcclInt64:
    case kNcclFloat64:
      return 8;
    default:
      return 2;
  }
}

// ------------------------------------------------------------------------------------------------------------- groups

struct PointToPoint {
  const char* from = nullptr;  // null: receives
  char* to = nullptr;
  size_t bytes = 0;
  int peer = 0;
};

// What a thread has begun between group_start and group_end.
struct Group {
  int depth = 0;
  CommunicatorPtr communicator;
  DeviceRuntime* device = nullptr;
  std::vector<PointToPoint> messages;
  std::vector<std::function<void()>> operations;
};
thread_local Group group;

void Exchange(const CommunicatorPtr& c, const std::vector<PointToPoint>& list) {
  Shared& s = *c->shared;
  std::unique_lock<std::mutex> lock(s.mu);
  std::vector<std::shared_ptr<Message>> sends;
  for (const PointToPoint& each : list) {
    if (each.from == nullptr) continue;
    sends.push_back(std::make_shared<Message>());
    sends.back()->bytes.assign(each.from, each.from + each.bytes);
    s.sent[{c->rank, each.peer}].push_back(sends.back());
  }
  s.changed.notify_all();
  for (const PointToPoint& each : list) {
    if (each.from != nullptr) continue;
    auto& queue = s.sent[{each.peer, c->rank}];
    s.changed.wait(lock, [&] { return c->aborted || !queue.empty(); });
    if (c->aborted) return;
    const std::shared_ptr<Message> message = queue.front();
    queue.pop_front();
    if (message->bytes.size() != each.bytes) c->failed = kNcclInvalidUsage;
    std::memcpy(each.to, message->bytes.data(), std::min(each.bytes, message->bytes.size()));
    message->taken = true;
    ++messages;
    s.changed.notify_all();
  }
  s.changed.wait(lock, [&] {
    return c->aborted || std::all_of(sends.begin(), sends.end(), [](const auto& each) { return each->taken; });
  });
}

// Meets all ranks, gives each the inputs of all in the order of ranks.
void Meet(const CommunicatorPtr& c, int64_t number, const char* from, size_t bytes,
          const std::function<void(const std::vector<std::vector<char>>&)>& use) {
  Shared& s = *c->shared;
  std::unique_lock<std::mutex> lock(s.mu);
  Meeting& meeting = s.meetings[number];
  meeting.inputs.resize(static_cast<size_t>(s.size));
  meeting.inputs[static_cast<size_t>(c->rank)].assign(from, from + bytes);
  ++meeting.arrived;
  s.changed.notify_all();
  s.changed.wait(lock, [&] { return c->aborted || meeting.arrived == static_cast<size_t>(s.size); });
  if (!c->aborted) use(meeting.inputs);
}

template <typename T>
void Reduce(const std::vector<std::vector<char>>& inputs, NcclReduction reduction, size_t begin, size_t count,
            char* to) {
  for (size_t i = 0; i < count; ++i) {
    T sum{};
    for (size_t r = 0; r < inputs.size(); ++r) {
      T each;
      std::memcpy(&each, inputs[r].data() + (begin + i) * sizeof(T), sizeof(T));
      sum = r == 0                      ? each
            : reduction == kNcclSum     ? static_cast<T>(sum + each)
            : reduction == kNcclProduct ? static_cast<T>(sum * each)
            : reduction == kNcclMax     ? std::max(sum, each)
                                        : std::min(sum, each);
    }
    std::memcpy(to + i * sizeof(T), &sum, sizeof(T));
  }
}

NcclResult ReduceInto(const std::vector<std::vector<char>>& inputs, NcclType type, NcclReduction reduction,
                      size_t begin, size_t count, char* to) {
  switch (type) {
    case kNcclFloat32:
      Reduce<float>(inputs, reduction, begin, count, to);
      return kNcclSuccess;
    case kNcclFloat64:
      Reduce<double>(inputs, reduction, begin, count, to);
      return kNcclSuccess;
    case kNcclInt32:
      Reduce<int32_t>(inputs, reduction, begin, count, to);
      return kNcclSuccess;
    case kNcclInt64:
      Reduce<int64_t>(inputs, reduction, begin, count, to);
      return kNcclSuccess;
    default:
      return kNcclInvalidArgument;
  }
}

// Notes an operation of the group under way.
NcclResult Begin(NcclComm comm, NcclStream stream) {
  if (group.depth == 0) return Refuse("an operation outside a group");
  if (stream == nullptr) return Refuse("no stream");
  const CommunicatorPtr communicator = Of(comm);
  if (group.communicator != nullptr && group.communicator != communicator) return Refuse("two communicators");
  group.communicator = communicator;
  group.device = static_cast<DeviceRuntime*>(stream);
  return kNcclSuccess;
}

NcclResult BeginMeeting(const void* from, size_t bytes, NcclComm comm, NcclStream stream,
                        std::function<void(const std::vector<std::vector<char>>&)> use) {
  if (const NcclResult begun = Begin(comm, stream); begun != kNcclSuccess) return begun;
  const CommunicatorPtr c = group.communicator;
  group.operations.push_back([=, number = c->operations++, use = std::move(use)] {
    Meet(c, number, static_cast<const char*>(from), bytes, use);
  });
  return kNcclSuccess;
}

void Leave(NcclComm comm) {
  delete reinterpret_cast<CommunicatorPtr*>(comm);
  --living;
}

}  // namespace
}  // namespace weir

using namespace weir;

extern "C" {

int FakeNcclSet(const char* setting, int value) {
  const std::map<std::string, std::atomic<int>*> all = {
      {"version", &version},       {"init_result", &init_result}, {"async_result", &async_result},
      {"async_rank", &async_rank}, {"id_result", &id_result},     {"living", &living},
      {"aborts", &aborts},         {"messages", &messages}};
  return all.at(setting)->exchange(value);
}

NcclResult ncclGetVersion(int* out) {
  *out = version;
  return kNcclSuccess;
}

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  static std::atomic<uint64_t> next{1};
  const uint64_t number = next++;
  std::memset(id->internal, 7, sizeof(id->internal));
  std::memcpy(id->internal, &number, sizeof(number));
  return static_cast<NcclResult>(id_result.load());
}

const char* ncclGetErrorString(NcclResult result) {
  switch (result) {
    case kNcclInvalidUsage:
      return "invalid usage";
    case kNcclRemoteError:
      return "remote process exited or there was a network error";
    case kNcclInvalidArgument:
      return "invalid argument";
    default:
      return "some error";
  }
}

const char* ncclGetLastError(NcclComm) { return last_error.c_str(); }

NcclResult ncclCommInitRankConfig(NcclComm* comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config) {
  if (config->magic != 0xcafebeef || config->size != sizeof(NcclConfig) || config->version < 21800) {
    return Refuse("no configuration");
  }
  if (config->blocking != 0) return Refuse("a communicator that blocks");
  if (rank < 0 || rank >= ranks) return Refuse("no such rank");
  if (init_result != kNcclSuccess) {
    last_error = "Duplicate GPU detected";
    return static_cast<NcclResult>(init_result.load());
  }
  std::shared_ptr<Shared> shared;
  {
    std::lock_guard<std::mutex> lock(all_mu);
    std::shared_ptr<Shared>& of_id = All()[std::string(id.internal, sizeof(id.internal))];
    if (of_id == nullptr) of_id = std::make_shared<Shared>(ranks);
    shared = of_id;
  }
  if (shared->size != ranks) return Refuse("another number of ranks");
  auto communicator = std::make_shared<Communicator>();
  communicator->shared = shared;
  communicator->rank = rank;
  *comm = reinterpret_cast<NcclComm>(new CommunicatorPtr(communicator));
  ++living;
  std::lock_guard<std::mutex> lock(shared->mu);
  ++shared->joined;
  return kNcclInProgress;
}

NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* error) {
  const CommunicatorPtr c = Of(comm);
  std::lock_guard<std::mutex> lock(c->shared->mu);
  *error = c->failed != kNcclSuccess             ? c->failed
           : c->rank == async_rank               ? static_cast<NcclResult>(async_result.load())
           : c->shared->joined < c->shared->size ? kNcclInProgress
                                                 : kNcclSuccess;
  return kNcclSuccess;
}

NcclResult ncclCommFinalize(NcclComm) { return kNcclInProgress; }

NcclResult ncclCommDestroy(NcclComm comm) {
  Leave(comm);
  return kNcclSuccess;
}

NcclResult ncclCommAbort(NcclComm comm) {
  const CommunicatorPtr c = Of(comm);
  {
    std::lock_guard<std::mutex> lock(c->shared->mu);
    c->aborted = true;
    c->shared->changed.notify_all();
  }
  ++aborts;
  Leave(comm);
  return kNcclSuccess;
}

NcclResult ncclGroupStart() {
  ++group.depth;
  return kNcclSuccess;
}

NcclResult ncclGroupEnd() {
  if (group.depth != 1) return Refuse("groups in groups");
  const Group begun = std::exchange(group, Group());
  absl::Status status;
  if (!begun.messages.empty()) {
    status = begun.device->RunLoop(DeviceQueue::kCompute,
                                   [c = begun.communicator, list = begun.messages] { Exchange(c, list); });
  }
  for (const std::function<void()>& operation : begun.operations) {
    if (status.ok()) status = begun.device->RunLoop(DeviceQueue::kCompute, operation);
  }
  return status.ok() ? kNcclInProgress : kNcclUnhandledCudaError;
}

NcclResult ncclSend(const void* from, size_t count, NcclType type, int peer, NcclComm comm, NcclStream stream) {
  if (const NcclResult begun = Begin(comm, stream); begun != kNcclSuccess) return begun;
  if (peer < 0 || peer >= group.communicator->shared->size) return Refuse("no such peer");
  group.messages.push_back({.from = static_cast<const char*>(from), .bytes = count * SizeOf(type), .peer = peer});
  return kNcclSuccess;
}

NcclResult ncclRecv(void* to, size_t count, NcclType type, int peer, NcclComm comm, NcclStream stream) {
  if (const NcclResult begun = Begin(comm, stream); begun != kNcclSuccess) return begun;
  if (peer < 0 || peer >= group.communicator->shared->size) return Refuse("no such peer");
  group.messages.push_back({.to = static_cast<char*>(to), .bytes = count * SizeOf(type), .peer = peer});
  return kNcclSuccess;
}

NcclResult ncclAllReduce(const void* from, void* to, size_t count, NcclType type, NcclReduction reduction,
                         NcclComm comm, NcclStream stream) {
  if (ReduceInto({}, type, reduction, 0, 0, nullptr) != kNcclSuccess) return Refuse("a type that the fake lacks");
  return BeginMeeting(from, count * SizeOf(type), comm, stream, [=](const std::vector<std::vector<char>>& inputs) {
    (void)ReduceInto(inputs, type, reduction, 0, count, static_cast<char*>(to));
  });
}

NcclResult ncclReduceScatter(const void* from, void* to, size_t count, NcclType type, NcclReduction reduction,
                             NcclComm comm, NcclStream stream) {
  if (ReduceInto({}, type, reduction, 0, 0, nullptr) != kNcclSuccess) return Refuse("a type that the fake lacks");
  const CommunicatorPtr c = Of(comm);
  const size_t rank = static_cast<size_t>(c->rank), ranks = static_cast<size_t>(c->shared->size);
  return BeginMeeting(from, ranks * count * SizeOf(type), comm, stream,
                      [=](const std::vector<std::vector<char>>& inputs) {
                        (void)ReduceInto(inputs, type, reduction, rank * count, count, static_cast<char*>(to));
                      });
}

NcclResult ncclAllGather(const void* from, void* to, size_t count, NcclType type, NcclComm comm, NcclStream stream) {
  return BeginMeeting(from, count * SizeOf(type), comm, stream, [=](const std::vector<std::vector<char>>& inputs) {
    char* at = static_cast<char*>(to);
    for (const std::vector<char>& each : inputs) at = std::copy(each.begin(), each.end(), at);
  });
}

NcclResult ncclBroadcast(const void* from, void* to, size_t count, NcclType type, int root, NcclComm comm,
                         NcclStream stream) {
  // Others than the root may have no memory to send from.
  const size_t bytes = Of(comm)->rank == root ? count * SizeOf(type) : 0;
  return BeginMeeting(from, bytes, comm, stream, [=](const std::vector<std::vector<char>>& inputs) {
    const std::vector<char>& values = inputs[static_cast<size_t>(root)];
    std::copy(values.begin(), values.end(), static_cast<char*>(to));
  });
}

}  // extern "C"
