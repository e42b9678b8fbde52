#include "framework/runtime/memory_use.h"

#include <algorithm>
#include <cstddef>

namespace weir {
namespace {

// Returns true if the memory at `begin` lies in that of another dense input.
bool IsInInput(const char* begin, const Variable& var, const KernelContext& context) {
  for (const std::vector<KernelContext::Slot>& lane : context.inputs) {
    for (const KernelContext::Slot& slot : lane) {
      for (const Variable* input : slot.vars) {
        const Tensor* other = std::get_if<Tensor>(input);
        if (input == &var || other == nullptr || !other->initialized()) continue;
        const char* const from = static_cast<const char*>(other->raw());
        if (begin >= from && begin < from + other->bytes()) return true;
      }
    }
  }
  return false;
}

// Returns the bytes that a value has for itself; 0 for a view of an input of `context`, which may be null.
int64_t OwnBytes(const Variable& var, const KernelContext* context) {
  if (const IdBatch* ids = std::get_if<IdBatch>(&var)) {
    return static_cast<int64_t>(8 * (ids->values.size() + ids->offsets.size()) + 4 * ids->weights.size());
  }
  if (const SelectedRows* rows = std::get_if<SelectedRows>(&var)) {
    return static_cast<int64_t>(8 * rows->ids.size() + 4 * rows->step_rows.size() + rows->values.bytes());
  }
  const Tensor& tensor = std::get<Tensor>(var);
  if (!tensor.initialized()) return 0;
  if (context != nullptr && IsInInput(static_cast<const char*>(tensor.raw()), var, *context)) return 0;
  return static_cast<int64_t>(tensor.bytes());
}

}  // namespace

void VariableBytes::Add(VariableOwner owner, int64_t bytes) {
  switch (owner) {
    case VariableOwner::kLane:
      lanes += bytes;
      return;
    case VariableOwner::kStep:
      step += bytes;
      return;
    case VariableOwner::kPersistable:
      persistable += bytes;
      return;
  }
}

MemoryUse::Held* MemoryUse::FindOrAdd(const Variable* var, VariableOwner owner) {
  const auto [it, fresh] = by_var_.try_emplace(var, nullptr);
  if (fresh) it->second = &held_.emplace_back(Held{.var = var, .owner = owner});
  return it->second;
}

MemoryUse::Held* MemoryUse::AddWritten(const Variable* var, VariableOwner owner) {
  Held* const held = FindOrAdd(var, owner);
  held->written = true;
  return held;
}

void MemoryUse::Measure(absl::Span<Held* const> written, const KernelContext& context) {
  for (Held* held : written) held->bytes = std::max(held->bytes, OwnBytes(*held->var, &context));
}

void MemoryUse::MeasureFed() {
  for (Held& held : held_) {
    if (!held.written) held.bytes = std::max(held.bytes, OwnBytes(*held.var, nullptr));
  }
}

VariableBytes MemoryUse::bytes() const {
  VariableBytes sum;
  for (const Held& held : held_) sum.Add(held.owner, held.bytes);
  return sum;
}

}  // namespace weir
