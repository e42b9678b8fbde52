// Reports that the system has no more memory, threads or file descriptors. Without memory or threads the process
// reports what it could not get and exits with kExitFailure; its peers notice that as the death of any process. It
// cannot continue: libraries would wait for ever for threads that they did not get.
#ifndef WEIR_FRAMEWORK_BASE_EXHAUSTED_H_
#define WEIR_FRAMEWORK_BASE_EXHAUSTED_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"

namespace weir {

// Starts a thread that runs `body`, named `name`, of which the system shows 15 characters. Exits the process if the
// system gives no thread.
std::thread StartThread(const std::string& name, std::function<void()> body);

// Makes the process exit if `new` gets no memory. Call it first in main. `program` is named in the message: "trainer".
void ExitWhenOutOfMemory(const char* program);

// Reports what the process could not get and what it has, and exits the process.
[[noreturn]] void ExitExhausted(const char* what);

// Number of descriptors that a process keeps for its files: connections of others must leave so many free.
inline constexpr int64_t kKeptDescriptors = 64;

// Raises the soft limit of descriptors to the hard one, for processes that others connect to: the soft limit, often
// 1024, is there for programs that use select(). Call it in main.
void RaiseDescriptorLimit();
// Sets the soft limit back to what it was before, for another program that this process starts. Allocates nothing and
// takes no lock: to be called between fork and exec.
void RestoreDescriptorLimit();

// Ensures that the process may open `more` descriptors beside those that it has, raising its limit as far as permitted.
// ResourceExhausted quotes `what_for`: "3 connections to each of 400 trainers". Without it a server that cannot accept
// would leave its clients to blame the network.
absl::Status WantDescriptors(int64_t more, const std::string& what_for);

// Returns "ulimit -n allows this process 1024".
std::string DescriptorLimitText();

// Returns " (ulimit -f allows this process files of 1048576 bytes)" for EFBIG, which a write to a larger file fails
// with; "" for other errors, or without a limit.
std::string FileSizeLimitText(int error);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_EXHAUSTED_H_
