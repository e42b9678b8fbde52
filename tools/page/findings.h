// What importance and report have found of a job's checkpoints, for its page: the files importance.json
// (--role=importance --output) and report.json (checkpoint report --json) beside the checkpoints.
#ifndef WEIR_TOOLS_PAGE_FINDINGS_H_
#define WEIR_TOOLS_PAGE_FINDINGS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/mutex.h"

namespace weir {

// Thread-safe.
class Findings {
 public:
  // `directory`: of the checkpoints, which need not exist yet; "": there are none.
  explicit Findings(std::string directory);

  // Reads files that are new or have changed. One that cannot be read, or is of something else, is passed over.
  void Look();
  // Returns the files as fields of a JSON object, `"importance":{...},"report":{...}`; "" if there are none.
  std::string Fields() const;
  // Returns a number that changes when the fields do.
  int64_t version() const;

 private:
  struct File {
    std::string field;
    int64_t changed_ns = -1;
    int64_t size = -1;
    std::string json;  // "" until it has been read
  };
  const std::string directory_;
  mutable Mutex mu_;
  std::vector<File> files_ ABSL_GUARDED_BY(mu_);
  int64_t version_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weir

#endif  // WEIR_TOOLS_PAGE_FINDINGS_H_
