// The records of a file or of a part of it: lines of text, or examples of fixed size. One thread at a time.
#ifndef WEIR_TRAINER_DATA_RECORD_SOURCE_H_
#define WEIR_TRAINER_DATA_RECORD_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/data_set.h"

namespace weir {

class RecordSource {
 public:
  virtual ~RecordSource() = default;

  // False at the end and on an error; then look at status(). `record` lives until the next call and has
  // LineParser::kPadding readable bytes behind it. `offset` says where it is in the file: a line its first byte, an
  // example its number.
  virtual bool Next(std::string_view* record, int64_t* offset) = 0;
  // Passes up to `records` by. How many there were: fewer as Next gives false.
  virtual int64_t Skip(int64_t records);
  const absl::Status& status() const { return status_; }

  // Of the kind that `file` is; `file` must outlive the source.
  static absl::StatusOr<std::unique_ptr<RecordSource>> Open(const DataFile& file, const Segment& segment);

  // What to call the record at `offset` in messages: "data/train.tsv:17". Reads text up to there.
  static std::string Place(const DataFile& file, int64_t offset);

 protected:
  absl::Status status_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_RECORD_SOURCE_H_
