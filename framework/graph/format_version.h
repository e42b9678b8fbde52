// Versions of ProgramDesc (format_version).
#ifndef WEIR_FRAMEWORK_GRAPH_FORMAT_VERSION_H_
#define WEIR_FRAMEWORK_GRAPH_FORMAT_VERSION_H_

#include <cstdint>

namespace weir {

// Version of a program without a field of a later one: builds of every version read it.
inline constexpr uint32_t kFirstProgramFormat = 1;
// First version with ProgramDesc.mode.
inline constexpr uint32_t kModeProgramFormat = 2;
// Largest version that this build reads.
inline constexpr uint32_t kProgramFormatVersion = 2;

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_FORMAT_VERSION_H_
