#include "transpiler/passes/fuse_lookups.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/op_registry.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Attributes of the look-ups of one op, and their variables.
struct Lookups {
  std::vector<std::string> ids, index, rows, poolings;
  std::vector<int64_t> per_slot, padded, padding_ids;

  bool empty() const { return ids.empty(); }
  void Add(const v1::OpDesc& op) {
    ids.push_back(InputOf(op, "Ids"));
    index.push_back(InputOf(op, "Index"));
    rows.push_back(InputOf(op, "Rows"));
    const v1::OpAttr* const pooling = FindAttr(op, "pooling");
    poolings.push_back(pooling == nullptr ? "none" : pooling->s());
    per_slot.push_back(Flag(op, "per_slot"));
    padded.push_back(Flag(op, "has_padding"));
    const v1::OpAttr* const padding = FindAttr(op, "padding_id");
    padding_ids.push_back(padding == nullptr ? 0 : padding->i());
  }
  // Without what is so by default.
  std::vector<v1::OpAttr> Attrs() const {
    const auto any = [](const std::vector<int64_t>& values) {
      return std::any_of(values.begin(), values.end(), [](int64_t value) { return value != 0; });
    };
    std::vector<v1::OpAttr> attrs = {AttrStrings("poolings", poolings)};
    if (any(per_slot)) attrs.push_back(AttrInts("per_slot", per_slot));
    if (any(padded)) attrs.push_back(AttrInts("padded", padded));
    if (any(padded)) attrs.push_back(AttrInts("padding_ids", padding_ids));
    return attrs;
  }

  static bool Flag(const v1::OpDesc& op, std::string_view name) {
    const v1::OpAttr* const attr = FindAttr(op, name);
    return attr != nullptr && attr->b();
  }
};

// What a piece of a joined matrix is made of, or its gradient becomes.
struct Piece {
  struct Lookup {
    int op = -1;
    int64_t begin = 0;  // columns of the piece before it
  };
  std::vector<Lookup> lookups;
  // A reshape, and a concat of look-ups slot by slot.
  std::vector<int> between;
  // A factorisation machine that reads the look-ups, too, and of gradients the sum of what it and the joined matrix
  // make.
  int machine = -1, sum = -1;
  std::vector<int64_t> slots_and_width;  // that it sees
};

const google::protobuf::RepeatedPtrField<std::string>& Vars(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots,
                                                            std::string_view name) {
  static const auto* const none = new google::protobuf::RepeatedPtrField<std::string>();
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name) return slot.vars();
  }
  return *none;
}

class Fuser {
 public:
  explicit Fuser(v1::ProgramDesc* main) : block_(main->mutable_blocks(0)), vars_(*block_) {
    for (const v1::LossDesc& loss : main->losses()) {
      kept_.insert({loss.var(), loss.prediction(), loss.label(), loss.sample_weight()});
    }
    for (const v1::OpDesc& op : block_->ops()) {
      for (const v1::ParamGrad& pair : op.param_grads()) kept_.insert({pair.param(), pair.grad()});
    }
    for (int i = 0; i < block_->ops_size(); ++i) {
      ForVars(block_->ops(i).inputs(), [&](const std::string& var) { readers_[var].push_back(i); });
      ForVars(block_->ops(i).outputs(), [&](const std::string& var) { writers_[var].push_back(i); });
    }
  }

  bool Run() {
    // Backward first: a reshape_grad reads what its reshape reads, for the dims.
    for (int i = 0; i < block_->ops_size(); ++i) {
      if (block_->ops(i).type() == "concat_grad" && !FuseGradient(i, /*machines=*/true))
        FuseGradient(i, /*machines=*/false);
    }
    for (int i = 0; i < block_->ops_size(); ++i) {
      if (block_->ops(i).type() == "concat" && !FuseForward(i, /*machines=*/true)) FuseForward(i, /*machines=*/false);
    }
    if (gone_.empty()) return false;
    int at = 0;
    FilterOps(block_, [&](const v1::OpDesc&) { return !gone_.contains(at++); });
    auto* const vars = block_->mutable_vars();
    vars->erase(std::remove_if(vars->begin(), vars->end(),
                               [&](const v1::VarDesc& var) { return dropped_.contains(var.name()); }),
                vars->end());
    return true;
  }

 private:
  template <typename Visit>
  static void ForVars(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, const Visit& visit) {
    for (const v1::OpSlot& slot : slots) {
      for (const std::string& var : slot.vars()) visit(var);
    }
  }

  const v1::OpDesc& Op(int i) const { return block_->ops(i); }

  // Along axis 1, of a variable of that rank.
  bool Joins(int i, const std::string& joined, int rank) const {
    const v1::VarDesc* const var = vars_.Find(joined);
    const v1::OpAttr* const axis = FindAttr(Op(i), "axis");
    return var != nullptr && var->dims_size() == rank && (axis == nullptr || axis->i() == 1 || axis->i() == 1 - rank);
  }

  // The op that writes a variable of one step, alone; -1 when there are none or several.
  int OnlyWriter(const std::string& var) const {
    const auto found = writers_.find(var);
    return found == writers_.end() || found->second.size() != 1 ? -1 : found->second[0];
  }
  // The readers of what has one writer in the whole program and is wanted by ops alone.
  std::vector<int> Readers(const std::string& var) const {
    const v1::VarDesc* const desc = vars_.Find(var);
    const auto found = readers_.find(var);
    if (desc == nullptr || desc->persistable() || kept_.contains(var) || OnlyWriter(var) < 0) return {};
    return found == readers_.end() ? std::vector<int>() : found->second;
  }
  // The one reader of such a variable, else -1.
  int OnlyReader(const std::string& var) const {
    const std::vector<int> readers = Readers(var);
    return readers.size() == 1 ? readers[0] : -1;
  }

  // The columns of a look-up, or of the gradient of one, whose Out would be [batch, width], or `by_slot` [batch, slots,
  // width]. -1 when it is another op, a sequence, of another shape or role, or does not read at op `at` what it reads
  // at its own place.
  int64_t Columns(int lookup, std::string_view type, const std::string& out, bool by_slot, int at) const {
    const v1::OpDesc& op = Op(lookup);
    const v1::OpAttr* const sequence = FindAttr(op, "sequence");
    const v1::OpAttr* const pooling = FindAttr(op, "pooling");
    const bool is_by_slot = pooling == nullptr || pooling->s() == "none" || Lookups::Flag(op, "per_slot");
    const bool is_sequence = sequence != nullptr && sequence->i() != 0;
    if (op.type() != type || op.role() != Op(at).role() || is_sequence || is_by_slot != by_slot) return -1;
    const v1::VarDesc *const ids = vars_.Find(InputOf(op, "Ids")), *const rows = vars_.Find(InputOf(op, "Rows")),
                             *const of = vars_.Find(out);
    if (ids == nullptr || rows == nullptr || of == nullptr) return -1;
    const std::vector<int64_t> pooled = {ids->dims(0), rows->dims(1)},
                               slots = {ids->dims(0), ids->dims(1), rows->dims(1)};
    if (Dims(*of) != absl::MakeConstSpan(by_slot ? slots : pooled)) return -1;
    for (const char* slot : {"Ids", "Index", "Rows"}) {
      const auto written = writers_.find(InputOf(op, slot));
      if (written != writers_.end() && written->second.back() >= std::min(lookup, at)) return -1;
    }
    return by_slot ? slots[1] * slots[2] : pooled[1];
  }

  // The op is a factorisation machine, or the gradient of one, of all slots of X.
  bool IsMachine(int op, std::string_view type, const std::string& x, v1::OpRole role) const {
    const v1::OpAttr* const columns = FindAttr(Op(op), "columns");
    return Op(op).type() == type && Op(op).role() == role && InputOf(Op(op), "X") == x &&
           (columns == nullptr || columns->ints().v().empty());
  }

  // What input `var` of the concat at `at` is made of, when it is look-ups and nothing else reads them, but with
  // `machines` a factorisation machine.
  std::optional<Piece> LookupsOf(const std::string& var, int at, bool machines) const {
    const v1::VarDesc* const desc = vars_.Find(var);
    const int writer = OnlyWriter(var);
    if (OnlyReader(var) != at || desc->dims_size() != 2 || writer > at) return std::nullopt;
    Piece piece;
    if (Op(writer).type() != "reshape") {
      if (Columns(writer, "lookup_rows", var, /*by_slot=*/false, at) != desc->dims(1)) return std::nullopt;
      piece.lookups.push_back({writer, 0});
      return piece;
    }
    piece.between.push_back(writer);
    const std::string slots = InputOf(Op(writer), "X");
    const int maker = OnlyWriter(slots);
    std::vector<int> readers = Readers(slots);
    if (std::erase(readers, writer) != 1) return std::nullopt;
    if (machines && readers.size() == 1 && IsMachine(readers[0], "fm_interaction", slots, Op(at).role())) {
      piece.machine = readers[0];
      piece.slots_and_width = {vars_.Find(slots)->dims(1), vars_.Find(slots)->dims(2)};
      readers.clear();
    }
    if (!readers.empty() || maker < 0 || maker > writer) return std::nullopt;
    std::vector<std::string> outs = {slots};
    int reader = writer;
    if (Op(maker).type() == "concat" && Op(maker).role() == Op(at).role() && Joins(maker, slots, 3)) {
      piece.between.push_back(maker);
      const auto& joined = Vars(Op(maker).inputs(), "X");
      outs.assign(joined.begin(), joined.end());
      reader = maker;
    }
    int64_t begin = 0;
    for (const std::string& out : outs) {
      const int lookup = OnlyWriter(out);
      if ((out != slots && OnlyReader(out) != reader) || lookup > reader) return std::nullopt;
      const int64_t columns = Columns(lookup, "lookup_rows", out, /*by_slot=*/true, at);
      if (columns < 0) return std::nullopt;
      piece.lookups.push_back({lookup, begin});
      begin += columns;
    }
    return begin == desc->dims(1) ? std::optional(piece) : std::nullopt;
  }

  // The matrix that a concat makes, in which `slots`, [batch, slots, width], stands from column `begin` on, and which
  // has these dims. Empty when there is none.
  std::string MatrixOf(const std::string& slots, int64_t begin, const v1::VarDesc& like) const {
    for (const int reshape : Readers(slots)) {
      if (Op(reshape).type() != "reshape") continue;
      for (const int concat : Readers(OutputOf(Op(reshape), "Out"))) {
        const std::string joined = OutputOf(Op(concat), "Out");
        if (Op(concat).type() != "concat" || OnlyWriter(joined) != concat || !Joins(concat, joined, 2)) continue;
        if (vars_.Find(joined)->persistable() || Dims(*vars_.Find(joined)) != Dims(like)) continue;
        int64_t column = 0;
        for (const std::string& x : Vars(Op(concat).inputs(), "X")) {
          if (x == OutputOf(Op(reshape), "Out") && column == begin) return joined;
          column += vars_.Find(x)->dims(1);
        }
      }
    }
    return "";
  }

  // Whether the gradient of the piece's machine can be added to that of the matrix, where the columns from `first` on
  // are `slots`: what both read then is written once, so it is the same where the sum stands.
  bool AddsTo(const Piece& piece, const std::string& slots, int64_t first, int at) const {
    const std::string joined_grad = InputOf(Op(at), "Out@GRAD");
    if (piece.machine < 0 || piece.machine > piece.sum ||
        !IsMachine(piece.machine, "fm_interaction_grad", slots, Op(at).role())) {
      return false;
    }
    const v1::OpDesc& machine = Op(piece.machine);
    const bool pairs = machine.param_grads_size() > 0 || Op(piece.sum).param_grads_size() > 0;
    for (const std::string& var : {InputOf(machine, "Sum"), InputOf(machine, "Out@GRAD"), joined_grad}) {
      if (OnlyWriter(var) < 0) return false;
    }
    return !pairs && InputOf(machine, "Onto").empty() && !MatrixOf(slots, first, *vars_.Find(joined_grad)).empty();
  }

  // What the output `var` of the concat_grad at `at` becomes, when it is gradients of look-ups and nothing else, but
  // with `machines` what is added to the gradient of a factorisation machine. It stands from column `first` on.
  std::optional<Piece> LookupGradientsOf(const std::string& var, int64_t first, int at, bool machines) const {
    const v1::VarDesc* const desc = vars_.Find(var);
    const int reader = OnlyReader(var);
    if (reader < at || desc->dims_size() != 2) return std::nullopt;
    Piece piece;
    if (Op(reader).type() != "reshape_grad" || InputOf(Op(reader), "Out@GRAD") != var) {
      if (!IsGradientOf(reader, var)) return std::nullopt;
      if (Columns(reader, "lookup_rows_grad", var, /*by_slot=*/false, at) != desc->dims(1)) return std::nullopt;
      piece.lookups.push_back({reader, 0});
      return piece;
    }
    piece.between.push_back(reader);
    std::string slots = OutputOf(Op(reader), "X@GRAD");
    int maker = reader, cutter = OnlyReader(slots);
    if (machines && cutter > reader && Op(cutter).type() == "sum" && Op(cutter).role() == Op(at).role()) {
      const auto& added = Vars(Op(cutter).inputs(), "X");
      if (added.size() != 2) return std::nullopt;
      const std::string& other = added.Get(added.Get(0) == slots ? 1 : 0);
      const std::string looked_up = InputOf(Op(reader), "X");
      piece.machine = OnlyWriter(other);
      piece.sum = cutter;
      if (OnlyReader(other) != cutter || !AddsTo(piece, looked_up, first, at)) return std::nullopt;
      piece.slots_and_width = {vars_.Find(looked_up)->dims(1), vars_.Find(looked_up)->dims(2)};
      slots = OutputOf(Op(cutter), "Out");
      maker = cutter;
      cutter = OnlyReader(slots);
    }
    if (cutter < maker) return std::nullopt;
    std::vector<std::pair<std::string, int64_t>> outs = {{slots, 0}};  // with the first column of each
    if (Op(cutter).type() == "concat_grad" && Joins(cutter, slots, 3)) {
      piece.between.push_back(cutter);
      outs = CutAt(cutter, vars_.Find(slots)->dims(2));
      maker = cutter;
    }
    for (const auto& [out, begin] : outs) {
      const int lookup = OnlyReader(out);
      if (lookup < maker || !IsGradientOf(lookup, out)) return std::nullopt;
      const int64_t columns = Columns(lookup, "lookup_rows_grad", out, /*by_slot=*/true, at);
      if (columns < 0 || columns > desc->dims(1) - begin) return std::nullopt;
      piece.lookups.push_back({lookup, begin});
    }
    return piece;
  }

  // The op reads it as the gradient of its Out, and that of its rows is touched by nothing before it. Clips and updates
  // stand behind.
  bool IsGradientOf(int op, const std::string& out_grad) const {
    const std::string rows_grad = OutputOf(Op(op), "Rows@GRAD");
    const auto written = writers_.find(rows_grad), read = readers_.find(rows_grad);
    return InputOf(Op(op), "Out@GRAD") == out_grad && written != writers_.end() && written->second.front() == op &&
           (read == readers_.end() || read->second.empty() || read->second.front() > op);
  }

  // Outputs of a concat_grad along axis 1, and where they begin; `inner` numbers for one along it.
  std::vector<std::pair<std::string, int64_t>> CutAt(int concat_grad, int64_t inner) const {
    const auto& sections = FindAttr(Op(concat_grad), "sections")->ints().v();
    const auto& wanted = FindAttr(Op(concat_grad), "wanted")->ints().v();
    const auto& outputs = Vars(Op(concat_grad).outputs(), "X@GRAD");
    std::vector<std::pair<std::string, int64_t>> cut;
    for (int p = 0; p < outputs.size(); ++p) {
      int64_t begin = 0;
      for (int s = 0; s < wanted.Get(p); ++s) begin += sections.Get(s) * inner;
      cut.emplace_back(outputs.Get(p), begin);
    }
    return cut;
  }

  // Op `i` stands for another one; what it wrote is nobody's any more when `dropped`.
  void Remove(int i, bool dropped) {
    gone_.insert(i);
    ForVars(Op(i).inputs(), [&](const std::string& var) { std::erase(readers_[var], i); });
    if (!dropped) return;
    ForVars(Op(i).outputs(), [&](const std::string& var) { dropped_.insert(var); });
  }

  // An op reads the variable, which it has not read before.
  void AddReader(const std::string& var, int i) {
    std::vector<int>& readers = readers_[var];
    readers.insert(std::upper_bound(readers.begin(), readers.end(), i), i);
  }

  static std::vector<int64_t> MachineColumns(int64_t begin, const std::vector<int64_t>& slots_and_width) {
    return {begin, slots_and_width[0], slots_and_width[1]};
  }

  // False: with the machines it cannot be, but perhaps without.
  bool FuseForward(int at, bool machines) {
    const v1::OpDesc concat = Op(at);
    const std::string joined = OutputOf(concat, "Out");
    if (!Joins(at, joined, 2)) return true;
    Lookups lookups;
    std::vector<Piece> pieces;
    std::vector<int64_t> begins;  // of the pieces, in columns
    std::vector<std::string> dense;
    std::vector<int64_t> dense_at;
    int64_t column = 0;
    const auto& inputs = Vars(concat.inputs(), "X");
    for (int p = 0; p < inputs.size(); ++p) {
      if (const std::optional<Piece> piece = LookupsOf(inputs.Get(p), at, machines); piece.has_value()) {
        for (const Piece::Lookup& lookup : piece->lookups) lookups.Add(Op(lookup.op));
        pieces.push_back(*piece);
        begins.push_back(column);
      } else {
        dense_at.push_back(static_cast<int64_t>(lookups.ids.size() + dense.size()));
        dense.push_back(inputs.Get(p));
      }
      column += vars_.Find(inputs.Get(p))->dims(1);
    }
    if (lookups.empty()) return true;
    // A machine reads the matrix, which is joined before it then: where the last look-up has been.
    int place = at, first_machine = block_->ops_size();
    for (const Piece& piece : pieces) {
      if (piece.machine >= 0) first_machine = std::min(first_machine, piece.machine);
    }
    if (first_machine < block_->ops_size() && OnlyWriter(joined) != at) return false;
    if (first_machine < at) {
      place = -1;
      for (const Piece& piece : pieces) {
        for (const Piece::Lookup& lookup : piece.lookups) place = std::max(place, lookup.op);
      }
      const auto late = [&](const std::string& var) {
        const auto written = writers_.find(var);
        return written != writers_.end() && written->second.back() >= place;
      };
      if (place > first_machine || std::any_of(dense.begin(), dense.end(), late)) return false;
    }
    Remove(at, /*dropped=*/false);
    for (size_t p = 0; p < pieces.size(); ++p) {
      for (const Piece::Lookup& lookup : pieces[p].lookups) Remove(lookup.op, /*dropped=*/true);
      for (const int op : pieces[p].between) Remove(op, /*dropped=*/true);
      if (pieces[p].machine < 0) continue;
      v1::OpDesc* const machine = block_->mutable_ops(pieces[p].machine);
      *machine = WithRole(MakeOp("fm_interaction", {{"X", {joined}}},
                                 {{"Out", {OutputOf(*machine, "Out")}}, {"Sum", {OutputOf(*machine, "Sum")}}},
                                 {AttrInts("columns", MachineColumns(begins[p], pieces[p].slots_and_width))}),
                          machine->role());
      AddReader(joined, pieces[p].machine);
    }
    std::vector<v1::OpAttr> attrs = lookups.Attrs();
    std::vector<std::pair<std::string, std::vector<std::string>>> slots = {
        {"Ids", lookups.ids}, {"Index", lookups.index}, {"Rows", lookups.rows}};
    if (!dense.empty()) slots.emplace_back("X", dense);
    // Behind the look-ups is where they are by default.
    if (!dense.empty() && dense_at[0] != static_cast<int64_t>(lookups.ids.size()))
      attrs.push_back(AttrInts("dense_at", dense_at));
    for (const std::string& var : dense) AddReader(var, place);
    Put(place, WithRole(MakeOp("lookup_concat", slots, {{"Out", {joined}}}, attrs), concat.role()));
    writers_[joined] = {place};
    return true;
  }

  bool FuseGradient(int at, bool machines) {
    const v1::OpDesc concat = Op(at);
    const std::string joined_grad = InputOf(concat, "Out@GRAD");
    if (!Joins(at, joined_grad, 2)) return true;
    Lookups lookups;
    std::vector<Piece> pieces;
    std::vector<int64_t> begins;
    std::vector<std::string> rows, dense;
    std::vector<int64_t> lookup_begins, dense_begins, dense_sizes;
    for (const auto& [var, begin] : CutAt(at, 1)) {
      if (const std::optional<Piece> piece = LookupGradientsOf(var, begin, at, machines); piece.has_value()) {
        for (const Piece::Lookup& lookup : piece->lookups) {
          lookups.Add(Op(lookup.op));
          rows.push_back(OutputOf(Op(lookup.op), "Rows@GRAD"));
          lookup_begins.push_back(begin + lookup.begin);
        }
        pieces.push_back(*piece);
        begins.push_back(begin);
      } else {
        dense.push_back(var);
        dense_begins.push_back(begin);
        dense_sizes.push_back(vars_.Find(var)->dims(1));
      }
    }
    if (lookups.empty()) return true;
    // A machine's gradient is added to that of the matrix where it was added to the look-ups', and these read it
    // behind.
    int place = at, last_sum = -1;
    for (const Piece& piece : pieces) last_sum = std::max(last_sum, piece.sum);
    if (last_sum >= 0) {
      place = block_->ops_size();
      for (const Piece& piece : pieces) {
        for (const Piece::Lookup& lookup : piece.lookups) place = std::min(place, lookup.op);
      }
      const auto early = [&](const std::string& var) {
        const auto read = readers_.find(var);
        return OnlyWriter(var) != at ||
               (read != readers_.end() && !read->second.empty() && read->second.front() <= place);
      };
      if (place < last_sum || std::any_of(dense.begin(), dense.end(), early)) return false;
    }
    // The gradient of the matrix, with those of the machines before, in the order of the sums.
    std::string grad = joined_grad;
    std::vector<size_t> added;
    for (size_t p = 0; p < pieces.size(); ++p) {
      if (pieces[p].sum >= 0) added.push_back(p);
    }
    std::sort(added.begin(), added.end(), [&](size_t a, size_t b) { return pieces[a].sum < pieces[b].sum; });
    for (const size_t p : added) grad = AddMachine(pieces[p], begins[p], grad, *vars_.Find(joined_grad));
    std::vector<v1::OpAttr> attrs = lookups.Attrs();
    attrs.push_back(AttrInts("lookup_begins", lookup_begins));
    std::vector<std::pair<std::string, std::vector<std::string>>> made = {{"Rows@GRAD", rows}};
    if (!dense.empty()) {
      made.emplace_back("X@GRAD", dense);
      attrs.push_back(AttrInts("dense_begins", dense_begins));
      attrs.push_back(AttrInts("dense_sizes", dense_sizes));
    }
    v1::OpDesc fused =
        WithRole(MakeOp("lookup_concat_grad",
                        {{"Ids", lookups.ids}, {"Index", lookups.index}, {"Rows", lookups.rows}, {"Out@GRAD", {grad}}},
                        made, attrs),
                 concat.role());
    *fused.mutable_param_grads() = concat.param_grads();
    Remove(at, /*dropped=*/false);
    for (const Piece& piece : pieces) {
      for (const Piece::Lookup& lookup : piece.lookups) {
        // The gradient of the rows stays; what it was made of goes.
        const v1::OpDesc& op = Op(lookup.op);
        fused.mutable_param_grads()->MergeFrom(op.param_grads());
        dropped_.insert(InputOf(op, "Out@GRAD"));
        writers_[OutputOf(op, "Rows@GRAD")].front() = place;
        Remove(lookup.op, /*dropped=*/false);
      }
      for (const int op : piece.between) {
        dropped_.insert(InputOf(Op(op), "Out@GRAD"));
        Remove(op, /*dropped=*/false);
      }
    }
    for (const std::string& var : dense) writers_[var] = {place};
    AddReader(grad, place);
    Put(place, std::move(fused));
    return true;
  }

  // Has a machine add its gradient to that of the matrix in which its slots begin at this column; the variable that has
  // both then, which is like the matrix's gradient.
  std::string AddMachine(const Piece& piece, int64_t begin, const std::string& onto, const v1::VarDesc& like) {
    const v1::OpDesc machine = Op(piece.machine);
    const std::string slots = InputOf(machine, "X"), joined = MatrixOf(slots, begin, like);
    std::string both = absl::StrCat(onto, "@", slots);
    while (vars_.Find(both) != nullptr) both += "_";
    v1::VarDesc* const desc = block_->add_vars();
    *desc = like;
    desc->set_name(both);
    for (const std::string& added : Vars(Op(piece.sum).inputs(), "X")) dropped_.insert(added);
    Remove(piece.machine, /*dropped=*/false);
    Remove(piece.sum, /*dropped=*/false);
    Put(piece.sum,
        WithRole(MakeOp("fm_interaction_grad",
                        {{"X", {joined}},
                         {"Sum", {InputOf(machine, "Sum")}},
                         {"Out@GRAD", {InputOf(machine, "Out@GRAD")}},
                         {"Onto", {onto}}},
                        {{"X@GRAD", {both}}}, {AttrInts("columns", MachineColumns(begin, piece.slots_and_width))}),
                 machine.role()));
    for (const std::string& var : {joined, InputOf(machine, "Sum"), InputOf(machine, "Out@GRAD"), onto})
      AddReader(var, piece.sum);
    writers_[both] = {piece.sum};
    return both;
  }

  // Where an op was that is gone.
  void Put(int i, v1::OpDesc op) {
    CHECK(gone_.erase(i) == 1) << "op " << i << " stays";
    *block_->mutable_ops(i) = std::move(op);
  }

  v1::BlockDesc* const block_;
  const VarIndex vars_;
  std::set<std::string> kept_;  // what losses and pairs of parameter and gradient name
  std::map<std::string, std::vector<int>> readers_,
      writers_;  // rising places; a reader once for each time that it reads
  std::set<int> gone_;
  std::set<std::string> dropped_;
};

}  // namespace

absl::StatusOr<bool> FuseLookups(const Job& job, Programs* programs) {
  // A trainer on a device finds what it is to run on the CPU by these names.
  static constexpr std::string_view kReplaced[] = {"lookup_rows", "lookup_rows_grad", "concat",
                                                   "concat_grad", "reshape",          "reshape_grad"};
  for (const std::string& op : job.config.train().cpu_ops()) {
    if (std::find(std::begin(kReplaced), std::end(kReplaced), op) != std::end(kReplaced)) return false;
  }
  return Fuser(&programs->main).Run();
}

}  // namespace weir
