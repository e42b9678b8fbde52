// Devices of the trainers on one machine: --gpus of launch.
#ifndef WEIR_TOOLS_LAUNCHING_GPUS_H_
#define WEIR_TOOLS_LAUNCHING_GPUS_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weir {

// Returns CUDA_VISIBLE_DEVICES for all trainers of a machine: as many devices as there are `trainers`, one for each
// local rank in its order. All trainers see all of them, so LOCAL_RANK is the number of a trainer's device, and devices
// of one machine reach each other's memory.
//
// flag: a count ("4": the first four devices) or a list with a comma in it ("0,2,3"; "2," has one). Numbers of the list
// index `visible`, the machine's own CUDA_VISIBLE_DEVICES, if it is set; names ("GPU-8932f937") must be in it.
// `machine`: "" for this one, else the host's name for messages. InvalidArgument names the entry that is wrong, twice
// there or not visible; the devices and trainers if there are fewer devices.
absl::StatusOr<std::string> ChooseGpus(std::string_view flag, const std::optional<std::string>& visible, int trainers,
                                       std::string_view machine);

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_GPUS_H_
