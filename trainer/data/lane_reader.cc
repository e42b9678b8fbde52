#include "trainer/data/lane_reader.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_budget.h"
#include "framework/formats/derived.h"
#include "framework/formats/line_parser.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "trainer/data/chosen_places.h"
#include "trainer/data/features.h"
#include "trainer/data/lane.h"
#include "trainer/data/records_ahead.h"

namespace weir {
namespace {

const ProfileName kMakeBatch("make a batch");
// Time for threads to end when a reader is destroyed: they check every thousand lines and every block of 256 KiB.
constexpr absl::Duration kLeave = absl::Seconds(2);
// Time after which a wait for a batch is worth a look at what it waits for.
constexpr absl::Duration kSoon = absl::Milliseconds(100);
// Examples among which an input that is not there is worth a warning: a few steps, and more than rare inputs need.
constexpr int64_t kEnoughToWarn = 2000;

int ReaderThreads(const LaneReaderOptions& options) {
  return std::min(options.threads > 0 ? options.threads : UsableCores(), options.streams.count);
}

// State that the threads of a reader work on. The threads and the Reader own it together: a thread that is stuck in a
// read of a disk that does not answer keeps it alive.
class Machine : public std::enable_shared_from_this<Machine> {
 public:
  explicit Machine(std::unique_ptr<LaneContext> shared) : shared_(std::move(shared)) {
    const LaneRange& streams = shared_->options.streams;
    for (int i = 0; i < streams.count; ++i) {
      lanes_.push_back(std::make_unique<Lane>(shared_.get(), streams.begin + i));
    }
    MutexLock lock(&mu_);
    queues_.resize(lanes_.size());
  }

  // Implements ~LaneReader.
  void Close();

  const std::vector<Column>& columns() const { return shared_->features.columns(); }
  std::vector<LaneBatch> StoppedBatches() const {
    std::vector<LaneBatch> batches(lanes_.size());
    for (LaneBatch& batch : batches) {
      batch.ended = batch.stopped = true;
      shared_->features.MakeBatch({}, shared_->has_statistics ? &shared_->statistics : nullptr, &batch.vars);
    }
    return batches;
  }
  int lanes() const { return static_cast<int>(lanes_.size()); }
  bool ended() const { return ended_; }
  int64_t given() const { return given_; }
  int64_t skipped_lines() const { return shared_->skipped_lines.load(); }
  std::vector<InputPosition> skipped_positions() const {
    MutexLock lock(&shared_->skipped_mu);
    return shared_->skipped;
  }

  // Calls back when files are known, until Close.
  void Follow() {
    if (shared_->followed() == nullptr) return;
    shared_->followed()->OnNews([machine = weak_from_this()] {
      const std::shared_ptr<Machine> self = machine.lock();
      if (self == nullptr) return;
      MutexLock lock(&self->mu_);
      self->work_.SignalAll();
      // A wait is no longer one for files.
      self->ready_.SignalAll();
    });
  }

  void SkipTo(int64_t step, const v1::StreamPlaces& places);
  void Passed(int64_t step) {
    for (const std::unique_ptr<Lane>& lane : lanes_) {
      if (lane->trail() != nullptr) lane->trail()->Passed(step);
    }
  }
  v1::StreamPlaces Places(int64_t step) const;

  absl::Status Next(absl::Duration timeout, std::vector<LaneBatch>* batches);

  // Call after Next.
  void WarnOfAbsent();
  v1::AbsentInputs absent_inputs() const {
    v1::AbsentInputs absent;
    for (const uint32_t place : shared_->seen->Absent()) absent.add_places(place);
    MutexLock lock(&mu_);
    absent.set_whole(std::all_of(queues_.begin(), queues_.end(), [](const Queue& queue) { return queue.whole; }));
    return absent;
  }

  bool AwaitsFiles() const {
    MutexLock lock(&mu_);
    return late_ && OnlyAwaitsFiles();
  }

  void Cancel() {
    if (shared_->ahead != nullptr) shared_->ahead->Cancel();
    MutexLock lock(&mu_);
    shared_->cancelled.store(true);
    work_.SignalAll();
    ready_.SignalAll();
  }

  std::string ShuffleDescription() const {
    MutexLock lock(&mu_);
    std::vector<std::string> lines;
    for (const Queue& queue : queues_) {
      if (!queue.description.empty()) lines.push_back(queue.description);
    }
    return absl::StrJoin(lines, "\n");
  }

 private:
  // State of one lane between the threads and Next.
  struct Queue {
    std::deque<LaneBatch> ready;
    std::vector<LaneBatch> used;  // memory to reuse for batches
    absl::Status error;           // reported after the ready batches
    std::string description;
    bool window = false;
    int64_t buffered = 0;  // examples in the shuffle buffer
    int64_t made = 0;
    LaneBatch begun;         // memory of the next batch
    bool has_begun = false;  // work on it has begun
    int64_t read = 0;        // examples, of all epochs
    bool busy = false;       // a thread works on the lane's next batch
    int64_t awaited = 0;     // Lane::awaited
    bool done = false;       // ended or failed: nothing more to make
    bool whole = false;      // Lane::whole
  };

  void StartThreads();
  void Work(int thread);
  // Returns the lane that is furthest behind among those with work to do; -1 if there is none.
  int PickLane() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Hands over what was made for a lane.
  void Deliver(int lane, absl::Status status, LaneBatch batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns one line for the log: whether streams are shuffled as a whole.
  std::string ShuffleSummary() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if the lane cannot go on before more files are known.
  bool AwaitsFiles(const Queue& queue) const { return queue.awaited > 0 && !shared_->followed()->Knows(queue.awaited); }
  // Returns true if nothing but files that do not exist yet keeps lanes from having batches.
  bool OnlyAwaitsFiles() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (shared_->followed() == nullptr || shared_->followed()->opening()) return false;
    bool any = false;
    for (const Queue& queue : queues_) {
      if (!queue.ready.empty() || !queue.error.ok()) continue;
      if (queue.busy || !AwaitsFiles(queue)) return false;
      any = true;
    }
    return any;
  }
  // Records whether a Next is late, for those who ask why.
  void SetLate(bool late) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    late_ = late;
    if (shared_->followed() != nullptr) shared_->followed()->SetAwaited(late && OnlyAwaitsFiles());
  }
  bool AllReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<LaneContext> shared_;
  // lanes_[i] is owned by the thread that has set queues_[i].busy.
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::thread> threads_;  // owned by the thread that calls Next
  bool ended_ = false;                // owned by the thread that calls Next
  bool looked_for_absent_ = false;    // owned by the thread that calls Next
  int64_t given_ = 0;                 // examples; owned by the thread that calls Next

  mutable Mutex mu_;
  CondVar work_;   // a lane may want work
  CondVar ready_;  // a batch or an error is there
  std::vector<Queue> queues_ ABSL_GUARDED_BY(mu_);
  int lanes_begun_ ABSL_GUARDED_BY(mu_) = 0;
  bool late_ ABSL_GUARDED_BY(mu_) = false;       // a Next, or the last one, has waited in vain
  std::vector<bool> left_ ABSL_GUARDED_BY(mu_);  // [i]: thread i has nothing more to do
};

void Machine::Close() {
  if (shared_->followed() != nullptr) shared_->followed()->OnNews(nullptr);
  Cancel();
  const absl::Time deadline = Clock::Real()->Now() + kLeave;
  std::vector<bool> left;
  std::vector<std::string> stuck;
  {
    MutexLock lock(&mu_);
    while (std::find(left_.begin(), left_.end(), false) != left_.end() && Clock::Real()->Now() < deadline) {
      ready_.WaitWithTimeout(&mu_, deadline - Clock::Real()->Now());
    }
    left = left_;
    for (size_t i = 0; i < queues_.size(); ++i) {
      if (queues_[i].busy)
        stuck.push_back(absl::StrCat("stream ", shared_->options.streams.begin + static_cast<int>(i)));
    }
  }
  for (size_t i = 0; i < threads_.size(); ++i) {
    if (left[i]) {
      threads_[i].join();
    } else {
      threads_[i].detach();
    }
  }
  if (std::find(left.begin(), left.end(), false) != left.end()) {
    LOG(WARNING) << "reading has not ended within " << absl::FormatDuration(kLeave)
                 << " and is not waited for any longer: " << absl::StrJoin(stuck, ", ");
  }
  threads_.clear();
}

v1::StreamPlaces Machine::Places(int64_t step) const {
  v1::StreamPlaces places;
  places.set_streams(shared_->options.spec.streams());
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->trail() == nullptr) continue;
    std::optional<v1::StreamPlace> place = lane->trail()->At(step);
    if (place.has_value()) *places.add_places() = *std::move(place);
  }
  places.mutable_absent();
  for (const uint32_t absent : shared_->seen->Absent())
    places.mutable_absent()->add_names(shared_->seen->inputs()[absent].name);
  return places;
}

void Machine::SkipTo(int64_t step, const v1::StreamPlaces& places) {
  CHECK(shared_->followed() == nullptr) << "SkipTo in files that follow";
  CHECK(threads_.empty()) << "SkipTo after the first Next";
  const LaneRange& streams = shared_->options.streams;
  bool goes_on = false;
  if (streams.count > 0) {
    ChosenPlaces chosen = ChoosePlaces({.data = &shared_->data,
                                        .spec = &shared_->options.spec,
                                        .epochs = shared_->epochs(),
                                        .streams = streams,
                                        .most_buffered = lanes_[0]->most_buffered(),
                                        .batches = step},
                                       places);
    for (const std::string& reason : chosen.refused) LOG(WARNING) << reason;
    if (!chosen.summary.empty()) LOG(INFO) << "data: " << chosen.summary;
    shared_->begins = std::move(chosen.begins);
    goes_on = !chosen.places.empty();
    for (v1::StreamPlace& place : chosen.places)
      lanes_[static_cast<size_t>(place.stream() - streams.begin)]->GoOn(std::move(place));
  }
  // Count the inputs that examples before the places had; if that is unknown, they may have had all.
  const auto& names = places.absent().names();
  if (places.has_absent() || goes_on) shared_->seen->SeeAllBut(std::set<std::string>(names.begin(), names.end()));
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->SkipTo(step);
}

void Machine::StartThreads() {
  const int threads = ReaderThreads(shared_->options);
  {
    MutexLock lock(&mu_);
    left_.assign(static_cast<size_t>(threads), false);
  }
  for (int i = 0; i < threads; ++i) {
    threads_.push_back(
        StartThread(absl::StrCat("weir-reader-", i), [machine = shared_from_this(), i] { machine->Work(i); }));
  }
}

int Machine::PickLane() {
  const size_t wanted = static_cast<size_t>(std::max(1, shared_->options.spec.config.prefetch_batches()));
  int picked = -1;
  for (int i = 0; i < static_cast<int>(queues_.size()); ++i) {
    const Queue& queue = queues_[static_cast<size_t>(i)];
    if (queue.busy || queue.done || queue.ready.size() >= wanted || AwaitsFiles(queue)) continue;
    const auto behind = [](const Queue& q) { return std::pair(q.ready.size(), q.read); };
    if (picked < 0 || behind(queue) < behind(queues_[static_cast<size_t>(picked)])) picked = i;
  }
  return picked;
}

void Machine::Work(int thread) {
  mu_.Lock();
  while (!shared_->cancelled.load()) {
    const int picked = PickLane();
    if (picked < 0) {
      work_.Wait(&mu_);
      continue;
    }
    Queue& queue = queues_[static_cast<size_t>(picked)];
    queue.busy = true;
    const bool begins = !std::exchange(queue.has_begun, true);
    if (begins && !queue.used.empty()) {
      queue.begun = std::move(queue.used.back());
      queue.used.pop_back();
    }
    LaneBatch batch = std::move(queue.begun);
    const int64_t made = queue.made;
    mu_.Unlock();
    Lane& lane = *lanes_[static_cast<size_t>(picked)];
    if (begins && shared_->options.before_batch)
      shared_->options.before_batch(shared_->options.streams.begin + picked, made);
    const int64_t epoch = lane.epoch();
    absl::StatusOr<bool> whole = false;
    {
      ProfileSpan span(Profiler::CurrentStep(), ProfileKind::kRead, kMakeBatch);
      if (ProfileEvent* const event = span.event()) event->lane = shared_->options.streams.begin + picked;
      whole = lane.Work(&batch);
    }
    std::string description;
    if (whole.ok() && (lane.epoch() != epoch || (*whole && (made == 0 || batch.ended)))) description = lane.Describe();
    const bool window = lane.window();
    const int64_t buffered = lane.buffered();
    const int64_t read = lane.total_read();
    const bool is_whole = lane.whole();
    mu_.Lock();
    queue.whole = is_whole;
    queue.window = window;
    queue.awaited = lane.awaited();
    queue.buffered = buffered;
    queue.read = read;
    if (!description.empty()) queue.description = std::move(description);
    if (whole.ok() && !*whole) {
      queue.begun = std::move(batch);
      queue.busy = false;
      // Next tells others of a wait for files.
      if (OnlyAwaitsFiles()) ready_.SignalAll();
      continue;
    }
    Deliver(picked, whole.status(), std::move(batch));
    if (made == 0 && ++lanes_begun_ == lanes() && shared_->shuffles() && whole.ok()) LOG(INFO) << ShuffleSummary();
  }
  left_[static_cast<size_t>(thread)] = true;
  ready_.SignalAll();
  mu_.Unlock();
}

void Machine::Deliver(int lane, absl::Status status, LaneBatch batch) {
  Queue& queue = queues_[static_cast<size_t>(lane)];
  queue.busy = false;
  queue.has_begun = false;
  ++queue.made;
  if (!status.ok()) {
    queue.error = std::move(status);
    queue.done = true;
  } else {
    queue.done = batch.ended;
    queue.ready.push_back(std::move(batch));
  }
  // Waking a thread costs as much as a few dozen examples. Next can only proceed when every lane has a batch, and this
  // thread looks for further work itself.
  if (AllReady()) ready_.SignalAll();
}

std::string Machine::ShuffleSummary() const {
  std::vector<int> windows;
  int64_t buffered = 0;
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i].window) windows.push_back(shared_->options.streams.begin + static_cast<int>(i));
    buffered += queues_[i].buffered;
  }
  std::string text = absl::StrCat("data: shuffle ", windows.empty() ? "ALL" : "WINDOW", ": ", buffered, " examples of ",
                                  queues_.size(), " streams in memory");
  if (!windows.empty())
    absl::StrAppend(&text, "; too long to be shuffled as a whole: streams ", absl::StrJoin(windows, ", "));
  return text;
}

bool Machine::AllReady() const {
  for (const Queue& queue : queues_) {
    if (queue.ready.empty() && queue.error.ok()) return false;
  }
  return true;
}

std::string Machine::Missing() const {
  std::vector<std::string> lanes;
  for (size_t i = 0; i < queues_.size(); ++i) {
    const Queue& queue = queues_[i];
    if (!queue.ready.empty() || !queue.error.ok()) continue;
    lanes.push_back(absl::StrCat("stream ", shared_->options.streams.begin + static_cast<int>(i),
                                 AwaitsFiles(queue) ? " (new files)"
                                 : queue.made == 0  ? " (its first batch)"
                                                    : ""));
  }
  return absl::StrJoin(lanes, ", ");
}

absl::Status Machine::Next(absl::Duration timeout, std::vector<LaneBatch>* batches) {
  if (threads_.empty()) StartThreads();
  const absl::Time deadline = Clock::Real()->Now() + timeout;
  batches->resize(lanes_.size());
  MutexLock lock(&mu_);
  while (!AllReady()) {
    if (shared_->cancelled.load()) return absl::CancelledError("reading was cancelled");
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) {
      SetLate(true);
      return absl::DeadlineExceededError(
          absl::StrCat("waited ", absl::FormatDuration(timeout), " for data of ", Missing()));
    }
    const absl::Duration soon = late_ ? left : left - (timeout - kSoon);
    ready_.WaitWithTimeout(&mu_, soon > absl::ZeroDuration() ? std::min(left, soon) : left);
    // Others have to know of a wait for files before their own deadlines end.
    if (!AllReady() && (late_ || deadline - Clock::Real()->Now() <= timeout - kSoon)) SetLate(true);
  }
  SetLate(false);
  if (shared_->cancelled.load()) return absl::CancelledError("reading was cancelled");
  for (const Queue& queue : queues_) {
    if (queue.ready.empty()) return queue.error;
  }
  ended_ = true;
  for (size_t i = 0; i < queues_.size(); ++i) {
    Queue& queue = queues_[i];
    LaneBatch& out = (*batches)[i];
    if (queue.ready.front().ended) {  // the end marker stays in the queue
      out.examples = 0;
      out.ended = true;
      out.stopped = queue.ready.front().stopped;
      out.last = queue.ready.front().last;
      out.first_examples = queue.ready.front().first_examples;
      out.fraction = queue.ready.front().fraction;
      out.positions.clear();
      out.vars = queue.ready.front().vars;
      continue;
    }
    ended_ = false;
    if (!out.vars.empty() && !out.ended) queue.used.push_back(std::move(out));
    out = std::move(queue.ready.front());
    queue.ready.pop_front();
    given_ += out.examples;
  }
  work_.SignalAll();
  return absl::OkStatus();
}

void Machine::WarnOfAbsent() {
  if (looked_for_absent_ || !shared_->options.warns_of_absent) return;
  const v1::AbsentInputs absent = absent_inputs();
  if (absent.places().empty()) {
    looked_for_absent_ = true;
    return;
  }
  int64_t read = 0;
  {
    MutexLock lock(&mu_);
    for (const Queue& queue : queues_) read += queue.read;
  }
  if (read == 0 || (read < kEnoughToWarn && !ended_ && !absent.whole())) return;
  looked_for_absent_ = true;
  LOG(WARNING) << NamesOf(shared_->seen->inputs(), absent.places()) << (absent.places_size() == 1 ? " is" : " are")
               << " in none of " << read << " examples of data.train so far"
               << InFirstRecord(*shared_->parser, shared_->data) << "; is the name right?";
}

class Reader : public LaneReader {
 public:
  explicit Reader(std::unique_ptr<LaneContext> shared) : machine_(std::make_shared<Machine>(std::move(shared))) {
    machine_->Follow();
  }
  ~Reader() override { machine_->Close(); }

  const std::vector<Column>& columns() const override { return machine_->columns(); }
  int lanes() const override { return machine_->lanes(); }
  void SkipTo(int64_t step, const v1::StreamPlaces& places) override { machine_->SkipTo(step, places); }
  void Passed(int64_t step) override { machine_->Passed(step); }
  v1::StreamPlaces Places(int64_t step) const override { return machine_->Places(step); }
  absl::Status Next(absl::Duration timeout, std::vector<LaneBatch>* batches) override {
    RETURN_IF_ERROR(machine_->Next(timeout, batches));
    machine_->WarnOfAbsent();
    return absl::OkStatus();
  }
  v1::AbsentInputs absent_inputs() const override { return machine_->absent_inputs(); }
  std::vector<LaneBatch> StoppedBatches() const override { return machine_->StoppedBatches(); }
  bool ended() const override { return machine_->ended(); }
  bool AwaitsFiles() const override { return machine_->AwaitsFiles(); }
  int64_t given() const override { return machine_->given(); }
  void Cancel() override { machine_->Cancel(); }
  int64_t skipped_lines() const override { return machine_->skipped_lines(); }
  std::vector<InputPosition> skipped_positions() const override { return machine_->skipped_positions(); }
  std::string ShuffleDescription() const override { return machine_->ShuffleDescription(); }

 private:
  const std::shared_ptr<Machine> machine_;
};

absl::Status CheckStatistics(const LaneContext& shared) {
  const DataSpec& spec = shared.options.spec;
  if (!NeedsStatistics(spec)) return absl::OkStatus();
  if (!shared.has_statistics) {
    return absl::FailedPreconditionError(
        "the job standardises columns, has a min_count or learns from the data: data statistics are needed first");
  }
  if (shared.features.standardizes() && shared.statistics.moments().size() != shared.features.floats().size()) {
    return absl::InvalidArgumentError(absl::StrCat("data statistics are of ", shared.statistics.moments().size(),
                                                   " float columns, the data has ", shared.features.floats().size(),
                                                   "; they were taken with another reader"));
  }
  if (!shared.statistics.learned().IsOf(spec.config)) {
    return absl::InvalidArgumentError(
        "what the job learns (vocabularies, frequencies, popularities, quantiles, classes) is not what the "
        "checkpoint has learned: use the job file that it was trained with, or train anew");
  }
  if (spec.config.ids().min_count() > 1 && shared.statistics.min_count() != spec.config.ids().min_count()) {
    return absl::InvalidArgumentError(absl::StrCat("data statistics were taken with min_count ",
                                                   shared.statistics.min_count(), ", the job has data.ids.min_count ",
                                                   spec.config.ids().min_count()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LaneReader>> LaneReader::Create(DataSet data, LaneReaderOptions options) {
  auto shared = std::make_unique<LaneContext>();
  CHECK(options.streams.begin >= 0 && options.streams.begin + options.streams.count <= options.spec.streams());
  CHECK(options.followed == nullptr ||
        (!options.one_pass_in_order && options.starts.size() == static_cast<size_t>(options.streams.count)));
  if (options.with_positions && !options.one_pass_in_order) {
    return absl::InvalidArgumentError("positions are known only when examples are read in order");
  }
  if (options.spec.config.batch_size() < options.spec.streams()) {
    return absl::InvalidArgumentError(absl::StrCat("data.batch_size is ", options.spec.config.batch_size(), "; ",
                                                   options.spec.streams(), " lanes need at least one example each"));
  }
  ASSIGN_OR_RETURN(
      shared->parser,
      MakeLineParser(options.spec.config, options.statistics == nullptr ? nullptr : &options.statistics->learned()));
  ASSIGN_OR_RETURN(shared->where, RowFilter::Create(shared->parser->columns(), data.where(), data.where_path(),
                                                    PlainSettingErrors("")));
  ASSIGN_OR_RETURN(shared->features, Features::Create(options.spec, *shared->parser));
  if (options.statistics != nullptr) {
    shared->statistics = *options.statistics;
    shared->has_statistics = true;
  }
  options.statistics = nullptr;
  shared->options = std::move(options);
  shared->data = std::move(data);
  shared->seen = std::make_unique<SeenInputs>(ExpectedInputs(*shared->parser, shared->options.spec.config));
  RETURN_IF_ERROR(CheckStatistics(*shared));
  shared->ahead = RecordsAhead::For(shared->options.spec, shared->data, /*follows=*/shared->followed() != nullptr,
                                    shared->options.streams, ReaderThreads(shared->options));
  return std::make_unique<Reader>(std::move(shared));
}

}  // namespace weir
