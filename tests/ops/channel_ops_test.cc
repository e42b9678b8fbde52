// prefetch, send, send_barrier, recv, fetch_barrier, merge, split_*: the ops that move variables, over a channel that
// notes what it is told.
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "framework/base/thread_pool.h"
#include "framework/runtime/param_channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/finite.h"
#include "ops/id_deduper.h"
#include "ops/parallel_deduper.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FakeChannel : public ParamChannel {
 public:
  absl::Status BeginStep(int64_t, bool) override { return absl::OkStatus(); }
  // Row of id: [100 * id + column].
  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    ++pulls;
    for (const TableRows& t : tables) {
      asked[t.table] = *t.ids;
      for (size_t i = 0; i < t.ids->size(); ++i) {
        for (int j = 0; j < t.width; ++j)
          t.rows[static_cast<int64_t>(i) * t.width + j] = static_cast<float>(100 * (*t.ids)[i] + j);
      }
    }
    return pull_status;
  }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override {
    std::string line = block.name + "@" + std::to_string(block.server) + " count " + std::to_string(block.count);
    for (const LaneTensor& l : lanes) {
      line += " lane " + std::to_string(l.lane) + ":";
      for (float v : l.value->span<float>()) line += " " + std::to_string(static_cast<int>(v));
    }
    log.push_back(line);
    return absl::OkStatus();
  }
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override {
    std::string line = block.name + "@" + std::to_string(block.server) + " width " + std::to_string(width);
    for (const LaneRows& l : lanes) {
      line += " lane " + std::to_string(l.lane) + ":";
      for (int64_t id : l.value->ids) line += " " + std::to_string(id);
    }
    log.push_back(line);
    return absl::OkStatus();
  }
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override {
    log.push_back("finish " + std::to_string(samples) + " " + v1::Verdict_Name(verdict));
    return absl::OkStatus();
  }
  absl::Status Receive(const BlockRef& block, Tensor* out) override {
    log.push_back("receive " + block.name + "@" + std::to_string(block.server) + " count " +
                  std::to_string(block.count));
    EXPECT_EQ(out->size(), block.count);
    std::fill_n(out->data<float>(), out->size(), 7.0f);
    return absl::OkStatus();
  }
  absl::Status FinishReceives(StepOutcome* outcome) override {
    log.push_back("finish receives");
    *outcome = {.version = 5, .skipped = true, .samples = 64};
    return absl::OkStatus();
  }

  int pulls = 0;
  std::map<std::string, std::vector<int64_t>> asked;
  std::vector<std::string> log;
  absl::Status pull_status;
};

v1::VarDesc Desc(std::string name, std::vector<int64_t> dims, v1::VarKind kind = v1::DENSE) {
  v1::VarDesc desc;
  desc.set_name(std::move(name));
  desc.set_kind(kind);
  for (int64_t d : dims) desc.add_dims(d);
  return desc;
}

// Runs one op on several lanes: a variable is "<name>" for all lanes, or "<name>/<lane>" of one.
class LanesTest : public ::testing::Test {
 protected:
  LanesTest() {
    context_.rows = &channel_;
    context_.channel = &channel_;
    context_.health = &health_;
  }

  absl::Status Run(const v1::OpDesc& op, std::vector<int64_t> batch) {
    const OpDef* def = OpRegistry::Global().Find(op.type());
    CHECK(def != nullptr) << op.type();
    const KernelFactory* factory = KernelRegistry::Global().Find(op.type());
    CHECK(factory != nullptr) << op.type();
    if (kernel_ == nullptr || kernel_op_ != op.SerializeAsString()) {
      const KernelInit init = {op, *def, AttrReader(op, *def), [&](std::string_view name) -> const v1::VarDesc* {
                                 const auto it = descs_.find(std::string(name));
                                 return it == descs_.end() ? nullptr : &it->second;
                               }};
      absl::StatusOr<std::unique_ptr<OpKernel>> made = (*factory)(init);
      if (!made.ok()) return made.status();
      kernel_ = std::move(*made);
      kernel_op_ = op.SerializeAsString();
    }
    KernelContext ctx;
    ctx.step = &context_;
    ctx.lane_batch = batch.data();
    for (size_t lane = 0; lane < batch.size(); ++lane) {
      ctx.inputs.push_back(Slots(op.inputs(), def->inputs, static_cast<int>(lane)));
      ctx.outputs.push_back(Slots(op.outputs(), def->outputs, static_cast<int>(lane)));
    }
    return kernel_->Run(ctx);
  }

  void Describe(v1::VarDesc desc) { descs_[desc.name()] = desc; }
  Variable& Var(const std::string& name, int lane) {
    return per_lane_.contains(name) ? vars_[name + "/" + std::to_string(lane)] : vars_[name];
  }
  void PerLane(const std::string& name) { per_lane_.insert(name); }

  FakeChannel channel_;
  StepHealth health_;
  StepContext context_;

 private:
  std::vector<KernelContext::Slot> Slots(const google::protobuf::RepeatedPtrField<v1::OpSlot>& given,
                                         const std::vector<SlotDef>& defs, int lane) {
    std::vector<KernelContext::Slot> result(defs.size());
    for (size_t d = 0; d < defs.size(); ++d) {
      for (const v1::OpSlot& slot : given) {
        if (slot.name() != defs[d].name) continue;
        for (const std::string& var : slot.vars()) result[d].vars.push_back(&Var(var, lane));
      }
    }
    return result;
  }

  std::map<std::string, Variable> vars_;
  std::map<std::string, v1::VarDesc> descs_;
  std::set<std::string> per_lane_;
  std::unique_ptr<OpKernel> kernel_;
  std::string kernel_op_;
};

IdBatch OneEach(std::vector<int64_t> values) {
  IdBatch ids;
  ids.values = std::move(values);
  for (size_t i = 0; i <= ids.values.size(); ++i) ids.offsets.push_back(static_cast<int64_t>(i));
  return ids;
}

std::vector<int32_t> Index(const Variable& var) {
  const Tensor& t = std::get<Tensor>(var);
  return {t.data<int32_t>(), t.data<int32_t>() + t.size()};
}

class PrefetchTest : public LanesTest {
 protected:
  PrefetchTest() {
    for (const char* name : {"cat", "user", "cat_v", "cat_w", "user_v"}) PerLane(name);
  }
  // cat is looked up in tables v and w, user in v.
  v1::OpDesc op_ = MakeOp("prefetch", {{"Ids", {"cat", "cat", "user"}}},
                          {{"Rows", {"v", "w"}}, {"Index", {"cat_v", "cat_w", "user_v"}}},
                          {AttrStrings("tables", std::vector<std::string>{"V", "W", "V"}),
                           AttrStrings("row_tables", std::vector<std::string>{"V", "W"}), AttrInts("widths", {2, 1})});
};

TEST_F(PrefetchTest, AsksForDistinctIdsOfAllLanesInOrderOfFirstAppearance) {
  Var("cat", 0) = OneEach({5, -3, 5});
  Var("user", 0) = OneEach({9});
  Var("cat", 1) = OneEach({7, 9});
  Var("user", 1) = OneEach({5, 11});
  ASSERT_OK(Run(op_, {3, 2}));
  EXPECT_EQ(channel_.pulls, 1);
  EXPECT_THAT(channel_.asked["V"], ElementsAre(5, -3, 9, 7, 11));
  EXPECT_THAT(channel_.asked["W"], ElementsAre(5, -3, 7, 9));
  EXPECT_THAT(Index(Var("cat_v", 0)), ElementsAre(0, 1, 0));
  EXPECT_THAT(Index(Var("user_v", 0)), ElementsAre(2));
  EXPECT_THAT(Index(Var("cat_v", 1)), ElementsAre(3, 2));
  EXPECT_THAT(Index(Var("user_v", 1)), ElementsAre(0, 4));
  EXPECT_THAT(Index(Var("cat_w", 0)), ElementsAre(0, 1, 0));
  EXPECT_THAT(Index(Var("cat_w", 1)), ElementsAre(2, 3));
  const SelectedRows& v = std::get<SelectedRows>(Var("v", 0));
  EXPECT_EQ(ShapeString(v.values.dims()), "[5, 2]");
  EXPECT_THAT(v.values.span<float>(), ElementsAre(500, 501, -300, -299, 900, 901, 700, 701, 1100, 1101));
  EXPECT_TRUE(v.present && v.merged);
}

TEST_F(PrefetchTest, TablesWithTheSameIdsAgree) {
  op_ = MakeOp("prefetch", {{"Ids", {"cat", "cat"}}}, {{"Rows", {"v", "w"}}, {"Index", {"cat_v", "cat_w"}}},
               {AttrStrings("tables", std::vector<std::string>{"V", "W"}),
                AttrStrings("row_tables", std::vector<std::string>{"V", "W"}), AttrInts("widths", {2, 1})});
  Var("cat", 0) = OneEach({4, 2, 4});
  Var("cat", 1) = IdBatch();
  Var("cat", 2) = OneEach({2, 8});
  ASSERT_OK(Run(op_, {3, 0, 2}));
  EXPECT_THAT(channel_.asked["V"], ElementsAre(4, 2, 8));
  EXPECT_EQ(channel_.asked["W"], channel_.asked["V"]);
  for (const char* index : {"cat_v", "cat_w"}) {
    EXPECT_THAT(Index(Var(index, 0)), ElementsAre(0, 1, 0));
    EXPECT_THAT(Index(Var(index, 1)), IsEmpty());
    EXPECT_THAT(Index(Var(index, 2)), ElementsAre(1, 2));
  }
  EXPECT_THAT(std::get<SelectedRows>(Var("w", 0)).values.span<float>(), ElementsAre(400, 200, 800));
}

TEST_F(PrefetchTest, OfASequenceOnlyTheLastIdsAreAskedFor) {
  op_ = MakeOp("prefetch", {{"Ids", {"cat", "cat"}}}, {{"Rows", {"v", "w"}}, {"Index", {"cat_v", "cat_w"}}},
               {AttrStrings("tables", std::vector<std::string>{"V", "W"}),
                AttrStrings("row_tables", std::vector<std::string>{"V", "W"}), AttrInts("widths", {2, 1}),
                AttrInts("sequences", {2, 0})});
  IdBatch ids;
  ids.values = {1, 2, 3, 4, 2};
  ids.offsets = {0, 3, 3, 4, 5};
  Var("cat", 0) = ids;
  ASSERT_OK(Run(op_, {4}));
  EXPECT_THAT(channel_.asked["V"], ElementsAre(2, 3, 4));
  EXPECT_THAT(Index(Var("cat_v", 0)), ElementsAre(-1, 0, 1, 2, 0));
  EXPECT_THAT(channel_.asked["W"], ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Index(Var("cat_w", 0)), ElementsAre(0, 1, 2, 3, 1));
  ids.offsets = {0, 6, 3, 4, 5};
  Var("cat", 0) = ids;
  EXPECT_THAT(std::string(Run(op_, {4}).message()), HasSubstr("offsets do not rise"));
}

TEST_F(PrefetchTest, StepsOfOtherSizesDoNotMix) {
  for (int64_t n : {100, 3, 1000, 0, 64}) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(i % 57 * 1000003 - 500);
    Var("cat", 0) = OneEach(values);
    Var("user", 0) = OneEach({});
    ASSERT_OK(Run(op_, {n}));
    const std::vector<int64_t>& ids = channel_.asked["W"];
    EXPECT_EQ(ids.size(), static_cast<size_t>(std::min<int64_t>(n, 57)));
    const std::vector<int32_t> index = Index(Var("cat_w", 0));
    ASSERT_EQ(index.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(ids[static_cast<size_t>(index[i])], values[i]);
  }
}

TEST_F(PrefetchTest, ThreadsChangeNothing) {
  ThreadPool pool("test", 2);
  context_.pool = &pool;
  Var("cat", 0) = OneEach({5, -3, 5});
  Var("user", 0) = OneEach({9});
  ASSERT_OK(Run(op_, {3}));
  EXPECT_THAT(channel_.asked["V"], ElementsAre(5, -3, 9));
  EXPECT_THAT(channel_.asked["W"], ElementsAre(5, -3));
}

TEST_F(PrefetchTest, ThreadsGiveManyIdsOfUnevenLanesTheirPlacesToo) {
  op_ = MakeOp("prefetch", {{"Ids", {"cat", "user"}}}, {{"Rows", {"v"}}, {"Index", {"cat_v", "user_v"}}},
               {AttrStrings("tables", std::vector<std::string>{"V", "V"}),
                AttrStrings("row_tables", std::vector<std::string>{"V"}), AttrInts("widths", {2}),
                AttrInts("sequences", {0, 3})});
  const std::vector<int64_t> batches = {20'000, 0, 5'000};
  for (int lane = 0; lane < 3; ++lane) {
    const int64_t n = batches[static_cast<size_t>(lane)];
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 4 * n; ++i) ids.push_back(i * i % 30'011 - 100);
    Var("cat", lane) = OneEach({ids.begin(), ids.begin() + n});
    IdBatch sequences;
    sequences.values = ids;
    for (int64_t i = 0; i <= n; ++i) sequences.offsets.push_back(4 * i);
    Var("user", lane) = sequences;
  }
  const auto indices = [&] {
    std::vector<std::vector<int32_t>> all;
    for (int lane = 0; lane < 3; ++lane) {
      for (const char* name : {"cat_v", "user_v"}) all.push_back(Index(Var(name, lane)));
    }
    return all;
  };
  ASSERT_OK(Run(op_, batches));
  const std::vector<int64_t> asked = channel_.asked["V"];
  const auto expected = indices();
  ThreadPool pool("test", 3);
  context_.pool = &pool;
  ASSERT_OK(Run(op_, batches));
  EXPECT_EQ(channel_.asked["V"], asked);
  EXPECT_EQ(indices(), expected);
}

TEST_F(PrefetchTest, TheChannelsErrorIsPassedOn) {
  channel_.pull_status = absl::UnavailableError("server 1 is gone");
  Var("cat", 0) = OneEach({1});
  Var("user", 0) = OneEach({1});
  EXPECT_EQ(Run(op_, {1}), channel_.pull_status);
}

TEST_F(PrefetchTest, WithoutServersItIsAnError) {
  context_.rows = nullptr;
  context_.channel = nullptr;
  EXPECT_THAT(std::string(Run(op_, {0}).message()), HasSubstr("no channel to servers"));
}

TEST(PrefetchShapeTest, RowsAndIndexAreDescribed) {
  OpTest t("prefetch", {AttrStrings("tables", std::vector<std::string>{"V"}),
                        AttrStrings("row_tables", std::vector<std::string>{"V"}), AttrInts("widths", {4})});
  t.Ids("Ids", OneEach({1})).Outputs("Rows", 1).Outputs("Index", 1);
  ASSERT_OK(t.InferShapes());
  EXPECT_EQ(t.OutputDesc("Rows").kind(), v1::SELECTED_ROWS);
  EXPECT_EQ(t.OutputDesc("Rows").dims(1), 4);
  EXPECT_EQ(t.OutputDesc("Index").dtype(), v1::INT32);
}

TEST(PrefetchShapeTest, EveryTableNeedsRows) {
  OpTest t("prefetch", {AttrStrings("tables", std::vector<std::string>{"U"}),
                        AttrStrings("row_tables", std::vector<std::string>{"V"}), AttrInts("widths", {4})});
  t.Ids("Ids", OneEach({1})).Outputs("Rows", 1).Outputs("Index", 1);
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("table 'U' must have exactly one Rows"));
}

TEST(PrefetchShapeTest, ASequenceIsOfOneSlot) {
  OpTest t("prefetch", {AttrStrings("tables", std::vector<std::string>{"V"}),
                        AttrStrings("row_tables", std::vector<std::string>{"V"}), AttrInts("widths", {4}),
                        AttrInts("sequences", {3})});
  IdBatch ids = OneEach({1, 2});
  ids.slots = 2;
  t.Ids("Ids", ids).Outputs("Rows", 1).Outputs("Index", 1);
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("sequences must be 0, or positive for Ids of one slot; got 3 for Ids [-1, 2]"));
}

TEST(IdDeduperTest, FindsWhatASetFinds) {
  IdDeduper deduper;
  uint64_t random = 1;
  for (int64_t n : {1, 10, 1000, 20000}) {
    for (uint64_t range : {uint64_t{3}, uint64_t{500}, uint64_t{1} << 60}) {
      std::vector<int64_t> ids;
      for (int64_t i = 0; i < n; ++i) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        // Multiples of a large power of two: bad for a hash that looks at low bits alone.
        ids.push_back(static_cast<int64_t>((random >> 20) % range) << (range == 500 ? 50 : 0));
      }
      ids[0] = std::numeric_limits<int64_t>::min();
      ids.push_back(std::numeric_limits<int64_t>::max());
      std::vector<int64_t> unique, expected;
      std::vector<int32_t> index(ids.size());
      deduper.Start(static_cast<int64_t>(ids.size()));
      const int64_t half = n / 2;
      deduper.Add(ids.data(), half, index.data(), &unique);
      deduper.Add(ids.data() + half, static_cast<int64_t>(ids.size()) - half, index.data() + half, &unique);
      std::set<int64_t> seen;
      for (int64_t id : ids) {
        if (seen.insert(id).second) expected.push_back(id);
      }
      ASSERT_EQ(unique, expected);
      for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(unique[static_cast<size_t>(index[i])], ids[i]);
    }
  }
}

// Returns n ids of every kind of batch: equal, ascending, few, many, skewed, and with bad low bits.
std::vector<int64_t> IdsOfKind(int kind, int64_t n) {
  std::vector<int64_t> ids;
  uint64_t random = 7;
  for (int64_t i = 0; i < n; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const int64_t drawn = static_cast<int64_t>(random >> 20);
    switch (kind) {
      case 0:
        ids.push_back(42);
        break;
      case 1:
        ids.push_back(i);
        break;
      case 2:
        ids.push_back(drawn % 3 - 1);
        break;
      case 3:
        ids.push_back(drawn);
        break;
      case 4:
        ids.push_back(drawn % 2 == 0 ? 5 : drawn % 9000);
        break;
      default:
        ids.push_back((drawn % 700) << 50);
        break;
    }
  }
  return ids;
}

TEST(ParallelDeduperTest, FindsWhatOneTableFindsWhateverTheThreads) {
  ParallelDeduper deduper;  // keeps its memory from batch to batch
  for (int threads = 0; threads <= 6; threads += 2) {
    ThreadPool pool("test", threads);
    for (const int64_t n : {0, 1, 8191, 8192, 8193, 60'000}) {
      for (int kind = 0; kind < 6; ++kind) {
        const std::vector<int64_t> ids = IdsOfKind(kind, n);
        std::vector<int64_t> unique = {99}, expected;
        std::vector<int32_t> index(ids.size()), expected_index(ids.size());
        IdDeduper plain;
        plain.Start(n);
        plain.Add(ids.data(), n, expected_index.data(), &expected);
        // Uneven runs, some of them empty.
        std::vector<ParallelDeduper::Run> runs;
        for (int64_t begin = 0, size = 0; begin < n; begin += std::exchange(size, 3 * size % 20'011 + 1)) {
          size = std::min(size, n - begin);
          runs.push_back({ids.data() + begin, size, index.data() + begin});
        }
        deduper.Find(runs, &pool, &unique);
        ASSERT_EQ(unique, expected) << n << " ids of kind " << kind << ", " << threads << " threads";
        ASSERT_EQ(index, expected_index) << n << " ids of kind " << kind << ", " << threads << " threads";
      }
    }
  }
}

TEST(ParallelDeduperTest, FewThreadsAndFewIdsAreLeftToOneTable) {
  ThreadPool alone("test", 0), two("test", 1), several("test", 3);
  EXPECT_FALSE(ParallelDeduper::Pays(1'000'000, nullptr));
  EXPECT_FALSE(ParallelDeduper::Pays(1'000'000, &alone));
  EXPECT_FALSE(ParallelDeduper::Pays(1'000'000, &two));
  EXPECT_TRUE(ParallelDeduper::Pays(1'000'000, &several));
  EXPECT_FALSE(ParallelDeduper::Pays(1'000, &several));
}

class SendTest : public LanesTest {
 protected:
  SendTest() {
    for (const char* name : {"a", "b", "rows", "loss"}) PerLane(name);
    context_.first_lane = 4;
    context_.job_lanes = 8;
  }
  v1::OpDesc dense_ = MakeOp("send", {{"X", {"a", "b"}}}, {},
                             {AttrStrings("blocks", std::vector<std::string>{"A", "B"}), AttrInts("servers", {1, 0})});
  v1::OpDesc rows_ =
      MakeOp("send", {{"X", {"rows"}}}, {},
             {AttrStrings("blocks", std::vector<std::string>{"T"}), AttrInts("servers", {-1}), AttrI("width", 2)});
};

TEST_F(SendTest, LanesOfTheJobAreNamed) {
  for (int lane = 0; lane < 2; ++lane) {
    Var("a", lane) = Tensor::Of<float>({2}, {1.0f + lane, 2});
    Var("b", lane) = Tensor::Of<float>({1}, {9});
  }
  ASSERT_OK(Run(dense_, {3, 3}));
  EXPECT_THAT(channel_.log, ElementsAre("A@1 count 2 lane 4: 1 2 lane 5: 2 2", "B@0 count 1 lane 4: 9 lane 5: 9"));
  EXPECT_EQ(health_.non_finite(), "");
}

TEST_F(SendTest, EmptyLanesAndAbsentGradientsAreNotSent) {
  Var("a", 0) = Tensor::Of<float>({1}, {1});  // no examples
  Var("a", 1) = Tensor();                     // absent
  Var("a", 2) = Tensor::Of<float>({1}, {3});
  for (int lane = 0; lane < 3; ++lane) Var("b", lane) = Tensor();
  ASSERT_OK(Run(dense_, {0, 2, 2}));
  EXPECT_THAT(channel_.log, ElementsAre("A@1 count 1 lane 6: 3"));
}

TEST_F(SendTest, RowsGoWithTheirWidth) {
  SelectedRows rows;
  rows.ids = {7, -2};
  rows.values = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  rows.merged = rows.present = true;
  Var("rows", 0) = rows;
  Var("rows", 1) = SelectedRows();
  ASSERT_OK(Run(rows_, {1, 1}));
  EXPECT_THAT(channel_.log, ElementsAre("T@-1 width 2 lane 4: 7 -2"));
}

TEST_F(SendTest, NonFiniteGradientsAreReportedByName) {
  Var("a", 0) = Tensor::Of<float>({2}, {1, 2});
  Var("b", 0) = Tensor::Of<float>({2}, {1, std::numeric_limits<float>::infinity()});
  ASSERT_OK(Run(dense_, {1}));
  EXPECT_EQ(health_.non_finite(), "b");
  EXPECT_EQ(channel_.log.size(), 2u);
}

TEST_F(SendTest, RowsThatServersJudgeAreNotReported) {
  SelectedRows rows;
  rows.ids = {7};
  rows.values = Tensor::Of<float>({1, 2}, {1, std::nanf("")});
  rows.merged = rows.present = true;
  Var("rows", 0) = rows;
  ASSERT_OK(Run(rows_, {1}));
  EXPECT_EQ(health_.non_finite(), "rows");
  health_.Reset();
  v1::OpDesc judged = rows_;
  *judged.add_attrs() = AttrB("bad_rows", true);
  ASSERT_OK(Run(judged, {1}));
  EXPECT_EQ(health_.non_finite(), "");
  EXPECT_EQ(channel_.log.size(), 2u);
}

TEST_F(SendTest, LanesOfDifferentSizesAreRefused) {
  Var("a", 0) = Tensor::Of<float>({2}, {1, 2});
  Var("a", 1) = Tensor::Of<float>({1}, {1});
  Var("b", 0) = Var("b", 1) = Tensor();
  EXPECT_THAT(std::string(Run(dense_, {1, 1}).message()), HasSubstr("a has 2 elements in one lane and 1 in another"));
}

TEST_F(SendTest, TheBarrierCountsSamplesAndApplies) {
  Var("loss", 0) = Tensor::Of<float>({2, 1}, {1, 2});
  Var("loss", 1) = Tensor::Of<float>({1, 1}, {std::nanf("")});  // of a lane without examples
  ASSERT_OK(Run(MakeOp("send_barrier", {{"X", {"loss"}}}, {}), {2, 0}));
  EXPECT_THAT(channel_.log, ElementsAre("finish 2 APPLY"));
}

TEST_F(SendTest, ALossThatIsNotFiniteStops) {
  context_.step = 12;
  Var("loss", 0) = Tensor::Of<float>({2, 1}, {1, std::nanf("")});
  const absl::Status status = Run(MakeOp("send_barrier", {{"X", {"loss"}}}, {}), {2});
  EXPECT_THAT(std::string(status.message()), HasSubstr("'loss' is not finite at step 12"));
  EXPECT_THAT(channel_.log, IsEmpty());
}

TEST_F(SendTest, WithSkipTheVerdictIsSkip) {
  const v1::OpDesc barrier = MakeOp("send_barrier", {{"X", {"loss"}}}, {}, {AttrS("nan_policy", "skip")});
  Var("loss", 0) = Tensor::Of<float>({1, 1}, {std::nanf("")});
  ASSERT_OK(Run(barrier, {1}));
  Var("loss", 0) = Tensor::Of<float>({1, 1}, {1});
  health_.Reset();
  ASSERT_OK(Run(barrier, {1}));
  health_.ReportNonFinite("w@GRAD");
  ASSERT_OK(Run(barrier, {1}));
  EXPECT_THAT(channel_.log, ElementsAre("finish 1 SKIP", "finish 1 APPLY", "finish 1 SKIP"));
}

TEST_F(SendTest, AGradientThatIsNotFiniteStopsByItsName) {
  Var("loss", 0) = Tensor::Of<float>({1, 1}, {1});
  health_.ReportNonFinite("w@GRAD");
  EXPECT_THAT(std::string(Run(MakeOp("send_barrier", {{"X", {"loss"}}}, {}), {1}).message()),
              HasSubstr("'w@GRAD' is not finite"));
}

TEST_F(LanesTest, RecvSizesItsOutputs) {
  Describe(Desc("w.block0", {2, 3}));
  Describe(Desc("b", {4}));
  ASSERT_OK(Run(MakeOp("recv", {}, {{"Out", {"w.block0", "b"}}},
                       {AttrStrings("blocks", std::vector<std::string>{"w.block0", "b"}), AttrInts("servers", {1, 0})}),
                {0}));
  EXPECT_THAT(channel_.log, ElementsAre("receive w.block0@1 count 6", "receive b@0 count 4"));
  EXPECT_EQ(ShapeString(std::get<Tensor>(Var("w.block0", 0)).dims()), "[2, 3]");
}

TEST_F(LanesTest, RecvNeedsKnownDims) {
  Describe(Desc("w", {-1, 3}));
  EXPECT_THAT(std::string(Run(MakeOp("recv", {}, {{"Out", {"w"}}},
                                     {AttrStrings("blocks", std::vector<std::string>{"w"}), AttrInts("servers", {1})}),
                              {0})
                              .message()),
              HasSubstr("'w' must have known dims to be received, got [-1, 3]"));
}

TEST_F(LanesTest, FetchBarrierTellsTheOutcome) {
  StepOutcome outcome;
  context_.outcome = &outcome;
  ASSERT_OK(Run(MakeOp("fetch_barrier", {}, {}), {0}));
  EXPECT_EQ(outcome.version, 5);
  EXPECT_TRUE(outcome.skipped);
  EXPECT_EQ(outcome.samples, 64);
  context_.outcome = nullptr;
  ASSERT_OK(Run(MakeOp("fetch_barrier", {}, {}), {0}));
}

TEST(SendShapeTest, BlocksServersAndWidthMustFit) {
  OpTest t("send", {AttrStrings("blocks", std::vector<std::string>{"A"}), AttrInts("servers", {0, 1})});
  t.Fixed("X", {2}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("1 variables need as many blocks and servers, got 1 and 2"));
  OpTest u("send", {AttrStrings("blocks", std::vector<std::string>{"A"}), AttrInts("servers", {0}), AttrI("width", 3)});
  u.Fixed("X", {2}, {1, 2});
  EXPECT_THAT(std::string(u.InferShapes().message()), HasSubstr("is dense: width must be 0"));
}

TEST(SendBarrierShapeTest, ThePolicyMustBeKnown) {
  OpTest t("send_barrier", {AttrS("nan_policy", "ignore")});
  t.Batched("X", {1, 1}, {1});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("stop or skip, got 'ignore'"));
}

TEST(SplitByrefTest, SectionsAreViewsInOrder) {
  OpTest t("split_byref", {AttrInts("sections", {2, 4})});
  t.Fixed("X", {3, 2}, {1, 2, 3, 4, 5, 6}).Outputs("Out", 2);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 2}, {1, 2}, 0, 0);
  t.ExpectOutput("Out", {2, 2}, {3, 4, 5, 6}, 0, 1);
}

TEST(SplitByrefTest, ASectionOfPartialRowsIsFlat) {
  OpTest t("split_byref", {AttrInts("sections", {3, 3})});
  t.Fixed("X", {3, 2}, {1, 2, 3, 4, 5, 6}).Outputs("Out", 2);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {3}, {4, 5, 6}, 0, 1);
}

TEST(SplitByrefTest, SectionsMustCoverX) {
  OpTest t("split_byref", {AttrInts("sections", {2, 3})});
  t.Fixed("X", {3, 2}, {1, 2, 3, 4, 5, 6}).Outputs("Out", 2);
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("2 sections of 5 elements in all for X [3, 2]"));
}

TEST_F(LanesTest, SplitByrefCopiesNothingAndPassesAbsenceOn) {
  const v1::OpDesc op = MakeOp("split_byref", {{"X", {"x"}}}, {{"Out", {"p", "q"}}}, {AttrInts("sections", {1, 2})});
  Var("x", 0) = Tensor::Of<float>({3}, {1, 2, 3});
  ASSERT_OK(Run(op, {1}));
  EXPECT_EQ(std::get<Tensor>(Var("q", 0)).raw(), std::get<Tensor>(Var("x", 0)).data<float>() + 1);
  Var("x", 0) = Tensor();
  ASSERT_OK(Run(op, {1}));
  EXPECT_FALSE(std::get<Tensor>(Var("p", 0)).initialized());
  EXPECT_FALSE(std::get<Tensor>(Var("q", 0)).initialized());
}

TEST(SplitSelectedRowsTest, RowsGoToTheirSectionAndCountFromIt) {
  SelectedRows rows;
  rows.height = 6;
  rows.ids = {5, 0, 2, 1};
  rows.values = Tensor::Of<float>({4, 2}, {50, 51, 0, 1, 20, 21, 10, 11});
  rows.merged = rows.present = true;
  OpTest t("split_selected_rows", {AttrInts("height_sections", {2, 1, 3})});
  t.Rows("X", rows, 2).Outputs("Out", 3);
  ASSERT_OK(t.Run());
  const auto out = [&](int i) { return std::get<SelectedRows>(t.OutputVar("Out", i)); };
  EXPECT_THAT(out(0).ids, ElementsAre(0, 1));
  EXPECT_THAT(out(0).values.span<float>(), ElementsAre(0, 1, 10, 11));
  EXPECT_THAT(out(1).ids, ElementsAre(0));
  EXPECT_THAT(out(1).values.span<float>(), ElementsAre(20, 21));
  EXPECT_THAT(out(2).ids, ElementsAre(2));
  EXPECT_EQ(out(2).height, 3);
  EXPECT_TRUE(out(2).merged && out(2).present);
}

TEST(SplitSelectedRowsTest, ARowBeyondTheSectionsIsRefused) {
  SelectedRows rows;
  rows.height = 2;
  rows.ids = {2};
  rows.values = Tensor::Of<float>({1, 1}, {1});
  rows.merged = rows.present = true;
  OpTest t("split_selected_rows", {AttrInts("height_sections", {1, 1})});
  t.Rows("X", rows, 1).Outputs("Out", 2);
  EXPECT_THAT(std::string(t.Run().message()), HasSubstr("row 2; sections hold rows 0 to 1"));
}

class AllReduceTest : public LanesTest {
 protected:
  AllReduceTest() { PerLane("a"); }
};

TEST_F(AllReduceTest, AMeanIsDividedByTheExamplesOfItsLane) {
  context_.loss_scale = 2;
  context_.runs_per_step = 3;
  for (int lane = 0; lane < 2; ++lane) Var("a", lane) = Tensor::Of<float>({2}, {48, -24});
  const auto op = [](bool mean) {
    return MakeOp("all_reduce", {{"X", {"a"}}}, {}, {AttrS("block", "A"), AttrB("mean", mean)});
  };
  ASSERT_OK(Run(op(true), {4, 2}));
  ASSERT_OK(Run(op(false), {4, 2}));
  EXPECT_THAT(channel_.log,
              ElementsAre("A@-1 count 2 lane 0: 2 -1 lane 1: 4 -2", "A@-1 count 2 lane 0: 24 -12 lane 1: 24 -12"));
}

TEST_F(AllReduceTest, ThereIsNoMeanOfMeasurementsAndRows) {
  OpTest measured("all_reduce", {AttrS("block", "A"), AttrB("mean", true), AttrB("measured", true)});
  measured.Fixed("X", {2}, {1, 2});
  EXPECT_THAT(std::string(measured.InferShapes().message()), HasSubstr("mean is of dense gradients"));
}

TEST(MergeTest, DividesBySamples) {
  OpTest t("merge");
  t.step().samples = 3;
  t.Fixed("X", {2}, {1, -6});
  ASSERT_OK(t.Run());
  EXPECT_THAT(t.Values("Out"), ElementsAre(1.0f / 3.0f, -2));
}

TEST(MergeTest, DividesRows) {
  SelectedRows rows;
  rows.ids = {4};
  rows.values = Tensor::Of<float>({1, 2}, {1, 8});
  rows.merged = rows.present = true;
  OpTest t("merge");
  t.step().samples = 4;
  t.Rows("X", rows, 2).SameVariable("Out", "X");
  ASSERT_OK(t.Run());
  EXPECT_THAT(std::get<SelectedRows>(t.OutputVar("Out")).values.span<float>(), ElementsAre(0.25f, 2));
  EXPECT_THAT(std::get<SelectedRows>(t.OutputVar("Out")).ids, ElementsAre(4));
}

TEST(MergeTest, AStepWithoutSamplesIsRefused) {
  OpTest t("merge");
  t.Fixed("X", {1}, {1});
  EXPECT_THAT(std::string(t.Run().message()), HasSubstr("with 0 samples"));
}

TEST(ListenAndServTest, MoreTrainersThanLanesAreRefused) {
  OpTest t("listen_and_serv", {AttrI("server_id", 0), AttrI("trainers", 9), AttrI("lanes", 8)});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("9 trainers need as many lanes, got 8"));
  OpTest u("listen_and_serv", {AttrI("server_id", 0), AttrI("trainers", 2), AttrI("lanes", 6)});
  EXPECT_THAT(std::string(u.InferShapes().message()), HasSubstr("power of two"));
}

TEST(AllFiniteTest, FindsOneBadNumberAnywhere) {
  for (int64_t n : {1, 7, 4096, 10000}) {
    std::vector<float> x(static_cast<size_t>(n), std::numeric_limits<float>::max());
    EXPECT_TRUE(AllFinite(x.data(), n));
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      for (float bad : {std::nanf(""), -std::nanf(""), std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity()}) {
        x[static_cast<size_t>(at)] = bad;
        EXPECT_FALSE(AllFinite(x.data(), n)) << n << " " << at;
      }
      x[static_cast<size_t>(at)] = -0.0f;
    }
  }
  EXPECT_TRUE(AllFinite(nullptr, 0));
}

}  // namespace
}  // namespace weir
