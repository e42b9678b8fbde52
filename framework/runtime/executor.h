// Runs one block of a program, step after step; looks up kernels and variables once.
//
// Persistable variables live in the Scope given and are shared by all lanes; so are outputs of kStep ops, unless their
// slot says per_lane. Every other variable exists once per lane, in memory of its own unless the program says that it
// shares (framework/graph/shared_buffers.h). kLane ops run lane by lane, lanes in parallel on the pool, and with more
// threads than lanes also those ops of a lane that are independent of one another, and the parts of one (OpDef.apart);
// a kGate op runs when the last lane has reached it; a kStep op waits for all lanes and all gates before it.
//
// Not thread-safe: one Run at a time.
#ifndef WEIR_FRAMEWORK_RUNTIME_EXECUTOR_H_
#define WEIR_FRAMEWORK_RUNTIME_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/memory_use.h"
#include "framework/runtime/scope.h"
#include "proto/program.pb.h"

namespace weir {

struct ExecutorOptions {
  int block = 0;
  // Lanes of this process; 1 for startup programs and server blocks.
  int lanes = 1;
  // Variables that must be readable after a run (memory of others may be reused or left out).
  std::vector<std::string> fetch = {};
};

class Executor {
 public:
  // Prepares a verified program; checks only its shared buffers. NotFound names an op without a kernel, or an undefined
  // variable. `scope` must outlive the executor; the program is copied.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(const v1::ProgramDesc& program, Scope* scope,
                                                          const ExecutorOptions& options);
  virtual ~Executor() = default;

  // Returns the variable of a lane, to be filled before Run (data) or read after it. nullptr if the program has no such
  // variable.
  virtual Variable* Find(int lane, std::string_view name) = 0;

  // Runs every op once. batch[lane] is the number of examples in that lane; 0 is allowed. Stops at the first error,
  // which names the op. ctx.rows, channel, pool and health are borrowed for the call. Requires: no other Run or RunOps
  // is under way; the data variables are filled.
  virtual absl::Status Run(const StepContext& ctx, absl::Span<const int64_t> batch) = 0;
  // Runs only ops [begin, end), which must not split a run of lane ops (CHECK-fails); variables keep their values from
  // earlier calls. Servers use it to stop between the ops of two updates for values from other servers; trainers use it
  // to replace the op that pulls rows by rows that were pulled ahead.
  virtual absl::Status RunOps(const StepContext& ctx, absl::Span<const int64_t> batch, int begin, int end) = 0;

  // Returns the memory of the runs so far. Requires: no Run is under way.
  virtual VariableBytes bytes() const = 0;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_EXECUTOR_H_
