// Predictions whose figures are computed by hand from small clusters. tests/bench/predicted_speed.py compares
// predictions with runs.

#include "transpiler/explain/speed_model.h"

#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

template <class Message>
Message Parsed(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

// A lane of 100 examples takes 1 ms of lane_ns and 1 ms for its examples. A message costs nothing, a byte of a message
// 2 ns at both ends together.
constexpr char kCosts[] = R"(
    cores: 2 crowding: 1
    trainer { lane_ns: 1e6 example_ns: 1e4 }
    server {}
    tcp { byte_ns: 0 message_ns: 0 round_trip_ns: 0 }
    unix_socket { byte_ns: 2 message_ns: 0 round_trip_ns: 0 })";
v1::Calibration Costs(const std::string& more = "") {
  v1::Calibration c = Parsed<v1::Calibration>(kCosts);
  c.MergeFrom(Parsed<v1::Calibration>(more));
  return c;
}

// One server and one trainer with two lanes, which pushes and pulls 10^7 bytes in one message each.
constexpr char kPair[] = R"(
    server { step { push { messages: 1 bytes_out: 1e7 } pull_blocks { messages: 1 bytes_in: 1e7 } } }
    trainer { first: 0 count: 1 lanes: 2 lane_batch: 100
              step { push { messages: 1 bytes_out: 1e7 } pull_blocks { messages: 1 bytes_in: 1e7 } } })";
constexpr char kPairPlan[] = "servers: 1 trainers: 1 lanes: 2 batch_size: 200 sync: true";

v1::SpeedPrediction Predicted(const v1::Calibration& costs, const Machines& machines, const std::string& explained,
                              const std::string& plan, const std::string& job = "") {
  return PredictSpeed(costs, machines, Parsed<v1::JobConfig>(job), Parsed<v1::Plan>(plan),
                      Parsed<v1::Explanation>(explained));
}

const v1::SpeedPhase& PhaseOf(const v1::SpeedPrediction& p, const std::string& name) {
  for (const v1::SpeedPhase& phase : p.phase()) {
    if (phase.name() == name) return phase;
  }
  ADD_FAILURE() << "no phase " << name;
  return v1::SpeedPhase::default_instance();
}

TEST(SpeedModelTest, LanesRunInRoundsOnTheThreads) {
  const std::string trainer = "trainer { first: 0 count: 1 lanes: 3 lane_batch: 100 }";
  const std::string plan = "servers: 1 trainers: 1 lanes: 3 batch_size: 300 sync: true";
  // Three lanes of 2 ms on two threads are two rounds.
  const v1::SpeedPrediction p = Predicted(Costs(), {.link = Link{}}, trainer, plan);
  EXPECT_DOUBLE_EQ(p.step_seconds(), 4e-3);
  EXPECT_DOUBLE_EQ(p.examples_per_second(), 300 / 4e-3);
  EXPECT_DOUBLE_EQ(p.processor_seconds(), 6e-3);
  EXPECT_EQ(p.bottleneck(), "trainers' processors");
  EXPECT_DOUBLE_EQ(Predicted(Costs(), {.link = Link{}}, trainer, plan, "train { threads: 1 }").step_seconds(), 6e-3);
  // A third thread finds no core of its own.
  EXPECT_DOUBLE_EQ(Predicted(Costs(), {.link = Link{}}, trainer, plan, "train { threads: 3 }").step_seconds(), 3e-3);
  // Batches that are accumulated are computed one after the other.
  const v1::SpeedPrediction twice =
      Predicted(Costs(), {.link = Link{}}, trainer, plan, "train { accumulate_steps: 2 }");
  EXPECT_DOUBLE_EQ(twice.step_seconds(), 8e-3);
  EXPECT_DOUBLE_EQ(twice.examples_per_second(), 600 / 8e-3);
}

TEST(SpeedModelTest, ThreadsThatReadTakeTheirShareOfTheCores) {
  const v1::SpeedPrediction p = Predicted(Costs("trainer { read_ns: 10000 }"), {.link = Link{}},
                                          "trainer { first: 0 count: 1 lanes: 2 lane_batch: 100 }", kPairPlan);
  EXPECT_DOUBLE_EQ(p.step_seconds(), 2e-3 + 200 * 1e-5 / 2);
}

TEST(SpeedModelTest, CoresThatAreAllInUseAreSlower) {
  const std::string trainer = "trainer { first: 0 count: 1 lanes: 2 lane_batch: 100 }";
  const v1::Calibration costs = Costs("crowding: 1.5");
  EXPECT_DOUBLE_EQ(Predicted(costs, {.link = Link{}}, trainer, kPairPlan).step_seconds(), 3e-3);
  EXPECT_DOUBLE_EQ(Predicted(costs, {.link = Link{}}, trainer, kPairPlan, "train { threads: 1 }").step_seconds(), 4e-3);
}

TEST(SpeedModelTest, LinksCarryWhatPassesWithItsHeaders) {
  // 10^7 bytes and a twentieth of headers at 10^9 bits a second: 84 ms each way, one after the other.
  const v1::SpeedPrediction p = Predicted(Costs(), {.link = Link{.gbit = 1, .us = 0}}, kPair, kPairPlan);
  EXPECT_DOUBLE_EQ(PhaseOf(p, "push").trainer_link(), 0.084);
  EXPECT_DOUBLE_EQ(PhaseOf(p, "push").server_link(), 0.084);
  EXPECT_DOUBLE_EQ(PhaseOf(p, "parameters").seconds(), 0.084);
  EXPECT_NEAR(p.step_seconds(), 2e-3 + 2 * 0.084, 1e-12);
  EXPECT_EQ(p.link_gbit(), 1);
  EXPECT_EQ(p.bottleneck().substr(0, 5), "links");
}

TEST(SpeedModelTest, AServersLinkCarriesTheStepsOfAllTrainers) {
  const std::string four = R"(
      server { step { push { messages: 4 bytes_out: 4e7 } pull_blocks { messages: 4 bytes_in: 4e7 } } }
      trainer { first: 0 count: 4 lanes: 1 lane_batch: 100
                step { push { messages: 1 bytes_out: 1e7 } pull_blocks { messages: 1 bytes_in: 1e7 } } })";
  const v1::SpeedPrediction p = Predicted(Costs(), {.link = Link{.gbit = 1, .us = 0}}, four,
                                          "servers: 1 trainers: 4 lanes: 4 batch_size: 400 sync: true");
  EXPECT_DOUBLE_EQ(PhaseOf(p, "push").trainer_link(), 0.084);
  EXPECT_DOUBLE_EQ(PhaseOf(p, "push").server_link(), 4 * 0.084);
  EXPECT_NEAR(p.step_seconds(), 2e-3 + 8 * 0.084, 1e-12);
  EXPECT_EQ(p.bottleneck(), "links of servers");
}

// Four trainers, two on each host, that push 10^7 bytes each.
constexpr char kTwoHosts[] = R"(
    trainer { first: 0 count: 4 lanes: 1 lane_batch: 100 step { push { messages: 1 bytes_out: 1e7 } } })";
constexpr char kTwoHostsPlan[] = "servers: 1 trainers: 4 lanes: 4 batch_size: 400 sync: true";

TEST(SpeedModelTest, TrainersOfAHostShareItsLinkAndItsCores) {
  const v1::SpeedPrediction p =
      Predicted(Costs(), {.trainers_per_host = 2, .link = Link{.gbit = 1, .us = 0}},
                std::string(kTwoHosts) + "server { step { push { messages: 4 bytes_out: 4e7 } } }", kTwoHostsPlan);
  EXPECT_EQ(p.trainers_per_host(), 2);
  EXPECT_DOUBLE_EQ(PhaseOf(p, "push").trainer_link(), 2 * 0.084);
  EXPECT_DOUBLE_EQ(PhaseOf(p, "push").server_link(), 4 * 0.084);
  // Two trainers with a lane of 2 ms each, on two cores.
  EXPECT_DOUBLE_EQ(PhaseOf(p, "compute").seconds(), 2e-3);
}

TEST(SpeedModelTest, AHostThatMergesSendsOnceAndPassesThroughSharedMemory) {
  const std::string merged = std::string(kTwoHosts) + R"(
      server { block { bytes: 1000000 } step { push { messages: 2 bytes_out: 2e7 } } }
      merged_hosts { hosts: 2 trainers_per_host: 2
                     host { first: 0 count: 2 first_trainer: 0 trainers: 2 nodes: 1
                            step { push { messages: 1 bytes_out: 1e7 } } } })";
  const Machines machines = {.trainers_per_host = 2, .link = Link{.gbit = 1, .us = 0}};
  const v1::SpeedPrediction p = Predicted(Costs(), machines, merged, kTwoHostsPlan);
  EXPECT_DOUBLE_EQ(PhaseOf(p, "push").trainer_link(), 0.084);
  EXPECT_DOUBLE_EQ(PhaseOf(p, "push").server_link(), 2 * 0.084);
  // 10 ms for a trainer's end of shared memory. The one that merges takes as long for the other's bytes, on two
  // threads; its own stay in its process.
  EXPECT_DOUBLE_EQ(PhaseOf(p, "push").trainer(), 0.010 + 0.005);
  // Two sums of 10^6 bytes are added for the host, 1 ms each, on two threads.
  EXPECT_DOUBLE_EQ(
      PhaseOf(Predicted(Costs("server { merge_byte_ns: 1 }"), machines, merged, kTwoHostsPlan), "push").trainer(),
      0.015 + 0.001);
  // The server adds one sum of each host.
  EXPECT_DOUBLE_EQ(
      PhaseOf(Predicted(Costs("server { merge_byte_ns: 1 }"), machines, merged, kTwoHostsPlan), "update").server(),
      2 * 1e-3 / 2);
}

TEST(SpeedModelTest, WhatTrainersOfAHostAddIsOnNoLink) {
  const auto link = [](const std::string& added) {
    const std::string all = R"(
        trainer { first: 0 count: 4 lanes: 1 lane_batch: 100 exchange { total { messages: 3 bytes_out: 1e7 } } })";
    const Machines machines = {.trainers_per_host = 2, .link = Link{.gbit = 1, .us = 0}};
    return PhaseOf(Predicted(Costs(), machines, all + "all_reduced { " + added + " }",
                             "servers: 0 trainers: 4 lanes: 4 batch_size: 400 sync: true"),
                   "exchange")
        .trainer_link();
  };
  EXPECT_GT(link(""), 0);
  EXPECT_DOUBLE_EQ(link("added_on_hosts { hosts: 2 trainers_per_host: 2 bytes: 1e6 bytes_apart: 4e6 }"), link("") / 4);
}

TEST(SpeedModelTest, RoundTripsWaitForTheLinkAndForTheOtherEnd) {
  const v1::Calibration costs = Costs("tcp { round_trip_ns: 1e5 }");
  const auto waits = [&](const std::string& more) {
    const v1::SpeedPrediction p = Predicted(costs, {.link = Link{.gbit = 1, .us = 200}}, kPair + more, kPairPlan);
    double seconds = 0;
    for (const v1::SpeedPhase& phase : p.phase()) seconds += phase.round_trips();
    return seconds;
  };
  // Once from the last push to the first new value; norms add one for the pushes and one for each round.
  EXPECT_DOUBLE_EQ(waits(""), 5e-4);
  EXPECT_DOUBLE_EQ(waits(" norms { messages: 2 }"), 5e-4 + 3 * 5e-4);
}

TEST(SpeedModelTest, PullsOfBlocksGoWithThePushesUnlessSomethingComesBetween) {
  const v1::Calibration costs = Costs("tcp { message_ns: 2e6 }");
  const auto moving = [&](const std::string& more, const std::string& plan, const std::string& phase) {
    const v1::SpeedPrediction p = Predicted(costs, {.link = Link{.gbit = 1, .us = 0}}, kPair + more, plan);
    return PhaseOf(p, phase).trainer();
  };
  // A millisecond at each end of a message.
  EXPECT_DOUBLE_EQ(moving("", kPairPlan, "push"), 1e-3);
  EXPECT_DOUBLE_EQ(moving("", kPairPlan, "parameters"), 0);
  EXPECT_DOUBLE_EQ(moving(" norms { messages: 1 }", kPairPlan, "parameters"), 1e-3);
}

TEST(SpeedModelTest, OneMachineDoesTheWorkOfAllProcesses) {
  // The step's messages cost 2 ns a byte at both ends together: each way 10 ms of a trainer's thread, then, for a
  // single message, 10 ms on two threads of the server. That is a chain of 15 ms, half of which counts, and 20 ms of
  // two cores. Two lanes take 4 ms on two cores.
  const v1::SpeedPrediction p = Predicted(Costs(), {.one_machine = true}, kPair, kPairPlan);
  EXPECT_FALSE(p.has_link_gbit());
  EXPECT_DOUBLE_EQ(p.processor_seconds(), 0.044);
  EXPECT_DOUBLE_EQ(p.step_seconds(), 2 * (0.0075 + 0.010) + 0.002);
  EXPECT_DOUBLE_EQ(PhaseOf(p, "push").machine(), 0.010);
  // Four trainers: their work keeps both cores in use.
  const std::string four = R"(
      server { step { push { messages: 4 bytes_out: 4e7 } } }
      trainer { first: 0 count: 4 lanes: 1 lane_batch: 100 step { push { messages: 1 bytes_out: 1e7 } } })";
  const v1::SpeedPrediction crowd =
      Predicted(Costs(), {.one_machine = true}, four, "servers: 1 trainers: 4 lanes: 4 batch_size: 400 sync: true");
  EXPECT_DOUBLE_EQ(PhaseOf(crowd, "push").machine(), 0.040);
  EXPECT_DOUBLE_EQ(PhaseOf(crowd, "push").seconds(), 0.040 + (0.010 + 0.020) / 2);
  EXPECT_DOUBLE_EQ(crowd.processor_seconds(), 0.088);
  // Two trainers share the cores: each computes on one.
  const v1::SpeedPrediction two =
      Predicted(Costs(), {.one_machine = true}, "trainer { first: 0 count: 2 lanes: 2 lane_batch: 100 }",
                "servers: 1 trainers: 2 lanes: 4 batch_size: 400 sync: true");
  EXPECT_DOUBLE_EQ(two.step_seconds(), 4e-3);
}

TEST(SpeedModelTest, MovingTakesLongerThanItsPartsByAFactor) {
  const v1::SpeedPrediction one = Predicted(Costs(), {.one_machine = true}, kPair, kPairPlan);
  const v1::SpeedPrediction two = Predicted(Costs("moving: 1.5"), {.one_machine = true}, kPair, kPairPlan);
  EXPECT_DOUBLE_EQ(PhaseOf(two, "push").seconds(), 1.5 * PhaseOf(one, "push").seconds());
  EXPECT_DOUBLE_EQ(PhaseOf(two, "compute").seconds(), PhaseOf(one, "compute").seconds());
}

// Returns the time on the server's link of a phase with four trainers and links of 1 Gbit/s.
double OnServersLink(const std::string& phase, const std::string& server_step, const std::string& trainer_step) {
  const v1::SpeedPrediction p =
      Predicted(Costs(), {.link = Link{.gbit = 1, .us = 0}},
                "server { step { " + server_step + " } }" +
                    "trainer { first: 0 count: 4 lanes: 1 lane_batch: 100 step { " + trainer_step + " } }",
                "servers: 1 trainers: 4 lanes: 4 batch_size: 400 sync: true");
  return PhaseOf(p, phase).server_link();
}

TEST(SpeedModelTest, TrainersThatHaveTheirRowsPushWhileOthersReceive) {
  const auto rows = [](const std::string& trainers) {
    return OnServersLink("rows", "pull_rows { messages: 4 bytes_in: 4e7 }",
                         "pull_rows { messages: 1 " + trainers + " }");
  };
  // The first trainer has its rows after 84 ms, the last after 336.
  EXPECT_DOUBLE_EQ(rows("bytes_in: 1e7"), (1 + 4) * 0.084 / 2);
  EXPECT_DOUBLE_EQ(rows("bytes_in: 4e7"), 4 * 0.084);
}

TEST(SpeedModelTest, BlocksThatComeWithRowsAreThereForSomeTrainersBeforeOthers) {
  const auto blocks = [](const std::string& rows) {
    return OnServersLink("parameters", "pull_blocks { messages: 4 bytes_in: 4e7 } " + rows,
                         "pull_blocks { messages: 1 bytes_in: 1e7 } " + rows);
  };
  EXPECT_DOUBLE_EQ(blocks("pull_rows { messages: 1 bytes_in: 1e6 }"), (1 + 4) * 0.084 / 2);
  // Large blocks alone come to all trainers at the same time.
  EXPECT_DOUBLE_EQ(blocks(""), 4 * 0.084);
}

TEST(SpeedModelTest, PiecesFlowThroughTheStages) {
  // Packing of 84 ms beside 84 ms on each link: one piece takes both, ten pieces a tenth more than one.
  const v1::Calibration costs = Costs("trainer { push_byte_ns: 8.4 }");
  const auto push = [&](int messages) {
    v1::Explanation e = Parsed<v1::Explanation>(kPair);
    e.mutable_trainer(0)->mutable_step()->mutable_push()->set_messages(messages);
    return PredictSpeed(costs, {.link = Link{.gbit = 1, .us = 0}}, v1::JobConfig(), Parsed<v1::Plan>(kPairPlan), e);
  };
  EXPECT_DOUBLE_EQ(PhaseOf(push(1), "push").trainer(), 0.084);
  EXPECT_NEAR(PhaseOf(push(1), "push").seconds(), 2 * 0.084, 1e-12);
  EXPECT_NEAR(PhaseOf(push(10), "push").seconds(), 1.1 * 0.084, 1e-12);
}

TEST(SpeedModelTest, UpdatesCostRowsAndBytesAndWhatEachTrainerAdds) {
  const v1::Calibration costs =
      Costs("server { merge_row_ns: 100 update_row_ns: 1000 merge_byte_ns: 1 update_byte_ns: 10 }");
  const std::string explained = R"(
      server { rows_updated: 500 block { bytes: 1000 } block { bytes: 7 sparse_gradient: true }
               step { push { messages: 2 rows: 800 } } }
      trainer { first: 0 count: 2 lanes: 1 lane_batch: 100 step { push { messages: 1 rows: 400 bytes_out: 1 } } })";
  const v1::SpeedPrediction p =
      Predicted(costs, {.link = Link{}}, explained, "servers: 1 trainers: 2 lanes: 2 batch_size: 200 sync: true");
  // Two trainers push one node each. Two cores.
  EXPECT_DOUBLE_EQ(PhaseOf(p, "update").server(), (800 * 100 + 500 * 1000 + 2 * 1000 * 1 + 1000 * 10) * 1e-9 / 2);
}

TEST(SpeedModelTest, RowsAheadHideBehindComputing) {
  const std::string rows = R"(
      server { step { pull_rows { messages: 1 bytes_in: 1e5 } } }
      trainer { first: 0 count: 1 lanes: 2 lane_batch: 100 step { pull_rows { messages: 1 bytes_in: 1e5 } } })";
  const Machines machines{.link = Link{.gbit = 1, .us = 50}};
  // .84 ms of the link and .1 ms until a row comes, before or beside 2 ms of the lanes.
  EXPECT_NEAR(Predicted(Costs(), machines, rows, kPairPlan).step_seconds(), 2.94e-3, 1e-12);
  EXPECT_NEAR(Predicted(Costs(), machines, rows, kPairPlan, "distribute { prefetch_rows: true }").step_seconds(), 2e-3,
              1e-9);
}

TEST(SpeedModelTest, RowsAheadCostNoLessThanTheyHide) {
  const std::string rows = R"(
      server { step { pull_rows { messages: 4 bytes_in: 1e6 } } }
      trainer { first: 0 count: 1 lanes: 2 lane_batch: 100 step { pull_rows { messages: 4 bytes_in: 1e6 } } })";
  for (const bool one_machine : {false, true}) {
    for (const int cores : {1, 2, 8}) {
      v1::Calibration costs = Costs();
      costs.set_cores(cores);
      const Machines machines{.one_machine = one_machine};
      const double without = Predicted(costs, machines, rows, kPairPlan).step_seconds();
      const double with =
          Predicted(costs, machines, rows, kPairPlan, "distribute { prefetch_rows: true }").step_seconds();
      EXPECT_LE(with, without) << cores;
      EXPECT_GE(with, 0.5 * without) << cores;
    }
  }
}

TEST(SpeedModelTest, InAsyncTheBusiestResourceTakesAStepOfEveryTrainer) {
  const std::string plan = "servers: 1 trainers: 8 batch_size: 800";
  const auto with = [&](double update_row_ns) {
    return Predicted(Costs("server { update_row_ns: " + std::to_string(update_row_ns) + " }"), {.link = Link{}},
                     R"(server { rows_updated: 8000 }
                        trainer { first: 0 count: 8 lanes: 1 lane_batch: 100 })",
                     plan);
  };
  // 8 x 1000 rows on two cores: 4 us for a trainer's own, 32 us for all.
  EXPECT_NEAR(with(8).step_seconds(), 2e-3 + 4e-6, 1e-12);
  EXPECT_DOUBLE_EQ(with(8).examples_per_second(), 800 / with(8).step_seconds());
  // 32 ms for all.
  EXPECT_NEAR(with(8000).step_seconds(), 32e-3, 1e-12);
  EXPECT_EQ(with(8000).bottleneck(), "servers' processors");
}

TEST(SpeedModelTest, AServerInsideATrainerSharesItsCores) {
  const v1::Calibration costs = Costs("server { update_byte_ns: 1000 }");
  const std::string explained =
      "server { block { bytes: 4000 } } trainer { first: 0 count: 1 lanes: 2 lane_batch: 100 }";
  const v1::SpeedPrediction p =
      Predicted(costs, {.link = Link{}}, explained, std::string(kPairPlan) + " servers_in_trainers: true");
  EXPECT_DOUBLE_EQ(p.step_seconds(), 4e-3);
  EXPECT_DOUBLE_EQ(PhaseOf(p, "update").trainer(), 2e-3);
  EXPECT_EQ(PhaseOf(p, "update").server(), 0);
  // Of two trainers each keeps half of what it pushes, and moves the other half.
  const std::string two = R"(
      server { step { push { messages: 2 bytes_out: 1e7 } } } server { step { push { messages: 2 bytes_out: 1e7 } } }
      trainer { first: 0 count: 2 lanes: 1 lane_batch: 100 step { push { messages: 2 bytes_out: 1e7 } } })";
  EXPECT_DOUBLE_EQ(PhaseOf(Predicted(Costs(), {.link = Link{.gbit = 1, .us = 0}}, two,
                                     "servers: 2 trainers: 2 lanes: 2 batch_size: 200 sync: true "
                                     "servers_in_trainers: true"),
                           "push")
                       .trainer_link(),
                   0.084 / 2);
}

TEST(SpeedModelTest, TrainersThatExchangeUpdateTheirCopies) {
  const v1::Calibration costs = Costs("server { update_byte_ns: 1000 }");
  const std::string explained = R"(
      trainer { first: 0 count: 2 lanes: 1 lane_batch: 100
                exchange { total { messages: 2 bytes_out: 1e7 bytes_in: 1e7 } } }
      all_reduced { replica { index: -1 block { bytes: 4000 } } })";
  const std::string plan = "trainers: 2 lanes: 2 batch_size: 200 sync: true";
  const v1::SpeedPrediction p = Predicted(costs, {.link = Link{.gbit = 1, .us = 0}}, explained, plan);
  EXPECT_NEAR(PhaseOf(p, "exchange").seconds(), 0.084, 1e-12);
  EXPECT_DOUBLE_EQ(PhaseOf(p, "update").trainer(), 2e-3);
}

TEST(SpeedModelTest, ModesThatItDoesNotKnowAreRefusedByName) {
  for (const std::string job : {"distribute { geo {} }", "distribute { local_sgd {} }", "distribute { half_async {} }",
                                "distribute { async_tables: true }", "train { device: CUDA }"}) {
    const v1::SpeedPrediction p = Predicted(Costs(), {}, kPair, kPairPlan, job);
    const size_t begin = job.find("{ ") + 2;
    const std::string field = job.substr(begin, job.find_first_of(" :", begin) - begin);
    EXPECT_NE(p.refusal().find(field), std::string::npos) << p.refusal() << ", expected " << field;
    EXPECT_FALSE(p.has_step_seconds());
  }
}

}  // namespace
}  // namespace weir
