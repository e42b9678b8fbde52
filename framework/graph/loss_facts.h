// Declares what a loss takes and predicts, for code that must know it without building the loss.
//
// The file of a loss registers its facts together with its rule (transpiler/losses/loss.h). The checks of a job ask for
// those of a kind of loss, readers of data for those of an operator that computes one.
#ifndef WEIR_FRAMEWORK_GRAPH_LOSS_FACTS_H_
#define WEIR_FRAMEWORK_GRAPH_LOSS_FACTS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/program.pb.h"

namespace weir {

struct LossFacts {
  // Kind of its predictions, which says by what measures an evaluation judges them. nullopt: the rule sets it.
  std::optional<v1::LossDesc::Kind> kind = std::nullopt;
  // true: a prediction is several numbers that are no classes. An evaluation then has the loss alone.
  bool several_numbers = false;

  // Types of the operators that compute it, beside one of the name of the loss. A loss that is made of the operator of
  // another one does not name it: the data is held against the facts of the operator's own loss.
  std::vector<std::string> other_ops = {};

  // Numbers of the data that can be a label.
  enum class Labels {
    kAny,
    // From 0 to 1.
    kTwoClasses,
    // From 0 to 1: the label is a factor of the loss.
    kFactor,
    // Whole numbers from 0 on, below the width of the input `classes`.
    kClass,
    kNotNegative,
  };
  Labels labels = Labels::kAny;
  // Slot of the operator.
  std::string classes = {};
  // kNotNegative: name of such a label in messages, "count".
  std::string label_name = {};
  // true: it compares the examples of a batch with each other, and one example alone has no loss.
  bool across_examples = false;
  // true: without a label every example is a positive, and nothing but the loss judges predictions.
  bool label_is_optional = false;

  // A further variable that the loss takes as it is in the data, beside label and sample_weight.
  struct Number {
    std::string field;  // of the loss's message
    std::string slot;   // of the operator
    // true: an example that lacks it, or has one that is not above 0, is a bad line.
    bool above_zero = false;
  };
  std::vector<Number> numbers = {};
};

// Registers the facts of a kind of loss, the member of v1::Loss.kind or the full name of a message. Call before main.
void RegisterLossFacts(const std::string& kind, const LossFacts& facts);

// Returns the facts by the kind of a loss, or by the type of an operator that computes one. Null for others, and for
// losses that are not linked in.
const LossFacts* LossFactsOf(std::string_view name);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_LOSS_FACTS_H_
