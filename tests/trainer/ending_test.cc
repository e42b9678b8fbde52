#include "trainer/loop/ending.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Ending Example() {
  return {.steps = 7,
          .skipped_lines = 2,
          .stopped = true,
          .left_out = {.examples = 30, .more = true, .trained = 700},
          .open_evaluations = "4,6",
          .error = absl::NotFoundError("no such file:\ndata/eval.tsv\n")};
}

TEST(LeftOutTest, ParseReadsWhatSerializeWrote) {
  const std::optional<LeftOut> read = LeftOut::Parse(Example().left_out.Serialize());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->examples, 30);
  EXPECT_TRUE(read->more);
  EXPECT_EQ(read->trained, 700);
}

TEST(LeftOutTest, TextWithoutThreeNumbersIsRefused) {
  for (const char* text : {"", "30", "30,1", "30,1,700,5", "many,1,700", "30,1,"})
    EXPECT_FALSE(LeftOut::Parse(text).has_value()) << text;
}

TEST(EndingTest, ParseReadsWhatSerializeWroteWithTheLinesOfTheError) {
  const std::optional<Ending> read = Ending::Parse(Example().Serialize());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->steps, 7);
  EXPECT_EQ(read->skipped_lines, 2);
  EXPECT_TRUE(read->stopped);
  EXPECT_EQ(read->left_out.trained, 700);
  EXPECT_EQ(read->open_evaluations, "4,6");
  EXPECT_EQ(read->error, Example().error);
}

TEST(EndingTest, LargeGradientsAreWrittenIfThereAreAny) {
  Ending ending = Example();
  EXPECT_EQ(ending.Serialize().substr(0, 4), "7\n2\n");
  ending.large_gradients = 12;
  const std::optional<Ending> read = Ending::Parse(ending.Serialize());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->steps, 7);
  EXPECT_EQ(read->large_gradients, 12);
  const absl::StatusOr<Ending> all = Ending::OfAll({ending.Serialize(), "", ending.Serialize()}, /*chief=*/0);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->large_gradients, 24);
  EXPECT_FALSE(Ending::Parse("7 many" + Example().Serialize().substr(1)).has_value());
}

TEST(EndingTest, TextThatIsCutOrHasOtherThanNumbersIsRefused) {
  const std::string text = Example().Serialize();
  EXPECT_FALSE(Ending::Parse("").has_value());
  EXPECT_FALSE(Ending::Parse("7\n2\n1\n30,1,700\n4,6\n5").has_value());
  EXPECT_FALSE(Ending::Parse("x" + text).has_value());
  EXPECT_FALSE(Ending::Parse("7\n2\n1\n30,1\n\n0\n").has_value());
}

TEST(EndingTest, EndingsOfAllTrainersAreAddedUp) {
  Ending first = Example(), second = Example();
  first.stopped = second.stopped = false;
  first.left_out.more = false;
  first.error = second.error = absl::OkStatus();
  second.open_evaluations = "8";
  const absl::StatusOr<Ending> all = Ending::OfAll({first.Serialize(), second.Serialize()}, /*chief=*/1);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->steps, 14);
  EXPECT_EQ(all->skipped_lines, 4);
  EXPECT_FALSE(all->stopped);
  EXPECT_EQ(all->left_out.examples, 60);
  EXPECT_TRUE(all->left_out.more);
  EXPECT_EQ(all->left_out.trained, 1400);
  EXPECT_EQ(all->open_evaluations, "8");
  EXPECT_TRUE(all->error.ok());
}

TEST(EndingTest, TheFirstErrorNamesItsTrainer) {
  Ending good = Example();
  good.error = absl::OkStatus();
  Ending late = Example();
  late.error = absl::InternalError("later");
  const absl::StatusOr<Ending> all =
      Ending::OfAll({good.Serialize(), Example().Serialize(), late.Serialize()}, /*chief=*/0);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->error, absl::NotFoundError("trainer 1: no such file:\ndata/eval.tsv\n"));
}

TEST(EndingTest, ATrainerThatDiedIsPassedOver) {
  const absl::StatusOr<Ending> all = Ending::OfAll({"", Example().Serialize()}, /*chief=*/1);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->steps, 7);
}

TEST(EndingTest, AnInputIsAbsentIfAllTrainersLackItInTheWholeData) {
  Ending first = Example(), second = Example();
  first.absent = {.whole = true, .places = {1, 3}};
  second.absent = {.whole = true, .places = {3, 4}};
  auto all = Ending::OfAll({first.Serialize(), second.Serialize()}, 0);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->absent.places, ElementsAre(3));
  EXPECT_TRUE(all->absent.whole);
  EXPECT_TRUE(all->stopped);
  // Nobody knows what was in the streams of one that died.
  all = Ending::OfAll({first.Serialize(), ""}, 0);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_FALSE(all->absent.whole);
  second.absent.places.clear();
  all = Ending::OfAll({first.Serialize(), second.Serialize()}, 0);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->absent.places, ElementsAre());
}

TEST(EndingTest, AnUnreadableEndingNamesItsTrainer) {
  EXPECT_THAT(Ending::OfAll({Example().Serialize(), "nonsense"}, 0).status().message(), HasSubstr("trainer 1"));
}

}  // namespace
}  // namespace weir
