// Any text as a program.
#include <cstdint>
#include <string>

#include "framework/graph/program_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)weir::ParseProgramText(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.program");
  return 0;
}
