// Any bytes as a data file. The first byte says the format of its lines and how it is compressed; the second where it
// is cut. A plain file gives the lines that splitting it by hand gives, and both parts of a cut one together all of
// them. What the fast way of a parser gives, the plain one gives, too.
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/formats/csv_fields.h"
#include "framework/formats/derived.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/partitions.h"
#include "google/protobuf/text_format.h"
#include "tests/fuzz/input.h"
#include "trainer/data/records_ahead.h"
#include "trainer/files/line_rules.h"
#include "trainer/files/line_source.h"
#include "trainer/files/record.h"

namespace weir {
namespace {

constexpr char kFormats[][400] = {
    "criteo { integers: 3 categoricals: 4 }",
    "multi_slot { slot { name: 'label' type: FLOAT } slot { name: 'a' output: 'cat' } slot { name: 'x' type: FLOAT "
    "dim: 3 } "
    "slot { name: 'b' } slot { name: 'c' output: 'cat' } slot { name: 'd' skip: true } slot { name: 'e' type: FLOAT "
    "skip: true } }",
    "csv { column { name: 'label' } column { name: 'a' type: ID output: 'cat' } column { name: 'x' list: ';' dim: 2 } "
    "column { name: 'b' type: TEXT output: 'cat' } column { name: 'c' type: TEXT list: '|' weight: ':' } }",
    "csv { header: false separator: '\t' column { name: 'label' } column { name: 'c' type: ID list: ',' weight: ':' "
    "output: 'cat' } column { type: SKIP } column { name: 'b' type: ID } column { name: 'a' type: TEXT output: 'cat' } "
    "}",
    "lib_svm { slot { name: 'x' type: FLOAT first: 1 last: 3 } slot { name: 'b' first: 20 } slot { name: 'a' first: 10 "
    "last: 19 output: 'cat' } }",
    "lib_svm { fields: true slot { name: 'a' field: 1 } slot { name: 'x' type: FLOAT field: 0 last: 3 } slot { name: "
    "'b' "
    "field: 2 first: 10 } }",
    "slot_sign { slot { name: 'label' type: FLOAT } slot { name: 'x' type: FLOAT dim: 2 } slot { name: '6' } slot { "
    "name: "
    "'a:b' } leading: 'label' }",
    "csv { header: false column { name: 'label' } column { name: 'a' type: ID list: '|' } column { name: 'b' type: "
    "TEXT } } "
    "derived { name: 'c' cross { of: 'a' of: 'b' buckets: 9 } } derived { name: 'd' bucketize { of: 'label' "
    "boundaries: 0 } "
    "}",
    "csv { separator: '::' quote: \"'\" trim: true skip_lines: 1 skip_blank_lines: true comment: '#' column { name: "
    "'x' } column { name: 'a' type: ID whole_floats: true list: '|' } column { name: 'b' type: TEXT } }",
    "csv { header: false separator: ';' quote: '' decimal_comma: true skip_blank_lines: true column { name: 'x' } "
    "column "
    "{ name: 'a' type: ID list: '|' weight: ':' whole_floats: true } }",
    "csv { header: false separator: '\t' quote: '|' skip_lines: 2 comment: '//' column { name: 'x' } column { name: "
    "'a' "
    "type: ID whole_floats: true } column { name: 'b' type: TEXT list: ',' } }",
};
constexpr size_t kFormatCount = std::size(kFormats);

struct Format {
  v1::Data data;
  std::unique_ptr<LineParser> parser;
  std::shared_ptr<const LineRules> rules;
};

const Format& FormatOf(size_t format) {
  static const auto* const formats = [] {
    auto* made = new std::vector<Format>(kFormatCount);
    for (size_t i = 0; i < kFormatCount; ++i) {
      Format& one = (*made)[i];
      if (!google::protobuf::TextFormat::ParseFromString(kFormats[i], &one.data)) std::abort();
      auto parser = MakeLineParser(one.data);
      if (!parser.ok()) std::abort();
      one.parser = *std::move(parser);
      one.rules = LineRulesOf(one.data);
    }
    return made;
  }();
  return (*formats)[format];
}
const LineParser& ParserOf(size_t format) { return *FormatOf(format).parser; }

bool Same(const Example& a, const Example& b) {
  const auto bits = [](const std::vector<float>& v) {
    return std::string_view(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
  };
  return bits(a.floats) == bits(b.floats) && a.ids == b.ids && a.counts == b.counts &&
         bits(a.weights) == bits(b.weights);
}

void Parse(std::string_view line, const LineParser& parser) {
  Example example;
  example.floats.resize(static_cast<size_t>(parser.floats()));
  example.counts.resize(static_cast<size_t>(parser.slots()));
  Example copy = example, plain = example;
  const absl::Status status = parser.Parse(line, &example);
  if (status != parser.ParsePlain(line, &plain)) std::abort();
  if (!status.ok()) return;
  if (!Same(plain, example)) std::abort();
  size_t ids = 0;
  for (const uint16_t count : example.counts) ids += count;
  if (ids != example.ids.size() || (!example.weights.empty() && example.weights.size() != ids)) std::abort();
  Record(example).CopyTo(&copy);
  if (!Same(copy, example)) std::abort();
}

// Fields that are written are read again, and the lines that the parser of columns without a header accepts have
// fields.
void CheckFields(std::string_view line, const LineParser& parser) {
  std::vector<std::string> fields, again;
  for (const char separator : {',', '\t'}) {
    for (const bool trim : {false, true}) {
      const CsvDialect dialect = {.separator = std::string(1, separator), .trim = trim};
      if (!SplitCsvFields(line, dialect, &fields).ok()) continue;
      std::string written;
      for (size_t i = 0; i < fields.size(); ++i) {
        if (i > 0) written += ',';
        AppendCsvField(fields[i], &written);
      }
      if (!SplitCsvFields(written, CsvDialect(), &again).ok() || again != fields) std::abort();
    }
  }
  constexpr size_t kTabs = 3, kTabFields = 5;  // of kFormats
  if (&parser != &ParserOf(kTabs)) return;
  Example example;
  example.floats.resize(static_cast<size_t>(parser.floats()));
  example.counts.resize(static_cast<size_t>(parser.slots()));
  if (!parser.Parse(line, &example).ok()) return;
  if (!SplitCsvFields(line, {.separator = "\t"}, &fields).ok() || fields.size() != kTabFields) std::abort();
}

// Null when the header is refused, or is not there.
std::unique_ptr<LineParser> ParserBelowHeader(const DataFile& file, const LineParser& parser) {
  const auto source = LineSource::Open(file, ToFirstRecord(file));
  std::string_view header;
  int64_t offset;
  if (!source.ok() || !(*source)->Next(&header, &offset)) return nullptr;
  auto below = parser.ForHeader(header, {0});
  return below.ok() ? *std::move(below) : nullptr;
}

// A file gives the same lines when it is read ahead. How many of them come before damage depends on
// how much is decompressed at once.
void CheckAhead(const DataFile& file, const std::vector<std::string>& lines, const absl::Status& status) {
  static RecordsAhead* const ahead = new RecordsAhead({.block = 64});
  const auto source = ahead->Open(file, {});
  if (!source.ok()) std::abort();
  std::string_view line;
  int64_t offset;
  size_t read = 0;
  for (; (*source)->Next(&line, &offset); ++read) {
    if (read < lines.size() ? line != lines[read] : status.ok()) std::abort();
  }
  if ((*source)->status().code() != status.code() || (status.ok() && read != lines.size())) std::abort();
}

// Adds the lines of a segment; false when reading ended with an error.
bool ReadLines(const DataFile& file, const Segment& segment, const LineParser& parser,
               std::vector<std::string>* lines) {
  const auto source = LineSource::Open(file, segment);
  if (!source.ok()) return false;
  const std::unique_ptr<LineParser> below = parser.has_header() ? ParserBelowHeader(file, parser) : nullptr;
  std::string_view line;
  int64_t offset;
  std::vector<std::string> read;
  while ((*source)->Next(&line, &offset)) {
    if (below != nullptr && offset > 0) Parse(line, *below);
    if (!parser.has_header()) Parse(line, parser);
    CheckFields(line, parser);
    read.emplace_back(line);
  }
  const bool all = file.sequential() || (segment.begin == 0 && segment.end == file.bytes);
  if (all) CheckAhead(file, read, (*source)->status());
  lines->insert(lines->end(), read.begin(), read.end());
  return (*source)->status().ok();
}

// Returns whether a line is an example or a header; `number`: from 0.
bool IsRecord(const std::string& line, int64_t number, const v1::Csv& csv) {
  if (number < csv.skip_lines()) return false;
  if (!csv.comment().empty() && line.compare(0, csv.comment().size(), csv.comment()) == 0) return false;
  if (!csv.skip_blank_lines()) return true;
  bool blank = line.find(csv.separator()) == std::string::npos;
  for (const char c : line) blank = blank && (c == ' ' || c == '\t');
  return !blank;
}

// Any text as the name of a file with partitions.
void CheckName(std::string_view name) {
  static const v1::Data* const data = [] {
    auto* const made = new v1::Data;
    for (const v1::Partition::Type type :
         {v1::Partition::FLOAT, v1::Partition::ID, v1::Partition::TEXT, v1::Partition::TIME}) {
      v1::Partition* const partition = made->add_partition();
      partition->set_name(std::string(1, static_cast<char>('a' + type)));
      partition->set_type(type);
    }
    return made;
  }();
  const auto texts = PartitionTexts(data->partition(), name);
  const std::vector<HiveDirectory> directories = HiveDirectories(name);
  if (texts.ok() ? texts->size() != 4 || directories.size() < 4 : texts.status().message().empty()) std::abort();
}

std::vector<std::string> Split(std::string_view text, const v1::Csv& csv) {
  std::vector<std::string> lines;
  int64_t number = 0;
  text = WithoutByteOrderMark(text);
  for (size_t begin = 0; begin < text.size();) {
    const size_t newline = text.find('\n', begin);
    std::string line(text.substr(begin, newline - begin));
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (IsRecord(line, number++, csv)) lines.push_back(std::move(line));
    if (newline == std::string_view::npos) break;
    begin = newline + 1;
  }
  return lines;
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static const ScratchDirectory scratch("lines");
  FuzzInput input(data, size);
  const uint8_t how = input.Byte();
  const uint8_t cut_at = input.Byte();
  const Format& format = FormatOf((how % 8 + 8 * (how / 24 % 2)) % kFormatCount);
  const LineParser& parser = *format.parser;
  const std::string text = input.Rest();
  CheckName(text);
  const DataFile file = {.path = scratch.Write("data", text),
                         .name = "data",
                         .bytes = static_cast<int64_t>(text.size()),
                         .compression = static_cast<Compression>(how / 8 % 3),
                         .rules = format.rules};
  std::vector<std::string> lines;
  if (file.sequential()) {
    (void)ReadLines(file, {}, parser, &lines);
    // A small compressed file may expand to a large text, which is read in pieces, also to number a line.
    (void)LineNumber(file, 1 << 20);
    return 0;
  }
  const int64_t cut = file.bytes * cut_at / 255;
  if (!ReadLines(file, {.begin = 0, .end = cut}, parser, &lines) ||
      !ReadLines(file, {.begin = cut, .end = file.bytes}, parser, &lines) || lines != Split(text, format.data.csv())) {
    std::abort();
  }
  std::vector<std::string> whole;
  if (!ReadLines(file, {.begin = 0, .end = file.bytes}, parser, &whole) || whole != lines) std::abort();
  return 0;
}
