// Transport of a trainer that has a server of its job inside: calls to that server stay in the process, all others go
// on to another transport.
#ifndef WEIR_PSERVER_INSIDE_OWN_SERVER_H_
#define WEIR_PSERVER_INSIDE_OWN_SERVER_H_

#include <memory>

#include "framework/base/thread_pool.h"
#include "pserver/protocol/transport.h"
#include "pserver/server/server_core.h"

namespace weir {

struct OwnServerOptions {
  // Index of the server in this process, and the server. Borrowed.
  int own = 0;
  ServerCore* core = nullptr;
  // Reaches the other servers; is never asked for server `own`. Borrowed.
  Transport* others = nullptr;
  // Runs the handlers of calls to the own server, so that Call returns at once and calls to other servers leave without
  // waiting for them (answers_inside is false). Borrowed. Requires: the pool has a worker.
  ThreadPool* pool = nullptr;
  // The own server holds no parameters: it answers inside Call, sooner than another thread would begin to.
  bool holds_nothing = false;
};

// Creates the transport. The borrowed objects must outlive it. Joins and heart-beats of the own server are answered
// inside Call, on the calling thread: they must not wait behind updates. A call to the own server has no timeout; the
// server answers when it can, or when the job fails.
//
// checks_payloads is that of `others`. Requires: the core takes requests of both kinds, so it was created with the
// same.
//
// The destructor waits until the pool has run all handlers of own calls.
std::unique_ptr<Transport> MakeOwnServerTransport(const OwnServerOptions& options);

}  // namespace weir

#endif  // WEIR_PSERVER_INSIDE_OWN_SERVER_H_
