// Learning rates of one server: runs the LR block of its program between updates and keeps its counters. Thread-safe.
//
// In sync the block runs once before the updates of a step that takes effect. In async every trainer's step is a
// transaction, and the block runs before the first transaction of this server and then before every trainers-th one. So
// t is the number of transactions that have begun to take effect here, divided by the number of trainers and rounded
// down. Skipped steps and steps without samples do not count.
#ifndef WEIR_PSERVER_PARAMS_LEARNING_RATES_H_
#define WEIR_PSERVER_PARAMS_LEARNING_RATES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "framework/tensor/tensor.h"
#include "proto/program.pb.h"

namespace weir {

class LearningRates {
 public:
  // `block` of the program holds the ops; the variables in `scope` have their initial values. InvalidArgument names the
  // block or variable that cannot be run or saved. `scope` must outlive this object.
  static absl::StatusOr<std::unique_ptr<LearningRates>> Create(const v1::ProgramDesc& main, int block, Scope* scope);

  // Makes the block run before each `count`-th transaction instead of each one. Requires: called before the first
  // Begin.
  void SetTransactionsPerStep(int count) { transactions_per_step_ = count; }

  // Keeps learning rates from changing while updates read them. May be empty.
  class Hold {
   public:
    Hold() = default;
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() {
      if (rates_ != nullptr) rates_->Release();
    }

   private:
    friend class LearningRates;
    LearningRates* rates_ = nullptr;
  };
  // Sets the rates of a transaction that begins to take effect, and holds them. Waits for updates that run under other
  // rates. Requires: `hold` holds nothing; the calling thread has no other Hold.
  absl::Status Begin(int64_t step, Hold* hold);
  // Holds the present rates for another part of a transaction. Requires: Begin has been called for it; `hold` holds
  // nothing.
  void GoOn(Hold* hold);

  // State that lives across steps, as 4-byte units: persistable variables that the block writes, by name, and
  // "transactions". Requires: no Hold exists, and no Begin runs, meanwhile.
  struct State {
    std::string name;
    absl::Span<float> bits;  // valid until the next Begin
  };
  std::vector<State> states();

 private:
  LearningRates() = default;
  void Release();
  // Returns true if the block runs before this transaction.
  bool Due() const;

  int transactions_per_step_ = 1;                           // constant after SetTransactionsPerStep
  std::vector<std::pair<std::string, Variable*>> written_;  // constant; variables of the scope
  Mutex mu_;
  CondVar changed_;
  // Invariant: the rates change only while changing_ is true and holders_ is 0.
  bool changing_ ABSL_GUARDED_BY(mu_) = false;
  int holders_ ABSL_GUARDED_BY(mu_) = 0;
  // Used only by the thread that has set changing_, and in states().
  Tensor transactions_;  // int64 [1]
  std::unique_ptr<Executor> block_;
};

// Name of these states in checkpoints and digests; no parameter can have it.
inline constexpr char kLearningRateStates[] = "@LR_SCHEDULE";

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_LEARNING_RATES_H_
