// The main function of a program of several test files (weir_cc_tests in tools/bazel/weir.bzl).
//
//   PROGRAM --file=tests/ops/concat_test.cc [GoogleTest's flags]
//
// runs the test cases of one file, or without --file those of all. GoogleTest's own filter narrows the choice further.
#include <fnmatch.h>

#include <iostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

bool MatchesOne(const std::string& name, const std::string& patterns) {
  for (const std::string& pattern : std::vector<std::string>(absl::StrSplit(patterns, ':'))) {
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  }
  return false;
}

// Reads a filter as GoogleTest does: patterns, and behind a '-' those that are left out.
bool Matches(const std::string& name, const std::string& filter) {
  const size_t dash = filter.find('-');
  const std::string with = filter.substr(0, dash);
  if (!with.empty() && !MatchesOne(name, with)) return false;
  return dash == std::string::npos || !MatchesOne(name, filter.substr(dash + 1));
}

// Narrows GoogleTest's filter to the test cases of `file`. Returns false where the file has none.
bool Choose(const std::string& file) {
  const std::string filter = ::testing::GTEST_FLAG(filter);
  std::string chosen;
  std::set<std::string> names[2];  // of other files, of this one
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(t);
      if (!absl::EndsWith(test.file(), "_test.cc")) {
        std::cerr << test.file() << ":" << test.line() << ": a test case outside of a _test.cc belongs to no target\n";
        return false;
      }
      const std::string name = absl::StrCat(suite.name(), ".", test.name());
      const bool own = test.file() == file;
      if (names[own ? 0 : 1].contains(name)) {
        std::cerr << test.file() << ":" << test.line() << ": another file of this program has a test case " << name
                  << ", too; rename one\n";
        return false;
      }
      names[own ? 1 : 0].insert(name);
      if (own && Matches(name, filter)) absl::StrAppend(&chosen, chosen.empty() ? "" : ":", name);
    }
  }
  if (names[1].empty()) {
    std::cerr << file << " has no test case in this program\n";
    return false;
  }
  // A pattern that matches nothing: an empty one matches everything.
  ::testing::GTEST_FLAG(filter) = chosen.empty() ? "-*" : chosen;
  return true;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  constexpr std::string_view kFile = "--file=";
  if (argc > 1 && std::string_view(argv[1]).substr(0, kFile.size()) == kFile) {
    if (!weir::Choose(argv[1] + kFile.size())) return 1;
  }
  return RUN_ALL_TESTS();
}
