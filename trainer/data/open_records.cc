#include "trainer/data/open_records.h"

#include "absl/strings/str_cat.h"
#include "trainer/data/idx_source.h"
#include "trainer/data/line_source.h"

namespace weir {

absl::StatusOr<std::unique_ptr<RecordSource>> OpenRecords(const DataFile& file, const Segment& segment) {
  if (file.idx != nullptr) return IdxSource::Open(file, segment);
  return LineSource::Open(file, segment);
}

std::string RecordPlace(const DataFile& file, int64_t offset) {
  if (file.idx != nullptr) return absl::StrCat(file.name, ", example ", offset, " from 0");
  const absl::StatusOr<int64_t> number = LineNumber(file, offset);
  return number.ok() ? absl::StrCat(file.name, ":", *number) : absl::StrCat(file.name, ", byte ", offset);
}

}  // namespace weir
