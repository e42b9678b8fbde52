#include "framework/profile/profile_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/profile/thread_names.h"
#include "framework/profile/trace.h"

namespace weir {

namespace {

constexpr char kComputing[] = "computing";
constexpr char kServers[] = "waiting for servers";
constexpr char kData[] = "waiting for data";
constexpr char kThreads[] = "waiting for its other threads";
constexpr char kPacking[] = "packing and placing values";
constexpr char kInside[] = "the server in this process";
constexpr char kRest[] = "the rest";

// The part of a reduction in which a trainer reduces its slice (framework/collective).
constexpr char kReduceScatter[] = "reduce-scatter", kOthersBegin[] = "others begin";

// Spans of the thread that pulls rows ahead of their step, and of a step that waits for it (trainer/loop/rounds.cc).
constexpr char kPullRows[] = "prefetch", kAwaitRows[] = "batch and rows pulled ahead";

constexpr size_t kMostRows = 6;
constexpr size_t kMostCalls = 10;
constexpr size_t kMostThreads = 4;
constexpr int kNameWidth = 36;
// Traces round the ends and beginnings of spans to this.
constexpr double kTickUs = 0.01;

// A span of a thread.
struct Span {
  const v1::TraceEvent* event = nullptr;
  double begin = 0, end = 0;
  double self = 0;  // duration without nested spans
  bool in_step = false, in_server = false;
};

struct Thread {
  std::string name;
  std::vector<Span> spans;
  bool runs_steps = false;
  bool among_trainers() const { return std::string_view(name).starts_with(kAmongThreads); }
};

struct Process {
  std::string name;
  double dropped = 0, begin = 0, end = 0;
  std::map<int, Thread> threads;                // spans by row; spans of one row nest
  std::vector<const v1::TraceEvent*> calls;     // client calls; they overlap
  std::vector<const v1::TraceEvent*> handlers;  // calls handled by a server, and the waits in them
  bool trainer() const {
    return std::any_of(threads.begin(), threads.end(), [](const auto& each) { return each.second.runs_steps; });
  }
};

// Returns the table's word for the self time of a span of this category.
const char* WordOf(const std::string& category) {
  static const auto* const words = new std::map<std::string, const char*>({{"step", kRest},
                                                                           {"operator", kComputing},
                                                                           {"exchange", kPacking},
                                                                           {"client", kPacking},
                                                                           {"threads", kThreads},
                                                                           {"wait", kServers},
                                                                           {"data", kData}});
  const auto found = words->find(category);
  return found == words->end() ? kRest : found->second;
}

bool IsWaiting(const std::string& category) {
  return category == "wait" || category == "data" || category == "threads";
}

// Subtracts nested spans from the self time of their parent. Spans of one thread nest or are disjoint.
void Nest(Thread* thread) {
  std::sort(thread->spans.begin(), thread->spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin || (a.begin == b.begin && a.end > b.end); });
  std::vector<size_t> open;
  for (size_t i = 0; i < thread->spans.size(); ++i) {
    Span& span = thread->spans[i];
    while (!open.empty() && thread->spans[open.back()].end < span.end - kTickUs) open.pop_back();
    while (!open.empty() && thread->spans[open.back()].end <= span.begin) open.pop_back();
    if (!open.empty()) {
      Span& outer = thread->spans[open.back()];
      outer.self -= span.end - span.begin;
      span.in_step = outer.in_step;
      span.in_server = outer.in_server;
    }
    const std::string& cat = span.event->cat();
    if (cat == "step") span.in_step = thread->runs_steps = true;
    span.in_server |= cat == "serve" || cat == "update" || cat == "save";
    open.push_back(i);
  }
}

std::vector<Process> ProcessesOf(const v1::Trace& trace) {
  std::map<int, Process> by_pid;
  for (const v1::TraceProcess& about : trace.other_data().processes()) {
    Process& process = by_pid[about.pid()];
    process.name = about.name();
    process.dropped = about.dropped();
    process.begin = about.begin();
    process.end = about.end();
  }
  for (const v1::TraceEvent& event : trace.trace_events()) {
    const auto found = by_pid.find(event.pid());
    if (found == by_pid.end()) continue;
    Process& process = found->second;
    if (event.ph() == "M" && event.name() == "thread_name") process.threads[event.tid()].name = event.args().name();
    if (!IsSpan(event)) continue;
    if (event.cat() == "call") {
      process.calls.push_back(&event);
    } else if (event.cat() == "handler" || (event.cat() == "wait" && event.args().has_call())) {
      process.handlers.push_back(&event);
    } else {
      process.threads[event.tid()].spans.push_back({&event, event.ts(), event.ts() + event.dur(), event.dur()});
    }
  }
  std::vector<Process> processes;
  for (auto& [pid, process] : by_pid) {
    std::erase_if(process.threads, [](const auto& each) { return each.second.spans.empty(); });
    for (auto& [tid, thread] : process.threads) Nest(&thread);
    processes.push_back(std::move(process));
  }
  return processes;
}

StepBreakdown BreakDown(const Process& process) {
  StepBreakdown result;
  result.process = process.name;
  for (const auto& [tid, thread] : process.threads) {
    for (const Span& span : thread.spans) {
      if (!thread.runs_steps || !span.in_step) continue;
      if (span.event->cat() == "step") {
        result.step_ms.push_back((span.end - span.begin) / 1000);
        result.total_ms += (span.end - span.begin) / 1000;
      }
      result.ms[span.in_server ? kInside : WordOf(span.event->cat())] += span.self / 1000;
    }
  }
  return result;
}

double P99(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::ceil(0.99 * static_cast<double>(values.size()))) - 1];
}

// Shortens a long name in the middle, since beginning and end tell names apart.
std::string Short(const std::string& name, size_t width = kNameWidth) {
  if (name.size() <= width) return name;
  const size_t front = (width - 2) / 2, back = width - 2 - front;
  return absl::StrCat(name.substr(0, front), "..", name.substr(name.size() - back));
}

// Returns the rows by descending total.
std::vector<const ProfileRow*> ByTotal(const std::map<std::string, ProfileRow>& rows) {
  std::vector<const ProfileRow*> sorted;
  sorted.reserve(rows.size());
  for (const auto& [name, row] : rows) sorted.push_back(&row);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const ProfileRow* a, const ProfileRow* b) { return a->total() > b->total(); });
  return sorted;
}

void Add(std::map<std::string, ProfileRow>* rows, const std::string& name, double ms) {
  ProfileRow& row = (*rows)[name];
  row.name = name;
  row.ms.push_back(ms);
}

// `steps` and `wall_ms` are totals over all processes that the rows come from.
void PrintRows(const std::map<std::string, ProfileRow>& rows, const char* title, double steps, double wall_ms,
               std::string* out) {
  if (rows.empty() || steps <= 0) return;
  const std::vector<const ProfileRow*> sorted = ByTotal(rows);
  double all = 0;
  for (const ProfileRow* row : sorted) all += row->total();
  absl::StrAppendFormat(out, "\n%-*s %10s %8s %8s %9s %9s\n", kNameWidth, title, "ms a step", "share", "times",
                        "mean ms", "p99 ms");
  ProfileRow others;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const ProfileRow& row = *sorted[i];
    if (i >= kMostRows && sorted.size() > kMostRows + 1) {
      others.ms.insert(others.ms.end(), row.ms.begin(), row.ms.end());
      continue;
    }
    absl::StrAppendFormat(out, "  %-*s %10.3f %6.1f %% %8d %9.3f %9.3f\n", kNameWidth - 2,
                          Short(row.name, kNameWidth - 2), row.total() / steps, 100 * row.total() / wall_ms,
                          row.ms.size(), row.mean(), row.p99());
  }
  if (!others.ms.empty()) {
    absl::StrAppendFormat(out, "  %-*s %10.3f %6.1f %% %8d\n", kNameWidth - 2,
                          absl::StrCat(sorted.size() - kMostRows, " others"), others.total() / steps,
                          100 * others.total() / wall_ms, others.ms.size());
  }
  absl::StrAppendFormat(out, "  %-*s %10.3f %6.1f %%\n", kNameWidth - 2, "all", all / steps, 100 * all / wall_ms);
}

void PrintSteps(const std::vector<StepBreakdown>& trainers, std::string* out) {
  for (const StepBreakdown& trainer : trainers) {
    absl::StrAppendFormat(out, "%s: %d step%s of %.3f ms, p99 %.3f ms\n", trainer.process, trainer.step_ms.size(),
                          trainer.step_ms.size() == 1 ? "" : "s",
                          trainer.total_ms / static_cast<double>(trainer.step_ms.size()), P99(trainer.step_ms));
  }
  std::map<std::string, double> sums;
  double steps = 0, wall = 0;
  for (const StepBreakdown& trainer : trainers) {
    for (const auto& [word, ms] : trainer.ms) sums[word] += ms;
    steps += static_cast<double>(trainer.step_ms.size());
    wall += trainer.total_ms;
  }
  std::vector<std::pair<double, std::string>> sorted;
  sorted.reserve(sums.size());
  for (const auto& [word, ms] : sums) sorted.emplace_back(ms, word);
  std::sort(sorted.rbegin(), sorted.rend());
  const bool several = trainers.size() > 1;
  absl::StrAppendFormat(out, "\n%-*s %10s %8s%s\n", kNameWidth, "where a step went", "ms a step", "share",
                        several ? "   least and most of a trainer" : "");
  for (const auto& [ms, word] : sorted) {
    absl::StrAppendFormat(out, "  %-*s %10.3f %6.1f %%", kNameWidth - 2, word, ms / steps, 100 * ms / wall);
    if (several) {
      const StepBreakdown *least = nullptr, *most = nullptr;
      const auto share = [&word = word](const StepBreakdown& t) {
        const auto found = t.ms.find(word);
        return found == t.ms.end() || t.total_ms <= 0 ? 0 : 100 * found->second / t.total_ms;
      };
      for (const StepBreakdown& trainer : trainers) {
        if (least == nullptr || share(trainer) < share(*least)) least = &trainer;
        if (most == nullptr || share(trainer) > share(*most)) most = &trainer;
      }
      absl::StrAppendFormat(out, "   %5.1f %% %s, %5.1f %% %s", share(*least), least->process, share(*most),
                            most->process);
    }
    *out += "\n";
  }
}

// Prints what trainers waited for, and which server answered last.
void PrintWaits(const std::vector<Process>& processes, double steps, double wall_ms, std::string* out) {
  std::map<std::string, ProfileRow> rows;
  for (const Process& process : processes) {
    for (const auto& [tid, thread] : process.threads) {
      for (const Span& span : thread.spans) {
        const std::string& cat = span.event->cat();
        if (!thread.runs_steps || !span.in_step || (cat != "wait" && cat != "data")) continue;
        std::string name = span.event->name();
        if (span.event->args().has_peer()) absl::StrAppend(&name, ", server ", span.event->args().peer(), " last");
        Add(&rows, name, span.self / 1000);
      }
    }
  }
  PrintRows(rows, "what a step waited for", steps, wall_ms, out);
}

// Prints how long rows took that were pulled ahead of their step, and how much of that no step waited for.
void PrintRowsAhead(const std::vector<Process>& processes, double steps, std::string* out) {
  double pulling = 0, waited = 0;
  for (const Process& process : processes) {
    if (!process.trainer()) continue;
    std::vector<const Span*> pulls, waits;
    for (const auto& [tid, thread] : process.threads) {
      for (const Span& span : thread.spans) {
        if (thread.name == kAheadThread && span.event->name() == kPullRows) pulls.push_back(&span);
        if (thread.runs_steps && span.event->name() == kAwaitRows) waits.push_back(&span);
      }
    }
    for (const Span* pull : pulls) pulling += (pull->end - pull->begin) / 1000;
    // A step also waits for its batch, before its rows are asked for.
    for (const Span* pull : pulls) {
      for (const Span* wait : waits) {
        waited += std::max(0.0, std::min(pull->end, wait->end) - std::max(pull->begin, wait->begin)) / 1000;
      }
    }
  }
  if (pulling <= 0) return;
  absl::StrAppendFormat(out, "  rows ahead of their step: %.3f ms a step, %.1f %% of it hidden; steps waited %.3f\n",
                        pulling / steps, 100 * (pulling - waited) / pulling, waited / steps);
}

void PrintOperators(const std::vector<Process>& processes, double steps, double wall_ms, std::string* out) {
  std::map<std::string, ProfileRow> rows;
  for (const Process& process : processes) {
    if (!process.trainer()) continue;
    for (const auto& [tid, thread] : process.threads) {
      for (const Span& span : thread.spans) {
        const std::string& cat = span.event->cat();
        if (span.in_server || thread.among_trainers() || (cat != "operator" && cat != "exchange" && cat != "client"))
          continue;
        const std::string& what = span.event->args().what();
        Add(&rows, what.empty() ? span.event->name() : absl::StrCat(span.event->name(), " ", what), span.self / 1000);
      }
    }
  }
  PrintRows(rows, "operators, on all threads", steps, wall_ms, out);
}

// Returns how much of the sorted spans lies before `end`; where spans overlap, the time counts once.
double TimeBefore(const std::vector<std::pair<double, double>>& spans, double end) {
  double sum = 0, until = 0;
  for (const auto& [begin, span_end] : spans) {
    const double from = std::max(begin, until), to = std::min(span_end, end);
    if (to > from) sum += to - from;
    until = std::max(until, span_end);
  }
  return sum;
}

// Prints the operations among trainers, and how much of their reduce-scatters ran while backward did. Backward of a
// step has ended when the trainer sends its verdict.
void PrintAmongTrainers(const std::vector<Process>& processes, double steps, double wall_ms, std::string* out) {
  std::map<std::string, ProfileRow> rows;
  double all = 0, hidden = 0, before = 0;
  for (const Process& process : processes) {
    if (!process.trainer()) continue;
    std::map<double, double> backward_ends;                                        // by step
    std::map<double, std::vector<std::pair<double, double>>> reducing, beginning;  // by step
    for (const auto& [tid, thread] : process.threads) {
      for (const Span& span : thread.spans) {
        const v1::TraceEvent& event = *span.event;
        if (event.name() == "send_barrier") {
          double& end = backward_ends[event.args().step()];
          end = std::max(end, span.begin);
        }
        if (!thread.among_trainers() || event.cat() != "exchange") continue;
        if (event.name() == kReduceScatter) reducing[event.args().step()].emplace_back(span.begin, span.end);
        if (event.name() == kOthersBegin) beginning[event.args().step()].emplace_back(span.begin, span.end);
        if (event.args().what().empty()) continue;  // a part
        Add(&rows, absl::StrCat(event.name(), " ", event.args().what()), (span.end - span.begin) / 1000);
      }
    }
    for (auto& [step, spans] : reducing) {
      const auto backward = backward_ends.find(step);
      if (backward == backward_ends.end()) continue;
      std::sort(spans.begin(), spans.end());
      all += TimeBefore(spans, std::numeric_limits<double>::max()) / 1000;
      hidden += TimeBefore(spans, backward->second) / 1000;
    }
    for (auto& [step, spans] : beginning) {
      std::sort(spans.begin(), spans.end());
      before += TimeBefore(spans, std::numeric_limits<double>::max()) / 1000;
    }
  }
  PrintRows(rows, "operations among trainers", steps, wall_ms, out);
  if (all <= 0) return;
  absl::StrAppendFormat(out,
                        "  reduce-scatter: %.3f ms a step, %.1f %% of it while backward ran; others began after %.3f\n",
                        all / steps, 100 * hidden / all, before / steps);
}

void PrintCalls(const std::vector<Process>& processes, double steps, std::string* out) {
  struct Calls {
    std::vector<double> ms;
    double out = 0, in = 0;
    int handled = 0;
    double at_server = 0, waited = 0, wire = 0;
  };
  struct Handled {
    double dur = -1, waited = 0;
  };
  std::map<std::string, Handled> handled;
  for (const Process& process : processes) {
    for (const v1::TraceEvent* event : process.handlers) {
      Handled& one = handled[event->args().call()];
      (event->cat() == "handler" ? one.dur : one.waited) = event->dur();
    }
  }
  std::map<std::string, Calls> all;
  for (const Process& process : processes) {
    for (const v1::TraceEvent* event : process.calls) {
      const v1::TraceArgs& args = event->args();
      Calls& calls = all[absl::StrCat(event->name(), ", server ", args.peer())];
      calls.ms.push_back(event->dur() / 1000);
      calls.out += args.bytes_out() / 1024;
      calls.in += args.bytes_in() / 1024;
      const auto found = handled.find(args.call());
      if (found == handled.end() || found->second.dur < 0) continue;
      ++calls.handled;
      calls.at_server += (found->second.dur - found->second.waited) / 1000;
      calls.waited += found->second.waited / 1000;
      calls.wire += (event->dur() - found->second.dur) / 1000;
    }
  }
  if (all.empty() || steps <= 0) return;
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, calls] : all) {
    double sum = 0;
    for (const double ms : calls.ms) sum += ms;
    sorted.emplace_back(sum, name);
  }
  std::sort(sorted.rbegin(), sorted.rend());
  absl::StrAppendFormat(out, "\n%-26s %7s %8s %8s   %s %8s %8s\n", "calls", "a step", "mean ms", "p99 ms",
                        "ms there: works, waits; way", "KiB out", "KiB in");
  for (size_t i = 0; i < std::min(sorted.size(), kMostCalls); ++i) {
    const Calls& calls = all[sorted[i].second];
    const double n = static_cast<double>(calls.ms.size()), handled_n = calls.handled;
    const std::string there = calls.handled == 0 ? "(not recorded)"
                                                 : absl::StrFormat("%.3f, %.3f; %.3f", calls.at_server / handled_n,
                                                                   calls.waited / handled_n, calls.wire / handled_n);
    absl::StrAppendFormat(out, "  %-24s %7.1f %8.3f %8.3f   %27s %8.1f %8.1f\n", Short(sorted[i].second, 24), n / steps,
                          sorted[i].first / n, P99(calls.ms), there, calls.out / n, calls.in / n);
  }
}

// Returns the times of the first and the last recorded span of a process.
std::pair<double, double> ExtentOf(const Process& process) {
  double begin = std::numeric_limits<double>::max(), end = 0;
  for (const auto& [tid, thread] : process.threads) {
    for (const Span& span : thread.spans) {
      // The extent of a trainer is that of its steps; readers start before the first one.
      if (process.trainer() && !(thread.runs_steps && span.in_step)) continue;
      begin = std::min(begin, span.begin);
      end = std::max(end, span.end);
    }
  }
  return {begin, end};
}

void PrintThreads(const Process& process, std::string* out) {
  const auto [begin, end] = ExtentOf(process);
  if (end <= begin) return;
  std::vector<std::pair<double, std::string>> lines;
  for (const auto& [tid, thread] : process.threads) {
    double busy = 0, waiting = 0;
    for (const Span& span : thread.spans) {
      if (span.begin < begin - kTickUs || span.end > end + kTickUs) continue;
      (IsWaiting(span.event->cat()) ? waiting : busy) += 100 * span.self / (end - begin);
    }
    lines.emplace_back(busy, absl::StrFormat("%s %.0f %% busy%s", thread.name, busy,
                                             waiting >= 0.5 ? absl::StrFormat(" %.0f %% waiting", waiting) : ""));
  }
  std::sort(lines.rbegin(), lines.rend());
  double others = 0;
  std::vector<std::string> texts;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i < kMostThreads) {
      texts.push_back(lines[i].second);
    } else {
      others += lines[i].first;
    }
  }
  if (lines.size() > kMostThreads) {
    texts.push_back(absl::StrFormat("%d others %.0f %% together", lines.size() - kMostThreads, others));
  }
  absl::StrAppend(out, "  ", process.name, ": ", absl::StrJoin(texts, ", "), "\n");
}

// Prints the work of servers, and what calls waited for there.
void PrintServers(const std::vector<Process>& processes, std::string* out) {
  std::map<std::string, ProfileRow> work, waits;
  double wall_ms = 0, steps = 0;
  for (const Process& process : processes) {
    const auto [begin, end] = ExtentOf(process);
    std::set<double> seen;
    bool serves = false;
    for (const auto& [tid, thread] : process.threads) {
      for (const Span& span : thread.spans) {
        if (!span.in_server) continue;
        serves = true;
        if (std::isfinite(span.event->args().step())) seen.insert(span.event->args().step());
        const std::string& what = span.event->args().what();
        Add(&work, what.empty() ? span.event->name() : absl::StrCat(span.event->name(), " ", what), span.self / 1000);
      }
    }
    for (const v1::TraceEvent* event : process.handlers) {
      if (event->cat() != "wait") continue;
      const std::string& what = event->args().what();
      Add(&waits, absl::StrCat(event->name(), what.empty() ? "" : ": ", what), event->dur() / 1000);
    }
    if (!serves) continue;
    wall_ms += (end - begin) / 1000;
    steps += static_cast<double>(seen.size());
  }
  PrintRows(work, "servers' work, on all threads", steps, wall_ms, out);
  PrintRows(waits, "what calls waited for at servers", steps, wall_ms, out);
}

}  // namespace

double ProfileRow::total() const {
  double sum = 0;
  for (const double each : ms) sum += each;
  return sum;
}

double ProfileRow::p99() const { return P99(ms); }

std::vector<StepBreakdown> BreakDownSteps(const v1::Trace& trace) {
  std::vector<StepBreakdown> trainers;
  for (const Process& process : ProcessesOf(trace)) {
    if (process.trainer()) trainers.push_back(BreakDown(process));
  }
  return trainers;
}

std::string ProfileTable(const v1::Trace& trace) {
  const std::vector<Process> processes = ProcessesOf(trace);
  std::vector<StepBreakdown> trainers;
  for (const Process& process : processes) {
    if (process.trainer()) trainers.push_back(BreakDown(process));
  }
  std::string out;
  double steps = 0, wall_ms = 0;
  for (const StepBreakdown& trainer : trainers) {
    steps += static_cast<double>(trainer.step_ms.size());
    wall_ms += trainer.total_ms;
  }
  for (const Process& process : processes) {
    if (process.dropped > 0) {
      absl::StrAppendFormat(&out, "%s: %.0f events had no room and are missing: profile fewer steps\n", process.name,
                            process.dropped);
    }
    if (process.threads.empty()) {
      absl::StrAppendFormat(&out, "%s: nothing was recorded: it ran none of the steps %.0f:%.0f; see --profile_steps\n",
                            process.name, process.begin, process.end);
    }
  }
  if (!trainers.empty()) {
    PrintSteps(trainers, &out);
    PrintWaits(processes, steps, wall_ms, &out);
    PrintRowsAhead(processes, steps, &out);
    PrintOperators(processes, steps, wall_ms, &out);
    PrintAmongTrainers(processes, steps, wall_ms, &out);
    PrintCalls(processes, steps, &out);
  }
  PrintServers(processes, &out);
  if (std::any_of(processes.begin(), processes.end(), [](const Process& p) { return !p.threads.empty(); })) {
    out += "\nthreads\n";
    for (const Process& process : processes) PrintThreads(process, &out);
  }
  return out;
}

}  // namespace weir
