// Blocks and tables as checkpoints and digests see them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/shard.h"
#include "pserver/server/server_params.h"

namespace weir {

namespace {

// 4-byte units of a state variable, whatever its type: state is saved and digested as bits.
absl::Span<float> Bits(Variable* var) {
  Tensor& tensor = std::get<Tensor>(*var);
  return absl::MakeSpan(static_cast<float*>(tensor.raw()), tensor.bytes() / sizeof(float));
}

// Where a piece of state stands in the whole state variable. Shaped like the parameter, or one unit (of 4 bytes or
// more) per row of it.
struct StatePlace {
  std::vector<int64_t> whole_dims;
  int64_t element_begin = 0;
};
StatePlace PlaceState(const v1::PlacedBlock& placed, const std::vector<int64_t>& whole_dims, int64_t units) {
  if (units == placed.element_count()) return {whole_dims, placed.element_begin()};
  int64_t row = 1;
  for (size_t i = 1; i < whole_dims.size(); ++i) row *= whole_dims[i];
  const int64_t rows = std::max<int64_t>(1, placed.element_count() / row);
  const int64_t per_row = units / rows;
  return {{whole_dims.empty() ? 1 : whole_dims[0], per_row}, placed.element_begin() / row * per_row};
}

// Servers have the counters of learning rates in common; of a server that stands at this element of a made-up variable.
constexpr int64_t kMostServers = int64_t{1} << 31;
DensePiece RatePiece(const LearningRates::State& state, int server) {
  return {.variable = kLearningRateStates,
          .whole_dims = {kMostServers},
          .element_begin = server,
          .state_name = state.name,
          .scalar = true};
}

TableLayout LayoutOf(const SparseTable& table) {
  TableLayout layout{
      .table = table.name(), .width = table.width(), .logical_shards = static_cast<int>(table.logical_shards())};
  for (const RowRule::State& state : table.states()) layout.states.emplace_back(state.name, state.width);
  return layout;
}

// What a table remembers of ids without a row is saved, loaded and digested as a table of its own.
constexpr SparseTable::Memory kMemories[] = {SparseTable::kCandidates, SparseTable::kTombstones};
TableLayout LayoutOf(const SparseTable& table, SparseTable::Memory memory) {
  TableLayout layout{
      .table = absl::StrCat(table.name(), memory == SparseTable::kCandidates ? "@candidates" : "@tombstones"),
      .width = 1,
      .logical_shards = static_cast<int>(table.logical_shards())};
  const std::vector<std::string>& words = table.words(memory);
  for (size_t i = 1; i < words.size(); ++i) layout.states.emplace_back(words[i], 1);
  return layout;
}

}  // namespace

std::vector<LearningRates::State> ServerParams::RateStates() {
  return rates_ == nullptr ? std::vector<LearningRates::State>() : rates_->states();
}

absl::StatusOr<v1::CheckpointShard> ServerParams::Save(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ShardWriter> writer, ShardWriter::Create(path));
  for (const auto& block : blocks_) {
    DensePiece piece{.variable = block->placed.parameter(),
                     .whole_dims = block->whole_dims,
                     .element_begin = block->placed.element_begin()};
    RETURN_IF_ERROR(writer->AddDense(piece, block->value->span<float>()));
    for (const State& state : block->states) {
      const absl::Span<const float> bits = Bits(state.var);
      DensePiece state_piece = piece;
      state_piece.state_name = state.name;
      state_piece.scalar = state.scalar;
      if (!state.scalar) {
        const StatePlace place = PlaceState(block->placed, block->whole_dims, static_cast<int64_t>(bits.size()));
        state_piece.whole_dims = place.whole_dims;
        state_piece.element_begin = place.element_begin;
      }
      RETURN_IF_ERROR(writer->AddDense(state_piece, bits));
    }
  }
  for (const LearningRates::State& state : RateStates()) {
    RETURN_IF_ERROR(writer->AddDense(RatePiece(state, server_id_), state.bits));
  }
  for (const auto& entry : tables_) {
    const SparseTable& table = *entry->table;
    RETURN_IF_ERROR(writer->BeginTable(LayoutOf(table)));
    // A stripe at a time: the lock is not held while the disk works, and the copy stays small.
    std::vector<int64_t> ids;
    std::vector<float> rows;
    for (int s = 0; s < table.stripes(); ++s) {
      RETURN_IF_ERROR(table.CopyStripe(s, &ids, &rows));
      RETURN_IF_ERROR(writer->AddRows(ids, rows));
    }
    RETURN_IF_ERROR(writer->EndTable());
    for (const SparseTable::Memory memory : kMemories) {
      if (table.words(memory).empty()) continue;
      RETURN_IF_ERROR(writer->BeginTable(LayoutOf(table, memory)));
      for (int s = 0; s < table.stripes(); ++s) {
        table.CopyMemory(memory, s, &ids, &rows);
        RETURN_IF_ERROR(writer->AddRows(ids, rows));
      }
      RETURN_IF_ERROR(writer->EndTable());
    }
  }
  return writer->Finish();
}

absl::Status ServerParams::Load(const std::string& directory, const v1::CheckpointManifest& manifest) {
  LoadPlan plan;
  // Read beside what is there: a checkpoint that turns out not to fit changes no block.
  struct Read {
    DenseBlock* block;  // null: of no block
    absl::Span<float> to;
    std::vector<float> values;
  };
  std::vector<Read> read;
  const auto want = [&](DenseBlock* block, DensePiece piece, absl::Span<float> to) {
    read.push_back({block, to, std::vector<float>(to.size())});
    plan.dense.push_back({std::move(piece), {}});
  };
  for (const auto& block : blocks_) {
    DensePiece piece{.variable = block->placed.parameter(),
                     .whole_dims = block->whole_dims,
                     .element_begin = block->placed.element_begin()};
    want(block.get(), piece, block->value->span<float>());
    for (const State& state : block->states) {
      const absl::Span<float> bits = Bits(state.var);
      DensePiece state_piece = piece;
      state_piece.state_name = state.name;
      state_piece.scalar = state.scalar;
      if (!state.scalar) {
        const StatePlace place = PlaceState(block->placed, block->whole_dims, static_cast<int64_t>(bits.size()));
        state_piece.whole_dims = place.whole_dims;
        state_piece.element_begin = place.element_begin;
      }
      want(block.get(), std::move(state_piece), bits);
    }
  }
  for (const LearningRates::State& state : RateStates()) want(nullptr, RatePiece(state, server_id_), state.bits);
  for (size_t i = 0; i < read.size(); ++i) plan.dense[i].out = absl::MakeSpan(read[i].values);
  for (const auto& entry : tables_) {
    SparseTable* const table = entry->table.get();
    RETURN_IF_ERROR(table->Clear());
    plan.tables.push_back({LayoutOf(*table), [table](uint32_t shard) { return table->OwnsShard(shard); },
                           [table](absl::Span<const int64_t> ids, absl::Span<const float> rows) {
                             return table->AddRows(ids, rows.data());
                           }});
    for (const SparseTable::Memory memory : kMemories) {
      if (table->words(memory).empty()) continue;
      plan.tables.push_back({LayoutOf(*table, memory), [table](uint32_t shard) { return table->OwnsShard(shard); },
                             [table, memory](absl::Span<const int64_t> ids, absl::Span<const float> words) {
                               return table->SetMemory(memory, ids, words.data());
                             }});
    }
  }
  RETURN_IF_ERROR(LoadCheckpoint(directory, manifest, plan));
  for (const Read& each : read) {
    if (each.block == nullptr) {
      std::memcpy(each.to.data(), each.values.data(), each.values.size() * sizeof(float));
      continue;
    }
    MutexLock lock(&each.block->mu);
    each.block->next_op = 0;
    std::memcpy(each.to.data(), each.values.data(), each.values.size() * sizeof(float));
  }
  return absl::OkStatus();
}

std::vector<int> ServerParams::SourcesOf(const v1::CheckpointManifest& manifest) const {
  const auto has_block = [this](const v1::DenseEntry& entry) {
    return std::any_of(blocks_.begin(), blocks_.end(), [&](const auto& block) {
      const v1::PlacedBlock& here = block->placed;
      return here.parameter() == entry.variable() &&
             here.element_begin() < entry.element_begin() + entry.element_count() &&
             entry.element_begin() < here.element_begin() + here.element_count();
    });
  };
  const auto has_rows = [this](const v1::TableEntry& entry) {
    for (const auto& of : tables_) {
      if (of->table->name() != entry.table() || entry.row_count() == 0) continue;
      if (!entry.has_shard_end()) return true;
      for (int shard = entry.shard_begin(); shard < entry.shard_end(); ++shard) {
        if (of->table->OwnsShard(static_cast<uint32_t>(shard))) return true;
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

absl::Status ServerParams::Digest(v1::ControlReply* reply) {
  DigestTable digests;
  for (const auto& block : blocks_) {
    int64_t whole = 1;
    for (int64_t dim : block->whole_dims) whole *= dim;
    VariableDigester digester(block->placed.parameter(), whole);
    digester.AddValues(block->placed.element_begin(), block->value->span<float>());
    for (const State& state : block->states) {
      const absl::Span<const float> bits = Bits(state.var);
      if (state.scalar) {
        digester.AddScalarState(state.name, block->placed.element_begin(), bits);
      } else {
        const StatePlace place = PlaceState(block->placed, block->whole_dims, static_cast<int64_t>(bits.size()));
        digester.AddState(state.name, place.element_begin, bits);
      }
    }
    digests[block->placed.parameter()] += digester.sum();
  }
  for (const LearningRates::State& state : RateStates()) {
    VariableDigester digester(kLearningRateStates, kMostServers);
    digester.AddScalarState(state.name, server_id_, state.bits);
    digests[kLearningRateStates] += digester.sum();
  }
  for (const auto& entry : tables_) {
    const SparseTable& table = *entry->table;
    const size_t width = static_cast<size_t>(table.width()), state_width = static_cast<size_t>(table.state_width());
    std::vector<VariableDigestSum> sums(static_cast<size_t>(table.stripes()));
    Mutex mu;
    absl::Status first_error;
    pool_->ParallelFor(table.stripes(), [&](int64_t s) {
      VariableDigester digester(table.name(), table.logical_shards());
      const absl::Status status = table.VisitStripe(static_cast<int>(s), [&](int64_t id, const float* row) {
        digester.AddRow(id, absl::MakeConstSpan(row, width), absl::MakeConstSpan(row + width, state_width));
      });
      sums[static_cast<size_t>(s)] = digester.sum();
      MutexLock lock(&mu);
      first_error.Update(status);
    });
    RETURN_IF_ERROR(first_error);
    VariableDigestSum& sum = digests[table.name()];
    for (const VariableDigestSum& each : sums) sum += each;
    for (const SparseTable::Memory memory : kMemories) {
      const size_t words = table.words(memory).size();
      if (words == 0) continue;
      const std::string name = LayoutOf(table, memory).table;
      VariableDigester digester(name, table.logical_shards());
      std::vector<int64_t> ids;
      std::vector<float> rows;
      for (int s = 0; s < table.stripes(); ++s) {
        table.CopyMemory(memory, s, &ids, &rows);
        for (size_t i = 0; i < ids.size(); ++i) {
          const absl::Span<const float> row = absl::MakeConstSpan(rows).subspan(i * words, words);
          digester.AddRow(ids[i], row.first(1), row.subspan(1));
        }
      }
      digests[name] += digester.sum();
    }
  }
  const VariableDigestSum total = Total(digests);
  reply->set_values(total.values);
  reply->set_state(total.state);
  for (const auto& [name, sum] : digests) {
    v1::VariableDigest* const variable = reply->add_variables();
    variable->set_name(name);
    variable->set_values(sum.values);
    variable->set_state(sum.state);
    for (uint64_t range : sum.ranges) variable->add_ranges(range);
  }
  return absl::OkStatus();
}

}  // namespace weir
