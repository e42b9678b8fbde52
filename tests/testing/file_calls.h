// What this process asks of the file system, seen by a test, which may make a call fail: a test that links this has its
// own fsync, rename, renameat2, mkdir, unlinkat and write in front of those of the C library. For one test at a time;
// not for calls in flight when the hook is set or taken away.
#ifndef WEIR_TESTS_TESTING_FILE_CALLS_H_
#define WEIR_TESTS_TESTING_FILE_CALLS_H_

#include <functional>
#include <string>

namespace weir {

struct FileCall {
  std::string
      name;  // "fsync", "rename", "mkdir", "unlink", "write"; renameat2 is "exchange" when it exchanges, else "rename"
  std::string path;
  std::string to;  // of a rename
};

// The hook is asked before each call, from any thread, one at a time, and gives the errno that the call shall fail
// with, 0 to let it pass. It is taken away by the destructor.
class FileCallHook {
 public:
  explicit FileCallHook(std::function<int(const FileCall&)> hook);
  ~FileCallHook();
  FileCallHook(const FileCallHook&) = delete;
  FileCallHook& operator=(const FileCallHook&) = delete;
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_FILE_CALLS_H_
