#include "trainer/files/open_records.h"

#include "absl/strings/str_cat.h"
#include "trainer/files/example_file.h"
#include "trainer/files/idx_source.h"
#include "trainer/files/line_source.h"
#include "trainer/files/tf_record_source.h"

namespace weir {

absl::StatusOr<std::unique_ptr<RecordSource>> OpenRecords(const DataFile& file, const Segment& segment) {
  if (file.examples != nullptr) return std::make_unique<ExampleFileSource>(file, segment);
  if (file.idx != nullptr) return IdxSource::Open(file, segment);
  if (file.tf_record) return TfRecordSource::Open(file, segment);
  return LineSource::Open(file, segment);
}

std::string RecordPlace(const DataFile& file, int64_t offset) {
  if (file.idx != nullptr || file.examples != nullptr) return absl::StrCat(file.name, ", example ", offset, " from 0");
  if (file.tf_record) return absl::StrCat(file.name, ", record at byte ", offset);
  const absl::StatusOr<int64_t> number = LineNumber(file, offset);
  return number.ok() ? absl::StrCat(file.name, ":", *number) : absl::StrCat(file.name, ", byte ", offset);
}

}  // namespace weir
