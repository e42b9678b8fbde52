#include "transpiler/job/start_paths.h"

#include "transpiler/job/job.h"

namespace weir {

std::vector<std::string> StartPaths(const Job& job) {
  std::vector<std::string> paths;
  for (const v1::StartFrom& start : job.config.start_from()) paths.push_back(job.Path(start.checkpoint()));
  return paths;
}

}  // namespace weir
