#include "transpiler/passes/prefetch_tables.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/def_use.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/training_mode.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

// Applies the gradient rule of lookup_rows in place of that of lookup_table. The gradient of the rows takes the name of
// the gradient of the table.
class RowsGradContext : public GradContext {
 public:
  RowsGradContext(const v1::OpDesc& op, const OpDef& def, const VarIndex& vars, std::string out_grad,
                  std::string rows_grad)
      : op_(op), def_(def), vars_(vars), out_grad_(std::move(out_grad)), rows_grad_(std::move(rows_grad)) {}
  const v1::OpDesc& op() const override { return op_; }
  AttrReader attrs() const override { return AttrReader(op_, def_); }
  std::string OutputGrad(std::string_view, int) const override { return out_grad_; }
  std::string InputGrad(std::string_view slot, int) override { return slot == "Rows" ? rows_grad_ : ""; }
  const v1::VarDesc& Var(std::string_view name) const override {
    const v1::VarDesc* var = vars_.Find(name);
    CHECK(var != nullptr) << name;
    return *var;
  }

 private:
  const v1::OpDesc& op_;
  const OpDef& def_;
  const VarIndex& vars_;
  const std::string out_grad_;
  const std::string rows_grad_;
};

class Rewriter {
 public:
  Rewriter(const Job& job, v1::ProgramDesc* main)
      : ahead_(job.config.distribute().prefetch_rows()),
        job_(job),
        main_(main),
        block_(main->mutable_blocks(0)),
        vars_(*block_),
        uses_(*block_) {
    for (const v1::FetchedRows& fetched : main->plan().fetched_rows()) fetched_.insert(fetched.parameter());
    for (const v1::OpDesc& op : block_->ops()) {
      there_ |= op.type() == "prefetch";
    }
  }

  absl::StatusOr<bool> Run() {
    for (int i = 0; i < block_->ops_size(); ++i) {
      if (TableOf(block_->ops(i)) != nullptr) RETURN_IF_ERROR(Replace(i));
    }
    if (ids_.empty() && ahead_ && !there_) {
      return job_.positions.Error(
          "distribute.prefetch_rows",
          "distribute.prefetch_rows has nothing to act on: trainers fetch no table of the job by rows");
    }
    if (ids_.empty()) return false;
    InsertPrefetch();
    if (ahead_) MutableMode(main_)->set_prefetch_rows(true);
    return true;
  }

 private:
  // Returns the distributed table that a look-up or its gradient reads, or the matrix whose rows are fetched.
  const v1::VarDesc* TableOf(const v1::OpDesc& op) const {
    if (op.type() != "lookup_table" && op.type() != "lookup_table_grad") return nullptr;
    const v1::VarDesc* var = vars_.Find(InputOf(op, "W"));
    return var != nullptr && (var->kind() == v1::TABLE || fetched_.contains(var->name())) ? var : nullptr;
  }

  absl::Status Replace(int i) {
    const v1::OpDesc old = block_->ops(i);
    const v1::VarDesc table = *TableOf(old);
    const std::string ids = InputOf(old, "Ids");
    if (uses_.IsWritten(ids)) {
      return absl::InvalidArgumentError(absl::StrCat("ids '", ids, "' of table '", table.name(),
                                                     "' come from operator ", block_->ops(uses_.Writers(ids)[0]).type(),
                                                     "; rows can only be prefetched for ids of the data"));
    }
    Ask(ids, table, SequenceOf(old));
    ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get("lookup_rows"));
    std::vector<v1::OpAttr> attrs;
    for (const v1::OpAttr& attr : old.attrs()) {
      for (const AttrDef& known : def->attrs) {
        if (known.name == attr.name()) attrs.push_back(attr);
      }
    }
    const bool backward = old.type() == "lookup_table_grad";
    const std::string out = backward ? "" : OutputOf(old, "Out");
    const v1::OpDesc lookup =
        MakeOp("lookup_rows", {{"Ids", {ids}}, {"Index", {IndexName(ids, table)}}, {"Rows", {RowsName(table)}}},
               {{"Out", {out}}}, attrs);
    if (!backward) {
      *block_->mutable_ops(i) = WithRole(lookup, old.role());
      return absl::OkStatus();
    }
    RowsGradContext context(lookup, *def, vars_, InputOf(old, "Out@GRAD"), OutputOf(old, "W@GRAD"));
    ASSIGN_OR_RETURN(std::vector<v1::OpDesc> grads, def->gradient(context));
    CHECK_EQ(grads.size(), 1u) << "lookup_rows has one gradient op";
    grads[0].set_role(old.role());
    *grads[0].mutable_param_grads() = old.param_grads();
    *block_->mutable_ops(i) = std::move(grads[0]);
    return absl::OkStatus();
  }

  static std::string RowsName(const v1::VarDesc& table) { return table.name() + "@ROWS"; }
  static std::string IndexName(const std::string& ids, const v1::VarDesc& table) {
    return absl::StrCat(ids, "@INDEX.", table.name());
  }

  // Returns how many of the last ids of each example the look-up reads; 0 for all. With padding the ids that count may
  // be anywhere, so all are read.
  static int64_t SequenceOf(const v1::OpDesc& op) {
    return BoolOr(op, "has_padding", false) ? 0 : IntOr(op, "sequence", 0);
  }

  // Fetches each pair of ids and table once, with all ids that any of its look-ups reads.
  void Ask(const std::string& ids, const v1::VarDesc& table, int64_t sequence) {
    const auto [asked, fresh] = asked_.emplace(std::make_pair(ids, table.name()), sequences_.size());
    if (!fresh) {
      int64_t& other = sequences_[asked->second];
      other = other == 0 || sequence == 0 ? 0 : std::max(other, sequence);
      return;
    }
    sequences_.push_back(sequence);
    ids_.push_back(ids);
    tables_.push_back(table.name());
    indexes_.push_back(IndexName(ids, table));
    v1::VarDesc* index = block_->add_vars();
    index->set_name(indexes_.back());
    index->set_dtype(v1::INT32);
    index->add_dims(-1);
    vars_.Add(*index);
    if (!tables_asked_.insert(table.name()).second) return;
    row_tables_.push_back(table.name());
    widths_.push_back(table.dims(1));
    heights_.push_back(table.kind() == v1::TABLE ? -1 : table.dims(0));
    rows_.push_back(RowsName(table));
    v1::VarDesc* rows = block_->add_vars();
    rows->set_name(rows_.back());
    rows->set_kind(v1::SELECTED_ROWS);
    rows->set_dtype(v1::FLOAT32);
    rows->add_dims(heights_.back());
    rows->add_dims(table.dims(1));
    vars_.Add(*rows);
  }

  void InsertPrefetch() {
    std::vector<v1::OpAttr> attrs = {AttrStrings("tables", tables_), AttrStrings("row_tables", row_tables_),
                                     AttrInts("widths", widths_)};
    if (!fetched_.empty()) attrs.push_back(AttrInts("heights", heights_));
    const bool cut = std::any_of(sequences_.begin(), sequences_.end(), [](int64_t sequence) { return sequence > 0; });
    if (cut) attrs.push_back(AttrInts("sequences", sequences_));
    *block_->add_ops() =
        WithRole(MakeOp("prefetch", {{"Ids", ids_}}, {{"Rows", rows_}, {"Index", indexes_}}, attrs), v1::RPC);
    for (int i = block_->ops_size() - 1; i > 0; --i) block_->mutable_ops()->SwapElements(i, i - 1);
  }

  const bool ahead_;
  bool there_ = false;  // the pass has run before
  const Job& job_;
  v1::ProgramDesc* const main_;
  v1::BlockDesc* const block_;
  VarIndex vars_;
  const DefUse uses_;  // built before the rewriting, which adds no writers of ids
  std::set<std::string> fetched_;
  std::map<std::pair<std::string, std::string>, size_t> asked_;  // index in ids_ by ids and table
  std::set<std::string> tables_asked_;
  std::vector<std::string> ids_, tables_, indexes_;  // one each per pair of ids and table
  std::vector<int64_t> sequences_;
  std::vector<std::string> row_tables_, rows_;  // one each per table
  std::vector<int64_t> widths_, heights_;
};

}  // namespace

absl::StatusOr<bool> PrefetchTables(const Job& job, Programs* programs) { return Rewriter(job, &programs->main).Run(); }

REGISTER_PASS(prefetch_tables)
({.name = "prefetch_tables", .run = PrefetchTables, .phase = Phase::kTrainer, .after = "keep_updates"});

}  // namespace weir
