// Shards of one checkpoint that are open for reading, and the pieces of each variable in them.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_SOURCE_SHARDS_H_
#define WEIR_FRAMEWORK_CHECKPOINT_SOURCE_SHARDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/checkpoint/shard.h"
#include "proto/checkpoint.pb.h"

namespace weir {

// Movable; const methods are thread-safe.
class SourceShards {
 public:
  struct Options {
    // Compute the checksum of every shard that is opened.
    bool check_sums = true;
    // Returns true for the shards to open; null: all.
    std::function<bool(const v1::CheckpointShard&)> wants = nullptr;
    // A wanted shard that lies on another host (MissingShards) is an error; else it is left out.
    bool need_all = false;
  };
  // Opens the shards of the checkpoint in `directory`, a step's directory. Returns errors of ShardReader::Open.
  // FailedPrecondition names the shards that options.need_all lacks.
  static absl::StatusOr<SourceShards> Open(const std::string& directory, const v1::CheckpointManifest& manifest,
                                           const Options& options);

  struct Piece {
    const ShardReader* reader;
    int index;
    const v1::DenseEntry& entry() const { return reader->shard().dense(index); }
  };
  // Pieces in order of elements, by name of the state; "" for values.
  using States = std::map<std::string, std::vector<Piece>, std::less<>>;
  // Returns null if no open shard has the variable.
  const States* Find(std::string_view variable) const;
  // Reads elements [begin, begin + out.size()) from pieces of a variable or of its state. FailedPrecondition if no
  // piece holds some of them. `what` names the variable for messages.
  absl::Status Read(const std::vector<Piece>& pieces, std::string_view what, int64_t begin,
                    absl::Span<float> out) const;

  const std::vector<std::unique_ptr<ShardReader>>& readers() const { return readers_; }
  // Directory, for messages.
  const std::string& name() const { return name_; }
  // Returns the names of the variables, for messages.
  std::string Variables() const;

 private:
  std::string name_;
  std::vector<std::unique_ptr<ShardReader>> readers_;
  std::map<std::string, States, std::less<>> pieces_;
};

// Returns "[6, 4]", for messages.
std::string DimsText(absl::Span<const int64_t> dims);
// Returns "'w'" or "state 'moment1' of 'w'", for messages.
std::string VariableText(std::string_view variable, std::string_view state_name);
// Returns false if an entry of a checkpoint certainly has no row that is wanted.
bool HoldsWanted(const v1::TableEntry& entry, const std::function<bool(uint32_t shard)>& wants);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_SOURCE_SHARDS_H_
