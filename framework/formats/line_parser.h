// Conversion of text lines to examples. A format is one file and one BUILD word. The file registers a parser, and a
// rule for the variables that it gives (framework/formats/schema.h), for the format's message: a member of
// v1::Data.reader, or any message in data.custom.
#ifndef WEIR_FRAMEWORK_FORMATS_LINE_PARSER_H_
#define WEIR_FRAMEWORK_FORMATS_LINE_PARSER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/formats/example.h"
#include "google/protobuf/message.h"
#include "proto/job.pb.h"

namespace weir {

// Something that a format looks for by its name, or range, and takes for missing where a record lacks it.
struct NamedInput {
  std::string name;  // in the job
  std::string path;  // of its settings: "data.tf_record.feature[1]"
  std::string what;  // for messages: "feature 'User'"
  bool ids = false;
  // Slot, or first position in Example.floats.
  size_t place = 0;
  size_t width = 1;  // floats
  // Floats are 0 where the record lacks them; else NaN.
  bool zero_if_absent = false;
};

// Parser of one format. Thread-safe: Parse is const and keeps no state between lines.
class LineParser {
 public:
  virtual ~LineParser() = default;

  const std::vector<Column>& columns() const { return columns_; }
  int64_t floats() const { return floats_; }  // total width of all float columns
  int64_t slots() const { return slots_; }    // total slots of all id columns

  // Parses a line. `line` has no end-of-line characters; at least kPadding bytes behind it must be readable (with any
  // content). The sizes of example->floats and counts are floats() and slots() before and after. InvalidArgument says
  // what is wrong with the line; the caller prepends file and line.
  virtual absl::Status Parse(std::string_view line, Example* example) const = 0;

  // Parses a line by plain code: the reference for tests of Parse, which may be optimized.
  virtual absl::Status ParsePlain(std::string_view line, Example* example) const { return Parse(line, example); }

  // Returns true if Parse looks values up in memory that is too large to be near. Begin and End are then the two halves
  // of Parse: Begin requests that memory, and End, some time later, reads it. A caller that begins the next line before
  // it ends this one does not wait for the look-up.
  virtual bool looks_up() const { return false; }
  virtual absl::Status Begin(std::string_view line, Example* example) const { return Parse(line, example); }
  virtual absl::Status End(Example*) const { return absl::OkStatus(); }

  // Returns what the format looks for by name; nothing for formats that find columns by their place or by a header.
  virtual std::vector<NamedInput> named_inputs() const { return {}; }
  // Returns the names in a record, for messages about one that is not there: "label, user". May be empty.
  virtual std::string NamesIn(std::string_view) const { return ""; }

  // Returns true if the first line of every file names its columns. The lines below it are then for the parser that
  // ForHeader returns, not for this one.
  virtual bool has_header() const { return false; }
  // Returns a parser, with the same columns, for the lines below `header`. The header may lack the columns of the float
  // positions in `may_be_absent`, whose values are then missing. InvalidArgument if it lacks another one.
  virtual absl::StatusOr<std::unique_ptr<LineParser>> ForHeader(std::string_view header,
                                                                const std::vector<int64_t>& may_be_absent) const;

  // Returns true if values of an example stand in the name of its file (framework/formats/partitions.h). Its lines, and
  // its header, are then for the parser that ForFile returns.
  virtual bool has_partitions() const { return false; }
  // Returns a parser, with the same columns, for the lines of the file `name`. InvalidArgument if the name lacks a
  // value or has a wrong one.
  virtual absl::StatusOr<std::unique_ptr<LineParser>> ForFile(std::string_view name) const;

  // Returns a parser of records of an example file (framework/formats/example_record.h) with these columns, which gives
  // what this one gives of the lines they were made of. InvalidArgument: the columns, or the kinds of ids in their
  // slots, are not those of the reader.
  virtual absl::StatusOr<std::unique_ptr<LineParser>> ForExampleRecords(const std::vector<Column>& columns) const;

  static constexpr int kPadding = 16;  // bytes

 protected:
  explicit LineParser(std::vector<Column> columns);

 private:
  std::vector<Column> columns_;
  int64_t floats_ = 0;
  int64_t slots_ = 0;
};

using LineParserFactory = std::function<absl::StatusOr<std::unique_ptr<LineParser>>(const google::protobuf::Message&)>;

// Adds a format; `type` is the full name of its configuration message ("weir.v1.Criteo"). CHECK-fails on a duplicate
// name. For static initializers.
void RegisterLineParser(const std::string& type, LineParserFactory factory);

// Returns the parser of the format of the job's reader, without partitions (framework/formats/partitions.h) and derived
// variables (framework/formats/derived.h). InvalidArgument if there is no reader, naming the registered formats.
absl::StatusOr<std::unique_ptr<LineParser>> MakeFormatParser(const v1::Data& data);

// Returns a file's text without the mark with which some programs begin UTF-8.
inline std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

namespace internal {
template <typename Config>
struct LineParserRegistration {
  template <typename Make>
  explicit LineParserRegistration(Make make) {
    RegisterLineParser(std::string(Config::descriptor()->full_name()), [make](const google::protobuf::Message& config) {
      return make(static_cast<const Config&>(config));
    });
  }
};
}  // namespace internal

// Registers a parser: WEIR_REGISTER_LINE_PARSER(v1::Criteo, MakeCriteoParser), where make(const Config&) returns
// absl::StatusOr<std::unique_ptr<LineParser>>. One per file.
#define WEIR_REGISTER_LINE_PARSER(Config, make) \
  static const ::weir::internal::LineParserRegistration<Config> weir_line_parser_registration(make)

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_LINE_PARSER_H_
