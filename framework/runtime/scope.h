// Named variables of a process that persist across steps: parameters, optimizer state. Pointers are valid as long as
// the scope. Not thread-safe: variables are created while programs are prepared, before anything runs.
#ifndef WEIR_FRAMEWORK_RUNTIME_SCOPE_H_
#define WEIR_FRAMEWORK_RUNTIME_SCOPE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "framework/tensor/tensor.h"

namespace weir {

class Scope {
 public:
  // Returns nullptr if there is none.
  Variable* Find(std::string_view name);
  const Variable* Find(std::string_view name) const;
  // Finds a variable or creates an empty one.
  Variable* FindOrCreate(std::string_view name);
  // Returns all variables, sorted by name.
  const std::map<std::string, std::unique_ptr<Variable>, std::less<>>& vars() const { return vars_; }

 private:
  std::map<std::string, std::unique_ptr<Variable>, std::less<>> vars_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_SCOPE_H_
