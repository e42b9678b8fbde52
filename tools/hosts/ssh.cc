#include "tools/hosts/ssh.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir {

std::string ShellQuote(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    // A quote ends the quoted part, stands escaped between two parts, and begins the next.
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "'";
}

absl::StatusOr<std::vector<std::string>> SplitWords(std::string_view text) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < text.size();
    if (escapes) {
      word = word.value_or("") + text[++i];
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word->push_back(c);
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      word = word.value_or("");
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (word.has_value()) words.push_back(std::move(*word));
      word.reset();
    } else {
      word = word.value_or("") + c;
    }
  }
  if (quote != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(text), "' has a ", std::string(1, quote), " without its end"));
  }
  if (word.has_value()) words.push_back(*std::move(word));
  return words;
}

std::vector<std::string> SshCommand(const SshSettings& settings, const std::string& host,
                                    const std::vector<std::string>& command) {
  std::vector<std::string> line = {settings.program, "-T", "-o", "BatchMode=yes"};
  if (settings.port > 0) line.insert(line.end(), {"-p", absl::StrCat(settings.port)});
  line.insert(line.end(), settings.options.begin(), settings.options.end());
  const int64_t seconds = std::max<int64_t>(1, absl::ToInt64Seconds(settings.timeout));
  // ssh asks three times, and waits for the third answer as long as between two.
  const int64_t interval = std::max<int64_t>(1, absl::ToInt64Seconds(settings.lost_after / 4));
  for (const std::string& option :
       {absl::StrCat("ConnectTimeout=", seconds), absl::StrCat("ServerAliveInterval=", interval),
        std::string("ServerAliveCountMax=3"), std::string("ClearAllForwardings=yes"),
        std::string("ControlPath=none")}) {
    line.insert(line.end(), {"-o", option});
  }
  line.insert(line.end(), {"--", host});
  std::vector<std::string> words;
  words.reserve(command.size());
  for (const std::string& word : command) words.push_back(ShellQuote(word));
  line.push_back("exec " + absl::StrJoin(words, " "));
  return line;
}

}  // namespace weir
