#include "transpiler/clips/clip.h"

#include "framework/base/status_macros.h"

namespace weir {

KindRegistry<ClipRule>& ClipRegistry() {
  static auto* const registry = new KindRegistry<ClipRule>("clip");
  return *registry;
}

absl::StatusOr<ClipOps> MakeClip(const Setting& clip) {
  ASSIGN_OR_RETURN(const Kind kind, KindOf(clip, "kind"));
  ASSIGN_OR_RETURN(const ClipRule* rule, ClipRegistry().Find(kind));
  return (*rule)(kind.setting.message(), kind.setting);
}

}  // namespace weir
