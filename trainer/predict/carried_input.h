// Columns of the input that predictions carry through: reads the examples again, in input order, beside the scores.
//
// Reading again costs the memory of one example, whatever is carried, and no message between trainers. The examples are
// those that were scored: a function of the files and of the job.
#ifndef WEIR_TRAINER_PREDICT_CARRIED_INPUT_H_
#define WEIR_TRAINER_PREDICT_CARRIED_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/formats/csv_fields.h"
#include "framework/formats/example.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/row_filter.h"
#include "proto/job.pb.h"
#include "proto/tf_example.pb.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/data_statistics.h"
#include "trainer/data/example_stream.h"
#include "trainer/files/data_set.h"
#include "trainer/predict/prediction_file.h"

namespace weir {

class CarriedInput {
 public:
  // Finds the columns that --carry names, each of which is
  //
  //   a column of data.csv, or one that only the files' headers name. Its text is carried.
  //   a feature of data.tf_record. If its type is TEXT, its texts are carried.
  //   a partition of the job. Its text in the name of the file is carried.
  //   a variable of the reader or a derived one. A variable of several slots is a column for each slot.
  //   a slot of a wider variable ("C7"), or a float of one ("dense[3]").
  //
  // Values are those of the data, before data.dense and data.ids. `statistics`: what the job has learned for its
  // derived variables and classes, as in LaneReaderOptions; borrowed for the call. InvalidArgument: there is no such
  // column, two have one name, or that of predictions; a column of texts of an example file, which has hashes, is to be
  // a text.
  static absl::StatusOr<std::unique_ptr<CarriedInput>> Create(const DataSpec& spec, DataSet data,
                                                              const std::vector<std::string>& names,
                                                              PredictionFormat format,
                                                              const DataStatistics* statistics = nullptr);

  const std::vector<CarriedColumn>& columns() const { return columns_; }

  // Reads the next example, which must be the one at `position`. FailedPrecondition: the files have changed.
  absl::Status Next(const InputPosition& position, std::vector<CarriedValue>* row);

 private:
  // Place of a column's values in an example, and of its text in a line.
  struct Place {
    // First position in Example.floats, or slot; of a column without values: 0.
    size_t values = 0;
    // The column's message in data.csv; null for one that only headers name, and with other readers.
    const v1::Csv::Column* csv = nullptr;
    // Place of the field in a line of a file without header.
    size_t field = 0;
    // Index in data.partition, whose text stands in the name of a file; -1: the column is none.
    int partition = -1;
  };

  CarriedInput(const DataSpec& spec, DataSet data) : spec_(spec), data_(std::move(data)) {}

  bool reads_features() const { return spec_.config.has_tf_record(); }
  const v1::Csv* csv() const { return spec_.config.has_csv() ? &spec_.config.csv() : nullptr; }
  bool has_header() const { return csv() != nullptr && csv()->header(); }
  // Returns where variables begin in an example, by their names.
  std::map<std::string, size_t> Begins() const;
  void AddCsvColumns();
  void AddFeatures();
  void AddPartitions();
  void AddOutput(const std::string& name, const std::string& output);
  void AddVariables();
  absl::Status AddHeaderColumns();
  absl::Status Choose(const std::vector<std::string>& names);
  absl::Status FindFields(PredictionFormat format);
  absl::Status OpenStream();
  absl::Status Changed(const InputPosition& position) const;
  // Splits the line, or parses the record, that the stream has given. Returns false if it cannot be.
  bool ReadFields();
  // Sets the values and the texts of a column.
  static void SetTexts(const CarriedColumn& column, const Place& place, CarriedValue* value);
  void SetFeature(const CarriedColumn& column, CarriedValue* value) const;
  void SetValues(const CarriedColumn& column, const Place& place, CarriedValue* value) const;

  const DataSpec spec_;
  const DataSet data_;
  std::unique_ptr<LineParser> parser_;
  CsvDialect dialect_;  // of data.csv
  RowFilter where_;
  // Columns that can be carried, by the names that --carry may use, and the names in order.
  struct Offer {
    std::vector<CarriedColumn> columns;
    std::vector<Place> places;
    // Slots of several variables have the name.
    bool several = false;
  };
  std::map<std::string, Offer> offers_;
  std::vector<std::string> offered_;

  std::vector<CarriedColumn> columns_;
  std::vector<Place> places_;
  bool needs_fields_ = false;  // of lines, or features of records
  // Place in a line of the field of each column, if it is one, by file with a header.
  std::vector<std::vector<size_t>> fields_;

  std::unique_ptr<ExampleStream> stream_;
  Example example_;
  std::vector<size_t> slot_begins_;  // of example_.ids
  std::vector<std::string> texts_;   // of a line
  v1::TfExample message_;            // of a record
};

}  // namespace weir

#endif  // WEIR_TRAINER_PREDICT_CARRIED_INPUT_H_
