#include "trainer/data/file_lookout.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {
namespace {

constexpr absl::Duration kLeaveLookout = absl::Seconds(2);
// Files that come too late are named one by one up to this number.
constexpr size_t kNamed = 10;

// Files that the looks have seen so far, and the news of the next look. Used by one thread at a time.
class Looks {
 public:
  Looks(v1::Data data, std::string directory, std::string after)
      : data_(std::move(data)), directory_(std::move(directory)), after_(std::move(after)) {
    until_.add_files(data_.follow().until());
  }

  absl::Status Look(FileLookout::News* news) {
    // Looked for first: all files are there when this one is.
    std::set<std::string> until;
    if (!until_.files(0).empty()) {
      ASSIGN_OR_RETURN(const std::vector<FoundFile> last,
                       DataSet::Look(data_, until_, directory_, "data.follow.until"));
      for (const FoundFile& file : last) until.insert(file.name);
    }
    const bool closed = !until.empty();
    ASSIGN_OR_RETURN(std::vector<FoundFile> found,
                     DataSet::Look(data_, data_.train(), directory_, "data.train.files", after_));
    // A pattern of the data may match it too.
    std::erase_if(found, [&](const FoundFile& file) { return until.count(file.name) > 0; });
    Warn(found);
    std::map<std::string, FoundFile> rest;
    bool all_before = true;
    for (const FoundFile& file : found) {
      if (file.name <= after_) continue;
      const auto before = seen_.find(file.name);
      const bool unchanged =
          before != seen_.end() && before->second.bytes == file.bytes && before->second.version == file.version;
      all_before &= closed || unchanged;
      if (all_before) {
        news->files.push_back(file);
      } else {
        if (!unchanged && news->changing.empty() && before != seen_.end()) news->changing = file.name;
        rest[file.name] = file;
      }
    }
    seen_ = std::move(rest);
    if (!news->files.empty()) after_ = news->files.back().name;
    news->closed = closed;
    return absl::OkStatus();
  }

 private:
  // Warns of files that have appeared before one that has been taken.
  void Warn(const std::vector<FoundFile>& found) {
    std::set<std::string> earlier;
    for (const FoundFile& file : found) {
      if (file.name > after_) break;
      if (looked_ && passed_.find(file.name) == passed_.end() && ++late_ <= kNamed) {
        LOG(WARNING) << "data.follow: '" << file.name << "' is never read: it has appeared after '" << after_
                     << "' was taken, and sorts before it"
                     << (late_ == kNamed ? "; further ones will not be named" : "");
      }
      earlier.insert(file.name);
    }
    // Files that this look takes count as passed in the next one.
    for (const FoundFile& file : found) earlier.insert(file.name);
    passed_ = std::move(earlier);
    looked_ = true;
  }

  const v1::Data data_;
  const std::string directory_;
  v1::DataSource until_;
  std::string after_;
  std::map<std::string, FoundFile> seen_;  // by the last look, and not taken
  std::set<std::string> passed_;           // all names of the last look
  bool looked_ = false;
  size_t late_ = 0;
};

}  // namespace

struct FileLookout::State {
  State(v1::Data data, std::string directory, std::string after, std::function<void()> told)
      : every(absl::Seconds(data.follow().look_every_s())),
        on_look(std::move(told)),
        looks(std::move(data), std::move(directory), std::move(after)) {}

  const absl::Duration every;
  const std::function<void()> on_look;
  Looks looks;  // of the thread
  Mutex mu;
  CondVar changed;
  News news ABSL_GUARDED_BY(mu);
  bool closing ABSL_GUARDED_BY(mu) = false;
  bool left ABSL_GUARDED_BY(mu) = false;
  std::thread thread;  // of the owner
};

FileLookout::FileLookout(v1::Data data, std::string directory, std::string after, std::function<void()> on_look)
    : state_(std::make_shared<State>(std::move(data), std::move(directory), std::move(after), std::move(on_look))) {
  state_->thread = StartThread("weir-lookout", [state = state_] { Run(state); });
}

FileLookout::~FileLookout() {
  const absl::Time deadline = Clock::Real()->Now() + kLeaveLookout;
  bool left = false;
  {
    MutexLock lock(&state_->mu);
    state_->closing = true;
    state_->changed.SignalAll();
    while (!state_->left && Clock::Real()->Now() < deadline)
      state_->changed.WaitWithTimeout(&state_->mu, deadline - Clock::Real()->Now());
    left = state_->left;
  }
  if (left) {
    state_->thread.join();
  } else {
    LOG(WARNING) << "a look for files of data.train has not ended within " << absl::FormatDuration(kLeaveLookout)
                 << " and is not waited for any longer";
    state_->thread.detach();
  }
}

FileLookout::News FileLookout::Take() {
  MutexLock lock(&state_->mu);
  News taken = state_->news;
  state_->news = taken;
  state_->news.files.clear();
  return taken;
}

bool FileLookout::LookOnce(State* state) {
  News found;
  const absl::Status looked = state->looks.Look(&found);
  MutexLock lock(&state->mu);
  state->news.trouble = looked;
  state->news.changing = found.changing;
  state->news.closed |= found.closed;
  state->news.files.insert(state->news.files.end(), found.files.begin(), found.files.end());
  // A command may fail because of a network; a rule that is broken stays broken.
  if (!looked.ok() && !absl::IsUnavailable(looked) && !absl::IsResourceExhausted(looked)) {
    state->news.failure = looked;
  }
  return state->news.closed || !state->news.failure.ok();
}

void FileLookout::Run(const std::shared_ptr<State>& state) {
  bool done = false;
  while (!done) {
    done = LookOnce(state.get());
    if (state->on_look) state->on_look();
    MutexLock lock(&state->mu);
    const absl::Time next = Clock::Real()->Now() + state->every;
    while (!done && !state->closing && Clock::Real()->Now() < next)
      state->changed.WaitWithTimeout(&state->mu, next - Clock::Real()->Now());
    done |= state->closing;
  }
  MutexLock lock(&state->mu);
  state->left = true;
  state->changed.SignalAll();
}

}  // namespace weir
