#include "trainer/files/data_file.h"

namespace weir {

bool DataFile::seekable() const {
  const bool labels_compressed = idx != nullptr && idx->labels != nullptr && idx->labels->sequential();
  return !sequential() && !labels_compressed;
}

int64_t DataFile::units() const {
  if (examples != nullptr) return examples->examples();
  return idx != nullptr ? idx->examples : bytes;
}

}  // namespace weir
