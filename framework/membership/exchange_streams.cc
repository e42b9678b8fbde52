#include "framework/membership/exchange_streams.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"

namespace weir {

namespace {

// Ended streams of one trainer that may be kept.
constexpr int kMaxEnded = 1 << 16;
// Open streams of one trainer that their readers have not started on, beside one to each other trainer.
constexpr int kMaxAhead = 8;

absl::Status CheckOther(const v1::ExchangeRequest& request, int trainer, int other, int trainers) {
  if (other != trainer && other >= 0 && other < trainers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("stream ", request.key(), ": between trainers ", trainer, " and ",
                                                 other, "; it needs two, and the job has trainers 0 to ",
                                                 trainers - 1));
}

}  // namespace

const ExchangeStreams::Stream* ExchangeStreams::Find(const Id& id) const {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : &found->second;
}

absl::Status ExchangeStreams::Write(const v1::ExchangeRequest& request, int trainer) {
  const int to = request.stream_to(), chunk = request.chunk();
  RETURN_IF_ERROR(CheckOther(request, trainer, to, trainers_));
  const std::string what =
      absl::StrCat("stream ", request.key(), " from trainer ", trainer, " to ", to, ": chunk ", chunk);
  if (request.contribution().size() > kStreamChunk) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", request.contribution().size(), " bytes; it has at most ", kStreamChunk));
  }
  const Id id{request.key(), trainer, to};
  if (!streams_.contains(id)) {
    int open = 0, ended = 0;
    for (const auto& [each, stream] : streams_) {
      if (std::get<1>(each) == trainer) ++(stream.Over() ? ended : open);
    }
    if (open >= trainers_ + kMaxAhead || ended >= kMaxEnded) {
      return absl::ResourceExhaustedError(
          absl::StrCat(what, ": the trainer has ", open, " streams that have not been read and ", ended,
                       " that have been of late; it may have ", trainers_ + kMaxAhead, " and ", kMaxEnded));
    }
  }
  Stream& stream = streams_[id];
  // Acknowledges repeated chunks, and chunks of a closed stream, so that the writer does not retry them.
  if (stream.closed || chunk < stream.next()) return absl::OkStatus();
  if (chunk > stream.next() || stream.count > 0 || (request.chunks() != 0 && request.chunks() != chunk + 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " of ", request.chunks(), ", where ", stream.next(), " comes next",
                     stream.count > 0 ? absl::StrCat(" and ", stream.count, " is the end") : ""));
  }
  if (static_cast<int>(stream.chunks.size()) >= kStreamWindow) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": trainer ", to, " has yet to take ", stream.chunks.size(),
                                                     " chunks before it, as many as may wait"));
  }
  stream.chunks.push_back(request.contribution());
  if (request.chunks() != 0) stream.count = chunk + 1;
  return absl::OkStatus();
}

bool ExchangeStreams::HasRoom(const v1::ExchangeRequest& request, int trainer) const {
  const Stream* const stream = Find({request.key(), trainer, request.stream_to()});
  if (stream == nullptr) return true;
  return stream->closed || request.chunk() < stream->taken + kStreamWindow;
}

absl::Status ExchangeStreams::Take(const v1::ExchangeRequest& request, int trainer) {
  RETURN_IF_ERROR(CheckOther(request, trainer, request.stream_from(), trainers_));
  const auto found = streams_.find({request.key(), request.stream_from(), trainer});
  const int next = found == streams_.end() ? 0 : found->second.next();
  const int taken = found == streams_.end() ? 0 : found->second.taken;
  if (request.chunk() < taken || request.chunk() > next) {
    return absl::InvalidArgumentError(absl::StrCat("stream ", request.key(), " from trainer ", request.stream_from(),
                                                   " to ", trainer, ": asks for chunk ", request.chunk(),
                                                   "; it has taken ", taken, " of ", next));
  }
  if (found == streams_.end()) return absl::OkStatus();
  Stream& stream = found->second;
  // Asking for a chunk acknowledges those before it.
  for (; stream.taken < request.chunk(); ++stream.taken) stream.chunks.pop_front();
  return absl::OkStatus();
}

bool ExchangeStreams::Read(const v1::ExchangeRequest& request, int trainer, bool gone, v1::ExchangeReply* reply) const {
  const Stream* const stream = Find({request.key(), request.stream_from(), trainer});
  reply->set_chunks(stream == nullptr ? 0 : stream->count);
  // Asking for the chunk behind the last one gets the end of the stream.
  if (stream != nullptr && stream->count > 0 && request.chunk() == stream->count) return true;
  if (stream != nullptr && !stream->chunks.empty() && request.chunk() == stream->taken) {
    reply->set_contribution(stream->chunks.front());
    return true;
  }
  if (!gone && (stream == nullptr || !stream->closed)) return false;
  reply->add_missing(request.stream_from());
  return true;
}

size_t ExchangeStreams::ReadBytes(const v1::ExchangeRequest& request, int trainer) const {
  const Stream* const stream = Find({request.key(), request.stream_from(), trainer});
  return stream != nullptr && !stream->chunks.empty() && request.chunk() == stream->taken
             ? stream->chunks.front().size()
             : 0;
}

void ExchangeStreams::Close(int trainer) {
  for (auto& [id, stream] : streams_) {
    if (std::get<1>(id) != trainer && std::get<2>(id) != trainer) continue;
    if (stream.Over()) continue;
    stream.closed = true;
    // A live reader still gets the chunks that a gone writer has left; a gone reader's chunks are freed.
    if (std::get<2>(id) == trainer) stream.chunks.clear();
  }
}

void ExchangeStreams::Expire(absl::Time now, absl::Duration keep) {
  for (auto stream = streams_.begin(); stream != streams_.end();) {
    absl::Time& ended = stream->second.ended;
    if (stream->second.Over() && ended == absl::InfiniteFuture()) ended = now;
    stream = now - ended > keep ? streams_.erase(stream) : std::next(stream);
  }
}

}  // namespace weir
