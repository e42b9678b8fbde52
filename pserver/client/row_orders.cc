#include "pserver/client/row_orders.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {

namespace {

// Sets `order` to the positions of the ids in [0, rows), ascending by id; zeroes the rows of other ids.
void OrderRows(const RowSource::TableRows& table, int64_t rows, std::vector<uint32_t>* order) {
  const std::vector<int64_t>& ids = *table.ids;
  const size_t width = static_cast<size_t>(table.width);
  order->clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < rows) {
      order->push_back(static_cast<uint32_t>(i));
    } else {
      std::fill_n(table.rows + i * width, width, 0.0f);
    }
  }
  std::sort(order->begin(), order->end(), [&](uint32_t a, uint32_t b) { return ids[a] < ids[b]; });
}

}  // namespace

uint32_t RowOrders::ShardsOf(std::string_view table) const {
  return static_cast<uint32_t>(placement_.FindTable(table)->logical_shards());
}

absl::StatusOr<std::vector<RowOrders::TableIds*>> RowOrders::Record(absl::Span<const RowSource::TableRows> tables,
                                                                    int64_t step, std::vector<size_t>* first) {
  const int64_t call = ++calls_;
  std::vector<TableIds*> all;
  for (size_t i = 0; i < tables.size(); ++i) {
    const RowSource::TableRows& table = tables[i];
    if (placement_.FindFetched(table.table) != nullptr) {
      fetched_[table.table];
      all.push_back(nullptr);
      first->push_back(i);
      continue;
    }
    if (placement_.FindTable(table.table) == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("pull of table ", table.table, ", which the plan does not have"));
    }
    TableIds& ids = tables_[table.table];
    ids.ids = *table.ids;
    ids.step = step;
    ids.call = call;
    ids.same_as = nullptr;
    ids.unions.Reset();
    for (const size_t j : *first) {
      if (all[j] == nullptr || all[j] == &ids || ShardsOf(tables[j].table) != ShardsOf(table.table)) continue;
      if (tables[j].ids != table.ids && *tables[j].ids != *table.ids) continue;
      ids.same_as = all[j];
      break;
    }
    if (ids.same_as == nullptr) first->push_back(i);
    all.push_back(&ids);
  }
  return all;
}

absl::StatusOr<std::vector<RowOrders::Asked>> RowOrders::Order(absl::Span<const RowSource::TableRows> tables,
                                                               int64_t step, bool unfinished, ThreadPool* pool) {
  std::vector<size_t> first;
  ASSIGN_OR_RETURN(const std::vector<TableIds*> all, Record(tables, step, &first));
  // With several threads all of them sort, and the messages then have the whole order.
  const bool one = first.size() == 1 && all[first[0]] != nullptr;
  unfinished = unfinished && one && pool->threads() == 0 &&
               std::all_of(tables.begin(), tables.end(),
                           [](const RowSource::TableRows& table) { return table.there == nullptr; });
  pool->ParallelFor(static_cast<int64_t>(first.size()), [&](int64_t k) {
    const size_t i = first[static_cast<size_t>(k)];
    const RowSource::TableRows& table = tables[i];
    if (all[i] == nullptr) {
      return OrderRows(table, placement_.FindFetched(table.table)->rows, &fetched_.find(table.table)->second);
    }
    if (unfinished) {
      all[i]->order.Start(*table.ids, ShardsOf(table.table), placement_.plan().servers());
    } else {
      all[i]->order.Sort(*table.ids, ShardsOf(table.table), placement_.plan().servers(), pool);
    }
  });
  std::vector<Asked> asked(tables.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    if (all[i] == nullptr) {
      asked[i].fetched = &fetched_.find(tables[i].table)->second;
      continue;
    }
    asked[i].order = all[i]->same_as == nullptr ? &all[i]->order : &all[i]->same_as->order;
    if (tables[i].there == nullptr) continue;
    all[i]->asked.Select(*asked[i].order, tables[i].there);
    asked[i].order = &all[i]->asked;
  }
  return asked;
}

RowOrders::Known RowOrders::Find(std::string_view table, int64_t step) {
  const auto found = tables_.find(table);
  if (found == tables_.end() || found->second.step != step) return {};
  TableIds& ids = found->second;
  TableIds& own = ids.same_as == nullptr ? ids : *ids.same_as;
  if (own.call != ids.call) return {};  // the other table has been asked for other ids since
  return {ids.ids, &own.order, &own.unions};
}

}  // namespace weir
