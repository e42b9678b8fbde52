#include "pserver/embedded/dense_replica.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/shard.h"
#include "framework/graph/placement.h"
#include "framework/graph/training_mode.h"
#include "glog/logging.h"
#include "pserver/embedded/own_programs.h"
#include "pserver/protocol/norm_rounds.h"
#include "pserver/server/server_params.h"

namespace weir {

namespace {

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

}  // namespace

DenseReplica::DenseReplica(Collective* collective) : collective_(*collective) {}
DenseReplica::~DenseReplica() = default;

absl::StatusOr<std::unique_ptr<DenseReplica>> DenseReplica::Create(const Options& options) {
  std::unique_ptr<DenseReplica> replica(new DenseReplica(options.collective));
  const v1::AllReduceMode mode = ModeOf(*options.main).all_reduce();
  const int number = options.main->plan().servers();
  v1::ProgramDesc kept = *options.main;
  KeepOwn(&kept);
  // Without lanes every trainer is a leaf of the tree in which its rows are added.
  if (kept.plan().lanes() == 0) kept.mutable_plan()->set_lanes(kept.plan().trainers());
  ASSIGN_OR_RETURN(OwnPrograms own,
                   MakeOwnPrograms(kept, *options.startup, {.blocks = &mode.blocks(), .lr_block = mode.lr_block()}));
  // Its learning rates must not stand in the place of a server's.
  for (v1::PlacedBlock& placed : *own.main.mutable_plan()->mutable_blocks()) placed.set_server(number);
  for (v1::OpAttr& attr : *own.main.mutable_blocks(0)->mutable_ops(0)->mutable_attrs()) {
    if (attr.name() == "server_id") attr.set_i(number);
  }
  ASSIGN_OR_RETURN(replica->params_, ServerParams::Create(own.main, own.startup, number, options.pool));
  replica->shard_file_ = ShardFileName(number);
  return replica;
}

absl::Status DenseReplica::Update(int64_t step, absl::Span<const TrainerGradients> gradients) {
  if (gradients.empty()) return params_->PrepareRates(step);
  NormRounds norms(params_->norm_rounds());
  while (!norms.Complete()) {
    ASSIGN_OR_RETURN(const NormSums sums,
                     params_->SumsOfRound(step, gradients, norms.round(), norms.norms(), /*keep=*/true));
    RETURN_IF_ERROR(norms.OfferAlone(sums));
  }
  return params_->Apply(step, gradients, ServerParams::StepPart::kWhole, norms.norms());
}

absl::StatusOr<v1::ControlReply> DenseReplica::Digest() {
  v1::ControlReply reply;
  RETURN_IF_ERROR(params_->Digest(&reply));
  return reply;
}

absl::StatusOr<v1::CheckpointShard> DenseReplica::Save(const std::string& directory) {
  return params_->Save(absl::StrCat(directory, "/", shard_file_));
}

absl::Status DenseReplica::Load(const std::string& directory, const v1::CheckpointManifest& manifest) {
  return params_->Load(directory, manifest);
}

absl::Status DenseReplica::Broadcast(int root) {
  ++exchanges_;
  int piece = 0;
  return params_->ExchangeDense([&](absl::Span<float> bits) -> absl::Status {
    const std::string name = absl::StrCat("broadcast.", exchanges_, ".", piece++);
    return collective_.Broadcast(name, v1::FLOAT32, {static_cast<int64_t>(bits.size())}, root, bits.data())->Wait();
  });
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
                      .AllReduce({.name = absl::StrCat("average.", ++exchanges_),
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
  ASSIGN_OR_RETURN(const v1::ControlReply own, Digest());
  std::vector<std::string> all;
  RETURN_IF_ERROR(
      collective_.AllGatherBytes(absl::StrCat("digests.", ++exchanges_), own.SerializeAsString(), &all)->Wait());
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

}  // namespace weir
