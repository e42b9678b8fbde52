// Adds variables and ops to one block of a program; shape rules describe the outputs. Equal calls produce equal bytes.
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
  // Continues block `block` of the program; creates block 0 if the program is empty. Borrows the program for the
  // builder's lifetime; only the builder may add variables to that block meanwhile.
  explicit ProgramBuilder(v1::ProgramDesc* program, int block = 0);

  // Adds a block inside `parent` and returns its index. This builder continues with its own block.
  int AddBlock(int parent);

  // Declares a variable. InvalidArgument without a name or with impossible dims (CheckDims), AlreadyExists if the name
  // is visible from this block. The pointer is valid as long as the variable exists.
  absl::StatusOr<v1::VarDesc*> AddVar(v1::VarDesc var);
  // Short forms of AddVar for data, with stop_gradient. AddIds declares IDS of `slots` slots, INT64 [-1, slots].
  absl::Status AddData(std::string_view name, absl::Span<const int64_t> dims, DType dtype = v1::FLOAT32);
  absl::Status AddIds(std::string_view name, int64_t slots);

  // Returns nullptr if the variable is not visible from this block.
  const v1::VarDesc* FindVar(std::string_view name) const;
  // Returns a variable of this block itself, not of its parents; nullptr if there is none.
  v1::VarDesc* MutableVar(std::string_view name);

  // Appends an op. Undeclared outputs are declared by the shape rule; declared ones must agree with it. Errors name the
  // op's place, slots, attributes and shapes; the program is then unchanged.
  absl::Status AddOp(v1::OpDesc op);
  // Appends an op with one output, in slot `slot`: the variable `out` (named by TempName if empty), whose name is
  // returned. Errors as AddOp.
  absl::StatusOr<std::string> AddOpOut(v1::OpDesc op, std::string_view slot = "Out", std::string_view out = "");

  // Returns "<prefix>.tmp_0", "<prefix>.tmp_1", ...: a name that is not visible from this block.
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
