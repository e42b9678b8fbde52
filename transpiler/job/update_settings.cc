#include "transpiler/job/update_settings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {

bool IsFrozen(const v1::Train& train, std::string_view parameter) {
  return std::any_of(train.freeze().begin(), train.freeze().end(),
                     [&](const std::string& pattern) { return MatchesPattern(pattern, parameter); });
}

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  // When a character does not fit, go on behind the last star, one character of the name later.
  size_t p = 0, n = 0, star = std::string_view::npos, behind = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      behind = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++behind;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

absl::StatusOr<const ClipOps*> UpdateSettings::AddClip(const Setting& clip) {
  ASSIGN_OR_RETURN(ClipOps ops, MakeClip(clip));
  clips_.push_back(std::make_unique<ClipOps>(std::move(ops)));
  return clips_.back().get();
}

absl::StatusOr<ParameterUpdate> UpdateSettings::EntryOf(const Setting& at) {
  const auto& m = static_cast<const v1::ParameterSettings&>(at.message());
  if (m.name().empty()) return at.Error("name", "is required");
  ParameterUpdate update = all_;
  RETURN_IF_ERROR(CheckNotNegative(at, "learning_rate_factor", m.learning_rate_factor()));
  update.learning_rate_factor = m.learning_rate_factor();
  if (m.has_l1_decay()) {
    RETURN_IF_ERROR(CheckNotNegative(at, "l1_decay", m.l1_decay()));
    update.l1_decay = m.l1_decay();
  }
  if (m.has_l2_decay()) {
    RETURN_IF_ERROR(CheckNotNegative(at, "l2_decay", m.l2_decay()));
    update.l2_decay = m.l2_decay();
  }
  if (m.has_clip() && m.no_clip()) return at.Error("no_clip", "contradicts clip: leave one out");
  if (m.no_clip()) update.clip = nullptr;
  if (m.has_clip()) {
    update.clip_group = at.path() + ".clip";
    ASSIGN_OR_RETURN(update.clip, AddClip(at.Member(&m.clip(), update.clip_group)));
  }
  return update;
}

absl::StatusOr<UpdateSettings> UpdateSettings::Make(const Setting& optimizer) {
  UpdateSettings settings(optimizer);
  const auto& m = static_cast<const v1::Optimizer&>(optimizer.message());
  ASSIGN_OR_RETURN(settings.rule_, MakeUpdateRule(optimizer));
  ASSIGN_OR_RETURN(settings.schedule_, MakeSchedule(optimizer, settings.rule_.learning_rate));
  RETURN_IF_ERROR(CheckNotNegative(optimizer, "l1_decay", m.l1_decay()));
  RETURN_IF_ERROR(CheckNotNegative(optimizer, "l2_decay", m.l2_decay()));
  settings.all_.l1_decay = m.l1_decay();
  settings.all_.l2_decay = m.l2_decay();
  if (m.has_clip()) {
    settings.all_.clip_group = optimizer.path() + ".clip";
    ASSIGN_OR_RETURN(settings.all_.clip, settings.AddClip(optimizer.Member(&m.clip(), settings.all_.clip_group)));
  }
  for (int i = 0; i < m.parameter_size(); ++i) {
    const Setting at = optimizer.Member(&m.parameter(i), absl::StrCat(optimizer.path(), ".parameter[", i, "]"));
    ASSIGN_OR_RETURN(ParameterUpdate update, settings.EntryOf(at));
    settings.entries_.push_back({at, m.parameter(i).name(), std::move(update)});
  }
  return settings;
}

ParameterUpdate UpdateSettings::Of(std::string_view parameter) const {
  for (const Entry& entry : entries_) {
    if (MatchesPattern(entry.pattern, parameter)) return entry.update;
  }
  return all_;
}

absl::Status UpdateSettings::CheckMatches(const std::vector<std::string>& parameters,
                                          const std::vector<std::string>& averages) const {
  for (const Entry& entry : entries_) {
    const auto matches = [&](const std::string& name) { return MatchesPattern(entry.pattern, name); };
    if (std::any_of(parameters.begin(), parameters.end(), matches)) continue;
    if (const auto average = std::find_if(averages.begin(), averages.end(), matches); average != averages.end()) {
      return entry.at.Error(
          "name", absl::StrCat("'", entry.pattern, "' matches '", *average,
                               "', a running average: no optimizer moves it, and no setting here concerns it"));
    }
    const std::string near = NearestName(entry.pattern, parameters);
    return entry.at.Error("name", absl::StrCat("'", entry.pattern, "' matches no parameter that this optimizer updates",
                                               near.empty() ? "" : absl::StrCat(" (did you mean '", near, "'?)")));
  }
  return absl::OkStatus();
}

}  // namespace weir
