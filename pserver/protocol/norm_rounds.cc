#include "pserver/protocol/norm_rounds.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {

absl::StatusOr<Norms> NormsOf(const NormSums& totals) {
  Norms norms;
  for (const auto& [name, sum] : totals) {
    const double norm = std::sqrt(sum.Rounded());
    if (!std::isfinite(norm)) {
      return absl::OutOfRangeError(absl::StrCat("the norm of ", name, " is ", norm, ": it holds a NaN or an infinity"));
    }
    norms[name] = norm;
  }
  return norms;
}

absl::Status AddSums(const v1::NormsReply& reply, NormSums* totals) {
  for (const v1::PartialSum& part : reply.sums()) {
    const absl::StatusOr<ExactSum> sum = ExactSum::FromBytes(part.sum());
    if (!sum.ok())
      return absl::DataLossError(absl::StrCat("sum of ", part.name().substr(0, 200), ": ", sum.status().message()));
    (*totals)[part.name()].Add(*sum);
  }
  return absl::OkStatus();
}

void NormRounds::Offer(NormSums sums) {
  CHECK(!offered_ && !Complete());
  sums_ = std::move(sums);
  offered_ = true;
}

absl::Status NormRounds::OfferAlone(const NormSums& sums, const Norms& known) {
  CHECK(!offered_ && !Complete());
  ASSIGN_OR_RETURN(Norms norms, NormsOf(sums));
  norms_.merge(norms);
  norms_.insert(known.begin(), known.end());
  ++round_;
  return absl::OkStatus();
}

absl::Status NormRounds::Book(int round, const google::protobuf::RepeatedPtrField<v1::WholeNorm>& norms) {
  if (round >= 0 && round < round_) return absl::OkStatus();
  if (round != round_ || !offered_) {
    return absl::FailedPreconditionError(absl::StrCat("norms of round ", round, " have come, while round ", round_,
                                                      " of ", rounds_, " is ", offered_ ? "" : "not ",
                                                      "waiting for any"));
  }
  if (norms.size() != static_cast<int>(sums_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(norms.size(), " norms have come, ", sums_.size(), " sums were given out"));
  }
  Norms booked;
  for (const v1::WholeNorm& norm : norms) {
    if (!sums_.contains(norm.name()) || booked.contains(norm.name())) {
      return absl::InvalidArgumentError(absl::StrCat("the norm of ", norm.name().substr(0, 200), " has come ",
                                                     booked.contains(norm.name()) ? "twice" : "and was not asked for"));
    }
    if (!std::isfinite(norm.norm()) || norm.norm() < 0) {
      return absl::InvalidArgumentError(absl::StrCat("the norm of ", norm.name().substr(0, 200), " is ", norm.norm()));
    }
    booked[norm.name()] = norm.norm();
  }
  norms_.merge(booked);
  sums_.clear();
  offered_ = false;
  ++round_;
  return absl::OkStatus();
}

void NormRounds::Fill(v1::NormsReply* reply) const {
  for (const auto& [name, sum] : sums_) {
    v1::PartialSum* const part = reply->add_sums();
    part->set_name(name);
    part->set_sum(sum.ToBytes());
  }
}

}  // namespace weir
