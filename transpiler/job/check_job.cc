#include "transpiler/job/check_job.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"
#include "framework/formats/float_bound.h"
#include "transpiler/base/setting.h"
#include "transpiler/job/check_metrics.h"
#include "transpiler/job/check_modes.h"
#include "transpiler/job/check_start.h"
#include "transpiler/job/check_table.h"
#include "transpiler/job/check_values.h"
#include "transpiler/job/data_schema.h"
#include "transpiler/job/job.h"
#include "transpiler/job/update_settings.h"

namespace weir {
namespace {

// Upper limits of numbers that determine memory, threads or messages. Each is far beyond present machines; a larger
// number is a typing error, and would fail in the middle of the run without naming its place in the job.
constexpr int64_t kMaxBatchSize = int64_t{1} << 24;
// Numbers of one variable in one lane: 16 GiB of float32.
constexpr int64_t kMaxLaneValues = int64_t{1} << 32;
constexpr int64_t kMaxShuffleMemoryMb = int64_t{1} << 24;
constexpr int64_t kMaxPrefetchBatches = 4096;
constexpr int64_t kMaxServers = 65536;
constexpr int64_t kMaxTrainers = 65536;

Setting Root(const Job& job) { return Setting(&job.config, "", &job.positions); }

// ---------------------------------------------------------------------------------------------------------------- data

// Checks that data.dense.column[i] names no variable that stays as it is. The data from which a loss computes its label
// is known only when the model is built (RefuseTransform).
absl::Status CheckMayTransform(const Job& job, int i, const std::set<std::string>& learned) {
  const v1::DenseTransform& dense = job.config.data().dense();
  const std::string& variable = dense.column(i).variable();
  if (learned.contains(variable))
    return RefuseTransform(job, i, "its values are learned from the data; take this column out");
  const auto& except = dense.except();
  if (std::find(except.begin(), except.end(), variable) != except.end()) {
    return RefuseTransform(job, i, "data.dense.except names it; take it out of there, or take this column out");
  }
  if (!except.empty() || !IsLabelOrWeight(variable, job.config)) return absl::OkStatus();
  return RefuseTransform(job, i, kReadByLoss);
}

absl::Status CheckTransforms(const Job& job, const Setting& data, const std::vector<v1::VarDesc>& schema) {
  const v1::DenseTransform& dense = job.config.data().dense();
  const auto float_columns = [&](const std::string& name) -> int64_t {
    for (const v1::VarDesc& var : schema) {
      if (var.name() == name && var.kind() == v1::DENSE) return var.dims(1);
    }
    return -1;
  };
  if (dense.transform() == v1::DenseTransform::BUCKETIZE) {
    return data.Error("dense.transform", "BUCKETIZE needs boundaries of its own for every column: use dense.column");
  }
  std::set<std::pair<std::string, int>> seen;
  std::set<std::string> learned;
  if (dense.column_size() > 0) {
    ASSIGN_OR_RETURN(learned, LearnedFloats(job.config.data()));
  }
  for (int i = 0; i < dense.column_size(); ++i) {
    const v1::DenseTransform::Column& column = dense.column(i);
    const std::string path = absl::StrCat("dense.column[", i, "]");
    const int64_t columns = float_columns(column.variable());
    if (columns < 0) {
      return data.Error(path + ".variable", absl::StrCat("'", column.variable(), "' is no float variable of the data"));
    }
    if (!column.has_index()) return data.Error(path, "needs an index");
    if (column.index() < 0 || column.index() >= columns) {
      return data.Error(path + ".index", absl::StrCat("must be in [0, ", columns, "), got ", column.index()));
    }
    if (!seen.insert({column.variable(), column.index()}).second) {
      return data.Error(path, absl::StrCat("is the second transform of ", column.variable(), "[", column.index(), "]"));
    }
    RETURN_IF_ERROR(CheckMayTransform(job, i, learned));
    const bool buckets = column.transform() == v1::DenseTransform::BUCKETIZE;
    if (buckets != (column.boundaries_size() > 0)) {
      return data.Error(path, buckets ? "needs boundaries for BUCKETIZE" : "has boundaries, which only BUCKETIZE uses");
    }
    for (int k = 0; k < column.boundaries_size(); ++k) {
      if (!std::isfinite(column.boundaries(k)) || (k > 0 && column.boundaries(k) <= column.boundaries(k - 1))) {
        return data.Error(absl::StrCat(path, ".boundaries[", k, "]"), "must be finite and ascend");
      }
      if (k > 0 && NearestFloat(column.boundaries(k - 1)) == NearestFloat(column.boundaries(k))) {
        return data.Error(absl::StrCat(path, ".boundaries[", k, "]"),
                          SameFloats(column.boundaries(k - 1), column.boundaries(k)));
      }
    }
  }
  for (int i = 0; i < dense.except_size(); ++i) {
    if (float_columns(dense.except(i)) < 0) {
      return data.Error(absl::StrCat("dense.except[", i, "]"),
                        absl::StrCat("'", dense.except(i), "' is no float variable of the data"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const Setting& data, const v1::Data& config, const std::vector<v1::VarDesc>& schema) {
  const v1::IdTransform& ids = config.ids();
  ASSIGN_OR_RETURN(const auto spaces, SharedIdSpaces(config));
  for (int i = 0; i < ids.shared_size(); ++i) {
    const std::string& name = ids.shared(i);
    const std::string path = absl::StrCat("ids.shared[", i, "]");
    bool known = false;
    for (const v1::VarDesc& var : schema) known |= var.name() == name && var.kind() == v1::IDS;
    if (!known) return data.Error(path, absl::StrCat("'", name, "' is no ids variable of the data"));
    const auto space = spaces.find(name);
    if (space == spaces.end()) continue;
    return data.Error(path, absl::StrCat("'", name, "' has the id space of '", space->second, "': name '",
                                         space->second, "', and '", name, "' follows"));
  }
  return AtLeast(data, "ids.min_count", ids.min_count(), 0);
}

absl::Status CheckPipe(const Setting& at, const v1::Data& data) {
  for (const auto& [command, field] : {std::pair{&data.pipe(), "pipe"}, {&data.pipe_list(), "pipe_list"}}) {
    if (command->empty() || absl::StrContains(*command, "{}")) continue;
    return at.Error(field, absl::StrCat("needs {} where the name goes, as in \"zcat {}\", got \"", *command, "\""));
  }
  RETURN_IF_ERROR(AtLeast(at, "pipe_deadline_s", data.pipe_deadline_s(), 1));
  if (data.pipe().empty() && !data.pipe_list().empty()) {
    return at.Error("pipe_list", "lists files for data.pipe, which is not set: \"cat {}\" reads them as they are");
  }
  if (!data.pipe().empty() && data.has_idx()) {
    return at.Error("pipe", "cannot stand before data.idx, whose files are read at many places at once");
  }
  return absl::OkStatus();
}

absl::Status CheckFollow(const Setting& at, const v1::JobConfig& config) {
  const v1::Data& data = config.data();
  if (!data.has_follow()) return absl::OkStatus();
  const v1::Follow& follow = data.follow();
  RETURN_IF_ERROR(AtLeast(at, "follow.files_together", follow.files_together(), 1));
  RETURN_IF_ERROR(CheckPositive(at, "follow.look_every_s", follow.look_every_s()));
  RETURN_IF_ERROR(CheckPositive(at, "follow.deadline_s", follow.deadline_s()));
  if (follow.deadline_s() < 2 * follow.look_every_s()) {
    return at.Error("follow.deadline_s",
                    absl::StrCat("must be at least twice look_every_s, ", follow.look_every_s(), ", got ",
                                 follow.deadline_s(), ": two looks must find a file before it is taken"));
  }
  if (follow.has_until() && follow.until().empty()) {
    return at.Error("follow.until", "names no file; leave it out for a job that ends when it is stopped");
  }
  if (data.has_idx()) {
    return at.Error("follow", "cannot be used with data.idx, whose files have labels beside them");
  }
  if (config.train().epochs() != 1) {
    return at.Error("follow",
                    absl::StrCat("reads each file once: train.epochs must be 1, got ", config.train().epochs()));
  }
  return absl::OkStatus();
}

absl::Status CheckData(const Job& job, const std::vector<v1::VarDesc>& schema) {
  const v1::Data& data = job.config.data();
  const Setting at(&data, "data", &job.positions);
  RETURN_IF_ERROR(AtLeast(at, "batch_size", data.batch_size(), 1));
  RETURN_IF_ERROR(AtMost(at, "batch_size", data.batch_size(), kMaxBatchSize));
  const int lanes = job.config.train().lanes();
  if (lanes > 0 && data.batch_size() % lanes != 0) {
    return at.Error("batch_size", absl::StrCat("must be a multiple of train.lanes, ", lanes, ", got ",
                                               data.batch_size(), "; it counts the examples of the whole cluster"));
  }
  const int trainers = job.config.distribute().trainers();
  if (lanes == 0 && data.batch_size() < trainers) {
    return at.Error("batch_size",
                    absl::StrCat("must be at least distribute.trainers, ", trainers, ", got ", data.batch_size(),
                                 ": it counts the examples of the whole cluster, of which every trainer "
                                 "needs one; raise it, or take fewer trainers"));
  }
  for (const v1::VarDesc& var : schema) {
    // A reader of the user's own may give any number of columns.
    const int64_t examples = lanes > 0 ? data.batch_size() / lanes : data.batch_size();
    if (var.dims(1) > kMaxColumns || var.dims(1) * examples > kMaxLaneValues) {
      return at.Error("batch_size", absl::StrCat("is ", data.batch_size(), ", and '", var.name(), "' has ", var.dims(1),
                                                 " columns: at most ", kMaxColumns, " columns are possible, and ",
                                                 kMaxLaneValues, " values of a variable in a lane"));
    }
  }
  RETURN_IF_ERROR(AtLeast(at, "shuffle_memory_mb", data.shuffle_memory_mb(), 1));
  RETURN_IF_ERROR(AtMost(at, "shuffle_memory_mb", data.shuffle_memory_mb(), kMaxShuffleMemoryMb));
  RETURN_IF_ERROR(AtLeast(at, "shuffle_window", data.shuffle_window(), 0));
  RETURN_IF_ERROR(AtLeast(at, "prefetch_batches", data.prefetch_batches(), 1));
  RETURN_IF_ERROR(AtMost(at, "prefetch_batches", data.prefetch_batches(), kMaxPrefetchBatches));
  if (data.has_train() && data.train().files_size() == 0) return at.Error("train", "names no files");
  if (data.has_eval() && data.eval().files_size() == 0) return at.Error("eval", "names no files");
  for (const auto& [source, field] : {std::pair{&data.train(), "train.labels"}, {&data.eval(), "eval.labels"}}) {
    if (source->labels_size() > 0 && !data.has_idx())
      return at.Error(field, "are for data.idx; other formats have labels in their lines");
  }
  RETURN_IF_ERROR(CheckPipe(at, data));
  RETURN_IF_ERROR(CheckFollow(at, job.config));
  RETURN_IF_ERROR(CheckRowRules(at));
  RETURN_IF_ERROR(CheckMayBeAbsent(at));
  RETURN_IF_ERROR(CheckTransforms(job, at, schema));
  return CheckIds(at, data, schema);
}

// --------------------------------------------------------------------------------------------------------------- model

absl::Status CheckModel(const Job& job, const std::vector<v1::VarDesc>& schema) {
  const v1::Model& model = job.config.model();
  const Setting at(&model, "model", &job.positions);
  std::map<std::string, std::string> names;  // name to its owner
  for (const v1::VarDesc& var : schema) names[var.name()] = "a variable of the data";
  for (const v1::Table& table : job.config.table()) {
    if (names.contains(table.name())) {
      return Root(job).Error("table", absl::StrCat("'", table.name(), "' has the name of ", names[table.name()]));
    }
    names[table.name()] = "a table";
  }
  for (int i = 0; i < model.layer_size(); ++i) {
    const std::string path = absl::StrCat("layer[", i, "].name");
    const std::string& name = model.layer(i).name();
    RETURN_IF_ERROR(CheckName(at, path, name));
    const auto [found, inserted] = names.emplace(name, absl::StrCat("layer[", i, "]"));
    if (!inserted) return at.Error(path, absl::StrCat("'", name, "' is the name of ", found->second, " too"));
  }
  if (model.layer_size() == 0) return at.Error("layer", "must have at least one layer");
  if (model.loss_size() == 0) return at.Error("loss", "must have at least one loss: there is nothing to minimise");
  for (int i = 0; i < model.loss_size(); ++i) {
    const std::string path = absl::StrCat("loss[", i, "]");
    if (model.loss(i).has_name()) RETURN_IF_ERROR(CheckName(at, path + ".name", model.loss(i).name()));
    RETURN_IF_ERROR(CheckFloat(at, path + ".weight", model.loss(i).weight()));
    // A loss of the user's own may be something to maximise.
    if (model.loss(i).weight() < 0 && !model.loss(i).has_custom()) {
      return at.Error(path + ".weight", absl::StrCat("must not be negative, got ", model.loss(i).weight(),
                                                     ": training would maximise the loss"));
    }
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------------------------------- distribute

absl::Status CheckSync(const Job& job, const Setting& at) {
  const v1::Distribute& distribute = job.config.distribute();
  const bool by_trainers = distribute.average() == v1::Distribute::BY_TRAINERS;
  const bool eager = distribute.async_apply() == v1::Distribute::EAGER;
  if (distribute.sync() && eager) {
    return at.Error("async_apply", "EAGER contradicts sync: true; a synchronous step takes effect as a whole");
  }
  if (eager && job.config.train().nan_policy() == v1::Train::SKIP_STEP) {
    return at.Error("async_apply",
                    "EAGER contradicts train.nan_policy SKIP_STEP: parts that have been applied cannot be "
                    "taken back by a verdict");
  }
  if (eager && job.config.train().has_loss_scaling()) {
    return at.Error("async_apply",
                    "EAGER contradicts train.loss_scaling: parts that have been applied cannot be taken back when "
                    "a gradient overflows; leave one of the two out");
  }
  if (!distribute.sync() && by_trainers) {
    return at.Error("average",
                    "BY_TRAINERS contradicts sync: false: an asynchronous push is divided by its own samples");
  }
  if (!distribute.sync() || !distribute.reproducible()) return absl::OkStatus();
  if (by_trainers) {
    return at.Error("average",
                    "BY_TRAINERS makes the result depend on the number of trainers: set distribute.reproducible: "
                    "false to permit that");
  }
  if (job.config.train().lanes() == 0) {
    return Root(job).Error("train.lanes",
                           "0 makes the result depend on the number of trainers and threads: set "
                           "distribute.reproducible: false to permit that");
  }
  return absl::OkStatus();
}

absl::Status CheckDistribute(const Job& job) {
  const v1::Distribute& distribute = job.config.distribute();
  const Setting at(&distribute, "distribute", &job.positions);
  RETURN_IF_ERROR(AtLeast(at, "servers", distribute.servers(), 0));
  RETURN_IF_ERROR(AtMost(at, "servers", distribute.servers(), kMaxServers));
  RETURN_IF_ERROR(AtLeast(at, "trainers", distribute.trainers(), 1));
  RETURN_IF_ERROR(AtMost(at, "trainers", distribute.trainers(), kMaxTrainers));
  RETURN_IF_ERROR(AtLeast(at, "min_block_size", distribute.min_block_size(), 8192));
  const int lanes = job.config.train().lanes();
  const Setting root = Root(job);
  if (lanes != 0 && (!IsPowerOfTwo(lanes) || lanes > 65536)) {
    return root.Error("train.lanes",
                      absl::StrCat("must be a power of two up to 65536, or 0 to turn lanes off, got ", lanes));
  }
  if (lanes != 0 && distribute.trainers() > lanes) {
    int enough = lanes;
    while (enough < distribute.trainers()) enough *= 2;
    return at.Error("trainers",
                    absl::StrCat("is ", distribute.trainers(), ", more than train.lanes, ", lanes,
                                 ": a trainer without a lane has nothing to do; raise train.lanes to ", enough));
  }
  RETURN_IF_ERROR(CheckModes(job));
  return CheckSync(job, at);
}

// --------------------------------------------------------------------------------------------------------------- train

absl::Status CheckPowerOfTwo(const Setting& at, std::string_view field, double value, double least, double most) {
  int exponent = 0;
  if (value >= least && value <= most && std::frexp(value, &exponent) == 0.5) return absl::OkStatus();
  return at.Error(field, absl::StrFormat("must be a power of two from %.17g to %.17g, got %.17g", least, most, value));
}

// Bounds the scale, so that scaling changes exponents only and float32 neither overflows nor loses bits.
absl::Status CheckLossScaling(const Job& job) {
  const v1::LossScaling& scaling = job.config.train().loss_scaling();
  const Setting at(&scaling, "train.loss_scaling", &job.positions);
  RETURN_IF_ERROR(CheckPowerOfTwo(at, "most", scaling.most(), 1, 0x1p40));
  RETURN_IF_ERROR(CheckPowerOfTwo(at, "initial", scaling.initial(), 1, scaling.most()));
  RETURN_IF_ERROR(CheckPowerOfTwo(at, "growth", scaling.growth(), 2, 0x1p16));
  RETURN_IF_ERROR(CheckPowerOfTwo(at, "backoff", scaling.backoff(), 0x1p-16, 0.5));
  return AtLeast(at, "growth_every", scaling.growth_every(), 1);
}

absl::Status CheckPrecision(const Setting& at, const v1::Train& train) {
  const std::string arithmetic = v1::Train::Arithmetic_Name(train.arithmetic());
  const bool for_bf16 = train.arithmetic() == v1::Train::AVX512_BF16 || train.arithmetic() == v1::Train::AMX_BF16;
  if (train.device() == v1::Train::CUDA) {
    if (!for_bf16) return absl::OkStatus();
    return at.Error("arithmetic",
                    absl::StrCat(arithmetic, " is for products on the CPU: with device: CUDA leave it out"));
  }
  if (train.precision() == v1::Train::FP32) {
    if (!for_bf16) return absl::OkStatus();
    return at.Error("arithmetic",
                    absl::StrCat(arithmetic,
                                 " is for precision: BF16, and train.precision is FP32: set it to BF16, or "
                                 "arithmetic to AVX512 or AUTO"));
  }
  if (train.precision() != v1::Train::BF16) {
    return at.Error("precision",
                    absl::StrCat(v1::Train::Precision_Name(train.precision()),
                                 " is for device: CUDA, on the CPU products are FP32 or BF16: set train.device: CUDA, "
                                 "or another precision"));
  }
  if (for_bf16 || train.arithmetic() == v1::Train::AUTO) return absl::OkStatus();
  return at.Error("arithmetic", absl::StrCat(arithmetic,
                                             " has no products in BF16, which train.precision is: set "
                                             "AVX512_BF16, AMX_BF16 or AUTO"));
}

absl::Status CheckTrain(const Job& job) {
  const v1::Train& train = job.config.train();
  const Setting at(&train, "train", &job.positions);
  RETURN_IF_ERROR(AtLeast(at, "epochs", train.epochs(), 1));
  RETURN_IF_ERROR(AtLeast(at, "max_steps", train.max_steps(), 0));
  RETURN_IF_ERROR(AtLeast(at, "threads", train.threads(), 0));
  RETURN_IF_ERROR(AtMost(at, "threads", train.threads(), kMaxThreads));
  RETURN_IF_ERROR(AtLeast(at, "device_id", train.device_id(), -1));
  RETURN_IF_ERROR(AtLeast(at, "eval_every_steps", train.eval_every_steps(), 0));
  RETURN_IF_ERROR(AtLeast(at, "digest_every_steps", train.digest_every_steps(), 0));
  RETURN_IF_ERROR(CheckPositive(at, "log_every_seconds", train.log_every_seconds()));
  RETURN_IF_ERROR(CheckPrecision(at, train));
  if (train.has_loss_scaling()) RETURN_IF_ERROR(CheckLossScaling(job));
  const bool has_eval = job.config.data().eval().files_size() > 0;
  if (train.eval_every_steps() > 0 && !has_eval) {
    return at.Error("eval_every_steps", "is set, but data.eval names no files");
  }
  const v1::CheckpointConfig& checkpoint = job.config.checkpoint();
  const Setting checkpoint_at(&checkpoint, "checkpoint", &job.positions);
  RETURN_IF_ERROR(AtLeast(checkpoint_at, "every_steps", checkpoint.every_steps(), 0));
  RETURN_IF_ERROR(AtLeast(checkpoint_at, "keep_last", checkpoint.keep_last(), 1));
  RETURN_IF_ERROR(AtLeast(checkpoint_at, "keep_best", checkpoint.keep_best(), 0));
  if (checkpoint.every_steps() > 0 && checkpoint.dir().empty()) {
    return checkpoint_at.Error("every_steps", "is set, but checkpoint.dir is empty");
  }
  if (checkpoint.keep_best() > 0 && !has_eval) {
    return checkpoint_at.Error("keep_best", "is set, but data.eval names no files to judge checkpoints by");
  }
  return absl::OkStatus();
}

absl::Status CheckDeadlines(const Job& job) {
  const v1::Deadlines& deadlines = job.config.deadlines();
  const Setting at(&deadlines, "deadlines", &job.positions);
  RETURN_IF_ERROR(CheckPositive(at, "heartbeat_s", deadlines.heartbeat_s()));
  RETURN_IF_ERROR(CheckPositive(at, "lease_s", deadlines.lease_s()));
  RETURN_IF_ERROR(CheckPositive(at, "slow_warning_s", deadlines.slow_warning_s()));
  RETURN_IF_ERROR(CheckPositive(at, "progress_deadline_s", deadlines.progress_deadline_s()));
  RETURN_IF_ERROR(CheckPositive(at, "connect_deadline_s", deadlines.connect_deadline_s()));
  RETURN_IF_ERROR(CheckPositive(at, "rpc_s", deadlines.rpc_s()));
  if (const double factor = deadlines.slow_step_factor(); factor != 0 && !(factor > 1)) {
    return at.Error("slow_step_factor", absl::StrCat("must be above 1, or 0 for no explanations, got ", factor));
  }
  if (deadlines.heartbeat_s() >= deadlines.lease_s()) {
    return at.Error("heartbeat_s", absl::StrCat("must be below lease_s, ", deadlines.lease_s(), ", got ",
                                                deadlines.heartbeat_s(), ": otherwise every process is assumed dead"));
  }
  return absl::OkStatus();
}

// Returns whether the text is "host:port" or "[::1]:port".
bool IsEndpoint(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == endpoint.size() || endpoint.size() - colon > 6)
    return false;
  int64_t port = 0;
  for (size_t i = colon + 1; i < endpoint.size(); ++i) {
    if (endpoint[i] < '0' || endpoint[i] > '9') return false;
    port = port * 10 + (endpoint[i] - '0');
  }
  return port <= 65535 && endpoint.find_first_of(" \t,") == std::string::npos;
}

absl::Status CheckCluster(const Job& job) {
  const v1::Cluster& cluster = job.config.cluster();
  const Setting at(&cluster, "cluster", &job.positions);
  std::map<std::string, int> seen;
  for (int i = 0; i < cluster.pserver_size(); ++i) {
    const std::string& endpoint = cluster.pserver(i);
    if (!IsEndpoint(endpoint)) {
      return at.Error(absl::StrCat("pserver[", i, "]"), absl::StrCat("'", endpoint, "' is no host:port"));
    }
    const auto [found, inserted] = seen.emplace(endpoint, i);
    if (!inserted) {
      return at.Error(absl::StrCat("pserver[", i, "]"),
                      absl::StrCat("'", endpoint, "' is the address of server ", found->second, " and of server ", i));
    }
  }
  const v1::Distribute& distribute = job.config.distribute();
  const int servers = ServersOf(distribute);
  if (cluster.pserver_size() > 0 && cluster.pserver_size() != servers) {
    const std::string found = absl::StrCat("names ", cluster.pserver_size());
    return at.Error("pserver", distribute.servers() == 0
                                   ? absl::StrCat(found, " trainers; distribute.trainers is ", servers,
                                                  ", and with distribute.servers: 0 each of them serves")
                                   : absl::StrCat(found, " servers; distribute.servers is ", servers));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RefuseTransform(const Job& job, int column, std::string_view why) {
  const v1::Data& data = job.config.data();
  return Setting(&data, "data", &job.positions)
      .Error(absl::StrCat("dense.column[", column, "].variable"),
             absl::StrCat("'", data.dense().column(column).variable(), "' is never transformed: ", std::string(why)));
}

absl::StatusOr<int> ThreadSetting(int flag, const v1::JobConfig& job) {
  if (flag >= 0 && flag <= kMaxThreads) return flag > 0 ? flag : job.train().threads();
  return absl::InvalidArgumentError(absl::StrCat("--threads=", flag, ": expected 1 to ", kMaxThreads,
                                                 ", or 0 for train.threads of the job (which, if 0, means all cores)"));
}

absl::Status CheckJob(const Job& job) {
  const v1::JobConfig& config = job.config;
  const Setting root = Root(job);
  RETURN_IF_ERROR(CheckName(root, "name", config.name()));
  if (config.has_model() && config.has_program()) {
    return root.Error("program", "is set and so is model; a job has one or the other");
  }
  if (!config.has_model() && !config.has_program()) {
    return root.Place("", "the job has neither a model nor a program");
  }
  if (!config.has_data()) return root.Place("", "the job has no data");
  ASSIGN_OR_RETURN(const std::vector<v1::VarDesc> schema, DataSchema(Setting(&config.data(), "data", &job.positions)));
  RETURN_IF_ERROR(CheckDistribute(job));
  RETURN_IF_ERROR(CheckData(job, schema));
  std::set<std::string> tables;
  for (int i = 0; i < config.table_size(); ++i) RETURN_IF_ERROR(CheckTable(job, i, schema, &tables));
  if (config.has_model()) RETURN_IF_ERROR(CheckModel(job, schema));
  if (config.has_optimizer()) {
    RETURN_IF_ERROR(UpdateSettings::Make(root.Member(&config.optimizer(), "optimizer")).status());
  } else if (config.has_model()) {
    return root.Place("", "the job has no optimizer");
  }
  RETURN_IF_ERROR(CheckTrain(job));
  RETURN_IF_ERROR(CheckMetrics(job, schema));
  RETURN_IF_ERROR(CheckStart(job));
  RETURN_IF_ERROR(CheckDeadlines(job));
  return CheckCluster(job);
}

}  // namespace weir
