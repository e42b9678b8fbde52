// Describes, for messages, how busy the machine of this process is. Reads files of /proc; what they do not say is left
// out. Not thread-safe.
#ifndef WEIR_TRAINER_PROGRESS_MACHINE_STATE_H_
#define WEIR_TRAINER_PROGRESS_MACHINE_STATE_H_

#include <cstdint>
#include <string>
#include <utility>

namespace weir {

class MachineState {
 public:
  // `proc`: directory to read, "/proc" except in tests.
  explicit MachineState(std::string proc = "/proc") : proc_(std::move(proc)) {}

  // Remembers the counters of the processors, which Text compares with.
  void Look() { before_ = ReadTimes(); }
  // Returns "load 5.1 on 2 processors, 12 % of their time went to other machines, tasks waited for a processor for
  // 31 %, a disk for 2 % of 10 s". Waits below 1 % are left out; the time of other machines counts since Look.
  std::string Text() const;

 private:
  // Ticks of all processors since the start of the machine.
  struct Times {
    int64_t all = 0, stolen = 0;
  };
  Times ReadTimes() const;

  std::string proc_;
  Times before_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_PROGRESS_MACHINE_STATE_H_
