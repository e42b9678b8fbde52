// Any bytes as a checkpoint: length of the manifest (two bytes), the manifest without its first line, and shard 0.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "framework/base/stable_hash.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/shard.h"

namespace {

void Write(const std::string& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static const std::string* const directory = [] {
    auto* path = new std::string("/dev/shm/weir-fuzz-" + std::to_string(getpid()) + "/step-000000000042");
    std::filesystem::create_directories(*path);
    return path;
  }();
  if (size < 2) return 0;
  const size_t n = std::min<size_t>(size - 2, data[0] | data[1] << 8);
  const char* const bytes = reinterpret_cast<const char*>(data + 2);
  // With the checksum made right, so that what is behind it is reached.
  const std::string body(bytes, n);
  char head[64];
  std::snprintf(head, sizeof(head), "# weir checkpoint manifest, xxh3 %016llx\n",
                static_cast<unsigned long long>(weir::StableHash(body)));
  Write(*directory + "/MANIFEST", head + body);
  Write(*directory + "/shard-00000", std::string(bytes + n, size - 2 - n));
  const auto manifest = ReadManifest(*directory);
  if (!manifest.ok()) return 0;
  for (const v1::CheckpointShard& shard : manifest->shards()) {
    const auto reader = ShardReader::Open(*directory, shard, /*check_sum=*/false);
    if (!reader.ok()) continue;
    for (int d = 0; d < shard.dense_size(); ++d) {
      std::vector<float> out(16);
      (void)(*reader)->ReadDense(d, 0, absl::MakeSpan(out));
    }
    for (int t = 0; t < shard.tables_size(); ++t) {
      (void)(*reader)->ReadTable(t,
                                 [](absl::Span<const int64_t>, absl::Span<const float>) { return absl::OkStatus(); });
    }
  }
  return 0;
}
