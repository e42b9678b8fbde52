// Files that are not there, by their sizes, for tests of the rules that cut files into streams.
#ifndef WEIR_TESTS_TRAINER_DATA_SIZED_FILES_H_
#define WEIR_TESTS_TRAINER_DATA_SIZED_FILES_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/files/data_file.h"
#include "trainer/files/example_file.h"

namespace weir {

inline constexpr int64_t kMiB = int64_t{1} << 20;

inline DataFile Plain(int64_t bytes) { return {.path = "", .name = "", .bytes = bytes}; }
inline DataFile Packed(int64_t bytes) {
  return {.path = "", .name = "", .bytes = bytes, .compression = Compression::kGzip};
}

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
  DataFile file = Plain(info->place.back() + 3000);
  file.examples = std::move(info);
  return file;
}

// Returns "file:begin-end" of each segment, and "/modulus" behind those that are dealt.
inline std::vector<std::string> Text(const std::vector<Segment>& segments) {
  std::vector<std::string> text;
  for (const Segment& s : segments) {
    text.push_back(absl::StrCat(s.file, ":", s.begin, "-", s.end));
    if (s.modulus > 1) absl::StrAppend(&text.back(), "/", s.modulus);
  }
  return text;
}

}  // namespace weir

#endif  // WEIR_TESTS_TRAINER_DATA_SIZED_FILES_H_
