// Norms over dense parameters, which trainers hold, and tables: the sums that trainer 0 brings, the norms that all get,
// and what a trainer does that gets none.
#include "pserver/replica/shared_norms.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "framework/base/thread_pool.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/replica/dense_replica.h"
#include "pserver/replica/make_replica.h"
#include "tests/pserver/replica/replica_job.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// Samples of all trainers: averages of small integers are exact then.
constexpr int64_t kSamples = 8;

// Trainers in one process, each with a replica and its norms.
class Trainers {
 public:
  Trainers(int trainers, std::string_view update, ReplicaJob job = ClippedReplica()) : meshes_(trainers) {
    job.trainers = trainers;
    job.sharded = update == "SHARDED";
    const ReplicaPrograms programs = job.Programs();
    for (int t = 0; t < trainers; ++t) {
      collectives_.push_back(std::make_unique<Collective>(meshes_.mesh(t), Collective::Options()));
      absl::StatusOr<std::unique_ptr<DenseReplica>> replica = MakeReplica({.main = &programs.main,
                                                                           .startup = &programs.startup,
                                                                           .pool = &pool_,
                                                                           .collective = collectives_.back().get()});
      EXPECT_TRUE(replica.ok()) << replica.status();
      replicas_.push_back(*std::move(replica));
      norms_.push_back(SharedNorms::Create(programs.main, replicas_.back().get()));
    }
  }

  SharedNorms* norms(int t) { return norms_[static_cast<size_t>(t)].get(); }
  Collective& collective(int t) { return *collectives_[static_cast<size_t>(t)]; }

  // Begins a step. Trainer 0 has `samples`, the others none; the gradient of block b is b + 1 everywhere, and nobody
  // asks for it without samples.
  void Begin(int t, int64_t samples) {
    norms(t)->Begin(t == 0 ? samples : 0, [this, t](int64_t all) -> absl::StatusOr<TrainerGradients> {
      EXPECT_GT(all, 0);
      return Gradients(t, all);
    });
  }

  // Runs `work` on all trainers at the same time; the results are by trainer.
  std::vector<absl::Status> OnAll(const std::function<absl::Status(int)>& work) {
    std::vector<absl::Status> ends(replicas_.size());
    std::vector<std::thread> threads;
    for (size_t t = 0; t < replicas_.size(); ++t) {
      threads.emplace_back([&, t] { ends[t] = work(static_cast<int>(t)); });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }

  // Squares of the averages of all gradients.
  double Squares() {
    double squares = 0;
    for (int b = 0; b < Blocks(); ++b) {
      squares += static_cast<double>(Block(b).placed.element_count()) * std::pow((b + 1.0) / kSamples, 2);
    }
    return squares;
  }

 private:
  int Blocks() const {
    int blocks = 0;
    for (const char* name : {"deep.0.w", "deep.0.b", "deep.1.w", "deep.1.b", "out.w", "out.b"}) {
      blocks += replicas_[0]->FindBlock(name) >= 0 ? 1 : 0;
    }
    EXPECT_EQ(blocks, 6);
    return blocks;
  }
  const DenseReplica::Block& Block(int b) { return replicas_[0]->block(b); }

  TrainerGradients Gradients(int t, int64_t samples) {
    TrainerGradients all{.trainer = 0, .samples = samples};
    for (int b = 0; b < Blocks(); ++b) {
      const DenseReplica::Block& block = replicas_[static_cast<size_t>(t)]->block(b);
      if (block.target < 0) continue;
      const auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(block.placed.element_count()),
                                                               static_cast<float>(b + 1));
      all.gradients.push_back({.target = block.target,
                               .node = {0, 8},
                               .count = block.placed.element_count(),
                               .values = values->data(),
                               .keep = values});
    }
    return all;
  }

  LocalMeshes meshes_;
  ThreadPool pool_{"test", 0};
  std::vector<std::unique_ptr<Collective>> collectives_;
  std::vector<std::unique_ptr<DenseReplica>> replicas_;
  std::vector<std::unique_ptr<SharedNorms>> norms_;
};

TEST(SharedNormsTest, Trainer0BringsTheSumsOfAllDenseParameters) {
  for (const char* update : {"REPLICATED", "SHARDED"}) {
    for (const int trainers : {1, 2, 3}) {
      Trainers all(trainers, update);
      // A second step has nothing of the first one.
      for (int step = 1; step <= 2; ++step) {
        const std::vector<absl::Status> ends = all.OnAll([&](int t) -> absl::Status {
          all.Begin(t, kSamples);
          if (t == 0) {
            const absl::StatusOr<NormSums> sums = all.norms(0)->Sums(step);
            if (!sums.ok()) return sums.status();
            EXPECT_EQ(sums->size(), 1u);
            const absl::StatusOr<Norms> norms = NormsOf(*sums);
            EXPECT_TRUE(norms.ok()) << norms.status();
            EXPECT_DOUBLE_EQ(norms->begin()->second, std::sqrt(all.Squares()));
          }
          return all.norms(t)->Finish(step);
        });
        for (const absl::Status& end : ends) EXPECT_TRUE(end.ok()) << update << " " << trainers << ": " << end;
      }
    }
  }
}

TEST(SharedNormsTest, TheNormsOfTrainer0ReachAll) {
  Trainers all(3, "REPLICATED");
  for (const absl::Status& end : all.OnAll([&](int t) -> absl::Status {
         all.Begin(t, kSamples);
         if (t == 0) {
           const absl::StatusOr<NormSums> sums = all.norms(0)->Sums(/*step=*/1);
           if (!sums.ok()) return sums.status();
           all.norms(0)->Take({{sums->begin()->first, 2.5}, {"of a server alone", 7}});
         } else {
           // What another trainer has heard is not asked for.
           all.norms(t)->Take({{"clip", 99}});
         }
         if (absl::Status finished = all.norms(t)->Finish(1); !finished.ok()) return finished;
         const absl::StatusOr<Norms> norms = all.norms(t)->Exchange();
         if (!norms.ok()) return norms.status();
         EXPECT_EQ(norms->size(), 1u);
         EXPECT_EQ(norms->begin()->second, 2.5);
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(end.ok()) << end;
  }
}

TEST(SharedNormsTest, AStepWithoutSamplesHasNoNorms) {
  Trainers all(2, "SHARDED");
  for (const absl::Status& end : all.OnAll([&](int t) -> absl::Status {
         all.Begin(t, 0);
         if (t == 0) {
           const absl::StatusOr<NormSums> sums = all.norms(0)->Sums(/*step=*/1);
           if (!sums.ok()) return sums.status();
           EXPECT_TRUE(sums->empty());
         }
         return all.norms(t)->Finish(1);
       })) {
    EXPECT_TRUE(end.ok()) << end;
  }
}

TEST(SharedNormsTest, ANormThatIsNoneEndsTheStepOnAll) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  for (const double wrong : {nan, infinite, -1.0}) {
    Trainers all(2, "REPLICATED");
    for (const absl::Status& end : all.OnAll([&](int t) -> absl::Status {
           all.Begin(t, kSamples);
           if (t == 0) {
             const absl::StatusOr<NormSums> sums = all.norms(0)->Sums(/*step=*/1);
             if (!sums.ok()) return sums.status();
             all.norms(0)->Take({{sums->begin()->first, wrong}});
           }
           if (absl::Status finished = all.norms(t)->Finish(1); !finished.ok()) return finished;
           return all.norms(t)->Exchange().status();
         })) {
      EXPECT_EQ(end.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(end.message()), HasSubstr("trainer 0 gives no norm of "));
    }
  }
}

TEST(SharedNormsTest, NormsOfAStepBeforeAreNotGivenAgain) {
  Trainers all(2, "REPLICATED");
  for (const absl::Status& end : all.OnAll([&](int t) -> absl::Status {
         for (int step = 1; step <= 2; ++step) {
           all.Begin(t, kSamples);
           if (t == 0) {
             const absl::StatusOr<NormSums> sums = all.norms(0)->Sums(step);
             if (!sums.ok()) return sums.status();
             if (step == 1) all.norms(0)->Take({{sums->begin()->first, 1}});
           }
           if (absl::Status finished = all.norms(t)->Finish(step); !finished.ok()) return finished;
           const absl::Status exchanged = all.norms(t)->Exchange().status();
           if (step == 2 || !exchanged.ok()) return exchanged;
         }
         return absl::OkStatus();
       })) {
    EXPECT_EQ(end.code(), absl::StatusCode::kDataLoss) << end;
  }
}

// With shares, trainer 0 waits for the sums of the others; one that leaves before ends that.
TEST(SharedNormsTest, ATrainerThatLeavesEndsTheWaitForItsSums) {
  for (const bool of_trainer_0 : {true, false}) {
    Trainers all(2, "SHARDED");
    const absl::Time begin = absl::Now();
    const std::vector<absl::Status> ends = all.OnAll([&](int t) -> absl::Status {
      all.Begin(t, kSamples);
      if ((t == 0) == of_trainer_0) {
        all.collective(t).Abort(absl::AbortedError("this trainer leaves"));
        return absl::OkStatus();
      }
      return t == 0 ? all.norms(0)->Sums(/*step=*/1).status() : all.norms(t)->Finish(1);
    });
    EXPECT_THAT(std::string(ends[of_trainer_0 ? 1 : 0].message()), HasSubstr("this trainer leaves"));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  }
}

TEST(SharedNormsTest, AProgramWithoutSuchNormsHasNone) {
  EXPECT_NE(Trainers(1, "REPLICATED").norms(0), nullptr);
  ReplicaJob by_parameter = ClippedReplica();
  by_parameter.clip = ReplicaJob::Clip::kByNorm;
  by_parameter.norm_with_tables = false;
  EXPECT_EQ(Trainers(1, "REPLICATED", by_parameter).norms(0), nullptr);
}

}  // namespace
}  // namespace weir
