#include "tests/testing/collective_mismatches.h"

#include <utility>

namespace weir {
namespace {

constexpr int64_t kCount = 4000;

using Pending = Collective::PendingPtr;
using Floats = std::vector<float>;

// Begins a sum of `values` that `change` makes odd.
std::function<Pending(Collective*, bool, Floats*)> Sum(std::function<void(Collective::Values*)> change) {
  return [change = std::move(change)](Collective* c, bool odd, Floats* v) {
    Collective::Values values = SumOf(c, "x", kCount, v);
    if (odd) change(&values);
    return c->AllReduce(values, v->data());
  };
}

// Waits for operations whose results are written to locals.
Pending Ended(Pending pending) {
  (void)pending->Wait();
  return pending;
}

Pending Kinds(Collective* c, bool odd, Floats* v) {
  return odd ? c->Broadcast("x", v1::FLOAT32, {kCount}, 0, v->data())
             : c->AllReduce(SumOf(c, "x", kCount, v), v->data());
}

Pending Order(Collective* c, bool odd, Floats*) {
  if (odd) c->Barrier("y");
  return c->Barrier("x");
}

Pending SlicesOfAReduceScatter(Collective* c, bool odd, Floats* v) {
  Floats out(kCount);
  return Ended(c->ReduceScatter(SumOf(c, "x", kCount, v), {0, odd ? 5 : 6, 10, kCount}, out.data()));
}

Pending RootOfAGather(Collective* c, bool odd, Floats*) {
  std::vector<std::string> all;
  return Ended(c->GatherBytes("x", std::string(5000, 'b'), odd ? 1 : 0, &all));
}

Pending BytesForValues(Collective* c, bool odd, Floats* v) {
  std::vector<std::string> all;
  return Ended(odd ? c->AllGatherBytes("x", "some", &all)
                   : c->AllGather("x", v1::FLOAT32, {0, 1000, 2000, kCount}, v->data()));
}

}  // namespace

Collective::Values SumOf(Collective* collective, const std::string& name, int64_t count, Floats* values) {
  return {.name = name, .shape = {count}, .addends = collective->Own(values->data())};
}

std::vector<CollectiveMismatch> CollectiveMismatches() {
  return {
      {"Shape", Sum([](Collective::Values* v) { v->shape = {kCount - 1}; }), "shape"},
      {"Dimensions", Sum([](Collective::Values* v) {
         v->shape = {kCount / 2, 2};
       }),
       "shape"},
      {"Type", Sum([](Collective::Values* v) { v->dtype = v1::INT32; }), "(type "},
      {"Reduction", Sum([](Collective::Values* v) { v->reduction = Reduction::kMax; }), "reduction"},
      {"Lanes", Sum([](Collective::Values* v) { v->lanes = 8; }), "lanes"},
      {"Segments", Sum([](Collective::Values* v) {
         v->segments = {1000, kCount - 1000};
       }),
       "slices and segments"},
      {"Name", Sum([](Collective::Values* v) { v->name = "y"; }), "name"},
      {"Kind", Kinds, "kind"},
      // The first difference that is found may be that of a later operation.
      {"Order", Order, "different operations"},
      {"Root",
       [](Collective* c, bool odd, Floats* v) {
         return c->Broadcast("x", v1::FLOAT32, {kCount}, odd ? 1 : 0, v->data());
       },
       "root"},
      {"RootOfAGather", RootOfAGather, "root"},
      {"SlicesOfAReduceScatter", SlicesOfAReduceScatter, "slice"},
      {"BytesForValues", BytesForValues, "(type "},
      {"Slices",
       [](Collective* c, bool odd, Floats* v) {
         return c->AllGather("x", v1::FLOAT32, {0, odd ? 5 : 6, 10, 20}, v->data());
       },
       "slice"},
  };
}

}  // namespace weir
