#include "pserver/cluster/init_method.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

std::string Parse(const std::string& text, Variables variables = {}, bool agent = false) {
  const Environment environment = [variables =
                                       std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  const absl::StatusOr<InitMethod> method = ParseInitMethod(text, environment, agent);
  if (method.ok()) return method->ToString() + " by " + method->source;
  EXPECT_EQ(method.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(method.status().message());
}

TEST(InitMethodTest, EachFormIsRead) {
  EXPECT_EQ(Parse("tcp://10.0.0.1:6170"), "tcp://10.0.0.1:6170 by --init_method=tcp://10.0.0.1:6170");
  EXPECT_EQ(Parse("tcp://[::1]:6170"), "tcp://[::1]:6170 by --init_method=tcp://[::1]:6170");
  EXPECT_EQ(Parse("tcp://node-0.cluster:1"), "tcp://node-0.cluster:1 by --init_method=tcp://node-0.cluster:1");
  EXPECT_EQ(Parse("file:///shared/meet/"), "file:///shared/meet by --init_method=file:///shared/meet/");
  EXPECT_EQ(Parse("env://", {{"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "29500"}}),
            "tcp://node-0:29500 by MASTER_ADDR=node-0 and MASTER_PORT=29500");
  EXPECT_EQ(Parse("env://", {{"MASTER_ADDR", "fd00::2"}, {"MASTER_PORT", "29500"}}),
            "tcp://[fd00::2]:29500 by MASTER_ADDR=fd00::2 and MASTER_PORT=29500");
}

TEST(InitMethodTest, TheAgentsPortIsLeftToIt) {
  EXPECT_EQ(Parse("env://", {{"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "29500"}}, /*agent=*/true),
            "tcp://node-0:29501 to 29516 by MASTER_ADDR=node-0 and MASTER_PORT=29500");
  EXPECT_EQ(Parse("env://", {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "65519"}}, /*agent=*/true),
            "tcp://a:65520 to 65535 by MASTER_ADDR=a and MASTER_PORT=65519");
  EXPECT_THAT(Parse("env://", {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "65520"}}, /*agent=*/true),
              HasSubstr("choose a --master-port below 65520"));
  // An address that the user names is free.
  EXPECT_EQ(Parse("tcp://a:29500", {}, /*agent=*/true), "tcp://a:29500 by --init_method=tcp://a:29500");
}

TEST(InitMethodTest, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"udp://a:1", "--init_method=udp://a:1: must be env://, tcp://HOST:PORT or file:///PATH"},
      {"a:1", "must be env://, tcp://HOST:PORT or file:///PATH"},
      {"env://x", "must be env://"},
      {"tcp://a", "--init_method=tcp://a: 'a' has no port"},
      {"tcp://a:0", "port 0, where nobody can find trainer 0"},
      {"tcp://0.0.0.0:1", "0.0.0.0 is no address to which others can connect"},
      {"tcp://[::]:1", "no address to which others can connect"},
      {"file://meet", "the path must be absolute"},
      {"file:///", "the path must be absolute, file:///PATH, a directory"},
      {"env://",
       "needs the variables MASTER_ADDR and MASTER_PORT: the host of trainer 0 and a free port there; "
       "MASTER_ADDR is not set"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(Parse(text), HasSubstr(message)) << text;
  EXPECT_THAT(Parse("env://", {{"MASTER_ADDR", "a"}}), HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(Parse("env://", {{"MASTER_ADDR", "http://a"}, {"MASTER_PORT", "1"}}), HasSubstr("MASTER_ADDR is a URL"));
  EXPECT_THAT(Parse("env://", {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "tcp://b:1"}}),
              HasSubstr("'a:tcp://b:1' has a URL where the port belongs"));
  EXPECT_THAT(Parse("env://", {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "x"}}),
              HasSubstr("MASTER_ADDR=a and MASTER_PORT=x: 'a:x': the port must be a number"));
}

}  // namespace
}  // namespace weir
