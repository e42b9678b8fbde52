// Variables and operators of norms: sum_of_squares, whole_norm, clip_by_norm.
#ifndef WEIR_TRANSPILER_CLIPS_NORM_VARS_H_
#define WEIR_TRANSPILER_CLIPS_NORM_VARS_H_

#include <string>

#include "framework/base/exact_sum.h"
#include "proto/program.pb.h"

namespace weir {

inline v1::VarDesc DenseVar(const std::string& name, v1::DType dtype, int64_t elements) {
  v1::VarDesc var;
  var.set_name(name);
  var.set_kind(v1::DENSE);
  var.set_dtype(dtype);
  var.add_dims(elements);
  return var;
}

// Variables for an exact sum, and for the norm computed from it.
inline v1::VarDesc SumOfSquaresVar(const std::string& name) { return DenseVar(name, v1::INT64, ExactSum::kWords); }
inline v1::VarDesc WholeNormVar(const std::string& name) { return DenseVar(name, v1::FLOAT64, 1); }

// Returns true for the ops of a norm or clip. For a table's gradient the server does their work itself
// (pserver/protocol/norm_cuts.h).
inline bool IsNormOp(const v1::OpDesc& op) {
  return op.type() == "sum_of_squares" || op.type() == "whole_norm" || op.type() == "clip_by_norm";
}

}  // namespace weir

#endif  // WEIR_TRANSPILER_CLIPS_NORM_VARS_H_
