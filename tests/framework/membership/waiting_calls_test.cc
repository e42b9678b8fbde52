#include "framework/membership/waiting_calls.h"

#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Call {
  int trainer = 0;
  absl::Time deadline;
  std::unique_ptr<std::string> name;
};

class WaitingCallsTest : public ::testing::Test {
 protected:
  void Add(int trainer, const std::string& name) {
    calls_.Add({.trainer = trainer, .name = std::make_unique<std::string>(name)});
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    calls_.ForEach([&](const Call& call) { names.push_back(*call.name); });
    return names;
  }

  WaitingCalls<Call> calls_;
};

TEST_F(WaitingCallsTest, CallsThatAreTakenGoInOrderAndTheOthersStay) {
  Add(1, "a");
  Add(0, "b");
  Add(1, "c");
  std::vector<std::string> taken;
  calls_.RemoveIf([&](Call& call) {
    if (call.trainer != 1) return false;
    taken.push_back(*std::move(call.name));
    return true;
  });
  EXPECT_THAT(taken, ElementsAre("a", "c"));
  EXPECT_THAT(Names(), ElementsAre("b"));
}

TEST_F(WaitingCallsTest, CallsAreCountedByTrainer) {
  Add(1, "a");
  Add(0, "b");
  Add(1, "c");
  EXPECT_EQ(calls_.CountOf(0), 1);
  EXPECT_EQ(calls_.CountOf(1), 2);
  EXPECT_EQ(calls_.CountOf(2), 0);
}

TEST_F(WaitingCallsTest, TakeAllLeavesNone) {
  Add(0, "a");
  Add(1, "b");
  const std::list<Call> all = calls_.TakeAll();
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(*all.front().name, "a");
  EXPECT_THAT(Names(), IsEmpty());
}

TEST(ActionsTest, RunOnceAndInOrder) {
  std::string ran;
  Actions actions = {[&] { ran += "a"; }, [&] { ran += "b"; }};
  RunAll(&actions);
  EXPECT_EQ(ran, "ab");
  RunAll(&actions);
  EXPECT_EQ(ran, "ab");
}

}  // namespace
}  // namespace weir
