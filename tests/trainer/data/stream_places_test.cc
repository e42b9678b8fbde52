// Streams that go on at places in a checkpoint: the examples are those of a run that was not interrupted, and little is
// read again.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/counters.h"
#include "framework/formats/partitions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/tf_example.pb.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/chosen_places.h"
#include "trainer/data/data_statistics.h"
#include "trainer/data/example_stream.h"
#include "trainer/data/statistics.h"
#include "trainer/files/example_file.h"
#include "trainer/files/piped_command.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A batch, to the bit.
std::string Text(const LaneBatch& batch) {
  std::string text = absl::StrCat(batch.examples, " first=", batch.first_examples, " of=", batch.fraction, " ");
  for (const Variable& var : batch.vars) {
    if (const auto* const tensor = std::get_if<Tensor>(&var)) {
      text.append(reinterpret_cast<const char*>(tensor->data<float>()),
                  static_cast<size_t>(tensor->size()) * sizeof(float));
    } else {
      const auto& ids = std::get<IdBatch>(var);
      for (const int64_t value : ids.values) absl::StrAppend(&text, value, ",");
      for (const int64_t offset : ids.offsets) absl::StrAppend(&text, offset, ";");
    }
  }
  return text;
}

// Batches by stream.
using Batches = std::vector<std::vector<std::string>>;

// A reader, and what it has given.
class ReaderRun {
 public:
  ReaderRun(const DataSet& data, LaneReaderOptions options, int64_t begin = 0, const v1::StreamPlaces& places = {})
      : step_(begin) {
    options.keeps_places = true;
    auto reader = LaneReader::Create(data, options);
    CHECK(reader.ok()) << reader.status();
    reader_ = *std::move(reader);
    // As from a file.
    v1::StreamPlaces read;
    CHECK(read.ParseFromString(places.SerializeAsString()));
    reader_->SkipTo(begin, read);
  }
  // Makes a step; returns false if there are no more examples.
  bool Step(Batches* out = nullptr) {
    const absl::Status status = reader_->Next(absl::Seconds(60), &batches_);
    CHECK(status.ok()) << status;
    if (reader_->ended()) return false;
    ++step_;
    reader_->Passed(step_);
    for (size_t i = 0; i < batches_.size() && out != nullptr; ++i) {
      if (!batches_[i].ended) (*out)[i].push_back(Text(batches_[i]));
    }
    return true;
  }
  Batches Rest() {
    Batches rest(static_cast<size_t>(reader_->lanes()));
    while (Step(&rest)) continue;
    return rest;
  }
  v1::StreamPlaces StepsTo(int64_t step) {
    while (step_ < step && Step()) continue;
    return reader_->Places(step);
  }
  LaneReader& reader() { return *reader_; }
  int64_t step() const { return step_; }

 private:
  std::unique_ptr<LaneReader> reader_;
  std::vector<LaneBatch> batches_;
  int64_t step_;
};

Batches Behind(const Batches& all, int64_t step) {
  Batches rest;
  for (const auto& stream : all) {
    rest.emplace_back(stream.begin() + std::min(step, static_cast<int64_t>(stream.size())), stream.end());
  }
  return rest;
}

class StreamPlacesTest : public ::testing::Test {
 protected:
  struct Source {
    std::string name;
    std::string data;  // of the job: data.train and the reader
    bool parts = false;
  };

  // Line i of a CSV file: x, u, and something that the job does not name.
  static std::string Line(int i, bool turned) {
    if (i % 37 == 5) return "oops\n";
    const std::string rest(static_cast<size_t>(i % 53), 'r');
    return turned ? absl::StrCat(rest, ",", i % 91, ",", i, "\n") : absl::StrCat(i, ",", i % 91, ",", rest, "\n");
  }
  static std::string Lines(int begin, int end, bool header, bool turned = false) {
    std::string text;
    if (header) text = turned ? "rest,u,x\n" : "x,u,rest\n";
    for (int i = begin; i < end; ++i) text += Line(i, turned && header);
    return text;
  }
  static std::string Records(int begin, int end) {
    std::string text;
    for (int i = begin; i < end; ++i) {
      v1::TfExample example;
      const auto add = [&](const char* name, const v1::TfFeature& feature) {
        v1::TfFeatures::Entry* const entry = example.mutable_features()->add_feature();
        entry->set_key(name);
        entry->set_value(feature.SerializeAsString());
      };
      v1::TfFeature x, u, rest;
      x.mutable_float_list()->add_value(static_cast<float>(i));
      u.mutable_int64_list()->add_value(i % 91);
      rest.mutable_bytes_list()->add_value(std::string(static_cast<size_t>(i % 53), 'r'));
      add("x", x);
      add("u", u);
      add("rest", rest);
      text += Framed(example.SerializeAsString());
    }
    return text;
  }
  void WriteExamples(const std::string& name, const std::string& reader, int begin, int end, size_t floats) {
    const v1::Data data = ParseData(reader);
    auto parser = MakeReaderParser(data);
    CHECK(parser.ok()) << parser.status();
    auto writer = ExampleFileWriter::Create(dir_.path() + "/" + name, (*parser)->columns(), "");
    CHECK(writer.ok()) << writer.status();
    Example example;
    ExampleStream::Prepare(**parser, &example);
    for (int i = begin; i < end; ++i) {
      example.floats.assign(floats, 0);
      example.floats[0] = static_cast<float>(i);
      if (!example.counts.empty()) {
        example.counts[0] = 1;
        example.ids = {i % 91};
      }
      CHECK((*writer)->Add(example).ok());
    }
    CHECK((*writer)->Finish().ok());
  }
  static std::string Pictures(int begin, int end, bool labels) {
    const auto count = static_cast<uint32_t>(end - begin);
    std::string text = {0, 0, 8, static_cast<char>(labels ? 1 : 2)};
    const auto put = [&](uint32_t n) {
      for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(n >> shift);
    };
    put(count);
    if (!labels) put(2);
    for (int i = begin; i < end; ++i) {
      text += static_cast<char>(i);
      if (!labels) text += static_cast<char>(i >> 8);
    }
    return text;
  }

  static constexpr char kNegatives[] = "derived { name: 'n' negatives { of: 'u' uniform { items: 1000 } } } ";

  static std::string Csv(const std::string& train) {
    return absl::StrCat("train { ", train, " where { of: 'u' modulo: 10 remainder: 3 invert: true } } csv { ",
                        "column { name: 'x' } column { name: 'u' type: ID } } bad_line: SKIP ", kNegatives);
  }

  // Writes files of every kind, of `count` examples, and returns how to read them.
  std::vector<Source> WriteAll(int count) {
    const int third = count / 3;
    const auto all = [&](const std::string& prefix, const auto& text) {
      dir_.Write(prefix + "0", text(0, third));
      dir_.Write(prefix + "1", text(third, third + 20));
      dir_.Write(prefix + "2", text(third + 20, count));
    };
    std::vector<Source> sources;
    all("headers", [](int b, int e) { return Lines(b, e, true, b % 2 == 1); });
    sources.push_back({"text with headers", Csv("files: 'headers?'")});
    all("plain", [](int b, int e) { return Lines(b, e, false); });
    const std::string plain =
        "csv { header: false column { name: 'x' } column { name: 'u' type: ID } column { name: 'rest' type: TEXT } } "
        "bad_line: SKIP ";
    sources.push_back({"text", "train { files: 'plain?' } " + plain});
    sources.push_back({"a vocabulary", "train { files: 'plain?' } " + plain +
                                           "derived { name: 'v' vocabulary { of: 'u' learned { most: 40 } } } "});
    all("gzip", [](int b, int e) { return Gzip(Lines(b, e, true)); });
    sources.push_back({"gzip", Csv("files: 'gzip?'")});
    dir_.Write("mixed0", Zstd(Lines(0, third, true)));
    dir_.Write("mixed1", Lines(third, 2 * third, true));
    dir_.Write("mixed2", Gzip(Lines(2 * third, count, true)));
    sources.push_back({"zstd, text and gzip", Csv("files: 'mixed?'")});
    sources.push_back({"a command", Csv("files: 'headers?'") + "pipe: 'cat {}' "});
    const auto ruled = [&](int b, int e) {
      std::string text = "about\nthem\n# x\nx,u,rest\n";
      for (int i = b; i < e; ++i) {
        absl::StrAppend(&text, i % 5 == 0 ? "\n" : "", i % 7 == 3 ? "# a comment\n" : "", Line(i, false));
      }
      return text + "\n \n";
    };
    for (int i = 0; i < 3; ++i) {
      std::filesystem::create_directories(absl::StrCat(dir_.path(), "/p=", i));
      const std::string text = i == 0 ? ruled(0, third) : i == 1 ? ruled(third, third + 20) : ruled(third + 20, count);
      dir_.Write(absl::StrCat("p=", i, "/part"), i == 1 ? Gzip(text) : text);
    }
    sources.push_back({"comments, and partitions",
                       absl::StrReplaceAll(Csv("files: 'p=*/part'"),
                                           {{"csv {", "csv { skip_lines: 2 skip_blank_lines: true comment: '#' "}}) +
                           "partition { name: 'p' } "});
    const std::string tf = "tf_record { feature { name: 'x' } feature { name: 'u' type: ID } } ";
    all("tf", Records);
    sources.push_back({"TFRecord", absl::StrCat("train { files: 'tf?' } ", tf, kNegatives)});
    all("packed", [](int b, int e) { return Gzip(Records(b, e)); });
    sources.push_back({"TFRecord in gzip", absl::StrCat("train { files: 'packed?' } ", tf, kNegatives)});
    all("pictures", [](int b, int e) { return Pictures(b, e, false); });
    all("labels", [](int b, int e) { return Gzip(Pictures(b, e, true)); });
    all("classes", [](int b, int e) { return Pictures(b, e, true); });
    sources.push_back({"IDX", "train { files: 'pictures?' labels: 'classes?' } idx { values: 2 } "});
    sources.push_back({"IDX, labels in gzip", "train { files: 'pictures?' labels: 'labels?' } idx { values: 2 } "});
    const std::string slots = "multi_slot { slot { name: 'x' type: FLOAT } slot { name: 'u' } } ";
    WriteExamples("examples0", slots, 0, third, 1);
    WriteExamples("examples1", slots, third, count, 1);
    sources.push_back({"example files", absl::StrCat("train { files: 'examples?' } ", slots, kNegatives)});
    return sources;
  }

  LaneReaderOptions Options(const std::string& data, int lanes, int64_t epochs) {
    LaneReaderOptions options;
    options.spec = MakeSpec(data, dir_);
    options.spec.lanes = lanes;
    options.spec.epochs = epochs;
    options.streams = {0, lanes};
    options.threads = 3;
    return options;
  }
  static DataSet Open(const DataSpec& spec) {
    absl::StatusOr<DataSet> set = DataSet::Open(spec.config, spec.config.train(), spec.directory, "data.train");
    CHECK(set.ok()) << set.status();
    return *set;
  }
  // Of the data, if the job learns something; the options borrow them.
  const DataStatistics* Learn(const LaneReaderOptions& options, const DataSet& data) {
    if (!NeedsStatistics(options.spec)) return nullptr;
    const auto part = CollectStatistics(options.spec, data, options.streams, nullptr);
    CHECK(part.ok()) << part.status();
    auto merged = MergeStatistics(options.spec, {*part});
    CHECK(merged.ok()) << merged.status();
    statistics_ = *std::move(merged);
    return &*statistics_;
  }

  // Interrupts runs at some steps, and runs that went on again; all must give what a whole run gives.
  void ExpectTheSame(const std::string& data, int lanes, int64_t epochs, const std::string& what) {
    LaneReaderOptions options = Options(data, lanes, epochs);
    const DataSet set = Open(options.spec);
    options.statistics = Learn(options, set);
    const Batches whole = ReaderRun(set, options).Rest();
    const auto steps = static_cast<int64_t>(whole[0].size());
    for (const int64_t step : {int64_t{1}, steps / 4, steps / 2 - 1, steps / 2 + 1, 3 * steps / 4, steps - 1, steps}) {
      if (step < 1) continue;
      const std::string at = absl::StrCat(what, ", step ", step, " of ", steps);
      const v1::StreamPlaces places = ReaderRun(set, options).StepsTo(step);
      EXPECT_THAT(places.places(), SizeIs(lanes)) << at;
      EXPECT_EQ(ReaderRun(set, options, step, places).Rest(), Behind(whole, step)) << at;
      // A run that has done some more steps than its places say.
      EXPECT_EQ(ReaderRun(set, options, step + 3, places).Rest(), Behind(whole, step + 3)) << at << ", later";
      const v1::StreamPlaces further = ReaderRun(set, options, step, places).StepsTo(step + 5);
      EXPECT_THAT(further.places(), SizeIs(lanes)) << at;
      EXPECT_EQ(ReaderRun(set, options, step + 5, further).Rest(), Behind(whole, step + 5)) << at << ", twice";
    }
  }

  TempDir dir_;
  std::optional<DataStatistics> statistics_;
};

TEST_F(StreamPlacesTest, FilesInOrderGoOnWithTheSameExamples) {
  AllowPipes();
  for (const Source& source : WriteAll(1500)) {
    for (const int lanes : {1, 3}) {
      ExpectTheSame(source.data + "batch_size: 30 shuffle: NO_SHUFFLE prefetch_batches: 4", lanes, 2,
                    absl::StrCat(source.name, ", ", lanes, " streams"));
    }
  }
}

TEST_F(StreamPlacesTest, AWindowGoesOnWithTheSameDraws) {
  AllowPipes();
  for (const Source& source : WriteAll(1500)) {
    for (const int window : {3, 200}) {
      ExpectTheSame(absl::StrCat(source.data, "batch_size: 30 shuffle: WINDOW shuffle_window: ", window), 2, 2,
                    absl::StrCat(source.name, ", a window of ", window));
    }
  }
}

TEST_F(StreamPlacesTest, AWindowOfBytesGoesOnWithTheSameDraws) {
  // A record of one float is 12 bytes: 1 MiB holds 87381.
  dir_.Write("f", NumberLines(0, 100000));
  ExpectTheSame(absl::StrCat("train { files: 'f' } ", kOneNumber, "batch_size: 9000 shuffle_memory_mb: 1"), 1, 2,
                "bytes");
}

TEST_F(StreamPlacesTest, AStreamShuffledAsAWholeGoesOnWithTheSameDraws) {
  for (const Source& source : WriteAll(600)) {
    if (source.name == "a command") continue;
    ExpectTheSame(source.data + "batch_size: 30", 2, 3, source.name);
  }
}

TEST_F(StreamPlacesTest, BatchesOfOneEpochAndShortStreamsGoOn) {
  const std::vector<Source> sources = WriteAll(100);
  for (const char* shuffle : {"NO_SHUFFLE", "ALL", "WINDOW shuffle_window: 7"}) {
    for (const char* batches : {"batch_size: 20 drop_last: true", "batch_size: 300", "batch_size: 7"}) {
      ExpectTheSame(absl::StrCat(sources[0].data, batches, " shuffle: ", shuffle), 2, 7,
                    absl::StrCat(batches, ", ", shuffle));
    }
  }
}

TEST_F(StreamPlacesTest, PartsOfExampleFilesGoOn) {
  // More than 16 MiB, which are not dealt one by one.
  const std::string wide = "multi_slot { slot { name: 'x' type: FLOAT dim: 4096 } } ";
  WriteExamples("wide0", wide, 0, 700, 4096);
  WriteExamples("wide1", wide, 700, 1200, 4096);
  for (const char* shuffle : {"NO_SHUFFLE", "WINDOW shuffle_window: 50"}) {
    ExpectTheSame(absl::StrCat("train { files: 'wide?' } ", wide, "batch_size: 60 shuffle: ", shuffle), 2, 2, shuffle);
  }
}

TEST_F(StreamPlacesTest, LargeFilesOfAllStreamsGoOn) {
  // Files larger than what is read at once.
  for (const char* shuffle : {"NO_SHUFFLE", "WINDOW shuffle_window: 500"}) {
    for (const Source& source : WriteAll(30000)) {
      if (source.name.starts_with("IDX") || source.name == "example files" || source.name == "a vocabulary") continue;
      AllowPipes();
      LaneReaderOptions options =
          Options(absl::StrCat(source.data, "batch_size: 800 shuffle: ", shuffle), /*lanes=*/8, /*epochs=*/1);
      const DataSet set = Open(options.spec);
      const Batches whole = ReaderRun(set, options).Rest();
      for (const int64_t step : {int64_t{11}, static_cast<int64_t>(whole[0].size()) - 3}) {
        const v1::StreamPlaces places = ReaderRun(set, options).StepsTo(step);
        EXPECT_EQ(ReaderRun(set, options, step, places).Rest(), Behind(whole, step)) << source.name << ", " << shuffle;
      }
    }
  }
}

TEST_F(StreamPlacesTest, PlacesAreThoseOfStreamsWhoeverReadsThem) {
  const std::vector<Source> sources = WriteAll(1500);
  for (const char* shuffle : {"NO_SHUFFLE", "WINDOW shuffle_window: 50"}) {
    LaneReaderOptions options = Options(absl::StrCat(sources[0].data, "batch_size: 40 shuffle: ", shuffle), 4, 1);
    const DataSet set = Open(options.spec);
    const Batches whole = ReaderRun(set, options).Rest();
    v1::StreamPlaces places;
    options.spec.trainers = 2;
    for (int t = 0; t < 2; ++t) {
      options.streams = options.spec.StreamsOf(t);
      places.MergeFrom(ReaderRun(set, options).StepsTo(10));
    }
    ASSERT_THAT(places.places(), SizeIs(4));
    options.spec.trainers = 3;
    Batches rest;
    for (int t = 0; t < 3; ++t) {
      options.streams = options.spec.StreamsOf(t);
      for (auto& stream : ReaderRun(set, options, 10, places).Rest()) rest.push_back(std::move(stream));
    }
    EXPECT_EQ(rest, Behind(whole, 10));
  }
}

// Lines of 1 KiB, of which the job reads two columns.
std::string LongLines(int begin, int end) {
  std::string text = "x,u,rest\n";
  for (int i = begin; i < end; ++i) {
    const std::string numbers = absl::StrCat(i, ",", i % 91, ",");
    text += numbers;
    text.append(1023 - numbers.size(), 'r');
    text += "\n";
  }
  return text;
}

int64_t BytesRead() { return Counters::Process().Value("data.read"); }

TEST_F(StreamPlacesTest, PlainFilesInOrderAreNotReadAgain) {
  constexpr int kLines = 26 << 10;  // of a file
  constexpr int64_t kBytes = int64_t{4} * kLines * 1024;
  for (int f = 0; f < 4; ++f) dir_.Write(absl::StrCat("f", f), LongLines(kLines * f, kLines * (f + 1)));
  LaneReaderOptions options = Options(
      "train { files: 'f?' } csv { column { name: 'x' } column { name: 'u' type: ID } } batch_size: 64 "
      "shuffle: NO_SHUFFLE",
      /*lanes=*/8, /*epochs=*/1);
  const DataSet set = Open(options.spec);
  constexpr int64_t kStep = int64_t{4} * kLines / 64 * 9 / 10;
  v1::StreamPlaces places;
  Batches next(8), expected(8);
  const int64_t start = BytesRead();
  {
    ReaderRun whole(set, options);
    places = whole.StepsTo(kStep);
    ASSERT_TRUE(whole.Step(&expected));
  }
  const int64_t before = BytesRead();
  EXPECT_GT(before - start, kBytes * 85 / 100);
  ReaderRun resumed(set, options, kStep, places);
  ASSERT_TRUE(resumed.Step(&next));
  EXPECT_LE(BytesRead() - before, kBytes * 2 / 100);
  EXPECT_EQ(next, expected);
}

TEST_F(StreamPlacesTest, OfPlainFilesTheWindowAloneIsReadAgain) {
  constexpr int kLines = 20 << 10;  // of a file
  for (int f = 0; f < 2; ++f) dir_.Write(absl::StrCat("f", f), LongLines(kLines * f, kLines * (f + 1)));
  LaneReaderOptions options = Options(Csv("files: 'f?'") + "batch_size: 64 shuffle: WINDOW shuffle_window: 60",
                                      /*lanes=*/8, /*epochs=*/1);
  const DataSet set = Open(options.spec);
  const v1::StreamPlaces places = ReaderRun(set, options).StepsTo(400);
  const int64_t before = BytesRead();
  ReaderRun resumed(set, options, 400, places);
  ASSERT_TRUE(resumed.Step());
  // 480 lines, each with two lines behind it at most, and a few blocks.
  EXPECT_LE(BytesRead() - before, 3 * 480 * 1024 + 8 * (256 << 10));
}

TEST_F(StreamPlacesTest, ACompressedFileIsReadAgainFromItsStartAndThoseBeforeItAreNot) {
  for (int f = 0; f < 3; ++f) {
    const std::string packed = Gzip(Lines(20000 * f, 20000 * (f + 1), true));
    dir_.Write(absl::StrCat("f", f, ".gz"), packed);
  }
  LaneReaderOptions options = Options(Csv("files: 'f?.gz'") + "batch_size: 400 shuffle: NO_SHUFFLE", 4, 1);
  const DataSet set = Open(options.spec);
  const v1::StreamPlaces places = ReaderRun(set, options).StepsTo(100);
  // Files before it may be gone.
  std::filesystem::remove(dir_.path() + "/f0.gz");
  testing::internal::CaptureStderr();
  ReaderRun resumed(set, options, 100, places);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("4 streams go on where the checkpoint left them; read again: "));
  EXPECT_THAT(log, HasSubstr(" MiB (uncompressed) of f"));
  EXPECT_FALSE(resumed.Rest()[0].empty());
}

TEST_F(StreamPlacesTest, LanesReadACompressedFileAgainTogether) {
  std::string lines;
  for (int i = 0; i < 40000; ++i) absl::StrAppend(&lines, "1 ", i, std::string(600, ' '), "\n");
  const std::string packed = Gzip(lines);
  dir_.Write("f.gz", packed);
  LaneReaderOptions options = Options(
      "train { files: 'f.gz' } multi_slot { slot { name: 'x' type: FLOAT } } batch_size: 400 shuffle: NO_SHUFFLE", 8,
      1);
  options.threads = 1;
  const DataSet set = Open(options.spec);
  const v1::StreamPlaces places = ReaderRun(set, options).StepsTo(90);
  const int64_t before = BytesRead();
  ReaderRun(set, options, 90, places).Rest();
  EXPECT_LE(BytesRead() - before, 3 * static_cast<int64_t>(packed.size()) / 2);
}

TEST_F(StreamPlacesTest, OtherEpochsGoOnAsIfTheJobHadAlwaysHadThem) {
  const std::vector<Source> sources = WriteAll(300);
  for (const char* shuffle : {"NO_SHUFFLE", "WINDOW shuffle_window: 30"}) {
    const std::string data = absl::StrCat(sources[0].data, "batch_size: 28 shuffle: ", shuffle);
    LaneReaderOptions two = Options(data, 2, 2), three = Options(data, 2, 3), one = Options(data, 2, 1);
    const DataSet set = Open(two.spec);
    const Batches whole = ReaderRun(set, three).Rest(), first = ReaderRun(set, one).Rest();
    const auto steps = static_cast<int64_t>(ReaderRun(set, two).Rest()[0].size());
    for (const int64_t step : {steps / 4, steps / 2 + 2, steps - 1, steps}) {
      const v1::StreamPlaces places = ReaderRun(set, two).StepsTo(step);
      EXPECT_EQ(ReaderRun(set, three, step, places).Rest(), Behind(whole, step)) << shuffle << " " << step;
      EXPECT_EQ(ReaderRun(set, one, step, places).Rest(), Behind(first, step)) << shuffle << " " << step;
    }
  }
}

TEST_F(StreamPlacesTest, APlaceThatDoesNotFitIsReadAgainFromTheStart) {
  const std::vector<Source> sources = WriteAll(600);
  for (const char* shuffle : {"NO_SHUFFLE", "WINDOW shuffle_window: 20"}) {
    LaneReaderOptions options = Options(absl::StrCat(sources[0].data, "batch_size: 20 shuffle: ", shuffle), 2, 1);
    const DataSet set = Open(options.spec);
    const Batches whole = ReaderRun(set, options).Rest();
    const v1::StreamPlaces places = ReaderRun(set, options).StepsTo(9);
    const auto refused = [&](const std::function<void(v1::StreamPlaces*)>& damage, const std::string& why) {
      v1::StreamPlaces damaged = places;
      damage(&damaged);
      testing::internal::CaptureStderr();
      EXPECT_EQ(ReaderRun(set, options, 9, damaged).Rest(), Behind(whole, 9));
      EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(why));
    };
    const auto first = [](v1::StreamPlaces* damaged) { return damaged->mutable_places(0); };
    const std::string stream = "stream 0 does not go on at its place in the checkpoint (";
    refused([&](auto* p) { first(p)->mutable_last()->set_at(first(p)->last().at() + 1); }, "no record begins at byte");
    refused([&](auto* p) { first(p)->mutable_last()->set_at(int64_t{1} << 40); }, stream);
    refused([&](auto* p) { first(p)->mutable_last()->set_at(-1); }, stream);
    refused([&](auto* p) { first(p)->mutable_last()->set_segment(7); }, stream);
    refused([&](auto* p) { first(p)->mutable_last()->set_segment(-1); }, stream);
    refused([&](auto* p) { first(p)->mutable_last()->set_number(-4); }, stream);
    refused([&](auto* p) { first(p)->set_batches(10); }, "it is that of a later step");
    refused([&](auto* p) { first(p)->set_given(-1); }, stream);
    refused([&](auto* p) { first(p)->set_epoch(1); }, stream);
    refused([&](auto* p) { first(p)->set_read(first(p)->read() + 1); }, stream);
    refused([&](auto* p) { first(p)->clear_last(); }, "a record, or a buffer, of a stream that is not within an epoch");
    const auto end = [&](v1::StreamPlaces* p) {
      first(p)->set_ended(true);
      first(p)->set_epoch_examples(300);
    };
    refused(end, "a record, or a buffer, of a stream that is not within an epoch");
    refused(
        [&](auto* p) {
          end(p);
          first(p)->set_given(301);
        },
        "301 of 300 examples given");
    refused([&](auto* p) { p->set_streams(3); }, "the checkpoint is of 3 streams, the job has 2");
    if (!places.places(0).has_buffer()) {
      refused([&](auto* p) { first(p)->mutable_buffer(); }, "the shuffle of the stream");
      continue;
    }
    const auto part = [&](v1::StreamPlaces* p) { return first(p)->mutable_buffer()->mutable_parts(0); };
    refused([&](auto* p) { first(p)->clear_buffer(); }, "the shuffle of the stream");
    refused([&](auto* p) { first(p)->mutable_buffer()->set_size(21); }, stream);
    refused([&](auto* p) { part(p)->set_slot(0, part(p)->slot(1)); }, stream);
    refused([&](auto* p) { part(p)->set_slot(0, 100); }, stream);
    refused([&](auto* p) { part(p)->set_at(0, ~uint64_t{0}); }, stream);
    refused([&](auto* p) { part(p)->set_number(1, 0); }, stream);
    refused([&](auto* p) { part(p)->set_segment(-2); }, stream);
    refused([&](auto* p) { part(p)->mutable_at()->RemoveLast(); }, stream);
    refused([&](auto* p) { first(p)->mutable_buffer()->mutable_parts()->Clear(); }, stream);
  }
}

TEST_F(StreamPlacesTest, AnEarlierRuleHasNoPlaces) {
  const std::vector<Source> sources = WriteAll(300);
  LaneReaderOptions options = Options(sources[0].data + "batch_size: 20 shuffle: NO_SHUFFLE", 2, 1);
  options.spec.stream_scheme = 2;
  EXPECT_THAT(ReaderRun(Open(options.spec), options).StepsTo(3).places(), IsEmpty());
}

TEST_F(StreamPlacesTest, WhatExamplesBeforeAPlaceHadIsNotAbsent) {
  std::string lines;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&lines, i % 2, i < 10 ? " 7:1" : "", " 3:0.5\n");
  dir_.Write("f", lines);
  LaneReaderOptions options = Options(
      "train { files: 'f' } lib_svm { slot { name: 'a' type: FLOAT first: 3 last: 3 } slot { name: 'b' first: 7 last: "
      "7 } "
      "slot { name: 'c' first: 9 last: 9 } } batch_size: 10 shuffle: NO_SHUFFLE",
      1, 1);
  const DataSet set = Open(options.spec);
  ReaderRun run(set, options);
  run.Rest();
  const v1::AbsentInputs absent = run.reader().absent_inputs();
  EXPECT_THAT(absent.places(), SizeIs(1));
  const v1::StreamPlaces places = ReaderRun(set, options).StepsTo(5);
  ReaderRun resumed(set, options, 5, places);
  resumed.Rest();
  EXPECT_THAT(resumed.reader().absent_inputs().places(), ElementsAreArray(absent.places()));
  EXPECT_TRUE(resumed.reader().absent_inputs().whole());

  v1::StreamPlaces unknown = places;
  unknown.clear_absent();
  ReaderRun of_the_rest(set, options, 5, unknown);
  of_the_rest.Rest();
  EXPECT_THAT(of_the_rest.reader().absent_inputs().places(), IsEmpty());
}

}  // namespace
}  // namespace weir
