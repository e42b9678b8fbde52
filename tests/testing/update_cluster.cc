#include "tests/testing/update_cluster.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/lane_tree.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

constexpr int kTableWidth = 4;

absl::Span<const int64_t> BlockDims(const v1::PlacedBlock& block) {
  return absl::MakeConstSpan(block.dims().data(), static_cast<size_t>(block.dims_size()));
}
BlockRef RefOf(const v1::PlacedBlock& block) { return {block.name(), block.server(), block.element_count()}; }

using Values = std::map<std::string, std::vector<float>>;

absl::Status ReceiveAll(const v1::Plan& plan, Client& client, Values* values) {
  std::vector<Tensor> tensors(static_cast<size_t>(plan.blocks_size()));
  for (int i = 0; i < plan.blocks_size(); ++i) {
    tensors[i].Resize(v1::FLOAT32, BlockDims(plan.blocks(i)));
    RETURN_IF_ERROR(client.steps().Receive(RefOf(plan.blocks(i)), &tensors[i]));
  }
  StepOutcome outcome;
  RETURN_IF_ERROR(client.steps().FinishReceives(&outcome));
  if (values == nullptr) return absl::OkStatus();
  for (int i = 0; i < plan.blocks_size(); ++i) {
    const v1::PlacedBlock& block = plan.blocks(i);
    std::vector<float>& whole = (*values)[block.parameter()];
    whole.resize(std::max(whole.size(), static_cast<size_t>(block.element_begin() + block.element_count())));
    std::copy_n(tensors[i].data<float>(), block.element_count(), whole.begin() + block.element_begin());
  }
  return absl::OkStatus();
}

absl::Status PullTable(Client& client, Values* values) {
  // The channel keeps a pointer to them for the step.
  const std::vector<int64_t>& ids = UpdateTableIds();
  std::vector<float> rows(ids.size() * kTableWidth);
  const std::vector<ParamChannel::TableRows> pull = {{"t", kTableWidth, &ids, rows.data()}};
  RETURN_IF_ERROR(client.steps().PullRows(pull));
  if (values != nullptr) (*values)["t"] = rows;
  return absl::OkStatus();
}

// Rows [begin, begin + count) of a parameter that a lane has a gradient of, by ids from 0; a table's by its own ids.
SelectedRows RowsOf(const std::string& parameter, int64_t begin, int64_t count, bool table, int64_t step, int lane) {
  const std::vector<int64_t>& table_ids = UpdateTableIds();
  SelectedRows rows;
  std::vector<int64_t> places;
  for (int64_t row = begin; row < begin + count; ++row) {
    if (!HasGradient(parameter, row, step, lane)) continue;
    rows.ids.push_back(table ? table_ids[row] : row - begin);
    places.push_back(row);
    if (table) rows.step_rows.push_back(static_cast<int32_t>(row));
  }
  rows.height = table ? -1 : count;
  rows.merged = rows.present = true;
  rows.values.Resize(v1::FLOAT32, {static_cast<int64_t>(rows.ids.size()), kTableWidth});
  for (size_t i = 0; i < places.size(); ++i) {
    for (int j = 0; j < kTableWidth; ++j) {
      rows.values.data<float>()[i * kTableWidth + j] = LaneGradient(parameter, places[i] * kTableWidth + j, step, lane);
    }
  }
  return rows;
}

using BadRows = std::function<bool(int64_t step, int lane, int64_t row)>;

absl::Status PushStep(const v1::Plan& plan, Client& client, LaneRange owned, int64_t step, const BadRows& bad) {
  std::vector<int> lanes;
  int64_t samples = 0;
  for (int lane = owned.begin; lane < owned.begin + owned.count; ++lane) {
    samples += LaneSamples(step, lane);
    if (LaneSamples(step, lane) > 0) lanes.push_back(lane);
  }
  client.steps().SetStepSamples(samples);
  // Alive until FinishSends has returned.
  std::list<Tensor> tensors;
  std::list<SelectedRows> kept;
  for (const v1::PlacedBlock& block : plan.blocks()) {
    std::vector<ParamChannel::LaneTensor> dense;
    std::vector<ParamChannel::LaneRows> rows;
    for (const int lane : lanes) {
      if (block.sparse_gradient()) {
        const int64_t begin = block.element_begin() / kTableWidth;
        kept.push_back(RowsOf(block.parameter(), begin, block.dims(0), /*table=*/false, step, lane));
        rows.push_back({lane, &kept.back()});
      } else if (HasGradient(block.parameter(), 0, step, lane)) {
        Tensor& tensor = tensors.emplace_back(v1::FLOAT32, BlockDims(block));
        for (int64_t i = 0; i < tensor.size(); ++i) {
          tensor.data<float>()[i] = LaneGradient(block.parameter(), block.element_begin() + i, step, lane);
        }
        dense.push_back({lane, &tensor});
      }
    }
    if (!dense.empty()) RETURN_IF_ERROR(client.steps().SendDense(RefOf(block), dense));
    if (!rows.empty()) RETURN_IF_ERROR(client.steps().SendRows(RefOf(block), kTableWidth, rows));
  }
  std::vector<ParamChannel::LaneRows> rows;
  for (const int lane : lanes) {
    kept.push_back(RowsOf("t", 0, static_cast<int64_t>(UpdateTableIds().size()), /*table=*/true, step, lane));
    for (size_t i = 0; bad != nullptr && i < kept.back().ids.size(); ++i) {
      const int32_t row = kept.back().step_rows[i];
      if (bad(step, lane, row))
        kept.back().values.data<float>()[i * kTableWidth + static_cast<size_t>(row) % kTableWidth] = NAN;
    }
    rows.push_back({lane, &kept.back()});
  }
  if (!rows.empty()) RETURN_IF_ERROR(client.steps().SendRows({"t", -1, 0}, kTableWidth, rows));
  return client.steps().FinishSends(samples, v1::APPLY);
}

}  // namespace

std::string UpdateJobText(const std::string& optimizer, const std::string& table_t) {
  return absl::StrCat(R"(name: "updates"
data {
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 16 }
    slot { name: "a" }
    slot { name: "b" }
  }
  ids { shared: "b" }
  batch_size: 8
}
model {
  layer { name: "far" embedding { ids: "a" table: "t" pooling: SUM } }
  layer { name: "near" embedding { ids: "b" table: "s" pooling: SUM } }
  layer { name: "deep" fc { input: "x" size: 1100 activation: TANH } }
  layer { name: "out" fc { input: "deep" input: "far" input: "near" size: 1 } }
  loss { square_error { input: "out" label: "label" } }
}
table { name: "t" width: 4 is_sparse: true is_distributed: true )",
                      table_t, R"( }
table { name: "s" width: 4 is_sparse: true dict_size: 12 }
train { lanes: 2 }
deadlines { lease_s: 60 }
optimizer { )",
                      optimizer, " }\n");
}

int64_t LaneSamples(int64_t step, int lane) { return lane == 0 ? 3 : step % 4 == 2 ? 0 : 5; }

bool HasGradient(const std::string& parameter, int64_t row, int64_t step, int lane) {
  if (LaneSamples(step, lane) == 0) return false;
  if (parameter == "s" || parameter == "t")
    return MixId(static_cast<uint64_t>(step * 64 + lane * 32 + row + 7)) % 3 == 0;
  return parameter != "out.b" || step % 5 != 3;
}

float LaneGradient(const std::string& parameter, int64_t element, int64_t step, int lane) {
  const uint64_t h =
      MixId(static_cast<uint64_t>(element * 131 + step * 2 + lane) + 1000003 * (parameter[0] + 7 * parameter.back()));
  const float unit = static_cast<float>(h % 20001) / 10000.0f - 1.0f;
  return 0.3f * unit * static_cast<float>(LaneSamples(step, lane));
}

const std::vector<int64_t>& UpdateTableIds() {
  static const std::vector<int64_t>* const all = [] {
    auto* ids = new std::vector<int64_t>;
    for (int64_t i = 0; i < 14; ++i) ids->push_back(i * i * 1000003 - 40);
    ids->push_back(INT64_MIN);
    ids->push_back(INT64_MAX);
    return ids;
  }();
  return *all;
}

absl::StatusOr<UpdateRun> RunUpdates(const Job& job, int64_t steps, const BadRows& bad) {
  ASSIGN_OR_RETURN(const Transpiled transpiled, Transpile(job));
  UpdateRun run{.initial = {}, .final = {}, .digest = {}, .counters = {}, .plan = transpiled.plan()};
  std::vector<Programs> servers;
  for (int s = 0; s < run.plan.servers(); ++s) {
    ASSIGN_OR_RETURN(Programs programs, transpiled.Server(s));
    servers.push_back(std::move(programs));
  }
  ClusterOptions options;
  options.plan = run.plan;
  options.main = [&servers](int s) { return servers[s].main; };
  options.startup = [&servers](int s) { return servers[s].startup; };
  options.plan_text = PlanText(job, run.plan);
  options.job_name = job.config.name();
  options.deadlines = job.config.deadlines();
  ASSIGN_OR_RETURN(std::unique_ptr<InProcessCluster> cluster, InProcessCluster::Create(std::move(options)));
  const auto train = [&](int t) -> absl::Status {
    Client& client = cluster->client(t);
    Values* const initial = t == 0 ? &run.initial : nullptr;
    Values* const final = t == 0 ? &run.final : nullptr;
    RETURN_IF_ERROR(client.Join());
    RETURN_IF_ERROR(ReceiveAll(run.plan, client, initial));
    const LaneRange owned = LanesOfTrainer(kUpdateLanes, run.plan.trainers(), t);
    for (int64_t step = 0; step < steps; ++step) {
      RETURN_IF_ERROR(client.steps().BeginStep(step, /*read_only=*/false));
      RETURN_IF_ERROR(PullTable(client, step == 0 ? initial : nullptr));
      RETURN_IF_ERROR(PushStep(run.plan, client, owned, step, bad));
      RETURN_IF_ERROR(ReceiveAll(run.plan, client, step + 1 == steps ? final : nullptr));
    }
    RETURN_IF_ERROR(client.steps().BeginStep(steps, /*read_only=*/true));
    RETURN_IF_ERROR(PullTable(client, final));
    return client.board().Exchange("end", "x").status();
  };
  RETURN_IF_ERROR(cluster->RunTrainers([&](int t) {
    const absl::Status status = train(t);
    // The others would wait.
    if (!status.ok()) cluster->client(t).member().ReportFailure(status);
    return status;
  }));
  ASSIGN_OR_RETURN(run.digest, cluster->GetDigest());
  for (int s = 0; s < run.plan.servers(); ++s) {
    for (const Counters::Entry& entry : cluster->servers().server(s).counters().Snapshot())
      run.counters[entry.name] += entry.value;
  }
  RETURN_IF_ERROR(cluster->RunTrainers([&](int t) { return cluster->client(t).member().Done(); }));
  return run;
}

}  // namespace weir
