#include "pserver/host/shared_pulls.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/wire/checksum.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"

namespace weir {

namespace {

// Most bytes of ids or values in one message, and most calls that one pull corrects: the limits of a server.
constexpr size_t kMostPayload = kMaxMessageBytes - (size_t{1} << 19);
constexpr int kMostCorrects = 4096;
// Most bytes of a number of rows in the header of an answer.
constexpr size_t kMostCountBytes = 10;

size_t FloatsOf(const v1::PullItem& item) {
  return static_cast<size_t>(item.count()) * static_cast<size_t>(std::max(1, item.width()));
}
size_t GroupOf(const v1::PullItem& item) { return item.width() > 0 ? static_cast<size_t>(item.width()) : kDenseGroup; }

absl::Span<const int64_t> IdsOf(const v1::PullItem& item, const Slice& payload) {
  return absl::MakeConstSpan(reinterpret_cast<const int64_t*>(payload.data + item.offset()),
                             static_cast<size_t>(item.count()));
}

bool OfRows(const v1::PullRequest& request) {
  return !request.corrects().empty() || (request.items_size() > 0 && request.items(0).width() > 0);
}

// Version whose values a pull is for.
int64_t VersionOf(const v1::PullRequest& request) {
  return request.has_ahead_of() ? request.ahead_of() : request.version();
}

std::string KeyOf(const v1::PullRequest& request) {
  v1::PullRequest items;
  *items.mutable_items() = request.items();
  return items.SerializeAsString();
}

}  // namespace

// Rows of tensors that are copied into one payload.
class SharedPulls::RowCopies {
 public:
  // Adds `rows` of `width` floats each, behind their `places` in an item if there are any, both padded to a multiple of
  // 64 bytes.
  void Add(std::vector<uint32_t> places, std::vector<const float*> rows, size_t width) {
    if (!places.empty()) bytes_ += AlignUp(places.size() * sizeof(uint32_t));
    bytes_ += AlignUp(rows.size() * width * sizeof(float));
    pieces_.push_back({std::move(places), std::move(rows), width});
  }
  size_t bytes() const { return bytes_; }
  Slice Copy(BufferPool* buffers) const {
    const WireBuffer buffer = buffers->Get(bytes_);
    char* to = buffer.data;
    for (const Piece& piece : pieces_) {
      if (!piece.places.empty()) to = Put(piece.places.data(), piece.places.size() * sizeof(uint32_t), to);
      const size_t row = piece.width * sizeof(float), bytes = piece.rows.size() * row;
      for (size_t i = 0; i < piece.rows.size(); ++i) std::memcpy(to + i * row, piece.rows[i], row);
      std::memset(to + bytes, 0, AlignUp(bytes) - bytes);
      to += AlignUp(bytes);
    }
    return buffer.Piece(0, bytes_);
  }

 private:
  struct Piece {
    std::vector<uint32_t> places;
    std::vector<const float*> rows;
    size_t width = 0;
  };
  static char* Put(const void* from, size_t bytes, char* to) {
    std::memcpy(to, from, bytes);
    std::memset(to + bytes, 0, AlignUp(bytes) - bytes);
    return to + AlignUp(bytes);
  }

  std::vector<Piece> pieces_;
  size_t bytes_ = 0;
};

SharedPulls::SharedPulls(Options options)
    : options_(std::move(options)),
      wanted_(options_.counters->Get("host.rows_wanted", "rows")),
      fetched_(options_.counters->Get("host.rows_fetched", "rows")) {}

// --------------------------------------------------------------------------------------------------------------- wants

v1::WireFormat SharedPulls::FormatOf(const v1::PullItem& item) const {
  const v1::PlacedTable* const table = item.width() > 0 ? options_.placement->FindTable(item.name()) : nullptr;
  return table != nullptr ? table->wire().pull() : options_.placement->plan().wire().pull();
}

absl::Status SharedPulls::CheckItem(const v1::PullItem& item, bool of_rows, const Slice& payload) const {
  const BlockPlacement& placement = *options_.placement;
  const auto wrong = [&](const std::string& fault) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull of ", item.name().substr(0, 200), " through the relay: ", fault));
  };
  if ((item.width() > 0) != of_rows) return wrong("blocks and rows are pulled apart");
  if (item.format() != v1::WIRE_FLOAT32) {
    return wrong(absl::StrCat("asked for as ", v1::WireFormat_Name(item.format()), "; a relay answers in float32"));
  }
  if (item.count() < 0) return wrong(absl::StrCat("count is ", item.count()));
  if (!of_rows) {
    if (placement.BlockCount(item.name()).has_value()) return absl::OkStatus();
    return wrong("the plan has no such block");
  }
  const int width = placement.RowWidth(item.name());
  if (item.width() != width) {
    return wrong(absl::StrCat("rows of ", item.width(), " floats; by the plan they have ", width));
  }
  if (item.offset() >= 0 && item.offset() % static_cast<int64_t>(kAlignment) == 0 &&
      static_cast<uint64_t>(item.offset()) <= payload.size &&
      static_cast<uint64_t>(item.count()) <= (payload.size - static_cast<uint64_t>(item.offset())) / sizeof(int64_t)) {
    return absl::OkStatus();
  }
  return wrong(
      absl::StrCat(item.count(), " ids at offset ", item.offset(), " of a payload of ", payload.size, " bytes"));
}

absl::Status SharedPulls::Check(const v1::PullRequest& request, const Slice& payload) const {
  const bool ahead = request.has_ahead_of();
  if (ahead && (request.ahead_of() != request.version() + 1 || !request.corrects().empty() || !OfRows(request))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pull through the relay: ahead of step ", request.ahead_of(), " at version ", request.version(), ", with ",
        request.corrects_size(), " calls to correct; only rows are pulled ahead, at the version before, without any"));
  }
  if (request.corrects_size() > kMostCorrects) {
    return absl::InvalidArgumentError(absl::StrCat("pull through the relay: corrects ", request.corrects_size(),
                                                   " calls; at most ", kMostCorrects, " are possible"));
  }
  uint64_t ids = 0, values = 0;
  for (const v1::PullItem& item : request.items()) {
    RETURN_IF_ERROR(CheckItem(item, OfRows(request), payload));
    const uint64_t count = static_cast<uint64_t>(item.count());
    values += count > kMostPayload ? count : AlignUp(FloatsOf(item) * sizeof(float));
    if (item.width() > 0) ids += AlignUp(count * sizeof(int64_t));
    if (std::max(ids, values) <= kMostPayload) continue;
    return absl::InvalidArgumentError(absl::StrCat("pull of ", item.name().substr(0, 200),
                                                   " through the relay: the message would have more than ",
                                                   kMostPayload, " bytes; ask in several calls"));
  }
  return absl::OkStatus();
}

void SharedPulls::WaitFor(const WaitingPtr& waiting, const FetchPtr& fetch) {
  ++waiting->open;
  fetch->waiting.push_back(waiting);
}

void SharedPulls::WantBlocks(const WaitingPtr& waiting, Kept* kept, Actions* actions) {
  FetchPtr& fetch = kept->blocks[KeyOf(waiting->request)];
  if (fetch == nullptr) {
    fetch = std::make_shared<Fetch>();
    *fetch->request.mutable_items() = waiting->request.items();
    fetch->request.set_version(waiting->request.version());
    fetch->request.set_wait_s(waiting->request.wait_s());
    Begin(fetch, actions);
  }
  waiting->blocks = fetch;
  if (fetch->state == Fetch::kUnderWay) WaitFor(waiting, fetch);
}

void SharedPulls::WantRows(const WaitingPtr& waiting, const Slice& payload, Kept* kept, Actions* actions) {
  const v1::PullRequest& request = waiting->request;
  const auto fresh = std::make_shared<Fetch>();
  std::vector<std::vector<int64_t>> missing;
  for (const v1::PullItem& item : request.items()) {
    const absl::Span<const int64_t> ids = IdsOf(item, payload);
    auto& known = kept->rows[item.name()];
    ItemRows& rows = waiting->rows.emplace_back(ids.size());
    std::vector<int64_t> left;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto [place, added] = known.try_emplace(ids[i]);
      if (added) {
        place->second = {fresh, static_cast<uint32_t>(missing.size()), static_cast<uint32_t>(left.size())};
        left.push_back(ids[i]);
      }
      rows[i] = place->second;
    }
    wanted_->Add(item.count());
    fetched_->Add(static_cast<int64_t>(left.size()));
    if (left.empty()) continue;
    v1::PullItem* const wanted = fresh->request.add_items();
    wanted->set_name(item.name());
    wanted->set_width(item.width());
    wanted->set_count(static_cast<int64_t>(left.size()));
    missing.push_back(std::move(left));
  }
  for (const int64_t call : request.corrects()) {
    const auto found = kept->ahead.find({request.caller().trainer(), call});
    waiting->corrects.push_back(found == kept->ahead.end() ? nullptr : found->second);
  }
  if (!missing.empty()) {
    size_t bytes = 0;
    for (size_t i = 0; i < missing.size(); ++i) {
      v1::PullItem* const item = fresh->request.mutable_items(static_cast<int>(i));
      // Tables that are asked for the same ids have them in common.
      const bool same = i > 0 && missing[i] == missing[i - 1];
      item->set_offset(same ? fresh->request.items(static_cast<int>(i) - 1).offset() : static_cast<int64_t>(bytes));
      if (!same) bytes += AlignUp(missing[i].size() * sizeof(int64_t));
    }
    const WireBuffer ids = options_.buffers->Get(bytes);
    std::memset(ids.data, 0, bytes);
    for (size_t i = 0; i < missing.size(); ++i) {
      std::memcpy(ids.data + fresh->request.items(static_cast<int>(i)).offset(), missing[i].data(),
                  missing[i].size() * sizeof(int64_t));
    }
    fresh->ids = ids.Piece(0, bytes);
    fresh->request.set_version(request.version());
    fresh->request.set_wait_s(request.wait_s());
    if (request.has_ahead_of()) {
      fresh->request.set_ahead_of(request.ahead_of());
      fresh->request.set_ahead_call(++kept->last_call);
    }
    Begin(fresh, actions);
  }
  for (const FetchPtr& fetch : FetchesOf(*waiting)) {
    if (fetch->state == Fetch::kUnderWay) WaitFor(waiting, fetch);
  }
}

std::vector<SharedPulls::FetchPtr> SharedPulls::FetchesOf(const Waiting& waiting) {
  std::vector<FetchPtr> fetches;
  absl::flat_hash_set<const Fetch*> seen;
  const Fetch* last = nullptr;
  const auto add = [&](const std::vector<ItemRows>& items) {
    for (const ItemRows& rows : items) {
      for (const RowRef& ref : rows) {
        if (ref.fetch.get() == last) continue;
        last = ref.fetch.get();
        if (seen.insert(last).second) fetches.push_back(ref.fetch);
      }
    }
  };
  add(waiting.rows);
  for (const auto& remembered : waiting.corrects) {
    if (remembered != nullptr) add(remembered->rows);
  }
  return fetches;
}

void SharedPulls::Handle(v1::PullRequest request, const Slice& payload, ReplyCallback reply) {
  if (absl::Status check = Check(request, payload); !check.ok()) return reply(check);
  auto waiting = std::make_shared<Waiting>();
  waiting->request = std::move(request);
  waiting->reply = std::move(reply);
  Actions actions;
  {
    MutexLock lock(&mu_);
    // What is asked for at any version is nobody else's.
    const int64_t version = VersionOf(waiting->request);
    Kept alone;
    Kept& kept = version > 0 ? kept_[version] : alone;
    if (OfRows(waiting->request)) {
      WantRows(waiting, payload, &kept, &actions);
    } else {
      WantBlocks(waiting, &kept, &actions);
    }
    if (waiting->open == 0) TryAnswer(waiting, &actions);
  }
  for (const auto& action : actions) action();
}

// ------------------------------------------------------------------------------------------------------------- fetches

void SharedPulls::Begin(const FetchPtr& fetch, Actions* actions) {
  actions->push_back([this, fetch] {
    v1::PullRequest request = fetch->request;
    *request.mutable_caller() = options_.caller();
    for (v1::PullItem& item : *request.mutable_items()) item.set_format(FormatOf(item));
    Slices ids;
    if (fetch->ids.size > 0) ids.push_back(fetch->ids);
    options_.send(EncodeFrame(request.SerializeAsString(), ids),
                  [this, fetch](const absl::StatusOr<Slices>& answer) { Arrived(fetch, answer); });
  });
}

bool SharedPulls::Take(const Slice& payload, v1::WireFormat format, size_t n, size_t group, size_t* at,
                       Slice* values) const {
  const size_t bytes = EncodedBytes(format, n, group);
  if (payload.size - *at < AlignUp(bytes)) return false;
  if (format == v1::WIRE_FLOAT32) {
    *values = {payload.data + *at, AlignUp(bytes), payload.owner};
  } else {
    const WireBuffer decoded = options_.buffers->Get(AlignUp(n * sizeof(float)));
    std::memset(decoded.data + n * sizeof(float), 0, decoded.size - n * sizeof(float));
    Decode(format, payload.data + *at, n, group, reinterpret_cast<float*>(decoded.data));
    *values = decoded.Piece(0, decoded.size);
  }
  *at += AlignUp(bytes);
  return true;
}

absl::Status SharedPulls::ReadItems(const Fetch& fetch, const Slice& payload, size_t* at, Fetch* read) const {
  for (const v1::PullItem& item : fetch.request.items()) {
    Slice values;
    if (!Take(payload, FormatOf(item), FloatsOf(item), GroupOf(item), at, &values)) {
      return absl::DataLossError(absl::StrCat(payload.size, " bytes came, more were asked for"));
    }
    if (item.width() > 0) {
      std::vector<const float*>& rows = read->rows.emplace_back(static_cast<size_t>(item.count()));
      const float* row = reinterpret_cast<const float*>(values.data);
      for (size_t i = 0; i < rows.size(); ++i, row += item.width()) rows[i] = row;
    }
    read->values.push_back(std::move(values));
  }
  return absl::OkStatus();
}

absl::Status SharedPulls::ReadCorrections(const Fetch& fetch, const Slice& payload, size_t* at, Fetch* read) const {
  for (size_t c = 0; c < fetch.corrects.size(); ++c) {
    const v1::Correction& correction = read->header.corrections(static_cast<int>(c));
    if (correction.forgotten()) continue;
    const v1::PullRequest& corrected = fetch.corrects[c]->request;
    if (correction.rows_size() != corrected.items_size())
      return absl::DataLossError("a correction of another pull came");
    for (int i = 0; i < corrected.items_size(); ++i) {
      const v1::PullItem& item = corrected.items(i);
      const int64_t rows = correction.rows(i);
      if (rows == 0) continue;
      const size_t n = static_cast<size_t>(rows), places = AlignUp(n * sizeof(uint32_t));
      if (rows < 0 || rows > item.count() || payload.size - *at < places) {
        return absl::DataLossError(absl::StrCat("a correction of ", rows, " rows came for ", item.count()));
      }
      const char* const indices = payload.data + *at;
      *at += places;
      Slice values;
      const size_t width = static_cast<size_t>(item.width());
      if (!Take(payload, FormatOf(item), n * width, width, at, &values)) {
        return absl::DataLossError("a correction ends beyond its message");
      }
      for (size_t k = 0; k < n; ++k) {
        uint32_t row = 0;
        std::memcpy(&row, indices + k * sizeof(row), sizeof(row));
        if (row >= item.count()) return absl::DataLossError(absl::StrCat("a correction of row ", row, " came"));
        read->fixes.push_back(
            {c, static_cast<size_t>(i), row, reinterpret_cast<const float*>(values.data) + k * width});
      }
      read->kept.push_back(std::move(values));
    }
  }
  return absl::OkStatus();
}

absl::Status SharedPulls::Read(const Fetch& fetch, const Slices& answer, Fetch* read) const {
  ASSIGN_OR_RETURN(const Frame frame, DecodeFrame(answer));
  if (!read->header.ParseFromString(frame.header)) return absl::DataLossError("no PullReply");
  if (!read->header.ready()) return absl::OkStatus();
  uint64_t checksum = 0;
  const Slice payload = options_.checksums ? Contiguous(frame.payload, options_.buffers, &checksum)
                                           : Contiguous(frame.payload, options_.buffers);
  if (options_.checksums && checksum != read->header.checksum()) {
    return absl::DataLossError("the payload's checksum does not match");
  }
  size_t at = 0;
  RETURN_IF_ERROR(ReadItems(fetch, payload, &at, read));
  if (!fetch.request.corrects().empty()) {
    if (read->header.corrections_size() != static_cast<int>(fetch.corrects.size())) {
      return absl::DataLossError("another number of corrections came than was asked for");
    }
    RETURN_IF_ERROR(ReadCorrections(fetch, payload, &at, read));
  }
  return at == payload.size ? absl::OkStatus()
                            : absl::DataLossError(absl::StrCat(payload.size, " bytes came, ", at, " were asked for"));
}

void SharedPulls::Arrived(const FetchPtr& fetch, const absl::StatusOr<Slices>& answer) {
  // Nobody changes the request, and what it corrects, while it is under way.
  Fetch read;
  const absl::Status status = answer.ok() ? Read(*fetch, *answer, &read) : answer.status();
  const bool ready = status.ok() && read.header.ready();
  Actions actions;
  {
    MutexLock lock(&mu_);
    const std::vector<WaitingPtr> waiting = std::exchange(fetch->waiting, {});
    if (ready) {
      fetch->state = Fetch::kHere;
      fetch->version = read.header.version();
      fetch->values = std::move(read.values);
      fetch->rows = std::move(read.rows);
      fetch->fixes = std::move(read.fixes);
      fetch->kept = std::move(read.kept);
      fetch->header = std::move(read.header);
      if (!fetch->corrects.empty()) {
        fetch->waiting = waiting;  // for those that have to be fetched again
        Correct(fetch, &actions);
        fetch->waiting.clear();
      }
      if (fetch->request.version() > 0 && !fetch->request.has_ahead_of()) Pass(fetch->request.version());
    } else {
      fetch->state = Fetch::kGone;
      Drop(fetch);
    }
    for (const WaitingPtr& each : waiting) {
      if (!status.ok()) {
        each->trouble = status;
      } else if (!ready && each->trouble.ok()) {
        each->trouble = read.header;
      }
      if (--each->open == 0) TryAnswer(each, &actions);
    }
  }
  for (const auto& action : actions) action();
}

void SharedPulls::Drop(const FetchPtr& fetch) {
  for (const FetchPtr& corrected : fetch->corrects) {
    if (corrected->correction == fetch) corrected->correction = nullptr;
  }
  fetch->corrects.clear();
  const auto kept = kept_.find(VersionOf(fetch->request));
  if (kept == kept_.end()) return;
  std::erase_if(kept->second.blocks, [&](const auto& block) { return block.second == fetch; });
  for (const v1::PullItem& item : fetch->request.items()) {
    const auto rows = kept->second.rows.find(item.name());
    if (item.width() == 0 || rows == kept->second.rows.end()) continue;
    for (const int64_t id : IdsOf(item, fetch->ids)) {
      const auto found = rows->second.find(id);
      if (found != rows->second.end() && found->second.fetch == fetch) rows->second.erase(found);
    }
  }
}

void SharedPulls::Pass(int64_t version) { kept_.erase(kept_.begin(), kept_.lower_bound(version)); }

// --------------------------------------------------------------------------------------------------------- corrections

bool SharedPulls::MayChange(const Fetch& fetch, int64_t version) {
  return fetch.request.has_ahead_of() && fetch.version < version;
}

void SharedPulls::WantFinal(const WaitingPtr& waiting, Actions* actions) {
  const int64_t version = waiting->request.version();
  std::vector<FetchPtr> fetches;
  for (const FetchPtr& fetch : FetchesOf(*waiting)) {
    if (MayChange(*fetch, version)) fetches.push_back(fetch);
  }
  // The calls of a correction ascend.
  std::sort(fetches.begin(), fetches.end(),
            [](const FetchPtr& a, const FetchPtr& b) { return a->request.ahead_call() < b->request.ahead_call(); });
  FetchPtr correction;
  size_t bytes = 0;
  for (const FetchPtr& fetch : fetches) {
    if (fetch->correction != nullptr) {
      if (fetch->correction != correction) WaitFor(waiting, fetch->correction);
      continue;
    }
    size_t most = 0;
    for (const v1::PullItem& item : fetch->request.items()) most += AlignUp(FloatsOf(item) * sizeof(float));
    if (correction == nullptr || bytes + most > kBytesPerCall) {
      correction = std::make_shared<Fetch>();
      correction->request.set_version(version);
      correction->request.set_wait_s(waiting->request.wait_s());
      bytes = 0;
      Begin(correction, actions);
      WaitFor(waiting, correction);
    }
    bytes += most;
    correction->request.add_corrects(fetch->request.ahead_call());
    correction->corrects.push_back(fetch);
    fetch->correction = correction;
  }
}

void SharedPulls::Correct(const FetchPtr& fetch, Actions* actions) {
  const int64_t version = fetch->request.version();
  const auto mark = [](Fetch* of, size_t item, size_t row, const float* values) {
    if (of->changed.empty()) of->changed.resize(of->rows.size());
    if (of->changed[item].empty()) of->changed[item].resize(of->rows[item].size());
    of->changed[item][row] = 1;
    of->rows[item][row] = values;
  };
  const std::vector<FetchPtr> corrects = std::exchange(fetch->corrects, {});
  if (fetch->request.corrects().empty()) {
    // All rows of a pull that the server had forgotten.
    for (size_t i = 0; i < fetch->rows.size(); ++i) {
      for (size_t r = 0; r < fetch->rows[i].size(); ++r) mark(corrects[0].get(), i, r, fetch->rows[i][r]);
    }
    corrects[0]->version = version;
    return;
  }
  for (const Fetch::Fix& fix : fetch->fixes) mark(corrects[fix.of].get(), fix.item, fix.row, fix.values);
  for (size_t c = 0; c < corrects.size(); ++c) {
    if (!fetch->header.corrections(static_cast<int>(c)).forgotten()) {
      corrects[c]->version = version;
      continue;
    }
    const auto again = std::make_shared<Fetch>();
    *again->request.mutable_items() = corrects[c]->request.items();
    again->request.set_version(version);
    again->request.set_wait_s(fetch->request.wait_s());
    again->ids = corrects[c]->ids;
    again->corrects.push_back(corrects[c]);
    corrects[c]->correction = again;
    for (const WaitingPtr& waiting : fetch->waiting) WaitFor(waiting, again);
    Begin(again, actions);
  }
}

// ------------------------------------------------------------------------------------------------------------- answers

Slices SharedPulls::Encode(v1::PullReply header, const Slices& payload) const {
  header.clear_checksum();
  if (options_.checksums) header.set_checksum(Checksum(payload));
  return EncodeFrame(header.SerializeAsString(), payload);
}

void SharedPulls::TryAnswer(const WaitingPtr& waiting, Actions* actions) {
  if (!waiting->trouble.ok() || !waiting->trouble->ready()) {
    actions->push_back([this, waiting] {
      waiting->reply(waiting->trouble.ok() ? absl::StatusOr<Slices>(Encode(*waiting->trouble, {}))
                                           : waiting->trouble.status());
    });
    return;
  }
  if (waiting->blocks != nullptr) return AnswerBlocks(waiting, actions);
  if (!waiting->request.has_ahead_of()) WantFinal(waiting, actions);
  if (waiting->open == 0) AnswerRows(waiting, actions);
}

void SharedPulls::AnswerBlocks(const WaitingPtr& waiting, Actions* actions) {
  Slices payload;
  for (const Slice& values : waiting->blocks->values) {
    if (values.size > 0) payload.push_back(values);
  }
  v1::PullReply header = waiting->blocks->header;
  header.clear_corrections();
  actions->push_back([this, waiting, header = std::move(header), payload = std::move(payload)] {
    waiting->reply(Encode(header, payload));
  });
}

std::vector<const float*> SharedPulls::ValuesOf(const ItemRows& rows) {
  std::vector<const float*> values;
  values.reserve(rows.size());
  for (const RowRef& ref : rows) values.push_back(ref.fetch->rows[ref.item][ref.row]);
  return values;
}

void SharedPulls::AddCorrection(const Remembered* remembered, v1::PullReply* header, RowCopies* copies) {
  v1::Correction* const correction = header->add_corrections();
  if (remembered == nullptr) return correction->set_forgotten(true);
  struct Changed {
    std::vector<uint32_t> places;
    ItemRows rows;
    size_t width = 0;
  };
  std::vector<Changed> items;
  size_t bytes = copies->bytes() + header->ByteSizeLong();
  for (size_t i = 0; i < remembered->rows.size(); ++i) {
    Changed& changed = items.emplace_back();
    changed.width = static_cast<size_t>(remembered->request.items(static_cast<int>(i)).width());
    for (size_t r = 0; r < remembered->rows[i].size(); ++r) {
      const RowRef& ref = remembered->rows[i][r];
      const std::vector<std::vector<uint8_t>>& of_fetch = ref.fetch->changed;
      if (of_fetch.empty() || of_fetch[ref.item].empty() || of_fetch[ref.item][ref.row] == 0) continue;
      changed.places.push_back(static_cast<uint32_t>(r));
      changed.rows.push_back(ref);
    }
    const size_t n = changed.rows.size();
    bytes += AlignUp(n * sizeof(uint32_t)) + AlignUp(n * changed.width * sizeof(float)) + kMostCountBytes;
  }
  // The trainer pulls what has no room here again.
  if (bytes > kMostPayload) return correction->set_forgotten(true);
  for (Changed& changed : items) {
    correction->add_rows(static_cast<int64_t>(changed.rows.size()));
    if (!changed.rows.empty()) copies->Add(std::move(changed.places), ValuesOf(changed.rows), changed.width);
  }
}

void SharedPulls::AnswerRows(const WaitingPtr& waiting, Actions* actions) {
  const v1::PullRequest& request = waiting->request;
  RowCopies copies;
  v1::PullReply header;
  for (int i = 0; i < request.items_size(); ++i) {
    copies.Add({}, ValuesOf(waiting->rows[static_cast<size_t>(i)]), static_cast<size_t>(request.items(i).width()));
  }
  for (const auto& remembered : waiting->corrects) AddCorrection(remembered.get(), &header, &copies);
  const int64_t wanted = VersionOf(request);
  int64_t version = wanted;
  for (const FetchPtr& fetch : FetchesOf(*waiting)) {
    // Of any version, or before the one that it is for.
    if (wanted == 0) version = fetch->version;
    if (MayChange(*fetch, wanted)) version = request.version();
  }
  header.set_version(version);
  if (request.has_ahead_of() && version < request.ahead_of()) {
    auto remembered = std::make_shared<Remembered>();
    remembered->request = request;
    remembered->rows = waiting->rows;
    kept_[request.ahead_of()].ahead[{request.caller().trainer(), request.ahead_call()}] = std::move(remembered);
  }
  actions->push_back([this, waiting, header = std::move(header), copies = std::move(copies)] {
    waiting->reply(Encode(header, {copies.Copy(options_.buffers)}));
  });
}

}  // namespace weir
