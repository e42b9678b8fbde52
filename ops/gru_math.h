// Arithmetic of a step of gru, for CPU and CUDA.
#ifndef WEIR_OPS_GRU_MATH_H_
#define WEIR_OPS_GRU_MATH_H_

#include "ops/activation_math.h"
#include "ops/vector_math.h"

namespace weir {

// Gates of a value of the state: r, z, n, and q = (h u_n + c_n), which r multiplies.
struct GruGates {
  float r, z, n, q;
};

// The products of the input and of the state before with the three gates' weights, each with its bias.
WEIR_HOST_DEVICE inline GruGates GatesOf(float xr, float xz, float xn, float hr, float hz, float hn) {
  GruGates g;
  g.r = Sigmoid(xr + hr);
  g.z = Sigmoid(xz + hz);
  g.q = hn;
  g.n = Tanh(xn + g.r * hn);
  return g;
}

WEIR_HOST_DEVICE inline float GruState(float z, float n, float before) { return (1.0f - z) * n + z * before; }

// Gradients of what the gates add up: of r and z one for both products, of n that of x w_n + b_n, and of q that of
// h u_n + c_n; and what reaches the state before directly.
struct GruGradients {
  float r, z, n, q, before;
};
WEIR_HOST_DEVICE inline GruGradients GradientsOf(float r, float z, float n, float q, float before, float dstate) {
  GruGradients d;
  d.n = TanhGrad(n, dstate * (1.0f - z));
  d.z = SigmoidGrad(z, dstate * (before - n));
  d.r = SigmoidGrad(r, d.n * q);
  d.q = d.n * r;
  d.before = dstate * z;
  return d;
}

}  // namespace weir

#endif  // WEIR_OPS_GRU_MATH_H_
