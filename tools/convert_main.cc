// convert: writes the files of a job's data as example files (docs/example_files.md), which the same job reads without
// parsing; and describes an example file.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "framework/base/atomic_file.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/formats/learned.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/partitions.h"
#include "framework/process/command_line.h"
#include "framework/process/standard_output.h"
#include "google/protobuf/text_format.h"
#include "trainer/data/example_stream.h"
#include "trainer/files/data_set.h"
#include "trainer/files/example_file.h"
#include "trainer/files/piped_command.h"
#include "transpiler/job/job.h"
#include "transpiler/job/job_dir.h"
#include "transpiler/job/load_job.h"

ABSL_FLAG(bool, allow_pipes, false, "run the commands that the job names (data.pipe, data.pipe_list)");
ABSL_FLAG(std::string, job, "", "the job whose data is converted");
ABSL_FLAG(std::string, source, "train", "train or eval: the files of data.train or data.eval");
ABSL_FLAG(std::string, output, "",
          "directory for FILE.examples, one for each file of the data; made if it is not there");
ABSL_FLAG(bool, overwrite, false, "replace files that are in the directory already");
ABSL_FLAG(std::string, describe, "", "an example file to be described");

namespace weir {
namespace {

constexpr char kEnding[] = ".examples";

struct Options {
  std::string job, source, output;
  bool overwrite = false;
  std::vector<std::string> overrides;
};

// "data/a.tsv.gz" -> "a.tsv.examples"
std::string NameOf(const DataFile& file) {
  std::string name = std::filesystem::path(file.name).filename().string();
  for (const char* const ending : {".gz", ".zst", ".zstd"}) {
    if (file.compression != Compression::kNone && absl::EndsWith(name, ending))
      name = std::string(absl::StripSuffix(name, ending));
  }
  // Files of a partitioned data set often have one name; their directories remain.
  std::string directories;
  if (!file.partitions.empty()) {
    for (const auto& part : std::filesystem::path(file.name).parent_path()) {
      if (part.string().find('=') != std::string::npos) absl::StrAppend(&directories, part.string(), "/");
    }
  }
  return absl::StrCat(directories, name, kEnding);
}

// Returns the settings of the reader, and the partitions, as text.
std::string ReaderText(const v1::Data& data) {
  v1::Data reader = data;
  const google::protobuf::OneofDescriptor* const readers = v1::Data::descriptor()->FindOneofByName("reader");
  const google::protobuf::FieldDescriptor* const kept = data.GetReflection()->GetOneofFieldDescriptor(data, readers);
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  data.GetReflection()->ListFields(data, &fields);
  for (const google::protobuf::FieldDescriptor* const field : fields) {
    if (field != kept && field->name() != "partition") reader.GetReflection()->ClearField(&reader, field);
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(reader, &text);
  return text;
}

class Converter {
 public:
  Converter(const LineParser& parser, const DataSet& data, std::string reader, std::string directory)
      : parser_(parser), data_(data), reader_(std::move(reader)), directory_(std::move(directory)) {}

  absl::Status Run(v1::Data::BadLine bad_line, bool overwrite) {
    std::set<std::string> names;
    for (const DataFile& file : data_.files()) {
      const std::string path = absl::StrCat(directory_, "/", NameOf(file));
      if (!names.insert(NameOf(file)).second) {
        return absl::InvalidArgumentError(absl::StrCat("two files would become ", path, ", the second ", file.name,
                                                       "; convert files of one name into directories of their own"));
      }
      if (std::error_code error; !overwrite && std::filesystem::exists(path, error)) {
        return absl::AlreadyExistsError(absl::StrCat(path, " is there already, and ", file.name,
                                                     " would become it; name another --output, or give --overwrite "
                                                     "if it may be replaced"));
      }
    }
    std::atomic<int64_t> skipped{0};
    ExampleStream stream({.data = &data_, .parser = &parser_, .bad_line = bad_line, .skipped = &skipped});
    Example example;
    ExampleStream::Prepare(parser_, &example);
    InputPosition position;
    while (stream.Next(&example, &position)) {
      while (file_ < position.file) RETURN_IF_ERROR(NextFile());
      RETURN_IF_ERROR(writer_->Add(example));
    }
    RETURN_IF_ERROR(stream.status());
    while (file_ < static_cast<int64_t>(data_.files().size())) RETURN_IF_ERROR(NextFile());
    std::cout << "files=" << data_.files().size() << " examples=" << examples_ << " skipped_lines=" << skipped.load()
              << "\n";
    return absl::OkStatus();
  }

 private:
  // Finishes the file at hand and begins the next, if there is one.
  absl::Status NextFile() {
    if (writer_ != nullptr) {
      ASSIGN_OR_RETURN(const v1::ExampleFile written, writer_->Finish());
      const DataFile& file = data_.files()[static_cast<size_t>(file_)];
      std::cout << file.name << " -> " << directory_ << "/" << NameOf(file) << " examples=" << written.examples()
                << "\n";
      examples_ += written.examples();
      writer_ = nullptr;
    }
    ++file_;
    if (file_ == static_cast<int64_t>(data_.files().size())) return absl::OkStatus();
    const std::string path = absl::StrCat(directory_, "/", NameOf(data_.files()[static_cast<size_t>(file_)]));
    RETURN_IF_ERROR(CreateDirectories(std::filesystem::path(path).parent_path().string()));
    ASSIGN_OR_RETURN(writer_, ExampleFileWriter::Create(path, parser_.columns(), reader_));
    return absl::OkStatus();
  }

  const LineParser& parser_;
  const DataSet& data_;
  const std::string reader_;
  const std::string directory_;
  int64_t file_ = -1;
  int64_t examples_ = 0;
  std::unique_ptr<ExampleFileWriter> writer_;
};

absl::Status Convert(const Options& options) {
  if (options.job.empty() || options.output.empty()) {
    return absl::InvalidArgumentError("--job and --output must be given, or --describe");
  }
  if (options.source != "train" && options.source != "eval") {
    return absl::InvalidArgumentError(absl::StrCat("--source must be train or eval, got '", options.source, "'"));
  }
  ASSIGN_OR_RETURN(const std::string directory, JobDirectory());
  ASSIGN_OR_RETURN(const Job job, LoadJob(options.job, options.overrides, {.directory = directory}));
  const v1::Data& data = job.config.data();
  for (const Lesson& lesson : Lessons(data)) {
    if (lesson.kind != Lesson::kClasses) continue;
    return AtField(job,
                   lesson.Error("an example file holds numbers of classes, and these are yet to be learned: list the "
                                "classes in the job (classes)"));
  }
  // Rules of rows and derived variables are the job's, which applies them when it reads the examples.
  v1::DataSource source = options.source == "train" ? data.train() : data.eval();
  source.clear_where();
  ASSIGN_OR_RETURN(const DataSet files,
                   DataSet::Open(data, source, job.directory, absl::StrCat("data.", options.source)));
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeReaderParser(data));
  RETURN_IF_ERROR(CreateDirectories(options.output));
  return Converter(*parser, files, ReaderText(data), options.output).Run(data.bad_line(), options.overwrite);
}

absl::Status Describe(const std::string& path) {
  v1::DataSource source;
  source.add_files(path);
  ASSIGN_OR_RETURN(const DataSet set, DataSet::Open(source, "", "--describe"));
  const DataFile& file = set.files()[0];
  if (set.files().size() != 1 || file.examples == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no example file"));
  }
  const v1::ExampleFile& m = file.examples->message;
  absl::PrintF("format=%d examples=%d blocks=%d bytes=%d\n", m.format_version(), m.examples(), m.block_bytes_size(),
               file.bytes);
  int floats = 0, slots = 0;
  for (const Column& column : file.examples->columns) {
    for (int64_t i = 0; i < column.width; ++i) {
      const auto at = static_cast<size_t>(i);
      const std::string name = column.width == 1        ? column.name
                               : column.kind == v1::IDS ? absl::StrCat(column.name, ".", column.slot_names[at])
                                                        : absl::StrCat(column.name, "[", i, "]");
      if (column.kind == v1::IDS) {
        const v1::ExampleFile::Slot& slot = m.slot(slots++);
        absl::PrintF("%-24s ids=%d empty=%d most=%d\n", name, slot.ids(), slot.empty(), slot.most());
      } else {
        const v1::ExampleFile::FloatColumn& values = m.float_column(floats++);
        absl::PrintF("%-24s values=%d least=%g largest=%g mean=%g deviation=%g\n", name, values.values(),
                     values.least(), values.largest(), values.mean(), values.deviation());
      }
    }
  }
  std::cout << m.reader();
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  constexpr char kUsage[] =
      "writes the files of a job's data as example files, which the job reads without parsing\n"
      "  convert --job=FILE --output=DIR [--source=eval] [--overwrite] [--allow_pipes] [--set path=value ...]\n"
      "  convert --describe=FILE.examples";
  const absl::StatusOr<weir::CommandLine> line = weir::ParseCommandLine(argc, argv);
  if (line.ok() && line->help) {
    std::cout << weir::HelpText(kUsage);
    return weir::EndWithOutput("convert", weir::kExitOk);
  }
  absl::Status status = line.status();
  if (absl::GetFlag(FLAGS_allow_pipes)) weir::AllowPipes();
  if (status.ok() && !line->rest.empty()) {
    status = absl::InvalidArgumentError(absl::StrCat("'", line->rest[0], "' is no flag"));
  }
  const std::string describe = absl::GetFlag(FLAGS_describe);
  if (status.ok() && !describe.empty()) {
    status = weir::Describe(describe);
  } else if (status.ok()) {
    status = weir::Convert({.job = absl::GetFlag(FLAGS_job),
                            .source = absl::GetFlag(FLAGS_source),
                            .output = absl::GetFlag(FLAGS_output),
                            .overwrite = absl::GetFlag(FLAGS_overwrite),
                            .overrides = line->overrides});
  }
  if (!status.ok()) std::cerr << "convert: " << status.message() << "\n";
  return weir::EndWithOutput("convert", weir::ExitCodeOf(status));
}
