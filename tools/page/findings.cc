#include "tools/page/findings.h"

#include <sys/stat.h>

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/watch/message_json.h"
#include "proto/importance.pb.h"
#include "tools/reporting/table_report.pb.h"

namespace weir {
namespace {

constexpr uint64_t kLargest = uint64_t{16} << 20;
constexpr char kImportance[] = "importance";

// Reads a file and makes JSON of its message again, so that the page gets the fields that it knows, whatever the file
// holds.
absl::StatusOr<std::string> ReadFinding(const std::string& path, const std::string& field) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kLargest));
  std::unique_ptr<google::protobuf::Message> message;
  if (field == kImportance) {
    message = std::make_unique<v1::Importance>();
  } else {
    message = std::make_unique<v1::CheckpointReport>();
  }
  RETURN_IF_ERROR(MessageFromJson(text, message.get()));
  return MessageAsJson(*message);
}

}  // namespace

Findings::Findings(std::string directory) : directory_(std::move(directory)) {
  MutexLock lock(&mu_);
  files_.resize(2);
  files_[0].field = kImportance;
  files_[1].field = "report";
}

void Findings::Look() {
  if (directory_.empty()) return;
  std::vector<File> files;
  {
    MutexLock lock(&mu_);
    files = files_;
  }
  bool changed = false;
  for (File& file : files) {
    const std::string path = absl::StrCat(directory_, "/", file.field, ".json");
    struct stat now;
    if (stat(path.c_str(), &now) != 0) continue;
    const int64_t changed_ns = int64_t{now.st_mtim.tv_sec} * 1'000'000'000 + now.st_mtim.tv_nsec;
    if (changed_ns == file.changed_ns && now.st_size == file.size) continue;
    file.changed_ns = changed_ns;
    file.size = now.st_size;
    absl::StatusOr<std::string> json = ReadFinding(path, file.field);
    if (!json.ok()) continue;
    file.json = *std::move(json);
    changed = true;
  }
  MutexLock lock(&mu_);
  files_ = std::move(files);
  if (changed) ++version_;
}

std::string Findings::Fields() const {
  MutexLock lock(&mu_);
  std::string fields;
  for (const File& file : files_) {
    if (file.json.empty()) continue;
    absl::StrAppend(&fields, fields.empty() ? "" : ",", "\"", file.field, "\":", file.json);
  }
  return fields;
}

int64_t Findings::version() const {
  MutexLock lock(&mu_);
  return version_;
}

}  // namespace weir
