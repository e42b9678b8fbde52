#include "framework/collective/hosts.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "glog/logging.h"

namespace weir {

Hosts::Hosts(std::vector<int> of) : of_(std::move(of)) {
  for (size_t rank = 0; rank < of_.size(); ++rank) {
    CHECK_GE(of_[rank], 0);
    const size_t host = static_cast<size_t>(of_[rank]);
    if (ranks_.size() <= host) ranks_.resize(host + 1);
    place_.push_back(static_cast<int>(ranks_[host].size()));
    ranks_[host].push_back(static_cast<int>(rank));
  }
  for (const std::vector<int>& ranks : ranks_) CHECK(!ranks.empty()) << "a host without ranks";
}

Hosts Hosts::Named(const std::vector<std::string>& names) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const std::string& name : names) {
    hosts.push_back(numbers.emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return Hosts(std::move(hosts));
}

int Hosts::most_ranks() const {
  size_t most = 0;
  for (const std::vector<int>& ranks : ranks_) most = std::max(most, ranks.size());
  return static_cast<int>(most);
}

int Hosts::Proxy(int host, int rank) const {
  if (of(rank) == host) return rank;
  const std::vector<int>& ranks = ranks_[static_cast<size_t>(host)];
  return ranks[static_cast<size_t>(place_[static_cast<size_t>(rank)]) % ranks.size()];
}

}  // namespace weir
