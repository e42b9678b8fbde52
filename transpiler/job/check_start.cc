#include "transpiler/job/check_start.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "re2/re2.h"

namespace weir {
namespace {

absl::Status At(const Job& job, const std::string& path, std::string_view text) {
  return job.positions.Error(path, absl::StrCat(path, ": ", Av(text)));
}

absl::Status CheckPattern(const Job& job, const std::string& path, const std::string& pattern) {
  const RE2 compiled(pattern, RE2::Quiet);
  if (compiled.ok() && !pattern.empty()) return absl::OkStatus();
  return At(job, path,
            pattern.empty() ? "the pattern is empty, and no name is"
                            : absl::StrCat("'", pattern, "' is no regular expression: ", compiled.error()));
}

absl::Status CheckPatterns(const Job& job, const std::string& path,
                           const google::protobuf::RepeatedPtrField<std::string>& patterns) {
  for (int i = 0; i < patterns.size(); ++i) {
    RETURN_IF_ERROR(CheckPattern(job, absl::StrCat(path, "[", i, "]"), patterns[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStart(const Job& job) {
  for (int s = 0; s < job.config.start_from_size(); ++s) {
    const v1::StartFrom& from = job.config.start_from(s);
    const std::string path = absl::StrCat("start_from[", s, "]");
    if (from.checkpoint().empty()) {
      return At(job, absl::StrCat(path, ".checkpoint"),
                "is missing: name a step of a checkpoint, or a directory of checkpoints, here or by --start_from");
    }
    for (int i = 0; i < from.rename_size(); ++i) {
      const std::string rule = absl::StrCat(path, ".rename[", i, "]");
      RETURN_IF_ERROR(CheckPattern(job, absl::StrCat(rule, ".from"), from.rename(i).from()));
      const RE2 compiled(from.rename(i).from(), RE2::Quiet);
      std::string error;
      if (from.rename(i).to().empty()) return At(job, absl::StrCat(rule, ".to"), "is empty, and no name is");
      if (!compiled.CheckRewriteString(from.rename(i).to(), &error)) {
        return At(job, absl::StrCat(rule, ".to"), absl::StrCat("'", from.rename(i).to(), "': ", error));
      }
    }
    RETURN_IF_ERROR(CheckPatterns(job, absl::StrCat(path, ".take"), from.take()));
    RETURN_IF_ERROR(CheckPatterns(job, absl::StrCat(path, ".new"), from.new_()));
    RETURN_IF_ERROR(CheckPatterns(job, absl::StrCat(path, ".drop"), from.drop()));
  }
  return absl::OkStatus();
}

}  // namespace weir
