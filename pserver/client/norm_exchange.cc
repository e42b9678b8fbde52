#include "pserver/client/norm_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"
#include "pserver/member/messages.h"

namespace weir {

namespace {

const ProfileName kNormsName("norms");

bool IsOver(const v1::NormsReply& reply) { return reply.over(); }

// Returns the norms of the sums of all servers, and of `sums`.
absl::StatusOr<Norms> NormsOfAll(const std::vector<v1::NormsReply>& replies, NormSums sums, int64_t step) {
  for (const v1::NormsReply& reply : replies) RETURN_IF_ERROR(AddSums(reply, &sums));
  absl::StatusOr<Norms> norms = NormsOf(sums);
  if (norms.ok()) return norms;
  return absl::Status(norms.status().code(), absl::StrCat("step ", step, ": ", norms.status().message()));
}

}  // namespace

CallPtr NormExchange::NewCall(int server, int64_t step, int round, const Norms& norms, v1::NormsReply* reply) {
  v1::NormsRequest request;
  *request.mutable_caller() = calls_.CallerFor(server);
  request.set_step(step);
  request.set_round(round);
  request.set_wait_s(calls_.settings().ServerWaitSeconds());
  for (const v1::PartialSum& part : reply->sums()) {
    v1::WholeNorm* const norm = request.add_norms();
    norm->set_name(part.name());
    norm->set_norm(norms.find(part.name())->second);
  }
  CallPtr call =
      Calls::New(server, Method::kNorms, MessageBytes(request),
                 [this, server, reply](const Slices& answer) -> absl::StatusOr<bool> {
                   ASSIGN_OR_RETURN(v1::NormsReply got, ParseMessage<v1::NormsReply>(answer));
                   if (got.ready()) {
                     *reply = std::move(got);
                     return true;
                   }
                   waits_.SetOn(Waits::kProgram,
                                absl::StrCat("server ", server, ": ", Printable(got.waiting_for(), kMaxFailureText)));
                   return false;
                 });
  call->needs_trainers = calls_.settings().needs_all_trainers;
  return call;
}

absl::Status NormExchange::Run(int64_t step, const std::vector<int>& rounds, NormParty* party) {
  const CallSettings& settings = calls_.settings();
  std::vector<v1::NormsReply> replies(rounds.size());
  Norms norms;
  for (int round = 0;; ++round) {
    std::vector<CallPtr> calls;
    int over = 0;
    for (int s = 0; s < settings.servers(); ++s) {
      const size_t at = static_cast<size_t>(s);
      if (rounds[at] == 0 || rounds[at] < round) continue;
      if (replies[at].over()) {
        ++over;
      } else {
        calls.push_back(NewCall(s, step, round, norms, &replies[at]));
      }
    }
    if (calls.empty()) return absl::OkStatus();
    // A step that was skipped is over for all; one that took effect here without the norms of others cannot be.
    if (over > 0) {
      return absl::InternalError(
          absl::StrCat("step ", step, " is over on ", over, " servers while others wait for its norms"));
    }
    RETURN_IF_ERROR(calls_.Wait(calls, absl::StrCat("norms of step ", step),
                                settings.progress_deadline + 2 * settings.lease, {.profiled_as = &kNormsName}));
    // A step that is skipped has no norms.
    const bool asks = party != nullptr && round == 0 && std::none_of(replies.begin(), replies.end(), IsOver);
    NormSums of_party;
    if (asks) {
      waits_.SetOn(Waits::kProgram, "gradients and norms of the other trainers");
      absl::StatusOr<NormSums> sums = party->Sums(step);
      waits_.End(Waits::kProgram);
      ASSIGN_OR_RETURN(of_party, std::move(sums));
    }
    ASSIGN_OR_RETURN(norms, NormsOfAll(replies, std::move(of_party), step));
    if (asks) party->Take(norms);
  }
}

}  // namespace weir
