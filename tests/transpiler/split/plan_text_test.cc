#include <set>
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "proto/agreement.pb.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

std::string TextOf(const std::vector<std::string>& overrides) {
  const Job job = JobOf(kDeepFm, overrides);
  return PlanText(job, TranspiledOf(job).plan());
}

TEST(PlanTextTest, TheFirstDifferenceIsTheSettingAtFault) {
  EXPECT_EQ(FirstDifference(TextOf({}), TextOf({})), "");
  EXPECT_EQ(FirstDifference(TextOf({}), TextOf({"distribute.servers=3"})), "distribute.servers: 2 here, 3 there");
  EXPECT_EQ(FirstDifference(TextOf({"optimizer.sgd.learning_rate=0.2"}), TextOf({})),
            "optimizer.sgd.learning_rate: 0.2 here, 0.1 there");
}

TEST(PlanTextTest, WhatOnlyOneHasIsSaid) {
  EXPECT_EQ(FirstDifference(TextOf({"data.eval.files=[\"e.tsv\"]"}), TextOf({})),
            "data.eval.files[0]: \"e.tsv\" here, not set there");
  EXPECT_EQ(FirstDifference(TextOf({}), TextOf({"data.eval.files=[\"e.tsv\"]"})),
            "data.eval.files[0]: not set here, \"e.tsv\" there");
  EXPECT_EQ(FirstDifference("a: 1\n", "a: 1\nb: 2\n"), "b: not set here, 2 there");
  EXPECT_EQ(FirstDifference("a: 1\nb: 2\n", "a: 1\n"), "b: 2 here, not set there");
}

TEST(PlanTextTest, TheLastLineCountsWithoutALineEnd) {
  EXPECT_EQ(FirstDifference("a: 1\nb: 2", "a: 1\nb: 3"), "b: 2 here, 3 there");
}

TEST(PlanTextTest, FreeSettingsMayDiffer) {
  EXPECT_EQ(FirstDifference(TextOf({}), TextOf({"train.threads=3", "train.log_every_seconds=1",
                                                "data.prefetch_batches=9", "checkpoint.dir=elsewhere",
                                                "deadlines.rpc_s=7", "cluster.pserver=[\"a:1\", \"b:2\"]"})),
            "");
}

TEST(PlanTextTest, DirectoriesOfTheDiskTierMayDifferButNotItsMemory) {
  EXPECT_EQ(FirstDifference(TextOf({"table[0].disk.dir=here"}), TextOf({"table[0].disk.dir=there"})), "");
  EXPECT_EQ(FirstDifference(TextOf({"table[0].disk.dir=d", "table[0].disk.memory_mb=70"}),
                            TextOf({"table[0].disk.dir=d", "table[0].disk.memory_mb=90"})),
            "table[0].disk.memory_mb: 70 here, 90 there");
}

// Every message type that `descriptor` reaches.
void AddMessages(const google::protobuf::Descriptor* descriptor, std::set<const google::protobuf::Descriptor*>* all) {
  if (!all->insert(descriptor).second) return;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    if (const auto* message = descriptor->field(i)->message_type()) AddMessages(message, all);
  }
}

TEST(PlanTextTest, FreeMembersNameFieldsThatExist) {
  std::set<const google::protobuf::Descriptor*> messages;
  AddMessages(v1::JobConfig::descriptor(), &messages);
  int names = 0;
  for (const google::protobuf::Descriptor* message : messages) {
    for (int i = 0; i < message->field_count(); ++i) {
      const google::protobuf::FieldDescriptor& field = *message->field(i);
      for (int k = 0; k < field.options().ExtensionSize(v1::free_member); ++k, ++names) {
        const std::string name = field.options().GetExtension(v1::free_member, k);
        ASSERT_NE(field.message_type(), nullptr) << field.full_name();
        EXPECT_NE(field.message_type()->FindFieldByName(name), nullptr) << field.full_name() << " " << name;
      }
    }
  }
  EXPECT_GT(names, 0);
}

TEST(PlanTextTest, ADefaultThatIsWrittenIsNoDifference) {
  EXPECT_EQ(
      FirstDifference(TextOf({}), TextOf({"train.lanes=8", "data.dense.transform=NONE", "checkpoint.keep_last=3"})),
      "");
}

TEST(PlanTextTest, EverySettingOfTheTrainingCounts) {
  const std::string text = TextOf({});
  for (const char* setting :
       {"train.seed=2", "train.lanes=16", "train.epochs=2", "train.max_steps=3", "train.nan_policy=SKIP_STEP",
        "train.arithmetic=AVX2", "data.batch_size=128", "data.shuffle=WINDOW", "data.drop_last=true",
        "data.ids.min_count=2", "data.dense.transform=LOG1P", "distribute.sync=false", "distribute.slice_var_up=false",
        "distribute.split_method=HASH_NAME", "distribute.trainers=4", "table[0].width=8", "deadlines.lease_s=5",
        "model.layer[4].mlp.activation=TANH", "name=other"}) {
    EXPECT_NE(FirstDifference(text, TextOf({setting})), "") << setting;
  }
}

TEST(PlanTextTest, ArithmeticIsFreeWhereNoBitsArePromised) {
  EXPECT_EQ(
      FirstDifference(TextOf({"distribute.sync=false"}), TextOf({"distribute.sync=false", "train.arithmetic=AVX2"})),
      "");
}

TEST(PlanTextTest, TheFingerprintFollowsTheText) {
  EXPECT_EQ(PlanFingerprint(TextOf({})), PlanFingerprint(TextOf({})));
  EXPECT_NE(PlanFingerprint(TextOf({})), PlanFingerprint(TextOf({"train.seed=2"})));
}

TEST(EvaluationProgramTest, IsTheForwardPart) {
  const v1::ProgramDesc evaluation = EvaluationProgram(TranspiledOf(JobOf(kDeepFm)).trainer().main);
  EXPECT_THAT(Types(evaluation), ::testing::ElementsAre("prefetch", "lookup_concat", "lookup_rows", "fm_interaction",
                                                        "fc", "fc", "fc", "elementwise_add", "elementwise_add",
                                                        "sigmoid_cross_entropy_with_logits", "sigmoid"));
  EXPECT_EQ(FindVar(evaluation.blocks(0), "deep.0.w@GRAD"), nullptr);
  EXPECT_EQ(FindVar(evaluation.blocks(0), "deep.0.w.block0"), nullptr);
  EXPECT_NE(FindVar(evaluation.blocks(0), "ctr.prediction"), nullptr);
  EXPECT_EQ(evaluation.losses(0).prediction(), "ctr.prediction");
}

}  // namespace
}  // namespace weir
