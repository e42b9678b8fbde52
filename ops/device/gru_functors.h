// Functors of a step t of gru (ops/gru.cc) for sequences of `most` elements, of which example b has the first
// length[b]: what is around its products of matrices. Arrays of all elements are [batch, most, ..], those of a step
// [batch, ..]; of an example whose elements have ended the state stays, and gradients are 0.
#ifndef WEIR_OPS_DEVICE_GRU_FUNCTORS_H_
#define WEIR_OPS_DEVICE_GRU_FUNCTORS_H_

#include <cstdint>

#include "ops/gru_math.h"

namespace weir {
namespace device {

// Place of a value of the state of an example at a step.
struct GruStep {
  int64_t most, size, t;
  const int32_t* length;

  WEIR_HOST_DEVICE int64_t Element(int64_t i) const { return i / size * most + t; }
  WEIR_HOST_DEVICE bool Has(int64_t i) const { return t < length[i / size]; }
};

// A value of a state. xw [batch, most, 3 size], hu [batch, 3 size] are products without their biases.
struct GruStepAt {
  GruStep step;
  const float* xw;
  const float* hu;
  const float* b;
  const float* c;
  float* gates;
  float* state;
  float* hidden;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t size = step.size, element = step.Element(i), s = i % size;
    float* const gate = gates + element * 4 * size + s;
    float* const to = hidden + element * size + s;
    if (!step.Has(i)) {
      for (int64_t g = 0; g < 4; ++g) gate[g * size] = 0;
      *to = 0;
      return;
    }
    const float* const x = xw + element * 3 * size + s;
    const float* const h = hu + i / size * 3 * size + s;
    const GruGates g = GatesOf(x[0] + b[s], x[size] + b[size + s], x[2 * size] + b[2 * size + s], h[0] + c[s],
                               h[size] + c[size + s], h[2 * size] + c[2 * size + s]);
    gate[0] = g.r;
    gate[size] = g.z;
    gate[2 * size] = g.n;
    gate[3 * size] = g.q;
    state[i] = GruState(g.z, g.n, state[i]);
    *to = state[i];
  }
};

// A value of the gradient of a state: adds what comes from the outputs and, with `through` [batch, size], from the
// products of the step behind; then the gradients of the step's products, dxw and dhu [batch, most, 3 size], and
// dh_step [batch, 3 size] like dhu; and the state before, [batch, most, size].
struct GruStepGradAt {
  GruStep step;
  const float* gates;
  const float* hidden;
  const float* dhidden;  // may be null
  const float* dlast;    // may be null
  const float* through;  // may be null
  float* dstate;
  float* dxw;
  float* dhu;
  float* dh_step;
  float* before;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t size = step.size, element = step.Element(i), s = i % size;
    float* const dx = dxw + element * 3 * size + s;
    float* const dh = dhu + element * 3 * size + s;
    float* const own = dh_step + i / size * 3 * size + s;
    float* const last = before + element * size + s;
    if (!step.Has(i)) {
      for (int64_t g = 0; g < 3; ++g) dx[g * size] = dh[g * size] = own[g * size] = 0;
      *last = 0;
      return;
    }
    float d = dstate[i];
    const bool is_last = step.t + 1 == step.length[i / size];
    if (through != nullptr && !is_last) d += through[i];
    if (dhidden != nullptr) d += dhidden[element * size + s];
    if (dlast != nullptr && is_last) d += dlast[i];
    *last = step.t == 0 ? 0.0f : hidden[(element - 1) * size + s];
    const float* const gate = gates + element * 4 * size + s;
    const GruGradients g = GradientsOf(gate[0], gate[size], gate[2 * size], gate[3 * size], *last, d);
    dx[0] = g.r;
    dx[size] = g.z;
    dx[2 * size] = g.n;
    dh[0] = own[0] = g.r;
    dh[size] = own[size] = g.z;
    dh[2 * size] = own[2 * size] = g.q;
    dstate[i] = g.before;
  }
};

// Copies x [batch, most, width], with 0 behind the length.
struct GruElementAt {
  int64_t most, width;
  const int32_t* length;
  const float* x;
  float* to;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t element = i / width, b = element / most;
    to[i] = element - b * most < length[b] ? x[i] : 0.0f;
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_GRU_FUNCTORS_H_
