#include "framework/formats/derived_rule.h"

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

class NothingRule : public DerivedRule {
 public:
  absl::Status Add(size_t slot, DerivedSlots* view) const override {
    view->Append(slot, 0);
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<ExampleInput> FindIds(const std::vector<Column>& columns, const std::string& name,
                                     const std::string& field, const std::string& way_out,
                                     const SettingErrors& errors) {
  ASSIGN_OR_RETURN(ExampleInput input, FindInput(columns, name, field, errors));
  if (input.ids) return input;
  return errors.Error(field, absl::StrCat("'", name, "' is a float, not ids; ", way_out));
}

absl::Status ExpectKnown(const ExampleInput& input, const std::string& field, const SettingErrors& errors) {
  if (!input.learned) return absl::OkStatus();
  return errors.Error(field,
                      absl::StrCat("'", input.name, "' is learned from the data itself, or made of what is; one ",
                                   "pass cannot learn of it: name what it is made of"));
}

DerivedRulePtr NoIds() { return std::make_unique<NothingRule>(); }

}  // namespace weir
