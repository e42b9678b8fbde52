// Which sparse tables are fetched by rows, and what the programs look like then.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/explain/explain_plan.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Batch 64, 2 slots: a step names at most 128 rows.
constexpr char kJob[] = R"(name: "held"
data {
  criteo { integers: 3 categoricals: 2 }
  ids { shared: "cat" }
  batch_size: 64
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "t" pooling: SUM } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "t" width: 4 is_sparse: true dict_size: 20000 }
optimizer { adam {} }
distribute { servers: 2 }
)";

std::vector<std::string> Fetched(const std::vector<std::string>& overrides, const std::string& text = kJob) {
  std::vector<std::string> fetched;
  const Transpiled t = TranspiledOf(JobOf(text, overrides));
  for (const v1::FetchedRows& rows : t.plan().fetched_rows()) {
    fetched.push_back(
        absl::StrCat(rows.parameter(), " ", rows.most_rows(), " of ", rows.rows(), rows.forced() ? " forced" : ""));
  }
  return fetched;
}

TEST(ChooseFetchTest, AutoTakesRowsWhenTheyAndTheirIdsAreFewerBytes) {
  EXPECT_THAT(Fetched({}), ElementsAre("t 128 of 20000"));
  // 128 rows of 16 bytes with an id of 8 are 3072 bytes: the whole of 193 rows is more, of 192 is not.
  EXPECT_THAT(Fetched({"table[0].dict_size=193"}), ElementsAre("t 128 of 193"));
  EXPECT_THAT(Fetched({"table[0].dict_size=192"}), IsEmpty());
  // No more rows than there are.
  EXPECT_THAT(Fetched({"table[0].dict_size=100"}), IsEmpty());
}

TEST(ChooseFetchTest, TheJobCanForceEither) {
  EXPECT_THAT(Fetched({"table[0].fetch=WHOLE"}), IsEmpty());
  EXPECT_THAT(Fetched({"table[0].fetch=ROWS", "table[0].dict_size=100"}), ElementsAre("t 100 of 100 forced"));
}

TEST(ChooseFetchTest, ATableWithADenseGradientComesWhole) {
  EXPECT_THAT(Fetched({"table[0].is_sparse=false"}), IsEmpty());
}

TEST(ChooseFetchTest, AVariableThatIsReadTwiceCountsOnce) {
  const std::string twice =
      Replaced(kJob, "  layer { name: \"input\" concat { input: \"fields\"",
               "  layer { name: \"again\" embedding { ids: \"cat\" table: \"t\" pooling: MEAN } }\n"
               "  layer { name: \"input\" concat { input: \"again\" input: \"fields\"");
  EXPECT_THAT(Fetched({}, twice), ElementsAre("t 128 of 20000"));
}

TEST(ChooseFetchTest, NoTrainerHoldsAFetchedTable) {
  const Transpiled t = TranspiledOf(JobOf(kJob));
  const v1::ProgramDesc& main = t.trainer().main;
  EXPECT_EQ(OpText(OnlyOp(main, "prefetch")),
            "Rows=t@ROWS, Index=cat@INDEX.t <- prefetch(Ids=cat) tables=[\"t\"] row_tables=[\"t\"] widths=[4] "
            "heights=[20000] @RPC");
  EXPECT_EQ(InputOf(OnlyOp(main, "lookup_concat"), "Rows"), "t@ROWS");
  for (const v1::ProgramDesc* program : {&main, &t.trainer().startup}) {
    for (const v1::OpDesc& op : program->blocks(0).ops()) {
      if (op.type() != "recv" && op.type() != "concat") continue;
      EXPECT_FALSE(Writes(op, "t") || Writes(op, "t.block0")) << OpText(op);
    }
  }
  EXPECT_EQ(FindVar(t.trainer().startup.blocks(0), "t"), nullptr);
  // Its gradient goes as before: rows, cut by the blocks of the table.
  EXPECT_THAT(OpText(OnlyOp(main, "split_selected_rows")), HasSubstr("height_sections=[10000, 10000]"));
}

// One prefetch for all that comes by rows, tables and matrices alike.
TEST(ChooseFetchTest, TablesAndMatricesShareOnePrefetch) {
  std::string text = Replaced(kJob, "  layer { name: \"input\" concat { input: \"fields\"",
                              "  layer { name: \"far\" embedding { ids: \"cat\" table: \"d\" pooling: SUM } }\n"
                              "  layer { name: \"input\" concat { input: \"far\" input: \"fields\"");
  text = Replaced(text, "optimizer { adam",
                  "table { name: \"d\" width: 2 is_sparse: true is_distributed: true }\noptimizer { adam");
  const Transpiled t = TranspiledOf(JobOf(text));
  EXPECT_THAT(OpText(OnlyOp(t.trainer().main, "prefetch")),
              HasSubstr("row_tables=[\"t\", \"d\"] widths=[4, 2] heights=[20000, -1]"));
}

TEST(ChooseFetchTest, ThePlanTextSaysWhatIsFetched) {
  const Job job = JobOf(kJob, {"table[0].fetch=ROWS"});
  EXPECT_THAT(PlanText(job, TranspiledOf(job).plan()),
              HasSubstr("plan.fetched_rows t: at most 128 of 20000, as the job says\n"));
}

// A matrix that more than look-ups read must be there whole.
TEST(ChooseFetchTest, ThePlanSaysWhatAStepMovesOfTheTable) {
  const auto plan = [](const std::vector<std::string>& overrides) {
    const Job job = JobOf(kJob, overrides);
    return ExplainPlan(job, TranspiledOf(job).trainer().main);
  };
  // out.w [7, 1] and out.b [1] are dense; a row of t is 16 bytes, its id 8.
  EXPECT_THAT(plan({}), HasSubstr("a step of a trainer: 6 messages at least, 32 bytes of dense gradients up per lane "
                                  "subtree, 32 bytes of dense "
                                  "parameters down, 24 bytes up and down per distinct id of t (at most 128 ids)\n"));
  EXPECT_THAT(plan({"table[0].fetch=WHOLE"}), HasSubstr("a step of a trainer: 4 messages at least, 32 bytes of dense "
                                                        "gradients up per lane subtree, 320032 bytes of dense "
                                                        "parameters down, 24 bytes up per distinct id of t\n"));
}

TEST(ChooseFetchTest, AMatrixThatIsReadOtherwiseComesWhole) {
  const std::string single = ProgramText(BuildSingleMachine(JobOf(kJob))->main);
  EXPECT_THAT(single, HasSubstr("is_sparse=true"));
  // A cosine-like term on the table itself: its mean enters no loss, but reads it.
  const std::string reads = Replaced(Replaced(single, "  Out=fields <- lookup_table",
                                              "  Out=t.doubled <- scale(X=t) scale=2.0\n  Out=fields <- lookup_table"),
                                     "  var t dense", "  var t.doubled dense float32 [20000, 4]\n  var t dense");
  const std::string path = ::testing::TempDir() + "/reads.program";
  const auto parsed = ParseProgramText(reads, path);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_TRUE(WriteProgramFile(path, *parsed).ok());
  std::string text(kJob);
  const size_t begin = text.find("model {"), end = text.find("table {");
  text =
      Replaced(text.substr(0, begin) + "program: \"" + path + "\"\n" + text.substr(end), "optimizer { adam {} }\n", "");
  EXPECT_THAT(Fetched({}, text), IsEmpty());
  const auto forced = Transpile(JobOf(text, {"table[0].fetch=ROWS"}));
  EXPECT_THAT(std::string(forced.status().message()),
              HasSubstr("--set table[0].fetch: ROWS: 't' is read by more than look-ups by ids of the data"));
}

}  // namespace
}  // namespace weir
