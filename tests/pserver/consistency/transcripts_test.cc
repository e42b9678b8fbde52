// Consistency modes by the transcripts in this folder, without parameters, lock and wire: which updates pushes make
// possible, and which pulls are ready.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/counters.h"
#include "framework/base/status_macros.h"
#include "gtest/gtest.h"
#include "pserver/consistency/consistency.h"
#include "pserver/consistency/make_consistency.h"
#include "pserver/consistency/step_book.h"
#include "pserver/consistency/table_steps.h"
#include "tests/testing/transcript.h"

namespace weir {
namespace {

// "d0", a gradient of block 0; "t1", of table 1.
std::string GradientsText(const std::vector<Gradient>& gradients) {
  return absl::StrJoin(gradients, " ", [](std::string* out, const Gradient& gradient) {
    absl::StrAppend(out, gradient.of_table ? "t" : "d", gradient.target);
  });
}

std::string UpdateText(const Update& update) {
  constexpr const char* kKinds[] = {"a step of all", "rows", "a transaction", "a part"};
  constexpr const char* kParts[] = {"whole", "its first part", "a later part"};
  std::string text = absl::StrCat(kKinds[static_cast<int>(update.kind)], ": ", update.Name(), ", ",
                                  kParts[static_cast<int>(update.part)], update.effective ? "" : ", without effect");
  for (const TrainerGradients& of : *update.gradients) {
    absl::StrAppend(&text, "; ", of.trainer, " brings ", of.samples, " samples",
                    of.gradients.empty() ? "" : absl::StrCat(" and ", GradientsText(of.gradients)));
  }
  return text;
}

class Modes {
 public:
  std::string Run(Command& command) {
    using Step = std::string (Modes::*)(Command&);
    static const auto* const steps = new std::map<std::string, Step>{
        {"begin", &Modes::Begin},   {"book", &Modes::Book},   {"counters", &Modes::Count},  {"dies", &Modes::Dies},
        {"done", &Modes::Done},     {"end", &Modes::End},     {"hold", &Modes::Hold},       {"joins", &Modes::Joins},
        {"mode", &Modes::Mode},     {"norms", &Modes::Norms}, {"pull", &Modes::Pull},       {"push", &Modes::Push},
        {"read", &Modes::Read},     {"run", &Modes::RunAll},  {"restore", &Modes::Restore}, {"state", &Modes::State},
        {"tables", &Modes::Tables}, {"idle", &Modes::Idle}};
    const auto step = steps->find(command.name());
    return step == steps->end() ? "no such command" : (this->*step->second)(command);
  }

 private:
  // mode sync|async [async_tables] [eager] [staleness=N] [by_trainers] trainers=2 room=BYTES norm_rounds=N: the mode of
  // a job whose program says this.
  std::string Mode(Command& command) {
    const bool sync = command.Has("sync");
    if (!sync && !command.Has("async")) return "sync or async?";
    v1::ProgramDesc main;
    if (command.Has("async_tables")) main.mutable_mode()->set_async_tables(true);
    if (command.Has("eager")) main.mutable_plan()->set_async_eager(true);
    if (command.Sets("staleness")) main.mutable_mode()->set_staleness(command.Number("staleness", 0));
    const int trainers = static_cast<int>(command.Number("trainers", 2));
    const int rounds = static_cast<int>(command.Number("norm_rounds", 0));
    running_.clear();
    counters_ = std::make_unique<Counters>();
    StepBook book(std::vector<size_t>(trainers, command.Number("room", 1 << 30)),
                  counters_->Get("push.repeated", "messages"));
    absl::StatusOr<std::unique_ptr<Consistency>> mode =
        MakeConsistency(sync, main,
                        {.self = "server 0",
                         .norm_rounds = rounds,
                         .average_by_trainers = command.Has("by_trainers"),
                         .exchanges_norms = rounds > 0,
                         .counters = counters_.get()},
                        std::move(book));
    if (!mode.ok()) return Show(mode.status());
    mode_ = *std::move(mode);
    book_ = &mode_->book();
    return "";
  }

  // push TRAINER step=N part=N of=N samples=N first_samples=N SKIP|END brings=d0,t1 bytes=N at_ms=N
  //   [merged=1,2 each=SAMPLES first_of_each=N skips=1 ends=2]
  // A part of a step, as ServerCore takes it. Without `of` it is not the last one; without any, the step is one part of
  // 8 samples. `merged` trainers have 8 samples each, too; verdicts of some of them are SKIP or END.
  std::string Push(Command& command) {
    v1::PushRequest request;
    const int trainer = static_cast<int>(command.Number());
    request.mutable_caller()->set_trainer(trainer);
    request.set_step(command.Number("step", 0));
    const bool whole = !command.Sets("part");
    request.set_part(static_cast<int>(command.Number("part", 0)));
    if (whole || command.Sets("of")) request.set_part_count(static_cast<int>(command.Number("of", 1)));
    if (request.has_part_count() || command.Sets("samples")) request.set_samples(command.Number("samples", 8));
    if (command.Sets("first_samples")) request.set_first_samples(command.Number("first_samples", 0));
    if (command.Has("SKIP")) request.set_verdict(v1::SKIP);
    if (command.Has("END")) request.set_verdict(v1::END);
    AddMerged(command, &request);
    std::vector<Gradient> gradients;
    for (const std::string& each :
         std::vector<std::string>(absl::StrSplit(command.Text("brings"), ',', absl::SkipEmpty()))) {
      Gradient& gradient = gradients.emplace_back();
      gradient.of_table = each[0] == 't';
      EXPECT_TRUE(absl::SimpleAtoi(each.substr(1), &gradient.target)) << each;
    }
    const size_t bytes = static_cast<size_t>(command.Number("bytes", 0));
    const absl::Time now = absl::UnixEpoch() + absl::Milliseconds(command.Number("at_ms", 0));
    const absl::StatusOr<std::string> pushed = Pushed(request, std::move(gradients), bytes, now);
    return pushed.ok() ? *pushed : Show(pushed.status());
  }
  static void AddMerged(Command& command, v1::PushRequest* request) {
    const int64_t samples = command.Number("each", 8), first_samples = command.Number("first_of_each", 0);
    const std::vector<int64_t> skips = command.Numbers("skips"), ends = command.Numbers("ends");
    for (const int64_t trainer : command.Numbers("merged")) {
      v1::MergedTrainer* const merged = request->add_merged();
      merged->set_trainer(static_cast<int>(trainer));
      if (!request->has_part_count()) continue;
      merged->set_samples(samples);
      merged->set_first_samples(first_samples);
      if (std::count(skips.begin(), skips.end(), trainer) > 0) merged->set_verdict(v1::SKIP);
      if (std::count(ends.begin(), ends.end(), trainer) > 0) merged->set_verdict(v1::END);
    }
  }
  absl::StatusOr<std::string> Pushed(const v1::PushRequest& request, std::vector<Gradient> gradients, size_t bytes,
                                     absl::Time now) {
    const int trainer = request.caller().trainer();
    const std::string what = absl::StrCat("part ", request.part());
    RETURN_IF_ERROR(StepBook::CheckRange(request, what));
    if (!request.merged().empty()) RETURN_IF_ERROR(mode_->CheckTakesMerged(what));
    if (mode_->IsOver(trainer, request.step())) {
      book_->RepeatOver();
      return "a repeat: the step is over";
    }
    RETURN_IF_ERROR(mode_->CheckTurn(trainer, request.step(), what));
    RETURN_IF_ERROR(book_->CheckMerged(trainer, request, what));
    RETURN_IF_ERROR(book_->CheckPart(trainer, request, what));
    if (book_->Has(trainer, request.part())) {
      book_->Repeat(trainer, gradients);
      return "a repeat";
    }
    RETURN_IF_ERROR(book_->CheckBooking(trainer, request, bytes, what));
    if (request.has_part_count()) RETURN_IF_ERROR(mode_->CheckVerdict(request.verdict(), what));
    book_->NumberArrivals(&gradients);
    std::string applied;
    if (mode_->AppliesOnArrival(request)) {
      running_.push_back(mode_->ApplyOnArrival(request, std::exchange(gradients, {})));
      applied = absl::StrCat(", and begins ", UpdateText(running_.back()));
    }
    book_->Book(trainer, request, std::move(gradients), bytes, now);
    if (!book_->of(trainer).Complete()) return absl::StrCat("a part", applied);
    if (!mode_->AnswersAfterUpdate(trainer)) return "complete";
    Actions actions;
    mode_->AwaitUpdate(
        trainer, [](const absl::StatusOr<Slices>&) {}, &actions);
    return "complete, and answered when it has taken effect";
  }
  // book TRAINER: what is booked of its step.
  std::string Book(Command& command) {
    const BookedStep& booked = book_->of(static_cast<int>(command.Number()));
    if (booked.step < 0) return "nothing";
    if (booked.sender >= 0) {
      return absl::StrCat("step ", booked.step, ": merged by ", booked.sender, booked.Complete() ? ", complete" : "");
    }
    std::vector<size_t> parts, arrivals;
    for (size_t i = 0; i < booked.parts.size(); ++i) {
      if (booked.parts[i]) parts.push_back(i);
    }
    for (const Gradient& gradient : booked.gradients) arrivals.push_back(static_cast<size_t>(gradient.arrival));
    return absl::StrCat("step ", booked.step, ": parts ", absl::StrJoin(parts, ", "),
                        booked.part_count < 0 ? "" : absl::StrCat(" of ", booked.part_count), "; gradients ",
                        GradientsText(booked.gradients), ", come as numbers ", absl::StrJoin(arrivals, ", "));
  }

  // begin: the next update that can begin does.
  std::string Begin(Command&) {
    std::optional<Update> update = mode_->Next();
    if (!update.has_value()) return mode_->update_due() ? "nothing, until reads have ended" : "nothing";
    running_.push_back(*std::move(update));
    return UpdateText(running_.back());
  }
  // end [failed] [stop] [left]: the update that has begun first is over. stop: the end of the job is requested. left:
  // its trainer is at work no more.
  std::string End(Command& command) {
    const bool ok = !command.Has("failed"), stop = command.Has("stop"), joined = !command.Has("left");
    const Update update = std::move(running_.front());
    running_.erase(running_.begin());
    const UpdateRules::Effect effect = mode_->Finish(update, ok, stop, joined);
    return absl::StrCat(update.Name(), ok ? " is over" : " has failed",
                        effect.waiters.empty() ? "" : absl::StrCat(", ", effect.waiters.size(), " answered"));
  }
  // run: updates begin and end, until none can.
  std::string RunAll(Command& command) {
    std::vector<std::string> lines;
    while (std::optional<Update> update = mode_->Next()) {
      lines.push_back(UpdateText(*update));
      running_.push_back(*std::move(update));
      (void)End(command);
    }
    return lines.empty() ? "nothing" : absl::StrJoin(lines, "\n");
  }
  // hold [gone]: the update that has begun last lacks norms, which others have to bring. gone: its trainer is dead.
  std::string Hold(Command& command) {
    Update update = std::move(running_.back());
    running_.pop_back();
    NormSums sums;
    const float value = 3;
    sums["clip"].AddSquares({&value, 1});
    update.norms.Offer(sums);
    const int trainers = book_->trainers();
    mode_->Hold(std::move(update), command.Has("gone"));
    std::vector<int> owing;
    for (int t = 0; t < trainers; ++t) {
      if (mode_->OwesNorms(t)) owing.push_back(t);
    }
    return owing.empty() ? "nobody owes norms" : absl::StrCat("norms are owed by ", absl::StrJoin(owing, ", "));
  }
  // norms TRAINER round=N: the trainer brings the norm of "clip".
  std::string Norms(Command& command) {
    google::protobuf::RepeatedPtrField<v1::WholeNorm> norms;
    norms.Add()->set_name("clip");
    norms.Mutable(0)->set_norm(2.0);
    return Show(
        mode_->norms(static_cast<int>(command.Number())).Book(static_cast<int>(command.Number("round", 0)), norms));
  }

  // pull TRAINER version=N [rows] [ahead_of=N]: may it be answered?
  std::string Pull(Command& command) {
    v1::PullRequest request;
    request.mutable_caller()->set_trainer(static_cast<int>(command.Number()));
    request.set_version(command.Number("version", 0));
    request.add_items()->set_width(command.Has("rows") ? 4 : 0);
    if (command.Sets("ahead_of")) request.set_ahead_of(command.Number("ahead_of", 0));
    if (mode_->PullReady(request)) {
      mode_->PullBegins(request);
      return "ready";
    }
    const std::vector<PullRules::Blocker> blockers = mode_->BlockersOf(request);
    if (blockers.empty()) return "waits";
    return absl::StrCat("waits for ", absl::StrJoin(blockers, "; ", [](std::string* out, const auto& blocker) {
                          absl::StrAppend(out, blocker.trainer, blocker.detail);
                        }));
  }
  // idle TRAINER pulls=1,2: whose fault is it that the trainer, of which pulls for these steps wait, does nothing?
  std::string Idle(Command& command) {
    const int trainer = static_cast<int>(command.Number());
    return mode_->WaitsForOthers(trainer, command.Numbers("pulls")) ? "it waits for others" : "its own";
  }
  // read [rows]: a reader's copy of the values begins. read end [rows]: it ends.
  std::string Read(Command& command) {
    v1::PullRequest request;
    request.add_items()->set_width(command.Has("rows") ? 4 : 0);
    if (command.Has("end")) {
      mode_->EndRead(request);
      return "";
    }
    if (!mode_->MayRead(request)) return "waits";
    mode_->BeginRead(request);
    return "begins";
  }

  std::string Joins(Command& command) {
    mode_->OnJoin(static_cast<int>(command.Number()));
    return "";
  }
  std::string Done(Command& command) {
    mode_->OnDone(static_cast<int>(command.Number()));
    return "";
  }
  // dies TRAINER: as for ServerCore, calls that wait for an update which will not come are answered.
  std::string Dies(Command& command) {
    const int trainer = static_cast<int>(command.Number());
    mode_->OnDeath(trainer);
    const size_t answered = mode_->TakeWaiters(trainer).size();
    return answered == 0 ? "" : absl::StrCat(answered, " answered");
  }
  std::string Restore(Command& command) {
    const int64_t step = command.Number();
    mode_->Restore(step, command.Numbers("steps"));
    return "";
  }
  std::string State(Command&) {
    const VersionInfo& info = mode_->version();
    std::vector<int64_t> steps;
    for (int t = 0; t < book_->trainers(); ++t) steps.push_back(mode_->StepsOf(t));
    return absl::StrCat("version ", info.version, ", of ", info.samples, " samples", info.skipped ? ", skipped" : "",
                        info.stop ? ", stop" : "", info.ended ? ", ended" : "",
                        info.late_trainer < 0 ? ""
                                              : absl::StrCat(", ", info.late_trainer, " came ",
                                                             absl::ToInt64Milliseconds(info.late), " ms late"),
                        "; trainers have taken ", absl::StrJoin(steps, ", "), " steps");
  }
  std::string Count(Command& command) {
    std::vector<std::string> lines;
    for (std::string name = command.Word(); !name.empty(); name = command.Word()) {
      lines.push_back(
          absl::StrCat(name, " ", counters_->Get(name, name == "push.repeated" ? "messages" : "steps")->value()));
    }
    return absl::StrJoin(lines, ", ");
  }
  // tables begin|end N|restore N: the count of transactions by which tables count steps.
  std::string Tables(Command& command) {
    if (command.Has("begin")) return absl::StrCat("transaction ", table_steps_.Begin());
    if (command.Has("restore")) {
      table_steps_.Restore(command.Number());
      return "";
    }
    command.Has("end");
    const TableSteps::Borders borders = table_steps_.End(command.Number());
    if (borders.begin == borders.end) return "no border";
    return absl::StrCat("runs the borders from ", borders.begin, " to ", borders.end - 1);
  }

  std::unique_ptr<Counters> counters_;
  std::unique_ptr<Consistency> mode_;
  StepBook* book_ = nullptr;     // of mode_
  std::vector<Update> running_;  // in the order in which they have begun
  TableSteps table_steps_;
};

void RunFile(const std::string& name) {
  Modes modes;
  RunTranscript("tests/pserver/consistency/transcripts/" + name,
                [&modes](Command& command) { return modes.Run(command); });
}

TEST(ConsistencyTranscriptsTest, StepBook) { RunFile("step_book.txt"); }
TEST(ConsistencyTranscriptsTest, Sync) { RunFile("sync.txt"); }
TEST(ConsistencyTranscriptsTest, Merged) { RunFile("merged.txt"); }
TEST(ConsistencyTranscriptsTest, AsyncTables) { RunFile("async_tables.txt"); }
TEST(ConsistencyTranscriptsTest, Async) { RunFile("async.txt"); }
TEST(ConsistencyTranscriptsTest, BoundedStaleness) { RunFile("bounded_staleness.txt"); }
TEST(ConsistencyTranscriptsTest, Eager) { RunFile("eager.txt"); }

}  // namespace
}  // namespace weir
