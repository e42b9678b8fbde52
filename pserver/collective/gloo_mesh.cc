#include "pserver/collective/gloo_mesh.h"

#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <exception>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/base/status_message.h"
#include "framework/net/resolve.h"
#include "gloo/allreduce.h"
#include "gloo/context.h"
#include "gloo/transport/context.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/unbound_buffer.h"

namespace weir {

namespace {

// A wait of Gloo that reaches its deadline ends all connections, so its deadlines are set out of reach, and waits are
// woken at this pace to look at ours.
constexpr absl::Duration kWake = absl::Milliseconds(50);
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365);
// Time that Abort waits until the others have its reason, before it closes the connections.
constexpr absl::Duration kFarewell = absl::Seconds(1);
// Time within which the reason may come after a connection was closed.
constexpr absl::Duration kReasonComes = absl::Milliseconds(300);
// Period at which Connect checks whether the job has failed.
constexpr absl::Duration kLook = absl::Milliseconds(100);
// Tag of the message that says why a rank has ended the mesh. No operation has it.
constexpr uint64_t kEndTag = ~uint64_t{0};

// Bit of the tags of messages, so that none is a tag that a function of Gloo makes for itself (gloo/types.h).
constexpr uint64_t kMessageTag = uint64_t{1} << 63;
// Time that a function of Gloo waits between calls of Mesh::OwnAllReduce::waits.
constexpr absl::Duration kFunctionLook = absl::Milliseconds(100);

// Ends a function of Gloo that waits.
class WaitEnded : public std::exception {
 public:
  explicit WaitEnded(absl::Status status) : status_(std::move(status)) {}
  const char* what() const noexcept override { return "the wait has ended"; }
  const absl::Status& status() const { return status_; }

 private:
  const absl::Status status_;
};

// Gloo would end the process.
absl::Status CheckHost(const std::string& host) {
  const absl::Status found = Resolve(host, 0).status();
  if (found.ok()) return found;
  return absl::UnavailableError(
      absl::StrCat("the address of this host for other trainers, '", host, "', cannot be resolved: ", found.message()));
}

// Gloo reports errors by exceptions.
template <typename F>
absl::Status Caught(const F& f) {
  try {
    f();
    return absl::OkStatus();
  } catch (const std::exception& e) {
    return absl::UnavailableError(e.what());
  }
}

// Appends two bytes of length, and the bytes: at most 65535.
template <typename Bytes>
void Pack(const Bytes& bytes, std::string* packed) {
  packed->push_back(static_cast<char>(bytes.size() & 255));
  packed->push_back(static_cast<char>(bytes.size() >> 8 & 255));
  packed->append(bytes.begin(), bytes.end());
}

// Returns what the call `index` of Pack has appended; empty if `packed` was not made by Pack.
std::vector<char> Unpack(std::string_view packed, int index) {
  for (int i = 0; packed.size() >= 2; ++i) {
    const size_t size = static_cast<uint8_t>(packed[0]) | size_t{static_cast<uint8_t>(packed[1])} << 8;
    packed.remove_prefix(2);
    if (size > packed.size()) break;
    if (i == index) return std::vector<char>(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
    packed.remove_prefix(size);
  }
  return {};
}

// Bytes of the message that says why a rank has ended the mesh, and of the text in it at most.
constexpr size_t kNoticeBytes = 2048;
constexpr size_t kMaxReason = 2000;

// Returns a v1::Status, packed, and zeros behind it.
std::string NoticeOf(const absl::Status& status) {
  std::string notice;
  Pack(StatusMessage(status, kMaxReason).SerializeAsString(), &notice);
  notice.resize(kNoticeBytes);
  return notice;
}

// Returns the status of a notice; Unknown if it cannot be read.
absl::Status ReasonIn(const std::string& notice) {
  const std::vector<char> bytes = Unpack(notice, 0);
  v1::Status reason;
  if (!reason.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || reason.code() == 0)
    reason.set_code(static_cast<int>(absl::StatusCode::kUnknown));
  return StatusOf(reason);
}

class GlooMesh : public Mesh {
 public:
  explicit GlooMesh(GlooMeshOptions options) : options_(std::move(options)) {}
  ~GlooMesh() override {
    {
      MutexLock lock(&mu_);
      closing_ = true;
      End(absl::CancelledError("the collective group has ended here"));
    }
    // Woken by the other one.
    for (std::thread& each : notices_) each.join();
    {
      MutexLock lock(&mu_);
      wakes_ = false;
      changed_.SignalAll();
    }
    if (waker_.joinable()) waker_.join();
    Close();
  }

  absl::Status Connect() {
    // Gloo writes to connections that others have closed, and a process that reads the error is to report it.
    struct sigaction action = {};
    if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
      action.sa_handler = SIG_IGN;
      ::sigaction(SIGPIPE, &action, nullptr);
    }
    RETURN_IF_ERROR(CheckHost(options_.host));
    // Addresses at which this rank awaits each other rank, by rank.
    std::string addresses;
    RETURN_IF_ERROR(Caught([&] {
      device_ = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(options_.host.c_str()));
      context_ = device_->createContext(options_.rank, options_.size);
      context_->setTimeout(absl::ToChronoMilliseconds(options_.connect_deadline));
      for (int peer = 0; peer < options_.size; ++peer) {
        Pack(peer == options_.rank ? std::vector<char>() : context_->createPair(peer)->address().bytes(), &addresses);
      }
    }));
    ASSIGN_OR_RETURN(const std::vector<std::string> all,
                     options_.exchange(absl::StrCat("gloo/", absl::Hex(options_.group)), std::move(addresses)));
    if (all.size() != static_cast<size_t>(options_.size)) {
      return absl::InternalError(absl::StrCat("the exchange gave ", all.size(), " contributions of ", options_.size));
    }
    RETURN_IF_ERROR(ConnectWhileJobLives(all));
    context_->setTimeout(kNever);
    waker_ = StartThread("weir-gloo-wake", [this] { WakeWaits(); });
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) notices_.push_back(StartThread("weir-gloo-end", [this, peer] { AwaitNotice(peer); }));
    }
    return absl::OkStatus();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string Describe(int rank) const override { return options_.describe(rank); }

  std::unique_ptr<Transfer> Send(int peer, uint64_t tag, const void* data, size_t bytes) override {
    return Begin(peer, const_cast<void*>(data), bytes, /*sends=*/true, tag);
  }
  std::unique_ptr<Transfer> Receive(int peer, uint64_t tag, void* data, size_t bytes) override {
    return Begin(peer, data, bytes, /*sends=*/false, tag);
  }

  bool HasAllReduce() const override { return true; }
  // Gloo's ring.
  absl::Status AllReduce(const OwnAllReduce& operation) override {
    try {
      gloo::AllreduceOptions options(std::make_shared<EngineContext>(this, &operation));
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      options.setTag(static_cast<uint32_t>(operation.number));
      // Only the size of the type counts.
      if (operation.element_bytes == sizeof(uint64_t)) {
        options.setOutput(static_cast<uint64_t*>(operation.values), operation.count);
      } else {
        options.setOutput(static_cast<uint32_t*>(operation.values), operation.count);
      }
      options.setReduceFunction(operation.add);
      gloo::allreduce(options);
      return absl::OkStatus();
    } catch (const WaitEnded& ended) {
      return ended.status();
    } catch (const std::exception& e) {
      return absl::UnavailableError(e.what());
    }
  }

  // Takes up to kFarewell.
  void Abort(const absl::Status& status) override {
    {
      MutexLock lock(&mu_);
      if (!ended_.ok()) return;
      End(status);
    }
    std::string notice = NoticeOf(status);
    std::vector<std::unique_ptr<Buffer>> sends;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      (void)Caught([&] {
        sends.push_back(context_->createUnboundBuffer(notice.data(), notice.size()));
        sends.back()->send(peer, kEndTag);
      });
    }
    const absl::Time end = Clock::Real()->Now() + kFarewell;
    bool told = sends.size() + 1 == static_cast<size_t>(size());
    for (const std::unique_ptr<Buffer>& send : sends) {
      told &= Await(send.get(), /*sends=*/true, end, /*until_end=*/false).value_or(false);
    }
    // A rank that has no reason by now sees its connections closed. Else they stay, since closing them could destroy
    // what is on its way.
    if (!told) Close();
  }

 private:
  using Buffer = gloo::transport::UnboundBuffer;

  // Connects with every rank, one after the other; `all`: their addresses. Each wait ends by the deadline of the
  // context, or when Close is called.
  absl::Status ConnectAll(const std::vector<std::string>& all) {
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer == options_.rank) continue;
      const std::vector<char> address = Unpack(all[static_cast<size_t>(peer)], options_.rank);
      if (address.empty()) {
        return absl::InternalError(absl::StrCat("the exchange gave no address of ", Describe(peer)));
      }
      {
        MutexLock lock(&mu_);
        if (!ended_.ok()) return ended_;
      }
      const absl::Status connected = Caught([&] { context_->getPair(peer)->connect(address); });
      if (!connected.ok()) {
        return absl::UnavailableError(absl::StrCat("the collective group cannot form: ", Describe(peer), " and ",
                                                   Describe(rank()),
                                                   " do not reach each other: ", connected.message()));
      }
    }
    return absl::OkStatus();
  }
  // ConnectAll on a thread of its own: Gloo waits for a connection without looking at anything else.
  absl::Status ConnectWhileJobLives(const std::vector<std::string>& all) {
    absl::Status connected;
    bool over = false;  // guarded by mu_
    std::thread connects = StartThread("weir-gloo-conn", [&] {
      const absl::Status status = ConnectAll(all);
      MutexLock lock(&mu_);
      connected = status;
      over = true;
      changed_.SignalAll();
    });
    absl::Status job;
    while (true) {
      {
        MutexLock lock(&mu_);
        if (!over) changed_.WaitWithTimeout(&mu_, kLook);
        if (over) break;
      }
      if (job.ok() && options_.job) job = options_.job();
      if (job.ok()) continue;
      {
        MutexLock lock(&mu_);
        End(job);
      }
      // Again and again: a connection may have begun meanwhile.
      Close();
    }
    connects.join();
    return job.ok() ? connected : job;
  }

  class GlooTransfer : public Transfer {
   public:
    GlooTransfer(GlooMesh* mesh, int peer, bool sends, std::unique_ptr<Buffer> buffer, absl::Status begun)
        : mesh_(*mesh), peer_(peer), sends_(sends), buffer_(std::move(buffer)), begun_(std::move(begun)) {}

    absl::Status Wait(absl::Duration timeout) override {
      if (!begun_.ok()) return mesh_.Reason(begun_, peer_);
      const absl::StatusOr<bool> done =
          mesh_.Await(buffer_.get(), sends_, Clock::Real()->Now() + timeout, /*until_end=*/true);
      if (!done.ok()) return mesh_.Reason(done.status(), peer_);
      if (*done) return absl::OkStatus();
      const absl::Status ended = mesh_.ended();
      return ended.ok() ? absl::DeadlineExceededError("") : ended;
    }

   private:
    GlooMesh& mesh_;
    const int peer_;
    const bool sends_;
    const std::unique_ptr<Buffer> buffer_;
    const absl::Status begun_;
  };

  // Memory of a function of Gloo, whose waits end with the mesh, or when the operation says so.
  class EngineBuffer : public Buffer {
   public:
    EngineBuffer(GlooMesh* mesh, const OwnAllReduce* operation, std::unique_ptr<Buffer> buffer)
        : Buffer(buffer->ptr, buffer->size), mesh_(*mesh), operation_(*operation), buffer_(std::move(buffer)) {}

    bool waitRecv(int* /*rank*/, std::chrono::milliseconds /*timeout*/) override {
      return Wait(/*sends=*/false, from_);
    }
    bool waitSend(int* /*rank*/, std::chrono::milliseconds /*timeout*/) override { return Wait(/*sends=*/true, to_); }
    void abortWaitRecv() override { buffer_->abortWaitRecv(); }
    void abortWaitSend() override { buffer_->abortWaitSend(); }
    void send(int peer, uint64_t slot, size_t offset, size_t bytes) override {
      to_ = peer;
      buffer_->send(peer, slot, offset, bytes);
    }
    void recv(int peer, uint64_t slot, size_t offset, size_t bytes) override {
      from_ = peer;
      buffer_->recv(peer, slot, offset, bytes);
    }
    void recv(std::vector<int> peers, uint64_t slot, size_t offset, size_t bytes) override {
      from_ = peers[0];
      buffer_->recv(std::move(peers), slot, offset, bytes);
    }

   private:
    bool Wait(bool sends, int peer) {
      while (true) {
        const absl::StatusOr<bool> done =
            mesh_.Await(buffer_.get(), sends, Clock::Real()->Now() + kFunctionLook, /*until_end=*/true);
        if (!done.ok()) throw WaitEnded(mesh_.Reason(done.status(), peer));
        if (*done) break;
        if (absl::Status ended = mesh_.ended(); !ended.ok()) throw WaitEnded(std::move(ended));
        if (absl::Status status = operation_.waits(peer); !status.ok()) throw WaitEnded(std::move(status));
      }
      operation_.moved();
      return true;
    }

    GlooMesh& mesh_;
    const OwnAllReduce& operation_;
    const std::unique_ptr<Buffer> buffer_;
    int from_ = 0, to_ = 0;
  };
  // The connections, as functions of Gloo see them.
  class EngineTransport : public gloo::transport::Context {
   public:
    EngineTransport(GlooMesh* mesh, const OwnAllReduce* operation)
        : Context(mesh->rank(), mesh->size()), mesh_(*mesh), operation_(*operation) {}
    std::unique_ptr<gloo::transport::Pair>& getPair(int rank) override { return mesh_.context_->getPair(rank); }
    std::unique_ptr<gloo::transport::Pair>& createPair(int rank) override { return mesh_.context_->createPair(rank); }
    std::unique_ptr<Buffer> createUnboundBuffer(void* data, size_t bytes) override {
      return std::make_unique<EngineBuffer>(&mesh_, &operation_, mesh_.context_->createUnboundBuffer(data, bytes));
    }

   private:
    GlooMesh& mesh_;
    const OwnAllReduce& operation_;
  };
  class EngineContext : public gloo::Context {
   public:
    EngineContext(GlooMesh* mesh, const OwnAllReduce* operation) : Context(mesh->rank(), mesh->size()) {
      device_ = mesh->device_;
      transportContext_ = std::make_shared<EngineTransport>(mesh, operation);
    }
  };

  absl::Status ended() {
    MutexLock lock(&mu_);
    return ended_;
  }
  std::unique_ptr<Transfer> Begin(int peer, void* data, size_t bytes, bool sends, uint64_t tag) {
    std::unique_ptr<Buffer> buffer;
    absl::Status status = Caught([&] {
      buffer = context_->createUnboundBuffer(data, bytes);
      if (sends) {
        buffer->send(peer, tag | kMessageTag);
      } else {
        buffer->recv(peer, tag | kMessageTag);
      }
    });
    return std::make_unique<GlooTransfer>(this, peer, sends, std::move(buffer), std::move(status));
  }

  // Waits for a buffer until `end`, until the destructor begins, or, if until_end, until the mesh ends. Returns whether
  // it is done.
  absl::StatusOr<bool> Await(Buffer* buffer, bool sends, absl::Time end, bool until_end) {
    std::set<Buffer*>& waited = sends ? sends_ : receives_;
    bool done = false, goes_on = true;
    absl::Status status;
    {
      MutexLock lock(&mu_);
      if (until_end && !ended_.ok()) return false;
      waited.insert(buffer);
    }
    while (status.ok() && !done && goes_on) {
      status = Caught([&] { done = sends ? buffer->waitSend(kNever) : buffer->waitRecv(kNever); });
      MutexLock lock(&mu_);
      goes_on = Clock::Real()->Now() < end && !closing_ && !(until_end && !ended_.ok());
    }
    MutexLock lock(&mu_);
    waited.erase(buffer);
    if (!status.ok()) return status;
    return done;
  }
  // Returns the error of a transfer: the reason for which the mesh has ended, if it has or is about to, else `status`.
  absl::Status Reason(const absl::Status& status, int peer) {
    const absl::Time end = Clock::Real()->Now() + kReasonComes;
    MutexLock lock(&mu_);
    while (ended_.ok() && Clock::Real()->Now() < end) changed_.WaitWithTimeout(&mu_, end - Clock::Real()->Now());
    if (!ended_.ok()) return ended_;
    return absl::UnavailableError(absl::StrCat(Describe(peer), ": ", status.message()));
  }
  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!ended_.ok()) return;
    ended_ = EndOfMesh(status);
    changed_.SignalAll();
    WakeAll();
  }
  void Close() {
    MutexLock lock(&close_mu_);
    for (int peer = 0; context_ != nullptr && peer < size(); ++peer) {
      if (peer == rank() || context_->getPair(peer) == nullptr) continue;
      (void)Caught([&] { context_->getPair(peer)->close(); });
    }
  }
  // Waits for the reason of a rank that ends the mesh; also when the mesh has ended, since that rank waits until it is
  // heard. On a thread for each rank: of receives from any rank Gloo loses some when several send at once.
  void AwaitNotice(int peer) {
    std::string notice(kNoticeBytes, '\0');
    std::unique_ptr<Buffer> buffer;
    const absl::Status begun = Caught([&] {
      buffer = context_->createUnboundBuffer(notice.data(), notice.size());
      buffer->recv(peer, kEndTag);
    });
    if (!begun.ok()) return;
    const absl::StatusOr<bool> come = Await(buffer.get(), /*sends=*/false, absl::InfiniteFuture(), /*until_end=*/false);
    if (!come.ok() || !*come) return;
    MutexLock lock(&mu_);
    End(ReasonIn(notice));
  }
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (Buffer* buffer : sends_) buffer->abortWaitSend();
    for (Buffer* buffer : receives_) buffer->abortWaitRecv();
  }
  void WakeWaits() {
    MutexLock lock(&mu_);
    while (wakes_) {
      changed_.WaitWithTimeout(&mu_, kWake);
      WakeAll();
    }
  }

  const GlooMeshOptions options_;
  // Set by Connect.
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;

  Mutex close_mu_;  // serializes Close
  Mutex mu_;
  CondVar changed_;
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
  std::set<Buffer*> sends_ ABSL_GUARDED_BY(mu_), receives_ ABSL_GUARDED_BY(mu_);  // that somebody waits for
  bool closing_ ABSL_GUARDED_BY(mu_) = false;                                     // the destructor has begun
  bool wakes_ ABSL_GUARDED_BY(mu_) = true;                                        // waker_ goes on
  std::thread waker_;
  std::vector<std::thread> notices_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mesh>> ConnectGlooMesh(GlooMeshOptions options) {
  auto mesh = std::make_unique<GlooMesh>(std::move(options));
  if (absl::Status status = mesh->Connect(); !status.ok()) return status;
  return mesh;
}

}  // namespace weir
