// embedding: rows of a table by ids. NONE: [B, slots, width]; with a pooling [B, width], or [B, slots, width] per_slot.
// Each of several ids variables has one look-up; their slots are joined, or added if pooled over the whole example. A
// sequence of one slot's ids is [B, sequence, width], and "<name>.length" is its length.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/feature_id.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

const char* PoolingName(v1::Embedding::Pooling pooling) {
  switch (pooling) {
    case v1::Embedding::SUM:
      return "sum";
    case v1::Embedding::MEAN:
      return "mean";
    case v1::Embedding::SQRT_N:
      return "sqrt_n";
    case v1::Embedding::NONE:
      break;
  }
  return "none";
}

// Returns whether ids of the variable stay raw; others are salted by slot. Drawn negatives are as the ids that they are
// none of.
bool Shared(const std::string& ids, const ModelContext& ctx) {
  const auto& shared = ctx.job().data().ids().shared();
  return std::find(shared.begin(), shared.end(), ctx.IdSpaceOf(ids)) != shared.end();
}

// Rows stored densely are addressed by [0, dict_size); salted ids can have any value.
absl::Status CheckIdsOfDenseTable(const v1::Table& table, std::string_view field, const std::string& ids,
                                  ModelContext& ctx) {
  if (table.is_distributed() || Shared(ids, ctx)) return absl::OkStatus();
  return ctx.Error(field, absl::StrCat("'", ids, "' are salted by slot and do not lie in [0, dict_size) of table '",
                                       table.name(), "': add data { ids { shared: \"", ctx.IdSpaceOf(ids),
                                       "\" } }, or is_sparse: true is_distributed: true to the table"));
}

void AddPadding(const v1::Embedding& m, const std::string& ids, ModelContext& ctx, std::vector<v1::OpAttr>* attrs) {
  if (!m.has_padding_id()) return;
  attrs->push_back(AttrB("has_padding", true));
  // The reader gives one padding id for all slots, salted unless the ids are shared.
  attrs->push_back(AttrI("padding_id", Shared(ids, ctx) ? m.padding_id() : PaddingId(m.padding_id())));
}

absl::Status CheckSequence(const v1::Embedding& m, const v1::VarDesc& ids, ModelContext& ctx) {
  if (m.sequence() < 0) return ctx.Error("sequence", absl::StrCat("must not be negative, got ", m.sequence()));
  if (m.sequence() == 0) return absl::OkStatus();
  if (m.pooling() != v1::Embedding::NONE) {
    return ctx.Error("sequence", absl::StrCat("has no pooling: leave ", v1::Embedding::Pooling_Name(m.pooling()),
                                              " out, or pool the sequence with a sequence_pool"));
  }
  if (m.ids_size() > 1 || ids.dims(1) != 1) {
    return ctx.Error(
        "sequence", absl::StrCat("is of one slot, got ", m.ids_size(), " ids variables, the first with ", ids.dims(1)));
  }
  return absl::OkStatus();
}

absl::Status AppendLength(const v1::Embedding& m, const std::string& ids, ModelContext& ctx) {
  std::vector<v1::OpAttr> attrs = {AttrI("sequence", m.sequence())};
  AddPadding(m, ids, ctx, &attrs);
  return ctx.Append(MakeOp("sequence_length", {{"Ids", {ids}}}, {{"Out", {ctx.name() + ".length"}}}, attrs));
}

absl::Status AppendLookup(const v1::Embedding& m, const v1::Table& table, const std::string& ids,
                          const std::string& output, ModelContext& ctx) {
  std::vector<v1::OpAttr> attrs = {AttrS("pooling", PoolingName(m.pooling())), AttrB("per_slot", m.per_slot())};
  AddPadding(m, ids, ctx, &attrs);
  if (m.sequence() > 0) attrs.push_back(AttrI("sequence", m.sequence()));
  attrs.push_back(AttrB("is_sparse", table.is_sparse()));
  attrs.push_back(AttrB("is_distributed", table.is_distributed()));
  return ctx.Append(MakeOp("lookup_table", {{"Ids", {ids}}, {"W", {table.name()}}}, {{"Out", {output}}}, attrs));
}

absl::Status BuildEmbedding(const v1::Embedding& m, ModelContext& ctx) {
  if (m.ids_size() == 0) return ctx.Error("ids", "is required");
  if (m.table().empty()) return ctx.Error("table", "is required");
  if (m.per_slot() && m.pooling() == v1::Embedding::NONE) {
    return ctx.Error("per_slot", "needs a pooling; without one every slot has a vector of its own already");
  }
  ASSIGN_OR_RETURN(const v1::Table* table, ctx.UseTable("table", m.table()));
  const bool whole = m.pooling() != v1::Embedding::NONE && !m.per_slot();
  if (m.ids_size() > 1 && whole && m.pooling() != v1::Embedding::SUM) {
    return ctx.Error("pooling",
                     absl::StrCat(v1::Embedding::Pooling_Name(m.pooling()), " over ", m.ids_size(),
                                  " ids variables is not defined: use SUM or per_slot: true, or give their slots "
                                  "one output in data.multi_slot"));
  }
  std::vector<std::string> outputs;
  for (int i = 0; i < m.ids_size(); ++i) {
    const std::string field = ElementOf("ids", i);
    ASSIGN_OR_RETURN(const v1::VarDesc ids, ctx.Input(field, m.ids(i)));
    if (ids.kind() != v1::IDS) return ctx.Error(field, absl::StrCat("'", m.ids(i), "' holds floats, not ids"));
    RETURN_IF_ERROR(CheckIdsOfDenseTable(*table, field, m.ids(i), ctx));
    RETURN_IF_ERROR(CheckSequence(m, ids, ctx));
    if (m.sequence() > 0) RETURN_IF_ERROR(AppendLength(m, m.ids(i), ctx));
    outputs.push_back(m.ids_size() == 1 ? ctx.name() : absl::StrCat(ctx.name(), ".", i));
    RETURN_IF_ERROR(AppendLookup(m, *table, m.ids(i), outputs.back(), ctx));
  }
  if (outputs.size() == 1) return absl::OkStatus();
  if (whole) return ctx.Append(MakeOp("sum", {{"X", outputs}}, {{"Out", {ctx.name()}}}));
  return ctx.Append(MakeOp("concat", {{"X", outputs}}, {{"Out", {ctx.name()}}}, {AttrI("axis", 1)}));
}
REGISTER_LAYER(embedding, v1::Embedding, BuildEmbedding);

}  // namespace
}  // namespace weir
