#include "framework/runtime/view_ops.h"

#include <string>
#include <string_view>
#include <vector>

#include "framework/graph/op_registry.h"
#include "framework/graph/program_text.h"
#include "framework/graph/shared_buffers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// lend can give a view of X, make cannot; once runs for all lanes.
REGISTER_OP(lend)
({.type = "lend",
  .inputs = {{"X"}},
  .outputs = {{"Out"}},
  .attrs = {BoolAttr(std::string(kByReference), false)},
  .in_place = {{"X", "Out"}}});
REGISTER_OP(make)({.type = "make", .inputs = {{"X"}}, .outputs = {{"Out"}}});
REGISTER_OP(once)({.type = "once", .inputs = {{"X"}}, .outputs = {{"Out"}}, .scope = OpScope::kStep});

constexpr char kVars[] = R"(  var data [-1, 4]
  var a [-1, 4]
  var b [-1, 4]
  var c [-1, 4]
  var rows [-1, 4] kind: SELECTED_ROWS
  var w [4] persistable: true
)";

// Returns the ops that may give views; `shared` shares a buffer.
std::vector<int> Views(const std::string& ops, const std::string& shared = "") {
  const auto program =
      ParseProgramText(std::string("weir program\nblock 0 parent -1 {\n") + kVars + ops + "}\n", "x.program");
  EXPECT_TRUE(program.ok()) << program.status();
  return ViewOps(program->blocks(0), [&](std::string_view name) { return name == shared; });
}

constexpr char kMade[] = "  Out=a <- make(X=data)\n  Out=b <- lend(X=a)\n";

TEST(ViewOpsTest, AnOpMayLendWhatOneOpBeforeItHasMade) { EXPECT_THAT(Views(kMade), ElementsAre(1)); }

TEST(ViewOpsTest, OnlyOpsThatCanGiveViewsDo) {
  EXPECT_TRUE(HasViews(MakeOp("lend", {}, {})));
  EXPECT_FALSE(HasViews(MakeOp("make", {}, {})));
  EXPECT_FALSE(HasViews(MakeOp("unknown", {}, {})));
  EXPECT_THAT(Views("  Out=a <- make(X=data)\n  Out=b <- make(X=a)\n"), IsEmpty());
}

TEST(ViewOpsTest, DataAndParametersAreCopied) {
  EXPECT_THAT(Views("  Out=b <- lend(X=data)\n"), IsEmpty());
  EXPECT_THAT(Views("  Out=w <- make(X=data)\n  Out=b <- lend(X=w)\n"), IsEmpty());
  EXPECT_THAT(Views("  Out=a <- make(X=data)\n  Out=w <- lend(X=a)\n"), IsEmpty());
  EXPECT_THAT(Views("  Out=rows <- make(X=data)\n  Out=b <- lend(X=rows)\n"), IsEmpty());
}

TEST(ViewOpsTest, WhatIsWrittenTwiceIsCopied) {
  EXPECT_THAT(Views(std::string(kMade) + "  Out=a <- make(X=data)\n"), IsEmpty());
  EXPECT_THAT(Views(std::string(kMade) + "  Out=b <- make(X=data)\n"), IsEmpty());
}

TEST(ViewOpsTest, WhatSharesABufferIsCopied) {
  EXPECT_THAT(Views(kMade, "a"), IsEmpty());
  EXPECT_THAT(Views(kMade, "b"), IsEmpty());
}

TEST(ViewOpsTest, WhatIsMadeOnceForAllLanesIsCopied) {
  EXPECT_THAT(Views("  Out=a <- once(X=data)\n  Out=b <- lend(X=a)\n"), IsEmpty());
  EXPECT_THAT(Views("  Out=a <- make(X=data) @DIST\n  Out=b <- lend(X=a)\n"), IsEmpty());
}

TEST(ViewOpsTest, WhatIsMadeLaterIsCopied) {
  EXPECT_THAT(Views("  Out=b <- lend(X=a)\n  Out=a <- make(X=data)\n"), IsEmpty());
  EXPECT_THAT(Views("  Out=a <- lend(X=a)\n"), IsEmpty());
}

TEST(ViewOpsTest, AViewMayBeLentOn) {
  EXPECT_THAT(Views("  Out=a <- make(X=data)\n  Out=b <- lend(X=a)\n  Out=c <- lend(X=b)\n"), ElementsAre(1, 2));
}

}  // namespace
}  // namespace weir
