#include "framework/membership/exchange_streams.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "framework/membership/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;

// A stream from trainer 0 to trainer 1.
class ExchangeStreamsTest : public ::testing::Test {
 protected:
  // chunks: the number of all chunks in the last one, 0 in others.
  static v1::ExchangeRequest Chunk(int chunk, const std::string& bytes, int chunks = 0, int to = 1,
                                   const std::string& key = "k") {
    v1::ExchangeRequest request;
    request.set_key(key);
    request.set_stream_to(to);
    request.set_chunk(chunk);
    request.set_chunks(chunks);
    request.set_contribution(bytes);
    return request;
  }
  static v1::ExchangeRequest Asking(int chunk, int from = 0, const std::string& key = "k") {
    v1::ExchangeRequest request;
    request.set_key(key);
    request.set_stream_from(from);
    request.set_chunk(chunk);
    return request;
  }
  absl::Status Write(int chunk, const std::string& bytes, int chunks = 0) {
    return streams_.Write(Chunk(chunk, bytes, chunks), 0);
  }
  // Returns the chunk for the reader, "missing" if the writer is gone, "end" after the last, "wait" if there is
  // nothing.
  std::string Read(int chunk, bool gone = false) {
    v1::ExchangeReply reply;
    if (!streams_.Read(Asking(chunk), 1, gone, &reply)) return "wait";
    if (reply.missing_size() > 0) return "missing";
    return reply.has_contribution() ? reply.contribution() : "end";
  }

  ExchangeStreams streams_{2};
};

TEST_F(ExchangeStreamsTest, ChunksComeInOrderAndThenTheEnd) {
  EXPECT_EQ(Read(0), "wait");
  ASSERT_EQ(Write(0, "a"), absl::OkStatus());
  ASSERT_EQ(Write(1, "b", 2), absl::OkStatus());
  EXPECT_EQ(Read(0), "a");
  ASSERT_EQ(streams_.Take(Asking(1), 1), absl::OkStatus());
  EXPECT_EQ(Read(1), "b");
  ASSERT_EQ(streams_.Take(Asking(2), 1), absl::OkStatus());
  EXPECT_EQ(Read(2), "end");
}

TEST_F(ExchangeStreamsTest, TheNumberOfChunksIsKnownFromTheLastOn) {
  v1::ExchangeReply reply;
  ASSERT_EQ(Write(0, "a"), absl::OkStatus());
  ASSERT_TRUE(streams_.Read(Asking(0), 1, /*gone=*/false, &reply));
  EXPECT_EQ(reply.chunks(), 0);
  ASSERT_EQ(Write(1, "b", 2), absl::OkStatus());
  ASSERT_TRUE(streams_.Read(Asking(0), 1, /*gone=*/false, &reply));
  EXPECT_EQ(reply.chunks(), 2);
}

TEST_F(ExchangeStreamsTest, AWriterIsAWindowAheadOfItsReader) {
  for (int chunk = 0; chunk < kStreamWindow; ++chunk) {
    EXPECT_TRUE(streams_.HasRoom(Chunk(chunk, ""), 0));
    ASSERT_EQ(Write(chunk, "x"), absl::OkStatus());
  }
  EXPECT_FALSE(streams_.HasRoom(Chunk(kStreamWindow, ""), 0));
  EXPECT_EQ(Write(kStreamWindow, "x").code(), kExhausted);
  ASSERT_EQ(streams_.Take(Asking(1), 1), absl::OkStatus());
  EXPECT_TRUE(streams_.HasRoom(Chunk(kStreamWindow, ""), 0));
  EXPECT_EQ(Write(kStreamWindow, "x"), absl::OkStatus());
}

TEST_F(ExchangeStreamsTest, ARepeatedChunkChangesNothing) {
  ASSERT_EQ(Write(0, "a"), absl::OkStatus());
  ASSERT_EQ(Write(0, "other"), absl::OkStatus());
  EXPECT_EQ(Read(0), "a");
  EXPECT_EQ(streams_.ReadBytes(Asking(0), 1), 1);
  EXPECT_EQ(streams_.ReadBytes(Asking(1), 1), 0);
}

TEST_F(ExchangeStreamsTest, ChunksOutOfOrderAreRefused) {
  EXPECT_EQ(Write(1, "b").code(), kInvalid);
  ASSERT_EQ(Write(0, "a"), absl::OkStatus());
  EXPECT_EQ(Write(2, "c").code(), kInvalid);
}

TEST_F(ExchangeStreamsTest, OnlyTheLastChunkHasANumberAndNothingFollowsIt) {
  EXPECT_EQ(Write(0, "a", 2).code(), kInvalid);
  ASSERT_EQ(Write(0, "a", 1), absl::OkStatus());
  const absl::Status refused = Write(1, "b", 2);
  EXPECT_EQ(refused.code(), kInvalid);
  EXPECT_THAT(refused.message(), HasSubstr("1 is the end"));
}

TEST_F(ExchangeStreamsTest, AChunkHasALargestSize) {
  EXPECT_EQ(Write(0, std::string(kStreamChunk + 1, 'x')).code(), kInvalid);
  EXPECT_EQ(Write(0, std::string(kStreamChunk, 'x')), absl::OkStatus());
}

TEST_F(ExchangeStreamsTest, AStreamIsBetweenTwoTrainersOfTheJob) {
  for (const int other : {0, 2, -1}) {
    EXPECT_EQ(streams_.Write(Chunk(0, "a", 0, other), 0).code(), kInvalid) << other;
    EXPECT_EQ(streams_.Take(Asking(0, other), 0).code(), kInvalid) << other;
  }
}

TEST_F(ExchangeStreamsTest, AReaderCanNeitherGoBackNorSkip) {
  ASSERT_EQ(Write(0, "a"), absl::OkStatus());
  EXPECT_EQ(streams_.Take(Asking(2), 1).code(), kInvalid);
  ASSERT_EQ(streams_.Take(Asking(1), 1), absl::OkStatus());
  EXPECT_EQ(streams_.Take(Asking(0), 1).code(), kInvalid);
  // A stream that nobody has written to gives nothing.
  EXPECT_EQ(streams_.Take(Asking(0, 0, "other"), 1), absl::OkStatus());
  EXPECT_EQ(streams_.Take(Asking(1, 0, "other"), 1).code(), kInvalid);
}

TEST_F(ExchangeStreamsTest, ADeadWritersChunksAreReadAndThenItIsMissing) {
  ASSERT_EQ(Write(0, "a"), absl::OkStatus());
  streams_.Close(0);
  EXPECT_EQ(Read(0), "a");
  ASSERT_EQ(streams_.Take(Asking(1), 1), absl::OkStatus());
  v1::ExchangeReply reply;
  ASSERT_TRUE(streams_.Read(Asking(1), 1, /*gone=*/false, &reply));
  EXPECT_THAT(reply.missing(), ElementsAre(0));
}

TEST_F(ExchangeStreamsTest, AWriterThatIsGoneBeforeItWroteIsMissing) { EXPECT_EQ(Read(0, /*gone=*/true), "missing"); }

TEST_F(ExchangeStreamsTest, AStreamThatHasEndedIsWholeThoughItsWriterIsGone) {
  ASSERT_EQ(Write(0, "a", 1), absl::OkStatus());
  streams_.Close(0);
  ASSERT_EQ(streams_.Take(Asking(1), 1), absl::OkStatus());
  EXPECT_EQ(Read(1, /*gone=*/true), "end");
}

TEST_F(ExchangeStreamsTest, ChunksForADeadReaderAreDroppedAndItsWriterGoesOn) {
  ASSERT_EQ(Write(0, "a"), absl::OkStatus());
  streams_.Close(1);
  EXPECT_EQ(streams_.ReadBytes(Asking(0), 1), 0);
  for (int chunk = 1; chunk < 2 * kStreamWindow + 1; ++chunk) {
    EXPECT_TRUE(streams_.HasRoom(Chunk(chunk, ""), 0));
    EXPECT_EQ(Write(chunk, "x"), absl::OkStatus());
  }
}

TEST_F(ExchangeStreamsTest, AStreamThatWasReadIsForgottenAfterAWhile) {
  const absl::Time now = absl::UnixEpoch();
  const absl::Duration keep = absl::Seconds(10);
  ASSERT_EQ(Write(0, "a", 1), absl::OkStatus());
  ASSERT_EQ(streams_.Take(Asking(1), 1), absl::OkStatus());
  streams_.Expire(now, keep);
  streams_.Expire(now + keep, keep);
  EXPECT_EQ(Read(1), "end");
  streams_.Expire(now + keep + absl::Seconds(1), keep);
  EXPECT_EQ(Read(1), "wait");
  // The key may be used again.
  EXPECT_EQ(Write(0, "b", 1), absl::OkStatus());
  EXPECT_EQ(Read(0), "b");
}

TEST_F(ExchangeStreamsTest, AStreamThatWasNotReadStays) {
  ASSERT_EQ(Write(0, "a", 1), absl::OkStatus());
  streams_.Expire(absl::UnixEpoch(), absl::Seconds(10));
  streams_.Expire(absl::UnixEpoch() + absl::Hours(1), absl::Seconds(10));
  EXPECT_EQ(Read(0), "a");
}

TEST_F(ExchangeStreamsTest, AWriterHasFewStreamsThatNobodyReads) {
  const auto begin = [&](int i) { return streams_.Write(Chunk(0, "a", 1, 1, absl::StrCat("k", i)), 0); };
  int begun = 0;
  while (begun < 100 && begin(begun).ok()) ++begun;
  ASSERT_LT(begun, 100);
  EXPECT_EQ(begin(begun).code(), kExhausted);
  // Once one of them is read there is room for another, and others have room of their own.
  ASSERT_EQ(streams_.Take(Asking(1, 0, "k0"), 1), absl::OkStatus());
  EXPECT_EQ(begin(begun), absl::OkStatus());
  EXPECT_EQ(streams_.Write(Chunk(0, "a", 1, 0), 1), absl::OkStatus());
}

}  // namespace
}  // namespace weir
