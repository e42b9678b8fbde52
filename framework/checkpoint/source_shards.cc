#include "framework/checkpoint/source_shards.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "framework/checkpoint/directory.h"

namespace weir {

absl::StatusOr<SourceShards> SourceShards::Open(const std::string& directory, const v1::CheckpointManifest& manifest,
                                                const Options& options) {
  SourceShards source;
  source.name_ = directory;
  const std::vector<std::string> missing = MissingShards(directory, manifest);
  std::vector<std::string> lacking;
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    if (options.wants != nullptr && !options.wants(shard)) continue;
    if (std::find(missing.begin(), missing.end(), shard.file().name()) != missing.end()) {
      lacking.push_back(shard.file().name());
      continue;
    }
    ASSIGN_OR_RETURN(std::unique_ptr<ShardReader> reader, ShardReader::Open(directory, shard, options.check_sums));
    source.readers_.push_back(std::move(reader));
  }
  if (options.need_all && !lacking.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", directory, " was written with a directory per host, and ",
                     absl::StrJoin(lacking, ", "), " lie on other hosts: copy the shards of all hosts into it"));
  }
  for (const auto& reader : source.readers_) {
    const v1::CheckpointShard& shard = reader->shard();
    for (int i = 0; i < shard.dense_size(); ++i) {
      const v1::DenseEntry& e = shard.dense(i);
      const std::string& variable = e.has_state_of() ? e.state_of() : e.variable();
      source.pieces_[variable][e.state_name()].push_back({reader.get(), i});
    }
  }
  for (auto& [variable, states] : source.pieces_) {
    for (auto& [state, pieces] : states) {
      std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
        return a.entry().element_begin() < b.entry().element_begin();
      });
    }
  }
  return source;
}

const SourceShards::States* SourceShards::Find(std::string_view variable) const {
  const auto it = pieces_.find(variable);
  return it == pieces_.end() ? nullptr : &it->second;
}

absl::Status SourceShards::Read(const std::vector<Piece>& pieces, std::string_view what, int64_t begin,
                                absl::Span<float> out) const {
  int64_t at = begin;
  const int64_t end = at + static_cast<int64_t>(out.size());
  for (const Piece& piece : pieces) {
    const v1::DenseEntry& e = piece.entry();
    const int64_t piece_end = e.element_begin() + e.element_count();
    if (piece_end <= at) continue;
    if (at >= end || e.element_begin() > at) break;
    const int64_t n = std::min(end, piece_end) - at;
    RETURN_IF_ERROR(piece.reader->ReadDense(piece.index, at - e.element_begin(),
                                            out.subspan(static_cast<size_t>(at - begin), static_cast<size_t>(n))));
    at += n;
  }
  if (at >= end) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("checkpoint ", name_, " has no elements [", at, ", ", end, ") of ",
                                                    Av(what), "; no shard holds them"));
}

std::string SourceShards::Variables() const {
  std::vector<std::string> names;
  for (const auto& [name, states] : pieces_) names.push_back(name);
  return absl::StrJoin(names, ", ");
}

std::string DimsText(absl::Span<const int64_t> dims) { return absl::StrCat("[", absl::StrJoin(dims, ", "), "]"); }

std::string VariableText(std::string_view variable, std::string_view state_name) {
  return state_name.empty() ? absl::StrCat("'", Av(variable), "'")
                            : absl::StrCat("state '", Av(state_name), "' of '", Av(variable), "'");
}

bool HoldsWanted(const v1::TableEntry& entry, const std::function<bool(uint32_t shard)>& wants) {
  if (!entry.has_shard_end()) return true;
  for (int32_t shard = entry.shard_begin(); shard < entry.shard_end(); ++shard) {
    if (wants(static_cast<uint32_t>(shard))) return true;
  }
  return false;
}

}  // namespace weir
