#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/reporting/report.h"

namespace weir {
namespace {

std::string Bytes(int64_t bytes) {
  const auto b = static_cast<double>(bytes);
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  if (bytes < int64_t{1} << 20) return absl::StrFormat("%.1f KiB", b / (1 << 10));
  if (bytes < int64_t{1} << 30) return absl::StrFormat("%.1f MiB", b / (1 << 20));
  return absl::StrFormat("%.2f GiB", b / (1 << 30));
}

std::string Percent(double share) { return absl::StrFormat("%.2f%%", 100 * share); }

std::string RowsText(int64_t rows, int64_t of) {
  return absl::StrFormat("%d (%s)", rows, Percent(of == 0 ? 0 : static_cast<double>(rows) / static_cast<double>(of)));
}

void Line(std::string* text, const std::string& head, const std::string& rest) {
  absl::StrAppendFormat(text, "  %-24s %s\n", head, rest);
}

void Figures(std::string* text, const std::string& head, const v1::ColumnFigures& of) {
  const std::string bad = of.not_finite() > 0 ? absl::StrFormat("  and %d not finite", of.not_finite()) : "";
  if (of.count() == 0) return Line(text, head, absl::StrCat("-", bad));
  const char* const about = of.quantile_error() > 0 ? "~" : "";
  const auto quantile = [about](double x) { return absl::StrFormat("%s%.6g", about, x); };
  absl::StrAppendFormat(text, "  %-24s %12.6g %12.6g %12.6g %12s %12s %12s %12.6g%s\n", head, of.mean(), of.deviation(),
                        of.min(), quantile(of.p1()), quantile(of.p50()), quantile(of.p99()), of.max(), bad);
}

void Head(std::string* text, const v1::TableReport& table) {
  absl::StrAppend(text, "\ntable ", table.name(), ": ", table.rows(), " rows of width ", table.width(),
                  table.has_storage() ? absl::StrCat(", ", table.storage()) : "", "\n");
  for (const v1::TableReader& reader : table.reader()) {
    std::string read = reader.ids();
    if (reader.slot_size() > 0) absl::StrAppend(&read, " (", absl::StrJoin(reader.slot(), ", "), ")");
    Line(text, absl::StrCat("read by ", reader.layer()), read);
  }
  if (table.has_candidates()) Line(text, "candidates", absl::StrCat(table.candidates()));
  if (table.has_tombstones()) Line(text, "tombstones", absl::StrCat(table.tombstones()));
  const v1::RowBytes& bytes = table.bytes();
  Line(text, "in memory",
       absl::StrCat("values ", Bytes(bytes.values()), ", state ", Bytes(bytes.state()), ", lifecycle ",
                    Bytes(bytes.lifecycle()), "; ids and index take 11.4 to 14.3 bytes a row more"));
  Line(text, "in files", Bytes(bytes.in_files()));
}

void Rows(std::string* text, const v1::TableReport& table) {
  const int64_t rows = table.rows();
  Line(text, "rows of zeros", RowsText(table.zero_rows(), rows));
  Line(text, "rows with Inf or NaN", RowsText(table.not_finite_rows(), rows));
  if (const v1::RowTraining& training = table.training(); table.has_training()) {
    Line(text, "never trained", absl::StrCat(RowsText(training.never(), rows), " by ", training.by()));
    Line(text, "trained once at most",
         training.has_at_most_once() ? absl::StrCat(RowsText(training.at_most_once(), rows), " by ", training.by())
                                     : "unknown");
  } else {
    Line(text, "never trained", "unknown");
    Line(text, "trained once at most", "unknown");
  }
  if (const v1::HottestIds& hottest = table.hottest(); table.has_hottest()) {
    Line(text, "hottest ids",
         absl::StrCat("1: ", Percent(hottest.top_1()), ", 100: ", Percent(hottest.top_100()),
                      ", 1 percent: ", hottest.error() > 0 ? "~" : "", Percent(hottest.top_percent()),
                      " of the sum of ", hottest.by(), absl::StrFormat(", %.6g", hottest.counts())));
  } else {
    Line(text, "hottest ids", "unknown");
  }
}

void Columns(std::string* text, const v1::TableReport& table) {
  bool sketched = table.norm().quantile_error() > 0;
  absl::StrAppendFormat(text, "  %-24s %12s %12s %12s %12s %12s %12s %12s\n", "", "mean", "deviation", "min", "p1",
                        "p50", "p99", "max");
  Figures(text, "norm of a row", table.norm());
  if (table.has_age_steps()) Figures(text, "steps since last seen", table.age_steps());
  if (table.has_age_seconds()) Figures(text, "seconds before the last", table.age_seconds());
  for (const v1::StateFigures& state : table.state()) {
    Figures(text, state.width() == 1 ? state.name() : absl::StrCat(state.name(), " [", state.width(), "]"),
            state.figures());
    sketched |= state.figures().quantile_error() > 0;
  }
  if (sketched) absl::StrAppend(text, "  ~: of more than 16777216 numbers, within 0.2 %\n");
}

void Slots(std::string* text, const v1::TableReport& table) {
  if (table.slot_size() == 0) return;
  absl::StrAppendFormat(text, "  %-24s %12s %12s %12s %12s %12s %12s %12s %12s\n", "slot", "ids in data", "rows",
                        "bytes", "mean norm", "zero rows", "once at most", "of counts", "mean age");
  for (const v1::SlotReport& slot : table.slot()) {
    const auto or_dash = [](bool has, const std::string& value) { return has ? value : std::string("-"); };
    absl::StrAppendFormat(text, "  %-24s %12s %12d %12s %12s %12d %12s %12s %12s\n",
                          slot.has_name() ? slot.name() : "(not in the data)",
                          or_dash(slot.has_ids(), absl::StrCat(slot.ids())), slot.rows(), Bytes(slot.bytes()),
                          or_dash(slot.has_mean_norm(), absl::StrFormat("%.4g", slot.mean_norm())), slot.zero_rows(),
                          or_dash(slot.has_at_most_once(), absl::StrCat(slot.at_most_once())),
                          or_dash(slot.has_counts(), Percent(slot.counts())),
                          or_dash(slot.has_mean_age_steps(), absl::StrFormat("%.1f", slot.mean_age_steps())));
  }
}

void WhatIfs(std::string* text, const v1::TableReport& table) {
  if (table.lifecycle_size() > 0) {
    absl::StrAppendFormat(text, "  %-32s %14s %9s %12s %14s\n", "with this setting", "rows fewer", "", "saves",
                          "lost updates");
  }
  for (const v1::WhatIf& with : table.lifecycle()) {
    const double share = table.rows() == 0 ? 0 : static_cast<double>(with.rows()) / static_cast<double>(table.rows());
    const bool bound = absl::StartsWith(with.setting(), "data.ids.");
    std::string line =
        absl::StrFormat("  %-32s %14s %9s %12s %14s", with.setting(), absl::StrCat(bound ? "<= " : "", with.rows()),
                        Percent(share), Bytes(with.bytes()), with.has_lost() ? Percent(with.lost()) : "");
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(text, line, "\n");
  }
  for (const v1::WhatIf& with : table.saving()) {
    std::string costs;
    if (with.has_squares_cut()) {
      costs = absl::StrCat(Percent(with.squares_cut()), " of all squared values are in the columns cut off");
    } else {
      costs = absl::StrFormat("relative error of values: mean %.3g, largest %.3g", with.mean_error(), with.max_error());
      if (with.beyond() > 0) absl::StrAppend(&costs, "; ", with.beyond(), " beyond the greatest");
    }
    Line(text, with.setting(), absl::StrCat("saves ", Bytes(with.bytes()), "; ", costs));
  }
}

}  // namespace

std::string ReportText(const v1::CheckpointReport& report) {
  std::string text =
      absl::StrCat(report.path(), ": step ", report.step(), " of job ", report.job(), ", ", report.table_size(),
                   report.table_size() == 1 ? " table with rows\n" : " tables with rows\n");
  for (const v1::TableReport& table : report.table()) {
    Head(&text, table);
    Rows(&text, table);
    Columns(&text, table);
    Slots(&text, table);
    WhatIfs(&text, table);
    for (const std::string& unknown : table.unknown()) absl::StrAppend(&text, "  unknown: ", unknown, "\n");
  }
  return text;
}

}  // namespace weir
