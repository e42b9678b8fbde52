#include "pserver/inside/in_process.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"

namespace weir {

namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);

class InProcessServersImpl : public InProcessServers {
 public:
  explicit InProcessServersImpl(bool check_payloads) : check_payloads_(check_payloads) {}
  ~InProcessServersImpl() override {
    {
      MutexLock lock(&mu_);
      stop_ = true;
      changed_.SignalAll();
    }
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Add(ServerOptions options) {
    options.check_payloads = check_payloads_;
    ASSIGN_OR_RETURN(std::unique_ptr<ServerCore> core, ServerCore::Create(std::move(options)));
    cores_.push_back(std::move(core));
    return absl::OkStatus();
  }

  void StartTicking() {
    thread_ = StartThread("weir-tick", [this] {
      while (true) {
        {
          MutexLock lock(&mu_);
          if (!stop_) changed_.WaitWithTimeout(&mu_, kTick);
          if (stop_) return;
        }
        Tick();
      }
    });
  }

  // No wire, no time: the answer comes from inside Handle or from a later one.
  void Call(int server, Method method, Slices request, absl::Duration, ReplyCallback done) override {
    if (server < 0 || server >= servers()) {
      return done(absl::InvalidArgumentError(absl::StrCat("server ", server, " of ", servers())));
    }
    cores_[static_cast<size_t>(server)]->Handle(method, request, std::move(done));
  }
  std::string Describe(int server) const override { return absl::StrCat("server ", server, " in this process"); }
  int servers() const override { return static_cast<int>(cores_.size()); }
  bool answers_inside() const override { return true; }
  bool checks_payloads() const override { return check_payloads_; }
  ServerCore& server(int i) override { return *cores_[static_cast<size_t>(i)]; }
  void Tick() override {
    for (const auto& core : cores_) core->Tick();
  }

 private:
  const bool check_payloads_;
  std::vector<std::unique_ptr<ServerCore>> cores_;
  Mutex mu_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<InProcessServers>> InProcessServers::Create(std::vector<ServerOptions> servers,
                                                                           bool tick_thread, bool check_payloads) {
  auto all = std::make_unique<InProcessServersImpl>(check_payloads);
  for (size_t i = 0; i < servers.size(); ++i) {
    if (servers[i].server_id != static_cast<int>(i)) {
      return absl::InvalidArgumentError(absl::StrCat("server ", servers[i].server_id, " stands at place ", i));
    }
    RETURN_IF_ERROR(all->Add(std::move(servers[i])));
  }
  if (tick_thread) all->StartTicking();
  return std::unique_ptr<InProcessServers>(std::move(all));
}

}  // namespace weir
