// Geo: a trainer that updates a copy of its own, and exchanges differences with the servers every so many steps.
//
// Between a trainer's program and its servers. Gradients of every step go into the copy: dense blocks with their
// optimizer, and the rows of tables that this trainer has met, with theirs, updated by the optimize blocks that the
// trainer's program carries (transpiler/keep_updates.h). An exchange pushes, for every dense block and for every row
// touched since the last one, (copy - base) / trainers, where base is what the servers had when this trainer last heard
// of it plus what it has pushed since; the servers add that up. Then it pulls the servers' values and adds what others
// have done, copy += servers - base. So servers hold the initial values plus the sum of all differences, and what is
// left of copy - base goes with the next ones.
//
// A row is fetched when it is first met, and again when it is used for the first time after an exchange that did not
// touch it. Optimizer state is the trainer's own and is neither exchanged nor saved. Threads as ParamChannel.
#ifndef WEIR_PSERVER_EMBEDDED_GEO_CHANNEL_H_
#define WEIR_PSERVER_EMBEDDED_GEO_CHANNEL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/param_channel.h"
#include "proto/program.pb.h"

namespace weir {

struct GeoOptions {
  // The trainer's programs, made by the transpiler for geo or read from files.
  v1::ProgramDesc main;
  v1::ProgramDesc startup;
  int trainer_id = 0;
  // Steps that this trainer has done before, in the run that is resumed: schedules go on behind them.
  int64_t first_step = 0;
  // Borrowed. `servers`: joined.
  ParamChannel* servers = nullptr;
  ThreadPool* pool = nullptr;
};

class GeoChannel : public ParamChannel {
 public:
  // InvalidArgument names what the programs lack.
  static absl::StatusOr<std::unique_ptr<GeoChannel>> Create(GeoOptions options);

  // After the last step: exchanges what is left. From here on the servers' values are read, not the copy's.
  virtual absl::Status Finish() = 0;

  // Exchanges so far.
  virtual int64_t exchanges() const = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_EMBEDDED_GEO_CHANNEL_H_
