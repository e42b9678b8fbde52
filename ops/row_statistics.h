// Mean and variance of the columns of a batch of rows, for batch_norm and dice.
#ifndef WEIR_OPS_ROW_STATISTICS_H_
#define WEIR_OPS_ROW_STATISTICS_H_

#include <cstdint>

namespace weir {

// sum [n] = sum over the rows of x [rows, n], in their order.
void SumColumns(int64_t rows, int64_t n, const float* x, float* sum);

// Sets mean and variance [n] of the columns of x [rows, n], the variance around the mean; 0 without rows.
void MeasureColumns(int64_t rows, int64_t n, const float* x, float* mean, float* variance);

float InverseDeviation(float variance, float epsilon);

}  // namespace weir

#endif  // WEIR_OPS_ROW_STATISTICS_H_
