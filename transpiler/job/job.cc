#include "transpiler/job/job.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace weir {
std::string Job::Path(std::string_view path) const {
  const std::filesystem::path given(path);
  if (given.is_absolute() || directory.empty()) return std::string(path);
  return (std::filesystem::path(directory) / given).string();
}

absl::Status AtField(const Job& job, const absl::Status& error) {
  const std::string text(error.message());
  const size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.[]");
  if (error.ok() || end == std::string::npos || text.compare(end, 2, ": ") != 0) return error;
  // "data.tsv: ..." is no field.
  const std::string path = text.substr(0, end);
  const std::string top = path.substr(0, path.find('.'));
  const auto* const field = v1::JobConfig::descriptor()->FindFieldByName(top);
  const size_t next = std::min(path.find_first_of(".[", top.size() + 1), path.size());
  const bool known =
      field != nullptr && field->message_type() != nullptr && top.size() < path.size() &&
      field->message_type()->FindFieldByName(path.substr(top.size() + 1, next - top.size() - 1)) != nullptr;
  return known ? absl::Status(error.code(), absl::StrCat(job.positions.At(path), ": ", text)) : error;
}

std::map<std::string, std::vector<std::string>> RowFiles(const Job& job) {
  std::map<std::string, std::vector<std::string>> files;
  for (const v1::Table& table : job.config.table()) {
    for (const std::string& file : table.load()) files[table.name()].push_back(job.Path(file));
  }
  return files;
}

bool PromisesEqualBits(const v1::Distribute& distribute) { return distribute.sync() && distribute.reproducible(); }

int ServersOf(const v1::Distribute& distribute) {
  return distribute.servers() == 0 ? distribute.trainers() : distribute.servers();
}

}  // namespace weir
