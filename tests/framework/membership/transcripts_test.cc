// Members of a job, and what they exchange, by the transcripts in this folder: a Roster and an ExchangeHub, kept as a
// server keeps them.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/membership/exchange_hub.h"
#include "framework/membership/limits.h"
#include "framework/membership/roster.h"
#include "gtest/gtest.h"
#include "tests/testing/transcript.h"

namespace weir {
namespace {

// "host:1#8": the process host:1 with incarnation 8; "host:1" has 7.
std::pair<std::string, uint64_t> ProcessOf(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '#');
  uint64_t incarnation = 7;
  if (parts.size() > 1) {
    EXPECT_TRUE(absl::SimpleAtoi(parts[1], &incarnation)) << text;
  }
  return {parts[0], incarnation};
}

std::string BytesText(const std::string& bytes) {
  return bytes.size() > 20 ? absl::StrCat(bytes.size(), " bytes") : absl::StrCat("\"", bytes, "\"");
}

std::string ReplyText(const absl::StatusOr<v1::ExchangeReply>& reply) {
  if (!reply.ok()) return Show(reply.status());
  std::string text = reply->ready() ? "ready" : "not ready";
  if (reply->has_contribution()) absl::StrAppend(&text, ", ", BytesText(reply->contribution()));
  if (reply->chunks() > 0)
    absl::StrAppend(&text, reply->has_contribution() ? "" : ", the end", " of ", reply->chunks());
  if (reply->has_edition()) absl::StrAppend(&text, ", edition ", reply->edition());
  if (reply->has_by()) absl::StrAppend(&text, " by ", reply->by());
  if (reply->missing_size() > 0) absl::StrAppend(&text, ", misses ", absl::StrJoin(reply->missing(), ", "));
  if (reply->chief() > 0) absl::StrAppend(&text, ", chief ", reply->chief());
  return text;
}

class Job {
 public:
  std::string Run(Command& command) {
    using Step = std::string (Job::*)(Command&);
    static const auto* const steps = new std::map<std::string, Step>{
        {"advance", &Job::Advance}, {"beat", &Job::Beat},         {"call", &Job::Call},     {"claim", &Job::Claim},
        {"done", &Job::Done},       {"exchange", &Job::Exchange}, {"fail", &Job::Fails},    {"job", &Job::Begin},
        {"join", &Job::Join},       {"leave", &Job::Leave},       {"pushed", &Job::Pushed}, {"reads", &Job::Reads},
        {"reader", &Job::Reader},   {"sleep", &Job::Sleep},       {"state", &Job::State},   {"stop", &Job::Stop},
        {"tell", &Job::Tell}};
    const auto step = steps->find(command.name());
    if (step == steps->end()) return "no such command";
    lines_.clear();
    std::string answer = (this->*step->second)(command);
    RunAll(&actions_);
    if (!answer.empty()) lines_.insert(lines_.begin(), std::move(answer));
    return absl::StrJoin(lines_, "\n");
  }

 private:
  // job [lockstep] trainers=3 room=BYTES unread=BYTES: begins a job, of which nobody has joined.
  std::string Begin(Command& command) {
    exchanges_ = nullptr;
    lockstep_ = command.Has("lockstep");
    const int trainers = static_cast<int>(command.Number("trainers", 3));
    roster_ = std::make_unique<Roster>(
        Roster::Options{.job = "job",
                        .self = "server 0 (here:1)",
                        .trainers = trainers,
                        .on_death = lockstep_ ? Roster::OnDeath::kFail : Roster::OnDeath::kGoOn,
                        .lease = kLease,
                        .slow_warning = absl::Seconds(5),
                        .progress_deadline = absl::Seconds(60),
                        .connect_deadline = absl::Seconds(30),
                        .unread_bytes = static_cast<size_t>(command.Number("unread", 1 << 30))},
        now_);
    exchanges_ = std::make_unique<ExchangeHub>(
        roster_.get(), std::vector<size_t>(trainers, static_cast<size_t>(command.Number("room", 1 << 30))));
    if (command.Has("joined")) {
      for (int t = 0; t < trainers; ++t) Take(t, absl::StrCat("host:", t));
    }
    return "";
  }

  absl::Status Claimed(int trainer, const std::string& process) {
    const auto [name, incarnation] = ProcessOf(process);
    return roster_->CheckClaim(trainer, name, incarnation, now_);
  }
  // Returns true if the place was that of a dead trainer.
  bool Take(int trainer, const std::string& process) {
    const auto [name, incarnation] = ProcessOf(process);
    const bool again = roster_->Join(trainer, name, incarnation, now_);
    if (again) exchanges_->Close(trainer);
    roster_->Renew(trainer, now_);
    sessions_[absl::StrCat(trainer, " ", process)] = roster_->place(trainer).session;
    return again;
  }
  // claim TRAINER PROCESS: may the process take the place?
  std::string Claim(Command& command) {
    const int trainer = static_cast<int>(command.Number());
    return Show(Claimed(trainer, command.Word()));
  }
  // join TRAINER PROCESS: takes the place, if it may.
  std::string Join(Command& command) {
    const int trainer = static_cast<int>(command.Number());
    const std::string process = command.Word(absl::StrCat("host:", trainer));
    if (const absl::Status claimed = Claimed(trainer, process); !claimed.ok()) return Show(claimed);
    if (roster_->place(trainer).state == RosterPlace::kJoined) return "has joined before";
    return Take(trainer, process) ? "joins in place of a dead one" : "joins";
  }
  // call TRAINER|reader [PROCESS] [job=JOB] [session=N] [named]: any call, by a process that has joined; with `named`,
  // another trainer's call that names it.
  std::string Call(Command& command) {
    const bool reader = command.Has("reader"), named = command.Has("named");
    v1::Caller caller;
    caller.set_job_id(command.Text("job", reader ? "" : "job"));
    caller.set_trainer(reader ? kReader : static_cast<int>(command.Number()));
    const std::string process = command.Word();
    if (!process.empty()) {
      caller.set_session(sessions_[absl::StrCat(reader ? "reader" : absl::StrCat(caller.trainer()), " ", process)]);
    } else if (caller.trainer() >= 0 && caller.trainer() < roster_->size()) {
      caller.set_session(roster_->place(caller.trainer()).session);
    }
    if (command.Sets("session")) caller.set_session(static_cast<uint64_t>(command.Number("session", 0)));
    const absl::Status known =
        named ? roster_->CheckNamed(caller.trainer(), caller.session()) : roster_->CheckCaller(caller, now_);
    return known.ok() ? absl::StrCat("ok, ", roster_->NameOf(caller)) : Show(known);
  }
  // reader PROCESS: gives a session to a reader.
  std::string Reader(Command& command) {
    const std::string process = command.Word();
    const auto [name, incarnation] = ProcessOf(process);
    const absl::StatusOr<uint64_t> session = roster_->readers().Admit(name, incarnation, now_);
    if (!session.ok()) return Show(session.status());
    sessions_[absl::StrCat("reader ", process)] = *session;
    return "joins";
  }
  // beat TRAINER step=N waits-for=TEXT awaits-files stopped: what a heart-beat says.
  std::string Beat(Command& command) {
    const int trainer = static_cast<int>(command.Number());
    v1::HeartbeatRequest beat;
    beat.set_step(command.Number("step", -1));
    beat.set_waiting_for(command.Text("waits-for"));
    beat.set_awaits_files(command.Has("awaits-files"));
    beat.set_stopped(command.Has("stopped"));
    roster_->Renew(trainer, now_);
    roster_->Heard(trainer, beat, now_);
    return "";
  }
  // pushed TRAINER step=N: a part of a step has come.
  std::string Pushed(Command& command) {
    roster_->Booked(static_cast<int>(command.Number()), command.Number("step", 0), now_);
    return "";
  }
  std::string Done(Command& command) {
    if (!roster_->Done(static_cast<int>(command.Number()))) return "is not at work";
    exchanges_->Answer(now_, &actions_);
    return "";
  }
  // leave TRAINER: another server has refused its join.
  std::string Leave(Command& command) {
    const absl::Status left = roster_->Release(static_cast<int>(command.Number()), now_);
    exchanges_->Answer(now_, &actions_);
    return Show(left);
  }
  // fail TEXT: the job fails.
  std::string Fails(Command& command) {
    Fail(absl::UnavailableError(command.Word()));
    return "";
  }
  // tell TRAINER|reader: the answer to a call in a failed job.
  std::string Tell(Command& command) {
    return Show(roster_->Aborted(command.Has("reader") ? kReader : static_cast<int>(command.Number())));
  }
  std::string Stop(Command&) {
    roster_->RequestStop();
    return "";
  }

  // Looks at leases and deadlines, as a server does ten times a second.
  void Look(const std::vector<int64_t>& waiting) {
    const bool failed = !roster_->failure().ok();
    if (!failed) roster_->BeginLook(now_);
    while (const auto departure = failed ? std::nullopt : roster_->TakeExpired(now_)) {
      const bool fails = lockstep_ && !departure->freed && roster_->failure().ok();
      lines_.push_back(
          absl::StrCat(departure->text, departure->freed ? "; its place is free" : "", fails ? "; the job fails" : ""));
      if (fails) Fail(absl::UnavailableError(departure->text));
    }
    const auto watched = [this](const absl::Status& status) {
      if (status.ok()) return;
      lines_.push_back(absl::StrCat("the job fails: ", Show(status)));
      Fail(status);
    };
    if (roster_->failure().ok()) watched(roster_->WatchConnecting(now_));
    if (roster_->failure().ok()) {
      watched(roster_->WatchProgress(
          now_, [&](int trainer) { return std::find(waiting.begin(), waiting.end(), trainer) != waiting.end(); }));
    }
    exchanges_->Answer(now_, &actions_);
    exchanges_->Expire(now_, kLease);
  }
  void Fail(const absl::Status& status) {
    roster_->Fail(status, now_);
    exchanges_->Abort(&actions_);
  }
  // advance TIME alive=all|0,1 waiting=0,1: time passes, in which trainers are alive, or wait for others; another look
  // every second.
  std::string Advance(Command& command) {
    const absl::Time end = now_ + TimeOf(command.Word());
    std::vector<int64_t> alive;
    if (command.Has("alive")) {
      for (int t = 0; t < roster_->size(); ++t) alive.push_back(t);
    } else {
      alive = command.Numbers("alive");
    }
    const std::vector<int64_t> waiting = command.Numbers("waiting");
    while (true) {
      for (const int64_t t : alive) {
        if (roster_->place(static_cast<int>(t)).state == RosterPlace::kJoined)
          roster_->Renew(static_cast<int>(t), now_);
      }
      Look(waiting);
      if (now_ >= end) return "";
      now_ = std::min(end, now_ + absl::Seconds(1));
    }
  }
  // sleep TIME: time passes without a look.
  std::string Sleep(Command& command) {
    now_ += TimeOf(command.Word());
    Look({});
    return "";
  }
  // state: the trainers of whom there is more to say than that they have joined, and the job.
  std::string State(Command&) {
    constexpr const char* kStates[] = {"absent", "joined", "done", "dead"};
    std::vector<std::string> lines;
    for (int t = 0; t < roster_->size(); ++t) {
      const RosterPlace& place = roster_->place(t);
      const std::string text =
          absl::StrCat(kStates[place.state], place.step < 0 ? "" : absl::StrCat(", step ", place.step),
                       place.slow ? ", slow" : "", roster_->Excused(t) ? ", excused" : "", place.told ? ", told" : "",
                       place.replaced == nullptr ? "" : ", in place of " + place.replaced->process);
      if (text != "joined") lines.push_back(absl::StrCat(roster_->Name(t), ": ", text));
    }
    lines.push_back(
        absl::StrCat("job: chief ", roster_->chief(), roster_->AwaitsFiles() ? ", awaits files" : "",
                     roster_->stopped() ? ", stopped" : "",
                     roster_->failure().ok() ? "" : absl::StrCat(", failed: ", roster_->failure().message()),
                     roster_->Finished(now_) ? ", finished" : ""));
    return absl::StrJoin(lines, "\n");
  }

  // exchange TRAINER KEY ...: a call of ExchangeRequest, by the names of its fields.
  std::string Exchange(Command& command) {
    v1::ExchangeRequest request;
    request.mutable_caller()->set_trainer(static_cast<int>(command.Number()));
    std::string key = command.Word();
    if (command.Sets("key-bytes")) key.assign(static_cast<size_t>(command.Number("key-bytes", 0)), 'k');
    if (command.Sets("gives")) request.set_contribution(command.Text("gives"));
    if (command.Sets("bytes")) request.set_contribution(std::string(command.Number("bytes", 0), 'x'));
    if (command.Sets("chunk")) request.set_chunk(static_cast<int>(command.Number("chunk", 0)));
    if (command.Sets("of")) request.set_chunks(static_cast<int>(command.Number("of", 0)));
    if (command.Sets("reads")) request.set_read_trainer(static_cast<int>(command.Number("reads", 0)));
    if (command.Sets("reader")) request.set_reader(static_cast<int>(command.Number("reader", 0)));
    if (command.Sets("edition")) request.set_edition(command.Number("edition", 0));
    if (command.Sets("to")) request.set_stream_to(static_cast<int>(command.Number("to", 0)));
    if (command.Sets("from")) request.set_stream_from(static_cast<int>(command.Number("from", 0)));
    if (command.Has("keep")) request.set_keep(true);
    if (command.Has("anyone")) request.set_anyone(true);
    request.set_wait_s(absl::ToDoubleSeconds(command.Time("wait", absl::ZeroDuration())));
    const bool unread = command.Has("unread");
    const int64_t times = command.Number("times", 1);
    std::string answer;
    for (int64_t i = 0; i < times; ++i) {
      request.set_key(absl::StrReplaceAll(key, {{"N", absl::StrCat(i)}}));
      answer = Exchanged(request, command.line(), unread);
    }
    return answer;
  }
  std::string Exchanged(const v1::ExchangeRequest& request, const std::string& line, bool unread) {
    // Set by the answer; behind that, as long as this call runs.
    auto now = std::make_shared<std::optional<std::string>>("waits");
    const absl::Status status = exchanges_->Handle(
        request, now_,
        [this, now, line, unread](absl::StatusOr<v1::ExchangeReply> reply, std::shared_ptr<const void> credit) {
          if (unread) unread_.push_back(std::move(credit));
          if (now->has_value()) {
            *now = ReplyText(reply);
          } else {
            lines_.push_back(absl::StrCat("[", line, "] ", ReplyText(reply)));
          }
        },
        &actions_);
    RunAll(&actions_);
    const std::string answer = status.ok() ? **now : Show(status);
    now->reset();
    return answer;
  }
  // reads: all answers that were left unread are read.
  std::string Reads(Command&) {
    unread_.clear();
    exchanges_->Answer(now_, &actions_);
    return "";
  }

  static constexpr absl::Duration kLease = absl::Seconds(10);

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
  bool lockstep_ = false;
  std::unique_ptr<Roster> roster_;
  std::unique_ptr<ExchangeHub> exchanges_;
  std::map<std::string, uint64_t> sessions_;  // by "TRAINER PROCESS" or "reader PROCESS"
  std::vector<std::shared_ptr<const void>> unread_;
  Actions actions_;
  std::vector<std::string> lines_;  // what else a command has brought about
};

void RunFile(const std::string& name) {
  Job job;
  RunTranscript("tests/framework/membership/transcripts/" + name,
                [&job](Command& command) { return job.Run(command); });
}

TEST(MembershipTranscriptsTest, Places) { RunFile("places.txt"); }
TEST(MembershipTranscriptsTest, Progress) { RunFile("progress.txt"); }
TEST(MembershipTranscriptsTest, Ends) { RunFile("ends.txt"); }
TEST(MembershipTranscriptsTest, Contributions) { RunFile("contributions.txt"); }
TEST(MembershipTranscriptsTest, Posts) { RunFile("posts.txt"); }
TEST(MembershipTranscriptsTest, Streams) { RunFile("streams.txt"); }

}  // namespace
}  // namespace weir
