// Distributed tables of an unsplit run: their rows in a map, changed by the row form of their update ops.
#ifndef WEIR_TRAINER_VERIFY_UNSPLIT_TABLES_H_
#define WEIR_TRAINER_VERIFY_UNSPLIT_TABLES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/checkpoint/digest.h"
#include "framework/runtime/param_channel.h"
#include "framework/runtime/scope.h"
#include "proto/program.pb.h"

namespace weir {

// Not thread-safe. Functions that take the name of a table need one that was added.
class UnsplitTables {
 public:
  // Gradient rows by id, in order of the ids.
  using Rows = std::map<int64_t, std::vector<float>>;

  UnsplitTables();
  ~UnsplitTables();

  // Adds the table `var` of the single-machine program `main`, whose startup program has filled `scope`.
  // InvalidArgument if servers decide by something that this run does not have: clocks, shows and clicks.
  absl::Status Add(const v1::ProgramDesc& main, const v1::VarDesc& var, const Scope& scope);
  bool Has(const std::string& name) const { return tables_.contains(name); }

  // Returns the source that prefetch ops take rows from.
  RowSource* rows() { return row_source_.get(); }
  // Returns the indices of the ops of block 0 that work on rows of tables: Update does their work.
  const std::set<int>& row_ops() const { return row_ops_; }

  int width(const std::string& name) const;
  int shards(const std::string& name) const;
  // Returns true if ops of the program change the table's whole gradient before rows are updated.
  bool IsMergedFirst(const std::string& name) const;
  // Returns true if the update skips rows whose gradient is not finite, instead of the step.
  bool SkipsRows(const std::string& name) const;

  // Updates the rows of a table with gradients that are sums over `samples`, in step `step`. Rates are read in `scope`.
  void Update(const std::string& name, const Rows& gradients, int64_t samples, int64_t step, const Scope& scope);
  // Removes the rows that go at the border after the step.
  void EndStep(int64_t step);
  // Adds the digests of all tables.
  void AddDigests(DigestTable* digests) const;

 private:
  struct Table;
  class TableRowSource;

  std::map<std::string, std::unique_ptr<Table>> tables_;
  std::set<int> row_ops_;
  std::unique_ptr<RowSource> row_source_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_VERIFY_UNSPLIT_TABLES_H_
