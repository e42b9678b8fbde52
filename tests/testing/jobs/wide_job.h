// Jobs of any size for the transpiler: a tower of `layers` layers of 256 x 256, so 2 * layers parameters, each weight
// in up to eight blocks. Never trained.
#ifndef WEIR_TESTS_TESTING_JOBS_WIDE_JOB_H_
#define WEIR_TESTS_TESTING_JOBS_WIDE_JOB_H_

#include <string>

#include "absl/strings/str_cat.h"

namespace weir {

inline std::string WideJob(int layers, int servers, int trainers) {
  std::string sizes;
  for (int i = 0; i < layers; ++i) absl::StrAppend(&sizes, i == 0 ? "" : ", ", i + 1 == layers ? 1 : 256);
  int lanes = 8;
  while (lanes < trainers) lanes *= 2;
  return absl::StrCat(R"(name: "wide"
data { criteo { integers: 256 categoricals: 2 } batch_size: )",
                      lanes, R"( }
model {
  layer { name: "deep" mlp { input: "dense" sizes: [)",
                      sizes, R"(] } }
  loss { sigmoid_cross_entropy { logits: "deep" label: "label" } }
}
optimizer { adam {} }
distribute { split_method: BALANCED_LOAD servers: )",
                      servers, " trainers: ", trainers, " }\ntrain { lanes: ", lanes, " }\n");
}

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_JOBS_WIDE_JOB_H_
