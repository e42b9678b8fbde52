#include "transpiler/job/corner.h"

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/base/setting.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

// A smaller bucket would cost more for its headers than for its values.
constexpr int64_t kLeastBucket = 4096;

std::string ModeName(const v1::Distribute& distribute) { return v1::Distribute::Mode_Name(distribute.mode()); }

absl::Status CheckMode(const Setting& at, const v1::Distribute& distribute) {
  if (!distribute.has_mode()) return absl::OkStatus();
  const bool names_servers = distribute.mode() == v1::Distribute::PSERVER;
  if (names_servers && distribute.dense() == v1::Distribute::ALL_REDUCE) {
    return at.Error("mode", "PSERVER contradicts dense: ALL_REDUCE: it says that servers hold dense parameters");
  }
  if (!names_servers && distribute.has_dense() && distribute.dense() == v1::Distribute::SERVERS) {
    return at.Error("mode", absl::StrCat(ModeName(distribute),
                                         " contradicts dense: SERVERS: it says that trainers add "
                                         "dense gradients among themselves"));
  }
  if (!names_servers && distribute.servers() > 0 && distribute.has_servers() && !distribute.has_dense()) {
    return at.Error("mode", absl::StrCat(ModeName(distribute), " is a job without servers, and distribute.servers is ",
                                         distribute.servers(),
                                         ": set dense: ALL_REDUCE to have rows of tables on servers, or servers: 0"));
  }
  return absl::OkStatus();
}

// Checks that nothing is set that is only about all-reduce of dense gradients.
absl::Status CheckWithoutAllReduce(const Job& job, const Setting& at) {
  const v1::Distribute& distribute = job.config.distribute();
  for (const auto& [field, set] :
       {std::pair("all_reduce", distribute.has_all_reduce()), std::pair("update", distribute.has_update()),
        std::pair("local_sgd", distribute.has_local_sgd())}) {
    if (set) return at.Error(field, "says nothing with dense: SERVERS: it is about dense: ALL_REDUCE");
  }
  if (!job.config.has_comm()) return absl::OkStatus();
  return job.positions.Error("comm", "says nothing with distribute.dense: SERVERS: it is about dense: ALL_REDUCE");
}

absl::Status CheckLocalSgd(const Setting& at, const v1::Distribute& distribute) {
  if (!distribute.has_local_sgd()) return absl::OkStatus();
  const int64_t every = distribute.local_sgd().every_steps();
  if (every < 1) return at.Error("local_sgd.every_steps", absl::StrCat("must be at least 1, got ", every));
  if (distribute.reproducible()) {
    return at.Error("local_sgd",
                    "needs distribute.reproducible: false: with it parameters depend on the number of trainers");
  }
  if (distribute.update() == v1::Distribute::SHARDED) {
    return at.Error("local_sgd", "contradicts update: SHARDED: every trainer updates all parameters between averages");
  }
  if (distribute.has_all_reduce()) {
    return at.Error("all_reduce", "says nothing with local_sgd: gradients do not leave their trainer");
  }
  return absl::OkStatus();
}

// Checks the settings of how gradients are added: all_reduce.compression and all_reduce.reduction.
absl::Status CheckSums(const Job& job, const Setting& at) {
  const v1::Distribute& distribute = job.config.distribute();
  const std::string format = v1::AllReduce::Compression_Name(distribute.all_reduce().compression());
  if (Compresses(distribute)) {
    if (distribute.reproducible()) {
      return at.Error("all_reduce.compression",
                      absl::StrCat(format,
                                   " rounds the sum of each trainer, so that the result depends on their number: set "
                                   "distribute.reproducible: false to permit that"));
    }
    if (distribute.update() == v1::Distribute::SHARDED) {
      return at.Error("all_reduce.compression", absl::StrCat(format,
                                                             " contradicts distribute.update: SHARDED, whose gradients "
                                                             "are added for their owner alone: leave one of them out"));
    }
    if (UsesAdasum(distribute)) {
      return at.Error("all_reduce.compression", absl::StrCat(format,
                                                             " contradicts all_reduce.reduction: ADASUM, which needs "
                                                             "the gradients of single lanes: leave one of them out"));
    }
  }
  for (const auto& [field, value, set] :
       {std::tuple("all_reduce.compression", format, Compresses(distribute)),
        std::tuple("all_reduce.reduction", std::string("ADASUM"), UsesAdasum(distribute))}) {
    if (!set || !distribute.has_local_sgd()) continue;
    return at.Error(field, absl::StrCat(value,
                                        " contradicts distribute.local_sgd, whose trainers exchange no gradients: "
                                        "leave one of them out"));
  }
  if (!UsesAdasum(distribute)) return absl::OkStatus();
  if (distribute.update() == v1::Distribute::SHARDED) {
    return at.Error("all_reduce.reduction",
                    "ADASUM contradicts distribute.update: SHARDED: it needs whole gradients on every trainer; set "
                    "update: REPLICATED");
  }
  if (job.config.train().device() == v1::Train::CUDA) {
    return at.Error("all_reduce.reduction",
                    "ADASUM contradicts train.device: CUDA, which adds the lanes of a trainer on the device; set "
                    "device: CPU");
  }
  return absl::OkStatus();
}

}  // namespace

bool Compresses(const v1::Distribute& distribute) {
  return AllReduces(distribute) && distribute.all_reduce().compression() != v1::AllReduce::NONE;
}

bool UsesAdasum(const v1::Distribute& distribute) {
  return AllReduces(distribute) && distribute.all_reduce().reduction() == v1::AllReduce::ADASUM;
}

bool AllReduces(const v1::Distribute& distribute) {
  if (distribute.has_dense()) return distribute.dense() == v1::Distribute::ALL_REDUCE;
  return distribute.has_mode() && distribute.mode() != v1::Distribute::PSERVER;
}

bool ShardsUpdates(const v1::Distribute& distribute) {
  return AllReduces(distribute) && distribute.update() == v1::Distribute::SHARDED;
}

bool UpdatesCopies(const v1::Distribute& distribute) { return distribute.has_geo(); }

void ApplyMode(v1::Distribute* distribute) {
  const bool without_servers = distribute->has_mode() && distribute->mode() != v1::Distribute::PSERVER;
  if (without_servers && !distribute->has_servers() && AllReduces(*distribute)) distribute->set_servers(0);
}

absl::Status CheckCorner(const Job& job) {
  const v1::Distribute& distribute = job.config.distribute();
  const Setting at(&distribute, "distribute", &job.positions);
  RETURN_IF_ERROR(CheckMode(at, distribute));
  if (!AllReduces(distribute)) return CheckWithoutAllReduce(job, at);
  if (ShardsUpdates(distribute) && distribute.has_local_sgd()) {
    return at.Error("update",
                    "SHARDED contradicts distribute.local_sgd, where every trainer updates all dense parameters by its "
                    "own gradients: leave one of them out");
  }
  RETURN_IF_ERROR(CheckSums(job, at));
  RETURN_IF_ERROR(CheckLocalSgd(at, distribute));
  const std::string setting = distribute.has_dense() ? "dense" : "mode";
  const auto contradicts = [&](std::string_view what) {
    return at.Error(setting, absl::StrCat("all-reduce of dense gradients contradicts ", std::string(what)));
  };
  if (!distribute.sync()) {
    return contradicts(
        "distribute.sync: false: trainers that add their gradients are at the same step; set sync: true, or "
        "dense: SERVERS");
  }
  if (distribute.average() == v1::Distribute::BY_TRAINERS) {
    return contradicts("distribute.average: BY_TRAINERS: sums among trainers are averaged by samples");
  }
  if (distribute.assign_size() > 0) {
    return contradicts("distribute.assign: every trainer holds all dense parameters");
  }
  if (distribute.wire().push() != v1::WIRE_FLOAT32) {
    return contradicts(absl::StrCat("distribute.wire.push: ", v1::WireFormat_Name(distribute.wire().push()),
                                    ": dense gradients travel as float32; table.wire is for rows of tables"));
  }
  if (distribute.wire().pull() != v1::WIRE_FLOAT32) {
    return contradicts(absl::StrCat("distribute.wire.pull: ", v1::WireFormat_Name(distribute.wire().pull()),
                                    ": dense parameters do not travel; table.wire is for rows of tables"));
  }
  if (job.config.checkpoint().per_host()) {
    return job.positions.Error("checkpoint.per_host",
                               "contradicts all-reduce of dense gradients, whose checkpoints have one directory that "
                               "all processes see: leave it out, or set distribute.dense: SERVERS");
  }
  if (job.config.comm().backend() == v1::Comm::NCCL && job.config.train().device() != v1::Train::CUDA) {
    return job.positions.Error("comm.backend",
                               "comm.backend: NCCL moves gradients between CUDA devices, one for each trainer, and "
                               "train.device is CPU: set train.device: CUDA, or comm.backend: GLOO or WIRE");
  }
  for (const auto& [field, bytes] :
       {std::pair("all_reduce.bucket_bytes", distribute.all_reduce().bucket_bytes()),
        std::pair("all_reduce.first_bucket_bytes", distribute.all_reduce().first_bucket_bytes())}) {
    if (bytes < kLeastBucket) return at.Error(field, absl::StrCat("must be at least ", kLeastBucket, ", got ", bytes));
  }
  return absl::OkStatus();
}

}  // namespace weir
