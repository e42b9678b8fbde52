// Text-format messages with errors a person can act on: file:line:column, what was found, what was meant.
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

// Where fields of a parsed message stand, by path: "table[1].optimizer.adagrad.learning_rate".
class TextPositions {
 public:
  // "job.textproto:5:3" for the field, or for the nearest enclosing field that is written, or just the file.
  std::string At(std::string_view path) const;
  // InvalidArgument "<At(path)>: <text>".
  absl::Status Error(std::string_view path, std::string_view text) const;

 private:
  friend absl::Status ParseTextProto(std::string_view, const std::string&, google::protobuf::Message*, TextPositions*);
  friend absl::Status ApplyOverride(std::string_view, google::protobuf::Message*, TextPositions*);
  std::string file_;
  std::map<std::string, std::string, std::less<>> places_;
};

// Payload, the type's URL, of an error that says no more than: the message inside an Any is of a type that is not
// linked into this program. Another program may know it.
inline constexpr char kUnlinkedType[] = "weir.v1/unlinked_type";

// InvalidArgument "file:12:5: unknown field 'learnig_rate' (did you mean 'learning_rate'?)": unknown fields and enum
// values, wrong types, missing braces. `positions` may be null.
absl::Status ParseTextProto(std::string_view text, const std::string& file, google::protobuf::Message* message,
                            TextPositions* positions);

// The same for a message that stands inside another text: its first character is at `line` and `column` of the file,
// both from 1.
absl::Status ParseTextProtoFragment(std::string_view text, const std::string& file, int line, int column,
                                    google::protobuf::Message* message);

// "path.to.field=value", value a text-format literal (strings may come without quotes), "table[0].width=8" for repeated
// messages; a repeated scalar is replaced by "field=[a, b]". The same messages as in a file, at "--set path".
absl::Status ApplyOverride(std::string_view assignment, google::protobuf::Message* message, TextPositions* positions);

// The known name nearest to `name` by edit distance, or "" when none is near.
std::string NearestName(std::string_view name, const std::vector<std::string>& known);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_TEXTPROTO_H_
