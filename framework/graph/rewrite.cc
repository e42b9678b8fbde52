#include "framework/graph/rewrite.h"

#include <map>
#include <utility>

#include "framework/graph/reported_loss.h"
#include "glog/logging.h"

namespace weir {
namespace {

std::map<int, Rewrite>& Registry() {
  static auto* const registry = new std::map<int, Rewrite>();
  return *registry;
}

}  // namespace

std::vector<Rewrite> Rewrites() {
  std::vector<Rewrite> rewrites;
  for (const auto& [place, rewrite] : Registry()) rewrites.push_back(rewrite);
  return rewrites;
}

RewriteRegistrar::RewriteRegistrar(Rewrite rewrite) {
  CHECK(rewrite.run != nullptr) << "rewrite " << rewrite.name << " does nothing";
  for (const auto& [place, other] : Registry()) {
    CHECK(other.name != rewrite.name) << "two rewrites are called " << rewrite.name;
    CHECK(place != rewrite.place) << "rewrites " << other.name << " and " << rewrite.name << " both have place "
                                  << place;
  }
  const int place = rewrite.place;
  Registry().emplace(place, std::move(rewrite));
}

OpRewriter::OpRewriter(v1::ProgramDesc* program) : block_(program->mutable_blocks(0)), vars_(*block_), uses_(*block_) {
  for (const v1::LossDesc& loss : program->losses()) {
    kept_.insert({loss.var(), ReportedLoss(*program, loss), loss.prediction(), loss.label(), loss.sample_weight()});
  }
  kept_.insert(program->kept().begin(), program->kept().end());
  for (const v1::OpDesc& op : block_->ops()) {
    for (const v1::ParamGrad& pair : op.param_grads()) kept_.insert({pair.param(), pair.grad()});
  }
}

absl::Span<const int> OpRewriter::PrivateReaders(const std::string& var) const {
  const v1::VarDesc* const desc = Var(var);
  if (desc == nullptr || desc->persistable() || kept_.contains(var) || uses_.OnlyWriter(var) < 0) return {};
  return uses_.Readers(var);
}

int OpRewriter::OnlyReader(const std::string& var) const {
  const absl::Span<const int> readers = PrivateReaders(var);
  return readers.size() == 1 ? readers[0] : -1;
}

void OpRewriter::Remove(int place) {
  CHECK(removed_.insert(place).second) << "op " << place << " is removed twice";
  uses_.Remove(place, op(place));
}

void OpRewriter::Put(int place, v1::OpDesc op) {
  if (removed_.erase(place) == 0) uses_.Remove(place, block_->ops(place));
  uses_.Add(place, op);
  *block_->mutable_ops(place) = std::move(op);
}

bool OpRewriter::Finish() {
  if (removed_.empty()) return false;
  google::protobuf::RepeatedPtrField<v1::OpDesc> ops;
  for (int i = 0; i < block_->ops_size(); ++i) {
    if (!removed_.contains(i)) *ops.Add() = std::move(*block_->mutable_ops(i));
  }
  block_->mutable_ops()->Swap(&ops);
  google::protobuf::RepeatedPtrField<v1::VarDesc> vars;
  for (v1::VarDesc& var : *block_->mutable_vars()) {
    if (!dropped_.contains(var.name())) *vars.Add() = std::move(var);
  }
  block_->mutable_vars()->Swap(&vars);
  return true;
}

}  // namespace weir
