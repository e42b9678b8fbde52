// Checks whether a process that has left a file behind has ended, as far as this process can know without waiting.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_PROCESS_IDENTITY_H_
#define WEIR_FRAMEWORK_CHECKPOINT_PROCESS_IDENTITY_H_

#include "proto/checkpoint.pb.h"

namespace weir {

// Returns the identity of this process. Fields that the system does not tell are left empty; HasEnded is then false.
v1::ProcessIdentity ThisProcess();

// Returns true only if this is certain: the process belongs to this boot of this host and to this namespace of pids,
// and its pid is free, or belongs to a zombie or to a process that started at another time. Returns false for a process
// on another host, in another container, or before the host's last boot, dead or not.
bool HasEnded(const v1::ProcessIdentity& process);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_PROCESS_IDENTITY_H_
