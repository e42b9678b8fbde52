// A replica runs what `transpile --role=replica` prints.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/thread_pool.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "framework/graph/program_text.h"
#include "gtest/gtest.h"
#include "pserver/params/server_params.h"
#include "pserver/replica/make_replica.h"
#include "tests/testing/jobs/slot_job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

class ReplicaProgramTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Runs a step with gradients of ones, and returns the digest.
  static std::string AfterAStep(ServerParams* params) {
    TrainerGradients all{.trainer = 0, .samples = 4};
    std::vector<std::vector<float>> ones;
    for (int b = 0; b < params->blocks(); ++b) {
      ones.emplace_back(static_cast<size_t>(params->block(b).count), 1.0F);
      Gradient& gradient = all.gradients.emplace_back();
      gradient.target = b;
      gradient.node = {0, 8};
      gradient.count = params->block(b).count;
    }
    for (size_t b = 0; b < ones.size(); ++b) all.gradients[b].values = ones[b].data();
    const absl::Status status = params->Apply(/*step=*/0, absl::MakeConstSpan(&all, 1));
    EXPECT_TRUE(status.ok()) << status;
    v1::ControlReply reply;
    EXPECT_TRUE(params->Digest(&reply).ok());
    return reply.ShortDebugString();
  }
};

TEST_P(ReplicaProgramTest, WhatIsPrintedIsWhatRuns) {
  const absl::StatusOr<Job> job =
      ParseJob(kSlotJob, "job.textproto",
               {"distribute.dense=ALL_REDUCE", std::string("distribute.update=") + GetParam(), "distribute.trainers=2",
                "train.lanes=8", "optimizer.schedule={exponential { decay_steps: 40 decay_rate: 0.7 }}"});
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<Transpiled> transpiled = Transpile(*job);
  ASSERT_TRUE(transpiled.ok()) << transpiled.status();
  const Programs& trainer = transpiled->trainer();
  LocalMeshes meshes(2);
  ThreadPool pool("test", 0);
  for (int t = 0; t < 2; ++t) {
    Collective collective(meshes.mesh(t), {});
    const absl::StatusOr<std::unique_ptr<DenseReplica>> replica =
        MakeReplica({.main = &trainer.main, .startup = &trainer.startup, .pool = &pool, .collective = &collective});
    ASSERT_TRUE(replica.ok()) << replica.status();
    const absl::StatusOr<Programs> programs = transpiled->Replica(t);
    ASSERT_TRUE(programs.ok()) << programs.status();
    std::vector<v1::ProgramDesc> read;
    for (const v1::ProgramDesc* program : {&programs->main, &programs->startup}) {
      const absl::StatusOr<std::string> text = FormatProgram(*program, "text");
      ASSERT_TRUE(text.ok()) << text.status();
      absl::StatusOr<v1::ProgramDesc> parsed = ParseProgramText(*text, "printed");
      ASSERT_TRUE(parsed.ok()) << parsed.status() << *text;
      read.push_back(*std::move(parsed));
    }
    const int number = transpiled->plan().servers() + t;
    const absl::StatusOr<std::unique_ptr<ServerParams>> printed = ServerParams::Create(read[0], read[1], number, &pool);
    ASSERT_TRUE(printed.ok()) << printed.status();
    ASSERT_GT((*printed)->blocks(), 0);
    EXPECT_EQ(AfterAStep(printed->get()), AfterAStep(&(*replica)->params())) << "trainer " << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Updates, ReplicaProgramTest, ::testing::Values("REPLICATED", "SHARDED"));

}  // namespace
}  // namespace weir
