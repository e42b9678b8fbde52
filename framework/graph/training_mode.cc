#include "framework/graph/training_mode.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

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

}  // namespace weir
