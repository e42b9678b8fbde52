// The copy of all values in trainers that share the updates out: what of it comes at the start and after a step, and
// bytes of others that are no rows.
#include "pserver/replica/gathered_values.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kTrainers = 3;
using RowsByBlock = std::map<int, std::vector<int64_t>>;

v1::PlacedBlock Block(const std::string& parameter, int index, int trainer, int64_t begin,
                      const std::vector<int64_t>& dims, bool rows) {
  v1::PlacedBlock block;
  block.set_name(parameter + ".block" + std::to_string(index));
  block.set_parameter(parameter);
  block.set_block(index);
  block.set_server(-1);
  block.set_trainer(trainer);
  int64_t count = 1;
  for (const int64_t d : dims) {
    block.add_dims(d);
    count *= d;
  }
  block.set_element_begin(begin);
  block.set_element_count(count);
  block.set_sparse_gradient(rows);
  return block;
}

// Blocks of the plan: 0 and 1 dense, of trainers 2 and 0; 2, 3 and 4 are rows 0 to 3, 4 to 6 and 7 of "held", of
// trainers 0, 2 and 1.
std::vector<v1::PlacedBlock> Blocks() {
  return {Block("a", 0, 2, 0, {5}, false), Block("b", 0, 0, 0, {2, 2}, false), Block("held", 0, 0, 0, {4, 2}, true),
          Block("held", 1, 2, 8, {3, 2}, true), Block("held", 2, 1, 14, {1, 2}, true)};
}

class GatheredValuesTest : public ::testing::Test {
 protected:
  GatheredValuesTest() {
    for (int t = 0; t < kTrainers; ++t) {
      collectives_.push_back(std::make_unique<Collective>(meshes_.mesh(t), Collective::Options()));
      values_.push_back(std::make_unique<GatheredValues>(Blocks(), collectives_.back().get()));
    }
  }

  // Sets every element of a trainer's own blocks.
  void SetOwn(float value) {
    for (auto& values : values_) {
      for (const int block : values->own())
        std::fill(values->values(block).begin(), values->values(block).end(), value);
    }
  }
  void OnAll(const std::function<absl::Status(GatheredValues&, size_t)>& work) {
    std::vector<absl::Status> ends(kTrainers);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kTrainers; ++t) {
      threads.emplace_back([&, t] { ends[t] = work(*values_[t], t); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& end : ends) EXPECT_TRUE(end.ok()) << end;
  }
  std::vector<float> Held(size_t trainer, const std::vector<int64_t>& ids) {
    std::vector<float> rows(ids.size() * 2);
    const absl::Status copied = values_[trainer]->CopyRows("held", ids, 2, rows.data());
    EXPECT_TRUE(copied.ok()) << copied;
    return rows;
  }

  LocalMeshes meshes_{kTrainers, /*shuffle=*/4};
  std::vector<std::unique_ptr<Collective>> collectives_;
  std::vector<std::unique_ptr<GatheredValues>> values_;
};

TEST_F(GatheredValuesTest, ATrainerOwnsTheBlocksThatNameIt) {
  EXPECT_THAT(values_[0]->own(), ElementsAre(1, 2));
  EXPECT_THAT(values_[1]->own(), ElementsAre(4));
  EXPECT_THAT(values_[2]->own(), ElementsAre(0, 3));
}

TEST_F(GatheredValuesTest, EverythingComesAtTheStart) {
  SetOwn(3);
  OnAll([](GatheredValues& values, size_t) { return values.GatherAll(); });
  for (size_t t = 0; t < kTrainers; ++t) {
    for (int block = 0; block < 5; ++block) EXPECT_THAT(values_[t]->values(block), Each(3.0F)) << t << " " << block;
  }
}

TEST_F(GatheredValuesTest, AfterAStepDenseBlocksComeWholeAndTheRowsOfTheStep) {
  SetOwn(3);
  OnAll([](GatheredValues& values, size_t) { return values.GatherAll(); });
  SetOwn(4);
  OnAll([](GatheredValues& values, size_t t) {
    return values.GatherStep(t == 0 ? RowsByBlock{{2, {1, 3}}} : t == 2 ? RowsByBlock{{3, {2}}} : RowsByBlock{});
  });
  EXPECT_THAT(values_[1]->values(0), Each(4.0F));
  EXPECT_THAT(values_[1]->values(1), Each(4.0F));
  // Of rows 0 to 6, those that were named; row 7 is its own.
  EXPECT_THAT(Held(1, {0, 1, 2, 3, 4, 5, 6, 7}), ElementsAre(3, 3, 4, 4, 3, 3, 4, 4, 3, 3, 3, 3, 4, 4, 4, 4));
}

TEST_F(GatheredValuesTest, ABroadcastGivesTheValuesOfTheRoot) {
  for (int block = 0; block < 5; ++block) {
    std::fill(values_[1]->values(block).begin(), values_[1]->values(block).end(), static_cast<float>(block));
  }
  OnAll([](GatheredValues& values, size_t) { return values.Broadcast(/*root=*/1); });
  for (size_t t = 0; t < kTrainers; ++t) {
    for (int block = 0; block < 5; ++block) {
      EXPECT_THAT(values_[t]->values(block), Each(static_cast<float>(block))) << t;
    }
  }
}

TEST_F(GatheredValuesTest, RowsThatAreNotThereAreRefused) {
  std::vector<float> row(2);
  EXPECT_THAT(std::string(values_[0]->CopyRows("held", {8}, 2, row.data()).message()),
              HasSubstr("'held' has no row 8, only 8"));
  EXPECT_FALSE(values_[0]->CopyRows("held", {-1}, 2, row.data()).ok());
  EXPECT_THAT(std::string(values_[0]->CopyRows("held", {0}, 3, row.data()).message()), HasSubstr("width 3"));
  EXPECT_THAT(std::string(values_[0]->CopyRows("b", {0}, 2, row.data()).message()),
              HasSubstr("'b' is no matrix of width 2 with a gradient by rows"));
}

TEST_F(GatheredValuesTest, DamagedBytesAreDataLoss) {
  const std::string good = values_[0]->PackRows({{2, {0, 2, 3}}});
  ASSERT_TRUE(values_[1]->ReadRows(good, 0).ok());
  EXPECT_TRUE(values_[1]->ReadRows("", 0).ok());
  for (size_t size = 1; size < good.size(); ++size) {
    EXPECT_EQ(values_[1]->ReadRows(good.substr(0, size), 0).code(), absl::StatusCode::kDataLoss) << size;
  }
  EXPECT_THAT(std::string(values_[1]->ReadRows(good, 2).message()),
              HasSubstr("rows that trainer 2 has updated: block 2, which it does not update by rows"));
  const auto with = [&](size_t word, int64_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + word * sizeof(value), &value, sizeof(value));
    return std::string(values_[1]->ReadRows(bytes, 0).message());
  };
  for (const int64_t block : {int64_t{-1}, int64_t{5}, int64_t{1} << 40, INT64_MIN}) {
    EXPECT_THAT(with(0, block), HasSubstr("which it does not update by rows"));
  }
  EXPECT_THAT(with(0, 1), HasSubstr("block 1, which it does not update by rows"));
  for (const int64_t rows : {int64_t{-1}, int64_t{4}, INT64_MAX, INT64_MIN}) {
    EXPECT_THAT(with(1, rows), HasSubstr("rows of width 2 do not fit"));
  }
  for (const int64_t id : {int64_t{-1}, int64_t{4}, INT64_MAX}) EXPECT_THAT(with(2, id), HasSubstr("of 4"));
}

}  // namespace
}  // namespace weir
