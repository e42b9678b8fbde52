// Any bytes as a checkpoint: length of the manifest (two bytes), the manifest without its first line, and shard 0. It
// is read as resuming does, as the tools do, and as exports of rows do.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "framework/base/stable_hash.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/shard.h"
#include "framework/checkpoint/table_reader.h"
#include "tests/fuzz/input.h"
#include "trainer/checkpoints/resume_check.h"

namespace weir {
namespace {

absl::Status Ignore(absl::Span<const int64_t>, absl::Span<const float>) { return absl::OkStatus(); }

// Loads the values that a job with the shapes of the golden checkpoint needs.
void Load(const std::string& directory, const v1::CheckpointManifest& manifest) {
  std::vector<float> values(16);
  LoadPlan plan;
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    for (const v1::DenseEntry& e : shard.dense()) {
      const size_t n = static_cast<size_t>(std::clamp<int64_t>(e.element_count(), 0, 16));
      plan.dense.push_back({.piece = {.variable = e.has_state_of() ? e.state_of() : e.variable(),
                                      .whole_dims = {e.whole_dims().begin(), e.whole_dims().end()},
                                      .element_begin = std::max<int64_t>(0, e.element_begin()),
                                      .state_name = e.state_name(),
                                      .scalar = e.scalar()},
                            .out = absl::MakeSpan(values).first(n)});
    }
    for (const v1::TableEntry& e : shard.tables()) {
      if (e.logical_shards() <= 0 || e.state_names_size() != e.state_widths_size()) continue;
      TableLayout layout{.table = e.table(), .width = e.width(), .logical_shards = e.logical_shards()};
      for (int i = 0; i < e.state_names_size(); ++i) layout.states.emplace_back(e.state_names(i), e.state_widths(i));
      plan.tables.push_back({.layout = layout, .wants = [](uint32_t shard) { return shard % 2 == 0; }, .add = Ignore});
    }
  }
  (void)LoadCheckpoint(directory, manifest, plan);
}

// A table and what changed in it since itself, which is nothing.
void ReadTables(const std::string& directory, const v1::CheckpointManifest& manifest) {
  for (const std::string& name : CheckpointVariables(manifest)) {
    const auto table = TableReader::Open(directory, manifest, name);
    if (!table.ok()) continue;
    // Ranges are as many as the shards at most, and each is read anew.
    if (table->layout().logical_shards > (1 << 16)) continue;
    const auto refuse = [](const TableChanges&) -> absl::Status { std::abort(); };
    (void)VisitChanges(*table, &*table, /*state=*/true, refuse);
    (void)VisitChanges(*table, nullptr, /*state=*/false, [](const TableChanges&) { return absl::OkStatus(); });
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static const ScratchDirectory scratch("checkpoint");
  const std::string& directory = scratch.path();
  if (size < 2) return 0;
  const size_t n = std::min<size_t>(size - 2, data[0] | data[1] << 8);
  const char* const bytes = reinterpret_cast<const char*>(data + 2);
  // With the checksum made right, so that what is behind it is reached.
  const std::string body(bytes, n);
  char head[64];
  std::snprintf(head, sizeof(head), "# weir checkpoint manifest, xxh3 %016llx\n",
                static_cast<unsigned long long>(StableHash(body)));
  scratch.Write("MANIFEST", head + body);
  scratch.Write("shard-00000", std::string_view(bytes + n, size - 2 - n));
  const auto manifest = ReadManifest(directory);
  if (!manifest.ok()) return 0;
  for (const v1::CheckpointShard& shard : manifest->shards()) {
    const auto reader = ShardReader::Open(directory, shard, /*check_sum=*/false);
    if (!reader.ok()) continue;
    for (int d = 0; d < shard.dense_size(); ++d) {
      std::vector<float> out(16);
      (void)(*reader)->ReadDense(d, 0, absl::MakeSpan(out));
    }
    for (int t = 0; t < shard.tables_size(); ++t) {
      (void)(*reader)->ReadTable(t, Ignore);
    }
  }
  v1::JobConfig job;
  v1::Plan plan;
  job.set_name(manifest->job());
  (void)CheckResumable(directory, *manifest, job, plan, {.description = "a: 1 bytes, xxh3 0000000000000000\n"});
  ReadTables(directory, *manifest);
  v1::CheckpointManifest unsummed = *manifest;
  for (v1::CheckpointShard& shard : *unsummed.mutable_shards()) {
    if (shard.file().name() != "shard-00000") continue;
    shard.mutable_file()->set_checksum(StableHash(std::string_view(bytes + n, size - 2 - n)));
  }
  Load(directory, unsummed);
  (void)CheckpointDigests(directory, unsummed);
  for (const std::string& name : CheckpointVariables(unsummed)) (void)ReadWhole(directory, unsummed, name, "");
  return 0;
}
