// Rewrite: look-ups that are joined write directly into the joined matrix, and their gradients are read there.
//
// Where a concat of matrices along axis 1 joins lookup_rows, directly or through a reshape to [-1, slots width], one
// lookup_concat replaces them; and where a concat_grad has gradients that only a lookup_rows_grad reads, directly or
// through a reshape_grad, one lookup_concat_grad makes those of the rows. Before the reshape look-ups may be joined
// slot by slot, as those of an embedding by several variables of ids are. The variables in between are dropped.
//
// A factorisation machine may read such look-ups, too: it then reads them in the matrix, which is joined before it, and
// adds its gradient to that of the matrix, in place of the sum of the two.
//
// A look-up is left alone if another op reads it or a variable made from it, and if it is a sequence; so are the other
// inputs of the concat. Both ops have the bits of the ops they replace (ops/lookup_concat.cc).
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/graph/rewrite.h"

namespace weir {
namespace {

v1::OpDesc WithRole(v1::OpDesc op, v1::OpRole role) {
  op.set_role(role);
  return op;
}

// Returns the pooling of a look-up; "none" is the default.
std::string PoolingOf(const v1::OpDesc& lookup) {
  const v1::OpAttr* const pooling = FindAttr(lookup, "pooling");
  return pooling == nullptr ? "none" : pooling->s();
}

// Variables and attributes of the look-ups of one fused op.
struct Lookups {
  std::vector<std::string> ids, index, rows, poolings;
  std::vector<int64_t> per_slot, padded, padding_ids;

  bool empty() const { return ids.empty(); }
  void Add(const v1::OpDesc& op) {
    ids.push_back(InputOf(op, "Ids"));
    index.push_back(InputOf(op, "Index"));
    rows.push_back(InputOf(op, "Rows"));
    poolings.push_back(PoolingOf(op));
    per_slot.push_back(BoolOr(op, "per_slot", false));
    padded.push_back(BoolOr(op, "has_padding", false));
    padding_ids.push_back(IntOr(op, "padding_id", 0));
  }
  // Leaves out attributes that have their default.
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
};

// An input of the concat that look-ups make, or an output of the concat_grad that becomes their gradients. Ops are
// places in the block, -1 for none.
struct Piece {
  struct Lookup {
    int op = -1;
    int64_t begin = 0;  // first column in the piece
  };
  int64_t begin = 0;  // first column in the matrix
  std::vector<Lookup> lookups;
  // A reshape, and a concat of look-ups slot by slot.
  std::vector<int> between;
  // A factorisation machine that reads the look-ups, too, and of gradients the sum of what it and the matrix make.
  int machine = -1, sum = -1;
  int64_t slots = 0, width = 0;  // that the machine sees

  v1::OpAttr MachineColumns() const { return AttrInts("columns", {begin, slots, width}); }
};

// What both directions ask of the block.
class Pattern {
 protected:
  explicit Pattern(OpRewriter* ops) : ops_(*ops), uses_(ops->uses()) {}
  ~Pattern() = default;

  const v1::OpDesc& Op(int i) const { return ops_.op(i); }
  bool Is(int i, std::string_view type, int like) const {
    return Op(i).type() == type && Op(i).role() == Op(like).role();
  }
  int64_t Dim(const std::string& var, int d) const { return ops_.Var(var)->dims(d); }

  // Returns whether the op joins or cuts along axis 1 and `joined` has this rank.
  bool Joins(int op, const std::string& joined, int rank) const {
    const v1::VarDesc* const var = ops_.Var(joined);
    const int64_t axis = IntOr(Op(op), "axis", 1);
    return var != nullptr && var->dims_size() == rank && (axis == 1 || axis == 1 - rank);
  }

  // Returns the columns of a look-up, or of the gradient of one, whose Out is [batch, width], or `by_slot` [batch,
  // slots, width]. -1 for another op, a sequence, another shape or role, and a look-up that would read other values at
  // op `at` than at its own place.
  int64_t Columns(int lookup, std::string_view type, const std::string& out, bool by_slot, int at) const {
    const v1::OpDesc& op = Op(lookup);
    const bool is_by_slot = PoolingOf(op) == "none" || BoolOr(op, "per_slot", false);
    if (!Is(lookup, type, at) || IntOr(op, "sequence", 0) != 0 || is_by_slot != by_slot) return -1;
    const v1::VarDesc *const ids = ops_.Var(InputOf(op, "Ids")), *const rows = ops_.Var(InputOf(op, "Rows")),
                             *const of = ops_.Var(out);
    if (ids == nullptr || rows == nullptr || of == nullptr) return -1;
    const std::vector<int64_t> pooled = {ids->dims(0), rows->dims(1)},
                               slots = {ids->dims(0), ids->dims(1), rows->dims(1)};
    if (Dims(*of) != absl::MakeConstSpan(by_slot ? slots : pooled)) return -1;
    for (const char* slot : {"Ids", "Index", "Rows"}) {
      const absl::Span<const int> writers = uses_.Writers(InputOf(op, slot));
      if (!writers.empty() && writers.back() >= std::min(lookup, at)) return -1;
    }
    return by_slot ? slots[1] * slots[2] : pooled[1];
  }

  // Returns whether the op is a factorisation machine, or the gradient of one, of all slots of X.
  bool IsMachine(int op, std::string_view type, const std::string& x, int at) const {
    return Is(op, type, at) && InputOf(Op(op), "X") == x && IntsOf(Op(op), "columns").empty();
  }

  OpRewriter& ops_;
  const DefUse& uses_;
};

class ForwardFusion : Pattern {
 public:
  explicit ForwardFusion(OpRewriter* ops) : Pattern(ops) {}

  // Fuses what the concat at `at` joins. Returns false if that cannot be with machines, but perhaps without.
  bool Fuse(int at, bool machines) {
    const v1::OpDesc concat = Op(at);
    const std::string joined = OutputOf(concat, "Out");
    if (!Joins(at, joined, 2)) return true;
    const Inputs inputs = InputsOf(concat, at, machines);
    if (inputs.lookups.empty()) return true;
    const std::optional<int> place = PlaceOf(inputs, joined, at);
    if (!place.has_value()) return false;
    ops_.Remove(at);
    for (const Piece& piece : inputs.pieces) Take(piece, joined);
    std::vector<v1::OpAttr> attrs = inputs.lookups.Attrs();
    std::vector<std::pair<std::string, std::vector<std::string>>> slots = {
        {"Ids", inputs.lookups.ids}, {"Index", inputs.lookups.index}, {"Rows", inputs.lookups.rows}};
    if (!inputs.dense.empty()) slots.emplace_back("X", inputs.dense);
    // By default they stand behind the look-ups.
    if (!inputs.dense.empty() && inputs.dense_at[0] != static_cast<int64_t>(inputs.lookups.ids.size())) {
      attrs.push_back(AttrInts("dense_at", inputs.dense_at));
    }
    ops_.Put(*place, WithRole(MakeOp("lookup_concat", slots, {{"Out", {joined}}}, attrs), concat.role()));
    return true;
  }

 private:
  // Inputs of a concat: those that look-ups make, and the others with their places among all pieces of the matrix.
  struct Inputs {
    Lookups lookups;
    std::vector<Piece> pieces;
    std::vector<std::string> dense;
    std::vector<int64_t> dense_at;
  };

  Inputs InputsOf(const v1::OpDesc& concat, int at, bool machines) const {
    Inputs inputs;
    int64_t column = 0;
    for (const std::string& var : SlotVars(concat.inputs(), "X")) {
      if (std::optional<Piece> piece = LookupsOf(var, at, machines); piece.has_value()) {
        piece->begin = column;
        for (const Piece::Lookup& lookup : piece->lookups) inputs.lookups.Add(Op(lookup.op));
        inputs.pieces.push_back(*std::move(piece));
      } else {
        inputs.dense_at.push_back(static_cast<int64_t>(inputs.lookups.ids.size() + inputs.dense.size()));
        inputs.dense.push_back(var);
      }
      column += Dim(var, 1);
    }
    return inputs;
  }

  // Returns the look-ups of which input `var` of the concat at `at` is made, if nothing else reads them, but with
  // `machines` a factorisation machine.
  std::optional<Piece> LookupsOf(const std::string& var, int at, bool machines) const {
    const int writer = uses_.OnlyWriter(var);
    if (ops_.OnlyReader(var) != at || ops_.Var(var)->dims_size() != 2 || writer > at) return std::nullopt;
    Piece piece;
    if (Op(writer).type() != "reshape") {
      if (Columns(writer, "lookup_rows", var, /*by_slot=*/false, at) != Dim(var, 1)) return std::nullopt;
      piece.lookups.push_back({writer, 0});
      return piece;
    }
    piece.between.push_back(writer);
    const std::string slots = InputOf(Op(writer), "X");
    const int maker = uses_.OnlyWriter(slots);
    if (!ReadBy(writer, slots, at, machines, &piece) || maker < 0 || maker > writer) return std::nullopt;
    std::vector<std::string> outs = {slots};
    int reader = writer;
    if (Is(maker, "concat", at) && Joins(maker, slots, 3)) {
      piece.between.push_back(maker);
      const auto& joined = SlotVars(Op(maker).inputs(), "X");
      outs.assign(joined.begin(), joined.end());
      reader = maker;
    }
    int64_t begin = 0;
    for (const std::string& out : outs) {
      const int lookup = uses_.OnlyWriter(out);
      if ((out != slots && ops_.OnlyReader(out) != reader) || lookup > reader) return std::nullopt;
      const int64_t columns = Columns(lookup, "lookup_rows", out, /*by_slot=*/true, at);
      if (columns < 0) return std::nullopt;
      piece.lookups.push_back({lookup, begin});
      begin += columns;
    }
    return begin == Dim(var, 1) ? std::optional(piece) : std::nullopt;
  }

  // Returns whether the reshape alone reads `slots`, or with `machines` a factorisation machine beside it, which it
  // notes.
  bool ReadBy(int reshape, const std::string& slots, int at, bool machines, Piece* piece) const {
    const absl::Span<const int> all = ops_.PrivateReaders(slots);
    std::vector<int> readers(all.begin(), all.end());
    if (std::erase(readers, reshape) != 1) return false;
    if (!machines || readers.size() != 1 || !IsMachine(readers[0], "fm_interaction", slots, at)) return readers.empty();
    piece->machine = readers[0];
    piece->slots = Dim(slots, 1);
    piece->width = Dim(slots, 2);
    return true;
  }

  // Returns where the matrix is joined: at the concat, but before the first machine that reads it, where the last
  // look-up has been. Nothing if there is no such place.
  std::optional<int> PlaceOf(const Inputs& inputs, const std::string& joined, int at) const {
    int first_machine = ops_.size(), last_lookup = -1;
    for (const Piece& piece : inputs.pieces) {
      if (piece.machine >= 0) first_machine = std::min(first_machine, piece.machine);
      for (const Piece::Lookup& lookup : piece.lookups) last_lookup = std::max(last_lookup, lookup.op);
    }
    if (first_machine < ops_.size() && uses_.OnlyWriter(joined) != at) return std::nullopt;
    if (first_machine >= at) return at;
    const auto late = [&](const std::string& var) {
      const absl::Span<const int> writers = uses_.Writers(var);
      return !writers.empty() && writers.back() >= last_lookup;
    };
    if (last_lookup > first_machine || std::any_of(inputs.dense.begin(), inputs.dense.end(), late)) return std::nullopt;
    return last_lookup;
  }

  // Removes the ops of a piece; its machine reads the matrix.
  void Take(const Piece& piece, const std::string& joined) {
    const auto take = [&](int op) {
      ForEachVar(Op(op).outputs(), [&](const std::string& var) { ops_.DropVar(var); });
      ops_.Remove(op);
    };
    for (const Piece::Lookup& lookup : piece.lookups) take(lookup.op);
    for (const int op : piece.between) take(op);
    if (piece.machine < 0) return;
    const v1::OpDesc& machine = Op(piece.machine);
    ops_.Put(piece.machine, WithRole(MakeOp("fm_interaction", {{"X", {joined}}},
                                            {{"Out", {OutputOf(machine, "Out")}}, {"Sum", {OutputOf(machine, "Sum")}}},
                                            {piece.MachineColumns()}),
                                     machine.role()));
  }
};

class GradientFusion : Pattern {
 public:
  explicit GradientFusion(OpRewriter* ops) : Pattern(ops) {}

  // Fuses what the concat_grad at `at` makes. Returns false if that cannot be with machines, but perhaps without.
  bool Fuse(int at, bool machines) {
    const v1::OpDesc concat = Op(at);
    const std::string joined_grad = InputOf(concat, "Out@GRAD");
    if (!Joins(at, joined_grad, 2)) return true;
    const Outputs outputs = OutputsOf(at, machines);
    if (outputs.lookups.empty()) return true;
    const std::optional<int> place = PlaceOf(outputs, at);
    if (!place.has_value()) return false;
    v1::OpDesc fused = FusedOp(outputs, AddMachines(outputs.pieces, joined_grad));
    fused.set_role(concat.role());
    *fused.mutable_param_grads() = concat.param_grads();
    ops_.Remove(at);
    for (const Piece& piece : outputs.pieces) {
      for (const Piece::Lookup& lookup : piece.lookups) {
        fused.mutable_param_grads()->MergeFrom(Op(lookup.op).param_grads());
        Take(lookup.op);
      }
      for (const int op : piece.between) Take(op);
    }
    ops_.Put(*place, std::move(fused));
    return true;
  }

 private:
  // Outputs of a concat_grad: those that become gradients of rows, and the others with their columns.
  struct Outputs {
    Lookups lookups;
    std::vector<Piece> pieces;
    std::vector<std::string> rows, dense;
    std::vector<int64_t> lookup_begins, dense_begins, dense_sizes;
  };

  Outputs OutputsOf(int at, bool machines) const {
    Outputs outputs;
    for (const auto& [var, begin] : CutAt(at, 1)) {
      if (std::optional<Piece> piece = LookupGradientsOf(var, begin, at, machines); piece.has_value()) {
        for (const Piece::Lookup& lookup : piece->lookups) {
          outputs.lookups.Add(Op(lookup.op));
          outputs.rows.push_back(OutputOf(Op(lookup.op), "Rows@GRAD"));
          outputs.lookup_begins.push_back(begin + lookup.begin);
        }
        outputs.pieces.push_back(*std::move(piece));
      } else {
        outputs.dense.push_back(var);
        outputs.dense_begins.push_back(begin);
        outputs.dense_sizes.push_back(Dim(var, 1));
      }
    }
    return outputs;
  }

  // Returns the gradients that output `var` of the concat_grad at `at` becomes, if it is gradients of look-ups and
  // nothing else, but with `machines` what is added to the gradient of a factorisation machine. `first` is its first
  // column in the matrix.
  std::optional<Piece> LookupGradientsOf(const std::string& var, int64_t first, int at, bool machines) const {
    const int reader = ops_.OnlyReader(var);
    if (reader < at || ops_.Var(var)->dims_size() != 2) return std::nullopt;
    Piece piece{.begin = first};
    if (Op(reader).type() != "reshape_grad" || InputOf(Op(reader), "Out@GRAD") != var) {
      if (!IsGradientOf(reader, var)) return std::nullopt;
      if (Columns(reader, "lookup_rows_grad", var, /*by_slot=*/false, at) != Dim(var, 1)) return std::nullopt;
      piece.lookups.push_back({reader, 0});
      return piece;
    }
    piece.between.push_back(reader);
    std::string slots = OutputOf(Op(reader), "X@GRAD");
    int maker = reader, cutter = ops_.OnlyReader(slots);
    if (machines && cutter > reader && Is(cutter, "sum", at)) {
      if (!TakesSum(cutter, slots, InputOf(Op(reader), "X"), at, &piece)) return std::nullopt;
      slots = OutputOf(Op(cutter), "Out");
      maker = cutter;
      cutter = ops_.OnlyReader(slots);
    }
    if (cutter < maker) return std::nullopt;
    std::vector<std::pair<std::string, int64_t>> outs = {{slots, 0}};  // with the first column of each
    if (Op(cutter).type() == "concat_grad" && Joins(cutter, slots, 3)) {
      piece.between.push_back(cutter);
      outs = CutAt(cutter, Dim(slots, 2));
      maker = cutter;
    }
    for (const auto& [out, begin] : outs) {
      const int lookup = ops_.OnlyReader(out);
      if (lookup < maker || !IsGradientOf(lookup, out)) return std::nullopt;
      const int64_t columns = Columns(lookup, "lookup_rows_grad", out, /*by_slot=*/true, at);
      if (columns < 0 || columns > Dim(var, 1) - begin) return std::nullopt;
      piece.lookups.push_back({lookup, begin});
    }
    return piece;
  }

  // Notes the sum of the gradient of the looked up `slots` and that of a machine, if the machine's can be added to that
  // of the matrix: what both read then is written once, so it is the same where the sum stands.
  bool TakesSum(int sum, const std::string& grad, const std::string& slots, int at, Piece* piece) const {
    const auto& added = SlotVars(Op(sum).inputs(), "X");
    if (added.size() != 2) return false;
    const std::string& other = added.Get(added.Get(0) == grad ? 1 : 0);
    const int machine = uses_.OnlyWriter(other);
    if (ops_.OnlyReader(other) != sum || machine < 0 || machine > sum ||
        !IsMachine(machine, "fm_interaction_grad", slots, at)) {
      return false;
    }
    const std::string joined_grad = InputOf(Op(at), "Out@GRAD");
    for (const std::string& var : {InputOf(Op(machine), "Sum"), InputOf(Op(machine), "Out@GRAD"), joined_grad}) {
      if (uses_.OnlyWriter(var) < 0) return false;
    }
    const bool pairs = Op(machine).param_grads_size() > 0 || Op(sum).param_grads_size() > 0;
    if (pairs || !InputOf(Op(machine), "Onto").empty()) return false;
    piece->machine = machine;
    piece->sum = sum;
    piece->slots = Dim(slots, 1);
    piece->width = Dim(slots, 2);
    return !MatrixOf(slots, piece->begin, *ops_.Var(joined_grad)).empty();
  }

  // Returns the matrix that a concat makes, in which `slots`, [batch, slots, width], stands from column `begin` on, and
  // which has the dims of `like`. "" if there is none.
  std::string MatrixOf(const std::string& slots, int64_t begin, const v1::VarDesc& like) const {
    for (const int reshape : ops_.PrivateReaders(slots)) {
      if (Op(reshape).type() != "reshape") continue;
      const std::string piece = OutputOf(Op(reshape), "Out");
      for (const int concat : ops_.PrivateReaders(piece)) {
        std::string joined = OutputOf(Op(concat), "Out");
        if (Op(concat).type() != "concat" || uses_.OnlyWriter(joined) != concat || !Joins(concat, joined, 2)) continue;
        if (ops_.Var(joined)->persistable() || Dims(*ops_.Var(joined)) != Dims(like)) continue;
        int64_t column = 0;
        for (const std::string& x : SlotVars(Op(concat).inputs(), "X")) {
          if (x == piece && column == begin) return joined;
          column += Dim(x, 1);
        }
      }
    }
    return "";
  }

  // Returns whether the op reads `out_grad` as the gradient of its Out, and nothing before it touches that of its rows.
  // Clips and updates stand behind.
  bool IsGradientOf(int op, const std::string& out_grad) const {
    const std::string rows_grad = OutputOf(Op(op), "Rows@GRAD");
    const absl::Span<const int> writers = uses_.Writers(rows_grad), readers = uses_.Readers(rows_grad);
    return InputOf(Op(op), "Out@GRAD") == out_grad && !writers.empty() && writers.front() == op &&
           (readers.empty() || readers.front() > op);
  }

  // Returns the outputs of a concat_grad along axis 1 with their first columns; `inner` columns for one along the axis.
  std::vector<std::pair<std::string, int64_t>> CutAt(int concat_grad, int64_t inner) const {
    const auto &sections = IntsOf(Op(concat_grad), "sections"), &wanted = IntsOf(Op(concat_grad), "wanted");
    const auto& outputs = SlotVars(Op(concat_grad).outputs(), "X@GRAD");
    std::vector<std::pair<std::string, int64_t>> cut;
    for (int p = 0; p < outputs.size(); ++p) {
      int64_t begin = 0;
      for (int s = 0; s < wanted.Get(p); ++s) begin += sections.Get(s) * inner;
      cut.emplace_back(outputs.Get(p), begin);
    }
    return cut;
  }

  // Returns where the rows get their gradients: at the concat_grad, but behind the last sum with a machine's gradient,
  // where the first of the look-ups' gradients has been. Nothing if there is no such place.
  std::optional<int> PlaceOf(const Outputs& outputs, int at) const {
    int last_sum = -1, first_lookup = ops_.size();
    for (const Piece& piece : outputs.pieces) {
      last_sum = std::max(last_sum, piece.sum);
      for (const Piece::Lookup& lookup : piece.lookups) first_lookup = std::min(first_lookup, lookup.op);
    }
    if (last_sum < 0) return at;
    const auto early = [&](const std::string& var) {
      const absl::Span<const int> readers = uses_.Readers(var);
      return uses_.OnlyWriter(var) != at || (!readers.empty() && readers.front() <= first_lookup);
    };
    if (first_lookup < last_sum || std::any_of(outputs.dense.begin(), outputs.dense.end(), early)) return std::nullopt;
    return first_lookup;
  }

  // Has the machines add their gradients to that of the matrix, in the order of the sums. Returns the variable with all
  // of them.
  std::string AddMachines(const std::vector<Piece>& pieces, const std::string& joined_grad) {
    std::vector<const Piece*> added;
    for (const Piece& piece : pieces) {
      if (piece.sum >= 0) added.push_back(&piece);
    }
    std::sort(added.begin(), added.end(), [](const Piece* a, const Piece* b) { return a->sum < b->sum; });
    std::string grad = joined_grad;
    for (const Piece* piece : added) grad = AddMachine(*piece, grad, *ops_.Var(joined_grad));
    return grad;
  }

  // Returns the variable for `onto` with the machine's gradient, which is like the matrix's gradient.
  std::string AddMachine(const Piece& piece, const std::string& onto, const v1::VarDesc& like) {
    const v1::OpDesc machine = Op(piece.machine);
    const std::string slots = InputOf(machine, "X"), joined = MatrixOf(slots, piece.begin, like);
    v1::VarDesc both = like;
    both.set_name(absl::StrCat(onto, "@", slots));
    while (ops_.Var(both.name()) != nullptr) both.mutable_name()->append("_");
    ops_.AddVar(both);
    ForEachVar(Op(piece.sum).inputs(), [&](const std::string& var) { ops_.DropVar(var); });
    ops_.Remove(piece.machine);
    ops_.Put(piece.sum, WithRole(MakeOp("fm_interaction_grad",
                                        {{"X", {joined}},
                                         {"Sum", {InputOf(machine, "Sum")}},
                                         {"Out@GRAD", {InputOf(machine, "Out@GRAD")}},
                                         {"Onto", {onto}}},
                                        {{"X@GRAD", {both.name()}}}, {piece.MachineColumns()}),
                                 machine.role()));
    return both.name();
  }

  static v1::OpDesc FusedOp(const Outputs& outputs, const std::string& grad) {
    std::vector<v1::OpAttr> attrs = outputs.lookups.Attrs();
    attrs.push_back(AttrInts("lookup_begins", outputs.lookup_begins));
    std::vector<std::pair<std::string, std::vector<std::string>>> made = {{"Rows@GRAD", outputs.rows}};
    if (!outputs.dense.empty()) {
      made.emplace_back("X@GRAD", outputs.dense);
      attrs.push_back(AttrInts("dense_begins", outputs.dense_begins));
      attrs.push_back(AttrInts("dense_sizes", outputs.dense_sizes));
    }
    const Lookups& lookups = outputs.lookups;
    return MakeOp("lookup_concat_grad",
                  {{"Ids", lookups.ids}, {"Index", lookups.index}, {"Rows", lookups.rows}, {"Out@GRAD", {grad}}}, made,
                  attrs);
  }

  // Removes an op and the gradient that it was made of; what it makes stays.
  void Take(int op) {
    ops_.DropVar(InputOf(Op(op), "Out@GRAD"));
    ops_.Remove(op);
  }
};

template <typename Fusion>
void FuseAll(std::string_view type, OpRewriter* ops) {
  Fusion fusion(ops);
  for (int i = 0; i < ops->size(); ++i) {
    if (ops->op(i).type() == type && !fusion.Fuse(i, /*machines=*/true)) fusion.Fuse(i, /*machines=*/false);
  }
}

bool FuseLookups(v1::ProgramDesc* main) {
  OpRewriter ops(main);
  // Backward first: a reshape_grad reads what its reshape reads, for the dims.
  FuseAll<GradientFusion>("concat_grad", &ops);
  FuseAll<ForwardFusion>("concat", &ops);
  return ops.Finish();
}

REGISTER_REWRITE(fuse_lookups)
({.name = "fuse_lookups",
  .place = 1,
  .replaces = {"lookup_rows", "lookup_rows_grad", "concat", "concat_grad", "reshape", "reshape_grad"},
  .run = FuseLookups});

}  // namespace
}  // namespace weir
