// Messages of collective operations over the library Gloo: sums are right, failures reach all ranks with their reason,
// and ranks that are missing are named.

#include "pserver/collective/gloo_mesh.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/collective/collective.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/board.h"

namespace weir {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

GlooMeshOptions OptionsOf(RankBoard* board, int rank, int ranks) {
  return {.group = 5,
          .rank = rank,
          .size = ranks,
          .host = "127.0.0.1",
          .exchange = [=](const std::string& key,
                          const std::string& mine) { return board->Exchange(key, rank, mine, absl::Seconds(20)); },
          .describe = [](int of) { return absl::StrCat("trainer ", of); },
          .connect_deadline = absl::Seconds(20)};
}

using Body = std::function<absl::Status(Collective*, int rank)>;

// Runs `body` on every rank of a group, each on its own thread. A rank that is `gone` ends once the group has formed.
std::vector<absl::Status> OnRanks(int ranks, const Body& body, int gone = -1, const Collective::Options& options = {}) {
  RankBoard board(ranks);
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      absl::StatusOr<std::unique_ptr<Mesh>> mesh = ConnectGlooMesh(OptionsOf(&board, r, ranks));
      statuses[static_cast<size_t>(r)] = mesh.status();
      if (!mesh.ok() || r == gone) return;
      {
        Collective collective(mesh->get(), options);
        statuses[static_cast<size_t>(r)] = body(&collective, r);
      }
      // A rank that is done does not leave before the others are.
      (void)board.Exchange("done", r, "", absl::Seconds(gone < 0 ? 20 : 0));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TEST(GlooMeshTest, SumsAreThoseOfAnyBackend) {
  for (const int ranks : {1, 2, 3, 5}) {
    const std::vector<absl::Status> statuses = OnRanks(ranks, [&](Collective* collective, int rank) {
      std::vector<std::vector<float>> values;
      std::vector<Collective::PendingPtr> pending;
      for (int i = 0; i < 30; ++i) {
        values.push_back(std::vector<float>(static_cast<size_t>(i * 997), static_cast<float>(rank + i)));
      }
      for (std::vector<float>& each : values) {
        pending.push_back(collective->AllReduce(
            {.name = "g", .shape = {static_cast<int64_t>(each.size())}, .addends = collective->Own(each.data())},
            each.data()));
      }
      for (int i = 0; i < 30; ++i) {
        if (absl::Status status = pending[static_cast<size_t>(i)]->Wait(); !status.ok()) return status;
        const int sum = ranks * i + ranks * (ranks - 1) / 2;
        EXPECT_THAT(values[static_cast<size_t>(i)], ::testing::Each(static_cast<float>(sum)));
      }
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }
}

// Begins an all-reduce of `values` by Gloo's ring: `lanes` keeps small ones from being exchanged by slices.
Collective::PendingPtr ByGloo(Collective* collective, const std::string& name, std::vector<float>* values) {
  return collective->AllReduce({.name = name,
                                .shape = {static_cast<int64_t>(values->size())},
                                .lanes = collective->size(),
                                .addends = collective->Own(values->data()),
                                .any_order = true},
                               values->data());
}

TEST(GlooMeshTest, GloosOwnRingAddsInAnyOrder) {
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<std::vector<std::vector<float>>> results(static_cast<size_t>(ranks));
    const std::vector<absl::Status> statuses = OnRanks(ranks, [&](Collective* collective, int rank) {
      std::vector<std::vector<float>>& values = results[static_cast<size_t>(rank)];
      std::vector<Collective::PendingPtr> pending;
      // Many at a time, among others that Gloo does not add; the last ones are larger than Gloo's own messages.
      for (int i = 0; i < 40; ++i) {
        const int size = i < 37 ? i * 997 : 1000003 + i;
        values.push_back(std::vector<float>(static_cast<size_t>(size), static_cast<float>(rank + i) + 0.1F));
      }
      for (size_t i = 0; i < values.size(); ++i) {
        pending.push_back(ByGloo(collective, absl::StrCat("g", i), &values[i]));
        if (i % 5 == 0) pending.push_back(collective->Barrier("b"));
      }
      std::vector<float> few(997, 0.5F);
      pending.push_back(collective->AllReduce(
          {.name = "few", .shape = {997}, .addends = collective->Own(few.data()), .any_order = true}, few.data()));
      std::vector<double> doubles(1001, 0.5);
      pending.push_back(collective->AllReduce({.name = "d",
                                               .dtype = v1::FLOAT64,
                                               .shape = {1001},
                                               .lanes = ranks,
                                               .addends = collective->Own(doubles.data()),
                                               .any_order = true},
                                              doubles.data()));
      for (const auto& each : pending) {
        if (absl::Status status = each->Wait(); !status.ok()) return status;
      }
      EXPECT_THAT(few, ::testing::Each(static_cast<float>(ranks) * 0.5F));
      EXPECT_THAT(doubles, ::testing::Each(ranks * 0.5));
      for (size_t i = 0; i < values.size(); ++i) {
        const int whole = ranks * static_cast<int>(i) + ranks * (ranks - 1) / 2;
        const float sum = static_cast<float>(whole) + 0.1F * static_cast<float>(ranks);
        EXPECT_THAT(values[i], ::testing::Each(::testing::FloatNear(sum, 1e-4F)));
      }
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
    for (const auto& of_rank : results) EXPECT_EQ(of_rank, results[0]) << "ranks have different bits";
  }
}

TEST(GlooMeshTest, ADeadlineInGloosRingNamesTheRankAndEndsTheOthers) {
  const absl::Time begin = Clock::Real()->Now();
  RankBoard board(3);
  std::vector<absl::Status> statuses(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      const auto mesh = ConnectGlooMesh(OptionsOf(&board, r, 3));
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      std::vector<float> values(1 << 20);
      // Rank 1 comes, and never adds.
      const auto waits = [&](int peer) {
        if (r == 0 && Clock::Real()->Now() - begin > absl::Milliseconds(700)) {
          return absl::DeadlineExceededError(absl::StrCat("nothing from trainer ", peer));
        }
        return absl::OkStatus();
      };
      if (r != 1) {
        statuses[static_cast<size_t>(r)] = (*mesh)->AllReduce({.number = 1,
                                                               .values = values.data(),
                                                               .count = values.size(),
                                                               .element_bytes = sizeof(float),
                                                               .add = [](void*, const void*, const void*, size_t) {},
                                                               .waits = waits,
                                                               .moved = [] {}});
        (*mesh)->Abort(statuses[static_cast<size_t>(r)]);
      }
      (void)board.Exchange("done", r, "", absl::Seconds(20));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(10));
  // Rank 2 sends to rank 1 and hears why the group has ended, or sees a connection close.
  EXPECT_EQ(statuses[0].message(), "nothing from trainer 1");
  EXPECT_FALSE(statuses[2].ok());
}

TEST(GlooMeshTest, AnAbortWakesGloosRing) {
  const absl::Time begin = Clock::Real()->Now();
  const std::vector<absl::Status> statuses = OnRanks(2, [](Collective* collective, int rank) {
    std::vector<float> values(1 << 20);
    if (rank == 1) {
      collective->Abort(absl::CancelledError("the trainer is asked to stop"));
      return collective->Barrier("b")->Wait();
    }
    return ByGloo(collective, "x", &values)->Wait();
  });
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(5));
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("the trainer is asked to stop"));
  }
}

TEST(GlooMeshTest, TheReasonOfAnAbortReachesOthersWithItsCodeAndTheBeginOfItsText) {
  const std::vector<absl::Status> statuses = OnRanks(2, [](Collective* collective, int rank) {
    if (rank == 1) collective->Abort(absl::DataLossError(std::string(5000, 'x')));
    return collective->Barrier("b")->Wait();
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDataLoss) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), EndsWith(" " + std::string(2000, 'x')));
}

TEST(GlooMeshTest, ARankThatEndsIsNamedByGloosRing) {
  const std::vector<absl::Status> statuses = OnRanks(
      3,
      [](Collective* collective, int) {
        std::vector<float> values(1000000);
        return ByGloo(collective, "x", &values)->Wait();
      },
      /*gone=*/2);
  for (const int r : {0, 1}) {
    EXPECT_THAT(std::string(statuses[static_cast<size_t>(r)].message()), HasSubstr("trainer 2: "));
  }
}

TEST(GlooMeshTest, AMismatchIsToldToAllRanksWithinTwoSeconds) {
  for (int odd = 0; odd < 3; ++odd) {
    const absl::Time begin = Clock::Real()->Now();
    const std::vector<absl::Status> statuses = OnRanks(3, [&](Collective* collective, int rank) {
      const int64_t count = rank == odd ? 999999 : 1000000;
      std::vector<float> values(static_cast<size_t>(count));
      return collective
          ->AllReduce({.name = "x", .shape = {count}, .addends = collective->Own(values.data())}, values.data())
          ->Wait();
    });
    EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(2));
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("trainer ", odd))) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("[999999]"));
    }
  }
}

TEST(GlooMeshTest, ARankThatEndsIsNamed) {
  const std::vector<absl::Status> statuses = OnRanks(
      3,
      [](Collective* collective, int) {
        std::vector<float> values(1000000);
        return collective
            ->AllReduce({.name = "x", .shape = {1000000}, .addends = collective->Own(values.data())}, values.data())
            ->Wait();
      },
      /*gone=*/2);
  for (const int r : {0, 1}) {
    EXPECT_THAT(std::string(statuses[static_cast<size_t>(r)].message()), HasSubstr("trainer 2: "));
  }
}

TEST(GlooMeshTest, ADeadlineOnOneRankEndsTheOthers) {
  const absl::Time begin = Clock::Real()->Now();
  RankBoard board(3);
  std::vector<absl::Status> statuses(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      const auto mesh = ConnectGlooMesh(OptionsOf(&board, r, 3));
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      {
        // Rank 1 is connected and begins nothing.
        Collective collective(mesh->get(), {.waits = {.deadline = absl::Milliseconds(r == 0 ? 300 : 60000)}});
        if (r != 1) statuses[static_cast<size_t>(r)] = collective.Barrier("b")->Wait();
      }
      (void)board.Exchange("done", r, "", absl::Seconds(20));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(10));
  for (const size_t r : {0, 2}) {
    EXPECT_THAT(std::string(statuses[r].message()), HasSubstr("nothing from trainer 1 for 300ms")) << statuses[r];
  }
}

TEST(GlooMeshTest, ARankThatDoesNotComeIsNamedByTheExchange) {
  RankBoard board(2);
  GlooMeshOptions options = OptionsOf(&board, 0, 2);
  options.exchange = [&](const std::string& key, const std::string& mine) {
    return board.Exchange(key, 0, mine, absl::Milliseconds(50));
  };
  EXPECT_THAT(std::string(ConnectGlooMesh(options).status().message()), HasSubstr("trainer 1 has not come"));
}

TEST(GlooMeshTest, AHostThatIsNoneIsNamed) {
  RankBoard board(2);
  GlooMeshOptions options = OptionsOf(&board, 0, 2);
  options.host = "no.such.host.invalid";
  const absl::Status status = ConnectGlooMesh(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("this host for other trainers, 'no.such.host.invalid', cannot be resolved"));
}

TEST(GlooMeshTest, ARankThatIsNotReachedIsNamed) {
  // Rank 1 gives the address of a process that has ended.
  RankBoard board(2);
  GlooMeshOptions options = OptionsOf(&board, 0, 2);
  options.connect_deadline = absl::Milliseconds(500);
  // Rank 0 goes on when that process has ended.
  std::atomic<bool> gone{false};
  options.exchange = [&](const std::string& key, const std::string& mine) {
    const absl::StatusOr<std::vector<std::string>> all = board.Exchange(key, 0, mine, absl::Seconds(20));
    while (!gone) std::this_thread::yield();
    return all;
  };
  std::thread other([&] {
    GlooMeshOptions ended = OptionsOf(&board, 1, 2);
    ended.exchange = [&](const std::string& key, const std::string& mine) -> absl::StatusOr<std::vector<std::string>> {
      (void)board.Exchange(key, 1, mine, absl::Seconds(20));
      return absl::CancelledError("this rank ends");
    };
    EXPECT_FALSE(ConnectGlooMesh(ended).ok());
    gone = true;
  });
  const absl::Status status = ConnectGlooMesh(options).status();
  other.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("trainer 1 and trainer 0 do not reach each other"));
}

// Connects rank 0 while rank 1 gives its address and does nothing more, as a process that is stopped. The job fails
// once rank 0 has that address.
absl::Status ConnectToAStoppedRank() {
  RankBoard board(2);
  std::atomic<bool> exchanged{false}, ended{false};
  GlooMeshOptions options = OptionsOf(&board, 0, 2);
  options.connect_deadline = absl::Minutes(10);
  options.job = [&] {
    return exchanged ? absl::AbortedError("the job has failed: trainer 1 is dead") : absl::OkStatus();
  };
  std::thread stopped([&] {
    GlooMeshOptions other = OptionsOf(&board, 1, 2);
    other.exchange = [&](const std::string& key, const std::string& mine) -> absl::StatusOr<std::vector<std::string>> {
      (void)board.Exchange(key, 1, mine, absl::Seconds(20));
      exchanged = true;
      while (!ended) std::this_thread::yield();
      return absl::CancelledError("this rank ends");
    };
    EXPECT_FALSE(ConnectGlooMesh(other).ok());
  });
  const absl::Status status = ConnectGlooMesh(options).status();
  ended = true;
  stopped.join();
  return status;
}

TEST(GlooMeshTest, AJobThatFailsEndsTheWaitForConnections) {
  // By the order of the ports, which the system draws, one of two ranks opens the connection, and the other waits.
  absl::Status status;
  const absl::Time begin = Clock::Real()->Now();
  for (int i = 0; i < 50 && status.ok(); ++i) status = ConnectToAStoppedRank();
  EXPECT_EQ(status, absl::AbortedError("the job has failed: trainer 1 is dead"));
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(20));
}

TEST(GlooMeshTest, BrokenAddressesAreRefused) {
  for (const char* text : {"", "\x05", "\xff\xff", "\x03\x00x"}) {
    RankBoard board(2);
    GlooMeshOptions options = OptionsOf(&board, 0, 2);
    options.exchange = [&](const std::string&, const std::string& mine) {
      return std::vector<std::string>({mine, text});
    };
    EXPECT_EQ(ConnectGlooMesh(options).status().code(), absl::StatusCode::kInternal) << text;
  }
}

}  // namespace
}  // namespace weir
