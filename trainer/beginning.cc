#include "trainer/beginning.h"

#include <algorithm>
#include <cstdint>

#include "proto/trainer.pb.h"

namespace weir {

std::string Beginning::Serialize() const {
  v1::Beginning message;
  message.set_resumed(resumed);
  message.set_step(point.step);
  message.mutable_trainer_steps()->Add(point.trainer_steps.begin(), point.trainer_steps.end());
  message.set_statistics(point.statistics);
  if (point.loss_scale.has_value()) *message.mutable_loss_scale() = *point.loss_scale;
  message.set_first_step_examples(point.first_step_examples);
  return message.SerializeAsString();
}

absl::StatusOr<Beginning> Beginning::Parse(std::string_view bytes) {
  v1::Beginning message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return absl::InternalError("what the chief says of the beginning cannot be read");
  Beginning beginning;
  beginning.resumed = message.resumed();
  beginning.point.step = std::max<int64_t>(0, message.step());
  beginning.point.trainer_steps.assign(message.trainer_steps().begin(), message.trainer_steps().end());
  beginning.point.statistics = message.statistics();
  if (message.has_loss_scale()) beginning.point.loss_scale = message.loss_scale();
  beginning.point.first_step_examples = message.first_step_examples();
  return beginning;
}

}  // namespace weir
