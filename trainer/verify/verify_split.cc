#include "trainer/verify/verify_split.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/digest_log.h"
#include "glog/logging.h"
#include "trainer/verify/job_steps.h"
#include "trainer/verify/split_run.h"
#include "trainer/verify/unsplit_run.h"
#include "transpiler/job/check_modes.h"
#include "transpiler/job/job.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

// Variables named in a report. A wrong layer soon changes every parameter, so more would not help.
constexpr size_t kNamed = 12;

struct Difference {
  std::string variable;
  std::string where;
};

// Returns "rows 3 to 5", or "elements 3 to 5" for a vector.
std::string RowsText(int64_t first, int64_t last, int64_t row) {
  const char* const what = row > 1 ? "row" : "element";
  first /= row;
  last /= row;
  return first == last ? absl::StrCat(what, " ", first) : absl::StrCat(what, "s ", first, " to ", last);
}

// Describes where two sums of one variable differ: rows of a parameter, shards of a table.
std::string Ranges(const UnsplitRun& whole, const std::string& name, const VariableDigestSum& a,
                   const VariableDigestSum& b) {
  int first = -1, last = -1, count = 0;
  for (int r = 0; r < kDigestRanges; ++r) {
    if (a.ranges[static_cast<size_t>(r)] == b.ranges[static_cast<size_t>(r)]) continue;
    if (first < 0) first = r;
    last = r;
    ++count;
  }
  if (first < 0) return "";
  const std::string ranges = absl::StrCat(count, " of ", kDigestRanges, " ranges");
  const int64_t elements = whole.Elements(name);
  const DigestExtent extent = elements < 0 ? DigestExtent{.shards = whole.Shards(name)}
                                           : DigestExtent{.elements = elements, .row = whole.RowElements(name)};
  return absl::StrCat(DigestRangeText(extent, first, last), ", ", ranges);
}

std::vector<Difference> OnServers(const UnsplitRun& whole, const DigestTable& split) {
  std::vector<Difference> found;
  const DigestTable expected = whole.Digests();
  for (const auto& [name, sum] : expected) {
    const auto other = split.find(name);
    if (other == split.end()) {
      found.push_back({name, "no server has it"});
      continue;
    }
    if (sum.values != other->second.values) {
      found.push_back({name, absl::StrCat("values on the servers, ", Ranges(whole, name, sum, other->second))});
    } else if (sum.state != other->second.state) {
      found.push_back({name, "optimizer state on the servers"});
    }
  }
  for (const auto& [name, sum] : split) {
    if (!expected.contains(name)) found.push_back({name, "servers have it, the unsplit program does not"});
  }
  return found;
}

std::vector<Difference> OnTrainers(const UnsplitRun& whole, const SplitRun& split) {
  std::vector<Difference> found;
  for (const std::string& name : whole.Parameters()) {
    const absl::Span<const float> expected = whole.Values(name);
    for (size_t t = 0; t < split.trainers(); ++t) {
      const Tensor* received = split.Received(t, name);
      // A trainer that fetches rows, or whose program does not read the parameter, has no whole copy.
      if (received == nullptr) continue;
      if (received->size() != static_cast<int64_t>(expected.size())) {
        found.push_back(
            {name, absl::StrCat("trainer ", t, " has ", received->size(), " elements of ", expected.size())});
        break;
      }
      const float* values = received->data<float>();
      int64_t first = -1, last = -1;
      for (size_t i = 0; i < expected.size(); ++i) {
        if (std::bit_cast<uint32_t>(values[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
        if (first < 0) first = static_cast<int64_t>(i);
        last = static_cast<int64_t>(i);
      }
      if (first < 0) continue;
      found.push_back({name, absl::StrCat("values that trainer ", t, " has received, ",
                                          RowsText(first, last, whole.RowElements(name)))});
      break;
    }
  }
  return found;
}

VerifyReport Differs(int64_t step, const std::vector<Difference>& found, VerifyReport report) {
  report.equal = false;
  report.step = step;
  report.variable = found[0].variable;
  report.text = step == 0 ? "first difference before the first step, in initial values:"
                          : absl::StrCat("first difference after step ", step,
                                         step > 1 ? absl::StrCat(" (equal until step ", step - 1, ")") : "", ":");
  for (size_t i = 0; i < std::min(kNamed, found.size()); ++i) {
    absl::StrAppend(&report.text, "\n  ", found[i].variable, ": ", found[i].where);
  }
  if (found.size() > kNamed) absl::StrAppend(&report.text, "\n  and ", found.size() - kNamed, " more");
  return report;
}

// Reports that the split run ended with an error, which counts as a difference.
VerifyReport Stopped(int64_t step, const absl::Status& status, const std::vector<std::string>& names,
                     VerifyReport report) {
  report.equal = false;
  report.step = step;
  const std::string message(status.message());
  // Takes the longest name in the message, since "deep.w" is part of "deep.w.block1".
  for (const std::string& name : names) {
    if (name.size() > report.variable.size() && message.find(name) != std::string::npos) report.variable = name;
  }
  report.text = absl::StrCat("the split programs stop ",
                             step == 0 ? "before the first step" : absl::StrCat("in step ", step), ": ", message);
  return report;
}

absl::StatusOr<std::unique_ptr<JobSteps>> StepsOf(const Job& job, const VerifyOptions& options, ThreadPool* pool,
                                                  std::string* data) {
  ASSIGN_OR_RETURN(const Programs single, BuildSingleMachine(job));
  if (!options.made_up && job.config.data().train().files_size() > 0) {
    absl::StatusOr<std::unique_ptr<JobSteps>> steps = JobSteps::OfData(job, single.main, pool);
    *data = "the job's data";
    if (steps.ok() || !absl::IsNotFound(steps.status())) return steps;
    LOG(INFO) << "no data files (" << steps.status().message() << "): batches are generated";
  }
  *data = "generated batches";
  return JobSteps::MadeUp(job, single.main);
}

}  // namespace

absl::StatusOr<VerifyReport> VerifySplit(const Job& job, const VerifyOptions& options) {
  RETURN_IF_ERROR(CheckVerifiable(job));
  if (options.steps < 1)
    return absl::InvalidArgumentError(absl::StrCat("--steps must be at least 1, got ", options.steps));
  ThreadPool pool("weir-unsplit", options.threads - 1);
  VerifyReport report;
  ASSIGN_OR_RETURN(const std::unique_ptr<JobSteps> steps, StepsOf(job, options, &pool, &report.data));
  ASSIGN_OR_RETURN(const std::unique_ptr<UnsplitRun> whole, UnsplitRun::Create(job, &pool));
  std::vector<std::string> names;
  for (const auto& [name, sum] : whole->Digests()) names.push_back(name);
  SplitRun split(job, {.threads = options.threads, .edit = options.edit, .dense_sum = options.dense_sum});
  const absl::Status started = split.Start(steps->columns());
  if (!started.ok()) return Stopped(0, started, names, report);
  std::vector<std::vector<LaneBatch>> batches(static_cast<size_t>(std::max(1, job.config.train().accumulate_steps())));
  for (int64_t step = 0; step <= options.steps; ++step) {
    if (step > 0) {
      bool ended = true;
      for (std::vector<LaneBatch>& batch : batches) {
        RETURN_IF_ERROR(steps->Next(&batch));
        ended &= std::all_of(batch.begin(), batch.end(), [](const LaneBatch& lane) { return lane.ended; });
      }
      if (ended) break;
      RETURN_IF_ERROR(whole->Step(batches, steps->columns()));
      const absl::Status stepped = split.Step(step - 1, batches);
      if (!stepped.ok()) return Stopped(step, stepped, names, report);
    }
    report.steps = step;
    const absl::StatusOr<DigestTable> digests = split.Digests(step);
    if (!digests.ok()) return Stopped(step, digests.status(), names, report);
    std::vector<Difference> found = OnServers(*whole, *digests);
    if (found.empty()) found = OnTrainers(*whole, split);
    if (!found.empty()) return Differs(step, found, report);
  }
  report.equal = true;
  const v1::Plan& plan = split.plan();
  report.text = absl::StrCat("equal after each of ", report.steps, " steps of ", report.data, ": ", names.size(),
                             " parameters and tables, their optimizer state, and what trainers received; ",
                             plan.servers(), plan.servers() == 1 ? " server, " : " servers, ", plan.trainers(),
                             plan.trainers() == 1 ? " trainer, " : " trainers, ", plan.lanes(), " lanes");
  return report;
}

}  // namespace weir
