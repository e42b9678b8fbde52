// Rows of a step of sync, pulled while the step before is still being computed, with the bits of the step.
//
// The step before changes some of them later. So the ids that this trainer itself has in the step before are left out
// (they certainly change), and the others are pulled as they are; the servers remember them. A second pull waits at the
// servers for the version of the step. It brings the rows that were left out, and those of the others that the step
// before has changed, whoever changed them. docs/consistency.md, "Rows ahead of their step".
#ifndef WEIR_PSERVER_CLIENT_AHEAD_PULLER_H_
#define WEIR_PSERVER_CLIENT_AHEAD_PULLER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/counters.h"
#include "framework/runtime/param_channel.h"
#include "framework/wire/payload_reader.h"
#include "framework/wire/pull_plan.h"
#include "framework/wire/slices.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/id_order.h"
#include "pserver/client/pull_calls.h"
#include "pserver/client/row_calls.h"
#include "pserver/client/row_orders.h"
#include "pserver/member/calls.h"

namespace weir {

// Not thread-safe.
class AheadPuller {
 public:
  // Borrows all. Puts the ids into `orders`. Counts rows in `counters`: "prefetch.ahead", those pulled ahead;
  // "prefetch.corrected", those of them that had changed.
  AheadPuller(const BlockPlacement* placement, PullCalls* calls, RowOrders* orders, Counters* counters);

  // Pulls the rows for step `step`; returns when they are those of the step. Errors as RowSource::PullRows. Requires:
  // the ids of the tables live until the step has been pushed.
  absl::Status Pull(int64_t step, absl::Span<const RowSource::TableRows> tables);

  // Returns the number of rows pulled so far. Thread-safe.
  int64_t rows() const { return rows_; }

 private:
  // A call ahead of the step.
  struct Made {
    int server = 0;
    int64_t number = 0;   // PullRequest.ahead_call
    PlannedPull planned;  // as it was sent
    Slices ids;
    std::vector<RowsToRead> reads;
    // Values from the answers to the pull and to the one that corrects it:
    int64_t version = -1;
    bool forgotten = false;
  };
  using MadePtr = std::shared_ptr<Made>;

  // The ids of a list that are pulled ahead, and those that are left since the step before has them.
  struct Cut {
    std::optional<RowOrders::Asked> ahead, left;
  };
  Cut CutOf(const RowList& list);
  // Returns what is pulled ahead; the rest goes to left_.
  std::vector<RowList> Split(absl::Span<const RowList> lists);
  // Remembers the ids of the lists, for the Split of the next step.
  void Remember(absl::Span<const RowList> lists);
  // Returns the positions that are not skipped, in memory of parts_.
  RowOrders::Asked Select(const RowOrders::Asked& all, const std::vector<uint8_t>& skip);
  // Makes the calls ahead of the step, to all servers.
  std::vector<CallPtr> PullAhead(absl::Span<const RowList> lists);
  // Issue the calls to one server: those ahead of the step, numbered in `of_server`, and those at its version. May be
  // called for several servers at once.
  void PullFrom(int server, RowMessages* plan, absl::Span<const MadePtr> of_server, std::vector<CallPtr>* calls);
  void FinishFrom(int server, std::vector<CallPtr>* calls);
  // Returns the calls to one server that need a correction, in groups for one message each.
  std::vector<std::vector<MadePtr>> Groups(int server) const;
  // Returns the size of corrections in an answer. DataLoss: they do not fit the calls.
  static absl::StatusOr<size_t> CorrectionBytes(absl::Span<const MadePtr> group, const v1::PullReply& reply);
  absl::Status ReadCorrections(absl::Span<const MadePtr> group, const v1::PullReply& reply, PayloadReader* reader);
  // Pulls the rows of forgotten calls again.
  absl::Status PullForgotten();

  PullCalls& calls_;
  const RowCalls row_calls_;
  Counter* const ahead_;
  Counter* const corrected_;
  RowOrders& orders_;
  int64_t step_ = -1;
  int64_t last_call_ = 0;
  // State of the step that is being pulled.
  std::vector<RowList> left_;  // not pulled yet
  std::vector<MadePtr> made_;
  // Orders of the ids of cut lists; the first used_parts_ are in use.
  struct Part {
    IdOrder order;                  // of tables
    std::vector<uint32_t> fetched;  // of fetched parameters
  };
  std::vector<std::unique_ptr<Part>> parts_;
  size_t used_parts_ = 0;
  // Ids of the step before, by table, ascending: of a table their MixIds, of a fetched parameter its rows.
  std::map<std::string, std::shared_ptr<const std::vector<uint64_t>>> before_;
  std::atomic<int64_t> rows_{0};  // atomic: read by any thread, for counters alone
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_AHEAD_PULLER_H_
