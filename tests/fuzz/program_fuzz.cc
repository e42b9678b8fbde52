// Any bytes as a program file: the first byte says in which form. What can be read is verified, and what is right says
// the same again in program text.
#include <cstdlib>
#include <string>

#include "framework/graph/program_text.h"
#include "framework/graph/training_mode.h"
#include "framework/graph/verifier.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static const ScratchDirectory scratch("program");
  static constexpr const char* kEndings[] = {".program", ".textproto", ".json", ".pb"};
  FuzzInput input(data, size);
  const std::string name = std::string("fuzz") + kEndings[input.Byte() % 4];
  const auto program = ReadProgramFile(scratch.Write(name, input.Rest()));
  if (!program.ok() || !VerifyProgram(*program).ok()) return 0;
  (void)ModeOf(*program);
  const auto text = FormatProgram(*program, "text");
  if (!text.ok()) return 0;
  const auto again = ParseProgramText(*text, "again.program");
  if (!again.ok() || FormatProgram(*again, "text").value() != *text) std::abort();
  return 0;
}
