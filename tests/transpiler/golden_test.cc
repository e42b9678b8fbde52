// The programs of a small DeepFM, whole: what changes them is seen in review. A change that is meant: run this test
// with
// --test_env=WEIR_GOLDEN_OUT=<directory> --strategy=TestRunner=local, look at the files it writes there, and copy them
// over testdata.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/explain/explain_plan.h"

namespace weir {
namespace {

struct Variant {
  const char* name;
  int servers;
  bool sync;
  std::vector<std::string> more = {};  // settings
};

// The plan stands once, not in every program.
std::string Text(const v1::ProgramDesc& program) {
  v1::ProgramDesc without = program;
  without.clear_plan();
  return ProgramText(without);
}

std::string AllPrograms(const Variant& variant) {
  std::vector<std::string> settings = {absl::StrCat("distribute.servers=", variant.servers),
                                       absl::StrCat("distribute.sync=", variant.sync ? "true" : "false")};
  settings.insert(settings.end(), variant.more.begin(), variant.more.end());
  const Job job = JobOf(kDeepFm, settings);
  const Transpiled transpiled = TranspiledOf(job);
  std::string all = ExplainPlan(job, transpiled.trainer().main);
  // The fingerprint covers every setting that a job can have: a new one changes it, and no program.
  const size_t fingerprint = all.find("fingerprint ");
  all.erase(fingerprint, all.find('\n', fingerprint) + 1 - fingerprint);
  all += "\n" + Text(transpiled.trainer().main) + "\n" + Text(transpiled.trainer().startup);
  for (int s = 0; s < variant.servers; ++s) {
    const auto server = transpiled.Server(s);
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok()) all += "\n" + Text(server->main) + "\n" + Text(server->startup);
  }
  return all;
}

// "line 7: <got> instead of <want>"; "" when the texts are equal.
std::string FirstOtherLine(const std::string& got, const std::string& want) {
  std::istringstream got_lines(got), want_lines(want);
  for (int number = 1;; ++number) {
    std::string g, w;
    const bool more_got = static_cast<bool>(std::getline(got_lines, g));
    const bool more_want = static_cast<bool>(std::getline(want_lines, w));
    if (!more_got && !more_want) return got == want ? "" : "line ends differ";
    if (g != w) return absl::StrCat("line ", number, ": '", g, "' instead of '", w, "'");
  }
}

class GoldenTest : public ::testing::TestWithParam<Variant> {};

TEST_P(GoldenTest, TheProgramsAreThoseInTheTree) {
  const std::string name = std::string(GetParam().name) + ".golden";
  const std::string got = AllPrograms(GetParam());
  if (const char* directory = std::getenv("WEIR_GOLDEN_OUT")) {
    std::ofstream(std::string(directory) + "/" + name) << got;
  }
  std::ostringstream want;
  want << std::ifstream("tests/transpiler/testdata/" + name).rdbuf();
  EXPECT_EQ(FirstOtherLine(got, want.str()), "");
}

INSTANTIATE_TEST_SUITE_P(
    DeepFm, GoldenTest,
    ::testing::Values(
        Variant{"deepfm_sync_1", 1, true}, Variant{"deepfm_sync_2", 2, true}, Variant{"deepfm_async_1", 1, false},
        Variant{"deepfm_async_2", 2, false}, Variant{"deepfm_all_reduce_2", 2, true, {"distribute.dense=ALL_REDUCE"}},
        Variant{"deepfm_sharded_1", 1, true, {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED"}},
        // Trainers that average their replicas; a norm over what trainers and servers hold.
        Variant{
            "deepfm_local_sgd_1",
            1,
            true,
            {"distribute.dense=ALL_REDUCE", "distribute.reproducible=false", "distribute.local_sgd={every_steps: 8}"}},
        Variant{"deepfm_norm_with_tables_2",
                2,
                true,
                {"distribute.dense=ALL_REDUCE", "optimizer.clip={by_global_norm { max_norm: 1 }}"}}),
    [](const ::testing::TestParamInfo<Variant>& info) { return std::string(info.param.name); });

TEST(GoldenTest, TheProgramsReadBack) {
  const Transpiled transpiled = TranspiledOf(JobOf(kDeepFm));
  const auto server = transpiled.Server(1);
  ASSERT_TRUE(server.ok()) << server.status();
  for (const v1::ProgramDesc* program :
       {&transpiled.trainer().main, &transpiled.trainer().startup, &server->main, &server->startup}) {
    const auto parsed = ParseProgramText(ProgramText(*program), "text");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->SerializeAsString(), program->SerializeAsString()) << program->name();
  }
}

}  // namespace
}  // namespace weir
