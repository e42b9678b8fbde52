// Sessions of the workers of one trainer (train.workers), and the channels that their programs use.
#ifndef WEIR_TRAINER_SESSION_WORKERS_H_
#define WEIR_TRAINER_SESSION_WORKERS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/tensor/device_memory.h"
#include "pserver/channels/channel_stack.h"
#include "trainer/data/lane_reader.h"
#include "trainer/session/session.h"
#include "trainer/this_trainer.h"
#include "transpiler/split/transpile.h"

namespace weir {

struct Job;

// Not thread-safe.
class Workers {
 public:
  struct Options {
    ThisTrainer trainer;
    // Borrowed for the life of the workers.
    ThreadPool* pool = nullptr;
    DeviceMemory* device = nullptr;  // null: the CPU
    // Borrowed for the call of Create.
    const Job* job = nullptr;
    const Programs* programs = nullptr;
    // Columns that the readers give.
    std::vector<Column> columns;
    // Step that this trainer begins with.
    int64_t first_step = 0;
    // SessionOptions.judged.
    std::vector<std::string> judged = {};
    // SessionOptions.items.
    std::vector<std::string> items = {};
  };
  // Creates the sessions; each receives the parameters as they are before first_step. Errors as Session::Create,
  // Session::Start and ChannelStack::Create.
  static absl::StatusOr<std::unique_ptr<Workers>> Create(const Options& options);

  int count() const { return static_cast<int>(sessions_.size()); }
  Session& session(int worker) { return *sessions_[static_cast<size_t>(worker)]; }

  // Sets the loss scale of the following steps.
  void SetLossScale(float scale);
  // Runs batch `batch` of step `step` on all workers at once; `batches` and the results by worker. Errors as
  // Session::Train.
  absl::StatusOr<std::vector<StepResult>> Train(int64_t step, int batch, std::vector<std::vector<LaneBatch>>* batches);
  // Ends the exchanges of geo after the last step (ChannelStack::Finish).
  absl::Status Finish() { return channels_->Finish(); }

 private:
  Workers() = default;

  std::unique_ptr<ChannelStack> channels_;
  std::vector<std::unique_ptr<Session>> sessions_;  // by worker
};

}  // namespace weir

#endif  // WEIR_TRAINER_SESSION_WORKERS_H_
