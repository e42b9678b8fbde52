#include "framework/watch/prometheus_text.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "framework/base/atomic_file.h"
#include "framework/base/counters.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The samples of `counters`, without HELP and TYPE.
std::vector<std::string> Samples(const Counters& counters, const PrometheusLabels& constant = {}) {
  std::vector<std::string> samples;
  for (absl::string_view line :
       absl::StrSplit(PrometheusText(counters.Snapshot(), constant), '\n', absl::SkipEmpty())) {
    if (line[0] != '#') samples.emplace_back(line);
  }
  return samples;
}

TEST(PrometheusTextTest, EachFamilyHasHelpTypeAndItsSamples) {
  Counters counters;
  counters.Get("trainer.0.push.messages", "messages")->Add(3);
  counters.Get("trainer.0.pull.messages", "messages")->Add(5);
  counters.Get("trainer.0.pull.bytes_in", "bytes")->Add(4096);
  counters.Get("trainer.0.pull.bytes_out", "bytes")->Add(128);
  counters.Get("trainer.0.wait.pull", "microseconds")->Add(1'500'000);
  counters.GetGauge("trainer.0.loss", "")->Set(0.25);
  EXPECT_EQ(PrometheusText(counters.Snapshot(), {{"role", "trainer"}, {"id", "0"}}),
            R"(# HELP weir_loss Mean loss of the training since the last report.
# TYPE weir_loss gauge
weir_loss{role="trainer",id="0"} 0.25
# HELP weir_messages_total Calls of a trainer or to a server, each try counted, and messages among trainers.
# TYPE weir_messages_total counter
weir_messages_total{role="trainer",id="0",method="pull"} 5
weir_messages_total{role="trainer",id="0",method="push"} 3
# HELP weir_received_bytes_total Bytes of requests or answers that came in, by method.
# TYPE weir_received_bytes_total counter
weir_received_bytes_total{role="trainer",id="0",method="pull"} 4096
# HELP weir_sent_bytes_total Bytes of requests or answers that went out, by method.
# TYPE weir_sent_bytes_total counter
weir_sent_bytes_total{role="trainer",id="0",method="pull"} 128
# HELP weir_wait_seconds_total Time in which a step waited, by what for.
# TYPE weir_wait_seconds_total counter
weir_wait_seconds_total{role="trainer",id="0",what="pull"} 1.5
)");
}

TEST(PrometheusTextTest, AnEntryOfAnotherProcessHasItsRoleAndId) {
  Counters counters;
  counters.Get("server.3.pull.messages", "messages")->Add(1);
  counters.Get("trainer.0.pull.messages", "messages")->Add(2);
  EXPECT_THAT(Samples(counters, {{"role", "trainer"}, {"id", "0"}, {"zone", "a"}}),
              ElementsAre("weir_messages_total{role=\"server\",id=\"3\",zone=\"a\",method=\"pull\"} 1",
                          "weir_messages_total{role=\"trainer\",id=\"0\",zone=\"a\",method=\"pull\"} 2"));
}

TEST(PrometheusTextTest, ATableIsALabelAndItsNameMayHaveDots) {
  Counters counters;
  counters.Get("table.users.rows", "rows")->Add(7);
  counters.Get("table.deep.0.bytes", "bytes")->Add(9);
  counters.Get("table.users.made", "rows")->Add(8);
  EXPECT_THAT(Samples(counters),
              ElementsAre("weir_table_bytes{table=\"deep.0\"} 9", "weir_table_made_rows_total{table=\"users\"} 8",
                          "weir_table_rows{table=\"users\"} 7"));
}

TEST(PrometheusTextTest, AFigureOfAnEvaluationIsALabelWithAnyName) {
  Counters counters;
  counters.GetGauge("trainer.0.eval.auc[country=DE]", "")->Set(0.5);
  counters.GetGauge("trainer.0.eval.calibration.error", "")->Set(0.25);
  EXPECT_THAT(Samples(counters, {{"role", "trainer"}, {"id", "0"}}),
              ElementsAre("weir_eval_figure{role=\"trainer\",id=\"0\",figure=\"auc[country=DE]\"} 0.5",
                          "weir_eval_figure{role=\"trainer\",id=\"0\",figure=\"calibration.error\"} 0.25"));
}

TEST(PrometheusTextTest, CountersOfAPresentNumberAreGauges) {
  Counters counters;
  counters.Get("table.users.rows", "rows");
  counters.Get("staleness.most_steps", "steps");
  EXPECT_THAT(PrometheusText(counters.Snapshot(), {}), AllOf(HasSubstr("# TYPE weir_table_rows gauge\n"),
                                                             HasSubstr("# TYPE weir_staleness_most_steps gauge\n")));
}

TEST(PrometheusTextTest, UnknownEntriesAreNamedByTheirUnit) {
  Counters counters;
  counters.Get("some-thing.new", "rows")->Add(1);
  counters.Get("server.1.new_rows", "rows")->Add(2);
  counters.Get("new.time", "milliseconds")->Add(3);
  counters.GetGauge("new.level", "rows")->Set(4);
  counters.GetGauge("new.memory", "bytes")->Set(5);
  counters.Get("push.applied", "steps")->Add(6);
  EXPECT_THAT(Samples(counters),
              ElementsAre("weir_new_level 4", "weir_new_memory_bytes 5",
                          "weir_new_rows_total{role=\"server\",id=\"1\"} 2", "weir_new_time_seconds_total 0.003",
                          "weir_push_applied_steps_total 6", "weir_some_thing_new_rows_total 1"));
}

TEST(PrometheusTextTest, HistogramsAreCumulativeAndInSeconds) {
  Counters counters;
  Histogram* const time = counters.GetHistogram("trainer.0.push.call_time", "microseconds");
  for (const int64_t microseconds : {1, 2, 3, 4, 100'000'000}) time->Observe(microseconds);
  const std::string text = PrometheusText(counters.Snapshot(), {{"role", "trainer"}, {"id", "0"}});
  const std::string labels = "{role=\"trainer\",id=\"0\",method=\"push\"";
  EXPECT_THAT(text, HasSubstr("# TYPE weir_call_time_seconds histogram\n"));
  for (const std::string line : {"le=\"1e-06\"} 1", "le=\"2e-06\"} 2", "le=\"4e-06\"} 4", "le=\"8e-06\"} 4",
                                 "le=\"0.001024\"} 4", "le=\"67.108864\"} 4", "le=\"+Inf\"} 5"}) {
    EXPECT_THAT(text, HasSubstr("weir_call_time_seconds_bucket" + labels + "," + line + "\n"));
  }
  EXPECT_THAT(text, HasSubstr("weir_call_time_seconds_sum" + labels + "} 100.00001\n"));
  EXPECT_THAT(text, HasSubstr("weir_call_time_seconds_count" + labels + "} 5\n"));
}

TEST(PrometheusTextTest, AHistogramWithoutLabelsAndOfRowsIsPlain) {
  Counters counters;
  counters.GetHistogram("batch", "rows")->Observe(3);
  EXPECT_THAT(PrometheusText(counters.Snapshot(), {}),
              AllOf(HasSubstr("weir_batch_bucket{le=\"4\"} 1\n"), HasSubstr("weir_batch_sum 3\n")));
}

TEST(PrometheusTextTest, LabelValuesAreEscapedAndUtf8) {
  Counters counters;
  counters.Get("table.a\"b\\c\nd\xff.rows", "rows");
  EXPECT_THAT(Samples(counters), ElementsAre(R"(weir_table_rows{table="a\"b\\c\nd?"} 0)"));
}

TEST(PrometheusTextTest, NumbersThatAreNoneHaveNames) {
  Counters counters;
  counters.GetGauge("a", "")->Set(std::nan(""));
  counters.GetGauge("b", "")->Set(std::numeric_limits<double>::infinity());
  counters.GetGauge("c", "")->Set(-std::numeric_limits<double>::infinity());
  counters.GetGauge("d", "")->Set(0.1);
  EXPECT_THAT(Samples(counters), ElementsAre("weir_a NaN", "weir_b +Inf", "weir_c -Inf", "weir_d 0.1"));
}

TEST(PrometheusTextTest, OfTheSameSampleTheFirstCounts) {
  std::vector<Counters::Entry> entries(3);
  entries[0] = {.name = "a.b", .unit = "rows", .value = 1};
  entries[1] = {.name = "a.b", .unit = "rows", .value = 2};
  entries[2] = {.name = "a.b_rows_total", .unit = "", .kind = Counters::Kind::kGauge, .gauge = 3};
  EXPECT_THAT(PrometheusText(entries, {}),
              AllOf(HasSubstr("weir_a_b_rows_total 1\n"), Not(HasSubstr(" 2\n")), Not(HasSubstr(" 3\n"))));
}

TEST(PrometheusTextTest, NamesOfAnyTextAreValid) {
  Counters counters;
  for (const char* name : {"", ".", "..", "trainer", "trainer.", "trainer.0", "trainer.0.", "server.x.y", "table..rows",
                           "table.", "wait.", "9", "\n", "ä.ö"}) {
    counters.Get(name, "rows");
  }
  for (const std::string& sample : Samples(counters)) {
    EXPECT_THAT(sample, ContainsRegex("^weir_[a-zA-Z0-9_]+[ {]")) << sample;
  }
}

TEST(PrometheusTextTest, WithoutEntriesThereIsNoText) {
  EXPECT_THAT(PrometheusText({}, {{"role", "server"}}), IsEmpty());
}

// Every entry that a trainer or a server has. docs/monitoring.md and examples/grafana name families of this file only
// (tests/python/test_monitoring.py).
TEST(PrometheusTextTest, FamiliesOfAllEntriesAreThoseOfTheList) {
  using enum Counters::Kind;
  const std::vector<Counters::Entry> entries = {
      {.name = "cache.hits", .unit = "rows"},
      {.name = "cache.misses", .unit = "rows"},
      {.name = "data.read", .unit = "bytes"},
      {.name = "delay_compensation.most_bytes", .unit = "bytes"},
      {.name = "device.graph_captures", .unit = "graphs"},
      {.name = "device.graph_replays", .unit = "graphs"},
      {.name = "prefetch.ahead", .unit = "rows"},
      {.name = "prefetch.corrected", .unit = "rows"},
      {.name = "prefetch.late", .unit = "batches"},
      {.name = "push.applied", .unit = "steps"},
      {.name = "push.repeated", .unit = "messages"},
      {.name = "push.skipped", .unit = "steps"},
      {.name = "server.0.push.bytes_in", .unit = "bytes"},
      {.name = "server.0.push.bytes_out", .unit = "bytes"},
      {.name = "server.0.push.call_time", .unit = "microseconds", .kind = kHistogram},
      {.name = "server.0.push.messages", .unit = "messages"},
      {.name = "server.0.longest_wait", .unit = "microseconds", .kind = kGauge},
      {.name = "server.0.trainers", .kind = kGauge},
      {.name = "server.0.version", .kind = kGauge},
      {.name = "staleness.most_steps", .unit = "steps"},
      {.name = "table.users.bytes", .unit = "bytes"},
      {.name = "table.users.candidates", .unit = "ids"},
      {.name = "table.users.dropped", .unit = "gradients"},
      {.name = "table.users.evicted", .unit = "rows"},
      {.name = "table.users.expired", .unit = "rows"},
      {.name = "table.users.faded", .unit = "rows"},
      {.name = "table.users.in_memory", .unit = "rows"},
      {.name = "table.users.made", .unit = "rows"},
      {.name = "table.users.read_from_disk", .unit = "rows"},
      {.name = "table.users.rows", .unit = "rows"},
      {.name = "table.users.skipped_rows", .unit = "rows"},
      {.name = "table.users.tombstones", .unit = "ids"},
      {.name = "table.users.used", .unit = "ids"},
      {.name = "table.users.written_to_disk", .unit = "rows"},
      {.name = "trainer.0.auc", .kind = kGauge},
      {.name = "trainer.0.calibration", .kind = kGauge},
      {.name = "trainer.0.eval.auc", .kind = kGauge},
      {.name = "trainer.0.examples", .unit = "examples"},
      {.name = "trainer.0.examples_per_s", .kind = kGauge},
      {.name = "trainer.0.figure.calibration.error", .kind = kGauge},
      {.name = "trainer.0.fraction", .kind = kGauge},
      {.name = "trainer.0.large_gradients", .unit = "gradients"},
      {.name = "trainer.0.loss", .kind = kGauge},
      {.name = "trainer.0.lost_seconds", .kind = kGauge},
      {.name = "trainer.0.normalized_entropy", .kind = kGauge},
      {.name = "trainer.0.repeated_steps", .kind = kGauge},
      {.name = "trainer.0.goodput", .kind = kGauge},
      {.name = "trainer.0.restarts", .kind = kGauge},
      {.name = "trainer.0.skipped_steps", .unit = "steps"},
      {.name = "trainer.0.step", .kind = kGauge},
      {.name = "trainer.0.step_time", .unit = "microseconds", .kind = kHistogram},
      {.name = "trainer.0.steps", .unit = "steps"},
      {.name = "trainer.0.variables.bytes", .unit = "bytes"},
      {.name = "trainer.0.wait.pull", .unit = "microseconds"},
  };
  std::string list;
  const std::string text = absl::StrCat(PrometheusText(entries, {}), PrometheusInfo("build", {}, {}),
                                        PrometheusInfo("job", {}, {}), PrometheusProcess({}));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "# TYPE ")) absl::StrAppend(&list, line, "\n");
    // The help of an entry that is not known.
    EXPECT_FALSE(absl::StrContains(line, " In ")) << line;
  }
  EXPECT_EQ(list, ReadWholeFile("tests/framework/watch/testdata/families.txt").value());
}

TEST(PrometheusInfoTest, InfoIsInLabels) {
  EXPECT_EQ(PrometheusInfo("build", {{"version", "0.1"}}, {{"role", "server"}}),
            "# HELP weir_build_info What the process says about itself, in labels; the value is 1.\n"
            "# TYPE weir_build_info gauge\n"
            "weir_build_info{role=\"server\",version=\"0.1\"} 1\n");
}

TEST(PrometheusProcessTest, TheProcessHasTheUsualFamilies) {
  const std::string text = PrometheusProcess({{"role", "server"}});
  for (const char* name :
       {"process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes",
        "process_start_time_seconds", "process_virtual_memory_bytes"}) {
    EXPECT_THAT(text, ContainsRegex(std::string(name) + "[{]role=\"server\"[}] [0-9.e+-]+\n"));
  }
}

}  // namespace
}  // namespace weir
