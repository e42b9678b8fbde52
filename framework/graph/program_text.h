// Prints programs as text, one operator per line, and parses them. Lossless: parse(print(p)) equals p in every field,
// set or unset.
//
//   weir program 1
//   name "flights.trainer.main"
//   seed 7
//   loss name: "ctr" var: "loss" weight: 1
//   kept "user_vector"
//   mode accumulate: 4
//   plan {
//     servers: 2
//   }
//   block 0 parent -1 {
//     var dense [-1, 13] stop_gradient: true
//     var deep.0.w [221, 64] persistable: true is_parameter: true initializer { xavier { } }
//     var cat ids int64 [-1, 26] stop_gradient: true
//     Out=deep.0 <- fc(X=input, W=deep.0.w, Bias=deep.0.b) activation="relu" @FORWARD
//     send(X=[a@GRAD, b@GRAD]) blocks=["a", "b"] servers=[0, 1] @RPC grads(a=a@GRAD, b=b@GRAD)
//   }
//
// A variable is: name, kind (dense unless written), dtype (float32 unless written), dims, and the rest of its fields as
// a text message. An op is: output slots and "<-" when it has any, type, input slots, attributes, "@" and its role, its
// parameter-gradient pairs. A slot with one variable needs no brackets. Attributes carry their type: true, 3, 0.5, "s",
// [1, 2], [0.5], ["s"], [true], block(1), blocks[1, 2], dtype(FLOAT32), initializer { constant { } }; empty lists name
// their type: ints[], floats[], strings[], bools[]. A name with characters other than letters, digits and _.@/+- is
// quoted; ~ is a name that is not set. Lines that begin with # are comments.
#ifndef WEIR_FRAMEWORK_GRAPH_PROGRAM_TEXT_H_
#define WEIR_FRAMEWORK_GRAPH_PROGRAM_TEXT_H_

#include <cctype>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/program.pb.h"

namespace weir {

std::string ProgramText(const v1::ProgramDesc& program);

// Returns one line without a newline: "Out=y <- relu(X=x) @FORWARD".
std::string OpText(const v1::OpDesc& op);

// Parses a program. InvalidArgument "main.program:12:7: expected '(' after 'relu', got ..."; the error for a newer
// format version names both versions. Verifies nothing else.
absl::StatusOr<v1::ProgramDesc> ParseProgramText(std::string_view text, const std::string& file);

// Reads and writes a program file. The extension selects the format: ".program" is the text above, ".textproto" and
// ".json" are Protocol Buffers' text and JSON formats, ".pb" is the serialized message. InvalidArgument for another
// extension.
absl::StatusOr<v1::ProgramDesc> ReadProgramFile(const std::string& path);
absl::Status WriteProgramFile(const std::string& path, const v1::ProgramDesc& program);

// Returns the program in `format`: "text", "textproto" or "json", the values of the flag --format.
absl::StatusOr<std::string> FormatProgram(const v1::ProgramDesc& program, std::string_view format);

// Return whether a character may be in a name without quotes, and at its begin.
inline bool IsNameChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '@' || c == '/' || c == '+' ||
         c == '-';
}
inline bool IsNameStart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_PROGRAM_TEXT_H_
