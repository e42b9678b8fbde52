// Places where the optimize block of a parameter or table stops for norms of whole parameters: its whole_norm ops.
#ifndef WEIR_PSERVER_PROTOCOL_NORM_CUTS_H_
#define WEIR_PSERVER_PROTOCOL_NORM_CUTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/program.pb.h"

namespace weir {

// Adjacent whole_norm ops [begin, end). They are not run: the server collects their parts, and sets the norms when they
// are known.
struct NormCut {
  struct Norm {
    std::string name;
    std::string part;               // variable that holds this server's sum
    std::vector<std::string> outs;  // variables that receive the norm
  };
  int begin = 0;
  int end = 0;
  std::vector<Norm> norms;
};

// Returns the cuts in order; the i-th belongs to round i. InvalidArgument: a whole_norm with several parts or without a
// name, or one that no op precedes.
absl::StatusOr<std::vector<NormCut>> NormCutsOf(const v1::BlockDesc& optimize);

// Clip by norm of a table's gradient: sum_of_squares, whole_norm and clip_by_norm taken as one.
struct TableClip {
  std::string name;
  double max_norm = 0;
};
// Removes these three ops from the front of `ops`, the ops that follow the average of a table's gradient `grad`.
// Returns nullopt if they are not there; InvalidArgument if they do not fit together.
absl::StatusOr<std::optional<TableClip>> TakeTableClip(const std::string& grad, std::vector<const v1::OpDesc*>* ops);

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_NORM_CUTS_H_
