// Export of table rows from checkpoints: as a row file (framework/checkpoint/row_file.h) or as arrays for NumPy.
#ifndef WEIR_TOOLS_EXPORT_ROWS_H_
#define WEIR_TOOLS_EXPORT_ROWS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/npz.h"
#include "proto/row_file.pb.h"

namespace weir {

struct RowExport {
  NewestCheckpoint now;
  // If set, exports only the rows that differ from this checkpoint, and the ids removed since; nullopt: all rows.
  std::optional<NewestCheckpoint> since;
  bool state = false;
};

// Writes <table>.ids [n] and <table>.values [n, width] in order of id; with `state` also <table>.state; with `since`
// also <table>.removed.
absl::Status ExportToNpz(const RowExport& what, const std::string& table, NpzWriter* npz);
// Writes a row file.
absl::StatusOr<v1::RowFile> ExportToRowFile(const RowExport& what, const std::string& table, const std::string& output);

// Reads every byte of a row file. If `output` is not empty, writes the rows there as ExportToNpz would.
absl::StatusOr<v1::RowFile> ReadRowFile(const std::string& path, const std::string& output);

}  // namespace weir

#endif  // WEIR_TOOLS_EXPORT_ROWS_H_
