#include "pserver/replica/dense_replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/base/status_message.h"
#include "framework/checkpoint/shard.h"
#include "glog/logging.h"
#include "proto/trainer.pb.h"
#include "pserver/params/learning_rates.h"

namespace weir {

namespace {

// Returns the name of the first variable whose digests differ in two replies; "" if none does.
std::string FirstDifferent(const v1::ControlReply& a, const v1::ControlReply& b) {
  for (int i = 0; i < std::max(a.variables_size(), b.variables_size()); ++i) {
    if (i >= a.variables_size()) return b.variables(i).name();
    if (i >= b.variables_size()) return a.variables(i).name();
    const v1::VariableDigest &here = a.variables(i), &there = b.variables(i);
    if (here.name() != there.name() || here.values() != there.values() || here.state() != there.state())
      return here.name();
  }
  return "";
}

}  // namespace

DenseReplica::DenseReplica(Parts parts)
    : collective_(*parts.collective),
      number_(parts.number),
      norm_rounds_(parts.norm_rounds),
      params_(std::move(parts.params)),
      blocks_(std::move(parts.blocks)) {
  for (const Block& each : blocks_) {
    const int index = static_cast<int>(index_.size());
    index_[each.placed.name()] = index;
    parameters_[each.placed.parameter()].push_back(index);
  }
}

std::string DenseReplica::NextName(std::string_view what) { return absl::StrCat(std::string(what), ".", ++exchanges_); }

int DenseReplica::FindBlock(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? -1 : found->second;
}

void DenseReplica::CopyBlock(int i, float* out) {
  params_->CopyBlock(block(i).target, 0, block(i).placed.element_count(), out, /*reader=*/0);
}

absl::Status DenseReplica::CopyRows(std::string_view parameter, absl::Span<const int64_t> ids, int width, float* out) {
  const int target = params_->FindBlock(parameter);
  if (target < 0 || params_->block(target).sparse_width != width) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(parameter), "' is no matrix of width ", width, " with a gradient by rows"));
  }
  const int64_t height = params_->block(target).rows;
  for (const int64_t id : ids) {
    if (id >= 0 && id < height) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(parameter), "' has no row ", id, ", only ", height));
  }
  params_->CopyRows(target, ids, out);
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------------------------ updates

absl::Status DenseReplica::Update(int64_t step, absl::Span<const TrainerGradients> gradients, const Norms& shared) {
  if (gradients.empty()) return params_->PrepareRates(step);
  NormRounds norms(norm_rounds_);
  while (!norms.Complete()) {
    ASSIGN_OR_RETURN(NormSums sums, params_->SumsOfRound(step, gradients, norms.round(), norms.norms(), /*keep=*/true));
    const bool first = norms.round() == 0;
    if (first) std::erase_if(sums, [&](const auto& sum) { return shared.contains(sum.first); });
    RETURN_IF_ERROR(AddSumsOfOthers(step, &sums));
    RETURN_IF_ERROR(norms.OfferAlone(sums, first ? shared : Norms()));
  }
  RETURN_IF_ERROR(params_->Apply(step, gradients, ServerParams::StepPart::kWhole, norms.norms()));
  return TellUpdates(step, gradients);
}

absl::StatusOr<NormSums> DenseReplica::FirstSums(int64_t step, absl::Span<const TrainerGradients> gradients,
                                                 const std::set<std::string>& of) {
  ASSIGN_OR_RETURN(NormSums sums, params_->SumsOfRound(step, gradients, /*round=*/0, /*norms=*/{}, /*keep=*/false));
  std::erase_if(sums, [&](const auto& sum) { return !of.contains(sum.first); });
  RETURN_IF_ERROR(AddSumsOfOthers(step, &sums));
  return sums;
}

absl::Status DenseReplica::Broadcast(int root) {
  const std::string name = NextName("broadcast");
  int piece = 0;
  return params_->ExchangeDense([&](absl::Span<float> bits) -> absl::Status {
    return collective_
        .Broadcast(absl::StrCat(name, ".", piece++), v1::FLOAT32, {static_cast<int64_t>(bits.size())}, root,
                   bits.data())
        ->Wait();
  });
}

// ------------------------------------------------------------------------------------------------------------ digests

absl::StatusOr<v1::ControlReply> DenseReplica::Digest() {
  v1::ControlReply reply;
  RETURN_IF_ERROR(params_->Digest(&reply));
  return reply;
}

absl::StatusOr<std::vector<v1::ControlReply>> DenseReplica::Digests(int root) {
  std::vector<v1::ControlReply> replies;
  if (collective_.rank() != root) return replies;
  ASSIGN_OR_RETURN(replies.emplace_back(), Digest());
  return replies;
}

absl::Status DenseReplica::Average(int64_t samples, int64_t all_samples) {
  CHECK(samples >= 0 && all_samples > 0 && samples <= all_samples) << samples << " of " << all_samples;
  if (collective_.size() == 1) return absl::OkStatus();
  const double share = static_cast<double>(samples) / static_cast<double>(all_samples);
  std::vector<float> values;
  RETURN_IF_ERROR(params_->ExchangeBlocks([&](absl::Span<float> own) -> absl::Status {
    for (const float value : own) values.push_back(static_cast<float>(share * static_cast<double>(value)));
    return absl::OkStatus();
  }));
  // A trainer without samples has what all had before.
  RETURN_IF_ERROR(collective_
                      .AllReduce({.name = NextName("average"),
                                  .shape = {static_cast<int64_t>(values.size())},
                                  .addends = samples > 0 ? collective_.Own(values.data()) : std::vector<LaneAddend>()},
                                 values.data())
                      ->Wait());
  const float* from = values.data();
  return params_->ExchangeBlocks([&](absl::Span<float> own) -> absl::Status {
    std::copy_n(from, own.size(), own.begin());
    from += own.size();
    return absl::OkStatus();
  });
}

absl::Status DenseReplica::CheckEqual(std::string_view when) {
  ASSIGN_OR_RETURN(const v1::ControlReply own, DigestOfEqual());
  std::vector<std::string> all;
  RETURN_IF_ERROR(collective_.AllGatherBytes(NextName("equal"), own.SerializeAsString(), &all)->Wait());
  // The digests of most trainers are taken for right; between two trainers nobody can tell.
  std::map<std::string, std::vector<int>> ranks_with;
  for (size_t rank = 0; rank < all.size(); ++rank) ranks_with[all[rank]].push_back(static_cast<int>(rank));
  if (ranks_with.size() == 1) return absl::OkStatus();
  const auto most = std::max_element(ranks_with.begin(), ranks_with.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size() || (a.second.size() == b.second.size() && a.second > b.second);
  });
  v1::ControlReply right;
  if (!right.ParseFromString(most->first)) return absl::InternalError("digests of a trainer cannot be read");
  std::vector<std::string> findings;
  for (const auto& [digests, ranks] : ranks_with) {
    if (digests == most->first) continue;
    v1::ControlReply theirs;
    if (!theirs.ParseFromString(digests)) return absl::InternalError("digests of a trainer cannot be read");
    findings.push_back(absl::StrCat("trainer ", absl::StrJoin(ranks, ", "), " differs in '",
                                    FirstDifferent(right, theirs), "' from trainer ",
                                    absl::StrJoin(most->second, ", ")));
  }
  return absl::DataLossError(absl::StrCat(
      "the dense parameters of the trainers are not equal ", std::string(when), ": ", absl::StrJoin(findings, "; "),
      "; memory or a program that is not the others' is the likely cause: start again from a checkpoint"));
}

// -------------------------------------------------------------------------------------------------------- checkpoints

std::set<std::string, std::less<>> DenseReplica::WrittenParameters() const {
  // Whole parameters, the largest first, each to the trainer that has least to write so far.
  std::vector<std::pair<std::string, int64_t>> sizes;
  for (const auto& [parameter, indexes] : parameters_) {
    sizes.emplace_back(parameter, block(indexes[0]).placed.element_count());
  }
  std::stable_sort(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<int64_t> written(static_cast<size_t>(collective_.size()), 0);
  std::set<std::string, std::less<>> own;
  for (const auto& [parameter, size] : sizes) {
    const auto least = std::min_element(written.begin(), written.end());
    *least += size;
    if (least - written.begin() == collective_.rank()) own.insert(parameter);
  }
  return own;
}

// Every trainer has all of it, and writes a part.
absl::StatusOr<v1::CheckpointShard> DenseReplica::SaveOwn(const std::string& path) {
  return params_->Save(path, [parameters = WrittenParameters()](const DensePiece& piece) {
    return piece.variable == kLearningRateStates || parameters.contains(piece.variable);
  });
}

absl::StatusOr<std::string> DenseReplica::AgreeOnSave(int root, std::string name) {
  if (collective_.rank() != root) name.clear();
  std::vector<std::string> all;
  RETURN_IF_ERROR(collective_.AllGatherBytes(NextName("save"), std::move(name), &all)->Wait());
  return std::move(all[static_cast<size_t>(root)]);
}

absl::StatusOr<std::vector<v1::CheckpointShard>> DenseReplica::SaveShards(int root, const std::string& directory) {
  const absl::StatusOr<v1::CheckpointShard> shard = SaveOwn(absl::StrCat(directory, "/", ShardFileName(number_)));
  v1::WrittenShard written;
  if (shard.ok()) {
    *written.mutable_shard() = *shard;
  } else {
    *written.mutable_error() = StatusMessage(shard.status());
  }
  std::vector<std::string> all;
  RETURN_IF_ERROR(collective_.GatherBytes(NextName("shards"), written.SerializeAsString(), root, &all)->Wait());
  std::vector<v1::CheckpointShard> shards;
  for (size_t t = 0; t < all.size(); ++t) {
    const std::string trainer = absl::StrCat("trainer ", t);
    if (!written.ParseFromString(all[t]))
      return absl::DataLossError(trainer + ": what it says of its shard cannot be read");
    if (const absl::Status error = StatusOf(written.error()); !error.ok())
      return absl::Status(error.code(), absl::StrCat(trainer, ": ", error.message()));
    const std::string expected = ShardFileName(number_ - collective_.rank() + static_cast<int>(t));
    if (written.shard().file().name() != expected) {
      return absl::DataLossError(
          absl::StrCat(trainer, " has written '", written.shard().file().name().substr(0, 200), "', not ", expected));
    }
    shards.push_back(written.shard());
  }
  return shards;
}

}  // namespace weir
