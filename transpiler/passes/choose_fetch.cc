// Pass: chooses the sparse parameters that trainers fetch by rows.
//
// Before: a plan with blocks (SliceVariables). After: plan.fetched_rows names, in placement order, the dense parameters
// with a gradient by rows of which trainers fetch only the rows of a step. table.fetch: WHOLE never, ROWS always; AUTO
// (also for a parameter of a program that the user supplies and that is no table of the job) if the rows that a step
// can name, with their ids, take fewer bytes than the whole. Only parameters read by nothing but look-ups by ids of the
// data qualify; geo trainers keep whole copies. InvalidArgument: ROWS for a parameter that another op reads, or that is
// no matrix. Returns false if none is chosen or fetched_rows is already set.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/block_costs.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

// Place of a table in the job; -1 for other parameters.
int TableIndex(const v1::JobConfig& config, const std::string& name) {
  for (int i = 0; i < config.table_size(); ++i) {
    if (config.table(i).name() == name) return i;
  }
  return -1;
}

absl::StatusOr<bool> ChooseFetch(const Job& job, Programs* programs) {
  v1::ProgramDesc* main = &programs->main;
  CHECK(main->has_plan()) << "slice first";
  v1::Plan* plan = main->mutable_plan();
  if (plan->fetched_rows_size() > 0) return false;
  const IdReads reads(*main);
  const VarIndex vars(main->blocks(0));
  for (const v1::PlacedBlock& block : plan->blocks()) {
    if (!block.sparse_gradient() || block.block() != 0 || UpdatesCopies(job.config.distribute())) continue;
    const v1::VarDesc* param = vars.Find(block.parameter());
    CHECK(param != nullptr) << block.parameter();
    const int table = TableIndex(job.config, param->name());
    const v1::Table::Fetch fetch = table < 0 ? v1::Table::AUTO : job.config.table(table).fetch();
    const int64_t most = reads.MostRows(*param, plan->batch_size());
    const bool forced = fetch == v1::Table::ROWS;
    if (forced && (most < 0 || param->dims_size() != 2)) {
      return job.positions.Error(absl::StrCat("table[", table, "].fetch"),
                                 absl::StrCat("ROWS: '", param->name(),
                                              "' is read by more than look-ups by ids of the data; "
                                              "only they can be served by rows"));
    }
    if (fetch == v1::Table::WHOLE || most < 0 || param->dims_size() != 2) continue;
    const int64_t rows = param->dims(0), row_bytes = param->dims(1) * 4;
    // With a row comes its id. Each batch of a step fetches its own, a whole table moves once.
    const v1::Train& train = job.config.train();
    const double batches = static_cast<double>(train.accumulate_steps()) * static_cast<double>(train.workers());
    if (!forced && batches * static_cast<double>(most) * static_cast<double>(row_bytes + 8) >=
                       static_cast<double>(rows) * static_cast<double>(row_bytes)) {
      continue;
    }
    v1::FetchedRows* chosen = plan->add_fetched_rows();
    chosen->set_parameter(param->name());
    chosen->set_rows(rows);
    chosen->set_most_rows(most);
    if (forced) chosen->set_forced(true);
  }
  return plan->fetched_rows_size() > 0;
}

REGISTER_PASS(choose_fetch)
({.name = "choose_fetch", .run = ChooseFetch, .phase = Phase::kPlacement, .after = "slice_variables"});

}  // namespace
}  // namespace weir
