// Functors of bilinear (ops/bilinear.cc): what is around its products of matrices.
#ifndef WEIR_OPS_DEVICE_BILINEAR_FUNCTORS_H_
#define WEIR_OPS_DEVICE_BILINEAR_FUNCTORS_H_

#include <cstdint>

#include "ops/pairs_of_vectors.h"

namespace weir {
namespace device {

// Products x_i w of a batch. With one matrix for all pairs, or one for each i, there is one for each i; else one for
// each pair. Value w of product l of example b is at b * row + l * step + w.
struct BilinearProducts {
  int64_t batch, vectors, width;
  bool of_pairs;
  int64_t row, step;

  WEIR_HOST_DEVICE int64_t pairs() const { return PairsOf(vectors); }
  WEIR_HOST_DEVICE int64_t count() const { return of_pairs ? pairs() : vectors - 1; }
  WEIR_HOST_DEVICE int64_t ProductOf(int64_t i, int64_t pair) const { return of_pairs ? pair : i; }
  WEIR_HOST_DEVICE int64_t At(int64_t b, int64_t product, int64_t w) const { return b * row + product * step + w; }
  // Sets the vectors i < j of a pair.
  WEIR_HOST_DEVICE void VectorsOf(int64_t pair, int64_t* i, int64_t* j) const {
    int64_t first = 0;
    while (pair >= FirstPairOf(first + 1, vectors)) ++first;
    *i = first;
    *j = first + 1 + pair - FirstPairOf(first, vectors);
  }
};

// Copies the vector that product l reads: element (l * batch + b) * width + w of `to`.
struct BilinearLeftAt {
  BilinearProducts p;
  const float* x;
  float* to;
  WEIR_HOST_DEVICE void operator()(int64_t at) const {
    const int64_t w = at % p.width, b = at / p.width % p.batch, product = at / p.width / p.batch;
    int64_t i = product, j = 0;
    if (p.of_pairs) p.VectorsOf(product, &i, &j);
    to[at] = x[(b * p.vectors + i) * p.width + w];
  }
};

// Element of Out.
struct BilinearAt {
  BilinearProducts p;
  const float* u;
  const float* x;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t at) const {
    const int64_t w = at % p.width, pair = at / p.width % p.pairs(), b = at / p.width / p.pairs();
    int64_t i, j;
    p.VectorsOf(pair, &i, &j);
    out[at] = u[p.At(b, p.ProductOf(i, pair), w)] * x[(b * p.vectors + j) * p.width + w];
  }
};

// Element (b * count + l) * width + w: the gradient of a product, which goes to its place in du.
struct BilinearProductGradAt {
  BilinearProducts p;
  const float* dout;
  const float* x;
  float* du;
  WEIR_HOST_DEVICE void operator()(int64_t at) const {
    const int64_t w = at % p.width, product = at / p.width % p.count(), b = at / p.width / p.count();
    const float* const d = dout + b * p.pairs() * p.width + w;
    const float* const xs = x + b * p.vectors * p.width + w;
    float sum = 0;
    if (p.of_pairs) {
      int64_t i, j;
      p.VectorsOf(product, &i, &j);
      sum = d[product * p.width] * xs[j * p.width];
    } else {
      const int64_t first = FirstPairOf(product, p.vectors);
      for (int64_t j = product + 1; j < p.vectors; ++j) {
        const float term = d[(first + j - product - 1) * p.width] * xs[j * p.width];
        sum = j == product + 1 ? term : sum + term;
      }
    }
    du[p.At(b, product, w)] = sum;
  }
};

// Element of dX: what its vector gives as the second one of pairs, and `back`, laid out like u: du w^T.
struct BilinearVectorGradAt {
  BilinearProducts p;
  const float* dout;
  const float* u;
  const float* back;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t at) const {
    const int64_t w = at % p.width, vector = at / p.width % p.vectors, b = at / p.width / p.vectors;
    const float* const d = dout + b * p.pairs() * p.width + w;
    float sum = 0;
    for (int64_t i = 0; i < vector; ++i) {
      const int64_t pair = PlaceOfPair(i, vector, p.vectors);
      sum += d[pair * p.width] * u[p.At(b, p.ProductOf(i, pair), w)];
    }
    if (!p.of_pairs) {
      if (vector + 1 < p.vectors) sum += back[p.At(b, vector, w)];
    } else {
      for (int64_t j = vector + 1; j < p.vectors; ++j) sum += back[p.At(b, PlaceOfPair(vector, j, p.vectors), w)];
    }
    dx[at] = sum;
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_BILINEAR_FUNCTORS_H_
