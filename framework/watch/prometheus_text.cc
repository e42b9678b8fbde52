#include "framework/watch/prometheus_text.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/utf8.h"

namespace weir {
namespace {

enum class As {
  kItsKind,
  kGauge,  // a counter that goes down as well
};

// Description of an entry, beyond its unit.
struct Known {
  std::string_view key;        // the entry's name without the process, and with '*' for the part that is a label
  std::string_view name = "";  // of the family, without "weir_" and "_total"; "" for the one that follows from the key
  As as = As::kItsKind;
  std::string_view help;
};

// docs/monitoring.md has the same families.
constexpr Known kKnown[] = {
    {.key = "*.messages",
     .name = "messages",
     .help = "Calls of a trainer or to a server, each try counted, and messages among trainers."},
    {.key = "*.bytes_out", .name = "sent_bytes", .help = "Bytes of requests or answers that went out, by method."},
    {.key = "*.bytes_in", .name = "received_bytes", .help = "Bytes of requests or answers that came in, by method."},
    {.key = "*.call_time",
     .name = "call_time_seconds",
     .help = "Time of a call by method: at a trainer until the answer is there, at a server until it is made."},
    {.key = "wait.*", .name = "wait_seconds", .help = "Time in which a step waited, by what for."},
    {.key = "eval.*", .name = "eval_figure", .help = "Figure of the last evaluation, by its name."},
    {.key = "step", .help = "Steps done, those before a resume included."},
    {.key = "steps", .help = "Steps done by this trainer since it started."},
    {.key = "trainers", .help = "Trainers that have joined and not left."},
    {.key = "longest_wait", .help = "Longest time for which a call of a trainer has been waiting now."},
    {.key = "version", .help = "Version of the parameters of this server."},
    {.key = "examples", .help = "Examples trained on by this trainer."},
    {.key = "loss", .help = "Mean loss of the training since the last report."},
    {.key = "auc", .help = "AUC of the training since the last report."},
    {.key = "calibration", .help = "Sum of the predictions divided by that of the labels, since the last report."},
    {.key = "normalized_entropy", .help = "Logloss divided by that of a constant prediction, since the last report."},
    {.key = "examples_per_s", .name = "examples_per_second", .help = "Examples of all trainers since the last report."},
    {.key = "fraction", .help = "Part of the run that is done, from 0 to 1."},
    {.key = "restarts", .help = "Starts of the job after a death."},
    {.key = "lost_seconds", .help = "Time from the last step before each death to the first one after it."},
    {.key = "repeated_steps", .help = "Steps done twice because of deaths."},
    {.key = "goodput", .help = "Share of the run's time that deaths have not cost."},
    {.key = "figure.*",
     .name = "train_figure",
     .help = "Other figure of the training since the last report, by its name."},
    {.key = "step_time", .help = "Time of a step."},
    {.key = "skipped_steps", .help = "Steps skipped because a gradient was not finite."},
    {.key = "large_gradients", .help = "Elements of gradients beyond 65504 that were pushed in WIRE_FLOAT16."},
    {.key = "variables.bytes", .as = As::kGauge, .help = "Memory of the variables of a step."},
    {.key = "data.read", .help = "Bytes read from data files, as they lie there."},
    {.key = "prefetch.ahead", .help = "Rows pulled ahead of their version."},
    {.key = "prefetch.corrected", .help = "Rows pulled ahead that a later update changed."},
    {.key = "prefetch.late", .help = "Batches that a step had to wait for."},
    {.key = "cache.hits", .help = "Rows found in the cache of rows."},
    {.key = "cache.misses", .help = "Rows pulled because the cache had no fresh copy."},
    {.key = "device.graph_replays", .name = "device_graph_replays", .help = "Replays of recorded kernels on a device."},
    {.key = "device.graph_captures", .name = "device_graph_captures", .help = "Recordings of kernels on a device."},
    {.key = "push.applied", .help = "Steps whose gradients took effect on this server."},
    {.key = "push.skipped", .help = "Steps whose gradients took no effect on this server."},
    {.key = "push.repeated", .help = "Pushes that this server had already."},
    {.key = "staleness.most_steps", .as = As::kGauge, .help = "Largest lead of a trainer over the slowest one."},
    {.key = "delay_compensation.most_bytes", .as = As::kGauge, .help = "Most memory of values kept for compensation."},
    {.key = "table.*.rows", .as = As::kGauge, .help = "Rows of a table on this server."},
    {.key = "table.*.bytes", .as = As::kGauge, .help = "Memory of the rows of a table on this server."},
    {.key = "table.*.made", .help = "Rows made by updates and pulls."},
    {.key = "table.*.in_memory",
     .name = "table_in_memory_rows",
     .as = As::kGauge,
     .help = "Rows in memory of a table that has rows on disk."},
    {.key = "table.*.used", .help = "Ids in calls for a table that has rows on disk."},
    {.key = "table.*.read_from_disk", .help = "Rows brought from disk into memory."},
    {.key = "table.*.written_to_disk", .help = "Changed rows that left memory."},
    {.key = "table.*.expired", .help = "Rows removed because they were unused for too long."},
    {.key = "table.*.evicted", .help = "Rows removed because the table was full."},
    {.key = "table.*.faded", .help = "Rows removed for their score."},
    {.key = "table.*.candidates", .as = As::kGauge, .help = "Ids that wait for admission."},
    {.key = "table.*.dropped", .help = "Gradients of ids that were not admitted."},
    {.key = "table.*.tombstones", .as = As::kGauge, .help = "Ids remembered as removed."},
    {.key = "table.*.skipped_rows", .help = "Updates of rows skipped because a gradient was not finite."},
};

const Known* FindKnown(std::string_view key) {
  static const auto* const known = [] {
    auto* map = new absl::flat_hash_map<std::string_view, const Known*>();
    for (const Known& each : kKnown) map->emplace(each.key, &each);
    return map;
  }();
  const auto found = known->find(key);
  return found == known->end() ? nullptr : found->second;
}

// Units in terms of Prometheus' base units.
struct Unit {
  std::string_view name;  // "" if it is not a base unit
  double per_base = 1;    // a divisor: the quotient is rounded once
};

Unit BaseUnit(std::string_view unit) {
  if (unit == "bytes") return {"bytes", 1};
  if (unit == "seconds") return {"seconds", 1};
  if (unit == "milliseconds") return {"seconds", 1e3};
  if (unit == "microseconds") return {"seconds", 1e6};
  if (unit == "nanoseconds") return {"seconds", 1e9};
  return {"", 1};
}

// Appends the shortest text that reads as the same number.
void AppendNumber(double value, std::string* out) {
  if (std::isnan(value)) {
    out->append("NaN");
  } else if (std::isinf(value)) {
    out->append(value > 0 ? "+Inf" : "-Inf");
  } else {
    std::array<char, 32> text;
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
    out->append(text.data(), end.ptr);
  }
}

std::string Escaped(std::string_view value) {
  std::string text;
  for (const char c : ToUtf8(value)) {
    if (c == '\\' || c == '"') text.push_back('\\');
    if (c == '\n') {
      text.append("\\n");
    } else {
      text.push_back(c);
    }
  }
  return text;
}

// Returns `text` with '_' in place of what names may not have.
std::string NameOf(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

void AppendLabel(std::string_view name, std::string_view value, std::string* labels) {
  if (!labels->empty()) labels->push_back(',');
  absl::StrAppend(labels, NameOf(name), "=\"", Escaped(value), "\"");
}

// "role="trainer",id="0"".
std::string LabelText(const PrometheusLabels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) AppendLabel(name, value, &text);
  return text;
}

void AppendSample(std::string_view name, std::string_view labels, double value, std::string* out) {
  out->append(name);
  if (!labels.empty()) absl::StrAppend(out, "{", std::string(labels), "}");
  out->push_back(' ');
  AppendNumber(value, out);
  out->push_back('\n');
}

void AppendHead(std::string_view name, std::string_view type, std::string_view help, std::string* out) {
  absl::StrAppend(out, "# HELP ", std::string(name), " ", std::string(help), "\n# TYPE ");
  absl::StrAppend(out, std::string(name), " ", std::string(type), "\n");
}

// Labels that the parts of an entry's name become.
struct Place {
  std::string_view role, id;  // "" if the name has none
  std::string key;            // into kKnown
  std::string_view label, label_value;
};

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Cuts "a" off "a.b.c".
std::string_view CutFirst(std::string_view* name) {
  const std::string_view first = name->substr(0, name->find('.'));
  name->remove_prefix(std::min(name->size(), first.size() + 1));
  return first;
}

Place PlaceOf(std::string_view name) {
  Place place;
  std::string_view rest = name;
  const std::string_view role = CutFirst(&rest), id = CutFirst(&rest);
  if ((role == "trainer" || role == "server") && IsNumber(id) && !rest.empty()) {
    place.role = role;
    place.id = id;
    name = rest;
  }
  const size_t first = name.find('.'), last = name.rfind('.');
  place.key = std::string(name);
  if (first == std::string_view::npos) return place;
  const std::string_view begin = name.substr(0, first), end = name.substr(last + 1);
  if (begin == "table" && first != last) {
    place.label = "table";
    // A table's name may have dots.
    place.label_value = name.substr(first + 1, last - first - 1);
    place.key = absl::StrCat("table.*.", std::string(end));
  } else if (begin == "wait" || begin == "eval" || begin == "figure") {
    place.label = begin == "wait" ? "what" : "figure";
    place.label_value = name.substr(first + 1);
    place.key = absl::StrCat(std::string(begin), ".*");
  } else if (!place.role.empty() && first == last &&
             (end == "messages" || end == "bytes_in" || end == "bytes_out" || end == "call_time")) {
    place.label = "method";
    place.label_value = begin;
    place.key = absl::StrCat("*.", std::string(end));
  }
  return place;
}

std::string_view KindText(Counters::Kind kind) {
  switch (kind) {
    case Counters::Kind::kCounter:
      return "counter";
    case Counters::Kind::kGauge:
      return "gauge";
    case Counters::Kind::kHistogram:
      return "histogram";
  }
  return "untyped";
}

bool EndsIn(std::string_view name, std::string_view word) {
  return name == word ||
         (name.size() > word.size() && name.ends_with(word) && name[name.size() - word.size() - 1] == '_');
}

std::string FamilyName(const Place& place, const Known* known, Counters::Kind kind, std::string_view unit) {
  std::string name = "weir_";
  const std::string_view base = BaseUnit(unit).name;
  if (known != nullptr && !known->name.empty()) {
    name.append(known->name);
  } else {
    // "table.*.rows": the label is not part of the name.
    std::string_view key = place.key;
    while (!key.empty()) {
      const std::string_view next = CutFirst(&key);
      if (next == "*") continue;
      absl::StrAppend(&name, name.back() == '_' ? "" : "_", NameOf(next));
    }
    const std::string_view suffix = base.empty() && kind == Counters::Kind::kCounter ? unit : base;
    if (!suffix.empty() && !EndsIn(name, suffix)) absl::StrAppend(&name, "_", NameOf(suffix));
  }
  if (kind == Counters::Kind::kCounter) name.append("_total");
  return name;
}

// Ends of the buckets of a histogram, as label values.
const std::array<std::string, Histogram::kBuckets>& BucketEnds(double per_base) {
  const auto make = [](double of) {
    auto* ends = new std::array<std::string, Histogram::kBuckets>();
    for (size_t i = 0; i + 1 < ends->size(); ++i) AppendNumber(std::ldexp(1.0, static_cast<int>(i)) / of, &(*ends)[i]);
    ends->back() = "+Inf";
    return ends;
  };
  static const auto* const plain = make(1);
  static const auto* const microseconds = make(1e6);
  static const auto* const milliseconds = make(1e3);
  static const auto* const nanoseconds = make(1e9);
  return per_base == 1e6 ? *microseconds : per_base == 1e3 ? *milliseconds : per_base == 1e9 ? *nanoseconds : *plain;
}

void AppendHistogram(std::string_view name, const std::string& labels, const Histogram::Counts& counts, double per_base,
                     std::string* out) {
  const auto& ends = BucketEnds(per_base);
  const std::string before = absl::StrCat(std::string(name), "_bucket{", labels, labels.empty() ? "" : ",", "le=\"");
  int64_t so_far = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    so_far += counts.buckets[i];
    absl::StrAppend(out, before, ends[i], "\"} ", so_far, "\n");
  }
  AppendSample(absl::StrCat(std::string(name), "_sum"), labels, static_cast<double>(counts.sum) / per_base, out);
  AppendSample(absl::StrCat(std::string(name), "_count"), labels, static_cast<double>(so_far), out);
}

struct Family {
  Counters::Kind kind;
  std::string help;
  std::map<std::string, std::string> samples;  // by labels
};

std::string ValueOf(const PrometheusLabels& labels, std::string_view name) {
  for (const auto& [label, value] : labels) {
    if (label == name) return value;
  }
  return "";
}

// Returns the number in field `index` of a file of /proc whose fields are separated by blanks.
std::optional<double> FieldOf(std::string_view text, int index) {
  for (; index > 0; --index) {
    const size_t blank = text.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    text.remove_prefix(blank + 1);
  }
  const std::string field(text.substr(0, text.find_first_of(" \n")));
  double value = 0;
  if (!absl::SimpleAtod(field, &value)) return std::nullopt;
  return value;
}

// Seconds since 1970.
std::optional<double> StartTime() {
  constexpr uint64_t kLargest = 1 << 24;  // /proc/stat has a line per core and interrupt
  const absl::StatusOr<std::string> self = ReadWholeFile("/proc/self/stat", kLargest);
  const absl::StatusOr<std::string> machine = ReadWholeFile("/proc/stat", kLargest);
  if (!self.ok() || !machine.ok()) return std::nullopt;
  // The name of the program stands in parentheses and may have some, too. Field 22 is the 20th behind it.
  const size_t name_end = self->rfind(')');
  const size_t boot = machine->find("\nbtime ");
  if (name_end == std::string::npos || boot == std::string::npos) return std::nullopt;
  const std::optional<double> ticks = FieldOf(std::string_view(*self).substr(name_end), 20);
  const std::optional<double> booted = FieldOf(std::string_view(*machine).substr(boot + 1), 1);
  if (!ticks || !booted) return std::nullopt;
  return *booted + *ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::optional<double> OpenDescriptors() {
  DIR* const directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return std::nullopt;
  int64_t entries = 0;
  while (::readdir(directory) != nullptr) ++entries;
  ::closedir(directory);
  // Without ".", ".." and the directory itself.
  return static_cast<double>(entries - 3);
}

}  // namespace

std::string PrometheusText(absl::Span<const Counters::Entry> entries, const PrometheusLabels& constant) {
  const std::string own_role = ValueOf(constant, "role"), own_id = ValueOf(constant, "id");
  const std::string own_labels = LabelText(constant);
  std::map<std::string, Family> families;
  for (const Counters::Entry& entry : entries) {
    const Place place = PlaceOf(entry.name);
    const Known* const known = FindKnown(place.key);
    const Counters::Kind kind = known != nullptr && known->as == As::kGauge && entry.kind == Counters::Kind::kCounter
                                    ? Counters::Kind::kGauge
                                    : entry.kind;
    std::string labels = own_labels;
    if (!place.role.empty() && (place.role != own_role || place.id != own_id)) {
      PrometheusLabels others = {{"role", std::string(place.role)}, {"id", std::string(place.id)}};
      for (const auto& label : constant) {
        if (label.first != "role" && label.first != "id") others.push_back(label);
      }
      labels = LabelText(others);
    }
    if (!place.label.empty()) AppendLabel(place.label, place.label_value, &labels);
    const std::string name = FamilyName(place, known, kind, entry.unit);
    const auto [family, added] = families.try_emplace(name, Family{.kind = kind});
    if (added) {
      family->second.help = known != nullptr ? std::string(known->help) : absl::StrCat("In ", entry.unit, ".");
    }
    if (family->second.kind != kind) continue;
    std::string& samples = family->second.samples[labels];
    if (!samples.empty()) continue;
    const double per_base = BaseUnit(entry.unit).per_base;
    if (kind == Counters::Kind::kHistogram) {
      AppendHistogram(name, labels, entry.histogram, per_base, &samples);
    } else {
      const double value = entry.kind == Counters::Kind::kGauge ? entry.gauge : static_cast<double>(entry.value);
      AppendSample(name, labels, value / per_base, &samples);
    }
  }
  std::string text;
  for (const auto& [name, family] : families) {
    AppendHead(name, KindText(family.kind), family.help, &text);
    for (const auto& [labels, samples] : family.samples) text.append(samples);
  }
  return text;
}

std::string PrometheusInfo(std::string_view name, PrometheusLabels labels, const PrometheusLabels& constant) {
  labels.insert(labels.begin(), constant.begin(), constant.end());
  const std::string family = absl::StrCat("weir_", NameOf(name), "_info");
  std::string text;
  AppendHead(family, "gauge", "What the process says about itself, in labels; the value is 1.", &text);
  AppendSample(family, LabelText(labels), 1, &text);
  return text;
}

std::string PrometheusProcess(const PrometheusLabels& constant) {
  const std::string labels = LabelText(constant);
  std::string text;
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help,
                       std::optional<double> value) {
    if (!value) return;
    AppendHead(name, type, help, &text);
    AppendSample(name, labels, *value, &text);
  };
  rusage usage = {};
  std::optional<double> cpu;
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    cpu = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
          static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  }
  std::optional<double> virtual_pages, resident_pages;
  if (const absl::StatusOr<std::string> memory = ReadWholeFile("/proc/self/statm", 4096); memory.ok()) {
    virtual_pages = FieldOf(*memory, 0);
    resident_pages = FieldOf(*memory, 1);
  }
  const auto bytes = [](std::optional<double> pages) -> std::optional<double> {
    if (!pages) return std::nullopt;
    return *pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
  };
  rlimit descriptors = {};
  std::optional<double> most;
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) most = static_cast<double>(descriptors.rlim_cur);
  static const std::optional<double> start = StartTime();
  add("process_cpu_seconds_total", "counter", "User and system time.", cpu);
  add("process_max_fds", "gauge", "Most file descriptors that the process may have open.", most);
  add("process_open_fds", "gauge", "Open file descriptors.", OpenDescriptors());
  add("process_resident_memory_bytes", "gauge", "Memory in RAM.", bytes(resident_pages));
  add("process_start_time_seconds", "gauge", "Start of the process, in seconds since 1970.", start);
  add("process_virtual_memory_bytes", "gauge", "Address space.", bytes(virtual_pages));
  return text;
}

}  // namespace weir
