// Parses text-format messages. Errors name file:line:column, the text found and a suggestion.
#ifndef WEIR_FRAMEWORK_BASE_TEXTPROTO_H_
#define WEIR_FRAMEWORK_BASE_TEXTPROTO_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"

namespace weir {

// Source positions of the fields of a parsed message, by path: "table[1].optimizer.adagrad.learning_rate".
class TextPositions {
 public:
  // Returns "job.textproto:5:3" for the field, or for the nearest enclosing field that is written, or just the file.
  std::string At(std::string_view path) const;
  // Returns InvalidArgument "<At(path)>: <text>".
  absl::Status Error(std::string_view path, std::string_view text) const;

 private:
  friend absl::Status ParseTextProto(std::string_view, const std::string&, google::protobuf::Message*, TextPositions*);
  friend absl::Status ApplyOverride(std::string_view, google::protobuf::Message*, TextPositions*);
  std::string file_;
  std::map<std::string, std::string, std::less<>> places_;
};

// Name of the payload (the type's URL) of an error whose only cause is that the message inside an Any has a type that
// is not linked into this program. Another program may know the type.
inline constexpr char kUnlinkedType[] = "weir.v1/unlinked_type";

// Parses `text` into `message`. InvalidArgument "file:12:5: unknown field 'learnig_rate' (did you mean
// 'learning_rate'?)": unknown fields and enum values, wrong types, missing braces. `positions` may be null.
absl::Status ParseTextProto(std::string_view text, const std::string& file, google::protobuf::Message* message,
                            TextPositions* positions);

// Parses a message that is part of another text: its first character is at `line` and `column` of the file, both from
// 1.
absl::Status ParseTextProtoFragment(std::string_view text, const std::string& file, int line, int column,
                                    google::protobuf::Message* message);

// Parses a text that another build, or any process that may write into a shared directory, has written: skips unknown
// fields, takes a message without its required fields, and refuses what is nested deeper than a message of ours can be.
// Returns false, with "12:5: <what is wrong>" in `error` (which may be null), if the text cannot be read.
bool ParseForeignText(std::string_view text, google::protobuf::Message* message, std::string* error = nullptr);

// Prints a message on one line, a message inside an Any as what it is, without a blank at the end.
std::string SingleLineText(const google::protobuf::Message& message);

// Applies "path.to.field=value", where value is a text-format literal (strings may come without quotes).
// "table[0].width=8" sets a field of a repeated message; a repeated scalar is replaced by "field=[a, b]". Errors read
// like those of ParseTextProto, at "--set path".
absl::Status ApplyOverride(std::string_view assignment, google::protobuf::Message* message, TextPositions* positions);

// Returns the known name nearest to `name` by edit distance, or "" if none is near.
std::string NearestName(std::string_view name, const std::vector<std::string>& known);

// Reads the text of a job, from a file, or from a stream (IsStream) to its end. InvalidArgument if a stream is empty.
// ResourceExhausted beyond 64 MiB. Other errors as ReadWholeFile.
absl::StatusOr<std::string> ReadJobText(const std::string& path);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_TEXTPROTO_H_
