#include "framework/collective/collective_counters.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace weir {

namespace {

Counter* Get(Counters* counters, std::string_view name, const char* what, const char* unit) {
  return counters->Get(absl::StrCat(std::string(name), ".collective.", what), unit);
}

}  // namespace

CollectiveCounters::CollectiveCounters(std::string_view name, Counters* counters)
    : messages_(Get(counters, name, "messages", "messages")),
      bytes_out_(Get(counters, name, "bytes_out", "bytes")),
      bytes_in_(Get(counters, name, "bytes_in", "bytes")) {}

void CollectiveCounters::Sent(size_t bytes) const {
  messages_->Add(1);
  bytes_out_->Add(static_cast<int64_t>(bytes));
}

void CollectiveCounters::Received(size_t bytes) const { bytes_in_->Add(static_cast<int64_t>(bytes)); }

}  // namespace weir
