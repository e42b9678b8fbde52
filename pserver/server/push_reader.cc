#include "pserver/server/push_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"
#include "framework/wire/frame.h"
#include "pserver/params/push_parser.h"

namespace weir {

namespace {

const ProfileName kReadPush("read pushes");

}  // namespace

PushReader::PushReader(ServerParams* params, BufferPool* buffers, int lanes, int trainers, bool checksums)
    : params_(params), buffers_(buffers), checksums_(checksums), job_lanes_(lanes) {
  for (int t = 0; t < trainers; ++t) nodes_.push_back(AlignedNodes(LanesOfTrainer(lanes, trainers, t)));
}

absl::Status PushReader::CheckMerged(const v1::PushRequest& request) const {
  const int trainers = static_cast<int>(nodes_.size());
  int above = -1;
  for (const v1::MergedTrainer& merged : request.merged()) {
    const int trainer = merged.trainer();
    if (trainer > above && trainer < trainers && trainer != request.caller().trainer()) {
      above = trainer;
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("Push: trainer ", request.caller().trainer(), ", step ", request.step(), ", part ", request.part(),
                     ": it is merged with trainer ", trainer, above < 0 ? "" : absl::StrCat(" after trainer ", above),
                     "; the others of trainers 0 to ", trainers - 1, " may be named, ascending"));
  }
  return absl::OkStatus();
}

std::vector<LaneRange> PushReader::MergedNodes(const v1::PushRequest& request) const {
  std::vector<int> trainers = {request.caller().trainer()};
  for (const v1::MergedTrainer& merged : request.merged()) trainers.push_back(merged.trainer());
  std::sort(trainers.begin(), trainers.end());
  return NodesOfTrainers(job_lanes_, static_cast<int>(nodes_.size()), trainers);
}

absl::Status PushReader::Read(const v1::PushRequest& request, const Slices& payload,
                              std::vector<Gradient>* gradients) const {
  RETURN_IF_ERROR(CheckMerged(request));
  const int trainer = request.caller().trainer();
  ProfileSpan span(request.step(), ProfileKind::kServe, kReadPush);
  if (ProfileEvent* const event = span.event()) event->peer = trainer;
  uint64_t checksum = 0;
  const Slice whole = checksums_ ? Contiguous(payload, buffers_, &checksum) : Contiguous(payload, buffers_);
  if (checksums_ && request.checksum() != checksum) {
    return absl::DataLossError(absl::StrCat("Push: trainer ", trainer, ", step ", request.step(), ", part ",
                                            request.part(), ": the payload's checksum does not match"));
  }
  if (!request.merged().empty()) return ParseGradients(request, whole, MergedNodes(request), *params_, gradients);
  return ParseGradients(request, whole, nodes(trainer), *params_, gradients);
}

}  // namespace weir
