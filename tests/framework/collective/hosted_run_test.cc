// Collective operations among ranks that share hosts: the bits are those without hosts, for random hosts, lanes, absent
// addends and segments, and fewer bytes leave the hosts.

#include "framework/collective/hosted_run.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/collective/on_ranks.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMessageBytes = 256;

// Counts what a rank sends to ranks of other hosts, without headers.
class CountingMesh : public Mesh {
 public:
  CountingMesh(Mesh* inner, const Hosts* hosts) : inner_(*inner), hosts_(*hosts) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string Describe(int rank) const override { return inner_.Describe(rank); }
  std::unique_ptr<Transfer> Send(int peer, uint64_t tag, const void* data, size_t bytes) override {
    if (hosts_.of(peer) != hosts_.of(rank()) && bytes != kOperationHeaderBytes) bytes_ += static_cast<int64_t>(bytes);
    return inner_.Send(peer, tag, data, bytes);
  }
  std::unique_ptr<Transfer> Receive(int peer, uint64_t tag, void* data, size_t bytes) override {
    return inner_.Receive(peer, tag, data, bytes);
  }
  void Abort(const absl::Status& status) override { inner_.Abort(status); }
  int64_t bytes() const { return bytes_; }

 private:
  Mesh& inner_;
  const Hosts& hosts_;
  std::atomic<int64_t> bytes_{0};
};

// One random reduction, and what every rank brings.
struct Case {
  int ranks = 1, lanes = 1;
  DType dtype = v1::FLOAT32;
  Reduction reduction = Reduction::kSum;
  bool in_place = false;
  std::vector<int64_t> segments;
  int64_t count = 0;
  Hosts hosts;
  // By rank and addend.
  std::vector<std::vector<std::vector<char>>> memory;
  std::vector<std::vector<LaneRange>> nodes;
  std::vector<std::vector<uint64_t>> present;
};

void Fill(DType dtype, std::mt19937_64* random, std::vector<char>* bytes) {
  const size_t element = DTypeSize(dtype);
  for (size_t at = 0; at < bytes->size(); at += element) {
    const double real =
        std::ldexp(static_cast<double>((*random)() % 2000001) - 1e6, static_cast<int>((*random)() % 24) - 30);
    if (dtype == v1::FLOAT32) {
      const float value = (*random)() % 50 == 0 ? -0.0F : static_cast<float>(real);
      std::memcpy(bytes->data() + at, &value, element);
    } else if (dtype == v1::FLOAT64) {
      std::memcpy(bytes->data() + at, &real, element);
    } else {
      const int32_t value = static_cast<int32_t>((*random)());
      std::memcpy(bytes->data() + at, &value, element);
    }
  }
}

Case RandomCase(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
  Case c;
  c.ranks = 2 + below(8);
  c.lanes = c.ranks + below(20);
  c.dtype = std::vector<DType>{v1::FLOAT32, v1::FLOAT32, v1::FLOAT64, v1::INT32}[static_cast<size_t>(below(4))];
  const std::vector<Reduction> reductions = {Reduction::kSum, Reduction::kAverage, Reduction::kMin, Reduction::kMax,
                                             Reduction::kProduct};
  c.reduction = c.dtype == v1::INT32 ? Reduction::kSum : reductions[static_cast<size_t>(below(5))];
  c.in_place = below(2) == 0;
  for (int i = 0, n = 1 + below(6); i < n; ++i) c.segments.push_back(below(4) == 0 ? below(3) : below(600));
  c.count = std::accumulate(c.segments.begin(), c.segments.end(), int64_t{0});
  std::vector<std::string> names;
  const int hosts = 1 + below(static_cast<uint64_t>(c.ranks));
  for (int r = 0; r < c.ranks; ++r) {
    names.push_back(absl::StrCat(below(static_cast<uint64_t>(hosts))));
  }
  c.hosts = Hosts::Named(names);
  for (int r = 0; r < c.ranks; ++r) {
    c.nodes.emplace_back();
    c.memory.emplace_back();
    c.present.emplace_back();
    for (const LaneRange& node : AlignedNodes(LanesOfTrainer(c.lanes, c.ranks, r))) {
      if (below(5) == 0) continue;
      c.nodes.back().push_back(node);
      c.present.back().push_back(below(3) == 0 ? random() : ~uint64_t{0});
      Fill(c.dtype, &random, &c.memory.back().emplace_back(static_cast<size_t>(c.count) * DTypeSize(c.dtype)));
    }
  }
  return c;
}

// Borders of slices: uneven, the first one empty.
std::vector<int64_t> Uneven(int64_t count, int ranks) {
  std::vector<int64_t> begins = {0};
  for (int r = 1; r < ranks; ++r) begins.push_back(count * (r - 1) * r / (ranks * ranks));
  begins.push_back(count);
  return begins;
}

// Results of each rank: of the reduction, of its slice alone, and of the gathers.
struct Results {
  std::vector<std::vector<char>> all, slice, gathered;
  std::vector<std::vector<std::string>> bytes;
  int64_t sent = 0;  // to other hosts
};

Results RunCase(const Case& c, const Hosts& used) {
  const Hosts& hosts = c.hosts;
  Results results;
  const size_t ranks = static_cast<size_t>(c.ranks), size = static_cast<size_t>(c.count) * DTypeSize(c.dtype);
  results.all.resize(ranks);
  results.slice.resize(ranks);
  results.gathered.resize(ranks);
  results.bytes.resize(ranks);
  LocalMeshes meshes(c.ranks, /*shuffle=*/7);
  std::vector<std::unique_ptr<CountingMesh>> counting;
  for (int r = 0; r < c.ranks; ++r) counting.push_back(std::make_unique<CountingMesh>(meshes.mesh(r), &hosts));
  std::vector<std::thread> threads;
  std::vector<absl::Status> ends(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Collective::Options options = MessagesOf(kMessageBytes);
      options.hosts = used;
      Collective collective(counting[r].get(), options);
      std::vector<std::vector<char>> memory = c.memory[r];
      const auto values = [&](const char* name) {
        Collective::Values v{.name = name,
                             .dtype = c.dtype,
                             .shape = {c.count},
                             .segments = c.segments,
                             .reduction = c.reduction,
                             .lanes = c.lanes,
                             .samples = static_cast<int64_t>(r) + 1};
        for (size_t a = 0; a < memory.size(); ++a) {
          v.addends.push_back({.lanes = c.nodes[r][a], .values = memory[a].data(), .present = c.present[r][a]});
        }
        return v;
      };
      const auto own_bytes = [&](size_t of) { return std::string(of * of * 97 % 3000, static_cast<char>('a' + of)); };
      const std::vector<int64_t> begins = Uneven(c.count, c.ranks);
      const auto at = [&](size_t of) { return static_cast<size_t>(begins[of]) * DTypeSize(c.dtype); };
      results.slice[r].assign(at(r + 1) - at(r) + 1, '\7');
      results.gathered[r].assign(size + 1, static_cast<char>(r));
      std::vector<Collective::PendingPtr> pending;
      pending.push_back(collective.ReduceScatter(values("slices"), begins, results.slice[r].data()));
      pending.push_back(collective.AllGather("gather", c.dtype, begins, results.gathered[r].data()));
      pending.push_back(collective.AllGatherBytes("bytes", own_bytes(r), &results.bytes[r]));
      for (const auto& each : pending) {
        if (ends[r] = each->Wait(); !ends[r].ok()) return;
      }
      // The result replaces an addend.
      const bool in_place = c.in_place && !memory.empty();
      if (!in_place) results.all[r].assign(size + 1, '\7');
      void* const out = in_place ? memory[0].data() : results.all[r].data();
      ends[r] = collective.AllReduce(values("all"), out)->Wait();
      if (in_place) results.all[r] = memory[0];
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& end : ends) EXPECT_TRUE(end.ok()) << end;
  for (const auto& mesh : counting) results.sent += mesh->bytes();
  return results;
}

TEST(HostedRunTest, TheBitsAreThoseWithoutHosts) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Case c = RandomCase(seed);
    const Results plain = RunCase(c, Hosts());
    const Results hosted = RunCase(c, c.hosts);
    EXPECT_EQ(hosted.all, plain.all) << seed;
    EXPECT_EQ(hosted.slice, plain.slice) << seed;
    EXPECT_EQ(hosted.gathered, plain.gathered) << seed;
    EXPECT_EQ(hosted.bytes, plain.bytes) << seed;
    EXPECT_LE(hosted.sent, plain.sent) << seed;
  }
}

// Two hosts of four ranks: what leaves a host is a quarter of what leaves it otherwise.
TEST(HostedRunTest, AHostSendsItsSumOnce) {
  Case c = RandomCase(3);
  c.ranks = 8;
  c.lanes = 8;
  c.hosts = Hosts({0, 0, 0, 0, 1, 1, 1, 1});
  c.dtype = v1::FLOAT32;
  c.reduction = Reduction::kSum;
  c.segments = {4000};
  c.count = 4000;
  c.nodes.clear();
  c.memory.clear();
  c.present.assign(8, {~uint64_t{0}});
  std::mt19937_64 random(1);
  for (int r = 0; r < 8; ++r) {
    c.nodes.push_back({{r, 1}});
    Fill(c.dtype, &random, &c.memory.emplace_back().emplace_back(16000));
  }
  const Results plain = RunCase(c, Hosts());
  const Results hosted = RunCase(c, c.hosts);
  EXPECT_EQ(hosted.all, plain.all);
  EXPECT_EQ(4 * hosted.sent, plain.sent);
}

TEST(HostedRunTest, NodesOfAHostAreWholeSubtrees) {
  // Hosts a, a, b, a, a, a, -, b; nobody has lane 6.
  const Hosts hosts({0, 0, 1, 0, 0, 0, 1});
  std::vector<AddendNode> nodes;
  int lane = 0;
  for (int r = 0; r < 7; ++r, ++lane) {
    if (lane == 6) ++lane;
    nodes.push_back({.lanes = {lane, 1}, .rank = r, .index = 0, .present = uint64_t{1} << r});
  }
  const std::vector<HostNode> groups = HostNodesOf(nodes, 8, hosts);
  std::vector<std::string> texts;
  for (const HostNode& group : groups) {
    texts.push_back(absl::StrCat(group.host, ":", group.lanes.begin, "+", group.lanes.count, ":", group.present));
  }
  EXPECT_THAT(texts, ElementsAre("0:0+2:3", "1:2+1:4", "0:3+1:8", "0:4+2:48", "1:7+1:64"));
}

TEST(HostsTest, OwnersSpeakForThemselvesOnTheirHost) {
  const Hosts hosts({0, 1, 0, 1, 1});
  EXPECT_EQ(hosts.Proxy(0, 2), 2);
  EXPECT_EQ(hosts.Proxy(1, 0), 1);
  EXPECT_EQ(hosts.Proxy(1, 2), 3);
  EXPECT_EQ(hosts.Proxy(0, 4), 0);
  EXPECT_TRUE(hosts.worth_merging());
  EXPECT_FALSE(Hosts({0, 0}).worth_merging());
  EXPECT_FALSE(Hosts({0, 1}).worth_merging());
  EXPECT_FALSE(Hosts().worth_merging());
}

}  // namespace
}  // namespace weir
