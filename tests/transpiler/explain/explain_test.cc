// --print=explain: simple figures are recomputed by hand, the others are checked against their rules.
// tests/e2e/explain_test.cc compares them with the counters of a run.

#include "transpiler/explain/explain.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/explain/explain_plan.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Explanation ExplanationOf(const Job& job) {
  const auto explainer = Explainer::Create(job);
  EXPECT_TRUE(explainer.ok()) << explainer.status();
  if (!explainer.ok()) return v1::Explanation();
  const auto explanation = (*explainer)->Finish();
  EXPECT_TRUE(explanation.ok()) << explanation.status();
  return explanation.ok() ? *explanation : v1::Explanation();
}

// Returns the names of elements that are opened and not closed, "" if the markup is balanced.
std::string Unbalanced(const std::string& html) {
  const std::set<std::string> alone = {"meta", "!DOCTYPE"};
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return "a tag without end";
    const bool closes = html[at + 1] == '/';
    const size_t begin = at + 1 + (closes ? 1 : 0);
    const std::string name = html.substr(begin, html.find_first_of(" >/\n", begin) - begin);
    if (alone.contains(name) || html[end - 1] == '/') continue;
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return "</" + name + "> closes " + (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back();
}

// No tables: one matrix of 100 x 200 in two blocks, biases, Adam.
constexpr char kDense[] = R"(name: "dense"
data {
  train { files: "train.tsv" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 100 } }
  batch_size: 64
}
model {
  layer { name: "deep" fc { input: "x" size: 200 activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
optimizer { adam {} }
distribute { servers: 2 trainers: 2 }
train { lanes: 4 }
)";

TEST(ExplainTest, ADenseJobByHand) {
  const v1::Explanation e = ExplanationOf(JobOf(kDense));
  ASSERT_EQ(e.server_size(), 2);
  EXPECT_FALSE(e.at_most());
  // Blocks are placed in the order of names: deep.b (200) on 0, deep.w.block0 (50 x 200) on 1, deep.w.block1 on 0,
  // out.b (1) on 1, out.w (200) on 0.
  EXPECT_EQ(e.server(0).parameters(), 200 + 10000 + 200);
  EXPECT_EQ(e.server(1).parameters(), 10000 + 1);
  // Adam keeps two more floats for each and a count of 4 bytes for each block; each server has a learning rate.
  EXPECT_EQ(e.server(0).bytes_at_rest(), 3 * 4 * 10400 + 3 * 4 + 4);
  EXPECT_EQ(e.server(1).bytes_at_rest(), 3 * 4 * 10001 + 2 * 4 + 4);
  const double mean = (e.server(0).bytes_at_rest() + e.server(1).bytes_at_rest()) / 2.0;
  EXPECT_THAT(e.balance().bytes(), DoubleNear(e.server(0).bytes_at_rest() / mean, 1e-9));

  // Two trainers of two lanes, one node of the lane tree per trainer: a gradient is sent once, values are received
  // once.
  ASSERT_EQ(e.trainer_size(), 1);
  const v1::ExplainedTrainer& trainer = e.trainer(0);
  EXPECT_EQ(trainer.count(), 2);
  EXPECT_EQ(trainer.lanes(), 2);
  EXPECT_EQ(trainer.lane_batch(), 16);
  EXPECT_EQ(trainer.step().pull_rows().messages(), 0);
  EXPECT_EQ(trainer.step().push().messages(), 2);
  EXPECT_EQ(trainer.step().pull_blocks().messages(), 2);
  const double payload = 4 * 20401;
  EXPECT_GT(trainer.step().push().bytes_out(), payload);
  EXPECT_LT(trainer.step().push().bytes_out(), payload + 5 * 64 + 2 * 400);
  EXPECT_GT(trainer.step().pull_blocks().bytes_in(), payload);
  EXPECT_LT(trainer.step().pull_blocks().bytes_in(), payload + 5 * 64 + 2 * 200);
  EXPECT_EQ(trainer.startup().bytes_in(), trainer.step().pull_blocks().bytes_in());
  // Servers receive what both trainers send.
  double to_servers = 0;
  for (const v1::ExplainedServer& server : e.server()) to_servers += server.step().total().bytes_out();
  EXPECT_THAT(to_servers, DoubleNear(2 * trainer.step().total().bytes_out(), 1));

  // Three products of [16, 100] by [100, 200] in each of two lanes (one forward, two backward minus the one for data)
  // and the small ones; the products dominate.
  EXPECT_GT(trainer.flops(), 2 * 2 * 2.0 * 16 * 100 * 200);
  EXPECT_LT(trainer.flops(), 2 * 3 * 2.0 * 16 * 100 * 200 * 1.2);
  // Parameters that are cut count twice: the whole and the received blocks.
  EXPECT_EQ(trainer.memory().parameters(), 4 * (2 * 20000 + 200 + 200 + 1));
  EXPECT_LT(trainer.memory().lanes_shared(), trainer.memory().lanes_apart());
  EXPECT_EQ(trainer.memory().lanes(), trainer.memory().lanes_apart());
}

v1::Explanation OnHosts(const Job& job, const Machines& machines) {
  const auto explainer = Explainer::Create(job, {.machines = machines});
  EXPECT_TRUE(explainer.ok()) << explainer.status();
  if (!explainer.ok()) return v1::Explanation();
  const auto explanation = (*explainer)->Finish();
  EXPECT_TRUE(explanation.ok()) << explanation.status();
  return explanation.ok() ? *explanation : v1::Explanation();
}

TEST(ExplainTest, AHostThatMergesExchangesGradientsAndValuesOnce) {
  const v1::Explanation e = OnHosts(JobOf(kDense), {.trainers_per_host = 2});
  ASSERT_TRUE(e.has_merged_hosts());
  const v1::MergedHosts& merged = e.merged_hosts();
  EXPECT_EQ(merged.hosts(), 1);
  ASSERT_EQ(merged.host_size(), 1);
  EXPECT_EQ(merged.host(0).trainers(), 2);
  // Lanes 0 to 3 are one node of the tree: one sum of 20401 floats to the servers, their values back.
  EXPECT_EQ(merged.host(0).nodes(), 1);
  const double payload = 4 * 20401;
  EXPECT_GT(merged.bytes(), 2 * payload);
  EXPECT_LT(merged.bytes(), 2 * (payload + 5 * 64) + 4 * 400);
  EXPECT_EQ(merged.host(0).step().push().messages(), 2);
  EXPECT_DOUBLE_EQ(merged.bytes_apart(),
                   2 * (e.trainer(0).step().total().bytes_out() + e.trainer(0).step().total().bytes_in()));
  double at_servers = 0;
  for (const v1::ExplainedServer& server : e.server()) {
    EXPECT_EQ(server.step().push().messages(), 1);
    at_servers += server.step().total().bytes_out() + server.step().total().bytes_in();
  }
  EXPECT_DOUBLE_EQ(at_servers, merged.bytes());
  const std::string text = ExplanationText(e);
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\nmerge_hosts: 1 host of 2 trainers: 50 % of the bytes without it, ",
                                           HumanBytes(merged.bytes()), " instead of ", HumanBytes(merged.bytes_apart()),
                                           " a step between hosts and servers\n",
                                           "  a step of host 0 with trainers 0 to 1, to and from servers:\n")));
  EXPECT_THAT(text, HasSubstr("without merge_hosts: "));
  EXPECT_THAT(ExplanationHtml(e), HasSubstr("<p>merge_hosts: 1 host of 2 trainers: 50 % of the bytes without it, "));
  EXPECT_EQ(Unbalanced(ExplanationHtml(e)), "");
  const auto json = ExplanationJson(e);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_THAT(*json, HasSubstr("\"bytes_apart\""));
}

TEST(ExplainTest, HostsWithOtherLanesAreGroupsOfTheirOwn) {
  // Lanes 0 and 1, 2, 3 of trainers 0, 1, 2: the first host pushes nodes of two lanes and of one.
  const v1::MergedHosts merged =
      OnHosts(JobOf(kDense, {"distribute.trainers=3"}), {.trainers_per_host = 2}).merged_hosts();
  EXPECT_EQ(merged.hosts(), 2);
  ASSERT_EQ(merged.host_size(), 2);
  EXPECT_EQ(merged.host(0).nodes(), 2);
  EXPECT_EQ(MergedHostName(merged.host(0)), "host 0 with trainers 0 to 1");
  EXPECT_EQ(merged.host(1).nodes(), 1);
  EXPECT_EQ(MergedHostName(merged.host(1)), "host 1 with trainer 2");
  EXPECT_THAT(MergedText(merged), HasSubstr("merge_hosts: 2 hosts of at most 2 trainers: "));
}

TEST(ExplainTest, HostsAddDenseGradientsBeforeTheseLeave) {
  const auto added = [](const std::vector<std::string>& settings, const Machines& machines) {
    std::vector<std::string> all = {"distribute.servers=0", "distribute.dense=ALL_REDUCE", "train.lanes=8",
                                    "distribute.trainers=4"};
    all.insert(all.end(), settings.begin(), settings.end());
    return OnHosts(JobOf(kDense, all), machines).all_reduced();
  };
  // All but the last layer, a fiftieth, travels in slices. Each trainer has two lanes, one node; a host of two trainers
  // has one node, too.
  const std::vector<std::string> large = {"model.layer[0].fc.size=20000"};
  const v1::AllReduced two = added(large, {.trainers_per_host = 2});
  EXPECT_EQ(two.added_on_hosts().hosts(), 2);
  // Of each slice the other host sends two addends and gets two results, or one of each.
  EXPECT_NEAR(two.added_on_hosts().bytes_apart() / static_cast<double>(two.dense_bytes()), 4, .2);
  EXPECT_NEAR(two.added_on_hosts().bytes() / static_cast<double>(two.dense_bytes()), 2, .2);
  // Three trainers of a host have two nodes, and the other one has one.
  const v1::AllReduced three = added(large, {.trainers_per_host = 3});
  EXPECT_NEAR(three.added_on_hosts().bytes_apart() / static_cast<double>(three.dense_bytes()), .75 * 2 + .25 * 6, .1);
  EXPECT_NEAR(three.added_on_hosts().bytes() / static_cast<double>(three.dense_bytes()), .75 * 2 + .25 * 3, .1);
  EXPECT_THAT(AddedText(three.added_on_hosts(), 4),
              HasSubstr("merge_hosts: 2 hosts of at most 3 trainers: 76 % of the bytes without it, "));
  EXPECT_FALSE(added(large, {}).has_added_on_hosts());
  EXPECT_FALSE(added(large, {.one_machine = true}).has_added_on_hosts());
  for (const std::string without :
       {"distribute.merge_hosts=false", "distribute.update=SHARDED", "distribute.all_reduce.compression=FLOAT16"}) {
    const std::vector<std::string> settings = {large[0], without, "distribute.reproducible=false"};
    EXPECT_FALSE(added(settings, {.trainers_per_host = 2}).has_added_on_hosts()) << without;
  }
}

TEST(ExplainTest, HostsMergeWhereTheJobSaysSo) {
  const auto merges = [](const std::vector<std::string>& settings, const Machines& machines) {
    return OnHosts(JobOf(kDense, settings), machines).has_merged_hosts();
  };
  EXPECT_FALSE(merges({}, {}));
  EXPECT_FALSE(merges({"distribute.merge_hosts=false"}, {.trainers_per_host = 2}));
  EXPECT_FALSE(merges({"distribute.sync=false"}, {.trainers_per_host = 2}));
  // The relay of a host does not speak to servers in trainers.
  EXPECT_FALSE(merges({"distribute.servers=0", "distribute.dense=ALL_REDUCE"}, {.trainers_per_host = 2}));
  // On one machine servers are in reach of shared memory.
  EXPECT_FALSE(merges({}, {.one_machine = true}));
  EXPECT_TRUE(merges({"distribute.merge_hosts=true"}, {.one_machine = true}));
  const v1::Explanation apart = OnHosts(JobOf(kDense, {"distribute.merge_hosts=false"}), {.trainers_per_host = 2});
  const auto found = std::find_if(
      apart.alternative().begin(), apart.alternative().end(),
      [](const v1::Alternative& alternative) { return alternative.change() == "distribute.merge_hosts=true"; });
  ASSERT_NE(found, apart.alternative().end());
  EXPECT_THAT(found->text(), HasSubstr(" between hosts and servers instead of "));
}

TEST(ExplainTest, TheClusterIsTheJobs) {
  const v1::Explanation e = ExplanationOf(JobOf(kDense, {"distribute.servers=3"}));
  EXPECT_EQ(e.servers(), 3);
  EXPECT_EQ(e.trainers(), 2);
  EXPECT_EQ(e.lanes(), 4);
}

TEST(ExplainTest, WhatATrainerSendsToItsOwnServerIsNoTraffic) {
  const v1::Explanation e = ExplanationOf(JobOf(kDense, {"distribute.servers=0"}));
  EXPECT_EQ(e.servers(), 2);
  EXPECT_THAT(e.note(), Contains(HasSubstr("server i runs inside trainer i")));
  EXPECT_EQ(e.trainer(0).step().push().messages(), 1);
  EXPECT_EQ(e.trainer(0).step().pull_blocks().messages(), 1);
  for (int s = 0; s < 2; ++s) {
    // The gradients of one trainer, and little more.
    const double payload = 4.0 * static_cast<double>(e.server(s).parameters());
    EXPECT_EQ(e.server(s).step().push().messages(), 1);
    EXPECT_GT(e.server(s).step().push().bytes_out(), payload);
    EXPECT_LT(e.server(s).step().push().bytes_out(), payload + 600);
  }
}

TEST(ExplainTest, WhatTrainersAddAmongThemselvesByHand) {
  const v1::Explanation e = ExplanationOf(JobOf(kDense, {"distribute.dense=ALL_REDUCE"}));
  // deep.b (200) and deep.w (100 x 200), out.b (1) and out.w (200): an all-reduce for each layer, since buckets have 64
  // KiB.
  const int64_t elements = 20000 + 200 + 200 + 1;
  const v1::AllReduced& all = e.all_reduced();
  EXPECT_EQ(all.dense_bytes(), 4 * elements);
  ASSERT_EQ(all.bucket_size(), 2);
  EXPECT_EQ(all.bucket(1).parameters(1), "deep.w");
  EXPECT_EQ(all.bucket(1).bytes(), 4 * 20200);
  // Adam keeps two more floats for each and a count of 4 bytes for each parameter; there is one learning rate.
  EXPECT_EQ(all.replica().bytes_at_rest(), 3 * 4 * elements + 4 * 4 + 4);
  EXPECT_EQ(all.replica().index(), -1);
  EXPECT_EQ(e.server(0).bytes_at_rest() + e.server(1).bytes_at_rest(), 0);
  // Servers get the last part of a step, and say how it went.
  EXPECT_EQ(e.trainer(0).step().push().messages(), 2);
  EXPECT_LT(e.trainer(0).step().total().bytes_out(), 1000);

  ASSERT_EQ(e.trainer_size(), 1);
  const v1::TrainerExchange& exchange = e.trainer(0).exchange();
  EXPECT_EQ(exchange.nodes(), 1);
  EXPECT_EQ(exchange.direct_bytes(), 4 * elements);  // 1 (2 - 1) V
  EXPECT_EQ(exchange.ring_bytes(), 4 * elements);
  EXPECT_EQ(exchange.headers().bytes_out(), 2 * 1024);
  EXPECT_EQ(exchange.rows().messages(), 0);
  // All of its gradients go behind the headers.
  EXPECT_EQ(exchange.dense().messages(), 0);
  EXPECT_EQ(exchange.dense().bytes_out(), 4 * elements);
  EXPECT_EQ(exchange.dense().bytes_in(), 4 * elements);
  EXPECT_EQ(exchange.total().bytes_out(), 4 * elements + 2 * 1024);
  // 10 Gbit/s and 50 us; two operations of one phase, of two in a ring.
  EXPECT_THAT(exchange.direct_seconds(), DoubleNear(2 * 50e-6 + 4 * elements * 8 / 10e9, 1e-9));
  EXPECT_THAT(exchange.ring_seconds(), DoubleNear(4 * 50e-6 + 4 * elements * 8 / 10e9, 1e-9));
}

TEST(ExplainTest, TheTrainerThatSendsMostIsNamed) {
  const Job job = JobOf(kDense, {"distribute.dense=ALL_REDUCE", "distribute.trainers=3", "train.lanes=8"});
  const auto explainer = Explainer::Create(job, {.link = {.gbit = 1, .us = 0}});
  ASSERT_TRUE(explainer.ok()) << explainer.status();
  const auto e = (*explainer)->Finish();
  ASSERT_TRUE(e.ok()) << e.status();
  // Lanes 3, 3, 2 are 2, 2 and 1 nodes.
  ASSERT_EQ(e->trainer_size(), 2);
  EXPECT_EQ(e->all_reduced().largest_trainer(), 0);
  const double v = 4 * 20401;
  EXPECT_THAT(e->trainer(0).exchange().direct_bytes(), DoubleNear(2 * 2 * v, 1e-6));
  EXPECT_THAT(e->trainer(1).exchange().direct_bytes(), DoubleNear(1 * 2 * v, 1e-6));
  EXPECT_THAT(e->trainer(0).exchange().ring_bytes(), DoubleNear(2 * v * 2 / 3, 1e-6));
  EXPECT_THAT(e->trainer(0).exchange().direct_seconds(), DoubleNear(4 * v * 8 / 1e9, 1e-5));
  EXPECT_THAT(e->trainer(0).exchange().ring_seconds(), DoubleNear(4.0 / 3 * v * 8 / 1e9, 1e-9));
  EXPECT_THAT(ExplanationText(*e), HasSubstr("trainer 0 sends most to other trainers"));
  EXPECT_THAT(ExplanationText(*e), HasSubstr("(k = 2)"));
  const std::string page = ExplanationHtml(*e);
  EXPECT_EQ(Unbalanced(page), "");
  EXPECT_THAT(page, HasSubstr("a ring would send"));
  const auto json = ExplanationJson(*e);
  ASSERT_TRUE(json.ok()) << json.status();
  v1::Explanation back;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(*json, &back).ok());
  EXPECT_EQ(back.all_reduced().bucket_size(), 2);
  // The plan says the same.
  const absl::StatusOr<Transpiled> transpiled = Transpile(job);
  ASSERT_TRUE(transpiled.ok()) << transpiled.status();
  EXPECT_THAT(ExplainPlan(job, transpiled->trainer().main),
              HasSubstr(absl::StrCat("trainers 0 to 1 send ", std::llround(4 * v), " bytes each (k = 2)")));
}

TEST(ExplainTest, OneTrainerSendsNobodyAnything) {
  const v1::Explanation e = ExplanationOf(JobOf(kDense, {"distribute.dense=ALL_REDUCE", "distribute.trainers=1"}));
  EXPECT_EQ(e.trainer(0).exchange().total().bytes_out(), 0);
  EXPECT_EQ(e.trainer(0).exchange().total().bytes_in(), 0);
  EXPECT_EQ(e.trainer(0).exchange().direct_seconds(), 0);
  EXPECT_EQ(e.trainer(0).exchange().check().bytes_out(), 0);
}

TEST(ExplainTest, AnAverageMovesStateToo) {
  const v1::Explanation e =
      ExplanationOf(JobOf(kDense, {"distribute.dense=ALL_REDUCE", "distribute.local_sgd={every_steps: 4}",
                                   "distribute.reproducible=false", "distribute.trainers=4"}));
  EXPECT_EQ(e.all_reduced().average_every_steps(), 4);
  const int64_t bytes = 3 * 4 * 20401 + 4 * 4;
  EXPECT_EQ(e.all_reduced().dense_bytes(), bytes);
  // Every trainer brings one addend: 2 (p - 1) / p V, every fourth step.
  EXPECT_THAT(e.trainer(0).exchange().direct_bytes(), DoubleNear(2.0 * bytes * 3 / 4 / 4, 1e-6));
  EXPECT_EQ(e.trainer(0).exchange().headers().bytes_out(), 3 * 1024 / 4.0);
  EXPECT_THAT(ExplanationText(e), HasSubstr("every 4 steps the average of all values and state"));
}

TEST(ExplainTest, GradientRowsOfSparseParametersAreSaidApart) {
  const std::string text =
      Replaced(kDeepFm, "width: 1 is_sparse: true is_distributed: true", "width: 1 is_sparse: true dict_size: 500");
  const v1::Explanation e = ExplanationOf(JobOf(
      Replaced(text, "batch_size: 64", "ids { shared: \"cat\" } batch_size: 64"), {"distribute.dense=ALL_REDUCE"}));
  const v1::TrainerExchange& exchange = e.trainer(0).exchange();
  // A trainer has one node of four lanes, which names all 500 rows: a header, ids, floats.
  EXPECT_EQ(exchange.rows().bytes_out(), 24 + 500 * (8 + 4));
  EXPECT_EQ(exchange.rows().bytes_in(), exchange.rows().bytes_out());
  bool found = false;
  for (const v1::ExplainedBucket& bucket : e.all_reduced().bucket()) {
    if (bucket.row_width() == 0) continue;
    found = true;
    EXPECT_EQ(bucket.parameters(0), "weights");
    EXPECT_EQ(bucket.bytes(), exchange.rows().bytes_out());
  }
  EXPECT_TRUE(found);
  EXPECT_THAT(ExplanationText(e), HasSubstr("of gradient rows to each other trainer: weights"));
  // Rows of the distributed table go to the servers.
  EXPECT_GT(e.trainer(0).step().push().rows(), 0);
}

TEST(ExplainTest, SharedOutUpdatesByHand) {
  const Job job = JobOf(
      kDense, {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED", "distribute.trainers=3", "train.lanes=8"});
  const v1::Explanation e = ExplanationOf(job);
  const v1::AllReduced& all = e.all_reduced();
  // deep.w in pieces of 34, 33 and 33 rows of 200; out.b with the first, deep.b and out.w with the others.
  const int64_t v = 4 * 20401;
  ASSERT_EQ(all.share_size(), 3);
  const int64_t shares[] = {4 * (6800 + 1), 4 * (6600 + 200), 4 * (6600 + 200)};
  EXPECT_EQ(all.dense_bytes(), v);
  EXPECT_EQ(all.replica().bytes_at_rest(), v);
  // Lanes 3, 3, 2 are 2, 2 and 1 nodes.
  const int nodes[] = {2, 2, 1};
  // Four buckets and a gather; parts of the first three are of one trainer each: out.b, out.w, deep.b.
  const double messages[] = {2 * (0 + 1 + 1 + 2), 2 * (1 + 1 + 0 + 2), 1 + 0 + 1 + 2};
  for (int t = 0; t < 3; ++t) {
    const v1::UpdateShare& share = all.share(t);
    const int k = nodes[t];
    EXPECT_EQ(share.blocks(), 2);
    EXPECT_EQ(share.value_bytes(), shares[t]);
    // Two floats for each, a count for each block; values, state, a learning rate and the copy.
    EXPECT_EQ(share.state_bytes(), 2 * shares[t] + 2 * 4);
    EXPECT_EQ(share.bytes_at_rest(), 3 * shares[t] + 2 * 4 + 4 + v);
    EXPECT_EQ(share.step().bytes_out(), k * (v - shares[t]) + 2 * shares[t] + 5 * 2 * 1024) << t;
    EXPECT_EQ(share.step().bytes_in(), (5 - k) * shares[t] + v - shares[t] + 5 * 2 * 1024) << t;
    EXPECT_EQ(share.step().messages(), messages[t] + 2 + 5 * 2) << t;
    EXPECT_EQ(share.gather().bytes_out(), 2 * shares[t] + 2 * 1024);
    EXPECT_EQ(share.gather().bytes_in(), v - shares[t] + 2 * 1024);
  }
  ASSERT_EQ(e.trainer_size(), 2);
  const v1::TrainerExchange& first = e.trainer(0).exchange();
  EXPECT_EQ(first.trainer(), 0);
  EXPECT_EQ(first.direct_bytes(), 2 * (v - shares[0]) + 2 * shares[0]);
  EXPECT_THAT(first.ring_bytes(), DoubleNear(4.0 / 3 * v, 1e-6));
  // Five operations, one latency each; sums leave, then values.
  EXPECT_THAT(first.direct_seconds(),
              DoubleNear(5 * 50e-6 + (2.0 * (v - shares[0]) + 2.0 * shares[0]) * 8 / 10e9, 1e-9));
  EXPECT_THAT(first.ring_seconds(), DoubleNear(2 * 5 * 50e-6 + 4.0 / 3 * v * 8 / 10e9, 1e-9));
  // The sums of its share; its two nodes in each bucket, but out.b, out.w and deep.b travel alone, and there the node
  // of one lane borrows; three addends of others for six messages of its largest slice.
  EXPECT_EQ(first.buffer_bytes(), shares[0] + 2 * v - 4 * 401 + 6 * 3 * 4 * 6800);
  EXPECT_EQ(e.trainer(1).exchange().trainer(), 2);
  EXPECT_EQ(e.all_reduced().largest_trainer(), 0);
  // The plan says the same.
  const absl::StatusOr<Transpiled> transpiled = Transpile(job);
  ASSERT_TRUE(transpiled.ok()) << transpiled.status();
  const std::string plan = ExplainPlan(job, transpiled->trainer().main);
  EXPECT_THAT(plan, HasSubstr(absl::StrCat("trainer 0 updates: 2 blocks, ", shares[0], " bytes of parameters, ",
                                           2 * shares[0] + 8, " bytes of optimizer state")));
  EXPECT_THAT(plan, HasSubstr(absl::StrCat("trainers 0 to 1 send ", std::llround(first.direct_bytes()), " bytes")));
}

TEST(ExplainTest, SharedOutUpdatesAreSaidInEachForm) {
  const v1::Explanation e = ExplanationOf(JobOf(kDense, {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED"}));
  const std::string text = ExplanationText(e), page = ExplanationHtml(e);
  EXPECT_THAT(text, HasSubstr("trainer 1 updates 2 blocks"));
  EXPECT_THAT(text, HasSubstr("k(V-S) + (p-1)S = 79.7 KiB"));
  EXPECT_THAT(text, HasSubstr("deep.w (2 blocks)"));
  EXPECT_EQ(Unbalanced(page), "");
  EXPECT_THAT(page, HasSubstr("deep.w (2 blocks)"));
  EXPECT_THAT(page, HasSubstr("at rest with its copy"));
  const auto json = ExplanationJson(e);
  ASSERT_TRUE(json.ok()) << json.status();
  v1::Explanation back;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(*json, &back).ok());
  EXPECT_EQ(back.all_reduced().share_size(), 2);
}

TEST(ExplainTest, OneTrainerSharesWithNobody) {
  const v1::Explanation e = ExplanationOf(
      JobOf(kDense, {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED", "distribute.trainers=1"}));
  const v1::UpdateShare& share = e.all_reduced().share(0);
  EXPECT_EQ(share.blocks(), 4);
  EXPECT_EQ(share.step().messages(), 0);
  EXPECT_EQ(share.step().bytes_in(), 0);
  EXPECT_EQ(share.gather().bytes_out(), 0);
  EXPECT_EQ(e.trainer(0).exchange().direct_seconds(), 0);
}

TEST(ExplainTest, RowsGoToTheTrainerThatUpdatesThem) {
  const std::string text =
      Replaced(kDeepFm, "width: 1 is_sparse: true is_distributed: true", "width: 1 is_sparse: true dict_size: 500");
  const v1::Explanation e =
      ExplanationOf(JobOf(Replaced(text, "batch_size: 64", "ids { shared: \"cat\" } batch_size: 64"),
                          {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED"}));
  int owner = -1;
  for (const v1::ExplainedBlock& block : e.all_reduced().replica().block()) {
    if (block.parameter() == "weights") owner = block.trainer();
  }
  ASSERT_GE(owner, 0);
  // A node of four lanes names all 500 rows: a header, ids, floats. They go to the owner, which sends its new rows.
  const double gradients = 24 + 500 * (8 + 4), updated = 16 + 500 * (8 + 4);
  const v1::UpdateShare &owns = e.all_reduced().share(owner), &other = e.all_reduced().share(1 - owner);
  EXPECT_EQ(owns.rows_updated(), 500);
  EXPECT_EQ(other.rows_updated(), 0);
  const v1::TrainerExchange& exchange = e.trainer(0).exchange();
  const bool of_owner = exchange.trainer() == owner;
  EXPECT_EQ(exchange.rows().bytes_out(), of_owner ? 0 : gradients);
  EXPECT_EQ(exchange.rows().bytes_in(), of_owner ? gradients : 0);
  EXPECT_EQ(exchange.updated_rows().bytes_out(), of_owner ? updated : 0);
  EXPECT_EQ(exchange.updated_rows().bytes_in(), of_owner ? 0 : updated);
  for (const v1::ExplainedBucket& bucket : e.all_reduced().bucket()) {
    if (bucket.row_width() == 0) continue;
    EXPECT_EQ(bucket.bytes(), gradients / 2);  // of one of two trainers
  }
}

TEST(ExplainTest, RowsThatOnlyComeAreSaid) {
  v1::Explanation e = ExplanationOf(JobOf(kDense, {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED"}));
  EXPECT_THAT(ExplanationText(e), Not(HasSubstr("    rows  ")));
  e.mutable_trainer(0)->mutable_exchange()->mutable_rows()->set_bytes_in(1000);
  EXPECT_THAT(ExplanationText(e), HasSubstr("    rows              0 messages,        0 B out,     1000 B in"));
}

TEST(ExplainTest, ManyTrainersHaveAFewLines) {
  const std::string wide = Replaced(kDense, "size: 200", "size: 4096");
  const v1::Explanation e = ExplanationOf(JobOf(
      Replaced(wide, "batch_size: 64", "batch_size: 2048"),
      {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED", "distribute.trainers=200", "train.lanes=1024"}));
  ASSERT_EQ(e.all_reduced().share_size(), 200);
  // Trainers of 6 and of 5 lanes, whose nodes depend on where they lie.
  EXPECT_GT(e.trainer_size(), 8);
  double out = 0, in = 0;
  for (const v1::UpdateShare& share : e.all_reduced().share()) {
    out += share.step().bytes_out();
    in += share.step().bytes_in();
  }
  // What one sends another one gets.
  EXPECT_THAT(out / in, DoubleNear(1, 1e-9));
  const std::string text = ExplanationText(e);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 250);
  EXPECT_THAT(text, HasSubstr("200 trainers, in the mean"));
  EXPECT_THAT(text, HasSubstr("more groups of trainers: --format=json has them"));
  EXPECT_EQ(Unbalanced(ExplanationHtml(e)), "");
}

TEST(ExplainTest, EveryTrainerHasItsOwnNumberOfLanes) {
  for (const int count : {3, 5, 6, 7}) {
    for (const int lanes : {8, 16}) {
      const v1::Explanation e = ExplanationOf(
          JobOf(kDeepFm, {absl::StrCat("distribute.trainers=", count), absl::StrCat("train.lanes=", lanes)}));
      int trainers = 0, of_all = 0;
      for (const v1::ExplainedTrainer& trainer : e.trainer()) {
        trainers += trainer.count();
        of_all += trainer.count() * trainer.lanes();
        // Examples of 30 slots: rows of 4 and of 1 float, with their ids.
        EXPECT_EQ(trainer.memory().step(), trainer.lanes() * (64 / lanes) * 30 * ((8 + 16) + (8 + 4)));
      }
      EXPECT_EQ(trainers, count);
      EXPECT_EQ(of_all, lanes);
    }
  }
}

TEST(ExplainTest, RowsArePushedTogether) {
  const v1::Explanation e = ExplanationOf(JobOf(kDeepFm));
  // 32 examples of 30 slots for a trainer: ids and rows of 4 and of 1 float; in addition the gradients of the tower.
  const double payload = 32 * 30 * (8 + 4 * 4 + 8 + 4) + 4 * (126 * 192 + 192 + 192 * 8 + 8 + 8 + 1);
  const v1::Flow& push = e.trainer(0).step().push();
  EXPECT_EQ(push.messages(), 2);
  EXPECT_GT(push.bytes_out(), payload);
  // 7 blocks, and both tables at both servers.
  EXPECT_LT(push.bytes_out(), payload + 11 * 64 + 2 * 400);
}

TEST(ExplainTest, ServersExchangeWhatANormIsMadeOf) {
  const std::string clipped =
      Replaced(kDense, "optimizer { adam {} }", "optimizer { adam {} clip { by_global_norm { max_norm: 1 } } }");
  EXPECT_FALSE(ExplanationOf(JobOf(kDense)).has_norms());
  // One server has all parts of the norm.
  EXPECT_FALSE(ExplanationOf(JobOf(clipped, {"distribute.servers=1"})).has_norms());
  // Each server gets two calls: one takes its sums, one delivers the norms.
  EXPECT_EQ(ExplanationOf(JobOf(clipped)).norms().messages(), 2 * 2);
  EXPECT_EQ(ExplanationOf(JobOf(clipped, {"distribute.servers=3"})).norms().messages(), 3 * 2);
}

TEST(ExplainTest, WithoutASampleRowsAreABoundAndSaidToBe) {
  const v1::Explanation e = ExplanationOf(JobOf(kDeepFm));
  EXPECT_TRUE(e.at_most());
  ASSERT_EQ(e.table_size(), 2);
  // 64 examples of 30 slots, all ids distinct.
  EXPECT_EQ(e.table(0).rows_of_step(), 64 * 30);
  EXPECT_EQ(e.table(0).shards(0) + e.table(0).shards(1), 4096);
  EXPECT_EQ(e.table(0).row_bytes(), 8 + 4 * (4 + 4));  // adagrad keeps one more float for each
  // Values take two bytes each, an odd number of them is padded.
  const v1::Explanation half = ExplanationOf(JobOf(kDeepFm, {"table[0].storage=FLOAT16", "table[1].storage=BFLOAT16"}));
  EXPECT_EQ(half.table(0).row_bytes(), 8 + 2 * 4 + 4 * 4);
  EXPECT_EQ(half.table(1).row_bytes(), 8 + 4);
  EXPECT_THAT(ExplanationText(half), HasSubstr("4 16-bit floats and 4 of state each"));
  EXPECT_EQ(half.trainer(0).step().pull_rows().bytes_in(), e.trainer(0).step().pull_rows().bytes_in());
  EXPECT_EQ(e.trainer(0).step().pull_rows().rows(), 64 * 30 / 2 * 2);  // a trainer's half, of two tables
  EXPECT_THAT(ExplanationText(e), HasSubstr("at most 1920 distinct rows a step"));
  EXPECT_THAT(ExplanationText(e), HasSubstr("--sample=N"));
  // A table never has more rows than its dict_size.
  const v1::Explanation limited = ExplanationOf(JobOf(kDeepFm, {"table[0].dict_size=100"}));
  EXPECT_EQ(limited.table(0).rows_of_step(), 100);
}

TEST(ExplainTest, ASampleCountsDistinctIds) {
  const Job job = JobOf(kDeepFm);
  const auto explainer = Explainer::Create(job);
  ASSERT_TRUE(explainer.ok()) << explainer.status();
  // Each lane has the ids 1 to 30 and its own number once each, in 8 examples of 30 slots.
  std::vector<IdBatch> ids(8);
  BatchInput input(8);
  for (int lane = 0; lane < 8; ++lane) {
    ids[lane].slots = 30;
    ids[lane].offsets.push_back(0);
    for (int64_t i = 0; i < 8 * 30; ++i) {
      ids[lane].values.push_back(i == 0 ? 1000 + lane : 1 + i % 30);
      ids[lane].offsets.push_back(i + 1);
    }
    input[lane].examples = 8;
    input[lane].ids["cat"] = &ids[lane];
  }
  (*explainer)->AddStep({input});
  (*explainer)->AddStep({input});
  const auto e = (*explainer)->Finish();
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_EQ(e->sampled_steps(), 2);
  EXPECT_FALSE(e->at_most());
  EXPECT_EQ(e->table(0).rows_of_step(), 30 + 8);
  // A trainer has four lanes: 30 + 4 rows of each of two tables.
  EXPECT_EQ(e->trainer(0).step().pull_rows().rows(), 2 * 34);
  EXPECT_EQ(e->trainer(0).step().push().rows(), 2 * 34);
  EXPECT_THAT(ExplanationText(*e), HasSubstr("mean of 2 steps of the job's data"));
  EXPECT_THAT(ExplanationText(*e), Not(HasSubstr("at most")));
}

TEST(ExplainTest, SparseParametersSayHowTheyAreFetchedAndWhy) {
  const std::string text =
      Replaced(kDeepFm, "width: 1 is_sparse: true is_distributed: true", "width: 1 is_sparse: true dict_size: 500");
  const v1::Explanation e =
      ExplanationOf(JobOf(Replaced(text, "batch_size: 64", "ids { shared: \"cat\" } batch_size: 64")));
  ASSERT_EQ(e.row_fetch_size(), 1);
  EXPECT_EQ(e.row_fetch(0).parameter(), "weights");
  EXPECT_THAT(e.row_fetch(0).why(), HasSubstr("500"));
}

TEST(ExplainTest, RowsAheadOfTheirUseTakeRoomForTheNextBatch) {
  const v1::Explanation plain = ExplanationOf(JobOf(kDeepFm, {"distribute.sync=false"}));
  const v1::Explanation ahead =
      ExplanationOf(JobOf(kDeepFm, {"distribute.sync=false", "distribute.prefetch_rows=true"}));
  // 32 examples of 30 slots for a trainer: an id and its place in each table, an end of each slot in each of four
  // lanes; rows of 4 and of 1 float with their ids.
  const int64_t ids = 32 * 30;
  EXPECT_EQ(plain.trainer(0).memory().step(), ids * (8 + 16) + ids * (8 + 4));
  EXPECT_EQ(ahead.trainer(0).memory().step(), 2 * plain.trainer(0).memory().step() + ids * (8 + 8 + 2 * 4) + 4 * 8);
  EXPECT_EQ(ahead.trainer(0).memory().lanes(), plain.trainer(0).memory().lanes());
  EXPECT_EQ(ahead.trainer(0).step().total().messages(), plain.trainer(0).step().total().messages());
  EXPECT_THAT(ExplanationText(ahead),
              HasSubstr("distribute.prefetch_rows: rows of the next batch are fetched while this one computes"));
  EXPECT_THAT(ExplanationText(plain), Not(HasSubstr("prefetch_rows")));
}

TEST(ExplainTest, OtherChoicesAreComparedWithTheJobs) {
  const v1::Explanation e = ExplanationOf(JobOf(kDeepFm));
  std::map<std::string, v1::Alternative> by_change;
  for (const v1::Alternative& a : e.alternative()) by_change[a.change()] = a;
  ASSERT_TRUE(by_change.contains("distribute.servers=4"));
  ASSERT_TRUE(by_change.contains("distribute.slice_var_up=false"));
  ASSERT_TRUE(by_change.contains("distribute.memory_optimize=true"));
  // The comparison with another choice agrees with the explanation of a job that makes that choice.
  for (const auto& [change, alternative] : by_change) {
    const v1::Explanation other = ExplanationOf(JobOf(kDeepFm, {change}));
    EXPECT_THAT(alternative.balance().bytes(), DoubleNear(other.balance().bytes(), 1e-9)) << change;
    EXPECT_THAT(alternative.balance().load(), DoubleNear(other.balance().load(), 1e-9)) << change;
    EXPECT_EQ(alternative.trainer_memory(), other.trainer(0).memory().total()) << change;
  }
  EXPECT_THAT(by_change["distribute.servers=4"].text(), HasSubstr("4 servers: max/mean by bytes "));
  EXPECT_THAT(by_change["distribute.servers=4"].text(), HasSubstr(" instead of "));
}

TEST(ExplainTest, ScriptsReadIt) {
  const v1::Explanation e = ExplanationOf(JobOf(kDeepFm));
  const auto json = ExplanationJson(e);
  ASSERT_TRUE(json.ok()) << json.status();
  v1::Explanation back;
  const auto parsed = google::protobuf::util::JsonStringToMessage(*json, &back);
  ASSERT_TRUE(parsed.ok()) << parsed.ToString();
  EXPECT_EQ(back.server(1).bytes_at_rest(), e.server(1).bytes_at_rest());
  EXPECT_EQ(back.alternative_size(), e.alternative_size());
  EXPECT_THAT(*json, HasSubstr("\"bytes_at_rest\""));
}

TEST(ExplainTest, ThePageNeedsNothingButItself) {
  v1::Explanation e = ExplanationOf(JobOf(kDeepFm));
  e.set_job("<deep & \"fm\">");
  const std::string page = ExplanationHtml(e);
  EXPECT_EQ(Unbalanced(page), "");
  for (const char* outside : {"http", "src=", "href=", "url(", "@import", "<script", "<link", "<deep"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(page, HasSubstr("&lt;deep &amp; &quot;fm&quot;&gt;"));
  // The page draws the placement and the programs.
  for (const v1::ExplainedServer& server : e.server()) {
    for (const v1::ExplainedBlock& block : server.block())
      EXPECT_THAT(page, HasSubstr("<title>" + block.name() + " ["));
  }
  EXPECT_THAT(page, HasSubstr("<b>prefetch</b>(cat, cat)"));
  EXPECT_THAT(page, HasSubstr("<b>listen_and_serv</b>"));
  EXPECT_THAT(page, HasSubstr("<li class=\"rpc\"><span class=\"role\">rpc</span>"));
}

TEST(ExplainTest, ThePageBeginsWithTheFiguresOfTheJob) {
  const v1::Explanation e = ExplanationOf(JobOf(kDense));
  const std::string page = ExplanationHtml(e);
  EXPECT_THAT(page, HasSubstr(absl::StrCat("<dt>fullest server, at rest</dt><dd class=\"now\">",
                                           HumanBytes(static_cast<double>(e.server(0).bytes_at_rest())), "</dd>")));
  EXPECT_THAT(
      page, HasSubstr(absl::StrCat("<dt>sent in a step</dt><dd class=\"now\">",
                                   HumanBytes(e.trainer(0).step().total().bytes_out()), "</dd><dd>of a trainer</dd>")));
  EXPECT_LT(page.find("<dl class=\"figures\">"), page.find("<h2>Placement</h2>"));
  EXPECT_THAT(page, Not(HasSubstr("predicted examples/s")));
}

TEST(ExplainTest, ThePageMarksWhatAnotherChoiceDoesBetter) {
  v1::Explanation e;
  e.add_server()->set_bytes_at_rest(1000);
  v1::Alternative* const better = e.add_alternative();
  better->set_change("distribute.servers=2");
  better->set_most_bytes(500);
  v1::Alternative* const equal = e.add_alternative();
  equal->set_change("distribute.servers=3");
  equal->set_most_bytes(999);
  const std::string page = ExplanationHtml(e);
  EXPECT_EQ(Unbalanced(page), "");
  EXPECT_THAT(page, HasSubstr("<td class=\"good\">500 B</td>"));
  EXPECT_THAT(page, HasSubstr("<td>999 B</td>"));
}

TEST(ExplainTest, ThePageEscapesWhatACalibrationSays) {
  v1::Explanation e;
  e.mutable_speed()->set_step_seconds(1);
  e.mutable_speed()->set_processor("<b>processor</b>");
  EXPECT_THAT(ExplanationHtml(e), HasSubstr("&lt;b&gt;processor&lt;/b&gt;"));
  e.mutable_speed()->set_refusal("<b>no</b>");
  EXPECT_THAT(ExplanationHtml(e), HasSubstr("No step time is predicted: &lt;b&gt;no&lt;/b&gt;."));
}

TEST(ExplainTest, TheSameJobIsExplainedInTheSameBytes) {
  const v1::Explanation a = ExplanationOf(JobOf(kDeepFm)), b = ExplanationOf(JobOf(kDeepFm));
  EXPECT_EQ(ExplanationText(a), ExplanationText(b));
  EXPECT_EQ(ExplanationHtml(a), ExplanationHtml(b));
}

TEST(ExplainTest, EveryOperatorHasACostRule) {
  std::vector<std::string> without;
  for (const std::string& type : OpRegistry::Global().Types()) {
    if (!OpRegistry::Global().Find(type)->cost) without.push_back(type);
  }
  EXPECT_THAT(without, ::testing::IsEmpty());
}

TEST(ExplainTest, SaysWhatInBatchNegativesTakeBesideVariables) {
  const Job job = JobOf(R"(name: "batch"
data { multi_slot { slot { name: "x" type: FLOAT dim: 4 } } batch_size: 65536 }
model {
  layer { name: "q" fc { input: "x" size: 256 } }
  layer { name: "i" fc { input: "x" size: 256 } }
  loss { in_batch_softmax { query: "q" item: "i" } }
}
optimizer { sgd {} }
train { lanes: 4 })");
  // 7 x 16384 x 256 and 128 x 16384 floats.
  EXPECT_THAT(ExplanationOf(job).note(),
              Contains(HasSubstr("a lane that is computed takes 112.0 MiB for gradients of items, and each thread 8.0 "
                                 "MiB of scores")));
}

TEST(ExplainTest, SaysWhatBecomesOfTheColumns) {
  const Job job = JobOf(R"(name: "columns"
data {
  csv { header: false
    column { name: "label" }
    column { name: "age" output: "dense" }
    column { name: "pay" output: "dense" }
    column { name: "user" type: ID }
    column { name: "city" type: TEXT output: "cat" }
    column { name: "shop" type: ID output: "cat" }
  }
  derived { name: "x" cross { of: "user" of: "city" buckets: 1000 } }
  derived { name: "none" negatives { of: "user" count: 4 uniform { first: 1 items: 50 } } }
  dense { transform: STANDARDIZE column { index: 1 transform: LOG1P } }
  ids { min_count: 3 }
  batch_size: 8
}
model {
  layer { name: "out" fc { input: "dense" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
optimizer { sgd {} })");
  const v1::Explanation e = ExplanationOf(job);
  EXPECT_THAT(
      e.column(),
      ::testing::ElementsAre(
          "label [B, 1]: floats; as in the file", "dense [B, 2]: floats; STANDARDIZE, [1] LOG1P",
          "user: integers; an id space of its own; one id for all that are seen less than 3 times; empty slots "
          "have an id",
          "cat: hashes of texts and integers in 2 slots (city, shop); an id space for each slot; one id for all "
          "that are seen less than 3 times; empty slots have an id",
          "x: cross of user x city, 1000 buckets; an id space of its own; one id for all that are seen less than "
          "3 times; empty slots have an id",
          "none: 4 ids that are not in user, of 1 to 50, drawn in every epoch; id space of user; one id for all "
          "that are seen less than 3 times; empty slots have an id"));
  EXPECT_THAT(ExplanationText(e), HasSubstr("\nvariables of the data\n  label [B, 1]: floats; as in the file\n"));
}

}  // namespace
}  // namespace weir
