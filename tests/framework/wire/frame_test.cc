#include "framework/wire/frame.h"
#include "framework/wire/payload_reader.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/stable_hash.h"
#include "framework/wire/checksum.h"
#include "framework/wire/transfer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::string Bytes(size_t n, int seed) {
  std::string s(n, '\0');
  for (size_t i = 0; i < n; ++i) s[i] = static_cast<char>(i * 31 + seed);
  return s;
}

// Cuts bytes into pieces of the given size.
Slices Cut(const std::string& bytes, size_t piece) {
  Slices slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.push_back(Slice::Own(bytes.substr(at, piece)));
  }
  return slices;
}

TEST(FrameTest, ProtobufReadsWhatWeWriteAndThePayloadIsAligned) {
  for (size_t header : {0, 1, 55, 60, 61, 62, 63, 64, 127, 128, 300, 20000}) {
    for (size_t payload : {0, 1, 64, 127, 128, 16383, 16384, 100000}) {
      const std::string h = Bytes(header, 1), p = Bytes(payload, 2);
      const std::string frame = Flatten(EncodeFrame(h, Cut(p, 1000)));
      v1::Frame message;
      ASSERT_TRUE(message.ParseFromString(frame)) << header << " " << payload;
      EXPECT_EQ(message.header(), h);
      EXPECT_EQ(message.payload(), p);
      EXPECT_EQ((frame.size() - payload) % kAlignment, payload == 0 ? frame.size() % kAlignment : 0);
    }
  }
}

TEST(FrameTest, WeReadWhatProtobufWritesWhereverItIsCut) {
  v1::Frame message;
  message.set_header(Bytes(77, 3));
  message.set_payload(Bytes(501, 4));
  const std::string frame = message.SerializeAsString();
  for (size_t piece = 1; piece <= frame.size(); ++piece) {
    const auto decoded = DecodeFrame(Cut(frame, piece));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->header, message.header());
    EXPECT_EQ(Flatten(decoded->payload), message.payload());
  }
}

TEST(FrameTest, PayloadIsNotCopied) {
  const std::string payload = Bytes(1000, 5);
  const Slices frame = EncodeFrame("header", {Slice::Borrow(payload.data(), payload.size())});
  ASSERT_EQ(frame.size(), 2u);
  EXPECT_EQ(frame[1].data, payload.data());
  const auto decoded = DecodeFrame(frame);
  ASSERT_TRUE(decoded.ok());
  ASSERT_EQ(decoded->payload.size(), 1u);
  EXPECT_EQ(decoded->payload[0].data, payload.data());
}

TEST(FrameTest, EveryCutIsAnErrorOrAnotherMessageNeverACrash) {
  const std::string frame = Flatten(EncodeFrame(Bytes(40, 1), Cut(Bytes(300, 2), 300)));
  for (size_t size = 0; size < frame.size(); ++size) {
    const auto decoded = DecodeFrame(Cut(frame.substr(0, size), 7));
    v1::Frame message;
    EXPECT_EQ(decoded.ok(), message.ParseFromString(frame.substr(0, size))) << size;
  }
}

TEST(FrameTest, RandomBytesDecodeExactlyWhenProtobufDecodesThem) {
  std::mt19937_64 random(7);
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string bytes(random() % 12, '\0');
    // Small values so that tags and lengths are met often; no groups, which protobuf would skip.
    for (char& c : bytes)
      c = static_cast<char>(random() % 5 == 0 ? random() % 256 : "\x0a\x12\x1a\x00\x01\x02\x08\x15\x11"[random() % 9]);
    const auto decoded = DecodeFrame(Cut(bytes, 1 + random() % 4));
    v1::Frame message;
    const bool theirs = message.ParseFromString(bytes);
    if (decoded.ok()) {
      ASSERT_TRUE(theirs);
      EXPECT_EQ(decoded->header, message.header());
      EXPECT_EQ(Flatten(decoded->payload), message.payload());
      ++accepted;
    }
  }
  EXPECT_GT(accepted, 1000);
}

TEST(FrameTest, LengthsBeyondTheFrameAreRefused) {
  // Payload of 2^63 bytes announced.
  const std::string bytes("\x1a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11);
  const auto decoded = DecodeFrame(Cut(bytes, 100));
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("cut short"));
}

TEST(FrameTest, TagsAndLengthsInMoreThanFiveBytesAreRefusedAsProtobufDoes) {
  for (const std::string& bytes :
       {std::string("\x8a\x80\x80\x80\x80\x00\x01h", 8), std::string("\x0a\x81\x80\x80\x80\x80\x00h", 8),
        std::string("\x8a\x80\x80\x80\x10\x01h", 7)}) {
    EXPECT_FALSE(DecodeFrame(Cut(bytes, 3)).ok());
  }
  const auto longest = DecodeFrame(Cut(std::string("\x8a\x80\x80\x80\x00\x81\x80\x80\x80\x00h", 11), 3));
  ASSERT_TRUE(longest.ok()) << longest.status();
  EXPECT_EQ(longest->header, "h");
}

TEST(FrameTest, AHeaderThatIsNoneIsRefusedWithTheLimit) {
  // The limit exists because a parsed message takes many times its encoded bytes.
  EXPECT_TRUE(DecodeFrame(EncodeFrame(std::string(kMaxHeaderBytes, 'h'), {})).ok());
  const auto decoded = DecodeFrame(EncodeFrame(std::string(kMaxHeaderBytes + 1, 'h'), {}));
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("4194305 bytes; it has at most 4194304"));
}

TEST(FrameTest, FramesOver64MiBAreRefusedWithTheLimit) {
  const std::string big(kMaxMessageBytes + 1, '\0');
  const auto decoded = DecodeFrame({Slice::Borrow(big.data(), big.size())});
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("67108864"));
}

TEST(FrameTest, ContiguousBorrowsOnlyOwnedAlignedSinglePieces) {
  BufferPool pool;
  const std::string bytes = Bytes(200, 9);
  const Slice owned = Slice::Own(bytes);
  EXPECT_EQ(Contiguous({owned}, &pool).data, owned.data);
  const Slice shifted{owned.data + 1, 100, owned.owner};
  const Slice copy = Contiguous({shifted}, &pool);
  EXPECT_NE(copy.data, shifted.data);
  EXPECT_EQ(std::string(copy.data, copy.size), bytes.substr(1, 100));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(copy.data) % kAlignment, 0u);
  // Nobody keeps borrowed bytes alive after the call, so they are copied.
  EXPECT_NE(Contiguous({Slice::Borrow(owned.data, 200)}, &pool).data, owned.data);
  const Slice joined = Contiguous(Cut(bytes, 33), &pool);
  EXPECT_EQ(std::string(joined.data, joined.size), bytes);
}

TEST(ChecksumTest, PiecesGiveTheHashOfTheWhole) {
  const std::string bytes = Bytes(5000, 3);
  for (size_t piece : {1, 13, 240, 241, 1024, 5000}) EXPECT_EQ(Checksum(Cut(bytes, piece)), StableHash(bytes));
  EXPECT_EQ(Checksum({}), StableHash(""));
}

TEST(ChecksumTest, APieceMadeOfSeveralIsSummedUpWhileItIsMade) {
  BufferPool pool;
  const std::string bytes = Bytes(70'000, 5);
  for (size_t piece : {7, 1024, 40'000, 70'000}) {
    uint64_t checksum = 0;
    const Slice whole = Contiguous(Cut(bytes, piece), &pool, &checksum);
    EXPECT_EQ(std::string(whole.data, whole.size), bytes);
    EXPECT_EQ(checksum, StableHash(bytes));
  }
  uint64_t checksum = 0;
  EXPECT_EQ(Contiguous({}, &pool, &checksum).size, 0u);
  EXPECT_EQ(checksum, StableHash(""));
}

TEST(PayloadReaderTest, RowsOfAnyWidthCutAnywhereComeWholeAndSummedUp) {
  const std::string bytes = Bytes(40'000, 6);
  for (const size_t row : {4, 16, 20, 32, 64, 100, 128}) {
    for (const size_t piece : {1, 13, 64, 1000, 9000, 40'000}) {
      const Slices slices = Cut(bytes, piece);
      const bool checksum = piece != 9000;
      PayloadReader reader(slices, checksum);
      char head[5];
      reader.Read(head, sizeof(head));
      EXPECT_EQ(std::string(head, sizeof(head)), bytes.substr(0, 5));
      const size_t rows = reader.left() / row - 3;
      // Backwards, each in its own place.
      std::string out(rows * row, '\0');
      reader.ReadRows(rows, row, [&](size_t i) { return out.data() + (rows - 1 - i) * row; });
      for (size_t i = 0; i < rows; ++i) {
        ASSERT_EQ(out.substr((rows - 1 - i) * row, row), bytes.substr(5 + i * row, row))
            << "row " << i << " of " << row << " bytes";
      }
      reader.Skip(1);
      EXPECT_EQ(reader.left(), bytes.size() - 6 - rows * row);
      if (checksum) {
        EXPECT_EQ(reader.Checksum(), StableHash(bytes));
      }
    }
  }
}

TEST(PayloadReaderTest, NothingHasTheChecksumOfNothing) {
  PayloadReader reader(Slices{});
  EXPECT_EQ(reader.left(), 0u);
  EXPECT_EQ(reader.Checksum(), StableHash(""));
}

TEST(BufferPoolTest, MemoryIsUsedAgainAndOutlivesThePool) {
  auto pool = std::make_unique<BufferPool>();
  char* first = pool->Get(10000).data;
  WireBuffer second = pool->Get(10000);
  EXPECT_EQ(second.data, first);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second.data) % kAlignment, 0u);
  pool.reset();
  std::memset(second.data, 1, second.size);
}

TEST(BufferPoolTest, ThreadsTakeAndReturn) {
  BufferPool pool(1 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 1; i < 500; ++i) {
        const WireBuffer buffer = pool.Get(static_cast<size_t>(i) * 1000);
        std::memset(buffer.data, t, 16);
        ASSERT_EQ(buffer.data[15], t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RowsPerCallTest, AsFewCallsAsFitAndAllAlike) {
  EXPECT_EQ(RowsPerCall(0, 64, 1024), 1u);
  EXPECT_EQ(RowsPerCall(16, 64, 1024), 16u);
  EXPECT_EQ(RowsPerCall(17, 64, 1024), 9u);
  EXPECT_EQ(RowsPerCall(5, 4096, 1024), 1u);  // a row that is longer goes alone
  for (size_t rows = 1; rows < 200; ++rows) {
    const size_t each = RowsPerCall(rows, 64, 1024), calls = (rows + each - 1) / each;
    EXPECT_LE(each, 16u) << rows;
    EXPECT_EQ(calls, (rows + 15) / 16) << rows;
  }
}

}  // namespace
}  // namespace weir
