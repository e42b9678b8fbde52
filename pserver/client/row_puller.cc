#include "pserver/client/row_puller.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {

namespace {

const ProfileName kRowsName("rows");

}  // namespace

RowPuller::RowPuller(const BlockPlacement* placement, PullCalls* calls, bool in_turn, Waits::Thread thread)
    : calls_(*calls), row_calls_(placement, calls), in_turn_(in_turn), thread_(thread), orders_(placement) {}

void RowPuller::BeginStep(int64_t step, bool read_only) {
  read_only_ = read_only;
  if (!read_only) step_ = step;
}

void RowPuller::PullFrom(int server, absl::Span<const RowList> lists, std::vector<CallPtr>* calls) {
  const PullCalls::Reader reader = {thread_, in_turn_ && !read_only_ ? step_ : 0};
  RowMessages plan = row_calls_.PlanFor(server, lists);
  for (PlannedPull& planned : plan.messages) {
    const Slices ids = row_calls_.WriteIds(plan, planned);
    std::vector<RowsToRead> reads = row_calls_.ReadsOf(plan, planned);
    for (const RowsToRead& read : reads) rows_.fetch_add(static_cast<int64_t>(read.rows), std::memory_order_relaxed);
    const CallPtr call = calls_.New(server, reader, &planned, ids,
                                    [this, reads = std::move(reads)](const v1::PullReply&, PayloadReader* values) {
                                      for (const RowsToRead& to : reads) row_calls_.Read(to, values);
                                      return absl::OkStatus();
                                    });
    calls->push_back(call);
    calls_.Begin(call);
  }
}

absl::Status RowPuller::PullRows(absl::Span<const RowSource::TableRows> tables) {
  // The first ids are on their way while the rest is sorted, unless answers come from inside the call.
  ASSIGN_OR_RETURN(
      const std::vector<RowOrders::Asked> asked,
      orders_.Order(tables, read_only_ ? -1 : step_, /*unfinished=*/!calls_.answers_inside(), &calls_.pool()));
  const std::vector<RowList> lists = row_calls_.ListsOf(tables, asked);
  const std::vector<CallPtr> calls =
      calls_.ForEachServer(row_calls_.IdBytes(lists),
                           [&](int server, std::vector<CallPtr>* of_server) { PullFrom(server, lists, of_server); });
  return calls_.Wait(calls, absl::StrCat("rows of step ", step_, thread_ == Waits::kAhead ? ", ahead of it" : ""),
                     thread_, kRowsName);
}

}  // namespace weir
