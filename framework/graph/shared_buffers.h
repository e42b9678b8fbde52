// Which variables of a lane share memory, as a program says it.
//
// An op of type `share_buffers` (ops/share_buffers.cc) lists variables and a number for each: those with one number
// live in one buffer, one after the other. It stands in the program, so a program dumped, edited and given back keeps
// it, and framework/runtime/executor.h obeys it. Nothing else in the framework knows an operator by its name.
#ifndef WEIR_FRAMEWORK_GRAPH_SHARED_BUFFERS_H_
#define WEIR_FRAMEWORK_GRAPH_SHARED_BUFFERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/program.pb.h"

namespace weir {

struct OpDef;

inline constexpr std::string_view kShareBuffersOp = "share_buffers";

// Buffer by variable; empty when the block has no such op. Variables that the block does not declare are left out: an
// evaluation program has fewer than the training program it was cut from.
using SharedBuffers = std::map<std::string, int64_t, std::less<>>;

// InvalidArgument names op and variables when sharing would change a result:
//   - a variable that outlives the step, holds no dense tensor, is of the whole step, belongs to a loss, or is written
//   by nobody
//   - a variable read after another one of its buffer was written
//   - an op that reads one variable of a buffer and writes another, unless its in-place rule allows it
//   - a variable written into the buffer of one that a gate op (send) has been given: it leaves while the lane goes on,
//   and
//     may not have left before the step ends
absl::StatusOr<SharedBuffers> ReadSharedBuffers(const v1::ProgramDesc& program, int block);

// Attribute of ops that can give a view of what they read in the place of a copy. Executors set it, where that is safe
// (framework/runtime/executor.cc); a program cannot say it.
inline constexpr std::string_view kByReference = "by_reference";

// Is it an op of lanes that has the attribute? What becomes a view of what its one in-place rule says.
bool CanGiveViews(const OpDef& def);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_SHARED_BUFFERS_H_
