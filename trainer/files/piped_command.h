// Standard output of a command that stands in front of a reader (data.pipe, data.pipe_list).
//
// Commands run only in a process that was told so: a job file by itself executes nothing.
#ifndef WEIR_TRAINER_FILES_PIPED_COMMAND_H_
#define WEIR_TRAINER_FILES_PIPED_COMMAND_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weir {

// Allows this process to run commands that a job names (--allow_pipes). Call before any data is opened.
void AllowPipes();
// Returns FailedPrecondition if AllowPipes has not been called. `field` names the command's field: "data.pipe".
absl::Status PipesAllowed(std::string_view field);

// Returns `command` with each {} replaced by `name` in quotes of the shell.
std::string CommandFor(std::string_view command, std::string_view name);

struct PipedCommandOptions {
  // Text for `/bin/sh -c`.
  std::string command;
  // File or pattern that the command is for, in messages.
  std::string name;
  // Time in which the command must write to its standard output, or end.
  absl::Duration deadline = absl::Seconds(120);
};

// A running command. It is killed by the destructor, and when this process ends in any way (command_guard.h), with all
// that it has started, except processes that have left its process group. Standard input is empty; the last words on
// standard error are kept for messages. One thread at a time, not always the same.
class PipedCommand {
 public:
  // Starts the command. ResourceExhausted: no process or descriptor is left.
  static absl::StatusOr<std::unique_ptr<PipedCommand>> Start(PipedCommandOptions options);
  ~PipedCommand();
  PipedCommand(const PipedCommand&) = delete;
  PipedCommand& operator=(const PipedCommand&) = delete;

  // Reads up to `size` bytes and returns their number; 0 when the command has ended with exit code 0. InvalidArgument
  // for the exit codes 2 (bad input), 126 and 127 (it cannot be run), DataLoss for 4, Unavailable for any other one,
  // for a signal, and if it neither wrote nor ended in time (DeadlineExceeded means to a reader's callers that they may
  // ask again). Messages have name, command and last words. After an error, every call returns it again.
  absl::StatusOr<size_t> Read(char* out, size_t size);

 private:
  explicit PipedCommand(PipedCommandOptions options) : o_(std::move(options)) {}
  absl::Status Spawn();
  absl::StatusOr<size_t> ReadOrEnd(char* out, size_t size);
  // Waits until the command, whose output has ended, has ended too.
  absl::Status AwaitEnd();
  // Kills what is left of the command's group and returns its status as waitpid gives it.
  int KillAndReap();
  // Reads what standard error has. Returns false at its end.
  bool ReadErrors();
  absl::Status Ended(int status) const;
  // Returns "NAME: the command `...` " + what + the last words.
  std::string About(std::string_view what) const;

  const PipedCommandOptions o_;
  pid_t pid_ = -1;  // leads a process group; -1 after it has been reaped
  int out_ = -1, err_ = -1;
  std::string last_words_;
  bool ended_ = false;
  absl::Status failed_;  // what every further Read returns
};

// Runs a command to its end and returns what it wrote, at most `limit` bytes. Errors as Read; InvalidArgument if it
// writes more.
absl::StatusOr<std::string> OutputOf(PipedCommandOptions options, size_t limit);

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_PIPED_COMMAND_H_
