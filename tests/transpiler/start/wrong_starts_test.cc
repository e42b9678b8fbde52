// Starts that are wrong or leave something open: each is an error with its place and a way out, and nothing is written.
// Where an error lists lines to add, the start is made again with them, and succeeds.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/start/start_testing.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// How a start that a row has is mended.
enum class WayOut {
  // The lines that the error lists are added.
  kLines,
  // The row has the text that should stand in start_from.
  kOther,
  // The error says what to do outside of the job.
  kOutside,
};

struct WrongStart {
  std::string name;
  // The job without start_from, and the texts inside each start_from; "DIR" is the directory of all checkpoints.
  std::string job;
  std::vector<std::string> from;
  std::vector<std::string> message;
  WayOut way_out = WayOut::kLines;
  // kOther: in place of `from`.
  std::vector<std::string> mended = {};
  // Place of the error: "job.textproto:LINE:COLUMN", where LINE is that of this text.
  std::string at = "start_from {";
};

class WrongStartsTest : public StartTest {
 protected:
  std::string TextOf(const std::string& job, const std::vector<std::string>& from) const {
    std::string text = job;
    for (const std::string& each : from) absl::StrAppend(&text, "start_from {\n", each, "\n}\n");
    return absl::StrReplaceAll(text, {{"DIR", dir_}});
  }
  static absl::Status Try(const std::string& text) {
    const absl::StatusOr<Job> job = ParseJob(text, "job.textproto", {});
    if (!job.ok()) return job.status();
    const absl::Status planned = PlanStart(*job).status();
    // Names of train.freeze are checked by a pass.
    return planned.ok() && job->config.train().freeze_size() > 0 ? Transpile(*job).status() : planned;
  }

  // Returns the texts of start_from with the lines that an error lists behind "add to start_from[N]:".
  static std::vector<std::string> WithLines(std::vector<std::string> from, const std::string& message) {
    size_t index = 0;
    bool listed = false;
    for (const absl::string_view line : absl::StrSplit(message, '\n')) {
      if (const size_t at = line.find("start_from["); line.size() > 2 && line.substr(line.size() - 2) == "]:") {
        const size_t last = line.rfind("start_from[");
        EXPECT_NE(at, absl::string_view::npos) << message;
        EXPECT_TRUE(absl::SimpleAtoi(line.substr(last + 11, line.size() - last - 13), &index)) << line;
      } else if (absl::StartsWith(line, "    ")) {
        listed = true;
        absl::StrAppend(&from.at(index), "\n", line);
      }
    }
    EXPECT_TRUE(listed) << "no lines to add: " << message;
    return from;
  }

  // "job.textproto:31:3" of a text in the job.
  static std::string PlaceOf(const std::string& text, const std::string& part) {
    const size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part << "\n" << text;
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const size_t begin = text.rfind('\n', at);
    return absl::StrCat("job.textproto:", line, ":", at - (begin == std::string::npos ? 0 : begin + 1) + 1, ": ");
  }

  // Every path below the directory of checkpoints with its size and the moment of its last change.
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_)) {
      files.push_back(absl::StrCat(entry.path().string(), " ", entry.is_regular_file() ? entry.file_size() : 0, " ",
                                   entry.last_write_time().time_since_epoch().count()));
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  void Expect(const std::vector<WrongStart>& rows) const {
    const std::vector<std::string> before = Files();
    for (const WrongStart& row : rows) {
      SCOPED_TRACE(row.name);
      const std::string text = TextOf(row.job, row.from);
      const absl::Status wrong = Try(text);
      ASSERT_FALSE(wrong.ok());
      const std::string message(wrong.message());
      EXPECT_EQ(message.find(PlaceOf(text, absl::StrReplaceAll(row.at, {{"DIR", dir_}}))), 0u) << message;
      for (const std::string& part : row.message) {
        EXPECT_THAT(message, HasSubstr(absl::StrReplaceAll(part, {{"DIR", dir_}})));
      }
      if (row.way_out == WayOut::kOutside) continue;
      const std::vector<std::string> mended = row.way_out == WayOut::kLines ? WithLines(row.from, message) : row.mended;
      const absl::Status right = Try(TextOf(row.job, mended));
      EXPECT_TRUE(right.ok()) << right << "\nmended after: " << message;
    }
    EXPECT_EQ(Files(), before);
  }
};

constexpr char kFromOld[] = "checkpoint: \"DIR/old\"";
std::string FromOld(const std::string& more) { return absl::StrCat(kFromOld, "\n", more); }

const std::string kUser = "    column { name: \"user\" type: TEXT output: \"cat\" }\n";
const std::string kTower = Edited({{"\"deep\" mlp", "\"tower\" mlp"}, {"input: \"deep\"", "input: \"tower\""}});
const std::string kLinear = Edited({{"  layer { name: \"logit\" add { input: \"wide\"",
                                     "  layer { name: \"linear\" fc { input: \"dense\" size: 1 } }\n"
                                     "  layer { name: \"logit\" add { input: \"linear\" input: \"wide\""}});
const std::string kShop = Edited({{kUser, kNewColumn + kUser}});

TEST_F(WrongStartsTest, WhatIsInOneJobOnlyIsListedAsLines) {
  const std::string no_wide =
      Edited({{"  layer { name: \"wide\" embedding { ids: \"cat\" table: \"weights\" pooling: "
               "SUM } }\n",
               ""},
              {"input: \"wide\" ", ""},
              {"table { name: \"weights\" width: 1 is_sparse: true is_distributed: true }\n", ""}});
  Expect({
      {"a column is added", kShop, {kFromOld}, {"start_from[0]: in no checkpoint, and not said to be new: cat.shop"}},
      {"a column is left out",
       Edited({{kUser, ""}}),
       {kFromOld},
       {"of checkpoint DIR/old/step-000000000007 in nothing of this job, and not said to be dropped: cat.user"}},
      {"a column has another name",
       Edited({{"\"user\" type: TEXT", "\"person\" type: TEXT"}}),
       {kFromOld},
       {"not said to be new: cat.person", "not said to be dropped: cat.user"}},
      {"a table is wider", Edited({{"width: 4", "width: 6"}}), {kFromOld}, {"not said to be new: ", "vectors"}},
      {"a table is narrower", Edited({{"width: 4", "width: 2"}}), {kFromOld}, {"not said to be dropped: ", "vectors"}},
      {"a layer is wider", Edited({{"[16, 8]", "[24, 8]"}}), {kFromOld}, {"not said to be new: ", "deep.0"}},
      {"a layer is narrower", Edited({{"[16, 8]", "[12, 8]"}}), {kFromOld}, {"not said to be dropped: ", "deep.0"}},
      {"a layer of its own is added", kLinear, {kFromOld}, {"not said to be new: linear.b, linear.w"}},
      {"a table and its layer are left out", no_wide, {kFromOld}, {"not said to be dropped: ", "weights"}},
      {"a layer has another name, without rename",
       kTower,
       {kFromOld},
       {"not said to be new: ", "tower.0.w", "not said to be dropped: ", "deep.0.w", "Correct rename, or add"}},
      {"rename to a name that is not here",
       kTower,
       {FromOld(R"x(rename { from: "deep(.*)" to: "towr\\1" })x")},
       {"not said to be new: ", "tower.0.w", "not said to be dropped: ", "towr.0.w"}},
      {"rename of a part of a name only",
       kTower,
       {FromOld(R"x(rename { from: "deep\\.0(.*)" to: "tower.0\\1" })x")},
       {"not said to be new: ", "tower.1.w", "not said to be dropped: ", "deep.1.w"}},
      {"tables of different widths are merged",
       Edited({{"table: \"vectors\"", "table: \"weights\""},
               {"table { name: \"vectors\" width: 4 is_sparse: true is_distributed: true }\n", ""}}),
       {FromOld(R"x(rename { from: "weights|vectors" to: "weights" })x")},
       {"not said to be dropped: ", "weights"}},
  });
}

TEST_F(WrongStartsTest, InputsThatAreReadAnotherWayAreOthers) {
  Expect({
      {"a transform",
       Edited({{"  batch_size", "  dense { column { index: 1 transform: LOG1P } }\n  batch_size"}}),
       {kFromOld},
       {"'dense.hour' is {; transform: LOG1P} here and was {; } in DIR/old/step-000000000007",
        "so it is another input"}},
      {"how ids are kept",
       Edited({{"  batch_size", "  ids { min_count: 2 }\n  batch_size"}}),
       {kFromOld},
       {"'cat.item' is {", "so it is another input", R"(drop: "earlier\\ cat\\.item")"}},
      {"the type of a column, by which its ids are made",
       Edited({{"\"item\" type: TEXT", "\"item\" type: ID"}}),
       {kFromOld},
       {"'cat.item' is {", "type: ID", "so it is another input"}},
  });
}

TEST_F(WrongStartsTest, PatternsThatNameNothingAreRefused) {
  Expect({
      {"a misspelt rename",
       kTower,
       {FromOld(R"x(rename { from: "deap(.*)" to: "tower\\1" })x")},
       {"start_from[0].rename[0].from: 'deap(.*)' matches nothing of checkpoint DIR/old/step-000000000007; there are "},
       WayOut::kOther,
       {FromOld(R"x(rename { from: "deep(.*)" to: "tower\\1" })x")},
       "from: \"deap"},
      {"rename of a column of ids",
       Edited({{"\"user\" type: TEXT", "\"person\" type: TEXT"}}),
       {FromOld(R"x(rename { from: "cat.user" to: "cat.person" })x")},
       {"start_from[0].rename[0].from: 'cat.user' is a column of ids, which depend on its name, so it cannot be "
        "renamed: "
        "name it by drop, and the column of this job by new"},
       WayOut::kOther,
       {FromOld(R"x(new: "cat.person" drop: "cat.user")x")},
       "from: \"cat.user"},
      {"a misspelt new",
       kShop,
       {FromOld("new: \"cat.shopp\"")},
       {"start_from[0].new: 'cat.shopp' matches nothing that is new in this job (did you mean 'cat.shop'?)"},
       WayOut::kOther,
       {FromOld("new: \"cat.shop\"")},
       "new: \"cat.shopp\""},
      {"a misspelt drop",
       Edited({{kUser, ""}}),
       {FromOld("drop: \"cat.uzer\"")},
       {"start_from[0].drop: 'cat.uzer' matches nothing of checkpoint", "(did you mean 'cat.user'?)"},
       WayOut::kOther,
       {FromOld("drop: \"cat.user\"")},
       "drop: \"cat.uzer\""},
      {"a take of nothing",
       kOld,
       {FromOld("take: \"depe.*\"")},
       {"start_from[0].take: 'depe.*' matches nothing of checkpoint"},
       WayOut::kOther,
       {kFromOld},
       "take: \"depe.*\""},
      {"new of what the checkpoint gives",
       kOld,
       {FromOld("new: \"deep\\\\.0\\\\.w\"")},
       {"start_from[0].new: 'deep\\.0\\.w' is not new: DIR/old/step-000000000007 gives 'deep.0.w'"},
       WayOut::kLines,
       {},
       "new: \"deep"},
      {"drop of what this job has",
       kOld,
       {FromOld("drop: \"vectors\"")},
       {"start_from[0].drop: 'vectors' is not left out: this job has 'vectors', too"},
       WayOut::kLines,
       {},
       "drop: \"vectors\""},
      {"drop beside take",
       kOld,
       {FromOld("take: \"deep.*\" drop: \"vectors\""), kFromOld},
       {"start_from[0].drop: 'vectors' matches nothing of what take names, and take says already that all else is not "
        "taken: leave it out"},
       WayOut::kOther,
       {FromOld("take: \"deep.*\""), kFromOld},
       "drop: \"vectors\""},
      {"freeze of nothing",
       Edited({{"optimizer {", "train { freeze: \"depe.*\" }\noptimizer {"}}),
       {kFromOld},
       {"train.freeze[0] 'depe.*' matches no parameter and no table"},
       WayOut::kOutside,
       {},
       "freeze:"},
  });
}

TEST_F(WrongStartsTest, TextsThatAreNoPatternsAreRefused) {
  const auto row = [](const std::string& name, const std::string& more, const std::string& message,
                      const std::string& at) {
    return WrongStart{name, kOld, {FromOld(more)}, {message}, WayOut::kOther, {kFromOld}, at};
  };
  Expect({
      row("new", "new: \"(\"", "start_from[0].new[0]: '(' is no regular expression: missing )", "new:"),
      row("drop", "drop: \"*\"", "start_from[0].drop[0]: '*' is no regular expression: no argument", "drop:"),
      row("take", "take: \"[a\"", "start_from[0].take[0]: '[a' is no regular expression: missing ]", "take:"),
      row("an empty pattern", "drop: \"\"", "start_from[0].drop[0]: the pattern is empty, and no name is", "drop:"),
      row("rename.from", R"x(rename { from: "a(?=b)" to: "c" })x",
          "start_from[0].rename[0].from: 'a(?=b)' is no regular expression", "from: \"a"),
      row("a group that there is not", R"(rename { from: "deep" to: "\\1" })",
          "start_from[0].rename[0].to: '\\1': ", "to: \"\\"),
      row("rename to nothing", "rename { from: \"deep.*\" }", "start_from[0].rename[0].to: is empty, and no name is",
          "rename {"),
      row("an unknown word", "new_values: ZEROS", "new_values", "ZEROS"),
      row("a misspelt field", "droped: \"a\"", "unknown field 'droped' (did you mean 'drop'?)", "droped"),
  });
}

TEST_F(WrongStartsTest, TwoSourcesOfOneNameAreRefused) {
  WriteCheckpoint("other", kOld);
  Expect({
      {"two parameters get one name",
       kOld,
       {FromOld(R"x(rename { from: "deep.0.b" to: "deep.1.b" })x")},
       {"start_from[0].rename[0]: 'deep.0.b' and 'deep.1.b' of checkpoint DIR/old/step-000000000007 are both "
        "'deep.1.b' here, and only tables can be merged"},
       WayOut::kOther,
       {FromOld(R"x(rename { from: "deep.1.b" to: "unused" } rename { from: "deep.0.b" to: "deep.0.b" } drop: "unused"
                    new: "deep.1.b")x")},
       "rename {"},
      {"two checkpoints give one parameter",
       kOld,
       {kFromOld, "checkpoint: \"DIR/other\" take: \"deep.*\""},
       {"'deep.0.w' is taken from start_from[1] and given by start_from[0]: let that one take less"},
       WayOut::kOther,
       {"checkpoint: \"DIR/other\" take: \"deep.*\"", kFromOld}},
      {"the same checkpoint twice",
       kOld,
       {kFromOld, "checkpoint: \"DIR/old/step-000000000007\""},
       {"start_from[1].checkpoint: is the checkpoint of start_from[0], which gives all that this job takes: say by "
        "take "
        "what each of them gives, or leave one out"},
       WayOut::kOther,
       {FromOld("take: \"deep.*\""), kFromOld},
       "checkpoint: \"DIR/old/step"},
      {"new values of two kinds",
       kShop,
       {FromOld("new: \"cat.shop\" new_values: ZERO take: \"deep.*\""), kFromOld},
       {"start_from[1].new_values: is INITIAL, and that of start_from[0] is ZERO: give all the same"},
       WayOut::kOther,
       {FromOld("new: \"cat.shop\" new_values: ZERO take: \"deep.*\""), FromOld("new_values: ZERO")},
       "start_from {\ncheckpoint: \"DIR/old\"\n}"},
  });
}

TEST_F(WrongStartsTest, CheckpointsThatCannotBeReadAreNamed) {
  const std::string step = "/step-000000000007";
  std::filesystem::create_directories(dir_ + "/empty");
  WriteCheckpoint("damaged", kOld);
  std::ofstream(absl::StrCat(dir_, "/damaged", step, "/MANIFEST"), std::ios::app) << "step: 8\n";
  WriteCheckpoint("future", kOld, {.edit = [](v1::CheckpointManifest* manifest) {
                    manifest->set_format_version(99);
                    manifest->set_build("weir 9.0");
                  }});
  WriteCheckpoint("cut", kOld);
  std::filesystem::resize_file(absl::StrCat(dir_, "/cut", step, "/", ShardFileName(0)), 10);
  WriteCheckpoint("apart", kOld, {.edit = [](v1::CheckpointManifest* manifest) { manifest->set_per_host(true); }});
  std::filesystem::remove(absl::StrCat(dir_, "/apart", step, "/", ShardFileName(0)));
  const std::string advice = ". Name a step that is complete, or a directory of checkpoints";
  const auto row = [&](const std::string& name, const std::string& path, const std::string& message) {
    const std::string field = absl::StrCat("checkpoint: \"", path, "\"");
    return WrongStart{name,           kOld,       {field}, {"start_from[0].checkpoint: ", message, advice},
                      WayOut::kOther, {kFromOld}, field};
  };
  Expect({
      {"none is named",
       kOld,
       {"new: \"a\""},
       {"start_from[0].checkpoint: is missing: name a step of a checkpoint, or a directory of checkpoints"},
       WayOut::kOther,
       {kFromOld}},
      row("a directory that is not there", "DIR/nowhere", "there is no DIR/nowhere"),
      row("a step that is not there", "DIR/old/step-000000000008", "there is no DIR/old/step-000000000008"),
      row("a directory without checkpoints", "DIR/empty", "there is no complete checkpoint in DIR/empty"),
      row("a file", absl::StrCat("DIR/old", step, "/MANIFEST"), "MANIFEST"),
      row("a manifest that was changed", absl::StrCat("DIR/damaged", step),
          "does not have the checksum of its first line: it was cut or changed"),
      row("the newest of a directory was changed", "DIR/damaged",
          "there is no complete checkpoint in DIR/damaged; the newest was refused: "),
      row("a format of the future", absl::StrCat("DIR/future", step), "has format 99; this build reads up to "),
      row("a shard that was cut", absl::StrCat("DIR/cut", step), "has 10 bytes, the manifest says "),
      row("a shard of another host", absl::StrCat("DIR/apart", step),
          "is missing: the checkpoint was written with a directory per host; copy the shards of all hosts into one"),
      {"the directory of this job's own checkpoints",
       Edited({{"optimizer {", "checkpoint { dir: \"DIR/old\" }\noptimizer {"}}),
       {kFromOld},
       {"start_from[0].checkpoint: 'DIR/old' is in this job's checkpoint.dir, whose checkpoints a fresh run sets "
        "aside: give this job a checkpoint.dir of its own, or go on with --resume"},
       WayOut::kOutside,
       {},
       "checkpoint: \"DIR/old\""},
  });
}

TEST_F(WrongStartsTest, WhatCannotBeMatchedIsBegunAnew) {
  const std::string layers = R"(  layer { name: "past" embedding { ids: "history" table: "vectors" sequence: 5 } }
  layer { name: "unit" gru { input: "past" size: 3 } }
)";
  const std::string unit = Edited({{"  }\n  batch_size",
                                    "    column { name: \"history\" type: ID list: \" \" }\n"
                                    "  }\n  batch_size"}},
                                  Between(layers, "unit"));
  WriteCheckpoint("unit", unit);
  WriteCheckpoint("bare", kOld, {.with_job = false});
  Expect({
      {"elements that are known by their places",
       Edited({{"width: 4", "width: 6"}}, unit),
       {"checkpoint: \"DIR/unit\" new: \"vectors\""},
       {"'unit.w' cannot be matched: its elements are known by their places in ", "of operator gru"}},
      {"a checkpoint without its job",
       Edited({{"[16, 8]", "[24, 8]"}}),
       {"checkpoint: \"DIR/bare\""},
       {"'deep.0.w' is [10, 24] in this job and [10, 16] in DIR/bare/step-000000000007, whose job this build cannot "
        "read: name it by new here and by drop there"}},
  });
}

TEST_F(WrongStartsTest, NewPartsThatCannotBeSilentAreNamed) {
  const std::string mean = Edited({{"table: \"weights\" pooling: SUM", "table: \"weights\" pooling: MEAN"}});
  WriteCheckpoint("mean", mean);
  const std::string only_fm = Edited({{"concat { input: \"fields\" input: \"dense\" }", "scale { input: \"dense\" }"}});
  WriteCheckpoint("only_fm", only_fm);
  const std::string normed = Edited({{"  layer { name: \"deep\" mlp { input: \"input\"",
                                      "  layer { name: \"normed\" layer_norm { input: \"input\" } }\n"
                                      "  layer { name: \"deep\" mlp { input: \"normed\""}});
  WriteCheckpoint("normed", normed);
  const auto row = [](const std::string& name, const std::string& job, const std::string& checkpoint,
                      const std::string& new_name, const std::string& message) {
    const std::string from = absl::StrCat("checkpoint: \"DIR/", checkpoint, "\" new: \"", new_name, "\"");
    return WrongStart{name,
                      job,
                      {absl::StrCat(from, "\nnew_values: ZERO")},
                      {"start_from[0].new_values: ", message,
                       ": begin with new_values: INITIAL, or have a layer of their own read the new parts"},
                      WayOut::kOther,
                      {absl::StrCat(from, "\nnew_values: INITIAL")},
                      "new_values: ZERO"};
  };
  Expect({
      row("a slot of a mean", Edited({{kUser, kNewColumn + kUser}}, mean), "mean", "cat.shop",
          "change what the others"),
      row("new columns that would never learn", Edited({{"width: 4", "width: 6"}}, only_fm), "only_fm", "vectors",
          "then they have no gradient and never learn"),
      row("a column in front of a layer_norm", Edited({{kUser, kNewColumn + kUser}}, normed), "normed", "cat.shop",
          "new elements change what the others become"),
      row("a branch that ends in a sigmoid",
          Replaced(kLinear, "fc { input: \"dense\" size: 1 }", "fc { input: \"dense\" size: 1 activation: SIGMOID }"),
          "old", "linear.*", "cannot be 0 at first"),
  });
}

}  // namespace
}  // namespace weir
