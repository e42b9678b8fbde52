// Files and their lines. stream_rule_test has the rule that cuts them into streams.

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/files/line_source.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
constexpr uint64_t kSeed = 3;

absl::StatusOr<DataSet> OpenIn(const TempDir& dir, const std::vector<std::string>& patterns) {
  v1::DataSource source;
  for (const std::string& pattern : patterns) source.add_files(pattern);
  return DataSet::Open(source, dir.path(), "data.train");
}

// The lines of one stream.
absl::StatusOr<std::vector<std::string>> ReadLines(const DataSet& set, int stream, int streams) {
  std::vector<std::string> lines;
  int64_t dealt = 0;
  for (const Segment& segment : set.Stream(stream, streams)) {
    CHECK(segment.dealt) << segment.file;
    const DataFile& file = set.files()[static_cast<size_t>(segment.file)];
    auto source = LineSource::Open(file, segment);
    if (!source.ok()) return source.status();
    std::string_view line;
    int64_t offset;
    while ((*source)->Next(&line, &offset)) {
      const int64_t round = dealt / streams, place = dealt % streams;
      ++dealt;
      if (place == PlaceInRound(kSeed, round, stream, streams)) lines.emplace_back(line);
    }
    if (!(*source)->status().ok()) return (*source)->status();
  }
  return lines;
}

std::vector<std::string> Lines(const DataSet& set, int stream, int streams) {
  auto lines = ReadLines(set, stream, streams);
  CHECK(lines.ok()) << lines.status();
  return *lines;
}

class DataSetTest : public ::testing::Test {
 protected:
  absl::StatusOr<DataSet> Open(const std::vector<std::string>& patterns) { return OpenIn(dir_, patterns); }
  static absl::Status ReadAll(const absl::StatusOr<DataSet>& set) {
    CHECK(set.ok()) << set.status();
    return ReadLines(*set, 0, 1).status();
  }

  TempDir dir_;
};

TEST_F(DataSetTest, StreamsCoverEveryLineExactlyOnceForAnyLanesAndFiles) {
  // Lines of many lengths, one of them longer than a stream.
  std::vector<std::string> lines;
  for (size_t i = 0; i < 60; ++i) lines.push_back(absl::StrCat("line", i, std::string(i * i % 37, 'x')));
  lines[17] += std::string(2000, 'y');
  std::vector<std::string> sorted = lines;
  std::sort(sorted.begin(), sorted.end());
  for (size_t plain = 0; plain <= 3; ++plain) {
    for (size_t compressed = 0; compressed <= 9; compressed += 3) {
      const size_t files = plain + compressed;
      if (files == 0) continue;
      TempDir dir;
      for (size_t f = 0; f < files; ++f) {
        std::string text;
        for (size_t i = f; i < lines.size(); i += files) text += lines[i] + "\n";
        if (f % 2 == 1) text.pop_back();
        const bool is_plain = f * plain / files != (f + 1) * plain / files;  // spread among the others
        dir.Write(absl::StrCat("f", f), is_plain ? text : f % 3 == 0 ? Zstd(text) : Gzip(text));
      }
      const auto set = OpenIn(dir, {"f*"});
      ASSERT_TRUE(set.ok()) << set.status();
      for (const int streams : {1, 2, 3, 4, 8, 64}) {
        std::vector<std::string> seen;
        for (int s = 0; s < streams; ++s) {
          for (const std::string& line : Lines(*set, s, streams)) seen.push_back(line);
        }
        std::sort(seen.begin(), seen.end());
        EXPECT_EQ(seen, sorted) << plain << " plain, " << compressed << " compressed, " << streams << " streams";
      }
    }
  }
}

TEST_F(DataSetTest, APipeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo((dir_.path() + "/pipe").c_str(), 0600), 0);
  EXPECT_THAT(Open({"pipe"}).status(), StatusIs(kInvalid, HasSubstr("pipe: is no regular file")));
  EXPECT_THAT(Open({"/dev/zero"}).status(), StatusIs(kInvalid, HasSubstr("/dev/zero: is no regular file")));
}

// Lines that begin in [begin, end) of the file "f".
std::vector<std::string> Part(const absl::StatusOr<DataSet>& set, int64_t begin, int64_t end) {
  CHECK(set.ok()) << set.status();
  auto source = LineSource::Open(set->files()[0], {.begin = begin, .end = end});
  CHECK(source.ok()) << source.status();
  std::vector<std::string> lines;
  std::string_view line;
  int64_t offset;
  while ((*source)->Next(&line, &offset)) lines.emplace_back(line);
  CHECK((*source)->status().ok()) << (*source)->status();
  return lines;
}

TEST_F(DataSetTest, ALineBelongsToThePartThatItBeginsIn) {
  dir_.Write("f", "aaaa\nccccccc\nddddd\n");
  const auto set = Open({"f"});
  EXPECT_THAT(Part(set, 0, 10), ElementsAre("aaaa", "ccccccc"));
  EXPECT_THAT(Part(set, 10, 19), ElementsAre("ddddd"));
  // One that begins at the cut belongs to what comes behind it.
  EXPECT_THAT(Part(set, 0, 5), ElementsAre("aaaa"));
  EXPECT_THAT(Part(set, 5, 6), ElementsAre("ccccccc"));
  EXPECT_THAT(Part(set, 6, 13), ElementsAre());
}

TEST_F(DataSetTest, ALineOfAnyLengthIsReadBeyondItsPart) {
  for (const size_t length : {1000u, 1023u, 1024u, 1025u, 300000u}) {
    const std::string line(length, 'x');
    dir_.Write("f", "a\n" + line + "\nb\n");
    EXPECT_THAT(Part(Open({"f"}), 1, 3), ElementsAre(line)) << length;
    EXPECT_THAT(Part(Open({"f"}), 3, static_cast<int64_t>(length) + 4), ElementsAre("b")) << length;
  }
}

TEST_F(DataSetTest, StreamsAreThoseOfThePlainFileHoweverItIsPackedAndCut) {
  std::vector<std::string> lines;
  for (int i = 0; i < 1000; ++i) lines.push_back(absl::StrCat("line ", i, "\n"));
  const auto text = [&](size_t begin, size_t end) {
    std::string some;
    for (size_t i = begin; i < end; ++i) some += lines[i];
    return some;
  };
  dir_.Write("plain", text(0, 1000));
  dir_.Write("padded", PaddedGzip(text(0, 1000), 20 << 20));
  for (int f = 0; f < 10; ++f) {
    const std::string part = text(static_cast<size_t>(100 * f), static_cast<size_t>(100 * f + 100));
    dir_.Write(absl::StrCat("part", f), f % 3 == 0 ? part : f % 3 == 1 ? Gzip(part) : Zstd(part));
  }
  for (const int streams : {1, 2, 8}) {
    for (int s = 0; s < streams; ++s) {
      const std::vector<std::string> plain = Lines(*Open({"plain"}), s, streams);
      EXPECT_EQ(Lines(*Open({"padded"}), s, streams), plain);
      EXPECT_EQ(Lines(*Open({"part*"}), s, streams), plain);
    }
  }
}

// Rounds of four lines go on from file to file. With this seed both begin at stream 0.
TEST_F(DataSetTest, LinesOfCompressedFilesAreDealtOneByOne) {
  dir_.Write("f0", Gzip("0\n1\n2\n3\n4\n"));
  dir_.Write("f1", Gzip("5\n6\n7\n"));
  const auto set = Open({"f*"});
  ASSERT_TRUE(set.ok());
  EXPECT_THAT(Lines(*set, 0, 4), ElementsAre("0", "4"));
  EXPECT_THAT(Lines(*set, 1, 4), ElementsAre("1", "5"));
  EXPECT_THAT(Lines(*set, 3, 4), ElementsAre("3", "7"));
}

TEST_F(DataSetTest, CarriageReturnsAndAMissingLastNewlineChangeNothing) {
  dir_.Write("unix", "a\tb\nc\n");
  dir_.Write("dos", "a\tb\r\nc");
  dir_.Write("gz", Gzip("a\tb\r\nc"));
  for (const char* name : {"unix", "dos", "gz"}) {
    const auto set = Open({name});
    ASSERT_TRUE(set.ok());
    EXPECT_THAT(Lines(*set, 0, 1), ElementsAre("a\tb", "c")) << name;
  }
}

TEST_F(DataSetTest, AnEmptyFileAmongOthersIsFine) {
  dir_.Write("f0", "");
  dir_.Write("f1", "a\n");
  dir_.Write("f2", Gzip(""));
  const auto set = Open({"f*"});
  ASSERT_TRUE(set.ok());
  EXPECT_THAT(Lines(*set, 0, 1), ElementsAre("a"));
}

TEST_F(DataSetTest, ConcatenatedGzipFilesAreOneText) {
  dir_.Write("f.gz", Gzip("a\nb") + Gzip("") + Gzip("c\nd\n"));
  const auto set = Open({"f.gz"});
  ASSERT_TRUE(set.ok());
  EXPECT_THAT(Lines(*set, 0, 1), ElementsAre("a", "bc", "d"));
}

TEST_F(DataSetTest, GzipIsKnownByContent) {
  dir_.Write("f.tsv", Gzip("a\n"));
  const auto set = Open({"f.tsv"});
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->files()[0].compression, Compression::kGzip);
  EXPECT_THAT(Lines(*set, 0, 1), ElementsAre("a"));
}

TEST_F(DataSetTest, LinesLongerThanABlockAreWhole) {
  const std::string line(3 << 20, 'x');
  dir_.Write("f", line + "\nb\n");
  dir_.Write("g", Gzip(line + "\nb\n"));
  const auto set = Open({"f", "g"});
  ASSERT_TRUE(set.ok());
  EXPECT_THAT(Lines(*set, 0, 1), ElementsAre(line, "b", line, "b"));
}

TEST_F(DataSetTest, ALineWithoutEndIsRefused) {
  dir_.Write("f", "a\n" + std::string(static_cast<size_t>(2 * LineSource::kMaxLine), 'x'));
  EXPECT_THAT(ReadAll(Open({"f"})), StatusIs(kInvalid,
                                             "f:2: the line at byte 2 is longer than 16777216 bytes: is this a text "
                                             "with lines?"));
}

TEST_F(DataSetTest, APartWithoutTheStartOfALineReadsNothingBehindItself) {
  dir_.Write("f", std::string(200000, 'x') + "\nb\n");
  const auto set = Open({"f"});
  EXPECT_THAT(Part(set, 199990, 200003), ElementsAre("b"));
  // Who looks for the end of the line finds the file cut.
  std::filesystem::resize_file(dir_.path() + "/f", 100000);
  EXPECT_THAT(Part(set, 1, 1001), ElementsAre());
  EXPECT_THAT(Part(set, 5000, 50000), ElementsAre());
}

TEST_F(DataSetTest, AByteOrderMarkIsNoPartOfTheFirstLine) {
  const std::string mark = "\xEF\xBB\xBF";
  dir_.Write("f", mark + "a\n" + mark + "b\n");
  dir_.Write("g", Gzip(mark + "a"));
  dir_.Write("h", mark);
  dir_.Write("i", mark + "\nb\n");
  EXPECT_THAT(Lines(*Open({"f"}), 0, 1), ElementsAre("a", mark + "b"));
  EXPECT_THAT(Lines(*Open({"g"}), 0, 1), ElementsAre("a"));
  EXPECT_THAT(Lines(*Open({"h"}), 0, 1), ElementsAre());
  EXPECT_THAT(Lines(*Open({"i"}), 0, 1), ElementsAre("", "b"));
}

TEST_F(DataSetTest, TextInUtf16IsRefused) {
  dir_.Write("f", std::string("\xFF\xFE"
                              "a\0\n\0",
                              6));
  dir_.Write("g", Gzip(std::string("\xFE\xFF\0"
                                   "a\0\n",
                                   6)));
  for (const std::string name : {"f", "g"}) {
    EXPECT_THAT(ReadAll(Open({name})),
                StatusIs(kInvalid, name + ": begins with the byte order mark of UTF-16, and data is text in UTF-8: "
                                          "write it again with iconv -f UTF-16 -t UTF-8, or let the job do so "
                                          "(data.pipe)"));
  }
}

TEST_F(DataSetTest, FilesAreSortedByNameAndNamedOnce) {
  dir_.Write("b", "b\n");
  dir_.Write("a", "a\n");
  dir_.Write("c", Gzip("c\n"));
  const auto set = Open({"b", "?"});
  ASSERT_TRUE(set.ok());
  ASSERT_EQ(set->files().size(), 3u);
  EXPECT_EQ(set->files()[0].name, "a");
  EXPECT_THAT(set->Description(),
              MatchesRegex(absl::StrCat("a: 2 bytes, xxh3 [0-9a-f]{16}\nb: 2 bytes, xxh3 [0-9a-f]{16}\nc: ",
                                        Gzip("c\n").size(), " bytes, gzip, xxh3 [0-9a-f]{16}\n")));
}

TEST_F(DataSetTest, DescriptionsDifferInContentsAndNotInNames) {
  const auto described = [this](const std::string& name, const std::string& text) {
    dir_.Write(name, text);
    const auto set = Open({name});
    EXPECT_TRUE(set.ok()) << set.status();
    return set->Description();
  };
  const std::string text(20000, 'a');
  std::string middle = text, end = text;
  middle[10100] = 'b';
  end[19999] = 'b';
  EXPECT_EQ(FirstDataDifference(described("one", text), described("two", text)), "");
  for (const std::string& other : {middle, end, "b" + text.substr(1)}) {
    EXPECT_EQ(FirstDataDifference(described("one", text), described("one", other)),
              "'one' here and there have 20000 bytes each and other contents");
  }
  EXPECT_EQ(FirstDataDifference(described("one", text), described("two", "a\n")),
            "'one' has 20000 bytes here, 'two' 2 bytes there");
  // The header of a gzip file says when it was made, which is no difference of its text.
  std::string made = Gzip("a\n"), later = made;
  later[4] ^= 1;
  EXPECT_EQ(FirstDataDifference(described("one", made), described("one", later)), "");
  EXPECT_NE(FirstDataDifference(described("one", made), described("one", Gzip("b\n"))), "");
}

TEST_F(DataSetTest, AFileThatOnlyOneSideHasIsNamed) {
  const auto described = [this](const std::vector<std::string>& names) {
    for (const std::string& name : names) dir_.Write(name, name + "\n");
    const auto set = Open(names);
    EXPECT_TRUE(set.ok()) << set.status();
    return set->Description();
  };
  const std::string all = described({"one", "three", "two"});
  EXPECT_EQ(FirstDataDifference(all, described({"one", "two"})), "3 files here, 2 there; 'three' is only here");
  EXPECT_EQ(FirstDataDifference(described({"one", "two"}), all), "2 files here, 3 there; 'three' is only there");
  EXPECT_EQ(FirstDataDifference(all, described({"one", "three"})), "3 files here, 2 there; 'two' is only here");
  EXPECT_EQ(FirstDataDifference(described({"one", "three"}), all), "2 files here, 3 there; 'two' is only there");
}

TEST_F(DataSetTest, AMissingFileIsReportedWithWhereItWasLookedFor) {
  EXPECT_THAT(
      Open({"train-*.tsv"}).status(),
      StatusIs(absl::StatusCode::kNotFound, absl::StrCat("data.train.files: no file matches 'train-*.tsv' (looked for ",
                                                         dir_.path(), "/train-*.tsv)")));
  // So is one in a directory that is not there.
  EXPECT_THAT(Open({"nowhere/train-*.tsv"}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no file matches 'nowhere/train-*.tsv'")));
}

TEST_F(DataSetTest, NoFilesAtAllIsRefused) {
  EXPECT_THAT(Open({}).status(), StatusIs(kInvalid, "data.train: no files; write files: \"data/train-*.tsv\""));
}

TEST_F(DataSetTest, NothingButEmptyFilesIsRefused) {
  dir_.Write("f", "");
  EXPECT_THAT(Open({"f"}).status(), StatusIs(kInvalid, "data.train.files: f is empty"));
  dir_.Write("g", "");
  EXPECT_THAT(Open({"?"}).status(), StatusIs(kInvalid, "data.train.files: every file is empty"));
}

TEST_F(DataSetTest, ADirectoryIsRefused) {
  std::filesystem::create_directory(dir_.path() + "/sub");
  EXPECT_THAT(Open({"sub"}).status(),
              StatusIs(kInvalid, HasSubstr("sub: is a directory; name the files in it: \"sub/*\"")));
}

TEST_F(DataSetTest, ANameThatPromisesGzipMustKeepIt) {
  dir_.Write("f.tsv.gz", "1\t2\n");
  EXPECT_THAT(Open({"f.tsv.gz"}).status(),
              StatusIs(kInvalid, "f.tsv.gz: is not gzip though its name says so; rename it if it is plain"));
  dir_.Write("g.gz", "");
  EXPECT_THAT(Open({"g.gz"}).status(), StatusIs(kDataLoss, "g.gz: cut: 0 bytes are no gzip file; get the file again"));
}

TEST_F(DataSetTest, ACutGzipFileIsDataLossWithTheOffset) {
  const std::string whole = Gzip(NumberLines(0, 5000));
  dir_.Write("f.gz", whole.substr(0, whole.size() / 2));
  EXPECT_THAT(ReadAll(Open({"f.gz"})),
              StatusIs(kDataLoss, absl::StrCat("f.gz: cut: the compressed data ends at byte ", whole.size() / 2,
                                               " in the middle of a stream; get the file again")));
  // The last bytes are the checksum and the length.
  dir_.Write("f.gz", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(ReadAll(Open({"f.gz"})), StatusIs(kDataLoss, HasSubstr("cut")));
}

TEST_F(DataSetTest, AFlippedBitInAGzipFileIsDataLoss) {
  std::string bytes = Gzip(NumberLines(0, 5000));
  bytes[bytes.size() / 2] ^= 0x10;
  dir_.Write("f.gz", bytes);
  EXPECT_THAT(ReadAll(Open({"f.gz"})),
              StatusIs(kDataLoss, AllOf(StartsWith("f.gz: damaged gzip at byte "), HasSubstr("get the file again"))));
}

TEST_F(DataSetTest, EveryDamageOfAGzipFileIsSeen) {
  const std::string whole = Gzip(NumberLines(0, 60));
  // Bytes 3 to 9 of the header (flags, time, system) carry no data: some may change without harm, none may crash.
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] ^= 0x55;
    dir_.Write("f", bytes);
    if (at < 2) continue;  // no gzip file at all
    const absl::Status status = ReadAll(Open({"f"}));
    EXPECT_TRUE(at < 10 || status.code() == kDataLoss) << "byte " << at << ": " << status;
    dir_.Write("f", whole.substr(0, at));
    EXPECT_EQ(ReadAll(Open({"f"})).code(), kDataLoss) << "cut at " << at;
  }
}

TEST_F(DataSetTest, ZstdIsKnownByContent) {
  dir_.Write("f.tsv", Zstd("a\n"));
  // Some compressors write a frame of their own in front, to be skipped.
  dir_.Write("g", std::string("\x50\x2a\x4d\x18\x04\0\0\0abcd", 12) + Zstd("b\n"));
  const auto set = Open({"f.tsv", "g"});
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->files()[0].compression, Compression::kZstd);
  EXPECT_EQ(set->files()[1].compression, Compression::kZstd);
  EXPECT_THAT(Lines(*set, 0, 1), ElementsAre("a", "b"));
  EXPECT_THAT(set->Description(), HasSubstr(" bytes, zstd, xxh3 "));
}

TEST_F(DataSetTest, ConcatenatedZstdFramesAreOneText) {
  dir_.Write("f.zst", Zstd("a\nb") + Zstd("") + Zstd("c\nd\n"));
  const auto set = Open({"f.zst"});
  ASSERT_TRUE(set.ok());
  EXPECT_THAT(Lines(*set, 0, 1), ElementsAre("a", "bc", "d"));
}

TEST_F(DataSetTest, WhatAZstdFileHoldsBeyondABlockIsWhole) {
  // One frame that is far smaller than what it holds: much comes out before anything more is read.
  std::string text;
  for (int i = 0; i < 300000; ++i) text += "the same line\n";
  dir_.Write("f", Zstd(text));
  const auto set = Open({"f"});
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(Lines(*set, 0, 1), std::vector<std::string>(300000, "the same line"));
}

TEST_F(DataSetTest, ANameThatPromisesZstdMustKeepIt) {
  dir_.Write("f.zst", Gzip("1\t2\n"));
  EXPECT_THAT(Open({"f.zst"}).status(),
              StatusIs(kInvalid, "f.zst: is not zstd though its name says so; rename it if it is plain"));
  dir_.Write("g.zst", "\x28\xb5");
  EXPECT_THAT(Open({"g.zst"}).status(),
              StatusIs(kDataLoss, "g.zst: cut: 2 bytes are no zstd file; get the file again"));
}

TEST_F(DataSetTest, EveryDamageOfAZstdFileIsSeen) {
  const std::string whole = Zstd(NumberLines(0, 60));
  for (size_t at = 4; at < whole.size(); ++at) {
    dir_.Write("f", whole.substr(0, at));
    EXPECT_THAT(ReadAll(Open({"f"})),
                StatusIs(kDataLoss, absl::StrCat("f: cut: the compressed data ends at byte ", at,
                                                 " in the middle of a stream; get the file again")));
    std::string bytes = whole;
    bytes[at] ^= 0x55;
    dir_.Write("f", bytes);
    const absl::Status status = ReadAll(Open({"f"}));
    // Byte 5 is the size of the window, which may change without harm.
    EXPECT_TRUE(status.code() == kDataLoss || at == 5) << "byte " << at << ": " << status;
  }
  dir_.Write("f", whole + "more");
  EXPECT_THAT(ReadAll(Open({"f"})), StatusIs(kDataLoss, HasSubstr("f: damaged zstd at byte ")));
}

TEST_F(DataSetTest, AZstdWindowBeyondReasonIsRefused) {
  dir_.Write("f", Zstd("a\n", /*window_log=*/28));
  EXPECT_THAT(ReadAll(Open({"f"})),
              StatusIs(kInvalid, HasSubstr("f: was compressed with a window of more than 128 MiB")));
}

TEST_F(DataSetTest, AFileThatShrinksIsDataLoss) {
  dir_.Write("f", NumberLines(0, 1000));
  const auto set = Open({"f"});
  ASSERT_TRUE(set.ok());
  dir_.Write("f", "1 0\n");
  EXPECT_THAT(ReadAll(set), StatusIs(kDataLoss, absl::StrCat("f: ends at byte 4, had ", NumberLines(0, 1000).size(),
                                                             " bytes when the job started")));
}

TEST_F(DataSetTest, AFileThatGrowsIsReadUpToWhereItWas) {
  dir_.Write("f", "a\nb\n");
  const auto set = Open({"f"});
  ASSERT_TRUE(set.ok());
  dir_.Write("f", "a\nb\nc\n");
  EXPECT_THAT(Lines(*set, 0, 1), ElementsAre("a", "b"));
}

TEST_F(DataSetTest, AFileThatVanishesIsNotFound) {
  dir_.Write("f", "a\n");
  const auto set = Open({"f"});
  ASSERT_TRUE(set.ok());
  std::filesystem::remove(dir_.path() + "/f");
  EXPECT_THAT(ReadAll(set), StatusIs(absl::StatusCode::kNotFound, "f: cannot open: No such file or directory"));
}

TEST_F(DataSetTest, ValuesOfPartitionsAreOfTheContents) {
  const auto open = [&](const std::string& day) {
    TempDir dir;
    std::filesystem::create_directories(absl::StrCat(dir.path(), "/dt=", day));
    dir.Write(absl::StrCat("dt=", day, "/f"), "x\n1\n");
    return DataSet::Open(
        ParseData("csv { column { name: 'x' } } partition { name: 'dt' type: ID } train { files: '*/f' }"),
        ParseData("train { files: '*/f' }").train(), dir.path(), "data.train");
  };
  const auto one = open("20240105"), other = open("20240106"), wrong = open("x");
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_THAT(one->files()[0].partitions, ElementsAre("20240105"));
  EXPECT_EQ(FirstDataDifference(one->Description(), open("20240105")->Description()), "");
  EXPECT_EQ(FirstDataDifference(one->Description(), other->Description()),
            "'dt=20240105/f' here and 'dt=20240106/f' there have 4 bytes each and other contents");
  EXPECT_THAT(wrong.status(),
              StatusIs(kInvalid, StartsWith("dt=x/f: the directory 'dt=x': 'x' is not a 64-bit integer")));
}

TEST_F(DataSetTest, LineNumbersCountFromOne) {
  dir_.Write("f", "a\nbb\nccc\n");
  dir_.Write("g", Gzip("a\nbb\nccc\n"));
  const auto set = Open({"f", "g"});
  ASSERT_TRUE(set.ok());
  for (const DataFile& file : set->files()) {
    EXPECT_EQ(LineNumber(file, 0).value(), 1);
    EXPECT_EQ(LineNumber(file, 2).value(), 2);
    EXPECT_EQ(LineNumber(file, 5).value(), 3);
  }
}

}  // namespace
}  // namespace weir
