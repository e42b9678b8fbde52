#include "pserver/replica/own_programs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/graph/op_registry.h"

namespace weir {

absl::StatusOr<OwnPrograms> MakeOwnPrograms(const v1::ProgramDesc& main, const v1::ProgramDesc& startup,
                                            const OwnUpdates& updates) {
  if (startup.blocks_size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("program ", main.name(),
                                                   ": its startup program has no block 1 with the initial values of "
                                                   "what the trainer updates"));
  }
  OwnPrograms own = {.main = main, .startup = startup};
  own.main.clear_mode();
  v1::Plan* const plan = own.main.mutable_plan();
  plan->set_servers(1);
  plan->set_trainers(1);
  for (v1::PlacedBlock& block : *plan->mutable_blocks()) block.set_server(0);
  own.main.mutable_blocks(0)->clear_ops();
  v1::OpDesc serve =
      MakeOp("listen_and_serv", {}, {},
             {AttrI("server_id", 0), AttrI("trainers", 1), AttrI("lanes", plan->lanes()), AttrB("sync", plan->sync()),
              AttrS("average", "samples"), AttrBlocks("optimize_blocks", *updates.blocks)});
  if (updates.lr_block >= 0) *serve.add_attrs() = AttrBlock("lr_block", updates.lr_block);
  *own.main.mutable_blocks(0)->add_ops() = std::move(serve);
  *own.startup.mutable_blocks(0)->mutable_ops() = startup.blocks(1).ops();
  own.startup.mutable_blocks()->DeleteSubrange(1, startup.blocks_size() - 1);
  return own;
}

}  // namespace weir
