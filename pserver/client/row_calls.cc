#include "pserver/client/row_calls.h"

#include <algorithm>
#include <cstring>

#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"

namespace weir {

using TableRows = RowSource::TableRows;

std::vector<RowList> RowCalls::ListsOf(absl::Span<const TableRows> tables,
                                       absl::Span<const RowOrders::Asked> asked) const {
  std::vector<RowList> lists;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (asked[i].order == nullptr) {
      for (const FetchedParameter::Block& block : placement_.FindFetched(tables[i].table)->blocks) {
        lists.push_back({{&tables[i]}, asked[i], &block});
      }
      continue;
    }
    // Tables that are asked for the same ids are asked for together.
    const auto same = std::find_if(lists.begin(), lists.end(),
                                   [&](const RowList& list) { return list.asked.order == asked[i].order; });
    if (same != lists.end()) {
      same->tables.push_back(&tables[i]);
    } else {
      lists.push_back({{&tables[i]}, asked[i], nullptr});
    }
  }
  return lists;
}

RowMessages::Range RowCalls::RangeOf(const RowList& list, int server) {
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

RowsToPull RowCalls::AskedOf(int server, const RowMessages::Range& range) const {
  RowsToPull asked;
  asked.rows = range.end - range.begin;
  for (const TableRows* table : range.list->tables) {
    const FetchedParameter::Block* const block = range.list->block;
    if (block != nullptr) {
      asked.tensors.push_back({block->name, table->width, placement_.PullFormat(server)});
    } else {
      asked.tensors.push_back(
          {table->table, table->width, placement_.PullFormat(*placement_.FindTable(table->table), server)});
    }
  }
  return asked;
}

size_t RowCalls::IdBytes(absl::Span<const RowList> lists) {
  size_t ids = 0;
  for (const RowList& list : lists) ids += list.size();
  return ids * sizeof(int64_t);
}

RowMessages RowCalls::PlanFor(int server, absl::Span<const RowList> lists) const {
  RowMessages plan;
  for (const RowList& list : lists) {
    plan.ranges.push_back(RangeOf(list, server));
    plan.asked.push_back(AskedOf(server, plan.ranges.back()));
  }
  plan.messages = PlanRowPulls(plan.asked, calls_.answers_inside() ? kBytesPerCallInside : kRowBytesPerCall);
  return plan;
}

Slices RowCalls::WriteIds(const RowMessages& plan, const PlannedPull& planned) const {
  const WireBuffer buffer = calls_.buffers().Get(planned.id_bytes);
  for (const PlannedPull::Piece& piece : planned.pieces) {
    if (piece.tensor > 0) continue;  // has its ids in common with the piece before
    const RowMessages::Range& range = plan.ranges[piece.asked];
    const TableRows& table = *range.list->tables[0];
    const size_t begin = range.begin + piece.begin;
    if (range.list->asked.order != nullptr) range.list->asked.order->Finish(begin, begin + piece.count);
    const int64_t first = range.list->block == nullptr ? 0 : range.list->block->begin;
    const uint32_t* const positions = range.list->positions() + begin;
    const std::vector<int64_t>& from = *table.ids;
    char* const at = buffer.data + piece.ids_at;
    int64_t* const ids = reinterpret_cast<int64_t*>(at);
    for (size_t k = 0; k < piece.count; ++k) ids[k] = from[positions[k]] - first;
    const size_t bytes = piece.count * sizeof(int64_t);
    std::memset(at + bytes, 0, AlignUp(bytes) - bytes);
  }
  return {buffer.Piece(0, planned.id_bytes)};
}

std::vector<RowsToRead> RowCalls::ReadsOf(const RowMessages& plan, const PlannedPull& planned) const {
  std::vector<RowsToRead> reads;
  for (const PlannedPull::Piece& piece : planned.pieces) {
    const RowMessages::Range& range = plan.ranges[piece.asked];
    reads.push_back({range.list->tables[piece.tensor], range.list->positions() + range.begin + piece.begin, piece.count,
                     plan.asked[piece.asked].tensors[piece.tensor].format, piece.bytes});
  }
  return reads;
}

void RowCalls::Read(const RowsToRead& to, PayloadReader* reader) const {
  const size_t width = static_cast<size_t>(to.table->width);
  const auto row = [&](size_t i) { return to.table->rows + to.positions[i] * width; };
  if (to.format == v1::WIRE_FLOAT32) {
    reader->ReadRows(to.rows, width * sizeof(float), row);
  } else {
    const WireBuffer values = calls_.ReadDecoded(reader, to.format, to.rows * width, width);
    const float* const from = reinterpret_cast<const float*>(values.data);
    for (size_t i = 0; i < to.rows; ++i) std::memcpy(row(i), from + i * width, width * sizeof(float));
  }
  reader->Skip(AlignUp(to.bytes) - to.bytes);
}

}  // namespace weir
