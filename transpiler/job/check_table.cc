#include "transpiler/job/check_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/float16.h"
#include "transpiler/base/setting.h"
#include "transpiler/job/check_values.h"
#include "transpiler/job/job.h"
#include "transpiler/job/update_settings.h"

namespace weir {
namespace {

// Columns of a table: a row and its state travel in one message of 64 MiB.
constexpr int64_t kMaxWidth = 1 << 20;

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
    // Uses are counted in float32 beside the row, which is exact up to 2^24.
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

}  // namespace

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

}  // namespace weir
