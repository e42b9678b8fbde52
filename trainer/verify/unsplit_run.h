// Unsplit run of a job: its single-machine program, computed in one process without servers, clients, plan or wire. The
// whole split set must equal it to the bit.
//
// The arithmetic is that of the contract (docs/consistency.md), implemented a second time in its plainest form: each
// lane by itself, lanes added in the one tree, one division by the samples of the step, then the program's own update
// ops. Rows of distributed tables live in a map and are changed by the row form of their update op.
#ifndef WEIR_TRAINER_VERIFY_UNSPLIT_RUN_H_
#define WEIR_TRAINER_VERIFY_UNSPLIT_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/digest.h"
#include "framework/formats/example.h"
#include "trainer/data/lane_reader.h"

namespace weir {

struct Job;

// Not thread-safe.
class UnsplitRun {
 public:
  // Creates the run and runs the startup program. `pool` is borrowed. The job must be sync and average by samples.
  static absl::StatusOr<std::unique_ptr<UnsplitRun>> Create(const Job& job, ThreadPool* pool);
  virtual ~UnsplitRun() = default;

  // Runs one step on its batches (train.accumulate_steps of them), each with one batch per lane of the job, and columns
  // as the batches have them. The batches are only read.
  virtual absl::Status Step(const std::vector<std::vector<LaneBatch>>& batches, const std::vector<Column>& columns) = 0;

  // Returns digests of every updated parameter and table, with names and sums as servers give them.
  virtual DigestTable Digests() const = 0;
  // Returns the names of the updated dense parameters, sorted.
  virtual std::vector<std::string> Parameters() const = 0;
  // Values returns the elements of one of them, RowElements the number of floats in a row of it.
  virtual absl::Span<const float> Values(std::string_view parameter) const = 0;
  virtual int64_t RowElements(std::string_view parameter) const = 0;
  // Returns the number of elements of a dense parameter; -1 for a table.
  virtual int64_t Elements(std::string_view variable) const = 0;
  // Returns the number of logical shards of a table.
  virtual int64_t Shards(std::string_view table) const = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_VERIFY_UNSPLIT_RUN_H_
