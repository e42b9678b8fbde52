// Settings of one optimizer of the job: its rule, its schedule, and exceptions for single parameters.
#ifndef WEIR_TRANSPILER_JOB_UPDATE_SETTINGS_H_
#define WEIR_TRANSPILER_JOB_UPDATE_SETTINGS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "transpiler/base/setting.h"
#include "transpiler/clips/clip.h"
#include "transpiler/optimizers/optimizer.h"
#include "transpiler/schedules/schedule.h"

namespace weir {

// Settings of the update of one parameter.
struct ParameterUpdate {
  double learning_rate_factor = 1;
  double l1_decay = 0;
  double l2_decay = 0;
  // Clip of the gradient. Null: none. Valid as long as the settings.
  const ClipOps* clip = nullptr;
  std::string clip_group;  // ClipTarget::group
};

class UpdateSettings {
 public:
  // `optimizer`: a v1::Optimizer and its path. Errors through Setting::Error.
  static absl::StatusOr<UpdateSettings> Make(const Setting& optimizer);

  const UpdateRule& rule() const { return rule_; }
  // Returns the schedule's ops in order; empty: the learning rate is constant.
  const std::vector<ScheduleOp>& schedule() const { return schedule_; }
  // Returns the settings of a parameter: those of the first entry of Optimizer.parameter that matches, combined with
  // the optimizer's own.
  ParameterUpdate Of(std::string_view parameter) const;
  // Returns InvalidArgument for an entry of Optimizer.parameter that matches none of `parameters`; the message says so
  // if the entry matches one of `averages`, which no optimizer moves.
  absl::Status CheckMatches(const std::vector<std::string>& parameters, const std::vector<std::string>& averages) const;

 private:
  struct Entry {
    Setting at;
    std::string pattern;
    ParameterUpdate update;
  };

  explicit UpdateSettings(Setting optimizer) : at_(std::move(optimizer)) {}
  absl::StatusOr<const ClipOps*> AddClip(const Setting& clip);
  absl::StatusOr<ParameterUpdate> EntryOf(const Setting& at);

  Setting at_;
  UpdateRule rule_;
  std::vector<ScheduleOp> schedule_;
  ParameterUpdate all_;
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<ClipOps>> clips_;
};

// Returns true if train.freeze names this parameter or table.
bool IsFrozen(const v1::Train& train, std::string_view parameter);

// Returns true if the name matches; `*` stands for any characters, or none.
bool MatchesPattern(std::string_view pattern, std::string_view name);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_UPDATE_SETTINGS_H_
