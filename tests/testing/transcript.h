// Transcripts: text files of calls and answers, which test a protocol and document it.
//
//   # A comment.
//   job trainers=2
//   join 0 host:0 => joins
//   exchange 0 stats gives=a wait=5s => waits
//   advance 5s
//     [exchange 0 stats gives=a wait=5s] not ready, misses 1
//
// A command is one line. Its answer stands beside it, or, where it is long or has several lines, below it, indented by
// two blanks. An answer that comes later stands below the command that has brought it about, with its call in brackets.
// With the environment variable WEIR_UPDATE set, `bazel run` of the test writes the answers into the file instead of
// comparing them (CONTRIBUTING.md).
#ifndef WEIR_TESTS_TESTING_TRANSCRIPT_H_
#define WEIR_TESTS_TESTING_TRANSCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace weir {

// One line of a transcript: a name, words, and options "key=value". A part in double quotes may have blanks. Each
// function takes what it returns out of the command; a command of which something is left is a mistake.
class Command {
 public:
  explicit Command(std::string_view line);

  const std::string& line() const { return line_; }
  const std::string& name() const { return name_; }

  // Returns the next word, or `otherwise` if there is none.
  std::string Word(const std::string& otherwise = "");
  int64_t Number(int64_t otherwise = 0);
  // Returns true if the word is among those left.
  bool Has(std::string_view word);
  // Return the value of an option, or `otherwise` if there is none. Times: "3s", "500ms".
  std::string Text(std::string_view key, const std::string& otherwise = "");
  int64_t Number(std::string_view key, int64_t otherwise);
  absl::Duration Time(std::string_view key, absl::Duration otherwise);
  // Returns the numbers of a list "0,2"; empty if there is none.
  std::vector<int64_t> Numbers(std::string_view key);
  // Returns true if the option is there, and leaves it.
  bool Sets(std::string_view key) const;

  // Returns what has not been taken.
  const std::vector<std::string>& rest() const { return rest_; }

 private:
  std::vector<std::string>::const_iterator Find(std::string_view key) const;

  std::string line_, name_;
  std::vector<std::string> rest_;
};

// Returns the time that the text says, as Command::Time; fails the test if it says none.
absl::Duration TimeOf(const std::string& text);
// Returns "ok", or the code and the message.
std::string Show(const absl::Status& status);

// Runs each command of the file, a path from the root of the tree, and compares what `run` returns to the answer in the
// file: lines without an end behind the last; "" is no answer.
void RunTranscript(const std::string& file, const std::function<std::string(Command&)>& run);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_TRANSCRIPT_H_
