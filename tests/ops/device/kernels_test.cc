// Every device kernel against its CPU twin. Element by element the bits are the same; sums that a device takes in an
// order of its own, and products of matrices, are within the bounds given.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/device_twin.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using Values = DeviceTwin::Values;

class KernelsTest : public DeviceTest {
 protected:
  // Eight lanes, too.
  static const std::vector<std::vector<int64_t>>& Batches() {
    static const auto* const batches = new std::vector<std::vector<int64_t>>{
        {0}, {1}, {37}, {300}, {5, 5, 5, 5}, {5, 0, 1, 7}, {0, 0}, {4, 4, 4, 4, 4, 4, 4, 2}};
    return *batches;
  }
};
INSTANTIATE_DEVICE_TESTS(KernelsTest);

TEST_P(KernelsTest, Activations) {
  for (const char* type : {"relu", "sigmoid", "tanh", "square"}) {
    SCOPED_TRACE(type);
    const std::string saved = std::string(type) == "square" ? "X" : "Out";
    for (const auto& batches : Batches()) {
      DeviceTwin t(memory(), batches);
      t.Batched("x", {3}, Values::kSpecial).Batched("dy", {3}, Values::kSpecial);
      t.Op(MakeOp(type, {{"X", {"x"}}}, {{"Out", {"y"}}}));
      t.Op(MakeOp(absl::StrCat(type, "_grad"), {{saved, {saved == "X" ? "x" : "y"}}, {"Out@GRAD", {"dy"}}},
                  {{"X@GRAD", {"dx"}}}));
      t.Compare({"y", "dx"});
    }
  }
}

// More than one wave of the largest grid, and not a multiple of a block.
TEST_P(KernelsTest, MoreElementsThanThreads) {
  DeviceTwin t(memory(), {8192 * 256 / 4 + 77});
  t.Batched("x", {4}, Values::kSpecial);
  t.Op(MakeOp("relu", {{"X", {"x"}}}, {{"Out", {"y"}}}));
  t.Op(MakeOp("scale", {{"X", {"y"}}}, {{"Out", {"z"}}}, {AttrF("scale", 1.7), AttrF("bias", -0.3)}));
  t.Compare({"y", "z"});
}

TEST_P(KernelsTest, Scale) {
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    t.Batched("x", {5}, Values::kSpecial);
    t.Op(MakeOp("scale", {{"X", {"x"}}}, {{"Out", {"y"}}}, {AttrF("scale", -2)}));
    t.Op(MakeOp("scale", {{"X", {"x"}}}, {{"Out", {"z"}}}, {AttrF("scale", 0.5), AttrF("bias", 3)}));
    t.Compare({"y", "z"});
  }
}

TEST_P(KernelsTest, ElementwiseOfOneShape) {
  for (const char* type : {"elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div"}) {
    SCOPED_TRACE(type);
    for (const auto& batches : Batches()) {
      DeviceTwin t(memory(), batches);
      t.Batched("x", {2, 3}, Values::kSpecial)
          .Batched("y", {2, 3}, Values::kSpecial)
          .Batched("dout", {2, 3}, Values::kSpecial);
      t.Op(MakeOp(type, {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"out"}}}));
      t.Op(MakeOp(absl::StrCat(type, "_grad"), {{"X", {"x"}}, {"Y", {"y"}}, {"Out@GRAD", {"dout"}}},
                  {{"X@GRAD", {"dx"}}, {"Y@GRAD", {"dy"}}}));
      // The CPU adds the gradient of Y to 0, which turns -0 into 0.
      t.Compare({"out", "dx"});
      t.Compare({"dy"}, {.relative = 1e-7});
    }
  }
}

struct Against {
  std::vector<int64_t> y;
  bool batched;
  int64_t axis;
};

TEST_P(KernelsTest, ElementwiseWithBroadcast) {
  const std::vector<Against> cases = {{{4}, false, -1},    {{3, 4}, false, -1}, {{3}, false, 1},
                                      {{1, 4}, false, -1}, {{}, false, -1},     {{3, 1}, false, -1},
                                      {{1, 1}, true, -1},  {{3, 1}, true, -1},  {{1, 4}, true, -1}};
  for (const char* type : {"elementwise_add", "elementwise_mul", "elementwise_div"}) {
    for (const Against& against : cases) {
      SCOPED_TRACE(absl::StrCat(type, " ", ShapeString(against.y), against.batched ? " of each example" : "", " axis ",
                                against.axis));
      for (const auto& batches : Batches()) {
        DeviceTwin t(memory(), batches);
        t.Batched("x", {3, 4}).Batched("dout", {3, 4});
        if (against.batched) {
          t.Batched("y", against.y, Values::kPositive);
        } else {
          t.Fixed("y", against.y, Values::kPositive);
        }
        const std::vector<v1::OpAttr> axis = {AttrI("axis", against.axis)};
        t.Op(MakeOp(type, {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"out"}}}, axis));
        t.Op(MakeOp(absl::StrCat(type, "_grad"), {{"X", {"x"}}, {"Y", {"y"}}, {"Out@GRAD", {"dout"}}},
                    {{"X@GRAD", {"dx"}}, {"Y@GRAD", {"dy"}}}, axis));
        t.Compare({"out", "dx"});
        t.Compare({"dy"}, kSum);
      }
    }
  }
}

// A number of each lane against all its examples.
TEST_P(KernelsTest, ElementwiseWithANumberOfEachLane) {
  DeviceTwin t(memory(), {5, 1, 7});
  t.Batched("x", {4}).EachLane("y", {}).Batched("dout", {4});
  t.Op(MakeOp("elementwise_mul", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"out"}}}));
  t.Op(MakeOp("elementwise_mul_grad", {{"X", {"x"}}, {"Y", {"y"}}, {"Out@GRAD", {"dout"}}},
              {{"X@GRAD", {"dx"}}, {"Y@GRAD", {"dy"}}}));
  t.Compare({"out", "dx"});
  t.Compare({"dy"}, kSum);
}

TEST_P(KernelsTest, Fc) {
  for (const char* activation : {"identity", "relu", "sigmoid", "tanh"}) {
    for (const bool bias : {true, false}) {
      SCOPED_TRACE(absl::StrCat(activation, bias ? " with bias" : ""));
      for (const auto& batches : Batches()) {
        DeviceTwin t(memory(), batches);
        t.Batched("x", {3, 2}).Fixed("w", {6, 5}).Fixed("b", {5}).Batched("dout", {5});
        const std::vector<v1::OpAttr> attrs = {AttrS("activation", activation)};
        std::vector<std::pair<std::string, std::vector<std::string>>> in = {{"X", {"x"}}, {"W", {"w"}}};
        std::vector<std::pair<std::string, std::vector<std::string>>> out = {{"X@GRAD", {"dx"}}, {"W@GRAD", {"dw"}}};
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

TEST_P(KernelsTest, Mul) {
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    t.Batched("x", {7}).Fixed("y", {7, 3}).Batched("dout", {3});
    t.Op(MakeOp("mul", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"out"}}}));
    t.Op(MakeOp("mul_grad", {{"X", {"x"}}, {"Y", {"y"}}, {"Out@GRAD", {"dout"}}},
                {{"X@GRAD", {"dx"}}, {"Y@GRAD", {"dy"}}}));
    t.Compare({"out", "dx", "dy"}, kSum);
  }
}

TEST_P(KernelsTest, ConcatAndSplit) {
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    t.Batched("a", {3}, Values::kSpecial).Batched("b", {1}).Batched("c", {4}).Batched("d", {5, 2}).Batched("e", {5, 3});
    t.Op(MakeOp("concat", {{"X", {"a", "b", "c"}}}, {{"Out", {"abc"}}}));
    t.Op(MakeOp("concat_grad", {{"Out@GRAD", {"abc"}}}, {{"X@GRAD", {"a2", "c2"}}},
                {AttrI("axis", 1), AttrInts("sections", {3, 1, 4}), AttrInts("wanted", {0, 2})}));
    t.Op(MakeOp("concat", {{"X", {"d", "e"}}}, {{"Out", {"de"}}}, {AttrI("axis", -1)}));
    t.Op(MakeOp("split", {{"X", {"de"}}}, {{"Out", {"d2", "e2"}}}, {AttrI("axis", 2), AttrInts("sections", {1, 4})}));
    t.Op(MakeOp("split", {{"X", {"abc"}}}, {{"Out", {"p", "q"}}}));
    t.Op(MakeOp("split_grad", {{"Out@GRAD", {"c"}}}, {{"X@GRAD", {"dabc"}}},
                {AttrI("axis", 1), AttrInts("sections", {3, 4, 1}), AttrInts("present", {1})}));
    t.Compare({"abc", "a2", "c2", "de", "d2", "e2", "p", "q", "dabc"});
  }
}

TEST_P(KernelsTest, BlocksOfAParameter) {
  DeviceTwin t(memory(), {2, 2});
  t.EachLane("g", {6, 4}).Fixed("b0", {4, 4}).Fixed("b1", {2, 4}).Output("whole", v1::DENSE);
  v1::OpDesc cut = MakeOp("split_byref", {{"X", {"g"}}}, {{"Out", {"g0", "g1"}}}, {AttrInts("sections", {16, 8})});
  cut.set_role(v1::DIST);
  v1::OpDesc join = MakeOp("concat", {{"X", {"b0", "b1"}}}, {{"Out", {"whole"}}}, {AttrI("axis", 0)});
  join.set_role(v1::DIST);
  t.Op(cut).Op(join);
  t.Compare({"g0", "g1", "whole"});
}

TEST_P(KernelsTest, Reshape) {
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    t.Batched("x", {3, 4}, Values::kSpecial);
    t.Op(MakeOp("reshape", {{"X", {"x"}}}, {{"Out", {"flat"}}}, {AttrInts("shape", {-1, 12})}));
    t.Op(MakeOp("reshape_grad", {{"X", {"x"}}, {"Out@GRAD", {"flat"}}}, {{"X@GRAD", {"dx"}}},
                {AttrInts("shape", {-1, 12})}));
    t.Compare({"flat", "dx"});
  }
}

TEST_P(KernelsTest, SumOfUpToMoreThanAKernelTakes) {
  for (const int count : {1, 2, 3, 70}) {
    for (const auto& batches : Batches()) {
      DeviceTwin t(memory(), batches);
      std::vector<std::string> x;
      for (int i = 0; i < count; ++i) {
        x.push_back(absl::StrCat("x", i));
        t.Batched(x.back(), {3});
      }
      t.Op(MakeOp("sum", {{"X", x}}, {{"Out", {"out"}}}));
      // In the place of its last input.
      t.Op(MakeOp("sum", {{"X", x}}, {{"Out", {x.back()}}}));
      t.Compare({"out", x.back()});
    }
  }
}

TEST_P(KernelsTest, MeanAndTheSeedOfAScalarLoss) {
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    t.Batched("x", {1});
    t.Op(MakeOp("mean", {{"X", {"x"}}}, {{"Out", {"m"}}}));
    t.Op(MakeOp("fill_like_batch", {{"X", {"m"}}}, {{"Out", {"dm"}}},
                {AttrF("value", 2), AttrB("scalar_times_batch", true)}));
    t.Op(MakeOp("mean_grad", {{"X", {"x"}}, {"Out@GRAD", {"dm"}}}, {{"X@GRAD", {"dx"}}}));
    t.Op(MakeOp("fill_like_batch", {{"X", {"x"}}}, {{"Out", {"ones"}}}));
    t.Compare({"m"}, {.relative = 1e-7});
    t.Compare({"dm", "dx", "ones"});
  }
}

TEST_P(KernelsTest, ReduceSum) {
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{{}, {1}, {2}, {-1}, {1, 2}, {1, 3}}) {
    for (const bool keep : {false, true}) {
      SCOPED_TRACE(absl::StrCat(ShapeString(dims), keep ? " kept" : ""));
      const std::vector<v1::OpAttr> attrs = {AttrInts("dims", dims), AttrB("keep_dim", keep)};
      for (const auto& batches : Batches()) {
        DeviceTwin t(memory(), batches);
        t.Batched("x", {3, 37, 2});
        t.Op(MakeOp("reduce_sum", {{"X", {"x"}}}, {{"Out", {"out"}}}, attrs));
        t.Op(MakeOp("reduce_sum_grad", {{"X", {"x"}}, {"Out@GRAD", {"out"}}}, {{"X@GRAD", {"dx"}}}, attrs));
        t.Compare({"out", "dx"}, kSum);
      }
    }
  }
}

TEST_P(KernelsTest, LossesOfOneNumber) {
  for (const bool weights : {false, true}) {
    for (const auto& [type, x, out] : std::vector<std::tuple<std::string, std::string, std::string>>{
             {"sigmoid_cross_entropy_with_logits", "X", "Out"},
             {"square_error", "X", "Out"},
             {"focal_loss", "X", "Out"},
             {"hinge_loss", "X", "Out"},
             {"huber_loss", "X", "Out"},
             {"poisson_loss", "X", "Out"},
             {"quantile_loss", "X", "Out"},
             {"log_loss", "Predicted", "Loss"}}) {
      SCOPED_TRACE(type);
      for (const auto& batches : Batches()) {
        DeviceTwin t(memory(), batches);
        t.Batched("x", {1}, type == "log_loss" ? Values::kPositive : Values::kSpecial)
            .Batched("label", {1}, Values::kBits);
        t.Batched("weight", {1}, Values::kPositive).Batched("dloss", {1});
        std::vector<std::pair<std::string, std::vector<std::string>>> in = {{x, {"x"}}, {"Label", {"label"}}};
        if (weights) in.push_back({"Weight", {"weight"}});
        t.Op(MakeOp(type, in, {{out, {"loss"}}}));
        in.push_back({out + "@GRAD", {"dloss"}});
        t.Op(MakeOp(type + "_grad", in, {{x + "@GRAD", {"dx"}}}));
        t.Compare({"loss", "dx"});
      }
    }
  }
}

TEST_P(KernelsTest, Dot) {
  for (const std::vector<int64_t>& y : std::vector<std::vector<int64_t>>{{7}, {1, 7}, {5, 7}, {3, 40}}) {
    for (const auto& batches : Batches()) {
      DeviceTwin t(memory(), batches);
      t.Batched("x", {y.back()}).Batched("y", y).Batched("dout", {y.size() == 1 ? 1 : y[0]});
      t.Op(MakeOp("dot", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"out"}}}));
      t.Op(MakeOp("dot_grad", {{"X", {"x"}}, {"Y", {"y"}}, {"Out@GRAD", {"dout"}}},
                  {{"X@GRAD", {"dx"}}, {"Y@GRAD", {"dy"}}}));
      t.Compare({"out", "dx", "dy"});
    }
  }
}

TEST_P(KernelsTest, WeightedSum) {
  for (const std::vector<int64_t>& y : std::vector<std::vector<int64_t>>{{1, 7}, {5, 7}, {3, 40}}) {
    for (const auto& batches : Batches()) {
      DeviceTwin t(memory(), batches);
      t.Batched("weight", {y[0]}).Batched("y", y).Batched("dout", {y[1]});
      t.Op(MakeOp("weighted_sum", {{"Weight", {"weight"}}, {"Y", {"y"}}}, {{"Out", {"out"}}}));
      t.Op(MakeOp("weighted_sum_grad", {{"Weight", {"weight"}}, {"Y", {"y"}}, {"Out@GRAD", {"dout"}}},
                  {{"Weight@GRAD", {"dw"}}, {"Y@GRAD", {"dy"}}}));
      t.Compare({"out", "dw", "dy"});
    }
  }
}

TEST_P(KernelsTest, KnownLabel) {
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    t.Batched("label", {1}, Values::kSpecial).Batched("weight", {1}, Values::kPositive);
    t.Op(MakeOp("known_label", {{"X", {"label"}}}, {{"Out", {"out"}}, {"Mask", {"mask"}}}));
    t.Op(MakeOp("known_label", {{"X", {"label"}}, {"Weight", {"weight"}}}, {{"Out", {"out2"}}, {"Mask", {"mask2"}}}));
    t.Compare({"out", "mask", "out2", "mask2"});
  }
}

TEST_P(KernelsTest, LearnedWeight) {
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    t.Batched("x", {1}).Fixed("s", {1}).Batched("dout", {1});
    t.Op(MakeOp("learned_weight", {{"X", {"x"}}, {"LogVariance", {"s"}}}, {{"Out", {"out"}}}));
    t.Op(MakeOp("learned_weight_grad", {{"X", {"x"}}, {"LogVariance", {"s"}}, {"Out@GRAD", {"dout"}}},
                {{"X@GRAD", {"dx"}}, {"LogVariance@GRAD", {"ds"}}}));
    t.Compare({"out", "dx"});
    t.Compare({"ds"}, kSum);
  }
}

// With one matrix, one for each vector, and one for each pair.
TEST_P(KernelsTest, Bilinear) {
  for (const std::vector<int64_t>& w : std::vector<std::vector<int64_t>>{{5, 5}, {3, 5, 5}, {6, 5, 5}}) {
    for (const auto& batches : Batches()) {
      DeviceTwin t(memory(), batches);
      t.Batched("x", {4, 5}).Fixed("w", w).Batched("dout", {6, 5});
      t.Op(MakeOp("bilinear", {{"X", {"x"}}, {"W", {"w"}}}, {{"Out", {"out"}}}));
      t.Op(MakeOp("bilinear_grad", {{"X", {"x"}}, {"W", {"w"}}, {"Out@GRAD", {"dout"}}},
                  {{"X@GRAD", {"dx"}}, {"W@GRAD", {"dw"}}}));
      t.Compare({"out", "dx", "dw"}, kSum);
    }
  }
}

TEST_P(KernelsTest, Cin) {
  for (const int64_t summed : {0, 2, 3}) {
    for (const auto& batches : Batches()) {
      DeviceTwin t(memory(), batches);
      t.Batched("x", {2, 5}).Batched("x0", {4, 5}).Fixed("w", {8, 3});
      if (summed > 0) t.Batched("dsum", {summed});
      if (summed < 3) t.Batched("dout", {3 - summed, 5});
      std::vector<std::pair<std::string, std::vector<std::string>>> in = {{"X", {"x"}}, {"X0", {"x0"}}, {"W", {"w"}}},
                                                                    out;
      std::vector<std::string> names = {"dx", "dx0", "dw"};
      const std::vector<v1::OpAttr> attrs = {AttrI("summed", summed)};
      if (summed > 0) {
        out.push_back({"Sum", {"sum"}});
        names.push_back("sum");
      }
      if (summed < 3) {
        out.push_back({"Out", {"out"}});
        names.push_back("out");
      }
      t.Op(MakeOp("cin", in, out, attrs));
      if (summed > 0) in.push_back({"Sum@GRAD", {"dsum"}});
      if (summed < 3) in.push_back({"Out@GRAD", {"dout"}});
      t.Op(MakeOp("cin_grad", in, {{"X@GRAD", {"dx"}}, {"X0@GRAD", {"dx0"}}, {"W@GRAD", {"dw"}}}, attrs));
      t.Compare(names, {.relative = 5e-5});
    }
  }
}

TEST_P(KernelsTest, Gru) {
  for (const bool states : {false, true}) {
    for (const bool last : {false, true}) {
      if (!states && !last) continue;
      for (const auto& batches : Batches()) {
        int64_t examples = 0;
        for (const int64_t b : batches) examples += b;
        std::vector<float> length;
        for (int64_t i = 0; i < examples; ++i) length.push_back(static_cast<float>(i * 5 % 7));
        DeviceTwin t(memory(), batches);
        t.Batched("x", {6, 3})
            .BatchedValues("length", length)
            .Fixed("w", {3, 12})
            .Fixed("u", {4, 12})
            .Fixed("b", {12})
            .Fixed("c", {12})
            .Batched("dhidden", {6, 4})
            .Batched("dlast", {4});
        std::vector<std::pair<std::string, std::vector<std::string>>> in = {
            {"X", {"x"}}, {"Length", {"length"}}, {"W", {"w"}}, {"U", {"u"}}, {"B", {"b"}}, {"C", {"c"}}};
        t.Op(MakeOp("gru", in, {{"Hidden", {"hidden"}}, {"Last", {"last"}}, {"Gates", {"gates"}}}));
        in.push_back({"Hidden", {"hidden"}});
        in.push_back({"Gates", {"gates"}});
        if (states) in.push_back({"Hidden@GRAD", {"dhidden"}});
        if (last) in.push_back({"Last@GRAD", {"dlast"}});
        t.Op(MakeOp(
            "gru_grad", in,
            {{"X@GRAD", {"dx"}}, {"W@GRAD", {"dw"}}, {"U@GRAD", {"du"}}, {"B@GRAD", {"db"}}, {"C@GRAD", {"dc"}}}));
        t.Compare({"hidden", "last", "gates", "dx", "dw", "du", "db", "dc"}, {.relative = 5e-5});
      }
    }
  }
}

TEST_P(KernelsTest, LossesOfAScoreBesideOthers) {
  for (const char* const type : {"bpr_loss", "pairwise_hinge_loss", "sampled_softmax"}) {
    for (const int64_t negatives : {1, 5, 40}) {
      for (const bool weights : {false, true}) {
        SCOPED_TRACE(absl::StrCat(type, " ", negatives, weights ? " weighted" : ""));
        for (const auto& batches : Batches()) {
          DeviceTwin t(memory(), batches);
          t.Batched("p", {1}).Batched("n", {negatives}).Batched("weight", {1}, Values::kPositive).Batched("dloss", {1});
          std::vector<std::pair<std::string, std::vector<std::string>>> in = {{"Positive", {"p"}}, {"Negative", {"n"}}};
          if (weights) in.push_back({"Weight", {"weight"}});
          t.Op(MakeOp(type, in, {{"Out", {"loss"}}}));
          in.push_back({"Out@GRAD", {"dloss"}});
          const std::string gradient = absl::StrCat(type, "_grad");
          t.Op(MakeOp(gradient, in, {{"Positive@GRAD", {"dp"}}, {"Negative@GRAD", {"dn"}}}));
          t.Op(MakeOp(gradient, in, {{"Positive@GRAD", {"dp_alone"}}}));
          t.Compare({"loss", "dp", "dn", "dp_alone"});
        }
      }
    }
  }
}

TEST_P(KernelsTest, LossesOfSeveralLabels) {
  for (const int64_t classes : {1, 6, 37}) {
    for (const bool optional : {false, true}) {
      for (const auto& batches : Batches()) {
        int64_t examples = 0;
        for (const int64_t b : batches) examples += b;
        std::vector<float> length;
        for (int64_t i = 0; i < examples; ++i) length.push_back(static_cast<float>(i * 5 % (classes + 2)));
        DeviceTwin t(memory(), batches);
        t.Batched("x", {classes})
            .Batched("label", {classes}, Values::kBits)
            .BatchedValues("length", length)
            .Batched("weight", {1}, Values::kPositive)
            .Batched("dloss", {1});
        std::vector<std::pair<std::string, std::vector<std::string>>> many = {{"X", {"x"}}, {"Label", {"label"}}},
                                                                      list = {{"Label", {"label"}}};
        if (optional) {
          many.push_back({"Weight", {"weight"}});
          list.push_back({"Length", {"length"}});
          list.push_back({"Weight", {"weight"}});
        }
        t.Op(MakeOp("multi_label_cross_entropy", many, {{"Out", {"loss"}}}));
        many.push_back({"Out@GRAD", {"dloss"}});
        t.Op(MakeOp("multi_label_cross_entropy_grad", many, {{"X@GRAD", {"dx"}}}));
        auto scores = list;
        scores.push_back({"Scores", {"x"}});
        t.Op(MakeOp("listwise_softmax", scores, {{"Softmax", {"q"}}, {"Out", {"list_loss"}}}));
        list.push_back({"Softmax", {"q"}});
        list.push_back({"Out@GRAD", {"dloss"}});
        t.Op(MakeOp("listwise_softmax_grad", list, {{"Scores@GRAD", {"dscores"}}}));
        t.Compare({"loss", "dx", "q", "list_loss", "dscores"});
      }
    }
  }
}

TEST_P(KernelsTest, SoftmaxAndItsCrossEntropy) {
  for (const int64_t classes : {1, 2, 10, 37}) {
    for (const auto& batches : Batches()) {
      int64_t examples = 0;
      for (int64_t b : batches) examples += b;
      std::vector<float> label;
      for (int64_t i = 0; i < examples; ++i) label.push_back(static_cast<float>(i * 7 % classes));
      DeviceTwin t(memory(), batches);
      t.Batched("x", {classes})
          .Batched("dy", {classes})
          .BatchedValues("label", label)
          .Batched("weight", {1}, Values::kPositive)
          .Batched("dloss", {1});
      t.Op(MakeOp("softmax", {{"X", {"x"}}}, {{"Out", {"y"}}}));
      t.Op(MakeOp("softmax_grad", {{"Out", {"y"}}, {"Out@GRAD", {"dy"}}}, {{"X@GRAD", {"dx"}}}));
      t.Op(MakeOp("softmax_with_cross_entropy", {{"Logits", {"x"}}, {"Label", {"label"}}, {"Weight", {"weight"}}},
                  {{"Softmax", {"p"}}, {"Loss", {"loss"}}}));
      t.Op(MakeOp("softmax_with_cross_entropy_grad",
                  {{"Label", {"label"}}, {"Weight", {"weight"}}, {"Softmax", {"p"}}, {"Loss@GRAD", {"dloss"}}},
                  {{"Logits@GRAD", {"dlogits"}}}));
      t.Compare({"y", "dx", "p", "loss", "dlogits"});
    }
  }
}

TEST_P(KernelsTest, ALabelThatIsNoClassIsAnError) {
  DeviceTwin t(memory(), {3});
  t.Batched("x", {4}).BatchedValues("label", {0, 4, 1});
  t.Op(MakeOp("softmax_with_cross_entropy", {{"Logits", {"x"}}, {"Label", {"label"}}},
              {{"Softmax", {"p"}}, {"Loss", {"loss"}}}));
  EXPECT_THAT(std::string(t.DeviceStatus({"loss"}).message()),
              HasSubstr("Label of example 1 is 4; it must be a class"));
}

TEST_P(KernelsTest, DropoutDrawsWhatTheCpuDraws) {
  for (const bool training : {true, false}) {
    for (const auto& batches : Batches()) {
      DeviceTwin t(memory(), batches);
      t.step().training = training;
      t.step().seed = 11;
      t.step().step = 5;
      t.step().first_lane = 2;
      t.Batched("x", {7}).Batched("dout", {7});
      const std::vector<v1::OpAttr> attrs = {AttrF("rate", 0.3), AttrS("layer", "deep")};
      t.Op(MakeOp("dropout", {{"X", {"x"}}}, {{"Out", {"y"}}, {"Mask", {"mask"}}}, attrs));
      t.Op(MakeOp("dropout_grad", {{"Mask", {"mask"}}, {"Out@GRAD", {"dout"}}}, {{"X@GRAD", {"dx"}}}, attrs));
      t.Compare({"y", "mask", "dx"});
    }
  }
}

TEST_P(KernelsTest, FmInteraction) {
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    t.Batched("x", {6, 5}).Batched("dout", {1});
    t.Op(MakeOp("fm_interaction", {{"X", {"x"}}}, {{"Out", {"out"}}, {"Sum", {"sum"}}}));
    t.Op(MakeOp("fm_interaction_grad", {{"X", {"x"}}, {"Sum", {"sum"}}, {"Out@GRAD", {"dout"}}}, {{"X@GRAD", {"dx"}}}));
    t.Compare({"out", "sum", "dx"});
  }
}

TEST_P(KernelsTest, FmInteractionInAMatrix) {
  for (const auto& batches : Batches()) {
    DeviceTwin t(memory(), batches);
    t.Batched("x", {37}).Batched("dout", {1}).Batched("onto", {37});
    const std::vector<v1::OpAttr> attrs = {AttrInts("columns", {3, 6, 5})};
    t.Op(MakeOp("fm_interaction", {{"X", {"x"}}}, {{"Out", {"out"}}, {"Sum", {"sum"}}}, attrs));
    t.Op(MakeOp("fm_interaction_grad", {{"X", {"x"}}, {"Sum", {"sum"}}, {"Out@GRAD", {"dout"}}}, {{"X@GRAD", {"dx"}}},
                attrs));
    t.Op(MakeOp("fm_interaction_grad", {{"X", {"x"}}, {"Sum", {"sum"}}, {"Out@GRAD", {"dout"}}, {"Onto", {"onto"}}},
                {{"X@GRAD", {"both"}}}, attrs));
    t.Compare({"out", "sum", "dx", "both"});
  }
}

TEST_P(KernelsTest, LookupWithItsGradient) {
  for (const char* pooling : {"none", "sum", "mean", "sqrt_n"}) {
    const bool none = std::string(pooling) == "none";
    for (const bool per_slot : {false, true}) {
      for (const bool weights : {false, true}) {
        for (const bool padding : {false, true}) {
          SCOPED_TRACE(
              absl::StrCat(pooling, per_slot ? " per slot" : "", weights ? " weighted" : "", padding ? " padded" : ""));
          for (const auto& batches : Batches()) {
            DeviceTwin t(memory(), batches);
            t.Lookup("ids", "index", "rows", 3, none ? 1 : 0, none ? 1 : 4, 20, 5, weights);
            if (none || per_slot) {
              t.Batched("dout", {3, 5});
            } else {
              t.Batched("dout", {5});
            }
            t.Output("drows", v1::SELECTED_ROWS);
            // The padding id is that of the second row.
            const std::vector<v1::OpAttr> attrs = {AttrS("pooling", pooling), AttrB("per_slot", per_slot),
                                                   AttrB("has_padding", padding), AttrI("padding_id", 1007)};
            t.Op(MakeOp("lookup_rows", {{"Ids", {"ids"}}, {"Index", {"index"}}, {"Rows", {"rows"}}}, {{"Out", {"out"}}},
                        attrs));
            t.Op(MakeOp("lookup_rows_grad",
                        {{"Ids", {"ids"}}, {"Index", {"index"}}, {"Rows", {"rows"}}, {"Out@GRAD", {"dout"}}},
                        {{"Rows@GRAD", {"drows"}}}, attrs));
            t.Compare({"out"});
            t.Compare({"drows"}, kSum);
          }
        }
      }
    }
  }
}

// No row has more values than one run: the order is the CPU's.
TEST_P(KernelsTest, ShortSegmentsAreSummedAsOnTheCpu) {
  DeviceTwin t(memory(), {9, 9});
  t.Lookup("ids", "index", "rows", 2, 1, 1, 20, 16, false).Batched("dout", {2, 16}).Output("drows", v1::SELECTED_ROWS);
  t.Op(MakeOp("lookup_rows_grad", {{"Ids", {"ids"}}, {"Index", {"index"}}, {"Rows", {"rows"}}, {"Out@GRAD", {"dout"}}},
              {{"Rows@GRAD", {"drows"}}}, {AttrS("pooling", "none")}));
  t.Compare({"drows"});
}

TEST_P(KernelsTest, Updates) {
  for (const int64_t n : {0, 1, 37}) {
    for (const auto& [type, states, attrs] :
         std::vector<std::tuple<std::string, std::vector<std::string>, std::vector<v1::OpAttr>>>{
             {"sgd", {}, {}},
             {"momentum", {"Velocity"}, {}},
             {"momentum", {"Velocity"}, {AttrB("use_nesterov", true)}},
             {"adagrad", {"Moment"}, {}},
             {"adam", {"Moment1", "Moment2"}, {}}}) {
      SCOPED_TRACE(type);
      DeviceTwin t(memory(), {1});
      t.Fixed("w", {n, 3}).EachLane("g", {n, 3}).Fixed("lr", {1}, Values::kPositive).Fixed("count", {1}, Values::kBits);
      std::vector<std::pair<std::string, std::vector<std::string>>> in = {
          {"Param", {"w"}}, {"Grad", {"g"}}, {"LearningRate", {"lr"}}};
      std::vector<std::pair<std::string, std::vector<std::string>>> out = {{"ParamOut", {"w"}}};
      for (const std::string& state : states) {
        t.Fixed(state, {n, 3}, Values::kPositive);
        in.push_back({state, {state}});
        out.push_back({state + "Out", {state}});
      }
      if (type == "adam") in.push_back({"Step", {"count"}});
      if (type == "adam") out.push_back({"StepOut", {"count"}});
      v1::OpDesc op = MakeOp(type, in, out, attrs);
      op.set_role(v1::OPTIMIZE);
      t.Op(op);
      // A persistent value cannot be fetched: read it through an operator.
      t.Op(MakeOp("elementwise_mul", {{"X", {"g"}}, {"Y", {"w"}}}, {{"Out", {"gw"}}}));
      t.Compare({"gw"});
    }
  }
}

TEST_P(KernelsTest, AnErrorNamesTheOperatorAndTheDims) {
  DeviceTwin t(memory(), {3});
  t.Batched("x", {4}).Fixed("w", {5, 2});
  t.Op(MakeOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"out"}}}));
  EXPECT_THAT(std::string(t.DeviceStatus({"out"}).message()),
              HasSubstr("op 0 (mul) making out: X [3, 4] cannot be multiplied by Y [5, 2]"));
}

}  // namespace
}  // namespace weir
