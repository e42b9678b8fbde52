// Text lines to examples. A format is one file that registers a parser for its configuration message, and one BUILD
// word: `criteo`, `multi_slot`, `csv`, `lib_svm`, `idx`, and whatever message data.custom holds.
#ifndef WEIR_TRAINER_DATA_LINE_PARSER_H_
#define WEIR_TRAINER_DATA_LINE_PARSER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "proto/job.pb.h"
#include "trainer/data/example.h"

namespace weir {

// Thread-safe: Parse is const and keeps nothing between lines.
class LineParser {
 public:
  virtual ~LineParser() = default;

  const std::vector<Column>& columns() const { return columns_; }
  int64_t floats() const { return floats_; }  // width of all float columns
  int64_t slots() const { return slots_; }    // slots of all id columns

  // `line` has no end-of-line characters; at least kPadding bytes behind it can be read (not: mean anything). Sizes of
  // example->floats and counts are floats() and slots() before and after. InvalidArgument says what is wrong with the
  // line; the caller puts file and line before it.
  virtual absl::Status Parse(std::string_view line, Example* example) const = 0;

  // The same, plainly: what Parse, which may be made for speed, is tested against.
  virtual absl::Status ParsePlain(std::string_view line, Example* example) const { return Parse(line, example); }

  // Whether the first line of every file names its columns. Lines are then for what ForHeader gives, not for this
  // parser.
  virtual bool has_header() const { return false; }
  // A parser, with the same columns, of the lines below `header`. Float positions in `may_be_absent` are missing when
  // the header does not name their column. InvalidArgument: it does not name another one.
  virtual absl::StatusOr<std::unique_ptr<LineParser>> ForHeader(std::string_view header,
                                                                const std::vector<int64_t>& may_be_absent) const;

  static constexpr int kPadding = 16;

 protected:
  explicit LineParser(std::vector<Column> columns);

 private:
  std::vector<Column> columns_;
  int64_t floats_ = 0;
  int64_t slots_ = 0;
};

using LineParserFactory = std::function<absl::StatusOr<std::unique_ptr<LineParser>>(const google::protobuf::Message&)>;

// Adds a format; `type` is the full name of its configuration message ("weir.v1.Criteo"). CHECK-fails on a second of
// one name. For static initializers.
void RegisterLineParser(const std::string& type, LineParserFactory factory);

// The parser of the job's reader. InvalidArgument when there is none, naming what is registered.
absl::StatusOr<std::unique_ptr<LineParser>> MakeLineParser(const v1::Data& data);

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

// WEIR_REGISTER_LINE_PARSER(v1::Criteo, MakeCriteoParser): make(const Config&) returns
// absl::StatusOr<std::unique_ptr<LineParser>>. One per file.
#define WEIR_REGISTER_LINE_PARSER(Config, make) \
  static const ::weir::internal::LineParserRegistration<Config> weir_line_parser_registration(make)

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_LINE_PARSER_H_
