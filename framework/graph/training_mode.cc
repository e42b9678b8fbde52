#include "framework/graph/training_mode.h"

namespace weir {

TrainingMode ModeOf(const v1::ProgramDesc& main) {
  TrainingMode mode;
  if (main.blocks_size() == 0) return mode;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() != "prefetch" && op.type() != "send_barrier" && op.type() != "fetch_barrier" &&
        op.type() != "listen_and_serv") {
      continue;
    }
    for (const v1::OpAttr& attr : op.attrs()) {
      if (attr.name() == "accumulate") mode.accumulate = static_cast<int>(attr.i());
      if (attr.name() == "workers") mode.workers = static_cast<int>(attr.i());
      if (attr.name() == "staleness") mode.staleness = attr.i();
      if (attr.name() == "ahead" && attr.b()) mode.prefetch_rows = true;
      if (attr.name() == "async_tables") mode.async_tables = attr.b();
      if (attr.name() == "geo_every_steps") mode.geo_every_steps = attr.i();
      if (attr.name() == "geo_lr_block") mode.geo_lr_block = attr.block();
      if (attr.name() == "geo_blocks") mode.geo_blocks.assign(attr.blocks().v().begin(), attr.blocks().v().end());
    }
  }
  return mode;
}

}  // namespace weir
