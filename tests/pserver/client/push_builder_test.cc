#include "pserver/client/push_builder.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/wire/checksum.h"
#include "framework/wire/transfer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

class PushBuilderTest : public ::testing::Test {
 protected:
  struct Sent {
    v1::PushRequest header;
    std::string payload;
  };

  // Bytes of one letter.
  static PushTensor Letters(char letter, size_t bytes) {
    PushTensor tensor;
    tensor.item.set_name(std::string(1, letter));
    tensor.bytes = bytes;
    tensor.write = [letter, bytes](char* to, v1::PushItem* item) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(to) % kAlignment, 0u);
      std::memset(to, letter, bytes);
      item->set_exponents(std::string(1, letter));
    };
    return tensor;
  }
  // Each item as "letter@offset" of part `i`, after its bytes have been looked at.
  std::vector<std::string> Items(size_t i) {
    std::vector<std::string> items;
    const Sent& part = sent_[i];
    EXPECT_EQ(part.header.part(), static_cast<int>(i));
    EXPECT_EQ(part.header.checksum(), Checksum({Slice::Borrow(part.payload.data(), part.payload.size())}));
    size_t end = 0;
    for (const v1::PushItem& item : part.header.items()) {
      const size_t offset = static_cast<size_t>(item.offset());
      EXPECT_EQ(offset, end) << item.name();
      size_t letters = 0;
      while (offset + letters < part.payload.size() && part.payload[offset + letters] == item.name()[0]) ++letters;
      end = offset + AlignUp(letters);
      for (size_t at = offset + letters; at < end; ++at) EXPECT_EQ(part.payload[at], 0) << item.name() << " " << at;
      items.push_back(absl::StrCat(item.name(), ":", letters));
    }
    EXPECT_EQ(part.payload.size(), end);
    return items;
  }

  BufferPool pool_;
  std::vector<Sent> sent_;
  PushBuilder builder_{&pool_, /*checksums=*/true, [this](v1::PushRequest header, const Slices& payload) {
                         sent_.push_back({std::move(header), Flatten(payload)});
                       }};
};

TEST_F(PushBuilderTest, SmallTensorsTravelTogetherWithTheLastPart) {
  builder_.Begin();
  builder_.Add({Letters('a', 5)});
  builder_.Add({Letters('b', 64), Letters('c', 65)});
  EXPECT_TRUE(sent_.empty());
  v1::PushRequest last;
  last.set_samples(7);
  builder_.Finish(last);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_THAT(Items(0), ElementsAre("a:5", "b:64", "c:65"));
  for (const v1::PushItem& item : sent_[0].header.items()) EXPECT_EQ(item.exponents(), item.name());
  EXPECT_EQ(sent_[0].header.samples(), 7);
  EXPECT_EQ(sent_[0].header.part_count(), 1);
}

TEST_F(PushBuilderTest, LargeTensorsLeaveAtOnceAndTogether) {
  // Memory that has been used before, so that what is not cleared would be seen.
  std::memset(pool_.Get(4 * kGatherBytes).data, '?', 4 * kGatherBytes);
  builder_.Begin();
  builder_.Add({Letters('a', 5)});
  builder_.Add({Letters('b', 3), Letters('c', kGatherBytes - 3), Letters('d', 70)});
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_THAT(Items(0), ElementsAre("b:3", absl::StrCat("c:", kGatherBytes - 3), "d:70"));
  EXPECT_EQ(sent_[0].header.part_count(), 0);
  builder_.Finish({});
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_THAT(Items(1), ElementsAre("a:5"));
  EXPECT_EQ(sent_[1].header.part_count(), 2);
  // The next step counts from 0.
  sent_.clear();
  builder_.Begin();
  builder_.Finish({});
  EXPECT_THAT(Items(0), ElementsAre());
}

TEST_F(PushBuilderTest, WhatFillsAPartSendsIt) {
  builder_.Begin();
  builder_.Add({Letters('a', kGatherBytes - 64)});
  builder_.Add({Letters('b', 64)});
  EXPECT_TRUE(sent_.empty());
  builder_.Add({Letters('c', 1)});
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_THAT(Items(0), ElementsAre(absl::StrCat("a:", kGatherBytes - 64), "b:64"));
  builder_.Finish({});
  EXPECT_THAT(Items(1), ElementsAre("c:1"));
}

}  // namespace
}  // namespace weir
