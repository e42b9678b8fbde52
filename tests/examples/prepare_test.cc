// The converters of the examples, on the real data.

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/files/line_source.h"

namespace weir {
namespace {

class PrepareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const dir = std::getenv("WEIR_DATA_DIR");
    if (dir == nullptr) GTEST_SKIP() << "WEIR_DATA_DIR does not say where the shared data is";
    data_ = dir;
  }
  // Exit status of a converter that writes to out_.
  int Run(const std::string& program, const std::string& flags) {
    return std::system(
        absl::StrCat("examples/", program, " --output=", out_.path(), " ", flags, " > ", out_.path(), "/log 2>&1")
            .c_str());
  }
  std::vector<std::string> Lines(const std::string& path) {
    v1::DataSource source;
    source.add_files(path);
    auto set = DataSet::Open(source, "", "test");
    CHECK(set.ok()) << set.status();
    auto lines = LineSource::Open(set->files()[0], set->Stream(0, 1)[0]);
    CHECK(lines.ok()) << lines.status();
    std::vector<std::string> all;
    std::string_view line;
    int64_t offset;
    while ((*lines)->Next(&line, &offset)) all.emplace_back(line);
    CHECK((*lines)->status().ok()) << (*lines)->status();
    return all;
  }

  std::string data_;
  TempDir out_;
};

TEST_F(PrepareTest, FlightsComeOutAsInTheSampleEveryTenthAsTest) {
  ASSERT_EQ(Run("flights/prepare", absl::StrCat("--rows=2000 --data=", data_)), 0);
  const std::vector<std::string> sample = Lines(data_ + "/nycflights-late/sample_criteo_layout_2k.tsv.gz");
  ASSERT_EQ(sample.size(), 2000u);
  const std::vector<std::string> test = Lines(out_.path() + "/test.tsv");
  std::vector<std::vector<std::string>> train;
  for (int f = 0; f < 8; ++f) train.push_back(Lines(absl::StrCat(out_.path(), "/train-", f, ".tsv")));
  ASSERT_EQ(test.size(), 200u);
  size_t trained = 0;
  for (size_t i = 0; i < sample.size(); ++i) {
    if (i % 10 == 0) {
      ASSERT_EQ(test[i / 10], sample[i]) << i;
    } else {
      ASSERT_LT(trained / 8, train[trained % 8].size());
      ASSERT_EQ(train[trained % 8][trained / 8], sample[i]) << i;
      ++trained;
    }
  }
}

TEST_F(PrepareTest, FlightsParseAsCriteoLines) {
  ASSERT_EQ(Run("flights/prepare", absl::StrCat("--rows=2000 --data=", data_)), 0);
  DataSpec spec = MakeSpec("train { files: 'train-*.tsv' } criteo {} batch_size: 8", out_);
  spec.required = {"label"};
  const auto numbers = ReadNumbers({.spec = spec, .streams = {0, 8}, .one_pass_in_order = true}, OpenTrain(spec));
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  size_t examples = 0;
  for (const auto& stream : *numbers) {
    for (const auto& batch : stream) examples += batch.size();
  }
  EXPECT_EQ(examples, 1800u);
}

TEST_F(PrepareTest, EveryFifthHouseIsForTheTest) {
  ASSERT_EQ(Run("california_housing/prepare", "--data=" + data_), 0);
  const std::vector<std::string> all = Lines(data_ + "/california-housing/housing.csv.gz");
  const std::vector<std::string> test = Lines(out_.path() + "/test.csv"), train = Lines(out_.path() + "/train.csv");
  ASSERT_EQ(all.size(), 20641u);
  ASSERT_EQ(test.size(), 4129u);
  ASSERT_EQ(train.size(), 16513u);
  EXPECT_EQ(test[0], train[0]);
  EXPECT_THAT(test[0], ::testing::StartsWith("price,longitude,latitude,"));
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const std::string& made = i % 5 == 0 ? test[1 + i / 5] : train[1 + i - i / 5 - 1];
    const std::string& line = all[1 + i];
    // The price goes in front, and ocean_proximity is what stands behind it.
    const std::string numbers = line.substr(0, line.rfind(',', line.rfind(',') - 1)),
                      ocean = line.substr(line.rfind(','));
    ASSERT_EQ(made.substr(made.find(',') + 1), numbers + ocean) << i;
  }
}

TEST_F(PrepareTest, FashionMnistIsUnpackedAndFitsItsReader) {
  ASSERT_EQ(Run("fashion_mnist/prepare", "--data=" + data_), 0);
  DataSpec spec =
      MakeSpec("train { files: '*-images-*' labels: '*-labels-*' } idx { values: 784 } batch_size: 8", out_);
  spec.required = {"label"};
  const auto set = DataSet::Open(spec.config, spec.config.train(), out_.path(), "data.train");
  ASSERT_TRUE(set.ok()) << set.status();
  const auto labels = ReadNumbers({.spec = spec, .streams = {0, 8}, .one_pass_in_order = true}, *set);
  ASSERT_TRUE(labels.ok()) << labels.status();
  std::vector<int> of_class(10);
  for (const auto& stream : *labels) {
    for (const auto& batch : stream) {
      for (const float label : batch) ++of_class.at(static_cast<size_t>(label));
    }
  }
  EXPECT_THAT(of_class, ::testing::Each(7000));
}

TEST_F(PrepareTest, MovielensHistoriesHoldOnlyWhatWasRatedBeforeInTheTrainingPart) {
  ASSERT_EQ(Run("movielens/prepare", absl::StrCat("--data=", data_)), 0);
  size_t trained = 0;
  for (int f = 0; f < 8; ++f) trained += Lines(absl::StrCat(out_.path(), "/like-train-", f, ".txt")).size();
  EXPECT_EQ(trained, 80896u);
  const std::vector<std::string> test = Lines(out_.path() + "/like-test.txt");
  ASSERT_EQ(test.size(), 19940u);
  // Slots of a line: label, user, movie, genres, liked, disliked.
  std::string user, history;
  for (const std::string& line : test) {
    std::istringstream in(line);
    std::vector<std::vector<std::string>> slots(6);
    for (std::vector<std::string>& slot : slots) {
      size_t n = 0;
      in >> n;
      for (slot.resize(n); std::string & value : slot) in >> value;
    }
    ASSERT_TRUE(in) << line;
    ASSERT_LE(slots[4].size(), 50u);
    for (const size_t s : {4, 5}) {
      EXPECT_EQ(std::count(slots[s].begin(), slots[s].end(), slots[2][0]), 0)
          << "the film is in its own history: " << line;
    }
    // All test lines of a user know the same.
    const std::string known = absl::StrJoin(slots[4], " ") + "|" + absl::StrJoin(slots[5], " ");
    if (slots[1][0] == user) {
      EXPECT_EQ(known, history) << line;
    }
    user = slots[1][0];
    history = known;
  }
}

TEST(PrepareWithoutDataTest, MissingDataIsNamed) {
  TempDir dir;
  for (const char* program :
       {"flights/prepare", "california_housing/prepare", "fashion_mnist/prepare", "movielens/prepare"}) {
    const std::string log = dir.path() + "/log";
    EXPECT_NE(
        std::system(
            absl::StrCat("examples/", program, " --data=/nowhere --output=", dir.path(), " > ", log, " 2>&1").c_str()),
        0);
    std::ifstream in(log);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    EXPECT_THAT(text, ::testing::HasSubstr("prepare: there is no /nowhere/"));
    EXPECT_THAT(text, ::testing::HasSubstr("say --data=DIR or set WEIR_DATA_DIR"));
  }
}

}  // namespace
}  // namespace weir
