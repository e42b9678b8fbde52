#include "pserver/client/ahead_puller.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"

namespace weir {

namespace {

using TableRows = RowSource::TableRows;

const ProfileName kAheadName("rows ahead"), kFinishName("rows left and corrected");

// Returns the number of ids in a list, and the key of the i-th, by which they ascend.
size_t SizeOf(const RowOrders::Asked& asked) {
  return asked.order != nullptr ? asked.order->size() : asked.fetched->size();
}
uint64_t KeyAt(const RowList& list, size_t i) {
  const uint64_t id = static_cast<uint64_t>((*list.tables[0]->ids)[list.positions()[i]]);
  return list.asked.order != nullptr ? MixId(id) : id;
}

}  // namespace

AheadPuller::AheadPuller(const BlockPlacement* placement, PullCalls* calls, RowOrders* orders, Counters* counters)
    : calls_(*calls),
      row_calls_(placement, calls),
      ahead_(counters->Get("prefetch.ahead", "rows")),
      corrected_(counters->Get("prefetch.corrected", "rows")),
      orders_(*orders) {}

RowOrders::Asked AheadPuller::Select(const RowOrders::Asked& all, const std::vector<uint8_t>& skip) {
  if (used_parts_ == parts_.size()) parts_.push_back(std::make_unique<Part>());
  Part& part = *parts_[used_parts_++];
  if (all.order != nullptr) {
    part.order.Select(*all.order, skip.data());
    return {.order = &part.order};
  }
  part.fetched.clear();
  for (const uint32_t position : *all.fetched) {
    if (skip[position] == 0) part.fetched.push_back(position);
  }
  return {.fetched = &part.fetched};
}

AheadPuller::Cut AheadPuller::CutOf(const RowList& list) {
  const auto before = before_.find(list.tables[0]->table);
  if (before == before_.end()) return {.ahead = list.asked};
  // Both ascend.
  const std::vector<uint64_t>& known = *before->second;
  std::vector<uint8_t> changes(list.tables[0]->ids->size());
  auto at = known.begin();
  for (size_t i = 0; i < SizeOf(list.asked); ++i) {
    const uint64_t key = KeyAt(list, i);
    while (at != known.end() && *at < key) ++at;
    changes[list.positions()[i]] = at != known.end() && *at == key ? 1 : 0;
  }
  Cut cut{.ahead = Select(list.asked, changes)};
  for (uint8_t& change : changes) change = static_cast<uint8_t>(1 - change);
  cut.left = Select(list.asked, changes);
  return cut;
}

std::vector<RowList> AheadPuller::Split(absl::Span<const RowList> lists) {
  std::vector<RowList> ahead;
  const auto add = [](RowList list, const std::optional<RowOrders::Asked>& asked, std::vector<RowList>* to) {
    if (!asked.has_value() || SizeOf(*asked) == 0) return;
    list.asked = *asked;
    to->push_back(std::move(list));
  };
  const RowList* last = nullptr;
  Cut cut;
  for (const RowList& list : lists) {
    // The blocks of a fetched parameter have one list of ids in common.
    if (last == nullptr || list.asked.fetched == nullptr || list.asked.fetched != last->asked.fetched) {
      cut = CutOf(list);
    }
    last = &list;
    add(list, cut.ahead, &ahead);
    add(list, cut.left, &left_);
  }
  return ahead;
}

void AheadPuller::Remember(absl::Span<const RowList> lists) {
  before_.clear();
  for (const RowList& list : lists) {
    std::shared_ptr<const std::vector<uint64_t>>& first = before_[list.tables[0]->table];
    if (first != nullptr) continue;
    auto keys = std::make_shared<std::vector<uint64_t>>(SizeOf(list.asked));
    for (size_t i = 0; i < keys->size(); ++i) (*keys)[i] = KeyAt(list, i);
    first = std::move(keys);
    for (const TableRows* table : list.tables) before_[table->table] = before_[list.tables[0]->table];
  }
}

absl::Status AheadPuller::Pull(int64_t step, absl::Span<const TableRows> tables) {
  // If steps were pulled in another way meanwhile, the rows of the step before are unknown.
  if (step != step_ + 1) before_.clear();
  step_ = step;
  left_.clear();
  made_.clear();
  used_parts_ = 0;
  ASSIGN_OR_RETURN(const std::vector<RowOrders::Asked> asked,
                   orders_.Order(tables, step, /*unfinished=*/false, &calls_.pool()));
  const std::vector<RowList> lists = row_calls_.ListsOf(tables, asked);
  const std::vector<RowList> ahead = Split(lists);
  Remember(lists);
  const std::string what = absl::StrCat("rows of step ", step, ", ahead of it");
  RETURN_IF_ERROR(calls_.Wait(PullAhead(ahead), what, Waits::kAhead, kAheadName));
  const std::vector<CallPtr> calls = calls_.ForEachServer(
      RowCalls::IdBytes(left_), [this](int server, std::vector<CallPtr>* of_server) { FinishFrom(server, of_server); });
  RETURN_IF_ERROR(calls_.Wait(calls, what, Waits::kAhead, kFinishName));
  return PullForgotten();
}

std::vector<CallPtr> AheadPuller::PullAhead(absl::Span<const RowList> lists) {
  // Calls are numbered in order of servers, whichever is written first.
  std::vector<RowMessages> plans;
  std::vector<std::vector<MadePtr>> by_server;
  for (int s = 0; s < calls_.settings().servers(); ++s) {
    plans.push_back(row_calls_.PlanFor(s, lists));
    std::vector<MadePtr>& of_server = by_server.emplace_back();
    for (size_t m = 0; m < plans.back().messages.size(); ++m) {
      of_server.push_back(std::make_shared<Made>());
      of_server.back()->server = s;
      of_server.back()->number = ++last_call_;
    }
    made_.insert(made_.end(), of_server.begin(), of_server.end());
  }
  return calls_.ForEachServer(RowCalls::IdBytes(lists), [&](int server, std::vector<CallPtr>* calls) {
    const size_t s = static_cast<size_t>(server);
    PullFrom(server, &plans[s], by_server[s], calls);
  });
}

void AheadPuller::PullFrom(int server, RowMessages* plan, absl::Span<const MadePtr> of_server,
                           std::vector<CallPtr>* calls) {
  for (size_t m = 0; m < of_server.size(); ++m) {
    PlannedPull& planned = plan->messages[m];
    const MadePtr& made = of_server[m];
    made->ids = row_calls_.WriteIds(*plan, planned);
    made->reads = row_calls_.ReadsOf(*plan, planned);
    made->planned = planned;
    int64_t rows = 0;
    for (const RowsToRead& read : made->reads) rows += static_cast<int64_t>(read.rows);
    rows_.fetch_add(rows, std::memory_order_relaxed);
    ahead_->Add(rows);
    planned.request.set_ahead_of(step_);
    planned.request.set_ahead_call(made->number);
    const PullCalls::Reader reader = {Waits::kAhead, step_ - 1};
    const CallPtr call = calls_.New(server, reader, &planned, made->ids,
                                    [this, made](const v1::PullReply& reply, PayloadReader* values) {
                                      made->version = reply.version();
                                      for (const RowsToRead& to : made->reads) row_calls_.Read(to, values);
                                      return absl::OkStatus();
                                    });
    calls->push_back(call);
    calls_.Begin(call);
  }
}

std::vector<std::vector<AheadPuller::MadePtr>> AheadPuller::Groups(int server) const {
  std::vector<std::vector<MadePtr>> groups;
  size_t bytes = 0;
  for (const MadePtr& made : made_) {
    if (made->server != server || made->version >= step_) continue;
    // Count as if all rows had changed.
    const size_t most = made->planned.answer_bytes;
    if (groups.empty() || bytes + most > kBytesPerCall) {
      groups.emplace_back();
      bytes = 0;
    }
    bytes += most;
    groups.back().push_back(made);
  }
  return groups;
}

absl::StatusOr<size_t> AheadPuller::CorrectionBytes(absl::Span<const MadePtr> group, const v1::PullReply& reply) {
  if (static_cast<size_t>(reply.corrections_size()) != group.size()) {
    return absl::DataLossError(
        absl::StrCat(reply.corrections_size(), " corrections came, ", group.size(), " were asked for"));
  }
  size_t bytes = 0;
  for (size_t c = 0; c < group.size(); ++c) {
    const v1::Correction& correction = reply.corrections(static_cast<int>(c));
    if (correction.forgotten()) continue;
    const std::vector<RowsToRead>& reads = group[c]->reads;
    if (static_cast<size_t>(correction.rows_size()) != reads.size()) {
      return absl::DataLossError(
          absl::StrCat("a correction of ", correction.rows_size(), " items came for a pull of ", reads.size()));
    }
    for (size_t i = 0; i < reads.size(); ++i) {
      const int64_t rows = correction.rows(static_cast<int>(i));
      if (rows < 0 || static_cast<uint64_t>(rows) > reads[i].rows) {
        return absl::DataLossError(absl::StrCat("a correction of ", rows, " rows came for ", reads[i].rows));
      }
      const size_t n = static_cast<size_t>(rows), width = static_cast<size_t>(reads[i].table->width);
      if (n > 0) bytes += AlignUp(n * sizeof(uint32_t)) + AlignUp(EncodedBytes(reads[i].format, n * width, width));
    }
  }
  return bytes;
}

absl::Status AheadPuller::ReadCorrections(absl::Span<const MadePtr> group, const v1::PullReply& reply,
                                          PayloadReader* reader) {
  if (group.empty()) return absl::OkStatus();
  struct Changed {
    const RowsToRead* read = nullptr;
    std::vector<uint32_t> rows;
    WireBuffer values;
  };
  std::vector<Changed> all;
  for (size_t c = 0; c < group.size(); ++c) {
    const v1::Correction& correction = reply.corrections(static_cast<int>(c));
    group[c]->forgotten = correction.forgotten();
    if (correction.forgotten()) continue;
    for (size_t i = 0; i < group[c]->reads.size(); ++i) {
      const RowsToRead& read = group[c]->reads[i];
      const size_t n = static_cast<size_t>(correction.rows(static_cast<int>(i)));
      const size_t width = static_cast<size_t>(read.table->width);
      if (n == 0) continue;
      Changed changed{.read = &read, .rows = std::vector<uint32_t>(n)};
      const size_t places = n * sizeof(uint32_t), bytes = EncodedBytes(read.format, n * width, width);
      reader->Read(changed.rows.data(), places);
      reader->Skip(AlignUp(places) - places);
      changed.values = calls_.ReadDecoded(reader, read.format, n * width, width);
      reader->Skip(AlignUp(bytes) - bytes);
      all.push_back(std::move(changed));
    }
  }
  // Before a row is written: one in the wrong place would not be written again by a repeated pull.
  if (calls_.settings().transport->checks_payloads() && reader->Checksum() != reply.checksum()) {
    return absl::DataLossError("the payload's checksum does not match");
  }
  for (const Changed& changed : all) {
    for (const uint32_t row : changed.rows) {
      if (row < changed.read->rows) continue;
      return absl::DataLossError(
          absl::StrCat("a correction of row ", row, " came for a pull of ", changed.read->rows, " rows"));
    }
  }
  for (const Changed& changed : all) {
    const size_t width = static_cast<size_t>(changed.read->table->width);
    const float* from = reinterpret_cast<const float*>(changed.values.data);
    for (const uint32_t row : changed.rows) {
      std::memcpy(changed.read->table->rows + changed.read->positions[row] * width, from, width * sizeof(float));
      from += width;
    }
    rows_.fetch_add(static_cast<int64_t>(changed.rows.size()), std::memory_order_relaxed);
    corrected_->Add(static_cast<int64_t>(changed.rows.size()));
  }
  return absl::OkStatus();
}

void AheadPuller::FinishFrom(int server, std::vector<CallPtr>* calls) {
  RowMessages plan = row_calls_.PlanFor(server, left_);
  const std::vector<std::vector<MadePtr>> groups = Groups(server);
  // Each message has some of the rows that were left and some of the corrections.
  for (size_t m = 0; m < std::max(plan.messages.size(), groups.size()); ++m) {
    PlannedPull planned;
    Slices ids;
    std::vector<RowsToRead> reads;
    if (m < plan.messages.size()) {
      planned = std::move(plan.messages[m]);
      ids = row_calls_.WriteIds(plan, planned);
      reads = row_calls_.ReadsOf(plan, planned);
      for (const RowsToRead& read : reads) rows_.fetch_add(static_cast<int64_t>(read.rows), std::memory_order_relaxed);
    }
    const std::vector<MadePtr> group = m < groups.size() ? groups[m] : std::vector<MadePtr>();
    for (const MadePtr& made : group) planned.request.add_corrects(made->number);
    const CallPtr call = calls_.New(
        server, {Waits::kAhead, step_}, &planned, ids,
        [this, reads = std::move(reads), group](const v1::PullReply& reply, PayloadReader* values) -> absl::Status {
          for (const RowsToRead& to : reads) row_calls_.Read(to, values);
          return ReadCorrections(group, reply, values);
        },
        [group](const v1::PullReply& reply) { return CorrectionBytes(group, reply); });
    calls->push_back(call);
    calls_.Begin(call);
  }
}

absl::Status AheadPuller::PullForgotten() {
  std::vector<CallPtr> calls;
  for (const MadePtr& made : made_) {
    if (!made->forgotten) continue;
    const CallPtr call = calls_.New(made->server, {Waits::kAhead, step_}, &made->planned, made->ids,
                                    [this, made](const v1::PullReply&, PayloadReader* values) {
                                      for (const RowsToRead& to : made->reads) row_calls_.Read(to, values);
                                      return absl::OkStatus();
                                    });
    for (const RowsToRead& read : made->reads) {
      rows_.fetch_add(static_cast<int64_t>(read.rows), std::memory_order_relaxed);
      corrected_->Add(static_cast<int64_t>(read.rows));
    }
    calls.push_back(call);
    calls_.Begin(call);
  }
  if (calls.empty()) return absl::OkStatus();
  return calls_.Wait(calls, absl::StrCat("rows of step ", step_, ", ahead of it"), Waits::kAhead, kFinishName);
}

}  // namespace weir
