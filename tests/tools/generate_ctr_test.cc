// The generator of click logs: deterministic, parseable, and honest about what is possible.

#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::string Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class GenerateCtrTest : public ::testing::Test {
 protected:
  // Exit code; what it prints is in Log().
  int Run(const std::string& flags) {
    const int status = std::system(absl::StrCat("tools/generate_ctr ", flags, " > ", dir_.path(), "/log 2>&1").c_str());
    return WEXITSTATUS(status);
  }
  std::string Log() { return Read(dir_.path() + "/log"); }
  double Printed(const std::string& name) {
    const std::string log = Log();
    const size_t at = log.find(" " + name + "=");
    CHECK(at != std::string::npos) << log;
    return std::stod(log.substr(at + name.size() + 2));
  }
  // All values of the first float column, the label.
  std::vector<float> Labels(const std::string& files) {
    const DataSpec spec = MakeSpec(absl::StrCat("train { files: '", files, "' } criteo {} batch_size: 64"), dir_);
    const auto numbers = ReadNumbers({.spec = spec, .streams = {0, 8}, .one_pass_in_order = true}, OpenTrain(spec));
    CHECK(numbers.ok()) << numbers.status();
    std::vector<float> all;
    for (const auto& stream : *numbers) {
      for (const auto& batch : stream) all.insert(all.end(), batch.begin(), batch.end());
    }
    return all;
  }

  TempDir dir_;
};

TEST_F(GenerateCtrTest, LinesParseAndTheShareOfPositivesIsTheOnePrinted) {
  ASSERT_EQ(Run(absl::StrCat("--rows=5000 --eval_rows=3000 --files=3 --output=", dir_.path(), "/out")), 0) << Log();
  const std::vector<float> train = Labels("out/train-*.tsv");
  const std::vector<float> eval = Labels("out/eval.tsv");
  ASSERT_EQ(train.size(), 5000u);
  ASSERT_EQ(eval.size(), 3000u);
  const auto share = [](const std::vector<float>& labels) {
    double sum = 0;
    for (const float label : labels) sum += label;
    return sum / static_cast<double>(labels.size());
  };
  EXPECT_NEAR(share(train), Printed("positives"), 0.00006);
  EXPECT_NEAR(share(eval), Printed("eval_positives"), 0.00006);
  EXPECT_NEAR(share(train), 0.25, 0.03);
}

TEST_F(GenerateCtrTest, ThePlantedModelSeparatesAndNoisierLabelsSeparateLess) {
  ASSERT_EQ(Run(absl::StrCat("--rows=100 --eval_rows=5000 --output=", dir_.path(), "/out")), 0) << Log();
  const double possible = Printed("possible_auc");
  EXPECT_GT(possible, 0.75);
  EXPECT_LT(possible, 0.95);
  ASSERT_EQ(
      Run(absl::StrCat("--rows=100 --eval_rows=5000 --weight_scale=0 --vector_scale=0 --output=", dir_.path(), "/out")),
      0);
  EXPECT_LT(Printed("possible_auc"), possible - 0.1);
}

TEST_F(GenerateCtrTest, TheSameSeedGivesTheSameBytesAndAnotherSeedDoesNot) {
  const std::string flags = "--rows=500 --eval_rows=100 --files=2 ";
  ASSERT_EQ(Run(absl::StrCat(flags, "--output=", dir_.path(), "/a")), 0);
  ASSERT_EQ(Run(absl::StrCat(flags, "--output=", dir_.path(), "/b")), 0);
  ASSERT_EQ(Run(absl::StrCat(flags, "--seed=2 --output=", dir_.path(), "/c")), 0);
  for (const char* file : {"/train-0.tsv", "/train-1.tsv", "/eval.tsv"}) {
    EXPECT_EQ(Read(dir_.path() + "/a" + file), Read(dir_.path() + "/b" + file));
    EXPECT_FALSE(Read(dir_.path() + "/a" + file) == Read(dir_.path() + "/c" + file));
  }
}

TEST_F(GenerateCtrTest, TheNumberOfFilesDoesNotChangeTheRows) {
  ASSERT_EQ(Run(absl::StrCat("--rows=500 --eval_rows=100 --files=1 --output=", dir_.path(), "/a")), 0);
  ASSERT_EQ(Run(absl::StrCat("--rows=500 --eval_rows=100 --files=2 --output=", dir_.path(), "/b")), 0);
  EXPECT_EQ(Read(dir_.path() + "/a/train-0.tsv"),
            Read(dir_.path() + "/b/train-0.tsv") + Read(dir_.path() + "/b/train-1.tsv"));
}

TEST_F(GenerateCtrTest, FilesOfAnEarlierRunWithMoreOfThemAreGone) {
  const std::string flags = absl::StrCat("--rows=500 --eval_rows=100 --output=", dir_.path(), "/a ");
  ASSERT_EQ(Run(flags + "--files=12"), 0);
  std::ofstream(dir_.path() + "/a/train-mine.tsv") << "not ours\n";
  ASSERT_EQ(Run(flags + "--files=2"), 0);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path() + "/a"))
    names.insert(entry.path().filename().string());
  EXPECT_THAT(names, ::testing::ElementsAre("eval.tsv", "train-0.tsv", "train-1.tsv", "train-mine.tsv"));
}

// Each value of a categorical has one name in either layout.
TEST_F(GenerateCtrTest, LibsvmHasTheSameRowsInOtherWords) {
  const std::string flags = absl::StrCat("--rows=400 --eval_rows=100 --files=1 --ids=50 --output=", dir_.path());
  ASSERT_EQ(Run(flags + "/a"), 0) << Log();
  const double possible = Printed("possible_auc");
  ASSERT_EQ(Run(flags + "/b --format=libsvm"), 0) << Log();
  EXPECT_EQ(Printed("possible_auc"), possible);
  const std::vector<std::string> criteo = absl::StrSplit(Read(dir_.path() + "/a/train-0.tsv"), '\n', absl::SkipEmpty());
  const std::vector<std::string> libsvm =
      absl::StrSplit(Read(dir_.path() + "/b/train-0.libsvm"), '\n', absl::SkipEmpty());
  ASSERT_EQ(criteo.size(), 400u);
  ASSERT_EQ(libsvm.size(), 400u);
  std::map<std::string, std::string> names;
  for (size_t n = 0; n < criteo.size(); ++n) {
    const std::vector<std::string> fields = absl::StrSplit(criteo[n], '\t');
    const std::vector<std::string> words = absl::StrSplit(libsvm[n], ' ');
    ASSERT_EQ(fields.size(), 40u);
    size_t word = 0;
    EXPECT_EQ(words[word++], fields[0]);
    for (size_t f = 1; f < fields.size(); ++f) {
      if (fields[f].empty()) continue;
      ASSERT_LT(word, words.size());
      const std::pair<std::string, std::string> pair = absl::StrSplit(words[word++], ':');
      if (f <= 13) {
        EXPECT_EQ(pair, std::make_pair(std::to_string(f), fields[f]));
        continue;
      }
      EXPECT_EQ(pair.second, "1");
      const int64_t index = std::stoll(pair.first) - 1000 - 50 * static_cast<int64_t>(f - 14);
      EXPECT_GE(index, 0);
      EXPECT_LT(index, 50);
      EXPECT_EQ(names.try_emplace(pair.first, fields[f]).first->second, fields[f]);
    }
    EXPECT_EQ(word, words.size());
  }
}

TEST_F(GenerateCtrTest, BadFlagsAreRefused) {
  EXPECT_EQ(Run(""), 2);
  EXPECT_THAT(Log(), HasSubstr("generate_ctr: --output must name a directory"));
  EXPECT_EQ(Run(absl::StrCat("--rows=3 --files=4 --output=", dir_.path())), 2);
  EXPECT_THAT(Log(), HasSubstr("--files at most --rows"));
  EXPECT_EQ(Run(absl::StrCat("--positives=1 --output=", dir_.path())), 2);
  EXPECT_THAT(Log(), HasSubstr("--positives must be between 0 and 1"));
  EXPECT_EQ(Run(absl::StrCat("--format=csv --output=", dir_.path())), 2);
  EXPECT_THAT(Log(), HasSubstr("--format must be criteo or libsvm, got 'csv'"));
  EXPECT_EQ(Run("--output=/proc/nowhere"), 2);
  EXPECT_THAT(Log(), HasSubstr("generate_ctr: cannot make /proc/nowhere"));
  EXPECT_EQ(Run("--row=3"), 2);
  EXPECT_THAT(Log(), HasSubstr("generate_ctr: "));
  EXPECT_THAT(Log(), HasSubstr("--rows"));
  EXPECT_EQ(Run("rows"), 2);
  EXPECT_THAT(Log(), HasSubstr("generate_ctr: 'rows' is no flag; --help lists them"));
  EXPECT_EQ(Run("--set=train.epochs=2"), 2);
  EXPECT_THAT(Log(), HasSubstr("--set is no flag of generate_ctr"));
}

TEST_F(GenerateCtrTest, HelpNamesTheFlagsAndIsNoError) {
  EXPECT_EQ(Run("--help"), 0);
  EXPECT_THAT(Log(), HasSubstr("--eval_rows  lines to evaluate on (default: 40000)"));
}

// Programs that take part in a job hold signals back from their start on, until they wait for them. Others do not wait.
TEST_F(GenerateCtrTest, SigtermEndsIt) {
  const std::string script = absl::StrCat(
      "tools/generate_ctr --rows=500000 --output=", dir_.path(), "/out > /dev/null & p=$!; ", "until [ -n \"$(ls -A ",
      dir_.path(), "/out 2>/dev/null)\" ]; do kill -0 $p || exit 1; done; kill -TERM $p; wait $p");
  // This test links what holds signals back.
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &term, nullptr);
  EXPECT_EQ(WEXITSTATUS(std::system(script.c_str())), 128 + SIGTERM);
}

}  // namespace
}  // namespace weir
