#include "trainer/session/same_inputs.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/graph/program_text.h"

namespace weir {
namespace {

// Returns the text by which two inputs are compared. Names of data files do not count.
std::string Compared(const Input& input) {
  if (!input.is_data) return input.text;
  std::string compared;
  for (const absl::string_view line : absl::StrSplit(input.text, '\n')) {
    const size_t colon = line.rfind(": ");
    if (colon != absl::string_view::npos) absl::StrAppend(&compared, line.substr(colon), "\n");
  }
  return compared;
}

std::string Hashes(absl::Span<const Input> inputs) {
  return absl::StrJoin(inputs, " ", [](std::string* out, const Input& input) {
    absl::StrAppend(out, absl::Hex(StableHash(Compared(input)), absl::kZeroPad16));
  });
}

// Returns a text such as "line 12 is 'Out=y <- relu(X=x)' here, 'Out=y <- tanh(X=x)' there".
std::string FirstLineDifference(std::string_view here, std::string_view there) {
  const std::vector<std::string> ours = absl::StrSplit(absl::string_view(here.data(), here.size()), '\n');
  const std::vector<std::string> theirs = absl::StrSplit(absl::string_view(there.data(), there.size()), '\n');
  size_t i = 0;
  while (i < std::min(ours.size(), theirs.size()) && ours[i] == theirs[i]) ++i;
  const auto at = [i](const std::vector<std::string>& lines) -> std::string {
    if (i >= lines.size()) return "missing";
    constexpr size_t kShown = 200;
    const absl::string_view line = absl::StripAsciiWhitespace(lines[i]);
    return absl::StrCat("'", line.substr(0, kShown), line.size() > kShown ? "..." : "", "'");
  };
  return absl::StrCat("line ", i + 1, " is ", at(ours), " here, ", at(theirs), " there");
}

absl::Status Differ(const Input& input, size_t other, size_t first, const std::string& difference) {
  return absl::FailedPreconditionError(absl::StrCat(
      "trainer ", other, input.is_data ? " sees other data than trainer " : " runs another program than trainer ",
      first, ": ", input.name, ": ", difference, " ('here' is trainer ", other, "). ",
      input.is_data ? "All trainers cut the same files into streams: give every host the same copy"
                    : "Give all trainers the same --program and --startup_program"));
}

}  // namespace

Input DataInput(const std::string& field, const DataSet& data) {
  return {.name = field, .text = data.Description(), .is_data = true};
}

std::vector<Input> ProgramInputs(const Programs& programs) {
  return {{.name = "program", .text = ProgramText(programs.main)},
          {.name = "startup program", .text = ProgramText(programs.startup)}};
}

absl::Status CheckSameInputs(Client* client, int trainer, int trainers, absl::Span<const Input> inputs) {
  if (trainers == 1) return absl::OkStatus();
  const std::string mine = Hashes(inputs);
  const bool takes_over = client->member().TakesOver().has_value();
  ASSIGN_OR_RETURN(std::vector<std::string> said,
                   client->board().Exchange("inputs", mine, /*kept=*/true, /*until_stop=*/true));
  // The exchange has returned the hashes of the dead trainer that this one replaces.
  if (takes_over) said[static_cast<size_t>(trainer)] = mine;
  // A trainer that died early in async has sent nothing.
  const auto first = std::find_if(said.begin(), said.end(), [](const std::string& s) { return !s.empty(); });
  const auto differs = [&](const std::string& s) { return !s.empty() && s != *first; };
  const auto other = std::find_if(said.begin(), said.end(), differs);
  if (other == said.end()) return absl::OkStatus();
  const size_t a = static_cast<size_t>(other - said.begin()), b = static_cast<size_t>(first - said.begin());
  const std::vector<std::string> hashes = absl::StrSplit(*other, ' '), of_first = absl::StrSplit(*first, ' ');
  size_t i = 0;
  while (i + 1 < std::min({hashes.size(), of_first.size(), inputs.size()}) && hashes[i] == of_first[i]) ++i;
  // The other trainers passed this check at the start and cannot send their texts now.
  if (takes_over) return Differ(inputs[i], a, b, absl::StrCat("hash ", hashes[i], " here, ", of_first[i], " there"));
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, client->board().Exchange("inputs.text", inputs[i].text));
  const std::string difference =
      inputs[i].is_data ? FirstDataDifference(texts[a], texts[b]) : FirstLineDifference(texts[a], texts[b]);
  return Differ(inputs[i], a, b, difference.empty() ? "what they differ in is gone now" : difference);
}

}  // namespace weir
