// Any bytes as an IDX file and its labels. The first byte says how they are compressed and whether there are labels;
// the second, how many streams. What is not refused gives, over all streams, as many examples as the header says.
#include <cstdlib>
#include <string>

#include "framework/formats/derived.h"
#include "google/protobuf/text_format.h"
#include "tests/fuzz/input.h"
#include "trainer/data/example_stream.h"
#include "trainer/files/data_set.h"

namespace weir {
namespace {

const LineParser& Parser(const v1::Data& data) {
  static const auto* const parser = new std::unique_ptr<LineParser>(MakeLineParser(data).value());
  return **parser;
}

// Examples of one stream; -1 after an error.
int64_t Read(const DataSet& set, const LineParser& parser, int stream, int streams) {
  ExampleStream examples({.data = &set, .parser = &parser, .stream = stream, .streams = streams});
  Example example;
  ExampleStream::Prepare(parser, &example);
  InputPosition position;
  int64_t read = 0;
  while (examples.Next(&example, &position)) {
    if (position.offset < 0 || position.offset >= set.files()[0].idx->examples) std::abort();
    ++read;
  }
  return examples.status().ok() ? read : -1;
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static const ScratchDirectory scratch("idx");
  FuzzInput input(data, size);
  const uint8_t how = input.Byte();
  const int streams = 1 + input.Byte() % 9;
  v1::Data config;
  if (!google::protobuf::TextFormat::ParseFromString("idx { values: 6 }", &config)) std::abort();
  v1::DataSource source;
  source.add_files("values");
  scratch.Write("labels", input.Piece());
  if (how % 2 == 1) source.add_labels("labels");
  scratch.Write("values", input.Rest());
  const auto set = DataSet::Open(config, source, scratch.path(), "data.train");
  if (!set.ok()) return 0;
  int64_t read = 0;
  for (int stream = 0; stream < streams; ++stream) {
    const int64_t of_stream = Read(*set, Parser(config), stream, streams);
    if (of_stream < 0) return 0;
    read += of_stream;
  }
  if (read != set->files()[0].idx->examples) std::abort();
  return 0;
}
