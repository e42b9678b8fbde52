// Records of a file or of a part of it: lines of text, or examples of fixed size. One thread at a time.
// trainer/files/open_records.h opens the kind that a file needs.
#ifndef WEIR_TRAINER_FILES_RECORD_SOURCE_H_
#define WEIR_TRAINER_FILES_RECORD_SOURCE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace weir {

class RecordSource {
 public:
  virtual ~RecordSource() = default;

  // Reads the next record. Returns false at the end and on an error; see status(). `record` is valid until the next
  // call and has LineParser::kPadding readable bytes behind it. `offset`: position in the file, for a line its first
  // byte, for an example its number.
  virtual bool Next(std::string_view* record, int64_t* offset) = 0;
  // Skips up to `records` records and returns how many were skipped; fewer if Next returns false.
  virtual int64_t Skip(int64_t records);
  // Goes on with the record that begins at `offset`, at the place or behind it, and reads nothing in front of it and
  // little behind it: for records far from each other. Returns false, and changes nothing, if the source cannot: Skip
  // then leads there.
  virtual bool JumpTo(int64_t /*offset*/) { return false; }
  // Announces that the caller will read the record that is `records` behind the next one. Only a hint: most sources,
  // whose memory is read in order, ignore it.
  virtual void Prefetch(int64_t /*records*/) {}
  const absl::Status& status() const { return status_; }

 protected:
  absl::Status status_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_RECORD_SOURCE_H_
