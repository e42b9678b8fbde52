// Channel for tests of the channels between a program and its servers: writes down what reaches the servers.
#ifndef WEIR_TESTS_PSERVER_CHANNELS_STEP_RECORDER_H_
#define WEIR_TESTS_PSERVER_CHANNELS_STEP_RECORDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"

namespace weir {

// Thread-safe. Blocks are received as 1, 2, 3, ... times the number of the step, from 1.
class StepRecorder : public ParamChannel {
 public:
  absl::Status BeginStep(int64_t step, bool read_only) override {
    MutexLock lock(&mu_);
    step_ = step;
    return AddLine(absl::StrCat("begin ", step, read_only ? " read only" : ""));
  }
  void SetStepSamples(int64_t samples) override {
    MutexLock lock(&mu_);
    AddLine(absl::StrCat("step samples ", samples)).IgnoreError();
  }
  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    MutexLock lock(&mu_);
    return AddLine(absl::StrCat("pull ", tables.size()));
  }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override {
    std::string line = absl::StrCat("dense ", block.name);
    for (const LaneTensor& lane : lanes)
      absl::StrAppend(&line, " lane ", lane.lane, ": ", absl::StrJoin(lane.value->span<float>(), " "));
    MutexLock lock(&mu_);
    return AddLine(line);
  }
  absl::Status SendRows(const BlockRef& block, int, absl::Span<const LaneRows> lanes) override {
    std::string line = absl::StrCat("rows ", block.name);
    for (const LaneRows& lane : lanes) {
      absl::StrAppend(&line, " lane ", lane.lane, ": ids ", absl::StrJoin(lane.value->ids, " "), " values ",
                      absl::StrJoin(lane.value->values.span<float>(), " "));
    }
    MutexLock lock(&mu_);
    return AddLine(line);
  }
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override {
    MutexLock lock(&mu_);
    return AddLine(absl::StrCat("finish ", samples, " ", v1::Verdict_Name(verdict)));
  }
  absl::Status Receive(const BlockRef& block, Tensor* out) override {
    MutexLock lock(&mu_);
    for (int64_t i = 0; i < out->size(); ++i) out->data<float>()[i] = static_cast<float>((i + 1) * (step_ + 1));
    return AddLine(absl::StrCat("receive ", block.name));
  }
  absl::Status FinishReceives(StepOutcome* outcome) override {
    MutexLock lock(&mu_);
    if (outcome != nullptr) *outcome = {.version = step_ + 1, .samples = 100};
    return AddLine("received");
  }

  // Returns the lines since the last call.
  std::vector<std::string> Take() {
    MutexLock lock(&mu_);
    std::vector<std::string> lines;
    lines.swap(lines_);
    return lines;
  }

 private:
  absl::Status AddLine(std::string line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    lines_.push_back(std::move(line));
    return absl::OkStatus();
  }

  Mutex mu_;
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
};

// Sends one lane's gradient of a dense block.
inline absl::Status SendLane(ParamChannel* channel, const std::string& block, int lane, const Tensor& value) {
  const ParamChannel::LaneTensor lanes[] = {{.lane = lane, .value = &value}};
  return channel->SendDense({.name = block, .server = 0, .count = value.size()}, lanes);
}

// Sends one lane's gradient rows of a distributed table.
inline absl::Status SendRowsOf(ParamChannel* channel, const std::string& table, int lane, const SelectedRows& rows) {
  const ParamChannel::LaneRows lanes[] = {{.lane = lane, .value = &rows}};
  return channel->SendRows({.name = table, .server = -1}, static_cast<int>(rows.values.dim(1)), lanes);
}

inline Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}

inline SelectedRows Rows(const std::vector<int64_t>& ids, const std::vector<float>& values) {
  return {.ids = ids,
          .values = Tensor::Of<float>(
              {static_cast<int64_t>(ids.size()), static_cast<int64_t>(values.size() / ids.size())}, values),
          .merged = true,
          .present = true};
}

}  // namespace weir

#endif  // WEIR_TESTS_PSERVER_CHANNELS_STEP_RECORDER_H_
