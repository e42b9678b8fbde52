#include "trainer/progress/machine_state.h"

#include <unistd.h>

#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weir {

namespace {

// Returns the first line of a file, "" if it cannot be read.
std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// Returns the share of the last 10 s in which some task waited for a resource, in per cent; -1: not known.
double Pressure(const std::string& path) {
  // "some avg10=1.53 avg60=..."
  const std::string line = FirstLine(path);
  for (const absl::string_view word : absl::StrSplit(line, ' ')) {
    const std::pair<std::string, std::string> field = absl::StrSplit(word, absl::MaxSplits('=', 1));
    double share = 0;
    if (field.first == "avg10" && absl::SimpleAtod(field.second, &share)) return share;
  }
  return -1;
}

}  // namespace

MachineState::Times MachineState::ReadTimes() const {
  // "cpu", then user, nice, system, idle, iowait, irq, softirq, stolen.
  const std::vector<std::string> words = absl::StrSplit(FirstLine(proc_ + "/stat"), ' ', absl::SkipEmpty());
  Times times;
  for (size_t i = 1; i < words.size() && i <= 8; ++i) {
    int64_t ticks = 0;
    if (!absl::SimpleAtoi(words[i], &ticks)) return {};
    times.all += ticks;
    if (i == 8) times.stolen = ticks;
  }
  return times;
}

std::string MachineState::Text() const {
  std::vector<std::string> parts;
  const std::vector<std::string> load = absl::StrSplit(FirstLine(proc_ + "/loadavg"), ' ');
  if (!load[0].empty()) {
    parts.push_back(absl::StrFormat("load %s on %d processors", load[0], ::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  const Times now = ReadTimes();
  if (before_.all > 0 && now.all > before_.all && now.stolen > before_.stolen) {
    parts.push_back(absl::StrFormat(
        "%.0f %% of their time went to other machines",
        100.0 * static_cast<double>(now.stolen - before_.stolen) / static_cast<double>(now.all - before_.all)));
  }
  static constexpr std::pair<const char*, const char*> kResources[] = {
      {"cpu", "a processor"}, {"io", "a disk"}, {"memory", "memory"}};
  std::vector<std::string> waits;
  for (const auto& [file, name] : kResources) {
    const double share = Pressure(absl::StrCat(proc_, "/pressure/", file));
    if (share >= 1) waits.push_back(absl::StrFormat("%s for %.0f %%", name, share));
  }
  if (!waits.empty()) parts.push_back(absl::StrCat("tasks waited for ", absl::StrJoin(waits, ", "), " of 10 s"));
  return absl::StrJoin(parts, ", ");
}

}  // namespace weir
