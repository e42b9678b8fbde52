#include "tests/testing/transcript.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace weir {

namespace {

constexpr char kBelow[] = "\n  ";   // before each line of an answer below its call
constexpr char kBeside[] = " => ";  // before an answer of one line beside it, in as many columns as sources have
constexpr size_t kColumns = 120;

std::vector<std::string> LinesOf(const std::string& file) {
  std::ifstream in(file);
  EXPECT_TRUE(in.good()) << file << ": cannot be read";
  std::stringstream text;
  text << in.rdbuf();
  std::vector<std::string> lines = absl::StrSplit(text.str(), '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

int64_t NumberOf(const std::string& text) {
  int64_t number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text, &number)) << "\"" << text << "\" is no number";
  return number;
}

std::string WithAnswer(const std::string& call, const std::string& answer) {
  if (answer.empty()) return call;
  const std::string beside = absl::StrCat(call, kBeside, answer);
  if (beside.size() <= kColumns && !absl::StrContains(answer, '\n')) return beside;
  return absl::StrCat(call, kBelow, absl::StrReplaceAll(answer, {{"\n", kBelow}}));
}

// Returns the path to write the file to, and not to compare it; empty: none.
std::string UpdatePath(const std::string& file) {
  if (std::getenv("WEIR_UPDATE") == nullptr) return "";
  const char* const root = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  EXPECT_NE(root, nullptr) << "WEIR_UPDATE needs `bazel run`, which names the tree to write to";
  return root == nullptr ? "" : absl::StrCat(root, "/", file);
}

}  // namespace

Command::Command(std::string_view line) : line_(line) {
  std::string part;
  bool quoted = false;
  for (const char c : line_ + " ") {
    if (c == '"') quoted = !quoted;
    if (c == ' ' && !quoted) {
      if (!part.empty()) rest_.push_back(std::exchange(part, ""));
    } else if (c != '"') {
      part += c;
    }
  }
  if (rest_.empty()) return;
  name_ = rest_.front();
  rest_.erase(rest_.begin());
}

std::string Command::Word(const std::string& otherwise) {
  const auto word =
      std::find_if(rest_.begin(), rest_.end(), [](const std::string& each) { return !absl::StrContains(each, '='); });
  if (word == rest_.end()) return otherwise;
  std::string taken = std::move(*word);
  rest_.erase(word);
  return taken;
}

int64_t Command::Number(int64_t otherwise) {
  const std::string word = Word();
  return word.empty() ? otherwise : NumberOf(word);
}

bool Command::Has(std::string_view word) { return std::erase(rest_, word) > 0; }

std::vector<std::string>::const_iterator Command::Find(std::string_view key) const {
  const std::string begin = absl::StrCat(absl::string_view(key.data(), key.size()), "=");
  return std::find_if(rest_.begin(), rest_.end(),
                      [&begin](const std::string& each) { return absl::StartsWith(each, begin); });
}

bool Command::Sets(std::string_view key) const { return Find(key) != rest_.end(); }

std::string Command::Text(std::string_view key, const std::string& otherwise) {
  const auto each = Find(key);
  if (each == rest_.end()) return otherwise;
  std::string value = each->substr(key.size() + 1);
  rest_.erase(each);
  return value;
}

int64_t Command::Number(std::string_view key, int64_t otherwise) { return Sets(key) ? NumberOf(Text(key)) : otherwise; }

absl::Duration Command::Time(std::string_view key, absl::Duration otherwise) {
  return Sets(key) ? TimeOf(Text(key)) : otherwise;
}

std::vector<int64_t> Command::Numbers(std::string_view key) {
  std::vector<int64_t> numbers;
  for (const std::string& each : std::vector<std::string>(absl::StrSplit(Text(key), ',', absl::SkipEmpty()))) {
    numbers.push_back(NumberOf(each));
  }
  return numbers;
}

absl::Duration TimeOf(const std::string& text) {
  absl::Duration time;
  EXPECT_TRUE(absl::ParseDuration(text, &time)) << "\"" << text << "\" is no time";
  return time;
}

std::string Show(const absl::Status& status) {
  if (status.ok()) return "ok";
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
}

void RunTranscript(const std::string& file, const std::function<std::string(Command&)>& run) {
  const std::string update = UpdatePath(file);
  const std::vector<std::string> lines = LinesOf(file);
  std::vector<std::string> written;
  for (size_t i = 0; i < lines.size();) {
    const int number = static_cast<int>(i) + 1;
    std::string wanted = lines[i++];
    if (wanted.empty() || wanted[0] == '#') {
      written.push_back(wanted);
      continue;
    }
    Command command(wanted.substr(0, wanted.find(kBeside)));
    for (; i < lines.size() && absl::StartsWith(lines[i], " "); ++i) absl::StrAppend(&wanted, "\n", lines[i]);
    const std::string got = WithAnswer(command.line(), run(command));
    if (!command.rest().empty()) {
      ADD_FAILURE_AT(file.c_str(), number)
          << command.line() << ": no command reads " << absl::StrJoin(command.rest(), " ");
    }
    if (update.empty() && got != wanted)
      ADD_FAILURE_AT(file.c_str(), number) << "got:\n" << got << "\nwanted:\n" << wanted;
    written.push_back(got);
  }
  if (!update.empty()) std::ofstream(update) << absl::StrJoin(written, "\n") << "\n";
}

}  // namespace weir
