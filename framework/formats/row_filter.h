// Choice of examples by their values (v1::RowRule).
#ifndef WEIR_FRAMEWORK_FORMATS_ROW_FILTER_H_
#define WEIR_FRAMEWORK_FORMATS_ROW_FILTER_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/formats/example.h"
#include "framework/formats/example_input.h"
#include "framework/formats/schema.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/columns.pb.h"

namespace weir {

using RowRules = google::protobuf::RepeatedPtrField<v1::RowRule>;

// Floats are compared as float32 (framework/formats/float_bound.h), ids exactly. Immutable; thread-safe.
class RowFilter {
 public:
  // `columns`: those of the parser. `path`: field of the rules, for `errors`: "train.where". InvalidArgument: an input
  // that does not exist or is learned, wrong settings, or a bound or value that float32 cannot tell from a neighbouring
  // whole number.
  static absl::StatusOr<RowFilter> Create(const std::vector<Column>& columns, const RowRules& rules,
                                          std::string_view path, const SettingErrors& errors);

  bool empty() const { return rules_.empty(); }
  // Returns true if every rule holds. Requires: the example has the columns given to Create.
  bool Keeps(const Example& example) const;

 private:
  struct Rule {
    ExampleInput input;
    uint64_t modulo = 0;  // 0: not set
    std::set<uint64_t> remainders;
    bool hashed = false;
    double from = 0, below = 0;             // for ids
    float from_float = 0, below_float = 0;  // for floats
    bool has_value = false;
    std::set<int64_t> ids;
    std::set<float> floats;
    bool invert = false;
  };
  static bool HoldsForId(const Rule& rule, int64_t id);
  static bool HoldsForFloat(const Rule& rule, float x);

  std::vector<Rule> rules_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_ROW_FILTER_H_
