// Variables that a job makes of those of its reader (v1::Derived): a parser around the reader's own.
#ifndef WEIR_FRAMEWORK_FORMATS_DERIVED_H_
#define WEIR_FRAMEWORK_FORMATS_DERIVED_H_

#include <memory>

#include "absl/status/statusor.h"
#include "framework/formats/learned.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/schema.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/columns.pb.h"

namespace weir {

using DerivedList = google::protobuf::RepeatedPtrField<v1::Derived>;

// Returns a parser with the columns of `reader` and, behind them, one for each derived variable. `learned` (may be
// null): the lists of ids that are known. A variable whose list or boundaries are not has no ids, and a frequency is 1.
// InvalidArgument: an input that is not there or of the wrong kind, or wrong settings, with paths that begin with
// "derived[0]".
absl::StatusOr<std::unique_ptr<LineParser>> Derive(std::unique_ptr<LineParser> reader, const DerivedList& derived,
                                                   const Learned* learned, const SettingErrors& errors);

// Returns the parser of the job's reader (MakeReaderParser), with its derived variables. `learned`: what the job has
// learned (framework/formats/learned.h); null, or without some of it, for a parser to learn from, or one that parses
// nothing. Errors are those of MakeReaderParser and Derive.
absl::StatusOr<std::unique_ptr<LineParser>> MakeLineParser(const v1::Data& data, const Learned* learned = nullptr);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_DERIVED_H_
