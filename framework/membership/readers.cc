#include "framework/membership/readers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/printable.h"
#include "framework/membership/limits.h"
#include "framework/membership/new_session.h"

namespace weir {

Readers::Readers(Options options)
    : options_(options), all_(std::make_shared<ReplyCredits>(options_.unread_bytes_of_all)) {}

absl::StatusOr<uint64_t> Readers::Admit(std::string_view process, uint64_t incarnation, absl::Time now) {
  const std::string shown = Printable(process, kMaxText);
  for (auto& [session, reader] : readers_) {
    if (reader.process != shown || reader.incarnation != incarnation) continue;
    reader.lease_until = now + options_.lease;
    return session;
  }
  if (readers_.size() >= kMaxReaders) {
    return absl::ResourceExhaustedError(
        absl::StrCat("has ", readers_.size(), " readers, as many as may: close some, or wait until the lease of one, ",
                     absl::ToDoubleSeconds(options_.lease), " s after its last call, has run out"));
  }
  uint64_t session = NewSession();
  while (readers_.count(session) > 0) session = NewSession();
  readers_[session] = {.process = shown,
                       .incarnation = incarnation,
                       .lease_until = now + options_.lease,
                       .credits = std::make_shared<ReplyCredits>(options_.unread_bytes)};
  return session;
}

const Readers::Reader* Readers::Find(uint64_t session) const {
  const auto found = readers_.find(session);
  return found == readers_.end() ? nullptr : &found->second;
}

std::string Readers::Name(uint64_t session) const {
  const Reader* const reader = Find(session);
  return reader == nullptr ? "a reader that is gone" : absl::StrCat("reader (", reader->process, ")");
}

bool Readers::Renew(uint64_t session, absl::Time now) {
  const auto found = readers_.find(session);
  if (found == readers_.end()) return false;
  found->second.lease_until = std::max(found->second.lease_until, now + options_.lease);
  return true;
}

void Readers::Expire(absl::Time now) {
  std::erase_if(readers_, [now](const auto& entry) { return now > entry.second.lease_until; });
}

absl::Time Readers::FirstEnd() const {
  absl::Time first = absl::InfiniteFuture();
  for (const auto& [session, reader] : readers_) first = std::min(first, reader.lease_until);
  return first;
}

void Readers::Extend(absl::Time until) {
  for (auto& [session, reader] : readers_) reader.lease_until = std::max(reader.lease_until, until);
}

std::shared_ptr<const void> Readers::TakeCredit(uint64_t session, size_t bytes) {
  const Reader* const reader = Find(session);
  if (reader == nullptr) return nullptr;
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  Both both{reader->credits->Take(bytes), nullptr};
  if (both.first != nullptr) both.second = all_->Take(bytes);
  return both.second == nullptr ? nullptr : std::make_shared<const Both>(std::move(both));
}

}  // namespace weir
