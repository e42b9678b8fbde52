#include "transpiler/fuse_lookups.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/graph/op_registry.h"

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
      if (block_->ops(i).type() == "concat_grad") FuseGradient(i);
    }
    for (int i = 0; i < block_->ops_size(); ++i) {
      if (block_->ops(i).type() == "concat") FuseForward(i);
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
  // What has one writer and one reader in the whole program; that reader, else -1.
  int OnlyReader(const std::string& var) const {
    const v1::VarDesc* const desc = vars_.Find(var);
    const auto found = readers_.find(var);
    if (desc == nullptr || desc->persistable() || kept_.contains(var) || OnlyWriter(var) < 0) return -1;
    return found == readers_.end() || found->second.size() != 1 ? -1 : found->second[0];
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

  // What input `var` of the concat at `at` is made of, when it is look-ups and nothing else reads them.
  std::optional<Piece> LookupsOf(const std::string& var, int at) const {
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
    if (OnlyReader(slots) != writer || maker > writer) return std::nullopt;
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
      if (OnlyReader(out) != reader || lookup > reader) return std::nullopt;
      const int64_t columns = Columns(lookup, "lookup_rows", out, /*by_slot=*/true, at);
      if (columns < 0) return std::nullopt;
      piece.lookups.push_back({lookup, begin});
      begin += columns;
    }
    return begin == desc->dims(1) ? std::optional(piece) : std::nullopt;
  }

  // What the output `var` of the concat_grad at `at` becomes, when it is gradients of look-ups and nothing else.
  std::optional<Piece> LookupGradientsOf(const std::string& var, int at) const {
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
    const std::string slots = OutputOf(Op(reader), "X@GRAD");
    const int cutter = OnlyReader(slots);
    if (cutter < reader) return std::nullopt;
    std::vector<std::pair<std::string, int64_t>> outs = {{slots, 0}};  // with the first column of each
    int maker = reader;
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

  void FuseForward(int at) {
    const v1::OpDesc concat = Op(at);
    if (!Joins(at, OutputOf(concat, "Out"), 2)) return;
    Lookups lookups;
    std::vector<Piece> pieces;
    std::vector<std::string> dense;
    std::vector<int64_t> dense_at;
    const auto& inputs = Vars(concat.inputs(), "X");
    for (int p = 0; p < inputs.size(); ++p) {
      if (const std::optional<Piece> piece = LookupsOf(inputs.Get(p), at); piece.has_value()) {
        for (const Piece::Lookup& lookup : piece->lookups) lookups.Add(Op(lookup.op));
        pieces.push_back(*piece);
      } else {
        dense_at.push_back(static_cast<int64_t>(lookups.ids.size() + dense.size()));
        dense.push_back(inputs.Get(p));
      }
    }
    if (lookups.empty()) return;
    for (const Piece& piece : pieces) {
      for (const Piece::Lookup& lookup : piece.lookups) Remove(lookup.op, /*dropped=*/true);
      for (const int op : piece.between) Remove(op, /*dropped=*/true);
    }
    std::vector<v1::OpAttr> attrs = lookups.Attrs();
    std::vector<std::pair<std::string, std::vector<std::string>>> slots = {
        {"Ids", lookups.ids}, {"Index", lookups.index}, {"Rows", lookups.rows}};
    if (!dense.empty()) slots.emplace_back("X", dense);
    // Behind the look-ups is where they are by default.
    if (!dense.empty() && dense_at[0] != static_cast<int64_t>(lookups.ids.size()))
      attrs.push_back(AttrInts("dense_at", dense_at));
    *block_->mutable_ops(at) =
        WithRole(MakeOp("lookup_concat", slots, {{"Out", {OutputOf(concat, "Out")}}}, attrs), concat.role());
  }

  void FuseGradient(int at) {
    const v1::OpDesc concat = Op(at);
    if (!Joins(at, InputOf(concat, "Out@GRAD"), 2)) return;
    Lookups lookups;
    std::vector<Piece> pieces;
    std::vector<std::string> rows, dense;
    std::vector<int64_t> lookup_begins, dense_begins, dense_sizes;
    for (const auto& [var, begin] : CutAt(at, 1)) {
      if (const std::optional<Piece> piece = LookupGradientsOf(var, at); piece.has_value()) {
        for (const Piece::Lookup& lookup : piece->lookups) {
          lookups.Add(Op(lookup.op));
          rows.push_back(OutputOf(Op(lookup.op), "Rows@GRAD"));
          lookup_begins.push_back(begin + lookup.begin);
        }
        pieces.push_back(*piece);
      } else {
        dense.push_back(var);
        dense_begins.push_back(begin);
        dense_sizes.push_back(vars_.Find(var)->dims(1));
      }
    }
    if (lookups.empty()) return;
    std::vector<v1::OpAttr> attrs = lookups.Attrs();
    attrs.push_back(AttrInts("lookup_begins", lookup_begins));
    std::vector<std::pair<std::string, std::vector<std::string>>> made = {{"Rows@GRAD", rows}};
    if (!dense.empty()) {
      made.emplace_back("X@GRAD", dense);
      attrs.push_back(AttrInts("dense_begins", dense_begins));
      attrs.push_back(AttrInts("dense_sizes", dense_sizes));
    }
    v1::OpDesc fused = WithRole(MakeOp("lookup_concat_grad",
                                       {{"Ids", lookups.ids},
                                        {"Index", lookups.index},
                                        {"Rows", lookups.rows},
                                        {"Out@GRAD", {InputOf(concat, "Out@GRAD")}}},
                                       made, attrs),
                                concat.role());
    *fused.mutable_param_grads() = concat.param_grads();
    for (const Piece& piece : pieces) {
      for (const Piece::Lookup& lookup : piece.lookups) {
        // The gradient of the rows stays; what it was made of goes.
        const v1::OpDesc& op = Op(lookup.op);
        fused.mutable_param_grads()->MergeFrom(op.param_grads());
        dropped_.insert(InputOf(op, "Out@GRAD"));
        writers_[OutputOf(op, "Rows@GRAD")].front() = at;
        Remove(lookup.op, /*dropped=*/false);
      }
      for (const int op : piece.between) {
        dropped_.insert(InputOf(Op(op), "Out@GRAD"));
        Remove(op, /*dropped=*/false);
      }
    }
    *block_->mutable_ops(at) = std::move(fused);
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
