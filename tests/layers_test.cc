// Holds every #include of the tree against the order of the rooms:
//
//   trainer > pserver > {ops, transpiler} > framework (checkpoint, wire, device > runtime > graph > tensor > base;
//   formats > base; membership > base, watch > net > base, runtime > profile > base, collective > runtime;
//   process > base) > proto
//
// and within pserver
//
//   {inside, network} > server > consistency > params > {protocol, tables}, network > sockets > cluster,
//   channels > {client > member > protocol, replica > params}, collective > protocol, rendezvous > cluster,
//   host > {client, network};
//   {channels, replica, collective} > framework/collective
//
// and within trainer
//
//   {loop, predict} > checkpoints > {follow, progress} > session > metrics > data > statistics > files,
//   verify > session
//
// and within transpiler
//
//   explain > split > passes > {layers, losses} > model > job > {clips, optimizers, schedules} > base
//   passes > {dispatchers, verify} > base,  metrics > job,  explain > framework/collective
//
// A file includes its own room and those further down; so do the dependencies of a library in its BUILD file. Of
// pserver, trainer sees only `client`, `collective`, `channels`, `replica` and `inside`. Main files (*_main.cc), tests,
// tools and examples include what they like and are included by nobody. What a .cu file sees, through our headers too,
// has no Abseil, no glog and no protobuf in it: they cost nvcc four fifths of its time.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

// A path from the root of the tree, to what the file includes.
using Tree = std::map<std::string, std::vector<std::string>>;

const std::map<std::string, std::set<std::string>>& RoomsBelow() {
  static const auto* const below = [] {
    auto* rooms = new std::map<std::string, std::set<std::string>>();
    (*rooms)["proto"] = {};
    (*rooms)["framework/base"] = {"proto"};
    const auto add = [rooms](const std::string& room, const std::vector<std::string>& under) {
      for (const std::string& each : under) {
        (*rooms)[room].insert(each);
        (*rooms)[room].insert(rooms->at(each).begin(), rooms->at(each).end());
      }
    };
    add("framework/process", {"framework/base"});
    add("framework/membership", {"framework/base"});
    add("framework/net", {"framework/base"});
    add("framework/watch", {"framework/net"});
    add("framework/formats", {"framework/base"});
    add("framework/tensor", {"framework/base"});
    add("framework/graph", {"framework/tensor"});
    add("framework/profile", {"framework/base"});
    add("framework/runtime", {"framework/graph", "framework/profile"});
    add("framework/wire", {"framework/graph"});
    add("framework/checkpoint", {"framework/graph"});
    add("framework/device", {"framework/runtime"});
    const std::vector<std::string> framework = {"framework/device", "framework/wire", "framework/checkpoint",
                                                "framework/process"};
    add("framework/collective", {"framework/runtime"});
    add("ops", framework);
    add("transpiler/base", framework);
    for (const char* registry : {"clips", "dispatchers", "optimizers", "schedules"}) {
      add(std::string("transpiler/") + registry, {"transpiler/base"});
    }
    add("transpiler/job", {"transpiler/clips", "transpiler/optimizers", "transpiler/schedules", "framework/formats"});
    add("transpiler/model", {"transpiler/job"});
    add("transpiler/layers", {"transpiler/model"});
    add("transpiler/losses", {"transpiler/model"});
    add("transpiler/metrics", {"transpiler/job"});
    add("transpiler/verify", {"transpiler/base"});
    add("transpiler/passes", {"transpiler/layers", "transpiler/losses", "transpiler/dispatchers", "transpiler/verify"});
    add("transpiler/split", {"transpiler/passes"});
    // What a job costs among trainers follows from the messages of their operations.
    add("transpiler/explain", {"transpiler/split", "framework/collective"});
    add("transpiler/start", {"transpiler/split", "framework/checkpoint"});
    add("transpiler", {"transpiler/explain", "transpiler/metrics", "transpiler/start"});
    add("pserver/cluster", {"framework/net", "framework/process"});
    add("pserver/protocol", {"ops", "transpiler"});
    add("pserver/tables", {"ops", "transpiler"});
    add("pserver/member", {"pserver/protocol", "framework/membership"});
    add("pserver/client", {"pserver/member"});
    add("pserver/params", {"pserver/protocol", "pserver/tables"});
    add("pserver/consistency", {"pserver/params", "framework/membership"});
    add("pserver/server", {"pserver/consistency"});
    add("pserver/sockets", {"pserver/cluster", "framework/wire"});
    add("pserver/network", {"pserver/server", "pserver/sockets"});
    add("pserver/host", {"pserver/client", "pserver/network"});
    add("pserver/rendezvous", {"pserver/cluster"});
    add("pserver/inside", {"pserver/server"});
    add("pserver/replica", {"pserver/params", "framework/collective"});
    add("pserver/channels", {"pserver/client", "pserver/replica"});
    add("pserver/collective", {"pserver/protocol", "framework/collective", "framework/net"});
    add("pserver", {"pserver/collective", "pserver/channels", "pserver/host", "pserver/inside", "pserver/rendezvous",
                    "framework/watch"});
    // trainer calls servers through these rooms and may not include the rooms below them.
    add("trainer", {"ops", "transpiler"});
    (*rooms)["trainer"].insert({"framework/collective", "framework/watch", "pserver/client", "pserver/collective",
                                "pserver/channels", "pserver/replica", "pserver/inside"});
    add("trainer/files", {"trainer"});
    add("trainer/statistics", {"trainer/files"});
    add("trainer/data", {"trainer/statistics"});
    add("trainer/metrics", {"trainer/data"});
    add("trainer/session", {"trainer/metrics"});
    add("trainer/progress", {"trainer/session"});
    add("trainer/follow", {"trainer/data"});
    add("trainer/checkpoints", {"trainer/follow", "trainer/progress"});
    add("trainer/loop", {"trainer/checkpoints"});
    add("trainer/predict", {"trainer/checkpoints"});
    add("trainer/verify", {"trainer/session"});
    return rooms;
  }();
  return *below;
}

std::string RoomOf(const std::string& path) {
  const size_t first = path.find('/');
  if (first == std::string::npos) return "";
  const std::string top = path.substr(0, first);
  if (top != "framework" && top != "pserver" && top != "trainer" && top != "transpiler") return top;
  const size_t second = path.find('/', first + 1);
  return second == std::string::npos ? top : path.substr(0, second);
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool IsOurs(const std::string& include) {
  static const std::set<std::string> tops = {"framework", "ops",     "proto",      "pserver", "tests",
                                             "tools",     "trainer", "transpiler", "examples"};
  return tops.contains(include.substr(0, include.find('/')));
}

// Returns the error if `file` may not include `include`.
std::optional<std::string> WrongInclude(const std::string& file, const std::string& include) {
  if (!IsOurs(include)) return std::nullopt;
  const std::string from = RoomOf(file);
  const std::string to = RoomOf(include);
  const std::set<std::string> outside = {"tests", "tools", "examples"};
  if (outside.contains(from)) return std::nullopt;
  if (outside.contains(to)) return file + " includes " + include + ": nothing includes " + to;
  if (EndsWith(file, "_main.cc") || from == to) return std::nullopt;
  const auto below = RoomsBelow().find(from);
  if (below == RoomsBelow().end()) return file + " lies in no room that the table knows";
  if (!below->second.contains(to)) {
    return file + " includes " + include + ": " + to + " is not below " + from;
  }
  return std::nullopt;
}

// The first forbidden header that `file` sees through our own headers, as a chain of includes.
std::optional<std::string> ForbiddenForCuda(const Tree& tree, const std::string& file, std::set<std::string>& seen) {
  if (!seen.insert(file).second || !tree.contains(file)) return std::nullopt;
  for (const std::string& include : tree.at(file)) {
    if (include.starts_with("absl/") || include.starts_with("glog/") || include.starts_with("google/protobuf/") ||
        EndsWith(include, ".pb.h")) {
      return file + " includes " + include;
    }
    if (const auto found = ForbiddenForCuda(tree, include, seen)) return file + " > " + *found;
  }
  return std::nullopt;
}

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> IncludesOf(const std::string& text) {
  static const std::regex pattern(R"re(^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">])re");
  std::vector<std::string> includes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (std::smatch match; std::regex_search(line, match, pattern)) includes.push_back(match[1]);
  }
  return includes;
}

// WORKSPACE among the test's files is a link to the real one.
fs::path Root() {
  return fs::canonical(fs::path(std::getenv("TEST_SRCDIR")) / std::getenv("TEST_WORKSPACE") / "WORKSPACE")
      .parent_path();
}

// Returns the packages that the libraries in a BUILD file depend on.
std::vector<std::string> DependenciesOf(const std::string& text) {
  static const std::regex library(R"re(weir_cc_library\(\n(?:    .*\n)*?\))re"), deps(R"re( deps = \[([^\]]*)\])re"),
      package(R"re("//([^":]+)[":])re");
  std::vector<std::string> found;
  using Matches = std::sregex_iterator;
  for (Matches rule(text.begin(), text.end(), library); rule != Matches(); ++rule) {
    const std::string body = rule->str();
    for (Matches list(body.begin(), body.end(), deps); list != Matches(); ++list) {
      const std::string labels = (*list)[1];
      for (Matches label(labels.begin(), labels.end(), package); label != Matches(); ++label)
        found.push_back((*label)[1]);
    }
  }
  return found;
}

Tree ReadTree() {
  Tree tree;
  const fs::path root = Root();
  for (const char* top : {"framework", "ops", "pserver", "trainer", "transpiler", "tests", "tools", "examples"}) {
    if (!fs::exists(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (entry.path().filename() == "BUILD") {
        std::vector<std::string>& packages = tree[fs::relative(entry.path(), root)];
        for (const std::string& each : DependenciesOf(ReadFile(entry.path()))) packages.push_back(each + "/BUILD");
      }
      const std::string ending = entry.path().extension();
      if (ending != ".h" && ending != ".cc" && ending != ".cu" && ending != ".cuh") continue;
      tree[fs::relative(entry.path(), root)] = IncludesOf(ReadFile(entry.path()));
    }
  }
  return tree;
}

TEST(LayersTest, EveryIncludeAndDependencyOfTheTreePointsDown) {
  const Tree tree = ReadTree();
  ASSERT_TRUE(tree.contains("tests/layers_test.cc"));
  std::vector<std::string> wrong;
  for (const auto& [file, includes] : tree) {
    for (const std::string& include : includes) {
      if (const auto found = WrongInclude(file, include)) wrong.push_back(*found);
    }
  }
  EXPECT_THAT(wrong, IsEmpty());
}

TEST(LayersTest, CudaFilesSeeNoAbseilAndNoProtobuf) {
  const Tree tree = ReadTree();
  std::vector<std::string> wrong;
  for (const auto& [file, includes] : tree) {
    std::set<std::string> seen;
    if (!EndsWith(file, ".cu") && !EndsWith(file, ".cuh")) continue;
    if (const auto found = ForbiddenForCuda(tree, file, seen)) wrong.push_back(*found);
  }
  EXPECT_THAT(wrong, IsEmpty());
}

// The checks above can fail.

TEST(LayersTest, AnIncludeOfARoomFurtherUpIsFound) {
  EXPECT_THAT(WrongInclude("framework/base/a.cc", "framework/tensor/t.h"),
              Optional(HasSubstr("framework/tensor is not below framework/base")));
  EXPECT_THAT(WrongInclude("transpiler/a.cc", "ops/fc.h"), Optional(HasSubstr("ops is not below transpiler")));
  EXPECT_THAT(WrongInclude("ops/fc.h", "pserver/client/client.h"),
              Optional(HasSubstr("pserver/client is not below ops")));
  EXPECT_THAT(WrongInclude("framework/wire/a.h", "framework/runtime/scope.h"),
              Optional(HasSubstr("not below framework/wire")));
  EXPECT_THAT(WrongInclude("pserver/a.cc", "tests/testing/cluster.h"), Optional(HasSubstr("nothing includes tests")));
}

TEST(LayersTest, AnIncludeOfARoomFurtherDownIsFine) {
  EXPECT_EQ(WrongInclude("trainer/a.cc", "proto/job.pb.h"), std::nullopt);
  EXPECT_EQ(WrongInclude("pserver/a.cc", "ops/sgd_math.h"), std::nullopt);
  EXPECT_EQ(WrongInclude("ops/fc.cc", "absl/status/status.h"), std::nullopt);
  EXPECT_EQ(WrongInclude("transpiler/transpile_main.cc", "pserver/inside/in_process.h"), std::nullopt);
}

TEST(LayersTest, TrainerSeesSomeRoomsOfPserver) {
  EXPECT_EQ(WrongInclude("trainer/a.cc", "pserver/client/client.h"), std::nullopt);
  EXPECT_EQ(WrongInclude("trainer/a.cc", "pserver/inside/in_process.h"), std::nullopt);
  for (const char* include :
       {"pserver/fault_point.h", "pserver/server/server_core.h", "pserver/network/grpc_server.h"}) {
    EXPECT_THAT(WrongInclude("trainer/a.cc", include), Optional(HasSubstr("is not below trainer"))) << include;
  }
}

TEST(LayersTest, TheRoomsOfPserverKnowTheirOrder) {
  EXPECT_EQ(WrongInclude("pserver/network/a.cc", "pserver/server/server_core.h"), std::nullopt);
  EXPECT_THAT(WrongInclude("pserver/server/a.cc", "pserver/network/grpc_server.h"),
              Optional(HasSubstr("pserver/network is not below pserver/server")));
  EXPECT_THAT(WrongInclude("pserver/client/a.cc", "pserver/server/server_core.h"),
              Optional(HasSubstr("pserver/server is not below pserver/client")));
}

TEST(LayersTest, TheRoomsOfTrainerKnowTheirOrder) {
  EXPECT_EQ(WrongInclude("trainer/loop/a.cc", "trainer/session/session.h"), std::nullopt);
  EXPECT_EQ(WrongInclude("trainer/files/a.cc", "transpiler/job/job.h"), std::nullopt);
  EXPECT_THAT(WrongInclude("trainer/files/a.cc", "trainer/data/lane.h"),
              Optional(HasSubstr("trainer/data is not below trainer/files")));
  EXPECT_THAT(WrongInclude("trainer/verify/a.cc", "trainer/loop/train_loop.h"),
              Optional(HasSubstr("trainer/loop is not below trainer/verify")));
}

TEST(LayersTest, TheRoomsOfTranspilerKnowTheirOrder) {
  EXPECT_EQ(WrongInclude("transpiler/explain/a.cc", "transpiler/split/transpile.h"), std::nullopt);
  EXPECT_EQ(WrongInclude("pserver/server/a.cc", "transpiler/job/job.h"), std::nullopt);
  EXPECT_THAT(WrongInclude("transpiler/verify/a.cc", "transpiler/passes/passes.h"),
              Optional(HasSubstr("transpiler/passes is not below transpiler/verify")));
  EXPECT_THAT(WrongInclude("transpiler/job/a.cc", "transpiler/model/model_context.h"),
              Optional(HasSubstr("transpiler/model is not below transpiler/job")));
  EXPECT_THAT(WrongInclude("transpiler/layers/a.cc", "ops/fc.h"), Optional(HasSubstr("ops is not below transpiler")));
}

TEST(LayersTest, ACudaFileIsFollowedThroughHeaders) {
  const Tree tree = {{"ops/a.cu", {"ops/a_math.h"}}, {"ops/a_math.h", {"absl/status/status.h"}}};
  std::set<std::string> seen;
  EXPECT_THAT(ForbiddenForCuda(tree, "ops/a.cu", seen),
              Optional(HasSubstr("ops/a_math.h includes absl/status/status.h")));
}

TEST(LayersTest, DependenciesOfLibrariesAreRead) {
  EXPECT_THAT(DependenciesOf("weir_cc_library(\n    name = \"a\",\n    visibility = [\"//b:c\"],\n    deps = [\n"
                             "        \":d\",\n        \"//e\",\n        \"//f/g:h\",\n    ],\n)\n\n"
                             "weir_cc_binary(\n    deps = [\"//i\"],\n)\n"),
              ::testing::ElementsAre("e", "f/g"));
  EXPECT_THAT(WrongInclude("transpiler/BUILD", "trainer/metrics/BUILD"),
              Optional(HasSubstr("trainer/metrics is not below transpiler")));
}

TEST(LayersTest, IncludesAreRead) {
  EXPECT_THAT(IncludesOf("#include <a>\n  # include \"b/c.h\"\n// #include \"no.h\"\n"),
              ::testing::ElementsAre("a", "b/c.h"));
}

}  // namespace
}  // namespace weir
