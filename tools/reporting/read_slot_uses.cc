#include "tools/reporting/read_slot_uses.h"

#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/status_macros.h"
#include "trainer/checkpoints/checkpointing.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/lane_reader.h"
#include "trainer/data/statistics.h"
#include "trainer/files/data_set.h"
#include "trainer/predict/parts.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

// Slots of one column that one table is read with.
struct Reader {
  SlotUses* uses = nullptr;
  size_t column = 0;
  std::vector<int> slots;  // of `uses`, by slot of the column
};

std::vector<Reader> ReadersOf(const Job& job, const std::vector<Column>& columns, SlotUsesByTable* tables) {
  std::vector<Reader> readers;
  std::set<std::pair<std::string, std::string>> seen;
  for (const v1::Layer& layer : job.config.model().layer()) {
    if (!layer.has_embedding()) continue;
    for (const std::string& ids : layer.embedding().ids()) {
      if (!seen.insert({layer.embedding().table(), ids}).second) continue;
      for (size_t c = 0; c < columns.size(); ++c) {
        if (columns[c].name != ids || columns[c].kind != v1::IDS) continue;
        Reader reader{.uses = &(*tables)[layer.embedding().table()], .column = c};
        for (int64_t at = 0; at < columns[c].width; ++at) {
          reader.slots.push_back(reader.uses->AddSlot(PlaceName(columns[c], at)));
        }
        readers.push_back(std::move(reader));
      }
    }
  }
  return readers;
}

void AddBatch(const LaneBatch& batch, const std::vector<Reader>& readers) {
  for (const Reader& reader : readers) {
    const IdBatch& ids = std::get<IdBatch>(batch.vars[reader.column]);
    for (size_t segment = 0; segment + 1 < ids.offsets.size(); ++segment) {
      const int slot = reader.slots[segment % reader.slots.size()];
      for (int64_t at = ids.offsets[segment]; at < ids.offsets[segment + 1]; ++at) {
        reader.uses->Add(slot, ids.values[static_cast<size_t>(at)]);
      }
    }
  }
}

}  // namespace

absl::StatusOr<SlotUsesByTable> ReadSlotUses(const NewestCheckpoint& checkpoint, const std::string& pattern) {
  const v1::CheckpointManifest& manifest = checkpoint.manifest;
  if (manifest.job_text().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--data needs the job in the checkpoint, and ", checkpoint.found.path, " has none"));
  }
  ASSIGN_OR_RETURN(const Job job, ParseJob(manifest.job_text(), absl::StrCat("the job in ", checkpoint.found.path), {},
                                           {.directory = "."}));
  ASSIGN_OR_RETURN(const Programs programs, BuildSingleMachine(job));
  const DataSpec spec = MakeDataSpec(job.config, job.directory, programs.main);
  std::optional<DataStatistics> statistics;
  if (NeedsStatistics(spec)) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadStatistics(checkpoint.found.path, manifest));
    ASSIGN_OR_RETURN(statistics, DataStatistics::Parse(bytes));
  }
  v1::DataSource source;
  source.add_files(pattern);
  ASSIGN_OR_RETURN(DataSet data, DataSet::Open(job.config.data(), source, "", "--data"));
  ASSIGN_OR_RETURN(const std::unique_ptr<LaneReader> reader,
                   LaneReader::Create(std::move(data), {.spec = spec,
                                                        .streams = {.begin = 0, .count = spec.streams()},
                                                        .statistics = statistics.has_value() ? &*statistics : nullptr,
                                                        .one_pass_in_order = true,
                                                        .labels_may_be_missing = true}));
  SlotUsesByTable tables;
  const std::vector<Reader> readers = ReadersOf(job, reader->columns(), &tables);
  std::vector<LaneBatch> batches;
  const absl::Duration deadline = absl::Seconds(job.config.deadlines().progress_deadline_s());
  while (true) {
    RETURN_IF_ERROR(reader->Next(deadline, &batches));
    if (reader->ended()) break;
    for (const LaneBatch& batch : batches) {
      if (batch.examples > 0) AddBatch(batch, readers);
    }
  }
  return tables;
}

}  // namespace weir
