#include "pserver/member/member.h"

#include <utility>

#include "framework/base/status_macros.h"
#include "pserver/member/messages.h"

namespace weir {

Member::Member(CallSettings settings, std::string checkpoint_dir)
    : settings_(std::move(settings)),
      waits_(std::make_shared<Waits>()),
      sessions_(std::make_shared<Sessions>(settings_.job_name, settings_.trainer_id, settings_.servers())),
      counters_(std::make_shared<CallCounters>(settings_.trainer_id)),
      job_(std::make_shared<JobView>(settings_.trainers, [waits = waits_] { waits->Wake(); })),
      heartbeats_(&settings_, sessions_, job_, waits_, counters_),
      calls_(&settings_, sessions_, job_, waits_, counters_, &heartbeats_),
      membership_(&settings_, sessions_, job_, &heartbeats_, &calls_),
      exchanges_(&calls_, job_),
      exchanges_beside_(&calls_, job_, Waits::kBeside),
      joined_(&settings_, std::move(checkpoint_dir)) {}

absl::Status Member::Join(const v1::JoinRequest& introduction) {
  return membership_.Join(introduction,
                          [this](int server, const v1::JoinReply& reply) { return joined_.Take(server, reply); });
}

absl::StatusOr<std::vector<v1::ControlReply>> Member::Control(const v1::ControlRequest& request, bool until_stop) {
  std::vector<v1::ControlReply> replies(static_cast<size_t>(settings_.servers()));
  std::vector<CallPtr> calls;
  for (int s = 0; s < settings_.servers(); ++s) {
    v1::ControlRequest own = request;
    *own.mutable_caller() = calls_.CallerFor(s);
    own.set_request_id(next_request_++);
    calls.push_back(
        Calls::New(s, Method::kControl, MessageBytes(own), [s, &replies](const Slices& answer) -> absl::StatusOr<bool> {
          ASSIGN_OR_RETURN(replies[static_cast<size_t>(s)], ParseMessage<v1::ControlReply>(answer));
          return true;
        }));
  }
  RETURN_IF_ERROR(calls_.Wait(calls, "a control call", settings_.progress_deadline, {.until_stop = until_stop}));
  return replies;
}

}  // namespace weir
