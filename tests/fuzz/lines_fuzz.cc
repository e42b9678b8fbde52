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
#include "google/protobuf/text_format.h"
#include "tests/fuzz/input.h"
#include "trainer/data/records_ahead.h"
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
};
constexpr size_t kFormatCount = std::size(kFormats);

const LineParser& ParserOf(size_t format) {
  static const auto* const parsers = [] {
    auto* made = new std::vector<std::unique_ptr<LineParser>>;
    for (const char* text : kFormats) {
      v1::Data data;
      if (!google::protobuf::TextFormat::ParseFromString(text, &data)) std::abort();
      auto parser = MakeLineParser(data);
      if (!parser.ok()) std::abort();
      made->push_back(*std::move(parser));
    }
    return made;
  }();
  return *(*parsers)[format];
}

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
      if (!SplitCsvFields(line, separator, trim, &fields).ok()) continue;
      std::string written;
      for (size_t i = 0; i < fields.size(); ++i) {
        if (i > 0) written += ',';
        AppendCsvField(fields[i], &written);
      }
      if (!SplitCsvFields(written, ',', /*trim=*/false, &again).ok() || again != fields) std::abort();
    }
  }
  constexpr size_t kTabs = 3, kTabFields = 5;  // of kFormats
  if (&parser != &ParserOf(kTabs)) return;
  Example example;
  example.floats.resize(static_cast<size_t>(parser.floats()));
  example.counts.resize(static_cast<size_t>(parser.slots()));
  if (!parser.Parse(line, &example).ok()) return;
  if (!SplitCsvFields(line, '\t', /*trim=*/false, &fields).ok() || fields.size() != kTabFields) std::abort();
}

// Null when the header is refused, or is not there.
std::unique_ptr<LineParser> ParserBelowHeader(const DataFile& file, const LineParser& parser) {
  const auto source = LineSource::Open(file, {.begin = 0, .end = 1});
  std::string_view header;
  int64_t offset;
  if (!source.ok() || !(*source)->Next(&header, &offset)) return nullptr;
  auto below = parser.ForHeader(header, {0});
  return below.ok() ? *std::move(below) : nullptr;
}

// A compressed file gives the same lines when it is decompressed ahead. How many of them come before damage depends on
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
  if (file.sequential()) CheckAhead(file, read, (*source)->status());
  lines->insert(lines->end(), read.begin(), read.end());
  return (*source)->status().ok();
}

std::vector<std::string> Split(std::string_view text) {
  std::vector<std::string> lines;
  text = WithoutByteOrderMark(text);
  for (size_t begin = 0; begin < text.size();) {
    const size_t newline = text.find('\n', begin);
    std::string line(text.substr(begin, newline - begin));
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
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
  const LineParser& parser = ParserOf(how % 8 % kFormatCount);
  const std::string text = input.Rest();
  const DataFile file = {.path = scratch.Write("data", text),
                         .name = "data",
                         .bytes = static_cast<int64_t>(text.size()),
                         .compression = static_cast<Compression>(how / 8 % 3)};
  std::vector<std::string> lines;
  if (file.sequential()) {
    (void)ReadLines(file, {}, parser, &lines);
    // A small compressed file may expand to a large text, which is read in pieces, also to number a line.
    (void)LineNumber(file, 1 << 20);
    return 0;
  }
  const int64_t cut = file.bytes * cut_at / 255;
  if (!ReadLines(file, {.begin = 0, .end = cut}, parser, &lines) ||
      !ReadLines(file, {.begin = cut, .end = file.bytes}, parser, &lines) || lines != Split(text)) {
    std::abort();
  }
  return 0;
}
