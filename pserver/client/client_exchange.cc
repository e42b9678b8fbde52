#include "pserver/client/client_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "pserver/protocol/handshake.h"

namespace weir {

namespace {

constexpr size_t kExchangeChunk = size_t{32} << 20;

absl::Status CheckChunks(const v1::ExchangeReply& reply, int trainer) {
  if (reply.chunks() >= 1 && reply.chunks() <= kMaxExchangeChunks) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("what trainer ", trainer, " said has ", reply.chunks(), " chunks; at most ",
                                          kMaxExchangeChunks, " are possible"));
}

}  // namespace

absl::Status ClientImpl::Upload(std::string_view key, const std::string& contribution, const UploadAs& as) {
  const size_t chunks = std::max<size_t>(1, (contribution.size() + kExchangeChunk - 1) / kExchangeChunk);
  std::vector<CallPtr> calls;
  for (size_t c = 0; c < chunks; ++c) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerFor(0);
    request.set_key(std::string(key));
    request.set_contribution(contribution.substr(c * kExchangeChunk, kExchangeChunk));
    request.set_chunk(static_cast<int>(c));
    request.set_chunks(static_cast<int>(chunks));
    if (as.kept) request.set_keep(true);
    if (as.reader >= 0) request.set_reader(as.reader);
    if (as.edition >= 0) request.set_edition(as.edition);
    Slices bytes;
    bytes.push_back(Slice::Own(request.SerializeAsString()));
    calls.push_back(
        NewCall(0, Method::kExchange, std::move(bytes), [](const Slices&) -> absl::StatusOr<bool> { return true; }));
  }
  return Wait(calls, absl::StrCat("exchange ", std::string(key)), progress_deadline_);
}

absl::Status ClientImpl::ReadAll(std::string_view key, std::vector<std::string>* all) {
  const int trainers = options_.plan.trainers();
  all->assign(static_cast<size_t>(trainers), "");
  // Chunks still to be read, by trainer; the first answer tells how many there are.
  std::vector<int> chunks(static_cast<size_t>(trainers), 1);
  std::vector<std::vector<std::string>> read(static_cast<size_t>(trainers));
  for (int chunk = 0; chunk < *std::max_element(chunks.begin(), chunks.end()); ++chunk) {
    std::vector<CallPtr> calls;
    for (int t = 0; t < trainers; ++t) {
      if (chunk >= chunks[static_cast<size_t>(t)]) continue;
      v1::ExchangeRequest request;
      *request.mutable_caller() = CallerFor(0);
      request.set_key(std::string(key));
      request.set_read_trainer(t);
      request.set_chunk(chunk);
      request.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
      Slices bytes;
      bytes.push_back(Slice::Own(request.SerializeAsString()));
      calls.push_back(NewCall(0, Method::kExchange, std::move(bytes),
                              [t, all, &chunks](const Slices& answer) -> absl::StatusOr<bool> {
                                v1::ExchangeReply reply;
                                if (!reply.ParseFromString(Flatten(answer)))
                                  return absl::DataLossError("no ExchangeReply");
                                if (!reply.ready()) return false;
                                RETURN_IF_ERROR(CheckChunks(reply, t));
                                chunks[static_cast<size_t>(t)] = reply.chunks();
                                (*all)[static_cast<size_t>(t)] += reply.contribution();
                                return true;
                              }));
    }
    RETURN_IF_ERROR(Wait(calls, absl::StrCat("exchange ", std::string(key)), progress_deadline_));
  }
  return absl::OkStatus();
}

absl::Status ClientImpl::Contribute(std::string_view key, std::string contribution, int reader) {
  return Upload(key, contribution, {.reader = reader});
}

absl::Status ClientImpl::Post(std::string_view key, std::string contribution, int64_t edition) {
  return Upload(key, contribution, {.edition = edition});
}

absl::StatusOr<std::string> ClientImpl::ReadPost(std::string_view key, int trainer, bool* replaced) {
  std::string contribution;
  int64_t edition = -1;
  *replaced = false;
  int chunks = 1;
  for (int chunk = 0; chunk < chunks && !*replaced; ++chunk) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerFor(0);
    request.set_key(std::string(key));
    request.set_read_trainer(trainer);
    request.set_chunk(chunk);
    request.set_edition(0);
    request.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
    Slices bytes;
    bytes.push_back(Slice::Own(request.SerializeAsString()));
    const CallPtr call =
        NewCall(0, Method::kExchange, std::move(bytes), [&](const Slices& answer) -> absl::StatusOr<bool> {
          v1::ExchangeReply reply;
          if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no ExchangeReply");
          if (!reply.ready()) return false;
          RETURN_IF_ERROR(CheckChunks(reply, trainer));
          *replaced = chunk > 0 && reply.edition() != edition;
          edition = reply.edition();
          chunks = reply.chunks();
          contribution += reply.contribution();
          return true;
        });
    RETURN_IF_ERROR(Wait({call}, absl::StrCat("exchange ", std::string(key)), progress_deadline_));
  }
  return contribution;
}

absl::StatusOr<std::string> ClientImpl::Posted(std::string_view key, int trainer) {
  // One that posts faster than this can be read has nothing to say.
  bool replaced = true;
  std::string posted;
  for (int tries = 0; replaced && tries < 5; ++tries) {
    ASSIGN_OR_RETURN(posted, ReadPost(key, trainer, &replaced));
  }
  return replaced ? "" : std::move(posted);
}

// ------------------------------------------------------------------------------------------------------------ streams

class ClientImpl::StreamWriter : public Client::Stream {
 public:
  StreamWriter(ClientImpl* client, std::string_view key, int trainer)
      : client_(*client), key_(key), trainer_(trainer) {}

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
    RETURN_IF_ERROR(client_.SendChunk(key_, trainer_, sent_, chunks, std::move(chunk_)));
    chunk_.clear();
    ++sent_;
    return absl::OkStatus();
  }

  ClientImpl& client_;
  const std::string key_;
  const int trainer_;
  std::string chunk_;  // not sent yet
  int sent_ = 0;
};

absl::Status ClientImpl::SendChunk(const std::string& key, int trainer, int chunk, int chunks, std::string bytes) {
  const auto call = [&](v1::ExchangeRequest request) {
    *request.mutable_caller() = CallerFor(0);
    request.set_key(key);
    request.set_stream_to(trainer);
    request.set_chunk(chunk);
    Slices slices;
    slices.push_back(Slice::Own(request.SerializeAsString()));
    const CallPtr made =
        NewCall(0, Method::kExchange, std::move(slices), [](const Slices& answer) -> absl::StatusOr<bool> {
          v1::ExchangeReply reply;
          if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no ExchangeReply");
          return reply.ready();
        });
    return Wait({made}, absl::StrCat("trainer ", trainer, " to take ", key), progress_deadline_);
  };
  v1::ExchangeRequest request;
  if (chunk >= kStreamWindow) {
    request.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
    RETURN_IF_ERROR(call(request));
  }
  request.set_contribution(std::move(bytes));
  request.set_chunks(chunks);
  return call(std::move(request));
}

std::unique_ptr<Client::Stream> ClientImpl::StreamTo(std::string_view key, int trainer) {
  return std::make_unique<StreamWriter>(this, key, trainer);
}

absl::Status ClientImpl::ReadStream(std::string_view key, int trainer, const Take& take) {
  for (int chunk = 0, chunks = 0; chunks == 0 || chunk <= chunks; ++chunk) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerFor(0);
    request.set_key(std::string(key));
    request.set_stream_from(trainer);
    request.set_chunk(chunk);
    request.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
    Slices bytes;
    bytes.push_back(Slice::Own(request.SerializeAsString()));
    v1::ExchangeReply reply;
    const CallPtr call =
        NewCall(0, Method::kExchange, std::move(bytes), [&reply](const Slices& answer) -> absl::StatusOr<bool> {
          if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no ExchangeReply");
          return reply.ready();
        });
    const std::string what = absl::StrCat(std::string(key), " of trainer ", trainer);
    RETURN_IF_ERROR(Wait({call}, what, progress_deadline_));
    if (!reply.missing().empty()) {
      return absl::UnavailableError(
          absl::StrCat("trainer ", trainer, " is gone before all of ", std::string(key), " has come"));
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

int ClientImpl::Chief() {
  MutexLock lock(&shared_->mu);
  return shared_->chief;
}

void ClientImpl::HearOfChief(const v1::ExchangeReply& reply) {
  if (!reply.has_chief() || reply.chief() < 0 || reply.chief() >= options_.plan.trainers()) return;
  MutexLock lock(&shared_->mu);
  shared_->chief = reply.chief();
}

absl::StatusOr<Client::Word> ClientImpl::HearWord(std::string_view key, int64_t edition, absl::Duration wait) {
  v1::ExchangeRequest request;
  *request.mutable_caller() = CallerFor(0);
  request.set_key(std::string(key));
  request.set_anyone(true);
  request.set_wait_s(absl::ToDoubleSeconds(std::min(wait, slow_warning_)));
  // One that is replaced while it is read has a newer edition.
  for (int tries = 0; tries < 5; ++tries) {
    request.set_edition(edition);
    Slices bytes;
    bytes.push_back(Slice::Own(request.SerializeAsString()));
    Word word;
    const CallPtr call =
        NewCall(0, Method::kExchange, std::move(bytes), [&](const Slices& answer) -> absl::StatusOr<bool> {
          v1::ExchangeReply reply;
          if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no ExchangeReply");
          if (reply.has_by() && (reply.by() < 0 || reply.by() >= options_.plan.trainers())) {
            return absl::DataLossError(absl::StrCat("it speaks of trainer ", reply.by()));
          }
          HearOfChief(reply);
          word.chief = reply.chief() == options_.trainer_id;
          if (reply.has_by()) word.by = reply.by();
          if (reply.has_by()) word.edition = reply.edition();
          return reply.ready() || wait == absl::ZeroDuration();
        });
    // The chief may have to wait as long as this one before it begins.
    RETURN_IF_ERROR(Wait({call}, absl::StrCat("the chief's word of ", std::string(key)), 2 * progress_deadline_,
                         {.while_others_work = !options_.plan.sync()}));
    if (word.by < 0) return word;
    bool replaced = false;
    ASSIGN_OR_RETURN(word.text, ReadPost(key, word.by, &replaced));
    if (!replaced) return word;
  }
  return absl::UnavailableError(absl::StrCat("the post of ", std::string(key), " changes faster than it can be read"));
}

bool ClientImpl::ExchangesNorms() {
  MutexLock lock(&shared_->mu);
  return std::any_of(shared_->norm_rounds.begin(), shared_->norm_rounds.end(), [](int rounds) { return rounds > 0; });
}

std::optional<int64_t> ClientImpl::TakesOver() {
  MutexLock lock(&shared_->mu);
  return shared_->takes_over;
}

std::string ClientImpl::RunId() {
  MutexLock lock(&shared_->mu);
  return shared_->run.empty() ? "" : absl::StrCat(absl::Hex(StableHash(shared_->run), absl::kZeroPad16));
}

absl::StatusOr<bool> ClientImpl::TryCollect(std::string_view key, std::vector<std::string>* all) {
  v1::ExchangeRequest request;
  *request.mutable_caller() = CallerFor(0);
  request.set_key(std::string(key));
  Slices bytes;
  bytes.push_back(Slice::Own(request.SerializeAsString()));
  bool ready = false, forgotten = false;
  const CallPtr call =
      NewCall(0, Method::kExchange, std::move(bytes), [&](const Slices& answer) -> absl::StatusOr<bool> {
        v1::ExchangeReply reply;
        if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no ExchangeReply");
        HearOfChief(reply);
        ready = reply.ready();
        forgotten =
            std::find(reply.missing().begin(), reply.missing().end(), options_.trainer_id) != reply.missing().end();
        return true;
      });
  RETURN_IF_ERROR(Wait({call}, absl::StrCat("exchange ", std::string(key)), progress_deadline_));
  all->clear();
  if (forgotten) return true;
  if (!ready) return false;
  RETURN_IF_ERROR(ReadAll(key, all));
  return true;
}

absl::StatusOr<std::vector<std::string>> ClientImpl::Exchange(std::string_view key, std::string contribution,
                                                              bool kept) {
  RETURN_IF_ERROR(Upload(key, contribution, {.kept = kept}));
  v1::ExchangeRequest request;
  *request.mutable_caller() = CallerFor(0);
  request.set_key(std::string(key));
  request.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
  Slices bytes;
  bytes.push_back(Slice::Own(request.SerializeAsString()));
  const absl::Time start = options_.clock->Now();
  std::string missing;  // whoever had not given anything when the server last answered
  const CallPtr call =
      NewCall(0, Method::kExchange, std::move(bytes), [&](const Slices& answer) -> absl::StatusOr<bool> {
        v1::ExchangeReply reply;
        if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no ExchangeReply");
        HearOfChief(reply);
        missing = reply.missing().empty() ? "" : absl::StrCat("trainer ", absl::StrJoin(reply.missing(), ", trainer "));
        if (!reply.ready() && options_.clock->Now() - start >= slow_warning_) {
          LOG(WARNING) << Self() << ": exchange " << std::string(key) << " waits for " << missing;
        }
        return reply.ready();
      });
  absl::Status status = Wait({call}, absl::StrCat("exchange ", std::string(key), " of all trainers"),
                             progress_deadline_, {.while_others_work = !options_.plan.sync()});
  if (absl::IsDeadlineExceeded(status) && !missing.empty()) {
    status = absl::DeadlineExceededError(absl::StrCat(status.message(), "; nothing has come from ", missing));
  }
  RETURN_IF_ERROR(status);
  std::vector<std::string> all;
  RETURN_IF_ERROR(ReadAll(key, &all));
  return all;
}

absl::StatusOr<std::vector<v1::ControlReply>> ClientImpl::Control(const v1::ControlRequest& request) {
  std::vector<v1::ControlReply> replies(static_cast<size_t>(servers()));
  std::vector<CallPtr> calls;
  for (int s = 0; s < servers(); ++s) {
    v1::ControlRequest own = request;
    *own.mutable_caller() = CallerFor(s);
    own.set_request_id(next_request_++);
    Slices bytes;
    bytes.push_back(Slice::Own(own.SerializeAsString()));
    calls.push_back(
        NewCall(s, Method::kControl, std::move(bytes), [s, &replies](const Slices& answer) -> absl::StatusOr<bool> {
          if (!replies[static_cast<size_t>(s)].ParseFromString(Flatten(answer)))
            return absl::DataLossError("no ControlReply");
          return true;
        }));
  }
  RETURN_IF_ERROR(Wait(calls, "a control call", progress_deadline_));
  return replies;
}

}  // namespace weir
