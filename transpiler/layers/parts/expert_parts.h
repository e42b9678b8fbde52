// Shared code of layers of experts: mmoe and ple.
#ifndef WEIR_TRANSPILER_LAYERS_PARTS_EXPERT_PARTS_H_
#define WEIR_TRANSPILER_LAYERS_PARTS_EXPERT_PARTS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transpiler/model/model_context.h"

namespace weir {

// Layers of an expert.
struct ExpertParts {
  absl::Span<const int64_t> sizes;
  v1::Activation activation = v1::IDENTITY;
  // nullptr: the default initializer.
  const v1::Initializer* weight = nullptr;
};

// Checks numbers of experts and tasks, by their fields, and the sizes of an expert's layers.
absl::Status CheckExperts(const ModelContext& ctx, const std::vector<std::pair<const char*, int>>& numbers,
                          absl::Span<const int64_t> sizes);

// Appends the layers "<layer>.<part>.0", "<layer>.<part>.1", ... of one expert and returns the name of its output.
absl::StatusOr<std::string> AppendExpert(ModelContext& ctx, const ExpertParts& expert, const std::string& input,
                                         const std::string& part);

// Appends the outputs [B, width] of experts as one variable "<layer>.<part>experts" [B, experts, width], and returns
// its name.
absl::StatusOr<std::string> JoinExperts(ModelContext& ctx, const std::vector<std::string>& outputs, int64_t width,
                                        const std::string& part);

// Appends `output` [B, width]: the experts, weighed by a gate that reads `input`. The gate's fc is "<layer>.<gate>".
absl::Status AppendGate(ModelContext& ctx, const std::string& input, const std::string& experts, int count,
                        const std::string& gate, const std::string& output);

}  // namespace weir

#endif  // WEIR_TRANSPILER_LAYERS_PARTS_EXPERT_PARTS_H_
