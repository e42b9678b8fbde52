// Wrong derived variables and row rules of a job, each with its place and its whole message.
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

struct Wrong {
  const char* name;
  // Line 6 of the job, in its data.
  const char* line;
  const char* message;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

std::string With(const std::string& line) {
  return Replaced(kDeepFm, "batch_size: 64\n", absl::StrCat("batch_size: 64\n", line, "\n"));
}

class WrongColumnsTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongColumnsTest, GetsThisMessage) {
  EXPECT_EQ(std::string(ParseJob(With(GetParam().line), "job.textproto", {}).status().message()), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Columns, WrongColumnsTest,
    ::testing::Values(
        Wrong{"NoSuchInput", "derived { name: \"x\" hash { of: \"C31\" } }",
              "job.textproto:6:28: data.derived[0].hash.of 'C31' is no variable of one column, and no slot, of the "
              "data; there are label, dense[0], dense[1], dense[2], dense[3], dense[4], dense[5], C1, C2, C3, C4, C5, "
              "and 25 more"},
        Wrong{"CrossOfAFloat", "derived { name: \"x\" cross { of: \"C1\" of: \"dense[2]\" } }",
              "job.textproto:6:38: data.derived[0].cross.of[1] 'dense[2]' is a float, not ids; make ids of it first, "
              "with bucketize"},
        Wrong{"NameOfAVariable", "derived { name: \"cat\" hash { of: \"C1\" } }",
              "job.textproto:6:11: data.derived[0].name 'cat' is a variable of the data already"},
        Wrong{"NoKind", "derived { name: \"x\" }",
              "job.textproto:6:1: data.derived[0] needs one of cross, hash, bucketize, time, negatives, vocabulary, "
              "frequency"},
        Wrong{"RuleWithoutAnInput", "eval { files: \"e\" where { value: \"7\" } }",
              "job.textproto:6:19: data.eval.where[0].of '' is no variable of one column, and no slot, of the data; "
              "there are label, dense[0], dense[1], dense[2], dense[3], dense[4], dense[5], C1, C2, C3, C4, C5, and 25 "
              "more"},
        Wrong{"RemainderTooLarge", "eval { files: \"e\" where { of: \"C1\" modulo: 10 remainder: 10 } }",
              "job.textproto:6:47: data.eval.where[0].remainder[0] must be from 0 to 9, got 10"}),
    [](const ::testing::TestParamInfo<Wrong>& info) { return std::string(info.param.name); });

TEST(ColumnsTest, ADerivedVariableIsOneOfTheData) {
  const std::string job =
      Replaced(With("derived { name: \"x\" cross { of: \"C1\" of: \"C2\" } }"),
               "embedding { ids: \"cat\" table: \"weights\"", "embedding { ids: \"cat\" ids: \"x\" table: \"weights\"");
  const auto parsed = ParseJob(job, "job.textproto", {});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(Transpile(*parsed).ok());
}

}  // namespace
}  // namespace weir
