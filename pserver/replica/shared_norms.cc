#include "pserver/replica/shared_norms.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "framework/base/status_macros.h"
#include "framework/graph/norms_with_tables.h"
#include "glog/logging.h"
#include "proto/parameter_server.pb.h"

namespace weir {

std::unique_ptr<SharedNorms> SharedNorms::Create(const v1::ProgramDesc& main, DenseReplica* replica) {
  std::set<std::string> names = NormsWithTables(main);
  if (names.empty()) return nullptr;
  return std::unique_ptr<SharedNorms>(new SharedNorms(std::move(names), replica));
}

SharedNorms::~SharedNorms() {
  if (pending_ != nullptr) pending_->Wait().IgnoreError();
}

void SharedNorms::Begin(int64_t samples, Gradients gradients) {
  gradients_ = std::move(gradients);
  norms_.clear();
  summed_ = false;
  std::string bytes(sizeof(samples), '\0');
  std::memcpy(bytes.data(), &samples, sizeof(samples));
  pending_ = replica_.collective().AllGatherBytes("samples", std::move(bytes), &samples_);
}

absl::Status SharedNorms::Wait() { return pending_->Wait(); }

absl::StatusOr<int64_t> SharedNorms::AllSamples() {
  RETURN_IF_ERROR(Wait());
  int64_t all = 0;
  for (size_t t = 0; t < samples_.size(); ++t) {
    int64_t samples = -1;
    if (samples_[t].size() == sizeof(samples)) std::memcpy(&samples, samples_[t].data(), sizeof(samples));
    if (samples < 0 || __builtin_add_overflow(all, samples, &all)) {
      return absl::DataLossError(absl::StrCat("the samples of trainer ", t, " cannot be read"));
    }
  }
  return all;
}

absl::StatusOr<NormSums> SharedNorms::Sums(int64_t step) {
  CHECK(gradients_ != nullptr);
  summed_ = true;
  ASSIGN_OR_RETURN(const int64_t samples, AllSamples());
  // A step without samples has no norms.
  if (samples == 0) return NormSums();
  ASSIGN_OR_RETURN(const TrainerGradients gradients, gradients_(samples));
  return replica_.FirstSums(step, absl::MakeConstSpan(&gradients, 1), names_);
}

absl::Status SharedNorms::Finish(int64_t step) {
  if (summed_ || !replica_.sharded()) return Wait();
  return Sums(step).status();
}

absl::StatusOr<Norms> SharedNorms::Exchange() {
  v1::NormsRequest mine;
  for (const std::string& name : names_) {
    const auto found = norms_.find(name);
    if (found == norms_.end()) continue;
    v1::WholeNorm* const norm = mine.add_norms();
    norm->set_name(name);
    norm->set_norm(found->second);
  }
  std::vector<std::string> all;
  RETURN_IF_ERROR(replica_.collective().AllGatherBytes("norms", mine.SerializeAsString(), &all)->Wait());
  v1::NormsRequest given;
  if (!given.ParseFromString(all[0])) return absl::DataLossError("the norms of trainer 0 cannot be read");
  Norms norms;
  for (const v1::WholeNorm& norm : given.norms()) {
    if (std::isfinite(norm.norm()) && norm.norm() >= 0) norms[norm.name()] = norm.norm();
  }
  for (const std::string& name : names_) {
    if (!norms.contains(name)) {
      return absl::DataLossError(
          absl::StrCat("trainer 0 gives no norm of '", name, "' that is finite and not negative"));
    }
  }
  if (norms.size() != names_.size()) return absl::DataLossError("trainer 0 gives norms that nobody asked for");
  return norms;
}

}  // namespace weir
