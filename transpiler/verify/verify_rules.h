// Shared code of the rules of transpiler/verify/verify_plan.h, for verify_*.cc only: the form of errors, access to the
// fields of an op, the plan by name.
#ifndef WEIR_TRANSPILER_VERIFY_VERIFY_RULES_H_
#define WEIR_TRANSPILER_VERIFY_VERIFY_RULES_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "proto/plan.pb.h"
#include "proto/program.pb.h"
#include "transpiler/base/programs.h"

namespace weir {

// Returns the error of a rule: InvalidArgument that begins with the rule's name, which users look up.
template <typename... Text>
absl::Status Broken(const char* rule, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(rule, ": ", text...));
}
// Checks that something that must be there exactly once is; returns OK if `count` is 1. `what` and `name` say what was
// counted.
absl::Status Once(const char* rule, std::string_view what, const std::string& name, int count);

// Accessors for an op of a program that has passed VerifyProgram: the op is known, and its attributes have their types.

// Returns element i of a list of integers; `absent` if there is none.
int64_t IntAt(const v1::OpDesc& op, std::string_view name, int i, int64_t absent);
// Returns a bool attribute, with its registered default.
bool BoolOf(const v1::OpDesc& op, std::string_view name);
// Checks that attribute `sync` of an op is the plan's.
absl::Status CheckSync(const v1::OpDesc& op, const v1::Plan& plan);

inline absl::Span<const int64_t> DimsOf(const v1::PlacedBlock& block) {
  return absl::MakeConstSpan(block.dims().data(), static_cast<size_t>(block.dims_size()));
}

// Index of the plan by name. Borrows it.
struct PlanIndex {
  explicit PlanIndex(const v1::Plan& p) : plan(p) {
    for (const v1::PlacedBlock& block : plan.blocks()) {
      blocks.emplace(block.name(), &block);
      of_parameter[block.parameter()].push_back(&block);
    }
    for (const v1::PlacedTable& table : plan.tables()) tables.emplace(table.name(), &table);
    for (const v1::FetchedRows& fetched : plan.fetched_rows()) fetched_rows.emplace(fetched.parameter(), &fetched);
  }
  const v1::Plan& plan;
  std::unordered_map<std::string_view, const v1::PlacedBlock*> blocks;
  std::unordered_map<std::string_view, std::vector<const v1::PlacedBlock*>> of_parameter;
  std::unordered_map<std::string_view, const v1::PlacedTable*> tables;
  std::unordered_map<std::string_view, const v1::FetchedRows*> fetched_rows;
};

// Checks the rule `owned`, with indexes that the rules of a trainer and of a server already have. A missing plan counts
// as empty.
absl::Status CheckOwnership(const v1::ProgramDesc& main, const PlanIndex& index, const VarIndex& vars);

// Returns listen_and_serv, which only a server's program has; nullptr without it.
const v1::OpDesc* ListenOf(const v1::ProgramDesc& main);

// Update ops of the optimize blocks that a server serves, by the variable that they update.
using Updates = std::map<std::string, const v1::OpDesc*>;
// Checks the rule `updated_once` as far as the blocks alone allow, without the plan, and returns the updates.
absl::StatusOr<Updates> UpdatesOf(const v1::ProgramDesc& main, const v1::OpDesc& listen);

}  // namespace weir

#endif  // WEIR_TRANSPILER_VERIFY_VERIFY_RULES_H_
