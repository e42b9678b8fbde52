#include "trainer/statistics/moments.h"

#include <cmath>
#include <limits>

namespace weir {

void Moments::Add(double x) {
  ++count;
  const double distance = x - mean;
  mean += distance / static_cast<double>(count);
  m2 += distance * (x - mean);
}

void Moments::Add(const Moments& other) {
  if (other.count == 0) return;
  if (count == 0) {
    *this = other;
    return;
  }
  const double a = static_cast<double>(count);
  const double b = static_cast<double>(other.count);
  const double distance = other.mean - mean;
  mean += distance * (b / (a + b));
  m2 += other.m2 + distance * distance * (a * b / (a + b));
  count += other.count;
}

double Moments::Deviation() const {
  const double deviation = count == 0 ? 0 : std::sqrt(m2 / static_cast<double>(count));
  return deviation > 0 ? deviation : 1;
}

bool Moments::Plausible() const {
  constexpr double kLargest = std::numeric_limits<float>::max();
  constexpr double kMostExamples = int64_t{1} << 48;
  return count >= 0 && static_cast<double>(count) <= kMostExamples && std::abs(mean) <= kLargest && m2 >= 0 &&
         m2 <= 4 * kLargest * kLargest * kMostExamples;
}

}  // namespace weir
