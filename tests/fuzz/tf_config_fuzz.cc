// Any text as TF_CONFIG. What is read says who this process is in one way, and lists of addresses with their numbers.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "pserver/cluster/tf_config.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = weir::FuzzInput(data, size).Rest();
  const absl::StatusOr<weir::TfConfig> config =
      weir::ReadTfConfig([&](std::string_view) -> std::optional<std::string> { return text; });
  if (!config.ok()) return 0;
  if (config->server_id.has_value() && config->trainer_id.has_value()) std::abort();
  if (config->role.has_value() != (config->server_id.has_value() || config->trainer_id.has_value())) std::abort();
  if (config->trainers.has_value() != config->number_of_trainers.has_value()) std::abort();
  if (!config->trainers.has_value()) return 0;
  const std::string& list = config->trainers->value;
  const auto commas = std::count(list.begin(), list.end(), ',');
  if (config->number_of_trainers->value != std::to_string(commas + 1)) std::abort();
  return 0;
}
