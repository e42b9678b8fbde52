#include "trainer/files/column_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

enum Kind : uint8_t {
  kNulls = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kUint8 = 5,
  kUint16 = 6,
  kUint32 = 7,
  kUint64 = 8,
  kFloat32 = 9,
  kFloat64 = 10,
  kText = 11,
  kDictionary = 12,
  kList = 13,
};
// Bytes of a value, by kind; 0: not of one size.
constexpr std::array<size_t, 14> kBytes = {0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 0, 0, 0};

constexpr uint32_t kMostColumns = 1 << 20;  // as many as a job has
constexpr uint32_t kMostRows = 1 << 24;     // of a batch
constexpr size_t kPiece = 1 << 20;          // read at once: damaged lengths take no more memory than there are bytes

// Values of one column in a batch.
struct Values {
  uint8_t kind = kNulls;
  bool has_validity = false;
  std::string valid;              // bits
  std::string bytes;              // numbers, or text
  std::vector<uint32_t> offsets;  // into `bytes`: of rows, or of entries of a dictionary; or into `elements`
  std::vector<int32_t> codes;
  std::unique_ptr<Values> elements;  // of lists

  bool Has(size_t row) const {
    return kind != kNulls && (!has_validity || (static_cast<unsigned char>(valid[row / 8]) >> (row % 8) & 1) != 0);
  }
  std::string_view TextAt(size_t place) const {
    return std::string_view(bytes).substr(offsets[place], offsets[place + 1] - offsets[place]);
  }
  template <typename T>
  T At(size_t row) const {
    T value;
    std::memcpy(&value, bytes.data() + row * sizeof(T), sizeof(T));
    return value;
  }
};

template <typename T>
void AppendNumber(T value, std::string* out) {
  char digits[32];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof digits, value);
  out->append(digits, static_cast<size_t>(end.ptr - digits));
}

// The fewest digits that restore the number. One that is not a number is missing.
template <typename T>
void AppendFloat(T value, std::string* out) {
  if (!std::isnan(value)) AppendNumber(value, out);
}

class ColumnText : public ByteSource {
 public:
  ColumnText(std::unique_ptr<ByteSource> columns, std::string name, ColumnTextForm form)
      : in_(std::move(columns)), name_(std::move(name)), form_(std::move(form)) {
    for (const char special : {form_.separator, '\n', '\r'}) special_[static_cast<unsigned char>(special)] = true;
    if (form_.quotes) special_[static_cast<unsigned char>('"')] = true;
  }

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    while (given_ == text_.size()) {
      if (ended_) return 0;
      text_.clear();
      given_ = 0;
      RETURN_IF_ERROR(FillText());
    }
    const size_t some = std::min(size, text_.size() - given_);
    std::memcpy(out, text_.data() + given_, some);
    given_ += some;
    return some;
  }

 private:
  // Appends lines to text_, or sets ended_.
  absl::Status FillText();
  absl::Status ReadBegin();
  // Reads the next batch. Sets ended_ at the end mark.
  absl::Status ReadBatch();
  absl::Status ReadValues(size_t column, uint32_t rows, bool in_list, Values* values);
  absl::Status ReadOffsets(size_t column, uint32_t count, std::vector<uint32_t>* offsets);
  absl::Status AppendLine(size_t row);
  absl::Status AppendField(size_t column, size_t row);
  absl::Status AppendList(size_t column, size_t row);
  // Appends a value that is there and no list; `out` is text_ or that of a list.
  void AppendValue(const Values& values, size_t row, std::string* out) const;
  absl::Status AppendText(size_t column, std::string_view text);

  // Reads `size` bytes to the end of `bytes`.
  absl::Status Take(size_t size, std::string* bytes);
  absl::StatusOr<uint32_t> TakeNumber();
  absl::StatusOr<uint8_t> TakeByte();
  template <typename T>
  absl::Status TakeArray(size_t count, std::vector<T>* out);

  absl::Status Damaged(std::string_view what) const {
    return absl::DataLossError(absl::StrCat(name_, ": its columns are damaged: ", std::string(what), " before byte ",
                                            taken_, " of what the command wrote"));
  }
  absl::Status Unfit(size_t column, std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": column '", names_[column], "', row ", rows_before_ + row_,
                                                   " from 0: ", std::string(what)));
  }

  const std::unique_ptr<ByteSource> in_;
  const std::string name_;
  const ColumnTextForm form_;
  std::array<bool, 256> special_ = {};  // characters that a plain field cannot have
  bool begun_ = false, ended_ = false;
  std::vector<std::string> names_;
  std::vector<char> list_separators_;
  std::vector<Values> batch_;
  uint32_t rows_ = 0;        // of the batch
  uint32_t row_ = 0;         // the next one
  int64_t rows_before_ = 0;  // of earlier batches
  int64_t taken_ = 0;        // bytes of the columns
  std::string text_, list_;
  size_t given_ = 0;  // bytes of text_
  std::string read_ahead_;
  size_t used_ahead_ = 0;
};

absl::Status ColumnText::Take(size_t size, std::string* bytes) {
  while (size > 0) {
    if (used_ahead_ == read_ahead_.size()) {
      read_ahead_.resize(kPiece);
      used_ahead_ = 0;
      absl::StatusOr<size_t> got = in_->Read(read_ahead_.data(), kPiece);
      read_ahead_.resize(got.ok() ? *got : 0);
      RETURN_IF_ERROR(got.status());
      if (*got == 0) {
        return absl::DataLossError(absl::StrCat(name_, ": cut: its columns end after ", taken_,
                                                " bytes, without the end mark; the command must write all of them"));
      }
    }
    const size_t some = std::min(size, read_ahead_.size() - used_ahead_);
    bytes->append(read_ahead_, used_ahead_, some);
    used_ahead_ += some;
    taken_ += static_cast<int64_t>(some);
    size -= some;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ColumnText::TakeNumber() {
  std::string bytes;
  RETURN_IF_ERROR(Take(sizeof(uint32_t), &bytes));
  uint32_t number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

absl::StatusOr<uint8_t> ColumnText::TakeByte() {
  std::string bytes;
  RETURN_IF_ERROR(Take(1, &bytes));
  return static_cast<uint8_t>(bytes[0]);
}

template <typename T>
absl::Status ColumnText::TakeArray(size_t count, std::vector<T>* out) {
  std::string bytes;
  RETURN_IF_ERROR(Take(count * sizeof(T), &bytes));
  out->resize(count);
  std::memcpy(out->data(), bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status ColumnText::ReadBegin() {
  std::string begin;
  RETURN_IF_ERROR(Take(kColumnsBegin.size(), &begin));
  if (begin != kColumnsBegin) return Damaged("the first bytes are others");
  ASSIGN_OR_RETURN(const uint32_t columns, TakeNumber());
  if (columns == 0 || columns > kMostColumns) return Damaged(absl::StrCat("there are ", columns, " columns"));
  for (uint32_t i = 0; i < columns; ++i) {
    ASSIGN_OR_RETURN(const uint32_t length, TakeNumber());
    if (length > 65536) return Damaged(absl::StrCat("a column's name has ", length, " bytes"));
    std::string& name = names_.emplace_back();
    RETURN_IF_ERROR(Take(length, &name));
    const auto list = form_.lists.find(name);
    list_separators_.push_back(list == form_.lists.end() ? '|' : list->second);
  }
  batch_.resize(columns);
  if (!form_.header) return absl::OkStatus();
  for (size_t i = 0; i < names_.size(); ++i) {
    if (i > 0) text_ += form_.separator;
    RETURN_IF_ERROR(AppendText(i, names_[i]));
  }
  text_ += '\n';
  return absl::OkStatus();
}

absl::Status ColumnText::ReadOffsets(size_t column, uint32_t count, std::vector<uint32_t>* offsets) {
  RETURN_IF_ERROR(TakeArray(size_t{count} + 1, offsets));
  if (offsets->front() != 0 || !std::is_sorted(offsets->begin(), offsets->end())) {
    return Damaged(absl::StrCat("offsets of column '", names_[column], "' do not ascend from 0"));
  }
  return absl::OkStatus();
}

absl::Status ColumnText::ReadValues(size_t column, uint32_t rows, bool in_list, Values* values) {
  ASSIGN_OR_RETURN(values->kind, TakeByte());
  ASSIGN_OR_RETURN(const uint8_t has_validity, TakeByte());
  if (values->kind > kList || (in_list && values->kind == kList) || has_validity > 1) {
    return Damaged(absl::StrCat("column '", names_[column], "' is of kind ", values->kind));
  }
  values->has_validity = has_validity == 1;
  values->valid.clear();
  values->bytes.clear();
  if (values->has_validity) RETURN_IF_ERROR(Take((size_t{rows} + 7) / 8, &values->valid));
  switch (values->kind) {
    case kNulls:
      return absl::OkStatus();
    case kText:
      RETURN_IF_ERROR(ReadOffsets(column, rows, &values->offsets));
      return Take(values->offsets.back(), &values->bytes);
    case kDictionary: {
      ASSIGN_OR_RETURN(const uint32_t entries, TakeNumber());
      RETURN_IF_ERROR(ReadOffsets(column, entries, &values->offsets));
      RETURN_IF_ERROR(Take(values->offsets.back(), &values->bytes));
      RETURN_IF_ERROR(TakeArray(rows, &values->codes));
      for (uint32_t row = 0; row < rows; ++row) {
        const int32_t code = values->codes[row];
        if (values->Has(row) && (code < 0 || static_cast<uint32_t>(code) >= entries)) {
          return Damaged(
              absl::StrCat("column '", names_[column], "' has code ", code, " of a dictionary of ", entries));
        }
      }
      return absl::OkStatus();
    }
    case kList:
      RETURN_IF_ERROR(ReadOffsets(column, rows, &values->offsets));
      if (values->elements == nullptr) values->elements = std::make_unique<Values>();
      return ReadValues(column, values->offsets.back(), /*in_list=*/true, values->elements.get());
    default:
      return Take(size_t{rows} * kBytes[values->kind], &values->bytes);
  }
}

absl::Status ColumnText::ReadBatch() {
  rows_before_ += rows_;
  row_ = 0;
  ASSIGN_OR_RETURN(rows_, TakeNumber());
  if (rows_ > kMostRows) return Damaged(absl::StrCat("a batch has ", rows_, " rows"));
  if (rows_ == 0) {
    // The command's exit code comes behind its last byte.
    char more;
    ASSIGN_OR_RETURN(const size_t got, in_->Read(&more, 1));
    if (got > 0 || used_ahead_ < read_ahead_.size()) return Damaged("bytes follow the end mark");
    ended_ = true;
    return absl::OkStatus();
  }
  for (size_t i = 0; i < batch_.size(); ++i) RETURN_IF_ERROR(ReadValues(i, rows_, /*in_list=*/false, &batch_[i]));
  return absl::OkStatus();
}

void ColumnText::AppendValue(const Values& values, size_t row, std::string* out) const {
  switch (values.kind) {
    case kInt8:
      return AppendNumber(values.At<int8_t>(row), out);
    case kInt16:
      return AppendNumber(values.At<int16_t>(row), out);
    case kInt32:
      return AppendNumber(values.At<int32_t>(row), out);
    case kInt64:
      return AppendNumber(values.At<int64_t>(row), out);
    case kUint8:
      return AppendNumber(values.At<uint8_t>(row), out);
    case kUint16:
      return AppendNumber(values.At<uint16_t>(row), out);
    case kUint32:
      return AppendNumber(values.At<uint32_t>(row), out);
    case kUint64:
      return AppendNumber(values.At<uint64_t>(row), out);
    case kFloat32:
      return AppendFloat(values.At<float>(row), out);
    case kFloat64:
      return AppendFloat(values.At<double>(row), out);
    default:
      return;
  }
}

absl::Status ColumnText::AppendText(size_t column, std::string_view text) {
  bool plain = true;
  for (const char c : text) plain &= !special_[static_cast<unsigned char>(c)];
  if (plain) {
    text_.append(text);
    return absl::OkStatus();
  }
  if (!form_.quotes || text.find_first_of("\r\n") != std::string_view::npos) {
    return Unfit(column, form_.quotes ? "the text has an end of line, which a field of data.csv cannot have"
                                      : "the text has a separator or an end of line, which data.criteo cannot read");
  }
  text_ += '"';
  for (const char c : text) {
    if (c == '"') text_ += '"';
    text_ += c;
  }
  text_ += '"';
  return absl::OkStatus();
}

absl::Status ColumnText::AppendList(size_t column, size_t row) {
  const Values& values = batch_[column];
  const Values& elements = *values.elements;
  const char separator = list_separators_[column];
  list_.clear();
  for (uint32_t i = values.offsets[row]; i < values.offsets[row + 1]; ++i) {
    if (i > values.offsets[row]) list_ += separator;
    if (!elements.Has(i)) continue;
    if (elements.kind != kText && elements.kind != kDictionary) {
      AppendValue(elements, i, &list_);
      continue;
    }
    const std::string_view text = elements.TextAt(elements.kind == kText ? i : static_cast<size_t>(elements.codes[i]));
    if (text.find(separator) != std::string_view::npos) {
      return Unfit(column, absl::StrCat("an element of the list has '", std::string(1, separator),
                                        "', which separates elements; give the column another `list`"));
    }
    list_.append(text);
  }
  return AppendText(column, list_);
}

absl::Status ColumnText::AppendField(size_t column, size_t row) {
  const Values& values = batch_[column];
  if (!values.Has(row)) return absl::OkStatus();
  switch (values.kind) {
    case kText:
      return AppendText(column, values.TextAt(row));
    case kDictionary:
      return AppendText(column, values.TextAt(static_cast<size_t>(values.codes[row])));
    case kList:
      return AppendList(column, row);
    default:
      AppendValue(values, row, &text_);
      return absl::OkStatus();
  }
}

absl::Status ColumnText::AppendLine(size_t row) {
  const size_t begin = text_.size();
  for (size_t i = 0; i < batch_.size(); ++i) {
    if (i > 0) text_ += form_.separator;
    RETURN_IF_ERROR(AppendField(i, row));
  }
  // A line without a byte is none.
  if (text_.size() == begin && form_.quotes) text_ += "\"\"";
  text_ += '\n';
  return absl::OkStatus();
}

absl::Status ColumnText::FillText() {
  if (!begun_) {
    begun_ = true;
    RETURN_IF_ERROR(ReadBegin());
  }
  if (row_ == rows_) RETURN_IF_ERROR(ReadBatch());
  for (; row_ < rows_ && text_.size() < kBlock; ++row_) RETURN_IF_ERROR(AppendLine(row_));
  return absl::OkStatus();
}

}  // namespace

std::optional<ColumnTextForm> ColumnTextFormOf(const v1::Data& data) {
  if (data.has_criteo()) return ColumnTextForm{.separator = '\t'};
  if (!data.has_csv() || !DialectUnfitForColumns(data).empty()) return std::nullopt;
  ColumnTextForm form{.header = data.csv().header(), .quotes = true};
  if (!data.csv().separator().empty()) form.separator = data.csv().separator()[0];
  for (const v1::Csv::Column& column : data.csv().column()) {
    if (!column.list().empty()) form.lists[column.name()] = column.list()[0];
  }
  return form;
}

std::string DialectUnfitForColumns(const v1::Data& data) {
  const v1::Csv& csv = data.csv();
  if (!data.has_csv()) return "";
  if (csv.separator().size() > 1) return "data.csv.separator";
  if (csv.quote() != "\"") return "data.csv.quote";
  if (csv.decimal_comma()) return "data.csv.decimal_comma";
  if (csv.skip_lines() > 0) return "data.csv.skip_lines";
  if (csv.skip_blank_lines()) return "data.csv.skip_blank_lines";
  return csv.comment().empty() ? "" : "data.csv.comment";
}

std::unique_ptr<ByteSource> MakeColumnText(std::unique_ptr<ByteSource> columns, std::string name, ColumnTextForm form) {
  return std::make_unique<ColumnText>(std::move(columns), std::move(name), std::move(form));
}

}  // namespace weir
