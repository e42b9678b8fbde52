// Patterns of names in a job: regular expressions (RE2) that match a whole name.
#ifndef WEIR_TRANSPILER_START_NAME_PATTERNS_H_
#define WEIR_TRANSPILER_START_NAME_PATTERNS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/repeated_field.h"
#include "re2/re2.h"

namespace weir {

// Returns a pattern that matches the name alone.
std::string QuotedName(std::string_view name);

// Not thread-safe: records which patterns have matched.
class NamePatterns {
 public:
  // Requires: each is a valid pattern (transpiler/job/check_start.h).
  static NamePatterns Of(const google::protobuf::RepeatedPtrField<std::string>& patterns);
  // Returns whether one of them matches, and records those that do.
  bool Matches(std::string_view name);
  // Likewise, without a record.
  bool Has(std::string_view name) const;
  // Returns the first that has matched nothing; "" if there is none.
  std::string Unused() const;
  bool empty() const { return patterns_.empty(); }

 private:
  struct Each {
    std::unique_ptr<const RE2> pattern;
    bool used = false;
  };
  std::vector<Each> patterns_;
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_START_NAME_PATTERNS_H_
