#include "pserver/network/stream_server.h"

#include <algorithm>
#include <list>
#include <utility>
#include <vector>

#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "grpcpp/support/server_callback.h"
#include "proto/stream_service.grpc.pb.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/stream_session.h"
#include "pserver/sockets/socket_link.h"
#include "pserver/sockets/stream_records.h"

namespace weir {
namespace {

// A stream of gRPC. Lives until OnDone.
class Reactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Reactor(std::shared_ptr<StreamSessions> sessions)
      : session_(std::make_shared<StreamSession>(std::move(sessions), [this](const Slices& batch) {
          out_ = ToByteBuffer(batch);
          StartWrite(&out_);
          return false;
        })) {
    if (session_->Begin([this](const absl::Status& why) { Finish(ToGrpcStatus(why)); })) StartRead(&in_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return session_->EndWith(absl::OkStatus());
    // This object may be deleted as soon as a read or an answer is under way.
    session_
        ->Handle(FromByteBuffer(in_),
                 [this] {
                   in_ = grpc::ByteBuffer();
                   StartRead(&in_);
                 })
        .IgnoreError();
  }
  void OnWriteDone(bool ok) override {
    // Answers count as unread until their memory is free.
    out_.Clear();
    if (ok) {
      session_->writer().Written();
    } else {
      session_->EndWith(absl::OkStatus());
    }
  }
  void OnCancel() override { session_->EndWith(absl::CancelledError("the client has gone")); }
  void OnDone() override {
    session_->Gone();
    delete this;
  }

  const std::shared_ptr<StreamSession> session_;
  grpc::ByteBuffer in_, out_;
};

class Server : public StreamServer, public v1::Stream::WithRawCallbackMethod_Calls<v1::Stream::Service> {
 public:
  Server(StreamHandler handler, std::optional<PlainSockets> plain_sockets)
      : plain_sockets_(plain_sockets),
        sessions_(std::make_shared<StreamSessions>(std::move(handler))),
        links_(std::make_shared<Links>()) {}
  ~Server() override { CloseLinks(); }

  grpc::Service* service() override { return this; }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Calls(grpc::CallbackServerContext* context) override {
    if (plain_sockets_.has_value()) context->AddInitialMetadata(kPlainSocketsKey, "1");
    return new Reactor(sessions_);
  }

  void Serve(int socket) override {
    auto link = std::make_shared<SocketLink>(socket);
    auto session =
        std::make_shared<StreamSession>(sessions_, [link](Slices batch) { return link->Write(std::move(batch)); });
    if (!links_->Add(link, session, most_unproven())) return;
    const bool begun = session->Begin([link](const absl::Status& why) {
      if (why.ok()) return link->Close();
      Slices last;
      AppendRecord(EndRecord(why), &last);
      link->Finish(std::move(last));
    });
    if (!begun) return links_->Remove(link);
    link->Start({.batch =
                     [session](const Slices& batch, const std::function<void()>& read_on) {
                       // A client that has been told why its stream ends is heard, and closes the connection when it
                       // has read that. If this end closed it first, the reason might never arrive.
                       if (session->ended() || !session->Handle(batch, read_on).ok()) read_on();
                       return absl::OkStatus();
                     },
                 .written = [session] { session->writer().Written(); },
                 .ended =
                     [session, link, links = links_](const absl::Status&) {
                       session->Gone();
                       links->Remove(link);
                     }});
  }

  void CloseUnproven() override { links_->CloseUnproven(0); }
  void Refuse() override { sessions_->Refuse(); }

  void Shutdown(absl::Duration grace) override {
    sessions_->Shutdown(grace);
    CloseLinks();
  }

 private:
  // Time in which a client reads why its stream has ended.
  static constexpr absl::Duration kLastWords = absl::Milliseconds(500);

  // Connections of plain sockets.
  struct Links {
    struct Link {
      std::shared_ptr<SocketLink> link;
      std::shared_ptr<StreamSession> session;
      bool closes = false;  // has been closed, and ends when a thread is free to see it

      bool proven() const { return session->proven(); }
    };

    // Makes room and adds a link. False: too many that have been closed have not ended yet.
    bool Add(std::shared_ptr<SocketLink> link, std::shared_ptr<StreamSession> session, size_t most_unproven) {
      CloseUnproven(most_unproven - 1);
      MutexLock lock(&mu);
      const auto unproven = std::count_if(all.begin(), all.end(), [](const Link& each) { return !each.proven(); });
      if (static_cast<size_t>(unproven) >= 2 * most_unproven) return false;
      all.push_back({.link = std::move(link), .session = std::move(session)});
      return true;
    }
    void Remove(const std::shared_ptr<SocketLink>& link) {
      MutexLock lock(&mu);
      all.remove_if([&link](const Link& each) { return each.link == link; });
      fewer.SignalAll();
    }
    // Closes the oldest of those through which no call has succeeded, but for so many.
    void CloseUnproven(size_t but) {
      std::vector<std::shared_ptr<SocketLink>> closed;
      {
        MutexLock lock(&mu);
        std::vector<Link*> unproven;
        for (Link& each : all) {
          if (!each.proven() && !each.closes) unproven.push_back(&each);
        }
        for (size_t i = 0; i + but < unproven.size(); ++i) {
          unproven[i]->closes = true;
          closed.push_back(unproven[i]->link);
        }
      }
      for (const std::shared_ptr<SocketLink>& link : closed) link->Close();
    }

    Mutex mu;
    CondVar fewer;
    std::list<Link> all ABSL_GUARDED_BY(mu);  // in the order in which they have come
  };

  size_t most_unproven() const { return plain_sockets_.has_value() ? plain_sockets_->most_unproven : 1; }

  // Waits until the clients, which have been told why, have closed their ends, and closes those that are left. Returns
  // when no handler runs for any of them.
  void CloseLinks() {
    const absl::Time until = Clock::Real()->Now() + kLastWords;
    std::vector<std::shared_ptr<SocketLink>> left;
    {
      MutexLock lock(&links_->mu);
      while (!links_->all.empty() && Clock::Real()->Now() < until) {
        links_->fewer.WaitWithTimeout(&links_->mu, until - Clock::Real()->Now());
      }
      for (const Links::Link& each : links_->all) left.push_back(each.link);
    }
    for (const std::shared_ptr<SocketLink>& link : left) link->Close();
    MutexLock lock(&links_->mu);
    while (!links_->all.empty()) links_->fewer.Wait(&links_->mu);
  }

  const std::optional<PlainSockets> plain_sockets_;
  const std::shared_ptr<StreamSessions> sessions_;
  const std::shared_ptr<Links> links_;
};

}  // namespace

std::unique_ptr<StreamServer> StreamServer::Create(StreamHandler handler, std::optional<PlainSockets> plain_sockets) {
  return std::make_unique<Server>(std::move(handler), plain_sockets);
}

}  // namespace weir
