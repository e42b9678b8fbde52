// Tools by which a layer or a loss adds names, shapes, parameters and operators to the program being built.
#ifndef WEIR_TRANSPILER_MODEL_MODEL_CONTEXT_H_
#define WEIR_TRANSPILER_MODEL_MODEL_CONTEXT_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "framework/graph/op_registry.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "transpiler/base/setting.h"

namespace weir {

struct Job;

// Returns the path of an element of a repeated field: "input[2]".
inline std::string ElementOf(std::string_view field, const absl::AlphaNum& index) {
  return absl::StrCat(absl::string_view(field.data(), field.size()), "[", index, "]");
}

// Program being built, shared by the contexts of all layers and losses.
struct ModelState {
  const Job* job = nullptr;
  std::vector<v1::VarDesc> schema;  // variables the data can give; declared in the program when first read
  v1::ProgramDesc program;
  std::map<std::string, std::string> id_spaces = {};  // as SharedIdSpaces returns it
  // Variables of the program by name; keys live in the descriptions. Code that adds a variable must add it here.
  std::unordered_map<std::string_view, const v1::VarDesc*> vars = {};
  std::set<std::string> tables_used;
};

class ModelContext {
 public:
  // `what`: "layer 'deep'"; `name`: name of the layer or loss. Borrows the state. `at`: the kind's message and place.
  ModelContext(ModelState* state, std::string what, std::string name, Setting at)
      : state_(state), what_(std::move(what)), name_(std::move(name)), at_(std::move(at)) {}

  // Returns the name of the layer, which is its output's name and the prefix of its parameters.
  const std::string& name() const { return name_; }
  const v1::JobConfig& job() const;
  // Loss.label_may_be_missing of the loss that is being built.
  bool label_may_be_missing() const { return label_may_be_missing_; }
  void set_label_may_be_missing(bool may) { label_may_be_missing_ = may; }

  // Returns InvalidArgument "job.textproto:14:3: layer 'deep': <field> <text>". For an element (ElementOf) the place is
  // the element's, and the text names the field alone.
  absl::Status Error(std::string_view field, std::string_view text) const;

  // Returns true for a variable that the data gives.
  bool IsOfData(const std::string& variable) const;
  // Returns the ids variable of the data whose id space the variable has: that of which it draws negatives, or itself.
  const std::string& IdSpaceOf(const std::string& ids) const;

  // Returns a copy of the description of the variable that a field names: a data variable or an earlier layer's output.
  // An unknown name is an error that proposes the nearest one.
  absl::StatusOr<v1::VarDesc> Input(std::string_view field, const std::string& variable);
  // Likewise; anything but a dense variable is an error.
  absl::StatusOr<v1::VarDesc> DenseInput(std::string_view field, const std::string& variable);
  // Returns the product of dims[1:], all of which must be known.
  absl::StatusOr<int64_t> FlatWidth(std::string_view field, const v1::VarDesc& var);

  // Refuses a job of which some lane has a batch of one example, for operators that compute across the examples of a
  // lane. `why`: what comes of it.
  absl::Status NeedSeveralExamples(std::string_view field, std::string_view why) const;

  // Adds parameter "<layer>.<suffix>", float32 and trainable, and returns its name. Sets the fans of a xavier
  // initializer.
  absl::StatusOr<std::string> Parameter(std::string_view suffix, absl::Span<const int64_t> dims,
                                        const v1::Initializer& initializer);
  // Returns the Table of the job; declares its variable on first use.
  absl::StatusOr<const v1::Table*> UseTable(std::string_view field, const std::string& table);

  // Appends an operator; declares its outputs with the shapes of its rule. Errors of the rule carry this layer's place.
  absl::Status Append(v1::OpDesc op);
  // Appends an operator and returns the description of the first output.
  absl::StatusOr<v1::VarDesc> AppendFor(v1::OpDesc op);

 private:
  absl::Status Declare(const v1::VarDesc& var);

  ModelState* const state_;
  const std::string what_;
  const std::string name_;
  const Setting at_;
  bool label_may_be_missing_ = false;
};

// Returns x [B, ...] as [B, K]: x itself, or a variable `name` into which it is reshaped.
absl::StatusOr<v1::VarDesc> Flatten(ModelContext& ctx, std::string_view field, const v1::VarDesc& x,
                                    const std::string& name);

// Appends name = activation(x). IDENTITY has no operator; calling with it is a programming error.
absl::Status AppendActivation(ModelContext& ctx, v1::Activation activation, const std::string& x,
                              const std::string& name);

}  // namespace weir

#endif  // WEIR_TRANSPILER_MODEL_MODEL_CONTEXT_H_
