// Shared code of layers made of fc.
#ifndef WEIR_TRANSPILER_LAYERS_PARTS_FC_PARTS_H_
#define WEIR_TRANSPILER_LAYERS_PARTS_FC_PARTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "transpiler/model/model_context.h"

namespace weir {

struct FcParts {
  // Field of the layer's message that names the inputs.
  std::string field = "input";
  std::vector<std::string> inputs = {};
  int64_t size = 0;
  v1::Activation activation = v1::IDENTITY;
  bool bias = true;
  // nullptr: the default initializer.
  const v1::Initializer* weight = nullptr;
  const v1::Initializer* bias_value = nullptr;
  // Part of the parameter names between the layer's name and the parameter's: "" or "0".
  std::string part = "";
  std::string output;
  // 2: the input is [B, T, K], and each of its B * T rows is a row of the product.
  int row_dims = 1;
};

// Appends output [B, size] = activation(sum over inputs of flat(input) * w + b). Parameters are "<layer>.<part>.w"
// ("w1", "w2" for further inputs) and "<layer>.<part>.b".
absl::Status AppendFc(ModelContext& ctx, const FcParts& parts);

// Default initializers: Xavier, uniform, for weights; 0 for biases.
const v1::Initializer& DefaultWeight();
const v1::Initializer& DefaultBias();

}  // namespace weir

#endif  // WEIR_TRANSPILER_LAYERS_PARTS_FC_PARTS_H_
