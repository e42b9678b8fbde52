// Hook on this process's file system calls, which lets a test observe them and make them fail. A test that links this
// library has its own fsync, rename, renameat2, mkdir, unlinkat, read and write in front of those of the C library. For
// one test at a time; the hook must not be set or removed while calls are in flight.
#ifndef WEIR_TESTS_TESTING_FILE_CALLS_H_
#define WEIR_TESTS_TESTING_FILE_CALLS_H_

#include <functional>
#include <string>

namespace weir {

struct FileCall {
  // "fsync", "rename", "mkdir", "unlink", "read" or "write"; renameat2 is "exchange" when it exchanges, else "rename".
  std::string name;
  std::string path;
  std::string to;  // of a rename
};

// Calls the hook before each file system call, from any thread, one at a time. The hook returns the errno that the call
// fails with, or 0 to let it pass. The destructor removes the hook.
class FileCallHook {
 public:
  explicit FileCallHook(std::function<int(const FileCall&)> hook);
  ~FileCallHook();
  FileCallHook(const FileCallHook&) = delete;
  FileCallHook& operator=(const FileCallHook&) = delete;
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_FILE_CALLS_H_
