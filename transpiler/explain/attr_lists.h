// Attributes of ops that are lists; empty if the op does not have them.
#ifndef WEIR_TRANSPILER_EXPLAIN_ATTR_LISTS_H_
#define WEIR_TRANSPILER_EXPLAIN_ATTR_LISTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/program.pb.h"
#include "transpiler/base/programs.h"

namespace weir {

inline std::vector<std::string> Strings(const v1::OpDesc& op, std::string_view name) {
  const v1::OpAttr* attr = FindAttr(op, name);
  return attr == nullptr ? std::vector<std::string>()
                         : std::vector<std::string>(attr->strings().v().begin(), attr->strings().v().end());
}

inline std::vector<int64_t> Ints(const v1::OpDesc& op, std::string_view name) {
  const v1::OpAttr* attr = FindAttr(op, name);
  return attr == nullptr ? std::vector<int64_t>()
                         : std::vector<int64_t>(attr->ints().v().begin(), attr->ints().v().end());
}

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_ATTR_LISTS_H_
