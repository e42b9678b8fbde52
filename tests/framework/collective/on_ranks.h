// Runs collective operations on ranks in one process.
#ifndef WEIR_TESTS_FRAMEWORK_COLLECTIVE_ON_RANKS_H_
#define WEIR_TESTS_FRAMEWORK_COLLECTIVE_ON_RANKS_H_

#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "gtest/gtest.h"

namespace weir {

// Small messages, so that few elements are many messages.
inline Collective::Options MessagesOf(int64_t bytes) {
  Collective::Options options;
  options.message_bytes = bytes;
  options.waits.deadline = absl::Seconds(60);
  return options;
}

// Runs `body` on every rank, each on its own thread; returns what each returned.
inline std::vector<absl::Status> OnRanksWith(LocalMeshes* meshes, int ranks,
                                             const std::function<Collective::Options(int rank)>& options,
                                             const std::function<absl::Status(Collective*, int rank)>& body) {
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Collective collective(meshes->mesh(r), options(r));
      statuses[static_cast<size_t>(r)] = body(&collective, r);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}
inline std::vector<absl::Status> OnRanks(LocalMeshes* meshes, int ranks, const Collective::Options& options,
                                         const std::function<absl::Status(Collective*, int rank)>& body) {
  return OnRanksWith(
      meshes, ranks, [&](int /*rank*/) { return options; }, body);
}

// Has rank 1 of 3 stop in the middle of an operation on `count` floats, and expects that the others name it.
inline void ExpectStoppedRankIsNamed(
    int64_t count, const std::function<Collective::PendingPtr(Collective*, std::vector<float>* values)>& begin) {
  LocalMeshes meshes(3);
  meshes.Cut(1, count / 4);
  const auto options = [](int rank) {
    Collective::Options of_rank = MessagesOf(256);
    // The others are held up as well, and could name each other.
    of_rank.waits.deadline = rank == 0 ? absl::Seconds(1) : absl::Seconds(60);
    return of_rank;
  };
  const std::vector<absl::Status> statuses =
      OnRanksWith(&meshes, 3, options, [&](Collective* collective, int /*rank*/) {
        std::vector<float> values(static_cast<size_t>(count), 1);
        return begin(collective, &values)->Wait();
      });
  EXPECT_GE(meshes.sent(1), count / 4);
  for (const absl::Status& status : statuses) {
    EXPECT_NE(status.message().find("nothing from trainer "), absl::string_view::npos) << status;
  }
}

inline void ExpectAllOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

}  // namespace weir

#endif  // WEIR_TESTS_FRAMEWORK_COLLECTIVE_ON_RANKS_H_
