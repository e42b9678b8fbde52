// Whether a process that has left a file behind still lives, as far as this one can tell without waiting.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_PROCESS_IDENTITY_H_
#define WEIR_FRAMEWORK_CHECKPOINT_PROCESS_IDENTITY_H_

#include "proto/checkpoint.pb.h"

namespace weir {

v1::ProcessIdentity ThisProcess();

// True only when this is certain: the process was of this boot of this host and of this namespace of pids, and its pid
// is free or has passed to a process that started at another time. False of one on another host, in another container,
// or before the host was started again, dead or not.
bool HasEnded(const v1::ProcessIdentity& process);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_PROCESS_IDENTITY_H_
