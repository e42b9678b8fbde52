#include "transpiler/start/silence.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "framework/graph/elements.h"

namespace weir {
namespace {

using Op = ProgramElements::Op;

class Search {
 public:
  Search(const ProgramElements& program, const NameSet& fresh) : program_(program), fresh_(fresh) {
    for (const Op& op : program.ops()) {
      for (const std::string& name : op.outputs) makers_.emplace(name, &op);
    }
  }

  absl::StatusOr<Silence> Run() {
    for (const Op& op : program_.ops()) RETURN_IF_ERROR(Visit(op));
    // Last, since what is 0 already needs no weights that are.
    for (const Op* op : weighted_) SilenceWeights(*op);
    for (const auto& [table, op] : by_columns_) {
      if (learns_.count(table) > 0) continue;
      return absl::InvalidArgumentError(absl::StrCat("new columns of table '", table, "' enter ", Text(*op),
                                                     ", where they must all be 0 to be silent, and then ",
                                                     "they have no gradient and never learn"));
    }
    return std::move(found_);
  }

 private:
  static std::string Text(const Op& op) {
    return absl::StrCat("operator ", op.op->type(),
                        op.outputs.empty() ? "" : absl::StrCat(" of '", op.outputs[0], "'"));
  }

  // Indices that are new along each axis of a variable.
  std::vector<IndexRanges> Fresh(const std::string& variable) const {
    std::vector<IndexRanges> fresh;
    for (const ElementAxis& axis : program_.Variable(variable)) fresh.push_back(fresh_.In(axis));
    return fresh;
  }
  bool HasFresh(const std::string& variable) const {
    if (whole_.count(variable) > 0) return true;
    const std::vector<IndexRanges> fresh = Fresh(variable);
    return std::any_of(fresh.begin(), fresh.end(), [](const IndexRanges& axis) { return !axis.empty(); });
  }
  bool IsWhole(const std::string& variable) const {
    if (whole_.count(variable) > 0) return true;
    for (const ElementAxis& axis : program_.Variable(variable)) {
      if (SizeOf(fresh_.In(axis)) == AxisSize(axis) && !axis.empty()) return true;
    }
    return false;
  }

  absl::Status Visit(const Op& op) {
    const auto fresh = [this](const std::string& name) { return HasFresh(name); };
    const auto whole = [this](const std::string& name) { return IsWhole(name); };
    const bool all = !op.inputs.empty() && std::all_of(op.inputs.begin(), op.inputs.end(), whole);
    const bool some = std::any_of(op.inputs.begin(), op.inputs.end(), fresh);
    const bool new_parameter = std::any_of(op.parameters.begin(), op.parameters.end(),
                                           [this](const std::string& name) { return fresh_.HasAll(name); });
    if (all) {
      for (const std::string& name : op.outputs) {
        whole_.insert(name);
        fresh_.Add(name);
      }
      return absl::OkStatus();
    }
    if (new_parameter) {
      // What it makes is new if all of it has the parameter's name.
      if (std::all_of(op.outputs.begin(), op.outputs.end(), whole)) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(
          Text(op), " has new parameters and stands between parts that are not new, which read what it makes"));
    }
    if (!some) return absl::OkStatus();
    switch (op.effect) {
      case ElementEffect::kApart:
        return absl::OkStatus();
      case ElementEffect::kWeighted:
        weighted_.push_back(&op);
        return SilenceUnweighted(op);
      case ElementEffect::kAdded:
        if (const v1::VarDesc* const table = TableOf(op); table != nullptr) return ZeroNewRows(op, *table);
        if (IsAlike(op)) return absl::OkStatus();
        for (const std::string& name : op.inputs) {
          if (IsHeard(op, name)) RETURN_IF_ERROR(MakeZero(name, op));
        }
        return absl::OkStatus();
      case ElementEffect::kMultiplied: {
        if (IsAlike(op)) return absl::OkStatus();
        absl::Status error;
        for (const std::string& name : op.inputs) {
          if (!IsHeard(op, name)) continue;
          error = MakeZero(name, op);
          if (error.ok()) return error;
        }
        return error;
      }
      case ElementEffect::kMixed:
        break;
    }
    return Mixed(op);
  }

  absl::Status Mixed(const Op& op) const {
    return absl::InvalidArgumentError(absl::StrCat("in ", Text(op), " new elements change what the others become"));
  }

  // Returns true if new elements of an input become part of elements that are not new: false if each has one of its own
  // in the output, as the product of a new slot with another.
  bool IsHeard(const Op& op, const std::string& input) const {
    const std::vector<IndexRanges> fresh = Fresh(input);
    const ElementAxes& axes = program_.Variable(input);
    for (size_t d = 0; d < axes.size(); ++d) {
      for (const IndexRange& range : fresh[d]) {
        for (const ElementRun& run : SliceAxis(axes[d], range.begin, range.end - range.begin)) {
          if (!HasOwn(op, run)) return true;
        }
      }
    }
    return false;
  }
  // Returns whether an output has new elements with all parts of this name.
  bool HasOwn(const Op& op, const ElementRun& run) const {
    const std::vector<std::string> wanted = NameParts(run.of);
    for (const std::string& output : op.outputs) {
      for (const ElementAxis& axis : program_.Variable(output)) {
        for (const ElementRun& own : axis) {
          const std::vector<std::string> parts = NameParts(own.of);
          const bool all = std::all_of(wanted.begin(), wanted.end(), [&](const std::string& part) {
            return std::find(parts.begin(), parts.end(), part) != parts.end();
          });
          if (all && !fresh_.In({own}).empty()) return true;
        }
      }
    }
    return false;
  }

  // Returns true if the output has the new elements of all inputs, which are at the same places.
  bool IsAlike(const Op& op) {
    if (op.outputs.empty()) return false;
    const std::vector<IndexRanges> first = Fresh(op.inputs.front());
    const ElementAxes& out = program_.Variable(op.outputs[0]);
    if (out.size() != first.size()) return false;
    for (const std::string& name : op.inputs) {
      const ElementAxes& axes = program_.Variable(name);
      if (Fresh(name) != first || axes.size() != out.size()) return false;
      for (size_t d = 0; d < out.size(); ++d) {
        if (AxisSize(axes[d]) != AxisSize(out[d])) return false;
      }
    }
    if (program_.Variable(op.inputs[0]) != out) {
      for (const IndexRanges& axis : first) {
        for (const IndexRange& range : axis) fresh_.Add(op.outputs[0], range.begin, range.end);
      }
    }
    return true;
  }

  // Elements of an input of a weighted operator that no weight is for.
  absl::Status SilenceUnweighted(const Op& op) {
    const ElementAxes& w = program_.Parameter(op.parameters.front());
    for (const std::string& name : op.inputs) {
      for (const ElementAxis& axis : program_.Variable(name)) {
        const IndexRanges fresh = fresh_.In(axis);
        if (fresh.empty()) continue;
        std::set<std::string> known;
        for (const ElementRun& run : w.front()) {
          for (const std::string& part : NameParts(run.of)) known.insert(part);
        }
        for (const IndexRange& range : fresh) {
          for (const ElementRun& run : SliceAxis(axis, range.begin, range.end - range.begin)) {
            const std::vector<std::string> parts = NameParts(run.of);
            if (!std::all_of(parts.begin(), parts.end(), [&](const auto& part) { return known.count(part) > 0; })) {
              return MakeZero(name, op);
            }
          }
        }
      }
    }
    return absl::OkStatus();
  }

  // Sets to 0 what a matrix has for new elements of its input and elements of its output that are not new.
  void SilenceWeights(const Op& op) {
    const std::string& w = op.parameters.front();
    const ElementAxes& axes = program_.Parameter(w);
    if (axes.size() < 2) return;
    const IndexRanges rows = fresh_.In(axes[0]), zero = zero_.In(axes[0]);
    const int64_t size = AxisSize(axes[0]);
    // Those that are not 0 by themselves.
    IndexRanges loud;
    for (const IndexRange& range : rows) {
      for (const IndexRange& rest : Complement(zero, size)) {
        AddRange({std::max(range.begin, rest.begin), std::min(range.end, rest.end)}, &loud);
      }
    }
    if (SizeOf(loud) < SizeOf(rows)) {
      for (const ElementRun& run : axes[0]) {
        for (const std::string& part : NameParts(run.of)) learns_.insert(part);
      }
    }
    const IndexRanges columns = Complement(fresh_.In(axes[1]), AxisSize(axes[1]));
    if (loud.empty() || columns.empty()) return;
    Silence::Box box;
    box.axes = {loud, columns};
    for (size_t d = 2; d < axes.size(); ++d) box.axes.push_back({{0, AxisSize(axes[d])}});
    found_.dense[w].push_back(std::move(box));
  }

  // Makes the new elements of a variable 0. `reader`: for messages.
  absl::Status MakeZero(const std::string& variable, const Op& reader) {
    if (!zeroed_.insert(variable).second) return absl::OkStatus();
    const auto maker = makers_.find(variable);
    if (maker == makers_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("new values of the data, '", variable, "', enter ", Text(reader), " directly"));
    }
    const Op& op = *maker->second;
    if (op.effect == ElementEffect::kWeighted && op.zero_of_zero) return ZeroColumns(op);
    if (const v1::VarDesc* const table = TableOf(op); table != nullptr) return ZeroTable(op, variable, *table);
    if (!op.parameters.empty() || !op.zero_of_zero) {
      return absl::InvalidArgumentError(absl::StrCat(Text(reader), " reads new elements of '", variable, "', which ",
                                                     Text(op), " makes: they cannot be 0 at first"));
    }
    absl::Status error;
    for (const std::string& name : op.inputs) {
      if (!HasFresh(name)) continue;
      error = MakeZero(name, reader);
      if (op.effect == ElementEffect::kMultiplied ? error.ok() : !error.ok()) return error;
    }
    return error;
  }

  absl::Status ZeroColumns(const Op& op) {
    for (const std::string& name : op.parameters) {
      const ElementAxes& axes = program_.Parameter(name);
      const IndexRanges fresh = fresh_.In(axes.back());
      Silence::Box box;
      for (size_t d = 0; d + 1 < axes.size(); ++d) box.axes.push_back({{0, AxisSize(axes[d])}});
      box.axes.push_back(fresh);
      for (const IndexRange& range : fresh) zero_.Add(op.parameters.front(), range.begin, range.end);
      found_.dense[name].push_back(std::move(box));
    }
    return absl::OkStatus();
  }

  // Returns the table that an operator looks rows up in; null if it reads none by id.
  const v1::VarDesc* TableOf(const Op& op) const {
    for (const std::string& name : op.parameters) {
      if (const v1::VarDesc* const var = program_.Find(name); var->kind() == v1::TABLE) return var;
    }
    return nullptr;
  }

  // Rows made later are 0 as a whole: those of new slots of a table that has others cannot be told apart.
  absl::Status ZeroNewRows(const Op& op, const v1::VarDesc& table) {
    const v1::Initializer& initial = table.initializer();
    if (initial.has_constant() && initial.constant().value() == 0) return absl::OkStatus();
    found_.shared[table.name()] = absl::StrCat("slots that are new enter ", Text(op), " directly");
    ZeroColumnsOfTable(table.name(), {0, table.dims(1)});
    return absl::OkStatus();
  }

  void ZeroColumnsOfTable(const std::string& table, IndexRange columns) {
    IndexRange& known = found_.tables.emplace(table, columns).first->second;
    known = {std::min(known.begin, columns.begin), std::max(known.end, columns.end)};
    zero_.Add(table, known.begin, known.end);
  }

  absl::Status ZeroTable(const Op& op, const std::string& variable, const v1::VarDesc& table) {
    const int64_t width = table.dims(1);
    if (fresh_.HasAll(table.name())) {
      ZeroColumnsOfTable(table.name(), {0, width});
      return absl::OkStatus();
    }
    const IndexRanges fresh = fresh_.In(AxisOf(table.name(), width));
    const ElementAxes& axes = program_.Variable(variable);
    if (axes.size() == 2 && !fresh_.In(axes.front()).empty()) RETURN_IF_ERROR(ZeroNewRows(op, table));
    if (fresh.size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat("new columns of table '", table.name(), "' are not side by side"));
    }
    if (fresh.empty()) return absl::OkStatus();
    by_columns_.emplace(table.name(), &op);
    ZeroColumnsOfTable(table.name(), fresh.front());
    return absl::OkStatus();
  }

  const ProgramElements& program_;
  NameSet fresh_;
  NameSet zero_;  // names of elements that are 0
  std::map<std::string, const Op*> makers_;
  std::set<std::string> whole_;   // variables all of whose elements are new
  std::set<std::string> zeroed_;  // variables
  std::vector<const Op*> weighted_;
  std::map<std::string, const Op*> by_columns_;  // tables whose new columns are 0
  std::set<std::string> learns_;                 // parts of names whose zeros have weights that are not
  Silence found_;
};

}  // namespace

absl::StatusOr<Silence> FindSilence(const ProgramElements& program, const NameSet& fresh) {
  return Search(program, fresh).Run();
}

}  // namespace weir
