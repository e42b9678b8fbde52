// Grows one block of a program: variables, and ops whose outputs are described by their shape rules. Same calls, same
// bytes.
#ifndef WEIR_FRAMEWORK_GRAPH_BUILDER_H_
#define WEIR_FRAMEWORK_GRAPH_BUILDER_H_

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/graph/infer.h"
#include "proto/program.pb.h"

namespace weir {

class ProgramBuilder {
 public:
  // Continues block `block` of the program, making block 0 when the program is empty. Borrows the program for its own
  // life; nobody else adds variables to that block meanwhile.
  explicit ProgramBuilder(v1::ProgramDesc* program, int block = 0);

  // A new block inside `parent`; its index. This builder goes on with its own block.
  int AddBlock(int parent);

  // InvalidArgument without a name, AlreadyExists when it is visible here. The pointer lives as long as the variable.
  absl::StatusOr<v1::VarDesc*> AddVar(v1::VarDesc var);
  // Short forms.
  absl::Status AddData(std::string_view name, absl::Span<const int64_t> dims, DType dtype = v1::FLOAT32);
  absl::Status AddIds(std::string_view name, int64_t slots);

  // nullptr when it is not visible from this block.
  const v1::VarDesc* FindVar(std::string_view name) const;
  // Only a variable of this very block.
  v1::VarDesc* MutableVar(std::string_view name);

  // Appends an op. Outputs that are not declared are declared as the shape rule says; others must agree with it. Errors
  // name the op's place, slots, attributes and shapes; then nothing has changed.
  absl::Status AddOp(v1::OpDesc op);
  // An op with one output, named `out` (or by TempName when empty); returns that name.
  absl::StatusOr<std::string> AddOpOut(v1::OpDesc op, std::string_view slot = "Out", std::string_view out = "");

  // "<prefix>.tmp_0", "<prefix>.tmp_1", ...: a name that is not visible here.
  std::string TempName(std::string_view prefix);

  v1::BlockDesc* block() { return program_->mutable_blocks(block_); }
  v1::ProgramDesc* program() { return program_; }

 private:
  v1::ProgramDesc* const program_;
  const int block_;
  std::unordered_map<std::string_view, v1::VarDesc*> own_;  // keys live in the descriptions
  std::map<std::string, int, std::less<>> temps_;           // next number, by prefix
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_BUILDER_H_
