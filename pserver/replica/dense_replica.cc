#include "pserver/replica/dense_replica.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/base/status_message.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/shard.h"
#include "framework/graph/placement.h"
#include "framework/graph/training_mode.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "proto/trainer.pb.h"
#include "pserver/params/learning_rates.h"
#include "pserver/params/server_params.h"
#include "pserver/protocol/norm_cuts.h"
#include "pserver/replica/gathered_values.h"
#include "pserver/replica/own_programs.h"
#include "pserver/replica/update_share.h"

namespace weir {

namespace {

const ProfileName kGatherName("values of all trainers"), kNormsName("norms of all trainers");

// Leaves out what servers hold.
void KeepOwn(v1::ProgramDesc* main) {
  v1::BlockDesc* const block = main->mutable_blocks(0);
  google::protobuf::RepeatedPtrField<v1::VarDesc> vars;
  for (v1::VarDesc& var : *block->mutable_vars()) {
    if (var.kind() != v1::TABLE) *vars.Add() = std::move(var);
  }
  block->mutable_vars()->Swap(&vars);
  google::protobuf::RepeatedPtrField<v1::PlacedBlock> blocks;
  for (v1::PlacedBlock& placed : *main->mutable_plan()->mutable_blocks()) {
    if (placed.server() == kEveryTrainer) *blocks.Add() = std::move(placed);
  }
  main->mutable_plan()->mutable_blocks()->Swap(&blocks);
  main->mutable_plan()->clear_tables();
}

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

// Returns the most rounds of norms that the update of a block takes, whichever trainer runs it.
absl::StatusOr<int> NormRoundsOf(const v1::ProgramDesc& main, const v1::AllReduceMode& mode) {
  size_t rounds = 0;
  for (const int32_t index : mode.blocks()) {
    if (index < 0 || index >= main.blocks_size()) continue;  // refused by ServerParams
    ASSIGN_OR_RETURN(const std::vector<NormCut> cuts, NormCutsOf(main.blocks(index)));
    rounds = std::max(rounds, cuts.size());
  }
  return static_cast<int>(rounds);
}

// Leaves out shards without dense parameters, which hold rows of tables alone: a reader checks every byte of a shard.
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

}  // namespace

DenseReplica::DenseReplica(Collective* collective) : collective_(*collective) {}
DenseReplica::~DenseReplica() = default;

absl::StatusOr<std::unique_ptr<DenseReplica>> DenseReplica::Create(const Options& options) {
  std::unique_ptr<DenseReplica> replica(new DenseReplica(options.collective));
  const v1::AllReduceMode mode = ModeOf(*options.main).all_reduce();
  replica->number_ = options.main->plan().servers() + options.collective->rank();
  v1::ProgramDesc kept = *options.main, startup = *options.startup;
  KeepOwn(&kept);
  const v1::Plan held = kept.plan();
  google::protobuf::RepeatedField<int32_t> updates = mode.blocks();
  if (mode.sharded()) KeepShare(options.collective->rank(), mode.lr_block(), &kept, &startup, &updates);
  // Without lanes every trainer is a leaf of the tree in which its rows are added.
  if (kept.plan().lanes() == 0) kept.mutable_plan()->set_lanes(kept.plan().trainers());
  ASSIGN_OR_RETURN(OwnPrograms own, MakeOwnPrograms(kept, startup, {.blocks = &updates, .lr_block = mode.lr_block()}));
  // Its learning rates must not stand in the place of a server's.
  for (v1::PlacedBlock& placed : *own.main.mutable_plan()->mutable_blocks()) placed.set_server(replica->number_);
  for (v1::OpAttr& attr : *own.main.mutable_blocks(0)->mutable_ops(0)->mutable_attrs()) {
    if (attr.name() == "server_id") attr.set_i(replica->number_);
  }
  ASSIGN_OR_RETURN(replica->params_, ServerParams::Create(own.main, own.startup, replica->number_, options.pool));
  ASSIGN_OR_RETURN(replica->norm_rounds_, NormRoundsOf(*options.main, mode));
  RETURN_IF_ERROR(replica->AddBlocks(held, mode.sharded()));
  return replica;
}

absl::Status DenseReplica::AddBlocks(const v1::Plan& plan, bool sharded) {
  for (const v1::PlacedBlock& placed : plan.blocks()) {
    if (sharded && (!placed.has_trainer() || placed.trainer() < 0 || placed.trainer() >= collective_.size())) {
      return absl::InvalidArgumentError(absl::StrCat("the plan has block '", placed.name(), "' for trainer ",
                                                     placed.has_trainer() ? placed.trainer() : -1, "; there are ",
                                                     collective_.size()));
    }
    const int index = static_cast<int>(blocks_.size());
    index_[placed.name()] = index;
    parameters_[placed.parameter()].push_back(index);
    blocks_.push_back({placed, params_->FindBlock(placed.name())});
  }
  if (!sharded) return absl::OkStatus();
  values_ = std::make_unique<GatheredValues>(std::vector<v1::PlacedBlock>(plan.blocks().begin(), plan.blocks().end()),
                                             &collective_);
  return absl::OkStatus();
}

std::string DenseReplica::NextName(std::string_view what) { return absl::StrCat(std::string(what), ".", ++exchanges_); }

int DenseReplica::FindBlock(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? -1 : found->second;
}

void DenseReplica::CopyBlock(int i, float* out) {
  const Block& from = block(i);
  if (values_ == nullptr) return params_->CopyBlock(from.target, 0, from.placed.element_count(), out, /*reader=*/0);
  const absl::Span<const float> values = values_->values(i);
  std::copy(values.begin(), values.end(), out);
}

absl::Status DenseReplica::CopyRows(std::string_view parameter, absl::Span<const int64_t> ids, int width, float* out) {
  if (values_ != nullptr) return values_->CopyRows(parameter, ids, width, out);
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
    if (values_ != nullptr) {
      const ProfileSpan span(step, ProfileKind::kWait, kNormsName);
      RETURN_IF_ERROR(AddSumsOfOthers(&sums));
    }
    RETURN_IF_ERROR(norms.OfferAlone(sums, first ? shared : Norms()));
  }
  RETURN_IF_ERROR(params_->Apply(step, gradients, ServerParams::StepPart::kWhole, norms.norms()));
  if (values_ == nullptr) return absl::OkStatus();
  const ProfileSpan span(step, ProfileKind::kBorder, kGatherName);
  const RowsByBlock rows = RowsOf(gradients);
  CopyShare(&rows);
  return values_->GatherStep(rows);
}

absl::StatusOr<NormSums> DenseReplica::FirstSums(int64_t step, absl::Span<const TrainerGradients> gradients,
                                                 const std::set<std::string>& of) {
  ASSIGN_OR_RETURN(NormSums sums, params_->SumsOfRound(step, gradients, /*round=*/0, /*norms=*/{}, /*keep=*/false));
  std::erase_if(sums, [&](const auto& sum) { return !of.contains(sum.first); });
  if (values_ != nullptr) RETURN_IF_ERROR(AddSumsOfOthers(&sums));
  return sums;
}

absl::Status DenseReplica::AddSumsOfOthers(NormSums* sums) {
  NormRounds own(1);
  own.Offer(std::move(*sums));
  v1::NormsReply reply;
  own.Fill(&reply);
  std::vector<std::string> all;
  RETURN_IF_ERROR(collective_.AllGatherBytes(NextName("norms"), reply.SerializeAsString(), &all)->Wait());
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

DenseReplica::RowsByBlock DenseReplica::RowsOf(absl::Span<const TrainerGradients> gradients) const {
  std::map<int, int> block_of;  // by target
  for (const int own : values_->own()) block_of[block(own).target] = own;
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

void DenseReplica::CopyShare(const RowsByBlock* rows) {
  std::vector<float> copied;
  for (const int own : values_->own()) {
    const v1::PlacedBlock& placed = block(own).placed;
    const absl::Span<float> to = values_->values(own);
    if (rows == nullptr || !placed.sparse_gradient()) {
      params_->CopyBlock(block(own).target, 0, placed.element_count(), to.data(), /*reader=*/0);
      continue;
    }
    const auto found = rows->find(own);
    if (found == rows->end()) continue;
    const auto width = static_cast<size_t>(params_->block(block(own).target).sparse_width);
    copied.resize(found->second.size() * width);
    params_->CopyRows(block(own).target, found->second, copied.data());
    for (size_t i = 0; i < found->second.size(); ++i) {
      std::copy_n(copied.begin() + static_cast<int64_t>(i * width), width,
                  to.begin() + found->second[i] * static_cast<int64_t>(width));
    }
  }
}

absl::Status DenseReplica::Gather() {
  if (values_ == nullptr) return absl::OkStatus();
  CopyShare(nullptr);
  return values_->GatherAll();
}

absl::Status DenseReplica::Broadcast(int root) {
  if (values_ != nullptr) return values_->Broadcast(root);
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
  const bool is_root = collective_.rank() == root;
  if (values_ == nullptr && !is_root) return replies;
  ASSIGN_OR_RETURN(replies.emplace_back(), Digest());
  if (values_ == nullptr) return replies;
  std::vector<std::string> all;
  RETURN_IF_ERROR(collective_.GatherBytes(NextName("digests"), replies[0].SerializeAsString(), root, &all)->Wait());
  replies.clear();
  for (size_t t = 0; t < all.size(); ++t) {
    if (replies.emplace_back().ParseFromString(all[t])) continue;
    return absl::DataLossError(absl::StrCat("the digests of trainer ", t, " cannot be read"));
  }
  return replies;
}

absl::StatusOr<v1::ControlReply> DenseReplica::DigestOfEqual() {
  if (values_ == nullptr) return Digest();
  // In the place of state: the values of this trainer's share, as it has updated them, beside its copy of the others.
  // So a trainer differs too if the copies of all lack what it has updated.
  v1::ControlReply reply;
  std::vector<float> updated;
  for (const auto& [parameter, indexes] : parameters_) {
    int64_t elements = 0;
    for (const int i : indexes) elements += block(i).placed.element_count();
    VariableDigester copied(parameter, elements), held(parameter, elements);
    for (const int i : indexes) {
      const int64_t begin = block(i).placed.element_begin();
      const absl::Span<const float> copy = values_->values(i);
      copied.AddValues(begin, copy);
      updated.assign(copy.begin(), copy.end());
      if (block(i).target >= 0) {
        params_->CopyBlock(block(i).target, 0, static_cast<int64_t>(updated.size()), updated.data(), /*reader=*/0);
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

absl::StatusOr<std::string> DenseReplica::AgreeOnSave(int root, std::string name) {
  if (collective_.rank() != root) name.clear();
  std::vector<std::string> all;
  RETURN_IF_ERROR(collective_.AllGatherBytes(NextName("save"), std::move(name), &all)->Wait());
  return std::move(all[static_cast<size_t>(root)]);
}

absl::StatusOr<std::vector<v1::CheckpointShard>> DenseReplica::SaveShards(int root, const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", ShardFileName(number_));
  absl::StatusOr<v1::CheckpointShard> shard;
  if (values_ != nullptr) {
    shard = params_->Save(path);
  } else {
    // Every trainer has all of it, and writes a part.
    shard = params_->Save(path, [parameters = WrittenParameters()](const DensePiece& piece) {
      return piece.variable == kLearningRateStates || parameters.contains(piece.variable);
    });
  }
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

absl::Status DenseReplica::Load(const std::string& directory, const v1::CheckpointManifest& manifest) {
  return params_->Load(directory, values_ == nullptr ? manifest : DenseShards(manifest));
}

absl::Status DenseReplica::LoadValues(const std::string& directory, const v1::CheckpointManifest& manifest) {
  if (values_ == nullptr) return Load(directory, manifest);
  for (const auto& [parameter, indexes] : parameters_) {
    ASSIGN_OR_RETURN(const WholeVariable whole, ReadWhole(directory, manifest, parameter, ""));
    RETURN_IF_ERROR(SetValues(parameter, whole.values));
  }
  return absl::OkStatus();
}

absl::Status DenseReplica::SetValues(const std::string& parameter, absl::Span<const float> whole) {
  const std::vector<int>& indexes = parameters_.find(parameter)->second;
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
    std::copy(from.begin(), from.end(), values_->values(i).begin());
  }
  return absl::OkStatus();
}

}  // namespace weir
