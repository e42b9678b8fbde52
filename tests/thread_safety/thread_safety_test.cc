// Clang's lock analysis (-Wthread-safety) finds nothing in our code, and has seen all of it that
// holds a lock.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPlanted[] = "tests/thread_safety/unguarded.cc";
constexpr char kAnalysed[] = "analysed ";

struct Reports {
  std::set<std::string> analysed;     // files
  std::vector<std::string> findings;  // what clang said, but for the planted file
  std::vector<std::string> planted;   // what it said about that
};

std::vector<std::string> LinesOf(const fs::path& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

Reports ReadReports() {
  Reports reports;
  for (const auto& entry : fs::recursive_directory_iterator(std::getenv("TEST_SRCDIR"))) {
    if (entry.path().extension() != ".thread_safety") continue;
    const std::vector<std::string> lines = LinesOf(entry.path());
    const bool planted = entry.path().stem() == "unguarded";
    for (const std::string& line : lines) {
      if (line.starts_with(kAnalysed)) {
        reports.analysed.insert(line.substr(sizeof(kAnalysed) - 1));
      } else {
        (planted ? reports.planted : reports.findings).push_back(line);
      }
    }
  }
  return reports;
}

TEST(ThreadSafetyTest, TheAnalysisFindsNothing) { EXPECT_THAT(ReadReports().findings, IsEmpty()); }

TEST(ThreadSafetyTest, AReadWithoutTheLockIsFound) {
  const Reports reports = ReadReports();
  EXPECT_THAT(reports.analysed, Contains(kPlanted));
  EXPECT_THAT(reports.planted, Contains(HasSubstr("requires holding mutex 'mu_'")));
}

TEST(ThreadSafetyTest, EveryFileWithAGuardedFieldIsAnalysed) {
  const std::set<std::string> analysed = ReadReports().analysed;
  const fs::path root =
      fs::canonical(fs::path(std::getenv("TEST_SRCDIR")) / std::getenv("TEST_WORKSPACE") / "WORKSPACE").parent_path();
  std::vector<std::string> missed;
  for (const char* room : {"framework", "ops", "pserver", "trainer", "transpiler", "tools"}) {
    if (!fs::exists(root / room)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / room)) {
      fs::path file = entry.path();
      if (file.extension() != ".cc" && file.extension() != ".h") continue;
      if (!fs::exists(file.parent_path() / "BUILD")) continue;  // nothing builds it
      const std::vector<std::string> lines = LinesOf(file);
      if (!::testing::Matches(Contains(HasSubstr("_GUARDED_BY(")))(lines)) continue;
      if (fs::exists(fs::path(file).replace_extension(".cc"))) file.replace_extension(".cc");
      const std::string path = fs::relative(file, root);
      if (!analysed.contains(path)) missed.push_back(path);
    }
  }
  EXPECT_THAT(missed, IsEmpty())
      << "add the libraries of these files to thread_safety_reports in tests/thread_safety/BUILD";
}

}  // namespace
}  // namespace weir
