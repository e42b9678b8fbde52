// One server under a fake clock, by the transcripts in this folder: calls of trainers and readers, and its answers.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_message.h"
#include "framework/membership/limits.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/core_by_hand.h"
#include "tests/testing/transcript.h"

namespace weir {
namespace {

class ServerTranscriptsTest : public CoreByHand {
 protected:
  ~ServerTranscriptsTest() override {
    core_.reset();
    std::filesystem::remove_all(dir_);
  }

  void RunFile(const std::string& name) {
    RunTranscript("tests/pserver/server/transcripts/" + name, [this](Command& command) {
      using Step = std::string (ServerTranscriptsTest::*)(Command&);
      static const auto* const steps = new std::map<std::string, Step>{
          {"advance", &ServerTranscriptsTest::Advance},   {"beat", &ServerTranscriptsTest::SendBeat},
          {"control", &ServerTranscriptsTest::Control},   {"counters", &ServerTranscriptsTest::Count},
          {"exchange", &ServerTranscriptsTest::Exchange}, {"join", &ServerTranscriptsTest::SendJoin},
          {"norms", &ServerTranscriptsTest::Norms},       {"pull", &ServerTranscriptsTest::SendPull},
          {"push", &ServerTranscriptsTest::SendPush},     {"reader", &ServerTranscriptsTest::SendReader},
          {"reads", &ServerTranscriptsTest::Reads},       {"report", &ServerTranscriptsTest::Report},
          {"server", &ServerTranscriptsTest::Begin},      {"sleep", &ServerTranscriptsTest::Sleep},
          {"state", &ServerTranscriptsTest::State},       {"stop", &ServerTranscriptsTest::Stop}};
      const auto step = steps->find(command.name());
      if (step == steps->end()) return std::string("no such command");
      lines_.clear();
      keeps_answer_ = command.Has("unread");
      const std::string answer = (this->*step->second)(command);
      if (!answer.empty()) lines_.insert(lines_.begin(), answer);
      return absl::StrJoin(lines_, "\n");
    });
  }

 private:
  using Texts = std::vector<std::string>;

  // server trainers=1 [joined] [async] [eager] [async_tables] [by_trainers] [staleness=N] [table_capacity=N]
  // [servers=1 index=0] [unread_bytes=N] [reader_bytes=N] [checkpoints]: starts a server of the job of
  // tests/testing/hand_made_job.h.
  std::string Begin(Command& command) {
    unread_.clear();
    sessions_.clear();
    first_.clear();
    calls_.clear();
    core_.reset();
    lines_.clear();
    std::filesystem::remove_all(dir_);
    HandMadeJob job{.servers = static_cast<int>(command.Number("servers", 1)),
                    .trainers = static_cast<int>(command.Number("trainers", 1)),
                    .sync = !command.Has("async"),
                    .eager = command.Has("eager"),
                    .average_by_trainers = command.Has("by_trainers"),
                    .table_capacity = command.Number("table_capacity", 0),
                    .staleness = command.Number("staleness", -1),
                    .async_tables = command.Has("async_tables")};
    unread_bytes_ = static_cast<size_t>(command.Number("unread_bytes", 1 << 28));
    edit_ = [this, reader_bytes = command.Number("reader_bytes", 1 << 24),
             checkpoints = command.Has("checkpoints")](ServerOptions* options) {
      options->reader_bytes = static_cast<size_t>(reader_bytes);
      if (checkpoints) options->checkpoint_dir = dir_;
    };
    Start(job, static_cast<int>(command.Number("index", 0)));
    if (command.Has("joined")) JoinAll();
    return "";
  }

  // Sends a request. Returns the answer, or that the call waits; a later answer stands below the command that has
  // brought it about. "unread": the caller does not read it before the command "reads".
  template <typename Text>
  std::string Send(Command& command, Method method, const std::string& bytes, const Text& text) {
    auto now = std::make_shared<std::optional<std::string>>("waits");
    auto answered = std::make_shared<bool>(false);
    core_->Handle(method, {Slice::Own(bytes)},
                  [this, now, answered, text, line = command.line(), unread = keeps_answer_](const auto& answer) {
                    EXPECT_FALSE(std::exchange(*answered, true)) << "[" << line << "] is answered twice";
                    const std::string said = answer.ok() ? text(*answer) : Show(answer.status());
                    if (unread && answer.ok()) unread_.push_back(*answer);
                    if (now->has_value()) {
                      *now = said;
                    } else {
                      lines_.push_back(absl::StrCat("[", line, "] ", said));
                    }
                  });
    std::string answer = **now;
    now->reset();
    return answer;
  }
  template <typename Reply>
  static Reply Parsed(const Slices& bytes) {
    Reply reply;
    EXPECT_TRUE(reply.ParseFromString(Flatten(bytes)));
    return reply;
  }
  static std::string Ok(const Texts& texts) { return texts.empty() ? "ok" : absl::StrJoin(texts, ", "); }

  // TRAINER|reader [as=PROCESS]: from now on its calls are those of this process, which has joined before.
  int Caller(Command& command) {
    const int trainer = command.Has("reader") ? kReader : static_cast<int>(command.Number());
    if (command.Sets("as")) sessions_[trainer] = processes_[command.Text("as")];
    return trainer;
  }
  std::string SendJoinOf(Command& command, v1::JoinRequest request) {
    if (command.Sets("job")) request.mutable_caller()->set_job_id(command.Text("job"));
    if (command.Sets("wire")) request.set_wire_version(static_cast<uint32_t>(command.Number("wire", 0)));
    if (command.Sets("server")) request.set_server_index(static_cast<int>(command.Number("server", 0)));
    if (command.Sets("arithmetic")) request.set_arithmetic(command.Text("arithmetic"));
    if (command.Sets("trainers")) {
      request.set_plan_text(HandMadeJob{.trainers = static_cast<int>(command.Number("trainers", 0))}.PlanText());
      request.set_plan_fingerprint(StableHash(request.plan_text()));
    }
    request.set_incarnation(static_cast<uint64_t>(command.Number("incarnation", 0)));
    const int trainer = request.caller().trainer();
    return Send(command, Method::kJoin, request.SerializeAsString(),
                [this, trainer, process = request.process()](const Slices& bytes) {
                  const auto reply = Parsed<v1::JoinReply>(bytes);
                  if (reply.has_failure()) {
                    return absl::StrCat("has not joined: ", Show(StatusOf(reply.failure())));
                  }
                  const bool again = reply.session() == sessions_[trainer];
                  sessions_[trainer] = processes_[process] = reply.session();
                  return absl::StrCat(again ? "has joined before" : "joins",
                                      reply.has_next_step() ? absl::StrCat(", next step ", reply.next_step()) : "",
                                      reply.chief() > 0 ? absl::StrCat(", chief ", reply.chief()) : "",
                                      !reply.has_plan()                                 ? ""
                                      : reply.plan() == job_.Plan().SerializeAsString() ? ", gets the plan"
                                                                                        : ", gets another plan");
                });
  }
  // join TRAINER PROCESS [job=] [wire=] [server=] [arithmetic=] [trainers=] [incarnation=], of which the server has
  // job, 2, 0, avx2, and its own.
  std::string SendJoin(Command& command) {
    const int trainer = static_cast<int>(command.Number());
    return SendJoinOf(command, JoinMessage(trainer, command.Word(absl::StrCat("trainer:", trainer))));
  }
  // reader PROCESS [job=] [wire=] [server=] [trainers=] [incarnation=] [as_trainer=N] [times=N], after which N stands
  // for its number.
  std::string SendReader(Command& command) {
    v1::JoinRequest request;
    request.mutable_caller()->set_trainer(static_cast<int>(command.Number("as_trainer", kReader)));
    request.set_reader(true);
    request.set_wire_version(kWireVersion);
    const int64_t times = command.Number("times", 1);
    const std::string process = command.Word();
    std::string answer;
    for (int64_t i = 0; i < times; ++i) {
      request.set_process(absl::StrReplaceAll(process, {{"N", absl::StrCat(i)}}));
      answer = SendJoinOf(command, request);
    }
    return answer;
  }
  // beat CALLER [step=N] [waits-for=TEXT] [done] [stopped] [stop] [leave] [failure=TEXT code=N]
  std::string SendBeat(Command& command) {
    v1::HeartbeatRequest request;
    *request.mutable_caller() = CallerOf(Caller(command));
    if (command.Sets("step")) request.set_step(command.Number("step", 0));
    if (command.Sets("waits-for")) request.set_waiting_for(command.Text("waits-for"));
    if (command.Has("done")) request.set_done(true);
    if (command.Has("stopped")) request.set_stopped(true);
    if (command.Has("stop")) request.set_stop_requested(true);
    if (command.Has("leave")) request.set_leave(true);
    if (command.Sets("failure")) request.mutable_failure()->set_message(command.Text("failure"));
    if (command.Sets("code")) request.mutable_failure()->set_code(static_cast<int>(command.Number("code", 0)));
    return Send(command, Method::kHeartbeat, request.SerializeAsString(), [](const Slices& bytes) {
      const auto reply = Parsed<v1::HeartbeatReply>(bytes);
      Texts texts;
      if (reply.has_chief()) texts.push_back(absl::StrCat("chief ", reply.chief()));
      if (reply.dead_size() > 0) texts.push_back(absl::StrCat("dead ", absl::StrJoin(reply.dead(), " ")));
      if (reply.done_size() > 0) texts.push_back(absl::StrCat("done ", absl::StrJoin(reply.done(), " ")));
      if (reply.slow_size() > 0) texts.push_back(absl::StrCat("slow: ", absl::StrJoin(reply.slow(), "; ")));
      if (reply.stop_requested()) texts.push_back("stop");
      if (reply.has_failure()) {
        texts.push_back(Show(StatusOf(reply.failure())));
      }
      return Ok(texts);
    });
  }

  // push CALLER step=N part=N of=N samples=1 first_samples=N [SKIP] [b=G] [t=ID,ID] [u=ID,ID] [rows=1]
  //   [merged=TRAINERS each=1 skips=TRAINERS stops=TRAINERS lane=N lanes=N]
  // A part with the gradient G for each element of b, and `rows` for each of these rows. Without `of` it is not the
  // last part; without `part`, too, it is the step. `merged` trainers have `each` samples each; a lane node must then
  // be given, since it is not that of the caller alone.
  std::string SendPush(Command& command) {
    PushSpec spec{.trainer = Caller(command), .step = command.Number("step", 0)};
    const bool whole = !command.Sets("part");
    spec.part = static_cast<int>(command.Number("part", 0));
    if (whole || command.Sets("of")) spec.part_count = static_cast<int>(command.Number("of", 1));
    const int64_t samples = command.Sets("samples") ? command.Number("samples", 0) : spec.part_count > 0 ? 1 : -1;
    spec.samples = samples;
    spec.first_samples = command.Number("first_samples", 0);
    if (command.Has("SKIP")) spec.verdict = v1::SKIP;
    AddMerged(command, &spec);
    const int own_lanes = job_.lanes / job_.trainers;
    const int lanes = static_cast<int>(command.Number("lanes", own_lanes));
    const int lane = static_cast<int>(command.Number("lane", own_lanes * std::max(0, spec.trainer)));
    float g = 0;
    if (absl::SimpleAtof(command.Text("b"), &g)) {
      spec.items.push_back({.lane = lane, .lanes = lanes, .values = std::vector<float>(5, g)});
    }
    float rows = 1;
    EXPECT_TRUE(absl::SimpleAtof(command.Text("rows", "1"), &rows));
    for (const auto& [table, width] : {std::pair("t", 4), std::pair("u", 1)}) {
      const std::vector<int64_t> ids = command.Numbers(table);
      if (ids.empty()) continue;
      const std::vector<float> values(static_cast<size_t>(width) * ids.size(), rows);
      spec.items.push_back({.name = table, .lane = lane, .lanes = lanes, .values = values, .ids = ids, .width = width});
    }
    auto [request, payload] = MakePush(spec);
    if (spec.part_count == 0 && samples >= 0) request.set_samples(samples);
    return Send(command, Method::kPush, Seal(std::move(request), payload), [](const Slices& bytes) {
      const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
      v1::PushReply reply;
      EXPECT_TRUE(frame.ok() && reply.ParseFromString(frame->header));
      return absl::StrCat("version ", reply.version(), reply.duplicate() ? ", a repeat" : "");
    });
  }

  static void AddMerged(Command& command, PushSpec* spec) {
    const int64_t samples = command.Number("each", 1);
    const std::vector<int64_t> skips = command.Numbers("skips"), stops = command.Numbers("stops");
    for (const int64_t trainer : command.Numbers("merged")) {
      spec->merged.push_back({.trainer = static_cast<int>(trainer),
                              .samples = samples,
                              .verdict = std::count(skips.begin(), skips.end(), trainer) > 0 ? v1::SKIP : v1::APPLY,
                              .stop = std::count(stops.begin(), stops.end(), trainer) > 0});
    }
  }

  // pull CALLER version=N wait=TIME [b] [w=COUNT] [t=ID,ID] [NAME count=N width=N] [ahead_of=N call=N] [corrects=N,N]:
  // of b and of rows of t it shows how far they are from where they were when the server began.
  std::string SendPull(Command& command) {
    v1::PullRequest request;
    *request.mutable_caller() = CallerOf(Caller(command));
    request.set_version(command.Number("version", 0));
    request.set_wait_s(absl::ToDoubleSeconds(command.Time("wait", absl::ZeroDuration())));
    if (command.Sets("ahead_of")) request.set_ahead_of(command.Number("ahead_of", 0));
    if (command.Sets("call")) request.set_ahead_call(command.Number("call", 0));
    for (const int64_t call : command.Numbers("corrects")) request.add_corrects(call);
    for (int64_t i = command.Number("corrects_many", 0); i > 0; --i) request.add_corrects(5000 - i);
    const auto add = [&](const std::string& name, int64_t count, int width) {
      v1::PullItem* const item = request.add_items();
      item->set_name(name);
      item->set_count(count);
      item->set_width(width);
    };
    Slices payload;
    const std::vector<int64_t> ids = command.Numbers("t");
    if (!ids.empty()) {
      add("t", command.Number("count", static_cast<int64_t>(ids.size())), static_cast<int>(command.Number("width", 4)));
      payload = {Slice::Own(std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8))};
    }
    if (request.has_ahead_call()) calls_[request.ahead_call()] = ids;
    if (command.Sets("w")) add("w", command.Number("w", 0), 0);
    const std::string name = command.Word();
    if (!name.empty()) add(name, command.Number("count", 5), static_cast<int>(command.Number("width", 0)));
    return Send(command, Method::kPull, Flatten(EncodeFrame(request.SerializeAsString(), payload)),
                [this, request, ids](const Slices& bytes) {
                  const absl::StatusOr<Pulled> pulled = PulledOf(std::make_shared<Answer>(bytes));
                  EXPECT_TRUE(pulled.ok()) << pulled.status();
                  return pulled.ok() ? PulledText(request, ids, *pulled) : "";
                });
  }
  std::string PulledText(const v1::PullRequest& request, const std::vector<int64_t>& ids, const Pulled& pulled) {
    const v1::PullReply& reply = pulled.header;
    Texts texts = {absl::StrCat(reply.ready() ? "version " : "not ready at version ", reply.version())};
    if (reply.samples() > 0) absl::StrAppend(&texts[0], " of ", reply.samples(), " samples");
    if (!reply.ready()) texts.push_back(absl::StrCat("waits for ", reply.waiting_for()));
    if (reply.skipped()) texts.push_back("skipped");
    if (reply.stop()) texts.push_back("stop");
    if (reply.ended()) texts.push_back("ended");
    if (reply.has_late_trainer())
      texts.push_back(absl::StrCat(reply.late_trainer(), " late by ", reply.late_s(), " s"));
    size_t at = 0;
    for (const v1::PullItem& item : request.items()) {
      if (!reply.ready()) break;
      const int64_t rows = item.width() > 0 ? item.count() : 1;
      const size_t width = static_cast<size_t>(item.width() > 0 ? item.width() : item.count());
      for (int64_t row = 0; row < rows; ++row) {
        const auto begin = pulled.values.begin() + static_cast<ptrdiff_t>(at);
        std::vector<float> values(begin, begin + static_cast<ptrdiff_t>(width));
        at += width;
        if (item.name() == "w") continue;
        const std::string name =
            item.width() > 0 ? absl::StrCat(item.name(), " ", ids[static_cast<size_t>(row)]) : item.name();
        texts.push_back(Moved(name, values));
      }
      at = AlignUp(at * 4) / 4;
    }
    for (int i = 0; i < reply.corrections_size(); ++i) {
      const int64_t call = request.corrects(i);
      if (reply.corrections(i).forgotten()) texts.push_back(absl::StrCat("call ", call, " is forgotten"));
      if (reply.corrections(i).rows_size() == 0) continue;
      const auto n = static_cast<size_t>(reply.corrections(i).rows(0));
      if (n == 0) texts.push_back(absl::StrCat("call ", call, " stands"));
      // The positions of the rows in the item, and the rows, each padded.
      const auto positions = pulled.values.begin() + static_cast<ptrdiff_t>(at);
      const auto rows = positions + static_cast<ptrdiff_t>(AlignUp(n * 4) / 4);
      for (size_t row = 0; row < n; ++row) {
        uint32_t position = 0;
        std::memcpy(&position, &positions[static_cast<ptrdiff_t>(row)], 4);
        const auto begin = rows + static_cast<ptrdiff_t>(row * 4);
        texts.push_back(absl::StrCat("call ", call, ": ",
                                     Moved(absl::StrCat("t ", calls_[call].at(position)), {begin, begin + 4})));
      }
      at += AlignUp(n * 4) / 4 + AlignUp(n * 16) / 4;
    }
    return absl::StrJoin(texts, ", ");
  }
  // Returns how far the values are from the first ones of this name.
  std::string Moved(const std::string& name, const std::vector<float>& values) {
    const std::vector<float>& first = first_.emplace(name, values).first->second;
    Texts moves;
    for (size_t i = 0; i < values.size(); ++i) {
      char text[32];
      std::snprintf(text, sizeof(text), "%.4g", static_cast<double>(values[i] - first[i]));
      if (moves.empty() || moves.back() != text) moves.push_back(text);
    }
    if (moves.size() == 1 && moves[0] == "0") return absl::StrCat(name, " as at first");
    return absl::StrCat(name, " moved by ", absl::StrJoin(moves, " "));
  }

  // exchange CALLER KEY [gives=BYTES] [reads=N] [reader=N]
  std::string Exchange(Command& command) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerOf(Caller(command));
    request.set_key(command.Word());
    if (command.Sets("gives")) request.set_contribution(command.Text("gives"));
    if (command.Sets("reads")) request.set_read_trainer(static_cast<int>(command.Number("reads", 0)));
    if (command.Sets("reader")) request.set_reader(static_cast<int>(command.Number("reader", 0)));
    return Send(command, Method::kExchange, request.SerializeAsString(), [](const Slices& bytes) {
      const auto reply = Parsed<v1::ExchangeReply>(bytes);
      if (!reply.ready()) return absl::StrCat("not ready, misses ", absl::StrJoin(reply.missing(), ", "));
      return absl::StrCat("ready", reply.has_contribution() ? ", " : "", reply.contribution());
    });
  }
  std::string Norms(Command& command) {
    v1::NormsRequest request;
    *request.mutable_caller() = CallerOf(Caller(command));
    return Send(command, Method::kNorms, request.SerializeAsString(), [](const Slices&) { return "ok"; });
  }
  // control CALLER [digest [step=N]] [save] [load_rows]
  std::string Control(Command& command) {
    v1::ControlRequest request;
    *request.mutable_caller() = CallerOf(Caller(command));
    if (command.Has("digest")) request.mutable_digest();
    if (command.Sets("step")) request.mutable_digest()->set_step(command.Number("step", 0));
    if (command.Has("save")) request.mutable_save()->set_name("tmp-step-000000000001-0123456789abcdef");
    if (command.Has("load_rows")) request.mutable_load_rows();
    return Send(command, Method::kControl, request.SerializeAsString(), [](const Slices&) { return "ok"; });
  }

  // advance TIME alive=0,1 [reader]: time passes, in which these send heart-beats every half second.
  std::string Advance(Command& command) {
    const absl::Duration time = TimeOf(command.Word());
    std::vector<int> alive;
    for (const int64_t trainer : command.Numbers("alive")) alive.push_back(static_cast<int>(trainer));
    if (command.Has("reader")) alive.push_back(kReader);
    Pass(absl::ToDoubleSeconds(time), alive);
    return "";
  }
  // sleep TIME: the server sleeps.
  std::string Sleep(Command& command) {
    clock_.Advance(TimeOf(command.Word()));
    core_->Tick();
    return "";
  }
  // reads: callers read the answers that they have left unread.
  std::string Reads(Command&) {
    unread_.clear();
    core_->Tick();
    return "";
  }
  std::string Stop(Command&) {
    core_->RequestStop();
    return "";
  }
  std::string State(Command&) {
    return absl::StrCat("version ", core_->Version(), "; the job: ", Show(core_->JobStatus()),
                        core_->Finished() ? "; finished" : "");
  }
  std::string Report(Command&) {
    const ServerReport report = core_->Report();
    Texts texts;
    for (const ServerReport::Trainer& each : report.trainers) {
      texts.push_back(absl::StrCat(each.name, ": ", each.state, each.step < 0 ? "" : absl::StrCat(", step ", each.step),
                                   each.waits.empty() ? "" : ", waits for " + each.waits));
    }
    for (const ServerReport::Wait& each : report.waits) {
      texts.push_back(absl::StrCat("trainer ", each.trainer, " is waited for: ", each.what, ", for ",
                                   absl::FormatDuration(each.since)));
    }
    for (const ServerReport::Table& each : report.tables) {
      if (each.rows > 0) texts.push_back(absl::StrCat("table ", each.name, " has ", each.rows, " rows"));
    }
    return absl::StrJoin(texts, "\n");
  }
  std::string Count(Command& command) {
    Texts texts;
    for (std::string name = command.Word(); !name.empty(); name = command.Word()) {
      texts.push_back(absl::StrCat(name, " ", core_->counters().Value(name)));
    }
    return absl::StrJoin(texts, ", ");
  }

  const std::string dir_ = ::testing::TempDir() + "/server_transcripts";
  std::map<std::string, uint64_t> processes_;        // sessions
  std::map<std::string, std::vector<float>> first_;  // values when first read, by name
  std::map<int64_t, std::vector<int64_t>> calls_;    // ids of pulls ahead of their step, by call
  std::vector<Slices> unread_;
  bool keeps_answer_ = false;  // the caller does not read the answer to this command yet
  Texts lines_;                // later answers that a command has brought about
};

TEST_F(ServerTranscriptsTest, Joins) { RunFile("joins.txt"); }
TEST_F(ServerTranscriptsTest, Deaths) { RunFile("deaths.txt"); }
TEST_F(ServerTranscriptsTest, Steps) { RunFile("steps.txt"); }
TEST_F(ServerTranscriptsTest, Merged) { RunFile("merged.txt"); }
TEST_F(ServerTranscriptsTest, Pulls) { RunFile("pulls.txt"); }
TEST_F(ServerTranscriptsTest, PullsAhead) { RunFile("pulls_ahead.txt"); }
TEST_F(ServerTranscriptsTest, Readers) { RunFile("readers.txt"); }

}  // namespace
}  // namespace weir
