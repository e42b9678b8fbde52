// The bytes of every call between trainers and servers, and the digests that jobs end with, in every mode: compared
// with those in testdata/recorded_wire.golden. A run is one trainer (or two in sync) in this process; call_record.h
// says what is compared.
//
// After a change of the wire or of the arithmetic that is meant, run this test with
// --test_env=WEIR_GOLDEN_OUT=<directory> --strategy=TestRunner=local and copy recorded_wire.golden from there over the
// one in testdata. recorded_wire.calls in that directory has every call as a line, with its index and decoded headers:
// the first line that differs from the file of another revision is the first call that differs.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/row_file.h"
#include "gtest/gtest.h"
#include "ops/arithmetic.h"
#include "tests/testing/call_record.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

constexpr char kGolden[] = "tests/e2e/modes/testdata/recorded_wire.golden";
constexpr int64_t kSteps = 12;

struct Corner {
  std::string name;
  std::vector<std::string> overrides = {};
  // Replacements in the text of the slot job.
  std::vector<std::pair<std::string, std::string>> edits = {};
  int trainers = 1;
  // Ends the run half way, resumes it, and scores the evaluation data with the last checkpoint.
  bool resumes = false;
  // Every server keeps its checkpoints in a directory of its own.
  bool per_host = false;
  // See CallRecord::Options.
  bool prefetches = false;
  bool any_order_in_step = false;
};

const std::string kAsync = "distribute.sync=false";
const std::string kLoose = "distribute.reproducible=false";

// Makes gradients so large that a step's push has several parts.
const std::pair<std::string, std::string> kWideTower = {"size: 16 activation: RELU", "size: 16384 activation: RELU"};

const Corner kCorners[] = {
    {.name = "sync"},
    {.name = "sync_two_trainers", .trainers = 2},
    {.name = "sync_without_lanes", .overrides = {kLoose, "train.lanes=0"}},
    {.name = "sync_accumulate", .overrides = {"train.accumulate_steps=2", "data.batch_size=16"}},
    {.name = "norms", .overrides = {"optimizer.clip={by_global_norm{max_norm: 0.05}}"}},
    {.name = "norms_two_trainers", .overrides = {"optimizer.clip={by_global_norm{max_norm: 0.05}}"}, .trainers = 2},
    {.name = "norms_in_rounds",
     .edits = {{"optimizer { adam { learning_rate: 0.005 } }",
                "optimizer { lamb { learning_rate: 0.01 } clip { by_norm { max_norm: 0.02 } } }"}}},
    {.name = "sync_in_parts", .edits = {kWideTower}},
    {.name = "async", .overrides = {kAsync}},
    {.name = "async_norms", .overrides = {kAsync, "optimizer.clip={by_global_norm{max_norm: 0.05}}"}},
    {.name = "async_eager", .overrides = {kAsync, "distribute.async_apply=EAGER"}},
    {.name = "async_eager_in_parts", .overrides = {kAsync, "distribute.async_apply=EAGER"}, .edits = {kWideTower}},
    {.name = "async_cached_rows",
     .overrides = {kAsync, "table[0].cache={rows: 80 max_steps: 6}", "table[1].cache={rows: 80 max_steps: 6}"}},
    {.name = "async_delay_compensation", .overrides = {kAsync, "distribute.delay_compensation={}"}},
    {.name = "geo", .overrides = {kAsync, "distribute.geo.every_steps=4"}},
    {.name = "bounded_staleness", .overrides = {kAsync, "distribute.bounded_staleness={steps: 1}"}},
    {.name = "half_async",
     .overrides = {kAsync, "distribute.half_async={}", "train.workers=2"},
     .any_order_in_step = true},
    {.name = "prefetched_rows", .overrides = {kAsync, "distribute.prefetch_rows=true"}, .prefetches = true},
    {.name = "async_tables", .overrides = {kLoose, "distribute.async_tables=true"}},
    {.name = "wire_float16",
     .overrides = {kLoose, "distribute.wire={pull: WIRE_FLOAT16 push: WIRE_FLOAT16}"},
     .resumes = true},
    {.name = "wire_bfloat16", .overrides = {kLoose, "distribute.wire={pull: WIRE_BFLOAT16 push: WIRE_BFLOAT16}"}},
    {.name = "wire_int8",
     .overrides = {kLoose, "distribute.wire={pull: WIRE_INT8 push: WIRE_INT8}"},
     .trainers = 2,
     .resumes = true},
    {.name = "async_wire_int8",
     .overrides = {kAsync, "distribute.wire={pull: WIRE_INT8 push: WIRE_INT8}"},
     .resumes = true},
    {.name = "dense_table_by_rows",
     .edits = {{"width: 4 is_sparse: true is_distributed: true",
                "width: 4 dict_size: 150 is_sparse: true fetch: ROWS"}}},
    {.name = "dense_table_whole",
     .edits = {{"width: 4 is_sparse: true is_distributed: true",
                "width: 4 dict_size: 150 is_sparse: true fetch: WHOLE"}}},
    {.name = "lifecycle",
     .edits = {{"is_distributed: true",
                "is_distributed: true logical_shards: 16 dict_size: 64 lifecycle { admit_after: "
                "2 ttl_steps: 3 when_full: EVICT_LEAST_RECENT tombstones: true }"}},
     .resumes = true},
    {.name = "shows_and_clicks",
     .edits = {{"is_distributed: true",
                "is_distributed: true logical_shards: 16 lifecycle { admit_score: 0.2 click: "
                "\"label\" decay_every_steps: 4 min_score: 0.15 }"}},
     .resumes = true},
    {.name = "loaded_rows", .overrides = {"table[0].load=\"first.rows\""}},
    {.name = "resume", .overrides = {"train.eval_every_steps=4"}, .resumes = true},
    {.name = "resume_two_trainers", .overrides = {"train.eval_every_steps=4"}, .trainers = 2, .resumes = true},
    {.name = "resume_async", .overrides = {kAsync, "train.eval_every_steps=4"}, .resumes = true},
    {.name = "resume_geo", .overrides = {kAsync, "distribute.geo.every_steps=4"}, .resumes = true},
    {.name = "resume_per_host", .resumes = true, .per_host = true},
};

// Sections of the golden file, and of what this run wrote, by their first lines: "sync with 2 servers".
using Sections = std::map<std::string, std::string>;

Sections ReadSections(const std::string& file) {
  Sections sections;
  std::ifstream in(file);
  std::string line, name;
  while (std::getline(in, line)) {
    if (!line.empty() && line[0] != ' ') {
      name = line;
      sections[name];
    } else if (!line.empty()) {
      absl::StrAppend(&sections[name], line, "\n");
    }
  }
  return sections;
}

class RecordedWireTest : public ::testing::TestWithParam<std::tuple<Corner, int>> {
 protected:
  static void SetUpTestSuite() {
    const absl::Status set = SetArithmetic(v1::Train::AVX2);
    lacks_avx2_ = set.ok() ? "" : std::string(set.message());
  }
  // Writes the files of WEIR_GOLDEN_OUT.
  static void TearDownTestSuite() {
    const char* const directory = std::getenv("WEIR_GOLDEN_OUT");
    if (directory == nullptr) return;
    std::ofstream golden(absl::StrCat(directory, "/recorded_wire.golden"));
    std::ofstream calls(absl::StrCat(directory, "/recorded_wire.calls"));
    for (const auto& [name, section] : written_) golden << name << "\n" << section;
    for (const auto& [name, section] : calls_) calls << name << "\n" << section;
  }

  void SetUp() override {
    if (!lacks_avx2_.empty()) GTEST_SKIP() << lacks_avx2_;
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    WriteSlotData(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  static const Corner& corner() { return std::get<0>(GetParam()); }
  static int servers() { return std::get<1>(GetParam()); }
  static std::string Name() { return absl::StrCat(corner().name, " with ", servers(), " servers"); }

  InProcessRun MakeRun(const std::shared_ptr<CallRecord>& record) const {
    InProcessRun run{
        .job_text = absl::StrReplaceAll(kSlotJob, corner().edits),
        .directory = dir_,
        .overrides = {"train.arithmetic=AVX2", "train.digest_every_steps=5", "checkpoint.keep_last=2",
                      "checkpoint.every_steps=6", "checkpoint.dir=\"checkpoints\"", "deadlines.lease_s=60"},
        .servers = servers(),
        .trainers = corner().trainers,
        .between = [record](int trainer, Transport* inner) { return record->Between(trainer, inner); }};
    run.overrides.insert(run.overrides.end(), corner().overrides.begin(), corner().overrides.end());
    if (corner().per_host) {
      run.overrides.push_back("checkpoint.per_host=true");
      run.checkpoint_dir = [this](int server) { return Host(server); };
    }
    return run;
  }
  std::string Host(int server) const { return absl::StrCat(dir_, server <= 0 ? "/checkpoints" : "/other_host"); }

  void WriteRowFile() const {
    const auto writer = RowFileWriter::Create(
        dir_ + "/first.rows", {.table = "vectors", .width = 4, .states = {}, .logical_shards = 4096}, "job", 60, -1);
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::vector<int64_t> ids;
    std::vector<float> rows;
    for (int64_t id = 0; id < 50; id += 3) {
      ids.push_back(id);
      for (int64_t j = 0; j < 4; ++j) rows.push_back(static_cast<float>(id * 4 + j) / 256);
    }
    ASSERT_TRUE((*writer)->Add(ids, rows, {}).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
  }

  // Trains to step `steps`.
  void Train(InProcessRun run, int64_t steps, bool resume) {
    run.overrides.push_back(absl::StrCat("train.max_steps=", steps));
    run.resume = resume;
    const absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    ASSERT_TRUE(result.ok()) << result.status();
    for (const std::string& digest : result->digests) absl::StrAppend(&digests_, "  ", digest, "\n");
  }

  // Appends the digest of the newest checkpoint.
  void AddFinalDigest() {
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(dir_ + "/checkpoints");
    ASSERT_TRUE(newest.ok()) << newest.status();
    absl::StrAppend(&digests_, "  end step=", newest->manifest.step(),
                    " values=", DigestHex(newest->manifest.values_digest()),
                    " state=", DigestHex(newest->manifest.state_digest()), "\n");
  }

  static void Keep(const CallRecord& record, const std::string& section) {
    written_[Name()] = section;
    calls_[Name()] = record.Calls();
  }

  const std::string dir_ = absl::StrCat(::testing::TempDir(), "/recorded_wire");
  std::string digests_;

  static inline std::string lacks_avx2_;
  static inline Sections written_, calls_;
};

std::string Indented(const std::string& lines) {
  std::string indented;
  for (const auto line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) absl::StrAppend(&indented, "  ", line, "\n");
  return indented;
}

TEST_P(RecordedWireTest, EveryCallHasTheBytesOfTheGoldenFile) {
  const auto record =
      std::make_shared<CallRecord>(CallRecord::Options{.servers = servers(),
                                                       .trainers = corner().trainers,
                                                       .prefetched_steps = corner().prefetches ? kSteps : 0,
                                                       .any_order_in_step = corner().any_order_in_step});
  const InProcessRun run = MakeRun(record);
  WriteRowFile();
  if (corner().resumes) {
    ASSERT_NO_FATAL_FAILURE(Train(run, kSteps / 2, /*resume=*/false));
  }
  ASSERT_NO_FATAL_FAILURE(Train(run, kSteps, corner().resumes));
  if (!corner().per_host) {
    ASSERT_NO_FATAL_FAILURE(AddFinalDigest());
  }
  if (corner().resumes && !corner().per_host) {
    const absl::StatusOr<int64_t> scored =
        PredictInProcess(run, {.checkpoints = dir_ + "/checkpoints", .output = dir_ + "/scores"});
    ASSERT_TRUE(scored.ok()) << scored.status();
    EXPECT_EQ(*scored, 1000);
  }
  EXPECT_EQ(record->Malformed(), "");
  const std::string section = digests_ + Indented(record->Summary());
  Keep(*record, section);
  const std::vector<std::string> got = absl::StrSplit(section, '\n');
  const std::vector<std::string> want = absl::StrSplit(ReadSections(kGolden)[Name()], '\n');
  for (size_t i = 0; i < std::max(got.size(), want.size()); ++i) {
    const std::string line = i < got.size() ? got[i] : "", expected = i < want.size() ? want[i] : "";
    EXPECT_EQ(line, expected) << Name() << ": the head of this file says how to find the first call that differs";
  }
}

TEST(RecordedWireFileTest, EverySectionIsARunOfThisTest) {
  size_t runs = 0;
  const Sections sections = ReadSections(kGolden);
  for (const Corner& corner : kCorners) {
    for (const int servers : {1, 2})
      runs += sections.contains(absl::StrCat(corner.name, " with ", servers, " servers"));
  }
  EXPECT_EQ(runs, 2 * std::size(kCorners));
  EXPECT_EQ(runs, sections.size());
}

INSTANTIATE_TEST_SUITE_P(Corners, RecordedWireTest,
                         ::testing::Combine(::testing::ValuesIn(kCorners), ::testing::Values(1, 2)),
                         [](const ::testing::TestParamInfo<std::tuple<Corner, int>>& info) {
                           return absl::StrCat(std::get<0>(info.param).name, "_", std::get<1>(info.param));
                         });

}  // namespace
}  // namespace weir
