// What a layer or a loss builds with: names, shapes, parameters and operators of the program that grows.
#ifndef WEIR_TRANSPILER_MODEL_CONTEXT_H_
#define WEIR_TRANSPILER_MODEL_CONTEXT_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/graph/op_registry.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "transpiler/job.h"
#include "transpiler/setting.h"

namespace weir {

// The program being built, shared by the contexts of all layers and losses.
struct ModelState {
  const Job* job = nullptr;
  std::vector<v1::VarDesc> schema;  // variables the data can give; declared in the program when first read
  v1::ProgramDesc program;
  // Variables of the program by name; keys live in the descriptions. Whoever adds one puts it here.
  std::unordered_map<std::string_view, const v1::VarDesc*> vars = {};
  std::set<std::string> tables_used;
};

class ModelContext {
 public:
  // `what`: "layer 'deep'", `name`: of the layer or loss. Borrows the state. `at`: the kind's message and place.
  ModelContext(ModelState* state, std::string what, std::string name, Setting at)
      : state_(state), what_(std::move(what)), name_(std::move(name)), at_(std::move(at)) {}

  // Name of the layer: its output's name and what its parameters begin with.
  const std::string& name() const { return name_; }
  const v1::JobConfig& job() const { return state_->job->config; }

  // InvalidArgument "job.textproto:14:3: layer 'deep': <field> <text>".
  absl::Status Error(std::string_view field, std::string_view text) const;

  // The variable that a field names: of the data or an earlier layer's output. Unknown names are an error that proposes
  // the nearest one. The description is a copy.
  absl::StatusOr<v1::VarDesc> Input(std::string_view field, const std::string& variable);
  // The same; anything but a dense variable is an error.
  absl::StatusOr<v1::VarDesc> DenseInput(std::string_view field, const std::string& variable);
  // Product of dims[1:], all of which must be known.
  absl::StatusOr<int64_t> FlatWidth(std::string_view field, const v1::VarDesc& var);

  // "<layer>.<suffix>": float32, trainable. Fans of a xavier initializer are filled in. Returns the name.
  absl::StatusOr<std::string> Parameter(std::string_view suffix, absl::Span<const int64_t> dims,
                                        const v1::Initializer& initializer);
  // Declares the variable of a Table of the job on its first use and returns the table.
  absl::StatusOr<const v1::Table*> UseTable(std::string_view field, const std::string& table);

  // Appends an operator; its outputs are declared with the shapes of its rule. Errors of the rule carry this layer's
  // place.
  absl::Status Append(v1::OpDesc op);
  // Appends and gives the description of the first output.
  absl::StatusOr<v1::VarDesc> AppendFor(v1::OpDesc op);

 private:
  absl::Status Declare(const v1::VarDesc& var);

  ModelState* const state_;
  const std::string what_;
  const std::string name_;
  const Setting at_;
};

// x [B, ...] as [B, K]: itself, or reshaped into a variable of this name.
absl::StatusOr<v1::VarDesc> Flatten(ModelContext& ctx, std::string_view field, const v1::VarDesc& x,
                                    const std::string& name);

// name = activation(x). IDENTITY has no operator: calling with it is our own mistake.
absl::Status AppendActivation(ModelContext& ctx, v1::Activation activation, const std::string& x,
                              const std::string& name);

}  // namespace weir

#endif  // WEIR_TRANSPILER_MODEL_CONTEXT_H_
