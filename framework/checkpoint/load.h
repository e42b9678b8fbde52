// Reading a checkpoint back onto any plan: another number of servers, other slices, other owners of logical shards.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_LOAD_H_
#define WEIR_FRAMEWORK_CHECKPOINT_LOAD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/checkpoint/shard.h"
#include "proto/checkpoint.pb.h"

namespace weir {

// What a process owns now and wants filled.
struct LoadPlan {
  // `out` is filled completely. All pieces of all owners together ask for values and every state.
  struct Dense {
    DensePiece piece;
    absl::Span<float> out;
  };
  std::vector<Dense> dense;

  struct Table {
    TableLayout layout;
    // Logical shards wanted.
    std::function<bool(uint32_t shard)> wants;
    // Rows [n, width + state_width] of wanted shards, in order of files. Called on the loading thread.
    std::function<absl::Status(absl::Span<const int64_t> ids, absl::Span<const float> rows)> add;
  };
  std::vector<Table> tables;
};

// Fills `plan` from the checkpoint in `directory` (a step's directory). Every shard's checksum is verified before
// anything is written into `plan`. Of a checkpoint written per host only the shards that are here are read: rows that
// others hold are not missed, so the caller must know that none of them is wanted
// (pserver/server/server_checkpoints.h).
//
// DataLoss: a file is damaged. FailedPrecondition: the checkpoint does not fit: elements that no shard holds, other
// dims, other widths, state that the present optimizer does not have or lacks; the text names variable, expected and
// got.
absl::Status LoadCheckpoint(const std::string& directory, const v1::CheckpointManifest& manifest, const LoadPlan& plan);

// Names of parameters and tables (not state) in a checkpoint, sorted.
std::vector<std::string> CheckpointVariables(const v1::CheckpointManifest& manifest);

// A whole dense variable (or its state) put together from all shards of a checkpoint that was verified before: sizes
// are checked here, checksums are not. NotFound, DataLoss.
struct WholeVariable {
  std::vector<int64_t> dims;
  std::vector<float> values;
};
absl::StatusOr<WholeVariable> ReadWhole(const std::string& directory, const v1::CheckpointManifest& manifest,
                                        std::string_view variable, std::string_view state_name);

// Digests computed again from the bytes of all shards.
absl::StatusOr<DigestTable> CheckpointDigests(const std::string& directory, const v1::CheckpointManifest& manifest);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_LOAD_H_
