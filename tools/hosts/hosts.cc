#include "tools/hosts/hosts.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "tools/hosts/host_names.h"

namespace weir {
namespace {

constexpr int kMostSlots = 65536;
constexpr size_t kLongestName = 253;  // of the domain name system

// A part of a text and where it stands.
struct Token {
  std::string text;
  // "hosts.txt:3:9: " or "-H: column 9: ".
  std::string where;
};

absl::Status Wrong(const Token& token, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(token.where, "'", token.text, "' ", what));
}

absl::StatusOr<int> Slots(const Token& token, std::string_view number) {
  int slots = 0;
  if (!absl::SimpleAtoi(absl::string_view(number.data(), number.size()), &slots) || slots < 1 || slots > kMostSlots) {
    return Wrong(
        token, absl::StrCat("must have a number of slots from 1 to ", kMostSlots, ", got '", std::string(number), "'"));
  }
  return slots;
}

// Returns the name without the brackets of an IPv6 address.
absl::StatusOr<std::string> Name(const Token& token, std::string_view text) {
  if (text.starts_with('[')) {
    const std::string address(text.substr(1, text.size() - 2));
    if (!text.ends_with(']') || text.size() < 3 || !IsAddress(address) || address.find(':') == std::string::npos) {
      return Wrong(token, "is no IPv6 address in brackets, such as [fe80::1]");
    }
    return address;
  }
  if (text.find('@') != std::string_view::npos) {
    return Wrong(token, "has a user; write it into ~/.ssh/config, or give --ssh_options='-l USER'");
  }
  const bool name = !text.empty() && text.size() <= kLongestName && text.front() != '-' &&
                    std::all_of(text.begin(), text.end(), [](unsigned char c) {
                      return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
                    });
  if (!name) return Wrong(token, "is no host name or address");
  return std::string(text);
}

// "ps-1", "ps-1:4", "[fe80::1]:4".
absl::StatusOr<Host> NameAndSlots(const Token& token) {
  const std::string_view text = token.text;
  if (text.find("://") != std::string_view::npos) {
    return Wrong(token, "is a URL; a host is a name or an address without a scheme, such as ps-1 or ps-1:4");
  }
  const size_t bracket = text.starts_with('[') ? text.find(']') : 0;
  if (bracket == std::string_view::npos) return Wrong(token, "has a [ without its ]");
  const size_t colon = text.find(':', bracket);
  Host host;
  ASSIGN_OR_RETURN(host.name, Name(token, text.substr(0, colon)));
  if (colon == std::string_view::npos) return host;
  const std::string_view rest = text.substr(colon + 1);
  if (rest.find(':') != std::string_view::npos) {
    return Wrong(token, "has more than one ':'; an IPv6 address stands in brackets, [fe80::1]:4");
  }
  ASSIGN_OR_RETURN(host.slots, Slots(token, rest));
  return host;
}

// Adds a host, or its slots to those of its first mention.
absl::Status Add(const Token& token, Host host, std::vector<Host>* hosts) {
  const auto first =
      std::find_if(hosts->begin(), hosts->end(), [&](const Host& each) { return each.name == host.name; });
  if (first == hosts->end()) {
    hosts->push_back(std::move(host));
    return absl::OkStatus();
  }
  if (!host.address.empty() && host.address != first->address) {
    return Wrong(token, absl::StrCat("has address ", host.address, ", but '",
                                     first->address.empty() ? first->name : first->address, "' before"));
  }
  first->slots = std::min(kMostSlots, first->slots + host.slots);
  return absl::OkStatus();
}

// Words of a line and their columns, from 1.
std::vector<std::pair<std::string, size_t>> WordsOf(std::string_view line) {
  std::vector<std::pair<std::string, size_t>> words;
  for (size_t i = 0; i < line.size();) {
    if (absl::ascii_isspace(static_cast<unsigned char>(line[i]))) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < line.size() && !absl::ascii_isspace(static_cast<unsigned char>(line[end]))) ++end;
    words.emplace_back(line.substr(i, end - i), i + 1);
    i = end;
  }
  return words;
}

// One line of a hostfile, without its comment.
absl::Status AddLine(std::string_view line, const std::string& where, std::vector<Host>* hosts) {
  const std::vector<std::pair<std::string, size_t>> words = WordsOf(line);
  if (words.empty()) return absl::OkStatus();
  const auto token = [&](size_t i) { return Token{words[i].first, absl::StrCat(where, words[i].second, ": ")}; };
  ASSIGN_OR_RETURN(Host host, NameAndSlots(token(0)));
  const bool has_slots = words[0].first.find(':', words[0].first.find(']') + 1) != std::string::npos;
  std::set<std::string> seen;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i].first;
    const size_t equals = word.find('=');
    const std::string key = equals == std::string::npos ? "" : word.substr(0, equals);
    if (key != "slots" && key != "address") {
      return Wrong(token(i), "is not known here; after a host stand slots=N and address=HOST");
    }
    if (!seen.insert(key).second || (key == "slots" && has_slots)) {
      return Wrong(token(i), absl::StrCat("gives ", key, " a second time"));
    }
    const std::string value = word.substr(equals + 1);
    if (key == "slots") {
      ASSIGN_OR_RETURN(host.slots, Slots(token(i), value));
    } else {
      ASSIGN_OR_RETURN(host.address, Name(token(i), value));
    }
  }
  return Add(token(0), std::move(host), hosts);
}

}  // namespace

absl::StatusOr<std::vector<Host>> ParseHostList(std::string_view text) {
  std::vector<Host> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const Token token{std::string(text.substr(begin, end - begin)), absl::StrCat("-H: column ", begin + 1, ": ")};
    ASSIGN_OR_RETURN(Host host, NameAndSlots(token));
    RETURN_IF_ERROR(Add(token, std::move(host), &hosts));
    begin = end + 1;
  }
  return hosts;
}

absl::StatusOr<std::vector<Host>> ParseHostfile(std::string_view text, const std::string& file) {
  std::vector<Host> hosts;
  int line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view whole = text.substr(begin, end - begin);
    RETURN_IF_ERROR(AddLine(whole.substr(0, whole.find('#')), absl::StrCat(file, ":", ++line, ":"), &hosts));
    begin = end + 1;
  }
  if (hosts.empty()) return absl::InvalidArgumentError(absl::StrCat(file, " has no host; write one a line"));
  return hosts;
}

absl::StatusOr<std::vector<int>> DealTrainers(const std::vector<Host>& hosts, int trainers, const std::string& source) {
  const int64_t slots = std::accumulate(hosts.begin(), hosts.end(), int64_t{0},
                                        [](int64_t sum, const Host& host) { return sum + host.slots; });
  if (trainers > slots) {
    const std::string each = absl::StrJoin(
        hosts, ", ", [](std::string* out, const Host& host) { absl::StrAppend(out, host.name, " ", host.slots); });
    return absl::InvalidArgumentError(absl::StrCat(trainers, " trainers need as many slots, ", source, " has ", slots,
                                                   " (", each, "); add hosts or slots, or start fewer trainers"));
  }
  int64_t left = trainers < 0 ? slots : trainers;
  std::vector<int> dealt;
  for (const Host& host : hosts) {
    dealt.push_back(static_cast<int>(std::min<int64_t>(left, host.slots)));
    left -= dealt.back();
  }
  return dealt;
}

}  // namespace weir
