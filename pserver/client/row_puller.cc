#include "pserver/client/row_puller.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"

namespace weir {

namespace {

using TableRows = RowSource::TableRows;

const ProfileName kRowsName("rows");

// Rows of one table in an answer.
struct RowsToRead {
  const TableRows* table = nullptr;
  const uint32_t* positions = nullptr;  // of the rows, in the table's ids
  size_t rows = 0;
  v1::WireFormat format = v1::WIRE_FLOAT32;
  size_t bytes = 0;
};

void ReadRows(const RowsToRead& to, PullCalls* calls, PayloadReader* reader) {
  const size_t width = static_cast<size_t>(to.table->width);
  const auto row = [&](size_t i) { return to.table->rows + to.positions[i] * width; };
  if (to.format == v1::WIRE_FLOAT32) {
    reader->ReadRows(to.rows, width * sizeof(float), row);
  } else {
    const WireBuffer values = calls->ReadDecoded(reader, to.format, to.rows * width, width);
    const float* const from = reinterpret_cast<const float*>(values.data);
    for (size_t i = 0; i < to.rows; ++i) std::memcpy(row(i), from + i * width, width * sizeof(float));
  }
  reader->Skip(AlignUp(to.bytes) - to.bytes);
}

}  // namespace

RowPuller::RowPuller(const BlockPlacement* placement, PullCalls* calls, bool in_turn, Waits::Thread thread)
    : placement_(*placement), calls_(*calls), in_turn_(in_turn), thread_(thread), orders_(placement) {}

void RowPuller::BeginStep(int64_t step, bool read_only) {
  read_only_ = read_only;
  if (!read_only) step_ = step;
}

std::vector<RowPuller::List> RowPuller::ListsOf(absl::Span<const TableRows> tables,
                                                absl::Span<const RowOrders::Asked> asked) const {
  std::vector<List> lists;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (asked[i].order == nullptr) {
      for (const FetchedParameter::Block& block : placement_.FindFetched(tables[i].table)->blocks) {
        lists.push_back({{&tables[i]}, asked[i], &block});
      }
      continue;
    }
    // Tables that are asked for the same ids are asked for together.
    const auto same =
        std::find_if(lists.begin(), lists.end(), [&](const List& list) { return list.asked.order == asked[i].order; });
    if (same != lists.end()) {
      same->tables.push_back(&tables[i]);
    } else {
      lists.push_back({{&tables[i]}, asked[i], nullptr});
    }
  }
  return lists;
}

RowPuller::Range RowPuller::RangeOf(const List& list, int server) {
  if (list.block == nullptr) return {&list, list.asked.order->begin(server), list.asked.order->begin(server + 1)};
  if (list.block->server != server) return {&list, 0, 0};
  const std::vector<int64_t>& ids = *list.tables[0]->ids;
  const std::vector<uint32_t>& positions = *list.asked.fetched;
  const auto place_of = [&](int64_t row) {
    return static_cast<size_t>(std::lower_bound(positions.begin(), positions.end(), row,
                                                [&](uint32_t position, int64_t r) { return ids[position] < r; }) -
                               positions.begin());
  };
  return {&list, place_of(list.block->begin), place_of(list.block->end)};
}

RowsToPull RowPuller::AskedOf(const Range& range) const {
  RowsToPull asked;
  asked.rows = range.end - range.begin;
  for (const TableRows* table : range.list->tables) {
    const FetchedParameter::Block* const block = range.list->block;
    if (block != nullptr) {
      asked.tensors.push_back({block->name, table->width, placement_.plan().wire().pull()});
    } else {
      asked.tensors.push_back({table->table, table->width, placement_.FindTable(table->table)->wire().pull()});
    }
  }
  return asked;
}

WireBuffer RowPuller::WriteIds(const PlannedPull& planned, absl::Span<const Range> ranges) const {
  WireBuffer buffer = calls_.buffers().Get(planned.id_bytes);
  for (const PlannedPull::Piece& piece : planned.pieces) {
    if (piece.tensor > 0) continue;  // has its ids in common with the piece before
    const Range& range = ranges[piece.asked];
    const TableRows& table = *range.list->tables[0];
    const size_t begin = range.begin + piece.begin;
    if (range.list->asked.order != nullptr && table.there == nullptr) {
      range.list->asked.order->Finish(begin, begin + piece.count);
    }
    const int64_t first = range.list->block == nullptr ? 0 : range.list->block->begin;
    const uint32_t* const positions = range.positions() + begin;
    const std::vector<int64_t>& from = *table.ids;
    char* const at = buffer.data + piece.ids_at;
    int64_t* const ids = reinterpret_cast<int64_t*>(at);
    for (size_t k = 0; k < piece.count; ++k) ids[k] = from[positions[k]] - first;
    const size_t bytes = piece.count * sizeof(int64_t);
    std::memset(at + bytes, 0, AlignUp(bytes) - bytes);
  }
  return buffer;
}

void RowPuller::PullFrom(int server, absl::Span<const List> lists, std::vector<CallPtr>* calls) {
  std::vector<Range> ranges;
  std::vector<RowsToPull> asked;
  for (const List& list : lists) {
    ranges.push_back(RangeOf(list, server));
    asked.push_back(AskedOf(ranges.back()));
  }
  const size_t most_bytes = calls_.answers_inside() ? kBytesPerCallInside : kRowBytesPerCall;
  const PullCalls::Reader reader = {thread_, in_turn_ && !read_only_ ? step_ : 0};
  for (PlannedPull& planned : PlanRowPulls(asked, most_bytes)) {
    const WireBuffer ids = WriteIds(planned, ranges);
    std::vector<RowsToRead> reads;
    for (const PlannedPull::Piece& piece : planned.pieces) {
      const Range& range = ranges[piece.asked];
      reads.push_back({range.list->tables[piece.tensor], range.positions() + range.begin + piece.begin, piece.count,
                       asked[piece.asked].tensors[piece.tensor].format, piece.bytes});
      rows_.fetch_add(static_cast<int64_t>(piece.count), std::memory_order_relaxed);
    }
    const CallPtr call = calls_.New(server, reader, &planned, {ids.Piece(0, planned.id_bytes)},
                                    [this, reads = std::move(reads)](const v1::PullReply&, PayloadReader* values) {
                                      for (const RowsToRead& to : reads) ReadRows(to, &calls_, values);
                                      return absl::OkStatus();
                                    });
    calls->push_back(call);
    calls_.Begin(call);
  }
}

absl::Status RowPuller::PullRows(absl::Span<const TableRows> tables) {
  // The first ids are on their way while the rest is sorted, unless answers come from inside the call.
  ASSIGN_OR_RETURN(
      const std::vector<RowOrders::Asked> asked,
      orders_.Order(tables, read_only_ ? -1 : step_, /*unfinished=*/!calls_.answers_inside(), &calls_.pool()));
  const std::vector<List> lists = ListsOf(tables, asked);
  std::vector<CallPtr> calls;
  for (int s = 0; s < calls_.settings().servers(); ++s) PullFrom(s, lists, &calls);
  return calls_.Wait(calls, absl::StrCat("rows of step ", step_, thread_ == Waits::kAhead ? ", ahead of it" : ""),
                     thread_, kRowsName);
}

}  // namespace weir
