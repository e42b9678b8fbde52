// Blocks and tables as checkpoints and digests see them.
#include <algorithm>
#include <utility>

#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/shard.h"
#include "framework/checkpoint/start.h"
#include "pserver/params/param_table.h"
#include "pserver/params/persistent_rows.h"
#include "pserver/params/server_params.h"
#include "pserver/tables/sparse_table.h"

namespace weir {

namespace {

// Servers have the counters of learning rates in common; those of a server stand at its element of a variable that
// exists in checkpoints only.
constexpr int64_t kMostServers = int64_t{1} << 31;

StartTargets::Table StartTargetOf(SparseTable* table) {
  const std::vector<PersistentRows> all = PersistentRows::Of(table);
  StartTargets::Table target;
  target.rows = {
      all[0].layout(), [table](uint32_t shard) { return table->OwnsShard(shard); },
      [rows = all[0]](absl::Span<const int64_t> ids, absl::Span<const float> floats) { return rows.Add(ids, floats); }};
  target.begin = [table](int zero_begin, int zero_end) {
    RETURN_IF_ERROR(table->Clear());
    table->SetZeroColumns(zero_begin, zero_end);
    return absl::OkStatus();
  };
  target.initial_values = [table](absl::Span<const int64_t> ids, int begin, int end, float* rows, size_t stride) {
    table->InitialValues(ids, begin, end, rows, stride);
  };
  target.initial_state = table->InitialState();
  for (const SparseTable::Memory memory : {SparseTable::kCandidates, SparseTable::kTombstones}) {
    const std::vector<std::string>& words = table->words(memory);
    if (words.empty()) continue;
    target.memories.push_back({PersistentRows::Suffix(memory), words,
                               [table, memory](absl::Span<const int64_t> ids, absl::Span<const float> entries) {
                                 return table->SetMemory(memory, ids, entries.data());
                               }});
  }
  return target;
}

}  // namespace

std::vector<ServerParams::Piece> ServerParams::BlockPieces() {
  std::vector<Piece> pieces;
  for (const auto& block : blocks_) {
    for (DenseBlock::Piece& piece : block->Pieces()) {
      pieces.push_back({std::move(piece), block->whole_count(), block.get()});
    }
  }
  return pieces;
}

std::vector<ServerParams::Piece> ServerParams::DensePieces() {
  std::vector<Piece> pieces = BlockPieces();
  if (rates_ == nullptr) return pieces;
  for (const LearningRates::State& state : rates_->states()) {
    const DensePiece place{.variable = kLearningRateStates,
                           .whole_dims = {kMostServers},
                           .element_begin = server_id_,
                           .state_name = state.name,
                           .scalar = true,
                           .meaning = "the state of a learning-rate schedule"};
    pieces.push_back({{place, state.bits}, kMostServers, nullptr});
  }
  return pieces;
}

std::vector<PersistentRows> ServerParams::RowTables() {
  std::vector<PersistentRows> all;
  for (const auto& table : tables_) {
    for (PersistentRows& rows : PersistentRows::Of(&table->rows())) all.push_back(std::move(rows));
  }
  return all;
}

absl::StatusOr<v1::CheckpointShard> ServerParams::Save(const std::string& path,
                                                       const std::function<bool(const DensePiece&)>& writes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ShardWriter> writer, ShardWriter::Create(path));
  for (const Piece& each : DensePieces()) {
    if (writes && !writes(each.piece.place)) continue;
    RETURN_IF_ERROR(writer->AddDense(each.piece.place, each.piece.bits));
  }
  std::vector<int64_t> ids;
  std::vector<float> floats;
  for (const PersistentRows& rows : RowTables()) {
    RETURN_IF_ERROR(writer->BeginTable(rows.layout()));
    // A stripe at a time: the lock is not held while the disk works, and the copy stays small.
    for (int s = 0; s < rows.table()->stripes(); ++s) {
      RETURN_IF_ERROR(rows.CopyStripe(s, &ids, &floats));
      RETURN_IF_ERROR(writer->AddRows(ids, floats));
    }
    RETURN_IF_ERROR(writer->EndTable());
  }
  return writer->Finish();
}

absl::Status ServerParams::Load(const std::string& directory, const v1::CheckpointManifest& manifest) {
  LoadPlan plan;
  // Read beside what is there: a checkpoint that turns out not to fit changes no block.
  std::vector<Piece> pieces = DensePieces();
  std::vector<std::vector<float>> read;
  for (const Piece& each : pieces) {
    read.emplace_back(each.piece.bits.size());
    plan.dense.push_back({each.piece.place, absl::MakeSpan(read.back())});
  }
  for (const auto& table : tables_) RETURN_IF_ERROR(table->rows().Clear());
  for (const PersistentRows& rows : RowTables()) {
    plan.tables.push_back(
        {rows.layout(), [table = rows.table()](uint32_t shard) { return table->OwnsShard(shard); },
         [rows](absl::Span<const int64_t> ids, absl::Span<const float> floats) { return rows.Add(ids, floats); }});
  }
  RETURN_IF_ERROR(LoadCheckpoint(directory, manifest, plan));
  RestoreZeroColumns(manifest);
  RestorePieces(pieces, read);
  return absl::OkStatus();
}

absl::Status ServerParams::Start(absl::Span<const StartCheckpoint> sources, const v1::StartPlan& plan) {
  StartTargets targets;
  // Put together beside what is there, as Load does.
  std::vector<Piece> pieces = DensePieces();
  std::vector<std::vector<float>> started;
  for (const Piece& each : pieces) {
    started.emplace_back(each.piece.bits.begin(), each.piece.bits.end());
    targets.dense.push_back({each.piece.place, absl::MakeSpan(started.back())});
  }
  for (const auto& table : tables_) targets.tables.push_back(StartTargetOf(&table->rows()));
  RETURN_IF_ERROR(StartFromCheckpoints(sources, plan, targets));
  RestorePieces(pieces, started);
  return absl::OkStatus();
}

void ServerParams::RestoreZeroColumns(const v1::CheckpointManifest& manifest) {
  for (const auto& table : tables_) {
    const v1::TableEntry* entry = nullptr;
    for (const v1::CheckpointShard& shard : manifest.shards()) {
      for (const v1::TableEntry& each : shard.tables()) {
        if (each.table() == table->name()) entry = &each;
      }
    }
    if (entry == nullptr) continue;
    // Nothing has checked the entries of a shard that lies on another host.
    const int end = std::clamp(entry->zero_end(), 0, table->rows().width());
    table->rows().SetZeroColumns(std::clamp(entry->zero_begin(), 0, end), end);
  }
}

void ServerParams::RestorePieces(const std::vector<Piece>& pieces, const std::vector<std::vector<float>>& read) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const absl::Span<float> to = pieces[i].piece.bits;
    if (pieces[i].block != nullptr) {
      pieces[i].block->Restore(to, read[i]);
    } else {
      std::copy(read[i].begin(), read[i].end(), to.begin());
    }
  }
}

absl::Status ServerParams::ExchangeDense(const Exchange& exchange) { return ExchangePieces(DensePieces(), exchange); }
absl::Status ServerParams::ExchangeBlocks(const Exchange& exchange) { return ExchangePieces(BlockPieces(), exchange); }

absl::Status ServerParams::ExchangePieces(const std::vector<Piece>& pieces, const Exchange& exchange) {
  for (const Piece& each : pieces) {
    const absl::Span<float> bits = each.piece.bits;
    std::vector<float> exchanged(bits.begin(), bits.end());
    RETURN_IF_ERROR(exchange(absl::MakeSpan(exchanged)));
    if (each.block != nullptr) {
      each.block->Restore(bits, exchanged);
    } else {
      std::copy(exchanged.begin(), exchanged.end(), bits.begin());
    }
  }
  return absl::OkStatus();
}

std::vector<int> ServerParams::SourcesOf(const v1::CheckpointManifest& manifest) const {
  const auto has_block = [this](const v1::DenseEntry& entry) {
    return std::any_of(blocks_.begin(), blocks_.end(), [&](const auto& block) {
      const v1::PlacedBlock& here = block->placed();
      return here.parameter() == entry.variable() &&
             here.element_begin() < entry.element_begin() + entry.element_count() &&
             entry.element_begin() < here.element_begin() + here.element_count();
    });
  };
  const auto has_rows = [this](const v1::TableEntry& entry) {
    for (const auto& table : tables_) {
      if (table->name() != entry.table() || entry.row_count() == 0) continue;
      if (!entry.has_shard_end()) return true;
      for (int shard = entry.shard_begin(); shard < entry.shard_end(); ++shard) {
        if (table->rows().OwnsShard(static_cast<uint32_t>(shard))) return true;
      }
    }
    return false;
  };
  std::vector<int> sources;
  for (int i = 0; i < manifest.shards_size(); ++i) {
    const v1::CheckpointShard& shard = manifest.shards(i);
    // State lies where its values do.
    if (std::any_of(shard.dense().begin(), shard.dense().end(), has_block) ||
        std::any_of(shard.tables().begin(), shard.tables().end(), has_rows)) {
      sources.push_back(i);
    }
  }
  return sources;
}

absl::Status ServerParams::DigestRows(const PersistentRows& rows, VariableDigestSum* sum) {
  const TableLayout& layout = rows.layout();
  const size_t width = static_cast<size_t>(layout.width), state_width = static_cast<size_t>(layout.state_width());
  Mutex mu;
  absl::Status first_error;
  pool_->ParallelFor(rows.table()->stripes(), [&](int64_t s) {
    VariableDigester digester(layout.table, layout.logical_shards);
    const absl::Status status = rows.VisitStripe(static_cast<int>(s), [&](int64_t id, const float* row) {
      digester.AddRow(id, absl::MakeConstSpan(row, width), absl::MakeConstSpan(row + width, state_width));
    });
    MutexLock lock(&mu);
    first_error.Update(status);
    *sum += digester.sum();
  });
  return first_error;
}

absl::Status ServerParams::Digest(v1::ControlReply* reply) {
  DigestTable digests;
  for (const Piece& each : DensePieces()) {
    const DensePiece& place = each.piece.place;
    VariableDigester digester(place.variable, each.whole_count);
    if (place.state_name.empty()) {
      digester.AddValues(place.element_begin, each.piece.bits);
    } else if (place.scalar) {
      digester.AddScalarState(place.state_name, place.element_begin, each.piece.bits);
    } else {
      digester.AddState(place.state_name, place.element_begin, each.piece.bits);
    }
    digests[place.variable] += digester.sum();
  }
  for (const PersistentRows& rows : RowTables()) RETURN_IF_ERROR(DigestRows(rows, &digests[rows.layout().table]));
  const VariableDigestSum total = Total(digests);
  reply->set_values(total.values);
  reply->set_state(total.state);
  for (const auto& [name, sum] : digests) {
    v1::VariableDigest* const variable = reply->add_variables();
    variable->set_name(name);
    variable->set_values(sum.values);
    variable->set_state(sum.state);
    for (const uint64_t range : sum.ranges) variable->add_ranges(range);
  }
  return absl::OkStatus();
}

}  // namespace weir
