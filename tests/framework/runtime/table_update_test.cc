// The update of a table's rows, made of the ops of its optimize block.
#include "framework/runtime/table_update.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();

v1::VarDesc Table(int64_t width, double min = 0, double max = 0) {
  v1::VarDesc table;
  table.set_name("t");
  table.set_kind(v1::TABLE);
  table.add_dims(-1);
  table.add_dims(width);
  if (min < max) {
    table.mutable_initializer()->mutable_uniform()->set_min(min);
    table.mutable_initializer()->mutable_uniform()->set_max(max);
  }
  return table;
}

v1::OpDesc Op(const std::string& type, std::vector<v1::OpAttr> attrs, const std::string& rate = "") {
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs = {{"Param", {"t"}}, {"Grad", {"t@GRAD"}}};
  if (!rate.empty()) inputs.push_back({"LearningRate", {rate}});
  return MakeOp(type, inputs, {}, std::move(attrs));
}
v1::OpAttr Cols(int64_t begin, int64_t end) { return AttrInts("columns", {begin, end}); }

// Learning rates by name.
class Rates {
 public:
  explicit Rates(std::map<std::string, float> rates) {
    for (const auto& [name, rate] : rates) vars_[name] = Tensor::Of<float>({1}, {rate});
  }
  std::function<const Variable*(const std::string&)> find() const {
    return [this](const std::string& name) {
      const auto found = vars_.find(name);
      return found == vars_.end() ? nullptr : &found->second;
    };
  }

 private:
  std::map<std::string, Variable> vars_;
};

absl::StatusOr<TableUpdate> Make(const v1::VarDesc& table, const std::vector<v1::OpDesc>& ops,
                                 const Rates& rates = Rates({})) {
  std::vector<const v1::OpDesc*> pointers;
  for (const v1::OpDesc& op : ops) pointers.push_back(&op);
  return MakeTableUpdate(table, /*seed=*/3, pointers, rates.find());
}
std::string ErrorOf(const v1::VarDesc& table, const std::vector<v1::OpDesc>& ops, const Rates& rates = Rates({})) {
  return std::string(Make(table, ops, rates).status().message());
}

// Rows as a table makes them.
std::vector<float> NewRow(const TableUpdate& update, int width, int64_t id) {
  std::vector<float> row(static_cast<size_t>(width + update.rule->state_width(width)));
  update.initializer.Fill(id, absl::MakeSpan(row.data(), static_cast<size_t>(width)));
  update.rule->InitState(width, row.data() + width);
  return row;
}
void Step(const TableUpdate& update, int width, int64_t id, const std::vector<float>& grad, float divisor,
          std::vector<float>* row, float rate = 0.5f) {
  float* rows[] = {row->data()};
  const float* grads[] = {grad.data()};
  update.rule->UpdateIds(&id, width, rate, divisor, 1, rows, grads);
}

TEST(TableUpdateTest, ValuesOfUpdatedRowsAreBounded) {
  const auto update = Make(Table(3), {Op("sgd", {}), Op("bound", {AttrF("min", -1), AttrF("max", 0.25)})});
  ASSERT_TRUE(update.ok()) << update.status();
  std::vector<float> row = {0, 0, 0};
  Step(*update, 3, 7, {4, -4, 0.5f}, 1, &row);
  EXPECT_THAT(row, ElementsAre(-1, 0.25f, -0.25f));
  Step(*update, 3, 7, {std::nanf(""), -kInf, 0}, 1, &row);
  EXPECT_TRUE(std::isnan(row[0]));
  EXPECT_EQ(row[1], 0.25f);
}

TEST(TableUpdateTest, ABoundMayBeOnOneSide) {
  const auto update = Make(Table(2), {Op("sgd", {}), Op("bound", {AttrF("min", 0)})});
  ASSERT_TRUE(update.ok()) << update.status();
  std::vector<float> row = {1, 1};
  Step(*update, 2, 7, {4, -400}, 1, &row);
  EXPECT_THAT(row, ElementsAre(0, 201));
}

TEST(TableUpdateTest, RowsWithABadGradientAreLeftAloneAndCounted) {
  const auto update =
      Make(Table(2), {Op("drop_bad_rows", {}), Op("clip", {AttrF("min", -1), AttrF("max", 1)}), Op("adagrad", {})});
  ASSERT_TRUE(update.ok()) << update.status();
  EXPECT_TRUE(update->rule->skips_rows());
  std::vector<std::vector<float>> rows(4, {1, 2, 0, 0});
  const std::vector<std::vector<float>> grads = {{1, 2}, {std::nanf(""), 1}, {1, -kInf}, {3, 4}};
  std::vector<float*> row_pointers;
  std::vector<const float*> grad_pointers;
  for (size_t i = 0; i < rows.size(); ++i) {
    row_pointers.push_back(rows[i].data());
    grad_pointers.push_back(grads[i].data());
  }
  const int64_t ids[] = {1, 2, 3, 4};
  update->rule->UpdateIds(ids, 2, 0.5f, 1, 4, row_pointers.data(), grad_pointers.data());
  EXPECT_THAT(rows[1], ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(rows[2], ElementsAre(1, 2, 0, 0));
  // Clipped to 1: a = 1, w -= 0.5.
  EXPECT_NEAR(rows[0][0], 0.5, 1e-6);
  EXPECT_NEAR(rows[3][1], 1.5, 1e-6);
  EXPECT_EQ(update->rule->skipped_rows(), 2);
}

TEST(TableUpdateTest, SegmentsAreRowsOfTheirOwn) {
  // One of width 1, one of 8, one of 3, against tables of these widths.
  const std::vector<v1::OpDesc> ops = {Op("decay", {AttrF("l2", 0.125), Cols(0, 1)}),
                                       Op("ftrl", {AttrF("l1", 0.01), Cols(0, 1)}, "r0"),
                                       Op("adagrad", {AttrF("initial_accumulator", 0.1), Cols(1, 9)}, "r1"),
                                       Op("clip", {AttrF("min", -0.2), AttrF("max", 0.2), Cols(9, 12)}),
                                       Op("adam", {Cols(9, 12)}, "r2"),
                                       Op("bound", {AttrF("min", -0.3), AttrF("max", 0.3)})};
  const Rates rates({{"r0", 0.5f}, {"r1", 0.25f}, {"r2", 0.125f}});
  const auto whole = Make(Table(12, -0.25, 0.25), ops, rates);
  ASSERT_TRUE(whole.ok()) << whole.status();
  std::vector<std::string> names;
  for (const RowRule::State& state : whole->rule->states(12))
    names.push_back(absl::StrCat(state.name, " ", state.width));
  EXPECT_THAT(names, ElementsAre("0.squared_accumulator 1", "0.linear_accumulator 1", "1.moment 8", "2.moment1 3",
                                 "2.moment2 3", "2.step 1"));
  struct Part {
    int begin, width;
    float rate;
    absl::StatusOr<TableUpdate> update;
    std::vector<float> row = {};
  };
  const v1::OpDesc& bound = ops[5];
  Part parts[] = {
      {0, 1, 0.5f, Make(Table(1), {Op("decay", {AttrF("l2", 0.125)}), Op("ftrl", {AttrF("l1", 0.01)}), bound})},
      {1, 8, 0.25f, Make(Table(8), {Op("adagrad", {AttrF("initial_accumulator", 0.1)}), bound})},
      {9, 3, 0.125f, Make(Table(3), {Op("clip", {AttrF("min", -0.2), AttrF("max", 0.2)}), Op("adam", {}), bound})}};
  const int64_t id = -9;
  std::vector<float> row = NewRow(*whole, 12, id);
  for (Part& part : parts) {
    ASSERT_TRUE(part.update.ok()) << part.update.status();
    part.row = NewRow(*part.update, part.width, id);
    std::copy_n(row.data() + part.begin, part.width, part.row.data());
  }
  for (int step = 0; step < 10; ++step) {
    std::vector<float> grad;
    for (int j = 0; j < 12; ++j) grad.push_back(std::sin(static_cast<float>(step * 12 + j)));
    Step(*whole, 12, id, grad, 3, &row);
    size_t state = 12;
    for (Part& part : parts) {
      Step(*part.update, part.width, id, {grad.begin() + part.begin, grad.begin() + part.begin + part.width}, 3,
           &part.row, part.rate);
      EXPECT_EQ(std::memcmp(row.data() + part.begin, part.row.data(), static_cast<size_t>(part.width) * 4), 0) << step;
      const size_t floats = part.row.size() - static_cast<size_t>(part.width);
      EXPECT_EQ(std::memcmp(row.data() + state, part.row.data() + part.width, floats * 4), 0) << step;
      state += floats;
    }
  }
}

TEST(TableUpdateTest, SegmentsHaveInitialValuesByColumnOfTheWholeRow) {
  const v1::VarDesc table = Table(6, -1, 1);
  v1::OpDesc second = Op("sgd", {Cols(2, 6)}, "r");
  v1::OpAttr* const initializer = second.add_attrs();
  initializer->set_name("initializer");
  initializer->mutable_initializer()->mutable_uniform()->set_min(0);
  initializer->mutable_initializer()->mutable_uniform()->set_max(1);
  const Rates rates({{"r", 0.5f}});
  const auto update = Make(table, {Op("sgd", {Cols(0, 2)}, "r"), second}, rates);
  ASSERT_TRUE(update.ok()) << update.status();
  const std::vector<float> row = NewRow(*update, 6, 42);
  std::vector<float> whole(6), other(6);
  RowInitializer(table.initializer(), 3, "t").Fill(42, absl::MakeSpan(whole));
  RowInitializer(initializer->initializer(), 3, "t").Fill(42, absl::MakeSpan(other));
  EXPECT_THAT(row, ElementsAre(whole[0], whole[1], other[2], other[3], other[4], other[5]));
}

TEST(TableUpdateTest, ASegmentMayBeginLater) {
  const v1::VarDesc table = Table(3, 0.5, 1);
  const Rates rates({{"wide", 1}, {"deep", 0.5f}});
  const auto update = Make(table,
                           {Op("drop_bad_rows", {}), Op("sgd", {Cols(0, 1)}, "wide"),
                            Op("adagrad", {Cols(1, 3), AttrI("after", 2)}, "deep"), Op("bound", {AttrF("min", -8)})},
                           rates);
  ASSERT_TRUE(update.ok()) << update.status();
  std::vector<float> initial(3);
  RowInitializer(table.initializer(), 3, "t").Fill(11, absl::MakeSpan(initial));
  std::vector<float> row = NewRow(*update, 3, 11);
  EXPECT_THAT(row, ElementsAre(initial[0], 0, 0, 0, 0, 0));
  Step(*update, 3, 11, {1, 7, 7}, 1, &row);
  EXPECT_THAT(row, ElementsAre(initial[0] - 1, 0, 0, 0, 0, 1));
  // A step that leaves the row alone does not count.
  Step(*update, 3, 11, {1, std::nanf(""), 7}, 1, &row);
  EXPECT_THAT(row, ElementsAre(initial[0] - 1, 0, 0, 0, 0, 1));
  // The second: from now on it is there.
  Step(*update, 3, 11, {1, 7, 7}, 1, &row);
  EXPECT_THAT(row, ElementsAre(initial[0] - 2, initial[1], initial[2], 0, 0, 2));
  Step(*update, 3, 11, {1, 4, -4}, 1, &row);
  EXPECT_NEAR(row[1], initial[1] - 0.5, 1e-6);
  EXPECT_NEAR(row[2], initial[2] + 0.5, 1e-6);
  EXPECT_EQ(row[3], 16);
  EXPECT_EQ(row[5], 2) << "steps are counted as far as they matter";
}

TEST(TableUpdateTest, WithoutRatesStatesAreKnownAllTheSame) {
  const v1::OpDesc wide = Op("ftrl", {Cols(0, 1)}, "a"),
                   deep = Op("adagrad_per_row", {Cols(1, 9), AttrI("after", 5)}, "b");
  const std::vector<const v1::OpDesc*> ops = {&wide, &deep};
  const auto update = MakeTableUpdate(Table(9), 1, ops, nullptr);
  ASSERT_TRUE(update.ok()) << update.status();
  // Two of ftrl, one accumulator, the count of steps.
  EXPECT_EQ(update->rule->state_width(9), 4);
}

TEST(TableUpdateTest, WhatDoesNotFitIsRefused) {
  const Rates rates({{"r", 0.5f}});
  EXPECT_EQ(ErrorOf(Table(4), {Op("sgd", {Cols(0, 2)}, "r")}, rates),
            "updates end at column 2 of 4; all columns must have one");
  EXPECT_EQ(ErrorOf(Table(4), {Op("sgd", {Cols(0, 2)}, "r"), Op("sgd", {Cols(3, 4)}, "r")}, rates),
            "operator 'sgd' has columns from 3; the next without an update is 2");
  EXPECT_EQ(ErrorOf(Table(4), {Op("sgd", {Cols(0, 5)}, "r")}, rates),
            "operator 'sgd': columns must be [begin, end) of the 4 of a row, none for all");
  EXPECT_EQ(ErrorOf(Table(4), {Op("sgd", {Cols(0, 2)}, "r"), Op("sgd", {Cols(2, 4)}, "q")}, rates),
            "the startup program gives its learning rate q no value");
  EXPECT_EQ(ErrorOf(Table(4), {Op("decay", {Cols(0, 1)}), Op("sgd", {Cols(0, 4)}, "r")}, rates),
            "operator 'decay' stands before an update of other columns");
  EXPECT_EQ(ErrorOf(Table(4), {Op("sgd", {}), Op("decay", {})}), "operator 'decay' stands behind the update");
  EXPECT_EQ(ErrorOf(Table(4), {Op("bound", {}), Op("sgd", {})}), "operator 'bound' stands before the update");
  EXPECT_EQ(ErrorOf(Table(4), {Op("decay", {}), Op("drop_bad_rows", {}), Op("sgd", {})}),
            "operator 'drop_bad_rows' stands behind what changes gradients");
  EXPECT_EQ(ErrorOf(Table(4), {Op("decay", {})}), "operator 'decay' stands behind the update");
  EXPECT_EQ(ErrorOf(Table(4), {}), "nothing updates the rows");
}

}  // namespace
}  // namespace weir
