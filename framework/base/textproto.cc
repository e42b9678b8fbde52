#include "framework/base/textproto.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace weir {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::EnumValueDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::MessageFactory;
using ::google::protobuf::OneofDescriptor;
using ::google::protobuf::Reflection;
using ::google::protobuf::io::ColumnNumber;
using ::google::protobuf::io::Tokenizer;

// Deeper than any real message; a hostile file must not use up the stack.
constexpr int kMaxDepth = 64;
constexpr char kAnyPrefix[] = "type.googleapis.com/";

using Places = std::map<std::string, std::string, std::less<>>;

// Counts insertions, deletions, replacements and swaps of neighbours; upper and lower case are equal.
int EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  };
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = static_cast<int>(i + j);
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& known) {
  const std::string near = NearestName(name, known);
  if (!near.empty()) return absl::StrCat(" (did you mean '", near, "'?)");
  if (known.empty()) return "";
  // Name all, up to the number that a person reads.
  const size_t shown = std::min<size_t>(known.size(), 12);
  return absl::StrCat("; known: ", absl::StrJoin(known.begin(), known.begin() + shown, ", "),
                      shown < known.size() ? ", ..." : "");
}

std::vector<std::string> FieldNames(const Descriptor* type) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(type->field_count()));
  for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
  return names;
}

std::vector<std::string> EnumNames(const EnumDescriptor* type) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(type->value_count()));
  for (int i = 0; i < type->value_count(); ++i) names.push_back(type->value(i)->name());
  return names;
}

bool IsAny(const Descriptor* type) { return type->full_name() == "google.protobuf.Any"; }

std::string Join(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : absl::StrCat(Av(path), ".", Av(name));
}

// Returns a message for the inside of an Any, by its type URL; nullptr when its type is not linked in.
std::unique_ptr<Message> NewByUrl(std::string_view url) {
  const size_t slash = url.rfind('/');
  const std::string name(slash == std::string_view::npos ? url : url.substr(slash + 1));
  const Descriptor* type = google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(name);
  if (type == nullptr) return nullptr;
  return std::unique_ptr<Message>(MessageFactory::generated_factory()->GetPrototype(type)->New());
}

absl::Status UnlinkedType(std::string_view place, std::string_view url) {
  absl::Status status = absl::InvalidArgumentError(
      absl::StrCat(Av(place), ": no message type '", Av(url), "' is linked into this program"));
  status.SetPayload(kUnlinkedType, absl::Cord(Av(url)));
  return status;
}

void PackInto(const Message& inner, Message* any) {
  const Reflection* reflection = any->GetReflection();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    inner.SerializePartialToCodedStream(&out);
  }
  reflection->SetString(any, any->GetDescriptor()->FindFieldByName("type_url"),
                        absl::StrCat(kAnyPrefix, inner.GetDescriptor()->full_name()));
  reflection->SetString(any, any->GetDescriptor()->FindFieldByName("value"), std::move(bytes));
}

// Reads text format into messages by reflection. Protocol Buffers' own parser does the same; it has no suggestions, and
// does not say which message an unknown enum value or a missing brace belongs to.
class TextParser {
 public:
  // `place` of a line and a column, both from 0. `places` may be null.
  TextParser(std::string_view text, std::function<std::string(int, int)> place, Places* places)
      : stream_(text.data(), static_cast<int>(text.size())),
        tokenizer_(&stream_, &lexical_),
        place_(std::move(place)),
        places_(places) {
    tokenizer_.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
    tokenizer_.set_allow_f_after_float(true);
    tokenizer_.set_require_space_after_number(false);
    tokenizer_.set_allow_multiline_strings(false);
  }

  absl::Status ParseWhole(Message* message, const std::string& path) {
    RETURN_IF_ERROR(Next());
    while (!AtEnd()) RETURN_IF_ERROR(ParseField(message, path, 0));
    return absl::OkStatus();
  }

  // Parses a text that is a single value of `field`, and replaces the field by it.
  absl::Status ParseValueOnly(Message* message, const FieldDescriptor* field, const std::string& path, int index) {
    RETURN_IF_ERROR(Next());
    if (field->is_repeated() && index < 0) {
      message->GetReflection()->ClearField(message, field);
      RETURN_IF_ERROR(ParseRepeated(message, field, path, Here(), 0));
    } else {
      if (!field->is_repeated()) message->GetReflection()->ClearField(message, field);
      RETURN_IF_ERROR(ParseOne(message, field, path, index, 0));
    }
    if (!AtEnd()) return Error(absl::StrCat("expected the end of the value, got ", Token()));
    return absl::OkStatus();
  }

 private:
  struct Lexical : public google::protobuf::io::ErrorCollector {
    void AddError(int line, ColumnNumber column, const std::string& message) override {
      if (!first.has_value()) first = {line, column, message};
    }
    struct One {
      int line = 0;
      int column = 0;
      std::string text;
    };
    std::optional<One> first;
  };

  // Fields and oneofs already set in one message: their descriptors, with the name and the place of the first setting.
  using Seen = std::map<const void*, std::pair<std::string, std::string>>;

  bool AtEnd() const { return tokenizer_.current().type == Tokenizer::TYPE_END; }
  bool LooksAt(std::string_view symbol) const { return tokenizer_.current().text == symbol && !AtString(); }
  bool AtString() const { return tokenizer_.current().type == Tokenizer::TYPE_STRING; }
  bool AtIdentifier() const { return tokenizer_.current().type == Tokenizer::TYPE_IDENTIFIER; }
  std::string Token() const {
    if (AtEnd()) return "the end of the text";
    const std::string& text = tokenizer_.current().text;
    return AtString() ? text.substr(0, 40) : absl::StrCat("'", text.substr(0, 40), "'");
  }
  std::string Here() const { return place_(tokenizer_.current().line, tokenizer_.current().column); }
  absl::Status Error(std::string_view text) const {
    return absl::InvalidArgumentError(absl::StrCat(Here(), ": ", Av(text)));
  }

  absl::Status Next() {
    tokenizer_.Next();
    if (lexical_.first.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(place_(lexical_.first->line, lexical_.first->column), ": ", lexical_.first->text));
    }
    return absl::OkStatus();
  }
  absl::Status TryConsume(std::string_view symbol, bool* found) {
    *found = LooksAt(symbol);
    return *found ? Next() : absl::OkStatus();
  }

  void Record(const std::string& path) {
    if (places_ != nullptr) places_->emplace(path, Here());
  }

  absl::Status ParseField(Message* message, const std::string& path, int depth) {
    Seen& seen = seen_[static_cast<size_t>(depth)];
    if (LooksAt("[") && IsAny(message->GetDescriptor())) return ParseAny(message, path, depth);
    if (!AtIdentifier()) return Error(absl::StrCat("expected a field name, got ", Token()));
    const std::string name = tokenizer_.current().text;
    const Descriptor* type = message->GetDescriptor();
    const FieldDescriptor* field = type->FindFieldByName(name);
    if (field == nullptr) return Error(absl::StrCat("unknown field '", name, "'", DidYouMean(name, FieldNames(type))));
    if (!field->is_repeated()) {
      const auto [other, fresh] = seen.emplace(field, std::make_pair(name, Here()));
      if (!fresh) {
        return Error(absl::StrCat("'", name, "' is written twice, first at ", other->second.second));
      }
      if (const OneofDescriptor* oneof = field->real_containing_oneof()) {
        const auto [member, first] = seen.emplace(oneof, std::make_pair(name, Here()));
        if (!first) {
          return Error(absl::StrCat("'", name, "' excludes '", member->second.first, "', which is written at ",
                                    member->second.second));
        }
      }
    }
    const std::string field_path = Join(path, name);
    Record(field_path);
    const std::string field_place = Here();
    RETURN_IF_ERROR(Next());
    bool colon = false;
    RETURN_IF_ERROR(TryConsume(":", &colon));
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!colon && !(is_message && (LooksAt("{") || LooksAt("<") || LooksAt("[")))) {
      return Error(absl::StrCat("expected ", is_message ? "'{'" : "':'", " after '", name, "', got ", Token()));
    }
    if (field->is_repeated()) {
      RETURN_IF_ERROR(ParseRepeated(message, field, field_path, field_place, depth));
    } else {
      RETURN_IF_ERROR(ParseOne(message, field, field_path, /*index=*/-1, depth));
    }
    bool separator = false;
    RETURN_IF_ERROR(TryConsume(";", &separator));
    if (!separator) RETURN_IF_ERROR(TryConsume(",", &separator));
    return absl::OkStatus();
  }

  // Parses one value, whose place is that of the field's name, or a list in brackets of values with their own places.
  absl::Status ParseRepeated(Message* message, const FieldDescriptor* field, const std::string& path,
                             const std::string& field_place, int depth) {
    const Reflection* reflection = message->GetReflection();
    const auto add = [&](const std::string& place) -> absl::Status {
      const std::string element = absl::StrCat(path, "[", reflection->FieldSize(*message, field), "]");
      if (places_ != nullptr) places_->emplace(element, place);
      return ParseOne(message, field, element, /*index=*/-1, depth);
    };
    if (!LooksAt("[")) return add(field_place);
    RETURN_IF_ERROR(Next());
    bool more = !LooksAt("]");
    while (more) {
      RETURN_IF_ERROR(add(Here()));
      RETURN_IF_ERROR(TryConsume(",", &more));
    }
    if (!LooksAt("]"))
      return Error(absl::StrCat("expected ',' or ']' in the list of '", field->name(), "', got ", Token()));
    return Next();
  }

  // Parses one value and sets element `index`; -1: sets the field, or adds an element.
  absl::Status ParseOne(Message* message, const FieldDescriptor* field, const std::string& path, int index, int depth) {
    const Reflection* reflection = message->GetReflection();
    const bool add = field->is_repeated() && index < 0;
    const bool at = field->is_repeated() && index >= 0;
// Sets a singular field, appends, or sets an element.
#define WEIR_SET(Kind, value)                                      \
  do {                                                             \
    if (add) {                                                     \
      reflection->Add##Kind(message, field, value);                \
    } else if (at) {                                               \
      reflection->SetRepeated##Kind(message, field, index, value); \
    } else {                                                       \
      reflection->Set##Kind(message, field, value);                \
    }                                                              \
    return absl::OkStatus();                                       \
  } while (false)
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        int64_t v = 0;
        RETURN_IF_ERROR(Signed(field, std::numeric_limits<int32_t>::max(), &v));
        WEIR_SET(Int32, static_cast<int32_t>(v));
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        int64_t v = 0;
        RETURN_IF_ERROR(Signed(field, std::numeric_limits<int64_t>::max(), &v));
        WEIR_SET(Int64, v);
      }
      case FieldDescriptor::CPPTYPE_UINT32: {
        uint64_t v = 0;
        RETURN_IF_ERROR(Unsigned(field, std::numeric_limits<uint32_t>::max(), &v));
        WEIR_SET(UInt32, static_cast<uint32_t>(v));
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        uint64_t v = 0;
        RETURN_IF_ERROR(Unsigned(field, std::numeric_limits<uint64_t>::max(), &v));
        WEIR_SET(UInt64, v);
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        double v = 0;
        RETURN_IF_ERROR(Real(field, &v));
        WEIR_SET(Double, v);
      }
      case FieldDescriptor::CPPTYPE_FLOAT: {
        double v = 0;
        RETURN_IF_ERROR(Real(field, &v));
        WEIR_SET(Float, static_cast<float>(v));
      }
      case FieldDescriptor::CPPTYPE_BOOL: {
        bool v = false;
        RETURN_IF_ERROR(Bool(field, &v));
        WEIR_SET(Bool, v);
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        const EnumValueDescriptor* v = nullptr;
        RETURN_IF_ERROR(Enum(field, &v));
        WEIR_SET(Enum, v);
      }
      case FieldDescriptor::CPPTYPE_STRING: {
        std::string v;
        RETURN_IF_ERROR(String(field, &v));
        WEIR_SET(String, v);
      }
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        if (!LooksAt("{") && !LooksAt("<")) {
          return Error(absl::StrCat("'", field->name(), "' takes a message in braces, got ", Token()));
        }
        Message* inner = add  ? reflection->AddMessage(message, field)
                         : at ? reflection->MutableRepeatedMessage(message, field, index)
                              : reflection->MutableMessage(message, field);
        if (at) inner->Clear();
        return Braced(inner, path, field->name(), depth);
      }
    }
#undef WEIR_SET
    return Error("unreachable kind of field");
  }

  // "{ fields }" or "< fields >".
  absl::Status Braced(Message* message, const std::string& path, const std::string& name, int depth) {
    if (depth + 1 >= kMaxDepth) return Error(absl::StrCat("'", name, "' is nested more than ", kMaxDepth, " deep"));
    const char* close = LooksAt("<") ? ">" : "}";
    const std::string opened = Here();
    RETURN_IF_ERROR(Next());
    seen_[static_cast<size_t>(depth) + 1].clear();
    while (!LooksAt(close)) {
      if (AtEnd()) {
        return Error(absl::StrCat("expected '", close, "' to close '", name, "' opened at ", opened,
                                  ", got the end of the text"));
      }
      RETURN_IF_ERROR(ParseField(message, path, depth + 1));
    }
    return Next();
  }

  // "[type.googleapis.com/pkg.Msg] { fields }", or "[pkg.Msg] { fields }".
  absl::Status ParseAny(Message* any, const std::string& path, int depth) {
    const std::string place = Here();
    RETURN_IF_ERROR(Next());
    std::string url;
    while (!LooksAt("]")) {
      if (!AtIdentifier() && !LooksAt(".") && !LooksAt("/") && !LooksAt("-")) {
        return Error(absl::StrCat("expected a message type in brackets, got ", Token()));
      }
      url += tokenizer_.current().text;
      RETURN_IF_ERROR(Next());
    }
    RETURN_IF_ERROR(Next());
    std::unique_ptr<Message> inner = NewByUrl(url);
    if (inner == nullptr) return UnlinkedType(place, url);
    const auto [other, fresh] =
        seen_[static_cast<size_t>(depth)].emplace(any->GetDescriptor(), std::make_pair(url, place));
    if (!fresh) return absl::InvalidArgumentError(absl::StrCat(place, ": a second message in one Any"));
    bool colon = false;
    RETURN_IF_ERROR(TryConsume(":", &colon));
    if (!LooksAt("{") && !LooksAt("<")) return Error(absl::StrCat("expected '{' after '[", url, "]', got ", Token()));
    RETURN_IF_ERROR(Braced(inner.get(), path, url, depth));
    if (!inner->IsInitialized()) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": missing ", inner->InitializationErrorString()));
    }
    PackInto(*inner, any);
    bool separator = false;
    RETURN_IF_ERROR(TryConsume(";", &separator));
    if (!separator) RETURN_IF_ERROR(TryConsume(",", &separator));
    return absl::OkStatus();
  }

  absl::Status WrongType(const FieldDescriptor* field, std::string_view wants, bool negative = false) const {
    return Error(absl::StrCat("'", field->name(), "' takes ", Av(wants), ", got ",
                              negative ? absl::StrCat("'-", tokenizer_.current().text, "'") : Token()));
  }

  absl::Status Signed(const FieldDescriptor* field, int64_t max, int64_t* value) {
    bool negative = false;
    RETURN_IF_ERROR(TryConsume("-", &negative));
    if (tokenizer_.current().type != Tokenizer::TYPE_INTEGER) return WrongType(field, "an integer", negative);
    uint64_t magnitude = 0;
    const uint64_t limit = static_cast<uint64_t>(max) + (negative ? 1 : 0);
    if (!Tokenizer::ParseInteger(tokenizer_.current().text, limit, &magnitude)) {
      return WrongType(field, absl::StrCat("an integer from ", -max - 1, " to ", max), negative);
    }
    *value = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
    return Next();
  }

  absl::Status Unsigned(const FieldDescriptor* field, uint64_t max, uint64_t* value) {
    bool negative = false;
    RETURN_IF_ERROR(TryConsume("-", &negative));
    if (negative || tokenizer_.current().type != Tokenizer::TYPE_INTEGER ||
        !Tokenizer::ParseInteger(tokenizer_.current().text, max, value)) {
      return WrongType(field, absl::StrCat("an integer from 0 to ", max), negative);
    }
    return Next();
  }

  absl::Status Real(const FieldDescriptor* field, double* value) {
    bool negative = false;
    RETURN_IF_ERROR(TryConsume("-", &negative));
    const Tokenizer::Token& token = tokenizer_.current();
    const std::string lower = absl::AsciiStrToLower(token.text);
    if (token.type == Tokenizer::TYPE_FLOAT) {
      *value = Tokenizer::ParseFloat(token.text);
    } else if (token.type == Tokenizer::TYPE_INTEGER && absl::SimpleAtod(token.text, value)) {
      // set by SimpleAtod
    } else if (token.type == Tokenizer::TYPE_IDENTIFIER && (lower == "inf" || lower == "infinity")) {
      *value = std::numeric_limits<double>::infinity();
    } else if (token.type == Tokenizer::TYPE_IDENTIFIER && lower == "nan") {
      *value = std::numeric_limits<double>::quiet_NaN();
    } else {
      return WrongType(field, "a number", negative);
    }
    if (negative) *value = -*value;
    return Next();
  }

  absl::Status Bool(const FieldDescriptor* field, bool* value) {
    const std::string& text = tokenizer_.current().text;
    if (!AtString() && (text == "true" || text == "True" || text == "t" || text == "1")) {
      *value = true;
    } else if (!AtString() && (text == "false" || text == "False" || text == "f" || text == "0")) {
      *value = false;
    } else {
      return WrongType(field, "true or false");
    }
    return Next();
  }

  absl::Status Enum(const FieldDescriptor* field, const EnumValueDescriptor** value) {
    const EnumDescriptor* type = field->enum_type();
    if (AtIdentifier()) {
      *value = type->FindValueByName(tokenizer_.current().text);
      if (*value == nullptr) {
        return Error(absl::StrCat(Token(), " is no value of '", field->name(), "'",
                                  DidYouMean(tokenizer_.current().text, EnumNames(type))));
      }
      return Next();
    }
    uint64_t number = 0;
    if (tokenizer_.current().type == Tokenizer::TYPE_INTEGER &&
        Tokenizer::ParseInteger(tokenizer_.current().text, std::numeric_limits<int32_t>::max(), &number)) {
      *value = type->FindValueByNumber(static_cast<int>(number));
      if (*value != nullptr) return Next();
    }
    return WrongType(field, absl::StrCat("one of ", absl::StrJoin(EnumNames(type), ", ")));
  }

  absl::Status String(const FieldDescriptor* field, std::string* value) {
    if (!AtString()) return WrongType(field, "a string in quotes");
    while (AtString()) {
      Tokenizer::ParseStringAppend(tokenizer_.current().text, value);
      RETURN_IF_ERROR(Next());
    }
    return absl::OkStatus();
  }

  google::protobuf::io::ArrayInputStream stream_;
  Lexical lexical_;
  mutable Tokenizer tokenizer_;  // its current() is not const
  const std::function<std::string(int, int)> place_;
  Places* const places_;
  // Settings that were seen, by depth of nesting.
  std::vector<Seen> seen_ = std::vector<Seen>(kMaxDepth + 1);
};

// One step of an override's path: a field, and an index when it was written.
struct PathStep {
  std::string name;
  int index = -1;
};

absl::StatusOr<std::vector<PathStep>> SplitPath(std::string_view path, const std::string& place) {
  std::vector<PathStep> steps;
  while (true) {
    const size_t end = std::min(path.find('.'), path.size());
    std::string_view part = path.substr(0, end);
    PathStep step;
    if (const size_t bracket = part.find('['); bracket != std::string_view::npos) {
      const std::string_view number = part.substr(bracket + 1);
      if (number.empty() || number.back() != ']' ||
          !absl::SimpleAtoi(Av(number.substr(0, number.size() - 1)), &step.index) || step.index < 0) {
        return absl::InvalidArgumentError(absl::StrCat(place, ": expected 'name[index]', got '", Av(part), "'"));
      }
      part = part.substr(0, bracket);
    }
    if (part.empty()) return absl::InvalidArgumentError(absl::StrCat(place, ": expected 'path.to.field=value'"));
    step.name = std::string(part);
    steps.push_back(std::move(step));
    if (end == path.size()) return steps;
    path.remove_prefix(end + 1);
  }
}

absl::StatusOr<const FieldDescriptor*> FindStep(const Message& message, const PathStep& step,
                                                const std::string& place) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(step.name);
  if (field == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": unknown field '", step.name, "'",
                                                   DidYouMean(step.name, FieldNames(message.GetDescriptor()))));
  }
  if (step.index >= 0 && !field->is_repeated()) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": '", step.name, "' is not repeated, it takes no index"));
  }
  if (step.index >= 0 && step.index >= message.GetReflection()->FieldSize(message, field)) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": '", step.name, "' has ", message.GetReflection()->FieldSize(message, field),
                     " entries, there is no index ", step.index,
                     field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
                         ? ""
                         : absl::StrCat("; '", step.name, "=[a, b]' sets the whole list")));
  }
  return field;
}

absl::Status Override(Message* message, absl::Span<const PathStep> steps, std::string_view value,
                      const std::string& place) {
  if (IsAny(message->GetDescriptor()) && message->GetDescriptor()->FindFieldByName(steps[0].name) == nullptr) {
    const Reflection* reflection = message->GetReflection();
    const std::string url = reflection->GetString(*message, message->GetDescriptor()->FindFieldByName("type_url"));
    std::unique_ptr<Message> inner = NewByUrl(url);
    if (inner == nullptr ||
        !inner->ParseFromString(reflection->GetString(*message, message->GetDescriptor()->FindFieldByName("value")))) {
      return UnlinkedType(place, url);
    }
    RETURN_IF_ERROR(Override(inner.get(), steps, value, place));
    PackInto(*inner, message);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const FieldDescriptor* field, FindStep(*message, steps[0], place));
  const Reflection* reflection = message->GetReflection();
  if (steps.size() > 1) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": '", field->name(), "' has no fields of its own"));
    }
    if (field->is_repeated() && steps[0].index < 0) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": '", field->name(), "' is repeated, write '",
                                                     field->name(), "[0].", steps[1].name, "'"));
    }
    Message* inner = field->is_repeated() ? reflection->MutableRepeatedMessage(message, field, steps[0].index)
                                          : reflection->MutableMessage(message, field);
    return Override(inner, steps.subspan(1), value, place);
  }
  // Accept strings without quotes.
  const bool bare = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
                    (value.empty() || (value[0] != '"' && value[0] != '\'' && value[0] != '['));
  if (bare && !field->is_repeated()) {
    reflection->SetString(message, field, std::string(value));
    return absl::OkStatus();
  }
  if (bare && steps[0].index >= 0) {
    reflection->SetRepeatedString(message, field, steps[0].index, std::string(value));
    return absl::OkStatus();
  }
  if (bare) {
    reflection->ClearField(message, field);
    reflection->AddString(message, field, std::string(value));
    return absl::OkStatus();
  }
  TextParser parser(
      value, [&place](int, int) { return place; }, nullptr);
  return parser.ParseValueOnly(message, field, "", steps[0].index);
}

}  // namespace

std::string TextPositions::At(std::string_view path) const {
  while (!path.empty()) {
    if (const auto at = places_.find(path); at != places_.end()) return at->second;
    const size_t cut = path.find_last_of(".[");
    path = cut == std::string_view::npos ? std::string_view() : path.substr(0, cut);
  }
  return file_;
}

absl::Status TextPositions::Error(std::string_view path, std::string_view text) const {
  const std::string at = At(path);
  return absl::InvalidArgumentError(absl::StrCat(at, at.empty() ? "" : ": ", Av(text)));
}

absl::Status ParseTextProto(std::string_view text, const std::string& file, Message* message,
                            TextPositions* positions) {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", text.size(), " bytes are too many for a text message"));
  }
  message->Clear();
  Places* places = nullptr;
  if (positions != nullptr) {
    positions->file_ = file;
    positions->places_.clear();
    places = &positions->places_;
  }
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    return absl::InvalidArgumentError(absl::StrCat(file, ":1:1: the text is UTF-16; save it as UTF-8"));
  }
  // Skip the byte order mark that some editors write.
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  TextParser parser(
      text, [&file](int line, int column) { return absl::StrCat(file, ":", line + 1, ":", column + 1); }, places);
  RETURN_IF_ERROR(parser.ParseWhole(message, ""));
  if (!message->IsInitialized()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": missing ", message->InitializationErrorString()));
  }
  return absl::OkStatus();
}

absl::Status ParseTextProtoFragment(std::string_view text, const std::string& file, int line, int column,
                                    Message* message) {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", text.size(), " bytes are too many for a text message"));
  }
  message->Clear();
  TextParser parser(
      text, [&](int l, int c) { return absl::StrCat(file, ":", line + l, ":", l == 0 ? column + c : c + 1); }, nullptr);
  RETURN_IF_ERROR(parser.ParseWhole(message, ""));
  if (!message->IsInitialized()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ":", line, ":", column, ": missing ", message->InitializationErrorString()));
  }
  return absl::OkStatus();
}

std::string SingleLineText(const Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.SetExpandAny(true);
  std::string text;
  printer.PrintToString(message, &text);
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

bool ParseForeignText(std::string_view text, Message* message, std::string* error) {
  struct First : public google::protobuf::io::ErrorCollector {
    void AddError(int line, ColumnNumber column, const std::string& message) override {
      if (text.empty()) text = absl::StrCat(line + 1, ":", column + 1, ": ", message);
    }
    std::string text;
  } first;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&first);
  parser.AllowUnknownField(true);
  parser.AllowPartialMessage(true);
  // The parser has no limit of its own; unknown fields are skipped by recursion, too.
  parser.SetRecursionLimit(kMaxDepth);
  message->Clear();
  const bool fits = text.size() <= static_cast<size_t>(std::numeric_limits<int>::max());
  google::protobuf::io::ArrayInputStream stream(text.data(), fits ? static_cast<int>(text.size()) : 0);
  const bool parsed = fits && parser.Parse(&stream, message);
  if (error != nullptr) {
    *error = fits ? first.text : absl::StrCat("1:1: ", text.size(), " bytes are too many for a text message");
  }
  return parsed;
}

absl::Status ApplyOverride(std::string_view assignment, Message* message, TextPositions* positions) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set ", Av(assignment), ": expected 'path.to.field=value', got no '='"));
  }
  const std::string path(absl::StripAsciiWhitespace(Av(assignment.substr(0, equals))));
  const absl::string_view trimmed = absl::StripAsciiWhitespace(Av(assignment.substr(equals + 1)));
  const std::string place = absl::StrCat("--set ", path);
  ASSIGN_OR_RETURN(const std::vector<PathStep> steps, SplitPath(path, place));
  // Change a copy, so that a wrong value leaves the message as it was.
  std::unique_ptr<Message> changed(message->New());
  changed->CopyFrom(*message);
  RETURN_IF_ERROR(Override(changed.get(), steps, std::string_view(trimmed.data(), trimmed.size()), place));
  message->GetReflection()->Swap(message, changed.get());
  if (positions == nullptr) return absl::OkStatus();
  // Drop the places of the fields below `path`: they were removed, or set by this override.
  auto at = positions->places_.lower_bound(path);
  while (at != positions->places_.end() && at->first.compare(0, path.size(), path) == 0) {
    const bool below =
        at->first.size() == path.size() || at->first[path.size()] == '.' || at->first[path.size()] == '[';
    at = below ? positions->places_.erase(at) : std::next(at);
  }
  positions->places_[path] = place;
  return absl::OkStatus();
}

std::string NearestName(std::string_view name, const std::vector<std::string>& known) {
  // Bound the work: names from outside may have any length, and a very long one is no misspelling.
  if (name.size() > 200) return "";
  std::string best;
  int best_distance = static_cast<int>(std::max<size_t>(1, (name.size() + 1) / 3)) + 1;
  for (const std::string& candidate : known) {
    // Skip candidates whose length alone makes the distance too large.
    if (candidate.size() >= name.size() + static_cast<size_t>(best_distance)) continue;
    const int distance = EditDistance(name, candidate);
    if (distance < best_distance && distance < static_cast<int>(candidate.size())) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

absl::StatusOr<std::string> ReadJobText(const std::string& path) {
  constexpr uint64_t kLargestJob = uint64_t{64} << 20;
  ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path, kLargestJob));
  if (IsStream(path) && absl::StripAsciiWhitespace(text).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " is empty; what comes from a pipe or standard input can be read once only: has another program read it?"));
  }
  return text;
}

}  // namespace weir
