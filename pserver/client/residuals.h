// Error feedback: what gradients lose in a lossy format is added to the next gradient of the same elements
// (docs/wire.md). Thread-safe; concurrent calls must concern different elements.
//
// Dense blocks keep one residual per element and node. Rows keep theirs in a hash table of fixed size, kResidualBytes
// per table and node whatever dict_size is: a row loses its residual when another row takes its place. Among the rows
// of one step that share a place, the first takes it.
#ifndef WEIR_PSERVER_CLIENT_RESIDUALS_H_
#define WEIR_PSERVER_CLIENT_RESIDUALS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/runtime/lane_tree.h"
#include "proto/residuals.pb.h"
#include "proto/table.pb.h"
#include "pserver/protocol/handshake.h"

namespace weir {

class Residuals {
 public:
  // message_bytes: bytes of values in one message of Save.
  explicit Residuals(size_t row_bytes = kResidualBytes, size_t message_bytes = size_t{4} << 20)
      : row_bytes_(row_bytes), message_bytes_(message_bytes) {}

  // Adds the residuals of elements [begin, begin + values.size()) of a block of `count` elements to `values`, encodes
  // the sums into `out` (framework/wire/codecs.h), and keeps what the encoding lost, which `values` holds on return. An
  // element that is not finite
  // keeps no residual. A residual beyond 2^-10 and beyond every element of its group in `values` is dropped: what
  // rounding takes from a gradient of 1e9 would count for more than the gradients of the next steps. A gradient whose
  // sum with its residual would not be finite is sent without it. Returns PushItem.exponents, "" for none.
  std::string EncodeDense(const std::string& block, const LaneRange& node, int64_t count, int64_t begin,
                          absl::Span<float> values, v1::WireFormat format, char* out);
  // Encodes rows [ids.size(), width] likewise. When several ids of one step share a place in the table, the first has
  // it; the others neither gain nor keep a residual. So the result does not depend on how the ids of a step are divided
  // among calls, nor on their threads and order, as long as `before` points to the id that precedes the call's first
  // one in the step (null for none). Requires: `ids` are distinct and ascending by MixId.
  std::string EncodeRows(const std::string& table, const LaneRange& node, int width, absl::Span<const int64_t> ids,
                         const int64_t* before, absl::Span<float> values, v1::WireFormat format, char* out);

  // End a step. Keep: it took effect, and what its encoding lost stays. Drop: it took none, and residuals become what
  // they were before it. Requires: no Encode call runs meanwhile; one of the two ends every step.
  void Keep();
  void Drop();

  // Values so far that were finite and beyond the range of WIRE_FLOAT16, their format.
  struct Large {
    int64_t count = 0;
    std::string first;  // block or table
  };
  Large large() const {
    MutexLock lock(&mu_);
    return large_;
  }

  // Returns the residuals of a block of `count` elements, zeros at first. Valid until Restore, or a call with another
  // `count`, replaces them.
  absl::Span<float> DenseValues(const std::string& block, const LaneRange& node, int64_t count) {
    return absl::MakeSpan(DenseOf(block, node, count)->left);
  }

  // Passes the residuals to `take` in messages of some MiB: all elements of dense blocks, and the rows that are not
  // zero. `step`: number of steps done. Stops at the first error of `take` and returns it. Requires, here and in
  // Restore: no Encode call runs meanwhile, and the last step was ended by Keep or Drop.
  absl::Status Save(int64_t step, const std::function<absl::Status(const v1::Residual&)>& take) const;
  // Replaces the present residuals with those that Save has given out, taken in Save's order, as far as they belong to
  // `nodes`. `step`: the step to go on at. If the message is of another step, rows are still restored (most have been
  // in no step since), dense values are not (their residuals have been sent). InvalidArgument: the message contradicts
  // itself.
  absl::Status Restore(const v1::Residual& saved, absl::Span<const LaneRange> nodes, int64_t step);

  // Returns the memory in use, in bytes.
  size_t bytes() const;

 private:
  static constexpr int kLocks = 64;
  using Key = std::pair<std::string, std::pair<int, int>>;  // name, begin and count of the node
  struct Dense {
    std::vector<float> left;
  };
  struct Rows {
    Rows(int width, size_t bytes);
    // Returns the residual of the id in its place, zeroed if another id had the place. The lock of the place is held.
    float* Of(int64_t id, size_t place);
    size_t Place(int64_t id) const;
    const int width;
    std::vector<int64_t> ids;
    std::vector<uint8_t> used;  // one per place; needed because an id may have any value
    std::vector<float> left;
    std::unique_ptr<Mutex[]> locks;
  };
  // Copies of residuals from before a step.
  struct DenseBefore {
    Dense* dense = nullptr;
    size_t begin = 0;
    std::vector<float> left;
  };
  struct RowsBefore {
    Rows* rows = nullptr;
    std::vector<size_t> places;
    std::vector<int64_t> ids;
    std::vector<uint8_t> used;
    std::vector<float> left;
  };
  // Returns memory for a RowsBefore, which an earlier step has used.
  RowsBefore TakeSpare();
  // Encodes `values` of a block or table and replaces them by what that lost. Returns PushItem.exponents.
  std::string EncodeAndSubtract(const std::string& name, absl::Span<float> values, size_t group, v1::WireFormat format,
                                char* out);
  Dense* DenseOf(const std::string& block, const LaneRange& node, int64_t count);
  Rows* RowsOf(const std::string& table, const LaneRange& node, int width);

  const size_t row_bytes_, message_bytes_;
  mutable Mutex mu_;  // guards the maps; the objects they point to stay
  std::map<Key, std::unique_ptr<Dense>> dense_ ABSL_GUARDED_BY(mu_);
  std::map<Key, std::unique_ptr<Rows>> rows_ ABSL_GUARDED_BY(mu_);
  std::vector<DenseBefore> dense_before_ ABSL_GUARDED_BY(mu_);
  std::vector<RowsBefore> rows_before_ ABSL_GUARDED_BY(mu_);
  std::vector<RowsBefore> spare_ ABSL_GUARDED_BY(mu_);
  Large large_ ABSL_GUARDED_BY(mu_);
};

// Format of the file "residuals": Residual messages as the elements of one weir.v1.Residuals, concatenated, of any
// total size.
//
// Returns one message in the form it has in that file.
std::string ResidualElement(const v1::Residual& residual);

// Parses such a file from pieces that are cut anywhere.
class ResidualReader {
 public:
  // Receives a message and its bytes in the file. Both are valid only during the call.
  using Take = std::function<absl::Status(const v1::Residual& residual, std::string_view element)>;
  explicit ResidualReader(Take take) : take_(std::move(take)) {}

  // Parses the next bytes. DataLoss: they are not part of such a file. Returns errors of `take` unchanged.
  absl::Status Append(std::string_view bytes);
  // Ends the file. DataLoss: the bytes end within a message.
  absl::Status Finish() const;

 private:
  const Take take_;
  std::string rest_;  // beginning of an incomplete message
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_RESIDUALS_H_
