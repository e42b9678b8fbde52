// Functors of cin (ops/cin.cc): what is around its products of matrices. A row is a value d of an example b, number
// b * width + d, or with `dots` an example as a whole.
#ifndef WEIR_OPS_DEVICE_CIN_FUNCTORS_H_
#define WEIR_OPS_DEVICE_CIN_FUNCTORS_H_

#include <cstdint>

#include "framework/base/philox.h"

namespace weir {
namespace device {

// Vectors x [batch, vectors, width] and x0 [batch, fields, width].
struct CinVectors {
  int64_t vectors, fields, width;
  const float* x;
  const float* x0;

  WEIR_HOST_DEVICE int64_t OfX(int64_t b, int64_t i, int64_t d) const { return (b * vectors + i) * width + d; }
  WEIR_HOST_DEVICE int64_t OfX0(int64_t b, int64_t j, int64_t d) const { return (b * fields + j) * width + d; }
  // x_i . x_j of an example.
  WEIR_HOST_DEVICE float Dot(int64_t b, int64_t i, int64_t j) const {
    const float *const a = x + OfX(b, i, 0), *const c = x0 + OfX0(b, j, 0);
    float sum = 0;
    for (int64_t d = 0; d < width; ++d) sum += a[d] * c[d];
    return sum;
  }
};

// Makes terms[(r * count + i) * fields + j], that of row first_row + r, vector first_vector + i of x and vector j of
// x0.
struct CinTermsAt {
  CinVectors v;
  int64_t first_row, first_vector, count;
  bool dots;
  float* terms;
  WEIR_HOST_DEVICE void operator()(int64_t at) const {
    const int64_t j = at % v.fields, i = first_vector + at / v.fields % count;
    const int64_t row = first_row + at / v.fields / count;
    if (dots) {
      terms[at] = v.Dot(row, i, j);
    } else {
      const int64_t b = row / v.width, d = row - b * v.width;
      terms[at] = v.x[v.OfX(b, i, d)] * v.x0[v.OfX0(b, j, d)];
    }
  }
};

// Moves results between a matrix of rows of `outputs` and the variables that have the columns [first, first + count) of
// it: `values` [batch, count, width], or with `dots` [batch, count]. Other columns of a matrix are cleared.
struct CinColumns {
  int64_t outputs, first, count, width;
  bool dots;

  // Returns the place of a column of a row in `values`.
  WEIR_HOST_DEVICE int64_t At(int64_t row, int64_t column) const {
    if (dots) return row * count + column - first;
    const int64_t b = row / width, d = row - b * width;
    return (b * count + column - first) * width + d;
  }
};
// Copies element at = r * count + h from column first + h of row r of `matrix`, which is row first_row + r of all, to
// its place in `values`, which has all rows.
struct CinResultAt {
  CinColumns c;
  int64_t first_row;
  const float* matrix;
  float* values;
  WEIR_HOST_DEVICE void operator()(int64_t at) const {
    const int64_t row = at / c.count, h = at - row * c.count;
    values[c.At(first_row + row, c.first + h)] = matrix[row * c.outputs + c.first + h];
  }
};
// Makes element at = row * outputs + column of the matrix of all rows: from `values`, or 0 in other columns.
struct CinMatrixAt {
  CinColumns c;
  const float* values;
  float* matrix;
  WEIR_HOST_DEVICE void operator()(int64_t at) const {
    const int64_t row = at / c.outputs, column = at - row * c.outputs;
    const bool there = column >= c.first && column < c.first + c.count;
    matrix[at] = there ? values[c.At(row, column)] : 0.0f;
  }
};

// Elements of dX, or with `of_x0` of dX0, of examples from first on, from gradients dz of the terms of their rows.
struct CinVectorGradAt {
  CinVectors v;
  int64_t first;
  bool of_x0, dots, add;
  const float* dz;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t at) const {
    const int64_t own = of_x0 ? v.fields : v.vectors;
    const int64_t d = at % v.width, vector = at / v.width % own, b = at / v.width / own;
    const float* const row = dz + (dots ? b : b * v.width + d) * v.vectors * v.fields;
    float sum = 0;
    if (of_x0) {
      for (int64_t i = 0; i < v.vectors; ++i) sum += row[i * v.fields + vector] * v.x[v.OfX(first + b, i, d)];
    } else {
      for (int64_t j = 0; j < v.fields; ++j) sum += row[vector * v.fields + j] * v.x0[v.OfX0(first + b, j, d)];
    }
    float* const to = dx + first * own * v.width + at;
    *to = add ? *to + sum : sum;
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_CIN_FUNCTORS_H_
