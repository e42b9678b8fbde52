#include "pserver/protocol/wire_counters.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace weir {

WireCounters::WireCounters(std::string_view role, int id, Counters* counters) {
  const bool asks = role == "trainer";
  for (size_t m = 0; m < of_.size(); ++m) {
    const std::string method = absl::AsciiStrToLower(std::string(MethodName(static_cast<Method>(m))));
    const std::string prefix = absl::StrCat(std::string(role), ".", id, ".", method, ".");
    of_[m] = {.messages = counters->Get(prefix + "messages", "messages"),
              .requests = counters->Get(prefix + (asks ? "bytes_out" : "bytes_in"), "bytes"),
              .answers = counters->Get(prefix + (asks ? "bytes_in" : "bytes_out"), "bytes"),
              .times = counters->GetHistogram(prefix + "call_time", "microseconds")};
  }
}

void WireCounters::Request(Method method, size_t bytes) const {
  const Of& of = of_[static_cast<size_t>(method)];
  of.messages->Add(1);
  of.requests->Add(static_cast<int64_t>(bytes));
}

void WireCounters::Answer(Method method, size_t bytes) const {
  of_[static_cast<size_t>(method)].answers->Add(static_cast<int64_t>(bytes));
}

void WireCounters::Took(Method method, int64_t nanoseconds) const {
  of_[static_cast<size_t>(method)].times->Observe(nanoseconds / 1000);
}

}  // namespace weir
