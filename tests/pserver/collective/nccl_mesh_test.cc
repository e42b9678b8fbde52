// Messages of collective operations by NCCL, with a library made for tests on emulated devices: sums are right in
// whatever order the ranks begin, failures reach all ranks with their reason, and ranks that do not fit are named.

#include "pserver/collective/nccl_mesh.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/trainer.pb.h"
#include "pserver/collective/gloo_mesh.h"
#include "tests/testing/board.h"
#include "tests/testing/devices/emulated_device.h"
#include "tests/testing/devices/fake_nccl.h"

namespace weir {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// What a rank has below its mesh.
struct Below {
  explicit Below(int rank, int64_t lost_after = -1)
      : device({.seed = static_cast<uint64_t>(rank) + 1,
                .memory = size_t{256} << 20,
                .pinned = size_t{256} << 20,
                .lost_after = lost_after}) {}
  EmulatedDevice device;
  std::unique_ptr<Mesh> control;  // null: one of LocalMeshes
};

struct Group {
  int ranks = 2;
  bool gloo = false;  // the control mesh
  uint64_t shuffle = 0;
  size_t small_bytes = 4096;
  LocalMeshes* local = nullptr;  // the control mesh; null: new ones
  // Changes a rank's options before it connects.
  std::function<void(int rank, NcclMeshOptions*)> change;
  std::function<int64_t(int rank)> lost_after;
};

using Body = std::function<absl::Status(Mesh*, int rank)>;

// Connects the ranks, each on its own thread, and runs `body` on each. Returns how each ended.
std::vector<absl::Status> OnRanks(const Group& group, const Body& body) {
  RankBoard board(group.ranks);
  LocalMeshes fresh(group.ranks, group.shuffle);
  LocalMeshes& local = group.local != nullptr ? *group.local : fresh;
  std::vector<absl::Status> statuses(static_cast<size_t>(group.ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < group.ranks; ++r) {
    threads.emplace_back([&, r] {
      Below below(r, group.lost_after ? group.lost_after(r) : -1);
      const auto exchange = [&, r](const std::string& key, const std::string& mine) {
        return board.Exchange(key, r, mine);
      };
      NcclMeshOptions options = {.control = local.mesh(r),
                                 .library = FakeNccl(),
                                 .device = &below.device,
                                 .device_identity = absl::StrCat("device ", r),
                                 .exchange = exchange,
                                 .connect_deadline = absl::Seconds(20),
                                 .small_bytes = group.small_bytes};
      if (group.gloo) {
        absl::StatusOr<std::unique_ptr<Mesh>> control =
            ConnectGlooMesh({.group = 5,
                             .rank = r,
                             .size = group.ranks,
                             .host = "127.0.0.1",
                             .exchange = exchange,
                             .describe = [](int of) { return absl::StrCat("trainer ", of); },
                             .connect_deadline = absl::Seconds(20)});
        ASSERT_TRUE(control.ok()) << control.status();
        below.control = *std::move(control);
        options.control = below.control.get();
      }
      if (group.change) group.change(r, &options);
      absl::Status& status = statuses[static_cast<size_t>(r)];
      absl::StatusOr<std::unique_ptr<Mesh>> mesh = ConnectNcclMesh(options);
      status = mesh.status();
      if (mesh.ok()) status = body(mesh->get(), r);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

void ExpectOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

absl::Status Finish(Mesh::Transfer* transfer) { return transfer->Wait(absl::Seconds(20)); }

// Operations of many sizes under way at once.
absl::Status ReduceMany(Mesh* mesh, int rank) {
  constexpr int kOperations = 12;
  const int ranks = mesh->size();
  Collective collective(mesh, {.streams = 3, .message_bytes = 1 << 16});
  std::vector<std::vector<float>> values;
  std::vector<Collective::PendingPtr> pending;
  for (int i = 0; i < kOperations; ++i) {
    values.push_back(std::vector<float>(static_cast<size_t>(i * 4997), static_cast<float>(rank + i)));
  }
  for (std::vector<float>& each : values) {
    pending.push_back(collective.AllReduce(
        {.name = "g", .shape = {static_cast<int64_t>(each.size())}, .addends = collective.Own(each.data())},
        each.data()));
  }
  for (int i = 0; i < kOperations; ++i) {
    if (absl::Status status = pending[static_cast<size_t>(i)]->Wait(); !status.ok()) return status;
    const int sum = ranks * i + ranks * (ranks - 1) / 2;
    EXPECT_THAT(values[static_cast<size_t>(i)], Each(static_cast<float>(sum)));
  }
  return absl::OkStatus();
}

TEST(NcclMeshTest, SumsAreThoseOfAnyBackend) {
  FakeNcclSet("aborts", 0);
  FakeNcclSet("messages", 0);
  for (const int ranks : {1, 2, 3, 5}) ExpectOk(OnRanks({.ranks = ranks}, ReduceMany));
  EXPECT_EQ(FakeNcclSet("aborts", 0), 0) << "a group that has not failed ends in order";
  EXPECT_GT(FakeNcclSet("messages", 0), 100) << "they have gone by NCCL";
}

TEST(NcclMeshTest, SumsAreRightInAnyOrderOfArrival) {
  for (uint64_t seed = 1; seed <= 3; ++seed) ExpectOk(OnRanks({.ranks = 3, .shuffle = seed}, ReduceMany));
}

TEST(NcclMeshTest, NotesMayGoOverGloo) { ExpectOk(OnRanks({.ranks = 3, .gloo = true}, ReduceMany)); }

TEST(NcclMeshTest, RanksThatAskInDifferentOrdersDoNotWaitForEachOther) {
  // Every rank sends to all before it receives anything, in the order of tags, and receives in the opposite order.
  ExpectOk(OnRanks({.ranks = 4, .small_bytes = 0}, [](Mesh* mesh, int rank) {
    constexpr uint64_t kTags = 40;
    std::vector<std::vector<int64_t>> sent, got;
    std::vector<std::unique_ptr<Mesh::Transfer>> sends, receives;
    std::vector<std::pair<int, uint64_t>> from;
    sent.reserve(4 * kTags);
    got.reserve(4 * kTags);
    for (uint64_t tag = 0; tag < kTags; ++tag) {
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == rank) continue;
        sent.push_back(std::vector<int64_t>(100 + tag, rank * 1000 + static_cast<int64_t>(tag)));
        sends.push_back(mesh->Send(peer, tag, sent.back().data(), sent.back().size() * 8));
      }
    }
    for (uint64_t tag = kTags; tag-- > 0;) {
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == rank) continue;
        got.push_back(std::vector<int64_t>(100 + tag));
        from.emplace_back(peer, tag);
        receives.push_back(mesh->Receive(peer, tag, got.back().data(), got.back().size() * 8));
        // One at a time: whoever waits for the last tag first must get it first.
        if (absl::Status status = Finish(receives.back().get()); !status.ok()) return status;
      }
    }
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_THAT(got[i], Each(from[i].first * 1000 + static_cast<int64_t>(from[i].second)));
    }
    for (const auto& send : sends) {
      if (absl::Status status = Finish(send.get()); !status.ok()) return status;
    }
    return absl::OkStatus();
  }));
}

TEST(NcclMeshTest, AMessageThatNobodyWaitsForIsNotSent) {
  FakeNcclSet("messages", 0);
  std::vector<char> bytes(10000);
  ExpectOk(OnRanks({.ranks = 2}, [&](Mesh* mesh, int rank) {
    Collective collective(mesh, {});
    if (rank == 0) {
      const auto send = mesh->Send(1, uint64_t{1} << 60, bytes.data(), bytes.size());
      EXPECT_TRUE(absl::IsDeadlineExceeded(send->Wait(absl::Milliseconds(30))));
      // It is given up, and its memory is free.
    }
    return collective.Barrier("b")->Wait();
  }));
  EXPECT_EQ(FakeNcclSet("messages", 0), 0);
}

TEST(NcclMeshTest, AReceiveThatIsGivenUpLeavesItsMemoryAlone) {
  ExpectOk(OnRanks({.ranks = 2}, [&](Mesh* mesh, int rank) {
    Collective collective(mesh, {});
    std::vector<char> bytes(10000, static_cast<char>('a' + rank)), second(10000);
    if (rank == 1) {
      auto receive = mesh->Receive(0, uint64_t{1} << 60, bytes.data(), bytes.size());
      EXPECT_TRUE(absl::IsDeadlineExceeded(receive->Wait(absl::Milliseconds(10))));
    }
    if (absl::Status status = collective.Barrier("b")->Wait(); !status.ok()) return status;
    if (rank == 0) {
      for (const uint64_t tag : {uint64_t{1} << 60, (uint64_t{1} << 60) + 1}) {
        if (absl::Status status = Finish(mesh->Send(1, tag, bytes.data(), bytes.size()).get()); !status.ok())
          return status;
      }
    } else {
      const auto receive = mesh->Receive(0, (uint64_t{1} << 60) + 1, second.data(), second.size());
      if (absl::Status status = Finish(receive.get()); !status.ok()) return status;
      EXPECT_THAT(second, Each('a'));
      EXPECT_THAT(bytes, Each('b'));
    }
    return collective.Barrier("c")->Wait();
  }));
}

TEST(NcclMeshTest, AnotherSizeIsRefusedAtBothEnds) {
  const std::vector<absl::Status> statuses = OnRanks({.ranks = 2}, [](Mesh* mesh, int rank) {
    std::vector<char> bytes(10000);
    const auto transfer = rank == 0 ? mesh->Send(1, 1, bytes.data(), 10000) : mesh->Receive(0, 1, bytes.data(), 9999);
    return Finish(transfer.get());
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("has sent 10000 bytes, 9999 were expected"));
  }
}

TEST(NcclMeshTest, AMismatchIsToldToAllRanksWithinTwoSeconds) {
  for (const bool gloo : {false, true}) {
    const absl::Time begin = Clock::Real()->Now();
    const std::vector<absl::Status> statuses = OnRanks({.ranks = 3, .gloo = gloo}, [&](Mesh* mesh, int rank) {
      Collective collective(mesh, {});
      const int64_t count = rank == 1 ? 999999 : 1000000;
      std::vector<float> values(static_cast<size_t>(count));
      return collective
          .AllReduce({.name = "x", .shape = {count}, .addends = collective.Own(values.data())}, values.data())
          ->Wait();
    });
    EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(4)) << "2 s, and the time to form";
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("trainer 1"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("[999999]"));
    }
  }
}

TEST(NcclMeshTest, ARankThatLeavesIsNamedAndItsMessagesEnd) {
  const std::vector<absl::Status> statuses = OnRanks({.ranks = 3, .gloo = true}, [](Mesh* mesh, int rank) {
    if (rank == 2) return absl::OkStatus();
    Collective collective(mesh, {});
    std::vector<float> values(1000000);
    return collective
        .AllReduce({.name = "x", .shape = {1000000}, .addends = collective.Own(values.data())}, values.data())
        ->Wait();
  });
  for (const size_t r : {0, 1}) EXPECT_THAT(std::string(statuses[r].message()), HasSubstr("trainer 2"));
}

TEST(NcclMeshTest, ARankThatStopsIsNamedByWhatWaitsForTheRound) {
  LocalMeshes local(3);
  RankBoard board(3);
  std::string waits;
  (void)OnRanks({.ranks = 3, .local = &local}, [&](Mesh* mesh, int rank) {
    (void)board.Exchange("formed", rank, "");
    if (rank == 0) local.Cut(2);
    (void)board.Exchange("cut", rank, "");
    std::vector<char> bytes(100000);
    const auto transfer = rank == 0   ? mesh->Receive(1, 1, bytes.data(), bytes.size())
                          : rank == 1 ? mesh->Send(0, 1, bytes.data(), bytes.size())
                                      : nullptr;
    const absl::Time end = Clock::Real()->Now() + absl::Seconds(20);
    while (rank == 0 && waits.empty() && Clock::Real()->Now() < end) {
      waits = std::string(transfer->Wait(absl::Milliseconds(5)).message());
    }
    (void)board.Exchange("seen", rank, "");
    if (rank == 0) mesh->Abort(absl::CancelledError("the test is over"));
    return absl::OkStatus();
  });
  EXPECT_EQ(waits, "round 0 of NCCL waits for trainer 2");
}

TEST(NcclMeshTest, ARankTakesPartInRoundsThatAreNotItsOwn) {
  RankBoard board(3);
  const std::vector<absl::Status> statuses = OnRanks({.ranks = 3}, [&](Mesh* mesh, int rank) {
    std::vector<char> bytes(100000);
    absl::Status status;
    if (rank < 2) {
      const auto transfer =
          rank == 0 ? mesh->Send(1, 1, bytes.data(), bytes.size()) : mesh->Receive(0, 1, bytes.data(), bytes.size());
      status = Finish(transfer.get());
    }
    (void)board.Exchange("done", rank, "");
    return status;
  });
  ExpectOk(statuses);
}

TEST(NcclMeshTest, RanksMayLeaveWhileOthersStillExchange) {
  for (const bool gloo : {false, true}) {
    ExpectOk(OnRanks({.ranks = 4, .gloo = gloo}, [](Mesh* mesh, int rank) {
      if (rank >= 2) return absl::OkStatus();
      std::vector<char> bytes(100000, static_cast<char>(rank));
      for (uint64_t tag = 0; tag < 50; ++tag) {
        const auto transfer = rank == 0 ? mesh->Send(1, tag, bytes.data(), bytes.size())
                                        : mesh->Receive(0, tag, bytes.data(), bytes.size());
        if (absl::Status status = Finish(transfer.get()); !status.ok()) return status;
      }
      return absl::OkStatus();
    }));
  }
}

TEST(NcclMeshTest, AnErrorOfNcclEndsAllRanks) {
  FakeNcclSet("async_rank", 1);
  const std::vector<absl::Status> statuses = OnRanks({.ranks = 3}, [](Mesh* mesh, int rank) {
    std::vector<char> bytes(10000);
    const auto receive = mesh->Receive((rank + 1) % 3, 1, bytes.data(), bytes.size());
    if (rank == 1) FakeNcclSet("async_result", kNcclRemoteError);
    return Finish(receive.get());
  });
  FakeNcclSet("async_rank", -1);
  FakeNcclSet("async_result", kNcclSuccess);
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("remote process exited"));
  }
}

TEST(NcclMeshTest, ADeviceThatIsLostEndsAllRanks) {
  const Group group = {.ranks = 3, .lost_after = [](int rank) { return rank == 1 ? 3 : -1; }};
  const std::vector<absl::Status> statuses = OnRanks(group, ReduceMany);
  for (const absl::Status& status : statuses) EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST(NcclMeshTest, AnAbortEndsARoundThatWaits) {
  const absl::Time begin = Clock::Real()->Now();
  const std::vector<absl::Status> statuses = OnRanks({.ranks = 2}, [](Mesh* mesh, int rank) {
    std::vector<char> bytes(100000);
    const auto receive = mesh->Receive(1 - rank, 1, bytes.data(), bytes.size());
    if (rank == 1) mesh->Abort(absl::DeadlineExceededError("the job has failed"));
    return Finish(receive.get());
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::AbortedError("the job has failed"));
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(5));
}

// ------------------------------------------------------------------------------------------------------------- forming

const Body kNothing = [](Mesh*, int) { return absl::OkStatus(); };

TEST(NcclMeshTest, TwoRanksOnOneDeviceAreNamed) {
  const Group group = {.ranks = 3, .change = [](int rank, NcclMeshOptions* options) {
                         options->device_identity = rank == 1 ? "m/0000:3b:00.0" : absl::StrCat("m/", rank / 2);
                         if (rank == 2) options->device_identity = "m/0000:3b:00.0";
                       }};
  for (const absl::Status& status : OnRanks(group, kNothing)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("trainer 1 and trainer 2 compute on one device (m/0000:3b:00.0), and NCCL needs one for each"));
  }
}

TEST(NcclMeshTest, AnotherVersionOfNcclIsNamed) {
  const Group group = {.ranks = 2, .change = [](int rank, NcclMeshOptions* options) {
                         const auto exchange = options->exchange;
                         options->exchange = [=](const std::string& key, std::string mine) {
                           v1::NcclPeer peer;
                           EXPECT_TRUE(peer.ParseFromString(mine));
                           if (rank == 1) peer.set_version(22005);
                           return exchange(key, peer.SerializeAsString());
                         };
                       }};
  const std::vector<absl::Status> statuses = OnRanks(group, kNothing);
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("trainer 1 has NCCL 2.20.5, trainer 0 has 2.28.9 ("));
}

TEST(NcclMeshTest, ARankThatCannotNameTheGroupTellsTheOthersWhy) {
  FakeNcclSet("id_result", kNcclSystemError);
  const std::vector<absl::Status> statuses = OnRanks({.ranks = 2}, kNothing);
  FakeNcclSet("id_result", kNcclSuccess);
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("trainer 0: NCCL: naming a communicator: some error"));
  }
}

TEST(NcclMeshTest, ARankThatNcclRefusesEndsTheOthers) {
  // NCCL's own refusal on one rank; the others would wait for it until their deadline.
  const absl::Time begin = Clock::Real()->Now();
  FakeNcclSet("async_rank", 1);
  FakeNcclSet("async_result", kNcclInvalidUsage);
  const std::vector<absl::Status> statuses = OnRanks({.ranks = 3}, [](Mesh* mesh, int) {
    std::vector<char> bytes(10000);
    return Finish(mesh->Receive(mesh->rank() == 0 ? 1 : 0, 7, bytes.data(), bytes.size()).get());
  });
  FakeNcclSet("async_rank", -1);
  FakeNcclSet("async_result", kNcclSuccess);
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(10));
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("NCCL: forming a communicator: invalid usage")) << status;
  }
}

TEST(NcclMeshTest, BytesThatAreNoContributionAreNamed) {
  const Group group = {.ranks = 2, .change = [](int, NcclMeshOptions* options) {
                         options->exchange = [](const std::string&, const std::string& mine) {
                           return absl::StatusOr<std::vector<std::string>>({mine, "\xff"});
                         };
                       }};
  for (const absl::Status& status : OnRanks(group, kNothing)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  }
}

TEST(NcclMeshTest, NotesThatCannotBeReadEndTheMesh) {
  // Another program with the tags of notes.
  LocalMeshes local(2);
  EmulatedDevice device({.memory = size_t{1} << 20});
  std::vector<std::string> contributions(2);
  v1::NcclPeer other;
  other.set_version(22809);
  other.set_device("other");
  other.SerializeToString(&contributions[1]);
  std::vector<char> note(16 + 16 * 30, '\xee');
  const auto send = local.mesh(1)->Send(0, uint64_t{1} << 63, note.data(), note.size());
  const absl::Status status = ConnectNcclMesh({.control = local.mesh(0),
                                               .library = FakeNccl(),
                                               .device = &device,
                                               .device_identity = "own",
                                               .exchange =
                                                   [&](const std::string&, const std::string& mine) {
                                                     contributions[0] = mine;
                                                     return absl::StatusOr<std::vector<std::string>>(contributions);
                                                   },
                                               .connect_deadline = absl::Seconds(20)})
                                  .status();
  EXPECT_EQ(status.message(), "a note of trainer 1 cannot be read");
}

}  // namespace
}  // namespace weir
