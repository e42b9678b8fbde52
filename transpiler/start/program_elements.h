// Names of the elements of all parameters and variables of a single-machine program (framework/graph/elements.h), by
// the rules of its operators.
#ifndef WEIR_TRANSPILER_START_PROGRAM_ELEMENTS_H_
#define WEIR_TRANSPILER_START_PROGRAM_ELEMENTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "framework/graph/op_registry.h"
#include "proto/program.pb.h"

namespace weir {

class ProgramElements {
 public:
  struct Op {
    const v1::OpDesc* op = nullptr;
    const OpDef* def = nullptr;
    // OpDef.effect and zero_of_zero, or what the op says of itself.
    ElementEffect effect = ElementEffect::kMixed;
    bool zero_of_zero = false;
    // Variables, in the order of the op: inputs without those below, parameters and tables, outputs.
    std::vector<std::string> inputs, parameters, outputs;
  };
  // Reads the forward part of `main`, which is verified and must outlive this object. `data`: names of variables of the
  // data; others are known by their places.
  ProgramElements(const v1::ProgramDesc& main, const std::map<std::string, ElementAxes>& data);

  // In the order of the program.
  const std::vector<Op>& ops() const { return ops_; }
  // Dense parameters and tables, by name.
  const std::map<std::string, const v1::VarDesc*, std::less<>>& parameters() const { return parameters_; }
  // Returns the axes of a dense parameter, as many as its dims. Requires: it is one.
  const ElementAxes& Parameter(std::string_view name) const;
  // Returns the axes of a variable, without that of the batch. Requires: an op reads or writes it.
  const ElementAxes& Variable(std::string_view name) const;
  // Names that say no more than a place, since the operator has no rule for them: of its outputs, and of parameters. By
  // name: the operator's type and a hash of what it reads. Places mean the same in two programs only if these are
  // equal.
  struct Place {
    std::string type;
    uint64_t reads = 0;
  };
  const std::map<std::string, Place, std::less<>>& places() const { return places_; }
  // Variables of the data that an op reads.
  const std::set<std::string>& read_data() const { return read_data_; }
  const v1::VarDesc* Find(std::string_view name) const;

 private:
  class Context;
  void Add(const v1::OpDesc& op, const OpDef& def);

  std::map<std::string, const v1::VarDesc*, std::less<>> vars_;
  std::map<std::string, const v1::VarDesc*, std::less<>> parameters_;
  std::map<std::string, ElementAxes, std::less<>> axes_;
  std::map<std::string, Place, std::less<>> places_;
  std::set<std::string> read_data_;
  std::vector<Op> ops_;
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_START_PROGRAM_ELEMENTS_H_
