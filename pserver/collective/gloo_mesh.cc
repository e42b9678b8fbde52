#include "pserver/collective/gloo_mesh.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/store.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/unbound_buffer.h"

namespace weir {

namespace {

// A wait of Gloo that reaches its deadline ends all connections, so its deadlines are set out of reach, and waits are
// woken at this pace to look at ours.
constexpr absl::Duration kWake = absl::Milliseconds(50);
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365);

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

// The addresses of all ranks. Gloo stores its own under its rank, and asks for those of others.
class ExchangedStore : public gloo::rendezvous::Store {
 public:
  explicit ExchangedStore(const GlooMeshOptions& options) : options_(options) {}

  void set(const std::string&, const std::vector<char>& data) override {
    absl::StatusOr<std::vector<std::string>> all = options_.exchange(std::string(data.begin(), data.end()));
    status_ = all.status();
    if (all.ok()) all_ = *std::move(all);
  }
  std::vector<char> get(const std::string& key) override {
    const auto rank = static_cast<size_t>(std::strtoull(key.c_str(), nullptr, 10));
    if (rank >= all_.size()) return {};
    return std::vector<char>(all_[rank].begin(), all_[rank].end());
  }
  void wait(const std::vector<std::string>&) override {
    if (!status_.ok()) throw std::runtime_error(std::string(status_.message()));
  }

  const absl::Status& status() const { return status_; }

 private:
  const GlooMeshOptions& options_;
  absl::Status status_;
  std::vector<std::string> all_;
};

class GlooMesh : public Mesh {
 public:
  explicit GlooMesh(GlooMeshOptions options)
      : options_(std::move(options)),
        context_(std::make_shared<gloo::rendezvous::Context>(options_.rank, options_.size)),
        waker_([this] { WakeWaits(); }) {}
  ~GlooMesh() override {
    Abort(absl::CancelledError("the collective group has ended here"));
    {
      MutexLock lock(&mu_);
      closing_ = true;
      changed_.SignalAll();
    }
    waker_.join();
  }

  absl::Status Connect() {
    ExchangedStore store(options_);
    context_->setTimeout(absl::ToChronoMilliseconds(options_.connect_deadline));
    absl::Status status = Caught([&] {
      device_ = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(options_.host.c_str()));
      context_->connectFullMesh(store, device_);
    });
    if (!store.status().ok()) return store.status();
    if (!status.ok()) return absl::UnavailableError(absl::StrCat("Gloo cannot connect all ranks: ", status.message()));
    context_->setTimeout(kNever);
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

  void Abort(const absl::Status& status) override {
    MutexLock lock(&mu_);
    if (!ended_.ok()) return;
    ended_ = status;
    // Ends the connections, which the other ranks notice; the reason reaches them through the job.
    (void)Caught([this] { context_->closeConnections(); });
    WakeAll();
  }

 private:
  using Buffer = gloo::transport::UnboundBuffer;

  class GlooTransfer : public Transfer {
   public:
    GlooTransfer(GlooMesh* mesh, int peer, bool sends, std::unique_ptr<Buffer> buffer, absl::Status begun)
        : mesh_(*mesh), peer_(peer), sends_(sends), buffer_(std::move(buffer)), begun_(std::move(begun)) {}

    absl::Status Wait(absl::Duration timeout) override {
      if (!begun_.ok()) return mesh_.Reason(begun_, peer_);
      const absl::Time end = Clock::Real()->Now() + timeout;
      {
        MutexLock lock(&mesh_.mu_);
        if (!mesh_.ended_.ok()) return mesh_.ended_;
        (sends_ ? mesh_.sends_ : mesh_.receives_).insert(buffer_.get());
      }
      bool done = false;
      absl::Status status;
      do {
        status = Caught([&] { done = sends_ ? buffer_->waitSend(kNever) : buffer_->waitRecv(kNever); });
      } while (status.ok() && !done && mesh_.Alive() && Clock::Real()->Now() < end);
      {
        MutexLock lock(&mesh_.mu_);
        (sends_ ? mesh_.sends_ : mesh_.receives_).erase(buffer_.get());
      }
      if (!status.ok()) return mesh_.Reason(status, peer_);
      if (done) return absl::OkStatus();
      MutexLock lock(&mesh_.mu_);
      return mesh_.ended_.ok() ? absl::DeadlineExceededError("no message yet") : mesh_.ended_;
    }

   private:
    GlooMesh& mesh_;
    const int peer_;
    const bool sends_;
    const std::unique_ptr<Buffer> buffer_;
    const absl::Status begun_;
  };

  std::unique_ptr<Transfer> Begin(int peer, void* data, size_t bytes, bool sends, uint64_t tag) {
    std::unique_ptr<Buffer> buffer;
    absl::Status status = Caught([&] {
      buffer = context_->createUnboundBuffer(data, bytes);
      if (sends) {
        buffer->send(peer, tag);
      } else {
        buffer->recv(peer, tag);
      }
    });
    return std::make_unique<GlooTransfer>(this, peer, sends, std::move(buffer), std::move(status));
  }

  bool Alive() {
    MutexLock lock(&mu_);
    return ended_.ok();
  }
  // The error of a transfer: the reason for which the mesh has ended, if it has.
  absl::Status Reason(const absl::Status& status, int peer) {
    MutexLock lock(&mu_);
    if (!ended_.ok()) return ended_;
    return absl::UnavailableError(absl::StrCat(Describe(peer), ": ", status.message()));
  }
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (Buffer* buffer : sends_) buffer->abortWaitSend();
    for (Buffer* buffer : receives_) buffer->abortWaitRecv();
  }
  void WakeWaits() {
    MutexLock lock(&mu_);
    while (!closing_) {
      changed_.WaitWithTimeout(&mu_, kWake);
      WakeAll();
    }
  }

  const GlooMeshOptions options_;
  const std::shared_ptr<gloo::rendezvous::Context> context_;
  std::shared_ptr<gloo::transport::Device> device_;

  Mutex mu_;
  CondVar changed_;
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
  std::set<Buffer*> sends_ ABSL_GUARDED_BY(mu_), receives_ ABSL_GUARDED_BY(mu_);  // that somebody waits for
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::thread waker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mesh>> ConnectGlooMesh(GlooMeshOptions options) {
  auto mesh = std::make_unique<GlooMesh>(std::move(options));
  if (absl::Status status = mesh->Connect(); !status.ok()) return status;
  return mesh;
}

}  // namespace weir
