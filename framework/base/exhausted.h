// Reports that the system has no more memory, threads or file descriptors. Without memory or threads
// it says what it could not have and exits with kExitFailure; its peers learn of it as of any process that dies. Going
// on is no choice: libraries would wait for ever for threads that they did not get.
#ifndef WEIR_FRAMEWORK_BASE_EXHAUSTED_H_
#define WEIR_FRAMEWORK_BASE_EXHAUSTED_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"

namespace weir {

// Starts a thread that runs `body` and is called `name`, of which the system shows 15 characters. Exits the process
// when it gets none.
std::thread StartThread(std::string name, std::function<void()> body);

// From now on the process exits when `new` gets no memory. Call it first in main. `program` for the message: "trainer".
void ExitWhenOutOfMemory(const char* program);

// Says what the process could not have, and what it has, and exits it.
[[noreturn]] void ExitExhausted(const char* what);

// Sees to it that the process may open `more` descriptors beside those that it has, raising its limit as far as it may.
// ResourceExhausted says who needs them: "3 connections to each of 400 trainers". Without it a server that cannot
// accept would leave its clients to blame the network.
absl::Status WantDescriptors(int64_t more, const std::string& what_for);

// "ulimit -n allows this process 1024".
std::string DescriptorLimitText();

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_EXHAUSTED_H_
