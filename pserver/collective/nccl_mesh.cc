#include "pserver/collective/nccl_mesh.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/device_memory.h"
#include "glog/logging.h"
#include "proto/trainer.pb.h"
#include "pserver/collective/nccl_communicator.h"

namespace weir {

namespace {

// First tag of notes; those of operations are below.
constexpr uint64_t kNoteTags = uint64_t{1} << 63;
// Period at which a wait for a note checks whether the mesh has ended, and at which NCCL is asked for errors.
constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr absl::Duration kWatch = absl::Milliseconds(20);
// Time within which, after an error of NCCL, the rank that has caused it may send its reason.
constexpr absl::Duration kReasonComes = absl::Milliseconds(300);
// Time for a round under way, and for the last notes, when the mesh is destroyed.
constexpr absl::Duration kFarewell = absl::Seconds(2);
// Most messages, and most bytes unless one message has more, of one rank to one other in a round.
constexpr size_t kMostMessages = 30;
constexpr size_t kMostRoundBytes = size_t{64} << 20;
// Messages begin at such offsets on the device: NCCL copies 16 bytes at a time where it can.
constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Message of one rank to another over the control mesh.
struct Note {
  enum Kind : uint32_t {
    kWant = 1,   // I wait for these messages of yours.
    kRound = 2,  // In this round I send you these messages.
    kEnd = 3,    // I take part in no round from this one on.
  };
  struct Entry {
    uint64_t tag = 0;
    uint64_t bytes = 0;
  };
  uint32_t kind = 0;
  uint32_t count = 0;
  uint64_t round = 0;
  std::array<Entry, kMostMessages> entries = {};
};
static_assert(sizeof(Note) == 16 + 16 * kMostMessages);

class NcclMesh : public Mesh {
 public:
  explicit NcclMesh(NcclMeshOptions options)
      : options_(std::move(options)), memory_(options_.device), peers_(static_cast<size_t>(options_.control->size())) {}
  ~NcclMesh() override;

  absl::Status Connect();

  int rank() const override { return options_.control->rank(); }
  int size() const override { return options_.control->size(); }
  std::string Describe(int rank) const override { return options_.control->Describe(rank); }

  std::unique_ptr<Transfer> Send(int peer, uint64_t tag, const void* data, size_t bytes) override;
  std::unique_ptr<Transfer> Receive(int peer, uint64_t tag, void* data, size_t bytes) override;
  void Abort(const absl::Status& status) override { Fail(status); }

 private:
  // A message that a transfer of this rank stands for.
  struct Item {
    enum State { kWaiting, kInUse, kDone, kGivenUp };
    void* data = nullptr;
    size_t bytes = 0;
    State state = kWaiting;
  };
  using ItemPtr = std::shared_ptr<Item>;
  class NcclTransfer;
  static constexpr uint64_t kNoEnd = ~uint64_t{0};

  struct Peer {
    std::map<uint64_t, ItemPtr> sends;     // not yet in a round
    std::map<uint64_t, ItemPtr> receives;  // that have not come
    std::map<uint64_t, uint64_t> wanted;   // by the peer, without a send of this rank yet: bytes by tag
    std::deque<uint64_t> ready;            // tags of sends that the peer waits for
    std::deque<Note> rounds;               // of the peer, that this rank has not come to
    uint64_t notes_sent = 0;
    uint64_t rounds_end = kNoEnd;  // the peer takes part in rounds before this one
  };
  // A message in a round, with its place in the memory of the round.
  struct Part {
    int peer = 0;
    ItemPtr item;
    size_t offset = 0;
  };
  struct Parts {
    std::vector<Part> parts;
    size_t bytes = 0;
    void Add(int peer, ItemPtr item) {
      const size_t size = Aligned(item->bytes);
      parts.push_back({peer, std::move(item), bytes});
      bytes += size;
    }
  };

  absl::Status Agree(NcclUniqueId* id);
  void Fail(const absl::Status& status);
  absl::Status Ended() {
    MutexLock lock(&mu_);
    return ended_;
  }

  // Notes.
  void Post(int peer, Note note) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendNotes();
  // Waits for a message of the control mesh. Cancelled: this mesh has ended, or the reader of the message has left.
  absl::Status AwaitNote(Transfer* transfer, std::optional<int> reader);
  // Returns true if the peer has left in order, or does so soon.
  bool HasLeft(int peer);
  void ReceiveNotes(int peer);
  absl::Status Take(int peer, const Note& note);
  absl::Status Match(int peer, uint64_t tag) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Rounds.
  void RunRounds();
  bool BeginsRound() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RunRound();
  // Chooses what this rank sends in the round, copies it, and tells the others.
  absl::Status Compose(Parts* sends, std::shared_ptr<PinnedBlock>* copy);
  // Waits until every rank has told what it sends to this one, and leaves out what would go to ranks that have left.
  absl::Status Collect(Parts* sends, Parts* receives);
  std::string MissingText() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Move(const Parts& sends, const PinnedBlock* from, const Parts& receives);
  absl::Status OnDevice(const Parts& sends, const PinnedBlock* from, const Parts& receives, const PinnedBlock* to);
  void Land(const Parts& receives, const PinnedBlock& from);
  void Watch();

  const NcclMeshOptions options_;
  DeviceMemory memory_;

  Mutex mu_;
  CondVar changed_;
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
  bool closing_ ABSL_GUARDED_BY(mu_) = false;  // no round begins any more
  bool closed_ ABSL_GUARDED_BY(mu_) = false;   // threads end
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mu_);
  std::deque<std::pair<int, Note>> outbox_ ABSL_GUARDED_BY(mu_);
  bool sending_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;  // next round, or the one under way
  bool in_round_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<NcclCommunicator> communicator_ ABSL_GUARDED_BY(mu_);  // constant once it is set
  std::vector<std::thread> threads_;
};

class NcclMesh::NcclTransfer : public Transfer {
 public:
  NcclTransfer(NcclMesh* mesh, int peer, uint64_t tag, bool sends, ItemPtr item)
      : mesh_(*mesh), peer_(peer), tag_(tag), sends_(sends), item_(std::move(item)) {}
  ~NcclTransfer() override {
    MutexLock lock(&mesh_.mu_);
    // Copying takes no wait for others.
    while (item_->state == Item::kInUse) mesh_.changed_.Wait(&mesh_.mu_);
    if (item_->state != Item::kWaiting) return;
    item_->state = Item::kGivenUp;
    // The peer may still send what this rank has asked for: the message is then taken and dropped.
    if (sends_) mesh_.peers_[static_cast<size_t>(peer_)].sends.erase(tag_);
  }

  absl::Status Wait(absl::Duration timeout) override {
    const absl::Time end = Clock::Real()->Now() + timeout;
    MutexLock lock(&mesh_.mu_);
    while (item_->state != Item::kDone) {
      if (!mesh_.ended_.ok()) return mesh_.ended_;
      const absl::Duration left = end - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError(mesh_.MissingText());
      mesh_.changed_.WaitWithTimeout(&mesh_.mu_, left);
    }
    return absl::OkStatus();
  }

 private:
  NcclMesh& mesh_;
  const int peer_;
  const uint64_t tag_;
  const bool sends_;
  const ItemPtr item_;
};

// ------------------------------------------------------------------------------------------------------------- forming

absl::Status NcclMesh::Agree(NcclUniqueId* id) {
  v1::NcclPeer own;
  own.set_version(options_.library->version());
  own.set_device(options_.device_identity);
  if (rank() == 0) {
    const NcclResult result = options_.library->functions().get_unique_id(id);
    const absl::Status made = options_.library->Check(result, "naming a communicator", nullptr);
    own.set_id(id->internal, sizeof(id->internal));
    if (!made.ok()) own.set_error(std::string(made.message()));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all, options_.exchange("nccl", own.SerializeAsString()));
  if (all.size() != static_cast<size_t>(size())) {
    return absl::InternalError(absl::StrCat("the exchange gave ", all.size(), " contributions of ", size()));
  }
  std::map<std::string, int> devices;
  for (int r = 0; r < size(); ++r) {
    v1::NcclPeer peer;
    if (!peer.ParseFromString(all[static_cast<size_t>(r)]) || (r == 0 && peer.id().size() != sizeof(id->internal))) {
      return absl::InternalError(absl::StrCat("what ", Describe(r), " says of NCCL cannot be read"));
    }
    if (!peer.error().empty()) return absl::FailedPreconditionError(absl::StrCat(Describe(r), ": ", peer.error()));
    if (r == 0) std::memcpy(id->internal, peer.id().data(), sizeof(id->internal));
    if (peer.version() != options_.library->version()) {
      return absl::FailedPreconditionError(absl::StrCat(
          Describe(r), " has NCCL ", NcclLibrary::VersionText(peer.version()), ", ", Describe(rank()), " has ",
          options_.library->VersionText(), " (", options_.library->path(), "); install the same everywhere"));
    }
    const auto [other, fresh] = devices.emplace(peer.device(), r);
    if (fresh) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(other->second), " and ", Describe(r), " compute on one device (", peer.device(),
                     "), and NCCL needs one for each: give each its own (--local_rank, CUDA_VISIBLE_DEVICES), or set "
                     "comm.backend: GLOO"));
  }
  return absl::OkStatus();
}

absl::Status NcclMesh::Connect() {
  NcclUniqueId id;
  RETURN_IF_ERROR(Agree(&id));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    threads_.push_back(StartThread(absl::StrCat("weir-nccl-", peer), [this, peer] { ReceiveNotes(peer); }));
  }
  threads_.push_back(StartThread("weir-nccl-notes", [this] { SendNotes(); }));
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> formed =
      NcclCommunicator::Connect({.library = options_.library,
                                 .id = id,
                                 .rank = rank(),
                                 .size = size(),
                                 .device = options_.device,
                                 .connect_deadline = options_.connect_deadline,
                                 .interrupted = [this] { return Ended(); }});
  if (!formed.ok()) {
    // Another rank may have failed first.
    const absl::Status ended = Ended();
    Fail(formed.status());
    return ended.ok() ? formed.status() : ended;
  }
  NcclCommunicator* const communicator = formed->get();
  absl::Status ended;
  {
    MutexLock lock(&mu_);
    communicator_ = *std::move(formed);
    ended = ended_;
  }
  if (!ended.ok()) {
    communicator->Abort(ended);
    return ended;
  }
  threads_.push_back(StartThread("weir-nccl-round", [this] { RunRounds(); }));
  threads_.push_back(StartThread("weir-nccl-watch", [this] { Watch(); }));
  return absl::OkStatus();
}

NcclMesh::~NcclMesh() {
  bool in_time = true;
  {
    MutexLock lock(&mu_);
    closing_ = true;
    changed_.SignalAll();
    const absl::Time end = Clock::Real()->Now() + kFarewell;
    // Others may be in the middle of a round. They must not think that this rank has died there.
    while (in_round_ && ended_.ok() && in_time) {
      in_time = !changed_.WaitWithTimeout(&mu_, end - Clock::Real()->Now()) || Clock::Real()->Now() < end;
    }
    const bool connected = communicator_ != nullptr;
    for (int peer = 0; connected && in_time && ended_.ok() && peer < size(); ++peer) {
      const bool there = peer != rank() && peers_[static_cast<size_t>(peer)].rounds_end == kNoEnd;
      if (there) Post(peer, {.kind = Note::kEnd, .round = round_});
    }
    while ((!outbox_.empty() || sending_) && ended_.ok() && in_time) {
      in_time = !changed_.WaitWithTimeout(&mu_, end - Clock::Real()->Now()) || Clock::Real()->Now() < end;
    }
  }
  if (!in_time) Fail(absl::CancelledError("the collective group has ended here"));
  {
    MutexLock lock(&mu_);
    closed_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
  MutexLock lock(&mu_);
  communicator_ = nullptr;
}

void NcclMesh::Fail(const absl::Status& status) {
  NcclCommunicator* communicator = nullptr;
  {
    MutexLock lock(&mu_);
    if (!ended_.ok()) return;
    ended_ = EndOfMesh(status);
    communicator = communicator_.get();
    changed_.SignalAll();
  }
  // The reason first: when the communicator is gone, the others have errors of their own.
  options_.control->Abort(status);
  if (communicator != nullptr) communicator->Abort(status);
}

// --------------------------------------------------------------------------------------------------------------- notes

std::unique_ptr<Mesh::Transfer> NcclMesh::Send(int peer, uint64_t tag, const void* data, size_t bytes) {
  if (bytes <= options_.small_bytes) return options_.control->Send(peer, tag, data, bytes);
  auto item = std::make_shared<Item>(Item{.data = const_cast<void*>(data), .bytes = bytes});
  absl::Status matched;
  {
    MutexLock lock(&mu_);
    CHECK(peers_[static_cast<size_t>(peer)].sends.emplace(tag, item).second) << "a tag is used twice";
    matched = Match(peer, tag);
  }
  if (!matched.ok()) Fail(matched);
  return std::make_unique<NcclTransfer>(this, peer, tag, /*sends=*/true, std::move(item));
}

std::unique_ptr<Mesh::Transfer> NcclMesh::Receive(int peer, uint64_t tag, void* data, size_t bytes) {
  if (bytes <= options_.small_bytes) return options_.control->Receive(peer, tag, data, bytes);
  auto item = std::make_shared<Item>(Item{.data = data, .bytes = bytes});
  MutexLock lock(&mu_);
  CHECK(peers_[static_cast<size_t>(peer)].receives.emplace(tag, item).second) << "a tag is used twice";
  const bool joins = !outbox_.empty() && outbox_.back().first == peer && outbox_.back().second.kind == Note::kWant &&
                     outbox_.back().second.count < kMostMessages;
  if (!joins) Post(peer, {.kind = Note::kWant});
  Note& note = outbox_.back().second;
  note.entries[note.count++] = {.tag = tag, .bytes = bytes};
  return std::make_unique<NcclTransfer>(this, peer, tag, /*sends=*/false, std::move(item));
}

void NcclMesh::Post(int peer, Note note) {
  outbox_.emplace_back(peer, note);
  changed_.SignalAll();
}

absl::Status NcclMesh::AwaitNote(Transfer* transfer, std::optional<int> reader) {
  while (true) {
    absl::Status status = transfer->Wait(kLook);
    if (!absl::IsDeadlineExceeded(status)) return status;
    MutexLock lock(&mu_);
    const bool left = reader && peers_[static_cast<size_t>(*reader)].rounds_end != kNoEnd;
    if (left || closed_ || !ended_.ok()) return absl::CancelledError("the collective group has ended");
  }
}

bool NcclMesh::HasLeft(int peer) {
  const absl::Time end = Clock::Real()->Now() + kReasonComes;
  MutexLock lock(&mu_);
  const Peer& from = peers_[static_cast<size_t>(peer)];
  while (from.rounds_end == kNoEnd && ended_.ok() && Clock::Real()->Now() < end) {
    changed_.WaitWithTimeout(&mu_, end - Clock::Real()->Now());
  }
  return from.rounds_end != kNoEnd;
}

void NcclMesh::SendNotes() {
  while (true) {
    std::pair<int, Note> next;
    uint64_t number = 0;
    {
      MutexLock lock(&mu_);
      sending_ = false;
      changed_.SignalAll();
      while (outbox_.empty() && !closed_ && ended_.ok()) changed_.Wait(&mu_);
      if (closed_ || !ended_.ok()) return;
      next = outbox_.front();
      outbox_.pop_front();
      number = peers_[static_cast<size_t>(next.first)].notes_sent++;
      sending_ = true;
    }
    const auto transfer = options_.control->Send(next.first, kNoteTags | number, &next.second, sizeof(Note));
    const absl::Status sent = AwaitNote(transfer.get(), next.first);
    if (sent.ok() || HasLeft(next.first)) continue;
    Fail(sent);
    return;
  }
}

void NcclMesh::ReceiveNotes(int peer) {
  for (uint64_t number = 0;; ++number) {
    Note note;
    const auto transfer = options_.control->Receive(peer, kNoteTags | number, &note, sizeof(note));
    absl::Status status = AwaitNote(transfer.get(), std::nullopt);
    {
      MutexLock lock(&mu_);
      if (closed_) return;
    }
    if (status.ok()) status = Take(peer, note);
    if (!status.ok()) {
      Fail(status);
      return;
    }
    // The peer may leave from now on, and its connection with it.
    if (note.kind == Note::kEnd) return;
  }
}

absl::Status NcclMesh::Take(int peer, const Note& note) {
  if (note.kind < Note::kWant || note.kind > Note::kEnd || note.count > kMostMessages) {
    return absl::InternalError(absl::StrCat("a note of ", Describe(peer), " cannot be read"));
  }
  MutexLock lock(&mu_);
  Peer& from = peers_[static_cast<size_t>(peer)];
  if (note.kind == Note::kRound) {
    // A rank is at most one round ahead of another, which it has heard of in the round before.
    if (note.round != round_ + from.rounds.size() || from.rounds.size() > 1) {
      return absl::InternalError(absl::StrCat(Describe(peer), " is at round ", note.round, " of NCCL, ",
                                              Describe(rank()), " at round ", round_));
    }
    from.rounds.push_back(note);
  } else if (note.kind == Note::kEnd) {
    from.rounds_end = note.round;
  }
  for (uint32_t i = 0; note.kind == Note::kWant && i < note.count; ++i) {
    from.wanted[note.entries[i].tag] = note.entries[i].bytes;
    RETURN_IF_ERROR(Match(peer, note.entries[i].tag));
  }
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::Status NcclMesh::Match(int peer, uint64_t tag) {
  Peer& to = peers_[static_cast<size_t>(peer)];
  const auto send = to.sends.find(tag);
  const auto wanted = to.wanted.find(tag);
  if (send == to.sends.end() || wanted == to.wanted.end()) return absl::OkStatus();
  if (send->second->bytes != wanted->second) {
    return absl::FailedPreconditionError(absl::StrCat(Describe(rank()), " has sent ", send->second->bytes, " bytes, ",
                                                      wanted->second, " were expected by ", Describe(peer)));
  }
  to.wanted.erase(wanted);
  to.ready.push_back(tag);
  changed_.SignalAll();
  return absl::OkStatus();
}

// -------------------------------------------------------------------------------------------------------------- rounds

bool NcclMesh::BeginsRound() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return !peer.ready.empty() || !peer.rounds.empty(); });
}

void NcclMesh::RunRounds() {
  while (true) {
    {
      MutexLock lock(&mu_);
      in_round_ = false;
      changed_.SignalAll();
      while (!BeginsRound() && !closing_ && ended_.ok()) changed_.Wait(&mu_);
      if (closing_ || !ended_.ok()) return;
      in_round_ = true;
    }
    if (const absl::Status status = RunRound(); !status.ok()) {
      Fail(status);
      MutexLock lock(&mu_);
      in_round_ = false;
      changed_.SignalAll();
      return;
    }
    MutexLock lock(&mu_);
    ++round_;
    for (Peer& peer : peers_) {
      if (!peer.rounds.empty()) peer.rounds.pop_front();
    }
  }
}

absl::Status NcclMesh::RunRound() {
  Parts sends, receives;
  std::shared_ptr<PinnedBlock> copy;
  RETURN_IF_ERROR(Compose(&sends, &copy));
  RETURN_IF_ERROR(Collect(&sends, &receives));
  if (sends.parts.empty() && receives.parts.empty()) return absl::OkStatus();
  return Move(sends, copy.get(), receives);
}

absl::Status NcclMesh::Compose(Parts* sends, std::shared_ptr<PinnedBlock>* copy) {
  std::vector<Note> notes(static_cast<size_t>(size()), Note{.kind = Note::kRound});
  {
    MutexLock lock(&mu_);
    for (int p = 0; p < size(); ++p) {
      Peer& peer = peers_[static_cast<size_t>(p)];
      Note& note = notes[static_cast<size_t>(p)];
      note.round = round_;
      size_t bytes = 0;
      if (peer.rounds_end <= round_) peer.ready.clear();
      while (!peer.ready.empty() && note.count < kMostMessages) {
        const auto send = peer.sends.find(peer.ready.front());
        const bool given_up = send == peer.sends.end();
        if (!given_up && note.count > 0 && bytes + send->second->bytes > kMostRoundBytes) break;
        const uint64_t tag = peer.ready.front();
        peer.ready.pop_front();
        if (given_up) continue;
        bytes += send->second->bytes;
        note.entries[note.count++] = {.tag = tag, .bytes = send->second->bytes};
        send->second->state = Item::kInUse;
        sends->Add(p, send->second);
        peer.sends.erase(send);
      }
    }
  }
  absl::Status status;
  if (sends->bytes > 0) {
    absl::StatusOr<std::shared_ptr<PinnedBlock>> block = memory_.AllocatePinned(sends->bytes);
    status = block.status();
    if (block.ok()) *copy = *std::move(block);
  }
  for (const Part& part : sends->parts) {
    if (!status.ok()) break;
    std::memcpy(static_cast<char*>((*copy)->data()) + part.offset, part.item->data, part.item->bytes);
  }
  MutexLock lock(&mu_);
  for (const Part& part : sends->parts) part.item->state = status.ok() ? Item::kDone : Item::kWaiting;
  changed_.SignalAll();
  for (int p = 0; status.ok() && p < size(); ++p) {
    const bool there = p != rank() && peers_[static_cast<size_t>(p)].rounds_end > round_;
    if (there) Post(p, notes[static_cast<size_t>(p)]);
  }
  return status;
}

std::string NcclMesh::MissingText() const {
  if (!in_round_) return "";
  std::vector<std::string> missing;
  for (int p = 0; p < size(); ++p) {
    const Peer& peer = peers_[static_cast<size_t>(p)];
    if (p != rank() && peer.rounds.empty() && peer.rounds_end > round_) missing.push_back(Describe(p));
  }
  if (missing.empty()) return "";
  return absl::StrCat("round ", round_, " of NCCL waits for ", absl::StrJoin(missing, ", "));
}

absl::Status NcclMesh::Collect(Parts* sends, Parts* receives) {
  MutexLock lock(&mu_);
  while (ended_.ok() && !MissingText().empty()) changed_.Wait(&mu_);
  RETURN_IF_ERROR(ended_);
  for (int p = 0; p < size(); ++p) {
    Peer& peer = peers_[static_cast<size_t>(p)];
    if (peer.rounds.empty()) {
      auto& parts = sends->parts;
      parts.erase(std::remove_if(parts.begin(), parts.end(), [p](const Part& part) { return part.peer == p; }),
                  parts.end());
      continue;
    }
    const Note& note = peer.rounds.front();
    for (uint32_t i = 0; i < note.count; ++i) {
      const Note::Entry& entry = note.entries[i];
      const auto receive = peer.receives.find(entry.tag);
      if (receive == peer.receives.end() || receive->second->bytes != entry.bytes) {
        return absl::InternalError(absl::StrCat(Describe(p), " sends ", entry.bytes, " bytes that nobody waits for"));
      }
      receives->Add(p, receive->second);
      peer.receives.erase(receive);
    }
  }
  return absl::OkStatus();
}

absl::Status NcclMesh::Move(const Parts& sends, const PinnedBlock* from, const Parts& receives) {
  std::shared_ptr<PinnedBlock> to;
  if (receives.bytes > 0) {
    ASSIGN_OR_RETURN(to, memory_.AllocatePinned(receives.bytes));
  }
  absl::Status moved = OnDevice(sends, from, receives, to.get());
  if (!moved.ok()) {
    // Ends what is queued, before the memory above goes.
    Fail(moved);
    (void)options_.device->WaitForAll();
    return moved;
  }
  if (to != nullptr) Land(receives, *to);
  return absl::OkStatus();
}

absl::Status NcclMesh::OnDevice(const Parts& sends, const PinnedBlock* from, const Parts& receives,
                                const PinnedBlock* to) {
  DeviceRuntime& device = *options_.device;
  NcclCommunicator* communicator = nullptr;
  {
    MutexLock lock(&mu_);
    communicator = communicator_.get();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceEvent> event, device.NewEvent());
  std::shared_ptr<DeviceBlock> out, in;
  if (from != nullptr) {
    ASSIGN_OR_RETURN(out, memory_.Allocate(sends.bytes, "messages of NCCL"));
    RETURN_IF_ERROR(device.CopyIn(DeviceQueue::kCopyIn, out->data(), from->data(), sends.bytes));
    RETURN_IF_ERROR(device.Record(DeviceQueue::kCopyIn, event.get()));
    RETURN_IF_ERROR(device.QueueWait(DeviceQueue::kCompute, event.get()));
  }
  if (to != nullptr) {
    ASSIGN_OR_RETURN(in, memory_.Allocate(receives.bytes, "messages of NCCL"));
  }
  const auto messages = [](const Parts& parts, const DeviceBlock* block) {
    std::vector<NcclCommunicator::Message> list;
    for (const Part& part : parts.parts) {
      list.push_back({part.peer, static_cast<char*>(block->data()) + part.offset, part.item->bytes});
    }
    return list;
  };
  RETURN_IF_ERROR(communicator->Exchange(messages(sends, out.get()), messages(receives, in.get())));
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceEvent> exchanged, device.NewEvent());
  RETURN_IF_ERROR(device.Record(DeviceQueue::kCompute, exchanged.get()));
  if (to != nullptr) {
    RETURN_IF_ERROR(device.QueueWait(DeviceQueue::kCopyOut, exchanged.get()));
    RETURN_IF_ERROR(device.CopyOut(DeviceQueue::kCopyOut, to->data(), in->data(), receives.bytes));
    RETURN_IF_ERROR(device.Record(DeviceQueue::kCopyOut, exchanged.get()));
  }
  // Ends also when the communicator is aborted, with any content of the memory.
  RETURN_IF_ERROR(device.Wait(exchanged.get()));
  return communicator->Error();
}

void NcclMesh::Land(const Parts& receives, const PinnedBlock& from) {
  std::vector<Part> awaited;
  {
    MutexLock lock(&mu_);
    for (const Part& part : receives.parts) {
      if (part.item->state != Item::kWaiting) continue;
      part.item->state = Item::kInUse;
      awaited.push_back(part);
    }
  }
  for (const Part& part : awaited) {
    std::memcpy(part.item->data, static_cast<const char*>(from.data()) + part.offset, part.item->bytes);
  }
  MutexLock lock(&mu_);
  for (const Part& part : awaited) part.item->state = Item::kDone;
  changed_.SignalAll();
}

void NcclMesh::Watch() {
  while (true) {
    NcclCommunicator* communicator = nullptr;
    {
      MutexLock lock(&mu_);
      if (!closed_ && ended_.ok()) changed_.WaitWithTimeout(&mu_, kWatch);
      if (closed_ || !ended_.ok()) return;
      communicator = communicator_.get();
    }
    const absl::Status error = communicator->Error();
    if (error.ok()) continue;
    {
      const absl::Time end = Clock::Real()->Now() + kReasonComes;
      MutexLock lock(&mu_);
      while (ended_.ok() && Clock::Real()->Now() < end) changed_.WaitWithTimeout(&mu_, end - Clock::Real()->Now());
    }
    Fail(error);
    return;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mesh>> ConnectNcclMesh(NcclMeshOptions options) {
  CHECK(options.control != nullptr && options.library != nullptr && options.device != nullptr);
  auto mesh = std::make_unique<NcclMesh>(std::move(options));
  if (absl::Status status = mesh->Connect(); !status.ok()) return status;
  return mesh;
}

}  // namespace weir
