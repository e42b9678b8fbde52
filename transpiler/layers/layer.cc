#include "transpiler/layers/layer.h"

namespace weir {

KindRegistry<LayerRule>& LayerRegistry() {
  static auto* const registry = new KindRegistry<LayerRule>("layer");
  return *registry;
}

}  // namespace weir
