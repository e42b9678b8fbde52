// One fully connected layer, two servers, two trainers, sync, brought as a program: what Fluid made of it, op by op.
// Ours differs where docs/program.md says so: reduce_sum and mean make a loss of each sample, fill_like_batch seeds
// backward, merge stands for sum and scale.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kJob[] = R"(name: "example"
data { multi_slot { slot { name: "x" type: FLOAT dim: 1000 } slot { name: "y" type: FLOAT } } batch_size: 64 }
program: "fluid_example.program"
optimizer { sgd { learning_rate: 0.1 } }
distribute { servers: 2 trainers: 2 }
)";

Job ExampleJob(const std::vector<std::string>& overrides = {}) {
  const auto job = ParseJob(kJob, "tests/transpiler/testdata/job.textproto", overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  return *job;
}

std::string Ops(const v1::ProgramDesc& program, int block = 0) {
  std::string text;
  for (const v1::OpDesc& op : program.blocks(block).ops()) text += OpText(op) + "\n";
  return text;
}

TEST(WorkedExampleTest, BlocksGoWhereFluidPutThem) {
  std::vector<std::string> placed;
  const Transpiled transpiled = TranspiledOf(ExampleJob());
  for (const v1::PlacedBlock& block : transpiled.plan().blocks()) {
    placed.push_back(absl::StrCat(block.name(), " on ", block.server()));
  }
  EXPECT_THAT(placed, ElementsAre("fc_b on 0", "fc_w.block0 on 1", "fc_w.block1 on 0"));
}

TEST(WorkedExampleTest, TheTrainersOpsStandInFluidsOrder) {
  EXPECT_THAT(
      Types(TranspiledOf(ExampleJob()).trainer().main),
      ElementsAre("mul", "elementwise_add", "elementwise_sub", "square", "reduce_sum", "mean", "fill_like_batch",
                  "mean_grad", "reduce_sum_grad", "square_grad", "elementwise_sub_grad", "elementwise_add_grad", "send",
                  "mul_grad", "split_byref", "send", "send_barrier", "recv", "recv", "fetch_barrier", "concat"));
}

TEST(WorkedExampleTest, TheTrainerSendsAndReceivesBlocks) {
  const std::string ops = Ops(TranspiledOf(ExampleJob()).trainer().main);
  EXPECT_THAT(ops, HasSubstr(R"(
send(X=fc_b@GRAD) blocks=["fc_b"] servers=[0] width=0 @RPC grads(fc_b=fc_b@GRAD)
)"));
  EXPECT_THAT(ops, HasSubstr(R"(
Out=[fc_w@GRAD.block0, fc_w@GRAD.block1] <- split_byref(X=fc_w@GRAD) sections=[500000, 500000] @DIST )"
                             R"(grads(fc_w=fc_w@GRAD)
send(X=[fc_w@GRAD.block0, fc_w@GRAD.block1]) blocks=["fc_w.block0", "fc_w.block1"] servers=[1, 0] width=0 )"
                             R"(@RPC grads(fc_w=fc_w@GRAD)
send_barrier(X=cost) nan_policy="stop" @RPC
Out=fc_b <- recv() blocks=["fc_b"] servers=[0] @RPC grads(fc_b=fc_b@GRAD)
Out=[fc_w.block0, fc_w.block1] <- recv() blocks=["fc_w.block0", "fc_w.block1"] servers=[1, 0] @RPC grads(fc_w=fc_w@GRAD)
fetch_barrier() sync=true @RPC
Out=fc_w <- concat(X=[fc_w.block0, fc_w.block1]) axis=0 @DIST
)"));
}

TEST(WorkedExampleTest, TheTrainerHoldsNoLearningRate) {
  const Programs trainer = TranspiledOf(ExampleJob()).trainer();
  EXPECT_EQ(FindVar(trainer.main.blocks(0), "learning_rate"), nullptr);
  EXPECT_THAT(Types(trainer.startup), ElementsAre("recv", "recv", "fetch_barrier", "concat"));
}

TEST(WorkedExampleTest, AServerHasOneBlockPerOwnedBlock) {
  const auto server = TranspiledOf(ExampleJob()).Server(0);
  ASSERT_TRUE(server.ok()) << server.status();
  const v1::ProgramDesc& main = server->main;
  ASSERT_EQ(main.blocks_size(), 3);
  EXPECT_EQ(Ops(main),
            "listen_and_serv() server_id=0 trainers=2 lanes=8 sync=true average=\"samples\" "
            "optimize_blocks=blocks[1, 2] @RPC\n");
  EXPECT_EQ(Ops(main, 1),
            "Out=fc_b@GRAD <- merge(X=fc_b@GRAD) @OPTIMIZE grads(fc_b=fc_b@GRAD)\n"
            "ParamOut=fc_b <- sgd(Param=fc_b, Grad=fc_b@GRAD, LearningRate=learning_rate) @OPTIMIZE "
            "grads(fc_b=fc_b@GRAD)\n");
  EXPECT_EQ(
      Ops(main, 2),
      "Out=fc_w@GRAD.block1 <- merge(X=fc_w@GRAD.block1) @OPTIMIZE grads(fc_w.block1=fc_w@GRAD.block1)\n"
      "ParamOut=fc_w.block1 <- sgd(Param=fc_w.block1, Grad=fc_w@GRAD.block1, LearningRate=learning_rate) @OPTIMIZE "
      "grads(fc_w.block1=fc_w@GRAD.block1)\n");
  EXPECT_EQ(main.blocks(1).parent(), 0);
}

TEST(WorkedExampleTest, AServerInitialisesWhatItOwnsFromTheWhole) {
  const auto server = TranspiledOf(ExampleJob()).Server(0);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(Ops(server->startup),
            "Out=learning_rate <- fill_constant() shape=[1] dtype=dtype(FLOAT32) value=0.1 @INIT\n"
            "Out=fc_b <- fill_constant() shape=[1000] dtype=dtype(FLOAT32) value=0.0 @INIT\n"
            "Out=fc_w.block1 <- uniform_random() shape=[500, 1000] min=-0.05 max=0.05 variable=\"fc_w\" seed=1 "
            "element_begin=500000 @INIT\n");
}

TEST(WorkedExampleTest, AverageByTrainersIsFluidsSumAndScale) {
  const auto server =
      TranspiledOf(ExampleJob({"distribute.average=BY_TRAINERS", "distribute.reproducible=false"})).Server(0);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(Ops(server->main, 1),
            "Out=fc_b@GRAD <- sum(X=[fc_b@GRAD.trainer_0, fc_b@GRAD.trainer_1]) @OPTIMIZE grads(fc_b=fc_b@GRAD)\n"
            "Out=fc_b@GRAD <- scale(X=fc_b@GRAD) scale=0.5 @OPTIMIZE grads(fc_b=fc_b@GRAD)\n"
            "ParamOut=fc_b <- sgd(Param=fc_b, Grad=fc_b@GRAD, LearningRate=learning_rate) @OPTIMIZE "
            "grads(fc_b=fc_b@GRAD)\n");
}

TEST(WorkedExampleTest, AJobThatDoesNotSayIsSync) {
  const Transpiled transpiled = TranspiledOf(ExampleJob());
  EXPECT_TRUE(transpiled.plan().sync());
  EXPECT_THAT(Ops(transpiled.trainer().main), HasSubstr("fetch_barrier() sync=true"));
  EXPECT_THAT(Ops(transpiled.Server(0)->main), HasSubstr("sync=true"));
}

TEST(WorkedExampleTest, AsyncDiffersInItsMarksOnly) {
  const Transpiled async = TranspiledOf(ExampleJob({"distribute.sync=false"}));
  EXPECT_EQ(Types(async.trainer().main), Types(TranspiledOf(ExampleJob()).trainer().main));
  EXPECT_THAT(Ops(async.trainer().main), HasSubstr("fetch_barrier() sync=false"));
  EXPECT_THAT(Ops(async.Server(0)->main), HasSubstr("sync=false"));
}

TEST(WorkedExampleTest, StateIsCutAndNamedWithItsBlock) {
  const auto server = TranspiledOf(ExampleJob({"optimizer.adam.learning_rate=0.1"})).Server(0);
  ASSERT_TRUE(server.ok()) << server.status();
  const v1::BlockDesc& block = server->main.blocks(0);
  const v1::VarDesc* moment = FindVar(block, "fc_w.block1.moment2");
  ASSERT_NE(moment, nullptr);
  EXPECT_THAT(moment->dims(), ElementsAre(500, 1000));
  EXPECT_EQ(moment->block_of().variable(), "fc_w.moment2");
  EXPECT_EQ(moment->block_of().element_begin(), 500000);
  const v1::VarDesc* step = FindVar(block, "fc_w.block1.step");
  ASSERT_NE(step, nullptr);
  EXPECT_THAT(step->dims(), ElementsAre(1));
}

}  // namespace
}  // namespace weir
