// Cost of each block of a plan to its server: bytes at rest and work per step. BALANCED_BYTES and BALANCED_LOAD place
// blocks by it.
#ifndef WEIR_TRANSPILER_PASSES_BLOCK_COSTS_H_
#define WEIR_TRANSPILER_PASSES_BLOCK_COSTS_H_

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "proto/program.pb.h"
#include "transpiler/dispatchers/dispatcher.h"

namespace weir {

// Returns one cost per block of main.plan(), in its order. `main`: the program of the single machine with its update
// ops, sliced (transpiler/passes/slice_variables.h). bytes: 4 per value, and the optimizer state that belongs to the
// block. load: wire bytes of all trainers in and out (a gradient up, values down; of rows the most that a step can
// name, with their ids), plus the registered cost of the parameter's OPTIMIZE ops in proportion. A function of the
// program alone, in integers, so that every process places alike.
std::vector<BlockCost> BlockCosts(const v1::ProgramDesc& main);

// Index of the look-ups by which a program reads its matrices. Borrows the program, which must not change meanwhile.
class IdReads {
 public:
  explicit IdReads(const v1::ProgramDesc& main);
  // Returns the number of rows of a parameter that one step of `batch_size` examples can name if a slot has one id:
  // batch size times the slots of the ids variables that look-ups read it by, each variable once; at most its number of
  // rows. Returns -1 if anything but a look-up by ids of the data reads the parameter.
  int64_t MostRows(const v1::VarDesc& parameter, int64_t batch_size) const;

 private:
  std::unordered_map<std::string_view, std::map<std::string_view, int64_t>>
      slots_;                                       // slots of ids variables, by parameter
  std::unordered_set<std::string_view> otherwise_;  // parameters read in another way
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_BLOCK_COSTS_H_
