// Bytes between ranks in messages of bounded size.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_FLOWS_H_
#define WEIR_FRAMEWORK_COLLECTIVE_FLOWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>

#include "absl/status/status.h"
#include "framework/base/status_macros.h"
#include "framework/collective/operation.h"

namespace weir {

// Bytes that go from one rank to another in messages, of which a few are under way at a time: a receiver that is late
// holds its senders up, and keeps no more than those.
class Flows {
 public:
  struct Flow {
    int peer = 0;
    int phase = 0;
    bool sends = false;
    char* data = nullptr;
    int64_t bytes = 0;
    // Number of the first message: those of one phase between two ranks differ.
    int64_t first = 0;
    // If set, message m is sent once message m of that flow has come.
    const Flow* after = nullptr;
    // Messages before this one may begin.
    int64_t limit = std::numeric_limits<int64_t>::max();

    int64_t begun = 0, ended = 0;  // messages
    std::deque<Operation::Message> under_way;
  };
  Flows(Operation* operation, int64_t message_bytes) : operation_(*operation), message_bytes_(message_bytes) {}

  // The result is valid as long as this object.
  Flow* Send(int peer, int phase, const char* data, int64_t bytes, const Flow* after = nullptr, int64_t first = 0) {
    flows_.push_back({peer, phase, /*sends=*/true, const_cast<char*>(data), bytes, first, after});
    return &flows_.back();
  }
  Flow* Receive(int peer, int phase, char* data, int64_t bytes, int64_t first = 0) {
    flows_.push_back({peer, phase, /*sends=*/false, data, bytes, first});
    return &flows_.back();
  }
  // Returns the number of messages of so many bytes.
  int64_t Messages(int64_t bytes) const { return (bytes + message_bytes_ - 1) / message_bytes_; }

  // Begins as many messages as may be under way.
  void Begin() {
    for (Flow& flow : flows_) {
      while (flow.begun < Last(flow) && flow.begun < flow.ended + kUnderWay &&
             (flow.after == nullptr || flow.begun < flow.after->ended)) {
        const int64_t at = flow.begun * message_bytes_, number = flow.first + flow.begun;
        const auto bytes = static_cast<size_t>(std::min(message_bytes_, flow.bytes - at));
        flow.under_way.push_back(flow.sends ? operation_.Send(flow.peer, flow.phase, number, flow.data + at, bytes)
                                            : operation_.Receive(flow.peer, flow.phase, number, flow.data + at, bytes));
        ++flow.begun;
      }
    }
  }

  // Moves everything up to the limits. receives: returns when what is to be received has come.
  //
  // Waits for the message with the lowest number, and in the order of flows among those: both ends of it have begun it,
  // because they wait for none that could come later.
  absl::Status Run(bool receives = false) {
    while (true) {
      Begin();
      Flow* next = nullptr;
      bool open = false;
      for (Flow& flow : flows_) {
        open |= flow.ended < Last(flow) && !(receives && flow.sends);
        if (!flow.under_way.empty() && (next == nullptr || flow.ended < next->ended)) next = &flow;
      }
      if (!open) return absl::OkStatus();
      RETURN_IF_ERROR(operation_.Wait(&next->under_way.front()));
      next->under_way.pop_front();
      ++next->ended;
    }
  }

 private:
  // Messages of a flow to each rank that are under way at a time. 2 would do where both ends keep up.
  static constexpr int64_t kUnderWay = 4;
  int64_t Last(const Flow& flow) const { return std::min(flow.limit, Messages(flow.bytes)); }

  Operation& operation_;
  const int64_t message_bytes_;
  std::deque<Flow> flows_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_FLOWS_H_
