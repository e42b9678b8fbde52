#include "trainer/files/data_set.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/partitions.h"
#include "glog/logging.h"
#include "trainer/files/column_text.h"
#include "trainer/files/example_file.h"
#include "trainer/files/idx_source.h"
#include "trainer/files/open_bytes.h"
#include "trainer/files/piped_command.h"
#include "trainer/files/stream_rule.h"

namespace weir {
namespace {

std::string Join(std::string_view directory, const std::string& path) {
  if (path.starts_with('/') || directory.empty()) return path;
  return absl::StrCat(std::string(directory), "/", path);
}

// Returns the matches of a pattern. A pattern without wildcards matches itself if the file exists.
absl::StatusOr<std::vector<std::string>> Matches(const std::string& pattern) {
  glob_t found = {};
  errno = 0;
  const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  const int error = errno;
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (result == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  // A missing directory has no matches, like an empty one.
  if (result == GLOB_ABORTED && error == EACCES) {
    return absl::PermissionDeniedError(absl::StrCat("cannot read a directory of '", pattern, "'"));
  }
  if (result == GLOB_ABORTED && error != ENOENT) {
    return absl::UnavailableError(absl::StrCat("cannot read a directory of '", pattern, "': ", ::strerror(error)));
  }
  if (result == GLOB_NOSPACE) return absl::ResourceExhaustedError(absl::StrCat("no memory to expand '", pattern, "'"));
  return paths;
}

// A file name ending and the compression that it promises.
struct Ending {
  const char* ending;
  const char* name;
  Compression compression;
  int64_t least;  // length of the magic number
};
constexpr Ending kEndings[] = {{".gz", "gzip", Compression::kGzip, 2},
                               {".zst", "zstd", Compression::kZstd, 4},
                               {".zstd", "zstd", Compression::kZstd, 4}};

// Hashes a sample of a file of `bytes` bytes: xxh3 of its first, middle and last 4 KiB. For gzip, whose header may hold
// the time of compression, only the last 8 bytes: checksum and length of the text.
uint64_t SampleOf(int fd, int64_t bytes, Compression compression) {
  constexpr int64_t kBlock = 4096;
  char block[kBlock];
  std::string sample;
  const auto add = [&](int64_t offset, int64_t size) {
    const ssize_t got = ::pread(fd, block, static_cast<size_t>(std::min(size, kBlock)), offset);
    if (got > 0) sample.append(block, static_cast<size_t>(got));
  };
  if (compression == Compression::kGzip) {
    add(std::max<int64_t>(0, bytes - 8), 8);
  } else {
    for (const int64_t offset : {int64_t{0}, bytes / 2, std::max<int64_t>(0, bytes - kBlock)}) add(offset, kBlock);
  }
  return StableHash(sample);
}

// Way to the files of a source.
struct Access {
  // Command that reads a file; null: the file's own bytes are read.
  std::shared_ptr<const FilePipe> pipe;
  // Command that lists files; empty: the file system is asked.
  std::string list;
};

// Returns the sample of a file behind a command: another command makes other bytes of the same file.
uint64_t SampleBehind(const FilePipe& pipe, const std::string& version) {
  return StableHash(absl::StrCat(pipe.command, "\n", version));
}

absl::StatusOr<DataFile> OpenFile(const std::string& path, const std::string& name,
                                  const std::shared_ptr<const FilePipe>& pipe) {
  DataFile file{.path = path, .name = name, .pipe = pipe};
  // Without O_NONBLOCK opening a pipe blocks until a writer opens it, perhaps for ever.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    const std::string text = absl::StrCat(name, ": cannot open: ", ::strerror(error));
    return error == EACCES ? absl::PermissionDeniedError(text) : absl::NotFoundError(text);
  }
  struct stat info = {};
  char magic[4] = {0, 0, 0, 0};
  char begin[kExampleFileBegin.size()] = {};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const ssize_t got = regular ? ::pread(fd, magic, sizeof(magic), 0) : 0;
  const Compression compression = CompressionOf({magic, static_cast<size_t>(std::max<ssize_t>(got, 0))});
  const bool is_examples = regular && ::pread(fd, begin, sizeof(begin), 0) == ssize_t{sizeof(begin)} &&
                           std::string_view(begin, sizeof(begin)) == kExampleFileBegin;
  if (regular) file.sample = SampleOf(fd, info.st_size, compression);
  ::close(fd);
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is a directory; name the files in it: \"", name, "/*\""));
  }
  if (!regular) {
    return absl::InvalidArgumentError(
        absl::StrCat(name,
                     ": is no regular file; data is read at many places at once and in "
                     "several passes, so a pipe or a device must be copied into a file first"));
  }
  file.bytes = info.st_size;
  if (pipe != nullptr) {
    file.sample = SampleBehind(*pipe, absl::StrCat(file.sample));
    return file;
  }
  file.compression = compression;
  if (is_examples) RETURN_IF_ERROR(LookAtExampleFile(&file));
  for (const Ending& ending : kEndings) {
    if (!absl::EndsWith(name, ending.ending) || file.compression == ending.compression) continue;
    if (file.bytes < ending.least) {
      return absl::DataLossError(
          absl::StrCat(name, ": cut: ", file.bytes, " bytes are no ", ending.name, " file; get the file again"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": is not ", ending.name, " though its name says so; rename it if it is plain"));
  }
  return file;
}

constexpr size_t kLongestListing = size_t{64} << 20;  // bytes: half a million files of a hundred

// Adds the files that a command lists for a pattern. Returns whether there is one.
absl::StatusOr<bool> List(const std::string& pattern, const Access& access, const std::string& field,
                          std::map<std::string, FoundFile>* found) {
  ASSIGN_OR_RETURN(const std::string listing, OutputOf({.command = CommandFor(access.list, pattern),
                                                        .name = absl::StrCat(field, " '", pattern, "'"),
                                                        .deadline = access.pipe->deadline},
                                                       kLongestListing));
  bool any = false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(listing, '\n', absl::SkipEmpty()))) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    int64_t bytes = 0;
    if (fields.size() < 2 || fields[0].empty() || !absl::SimpleAtoi(fields[1], &bytes) || bytes < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": a line of data.pipe_list for '", pattern,
                       "' must be a name, a tab, a number of bytes, and perhaps a tab and a version; got '",
                       line.substr(0, 200), "'"));
    }
    any = true;
    const std::string version = fields.size() > 2 ? fields[2] : "";
    (*found)[fields[0]] = {.name = fields[0],
                           .bytes = bytes,
                           .sample = SampleBehind(*access.pipe, absl::StrCat(bytes, " ", version)),
                           .version = version};
  }
  return any;
}

// Returns the file that a command has listed.
DataFile ListedFile(const FoundFile& found, const Access& access) {
  return {.path = found.name, .name = found.name, .bytes = found.bytes, .sample = found.sample, .pipe = access.pipe};
}

// Returns the files that a command lists for the patterns, sorted by name.
absl::StatusOr<std::vector<DataFile>> ListAll(const google::protobuf::RepeatedPtrField<std::string>& patterns,
                                              const Access& access, const std::string& field) {
  std::map<std::string, FoundFile> found;
  for (const std::string& pattern : patterns) {
    ASSIGN_OR_RETURN(const bool any, List(pattern, access, field, &found));
    if (any) continue;
    return absl::NotFoundError(
        absl::StrCat(field, ": the command of data.pipe_list lists no file for '", pattern, "'"));
  }
  std::vector<DataFile> files;
  for (const auto& [name, file] : found) files.push_back(ListedFile(file, access));
  return files;
}

// Returns the files of the patterns, sorted by name.
absl::StatusOr<std::vector<DataFile>> Find(const google::protobuf::RepeatedPtrField<std::string>& patterns,
                                           std::string_view directory, const std::string& field, const Access& access) {
  if (!access.list.empty()) return ListAll(patterns, access, field);
  std::set<std::pair<std::string, std::string>> found;  // name, path
  for (const std::string& pattern : patterns) {
    const std::string full = Join(directory, pattern);
    ASSIGN_OR_RETURN(const std::vector<std::string> paths, Matches(full));
    if (paths.empty()) {
      const bool remote = absl::StrContains(pattern, "://");
      return absl::NotFoundError(
          absl::StrCat(field, ": no file matches '", pattern, "' (looked for ", full, ")",
                       remote ? "; files elsewhere are found by data.pipe_list and read by data.pipe" : ""));
    }
    const size_t prefix = full.size() - pattern.size();
    for (const std::string& path : paths) found.emplace(path.substr(prefix), path);
  }
  std::vector<DataFile> files;
  int64_t bytes = 0;
  for (const auto& [name, path] : found) {
    ASSIGN_OR_RETURN(DataFile file, OpenFile(path, name, access.pipe));
    bytes += file.bytes;
    files.push_back(std::move(file));
  }
  if (bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", files.size() == 1 ? files[0].name : "every file", " is empty"));
  }
  return files;
}

// Returns the way to the files that `data` names. FailedPrecondition: by commands, which are not allowed.
absl::StatusOr<Access> AccessOf(const v1::Data& data) {
  Access access;
  if (data.pipe().empty()) return access;
  RETURN_IF_ERROR(PipesAllowed("data.pipe"));
  access.pipe = std::make_shared<FilePipe>(FilePipe{.command = data.pipe(),
                                                    .deadline = absl::Seconds(data.pipe_deadline_s()),
                                                    .form = ColumnTextFormOf(data),
                                                    .unfit = DialectUnfitForColumns(data)});
  access.list = data.pipe_list();
  return access;
}

// Sets what the reader of `data` says of the records of a file. `rules`: LineRulesOf(data).
absl::Status SetRecords(const v1::Data& data, const std::shared_ptr<const LineRules>& rules, DataFile* file) {
  if (file->examples != nullptr) return absl::OkStatus();
  file->tf_record = data.has_tf_record();
  file->rules = rules;
  if (data.partition().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(file->partitions, PartitionTexts(data.partition(), file->name));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DataSet> DataSet::Open(const v1::DataSource& source, std::string_view directory,
                                      std::string_view field) {
  return Open(v1::Data(), source, directory, field);
}

absl::StatusOr<DataSet> DataSet::Open(const v1::Data& data, const v1::DataSource& source, std::string_view directory,
                                      std::string_view field) {
  const std::string where(field);
  if (source.files_size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": no files; write files: \"data/train-*.tsv\""));
  }
  DataSet set;
  ASSIGN_OR_RETURN(const Access access, AccessOf(data));
  ASSIGN_OR_RETURN(set.files_, Find(source.files(), directory, where + ".files", access));
  set.where_ = source.where();
  set.where_path_ = where + ".where";
  const std::shared_ptr<const LineRules> rules = LineRulesOf(data);
  for (DataFile& file : set.files_) RETURN_IF_ERROR(SetRecords(data, rules, &file));
  if (!data.has_idx()) {
    if (source.labels_size() == 0) return set;
    return absl::InvalidArgumentError(absl::StrCat(where, ".labels: only data.idx has labels in files of their own"));
  }
  std::vector<DataFile> labels;
  if (source.labels_size() > 0) {
    ASSIGN_OR_RETURN(labels, Find(source.labels(), directory, where + ".labels", access));
    if (labels.size() != set.files_.size()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ".labels: are ", labels.size(), " files; ", where,
                                                     ".files are ", set.files_.size(), ", and each needs one"));
    }
  }
  for (size_t i = 0; i < set.files_.size(); ++i) {
    if (set.files_[i].examples != nullptr) continue;
    RETURN_IF_ERROR(LookAtIdx(data.idx().values(), labels.empty() ? nullptr : &labels[i], &set.files_[i]));
  }
  return set;
}

absl::StatusOr<std::vector<FoundFile>> DataSet::Look(const v1::Data& data, const v1::DataSource& source,
                                                     std::string_view directory, std::string_view field,
                                                     std::string_view after) {
  ASSIGN_OR_RETURN(const Access access, AccessOf(data));
  std::map<std::string, FoundFile> found;
  for (const std::string& pattern : source.files()) {
    if (!access.list.empty()) {
      RETURN_IF_ERROR(List(pattern, access, std::string(field), &found).status());
      continue;
    }
    const std::string full = Join(directory, pattern);
    ASSIGN_OR_RETURN(const std::vector<std::string> paths, Matches(full));
    for (const std::string& path : paths) {
      FoundFile file = {.name = path.substr(full.size() - pattern.size())};
      struct stat info = {};
      if (file.name <= after) {
        found[file.name] = std::move(file);
        continue;
      }
      // A file that has gone since is none; what cannot be read is found out when the file is opened.
      if (::stat(path.c_str(), &info) != 0) continue;
      file.bytes = info.st_size;
      file.version = absl::StrCat(info.st_ino, " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec);
      found[file.name] = std::move(file);
    }
  }
  std::vector<FoundFile> files;
  for (auto& [name, file] : found) files.push_back(std::move(file));
  return files;
}

absl::StatusOr<DataSet> DataSet::OpenFound(const v1::Data& data, const v1::DataSource& source,
                                           std::string_view directory, std::string_view field,
                                           const std::vector<FoundFile>& found) {
  CHECK(!data.has_idx());
  DataSet set;
  ASSIGN_OR_RETURN(const Access access, AccessOf(data));
  set.where_ = source.where();
  set.where_path_ = absl::StrCat(std::string(field), ".where");
  const std::shared_ptr<const LineRules> rules = LineRulesOf(data);
  for (const FoundFile& each : found) {
    DataFile file = ListedFile(each, access);
    if (access.list.empty()) {
      ASSIGN_OR_RETURN(file, OpenFile(Join(directory, each.name), each.name, access.pipe));
    }
    if (file.bytes != each.bytes || (each.sample != 0 && each.sample != file.sample)) {
      return absl::FailedPreconditionError(absl::StrCat(
          std::string(field), ": '", each.name, "' had ", each.bytes, " bytes when the chief took it, and has ",
          file.bytes, " here", file.bytes == each.bytes ? " with other contents" : "",
          ": give all trainers the same files, and change none that is there (data.follow)"));
    }
    RETURN_IF_ERROR(SetRecords(data, rules, &file));
    set.files_.push_back(std::move(file));
  }
  return set;
}

std::vector<Segment> DataSet::Stream(int stream, int streams, int scheme) const {
  return CutStream(files_, stream, streams, scheme);
}

std::string DataSet::Description() const {
  std::string text;
  const auto add = [&](const DataFile& file) {
    constexpr const char* kNames[] = {"", ", gzip", ", zstd"};
    // Examples have the values of partitions, whatever else a name is.
    uint64_t sample = file.sample;
    for (const std::string& value : file.partitions) sample = MixId(sample ^ StableHash(value));
    absl::StrAppend(&text, file.name, ": ", file.bytes, " bytes", kNames[static_cast<size_t>(file.compression)],
                    ", xxh3 ", absl::Hex(sample, absl::kZeroPad16), "\n");
  };
  for (const DataFile& file : files_) {
    add(file);
    if (file.idx != nullptr && file.idx->labels != nullptr) add(*file.idx->labels);
  }
  return text;
}

namespace {

// A line of a Description: the text behind the name, and the part of it before the sample.
struct DescribedFile {
  std::string_view name, what, size;
};

std::vector<DescribedFile> DescribedFiles(std::string_view text) {
  std::vector<DescribedFile> files;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = std::min(line.rfind(": "), line.size());
    DescribedFile file{.name = line.substr(0, colon), .what = line.substr(std::min(colon + 2, line.size()))};
    file.size = file.what.substr(0, file.what.rfind(", xxh3 "));
    files.push_back(file);
  }
  return files;
}

}  // namespace

std::string FirstDataDifference(std::string_view here, std::string_view there) {
  const std::vector<DescribedFile> ours = DescribedFiles(here), theirs = DescribedFiles(there);
  const auto quoted = [](const DescribedFile& file) { return absl::StrCat("'", std::string(file.name), "'"); };
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    const DescribedFile& a = ours[i];
    const DescribedFile& b = theirs[i];
    if (a.what == b.what) continue;
    // The names show a missing file rather than another version of a file.
    if (a.name != b.name && ours.size() != theirs.size()) {
      const bool more = ours.size() > theirs.size();
      return absl::StrCat(ours.size(), " files here, ", theirs.size(), " there; ", quoted(more ? a : b), " is only ",
                          more ? "here" : "there");
    }
    const std::string other = a.name == b.name ? "" : quoted(b) + " ";
    if (a.size == b.size) {
      return absl::StrCat(quoted(a), " here and ", other, "there have ", std::string(a.size),
                          " each and other contents");
    }
    return absl::StrCat(quoted(a), " has ", std::string(a.size), " here, ", other, std::string(b.size), " there");
  }
  if (ours.size() == theirs.size()) return "";
  const bool more = ours.size() > theirs.size();
  return absl::StrCat(ours.size(), " files here, ", theirs.size(), " there; ",
                      quoted(more ? ours[theirs.size()] : theirs[ours.size()]), " is only ", more ? "here" : "there");
}

}  // namespace weir
