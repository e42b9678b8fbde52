// Layers of a job. One file per kind, which registers its rule under the kind's name. A user's own layer is a message
// and
//
//   REGISTER_CUSTOM_LAYER(my_layer, my::Layer, [](const my::Layer& m, ModelContext& ctx) -> absl::Status {...});
//
// linked into the programs; a job then says  custom { [type.googleapis.com/my.Layer] { ... } }.
#ifndef WEIR_TRANSPILER_LAYERS_LAYER_H_
#define WEIR_TRANSPILER_LAYERS_LAYER_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "transpiler/base/setting.h"
#include "transpiler/model/model_context.h"

namespace weir {

// Appends the layer's operators. The output is the variable ctx.name(); a layer with several outputs (mmoe, ple) names
// them "<ctx.name()>.0", "<ctx.name()>.1", ... Errors are made by ModelContext::Error.
using LayerRule = std::function<absl::Status(const google::protobuf::Message&, ModelContext&)>;
KindRegistry<LayerRule>& LayerRegistry();

template <typename M>
struct LayerRegistrar {
  using Function = absl::Status (*)(const M&, ModelContext&);
  LayerRegistrar(const std::string& key, Function rule) {
    LayerRegistry().Register(key, [rule](const google::protobuf::Message& message, ModelContext& ctx) {
      return rule(static_cast<const M&>(message), ctx);
    });
  }
};
// Use at namespace scope. REGISTER_LAYER: `name` is the member of v1::Layer.kind. REGISTER_CUSTOM_LAYER: the key is the
// full name of the message, and `name` only has to be unique in the file.
#define REGISTER_LAYER(name, Message, ...) \
  static const ::weir::LayerRegistrar<Message> weir_layer_##name(#name, __VA_ARGS__)
#define REGISTER_CUSTOM_LAYER(name, Message, ...) \
  static const ::weir::LayerRegistrar<Message> weir_layer_##name(Message::descriptor()->full_name(), __VA_ARGS__)

}  // namespace weir

#endif  // WEIR_TRANSPILER_LAYERS_LAYER_H_
