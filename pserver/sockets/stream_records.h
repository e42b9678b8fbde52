// Records of a stream of calls (proto/stream_service.proto). A message of the stream is a batch: records one after the
// other, each a head of kRecordHead bytes and its payload, followed by zeros up to a multiple of kAlignment. Numbers
// are little-endian.
//
//   offset  bytes
//   0       4      version of the records, kRecordVersion
//   4       4      kind (RecordHead::Kind)
//   8       8      number of the call, which its answer repeats
//   16      4      method of a request (Method)
//   20      4      1: the answer may wait for the next one of the stream; else 0
//   24      8      bytes of the payload
//   32      8      run: what the processes of one run share; 0
//   40      8      epoch of the job's membership; 0
//   48      8      number of the call for the profiler; 0: it is not recorded
//   56      8      step of a request that is recorded, or of a notice
//
// kComplete and kApply are notices without a call, of a server and to it; they are not sent yet, and skipped.
#ifndef WEIR_PSERVER_SOCKETS_STREAM_RECORDS_H_
#define WEIR_PSERVER_SOCKETS_STREAM_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/wire/slices.h"

namespace weir {

inline constexpr uint32_t kRecordVersion = 1;
inline constexpr size_t kRecordHead = 64;
// Records are put into one batch up to so many bytes; a larger one is a batch by itself. One thread handles the
// requests of a batch, so those that are some work, such as pulls of many rows, come in batches of their own.
inline constexpr size_t kBatchBytes = size_t{8} << 10;
// Most records of a batch.
inline constexpr size_t kMostRecords = 8192;

struct RecordHead {
  enum Kind : uint32_t {
    kRequest = 1,
    kReply = 2,
    kError = 3,     // the payload is a v1::Status
    kComplete = 4,  // a step is complete at a server
    kApply = 5,     // and may take effect
  };
  uint32_t kind = kRequest;
  uint64_t call = 0;
  uint32_t method = 0;
  bool answer_may_wait = false;
  uint64_t run = 0;
  uint64_t epoch = 0;
  uint64_t profiled_id = 0;
  int64_t step = -1;
};

struct Record {
  RecordHead head;
  Slices payload;

  // Returns the bytes that it takes in a batch.
  size_t bytes() const;
};

// Appends a record to a batch. Payloads without an owner are copied.
void AppendRecord(const Record& record, Slices* batch);

// Returns the records of a batch, whose payloads share its memory. InvalidArgument: it is no batch. FailedPrecondition:
// it is one of another version; the message names both.
absl::StatusOr<std::vector<Record>> ReadRecords(const Slices& batch);

}  // namespace weir

#endif  // WEIR_PSERVER_SOCKETS_STREAM_RECORDS_H_
