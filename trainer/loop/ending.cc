#include "trainer/loop/ending.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_message.h"
#include "glog/logging.h"
#include "google/protobuf/repeated_field.h"

namespace weir {
namespace {

void Add(const v1::LeftOut& other, v1::LeftOut* all) {
  all->set_examples(all->examples() + other.examples());
  all->set_more(all->more() || other.more());
  all->set_trained(all->trained() + other.trained());
}

// Keeps what `other` has not seen either.
void Meet(const v1::AbsentInputs& other, v1::AbsentInputs* all) {
  v1::AbsentInputs both;
  both.set_whole(all->whole() && other.whole());
  std::set_intersection(all->places().begin(), all->places().end(), other.places().begin(), other.places().end(),
                        google::protobuf::RepeatedFieldBackInserter(both.mutable_places()));
  *all = std::move(both);
}

}  // namespace

absl::StatusOr<v1::Ending> EndingOfAll(const std::vector<std::string>& endings, int chief) {
  v1::Ending all;
  bool every = true;
  for (size_t t = 0; t < endings.size(); ++t) {
    every = every && !endings[t].empty();
    if (endings[t].empty()) continue;
    v1::Ending one;
    if (!one.ParseFromString(endings[t]) ||
        !std::is_sorted(one.absent().places().begin(), one.absent().places().end())) {
      return absl::InternalError(absl::StrCat("what trainer ", t, " says of its end cannot be read"));
    }
    all.set_steps(all.steps() + one.steps());
    all.set_large_gradients(all.large_gradients() + one.large_gradients());
    all.set_skipped_lines(all.skipped_lines() + one.skipped_lines());
    all.set_stopped(all.stopped() || one.stopped());
    Add(one.left_out(), all.mutable_left_out());
    if (all.has_absent()) {
      Meet(one.absent(), all.mutable_absent());
    } else {
      *all.mutable_absent() = one.absent();
    }
    if (t == static_cast<size_t>(chief)) *all.mutable_open_evaluations() = one.open_evaluations();
    if (const absl::Status error = StatusOf(one.error()); !error.ok() && !all.has_error()) {
      *all.mutable_error() =
          StatusMessage(absl::Status(error.code(), absl::StrCat("trainer ", t, ": ", error.message())));
    }
  }
  if (!every) all.mutable_absent()->set_whole(false);
  return all;
}

void WarnOfLeftOut(const v1::LeftOut& all, int64_t epochs) {
  const double epoch =
      static_cast<double>(all.trained() + all.examples()) / static_cast<double>(std::max<int64_t>(1, epochs));
  const double part = epoch > 0 ? static_cast<double>(all.examples()) / epoch : 0;
  if (part <= kLeftOutWarning) return;
  LOG(WARNING) << (all.more() ? "at least " : "") << all.examples() << " examples were left out at the end, "
               << absl::StrFormat("%.1f %%", 100 * part)
               << " of an epoch: streams ended one after the other until less than half a step was left. Plain files, "
                  "example files, compressed files of like size (as many as lanes, or many), or a smaller "
                  "data.batch_size make streams more even; rules (where) thin some streams more than others "
                  "(docs/data.md)";
}

}  // namespace weir
