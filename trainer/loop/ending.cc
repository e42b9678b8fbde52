#include "trainer/loop/ending.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"

namespace weir {

void LeftOut::Add(const LeftOut& other) {
  examples += other.examples;
  more |= other.more;
  trained += other.trained;
}

std::string LeftOut::Serialize() const { return absl::StrCat(examples, ",", more ? 1 : 0, ",", trained); }

std::optional<LeftOut> LeftOut::Parse(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  LeftOut left_out;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &left_out.examples) ||
      !absl::SimpleAtoi(parts[2], &left_out.trained)) {
    return std::nullopt;
  }
  left_out.more = parts[1] == "1";
  return left_out;
}

std::string Ending::Serialize() const {
  // Nearly always no input is absent, and it does not matter then what has been read as a whole.
  const std::string lacks = absent.places.empty() ? "" : absl::StrCat(" ", absent.Serialize());
  const std::string large = large_gradients == 0 ? "" : absl::StrCat(" ", large_gradients);
  return absl::StrCat(steps, large, "\n", skipped_lines, "\n", stopped ? 1 : 0, lacks, "\n", left_out.Serialize(), "\n",
                      open_evaluations, "\n", static_cast<int>(error.code()), "\n", std::string(error.message()));
}

std::optional<Ending> Ending::Parse(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('\n', 6));
  Ending ending;
  int stopped = 0, code = 0;
  if (parts.size() != 7) return std::nullopt;
  const std::vector<absl::string_view> counts = absl::StrSplit(parts[0], absl::MaxSplits(' ', 1));
  if (counts.size() == 2 && !absl::SimpleAtoi(counts[1], &ending.large_gradients)) return std::nullopt;
  const std::vector<absl::string_view> flags = absl::StrSplit(parts[2], absl::MaxSplits(' ', 1));
  if (!absl::SimpleAtoi(counts[0], &ending.steps) || !absl::SimpleAtoi(parts[1], &ending.skipped_lines) ||
      !absl::SimpleAtoi(flags[0], &stopped) || !absl::SimpleAtoi(parts[5], &code)) {
    return std::nullopt;
  }
  const std::optional<LeftOut> left_out = LeftOut::Parse(parts[3]);
  std::optional<AbsentInputs> absent = flags.size() == 1 ? AbsentInputs() : AbsentInputs::Parse(flags[1]);
  if (!left_out.has_value() || !absent.has_value()) return std::nullopt;
  ending.stopped = stopped != 0;
  ending.left_out = *left_out;
  ending.absent = *std::move(absent);
  ending.open_evaluations = std::string(parts[4]);
  ending.error = absl::Status(static_cast<absl::StatusCode>(code), parts[6]);
  return ending;
}

absl::StatusOr<Ending> Ending::OfAll(const std::vector<std::string>& endings, int chief) {
  Ending all;
  std::optional<AbsentInputs> absent;
  bool every = true;
  for (size_t t = 0; t < endings.size(); ++t) {
    every = every && !endings[t].empty();
    if (endings[t].empty()) continue;
    const std::optional<Ending> one = Parse(endings[t]);
    if (!one.has_value()) {
      return absl::InternalError(absl::StrCat("what trainer ", t, " says of its end cannot be read"));
    }
    all.steps += one->steps;
    all.large_gradients += one->large_gradients;
    all.skipped_lines += one->skipped_lines;
    all.stopped |= one->stopped;
    all.left_out.Add(one->left_out);
    if (!absent.has_value()) absent = one->absent;
    absent->Meet(one->absent);
    if (t == static_cast<size_t>(chief)) all.open_evaluations = one->open_evaluations;
    if (all.error.ok() && !one->error.ok())
      all.error = absl::Status(one->error.code(), absl::StrCat("trainer ", t, ": ", one->error.message()));
  }
  if (absent.has_value()) all.absent = *std::move(absent);
  all.absent.whole = all.absent.whole && every;
  return all;
}

void WarnOfLeftOut(const LeftOut& all, int64_t epochs) {
  const double epoch =
      static_cast<double>(all.trained + all.examples) / static_cast<double>(std::max<int64_t>(1, epochs));
  const double part = epoch > 0 ? static_cast<double>(all.examples) / epoch : 0;
  if (part <= kLeftOutWarning) return;
  LOG(WARNING) << (all.more ? "at least " : "") << all.examples << " examples were left out at the end, "
               << absl::StrFormat("%.1f %%", 100 * part)
               << " of an epoch: streams ended one after the other until less than half a step was left. Plain files, "
                  "example files, compressed files of like size (as many as lanes, or many), or a smaller "
                  "data.batch_size make streams more even; rules (where) thin some streams more than others "
                  "(docs/data.md)";
}

}  // namespace weir
