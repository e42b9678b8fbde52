// Example files: written from any reader, they give what the reader gives, at any place and after any skip.
#include "trainer/files/example_file.h"
#include "framework/formats/derived.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/formats/line_parser.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/example_stream.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

constexpr char kReader[] = R"(csv { header: false
    column { name: "label" }
    column { name: "user" type: ID output: "cat" }
    column { name: "age" output: "dense" }
    column { name: "city" type: TEXT output: "cat" }
    column { name: "height" output: "dense" }
    column { name: "items" type: ID list: "|" weight: ":" } } )";

std::string Lines(uint64_t begin, uint64_t end) {
  std::string text;
  for (uint64_t i = begin; i < end; ++i) {
    const PhiloxBlock r = Philox(1, i, 0);
    absl::StrAppend(&text, i % 2, ",", r.v[0] % 5 == 0 ? "" : absl::StrCat(r.v[1]), ",", r.v[2] % 90, ",city",
                    r.v[3] % 40, ",", r.v[2] % 3 == 0 ? "" : "1.75", ",");
    for (uint32_t item = 0; item < r.v[1] % 4; ++item) {
      absl::StrAppend(&text, item > 0 ? "|" : "", uint64_t{r.v[item]} << item % 3 * 16, r.v[3] % 2 == 0 ? "" : ":0.5");
    }
    text += "\n";
  }
  return text;
}

class ExampleFileTest : public ::testing::Test {
 protected:
  void SetUp() override { UseReader(kReader); }
  void UseReader(const std::string& reader) {
    data_ = ParseData(reader);
    auto parser = MakeLineParser(data_);
    ASSERT_TRUE(parser.ok()) << parser.status();
    parser_ = *std::move(parser);
  }
  // Writes the lines to a file of examples.
  v1::ExampleFile Convert(const std::string& lines, const std::string& name) {
    auto writer = ExampleFileWriter::Create(dir_.path() + "/" + name, parser_->columns(), "csv {}");
    CHECK(writer.ok()) << writer.status();
    Example example;
    ExampleStream::Prepare(*parser_, &example);
    for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
      std::string padded(line);
      padded.resize(padded.size() + LineParser::kPadding);
      CHECK_EQ(parser_->Parse(std::string_view(padded).substr(0, line.size()), &example), absl::OkStatus()) << line;
      CHECK_EQ((*writer)->Add(example), absl::OkStatus());
    }
    auto finished = (*writer)->Finish();
    CHECK(finished.ok()) << finished.status();
    return *finished;
  }
  absl::StatusOr<DataSet> Open(const std::string& files) {
    v1::DataSource source;
    for (const absl::string_view file : absl::StrSplit(files, ' ')) source.add_files(std::string(file));
    return DataSet::Open(data_, source, dir_.path(), "data.train");
  }
  // All examples of a stream, as bytes, by both forms of Next.
  absl::StatusOr<std::vector<std::string>> Read(const DataSet& set, int stream = 0, int streams = 1,
                                                const RowFilter* where = nullptr) {
    std::vector<std::string> examples, records;
    const auto bytes = [](const Example& example) {
      const ExampleRecordSizes sizes = SizesOf(example);
      std::string out(sizes.bytes, '\0');
      WriteExampleRecord(example, sizes, out.data());
      return out;
    };
    const ExampleStream::Options options = {.data = &set,
                                            .parser = parser_.get(),
                                            .stream = stream,
                                            .streams = streams,
                                            .where = where,
                                            .required = {{0, "label"}}};
    Example example;
    ExampleStream::Prepare(*parser_, &example);
    InputPosition position, last{.file = -1};
    ExampleStream one(options), other(options);
    while (one.Next(&example, &position)) {
      EXPECT_LT(last, position);
      last = position;
      examples.push_back(bytes(example));
    }
    if (!one.status().ok()) return one.status();
    RecordPool pool;
    Record record;
    Example copy;
    ExampleStream::Prepare(*parser_, &copy);
    while (other.Next(&example, &pool, &record, &position)) {
      record.CopyTo(&copy);
      records.push_back(bytes(copy));
      EXPECT_EQ(record.bytes(), int64_t{SizesOf(copy).full_bytes});
    }
    EXPECT_EQ(other.status(), absl::OkStatus());
    EXPECT_EQ(records, examples);
    return examples;
  }
  std::vector<std::string> MustRead(const std::string& files, int stream = 0, int streams = 1) {
    const auto set = Open(files);
    EXPECT_TRUE(set.ok()) << set.status();
    if (!set.ok()) return {};
    auto examples = Read(*set, stream, streams);
    EXPECT_TRUE(examples.ok()) << examples.status();
    return examples.ok() ? *examples : std::vector<std::string>();
  }
  void Change(const std::string& name, const std::function<void(std::string*)>& change) {
    std::ifstream in(dir_.path() + "/" + name, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    in.close();
    change(&bytes);
    dir_.Write(name, bytes);
  }

  TempDir dir_;
  v1::Data data_;
  std::unique_ptr<LineParser> parser_;
};

TEST_F(ExampleFileTest, GivesWhatTheReaderGives) {
  const std::string lines = Lines(0, 20000);
  dir_.Write("text", lines);
  const v1::ExampleFile description = Convert(lines, "examples");
  EXPECT_EQ(description.examples(), 20000);
  EXPECT_GT(description.block_bytes_size(), 3);
  EXPECT_EQ(MustRead("examples"), MustRead("text"));
  // Streams divide them, by parts or in turn.
  for (const int streams : {2, 3, 8}) {
    std::vector<std::string> all;
    size_t least = SIZE_MAX, most = 0;
    for (int stream = 0; stream < streams; ++stream) {
      const std::vector<std::string> part = MustRead("examples", stream, streams);
      least = std::min(least, part.size());
      most = std::max(most, part.size());
      all.insert(all.end(), part.begin(), part.end());
    }
    std::vector<std::string> wanted = MustRead("text");
    std::sort(all.begin(), all.end());
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(all, wanted);
    EXPECT_LE(most - least, 1u);
  }
  // Text and examples may stand beside each other.
  dir_.Write("more", Lines(20000, 20100));
  EXPECT_EQ(MustRead("examples more").size(), 20100u);
}

TEST_F(ExampleFileTest, DerivedVariablesAndRulesAreThoseOfTheJob) {
  const std::string lines = Lines(0, 3000);
  Convert(lines, "examples");
  dir_.Write("text", lines);
  UseReader(absl::StrCat(kReader,
                         "derived { name: 'x' cross { of: 'user' of: 'city' } } train { where { of: 'x' modulo: 3 "
                         "remainder: 1 hashed: true } where { of: 'dense[0]' from: 30 } }"));
  const auto filter =
      RowFilter::Create(parser_->columns(), data_.train().where(), "train.where", PlainSettingErrors("data"));
  ASSERT_TRUE(filter.ok()) << filter.status();
  const auto examples = Read(*Open("examples"), 0, 1, &*filter), text = Read(*Open("text"), 0, 1, &*filter);
  ASSERT_TRUE(examples.ok() && text.ok()) << examples.status() << text.status();
  EXPECT_EQ(*examples, *text);
  EXPECT_GT(text->size(), 200u);
  EXPECT_LT(text->size(), 1500u);
}

// What is drawn for an example (Example.draw) is the same on text and on the example file made of it, where both are
// dealt in turn, whatever the number of streams and whatever `where` leaves out; it is another in every epoch.
TEST_F(ExampleFileTest, DrawsAreThoseOfTheText) {
  UseReader(absl::StrCat(kReader, "train { where { of: 'dense[0]' from: 30 } }"));
  Convert(Lines(0, 900), "a");
  Convert(Lines(900, 2000), "b");
  dir_.Write("a.txt", Lines(0, 900));
  dir_.Write("b.txt", Lines(900, 2000));
  dir_.Write("b.txt.gz", Gzip(Lines(900, 2000)));
  const auto filter =
      RowFilter::Create(parser_->columns(), data_.train().where(), "train.where", PlainSettingErrors("data"));
  ASSERT_TRUE(filter.ok()) << filter.status();
  // By example: its draws in two epochs.
  const auto draws = [&](const std::string& files, int streams) {
    std::map<std::string, std::vector<uint64_t>> drawn;
    const absl::StatusOr<DataSet> set = Open(files);
    CHECK(set.ok()) << set.status();
    for (int stream = 0; stream < streams; ++stream) {
      ExampleStream examples(
          {.data = &*set, .parser = parser_.get(), .stream = stream, .streams = streams, .seed = 7, .where = &*filter});
      Example example;
      ExampleStream::Prepare(*parser_, &example);
      InputPosition position;
      for (int64_t epoch = 0; epoch < 2; ++epoch) {
        if (epoch > 0) examples.Rewind(epoch);
        while (examples.Next(&example, &position)) {
          const ExampleRecordSizes sizes = SizesOf(example);
          std::string bytes(sizes.bytes, '\0');
          WriteExampleRecord(example, sizes, bytes.data());
          drawn[bytes].push_back(example.draw);
        }
        EXPECT_EQ(examples.status(), absl::OkStatus());
      }
    }
    return drawn;
  };
  const auto text = draws("a.txt b.txt", 1);
  std::set<uint64_t> all;
  size_t examples = 0;
  for (const auto& [example, drawn] : text) {
    all.insert(drawn.begin(), drawn.end());
    examples += drawn.size();
  }
  EXPECT_GT(examples, 2000u);
  EXPECT_EQ(all.size(), examples);
  for (const int streams : {1, 3, 8}) {
    EXPECT_EQ(draws("a.txt b.txt", streams), text) << streams;
    EXPECT_EQ(draws("a b", streams), text) << streams;
    EXPECT_EQ(draws("a.txt b.txt.gz", streams), text) << streams;
  }
}

TEST_F(ExampleFileTest, SkipsBlocks) {
  const std::string lines = Lines(0, 20000);
  Convert(lines, "examples");
  const auto set = Open("examples");
  ASSERT_TRUE(set.ok()) << set.status();
  const DataFile& file = set->files()[0];
  std::vector<std::string> all;
  std::string_view record;
  int64_t offset;
  for (ExampleFileSource source(file, {.begin = 0, .end = 20000}); source.Next(&record, &offset);) {
    EXPECT_EQ(offset, static_cast<int64_t>(all.size()));
    all.emplace_back(record);
  }
  for (uint64_t i = 0; i < 200; ++i) {
    const PhiloxBlock r = Philox(2, i, 0);
    const int64_t begin = r.v[0] % 20000, end = begin + r.v[1] % (20001 - begin);
    ExampleFileSource source(file, {.begin = begin, .end = end});
    int64_t at = begin;
    for (uint32_t draw = 0; at < end; ++draw) {
      const int64_t skip = Philox(3, i, draw).v[0] % (i % 2 == 0 ? 3 : 9000);
      EXPECT_EQ(source.Skip(skip), std::min(skip, end - at));
      at += std::min(skip, end - at);
      const bool there = source.Next(&record, &offset);
      EXPECT_EQ(there, at < end);
      if (!there) break;
      ASSERT_EQ(offset, at);
      ASSERT_EQ(record, all[static_cast<size_t>(at)]);
      ++at;
    }
    EXPECT_EQ(source.status(), absl::OkStatus());
  }
}

TEST_F(ExampleFileTest, DescribesItsValues) {
  const v1::ExampleFile description = Convert("1,7,30,Rome,1.5,1|2|3\n0,,50,Rome,,\n1,8,40,Oslo,2.5,9\n", "examples");
  EXPECT_EQ(description.examples(), 3);
  EXPECT_EQ(description.reader(), "csv {}");
  EXPECT_EQ(description.float_column_size(), 3);
  EXPECT_EQ(description.float_column(1).values(), 3);
  EXPECT_EQ(description.float_column(1).least(), 30);
  EXPECT_EQ(description.float_column(1).largest(), 50);
  EXPECT_DOUBLE_EQ(description.float_column(1).mean(), 40);
  EXPECT_DOUBLE_EQ(description.float_column(1).deviation(), std::sqrt(200.0 / 3));
  EXPECT_EQ(description.float_column(2).values(), 2);
  EXPECT_EQ(description.slot(0).ids(), 2);
  EXPECT_EQ(description.slot(0).empty(), 1);
  EXPECT_EQ(description.slot(2).ids(), 4);
  EXPECT_EQ(description.slot(2).most(), 3);
  EXPECT_EQ(description.variable(1).id_kind(1), v1::ExampleFile::TEXT);
  const v1::ExampleFile none = Convert("", "none");
  EXPECT_EQ(none.examples(), 0);
}

TEST_F(ExampleFileTest, OfAnotherReaderIsRefused) {
  Convert(Lines(0, 10), "examples");
  const auto message = [&](const std::string& reader) {
    UseReader(reader);
    return std::string(Read(*Open("examples")).status().message());
  };
  EXPECT_EQ(message("csv { header: false column { name: 'label' } column { name: 'user' type: ID } }"),
            "examples: its variable 1 is 'cat' of 2 slots, the job's reader gives 'user' of 1 slot; convert the data "
            "again with the job's reader");
  EXPECT_EQ(message("csv { header: false column { name: 'label' } }"),
            "examples: its variable 1 is 'cat' of 2 slots, the job's reader gives no more; convert the data again with "
            "the job's reader");
  std::string renamed = kReader;
  renamed.replace(renamed.find("\"city\""), 6, "\"town\"");
  EXPECT_EQ(message(renamed),
            "examples: its slot 1 of 'cat' is 'city', the job's reader gives 'town'; convert the data again with the "
            "job's reader");
  std::string numbered = kReader;
  numbered.replace(numbered.find("type: TEXT"), 10, "type: ID");
  EXPECT_EQ(message(numbered),
            "examples: its slot 1 of 'cat' is 'city' of hashes of texts, the job's reader gives integers; convert the "
            "data again with the job's reader");
}

// A reader may say nothing of the kinds of its ids.
TEST_F(ExampleFileTest, IdsOfAnUnknownKindAreThoseOfAnyReader) {
  std::vector<Column> columns = parser_->columns();
  columns[1].id_kinds = {IdKind::kUnknown, IdKind::kText};
  EXPECT_TRUE(parser_->ForExampleRecords(columns).ok());
  columns[1].id_kinds.clear();
  EXPECT_TRUE(parser_->ForExampleRecords(columns).ok());
  columns[1].id_kinds = {IdKind::kHex, IdKind::kText};
  EXPECT_TRUE(parser_->ForExampleRecords(columns).ok()) << "numbers are numbers";
  columns[1].id_kinds = {IdKind::kHex, IdKind::kHex};
  EXPECT_THAT(parser_->ForExampleRecords(columns).status(),
              StatusIs(kInvalid, HasSubstr("of hexadecimal numbers, the job's reader gives hashes of texts")));
}

TEST_F(ExampleFileTest, OfAnotherVersionCutOrDamagedIsRefused) {
  const v1::ExampleFile description = Convert(Lines(0, 20000), "good");
  const auto damaged = [&](const std::function<void(std::string*)>& change) {
    std::filesystem::copy_file(dir_.path() + "/good", dir_.path() + "/x",
                               std::filesystem::copy_options::overwrite_existing);
    Change("x", change);
    const auto set = Open("x");
    return set.ok() ? Read(*set).status() : set.status();
  };
  EXPECT_EQ(damaged([](std::string*) {}), absl::OkStatus());
  EXPECT_THAT(damaged([](std::string* bytes) { (*bytes)[8] = 2; }),
              StatusIs(kInvalid,
                       "x: is an example file of format 2; this program reads format 1: convert the data again with "
                       "the convert of this build, or read it with the build that wrote it"));
  EXPECT_THAT(damaged([](std::string* bytes) { bytes->resize(bytes->size() / 2); }),
              StatusIs(kDataLoss, "x: cut: an example file ends with its description; get or convert the file again"));
  EXPECT_THAT(damaged([](std::string* bytes) { bytes->resize(40); }), StatusIs(kDataLoss, HasSubstr("x: cut: ")));
  EXPECT_THAT(damaged([](std::string* bytes) { (*bytes)[bytes->size() - 40] ^= 1; }),
              StatusIs(kDataLoss, "x: damaged: its description cannot be read; get or convert the file again"));
  EXPECT_THAT(
      damaged([&](std::string* bytes) { (*bytes)[static_cast<size_t>(64 + description.block_bytes(0) + 99)] ^= 1; }),
      StatusIs(kDataLoss, absl::StrCat("x: damaged: block 1 at byte ", 64 + description.block_bytes(0),
                                       ", of examples ", description.block_examples(0), " to ",
                                       description.block_examples(0) + description.block_examples(1) - 1,
                                       ", has a wrong checksum; get or convert the file again")));
  // Bytes whose checksum is right, but which are no examples, and descriptions that do not fit the file.
  const auto described = [&](const std::function<void(v1::ExampleFile*, std::string*)>& change) {
    return damaged([&](std::string* bytes) {
      uint64_t size;
      std::memcpy(&size, bytes->data() + bytes->size() - 24, sizeof(size));
      const size_t begin = bytes->size() - 24 - size;
      v1::ExampleFile message;
      CHECK(message.ParseFromString(bytes->substr(begin, size)));
      bytes->resize(begin);
      change(&message, bytes);
      std::string end = message.SerializeAsString();
      const uint64_t numbers[] = {end.size(), StableHash(end)};
      end.append(reinterpret_cast<const char*>(numbers), sizeof(numbers));
      *bytes += end + "WEIREXME";
    });
  };
  EXPECT_EQ(described([](v1::ExampleFile*, std::string*) {}), absl::OkStatus());
  const auto rehash = [](v1::ExampleFile* message, const std::string& bytes) {
    message->set_block_checksum(0, StableHash(bytes.data() + 64, static_cast<size_t>(message->block_bytes(0))));
  };
  for (const int byte : {0, 3, 4, 5, 6, 20, 24}) {
    for (const char value : {char{1}, char{2}, char{-1}}) {
      const absl::Status status = described([&](v1::ExampleFile* message, std::string* bytes) {
        if ((*bytes)[static_cast<size_t>(64 + byte)] == value) (*bytes)[static_cast<size_t>(64 + byte)] = 3;
        (*bytes)[static_cast<size_t>(64 + byte)] = value;
        rehash(message, *bytes);
      });
      EXPECT_TRUE(status.ok() || status.code() == kDataLoss) << status;
    }
  }
  EXPECT_THAT(described([&](v1::ExampleFile* message, std::string* bytes) {
                std::memset(bytes->data() + 64, 0x7f, 8);
                rehash(message, *bytes);
              }),
              StatusIs(kDataLoss, HasSubstr("has no example 0; get or convert the file again")));
  for (const auto& change : std::vector<std::function<void(v1::ExampleFile*)>>{
           [](v1::ExampleFile* m) { m->set_block_bytes(0, m->block_bytes(0) + 1); },
           [](v1::ExampleFile* m) { m->set_block_bytes(0, -1); },
           [](v1::ExampleFile* m) { m->set_block_bytes(0, std::numeric_limits<int64_t>::max()); },
           [](v1::ExampleFile* m) { m->set_block_examples(0, 0); },
           [](v1::ExampleFile* m) { m->set_block_examples(0, m->block_examples(0) + 1); },
           [](v1::ExampleFile* m) { m->add_block_checksum(1); },
           [](v1::ExampleFile* m) { m->clear_variable(); },
           [](v1::ExampleFile* m) { m->clear_slot(); },
           [](v1::ExampleFile* m) { m->add_float_column(); },
           [](v1::ExampleFile* m) { m->mutable_variable(0)->set_width(-1); },
           [](v1::ExampleFile* m) { m->mutable_variable(1)->add_slot("x"); },
       }) {
    EXPECT_THAT(described([&](v1::ExampleFile* message, std::string*) { change(message); }),
                StatusIs(kDataLoss, "x: damaged: its description cannot be read; get or convert the file again"));
  }
  EXPECT_THAT(described([](v1::ExampleFile* message, std::string*) { message->set_format_version(9); }),
              StatusIs(kInvalid, HasSubstr("x: is an example file of format 9; this program reads format 1: ")));
}

// The bytes of format 1, which every later version must read.
TEST_F(ExampleFileTest, TheGoldenFileIsReadAndWrittenAgain) {
  std::filesystem::copy_file("tests/trainer/data/testdata/golden.examples", dir_.path() + "/golden");
  const auto set = Open("golden");
  ASSERT_TRUE(set.ok()) << set.status();
  const ExampleFile& file = *set->files()[0].examples;
  EXPECT_EQ(file.examples(), 4);
  const std::string path = dir_.path() + "/again";
  auto writer = ExampleFileWriter::Create(path, parser_->columns(), file.message.reader());
  ASSERT_TRUE(writer.ok()) << writer.status();
  ExampleStream stream({.data = &*set, .parser = parser_.get()});
  Example example;
  ExampleStream::Prepare(*parser_, &example);
  InputPosition position;
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<int64_t>> ids;
  while (stream.Next(&example, &position)) {
    floats.push_back(example.floats);
    ids.push_back(example.ids);
    ASSERT_EQ((*writer)->Add(example), absl::OkStatus());
    if (position.offset == 0) {
      EXPECT_THAT(example.weights, ElementsAre(1, 1, 1, 0.25f, 1));
    } else {
      EXPECT_TRUE(example.weights.empty());
    }
  }
  ASSERT_EQ(stream.status(), absl::OkStatus());
  const auto hash = [](std::string_view text) { return static_cast<int64_t>(StableHash(text)); };
  ASSERT_EQ(floats.size(), 4u);
  EXPECT_THAT(floats[0], ElementsAre(1, 30, 1.5f));
  EXPECT_TRUE(std::isnan(floats[1][2]));
  EXPECT_THAT(ids[0], ElementsAre(7, hash("Rome"), 1, 2, 3));
  EXPECT_THAT(ids[1], ElementsAre(hash("Rome")));
  EXPECT_THAT(ids[2], ElementsAre(8, hash("Oslo"), int64_t{1} << 40));
  EXPECT_THAT(ids[3], ElementsAre(4294967295, 5));
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto bytes = [](const std::string& name) {
    std::ifstream in(name, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  EXPECT_EQ(bytes(path), bytes("tests/trainer/data/testdata/golden.examples"));
}

}  // namespace
}  // namespace weir
