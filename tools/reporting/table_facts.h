// What the job of a checkpoint says of one of its tables.
#ifndef WEIR_TOOLS_REPORTING_TABLE_FACTS_H_
#define WEIR_TOOLS_REPORTING_TABLE_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/tensor/dtype.h"
#include "proto/job.pb.h"
#include "tools/reporting/table_report.pb.h"

namespace weir {

class TableFacts {
 public:
  // `job`: that of the checkpoint, or why it cannot be read; borrowed. A table that the job does not have is unknown,
  // too.
  TableFacts(const absl::StatusOr<v1::JobConfig>& job, std::string_view table);

  // Returns false if the job does not tell; the rest then has the values of a table without settings.
  bool known() const { return table_.has_value(); }
  DType storage() const { return settings().storage(); }
  const v1::Lifecycle& lifecycle() const { return settings().lifecycle(); }
  bool has_segments() const { return settings().segment_size() > 0; }
  // Returns train.epochs, of a job that counts its values (data.ids.min_count); nullopt if the job is unknown or its
  // data grows.
  std::optional<int64_t> epochs() const { return epochs_; }
  // Returns the initial value of a state by its name in the checkpoint: "moment", or "1.moment" of a segment. nullopt
  // if the job is unknown, or the optimizer is one of the user's own.
  std::optional<float> InitialState(std::string_view state) const;
  // Returns the embeddings of the model that look up rows of the table, in the order of the job.
  const std::vector<v1::TableReader>& readers() const { return readers_; }

 private:
  const v1::Table& settings() const { return table_.has_value() ? *table_ : v1::Table::default_instance(); }

  std::optional<v1::Table> table_;
  v1::Optimizer optimizer_;  // the job's
  std::optional<int64_t> epochs_;
  std::vector<v1::TableReader> readers_;
};

}  // namespace weir

#endif  // WEIR_TOOLS_REPORTING_TABLE_FACTS_H_
