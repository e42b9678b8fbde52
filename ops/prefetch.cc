// prefetch: the rows that a step needs, of all tables at once
//
//   Ids*    [B, S] ids, of every lane; each belongs to one table (`tables`)
//   Rows*   selected rows [*, W], one per table (`row_tables`, `widths`), shared by all lanes; [H, W] of a
//           parameter that servers hold densely (`heights`, -1 for a table)
//   Index*  [N] i32, one per Ids, per lane: place of each id value in the Rows of its table
//
// Rows hold the distinct ids of all lanes of this process in order of first appearance: by lane, then by Ids variable,
// then by place in the batch. Tables that are asked for the same ids are de-duplicated once. One PullRows serves all
// tables.
//
// If an Ids is read only as a sequence, rows are requested only for the ids that can be in the sequence (`sequences`:
// the last so many ids of each example, 0 for all); the Index of the other ids is -1.
//
// A trainer may run the op for its next batch while the rest of the program runs for this one
// (trainer/session/session.h). `ahead` says so in programs of format version 1 (framework/graph/training_mode.h).
#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/channel_op.h"
#include "ops/id_deduper.h"
#include "ops/lookup.h"
#include "ops/parallel_deduper.h"

namespace weir {
namespace {

constexpr int kRowsSlot = 0, kIndexSlot = 1;

absl::Status Infer(InferContext& ctx) {
  const std::vector<std::string> tables = ctx.attrs().Strings("tables");
  const std::vector<std::string> row_tables = ctx.attrs().Strings("row_tables");
  const std::vector<int64_t> widths = ctx.attrs().Ints("widths");
  const std::vector<int64_t> heights = ctx.attrs().Ints("heights");
  const size_t ids = static_cast<size_t>(ctx.InputCount("Ids")), rows = static_cast<size_t>(ctx.OutputCount("Rows"));
  if (tables.size() != ids || static_cast<size_t>(ctx.OutputCount("Index")) != ids) {
    return ctx.Error(std::string(absl::StrCat(ids, " Ids need as many tables and Index, got ", tables.size(), " and ",
                                              ctx.OutputCount("Index"))));
  }
  if (row_tables.size() != rows || widths.size() != rows) {
    return ctx.Error(std::string(absl::StrCat(rows, " Rows need as many row_tables and widths, got ", row_tables.size(),
                                              " and ", widths.size())));
  }
  if (!heights.empty() && heights.size() != rows) {
    return ctx.Error(std::string(absl::StrCat(rows, " Rows need as many heights, or none, got ", heights.size())));
  }
  const std::vector<int64_t> sequences = ctx.attrs().Ints("sequences");
  if (!sequences.empty() && sequences.size() != ids) {
    return ctx.Error(std::string(absl::StrCat(ids, " Ids need as many sequences, or none, got ", sequences.size())));
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i] == 0) continue;
    const Shape shape = ctx.InputShape("Ids", static_cast<int>(i));
    if (sequences[i] < 0 || shape.size() != 2 || shape[1] != 1) {
      return ctx.Error(std::string(absl::StrCat("sequences must be 0, or positive for Ids of one slot; got ",
                                                sequences[i], " for Ids ", ShapeString(shape))));
    }
  }
  for (const std::string& table : tables) {
    if (std::count(row_tables.begin(), row_tables.end(), table) != 1) {
      return ctx.Error("table '" + table + "' must have exactly one Rows");
    }
  }
  for (size_t i = 0; i < rows; ++i) {
    if (widths[i] < 1) return ctx.Error(std::string(absl::StrCat("widths must be positive, got ", widths[i])));
    if (std::count(tables.begin(), tables.end(), row_tables[i]) == 0) {
      return ctx.Error("table '" + row_tables[i] + "' has Rows but no Ids");
    }
    const int64_t height = heights.empty() ? -1 : heights[i];
    if (height < -1)
      return ctx.Error(std::string(absl::StrCat("heights must be -1 or a number of rows, got ", height)));
    ctx.SetOutput("Rows", {height, widths[i]}, v1::FLOAT32, static_cast<int>(i));
    ctx.Output("Rows", static_cast<int>(i))->set_kind(v1::SELECTED_ROWS);
  }
  for (size_t i = 0; i < ids; ++i) ctx.SetOutput("Index", {-1}, v1::INT32, static_cast<int>(i));
  return absl::OkStatus();
}

// Runs fn(i) for i in [0, n), on the pool if there is one.
void ForAll(ThreadPool* pool, int64_t n, const std::function<void(int64_t)>& fn) {
  if (pool != nullptr) return pool->ParallelFor(n, fn);
  for (int64_t i = 0; i < n; ++i) fn(i);
}

class PrefetchKernel : public OpKernel {
 public:
  explicit PrefetchKernel(const KernelInit& init) {
    const std::vector<std::string> ids = VarsOfInput(init.op, "Ids");
    const std::vector<std::string> tables = init.attrs.Strings("tables");
    const std::vector<std::string> row_tables = init.attrs.Strings("row_tables");
    const std::vector<int64_t> widths = init.attrs.Ints("widths"), heights = init.attrs.Ints("heights");
    sequences_ = init.attrs.Ints("sequences");
    sequences_.resize(ids.size(), 0);
    // Tables with the same Ids variables in the same order, and the same sequences of them, share a group.
    std::map<std::vector<std::pair<std::string, int64_t>>, size_t> group_of;
    for (size_t r = 0; r < row_tables.size(); ++r) {
      std::vector<int> places;
      std::vector<std::pair<std::string, int64_t>> names;
      for (size_t i = 0; i < tables.size(); ++i) {
        if (tables[i] != row_tables[r]) continue;
        places.push_back(static_cast<int>(i));
        names.emplace_back(ids[i], sequences_[i]);
      }
      const auto [it, fresh] = group_of.emplace(names, groups_.size());
      if (fresh) groups_.emplace_back();
      groups_[it->second].members.push_back({.table = row_tables[r],
                                             .width = widths[r],
                                             .height = heights.empty() ? -1 : heights[r],
                                             .rows = static_cast<int>(r),
                                             .ids = std::move(places)});
    }
  }

  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(RowSource * source, RowSourceOf(ctx));
    RETURN_IF_ERROR(CheckSequences(ctx));
    ForAll(ctx.step->pool, static_cast<int64_t>(groups_.size()),
           [&](int64_t g) { groups_[static_cast<size_t>(g)].Deduplicate(ctx, sequences_); });
    std::vector<RowSource::TableRows> pulls;
    for (Group& group : groups_) {
      for (const Member& member : group.members) {
        SelectedRows* rows = ctx.OutputAs<SelectedRows>(kRowsSlot, member.rows);
        pulls.push_back({.table = member.table,
                         .width = static_cast<int>(member.width),
                         .ids = &rows->ids,
                         .rows = rows->values.data<float>()});
      }
    }
    return source->PullRows(pulls);
  }

 private:
  struct Member {
    std::string table;
    int64_t width = 0;
    int64_t height = -1;
    int rows = 0;          // place in Rows
    std::vector<int> ids;  // places in Ids and Index
  };
  struct Group {
    std::vector<Member> members;
    IdDeduper deduper;
    // Of several threads.
    ParallelDeduper parallel;
    std::vector<ParallelDeduper::Run> runs;

    void Deduplicate(KernelContext& ctx, const std::vector<int64_t>& sequences) {
      const Member& first = members[0];
      SelectedRows* rows = ctx.OutputAs<SelectedRows>(kRowsSlot, first.rows);
      const int64_t total = PlaceRuns(ctx, sequences);
      if (ParallelDeduper::Pays(total, ctx.step->pool)) {
        parallel.Find(runs, ctx.step->pool, &rows->ids);
      } else {
        rows->ids.clear();
        deduper.Start(total);
        for (const ParallelDeduper::Run& run : runs) deduper.Add(run.ids, run.n, run.index, &rows->ids);
      }
      CopyIndex(ctx);
      for (const Member& member : members) {
        SelectedRows* of_table = ctx.OutputAs<SelectedRows>(kRowsSlot, member.rows);
        if (of_table != rows) of_table->ids = rows->ids;
        of_table->height = member.height;
        of_table->step_rows.clear();
        of_table->merged = true;
        of_table->present = true;
        const Shape dims = {static_cast<int64_t>(rows->ids.size()), member.width};
        if (PinnedMemory* const memory = ctx.step->row_memory; memory != nullptr) {
          of_table->values.Renew(v1::FLOAT32, dims, memory);
        } else {
          of_table->values.Resize(v1::FLOAT32, dims);
        }
      }
    }

    // Sets `runs` to the ids to look for, by lane, then Ids, then place; makes the Index of each Ids. Returns the
    // number of ids.
    int64_t PlaceRuns(KernelContext& ctx, const std::vector<int64_t>& sequences) {
      runs.clear();
      int64_t total = 0;
      for (int lane = 0; lane < ctx.lanes(); ++lane) {
        for (const int i : members[0].ids) {
          const IdBatch& ids = IdsOf(ctx, lane, i);
          const int64_t n = static_cast<int64_t>(ids.values.size());
          int32_t* const index = IndexOf(ctx, lane, i, n);
          const IdSelection selection = {.sequence = sequences[static_cast<size_t>(i)]};
          if (!selection.all()) std::fill_n(index, n, -1);
          ForSelectedIds(ids, selection, [&](int64_t begin, int64_t end) {
            runs.push_back({ids.values.data() + begin, end - begin, index + begin});
          });
          total += n;
        }
      }
      return total;
    }

    // Gives the other tables the Index of the first.
    void CopyIndex(KernelContext& ctx) const {
      const auto copy = [&](int64_t lane) {
        for (size_t m = 1; m < members.size(); ++m) {
          for (size_t k = 0; k < members[m].ids.size(); ++k) {
            const int l = static_cast<int>(lane), from = members[0].ids[k], to = members[m].ids[k];
            const int64_t n = static_cast<int64_t>(IdsOf(ctx, l, from).values.size());
            const int32_t* const index = std::get<Tensor>(*ctx.lane_output(l, kIndexSlot, from)).data<int32_t>();
            std::copy_n(index, n, IndexOf(ctx, l, to, n));
          }
        }
      };
      if (members.size() > 1) ForAll(ctx.step->pool, ctx.lanes(), copy);
    }

    static const IdBatch& IdsOf(KernelContext& ctx, int lane, int i) {
      return std::get<IdBatch>(ctx.lane_input(lane, 0, i));
    }

    static int32_t* IndexOf(KernelContext& ctx, int lane, int i, int64_t n) {
      Variable* var = ctx.lane_output(lane, kIndexSlot, i);
      if (!std::holds_alternative<Tensor>(*var)) *var = Tensor();
      Tensor& index = std::get<Tensor>(*var);
      index.Resize(v1::INT32, {n});
      return index.data<int32_t>();
    }
  };

  // Offsets say which ids of an example are in the sequence: check them before they are used.
  absl::Status CheckSequences(KernelContext& ctx) const {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      for (int lane = 0; sequences_[i] > 0 && lane < ctx.lanes(); ++lane) {
        const IdBatch& ids = std::get<IdBatch>(ctx.lane_input(lane, 0, static_cast<int>(i)));
        RETURN_IF_ERROR(CheckIds(ids, LookupAttrs{.sequence = sequences_[i]}));
      }
    }
    return absl::OkStatus();
  }

  std::vector<int64_t> sequences_;  // by Ids
  // A step op never runs twice at once, so its memory may live here, from step to step.
  std::vector<Group> groups_;
};

REGISTER_OP(prefetch)
({.type = "prefetch",
  .summary = "pulls the rows of a step from the servers",
  .inputs = {{.name = "Ids", .kinds = {v1::IDS}, .variadic = true}},
  .outputs = {{.name = "Rows", .kinds = {v1::SELECTED_ROWS}, .variadic = true},
              {.name = "Index", .variadic = true, .per_lane = true}},
  .attrs = {Required(StringsAttr("tables")), Required(StringsAttr("row_tables")), Required(IntsAttr("widths")),
            IntsAttr("heights"), IntsAttr("sequences"), BoolAttr("ahead", false)},
  .scope = OpScope::kStep,
  .shape = Infer,
  .cost = [](InferContext& ctx) {
    // Counts every id as distinct: an upper bound.
    Cost cost;
    const std::vector<std::string> tables = ctx.attrs().Strings("tables"),
                                   row_tables = ctx.attrs().Strings("row_tables");
    const std::vector<int64_t> widths = ctx.attrs().Ints("widths"), sequences = ctx.attrs().Ints("sequences");
    for (int i = 0; i < ctx.InputCount("Ids"); ++i) {
      const Shape ids = ctx.InputShape("Ids", i);
      const double of_slot =
          sequences.empty() ? 1.0 : static_cast<double>(std::max<int64_t>(1, sequences[static_cast<size_t>(i)]));
      const size_t r = static_cast<size_t>(
          std::find(row_tables.begin(), row_tables.end(), tables[static_cast<size_t>(i)]) - row_tables.begin());
      const double n = static_cast<double>(std::max<int64_t>(ids[0], 1)) * static_cast<double>(ids[1]) * of_slot;
      cost.bytes += n * (16 + 4 * static_cast<double>(widths[r]));
    }
    return cost;
  }});
REGISTER_KERNEL(prefetch, MakeKernel<PrefetchKernel>);
REGISTER_HOST_OP(prefetch);

}  // namespace
}  // namespace weir
