// Holds the documents against the tree: every test that docs/requirements.md names exists, every row that must have one
// does, and no document mentions a file that is not there.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// WORKSPACE among the test's files is a link to the real one.
fs::path Root() {
  return fs::canonical(fs::path(std::getenv("TEST_SRCDIR")) / std::getenv("TEST_WORKSPACE") / "WORKSPACE")
      .parent_path();
}

std::vector<std::string> AllMatches(const std::string& text, const std::regex& pattern, int group) {
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) found.push_back((*it)[group]);
  return found;
}

// Matches a test named between backquotes: "room/file_test.cc:Suite.Name", "room/file_test.sh" or
// "room/file_test.sh:words of it". Files are relative to tests/.
const std::regex& NamedTest() {
  static const auto* const pattern = new std::regex(R"re(`([a-z0-9_/]+_test\.(?:cc:[^`]+|sh(?::[^`]+)?))`)re");
  return *pattern;
}

std::vector<std::string> TestsNamedIn(const std::string& text) { return AllMatches(text, NamedTest(), 1); }

bool TestExists(const fs::path& tests, const std::string& name) {
  const size_t colon = name.find(':');
  const fs::path file = tests / name.substr(0, colon);
  if (!fs::exists(file)) return false;
  if (colon == std::string::npos) return true;
  const std::string what = name.substr(colon + 1), source = ReadFile(file);
  if (file.extension() == ".sh") return source.find(what) != std::string::npos;
  const size_t dot = what.find('.');
  if (dot == std::string::npos) return false;
  const std::regex definition("TEST(_F|_P)?\\(\\s*" + what.substr(0, dot) + ",\\s*" + what.substr(dot + 1) + "\\s*\\)");
  return std::regex_search(source, definition);
}

struct Row {
  std::string state;
  int tests = 0;
  // Names a document or an example.
  bool place = false;
};

// Rows of the tables by id: | 002-09 | asked | state | here | tests |. An id that stands twice has the state "twice".
std::map<std::string, Row> RowsOf(const std::string& text) {
  static const std::regex pattern(R"re(^\| (00[0-4]-\d\d) \|[^|]*\| (\w+) \|([^|]*\|.*)\|$)re");
  std::map<std::string, Row> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, pattern)) continue;
    const auto [it, fresh] = rows.try_emplace(match[1]);
    static const std::regex place("docs/[a-z_]+\\.md|README|`examples");
    it->second = {.state = fresh ? match[2].str() : "twice",
                  .tests = static_cast<int>(TestsNamedIn(match[3]).size()),
                  .place = std::regex_search(match[3].str(), place)};
  }
  return rows;
}

// Returns the errors in the rows.
std::vector<std::string> WrongRows(const std::map<std::string, Row>& rows) {
  static const std::set<std::string> tested = {"yes", "other", "gpu"};
  std::vector<std::string> wrong;
  for (const auto& [id, row] : rows) {
    if (row.state == "docs") {
      if (!row.place) wrong.push_back(id + " names no document");
    } else if (!tested.contains(row.state)) {
      wrong.push_back(id + " has the state '" + row.state + "'");
    } else if (row.tests == 0) {
      wrong.push_back(id + " names no test");
    }
  }
  return wrong;
}

// Returns "002-07".
std::string Id(int source, int number) {
  return "00" + std::to_string(source) + (number < 10 ? "-0" : "-") + std::to_string(number);
}

// Files that `text` of the document `from` (relative to the root) mentions and that are not in the tree: the targets of
// links, and paths that begin with one of the tree's rooms. A path may leave out .cc, .h or .sh. What running an
// example makes (data, checkpoints, mylog) and what lies in bazel-bin is not looked for.
std::vector<std::string> MissingFiles(const fs::path& root, const std::string& from, const std::string& text) {
  std::vector<std::string> missing;
  static const std::regex link(R"re(\]\(([^)#]+)[^)]*\))re");
  for (const std::string& target : AllMatches(text, link, 1)) {
    if (target.find("://") != std::string::npos) continue;
    if (!fs::exists(root / fs::path(from).parent_path() / target)) missing.push_back(target);
  }
  static const std::regex path(
      R"re((^|[^A-Za-z0-9_./<>@{-]))re"
      R"re(((?:proto|framework|ops|transpiler|pserver|trainer|python|tests|tools|docs|examples)/)re"
      R"re([A-Za-z0-9_./-]*[A-Za-z0-9_]))re");
  for (const std::string& each : AllMatches(std::regex_replace(text, NamedTest(), ""), path, 2)) {
    if (each == "examples/s") continue;          // a speed
    if (each == "python/weir/protos") continue;  // made by tools/python_protos
    static const std::regex made("/(data|checkpoints|mylog)(/|$)");
    if (each.rfind("examples/", 0) == 0 && std::regex_search(each, made)) continue;
    bool there = false;
    for (const char* ending : {"", ".cc", ".h", ".sh"}) there = there || fs::exists(root / (each + ending));
    if (!there) missing.push_back(each);
  }
  return missing;
}

std::string Requirements() { return ReadFile(Root() / "docs/requirements.md"); }

TEST(DocsTest, EveryTestThatRequirementsNameExists) {
  const std::vector<std::string> named = TestsNamedIn(Requirements());
  EXPECT_GT(named.size(), 100u);
  std::set<std::string> missing;
  for (const std::string& name : named) {
    if (!TestExists(Root() / "tests", name)) missing.insert(name);
  }
  EXPECT_THAT(missing, IsEmpty());
}

TEST(DocsTest, WhatIsHeldNamesItsTest) { EXPECT_THAT(WrongRows(RowsOf(Requirements())), IsEmpty()); }

TEST(DocsTest, EveryRequirementIsThere) {
  // Number of requirements by source.
  constexpr int kRequirements[] = {36, 25, 60, 27, 27};
  const std::map<std::string, Row> rows = RowsOf(Requirements());
  std::set<std::string> expected, there;
  for (int source = 0; source < 5; ++source) {
    for (int number = 1; number <= kRequirements[source]; ++number) expected.insert(Id(source, number));
  }
  for (const auto& [id, row] : rows) there.insert(id);
  EXPECT_EQ(there, expected);
}

TEST(DocsTest, DocumentsMentionNoFileThatIsNotThere) {
  std::vector<std::string> documents = {"README.md", "README.zh.md", "CONTRIBUTING.md", "THIRD_PARTY.md"};
  for (const char* directory : {"docs", "examples"}) {
    for (const auto& entry : fs::recursive_directory_iterator(Root() / directory)) {
      if (entry.path().extension() == ".md") documents.push_back(fs::relative(entry.path(), Root()));
    }
  }
  EXPECT_GT(documents.size(), 12u);
  std::vector<std::string> wrong;
  for (const std::string& document : documents) {
    for (const std::string& file : MissingFiles(Root(), document, ReadFile(Root() / document))) {
      wrong.emplace_back(document).append(" mentions ").append(file);
    }
  }
  EXPECT_THAT(wrong, IsEmpty());
}

// The checks above can fail.

TEST(DocsTest, ATestThatIsNotThereIsFound) {
  EXPECT_THAT(
      TestsNamedIn(
          "`docs_test.cc:DocsTest.A`, `e2e/x_test.sh` and `e2e/x_test.sh:some words`, `tests/docs_test`, `a:b`"),
      ElementsAre("docs_test.cc:DocsTest.A", "e2e/x_test.sh", "e2e/x_test.sh:some words"));
  const fs::path tests = Root() / "tests";
  EXPECT_TRUE(TestExists(tests, "docs_test.cc:DocsTest.ATestThatIsNotThereIsFound"));
  EXPECT_FALSE(TestExists(tests, "docs_test.cc:DocsTest.ATestThatIsNotThere"));
  EXPECT_FALSE(TestExists(tests, "docs_test.cc:OtherTest.ATestThatIsNotThereIsFound"));
  EXPECT_FALSE(TestExists(tests, "nowhere_test.cc:DocsTest.ATestThatIsNotThereIsFound"));
  EXPECT_TRUE(TestExists(tests, "e2e/processes/faults_test.sh:a trainer dies in async"));
  EXPECT_FALSE(TestExists(tests, "e2e/processes/faults_test.sh:a trainer dies of boredom"));
}

TEST(DocsTest, ARowWithoutTestOrStateIsFound) {
  const std::map<std::string, Row> rows = RowsOf(
      "| 002-01 | a | yes | b | `x/a_test.cc:A.B` |\n"
      "| 002-02 | a | yes | b | |\n"
      "| 002-03 | a | docs | README | |\n"
      "| 002-04 | a | part | b | |\n"
      "| 002-05 | a | docs | `docs/x.md` | |\n"
      "| 002-06 | a | docs | b | |\n"
      "| 002-07 | a | gpu | b | |\n"
      "| 002-03 | a | docs | README | |\n");
  EXPECT_EQ(rows.at("002-01").tests, 1);
  EXPECT_THAT(WrongRows(rows),
              ElementsAre("002-02 names no test", "002-03 has the state 'twice'", "002-04 has the state 'part'",
                          "002-06 names no document", "002-07 names no test"));
}

TEST(DocsTest, AFileThatIsNotThereIsFound) {
  EXPECT_THAT(
      MissingFiles(
          Root(), "docs/x.md",
          "[a](cluster.md) [b](clusters.md) [c](https://x.org/y) `tests/docs_test` ops/nothing.cc `tools/test`. "
          "python/no.py bazel-bin/trainer/trainer examples/flights/data/test.tsv examples/flight"),
      ElementsAre("clusters.md", "ops/nothing.cc", "python/no.py", "examples/flight"));
}

}  // namespace
}  // namespace weir
