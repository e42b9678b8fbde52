// Moments of a column of floats.
#ifndef WEIR_TRAINER_STATISTICS_MOMENTS_H_
#define WEIR_TRAINER_STATISTICS_MOMENTS_H_

#include <cstdint>

namespace weir {

// Count, mean and sum of squared distances from the mean of the values present.
struct Moments {
  int64_t count = 0;
  double mean = 0;
  double m2 = 0;

  void Add(double x);
  // Adds the values of `other` behind these: not commutative in bits.
  void Add(const Moments& other);
  // Returns sqrt(m2 / count); 1 if that is 0, so that a constant column becomes 0.
  double Deviation() const;
  // Returns true if a column of floats can have such moments. Sums of a few thousand of them stay far from the ends of
  // their types.
  bool Plausible() const;
};

}  // namespace weir

#endif  // WEIR_TRAINER_STATISTICS_MOMENTS_H_
