// Norms over dense parameters, which every trainer holds, and tables, which servers hold.
#ifndef WEIR_FRAMEWORK_GRAPH_NORMS_WITH_TABLES_H_
#define WEIR_FRAMEWORK_GRAPH_NORMS_WITH_TABLES_H_

#include <set>
#include <string>

#include "proto/program.pb.h"

namespace weir {

// Returns the names of such norms in a program: those of whole_norm ops with attribute `with_tables`. The programs of
// trainers and servers of one job have the same ones (transpiler/verify).
std::set<std::string> NormsWithTables(const v1::ProgramDesc& main);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_NORMS_WITH_TABLES_H_
