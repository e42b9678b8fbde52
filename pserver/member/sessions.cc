#include "pserver/member/sessions.h"

#include <algorithm>
#include <utility>

namespace weir {

Sessions::Sessions(std::string job_name, int trainer, int servers)
    : job_name_(std::move(job_name)), trainer_(trainer), servers_(static_cast<size_t>(servers)) {}

v1::Caller Sessions::CallerFor(int server) const {
  v1::Caller caller;
  caller.set_job_id(job_name_);
  caller.set_trainer(trainer_);
  MutexLock lock(&mu_);
  caller.set_session(servers_[static_cast<size_t>(server)].session);
  return caller;
}

std::vector<Sessions::Server> Sessions::All() const {
  MutexLock lock(&mu_);
  return servers_;
}

void Sessions::Open(int server, uint64_t session, std::string process, absl::Time now) {
  MutexLock lock(&mu_);
  Server& opened = servers_[static_cast<size_t>(server)];
  opened.session = session;
  opened.process = std::move(process);
  opened.last_heard = now;
}

void Sessions::Close(int server) {
  MutexLock lock(&mu_);
  servers_[static_cast<size_t>(server)].session = 0;
}

void Sessions::Heard(int server, absl::Time now) {
  MutexLock lock(&mu_);
  servers_[static_cast<size_t>(server)].last_heard = now;
}

void Sessions::ExcuseAll(absl::Time now) {
  MutexLock lock(&mu_);
  for (Server& server : servers_) {
    if (server.session != 0) server.last_heard = std::max(server.last_heard, now);
  }
}

void Sessions::KnowsFailure(int server) {
  MutexLock lock(&mu_);
  servers_[static_cast<size_t>(server)].knows_failure = true;
}

void Sessions::Release(int server) {
  MutexLock lock(&mu_);
  servers_[static_cast<size_t>(server)].released = true;
}

}  // namespace weir
