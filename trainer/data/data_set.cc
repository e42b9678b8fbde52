#include "trainer/data/data_set.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {
namespace {

std::string Join(std::string_view directory, const std::string& path) {
  if (path.starts_with('/') || directory.empty()) return path;
  return absl::StrCat(std::string(directory), "/", path);
}

// Matches of a pattern. A pattern without wildcards matches itself if it is there.
absl::StatusOr<std::vector<std::string>> Matches(const std::string& pattern) {
  glob_t found = {};
  errno = 0;
  const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  const int error = errno;
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (result == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  // A directory that is not there holds no match, no more than an empty one.
  if (result == GLOB_ABORTED && error != ENOENT) {
    return absl::PermissionDeniedError(absl::StrCat("cannot read a directory of '", pattern, "'"));
  }
  if (result == GLOB_NOSPACE) return absl::ResourceExhaustedError(absl::StrCat("no memory to expand '", pattern, "'"));
  return paths;
}

absl::StatusOr<DataFile> Look(const std::string& path, const std::string& name) {
  DataFile file{.path = path, .name = name};
  // Without O_NONBLOCK a pipe is opened only when somebody writes into it: perhaps never.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const std::string text = absl::StrCat(name, ": cannot open: ", ::strerror(errno));
    return errno == EACCES ? absl::PermissionDeniedError(text) : absl::NotFoundError(text);
  }
  struct stat info = {};
  unsigned char magic[2] = {0, 0};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const ssize_t got = regular ? ::pread(fd, magic, sizeof(magic), 0) : 0;
  ::close(fd);
  if (!regular) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is no regular file; data is read at many places at once and in "
                                                   "several passes, so a pipe or a device must be copied into a file first"));
  }
  file.bytes = info.st_size;
  file.gzip = got == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
  if (!file.gzip && absl::EndsWith(name, ".gz")) {
    if (file.bytes < 2) {
      return absl::DataLossError(absl::StrCat(name, ": cut: ", file.bytes, " bytes are no gzip file; get the file again"));
    }
    return absl::InvalidArgumentError(absl::StrCat(name, ": is not gzip though its name says so; rename it if it is plain text"));
  }
  return file;
}

}  // namespace

absl::StatusOr<DataSet> DataSet::Open(const v1::DataSource& source, std::string_view directory, std::string_view field) {
  const std::string where(field);
  if (source.files_size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": no files; write files: \"data/train-*.tsv\""));
  }
  std::set<std::pair<std::string, std::string>> files;  // name, path
  for (const std::string& pattern : source.files()) {
    const std::string full = Join(directory, pattern);
    ASSIGN_OR_RETURN(const std::vector<std::string> paths, Matches(full));
    if (paths.empty()) {
      return absl::NotFoundError(absl::StrCat(where, ".files: no file matches '", pattern, "' (looked for ", full, ")"));
    }
    const size_t prefix = full.size() - pattern.size();
    for (const std::string& path : paths) files.emplace(path.substr(prefix), path);
  }
  DataSet set;
  int64_t bytes = 0;
  for (const auto& [name, path] : files) {
    ASSIGN_OR_RETURN(DataFile file, Look(path, name));
    bytes += file.bytes;
    set.files_.push_back(std::move(file));
  }
  if (bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(where, ".files: ", set.files_.size() == 1 ? set.files_[0].name : "every file",
                                                   " is empty"));
  }
  return set;
}

std::vector<Segment> DataSet::Stream(int stream, int streams) const {
  CHECK(stream >= 0 && stream < streams) << stream << " of " << streams;
  int64_t plain_bytes = 0;
  int64_t compressed = 0;
  for (const DataFile& file : files_) {
    plain_bytes += file.gzip ? 0 : file.bytes;
    compressed += file.gzip;
  }
  const auto cut = [&](int s) { return static_cast<int64_t>(static_cast<__int128>(plain_bytes) * s / streams); };
  const int64_t begin = cut(stream);
  const int64_t end = cut(stream + 1);
  std::vector<Segment> segments;
  int64_t base = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].gzip) continue;
    const int64_t from = std::max<int64_t>(begin - base, 0);
    const int64_t to = std::min(end - base, files_[i].bytes);
    if (from < to) segments.push_back({.file = static_cast<int64_t>(i), .begin = from, .end = to});
    base += files_[i].bytes;
  }
  int64_t place = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (!files_[i].gzip) continue;
    if (compressed < streams) {
      segments.push_back({.file = static_cast<int64_t>(i), .modulus = streams, .remainder = stream});
    } else if (place % streams == stream) {
      segments.push_back({.file = static_cast<int64_t>(i)});
    }
    ++place;
  }
  return segments;
}

std::string DataSet::Description() const {
  std::string text;
  for (const DataFile& file : files_) absl::StrAppend(&text, file.name, ": ", file.bytes, " bytes", file.gzip ? ", gzip\n" : "\n");
  return text;
}

}  // namespace weir
