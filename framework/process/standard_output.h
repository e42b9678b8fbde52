// The end of a program that prints to its standard output.
#ifndef WEIR_FRAMEWORK_PROCESS_STANDARD_OUTPUT_H_
#define WEIR_FRAMEWORK_PROCESS_STANDARD_OUTPUT_H_

namespace weir {

// Flushes stdout, and returns the exit code of a program whose work has ended with `code`. If stdout has not taken
// everything that was printed, by stdio, std::cout or absl::PrintF, now or earlier (the disk is full, the descriptor is
// closed), says so on stderr, and returns kExitFailure in place of kExitOk. `program`: name in the message,
// "checkpoint". Every main returns through this function; nothing prints behind it.
int EndWithOutput(const char* program, int code);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_PROCESS_STANDARD_OUTPUT_H_
