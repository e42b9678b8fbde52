// Any bytes as the residuals of a checkpoint: what is taken over is saved as it was taken.
#include <cstdlib>

#include "pserver/residuals.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  v1::Residuals saved;
  if (!saved.ParseFromString(FuzzInput(data, size).Rest())) return 0;
  const LaneRange nodes[] = {{0, 4}, {4, 2}, {6, 1}};
  Residuals residuals(/*row_bytes=*/4096);
  if (!residuals.Restore(saved, nodes, /*step=*/5).ok()) return 0;
  const v1::Residuals first = residuals.Save(/*step=*/5);
  Residuals again(/*row_bytes=*/4096);
  if (!again.Restore(first, nodes, /*step=*/5).ok()) std::abort();
  if (again.Save(/*step=*/5).SerializeAsString() != first.SerializeAsString()) std::abort();
  return 0;
}
