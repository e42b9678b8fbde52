// Mends state that a program inherits from the process that starts it and cannot work with.
#ifndef WEIR_FRAMEWORK_PROCESS_INHERITED_STATE_H_
#define WEIR_FRAMEWORK_PROCESS_INHERITED_STATE_H_

namespace weir {

// Opens the standard descriptors that are closed (`program >&-`): the next file or socket would get their number, and
// what is written to standard output would go there. Reading standard input is then at its end, writing to the others
// fails as before. And ignores SIGXFSZ, so that a write beyond the limit of `ulimit -f` fails with EFBIG and is
// reported with the name of the file, instead of ending the process without a word.
//
// Called before the constructors of any library in every program that parses its command line (command_line.h), and
// again by it; a second call changes nothing.
void MendInheritedState();

}  // namespace weir

#endif  // WEIR_FRAMEWORK_PROCESS_INHERITED_STATE_H_
