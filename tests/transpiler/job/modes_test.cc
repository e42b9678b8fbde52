#include "transpiler/job/modes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "transpiler/job/check_modes.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Distribute Settings(const std::string& text) {
  v1::Distribute distribute;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &distribute)) << text;
  return distribute;
}

std::vector<std::string> Chosen(const std::string& text) {
  std::vector<std::string> settings;
  for (const JobMode* mode : ModesOf(Settings(text))) settings.emplace_back(mode->setting);
  return settings;
}

std::string Written(const std::string& text, JobMode::Write JobMode::*where) {
  v1::ProgramDesc program;
  WriteModes(Settings(text), where, {.blocks = {1, 2}, .lr_block = 3}, &program);
  return program.mode().ShortDebugString();
}

TEST(ModesTest, SettingsChooseModes) {
  EXPECT_THAT(Chosen("servers: 2"), IsEmpty());
  EXPECT_THAT(Chosen("servers: 0 dense: ALL_REDUCE local_sgd {}"), ElementsAre("servers", "dense", "local_sgd"));
  EXPECT_THAT(Chosen("servers: 2 sync: false geo {}"), ElementsAre("geo"));
  EXPECT_THAT(Chosen("servers: 2 sync: false async_apply: EAGER half_async {}"),
              ElementsAre("async_apply", "half_async"));
  EXPECT_THAT(Chosen("servers: 2 async_apply: EAGER"), IsEmpty()) << "sync says nothing of parts";
}

TEST(ModesTest, EachProgramSaysItsOwnPart) {
  const std::string bounded = "servers: 2 sync: false bounded_staleness { steps: 4 }";
  for (const auto where : {&JobMode::in_trainer, &JobMode::in_startup, &JobMode::in_server}) {
    EXPECT_EQ(Written(bounded, where), "staleness: 4");
    EXPECT_EQ(Written("servers: 2", where), "");
  }
  const std::string geo = "servers: 2 sync: false geo { every_steps: 7 }";
  EXPECT_EQ(Written(geo, &JobMode::in_trainer), "geo { every_steps: 7 blocks: 1 blocks: 2 lr_block: 3 }");
  EXPECT_EQ(Written(geo, &JobMode::in_server), "");
  EXPECT_EQ(Written("servers: 2 async_tables: true", &JobMode::in_server), "async_tables: true");
  EXPECT_EQ(Written("servers: 2 async_tables: true", &JobMode::in_trainer), "");
}

TEST(ModesTest, AProgramWithoutAModeKeepsItsFormat) {
  v1::ProgramDesc program;
  WriteModes(Settings("servers: 2"), &JobMode::in_trainer, OwnUpdates(), &program);
  EXPECT_FALSE(program.has_mode());
  EXPECT_FALSE(program.has_format_version());
}

TEST(ModesTest, ServersOfAJobWithoutServersAreInsideTrainers) {
  v1::Plan plan;
  EXPECT_EQ(TrainerAround(plan, 1), -1);
  plan.set_servers_in_trainers(true);
  EXPECT_EQ(TrainerAround(plan, 1), 1);
}

TEST(MergeHostsTest, AutoIsOffWhereNothingOfAHostCanBeAdded) {
  const auto merges = [](const std::string& text) { return MergeHostsOf(Settings(text)); };
  EXPECT_EQ(merges("servers: 2"), v1::Plan::AUTO);
  EXPECT_EQ(merges("servers: 2 merge_hosts: true"), v1::Plan::ON);
  EXPECT_EQ(merges("servers: 2 merge_hosts: false"), v1::Plan::OFF);
  // Rows of tables go to the servers.
  EXPECT_EQ(merges("servers: 2 dense: ALL_REDUCE"), v1::Plan::AUTO);
  // Gradients go among trainers; rows that these hold are not merged.
  EXPECT_EQ(merges("servers: 0 dense: ALL_REDUCE"), v1::Plan::AUTO);
  EXPECT_EQ(MergeTowardsServersOf(Settings("servers: 0 dense: ALL_REDUCE")), v1::Plan::OFF);
  EXPECT_EQ(MergeTowardsServersOf(Settings("servers: 2 dense: ALL_REDUCE")), v1::Plan::AUTO);
  for (const char* without : {"sync: false", "sync: false half_async {}", "sync: false bounded_staleness {}",
                              "sync: false geo {}", "async_tables: true", "average: BY_TRAINERS", "servers: 0"}) {
    EXPECT_EQ(merges(without), v1::Plan::OFF) << without;
    EXPECT_EQ(merges(absl::StrCat(without, " merge_hosts: AUTO")), v1::Plan::OFF) << without;
  }
}

TEST(ModesTest, AResumeMayHaveOtherTrainers) {
  v1::JobConfig config;
  config.mutable_train()->set_lanes(8);
  EXPECT_EQ(WhyTrainersAreFixed(config), nullptr);
  config.mutable_checkpoint()->set_per_host(true);
  EXPECT_THAT(WhyTrainersAreFixed(config), HasSubstr("every host"));
  config.clear_checkpoint();
  config.mutable_train()->set_lanes(0);
  EXPECT_THAT(WhyTrainersAreFixed(config), HasSubstr("train.lanes: 0"));
}

}  // namespace
}  // namespace weir
