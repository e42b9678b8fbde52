#include "framework/collective/whole_run.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"

namespace weir {

namespace {

// framework/profile/profile_table.cc knows it.
const ProfileName kWholeBeginName("others begin");

bool Has(uint64_t present, size_t segment) { return (present >> segment & 1) != 0; }

}  // namespace

WholeRun::WholeRun(Operation* operation, Options options)
    : operation_(*operation), options_(std::move(options)), element_bytes_(DTypeSize(options_.dtype)) {}

absl::Status WholeRun::Send() {
  std::vector<std::string_view> present;
  for (const LaneAddend& addend : options_.addends) {
    const char* values = static_cast<const char*>(addend.values);
    for (size_t s = 0; s < options_.segments.size(); values += Bytes(options_.segments[s++])) {
      if (Has(addend.present, s)) present.emplace_back(values, Bytes(options_.segments[s]));
    }
  }
  RETURN_IF_ERROR(operation_.SendAttached(present));
  operation_.AskForHeaders();
  return absl::OkStatus();
}

absl::Status WholeRun::Finish() {
  std::vector<v1::CollectiveHeader> headers;
  {
    const ProfileSpan span(ProfiledStep::current(), ProfileKind::kExchange, kWholeBeginName);
    RETURN_IF_ERROR(operation_.ReceiveHeaders(&headers));
  }
  absl::StatusOr<AddendNodes> all = AddendNodesOf(headers, options_.segments.size(), options_.lanes);
  if (!all.ok()) return operation_.Fail(all.status());
  all_ = *std::move(all);
  if (options_.reduction == Reduction::kAverage) {
    RETURN_IF_ERROR(operation_.Fail(CheckDivisor(operation_.header(), all_.present, all_.samples)));
  }
  return operation_.Fail(Add());
}

absl::StatusOr<std::vector<std::vector<const char*>>> WholeRun::Arrived() const {
  std::vector<std::string_view> rest;  // of the bytes of each rank
  for (int r = 0; r < operation_.size(); ++r) rest.push_back(operation_.attached(r));
  std::vector<std::vector<const char*>> values;
  bool right = true;
  for (const AddendNode& node : all_.nodes) {
    std::vector<const char*>& of_node = values.emplace_back(options_.segments.size(), nullptr);
    std::string_view& from = rest[static_cast<size_t>(node.rank)];
    for (size_t s = 0; s < options_.segments.size(); ++s) {
      const size_t bytes = Has(node.present, s) ? Bytes(options_.segments[s]) : 0;
      right = right && bytes <= from.size();
      if (!right || !Has(node.present, s)) continue;
      of_node[s] = from.data();
      from.remove_prefix(bytes);
    }
  }
  for (size_t r = 0; r < rest.size(); ++r) right = right && rest[r].empty();
  if (right) return values;
  return absl::DataLossError(absl::StrCat(DescribeOperation(operation_.header()),
                                          ": the addends that a rank has sent are not those of its header"));
}

absl::Status WholeRun::Add() {
  ASSIGN_OR_RETURN(const auto values, Arrived());
  TreeReducer reducer(options_.reduction, options_.dtype, options_.lanes);
  char* out = options_.out;
  for (size_t s = 0; s < options_.segments.size(); out += Bytes(options_.segments[s++])) {
    std::vector<LaneAddend> addends;
    for (size_t n = 0; n < values.size(); ++n) {
      if (values[n][s] != nullptr) addends.push_back({.lanes = all_.nodes[n].lanes, .values = values[n][s]});
    }
    if (!addends.empty() && options_.segments[s] > 0) {
      reducer.Reduce(addends, all_.samples, options_.segments[s], out);
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
