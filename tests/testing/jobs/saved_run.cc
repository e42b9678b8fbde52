#include "tests/testing/jobs/saved_run.h"

#include <utility>

#include "framework/checkpoint/load.h"
#include "gtest/gtest.h"

namespace weir {

std::vector<float> SavedRun::Whole(const std::string& variable) const {
  const absl::StatusOr<WholeVariable> whole = ReadWhole(checkpoint.found.path, checkpoint.manifest, variable, "");
  EXPECT_TRUE(whole.ok()) << whole.status();
  return whole.ok() ? whole->values : std::vector<float>();
}

SavedRun OpenSaved(InProcessResult result, const std::string& checkpoints) {
  SavedRun saved{.result = std::move(result)};
  const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(checkpoints);
  EXPECT_TRUE(newest.ok()) << newest.status();
  if (!newest.ok()) return saved;
  saved.checkpoint = *newest;
  const absl::StatusOr<DigestTable> digests = CheckpointDigests(newest->found.path, newest->manifest);
  EXPECT_TRUE(digests.ok()) << digests.status();
  if (!digests.ok()) return saved;
  saved.values = Total(*digests).values;
  saved.state = Total(*digests).state;
  return saved;
}

}  // namespace weir
