#include "trainer/follower.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

constexpr char kReadings[] = "follow.read";
// Groups that share a post: it is written anew for each of them, and read by every trainer every time.
constexpr int64_t kGroupsInPost = 64;
// Steps by which the servers may be behind a trainer.
constexpr int64_t kStepsUnderWay = 64;
// Pauses of the thread: as the chief, which asks no server unless it has news; otherwise, while somebody waits for a
// file, and while nobody does.
constexpr absl::Duration kAsChief = absl::Milliseconds(20), kAwaited = absl::Milliseconds(100),
                         kRound = absl::Seconds(1);
constexpr absl::Duration kRemind = absl::Minutes(10);

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
  for (const v1::FollowReadings::Reading& reading : message.readings())
    readings.push_back({reading.stream(), reading.group(), reading.examples()});
  return readings;
}

std::vector<StreamReading> OfStream(int stream, const std::vector<StreamReading>& all) {
  std::vector<StreamReading> own;
  for (const StreamReading& reading : all) {
    if (reading.stream == stream) own.push_back(reading);
  }
  return own;
}

}  // namespace

Follower::Follower(Options options) : o_(std::move(options)), board_(o_.trainer.client->Beside()), steps_(o_.step) {}

Follower::~Follower() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<std::unique_ptr<Follower>> Follower::Create(Options options) {
  const int streams = options.spec.streams();
  if (options.state.streams_size() == 0) {
    for (int s = 0; s < streams; ++s) options.state.add_streams();
  }
  if (options.state.streams_size() != streams) {
    return absl::FailedPreconditionError(absl::StrCat("--resume: the checkpoint is of ", options.state.streams_size(),
                                                      " streams of data.follow, the job has ", streams));
  }
  std::unique_ptr<Follower> follower(new Follower(std::move(options)));
  RETURN_IF_ERROR(follower->Prepare());
  follower->thread_ = StartThread("weir-follow", [raw = follower.get()] { raw->Run(); });
  return follower;
}

StreamStart Follower::StartAt(int stream, int64_t step, const std::vector<StreamReading>& readings) const {
  const v1::FollowedStream& saved = InCheckpoint(stream);
  const int64_t per_step = o_.spec.StreamBatch(stream) * o_.batches_per_step;
  StreamStart start = {.group = saved.group(),
                       .before = saved.before(),
                       .given = std::max(saved.before(), saved.given() + (step - saved.step()) * per_step),
                       .batches = step * o_.batches_per_step};
  for (const StreamReading& reading : readings) {
    if (reading.examples > start.given || reading.group < start.group) continue;
    start.group = reading.group + 1;
    start.before = reading.examples;
  }
  return start;
}

absl::Status Follower::Prepare() {
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
  next_group_ = o_.state.first_group() + o_.state.groups_size();
  moved_ = warned_ = Clock::Real()->Now();
  MutexLock lock(&mu_);
  groups_begin_ = o_.state.first_group();
  groups_.assign(o_.state.groups().begin(), o_.state.groups().end());
  last_file_ = o_.state.last_file();
  return absl::OkStatus();
}

absl::Status Follower::OpenGroup(v1::FileGroup* group, std::shared_ptr<const DataSet>* files) const {
  const v1::Data& data = o_.job->config.data();
  ASSIGN_OR_RETURN(DataSet set,
                   DataSet::OpenFound(data, data.train(), o_.job->directory, "data.train", FilesOf(*group)));
  for (int i = 0; i < group->files_size(); ++i)
    group->mutable_files(i)->set_sample(set.files()[static_cast<size_t>(i)].sample);
  *files = std::make_shared<const DataSet>(std::move(set));
  return absl::OkStatus();
}

absl::Status Follower::TakeGroup(const v1::FileGroup& group, std::shared_ptr<const DataSet> files) {
  v1::FileGroup taken = group;
  // Files that every stream of this trainer has read may be gone.
  const bool reads = next_group_ >= files_->next();
  if (reads && files == nullptr) RETURN_IF_ERROR(OpenGroup(&taken, &files));
  ++next_group_;
  moved_ = Clock::Real()->Now();
  {
    MutexLock lock(&mu_);
    if (!taken.files().empty()) last_file_ = taken.files(taken.files_size() - 1).name();
    groups_.push_back(std::move(taken));
    // In sync the chief is always the same.
    if (o_.trainer.sync && !o_.trainer.IsChief()) {
      groups_.pop_front();
      ++groups_begin_;
    }
  }
  if (reads) files_->Add(std::move(files));
  return absl::OkStatus();
}

void Follower::SetClosed() {
  {
    MutexLock lock(&mu_);
    closed_ = true;
  }
  files_->Close();
}

absl::Status Follower::Hear() {
  while (true) {
    ASSIGN_OR_RETURN(const PostedWord word, board_->NewestWord(KeyOf(next_group_)));
    if (word.by < 0) return absl::OkStatus();
    v1::FollowNews news;
    if (!news.ParseFromString(word.text)) {
      return absl::InternalError(absl::StrCat("what trainer ", word.by, " says of new files cannot be read"));
    }
    const int64_t before = next_group_;
    // Groups that no stream needs any more are left out.
    if (news.first_group() > next_group_ && next_group_ < files_->next()) {
      next_group_ = std::min(news.first_group(), files_->next());
      MutexLock lock(&mu_);
      groups_begin_ = next_group_;
      groups_.clear();
    }
    const int64_t skipped = next_group_ - news.first_group();
    if (skipped < 0) {
      return absl::InternalError(absl::StrCat("trainer ", word.by, " has posted files from group ", news.first_group(),
                                              " on; group ", next_group_, " is missing"));
    }
    for (int64_t i = skipped; i < news.groups_size(); ++i) {
      RETURN_IF_ERROR(TakeGroup(news.groups(static_cast<int>(i)), nullptr));
    }
    if (news.closed()) SetClosed();
    // The next group may be in the next post.
    if (next_group_ == before || KeyOf(next_group_) == KeyOf(before)) return absl::OkStatus();
  }
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
    int64_t number = groups_begin_;
    for (const v1::FileGroup& group : groups_) {
      if (KeyOf(number) == key) {
        news.set_first_group(std::min(news.first_group(), number));
        *news.add_groups() = group;
      }
      ++number;
    }
  }
  return board_->Post(key, news.SerializeAsString(), 2 * last + (closed ? 1 : 0));
}

absl::Status Follower::Look() {
  if (lookout_ == nullptr) {
    // A chief before this one may have posted more than has been heard.
    RETURN_IF_ERROR(Hear());
    MutexLock lock(&mu_);
    if (closed_) return absl::OkStatus();
    lookout_ = std::make_unique<FileLookout>(o_.job->config.data(), o_.job->directory, last_file_);
  }
  {
    MutexLock lock(&mu_);
    if (closed_) return absl::OkStatus();
  }
  FileLookout::News news = lookout_->Take();
  RETURN_IF_ERROR(news.failure);
  if (!news.trouble.ok() && trouble_.ok())
    LOG(WARNING) << "a look for files of data.train has failed: " << news.trouble;
  trouble_ = news.trouble;
  for (FoundFile& file : news.files) found_.push_back(std::move(file));
  const size_t together = static_cast<size_t>(o_.job->config.data().follow().files_together());
  while (found_.size() >= together || (news.closed && !found_.empty())) {
    const size_t size = std::min(together, found_.size());
    v1::FileGroup group;
    int64_t bytes = 0;
    for (size_t i = 0; i < size; ++i) {
      v1::FollowedFile* const file = group.add_files();
      file->set_name(found_[i].name);
      file->set_bytes(found_[i].bytes);
      file->set_sample(found_[i].sample);
      bytes += found_[i].bytes;
    }
    found_.erase(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(size));
    std::shared_ptr<const DataSet> files;
    if (next_group_ >= files_->next()) RETURN_IF_ERROR(OpenGroup(&group, &files));
    LOG(INFO) << "data.follow: takes " << NameOfGroup(group) << ", group " << next_group_ << ", " << bytes << " bytes";
    RETURN_IF_ERROR(TakeGroup(group, std::move(files)));
    RETURN_IF_ERROR(PostGroups(/*closed=*/false));
  }
  if (!news.closed) return absl::OkStatus();
  RETURN_IF_ERROR(PostGroups(/*closed=*/true));
  LOG(INFO) << "data.follow: '" << o_.job->config.data().follow().until() << "' is there: no more files come";
  SetClosed();
  return absl::OkStatus();
}

absl::Status Follower::WatchIdle() {
  const absl::Time now = Clock::Real()->Now();
  if (!files_->awaited() && !o_.trainer.client->AnyAwaitsFiles()) {
    moved_ = warned_ = now;
    return absl::OkStatus();
  }
  std::string last;
  {
    MutexLock lock(&mu_);
    last = last_file_;
  }
  const absl::Duration idle = now - moved_;
  const std::string what =
      absl::StrCat("no new file of data.train", last.empty() ? "" : absl::StrCat(" behind '", last, "'"), " for ",
                   absl::FormatDuration(absl::Trunc(idle, absl::Seconds(1))),
                   found_.empty() ? "" : absl::StrCat("; ", found_.size(), " of data.follow.files_together are there"),
                   trouble_.ok() ? "" : absl::StrCat("; the last look failed: ", std::string(trouble_.message())));
  const v1::Follow& follow = o_.job->config.data().follow();
  if (idle > absl::Seconds(follow.deadline_s())) {
    return absl::UnavailableError(
        absl::StrCat(what, " (data.follow.deadline_s); all have been read",
                     follow.until().empty() ? "; data.follow.until names a file that ends a job in good order" : ""));
  }
  if (now - warned_ >= kRemind ||
      (warned_ <= moved_ && idle >= absl::Seconds(o_.job->config.deadlines().slow_warning_s()))) {
    warned_ = now;
    LOG(INFO) << "data.follow: waits; " << what;
  }
  return absl::OkStatus();
}

std::vector<StreamReading> Follower::Readings() {
  const int64_t settled = std::max<int64_t>(0, steps_ - kStepsUnderWay);
  return files_->Readings([&](int stream) { return StartAt(stream, settled, {}).given; });
}

absl::Status Follower::PostReadings() {
  v1::FollowReadings message;
  // What is known of a stream does not depend on who reads it: a process that takes a place over adds to the post of
  // the one before it.
  std::map<int, int64_t> newest;
  for (const StreamReading& reading : Readings()) {
    v1::FollowReadings::Reading* const out = message.add_readings();
    out->set_stream(reading.stream);
    out->set_group(reading.group);
    out->set_examples(reading.examples);
    newest[reading.stream] = reading.group;
  }
  int64_t edition = 0;
  for (const auto& [stream, group] : newest) edition += group;
  if (edition <= edition_) return absl::OkStatus();
  RETURN_IF_ERROR(board_->Post(kReadings, message.SerializeAsString(), edition));
  edition_ = edition;
  return absl::OkStatus();
}

absl::Status Follower::Round() {
  const bool chief = o_.trainer.IsChief();
  RETURN_IF_ERROR(chief ? Look() : Hear());
  if (chief) RETURN_IF_ERROR(WatchIdle());
  const bool awaited = files_->awaited();
  o_.trainer.client->SetAwaitsFiles(awaited);
  if (awaited && o_.trainer.client->StopRequested()) files_->Stop();
  return PostReadings();
}

void Follower::Run() {
  // The files in the checkpoint are known to all.
  absl::Status status;
  for (int64_t g = files_->next(); g < next_group_ && status.ok(); ++g) {
    v1::FileGroup group = o_.state.groups(static_cast<int>(g - o_.state.first_group()));
    std::shared_ptr<const DataSet> files;
    status = OpenGroup(&group, &files);
    if (status.ok()) files_->Add(std::move(files));
  }
  while (status.ok()) {
    status = Round();
    if (!status.ok()) break;
    MutexLock lock(&mu_);
    const absl::Duration pause = o_.trainer.IsChief() ? kAsChief : files_->awaited() ? kAwaited : kRound;
    if (!stop_) changed_.WaitWithTimeout(&mu_, pause);
    if (stop_) break;
  }
  if (status.ok()) return;
  // Those who ask a reader take DeadlineExceeded as a reason to ask again.
  if (absl::IsDeadlineExceeded(status)) status = absl::UnavailableError(status.message());
  files_->Fail(AtField(*o_.job, status));
}

absl::StatusOr<std::shared_ptr<const DataSet>> Follower::AwaitFirst() {
  files_->SetAwaited(true);
  while (true) {
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
    RETURN_IF_ERROR(o_.trainer.client->JobStatus());
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kAsChief));
  }
}

absl::Status Follower::Finish() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  o_.trainer.client->SetAwaitsFiles(false);
  return PostReadings();
}

absl::StatusOr<v1::FollowState> Follower::StateAt(int64_t step, const std::vector<int64_t>& trainer_steps) {
  v1::FollowState state;
  int64_t last_group = 0;
  bool closed = false;
  {
    MutexLock lock(&mu_);
    closed = closed_;
    last_group = groups_begin_ + static_cast<int64_t>(groups_.size()) - 1;
  }
  int64_t first = 0;
  for (int t = 0; t < o_.trainer.trainers; ++t) {
    std::vector<StreamReading> readings;
    if (t == o_.trainer.id) {
      readings = Readings();
    } else {
      ASSIGN_OR_RETURN(const std::string text, o_.trainer.client->Posted(kReadings, t));
      ASSIGN_OR_RETURN(readings, ParseReadings(text, t));
    }
    const LaneRange streams = o_.spec.StreamsOf(t);
    const int64_t steps = o_.trainer.sync ? step : trainer_steps[static_cast<size_t>(t)];
    for (int s = streams.begin; s < streams.begin + streams.count; ++s) {
      StreamStart start = StartAt(s, steps, OfStream(s, readings));
      // The last batch of a stream may have been short.
      if (closed && start.group > last_group) start.given = start.before;
      v1::FollowedStream* const out = state.add_streams();
      out->set_group(start.group);
      out->set_before(start.before);
      out->set_step(steps);
      out->set_given(start.given);
      first = first == 0 ? start.group : std::min(first, start.group);
    }
  }
  MutexLock lock(&mu_);
  state.set_last_file(last_file_);
  // Groups before it are in no later checkpoint.
  while (groups_begin_ < first && !groups_.empty()) {
    groups_.pop_front();
    ++groups_begin_;
  }
  state.set_first_group(groups_begin_);
  for (const v1::FileGroup& group : groups_) *state.add_groups() = group;
  return state;
}

}  // namespace weir
