// Forms of the bytes that the trainers of a job give each other.
#ifndef WEIR_PSERVER_MEMBER_EXCHANGED_H_
#define WEIR_PSERVER_MEMBER_EXCHANGED_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace weir {

// Newest post of any trainer under a key.
struct PostedWord {
  int by = -1;  // its trainer; -1: nobody has posted
  int64_t edition = -1;
  std::string text;
  // True if server 0 said in this answer that this trainer is the chief.
  bool chief = false;
};

// Posts of the trainers of a job (Client::Post, Posted, NewestWord). Thread-safe.
class PostBoard {
 public:
  virtual ~PostBoard() = default;
  virtual absl::Status Post(std::string_view key, std::string contribution, int64_t edition) = 0;
  virtual absl::StatusOr<std::string> Posted(std::string_view key, int trainer) = 0;
  // `above`: without its text if its edition is not larger.
  virtual absl::StatusOr<PostedWord> NewestWord(std::string_view key, int64_t above) = 0;
};

// Receives bytes of any size, piece by piece.
using TakeBytes = std::function<absl::Status(std::string_view bytes)>;

// Bytes of any size on their way to one other trainer. Not thread-safe.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // May wait for the reader, with the usual deadlines.
  virtual absl::Status Append(std::string_view bytes) = 0;
  virtual absl::Status Finish() = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_EXCHANGED_H_
