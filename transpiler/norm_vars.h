// Variables and operators of norms: sum_of_squares, whole_norm, clip_by_norm.
#ifndef WEIR_TRANSPILER_NORM_VARS_H_
#define WEIR_TRANSPILER_NORM_VARS_H_

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

// An exact sum, and the norm that comes of it.
inline v1::VarDesc SumOfSquaresVar(const std::string& name) { return DenseVar(name, v1::INT64, ExactSum::kWords); }
inline v1::VarDesc WholeNormVar(const std::string& name) { return DenseVar(name, v1::FLOAT64, 1); }

// On a table's gradient the server itself does what they say (pserver/protocol/norm_cuts.h).
inline bool IsNormOp(const v1::OpDesc& op) {
  return op.type() == "sum_of_squares" || op.type() == "whole_norm" || op.type() == "clip_by_norm";
}

}  // namespace weir

#endif  // WEIR_TRANSPILER_NORM_VARS_H_
