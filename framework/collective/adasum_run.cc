#include "framework/collective/adasum_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/base/status_macros.h"

namespace weir {

namespace {

constexpr int kAddends = 0, kProducts = 1, kResults = 2;

// Returns the pairs of nodes that are combined, by level of the tree: those of one level do not depend on each other.
std::vector<std::vector<LaneAdd>> LevelsOf(const std::vector<AddendNode>& nodes, int lanes) {
  std::vector<LaneRange> present;
  present.reserve(nodes.size());
  for (const AddendNode& node : nodes) present.push_back(node.lanes);
  std::vector<std::vector<LaneAdd>> levels;
  std::vector<size_t> level_of(nodes.size());
  for (const LaneAdd& add : TreeAdds(present, lanes)) {
    size_t& left = level_of[static_cast<size_t>(add.left)];
    const size_t level = std::max(left, level_of[static_cast<size_t>(add.right)]);
    if (level == levels.size()) levels.emplace_back();
    levels[level].push_back(add);
    left = level + 1;
  }
  return levels;
}

}  // namespace

AdasumRun::AdasumRun(Operation* operation, Options options)
    : operation_(*operation),
      options_(std::move(options)),
      element_bytes_(static_cast<int64_t>(DTypeSize(options_.dtype))) {
  int64_t begin = 0;
  for (size_t s = 0; s < options_.segments.size(); ++s) {
    const int64_t end = begin + options_.segments[s];
    for (; begin < end; begin += kAdasumBlock) blocks_.push_back({s, begin, std::min(kAdasumBlock, end - begin)});
    begin = end;
  }
  // Rank r has the blocks that begin in the r-th part of the values.
  size_t block = 0;
  for (int r = 0; r <= operation_.size(); ++r) {
    // Not begin * r / size, which could overflow.
    const int64_t border = begin / operation_.size() * r + std::min<int64_t>(r, begin % operation_.size());
    while (block < blocks_.size() && (r == operation_.size() || blocks_[block].begin < border)) ++block;
    begins_.push_back(block);
  }
  const size_t first = begins_[static_cast<size_t>(operation_.rank())];
  const size_t end = begins_[static_cast<size_t>(operation_.rank()) + 1];
  if (first == end) return;
  own_begin_ = blocks_[first].begin;
  own_count_ = blocks_[end - 1].begin + blocks_[end - 1].count - own_begin_;
}

std::vector<AdasumRun::Part> AdasumRun::PartsOf(int rank, uint64_t present) const {
  std::vector<Part> parts;
  for (size_t b = begins_[static_cast<size_t>(rank)]; b < begins_[static_cast<size_t>(rank) + 1]; ++b) {
    const Block& block = blocks_[b];
    if ((present >> block.segment & 1) == 0) continue;
    if (!parts.empty() && parts.back().begin + parts.back().count == block.begin) {
      parts.back().count += block.count;
    } else {
      parts.push_back({block.begin, block.count});
    }
  }
  return parts;
}

char* AdasumRun::ValuesOf(int node, const Block& block) {
  return values_.data.get() + Bytes(node * own_count_ + block.begin - own_begin_);
}

absl::Status AdasumRun::ExchangeAddends() {
  Flows flows(&operation_, options_.message_bytes);
  const int rank = operation_.rank(), size = operation_.size();
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    int64_t number = 0;
    for (const LaneAddend& addend : options_.addends) {
      for (const Part& part : PartsOf(peer, addend.present)) {
        flows.Send(peer, kAddends, static_cast<const char*>(addend.values) + Bytes(part.begin), Bytes(part.count),
                   /*after=*/nullptr, number);
        number += flows.Messages(Bytes(part.count));
      }
    }
  }
  std::vector<int64_t> numbers(static_cast<size_t>(size));
  for (size_t n = 0; n < all_.nodes.size(); ++n) {
    const AddendNode& node = all_.nodes[n];
    char* const to = values_.data.get() + Bytes(static_cast<int64_t>(n) * own_count_);
    for (const Part& part : PartsOf(rank, node.present)) {
      char* const at = to + Bytes(part.begin - own_begin_);
      if (node.rank == rank) {
        const void* const own = options_.addends[static_cast<size_t>(node.index)].values;
        std::memcpy(at, static_cast<const char*>(own) + Bytes(part.begin), static_cast<size_t>(Bytes(part.count)));
        continue;
      }
      int64_t& number = numbers[static_cast<size_t>(node.rank)];
      flows.Receive(node.rank, kAddends, at, Bytes(part.count), number);
      number += flows.Messages(Bytes(part.count));
    }
  }
  return flows.Run();
}

AdasumRun::Products AdasumRun::OwnProducts(const std::vector<LaneAdd>& adds) {
  Products products;
  const auto rank = static_cast<size_t>(operation_.rank());
  for (const LaneAdd& add : adds) {
    const uint64_t both =
        all_.nodes[static_cast<size_t>(add.left)].present & all_.nodes[static_cast<size_t>(add.right)].present;
    for (size_t b = begins_[rank]; b < begins_[rank + 1]; ++b) {
      if ((both >> blocks_[b].segment & 1) == 0) continue;
      products.push_back(ProductsOfBlock(options_.dtype, ValuesOf(add.left, blocks_[b]),
                                         ValuesOf(add.right, blocks_[b]), blocks_[b].count));
    }
  }
  return products;
}

absl::Status AdasumRun::ExchangeProducts(const std::vector<LaneAdd>& adds, int level, std::vector<Products>* by_rank) {
  const int rank = operation_.rank(), size = operation_.size();
  by_rank->resize(static_cast<size_t>(size));
  const Products& own = (*by_rank)[static_cast<size_t>(rank)] = OwnProducts(adds);
  // A level has fewer messages than a number has values left: a message of 24 bytes is of 4096 elements.
  const int64_t first = int64_t{level} << 24;
  Flows flows(&operation_, std::max<int64_t>(options_.message_bytes, sizeof(AdasumProducts)));
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    size_t count = 0;
    for (const LaneAdd& add : adds) {
      const uint64_t both =
          all_.nodes[static_cast<size_t>(add.left)].present & all_.nodes[static_cast<size_t>(add.right)].present;
      for (size_t b = begins_[static_cast<size_t>(peer)]; b < begins_[static_cast<size_t>(peer) + 1]; ++b) {
        count += both >> blocks_[b].segment & 1;
      }
    }
    Products& theirs = (*by_rank)[static_cast<size_t>(peer)];
    theirs.resize(count);
    flows.Receive(peer, kProducts, reinterpret_cast<char*>(theirs.data()),
                  static_cast<int64_t>(count * sizeof(AdasumProducts)), first);
    flows.Send(peer, kProducts, reinterpret_cast<const char*>(own.data()),
               static_cast<int64_t>(own.size() * sizeof(AdasumProducts)), /*after=*/nullptr, first);
  }
  return flows.Run();
}

absl::Status AdasumRun::CombineLevel(const std::vector<LaneAdd>& adds, int level) {
  std::vector<Products> by_rank;
  RETURN_IF_ERROR(ExchangeProducts(adds, level, &by_rank));
  std::vector<size_t> next(by_rank.size());  // product of each rank
  const auto rank = static_cast<size_t>(operation_.rank());
  for (const LaneAdd& add : adds) {
    uint64_t& left = all_.nodes[static_cast<size_t>(add.left)].present;
    const uint64_t right = all_.nodes[static_cast<size_t>(add.right)].present;
    Products whole(options_.segments.size());
    // Ranks have their blocks in the order of the blocks.
    for (size_t r = 0; r < by_rank.size(); ++r) {
      for (size_t b = begins_[r]; b < begins_[r + 1]; ++b) {
        const size_t segment = blocks_[b].segment;
        if ((left & right) >> segment & 1) whole[segment] += by_rank[r][next[r]++];
      }
    }
    for (size_t b = begins_[rank]; b < begins_[rank + 1]; ++b) {
      const Block& block = blocks_[b];
      char *const to = ValuesOf(add.left, block), *const from = ValuesOf(add.right, block);
      if ((left & right) >> block.segment & 1) {
        AdasumValues(options_.dtype, whole[block.segment], to, from, block.count, to);
      } else if (right >> block.segment & 1) {
        std::memcpy(to, from, static_cast<size_t>(Bytes(block.count)));
      }
    }
    left |= right;
  }
  return absl::OkStatus();
}

absl::Status AdasumRun::SendResults() {
  Flows flows(&operation_, options_.message_bytes);
  const int rank = operation_.rank(), size = operation_.size();
  for (int i = 0; i < size; ++i) {
    const int peer = (rank + i) % size;
    int64_t number = 0, their_number = 0;
    for (const Part& part : PartsOf(rank, all_.present)) {
      const char* const result = values_.data.get() + Bytes(part.begin - own_begin_);
      if (peer != rank && Reads(peer)) {
        flows.Send(peer, kResults, result, Bytes(part.count), /*after=*/nullptr, number);
        number += flows.Messages(Bytes(part.count));
      } else if (peer == rank && Reads(rank)) {
        std::memcpy(options_.out + Bytes(part.begin), result, static_cast<size_t>(Bytes(part.count)));
      }
    }
    if (peer == rank || !Reads(rank)) continue;
    for (const Part& part : PartsOf(peer, all_.present)) {
      flows.Receive(peer, kResults, options_.out + Bytes(part.begin), Bytes(part.count), their_number);
      their_number += flows.Messages(Bytes(part.count));
    }
  }
  return flows.Run();
}

absl::Status AdasumRun::Run() {
  RETURN_IF_ERROR(operation_.SendHeaders({}));
  std::vector<v1::CollectiveHeader> headers;
  RETURN_IF_ERROR(operation_.ReceiveHeaders(&headers));
  absl::StatusOr<AddendNodes> all = AddendNodesOf(headers, options_.segments.size(), options_.lanes);
  RETURN_IF_ERROR(operation_.Fail(all.status()));
  all_ = *std::move(all);
  if (all_.present == 0) return operation_.EndHeaders();
  const auto bytes = static_cast<size_t>(Bytes(own_count_)) * all_.nodes.size();
  values_ = operation_.memory()->Take(std::max<size_t>(1, bytes));
  RETURN_IF_ERROR(ExchangeAddends());
  const std::vector<std::vector<LaneAdd>> levels = LevelsOf(all_.nodes, options_.lanes);
  for (size_t level = 0; level < levels.size(); ++level) {
    RETURN_IF_ERROR(CombineLevel(levels[level], static_cast<int>(level)));
  }
  // All addends are sent, so that results may come to their memory.
  RETURN_IF_ERROR(SendResults());
  operation_.memory()->Give(std::move(values_));
  return operation_.EndHeaders();
}

}  // namespace weir
