#include "tools/launching/blame.h"

#include <sys/wait.h>

#include <string>

#include "framework/base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// A process that has ended.
class Ended : public Process {
 public:
  Ended(std::string name, Ending ending) : Process(std::move(name), "") { SetEnding(std::move(ending)); }
  void Signal(int) override {}
  Launcher::Member member() { return {.server = false, .id = 0, .process = this}; }
};

Ending Exit(int code) { return Ending(W_EXITCODE(code, 0)); }

TEST(BlameTest, TheFirstThatFailsIsBlamed) {
  Ended first("trainer.1", Exit(7)), second("trainer.0", Exit(8));
  Blame blame;
  EXPECT_TRUE(blame.Take(first.member(), /*passes=*/false));
  EXPECT_FALSE(blame.Take(second.member(), /*passes=*/false));
  EXPECT_EQ(blame.code(), 7);
  EXPECT_EQ(blame.why(), "trainer.1 failed: exit code 7");
}

TEST(BlameTest, OneThatHasLostAPeerPassesTheBlameOnToOneThatHasNot) {
  Ended messenger("trainer.0", Exit(kExitPeerLost)), another("trainer.1", Exit(kExitPeerLost));
  Ended cause("pserver.0", Exit(1)), late("trainer.2", Exit(9));
  Blame blame;
  EXPECT_TRUE(blame.Take(messenger.member(), /*passes=*/false));
  EXPECT_FALSE(blame.Take(another.member(), /*passes=*/true));
  EXPECT_TRUE(blame.Take(cause.member(), /*passes=*/true));
  EXPECT_FALSE(blame.Take(late.member(), /*passes=*/false));
  EXPECT_EQ(blame.why(), "pserver.0 failed: exit code 1");
}

TEST(BlameTest, AFrozenProcessIsTheCauseUnlessAnotherIsKnown) {
  Ended messenger("trainer.0", Exit(kExitPeerLost));
  Blame lost;
  ASSERT_TRUE(lost.Take(messenger.member(), /*passes=*/false));
  lost.TakeFrozen("trainer.1 was stopped");
  EXPECT_EQ(lost.why(), "trainer.1 was stopped");
  Ended cause("trainer.0", Exit(1));
  Blame known;
  ASSERT_TRUE(known.Take(cause.member(), /*passes=*/false));
  known.TakeFrozen("trainer.1 was stopped");
  EXPECT_EQ(known.why(), "trainer.0 failed: exit code 1");
}

TEST(BlameTest, AfterAFailureOfLaunchItselfNoProcessIsBlamed) {
  Ended process("trainer.0", Exit(1));
  Blame blame;
  EXPECT_EQ(blame.code(), kExitOk);
  blame.Fail(absl::InvalidArgumentError("no such host"));
  blame.Fail(absl::InternalError("later"));
  EXPECT_FALSE(blame.Take(process.member(), /*passes=*/false));
  EXPECT_EQ(blame.code(), kExitBadInput);
  EXPECT_EQ(blame.why(), "no such host");
}

TEST(BlameTest, AKilledProcessIsNamedWithItsSignal) {
  Ended killed("trainer.0 on ps-1", Ending(9));
  Blame blame;
  ASSERT_TRUE(blame.Take(killed.member(), /*passes=*/false));
  EXPECT_EQ(blame.code(), 128 + 9);
  EXPECT_THAT(blame.why(), HasSubstr("killed by signal 9"));
}

}  // namespace
}  // namespace weir
