#include "pserver/server/push_reader.h"

#include "absl/strings/str_cat.h"
#include "framework/profile/profiler.h"
#include "framework/wire/frame.h"
#include "pserver/params/push_parser.h"

namespace weir {

namespace {

const ProfileName kReadPush("read pushes");

}  // namespace

PushReader::PushReader(ServerParams* params, BufferPool* buffers, int lanes, int trainers, bool checksums)
    : params_(params), buffers_(buffers), checksums_(checksums) {
  for (int t = 0; t < trainers; ++t) nodes_.push_back(AlignedNodes(LanesOfTrainer(lanes, trainers, t)));
}

absl::Status PushReader::Read(const v1::PushRequest& request, const Slices& payload,
                              std::vector<Gradient>* gradients) const {
  const int trainer = request.caller().trainer();
  ProfileSpan span(request.step(), ProfileKind::kServe, kReadPush);
  if (ProfileEvent* const event = span.event()) event->peer = trainer;
  uint64_t checksum = 0;
  const Slice whole = checksums_ ? Contiguous(payload, buffers_, &checksum) : Contiguous(payload, buffers_);
  if (checksums_ && request.checksum() != checksum) {
    return absl::DataLossError(absl::StrCat("Push: trainer ", trainer, ", step ", request.step(), ", part ",
                                            request.part(), ": the payload's checksum does not match"));
  }
  return ParseGradients(request, whole, nodes(trainer), *params_, gradients);
}

}  // namespace weir
