#include "transpiler/start/start.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "framework/base/textproto.h"
#include "framework/graph/elements.h"
#include "google/protobuf/text_format.h"
#include "re2/re2.h"
#include "transpiler/base/programs.h"
#include "transpiler/base/state_name.h"
#include "transpiler/job/job.h"
#include "transpiler/job/model_differences.h"
#include "transpiler/split/transpile.h"
#include "transpiler/start/data_elements.h"
#include "transpiler/start/element_match.h"
#include "transpiler/start/name_patterns.h"
#include "transpiler/start/program_elements.h"
#include "transpiler/start/silence.h"
#include "transpiler/start/start_source.h"

namespace weir {
namespace {

std::string DimsText(absl::Span<const int64_t> dims) { return absl::StrCat("[", absl::StrJoin(dims, ", "), "]"); }
std::string DimsText(const google::protobuf::RepeatedField<int64_t>& dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

int64_t Count(const google::protobuf::RepeatedField<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

// Returns `names` as a line of the job: "  new: \"cat\\\\.C7\"".
std::string Line(std::string_view field, const std::string& name) {
  return absl::StrCat("\n    ", Av(field), ": \"", absl::CEscape(QuotedName(name)), "\"");
}

class Planner {
 public:
  Planner(const Job& job, const Programs& single, std::map<std::string, ElementAxes> data,
          std::map<std::string, std::string> meanings, std::vector<std::unique_ptr<StartSource>> sources)
      : job_(job),
        meanings_(std::move(meanings)),
        data_(std::move(data)),
        here_(single.main, data_),
        sources_(std::move(sources)) {
    for (const v1::StartFrom& from : job.config.start_from()) new_.push_back(NamePatterns::Of(from.new_()));
    for (const ElementAxes& axes : Values(data_)) AddParts(axes, &here_parts_);
    for (const auto& [name, var] : here_.parameters()) {
      here_parts_.insert(name);
      if (var->kind() != v1::TABLE) AddParts(here_.Parameter(name), &here_parts_);
    }
  }

  absl::StatusOr<Start> Plan() {
    for (const auto& source : sources_) {
      *start_.plan.add_sources() = source->Describe();
      source->AddAncestors(&start_.lineage);
      PlanStatistics(*source);
    }
    PlanInputs();
    for (const auto& [name, var] : here_.parameters()) {
      if (var->kind() == v1::TABLE) {
        PlanTable(name, *var);
      } else {
        PlanDense(name, *var);
      }
    }
    for (size_t s = 0; s < sources_.size(); ++s) FindDropped(s);
    RETURN_IF_ERROR(Problems());
    if (job_.config.start_from(0).new_values() == v1::StartFrom::ZERO) RETURN_IF_ERROR(Silent());
    for (const auto& source : sources_) AddSettings(*source);
    return std::move(start_);
  }

 private:
  template <typename Map>
  static std::vector<typename Map::mapped_type> Values(const Map& map) {
    std::vector<typename Map::mapped_type> values;
    for (const auto& [key, value] : map) values.push_back(value);
    return values;
  }
  static void AddParts(const ElementAxes& axes, std::set<std::string>* parts) {
    for (const ElementAxis& axis : axes) {
      for (const ElementRun& run : axis) {
        for (std::string& part : NameParts(run.of)) parts->insert(std::move(part));
      }
    }
  }

  v1::StartLine* Account(v1::StartLine::Kind kind, const std::string& name, int64_t bytes, std::string reason) {
    v1::StartLine* const line = start_.lineage.add_account();
    line->set_kind(kind);
    line->set_name(name);
    line->set_bytes(bytes);
    if (!reason.empty()) line->set_reason(std::move(reason));
    return line;
  }

  // Return whether the user has said so of a name.
  bool SaidNew(std::string_view name) {
    bool said = false;
    for (NamePatterns& patterns : new_) said |= patterns.Matches(name);
    return said;
  }
  bool SaidNew(const ElementRun& run) {
    bool said = false;
    for (const std::string& part : NameParts(run.of)) said |= SaidNew(part);
    return said;
  }

  // Returns whether the user has said of what both have that it is new here and dropped there.
  bool IsReplaced(const std::string& name, StartSource* there) {
    const bool is_new =
        std::any_of(new_.begin(), new_.end(), [&](const NamePatterns& patterns) { return patterns.Has(name); });
    return is_new && there->HasDrop(name) && SaidNew(name) && there->SaidDrop(name);
  }

  // Returns the part of a name that the other side lacks, else the last one that is a word.
  static std::string Telling(const ElementRun& run, const std::set<std::string>& known) {
    const std::vector<std::string> parts = NameParts(run.of);
    for (const std::string& part : parts) {
      if (known.count(part) == 0) return part;
    }
    for (size_t i = parts.size(); i-- > 0;) {
      if (!parts[i].empty()) return parts[i];
    }
    return run.of;
  }

  void PlanStatistics(const StartSource& source) {
    if (!source.has_statistics()) return;
    const bool keep = source.config().statistics() == v1::StartFrom::KEEP_STATISTICS;
    if (keep && source.data() != nullptr) start_.statistics.push_back({source.name(), *source.data()});
    const bool kept = keep && source.data() != nullptr;
    v1::StartLine* const line =
        Account(kept ? v1::StartLine::TAKEN : v1::StartLine::RELEARNED, "statistics of the data", 0,
                kept   ? "where this job learns the same"
                : keep ? source.why_no_program()
                       : "");
    line->set_source(source.index());
  }

  // Inputs of the data that the model reads: by slots and columns.
  void PlanInputs() {
    for (const std::string& name : here_.read_data()) {
      const auto known = data_.find(name);
      if (known == data_.end()) continue;
      for (const ElementAxis& axis : known->second) {
        for (const ElementRun& run : axis) {
          const bool there =
              std::any_of(sources_.begin(), sources_.end(), [&](const auto& source) { return source->Reads(run.of); });
          if (there) {
            // Of a checkpoint without a job it is not known.
            if (std::any_of(sources_.begin(), sources_.end(),
                            [](const auto& source) { return !source->has_program(); })) {
              SaidNew(run.of);
            }
            continue;
          }
          if (!IsInputOfModel(run.of)) continue;
          fresh_.Add(run.of);
          if (SaidNew(run.of)) {
            Account(v1::StartLine::NEW, run.of, 0, "an input");
          } else {
            wanted_new_.insert(run.of);
          }
          for (const auto& source : sources_) {
            const std::string was = source->OtherMeaning(run.of);
            if (was.empty() || SaidNew(run.of)) continue;
            notes_.push_back(absl::StrCat("'", run.of, "' is {", meanings_.at(run.of), "} here and was {", was, "} in ",
                                          source->name(), ", so it is another input"));
          }
        }
      }
    }
  }

  // Labels and weights of examples are no part of a model.
  bool IsInputOfModel(const std::string& of) const { return loss_inputs().count(of.substr(0, of.find('.'))) == 0; }
  const std::set<std::string>& loss_inputs() const {
    if (loss_inputs_.empty()) {
      for (const ProgramElements::Op& op : here_.ops()) {
        if (op.op->role() != v1::LOSS) continue;
        loss_inputs_.insert(op.inputs.begin(), op.inputs.end());
      }
      loss_inputs_.insert("");
    }
    return loss_inputs_;
  }

  void PlanDense(const std::string& name, const v1::VarDesc& var) {
    const int64_t bytes = 4 * Count(var.dims());
    for (size_t s = 0; s < sources_.size(); ++s) {
      const StartSource::Dense* const from = sources_[s]->FindDense(name);
      if (from == nullptr || IsReplaced(name, sources_[s].get())) continue;
      for (size_t later = s + 1; later < sources_.size(); ++later) {
        if (sources_[later]->config().take_size() == 0 || sources_[later]->FindDense(name) == nullptr) continue;
        problems_.push_back(absl::StrCat("'", name, "' is taken from start_from[", later, "] and given by start_from[",
                                         s, "]: let that one take less"));
      }
      if (from->dims.size() != static_cast<size_t>(var.dims_size())) {
        BeginAnew(name, *sources_[s],
                  absl::StrCat("'", name, "' is ", DimsText(var.dims()), " in this job and ", DimsText(from->dims),
                               " in ", sources_[s]->name()));
        sources_[s]->Use(*from);
        return;
      }
      TakeDense(static_cast<int>(s), name, var, *from);
      return;
    }
    fresh_.Add(name);
    if (!SaidNew(name)) {
      wanted_new_.insert(name);
      return;
    }
    Account(v1::StartLine::NEW, name, bytes, DimsText(var.dims()));
  }

  void TakeDense(int source, const std::string& name, const v1::VarDesc& var, const StartSource::Dense& from) {
    StartSource& there = *sources_[static_cast<size_t>(source)];
    const ElementAxes& here_axes = here_.Parameter(name);
    const std::optional<ElementAxes> there_axes = there.Axes(from);
    v1::DenseStart* const dense = start_.plan.add_dense();
    dense->set_variable(name);
    *dense->mutable_dims() = var.dims();
    v1::DensePart* const part = dense->add_parts();
    part->set_source(source);
    part->set_variable(from.name);
    part->mutable_dims()->Add(from.dims.begin(), from.dims.end());
    there.Use(from);
    if (there.has_program()) CheckPlaces(name, here_axes, there);
    std::vector<std::string> new_names, dropped_names;
    int64_t taken = 1;
    bool whole = true;
    for (int d = 0; d < var.dims_size(); ++d) {
      const auto at = static_cast<size_t>(d);
      std::vector<v1::AxisRun> runs;
      ElementAxis theirs;
      if (there_axes.has_value()) {
        theirs = (*there_axes)[at];
        runs = MatchAxis(here_axes[at], theirs);
      } else if (var.dims(d) == from.dims[at]) {
        runs = MatchAxis(AxisOf(name, var.dims(d)), AxisOf(name, var.dims(d)));
      } else {
        BeginAnew(name, there,
                  absl::StrCat("'", name, "' is ", DimsText(var.dims()), " in this job and ", DimsText(from.dims),
                               " in ", there.name(), ", ", there.why_no_program()));
        return;
      }
      v1::AxisMap* const map = part->add_axes();
      for (const v1::AxisRun& run : runs) *map->add_runs() = run;
      const IndexRanges to = RangesTo(runs), from_ranges = RangesFrom(runs);
      taken *= SizeOf(to);
      const IndexRanges more = Complement(to, var.dims(d)), less = Complement(from_ranges, from.dims[at]);
      whole &= more.empty() && less.empty() && runs.size() == 1;
      Unmatched(here_axes[at], more, &new_names);
      if (there_axes.has_value()) Lost(&there, theirs, less, &dropped_names);
    }
    AddStates(there, name, from, part);
    std::string reason = whole ? "" : absl::StrCat(DimsText(var.dims()), ", was ", DimsText(from.dims));
    if (!new_names.empty()) absl::StrAppend(&reason, "; new: ", absl::StrJoin(new_names, ", "));
    if (!dropped_names.empty()) absl::StrAppend(&reason, "; dropped: ", absl::StrJoin(dropped_names, ", "));
    const bool same = new_names.empty() && dropped_names.empty();
    if (!whole && same) absl::StrAppend(&reason, "; in another order");
    v1::StartLine* const line =
        Account(same ? v1::StartLine::TAKEN : v1::StartLine::RESIZED, name, 4 * taken, std::move(reason));
    line->set_source(source);
    if (from.name != name) line->set_from(from.name);
  }

  // Refuses a parameter that both have and that cannot be taken.
  void BeginAnew(const std::string& name, const StartSource& there, const std::string& why) {
    anew_[there.index()].insert(name);
    const std::string problem = absl::StrCat(why, ": name it by new here and by drop there");
    if (std::find(problems_.begin(), problems_.end(), problem) == problems_.end()) problems_.push_back(problem);
  }

  // Refuses elements that are known by their places only, where these places are of something else.
  void CheckPlaces(const std::string& name, const ElementAxes& axes, const StartSource& there) {
    for (const ElementAxis& axis : axes) {
      for (const ElementRun& run : axis) {
        for (const std::string& part : NameParts(run.of)) {
          const auto place = here_.places().find(part);
          const auto was = there.places().find(part);
          if (place == here_.places().end() || was == there.places().end()) continue;
          if (place->second.type == was->second.type && place->second.reads == was->second.reads) continue;
          BeginAnew(name, there,
                    absl::StrCat("'", name, "' cannot be matched: its elements are known by their places in '", part,
                                 "' only, of operator ", place->second.type, ", which reads something else in ",
                                 there.name()));
        }
      }
    }
  }

  // Elements that are in no checkpoint.
  void Unmatched(const ElementAxis& axis, const IndexRanges& ranges, std::vector<std::string>* names) {
    for (const IndexRange& range : ranges) {
      for (const ElementRun& run : SliceAxis(axis, range.begin, range.end - range.begin)) {
        const std::string shown = TellingOf(run);
        const bool unknown = std::none_of(sources_.begin(), sources_.end(),
                                          [&](const auto& source) { return source->parts().count(shown) > 0; });
        if (unknown) {
          fresh_.Add(shown);
        } else {
          // All parts are known, and these elements of them are not.
          fresh_.Add(run.of, run.first, run.first + run.count);
        }
        if (std::find(names->begin(), names->end(), shown) == names->end()) names->push_back(shown);
        if (!SaidNew(run)) wanted_new_.insert(shown);
      }
    }
  }
  std::string TellingOf(const ElementRun& run) const {
    std::set<std::string> known;
    for (const auto& source : sources_) known.insert(source->parts().begin(), source->parts().end());
    return Telling(run, known);
  }

  // Elements of a parameter that are not taken.
  void Lost(StartSource* there, const ElementAxis& axis, const IndexRanges& ranges, std::vector<std::string>* names) {
    for (const IndexRange& range : ranges) {
      for (const ElementRun& run : SliceAxis(axis, range.begin, range.end - range.begin)) {
        const std::string shown = Telling(run, here_parts_);
        if (std::find(names->begin(), names->end(), shown) == names->end()) names->push_back(shown);
        bool said = false;
        for (const std::string& part : NameParts(run.of)) said |= there->SaidDrop(part);
        if (!said) wanted_drop_[there->index()].insert(shown);
      }
    }
  }

  void AddStates(const StartSource& there, const std::string& name, const StartSource::Dense& from,
                 v1::DensePart* part) const {
    if (there.config().optimizer_state() == v1::StartFrom::DROP) return;
    for (const std::string& state : from.states) {
      if (here_.Find(absl::StrCat(name, ".", state)) != nullptr) part->add_states(state);
    }
  }

  void PlanTable(const std::string& name, const v1::VarDesc& var) {
    v1::TableStart table;
    table.set_table(name);
    const int64_t width = var.dims(1);
    for (size_t s = 0; s < sources_.size(); ++s) {
      StartSource& there = *sources_[s];
      // Tables of several checkpoints are merged where the user says so.
      if (table.parts_size() > 0 && there.config().take_size() == 0) break;
      if (IsReplaced(name, &there)) continue;
      for (const StartSource::Table* const from : there.FindTables(name)) {
        there.Use(*from);
        v1::TablePart* const part = table.add_parts();
        part->set_source(static_cast<int>(s));
        part->set_table(from->name);
        part->set_width(static_cast<int>(from->width));
        part->set_state(there.config().optimizer_state() == v1::StartFrom::KEEP);
        v1::AxisRun* const run = part->add_columns();
        const int64_t taken = std::min(width, from->width);
        run->set_to(0);
        run->set_from(0);
        run->set_count(taken);
        if (from->width < width) {
          fresh_.Add(name, from->width, width);
          if (!SaidNew(name)) wanted_new_.insert(name);
        } else if (from->width > width && !there.SaidDrop(name)) {
          wanted_drop_[there.index()].insert(name);
        }
        const bool same = from->width == width;
        v1::StartLine* const line = Account(
            same ? v1::StartLine::TAKEN : v1::StartLine::RESIZED, name, 4 * taken * from->rows,
            absl::StrCat(from->rows, " rows", same ? "" : absl::StrCat(" of width ", width, ", was ", from->width)));
        line->set_source(static_cast<int>(s));
        if (from->name != name) line->set_from(from->name);
      }
    }
    if (table.parts_size() > 0) {
      *start_.plan.add_tables() = std::move(table);
      return;
    }
    fresh_.Add(name);
    if (!SaidNew(name)) {
      wanted_new_.insert(name);
      return;
    }
    Account(v1::StartLine::NEW, name, 0, absl::StrCat("a table of width ", width));
    *start_.plan.add_tables() = std::move(table);
  }

  void FindDropped(size_t s) {
    StartSource& there = *sources_[s];
    if (there.config().take_size() > 0) return;
    for (const auto& [name, bytes] : there.Unused()) {
      const bool given = std::any_of(sources_.begin(), sources_.begin() + static_cast<std::ptrdiff_t>(s),
                                     [&](const auto& earlier) { return earlier->Gives(name); });
      const bool said = there.SaidDrop(name);
      if (given) continue;
      if (!said) {
        wanted_drop_[there.index()].insert(name);
        continue;
      }
      Account(v1::StartLine::DROPPED, name, bytes, "")->set_source(static_cast<int>(s));
    }
    for (const std::string& input : there.read_inputs()) {
      if (here_parts_.count(input) > 0 || there.SaidDrop(input)) continue;
      wanted_drop_[there.index()].insert(input);
    }
  }

  absl::Status Problems() {
    for (int i = 0; i < job_.config.start_from_size(); ++i) {
      const std::string path = absl::StrCat("start_from[", i, "]");
      if (const std::string unused = new_[static_cast<size_t>(i)].Unused(); !unused.empty()) {
        return At(absl::StrCat(path, ".new"), UselessNew(unused));
      }
      const StartSource& there = *sources_[static_cast<size_t>(i)];
      for (const auto& [field, unused] : there.UnusedPatterns()) {
        return At(absl::StrCat(path, ".", field), field == "drop"   ? UselessDrop(unused, there)
                                                  : field == "take" ? UselessTake(unused, there)
                                                                    : UselessRename(unused, there));
      }
      RETURN_IF_ERROR(CheckGivesSomething(i));
    }
    if (!problems_.empty()) return At("start_from[0]", absl::StrCat(absl::StrJoin(problems_, "; "), AnewLines()));
    if (wanted_new_.empty() && wanted_drop_.empty()) return absl::OkStatus();
    std::string text = absl::StrJoin(notes_, "; ");
    if (!text.empty()) text += "; ";
    if (!wanted_new_.empty()) {
      absl::StrAppend(&text, "in no checkpoint, and not said to be new: ", absl::StrJoin(wanted_new_, ", "),
                      ". Correct rename, or add to start_from[0]:");
      for (const std::string& name : wanted_new_) text += Line("new", name);
    }
    for (const auto& [index, names] : wanted_drop_) {
      absl::StrAppend(&text, text.empty() ? "" : "\n", "of checkpoint ", sources_[static_cast<size_t>(index)]->name(),
                      " in nothing of this job, and not said to be dropped: ", absl::StrJoin(names, ", "),
                      ". Correct rename, or add to start_from[", index, "]:");
      for (const std::string& name : names) text += Line("drop", name);
    }
    const int at = wanted_new_.empty() ? wanted_drop_.begin()->first : 0;
    return At(absl::StrCat("start_from[", at, "]"), text);
  }

  // Returns the names that a pattern should match, with the nearest one first.
  static std::string Known(const std::string& pattern, const std::set<std::string>& parts) {
    std::vector<std::string> some;
    for (const std::string& part : parts) {
      if (!part.empty() && some.size() < 12) some.push_back(part);
    }
    const std::string near = NearestName(pattern, {parts.begin(), parts.end()});
    return absl::StrCat(near.empty() ? "" : absl::StrCat(" (did you mean '", near, "'?)"), "; there are ",
                        absl::StrJoin(some, ", "), parts.size() > some.size() ? ", ..." : "");
  }

  // Returns a parameter of this job that the pattern matches and the checkpoint gives; "" if there is none.
  std::string InBoth(const std::string& pattern, const StartSource& there) const {
    const RE2 compiled(pattern, RE2::Quiet);
    for (const auto& [name, var] : here_.parameters()) {
      if (there.Gives(name) && RE2::FullMatch(name, compiled)) return name;
    }
    return "";
  }
  // Return what is wrong with a pattern that names nothing new, nothing that is left out, or nothing at all.
  std::string UselessNew(const std::string& pattern) const {
    for (const auto& there : sources_) {
      const std::string both = InBoth(pattern, *there);
      if (both.empty()) continue;
      return absl::StrCat("'", pattern, "' is not new: ", there->name(), " gives '", both,
                          "'. Leave it out, or, to begin anew, add to start_from[", there->index(), "]:\n    drop: \"",
                          absl::CEscape(pattern), "\"");
    }
    return absl::StrCat("'", pattern, "' matches nothing that is new in this job", Known(pattern, here_parts_));
  }
  std::string UselessDrop(const std::string& pattern, const StartSource& there) const {
    if (there.config().take_size() > 0) {
      return absl::StrCat("'", pattern, "' matches nothing of what take names, and take says already that all else is ",
                          "not taken: leave it out");
    }
    if (const std::string both = InBoth(pattern, there); !both.empty()) {
      return absl::StrCat("'", pattern, "' is not left out: this job has '", both,
                          "', too. Leave it out, or, to begin anew, add to start_from[", there.index(),
                          "]:\n    new: \"", absl::CEscape(pattern), "\"");
    }
    return absl::StrCat("'", pattern, "' matches nothing of checkpoint ", there.name(), Known(pattern, there.parts()));
  }

  static std::string UselessTake(const std::string& pattern, const StartSource& there) {
    return absl::StrCat("'", pattern, "' matches nothing of checkpoint ", there.name(), Known(pattern, there.parts()));
  }
  static std::string UselessRename(const std::string& pattern, const StartSource& there) {
    const RE2 compiled(pattern, RE2::Quiet);
    // All parts but columns of ids have the names of the rules.
    for (const std::string& part : there.parts()) {
      if (!RE2::FullMatch(part, compiled)) continue;
      return absl::StrCat("'", part,
                          "' is a column of ids, which depend on its name, so it cannot be renamed: name it ",
                          "by drop, and the column of this job by new");
    }
    return UselessTake(pattern, there);
  }

  // Refuses the checkpoint of an earlier start_from that leaves nothing to a later one.
  absl::Status CheckGivesSomething(int index) const {
    const StartSource& source = *sources_[static_cast<size_t>(index)];
    if (source.used() || source.config().take_size() > 0) return absl::OkStatus();
    for (int earlier = 0; earlier < index; ++earlier) {
      if (sources_[static_cast<size_t>(earlier)]->name() != source.name()) continue;
      const std::string path = absl::StrCat("start_from[", index, "].checkpoint");
      return At(path, absl::StrCat("is the checkpoint of start_from[", earlier, "], which gives all that this job ",
                                   "takes: say by take what each of them gives, or leave one out"));
    }
    return absl::OkStatus();
  }

  std::string AnewLines() const {
    std::string text;
    for (const auto& [index, names] : anew_) {
      absl::StrAppend(&text, text.empty() ? ". Add" : "\nand add", " to start_from[", index, "]:");
      for (const std::string& name : names) text += Line("new", name) + Line("drop", name);
    }
    return text;
  }

  absl::Status At(const std::string& path, std::string_view text) const {
    return job_.positions.Error(path, absl::StrCat(path, ": ", Av(text)));
  }

  absl::Status Silent() {
    const absl::StatusOr<Silence> silence = FindSilence(here_, fresh_);
    if (!silence.ok()) {
      return At("start_from[0].new_values",
                absl::StrCat(silence.status().message(),
                             ": begin with new_values: INITIAL, or have a layer of their own ", "read the new parts"));
    }
    for (v1::DenseStart& dense : *start_.plan.mutable_dense()) SetZeros(*silence, &dense);
    for (const auto& [name, boxes] : silence->dense) {
      const bool there = std::any_of(start_.plan.dense().begin(), start_.plan.dense().end(),
                                     [&name = name](const auto& each) { return each.variable() == name; });
      if (there) continue;
      v1::DenseStart* const dense = start_.plan.add_dense();
      dense->set_variable(name);
      *dense->mutable_dims() = here_.Find(name)->dims();
      SetZeros(*silence, dense);
    }
    for (v1::TableStart& table : *start_.plan.mutable_tables()) {
      const auto found = silence->tables.find(table.table());
      if (found == silence->tables.end()) continue;
      table.set_zero_begin(static_cast<int>(found->second.begin));
      table.set_zero_end(static_cast<int>(found->second.end));
    }
    for (v1::StartLine& line : *start_.lineage.mutable_account()) AddSilence(*silence, &line);
    return absl::OkStatus();
  }

  // Says which settings of both jobs make other predictions. What is new, resized or in another order has lines by
  // itself.
  void AddSettings(const StartSource& source) {
    if (source.job() == nullptr) return;
    for (const SettingDifference& each : ModelDifferences(*source.job(), job_.config, CheckpointUse::kPrediction)) {
      static const RE2 kShape(
          R"((.*\.)?(name|input|ids|items|query|column|sizes?|width|segment|channels|heads|table|slot|layer|loss)"
          R"(|dict_size)(\[\d+\])?)");
      const bool whole = each.was.starts_with("{") || each.is.starts_with("{");
      if (whole || RE2::FullMatch(each.path, kShape)) continue;
      v1::StartLine* const line = Account(v1::StartLine::SETTING, each.path, 0,
                                          absl::StrCat("was ", each.was, ", is ", each.is, ": other predictions"));
      line->set_source(source.index());
    }
  }

  static void SetZeros(const Silence& silence, v1::DenseStart* dense) {
    const auto found = silence.dense.find(dense->variable());
    if (found == silence.dense.end()) return;
    for (const Silence::Box& box : found->second) {
      v1::DenseZeros* const zeros = dense->add_zeros();
      for (const IndexRanges& axis : box.axes) {
        v1::AxisRanges* const ranges = zeros->add_axes();
        for (const IndexRange& range : axis) {
          v1::AxisRange* const each = ranges->add_ranges();
          each->set_begin(range.begin);
          each->set_count(range.end - range.begin);
        }
      }
    }
  }

  static void AddSilence(const Silence& silence, v1::StartLine* line) {
    std::string text;
    if (silence.dense.count(line->name()) > 0) text = "new weights that others read begin with 0";
    if (const auto found = silence.tables.find(line->name()); found != silence.tables.end()) {
      text = absl::StrCat("columns ", found->second.begin, " to ", found->second.end - 1, " of new rows begin with 0");
    }
    if (const auto found = silence.shared.find(line->name()); found != silence.shared.end()) {
      absl::StrAppend(&text, ", also of ids that the checkpoint could have had: ", found->second);
    }
    if (!text.empty()) line->set_reason(absl::StrCat(line->reason(), line->reason().empty() ? "" : "; ", text));
  }

  const Job& job_;
  const std::map<std::string, std::string> meanings_;
  const std::map<std::string, ElementAxes> data_;
  const ProgramElements here_;
  std::vector<std::unique_ptr<StartSource>> sources_;
  std::vector<NamePatterns> new_;
  std::set<std::string> here_parts_;
  mutable std::set<std::string> loss_inputs_;
  NameSet fresh_;
  std::set<std::string> wanted_new_;
  std::map<int, std::set<std::string>> wanted_drop_;
  std::vector<std::string> problems_;
  std::map<int, std::set<std::string>> anew_;  // that they name, by checkpoint
  std::vector<std::string> notes_;             // what explains them
  Start start_;
};

std::string BytesText(int64_t bytes) {
  if (bytes < 10240) return absl::StrCat(bytes, " B");
  if (bytes < (int64_t{10} << 20)) return absl::StrFormat("%.1f KiB", static_cast<double>(bytes) / 1024);
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

// Refuses a checkpoint in the directory of this job, which a fresh run sets aside.
absl::Status CheckApart(const Job& job, const StartSource& source) {
  if (job.config.checkpoint().dir().empty()) return absl::OkStatus();
  const auto normal = [](const std::string& path) {
    return (std::filesystem::absolute(path) / "").lexically_normal().string();
  };
  if (normal(source.Describe().directory()) != normal(job.Path(job.config.checkpoint().dir()))) return absl::OkStatus();
  const std::string path = absl::StrCat("start_from[", source.index(), "].checkpoint");
  return job.positions.Error(
      path, absl::StrCat(path, ": '", source.config().checkpoint(), "' is in this job's checkpoint.dir, whose ",
                         "checkpoints a fresh run sets aside: give this job a checkpoint.dir of its own, or go on ",
                         "with --resume"));
}

const std::string& NewValuesName(const Job& job, int index) {
  return v1::StartFrom::NewValues_Name(job.config.start_from(index).new_values());
}

}  // namespace

absl::StatusOr<Start> PlanStart(const Job& job) {
  std::map<std::string, std::string> meanings;
  if (job.config.has_model()) {
    ASSIGN_OR_RETURN(meanings, DataMeanings(job.config.data()));
  }
  std::vector<std::unique_ptr<StartSource>> sources;
  for (int i = 0; i < job.config.start_from_size(); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<StartSource> source, StartSource::Open(job, i, meanings));
    RETURN_IF_ERROR(CheckApart(job, *source));
    if (job.config.start_from(i).new_values() != job.config.start_from(0).new_values()) {
      const std::string path = absl::StrCat("start_from[", i, "].new_values");
      return job.positions.Error(
          path, absl::StrCat(path, ": is ", NewValuesName(job, i), ", and that of start_from[0] is ",
                             NewValuesName(job, 0), ": give all the same, since new parts are of no checkpoint"));
    }
    sources.push_back(std::move(source));
  }
  ASSIGN_OR_RETURN(const Programs single, BuildSingleMachine(job));
  std::map<std::string, ElementAxes> data;
  if (job.config.has_model()) {
    ASSIGN_OR_RETURN(data, DataElements(job.config.data()));
  }
  return Planner(job, single, std::move(data), std::move(meanings), std::move(sources)).Plan();
}

std::string StartText(const Start& start) {
  std::string text;
  for (int s = 0; s < start.plan.sources_size(); ++s) {
    const v1::StartSource& source = start.plan.sources(s);
    absl::StrAppend(&text, "checkpoint ", s, ": ", source.directory(), "\n");
  }
  for (const v1::Ancestor& each : start.lineage.ancestors()) {
    absl::StrAppend(&text, "lineage ", each.generation(), ": step ", each.step(), " of job '", each.job(), "', ",
                    each.directory(), "\n");
  }
  size_t width = 0;
  for (const v1::StartLine& line : start.lineage.account()) width = std::max(width, line.name().size());
  for (const v1::StartLine& line : start.lineage.account()) {
    std::string kind = v1::StartLine::Kind_Name(line.kind());
    std::transform(kind.begin(), kind.end(), kind.begin(), [](char c) { return static_cast<char>(c | 0x20); });
    std::string reason = line.reason();
    if (line.has_from()) reason = absl::StrCat("was '", line.from(), "'", reason.empty() ? "" : "; ", reason);
    if (start.plan.sources_size() > 1 && line.has_source())
      reason = absl::StrCat("checkpoint ", line.source(), "; ", reason);
    const bool sized = line.kind() != v1::StartLine::SETTING;
    std::string row = absl::StrFormat("%-9s %-*s %10s  %s", kind, static_cast<int>(width), line.name(),
                                      sized ? BytesText(line.bytes()) : "", reason);
    while (!row.empty() && row.back() == ' ') row.pop_back();
    absl::StrAppend(&text, row, "\n");
  }
  return text;
}

}  // namespace weir
