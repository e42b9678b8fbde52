// Stream in memory for what a program prints. For one thread.
#ifndef WEIR_TESTS_TESTING_PRINTED_LINES_H_
#define WEIR_TESTS_TESTING_PRINTED_LINES_H_

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace weir {

class PrintedLines {
 public:
  PrintedLines() : file_(open_memstream(&text_, &size_)) {}
  ~PrintedLines() {
    std::fclose(file_);
    std::free(text_);
  }
  PrintedLines(const PrintedLines&) = delete;
  PrintedLines& operator=(const PrintedLines&) = delete;

  // Borrowed; open until this object is destroyed.
  std::FILE* file() { return file_; }
  // Returns all that has been printed.
  std::string Text() {
    std::fflush(file_);
    return std::string(text_, size_);
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* const file_;
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_PRINTED_LINES_H_
