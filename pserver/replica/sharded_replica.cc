#include "pserver/replica/sharded_replica.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/load.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "pserver/params/learning_rates.h"
#include "pserver/replica/gathered_values.h"

namespace weir {

namespace {

const ProfileName kGatherName("values of all trainers"), kNormsName("norms of all trainers");

// Returns the manifest without shards that Load does not need, since a reader checks every byte of a shard: those
// without parameters, except that the first shard with states of learning rates stays.
v1::CheckpointManifest DenseShards(const v1::CheckpointManifest& manifest) {
  v1::CheckpointManifest dense = manifest;
  dense.clear_shards();
  bool has_rates = false;
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    bool rates = false, parameters = false;
    for (const v1::DenseEntry& entry : shard.dense()) {
      const bool of_rates = entry.state_of() == kLearningRateStates || entry.variable() == kLearningRateStates;
      (of_rates ? rates : parameters) = true;
    }
    if (!parameters && (!rates || has_rates)) continue;
    has_rates |= rates;
    *dense.add_shards() = shard;
  }
  return dense;
}

std::vector<v1::PlacedBlock> PlacedOf(const std::vector<DenseReplica::Block>& blocks) {
  std::vector<v1::PlacedBlock> placed;
  for (const DenseReplica::Block& block : blocks) placed.push_back(block.placed);
  return placed;
}

class ShardedReplica : public DenseReplica {
 public:
  explicit ShardedReplica(Parts parts) : DenseReplica(std::move(parts)), values_(PlacedOf(blocks()), &collective()) {}

  bool sharded() const override { return true; }
  void CopyBlock(int i, float* out) override {
    const absl::Span<const float> values = values_.values(i);
    std::copy(values.begin(), values.end(), out);
  }
  absl::Status CopyRows(std::string_view parameter, absl::Span<const int64_t> ids, int width, float* out) override {
    return values_.CopyRows(parameter, ids, width, out);
  }
  absl::Status Gather() override {
    CopyShare(nullptr);
    return values_.GatherAll();
  }
  absl::Status Broadcast(int root) override { return values_.Broadcast(root); }
  absl::StatusOr<std::vector<v1::ControlReply>> Digests(int root) override;
  absl::Status Load(const std::string& directory, const v1::CheckpointManifest& manifest) override {
    return params().Load(directory, DenseShards(manifest));
  }
  absl::Status LoadValues(const std::string& directory, const v1::CheckpointManifest& manifest) override;

 protected:
  absl::Status AddSumsOfOthers(int64_t step, NormSums* sums) override;
  absl::Status TellUpdates(int64_t step, absl::Span<const TrainerGradients> gradients) override;
  absl::StatusOr<v1::ControlReply> DigestOfEqual() override;
  absl::StatusOr<v1::CheckpointShard> SaveOwn(const std::string& path) override { return params().Save(path); }

 private:
  using RowsByBlock = std::map<int, std::vector<int64_t>>;
  // Copies this trainer's share from params() to values_, from where the others get it. `rows`: of blocks with
  // gradients by rows, the rows to copy, by index of the block; null: everything.
  void CopyShare(const RowsByBlock* rows);
  // Returns the ids of gradients by rows, ascending and each once, by index of the block.
  RowsByBlock RowsOf(absl::Span<const TrainerGradients> gradients) const;
  // Sets the values of a whole parameter.
  absl::Status SetValues(const std::string& parameter, absl::Span<const float> whole);

  GatheredValues values_;
};

absl::Status ShardedReplica::AddSumsOfOthers(int64_t step, NormSums* sums) {
  const ProfileSpan span(step, ProfileKind::kWait, kNormsName);
  NormRounds own(1);
  own.Offer(std::move(*sums));
  v1::NormsReply reply;
  own.Fill(&reply);
  std::vector<std::string> all;
  RETURN_IF_ERROR(collective().AllGatherBytes(NextName("norms"), reply.SerializeAsString(), &all)->Wait());
  // Sums are exact: their order changes no bit.
  NormSums totals;
  for (size_t t = 0; t < all.size(); ++t) {
    if (!reply.ParseFromString(all[t])) {
      return absl::DataLossError(absl::StrCat("the norms of trainer ", t, " cannot be read"));
    }
    RETURN_IF_ERROR(AddSums(reply, &totals));
  }
  *sums = std::move(totals);
  return absl::OkStatus();
}

absl::Status ShardedReplica::TellUpdates(int64_t step, absl::Span<const TrainerGradients> gradients) {
  const ProfileSpan span(step, ProfileKind::kBorder, kGatherName);
  const RowsByBlock rows = RowsOf(gradients);
  CopyShare(&rows);
  return values_.GatherStep(rows);
}

ShardedReplica::RowsByBlock ShardedReplica::RowsOf(absl::Span<const TrainerGradients> gradients) const {
  std::map<int, int> block_of;  // by target
  for (const int own : values_.own()) block_of[block(own).target] = own;
  RowsByBlock rows;
  for (const TrainerGradients& trainer : gradients) {
    for (const Gradient& gradient : trainer.gradients) {
      if (gradient.width == 0) continue;
      const auto own = block_of.find(gradient.target);
      CHECK(own != block_of.end()) << gradient.target;
      std::vector<int64_t>& ids = rows[own->second];
      ids.insert(ids.end(), gradient.ids, gradient.ids + gradient.count);
    }
  }
  for (auto& [block, ids] : rows) {
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }
  return rows;
}

void ShardedReplica::CopyShare(const RowsByBlock* rows) {
  std::vector<float> copied;
  for (const int own : values_.own()) {
    const v1::PlacedBlock& placed = block(own).placed;
    const absl::Span<float> to = values_.values(own);
    if (rows == nullptr || !placed.sparse_gradient()) {
      params().CopyBlock(block(own).target, 0, placed.element_count(), to.data(), /*reader=*/0);
      continue;
    }
    const auto found = rows->find(own);
    if (found == rows->end()) continue;
    const auto width = static_cast<size_t>(params().block(block(own).target).sparse_width);
    copied.resize(found->second.size() * width);
    params().CopyRows(block(own).target, found->second, copied.data());
    for (size_t i = 0; i < found->second.size(); ++i) {
      std::copy_n(copied.begin() + static_cast<int64_t>(i * width), width,
                  to.begin() + found->second[i] * static_cast<int64_t>(width));
    }
  }
}

absl::StatusOr<std::vector<v1::ControlReply>> ShardedReplica::Digests(int root) {
  ASSIGN_OR_RETURN(const v1::ControlReply own, Digest());
  std::vector<std::string> all;
  RETURN_IF_ERROR(collective().GatherBytes(NextName("digests"), own.SerializeAsString(), root, &all)->Wait());
  std::vector<v1::ControlReply> replies;
  for (size_t t = 0; t < all.size(); ++t) {
    if (replies.emplace_back().ParseFromString(all[t])) continue;
    return absl::DataLossError(absl::StrCat("the digests of trainer ", t, " cannot be read"));
  }
  return replies;
}

absl::StatusOr<v1::ControlReply> ShardedReplica::DigestOfEqual() {
  // In the place of state: the values of this trainer's share, as it has updated them, beside its copy of the others.
  // So a trainer differs too if the copies of all lack what it has updated.
  v1::ControlReply reply;
  std::vector<float> updated;
  for (const auto& [parameter, indexes] : parameters()) {
    int64_t elements = 0;
    for (const int i : indexes) elements += block(i).placed.element_count();
    VariableDigester copied(parameter, elements), held(parameter, elements);
    for (const int i : indexes) {
      const int64_t begin = block(i).placed.element_begin();
      const absl::Span<const float> copy = values_.values(i);
      copied.AddValues(begin, copy);
      updated.assign(copy.begin(), copy.end());
      if (block(i).target >= 0) {
        params().CopyBlock(block(i).target, 0, static_cast<int64_t>(updated.size()), updated.data(), /*reader=*/0);
      }
      held.AddValues(begin, updated);
    }
    v1::VariableDigest* const variable = reply.add_variables();
    variable->set_name(parameter);
    variable->set_values(copied.sum().values);
    variable->set_state(held.sum().values);
  }
  return reply;
}

absl::Status ShardedReplica::LoadValues(const std::string& directory, const v1::CheckpointManifest& manifest) {
  for (const auto& [parameter, indexes] : parameters()) {
    ASSIGN_OR_RETURN(const WholeVariable whole, ReadWhole(directory, manifest, parameter, ""));
    RETURN_IF_ERROR(SetValues(parameter, whole.values));
  }
  return absl::OkStatus();
}

absl::Status ShardedReplica::SetValues(const std::string& parameter, absl::Span<const float> whole) {
  const std::vector<int>& indexes = parameters().find(parameter)->second;
  const int64_t elements = std::accumulate(indexes.begin(), indexes.end(), int64_t{0}, [this](int64_t sum, int i) {
    return sum + block(i).placed.element_count();
  });
  if (static_cast<int64_t>(whole.size()) != elements) {
    return absl::FailedPreconditionError(absl::StrCat("'", parameter, "' has ", elements, " elements in this job and ",
                                                      whole.size(), " in the checkpoint"));
  }
  for (const int i : indexes) {
    const v1::PlacedBlock& placed = block(i).placed;
    const absl::Span<const float> from =
        whole.subspan(static_cast<size_t>(placed.element_begin()), static_cast<size_t>(placed.element_count()));
    std::copy(from.begin(), from.end(), values_.values(i).begin());
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<DenseReplica> MakeShardedReplica(DenseReplica::Parts parts) {
  return std::make_unique<ShardedReplica>(std::move(parts));
}

}  // namespace weir
