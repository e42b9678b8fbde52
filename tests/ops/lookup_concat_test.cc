// lookup_concat beside lookup_rows, reshape and concat one after the other: the same bits, forward and backward.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kTableRows = 23;

// A look-up, or with `columns` a dense input.
struct Piece {
  std::string pooling = "none";
  int64_t width = 1;
  int64_t slots = 1;
  bool per_slot = false;
  bool padded = false;
  bool weights = false;
  int64_t columns = -1;

  bool dense() const { return columns >= 0; }
  bool by_slot() const { return pooling == "none" || per_slot; }
  int64_t out_columns() const { return dense() ? columns : by_slot() ? slots * width : width; }
};

constexpr int64_t kPadding = 2;

class Data {
 public:
  Data(std::vector<Piece> pieces, int64_t batch, uint64_t seed)
      : pieces_(std::move(pieces)), batch_(batch), random_(seed) {
    for (const Piece& piece : pieces_) {
      if (piece.dense()) {
        dense_.push_back(Numbers({batch, piece.columns}));
        continue;
      }
      ids_.push_back(Ids(piece));
      Prefetch(ids_.back(), piece.width);
    }
  }

  // The operator under test, with everything that it reads.
  OpTest Joined() const {
    std::vector<std::string> poolings;
    std::vector<int64_t> per_slot, padded, padding_ids, dense_at;
    for (size_t p = 0; p < pieces_.size(); ++p) {
      if (pieces_[p].dense()) {
        dense_at.push_back(static_cast<int64_t>(p));
        continue;
      }
      poolings.push_back(pieces_[p].pooling);
      per_slot.push_back(pieces_[p].per_slot);
      padded.push_back(pieces_[p].padded);
      padding_ids.push_back(kPadding);
    }
    OpTest t("lookup_concat",
             {AttrStrings("poolings", poolings), AttrInts("per_slot", per_slot), AttrInts("padded", padded),
              AttrInts("padding_ids", padding_ids), AttrInts("dense_at", dense_at)});
    int lookup = 0, dense = 0;
    for (const Piece& piece : pieces_) {
      if (piece.dense()) {
        t.Batched("X", Copy(dense_[static_cast<size_t>(dense++)]));
        continue;
      }
      const size_t k = static_cast<size_t>(lookup++);
      t.Ids("Ids", ids_[k]).Fixed("Index", Copy(index_[k])).Rows("Rows", rows_[k], piece.width);
    }
    return t;
  }

  // One look-up by itself.
  OpTest Alone(int piece) const {
    const Piece& of = pieces_[static_cast<size_t>(piece)];
    const size_t k = static_cast<size_t>(LookupOf(piece));
    OpTest t("lookup_rows", {AttrS("pooling", of.pooling), AttrB("per_slot", of.per_slot),
                             AttrB("has_padding", of.padded), AttrI("padding_id", kPadding)});
    t.Ids("Ids", ids_[k]).Fixed("Index", Copy(index_[k])).Rows("Rows", rows_[k], of.width);
    return t;
  }
  int LookupOf(int piece) const {
    return static_cast<int>(
        std::count_if(pieces_.begin(), pieces_.begin() + piece, [](const Piece& p) { return !p.dense(); }));
  }
  int DenseOf(int piece) const { return piece - LookupOf(piece); }
  const Tensor& dense(int j) const { return dense_[static_cast<size_t>(j)]; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  int64_t batch() const { return batch_; }
  int64_t columns() const {
    int64_t sum = 0;
    for (const Piece& piece : pieces_) sum += piece.out_columns();
    return sum;
  }

  Tensor Numbers(const std::vector<int64_t>& dims) {
    Tensor tensor(v1::FLOAT32, dims);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      tensor.data<float>()[i] = static_cast<float>(static_cast<int64_t>(random_() % 2001) - 1000) / 7;
    }
    return tensor;
  }

 private:
  static Tensor Copy(const Tensor& from) {
    Tensor copy;
    copy.CopyFrom(from);
    return copy;
  }

  IdBatch Ids(const Piece& piece) {
    IdBatch ids;
    ids.slots = piece.slots;
    if (batch_ > 0) ids.offsets.push_back(0);
    for (int64_t g = 0; g < batch_ * piece.slots; ++g) {
      // Slots without an id, with one, with several; ids that many groups have.
      const int64_t count = piece.pooling == "none" ? 1 : static_cast<int64_t>(random_() % 4);
      for (int64_t i = 0; i < count; ++i) {
        ids.values.push_back(static_cast<int64_t>(random_() % kTableRows));
        if (piece.weights) ids.weights.push_back(static_cast<float>(random_() % 5) / 3);
      }
      ids.offsets.push_back(static_cast<int64_t>(ids.values.size()));
    }
    return ids;
  }

  // Rows as prefetch brings them, with one of another lane in front.
  void Prefetch(const IdBatch& ids, int64_t width) {
    SelectedRows rows;
    rows.ids = {kTableRows};
    Tensor index(v1::INT32, {static_cast<int64_t>(ids.values.size())});
    for (size_t i = 0; i < ids.values.size(); ++i) {
      const auto at = std::find(rows.ids.begin(), rows.ids.end(), ids.values[i]);
      index.data<int32_t>()[i] = static_cast<int32_t>(at - rows.ids.begin());
      if (at == rows.ids.end()) rows.ids.push_back(ids.values[i]);
    }
    rows.values = Numbers({static_cast<int64_t>(rows.ids.size()), width});
    rows.merged = rows.present = true;
    index_.push_back(std::move(index));
    rows_.push_back(std::move(rows));
  }

  const std::vector<Piece> pieces_;
  const int64_t batch_;
  std::mt19937_64 random_;
  std::vector<IdBatch> ids_;
  std::vector<Tensor> index_, dense_;
  std::vector<SelectedRows> rows_;
};

// Columns [begin, begin + size) of a matrix, under other dims.
Tensor Columns(const Tensor& whole, int64_t begin, int64_t size, absl::Span<const int64_t> dims) {
  Tensor part(v1::FLOAT32, dims);
  for (int64_t b = 0; b < whole.dim(0); ++b) {
    std::copy_n(whole.data<float>() + b * whole.dim(1) + begin, size, part.data<float>() + b * size);
  }
  return part;
}

void ExpectSameBits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(ShapeString(a.dims()), ShapeString(b.dims())) << what;
  EXPECT_TRUE(a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0) << what;
}

// Forward and backward against the plain operators.
void ExpectLikeTheChain(std::vector<Piece> pieces, int64_t batch, uint64_t seed) {
  Data data(std::move(pieces), batch, seed);
  OpTest joined = data.Joined();
  ASSERT_OK(joined.Run());
  const Tensor& out = joined.Output("Out");
  ASSERT_EQ(ShapeString(out.dims()), ShapeString({batch, data.columns()}));
  const Tensor out_grad = data.Numbers({batch, data.columns()});
  int64_t begin = 0;
  for (int p = 0; p < static_cast<int>(data.pieces().size()); ++p) {
    const Piece& piece = data.pieces()[static_cast<size_t>(p)];
    const std::string what = absl::StrCat("piece ", p, " of batch ", batch);
    const int64_t size = piece.out_columns();
    if (piece.dense()) {
      const Tensor& x = data.dense(data.DenseOf(p));
      ExpectSameBits(Columns(out, begin, size, x.dims()), x, what);
      const auto grad = joined.Gradient("X", data.DenseOf(p), {{"Out", out_grad}});
      ASSERT_OK(grad.status());
      ExpectSameBits(std::get<Tensor>(*grad), Columns(out_grad, begin, size, x.dims()), what);
    } else {
      OpTest alone = data.Alone(p);
      ASSERT_OK(alone.Run());
      const Tensor& rows = alone.Output("Out");
      ExpectSameBits(Columns(out, begin, size, rows.dims()), rows, what);
      const auto fused = joined.Gradient("Rows", data.LookupOf(p), {{"Out", out_grad}});
      const auto plain = alone.Gradient("Rows", 0, {{"Out", Columns(out_grad, begin, size, rows.dims())}});
      ASSERT_OK(fused.status());
      ASSERT_OK(plain.status());
      const SelectedRows &x = std::get<SelectedRows>(*fused), &y = std::get<SelectedRows>(*plain);
      EXPECT_EQ(x.ids, y.ids) << what;
      EXPECT_EQ(x.step_rows, y.step_rows) << what;
      EXPECT_TRUE(x.merged && x.present && x.height == y.height) << what;
      ExpectSameBits(x.values, y.values, what);
    }
    begin += size;
  }
}

TEST(LookupConcatTest, EveryPoolingHasTheBitsOfTheChain) {
  for (const char* const pooling : {"none", "sum", "mean", "sqrt_n"}) {
    for (const bool per_slot : {false, true}) {
      for (const bool padded : {false, true}) {
        for (const bool weights : {false, true}) {
          for (const int64_t width : {1, 3, 8, 16}) {
            const Piece piece = {.pooling = pooling,
                                 .width = width,
                                 .slots = 3,
                                 .per_slot = per_slot,
                                 .padded = padded,
                                 .weights = weights};
            ExpectLikeTheChain({{.columns = 2}, piece, {.columns = 5}}, 7, static_cast<uint64_t>(width));
          }
        }
      }
    }
  }
}

TEST(LookupConcatTest, SeveralLookUpsAndDenseInputsInAnyOrder) {
  const Piece fields = {.width = 16, .slots = 26}, numbers = {.pooling = "sum", .slots = 4}, dense = {.columns = 13},
              means = {.pooling = "mean", .width = 8, .slots = 2, .per_slot = true, .weights = true},
              none = {.columns = 0};
  for (const int64_t batch : {0, 1, 5, 64}) {
    ExpectLikeTheChain({fields, dense}, batch, 1);
    ExpectLikeTheChain({dense, fields}, batch, 2);
    ExpectLikeTheChain({fields}, batch, 3);
    ExpectLikeTheChain({means, dense, numbers, none, fields, dense, numbers}, batch, 4);
  }
}

TEST(LookupConcatTest, ByHand) {
  IdBatch ids;
  ids.slots = 2;
  ids.values = {7, 5, 5, 5};
  ids.offsets = {0, 1, 2, 3, 4};
  SelectedRows rows;
  rows.ids = {5, 7};
  rows.values = Tensor::Of<float>({2, 1}, {50, 70});
  OpTest t("lookup_concat");
  t.Ids("Ids", ids).Fixed("Index", Tensor::Of<int32_t>({4}, {1, 0, 0, 0})).Rows("Rows", rows, 1);
  t.Batched("X", {2, 1}, {-1, -2});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 3}, {70, 50, -1, 50, 50, -2}, 0);
  const auto grad = t.Gradient("Rows", 0, {{"Out", Tensor::Of<float>({2, 3}, {1, 2, 4, 8, 16, 32})}});
  ASSERT_OK(grad.status());
  EXPECT_THAT(std::get<SelectedRows>(*grad).ids, ElementsAre(7, 5));
  EXPECT_THAT(std::get<SelectedRows>(*grad).step_rows, ElementsAre(1, 0));
  EXPECT_THAT(std::get<SelectedRows>(*grad).values.span<float>(), ElementsAre(1, 26));
  t.CheckGradient({.inputs = {"X"}});
}

TEST(LookupConcatTest, ALaneWithoutExamplesHasAnEmptyGradient) {
  Data data({{.width = 3, .slots = 2}, {.columns = 4}}, 0, 1);
  OpTest t = data.Joined();
  ASSERT_OK(t.Run());
  const auto grad = t.Gradient("Rows", 0, {{"Out", Tensor(v1::FLOAT32, {0, 10})}});
  ASSERT_OK(grad.status());
  EXPECT_THAT(std::get<SelectedRows>(*grad).ids, IsEmpty());
  EXPECT_TRUE(std::get<SelectedRows>(*grad).present);
}

std::string Refusal(OpTest t) { return std::string(t.Run().message()); }

TEST(LookupConcatTest, ShapesThatDoNotFitAreRefusedWithTheirPlace) {
  const auto with = [&](std::vector<v1::OpAttr> attrs) {
    OpTest t("lookup_concat", std::move(attrs));
    IdBatch ids;
    ids.values = {0};
    ids.offsets = {0, 1};
    SelectedRows rows;
    rows.ids = {0};
    rows.values = Tensor::Of<float>({1, 1}, {1});
    t.Ids("Ids", ids).Fixed("Index", Tensor::Of<int32_t>({1}, {0})).Rows("Rows", rows, 1);
    return t;
  };
  EXPECT_THAT(Refusal(with({AttrStrings("poolings", {"sum", "sum"})})), HasSubstr("1 look-ups have 2 poolings"));
  EXPECT_THAT(Refusal(with({AttrStrings("poolings", {"max"})})), HasSubstr("none, sum, mean or sqrt_n, got 'max'"));
  OpTest dense = with({AttrInts("dense_at", {2})});
  dense.Batched("X", {1, 2}, {1, 2});
  EXPECT_THAT(Refusal(dense), HasSubstr("dense_at [2] does not name rising places of 1 X among 2 pieces"));
  OpTest rank = with({});
  rank.Batched("X", {1, 2, 1}, {1, 2});
  EXPECT_THAT(Refusal(rank), HasSubstr("X[0] (X_0) must be [-1, columns], got [-1, 2, 1]"));
  OpTest more = with({});
  more.Fixed("Index", Tensor::Of<int32_t>({1}, {0}));
  EXPECT_THAT(Refusal(more), HasSubstr("1 Ids need as many Index and Rows, got 2 and 1"));
  OpTest place = with({});
  place.Batched("X", {2, 1}, {1, 2});
  EXPECT_THAT(Refusal(place), HasSubstr("X[0] must be [1, 1]"));
}

TEST(LookupConcatTest, AnIndexThatDoesNotFitIsRefused) {
  IdBatch ids;
  ids.values = {0, 1};
  ids.offsets = {0, 1, 2};
  SelectedRows rows;
  rows.ids = {0};
  rows.values = Tensor::Of<float>({1, 1}, {1});
  OpTest t("lookup_concat");
  t.Ids("Ids", ids).Fixed("Index", Tensor::Of<int32_t>({2}, {0, 1})).Rows("Rows", rows, 1);
  EXPECT_THAT(Refusal(t), HasSubstr("Index has 1; Rows has 1 rows"));
}

TEST(LookupConcatGradTest, ColumnsOutsideOfTheGradientAreRefused) {
  const auto grad = [](std::vector<v1::OpAttr> attrs) {
    OpTest t("lookup_concat_grad", std::move(attrs));
    t.Batched("Out@GRAD", {1, 4}, {1, 2, 3, 4}).Outputs("X@GRAD", 1);
    return t;
  };
  OpTest fits = grad({AttrInts("dense_begins", {1}), AttrInts("dense_sizes", {3})});
  ASSERT_OK(fits.Run());
  fits.ExpectOutput("X@GRAD", {1, 3}, {2, 3, 4}, 0);
  EXPECT_THAT(Refusal(grad({AttrInts("dense_begins", {2}), AttrInts("dense_sizes", {3})})),
              HasSubstr("X@GRAD[0] is 3 columns from 2 on; Out@GRAD is [-1, 4]"));
  EXPECT_THAT(Refusal(grad({AttrInts("dense_begins", {-1}), AttrInts("dense_sizes", {3})})),
              HasSubstr("columns from -1 on"));
  EXPECT_THAT(Refusal(grad({AttrInts("dense_begins", {1})})),
              HasSubstr("1 X@GRAD have 1 dense_begins and 0 dense_sizes"));
}

}  // namespace
}  // namespace weir
