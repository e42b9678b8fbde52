#include "framework/profile/trace.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/atomic_file.h"
#include "framework/profile/profile_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Times in microseconds.
struct Made {
  ProfileKind kind;
  std::string name;
  int64_t begin, end;
  uint64_t call = 0;
  int peer = -1;
  std::string what = {};
};

// Builds the trace of a process from events of threads and rows of calls, all in step 20.
class Recording {
 public:
  Recording& Thread(const std::string& name, const std::vector<Made>& events) {
    recorded_.threads.push_back({.name = name, .events = {}});
    for (const Made& made : events) recorded_.threads.back().events.push_back(Event(made));
    return *this;
  }
  v1::Trace Trace(const std::string& process, const std::string& boot = "a machine") {
    recorded_.begin = 20;
    recorded_.end = 40;
    recorded_.tracks = {"", "calls"};
    recorded_.names = names_;
    v1::Trace trace = MakeTrace(recorded_, process);
    trace.mutable_other_data()->mutable_processes(0)->set_boot(boot);
    return trace;
  }

 private:
  ProfileEvent Event(const Made& made) {
    ProfileEvent event{.kind = made.kind, .name = ProfileName(made.name), .detail = ProfileName(made.what)};
    for (const ProfileName name : {event.name, event.detail}) {
      if (names_.size() <= name.id()) names_.resize(name.id() + 1);
    }
    names_[event.name.id()] = made.name;
    names_[event.detail.id()] = made.what;
    event.begin_ns = made.begin * 1000;
    event.end_ns = made.end * 1000;
    event.step = 20;
    event.peer = made.peer;
    event.call = made.call;
    if (made.call != 0) event.track = 1;
    return event;
  }

  Profiler::Recorded recorded_;
  std::vector<std::string> names_ = {""};
};

std::vector<v1::TraceEvent> Spans(const v1::Trace& trace, const std::string& name) {
  std::vector<v1::TraceEvent> found;
  for (const v1::TraceEvent& event : trace.trace_events()) {
    if (event.ph() == "X" && event.name() == name) found.push_back(event);
  }
  return found;
}

TEST(TraceTest, AFileReadsBackAsItWasWritten) {
  const v1::Trace trace =
      Recording()
          .Thread("main", {{ProfileKind::kOperator, "fc \"quoted\\ \n\xc3\xa9", 10, 30, 0, -1, "w\x01"},
                           {ProfileKind::kCall, "Push", 12, 20, 0xabcdef0123456789, 1}})
          .Trace("trainer 0");
  const std::string file = ::testing::TempDir() + "/trace.json";
  ASSERT_TRUE(WriteTrace(file, trace).ok());
  const auto text = ReadWholeFile(file);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("\"traceEvents\":["));
  const auto read = ReadTrace(file);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), trace.SerializeAsString());
}

TEST(TraceTest, WhatIsNoTraceIsRefused) {
  for (const char* text : {"", "[1, 2", "{\"traceEvents\": 7}", "{\"traceEvents\": [{\"ts\": \"x\"}]}"}) {
    EXPECT_EQ(ParseTrace(text).status().code(), absl::StatusCode::kDataLoss) << text;
  }
  EXPECT_THAT(std::string(ReadTrace("/no/such/file").status().message()), HasSubstr("/no/such/file"));
}

TEST(TraceTest, CallsUnderWayAtOnceStandInDifferentRows) {
  const v1::Trace trace = Recording()
                              .Thread("main", {{ProfileKind::kHandler, "first", 0, 10, 1},
                                               {ProfileKind::kWait, "in first", 2, 8, 1},
                                               {ProfileKind::kHandler, "second", 5, 15, 2},
                                               {ProfileKind::kHandler, "third", 11, 20, 3}})
                              .Trace("server 0");
  const int first = Spans(trace, "first")[0].tid();
  EXPECT_EQ(Spans(trace, "in first")[0].tid(), first);
  EXPECT_NE(Spans(trace, "second")[0].tid(), first);
  EXPECT_EQ(Spans(trace, "third")[0].tid(), first) << "its place is free again";
}

TEST(TraceTest, ArrowsGoFromCallsToTheirHandlers) {
  const v1::Trace trainer = Recording().Thread("main", {{ProfileKind::kCall, "Push", 10, 50, 7}}).Trace("trainer 0");
  const v1::Trace server = Recording().Thread("grpc", {{ProfileKind::kHandler, "Push", 20, 30, 7}}).Trace("server 0");
  const auto merged = MergeTraces({server, trainer});
  ASSERT_TRUE(merged.ok()) << merged.status();
  std::map<std::string, const v1::TraceEvent*> arrow;
  for (const v1::TraceEvent& event : merged->trace_events()) {
    if (event.ph() == "s" || event.ph() == "f") arrow[event.ph()] = &event;
  }
  ASSERT_EQ(arrow.size(), 2u);
  EXPECT_EQ(arrow["s"]->id(), arrow["f"]->id());
  EXPECT_EQ(arrow["s"]->pid(), trainer.other_data().processes(0).pid());
  EXPECT_EQ(arrow["f"]->pid(), server.other_data().processes(0).pid());
  EXPECT_DOUBLE_EQ(arrow["s"]->ts(), 10);
  EXPECT_DOUBLE_EQ(arrow["f"]->ts(), 20);
  EXPECT_EQ(merged->other_data().processes(0).name(), "trainer 0") << "trainers first";
  const auto again = MergeTraces({*merged});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->SerializeAsString(), merged->SerializeAsString()) << "a second time changes nothing";
}

TEST(TraceTest, ProcessesOfOneMachineKeepTheirTimes) {
  const v1::Trace trainer = Recording().Thread("main", {{ProfileKind::kCall, "Push", 10, 50, 7}}).Trace("trainer 0");
  const v1::Trace server = Recording().Thread("grpc", {{ProfileKind::kHandler, "Push", 11, 12, 7}}).Trace("server 0");
  const auto merged = MergeTraces({trainer, server});
  ASSERT_TRUE(merged.ok());
  for (const v1::TraceProcess& process : merged->other_data().processes())
    EXPECT_DOUBLE_EQ(process.clock_offset_us(), 0);
  EXPECT_DOUBLE_EQ(Spans(*merged, "Push")[1].ts(), 11);
}

// The server's clock is 1000 ahead. The quickest call takes 4 each way; the second call was delayed on its way back and
// must not count. Trainer 1 runs on a third machine whose clock is 500 behind the server's.
TEST(TraceTest, ClocksOfOtherMachinesAreSetByTheQuickestCalls) {
  const v1::Trace trainer =
      Recording()
          .Thread("main", {{ProfileKind::kCall, "Push", 10, 30, 1}, {ProfileKind::kCall, "Push", 40, 90, 2}})
          .Trace("trainer 0", "one");
  const v1::Trace server = Recording()
                               .Thread("grpc", {{ProfileKind::kHandler, "taken", 1014, 1026, 1},
                                                {ProfileKind::kHandler, "late", 1044, 1050, 2},
                                                {ProfileKind::kHandler, "of the third", 2003, 2007, 3}})
                               .Trace("server 0", "two");
  const v1::Trace third =
      Recording().Thread("main", {{ProfileKind::kCall, "asked", 1500, 1510, 3}}).Trace("trainer 1", "three");
  const auto merged = MergeTraces({trainer, server, third});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_DOUBLE_EQ(Spans(*merged, "taken")[0].ts(), 14);
  EXPECT_DOUBLE_EQ(Spans(*merged, "late")[0].ts(), 44);
  EXPECT_DOUBLE_EQ(Spans(*merged, "of the third")[0].ts(), 1003);
  EXPECT_DOUBLE_EQ(Spans(*merged, "asked")[0].ts(), 1000);
}

TEST(TraceTest, ClocksAreSetByTheQuickestCallInEitherDirection) {
  const v1::Trace one = Recording()
                            .Thread("main", {{ProfileKind::kCall, "slow", 10, 110, 1}})
                            .Thread("grpc", {{ProfileKind::kHandler, "fast, taken", 200, 204, 2}})
                            .Trace("trainer 0", "one");
  const v1::Trace two = Recording()
                            .Thread("main", {{ProfileKind::kCall, "fast", 1198, 1206, 2}})
                            .Thread("grpc", {{ProfileKind::kHandler, "slow, taken", 1080, 1090, 1}})
                            .Trace("trainer 1", "two");
  const auto merged = MergeTraces({one, two});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_DOUBLE_EQ(Spans(*merged, "fast")[0].ts(), 198);
  EXPECT_DOUBLE_EQ(Spans(*merged, "slow, taken")[0].ts(), 80);
}

TEST(TraceTest, TwoTracesOfOneProcessAreRefused) {
  const v1::Trace trainer = Recording().Thread("main", {}).Trace("trainer 0");
  const absl::Status status = MergeTraces({trainer, trainer}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("two traces are of trainer 0"));
}

// A step of 100 us in which the thread computes for 40 (10 of them inside another span), waits 20 for rows, 10 for data
// and 15 for another thread. A reader thread works at the same time.
v1::Trace AStep() {
  return Recording()
      .Thread("trainer", {{ProfileKind::kStep, "step", 0, 100},
                          {ProfileKind::kData, "a batch", 0, 10},
                          {ProfileKind::kExchange, "prefetch", 10, 35, 0, -1, "rows"},
                          {ProfileKind::kWait, "rows", 12, 32, 0, 1},
                          {ProfileKind::kThreads, "lanes", 35, 90},
                          {ProfileKind::kOperator, "fc", 35, 65, 0, -1, "out"},
                          {ProfileKind::kOperator, "mul", 65, 75, 0, -1, "out"}})
      .Thread("weir-reader-0", {{ProfileKind::kRead, "make a batch", 0, 50}})
      .Trace("trainer 0");
}

TEST(ProfileTableTest, TimesOfAStepAddUpToIt) {
  const std::vector<StepBreakdown> trainers = BreakDownSteps(AStep());
  ASSERT_EQ(trainers.size(), 1u);
  const StepBreakdown& trainer = trainers[0];
  EXPECT_EQ(trainer.process, "trainer 0");
  EXPECT_THAT(trainer.step_ms, ElementsAre(0.1));
  double sum = 0;
  for (const auto& [word, ms] : trainer.ms) sum += ms;
  EXPECT_NEAR(sum, trainer.total_ms, 1e-9);
  EXPECT_NEAR(trainer.ms.at("computing"), 0.040, 1e-9);
  EXPECT_NEAR(trainer.ms.at("waiting for servers"), 0.020, 1e-9);
  EXPECT_NEAR(trainer.ms.at("waiting for data"), 0.010, 1e-9);
  EXPECT_NEAR(trainer.ms.at("waiting for its other threads"), 0.015, 1e-9);
  EXPECT_NEAR(trainer.ms.at("packing and placing values"), 0.005, 1e-9);
  EXPECT_NEAR(trainer.ms.at("the rest"), 0.010, 1e-9);
}

TEST(ProfileTableTest, TheDearestComesFirst) {
  const std::string table = ProfileTable(AStep());
  const size_t computing = table.find("computing"), servers = table.find("waiting for servers"),
               data = table.find("waiting for data");
  ASSERT_NE(data, std::string::npos) << table;
  EXPECT_LT(computing, servers);
  EXPECT_LT(servers, data);
  EXPECT_LT(table.find("fc out"), table.find("mul out"));
  EXPECT_THAT(table, HasSubstr("rows, server 1 last"));
  EXPECT_THAT(table, HasSubstr("trainer 55 % busy 45 % waiting"));
  EXPECT_THAT(table, HasSubstr("weir-reader-0 50 % busy"));
  size_t longest = 0;
  for (size_t at = 0; at < table.size(); at = table.find('\n', at) + 1)
    longest = std::max(longest, table.find('\n', at) - at);
  EXPECT_LE(longest, 110u) << table;
}

TEST(ProfileTableTest, ACallIsDividedIntoWhatItsServerDidWaitedAndTheWay) {
  const v1::Trace trainer =
      Recording()
          .Thread("main", {{ProfileKind::kStep, "step", 0, 9000}, {ProfileKind::kCall, "Pull rows", 1000, 8000, 7, 0}})
          .Trace("trainer 0");
  const v1::Trace server = Recording()
                               .Thread("grpc", {{ProfileKind::kHandler, "Pull rows", 2000, 7000, 7, 0},
                                                {ProfileKind::kWait, "its turn", 2500, 5500, 7, 0, "trainer 1"},
                                                {ProfileKind::kServe, "copy rows for pulls", 5500, 6500, 0, 0}})
                               .Trace("server 0");
  const auto merged = MergeTraces({trainer, server});
  ASSERT_TRUE(merged.ok());
  const std::string table = ProfileTable(*merged);
  EXPECT_THAT(table, HasSubstr("2.000, 3.000; 2.000"));
  EXPECT_THAT(table, HasSubstr("its turn: trainer 1"));
  EXPECT_THAT(table, HasSubstr("copy rows for pulls"));
}

// Rows of the next step take 40 us, and the step after waits for them for 10. A step waits for a batch before that.
TEST(ProfileTableTest, RowsAheadAreHiddenButForWhatStepsWait) {
  const v1::Trace trace = Recording()
                              .Thread("trainer", {{ProfileKind::kStep, "step", 0, 50},
                                                  {ProfileKind::kData, "batch and rows pulled ahead", 2, 15},
                                                  {ProfileKind::kOperator, "fc", 15, 50, 0, -1, "out"},
                                                  {ProfileKind::kStep, "step", 50, 100},
                                                  {ProfileKind::kData, "batch and rows pulled ahead", 50, 60},
                                                  {ProfileKind::kOperator, "fc", 60, 100, 0, -1, "out"}})
                              .Thread("weir-prefetch", {{ProfileKind::kRead, "make a batch", 5, 20},
                                                        {ProfileKind::kExchange, "prefetch", 20, 60, 0, -1, "rows"},
                                                        {ProfileKind::kWait, "rows", 25, 55, 0, 1}})
                              .Trace("trainer 0");
  EXPECT_THAT(ProfileTable(trace),
              HasSubstr("\n  rows ahead of their step: 0.020 ms a step, 75.0 % of it hidden; steps waited 0.005\n"));
  EXPECT_THAT(ProfileTable(AStep()), ::testing::Not(HasSubstr("rows ahead")));
}

// Backward ends at 60 us. Of the reduce-scatters, which take the time from 10 to 40 and from 50 to 80 us, 40 of 60 us
// lie before that.
TEST(ProfileTableTest, ReduceScattersAreHiddenWhileBackwardRuns) {
  const v1::Trace trace = Recording()
                              .Thread("trainer", {{ProfileKind::kStep, "step", 0, 100},
                                                  {ProfileKind::kOperator, "fc_grad", 0, 60, 0, -1, "x@GRAD"},
                                                  {ProfileKind::kExchange, "send_barrier", 60, 95}})
                              .Thread("weir-coll-0", {{ProfileKind::kExchange, "all_reduce", 5, 50, 0, -1, "w1"},
                                                      {ProfileKind::kExchange, "reduce-scatter", 10, 40},
                                                      {ProfileKind::kWait, "another trainer", 20, 30}})
                              .Thread("weir-coll-1", {{ProfileKind::kExchange, "all_reduce", 15, 90, 0, -1, "w0"},
                                                      {ProfileKind::kExchange, "others begin", 15, 20},
                                                      {ProfileKind::kExchange, "reduce-scatter", 20, 30},
                                                      {ProfileKind::kExchange, "reduce-scatter", 50, 80}})
                              .Trace("trainer 0");
  const std::string table = ProfileTable(trace);
  EXPECT_THAT(table, HasSubstr("\noperations among trainers"));
  EXPECT_THAT(table, HasSubstr("\n  all_reduce w0                           0.075   75.0 %"));
  EXPECT_THAT(
      table,
      HasSubstr("\n  reduce-scatter: 0.060 ms a step, 66.7 % of it while backward ran; others began after 0.005\n"));
  EXPECT_THAT(ProfileTable(AStep()), Not(HasSubstr("among trainers")));
}

TEST(ProfileTableTest, AWindowThatWasNotReachedIsNamed) {
  const std::string table = ProfileTable(Recording().Trace("trainer 0"));
  EXPECT_THAT(table, HasSubstr("trainer 0: nothing was recorded: it ran none of the steps 20:40; see --profile_steps"));
  EXPECT_THAT(table, Not(HasSubstr("where a step went")));
}

}  // namespace
}  // namespace weir
