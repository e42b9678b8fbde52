// Any bytes as a row file. The first byte says how: as they are, or with the ends and the checksums made right around
// them, so that what is behind those is reached: length of the description (two bytes), the description, the chunks.
// A file that can be read is loaded into a table.
#include <memory>
#include <utility>

#include "framework/base/stable_hash.h"
#include "framework/checkpoint/row_file.h"
#include "glog/logging.h"
#include "proto/row_file.pb.h"
#include "pserver/params/load_rows.h"
#include "pserver/tables/sparse_table.h"
#include "tests/fuzz/input.h"

namespace weir {
namespace {

constexpr size_t kHead = 64;

std::string Made(const std::string& description, const std::string& chunks) {
  std::string file = "WEIRROWS\1";
  file.resize(kHead, '\0');
  file += chunks;
  v1::RowFile row_file;
  if (!row_file.ParseFromString(description)) return file + description;
  for (v1::RowFileChunk& chunk : *row_file.mutable_chunks()) {
    const uint64_t begin = static_cast<uint64_t>(chunk.offset()), bytes = static_cast<uint64_t>(chunk.bytes());
    if (begin <= file.size() && bytes <= file.size() - begin) chunk.set_checksum(StableHash(file.substr(begin, bytes)));
  }
  const std::string fixed = row_file.SerializeAsString();
  file += fixed;
  const uint64_t end[] = {fixed.size(), StableHash(fixed)};
  file.append(reinterpret_cast<const char*>(end), sizeof(end));
  return file + "WEIRROWE";
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  const ScratchDirectory& scratch = QuietScratch("rows");
  FuzzInput input(data, size);
  const bool as_is = input.Byte() % 2 == 0;
  std::string file;
  if (as_is) {
    file = input.Rest();
  } else {
    const std::string description = input.Piece();
    file = Made(description, input.Rest());
  }
  const std::string path = scratch.Write("rows", file);
  const auto reader = RowFileReader::Open(path);
  if (!reader.ok()) return 0;
  for (int i = 0; i < (*reader)->description().chunks_size(); ++i) (void)(*reader)->Read(i);
  auto table = SparseTable::Create({.name = "t",
                                    .width = 2,
                                    .logical_shards = 64,
                                    .shard_begin = 0,
                                    .shard_end = 32,
                                    .stripes = 4,
                                    .initializer = RowInitializer(v1::Initializer(), 1, "t")});
  CHECK(table.ok()) << table.status();
  (void)LoadRowFiles({path, path}, table->get());
  return 0;
}
