// VerifyServer of transpiler/verify/verify_plan.h: checks a server's main and startup program against the plan that
// they carry.
#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/graph/def_use.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/tensor/tensor.h"
#include "glog/logging.h"
#include "transpiler/verify/verify_plan.h"
#include "transpiler/verify/verify_rules.h"

namespace weir {
namespace {

class ServerRules {
 public:
  ServerRules(const Programs& programs, int server)
      : main_(programs.main),
        startup_(programs.startup),
        server_(server),
        plan_(main_.plan()),
        vars_(main_.blocks(0)),
        initial_(startup_.blocks_size() > 0 ? DefUse(startup_.blocks(0)) : DefUse()) {}

  absl::Status Check() const {
    const v1::OpDesc* listen = ListenOf(main_);
    if (listen == nullptr) return Broken("agreed", "is no server's program: it has no listen_and_serv");
    RETURN_IF_ERROR(CheckOwnership(main_, plan_, vars_));
    RETURN_IF_ERROR(CheckListen(*listen));
    ASSIGN_OR_RETURN(const Updates updates, UpdatesOf(main_, *listen));
    for (const v1::PlacedBlock& block : main_.plan().blocks()) {
      const auto update = updates.find(block.name());
      if (block.server() != server_) {
        if (update == updates.end()) continue;
        return Broken("updated_once", "server ", server_, " updates block '", block.name(), "', which server ",
                      block.server(), " owns");
      }
      if (update == updates.end()) return Once("updated_once", "optimize block of", block.name(), 0);
      RETURN_IF_ERROR(CheckShapes(block, *update->second));
      RETURN_IF_ERROR(CheckInitial(block));
    }
    for (const auto& [name, update] : updates) {
      if (plan_.blocks.contains(name) || plan_.tables.contains(name)) continue;
      return Broken("updated_once", "server ", server_, " updates '", name, "', which the plan does not know");
    }
    return CheckReads();
  }

 private:
  absl::Status CheckListen(const v1::OpDesc& listen) const {
    const v1::Plan& plan = main_.plan();
    const OpDef* def = OpRegistry::Global().Find(listen.type());
    CHECK(def != nullptr);
    const AttrReader attrs(listen, *def);
    if (attrs.Int("server_id") != server_) {
      return Broken("agreed", "is the program of server ", attrs.Int("server_id"), ", and this is server ", server_);
    }
    if (attrs.Int("trainers") != plan.trainers()) {
      return Broken("waits", "listen_and_serv waits for ", attrs.Int("trainers"), " trainers; the plan has ",
                    plan.trainers());
    }
    if (attrs.Int("lanes") != plan.lanes()) {
      return Broken("agreed", "listen_and_serv adds ", attrs.Int("lanes"), " lanes; the plan has ", plan.lanes());
    }
    return CheckSync(listen, plan);
  }

  absl::Status CheckShapes(const v1::PlacedBlock& block, const v1::OpDesc& update) const {
    const v1::VarDesc* value = vars_.Find(block.name());
    if (value == nullptr || value->kind() != v1::DENSE ||
        !std::equal(value->dims().begin(), value->dims().end(), block.dims().begin(), block.dims().end())) {
      return Broken("shapes", "server ", server_, " holds block '", block.name(), "' as ",
                    value == nullptr ? "nothing" : DescribeVar(*value), "; the plan has ", ShapeString(DimsOf(block)));
    }
    const v1::VarDesc* grad = vars_.Find(InputOf(update, "Grad"));
    // A gradient that the optimize block computes itself (clip, decay) has been checked by its ops.
    if (grad == nullptr) return absl::OkStatus();
    const bool rows = grad->kind() == v1::SELECTED_ROWS;
    if (rows == block.sparse_gradient() && DimsAgree(Dims(*grad), DimsOf(block))) return absl::OkStatus();
    return Broken("shapes", "server ", server_, " takes the gradient of block '", block.name(), "' ",
                  ShapeString(DimsOf(block)), block.sparse_gradient() ? ", which comes by rows," : "", " as ",
                  DescribeVar(*grad));
  }

  absl::Status CheckInitial(const v1::PlacedBlock& block) const {
    if (startup_.blocks_size() == 0) return absl::OkStatus();
    const absl::Span<const int> writers = initial_.Writers(block.name());
    if (writers.empty()) {
      return Broken("initialised", "the startup program of server ", server_, " gives block '", block.name(),
                    "' no value");
    }
    const v1::OpDesc& op = startup_.blocks(0).ops(writers.back());
    const v1::OpAttr* shape = FindAttr(op, "shape");
    if (shape != nullptr &&
        !std::equal(shape->ints().v().begin(), shape->ints().v().end(), block.dims().begin(), block.dims().end())) {
      return Broken("shapes", "server ", server_, " initialises block '", block.name(), "' ",
                    ShapeString(DimsOf(block)), " as [", absl::StrJoin(shape->ints().v(), ", "), "]");
    }
    const v1::OpAttr* variable = FindAttr(op, "variable");
    if (variable == nullptr) return absl::OkStatus();  // the initial value is the same everywhere
    const int64_t element = IntOr(op, "element_begin", 0);
    if (variable->s() == block.parameter() && element == block.element_begin()) return absl::OkStatus();
    return Broken("initialised", "block '", block.name(), "' is initialised as elements from ", element, " of '",
                  variable->s(), "'; it is elements from ", block.element_begin(), " of '", block.parameter(), "'");
  }

  absl::Status CheckReads() const {
    if (startup_.blocks_size() == 0) return absl::OkStatus();
    for (const v1::BlockDesc& block : main_.blocks()) {
      for (const v1::OpDesc& op : block.ops()) {
        for (const v1::OpSlot& slot : op.inputs()) {
          for (const std::string& name : slot.vars()) {
            const v1::VarDesc* var = vars_.Find(name);
            if (var == nullptr || !var->persistable() || var->kind() != v1::DENSE || initial_.IsWritten(name)) continue;
            return Broken("initialised", op.type(), " of optimize block ", block.index(), " reads '", name,
                          "', and the startup program of server ", server_, " gives it no value");
          }
        }
      }
    }
    return absl::OkStatus();
  }

  const v1::ProgramDesc& main_;
  const v1::ProgramDesc& startup_;
  const int server_;
  const PlanIndex plan_;
  const VarIndex vars_;
  const DefUse initial_;  // of block 0 of the startup program
};

}  // namespace

absl::Status VerifyServer(const Programs& server, int index) {
  if (server.main.blocks_size() == 0) return Broken("agreed", "is no server's program: it has no block");
  return ServerRules(server, index).Check();
}

}  // namespace weir
