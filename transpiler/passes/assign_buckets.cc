// Pass: says which dense gradients travel together among the trainers.
//
// Before: a trainer's program with all_reduce ops, which have no `bucket`. After: each has one; buckets ascend in the
// order of the program. With distribute.all_reduce { first_bucket_bytes: 65536 bucket_bytes: 131072 } and four matrices
// of 65536 bytes:
//
//     all_reduce(X=w3@GRAD) block="w3"                 all_reduce(X=w3@GRAD) block="w3" bucket=0
//     all_reduce(X=w2@GRAD) block="w2"                 all_reduce(X=w2@GRAD) block="w2" bucket=1
//     all_reduce(X=w1@GRAD) block="w1"         ->      all_reduce(X=w1@GRAD) block="w1" bucket=2
//     all_reduce(X=w0@GRAD) block="w0"                 all_reduce(X=w0@GRAD) block="w0" bucket=3
//
// A bucket takes parameters as long as they fit, all blocks of one together; one that is larger begins a new bucket.
// Gradients that one operator of backward makes go into one bucket or begin a new one: else the bias of a layer would
// join the matrix of the layer behind it, which would then wait for it. There it takes the next one until it is full.
// Both sizes are halved until there are four buckets, or as many as parameters, so that something travels while
// backward continues, but not below kFewestBytes: here the bucket of w1 and w2 would be the second of three. Gradients
// by rows travel by themselves: they close no bucket, and their `bucket` is the one before them. Changes nothing
// without all_reduce ops, or if one of them has a bucket.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/graph/placement.h"
#include "framework/graph/program_text.h"
#include "glog/logging.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

constexpr size_t kFewestBuckets = 4;
// Sizes of buckets are not halved below it: an exchange of less costs more than it wins by leaving early. 22 KiB in
// two buckets took 1.17 times as much processor time of a step as in one (4 trainers, 2 cores).
constexpr int64_t kFewestBytes = int64_t{64} << 10;

int64_t Halved(int64_t bytes, int64_t fewest) { return bytes <= fewest ? bytes : std::max(fewest, bytes / 2); }

// Dense gradient of one parameter: its all_reduce ops, one for each block.
struct Gradient {
  std::string parameter;
  std::vector<v1::OpDesc*> ops = {};
  int64_t bytes = 0;
  int maker = -1;  // index of the operator that writes the gradient
};

// Returns the bucket of each op of the gradients, in order. The blocks of a parameter are there at the same time, and
// among all trainers: they stay together as far as one exchange carries them.
std::vector<int64_t> BucketsOf(const std::vector<Gradient>& gradients, int64_t first_bytes, int64_t other_bytes) {
  std::vector<int64_t> buckets;
  int64_t bucket = 0, filled = 0;
  size_t members = 0;
  const auto close = [&] {
    ++bucket;
    filled = 0;
    members = 0;
  };
  for (size_t g = 0; g < gradients.size(); ++g) {
    const Gradient& each = gradients[g];
    const int64_t most = bucket == 0 ? first_bytes : other_bytes;
    bool fits = filled < most;  // behind what comes at the same time
    if (g == 0 || gradients[g - 1].maker != each.maker) {
      int64_t together = 0;
      for (size_t i = g; i < gradients.size() && gradients[i].maker == each.maker; ++i) together += gradients[i].bytes;
      fits = together <= most - filled;
    }
    if (members > 0 && (!fits || members + each.ops.size() > kMostInBucket)) close();
    filled += each.bytes;
    for (size_t i = 0; i < each.ops.size(); ++i) {
      if (members == kMostInBucket) close();
      ++members;
      buckets.push_back(bucket);
    }
  }
  return buckets;
}

absl::StatusOr<bool> AssignBuckets(const Job& job, Programs* programs) {
  v1::BlockDesc* const block = programs->main.mutable_blocks(0);
  std::map<std::string, const v1::PlacedBlock*> blocks;  // of the plan
  for (const v1::PlacedBlock& placed : programs->main.plan().blocks()) blocks[placed.name()] = &placed;
  std::vector<v1::OpDesc*> ops;
  std::vector<Gradient> gradients;    // dense ones
  std::map<std::string, int> makers;  // of variables: the last op so far that writes one
  for (int i = 0; i < block->ops_size(); ++i) {
    v1::OpDesc& op = *block->mutable_ops(i);
    if (op.type() != "all_reduce") {
      // A slice comes with the gradient that it is cut from.
      const auto whole = op.type() == "split_byref" ? makers.find(OnlyVar(op.inputs(), "X")) : makers.end();
      const int maker = whole == makers.end() ? i : whole->second;
      ForEachVar(op.outputs(), [&](const std::string& written) { makers[written] = maker; });
      continue;
    }
    if (FindAttr(op, "bucket") != nullptr) return false;
    ops.push_back(&op);
    if (IntOr(op, "width", 0) > 0) continue;
    const v1::OpAttr* const name = FindAttr(op, "block");
    const auto placed = blocks.find(name == nullptr ? "" : name->s());
    CHECK(placed != blocks.end()) << OpText(op);
    const std::string& parameter = placed->second->parameter();
    if (gradients.empty() || gradients.back().parameter != parameter) {
      const auto maker = makers.find(OnlyVar(op.inputs(), "X"));
      gradients.push_back({.parameter = parameter, .maker = maker == makers.end() ? -1 : maker->second});
    }
    gradients.back().ops.push_back(&op);
    gradients.back().bytes += placed->second->element_count() * static_cast<int64_t>(sizeof(float));
  }
  if (ops.empty()) return false;

  const v1::AllReduce& sizes = job.config.distribute().all_reduce();
  int64_t first = sizes.first_bucket_bytes(), others = sizes.bucket_bytes();
  const size_t fewest = std::min(kFewestBuckets, gradients.size());
  std::vector<int64_t> buckets = BucketsOf(gradients, first, others);
  // Sums of shares go by slices, however few they are.
  const int64_t floor = job.config.distribute().update() == v1::Distribute::SHARDED ? 0 : kFewestBytes;
  while (!buckets.empty() && static_cast<size_t>(buckets.back()) + 1 < fewest && std::max(first, others) > floor) {
    first = Halved(first, floor);
    others = Halved(others, floor);
    buckets = BucketsOf(gradients, first, others);
  }
  int64_t last = 0;
  size_t next = 0;
  for (v1::OpDesc* const op : ops) {
    if (IntOr(*op, "width", 0) == 0) last = buckets[next++];
    *op->add_attrs() = AttrI("bucket", last);
  }
  return true;
}

REGISTER_PASS(assign_buckets)
({.name = "assign_buckets",
  .run = AssignBuckets,
  .phase = Phase::kTrainer,
  .after = "send_gradients",
  .before = "receive_parameters"});

}  // namespace
}  // namespace weir
