// sequence_length: how many elements each sequence has that lookup_table makes of the same ids (ops/lookup.h)
//
//   Ids  [B, 1] ids
//   Out  [B, 1] f32   the ids of the example that are no padding, at most `sequence`
//   sequence  int, has_padding  bool = false, padding_id  int = 0
//
// No gradient.
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/lookup.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

class SequenceLengthKernel : public OpKernel {
 public:
  explicit SequenceLengthKernel(const KernelInit& init)
      : attrs_{.has_padding = init.attrs.Bool("has_padding"),
               .padding_id = init.attrs.Int("padding_id"),
               .sequence = init.attrs.Int("sequence")} {}
  absl::Status Run(KernelContext& ctx) override {
    const IdBatch& ids = std::get<IdBatch>(ctx.input_var(0));
    RETURN_IF_ERROR(CheckIds(ids, attrs_));
    Tensor* const out = ctx.output(0);
    out->Resize(v1::FLOAT32, {ids.batch(), 1});
    for (int64_t b = 0; b < ids.batch(); ++b) {
      const int64_t end = ids.offsets[b + 1];
      int64_t length = 0;
      for (int64_t i = SequenceBegin(ids, attrs_.selection(), ids.offsets[b], end); i < end; ++i) {
        length += !attrs_.has_padding || ids.values[i] != attrs_.padding_id;
      }
      out->data<float>()[b] = static_cast<float>(length);
    }
    return absl::OkStatus();
  }

 private:
  const LookupAttrs attrs_;
};

REGISTER_OP(sequence_length)
({.type = "sequence_length",
  .summary = "elements of the sequences that a look-up makes of these ids",
  .inputs = {{.name = "Ids", .kinds = {v1::IDS}}},
  .outputs = {{"Out"}},
  .attrs = {Required(IntAttr("sequence", 0)), BoolAttr("has_padding", false), IntAttr("padding_id", 0)},
  .shape = [](InferContext& ctx) -> absl::Status {
    const Shape ids = ctx.InputShape("Ids");
    if (ids.size() != 2 || ids[1] != 1)
      return ctx.Error(absl::StrCat("Ids must be [batch, 1], got ", ShapeString(ids)));
    const int64_t sequence = ctx.attrs().Int("sequence");
    if (sequence < 1 || sequence > kLongestSequence) {
      return ctx.Error(absl::StrCat("sequence must be in [1, ", kLongestSequence, "], got ", sequence));
    }
    ctx.SetOutput("Out", {ids[0], 1});
    return absl::OkStatus();
  },
  .cost = ElementwiseCost(1)});

REGISTER_KERNEL(sequence_length, MakeKernel<SequenceLengthKernel>);
// It reads ids.
REGISTER_HOST_OP(sequence_length);

}  // namespace
}  // namespace weir
