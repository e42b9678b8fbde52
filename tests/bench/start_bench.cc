// A table taken from a checkpoint of another job with twice the columns, beside a load of that checkpoint: two servers
// at a time, as threads. Checks the digests of the load and a row of the start, then prints the seconds of three turns
// and their ratio.
//
//   bazel run //tests/bench:start_bench -- --rows=10000000

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/shard.h"
#include "framework/checkpoint/start.h"
#include "glog/logging.h"
#include "pserver/params/server_params.h"
#include "pserver/tables/sparse_table.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"

ABSL_FLAG(int64_t, rows, 10000000, "rows of the table");
ABSL_FLAG(int32_t, width, 8, "width of the table in the checkpoint; twice that in the job that starts");
ABSL_FLAG(std::string, dir, "/tmp/start_bench", "directory for the checkpoint; its contents are removed");

namespace weir {
namespace {

constexpr int kServers = 2;

using Servers = std::vector<std::unique_ptr<ServerParams>>;

Servers MakeServers(int width, ThreadPool* pool) {
  const absl::StatusOr<Job> job = ParseJob(absl::StrCat(R"(
name: "bench"
data { train { files: "a" } multi_slot { slot { name: "label" type: FLOAT } slot { name: "cat" } } batch_size: 32 }
model {
  layer { name: "fields" embedding { ids: "cat" table: "t" pooling: SUM } }
  layer { name: "logit" fc { input: "fields" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "t" width: )",
                                                        width, R"( is_sparse: true is_distributed: true }
optimizer { adagrad { learning_rate: 0.05 } }
train { seed: 3 }
distribute { servers: )",
                                                        kServers, " trainers: 2 }"),
                                           "bench.textproto", {});
  CHECK(job.ok()) << job.status();
  Servers servers;
  for (int i = 0; i < kServers; ++i) {
    const absl::StatusOr<Programs> programs = ServerPrograms(*job, i, "", "");
    CHECK(programs.ok()) << programs.status();
    auto params = ServerParams::Create(programs->main, programs->startup, i, pool);
    CHECK(params.ok()) << params.status();
    servers.push_back(*std::move(params));
  }
  return servers;
}

// Runs `work` for each server on a thread of its own; returns the seconds that the last one took.
double Seconds(const std::function<absl::Status(int server)>& work) {
  const absl::Time begin = Clock::Real()->Now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kServers; ++i) {
    threads.emplace_back([&work, i] {
      const absl::Status status = work(i);
      CHECK(status.ok()) << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return absl::ToDoubleSeconds(Clock::Real()->Now() - begin);
}

uint64_t ValuesOf(const Servers& servers) {
  uint64_t values = 0;
  for (const auto& server : servers) {
    v1::ControlReply reply;
    CHECK(server->Digest(&reply).ok());
    values += reply.values();
  }
  return values;
}

StartCheckpoint Save(const std::string& dir, int width, int64_t rows, ThreadPool* pool) {
  const Servers servers = MakeServers(width, pool);
  std::vector<std::vector<int64_t>> ids(kServers);
  std::vector<float> out;
  for (int64_t id = 0; id < rows; ++id) {
    for (int s = 0; s < kServers; ++s) {
      SparseTable& table = servers[static_cast<size_t>(s)]->table(0);
      std::vector<int64_t>& mine = ids[static_cast<size_t>(s)];
      if (table.Owns(id)) mine.push_back(id);
      if (mine.size() < 65536 && id + 1 < rows) continue;
      out.resize(mine.size() * static_cast<size_t>(width));
      CHECK(table.Pull(mine, /*create=*/true, out.data(), nullptr).ok());
      mine.clear();
    }
  }
  const absl::StatusOr<std::string> name = BeginCheckpoint(dir, 100);
  CHECK(name.ok()) << name.status();
  v1::CheckpointManifest manifest;
  manifest.set_job("bench");
  manifest.set_step(100);
  for (int s = 0; s < kServers; ++s) {
    auto shard = servers[static_cast<size_t>(s)]->Save(absl::StrCat(dir, "/", *name, "/", ShardFileName(s)));
    CHECK(shard.ok()) << shard.status();
    *manifest.add_shards() = *shard;
  }
  const absl::StatusOr<std::string> path = PublishCheckpoint(dir, *name, manifest);
  CHECK(path.ok()) << path.status();
  return {*path, *ReadManifest(*path)};
}

v1::StartPlan Widened(int width) {
  v1::StartPlan plan;
  plan.add_sources();
  v1::TableStart* const table = plan.add_tables();
  table->set_table("t");
  v1::TablePart* const part = table->add_parts();
  part->set_source(0);
  part->set_table("t");
  part->set_width(width);
  v1::AxisRun* const run = part->add_columns();
  run->set_to(0);
  run->set_from(0);
  run->set_count(width);
  return plan;
}

int Main() {
  const std::string dir = absl::GetFlag(FLAGS_dir);
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  ThreadPool pool("bench", 1);
  const int width = absl::GetFlag(FLAGS_width);
  const int64_t rows = absl::GetFlag(FLAGS_rows);
  const std::vector<StartCheckpoint> sources = {Save(dir, width, rows, &pool)};
  const v1::StartPlan plan = Widened(width);
  std::vector<double> loads, starts;
  for (int turn = 0; turn < 3; ++turn) {
    {
      const Servers servers = MakeServers(width, &pool);
      loads.push_back(Seconds(
          [&](int s) { return servers[static_cast<size_t>(s)]->Load(sources[0].directory, sources[0].manifest); }));
      CHECK_EQ(ValuesOf(servers), sources[0].manifest.values_digest());
    }
    const Servers servers = MakeServers(2 * width, &pool);
    starts.push_back(Seconds([&](int s) { return servers[static_cast<size_t>(s)]->Start(sources, plan); }));
    int64_t held = 0;
    for (const auto& server : servers) held += server->table(0).size();
    CHECK_EQ(held, rows);
    std::printf("turn %d: load %.2f s, start %.2f s\n", turn, loads.back(), starts.back());
  }
  std::sort(loads.begin(), loads.end());
  std::sort(starts.begin(), starts.end());
  std::printf("%lld rows, width %d to %d, medians: load %.2f s, start %.2f s, ratio %.2f\n",
              static_cast<long long>(rows), width, 2 * width, loads[1], starts[1], starts[1] / loads[1]);
  std::filesystem::remove_all(dir);
  return 0;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  absl::ParseCommandLine(argc, argv);
  return weir::Main();
}
