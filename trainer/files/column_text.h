// Columns that a command of data.pipe writes, as lines of text for a reader. docs/parquet.md defines the format.
//
// A program that has columns (Parquet, Arrow) hands them over several times faster than lines, which it would have to
// make value by value. Making them here keeps one parser: a job reads the same examples, to the bit, as from the text.
#ifndef WEIR_TRAINER_FILES_COLUMN_TEXT_H_
#define WEIR_TRAINER_FILES_COLUMN_TEXT_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "proto/job.pb.h"
#include "trainer/files/byte_source.h"
#include "trainer/files/column_text_form.h"

namespace weir {

// First bytes of the format.
inline constexpr std::string_view kColumnsBegin = "WEIRCOL1";

// Returns the form that the reader of `data` takes: data.csv or data.criteo; nothing for other readers.
std::optional<ColumnTextForm> ColumnTextFormOf(const v1::Data& data);
// Returns the first setting of a dialect of text in data.csv ("data.csv.skip_lines"), which the lines made of columns
// do not have; ColumnTextFormOf then returns nothing. "" if there is none.
std::string DialectUnfitForColumns(const v1::Data& data);

// Returns a source of the lines. `columns` gives the bytes of the format; `name` is that of the file, for messages.
// Reads fail with InvalidArgument where a value cannot be written in that form, DataLoss where bytes are damaged or
// missing.
std::unique_ptr<ByteSource> MakeColumnText(std::unique_ptr<ByteSource> columns, std::string name, ColumnTextForm form);

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_COLUMN_TEXT_H_
