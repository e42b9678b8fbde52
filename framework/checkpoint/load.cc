#include "framework/checkpoint/load.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "framework/checkpoint/source_shards.h"

namespace weir {
namespace {

int64_t Count(absl::Span<const int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

std::string What(const DensePiece& piece) { return VariableText(piece.variable, piece.state_name); }

// Returns the pieces of a variable or its state, or an error that says what the checkpoint has instead.
absl::StatusOr<const std::vector<SourceShards::Piece>*> Pieces(const SourceShards& source, const DensePiece& wanted) {
  const auto* states = source.Find(wanted.variable);
  if (states == nullptr && !wanted.meaning.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint ", source.name(), " does not have ", wanted.meaning,
                                                      ": it was written by a job without one"));
  }
  if (states == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint ", source.name(), " has no variable '",
                                                      wanted.variable, "'; it has: ", source.Variables()));
  }
  const auto it = states->find(wanted.state_name);
  if (it == states->end()) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint ", source.name(), " has no ", What(wanted),
                                                      ": it was written with another optimizer"));
  }
  for (const SourceShards::Piece& piece : it->second) {
    const v1::DenseEntry& e = piece.entry();
    if (!std::equal(e.whole_dims().begin(), e.whole_dims().end(), wanted.whole_dims.begin(), wanted.whole_dims.end())) {
      return absl::FailedPreconditionError(absl::StrCat(What(wanted), " is ", DimsText(wanted.whole_dims),
                                                        " in this job and ", DimsText(e.whole_dims()),
                                                        " in checkpoint ", source.name()));
    }
    if (e.scalar() != wanted.scalar) {
      return absl::FailedPreconditionError(absl::StrCat(What(wanted), " is ", wanted.scalar ? "a scalar" : "an array",
                                                        " in this job and not so in checkpoint ", source.name()));
    }
  }
  return &it->second;
}

absl::Status LoadScalar(const SourceShards& source, const DensePiece& wanted, absl::Span<float> out) {
  ASSIGN_OR_RETURN(const std::vector<SourceShards::Piece>* pieces, Pieces(source, wanted));
  // Take the scalar of the block that held our first element: in async the blocks of a parameter may have different
  // ones.
  const SourceShards::Piece* best = &pieces->front();
  for (const SourceShards::Piece& piece : *pieces) {
    if (piece.entry().element_begin() <= wanted.element_begin) best = &piece;
  }
  if (best->entry().element_count() != static_cast<int64_t>(out.size())) {
    return absl::FailedPreconditionError(absl::StrCat(What(wanted), " has ", out.size(), " floats in this job and ",
                                                      best->entry().element_count(), " in checkpoint ", source.name()));
  }
  return best->reader->ReadDense(best->index, 0, out);
}

absl::Status LoadElements(const SourceShards& source, const DensePiece& wanted, absl::Span<float> out) {
  ASSIGN_OR_RETURN(const std::vector<SourceShards::Piece>* pieces, Pieces(source, wanted));
  return source.Read(*pieces, What(wanted), wanted.element_begin, out);
}

// Refuses a checkpoint with state that the job does not load, which would be lost silently.
absl::Status CheckNoStateIsLeft(const SourceShards& source, const LoadPlan& plan) {
  std::map<std::string, std::set<std::string>> wanted;
  for (const LoadPlan::Dense& dense : plan.dense) wanted[dense.piece.variable].insert(dense.piece.state_name);
  for (const auto& [variable, states] : wanted) {
    const auto* held = source.Find(variable);
    if (held == nullptr) continue;
    for (const auto& [state, pieces] : *held) {
      if (states.count(state) == 0 && !state.empty()) {
        return absl::FailedPreconditionError(absl::StrCat("checkpoint ", source.name(), " holds state '", state,
                                                          "' of '", variable,
                                                          "', which the optimizer of this job does not have"));
      }
    }
  }
  return absl::OkStatus();
}

std::string LayoutText(int width, const std::vector<std::pair<std::string, int>>& states, int shards) {
  std::string text = absl::StrCat("width ", width, ", ", shards, " logical shards, state");
  for (const auto& [name, state_width] : states) absl::StrAppend(&text, " ", name, "[", state_width, "]");
  return states.empty() ? text + " none" : text;
}

std::string LayoutText(const v1::TableEntry& e) {
  std::vector<std::pair<std::string, int>> states;
  states.reserve(static_cast<size_t>(e.state_names_size()));
  for (int i = 0; i < e.state_names_size(); ++i) states.emplace_back(e.state_names(i), e.state_widths(i));
  return LayoutText(e.width(), states, e.logical_shards());
}

absl::Status LoadChunk(const ShardReader& reader, int index, const LoadPlan::Table& table) {
  const uint32_t shards = static_cast<uint32_t>(table.layout.logical_shards);
  const size_t floats = static_cast<size_t>(table.layout.width) + static_cast<size_t>(table.layout.state_width());
  std::vector<int64_t> mine;
  std::vector<float> my_rows;
  return reader.ReadTable(index, [&](absl::Span<const int64_t> ids, absl::Span<const float> rows) {
    mine.clear();
    my_rows.clear();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!table.wants(LogicalShard(ids[i], shards))) continue;
      mine.push_back(ids[i]);
      my_rows.insert(my_rows.end(), rows.begin() + i * floats, rows.begin() + (i + 1) * floats);
    }
    return mine.empty() ? absl::OkStatus() : table.add(mine, my_rows);
  });
}

absl::Status CheckTable(const SourceShards& source, const LoadPlan::Table& table) {
  const std::string expected = LayoutText(table.layout.width, table.layout.states, table.layout.logical_shards);
  bool known = false;
  for (const auto& reader : source.readers()) {
    for (const v1::TableEntry& e : reader->shard().tables()) {
      if (e.table() != table.layout.table) continue;
      known = true;
      if (LayoutText(e) == expected) continue;
      return absl::FailedPreconditionError(absl::StrCat("table '", e.table(), "' has ", expected, " in this job and ",
                                                        LayoutText(e), " in checkpoint ", source.name()));
    }
  }
  if (known) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", source.name(), " has no table '", table.layout.table, "'"));
}

absl::Status LoadTable(const SourceShards& source, const LoadPlan::Table& table) {
  for (const auto& reader : source.readers()) {
    for (int i = 0; i < reader->shard().tables_size(); ++i) {
      const v1::TableEntry& e = reader->shard().tables(i);
      if (e.table() == table.layout.table && HoldsWanted(e, table.wants)) RETURN_IF_ERROR(LoadChunk(*reader, i, table));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadCheckpoint(const std::string& directory, const v1::CheckpointManifest& manifest,
                            const LoadPlan& plan) {
  ASSIGN_OR_RETURN(const SourceShards source, SourceShards::Open(directory, manifest, {}));
  for (const LoadPlan::Dense& dense : plan.dense) RETURN_IF_ERROR(Pieces(source, dense.piece).status());
  RETURN_IF_ERROR(CheckNoStateIsLeft(source, plan));
  for (const LoadPlan::Table& table : plan.tables) RETURN_IF_ERROR(CheckTable(source, table));
  for (const LoadPlan::Dense& dense : plan.dense) {
    RETURN_IF_ERROR(dense.piece.scalar ? LoadScalar(source, dense.piece, dense.out)
                                       : LoadElements(source, dense.piece, dense.out));
  }
  for (const LoadPlan::Table& table : plan.tables) RETURN_IF_ERROR(LoadTable(source, table));
  return absl::OkStatus();
}

std::vector<std::string> CheckpointVariables(const v1::CheckpointManifest& manifest) {
  std::set<std::string> names;
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    for (const v1::DenseEntry& e : shard.dense()) names.insert(e.has_state_of() ? e.state_of() : e.variable());
    for (const v1::TableEntry& e : shard.tables()) names.insert(e.table());
  }
  return {names.begin(), names.end()};
}

absl::StatusOr<WholeVariable> ReadWhole(const std::string& directory, const v1::CheckpointManifest& manifest,
                                        std::string_view variable, std::string_view state_name) {
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    for (const v1::DenseEntry& e : shard.dense()) {
      if ((e.has_state_of() ? e.state_of() : e.variable()) != variable || e.state_name() != state_name) continue;
      ASSIGN_OR_RETURN(const SourceShards source, SourceShards::Open(directory, manifest, {.check_sums = false}));
      WholeVariable whole;
      whole.dims.assign(e.whole_dims().begin(), e.whole_dims().end());
      DensePiece piece{.variable = std::string(variable),
                       .whole_dims = whole.dims,
                       .state_name = std::string(state_name),
                       .scalar = e.scalar()};
      if (e.scalar()) whole.dims = {e.element_count()};
      // Count the elements in the files before allocating: the dims of a damaged manifest may ask for any amount of
      // memory.
      ASSIGN_OR_RETURN(const std::vector<SourceShards::Piece>* pieces, Pieces(source, piece));
      int64_t held = 0;
      for (const SourceShards::Piece& each : *pieces) held += each.entry().element_count();
      if (held < Count(whole.dims)) {
        return absl::FailedPreconditionError(absl::StrCat("checkpoint ", directory, " holds ", held, " of the ",
                                                          Count(whole.dims), " elements of ", What(piece)));
      }
      whole.values.resize(static_cast<size_t>(Count(whole.dims)));
      RETURN_IF_ERROR(e.scalar() ? LoadScalar(source, piece, absl::MakeSpan(whole.values))
                                 : LoadElements(source, piece, absl::MakeSpan(whole.values)));
      return whole;
    }
  }
  return absl::NotFoundError(absl::StrCat("checkpoint ", directory, " has no '", Av(variable), "' ", Av(state_name)));
}

absl::StatusOr<DigestTable> CheckpointDigests(const std::string& directory, const v1::CheckpointManifest& manifest) {
  ASSIGN_OR_RETURN(const SourceShards source, SourceShards::Open(directory, manifest, {}));
  DigestTable digests;
  std::vector<float> values;
  for (const auto& reader : source.readers()) {
    const v1::CheckpointShard& shard = reader->shard();
    for (int i = 0; i < shard.dense_size(); ++i) {
      const v1::DenseEntry& e = shard.dense(i);
      const std::string& variable = e.has_state_of() ? e.state_of() : e.variable();
      values.resize(static_cast<size_t>(e.element_count()));
      RETURN_IF_ERROR(reader->ReadDense(i, 0, absl::MakeSpan(values)));
      VariableDigester digester(variable, Count(e.whole_dims()));
      if (e.scalar()) {
        digester.AddScalarState(e.state_name(), e.element_begin(), values);
      } else if (e.has_state_of()) {
        digester.AddState(e.state_name(), e.element_begin(), values);
      } else {
        digester.AddValues(e.element_begin(), values);
      }
      digests[variable] += digester.sum();
    }
    for (int i = 0; i < shard.tables_size(); ++i) {
      const v1::TableEntry& e = shard.tables(i);
      const size_t width = static_cast<size_t>(e.width()), floats = width + static_cast<size_t>(e.state_width());
      VariableDigester digester(e.table(), e.logical_shards());
      RETURN_IF_ERROR(reader->ReadTable(i, [&](absl::Span<const int64_t> ids, absl::Span<const float> rows) {
        for (size_t r = 0; r < ids.size(); ++r) {
          const absl::Span<const float> row = rows.subspan(r * floats, floats);
          digester.AddRow(ids[r], row.first(width), row.subspan(width));
        }
        return absl::OkStatus();
      }));
      digests[e.table()] += digester.sum();
    }
  }
  return digests;
}

}  // namespace weir
