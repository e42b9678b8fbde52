#include "framework/collective/collective.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/exhausted.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/collective/adasum_run.h"
#include "framework/collective/any_order_run.h"
#include "framework/collective/hosted_run.h"
#include "framework/collective/moves.h"
#include "framework/collective/reduce_run.h"
#include "framework/profile/profiler.h"
#include "framework/profile/thread_names.h"
#include "glog/logging.h"

namespace weir {

namespace {

std::string TypeName(DType dtype) { return absl::AsciiStrToLower(v1::DType_Name(dtype)); }

v1::CollectiveHeader HeaderOf(const char* operation, const std::string& name, const std::string& type,
                              const std::vector<int64_t>& shape, std::optional<int> root = std::nullopt) {
  v1::CollectiveHeader header;
  header.set_operation(operation);
  header.set_name(name);
  header.set_type(type);
  header.mutable_shape()->Add(shape.begin(), shape.end());
  if (root.has_value()) header.set_root(*root);
  return header;
}

// Most bytes of the values of an operation: numbers of messages and sizes in a header stay in their ranges.
constexpr int64_t kMostValueBytes = int64_t{1} << 40;

// Returns the number of elements of a shape.
absl::StatusOr<int64_t> ElementsOf(absl::Span<const int64_t> shape, DType dtype) {
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  int64_t count = 1, bytes = static_cast<int64_t>(DTypeSize(dtype));
  for (const int64_t dim : shape) {
    if (dim < 0) return absl::InvalidArgumentError(absl::StrCat("a dimension is ", dim));
    if (empty) continue;
    count *= dim;
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > kMostValueBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the values of shape [", absl::StrJoin(shape, ", "),
                                                     "] take more than ", kMostValueBytes, " bytes"));
    }
  }
  return empty ? 0 : count;
}

// Fewest bytes for which a mesh's own all-reduce is worth its turns among the ranks. Gloo's ring on two processors, 1
// MB: 2.6 ms for 2 ranks and 9.8 ms for 4; the exchange of slices 1.1 and 6.4 ms. Equal at 4 MB.
constexpr int64_t kFewestBytesOfOwnAllReduce = 2 << 20;

uint64_t HashOf(const std::vector<int64_t>& begins) { return StableHash(absl::StrJoin(begins, ",")); }

// Returns the hash of the borders of slices and segments that do not follow from the shape; 0 if all do.
uint64_t HashOf(const std::vector<int64_t>& begins, const std::vector<int64_t>& segments) {
  if (segments.size() > 1) {
    return StableHash(absl::StrCat(absl::StrJoin(begins, ","), ";", absl::StrJoin(segments, ",")));
  }
  return begins.empty() ? 0 : HashOf(begins);
}

absl::Status CheckSegments(const std::vector<int64_t>& segments, int64_t count) {
  if (segments.size() > kMostSegments) {
    return absl::InvalidArgumentError(
        absl::StrCat("the values have ", segments.size(), " segments; at most ", kMostSegments, " are possible"));
  }
  int64_t rest = count;
  for (const int64_t each : segments) {
    // Compared so that no sum overflows.
    if (each < 0 || each > rest) rest = -1;
    if (rest < 0) break;
    rest -= each;
  }
  if (rest == 0 || segments.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("segments of ", absl::StrJoin(segments, ", "), " elements are not the ", count, " of the shape"));
}

absl::Status CheckBegins(const std::vector<int64_t>& begins, int ranks, int64_t count) {
  const bool right = begins.size() == static_cast<size_t>(ranks) + 1 && begins.front() == 0 && begins.back() == count &&
                     std::is_sorted(begins.begin(), begins.end());
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("begins must be ", ranks + 1, " ascending numbers from 0 to ", count));
}

// Returns `body`, which the profiler sees under the step of this thread.
template <typename Body>
Body Profiled(Body body) {
  const int64_t step = ProfiledStep::current();
  if (step < 0) return body;
  return [step, body = std::move(body)](Operation* operation, Collective::Pending* pending) {
    const ProfiledStep profiled(step);
    ProfileSpan span(step, ProfileKind::kExchange, operation->header().operation());
    if (span.event() != nullptr) span.event()->detail = ProfileName(operation->header().name());
    return body(operation, pending);
  };
}

}  // namespace

struct Collective::Short {
  MessageMemory memory;
  std::unique_ptr<Operation> operation;
  std::unique_ptr<WholeRun> run;
  int64_t profiled_step = -1;
  PendingPtr pending;
  std::atomic<bool> ended{false};  // by the thread that waits; read by others, which then use the operation
};

absl::Status Collective::Pending::Wait() {
  std::shared_ptr<Short> mine;
  {
    MutexLock lock(&mu_);
    if (ended_) return status_;
  }
  // Others may wait for an earlier operation of this rank.
  collective_.SendBegun();
  {
    MutexLock lock(&mu_);
    while (short_ != nullptr && !sent_) changed_.Wait(&mu_);
    mine = std::move(short_);
  }
  if (mine != nullptr) collective_.EndShort(mine.get());
  MutexLock lock(&mu_);
  while (!ended_) changed_.Wait(&mu_);
  return status_;
}

void Collective::End(Pending* pending, const absl::Status& status) {
  MutexLock lock(&pending->mu_);
  pending->ended_ = true;
  pending->status_ = status;
  pending->changed_.SignalAll();
}

Collective::Collective(Mesh* mesh, Options options)
    : mesh_(*mesh),
      options_(std::move(options)),
      counters_(options_.counted_as.empty() ? std::nullopt : std::optional<CollectiveCounters>(options_.counted_as)) {
  CHECK_GE(options_.streams, 1);
  CHECK(options_.message_bytes >= 1 && options_.message_bytes <= kMostMessageBytes) << options_.message_bytes;
  const auto streams = static_cast<size_t>(options_.streams);
  {
    MutexLock lock(&mu_);
    queues_.resize(streams);
  }
  for (size_t s = 0; s < streams; ++s) {
    threads_.push_back(StartThread(absl::StrCat(kAmongThreads, s), [this, s] { RunStream(s); }));
  }
}

Collective::~Collective() {
  SendBegun();
  {
    MutexLock lock(&mu_);
    closing_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
  EndShorts();
}

void Collective::Abort(const absl::Status& status) {
  CHECK(!status.ok());
  {
    MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = status;
  }
  mesh_.Abort(status);
}

void Collective::RunStream(size_t stream) {
  MessageMemory memory;
  while (true) {
    Queued queued;
    absl::Status status;
    {
      MutexLock lock(&mu_);
      std::deque<Queued>& queue = queues_[stream];
      while (queue.empty() && !closing_) changed_.Wait(&mu_);
      if (queue.empty()) return;
      queued = std::move(queue.front());
      queue.pop_front();
      status = failure_;
    }
    if (status.ok()) {
      Operation operation(
          &mesh_, &options_.waits, &memory, std::move(queued.header),
          [this](const absl::Status& failed) { Abort(failed); }, counters_.has_value() ? &*counters_ : nullptr);
      status = queued.body(&operation, queued.pending.get());
      if (!status.ok()) {
        // The first failure is the reason: this one may be its consequence.
        MutexLock lock(&mu_);
        CHECK(!failure_.ok()) << status << " was not reported";
        status = failure_;
      }
    }
    End(queued.pending.get(), status);
  }
}

absl::Status Collective::RefusalOf(const v1::CollectiveHeader& header, absl::Status refused) const {
  if (refused.ok() && header.name().size() > kMostOperationName) {
    refused = absl::InvalidArgumentError(
        absl::StrCat("the name has ", header.name().size(), " bytes, at most ", kMostOperationName, " are possible"));
  }
  if (refused.ok() && header.has_root() && (header.root() < 0 || header.root() >= mesh_.size())) {
    refused = absl::InvalidArgumentError(absl::StrCat("there is no rank ", header.root(), " among ", mesh_.size()));
  }
  if (refused.ok() && header.shape_size() > kMostOperationDims) {
    refused = absl::InvalidArgumentError(absl::StrCat("the shape has ", header.shape_size(), " dimensions, at most ",
                                                      kMostOperationDims, " are possible"));
  }
  return refused;
}

Collective::PendingPtr Collective::Refuse(v1::CollectiveHeader header, absl::Status refused) {
  const PendingPtr pending(new Pending(this));
  header.set_sequence(-1);
  refused = absl::Status(refused.code(),
                         absl::StrCat(header.operation(), " '", header.name().substr(0, 40), "': ", refused.message()));
  // Other ranks may have begun it.
  Abort(refused);
  MutexLock lock(&mu_);
  End(pending.get(), failure_);
  return pending;
}

Collective::PendingPtr Collective::Begin(v1::CollectiveHeader header, absl::Status refused, Body body) {
  header.set_message_bytes(options_.message_bytes);
  refused = RefusalOf(header, std::move(refused));
  if (!refused.ok()) return Refuse(std::move(header), std::move(refused));
  PendingPtr pending(new Pending(this));
  MutexLock lock(&mu_);
  header.set_sequence(next_);
  queues_[static_cast<size_t>(next_ % options_.streams)].push_back(
      {std::move(header), Profiled(std::move(body)), pending});
  ++next_;
  changed_.SignalAll();
  return pending;
}

Collective::PendingPtr Collective::BeginShort(v1::CollectiveHeader header, WholeRun::Options options) {
  header.set_message_bytes(options_.message_bytes);
  absl::Status refused = RefusalOf(header, absl::OkStatus());
  if (!refused.ok()) return Refuse(std::move(header), std::move(refused));
  auto made = std::make_shared<Short>();
  made->pending = PendingPtr(new Pending(this));
  made->profiled_step = ProfiledStep::current();
  MutexLock lock(&mu_);
  header.set_sequence(next_++);
  made->operation = std::make_unique<Operation>(
      &mesh_, &options_.waits, &made->memory, std::move(header), [this](const absl::Status& failed) { Abort(failed); },
      counters_.has_value() ? &*counters_ : nullptr);
  made->run = std::make_unique<WholeRun>(made->operation.get(), std::move(options));
  {
    MutexLock of_pending(&made->pending->mu_);
    made->pending->short_ = made;
  }
  unsent_.push_back(made);
  return made->pending;
}

void Collective::SendBegun() {
  while (true) {
    std::shared_ptr<Short> next;
    bool failed = false;
    {
      MutexLock lock(&mu_);
      if (unsent_.empty()) return;
      next = std::move(unsent_.front());
      unsent_.pop_front();
      failed = !failure_.ok();
    }
    // An error has been reported, and EndShort finds it.
    if (!failed) next->run->Send().IgnoreError();
    {
      MutexLock lock(&mu_);
      sent_.push_back(next);
    }
    MutexLock lock(&next->pending->mu_);
    next->pending->sent_ = true;
    next->pending->changed_.SignalAll();
  }
}

void Collective::EndShort(Short* of) {
  absl::Status status;
  {
    MutexLock lock(&mu_);
    status = failure_;
  }
  if (status.ok()) {
    const ProfiledStep profiled(of->profiled_step);
    ProfileSpan span(of->profiled_step, ProfileKind::kExchange, of->operation->header().operation());
    if (span.event() != nullptr) span.event()->detail = ProfileName(of->operation->header().name());
    status = of->run->Finish();
    of->pending->present_ = of->run->present();
    of->pending->samples_ = of->run->samples();
  }
  if (!status.ok()) {
    // The first failure is the reason: this one may be its consequence.
    MutexLock lock(&mu_);
    CHECK(!failure_.ok()) << status << " was not reported";
    status = failure_;
  }
  of->run = nullptr;
  of->ended = true;
  End(of->pending.get(), status);
  DropShorts();
}

void Collective::DropShorts() {
  std::deque<std::shared_ptr<Short>> sent;
  bool failed = false;
  {
    MutexLock lock(&mu_);
    sent.swap(sent_);
    failed = !failure_.ok();
  }
  // The oldest come first, and mostly say enough.
  while (!sent.empty() && sent.front()->ended &&
         (failed || sent.front()->operation->HeadersHaveGone().value_or(true))) {
    sent.pop_front();
  }
  MutexLock lock(&mu_);
  sent_.insert(sent_.begin(), sent.begin(), sent.end());
}

void Collective::EndShorts() {
  std::deque<std::shared_ptr<Short>> sent;
  {
    MutexLock lock(&mu_);
    sent.swap(sent_);
  }
  for (const std::shared_ptr<Short>& each : sent) {
    // Every operation has its result, or its error: what is left to go wrong concerns nobody here.
    if (each->pending->Wait().ok()) each->operation->EndHeaders().IgnoreError();
  }
}

namespace {

// Returns the header of a reduction, with this rank's addends.
v1::CollectiveHeader ReductionHeader(const char* operation, const Collective::Values& values, std::optional<int> root,
                                     const std::vector<int64_t>& begins, int lanes) {
  v1::CollectiveHeader header = HeaderOf(operation, values.name, TypeName(values.dtype), values.shape, root);
  header.set_reduction(
      absl::StrCat(std::string(ReductionName(values.reduction)), values.any_order ? " in any order" : ""));
  header.set_lanes(lanes);
  header.set_samples(values.samples);
  const uint64_t all = AllSegments(values.segments.size());
  const bool tells_present = std::any_of(values.addends.begin(), values.addends.end(),
                                         [all](const LaneAddend& addend) { return (addend.present & all) != all; });
  for (const LaneAddend& addend : values.addends) {
    header.add_node_begin(addend.lanes.begin);
    header.add_node_count(addend.lanes.count);
    if (tells_present) header.add_present(addend.present & all);
  }
  header.set_slices(HashOf(begins, values.segments));
  return header;
}

absl::Status CheckReduction(const std::string& operation, const Collective::Values& values, int64_t count) {
  if (!CanReduce(values.reduction, values.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("values of type ", TypeName(values.dtype), " have no ",
                                                   std::string(ReductionName(values.reduction))));
  }
  if (values.reduction == Reduction::kAdasum && operation == "reduce_scatter") {
    return absl::InvalidArgumentError("an adasum cannot be scattered: its products are over whole segments");
  }
  if (values.lost != nullptr && DTypeSize(values.dtype) != sizeof(uint16_t)) {
    return absl::InvalidArgumentError(
        absl::StrCat("values of type ", TypeName(values.dtype), " lose nothing: only those of 16 bits are rounded"));
  }
  if (values.addends.size() > kMostAddends) {
    return absl::InvalidArgumentError(
        absl::StrCat("this rank has ", values.addends.size(), " addends; at most ", kMostAddends, " are possible"));
  }
  return CheckSegments(values.segments, count);
}

}  // namespace

template <typename Run>
Collective::Body Collective::BodyOf(typename Run::Options options) {
  return [options = std::move(options)](Operation* operation, Pending* pending) {
    Run run(operation, options);
    RETURN_IF_ERROR(run.Run());
    pending->present_ = run.present();
    pending->samples_ = run.samples();
    return absl::OkStatus();
  };
}

Collective::PendingPtr Collective::BeginReduction(const char* operation, Values values, std::optional<int> root,
                                                  std::vector<int64_t> begins, void* out) {
  const absl::StatusOr<int64_t> count = ElementsOf(values.shape, values.dtype);
  const int lanes = values.lanes == 0 ? size() : values.lanes;
  v1::CollectiveHeader header = ReductionHeader(operation, values, root, begins, lanes);
  absl::Status refused = count.ok() ? CheckReduction(header.operation(), values, *count) : count.status();
  if (refused.ok() && header.operation() == "reduce_scatter") refused = CheckBegins(begins, size(), *count);
  if (!refused.ok()) return Begin(std::move(header), refused, {});
  if (values.segments.empty()) values.segments = {*count};
  if (values.reduction == Reduction::kAdasum) {
    return Begin(std::move(header), refused,
                 BodyOf<AdasumRun>({.dtype = values.dtype,
                                    .lanes = lanes,
                                    .addends = std::move(values.addends),
                                    .segments = std::move(values.segments),
                                    .reader = root.value_or(AdasumRun::kAll),
                                    .out = static_cast<char*>(out),
                                    .message_bytes = options_.message_bytes}));
  }
  const int64_t bytes = count.value_or(0) * static_cast<int64_t>(DTypeSize(values.dtype));
  if (header.operation() == "all_reduce" && mesh_.TakesAnySize() && bytes <= options_.message_bytes &&
      GoesWhole(bytes, DTypeSize(values.dtype), size())) {
    return BeginShort(std::move(header), {.dtype = values.dtype,
                                          .reduction = values.reduction,
                                          .lanes = lanes,
                                          .addends = std::move(values.addends),
                                          .segments = std::move(values.segments),
                                          .out = static_cast<char*>(out)});
  }
  // With lanes a rank may have several addends, which slices would send one by one.
  const bool few = mesh_.HasAllReduce() && values.lanes == 0 &&
                   *count * static_cast<int64_t>(DTypeSize(values.dtype)) < kFewestBytesOfOwnAllReduce;
  if (values.any_order && !few && header.operation() == "all_reduce" &&
      CanReduceInAnyOrder(values.reduction, values.dtype)) {
    return Begin(std::move(header), refused,
                 BodyOf<AnyOrderRun>({.dtype = values.dtype,
                                      .reduction = values.reduction,
                                      .lanes = lanes,
                                      .addends = std::move(values.addends),
                                      .segments = std::move(values.segments),
                                      .out = static_cast<char*>(out),
                                      .message_bytes = options_.message_bytes}));
  }
  const bool scatters = header.operation() == "reduce_scatter";
  if (!scatters) begins = EvenSlices(*count, DTypeSize(values.dtype), size());
  ReduceRun::Options reduction = {.dtype = values.dtype,
                                  .reduction = values.reduction,
                                  .lanes = lanes,
                                  .addends = std::move(values.addends),
                                  .begins = std::move(begins),
                                  .segments = std::move(values.segments),
                                  .reader = scatters ? ReduceRun::kNobody : root.value_or(ReduceRun::kAll),
                                  .out = static_cast<char*>(out),
                                  .message_bytes = options_.message_bytes,
                                  .lost = values.lost};
  // Values of 16 bits are rounded once, by the owners of their slices.
  const bool exact = DTypeSize(values.dtype) > sizeof(uint16_t);
  if (options_.hosts.worth_merging() && exact && !root.has_value() && HostedRun::Fits(reduction, options_.hosts)) {
    return Begin(std::move(header), refused,
                 BodyOf<HostedRun>({.reduction = std::move(reduction), .hosts = &options_.hosts}));
  }
  return Begin(std::move(header), refused, BodyOf<ReduceRun>(std::move(reduction)));
}

Collective::PendingPtr Collective::AllReduce(Values values, void* out) {
  return BeginReduction("all_reduce", std::move(values), /*root=*/std::nullopt, {}, out);
}

Collective::PendingPtr Collective::Reduce(Values values, int root, void* out) {
  return BeginReduction("reduce", std::move(values), root, {}, rank() == root ? out : nullptr);
}

Collective::PendingPtr Collective::ReduceScatter(Values values, std::vector<int64_t> begins, void* out) {
  return BeginReduction("reduce_scatter", std::move(values), /*root=*/std::nullopt, std::move(begins), out);
}

Collective::PendingPtr Collective::AllGather(const std::string& name, DType dtype, std::vector<int64_t> begins,
                                             void* all) {
  const std::vector<int64_t> shape = {begins.empty() ? 0 : begins.back()};
  v1::CollectiveHeader header = HeaderOf("all_gather", name, TypeName(dtype), shape);
  header.set_slices(HashOf(begins));
  absl::Status refused = ElementsOf(shape, dtype).status();
  if (refused.ok()) refused = CheckBegins(begins, size(), shape[0]);
  if (refused.ok()) {
    for (int64_t& begin : begins) begin *= static_cast<int64_t>(DTypeSize(dtype));
  }
  return Begin(std::move(header), refused,
               [begins = std::move(begins), all, bytes = options_.message_bytes, &hosts = options_.hosts](
                   Operation* operation, Pending*) {
                 if (hosts.worth_merging()) {
                   return MoveHostedAllGather(operation, hosts, begins, bytes, static_cast<char*>(all));
                 }
                 return MoveAllGather(operation, begins, bytes, static_cast<char*>(all));
               });
}

Collective::PendingPtr Collective::AllGatherBytes(const std::string& name, std::string bytes,
                                                  std::vector<std::string>* all) {
  return Begin(HeaderOf("all_gather", name, "bytes", {}), absl::OkStatus(),
               [bytes = std::move(bytes), all, most = options_.message_bytes, &hosts = options_.hosts](
                   Operation* operation, Pending*) {
                 if (hosts.worth_merging()) return MoveHostedAllGatherBytes(operation, hosts, bytes, most, all);
                 const std::vector<const std::string*> to(static_cast<size_t>(operation->size()), &bytes);
                 return MoveAllToAll(operation, to, most, all);
               });
}

Collective::PendingPtr Collective::GatherBytes(const std::string& name, std::string bytes, int root,
                                               std::vector<std::string>* all) {
  return Begin(HeaderOf("gather", name, "bytes", {}, root), absl::OkStatus(),
               [bytes = std::move(bytes), root, all, most = options_.message_bytes](Operation* operation, Pending*) {
                 const std::string nothing;
                 std::vector<const std::string*> to(static_cast<size_t>(operation->size()), &nothing);
                 to[static_cast<size_t>(root)] = &bytes;
                 RETURN_IF_ERROR(MoveAllToAll(operation, to, most, all));
                 if (operation->rank() != root) all->clear();
                 return absl::OkStatus();
               });
}

Collective::PendingPtr Collective::AllToAllBytes(const std::string& name, std::vector<std::string> to,
                                                 std::vector<std::string>* from) {
  absl::Status refused;
  if (to.size() != static_cast<size_t>(size())) {
    refused = absl::InvalidArgumentError(absl::StrCat("there are ", size(), " ranks and messages for ", to.size()));
  }
  return Begin(HeaderOf("all_to_all", name, "bytes", {}), refused,
               [to = std::move(to), from, most = options_.message_bytes](Operation* operation, Pending*) {
                 std::vector<const std::string*> messages;
                 for (const std::string& each : to) messages.push_back(&each);
                 return MoveAllToAll(operation, messages, most, from);
               });
}

Collective::PendingPtr Collective::Broadcast(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                                             int root, void* values) {
  const absl::StatusOr<int64_t> count = ElementsOf(shape, dtype);
  const absl::Status& refused = count.status();
  const int64_t bytes = count.value_or(0) * static_cast<int64_t>(DTypeSize(dtype));
  return Begin(HeaderOf("broadcast", name, TypeName(dtype), shape, root), refused,
               [root, bytes, values, most = options_.message_bytes](Operation* operation, Pending*) {
                 return MoveBroadcast(operation, root, bytes, most, static_cast<char*>(values));
               });
}

Collective::PendingPtr Collective::Barrier(const std::string& name) {
  return Begin(HeaderOf("barrier", name, "", {}), absl::OkStatus(), [](Operation* operation, Pending*) {
    std::vector<v1::CollectiveHeader> headers;
    return operation->ExchangeHeaders(&headers);
  });
}

}  // namespace weir
