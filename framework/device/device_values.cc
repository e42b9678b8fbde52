#include "framework/device/device_values.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Returns the tensor of one lane that a variable's device memory holds; nullptr for ids.
Tensor* ValuesOf(Variable* var) {
  if (SelectedRows* rows = std::get_if<SelectedRows>(var)) return &rows->values;
  return std::get_if<Tensor>(var);
}

// A value on the host, lane by lane.
struct HostValue {
  std::vector<int64_t> rows;
  std::vector<DeviceTransfers::Piece> pieces;
  Shape row_dims;
  int rank = -1;  // -1: no lane has a value
  DType dtype = v1::FLOAT32;

  bool any() const {
    return std::any_of(pieces.begin(), pieces.end(), [](const auto& piece) { return piece.bytes > 0; });
  }
};

// Reads the value of all lanes. `in_place`: pinned memory is copied from where it is.
absl::StatusOr<HostValue> ReadHost(const DeviceVariable& var, bool in_place) {
  const size_t lanes = var.host.size();
  HostValue value = {.rows = std::vector<int64_t>(lanes, 0), .pieces = std::vector<DeviceTransfers::Piece>(lanes)};
  for (size_t l = 0; l < lanes; ++l) {
    const Tensor* tensor = ValuesOf(var.host[l]);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("'", var.name, "' holds ids where a dense value is read"));
    }
    if (!tensor->initialized()) continue;
    const absl::Span<const int64_t> dims = tensor->dims();
    const absl::Span<const int64_t> row = dims.empty() ? dims : dims.subspan(1);
    const bool first = value.rank < 0;
    if (!first && (tensor->rank() != value.rank || row != absl::MakeConstSpan(value.row_dims) ||
                   tensor->dtype() != value.dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", var.name, "' is ", ShapeString(dims), " in lane ", l, ", unlike in a lane before it"));
    }
    value.rank = tensor->rank();
    value.dtype = tensor->dtype();
    value.row_dims.assign(row.begin(), row.end());
    value.rows[l] = dims.empty() ? 1 : dims[0];
    value.pieces[l] = {.data = tensor->raw(), .bytes = tensor->bytes()};
    if (in_place) value.pieces[l].pinned = tensor->pinned();
  }
  if (value.rank < 0 && var.kind == v1::SELECTED_ROWS) {
    value.rank = 2;
    value.row_dims = {var.width};
  }
  if (value.rank == 0 && std::find(value.rows.begin(), value.rows.end(), 0) != value.rows.end()) {
    return absl::InvalidArgumentError(absl::StrCat("'", var.name, "' is a scalar in some lanes and absent in others"));
  }
  return value;
}

}  // namespace

absl::Status DeviceValues::ToDevice(DeviceVariable* var) {
  if (var->on_device) return absl::OkStatus();
  CHECK(var->on_host) << var->name;
  RETURN_IF_ERROR(SubmitToDevice(var));
  var->on_device = true;
  return absl::OkStatus();
}

absl::Status DeviceValues::SubmitToDevice(DeviceVariable* var) {
  ASSIGN_OR_RETURN(const HostValue value, ReadHost(*var, var->one_writer && pinned_rows_));
  if (value.rank < 0) {
    var->device.Clear();
    return absl::OkStatus();
  }
  if (value.any() && !var->lasts) {
    ASSIGN_OR_RETURN(std::shared_ptr<DeviceBlock> block,
                     transfers_->Land(&var->landing, value.pieces, var->owner, var->name));
    var->device.Take(std::move(block), value.dtype, value.rank, value.rows, value.row_dims);
    rounded_->Forget(var->device.raw());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(
      var->device.Resize(transfers_->memory(), var->owner, value.dtype, value.rank, value.rows, value.row_dims));
  rounded_->Forget(var->device.raw());
  return transfers_->In(var->device.raw(), value.pieces, var->name);
}

absl::Status DeviceValues::StartToHost(DeviceVariable* var) {
  if (var->on_host || var->arrival != nullptr || !var->device.initialized()) return absl::OkStatus();
  const DeviceTensor& t = var->device;
  std::vector<DeviceTransfers::Piece> pieces;
  if (t.packed()) {
    pieces.push_back({.data = t.raw(), .bytes = static_cast<size_t>(t.size()) * DTypeSize(t.dtype())});
  } else {
    for (int l = 0; l < t.lanes(); ++l) {
      pieces.push_back({.data = t.raw(l), .bytes = static_cast<size_t>(t.size(l)) * DTypeSize(t.dtype())});
    }
  }
  ASSIGN_OR_RETURN(var->arrival, transfers_->Out(pieces, var->name));
  AddLeaving(var);
  return absl::OkStatus();
}

absl::Status DeviceValues::FinishToHost(DeviceVariable* var) {
  if (var->on_host) return absl::OkStatus();
  const DeviceTensor& t = var->device;
  const char* from = nullptr;
  if (var->arrival != nullptr) {
    ASSIGN_OR_RETURN(const void* const arrived, var->arrival->Wait());
    from = static_cast<const char*>(arrived);
  }
  for (size_t l = 0; l < var->host.size(); ++l) {
    if (var->kind != v1::SELECTED_ROWS && !std::holds_alternative<Tensor>(*var->host[l])) *var->host[l] = Tensor();
    Tensor* const tensor = ValuesOf(var->host[l]);
    CHECK(tensor != nullptr) << var->name;
    if (!t.initialized()) {
      tensor->Clear();
      continue;
    }
    const int lane = static_cast<int>(l);
    tensor->Resize(t.dtype(), t.dims(lane));
    if (tensor->bytes() > 0) std::memcpy(tensor->raw(), from, tensor->bytes());
    from += tensor->bytes();
  }
  var->arrival.reset();
  var->on_host = true;
  return absl::OkStatus();
}

absl::Status DeviceValues::ToHost(absl::Span<DeviceVariable* const> vars) {
  for (DeviceVariable* var : vars) RETURN_IF_ERROR(StartToHost(var));
  for (DeviceVariable* var : vars) RETURN_IF_ERROR(FinishToHost(var));
  return absl::OkStatus();
}

void DeviceValues::WrittenOnHost(DeviceVariable* var) {
  var->arrival.reset();
  var->on_device = false;
  var->on_host = true;
}

void DeviceValues::WrittenOnDevice(DeviceVariable* var) {
  var->arrival.reset();
  var->on_device = true;
  var->on_host = false;
  if (var->device.initialized()) rounded_->Forget(var->device.raw());
}

void DeviceValues::AddLeaving(DeviceVariable* var) {
  var->leaving = true;
  leaving_.push_back(var);
}

void DeviceValues::CopiedByKernel(absl::Span<DeviceVariable* const> vars) {
  for (DeviceVariable* var : vars) AddLeaving(var);
}

absl::Status DeviceValues::HoldForLeaving() {
  RETURN_IF_ERROR(transfers_->HoldForCopiesOut());
  for (DeviceVariable* left : leaving_) left->leaving = false;
  leaving_.clear();
  return absl::OkStatus();
}

absl::Status DeviceValues::BeforeWriting(absl::Span<DeviceVariable* const> vars) {
  const bool leaving = std::any_of(vars.begin(), vars.end(), [](const DeviceVariable* var) { return var->leaving; });
  return leaving ? HoldForLeaving() : absl::OkStatus();
}

absl::Status DeviceValues::EndRun() {
  RETURN_IF_ERROR(HoldForLeaving());
  transfers_->AfterCompute();
  return absl::OkStatus();
}

}  // namespace weir
