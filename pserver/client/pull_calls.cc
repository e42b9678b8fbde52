#include "pserver/client/pull_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"

namespace weir {

namespace {

const ProfileName kRowsPull("Pull rows"), kBlocksPull("Pull blocks");

}  // namespace

absl::StatusOr<bool> PullCalls::Open(int server, Waits::Thread thread, const Slices& answer, v1::PullReply* header,
                                     Slices* payload) {
  ASSIGN_OR_RETURN(Frame frame, DecodeFrame(answer));
  if (!header->ParseFromString(frame.header)) return absl::DataLossError("no PullReply");
  if (!header->ready()) {
    header->set_waiting_for(Printable(header->waiting_for(), kMaxFailureText));
    waits_.SetHolder(thread, absl::StrCat("server ", server, ": ", header->waiting_for()),
                     absl::StrCat("server ", server, " waits for ", header->waiting_for()));
    return false;
  }
  if (header->has_late_trainer() && header->late_s() > 0) {
    waits_.NoteLate(header->late_trainer(), absl::Seconds(header->late_s()));
  }
  *payload = std::move(frame.payload);
  return true;
}

CallPtr PullCalls::New(int server, const Reader& reader, PlannedPull* planned, const Slices& ids, Take take,
                       MoreBytes more) {
  v1::PullRequest& request = planned->request;
  *request.mutable_caller() = calls_.CallerFor(server);
  request.set_version(reader.version);
  request.set_wait_s(settings().ServerWaitSeconds());
  const bool rows = !ids.empty() || more != nullptr;
  const auto accept = [this, server, reader, rows, start = settings().clock->Now(), bytes = planned->answer_bytes,
                       take = std::move(take), more = std::move(more)](const Slices& answer) -> absl::StatusOr<bool> {
    v1::PullReply header;
    Slices payload;
    ASSIGN_OR_RETURN(const bool ready, Open(server, reader.thread, answer, &header, &payload));
    if (ready) {
      const bool check = settings().transport->checks_payloads();
      PayloadReader values(payload, check);
      size_t expected = bytes;
      if (more != nullptr) {
        ASSIGN_OR_RETURN(const size_t also, more(header));
        expected += also;
      }
      if (values.left() != expected) {
        return absl::DataLossError(absl::StrCat(rows ? "rows" : "blocks", " of ", values.left(), " bytes came, ",
                                                expected, " were asked for"));
      }
      RETURN_IF_ERROR(take(header, &values));
      if (!check || header.checksum() == values.Checksum()) return true;
      return absl::DataLossError("the payload's checksum does not match");
    }
    const absl::Duration waited = settings().clock->Now() - start;
    const bool needed = reader.thread == Waits::kProgram || waits_.ahead_needed();
    if (needed && waited >= settings().slow_warning && !calls_.excused()) {
      LOG(WARNING) << settings().Self() << ": waits for version " << reader.version << " of "
                   << settings().transport->Describe(server) << ", which waits for " << header.waiting_for() << ", for "
                   << SecondsText(waited);
    }
    return false;
  };
  CallPtr call = Calls::New(server, Method::kPull, EncodeFrame(request.SerializeAsString(), ids), accept);
  call->profiled_as = rows ? kRowsPull : kBlocksPull;
  call->needs_trainers = reader.version > 0;
  return call;
}

std::vector<CallPtr> PullCalls::ForEachServer(size_t bytes, const Make& make) {
  std::vector<std::vector<CallPtr>> by_server(static_cast<size_t>(settings().servers()));
  ForEachWorth(&pool_, bytes, settings().servers(), [&, step = ProfiledStep::current()](int64_t s) {
    const ProfiledStep scope(step);
    make(static_cast<int>(s), &by_server[static_cast<size_t>(s)]);
  });
  std::vector<CallPtr> calls;
  for (const std::vector<CallPtr>& of_server : by_server) calls.insert(calls.end(), of_server.begin(), of_server.end());
  return calls;
}

void PullCalls::Begin(const CallPtr& call) {
  if (!answers_inside()) calls_.Issue(call);
}

absl::Status PullCalls::Wait(absl::Span<const CallPtr> calls, const std::string& what, Waits::Thread thread,
                             const ProfileName& profiled_as) {
  if (answers_inside()) RETURN_IF_ERROR(calls_.ServeInParallel(calls, &pool_));
  return calls_.Wait(calls, what, settings().progress_deadline + 2 * settings().lease,
                     {.profiled_as = &profiled_as, .pool = &pool_, .thread = thread});
}

WireBuffer PullCalls::ReadDecoded(PayloadReader* reader, v1::WireFormat format, size_t n, size_t group) {
  const size_t bytes = EncodedBytes(format, n, group);
  const WireBuffer sent = buffers_.Get(bytes);
  WireBuffer values = buffers_.Get(n * sizeof(float));
  reader->Read(sent.data, bytes);
  Decode(format, sent.data, n, group, reinterpret_cast<float*>(values.data));
  return values;
}

}  // namespace weir
