#include "framework/profile/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "google/protobuf/util/json_util.h"

namespace weir {

namespace {

// A full profiler writes 80 MB, about 300 bytes an event; a trace of several processes may be read again.
constexpr uint64_t kLargestTrace = uint64_t{1} << 30;
// First row for calls; processes have fewer threads than this.
constexpr int kFirstCallRow = 10'000;
constexpr int kServerPid = 1'001;

std::string BootOfThisMachine() {
  const absl::StatusOr<std::string> boot = ReadWholeFile("/proc/sys/kernel/random/boot_id", 100);
  return boot.ok() ? std::string(absl::StripAsciiWhitespace(*boot)) : "";
}

// Returns 4 for "trainer 3", 1002 for "server 1", and the largest int for a name without a valid index.
int PidOf(std::string_view process) {
  const size_t blank = process.find(' ');
  int index = 0;
  if (blank == std::string_view::npos ||
      !absl::SimpleAtoi(absl::string_view(process.data() + blank + 1, process.size() - blank - 1), &index) ||
      index < 0 || index > 1'000'000) {
    return std::numeric_limits<int>::max();
  }
  // Trainers beyond the first thousand get ids behind those of servers.
  if (process.substr(0, blank) == "server") return kServerPid + index;
  return index < kServerPid - 1 ? index + 1 : 2'000'000 + index;
}

double Microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

v1::TraceEvent NameOf(const char* what, int pid, int tid, std::string_view name) {
  v1::TraceEvent event;
  event.set_name(what);
  event.set_ph("M");
  event.set_pid(pid);
  event.set_tid(tid);
  event.mutable_args()->set_name(std::string(name));
  return event;
}

v1::TraceEvent OrderOf(const char* what, int pid, int tid, int order) {
  v1::TraceEvent event;
  event.set_name(what);
  event.set_ph("M");
  event.set_pid(pid);
  event.set_tid(tid);
  event.mutable_args()->set_sort_index(order);
  return event;
}

std::string CallText(uint64_t call) { return absl::StrCat(absl::Hex(call)); }

v1::TraceEvent ToTrace(const ProfileEvent& from, const std::vector<std::string>& names, int pid, int tid) {
  const auto text = [&names](ProfileName name) { return name.id() < names.size() ? names[name.id()] : std::string(); };
  v1::TraceEvent to;
  to.set_name(text(from.name));
  to.set_cat(std::string(ProfileKindName(from.kind)));
  to.set_ph("X");
  to.set_ts(Microseconds(from.begin_ns));
  to.set_dur(Microseconds(from.end_ns - from.begin_ns));
  to.set_pid(pid);
  to.set_tid(tid);
  v1::TraceArgs* const args = to.mutable_args();
  args->set_step(static_cast<double>(from.step));
  if (from.detail.id() != 0) args->set_what(text(from.detail));
  if (from.lane >= 0) args->set_lane(from.lane);
  if (from.peer >= 0) args->set_peer(from.peer);
  if (from.bytes_out >= 0) args->set_bytes_out(static_cast<double>(from.bytes_out));
  if (from.bytes_in >= 0) args->set_bytes_in(static_cast<double>(from.bytes_in));
  if (from.call != 0) args->set_call(CallText(from.call));
  return to;
}

// Adds the rows of one track: events of one call share a row, overlapping calls get different rows.
void AddTrack(const std::vector<ProfileEvent>& events, const std::vector<std::string>& names, const std::string& name,
              int pid, int* next_row, v1::Trace* trace) {
  struct Group {
    int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
    std::vector<const ProfileEvent*> events;
  };
  std::map<std::pair<uint64_t, const ProfileEvent*>, Group> by_call;  // an event without a call is its own group
  for (const ProfileEvent& event : events) {
    Group& group = by_call[{event.call, event.call == 0 ? &event : nullptr}];
    group.begin = std::min(group.begin, event.begin_ns);
    group.end = std::max(group.end, event.end_ns);
    group.events.push_back(&event);
  }
  std::vector<Group*> groups;
  groups.reserve(by_call.size());
  for (auto& [key, group] : by_call) groups.push_back(&group);
  std::sort(groups.begin(), groups.end(), [](const Group* a, const Group* b) { return a->begin < b->begin; });
  const int first = *next_row;
  std::vector<int64_t> busy_until;  // of each row
  for (const Group* group : groups) {
    size_t row = 0;
    while (row < busy_until.size() && busy_until[row] > group->begin) ++row;
    if (row == busy_until.size()) busy_until.push_back(0);
    busy_until[row] = group->end;
    for (const ProfileEvent* event : group->events) {
      *trace->add_trace_events() = ToTrace(*event, names, pid, first + static_cast<int>(row));
    }
  }
  for (size_t row = 0; row < busy_until.size(); ++row) {
    *trace->add_trace_events() = NameOf("thread_name", pid, (*next_row), name);
    *trace->add_trace_events() = OrderOf("thread_sort_index", pid, *next_row, *next_row);
    ++*next_row;
  }
}

// Client and server event of a call.
struct CallEnds {
  const v1::TraceEvent* call = nullptr;
  const v1::TraceEvent* handler = nullptr;
};

std::map<std::string, CallEnds> CallsOf(const std::vector<v1::Trace>& traces) {
  std::map<std::string, CallEnds> calls;
  for (const v1::Trace& trace : traces) {
    for (const v1::TraceEvent& event : trace.trace_events()) {
      if (!IsSpan(event) || event.args().call().empty()) continue;
      if (event.cat() == ProfileKindName(ProfileKind::kCall)) calls[event.args().call()].call = &event;
      if (event.cat() == ProfileKindName(ProfileKind::kHandler)) calls[event.args().call()].handler = &event;
    }
  }
  return calls;
}

// Returns by pid what to add to its times, so that all processes follow the clock of the first one.
std::map<int, double> OffsetsOf(const std::vector<v1::TraceProcess>& processes,
                                const std::map<std::string, CallEnds>& calls) {
  // Best estimate for a pair of machines: the shortest network time seen (both ways), and the lead of the second
  // machine's clock in that call. The shortest trip bounds the error of the estimate best.
  struct Seen {
    double way = std::numeric_limits<double>::infinity();
    double ahead = 0;
  };
  std::map<int, std::string> machine;
  for (const v1::TraceProcess& process : processes) {
    machine[process.pid()] = process.boot().empty() ? absl::StrCat("process ", process.pid()) : process.boot();
  }
  std::map<std::pair<std::string, std::string>, Seen> between;
  for (const auto& [id, ends] : calls) {
    if (ends.call == nullptr || ends.handler == nullptr) continue;
    const std::string& here = machine[ends.call->pid()];
    const std::string& there = machine[ends.handler->pid()];
    if (here == there) continue;
    const double way = ends.call->dur() - ends.handler->dur();
    const double ahead = ends.handler->ts() + ends.handler->dur() / 2 - ends.call->ts() - ends.call->dur() / 2;
    // Calls of both directions count for one pair.
    const bool turned = there < here;
    Seen& seen = between[turned ? std::pair(there, here) : std::pair(here, there)];
    if (way >= seen.way) continue;
    seen = {way, turned ? -ahead : ahead};
  }
  std::map<std::string, double> offset;
  if (!processes.empty()) offset[machine[processes.front().pid()]] = 0;
  // Follows pairs of machines that have exchanged calls until every reachable machine has an offset to the first one.
  for (bool more = true; more;) {
    more = false;
    for (const auto& [pair, seen] : between) {
      const auto here = offset.find(pair.first), there = offset.find(pair.second);
      if ((here == offset.end()) == (there == offset.end())) continue;
      if (there == offset.end()) {
        offset[pair.second] = here->second - seen.ahead;
      } else {
        offset[pair.first] = there->second + seen.ahead;
      }
      more = true;
    }
  }
  std::map<int, double> by_pid;
  for (const auto& [pid, name] : machine) by_pid[pid] = offset.contains(name) ? offset[name] : 0;
  return by_pid;
}

void AddArrow(const v1::TraceEvent& at, const char* ph, const std::string& id, v1::Trace* trace) {
  v1::TraceEvent* const arrow = trace->add_trace_events();
  arrow->set_name("call");
  arrow->set_cat(std::string(ProfileKindName(ProfileKind::kCall)));
  arrow->set_ph(ph);
  arrow->set_ts(at.ts());
  arrow->set_pid(at.pid());
  arrow->set_tid(at.tid());
  arrow->set_id(id);
  // Binds the arrow to the span that encloses this time, not to the next one.
  if (*ph == 'f') arrow->set_bp("e");
}

}  // namespace

bool IsSpan(const v1::TraceEvent& event) {
  return event.ph() == "X" && std::isfinite(event.ts()) && std::isfinite(event.dur()) && event.dur() >= 0;
}

v1::Trace MakeTrace(const Profiler::Recorded& recorded, std::string_view process) {
  const int pid = PidOf(process);
  v1::Trace trace;
  trace.set_display_time_unit("ms");
  v1::TraceProcess* const about = trace.mutable_other_data()->add_processes();
  about->set_name(std::string(process));
  about->set_pid(pid);
  about->set_boot(BootOfThisMachine());
  about->set_begin(static_cast<double>(recorded.begin));
  about->set_end(static_cast<double>(recorded.end));
  about->set_dropped(static_cast<double>(recorded.dropped));
  *trace.add_trace_events() = NameOf("process_name", pid, 0, process);
  *trace.add_trace_events() = OrderOf("process_sort_index", pid, 0, pid);

  std::map<std::string, int> threads_of_name;
  for (const auto& thread : recorded.threads) ++threads_of_name[thread.name];
  std::map<std::string, int> numbered;
  std::map<uint32_t, std::vector<ProfileEvent>> tracks;
  int row = 0;
  for (const auto& thread : recorded.threads) {
    ++row;
    const std::string name =
        threads_of_name[thread.name] == 1 ? thread.name : absl::StrCat(thread.name, " ", ++numbered[thread.name]);
    bool any = false;
    for (const ProfileEvent& event : thread.events) {
      if (event.track != 0) {
        tracks[event.track].push_back(event);
        continue;
      }
      any = true;
      *trace.add_trace_events() = ToTrace(event, recorded.names, pid, row);
    }
    if (any) *trace.add_trace_events() = NameOf("thread_name", pid, row, name);
  }
  row = kFirstCallRow;
  for (const auto& [track, events] : tracks) {
    AddTrack(events, recorded.names, track < recorded.tracks.size() ? recorded.tracks[track] : "", pid, &row, &trace);
  }
  return trace;
}

absl::StatusOr<v1::Trace> MergeTraces(const std::vector<v1::Trace>& traces) {
  std::map<int, const v1::Trace*> by_pid;
  std::vector<v1::TraceProcess> processes;
  for (const v1::Trace& trace : traces) {
    for (const v1::TraceProcess& process : trace.other_data().processes()) {
      if (!by_pid.emplace(process.pid(), &trace).second) {
        return absl::InvalidArgumentError(absl::StrCat("two traces are of ", process.name(), "; each process has one"));
      }
      processes.push_back(process);
    }
  }
  std::sort(processes.begin(), processes.end(),
            [](const v1::TraceProcess& a, const v1::TraceProcess& b) { return a.pid() < b.pid(); });
  const std::map<std::string, CallEnds> calls = CallsOf(traces);
  const std::map<int, double> offsets = OffsetsOf(processes, calls);

  v1::Trace merged;
  merged.set_display_time_unit("ms");
  for (v1::TraceProcess& process : processes) {
    process.set_clock_offset_us(process.clock_offset_us() + offsets.at(process.pid()));
    *merged.mutable_other_data()->add_processes() = process;
  }
  const auto moved = [&offsets](v1::TraceEvent event) {
    const auto offset = offsets.find(event.pid());
    if (event.has_ts() && offset != offsets.end()) event.set_ts(event.ts() + offset->second);
    return event;
  };
  std::set<const v1::Trace*> added;
  for (const auto& [pid, trace] : by_pid) {
    if (!added.insert(trace).second) continue;
    for (const v1::TraceEvent& event : trace->trace_events()) {
      // Arrows are drawn again below, with corrected times.
      if (event.ph() != "s" && event.ph() != "f") *merged.add_trace_events() = moved(event);
    }
  }
  for (const auto& [id, ends] : calls) {
    if (ends.call == nullptr || ends.handler == nullptr) continue;
    AddArrow(moved(*ends.call), "s", id, &merged);
    AddArrow(moved(*ends.handler), "f", id, &merged);
  }
  return merged;
}

absl::Status WriteTrace(const std::string& path, const v1::Trace& trace) {
  std::string json;
  const google::protobuf::util::Status written = google::protobuf::util::MessageToJsonString(trace, &json);
  if (!written.ok())
    return absl::InternalError(absl::StrCat("a trace cannot be written as JSON: ", std::string(written.message())));
  return WriteFileAtomically(path, json);
}

absl::StatusOr<v1::Trace> ParseTrace(std::string_view json) {
  v1::Trace trace;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const google::protobuf::util::Status read = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), &trace, options);
  if (!read.ok())
    return absl::DataLossError(absl::StrCat("no trace of --profile: ", std::string(read.message()).substr(0, 500)));
  return trace;
}

absl::StatusOr<v1::Trace> ReadTrace(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string json, ReadWholeFile(path, kLargestTrace));
  absl::StatusOr<v1::Trace> trace = ParseTrace(json);
  if (!trace.ok()) return absl::Status(trace.status().code(), absl::StrCat(path, ": ", trace.status().message()));
  return trace;
}

}  // namespace weir
