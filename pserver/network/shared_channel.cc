#include "pserver/network/shared_channel.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

constexpr uint32_t kGranules = SharedChannel::kDataBytes / SharedChannel::kGranule;
// Messages in a ring that no longer wait for the receiver to wake up by itself.
constexpr uint32_t kManyMessages = SharedChannel::kSlots / 8;
constexpr uint32_t kWordBits = 64;
constexpr uint32_t kWords = kGranules / kWordBits;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr uint64_t kAll = ~uint64_t{0};

// A message in a ring. Plain bytes: `head` of the ring publishes them.
struct Slot {
  uint64_t call;
  uint64_t profiled_id;
  int64_t profiled_step;
  uint64_t bytes;
  uint32_t kind;
  uint32_t first;   // granule
  uint32_t wanted;  // SharedHead::When
  uint32_t server;
  char unused[16];
};
static_assert(sizeof(Slot) == 64);

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

// Text that a process sends with the descriptor. Another layout has another text.
constexpr char kOffer[] = "weir shared channel 2";
constexpr char kConsent[] = "weir shared channel 2: mapped";
constexpr timeval kConsentDeadline = {.tv_sec = 2, .tv_usec = 0};

std::string SystemError(const char* what) { return absl::StrCat(what, ": ", std::strerror(errno)); }

// Waits until one of two words is woken, or has another value than the one seen, for at most five seconds; where the
// system cannot wait for two (before Linux 5.16), for the first, and at most one second. `own` is of this process. The
// other side can write `shared`, and move its sleepers elsewhere.
void FutexWait(std::atomic<uint32_t>* shared, uint32_t seen, std::atomic<uint32_t>* own, uint32_t own_seen) {
  const auto waiter = [](std::atomic<uint32_t>* word, uint32_t value, uint32_t flags) {
    return futex_waitv{.val = value, .uaddr = reinterpret_cast<uintptr_t>(word), .flags = flags};
  };
  const futex_waitv waiters[] = {waiter(shared, seen, FUTEX_32), waiter(own, own_seen, FUTEX_32 | FUTEX_PRIVATE_FLAG)};
  timespec until = {};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += 5;
  const int64_t woken = ::syscall(SYS_futex_waitv, waiters, std::size(waiters), 0, &until, CLOCK_MONOTONIC);
  if (woken >= 0 || errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR) return;
  constexpr timespec kLongest = {.tv_sec = 1, .tv_nsec = 0};
  ::syscall(SYS_futex, shared, FUTEX_WAIT, seen, &kLongest, nullptr, 0);
}
void FutexWake(std::atomic<uint32_t>* word, int most, int flags = 0) {
  ::syscall(SYS_futex, word, FUTEX_WAKE | flags, most, nullptr, nullptr, 0);
}

// Bits [from, from + count) of a word; count is at least 1.
uint64_t Mask(uint32_t from, uint32_t count) {
  return (count == kWordBits ? kAll : (uint64_t{1} << count) - 1) << from;
}

// Calls body(word, mask) for each word of the bits [first, first + count).
template <typename Body>
void ForWords(uint32_t first, uint32_t count, const Body& body) {
  while (count > 0) {
    const uint32_t from = first % kWordBits, here = std::min(count, kWordBits - from);
    body(first / kWordBits, Mask(from, here));
    first += here;
    count -= here;
  }
}

// A message of a socket with room for one descriptor.
struct Envelope {
  Envelope(char* text, size_t size) : bytes{.iov_base = text, .iov_len = size} {
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    // Leave out the padding, in which the system would put a second descriptor; it closes any that have no room.
    message.msg_controllen = CMSG_LEN(sizeof(int));
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;

  iovec bytes;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
};

uint32_t GranulesOf(size_t bytes) {
  return static_cast<uint32_t>((bytes + SharedChannel::kGranule - 1) / SharedChannel::kGranule);
}

}  // namespace

// One direction. A new file is zeros, which is an empty ring.
struct SharedChannel::Ring {
  // Messages that were put in and taken out since the beginning, modulo 2^32.
  alignas(64) std::atomic<uint32_t> head;
  alignas(64) std::atomic<uint32_t> tail;
  // Changes with each message.
  alignas(64) std::atomic<uint32_t> bell;
  // Threads that sleep on the bell, or are about to.
  std::atomic<uint32_t> sleepers;
  alignas(64) std::atomic<uint64_t> used[kWords];
  Slot slots[kSlots];
};

struct SharedChannel::Mapping {
  static constexpr size_t kRingBytes = (sizeof(Ring) + kGranule - 1) / kGranule * kGranule;
  static constexpr size_t kBytes = 2 * (kRingBytes + kDataBytes);

  explicit Mapping(char* at) : memory(at) {}
  ~Mapping() { ::munmap(memory, kBytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  Ring* ring(int direction) { return reinterpret_cast<Ring*>(memory + static_cast<size_t>(direction) * kRingBytes); }
  char* data(int direction) { return memory + 2 * kRingBytes + static_cast<size_t>(direction) * kDataBytes; }

  char* const memory;
};

// Direction 0 is from the creator to the other side.
SharedChannel::SharedChannel(std::shared_ptr<Mapping> mapping, int descriptor, bool creator)
    : mapping_(std::move(mapping)),
      descriptor_(descriptor),
      out_(mapping_->ring(creator ? 0 : 1)),
      in_(mapping_->ring(creator ? 1 : 0)),
      out_data_(mapping_->data(creator ? 0 : 1)),
      in_data_(mapping_->data(creator ? 1 : 0)) {}

SharedChannel::~SharedChannel() { CloseDescriptor(); }

void SharedChannel::CloseDescriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

absl::StatusOr<std::shared_ptr<SharedChannel>> SharedChannel::Map(int descriptor, bool creator) {
  void* const memory = ::mmap(nullptr, Mapping::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor,
                              /*offset=*/0);
  if (memory == MAP_FAILED) {
    const std::string why = SystemError("mmap");
    ::close(descriptor);
    return absl::UnavailableError(why);
  }
  return std::shared_ptr<SharedChannel>(
      new SharedChannel(std::make_shared<Mapping>(static_cast<char*>(memory)), descriptor, creator));
}

absl::StatusOr<std::shared_ptr<SharedChannel>> SharedChannel::Create() {
  // A file beyond the limit is answered with a signal.
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < Mapping::kBytes) {
    return absl::UnavailableError(
        absl::StrCat("ulimit -f allows files of ", limit.rlim_cur, " bytes, ", Mapping::kBytes, " are needed"));
  }
  const int descriptor = ::memfd_create("weir-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return absl::UnavailableError(SystemError("memfd_create"));
  if (::ftruncate(descriptor, static_cast<off_t>(Mapping::kBytes)) != 0 ||
      ::fcntl(descriptor, F_ADD_SEALS, kSeals) != 0) {
    const std::string why = SystemError("a sealed memory file");
    ::close(descriptor);
    return absl::UnavailableError(why);
  }
  return Map(descriptor, /*creator=*/true);
}

absl::StatusOr<std::shared_ptr<SharedChannel>> SharedChannel::Open(int descriptor) {
  const auto refuse = [descriptor](std::string why) {
    ::close(descriptor);
    return absl::InvalidArgumentError(std::move(why));
  };
  struct stat found = {};
  struct statfs system = {};
  if (::fstat(descriptor, &found) != 0 || ::fstatfs(descriptor, &system) != 0) return refuse(SystemError("stat"));
  // A file of huge pages, or of a disk, may have no memory when it is touched.
  if (!S_ISREG(found.st_mode) || system.f_type != TMPFS_MAGIC) return refuse("not a memory file");
  if (found.st_size != static_cast<off_t>(Mapping::kBytes)) {
    return refuse(absl::StrCat("a memory file of ", found.st_size, " bytes, not of ", Mapping::kBytes));
  }
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return refuse("a memory file that could be made smaller");
  return Map(descriptor, /*creator=*/false);
}

std::optional<SharedChannel::Place> SharedChannel::Allocate(size_t bytes) {
  const uint32_t count = GranulesOf(bytes);
  if (count > kGranules) return std::nullopt;
  // The first free run that is long enough, so that the same memory is used again and again while messages are few.
  uint32_t first = 0, run = 0;
  for (uint32_t w = 0; w < kWords && run < count; ++w) {
    const uint64_t used = out_->used[w].load(std::memory_order_acquire);
    if (used == kAll) {
      run = 0;
      continue;
    }
    for (uint32_t bit = 0; bit < kWordBits && run < count;) {
      const uint64_t rest = used >> bit;
      const uint32_t zeros = std::min<uint32_t>(static_cast<uint32_t>(std::countr_zero(rest)), kWordBits - bit);
      if (zeros > 0) {
        if (run == 0) first = w * kWordBits + bit;
        run += zeros;
        bit += zeros;
      } else {
        run = 0;
        bit += static_cast<uint32_t>(std::countr_one(rest));
      }
    }
  }
  if (run < count) return std::nullopt;
  ForWords(first, count, [&](uint32_t w, uint64_t mask) { out_->used[w].fetch_or(mask, std::memory_order_relaxed); });
  return Place{first, count};
}

void SharedChannel::Free(Ring* ring, Place place) {
  ForWords(place.first, place.count,
           [&](uint32_t w, uint64_t mask) { ring->used[w].fetch_and(~mask, std::memory_order_release); });
}

std::optional<SharedChannel::Place> SharedChannel::Reserve(size_t bytes) {
  MutexLock lock(&send_mu_);
  return Allocate(bytes);
}

bool SharedChannel::Post(const SharedHead& head, size_t bytes, Place place) {
  MutexLock lock(&send_mu_);
  if (closed_) return false;
  // A receiver that writes nonsense here gets its slots overwritten, or no messages.
  if (head_ - out_->tail.load(std::memory_order_acquire) >= kSlots) return false;
  out_->slots[head_ % kSlots] = {.call = head.call,
                                 .profiled_id = head.profiled_id,
                                 .profiled_step = head.profiled_step,
                                 .bytes = bytes,
                                 .kind = head.kind,
                                 .first = place.first,
                                 .wanted = head.wanted,
                                 .server = head.server};
  out_->head.store(++head_, std::memory_order_release);
  return true;
}

bool SharedChannel::Send(const SharedHead& head, const Slices& bytes, Wakes wakes) {
  size_t size = 0;
  for (const Slice& slice : bytes) size += slice.size;
  const std::optional<Place> place = Reserve(size);
  if (!place.has_value()) return false;
  char* to = out_data_ + place->first * kGranule;
  for (const Slice& slice : bytes) {
    if (slice.size > 0) std::memcpy(to, slice.data, slice.size);
    to += slice.size;
  }
  if (!Post(head, size, *place)) {
    Free(out_, *place);
    return false;
  }
  if (wakes == Wakes::kNow || out_->head.load() - out_->tail.load() >= kManyMessages) WakeOther();
  return true;
}

void SharedChannel::WakeOther() {
  // Sequentially consistent, as in Receive: either this sees the sleeper, or the sleeper sees the new bell.
  out_->bell.fetch_add(1);
  if (out_->sleepers.load() > 0) FutexWake(&out_->bell, 1);
}

absl::StatusOr<std::optional<SharedChannel::Message>> SharedChannel::Take() {
  Slot slot;
  {
    MutexLock lock(&receive_mu_);
    const uint32_t waiting = in_->head.load(std::memory_order_acquire) - tail_;
    if (waiting == 0) return std::nullopt;
    if (waiting > kSlots) return absl::DataLossError(absl::StrCat("a ring of ", kSlots, " has ", waiting, " messages"));
    std::memcpy(&slot, &in_->slots[tail_ % kSlots], sizeof(slot));
    in_->tail.store(++tail_, std::memory_order_release);
  }
  Message message{
      .head = {.call = slot.call,
               .kind = slot.kind,
               .server = slot.server,
               .profiled_id = slot.profiled_id,
               .profiled_step = slot.profiled_step,
               .wanted = static_cast<SharedHead::When>(std::min<uint32_t>(slot.wanted, SharedHead::kSomeTime))}};
  if (slot.bytes == 0) return message;
  if (slot.first >= kGranules || slot.bytes > kDataBytes - slot.first * kGranule) {
    return absl::DataLossError(absl::StrCat("a message of ", slot.bytes, " bytes at granule ", slot.first));
  }
  const Place place{slot.first, GranulesOf(slot.bytes)};
  const char* const data = in_data_ + place.first * kGranule;
  message.bytes.push_back(
      {data, slot.bytes,
       std::shared_ptr<const void>(data, [mapping = mapping_, ring = in_, place](const void*) { Free(ring, place); })});
  return message;
}

absl::StatusOr<std::optional<SharedChannel::Message>> SharedChannel::Receive() {
  while (!closed_) {
    // Read before the ring: what the other side sent before its end is there then.
    const bool finished = finished_;
    ASSIGN_OR_RETURN(std::optional<Message> message, Take());
    // The ring has at most kSlots messages that were sent before the end.
    if (finished && (!message.has_value() || last_messages_.fetch_sub(1) <= 0)) return std::nullopt;
    if (message.has_value()) return message;
    in_->sleepers.fetch_add(1);
    const uint32_t bell = in_->bell.load();
    if (Empty() && !closed_ && !finished_) FutexWait(&in_->bell, bell, &ended_, 0);
    in_->sleepers.fetch_sub(1);
  }
  return std::nullopt;
}

void SharedChannel::Collect() {
  if (Empty()) return;
  in_->bell.fetch_add(1);
  FutexWake(&in_->bell, 1);
}

bool SharedChannel::Empty() {
  MutexLock lock(&receive_mu_);
  return in_->head.load() == tail_;
}

void SharedChannel::Close() {
  closed_ = true;
  WakeReceivers();
}

void SharedChannel::Finish() {
  finished_ = true;
  WakeReceivers();
}

void SharedChannel::WakeReceivers() {
  // A thread that is about to sleep sees another bell.
  in_->bell.fetch_add(1);
  FutexWake(&in_->bell, INT_MAX);
  // The other side may have moved those that slept on the bell.
  ended_ = 1;
  FutexWake(&ended_, INT_MAX, FUTEX_PRIVATE_FLAG);
}

absl::Status OfferChannel(int socket, const SharedChannel& channel) {
  char text[sizeof(kOffer)];
  std::memcpy(text, kOffer, sizeof(text));
  Envelope offer(text, sizeof(text));
  cmsghdr* const rights = CMSG_FIRSTHDR(&offer.message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int descriptor = channel.descriptor();
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(descriptor));
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kConsentDeadline, sizeof(kConsentDeadline));
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &kConsentDeadline, sizeof(kConsentDeadline));
  if (::sendmsg(socket, &offer.message, MSG_NOSIGNAL) < 0) return absl::UnavailableError(SystemError("sendmsg"));
  char answer[sizeof(kConsent)] = {};
  const ssize_t received = ::recv(socket, answer, sizeof(answer), 0);
  if (received < 0) return absl::UnavailableError(SystemError("no consent"));
  if (std::string_view(answer, static_cast<size_t>(received)) != std::string_view(kConsent, sizeof(kConsent))) {
    return absl::UnavailableError("the other process cannot use it");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SharedChannel>> AcceptChannel(int socket) {
  char text[sizeof(kOffer)] = {};
  Envelope offer(text, sizeof(text));
  const ssize_t received = ::recvmsg(socket, &offer.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received < 0) return absl::UnavailableError(SystemError("recvmsg"));
  int descriptor = -1;
  if (const cmsghdr* const c = CMSG_FIRSTHDR(&offer.message);
      c != nullptr && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
    std::memcpy(&descriptor, CMSG_DATA(c), sizeof(descriptor));
  }
  if (descriptor < 0) return absl::InvalidArgumentError("an offer without a descriptor");
  if (std::string_view(text, static_cast<size_t>(received)) != std::string_view(kOffer, sizeof(kOffer))) {
    ::close(descriptor);
    return absl::InvalidArgumentError("an offer of another layout");
  }
  ASSIGN_OR_RETURN(std::shared_ptr<SharedChannel> channel, SharedChannel::Open(descriptor));
  channel->CloseDescriptor();
  if (::send(socket, kConsent, sizeof(kConsent), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    return absl::UnavailableError(SystemError("send"));
  }
  return channel;
}

}  // namespace weir
