// Helpers of fuzz targets: cut one input into several parts, and hold input that must be a file.
#ifndef WEIR_TESTS_FUZZ_INPUT_H_
#define WEIR_TESTS_FUZZ_INPUT_H_

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "glog/logging.h"

namespace weir {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  // Returns the next byte; 0 at the end.
  uint8_t Byte() {
    const std::string_view byte = Take(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }
  // Returns the next piece: two bytes of length, little-endian, then that many bytes, or the rest if it is shorter.
  std::string Piece() {
    const size_t low = Byte(), high = Byte();
    return std::string(Take(low | high << 8));
  }
  std::string Rest() { return std::string(Take(rest_.size())); }

 private:
  std::string_view Take(size_t n) {
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest_;
};

// A directory of this process in memory, removed by the destructor.
class ScratchDirectory {
 public:
  explicit ScratchDirectory(const std::string& name)
      : path_("/dev/shm/weir-fuzz-" + name + "-" + std::to_string(::getpid())) {
    Empty();
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  void Empty() const {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, std::string_view bytes) const {
    const std::string file = path_ + "/" + name;
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file;
  }

 private:
  const std::string path_;
};

// Returns the target's own directory, made at the first call and removed at exit. Also silences the log from then on,
// because fuzz input would fill it.
inline const ScratchDirectory& QuietScratch(const std::string& name) {
  static const ScratchDirectory directory = [&] {
    FLAGS_minloglevel = google::GLOG_FATAL;
    return ScratchDirectory(name);
  }();
  return directory;
}

}  // namespace weir

#endif  // WEIR_TESTS_FUZZ_INPUT_H_
