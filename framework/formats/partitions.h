// Values of an example that stand in the name of its file (v1::Partition): "dt=20240105/hour=03/part-0.csv".
#ifndef WEIR_FRAMEWORK_FORMATS_PARTITIONS_H_
#define WEIR_FRAMEWORK_FORMATS_PARTITIONS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/schema.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/columns.pb.h"
#include "proto/job.pb.h"

namespace weir {

using PartitionList = google::protobuf::RepeatedPtrField<v1::Partition>;

// A directory of a file's name, decoded.
struct HiveDirectory {
  std::string key;
  std::string value;
};

// Returns the directories "key=value" of a file's name, in order. A "%" with two hexadecimal digits behind it is the
// byte of that number.
std::vector<HiveDirectory> HiveDirectories(std::string_view name);

// Returns the text of each partition in the name of a file; empty is missing. InvalidArgument: there is no such
// directory, or two; the value is not of the partition's type.
absl::StatusOr<std::vector<std::string>> PartitionTexts(const PartitionList& partitions, std::string_view name);

// Checks the settings of `partitions`, with paths that begin with "partition[0]". `taken`: names of the reader's
// variables.
absl::Status CheckPartitions(const PartitionList& partitions, const std::vector<std::string>& taken,
                             const SettingErrors& errors);

// Returns a parser with the columns of `reader` and, behind them, one for each partition. Lines are for the parser that
// its ForFile returns. InvalidArgument as CheckPartitions.
absl::StatusOr<std::unique_ptr<LineParser>> AddPartitions(std::unique_ptr<LineParser> reader,
                                                          const PartitionList& partitions);

// Returns the parser of the job's reader with the partitions of the job, and without derived variables
// (framework/formats/derived.h). Errors are those of MakeFormatParser and AddPartitions.
absl::StatusOr<std::unique_ptr<LineParser>> MakeReaderParser(const v1::Data& data);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_PARTITIONS_H_
