// The same bits in every corner: where dense parameters meet, where rows live, how many processes there are and how
// gradients are cut changes no bit of any job at any 50th of 200 steps, nor does a death and a resume in another
// corner.
//
// A table of jobs by a table of corners. A normal run takes the part of it that costs little; WEIR_ALL_CORNERS=1 in the
// environment takes all (CONTRIBUTING.md).

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/clock.h"
#include "framework/base/philox.h"
#include "gtest/gtest.h"
#include "tests/testing/faulty_transport.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

// ---------------------------------------------------------------------------------------------------------------- jobs

// Settings that all jobs here have.
std::vector<std::string> Steps() {
  return {"train.epochs=100000", "train.max_steps=200", "train.digest_every_steps=50"};
}

// Pictures of 8 x 8 for a network with convolutions and batch normalisation.
constexpr char kPictureJob[] = R"(
name: "pictures"
data {
  train { files: "images" labels: "labels" }
  idx { values: 64 }
  batch_size: 64
}
model {
  layer { name: "picture" reshape { input: "image" dims: [1, 8, 8] } }
  layer { name: "conv1" conv2d { input: "picture" filters: 8 kernel: 3 padding: 1 bias: false } }
  layer { name: "pool1" pool2d { input: "conv1" kernel: 2 } }
  layer { name: "norm1" batch_norm { input: "pool1" activation: RELU } }
  layer { name: "conv2" conv2d { input: "norm1" filters: 8 kernel: 3 padding: 1 bias: false } }
  layer { name: "norm2" batch_norm { input: "conv2" activation: RELU } }
  layer { name: "hidden" mlp { input: "norm2" sizes: [32] activation: RELU dropout: 0.3 } }
  layer { name: "logits" fc { input: "hidden" size: 10 } }
  loss { softmax_cross_entropy { logits: "logits" label: "label" } }
}
optimizer { adam { learning_rate: 0.002 } schedule { cosine { decay_steps: 250 } } }
train { seed: 1 lanes: 8 }
)";

// IDX: bytes 0, 0, the type, the number of dims; the dims, big-endian; the values.
void WriteIdx(const std::string& file, const std::vector<uint32_t>& dims, const std::string& values) {
  std::ofstream out(file, std::ios::binary);
  out << std::string({0, 0, 8, static_cast<char>(dims.size())});
  for (const uint32_t d : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) out << static_cast<char>(d >> shift & 255);
  }
  out << values;
}

void WritePictures(const std::string& directory) {
  constexpr uint32_t kPictures = 700;
  std::string pixels, classes;
  for (uint64_t n = 0; n < kPictures; ++n) {
    classes += static_cast<char>(Philox(1, n, 0).v[0] % 10);
    for (uint32_t i = 0; i < 64; ++i) pixels += static_cast<char>(Philox(2, n, i).v[0] % 256);
  }
  WriteIdx(directory + "/images", {kPictures, 8, 8}, pixels);
  WriteIdx(directory + "/labels", {kPictures}, classes);
}

// A table on servers and a parameter that is sparse and not distributed; layers that no loss depends on.
std::string SparseJob() {
  return absl::StrReplaceAll(
      kSlotJob,
      {{"width: 1 is_sparse: true is_distributed: true", "width: 1 dict_size: 150 is_sparse: true"},
       {R"(layer { name: "deep")", R"(layer { name: "aside" embedding { ids: "cat" table: "frozen" pooling: SUM } }
  layer { name: "unused" square { input: "aside" } }
  layer { name: "deep")"},
       {"optimizer { adam",
        "table { name: \"frozen\" width: 3 dict_size: 150 trainable: false }\n"
        "optimizer { clip { by_global_norm { max_norm: 0.05 } } adam"}});
}

void WriteFewLines(const std::string& directory) {
  WriteSlotLines(directory + "/train.txt", 0, 21);
  WriteSlotLines(directory + "/eval.txt", 21, 30);
}

struct TestJob {
  const char* name;
  std::string text;
  std::vector<std::string> settings;
  void (*write)(const std::string& directory);
};

const std::vector<TestJob>& Jobs() {
  static const auto* const jobs = new std::vector<TestJob>{
      // Tables, Adam, a schedule, a clip by the norm of all dense gradients.
      {"DeepFm",
       kClickJob,
       {"optimizer.clip={by_global_norm { max_norm: 0.2 }}",
        "optimizer.schedule={exponential { decay_steps: 40 decay_rate: 0.7 }}"},
       WriteClickData},
      {"Pictures", kPictureJob, {}, WritePictures},
      {"Sparse", SparseJob(), {}, WriteSlotData},
      // 21 examples: of 32 streams 11 have none at all, and most of 8 repeat theirs within a batch.
      {"EmptyLanes", SparseJob(), {}, WriteFewLines}};
  return *jobs;
}

// ------------------------------------------------------------------------------------------------------------- corners

constexpr char kAllReduce[] = "distribute.dense=ALL_REDUCE";
constexpr char kSharded[] = "distribute.update=SHARDED";
constexpr char kSmallest[] = "distribute.all_reduce={bucket_bytes: 4096 first_bucket_bytes: 4096}";
constexpr char kMiddle[] = "distribute.all_reduce={bucket_bytes: 66000 first_bucket_bytes: 4096}";

struct Corner {
  const char* name;
  int servers, trainers;
  std::vector<std::string> settings = {};
  // Lanes and jobs (by place in Jobs()) of a normal run.
  std::set<std::pair<int, size_t>> normal = {};
};

const std::vector<Corner>& Corners() {
  static const auto* const corners =
      new std::vector<Corner>{{"Servers2Trainers2", 2, 2, {}, {{8, 1}, {8, 2}, {32, 3}}},
                              {"RowsOnTrainers2", 0, 2, {}, {{8, 3}}},
                              {"RowsOnTrainers3", 0, 3},
                              {"AllReduce2", 1, 2, {kAllReduce}, {{8, 3}}},
                              {"AllReduce3", 1, 3, {kAllReduce}, {{8, 1}}},
                              {"AllReduce4", 1, 4, {kAllReduce}, {{32, 2}}},
                              {"AllReduce5", 1, 5, {kAllReduce}, {{32, 3}}},
                              {"AllReduce8", 1, 8, {kAllReduce}, {{8, 2}}},
                              {"AllReduceAndRowsOnTrainers2", 0, 2, {kAllReduce}, {{8, 1}}},
                              {"AllReduceAndRowsOnTrainers3", 0, 3, {kAllReduce}, {{8, 0}, {32, 3}}},
                              {"AllReduceAndRowsOnTrainers8", 0, 8, {kAllReduce}},
                              {"Hybrid2And2", 2, 2, {kAllReduce}},
                              {"Hybrid2And3", 2, 3, {kAllReduce}, {{8, 0}, {8, 2}}},
                              {"SmallestBuckets2", 1, 2, {kAllReduce, kSmallest}},
                              {"SmallestBuckets3", 2, 3, {kAllReduce, kSmallest}, {{8, 1}}},
                              {"MiddleBuckets3", 0, 3, {kAllReduce, kMiddle}, {{32, 2}}},
                              {"MiddleBuckets5", 2, 5, {kAllReduce, kMiddle}},
                              {"Sharded3", 0, 3, {kAllReduce, kSharded}, {{8, 1}}},
                              {"Sharded4", 2, 4, {kAllReduce, kSharded}, {{32, 2}}},
                              {"Sharded2", 0, 2, {kAllReduce, kSharded}},
                              {"Sharded5", 1, 5, {kAllReduce, kSharded}},
                              {"Sharded8", 0, 8, {kAllReduce, kSharded}}};
  return *corners;
}

bool All() {
  const char* const all = std::getenv("WEIR_ALL_CORNERS");
  return all != nullptr && std::string_view(all) == "1";
}

// ---------------------------------------------------------------------------------------------------------------- runs

const std::string& DirectoryOf(const TestJob& job) {
  static auto* const directories = new std::map<std::string, std::string>;
  std::string& directory = (*directories)[job.name];
  if (directory.empty()) {
    directory = absl::StrCat(::testing::TempDir(), "/corners/", job.name);
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory);
    job.write(directory);
  }
  return directory;
}

InProcessRun RunOf(const TestJob& job, int lanes, std::vector<std::string> more = {}) {
  InProcessRun run{.job_text = job.text, .directory = DirectoryOf(job), .overrides = Steps()};
  run.overrides.push_back(absl::StrCat("train.lanes=", lanes));
  run.overrides.insert(run.overrides.end(), job.settings.begin(), job.settings.end());
  run.overrides.insert(run.overrides.end(), more.begin(), more.end());
  return run;
}

InProcessRun RunOf(const TestJob& job, int lanes, const Corner& corner, std::vector<std::string> more = {}) {
  InProcessRun run = RunOf(job, lanes, corner.settings);
  run.overrides.insert(run.overrides.end(), more.begin(), more.end());
  run.servers = corner.servers;
  run.trainers = corner.trainers;
  run.threads = corner.trainers == 2 ? 2 : 1;
  run.shuffle = 7;
  return run;
}

InProcessResult Train(const InProcessRun& run) {
  absl::StatusOr<InProcessResult> result = TrainInProcess(run);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : InProcessResult();
}

// Returns the run in one process, which happens once.
const InProcessResult& Local(const TestJob& job, int lanes) {
  static auto* const results = new std::map<std::pair<std::string, int>, InProcessResult>;
  const std::pair<std::string, int> key = {job.name, lanes};
  const auto found = results->find(key);
  if (found != results->end()) return found->second;
  return (*results)[key] = Train(RunOf(job, lanes));
}

// --------------------------------------------------------------------------------------------------------------- tests

struct Case {
  const TestJob* job;
  int lanes;
  const Corner* corner;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (size_t j = 0; j < Jobs().size(); ++j) {
    for (const int lanes : {8, 32}) {
      for (const Corner& corner : Corners()) {
        if (All() || corner.normal.contains({lanes, j})) cases.push_back({&Jobs()[j], lanes, &corner});
      }
    }
  }
  return cases;
}

class CornersTest : public ::testing::TestWithParam<Case> {};

TEST_P(CornersTest, SameBitsAsInOneProcess) {
  const Case& c = GetParam();
  const InProcessResult& local = Local(*c.job, c.lanes);
  // Four digests, all different: the job trains.
  ASSERT_EQ(std::set<std::string>(local.digests.begin(), local.digests.end()).size(), 4u);
  const InProcessResult result = Train(RunOf(*c.job, c.lanes, *c.corner));
  EXPECT_EQ(result.digests, local.digests);
  EXPECT_EQ(result.summary.examples, local.summary.examples);
}

INSTANTIATE_TEST_SUITE_P(All, CornersTest, ::testing::ValuesIn(Cases()), [](const auto& info) {
  return absl::StrCat(info.param.job->name, "_", info.param.lanes, "Lanes_", info.param.corner->name);
});

// A trainer is killed in one corner, between two digests; the job goes on from its checkpoint in another.
struct Move {
  size_t job;
  const char *from, *to;
  bool normal = false;
};

class KilledTest : public ::testing::TestWithParam<Move> {
 protected:
  static const Corner& Named(std::string_view name) {
    for (const Corner& corner : Corners()) {
      if (name == corner.name) return corner;
    }
    ADD_FAILURE() << "no corner " << std::string(name);
    return Corners()[0];
  }
};

TEST_P(KilledTest, SameBitsWhenResumedInAnotherCorner) {
  const TestJob& job = Jobs()[GetParam().job];
  const InProcessResult& local = Local(job, 8);
  ASSERT_EQ(local.digests.size(), 4u);
  const std::string directory = absl::StrCat(DirectoryOf(job), "/", GetParam().from, "-", GetParam().to);
  const std::vector<std::string> checkpoints = {absl::StrCat("checkpoint.dir=\"", directory, "\""),
                                                "checkpoint.every_steps=60"};
  FaultCounters counters;
  InProcessRun killed = RunOf(job, 8, Named(GetParam().from), checkpoints);
  for (const char* deadline : {"deadlines.rpc_s=0.5", "deadlines.heartbeat_s=0.2", "deadlines.lease_s=2"}) {
    killed.overrides.emplace_back(deadline);
  }
  // Nothing that trainer 1 sends to servers from step 130 on arrives.
  killed.between = [&counters](int trainer, Transport* servers) {
    auto transport = std::make_unique<FaultyTransport>(servers, Clock::Real(), trainer, FaultOptions(), &counters);
    transport->OnCall(
        [](const CallInfo& call) { return call.trainer == 1 && call.step >= 130 ? Fate::kKillTrainer : Fate::kPass; });
    return transport;
  };
  const absl::Status end = TrainInProcess(killed).status();
  EXPECT_TRUE(absl::StrContains(end.message(), "trainer 1")) << end;

  InProcessRun resumed = RunOf(job, 8, Named(GetParam().to), checkpoints);
  resumed.resume = true;
  const InProcessResult result = Train(resumed);
  ASSERT_EQ(result.digests.size(), 2u);
  EXPECT_EQ(result.digests[0], local.digests[2]);
  EXPECT_EQ(result.digests[1], local.digests[3]);
  EXPECT_EQ(result.summary.steps, 200);
}

std::vector<Move> Moves() {
  const std::vector<Move> all = {
      {0, "AllReduce3", "Servers2Trainers2", true},
      {1, "AllReduceAndRowsOnTrainers2", "Hybrid2And3", true},
      {2, "Servers2Trainers2", "AllReduceAndRowsOnTrainers3", true},
      {0, "Sharded3", "Servers2Trainers2", true},
      {1, "Sharded4", "Sharded2"},
      {2, "AllReduce3", "Sharded5"},
      {0, "Hybrid2And3", "RowsOnTrainers2"},
      {0, "RowsOnTrainers2", "AllReduce8"},
      {0, "AllReduceAndRowsOnTrainers3", "AllReduce4"},
      {1, "Servers2Trainers2", "AllReduce5"},
      {2, "Hybrid2And2", "AllReduce2"},
      {3, "AllReduce5", "AllReduceAndRowsOnTrainers2"},
  };
  std::vector<Move> moves;
  for (const Move& move : all) {
    if (All() || move.normal) moves.push_back(move);
  }
  return moves;
}

INSTANTIATE_TEST_SUITE_P(Moves, KilledTest, ::testing::ValuesIn(Moves()), [](const auto& info) {
  return absl::StrCat(Jobs()[info.param.job].name, "_", info.param.from, "_", info.param.to);
});

}  // namespace
}  // namespace weir
