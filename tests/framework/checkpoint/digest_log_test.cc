#include "framework/checkpoint/digest_log.h"

#include "absl/strings/str_join.h"
#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

VariableDigestSum Sum(uint64_t values, uint64_t state) {
  VariableDigestSum sum;
  sum.values = sum.ranges[63] = values;
  sum.state = state;
  return sum;
}

class DigestLogTest : public testing::Test {
 protected:
  std::string File(const std::string& name, const std::vector<std::string>& lines) const {
    const std::string path = absl::StrCat(dir_, "/", name);
    EXPECT_TRUE(WriteFileAtomically(path, absl::StrCat(absl::StrJoin(lines, "\n"), "\n")).ok());
    return path;
  }
  std::string Difference(const std::vector<std::string>& a, const std::vector<std::string>& b) const {
    const auto compared = CompareDigestLogs(File("a", a), File("b", b));
    EXPECT_TRUE(compared.ok()) << compared.status();
    return compared.ok() && !compared->equal ? compared->text : "";
  }

  const std::string dir_ = FreshDir("digest_logs");
};

TEST_F(DigestLogTest, EqualLogsSayHowFarTheyWereCompared) {
  const std::vector<std::string> lines = {DigestLogLine(50, "w", Sum(1, 2)), DigestLogLine(100, "w", Sum(3, 4))};
  const auto compared = CompareDigestLogs(File("a", lines), File("b", lines));
  ASSERT_OK(compared.status());
  EXPECT_TRUE(compared->equal);
  EXPECT_THAT(compared->text, HasSubstr("equal at 2 steps, 50 to 100"));
}

TEST_F(DigestLogTest, AVariableOfOneLogIsNamedWithThatLog) {
  const std::vector<std::string> w = {DigestLogLine(50, "w", Sum(1, 2))};
  const std::vector<std::string> both = {w[0], DigestLogLine(50, "b", Sum(1, 2))};
  EXPECT_THAT(Difference(both, w), HasSubstr("b: only in the first"));
  EXPECT_THAT(Difference(w, both), HasSubstr("b: only in the second"));
}

TEST_F(DigestLogTest, TheFirstStepThatDiffersIsNamedWithWhatDiffers) {
  const std::vector<std::string> a = {DigestLogLine(50, "w", Sum(1, 2)),
                                      DigestLogLine(100, "w", Sum(3, 4), {.elements = 64}),
                                      DigestLogLine(150, "w", Sum(5, 6), {.elements = 64})};
  const std::vector<std::string> b = {a[0], DigestLogLine(100, "w", Sum(7, 4), {.elements = 64}),
                                      DigestLogLine(150, "w", Sum(5, 7), {.elements = 64})};
  const std::string text = Difference(a, b);
  EXPECT_THAT(text, HasSubstr("first difference at step 100 (equal until step 50):"));
  EXPECT_THAT(text, HasSubstr("w: values differ in ranges 63 of 64 (element 63)"));
  EXPECT_THAT(text, testing::Not(HasSubstr("state differs")));
  EXPECT_THAT(Difference({a[2]}, {b[2]}), HasSubstr("w: state differs"));
}

TEST_F(DigestLogTest, ALineSaysHowLargeTheVariableIs) {
  EXPECT_THAT(DigestLogLine(50, "w", Sum(1, 2), {.elements = 1, .row = 1}), HasSubstr("variable=w elements=1 row=1 "));
  EXPECT_THAT(DigestLogLine(50, "t", Sum(1, 2), {.shards = 1}), HasSubstr("variable=t shards=1 "));
  EXPECT_THAT(DigestLogLine(50, "w", Sum(1, 2)), HasSubstr("variable=w values="));
}

TEST_F(DigestLogTest, WhatCannotBeReadIsNamedWithItsLine) {
  const std::string good = DigestLogLine(50, "w", Sum(1, 2));
  const absl::Status status = CompareDigestLogs(File("a", {good}), File("b", {good, "step=x"})).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/b:2: expected step="));
}

}  // namespace
}  // namespace weir
