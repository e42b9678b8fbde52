#include "ops/device/operands.h"

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"

namespace weir {
namespace device {

static_assert(kMostLanes == kMostDeviceLanes);

absl::Status CheckThere(std::string_view slot, const DeviceTensor& tensor, DType dtype) {
  if (!tensor.initialized()) return absl::InvalidArgumentError(absl::StrCat(Av(slot), " has no value"));
  if (tensor.dtype() != dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat(Av(slot), " must be ", v1::DType_Name(dtype), ", got ", v1::DType_Name(tensor.dtype())));
  }
  if (!tensor.packed())
    return absl::InvalidArgumentError(absl::StrCat(Av(slot), " is a view of a gradient, which is only sent"));
  return absl::OkStatus();
}

absl::Status CheckRank(std::string_view slot, const DeviceTensor& tensor, int rank) {
  RETURN_IF_ERROR(CheckThere(slot, tensor));
  if (tensor.rank() == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Av(slot), " must have ", rank, " dims, got ", ShapeString(tensor.dims())));
}

absl::Status CheckLike(std::string_view slot, const DeviceTensor& tensor, const DeviceTensor& like) {
  RETURN_IF_ERROR(CheckThere(slot, tensor));
  if (tensor.rank() == like.rank()) return CheckRows(slot, tensor, like, like.row_dims());
  return absl::InvalidArgumentError(
      absl::StrCat(Av(slot), " must be ", ShapeString(like.dims()), ", got ", ShapeString(tensor.dims())));
}

absl::Status CheckRows(std::string_view slot, const DeviceTensor& tensor, const DeviceTensor& like,
                       absl::Span<const int64_t> row_dims) {
  RETURN_IF_ERROR(CheckThere(slot, tensor));
  if (tensor.lane_rows() == like.lane_rows() && tensor.row_dims() == row_dims) return absl::OkStatus();
  Shape want = {like.rows(0)};
  want.insert(want.end(), row_dims.begin(), row_dims.end());
  return absl::InvalidArgumentError(absl::StrCat(Av(slot), " must be ", ShapeString(want), " in each of ", like.lanes(),
                                                 " lanes, got ", ShapeString(tensor.dims()), " in ", tensor.lanes()));
}

absl::Status CheckShared(std::string_view slot, const DeviceTensor& tensor, absl::Span<const int64_t> dims) {
  RETURN_IF_ERROR(CheckThere(slot, tensor));
  const Shape got = tensor.dims();
  if (tensor.lanes() == 1 && absl::MakeConstSpan(got) == dims) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Av(slot), " must be ", ShapeString(dims), " for all lanes, got ", ShapeString(got)));
}

LaneRows RowsOf(const DeviceTensor& tensor) {
  LaneRows rows{.lanes = tensor.lanes()};
  for (int l = 0; l < tensor.lanes(); ++l) rows.begin[l + 1] = rows.begin[l] + tensor.rows(l);
  return rows;
}

LaneRows ElementsOf(const DeviceTensor& tensor) {
  LaneRows rows = RowsOf(tensor);
  for (int l = 1; l <= tensor.lanes(); ++l) rows.begin[l] *= tensor.width();
  return rows;
}

}  // namespace device
}  // namespace weir
