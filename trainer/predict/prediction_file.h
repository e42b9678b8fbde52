// Files of predictions in four formats, chosen by the ending of the name, with columns carried through from the input.
//
//   text       any name with none of the endings below, nor with that of another format (.parquet, .json, .npy). A line
//   has the values of one prediction, separated by blanks.
//              It has no carried columns.
//   .csv       A header line, and ',' between fields. Carried columns come first, then "prediction", or
//              "prediction_0", "prediction_1" and so on where a prediction has several values.
//   .tfrecord  Messages tf.train.Example with a feature for each carried column, and the float_list "prediction".
//              .tfrecords means the same.
//   .examples  An example file (docs/example_files.md) of the carried variables and the float variable "prediction".
//
// All but .examples may be compressed: with a further ending .gz, or .zst or .zstd.
//
// A prediction has nine significant digits in text and .csv, so that float32 values are restored to the bit.
#ifndef WEIR_TRAINER_PREDICT_PREDICTION_FILE_H_
#define WEIR_TRAINER_PREDICT_PREDICTION_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/formats/example.h"

namespace weir {

enum class PredictionFormat { kText, kCsv, kTfRecord, kExamples };

// Returns the format of a file of that name. InvalidArgument: `carries`, and the ending is that of no format with
// columns; an example file would be compressed; or the ending promises a format that is not written, such as .parquet.
absl::StatusOr<PredictionFormat> PredictionFormatOf(const std::string& path, bool carries);

// A column carried from the input: a text, floats, or the ids of one slot.
struct CarriedColumn {
  std::string name;
  // True if the column has values, besides a text: `width` floats, or ids.
  bool has_values = true;
  bool floats = false;
  int64_t width = 1;
  IdKind id_kind = IdKind::kUnknown;
  // True if it is a field of the input's lines. In .csv it is then one field, whatever its width.
  bool is_field = false;
  // Separators of values, and between an id and its weight, where .csv has several in a field.
  char list = ' ';
  char weight = ':';
};

// Value of a carried column in one example. All empty, with NaN for floats: missing.
struct CarriedValue {
  // Text of the input's field, for .csv. Not set if the input has no texts.
  bool has_field = false;
  std::string field;
  // Texts, for .tfrecord, of a column without values and of one whose ids are hashes of texts.
  std::vector<std::string> texts;
  std::vector<float> floats;  // `width` of them
  std::vector<int64_t> ids;
  std::vector<float> weights;  // empty, or one per id
};

// Returns the value of a column that is missing.
CarriedValue MissingValue(const CarriedColumn& column);

// A file being written. Nothing has the path before Finish. Not thread-safe.
class PredictionFile {
 public:
  virtual ~PredictionFile() = default;
  // Creates a file. `width`: values per prediction, at least 1. Columns of .examples must have values.
  static absl::StatusOr<std::unique_ptr<PredictionFile>> Create(const std::string& path, PredictionFormat format,
                                                                std::vector<CarriedColumn> columns, int64_t width);
  // Adds an example: `width` values, and one value for each column.
  virtual absl::Status Add(absl::Span<const float> prediction, absl::Span<const CarriedValue> row) = 0;
  // Gives the file its name.
  virtual absl::Status Finish() = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_PREDICT_PREDICTION_FILE_H_
