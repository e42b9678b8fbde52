#include "pserver/server/server_core_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/wire/checksum.h"
#include "framework/wire/codecs.h"
#include "framework/wire/transfer.h"

namespace weir {

namespace {

const ProfileName kRowsPull("Pull rows"), kBlocksPull("Pull blocks"), kCopyRows("copy rows for pulls"),
    kCopyBlocks("copy blocks for pulls"), kVersionWait("its turn"), kRoomWait("unread answers");

bool AsksForRows(const v1::PullRequest& request) { return request.items_size() > 0 && request.items(0).width() > 0; }

// A caller's header is small; half a MiB is room for thousands of items beside a full payload.
constexpr size_t kMaxReplyPayload = kMaxMessageBytes - (size_t{1} << 19);

// Floats that an item asks for, and those that have a scale in common.
size_t FloatsOf(const v1::PullItem& item) {
  return static_cast<size_t>(item.count()) * static_cast<size_t>(std::max(1, item.width()));
}
size_t GroupOf(const v1::PullItem& item) { return item.width() > 0 ? static_cast<size_t>(item.width()) : kDenseGroup; }

// Of a request that CheckPull has seen.
size_t ReplyBytes(const v1::PullRequest& request) {
  size_t size = 0;
  for (const v1::PullItem& item : request.items())
    size += AlignUp(EncodedBytes(item.format(), FloatsOf(item), GroupOf(item)));
  return size;
}

}  // namespace

bool ServerCoreImpl::PullReady(const v1::PullRequest& request) const {
  if (gate_ != nullptr) return gate_->MayBegin(request.caller().trainer(), request.version());
  const bool rows_only = std::all_of(request.items().begin(), request.items().end(),
                                     [](const v1::PullItem& item) { return item.width() > 0; });
  if (async_tables_ && rows_only && !request.items().empty()) return true;
  // In sync nobody reads while a step takes effect.
  return version_.version >= request.version() && !(sync_ && applies_ > 0);
}

void ServerCoreImpl::NoteBegun(const v1::PullRequest& request) {
  if (gate_ == nullptr) return;
  const int64_t before = gate_->most_ahead();
  gate_->Begin(request.caller().trainer(), request.version());
  counters_.Get("staleness.most_steps", "steps")->Add(gate_->most_ahead() - before);
}

std::shared_ptr<const void> ServerCoreImpl::TakeReady(const v1::PullRequest& request) {
  if (!PullReady(request)) return nullptr;
  Trainer& trainer = trainers_[static_cast<size_t>(request.caller().trainer())];
  // A session that has ended asks no more; what it asked for before is answered.
  std::shared_ptr<const void> credit =
      trainer.credits == nullptr ? std::make_shared<int>(0) : trainer.credits->Take(ReplyBytes(request));
  if (credit != nullptr) NoteBegun(request);
  return credit;
}

void ServerCoreImpl::TakeReadyPulls(std::vector<WaitingPull>* ready) {
  for (auto pull = pulls_.begin(); pull != pulls_.end();) {
    std::shared_ptr<const void> credit = TakeReady(pull->request);
    if (credit != nullptr) {
      trainers_[static_cast<size_t>(pull->trainer)].progress = options_.clock->Now();
      pull->credit = std::move(credit);
      HandledCall::EndWait(pull->handled);
      ready->push_back(std::move(*pull));
      pull = pulls_.erase(pull);
    } else {
      ++pull;
    }
  }
}

namespace {

// Ids of an item that asks for rows and lies in the payload.
absl::Span<const int64_t> RowIds(const v1::PullItem& item, const Slice& payload) {
  return absl::MakeConstSpan(reinterpret_cast<const int64_t*>(payload.data + item.offset()),
                             static_cast<size_t>(item.count()));
}

}  // namespace

absl::Status ServerCoreImpl::CheckPull(const v1::PullRequest& request, const Slice& payload) {
  if (request.version() < 0 || request.version() > kMaxStep) {
    return absl::InvalidArgumentError(
        absl::StrCat("Pull: version ", request.version(), "; versions run from 0 to ", kMaxStep));
  }
  uint64_t total = 0;
  for (const v1::PullItem& item : request.items()) {
    const auto wrong = [&](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat("pull of ", item.name().substr(0, 200), ": ", what));
    };
    if (item.count() < 0) return wrong(absl::StrCat("count is ", item.count()));
    if (item.width() < 0) return wrong(absl::StrCat("width is ", item.width()));
    v1::WireFormat format = params_->wire_of_blocks().pull();
    uint64_t floats = static_cast<uint64_t>(item.count());
    if (item.width() > 0) {
      const int table = params_->FindTable(item.name());
      const int block = table >= 0 ? -1 : params_->FindBlock(item.name());
      if (table < 0 && block < 0)
        return wrong(absl::StrCat("server ", options_.server_id, " has no such table or block"));
      const int width = table >= 0 ? params_->table(table).width() : params_->block(block).sparse_width;
      if (table >= 0) format = params_->wire_of_table(table).pull();
      if (width == 0) return wrong("the block is pulled whole; it has no rows to ask for");
      if (item.width() != width)
        return wrong(absl::StrCat("rows of ", item.width(), " floats; the table's have ", width));
      if (item.offset() < 0 || item.offset() % static_cast<int64_t>(kAlignment) != 0 ||
          static_cast<uint64_t>(item.offset()) > payload.size ||
          floats > (payload.size - static_cast<uint64_t>(item.offset())) / sizeof(int64_t)) {
        return wrong(
            absl::StrCat(item.count(), " ids at offset ", item.offset(), " of a payload of ", payload.size, " bytes"));
      }
      floats *= static_cast<uint64_t>(width);
      if (block >= 0) {
        const int64_t rows = params_->block(block).rows;
        for (const int64_t id : RowIds(item, payload)) {
          if (id < 0 || id >= rows) return wrong(absl::StrCat("row ", id, " of a block with ", rows, " rows"));
        }
      }
    } else {
      const int block = params_->FindBlock(item.name());
      if (block < 0) return wrong(absl::StrCat("server ", options_.server_id, " has no such block"));
      const int64_t count = params_->block(block).count;
      if (item.begin() < 0 || item.begin() > count || item.count() > count - item.begin()) {
        return wrong(absl::StrCat("elements [", item.begin(), ", ", item.begin(), " + ", item.count(),
                                  ") of a block of ", count));
      }
    }
    if (item.format() != format) {
      return wrong(absl::StrCat("asked for as ", v1::WireFormat_Name(item.format()), "; by the plan it travels as ",
                                v1::WireFormat_Name(format)));
    }
    // The values before they are encoded take memory, too.
    total += AlignUp(std::max(floats * sizeof(float), EncodedBytes(format, floats, GroupOf(item))));
    if (total > kMaxReplyPayload) {
      return wrong(absl::StrCat("the reply would have more than ", kMaxReplyPayload, " bytes; ask in several calls"));
    }
  }
  return absl::OkStatus();
}

absl::Status ServerCoreImpl::CopyItem(const v1::PullItem& item, const Slice& payload, int reader, float* out) {
  if (item.width() == 0) {
    params_->CopyBlock(params_->FindBlock(item.name()), item.begin(), item.count(), out, reader);
    return absl::OkStatus();
  }
  const int table = params_->FindTable(item.name());
  if (table < 0) {
    params_->CopyRows(params_->FindBlock(item.name()), RowIds(item, payload), out);
    return absl::OkStatus();
  }
  // What one of our clients asks for at once is one thread's work: it has the next call answered beside this one.
  ThreadPool* const pool = FloatsOf(item) * sizeof(float) > kRowBytesPerCall ? options_.pool : nullptr;
  // Rows come into being when their first update takes effect; until then they read as their initial values. So what
  // exists at a version depends on no one's reading ahead.
  return params_->table(table).Pull(RowIds(item, payload), /*create=*/false, out, pool);
}

void ServerCoreImpl::ServePull(const v1::PullRequest& request, const Slice& payload, const VersionInfo& info,
                               std::shared_ptr<const void> credit, const ReplyCallback& reply,
                               const HandledCallPtr& handled) {
  ProfileSpan span(HandledCall::StepOf(handled), ProfileKind::kServe, AsksForRows(request) ? kCopyRows : kCopyBlocks);
  if (ProfileEvent* const event = span.event()) event->peer = request.caller().trainer();
  const size_t size = ReplyBytes(request);
  Slices values;
  if (size > 0) {
    const WireBuffer buffer = buffers_.Get(size);
    size_t at = 0;
    for (const v1::PullItem& item : request.items()) {
      char* const out = buffer.data + at;
      const size_t floats = FloatsOf(item), bytes = EncodedBytes(item.format(), floats, GroupOf(item));
      const bool as_is = item.format() == v1::WIRE_FLOAT32;
      const WireBuffer exact = as_is ? WireBuffer() : buffers_.Get(floats * sizeof(float));
      float* const to = reinterpret_cast<float*>(as_is ? out : exact.data);
      const absl::Status status = CopyItem(item, payload, request.caller().trainer(), to);
      if (!status.ok()) return reply(status);
      if (!as_is) Encode(item.format(), to, floats, GroupOf(item), out);
      std::fill(out + bytes, out + AlignUp(bytes), '\0');
      at += AlignUp(bytes);
    }
    using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
    values.push_back({buffer.data, size, std::make_shared<const Both>(buffer.owner, std::move(credit))});
  }
  v1::PullReply header;
  header.set_ready(true);
  header.set_version(info.version);
  header.set_skipped(info.skipped);
  header.set_stop(info.stop);
  header.set_samples(info.samples);
  if (info.ended) header.set_ended(true);
  if (info.first_samples > 0) header.set_first_samples(info.first_samples);
  if (options_.check_payloads) header.set_checksum(Checksum(values));
  reply(EncodeFrame(header.SerializeAsString(), values));
}

void ServerCoreImpl::ServeAll(std::vector<WaitingPull> pulls, const VersionInfo& info) {
  options_.pool->ParallelFor(static_cast<int64_t>(pulls.size()), [&](int64_t i) {
    WaitingPull& pull = pulls[static_cast<size_t>(i)];
    ServePull(pull.request, pull.payload, info, std::move(pull.credit), pull.reply, pull.handled);
  });
}

void ServerCoreImpl::HandlePull(const Slices& bytes, const ReplyCallback& reply, const HandledCallPtr& handled) {
  absl::StatusOr<RawFrame> frame = OpenFrame(bytes);
  if (!frame.ok()) return reply(frame.status());
  const absl::Status known = Admit(frame->header, "PullRequest");
  if (!known.ok()) return reply(known);
  v1::PullRequest request;
  if (!request.ParseFromString(Flatten(frame->header)))
    return reply(absl::InvalidArgumentError("Pull: the header is no PullRequest"));
  HandledCall::Describe(handled, request.caller().trainer(), sync_ ? request.version() : -1,
                        AsksForRows(request) ? kRowsPull : kBlocksPull);
  const Slice payload = Contiguous(frame->payload, &buffers_);
  const absl::Status valid = CheckPull(request, payload);
  if (!valid.ok()) return reply(valid);

  Actions actions;
  VersionInfo info;
  std::shared_ptr<const void> credit;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(const absl::Time now, ActFor(request.caller(), &actions));
    const int id = request.caller().trainer();
    info = version_;
    credit = TakeReady(request);
    if (credit != nullptr) {
      trainers_[static_cast<size_t>(id)].progress = now;
      return absl::OkStatus();
    }
    const absl::Duration wait = std::min(kMaxWait, OfSeconds(request.wait_s()));
    if (wait > absl::ZeroDuration()) {
      // One that asks for no rows is not free either.
      const size_t size = TotalSize(bytes) + request.SpaceUsedLong() + sizeof(WaitingPull);
      size_t waiting = size;
      for (const WaitingPull& pull : pulls_) waiting += pull.trainer == id ? pull.bytes : 0;
      if (waiting > options_.unread_bytes) {
        return absl::ResourceExhaustedError(absl::StrCat(Name(id), " has pulls of ", waiting, " bytes waiting and ",
                                                         trainers_[static_cast<size_t>(id)].credits->outstanding(),
                                                         " bytes of answers unread; at most ", options_.unread_bytes,
                                                         " may wait: read answers before asking for more"));
      }
      if (HandledCall::Wanted(handled)) {
        HandledCall::BeginWait(handled, PullReady(request) ? kRoomWait : kVersionWait, WhoKeepsWaiting(request));
      }
      pulls_.push_back({id, std::move(request), payload, size, now + wait, reply, handled});
      return absl::OkStatus();
    }
    v1::PullReply header;
    header.set_ready(false);
    header.set_version(version_.version);
    header.set_waiting_for(WaitingFor(request));
    header.set_checksum(Checksum({}));
    actions.push_back([reply, text = header.SerializeAsString()] { reply(EncodeFrame(text, {})); });
    return absl::OkStatus();
  }();
  RunAll(&actions);
  if (!status.ok()) return reply(status);
  if (credit != nullptr) ServePull(request, payload, info, std::move(credit), reply, handled);
}

}  // namespace weir
