// A job on example files that the convert program made of its data: the same bits as on the text where both are dealt
// to streams alike, on every cluster and after a resume, and the same predictions.

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::string Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class ExampleFilesTest : public SlotJobTest {
 protected:
  static std::string JobOn(const std::string& train, const std::string& eval) {
    return absl::StrReplaceAll(kSlotJob,
                               {{"files: \"train.txt\"", absl::StrCat("files: \"", train, "\"")},
                                {"files: \"eval.txt\"", absl::StrCat("files: \"", eval, "\"")},
                                {"epochs: 8", "epochs: 2"},
                                {"input: \"fields\" input: \"x\"", "input: \"fields\" input: \"x\" input: \"drawn\""},
                                {"  layer { name: \"input\"",
                                 R"(  layer { name: "drawn" embedding { ids: "none" table: "weights" pooling: SUM } }
  layer { name: "input")"},
                                {"  batch_size: 32", R"(  dense { transform: STANDARDIZE }
  derived { name: "a_x_b" cross { of: "a" of: "b" } }
  derived { name: "none" negatives { of: "a" count: 2 uniform { items: 50 } } }
  batch_size: 32)"}});
  }
  // Runs the program; returns its exit code. What it prints is in the file "log".
  static int Convert(const std::string& flags) {
    return WEXITSTATUS(std::system(absl::StrCat("tools/convert ", flags, " > ", Path("log"), " 2>&1").c_str()));
  }
  static void WriteJob(const std::string& text) { std::ofstream(Path("job.textproto")) << text; }
};

TEST_F(ExampleFilesTest, TrainToTheBitsOfTheTextOnEveryCluster) {
  const std::string text_job = JobOn("train.txt", "eval.txt");
  WriteJob(text_job);
  for (const char* const source : {"train", "eval"}) {
    ASSERT_EQ(
        Convert(absl::StrCat("--job=", Path("job.textproto"), " --output=", Path("parsed"), " --source=", source)), 0)
        << Read(Path("log"));
  }
  EXPECT_THAT(Read(Path("log")), HasSubstr("examples=1000 skipped_lines=0"));
  ASSERT_EQ(Convert(absl::StrCat("--describe=", Path("parsed/eval.txt.examples"))), 0);
  EXPECT_THAT(Read(Path("log")), HasSubstr("format=1 examples=1000 blocks="));
  EXPECT_THAT(Read(Path("log")), HasSubstr("cat.b                    ids=1000 empty=0 most=1"));

  const std::vector<std::string> digests = {"train.digest_every_steps=10"};
  const InProcessResult text = Run({.job_text = text_job, .overrides = digests});
  const std::string job = JobOn("parsed/train.txt.examples", "parsed/eval.txt.examples");
  const auto same = [&](const char* what, InProcessRun other) {
    other.job_text = job;
    other.overrides.push_back(digests[0]);
    const InProcessResult result = Run(std::move(other));
    EXPECT_EQ(result.digests, text.digests) << what;
    EXPECT_EQ(EvalLines(result), EvalLines(text)) << what;
  };
  ASSERT_GT(text.digests.size(), 5u);
  same("one process", {});
  same("a cluster", {.servers = 2, .trainers = 3, .threads = 2});

  Run({.job_text = job, .overrides = {CheckpointIn("resumed"), "train.max_steps=50"}});
  const InProcessResult resumed =
      Run({.job_text = job, .overrides = {CheckpointIn("resumed")}, .servers = 2, .trainers = 2, .resume = true});
  EXPECT_EQ(EvalLines(resumed), EvalLines(text));

  const auto scores = [&](const std::string& of, const std::string& output) {
    const absl::StatusOr<int64_t> scored =
        PredictInProcess({.job_text = of, .directory = dir_}, {.checkpoints = Path("resumed"), .output = Path(output)});
    EXPECT_TRUE(scored.ok()) << scored.status();
    return Read(Path(output));
  };
  EXPECT_EQ(scores(job, "parsed.scores"), scores(text_job, "text.scores"));
}

TEST_F(ExampleFilesTest, WrongUseOfTheProgramIsNamed) {
  WriteJob(JobOn("train.txt", "eval.txt"));
  const std::string job = absl::StrCat("--job=", Path("job.textproto"));
  const auto said = [&](const std::string& flags) {
    EXPECT_EQ(Convert(flags), 2) << flags;
    return Read(Path("log"));
  };
  EXPECT_EQ(said(""), "convert: --job and --output must be given, or --describe\n");
  EXPECT_EQ(said(absl::StrCat(job, " --output=", Path("x"), " --source=test")),
            "convert: --source must be train or eval, got 'test'\n");
  EXPECT_EQ(said(absl::StrCat("--describe=", Path("train.txt"))),
            absl::StrCat("convert: ", Path("train.txt"), ": is no example file\n"));
  // A line that does not parse ends it, and is skipped where the job says so; nothing half is left.
  std::ofstream(Path("bad.txt")) << SlotLine(1) << "\nno line\n" << SlotLine(2) << "\n";
  WriteJob(JobOn("bad.txt", "eval.txt"));
  EXPECT_THAT(said(absl::StrCat(job, " --output=", Path("bad"))), HasSubstr("convert: bad.txt:2: slot 'label'"));
  EXPECT_EQ(Read(Path("bad/bad.txt.examples")), "");
  EXPECT_EQ(Convert(absl::StrCat(job, " --output=", Path("bad"), " --set data.bad_line=SKIP")), 0);
  EXPECT_THAT(Read(Path("log")), HasSubstr("files=1 examples=2 skipped_lines=1"));
}

// A frequency is a float that the file does not hold: records must not be taken as they are.
TEST_F(ExampleFilesTest, WithAFrequencyTheyTrainToTheBitsOfTheText) {
  const auto job = [](const std::string& train, const std::string& eval) {
    return absl::StrReplaceAll(
        kSlotJob, {{"files: \"train.txt\"", absl::StrCat("files: \"", train, "\"")},
                   {"files: \"eval.txt\"", absl::StrCat("files: \"", eval, "\"")},
                   {"epochs: 8", "epochs: 1"},
                   {"digest_every_steps: 100", "digest_every_steps: 10"},
                   {"input: \"fields\" input: \"x\"", "input: \"fields\" input: \"x\" input: \"often\""},
                   {"  batch_size: 32", "  derived { name: \"often\" frequency { of: \"a\" } }\n  batch_size: 32"}});
  };
  WriteJob(job("train.txt", "eval.txt"));
  for (const char* const source : {"train", "eval"}) {
    ASSERT_EQ(Convert(absl::StrCat("--job=", Path("job.textproto"), " --output=", Path("often"), " --source=", source)),
              0)
        << Read(Path("log"));
  }
  const InProcessResult text = Run({.job_text = job("train.txt", "eval.txt")});
  const InProcessResult parsed = Run({.job_text = job("often/train.txt.examples", "often/eval.txt.examples")});
  ASSERT_GT(text.digests.size(), 3u);
  EXPECT_EQ(parsed.digests, text.digests);
  EXPECT_EQ(EvalLines(parsed), EvalLines(text));
}

// An example file has numbers of classes, and no texts to learn them of.
TEST_F(ExampleFilesTest, ClassesAreLearnedOfTextAlone) {
  std::ofstream(Path("classes.csv")) << "label,x\nyes,1\nno,2\nyes,3\n";
  const auto job = [](const std::string& files, const std::string& classes) {
    return absl::StrCat("name: 'c' data { train { files: '", files, "' } csv { column { name: 'label' ", classes,
                        " } column { name: 'x' } } batch_size: 8 }\n",
                        "model { layer { name: 'out' fc { input: 'x' size: 1 } } ",
                        "loss { sigmoid_cross_entropy { logits: 'out' label: 'label' } } } optimizer { sgd {} }");
  };
  const std::string convert = absl::StrCat("--job=", Path("job.textproto"), " --output=", Path("classes"));
  WriteJob(job("classes.csv", "learn_classes: true"));
  EXPECT_EQ(Convert(convert), 2);
  EXPECT_THAT(Read(Path("log")), HasSubstr("data.csv.column[0]: 'label': an example file holds numbers of classes, and "
                                           "these are yet to be learned: list the classes in the job (classes)"));
  WriteJob(job("classes.csv", "classes { text: 'no' } classes { text: 'yes' }"));
  ASSERT_EQ(Convert(convert), 0) << Read(Path("log"));
  EXPECT_EQ(
      Run({.job_text = job("classes/*.examples", "classes { text: 'no' } classes { text: 'yes' }")}).summary.examples,
      3);
  EXPECT_EQ(Run({.job_text = job("classes.csv", "learn_classes: true")}).summary.examples, 3);
  EXPECT_THAT(
      std::string(TryRun({.job_text = job("classes/*.examples", "learn_classes: true")}).status().message()),
      HasSubstr("data.csv.column[0]: 'label': classes/classes.csv.examples is an example file, which holds numbers and "
                "no texts to learn classes of: list the classes (classes), as the job it was converted with"));
}

// Files of a partitioned data set have one name in many directories, and their examples the values of those.
TEST_F(ExampleFilesTest, PartitionsBecomeVariablesOfTheirExamples) {
  for (const int day : {20240105, 20240106, 20240107}) {
    const std::string in = absl::StrCat("days/dt=", day);
    std::filesystem::create_directories(Path(in));
    WriteSlotLines(Path(in + "/part-0"), day % 10 * 200, day % 10 * 200 + 300);
  }
  const auto job = [](const std::string& files) {
    return absl::StrReplaceAll(JobOn(files, files),
                               {{"  batch_size: 32", "  partition { name: \"dt\" type: ID }\n  batch_size: 32"},
                                {"ids: \"cat\" table: \"vectors\"", "ids: \"cat\" ids: \"dt\" table: \"vectors\""}});
  };
  WriteJob(job("days/*/part-0"));
  ASSERT_EQ(Convert(absl::StrCat("--job=", Path("job.textproto"), " --output=", Path("packed"))), 0)
      << Read(Path("log"));
  EXPECT_THAT(Read(Path("log")), HasSubstr("dt=20240106/part-0.examples examples=300"));
  ASSERT_EQ(Convert(absl::StrCat("--describe=", Path("packed/dt=20240106/part-0.examples"))), 0);
  EXPECT_THAT(Read(Path("log")), HasSubstr("partition {"));
  // The values are in the files, wherever they lie.
  std::filesystem::create_directories(Path("flat"));
  for (const int day : {5, 6, 7}) {
    std::filesystem::copy_file(Path(absl::StrCat("packed/dt=2024010", day, "/part-0.examples")),
                               Path(absl::StrCat("flat/", day, ".examples")));
  }
  const std::vector<std::string> digests = {"train.digest_every_steps=10"};
  const InProcessResult text = Run({.job_text = job("days/*/part-0"), .overrides = digests});
  const InProcessResult packed = Run({.job_text = job("flat/*"), .overrides = digests, .servers = 2, .trainers = 2});
  ASSERT_GT(text.digests.size(), 3u);
  EXPECT_EQ(packed.digests, text.digests);
  EXPECT_EQ(EvalLines(packed), EvalLines(text));
}

// Training and evaluation data may have files of one name.
TEST_F(ExampleFilesTest, TheProgramReplacesNoFileUnasked) {
  for (const char* const directory : {"A", "B"}) std::filesystem::create_directory(Path(directory));
  for (const char* const file : {"A/part-0", "B/part-0", "B/part-1"}) {
    std::ofstream(Path(file)) << SlotLine(file[0]) << "\n" << SlotLine(file[7]) << "\n";
  }
  WriteJob(JobOn("A/part-*", "B/part-*"));
  const std::string flags = absl::StrCat("--job=", Path("job.textproto"), " --output=", Path("unasked"));
  ASSERT_EQ(Convert(flags), 0) << Read(Path("log"));
  const std::string train = Read(Path("unasked/part-0.examples"));
  EXPECT_EQ(Convert(flags + " --source=eval"), 2);
  EXPECT_EQ(Read(Path("log")), absl::StrCat("convert: ", Path("unasked/part-0.examples"),
                                            " is there already, and B/part-0 would become "
                                            "it; name another --output, or give --overwrite if it may be replaced\n"));
  EXPECT_EQ(Read(Path("unasked/part-0.examples")), train);
  EXPECT_EQ(Read(Path("unasked/part-1.examples")), "") << "nothing is written of the other files either";
  ASSERT_EQ(Convert(flags + " --source=eval --overwrite"), 0) << Read(Path("log"));
  EXPECT_NE(Read(Path("unasked/part-0.examples")), train);
}

}  // namespace
}  // namespace weir
