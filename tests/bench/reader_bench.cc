// Files to batches: lines parsed, and examples made into batches of lanes, per second, for each format and compression.
//
// Lines and files are made before the timer. Bytes are those of the text, uncompressed. Beside the figures stand their
// ceilings: a copy of the same bytes, and the bare decompressor. See docs/performance.md for figures and their machine.

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "benchmark/benchmark.h"
#include "framework/base/crc32c.h"
#include "framework/base/philox.h"
#include "framework/formats/derived.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/partitions.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "proto/tf_example.pb.h"
#include "trainer/data/example_stream.h"
#include "trainer/data/lane_reader.h"
#include "trainer/data/statistics.h"
#include "trainer/files/example_file.h"
#include "trainer/files/open_bytes.h"

namespace weir {
namespace {

constexpr int64_t kRows = 100'000;
constexpr int64_t kEpochs = 4;
constexpr int kFiles = 8;  // one per lane

uint32_t Random(uint64_t row, uint64_t column) { return Philox(1, row, column).v[0]; }
uint32_t Id(uint64_t row, uint64_t column) { return Philox(2, row, column).v[0] % 1'000'000; }
std::string Value(uint64_t row, uint64_t column) {
  return absl::StrFormat("%.4f", Random(row, column) % 100'000'000 / 1e6);
}

// A line of 13 integers of one to five digits and 26 categoricals of eight; one in `empty` of them is missing, 0: none.
std::string CriteoFields(uint64_t n, uint32_t empty) {
  std::string line = absl::StrCat(n % 4 == 0);
  for (uint64_t i = 0; i < 39; ++i) {
    line += '\t';
    const PhiloxBlock r = Philox(1, n, i);
    if (empty > 0 && r.v[2] % empty == 0) continue;
    if (i < 13) {
      absl::StrAppend(&line, r.v[0] >> (15 + r.v[1] % 17));
    } else {
      absl::StrAppend(&line, absl::Hex(Id(n, i - 13) * 2654435761u, absl::kZeroPad8));
    }
  }
  return line;
}
std::string CriteoLine(uint64_t n) { return CriteoFields(n, 0); }
std::string CriteoGapsLine(uint64_t n) { return CriteoFields(n, 8); }

// The others: 13 numbers like 31.4159 and 26 ids of up to a million (texts of eight bytes in CSV), one in a slot.
std::string MultiSlotLine(uint64_t n) {
  std::string line = absl::StrCat("1 ", n % 4 == 0, " 13");
  for (uint64_t i = 0; i < 13; ++i) absl::StrAppend(&line, " ", Value(n, i));
  for (uint64_t i = 0; i < 26; ++i) absl::StrAppend(&line, " 1 ", Id(n, i));
  return line;
}

std::string LibSvmLine(uint64_t n) {
  std::string line = absl::StrCat(n % 4 == 0);
  for (uint64_t i = 0; i < 13; ++i) absl::StrAppend(&line, " ", i + 1, ":", Value(n, i));
  for (uint64_t i = 0; i < 26; ++i) absl::StrAppend(&line, " ", (i + 1) * 1'000'000 + Id(n, i), ":1");
  return line;
}

std::string CsvLine(uint64_t n) {
  std::string line = absl::StrCat(n % 4 == 0);
  for (uint64_t i = 0; i < 13; ++i) absl::StrAppend(&line, ",", Value(n, i));
  for (uint64_t i = 0; i < 26; ++i) absl::StrAppend(&line, ",", absl::Hex(Id(n, i) * 2654435761u, absl::kZeroPad8));
  return line;
}

// Ten ids, and a list of one to five behind the fifth.
std::string CsvListLine(uint64_t n) {
  std::string line = absl::StrCat(n % 4 == 0);
  for (uint64_t i = 0; i < 10; ++i) {
    absl::StrAppend(&line, ",", Id(n, i));
    if (i != 4) continue;
    line += ',';
    for (uint64_t item = 0; item <= Random(n, 20) % 5; ++item) {
      absl::StrAppend(&line, item > 0 ? "|" : "", Id(n, 20 + item));
    }
  }
  return line;
}

struct Format {
  const char* name;
  std::string (*line)(uint64_t);
  std::string config;
  std::string header;
};

// The values of CriteoLine, each in a feature of its own, as a message tf.train.Example.
std::string TfExampleOf(uint64_t n) {
  v1::TfExample example;
  const auto add = [&](const std::string& name, const v1::TfFeature& feature) {
    v1::TfFeatures::Entry* const entry = example.mutable_features()->add_feature();
    entry->set_key(name);
    entry->set_value(feature.SerializeAsString());
  };
  v1::TfFeature label;
  label.mutable_int64_list()->add_value(n % 4 == 0);
  add("label", label);
  for (uint64_t i = 0; i < 13; ++i) {
    v1::TfFeature feature;
    const PhiloxBlock r = Philox(1, n, i);
    feature.mutable_float_list()->add_value(static_cast<float>(r.v[0] >> (15 + r.v[1] % 17)));
    add(absl::StrCat("I", i + 1), feature);
  }
  for (uint64_t i = 0; i < 26; ++i) {
    v1::TfFeature feature;
    feature.mutable_int64_list()->add_value(Id(n, i) * 2654435761u);
    add(absl::StrCat("C", i + 1), feature);
  }
  return example.SerializeAsString();
}

// A record as it stands in a TFRecord file.
std::string TfFramed(const std::string& record) {
  const auto masked = [](const char* data, size_t size) {
    const uint32_t crc = Crc32c(data, size), mask = (crc >> 15 | crc << 17) + 0xa282ead8u;
    return std::string(reinterpret_cast<const char*>(&mask), sizeof(mask));
  };
  const uint64_t size = record.size();
  const std::string length(reinterpret_cast<const char*>(&size), sizeof(size));
  return absl::StrCat(length, masked(length.data(), length.size()), record, masked(record.data(), record.size()));
}

constexpr char kDerived[] =
    " derived { name: 'p' cross { of: 'C1' of: 'C2' } } derived { name: 'q' cross { of: 'C3' of: 'C4' of: 'C5' } }"
    " derived { name: 'r' cross { of: 'C6' of: 'C7' buckets: 1000000 } } derived { name: 's' hash { of: 'C8' } }"
    " derived { name: 't' bucketize { of: 'dense[0]' boundaries: 1 boundaries: 5 boundaries: 20 } }";

constexpr char kVocabularies[] =
    " derived { name: 'p' cross { of: 'C1' of: 'C2' } } derived { name: 'v' vocabulary { of: 'C3' learned {} } }"
    " derived { name: 'w' vocabulary { of: 'C4' learned {} unknown_buckets: 10 } }";

std::string Times(int n, const std::function<std::string(int)>& text) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text(i);
  return all;
}

const std::vector<Format>& Formats() {
  static const auto* const formats = [] {
    auto* const all = new std::vector<Format>{
        {"criteo", CriteoLine, "criteo {}", ""},
        {"criteo_gaps", CriteoGapsLine, "criteo {}", ""},
        {"multi_slot", MultiSlotLine,
         absl::StrCat("multi_slot { slot { name: 'label' type: FLOAT } slot { name: 'dense' type: FLOAT dim: 13 }",
                      Times(26, [](int i) { return absl::StrCat(" slot { name: 'C", i, "' output: 'cat' }"); }), "}"),
         ""},
        {"lib_svm", LibSvmLine,
         absl::StrCat("lib_svm { slot { name: 'dense' type: FLOAT first: 1 last: 13 }",
                      Times(26,
                            [](int i) {
                              return absl::StrCat(" slot { name: 'C", i, "' output: 'cat' first: ", i + 1,
                                                  "000000 last: ", i + 1, "999999 }");
                            }),
                      "}"),
         ""},
        {"csv", CsvLine,
         absl::StrCat(
             "csv { column { name: 'label' }",
             Times(13, [](int i) { return absl::StrCat(" column { name: 'I", i, "' output: 'dense' }"); }),
             Times(26, [](int i) { return absl::StrCat(" column { name: 'C", i, "' output: 'cat' type: TEXT }"); }),
             "}"),
         absl::StrCat("label", Times(13, [](int i) { return absl::StrCat(",I", i); }),
                      Times(26, [](int i) { return absl::StrCat(",C", i); }))},
        {"csv_list", CsvListLine,
         absl::StrCat("csv { header: false column { name: 'label' }",
                      Times(5, [](int i) { return absl::StrCat(" column { name: 'C", i, "' type: ID }"); }),
                      " column { name: 'items' type: ID list: '|' }",
                      Times(5, [](int i) { return absl::StrCat(" column { name: 'C", i + 5, "' type: ID }"); }), "}"),
         ""},
        {"tf_record", TfExampleOf,
         absl::StrCat(
             "tf_record { feature { name: 'label' }",
             Times(13, [](int i) { return absl::StrCat(" feature { name: 'I", i + 1, "' output: 'dense' }"); }),
             Times(26, [](int i) { return absl::StrCat(" feature { name: 'C", i + 1, "' output: 'cat' type: ID }"); }),
             "}"),
         ""}};
    // The same with derived variables.
    for (const char* const name : {"criteo", "csv"}) {
      const auto plain =
          std::find_if(all->begin(), all->end(), [&](const Format& f) { return f.name == std::string(name); });
      const bool criteo = plain->line == CriteoLine;
      Format derived = *plain, vocabularies = *plain;
      derived.name = criteo ? "criteo_derived" : "csv_derived";
      derived.config += kDerived;
      vocabularies.name = criteo ? "criteo_vocabularies" : "csv_vocabularies";
      vocabularies.config += kVocabularies;
      all->push_back(std::move(derived));
      all->push_back(std::move(vocabularies));
    }
    return all;
  }();
  return *formats;
}

v1::Data DataOf(const Format& format) {
  v1::Data data;
  CHECK(google::protobuf::TextFormat::ParseFromString(format.config, &data)) << format.config;
  data.set_batch_size(2048);
  return data;
}

std::unique_ptr<LineParser> ParserOf(const Format& format, bool derived = true) {
  auto parser = derived ? MakeLineParser(DataOf(format)) : MakeReaderParser(DataOf(format));
  CHECK(parser.ok()) << parser.status();
  if (!(*parser)->has_header()) return *std::move(parser);
  auto below = (*parser)->ForHeader(format.header, {});
  CHECK(below.ok()) << below.status();
  return *std::move(below);
}

std::string Gzip(const std::string& text) {
  z_stream z = {};
  CHECK_EQ(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  CHECK_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// Writes an example file of the lines.
void Convert(const Format& format, const std::string& path) {
  const std::unique_ptr<LineParser> parser = ParserOf(format, /*derived=*/false);
  auto writer = ExampleFileWriter::Create(path, parser->columns(), "");
  CHECK(writer.ok()) << writer.status();
  Example example;
  ExampleStream::Prepare(*parser, &example);
  for (uint64_t n = 0; n < kRows; ++n) {
    std::string line = format.line(n);
    const size_t size = line.size();
    line.append(LineParser::kPadding, '\0');
    CHECK(parser->Parse(std::string_view(line).substr(0, size), &example).ok());
    CHECK((*writer)->Add(example).ok());
  }
  CHECK((*writer)->Finish().ok());
}

// Files of kRows lines, made when first asked for. "plain", "gzip_1" and "examples" are one file, others are kFiles.
// Those of "zstd_large" are larger: between two files of a lane nothing is decompressed ahead.
int64_t RowsOf(const std::string& compression) { return compression == "zstd_large" ? 4 * kRows : kRows; }

struct Files {
  std::string directory;
  int64_t bytes = 0;  // uncompressed
};

std::map<std::string, Files>& MadeFiles() {
  static auto* const made = new std::map<std::string, Files>;
  return *made;
}

const Files& FilesOf(const Format& format, const std::string& compression) {
  const auto [it, fresh] = MadeFiles().try_emplace(absl::StrCat(format.name, "_", compression));
  Files& files = it->second;
  if (!fresh) return files;
  files.directory =
      (std::filesystem::temp_directory_path() / absl::StrCat("weir_reader_benchmark_", ::getpid(), "_", it->first))
          .string();
  std::filesystem::create_directories(files.directory);
  if (compression == "examples") {
    // Bytes are those of the text, so that figures can be compared.
    files.bytes = FilesOf(format, "plain").bytes;
    Convert(format, files.directory + "/f0");
    return files;
  }
  const int count = compression == "plain" || compression == "gzip_1" ? 1 : kFiles;
  for (int f = 0; f < count; ++f) {
    std::string text = format.header.empty() ? "" : format.header + "\n";
    for (int64_t n = f; n < RowsOf(compression); n += count) {
      const std::string line = format.line(static_cast<uint64_t>(n));
      text += format.line == TfExampleOf ? TfFramed(line) : line + "\n";
    }
    files.bytes += static_cast<int64_t>(text.size());
    std::ofstream(absl::StrCat(files.directory, "/f", f), std::ios::binary)
        << (compression.starts_with("gzip")   ? Gzip(text)
            : compression.starts_with("zstd") ? Zstd(text)
                                              : text);
  }
  return files;
}

DataSet Open(const Format& format, const std::string& compression) {
  v1::DataSource source;
  source.add_files("f*");
  const auto data = DataSet::Open(DataOf(format), source, FilesOf(format, compression).directory, "data.train");
  CHECK(data.ok()) << data.status();
  return *data;
}

void BM_ParseLines(benchmark::State& state, const Format& format, bool plainly) {
  const std::unique_ptr<LineParser> parser = ParserOf(format);
  std::string text;
  std::vector<std::pair<size_t, size_t>> lines;  // begin, size
  for (uint64_t n = 0; n < 2000; ++n) {
    const std::string line = format.line(n);
    lines.emplace_back(text.size(), line.size());
    text += line + "\n";
  }
  text.append(LineParser::kPadding, '\0');
  Example example;
  ExampleStream::Prepare(*parser, &example);
  const auto parse_all = [&](bool plain) {
    int64_t sum = 0;
    for (const auto& [begin, size] : lines) {
      const std::string_view line = std::string_view(text).substr(begin, size);
      CHECK((plain ? parser->ParsePlain(line, &example) : parser->Parse(line, &example)).ok());
      sum += example.ids.back();
    }
    return sum;
  };
  CHECK_EQ(parse_all(false), parse_all(true));
  for (auto _ : state) benchmark::DoNotOptimize(parse_all(plainly));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(lines.size()));
}

// From files through parsing, shuffling (or in the order of the files) and salting to batches.
void BM_ReadBatches(benchmark::State& state, const Format& format, const std::string& compression, bool shuffled) {
  DataSpec spec;
  spec.config = DataOf(format);
  if (!shuffled) spec.config.set_shuffle(v1::Data::NO_SHUFFLE);
  // The first epoch also takes memory from the system.
  spec.epochs = kEpochs;
  const DataSet data = Open(format, compression);
  std::optional<DataStatistics> statistics;
  if (NeedsStatistics(spec)) {
    const auto mine = CollectStatistics(spec, data, {0, 8}, nullptr);
    CHECK(mine.ok()) << mine.status();
    statistics = MergeStatistics(spec, {*mine}).value();
  }
  for (auto _ : state) {
    const auto reader = LaneReader::Create(data, {.spec = spec,
                                                  .streams = {0, 8},
                                                  .statistics = statistics.has_value() ? &*statistics : nullptr,
                                                  .threads = static_cast<int>(state.range(0))});
    CHECK(reader.ok()) << reader.status();
    std::vector<LaneBatch> batches;
    int64_t examples = 0;
    while (!(*reader)->ended()) {
      const absl::Status status = (*reader)->Next(absl::Seconds(60), &batches);
      CHECK(status.ok()) << status;
      for (const LaneBatch& batch : batches) examples += batch.examples;
    }
    CHECK_EQ(examples, kEpochs * RowsOf(compression));
  }
  state.SetBytesProcessed(state.iterations() * kEpochs * FilesOf(format, compression).bytes);
  state.SetItemsProcessed(state.iterations() * kEpochs * RowsOf(compression));
}

// The ceiling: the same bytes, read and decompressed block by block, and nothing made of them.
void BM_Bytes(benchmark::State& state, const Format& format, const std::string& compression) {
  const DataSet data = Open(format, compression);
  std::vector<char> block(ByteSource::kBlock);
  int64_t bytes = 0;
  for (auto _ : state) {
    bytes = 0;
    for (const DataFile& file : data.files()) {
      const auto source = OpenBytes(file, 0);
      CHECK(source.ok()) << source.status();
      while (true) {
        const absl::StatusOr<size_t> got = (*source)->Read(block.data(), block.size());
        CHECK(got.ok()) << got.status();
        if (*got == 0) break;
        bytes += static_cast<int64_t>(*got);
      }
    }
    benchmark::DoNotOptimize(block.data());
  }
  CHECK_EQ(bytes, FilesOf(format, compression).bytes);
  state.SetBytesProcessed(state.iterations() * bytes);
}

void Register() {
  for (const Format& format : Formats()) {
    const std::string name = format.name;
    benchmark::RegisterBenchmark(("parse/" + name).c_str(), BM_ParseLines, format, false);
    benchmark::RegisterBenchmark(("parse_plain/" + name).c_str(), BM_ParseLines, format, true);
    for (const std::string compression : {"plain", "examples", "gzip", "gzip_1", "zstd", "zstd_large"}) {
      const std::string both = absl::StrCat(name, "/", compression);
      // Of an example file the bytes are others.
      if (compression != "examples")
        benchmark::RegisterBenchmark(("bytes/" + both).c_str(), BM_Bytes, format, compression)
            ->Unit(benchmark::kMillisecond);
      for (const bool shuffled : {false, true}) {
        benchmark::RegisterBenchmark(((shuffled ? "batches/" : "in_order/") + both).c_str(), BM_ReadBatches, format,
                                     compression, shuffled)
            ->ArgName("threads")
            ->Arg(1)
            ->Arg(2)
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Register();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  for (const auto& [name, files] : weir::MadeFiles()) std::filesystem::remove_all(files.directory);
}
