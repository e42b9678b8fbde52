// Trains one job with everything that a user can add outside this tree: a reader, a layer, an optimizer with its row
// form, and a dispatcher.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/schema.h"
#include "gtest/gtest.h"
#include "ops/inline.h"
#include "ops/update_op.h"
#include "tests/e2e/extension.pb.h"
#include "tests/testing/train_in_process.h"
#include "transpiler/dispatchers/dispatcher.h"
#include "transpiler/job/data_schema.h"
#include "transpiler/layers/layer.h"
#include "transpiler/optimizers/optimizer.h"

namespace weir {
namespace {

// -------------------------------------------------------------------------------------------------------------- reader

absl::StatusOr<std::vector<v1::VarDesc>> KeyValueSchema(const extension::KeyValue& m, const SettingErrors& at) {
  if (m.columns() < 1) return at.Error("columns", absl::StrCat("must be at least 1, got ", m.columns()));
  return std::vector<v1::VarDesc>{DataVariable("y", v1::DENSE, 1), DataVariable("u", v1::DENSE, m.columns()),
                                  DataVariable("k", v1::IDS, 1)};
}
WEIR_REGISTER_DATA_SCHEMA(extension::KeyValue, KeyValueSchema);

class KeyValueParser : public LineParser {
 public:
  explicit KeyValueParser(int columns)
      : LineParser({{.name = "y", .kind = v1::DENSE, .width = 1},
                    {.name = "u", .kind = v1::DENSE, .width = columns},
                    {.name = "k", .kind = v1::IDS, .width = 1, .slot_names = {"k"}}}) {}

  absl::Status Parse(std::string_view line, Example* example) const override {
    example->ids.clear();
    example->weights.clear();
    example->counts[0] = 0;
    const std::vector<std::string> fields = absl::StrSplit(absl::string_view(line.data(), line.size()), ';');
    if (fields.size() != 3)
      return absl::InvalidArgumentError(absl::StrCat("expected y, u and k, got ", fields.size(), " fields"));
    RETURN_IF_ERROR(Floats(fields[0], "y=", 1, &example->floats[0]));
    RETURN_IF_ERROR(Floats(fields[1], "u=", floats() - 1, &example->floats[1]));
    if (fields[2].substr(0, 2) != "k=")
      return absl::InvalidArgumentError(absl::StrCat("'", fields[2], "' is not k=..."));
    const std::vector<std::string> words = absl::StrSplit(fields[2].substr(2), ',', absl::SkipEmpty());
    for (const std::string& word : words) example->ids.push_back(static_cast<int64_t>(StableHash(word)));
    example->counts[0] = static_cast<uint16_t>(words.size());
    return absl::OkStatus();
  }

 private:
  static absl::Status Floats(const std::string& field, const std::string& key, int64_t count, float* out) {
    const std::vector<std::string> words = absl::StrSplit(field.substr(std::min(key.size(), field.size())), ',');
    if (field.substr(0, key.size()) != key || static_cast<int64_t>(words.size()) != count) {
      return absl::InvalidArgumentError(absl::StrCat("expected ", key, " and ", count, " numbers, got '", field, "'"));
    }
    for (const std::string& word : words) {
      if (!absl::SimpleAtof(word, out++)) return absl::InvalidArgumentError(absl::StrCat("'", word, "' is no number"));
    }
    return absl::OkStatus();
  }
};
absl::StatusOr<std::unique_ptr<LineParser>> MakeKeyValueParser(const extension::KeyValue& m) {
  return std::make_unique<KeyValueParser>(m.columns());
}
WEIR_REGISTER_LINE_PARSER(extension::KeyValue, MakeKeyValueParser);

// --------------------------------------------------------------------------------------------------------------- layer

absl::Status BuildGate(const extension::Gate& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput("input", m.input()));
  ASSIGN_OR_RETURN(const int64_t width, ctx.FlatWidth("input", x));
  v1::Initializer initial;
  initial.mutable_constant()->set_value(m.initial());
  ASSIGN_OR_RETURN(const std::string w, ctx.Parameter("w", {width}, initial));
  return ctx.Append(MakeOp("elementwise_mul", {{"X", {m.input()}}, {"Y", {w}}}, {{"Out", {ctx.name()}}}));
}
REGISTER_CUSTOM_LAYER(gate, extension::Gate, BuildGate);

// ----------------------------------------------------------------------------------------------------------- optimizer

struct RmsMath {
  static constexpr int kStates = 1;
  static constexpr bool kCounts = false;
  float decay, epsilon;
  struct Step {
    float lr, decay, epsilon;
  };
  WEIR_MATH Step At(float lr, float /*count*/) const { return {lr, decay, epsilon}; }
  WEIR_MATH static void Element(const Step& c, float g, float& w, float& square) {
    const float h = c.decay * square + (1 - c.decay) * g * g;
    square = h;
    w = w - c.lr * g / (__builtin_sqrtf(h) + c.epsilon);
  }
};
RmsMath MathOf(const AttrReader& attrs) {
  return {.decay = static_cast<float>(attrs.Float("decay")), .epsilon = static_cast<float>(attrs.Float("epsilon"))};
}
REGISTER_OP(extension_rms)
(MakeUpdateOp("extension_rms", "h = decay h + (1 - decay) g^2; w -= lr g / (sqrt(h) + epsilon)",
              {FloatAttr("decay", 0.9), FloatAttr("epsilon", 1e-3)}, {{.slot = "Square"}}, 8));
REGISTER_KERNEL(extension_rms, [](const KernelInit& init) { return MakeUpdateKernel(MathOf(init.attrs)); });
REGISTER_ROW_RULE(extension_rms,
                  [](const AttrReader& attrs) { return MakeRowRule("extension_rms", MathOf(attrs), attrs); });

absl::StatusOr<UpdateRule> RmsRule(const extension::Rms& m, const Setting& at) {
  RETURN_IF_ERROR(CheckPositive(at, "learning_rate", m.learning_rate()));
  RETURN_IF_ERROR(CheckDecay(at, "decay", m.decay()));
  RETURN_IF_ERROR(CheckPositive(at, "epsilon", m.epsilon()));
  return UpdateRule{.op_type = "extension_rms",
                    .attrs = {AttrF("decay", m.decay()), AttrF("epsilon", m.epsilon())},
                    .learning_rate = m.learning_rate()};
}
REGISTER_CUSTOM_OPTIMIZER(rms, extension::Rms, RmsRule);

// ---------------------------------------------------------------------------------------------------------- dispatcher

absl::StatusOr<std::vector<int>> Balance(const extension::Balance&, absl::Span<const v1::PlacedBlock> blocks,
                                         int servers) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return blocks[a].element_count() > blocks[b].element_count(); });
  std::vector<int64_t> load(servers);
  std::vector<int> placed(blocks.size());
  for (const size_t i : order) {
    placed[i] = static_cast<int>(std::min_element(load.begin(), load.end()) - load.begin());
    load[placed[i]] += blocks[i].element_count();
  }
  return placed;
}
REGISTER_CUSTOM_DISPATCHER(balance, extension::Balance, Balance);

// ----------------------------------------------------------------------------------------------------------------- job

constexpr char kJob[] = R"(
name: "extended"
data {
  train { files: "train.kv" }
  eval { files: "eval.kv" }
  custom { [type.googleapis.com/extension.KeyValue] { columns: 2 } }
  batch_size: 32
}
model {
  layer { name: "words" embedding { ids: "k" table: "vectors" pooling: SUM } }
  layer { name: "gated" custom { [type.googleapis.com/extension.Gate] { input: "u" initial: 0.5 } } }
  layer { name: "input" concat { input: "words" input: "gated" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { square_error { input: "out" label: "y" } }
}
table { name: "vectors" width: 3 is_sparse: true is_distributed: true }
optimizer { custom { [type.googleapis.com/extension.Rms] { learning_rate: 0.01 decay: 0.95 } } }
distribute { custom_dispatcher { [type.googleapis.com/extension.Balance] { } } }
train { epochs: 8 digest_every_steps: 50 }
)";

double Number(uint64_t what, uint64_t i, uint64_t j) { return Philox(what, i, j).v[0] / 2147483648.0 - 1; }

// y = 2 u0 - u1 + what each of one to three words is worth. The variance of y goes to `variance`.
void WriteKeyValues(const std::string& file, int begin, int end, double* variance) {
  std::ofstream out(file);
  double sum = 0, squares = 0;
  for (int i = begin; i < end; ++i) {
    const double u[] = {Number(1, i, 0), Number(1, i, 1)};
    double y = 2 * u[0] - u[1];
    std::string words;
    for (uint32_t j = 0; j <= Philox(2, i, 0).v[0] % 3; ++j) {
      const uint32_t word = Philox(3, i, j).v[0] % 40;
      y += 2 * Number(4, word, 0);
      absl::StrAppend(&words, j == 0 ? "" : ",", "word", word);
    }
    out << absl::StrFormat("y=%.4f;u=%.4f,%.4f;k=%s\n", y, u[0], u[1], words);
    sum += y;
    squares += y * y;
  }
  const double n = end - begin;
  if (variance != nullptr) *variance = squares / n - sum / n * sum / n;
}

class ExtensionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/extension";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteKeyValues(dir_ + "/train.kv", 0, 3000, nullptr);
    WriteKeyValues(dir_ + "/eval.kv", 3000, 4000, &variance_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  absl::StatusOr<InProcessResult> Run(int servers, int trainers, const std::string& job = kJob) {
    return TrainInProcess({.job_text = job, .directory = dir_, .servers = servers, .trainers = trainers});
  }

  std::string dir_;
  double variance_ = 0;
};

TEST_F(ExtensionTest, AJobOfExtensionsAloneLearns) {
  const absl::StatusOr<InProcessResult> result = Run(3, 2);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->summary.examples + result->summary.left_out, 8 * 3000);
  ASSERT_TRUE(result->summary.eval.has_value());
  EXPECT_EQ(result->summary.eval->samples, 1000);
  EXPECT_GT(variance_, 1);
  EXPECT_LT(result->summary.eval->Measure("loss"), 0.05 * variance_);

  std::map<std::string, int> servers;
  for (const v1::PlacedBlock& block : result->plan.blocks()) servers[block.name()] = block.server();
  EXPECT_EQ(servers, (std::map<std::string, int>{{"out.w", 0}, {"gated.w", 1}, {"out.b", 2}}));
  ASSERT_EQ(result->plan.tables_size(), 1);
  EXPECT_EQ(result->plan.tables(0).state_width(), 3);

  const absl::StatusOr<InProcessResult> alone = Run(1, 1);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_FALSE(alone->digests.empty());
  EXPECT_EQ(alone->digests, result->digests);
}

TEST_F(ExtensionTest, TheReadersErrorStandsAtItsLine) {
  std::ofstream(dir_ + "/train.kv", std::ios::app) << "y=1;u=0.5;k=word1\n";
  const absl::Status status = Run(1, 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("train.kv"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("expected u= and 2 numbers, got 'u=0.5'"), absl::string_view::npos) << status;
}

TEST_F(ExtensionTest, SettingsOfTheOptimizerReachItsOperator) {
  const absl::StatusOr<InProcessResult> slow = Run(1, 1),
                                        fast = Run(1, 1, absl::StrReplaceAll(kJob, {{"decay: 0.95", "decay: 0.5"}}));
  ASSERT_TRUE(slow.ok() && fast.ok()) << slow.status() << fast.status();
  EXPECT_NE(slow->digests, fast->digests);
}

}  // namespace
}  // namespace weir
