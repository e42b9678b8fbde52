#include "transpiler/job/check_job.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/float16.h"
#include "transpiler/base/setting.h"
#include "transpiler/job/check_modes.h"
#include "transpiler/job/data_schema.h"
#include "transpiler/job/job.h"
#include "transpiler/job/update_settings.h"
#include "transpiler/optimizers/optimizer.h"

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
// Columns of a table: a row and its state travel in one message of 64 MiB.
constexpr int64_t kMaxWidth = 1 << 20;

Setting Root(const Job& job) { return Setting(&job.config, "", &job.positions); }

bool IsPowerOfTwo(int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

absl::Status AtLeast(const Setting& at, std::string_view field, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return at.Error(field, absl::StrCat("must be at least ", least, ", got ", value));
}

absl::Status AtMost(const Setting& at, std::string_view field, int64_t value, int64_t most) {
  if (value <= most) return absl::OkStatus();
  return at.Error(field, absl::StrCat("must be at most ", most, ", got ", value));
}

// Names appear in programs, messages and files: letters, digits and _ - . /, beginning with a letter or _.
absl::Status CheckName(const Setting& at, std::string_view field, const std::string& name) {
  if (name.empty()) return at.Error(field, "is required");
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    const bool later = (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '/';
    if (letter || (i > 0 && later)) continue;
    return at.Error(field, absl::StrCat("'", name, "' must begin with a letter or _ and hold only letters, digits and ",
                                        "_ - . /"));
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------------------------------------- data

absl::Status CheckTransforms(const Setting& data, const v1::DenseTransform& dense,
                             const std::vector<v1::VarDesc>& schema) {
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
    const bool buckets = column.transform() == v1::DenseTransform::BUCKETIZE;
    if (buckets != (column.boundaries_size() > 0)) {
      return data.Error(path, buckets ? "needs boundaries for BUCKETIZE" : "has boundaries, which only BUCKETIZE uses");
    }
    for (int k = 0; k < column.boundaries_size(); ++k) {
      if (!std::isfinite(column.boundaries(k)) || (k > 0 && column.boundaries(k) <= column.boundaries(k - 1))) {
        return data.Error(path + ".boundaries", "must be finite and ascend");
      }
    }
  }
  for (const std::string& name : dense.except()) {
    if (float_columns(name) < 0) {
      return data.Error("dense.except", absl::StrCat("'", name, "' is no float variable of the data"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const Setting& data, const v1::IdTransform& ids, const std::vector<v1::VarDesc>& schema) {
  for (const std::string& name : ids.shared()) {
    bool known = false;
    for (const v1::VarDesc& var : schema) known |= var.name() == name && var.kind() == v1::IDS;
    if (!known) return data.Error("ids.shared", absl::StrCat("'", name, "' is no ids variable of the data"));
  }
  return AtLeast(data, "ids.min_count", ids.min_count(), 0);
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
  RETURN_IF_ERROR(CheckTransforms(at, data.dense(), schema));
  return CheckIds(at, data.ids(), schema);
}

// --------------------------------------------------------------------------------------------------------------- model

absl::Status CheckInitializer(const Setting& at, std::string_view field, const v1::Initializer& init) {
  const std::string path(field);
  switch (init.kind_case()) {
    case v1::Initializer::kConstant:
      RETURN_IF_ERROR(CheckFloat(at, path + ".constant.value", init.constant().value()));
      break;
    case v1::Initializer::kUniform:
      RETURN_IF_ERROR(CheckFloat(at, path + ".uniform.min", init.uniform().min()));
      RETURN_IF_ERROR(CheckFloat(at, path + ".uniform.max", init.uniform().max()));
      if (!(init.uniform().min() < init.uniform().max()) ||
          !std::isfinite(static_cast<float>(init.uniform().max() - init.uniform().min()))) {
        return at.Error(path + ".uniform",
                        absl::StrCat("needs min below max, got ", init.uniform().min(), " and ", init.uniform().max()));
      }
      break;
    case v1::Initializer::kGaussian:
      RETURN_IF_ERROR(CheckFloat(at, path + ".gaussian.mean", init.gaussian().mean()));
      RETURN_IF_ERROR(CheckNotNegative(at, path + ".gaussian.stddev", init.gaussian().stddev()));
      break;
    case v1::Initializer::kXavier:
      RETURN_IF_ERROR(AtLeast(at, path + ".xavier.fan_in", init.xavier().fan_in(), 0));
      RETURN_IF_ERROR(AtLeast(at, path + ".xavier.fan_out", init.xavier().fan_out(), 0));
      break;
    case v1::Initializer::KIND_NOT_SET:
      return at.Error(path, "needs one of constant, uniform, gaussian, xavier");
  }
  return absl::OkStatus();
}

absl::Status CheckStorage(const Job& job, const Setting& at, const v1::Table& table) {
  const v1::DType storage = table.storage();
  const std::string type = v1::DType_Name(storage);
  if (storage == v1::FLOAT32) return absl::OkStatus();
  if (storage != v1::FLOAT16 && storage != v1::BFLOAT16) {
    return at.Error("storage", absl::StrCat("must be FLOAT32, FLOAT16 or BFLOAT16, got ", type));
  }
  if (!table.is_distributed()) {
    return at.Error("storage", absl::StrCat(type, " is for is_distributed: true; table '", table.name(),
                                            "' is an ordinary parameter"));
  }
  if (job.config.distribute().has_geo()) {
    return at.Error("storage",
                    absl::StrCat(type,
                                 " contradicts distribute.geo, whose trainers take what they have added to a row for "
                                 "what the servers hold: leave it out, or use another mode"));
  }
  if (!table.has_min_value() && !table.has_max_value()) return absl::OkStatus();
  // Bounds are moved to the outermost values between them that the type can represent.
  const float greatest = storage == v1::FLOAT16 ? kMostFloat16 : kMostBFloat16;
  const float least = NotBelow(storage, table.has_min_value() ? table.min_value() : -greatest);
  const float most = NotAbove(storage, table.has_max_value() ? table.max_value() : greatest);
  if (least <= most) return absl::OkStatus();
  return at.Error(table.has_min_value() ? "min_value" : "max_value",
                  absl::StrCat("leaves no value of storage ", type, " to a row: the least not below min_value is ",
                               least, ", the greatest not above max_value ", most));
}

absl::Status CheckCache(const Job& job, const Setting& at, const v1::Table& table) {
  const v1::Distribute& distribute = job.config.distribute();
  if (!table.is_distributed())
    return at.Error("cache", "is for is_distributed: true: other tables are no rows on the servers");
  if (distribute.sync()) {
    return at.Error("cache",
                    "contradicts sync: true, where every row is that of the step: set sync: false, or leave it out");
  }
  if (distribute.has_geo())
    return at.Error("cache", "contradicts distribute.geo, whose trainers keep copies of all rows they use");
  if (distribute.has_bounded_staleness()) {
    return at.Error("cache",
                    "contradicts distribute.bounded_staleness: a row that was kept may be older than its bound");
  }
  RETURN_IF_ERROR(AtLeast(at, "cache.rows", table.cache().rows(), 1));
  RETURN_IF_ERROR(AtMost(at, "cache.rows", table.cache().rows(), int64_t{1} << 31));
  if (distribute.prefetch_rows() && table.cache().max_steps() == 1) {
    return at.Error("cache.max_steps",
                    "is 1, and with distribute.prefetch_rows a row is read a step before the one that it is read "
                    "for: it would serve no other; raise it to 2 or more");
  }
  return AtLeast(at, "cache.max_steps", table.cache().max_steps(), 1);
}

// Rows of distributed tables are initialized one by one, without knowing the table's height.
absl::Status CheckRowInitializer(const Setting& at, std::string_view field, const v1::Initializer& init) {
  RETURN_IF_ERROR(CheckInitializer(at, field, init));
  if (init.has_xavier() && (init.xavier().fan_in() == 0 || init.xavier().fan_out() == 0)) {
    return at.Error(absl::StrCat(absl::string_view(field.data(), field.size()), ".xavier"),
                    "needs fan_in and fan_out: a distributed table has no height to take them from");
  }
  return absl::OkStatus();
}

absl::Status CheckDisk(const Job& job, const Setting& at, const v1::Table& table) {
  if (!table.is_distributed())
    return at.Error("disk", "is for is_distributed: true: other tables are no rows on the servers");
  if (table.disk().dir().empty())
    return at.Error("disk.dir", "is required: the directory for rows that memory has no room for");
  // RocksDB alone takes 3 MiB before the first row.
  constexpr int64_t kLeastMb = 16;
  const int servers = ServersOf(job.config.distribute());
  if (table.disk().memory_mb() < kLeastMb * servers) {
    return at.Error("disk.memory_mb",
                    absl::StrCat("must be at least ", kLeastMb, " for each of ", servers, " servers, ",
                                 kLeastMb * servers, ", got ", table.disk().memory_mb()));
  }
  return AtMost(at, "disk.memory_mb", table.disk().memory_mb(), int64_t{1} << 40);
}

// Checks lifecycle settings that depend on shows and clicks.
absl::Status CheckScores(const Setting& at, const v1::Lifecycle& lifecycle, const std::vector<v1::VarDesc>& schema) {
  const std::pair<const char*, bool> of_scores[] = {{"admit_score", lifecycle.has_admit_score()},
                                                    {"decay_every_steps", lifecycle.decay_every_steps() != 0},
                                                    {"decay", lifecycle.has_decay()},
                                                    {"min_score", lifecycle.has_min_score()},
                                                    {"show_coefficient", lifecycle.has_show_coefficient()},
                                                    {"click_coefficient", lifecycle.has_click_coefficient()}};
  for (const auto& [field, set] : of_scores) {
    if (set && !lifecycle.has_click()) {
      return at.Error(absl::StrCat("lifecycle.", field), "needs lifecycle.click: scores are made of shows and clicks");
    }
  }
  if (!lifecycle.has_click()) return absl::OkStatus();
  const auto click = std::find_if(schema.begin(), schema.end(),
                                  [&](const v1::VarDesc& var) { return var.name() == lifecycle.click(); });
  if (click == schema.end() || click->kind() != v1::DENSE || click->dtype() != v1::FLOAT32 || click->dims(1) != 1) {
    std::vector<std::string> names;
    for (const v1::VarDesc& var : schema) {
      if (var.kind() == v1::DENSE && var.dtype() == v1::FLOAT32 && var.dims(1) == 1) names.push_back(var.name());
    }
    return at.Error("lifecycle.click",
                    absl::StrCat("'", lifecycle.click(), "' is no float variable of one column of the data; there is ",
                                 names.empty() ? "none" : absl::StrJoin(names, ", ")));
  }
  RETURN_IF_ERROR(AtLeast(at, "lifecycle.decay_every_steps", lifecycle.decay_every_steps(), 0));
  RETURN_IF_ERROR(AtMost(at, "lifecycle.decay_every_steps", lifecycle.decay_every_steps(), int64_t{1} << 30));
  for (const char* field : {"decay", "min_score"}) {
    const bool set = field == std::string_view("decay") ? lifecycle.has_decay() : lifecycle.has_min_score();
    if (set && lifecycle.decay_every_steps() == 0) {
      return at.Error(absl::StrCat("lifecycle.", field),
                      "is looked at when shows decay: set lifecycle.decay_every_steps");
    }
  }
  if (!(lifecycle.decay() >= 0 && lifecycle.decay() <= 1)) {
    return at.Error("lifecycle.decay", absl::StrCat("must be in [0, 1], got ", lifecycle.decay()));
  }
  RETURN_IF_ERROR(CheckFloat(at, "lifecycle.admit_score", lifecycle.admit_score()));
  RETURN_IF_ERROR(CheckFloat(at, "lifecycle.min_score", lifecycle.min_score()));
  RETURN_IF_ERROR(CheckFloat(at, "lifecycle.show_coefficient", lifecycle.show_coefficient()));
  return CheckFloat(at, "lifecycle.click_coefficient", lifecycle.click_coefficient());
}

absl::Status CheckLifecycle(const Job& job, const Setting& at, const v1::Table& table,
                            const std::vector<v1::VarDesc>& schema) {
  const v1::Lifecycle& lifecycle = table.lifecycle();
  const v1::Distribute& distribute = job.config.distribute();
  // Steps are stored in 32 bits beside a row and compared by their difference.
  constexpr int64_t kMostSteps = int64_t{1} << 30;
  if (!table.is_distributed()) {
    return at.Error("lifecycle", "is for is_distributed: true: rows of other tables are all there from the start");
  }
  if (distribute.has_geo()) {
    return at.Error("lifecycle",
                    "contradicts distribute.geo, whose trainers keep copies of rows that the servers would take away");
  }
  RETURN_IF_ERROR(CheckScores(at, lifecycle, schema));
  if (lifecycle.has_admit_after()) {
    RETURN_IF_ERROR(AtLeast(at, "lifecycle.admit_after", lifecycle.admit_after(), 1));
    RETURN_IF_ERROR(AtMost(at, "lifecycle.admit_after", lifecycle.admit_after(), kMostSteps));
  }
  if (lifecycle.has_admit_probability() && !(lifecycle.admit_probability() > 0 && lifecycle.admit_probability() <= 1)) {
    return at.Error("lifecycle.admit_probability",
                    absl::StrCat("must be above 0 and at most 1, got ", lifecycle.admit_probability()));
  }
  RETURN_IF_ERROR(AtLeast(at, "lifecycle.ttl_steps", lifecycle.ttl_steps(), 0));
  RETURN_IF_ERROR(AtMost(at, "lifecycle.ttl_steps", lifecycle.ttl_steps(), kMostSteps));
  const double seconds = lifecycle.ttl_seconds();
  if (seconds != 0 && !(seconds >= 1 && seconds <= static_cast<double>(kMostSteps))) {
    return at.Error("lifecycle.ttl_seconds", absl::StrCat("must be 0, or in [1, ", kMostSteps, "], got ", seconds));
  }
  if (seconds != 0 && distribute.sync() && distribute.reproducible()) {
    return at.Error("lifecycle.ttl_seconds",
                    "makes the result depend on the servers' clocks: use ttl_steps, or set "
                    "distribute.reproducible: false to permit that");
  }
  if (lifecycle.when_full() == v1::Lifecycle::REFUSE) return absl::OkStatus();
  if (table.dict_size() == 0) {
    return at.Error("lifecycle.when_full", absl::StrCat(v1::Lifecycle::WhenFull_Name(lifecycle.when_full()),
                                                        " needs dict_size: without it the table is never full"));
  }
  if (table.dict_size() < table.logical_shards()) {
    return at.Error("dict_size",
                    absl::StrCat("is ", table.dict_size(), ", and each of the ", table.logical_shards(),
                                 " logical shards evicts from its own part of it: raise it to at least that, or "
                                 "lower logical_shards"));
  }
  return absl::OkStatus();
}

absl::Status CheckSegments(const Setting& at, const v1::Table& table) {
  int64_t sum = 0;
  for (int i = 0; i < table.segment_size(); ++i) {
    const v1::Segment& segment = table.segment(i);
    const Setting of = at.Member(&segment, absl::StrCat(at.path(), ".segment[", i, "]"));
    RETURN_IF_ERROR(AtLeast(of, "width", segment.width(), 1));
    RETURN_IF_ERROR(AtMost(of, "width", segment.width(), table.width()));
    sum += segment.width();
    RETURN_IF_ERROR(AtLeast(of, "after", segment.after(), 0));
    // Counted in float32 beside the row.
    RETURN_IF_ERROR(AtMost(of, "after", segment.after(), int64_t{1} << 24));
    if (segment.has_initializer()) RETURN_IF_ERROR(CheckRowInitializer(of, "initializer", segment.initializer()));
    if (segment.has_optimizer()) {
      RETURN_IF_ERROR(UpdateSettings::Make(of.Member(&segment.optimizer(), of.path() + ".optimizer")).status());
    }
  }
  if (sum == table.width()) return absl::OkStatus();
  return at.Error("segment",
                  absl::StrCat("widths add up to ", sum, "; width of table '", table.name(), "' is ", table.width()));
}

// Checks the settings of a table that concern the update of its rows.
absl::Status CheckRowUpdates(const Job& job, const Setting& at, const v1::Table& table) {
  const struct {
    const char* field;
    bool set;
    bool with_geo;
  } settings[] = {{"segment", table.segment_size() > 0, false},
                  {"min_value", table.has_min_value(), false},
                  {"max_value", table.has_max_value(), false},
                  {"bad_gradient", table.bad_gradient() != v1::Table::NAN_POLICY, true}};
  for (const auto& each : settings) {
    if (!each.set) continue;
    if (!table.is_distributed()) {
      return at.Error(each.field,
                      absl::StrCat("is for is_distributed: true; table '", table.name(), "' is an ordinary parameter"));
    }
    if (!table.trainable()) {
      return at.Error(each.field,
                      absl::StrCat("says how rows are updated, but table '", table.name(), "' is not trainable"));
    }
    if (!each.with_geo && job.config.distribute().has_geo()) {
      return at.Error(each.field, "contradicts distribute.geo, whose servers add up differences and update no rows");
    }
  }
  for (const auto& [field, set, value] : {std::tuple("min_value", table.has_min_value(), table.min_value()),
                                          std::tuple("max_value", table.has_max_value(), table.max_value())}) {
    if (set) RETURN_IF_ERROR(CheckFloat(at, field, value));
  }
  if (table.has_min_value() && table.has_max_value() && table.min_value() > table.max_value()) {
    return at.Error("min_value",
                    absl::StrCat("must not be above max_value, ", table.max_value(), ", got ", table.min_value()));
  }
  return table.segment_size() == 0 ? absl::OkStatus() : CheckSegments(at, table);
}

absl::Status CheckTable(const Job& job, int i, const std::vector<v1::VarDesc>& schema, std::set<std::string>* names) {
  const v1::Table& table = job.config.table(i);
  const Setting at(&table, absl::StrCat("table[", i, "]"), &job.positions);
  RETURN_IF_ERROR(CheckName(at, "name", table.name()));
  if (!names->insert(table.name()).second) {
    return at.Error("name", absl::StrCat("'", table.name(), "' is the name of an earlier table"));
  }
  RETURN_IF_ERROR(AtLeast(at, "width", table.width(), 1));
  RETURN_IF_ERROR(AtMost(at, "width", table.width(), kMaxWidth));
  RETURN_IF_ERROR(AtLeast(at, "dict_size", table.dict_size(), 0));
  if (table.is_distributed() && !table.is_sparse()) {
    return at.Error("is_distributed", absl::StrCat("needs is_sparse: true: rows of table '", table.name(),
                                                   "' on the servers can only be updated by row"));
  }
  if (!table.is_distributed() && table.dict_size() == 0) {
    return at.Error("dict_size",
                    absl::StrCat("is required for table '", table.name(),
                                 "': without is_distributed that many rows are held, ids in [0, dict_size)"));
  }
  if (const int64_t rows = table.is_distributed() ? 1 : table.dict_size(); rows > (int64_t{1} << 48) / table.width()) {
    return at.Error("dict_size",
                    absl::StrCat("times width, ", rows, " * ", table.width(), ", is more than 2^48 numbers for table '",
                                 table.name(), "', which every process would hold: use is_distributed"));
  }
  if (table.has_fetch() && (table.is_distributed() || !table.is_sparse())) {
    return at.Error("fetch", absl::StrCat("is for is_sparse: true without is_distributed; ",
                                          table.is_distributed() ? "a distributed table is always fetched by rows"
                                                                 : "without is_sparse the whole table moves"));
  }
  if (table.fetch() == v1::Table::ROWS && job.config.distribute().has_geo()) {
    return at.Error("fetch", "ROWS contradicts distribute.geo, whose trainers keep whole copies");
  }
  if (table.has_cache()) RETURN_IF_ERROR(CheckCache(job, at, table));
  if (table.load_size() > 0 && !table.is_distributed()) {
    return at.Error("load", "is for is_distributed: true: row files hold rows by id");
  }
  const v1::Distribute& distribute = job.config.distribute();
  const int servers = ServersOf(distribute);
  if (!IsPowerOfTwo(table.logical_shards()) || table.logical_shards() > (1 << 20)) {
    return at.Error("logical_shards",
                    absl::StrCat("must be a power of two up to 1048576, got ", table.logical_shards()));
  }
  if (table.is_distributed() && table.logical_shards() < servers) {
    return at.Error("logical_shards",
                    absl::StrCat("must be at least distribute.", distribute.servers() == 0 ? "trainers" : "servers",
                                 ", ", servers, ", got ", table.logical_shards()));
  }
  if (table.has_disk()) RETURN_IF_ERROR(CheckDisk(job, at, table));
  if (table.has_lifecycle()) RETURN_IF_ERROR(CheckLifecycle(job, at, table, schema));
  if (table.has_initializer()) {
    RETURN_IF_ERROR(table.is_distributed() ? CheckRowInitializer(at, "initializer", table.initializer())
                                           : CheckInitializer(at, "initializer", table.initializer()));
  }
  RETURN_IF_ERROR(CheckRowUpdates(job, at, table));
  RETURN_IF_ERROR(CheckStorage(job, at, table));
  if (table.has_optimizer()) {
    RETURN_IF_ERROR(UpdateSettings::Make(at.Member(&table.optimizer(), at.path() + ".optimizer")).status());
  }
  return absl::OkStatus();
}

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
  if (train.precision() != v1::Train::FP32 && train.device() != v1::Train::CUDA) {
    return at.Error("precision",
                    absl::StrCat(v1::Train::Precision_Name(train.precision()),
                                 " is for device: CUDA, on the CPU products are FP32: set train.device: CUDA, or leave "
                                 "precision out"));
  }
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
      return at.Error("pserver", absl::StrCat("'", endpoint, "' is no host:port"));
    }
    const auto [found, inserted] = seen.emplace(endpoint, i);
    if (!inserted) {
      return at.Error("pserver",
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
  RETURN_IF_ERROR(CheckDeadlines(job));
  return CheckCluster(job);
}

}  // namespace weir
