// Opens the uncompressed bytes of a plain, gzip or zstd file, or of what a command makes of a file. The counter
// "data.read" of the process has the bytes read from files, as they lie there.
#ifndef WEIR_TRAINER_FILES_OPEN_BYTES_H_
#define WEIR_TRAINER_FILES_OPEN_BYTES_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/files/byte_source.h"
#include "trainer/files/data_file.h"

namespace weir {

// Opens the file: a plain one from byte `begin` on, a sequential one from its start. `file` must outlive the source.
// Errors: NotFound, DataLoss. A file behind a command is opened by the first Read, whose errors are then also those of
// PipedCommand and MakeColumnText.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenBytes(const DataFile& file, int64_t begin);

// Detects the compression from the first bytes of a file, of which four suffice.
Compression CompressionOf(std::string_view begin);

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_OPEN_BYTES_H_
