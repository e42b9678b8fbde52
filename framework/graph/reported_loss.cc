#include "framework/graph/reported_loss.h"

#include <map>
#include <utility>

#include "framework/graph/op_view.h"

namespace weir {
namespace {

// Slots by type of operator.
std::map<std::string, std::string>& Registry() {
  static auto* const registry = new std::map<std::string, std::string>;
  return *registry;
}

}  // namespace

MinimisedLossRegistrar::MinimisedLossRegistrar(MinimisedLossDef def) {
  Registry().emplace(std::move(def.op), std::move(def.loss));
}

std::string ReportedLoss(const v1::ProgramDesc& program, const v1::LossDesc& loss) {
  // A program from a file may have nothing but a loss.
  if (program.blocks_size() == 0) return loss.var();
  for (const v1::OpDesc& op : program.blocks(0).ops()) {
    const auto found = Registry().find(op.type());
    if (found != Registry().end() && Writes(op, loss.var())) return InputOf(op, found->second);
  }
  return loss.var();
}

}  // namespace weir
