// Any bytes as the residuals of a checkpoint, in pieces of any size: what is taken over is saved as it was taken.
#include <cstdlib>

#include "pserver/client/residuals.h"
#include "tests/fuzz/input.h"

namespace weir {
namespace {

constexpr LaneRange kNodes[] = {{0, 4}, {4, 2}, {6, 1}};

absl::Status Restore(std::string_view saved, size_t piece, Residuals* residuals) {
  ResidualReader reader(
      [&](const v1::Residual& residual, std::string_view) { return residuals->Restore(residual, kNodes, /*step=*/5); });
  for (size_t at = 0; at < saved.size(); at += piece) {
    if (const absl::Status status = reader.Append(saved.substr(at, piece)); !status.ok()) return status;
  }
  return reader.Finish();
}

std::string Save(const Residuals& residuals) {
  std::string saved;
  const absl::Status status = residuals.Save(/*step=*/5, [&](const v1::Residual& residual) {
    saved += ResidualElement(residual);
    return absl::OkStatus();
  });
  if (!status.ok()) std::abort();
  return saved;
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  const std::string saved = FuzzInput(data, size).Rest();
  Residuals whole(/*row_bytes=*/4096, /*message_bytes=*/64), pieces(/*row_bytes=*/4096, /*message_bytes=*/64);
  const bool read = Restore(saved, size + 1, &whole).ok();
  if (Restore(saved, 7, &pieces).ok() != read) std::abort();
  if (!read) return 0;
  const std::string first = Save(whole);
  Residuals again(/*row_bytes=*/4096, /*message_bytes=*/64);
  if (!Restore(first, 7, &again).ok()) std::abort();
  if (Save(again) != first || Save(pieces) != first) std::abort();
  return 0;
}
