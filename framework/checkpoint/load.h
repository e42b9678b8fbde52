// Loads a checkpoint into any plan: another number of servers, other slices, other owners of logical shards.
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

// Parameters, state and rows that a process owns and wants filled.
struct LoadPlan {
  // Piece to read; `out` is filled completely. The pieces of all owners together must cover values and every state.
  struct Dense {
    DensePiece piece;
    absl::Span<float> out;
  };
  std::vector<Dense> dense;

  struct Table {
    TableLayout layout;
    // Returns true for the logical shards wanted.
    std::function<bool(uint32_t shard)> wants;
    // Receives rows [n, width + state_width] of wanted shards, in order of files. Called on the loading thread.
    std::function<absl::Status(absl::Span<const int64_t> ids, absl::Span<const float> rows)> add;
  };
  std::vector<Table> tables;
};

// Fills `plan` from the checkpoint in `directory` (a step's directory). Every shard's checksum is verified before
// anything is written into `plan`. From a checkpoint written per host only the shards in `directory` are read: rows in
// missing shards are no error, so the caller must ensure that it wants none of them
// (pserver/params/server_checkpoints.h).
//
// DataLoss if a file is damaged. FailedPrecondition if the checkpoint does not fit: a variable, table or elements that
// no shard holds, other dims, widths or number of logical shards, state that the job's optimizer does not have or
// lacks; the text names variable, expected and got. Returns errors of `add`. After an error `plan` may be partly
// filled.
absl::Status LoadCheckpoint(const std::string& directory, const v1::CheckpointManifest& manifest, const LoadPlan& plan);

// Returns the names of parameters and tables (not state) in a checkpoint, sorted.
std::vector<std::string> CheckpointVariables(const v1::CheckpointManifest& manifest);

// Whole dense variable (or its state), assembled by ReadWhole from all shards of a checkpoint that was verified before:
// ReadWhole checks sizes, but not checksums. NotFound: the manifest does not have it. FailedPrecondition: the shards in
// `directory` hold a part of it only. DataLoss, and errors of FileError (framework/checkpoint/file.h).
struct WholeVariable {
  std::vector<int64_t> dims;
  std::vector<float> values;
};
absl::StatusOr<WholeVariable> ReadWhole(const std::string& directory, const v1::CheckpointManifest& manifest,
                                        std::string_view variable, std::string_view state_name);

// Recomputes the digests from the bytes of all shards, of a checkpoint written per host of those in `directory` only.
// DataLoss if a file is damaged.
absl::StatusOr<DigestTable> CheckpointDigests(const std::string& directory, const v1::CheckpointManifest& manifest);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_LOAD_H_
