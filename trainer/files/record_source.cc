#include "trainer/files/record_source.h"

namespace weir {

int64_t RecordSource::Skip(int64_t records) {
  std::string_view record;
  int64_t offset;
  int64_t skipped = 0;
  while (skipped < records && Next(&record, &offset)) ++skipped;
  return skipped;
}

}  // namespace weir
