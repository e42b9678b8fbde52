// Reads the ids of a data set as the job of a checkpoint does.
#ifndef WEIR_TOOLS_REPORTING_READ_SLOT_USES_H_
#define WEIR_TOOLS_REPORTING_READ_SLOT_USES_H_

#include <string>

#include "absl/status/statusor.h"
#include "framework/checkpoint/directory.h"
#include "tools/reporting/slot_uses.h"

namespace weir {

// `pattern`: of the files, relative to the working directory. FailedPrecondition: the checkpoint has no job that this
// build can read. Errors of reading as LaneReader::Next.
absl::StatusOr<SlotUsesByTable> ReadSlotUses(const NewestCheckpoint& checkpoint, const std::string& pattern);

}  // namespace weir

#endif  // WEIR_TOOLS_REPORTING_READ_SLOT_USES_H_
