// Error feedback: what gradients lose in a lossy format is added to the next gradient of the same elements
// (docs/wire.md). Thread-safe; two calls at once are of different elements.
//
// Dense blocks keep a residual for each element and node. Rows keep theirs in a table of fixed size, kResidualBytes for
// each table and node, whatever dict_size is: a row whose place another one takes loses its residual. Of the rows of
// one step that share a place the first takes it.
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
  // message_bytes: of values in one message of Save.
  explicit Residuals(size_t row_bytes = kResidualBytes, size_t message_bytes = size_t{4} << 20)
      : row_bytes_(row_bytes), message_bytes_(message_bytes) {}

  // values: elements [begin, begin + values.size()) of a block of `count`, which gain their residuals; out
  // (framework/wire/codecs.h) takes them encoded, and what it lost is kept. An element that is not finite keeps
  // nothing.
  void EncodeDense(const std::string& block, const LaneRange& node, int64_t count, int64_t begin,
                   absl::Span<float> values, v1::WireFormat format, char* out);
  // The same for rows [ids.size(), width], ids distinct and ascending by MixId. Of a step's ids with one place the
  // first has it: the others neither gain nor keep anything. So it does not matter how the ids of a step are dealt to
  // calls, on which threads and in which order, as long as each call is told the id `before` its first one in the step,
  // null for none.
  void EncodeRows(const std::string& table, const LaneRange& node, int width, absl::Span<const int64_t> ids,
                  const int64_t* before, absl::Span<float> values, v1::WireFormat format, char* out);

  // Gives out everything that is not zero, after so many steps, in messages of some MiB. No Encode meanwhile. The first
  // error of `take` ends it.
  absl::Status Save(int64_t step, const std::function<absl::Status(const v1::Residual&)>& take) const;
  // Takes over what Save has given out, in its order, if it belongs to `nodes`, in place of what was there, to go on at
  // `step`. Of another step rows are taken over: most have been in no step since; dense values are not: what they lost
  // has been sent. InvalidArgument: a message that contradicts itself.
  absl::Status Restore(const v1::Residual& saved, absl::Span<const LaneRange> nodes, int64_t step);

  // Memory that is taken.
  size_t bytes() const;

 private:
  static constexpr int kLocks = 64;
  using Key = std::pair<std::string, std::pair<int, int>>;  // name, begin and count of the node
  struct Dense {
    std::vector<float> left;
  };
  struct Rows {
    Rows(int width, size_t bytes);
    // Residual of the id in its place, zeroed when another one had it. The lock of its place is held.
    float* Of(int64_t id, size_t place);
    size_t Place(int64_t id) const;
    const int width;
    std::vector<int64_t> ids;
    std::vector<uint8_t> used;  // of the places: an id may have any value
    std::vector<float> left;
    std::unique_ptr<Mutex[]> locks;
  };
  Dense* DenseOf(const std::string& block, const LaneRange& node, int64_t count);
  Rows* RowsOf(const std::string& table, const LaneRange& node, int width);

  const size_t row_bytes_, message_bytes_;
  mutable Mutex mu_;  // of the maps; what they point to stays
  std::map<Key, std::unique_ptr<Dense>> dense_ ABSL_GUARDED_BY(mu_);
  std::map<Key, std::unique_ptr<Rows>> rows_ ABSL_GUARDED_BY(mu_);
};

// A file "residuals": messages as elements of a weir.v1.Residuals, one behind the other, of any size in all.
//
// One message as it stands there.
std::string ResidualElement(const v1::Residual& residual);

// Reads them as they come, in pieces that are cut anywhere.
class ResidualReader {
 public:
  // Takes a message, and the bytes it stands in. Good until it returns.
  using Take = std::function<absl::Status(const v1::Residual& residual, std::string_view element)>;
  explicit ResidualReader(Take take) : take_(std::move(take)) {}

  // DataLoss: no such bytes. Errors of `take` as they are.
  absl::Status Append(std::string_view bytes);
  // DataLoss: the bytes end within a message.
  absl::Status Finish() const;

 private:
  const Take take_;
  std::string rest_;  // the beginning of a message
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_RESIDUALS_H_
