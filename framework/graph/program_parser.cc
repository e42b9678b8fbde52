// Parses the text form of programs; framework/graph/program_text.h describes the format.
#include <cctype>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "framework/base/textproto.h"
#include "framework/graph/format_version.h"
#include "framework/graph/program_text.h"

namespace weir {
namespace {

// Cursor in one line. Every Take* returns an error that names the position.
class Line {
 public:
  Line(std::string_view text, const std::string& file, int number) : text_(text), file_(file), number_(number) {
    Skip();
  }

  bool done() const { return at_ == text_.size(); }
  int number() const { return number_; }
  int column() const { return static_cast<int>(at_) + 1; }
  std::string_view rest() const { return text_.substr(at_); }

  absl::Status Error(std::string_view text) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", number_, ":", column(), ": ", Av(text)));
  }
  absl::Status Expected(std::string_view what) const {
    return Error(absl::StrCat("expected ", Av(what), ", got ",
                              done() ? "the end of the line" : absl::StrCat("'", Av(rest().substr(0, 30)), "'")));
  }

  bool LooksAt(std::string_view symbol) const { return rest().substr(0, symbol.size()) == symbol; }
  bool TryTake(std::string_view symbol) {
    if (!LooksAt(symbol)) return false;
    at_ += symbol.size();
    Skip();
    return true;
  }
  absl::Status Take(std::string_view symbol) {
    return TryTake(symbol) ? absl::OkStatus() : Expected(absl::StrCat("'", Av(symbol), "'"));
  }
  // Returns the word of letters, digits and _ at the cursor; does not check what follows it.
  std::string_view PeekWord() const {
    size_t n = 0;
    while (at_ + n < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_ + n])) != 0 || text_[at_ + n] == '_'))
      ++n;
    return text_.substr(at_, n);
  }
  bool TryTakeWord(std::string_view word) { return PeekWord() == word && TryTake(word); }

  // Returns false for "~", which stands for no name.
  absl::StatusOr<bool> TakeName(std::string* name) {
    if (TryTake("~")) return false;
    if (LooksAt("\"")) {
      RETURN_IF_ERROR(TakeString(name));
      return true;
    }
    size_t n = 0;
    if (!done() && IsNameStart(text_[at_])) {
      while (at_ + n < text_.size() && IsNameChar(text_[at_ + n])) ++n;
    }
    if (n == 0) return Expected("a name");
    *name = std::string(text_.substr(at_, n));
    at_ += n;
    Skip();
    return true;
  }

  absl::Status TakeString(std::string* value) {
    if (!LooksAt("\"")) return Expected("a string in quotes");
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return Error("a string without its closing quote");
    std::string error;
    if (!absl::CUnescape(Av(text_.substr(at_ + 1, end - at_ - 1)), value, &error)) return Error(error);
    at_ = end + 1;
    Skip();
    return absl::OkStatus();
  }

  absl::Status TakeInt(int64_t min, int64_t max, int64_t* value) {
    const std::string token = PeekNumber();
    if (!absl::SimpleAtoi(token, value) || *value < min || *value > max) {
      return Expected(absl::StrCat("an integer from ", min, " to ", max));
    }
    at_ += token.size();
    Skip();
    return absl::OkStatus();
  }

  // Returns a number such as "-1", "0.5", "1e-3", "-inf" or "nan"; empty if there is none.
  std::string PeekNumber() const {
    size_t n = 0;
    while (at_ + n < text_.size()) {
      const char c = text_[at_ + n];
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != '+') break;
      ++n;
    }
    return std::string(text_.substr(at_, n));
  }
  absl::Status TakeFloat(double* value) {
    std::string token = PeekNumber();
    if (token == "nan" || token == "-nan") {
      *value = std::copysign(std::numeric_limits<double>::quiet_NaN(), token[0] == '-' ? -1.0 : 1.0);
    } else if (const auto end = std::from_chars(token.data(), token.data() + token.size(), *value);
               token.empty() || end.ec != std::errc() || end.ptr != token.data() + token.size()) {
      return Expected("a number");
    }
    at_ += token.size();
    Skip();
    return absl::OkStatus();
  }

  // Parses the text up to the brace that closes the one just taken, and takes that brace too.
  absl::Status TakeBraced(google::protobuf::Message* message) {
    const size_t begin = at_;
    size_t end = at_;
    for (int open = 1; open > 0; ++end) {
      if (end >= text_.size()) return Error("a '{' without its '}'");
      const char c = text_[end];
      if (c == '"') {
        for (++end; end < text_.size() && text_[end] != '"'; ++end) end += text_[end] == '\\' ? 1 : 0;
        if (end >= text_.size()) return Error("a string without its closing quote");
      }
      open += c == '{' ? 1 : c == '}' ? -1 : 0;
    }
    RETURN_IF_ERROR(ParseTextProtoFragment(text_.substr(begin, end - 1 - begin), file_, number_, column(), message));
    at_ = end;
    Skip();
    return absl::OkStatus();
  }
  // Parses the rest of the line.
  absl::Status TakeMessage(google::protobuf::Message* message) {
    RETURN_IF_ERROR(ParseTextProtoFragment(rest(), file_, number_, column(), message));
    at_ = text_.size();
    return absl::OkStatus();
  }
  absl::Status TakeEnd() const { return done() ? absl::OkStatus() : Expected("the end of the line"); }

 private:
  void Skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }

  const std::string_view text_;
  const std::string& file_;
  const int number_;
  size_t at_ = 0;
};

class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  absl::StatusOr<v1::ProgramDesc> Run() {
    RETURN_IF_ERROR(Header());
    while (true) {
      ASSIGN_OR_RETURN(const bool more, NextLine());
      if (!more) return std::move(program_);
      Line line = current();
      if (line.TryTakeWord("name")) {
        RETURN_IF_ERROR(line.TakeString(program_.mutable_name()));
        RETURN_IF_ERROR(line.TakeEnd());
      } else if (line.TryTakeWord("seed")) {
        uint64_t seed = 0;
        if (!absl::SimpleAtoi(Av(line.rest()), &seed)) return line.Expected("a seed");
        program_.set_seed(seed);
      } else if (line.TryTakeWord("loss")) {
        RETURN_IF_ERROR(line.TakeMessage(program_.add_losses()));
      } else if (line.TryTakeWord("kept")) {
        RETURN_IF_ERROR(line.TakeString(program_.add_kept()));
        RETURN_IF_ERROR(line.TakeEnd());
      } else if (line.TryTakeWord("mode")) {
        RETURN_IF_ERROR(line.TakeMessage(program_.mutable_mode()));
      } else if (line.TryTakeWord("plan")) {
        RETURN_IF_ERROR(Plan(line));
      } else if (line.TryTakeWord("block")) {
        RETURN_IF_ERROR(Block(line));
      } else {
        return line.Expected("name, seed, loss, kept, mode, plan or block");
      }
    }
  }

 private:
  // Moves to the next line with content. Returns false at the end of the text.
  absl::StatusOr<bool> NextLine() {
    while (next_ < text_.size()) {
      const size_t end = std::min(text_.find('\n', next_), text_.size());
      line_ = text_.substr(next_, end - next_);
      begin_ = next_;
      next_ = end + 1;
      ++number_;
      const absl::string_view stripped = absl::StripAsciiWhitespace(Av(line_));
      if (!stripped.empty() && stripped[0] != '#') return true;
    }
    return false;
  }
  Line current() const { return Line(line_, file_, number_); }

  absl::Status Header() {
    ASSIGN_OR_RETURN(const bool more, NextLine());
    if (!more)
      return absl::InvalidArgumentError(absl::StrCat(file_, ":1:1: expected 'weir program', got an empty text"));
    Line line = current();
    if (!line.TryTakeWord("weir") || !line.TryTakeWord("program")) return line.Expected("'weir program'");
    if (line.done()) return absl::OkStatus();
    int64_t version = 0;
    RETURN_IF_ERROR(line.TakeInt(0, std::numeric_limits<uint32_t>::max(), &version));
    if (version > kProgramFormatVersion) {
      return absl::InvalidArgumentError(absl::StrCat(file_, ":", number_, ":1: program format version ", version,
                                                     " is newer than ", kProgramFormatVersion,
                                                     ", the newest that this build reads"));
    }
    program_.set_format_version(static_cast<uint32_t>(version));
    return line.TakeEnd();
  }

  // Parses a text message that ends with a line of '}' alone.
  absl::Status Plan(Line& line) {
    RETURN_IF_ERROR(line.Take("{"));
    RETURN_IF_ERROR(line.TakeEnd());
    const size_t begin = std::min(next_, text_.size());
    const int first = number_ + 1;
    while (true) {
      ASSIGN_OR_RETURN(const bool more, NextLine());
      if (!more) return line.Error("a plan without its '}'");
      if (absl::StripTrailingAsciiWhitespace(Av(line_)) == "}") break;
    }
    return ParseTextProtoFragment(text_.substr(begin, begin_ - begin), file_, first, 1, program_.mutable_plan());
  }

  absl::Status Block(Line& line) {
    v1::BlockDesc* block = program_.add_blocks();
    int64_t number = 0;
    if (!line.LooksAt("{") && line.PeekWord() != "parent") {
      RETURN_IF_ERROR(line.TakeInt(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(), &number));
      block->set_index(static_cast<int32_t>(number));
    }
    if (line.TryTakeWord("parent")) {
      RETURN_IF_ERROR(line.TakeInt(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(), &number));
      block->set_parent(static_cast<int32_t>(number));
    }
    RETURN_IF_ERROR(line.Take("{"));
    RETURN_IF_ERROR(line.TakeEnd());
    while (true) {
      ASSIGN_OR_RETURN(const bool more, NextLine());
      if (!more) return line.Error("a block without its '}'");
      Line inner = current();
      if (inner.TryTake("}")) return inner.TakeEnd();
      // "var x" declares a variable; an op begins with "type(", "Slot=" or, without an output name, a quote or '~'.
      if (inner.PeekWord() == "var" && inner.rest().substr(3, 1) == " ") {
        inner.TryTakeWord("var");
        RETURN_IF_ERROR(Var(inner, block->add_vars()));
      } else {
        RETURN_IF_ERROR(Op(inner, block->add_ops()));
      }
    }
  }

  absl::Status Var(Line& line, v1::VarDesc* var) {
    std::string name;
    ASSIGN_OR_RETURN(const bool has_name, line.TakeName(&name));
    std::string kind, dtype;
    while (!line.LooksAt("[")) {
      const std::string word = absl::AsciiStrToUpper(Av(line.PeekWord()));
      v1::VarKind k;
      v1::DType d;
      if (kind.empty() && dtype.empty() && v1::VarKind_Parse(word, &k)) {
        kind = word;
      } else if (dtype.empty() && v1::DType_Parse(word, &d)) {
        dtype = word;
      } else {
        return line.Expected("a kind (dense, selected_rows, ids, table), a dtype (float32, ...) or dims in brackets");
      }
      line.TryTake(line.PeekWord());
    }
    line.TryTake("[");
    std::vector<int64_t> dims;
    while (!line.TryTake("]")) {
      if (!dims.empty()) RETURN_IF_ERROR(line.Take(","));
      RETURN_IF_ERROR(
          line.TakeInt(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), &dims.emplace_back()));
    }
    RETURN_IF_ERROR(line.TakeMessage(var));
    if (has_name) var->set_name(name);
    v1::VarKind k;
    v1::DType d;
    if (v1::VarKind_Parse(kind, &k)) var->set_kind(k);
    if (v1::DType_Parse(dtype, &d)) var->set_dtype(d);
    var->mutable_dims()->Assign(dims.begin(), dims.end());
    return absl::OkStatus();
  }

  absl::Status Op(Line& line, v1::OpDesc* op) {
    // Outputs come first. The token after the first name tells whether there are any: "Out=" or "relu(".
    std::string first;
    ASSIGN_OR_RETURN(bool has, line.TakeName(&first));
    if (line.LooksAt("=")) {
      RETURN_IF_ERROR(SlotValue(line, has, first, op->add_outputs()));
      while (line.TryTake(",")) {
        ASSIGN_OR_RETURN(has, line.TakeName(&first));
        RETURN_IF_ERROR(SlotValue(line, has, first, op->add_outputs()));
      }
      RETURN_IF_ERROR(line.Take("<-"));
      ASSIGN_OR_RETURN(has, line.TakeName(&first));
    }
    if (has) op->set_type(first);
    if (!line.TryTake("(")) return line.Expected(absl::StrCat("'(' after '", first, "'"));
    while (!line.TryTake(")")) {
      if (op->inputs_size() > 0) RETURN_IF_ERROR(line.Take(","));
      ASSIGN_OR_RETURN(has, line.TakeName(&first));
      RETURN_IF_ERROR(SlotValue(line, has, first, op->add_inputs()));
    }
    while (!line.done()) {
      if (line.TryTake("@")) {
        v1::OpRole role;
        const std::string word(line.PeekWord());
        if (!v1::OpRole_Parse(word, &role)) return line.Expected("a role (FORWARD, BACKWARD, OPTIMIZE, RPC, ...)");
        line.TryTake(word);
        op->set_role(role);
      } else if (line.LooksAt("grads(")) {
        line.TryTake("grads(");
        RETURN_IF_ERROR(Grads(line, op));
      } else {
        v1::OpAttr* attr = op->add_attrs();
        ASSIGN_OR_RETURN(has, line.TakeName(&first));
        if (has) attr->set_name(first);
        RETURN_IF_ERROR(line.Take("="));
        RETURN_IF_ERROR(Attr(line, attr));
      }
    }
    return absl::OkStatus();
  }

  absl::Status SlotValue(Line& line, bool has_name, const std::string& name, v1::OpSlot* slot) {
    if (has_name) slot->set_name(name);
    RETURN_IF_ERROR(line.Take("="));
    if (!line.TryTake("[")) return TakeVar(line, slot->add_vars());
    while (!line.TryTake("]")) {
      if (slot->vars_size() > 0) RETURN_IF_ERROR(line.Take(","));
      RETURN_IF_ERROR(TakeVar(line, slot->add_vars()));
    }
    return absl::OkStatus();
  }

  absl::Status TakeVar(Line& line, std::string* name) {
    ASSIGN_OR_RETURN(const bool has, line.TakeName(name));
    return has ? absl::OkStatus() : line.Error("a variable needs a name");
  }

  absl::Status Grads(Line& line, v1::OpDesc* op) {
    while (!line.TryTake(")")) {
      if (op->param_grads_size() > 0) RETURN_IF_ERROR(line.Take(","));
      v1::ParamGrad* pair = op->add_param_grads();
      std::string name;
      ASSIGN_OR_RETURN(bool has, line.TakeName(&name));
      if (has) pair->set_param(name);
      RETURN_IF_ERROR(line.Take("="));
      ASSIGN_OR_RETURN(has, line.TakeName(&name));
      if (has) pair->set_grad(name);
    }
    return absl::OkStatus();
  }

  absl::Status Attr(Line& line, v1::OpAttr* attr) {
    const std::string word(line.PeekWord());
    if (line.LooksAt("\"")) return line.TakeString(attr->mutable_s());
    if (line.LooksAt("[")) return List(line, attr);
    const std::string after(line.rest().substr(word.size(), 1));
    if (after == "[" &&
        (word == "ints" || word == "floats" || word == "strings" || word == "bools" || word == "blocks")) {
      line.TryTake(word);
      if (word == "ints") attr->mutable_ints();
      if (word == "floats") attr->mutable_floats();
      if (word == "strings") attr->mutable_strings();
      if (word == "bools") attr->mutable_bools();
      if (word == "blocks") attr->mutable_blocks();
      return List(line, attr);
    }
    if (word == "true" || word == "false") {
      attr->set_b(word == "true");
      line.TryTake(word);
      return absl::OkStatus();
    }
    if (word == "none") {
      line.TryTake(word);
      return absl::OkStatus();
    }
    if (word == "block" && after == "(") {
      line.TryTake("block(");
      int64_t block = 0;
      RETURN_IF_ERROR(line.TakeInt(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(), &block));
      attr->set_block(static_cast<int32_t>(block));
      return line.Take(")");
    }
    if (word == "dtype" && after == "(") {
      line.TryTake("dtype(");
      v1::DType dtype;
      const std::string name(line.PeekWord());
      if (!v1::DType_Parse(name, &dtype)) return line.Expected("a dtype (FLOAT32, INT64, ...)");
      line.TryTake(name);
      attr->set_dtype(dtype);
      return line.Take(")");
    }
    if (word == "initializer") {
      line.TryTake(word);
      RETURN_IF_ERROR(line.Take("{"));
      return line.TakeBraced(attr->mutable_initializer());
    }
    if (LooksLikeFloat(line.PeekNumber())) {
      double value = 0;
      RETURN_IF_ERROR(line.TakeFloat(&value));
      attr->set_f(value);
      return absl::OkStatus();
    }
    int64_t value = 0;
    if (line.PeekNumber().empty()) return line.Expected("a value");
    RETURN_IF_ERROR(line.TakeInt(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), &value));
    attr->set_i(value);
    return absl::OkStatus();
  }

  static bool LooksLikeFloat(const std::string& token) {
    return token.find_first_of(".eEn") != std::string::npos;  // "inf" and "nan" have an n
  }

  // The first element decides the type of the list, unless a word before the list has named it.
  absl::Status List(Line& line, v1::OpAttr* attr) {
    RETURN_IF_ERROR(line.Take("["));
    for (bool first = true; !line.TryTake("]"); first = false) {
      if (!first) RETURN_IF_ERROR(line.Take(","));
      if (attr->value_case() == v1::OpAttr::VALUE_NOT_SET) {
        const std::string_view word = line.PeekWord();
        if (line.LooksAt("\"")) {
          attr->mutable_strings();
        } else if (word == "true" || word == "false") {
          attr->mutable_bools();
        } else if (LooksLikeFloat(line.PeekNumber())) {
          attr->mutable_floats();
        } else {
          attr->mutable_ints();
        }
      }
      RETURN_IF_ERROR(Element(line, attr));
    }
    if (attr->value_case() == v1::OpAttr::VALUE_NOT_SET)
      return line.Error("an empty list says of what: ints[], strings[], ...");
    return absl::OkStatus();
  }

  absl::Status Element(Line& line, v1::OpAttr* attr) {
    int64_t integer = 0;
    switch (attr->value_case()) {
      case v1::OpAttr::kStrings:
        return line.TakeString(attr->mutable_strings()->add_v());
      case v1::OpAttr::kBools: {
        const std::string word(line.PeekWord());
        if (word != "true" && word != "false") return line.Expected("true or false");
        line.TryTake(word);
        attr->mutable_bools()->add_v(word == "true");
        return absl::OkStatus();
      }
      case v1::OpAttr::kFloats: {
        double value = 0;
        RETURN_IF_ERROR(line.TakeFloat(&value));
        attr->mutable_floats()->add_v(value);
        return absl::OkStatus();
      }
      case v1::OpAttr::kBlocks:
        RETURN_IF_ERROR(
            line.TakeInt(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(), &integer));
        attr->mutable_blocks()->add_v(static_cast<int32_t>(integer));
        return absl::OkStatus();
      default:
        RETURN_IF_ERROR(
            line.TakeInt(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), &integer));
        attr->mutable_ints()->add_v(integer);
        return absl::OkStatus();
    }
  }

  const std::string_view text_;
  const std::string& file_;
  std::string_view line_;
  size_t begin_ = 0;  // offset of line_
  size_t next_ = 0;   // offset of the line after it
  int number_ = 0;
  v1::ProgramDesc program_;
};

}  // namespace

absl::StatusOr<v1::ProgramDesc> ParseProgramText(std::string_view text, const std::string& file) {
  return Parser(text, file).Run();
}

}  // namespace weir
