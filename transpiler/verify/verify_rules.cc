#include "transpiler/verify/verify_rules.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/graph/op_registry.h"
#include "glog/logging.h"

namespace weir {
namespace {

// The op of an optimize block that updates its parameter; nullptr when none does.
const v1::OpDesc* UpdateOf(const v1::BlockDesc& block) {
  for (const v1::OpDesc& op : block.ops()) {
    if (!InputOf(op, "LearningRate").empty() && !InputOf(op, "Param").empty()) return &op;
  }
  return nullptr;
}

}  // namespace

absl::Status Once(const char* rule, std::string_view what, const std::string& name, int count) {
  if (count == 1) return absl::OkStatus();
  return Broken(rule, std::string(what), " '", name, "' is ", count == 0 ? "missing" : "there more than once");
}

int64_t IntAt(const v1::OpDesc& op, std::string_view name, int i, int64_t absent) {
  const auto& ints = IntsOf(op, name);
  return i >= ints.size() ? absent : ints.Get(i);
}

bool BoolOf(const v1::OpDesc& op, std::string_view name) {
  const OpDef* def = OpRegistry::Global().Find(op.type());
  CHECK(def != nullptr) << op.type() << ": the verifier has seen this op";
  return AttrReader(op, *def).Bool(name);
}

absl::Status CheckSync(const v1::OpDesc& op, const v1::Plan& plan) {
  const bool said = BoolOf(op, "sync"), planned = plan.sync();
  if (said == planned) return absl::OkStatus();
  return Broken("agreed", op.type(), " says sync=", said ? "true" : "false", ", the plan ", planned ? "true" : "false");
}

const v1::OpDesc* ListenOf(const v1::ProgramDesc& main) {
  const v1::OpDesc* listen = nullptr;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() == "listen_and_serv") listen = &op;
  }
  return listen;
}

absl::StatusOr<Updates> UpdatesOf(const v1::ProgramDesc& main, const v1::OpDesc& listen) {
  Updates updates;
  const v1::OpAttr* blocks = FindAttr(listen, "optimize_blocks");
  const int count = blocks == nullptr ? 0 : blocks->blocks().v_size();
  for (int i = 0; i < count; ++i) {
    const int b = blocks->blocks().v(i);
    if (b <= 0 || b >= main.blocks_size()) return Broken("updated_once", "there is no optimize block ", b);
    const v1::OpDesc* update = UpdateOf(main.blocks(b));
    if (update == nullptr) return Broken("updated_once", "optimize block ", b, " updates nothing");
    const std::string param = InputOf(*update, "Param");
    if (!updates.emplace(param, update).second) return Once("updated_once", "optimize block of", param, 2);
  }
  return updates;
}

}  // namespace weir
