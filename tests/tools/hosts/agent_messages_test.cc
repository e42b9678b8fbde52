#include "tools/hosts/agent_messages.h"

#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Decode(const std::string& line) {
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
  return *DecodeMessage(std::string_view(line).substr(0, line.size() - 1));
}

TEST(AgentMessagesTest, FieldsHoldAnyBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::string> fields;
    for (unsigned n = random() % 5 + 1; n > 0; --n) {
      std::string field;
      for (unsigned size = random() % 20; size > 0; --size) field.push_back(static_cast<char>(random() % 256));
      fields.push_back(field);
    }
    ASSERT_EQ(Decode(EncodeMessage(fields)), fields);
  }
}

TEST(AgentMessagesTest, TextStaysReadable) { EXPECT_EQ(EncodeMessage({"out", "1", "größer"}), "out\t1\tgrößer\n"); }

TEST(AgentMessagesTest, AHelloDescribesTheMachine) {
  for (const std::optional<std::string>& gpus :
       {std::optional<std::string>(), std::optional<std::string>(""), std::optional<std::string>("2,3")}) {
    const AgentHello hello = {.host = "ps-1",
                              .machine = {.usable_cores = 3, .numa_nodes = {{0, 2, 1}, {7}}, .visible_gpus = gpus}};
    const auto parsed = ParseHello(Decode(EncodeHello(hello)));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->host, "ps-1");
    EXPECT_EQ(parsed->machine.usable_cores, 3);
    EXPECT_EQ(parsed->machine.numa_nodes, hello.machine.numa_nodes);
    EXPECT_EQ(parsed->machine.visible_gpus, gpus);
  }
}

TEST(AgentMessagesTest, OfAnotherVersionOnlyTheVersionIsRead) {
  EXPECT_EQ(ParseHello({"hello", "77", "and", "more"})->version, 77);
}

TEST(AgentMessagesTest, ASetupArrivesAsItWas) {
  const auto parsed =
      ParseSetup(Decode(EncodeSetup({.directory = "/a b", .silence = absl::Milliseconds(1500), .ports = 3})));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->version, kAgentVersion);
  EXPECT_EQ(parsed->directory, "/a b");
  EXPECT_EQ(parsed->silence, absl::Milliseconds(1500));
  EXPECT_EQ(parsed->ports, 3);
}

TEST(AgentMessagesTest, AStartArrivesAsItWas) {
  const AgentStart start = {.index = 4,
                            .cpus = {0, 1, 5},
                            .command = {"/bin/trainer", "--set=name=\"a\tb\"", ""},
                            .environment = {{"A", "x=y\n'z'"}, {"B", ""}, {"C", std::nullopt}}};
  const auto parsed = ParseStart(Decode(EncodeStart(start)));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->index, 4);
  EXPECT_THAT(parsed->cpus, ElementsAre(0, 1, 5));
  EXPECT_EQ(parsed->command, start.command);
  EXPECT_EQ(parsed->environment, start.environment);
}

TEST(AgentMessagesTest, WhatIsNoMessageIsRefused) {
  EXPECT_THAT(std::string(DecodeMessage("out\t1\t\\q").status().message()), HasSubstr("is no message between launch"));
  EXPECT_FALSE(ParseHello({"hello"}).ok());
  // What follows the version is looked at only if it is ours.
  const std::string version = absl::StrCat(kAgentVersion);
  EXPECT_FALSE(ParseHello({"hello", version, "h", "2"}).ok());
  EXPECT_FALSE(ParseHello({"hello", version, "h", "0", "0", ""}).ok());
  EXPECT_FALSE(ParseHello({"hello", version, "h", "2", "", ""}).ok());
  EXPECT_FALSE(ParseHello({"hello", version, "h", "2", "0,x", ""}).ok());
  EXPECT_FALSE(ParseSetup({"setup", "1", "/", "soon", "0"}).ok());
  EXPECT_FALSE(ParseStart({"start", "0", "", "0", "x"}).ok());
  EXPECT_FALSE(ParseStart({"start", "0", "", "2", "x"}).ok());
  EXPECT_FALSE(ParseStart({"start", "0", "", "-1", "x"}).ok());
  EXPECT_FALSE(ParseStart({"start", "0", "0-", "1", "x"}).ok());
  EXPECT_FALSE(ParseStart({"stop", "0", "", "1", "x"}).ok());
  EXPECT_FALSE(NumberIn({"end"}, 1).ok());
}

}  // namespace
}  // namespace weir
