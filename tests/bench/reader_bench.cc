// Criteo text: lines parsed, and examples made into batches of lanes, per second.
//
// Lines are made before the timer. Bytes are those of the text. See docs/performance.md for figures and their machine.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "framework/base/philox.h"
#include "glog/logging.h"
#include "trainer/data/example_stream.h"
#include "trainer/data/lane_reader.h"
#include "trainer/data/line_parser.h"

namespace weir {
namespace {

// A line of 13 integers of one to five digits and 26 categoricals of eight.
std::string Line(uint64_t n) {
  std::string line = absl::StrCat(n % 4 == 0);
  for (uint64_t i = 0; i < 13; ++i) {
    const PhiloxBlock r = Philox(1, n, i);
    absl::StrAppend(&line, "\t", r.v[0] >> (15 + r.v[1] % 17));
  }
  for (uint64_t i = 0; i < 26; ++i) absl::StrAppend(&line, "\t", absl::Hex(Philox(2, n, i).v[0] % 10000 * 2654435761u, absl::kZeroPad8));
  return line;
}

v1::Data CriteoData() {
  v1::Data data;
  data.mutable_criteo();
  data.set_batch_size(2048);
  return data;
}

void BM_ParseCriteoLines(benchmark::State& state) {
  const auto parser = MakeLineParser(CriteoData());
  CHECK(parser.ok()) << parser.status();
  std::string text;
  std::vector<std::pair<size_t, size_t>> lines;  // begin, size
  for (uint64_t n = 0; n < 2000; ++n) {
    const std::string line = Line(n);
    lines.emplace_back(text.size(), line.size());
    text += line + "\n";
  }
  text.append(LineParser::kPadding, '\0');
  Example example;
  ExampleStream::Prepare(**parser, &example);
  const auto parse_all = [&] {
    int64_t sum = 0;
    for (const auto& [begin, size] : lines) {
      CHECK((*parser)->Parse(std::string_view(text).substr(begin, size), &example).ok());
      sum += example.ids.back();
    }
    return sum;
  };
  int64_t expected = 0;
  for (uint64_t n = 0; n < 2000; ++n) expected += Philox(2, n, 25).v[0] % 10000 * 2654435761u;
  CHECK_EQ(parse_all(), expected);
  for (auto _ : state) benchmark::DoNotOptimize(parse_all());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(lines.size()));
}
BENCHMARK(BM_ParseCriteoLines);

// From a plain file through parsing, shuffling and salting to batches.
void BM_ReadBatches(benchmark::State& state) {
  const std::string directory = std::filesystem::temp_directory_path() / "weir_reader_benchmark";
  std::filesystem::create_directories(directory);
  constexpr int64_t kRows = 100'000;
  {
    std::ofstream out(directory + "/train.tsv");
    for (int64_t n = 0; n < kRows; ++n) out << Line(static_cast<uint64_t>(n)) << "\n";
  }
  DataSpec spec;
  spec.config = CriteoData();
  spec.config.mutable_train()->add_files("train.tsv");
  spec.directory = directory;
  const auto data = DataSet::Open(spec.config.train(), directory, "data.train");
  CHECK(data.ok()) << data.status();
  for (auto _ : state) {
    const auto reader = LaneReader::Create(*data, {.spec = spec, .streams = {0, 8}, .threads = static_cast<int>(state.range(0))});
    CHECK(reader.ok()) << reader.status();
    std::vector<LaneBatch> batches;
    int64_t examples = 0;
    while (!(*reader)->ended()) {
      const absl::Status status = (*reader)->Next(absl::Seconds(60), &batches);
      CHECK(status.ok()) << status;
      for (const LaneBatch& batch : batches) examples += batch.examples;
    }
    CHECK_EQ(examples, kRows);
  }
  state.SetBytesProcessed(state.iterations() * data->files()[0].bytes);
  state.SetItemsProcessed(state.iterations() * kRows);
  std::filesystem::remove_all(directory);
}
BENCHMARK(BM_ReadBatches)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weir

BENCHMARK_MAIN();
