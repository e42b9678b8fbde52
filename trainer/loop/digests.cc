#include "trainer/loop/digests.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/digest.h"
#include "framework/profile/profiler.h"

namespace weir {
namespace {

const ProfileName kDigest("digest");

// Appends a line per variable to the file `log`.
absl::Status AppendToLog(const std::string& log, const std::vector<std::string>& lines) {
  std::FILE* file = std::fopen(log.c_str(), "a");
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("--digest_log=", log));
  for (const std::string& line : lines) std::fprintf(file, "%s\n", line.c_str());
  if (std::fclose(file) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("--digest_log=", log));
  return absl::OkStatus();
}

}  // namespace

absl::Status Digests::Report(int64_t step, int64_t version) {
  const ProfileSpan span(step - 1, ProfileKind::kBorder, kDigest);
  std::vector<v1::ControlReply> replies;
  if (o_.trainer.replica != nullptr) {
    ASSIGN_OR_RETURN(replies, o_.trainer.replica->Digests(o_.trainer.client->member().Chief()));
  }
  if (!o_.trainer.IsChief()) return absl::OkStatus();
  v1::ControlRequest request;
  request.mutable_digest()->set_step(version);
  ASSIGN_OR_RETURN(std::vector<v1::ControlReply> of_servers, o_.trainer.client->member().Control(request));
  std::move(of_servers.begin(), of_servers.end(), std::back_inserter(replies));
  DigestTable table;
  for (const v1::ControlReply& reply : replies) {
    for (const v1::VariableDigest& v : reply.variables()) {
      VariableDigestSum sum{.values = v.values(), .state = v.state()};
      for (int i = 0; i < std::min(kDigestRanges, v.ranges_size()); ++i) sum.ranges[i] = v.ranges(i);
      table[v.name()] += sum;
    }
  }
  const VariableDigestSum total = Total(table);
  o_.progress->Say(
      absl::StrCat("digest step=", step, " values=", DigestHex(total.values), " state=", DigestHex(total.state)));
  if (o_.log.empty()) return absl::OkStatus();
  std::vector<std::string> lines;
  for (const auto& [name, sum] : table) lines.push_back(DigestLogLine(step, name, sum, ExtentOf(name)));
  const absl::Status logged = AppendToLog(o_.log, lines);
  return logged.ok() ? logged : o_.deferred->Defer(logged);
}

DigestExtent Digests::ExtentOf(const std::string& variable) const {
  DigestExtent extent;
  for (const v1::PlacedBlock& block : o_.plan->blocks()) {
    if (block.parameter() != variable) continue;
    extent.elements += block.element_count();
    extent.row = 1;
    for (int d = 1; d < block.dims_size(); ++d) extent.row *= block.dims(d);
  }
  for (const v1::PlacedTable& table : o_.plan->tables()) {
    if (table.name() == variable) extent.shards = table.logical_shards();
  }
  return extent;
}

}  // namespace weir
