// Embedding tables alone, and a step of one trainer against one server in the same process: pull, push, update. Each
// benchmark checks its result before it is timed. items_per_second are rows.
//
//   bazel run //tests/bench:tables_bench
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/row_rule.h"
#include "glog/logging.h"
#include "pserver/client/client.h"
#include "pserver/inside/in_process.h"
#include "pserver/tables/sparse_table.h"

namespace weir {
namespace {

constexpr int kWidth = 16;
// 26 ids of 2048 examples.
constexpr int64_t kIds = 26 * 2048;

uint64_t Next(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 16;
}

v1::Initializer Uniform() {
  v1::Initializer init;
  init.mutable_uniform()->set_min(-1);
  init.mutable_uniform()->set_max(1);
  return init;
}

v1::OpDesc Adagrad() {
  return MakeOp("adagrad", {{"Param", {"t"}}, {"Grad", {"t@GRAD"}}, {"LearningRate", {"lr"}}, {"Moment", {"t.moment"}}},
                {{"ParamOut", {"t"}}, {"MomentOut", {"t.moment"}}});
}

// A table of `rows` rows whose values are of a type, kept from benchmark to benchmark.
SparseTable& TableOf(int64_t rows, v1::DType values) {
  static std::vector<std::pair<int64_t, std::unique_ptr<SparseTable>>> kept;
  for (auto& [size, table] : kept) {
    if (size == rows && table->values() == values) return *table;
  }
  kept.clear();
  auto rule = RowRuleRegistry::Global().Make(Adagrad());
  CHECK(rule.ok()) << rule.status();
  auto table = SparseTable::Create({.name = "t",
                                    .width = kWidth,
                                    .values = values,
                                    .initializer = RowInitializer(Uniform(), 1, "t", values),
                                    .rule = *std::move(rule)});
  CHECK(table.ok()) << table.status();
  std::vector<int64_t> ids;
  std::vector<float> out(static_cast<size_t>(kIds * kWidth));
  for (int64_t id = 0; id < rows; ++id) {
    ids.push_back(id);
    if (static_cast<int64_t>(ids.size()) < kIds && id + 1 < rows) continue;
    CHECK((*table)->Pull(ids, /*create=*/true, out.data(), nullptr).ok());
    ids.clear();
  }
  CHECK_EQ((*table)->size(), rows);
  kept.emplace_back(rows, *std::move(table));
  return *kept.back().second;
}

// Distinct ids in the order in which clients send them.
std::vector<int64_t> SortedIds(int64_t rows, uint64_t* state) {
  std::vector<int64_t> ids(static_cast<size_t>(kIds));
  for (int64_t& id : ids) id = static_cast<int64_t>(Next(state) % static_cast<uint64_t>(rows));
  std::sort(ids.begin(), ids.end(),
            [](int64_t a, int64_t b) { return MixId(static_cast<uint64_t>(a)) < MixId(static_cast<uint64_t>(b)); });
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

template <v1::DType kValues>
void LookUp(benchmark::State& state) {
  SparseTable& table = TableOf(state.range(0), kValues);
  uint64_t random = 7;
  std::vector<float> out(static_cast<size_t>(kIds * kWidth)), one(kWidth);
  std::vector<int64_t> ids = SortedIds(state.range(0), &random);
  CHECK(table.Pull(ids, false, out.data(), nullptr).ok());
  CHECK(table.Pull({ids[100]}, false, one.data(), nullptr).ok());
  CHECK(std::equal(one.begin(), one.end(), out.begin() + 100 * kWidth));
  int64_t rows = 0;
  for (auto _ : state) {
    state.PauseTiming();
    ids = SortedIds(state.range(0), &random);
    state.ResumeTiming();
    CHECK(table.Pull(ids, false, out.data(), nullptr).ok());
    rows += static_cast<int64_t>(ids.size());
  }
  state.SetItemsProcessed(rows);
  state.counters["bytes_a_row"] = static_cast<double>(table.bytes()) / static_cast<double>(table.size());
}
BENCHMARK(LookUp<v1::FLOAT32>)
    ->Name("LookUp")
    ->Arg(1'000'000)
    ->Arg(10'000'000)
    ->Unit(benchmark::kMillisecond)
    ->MinTime(1);
BENCHMARK(LookUp<v1::FLOAT16>)->Name("LookUpFloat16")->Arg(1'000'000)->Unit(benchmark::kMillisecond)->MinTime(1);

template <v1::DType kValues>
void Update(benchmark::State& state) {
  SparseTable& table = TableOf(state.range(0), kValues);
  uint64_t random = 7;
  const std::vector<float> grads(static_cast<size_t>(kIds * kWidth), 0.01f);
  std::vector<int64_t> ids = {12345};
  std::vector<float> before(kWidth), after(kWidth);
  CHECK(table.Pull(ids, false, before.data(), nullptr).ok());
  CHECK(table.Update(ids, grads.data(), 1, 0.1f, nullptr).ok());
  CHECK(table.Pull(ids, false, after.data(), nullptr).ok());
  CHECK_LT(after[0], before[0]);
  int64_t rows = 0;
  for (auto _ : state) {
    state.PauseTiming();
    ids = SortedIds(state.range(0), &random);
    state.ResumeTiming();
    CHECK(table.Update(ids, grads.data(), 4, 0.01f, nullptr).ok());
    rows += static_cast<int64_t>(ids.size());
  }
  state.SetItemsProcessed(rows);
}
BENCHMARK(Update<v1::FLOAT32>)
    ->Name("Update")
    ->Arg(1'000'000)
    ->Arg(10'000'000)
    ->Unit(benchmark::kMillisecond)
    ->MinTime(1);
BENCHMARK(Update<v1::FLOAT16>)->Name("UpdateFloat16")->Arg(1'000'000)->Unit(benchmark::kMillisecond)->MinTime(1);
BENCHMARK(Update<v1::BFLOAT16>)->Name("UpdateBFloat16")->Arg(1'000'000)->Unit(benchmark::kMillisecond)->MinTime(1);

void Insert(benchmark::State& state) {
  std::vector<float> out(static_cast<size_t>(kIds * kWidth));
  int64_t rows = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto table = SparseTable::Create({.name = "t", .width = kWidth, .initializer = RowInitializer(Uniform(), 1, "t")});
    uint64_t random = 3;
    std::vector<std::vector<int64_t>> batches;
    batches.reserve(20);
    for (int b = 0; b < 20; ++b) batches.push_back(SortedIds(int64_t{1} << 40, &random));
    state.ResumeTiming();
    for (const std::vector<int64_t>& ids : batches) {
      CHECK((*table)->Pull(ids, true, out.data(), nullptr).ok());
      rows += static_cast<int64_t>(ids.size());
    }
  }
  state.SetItemsProcessed(rows);
}
BENCHMARK(Insert)->Unit(benchmark::kMillisecond)->MinTime(1);

// One table on one server, one trainer with 8 lanes in the same process.
struct OneTableCluster {
  OneTableCluster() : pool("bench", 1) {
    plan.set_job("bench");
    plan.set_servers(1);
    plan.set_trainers(1);
    plan.set_lanes(8);
    plan.set_sync(true);
    v1::PlacedTable* const placed = plan.add_tables();
    placed->set_name("t");
    placed->set_width(kWidth);
    placed->set_logical_shards(4096);
    ServerOptions server{
        .job_name = "bench", .process = "bench:1", .arithmetic = "avx2", .clock = Clock::Real(), .pool = &pool};
    *server.main.mutable_plan() = plan;
    for (v1::ProgramDesc* program : {&server.main, &server.startup}) {
      v1::BlockDesc* const block = program->add_blocks();
      block->set_index(0);
      v1::VarDesc* const rate = block->add_vars();
      rate->set_name("lr");
      rate->add_dims(1);
      rate->set_persistable(true);
    }
    *server.startup.mutable_blocks(0)->add_ops() =
        MakeOp("fill_constant", {}, {{"Out", {"lr"}}},
               {AttrInts("shape", {1}), AttrType("dtype", v1::FLOAT32), AttrF("value", 0.01)});
    v1::VarDesc* const table = server.main.mutable_blocks(0)->add_vars();
    table->set_name("t");
    table->set_kind(v1::TABLE);
    table->add_dims(-1);
    table->add_dims(kWidth);
    *table->mutable_initializer() = Uniform();
    v1::BlockDesc* const optimize = server.main.add_blocks();
    optimize->set_index(1);
    *optimize->add_ops() = Adagrad();
    *server.main.mutable_blocks(0)->add_ops() = MakeOp(
        "listen_and_serv", {}, {}, {AttrI("server_id", 0), AttrI("trainers", 1), AttrBlocks("optimize_blocks", {1})});
    std::vector<ServerOptions> all;
    all.push_back(std::move(server));
    auto created = InProcessServers::Create(std::move(all), /*tick_thread=*/true);
    CHECK(created.ok()) << created.status();
    servers = *std::move(created);
    auto made = Client::Create({.plan = plan,
                                .job_name = "bench",
                                .process = "bench:2",
                                .arithmetic = "avx2",
                                .transport = servers.get(),
                                .clock = Clock::Real(),
                                .pool = &pool});
    CHECK(made.ok()) << made.status();
    client = *std::move(made);
    CHECK(client->Join().ok());
  }

  ThreadPool pool;
  v1::Plan plan;
  std::unique_ptr<InProcessServers> servers;
  std::unique_ptr<Client> client;
};

// Processor time of all threads so far: what a phase costs however busy the machine is.
double CpuSeconds() {
  timespec t;
  CHECK_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Measures a trainer's cost of the rows of a step: kIds positions over 8 lanes drawn from 2.6 million ids, pull, lane
// sums, push, update.
void RowsOfAStep(benchmark::State& state) {
  OneTableCluster cluster;
  uint64_t random = 11;
  int64_t step = 0, rows = 0;
  double pull_s = 0, push_s = 0, finish_s = 0;
  for (auto _ : state) {
    state.PauseTiming();
    std::vector<int64_t> ids = SortedIds(2'600'000, &random);
    std::shuffle(ids.begin(), ids.end(), std::minstd_rand(static_cast<uint32_t>(step)));
    std::vector<SelectedRows> grads(8);
    std::vector<ParamChannel::LaneRows> lanes;
    for (size_t i = 0; i < ids.size(); ++i) {
      SelectedRows& lane = grads[i * 8 / ids.size()];
      lane.ids.push_back(ids[i]);
      lane.step_rows.push_back(static_cast<int32_t>(i));
    }
    for (size_t l = 0; l < 8; ++l) {
      grads[l].merged = grads[l].present = true;
      grads[l].values.Resize(v1::FLOAT32, {static_cast<int64_t>(grads[l].ids.size()), kWidth});
      for (float& v : grads[l].values.span<float>()) v = 0.01f;
      lanes.push_back({static_cast<int>(l), &grads[l]});
    }
    std::vector<float> out(ids.size() * kWidth);
    const ParamChannel::TableRows pull{"t", kWidth, &ids, out.data()};
    state.ResumeTiming();
    const double start = CpuSeconds();
    CHECK(cluster.client->steps().BeginStep(step, false).ok());
    CHECK(cluster.client->steps().PullRows({&pull, 1}).ok());
    const double pulled = CpuSeconds();
    CHECK(cluster.client->steps().SendRows({"t", -1, 0}, kWidth, lanes).ok());
    const double pushed = CpuSeconds();
    CHECK(cluster.client->steps().FinishSends(2048, v1::APPLY).ok());
    CHECK(cluster.client->steps().FinishReceives(nullptr).ok());
    finish_s += CpuSeconds() - pushed;
    push_s += pushed - pulled;
    pull_s += pulled - start;
    rows += static_cast<int64_t>(ids.size());
    ++step;
  }
  CHECK_EQ(cluster.servers->server(0).Version(), step);
  state.SetItemsProcessed(rows);
  state.counters["pull_cpu_ms"] = 1000 * pull_s / static_cast<double>(step);
  state.counters["push_cpu_ms"] = 1000 * push_s / static_cast<double>(step);
  state.counters["finish_cpu_ms"] = 1000 * finish_s / static_cast<double>(step);
}
BENCHMARK(RowsOfAStep)->Unit(benchmark::kMillisecond)->MinTime(2)->UseRealTime();

}  // namespace
}  // namespace weir

BENCHMARK_MAIN();
