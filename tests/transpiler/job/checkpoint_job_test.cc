// A job that makes predictions with the checkpoint of another.
#include "transpiler/job/checkpoint_job.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/agreement.pb.h"
#include "transpiler/job/load_job.h"
#include "transpiler/job/trained_job.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

namespace pb = google::protobuf;

constexpr char kJob[] = R"(name: "j"
data {
  train { files: "train.csv" }
  csv {
    column { name: "label" }
    column { name: "x" output: "dense" missing: "?" }
    column { name: "y" output: "dense" }
    column { name: "kind" classes { text: "a" } classes { text: "b" text: "c" } }
    column { name: "user" type: ID }
    column { name: "city" type: TEXT }
    column { name: "note" type: SKIP }
  }
  derived { name: "xb" bucketize { of: "dense[0]" boundaries: 1 boundaries: 3 } }
  derived { name: "uc" cross { of: "user" of: "city" } }
  dense { transform: LOG1P column { variable: "dense" index: 1 transform: NONE } }
  ids { shared: "user" shared: "city" }
  batch_size: 16
}
model {
  layer { name: "e" embedding { ids: "user" ids: "city" ids: "xb" ids: "uc" table: "t" pooling: SUM } }
  layer { name: "in" concat { input: "e" input: "dense" input: "kind" } }
  layer { name: "h" mlp { input: "in" sizes: 8 activation: RELU } }
  layer { name: "logit" fc { input: "h" size: 1 } }
  loss { name: "click" sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "t" width: 4 is_sparse: true is_distributed: true }
optimizer { adam { learning_rate: 0.02 } }
)";

struct Edit {
  const char *from, *to;
};

// Returns the job's text with `from` replaced by `to`. "@" in `to` marks a place and is left out: *place gets
// "job.textproto:12:5".
std::string Edited(const Edit& edit, std::string* place = nullptr) {
  std::string text = absl::StrReplaceAll(kJob, {{edit.from, edit.to}});
  EXPECT_NE(text, kJob) << edit.from;
  const size_t mark = text.find('@');
  if (mark != std::string::npos) {
    text.erase(mark, 1);
    const size_t line = static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<int64_t>(mark), '\n'));
    const size_t begin = mark == 0 ? std::string::npos : text.rfind('\n', mark - 1);
    const size_t column = begin == std::string::npos ? mark + 1 : mark - begin;
    if (place != nullptr) *place = absl::StrCat("job.textproto:", line + 1, ":", column);
  }
  return text;
}

Job JobOf(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<Job> job = ParseJob(text, "job.textproto", overrides);
  EXPECT_TRUE(job.ok()) << job.status() << "\n" << text;
  return job.ok() ? *job : Job();
}

absl::Status Checked(const Job& job, const std::string& trained = kJob) {
  std::string unknown;
  const absl::Status status = CheckSameScores(job, trained, "checkpoints/step-000000000007", &unknown);
  EXPECT_EQ(unknown, "");
  return status;
}

TEST(CheckSameScoresTest, WhatDecidesScoresIsRefusedWithItsPlace) {
  const struct {
    Edit edit;
    const char* difference;
  } edits[] = {
      {{"activation: RELU", "@activation: TANH"},
       "model.layer[2].mlp.activation was RELU in the checkpoint's job, and is TANH here"},
      {{"pooling: SUM", "@pooling: MEAN"},
       "model.layer[0].embedding.pooling was SUM in the checkpoint's job, and is MEAN here"},
      {{"pooling: SUM", "pooling: SUM @padding_id: 3"},
       "model.layer[0].embedding.padding_id was not set in the checkpoint's job, and is 3 here"},
      {{"ids: \"xb\" ids: \"uc\"", "@ids: \"uc\" ids: \"xb\""},
       "model.layer[0].embedding.ids[2] was \"xb\" in the checkpoint's job, and is \"uc\" here"},
      {{"size: 1 }", "size: 1 @bias: false }"},
       "model.layer[3].fc.bias was true in the checkpoint's job, and is false"},
      {{"transform: LOG1P", "@transform: NONE"}, "data.dense.transform was LOG1P in the checkpoint's job, and is NONE"},
      {{"index: 1 transform: NONE", "index: 1 @transform: LOG1P"},
       "data.dense.column[0].transform was NONE in the checkpoint's job, and is LOG1P here"},
      {{"boundaries: 1 boundaries: 3", "boundaries: 1 @boundaries: 5"},
       "data.derived[0].bucketize.boundaries[1] was 3 in the checkpoint's job, and is 5 here"},
      {{"of: \"user\" of: \"city\" }", "of: \"user\" of: \"city\" @seed: 4 }"},
       "data.derived[1].cross.seed was 0 in the checkpoint's job, and is 4 here"},
      // Order of the columns of an output.
      {{"column { name: \"x\" output: \"dense\" missing: \"?\" }\n    column { name: \"y\" output: \"dense\" }",
        "column { @name: \"y\" output: \"dense\" }\n    column { name: \"x\" output: \"dense\" missing: \"?\" }"},
       "data.csv.column[1].name was \"x\" in the checkpoint's job, and is \"y\" here"},
      {{"missing: \"?\"", "@missing: \"NA\""},
       "data.csv.column[1].missing[0] was not set in the checkpoint's job, and is"},
      {{"classes { text: \"b\" text: \"c\" }", "@classes { text: \"b\" }"},
       "data.csv.column[3].classes[1].text[1] was \"c\" in the checkpoint's job, and is not set here"},
      {{"name: \"user\" type: ID", "name: \"user\" @type: TEXT"},
       "data.csv.column[4].type was ID in the checkpoint's job, and is TEXT here"},
      // What is not there any more is said at what it was in.
      {{"ids { shared: \"user\" shared: \"city\" }", "@ids { shared: \"city\" }"},
       "data.ids.shared[0] was \"user\" in the checkpoint's job, and is not set here"},
      {{"shared: \"city\" }", "shared: \"city\" @empty: ZERO }"},
       "data.ids.empty was MISSING_ID in the checkpoint's job, and is ZERO here"},
      {{"shared: \"city\" }", "shared: \"city\" @min_count: 2 }"},
       "data.ids.min_count was 0 in the checkpoint's job, and is 2 here"},
      {{"is_distributed: true }", "is_distributed: true @initializer { constant {} } }"},
       "table[0].initializer was not set in the checkpoint's job, and is { constant { } } here"},
      {{"is_distributed: true }", "is_distributed: true @storage: FLOAT16 }"},
       "table[0].storage was FLOAT32 in the checkpoint's job, and is FLOAT16 here"},
      {{"optimizer {", "train { @seed: 2 }\noptimizer {"}, "train.seed was 1 in the checkpoint's job, and is 2 here"},
      {{"sigmoid_cross_entropy { logits: \"logit\"", "@square_error { input: \"logit\""},
       "model.loss[0].kind was sigmoid_cross_entropy in the checkpoint's job, and is square_error here"},
  };
  for (const auto& [edit, difference] : edits) {
    std::string place;
    const absl::Status status = Checked(JobOf(Edited(edit, &place)));
    ASSERT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << edit.to << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith(absl::StrCat(place, ": ", difference)),
                      HasSubstr("the scores would not be those of the model in checkpoints/step-000000000007; set it "
                                "back, or give --checkpoint_job")));
  }
}

TEST(CheckSameScoresTest, WhatDoesNotDecideScoresIsAccepted) {
  const Edit edits[] = {
      {"train.csv", "elsewhere/*.csv"},
      {"batch_size: 16", "batch_size: 32 shuffle: NO_SHUFFLE bad_line: SKIP prefetch_batches: 7"},
      {"csv {", "csv { separator: ';' trim: true header: false"},
      // Columns of other variables may stand anywhere, and one that nothing reads may come.
      {"    column { name: \"label\" }\n", "    column { name: \"price\" }\n    column { name: \"label\" }\n"},
      {"    column { name: \"user\" type: ID }\n    column { name: \"city\" type: TEXT }\n",
       "    column { name: \"city\" type: TEXT }\n    column { name: \"user\" type: ID }\n"},
      {"    column { name: \"note\" type: SKIP }\n", ""},
      // The order of texts with one meaning, and of names in a set.
      {"text: \"b\" text: \"c\"", "text: \"c\" text: \"b\""},
      {"shared: \"user\" shared: \"city\"", "shared: \"city\" shared: \"user\""},
      // Defaults that are written out.
      {"name: \"user\" type: ID", "name: \"user\" output: \"user\" type: ID"},
      {"size: 1 }", "size: 1 bias: true activation: IDENTITY }"},
      {"sizes: 8", "sizes: 8 dropout: 0.5 weight_initializer { constant {} }"},
      {"label: \"label\" }", "label: \"label\" } weight: 2"},
      {"name: \"click\"", "name: \"order\""},
      {"adam { learning_rate: 0.02 }", "sgd { learning_rate: 1 }"},
      {"is_distributed: true }", "is_distributed: true dict_size: 1000000 logical_shards: 16 min_value: -1 }"},
      {"is_distributed: true }", "is_distributed: true lifecycle { admit_after: 3 ttl_steps: 90 } }"},
      {"is_distributed: true }", "is_distributed: true optimizer { sgd {} } trainable: false }"},
      {"optimizer {", "distribute { servers: 3 trainers: 2 }\ntrain { epochs: 9 lanes: 4 threads: 2 }\noptimizer {"},
      {"optimizer {", "distribute { sync: false }\ncheckpoint { dir: \"c\" keep_last: 9 }\noptimizer {"},
      {"train { files: \"train.csv\" }",
       "train { files: \"train.csv\" where { of: \"user\" from: 3 } } eval { files: \"eval.csv\" }"},
  };
  for (const Edit& edit : edits) {
    const absl::Status status = Checked(JobOf(Edited(edit)));
    EXPECT_TRUE(status.ok()) << edit.to << ": " << status;
  }
}

TEST(CheckSameScoresTest, TheSeedDecidesWhereIdsMayHaveNoRow) {
  const auto with = [](const char* table, int seed) {
    return absl::StrCat(absl::StrReplaceAll(kJob, {{"is_sparse: true is_distributed: true", table}}),
                        "train { seed: ", seed, " }");
  };
  const auto checked = [&](const char* table) { return Checked(JobOf(with(table, 2)), with(table, 1)); };
  EXPECT_FALSE(checked("is_sparse: true is_distributed: true").ok());
  EXPECT_TRUE(checked("is_sparse: true is_distributed: true initializer { constant {} }").ok());
  // A row for every id is in the checkpoint.
  EXPECT_TRUE(checked("dict_size: 100").ok());
}

TEST(CheckSameScoresTest, ATableThatIsNotDistributedHasAllItsRows) {
  const auto with = [](const char* table) { return Edited({"is_sparse: true is_distributed: true", table}); };
  EXPECT_TRUE(Checked(JobOf(with("dict_size: 100 initializer { constant {} }")), with("dict_size: 100")).ok());
  EXPECT_TRUE(Checked(JobOf(with("dict_size: 100 is_sparse: true")), with("dict_size: 100")).ok());
  EXPECT_THAT(std::string(Checked(JobOf(with("dict_size: 99")), with("dict_size: 100")).message()),
              HasSubstr("table[0].dict_size was 100 in the checkpoint's job, and is 99 here"));
}

TEST(CheckSameScoresTest, AWeightIsNotTransformedAndThatDecides) {
  const Edit weighted = {"label: \"label\" }", "label: \"label\" sample_weight: \"kind\" }"};
  EXPECT_THAT(
      std::string(Checked(JobOf(Edited(weighted))).message()),
      HasSubstr("data.dense: the exemption of \"kind\" was none in the checkpoint's job, and is that of a label or "
                "weight here"));
  // The layers do not read the new weight.
  const Edit price = {"    column { name: \"label\" }\n",
                      "    column { name: \"price\" }\n    column { name: \"label\" }\n"};
  const std::string by_price =
      absl::StrReplaceAll(Edited(price), {{"label: \"label\" }", "label: \"label\" sample_weight: \"price\" }"}});
  EXPECT_TRUE(Checked(JobOf(by_price)).ok());
}

TEST(CheckSameScoresTest, OverridesAndOtherSettingsAreSaid) {
  const Job job = JobOf(kJob, {"model.layer[2].mlp.activation=TANH", "model.layer[3].fc.bias=false", "train.seed=8"});
  EXPECT_THAT(std::string(Checked(job).message()),
              AllOf(StartsWith("--set model.layer[2].mlp.activation: model.layer[2].mlp.activation was RELU"),
                    HasSubstr("is TANH here (2 more settings differ): the scores")));
}

TEST(CheckSameScoresTest, ALayerThatIsGoneIsSaidAtTheModel) {
  Job job = JobOf(kJob);
  job.config.mutable_model()->mutable_layer()->DeleteSubrange(3, 1);
  EXPECT_THAT(std::string(Checked(job).message()),
              StartsWith("job.textproto:19:1: model.layer[3] was { name: \"logit\" fc { input: \"h\" size: 1 } } in"));
}

TEST(CheckSameScoresTest, WhatCannotBeComparedIsSaid) {
  std::string unknown;
  EXPECT_TRUE(CheckSameScores(JobOf(kJob), "", "c", &unknown).ok());
  EXPECT_EQ(unknown, "the checkpoint c does not have its job, so that this one is not compared");
  EXPECT_TRUE(CheckSameScores(JobOf(kJob), "no job { at all", "c", &unknown).ok());
  EXPECT_EQ(unknown, "the job in the checkpoint c cannot be read by this build and is not compared");
  Job job = JobOf(kJob);
  job.config.clear_model();
  job.config.set_program("p.program");
  EXPECT_TRUE(CheckSameScores(job, kJob, "c", &unknown).ok());
  EXPECT_THAT(unknown, HasSubstr("what is in a file of `program`"));
  // The data are compared all the same.
  job.config.mutable_data()->mutable_dense()->set_transform(v1::DenseTransform::NONE);
  EXPECT_FALSE(CheckSameScores(job, kJob, "c", &unknown).ok());
}

// Every edit of these tests, taken back by the job in the checkpoint.
TEST(WithModelOfTest, GivesTheScoresOfTheCheckpoint) {
  const Edit edits[] = {
      {"activation: RELU", "activation: TANH"},
      {"pooling: SUM", "pooling: SUM padding_id: 3"},
      {"LOG1P", "NONE"},
      {"dense { transform: LOG1P column { variable: \"dense\" index: 1 transform: NONE } }\n", ""},
      {"boundaries: 1 boundaries: 3", "boundaries: 2"},
      {"missing: \"?\"", "missing: \"NA\" missing: \"-\""},
      {"ids { shared: \"user\" shared: \"city\" }", "ids { empty: ZERO }"},
      {"is_distributed: true }", "is_distributed: true storage: BFLOAT16 initializer { constant {} } }"},
      {"optimizer {", "train { seed: 2 }\noptimizer {"},
      {"layer { name: \"h\" mlp { input: \"in\" sizes: 8 activation: RELU } }",
       "layer { name: \"h\" fc { input: \"in\" size: 8 } }"},
      {"name: \"t\" width: 4", "name: \"u\" width: 8"},
  };
  for (const Edit& edit : edits) {
    v1::JobConfig edited;
    ASSERT_TRUE(pb::TextFormat::ParseFromString(Edited(edit), &edited));
    Job job;
    job.config = WithModelOf(JobOf(kJob).config, edited);
    EXPECT_EQ(Checked(job), absl::OkStatus()) << edit.to;
    EXPECT_NE(Checked(job, Edited(edit)), absl::OkStatus()) << edit.to;
  }
}

TEST(WithModelOfTest, FilesBatchesAndTheClusterStay) {
  const char* const kOther = R"(name: "other"
data { train { files: "t2" } eval { files: "e2" } csv { separator: ";" column { name: "z" } } batch_size: 99 }
table { name: "t" width: 9 disk { dir: "d2" } }
table { name: "v" width: 1 }
optimizer { sgd {} }
distribute { servers: 3 }
train { lanes: 2 seed: 77 }
checkpoint { dir: "c2" }
)";
  v1::JobConfig other;
  ASSERT_TRUE(pb::TextFormat::ParseFromString(kOther, &other));
  const v1::JobConfig made = WithModelOf(JobOf(kJob).config, other);
  EXPECT_EQ(made.name(), "j");
  EXPECT_EQ(made.data().train().files(0), "t2");
  EXPECT_EQ(made.data().eval().files(0), "e2");
  EXPECT_EQ(made.data().batch_size(), 99);
  EXPECT_EQ(made.data().csv().separator(), ";");
  EXPECT_EQ(made.data().csv().column_size(), 7);
  ASSERT_EQ(made.table_size(), 1);
  EXPECT_EQ(made.table(0).width(), 4);
  EXPECT_EQ(made.table(0).disk().dir(), "d2");
  EXPECT_TRUE(made.optimizer().has_adam());
  EXPECT_EQ(made.distribute().servers(), 3);
  EXPECT_EQ(made.train().lanes(), 2);
  EXPECT_EQ(made.train().seed(), 1u);
  EXPECT_EQ(made.checkpoint().dir(), "c2");
}

TEST(WithModelOfTest, ASettingThatTheCheckpointLacksIsTakenOut) {
  v1::JobConfig trained, job;
  ASSERT_TRUE(pb::TextFormat::ParseFromString("table { name: 't' lifecycle { ttl_steps: 9 } }", &trained));
  ASSERT_TRUE(pb::TextFormat::ParseFromString("table { name: 't' lifecycle { admit_after: 2 } min_value: 3 }", &job));
  EXPECT_EQ(WithModelOf(trained, job).ShortDebugString(),
            "name: \"\" table { name: \"t\" lifecycle { ttl_steps: 9 } }");
}

TEST(WithModelOfTest, AJobOfItsOwnCheckpointStaysAsItIs) {
  v1::JobConfig job;
  ASSERT_TRUE(pb::TextFormat::ParseFromString(kJob, &job));
  EXPECT_EQ(WithModelOf(job, job).SerializeAsString(), job.SerializeAsString());
}

TEST(WithModelOfTest, ParseJobSaysWhatItHasReplaced) {
  const std::string edited = Edited({"activation: RELU", "activation: TANH"});
  const absl::StatusOr<Job> job = ParseJob(edited, "job.textproto", {}, {.trained = kJob});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->config.model().layer(2).mlp().activation(), v1::RELU);
  EXPECT_EQ(job->replaced, "model.layer[2].mlp.activation was RELU, and is TANH in this job");
  EXPECT_EQ(ParseJob(kJob, "job.textproto", {}, {.trained = kJob})->replaced, "");
  EXPECT_FALSE(ParseJob(kJob, "job.textproto", {}, {.program = "p", .trained = kJob}).ok());
  EXPECT_FALSE(ParseJob(kJob, "job.textproto", {}, {.trained = "no job { at all"}).ok());
}

TEST(JobTextOfCheckpointTest, ADamagedNewestCheckpointIsPassedOver) {
  namespace fs = std::filesystem;
  const std::string dir = absl::StrCat(::testing::TempDir(), "/job_text");
  fs::remove_all(dir);
  EXPECT_EQ(JobTextOfCheckpoint(dir).status().code(), absl::StatusCode::kNotFound);
  std::vector<std::string> paths;
  for (const int64_t step : {1, 2, 3}) {
    v1::CheckpointManifest manifest;
    manifest.set_job("j");
    manifest.set_step(step);
    if (step != 3) manifest.set_job_text(absl::StrCat("name: 'j' # ", step));
    const absl::StatusOr<std::string> temporary = BeginCheckpoint(dir, step);
    ASSERT_TRUE(temporary.ok()) << temporary.status();
    const absl::StatusOr<std::string> path = PublishCheckpoint(dir, *temporary, manifest);
    ASSERT_TRUE(path.ok()) << path.status();
    paths.push_back(*path);
  }
  EXPECT_THAT(std::string(JobTextOfCheckpoint(dir).status().message()), HasSubstr("does not have its job"));
  fs::remove_all(paths[2]);
  EXPECT_EQ(JobTextOfCheckpoint(dir).value(), "name: 'j' # 2");
  EXPECT_EQ(JobTextOfCheckpoint(paths[0] + "/").value(), "name: 'j' # 1");
  fs::resize_file(paths[1] + "/MANIFEST", 90);
  EXPECT_EQ(JobTextOfCheckpoint(dir).value(), "name: 'j' # 1");
  EXPECT_EQ(JobTextOfCheckpoint(paths[1]).status().code(), absl::StatusCode::kDataLoss);
  fs::resize_file(paths[0] + "/MANIFEST", 0);
  EXPECT_EQ(JobTextOfCheckpoint(dir).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(JobTextOfCheckpoint(dir).status().message()), HasSubstr("step-000000000002"));
}

// Adds the fields that neither say what they decide nor are inside one that does.
void AddUndecided(const pb::Descriptor& message, bool decided, std::set<std::pair<const pb::Descriptor*, bool>>* seen,
                  std::set<std::string>* undecided) {
  if (!seen->emplace(&message, decided).second) return;
  for (int i = 0; i < message.field_count(); ++i) {
    const pb::FieldDescriptor& field = *message.field(i);
    const bool has = decided || field.options().HasExtension(v1::decides);
    const bool is_message = field.message_type() != nullptr && field.message_type()->field_count() > 0;
    if (!has && (!is_message || field.message_type()->full_name() == "google.protobuf.Any")) {
      undecided->insert(field.full_name());
    }
    if (is_message) AddUndecided(*field.message_type(), has, seen, undecided);
  }
}

// A new field of the job must say what it decides.
TEST(DecidesTest, EveryFieldOfTheJobSaysIt) {
  std::set<std::pair<const pb::Descriptor*, bool>> seen;
  std::set<std::string> undecided;
  AddUndecided(*v1::JobConfig::descriptor(), false, &seen, &undecided);
  EXPECT_THAT(undecided, IsEmpty()) << "give each of them the option (decides), see proto/agreement.proto";
  // The walk does find fields without the option.
  seen.clear();
  AddUndecided(*v1::Wire::descriptor(), false, &seen, &undecided);
  EXPECT_THAT(undecided, testing::ElementsAre("weir.v1.Wire.pull", "weir.v1.Wire.push"));
}

// Names in options are those of fields that exist.
TEST(DecidesTest, MembersAndKeysExist) {
  std::set<std::pair<const pb::Descriptor*, bool>> messages;
  std::set<std::string> unused;
  AddUndecided(*v1::JobConfig::descriptor(), false, &messages, &unused);
  int members = 0, keys = 0;
  for (const auto& [message, decided] : messages) {
    for (int i = 0; i < message->field_count(); ++i) {
      const pb::FieldDescriptor& field = *message->field(i);
      for (int k = 0; k < field.options().ExtensionSize(v1::course_member); ++k, ++members) {
        const pb::Descriptor* inside = field.message_type();
        for (const absl::string_view name : absl::StrSplit(field.options().GetExtension(v1::course_member, k), '.')) {
          ASSERT_NE(inside, nullptr) << field.full_name();
          const pb::FieldDescriptor* const found = inside->FindFieldByName(std::string(name));
          ASSERT_NE(found, nullptr) << field.full_name() << " " << name;
          inside = found->message_type();
        }
      }
      const std::string& known_by = field.options().GetExtension(v1::known_by);
      if (known_by.empty()) continue;
      ++keys;
      EXPECT_TRUE(field.is_repeated()) << field.full_name();
      if (known_by == ".") {
        EXPECT_EQ(field.cpp_type(), pb::FieldDescriptor::CPPTYPE_STRING) << field.full_name();
        continue;
      }
      for (const absl::string_view name : absl::StrSplit(known_by, ' ')) {
        EXPECT_NE(field.message_type()->FindFieldByName(std::string(name)), nullptr) << field.full_name();
      }
    }
  }
  EXPECT_GT(members, 0);
  EXPECT_GT(keys, 5);
}

}  // namespace
}  // namespace weir
