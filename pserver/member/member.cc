#include "pserver/member/member.h"

#include <utility>

namespace weir {

Member::Member(CallSettings settings)
    : settings_(std::move(settings)),
      waits_(std::make_shared<Waits>()),
      sessions_(std::make_shared<Sessions>(settings_.job_name, settings_.trainer_id, settings_.servers())),
      counters_(std::make_shared<CallCounters>(settings_.trainer_id)),
      job_(std::make_shared<JobView>(settings_.trainers, [waits = waits_] { waits->Wake(); })),
      heartbeats_(&settings_, sessions_, job_, waits_, counters_),
      calls_(&settings_, sessions_, job_, waits_, counters_, &heartbeats_),
      membership_(&settings_, sessions_, job_, &heartbeats_, &calls_),
      exchanges_(&calls_, job_),
      exchanges_beside_(&calls_, job_, Waits::kBeside) {}

}  // namespace weir
