#include "framework/membership/exchange_board.h"

#include <cstdint>
#include <functional>
#include <string>

#include "framework/membership/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool Nobody(int) { return false; }

v1::ExchangeRequest Chunk(const std::string& key, const std::string& bytes, int chunk = 0, int chunks = 1) {
  v1::ExchangeRequest request;
  request.set_key(key);
  request.set_contribution(bytes);
  request.set_chunk(chunk);
  request.set_chunks(chunks);
  return request;
}
v1::ExchangeRequest PostOf(int64_t edition, const std::string& bytes, int chunk = 0, int chunks = 1) {
  v1::ExchangeRequest request = Chunk("post", bytes, chunk, chunks);
  request.set_edition(edition);
  return request;
}
v1::ExchangeRequest ReadOf(const std::string& key, int trainer, int chunk = 0) {
  v1::ExchangeRequest request;
  request.set_key(key);
  request.set_read_trainer(trainer);
  request.set_chunk(chunk);
  return request;
}
v1::ExchangeRequest ReadPostOf(int trainer, int chunk = 0) {
  v1::ExchangeRequest request = ReadOf("post", trainer, chunk);
  request.set_edition(0);
  return request;
}

class ExchangeBoardTest : public ::testing::Test {
 protected:
  static constexpr absl::Duration kKeep = absl::Seconds(10);

  v1::ExchangeReply Read(const std::string& key, int of, int chunk = 0, int reader = 0) {
    v1::ExchangeReply reply;
    EXPECT_EQ(board_.Read(ReadOf(key, of, chunk), reader, &reply), absl::OkStatus());
    return reply;
  }
  v1::ExchangeReply ReadPost(int of, int chunk = 0) {
    v1::ExchangeReply reply;
    EXPECT_EQ(board_.ReadPost(ReadPostOf(of, chunk), &reply), absl::OkStatus());
    return reply;
  }
  // Both trainers contribute one byte.
  void Contribute(const std::string& key) {
    for (int t = 0; t < 2; ++t) ASSERT_EQ(board_.Put(Chunk(key, "x"), t), absl::OkStatus());
  }
  // Returns true if the key is forgotten once `kKeep` has passed after its last reader.
  bool Expires(const std::string& key, const std::function<bool(int)>& excused = Nobody, int chief = 0) {
    const absl::Time now = absl::UnixEpoch();
    board_.Expire(now, kKeep, excused, chief);
    board_.Expire(now + kKeep + absl::Seconds(1), kKeep, excused, chief);
    return !board_.Missing(key, Nobody).empty();
  }

  ExchangeBoard board_{2};
};

TEST_F(ExchangeBoardTest, AContributionIsMissingUntilItsLastChunkIsThere) {
  ASSERT_EQ(board_.Put(Chunk("k", "b", 1, 2), 0), absl::OkStatus());
  EXPECT_THAT(board_.Missing("k", Nobody), ElementsAre(0, 1));
  ASSERT_EQ(board_.Put(Chunk("k", "a", 0, 2), 0), absl::OkStatus());
  EXPECT_THAT(board_.Missing("k", Nobody), ElementsAre(1));
  EXPECT_THAT(board_.Missing("k", [](int trainer) { return trainer == 1; }), IsEmpty());
}

TEST_F(ExchangeBoardTest, ChunksAreReadInTheirPlaceWhateverOrderTheyCameIn) {
  ASSERT_EQ(board_.Put(Chunk("k", "b", 1, 2), 0), absl::OkStatus());
  ASSERT_EQ(board_.Put(Chunk("k", "a", 0, 2), 0), absl::OkStatus());
  EXPECT_EQ(Read("k", 0, 0).contribution(), "a");
  EXPECT_EQ(Read("k", 0, 1).contribution(), "b");
  EXPECT_EQ(Read("k", 0, 1).chunks(), 2);
}

TEST_F(ExchangeBoardTest, ARepeatedChunkChangesNothing) {
  ASSERT_EQ(board_.Put(Chunk("k", "a"), 0), absl::OkStatus());
  const size_t used = board_.used(0);
  ASSERT_EQ(board_.Put(Chunk("k", "other"), 0), absl::OkStatus());
  EXPECT_EQ(Read("k", 0).contribution(), "a");
  EXPECT_EQ(board_.used(0), used);
}

TEST_F(ExchangeBoardTest, ChunkNumbersOutOfRangeAreRefused) {
  EXPECT_EQ(board_.Put(Chunk("k", "a", 2, 2), 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(board_.Put(Chunk("k", "a", -1, 2), 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(board_.Put(Chunk("k", "a", 0, 0), 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(board_.Put(Chunk("k", "a", 0, kMaxExchangeChunks + 1), 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(board_.used(0), 0);
}

TEST_F(ExchangeBoardTest, ANumberOfChunksThatContradictsTheFirstIsRefused) {
  ASSERT_EQ(board_.Put(Chunk("k", "a", 0, 2), 0), absl::OkStatus());
  const absl::Status refused = board_.Put(Chunk("k", "b", 1, 3), 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("trainer 0 announces 3 chunks now and 2 before"));
}

TEST_F(ExchangeBoardTest, TheContributionOfAnExcusedTrainerIsEmpty) {
  ASSERT_EQ(board_.Put(Chunk("k", "b"), 1), absl::OkStatus());
  EXPECT_EQ(Read("k", 0).chunks(), 1);
  EXPECT_EQ(Read("k", 0).contribution(), "");
  EXPECT_EQ(Read("a key that nobody used", 0).chunks(), 1);
}

TEST_F(ExchangeBoardTest, ReadingWhatIsNotThereIsRefused) {
  Contribute("k");
  v1::ExchangeReply reply;
  EXPECT_EQ(board_.Read(ReadOf("k", 2), 0, &reply).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(board_.Read(ReadOf("k", -1), 0, &reply).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(board_.Read(ReadOf("k", 0, 1), 0, &reply).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(board_.Read(ReadOf("k", 0, -1), 0, &reply).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(board_.ReadPost(ReadPostOf(2), &reply).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ExchangeBoardTest, AKeyIsNeitherEmptyNorLong) {
  EXPECT_EQ(ExchangeBoard::CheckKey("").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExchangeBoard::CheckKey(std::string(kMaxExchangeKey, 'k')), absl::OkStatus());
  EXPECT_EQ(ExchangeBoard::CheckKey(std::string(kMaxExchangeKey + 1, 'k')).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ExchangeBoardTest, AContributionWithoutRoomIsRefusedAndASmallerOneFits) {
  ExchangeBoard board({1 << 20, 1 << 20});
  const absl::Status refused = board.Put(Chunk("k", std::string(1 << 20, 'x')), 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("trainer 0"));
  EXPECT_EQ(board.Put(Chunk("k", std::string(1 << 19, 'x')), 0), absl::OkStatus());
  EXPECT_GE(board.used(0), size_t{1} << 19);
  EXPECT_LE(board.used(0), size_t{1} << 20);
  // The room of one is not taken by another.
  EXPECT_EQ(board.Put(Chunk("k", std::string((1 << 20) - 1000, 'x')), 1), absl::OkStatus());
}

TEST_F(ExchangeBoardTest, AKeyThatAllHaveReadIsForgottenAndItsRoomGivenBack) {
  Contribute("k");
  Read("k", 1, 0, /*reader=*/0);
  EXPECT_FALSE(Expires("k"));
  Read("k", 1, 0, /*reader=*/1);
  EXPECT_TRUE(Expires("k"));
  EXPECT_EQ(board_.used(0), 0);
  EXPECT_EQ(board_.used(1), 0);
}

TEST_F(ExchangeBoardTest, AReaderMayComeAgainForAWhile) {
  Contribute("k");
  for (int reader = 0; reader < 2; ++reader) Read("k", 1, 0, reader);
  const absl::Time now = absl::UnixEpoch();
  board_.Expire(now, kKeep, Nobody, /*chief=*/0);
  board_.Expire(now + kKeep, kKeep, Nobody, /*chief=*/0);
  EXPECT_EQ(Read("k", 1).contribution(), "x");
}

TEST_F(ExchangeBoardTest, AReaderThatIsGoneKeepsNoKey) {
  Contribute("k");
  Read("k", 1, 0, /*reader=*/0);
  EXPECT_TRUE(Expires("k", [](int trainer) { return trainer == 1; }));
}

TEST_F(ExchangeBoardTest, AKeyWithOneReaderIsForgottenWhenThatOneHasRead) {
  for (int t = 0; t < 2; ++t) {
    v1::ExchangeRequest request = Chunk("k", "x");
    request.set_reader(1);
    ASSERT_EQ(board_.Put(request, t), absl::OkStatus());
  }
  Read("k", 1, 0, /*reader=*/0);
  EXPECT_FALSE(Expires("k"));
  Read("k", 1, 0, /*reader=*/1);
  EXPECT_TRUE(Expires("k"));
}

TEST_F(ExchangeBoardTest, AKeyWhoseOnlyReaderIsGoneIsTheChiefsToRead) {
  const auto gone = [](int trainer) { return trainer == 1; };
  v1::ExchangeRequest request = Chunk("k", "x");
  request.set_reader(1);
  ASSERT_EQ(board_.Put(request, 0), absl::OkStatus());
  ASSERT_EQ(board_.Put(Chunk("k", "y"), 1), absl::OkStatus());
  EXPECT_FALSE(Expires("k", gone, /*chief=*/0));
  Read("k", 1, 0, /*reader=*/0);
  EXPECT_TRUE(Expires("k", gone, /*chief=*/0));
}

TEST_F(ExchangeBoardTest, AKeyThatIsKeptStaysAndHasTheFirstContribution) {
  v1::ExchangeRequest first = Chunk("k", "first"), second = Chunk("k", "second", 0, 2);
  first.set_keep(true);
  second.set_keep(true);
  ASSERT_EQ(board_.Put(first, 0), absl::OkStatus());
  ASSERT_EQ(board_.Put(Chunk("k", "x"), 1), absl::OkStatus());
  for (int reader = 0; reader < 2; ++reader) Read("k", 1, 0, reader);
  EXPECT_FALSE(Expires("k"));
  // From a process that takes the place of trainer 0, in more chunks.
  ASSERT_EQ(board_.Put(second, 0), absl::OkStatus());
  EXPECT_EQ(Read("k", 0).contribution(), "first");
}

TEST_F(ExchangeBoardTest, ALaterEditionReplacesAPostAndAnEarlierDoesNot) {
  ASSERT_EQ(board_.Post(PostOf(3, "c"), 0), absl::OkStatus());
  ASSERT_EQ(board_.Post(PostOf(2, "b"), 0), absl::OkStatus());
  EXPECT_EQ(ReadPost(0).edition(), 3);
  EXPECT_EQ(ReadPost(0).contribution(), "c");
  ASSERT_EQ(board_.Post(PostOf(4, "d"), 0), absl::OkStatus());
  EXPECT_EQ(ReadPost(0).edition(), 4);
  EXPECT_EQ(ReadPost(0).contribution(), "d");
}

TEST_F(ExchangeBoardTest, APostIsReadOnceItsLastChunkIsThere) {
  ASSERT_EQ(board_.Post(PostOf(1, "old"), 0), absl::OkStatus());
  ASSERT_EQ(board_.Post(PostOf(2, "a", 0, 2), 0), absl::OkStatus());
  EXPECT_EQ(ReadPost(0).edition(), 1);
  EXPECT_EQ(ReadPost(0).contribution(), "old");
  ASSERT_EQ(board_.Post(PostOf(2, "b", 1, 2), 0), absl::OkStatus());
  EXPECT_EQ(ReadPost(0, 1).edition(), 2);
  EXPECT_EQ(ReadPost(0, 1).chunks(), 2);
  EXPECT_EQ(ReadPost(0, 1).contribution(), "b");
}

TEST_F(ExchangeBoardTest, APostThatIsOlderThanOneUnderWayIsDropped) {
  ASSERT_EQ(board_.Post(PostOf(2, "a", 0, 2), 0), absl::OkStatus());
  ASSERT_EQ(board_.Post(PostOf(1, "old"), 0), absl::OkStatus());
  EXPECT_FALSE(ReadPost(0).has_edition());
}

TEST_F(ExchangeBoardTest, APostGivesItsRoomToItsSuccessor) {
  ASSERT_EQ(board_.Post(PostOf(1, "12345"), 0), absl::OkStatus());
  const size_t used = board_.used(0);
  ASSERT_EQ(board_.Post(PostOf(2, "123"), 0), absl::OkStatus());
  EXPECT_EQ(board_.used(0), used - 2);
  // Chunks of an edition that was never completed.
  ASSERT_EQ(board_.Post(PostOf(3, std::string(100, 'x'), 0, 2), 0), absl::OkStatus());
  ASSERT_EQ(board_.Post(PostOf(4, "12345"), 0), absl::OkStatus());
  EXPECT_EQ(board_.used(0), used);
}

TEST_F(ExchangeBoardTest, WithoutAPostThereIsNoEdition) {
  EXPECT_FALSE(ReadPost(0).has_edition());
  ASSERT_EQ(board_.Post(PostOf(1, "a"), 1), absl::OkStatus());
  EXPECT_FALSE(ReadPost(0).has_edition());
  EXPECT_EQ(board_.Newest("another key").trainer, -1);
}

TEST_F(ExchangeBoardTest, TheNewestPostIsThatOfTheHighestEditionAndOfTheLowestTrainer) {
  ASSERT_EQ(board_.Post(PostOf(5, "b"), 1), absl::OkStatus());
  ASSERT_EQ(board_.Post(PostOf(4, "a"), 0), absl::OkStatus());
  EXPECT_EQ(board_.Newest("post").trainer, 1);
  EXPECT_EQ(board_.Newest("post").edition, 5);
  ASSERT_EQ(board_.Post(PostOf(5, "a"), 0), absl::OkStatus());
  EXPECT_EQ(board_.Newest("post").trainer, 0);
}

TEST_F(ExchangeBoardTest, ReadBytesAreThoseOfTheReply) {
  ASSERT_EQ(board_.Put(Chunk("k", "abc", 0, 2), 0), absl::OkStatus());
  EXPECT_EQ(board_.ReadBytes(ReadOf("k", 0, 0)), 0);  // not complete
  ASSERT_EQ(board_.Put(Chunk("k", "de", 1, 2), 0), absl::OkStatus());
  EXPECT_EQ(board_.ReadBytes(ReadOf("k", 0, 0)), 3);
  EXPECT_EQ(board_.ReadBytes(ReadOf("k", 0, 1)), 2);
  EXPECT_EQ(board_.ReadBytes(ReadOf("k", 0, 2)), 0);
  EXPECT_EQ(board_.ReadBytes(ReadOf("k", 0, -1)), 0);
  EXPECT_EQ(board_.ReadBytes(ReadOf("k", 2)), 0);
  EXPECT_EQ(board_.ReadBytes(ReadPostOf(0)), 0);
  ASSERT_EQ(board_.Post(PostOf(1, "abcd"), 0), absl::OkStatus());
  EXPECT_EQ(board_.ReadBytes(ReadPostOf(0)), 4);
}

}  // namespace
}  // namespace weir
