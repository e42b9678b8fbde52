// Names the process that holds a lock of a file, for messages of one that waits for it.
#ifndef WEIR_FRAMEWORK_PROCESS_LOCK_HOLDER_H_
#define WEIR_FRAMEWORK_PROCESS_LOCK_HOLDER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace weir {

// Returns "process 4711 (pserver)", with ", which is stopped" behind it where a signal has stopped that process, for
// the one that /proc/locks names; "a process that /proc/locks does not name" for one in another container or on another
// host, and where the lock is free again.
std::string LockHolder(const std::string& file);

// Returns the process that holds a lock of the file in `locks`, the text of /proc/locks; 0 if it names none. The device
// has the two parts of st_dev.
pid_t LockHolderIn(std::string_view locks, unsigned device_major, unsigned device_minor, uint64_t inode);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_PROCESS_LOCK_HOLDER_H_
