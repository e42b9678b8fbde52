// Reads from a program which variables of a lane share memory.
//
// An op of type `share_buffers` (ops/share_buffers.cc) lists variables and a number for each: those with equal numbers
// use one buffer, one after the other. It is part of the program, so a program dumped, edited and given back keeps it,
// and executors obey it (framework/runtime/prepared_block.h).
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

// Buffer number by variable; empty if the block has no such op. Variables that the block does not declare are left out:
// an evaluation program has fewer than the training program it was cut from.
using SharedBuffers = std::map<std::string, int64_t, std::less<>>;

// Reads the shared buffers of a block. InvalidArgument names op and variables if sharing would change a result:
//   - a variable that outlives the step, holds no dense tensor, is shared by all lanes, belongs to a loss, or is
//     written by no op
//   - a variable read after another one of its buffer was written
//   - an op that reads one variable of a buffer and writes another, unless its in-place rule allows it
//   - a variable written into the buffer of an input of a gate op (send): the input is sent while the lane goes on, and
//     may not have been sent completely before the step ends
absl::StatusOr<SharedBuffers> ReadSharedBuffers(const v1::ProgramDesc& program, int block);

// Attribute of ops that can return a view of their input instead of a copy. The executor of the CPU sets it where that
// is safe (framework/runtime/view_ops.h); a program cannot set it.
inline constexpr std::string_view kByReference = "by_reference";

// Returns true for a lane op that has the attribute. Its one in-place rule names the output that becomes a view and the
// input viewed.
bool CanGiveViews(const OpDef& def);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_SHARED_BUFFERS_H_
