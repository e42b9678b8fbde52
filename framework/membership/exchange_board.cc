#include "framework/membership/exchange_board.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"

namespace weir {

size_t ExchangeBoard::KeyBytes(const std::string& key) const {
  // Count the entry, its key and its node in the map (about 64 bytes), and for each trainer a Posted, which is larger
  // than a Contribution.
  return sizeof(Entry) + key.size() + 64 + static_cast<size_t>(trainers_) * sizeof(Posted);
}

absl::Status ExchangeBoard::Take(int trainer, size_t bytes, const std::string& key) {
  size_t& used = used_[static_cast<size_t>(trainer)];
  const size_t room = room_[static_cast<size_t>(trainer)];
  if (bytes > room || used > room - bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("exchange ", key, ": trainer ", trainer, " has ", used,
                     " bytes at server 0 that others read, or have read just now, and brings ", bytes,
                     " more; at most ", room, " may be there (docs/wire.md, \"Limits\")"));
  }
  used += bytes;
  return absl::OkStatus();
}

absl::Status ExchangeBoard::CheckKey(const std::string& key) {
  if (key.empty()) return absl::InvalidArgumentError("Exchange: the key is empty");
  if (key.size() <= kMaxExchangeKey) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Exchange: a key of ", key.size(), " bytes; it has at most ", kMaxExchangeKey));
}

absl::Status ExchangeBoard::CheckChunk(const v1::ExchangeRequest& request) {
  if (request.chunks() >= 1 && request.chunks() <= kMaxExchangeChunks && request.chunk() >= 0 &&
      request.chunk() < request.chunks()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("exchange ", request.key(), ": chunk ", request.chunk(), " of ",
                                                 request.chunks(), "; at most ", kMaxExchangeChunks, " are possible"));
}

absl::Status ExchangeBoard::AddChunk(const v1::ExchangeRequest& request, int trainer, Contribution* contribution) {
  const size_t chunks = static_cast<size_t>(request.chunks());
  if (contribution->chunks.empty()) {
    const size_t bytes = chunks * (sizeof(std::string) + 1);
    RETURN_IF_ERROR(Take(trainer, bytes, request.key()));
    contribution->bytes += bytes;
    contribution->chunks.resize(chunks);
    contribution->have.resize(chunks, false);
  }
  if (contribution->chunks.size() != chunks) {
    return absl::InvalidArgumentError(absl::StrCat("exchange ", request.key(), ": trainer ", trainer, " announces ",
                                                   chunks, " chunks now and ", contribution->chunks.size(),
                                                   " before; a key is used once"));
  }
  const size_t chunk = static_cast<size_t>(request.chunk());
  if (contribution->have[chunk]) return absl::OkStatus();
  RETURN_IF_ERROR(Take(trainer, request.contribution().size(), request.key()));
  contribution->bytes += request.contribution().size();
  contribution->have[chunk] = true;
  contribution->chunks[chunk] = request.contribution();
  contribution->complete =
      std::find(contribution->have.begin(), contribution->have.end(), false) == contribution->have.end();
  return absl::OkStatus();
}

absl::Status ExchangeBoard::Put(const v1::ExchangeRequest& request, int trainer) {
  RETURN_IF_ERROR(CheckChunk(request));
  if (!entries_.contains(request.key())) {
    RETURN_IF_ERROR(Take(trainer, KeyBytes(request.key()), request.key()));
    Entry& made = entries_[request.key()];
    made.maker = trainer;
    made.bytes = KeyBytes(request.key());
    made.contributions.resize(static_cast<size_t>(trainers_));
    made.read.resize(static_cast<size_t>(trainers_), false);
  }
  Entry& entry = entries_.find(request.key())->second;
  entry.keep |= request.keep();
  if (request.reader() >= 0 && request.reader() < trainers_) entry.reader = request.reader();
  Contribution& contribution = entry.contributions[static_cast<size_t>(trainer)];
  // A kept contribution stays as it is: the process that replaces a dead trainer reads what that one contributed.
  if (entry.keep && contribution.complete) return absl::OkStatus();
  return AddChunk(request, trainer, &contribution);
}

absl::Status ExchangeBoard::Post(const v1::ExchangeRequest& request, int trainer) {
  RETURN_IF_ERROR(CheckChunk(request));
  // Keys of posts stay.
  if (!posts_.contains(request.key())) RETURN_IF_ERROR(Take(trainer, KeyBytes(request.key()), request.key()));
  std::vector<Posted>& posts = posts_[request.key()];
  posts.resize(static_cast<size_t>(trainers_));
  Posted& posted = posts[static_cast<size_t>(trainer)];
  if (request.edition() <= posted.edition || request.edition() < posted.coming_edition) return absl::OkStatus();
  if (request.edition() > posted.coming_edition) {
    posted.coming_edition = request.edition();
    GiveBack(trainer, posted.coming.bytes);
    posted.coming = Contribution();
  }
  RETURN_IF_ERROR(AddChunk(request, trainer, &posted.coming));
  if (!posted.coming.complete) return absl::OkStatus();
  posted.edition = posted.coming_edition;
  GiveBack(trainer, posted.contribution.bytes);
  posted.contribution = std::move(posted.coming);
  posted.coming = Contribution();
  return absl::OkStatus();
}

absl::Status ExchangeBoard::ReadPost(const v1::ExchangeRequest& request, v1::ExchangeReply* reply) const {
  if (request.read_trainer() < 0 || request.read_trainer() >= trainers_) {
    return absl::InvalidArgumentError(absl::StrCat("exchange ", request.key(), ": reads trainer ",
                                                   request.read_trainer(), ", the job has ", trainers_));
  }
  reply->set_chunks(1);
  reply->set_contribution("");
  const auto posts = posts_.find(request.key());
  if (posts == posts_.end()) return absl::OkStatus();
  const Posted& posted = posts->second[static_cast<size_t>(request.read_trainer())];
  if (posted.edition < 0) return absl::OkStatus();
  const int chunks = static_cast<int>(posted.contribution.chunks.size());
  reply->set_edition(posted.edition);
  reply->set_chunks(chunks);
  // A newer post may have fewer chunks; the reader notices it by the edition.
  if (request.chunk() >= 0 && request.chunk() < chunks) {
    reply->set_contribution(posted.contribution.chunks[static_cast<size_t>(request.chunk())]);
  }
  return absl::OkStatus();
}

size_t ExchangeBoard::ReadBytes(const v1::ExchangeRequest& request) const {
  if (request.read_trainer() < 0 || request.read_trainer() >= trainers_ || request.chunk() < 0) return 0;
  const size_t of = static_cast<size_t>(request.read_trainer()), chunk = static_cast<size_t>(request.chunk());
  const Contribution* contribution = nullptr;
  if (request.has_edition()) {
    const auto posts = posts_.find(request.key());
    if (posts != posts_.end() && posts->second[of].edition >= 0) contribution = &posts->second[of].contribution;
  } else {
    const auto entry = entries_.find(request.key());
    if (entry != entries_.end() && entry->second.contributions[of].complete)
      contribution = &entry->second.contributions[of];
  }
  return contribution != nullptr && chunk < contribution->chunks.size() ? contribution->chunks[chunk].size() : 0;
}

ExchangeBoard::NewestPost ExchangeBoard::Newest(const std::string& key) const {
  NewestPost newest;
  const auto posts = posts_.find(key);
  if (posts == posts_.end()) return newest;
  for (int t = 0; t < trainers_; ++t) {
    const int64_t edition = posts->second[static_cast<size_t>(t)].edition;
    if (edition > newest.edition) newest = {.trainer = t, .edition = edition};
  }
  return newest;
}

std::vector<int> ExchangeBoard::Missing(const std::string& key, const std::function<bool(int)>& excused) const {
  const auto entry = entries_.find(key);
  std::vector<int> missing;
  for (int t = 0; t < trainers_; ++t) {
    const bool there = entry != entries_.end() && entry->second.contributions[static_cast<size_t>(t)].complete;
    if (!there && !excused(t)) missing.push_back(t);
  }
  return missing;
}

absl::Status ExchangeBoard::Read(const v1::ExchangeRequest& request, int trainer, v1::ExchangeReply* reply) {
  if (request.read_trainer() < 0 || request.read_trainer() >= trainers_) {
    return absl::InvalidArgumentError(absl::StrCat("exchange ", request.key(), ": reads trainer ",
                                                   request.read_trainer(), ", the job has ", trainers_));
  }
  const auto found = entries_.find(request.key());
  // All trainers are excused, and none has contributed.
  if (found == entries_.end()) {
    reply->set_chunks(1);
    reply->set_contribution("");
    return absl::OkStatus();
  }
  Entry& entry = found->second;
  const Contribution& contribution = entry.contributions[static_cast<size_t>(request.read_trainer())];
  const int chunks = contribution.complete ? static_cast<int>(contribution.chunks.size()) : 1;
  if (request.chunk() < 0 || request.chunk() >= chunks) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange ", request.key(), ": reads chunk ", request.chunk(), " of ", chunks));
  }
  reply->set_chunks(chunks);
  reply->set_contribution(contribution.complete ? contribution.chunks[static_cast<size_t>(request.chunk())] : "");
  if (request.read_trainer() == trainers_ - 1 && request.chunk() == chunks - 1)
    entry.read[static_cast<size_t>(trainer)] = true;
  return absl::OkStatus();
}

void ExchangeBoard::Expire(absl::Time now, absl::Duration keep, const std::function<bool(int)>& excused, int chief) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    bool all = true;
    const int only = entry->second.reader >= 0 && excused(entry->second.reader) ? chief : entry->second.reader;
    for (int t = 0; t < trainers_; ++t) {
      const bool reads = only < 0 || only == t;
      all &= !reads || entry->second.read[static_cast<size_t>(t)] || excused(t);
    }
    all &= !entry->second.keep;
    if (all && entry->second.all_read == absl::InfiniteFuture()) entry->second.all_read = now;
    if (all && now - entry->second.all_read > keep) {
      GiveBack(entry->second.maker, entry->second.bytes);
      for (int t = 0; t < trainers_; ++t) GiveBack(t, entry->second.contributions[static_cast<size_t>(t)].bytes);
      entry = entries_.erase(entry);
    } else {
      ++entry;
    }
  }
}

}  // namespace weir
