// Clips of the job, by message: what becomes of `clip { by_value { ... } }`.
//
// One file per kind. A clip is ops with role OPTIMIZE that bound the averaged gradient of one parameter in place. They
// stand behind the average (merge) and in front of decay and update: transpiler/append_optimizer.h.
#ifndef WEIR_TRANSPILER_CLIPS_CLIP_H_
#define WEIR_TRANSPILER_CLIPS_CLIP_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/optimizer.pb.h"
#include "proto/program.pb.h"
#include "transpiler/setting.h"

namespace weir {

// The gradient that is bounded, and what a clip may add to the program besides its ops.
struct ClipTarget {
  // The parameter or table, and its gradient (DENSE or SELECTED_ROWS).
  const v1::VarDesc& param;
  const v1::VarDesc& grad;
  // Parameters of one group are bounded by one Clip message of the job: its path, "optimizer.clip",
  // "table[0].optimizer.clip", "optimizer.parameter[2].clip".
  std::string group;
  // Adds a variable to block 0. InvalidArgument when a variable of that name is there already.
  std::function<absl::Status(const v1::VarDesc&)> declare;
};

// The ops for one parameter; the last ones read and write `grad`. Role and param_grads are filled in by the caller.
using ClipOps = std::function<absl::StatusOr<std::vector<v1::OpDesc>>(const ClipTarget&)>;

// Checks the settings (errors through Setting::Error) and makes the clip. Called when the job is checked and again when
// the program is made.
using ClipRule = std::function<absl::StatusOr<ClipOps>(const google::protobuf::Message&, const Setting&)>;
KindRegistry<ClipRule>& ClipRegistry();

// `clip`: a v1::Clip and its path.
absl::StatusOr<ClipOps> MakeClip(const Setting& clip);

template <typename M>
struct ClipRegistrar {
  using Function = absl::StatusOr<ClipOps> (*)(const M&, const Setting&);
  ClipRegistrar(const std::string& key, Function rule) {
    ClipRegistry().Register(key, [rule](const google::protobuf::Message& message, const Setting& at) {
      return rule(static_cast<const M&>(message), at);
    });
  }
};
// At namespace scope. `name`: the member of v1::Clip.kind.
#define REGISTER_CLIP(name, Message, ...) \
  static const ::weir::ClipRegistrar<Message> weir_clip_##name(#name, __VA_ARGS__)

}  // namespace weir

#endif  // WEIR_TRANSPILER_CLIPS_CLIP_H_
