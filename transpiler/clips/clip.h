// Clips of the job, registered by message: rules for `clip { by_value { ... } }`.
//
// One file per kind. A clip is a list of ops with role OPTIMIZE that bound the averaged gradient of one parameter in
// place. They follow the average (merge) and precede decay and update: transpiler/passes/append_optimizer.h.
#ifndef WEIR_TRANSPILER_CLIPS_CLIP_H_
#define WEIR_TRANSPILER_CLIPS_CLIP_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/optimizer.pb.h"
#include "proto/program.pb.h"
#include "transpiler/base/setting.h"

namespace weir {

// Gradient to be bounded, and a way for a clip to add variables to the program.
struct ClipTarget {
  // The parameter or table, and its gradient (DENSE or SELECTED_ROWS).
  const v1::VarDesc& param;
  const v1::VarDesc& grad;
  // Path of the Clip message in the job: "optimizer.clip", "table[0].optimizer.clip", "optimizer.parameter[2].clip".
  // Parameters with equal paths form one group and are bounded together.
  std::string group;
  // Adds a variable to block 0. InvalidArgument if a variable of that name is already there.
  std::function<absl::Status(const v1::VarDesc&)> declare;
};

// Returns the ops for one parameter; the last ones read and write `grad`. The caller sets role and param_grads.
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
// Use at namespace scope. `name`: the member of v1::Clip.kind.
#define REGISTER_CLIP(name, Message, ...) \
  static const ::weir::ClipRegistrar<Message> weir_clip_##name(#name, __VA_ARGS__)

}  // namespace weir

#endif  // WEIR_TRANSPILER_CLIPS_CLIP_H_
