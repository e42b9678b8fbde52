// Variables of one block, by name. For lookups through enclosing blocks: ProgramIndex of framework/graph/infer.h.
#ifndef WEIR_FRAMEWORK_GRAPH_VAR_INDEX_H_
#define WEIR_FRAMEWORK_GRAPH_VAR_INDEX_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "absl/types/span.h"
#include "proto/program.pb.h"

namespace weir {

// Returns a variable of this very block; nullptr if there is none. Linear in the number of variables.
const v1::VarDesc* FindVar(const v1::BlockDesc& block, std::string_view name);
v1::VarDesc* FindVar(v1::BlockDesc* block, std::string_view name);

inline absl::Span<const int64_t> Dims(const v1::VarDesc& var) {
  return absl::MakeConstSpan(var.dims().data(), static_cast<size_t>(var.dims_size()));
}

// Index of the variables of one block by name, with the results of FindVar. Borrows the block; meanwhile names must not
// change and variables must not be removed. A variable that is added to the block must be passed to Add.
class VarIndex {
 public:
  explicit VarIndex(const v1::BlockDesc& block);
  // Returns nullptr if there is none.
  const v1::VarDesc* Find(std::string_view name) const {
    const auto found = vars_.find(name);
    return found == vars_.end() ? nullptr : found->second;
  }
  bool Contains(std::string_view name) const { return vars_.contains(name); }
  void Add(const v1::VarDesc& var) { vars_.emplace(var.name(), &var); }

 private:
  std::unordered_map<std::string_view, const v1::VarDesc*> vars_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_VAR_INDEX_H_
