// Batches of lanes: shuffling, epochs, position, errors, threads.

#include "trainer/data/lane_reader.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/profile/profiler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/statistics.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// Batches one after the other, as one list.
std::vector<float> Flat(const std::vector<std::vector<float>>& batches) {
  std::vector<float> all;
  for (const std::vector<float>& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

std::vector<float> Sorted(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<float> Range(int begin, int end) {
  std::vector<float> values(static_cast<size_t>(end - begin));
  std::iota(values.begin(), values.end(), static_cast<float>(begin));
  return values;
}

class LaneReaderTest : public ::testing::Test {
 protected:
  // A job that reads the numbers in file "f".
  LaneReaderOptions Options(const std::string& settings, int lanes = 2, int64_t epochs = 1) {
    LaneReaderOptions options;
    options.spec = MakeSpec(absl::StrCat("train { files: 'f' } ", kOneNumber, settings), dir_);
    options.spec.lanes = lanes;
    options.spec.epochs = epochs;
    options.streams = {0, lanes};
    return options;
  }
  Numbers Read(const LaneReaderOptions& options, int64_t skip = 0) {
    auto numbers = ReadNumbers(options, OpenTrain(options.spec), skip);
    CHECK(numbers.ok()) << numbers.status();
    return *numbers;
  }
  absl::Status Error(const LaneReaderOptions& options) {
    return ReadNumbers(options, OpenTrain(options.spec)).status();
  }

  TempDir dir_;
};

TEST_F(LaneReaderTest, WithoutShufflingEveryStreamKeepsFileOrder) {
  dir_.Write("f", NumberLines(10, 20));  // ten lines of five bytes
  const Numbers n = Read(Options("shuffle: NO_SHUFFLE batch_size: 4"));
  EXPECT_THAT(n[0], ElementsAre(ElementsAre(11, 13), ElementsAre(14, 17), ElementsAre(18)));
  EXPECT_THAT(n[1], ElementsAre(ElementsAre(10, 12), ElementsAre(15, 16), ElementsAre(19)));
}

TEST_F(LaneReaderTest, DropLastDropsTheShortBatchOfEveryEpoch) {
  dir_.Write("f", NumberLines(10, 20));
  const Numbers n = Read(Options("shuffle: NO_SHUFFLE batch_size: 4 drop_last: true", 2, 2));
  EXPECT_THAT(n[0], ElementsAre(ElementsAre(11, 13), ElementsAre(14, 17), ElementsAre(11, 13), ElementsAre(14, 17)));
}

TEST_F(LaneReaderTest, ABatchGoesOnWithTheNextEpoch) {
  dir_.Write("f", NumberLines(10, 13));
  const Numbers n = Read(Options("shuffle: NO_SHUFFLE batch_size: 2", 1, 3));
  EXPECT_THAT(n[0], ElementsAre(ElementsAre(10, 11), ElementsAre(12, 10), ElementsAre(11, 12), ElementsAre(10, 11),
                                ElementsAre(12)));
}

TEST_F(LaneReaderTest, EachEpochOfLessThanABatchIsABatch) {
  dir_.Write("f", NumberLines(10, 13));
  const Numbers n = Read(Options("shuffle: NO_SHUFFLE batch_size: 4", 1, 3));
  EXPECT_THAT(n[0], ElementsAre(ElementsAre(10, 11, 12), ElementsAre(10, 11, 12), ElementsAre(10, 11, 12)));
  EXPECT_THAT(Read(Options("shuffle: NO_SHUFFLE batch_size: 4 drop_last: true", 1, 3))[0], ElementsAre());
}

TEST_F(LaneReaderTest, NoStepHasMoreExamplesThanTheOneBefore) {
  // Streams of unequal length: a whole compressed file, one that is dealt, and plain lines.
  dir_.Write("f0", PaddedGzip(NumberLines(0, 400), 17 << 20));
  dir_.Write("f1", PaddedGzip(NumberLines(400, 430), 4 << 20));
  dir_.Write("f2", NumberLines(430, 451));
  for (const char* settings : {"batch_size: 12", "batch_size: 12 drop_last: true", "batch_size: 12 shuffle: NO_SHUFFLE",
                               "batch_size: 1200", "batch_size: 400 shuffle: WINDOW shuffle_window: 3"}) {
    for (const int lanes : {1, 3, 4}) {
      auto options = Options(settings, lanes, 3);
      options.spec.config.mutable_train()->set_files(0, "f?");
      const Numbers n = Read(options);
      std::vector<size_t> examples;
      for (const auto& stream : n) {
        examples.resize(std::max(examples.size(), stream.size()), 0);
        for (size_t step = 0; step < stream.size(); ++step) examples[step] += stream[step].size();
      }
      EXPECT_TRUE(std::is_sorted(examples.rbegin(), examples.rend())) << settings << ", " << lanes << " lanes";
    }
  }
}

TEST_F(LaneReaderTest, ExamplesOfTheFirstBatchesAreKnownBehindASkip) {
  dir_.Write("f", NumberLines(10, 23));
  for (const char* settings : {"batch_size: 4", "batch_size: 4 drop_last: true", "batch_size: 60"}) {
    for (const int64_t first : {1, 3, 40}) {
      auto options = Options(settings, 2, 5);
      options.first_batches = first;
      std::vector<int64_t> expected;
      for (const auto& stream : Read(options)) {
        expected.push_back(0);
        for (size_t b = 0; b < stream.size() && b < static_cast<size_t>(first); ++b) {
          expected.back() += static_cast<int64_t>(stream[b].size());
        }
      }
      for (const int64_t step : {first, first + 1, int64_t{100}}) {
        auto reader = LaneReader::Create(OpenTrain(options.spec), options);
        ASSERT_TRUE(reader.ok());
        (*reader)->SkipTo(step, {});
        std::vector<LaneBatch> batches;
        ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
        EXPECT_THAT(expected, ElementsAre(batches[0].first_examples, batches[1].first_examples))
            << settings << ", first " << first << ", step " << step;
      }
    }
  }
}

TEST_F(LaneReaderTest, ShufflingIsAPermutationOfTheStreamInEveryEpoch) {
  dir_.Write("f", NumberLines(1000, 2000));
  const Numbers n = Read(Options("batch_size: 100", 1, 2));
  ASSERT_THAT(n[0], SizeIs(20));
  const std::vector<float> all = Flat(n[0]);
  const std::vector<float> first(all.begin(), all.begin() + 1000);
  const std::vector<float> second(all.begin() + 1000, all.end());
  EXPECT_EQ(Sorted(first), Range(1000, 2000));
  EXPECT_EQ(Sorted(second), Range(1000, 2000));
  EXPECT_NE(first, Range(1000, 2000));
  EXPECT_NE(first, second);
}

TEST_F(LaneReaderTest, EveryPlaceIsEquallyLikely) {
  // 2000 permutations of 4: each element is first in about a quarter of them. Deviation of 500 is 19.
  dir_.Write("f", NumberLines(0, 4));
  const Numbers n = Read(Options("batch_size: 4", 1, 2000));
  std::vector<int> first(4, 0);
  std::set<std::vector<float>> seen;
  for (const std::vector<float>& batch : n[0]) {
    ++first[static_cast<size_t>(batch[0])];
    seen.insert(batch);
  }
  EXPECT_EQ(seen.size(), 24u);
  for (const int count : first) EXPECT_NEAR(count, 500, 100);
}

TEST_F(LaneReaderTest, AWindowHoldsAsManyExamplesAsTheJobSays) {
  dir_.Write("f", NumberLines(0, 1000));
  const Numbers n = Read(Options("batch_size: 50 shuffle: WINDOW shuffle_window: 10", 1));
  const std::vector<float> all = Flat(n[0]);
  EXPECT_EQ(Sorted(all), Range(0, 1000));
  EXPECT_NE(all, Range(0, 1000));
  // The element at place i is one of the first i + 10.
  for (size_t i = 0; i < all.size(); ++i) EXPECT_LT(all[i], static_cast<float>(i + 10));
}

TEST_F(LaneReaderTest, WhatDoesNotFitIntoMemoryIsShuffledInAWindow) {
  // A record of one float is 12 bytes: 1 MiB holds 87381.
  dir_.Write("f", NumberLines(0, 100000));
  auto options = Options("batch_size: 50000 shuffle_memory_mb: 1", 1);
  auto reader = LaneReader::Create(OpenTrain(options.spec), options);
  ASSERT_TRUE(reader.ok());
  std::vector<LaneBatch> batches;
  ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
  EXPECT_EQ((*reader)->ShuffleDescription(), "stream 0: WINDOW, 87381 examples in the buffer, 1.0 of 1.0 MiB");
  std::vector<float> all = Flat(Read(options)[0]);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_LT(all[i], static_cast<float>(i + 87381));
  EXPECT_EQ(Sorted(all), Range(0, 100000));
}

TEST_F(LaneReaderTest, WhatFitsIsShuffledAsAWhole) {
  dir_.Write("f", NumberLines(0, 80000));
  auto options = Options("batch_size: 40000 shuffle_memory_mb: 1", 1);
  auto reader = LaneReader::Create(OpenTrain(options.spec), options);
  ASSERT_TRUE(reader.ok());
  std::vector<LaneBatch> batches;
  while (!(*reader)->ended()) ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
  EXPECT_EQ((*reader)->ShuffleDescription(),
            "stream 0: ALL, 80000 examples in the buffer, 0.9 of 1.0 MiB, 80000 examples an epoch");
}

TEST_F(LaneReaderTest, OrderDependsOnSeedEpochAndStreamOnly) {
  dir_.Write("f", NumberLines(1000, 2000));
  auto options = Options("batch_size: 40", 4, 2);
  const Numbers reference = Read(options);
  for (const int threads : {1, 2, 4}) {
    options.threads = threads;
    EXPECT_EQ(Read(options), reference) << threads;
  }
  options.spec.config.set_prefetch_batches(5);
  EXPECT_EQ(Read(options), reference);
  // However lanes are dealt to trainers.
  Numbers dealt;
  options.spec.trainers = 3;
  for (int t = 0; t < 3; ++t) {
    options.streams = options.spec.StreamsOf(t);
    for (auto& stream : Read(options)) dealt.push_back(stream);
  }
  EXPECT_EQ(dealt, reference);
  options.streams = {0, 4};
  options.spec.seed = 2;
  EXPECT_NE(Read(options), reference);
}

TEST_F(LaneReaderTest, GzipGivesWhatPlainGives) {
  const std::string text = NumberLines(0, 500);
  dir_.Write("f", text);
  const Numbers plain = Read(Options("batch_size: 20", 1));
  dir_.Write("f", Gzip(text));
  EXPECT_EQ(Read(Options("batch_size: 20", 1)), plain);
}

TEST_F(LaneReaderTest, SkippingGivesWhatWouldHaveBeenGivenThen) {
  // 7 and 6 lines a stream: batches of 2 end with no epoch, of 7 with every one, of 14 are never whole.
  dir_.Write("f", NumberLines(10, 23));
  for (const char* settings : {"batch_size: 4", "batch_size: 4 shuffle: NO_SHUFFLE", "batch_size: 4 drop_last: true",
                               "batch_size: 4 shuffle: WINDOW shuffle_window: 3", "batch_size: 10", "batch_size: 12",
                               "batch_size: 14", "batch_size: 28", "batch_size: 14 drop_last: true"}) {
    const auto options = Options(settings, 2, 5);
    const Numbers all = Read(options);
    ASSERT_GT(all[0].size(), 4u);
    for (int64_t step = 0; step <= static_cast<int64_t>(all[0].size()) + 2; ++step) {
      Numbers rest = all;
      for (auto& stream : rest) {
        stream.erase(stream.begin(), stream.begin() + std::min<int64_t>(step, static_cast<int64_t>(stream.size())));
      }
      EXPECT_EQ(Read(options, step), rest) << settings << " from " << step;
    }
  }
}

TEST_F(LaneReaderTest, AStreamThatHasEndedGivesNoExamples) {
  dir_.Write("f", "1 1\n1 2\n1 3\n");
  auto options = Options("batch_size: 2 shuffle: NO_SHUFFLE", 2);
  auto reader = LaneReader::Create(OpenTrain(options.spec), options);
  ASSERT_TRUE(reader.ok());
  std::vector<LaneBatch> batches;
  ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
  EXPECT_EQ(batches[0].examples, 1);
  EXPECT_EQ(batches[1].examples, 1);
  ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
  ASSERT_FALSE((*reader)->ended());
  // The round of the third line gives it to stream 1.
  EXPECT_EQ(batches[1].examples, 1);
  EXPECT_TRUE(batches[0].ended);
  EXPECT_EQ(batches[0].examples, 0);
  EXPECT_THAT(std::get<Tensor>(batches[0].vars[0]).dims(), ElementsAre(0, 1));
  ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
  EXPECT_EQ((*reader)->given(), 3);
  EXPECT_TRUE(batches[0].ended && batches[1].ended);
  ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
  EXPECT_TRUE((*reader)->ended());
}

TEST_F(LaneReaderTest, MoreLanesThanLinesLeavesLanesEmpty) {
  dir_.Write("f", NumberLines(0, 3));
  const Numbers n = Read(Options("batch_size: 8 shuffle: NO_SHUFFLE", 8, 3));
  std::vector<float> all;
  for (const auto& stream : n) {
    const std::vector<float> flat = Flat(stream);
    all.insert(all.end(), flat.begin(), flat.end());
  }
  EXPECT_EQ(Sorted(all), (std::vector<float>{0, 0, 0, 1, 1, 1, 2, 2, 2}));
}

TEST_F(LaneReaderTest, PositionsAscendInInputOrderOverFiles) {
  dir_.Write("f1", "1 5\n1 6\n");
  dir_.Write("f2", Gzip("1 7\n1 8\n"));
  auto options = Options("batch_size: 2");
  options.spec.config.mutable_train()->set_files(0, "f?");
  options.one_pass_in_order = true;
  options.with_positions = true;
  auto reader = LaneReader::Create(OpenTrain(options.spec), options);
  ASSERT_TRUE(reader.ok());
  std::vector<std::pair<InputPosition, float>> seen;
  std::vector<LaneBatch> batches;
  while (true) {
    ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
    if ((*reader)->ended()) break;
    for (const LaneBatch& batch : batches) {
      ASSERT_EQ(static_cast<int64_t>(batch.positions.size()), batch.examples);
      for (size_t i = 0; i < batch.positions.size(); ++i) {
        seen.emplace_back(batch.positions[i], std::get<Tensor>(batch.vars[0]).span<float>()[i]);
      }
    }
  }
  std::sort(seen.begin(), seen.end());
  ASSERT_THAT(seen, SizeIs(4));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(seen[i].second, static_cast<float>(5 + i));
  EXPECT_EQ(seen[3].first, (InputPosition{1, 4}));
}

TEST_F(LaneReaderTest, EvaluationIsOnePassInOrderWhateverTheJobSays) {
  dir_.Write("f", NumberLines(10, 13));
  auto options = Options("batch_size: 2 drop_last: true", 1, 5);
  options.one_pass_in_order = true;
  EXPECT_THAT(Read(options)[0], ElementsAre(ElementsAre(10, 11), ElementsAre(12)));
}

TEST_F(LaneReaderTest, ABadLineIsReportedWithFileAndLine) {
  std::string text = NumberLines(0, 100) + "1 x\n" + NumberLines(100, 200);
  dir_.Write("f", text);
  for (const int lanes : {1, 2, 8}) {
    EXPECT_THAT(Error(Options("batch_size: 8", lanes)),
                StatusIs(kInvalid, "f:101: slot 'x': 'x' is not a finite number"));
  }
  dir_.Write("f", Gzip(text));
  EXPECT_THAT(Error(Options("batch_size: 8", 8)), StatusIs(kInvalid, "f:101: slot 'x': 'x' is not a finite number"));
  dir_.Write("f", "1 0\n\n1 1\n");
  EXPECT_THAT(Error(Options("batch_size: 8", 1)), StatusIs(kInvalid, "f:2: the line is empty"));
}

TEST_F(LaneReaderTest, BadLinesAreSkippedAndCountedWhenTheJobSaysSo) {
  dir_.Write("f", "1 0\n1 x\n\n1 1\n2 3\n1 2\n");
  auto options = Options("batch_size: 10 bad_line: SKIP", 1, 2);
  auto reader = LaneReader::Create(OpenTrain(options.spec), options);
  ASSERT_TRUE(reader.ok());
  std::vector<LaneBatch> batches;
  int64_t examples = 0;
  while (!(*reader)->ended()) {
    ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
    examples += batches[0].examples;
  }
  EXPECT_EQ(examples, 6);
  EXPECT_EQ((*reader)->skipped_lines(), 6);
}

TEST_F(LaneReaderTest, PlacesOfSkippedLinesAreKeptWithPositions) {
  dir_.Write("f", "1 0\n1 x\n\n1 1\n2 3\n");
  auto options = Options("batch_size: 2 bad_line: SKIP", 2);
  options.one_pass_in_order = true;
  options.with_positions = true;
  auto reader = LaneReader::Create(OpenTrain(options.spec), options);
  ASSERT_TRUE(reader.ok());
  std::vector<LaneBatch> batches;
  while (!(*reader)->ended()) ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
  std::vector<int64_t> offsets;
  for (const InputPosition& position : (*reader)->skipped_positions()) offsets.push_back(position.offset);
  EXPECT_THAT(offsets, ::testing::UnorderedElementsAre(4, 8, 13));
}

TEST_F(LaneReaderTest, GoodBatchesBeforeAnErrorAreGivenAndTheErrorStays) {
  dir_.Write("f", "1 0\n1 1\n1 2\n1 x\n");
  auto options = Options("batch_size: 2 shuffle: NO_SHUFFLE", 1);
  auto reader = LaneReader::Create(OpenTrain(options.spec), options);
  ASSERT_TRUE(reader.ok());
  std::vector<LaneBatch> batches;
  ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
  EXPECT_EQ(batches[0].examples, 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT((*reader)->Next(absl::Seconds(60), &batches), StatusIs(kInvalid, HasSubstr("f:4: ")));
  }
}

TEST_F(LaneReaderTest, ACutFileIsDataLoss) {
  const std::string whole = Gzip(NumberLines(0, 1000));
  dir_.Write("f", whole.substr(0, whole.size() - 100));
  EXPECT_THAT(Error(Options("batch_size: 8")), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("f: cut: ")));
}

// A format whose lines take as long to parse as the test likes.
class Gate {
 public:
  void Close() { Set(false); }
  void Open() { Set(true); }
  void Pass() {
    MutexLock lock(&mu_);
    ++waiting_;
    changed_.SignalAll();
    while (!open_) changed_.Wait(&mu_);
    --waiting_;
  }
  void WaitForSomeone() {
    MutexLock lock(&mu_);
    while (waiting_ == 0) changed_.Wait(&mu_);
  }

 private:
  void Set(bool open) {
    MutexLock lock(&mu_);
    open_ = open;
    changed_.SignalAll();
  }
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = true;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
};

Gate& TheGate() {
  static auto* const gate = new Gate();
  return *gate;
}

class GatedParser : public LineParser {
 public:
  GatedParser() : LineParser({{.name = "x"}}) {}
  absl::Status Parse(std::string_view, Example* example) const override {
    TheGate().Pass();
    example->floats[0] = 1;
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<LineParser>> MakeGatedParser(const v1::Input&) {
  return std::make_unique<GatedParser>();
}
WEIR_REGISTER_LINE_PARSER(v1::Input, MakeGatedParser);

TEST_F(LaneReaderTest, AWaitForDataEndsAtItsDeadlineAndNamesTheStreams) {
  dir_.Write("f", NumberLines(0, 10));
  auto options = Options("batch_size: 2 shuffle: NO_SHUFFLE", 2);
  options.spec.config.mutable_custom()->PackFrom(v1::Input());
  TheGate().Close();
  auto reader = LaneReader::Create(OpenTrain(options.spec), options);
  ASSERT_TRUE(reader.ok());
  std::vector<LaneBatch> batches;
  EXPECT_THAT((*reader)->Next(absl::Milliseconds(20), &batches),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "waited 20ms for data of stream 0 (its first batch), stream 1 (its first batch)"));
  TheGate().Open();
  int64_t examples = 0;
  while (!(*reader)->ended()) {
    ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
    examples += batches[0].examples + batches[1].examples;
  }
  EXPECT_EQ(examples, 10);
}

TEST_F(LaneReaderTest, AProfileSaysWhichStreamABatchIsOf) {
  dir_.Write("f", NumberLines(0, 60));
  // The second trainer of two has streams 3 to 5.
  auto options = Options("batch_size: 6", 6);
  options.streams = {3, 3};
  Profiler::Process().Start(0, 1);
  Profiler::SetCurrentStep(0);
  Read(options);
  Profiler::Process().Stop();
  Profiler::SetCurrentStep(0);
  std::set<int32_t> streams;
  const Profiler::Recorded recorded = Profiler::Process().Collect();
  for (const auto& thread : recorded.threads) {
    for (const ProfileEvent& event : thread.events) {
      if (recorded.names[event.name.id()] == "make a batch") streams.insert(event.lane);
    }
  }
  EXPECT_THAT(streams, ElementsAre(3, 4, 5));
}

TEST_F(LaneReaderTest, CancelWakesTheOneWhoWaits) {
  dir_.Write("f", NumberLines(0, 10));
  auto options = Options("batch_size: 1", 1);
  options.spec.config.mutable_custom()->PackFrom(v1::Input());
  TheGate().Close();
  auto reader = LaneReader::Create(OpenTrain(options.spec), options);
  ASSERT_TRUE(reader.ok());
  std::thread cancel([&reader] {
    TheGate().WaitForSomeone();
    (*reader)->Cancel();
  });
  std::vector<LaneBatch> batches;
  EXPECT_THAT((*reader)->Next(absl::Seconds(60), &batches),
              StatusIs(absl::StatusCode::kCancelled, "reading was cancelled"));
  cancel.join();
  TheGate().Open();
}

TEST_F(LaneReaderTest, AReadThatNeverComesBackIsLeftBehind) {
  dir_.Write("f", NumberLines(0, 10));
  auto options = Options("batch_size: 1", 1);
  options.spec.config.mutable_custom()->PackFrom(v1::Input());
  TheGate().Close();
  {
    auto reader = LaneReader::Create(OpenTrain(options.spec), options);
    ASSERT_TRUE(reader.ok());
    std::vector<LaneBatch> batches;
    EXPECT_THAT((*reader)->Next(absl::Milliseconds(20), &batches),
                StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::_));
  }
  // The reader has gone while its thread stands at the gate; what the thread works on is still there when it goes on.
  TheGate().Open();
}

TEST_F(LaneReaderTest, AReaderMayGoAtAnyTime) {
  dir_.Write("f", NumberLines(0, 20000));
  for (int steps = 0; steps < 6; ++steps) {
    const auto options = Options("batch_size: 8", 8);
    auto reader = LaneReader::Create(OpenTrain(options.spec), options);
    ASSERT_TRUE(reader.ok());
    std::vector<LaneBatch> batches;
    for (int i = 0; i < steps; ++i) ASSERT_TRUE((*reader)->Next(absl::Seconds(60), &batches).ok());
  }
}

TEST_F(LaneReaderTest, StatisticsThatAreNeededMustBeThereAndFit) {
  dir_.Write("f", NumberLines(0, 10));
  auto options = Options("batch_size: 2 dense { transform: STANDARDIZE }");
  const DataSet data = OpenTrain(options.spec);
  EXPECT_THAT(
      LaneReader::Create(data, options).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "the job standardises columns, has a min_count or learns from the data: data statistics are needed "
               "first"));
  const DataStatistics none;
  options.statistics = &none;
  EXPECT_THAT(LaneReader::Create(data, options).status(),
              StatusIs(kInvalid,
                       "data statistics are of 0 float columns, the data has 1; they were taken with another reader"));
  options.spec.config.clear_dense();
  options.spec.config.mutable_ids()->set_min_count(3);
  EXPECT_THAT(LaneReader::Create(data, options).status(),
              StatusIs(kInvalid, "data statistics were taken with min_count 0, the job has data.ids.min_count 3"));
  options.spec.config.clear_ids();
  v1::Derived* const derived = options.spec.config.add_derived();
  derived->set_name("q");
  derived->mutable_bucketize()->set_of(options.spec.config.multi_slot().slot(0).name());
  derived->mutable_bucketize()->set_quantiles(3);
  EXPECT_THAT(
      LaneReader::Create(data, options).status(),
      StatusIs(kInvalid,
               "what the job learns (vocabularies, frequencies, popularities, quantiles, classes) is not what the "
               "checkpoint has learned: use the job file that it was trained with, or train anew"));
  // Likewise where the statistics are of a job that learned something else, or at other places.
  DataSpec learning = options.spec;
  learning.lanes = 1;
  *learning.config.add_derived() = *derived;
  learning.config.mutable_derived(1)->set_name("r");
  const auto mine = CollectStatistics(learning, data, {0, 1}, nullptr);
  ASSERT_TRUE(mine.ok()) << mine.status();
  const auto learned = MergeStatistics(learning, {*mine});
  ASSERT_TRUE(learned.ok()) << learned.status();
  options.statistics = &*learned;
  EXPECT_THAT(LaneReader::Create(data, options).status(),
              StatusIs(kInvalid, HasSubstr("is not what the checkpoint has learned")));
  options.spec.config.clear_derived();
  EXPECT_TRUE(LaneReader::Create(data, options).ok()) << "a job that learns nothing needs none";
}

TEST_F(LaneReaderTest, ABatchSmallerThanTheLanesIsRefused) {
  dir_.Write("f", NumberLines(0, 10));
  const auto options = Options("batch_size: 2", 4);
  EXPECT_THAT(LaneReader::Create(OpenTrain(options.spec), options).status(),
              StatusIs(kInvalid, "data.batch_size is 2; 4 lanes need at least one example each"));
}

}  // namespace
}  // namespace weir
