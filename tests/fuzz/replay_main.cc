// Runs a libFuzzer target without libFuzzer: every seed, then so many changed ones by a fixed generator. What fails
// under --config=fuzz and becomes a seed is caught here from then on, with any compiler.
//
//   target --runs=N SEED_FILE_OR_DIRECTORY...
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::string Contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void Run(const std::string& input) {
  // A copy of exactly this size: a read past the end is seen under AddressSanitizer.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::string Changed(std::string input, const std::vector<std::string>& seeds, std::mt19937_64* random) {
  for (uint64_t changes = 1 + (*random)() % 4; changes > 0; --changes) {
    const uint64_t r = (*random)();
    const size_t at = input.empty() ? 0 : (r >> 8) % input.size();
    switch (r % 6) {
      case 0:
        if (!input.empty()) input[at] = static_cast<char>(r >> 32);
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << (r >> 32) % 8));
        break;
      case 2:
        input.resize(at);
        break;
      case 3:
        input.insert(at, static_cast<size_t>((r >> 32) % 20), static_cast<char>(r >> 40));
        break;
      case 4:
        input.erase(at, static_cast<size_t>((r >> 32) % 20));
        break;
      default: {
        const std::string& other = seeds[(r >> 32) % seeds.size()];
        if (!other.empty()) input.insert(at, other.substr((r >> 40) % other.size(), 64));
      }
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  long runs = 0;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--runs=", 0) == 0) {
      runs = std::atol(arg.c_str() + 7);
    } else if (std::filesystem::is_directory(arg)) {
      for (const auto& entry : std::filesystem::directory_iterator(arg)) files.push_back(entry.path());
    } else {
      files.push_back(arg);
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const auto& file : files) seeds.push_back(Contents(file));
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds\n");
    return 1;
  }
  for (const std::string& seed : seeds) Run(seed);
  std::mt19937_64 random(1);
  for (long i = 0; i < runs; ++i) Run(Changed(seeds[static_cast<size_t>(random() % seeds.size())], seeds, &random));
  std::printf("%zu seeds and %ld changed ones\n", seeds.size(), runs);
  return 0;
}
