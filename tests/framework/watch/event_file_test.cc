#include "framework/watch/event_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "framework/base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/event_file.pb.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

// Reads the framing by itself, and checks it.
std::vector<v1::TbEvent> Read(const std::string& path) {
  const std::string file = ReadWholeFile(path).value();
  std::vector<v1::TbEvent> events;
  for (std::string_view data = file; !data.empty();) {
    uint64_t size = 0;
    uint32_t crc = 0;
    EXPECT_GE(data.size(), 16u);
    std::memcpy(&size, data.data(), sizeof size);
    std::memcpy(&crc, data.data() + 8, sizeof crc);
    EXPECT_EQ(crc, MaskedCrc32c(data.data(), 8));
    EXPECT_GE(data.size(), 16 + size);
    std::memcpy(&crc, data.data() + 12 + size, sizeof crc);
    EXPECT_EQ(crc, MaskedCrc32c(data.data() + 12, size));
    if (::testing::Test::HasFailure()) break;
    EXPECT_TRUE(events.emplace_back().ParseFromArray(data.data() + 12, static_cast<int>(size)));
    data.remove_prefix(16 + size);
  }
  return events;
}

class EventFileTest : public ::testing::Test {
 protected:
  void SetUp() override { dir_ = CreateUniqueDirectory(::testing::TempDir(), "events.").value(); }
  void TearDown() override { EXPECT_TRUE(RemoveTree(dir_).ok()); }

  std::unique_ptr<EventFile> Create(EventFile::Options options = {}) {
    options.clock = &clock_;
    return EventFile::Create(dir_, std::move(options)).value();
  }

  std::string dir_;
  FakeClock clock_{absl::FromUnixSeconds(1'700'000'000)};
};

TEST_F(EventFileTest, TheNameHasTimeHostProcessAndSuffix) {
  const std::string pid = absl::StrCat(::getpid());
  EXPECT_THAT(Create()->path(), MatchesRegex(absl::StrCat(dir_, "/events.out.tfevents.1700000000.[^/]+.", pid)));
  EXPECT_THAT(Create({.suffix = "v2"})->path(), MatchesRegex(absl::StrCat(".*[.]", pid, "[.]v2")));
}

TEST_F(EventFileTest, NoTwoFilesHaveOneName) {
  const auto first = Create(), second = Create();
  EXPECT_NE(first->path(), second->path());
  EXPECT_THAT(second->path(), HasSubstr(absl::StrCat(".", ::getpid(), ".1")));
}

TEST_F(EventFileTest, TheFirstRecordIsTheVersionAndIsWrittenAtOnce) {
  const auto file = Create();
  const std::vector<v1::TbEvent> events = Read(file->path());
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].wall_time(), 1'700'000'000);
}

TEST_F(EventFileTest, ScalarsHaveTagStepTimeAndValue) {
  const auto file = Create();
  file->Scalar("loss", 7, 0.25);
  clock_.Advance(absl::Milliseconds(1500));
  file->Scalar("auc", 8, 0.75);
  EXPECT_THAT(Read(file->path()), SizeIs(1));
  ASSERT_TRUE(file->Flush().ok());
  const std::vector<v1::TbEvent> events = Read(file->path());
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[1].ShortDebugString(),
            "wall_time: 1700000000 step: 7 summary { value { tag: \"loss\" scalar: 0.25 } }");
  EXPECT_EQ(events[2].ShortDebugString(),
            "wall_time: 1700000001.5 step: 8 summary { value { tag: \"auc\" scalar: 0.75 } }");
}

TEST_F(EventFileTest, NaNStaysAndWhatIsTooLargeForAFloatIsInfinite) {
  const auto file = Create();
  file->Scalar("a", 1, std::numeric_limits<double>::quiet_NaN());
  file->Scalar("b", 1, 1e300);
  ASSERT_TRUE(file->Flush().ok());
  const std::vector<v1::TbEvent> events = Read(file->path());
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_TRUE(std::isnan(events[1].summary().value(0).scalar()));
  EXPECT_TRUE(std::isinf(events[2].summary().value(0).scalar()));
}

TEST_F(EventFileTest, BytesThatAreNotUtf8AreReplaced) {
  const auto file = Create();
  file->Scalar(
      "gr\xc3\xb6\xc3\x9f"
      "e",
      1, 1);
  file->Scalar("cut \xc3", 1, 1);
  file->Text("text", 1, "\xff\xf0\x9f\x98\x80 \xed\xa0\x80 \xc0\xaf \xe2\x82");
  ASSERT_TRUE(file->Flush().ok());
  const std::vector<v1::TbEvent> events = Read(file->path());
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[1].summary().value(0).tag(),
            "gr\xc3\xb6\xc3\x9f"
            "e");
  EXPECT_EQ(events[2].summary().value(0).tag(), "cut ?");
  EXPECT_EQ(events[3].summary().value(0).tensor().string_value(0), "?\xf0\x9f\x98\x80 ??? ?? ??");
}

TEST_F(EventFileTest, AGraphHasItsNodes) {
  const auto file = Create();
  file->Graph(
      {{.name = "deep/w", .op = "variable"},
       {.name = "deep/mul", .op = "mul", .inputs = {"deep/w"}, .device = "server:1", .attributes = {{"a", "b"}}}});
  ASSERT_TRUE(file->Flush().ok());
  v1::TbGraph graph;
  ASSERT_TRUE(graph.ParseFromString(Read(file->path()).at(1).graph()));
  ASSERT_EQ(graph.node_size(), 2);
  EXPECT_EQ(
      graph.node(1).ShortDebugString(),
      "name: \"deep/mul\" op: \"mul\" input: \"deep/w\" device: \"server:1\" attribute { key: \"a\" value { text: "
      "\"b\" } }");
}

v1::TbHParams HParamsOf(const v1::TbEvent& event) {
  v1::TbHParams content;
  EXPECT_EQ(event.summary().value(0).metadata().plugin().name(), "hparams");
  EXPECT_TRUE(content.ParseFromString(event.summary().value(0).metadata().plugin().content()));
  return content;
}

TEST_F(EventFileTest, HyperparametersAreAnExperimentAndASession) {
  const auto file = Create();
  file->HParams({{"rate", 0.1}, {"optimizer", "adam"}, {"sync", true}}, {"loss"});
  file->HParamsEnd(/*success=*/true);
  ASSERT_TRUE(file->Flush().ok());
  const std::vector<v1::TbEvent> events = Read(file->path());
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[1].summary().value(0).tag(), "_hparams_/experiment");
  EXPECT_EQ(
      HParamsOf(events[1]).experiment().ShortDebugString(),
      "time_created: 1700000000 hparam { name: \"optimizer\" type: STRING } hparam { name: \"rate\" type: NUMBER } "
      "hparam { name: \"sync\" type: BOOL } metric { name { tag: \"loss\" } }");
  EXPECT_EQ(events[2].summary().value(0).tag(), "_hparams_/session_start_info");
  EXPECT_EQ(HParamsOf(events[2]).session_start().hparam(1).ShortDebugString(), "key: \"rate\" value { number: 0.1 }");
  EXPECT_EQ(events[3].summary().value(0).tag(), "_hparams_/session_end_info");
  EXPECT_EQ(HParamsOf(events[3]).session_end().status(), v1::TbSessionEnd::SUCCESS);
}

TEST_F(EventFileTest, AResumeIsASessionThatStarts) {
  const auto file = Create();
  file->Resumed(100);
  ASSERT_TRUE(file->Flush().ok());
  EXPECT_EQ(Read(file->path()).at(1).ShortDebugString(), "wall_time: 1700000000 step: 100 session { status: START }");
}

TEST_F(EventFileTest, DestructionWritesWhatIsLeft) {
  std::string path;
  {
    const auto file = Create();
    path = file->path();
    file->Scalar("loss", 1, 1);
  }
  EXPECT_THAT(Read(path), SizeIs(2));
}

TEST_F(EventFileTest, WhatCannotBeCreatedIsAnErrorWithItsPath) {
  ASSERT_TRUE(WriteFileAtomically(JoinPath(dir_, "file"), "").ok());
  const absl::Status below = EventFile::Create(JoinPath(dir_, "file/below")).status();
  EXPECT_FALSE(below.ok());
  EXPECT_THAT(std::string(below.message()), HasSubstr("file/below"));
  EXPECT_EQ(EventFile::Create(dir_, {.suffix = "a/b"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(EventFile::Create(JoinPath(dir_, "made/with/parents")).ok());
}

// Lets files grow to `bytes`, as a full disk does: a write that passes the limit is cut, and the next one fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    before_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, before_handler_);
  }

 private:
  rlimit before_ = {};
  void (*before_handler_)(int);
};

TEST_F(EventFileTest, AFullDiskCutsNoRecordAndLosesNoneThatFitsInMemory) {
  const auto file = Create();
  file->Scalar("before", 1, 1);
  ASSERT_TRUE(file->Flush().ok());
  for (int i = 0; i < 100; ++i) file->Scalar("during", i, 1);
  {
    FileSizeLimit limit(1000);
    const absl::Status full = file->Flush();
    EXPECT_FALSE(full.ok());
    EXPECT_THAT(std::string(full.message()), HasSubstr(file->path()));
    EXPECT_THAT(Read(file->path()), SizeIs(2));
    file->Scalar("after", 100, 1);
    EXPECT_FALSE(file->Flush().ok());
  }
  ASSERT_TRUE(file->Flush().ok());
  const std::vector<v1::TbEvent> events = Read(file->path());
  ASSERT_THAT(events, SizeIs(103));
  EXPECT_EQ(events[102].summary().value(0).tag(), "after");
}

TEST_F(EventFileTest, RecordsBeyondTheLimitOfMemoryAreDroppedAndReportedOnce) {
  const auto file = Create({.max_buffered_bytes = 1000});
  for (int i = 0; i < 100; ++i) file->Scalar("loss", i, 1);
  file->Text("large", 100, std::string(2000, 'x'));
  const absl::Status lacks = file->Flush();
  EXPECT_EQ(lacks.code(), absl::StatusCode::kResourceExhausted);
  const size_t kept = Read(file->path()).size() - 1;
  EXPECT_GT(kept, 10u);
  EXPECT_THAT(std::string(lacks.message()), HasSubstr(absl::StrCat("lacks ", 101 - kept, " records")));
  file->Scalar("loss", 101, 1);
  EXPECT_TRUE(file->Flush().ok());
  EXPECT_THAT(Read(file->path()), SizeIs(kept + 2));
}

TEST_F(EventFileTest, ThreadsAddWhileOneFlushes) {
  const auto file = Create();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&file, t] {
      for (int i = 0; i < 1000; ++i) file->Scalar(absl::StrCat("thread", t), i, i);
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(file->Flush().ok());
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(file->Flush().ok());
  std::vector<int64_t> next(3, 0);
  const std::vector<v1::TbEvent> events = Read(file->path());
  ASSERT_THAT(events, SizeIs(3001));
  for (size_t i = 1; i < events.size(); ++i) {
    const std::string& tag = events[i].summary().value(0).tag();
    EXPECT_EQ(events[i].step(), next.at(static_cast<size_t>(tag.back() - '0'))++);
  }
}

TEST(EventHistogramTest, EachPowerOfTwoHasFourBuckets) {
  const EventHistogram histogram = MakeEventHistogram({1.0f, 1.1f, 1.25f, 1.9f, 2.0f});
  EXPECT_EQ(histogram.min, 1);
  EXPECT_EQ(histogram.max, 2);
  EXPECT_EQ(histogram.num, 5);
  EXPECT_NEAR(histogram.sum, 7.25, 1e-6);
  EXPECT_NEAR(histogram.sum_squares, 1 + 1.21 + 1.5625 + 3.61 + 4, 1e-6);
  EXPECT_THAT(histogram.limits, ElementsAre(1.25, 1.5, 1.75, 2, 2.5));
  EXPECT_THAT(histogram.counts, ElementsAre(2, 1, 0, 1, 1));
}

TEST(EventHistogramTest, NegativeValuesComeFirstAndEmptyBucketsAreMerged) {
  const EventHistogram histogram = MakeEventHistogram({4.0f, -1.0f, 0.0f, -3.0f});
  EXPECT_THAT(histogram.counts, ElementsAre(1, 0, 1, 0, 1, 0, 1));
  ASSERT_THAT(histogram.limits, SizeIs(7));
  EXPECT_EQ(histogram.limits.front(), -3);
  EXPECT_EQ(histogram.limits.back(), 5);
  for (size_t i = 1; i < histogram.limits.size(); ++i) EXPECT_LT(histogram.limits[i - 1], histogram.limits[i]);
}

TEST(EventHistogramTest, OnlyFiniteValuesCount) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(MakeEventHistogram({inf, -inf, std::nanf("")}).num, 0);
  EXPECT_TRUE(MakeEventHistogram({}).limits.empty());
  const EventHistogram largest = MakeEventHistogram({std::numeric_limits<float>::max(), inf});
  EXPECT_EQ(largest.num, 1);
  EXPECT_THAT(largest.limits, ElementsAre(std::numeric_limits<float>::max()));
}

}  // namespace
}  // namespace weir
