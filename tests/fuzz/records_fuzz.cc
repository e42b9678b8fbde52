// Any bytes as a TFRecord file, or as an example file with right checksums. The first byte says which, and how many
// streams read it. What is not refused gives every example once over all streams. A TFRecord file is also read in
// ranges, as big files are: what no source of a range refuses is a good file, whose records they all have.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "framework/base/crc32c.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/derived.h"
#include "google/protobuf/text_format.h"
#include "proto/example_file.pb.h"
#include "tests/fuzz/input.h"
#include "trainer/data/example_stream.h"
#include "trainer/files/data_set.h"
#include "trainer/files/example_file.h"
#include "trainer/files/tf_record_source.h"

namespace weir {
namespace {

struct Format {
  v1::Data data;
  std::unique_ptr<LineParser> parser;
};
const Format& FormatOf(bool tf_record) {
  static const auto* const formats = [] {
    auto* const made = new std::pair<Format, Format>;
    const auto make = [](const char* text, Format* format) {
      if (!google::protobuf::TextFormat::ParseFromString(text, &format->data)) std::abort();
      format->parser = MakeLineParser(format->data).value();
    };
    make(
        "tf_record { feature { name: 'x' dim: 2 } feature { name: 'a' type: ID weights: 'w' } feature { name: 'b' "
        "type: "
        "TEXT } }",
        &made->first);
    make("multi_slot { slot { name: 'x' type: FLOAT dim: 2 } slot { name: 'a' } slot { name: 'b' } }", &made->second);
    return made;
  }();
  return tf_record ? formats->first : formats->second;
}

template <typename T>
void Append(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Records of the lengths that stand in front of them, with right checksums.
std::string TfFile(std::string_view bytes) {
  std::string file;
  const auto masked = [](std::string_view text) {
    const uint32_t crc = Crc32c(text.data(), text.size());
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
  };
  while (!bytes.empty()) {
    const size_t size = std::min<size_t>(static_cast<uint8_t>(bytes[0]), bytes.size() - 1);
    const std::string_view record = bytes.substr(1, size);
    std::string length;
    Append(uint64_t{size}, &length);
    file += length;
    Append(masked(length), &file);
    file += record;
    Append(masked(record), &file);
    bytes.remove_prefix(1 + size);
  }
  return file;
}

// A file of one block, whose description is that of a right file but for what `changes` says.
std::string ExampleFileOf(std::string_view changes, std::string_view block) {
  v1::ExampleFile message;
  message.set_format_version(1);
  v1::ExampleFile::Variable* const x = message.add_variable();
  x->set_name("x");
  x->set_width(2);
  for (const char* const name : {"a", "b"}) {
    v1::ExampleFile::Variable* const ids = message.add_variable();
    ids->set_name(name);
    ids->set_ids(true);
    ids->set_width(1);
    ids->add_slot(name);
    message.add_slot();
  }
  for (int i = 0; i < 2; ++i) message.add_float_column();
  message.add_block_bytes(static_cast<int64_t>(block.size()));
  message.add_block_examples(changes.empty() ? 1 : static_cast<uint8_t>(changes[0]));
  message.add_block_checksum(StableHash(block));
  message.set_examples(message.block_examples(0));
  if (changes.size() > 1) (void)message.MergeFromString(std::string(changes.substr(1)));
  std::string file("WEIREXMP");
  Append(uint32_t{1}, &file);
  file.resize(64, '\0');
  file += block;
  const std::string description = message.SerializeAsString();
  file += description;
  Append(uint64_t{description.size()}, &file);
  Append(StableHash(description), &file);
  return file + "WEIREXME";
}

// Returns where the records of a file begin that is read in `parts` ranges, or the first error.
absl::StatusOr<std::set<int64_t>> Begins(const DataFile& file, int64_t parts) {
  std::set<int64_t> begins;
  for (int64_t part = 0; part < parts; ++part) {
    const Segment segment = {.begin = file.bytes * part / parts, .end = file.bytes * (part + 1) / parts};
    if (segment.begin == segment.end) continue;
    ASSIGN_OR_RETURN(const std::unique_ptr<RecordSource> source, TfRecordSource::Open(file, segment));
    std::string_view record;
    int64_t offset;
    while (source->Next(&record, &offset)) {
      if (!begins.insert(offset).second) std::abort();
    }
    RETURN_IF_ERROR(source->status());
  }
  return begins;
}

void CheckRanges(const DataFile& file, int64_t parts) {
  const auto ranges = Begins(file, parts), whole = Begins(file, 1);
  if (ranges.ok() && (!whole.ok() || *ranges != *whole)) std::abort();
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static const ScratchDirectory scratch("records");
  FuzzInput input(data, size);
  const uint8_t how = input.Byte();
  const bool tf_record = how % 2 == 0, raw = how / 2 % 4 == 0;
  const int streams = 1 + how / 8 % 9;
  const std::string first = input.Piece();
  std::string file;
  if (raw) {
    file = input.Rest();
  } else {
    file = tf_record ? TfFile(input.Rest()) : ExampleFileOf(first, input.Rest());
  }
  scratch.Write("file", file);
  const Format& format = FormatOf(tf_record);
  v1::DataSource source;
  source.add_files("file");
  const auto set = DataSet::Open(format.data, source, scratch.path(), "data.train");
  if (!set.ok()) return 0;
  if (const DataFile& read = set->files()[0]; read.tf_record && !read.sequential()) CheckRanges(read, 3 * streams);
  std::set<int64_t> seen;
  for (int stream = 0; stream < streams; ++stream) {
    ExampleStream examples({.data = &*set, .parser = format.parser.get(), .stream = stream, .streams = streams});
    Example example;
    ExampleStream::Prepare(*format.parser, &example);
    InputPosition position;
    while (examples.Next(&example, &position)) {
      if (!seen.insert(position.offset).second) std::abort();
      size_t ids = 0;
      for (const uint16_t count : example.counts) ids += count;
      if (ids != example.ids.size() || (!example.weights.empty() && example.weights.size() != ids)) std::abort();
    }
    if (!examples.status().ok()) return 0;
  }
  const DataFile& read = set->files()[0];
  if (read.examples != nullptr && static_cast<int64_t>(seen.size()) != read.examples->examples()) std::abort();
  return 0;
}
