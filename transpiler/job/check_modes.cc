#include "transpiler/job/check_modes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "transpiler/base/setting.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

// More batches in a step than that is a mistake.
constexpr int kMostBatches = 1 << 20;

absl::Status InRange(const Setting& at, std::string_view field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return at.Error(field, absl::StrCat("must be in [", least, ", ", most, "], got ", value));
}

absl::Status CheckBatches(const Job& job) {
  const v1::Train& train = job.config.train();
  const Setting at(&train, "train", &job.positions);
  RETURN_IF_ERROR(InRange(at, "accumulate_steps", train.accumulate_steps(), 1, kMostBatches));
  RETURN_IF_ERROR(InRange(at, "workers", train.workers(), 1, 1024));
  const v1::Distribute& distribute = job.config.distribute();
  if (train.workers() > 1 && !distribute.has_half_async()) {
    return at.Error("workers", absl::StrCat("is ", train.workers(),
                                            ", but only distribute.half_async has threads in step with "
                                            "each other: set it (and sync: false), or use "
                                            "train.threads for more cores"));
  }
  if (train.workers() == 1 && distribute.has_half_async()) {
    return Setting(&distribute, "distribute", &job.positions)
        .Error("half_async",
               "needs train.workers above 1: with one thread there is nothing to merge, and sync: false alone "
               "says the same");
  }
  return absl::OkStatus();
}

absl::Status CheckAsync(const Job& job, const Setting& at) {
  const v1::Distribute& distribute = job.config.distribute();
  const bool eager = distribute.async_apply() == v1::Distribute::EAGER;
  const auto* const mode = distribute.GetReflection()->GetOneofFieldDescriptor(
      distribute, v1::Distribute::descriptor()->FindOneofByName("async_mode"));
  const std::string of_async = mode != nullptr                       ? mode->name()
                               : distribute.has_delay_compensation() ? "delay_compensation"
                                                                     : "";
  if (!of_async.empty() && distribute.sync()) {
    return at.Error(of_async, "contradicts sync: true: it says how asynchronous trainers relate; set sync: false");
  }
  if (distribute.has_bounded_staleness()) {
    RETURN_IF_ERROR(
        InRange(at, "bounded_staleness.steps", distribute.bounded_staleness().steps(), 0, int64_t{1} << 40));
    if (eager) {
      return at.Error("bounded_staleness",
                      "contradicts async_apply: EAGER: the bound counts steps that took effect as a whole");
    }
  }
  if (distribute.has_geo()) {
    RETURN_IF_ERROR(InRange(at, "geo.every_steps", distribute.geo().every_steps(), 1, int64_t{1} << 40));
    if (eager) {
      return at.Error("geo", "contradicts async_apply: EAGER: the differences of an exchange take effect as a whole");
    }
    if (distribute.has_delay_compensation()) {
      return at.Error("delay_compensation",
                      "contradicts geo: there trainers push differences of parameters, not gradients");
    }
  }
  const double lambda = distribute.delay_compensation().lambda();
  if (distribute.has_delay_compensation() && !(lambda >= 0 && std::isfinite(lambda))) {
    return at.Error("delay_compensation.lambda", absl::StrCat("must be finite and not negative, got ", lambda));
  }
  return absl::OkStatus();
}

absl::Status CheckAsyncTables(const Job& job, const Setting& at) {
  const v1::Distribute& distribute = job.config.distribute();
  if (!distribute.async_tables()) return absl::OkStatus();
  if (!distribute.sync()) {
    return at.Error("async_tables", "says nothing with sync: false: tables do not wait there anyway");
  }
  if (distribute.reproducible()) {
    return at.Error("async_tables",
                    "makes the result depend on who comes first: set distribute.reproducible: false to permit "
                    "that");
  }
  if (distribute.average() == v1::Distribute::BY_TRAINERS) {
    return at.Error("async_tables",
                    "contradicts average: BY_TRAINERS: a table's rows are updated by one trainer at a time");
  }
  const auto& tables = job.config.table();
  const bool any =
      std::any_of(tables.begin(), tables.end(), [](const v1::Table& table) { return table.is_distributed(); });
  if (job.config.has_model() && !any) {
    return at.Error("async_tables", "has nothing to act on: no table of the job is_distributed");
  }
  return absl::OkStatus();
}

absl::Status CheckPrefetchRows(const Job& job, const Setting& at) {
  const v1::Distribute& distribute = job.config.distribute();
  if (!distribute.prefetch_rows()) return absl::OkStatus();
  if (distribute.sync() && distribute.async_tables()) {
    return at.Error("prefetch_rows",
                    "contradicts async_tables, whose rows take effect at no border at which those read ahead could be "
                    "corrected; leave out one of the two");
  }
  if (distribute.has_geo()) {
    return at.Error("prefetch_rows",
                    "contradicts geo: its trainers read their own copies, and ask for a row once an exchange");
  }
  if (distribute.has_bounded_staleness() && distribute.bounded_staleness().steps() == 0) {
    return at.Error("prefetch_rows",
                    "contradicts bounded_staleness.steps: 0, whose rows hold all steps before: one that is read a "
                    "step ahead misses the trainer's own; set steps to 1 or more, or leave it out");
  }
  return absl::OkStatus();
}

absl::Status CheckServersInTrainers(const Job& job, const Setting& at) {
  const v1::Distribute& distribute = job.config.distribute();
  if (distribute.servers() != 0 || distribute.sync()) return absl::OkStatus();
  return at.Error("servers",
                  "0 contradicts sync: false: asynchronous trainers go on when one of them dies, but with servers: 0 "
                  "its part of the parameters dies too; set sync: true, or servers to 1 or more");
}

// Returns why trainers of one host cannot merge, with the way out; null if they can.
const char* WhyNotMerged(const v1::Distribute& distribute) {
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
  if (distribute.servers() == 0 && !AllReduces(distribute)) {
    return "needs servers or dense: ALL_REDUCE: hosts merge what goes to servers, and what trainers add among "
           "themselves, but not what goes to the parts of the parameters that other trainers hold; set servers to 1 or "
           "more, or dense: ALL_REDUCE";
  }
  return nullptr;
}

absl::Status CheckMergeHosts(const Job& job, const Setting& at) {
  const v1::Distribute& distribute = job.config.distribute();
  const char* const why_not = WhyNotMerged(distribute);
  if (distribute.merge_hosts() != v1::Distribute::true_) return absl::OkStatus();
  if (why_not != nullptr) return at.Error("merge_hosts", absl::StrCat("true ", why_not, ", or leave out merge_hosts"));
  if (!job.config.cluster().shared_memory()) {
    return at.Error("merge_hosts",
                    "true contradicts cluster.shared_memory: false: trainers of a host merge through memory that they "
                    "share; leave out one of them");
  }
  const v1::Comm::Backend backend = job.config.comm().backend();
  if (distribute.servers() > 0 || backend == v1::Comm::AUTO || backend == v1::Comm::WIRE) return absl::OkStatus();
  return at.Error("merge_hosts", absl::StrCat("true needs comm.backend: WIRE, which shares memory on a host; this is ",
                                              v1::Comm::Backend_Name(backend),
                                              ": set backend to WIRE or AUTO, or leave out merge_hosts"));
}

// Returns whether values that the servers hold as `storage` lose nothing on the way.
bool IsExact(v1::WireFormat format, v1::DType storage) {
  return (format == v1::WIRE_FLOAT16 && storage == v1::FLOAT16) ||
         (format == v1::WIRE_BFLOAT16 && storage == v1::BFLOAT16);
}

absl::Status CheckWire(const Job& job, const Setting& at, const v1::Wire& wire, v1::DType storage) {
  const v1::Distribute& distribute = job.config.distribute();
  for (const auto& [field, format] : {std::pair("wire.pull", wire.pull()), std::pair("wire.push", wire.push())}) {
    if (format == v1::WIRE_FLOAT32) continue;
    if (distribute.has_geo()) {
      return at.Error(field, absl::StrCat(v1::WireFormat_Name(format),
                                          " contradicts geo: a trainer takes what it reads for what the servers have"));
    }
    const bool pull = field == std::string_view("wire.pull");
    if (distribute.sync() && distribute.reproducible() && !(pull && IsExact(format, storage))) {
      return at.Error(field, absl::StrCat(v1::WireFormat_Name(format),
                                          " loses bits, and which ones depends on the number of trainers: set "
                                          "distribute.reproducible: false to permit that"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWires(const Job& job) {
  RETURN_IF_ERROR(CheckWire(job, Setting(&job.config.distribute(), "distribute", &job.positions),
                            job.config.distribute().wire(), v1::FLOAT32));
  for (int i = 0; i < job.config.table_size(); ++i) {
    const v1::Table& table = job.config.table(i);
    if (!table.has_wire()) continue;
    const Setting at(&table, absl::StrCat("table[", i, "]"), &job.positions);
    if (!table.is_distributed()) {
      return at.Error("wire", absl::StrCat("is for tables with is_distributed: true; '", table.name(),
                                           "' travels as distribute.wire says"));
    }
    RETURN_IF_ERROR(CheckWire(job, at, table.wire(), table.storage()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModes(const Job& job) {
  const Setting at(&job.config.distribute(), "distribute", &job.positions);
  RETURN_IF_ERROR(CheckCorner(job));
  RETURN_IF_ERROR(CheckAsync(job, at));
  RETURN_IF_ERROR(CheckAsyncTables(job, at));
  RETURN_IF_ERROR(CheckServersInTrainers(job, at));
  RETURN_IF_ERROR(CheckPrefetchRows(job, at));
  RETURN_IF_ERROR(CheckMergeHosts(job, at));
  RETURN_IF_ERROR(CheckWires(job));
  return CheckBatches(job);
}

absl::Status CheckVerifiable(const Job& job) {
  const v1::Distribute& distribute = job.config.distribute();
  if (!distribute.sync()) {
    return job.positions.Error(
        "distribute.sync",
        "--verify needs sync: without it the result depends on who comes first; --set distribute.sync=true");
  }
  if (distribute.average() == v1::Distribute::BY_TRAINERS) {
    return job.positions.Error("distribute.average",
                               "--verify needs BY_SAMPLES: the mean of trainers depends on their number");
  }
  if (distribute.has_local_sgd()) {
    return job.positions.Error("distribute.local_sgd",
                               "--verify compares with one trainer after each step: trainers that update by themselves "
                               "between averages differ from it; leave local_sgd out");
  }
  if (Compresses(distribute)) {
    return job.positions.Error("distribute.all_reduce.compression",
                               "--verify needs sums that are not rounded on the way; --set "
                               "distribute.all_reduce.compression=NONE");
  }
  if (distribute.async_tables()) {
    return job.positions.Error("distribute.async_tables",
                               "--verify needs sync tables: without it the result depends on who comes first");
  }
  return absl::OkStatus();
}

v1::Plan::MergeHosts MergeHostsOf(const v1::Distribute& distribute) {
  if (distribute.merge_hosts() == v1::Distribute::false_ || WhyNotMerged(distribute) != nullptr) return v1::Plan::OFF;
  return distribute.merge_hosts() == v1::Distribute::true_ ? v1::Plan::ON : v1::Plan::AUTO;
}

v1::Plan::MergeHosts MergeTowardsServersOf(const v1::Distribute& distribute) {
  return distribute.servers() == 0 ? v1::Plan::OFF : MergeHostsOf(distribute);
}

bool SavesOptimizerState(const v1::Distribute& distribute) { return !distribute.has_geo(); }

}  // namespace weir
