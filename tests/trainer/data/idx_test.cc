// IDX files: their headers, their examples and how these are dealt to streams.

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/formats/derived.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::FloatEq;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

std::string Header(const std::vector<uint32_t>& dims, char type = 8) {
  std::string header = {0, 0, type, static_cast<char>(dims.size())};
  for (const uint32_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) header += static_cast<char>(dim >> shift);
  }
  return header;
}

// Examples of 2 x 2 values, the first of which is the example's number.
std::string Pictures(int begin, int end) {
  std::string text = Header({static_cast<uint32_t>(end - begin), 2, 2});
  for (int i = begin; i < end; ++i) text += {static_cast<char>(i), 0, 51, static_cast<char>(255)};
  return text;
}

// Example i has the label 200 - i.
std::string Labels(int begin, int end) {
  std::string text = Header({static_cast<uint32_t>(end - begin)});
  for (int i = begin; i < end; ++i) text += static_cast<char>(200 - i);
  return text;
}

class IdxTest : public ::testing::Test {
 protected:
  absl::StatusOr<DataSet> Open(const std::string& source) {
    spec_ = MakeSpec(absl::StrCat("train { ", source, " } idx { values: 4 } batch_size: 64"), dir_);
    return DataSet::Open(spec_.config, spec_.config.train(), dir_.path(), "data.train");
  }
  // Labels by stream, in order; with the pictures checked.
  absl::StatusOr<std::vector<std::vector<int>>> Read(const std::string& source, int lanes) {
    const absl::StatusOr<DataSet> set = Open(source);
    if (!set.ok()) return set.status();
    spec_.lanes = lanes;
    spec_.required = {"label"};
    auto reader = LaneReader::Create(*set, {.spec = spec_, .streams = {0, lanes}, .one_pass_in_order = true});
    if (!reader.ok()) return reader.status();
    std::vector<std::vector<int>> streams(static_cast<size_t>(lanes));
    std::vector<LaneBatch> batches;
    while (true) {
      const absl::Status status = (*reader)->Next(absl::Seconds(60), &batches);
      if (!status.ok()) return status;
      if ((*reader)->ended()) return streams;
      for (size_t lane = 0; lane < batches.size(); ++lane) {
        const Tensor &labels = std::get<Tensor>(batches[lane].vars[0]),
                     &pictures = std::get<Tensor>(batches[lane].vars[1]);
        for (int64_t i = 0; i < batches[lane].examples; ++i) {
          const int label = static_cast<int>(labels.data<float>()[i]);
          streams[lane].push_back(label);
          EXPECT_THAT(std::vector<float>(pictures.data<float>() + 4 * i, pictures.data<float>() + 4 * i + 4),
                      ElementsAre(static_cast<float>(200 - label) / 255, 0, FloatEq(0.2f), 1));
        }
      }
    }
  }
  absl::Status ReadAll(const std::string& source = "files: 'x*' labels: 'y*'", int lanes = 1) {
    return Read(source, lanes).status();
  }

  TempDir dir_;
  DataSpec spec_;
};

TEST_F(IdxTest, ValuesAreFractionsAndLabelsTheByteOfTheirExample) {
  dir_.Write("x", Pictures(0, 3));
  dir_.Write("y", Labels(0, 3));
  const auto streams = Read("files: 'x' labels: 'y'", 1);
  ASSERT_TRUE(streams.ok()) << streams.status();
  EXPECT_THAT(*streams, ElementsAre(ElementsAre(200, 199, 198)));
}

TEST_F(IdxTest, ExamplesOfPlainFilesAreDealtOneByOne) {
  // Two files are one space of 20 examples; labels may be compressed where pictures are not.
  dir_.Write("x0", Pictures(0, 7));
  dir_.Write("x1", Pictures(7, 20));
  dir_.Write("y0", Labels(0, 7));
  dir_.Write("y1", Gzip(Labels(7, 20)));
  for (const int lanes : {1, 2, 4, 8, 64}) {
    const auto streams = Read("files: 'x*' labels: 'y*'", lanes);
    ASSERT_TRUE(streams.ok()) << streams.status();
    for (int s = 0; s < lanes; ++s) {
      std::vector<int> expected;
      for (int round = 0; round * lanes < 20; ++round) {
        const auto example = static_cast<int>(round * lanes + PlaceInRound(spec_.seed, round, s, lanes));
        if (example < 20) expected.push_back(200 - example);
      }
      EXPECT_THAT((*streams)[static_cast<size_t>(s)], ElementsAreArray(expected)) << s << " of " << lanes;
    }
  }
}

TEST_F(IdxTest, ExamplesOfCompressedFilesAreDealtOneByOne) {
  dir_.Write("x0", Gzip(Pictures(0, 5)));
  dir_.Write("x1", Zstd(Pictures(5, 8)));
  dir_.Write("y0", Labels(0, 5));
  dir_.Write("y1", Gzip(Labels(5, 8)));
  const auto streams = Read("files: 'x*' labels: 'y*'", 4);
  ASSERT_TRUE(streams.ok()) << streams.status();
  EXPECT_THAT(*streams,
              ElementsAre(ElementsAre(198, 193), ElementsAre(197, 196), ElementsAre(200, 195), ElementsAre(199, 194)));
}

TEST_F(IdxTest, ExamplesOfLargeCompressedFilesAreDealtLikewise) {
  for (int f = 0; f < 3; ++f) {
    dir_.Write(absl::StrCat("x", f), PaddedGzip(Pictures(2 * f, 2 * f + 2), 8 << 20));
    dir_.Write(absl::StrCat("y", f), Labels(2 * f, 2 * f + 2));
  }
  const auto streams = Read("files: 'x*' labels: 'y*'", 2);
  ASSERT_TRUE(streams.ok()) << streams.status();
  EXPECT_THAT(*streams, ElementsAre(ElementsAre(199, 197, 196), ElementsAre(200, 198, 195)));
}

TEST_F(IdxTest, MoreThanABlockIsRead) {
  std::string x = Header({600, 1, 1000}), y = Header({600});
  for (int i = 0; i < 600; ++i) {
    x += std::string(1000, static_cast<char>(i / 3));
    y += static_cast<char>(i / 3);
  }
  for (const bool compressed : {false, true}) {
    dir_.Write("x", compressed ? Gzip(x) : x);
    dir_.Write("y", y);
    DataSpec spec = MakeSpec("train { files: 'x' labels: 'y' } idx { values: 1000 } batch_size: 64", dir_);
    spec.lanes = 2;
    const auto set = DataSet::Open(spec.config, spec.config.train(), dir_.path(), "data.train");
    ASSERT_TRUE(set.ok()) << set.status();
    const auto numbers = ReadNumbers({.spec = spec, .streams = {0, 2}, .one_pass_in_order = true}, *set);
    ASSERT_TRUE(numbers.ok()) << numbers.status();
    std::vector<float> all;
    for (const auto& stream : *numbers) {
      for (const auto& batch : stream) all.insert(all.end(), batch.begin(), batch.end());
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), 600u);
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t third = i / 3;
      ASSERT_EQ(all[i], static_cast<float>(third));
    }
  }
}

TEST_F(IdxTest, WithoutLabelsTheyAreMissing) {
  dir_.Write("x", Pictures(0, 2));
  EXPECT_THAT(ReadAll("files: 'x'"),
              StatusIs(kInvalid, "x, example 0 from 0: 'label' is missing; name files of labels beside the files"));
  const auto set = Open("files: 'x'");
  ASSERT_TRUE(set.ok());
  spec_.lanes = 1;
  // Prediction: 0 stands for it.
  const auto numbers =
      ReadNumbers({.spec = spec_, .streams = {0, 1}, .one_pass_in_order = true, .labels_may_be_missing = true}, *set);
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_THAT(*numbers, ElementsAre(ElementsAre(ElementsAre(0, 0))));
}

TEST_F(IdxTest, FilesAndLabelsBelongTogether) {
  dir_.Write("x0", Pictures(0, 2));
  dir_.Write("x1", Pictures(2, 4));
  dir_.Write("y0", Labels(0, 2));
  EXPECT_THAT(Open("files: 'x*' labels: 'y*'").status(),
              StatusIs(kInvalid, "data.train.labels: are 1 files; data.train.files are 2, and each needs one"));
  EXPECT_THAT(Open("files: 'x*' labels: 'z*'").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("data.train.labels: no file matches 'z*'")));
  dir_.Write("y1", Labels(2, 5));
  EXPECT_THAT(Open("files: 'x*' labels: 'y*'").status(), StatusIs(kInvalid, "y1: has 3 labels; x1 has 2 examples"));
  dir_.Write("y1", Pictures(2, 4));
  EXPECT_THAT(Open("files: 'x*' labels: 'y*'").status(),
              StatusIs(kInvalid, "y1: holds 4 values for each example; labels are one byte each"));
}

TEST_F(IdxTest, LabelsWithAnotherReaderAreRefused) {
  dir_.Write("x", "1 1\n");
  const DataSpec spec = MakeSpec(absl::StrCat("train { files: 'x' labels: 'x' } ", kOneNumber), dir_);
  EXPECT_THAT(DataSet::Open(spec.config, spec.config.train(), dir_.path(), "data.train").status(),
              StatusIs(kInvalid, "data.train.labels: only data.idx has labels in files of their own"));
}

TEST_F(IdxTest, AWrongHeaderIsRefused) {
  dir_.Write("y", Labels(0, 2));
  const auto open = [&](const std::string& x) {
    dir_.Write("x", x);
    return Open("files: 'x' labels: 'y'").status();
  };
  EXPECT_THAT(open("label,a\n1,2\n"), StatusIs(kInvalid, HasSubstr("x: is no IDX file")));
  EXPECT_THAT(open(Header({})), StatusIs(kInvalid, HasSubstr("x: is no IDX file")));
  EXPECT_THAT(open(Header({2, 2, 2}, 13)),
              StatusIs(kInvalid, "x: holds values of IDX type 13; only unsigned bytes, type 8, are read"));
  EXPECT_THAT(open(Header({2, 3}) + "abcdef"),
              StatusIs(kInvalid, "x: its examples have 3 values; data.idx.values is 4"));
  EXPECT_THAT(open(Header({2, 0})), StatusIs(kInvalid, "x: its examples have 0 values; data.idx.values is 4"));
  EXPECT_THAT(open(Header({4294967295u, 4294967295u, 4294967295u, 4294967295u, 4})),
              StatusIs(kInvalid, "x: its IDX header promises more than 2^60 bytes"));
  EXPECT_THAT(open(std::string("\0\0", 2)),
              StatusIs(kDataLoss, HasSubstr("x: cut: it ends in the middle of its IDX header")));
  EXPECT_THAT(open(Pictures(0, 2).substr(0, 15)),
              StatusIs(kDataLoss, HasSubstr("x: cut: it ends in the middle of its IDX header")));
}

TEST_F(IdxTest, APlainFileIsAsLongAsItsHeaderPromises) {
  dir_.Write("y", Labels(0, 2));
  dir_.Write("x", Pictures(0, 2).substr(0, 23));
  EXPECT_THAT(ReadAll(),
              StatusIs(kDataLoss, "x: has 23 bytes; its IDX header promises 2 x 4, so 24; get the file again"));
  dir_.Write("x", Pictures(0, 2) + "a");
  EXPECT_THAT(ReadAll(), StatusIs(kInvalid, "x: has 25 bytes; its IDX header promises 2 x 4, so 24"));
}

TEST_F(IdxTest, ACompressedFileIsAsLongAsItsHeaderPromises) {
  dir_.Write("y", Labels(0, 2));
  for (const int lanes : {1, 8}) {
    dir_.Write("x", Gzip(Pictures(0, 2).substr(0, 23)));
    EXPECT_THAT(ReadAll("files: 'x' labels: 'y'", lanes),
                StatusIs(kDataLoss, "x: ends in example 1 from 0; its IDX header promises 2; get the file again"));
    dir_.Write("x", Gzip(Pictures(0, 2) + "a"));
    EXPECT_THAT(ReadAll("files: 'x' labels: 'y'", lanes),
                StatusIs(kInvalid, "x: goes on behind the last example that its IDX header promises"));
  }
  dir_.Write("x", Pictures(0, 2));
  dir_.Write("y", Gzip(Labels(0, 2).substr(0, 9)));
  EXPECT_THAT(ReadAll(),
              StatusIs(kDataLoss, "y: ends in example 1 from 0; its IDX header promises 2; get the file again"));
  const std::string whole = Gzip(Labels(0, 2));
  dir_.Write("y", whole.substr(0, whole.size() - 4));
  EXPECT_THAT(ReadAll(), StatusIs(kDataLoss, HasSubstr("y: cut: the compressed data ends")));
}

TEST_F(IdxTest, AFileThatShrinksIsDataLoss) {
  dir_.Write("x", Pictures(0, 100));
  const auto set = Open("files: 'x'");
  ASSERT_TRUE(set.ok());
  dir_.Write("x", Pictures(0, 2));
  spec_.lanes = 1;
  EXPECT_THAT(ReadNumbers({.spec = spec_, .streams = {0, 1}, .labels_may_be_missing = true}, *set).status(),
              StatusIs(kDataLoss, HasSubstr("x: ends at byte 24, had 416 bytes when the job started")));
}

TEST(IdxParserTest, BadConfigurationsAreRefused) {
  EXPECT_THAT(MakeLineParser(ParseData("idx {}")).status(),
              StatusIs(kInvalid, "data.idx.values must be at least 1, got 0"));
  EXPECT_THAT(MakeLineParser(ParseData("idx { values: 1 output: 'label' }")).status(),
              StatusIs(kInvalid, "data.idx.output must be a name other than 'label', got 'label'"));
}

}  // namespace
}  // namespace weir
