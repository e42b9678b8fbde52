#include "transpiler/job/data_schema.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

class ErrorsOf : public SettingErrors {
 public:
  // `setting` is borrowed.
  explicit ErrorsOf(const Setting& setting) : setting_(setting) {}
  absl::Status Error(std::string_view field, std::string_view text) const override {
    return setting_.Error(field, text);
  }

 private:
  const Setting& setting_;
};

}  // namespace

absl::StatusOr<std::vector<v1::VarDesc>> DataSchema(const Setting& data) {
  ASSIGN_OR_RETURN(const Kind kind, KindOf(data, "reader"));
  const SchemaRule* const rule = FindDataSchema(kind.key);
  if (rule == nullptr) {
    return kind.setting.Error("", absl::StrCat("is no reader that is linked into this program; there are ",
                                               absl::StrJoin(DataFormatNames(), ", ")));
  }
  return (*rule)(kind.setting.message(), ErrorsOf(kind.setting));
}

}  // namespace weir
