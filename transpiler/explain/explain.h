// Prediction of a job's cost before it runs: proto/explain.proto, from the programs and the registered cost rules
// alone.
#ifndef WEIR_TRANSPILER_EXPLAIN_EXPLAIN_H_
#define WEIR_TRANSPILER_EXPLAIN_EXPLAIN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/calibration.pb.h"
#include "proto/explain.pb.h"
#include "transpiler/base/programs.h"
#include "transpiler/explain/all_reduce_traffic.h"
#include "transpiler/explain/speed_model.h"
#include "transpiler/explain/traffic.h"

namespace weir {

struct Job;

struct ExplainOptions {
  // Link between trainers, for the times of their exchanges.
  Link link = {};
  // Costs by which step times are predicted; null: none are. Borrowed for the explainer's life.
  const v1::Calibration* calibration = nullptr;
  // Where the processes are, for these times, and for what the trainers of a host merge.
  Machines machines = {};
  // False: the job is not compared with other choices, which takes most of the time.
  bool alternatives = true;
};

// Not thread-safe.
class Explainer {
 public:
  // Transpiles the job. Errors are those of Transpile.
  static absl::StatusOr<std::unique_ptr<Explainer>> Create(const Job& job, const ExplainOptions& options = {});
  virtual ~Explainer() = default;

  // Adds one step of the job's data, all lanes, with as many batches as train.accumulate_steps says. Traffic becomes
  // the mean of the steps added, memory the maximum.
  virtual void AddStep(const StepInput& step) = 0;

  // Returns the explanation. Without any AddStep, figures that depend on distinct ids are bounds.
  virtual absl::StatusOr<v1::Explanation> Finish() = 0;

  // Returns the programs of a trainer.
  virtual const Programs& trainer() const = 0;
};

// Formats: text for people; JSON of the message for scripts, with field names as in the proto; a self-contained HTML
// page.
std::string ExplanationText(const v1::Explanation& explanation);
absl::StatusOr<std::string> ExplanationJson(const v1::Explanation& explanation);
std::string ExplanationHtml(const v1::Explanation& explanation);

// Returns "merge_hosts: 2 hosts of 8 trainers: 31 % of the bytes without it, ...".
std::string MergedText(const v1::MergedHosts& merged);
// Returns "merge_hosts: 2 hosts of 4 trainers: 25 % of the bytes without it, ... of dense gradients between hosts".
std::string AddedText(const v1::AddedOnHosts& added, int trainers);
// Returns "host 1 with trainers 8 to 15"; of a group "hosts 0 to 3, each with 8 trainers".
std::string MergedHostName(const v1::MergedHost& host);
// Returns "each process on a machine", or what else is on one.
std::string MachinesText(const v1::SpeedPrediction& speed);

// Returns the parameters of a bucket, with the number of their blocks: "deep.w (4 blocks), deep.b".
std::string BucketParameters(const v1::ExplainedBucket& bucket);

// Returns what a trainer sends of V bytes of dense values: "(k+1)(p-1)/p V". shared_out: with update: SHARDED.
const char* FormulaOf(const v1::TrainerExchange& exchange, bool shared_out);

// Return "4.0 MiB", "512 B"; "12.5 k", "480"; "12.5 kflop", "480 flop"; "1.25 s", "3.1 ms", "40 us".
std::string HumanBytes(double bytes);
std::string HumanCount(double count);
std::string HumanFlops(double flops);
std::string HumanSeconds(double seconds);

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_EXPLAIN_H_
