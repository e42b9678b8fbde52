// Each kind of layer and loss by what it appends, and its errors.
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/passes/passes.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// dense [B, 6], cat ids of 4 slots, label [B, 1]; layers given; `x` of them feeds an fc and a loss.
std::string LayerJob(const std::string& layers, const std::string& x = "x") {
  const bool reads_table = layers.find("\"t\"") != std::string::npos;
  return R"(name: "layers"
data { criteo { integers: 6 categoricals: 4 } ids { shared: "cat" } batch_size: 16 }
model {
)" + layers +
         R"(
  layer { name: "last" fc { input: ")" +
         x + R"(" size: 1 } }
  loss { name: "l" square_error { input: "last" label: "label" } }
}
optimizer { sgd {} }
)" + (reads_table ? R"(table { name: "t" width: 3 is_sparse: true is_distributed: true })" : "");
}

constexpr char kFields[] = R"(layer { name: "fields" embedding { ids: "cat" table: "t" } })";

// Ops before the last fc, and the dims of what they write first.
std::string Built(const std::string& text) {
  const auto single = BuildSingleMachine(JobOf(text));
  if (!single.ok()) return std::string(single.status().message());
  std::vector<std::string> lines;
  for (const v1::OpDesc& op : single->main.blocks(0).ops()) {
    const std::string& out = op.outputs(0).vars(0);
    if (out == "last") break;
    std::vector<std::string> inputs;
    for (const v1::OpSlot& slot : op.inputs()) inputs.insert(inputs.end(), slot.vars().begin(), slot.vars().end());
    lines.push_back(absl::StrCat(out, " [", absl::StrJoin(FindVar(single->main.blocks(0), out)->dims(), ", "),
                                 "] = ", op.type(), "(", absl::StrJoin(inputs, ", "), ")"));
  }
  return absl::StrJoin(lines, "\n");
}

const std::string& F() {
  static const auto* const fields = new std::string("fields [-1, 4, 3] = lookup_table(cat, t)\n");
  return *fields;
}

TEST(LayersTest, EmbeddingPoolsOverTheExampleOrTheSlot) {
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" embedding { ids: "cat" table: "t" pooling: MEAN } })")),
            "x [-1, 3] = lookup_table(cat, t)");
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" embedding { ids: "cat" table: "t" pooling: SUM per_slot: true } })")),
            "x [-1, 4, 3] = lookup_table(cat, t)");
}

TEST(LayersTest, EmbeddingOfSeveralIdsPutsSlotsSideBySideOrAddsThem) {
  EXPECT_EQ(
      Built(LayerJob(R"(layer { name: "x" embedding { ids: "cat" ids: "cat" table: "t" } })")),
      "x.0 [-1, 4, 3] = lookup_table(cat, t)\nx.1 [-1, 4, 3] = lookup_table(cat, t)\nx [-1, 8, 3] = concat(x.0, x.1)");
  EXPECT_THAT(Built(LayerJob(R"(layer { name: "x" embedding { ids: "cat" ids: "cat" table: "t" pooling: SUM } })")),
              HasSubstr("x [-1, 3] = sum(x.0, x.1)"));
  EXPECT_THAT(Built(LayerJob(R"(layer { name: "x" embedding { ids: "cat" ids: "cat" table: "t" pooling: MEAN } })")),
              HasSubstr("layer 'x': pooling MEAN over 2 ids variables is not defined"));
}

TEST(LayersTest, EmbeddingKeepsItsPadding) {
  const auto single =
      BuildSingleMachine(JobOf(LayerJob(R"(layer { name: "x" embedding { ids: "cat" table: "t" padding_id: 0 } })")));
  ASSERT_TRUE(single.ok()) << single.status();
  const v1::OpDesc lookup = OnlyOp(single->main, "lookup_table");
  EXPECT_TRUE(FindAttr(lookup, "has_padding")->b());
  EXPECT_EQ(FindAttr(lookup, "padding_id")->i(), 0);
}

TEST(LayersTest, FcOfOneInputIsOneOperator) {
  EXPECT_EQ(
      Built(LayerJob(std::string(kFields) + R"(layer { name: "x" fc { input: "fields" size: 5 activation: TANH } })")),
      F() + "x [-1, 5] = fc(fields, x.w, x.b)");
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" fc { input: "dense" size: 5 activation: SOFTMAX bias: false } })")),
            "x.linear [-1, 5] = fc(dense, x.w)\nx [-1, 5] = softmax(x.linear)");
}

TEST(LayersTest, FcOfSeveralInputsAddsTheirProducts) {
  EXPECT_EQ(Built(LayerJob(std::string(kFields) +
                           R"(layer { name: "x" fc { input: "dense" input: "fields" size: 5 activation: RELU } })")),
            F() +
                "x.product0 [-1, 5] = mul(dense, x.w)\nx.product1 [-1, 5] = mul(fields, x.w1)\n"
                "x.sum1 [-1, 5] = elementwise_add(x.product0, x.product1)\n"
                "x.linear [-1, 5] = elementwise_add(x.sum1, x.b)\nx [-1, 5] = relu(x.linear)");
}

TEST(LayersTest, FansOfAMatrixAreFilledIn) {
  const auto single = BuildSingleMachine(JobOf(LayerJob(R"(layer { name: "x" fc { input: "dense" size: 5 } })")));
  ASSERT_TRUE(single.ok()) << single.status();
  const v1::XavierInitializer& xavier = FindVar(single->main.blocks(0), "x.w")->initializer().xavier();
  EXPECT_EQ(xavier.fan_in(), 6);
  EXPECT_EQ(xavier.fan_out(), 5);
}

TEST(LayersTest, MlpNamesItsLayersAndDropsOut) {
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" mlp { input: "dense" sizes: [4, 2] dropout: 0.5 } })")),
            "x.0.dense [-1, 4] = fc(dense, x.0.w, x.0.b)\nx.0 [-1, 4] = dropout(x.0.dense)\n"
            "x.dense [-1, 2] = fc(x.0, x.1.w, x.1.b)\nx [-1, 2] = dropout(x.dense)");
  EXPECT_THAT(Built(LayerJob(R"(layer { name: "x" mlp { input: "dense" sizes: [4] dropout: 1 } })")),
              HasSubstr("layer 'x': dropout must be at least 0 and below 1, got 1"));
}

TEST(LayersTest, ConcatJoinsTheLastAxisAndFlattensDifferentRanks) {
  EXPECT_EQ(Built(LayerJob(std::string(kFields) + R"(layer { name: "x" concat { input: "fields" input: "fields" } })")),
            F() + "x [-1, 4, 6] = concat(fields, fields)");
  EXPECT_EQ(Built(LayerJob(std::string(kFields) +
                           R"(layer { name: "x" concat { input: "fields" input: "fields" axis: 1 } })")),
            F() + "x [-1, 8, 3] = concat(fields, fields)");
  EXPECT_EQ(Built(LayerJob(std::string(kFields) + R"(layer { name: "x" concat { input: "dense" input: "fields" } })")),
            F() + "x.flat1 [-1, 12] = reshape(fields)\nx [-1, 18] = concat(dense, x.flat1)");
  EXPECT_THAT(Built(LayerJob(R"(layer { name: "x" concat { input: "dense" axis: 0 } })")),
              HasSubstr("layer 'x': axis must be in [1, 1]"));
}

TEST(LayersTest, ArithmeticFoldsFromLeftToRight) {
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" sub { input: "dense" input: "dense" input: "label" } })")),
            "x.1 [-1, 6] = elementwise_sub(dense, dense)\nx [-1, 6] = elementwise_sub(x.1, label)");
  for (const std::string kind : {"add", "mul", "div"}) {
    EXPECT_EQ(Built(LayerJob("layer { name: \"x\" " + kind + " { input: \"dense\" input: \"dense\" } }")),
              "x [-1, 6] = elementwise_" + kind + "(dense, dense)");
  }
  EXPECT_THAT(Built(LayerJob(R"(layer { name: "x" add { input: "dense" } })")),
              HasSubstr("input needs at least two names"));
}

TEST(LayersTest, ShapeErrorsNameBothShapesAndTheLayersPlace) {
  const std::string error = Built(LayerJob(std::string(kFields) + R"(
  layer { name: "x" add { input: "dense" input: "fields" } })"));
  EXPECT_THAT(error, HasSubstr("job.textproto:5:21: layer 'x': "));
  EXPECT_THAT(error, HasSubstr("[-1, 6]"));
  EXPECT_THAT(error, HasSubstr("[-1, 4, 3]"));
}

TEST(LayersTest, SmallLayersAreOneOperatorEach) {
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" activation { input: "dense" type: SIGMOID } })")),
            "x [-1, 6] = sigmoid(dense)");
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" dropout { input: "dense" } })")), "x [-1, 6] = dropout(dense)");
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" scale { input: "dense" scale: 2 } })")), "x [-1, 6] = scale(dense)");
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" square { input: "dense" } })")), "x [-1, 6] = square(dense)");
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" cast { input: "dense" } })")), "x [-1, 6] = cast(dense)");
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" reduce_sum { input: "dense" axis: 1 keep_dim: true } })")),
            "x [-1, 1] = reduce_sum(dense)");
  EXPECT_EQ(Built(LayerJob(std::string(kFields) + R"(layer { name: "x" fm_interaction { input: "fields" } })")),
            F() + "x [-1, 1] = fm_interaction(fields)");
}

TEST(LayersTest, ASumOverTheBatchIsRefused) {
  EXPECT_THAT(Built(LayerJob(R"(layer { name: "x" reduce_sum { input: "dense" axis: 0 } })")),
              HasSubstr("layer 'x': axis must be at least 1: axis 0 is the batch, got 0"));
}

TEST(LayersTest, CrossIsAProductAndAStepPerLayer) {
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" cross { input: "dense" } })")),
            "x.product0 [-1, 6] = fc(dense, x.0.w, x.0.b)\nx.0 [-1, 6] = cross(dense, x.product0, dense)\n"
            "x.product1 [-1, 6] = fc(x.0, x.1.w, x.1.b)\nx [-1, 6] = cross(dense, x.product1, x.0)");
  EXPECT_EQ(
      Built(LayerJob(std::string(kFields) + R"(layer { name: "x" cross { input: "fields" layers: 1 rank: 2 } })")),
      F() +
          "x.flat [-1, 12] = reshape(fields)\nx.product0.low [-1, 2] = mul(x.flat, x.0.u)\n"
          "x.product0 [-1, 12] = fc(x.product0.low, x.0.v, x.0.b)\nx [-1, 12] = cross(x.flat, x.product0, x.flat)");
}

TEST(LayersTest, DotInteractionTakesVectorsAndSlots) {
  const std::string three = R"(layer { name: "three" fc { input: "dense" size: 3 } })";
  EXPECT_EQ(Built(LayerJob(std::string(kFields) + three +
                           R"(layer { name: "x" dot_interaction { input: "three" input: "fields" } })")),
            F() + "three [-1, 3] = fc(dense, three.w, three.b)\nx [-1, 10] = dot_interaction(three, fields)");
  EXPECT_EQ(Built(LayerJob(std::string(kFields) +
                           R"(layer { name: "x" dot_interaction { input: "fields" self_interaction: true } })")),
            F() + "x [-1, 10] = dot_interaction(fields)");
}

// Ids of one slot and of any number, in one id space.
std::string SequenceJob(const std::string& layers) {
  return R"(name: "layers"
data {
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "item" } slot { name: "history" }
    slot { name: "a" output: "cat" } slot { name: "b" output: "cat" } }
  ids { shared: "item" shared: "history" }
  batch_size: 16
}
model {
  layer { name: "target" embedding { ids: "item" table: "t" } }
)" + layers +
         R"(
  layer { name: "last" fc { input: "x" size: 1 } }
  loss { name: "l" square_error { input: "last" label: "label" } }
}
optimizer { sgd {} }
table { name: "t" width: 3 is_sparse: true is_distributed: true })";
}

constexpr char kRead[] = R"(layer { name: "read" embedding { ids: "history" table: "t" sequence: 5 } })";
constexpr char kTargetAndRead[] =
    "target [-1, 1, 3] = lookup_table(item, t)\nread.length [-1, 1] = sequence_length(history)\n"
    "read [-1, 5, 3] = lookup_table(history, t)\n";

TEST(LayersTest, ASequenceHasALength) {
  EXPECT_EQ(Built(SequenceJob(std::string(kRead) + R"(layer { name: "x" sequence_pool { input: "read" type: MAX } })")),
            std::string(kTargetAndRead) + "x [-1, 3] = sequence_pool(read, read.length)");
  EXPECT_EQ(
      Built(SequenceJob(std::string(kRead) + R"(layer { name: "x" sequence_pool { input: "read" length: "label" } })")),
      std::string(kTargetAndRead) + "x [-1, 3] = sequence_pool(read, label)");
}

TEST(LayersTest, WhatIsNoSequenceIsRefused) {
  for (const auto& [layers, error] : std::vector<std::pair<std::string, std::string>>{
           {R"(layer { name: "x" embedding { ids: "history" table: "t" sequence: 5 pooling: SUM } })",
            "layer 'x': sequence has no pooling: leave SUM out, or pool the sequence with a sequence_pool"},
           {R"(layer { name: "x" embedding { ids: "history" table: "t" sequence: -5 } })",
            "sequence must not be negative, got -5"},
           {R"(layer { name: "x" embedding { ids: "cat" table: "t" sequence: 5 } })",
            "sequence is of one slot, got 1 ids variables, the first with 2"},
           {R"(layer { name: "x" embedding { ids: "item" ids: "history" table: "t" sequence: 5 } })",
            "sequence is of one slot, got 2 ids variables, the first with 1"},
           {R"(layer { name: "x" embedding { ids: "history" table: "t" sequence: 1048577 } })",
            "sequence must be in [1, 1048576], got 1048577"},
           {R"(layer { name: "x" sequence_pool { input: "label" } })",
            "input 'label' has dims [-1, 1]; a sequence is [batch, elements, width]"},
           {R"(layer { name: "x" sequence_pool { input: "target" } })",
            "length is required: 'target' comes without a 'target.length'"},
           {std::string(kRead) + R"(layer { name: "x" attention_pool { query: "label" sequence: "read" } })",
            "attention_pairs: Query must be [-1, 3], got [-1, 1]"},
           {std::string(kRead) + R"(layer { name: "x" attention_pool { query: "target" sequence: "read" sizes: 0 } })",
            "layer 'x': sizes must be at least 1, got 0"},
           {std::string(kRead) +
                R"(layer { name: "x" attention_pool { query: "target" sequence: "read" activation: SOFTMAX } })",
            "layer 'x': activation SOFTMAX is none between the layers of the mlp"}}) {
    EXPECT_THAT(Built(SequenceJob(layers)), HasSubstr(error)) << layers;
  }
}

TEST(LayersTest, AttentionIsAnMlpOverPairs) {
  EXPECT_EQ(Built(SequenceJob(std::string(kRead) +
                              R"(layer { name: "x" attention_pool { query: "target" sequence: "read" sizes: 4 } })")),
            std::string(kTargetAndRead) +
                "x.query [-1, 3] = reshape(target)\nx.pairs [-1, 5, 12] = attention_pairs(x.query, read, read.length)\n"
                "x.0 [-1, 5, 4] = fc(x.pairs, x.0.w, x.0.b)\nx.1 [-1, 5, 1] = fc(x.0, x.1.w, x.1.b)\n"
                "x [-1, 3] = attention_pool(x.1, read, read.length)");
}

TEST(LayersTest, NormsAndSlopesAreOfTheLastDimension) {
  EXPECT_EQ(Built(LayerJob(std::string(kFields) + R"(
                layer { name: "n" layer_norm { input: "fields" } }
                layer { name: "p" prelu { input: "n" } }
                layer { name: "one" prelu { input: "p" per_column: false } }
                layer { name: "x" dice { input: "one" } })")),
            F() +
                "n [-1, 4, 3] = layer_norm(fields, n.scale, n.shift)\np [-1, 4, 3] = prelu(n, p.slope)\n"
                "one [-1, 4, 3] = prelu(p, one.slope)\nx [-1, 4, 3] = dice(one, x.slope, x.mean, x.variance)");
  const auto single = BuildSingleMachine(JobOf(LayerJob(R"(layer { name: "n" layer_norm { input: "dense" } }
                layer { name: "p" prelu { input: "n" } } layer { name: "q" prelu { input: "p" per_column: false
                initial: 0.5 } } layer { name: "x" dice { input: "q" } })")));
  ASSERT_TRUE(single.ok()) << single.status();
  const auto initial = [&](const char* name) {
    const v1::VarDesc* const var = FindVar(single->main.blocks(0), name);
    return absl::StrCat(var->dims(0), " of ", var->initializer().constant().value());
  };
  EXPECT_EQ(initial("n.scale"), "6 of 1");
  EXPECT_EQ(initial("n.shift"), "6 of 0");
  EXPECT_EQ(initial("p.slope"), "6 of 0.25");
  EXPECT_EQ(initial("q.slope"), "1 of 0.5");
  EXPECT_EQ(initial("x.slope"), "6 of 0");
  EXPECT_EQ(initial("x.mean"), "6 of 0");
  EXPECT_EQ(initial("x.variance"), "6 of 1");
  for (const auto& [layer, error] : std::vector<std::pair<std::string, std::string>>{
           {"layer_norm { input: \"dense\" epsilon: 0 }", "epsilon must be above 0 and below 1, got 0"},
           {"layer_norm { input: \"cat\" }", "input 'cat' holds ids"},
           {"prelu { input: \"dense\" initial: nan }", "initial must be a number, got nan"},
           {"dice { input: \"dense\" epsilon: 2 }", "epsilon must be above 0 and below 1, got 2"},
           {"dice { input: \"dense\" momentum: 1 }", "momentum must be at least 0 and below 1, got 1"}}) {
    EXPECT_THAT(Built(LayerJob("layer { name: \"x\" " + layer + " }")), HasSubstr("layer 'x': " + error));
  }
}

TEST(LayersTest, FcOfEachElementKeepsTheSequence) {
  EXPECT_EQ(Built(LayerJob(std::string(kFields) +
                           R"(layer { name: "x" fc { input: "fields" size: 5 per_element: true activation: RELU } })")),
            F() + "x [-1, 4, 5] = fc(fields, x.w, x.b)");
  for (const auto& [layer, error] : std::vector<std::pair<std::string, std::string>>{
           {"fc { input: \"dense\" size: 5 per_element: true }",
            "input 'dense' has dims [-1, 6]; per_element needs elements [batch, elements, width]"},
           {"fc { input: \"dense\" input: \"fields\" size: 5 per_element: true }",
            "per_element is for one input, got 2; concat joins several"},
           {"fc { size: 5 per_element: true }", "per_element is for one input, got 0"},
           {"fc { input: \"fields\" size: 5 per_element: true activation: SOFTMAX }",
            "activation SOFTMAX is not there with per_element"}}) {
    EXPECT_THAT(Built(LayerJob(std::string(kFields) + "layer { name: \"x\" " + layer + " }")),
                HasSubstr("layer 'x': " + error));
  }
}

TEST(LayersTest, PositionsAreAddedToASequence) {
  EXPECT_EQ(Built(SequenceJob(std::string(kRead) + R"(layer { name: "x" add_positions { input: "read" } })")),
            std::string(kTargetAndRead) + "x [-1, 5, 3] = add_positions(read, x.w, read.length)");
  const auto single = BuildSingleMachine(JobOf(SequenceJob(
      std::string(kRead) + R"(layer { name: "x" add_positions { input: "read" from_end: true length: "label" } })")));
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_TRUE(FindAttr(OnlyOp(single->main, "add_positions"), "from_end")->b());
  const v1::VarDesc* const w = FindVar(single->main.blocks(0), "x.w");
  EXPECT_EQ(absl::StrJoin(w->dims(), ", "), "5, 3");
  EXPECT_EQ(w->initializer().gaussian().stddev(), 0.02);
  EXPECT_THAT(Built(SequenceJob(R"(layer { name: "x" add_positions { input: "target" } })")),
              HasSubstr("layer 'x': length is required: 'target' comes without a 'target.length'"));
  EXPECT_THAT(Built(SequenceJob(std::string(kRead) + R"(layer { name: "x" add_positions { input: "label" } })")),
              HasSubstr("input 'label' has dims [-1, 1]; a sequence is"));
}

TEST(LayersTest, SelfAttentionHasFourProducts) {
  const std::string products =
      "x.queries [-1, 5, 3] = fc(read, x.q)\nx.keys [-1, 5, 3] = fc(read, x.k)\nx.values [-1, 5, 3] = fc(read, x.v)\n";
  EXPECT_EQ(Built(SequenceJob(std::string(kRead) + R"(layer { name: "x" self_attention { input: "read" } })")),
            std::string(kTargetAndRead) + products +
                "x.heads [-1, 5, 3] = self_attention(x.queries, x.keys, x.values, read.length)\n"
                "x [-1, 5, 3] = fc(x.heads, x.w)");
  // Slots of an embedding, all of which count.
  EXPECT_EQ(Built(LayerJob(std::string(kFields) +
                           R"(layer { name: "x" self_attention { input: "fields" size: 8 heads: 2 } })")),
            F() +
                "x.queries [-1, 4, 8] = fc(fields, x.q)\nx.keys [-1, 4, 8] = fc(fields, x.k)\n"
                "x.values [-1, 4, 8] = fc(fields, x.v)\n"
                "x.heads [-1, 4, 8] = self_attention(x.queries, x.keys, x.values)\nx [-1, 4, 3] = fc(x.heads, x.w)");
  EXPECT_EQ(
      Built(SequenceJob(std::string(kRead) + R"(layer { name: "x" self_attention { input: "read" project: false
                causal: true length: "label" } })")),
      std::string(kTargetAndRead) + products + "x [-1, 5, 3] = self_attention(x.queries, x.keys, x.values, label)");
}

TEST(LayersTest, WhatDoesNotFitSelfAttentionIsRefused) {
  for (const auto& [layer, error] : std::vector<std::pair<std::string, std::string>>{
           {"input: \"label\"", "input 'label' has dims [-1, 1]; attention is among elements [batch, elements, width]"},
           {"input: \"read\" heads: 2", "heads must fit: 3 values are no multiple of 2 heads"},
           {"input: \"read\" heads: 2 size: 5", "size must fit: 5 values are no multiple of 2 heads"},
           {"input: \"read\" heads: 0", "heads must be at least 1, got 0"},
           {"input: \"read\" size: 0", "size must be at least 1, got 0"},
           {"input: \"read\" length: \"history\"", "length 'history' holds ids"}}) {
    EXPECT_THAT(Built(SequenceJob(std::string(kRead) + "layer { name: \"x\" self_attention { " + layer + " } }")),
                HasSubstr("layer 'x': " + error));
  }
}

TEST(LayersTest, ReshapeInfersOneAxis) {
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" reshape { input: "dense" dims: [2, -1] } })")),
            "x [-1, 2, 3] = reshape(dense)");
  EXPECT_THAT(Built(LayerJob(R"(layer { name: "x" reshape { input: "dense" dims: [4, -1] } })")),
              HasSubstr("layer 'x': dims [4, -1] does not hold the 6 elements of 'dense' [-1, 6]"));
  EXPECT_THAT(Built(LayerJob(R"(layer { name: "x" reshape { input: "dense" dims: [-1, -1] } })")),
              HasSubstr("has more than one -1"));
}

// dense [B, 6] as pictures of one row.
constexpr char kPicture[] = R"(layer { name: "p" reshape { input: "dense" dims: [1, 2, 3] } })";

TEST(LayersTest, ConvolutionIsOneOperator) {
  EXPECT_EQ(Built(LayerJob(std::string(kPicture) +
                           R"(layer { name: "x" conv2d { input: "p" filters: 4 kernel: 2 activation: RELU } })")),
            "p [-1, 1, 2, 3] = reshape(dense)\nx [-1, 4, 1, 2] = conv2d(p, x.w, x.b)");
  EXPECT_EQ(Built(LayerJob(std::string(kPicture) + R"(
                layer { name: "x" conv2d { input: "p" filters: 2 kernel: [1, 3] stride: [2, 1] padding: [0, 1]
                                           bias: false } })")),
            "p [-1, 1, 2, 3] = reshape(dense)\nx [-1, 2, 1, 3] = conv2d(p, x.w)");
}

TEST(LayersTest, FansOfAFilterAreWhatItReadsAndWhatReadsIt) {
  const auto initializer = [](const std::string& setting) {
    const auto single = BuildSingleMachine(JobOf(LayerJob(
        R"(layer { name: "p" reshape { input: "dense" dims: [3, 2, 1] } }
          layer { name: "x" conv2d { input: "p" filters: 5 kernel: [2, 1] )" +
        setting + " } }")));
    EXPECT_TRUE(single.ok()) << single.status();
    if (!single.ok()) return v1::Initializer();
    EXPECT_THAT(FindVar(single->main.blocks(0), "x.w")->dims(), ::testing::ElementsAre(5, 3, 2, 1));
    return FindVar(single->main.blocks(0), "x.w")->initializer();
  };
  EXPECT_DOUBLE_EQ(initializer("").gaussian().stddev(), std::sqrt(2.0 / 6));
  const v1::XavierInitializer xavier = initializer("weight_initializer { xavier { fan_out: 7 } }").xavier();
  EXPECT_EQ(xavier.fan_in(), 6);
  EXPECT_EQ(xavier.fan_out(), 7);
  EXPECT_EQ(initializer("weight_initializer { xavier {} }").xavier().fan_out(), 10);
}

TEST(LayersTest, PoolingStepsByItsKernelAndWithoutOneTakesThePicture) {
  EXPECT_THAT(Built(LayerJob(std::string(kPicture) + R"(layer { name: "x" pool2d { input: "p" kernel: [1, 2] } })")),
              HasSubstr("x [-1, 1, 2, 1] = pool2d(p)"));
  EXPECT_THAT(
      Built(LayerJob(std::string(kPicture) +
                     R"(layer { name: "x" pool2d { input: "p" kernel: 2 stride: 1 padding: 1 type: AVERAGE } })")),
      HasSubstr("x [-1, 1, 3, 4] = pool2d(p)"));
  EXPECT_THAT(Built(LayerJob(std::string(kPicture) + R"(layer { name: "x" pool2d { input: "p" type: AVERAGE } })")),
              HasSubstr("x [-1, 1, 1, 1] = pool2d(p)"));
}

TEST(LayersTest, BatchNormHasRunningValuesBesideItsParameters) {
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" batch_norm { input: "dense" activation: TANH } })")),
            "x [-1, 6] = batch_norm(dense, x.scale, x.shift, x.mean, x.variance)");
  const auto single = BuildSingleMachine(JobOf(LayerJob(
      R"(layer { name: "p" reshape { input: "dense" dims: [3, 2] } } layer { name: "x" batch_norm { input: "p" } })")));
  ASSERT_TRUE(single.ok()) << single.status();
  for (const auto& [name, value] :
       {std::pair("x.scale", 1), std::pair("x.shift", 0), std::pair("x.mean", 0), std::pair("x.variance", 1)}) {
    EXPECT_THAT(FindVar(single->main.blocks(0), name)->dims(), ::testing::ElementsAre(3)) << name;
    EXPECT_EQ(FindVar(single->main.blocks(0), name)->initializer().constant().value(), value) << name;
  }
}

TEST(LayersTest, PicturesThatDoNotFitAreErrorsAtTheirPlace) {
  const auto error = [](const std::string& layer) {
    return Built(LayerJob(std::string(kPicture) + "\n  layer { name: \"x\" " + layer + " }"));
  };
  EXPECT_THAT(error("conv2d { input: \"dense\" filters: 1 kernel: 1 }"),
              HasSubstr("job.textproto:5:30: layer 'x': input 'dense' is [-1, 6]; pictures are [B, channels, height, "
                        "width]: a reshape layer makes them"));
  EXPECT_THAT(error("conv2d { input: \"p\" kernel: 1 }"), HasSubstr("layer 'x': filters must be at least 1, got 0"));
  EXPECT_THAT(error("conv2d { input: \"p\" filters: 1 }"), HasSubstr("layer 'x': kernel is required"));
  EXPECT_THAT(error("conv2d { input: \"p\" filters: 1 kernel: 3 }"),
              HasSubstr("layer 'x': kernel of height 3 does not fit into 'p' [-1, 1, 2, 3] with a padding of 0"));
  EXPECT_THAT(error("conv2d { input: \"p\" filters: 1 kernel: 2 padding: 2 }"),
              HasSubstr("layer 'x': padding must be below the kernel's height of 2, got 2"));
  EXPECT_THAT(error("conv2d { input: \"p\" filters: 1 kernel: [1, 1, 1] }"),
              HasSubstr("layer 'x': kernel is one number, or height and width; got 3 numbers"));
  EXPECT_THAT(error("conv2d { input: \"p\" filters: 1 kernel: 1 stride: 0 }"),
              HasSubstr("layer 'x': stride must be at least 1, got 0"));
  EXPECT_THAT(error("conv2d { input: \"p\" filters: 1 kernel: 1 activation: SOFTMAX }"),
              HasSubstr("layer 'x': activation SOFTMAX is over the classes"));
  EXPECT_THAT(error("pool2d { input: \"p\" stride: 2 }"), HasSubstr("layer 'x': stride needs a kernel"));
  EXPECT_THAT(error("pool2d { input: \"p\" kernel: 1 stride: 0 }"),
              HasSubstr("layer 'x': stride must be at least 1, got 0"));
  EXPECT_THAT(error("pool2d { input: \"p\" padding: 2 }"), HasSubstr("layer 'x': padding needs a kernel"));
  EXPECT_THAT(error("pool2d { input: \"dense\" kernel: 1 }"),
              HasSubstr("layer 'x': input 'dense' is [-1, 6]; pictures are"));
  EXPECT_THAT(error("batch_norm { input: \"p\" epsilon: 0 }"),
              HasSubstr("layer 'x': epsilon must be above 0 and below 1, got 0"));
  EXPECT_THAT(error("batch_norm { input: \"p\" momentum: 1 }"),
              HasSubstr("layer 'x': momentum must be at least 0 and below 1, got 1"));
  EXPECT_THAT(error("batch_norm { input: \"p\" activation: SOFTMAX }"),
              HasSubstr("layer 'x': activation SOFTMAX is over the classes"));
}

// Of one example mean and variance say nothing, and there is no other one to tell it from.
TEST(LayersTest, WhatComputesAcrossExamplesNeedsTwoInALane) {
  const auto error = [](const std::string& layers, const std::string& more = "") {
    return Built(Replaced(LayerJob(layers), "batch_size: 16 }", "batch_size: 8 }") + more);
  };
  constexpr char kNorm[] = R"(layer { name: "x" batch_norm { input: "dense" } })";
  EXPECT_THAT(error(kNorm), HasSubstr("layer 'x': input has one example in a batch, as data.batch_size is 8 and "
                                      "train.lanes 8: mean and variance are those of a lane's own examples"));
  EXPECT_THAT(error(kNorm), HasSubstr("set data.batch_size to 16 at least, or fewer lanes"));
  EXPECT_THAT(error(kNorm, "train { lanes: 4 }"), HasSubstr("x [-1, 6] = batch_norm"));
  EXPECT_THAT(error(kNorm, "train { lanes: 0 } distribute { trainers: 5 reproducible: false }"),
              HasSubstr("as data.batch_size is 8 and distribute.trainers 5: "));
  EXPECT_THAT(error(R"(layer { name: "x" dice { input: "dense" } })"), HasSubstr("is always its own mean"));
  // A picture has many values in a channel, and a sequence many rows.
  constexpr char kPicture[] = R"(layer { name: "p" reshape { input: "dense" dims: [3, 2] } } layer { name: "x" )";
  EXPECT_THAT(error(std::string(kPicture) + "batch_norm { input: \"p\" } }"), HasSubstr("= batch_norm(p"));
  EXPECT_THAT(error(std::string(kPicture) + "dice { input: \"p\" } }"), HasSubstr("= dice(p"));
}

TEST(LossesTest, InBatchNegativesNeedTwoExamplesInALane) {
  const std::string text =
      R"(name: "items" data { criteo { integers: 6 categoricals: 1 } batch_size: 8 }
      model { layer { name: "c" fc { input: "dense" size: 3 } }
        loss { in_batch_softmax { query: "c" item: "c" } } } optimizer { sgd {} })";
  EXPECT_THAT(std::string(BuildSingleMachine(JobOf(text)).status().message()),
              HasSubstr("query has one example in a batch, as data.batch_size is 8 and train.lanes 8: negatives are"));
}

TEST(LayersTest, SplitNumbersItsOutputs) {
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "x" split { input: "dense" sizes: [2, 4] } })", "x.1")),
            "x.0 [-1, 2] = split(dense)");
  EXPECT_THAT(Built(LayerJob(R"(layer { name: "x" split { input: "dense" sizes: [2, 5] } })", "x.1")),
              HasSubstr("layer 'x': "));
}

TEST(LayersTest, ANameThatALayerMakesBesideItsOutputCannotBeTaken) {
  EXPECT_THAT(
      Built(LayerJob(
          R"(layer { name: "x.w" square { input: "dense" } } layer { name: "x" fc { input: "x.w" size: 2 } })")),
      HasSubstr("layer 'x': would make a second variable 'x.w': rename the layer"));
}

std::string LossOps(const std::string& loss, v1::LossDesc* desc) {
  const std::string text = R"(name: "losses" data { criteo { integers: 6 categoricals: 4 } batch_size: 16 }
      model { layer { name: "x" fc { input: "dense" size: 1 } }
        layer { name: "p" activation { input: "x" type: SIGMOID } }
              layer { name: "c" fc { input: "dense" size: 3 } }
      )" + loss + " } optimizer { sgd {} }";
  Programs programs;
  const Job job = JobOf(text);
  const absl::Status built = RunPasses(absl::MakeConstSpan(SingleMachinePasses()).subspan(0, 1), job, &programs);
  if (!built.ok()) return std::string(built.message());
  *desc = programs.main.losses(0);
  std::vector<std::string> ops;
  const auto& all = programs.main.blocks(0).ops();
  for (int i = 3; i < all.size(); ++i) ops.push_back(OpText(all.Get(i)));
  return absl::StrJoin(ops, "\n");
}

TEST(LayersTest, DotMultipliesAVectorWithOthers) {
  EXPECT_EQ(Built(LayerJob(std::string(kFields) + R"(
                layer { name: "q" embedding { ids: "cat" table: "t" pooling: SUM } }
                layer { name: "x" dot { x: "q" y: "fields" } })")),
            F() + "q [-1, 3] = lookup_table(cat, t)\nx [-1, 4] = dot(q, fields)");
  EXPECT_THAT(Built(LayerJob(std::string(kFields) + R"(layer { name: "x" dot { x: "dense" y: "fields" } })")),
              HasSubstr("Y must be vectors of the width of X, [-1, T, 6] or [-1, 6], got [-1, 4, 3]"));
}

TEST(LayersTest, MmoeWeighsExpertsForEachTask) {
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "m" mmoe { input: "dense" experts: 2 sizes: [5, 3] tasks: 2 } }
                             layer { name: "x" add { input: "m.0" input: "m.1" } })")),
            "m.expert0.0 [-1, 5] = fc(dense, m.expert0.0.w, m.expert0.0.b)\n"
            "m.expert0.1 [-1, 3] = fc(m.expert0.0, m.expert0.1.w, m.expert0.1.b)\n"
            "m.expert1.0 [-1, 5] = fc(dense, m.expert1.0.w, m.expert1.0.b)\n"
            "m.expert1.1 [-1, 3] = fc(m.expert1.0, m.expert1.1.w, m.expert1.1.b)\n"
            "m.joined [-1, 6] = concat(m.expert0.1, m.expert1.1)\n"
            "m.experts [-1, 2, 3] = reshape(m.joined)\n"
            "m.gate0.linear [-1, 2] = fc(dense, m.gate0.w, m.gate0.b)\n"
            "m.gate0 [-1, 2] = softmax(m.gate0.linear)\n"
            "m.0 [-1, 3] = weighted_sum(m.gate0, m.experts)\n"
            "m.gate1.linear [-1, 2] = fc(dense, m.gate1.w, m.gate1.b)\n"
            "m.gate1 [-1, 2] = softmax(m.gate1.linear)\n"
            "m.1 [-1, 3] = weighted_sum(m.gate1, m.experts)\n"
            "x [-1, 3] = elementwise_add(m.0, m.1)");
  for (const auto& [settings, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "sizes needs at least one size"},
           {"sizes: 0", "sizes must be at least 1, got 0"},
           {"sizes: 3 experts: 0", "experts must be from 1 to 1024, got 0"},
           {"sizes: 3 tasks: 2000", "tasks must be from 1 to 1024, got 2000"}}) {
    EXPECT_THAT(Built(LayerJob("layer { name: \"m\" mmoe { input: \"dense\" " + settings + " } }", "m.0")),
                HasSubstr(message));
  }
}

TEST(LayersTest, PleHasExpertsOfTasksAndOfAllAtEachLevel) {
  EXPECT_EQ(Built(LayerJob(R"(layer { name: "p" ple { input: "dense" task_experts: 1 shared_experts: 1 sizes: 3 } }
                             layer { name: "x" add { input: "p.0" input: "p.1" } })")),
            "p.0.shared.expert0.0 [-1, 3] = fc(dense, p.0.shared.expert0.0.w, p.0.shared.expert0.0.b)\n"
            "p.0.task0.expert0.0 [-1, 3] = fc(dense, p.0.task0.expert0.0.w, p.0.task0.expert0.0.b)\n"
            "p.0.task0.joined [-1, 6] = concat(p.0.task0.expert0.0, p.0.shared.expert0.0)\n"
            "p.0.task0.experts [-1, 2, 3] = reshape(p.0.task0.joined)\n"
            "p.0.gate0.linear [-1, 2] = fc(dense, p.0.gate0.w, p.0.gate0.b)\n"
            "p.0.gate0 [-1, 2] = softmax(p.0.gate0.linear)\n"
            "p.0.task0 [-1, 3] = weighted_sum(p.0.gate0, p.0.task0.experts)\n"
            "p.0.task1.expert0.0 [-1, 3] = fc(dense, p.0.task1.expert0.0.w, p.0.task1.expert0.0.b)\n"
            "p.0.task1.joined [-1, 6] = concat(p.0.task1.expert0.0, p.0.shared.expert0.0)\n"
            "p.0.task1.experts [-1, 2, 3] = reshape(p.0.task1.joined)\n"
            "p.0.gate1.linear [-1, 2] = fc(dense, p.0.gate1.w, p.0.gate1.b)\n"
            "p.0.gate1 [-1, 2] = softmax(p.0.gate1.linear)\n"
            "p.0.task1 [-1, 3] = weighted_sum(p.0.gate1, p.0.task1.experts)\n"
            "p.0.shared.joined [-1, 9] = concat(p.0.task0.expert0.0, p.0.task1.expert0.0, p.0.shared.expert0.0)\n"
            "p.0.shared.experts [-1, 3, 3] = reshape(p.0.shared.joined)\n"
            "p.0.gate.shared.linear [-1, 3] = fc(dense, p.0.gate.shared.w, p.0.gate.shared.b)\n"
            "p.0.gate.shared [-1, 3] = softmax(p.0.gate.shared.linear)\n"
            "p.0.shared [-1, 3] = weighted_sum(p.0.gate.shared, p.0.shared.experts)\n"
            "p.1.shared.expert0.0 [-1, 3] = fc(p.0.shared, p.1.shared.expert0.0.w, p.1.shared.expert0.0.b)\n"
            "p.1.task0.expert0.0 [-1, 3] = fc(p.0.task0, p.1.task0.expert0.0.w, p.1.task0.expert0.0.b)\n"
            "p.1.task0.joined [-1, 6] = concat(p.1.task0.expert0.0, p.1.shared.expert0.0)\n"
            "p.1.task0.experts [-1, 2, 3] = reshape(p.1.task0.joined)\n"
            "p.1.gate0.linear [-1, 2] = fc(p.0.task0, p.1.gate0.w, p.1.gate0.b)\n"
            "p.1.gate0 [-1, 2] = softmax(p.1.gate0.linear)\n"
            "p.0 [-1, 3] = weighted_sum(p.1.gate0, p.1.task0.experts)\n"
            "p.1.task1.expert0.0 [-1, 3] = fc(p.0.task1, p.1.task1.expert0.0.w, p.1.task1.expert0.0.b)\n"
            "p.1.task1.joined [-1, 6] = concat(p.1.task1.expert0.0, p.1.shared.expert0.0)\n"
            "p.1.task1.experts [-1, 2, 3] = reshape(p.1.task1.joined)\n"
            "p.1.gate1.linear [-1, 2] = fc(p.0.task1, p.1.gate1.w, p.1.gate1.b)\n"
            "p.1.gate1 [-1, 2] = softmax(p.1.gate1.linear)\n"
            "p.1 [-1, 3] = weighted_sum(p.1.gate1, p.1.task1.experts)\n"
            "x [-1, 3] = elementwise_add(p.0, p.1)");
  for (const auto& [settings, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "sizes needs at least one size"},
           {"sizes: 0", "sizes must be at least 1, got 0"},
           {"sizes: 3 tasks: 0", "tasks must be from 1 to 1024, got 0"},
           {"sizes: 3 task_experts: -1", "task_experts must be from 1 to 1024, got -1"},
           {"sizes: 3 shared_experts: 0", "shared_experts must be from 1 to 1024, got 0"},
           {"sizes: 3 levels: 2000", "levels must be from 1 to 1024, got 2000"}}) {
    EXPECT_THAT(Built(LayerJob("layer { name: \"p\" ple { input: \"dense\" " + settings + " } }", "p.0")),
                HasSubstr(message));
  }
}

TEST(LayersTest, BilinearHasAMatrixForAllPairsOrVectorsOrEach) {
  for (const auto& [type, dims] : std::vector<std::pair<std::string, std::string>>{
           {"ALL", "3, 3"}, {"EACH", "3, 3, 3"}, {"INTERACTION", "6, 3, 3"}}) {
    const std::string job =
        LayerJob(absl::StrCat(kFields, "layer { name: \"x\" bilinear { input: \"fields\" type: ", type, " } }"));
    EXPECT_EQ(Built(job), F() + "x [-1, 6, 3] = bilinear(fields, x.w)");
    const auto single = BuildSingleMachine(JobOf(job));
    ASSERT_TRUE(single.ok()) << single.status();
    const v1::VarDesc* const weight = FindVar(single->main.blocks(0), "x.w");
    EXPECT_EQ(absl::StrJoin(weight->dims(), ", "), dims);
    // The fans of one matrix.
    EXPECT_EQ(weight->initializer().xavier().fan_in(), 3);
    EXPECT_EQ(weight->initializer().xavier().fan_out(), 3);
  }
  EXPECT_EQ(Built(LayerJob(std::string(kFields) + R"(
                layer { name: "q" embedding { ids: "cat" table: "t" pooling: SUM } }
                layer { name: "x" bilinear { input: "fields" input: "q" } })")),
            F() +
                "q [-1, 3] = lookup_table(cat, t)\n"
                "x.flat0 [-1, 12] = reshape(fields)\n"
                "x.joined [-1, 15] = concat(x.flat0, q)\n"
                "x.vectors [-1, 5, 3] = reshape(x.joined)\n"
                "x [-1, 10, 3] = bilinear(x.vectors, x.w)");
  EXPECT_THAT(Built(LayerJob(R"(layer { name: "x" bilinear { } })")), HasSubstr("layer 'x': input is required"));
  EXPECT_THAT(Built(LayerJob(R"(layer { name: "x" bilinear { input: "dense" } })")),
              HasSubstr("input must give from 2 to 4096 vectors, of which pairs are made, got 1"));
  EXPECT_THAT(
      Built(LayerJob(std::string(kFields) + R"(layer { name: "x" bilinear { input: "fields" input: "dense" } })")),
      HasSubstr("input 'dense' has dims [-1, 6]; inputs are [B, S, W] or [B, W] of one width, that of 'fields'"));
}

TEST(LayersTest, CinSumsWhatTheNextLayerDoesNotRead) {
  EXPECT_EQ(Built(LayerJob(std::string(kFields) + R"(layer { name: "x" cin { input: "fields" sizes: [6, 5] } })")),
            F() +
                "x.0 [-1, 6, 3] = cin(fields, fields, x.0.w)\n"
                "x.0.sum [-1, 6] = reduce_sum(x.0)\n"
                "x.1.sum [-1, 5] = cin(x.0, fields, x.1.w)\n"
                "x [-1, 11] = concat(x.0.sum, x.1.sum)");
  const std::string halves =
      LayerJob(std::string(kFields) + R"(layer { name: "x" cin { input: "fields" sizes: [6, 5] split_half: true } })");
  EXPECT_EQ(Built(halves), F() +
                               "x.0.sum [-1, 3] = cin(fields, fields, x.0.w)\n"
                               "x.1.sum [-1, 5] = cin(x.0, fields, x.1.w)\n"
                               "x [-1, 8] = concat(x.0.sum, x.1.sum)");
  const auto single = BuildSingleMachine(JobOf(halves));
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_EQ(absl::StrJoin(FindVar(single->main.blocks(0), "x.0")->dims(), ", "), "-1, 3, 3");
  EXPECT_EQ(absl::StrJoin(FindVar(single->main.blocks(0), "x.1.w")->dims(), ", "), "12, 5");
  EXPECT_EQ(Built(LayerJob(std::string(kFields) + R"(
                layer { name: "x" cin { input: "fields" sizes: [6, 5] split_half: true activation: RELU } })")),
            F() +
                "x.0.linear [-1, 6, 3] = cin(fields, fields, x.0.w)\n"
                "x.0 [-1, 6, 3] = relu(x.0.linear)\n"
                "x.0.first [-1, 3, 3] = split(x.0)\n"
                "x.0.sum [-1, 3] = reduce_sum(x.0.first)\n"
                "x.1.linear [-1, 5, 3] = cin(x.0.second, fields, x.1.w)\n"
                "x.1 [-1, 5, 3] = relu(x.1.linear)\n"
                "x.1.sum [-1, 5] = reduce_sum(x.1)\n"
                "x [-1, 8] = concat(x.0.sum, x.1.sum)");
  for (const auto& [settings, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "sizes needs at least one size"},
           {"sizes: 0", "sizes must be at least 1, got 0"},
           {"sizes: [5, 4] split_half: true", "sizes must be even with split_half, but for the last, got 5"},
           {"sizes: [6] split_half: true",
            "split_half halves the vectors of every layer but the last, and there is one layer: leave it out"},
           {"sizes: 2 activation: SOFTMAX", "activation SOFTMAX is none of the values of vectors"}}) {
    EXPECT_THAT(
        Built(LayerJob(absl::StrCat(kFields, "layer { name: \"x\" cin { input: \"fields\" ", settings, " } }"))),
        HasSubstr(message));
  }
}

TEST(LayersTest, GruGivesItsStatesOrTheLastOne) {
  const std::string sequence = R"(layer { name: "s" embedding { ids: "cat" table: "t" sequence: 5 } })";
  const auto built = [&](const std::string& gru) {
    std::string text = Built(absl::StrReplaceAll(LayerJob(sequence + "layer { name: \"x\" gru { " + gru + " } }"),
                                                 {{"categoricals: 4", "categoricals: 1"}}));
    return text.substr(text.find('x') == std::string::npos ? 0 : text.rfind('\n') + 1);
  };
  EXPECT_EQ(built(R"(input: "s" size: 4 sequence: true)"), "x [-1, 5, 4] = gru(s, s.length, x.w, x.u, x.b, x.c)");
  EXPECT_EQ(built(R"(input: "s" size: 4)"), "x.states [-1, 5, 4] = gru(s, s.length, x.w, x.u, x.b, x.c)");
  EXPECT_THAT(built(R"(input: "s")"), HasSubstr("size must be from 1 to 268435456, got 0"));
  EXPECT_THAT(built(R"(input: "dense" size: 3)"), HasSubstr("input 'dense' has dims [-1, 6]; a sequence is"));
  EXPECT_THAT(built(R"(input: "s" size: 3 length: "cat")"), HasSubstr("length 'cat' holds ids"));
}

TEST(LossesTest, ALearnedWeightIsMinimisedInPlaceOfTheLoss) {
  v1::LossDesc desc;
  EXPECT_EQ(
      LossOps(R"(loss { name: "l" weight: 2 learned_weight: true square_error { input: "x" label: "label" } })", &desc),
      "Out=l.loss <- square_error(X=x, Label=label) @LOSS\n"
      "Out=l.weighted <- learned_weight(X=l.loss, LogVariance=l.log_variance) @LOSS");
  EXPECT_EQ(desc.var(), "l.weighted");
  EXPECT_EQ(desc.weight(), 2);
  EXPECT_EQ(desc.prediction(), "x");
  EXPECT_THAT(LossOps(R"(loss { name: "l" learned_weight: true label_may_be_missing: true
                                sigmoid_cross_entropy { logits: "x" label: "label" } })",
                      &desc),
              HasSubstr("Out=l.weighted <- learned_weight(X=l.loss, LogVariance=l.log_variance) @LOSS"));
  EXPECT_EQ(desc.label(), "label");
}

TEST(LossesTest, EachSaysWhatItPredicts) {
  v1::LossDesc desc;
  EXPECT_EQ(LossOps(R"(loss { sigmoid_cross_entropy { logits: "x" label: "label" } })", &desc),
            "Out=sigmoid_cross_entropy.loss <- sigmoid_cross_entropy_with_logits(X=x, Label=label) @LOSS\n"
            "Out=sigmoid_cross_entropy.prediction <- sigmoid(X=x)");
  EXPECT_EQ(desc.kind(), v1::LossDesc::BINARY);
  EXPECT_EQ(desc.prediction(), "sigmoid_cross_entropy.prediction");
  LossOps(R"(loss { name: "m" weight: 3 softmax_cross_entropy { logits: "c" label: "label" } })", &desc);
  EXPECT_EQ(desc.kind(), v1::LossDesc::MULTI_CLASS);
  EXPECT_EQ(desc.prediction(), "m.prediction");
  EXPECT_EQ(desc.weight(), 3);
  LossOps(R"(loss { square_error { input: "x" label: "label" sample_weight: "p" } })", &desc);
  EXPECT_EQ(desc.kind(), v1::LossDesc::REGRESSION);
  EXPECT_EQ(desc.prediction(), "x");
  EXPECT_EQ(desc.sample_weight(), "p");
  LossOps(R"(loss { log_loss { probability: "p" label: "label" } })", &desc);
  EXPECT_EQ(desc.prediction(), "p");
  EXPECT_EQ(desc.var(), "log_loss.loss");
  EXPECT_EQ(desc.label(), "label");
  for (const char* loss :
       {"focal_loss { logits: \"x\" label: \"label\" alpha: 0.25 }", "hinge_loss { scores: \"x\" label: \"label\" }"}) {
    EXPECT_THAT(LossOps(absl::StrCat("loss { name: \"l\" ", loss, " }"), &desc),
                HasSubstr("Out=l.prediction <- sigmoid(X=x)"));
    EXPECT_EQ(desc.kind(), v1::LossDesc::BINARY);
    EXPECT_EQ(desc.prediction(), "l.prediction");
  }
  EXPECT_EQ(LossOps(R"(loss { poisson_loss { log_rate: "x" label: "label" sample_weight: "p" } })", &desc),
            "Out=poisson_loss.loss <- poisson_loss(X=x, Label=label, Weight=p) @LOSS\n"
            "Out=poisson_loss.prediction <- exp(X=x)");
  EXPECT_EQ(desc.kind(), v1::LossDesc::REGRESSION);
  EXPECT_EQ(LossOps(R"(loss { huber_loss { input: "x" label: "label" delta: 2 } })", &desc),
            "Out=huber_loss.loss <- huber_loss(X=x, Label=label) delta=2.0 @LOSS");
  EXPECT_EQ(LossOps(R"(loss { quantile_loss { input: "x" label: "label" quantile: 0.9 } })", &desc),
            "Out=quantile_loss.loss <- quantile_loss(X=x, Label=label) quantile=0.9 @LOSS");
  EXPECT_EQ(desc.prediction(), "x");
}

TEST(LossesTest, OfSeveralScoresSayWhatTheyPredict) {
  v1::LossDesc desc;
  EXPECT_EQ(LossOps(R"(loss { bpr_loss { positive: "x" negative: "c" } })", &desc),
            "Out=bpr_loss.label <- fill_like_batch(X=x) value=1.0\n"
            "Out=bpr_loss.loss <- bpr_loss(Positive=x, Negative=c) @LOSS\n"
            "Out=bpr_loss.prediction <- sigmoid(X=x)");
  EXPECT_EQ(desc.kind(), v1::LossDesc::BINARY);
  EXPECT_EQ(desc.label(), "bpr_loss.label");
  EXPECT_EQ(
      LossOps(R"(loss { pairwise_hinge_loss { positive: "x" negative: "c" label: "label" margin: 2 } })", &desc),
      "Out=pairwise_hinge_loss.loss <- pairwise_hinge_loss(Positive=x, Negative=c, Weight=label) margin=2.0 @LOSS\n"
      "Out=pairwise_hinge_loss.prediction <- sigmoid(X=x)");
  EXPECT_EQ(desc.label(), "label");
  EXPECT_EQ(
      LossOps(R"(loss { sampled_softmax { positive: "x" negative: "c" label: "label" sample_weight: "p" } })", &desc),
      "Out=sampled_softmax.weight <- elementwise_mul(X=label, Y=p)\n"
      "Out=sampled_softmax.loss <- sampled_softmax(Positive=x, Negative=c, Weight=sampled_softmax.weight) @LOSS\n"
      "Out=sampled_softmax.prediction <- sigmoid(X=x)");
  EXPECT_EQ(desc.sample_weight(), "p");
  EXPECT_EQ(
      LossOps(R"(loss { listwise_softmax { scores: "c" label: "c" length: "label" sample_weight: "p" } })", &desc),
      "Softmax=listwise_softmax.prediction, Out=listwise_softmax.loss <- "
      "listwise_softmax(Scores=c, Label=c, Length=label, Weight=p) @LOSS");
  EXPECT_EQ(LossOps(R"(loss { in_batch_softmax { query: "c" item: "c" label: "label" temperature: 0.5 } })", &desc),
            "Out=in_batch_softmax.product <- dot(X=c, Y=c)\n"
            "Out=in_batch_softmax.score <- scale(X=in_batch_softmax.product) scale=2.0\n"
            "LogSum=in_batch_softmax.log_sum, Out=in_batch_softmax.loss <- "
            "in_batch_softmax(Query=c, Item=c, Weight=label) temperature=0.5 @LOSS\n"
            "Out=in_batch_softmax.prediction <- sigmoid(X=in_batch_softmax.score)");
  EXPECT_EQ(desc.kind(), v1::LossDesc::BINARY);
  EXPECT_THAT(LossOps(R"(loss { in_batch_softmax { query: "c" item: "c" probability: "p" } })", &desc),
              HasSubstr("Out=in_batch_softmax.label <- fill_like_batch(X=in_batch_softmax.score)"));
  EXPECT_EQ(desc.label(), "in_batch_softmax.label");
  EXPECT_THAT(LossOps(R"(loss { sigmoid_cross_entropy { logits: "c" label: "c" } })", &desc),
              HasSubstr("multi_label_cross_entropy(X=c, Label=c) @LOSS"));
}

TEST(LossesTest, LabelsThatMayBeMissingAreMasked) {
  v1::LossDesc desc;
  EXPECT_EQ(
      LossOps(R"(loss { label_may_be_missing: true
                              sigmoid_cross_entropy { logits: "x" label: "label" sample_weight: "p" } })",
              &desc),
      "Out=sigmoid_cross_entropy.label, Mask=sigmoid_cross_entropy.known <- known_label(X=label, Weight=p)\n"
      "Out=sigmoid_cross_entropy.loss <- sigmoid_cross_entropy_with_logits(X=x, Label=sigmoid_cross_entropy.label, "
      "Weight=sigmoid_cross_entropy.known) @LOSS\n"
      "Out=sigmoid_cross_entropy.prediction <- sigmoid(X=x)");
  EXPECT_EQ(desc.label(), "label");
  EXPECT_EQ(desc.sample_weight(), "p");
  EXPECT_THAT(
      LossOps(R"(loss { label_may_be_missing: true bpr_loss { positive: "x" negative: "c" label: "label" } })", &desc),
      HasSubstr("bpr_loss(Positive=x, Negative=c, Weight=bpr_loss.label) @LOSS"));
  EXPECT_THAT(LossOps(R"(loss { label_may_be_missing: true square_error { input: "x" label: "label" } })", &desc),
              HasSubstr("label_may_be_missing is for later losses, or one of two classes"));
  EXPECT_THAT(LossOps(R"(loss { label_may_be_missing: true listwise_softmax { scores: "c" label: "c" } })", &desc),
              HasSubstr("has several numbers; label_may_be_missing is for labels [B, 1]"));
  for (const char* const loss : {R"(sigmoid_cross_entropy { logits: "x" label: "p" })",
                                 R"(bpr_loss { positive: "x" negative: "c" label: "p" })"}) {
    EXPECT_THAT(LossOps(absl::StrCat("loss { label_may_be_missing: true ", loss, " }"), &desc),
                HasSubstr("label 'p' is computed by a layer; label_may_be_missing is for a label that the data gives"));
  }
  EXPECT_THAT(LossOps(R"(loss { label_may_be_missing: true in_batch_softmax { query: "c" item: "c" } })", &desc),
              HasSubstr("label is not set, and label_may_be_missing says that one may be missing: name the label"));
}

TEST(LossesTest, ALabelThatMayBeMissingIsNeededByNobody) {
  v1::LossDesc desc;
  const std::string may =
      R"(loss { name: "a" label_may_be_missing: true sigmoid_cross_entropy { logits: "x" label: "label" } })";
  EXPECT_THAT(
      LossOps(may + R"(loss { name: "b" hinge_loss { scores: "x" label: "label" } })", &desc),
      HasSubstr("model.loss[0].label_may_be_missing is set for 'label', but loss 'b' needs it in every example: "
                "set label_may_be_missing there too, if it is a loss, or take it out here"));
  EXPECT_THAT(LossOps(R"(layer { name: "y" scale { input: "label" } } )" + may, &desc),
              HasSubstr("is set for 'label', but layer 'y' needs it in every example"));
  EXPECT_THAT(
      LossOps(may + R"(loss { name: "b" label_may_be_missing: true hinge_loss { scores: "x" label: "label" } })",
              &desc),
      HasSubstr("known_label"));
}

TEST(LossesTest, RareItemsThatAreOneIdAreNoItems) {
  const std::string text =
      R"(name: "items" data { criteo { integers: 6 categoricals: 1 } batch_size: 16 ids { min_count: 2 } }
      model { layer { name: "c" fc { input: "dense" size: 3 } }
        loss { in_batch_softmax { query: "c" item: "c" item_id: "cat" } } } optimizer { sgd {} })";
  const auto error = [](const std::string& job) {
    return std::string(BuildSingleMachine(JobOf(job)).status().message());
  };
  EXPECT_THAT(error(text), HasSubstr("item_id 'cat' has one id for all that are rare, by data.ids.min_count"));
  EXPECT_EQ(error(Replaced(text, "min_count: 2", "min_count: 1")), "");
}

TEST(LayersTest, NegativesAreSharedLikeTheIdsTheyAreNoneOf) {
  const std::string text = R"(name: "negatives"
data { multi_slot { slot { name: "x" type: FLOAT } slot { name: "item" } }
       derived { name: "others" negatives { of: "item" count: 2 uniform { items: 9 } } }
       ids { shared: "item" } batch_size: 16 }
model {
  layer { name: "o" embedding { ids: "others" table: "t" pooling: SUM padding_id: 4 } }
  layer { name: "last" fc { input: "o" size: 1 } }
  loss { name: "l" square_error { input: "last" label: "x" } }
}
table { name: "t" width: 3 dict_size: 9 }
optimizer { sgd {} })";
  const auto single = BuildSingleMachine(JobOf(text));
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_EQ(FindAttr(OnlyOp(single->main, "lookup_table"), "padding_id")->i(), 4);
  EXPECT_THAT(std::string(BuildSingleMachine(JobOf(Replaced(text, "ids { shared: \"item\" }", ""))).status().message()),
              HasSubstr("add data { ids { shared: \"item\" } }"));
  EXPECT_THAT(
      std::string(ParseJob(Replaced(text, "shared: \"item\"", "shared: \"others\""), "j", {}).status().message()),
      HasSubstr("data.ids.shared[0] 'others' has the id space of 'item': name 'item', and 'others' follows"));
}

TEST(LossesTest, WrongSettingsAreNamed) {
  v1::LossDesc desc;
  const auto error = [&](const std::string& settings) { return LossOps("loss { " + settings + " }", &desc); };
  EXPECT_THAT(error(R"(focal_loss { logits: "x" label: "label" gamma: -1 })"),
              HasSubstr("gamma must not be negative, got -1"));
  EXPECT_THAT(error(R"(focal_loss { logits: "x" label: "label" alpha: 1.5 })"),
              HasSubstr("alpha must be in [0, 1], got 1.5"));
  EXPECT_THAT(error(R"(hinge_loss { scores: "x" label: "label" margin: 0 })"),
              HasSubstr("margin must be positive, got 0"));
  EXPECT_THAT(error(R"(huber_loss { input: "x" label: "label" delta: -2 })"),
              HasSubstr("delta must be positive, got -2"));
  EXPECT_THAT(error(R"(quantile_loss { input: "x" label: "label" quantile: 1 })"),
              HasSubstr("quantile must be between 0 and 1, got 1"));
  EXPECT_THAT(error(R"(pairwise_hinge_loss { positive: "x" negative: "c" margin: 0 })"),
              HasSubstr("margin must be positive, got 0"));
  EXPECT_THAT(error(R"(bpr_loss { positive: "c" negative: "c" })"), HasSubstr("Positive must be [B, 1]"));
  EXPECT_THAT(error(R"(in_batch_softmax { query: "c" item: "c" temperature: -1 })"),
              HasSubstr("temperature must be positive, got -1"));
  EXPECT_THAT(error(R"(in_batch_softmax { query: "c" item: "c" item_id: "label" })"),
              HasSubstr("item_id 'label' is no variable of ids"));
  EXPECT_THAT(error(R"(in_batch_softmax { query: "c" item: "x" })"),
              HasSubstr("item 'x' has 1 numbers an example, query 'c' 3: give both towers one size"));
  EXPECT_THAT(error(R"(poisson_loss { log_rate: "y" label: "label" })"), HasSubstr("log_rate"));
}

}  // namespace
}  // namespace weir
