// The programs of every mode, on 1 to 3 servers and 1, 2 and 4 trainers, with dense, sparse and distributed parameters
// in one block and in several. tests/transpiler/goldens has one file per kind of parameter and number of blocks. For
// each number of servers it holds the whole programs of sync with one trainer, and for every other variant the lines
// that differ from the nearest earlier one.
//
// To accept a change: run this test with --test_env=WEIR_GOLDEN_OUT=<directory> --strategy=TestRunner=local, look at
// the files that it writes there, and copy them over tests/transpiler/goldens.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

struct Mode {
  const char* name;
  // Fields of the job's distribute message.
  const char* distribute;
  const char* train = "";
  // True if the mode is for jobs with a distributed table only.
  bool tables = false;
};
constexpr Mode kModes[] = {
    {"sync", ""},
    {"mean over trainers", "average: BY_TRAINERS reproducible: false"},
    {"four batches a step", "", "accumulate_steps: 4"},
    {"sync with async tables", "async_tables: true reproducible: false", "", true},
    {"sync, rows a batch ahead", "prefetch_rows: true", "", true},
    {"async", "sync: false"},
    {"async, parts apply on arrival", "sync: false async_apply: EAGER"},
    {"delay compensation", "sync: false delay_compensation { lambda: 0.5 }"},
    {"bounded staleness", "sync: false bounded_staleness { steps: 2 }"},
    {"async, rows a batch ahead", "sync: false prefetch_rows: true", "", true},
    {"half-async", "sync: false half_async {}", "workers: 2"},
    {"geo", "sync: false geo { every_steps: 10 }"},
};

// Weights of 96 or of 3 * 8192 elements; the latter make a block for each of up to three servers. Likewise the table.
std::string JobText(const std::string& kind, bool many, const Mode& mode) {
  const std::string table = kind == "distributed" ? "is_sparse: true is_distributed: true"
                                                  : absl::StrCat("is_sparse: true dict_size: ", many ? 8192 : 2000);
  const bool rows = kind != "dense";
  return absl::StrCat(R"(name: "matrix"
data { criteo { integers: )",
                      many ? 192 : 12, R"( categoricals: 2 } ids { shared: "cat" } batch_size: 64 }
model {
)",
                      rows ? "  layer { name: \"wide\" embedding { ids: \"cat\" table: \"t\" pooling: SUM } }\n" : "",
                      R"(
  layer { name: "deep" fc { input: "dense" size: )",
                      many ? 128 : 8, R"( activation: RELU } }
)",
                      rows ? "  layer { name: \"both\" concat { input: \"deep\" input: \"wide\" } }\n" : "", R"(
  layer { name: "out" fc { input: ")",
                      rows ? "both" : "deep", R"(" size: 1 } }
  loss { name: "ctr" sigmoid_cross_entropy { logits: "out" label: "label" } }
}
)",
                      rows ? absl::StrCat("table { name: \"t\" width: 3 ", table, " }\n") : "",
                      "optimizer { adagrad {} }\ndistribute { ", mode.distribute, " }\ntrain { ", mode.train, " }\n");
}

using Lines = std::vector<std::string>;

void Append(const std::string& what, v1::ProgramDesc program, Lines* lines) {
  program.clear_plan();
  lines->push_back(absl::StrCat("* ", what));
  for (const absl::string_view line : absl::StrSplit(ProgramText(program), '\n')) {
    if (line.empty() || absl::StartsWith(line, "weir program") || absl::StartsWith(line, "name ")) continue;
    lines->emplace_back(line);
  }
}

Lines ProgramsOf(const std::string& job, int servers, int trainers) {
  const Transpiled t = TranspiledOf(
      JobOf(job, {absl::StrCat("distribute.servers=", servers), absl::StrCat("distribute.trainers=", trainers)}));
  Lines lines;
  for (const v1::PlacedBlock& block : t.plan().blocks()) {
    lines.push_back(absl::StrCat("* ", block.name(), " on server ", block.server()));
  }
  for (const v1::FetchedRows& rows : t.plan().fetched_rows()) {
    lines.push_back(absl::StrCat("* ", rows.parameter(), " by rows, at most ", rows.most_rows(), " of ", rows.rows()));
  }
  Append("trainer", t.trainer().main, &lines);
  Append("trainer, at start", t.trainer().startup, &lines);
  for (int s = 0; s < servers; ++s) {
    const auto server = t.Server(s);
    EXPECT_TRUE(server.ok()) << server.status();
    if (!server.ok()) continue;
    Append(absl::StrCat("server ", s), server->main, &lines);
    Append(absl::StrCat("server ", s, ", at start"), server->startup, &lines);
  }
  return lines;
}

// Returns "- line" and "+ line" by the longest common subsequence, each group after a line "*" that names its program.
std::string Difference(const Lines& from, const Lines& to) {
  const size_t n = from.size(), m = to.size();
  std::vector<std::vector<int>> common(n + 1, std::vector<int>(m + 1, 0));
  for (size_t i = n; i-- > 0;) {
    for (size_t j = m; j-- > 0;) {
      common[i][j] = from[i] == to[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
    }
  }
  std::string text, in;
  bool said = false;
  const auto say = [&](const char* sign, const std::string& line) {
    if (!said) absl::StrAppend(&text, in, "\n");
    said = true;
    absl::StrAppend(&text, sign, line, "\n");
  };
  for (size_t i = 0, j = 0; i < n || j < m;) {
    if (i < n && j < m && from[i] == to[j]) {
      if (absl::StartsWith(from[i], "* ")) {
        in = from[i];
        said = false;
      }
      ++i;
      ++j;
    } else if (i < n && (j == m || common[i + 1][j] >= common[i][j + 1])) {
      say("- ", from[i++]);
    } else {
      say("+ ", to[j++]);
    }
  }
  return text;
}

std::string Golden(const std::string& kind, bool many) {
  std::string text;
  for (const int servers : {1, 2, 3}) {
    std::vector<std::pair<std::string, Lines>> earlier;
    for (const Mode& mode : kModes) {
      if (mode.tables && kind != "distributed") continue;
      const std::string job = JobText(kind, many, mode);
      for (const int trainers : {1, 2, 4}) {
        const std::string variant = absl::StrCat("trainers: ", trainers, ", ", mode.name);
        Lines lines = ProgramsOf(job, servers, trainers);
        absl::StrAppend(&text, "\n==== servers: ", servers, ", ", variant, "\n");
        if (earlier.empty()) absl::StrAppend(&text, absl::StrJoin(lines, "\n"), "\n");
        std::string nearest, least;
        for (const auto& [name, base] : earlier) {
          std::string difference = Difference(base, lines);
          if (!nearest.empty() && difference.size() >= least.size()) continue;
          nearest = name;
          least = std::move(difference);
        }
        if (!nearest.empty()) absl::StrAppend(&text, "as ", nearest, "\n", least);
        earlier.emplace_back(variant, std::move(lines));
      }
    }
  }
  return text;
}

// Returns "line 7: <got> instead of <want>", or "" if the texts are equal.
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

struct Kind {
  const char* name;
  bool many;
};
class MatrixTest : public ::testing::TestWithParam<Kind> {};

TEST_P(MatrixTest, TheProgramsAreThoseInTheTree) {
  const std::string name = absl::StrCat(GetParam().name, GetParam().many ? "_many_blocks" : "_one_block", ".golden");
  const std::string got = Golden(GetParam().name, GetParam().many);
  if (const char* directory = std::getenv("WEIR_GOLDEN_OUT")) std::ofstream(std::string(directory) + "/" + name) << got;
  std::ostringstream want;
  want << std::ifstream("tests/transpiler/goldens/" + name).rdbuf();
  EXPECT_EQ(FirstOtherLine(got, want.str()), "") << name;
}

INSTANTIATE_TEST_SUITE_P(Kinds, MatrixTest,
                         ::testing::Values(Kind{"dense", false}, Kind{"dense", true}, Kind{"sparse", false},
                                           Kind{"sparse", true}, Kind{"distributed", false}, Kind{"distributed", true}),
                         [](const ::testing::TestParamInfo<Kind>& info) {
                           return absl::StrCat(info.param.name, info.param.many ? "ManyBlocks" : "OneBlock");
                         });

}  // namespace
}  // namespace weir
