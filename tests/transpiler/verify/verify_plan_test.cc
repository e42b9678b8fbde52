// Broken programs, at least one for every rule of transpiler/verify/verify_plan.h.
#include "transpiler/verify/verify_plan.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/training_mode.h"
#include "framework/graph/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/passes/make_server_program.h"
#include "transpiler/passes/passes.h"

namespace weir {
namespace {

using ::testing::StartsWith;

// Adds a table whose rows are fetched to kDeepFm's dense and distributed parameters: 1000 rows over two servers.
std::string WithFetchedTable() {
  std::string text = Replaced(
      kDeepFm, "layer { name: \"fm\"",
      "layer { name: \"more\" embedding { ids: \"cat\" table: \"held\" pooling: SUM } }\n  layer { name: \"fm\"");
  text = Replaced(text, "input: \"fields\" input: \"dense\"", "input: \"fields\" input: \"dense\" input: \"more\"");
  text = Replaced(text, "batch_size: 64", "batch_size: 64 ids { shared: \"cat\" }");
  return Replaced(text, "optimizer { sgd",
                  "table { name: \"held\" width: 20 is_sparse: true dict_size: 5000 }\noptimizer { sgd");
}

const Transpiled& Good() {
  static const auto* const good = new Transpiled(TranspiledOf(JobOf(WithFetchedTable())));
  return *good;
}

// Programs of a trainer and of server 0 of two.
struct Set {
  Programs trainer, server;
};

// Replaces text in a program.
void Edit(v1::ProgramDesc* program, const std::string& from, const std::string& to) {
  const auto parsed = ParseProgramText(Replaced(ProgramText(*program), from, to), "broken.program");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  *program = *parsed;
}

v1::OpDesc* OpOf(v1::ProgramDesc* program, const std::string& text) {
  for (v1::BlockDesc& block : *program->mutable_blocks()) {
    for (v1::OpDesc& op : *block.mutable_ops()) {
      if (absl::StrContains(OpText(op), text)) return &op;
    }
  }
  ADD_FAILURE() << "no op with '" << text << "'";
  return program->mutable_blocks(0)->mutable_ops(0);
}

void Drop(v1::ProgramDesc* program, const std::string& text) {
  const v1::OpDesc* op = OpOf(program, text);
  for (v1::BlockDesc& block : *program->mutable_blocks()) {
    for (int i = 0; i < block.ops_size(); ++i) {
      if (&block.ops(i) != op) continue;
      block.mutable_ops()->DeleteSubrange(i, 1);
      return;
    }
  }
}

// Appends a copy of the op to block 0.
void Again(v1::ProgramDesc* program, const std::string& text) {
  const v1::OpDesc copy = *OpOf(program, text);
  *program->mutable_blocks(0)->add_ops() = copy;
}

// Marks prefetch as running ahead, like distribute.prefetch_rows.
void Ahead(v1::ProgramDesc* program) { MutableMode(program)->set_prefetch_rows(true); }

v1::PlacedBlock* BlockOf(Set* set, const std::string& name) {
  // All four programs have a copy of the plan; a test breaks the trainer's, which is checked first.
  for (v1::PlacedBlock& block : *set->trainer.main.mutable_plan()->mutable_blocks()) {
    if (block.name() == name) return &block;
  }
  ADD_FAILURE() << name;
  return set->trainer.main.mutable_plan()->mutable_blocks(0);
}

// Verifies in the order of processes: each program, then trainer, server, both together.
absl::Status Verified(const Set& set) {
  for (const v1::ProgramDesc* each : {&set.trainer.main, &set.trainer.startup, &set.server.main, &set.server.startup}) {
    const absl::Status verified = VerifyProgram(*each);
    EXPECT_TRUE(verified.ok()) << "by itself the program must hold: " << verified;
  }
  absl::Status status = VerifyTrainer(set.trainer);
  if (status.ok()) status = VerifyServer(set.server, 0);
  const ServerSide side{.index = 0, .programs = &set.server};
  return status.ok() ? VerifySet(set.trainer, absl::MakeConstSpan(&side, 1)) : status;
}

struct Broken {
  const char* name;
  void (*edit)(Set* set);
  // Beginning of the message: the rule and the names.
  const char* message;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class BrokenSetTest : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenSetTest, IsRefusedWithRuleAndNames) {
  Set set{Good().trainer(), *Good().Server(0)};
  ASSERT_TRUE(Verified(set).ok()) << Verified(set);
  GetParam().edit(&set);
  const absl::Status status = Verified(set);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith(GetParam().message));
}

std::string NameOf(const ::testing::TestParamInfo<Broken>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Owned, BrokenSetTest,
    ::testing::Values(
        Broken{"ABlockIsMissing", [](Set* s) { BlockOf(s, "deep.0.w.block1")->set_block(2); },
               "owned: block 'deep.0.w.block1' of 'deep.0.w' has number 2; number 1 is missing"},
        Broken{"BlocksOverlap", [](Set* s) { BlockOf(s, "deep.0.w.block1")->set_element_begin(12000); },
               "owned: block 'deep.0.w.block1' of 'deep.0.w' begins at element 12000; the blocks before it end at "},
        Broken{"ABlockIsShort",
               [](Set* s) {
                 BlockOf(s, "out.w")->set_element_count(7);
                 BlockOf(s, "out.w")->set_dims(0, 7);
               },
               "owned: the blocks of 'out.w' have 7 of its 8 elements"},
        Broken{"ShapeAndCountDiffer", [](Set* s) { BlockOf(s, "out.w")->set_dims(0, 7); },
               "owned: block 'out.w' of 'out.w' has 8 elements and the shape [7, 1]"},
        Broken{"RowsAreCut",
               [](Set* s) {
                 BlockOf(s, "deep.1.w")->set_dims(0, 384);
                 BlockOf(s, "deep.1.w")->set_dims(1, 4);
               },
               "owned: block 'deep.1.w' [384, 4] is no run of whole rows of 'deep.1.w' [192, 8]"},
        Broken{"AServerThatIsNotThere", [](Set* s) { BlockOf(s, "out.w")->set_server(2); },
               "owned: block 'out.w' of 'out.w' is on server 2; there are servers 0 to 1"},
        Broken{"NoServer", [](Set* s) { BlockOf(s, "out.w")->clear_server(); },
               "owned: block 'out.w' of 'out.w' is on server none; there are servers 0 to 1"},
        Broken{"ABlockStandsTwice",
               [](Set* s) { *s->trainer.main.mutable_plan()->add_blocks() = v1::PlacedBlock(*BlockOf(s, "out.w")); },
               "owned: the plan has block 'out.w' twice"},
        Broken{"FewerShardsThanServers",
               [](Set* s) { s->trainer.main.mutable_plan()->mutable_tables(0)->set_logical_shards(1); },
               "owned: table 'vectors' has 1 logical shards for 2 servers"},
        Broken{"OtherRowsAreFetched",
               [](Set* s) { s->trainer.main.mutable_plan()->mutable_fetched_rows(0)->set_rows(7); },
               "owned: rows of 'held' are fetched, 7 in all; its blocks have 5000"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    SentOnce, BrokenSetTest,
    ::testing::Values(
        Broken{"ASendIsLost", [](Set* s) { Drop(&s->trainer.main, "send(X=out.w@GRAD)"); },
               "sent_once: send of the gradient of block 'out.w' is missing"},
        Broken{"ASendStandsTwice",
               [](Set* s) {
                 Edit(&s->trainer.main, "  send(X=out.w@GRAD)",
                      "  send(X=out.w@GRAD) blocks=[\"out.w\"] servers=[0] width=0 @RPC\n  send(X=out.w@GRAD)");
               },
               "sent_once: send of the gradient of block 'out.w' is there more than once"},
        Broken{"ToAnotherServer",
               [](Set* s) {
                 Edit(&s->trainer.main, "send(X=out.w@GRAD) blocks=[\"out.w\"] servers=[0]",
                      "send(X=out.w@GRAD) blocks=[\"out.w\"] servers=[1]");
               },
               "sent_once: send of block 'out.w' goes to server 1; the plan has it on server 0"},
        Broken{"ToABlockThatIsNone",
               [](Set* s) {
                 Edit(&s->trainer.main, "send(X=out.w@GRAD) blocks=[\"out.w\"]",
                      "send(X=out.w@GRAD) blocks=[\"out.v\"]");
               },
               "sent_once: send names block 'out.v', which the plan does not know"},
        Broken{"BehindTheBarrier",
               [](Set* s) {
                 Again(&s->trainer.main, "send(X=out.w@GRAD)");
                 Drop(&s->trainer.main, "send(X=out.w@GRAD)");
               },
               "sent_once: send of block 'out.w' stands behind send_barrier, which ends the step"},
        Broken{"RowsOfATableAreLost", [](Set* s) { Drop(&s->trainer.main, "send(X=vectors@GRAD)"); },
               "sent_once: send of the rows of table 'vectors' is missing"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    ReceivedOnce, BrokenSetTest,
    ::testing::Values(Broken{"ARecvIsLost", [](Set* s) { Drop(&s->trainer.main, "Out=out.w <- recv"); },
                             "received_once: recv of block 'out.w' is missing"},
                      Broken{"ARecvOfTheStartupProgramIsLost",
                             [](Set* s) { Drop(&s->trainer.startup, "Out=out.b <- recv"); },
                             "received_once: recv of the startup program of block 'out.b' is missing"},
                      Broken{"ARecvStandsTwice",
                             [](Set* s) {
                               Edit(&s->trainer.main, "  Out=out.w <- recv()",
                                    "  Out=out.w <- recv() blocks=[\"out.w\"] servers=[0] @RPC\n  Out=out.w <- recv()");
                             },
                             "received_once: recv of block 'out.w' is there more than once"},
                      Broken{"FromAnotherServer",
                             [](Set* s) {
                               Edit(&s->trainer.main, "recv() blocks=[\"out.w\"] servers=[0]",
                                    "recv() blocks=[\"out.w\"] servers=[1]");
                             },
                             "received_once: recv of block 'out.w' goes to server 1; the plan has it on server 0"},
                      Broken{"ATableIsReceivedWhole",
                             [](Set* s) {
                               Edit(&s->trainer.main, "  var wide dense",
                                    "  var all dense float32 [9, 4]\n  var more_of_all dense float32 [9, 1]\n"
                                    "  var wide dense");
                               Edit(&s->trainer.main, "  Out=out.w <- recv()",
                                    "  Out=[all, more_of_all] <- recv() blocks=[\"vectors\", \"weights\"] "
                                    "servers=[-1, -1] @RPC\n  Out=out.w <- recv()");
                             },
                             "received_once: recv asks for table 'vectors' whole"},
                      Broken{"BehindTheBarrier",
                             [](Set* s) {
                               Again(&s->trainer.main, "Out=out.w <- recv");
                               Drop(&s->trainer.main, "Out=out.w <- recv");
                             },
                             "received_once: recv of block 'out.w' stands behind fetch_barrier"},
                      Broken{"BlocksAreJoinedInAnotherOrder",
                             [](Set* s) {
                               Edit(&s->trainer.main, "concat(X=[deep.0.w.block0, deep.0.w.block1])",
                                    "concat(X=[deep.0.w.block1, deep.0.w.block0])");
                             },
                             "received_once: concat joins 'deep.0.w' from deep.0.w.block1, deep.0.w.block0; its blocks "
                             "are deep.0.w.block0, "
                             "deep.0.w.block1"},
                      Broken{"BlocksAreNotJoined", [](Set* s) { Drop(&s->trainer.main, "Out=deep.0.w <- concat"); },
                             "received_once: the received blocks of 'deep.0.w' are not joined"},
                      Broken{"JoinedTwice", [](Set* s) { Again(&s->trainer.main, "Out=deep.0.w <- concat"); },
                             "received_once: 'deep.0.w' is joined more than once"},
                      Broken{"FetchedRowsAreReceivedToo",
                             [](Set* s) {
                               v1::VarDesc* block = s->trainer.main.mutable_blocks(0)->add_vars();
                               *block = *FindVar(s->trainer.main.blocks(0), "held");
                               block->set_name("held.block0");
                               block->set_dims(0, 2500);
                               const int server = BlockOf(s, "held.block0")->server();
                               Edit(&s->trainer.main, "  fetch_barrier()",
                                    absl::StrCat("  Out=held.block0 <- recv() blocks=[\"held.block0\"] servers=[",
                                                 server, "] @RPC\n  fetch_barrier()"));
                             },
                             "received_once: recv of block 'held.block0', whose rows are fetched"},
                      Broken{"RowsOfWhatThePlanReceivesWhole",
                             [](Set* s) {
                               Edit(&s->trainer.main, "row_tables=[\"vectors\", \"weights\", \"held\"]",
                                    "row_tables=[\"vectors\", \"weights\", \"out.w\"]");
                               Edit(&s->trainer.main, "tables=[\"vectors\", \"weights\", \"held\"]",
                                    "tables=[\"vectors\", \"weights\", \"out.w\"]");
                             },
                             "received_once: prefetch asks for rows of 'out.w', which the plan does not give by row"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Others, BrokenSetTest,
    ::testing::Values(
        Broken{"ReadBeforeTheBarrier",
               [](Set* s) {
                 Drop(&s->trainer.main, "fetch_barrier");
                 Edit(&s->trainer.main, "  Out=deep.0.w <- concat(X=[deep.0.w.block0, deep.0.w.block1]) axis=0 @DIST\n",
                      "  Out=deep.0.w <- concat(X=[deep.0.w.block0, deep.0.w.block1]) axis=0 @DIST\n"
                      "  fetch_barrier() sync=true @RPC\n");
               },
               "defined: concat reads 'deep.0.w.block0' behind its recv and before fetch_barrier"},
        Broken{"TheWholeOfAFetchedMatrixIsRead",
               [](Set* s) {
                 Edit(&s->trainer.main, "  var wide dense", "  var whole dense float32 [-1, 20]\n  var wide dense");
                 Edit(&s->trainer.main, "  Out=wide <- lookup_rows(",
                      "  Out=whole <- lookup_table(Ids=cat, W=held) pooling=\"sum\" per_slot=false is_sparse=true\n"
                      "  Out=wide <- lookup_rows(");
               },
               "defined: lookup_table reads 'held', of which a trainer has only the rows that prefetch brings"},
        Broken{"ABlockWithoutAnInitialValue", [](Set* s) { Drop(&s->server.startup, "Out=out.w <- xavier"); },
               "initialised: the startup program of server 0 gives block 'out.w' no value"},
        Broken{"ABlockWithTheValuesOfAnotherPlace",
               [](Set* s) {
                 Edit(&s->server.startup, "variable=\"out.w\" seed=1 element_begin=0",
                      "variable=\"out.w\" seed=1 element_begin=4");
               },
               "initialised: block 'out.w' is initialised as elements from 4 of 'out.w'; it is elements from 0 of "
               "'out.w'"},
        Broken{"ALearningRateWithoutAValue",
               [](Set* s) { Drop(&s->server.startup, "Out=learning_rate <- fill_constant"); },
               "initialised: sgd of optimize block "},
        Broken{"ABlockIsNotUpdated",
               [](Set* s) { Edit(&s->server.main, "optimize_blocks=blocks[1, ", "optimize_blocks=blocks["); },
               "updated_once: optimize block of '"},
        Broken{"ABlockIsUpdatedTwice",
               [](Set* s) { Edit(&s->server.main, "optimize_blocks=blocks[1, ", "optimize_blocks=blocks[1, 1, "); },
               "updated_once: optimize block of '"},
        Broken{"RowsAreInitialisedInAnotherShape",
               [](Set* s) {
                 Edit(&s->server.startup, "var out.w dense float32 [8, 1]", "var out.w dense float32 [1, 8]");
                 Edit(&s->server.startup, "Out=out.w <- xavier() shape=[8, 1]", "Out=out.w <- xavier() shape=[1, 8]");
               },
               "shapes: server 0 initialises block 'out.w' [8, 1] as [1, 8]"},
        Broken{"OtherWidth", [](Set* s) { s->trainer.main.mutable_plan()->mutable_tables(0)->set_width(5); },
               "shapes: prefetch takes 'vectors' for [-1, 4] into 'vectors@ROWS'; the plan has [-1, 5]"},
        Broken{"RowsAheadOfAsyncTables",
               [](Set* s) {
                 Ahead(&s->trainer.main);
                 MutableMode(&s->server.main)->set_async_tables(true);
               },
               "ahead: prefetch runs ahead, and on server 0 rows take effect before their step is over (async_tables)"},
        Broken{
            "RowsAheadOfAnEarlierOp",
            [](Set* s) {
              s->trainer.main.mutable_plan()->set_sync(false);
              Ahead(&s->trainer.main);
              v1::BlockDesc* const block = s->trainer.main.mutable_blocks(0);
              v1::VarDesc* const twice = block->add_vars();
              *twice = *FindVar(*block, "dense");
              twice->set_name("twice");
              *block->add_ops() = WithRole(MakeOp("scale", {{"X", {"dense"}}}, {{"Out", {"twice"}}}, {}), v1::FORWARD);
              for (int i = block->ops_size() - 1; i > 0; --i) block->mutable_ops()->SwapElements(i, i - 1);
            },
            "ahead: prefetch runs ahead, and stands behind scale; only share_buffers may be before it"},
        Broken{"RowsAheadOfTheBoundZero",
               [](Set* s) {
                 s->trainer.main.mutable_plan()->set_sync(false);
                 Ahead(&s->trainer.main);
                 MutableMode(&s->trainer.main)->set_staleness(0);
               },
               "ahead: prefetch runs ahead, and its mode has the bound 0"},
        Broken{"AGradientOfAnotherShape", [](Set* s) { BlockOf(s, "out.w")->set_sparse_gradient(true); },
               "shapes: gradient 'out.w@GRAD' float32 [8, 1] goes to block 'out.w' [8, 1], which takes rows"},
        Broken{"AnotherServersProgram", [](Set* s) { s->server = *Good().Server(1); },
               "agreed: is the program of server 1, and this is server 0"},
        Broken{"ATrainersProgram", [](Set* s) { s->server = s->trainer; },
               "agreed: is no server's program: it has no listen_and_serv"},
        Broken{"OneSideIsAsync", [](Set* s) { Edit(&s->server.main, "sync=true average", "sync=false average"); },
               "agreed: listen_and_serv says sync=false, the plan true"},
        Broken{"TheOtherSideIsAsync",
               [](Set* s) { Edit(&s->trainer.main, "fetch_barrier() sync=true", "fetch_barrier() sync=false"); },
               "agreed: fetch_barrier says sync=false, the plan true"},
        Broken{"OtherLanes", [](Set* s) { Edit(&s->server.main, "lanes=8", "lanes=4"); },
               "agreed: listen_and_serv adds 4 lanes; the plan has 8"},
        Broken{"OtherPlans", [](Set* s) { s->server.main.mutable_plan()->set_seed(2); },
               "agreed: the plan of server 0 is not the trainer's"},
        Broken{"ATrainerTooMany", [](Set* s) { Edit(&s->server.main, "trainers=2", "trainers=3"); },
               "waits: listen_and_serv waits for 3 trainers; the plan has 2"},
        Broken{"NoSendBarrier", [](Set* s) { Drop(&s->trainer.main, "send_barrier"); },
               "waits: servers wait for the send_barrier of a trainer, and its program has none"},
        Broken{"NoFetchBarrier", [](Set* s) { Drop(&s->trainer.main, "fetch_barrier"); },
               "defined: concat reads 'deep.0.w.block0'"},
        Broken{"NothingIsWaitedForAtStart",
               [](Set* s) {
                 Drop(&s->trainer.startup, "fetch_barrier");
                 Drop(&s->trainer.startup, "Out=deep.0.w <- concat");
               },
               "waits: no fetch_barrier of the startup program waits for what recv asks for"},
        Broken{"ACycle",
               [](Set* s) {
                 Again(&s->trainer.main, "send_barrier");
                 Drop(&s->trainer.main, "send_barrier");
               },
               "waits: server 0 waits for send_barrier of trainer 0 waits for fetch_barrier of trainer 0 waits for "
               "server 0"}),
    NameOf);

// Passes verify too: the message names the pass after which the program is broken.
TEST(VerifyPlanTest, ThePassThatBreaksIsNamed) {
  const Job job = JobOf(kDeepFm);
  const Pass loses_a_send{"loses_a_send", [](const Job&, Programs* programs) -> absl::StatusOr<bool> {
                            FilterOps(programs->main.mutable_blocks(0), [](const v1::OpDesc& op) {
                              return !Reads(op, "out.w@GRAD") || op.type() != "send";
                            });
                            return true;
                          }};
  Programs programs;
  ASSERT_TRUE(RunPasses(SingleMachinePasses(), job, &programs).ok());
  ASSERT_TRUE(RunPasses(PlacementPasses(), job, &programs).ok());
  std::vector<Pass> passes = TrainerPasses();
  passes.push_back(loses_a_send);
  const absl::Status status = RunPasses(passes, job, &programs);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(std::string(status.message()),
            "after pass loses_a_send: sent_once: send of the gradient of block 'out.w' is missing");
}

TEST(VerifyPlanTest, APlacementWithoutAnOwnerIsNamed) {
  const Job job = JobOf(kDeepFm);
  const Pass forgets{"forgets", [](const Job&, Programs* programs) -> absl::StatusOr<bool> {
                       auto* blocks = programs->main.mutable_plan()->mutable_blocks();
                       blocks->DeleteSubrange(blocks->size() - 1, 1);
                       return true;
                     }};
  Programs programs;
  ASSERT_TRUE(RunPasses(SingleMachinePasses(), job, &programs).ok());
  std::vector<Pass> passes = PlacementPasses();
  passes.push_back(forgets);
  EXPECT_EQ(std::string(RunPasses(passes, job, &programs).message()),
            "after pass forgets: owned: parameter 'out.w' is updated and no server owns it");
}

// The trainer's check finds what one server's program lacks.
TEST(VerifyPlanTest, ATableThatAServerDoesNotUpdateIsNamed) {
  Set set{Good().trainer(), *Good().Server(0)};
  v1::BlockDesc* served = set.server.main.mutable_blocks(0);
  for (v1::OpDesc& op : *served->mutable_ops()) {
    for (v1::OpAttr& attr : *op.mutable_attrs()) {
      if (attr.name() != "optimize_blocks") continue;
      v1::BlockList kept;
      for (const int32_t b : attr.blocks().v()) {
        if (!absl::StrContains(OpText(set.server.main.blocks(b).ops(0)), "vectors")) kept.add_v(b);
      }
      *attr.mutable_blocks() = kept;
    }
  }
  EXPECT_THAT(std::string(Verified(set).message()),
              StartsWith("updated_once: 'vectors@GRAD' is sent to table 'vectors', which nothing on server 0 updates"));
}

// A server that expects no sums of trainers would clip by a norm of its tables alone.
TEST(VerifyPlanTest, ANormThatOneSideTakesForItsOwnIsNamed) {
  const Transpiled transpiled =
      TranspiledOf(JobOf(kDeepFm, {"distribute.dense=ALL_REDUCE", "optimizer.clip={by_global_norm { max_norm: 1 }}"}));
  const Set good{transpiled.trainer(), *transpiled.Server(0)};
  ASSERT_TRUE(Verified(good).ok()) << Verified(good);
  for (const bool of_server : {false, true}) {
    Set set = good;
    for (v1::BlockDesc& block : *(of_server ? set.server : set.trainer).main.mutable_blocks()) {
      for (v1::OpDesc& op : *block.mutable_ops()) {
        auto* const attrs = op.mutable_attrs();
        for (int i = attrs->size() - 1; i >= 0; --i) {
          if (attrs->at(i).name() == "with_tables") attrs->DeleteSubrange(i, 1);
        }
      }
    }
    const std::string has = "'optimizer.clip'", lacks = "none";
    EXPECT_EQ(std::string(Verified(set).message()),
              absl::StrCat("agreed: norms over dense parameters and tables (attribute with_tables of whole_norm): the "
                           "trainer has ",
                           of_server ? has : lacks, ", server 0 has ", of_server ? lacks : has));
  }
}

TEST(VerifyPlanTest, EverySetOfManyClustersHolds) {
  for (const int servers : {1, 2, 3, 17}) {
    for (const char* other : {"distribute.sync=true", "distribute.sync=false", "distribute.slice_var_up=false",
                              "distribute.split_method=BALANCED_LOAD", "distribute.dense=ALL_REDUCE",
                              "optimizer.clip={by_global_norm { max_norm: 1 }}"}) {
      const Job job = JobOf(WithFetchedTable(), {absl::StrCat("distribute.servers=", servers), other});
      const Transpiled transpiled = TranspiledOf(job);
      std::vector<Programs> programs;
      for (int s = 0; s < servers; ++s) {
        const auto server = transpiled.Server(s);
        ASSERT_TRUE(server.ok()) << server.status();
        programs.push_back(*server);
      }
      std::vector<ServerSide> sides;
      for (int s = 0; s < servers; ++s) sides.push_back({s, &programs[static_cast<size_t>(s)]});
      EXPECT_TRUE(VerifySet(transpiled.trainer(), sides).ok()) << servers << " " << other;
    }
  }
}

}  // namespace
}  // namespace weir
