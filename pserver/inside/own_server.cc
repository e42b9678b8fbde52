#include "pserver/inside/own_server.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"

namespace weir {

namespace {

class OwnServerTransport : public Transport {
 public:
  explicit OwnServerTransport(const OwnServerOptions& options) : options_(options) {}
  ~OwnServerTransport() override {
    MutexLock lock(&mu_);
    while (running_ > 0) none_left_.Wait(&mu_);
  }

  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    if (server != options_.own)
      return options_.others->Call(server, method, std::move(request), timeout, std::move(done));
    for (Slice& slice : request) {
      if (slice.owner == nullptr && slice.size > 0) slice = Slice::Own(std::string(slice.data, slice.size));
    }
    const bool of_step = method == Method::kPush || method == Method::kPull;
    if (method == Method::kJoin || method == Method::kHeartbeat || (of_step && options_.holds_nothing)) {
      return options_.core->Handle(method, request, std::move(done));
    }
    {
      MutexLock lock(&mu_);
      ++running_;
    }
    options_.pool->Schedule(
        [this, method, request = std::move(request), done = std::move(done), profiled = ProfiledCallScope::current()] {
          {
            const ProfiledCallScope scope(profiled);
            options_.core->Handle(method, request, done);
          }
          MutexLock lock(&mu_);
          if (--running_ == 0) none_left_.SignalAll();
        });
  }

  void CallPatiently(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    if (server != options_.own) {
      return options_.others->CallPatiently(server, method, std::move(request), timeout, std::move(done));
    }
    Call(server, method, std::move(request), timeout, std::move(done));
  }

  std::string Describe(int server) const override {
    return server == options_.own ? absl::StrCat("server ", server, " in this process")
                                  : options_.others->Describe(server);
  }
  int servers() const override { return options_.others->servers(); }
  bool checks_payloads() const override { return options_.others->checks_payloads(); }
  bool is_own(int server, Method /*method*/) const override { return server == options_.own; }
  bool shares_memory(int server) const override {
    return server == options_.own || options_.others->shares_memory(server);
  }

 private:
  const OwnServerOptions options_;
  Mutex mu_;
  CondVar none_left_;
  int running_ ABSL_GUARDED_BY(mu_) = 0;  // own calls whose handlers have not returned
};

}  // namespace

std::unique_ptr<Transport> MakeOwnServerTransport(const OwnServerOptions& options) {
  CHECK(options.core != nullptr && options.others != nullptr && options.pool != nullptr);
  CHECK(options.own >= 0 && options.own < options.others->servers());
  return std::make_unique<OwnServerTransport>(options);
}

}  // namespace weir
