// Example files for tests of the rules that cut files, by their number of examples.
#ifndef WEIR_TESTS_TRAINER_DATA_EXAMPLE_FILES_OF_SIZE_H_
#define WEIR_TESTS_TRAINER_DATA_EXAMPLE_FILES_OF_SIZE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "trainer/data/data_file.h"
#include "trainer/data/example_file.h"

namespace weir {

// An example file of equal examples, in the blocks that the writer makes of them.
inline DataFile Examples(int64_t examples, int64_t bytes_each) {
  auto info = std::make_shared<ExampleFile>();
  info->place.push_back(64);
  info->first.push_back(0);
  const auto block = static_cast<int64_t>(ExampleFileWriter::kBlock);
  const int64_t in_block = (block + bytes_each - 1) / bytes_each;
  while (info->examples() < examples) {
    info->first.push_back(std::min(info->examples() + in_block, examples));
    info->place.push_back(64 + info->examples() * bytes_each);
  }
  DataFile file{.bytes = info->place.back() + 3000};
  file.examples = std::move(info);
  return file;
}

}  // namespace weir

#endif  // WEIR_TESTS_TRAINER_DATA_EXAMPLE_FILES_OF_SIZE_H_
