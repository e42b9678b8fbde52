// Names of threads by which the table of a profile knows what they run.
#ifndef WEIR_FRAMEWORK_PROFILE_THREAD_NAMES_H_
#define WEIR_FRAMEWORK_PROFILE_THREAD_NAMES_H_

namespace weir {

// Operations among trainers (framework/collective); the number of the stream follows.
inline constexpr char kAmongThreads[] = "weir-coll-";
// Pulls of rows ahead of their step (trainer/loop/ahead_thread.h).
inline constexpr char kAheadThread[] = "weir-prefetch";

}  // namespace weir

#endif  // WEIR_FRAMEWORK_PROFILE_THREAD_NAMES_H_
