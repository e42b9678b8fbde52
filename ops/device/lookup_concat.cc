// lookup_concat and its gradient (ops/lookup_concat.cc): each look-up writes, and its gradient reads, columns of the
// joined matrix.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/lookup.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

// Slots behind those of the look-ups: X; for the gradient Out@GRAD.
constexpr int kDense = 3, kJoinedGrad = 3;

int64_t ColumnsOf(const LookupPiece& piece) { return OutWidth(piece.attrs, piece.slots, piece.width); }

// Checks that the inputs of look-up k fit together, and that its lanes have the given rows.
absl::Status CheckPiece(DeviceKernelContext& ctx, const LookupPiece& piece, int k, absl::Span<const int64_t> rows) {
  RETURN_IF_ERROR(CheckRowInputs(ctx, piece.attrs, piece.width, k));
  ASSIGN_OR_RETURN(const OutLayout out, LayOut(ctx, piece.attrs, piece.slots, piece.width, k));
  if (absl::MakeConstSpan(out.rows) == rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("Ids[", k, "] are of other numbers of examples"));
}

GroupRows ColumnsFrom(const LookupPiece& piece, int64_t columns, int64_t begin) {
  return {.stride = columns, .first = begin, .groups = BySlot(piece.attrs) ? piece.slots : 1};
}

// Copies the columns [begin, begin + size) of a matrix, for all lanes, from or to a matrix of these columns alone.
absl::Status CopyColumns(DeviceKernelContext& ctx, const DeviceTensor& whole, int64_t begin, int64_t size, float* piece,
                         bool into_whole) {
  const int64_t rows = whole.rows();
  return ForEach(ctx.runtime(), rows * size,
                 PieceAt{.whole = whole.data<float>(),
                         .piece = piece,
                         .stride = whole.width(),
                         .first = begin,
                         .length = size,
                         .into_whole = into_whole});
}

class LookupConcatKernel : public OpDeviceKernel {
 public:
  explicit LookupConcatKernel(LookupConcat pieces) : pieces_(std::move(pieces)), staged_(pieces_.lookups.size()) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    std::vector<int64_t> rows;
    rows.reserve(static_cast<size_t>(ctx.lanes));
    for (int lane = 0; lane < ctx.lanes; ++lane) rows.push_back(ctx.host_input<IdBatch>(lane, kIds).batch());
    int64_t columns = 0;
    for (const int piece : pieces_.order) {
      if (piece >= 0) {
        RETURN_IF_ERROR(CheckPiece(ctx, pieces_.lookups[static_cast<size_t>(piece)], piece, rows));
        columns += ColumnsOf(pieces_.lookups[static_cast<size_t>(piece)]);
        continue;
      }
      const DeviceTensor& x = ctx.input(kDense, -1 - piece);
      const std::string name = absl::StrCat("X[", -1 - piece, "]");
      RETURN_IF_ERROR(CheckRank(name, x, 2));
      if (x.lane_rows() != rows) {
        return absl::InvalidArgumentError(absl::StrCat(name, " is ", ShapeString(x.dims()), " in ", x.lanes(),
                                                       " lanes, of other numbers of examples than Ids[0]"));
      }
      columns += x.width();
    }
    RETURN_IF_ERROR(ctx.Resize(0, 2, rows, {columns}));
    const DeviceTensor& out = ctx.output(0);
    int64_t begin = 0;
    for (const int piece : pieces_.order) {
      if (piece < 0) {
        const DeviceTensor& x = ctx.input(kDense, -1 - piece);
        RETURN_IF_ERROR(CopyColumns(ctx, out, begin, x.width(), x.data<float>(), /*into_whole=*/true));
        begin += x.width();
        continue;
      }
      const LookupPiece& of = pieces_.lookups[static_cast<size_t>(piece)];
      RETURN_IF_ERROR(PoolInto(ctx, of.attrs, piece, of.width, ctx.input(kRows, piece).data<float>(),
                               PlacesOf(ctx, piece), &staged_[static_cast<size_t>(piece)], out.data<float>(),
                               ColumnsFrom(of, columns, begin)));
      begin += ColumnsOf(of);
    }
    return absl::OkStatus();
  }

 private:
  const LookupConcat pieces_;
  std::vector<DeviceLanding> staged_;  // one for each look-up
};

class LookupConcatGradKernel : public OpDeviceKernel {
 public:
  explicit LookupConcatGradKernel(LookupConcatGrad pieces)
      : pieces_(std::move(pieces)), gradients_(pieces_.lookups.size()) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& dout = ctx.input(kJoinedGrad);
    RETURN_IF_ERROR(CheckRank("Out@GRAD", dout, 2));
    const std::vector<int64_t> rows = dout.lane_rows();
    for (size_t k = 0; k < pieces_.lookups.size(); ++k) {
      const LookupPiece& piece = pieces_.lookups[k];
      RETURN_IF_ERROR(CheckPiece(ctx, piece, static_cast<int>(k), rows));
      RETURN_IF_ERROR(CheckColumns(dout, piece.begin, ColumnsOf(piece)));
      RETURN_IF_ERROR(gradients_[k].Run(ctx, piece.attrs, static_cast<int>(k), piece.width, dout,
                                        ColumnsFrom(piece, dout.width(), piece.begin)));
    }
    for (size_t j = 0; j < pieces_.dense_begins.size(); ++j) {
      const int64_t begin = pieces_.dense_begins[j], size = pieces_.dense_sizes[j];
      RETURN_IF_ERROR(CheckColumns(dout, begin, size));
      RETURN_IF_ERROR(ctx.Resize(1, 2, rows, {size}, static_cast<int>(j)));
      RETURN_IF_ERROR(CopyColumns(ctx, dout, begin, size, ctx.output(1, static_cast<int>(j)).data<float>(),
                                  /*into_whole=*/false));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status CheckColumns(const DeviceTensor& dout, int64_t begin, int64_t size) {
    if (begin >= 0 && size >= 0 && begin <= dout.width() && size <= dout.width() - begin) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(size, " columns from ", begin, " on; Out@GRAD is ", ShapeString(dout.dims())));
  }

  const LookupConcatGrad pieces_;
  std::vector<StepRowsGradient> gradients_;  // one for each look-up
};

REGISTER_DEVICE_KERNEL(lookup_concat,
                       [](const KernelInit& init) -> absl::StatusOr<std::unique_ptr<OpDeviceKernel>> {
                         ASSIGN_OR_RETURN(LookupConcat pieces, ReadLookupConcat(init));
                         return std::unique_ptr<OpDeviceKernel>(new LookupConcatKernel(std::move(pieces)));
                       },
                       {"Ids", "Index"});
REGISTER_DEVICE_KERNEL(lookup_concat_grad,
                       [](const KernelInit& init) -> absl::StatusOr<std::unique_ptr<OpDeviceKernel>> {
                         ASSIGN_OR_RETURN(LookupConcatGrad pieces, ReadLookupConcatGrad(init));
                         return std::unique_ptr<OpDeviceKernel>(new LookupConcatGradKernel(std::move(pieces)));
                       },
                       {"Ids", "Index"});

}  // namespace
}  // namespace device
}  // namespace weir
