// concat, split, reshape, their gradients, and split_byref (files of the same names in ops/).
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/pieces.h"

namespace weir {
namespace device {
namespace {

// Copies between a whole tensor and its piece [begin, begin + size) along `axis`, of every lane.
absl::Status CopyPiece(DeviceKernelContext& ctx, const DeviceTensor& whole, int64_t axis, int64_t begin, int64_t size,
                       float* piece, bool into_whole) {
  const auto copy = [&](const Shape& dims, float* whole_at, float* piece_at) {
    const PieceLayout at(dims, axis, begin, size);
    return ForEach(ctx.runtime(), at.outer * at.length,
                   PieceAt{.whole = whole_at,
                           .piece = piece_at,
                           .stride = at.stride,
                           .first = at.first,
                           .length = at.length,
                           .into_whole = into_whole});
  };
  if (axis > 0) {
    // Rows of all lanes are one array.
    Shape dims = whole.dims();
    dims[0] = whole.rows();
    return copy(dims, whole.data<float>(), piece);
  }
  for (int l = 0; l < whole.lanes(); ++l) {
    RETURN_IF_ERROR(copy(whole.dims(l), whole.data<float>(l), piece + l * size * whole.width()));
  }
  return absl::OkStatus();
}

absl::Status CheckAxis(std::string_view slot, const DeviceTensor& x, int64_t given, int64_t* axis) {
  RETURN_IF_ERROR(CheckThere(slot, x));
  *axis = NormalAxis(given, static_cast<size_t>(x.rank()));
  if (*axis >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(slot.data(), slot.size()), " has dims ",
                                                 ShapeString(x.dims()), ", no axis ", given));
}

// Returns the size along `axis`; for the first axis the rows of a lane, which are equal in all lanes.
int64_t SizeAlong(const DeviceTensor& x, int64_t axis) {
  return axis == 0 ? x.rows(0) : x.row_dims()[static_cast<size_t>(axis - 1)];
}

// Resizes an output to x's lanes and dims, with `size` along `axis`.
absl::Status ResizePiece(DeviceKernelContext& ctx, int slot, int i, const DeviceTensor& x, int64_t axis, int64_t size) {
  std::vector<int64_t> rows = x.lane_rows();
  Shape row_dims(x.row_dims().begin(), x.row_dims().end());
  if (axis == 0) {
    rows.assign(rows.size(), size);
  } else {
    row_dims[static_cast<size_t>(axis - 1)] = size;
  }
  return ctx.Resize(slot, x.rank(), rows, row_dims, i);
}

class ConcatKernel : public OpDeviceKernel {
 public:
  explicit ConcatKernel(const KernelInit& init) : axis_(init.attrs.Int("axis")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& first = ctx.input(0);
    int64_t axis = 0;
    RETURN_IF_ERROR(CheckAxis("X[0]", first, axis_, &axis));
    int64_t sum = 0;
    for (int i = 0; i < ctx.input_count(0); ++i) {
      const DeviceTensor& x = ctx.input(0, i);
      RETURN_IF_ERROR(CheckThere(absl::StrCat("X[", i, "]"), x));
      const auto fits = [&] {
        if (x.rank() != first.rank() || x.lanes() != first.lanes()) return false;
        for (int l = 0; l < x.lanes(); ++l) {
          Shape want = first.dims(axis == 0 ? 0 : l);
          want[static_cast<size_t>(axis)] = SizeAlong(x, axis);
          if (x.dims(l) != want) return false;
        }
        return true;
      };
      if (!fits()) {
        return absl::InvalidArgumentError(absl::StrCat("X[", i, "] is ", ShapeString(x.dims()), " in ", x.lanes(),
                                                       " lanes, X[0] ", ShapeString(first.dims()), " in ",
                                                       first.lanes(), "; they may differ only along axis ", axis));
      }
      sum += SizeAlong(x, axis);
    }
    RETURN_IF_ERROR(ResizePiece(ctx, 0, 0, first, axis, sum));
    int64_t begin = 0;
    for (int i = 0; i < ctx.input_count(0); ++i) {
      const DeviceTensor& x = ctx.input(0, i);
      const int64_t size = SizeAlong(x, axis);
      RETURN_IF_ERROR(CopyPiece(ctx, ctx.output(0), axis, begin, size, x.data<float>(), /*into_whole=*/true));
      begin += size;
    }
    return absl::OkStatus();
  }

 private:
  const int64_t axis_;
};

// Kernel of split, with an Out per section, and of concat_grad, with the requested gradients only.
class CutKernel : public OpDeviceKernel {
 public:
  CutKernel(int64_t axis, std::vector<int64_t> sections, std::vector<int64_t> wanted, bool all)
      : axis_(axis), sections_(std::move(sections)), wanted_(std::move(wanted)), all_(all) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    int64_t axis = 0;
    RETURN_IF_ERROR(CheckAxis("what is cut", x, axis_, &axis));
    const int count = ctx.output_count(0);
    const int64_t whole = SizeAlong(x, axis);
    std::vector<int64_t> sections = sections_;
    if (sections.empty() && count > 0) sections.assign(static_cast<size_t>(count), whole / count);
    const bool even =
        axis > 0 || std::all_of(x.lane_rows().begin(), x.lane_rows().end(), [&](int64_t r) { return r == whole; });
    if (!even || std::accumulate(sections.begin(), sections.end(), int64_t{0}) != whole) {
      return absl::InvalidArgumentError(absl::StrCat("sections ", ShapeString(sections), " do not cut ",
                                                     ShapeString(x.dims()), " along axis ", axis));
    }
    for (int i = 0; i < count; ++i) {
      const size_t piece = static_cast<size_t>(all_ ? i : wanted_[static_cast<size_t>(i)]);
      const int64_t begin =
          std::accumulate(sections.begin(), sections.begin() + static_cast<int64_t>(piece), int64_t{0});
      RETURN_IF_ERROR(ResizePiece(ctx, 0, i, x, axis, sections[piece]));
      RETURN_IF_ERROR(
          CopyPiece(ctx, x, axis, begin, sections[piece], ctx.output(0, i).data<float>(), /*into_whole=*/false));
    }
    return absl::OkStatus();
  }

 private:
  const int64_t axis_;
  const std::vector<int64_t> sections_, wanted_;
  const bool all_;
};

absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeSplit(const KernelInit& init) {
  return std::unique_ptr<OpDeviceKernel>(new CutKernel(init.attrs.Int("axis"), init.attrs.Ints("sections"), {}, true));
}
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeConcatGrad(const KernelInit& init) {
  return std::unique_ptr<OpDeviceKernel>(
      new CutKernel(init.attrs.Int("axis"), init.attrs.Ints("sections"), init.attrs.Ints("wanted"), false));
}

// Joins dX from the pieces that have gradients; the others are 0.
class SplitGradKernel : public OpDeviceKernel {
 public:
  explicit SplitGradKernel(const KernelInit& init)
      : axis_(init.attrs.Int("axis")), sections_(init.attrs.Ints("sections")), present_(init.attrs.Ints("present")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& first = ctx.input(0);
    int64_t axis = 0;
    RETURN_IF_ERROR(CheckAxis("Out@GRAD[0]", first, axis_, &axis));
    const int64_t whole = std::accumulate(sections_.begin(), sections_.end(), int64_t{0});
    RETURN_IF_ERROR(ResizePiece(ctx, 0, 0, first, axis, whole));
    const DeviceTensor& dx = ctx.output(0);
    if (present_.size() < sections_.size()) {
      RETURN_IF_ERROR(
          ctx.runtime().Zero(DeviceQueue::kCompute, dx.raw(), static_cast<size_t>(dx.size()) * sizeof(float)));
    }
    for (size_t i = 0; i < present_.size(); ++i) {
      const DeviceTensor& piece = ctx.input(0, static_cast<int>(i));
      RETURN_IF_ERROR(CheckThere("Out@GRAD", piece));
      Shape want = dx.dims();
      want[static_cast<size_t>(axis)] = sections_[static_cast<size_t>(present_[i])];
      if (piece.dims() != want || piece.lanes() != dx.lanes() ||
          piece.size() * whole != dx.size() * want[static_cast<size_t>(axis)]) {
        return absl::InvalidArgumentError(
            absl::StrCat("Out@GRAD[", i, "] must be ", ShapeString(want), ", got ", ShapeString(piece.dims())));
      }
      const int64_t begin = std::accumulate(sections_.begin(), sections_.begin() + present_[i], int64_t{0});
      RETURN_IF_ERROR(
          CopyPiece(ctx, dx, axis, begin, want[static_cast<size_t>(axis)], piece.data<float>(), /*into_whole=*/true));
    }
    return absl::OkStatus();
  }

 private:
  const int64_t axis_;
  const std::vector<int64_t> sections_, present_;
};

absl::Status CopyAs(DeviceKernelContext& ctx, const DeviceTensor& from, int rank, const std::vector<int64_t>& rows,
                    const Shape& row_dims) {
  DeviceTensor& to = ctx.output(0);
  if (&to == &from) {
    to.Reshape(rank, rows, row_dims);
    return absl::OkStatus();
  }
  if (ctx.may_share) {
    to = from;
    to.Reshape(rank, rows, row_dims);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ctx.Resize(0, rank, rows, row_dims));
  if (from.size() == 0) return absl::OkStatus();
  return ctx.runtime().CopyWithin(DeviceQueue::kCompute, to.raw(), from.raw(),
                                  static_cast<size_t>(from.size()) * sizeof(float));
}

class ReshapeKernel : public OpDeviceKernel {
 public:
  explicit ReshapeKernel(const KernelInit& init) : shape_(init.attrs.Ints("shape")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckThere("X", x));
    const Shape row_dims(shape_.begin() + (shape_.empty() ? 0 : 1), shape_.end());
    int64_t width = 1;
    for (int64_t d : row_dims) width *= d;
    std::vector<int64_t> rows(static_cast<size_t>(x.lanes()), 1);
    for (int l = 0; l < x.lanes(); ++l) {
      int64_t& n = rows[static_cast<size_t>(l)];
      if (!shape_.empty()) n = shape_[0] != -1 ? shape_[0] : width > 0 ? x.size(l) / width : x.rows(l);
      if (n * width != x.size(l)) {
        return absl::InvalidArgumentError(
            absl::StrCat("X has dims ", ShapeString(x.dims(l)), ", which ", ShapeString(shape_), " cannot hold"));
      }
    }
    return CopyAs(ctx, x, static_cast<int>(shape_.size()), rows, row_dims);
  }

 private:
  const std::vector<int64_t> shape_;
};

// Inputs X (for its dims), Out@GRAD.
class ReshapeGradKernel : public OpDeviceKernel {
 public:
  explicit ReshapeGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    const DeviceTensor& dout = ctx.input(1);
    RETURN_IF_ERROR(CheckThere("X", x));
    RETURN_IF_ERROR(CheckThere("Out@GRAD", dout));
    bool fits = x.lanes() == dout.lanes();
    for (int l = 0; fits && l < x.lanes(); ++l) fits = x.size(l) == dout.size(l);
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("X has dims ", ShapeString(x.dims()), ", Out@GRAD ",
                                                     ShapeString(dout.dims()), "; they must hold the same elements"));
    }
    return CopyAs(ctx, dout, x.rank(), x.lane_rows(), Shape(x.row_dims().begin(), x.row_dims().end()));
  }
};

class SplitByrefKernel : public OpDeviceKernel {
 public:
  explicit SplitByrefKernel(const KernelInit& init) : sections_(init.attrs.Ints("sections")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    for (size_t i = 0; !x.initialized() && i < sections_.size(); ++i) ctx.output(0, static_cast<int>(i)).Clear();
    if (!x.initialized()) return absl::OkStatus();
    RETURN_IF_ERROR(CheckThere("X", x));
    const int64_t total = std::accumulate(sections_.begin(), sections_.end(), int64_t{0});
    int64_t begin = 0;
    for (int l = 0; l < x.lanes(); ++l) {
      if (x.size(l) != total) {
        return absl::InvalidArgumentError(
            absl::StrCat("sections hold ", total, " elements, X ", ShapeString(x.dims(l)), " has ", x.size(l)));
      }
    }
    for (size_t i = 0; i < sections_.size(); ++i) {
      const int64_t n = sections_[i];
      const bool whole_rows = x.width() > 0 && n % x.width() == 0;
      ctx.output(0, static_cast<int>(i)) =
          whole_rows && x.rank() > 0 ? x.View(begin, x.rank(), n / x.width(), x.row_dims()) : x.View(begin, 1, n, {});
      begin += n;
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<int64_t> sections_;
};

REGISTER_DEVICE_KERNEL(concat, MakeDeviceKernel<ConcatKernel>);
REGISTER_DEVICE_KERNEL(concat_grad, MakeConcatGrad);
REGISTER_DEVICE_KERNEL(split, MakeSplit);
REGISTER_DEVICE_KERNEL(split_grad, MakeDeviceKernel<SplitGradKernel>);
REGISTER_DEVICE_KERNEL(reshape, MakeDeviceKernel<ReshapeKernel>);
REGISTER_DEVICE_KERNEL(reshape_grad, MakeDeviceKernel<ReshapeGradKernel>);
REGISTER_DEVICE_KERNEL(split_byref, MakeDeviceKernel<SplitByrefKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
