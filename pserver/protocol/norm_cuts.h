// Where the optimize block of a parameter or table stops for norms of whole parameters: its whole_norm ops.
#ifndef WEIR_PSERVER_PROTOCOL_NORM_CUTS_H_
#define WEIR_PSERVER_PROTOCOL_NORM_CUTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/program.pb.h"

namespace weir {

// whole_norm ops [begin, end) that stand together. They are not run: the server takes the parts, and sets the norms
// when they are known.
struct NormCut {
  struct Norm {
    std::string name;
    std::string part;               // variable with the server's sum
    std::vector<std::string> outs;  // variables that get the norm
  };
  int begin = 0;
  int end = 0;
  std::vector<Norm> norms;
};

// In order; the i-th is of round i. InvalidArgument: a whole_norm with several parts, or one in front of which nothing
// stands.
absl::StatusOr<std::vector<NormCut>> NormCutsOf(const v1::BlockDesc& optimize);

// A clip by norm of a table's gradient: what sum_of_squares, whole_norm and clip_by_norm say together.
struct TableClip {
  std::string name;
  double max_norm = 0;
};
// Takes the three ops from the front of `ops`, what is done to a table's gradient `grad` behind its average. Nothing
// when they are not there; InvalidArgument when they do not fit together.
absl::StatusOr<std::optional<TableClip>> TakeTableClip(const std::string& grad, std::vector<const v1::OpDesc*>* ops);

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_NORM_CUTS_H_
