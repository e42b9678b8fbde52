#include "trainer/checkpoints/beginning.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BeginningTest, CarriesEverythingOfTheCheckpointButTheFileOfResiduals) {
  Beginning said = {.resumed = true};
  said.point.step = 12;
  said.point.trainer_steps = {12, 0, 9};
  said.point.statistics = std::string("\0\xff statistics", 13);
  said.point.residuals = "/ckpt/step-000000000012/residuals";
  said.point.loss_scale.emplace().set_scale(1024);
  said.point.loss_scale->set_good_steps(3);
  said.point.first_step_examples = 256;
  said.point.stream_scheme = 3;

  const absl::StatusOr<Beginning> heard = Beginning::Parse(said.Serialize());
  ASSERT_TRUE(heard.ok()) << heard.status();
  EXPECT_TRUE(heard->resumed);
  EXPECT_EQ(heard->point.step, 12);
  EXPECT_THAT(heard->point.trainer_steps, ElementsAre(12, 0, 9));
  EXPECT_EQ(heard->point.statistics, said.point.statistics);
  EXPECT_EQ(heard->point.residuals, "");
  ASSERT_TRUE(heard->point.loss_scale.has_value());
  EXPECT_EQ(heard->point.loss_scale->scale(), 1024);
  EXPECT_EQ(heard->point.loss_scale->good_steps(), 3);
  EXPECT_EQ(heard->point.first_step_examples, 256);
  EXPECT_EQ(heard->point.stream_scheme, 3);
}

TEST(BeginningTest, AFreshRunIsToldFromACheckpointOfStep0) {
  const absl::StatusOr<Beginning> fresh = Beginning::Parse(Beginning().Serialize());
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_FALSE(fresh->resumed);
  EXPECT_EQ(fresh->point.step, 0);
  EXPECT_THAT(fresh->point.trainer_steps, IsEmpty());
  EXPECT_FALSE(fresh->point.loss_scale.has_value());

  const absl::StatusOr<Beginning> of_step_0 = Beginning::Parse(Beginning{.resumed = true}.Serialize());
  ASSERT_TRUE(of_step_0.ok()) << of_step_0.status();
  EXPECT_TRUE(of_step_0->resumed);
}

TEST(BeginningTest, BytesThatAreNoMessageAreRefused) {
  EXPECT_EQ(Beginning::Parse("\xff\xff\xff").status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace weir
