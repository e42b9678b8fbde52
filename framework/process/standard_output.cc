#include "framework/process/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "framework/base/exit_code.h"

namespace weir {

int EndWithOutput(const char* program, int code) {
  // std::cout has no buffer of its own. A write that has failed earlier has left the mark that ferror reads, but no
  // reason.
  std::string why = " (a full disk, or a pipe whose reader is gone)";
  if (std::fflush(stdout) != 0) {
    why = std::string(": ") + std::strerror(errno);
  } else if (std::ferror(stdout) == 0) {
    return code;
  }
  std::fprintf(stderr, "%s: the standard output cannot be written%s; some of what was printed is missing\n", program,
               why.c_str());
  return code == kExitOk ? kExitFailure : code;
}

}  // namespace weir
