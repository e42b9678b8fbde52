// Choice between the kinds of record sources.
#ifndef WEIR_TRAINER_FILES_OPEN_RECORDS_H_
#define WEIR_TRAINER_FILES_OPEN_RECORDS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/files/data_file.h"
#include "trainer/files/record_source.h"

namespace weir {

// Opens a source of the kind that `file` needs; `file` must outlive the source. Errors as LineSource::Open and
// IdxSource::Open.
absl::StatusOr<std::unique_ptr<RecordSource>> OpenRecords(const DataFile& file, const Segment& segment);

// Returns the name of the record at `offset` for messages: "data/train.tsv:17". Reads text up to there.
std::string RecordPlace(const DataFile& file, int64_t offset);

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_OPEN_RECORDS_H_
