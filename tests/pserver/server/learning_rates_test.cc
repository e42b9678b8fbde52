// When a server's learning rates go on, and who waits.
#include "pserver/params/learning_rates.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::VarDesc Var(const std::string& name, DType dtype, bool persistable) {
  v1::VarDesc var;
  var.set_name(name);
  var.set_dtype(dtype);
  var.add_dims(1);
  var.set_persistable(persistable);
  return var;
}

// A counter, a rate that is 1, 2, 3 from steps 0, 1, 2 on, and the count.
v1::ProgramDesc Program() {
  v1::ProgramDesc main;
  v1::BlockDesc* outer = main.add_blocks();
  *outer->add_vars() = Var("step", v1::INT64, true);
  *outer->add_vars() = Var("rate", v1::FLOAT32, true);
  v1::BlockDesc* block = main.add_blocks();
  block->set_index(1);
  block->set_parent(0);
  *block->add_vars() = Var("scheduled", v1::FLOAT64, false);
  for (v1::OpDesc op : {MakeOp("lr_piecewise", {{"Step", {"step"}}}, {{"Out", {"scheduled"}}},
                               {AttrInts("boundaries", {1, 2}), AttrFloats("values", {1, 2, 3})}),
                        MakeOp("lr_rate", {{"X", {"scheduled"}}}, {{"Out", {"rate"}}}),
                        MakeOp("lr_count", {{"Step", {"step"}}}, {{"StepOut", {"step"}}})}) {
    op.set_role(v1::LR_SCHEDULE);
    *block->add_ops() = op;
  }
  return main;
}

class LearningRatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    *scope_.FindOrCreate("step") = Tensor::Of<int64_t>({1}, {0});
    *scope_.FindOrCreate("rate") = Tensor::Of<float>({1}, {0});
  }
  std::unique_ptr<LearningRates> Make(int transactions_per_step) {
    auto rates = LearningRates::Create(Program(), 1, &scope_);
    EXPECT_TRUE(rates.ok()) << rates.status();
    (*rates)->SetTransactionsPerStep(transactions_per_step);
    return *std::move(rates);
  }
  float Rate() { return std::get<Tensor>(*scope_.Find("rate")).data<float>()[0]; }
  // The rates that the next n transactions see.
  std::vector<float> Next(LearningRates& rates, int n) {
    std::vector<float> seen;
    for (int i = 0; i < n; ++i) {
      LearningRates::Hold hold;
      EXPECT_TRUE(rates.Begin(i, &hold).ok());
      seen.push_back(Rate());
    }
    return seen;
  }

  Scope scope_;
};

TEST_F(LearningRatesTest, InSyncEveryStepCounts) { EXPECT_THAT(Next(*Make(1), 4), ElementsAre(1, 2, 3, 3)); }

TEST_F(LearningRatesTest, InAsyncEveryTrainersthTransactionCounts) {
  EXPECT_THAT(Next(*Make(3), 8), ElementsAre(1, 1, 1, 2, 2, 2, 3, 3));
}

TEST_F(LearningRatesTest, LaterPartsOfATransactionDoNotCount) {
  const auto rates = Make(1);
  EXPECT_THAT(Next(*rates, 1), ElementsAre(1));
  for (int i = 0; i < 3; ++i) {
    LearningRates::Hold hold;
    rates->GoOn(&hold);
    EXPECT_EQ(Rate(), 1);
  }
  EXPECT_THAT(Next(*rates, 1), ElementsAre(2));
}

TEST_F(LearningRatesTest, WhatIsRestoredGoesOnInTheMiddleOfAStep) {
  const auto first = Make(3);
  Next(*first, 4);
  std::vector<std::vector<float>> saved;
  std::vector<std::string> names;
  for (const LearningRates::State& state : first->states()) {
    names.push_back(state.name);
    saved.emplace_back(state.bits.begin(), state.bits.end());
  }
  EXPECT_THAT(names, ElementsAre("rate", "step", "transactions"));
  SetUp();
  const auto second = Make(3);
  std::vector<LearningRates::State> states = second->states();
  for (size_t i = 0; i < states.size(); ++i) std::copy(saved[i].begin(), saved[i].end(), states[i].bits.begin());
  EXPECT_THAT(Next(*second, 3), ElementsAre(2, 2, 3));
}

TEST_F(LearningRatesTest, NoRateChangesUnderAnUpdate) {
  const auto rates = Make(1);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        LearningRates::Hold hold;
        if (i % 3 == 0) {
          rates->GoOn(&hold);
        } else if (!rates->Begin(i, &hold).ok()) {
          ++wrong;
        }
        const float before = Rate();
        std::this_thread::yield();
        if (Rate() != before) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(std::get<Tensor>(*scope_.Find("step")).data<int64_t>()[0], 4 * 133);
}

TEST_F(LearningRatesTest, ACounterWithoutAValueIsNamed) {
  *scope_.FindOrCreate("step") = Tensor();
  EXPECT_THAT(std::string(LearningRates::Create(Program(), 1, &scope_).status().message()),
              HasSubstr("the startup program gives step no value"));
  EXPECT_THAT(std::string(LearningRates::Create(Program(), 5, &scope_).status().message()),
              HasSubstr("listen_and_serv names lr_block 5 of 2"));
}

}  // namespace
}  // namespace weir
