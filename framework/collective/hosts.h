// Hosts of the ranks of a group. Constant.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_HOSTS_H_
#define WEIR_FRAMEWORK_COLLECTIVE_HOSTS_H_

#include <string>
#include <vector>

namespace weir {

class Hosts {
 public:
  Hosts() = default;
  // of: number of the host of each rank, from 0. Every number up to the greatest has a rank.
  explicit Hosts(std::vector<int> of);
  // Numbers the hosts of ranks by their names, in order of the first rank of each.
  static Hosts Named(const std::vector<std::string>& names);

  int of(int rank) const { return of_[static_cast<size_t>(rank)]; }
  int count() const { return static_cast<int>(ranks_.size()); }
  // Returns the ranks of a host, ascending.
  const std::vector<int>& ranks(int host) const { return ranks_[static_cast<size_t>(host)]; }
  // Returns the number of ranks of the host that has most.
  int most_ranks() const;
  // Returns the rank of `host` through which its ranks exchange slice `rank` with the rank that owns it: that rank
  // itself on its own host, else one that has the slices of few.
  int Proxy(int host, int rank) const;
  // Returns true if there are several hosts, and one with several ranks.
  bool worth_merging() const { return count() > 1 && most_ranks() > 1; }

 private:
  std::vector<int> of_;
  std::vector<int> place_;               // of each rank on its host
  std::vector<std::vector<int>> ranks_;  // by host
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_HOSTS_H_
