#include "trainer/follow/follower.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "trainer/data/watched_pass.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

constexpr char kReadings[] = "follow.read";
// Groups that share a post: it is written anew for each of them, and read by every trainer every time.
constexpr int64_t kGroupsInPost = 64;
// Steps by which the servers may be behind a trainer.
constexpr int64_t kStepsUnderWay = 64;
// Pauses of the thread: as the chief, which asks no server unless it has news, the shortest; otherwise, while somebody
// waits for a file, and while nobody does. The last is the longest of the chief, too, which is woken by what it needs.
constexpr absl::Duration kAsChief = absl::Milliseconds(20), kAwaited = absl::Milliseconds(100),
                         kRound = absl::Seconds(1);
constexpr absl::Duration kRemind = absl::Minutes(10);
// Time in which files that one host has written must be seen by the others.
constexpr absl::Duration kSeenElsewhere = absl::Seconds(90);

// Returns the key of the post that has a group.
std::string KeyOf(int64_t group) { return absl::StrCat("follow.", (group - 1) / kGroupsInPost); }

std::string NameOfGroup(const v1::FileGroup& group) {
  if (group.files().empty()) return "no file";
  const std::string first = absl::StrCat("'", group.files(0).name(), "'");
  return group.files_size() == 1 ? first
                                 : absl::StrCat(first, " to '", group.files(group.files_size() - 1).name(), "'");
}

std::vector<FoundFile> FilesOf(const v1::FileGroup& group) {
  std::vector<FoundFile> files;
  for (const v1::FollowedFile& file : group.files()) {
    files.push_back({.name = file.name(), .bytes = file.bytes(), .sample = file.sample(), .version = ""});
  }
  return files;
}

absl::StatusOr<std::vector<StreamReading>> ParseReadings(const std::string& text, int trainer) {
  v1::FollowReadings message;
  if (!message.ParseFromString(text)) {
    return absl::InternalError(absl::StrCat("what trainer ", trainer, " says of its streams cannot be read"));
  }
  std::vector<StreamReading> readings;
  for (const v1::FollowReadings::Reading& reading : message.readings()) {
    readings.push_back({.stream = reading.stream(),
                        .group = reading.group(),
                        .examples = reading.examples(),
                        .dealt = reading.dealt(),
                        .last = reading.last()});
  }
  return readings;
}

// Returns a description of a stream that goes on in a group that the state does not have; "" if none does.
std::string Contradiction(const v1::FollowState& state) {
  const int64_t next = state.first_group() + state.groups_size();
  for (int s = 0; s < state.streams_size(); ++s) {
    const v1::FollowedStream& stream = state.streams(s);
    if (state.first_group() >= 1 && stream.group() >= state.first_group() && stream.group() <= next &&
        stream.before() >= 0 && stream.given() >= stream.before() && stream.step() >= 0 && stream.dealt() >= 0) {
      continue;
    }
    return absl::StrCat("stream ", s, " of data.follow goes on in group ", stream.group(), " after ", stream.given(),
                        " examples, ", stream.before(), " of them before it; there are groups ", state.first_group(),
                        " to ", next - 1);
  }
  return "";
}

std::vector<StreamReading> OfStream(int stream, const std::vector<StreamReading>& all) {
  std::vector<StreamReading> own;
  for (const StreamReading& reading : all) {
    if (reading.stream == stream) own.push_back(reading);
  }
  return own;
}

}  // namespace

Follower::Follower(Options options)
    : o_(std::move(options)), board_(&o_.trainer.client->board_beside()), steps_(o_.step) {}

Follower::~Follower() { Stop(); }

absl::StatusOr<std::unique_ptr<Follower>> Follower::Create(Options options) {
  const int streams = options.spec.streams();
  if (options.state.streams_size() == 0) {
    options.state.Clear();
    for (int s = 0; s < streams; ++s) options.state.add_streams();
  }
  if (options.state.streams_size() != streams) {
    return absl::FailedPreconditionError(absl::StrCat("--resume: the checkpoint is of ", options.state.streams_size(),
                                                      " streams of data.follow, the job has ", streams));
  }
  if (const std::string wrong = Contradiction(options.state); !wrong.empty()) {
    return absl::DataLossError(absl::StrCat("--resume: the checkpoint contradicts itself: ", wrong,
                                            "; resume from another one, or start a fresh run without --resume"));
  }
  std::unique_ptr<Follower> follower(new Follower(std::move(options)));
  RETURN_IF_ERROR(follower->Prepare());
  follower->thread_ = StartThread("weir-follow", [raw = follower.get()] { raw->Run(); });
  return follower;
}

v1::FollowedStream Follower::BaseOf(int stream) const {
  MutexLock lock(&mu_);
  return base_[static_cast<size_t>(stream)];
}

StreamStart Follower::StartAt(int stream, int64_t step, const std::vector<StreamReading>& readings) const {
  const v1::FollowedStream base = BaseOf(stream);
  const int64_t per_step = o_.spec.StreamBatch(stream) * o_.batches_per_step;
  StreamStart start = {.group = base.group(),
                       .before = base.before(),
                       .given = std::max(base.before(), base.given() + (step - base.step()) * per_step),
                       .batches = step * o_.batches_per_step,
                       .dealt = base.dealt()};
  for (const StreamReading& reading : readings) {
    // Its last batch was short.
    if (reading.last) start.given = std::max(start.before, std::min(start.given, reading.examples));
    if (reading.examples > start.given || reading.group < start.group) continue;
    start.group = reading.group + 1;
    start.before = reading.examples;
    start.dealt = reading.dealt;
  }
  return start;
}

absl::Status Follower::Prepare() {
  {
    MutexLock lock(&mu_);
    base_.assign(o_.state.streams().begin(), o_.state.streams().end());
    groups_begin_ = o_.state.first_group();
    groups_.assign(o_.state.groups().begin(), o_.state.groups().end());
    last_file_ = o_.state.last_file();
  }
  // The run before may have had other trainers, of which some were further: streams go on where they are now.
  for (int t = 0; t < o_.trainer.trainers; ++t) {
    const LaneRange streams = o_.spec.StreamsOf(t);
    for (int s = streams.begin; s < streams.begin + streams.count; ++s) {
      const int64_t steps = o_.first_steps[static_cast<size_t>(t)];
      const StreamStart start = StartAt(s, steps, {});
      MutexLock lock(&mu_);
      base_[static_cast<size_t>(s)].set_step(steps);
      base_[static_cast<size_t>(s)].set_given(start.given);
    }
  }
  const LaneRange streams = o_.spec.StreamsOf(o_.trainer.id);
  std::vector<StreamReading> readings;
  if (o_.takes_over) {
    ASSIGN_OR_RETURN(const std::string text, board_->Posted(kReadings, o_.trainer.id));
    ASSIGN_OR_RETURN(readings, ParseReadings(text, o_.trainer.id));
  }
  int64_t first = 0;
  for (int s = streams.begin; s < streams.begin + streams.count; ++s) {
    starts_.push_back(StartAt(s, o_.step, OfStream(s, readings)));
    first = first == 0 ? starts_.back().group : std::min(first, starts_.back().group);
  }
  files_ = std::make_shared<FollowedFiles>(streams, std::max<int64_t>(first, 1));
  files_->OnChange([waits = &o_.trainer.client->member().waits()] { waits->Wake(); });
  // Posts of this trainer replace those of the dead one.
  for (const StreamReading& reading : readings) {
    if (reading.stream >= streams.begin && reading.stream < streams.begin + streams.count) files_->HasRead(reading);
  }
  next_group_ = o_.state.first_group() + o_.state.groups_size();
  search_.moved = search_.warned = Clock::Real()->Now();
  heard_.missing = absl::InfiniteFuture();
  return absl::OkStatus();
}

bool Follower::stopping() {
  MutexLock lock(&mu_);
  return stop_;
}

absl::StatusOr<std::shared_ptr<const DataSet>> Follower::OpenGroup(const v1::FileGroup& group) {
  const v1::Deadlines& deadlines = o_.job->config.deadlines();
  // There are files now, so the deadline for progress runs again.
  files_->SetOpening(true);
  o_.trainer.client->member().SetAwaitsFiles(false);
  const PassWatch watch = {.what = absl::StrCat("opening ", NameOfGroup(group), " of data.train"),
                           .slow_warning = absl::Seconds(deadlines.slow_warning_s()),
                           .progress_deadline = absl::Seconds(deadlines.progress_deadline_s()),
                           .keep_waiting = [this]() -> absl::Status {
                             if (stopping()) return absl::CancelledError("the run has ended");
                             if (o_.trainer.client->member().StopRequested()) files_->Stop();
                             return o_.trainer.client->member().JobStatus();
                           }};
  const auto opened = std::make_shared<std::shared_ptr<const DataSet>>();
  const absl::Status status =
      RunWatched(watch,
                 [opened, data = o_.job->config.data(), directory = o_.job->directory,
                  found = FilesOf(group)](const std::function<bool()>&) -> absl::StatusOr<std::string> {
                   ASSIGN_OR_RETURN(DataSet set,
                                    DataSet::OpenFound(data, data.train(), directory, "data.train", found));
                   *opened = std::make_shared<const DataSet>(std::move(set));
                   return std::string();
                 })
          .status();
  files_->SetOpening(false);
  RETURN_IF_ERROR(status);
  return *opened;
}

absl::StatusOr<std::shared_ptr<const DataSet>> Follower::TakeGroup(v1::FileGroup group) {
  // Files that every stream of this trainer has read may be gone.
  const bool reads = next_group_ >= files_->next();
  std::shared_ptr<const DataSet> files;
  if (reads) {
    ASSIGN_OR_RETURN(files, OpenGroup(group));
    for (int i = 0; i < group.files_size(); ++i)
      group.mutable_files(i)->set_sample(files->files()[static_cast<size_t>(i)].sample);
  }
  ++next_group_;
  {
    MutexLock lock(&mu_);
    if (!group.files().empty()) last_file_ = group.files(group.files_size() - 1).name();
    groups_.push_back(std::move(group));
    if (!o_.trainer.MayBecomeChief()) {
      groups_.pop_front();
      ++groups_begin_;
    }
  }
  return files;
}

void Follower::SetClosed() {
  {
    MutexLock lock(&mu_);
    closed_ = true;
  }
  files_->Close();
}

absl::Status Follower::Hear() {
  while (!stopping()) {
    const std::string key = KeyOf(next_group_);
    if (key != heard_.key) heard_.edition = -1;
    heard_.key = key;
    ASSIGN_OR_RETURN(const PostedWord word, board_->NewestWord(key, heard_.edition));
    if (word.by < 0 || word.edition <= heard_.edition) return absl::OkStatus();
    v1::FollowNews news;
    if (!news.ParseFromString(word.text)) {
      return absl::InternalError(absl::StrCat("what trainer ", word.by, " says of new files cannot be read"));
    }
    // Groups that no stream needs any more are left out.
    if (news.first_group() > next_group_ && next_group_ < files_->next()) {
      next_group_ = std::min(news.first_group(), files_->next());
      MutexLock lock(&mu_);
      groups_begin_ = next_group_;
      groups_.clear();
    }
    const int64_t known = next_group_ - news.first_group();
    if (known < 0) {
      return absl::InternalError(absl::StrCat("trainer ", word.by, " has posted files from group ", news.first_group(),
                                              " on; group ", next_group_, " is missing"));
    }
    for (int64_t i = known; i < news.groups_size(); ++i) {
      absl::StatusOr<std::shared_ptr<const DataSet>> taken = TakeGroup(news.groups(static_cast<int>(i)));
      const absl::Time now = Clock::Real()->Now();
      // A file system on the network shows other hosts a new file only after a while.
      if (absl::IsNotFound(taken.status()) && now - std::min(heard_.missing, now) < kSeenElsewhere) {
        if (heard_.missing > now)
          LOG(WARNING) << "data.follow: the chief has found a file that is not seen here yet: " << taken.status();
        heard_.missing = std::min(heard_.missing, now);
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(taken.status());
      if (*taken != nullptr) files_->Add(*std::move(taken));
      heard_.missing = absl::InfiniteFuture();
    }
    heard_.edition = word.edition;
    if (news.closed()) SetClosed();
    // The next group may be in the next post.
    if (KeyOf(next_group_) == key) return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Follower::PostGroups(bool closed) {
  const int64_t last = next_group_ - 1;
  // The others look where the next group would be.
  const std::string key = KeyOf(closed ? next_group_ : last);
  v1::FollowNews news;
  news.set_closed(closed);
  news.set_first_group(next_group_);
  {
    MutexLock lock(&mu_);
    const int64_t end = groups_begin_ + static_cast<int64_t>(groups_.size());
    const int64_t of_key = closed ? next_group_ : last;
    for (int64_t g = std::max(groups_begin_, of_key - (of_key - 1) % kGroupsInPost); g < end; ++g) {
      if (news.groups().empty()) news.set_first_group(g);
      *news.add_groups() = groups_[static_cast<size_t>(g - groups_begin_)];
    }
  }
  return board_->Post(key, news.SerializeAsString(), 2 * last + (closed ? 1 : 0));
}

absl::Status Follower::Look() {
  if (search_.lookout == nullptr) {
    // A chief before this one may have posted more than has been heard.
    RETURN_IF_ERROR(Hear());
    MutexLock lock(&mu_);
    if (closed_) return absl::OkStatus();
    search_.lookout = std::make_unique<FileLookout>(o_.job->config.data(), o_.job->directory, last_file_,
                                                    [files = files_] { files->Changed(); });
  }
  {
    MutexLock lock(&mu_);
    if (closed_) return absl::OkStatus();
  }
  FileLookout::News news = search_.lookout->Take();
  RETURN_IF_ERROR(news.failure);
  if (!news.trouble.ok() && search_.trouble.ok())
    LOG(WARNING) << "a look for files of data.train has failed: " << news.trouble;
  search_.trouble = news.trouble;
  search_.changing = news.changing;
  if (!news.files.empty()) search_.moved = Clock::Real()->Now();
  for (FoundFile& file : news.files) search_.found.push_back(std::move(file));
  const size_t together = static_cast<size_t>(o_.job->config.data().follow().files_together());
  const auto has_group = [&] { return search_.found.size() >= together || (news.closed && !search_.found.empty()); };
  // Groups that nobody trains on before they are posted: a chief that takes this one's place would deal other ones.
  std::vector<std::shared_ptr<const DataSet>> unposted;
  // No more than fit into a post, so that what else the thread does has its turn.
  do {
    if (!has_group()) break;
    const size_t size = std::min(together, search_.found.size());
    v1::FileGroup group;
    int64_t bytes = 0;
    for (size_t i = 0; i < size; ++i) {
      v1::FollowedFile* const file = group.add_files();
      file->set_name(search_.found[i].name);
      file->set_bytes(search_.found[i].bytes);
      file->set_sample(search_.found[i].sample);
      bytes += search_.found[i].bytes;
    }
    LOG(INFO) << "data.follow: takes " << NameOfGroup(group) << ", group " << next_group_ << ", " << bytes << " bytes";
    ASSIGN_OR_RETURN(std::shared_ptr<const DataSet> files, TakeGroup(std::move(group)));
    if (files != nullptr) unposted.push_back(std::move(files));
    search_.found.erase(search_.found.begin(), search_.found.begin() + static_cast<std::ptrdiff_t>(size));
    // A trainer that waits for files gets them at once.
    if (has_group() && next_group_ % kGroupsInPost != 1 && !files_->awaited()) continue;
    RETURN_IF_ERROR(PostGroups(/*closed=*/false));
    for (std::shared_ptr<const DataSet>& posted : unposted) files_->Add(std::move(posted));
    unposted.clear();
  } while (next_group_ % kGroupsInPost != 1);
  search_.more = has_group();
  if (!news.closed || search_.more) return absl::OkStatus();
  {
    MutexLock lock(&mu_);
    closed_ = true;
  }
  RETURN_IF_ERROR(PostGroups(/*closed=*/true));
  LOG(INFO) << "data.follow: '" << o_.job->config.data().follow().until() << "' is there: no more files come";
  SetClosed();
  return absl::OkStatus();
}

absl::Status Follower::WatchIdle() {
  const absl::Time now = Clock::Real()->Now();
  if (!files_->awaited() && !o_.trainer.client->member().AnyAwaitsFiles()) {
    search_.moved = search_.warned = now;
    return absl::OkStatus();
  }
  std::string last;
  {
    MutexLock lock(&mu_);
    last = last_file_;
  }
  const absl::Duration idle = now - search_.moved;
  const std::string what = absl::StrCat(
      "no new file of data.train", last.empty() ? "" : absl::StrCat(" behind '", last, "'"), " for ",
      absl::FormatDuration(absl::Trunc(idle, absl::Seconds(1))),
      search_.found.empty() ? "" : absl::StrCat("; ", search_.found.size(), " of data.follow.files_together are there"),
      search_.changing.empty() ? "" : absl::StrCat("; '", search_.changing, "' changes from look to look"),
      search_.trouble.ok() ? "" : absl::StrCat("; the last look failed: ", std::string(search_.trouble.message())));
  const v1::Follow& follow = o_.job->config.data().follow();
  if (idle > absl::Seconds(follow.deadline_s())) {
    return absl::UnavailableError(
        absl::StrCat(what, " (data.follow.deadline_s); all have been read",
                     follow.until().empty() ? "; data.follow.until names a file that ends a job in good order" : ""));
  }
  if (now - search_.warned >= kRemind ||
      (search_.warned <= search_.moved && idle >= absl::Seconds(o_.job->config.deadlines().slow_warning_s()))) {
    search_.warned = now;
    LOG(INFO) << "data.follow: waits; " << what;
  }
  return absl::OkStatus();
}

std::vector<StreamReading> Follower::Readings() {
  const int64_t settled = std::max<int64_t>(0, steps_ - kStepsUnderWay);
  return files_->Readings([&](int stream) { return StartAt(stream, settled, {}).given; });
}

absl::Status Follower::PostReadings() {
  MutexLock lock(&posts_mu_);
  v1::FollowReadings message;
  // Readings of a stream do not depend on which trainer reads it, so the edition, a sum over streams, only grows.
  std::map<int, int64_t> newest;
  for (const StreamReading& reading : Readings()) {
    v1::FollowReadings::Reading* const out = message.add_readings();
    out->set_stream(reading.stream);
    out->set_group(reading.group);
    out->set_examples(reading.examples);
    out->set_dealt(reading.dealt);
    if (reading.last) out->set_last(true);
    newest[reading.stream] = 2 * reading.group + (reading.last ? 1 : 0);
  }
  int64_t edition = 0;
  for (const auto& [stream, counted] : newest) edition += counted;
  if (edition <= edition_) return absl::OkStatus();
  RETURN_IF_ERROR(board_->Post(kReadings, message.SerializeAsString(), edition));
  edition_ = edition;
  return absl::OkStatus();
}

absl::Status Follower::Round() {
  const bool chief = o_.trainer.IsChief();
  RETURN_IF_ERROR(chief ? Look() : Hear());
  if (chief) RETURN_IF_ERROR(WatchIdle());
  const bool awaited = files_->awaited() && !finished_;
  o_.trainer.client->member().SetAwaitsFiles(awaited);
  if (awaited && o_.trainer.client->member().StopRequested()) files_->Stop();
  return PostReadings();
}

void Follower::Pause(int64_t wakes) {
  const bool chief = o_.trainer.IsChief();
  {
    MutexLock lock(&mu_);
    if (stop_ || search_.more) return;
    changed_.WaitWithTimeout(&mu_, chief ? kAsChief : files_->awaited() ? kAwaited : kRound);
    if (stop_ || !chief) return;
  }
  const absl::Duration most =
      search_.moved + absl::Seconds(o_.job->config.data().follow().deadline_s()) - Clock::Real()->Now();
  o_.trainer.client->member().waits().AwaitWake(wakes, std::clamp(most, absl::ZeroDuration(), kRound));
}

void Follower::Run() {
  // The files in the checkpoint are known to all.
  absl::Status status;
  for (int64_t g = files_->next(); g < next_group_ && status.ok(); ++g) {
    absl::StatusOr<std::shared_ptr<const DataSet>> files =
        OpenGroup(o_.state.groups(static_cast<int>(g - o_.state.first_group())));
    status = files.status();
    if (status.ok()) files_->Add(*std::move(files));
  }
  while (status.ok() && !stopping()) {
    const int64_t wakes = o_.trainer.client->member().waits().wakes();
    status = Round();
    if (status.ok()) Pause(wakes);
  }
  if (status.ok() || stopping()) return;
  // Callers of a reader ask again after DeadlineExceeded.
  if (absl::IsDeadlineExceeded(status)) status = absl::UnavailableError(status.message());
  status = AtField(*o_.job, status);
  files_->Fail(status);
  // This trainer hears of it when its reader comes to the end of what is there. Before that, and when it is done,
  // others may wait for what it can do no more.
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!stop_) changed_.WaitWithTimeout(&mu_, kRound);
    }
    if (stopping() || !o_.trainer.client->member().JobStatus().ok()) return;
    if (!finished_ && !o_.trainer.client->member().AnyAwaitsFiles()) continue;
    o_.trainer.client->member().ReportFailure(status);
    return;
  }
}

absl::StatusOr<std::shared_ptr<const DataSet>> Follower::AwaitFirst() {
  files_->SetAwaited(true);
  while (true) {
    const int64_t wakes = o_.trainer.client->member().waits().wakes();
    ASSIGN_OR_RETURN(FollowedFiles::Group group, files_->Find(o_.spec.StreamsOf(o_.trainer.id).begin, 1));
    switch (group.state) {
      case FollowedFiles::Group::kThere:
        files_->SetAwaited(false);
        return std::move(group.files);
      case FollowedFiles::Group::kClosed:
        return absl::NotFoundError(absl::StrCat("data.train: no file has appeared before '",
                                                o_.job->config.data().follow().until(), "' (data.follow.until)"));
      case FollowedFiles::Group::kStopped:
        return absl::CancelledError("asked to stop before the first file of data.train has appeared");
      case FollowedFiles::Group::kUnknown:
        break;
    }
    RETURN_IF_ERROR(o_.trainer.client->member().JobStatus());
    o_.trainer.client->member().waits().AwaitWake(wakes, kRound);
  }
}

void Follower::Finish() {
  finished_ = true;
  o_.trainer.client->member().SetAwaitsFiles(false);
}

void Follower::Stop() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.SignalAll();
  }
  o_.trainer.client->member().waits().Wake();
  if (thread_.joinable()) thread_.join();
  if (files_ != nullptr) files_->OnChange(nullptr);
}

absl::Status Follower::SaveAt(const std::vector<int64_t>& trainer_steps, v1::TrainerState* saved) {
  v1::FollowState& state = *saved->mutable_follow();
  int64_t first = 0;
  for (int t = 0; t < o_.trainer.trainers; ++t) {
    std::vector<StreamReading> readings;
    if (t == o_.trainer.id) {
      readings = Readings();
    } else {
      ASSIGN_OR_RETURN(const std::string text, o_.trainer.client->board().Posted(kReadings, t));
      ASSIGN_OR_RETURN(readings, ParseReadings(text, t));
    }
    const LaneRange streams = o_.spec.StreamsOf(t);
    const int64_t steps = trainer_steps[static_cast<size_t>(t)];
    for (int s = streams.begin; s < streams.begin + streams.count; ++s) {
      const StreamStart start = StartAt(s, steps, OfStream(s, readings));
      v1::FollowedStream* const out = state.add_streams();
      out->set_group(start.group);
      out->set_before(start.before);
      out->set_step(steps);
      out->set_given(start.given);
      out->set_dealt(start.dealt);
      first = first == 0 ? start.group : std::min(first, start.group);
    }
  }
  MutexLock lock(&mu_);
  state.set_last_file(last_file_);
  state.set_first_group(std::max(first, groups_begin_));
  const int64_t known = groups_begin_ + static_cast<int64_t>(groups_.size());
  for (int64_t g = state.first_group(); g < known; ++g)
    *state.add_groups() = groups_[static_cast<size_t>(g - groups_begin_)];
  if (const std::string wrong = Contradiction(state); !wrong.empty()) {
    return absl::InternalError(absl::StrCat("a checkpoint would contradict itself: ", wrong));
  }
  // No later checkpoint goes back behind this one.
  while (groups_begin_ < state.first_group() && !groups_.empty()) {
    groups_.pop_front();
    ++groups_begin_;
  }
  base_.assign(state.streams().begin(), state.streams().end());
  return absl::OkStatus();
}

}  // namespace weir
