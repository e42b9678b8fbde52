#include "transpiler/job/merge_hosts.h"

#include "absl/strings/str_cat.h"
#include "transpiler/base/setting.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

// Returns why trainers of one host cannot merge, with the way out; null if they can.
const char* WhyNot(const v1::Distribute& distribute) {
  if (!distribute.sync()) {
    return "contradicts sync: false: each trainer's step takes effect by itself, so nothing of a host can be added; "
           "set sync: true";
  }
  if (distribute.async_tables()) {
    return "contradicts async_tables: the rows of each trainer take effect by themselves, so nothing of a host can be "
           "added; leave out async_tables";
  }
  if (distribute.average() == v1::Distribute::BY_TRAINERS) {
    return "contradicts average: BY_TRAINERS: servers need the mean of each trainer, not the sum of a host; set "
           "average: BY_SAMPLES";
  }
  if (distribute.servers() == 0) {
    return "needs servers, which this job does not have: in this version hosts merge what goes to servers, not what "
           "trainers exchange among themselves; set servers to 1 or more";
  }
  return nullptr;
}

}  // namespace

v1::Plan::MergeHosts MergeHostsOf(const v1::Distribute& distribute) {
  if (distribute.merge_hosts() == v1::Distribute::false_ || WhyNot(distribute) != nullptr) return v1::Plan::OFF;
  return distribute.merge_hosts() == v1::Distribute::true_ ? v1::Plan::ON : v1::Plan::AUTO;
}

absl::Status CheckMergeHosts(const Job& job) {
  const v1::Distribute& distribute = job.config.distribute();
  const char* const why_not = WhyNot(distribute);
  if (distribute.merge_hosts() != v1::Distribute::true_ || why_not == nullptr) return absl::OkStatus();
  return Setting(&distribute, "distribute", &job.positions)
      .Error("merge_hosts", absl::StrCat("true ", why_not, ", or leave out merge_hosts"));
}

}  // namespace weir
