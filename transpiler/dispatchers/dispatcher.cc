#include "transpiler/dispatchers/dispatcher.h"

namespace weir {

KindRegistry<DispatcherRule>& DispatcherRegistry() {
  static auto* const registry = new KindRegistry<DispatcherRule>("dispatcher");
  return *registry;
}

}  // namespace weir
