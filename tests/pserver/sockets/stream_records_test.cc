// Records of a stream of calls: their bytes, batches in any pieces, and bytes that are no batch.

#include "pserver/sockets/stream_records.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::string Bytes(const std::vector<Record>& records) {
  Slices batch;
  for (const Record& record : records) AppendRecord(record, &batch);
  return Flatten(batch);
}

Record Request(uint64_t call, const std::string& payload) {
  return {.head = {.kind = RecordHead::kRequest, .call = call, .method = 2}, .payload = {Slice::Own(payload)}};
}

TEST(StreamRecordsTest, BytesOfARecordAreThese) {
  const Record request{.head = {.kind = RecordHead::kRequest,
                                .call = 7,
                                .method = 3,
                                .run = 0x0102030405060708,
                                .epoch = 9,
                                .profiled_id = 10,
                                .step = 11},
                       .payload = {Slice::Own("abc"), Slice::Own("d")}};
  EXPECT_EQ(absl::BytesToHexString(Bytes({request})),
            "01000000010000000700000000000000"
            "03000000000000000400000000000000"
            "08070605040302010900000000000000"
            "0a000000000000000b00000000000000"
            "61626364" +
                std::string(120, '0'));
}

TEST(StreamRecordsTest, AnAnswerThatMayWaitIsOneBitOfTheHead) {
  Record request = Request(7, "");
  const std::string plain = Bytes({request});
  request.head.answer_may_wait = true;
  std::string flagged = Bytes({request});
  EXPECT_EQ(flagged[20], 1);
  EXPECT_TRUE(ReadRecords({Slice::Own(flagged)})->front().head.answer_may_wait);
  flagged[20] = 6;  // bits of later versions
  EXPECT_FALSE(ReadRecords({Slice::Own(flagged)})->front().head.answer_may_wait);
  flagged[20] = 0;
  EXPECT_EQ(flagged, plain);
}

// Not sent yet: their bytes are fixed so that the wire need not change for them.
TEST(StreamRecordsTest, BytesOfNoticesAreThese) {
  for (const uint32_t kind : {RecordHead::kComplete, RecordHead::kApply}) {
    const Record notice{.head = {.kind = kind, .run = 1, .epoch = 2, .step = 42}};
    EXPECT_EQ(absl::BytesToHexString(Bytes({notice})), std::string("010000000") + (kind == 4 ? "4" : "5") +
                                                           "0000000000000000000000"
                                                           "00000000000000000000000000000000"
                                                           "01000000000000000200000000000000"
                                                           "00000000000000002a00000000000000");
    const auto read = ReadRecords({Slice::Own(Bytes({notice}))});
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ((*read)[0].head.step, 42);
    EXPECT_EQ((*read)[0].head.epoch, 2u);
  }
}

TEST(StreamRecordsTest, ABatchIsReadHoweverItIsCut) {
  const std::string bytes = Bytes({Request(1, ""), Request(2, std::string(64, 'x')), Request(3, "short")});
  ASSERT_EQ(bytes.size(), 64u + 128 + 128);
  for (size_t piece = 1; piece < bytes.size(); piece += 13) {
    Slices batch;
    for (size_t at = 0; at < bytes.size(); at += piece) batch.push_back(Slice::Own(bytes.substr(at, piece)));
    const auto read = ReadRecords(batch);
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->size(), 3u);
    EXPECT_EQ((*read)[0].head.call, 1u);
    EXPECT_EQ(Flatten((*read)[0].payload), "");
    EXPECT_EQ(Flatten((*read)[1].payload), std::string(64, 'x'));
    EXPECT_EQ(Flatten((*read)[2].payload), "short");
    EXPECT_EQ((*read)[2].head.method, 2u);
  }
  EXPECT_TRUE(ReadRecords({})->empty());
}

TEST(StreamRecordsTest, BytesThatAreNoBatchAreRefused) {
  const std::string good = Bytes({Request(1, "payload")});
  const auto with = [&good](size_t at, uint64_t value, size_t bytes) {
    std::string changed = good;
    std::memcpy(changed.data() + at, &value, bytes);
    return ReadRecords({Slice::Own(changed)}).status();
  };
  EXPECT_THAT(with(0, 2, 4).message(), HasSubstr("sends records of version 2, and this one reads version 1"));
  EXPECT_THAT(with(4, 0, 4).message(), HasSubstr("unknown kind 0"));
  EXPECT_THAT(with(4, 6, 4).message(), HasSubstr("unknown kind 6"));
  for (const uint64_t bytes : {uint64_t{65}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 62}) {
    EXPECT_THAT(with(24, bytes, 8).message(), HasSubstr("and the batch has 64 more")) << bytes;
  }
  for (size_t bytes = 1; bytes < good.size(); ++bytes) {
    EXPECT_TRUE(absl::IsInvalidArgument(ReadRecords({Slice::Own(good.substr(0, bytes))}).status())) << bytes;
  }
}

}  // namespace
}  // namespace weir
