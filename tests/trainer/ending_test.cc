#include "trainer/loop/ending.h"

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status_message.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Ending Example() {
  v1::Ending ending;
  ending.set_steps(7);
  ending.set_large_gradients(12);
  ending.set_skipped_lines(2);
  ending.set_stopped(true);
  ending.mutable_left_out()->set_examples(30);
  ending.mutable_left_out()->set_more(true);
  ending.mutable_left_out()->set_trained(700);
  ending.add_open_evaluations(4);
  ending.add_open_evaluations(6);
  *ending.mutable_error() = StatusMessage(absl::NotFoundError("no such file:\ndata/eval.tsv\n"));
  return ending;
}

absl::StatusOr<v1::Ending> OfAll(const std::vector<v1::Ending>& endings, int chief = 0) {
  std::vector<std::string> texts;
  for (const v1::Ending& ending : endings) texts.push_back(ending.SerializeAsString());
  return EndingOfAll(texts, chief);
}

TEST(EndingTest, EndingsOfAllTrainersAreAddedUp) {
  v1::Ending first = Example(), second = Example();
  first.set_stopped(false);
  second.set_stopped(false);
  first.mutable_left_out()->set_more(false);
  first.clear_error();
  second.clear_error();
  second.clear_open_evaluations();
  second.add_open_evaluations(8);
  const absl::StatusOr<v1::Ending> all = OfAll({first, second}, /*chief=*/1);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->steps(), 14);
  EXPECT_EQ(all->large_gradients(), 24);
  EXPECT_EQ(all->skipped_lines(), 4);
  EXPECT_FALSE(all->stopped());
  EXPECT_EQ(all->left_out().examples(), 60);
  EXPECT_TRUE(all->left_out().more());
  EXPECT_EQ(all->left_out().trained(), 1400);
  EXPECT_THAT(all->open_evaluations(), ElementsAre(8));
  EXPECT_TRUE(StatusOf(all->error()).ok());
}

TEST(EndingTest, TheFirstErrorNamesItsTrainerAndKeepsItsLines) {
  v1::Ending good = Example();
  *good.mutable_error() = StatusMessage(absl::OkStatus());
  v1::Ending late = Example();
  *late.mutable_error() = StatusMessage(absl::InternalError("later"));
  const absl::StatusOr<v1::Ending> all = OfAll({good, Example(), late});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(StatusOf(all->error()), absl::NotFoundError("trainer 1: no such file:\ndata/eval.tsv\n"));
  EXPECT_TRUE(all->stopped());
}

TEST(EndingTest, ATrainerThatDiedIsPassedOver) {
  const absl::StatusOr<v1::Ending> all = EndingOfAll({"", Example().SerializeAsString()}, /*chief=*/1);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->steps(), 7);
}

TEST(EndingTest, AnInputIsAbsentIfAllTrainersLackItInTheWholeData) {
  v1::Ending first = Example(), second = Example();
  first.mutable_absent()->set_whole(true);
  for (const uint32_t place : {1, 3}) first.mutable_absent()->add_places(place);
  second.mutable_absent()->set_whole(true);
  for (const uint32_t place : {3, 4}) second.mutable_absent()->add_places(place);
  auto all = OfAll({first, second});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->absent().places(), ElementsAre(3));
  EXPECT_TRUE(all->absent().whole());
  // Nobody knows what was in the streams of one that died.
  all = EndingOfAll({first.SerializeAsString(), ""}, 0);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_FALSE(all->absent().whole());
  second.mutable_absent()->clear_places();
  second.mutable_absent()->set_whole(false);
  all = OfAll({first, second, first});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->absent().places(), IsEmpty());
  EXPECT_FALSE(all->absent().whole());
}

TEST(EndingTest, AnUnreadableEndingNamesItsTrainer) {
  EXPECT_THAT(EndingOfAll({Example().SerializeAsString(), "nonsense"}, 0).status().message(), HasSubstr("trainer 1"));
  v1::Ending unsorted = Example();
  for (const uint32_t place : {4, 3}) unsorted.mutable_absent()->add_places(place);
  EXPECT_EQ(OfAll({unsorted}).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace weir
