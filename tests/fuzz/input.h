// What targets of several parts cut their input into, and where they put what has to be a file.
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
  // 0 at the end.
  uint8_t Byte() {
    const std::string_view byte = Take(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }
  // Two bytes of length, little-endian, then so many bytes, or what is left.
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

// A directory of this process in memory, which goes with it.
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
  // Returns its path.
  std::string Write(const std::string& name, std::string_view bytes) const {
    const std::string file = path_ + "/" + name;
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file;
  }

 private:
  const std::string path_;
};

// The target's own, made at the first call and gone with the process. The log is silent from then on: what a target is
// fed would fill it.
inline const ScratchDirectory& QuietScratch(const std::string& name) {
  static const ScratchDirectory directory = [&] {
    FLAGS_minloglevel = google::GLOG_FATAL;
    return ScratchDirectory(name);
  }();
  return directory;
}

}  // namespace weir

#endif  // WEIR_TESTS_FUZZ_INPUT_H_
