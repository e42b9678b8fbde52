// Writers and readers of the variables of one block.
#ifndef WEIR_FRAMEWORK_GRAPH_DEF_USE_H_
#define WEIR_FRAMEWORK_GRAPH_DEF_USE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "proto/program.pb.h"

namespace weir {

// Places (indices of ops in their block) at which each variable is written and read. Copies names, so the block may
// change; a pass that rewrites ops in place keeps the index up to date with Add and Remove. Not thread-safe.
class DefUse {
 public:
  DefUse() = default;
  // Takes linear time.
  explicit DefUse(const v1::BlockDesc& block);

  // Return places in rising order, one for each time that an op names the variable; empty if none does. Valid until the
  // next change.
  absl::Span<const int> Writers(std::string_view var) const { return PlacesOf(writers_, var); }
  absl::Span<const int> Readers(std::string_view var) const { return PlacesOf(readers_, var); }

  bool IsWritten(std::string_view var) const { return !Writers(var).empty(); }
  bool IsNamed(std::string_view var) const { return IsWritten(var) || !Readers(var).empty(); }
  // Returns -1 if the variable is not written exactly once.
  int OnlyWriter(std::string_view var) const;

  // Record that the op stands at `place`, or no longer does.
  void Add(int place, const v1::OpDesc& op);
  void Remove(int place, const v1::OpDesc& op);

 private:
  using Places = absl::flat_hash_map<std::string, std::vector<int>>;
  static absl::Span<const int> PlacesOf(const Places& places, std::string_view var);

  Places writers_, readers_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_DEF_USE_H_
