// listen_and_serv: what a parameter server does
//
// The signature alone: a server reads its options here. Whenever a step takes effect it runs `lr_block`, if the op has
// that attribute, and then `optimize_blocks`. There is no kernel; the op is not run like others.
//
// `staleness` and `async_tables` say the training mode in programs of format version 1
// (framework/graph/training_mode.h).
#include "framework/graph/op_registry.h"

namespace weir {
namespace {

REGISTER_OP(listen_and_serv)
({.type = "listen_and_serv",
  .summary = "serves the parameters of this program",
  .attrs = {Required(IntAttr("server_id", 0)), Required(IntAttr("trainers", 1)), IntAttr("lanes", 8),
            BoolAttr("sync", true), StringAttr("average", "samples"), IntAttr("staleness", -1),
            BoolAttr("async_tables", false), BlocksAttr("optimize_blocks"), BlockAttr("lr_block")},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    const AttrReader attrs = ctx.attrs();
    if (attrs.Int("server_id") < 0) return ctx.Error("server_id must not be negative");
    if (attrs.Int("trainers") < 1) return ctx.Error("trainers must be at least 1");
    const int64_t lanes = attrs.Int("lanes");
    if (lanes < 0 || (lanes & (lanes - 1)) != 0) {
      return ctx.Error("lanes must be a power of two, or 0, got " + std::to_string(lanes));
    }
    if (attrs.Bool("sync") && lanes > 0 && attrs.Int("trainers") > lanes) {
      return ctx.Error(std::to_string(attrs.Int("trainers")) + " trainers need as many lanes, got " +
                       std::to_string(lanes));
    }
    if (attrs.Int("staleness") < -1) return ctx.Error("staleness must be at least -1");
    if (attrs.Bool("sync") && attrs.Int("staleness") >= 0) return ctx.Error("staleness needs sync = false");
    if (!attrs.Bool("sync") && attrs.Bool("async_tables")) return ctx.Error("async_tables needs sync = true");
    const std::string& average = attrs.String("average");
    if (average != "samples" && average != "trainers") {
      return ctx.Error("average must be samples or trainers, got '" + average + "'");
    }
    return absl::OkStatus();
  },
  .cost = [](InferContext&) { return Cost{}; }});

}  // namespace
}  // namespace weir
