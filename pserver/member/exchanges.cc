#include "pserver/member/exchanges.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"
#include "glog/logging.h"
#include "pserver/member/messages.h"
#include "pserver/protocol/handshake.h"

namespace weir {

namespace {

constexpr size_t kExchangeChunk = size_t{32} << 20;
// Tries to read a post that is replaced while it is read.
constexpr int kReads = 5;

absl::Status CheckChunks(const v1::ExchangeReply& reply, int trainer) {
  if (reply.chunks() >= 1 && reply.chunks() <= kMaxExchangeChunks) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("what trainer ", trainer, " said has ", reply.chunks(), " chunks; at most ",
                                          kMaxExchangeChunks, " are possible"));
}

}  // namespace

Exchanges::Exchanges(Calls* calls, std::shared_ptr<JobView> job, Waits::Thread thread)
    : calls_(*calls), settings_(calls->settings()), job_(std::move(job)), thread_(thread) {}

v1::ExchangeRequest Exchanges::NewRequest(const std::string& key) const {
  v1::ExchangeRequest request;
  *request.mutable_caller() = calls_.CallerFor(0);
  request.set_key(std::string(key));
  return request;
}

CallPtr Exchanges::NewCall(const v1::ExchangeRequest& request, Accept accept) {
  return Calls::New(0, Method::kExchange, MessageBytes(request),
                    [accept = std::move(accept)](const Slices& answer) -> absl::StatusOr<bool> {
                      ASSIGN_OR_RETURN(v1::ExchangeReply reply, ParseMessage<v1::ExchangeReply>(answer));
                      return accept(std::move(reply));
                    });
}

CallPtr Exchanges::NewCallForOthers(const v1::ExchangeRequest& request, Accept accept) {
  CallPtr call = NewCall(request, std::move(accept));
  call->needs_trainers = true;
  return call;
}

absl::Status Exchanges::WaitForExchange(absl::Span<const CallPtr> calls, const std::string& key) {
  return calls_.Wait(calls, absl::StrCat("exchange ", key), settings_.progress_deadline, {.thread = thread_});
}

absl::Status Exchanges::WaitForOthers(const CallPtr& call, const std::string& what, absl::Duration deadline,
                                      bool until_stop) {
  return calls_.Wait({call}, what, deadline,
                     {.while_others_work = !settings_.needs_all_trainers, .until_stop = until_stop, .thread = thread_});
}

void Exchanges::HearOfChief(const v1::ExchangeReply& reply) {
  if (reply.has_chief()) job_->SetChief(reply.chief());
}

// ---------------------------------------------------------------------------------------------------------- exchanges

absl::Status Exchanges::Upload(const std::string& key, const std::string& contribution, const UploadAs& as) {
  const size_t chunks = std::max<size_t>(1, (contribution.size() + kExchangeChunk - 1) / kExchangeChunk);
  std::vector<CallPtr> calls;
  for (size_t c = 0; c < chunks; ++c) {
    v1::ExchangeRequest request = NewRequest(key);
    request.set_contribution(contribution.substr(c * kExchangeChunk, kExchangeChunk));
    request.set_chunk(static_cast<int>(c));
    request.set_chunks(static_cast<int>(chunks));
    if (as.kept) request.set_keep(true);
    if (as.reader >= 0) request.set_reader(as.reader);
    if (as.edition >= 0) request.set_edition(as.edition);
    calls.push_back(Calls::New(0, Method::kExchange, MessageBytes(request),
                               [](const Slices&) -> absl::StatusOr<bool> { return true; }));
  }
  return WaitForExchange(calls, key);
}

absl::Status Exchanges::ReadAll(const std::string& key, std::vector<std::string>* all) {
  const int trainers = settings_.trainers;
  all->assign(static_cast<size_t>(trainers), "");
  // Chunks still to be read, by trainer; the first answer tells how many there are.
  std::vector<int> chunks(static_cast<size_t>(trainers), 1);
  for (int chunk = 0; chunk < *std::max_element(chunks.begin(), chunks.end()); ++chunk) {
    std::vector<CallPtr> calls;
    for (int t = 0; t < trainers; ++t) {
      if (chunk >= chunks[static_cast<size_t>(t)]) continue;
      v1::ExchangeRequest request = NewRequest(key);
      request.set_read_trainer(t);
      request.set_chunk(chunk);
      request.set_wait_s(settings_.ServerWaitSeconds());
      calls.push_back(NewCall(request, [t, all, &chunks](const v1::ExchangeReply& reply) -> absl::StatusOr<bool> {
        if (!reply.ready()) return false;
        RETURN_IF_ERROR(CheckChunks(reply, t));
        chunks[static_cast<size_t>(t)] = reply.chunks();
        (*all)[static_cast<size_t>(t)] += reply.contribution();
        return true;
      }));
    }
    RETURN_IF_ERROR(WaitForExchange(calls, key));
  }
  return absl::OkStatus();
}

absl::Status Exchanges::Contribute(std::string_view key, std::string contribution, int reader) {
  return Upload(std::string(key), contribution, {.reader = reader});
}

absl::StatusOr<bool> Exchanges::TryCollect(std::string_view name, std::vector<std::string>* all) {
  const std::string key(name);
  bool ready = false, forgotten = false;
  const CallPtr call = NewCall(NewRequest(key), [&](const v1::ExchangeReply& reply) -> absl::StatusOr<bool> {
    HearOfChief(reply);
    ready = reply.ready();
    forgotten =
        std::find(reply.missing().begin(), reply.missing().end(), settings_.trainer_id) != reply.missing().end();
    return true;
  });
  RETURN_IF_ERROR(WaitForExchange({call}, key));
  all->clear();
  if (forgotten) return true;
  if (!ready) return false;
  RETURN_IF_ERROR(ReadAll(key, all));
  return true;
}

absl::StatusOr<std::vector<std::string>> Exchanges::Exchange(std::string_view name, std::string contribution, bool kept,
                                                             bool until_stop) {
  const std::string key(name);
  RETURN_IF_ERROR(Upload(key, contribution, {.kept = kept}));
  v1::ExchangeRequest request = NewRequest(key);
  request.set_wait_s(settings_.ServerWaitSeconds());
  const absl::Time start = settings_.clock->Now();
  std::string missing;  // trainers that had not given anything when the server last answered
  const CallPtr call = NewCallForOthers(request, [&](const v1::ExchangeReply& reply) -> absl::StatusOr<bool> {
    HearOfChief(reply);
    missing = reply.missing().empty() ? "" : absl::StrCat("trainer ", absl::StrJoin(reply.missing(), ", trainer "));
    if (!reply.ready() && settings_.clock->Now() - start >= settings_.slow_warning) {
      LOG(WARNING) << settings_.Self() << ": exchange " << key << " waits for " << missing;
    }
    return reply.ready();
  });
  absl::Status status =
      WaitForOthers(call, absl::StrCat("exchange ", key, " of all trainers"), settings_.progress_deadline, until_stop);
  if (absl::IsCancelled(status) && !missing.empty()) {
    return absl::CancelledError(absl::StrCat(status.message(), "; ", missing, " had given nothing"));
  }
  if (absl::IsDeadlineExceeded(status) && !missing.empty()) {
    status = absl::DeadlineExceededError(absl::StrCat(status.message(), "; nothing has come from ", missing));
  }
  RETURN_IF_ERROR(status);
  std::vector<std::string> all;
  RETURN_IF_ERROR(ReadAll(key, &all));
  return all;
}

// -------------------------------------------------------------------------------------------------------------- posts

absl::Status Exchanges::Post(std::string_view key, std::string contribution, int64_t edition) {
  return Upload(std::string(key), contribution, {.edition = edition});
}

absl::StatusOr<std::string> Exchanges::ReadPost(const std::string& key, int trainer, bool* replaced) {
  std::string contribution;
  int64_t edition = -1;
  *replaced = false;
  int chunks = 1;
  for (int chunk = 0; chunk < chunks && !*replaced; ++chunk) {
    v1::ExchangeRequest request = NewRequest(key);
    request.set_read_trainer(trainer);
    request.set_chunk(chunk);
    request.set_edition(0);
    request.set_wait_s(settings_.ServerWaitSeconds());
    const CallPtr call = NewCall(request, [&](const v1::ExchangeReply& reply) -> absl::StatusOr<bool> {
      if (!reply.ready()) return false;
      RETURN_IF_ERROR(CheckChunks(reply, trainer));
      *replaced = chunk > 0 && reply.edition() != edition;
      edition = reply.edition();
      chunks = reply.chunks();
      contribution += reply.contribution();
      return true;
    });
    RETURN_IF_ERROR(WaitForExchange({call}, key));
  }
  return contribution;
}

absl::StatusOr<std::string> Exchanges::Posted(std::string_view key, int trainer) {
  // A trainer that posts faster than its posts can be read counts as one that has posted nothing.
  bool replaced = true;
  std::string posted;
  for (int tries = 0; replaced && tries < kReads; ++tries) {
    ASSIGN_OR_RETURN(posted, ReadPost(std::string(key), trainer, &replaced));
  }
  return replaced ? "" : std::move(posted);
}

absl::StatusOr<PostedWord> Exchanges::FindWord(const std::string& key, int64_t edition, bool wait) {
  v1::ExchangeRequest request = NewRequest(key);
  request.set_anyone(true);
  request.set_wait_s(wait ? settings_.ServerWaitSeconds() : 0);
  request.set_edition(edition);
  PostedWord word;
  const CallPtr call = NewCall(request, [&](const v1::ExchangeReply& reply) -> absl::StatusOr<bool> {
    if (reply.has_by() && (reply.by() < 0 || reply.by() >= settings_.trainers)) {
      return absl::DataLossError(absl::StrCat("it speaks of trainer ", reply.by()));
    }
    HearOfChief(reply);
    word.chief = reply.chief() == settings_.trainer_id;
    if (reply.has_by()) word.by = reply.by();
    if (reply.has_by()) word.edition = reply.edition();
    return reply.ready() || !wait;
  });
  call->needs_trainers = wait;
  // The chief may have to wait as long as this one before it begins.
  RETURN_IF_ERROR(WaitForOthers(call, absl::StrCat("the chief's word of ", key), 2 * settings_.progress_deadline));
  return word;
}

absl::StatusOr<PostedWord> Exchanges::HearWord(const std::string& key, int64_t edition, bool wait, int64_t above) {
  // A post that is replaced while it is read has a newer edition.
  for (int tries = 0; tries < kReads; ++tries) {
    ASSIGN_OR_RETURN(PostedWord word, FindWord(key, edition, wait));
    if (word.by < 0 || word.edition <= above) return word;
    bool replaced = false;
    ASSIGN_OR_RETURN(word.text, ReadPost(key, word.by, &replaced));
    if (!replaced) return word;
  }
  return absl::UnavailableError(absl::StrCat("the post of ", key, " changes faster than it can be read"));
}

absl::StatusOr<PostedWord> Exchanges::AwaitWord(std::string_view key, int64_t edition) {
  return HearWord(std::string(key), edition, /*wait=*/true);
}

absl::StatusOr<PostedWord> Exchanges::NewestWord(std::string_view key, int64_t above) {
  return HearWord(std::string(key), 0, /*wait=*/false, above);
}

// ------------------------------------------------------------------------------------------------------------ streams

class Exchanges::StreamWriter : public ByteStream {
 public:
  StreamWriter(Exchanges* exchanges, const std::string& key, int trainer)
      : exchanges_(*exchanges), key_(key), trainer_(trainer) {}

  absl::Status Append(std::string_view bytes) override {
    while (!bytes.empty()) {
      // The last chunk is known for it only at the end.
      if (chunk_.size() == kStreamChunk) RETURN_IF_ERROR(Send(/*chunks=*/0));
      const size_t n = std::min(bytes.size(), kStreamChunk - chunk_.size());
      chunk_.append(bytes.substr(0, n));
      bytes.remove_prefix(n);
    }
    return absl::OkStatus();
  }
  absl::Status Finish() override { return Send(sent_ + 1); }

 private:
  absl::Status Send(int chunks) {
    RETURN_IF_ERROR(exchanges_.SendChunk(key_, trainer_, sent_, chunks, std::move(chunk_)));
    chunk_.clear();
    ++sent_;
    return absl::OkStatus();
  }

  Exchanges& exchanges_;
  const std::string key_;
  const int trainer_;
  std::string chunk_;  // not sent yet
  int sent_ = 0;
};

absl::Status Exchanges::SendChunk(const std::string& key, int trainer, int chunk, int chunks, std::string bytes) {
  v1::ExchangeRequest request = NewRequest(key);
  request.set_stream_to(trainer);
  request.set_chunk(chunk);
  const auto call = [&] {
    const CallPtr made =
        NewCallForOthers(request, [](const v1::ExchangeReply& reply) -> absl::StatusOr<bool> { return reply.ready(); });
    return calls_.Wait({made}, absl::StrCat("trainer ", trainer, " to take ", key), settings_.progress_deadline,
                       {.thread = thread_});
  };
  if (chunk >= kStreamWindow) {
    request.set_wait_s(settings_.ServerWaitSeconds());
    RETURN_IF_ERROR(call());
  }
  request.set_contribution(std::move(bytes));
  request.set_chunks(chunks);
  return call();
}

std::unique_ptr<ByteStream> Exchanges::StreamTo(std::string_view key, int trainer) {
  return std::make_unique<StreamWriter>(this, std::string(key), trainer);
}

absl::Status Exchanges::ReadStream(std::string_view name, int trainer, const TakeBytes& take) {
  const std::string key(name);
  for (int chunk = 0, chunks = 0; chunks == 0 || chunk <= chunks; ++chunk) {
    v1::ExchangeRequest request = NewRequest(key);
    request.set_stream_from(trainer);
    request.set_chunk(chunk);
    request.set_wait_s(settings_.ServerWaitSeconds());
    v1::ExchangeReply reply;
    const CallPtr call = NewCallForOthers(request, [&reply](v1::ExchangeReply got) -> absl::StatusOr<bool> {
      reply = std::move(got);
      return reply.ready();
    });
    const std::string what = absl::StrCat(key, " of trainer ", trainer);
    RETURN_IF_ERROR(calls_.Wait({call}, what, settings_.progress_deadline, {.thread = thread_}));
    if (!reply.missing().empty()) {
      return absl::UnavailableError(absl::StrCat("trainer ", trainer, " is gone before all of ", key, " has come"));
    }
    // Known from the last chunk on, and the same from then on.
    if (reply.chunks() < 0 || (reply.chunks() > 0 && reply.chunks() < chunk) ||
        (chunks > 0 && reply.chunks() != chunks) || reply.contribution().size() > kStreamChunk) {
      return absl::DataLossError(
          absl::StrCat(what, ": chunk ", chunk, " of ", reply.contribution().size(), " bytes, of ", reply.chunks()));
    }
    chunks = reply.chunks();
    RETURN_IF_ERROR(take(reply.contribution()));
  }
  return absl::OkStatus();
}

}  // namespace weir
