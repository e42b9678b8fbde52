// Geo mode: a channel that updates the trainer's own copy of the parameters and exchanges differences with the servers
// every k steps.
//
// It lies between a trainer's program and its servers. The gradients of every step are applied to the copy: to dense
// blocks with their optimizer, and to the rows of tables that this trainer has used, with theirs, by the optimize
// blocks that the trainer's program carries (transpiler/passes/keep_updates.h). An exchange pushes (copy - base) /
// trainers for every dense block and for every row touched since the last exchange. base is the servers' value when
// this trainer last pulled it, plus what it has pushed since; the servers add the differences. Then the exchange pulls
// the servers' values and adds what others have done: copy += servers - base. So the servers hold the initial values
// plus the sum of all differences, and the remainder of copy - base goes with the next exchanges.
//
// A row is fetched when it is first used, and again when it is used for the first time after an exchange that did not
// touch it. Rows of a table without updates (trainable: false) are fetched once and never sent. Optimizer state is the
// trainer's own and is neither exchanged nor saved. Threads as ParamChannel.
#ifndef WEIR_PSERVER_CHANNELS_GEO_CHANNEL_H_
#define WEIR_PSERVER_CHANNELS_GEO_CHANNEL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/param_channel.h"
#include "proto/program.pb.h"

namespace weir {

struct GeoOptions {
  // Programs of the trainer, made by the transpiler for geo or read from files.
  v1::ProgramDesc main;
  v1::ProgramDesc startup;
  int trainer_id = 0;
  // Number of steps this trainer did before, in the run that is resumed; schedules continue from there.
  int64_t first_step = 0;
  // Borrowed. `servers` must have joined.
  ParamChannel* servers = nullptr;
  ThreadPool* pool = nullptr;
};

class GeoChannel : public ParamChannel {
 public:
  // Creates the channel. InvalidArgument names what the programs lack.
  static absl::StatusOr<std::unique_ptr<GeoChannel>> Create(GeoOptions options);

  // Exchanges what is left. Afterwards reads return the servers' values, not the copy's. Requires: called once, after
  // the last step.
  virtual absl::Status Finish() = 0;

  // Returns the number of exchanges so far.
  virtual int64_t exchanges() const = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_GEO_CHANNEL_H_
