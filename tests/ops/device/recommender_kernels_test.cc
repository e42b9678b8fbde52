// Device kernels of recommender models against their CPU twins (see kernels_test.cc): the same bits but for products of
// matrices and sums that a device takes in an order of its own.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/device_twin.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using Values = DeviceTwin::Values;
using Slots = std::vector<std::pair<std::string, std::vector<std::string>>>;

int64_t Sum(const std::vector<int64_t>& batches) { return std::accumulate(batches.begin(), batches.end(), int64_t{0}); }

// Returns the lengths of `count` sequences of at most `most` elements; all lengths occur.
std::vector<float> Lengths(int64_t count, int64_t most) {
  std::vector<float> lengths;
  for (int64_t i = 0; i < count; ++i) lengths.push_back(static_cast<float>(i * 7 % (most + 1)));
  return lengths;
}

// Small numbers, half of them negative.
Tensor Alternating(absl::Span<const int64_t> dims) {
  Tensor t(v1::FLOAT32, dims);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = static_cast<float>(i % 7 - 3) / 4 + 0.1f;
  return t;
}

// The value of one lane.
std::vector<Variable> Lanes(Variable value) {
  std::vector<Variable> lanes;
  lanes.push_back(std::move(value));
  return lanes;
}

class RecommenderKernelsTest : public DeviceTest {};
INSTANTIATE_DEVICE_TESTS(RecommenderKernelsTest);

TEST_P(RecommenderKernelsTest, FcOverTheElementsOfASequence) {
  for (const char* activation : {"identity", "relu", "sigmoid", "tanh"}) {
    for (const bool bias : {true, false}) {
      SCOPED_TRACE(absl::StrCat(activation, bias ? " with bias" : ""));
      for (const auto& batches : Batches()) {
        DeviceTwin t(memory(), batches);
        t.Batched("x", {3, 2, 2}).Fixed("w", {4, 5}).Fixed("b", {5}).Batched("dout", {3, 5});
        const std::vector<v1::OpAttr> attrs = {AttrS("activation", activation), AttrI("row_dims", 2)};
        Slots in = {{"X", {"x"}}, {"W", {"w"}}}, out = {{"X@GRAD", {"dx"}}, {"W@GRAD", {"dw"}}};
        if (bias) in.push_back({"Bias", {"b"}});
        if (bias) out.push_back({"Bias@GRAD", {"db"}});
        t.Op(MakeOp("fc", in, {{"Out", {"y"}}}, attrs));
        in.push_back({"Out", {"y"}});
        in.push_back({"Out@GRAD", {"dout"}});
        t.Op(MakeOp("fc_grad", in, out, attrs));
        t.Compare({"y", "dx", "dw"}, kSum);
        if (bias) t.Compare({"db"}, kSum);
      }
    }
  }
}

TEST_P(RecommenderKernelsTest, FcOverMoreDimsThanThereAreIsAnError) {
  DeviceTwin t(memory(), {3});
  t.Batched("x", {4}).Fixed("w", {4, 2});
  t.Op(MakeOp("fc", {{"X", {"x"}}, {"W", {"w"}}}, {{"Out", {"out"}}}, {AttrI("row_dims", 2)}));
  EXPECT_THAT(std::string(t.DeviceStatus({"out"}).message()),
              HasSubstr("op 0 (fc) making out: X [3, 4] cannot be multiplied by W [4, 2]"));
}

TEST_P(RecommenderKernelsTest, Cross) {
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    for (const char* x : {"x0", "y", "x", "dout"}) t.Batched(x, {5}, Values::kSpecial);
    t.Op(MakeOp("cross", {{"X0", {"x0"}}, {"Y", {"y"}}, {"X", {"x"}}}, {{"Out", {"out"}}}));
    const Slots in = {{"X0", {"x0"}}, {"Y", {"y"}}, {"Out@GRAD", {"dout"}}};
    t.Op(MakeOp("cross_grad", in, {{"X0@GRAD", {"dx0"}}, {"Y@GRAD", {"dy"}}, {"X@GRAD", {"dx"}}}));
    t.Op(MakeOp("cross_grad", in, {{"Y@GRAD", {"dy alone"}}}));
    // In the place of what it reads.
    t.Op(MakeOp("cross_grad", in, {{"X0@GRAD", {"dx0 again"}}, {"X@GRAD", {"dout"}}}));
    t.Compare({"out", "dx0", "dy", "dx", "dy alone", "dx0 again", "dout"});
  }
}

// More than one wave of the largest grid, and not a multiple of a block.
TEST_P(RecommenderKernelsTest, MoreElementsThanThreads) {
  DeviceTwin t(memory(), {8192 * 256 / 8 + 77});
  for (const char* x : {"x0", "y", "x"}) t.Batched(x, {8}, Values::kSpecial);
  t.Op(MakeOp("cross", {{"X0", {"x0"}}, {"Y", {"y"}}, {"X", {"x"}}}, {{"Out", {"out"}}}));
  t.Compare({"out"});
}

TEST_P(RecommenderKernelsTest, SequencesOfMoreElementsThanThreads) {
  const int64_t batch = 8192 * 256 / 16 + 77;
  DeviceTwin t(memory(), {batch});
  t.BatchedValues("length", Lengths(batch, 4)).Batched("x", {4, 4}, Values::kSpecial).Batched("q", {4});
  t.Op(MakeOp("sequence_pool", {{"X", {"x"}}, {"Length", {"length"}}}, {{"Out", {"mean"}}}));
  t.Op(
      MakeOp("attention_pairs", {{"Query", {"q"}}, {"Sequence", {"x"}}, {"Length", {"length"}}}, {{"Out", {"pairs"}}}));
  t.Compare({"mean", "pairs"});
}

TEST_P(RecommenderKernelsTest, DotInteraction) {
  struct Case {
    std::vector<std::vector<int64_t>> inputs;  // row dims
    std::vector<int64_t> wanted;
  };
  const std::vector<Case> cases = {{{{7, 5}}, {0}},
                                   {{{1, 1}, {1}}, {0, 1}},
                                   {{{16}, {26, 16}}, {0, 1}},
                                   {{{3, 4}, {4}, {2, 4}}, {2}},
                                   {{{3, 4}, {4}, {2, 4}}, {0, 1}}};
  for (const Case& one : cases) {
    for (const bool self : {false, true}) {
      SCOPED_TRACE(absl::StrCat(one.inputs.size(), " inputs, the first ", ShapeString(one.inputs[0]),
                                self ? ", with themselves" : ""));
      int64_t vectors = 0;
      for (const auto& dims : one.inputs) vectors += dims.size() == 2 ? dims[0] : 1;
      for (const auto& batches : Batches()) {
        DeviceTwin t(memory(), batches);
        std::vector<std::string> x, dx;
        for (const auto& dims : one.inputs) {
          x.push_back(absl::StrCat("x", x.size()));
          t.Batched(x.back(), dims);
        }
        for (const int64_t i : one.wanted) dx.push_back(absl::StrCat("dx", i));
        t.Batched("dout", {self ? vectors * (vectors + 1) / 2 : vectors * (vectors - 1) / 2});
        t.Op(MakeOp("dot_interaction", {{"X", x}}, {{"Out", {"out"}}}, {AttrB("self_interaction", self)}));
        t.Op(MakeOp("dot_interaction_grad", {{"X", x}, {"Out@GRAD", {"dout"}}}, {{"X@GRAD", dx}},
                    {AttrB("self_interaction", self), AttrInts("wanted", one.wanted)}));
        t.Compare({"out"}, kSum);
        t.Compare(dx, kSum);
      }
    }
  }
}

// The products of a vector that is not finite, and the gradients by pairs whose own is not.
TEST_P(RecommenderKernelsTest, DotInteractionOfWhatIsNotFinite) {
  for (const bool self : {false, true}) {
    DeviceTwin t(memory(), {37});
    const int64_t pairs = self ? 10 : 6;
    Tensor x = Alternating({37, 4, 3}), dout = Alternating({37, pairs}), finite = Alternating({37, 4, 3});
    x.data<float>()[5] = NAN;
    x.data<float>()[36 + 4] = INFINITY;
    dout.data<float>()[3] = NAN;
    dout.data<float>()[pairs + 2] = -INFINITY;
    t.Feed("x", v1::DENSE, v1::FLOAT32, {-1, 4, 3}, Lanes(std::move(x)));
    t.Feed("finite", v1::DENSE, v1::FLOAT32, {-1, 4, 3}, Lanes(std::move(finite)));
    t.Feed("dout", v1::DENSE, v1::FLOAT32, {-1, pairs}, Lanes(std::move(dout)));
    t.Op(MakeOp("dot_interaction", {{"X", {"x"}}}, {{"Out", {"out"}}}, {AttrB("self_interaction", self)}));
    t.Op(MakeOp("dot_interaction_grad", {{"X", {"finite"}}, {"Out@GRAD", {"dout"}}}, {{"X@GRAD", {"dx"}}},
                {AttrB("self_interaction", self), AttrInts("wanted", {0})}));
    t.Compare({"out", "dx"}, kSum);
  }
}

TEST_P(RecommenderKernelsTest, SequencePool) {
  for (const char* type : {"sum", "mean", "sqrt_n", "max", "first", "last"}) {
    for (const auto& [most, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 3}, {20, 8}}) {
      SCOPED_TRACE(absl::StrCat(type, " of ", most, " elements of ", width));
      for (const auto& batches : Batches()) {
        DeviceTwin t(memory(), batches);
        t.BatchedValues("length", Lengths(Sum(batches), most))
            .Batched("x", {most, width}, Values::kSpecial)
            .Batched("dout", {width}, Values::kSpecial);
        const std::vector<v1::OpAttr> attrs = {AttrS("type", type)};
        t.Op(MakeOp("sequence_pool", {{"X", {"x"}}, {"Length", {"length"}}}, {{"Out", {"out"}}}, attrs));
        t.Op(MakeOp("sequence_pool_grad", {{"X", {"x"}}, {"Length", {"length"}}, {"Out@GRAD", {"dout"}}},
                    {{"X@GRAD", {"dx"}}}, attrs));
        t.Compare({"out", "dx"});
      }
    }
  }
}

// Equal elements: the gradient goes to the first that is the largest.
TEST_P(RecommenderKernelsTest, TheFirstOfTheLargestHasTheGradient) {
  DeviceTwin t(memory(), {9, 2});
  t.BatchedValues("length", Lengths(11, 6)).Batched("x", {6, 2}, Values::kBits).Batched("dout", {2});
  t.Op(MakeOp("sequence_pool_grad", {{"X", {"x"}}, {"Length", {"length"}}, {"Out@GRAD", {"dout"}}},
              {{"X@GRAD", {"dx"}}}, {AttrS("type", "max")}));
  t.Compare({"dx"});
}

TEST_P(RecommenderKernelsTest, AttentionPairs) {
  for (const auto& [most, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 3}, {20, 8}}) {
    for (const auto& batches : Batches()) {
      DeviceTwin t(memory(), batches);
      t.BatchedValues("length", Lengths(Sum(batches), most))
          .Batched("q", {width}, Values::kSpecial)
          .Batched("x", {most, width}, Values::kSpecial)
          .Batched("dout", {most, 4 * width}, Values::kSpecial);
      Slots in = {{"Query", {"q"}}, {"Sequence", {"x"}}, {"Length", {"length"}}};
      t.Op(MakeOp("attention_pairs", in, {{"Out", {"out"}}}));
      in.push_back({"Out@GRAD", {"dout"}});
      t.Op(MakeOp("attention_pairs_grad", in, {{"Query@GRAD", {"dq"}}, {"Sequence@GRAD", {"dx"}}}));
      t.Op(MakeOp("attention_pairs_grad", in, {{"Query@GRAD", {"dq alone"}}}));
      t.Compare({"out", "dq", "dx", "dq alone"});
    }
  }
}

TEST_P(RecommenderKernelsTest, AttentionPool) {
  for (const bool softmax : {false, true}) {
    for (const auto& [most, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 3}, {50, 33}}) {
      for (const Values values : {Values::kPlain, Values::kSpecial}) {
        SCOPED_TRACE(absl::StrCat(most, " elements of ", width, softmax ? ", softmax" : ""));
        for (const auto& batches : Batches()) {
          DeviceTwin t(memory(), batches);
          t.BatchedValues("length", Lengths(Sum(batches), most))
              .Batched("score", {most, 1}, values)
              .Batched("x", {most, width}, values)
              .Batched("dout", {width}, values);
          const std::vector<v1::OpAttr> attrs = {AttrB("softmax", softmax)};
          const Slots in = {{"Score", {"score"}}, {"Sequence", {"x"}}, {"Length", {"length"}}};
          t.Op(MakeOp("attention_pool", in, {{"Out", {"out"}}, {"Weight", {"weight"}}}, attrs));
          t.Op(MakeOp("attention_pool_grad",
                      {{"Weight", {"weight"}}, {"Sequence", {"x"}}, {"Length", {"length"}}, {"Out@GRAD", {"dout"}}},
                      {{"Score@GRAD", {"dscore"}}, {"Sequence@GRAD", {"dx"}}}, attrs));
          // In the place of the scores.
          t.Op(MakeOp("attention_pool", in, {{"Out", {"out again"}}, {"Weight", {"score"}}}, attrs));
          t.Compare({"out", "weight", "dscore", "dx", "out again", "score"});
        }
      }
    }
  }
}

TEST_P(RecommenderKernelsTest, AddPositions) {
  for (const bool from_end : {false, true}) {
    for (const auto& [most, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 3}, {20, 8}}) {
      for (const auto& batches : Batches()) {
        DeviceTwin t(memory(), batches);
        t.BatchedValues("length", Lengths(Sum(batches), most))
            .Batched("x", {most, width}, Values::kSpecial)
            .Fixed("w", {most, width})
            .Batched("dout", {most, width});
        const std::vector<v1::OpAttr> attrs = {AttrB("from_end", from_end)};
        t.Op(MakeOp("add_positions", {{"X", {"x"}}, {"W", {"w"}}, {"Length", {"length"}}}, {{"Out", {"out"}}}, attrs));
        const Slots in = {{"W", {"w"}}, {"Length", {"length"}}, {"Out@GRAD", {"dout"}}};
        t.Op(MakeOp("add_positions_grad", in, {{"X@GRAD", {"dx"}}, {"W@GRAD", {"dw"}}}, attrs));
        // In the place of what it reads.
        t.Op(MakeOp("add_positions_grad", in, {{"X@GRAD", {"dout"}}, {"W@GRAD", {"dw again"}}}, attrs));
        t.Compare({"out", "dx", "dw", "dout", "dw again"});
      }
    }
  }
}

TEST_P(RecommenderKernelsTest, SelfAttention) {
  struct Case {
    int64_t most, heads, width;
  };
  for (const Case& one : std::vector<Case>{{1, 1, 1}, {5, 2, 3}, {18, 1, 16}, {33, 2, 17}}) {
    for (const bool causal : {false, true}) {
      for (const bool with_length : {false, true}) {
        SCOPED_TRACE(absl::StrCat(one.most, " elements, ", one.heads, " heads of ", one.width));
        for (const auto& batches : Batches()) {
          // A large batch of long sequences shows nothing else.
          if (one.most > 5 && Sum(batches) > 100) continue;
          DeviceTwin t(memory(), batches);
          const int64_t size = one.heads * one.width;
          t.BatchedValues("length", Lengths(Sum(batches), one.most));
          for (const char* x : {"q", "k", "v", "dout"}) t.Batched(x, {one.most, size});
          const std::vector<v1::OpAttr> attrs = {AttrI("heads", one.heads), AttrB("causal", causal)};
          Slots in = {{"Q", {"q"}}, {"K", {"k"}}, {"V", {"v"}}};
          if (with_length) in.push_back({"Length", {"length"}});
          t.Op(MakeOp("self_attention", in, {{"Out", {"out"}}, {"Weight", {"weight"}}}, attrs));
          in.push_back({"Weight", {"weight"}});
          in.push_back({"Out@GRAD", {"dout"}});
          t.Op(MakeOp("self_attention_grad", in, {{"Q@GRAD", {"dq"}}, {"K@GRAD", {"dk"}}, {"V@GRAD", {"dv"}}}, attrs));
          t.Op(MakeOp("self_attention_grad", in, {{"K@GRAD", {"dk alone"}}}, attrs));
          t.Compare({"out", "weight", "dq", "dk", "dv", "dk alone"});
        }
      }
    }
  }
}

// Numbers that are not finite stay where the CPU has them: within what is attended to.
TEST_P(RecommenderKernelsTest, SelfAttentionOfWhatIsNotFinite) {
  for (const bool causal : {false, true}) {
    DeviceTwin t(memory(), {37});
    t.BatchedValues("length", Lengths(37, 20));
    for (const char* x : {"q", "k", "v", "dout"}) t.Batched(x, {20, 6}, Values::kSomeNotFinite);
    const std::vector<v1::OpAttr> attrs = {AttrI("heads", 2), AttrB("causal", causal)};
    Slots in = {{"Q", {"q"}}, {"K", {"k"}}, {"V", {"v"}}, {"Length", {"length"}}};
    t.Op(MakeOp("self_attention", in, {{"Out", {"out"}}, {"Weight", {"weight"}}}, attrs));
    in.push_back({"Weight", {"weight"}});
    in.push_back({"Out@GRAD", {"dout"}});
    t.Op(MakeOp("self_attention_grad", in, {{"Q@GRAD", {"dq"}}, {"K@GRAD", {"dk"}}, {"V@GRAD", {"dv"}}}, attrs));
    t.Compare({"out", "weight", "dq", "dk", "dv"});
  }
}

TEST_P(RecommenderKernelsTest, InBatchSoftmax) {
  for (const auto& batches : Batches()) {
    for (const int64_t width : {1, 17}) {
      for (const bool all : {false, true}) {
        SCOPED_TRACE(absl::StrCat("width ", width, all ? ", with all inputs" : ""));
        DeviceTwin t(memory(), batches);
        t.Batched("q", {width}).Batched("i", {width}).Batched("dout", {1});
        Slots in = {{"Query", {"q"}}, {"Item", {"i"}}};
        if (all) {
          std::vector<Variable> lanes;
          std::vector<float> probabilities;
          for (const int64_t n : batches) {
            IdBatch ids;
            ids.slots = 1;
            ids.offsets.push_back(0);
            for (int64_t b = 0; b < n; ++b) {
              // Beyond 32 bits, and alike in the lower ones.
              ids.values.push_back((b % 5) << 40 | 7);
              ids.offsets.push_back(b + 1);
              probabilities.push_back(0.01f * static_cast<float>(1 + b % 90));
            }
            lanes.emplace_back(std::move(ids));
          }
          t.Feed("id", v1::IDS, v1::INT64, {-1, 1}, std::move(lanes)).BatchedValues("p", probabilities);
          t.Batched("weight", {1}, Values::kPositive);
          in.insert(in.end(), {{"Probability", {"p"}}, {"ItemId", {"id"}}, {"Weight", {"weight"}}});
        }
        const std::vector<v1::OpAttr> attrs = {AttrF("temperature", 0.5)};
        t.Op(MakeOp("in_batch_softmax", in, {{"LogSum", {"log_sum"}}, {"Out", {"out"}}}, attrs));
        in.insert(in.end(), {{"LogSum", {"log_sum"}}, {"Out@GRAD", {"dout"}}});
        t.Op(MakeOp("in_batch_softmax_grad", in, {{"Query@GRAD", {"dq"}}, {"Item@GRAD", {"di"}}}, attrs));
        t.Op(MakeOp("in_batch_softmax_grad", in, {{"Item@GRAD", {"di alone"}}}, attrs));
        t.Compare({"log_sum", "out", "dq", "di", "di alone"}, kSum);
      }
    }
  }
}

// More examples than a piece of scores has room for.
TEST_P(RecommenderKernelsTest, InBatchSoftmaxInPieces) {
  DeviceTwin t(memory(), {8300});
  t.Batched("q", {2}).Batched("i", {2}).Batched("dout", {1});
  Slots in = {{"Query", {"q"}}, {"Item", {"i"}}};
  t.Op(MakeOp("in_batch_softmax", in, {{"LogSum", {"log_sum"}}, {"Out", {"out"}}}, {AttrF("temperature", 0.5)}));
  in.insert(in.end(), {{"LogSum", {"log_sum"}}, {"Out@GRAD", {"dout"}}});
  t.Op(MakeOp("in_batch_softmax_grad", in, {{"Query@GRAD", {"dq"}}, {"Item@GRAD", {"di"}}},
              {AttrF("temperature", 0.5)}));
  t.Compare({"log_sum", "out", "dq", "di"}, kSum);
}

// One product is no number.
TEST_P(RecommenderKernelsTest, InBatchSoftmaxOfWhatIsNotFinite) {
  DeviceTwin t(memory(), {37});
  t.Batched("q", {3}, Values::kSomeNotFinite).Batched("i", {3}).Batched("dout", {1});
  const Slots in = {{"Query", {"q"}}, {"Item", {"i"}}};
  t.Op(MakeOp("in_batch_softmax", in, {{"LogSum", {"log_sum"}}, {"Out", {"out"}}}, {AttrF("temperature", 1)}));
  t.Compare({"out"}, kSum);
}

TEST_P(RecommenderKernelsTest, LayerNorm) {
  for (const Shape& x : std::vector<Shape>{{1}, {19}, {5, 64}, {2, 3, 4}}) {
    SCOPED_TRACE(ShapeString(x));
    for (const auto& batches : Batches()) {
      DeviceTwin t(memory(), batches);
      t.Batched("x", x).Batched("dout", x).Fixed("scale", {x.back()}).Fixed("shift", {x.back()});
      t.Op(MakeOp("layer_norm", {{"X", {"x"}}, {"Scale", {"scale"}}, {"Shift", {"shift"}}},
                  {{"Out", {"out"}}, {"Mean", {"mean"}}, {"Inverse", {"inverse"}}}, {AttrF("epsilon", 0.01)}));
      const Slots in = {
          {"X", {"x"}}, {"Scale", {"scale"}}, {"Mean", {"mean"}}, {"Inverse", {"inverse"}}, {"Out@GRAD", {"dout"}}};
      t.Op(MakeOp("layer_norm_grad", in, {{"X@GRAD", {"dx"}}, {"Scale@GRAD", {"dscale"}}, {"Shift@GRAD", {"dshift"}}}));
      t.Compare({"out", "mean", "inverse", "dx"});
      t.Compare({"dscale", "dshift"}, {.relative = 2e-4});
    }
  }
}

TEST_P(RecommenderKernelsTest, Prelu) {
  for (const Shape& x : std::vector<Shape>{{1}, {19}, {5, 6}}) {
    for (const int64_t slopes : {int64_t{1}, x.back()}) {
      SCOPED_TRACE(absl::StrCat(ShapeString(x), ", slopes ", slopes));
      for (const auto& batches : Batches()) {
        DeviceTwin t(memory(), batches);
        t.Batched("x", x).Batched("dout", x).Batched("special", x, Values::kSpecial).Fixed("slope", {slopes});
        const Slots in = {{"X", {"x"}}, {"Slope", {"slope"}}, {"Out@GRAD", {"dout"}}};
        t.Op(MakeOp("prelu", {{"X", {"special"}}, {"Slope", {"slope"}}}, {{"Out", {"out"}}}));
        t.Op(MakeOp("prelu_grad", in, {{"X@GRAD", {"dx"}}, {"Slope@GRAD", {"dslope"}}}));
        t.Compare({"out", "dx"});
        t.Compare({"dslope"}, {.relative = 1e-4});
      }
    }
  }
}

// A run changes dout, so that there is one comparison.
TEST_P(RecommenderKernelsTest, GradientsInThePlaceOfThatOfOut) {
  DeviceTwin norm(memory(), {5, 0, 1, 7});
  norm.Batched("x", {3, 4}).Batched("dout", {3, 4}).Fixed("scale", {4}).Fixed("shift", {4});
  norm.Op(MakeOp("layer_norm", {{"X", {"x"}}, {"Scale", {"scale"}}, {"Shift", {"shift"}}},
                 {{"Out", {"out"}}, {"Mean", {"mean"}}, {"Inverse", {"inverse"}}}));
  norm.Op(
      MakeOp("layer_norm_grad",
             {{"X", {"x"}}, {"Scale", {"scale"}}, {"Mean", {"mean"}}, {"Inverse", {"inverse"}}, {"Out@GRAD", {"dout"}}},
             {{"X@GRAD", {"dout"}}, {"Scale@GRAD", {"dscale"}}}));
  norm.Compare({"dout", "dscale"}, {.relative = 1e-4});
  DeviceTwin prelu(memory(), {5, 0, 1, 7});
  prelu.Batched("x", {4}).Batched("dout", {4}).Fixed("slope", {4});
  prelu.Op(MakeOp("prelu_grad", {{"X", {"x"}}, {"Slope", {"slope"}}, {"Out@GRAD", {"dout"}}},
                  {{"X@GRAD", {"dout"}}, {"Slope@GRAD", {"dslope"}}}));
  prelu.Compare({"dout", "dslope"}, {.relative = 1e-5});
}

TEST_P(RecommenderKernelsTest, DiceMeasuresEachLane) {
  for (const bool training : {true, false}) {
    for (const Shape& x : std::vector<Shape>{{1}, {19}, {5, 6}}) {
      SCOPED_TRACE(absl::StrCat(ShapeString(x), training ? ", training" : ""));
      for (const auto& batches : Batches()) {
        DeviceTwin t(memory(), batches);
        t.step().training = training;
        t.Batched("x", x).Batched("dout", x).Fixed("slope", {x.back()});
        t.Fixed("mean", {x.back()}).Fixed("variance", {x.back()}, Values::kPositive);
        const std::vector<v1::OpAttr> attrs = {AttrF("epsilon", 0.1)};
        t.Op(MakeOp("dice", {{"X", {"x"}}, {"Slope", {"slope"}}, {"Mean", {"mean"}}, {"Variance", {"variance"}}},
                    {{"Out", {"out"}}, {"BatchMean", {"measured"}}, {"BatchVariance", {"spread"}}}, attrs));
        const Slots in = {{"X", {"x"}},
                          {"Slope", {"slope"}},
                          {"BatchMean", {"measured"}},
                          {"BatchVariance", {"spread"}},
                          {"Out@GRAD", {"dout"}}};
        t.Op(MakeOp("dice_grad", in,
                    {{"X@GRAD", {"dx"}},
                     {"Slope@GRAD", {"dslope"}},
                     {"Mean@GRAD", {"dmean"}},
                     {"Variance@GRAD", {"dvariance"}}},
                    attrs));
        t.Op(MakeOp("dice_grad", in, {{"X@GRAD", {"dout"}}}, attrs));
        t.Compare({"out", "measured", "spread", "dx", "dslope", "dmean", "dvariance", "dout"}, {.relative = 1e-4});
      }
    }
  }
}

TEST_P(RecommenderKernelsTest, ALengthThatIsNoneIsAnError) {
  for (const auto& [length, text] :
       std::vector<std::pair<float, std::string>>{{2.5f, "2.5"}, {5, "5"}, {-1, "-1"}, {NAN, "nan"}}) {
    DeviceTwin t(memory(), {2});
    t.BatchedValues("length", {1, length}).Batched("x", {4, 2});
    t.Op(MakeOp("sequence_pool", {{"X", {"x"}}, {"Length", {"length"}}}, {{"Out", {"out"}}}));
    EXPECT_THAT(std::string(t.DeviceStatus({"out"}).message()),
                HasSubstr(absl::StrCat("Length of example 1 is ", text, "; X [2, 4, 2] has sequences of 0 to 4")));
  }
}

// Ids of one slot, of which some are padding (1007) and in more places than a sequence has.
std::vector<IdBatch> Histories(const std::vector<int64_t>& batches, bool weights) {
  std::vector<IdBatch> lanes;
  uint64_t draw = 0;
  for (const int64_t batch : batches) {
    IdBatch ids;
    if (batch > 0) ids.offsets.push_back(0);
    for (int64_t b = 0; b < batch; ++b) {
      const uint32_t count = Philox(7, draw++, 0).v[0] % 9;
      for (uint32_t i = 0; i < count; ++i) {
        const PhiloxBlock r = Philox(7, draw++, 0);
        ids.values.push_back(1000 + 7 * static_cast<int64_t>(r.v[0] % 5));
        if (weights) ids.weights.push_back(UniformFloat(r.v[1]));
      }
      ids.offsets.push_back(static_cast<int64_t>(ids.values.size()));
    }
    lanes.push_back(std::move(ids));
  }
  return lanes;
}

// The inputs are those that prefetch makes: rows of the ids that are read, and -1 for the others.
TEST_P(RecommenderKernelsTest, LookupOfSequencesAndOfPadding) {
  for (const int64_t sequence : {0, 1, 3, 20}) {
    for (const bool padding : {false, true}) {
      for (const bool weights : {false, true}) {
        SCOPED_TRACE(absl::StrCat(sequence, padding ? " padded" : "", weights ? " weighted" : ""));
        for (const auto& batches : Batches()) {
          DeviceTwin t(memory(), batches);
          std::vector<Variable> ids, index;
          for (IdBatch& of_lane : Histories(batches, weights)) {
            std::vector<int32_t> place;
            for (const int64_t id : of_lane.values) {
              place.push_back(padding && id == 1007 ? -1 : static_cast<int32_t>((id - 1000) / 7));
            }
            index.push_back(Tensor::Of<int32_t>({static_cast<int64_t>(place.size())}, place));
            ids.push_back(std::move(of_lane));
          }
          t.Lookup("others", "other index", "rows", 1, 1, 1, 5, 4, false);
          t.Feed("ids", v1::IDS, v1::INT64, {-1, 1}, std::move(ids));
          t.Feed("index", v1::DENSE, v1::INT32, {-1}, std::move(index));
          const std::vector<v1::OpAttr> attrs = {AttrS("pooling", sequence > 0 ? "none" : "mean"),
                                                 AttrI("sequence", sequence), AttrB("has_padding", padding),
                                                 AttrI("padding_id", 1007)};
          if (sequence > 0) {
            t.Batched("dout", {sequence, 4}, Values::kSpecial);
            t.Op(MakeOp("sequence_length", {{"Ids", {"ids"}}}, {{"Out", {"length"}}},
                        {AttrI("sequence", sequence), AttrB("has_padding", padding), AttrI("padding_id", 1007)}));
          } else {
            t.Batched("dout", {4}, Values::kSpecial);
          }
          t.Output("drows", v1::SELECTED_ROWS);
          Slots in = {{"Ids", {"ids"}}, {"Index", {"index"}}, {"Rows", {"rows"}}};
          t.Op(MakeOp("lookup_rows", in, {{"Out", {"out"}}}, attrs));
          in.push_back({"Out@GRAD", {"dout"}});
          t.Op(MakeOp("lookup_rows_grad", in, {{"Rows@GRAD", {"drows"}}}, attrs));
          t.Compare({"out"});
          if (sequence > 0) {
            t.Op(MakeOp("sequence_pool", {{"X", {"out"}}, {"Length", {"length"}}}, {{"Out", {"last"}}},
                        {AttrS("type", "last")}));
            t.Compare({"length", "last"});
          }
          t.Compare({"drows"}, kSum);
        }
      }
    }
  }
}

// The ids of each example in two slots, or one other id in each of them.
void InTwoSlots(bool one_each, IdBatch* ids) {
  IdBatch two = {.slots = 2};
  if (ids->batch() > 0) two.offsets.push_back(0);
  const auto add = [&](int64_t id, float weight) {
    two.values.push_back(id);
    if (!ids->weights.empty()) two.weights.push_back(weight);
  };
  for (int64_t b = 0; b < ids->batch(); ++b) {
    const int64_t begin = ids->offsets[static_cast<size_t>(b)], end = ids->offsets[static_cast<size_t>(b) + 1];
    const int64_t middle = (begin + end) / 2;
    for (int slot = 0; slot < 2; ++slot) {
      if (one_each) add(2 + (3 * b + slot) % 5, 0.25f + 0.5f * static_cast<float>(slot));
      for (int64_t i = slot == 0 ? begin : middle; !one_each && i < (slot == 0 ? middle : end); ++i) {
        add(ids->values[static_cast<size_t>(i)], ids->weights.empty() ? 1 : ids->weights[static_cast<size_t>(i)]);
      }
      two.offsets.push_back(static_cast<int64_t>(two.values.size()));
    }
  }
  *ids = std::move(two);
}

TEST_P(RecommenderKernelsTest, LookupOfAMatrix) {
  struct Case {
    std::string pooling;
    bool per_slot;
    int64_t sequence;
  };
  for (const Case& one : std::vector<Case>{
           {"none", false, 0}, {"sum", false, 0}, {"mean", true, 0}, {"sqrt_n", false, 0}, {"none", false, 3}}) {
    for (const bool sparse : {true, false}) {
      for (const bool padding : {false, true}) {
        SCOPED_TRACE(absl::StrCat(one.pooling, one.per_slot ? " per slot" : "", " sequence ", one.sequence,
                                  sparse ? " sparse" : "", padding ? " padded" : ""));
        for (const auto& batches : Batches()) {
          DeviceTwin t(memory(), batches);
          std::vector<Variable> ids;
          const int64_t slots = one.sequence > 0 ? 1 : 2;
          for (IdBatch& of_lane : Histories(batches, !sparse)) {
            for (int64_t& id : of_lane.values) id = (id - 1000) / 7 + 2;
            if (one.sequence == 0) InTwoSlots(one.pooling == "none", &of_lane);
            ids.push_back(std::move(of_lane));
          }
          t.Feed("ids", v1::IDS, v1::INT64, {-1, slots}, std::move(ids)).Fixed("w", {9, 4});
          if (one.sequence > 0) {
            t.Batched("dout", {one.sequence, 4});
          } else if (one.pooling == "none" || one.per_slot) {
            t.Batched("dout", {2, 4});
          } else {
            t.Batched("dout", {4});
          }
          t.Output("dw", sparse ? v1::SELECTED_ROWS : v1::DENSE);
          const std::vector<v1::OpAttr> attrs = {AttrS("pooling", one.pooling),   AttrB("per_slot", one.per_slot),
                                                 AttrI("sequence", one.sequence), AttrB("has_padding", padding),
                                                 AttrI("padding_id", 3),          AttrB("is_sparse", sparse)};
          Slots in = {{"Ids", {"ids"}}, {"W", {"w"}}};
          t.Op(MakeOp("lookup_table", in, {{"Out", {"out"}}}, attrs));
          in.push_back({"Out@GRAD", {"dout"}});
          t.Op(MakeOp("lookup_table_grad", in, {{"W@GRAD", {"dw"}}}, attrs));
          t.Compare({"out"});
          t.Compare({"dw"}, kSum);
        }
      }
    }
  }
}

TEST_P(RecommenderKernelsTest, AnIdOutsideOfTheMatrixIsAnError) {
  DeviceTwin t(memory(), {2});
  t.Feed("ids", v1::IDS, v1::INT64, {-1, 1}, Lanes(IdBatch{.values = {1, 3}, .offsets = {0, 1, 2}})).Fixed("w", {3, 2});
  t.Op(MakeOp("lookup_table", {{"Ids", {"ids"}}, {"W", {"w"}}}, {{"Out", {"out"}}}));
  EXPECT_THAT(std::string(t.DeviceStatus({"out"}).message()),
              HasSubstr("id 3 in example 1, slot 0; the table has rows 0 to 2"));
}

// Selected rows of each lane, of a matrix of 20 rows; absent where there is no count. Not merged: some ids come twice.
std::vector<Variable> SomeRows(const std::vector<int64_t>& counts, uint64_t key, bool merged, bool step_rows) {
  std::vector<Variable> lanes;
  for (size_t lane = 0; lane < counts.size(); ++lane) {
    SelectedRows rows;
    rows.height = 20;
    rows.present = counts[lane] >= 0;
    rows.merged = merged;
    rows.values = Tensor(v1::FLOAT32, {std::max<int64_t>(counts[lane], 0), 3});
    for (int64_t r = 0; r < counts[lane]; ++r) {
      const PhiloxBlock random = Philox(key, lane, static_cast<uint64_t>(r));
      // Counted on from a random one: none twice.
      const int64_t id = (static_cast<int64_t>(Philox(key, lane, 99).v[0] % 20) + 7 * r) % 20;
      rows.ids.push_back(merged ? id : static_cast<int64_t>(random.v[0] % 5));
      if (step_rows) rows.step_rows.push_back(static_cast<int32_t>(rows.ids.back()) + 2);
      for (int64_t w = 0; w < 3; ++w) rows.values.data<float>()[r * 3 + w] = UniformFloat(random.v[w]) - 0.5f;
    }
    lanes.push_back(std::move(rows));
  }
  return lanes;
}

TEST_P(RecommenderKernelsTest, SumOfRows) {
  const std::vector<std::vector<std::vector<int64_t>>> cases = {
      {{0}}, {{5}, {3}}, {{5, 0, -1, 20}, {-1, 2, -1, 1}, {20, 7, -1, 5}}, {{-1, -1}, {-1, -1}}, {{0, 0}, {0, 3}}};
  for (const auto& inputs : cases) {
    for (const bool merged : {true, false}) {
      for (const int without_step_rows : {-1, 0}) {
        DeviceTwin t(memory(), std::vector<int64_t>(inputs[0].size(), 1));
        std::vector<std::string> x;
        for (size_t i = 0; i < inputs.size(); ++i) {
          x.push_back(absl::StrCat("x", i));
          t.Feed(x.back(), v1::SELECTED_ROWS, v1::FLOAT32, {20, 3},
                 SomeRows(inputs[i], 3 + i, merged, static_cast<int>(i) != without_step_rows));
        }
        t.Output("out", v1::SELECTED_ROWS);
        t.Op(MakeOp("sum", {{"X", x}}, {{"Out", {"out"}}}));
        // In the place of its last input.
        t.Op(MakeOp("sum", {{"X", x}}, {{"Out", {x.back()}}}));
        t.Compare({"out", x.back()});
      }
    }
  }
}

TEST_P(RecommenderKernelsTest, ScaleAndSplitOfRows) {
  for (const std::vector<int64_t>& counts : std::vector<std::vector<int64_t>>{{0}, {13}, {4, -1, 0, 20}, {-1}}) {
    DeviceTwin t(memory(), std::vector<int64_t>(counts.size(), 1));
    t.Feed("x", v1::SELECTED_ROWS, v1::FLOAT32, {20, 3}, SomeRows(counts, 5, true, true));
    for (const char* out : {"half", "a", "b", "c"}) t.Output(out, v1::SELECTED_ROWS);
    t.Op(MakeOp("scale", {{"X", {"x"}}}, {{"Out", {"half"}}}, {AttrF("scale", 0.5)}));
    t.Op(MakeOp("split_selected_rows", {{"X", {"half"}}}, {{"Out", {"a", "b", "c"}}},
                {AttrInts("height_sections", {6, 1, 13})}));
    t.Op(MakeOp("scale", {{"X", {"half"}}}, {{"Out", {"half"}}}, {AttrF("scale", -3)}));
    t.Compare({"half", "a", "b", "c"});
  }
}

TEST_P(RecommenderKernelsTest, RowsThatADeviceDoesNotAddSaySo) {
  {
    DeviceTwin t(memory(), {1});
    t.Feed("x", v1::SELECTED_ROWS, v1::FLOAT32, {20, 3}, SomeRows({4}, 5, true, true)).EachLane("y", {20, 3});
    t.Op(MakeOp("sum", {{"X", {"x", "y"}}}, {{"Out", {"out"}}}));
    EXPECT_THAT(std::string(t.DeviceStatus({"out"}).message()),
                HasSubstr("dense gradients and selected rows are added to one another by the CPU alone; train.cpu_ops: "
                          "\"sum\""));
    t.CpuOps({"sum"});
    t.Compare({"out"});
  }
  DeviceTwin t(memory(), {1});
  t.Feed("x", v1::SELECTED_ROWS, v1::FLOAT32, {20, 3}, SomeRows({4}, 5, true, true));
  t.Output("a", v1::SELECTED_ROWS);
  t.Op(MakeOp("split_selected_rows", {{"X", {"x"}}}, {{"Out", {"a"}}}, {AttrInts("height_sections", {1})}));
  EXPECT_THAT(std::string(t.DeviceStatus({"a"}).message()), HasSubstr("; sections hold rows 0 to 0"));
}

TEST_P(RecommenderKernelsTest, Cast) {
  const std::vector<v1::DType> types = {v1::FLOAT64, v1::INT32, v1::INT64, v1::BOOL, v1::UINT8, v1::FLOAT32};
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    t.Batched("x", {3}, Values::kSpecial);
    t.Op(MakeOp("scale", {{"X", {"x"}}}, {{"Out", {"large"}}}, {AttrF("scale", 700)}));
    std::vector<std::string> outs;
    const auto cast = [&](const std::string& from, v1::DType to) {
      outs.push_back(absl::StrCat(from, " ", v1::DType_Name(to)));
      t.Op(MakeOp("cast", {{"X", {from}}}, {{"Out", {outs.back()}}}, {AttrType("dtype", to)}));
      return outs.back();
    };
    for (const v1::DType type : types) {
      const std::string from = cast("large", type);
      for (const v1::DType to : types) cast(from, to);
    }
    t.Compare(outs);
  }
}

// Counts are integers, for which the host has the predictions brought.
TEST_P(RecommenderKernelsTest, MetricsAreTheHosts) {
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    t.Batched("x", {1}).Batched("scores", {3}).Batched("label", {1}, Values::kBits);
    Tensor zeros(v1::INT64, {16});
    std::fill_n(zeros.data<int64_t>(), 16, 0);
    t.Op(MakeOp("sigmoid", {{"X", {"x"}}}, {{"Out", {"p"}}}));
    t.Op(MakeOp("softmax", {{"X", {"scores"}}}, {{"Out", {"classes"}}}));
    t.Op(MakeOp("accuracy", {{"Out", {"classes"}}, {"Label", {"label"}}},
                {{"Correct", {"correct"}}, {"Total", {"total"}}}));
    t.FixedValue("positive", zeros).FixedValue("negative", zeros);
    t.Op(MakeOp("auc", {{"Predict", {"p"}}, {"Label", {"label"}}, {"StatPos", {"positive"}}, {"StatNeg", {"negative"}}},
                {{"StatPosOut", {"positive"}}, {"StatNegOut", {"negative"}}}, {AttrI("buckets", 16)}));
    t.Compare({"correct", "total", "positive", "negative"});
  }
}

}  // namespace
}  // namespace weir
