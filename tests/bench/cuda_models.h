// Dense parts of recommender models, for cuda_bench: forward, backward and Adam as one program, whose data and
// embedding rows are persistent variables. tests/bench/cuda_torch.py has the same models.
#ifndef WEIR_TESTS_BENCH_CUDA_MODELS_H_
#define WEIR_TESTS_BENCH_CUDA_MODELS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/runtime/scope.h"
#include "framework/tensor/tensor.h"
#include "proto/program.pb.h"

namespace weir {

struct CudaModel {
  std::string name;
  int64_t batch = 0;
  v1::ProgramDesc program;
  // Shapes of the persistent variables.
  std::vector<std::pair<std::string, Shape>> lasting;
};

// 26 fields of width 16 and 13 dense values; factorisation machine; tower 400-400-400.
absl::StatusOr<CudaModel> DeepFm(int64_t batch);
// 26 fields of width 16; bottom 13-512-256-64-16 of 13 dense values; products of all pairs of the 27 vectors; top
// 512-256-1 of these products and the bottom's output.
absl::StatusOr<CudaModel> Dlrm(int64_t batch);

// Sets initial values, which depend only on names and positions.
void Fill(const CudaModel& model, Scope* scope);

}  // namespace weir

#endif  // WEIR_TESTS_BENCH_CUDA_MODELS_H_
