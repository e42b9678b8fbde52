#include "pserver/params/learning_rates.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

// Returns the persistable variables that the block writes, by name: counters and rates. Rates are state, too: a
// transaction for which the block does not run goes on with those of the one before.
std::vector<std::string> Written(const v1::ProgramDesc& main, const v1::BlockDesc& block) {
  std::set<std::string> persistable, written;
  for (const v1::VarDesc& var : main.blocks(0).vars()) {
    if (var.persistable() && var.kind() == v1::DENSE) persistable.insert(var.name());
  }
  for (const v1::OpDesc& op : block.ops()) {
    for (const v1::OpSlot& slot : op.outputs()) {
      for (const std::string& name : slot.vars()) {
        if (persistable.contains(name)) written.insert(name);
      }
    }
  }
  return {written.begin(), written.end()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<LearningRates>> LearningRates::Create(const v1::ProgramDesc& main, int block,
                                                                     Scope* scope) {
  if (block <= 0 || block >= main.blocks_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen_and_serv names lr_block ", block, " of ", main.blocks_size()));
  }
  std::unique_ptr<LearningRates> rates(new LearningRates());
  rates->transactions_.Resize(v1::INT64, {1});
  rates->transactions_.data<int64_t>()[0] = 0;
  ASSIGN_OR_RETURN(rates->block_, Executor::Create(main, scope, {.block = block, .lanes = 1}));
  for (const std::string& name : Written(main, main.blocks(block))) {
    Variable* const var = scope->Find(name);
    if (var == nullptr || !std::holds_alternative<Tensor>(*var) || !std::get<Tensor>(*var).initialized()) {
      return absl::InvalidArgumentError(absl::StrCat("the startup program gives ", name, " no value"));
    }
    const Tensor& tensor = std::get<Tensor>(*var);
    if (tensor.bytes() % sizeof(float) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has ", tensor.bytes(), " bytes; what is saved has a multiple of 4"));
    }
    rates->written_.emplace_back(name, var);
  }
  return rates;
}

absl::Status LearningRates::Begin(int64_t step, Hold* hold) {
  {
    MutexLock lock(&mu_);
    while (changing_) changed_.Wait(&mu_);
    changing_ = true;
    // Updates end by themselves: they wait for nobody.
    while (Due() && holders_ > 0) changed_.Wait(&mu_);
  }
  absl::Status status;
  if (Due()) {
    StepContext context;
    context.step = step;
    const int64_t no_examples = 0;
    status = block_->Run(context, absl::MakeConstSpan(&no_examples, 1));
  }
  if (status.ok()) ++transactions_.data<int64_t>()[0];
  MutexLock lock(&mu_);
  changing_ = false;
  changed_.SignalAll();
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat("learning rates: ", status.message()));
  ++holders_;
  hold->rates_ = this;
  return absl::OkStatus();
}

void LearningRates::GoOn(Hold* hold) {
  MutexLock lock(&mu_);
  while (changing_) changed_.Wait(&mu_);
  ++holders_;
  hold->rates_ = this;
}

bool LearningRates::Due() const { return transactions_.data<int64_t>()[0] % transactions_per_step_ == 0; }

void LearningRates::Release() {
  MutexLock lock(&mu_);
  if (--holders_ == 0) changed_.SignalAll();
}

std::vector<LearningRates::State> LearningRates::states() {
  std::vector<State> states;
  const auto add = [&states](const std::string& name, Tensor& tensor) {
    states.push_back({name, absl::MakeSpan(static_cast<float*>(tensor.raw()), tensor.bytes() / sizeof(float))});
  };
  for (const auto& [name, var] : written_) add(name, std::get<Tensor>(*var));
  add("transactions", transactions_);
  return states;
}

}  // namespace weir
