#include "pserver/server/pull_answers.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"
#include "framework/wire/checksum.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"
#include "pserver/protocol/handshake.h"
#include "pserver/tables/sparse_table.h"

namespace weir {

namespace {

const ProfileName kCopyRows("copy rows for pulls"), kCopyBlocks("copy blocks for pulls");

// A caller's header is small; half a MiB is room for thousands of items beside a full payload.
constexpr size_t kMaxReplyPayload = kMaxMessageBytes - (size_t{1} << 19);

// A client's corrections fill an answer with far fewer calls.
constexpr int kMostCorrects = 4096;
// Bytes of the header of an answer that corrections may take.
constexpr size_t kCorrectionHeaderBytes = size_t{1} << 18;

// Number of floats that an item asks for, and number of those that share a scale.
size_t FloatsOf(const v1::PullItem& item) {
  return static_cast<size_t>(item.count()) * static_cast<size_t>(std::max(1, item.width()));
}
size_t GroupOf(const v1::PullItem& item) { return item.width() > 0 ? static_cast<size_t>(item.width()) : kDenseGroup; }

// Ids of an item that asks for rows and lies in the payload.
absl::Span<const int64_t> RowIds(const v1::PullItem& item, const Slice& payload) {
  return absl::MakeConstSpan(reinterpret_cast<const int64_t*>(payload.data + item.offset()),
                             static_cast<size_t>(item.count()));
}

size_t BytesOf(const v1::PullItem& item) { return EncodedBytes(item.format(), FloatsOf(item), GroupOf(item)); }

// Returns the size of the values of all items in an answer.
size_t ItemBytes(const v1::PullRequest& request) {
  size_t size = 0;
  for (const v1::PullItem& item : request.items()) size += AlignUp(BytesOf(item));
  return size;
}

// Returns the size of a correction in an answer, if all rows of the call have changed.
size_t CorrectionBytes(const v1::PullRequest& call) {
  size_t size = ItemBytes(call);
  for (const v1::PullItem& item : call.items()) {
    size += AlignUp(static_cast<size_t>(item.count()) * sizeof(uint32_t));
  }
  return size;
}

// Returns the bytes of a buffer, which keep it and the trainer's credit.
Slice Owned(const WireBuffer& buffer, size_t size, const std::shared_ptr<const void>& credit) {
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  return {buffer.data, size, std::make_shared<const Both>(buffer.owner, credit)};
}

absl::Status Wrong(const v1::PullItem& item, const std::string& fault) {
  return absl::InvalidArgumentError(absl::StrCat("pull of ", item.name().substr(0, 200), ": ", fault));
}

}  // namespace

bool IsOfReader(const v1::PullRequest& request) { return request.caller().trainer() == kReader; }

bool AsksForRows(const v1::PullRequest& request) {
  return !request.corrects().empty() || (request.items_size() > 0 && request.items(0).width() > 0);
}

Slices NotReady(int64_t version, const std::string& waiting_for) {
  v1::PullReply header;
  header.set_ready(false);
  header.set_version(version);
  header.set_waiting_for(waiting_for);
  header.set_checksum(Checksum({}));
  return EncodeFrame(header.SerializeAsString(), {});
}

PullAnswers::PullAnswers(Options options)
    : options_(std::move(options)), ahead_(std::make_unique<RowsAhead>(options_.ahead_room)) {}

size_t PullAnswers::MostBytes(const v1::PullRequest& request) const {
  size_t bytes = ItemBytes(request);
  for (const int64_t call : request.corrects()) {
    const std::shared_ptr<const RowsAhead::Pull> pull = ahead_->Find(request.caller(), request.version(), call);
    if (pull != nullptr) bytes += pull->most_bytes;
  }
  return bytes;
}

absl::Status PullAnswers::CheckReader(const v1::PullRequest& request) {
  if (request.version() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Pull: a reader asks for version ", request.version(), "; it gets the newest, and asks for 0"));
  }
  if (request.has_ahead_of() || request.has_ahead_call() || !request.corrects().empty()) {
    return absl::InvalidArgumentError("Pull: a reader has no steps to pull ahead of, and nothing to correct");
  }
  return absl::OkStatus();
}

absl::Status PullAnswers::CheckAhead(const v1::PullRequest& request) const {
  if (!request.has_ahead_of() && request.corrects().empty()) return absl::OkStatus();
  if (!options_.ahead) {
    return absl::InvalidArgumentError(
        "Pull: rows are pulled ahead of a step, or corrected, only in sync without async_tables");
  }
  if (request.corrects_size() > kMostCorrects) {
    return absl::InvalidArgumentError(
        absl::StrCat("Pull: corrects ", request.corrects_size(), " calls; at most ", kMostCorrects, " are possible"));
  }
  for (int i = 1; i < request.corrects_size(); ++i) {
    if (request.corrects(i) > request.corrects(i - 1)) continue;
    return absl::InvalidArgumentError(absl::StrCat("Pull: corrects call ", request.corrects(i), " after ",
                                                   request.corrects(i - 1), "; the calls must ascend"));
  }
  if (request.has_ahead_of() && !request.corrects().empty()) {
    return absl::InvalidArgumentError("Pull: a pull ahead of a step corrects no other");
  }
  if (request.has_ahead_of() && (request.ahead_of() != request.version() + 1 || request.ahead_call() <= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("Pull: call ", request.ahead_call(), " ahead of step ",
                                                   request.ahead_of(), " at version ", request.version(),
                                                   "; calls are positive, and the version is the step before"));
  }
  for (const v1::PullItem& item : request.items()) {
    if (item.width() == 0) return Wrong(item, "only rows are pulled ahead of a step, or beside corrections");
  }
  return absl::OkStatus();
}

absl::Status PullAnswers::CheckRows(const v1::PullItem& item, const Slice& payload, v1::WireFormat* format,
                                    uint64_t* floats) const {
  const ServerParams& params = *options_.params;
  const int table = params.FindTable(item.name());
  const int block = table >= 0 ? -1 : params.FindBlock(item.name());
  if (table < 0 && block < 0) {
    return Wrong(item, absl::StrCat("server ", options_.server_id, " has no such table or block"));
  }
  const int width = table >= 0 ? options_.params->table(table).width() : params.block(block).sparse_width;
  if (table >= 0) *format = params.wire_of_table(table).pull();
  if (width == 0) return Wrong(item, "the block is pulled whole; it has no rows to ask for");
  if (item.width() != width) {
    return Wrong(item, absl::StrCat("rows of ", item.width(), " floats; the table's have ", width));
  }
  if (item.offset() < 0 || item.offset() % static_cast<int64_t>(kAlignment) != 0 ||
      static_cast<uint64_t>(item.offset()) > payload.size ||
      *floats > (payload.size - static_cast<uint64_t>(item.offset())) / sizeof(int64_t)) {
    return Wrong(item, absl::StrCat(item.count(), " ids at offset ", item.offset(), " of a payload of ", payload.size,
                                    " bytes"));
  }
  *floats *= static_cast<uint64_t>(width);
  if (block < 0) return absl::OkStatus();
  const int64_t rows = params.block(block).rows;
  for (const int64_t id : RowIds(item, payload)) {
    if (id < 0 || id >= rows) return Wrong(item, absl::StrCat("row ", id, " of a block with ", rows, " rows"));
  }
  return absl::OkStatus();
}

absl::Status PullAnswers::CheckElements(const v1::PullItem& item) const {
  const int block = options_.params->FindBlock(item.name());
  if (block < 0) return Wrong(item, absl::StrCat("server ", options_.server_id, " has no such block"));
  const int64_t count = options_.params->block(block).count;
  if (item.begin() >= 0 && item.begin() <= count && item.count() <= count - item.begin()) return absl::OkStatus();
  return Wrong(item, absl::StrCat("elements [", item.begin(), ", ", item.begin(), " + ", item.count(),
                                  ") of a block of ", count));
}

absl::Status PullAnswers::Check(const v1::PullRequest& request, const Slice& payload) const {
  if (request.version() < 0 || request.version() > kMaxStep) {
    return absl::InvalidArgumentError(
        absl::StrCat("Pull: version ", request.version(), "; versions run from 0 to ", kMaxStep));
  }
  RETURN_IF_ERROR(IsOfReader(request) ? CheckReader(request) : CheckAhead(request));
  const uint64_t most = IsOfReader(request) ? std::min(kMaxReplyPayload, options_.reader_bytes) : kMaxReplyPayload;
  uint64_t total = 0;
  for (const v1::PullItem& item : request.items()) {
    if (item.count() < 0) return Wrong(item, absl::StrCat("count is ", item.count()));
    if (item.width() < 0) return Wrong(item, absl::StrCat("width is ", item.width()));
    v1::WireFormat format = options_.params->wire_of_blocks().pull();
    uint64_t floats = static_cast<uint64_t>(item.count());
    RETURN_IF_ERROR(item.width() > 0 ? CheckRows(item, payload, &format, &floats) : CheckElements(item));
    if (item.format() != format) {
      return Wrong(item, absl::StrCat("asked for as ", v1::WireFormat_Name(item.format()),
                                      "; by the plan it travels as ", v1::WireFormat_Name(format)));
    }
    // The values before they are encoded take memory, too.
    total += AlignUp(std::max(floats * sizeof(float), EncodedBytes(format, floats, GroupOf(item))));
    if (total > most) {
      return Wrong(item, absl::StrCat("the reply would have more than ", most, " bytes; ask in several calls"));
    }
  }
  return absl::OkStatus();
}

absl::Status PullAnswers::CopyItem(const v1::PullItem& item, const Slice& payload, int reader, float* out) const {
  ServerParams& params = *options_.params;
  if (item.width() == 0) {
    params.CopyBlock(params.FindBlock(item.name()), item.begin(), item.count(), out, reader);
    return absl::OkStatus();
  }
  const int table = params.FindTable(item.name());
  if (table < 0) {
    params.CopyRows(params.FindBlock(item.name()), RowIds(item, payload), out);
    return absl::OkStatus();
  }
  // Rows that one of our clients asks for at once are one thread's work: the next call is answered beside this one.
  ThreadPool* const pool = FloatsOf(item) * sizeof(float) > kRowBytesPerCall ? options_.pool : nullptr;
  // Rows come into being when their first update takes effect; until then they read as their initial values. So the
  // rows that exist at a version depend on no one's reading ahead.
  return params.table(table).Pull(RowIds(item, payload), /*create=*/false, out, pool);
}

absl::Status PullAnswers::AppendItems(const v1::PullRequest& request, const Slice& payload,
                                      const std::shared_ptr<const void>& credit, Slices* values) const {
  const size_t size = ItemBytes(request);
  if (size == 0) return absl::OkStatus();
  const WireBuffer buffer = options_.buffers->Get(size);
  size_t at = 0;
  for (const v1::PullItem& item : request.items()) {
    char* const out = buffer.data + at;
    const size_t floats = FloatsOf(item), bytes = BytesOf(item);
    const bool as_is = item.format() == v1::WIRE_FLOAT32;
    const WireBuffer exact = as_is ? WireBuffer() : options_.buffers->Get(floats * sizeof(float));
    float* const to = reinterpret_cast<float*>(as_is ? out : exact.data);
    RETURN_IF_ERROR(CopyItem(item, payload, request.caller().trainer(), to));
    if (!as_is) Encode(item.format(), to, floats, GroupOf(item), out);
    std::fill(out + bytes, out + AlignUp(bytes), '\0');
    at += AlignUp(bytes);
  }
  values->push_back(Owned(buffer, size, credit));
  return absl::OkStatus();
}

absl::Status PullAnswers::AppendCorrection(const RowsAhead::Pull& call, const std::shared_ptr<const void>& credit,
                                           v1::Correction* correction, Slices* values) const {
  ServerParams& params = *options_.params;
  struct Changed {
    std::vector<uint32_t> positions;
    std::vector<float> rows;
  };
  std::vector<Changed> changed(static_cast<size_t>(call.request.items_size()));
  size_t size = 0;
  for (size_t i = 0; i < changed.size(); ++i) {
    const v1::PullItem& item = call.request.items(static_cast<int>(i));
    const absl::Span<const int64_t> ids = RowIds(item, call.payload);
    auto& [positions, rows] = changed[i];
    if (const int table = params.FindTable(item.name()); table >= 0) {
      RETURN_IF_ERROR(params.table(table).PullChanged(ids, &positions, &rows));
    } else {
      params.PullChangedRows(params.FindBlock(item.name()), ids, &positions, &rows);
    }
    correction->add_rows(static_cast<int64_t>(positions.size()));
    size += AlignUp(positions.size() * sizeof(uint32_t));
    size += AlignUp(EncodedBytes(item.format(), rows.size(), GroupOf(item)));
  }
  if (size == 0) return absl::OkStatus();
  const WireBuffer buffer = options_.buffers->Get(size);
  char* out = buffer.data;
  const auto fill_up = [&out](size_t bytes) {
    std::fill(out + bytes, out + AlignUp(bytes), '\0');
    out += AlignUp(bytes);
  };
  for (size_t i = 0; i < changed.size(); ++i) {
    const v1::PullItem& item = call.request.items(static_cast<int>(i));
    const auto& [positions, rows] = changed[i];
    if (positions.empty()) continue;
    std::memcpy(out, positions.data(), positions.size() * sizeof(uint32_t));
    fill_up(positions.size() * sizeof(uint32_t));
    const size_t bytes = EncodedBytes(item.format(), rows.size(), GroupOf(item));
    if (item.format() == v1::WIRE_FLOAT32) {
      std::memcpy(out, rows.data(), bytes);
    } else {
      Encode(item.format(), rows.data(), rows.size(), GroupOf(item), out);
    }
    fill_up(bytes);
  }
  values->push_back(Owned(buffer, size, credit));
  return absl::OkStatus();
}

absl::Status PullAnswers::AppendCorrections(const v1::PullRequest& request, int64_t version,
                                            const std::shared_ptr<const void>& credit, v1::PullReply* header,
                                            Slices* values) const {
  size_t room = kMaxReplyPayload - ItemBytes(request), header_room = kCorrectionHeaderBytes;
  for (const int64_t call : request.corrects()) {
    v1::Correction* const correction = header->add_corrections();
    // Only the newest version's changes are known. No trainer waits for the answer of an older one.
    const std::shared_ptr<const RowsAhead::Pull> pull =
        version == request.version() ? ahead_->Find(request.caller(), version, call) : nullptr;
    // A number of rows takes 5 bytes at most.
    const size_t header_bytes = pull == nullptr ? 0 : 5 * static_cast<size_t>(pull->request.items_size());
    if (pull == nullptr || pull->most_bytes > room || header_bytes > header_room) {
      correction->set_forgotten(true);
      continue;
    }
    room -= pull->most_bytes;
    header_room -= header_bytes;
    RETURN_IF_ERROR(AppendCorrection(*pull, credit, correction, values));
  }
  return absl::OkStatus();
}

void PullAnswers::Remember(const v1::PullRequest& request, const Slice& payload) const {
  // Before the rows are read: what changes afterwards is recorded, or counts as changed.
  options_.params->WantChanges();
  // A copy, for the payload may be a small part of the message that it came in.
  ahead_->Remember({request, Slice::Own(std::string(payload.data, payload.size)), CorrectionBytes(request)});
}

void PullAnswers::Serve(const v1::PullRequest& request, const Slice& payload, const VersionInfo& info,
                        std::shared_ptr<const void> credit, const ReplyCallback& reply,
                        const HandledCallPtr& handled) const {
  ProfileSpan span(HandledCall::StepOf(handled), ProfileKind::kServe, AsksForRows(request) ? kCopyRows : kCopyBlocks);
  if (ProfileEvent* const event = span.event()) event->peer = request.caller().trainer();
  if (request.has_ahead_of() && info.version < request.ahead_of()) {
    Remember(request, payload);
  } else if (options_.ahead && !IsOfReader(request)) {
    ahead_->Pass(request.caller(), request.version());
  }
  Slices values;
  v1::PullReply header;
  absl::Status status = AppendItems(request, payload, credit, &values);
  if (status.ok()) status = AppendCorrections(request, info.version, credit, &header, &values);
  if (!status.ok()) return reply(status);
  credit.reset();
  header.set_ready(true);
  header.set_version(info.version);
  header.set_skipped(info.skipped);
  header.set_stop(info.stop);
  header.set_samples(info.samples);
  if (info.ended) header.set_ended(true);
  if (info.first_samples > 0) header.set_first_samples(info.first_samples);
  if (info.late_trainer >= 0) {
    header.set_late_trainer(info.late_trainer);
    header.set_late_s(absl::ToDoubleSeconds(info.late));
  }
  if (options_.checksums) header.set_checksum(Checksum(values));
  reply(EncodeFrame(header.SerializeAsString(), values));
}

}  // namespace weir
