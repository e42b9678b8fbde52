#include "framework/graph/training_mode.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/format_version.h"

namespace weir {
namespace {

using SetField = void (*)(const v1::OpAttr& attr, v1::TrainingMode* mode);

struct ModeField {
  std::string_view attr;
  SetField set;
};

constexpr ModeField kModeFields[] = {
    {"accumulate", [](const v1::OpAttr& a, v1::TrainingMode* m) { m->set_accumulate(static_cast<int32_t>(a.i())); }},
    {"workers", [](const v1::OpAttr& a, v1::TrainingMode* m) { m->set_workers(static_cast<int32_t>(a.i())); }},
    {"staleness", [](const v1::OpAttr& a, v1::TrainingMode* m) { m->set_staleness(a.i()); }},
    {"ahead", [](const v1::OpAttr& a, v1::TrainingMode* m) { m->set_prefetch_rows(m->prefetch_rows() || a.b()); }},
    {"async_tables", [](const v1::OpAttr& a, v1::TrainingMode* m) { m->set_async_tables(a.b()); }},
    {"geo_every_steps",
     [](const v1::OpAttr& a, v1::TrainingMode* m) {
       // 0 is the default of the attribute: no geo.
       if (a.i() > 0) m->mutable_geo()->set_every_steps(a.i());
     }},
    {"geo_blocks",
     [](const v1::OpAttr& a, v1::TrainingMode* m) {
       if (a.blocks().v_size() > 0) *m->mutable_geo()->mutable_blocks() = a.blocks().v();
     }},
    {"geo_lr_block", [](const v1::OpAttr& a, v1::TrainingMode* m) { m->mutable_geo()->set_lr_block(a.block()); }},
};

// Part of a mode, and what it needs of the rest of the program.
struct ModePart {
  const char* name;
  bool (*is_set)(const v1::TrainingMode& mode);
  bool in_step;  // needs a plan whose trainers are at the same step (sync: true); else one with sync: false
  const char* against_ahead = nullptr;
};

constexpr ModePart kModeParts[] = {
    {"staleness", [](const v1::TrainingMode& m) { return m.staleness() == 0; }, false, "its mode has the bound 0"},
    {"staleness", [](const v1::TrainingMode& m) { return m.staleness() > 0; }, false},
    {"geo", [](const v1::TrainingMode& m) { return m.has_geo(); }, false, "trainers update copies of their own (geo)"},
    {"all_reduce", [](const v1::TrainingMode& m) { return m.has_all_reduce(); }, true},
    {"async_tables", [](const v1::TrainingMode& m) { return m.async_tables(); }, true,
     "rows take effect before their step is over (async_tables)"},
};

std::vector<const ModePart*> PartsOf(const v1::TrainingMode& mode) {
  std::vector<const ModePart*> parts;
  for (const ModePart& part : kModeParts) {
    if (part.is_set(mode)) parts.push_back(&part);
  }
  return parts;
}

// Number of a mode, with the least and the largest that it may be.
struct ModeNumber {
  const char* field;
  int64_t value, least, most;
};

// More batches in a step are a mistake.
constexpr int64_t kMostBatches = 1 << 20;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

bool SaysMode(const v1::OpDesc& op) {
  return op.type() == "prefetch" || op.type() == "send_barrier" || op.type() == "fetch_barrier" ||
         op.type() == "listen_and_serv";
}

const ModeField* ModeFieldOf(const v1::OpAttr& attr) {
  const auto* const found = std::ranges::find(kModeFields, attr.name(), &ModeField::attr);
  return found == std::end(kModeFields) ? nullptr : found;
}

}  // namespace

v1::TrainingMode ModeOf(const v1::ProgramDesc& program) {
  if (program.has_mode()) return program.mode();
  v1::TrainingMode mode;
  if (program.blocks_size() == 0) return mode;
  for (const v1::OpDesc& op : program.blocks(0).ops()) {
    if (!SaysMode(op)) continue;
    for (const v1::OpAttr& attr : op.attrs()) {
      if (const ModeField* field = ModeFieldOf(attr); field != nullptr) field->set(attr, &mode);
    }
  }
  return mode;
}

v1::TrainingMode* MutableMode(v1::ProgramDesc* program) {
  program->set_format_version(std::max(program->format_version(), kModeProgramFormat));
  return program->mutable_mode();
}

const v1::OpAttr* ModeAttr(const v1::OpDesc& op) {
  if (!SaysMode(op)) return nullptr;
  const auto found =
      std::ranges::find_if(op.attrs(), [](const v1::OpAttr& attr) { return ModeFieldOf(attr) != nullptr; });
  return found == op.attrs().end() ? nullptr : &*found;
}

absl::Status CheckModeValues(const v1::TrainingMode& mode) {
  const int64_t least_exchange = mode.has_geo();
  for (const ModeNumber& number : {
           ModeNumber{"accumulate", mode.accumulate(), 1, kMostBatches},
           ModeNumber{"workers", mode.workers(), 1, kMostBatches},
           ModeNumber{"staleness", mode.staleness(), -1, kNoLimit},
           ModeNumber{"geo.every_steps", mode.geo().every_steps(), least_exchange, kNoLimit},
           ModeNumber{"all_reduce.local_steps", mode.all_reduce().local_steps(), 0, kNoLimit},
       }) {
    if (number.value >= number.least && number.value <= number.most) continue;
    const std::string range = number.most == kNoLimit ? absl::StrCat("at least ", number.least)
                                                      : absl::StrCat("in [", number.least, ", ", number.most, "]");
    return absl::InvalidArgumentError(absl::StrCat("mode: ", number.field, " must be ", range, ", got ", number.value));
  }
  const std::vector<const ModePart*> parts = PartsOf(mode);
  for (const ModePart* part : parts) {
    if (part->in_step == parts.front()->in_step) continue;
    return absl::InvalidArgumentError(absl::StrCat("mode: has both ", parts.front()->name, " and ", part->name));
  }
  return absl::OkStatus();
}

absl::Status CheckModeFits(const v1::TrainingMode& mode, const v1::Plan& plan) {
  for (const ModePart* part : PartsOf(mode)) {
    if (part->in_step == plan.sync()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("mode: ", part->name, " needs a plan with sync: ", part->in_step ? "true" : "false"));
  }
  return absl::OkStatus();
}

const char* WhyNotAhead(const v1::TrainingMode& mode) {
  for (const ModePart* part : PartsOf(mode)) {
    if (part->against_ahead != nullptr) return part->against_ahead;
  }
  return nullptr;
}

}  // namespace weir
