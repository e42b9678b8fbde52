// Every backend over sockets of this machine: hundreds of small operations under way at once are right, and an
// operation that differs on one rank is refused on all of them within two seconds, naming both sides, while hundreds of
// others are under way.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "framework/collective/collective.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/collective/gloo_mesh.h"
#include "pserver/collective/wire_mesh.h"
#include "pserver/network/grpc_server.h"
#include "pserver/network/grpc_transport.h"
#include "tests/testing/board.h"
#include "tests/testing/collective_mismatches.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr char kHost[] = "127.0.0.1";
constexpr absl::Duration kPatience = absl::Seconds(30);

std::string NameOf(int rank) { return absl::StrCat("trainer ", rank); }

// A rank's mesh, and what it needs to stay alive.
struct Backend {
  std::unique_ptr<WireInbox> inbox;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Mesh> mesh;
};

absl::StatusOr<Backend> ConnectWire(RankBoard* board, int rank, bool unix_sockets) {
  Backend backend{.inbox = std::make_unique<WireInbox>()};
  ASSIGN_OR_RETURN(
      backend.server,
      GrpcServer::Start({.endpoint = absl::StrCat(kHost, ":0"),
                         .deliver = [inbox = backend.inbox.get()](const Slices& message, ReplyCallback reply) {
                           inbox->HandleDeliver(message, std::move(reply));
                         }}));
  const std::string own = absl::StrCat(backend.server->endpoint(), " ", backend.server->unix_socket());
  ASSIGN_OR_RETURN(const std::vector<std::string> all, board->Exchange("wire", rank, own, kPatience));
  GrpcTransportOptions transport{.unix_sockets = unix_sockets};
  for (const std::string& each : all) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(each, ' ');
    transport.endpoints.push_back(parts.first);
    transport.sockets.push_back(parts.second);
  }
  ASSIGN_OR_RETURN(backend.transport, MakeGrpcTransport(std::move(transport)));
  ASSIGN_OR_RETURN(backend.mesh, WireMesh::Connect({.group = 7,
                                                    .rank = rank,
                                                    .transport = backend.transport.get(),
                                                    .inbox = backend.inbox.get(),
                                                    .describe = NameOf},
                                                   {.deadline = kPatience}));
  return backend;
}

absl::StatusOr<Backend> ConnectGloo(RankBoard* board, int rank, int ranks) {
  Backend backend;
  ASSIGN_OR_RETURN(
      backend.mesh,
      ConnectGlooMesh({.group = 7,
                       .rank = rank,
                       .size = ranks,
                       .host = kHost,
                       .exchange = [=](const std::string& key,
                                       const std::string& mine) { return board->Exchange(key, rank, mine, kPatience); },
                       .describe = NameOf,
                       .connect_deadline = kPatience}));
  return backend;
}

class BackendsTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Runs `body` on every rank of a group, each on its own thread; returns what each returned.
  static std::vector<absl::Status> OnRanks(int ranks, const std::function<absl::Status(Collective*, int rank)>& body) {
    const std::string name = GetParam();
    RankBoard board(ranks);
    std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        absl::StatusOr<Backend> backend =
            name == "Gloo" ? ConnectGloo(&board, r, ranks) : ConnectWire(&board, r, name == "WireUnix");
        absl::Status& status = statuses[static_cast<size_t>(r)];
        status = backend.status();
        if (!status.ok()) return;
        {
          Collective collective(backend->mesh.get(), {});
          status = body(&collective, r);
        }
        // No rank leaves while another one may wait for its answers.
        (void)board.Exchange("done", r, "", kPatience);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
};

// Operation i of many, small and of some kind, with values that say whose they are.
class SmallOperation {
 public:
  SmallOperation(Collective* c, int i) : i_(i), ranks_(c->size()) {
    const std::string name = absl::StrCat("small.", i);
    const int64_t count = i % 40;
    values_.assign(static_cast<size_t>(count), c->rank() + i);
    switch (i % 4) {
      case 0:
        pending_ = c->AllReduce({.name = name, .dtype = v1::INT64, .shape = {count}, .addends = c->Own(values_.data())},
                                values_.data());
        break;
      case 1:
        pending_ = c->Broadcast(name, v1::INT64, {count}, i % ranks_, values_.data());
        break;
      case 2:
        pending_ = c->AllGatherBytes(name, BytesOf(c->rank()), &all_);
        break;
      default:
        pending_ = c->Barrier(name);
    }
  }

  absl::Status WaitAndCheck() {
    RETURN_IF_ERROR(pending_->Wait());
    const bool sums = i_ % 4 == 0, broadcasts = i_ % 4 == 1;
    const int expected = sums ? ranks_ * i_ + ranks_ * (ranks_ - 1) / 2 : i_ % ranks_ + i_;
    if (sums || broadcasts) {
      EXPECT_THAT(values_, Each(expected));
    }
    for (size_t r = 0; r < all_.size(); ++r) EXPECT_EQ(all_[r], BytesOf(static_cast<int>(r)));
    return absl::OkStatus();
  }
  absl::Status Wait() { return pending_->Wait(); }

 private:
  std::string BytesOf(int rank) const { return std::string(static_cast<size_t>(i_ % 7 + rank), static_cast<char>(i_)); }

  const int i_, ranks_;
  std::vector<int64_t> values_;
  std::vector<std::string> all_;
  Collective::PendingPtr pending_;
};

std::vector<std::unique_ptr<SmallOperation>> BeginSmall(Collective* collective, int count) {
  std::vector<std::unique_ptr<SmallOperation>> operations;
  for (int i = 0; i < count; ++i) operations.push_back(std::make_unique<SmallOperation>(collective, i));
  return operations;
}

TEST_P(BackendsTest, HundredsOfSmallOperationsAreUnderWayAtOnce) {
  for (const absl::Status& status : OnRanks(3, [](Collective*collective, int) -> absl::Status {
         const auto operations = BeginSmall(collective, 400);
         // The last one first.
         for (auto each = operations.rbegin(); each != operations.rend(); ++each) {
           RETURN_IF_ERROR((*each)->WaitAndCheck());
         }
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_P(BackendsTest, EachMismatchIsRefusedOnAllRanksWithinTwoSeconds) {
  for (const CollectiveMismatch& mismatch : CollectiveMismatches()) {
    for (const int odd : {0, 2}) {
      SCOPED_TRACE(absl::StrCat(mismatch.name, ", rank ", odd));
      const std::vector<absl::Status> statuses = OnRanks(3, [&](Collective* collective, int rank) -> absl::Status {
        const auto before = BeginSmall(collective, 200);
        for (const auto& each : before) RETURN_IF_ERROR(each->WaitAndCheck());
        const absl::Time begin = Clock::Real()->Now();
        std::vector<float> values(4000, 1);
        const Collective::PendingPtr odd_one = mismatch.begin(collective, rank == odd, &values);
        const auto after = BeginSmall(collective, 200);
        const absl::Status status = odd_one->Wait();
        // Operations beside it are right, or refused for the same reason.
        for (const auto& each : after) {
          const absl::Status own = each->WaitAndCheck();
          EXPECT_TRUE(own.ok() || own == status) << own;
        }
        EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(2));
        return status;
      });
      for (const absl::Status& status : statuses) {
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr(mismatch.expected), HasSubstr(NameOf(odd)), HasSubstr("'x'")));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BackendsTest, ::testing::Values("WireTcp", "WireUnix", "Gloo"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace weir
