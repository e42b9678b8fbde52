// Two unknown costs from the times of two runs. Pure functions.
#ifndef WEIR_TRAINER_VERIFY_TWO_COSTS_H_
#define WEIR_TRAINER_VERIFY_TWO_COSTS_H_

namespace weir {

struct TwoCosts {
  double once = 0, often = 0;
};

// Two runs of the same work in one and in two pieces take once_cost x once + often_cost x often1 and
// once_cost x once + often_cost x often2: returns both costs, in the unit of t1 and t2, which are not negative. Neither
// is negative, whatever the noise of the measurement and of the arithmetic. Counts that cannot tell the costs apart
// make them equal.
TwoCosts SolveTwoCosts(double t1, double t2, double once, double often1, double often2);

}  // namespace weir

#endif  // WEIR_TRAINER_VERIFY_TWO_COSTS_H_
