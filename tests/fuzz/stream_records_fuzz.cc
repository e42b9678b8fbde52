// Any bytes as a batch of records of a stream, in two pieces. What is read is written again, with the same bytes but
// for those that mean nothing.
#include <cstdlib>

#include <string>

#include "framework/wire/frame.h"
#include "pserver/sockets/stream_records.h"

namespace weir {
namespace {

void Read(const std::string& bytes) {
  const size_t cut = bytes.empty() ? 0 : static_cast<uint8_t>(bytes[0]) % (bytes.size() + 1);
  const Slices batch = {Slice::Own(bytes.substr(0, cut)), Slice::Own(bytes.substr(cut))};
  const auto records = ReadRecords(batch);
  if (!records.ok()) return;
  Slices again;
  for (const Record& record : *records) AppendRecord(record, &again);
  const std::string written = Flatten(again);
  if (written.size() != bytes.size()) std::abort();
  const auto read = ReadRecords({Slice::Own(written)});
  if (!read.ok() || read->size() != records->size()) std::abort();
  for (size_t i = 0; i < read->size(); ++i) {
    if (Flatten((*read)[i].payload) != Flatten((*records)[i].payload)) std::abort();
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::Read(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
